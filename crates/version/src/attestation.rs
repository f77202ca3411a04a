//! Who wrote versions: an author's signature, under one or under up to 65,536 at once.
//!
//! ```text
//! "holdfast attest v1"   | network 32 | author's key 33 | policy version 8 | count 4 | signature 64 | count * h, 32 each
//! "holdfast attested v1" | network 32 | author's key 33 | policy version 8 | count 4 | signature 64 | index 4 | h 32 | siblings, 32 each
//! ```
//! The signature is the author's, in the domain `attestation` and the network, over policy version (8), count (4) and the
//! root of the tree over the h ([`crate::merkle`]). h covers the object, the history and the value, so nothing else is signed; the
//! policy version is that of the policy under which the author says it may write, 0 where there is none.
//!
//! A batch is stored once, with its leaves ([`Attestation`]). Paths are made from them when a version leaves for another
//! peer, and there one stands for the batch ([`Attested`]); of a batch of one there is no second form. Both are records of the
//! kind attestation. Several may stand beside one version.
//!
//! An attestation says who wrote, not that the author may: that, a policy says.

use bytes::Bytes;
use crypto::{AuthorKey, NetworkId, RecordId, SecretKey, Signature, Suite};
use document::{Kind, Record};

use crate::VersionError;
use crate::merkle::{Hash, LEAVES_MAX, Path, Root, Tree};
use crate::reader::Reader;

/// The most versions of one attestation.
pub const ATTESTED_MAX: usize = LEAVES_MAX;

const DOMAIN: &str = "attestation";
const WHAT: &str = "attestation";
const PREFIX: &[u8] = b"holdfast attest v1";
const PREFIX_OF_ONE: &[u8] = b"holdfast attested v1";
/// Network, author, policy version, count, signature.
const SIGNED_BYTES: usize = 32 + 33 + 8 + 4 + 64;
const HEAD_BYTES: usize = PREFIX.len() + SIGNED_BYTES;

/// What both forms say of themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attester {
    /// The network they are in.
    pub network: NetworkId,
    /// Who signed.
    pub author: AuthorKey,
    /// The policy that the author wrote under, by its version; 0 for none.
    pub policy_version: u64,
    /// How many versions were signed at once.
    pub count: u32,
    /// The signature, r||s.
    pub signature: Signature,
}

impl Attester {
    fn read(reader: &mut Reader<'_>) -> Result<Self, VersionError> {
        let network = NetworkId::new(reader.array()?);
        let author = AuthorKey::from_slice(&reader.array::<33>()?)?;
        let policy_version = reader.u64()?;
        let count = reader.u32()?;
        if count == 0 || count as usize > ATTESTED_MAX {
            return Err(VersionError::Field("count of the attestation"));
        }
        Ok(Self { network, author, policy_version, count, signature: reader.array()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.network.as_bytes());
        out.extend_from_slice(self.author.as_bytes());
        out.extend_from_slice(&self.policy_version.to_be_bytes());
        out.extend_from_slice(&self.count.to_be_bytes());
        out.extend_from_slice(&self.signature);
    }

    fn verify(&self, root: &Hash) -> Result<(), VersionError> {
        let message = message(self.policy_version, self.count, root);
        Ok(self.author.key().verify(DOMAIN, &self.network, &message, &self.signature)?)
    }
}

fn message(policy_version: u64, count: u32, root: &Hash) -> [u8; 44] {
    let mut message = [0; 44];
    message[..8].copy_from_slice(&policy_version.to_be_bytes());
    message[8..12].copy_from_slice(&count.to_be_bytes());
    message[12..].copy_from_slice(root);
    message
}

/// Collects the versions of a batch, and signs them at once.
///
/// The record grows where it will lie, and the tree is hashed as versions come, so that signing at the end costs one
/// signature and no second pass.
pub struct BatchAttester {
    network: NetworkId,
    policy_version: u64,
    root: Root,
    record: Vec<u8>,
}

impl BatchAttester {
    /// An empty batch, under the policy with this version (0 for none).
    pub fn new(suite: Suite, network: NetworkId, policy_version: u64) -> Self {
        Self { network, policy_version, root: Root::new(suite), record: vec![0; HEAD_BYTES] }
    }

    /// Adds a version, and gives its index.
    ///
    /// # Errors
    /// [`VersionError::Full`] at [`ATTESTED_MAX`].
    pub fn add(&mut self, h: &RecordId) -> Result<usize, VersionError> {
        let index = self.root.count();
        if index == ATTESTED_MAX {
            return Err(VersionError::Full { what: "attestation", max: ATTESTED_MAX });
        }
        self.root.add(h);
        self.record.extend_from_slice(h.as_bytes());
        Ok(index)
    }

    /// How many versions it has.
    pub const fn len(&self) -> usize {
        self.root.count()
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The attestation to be stored, `None` of an empty batch. CPU work of one signature, and of hashing the record.
    pub fn finish(mut self, suite: Suite, author: &SecretKey) -> Option<Record> {
        let root = self.root.finish()?;
        let count = u32::try_from(self.len()).ok()?;
        let message = message(self.policy_version, count, &root);
        let attester = Attester {
            network: self.network,
            author: author.public().into(),
            policy_version: self.policy_version,
            count,
            signature: author.sign(DOMAIN, &self.network, &message),
        };
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(PREFIX);
        attester.write(&mut head);
        self.record[..HEAD_BYTES].copy_from_slice(&head);
        Some(record(suite, self.record.into()))
    }
}

/// The attestation of one version, to be stored.
pub fn attest(
    suite: Suite,
    network: NetworkId,
    policy_version: u64,
    h: &RecordId,
    author: &SecretKey,
) -> Record {
    let mut batch = BatchAttester::new(suite, network, policy_version);
    let added = batch.add(h);
    debug_assert!(added.is_ok(), "there is room for one");
    #[expect(clippy::unwrap_used, reason = "it has one version")]
    batch.finish(suite, author).unwrap()
}

fn record(suite: Suite, bytes: Bytes) -> Record {
    let id = suite.id(&bytes);
    Record { kind: Kind::Attestation, id, place: id.into(), bytes }
}

/// A batch with all its leaves, which share the record's bytes. Decoded, it is nobody's word yet:
/// [`Attestation::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attestation {
    /// Who signed, and what for.
    pub attester: Attester,
    hashes: Bytes,
}

impl Attestation {
    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, VersionError> {
        let mut reader = Reader::new(WHAT, bytes);
        reader.prefix(PREFIX)?;
        let attester = Attester::read(&mut reader)?;
        if reader.rest().len() != 32 * attester.count as usize {
            return Err(VersionError::Length(WHAT));
        }
        Ok(Self { attester, hashes: bytes.slice(HEAD_BYTES..) })
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.hashes.len());
        out.extend_from_slice(PREFIX);
        self.attester.write(&mut out);
        out.extend_from_slice(&self.hashes);
        out.into()
    }

    /// Checks the signature: CPU work of two short hashes a version, and one verification.
    ///
    /// # Errors
    /// [`VersionError::Key`].
    pub fn verify(&self, suite: Suite) -> Result<(), VersionError> {
        let mut root = Root::new(suite);
        self.hs().for_each(|h| root.add(&h));
        self.attester.verify(&root.finish().unwrap_or_default())
    }

    /// The versions, in their order.
    pub fn hs(&self) -> impl Iterator<Item = RecordId> + '_ {
        self.hashes.as_chunks::<32>().0.iter().map(|h| RecordId::new(*h))
    }

    /// All paths, made again from the leaves: for whoever sends several of its versions away.
    pub fn paths(&self, suite: Suite) -> Option<Tree> {
        Tree::new(suite, self.hs().collect::<Vec<_>>().iter())
    }

    /// What is sent with one of its versions, the one at this index; `None` where there is none. `tree` is
    /// [`Attestation::paths`].
    pub fn of_one(&self, tree: &Tree, index: usize) -> Option<Attested> {
        let h = self.hs().nth(index)?;
        let path = tree.path(index)?;
        Some(Attested { attester: self.attester.clone(), h, path })
    }
}

/// One version of a batch, and the path that stands for the others. Decoded, it is nobody's word yet: [`Attested::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attested {
    /// Who signed, and what for.
    pub attester: Attester,
    /// The version.
    pub h: RecordId,
    /// What leads to the signed root.
    pub path: Path,
}

impl Attested {
    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, VersionError> {
        let mut reader = Reader::new(WHAT, bytes);
        reader.prefix(PREFIX_OF_ONE)?;
        let attester = Attester::read(&mut reader)?;
        if attester.count == 1 {
            // It is a batch of one, and has that form.
            return Err(VersionError::Field("count of the attestation"));
        }
        let index = reader.u32()?;
        let h = RecordId::new(reader.array()?);
        let path = Path::read(&mut reader, index, attester.count)?;
        reader.end()?;
        Ok(Self { attester, h, path })
    }

    /// Its record. Of a batch of one it is that batch's.
    pub fn record(&self, suite: Suite) -> Record {
        let mut out = Vec::new();
        match self.attester.count {
            1 => {
                out.extend_from_slice(PREFIX);
                self.attester.write(&mut out);
            }
            _ => {
                out.extend_from_slice(PREFIX_OF_ONE);
                self.attester.write(&mut out);
                out.extend_from_slice(&self.path.index.to_be_bytes());
            }
        }
        out.extend_from_slice(self.h.as_bytes());
        self.path.siblings_into(&mut out);
        record(suite, out.into())
    }

    /// Checks path and signature.
    ///
    /// # Errors
    /// [`VersionError::Key`], [`VersionError::Field`].
    pub fn verify(&self, suite: Suite) -> Result<(), VersionError> {
        let root = self.path.root(suite, &self.h, self.attester.count);
        self.attester.verify(&root.ok_or(VersionError::Field("path of the attestation"))?)
    }
}

/// The versions that the record of an attestation names, in either form; none where the bytes are of another. Neither key nor
/// signature is looked at: it is for whoever makes an index of a million that were verified before.
pub fn named(bytes: &[u8]) -> impl Iterator<Item = RecordId> + '_ {
    let one = bytes.strip_prefix(PREFIX_OF_ONE).and_then(|rest| rest.get(SIGNED_BYTES + 4..));
    let one = one.and_then(|rest| rest.first_chunk::<32>());
    let batch = bytes.strip_prefix(PREFIX).and_then(|rest| rest.get(SIGNED_BYTES..));
    let batch = batch.map_or(&[][..], |hashes| hashes.as_chunks::<32>().0);
    one.into_iter().chain(batch).map(|h| RecordId::new(*h))
}

/// An attestation in either form, as a record holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyAttestation {
    /// Of a batch, with its leaves.
    Batch(Attestation),
    /// Of one version, with its path.
    One(Attested),
}

impl AnyAttestation {
    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, VersionError> {
        match bytes.starts_with(PREFIX_OF_ONE) {
            true => Attested::decode(bytes).map(Self::One),
            false => Attestation::decode(bytes).map(Self::Batch),
        }
    }

    /// Checks the signature.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn verify(&self, suite: Suite) -> Result<(), VersionError> {
        match self {
            Self::Batch(batch) => batch.verify(suite),
            Self::One(one) => one.verify(suite),
        }
    }

    /// Who signed, and what for.
    pub const fn attester(&self) -> &Attester {
        match self {
            Self::Batch(batch) => &batch.attester,
            Self::One(one) => &one.attester,
        }
    }

    /// Whether it is under this version.
    pub fn names(&self, h: &RecordId) -> bool {
        match self {
            Self::Batch(batch) => batch.hs().any(|one| one == *h),
            Self::One(one) => one.h == *h,
        }
    }
}

#[cfg(test)]
mod tests;
