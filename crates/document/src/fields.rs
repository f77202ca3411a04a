//! Fields of a fixed length: exactly that long, and not all zero bytes.
//!
//! The original refuses zeros because its Go structs are zero when nobody filled them in; we keep the
//! rule, as a field of zeros is a defect of its writer and never a hash, a MAC or a key.

use bytes::Bytes;
use crypto::{KeyError, RecordId};

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

/// What may be a compressed public key; whether it is a point of the curve is not looked at.
pub(crate) fn key(bytes: &[u8]) -> Result<(), DocumentError> {
    match bytes {
        [2 | 3, x @ ..] if x.len() == 32 => Ok(()),
        _ => Err(DocumentError::Key(KeyError::PublicKey)),
    }
}

/// A list of record ids.
pub(crate) fn ids(list: &[Bytes], name: &'static str) -> Result<Vec<RecordId>, DocumentError> {
    list.iter().map(|bytes| id(bytes, name)).collect()
}
