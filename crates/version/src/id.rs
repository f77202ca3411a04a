//! The id of a version as users and peers pass it around: `h:l:n`.

use std::fmt;
use std::str::FromStr;

use crypto::{ParseIdError, RecordId};

use crate::{HINT_BYTES, Hint};

/// A version of an object: which one, how deep, and a hint of where it lives.
///
/// `h` alone says which version it is: it covers `l`, and the hint is no part of the identity. Compare `h` where it is
/// about the version, and the whole only where it is about this very id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionId {
    /// The hash of the version's bytes.
    pub h: RecordId,
    /// Its depth: 0 for a root.
    pub l: u64,
    /// Which of the object's places it lives at.
    pub n: Hint,
}

/// Why a text is no version's id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseVersionIdError {
    /// Not three parts with colons between.
    #[error("a version is written h:l:n, as `hold object put` prints it")]
    Parts,
    /// The first part.
    #[error("the version's hash (before the first colon)")]
    Hash(#[source] ParseIdError),
    /// The second part.
    #[error("the version's depth (between the colons) is no decimal number")]
    Depth,
    /// The third part.
    #[error("the version's hint (after the second colon) is not {HINT_BYTES} bytes of hexadecimal")]
    Hint,
}

impl crypto::Classified for ParseVersionIdError {
    fn class(&self) -> crypto::Class {
        crypto::Class::Invalid
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.h, self.l, self.n)
    }
}

impl FromStr for VersionId {
    type Err = ParseVersionIdError;

    fn from_str(text: &str) -> Result<Self, ParseVersionIdError> {
        let mut parts = text.split(':');
        let (Some(h), Some(l), Some(n), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(ParseVersionIdError::Parts);
        };
        let h = h.parse().map_err(ParseVersionIdError::Hash)?;
        // `u64::from_str` takes a plus and leading zeros: one version would have many texts.
        let plain = l == "0" || l.starts_with(|first: char| matches!(first, '1'..='9'));
        let l = l.parse().ok().filter(|_| plain).ok_or(ParseVersionIdError::Depth)?;
        let mut hint = [0; HINT_BYTES];
        hex::decode_to_slice(n, &mut hint).map_err(|_| ParseVersionIdError::Hint)?;
        Ok(Self { h, l, n: Hint::new(hint) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_that_of_one_id_only() {
        let id = VersionId { h: RecordId::new([0xab; 32]), l: 120, n: Hint::new([1; 16]) };
        let text = format!("{}:120:{}", "ab".repeat(32), "01".repeat(16));
        assert_eq!(id.to_string(), text);
        assert_eq!(text.parse(), Ok(id));
        let with = |l: &str| text.replace(":120:", l).parse::<VersionId>();
        assert_eq!(with(":0:").map(|id| id.l), Ok(0));
        let greatest = with(&format!(":{}:", u64::MAX)).map(|id| id.l);
        assert_eq!(greatest, Ok(u64::MAX));
        for l in [":+120:", ":0120:", ":00:", "::", ":-1:", ":18446744073709551616:", ": 1:"] {
            assert_eq!(with(l), Err(ParseVersionIdError::Depth), "{l}");
        }
        assert_eq!(with(":"), Err(ParseVersionIdError::Parts));
        assert_eq!(with(":1:1:"), Err(ParseVersionIdError::Parts));
        assert_eq!(text[..text.len() - 2].parse::<VersionId>(), Err(ParseVersionIdError::Hint));
        assert!(matches!(text[2..].parse::<VersionId>(), Err(ParseVersionIdError::Hash(_))));
        assert_eq!("".parse::<VersionId>(), Err(ParseVersionIdError::Parts));
    }
}
