//! Blocks of others that wait for their parents, or for the engine to ask about them.
//!
//! They are kept as they came: what nobody asks for is hashed and no more, so a liar's blocks cost no more than their bytes, and of
//! these each member's are bounded. That the engine asks about one makes it no better, since a leader proposes what it likes: it
//! takes the place of what its sender sent unasked, and of nobody else's.
//!
//! A block that a quorum stands for ([`Parked::vouch`]) is of the chain, and so are all before it: nobody can make such ones up. They
//! count as no member's, and are fetched backwards until they meet the tip, as long as they stay within [`VOUCHED_BYTES_MAX`]:
//! beyond that they are a past that is long final, and what comes after the tip is asked for instead.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::Header;
use crate::certificate::LATER_MAX;
use crate::engine::{Key, MEMBERS_MAX};
use crate::header::{BLOCK_BYTES_MAX, HeaderDigest};

/// The most blocks that nobody asked for of one member, of all, and the most bytes of one member's. Each of the members has room
/// of its own, so that no number of them keeps the others' out.
const PARKED_OF_ONE_MAX: usize = 32;
const PARKED_MAX: usize = MEMBERS_MAX * PARKED_OF_ONE_MAX;
const PARKED_OF_ONE_BYTES: usize = 3 * BLOCK_BYTES_MAX;
/// The most bytes of those that a quorum stands for, before no more are fetched for them. Room for all that honest members put above
/// a tip of theirs: blocks with updates, none more than [`LATER_MAX`] and one above it, and empty ones for a day and more.
const VOUCHED_BYTES_MAX: usize = (2 + LATER_MAX) * BLOCK_BYTES_MAX + (64 << 20);
/// What one takes beside its bytes, about.
const EACH_BYTES: usize = 512;

/// A block that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) from: Key,
    pub(super) header: Header,
    pub(super) bytes: Bytes,
    /// Whether a certificate leads to it.
    pub(super) certified: bool,
    /// Whether a quorum stands for it, or for one that stands on it.
    pub(super) vouched: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Parked(BTreeMap<HeaderDigest, Waiting>);

impl Parked {
    /// Whether there is room for a block of this member's that no quorum stands for.
    pub(super) fn has_room(&self, from: &Key, bytes: usize) -> bool {
        let (mut all, mut count, mut sum) = (0, 0, bytes);
        for one in self.0.values().filter(|one| !one.vouched) {
            all += 1;
            if one.from == *from {
                (count, sum) = (count + 1, sum + one.bytes.len());
            }
        }
        all < PARKED_MAX && count < PARKED_OF_ONE_MAX && sum <= PARKED_OF_ONE_BYTES
    }

    /// Makes room for a block of this member's that is asked about: what else it sent goes, where it must. It is sent again when it is
    /// asked for.
    pub(super) fn make_room(
        &mut self,
        from: &Key,
        bytes: usize,
        is_asked: impl Fn(&HeaderDigest) -> bool,
    ) -> bool {
        if !self.has_room(from, bytes) {
            self.0.retain(|digest, one| one.from != *from || one.vouched || is_asked(digest));
        }
        self.has_room(from, bytes)
    }

    /// Whether more may be fetched for those that a quorum stands for.
    pub(super) fn has_room_vouched(&self) -> bool {
        let vouched = self.0.values().filter(|one| one.vouched);
        vouched.map(|one| one.bytes.len() + EACH_BYTES).sum::<usize>() < VOUCHED_BYTES_MAX
    }

    /// A quorum stands for this one, and so for those before it.
    pub(super) fn vouch(&mut self, digest: &HeaderDigest) {
        let mut at = *digest;
        while let Some(one) = self.0.get_mut(&at) {
            one.vouched = true;
            at = one.header.parent;
        }
    }

    /// One that waits.
    pub(super) fn get(&self, digest: &HeaderDigest) -> Option<&Waiting> {
        self.0.get(digest)
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

    /// The bytes of all.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.values().map(|one| one.bytes.len()).sum()
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
                let waiting = Waiting { from, header, bytes, certified: false, vouched: false };
                parked.put(HeaderDigest::new([number; 32]), waiting);
            }
            room
        };
        let large = (0..8).filter(|number| put(1, *number, BLOCK_BYTES_MAX)).count();
        assert_eq!(large, 3, "of one member");
        assert!(put(2, 9, BLOCK_BYTES_MAX), "another has room of its own");
        let small = (10..100).filter(|number| put(3, *number, 10)).count();
        assert_eq!(small, PARKED_OF_ONE_MAX);
        // One that is asked about takes the place of what came unasked, and of nobody else's.
        let is_asked = |digest: &HeaderDigest| digest.as_bytes()[0] == 1;
        assert!(!parked.has_room(&key(1), BLOCK_BYTES_MAX));
        assert!(parked.make_room(&key(1), BLOCK_BYTES_MAX, is_asked));
        let left = |digest| parked.has(&HeaderDigest::new([digest; 32]));
        assert_eq!([0, 1, 2, 9].map(left), [false, true, false, true]);
    }

    #[test]
    fn those_that_a_quorum_stands_for_are_of_no_member_and_bounded_together() {
        let (mut founded, mut parked) = (Founded::new(4), Parked::default());
        let from = ed25519::PrivateKey::from_seed(1).public_key();
        let headers: Vec<Header> = (0..80).map(|_| founded.block(Vec::new()).0.header).collect();
        for header in &headers {
            let (from, header) = (from.clone(), header.clone());
            let (certified, vouched) = (false, false);
            let bytes = Bytes::from(vec![0; BLOCK_BYTES_MAX]);
            parked.put(header.digest(), Waiting { from, header, bytes, certified, vouched });
        }
        assert!(!parked.has_room(&from, 1) && parked.has_room_vouched());
        parked.vouch(&headers[79].digest());
        assert!(parked.has_room(&from, 1), "with it all that it stands on");
        assert!(parked.get(&headers[0].digest()).is_some_and(|one| one.vouched));
        assert!(parked.has_room_vouched(), "honest members may put so much above a tip");
        for number in 0..10 {
            let (from, header) = (from.clone(), headers[0].clone());
            let bytes = Bytes::from(vec![0; BLOCK_BYTES_MAX]);
            let waiting = Waiting { from, header, bytes, certified: false, vouched: true };
            parked.put(HeaderDigest::new([number; 32]), waiting);
        }
        assert!(!parked.has_room_vouched());
    }
}
