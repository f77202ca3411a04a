//! A peer's word that it keeps versions: what it answers a put with.
//!
//! ```text
//! "holdfast receipt v1"  | network 32 | peer's key 33 | durability 1 | lease 8 | time 8 | count 4 | signature 64
//! "holdfast received v1" | network 32 | peer's key 33 | durability 1 | lease 8 | time 8 | count 4 | signature 64 | index 4 | h 32 | siblings, 32 each
//! ```
//! The peer signs, with the key of its certificate, in the domain `receipt` and the network: durability, lease, time, count and the
//! root of the tree over the h ([`crate::merkle`]); h covers the depth and all else of a version. The first form answers for all
//! that a client sent, in the order in which it sent them, so it holds no h. The second answers for one of a batch that
//! several clients sent. `lease` is until when the peer keeps it, `time` when it said so, Unix milliseconds; a lease of 0 is
//! that of a network without leases.

use bytes::Bytes;
use crypto::{NetworkId, PeerId, RecordId, SecretKey, Signature, Suite};

use crate::VersionError;
use crate::merkle::{self, Hash, LEAVES_MAX, Path, Tree};
use crate::reader::Reader;

/// The longest encoded receipt, in bytes.
pub const RECEIPT_BYTES_MAX: usize = PREFIX_OF_ONE.len() + SIGNED_BYTES + 4 + 32 + 16 * 32;

const DOMAIN: &str = "receipt";
const WHAT: &str = "receipt";
const PREFIX: &[u8] = b"holdfast receipt v1";
const PREFIX_OF_ONE: &[u8] = b"holdfast received v1";
/// Network, peer, durability, lease, time, count, signature.
const SIGNED_BYTES: usize = 32 + 33 + 1 + 8 + 8 + 4 + 64;

/// What must happen before a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Durability {
    /// Nothing: it is in the peer's memory.
    Memory = 0,
    /// It is written, and synced within a second.
    Everysec = 1,
    /// It is synced, one sync serving many writers.
    Group = 2,
    /// It is synced by itself.
    Always = 3,
}

impl Durability {
    /// Every one, the weakest first.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Everysec, Self::Group, Self::Always];

    /// The one with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its name, in settings and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Everysec => "everysec",
            Self::Group => "group",
            Self::Always => "always",
        }
    }
}

/// A peer's word for all that a client sent at once. Decoded, it is nobody's word yet: [`Receipt::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The network.
    pub network: NetworkId,
    /// Who keeps them.
    pub peer: PeerId,
    /// How they are kept at this answer.
    pub durability: Durability,
    /// Until when, Unix milliseconds; 0 for no lease.
    pub lease_ms: u64,
    /// When it was said, Unix milliseconds.
    pub time_ms: u64,
    /// How many versions.
    pub count: u32,
    /// The signature, r||s.
    pub signature: Signature,
}

/// What a peer says, but for the versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How they are kept at this answer.
    pub durability: Durability,
    /// Until when, Unix milliseconds; 0 for no lease.
    pub lease_ms: u64,
    /// Now, Unix milliseconds.
    pub time_ms: u64,
}

impl Receipt {
    /// The receipt for the versions of this tree; `key` is the peer's.
    pub fn sign(key: &SecretKey, network: &NetworkId, terms: Terms, tree: &Tree) -> Self {
        Self::sign_root(key, network, terms, tree.count() as u32, &tree.root())
    }

    /// The receipt for so many versions, of which only the root is at hand, as of an author's batch that was verified.
    pub fn sign_root(
        key: &SecretKey,
        network: &NetworkId,
        terms: Terms,
        count: u32,
        root: &Hash,
    ) -> Self {
        let Terms { durability, lease_ms, time_ms } = terms;
        let (network, peer) = (*network, PeerId::new(key.public()));
        let signature = [0; 64];
        let unsigned = Self { network, peer, durability, lease_ms, time_ms, count, signature };
        let signature = key.sign(DOMAIN, &network, &unsigned.message(root));
        Self { signature, ..unsigned }
    }

    fn message(&self, root: &Hash) -> [u8; 53] {
        let mut message = [0; 53];
        message[0] = self.durability.number();
        message[1..9].copy_from_slice(&self.lease_ms.to_be_bytes());
        message[9..17].copy_from_slice(&self.time_ms.to_be_bytes());
        message[17..21].copy_from_slice(&self.count.to_be_bytes());
        message[21..].copy_from_slice(root);
        message
    }

    /// Checks that the peer signed for exactly these, in this order.
    ///
    /// # Errors
    /// [`VersionError::Key`], [`VersionError::Field`] for another count.
    pub fn verify(&self, suite: Suite, hs: &[RecordId]) -> Result<(), VersionError> {
        if hs.len() != self.count as usize {
            return Err(VersionError::Field("count of the receipt"));
        }
        self.verify_root(&merkle::root(suite, hs).unwrap_or_default())
    }

    /// Checks that the peer signed for as many versions as it says, with this root.
    ///
    /// # Errors
    /// [`VersionError::Key`].
    pub fn verify_root(&self, root: &Hash) -> Result<(), VersionError> {
        let message = self.message(root);
        Ok(self.peer.key().verify(DOMAIN, &self.network, &message, &self.signature)?)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, VersionError> {
        let network = NetworkId::new(reader.array()?);
        let peer = PeerId::from_slice(&reader.array::<33>()?)?;
        let durability = Durability::from_number(reader.u8()?);
        let durability = durability.ok_or(VersionError::Field("durability of the receipt"))?;
        let (lease_ms, time_ms, count) = (reader.u64()?, reader.u64()?, reader.u32()?);
        if count == 0 || count as usize > LEAVES_MAX {
            return Err(VersionError::Field("count of the receipt"));
        }
        let signature = reader.array()?;
        Ok(Self { network, peer, durability, lease_ms, time_ms, count, signature })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.network.as_bytes());
        out.extend_from_slice(self.peer.as_bytes());
        out.push(self.durability.number());
        out.extend_from_slice(&self.lease_ms.to_be_bytes());
        out.extend_from_slice(&self.time_ms.to_be_bytes());
        out.extend_from_slice(&self.count.to_be_bytes());
        out.extend_from_slice(&self.signature);
    }

    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, VersionError> {
        let mut reader = Reader::new(WHAT, bytes);
        reader.prefix(PREFIX)?;
        let receipt = Self::read(&mut reader)?;
        reader.end()?;
        Ok(receipt)
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(PREFIX.len() + SIGNED_BYTES);
        out.extend_from_slice(PREFIX);
        self.write(&mut out);
        out.into()
    }

    /// What one of the clients gets, for the version at this index; `None` where there is none. `hs` and `tree` are those
    /// that were signed.
    pub fn of_one(&self, hs: &[RecordId], tree: &Tree, index: usize) -> Option<Received> {
        Some(Received { receipt: self.clone(), h: *hs.get(index)?, path: tree.path(index)? })
    }
}

/// A peer's word for one version of several. Decoded, it is nobody's word yet: [`Received::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// What the peer signed.
    pub receipt: Receipt,
    /// The version.
    pub h: RecordId,
    /// What leads to the signed root.
    pub path: Path,
}

impl Received {
    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, VersionError> {
        let mut reader = Reader::new(WHAT, bytes);
        let (receipt, h, index) = Self::read(&mut reader)?;
        let path = Path::read(&mut reader, index, receipt.count)?;
        reader.end()?;
        Ok(Self { receipt, h, path })
    }

    /// Checks the form alone: whether [`Received::decode`] would decode it.
    ///
    /// # Errors
    /// As [`Received::decode`].
    pub fn check_form(bytes: &[u8]) -> Result<(), VersionError> {
        let mut reader = Reader::new(WHAT, bytes);
        let (receipt, _, index) = Self::read(&mut reader)?;
        Path::skip(&mut reader, index, receipt.count)?;
        reader.end()
    }

    fn read(reader: &mut Reader<'_>) -> Result<(Receipt, RecordId, u32), VersionError> {
        reader.prefix(PREFIX_OF_ONE)?;
        let receipt = Receipt::read(reader)?;
        let index = reader.u32()?;
        Ok((receipt, RecordId::new(reader.array()?), index))
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(RECEIPT_BYTES_MAX);
        out.extend_from_slice(PREFIX_OF_ONE);
        self.receipt.write(&mut out);
        out.extend_from_slice(&self.path.index.to_be_bytes());
        out.extend_from_slice(self.h.as_bytes());
        self.path.siblings_into(&mut out);
        out.into()
    }

    /// Checks path and signature.
    ///
    /// # Errors
    /// [`VersionError::Key`], [`VersionError::Field`].
    pub fn verify(&self, suite: Suite) -> Result<(), VersionError> {
        let root = self.path.root(suite, &self.h, self.receipt.count);
        self.receipt.verify_root(&root.ok_or(VersionError::Field("path of the receipt"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: Suite = Suite::Holdfast1;
    const NETWORK: NetworkId = NetworkId::new([9; 32]);
    const TERMS: Terms =
        Terms { durability: Durability::Group, lease_ms: 0, time_ms: 1_700_000_000_000 };

    type Check<'a> = &'a dyn Fn(&[u8]) -> Result<(), VersionError>;

    fn made(count: usize) -> (Vec<RecordId>, Tree, Receipt) {
        let hs: Vec<RecordId> = (0..count).map(|one| SUITE.id(&one.to_be_bytes())).collect();
        let tree = Tree::new(SUITE, &hs).expect("versions");
        let key = SecretKey::from_bytes(&[5; 32]).expect("a small scalar is a key");
        let receipt = Receipt::sign(&key, &NETWORK, TERMS, &tree);
        (hs, tree, receipt)
    }

    #[test]
    fn a_peer_answers_for_all_and_for_each() {
        for count in [1, 2, 5, 16] {
            let (hs, tree, receipt) = made(count);
            receipt.verify(SUITE, &hs).expect("our own");
            assert_eq!(Receipt::decode(&receipt.encode()).expect("our own"), receipt);
            for index in 0..count {
                let one = receipt.of_one(&hs, &tree, index).expect("one of them");
                one.verify(SUITE).expect("our own");
                let bytes = one.encode();
                assert!(bytes.len() <= RECEIPT_BYTES_MAX);
                for at in 0..=bytes.len() {
                    let cut = &bytes[..at];
                    assert_eq!(Received::check_form(cut).is_ok(), Received::decode(cut).is_ok());
                }
                let mut other = bytes.to_vec();
                for at in 0..bytes.len() {
                    other[at] ^= 1;
                    let form = Received::check_form(&other).is_ok();
                    assert_eq!(form, Received::decode(&other).is_ok(), "byte {at}");
                    other[at] ^= 1;
                }
                assert_eq!(Received::decode(&bytes).expect("our own"), one);
            }
            let mut others = hs.clone();
            others.reverse();
            assert_eq!(receipt.verify(SUITE, &others).is_ok(), count == 1, "in another order");
            let fewer = receipt.verify(SUITE, &hs[1..]);
            assert!(matches!(fewer, Err(VersionError::Field(_))), "another count is told as such");
            let other = Receipt { durability: Durability::Always, ..receipt.clone() };
            assert!(other.verify(SUITE, &hs).is_err(), "better than was promised");
        }
    }

    #[test]
    fn a_changed_receipt_is_refused() {
        let (hs, tree, receipt) = made(5);
        let all = |bytes: &[u8]| Receipt::decode(bytes).and_then(|found| found.verify(SUITE, &hs));
        let one = |bytes: &[u8]| Received::decode(bytes).and_then(|found| found.verify(SUITE));
        let of_one = receipt.of_one(&hs, &tree, 3).expect("one of them").encode();
        let checks: [(Bytes, Check<'_>); 2] = [(receipt.encode(), &all), (of_one, &one)];
        for (good, check) in checks {
            check(&good).expect("our own");
            for at in 0..good.len() {
                let mut other = good.to_vec();
                other[at] ^= 1 << (at % 8);
                assert!(check(&other).is_err(), "byte {at}");
                assert!(check(&good[..at]).is_err(), "cut at {at}");
            }
            assert!(check(&[&good[..], &[0]].concat()).is_err());
        }
    }
}
