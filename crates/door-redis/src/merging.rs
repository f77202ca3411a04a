//! What a merge function sees of keys' versions, and what becomes of its answer.
//!
//! A version of a key has more than its value: when it ends, and marks that keep strings and hashes apart. A function that saw them
//! would call two equal strings of different ends a conflict. So it sees strings as they are and hashes as the maps that
//! `three-way-map` knows; when the key ends is decided here: where the merge is one side's value, as that side says, else when the
//! later ends.

use bytes::Bytes;
use version::merge::{self, Merge, Merged, OwnedValue, map};
use version::{ValueKind, VersionError};

use crate::engine::EngineError;
use crate::keyspace::Stored;
use crate::value::{self, NEVER, Value};

/// A version as a function sees it.
struct Side {
    kind: ValueKind,
    bytes: Bytes,
    is_hash: bool,
    expires: u64,
}

impl Side {
    fn of(kind: ValueKind, bytes: &Bytes) -> Option<Self> {
        let (value, expires) = value::decode(kind, bytes);
        let (kind, bytes, is_hash) = match value {
            Value::Gone => (ValueKind::Tombstone, Bytes::new(), false),
            Value::Text(bytes) => (ValueKind::Bytes, bytes, false),
            Value::Hash(fields) => (ValueKind::Bytes, value::hash(&fields, NEVER).into(), true),
            Value::Sorted(_) | Value::Foreign => return None,
        };
        Some(Self { kind, bytes, is_hash, expires })
    }

    fn value(&self) -> merge::Value<'_> {
        merge::Value { kind: self.kind, bytes: &self.bytes }
    }

    fn is_gone(&self) -> bool {
        self.kind == ValueKind::Tombstone
    }
}

/// The value of the version that two are merged to; `base` is what both have in common, as it is kept.
///
/// # Errors
/// [`EngineError::NotMerged`], [`EngineError::Conflict`], [`EngineError::NoBytes`], [`EngineError::Version`].
pub(crate) fn merged(
    function: &dyn Merge,
    base: Option<&OwnedValue>,
    a: &Stored,
    b: &Stored,
) -> Result<Bytes, EngineError> {
    let (Some(a), Some(b)) = (Side::of(a.kind, &a.value), Side::of(b.kind, &b.value)) else {
        return Err(EngineError::NotMerged);
    };
    // What was something else before both made it what it is says nothing of their changes.
    let base = base.and_then(|base| Side::of(base.kind, &base.bytes));
    match joined(function, base.as_ref(), &a, &b)? {
        OwnedValue { kind: ValueKind::Bytes, bytes } => Ok(bytes),
        OwnedValue { kind, .. } => Err(EngineError::NoBytes(kind)),
    }
}

/// A function over versions as they are kept, which sees what keys hold: it merges what two versions have in common, where that are
/// several.
pub(crate) struct OfKeys<'a>(pub(crate) &'a dyn Merge);

impl Merge for OfKeys<'_> {
    fn merge(
        &self,
        v0: Option<merge::Value<'_>>,
        v1: merge::Value<'_>,
        v2: merge::Value<'_>,
    ) -> Merged {
        let side =
            |value: merge::Value<'_>| Side::of(value.kind, &Bytes::copy_from_slice(value.bytes));
        let joined = match (side(v1), side(v2)) {
            (Some(a), Some(b)) => joined(self.0, v0.and_then(side).as_ref(), &a, &b),
            _ => Err(EngineError::NotMerged),
        };
        match joined {
            Ok(OwnedValue { kind, bytes }) => Merged::Value { kind, value: bytes },
            Err(EngineError::Conflict(reason)) => Merged::conflict(reason),
            Err(error) => Merged::conflict(error.to_string()),
        }
    }
}

/// What a function makes of two, as it is kept.
fn joined(
    function: &dyn Merge,
    base: Option<&Side>,
    a: &Side,
    b: &Side,
) -> Result<OwnedValue, EngineError> {
    let merged = match merge::merge(function, base.map(Side::value), a.value(), b.value())? {
        Merged::Value { kind: ValueKind::Bytes, value } => value,
        Merged::Value { kind, value } => return Ok(OwnedValue { kind, bytes: value }),
        Merged::Conflict(conflict) => return Err(EngineError::Conflict(conflict.reason)),
    };
    let is = |side: &Side| !side.is_gone() && side.bytes == merged;
    let (is_hash, expires) = match (is(a), is(b)) {
        (true, false) => (a.is_hash, a.expires),
        (false, true) => (b.is_hash, b.expires),
        _ if a.is_hash != b.is_hash && !a.is_gone() && !b.is_gone() => {
            return Err(EngineError::NotMerged);
        }
        _ => {
            let there = [a, b].into_iter().filter(|side| !side.is_gone());
            let later = there.map(|side| side.expires).max();
            (a.is_hash || b.is_hash, later.unwrap_or(NEVER))
        }
    };
    let bytes = encoded(&merged, is_hash, expires)?;
    Ok(OwnedValue { kind: ValueKind::Bytes, bytes })
}

fn encoded(merged: &[u8], is_hash: bool, expires: u64) -> Result<Bytes, EngineError> {
    if !is_hash {
        return Ok(value::text(merged, expires).into_owned().into());
    }
    map::decode(merged)?;
    let fields = merged.strip_prefix(map::PREFIX).ok_or(VersionError::Field("map"))?;
    Ok(value::hash(fields, expires).into())
}
