//! Where an object is: its key, the hint of a branch, and the place that both make.
//!
//! A branch stays with its base: hint 0 for a root and for all that follows it, until the region that a holder keeps
//! for an object is full. Then the branch goes on at the next overflow. There are [`OVERFLOWS_MAX`] of them, the same
//! for everybody, so a reader who misses a version at one place knows all the others, and no peer can be made to
//! keep a version at a place of somebody's choice.

use std::fmt;
use std::str::FromStr;

use crypto::{ParseIdError, Place, RecordId, Suite};

/// The length of a hint, in bytes.
pub const HINT_BYTES: usize = 16;
/// How many overflows an object's first place has.
pub const OVERFLOWS_MAX: u64 = 16;

/// The key of an object: the id of its [`crate::ObjectRecord`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey([u8; 32]);

impl ObjectKey {
    /// The key with these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The id of the object's record.
    pub const fn record(&self) -> RecordId {
        RecordId::new(self.0)
    }
}

impl From<RecordId> for ObjectKey {
    fn from(id: RecordId) -> Self {
        Self(*id.as_bytes())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectKey({self})")
    }
}

impl FromStr for ObjectKey {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        text.parse::<RecordId>().map(Self::from)
    }
}

/// Which of an object's places a branch lives at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hint([u8; HINT_BYTES]);

impl Hint {
    /// Where a root and what follows it live.
    pub const FIRST: Self = Self([0; HINT_BYTES]);

    /// The hint with these bytes.
    pub const fn new(bytes: [u8; HINT_BYTES]) -> Self {
        Self(bytes)
    }

    /// Its 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; HINT_BYTES] {
        &self.0
    }

    /// The `i`-th overflow of an object, `None` over [`OVERFLOWS_MAX`]; the 0-th is [`Hint::FIRST`].
    pub fn overflow(suite: Suite, object: &ObjectKey, i: u64) -> Option<Self> {
        match i {
            0 => return Some(Self::FIRST),
            1..=OVERFLOWS_MAX => {}
            _ => return None,
        }
        let mut bytes = [0; 1 + 32 + HINT_BYTES + 8];
        bytes[0] = b'n';
        bytes[1..33].copy_from_slice(object.as_bytes());
        bytes[33 + HINT_BYTES..].copy_from_slice(&i.to_be_bytes());
        let mut hint = [0; HINT_BYTES];
        hint.copy_from_slice(&suite.hash(&bytes)[..HINT_BYTES]);
        Some(Self(hint))
    }

    /// Which overflow of the object it is, `None` where it is none.
    pub fn number(&self, suite: Suite, object: &ObjectKey) -> Option<u64> {
        (0..=OVERFLOWS_MAX).find(|i| Self::overflow(suite, object, *i) == Some(*self))
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hint({self})")
    }
}

/// Where the versions of an object with this hint live.
pub fn place(suite: Suite, object: &ObjectKey, hint: &Hint) -> Place {
    let mut bytes = [0; 32 + HINT_BYTES];
    bytes[..32].copy_from_slice(object.as_bytes());
    bytes[32..].copy_from_slice(hint.as_bytes());
    Place::new(suite.hash(&bytes))
}

/// Every place of an object, the first one first. Lazy: each costs two hashes of a few bytes.
pub fn places(suite: Suite, object: ObjectKey) -> impl Iterator<Item = (Hint, Place)> {
    let hints = (0..=OVERFLOWS_MAX).filter_map(move |i| Hint::overflow(suite, &object, i));
    hints.map(move |hint| (hint, place(suite, &object, &hint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflows_are_numbered_from_the_first_place() {
        for suite in Suite::ALL {
            let object = ObjectKey::new([7; 32]);
            let all: Vec<(Hint, Place)> = places(suite, object).collect();
            assert_eq!(all.len(), 17);
            assert_eq!(all[0].0, Hint::FIRST);
            for (i, (hint, _)) in all.iter().enumerate() {
                assert_eq!(hint.number(suite, &object), Some(i as u64));
                let others = all.iter().filter(|other| other.0 == *hint || other.1 == all[i].1);
                assert_eq!(others.count(), 1);
            }
            assert_eq!(Hint::overflow(suite, &object, 17), None);
            assert_eq!(Hint::new([1; 16]).number(suite, &object), None);
            assert_eq!(all[1].0.number(suite, &ObjectKey::new([8; 32])), None);
        }
    }
}
