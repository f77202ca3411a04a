//! Reads fixed and length-prefixed fields from the front of a slice, never past its end.

use crate::{VersionError, varint};

/// What is left of the bytes of one format.
pub(crate) struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads a `what`, named so in errors.
    pub(crate) const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    /// Takes the prefix that every record of this format begins with.
    pub(crate) fn prefix(&mut self, prefix: &[u8]) -> Result<(), VersionError> {
        self.rest = self.rest.strip_prefix(prefix).ok_or(VersionError::Prefix(self.what))?;
        Ok(())
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], VersionError> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(VersionError::Length(self.what))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], VersionError> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(VersionError::Length(self.what))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, VersionError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, VersionError> {
        self.array().map(u32::from_be_bytes)
    }

    /// A number as [`varint`] writes it.
    pub(crate) fn varint(&mut self) -> Result<u64, VersionError> {
        varint::read(&mut self.rest).ok_or(VersionError::Length(self.what))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, VersionError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Nothing may be left.
    pub(crate) const fn end(&self) -> Result<(), VersionError> {
        if self.rest.is_empty() { Ok(()) } else { Err(VersionError::Length(self.what)) }
    }

    /// All that is left.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}
