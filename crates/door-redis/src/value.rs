//! A key's value as the bytes of a version, and back.
//!
//! ```text
//! string        the bytes; where the first is 0: 0 's' bytes
//! hash          0 'h' repeated (u32 length, field, u32 length, value), in order of insertion
//! sorted set    0 'z' generation u64
//! that expires  0 'e' Unix ms u64, then one of the above
//! ```
//!
//! Most values are strings that do not begin with 0: those are the caller's bytes, not copied.

use std::borrow::Cow;

use bytes::{BufMut, Bytes};

use version::ValueKind;

/// The largest value of a version, in bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 2 << 20;
/// What may stand before a string's bytes.
const HEAD_BYTES: usize = 12;
/// The longest string, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = VALUE_BYTES_MAX - HEAD_BYTES;
/// A key never ends by itself.
pub(crate) const NEVER: u64 = u64::MAX;

/// What a version of a key says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// The key is deleted.
    Gone,
    /// A string.
    Text(Bytes),
    /// A hash, as its encoded fields.
    Hash(Bytes),
    /// A sorted set of this generation.
    Sorted(u64),
    /// None of these: another program's.
    Foreign,
}

/// A version's value and when it ends, in Unix milliseconds or [`NEVER`].
pub(crate) fn decode(kind: ValueKind, bytes: &Bytes) -> (Value, u64) {
    match kind {
        ValueKind::Tombstone => (Value::Gone, NEVER),
        ValueKind::Bytes => match bytes.as_ref() {
            [0, b'e', rest @ ..] => match rest.split_first_chunk() {
                Some((at, _)) => (content(&bytes.slice(10..)), u64::from_be_bytes(*at)),
                None => (Value::Foreign, NEVER),
            },
            _ => (content(bytes), NEVER),
        },
        _ => (Value::Foreign, NEVER),
    }
}

fn content(bytes: &Bytes) -> Value {
    match bytes.as_ref() {
        [0, b's', ..] => Value::Text(bytes.slice(2..)),
        [0, b'h', fields @ ..] if crate::fields::well_formed(fields) => {
            Value::Hash(bytes.slice(2..))
        }
        [0, b'z', rest @ ..] => match <[u8; 8]>::try_from(rest) {
            Ok(generation) => Value::Sorted(u64::from_be_bytes(generation)),
            Err(_) => Value::Foreign,
        },
        [0, ..] => Value::Foreign,
        _ => Value::Text(bytes.clone()),
    }
}

/// The bytes of a string's version.
pub(crate) fn text(bytes: &[u8], expires: u64) -> Cow<'_, [u8]> {
    let marked = bytes.first() == Some(&0);
    if expires == NEVER && !marked {
        return Cow::Borrowed(bytes);
    }
    let mut into = head(expires, bytes.len());
    if marked {
        into.put_slice(&[0, b's']);
    }
    into.put_slice(bytes);
    Cow::Owned(into)
}

/// The bytes of a hash's version.
pub(crate) fn hash(fields: &[u8], expires: u64) -> Vec<u8> {
    let mut into = head(expires, fields.len());
    into.put_slice(&[0, b'h']);
    into.put_slice(fields);
    into
}

/// The bytes of a sorted set's version.
pub(crate) fn sorted(generation: u64, expires: u64) -> Vec<u8> {
    let mut into = head(expires, 8);
    into.put_slice(&[0, b'z']);
    into.put_u64(generation);
    into
}

fn head(expires: u64, rest: usize) -> Vec<u8> {
    let mut into = Vec::with_capacity(HEAD_BYTES + rest);
    if expires != NEVER {
        into.put_slice(&[0, b'e']);
        into.put_u64(expires);
    }
    into
}

/// A member's score, or none where its version is none of a member.
pub(crate) fn score(kind: ValueKind, bytes: &[u8]) -> Option<f64> {
    let bytes = <[u8; 8]>::try_from(bytes).ok().filter(|_| kind == ValueKind::Bytes)?;
    Some(f64::from_be_bytes(bytes)).filter(|score| !score.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        assert_eq!(text(b"ab", NEVER), &b"ab"[..]);
        assert_eq!(text(b"ab", 1), &b"\0e\0\0\0\0\0\0\0\x01ab"[..]);
        assert_eq!(text(b"\0x", NEVER), &b"\0s\0x"[..]);
        assert_eq!(text(b"\0x", 258), &b"\0e\0\0\0\0\0\0\x01\x02\0s\0x"[..]);
        assert_eq!(hash(b"\0\0\0\x01f\0\0\0\0", NEVER), &b"\0h\0\0\0\x01f\0\0\0\0"[..]);
        assert_eq!(sorted(7, NEVER), &b"\0z\0\0\0\0\0\0\0\x07"[..]);
        assert_eq!(sorted(7, 1), &b"\0e\0\0\0\0\0\0\0\x01\0z\0\0\0\0\0\0\0\x07"[..]);
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for expires in [NEVER, 0, 1_700_000_000_000] {
            for bytes in [&b""[..], b"x", b"\0", b"\0s", b"\0h", b"\0e12345678", b"\0z12345678"] {
                let bytes = Bytes::from(bytes);
                let decoded =
                    decode(ValueKind::Bytes, &Bytes::from(text(&bytes, expires).into_owned()));
                assert_eq!(decoded, (Value::Text(bytes), expires));
            }
            let fields = Bytes::from_static(b"\0\0\0\x01f\0\0\0\0");
            let decoded = decode(ValueKind::Bytes, &Bytes::from(hash(&fields, expires)));
            assert_eq!(decoded, (Value::Hash(fields), expires));
            let decoded = decode(ValueKind::Bytes, &Bytes::from(sorted(9, expires)));
            assert_eq!(decoded, (Value::Sorted(9), expires));
        }
    }

    #[test]
    fn what_another_program_wrote_is_foreign() {
        for bytes in [&b"\0"[..], b"\0q", b"\0h\0\0", b"\0z1", b"\0e1234567", b"\0h\0\0\0\x09f"] {
            let bytes = Bytes::from(bytes);
            assert_eq!(decode(ValueKind::Bytes, &bytes).0, Value::Foreign, "{bytes:?}");
        }
        assert_eq!(decode(ValueKind::Entry, &Bytes::from_static(b"x")).0, Value::Foreign);
        assert_eq!(decode(ValueKind::Tombstone, &Bytes::new()), (Value::Gone, NEVER));
        assert_eq!(score(ValueKind::Bytes, &1.5_f64.to_be_bytes()), Some(1.5));
        assert_eq!(score(ValueKind::Bytes, &f64::NAN.to_be_bytes()), None);
        assert_eq!(score(ValueKind::Tombstone, &[]), None);
    }
}
