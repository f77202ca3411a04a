//! What becomes of two versions that were made of one: merge functions, and those that come along.
//!
//! A merge function is `f(v0, v1, v2)`: the value of the closest common ancestor, and of the two. Where two versions have
//! several closest ones, v0 is what the function makes of these ([`AncestorWalk`], [`Making`]). It gives a value, which a
//! version with two bases then has, or says why there is none. It sees values as they are, so where they are sealed it runs at
//! the client, which opens them first. An application registers its own under a name ([`Merges::with`]).
//!
//! | name | values | gives |
//! |---|---|---|
//! | `append` | what only grows at its end | v0, what v1 added, what v2 added |
//! | `aggregate-sum`, `-min`, `-max` | one decimal integer of 64 bits | v1 + v2 - v0; the lesser; the greater |
//! | `choose-one` | any | the one that changed; where both did, the greater, the same on every peer |
//! | `choose-first`, `choose-second` | any | v1; v2 |
//! | `three-way-text` | lines | v0 with the changes of both, by lines |
//! | `three-way-map` | [`map`] | v0 with the changes of both, by fields |
//!
//! A side that is v0 unchanged yields to the other, also where that is a deletion; a deletion beside a change is a conflict, but
//! for the choices.

mod aggregate;
mod ancestor;
mod append;
mod choose;
pub mod map;
mod text;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::{ValueKind, VersionError};

pub use aggregate::Aggregate;
pub use ancestor::{Ancestor, AncestorWalk, MERGES_MAX, Making, OwnedValue, V0, ancestor};
pub use append::Append;
pub use choose::Choose;
pub use map::ThreeWayMap;
pub use text::ThreeWayText;

/// The most clashes that a conflict names.
pub const CLASHES_MAX: usize = 64;
/// The longest name of a merge function, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A value to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// What it is.
    pub kind: ValueKind,
    /// All of it.
    pub bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// Plain bytes.
    pub const fn bytes(bytes: &'a [u8]) -> Self {
        Self { kind: ValueKind::Bytes, bytes }
    }

    /// A deletion.
    pub const TOMBSTONE: Self = Self { kind: ValueKind::Tombstone, bytes: &[] };
}

/// What came of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The value that the merge has.
    Value {
        /// What it is.
        kind: ValueKind,
        /// All of it.
        value: Bytes,
    },
    /// There is none: both stay tips.
    Conflict(Conflict),
}

impl Merged {
    /// This value, as it is.
    pub fn of(value: Value<'_>) -> Self {
        Self::Value { kind: value.kind, value: Bytes::copy_from_slice(value.bytes) }
    }

    /// Plain bytes.
    pub fn bytes(value: impl Into<Bytes>) -> Self {
        Self::Value { kind: ValueKind::Bytes, value: value.into() }
    }

    /// No value, for this reason.
    pub fn conflict(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Conflict(Conflict { reason: reason.into(), clashes: Vec::new() })
    }
}

/// Why two versions do not merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The reason, for people.
    pub reason: Cow<'static, str>,
    /// Where both changed the same, the first [`CLASHES_MAX`] of them.
    pub clashes: Vec<Clash>,
}

/// Where both sides changed the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clash {
    /// Lines of v0, from the first, counted from 0, to the last, exclusive; none where both inserted before the first.
    Lines {
        /// The first.
        from: usize,
        /// Behind the last.
        until: usize,
    },
    /// A field of a map.
    Field(Bytes),
}

/// A merge function. It is called from many threads at once, and gives the same for the same values everywhere: peers and
/// clients that merge the same two versions then make the same version.
pub trait Merge: Send + Sync {
    /// The value of the merge of `v1` and `v2`; `v0` is that of their closest common ancestor, or what the function made of
    /// several; `None` where they have none.
    fn merge(&self, v0: Option<Value<'_>>, v1: Value<'_>, v2: Value<'_>) -> Merged;
}

impl<F> Merge for F
where
    F: Fn(Option<Value<'_>>, Value<'_>, Value<'_>) -> Merged + Send + Sync,
{
    fn merge(&self, v0: Option<Value<'_>>, v1: Value<'_>, v2: Value<'_>) -> Merged {
        self(v0, v1, v2)
    }
}

/// Calls a merge function, and checks that a version can have what it gives.
///
/// # Errors
/// As [`ValueKind::check`].
pub fn merge(
    f: &dyn Merge,
    v0: Option<Value<'_>>,
    v1: Value<'_>,
    v2: Value<'_>,
) -> Result<Merged, VersionError> {
    let merged = f.merge(v0, v1, v2);
    if let Merged::Value { kind, value } = &merged {
        kind.check(value.len())?;
    }
    Ok(merged)
}

/// Merge functions by name.
#[derive(Clone)]
pub struct Merges(BTreeMap<Box<str>, Arc<dyn Merge>>);

impl Merges {
    /// Those that come along.
    pub fn new() -> Self {
        let ours: [(&str, Arc<dyn Merge>); 9] = [
            ("append", Arc::new(Append)),
            ("aggregate-sum", Arc::new(Aggregate::Sum)),
            ("aggregate-min", Arc::new(Aggregate::Min)),
            ("aggregate-max", Arc::new(Aggregate::Max)),
            ("choose-one", Arc::new(Choose::One)),
            ("choose-first", Arc::new(Choose::First)),
            ("choose-second", Arc::new(Choose::Second)),
            ("three-way-text", Arc::new(ThreeWayText)),
            ("three-way-map", Arc::new(ThreeWayMap)),
        ];
        Self(ours.into_iter().map(|(name, f)| (name.into(), f)).collect())
    }

    /// These, and an application's own.
    ///
    /// # Errors
    /// [`VersionError::MergeName`] for a name that is taken, or not 1 to 64 bytes of printable ASCII without spaces.
    pub fn with(mut self, name: &str, f: Arc<dyn Merge>) -> Result<Self, VersionError> {
        let good = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !good || self.0.contains_key(name) {
            return Err(VersionError::MergeName(name.into()));
        }
        self.0.insert(name.into(), f);
        Ok(self)
    }

    /// The function with this name.
    pub fn get(&self, name: &str) -> Option<&dyn Merge> {
        self.0.get(name).map(|f| &**f)
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }
}

impl Default for Merges {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Merges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// What needs no function: both made the same, or one left v0 as it was.
fn settled<'a>(v0: Option<Value<'a>>, v1: Value<'a>, v2: Value<'a>) -> Option<Value<'a>> {
    if v1 == v2 || v0 == Some(v2) {
        return Some(v1);
    }
    (v0 == Some(v1)).then_some(v2)
}

/// As [`settled`], for functions that count what both did: of two that made the same value each counts, unless they deleted.
fn yielded<'a>(v0: Option<Value<'a>>, v1: Value<'a>, v2: Value<'a>) -> Option<Value<'a>> {
    let counts = v1 == v2 && v1.kind != ValueKind::Tombstone;
    if counts { None } else { settled(v0, v1, v2) }
}

/// The bytes of all three, that of a v0 that is not there, or was deleted, being `absent`; or what to say instead.
fn all_bytes<'a>(
    v0: Option<Value<'a>>,
    v1: Value<'a>,
    v2: Value<'a>,
    absent: &'a [u8],
) -> Result<[&'a [u8]; 3], Merged> {
    let v0 = match v0 {
        Some(v0) if v0.kind != ValueKind::Tombstone => v0,
        _ => Value::bytes(absent),
    };
    if [v1.kind, v2.kind].contains(&ValueKind::Tombstone) {
        return Err(Merged::conflict("one side was deleted, the other changed"));
    }
    match [v0, v1, v2].iter().all(|value| value.kind == ValueKind::Bytes) {
        true => Ok([v0.bytes, v1.bytes, v2.bytes]),
        false => Err(Merged::conflict("entries and commits cannot be merged by what is in them")),
    }
}

#[cfg(test)]
mod tests;
