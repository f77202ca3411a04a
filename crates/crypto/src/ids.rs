//! The names of things: record ids, places, and the public keys of each role as types of their own.
//!
//! A peer's key, a reader's key and an author's key are all compressed secp256k1 points, and mixing
//! them up would compile if they were one type. Each role is a newtype over [`PublicKey`].

use std::fmt;
use std::str::FromStr;

use crate::keys::{KeyError, PublicKey};

/// Why a textual id was not one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseIdError {
    /// The text is not hexadecimal.
    #[error("not hexadecimal")]
    NotHex,
    /// The text has another number of hexadecimal digits.
    #[error("wrong length: expected {expected} hexadecimal digits, found {found}")]
    Digits {
        /// Digits wanted.
        expected: usize,
        /// Digits found.
        found: usize,
    },
    /// There is another number of bytes.
    #[error("wrong length: expected {expected} bytes, found {found}")]
    Length {
        /// Bytes wanted.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// The bytes are not a point on the curve.
    #[error(transparent)]
    Key(#[from] KeyError),
}

fn parse_hex<const N: usize>(text: &str) -> Result<[u8; N], ParseIdError> {
    if !text.bytes().all(|letter| letter.is_ascii_hexdigit()) {
        return Err(ParseIdError::NotHex);
    }
    let mut bytes = [0; N];
    let wrong_length = |_| ParseIdError::Digits { expected: 2 * N, found: text.len() };
    hex::decode_to_slice(text, &mut bytes).map_err(wrong_length)?;
    Ok(bytes)
}

macro_rules! hash_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// The id with these 32 bytes.
            pub const fn new(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// Its 32 bytes.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// The id in a slice of exactly 32 bytes.
            pub fn from_slice(bytes: &[u8]) -> Result<Self, ParseIdError> {
                <[u8; 32]>::try_from(bytes).map(Self).map_err(|_| ParseIdError::Length {
                    expected: 32,
                    found: bytes.len(),
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), hex::encode(self.0))
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse_hex(text).map(Self)
            }
        }
    };
}

hash_id! {
    /// The id of a record: the hash of its bytes under the network's suite.
    RecordId
}
hash_id! {
    /// Where a record lives: a point that ranks the peers (see `placement`).
    Place
}
hash_id! {
    /// The id of a network: the hash of its genesis.
    NetworkId
}

hash_id! {
    /// The id of a lease: the hash of its signed body.
    LeaseId
}

impl NetworkId {
    /// No network: the id that offline tools bind to when no network is named.
    pub const NONE: Self = Self::new([0; 32]);
}

impl From<RecordId> for Place {
    /// A record that is not part of a stripe or an object lives at its own id.
    fn from(id: RecordId) -> Self {
        Self(id.0)
    }
}

macro_rules! role_key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(PublicKey);

        impl $name {
            /// This key in this role.
            pub const fn new(key: PublicKey) -> Self {
                Self(key)
            }

            /// The bare key.
            pub const fn key(&self) -> &PublicKey {
                &self.0
            }

            /// Its 33 bytes, compressed SEC1.
            pub const fn as_bytes(&self) -> &[u8; 33] {
                self.0.as_bytes()
            }

            /// The key in a slice of exactly 33 bytes, checked to be on the curve.
            pub fn from_slice(bytes: &[u8]) -> Result<Self, KeyError> {
                PublicKey::from_slice(bytes).map(Self)
            }
        }

        impl From<PublicKey> for $name {
            fn from(key: PublicKey) -> Self {
                Self(key)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let bytes: [u8; 33] = parse_hex(text)?;
                Ok(Self(PublicKey::from_slice(&bytes)?))
            }
        }
    };
}

role_key! {
    /// Who a peer is.
    PeerId
}
role_key! {
    /// Who signed or sealed a document: used once, then forgotten.
    AuthorKey
}
role_key! {
    /// Whom an envelope is sealed to.
    ReaderKey
}
role_key! {
    /// An organisation of the roster.
    OrgId
}
role_key! {
    /// A client of the network: the key of its connections and of its pass.
    ClientKey
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_as_hex_and_refuse_other_text() {
        let id = RecordId::new([0xab; 32]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("zz".parse::<RecordId>(), Err(ParseIdError::NotHex));
        assert_eq!("".parse::<RecordId>(), Err(ParseIdError::Digits { expected: 64, found: 0 }));
        assert_eq!("ü".repeat(32).parse::<RecordId>(), Err(ParseIdError::NotHex));
    }

    #[test]
    fn a_text_that_was_cut_is_told_as_too_short_wherever_it_was_cut() {
        let whole = RecordId::new([0xab; 32]).to_string();
        for found in (1..64).chain([65, 66]) {
            let text: String = whole.chars().cycle().take(found).collect();
            let told = text.parse::<RecordId>();
            assert_eq!(told, Err(ParseIdError::Digits { expected: 64, found }));
        }
    }

    #[test]
    fn a_role_key_must_be_on_the_curve() {
        let text = format!("02{}", "ff".repeat(32));
        assert!(matches!(text.parse::<PeerId>(), Err(ParseIdError::Key(_))));
    }
}
