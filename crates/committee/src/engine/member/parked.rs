//! Blocks of others that wait for their parents, or for the engine to ask about them.
//!
//! They are kept as they came: what nobody asks for is hashed and no more, so a liar's blocks cost no more than their bytes, and of
//! these each member's are bounded.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::Header;
use crate::engine::{Key, MEMBERS_MAX};
use crate::header::{BLOCK_BYTES_MAX, HeaderDigest};

/// The most blocks that nobody asked for of one member, of all, and the most bytes of one member's. Each of the members has room
/// of its own, so that no number of them keeps the others' out.
const PARKED_OF_ONE_MAX: usize = 32;
const PARKED_MAX: usize = MEMBERS_MAX * PARKED_OF_ONE_MAX;
const PARKED_OF_ONE_BYTES: usize = 3 * BLOCK_BYTES_MAX;

/// A block that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) from: Key,
    pub(super) header: Header,
    pub(super) bytes: Bytes,
    /// Whether a certificate leads to it.
    pub(super) certified: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Parked(BTreeMap<HeaderDigest, Waiting>);

impl Parked {
    /// Whether there is room for a block of this member's that nobody asked for.
    pub(super) fn has_room(&self, from: &Key, bytes: usize) -> bool {
        let of_one = self.0.values().filter(|one| one.from == *from);
        let (count, sum) =
            of_one.fold((0, bytes), |(count, sum), one| (count + 1, sum + one.bytes.len()));
        self.0.len() < PARKED_MAX && count < PARKED_OF_ONE_MAX && sum <= PARKED_OF_ONE_BYTES
    }

    /// Whether this one waits.
    pub(super) fn has(&self, digest: &HeaderDigest) -> bool {
        self.0.contains_key(digest)
    }

    /// Keeps one.
    pub(super) fn put(&mut self, digest: HeaderDigest, waiting: Waiting) {
        self.0.insert(digest, waiting);
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, digest: &HeaderDigest) -> Option<Waiting> {
        self.0.remove(digest)
    }

    /// A block and those before it that wait, the first first.
    pub(super) fn path(&self, digest: HeaderDigest) -> Vec<HeaderDigest> {
        let mut path = vec![digest];
        while let Some(one) = path.last().and_then(|last| self.0.get(last)) {
            path.push(one.header.parent);
        }
        path.reverse();
        path
    }

    /// Forgets those up to a height.
    pub(super) fn forget_to(&mut self, height: u64) {
        self.0.retain(|_, one| one.header.height > height);
    }
}

#[cfg(test)]
mod tests {
    use commonware_cryptography::{Signer as _, ed25519};

    use super::*;
    use crate::proving::Founded;

    #[test]
    fn what_one_member_parks_is_bounded_by_its_bytes_and_count() {
        let key = |seed| ed25519::PrivateKey::from_seed(seed).public_key();
        let header = Founded::new(4).tip;
        let mut parked = Parked::default();
        let mut put = |from: u64, number: u8, bytes: usize| {
            let room = parked.has_room(&key(from), bytes);
            if room {
                let (header, bytes) = (header.clone(), Bytes::from(vec![0; bytes]));
                let from = key(from);
                let waiting = Waiting { from, header, bytes, certified: false };
                parked.put(HeaderDigest::new([number; 32]), waiting);
            }
            room
        };
        let large = (0..8).filter(|number| put(1, *number, BLOCK_BYTES_MAX)).count();
        assert_eq!(large, 3, "of one member");
        assert!(put(2, 9, BLOCK_BYTES_MAX), "another has room of its own");
        let small = (10..100).filter(|number| put(3, *number, 10)).count();
        assert_eq!(small, PARKED_OF_ONE_MAX);
    }
}
