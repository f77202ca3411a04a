//! One immutable version of an object: its bases, its depth and its full value.
//!
//! ```text
//! "holdfast version v1" | lp(key) | count of bases, 1 | each base's h, 32 | l, 8 | value kind, 1 | lp(value)
//! ```
//! Integers are big-endian, `lp(x)` is the length of x in 8 bytes and x. The hash of these bytes is the version's `h`,
//! so the same value put twice on the same base is the same version, and `h` proves value and history. A delta is a
//! form on disk and wire ([`crate::Form`]) and never identity.
//!
//! A peer makes some 500,000 of them a second: [`View::encode`] allocates once, writes once, and what it made is hashed
//! as it lies there; [`Version::decode`] shares the record's bytes and copies no value, [`View::decode`] does not even
//! count a reference.
//!
//! Invariants, checked by decoding: at most [`BASES_MAX`] bases, all different; l = 0 exactly where there are none; a
//! value is what its kind allows. That l is one more than the greatest of the bases', only who holds the bases can check.

use bytes::Bytes;
use crypto::{Place, RecordId, Suite};
use document::{Kind, Record};

use crate::reader::Reader;
use crate::{Hint, ObjectKey, VersionError, VersionId, place};

/// The most bases of a version.
pub const BASES_MAX: usize = 2;
/// The longest value, in bytes: as long as a chunk. Longer ones are entries of their own, whose key is the value.
pub const VALUE_BYTES_MAX: usize = 2 << 20;
/// What stands around a value, without the bases.
const FRAME_BYTES: usize = PREFIX.len() + 8 + 32 + 1 + 8 + 1 + 8;
/// The longest encoded version, in bytes.
pub const VERSION_BYTES_MAX: usize = FRAME_BYTES + 32 * BASES_MAX + VALUE_BYTES_MAX;

const PREFIX: &[u8] = b"holdfast version v1";
const WHAT: &str = "version";

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// Bytes, an application's own or sealed.
    Bytes = 0,
    /// The 32-byte id of the entry that holds a large value.
    Entry = 1,
    /// Nothing: it was deleted. Its history stays.
    Tombstone = 2,
    /// The sealed root of a volume.
    Commit = 3,
}

impl ValueKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Bytes, Self::Entry, Self::Tombstone, Self::Commit];

    /// The kind with this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Bytes),
            1 => Some(Self::Entry),
            2 => Some(Self::Tombstone),
            3 => Some(Self::Commit),
            _ => None,
        }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its name, on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Entry => "entry",
            Self::Tombstone => "tombstone",
            Self::Commit => "commit",
        }
    }

    /// Whether a value of this kind may have so many bytes.
    ///
    /// # Errors
    /// [`VersionError::TooLarge`], [`VersionError::Field`].
    pub const fn check(self, bytes: usize) -> Result<(), VersionError> {
        if bytes > VALUE_BYTES_MAX {
            let max = VALUE_BYTES_MAX;
            return Err(VersionError::TooLarge { what: "value", found: bytes, max });
        }
        match self {
            Self::Entry if bytes != 32 => Err(VersionError::Field("length of an entry's id")),
            Self::Tombstone if bytes != 0 => Err(VersionError::Field("value of a tombstone")),
            _ => Ok(()),
        }
    }
}

/// The bases of a version, in the caller's order, which counts: none, one, or two that differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Bases {
    first: Option<RecordId>,
    second: Option<RecordId>,
}

impl Bases {
    /// Those of a root.
    pub const NONE: Self = Self { first: None, second: None };

    /// The base of a put.
    pub const fn one(base: RecordId) -> Self {
        Self { first: Some(base), second: None }
    }

    /// The bases of a merge.
    ///
    /// # Errors
    /// [`VersionError::Field`] where they are the same.
    pub fn two(first: RecordId, second: RecordId) -> Result<Self, VersionError> {
        if first == second {
            return Err(VersionError::Field("second base, which is the first again,"));
        }
        Ok(Self { first: Some(first), second: Some(second) })
    }

    /// The bases in a slice.
    ///
    /// # Errors
    /// [`VersionError::Field`] for more than [`BASES_MAX`], or twice the same.
    pub fn from_slice(bases: &[RecordId]) -> Result<Self, VersionError> {
        match bases {
            [] => Ok(Self::NONE),
            [base] => Ok(Self::one(*base)),
            [first, second] => Self::two(*first, *second),
            _ => Err(VersionError::Field("number of bases")),
        }
    }

    /// How many.
    pub const fn len(&self) -> usize {
        self.first.is_some() as usize + self.second.is_some() as usize
    }

    /// Whether it is a root that has them.
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether it is a merge that has them.
    pub const fn is_merge(&self) -> bool {
        self.second.is_some()
    }

    /// The first.
    pub const fn first(&self) -> Option<RecordId> {
        self.first
    }

    /// The second.
    pub const fn second(&self) -> Option<RecordId> {
        self.second
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = RecordId> + use<> {
        self.first.into_iter().chain(self.second)
    }

    /// Whether this is one of them.
    pub fn contains(&self, h: &RecordId) -> bool {
        self.first == Some(*h) || self.second == Some(*h)
    }
}

impl std::fmt::Debug for Bases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The depth of a version with bases of these depths.
///
/// # Errors
/// [`VersionError::Depth`] where a base is as deep as can be.
pub fn depth(bases: impl IntoIterator<Item = u64>) -> Result<u64, VersionError> {
    match bases.into_iter().max() {
        None => Ok(0),
        Some(deepest) => deepest.checked_add(1).ok_or(VersionError::Depth),
    }
}

/// A version whose value lies elsewhere: to write one, or to look into one without keeping it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// Of which object.
    pub object: ObjectKey,
    /// What it was made of.
    pub bases: Bases,
    /// Its depth.
    pub l: u64,
    /// What its value is.
    pub kind: ValueKind,
    /// The full value.
    pub value: &'a [u8],
}

impl<'a> View<'a> {
    /// Decodes and checks; nothing is copied or allocated.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self, VersionError> {
        if bytes.len() > VERSION_BYTES_MAX {
            let (found, max) = (bytes.len(), VERSION_BYTES_MAX);
            return Err(VersionError::TooLarge { what: WHAT, found, max });
        }
        let mut reader = Reader::new(WHAT, bytes);
        reader.prefix(PREFIX)?;
        if reader.u64()? != 32 {
            return Err(VersionError::Field("length of the version's key"));
        }
        let object = ObjectKey::new(reader.array()?);
        let bases = match reader.u8()? {
            0 => Bases::NONE,
            1 => Bases::one(RecordId::new(reader.array()?)),
            2 => Bases::two(RecordId::new(reader.array()?), RecordId::new(reader.array()?))?,
            _ => return Err(VersionError::Field("number of bases")),
        };
        let l = reader.u64()?;
        let kind = reader.u8()?;
        let kind = ValueKind::from_number(kind).ok_or(VersionError::Field("kind of value"))?;
        let length = reader.u64()?;
        let value = reader.rest();
        if length != value.len() as u64 {
            return Err(VersionError::Length(WHAT));
        }
        let view = Self { object, bases, l, kind, value };
        view.check()?;
        Ok(view)
    }

    /// Whether a version can be so: what [`View::decode`] checks. Callers that make one check it before [`View::encode`].
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn check(&self) -> Result<(), VersionError> {
        if (self.l == 0) != self.bases.is_empty() {
            return Err(VersionError::Field("depth of the version"));
        }
        self.kind.check(self.value.len())
    }

    /// How many bytes its encoding has.
    pub const fn encoded_len(&self) -> usize {
        FRAME_BYTES + 32 * self.bases.len() + self.value.len()
    }

    /// Appends all that stands before the value, whose length is `value_bytes`.
    pub(crate) fn head_into(&self, value_bytes: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFIX);
        out.extend_from_slice(&32_u64.to_be_bytes());
        out.extend_from_slice(self.object.as_bytes());
        out.push(self.bases.len() as u8);
        for base in self.bases.iter() {
            out.extend_from_slice(base.as_bytes());
        }
        out.extend_from_slice(&self.l.to_be_bytes());
        out.push(self.kind.number());
        out.extend_from_slice(&(value_bytes as u64).to_be_bytes());
    }

    /// Appends the encoding.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        debug_assert!(self.check().is_ok(), "no such version can be");
        out.reserve(self.encoded_len());
        self.head_into(self.value.len(), out);
        out.extend_from_slice(self.value);
    }

    /// The encoding: one allocation of the right size.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.encoded_len());
        self.encode_into(&mut out);
        out.into()
    }
}

/// A decoded version, which shares the bytes that it was decoded from.
#[derive(Clone, PartialEq, Eq)]
pub struct Version {
    /// Of which object.
    pub object: ObjectKey,
    /// What it was made of.
    pub bases: Bases,
    /// Its depth.
    pub l: u64,
    /// What its value is.
    pub kind: ValueKind,
    /// The full value.
    pub value: Bytes,
}

impl Version {
    /// Decodes and checks; the value shares `bytes`.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, VersionError> {
        let View { object, bases, l, kind, value } = View::decode(bytes)?;
        let value = bytes.slice(bytes.len() - value.len()..);
        Ok(Self { object, bases, l, kind, value })
    }

    /// It, with its value where it lies.
    pub fn view(&self) -> View<'_> {
        let Self { object, bases, l, kind, ref value } = *self;
        View { object, bases, l, kind, value }
    }

    /// The encoding: one allocation of the right size.
    pub fn encode(&self) -> Bytes {
        self.view().encode()
    }

    /// Its record, for whoever has the place that belongs to its hint at hand.
    pub fn record_at(&self, suite: Suite, place: Place) -> Record {
        let bytes = self.encode();
        Record { kind: Kind::Version, id: suite.id(&bytes), place, bytes }
    }

    /// Its record and its id at the place that this hint names.
    pub fn record(&self, suite: Suite, hint: Hint) -> (Record, VersionId) {
        let record = self.record_at(suite, place(suite, &self.object, &hint));
        let id = VersionId { h: record.id, l: self.l, n: hint };
        (record, id)
    }
}

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A value may be somebody's own.
        f.debug_struct("Version")
            .field("object", &self.object)
            .field("bases", &self.bases)
            .field("l", &self.l)
            .field("kind", &self.kind)
            .field("value_bytes", &self.value.len())
            .finish()
    }
}

#[cfg(test)]
mod tests;
