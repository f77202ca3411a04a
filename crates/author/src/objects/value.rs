//! What a version holds, as its writer and its readers see it.

use bytes::Bytes;
use crypto::{ContentKey, RecordId, Suite};
use document::value as sealing;
use version::{ValueKind, Version};

use super::ObjectsError;

/// The longest value that lies in its version, in bytes; longer ones are contents of their own ([`Value::Entry`]).
pub const INLINE_VALUE_BYTES_MAX: usize = sealing::VALUE_PLAINTEXT_BYTES_MAX;

/// What a version holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Bytes, an application's own: at most [`INLINE_VALUE_BYTES_MAX`].
    Bytes(Bytes),
    /// A large value, by its entry.
    Entry(RecordId),
    /// Nothing: it was deleted. What was before stays in the history.
    Tombstone,
    /// The sealed root of a volume.
    Commit(Bytes),
}

impl Value {
    /// Its bytes, where it has bytes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) | Self::Commit(bytes) => Some(bytes),
            Self::Entry(_) | Self::Tombstone => None,
        }
    }

    /// What it is, as a version says it.
    pub const fn kind(&self) -> ValueKind {
        match self {
            Self::Bytes(_) => ValueKind::Bytes,
            Self::Entry(_) => ValueKind::Entry,
            Self::Tombstone => ValueKind::Tombstone,
            Self::Commit(_) => ValueKind::Commit,
        }
    }

    /// As a merge function sees it.
    pub(crate) fn merged(&self) -> version::merge::Value<'_> {
        let bytes = match self {
            Self::Bytes(bytes) | Self::Commit(bytes) => &bytes[..],
            Self::Entry(id) => id.as_bytes(),
            Self::Tombstone => &[],
        };
        version::merge::Value { kind: self.kind(), bytes }
    }

    /// The value that a merge function gave.
    pub(crate) fn of_merged(kind: ValueKind, bytes: Bytes) -> Result<Self, ObjectsError> {
        kind.check(bytes.len())?;
        Ok(Self::of_plain(kind, bytes))
    }

    fn of_plain(kind: ValueKind, bytes: Bytes) -> Self {
        match (kind, <[u8; 32]>::try_from(&bytes[..])) {
            (ValueKind::Entry, Ok(id)) => Self::Entry(RecordId::new(id)),
            (ValueKind::Bytes | ValueKind::Entry, _) => Self::Bytes(bytes),
            (ValueKind::Tombstone, _) => Self::Tombstone,
            (ValueKind::Commit, _) => Self::Commit(bytes),
        }
    }

    /// What lies in the version: sealed under the object's key, where it has one. CPU work for long values.
    pub(crate) fn seal(
        &self,
        suite: Suite,
        key: Option<&ContentKey>,
    ) -> Result<Bytes, ObjectsError> {
        let plain = match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Entry(id) => Bytes::copy_from_slice(id.as_bytes()),
            Self::Tombstone => Bytes::new(),
            Self::Commit(bytes) => bytes.clone(),
        };
        match (self, key) {
            // A commit is sealed by its volume; an entry's id says nothing.
            (Self::Bytes(_), Some(key)) => sealing::seal(suite, key, self.kind().number(), &plain)
                .map_err(ObjectsError::Unsealable),
            _ => Ok(plain),
        }
    }

    /// What lies in a version, opened under the object's key, where it has one. CPU work for long values.
    pub(crate) fn open(
        suite: Suite,
        key: Option<&ContentKey>,
        h: RecordId,
        version: &Version,
    ) -> Result<Self, ObjectsError> {
        match (version.kind, key) {
            (ValueKind::Bytes, Some(key)) => {
                let opened = sealing::open(suite, key, version.kind.number(), &version.value);
                let opened = opened.map_err(|source| ObjectsError::Sealed { h, source })?;
                Ok(Self::Bytes(opened))
            }
            _ => Ok(Self::of_plain(version.kind, version.value.clone())),
        }
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(Bytes::copy_from_slice(bytes))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}
