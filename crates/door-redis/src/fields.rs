//! The fields of a hash, read and changed as the bytes they are stored as.
//!
//! A hash of some fields, what most are, is searched faster along its bytes than through a table,
//! and takes no more memory than they do. Writing copies it, as any version is a value of its own;
//! many changes of one command are made in one copy.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};

/// Whether `bytes` are whole fields with their values.
pub(crate) fn well_formed(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        match pair(rest) {
            Some((_, _, after)) => rest = after,
            None => return false,
        }
    }
    true
}

/// The first field, its value, and what is behind them.
fn pair(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (field, rest) = one(bytes)?;
    let (value, rest) = one(rest)?;
    Some((field, value, rest))
}

fn one(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// All fields with their values, in order of insertion.
pub(crate) fn iterate(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (field, value, after) = pair(rest)?;
        rest = after;
        Some((field, value))
    })
}

/// The value of a field.
pub(crate) fn get<'a>(bytes: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    iterate(bytes).find(|(name, _)| *name == field).map(|(_, value)| value)
}

/// The values of some fields, which are looked for in one pass where they are many.
pub(crate) enum Values<'a> {
    Few(&'a [u8]),
    Many(HashMap<&'a [u8], Option<&'a [u8]>>),
}

impl<'a> Values<'a> {
    pub(crate) fn of(bytes: &'a [u8], names: impl ExactSizeIterator<Item = &'a [u8]>) -> Self {
        if names.len() < TABLE_FROM {
            return Self::Few(bytes);
        }
        let mut table: HashMap<&[u8], Option<&[u8]>> = names.map(|name| (name, None)).collect();
        for (field, value) in iterate(bytes) {
            // Of one that another program wrote twice the first counts, as for who asks for it alone.
            if let Some(found @ None) = table.get_mut(field) {
                *found = Some(value);
            }
        }
        Self::Many(table)
    }

    pub(crate) fn get(&self, field: &[u8]) -> Option<&'a [u8]> {
        match self {
            Self::Few(bytes) => get(bytes, field),
            Self::Many(table) => table.get(field).copied().flatten(),
        }
    }
}

/// How many there are.
pub(crate) fn count(bytes: &[u8]) -> usize {
    iterate(bytes).count()
}

/// The fields with `changes` made, and how many of the changes' fields are new. Of two changes to
/// one field the later counts.
pub(crate) fn set(bytes: &[u8], changes: &[(&[u8], &[u8])]) -> (Bytes, usize) {
    let grown: usize = changes.iter().map(|(field, value)| field.len() + value.len() + 8).sum();
    let mut into = BytesMut::with_capacity(bytes.len() + grown);
    let last = Last::of(changes);
    for (field, value) in iterate(bytes) {
        let value = last.find(field).map_or(value, |at| changes[at].1);
        put(&mut into, field, value);
    }
    let old = Last::of_fields(bytes, changes.len());
    let mut new = 0;
    for (at, (field, value)) in changes.iter().enumerate() {
        let known = match &old {
            Some(old) => old.contains(field),
            None => get(bytes, field).is_some(),
        };
        if !known && last.find(field) == Some(at) {
            put(&mut into, field, value);
            new += 1;
        }
    }
    (into.freeze(), new)
}

/// The fields without some, and how many went.
pub(crate) fn remove<'a>(bytes: &[u8], fields: impl Iterator<Item = &'a [u8]>) -> (Bytes, usize) {
    let gone: std::collections::HashSet<&[u8]> = fields.collect();
    let mut into = BytesMut::with_capacity(bytes.len());
    let mut removed = 0;
    for (field, value) in iterate(bytes) {
        if gone.contains(field) {
            removed += 1;
        } else {
            put(&mut into, field, value);
        }
    }
    (into.freeze(), removed)
}

fn put(into: &mut BytesMut, field: &[u8], value: &[u8]) {
    for part in [field, value] {
        into.put_u32(part.len() as u32);
        into.put_slice(part);
    }
}

/// From this many changes on a table is faster than looking along them.
const TABLE_FROM: usize = 8;

/// The last change of each field.
enum Last<'a> {
    Few(&'a [(&'a [u8], &'a [u8])]),
    Many(HashMap<&'a [u8], usize>),
}

impl<'a> Last<'a> {
    fn of(changes: &'a [(&'a [u8], &'a [u8])]) -> Self {
        if changes.len() < TABLE_FROM {
            return Self::Few(changes);
        }
        Self::Many(changes.iter().enumerate().map(|(at, (field, _))| (*field, at)).collect())
    }

    /// The fields there are, where so many are looked for that a table pays.
    fn of_fields(bytes: &[u8], lookups: usize) -> Option<std::collections::HashSet<&[u8]>> {
        (lookups >= TABLE_FROM).then(|| iterate(bytes).map(|(field, _)| field).collect())
    }

    fn find(&self, field: &[u8]) -> Option<usize> {
        match self {
            Self::Few(changes) => changes.iter().rposition(|(name, _)| *name == field),
            Self::Many(table) => table.get(field).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        iterate(bytes).map(|(field, value)| (field.to_vec(), value.to_vec())).collect()
    }

    proptest! {
        #[test]
        fn changes_are_those_of_an_ordered_list(
            steps in prop::collection::vec(
                prop::collection::vec((0_u8..12, any::<bool>(), any::<u8>()), 1..14), 0..8),
        ) {
            let mut bytes = Bytes::new();
            let mut model: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            for step in steps {
                let names: Vec<Vec<u8>> = step.iter().map(|(f, ..)| vec![b'f', *f]).collect();
                let values: Vec<[u8; 1]> = step.iter().map(|(.., value)| [*value]).collect();
                if step[0].1 {
                    let changes: Vec<(&[u8], &[u8])> =
                        names.iter().zip(&values).map(|(n, v)| (&n[..], &v[..])).collect();
                    let (after, new) = set(&bytes, &changes);
                    let before = model.len();
                    // Of several new ones the order is that of their last change.
                    let mut fresh: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
                    for (name, value) in &changes {
                        if let Some(known) = model.iter_mut().find(|(f, _)| f == name) {
                            known.1 = value.to_vec();
                        } else {
                            fresh.retain(|(f, _)| f != name);
                            fresh.push((name.to_vec(), value.to_vec()));
                        }
                    }
                    model.append(&mut fresh);
                    prop_assert_eq!(new, model.len() - before);
                    bytes = after;
                } else {
                    let (after, gone) = remove(&bytes, names.iter().map(|name| &name[..]));
                    let before = model.len();
                    model.retain(|(field, _)| !names.contains(field));
                    prop_assert_eq!(gone, before - model.len());
                    bytes = after;
                }
                prop_assert!(well_formed(&bytes));
                prop_assert_eq!(pairs(&bytes), model.clone());
                prop_assert_eq!(count(&bytes), model.len());
            }
        }

        #[test]
        fn hostile_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (well_formed(&bytes), count(&bytes), get(&bytes, b"x"));
        }
    }
}
