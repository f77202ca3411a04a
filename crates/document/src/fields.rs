//! Fields of a fixed length: exactly that long, and not all zero bytes.
//!
//! The original refuses zeros because its Go structs are zero when nobody filled them in; we keep the
//! rule, as a field of zeros is a defect of its writer and never a hash, a MAC or a key.

use bytes::Bytes;
use crypto::RecordId;

use crate::DocumentError;

/// The `N` bytes of a field.
pub(crate) fn fixed<const N: usize>(
    bytes: &[u8],
    name: &'static str,
) -> Result<[u8; N], DocumentError> {
    let field: [u8; N] = bytes.try_into().map_err(|_| DocumentError::Field(name))?;
    if field == [0; N] { Err(DocumentError::Field(name)) } else { Ok(field) }
}

/// A record's id in a field.
pub(crate) fn id(bytes: &[u8], name: &'static str) -> Result<RecordId, DocumentError> {
    fixed(bytes, name).map(RecordId::new)
}

/// A list of record ids.
pub(crate) fn ids(list: &[Bytes], name: &'static str) -> Result<Vec<RecordId>, DocumentError> {
    list.iter().map(|bytes| id(bytes, name)).collect()
}
