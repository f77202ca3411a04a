//! News as bytes: canonical protobuf with exactly one of four fields.
//!
//! ```text
//! News   oneof { announcement 1 (bytes) · envelope 2 (bytes) · revocation 3 (bytes) · roster 4 (bytes) }
//! ```
//! Whoever forwards news answers for its form, so the form is checked before anything is forwarded;
//! what is in it (signatures, certificates) is the receiver's to check. Limits: the field holds 1
//! to [`NEWS_BYTES_MAX`] bytes.

use bytes::Bytes;
use crypto::canonical;
use prost::Message;

use crate::{NEWS_BYTES_MAX, News, OverlayError};

/// Bytes of the wire form beyond the field's own: a tag and a length.
pub const NEWS_OVERHEAD_BYTES_MAX: usize = 8;

#[derive(Clone, PartialEq, Message)]
struct NewsWire {
    #[prost(oneof = "OneNews", tags = "1, 2, 3, 4")]
    news: Option<OneNews>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum OneNews {
    #[prost(bytes = "bytes", tag = "1")]
    Announcement(Bytes),
    #[prost(bytes = "bytes", tag = "2")]
    Envelope(Bytes),
    #[prost(bytes = "bytes", tag = "3")]
    Revocation(Bytes),
    #[prost(bytes = "bytes", tag = "4")]
    Roster(Bytes),
}

impl News {
    /// The bytes inside, whichever they are.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Announcement(bytes)
            | Self::Envelope(bytes)
            | Self::Revocation(bytes)
            | Self::Roster(bytes) => bytes,
        }
    }

    /// The wire form.
    ///
    /// # Errors
    /// [`OverlayError::TooLarge`], and [`OverlayError::Empty`] where there is nothing inside.
    pub fn encode(&self) -> Result<Vec<u8>, OverlayError> {
        check(self.bytes())?;
        let news = match self.clone() {
            Self::Announcement(bytes) => OneNews::Announcement(bytes),
            Self::Envelope(bytes) => OneNews::Envelope(bytes),
            Self::Revocation(bytes) => OneNews::Revocation(bytes),
            Self::Roster(bytes) => OneNews::Roster(bytes),
        };
        Ok(NewsWire { news: Some(news) }.encode_to_vec())
    }

    /// The news with this wire form; the bytes inside are shared, not copied.
    ///
    /// # Errors
    /// [`OverlayError::TooLarge`], [`OverlayError::Malformed`], [`OverlayError::Empty`].
    pub fn decode(bytes: &Bytes) -> Result<Self, OverlayError> {
        if bytes.len() > NEWS_BYTES_MAX + NEWS_OVERHEAD_BYTES_MAX {
            return Err(OverlayError::TooLarge(bytes.len()));
        }
        let wire: NewsWire = canonical::decode(bytes)?;
        let news = match wire.news.ok_or(OverlayError::Empty)? {
            OneNews::Announcement(bytes) => Self::Announcement(bytes),
            OneNews::Envelope(bytes) => Self::Envelope(bytes),
            OneNews::Revocation(bytes) => Self::Revocation(bytes),
            OneNews::Roster(bytes) => Self::Roster(bytes),
        };
        check(news.bytes())?;
        Ok(news)
    }
}

fn check(bytes: &Bytes) -> Result<(), OverlayError> {
    match bytes.len() {
        0 => Err(OverlayError::Empty),
        length if length > NEWS_BYTES_MAX => Err(OverlayError::TooLarge(length)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let announcement = News::Announcement(Bytes::from_static(b"abc"));
        let envelope = News::Envelope(Bytes::from_static(b"abc"));
        assert_eq!(announcement.encode().expect("small"), b"\x0a\x03abc");
        let revocation = News::Revocation(Bytes::from_static(b"abc"));
        assert_eq!(envelope.encode().expect("small"), b"\x12\x03abc");
        assert_eq!(revocation.encode().expect("small"), b"\x1a\x03abc");
        let roster = News::Roster(Bytes::from_static(b"abc"));
        assert_eq!(roster.encode().expect("small"), b"\x22\x03abc");
        for news in [announcement, envelope, revocation, roster] {
            let bytes = Bytes::from(news.encode().expect("small"));
            assert_eq!(News::decode(&bytes).expect("its own form"), news);
        }
    }

    #[test]
    fn the_largest_passes_and_one_byte_more_does_not() {
        let largest = News::Envelope(vec![7; NEWS_BYTES_MAX].into());
        let bytes = Bytes::from(largest.encode().expect("at the limit"));
        assert!(bytes.len() <= NEWS_BYTES_MAX + NEWS_OVERHEAD_BYTES_MAX);
        assert_eq!(News::decode(&bytes).expect("at the limit"), largest);
        let over = News::Envelope(vec![7; NEWS_BYTES_MAX + 1].into());
        assert!(matches!(over.encode(), Err(OverlayError::TooLarge(_))));
        // The same, written by somebody who does not keep to the limit.
        let mut forged = vec![0x12, 0x81, 0x80, 0x02];
        forged.extend(vec![7; NEWS_BYTES_MAX + 1]);
        assert!(matches!(News::decode(&forged.into()), Err(OverlayError::TooLarge(_))));
    }

    #[test]
    fn other_forms_are_refused() {
        let refused: [&[u8]; 9] = [
            b"",                       // nothing
            b"\x0a\x00",               // an empty announcement
            b"\x12\x00",               // an empty envelope
            b"\x0a\x03ab",             // truncated
            b"\x0a\x03abc\x12\x03abc", // both
            b"\x0a\x03abc\x0a\x03abc", // twice
            b"\x0a\x83\x00abc",        // a padded length
            b"\x0a\x03abc\x28\x01",    // an unknown field
            b"\x2a\x03abc",            // an unknown field alone
        ];
        for bytes in refused {
            assert!(News::decode(&Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
    }
}
