//! Maps: fields with values, in an order, merged field by field.
//!
//! ```text
//! 00 68 | repeated: length of the field, 4 | field | length of its value, 4 | value
//! ```
//! Integers are big-endian; no field is there twice; the order is that in which they came. The first byte keeps maps apart from
//! text, the second is `h`. The door for Redis keeps its hashes so.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{CLASHES_MAX, Clash, Conflict, Merge, Merged, Value, all_bytes, settled};
use crate::VersionError;
use crate::reader::Reader;

/// How a map begins.
pub const PREFIX: &[u8] = &[0, b'h'];

/// A field and its value.
pub type Field<'a> = (&'a [u8], &'a [u8]);

/// The fields of a map and their values, in their order. They share `bytes`.
///
/// # Errors
/// [`VersionError`].
pub fn decode(bytes: &[u8]) -> Result<Vec<Field<'_>>, VersionError> {
    let mut reader = Reader::new("map", bytes);
    reader.prefix(PREFIX)?;
    let mut fields = Vec::new();
    while !reader.rest().is_empty() {
        let length = reader.u32()? as usize;
        let field = reader.take(length)?;
        let length = reader.u32()? as usize;
        fields.push((field, reader.take(length)?));
    }
    let mut names: Vec<&[u8]> = fields.iter().map(|(field, _)| *field).collect();
    names.sort_unstable();
    if names.windows(2).any(|two| two[0] == two[1]) {
        return Err(VersionError::Field("map, which has a field twice,"));
    }
    Ok(fields)
}

/// The map of these fields, which the caller knows to be all different.
pub fn encode<'a>(fields: impl IntoIterator<Item = Field<'a>>) -> Bytes {
    let mut out = PREFIX.to_vec();
    for (field, value) in fields {
        for part in [field, value] {
            out.extend_from_slice(&(part.len() as u32).to_be_bytes());
            out.extend_from_slice(part);
        }
    }
    out.into()
}

/// v0 with the changes of both sides. Fields keep the order of v1; those that v2 alone has come behind. A field that both
/// changed, not to the same, is a clash, as is one that one side changed and the other deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreeWayMap;

impl Merge for ThreeWayMap {
    fn merge(&self, v0: Option<Value<'_>>, v1: Value<'_>, v2: Value<'_>) -> Merged {
        if let Some(value) = settled(v0, v1, v2) {
            return Merged::of(value);
        }
        let all = match all_bytes(v0, v1, v2, PREFIX) {
            Ok(all) => all.map(decode),
            Err(conflict) => return conflict,
        };
        let [Ok(v0), Ok(v1), Ok(v2)] = all else {
            return Merged::conflict("a value is no map (0 h, then fields and values)");
        };
        fields(&v0, &v1, &v2)
    }
}

fn fields(v0: &[Field<'_>], v1: &[Field<'_>], v2: &[Field<'_>]) -> Merged {
    let by_name = |fields: &[_]| fields.iter().copied().collect::<BTreeMap<&[u8], &[u8]>>();
    let (was, first, second) = (by_name(v0), by_name(v1), by_name(v2));
    let (mut merged, mut clashes) = (Vec::new(), Vec::new());
    let only_second = v2.iter().filter(|(field, _)| !first.contains_key(field));
    for (field, _) in v1.iter().chain(only_second) {
        let (was, first, second) = (was.get(field), first.get(field), second.get(field));
        let value = if first == second || was == second {
            first
        } else if was == first {
            second
        } else {
            clashes.push(Clash::Field(Bytes::copy_from_slice(field)));
            if clashes.len() == CLASHES_MAX {
                break;
            }
            continue;
        };
        merged.extend(value.map(|value| (*field, *value)));
    }
    if clashes.is_empty() {
        return Merged::bytes(encode(merged));
    }
    Merged::Conflict(Conflict { reason: "both sides changed the same fields".into(), clashes })
}
