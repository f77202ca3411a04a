//! Reads fixed and length-prefixed fields from the front of a slice, never past its end.

use crate::CommitteeError;

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

    /// Takes the prefix that everything of this format begins with.
    pub(crate) fn prefix(&mut self, prefix: &[u8]) -> Result<(), CommitteeError> {
        self.rest = self.rest.strip_prefix(prefix).ok_or(CommitteeError::Prefix(self.what))?;
        Ok(())
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], CommitteeError> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(CommitteeError::Length(self.what))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], CommitteeError> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(CommitteeError::Length(self.what))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, CommitteeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, CommitteeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, CommitteeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, CommitteeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A length of four bytes, at most `max`, and so many bytes.
    pub(crate) fn long(
        &mut self,
        what: &'static str,
        max: usize,
    ) -> Result<&'a [u8], CommitteeError> {
        let found = self.u32()? as usize;
        if found > max {
            return Err(CommitteeError::TooLarge { what, found, max });
        }
        self.take(found)
    }

    /// Whether a thing that may be there is: one byte, 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool, CommitteeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CommitteeError::Field("byte that says whether something is there")),
        }
    }

    /// Nothing may be left.
    pub(crate) const fn end(&self) -> Result<(), CommitteeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(CommitteeError::Length(self.what)) }
    }

    /// All that is left.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

/// Appends a length of four bytes and the bytes.
pub(crate) fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}
