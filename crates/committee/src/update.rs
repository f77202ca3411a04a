//! What a client asks the committee for: a head moved from what it expects to a new version, a policy, a peer made known.
//!
//! ```text
//! body     "holdfast update v1" | network 32 | group 32 | author 33 | id 16 | last valid height 8 | operation 1 | ...
//!   1 set     object 32 | branch length 1 | branch | expected 1 (0: none) [h 32 | height 8] | h 32 | l 8 | n 16 | receipts 1 | (length 4 | receipt) each
//!   2 object  length 4 | object's record | length 4 | signed policy, or nothing
//!   3 peer    length 4 | signed peer certificate
//!   4 members change of the members ([`crate::members`])
//! one      "holdfast signed update v1"  | signature 64 | body
//! bundle   "holdfast update bundle v1"  | signature 64 | count 4 | (length 4 | body) each
//! kept     "holdfast kept bundle v1"    | signature 64 | receipts 1, at least one | (length 4 | receipt) each | count 4 | (length 4 | body) each
//! ```
//! The **digest** of an update is the BLAKE3 of its body, which holds all but the signature and receipts beside it: the same wish signed again, or in a
//! bundle, is the same update. The author signs the digest in the domain `update`; a bundle's author, who is that of each of its
//! bodies, signs count and the root of the tree over the digests ([`version::merkle`]) in the domain `update-bundle`. `id` is
//! random and makes two wishes of the same content two.
//!
//! Versions that were put in one call have one receipt of each peer, for all of them in their order ([`version::Receipt`]). A bundle
//! that sets heads to just these carries the receipts once, behind the signature, in the place of a receipt and a path in each
//! body. Its author signs count, root and the BLAKE3 of all from the number of receipts up to the count, in the same domain. Whether
//! a receipt holds is seen where a head would be moved; one that does not counts for nothing. Who sends an update again with other
//! receipts gives it another `id`: an answer says nothing of receipts, so an older refusal would answer it too.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use crypto::{KeyError, NetworkId, PeerId, PublicKey, RecordId, SecretKey, Signature, Suite};
use version::head::BRANCH_BYTES_MAX;
use version::merkle;
use version::receipt::RECEIPT_BYTES_MAX;
use version::{Hint, ObjectKey, Receipt, Received, VersionId};

use crate::members::Change;
use crate::reader::{Reader, put_long};
use crate::{CommitteeError, GroupId};

/// The most receipts that an update carries.
pub const RECEIPTS_MAX: usize = 16;
/// The longest body of an update, in bytes: a policy with all its writers.
pub const UPDATE_BYTES_MAX: usize = 32 << 10;
/// The most updates of a bundle.
pub const BUNDLE_UPDATES_MAX: usize = 1_024;
/// The longest bundle, in bytes.
pub const SUBMISSION_BYTES_MAX: usize = 1 << 20;

const PREFIX: &[u8] = b"holdfast update v1";
const ONE_PREFIX: &[u8] = b"holdfast signed update v1";
const BUNDLE_PREFIX: &[u8] = b"holdfast update bundle v1";
const KEPT_PREFIX: &[u8] = b"holdfast kept bundle v1";
const DOMAIN: &str = "update";
const BUNDLE_DOMAIN: &str = "update-bundle";
const WHAT: &str = "update";
/// Room that an update with two receipts takes.
const WRITTEN_BYTES: usize = 1_280;

/// Count and root, and the hash of the receipts where there are any.
const MESSAGE_BYTES: usize = 4 + 32;
const MESSAGE_BYTES_KEPT: usize = MESSAGE_BYTES + 32;

/// What submissions are looked for by.
pub(crate) type Tag = [u8; 32];

/// The hash of an update's body.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpdateDigest([u8; 32]);

impl UpdateDigest {
    /// The digest with these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for UpdateDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UpdateDigest({})", hex::encode(self.0))
    }
}

/// Where a head is: a version, and the height at which it became the head.
pub type At = (RecordId, u64);

/// What an update does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Moves a head.
    Set {
        /// The object.
        object: ObjectKey,
        /// The branch: 1 to [`BRANCH_BYTES_MAX`] bytes without control characters.
        branch: Box<str>,
        /// What the client saw: the version and the height it was set at; `None` where there is no head yet.
        expected: Option<At>,
        /// The new version.
        new: VersionId,
        /// Who keeps the new version, as encoded [`Received`]; at most [`RECEIPTS_MAX`].
        receipts: Vec<Bytes>,
    },
    /// Makes an object known, or gives it another policy.
    Object {
        /// The encoded [`version::ObjectRecord`].
        record: Bytes,
        /// The signed [`version::Policy`]; empty for the implied one.
        policy: Bytes,
    },
    /// Makes a peer known, whose receipts count from then on.
    Peer {
        /// The signed [`crypto::PeerCertificate`].
        certificate: Bytes,
    },
    /// Changes the members: signed by those of them that want it, or by the dealer, whoever sends it.
    Members(Change),
}

/// What a client asks for, not signed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The network.
    pub network: NetworkId,
    /// The committee.
    pub group: GroupId,
    /// Who asks.
    pub author: PublicKey,
    /// Random: two wishes of the same content are two.
    pub id: [u8; 16],
    /// It is refused in blocks above this height.
    pub last_valid: u64,
    /// What is asked for.
    pub operation: Operation,
}

impl Update {
    /// The body.
    ///
    /// # Errors
    /// [`CommitteeError`] for what no update can say.
    pub fn encode(&self) -> Result<Bytes, CommitteeError> {
        self.read_again().map(|(body, _)| body)
    }

    fn write(&self) -> Result<Bytes, CommitteeError> {
        let mut out = Vec::with_capacity(WRITTEN_BYTES);
        out.extend_from_slice(PREFIX);
        out.extend_from_slice(self.network.as_bytes());
        out.extend_from_slice(self.group.as_bytes());
        out.extend_from_slice(self.author.as_bytes());
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.last_valid.to_be_bytes());
        match &self.operation {
            Operation::Set { object, branch, expected, new, receipts } => {
                out.push(1);
                out.extend_from_slice(object.as_bytes());
                out.push(branch.len() as u8);
                out.extend_from_slice(branch.as_bytes());
                out.push(u8::from(expected.is_some()));
                if let Some((h, height)) = expected {
                    out.extend_from_slice(h.as_bytes());
                    out.extend_from_slice(&height.to_be_bytes());
                }
                put_version(&mut out, new);
                out.push(receipts.len() as u8);
                receipts.iter().for_each(|receipt| put_long(&mut out, receipt));
            }
            Operation::Object { record, policy } => {
                out.push(2);
                put_long(&mut out, record);
                put_long(&mut out, policy);
            }
            Operation::Peer { certificate } => {
                out.push(3);
                put_long(&mut out, certificate);
            }
            Operation::Members(change) => {
                out.push(4);
                out.extend_from_slice(&change.encode());
            }
        }
        Ok(out.into())
    }

    /// The body, and what is read of it: what cannot be read again is not let out.
    fn read_again(&self) -> Result<(Bytes, Self), CommitteeError> {
        let body = self.write()?;
        let read = Self::decode(&body)?;
        if read == *self { Ok((body, read)) } else { Err(CommitteeError::Field("update")) }
    }

    /// Decodes a body and checks its form; what it carries is checked where it is executed. It keeps `bytes`, and whatever they
    /// are a part of.
    ///
    /// # Errors
    /// [`CommitteeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, CommitteeError> {
        if bytes.len() > UPDATE_BYTES_MAX {
            let (found, max) = (bytes.len(), UPDATE_BYTES_MAX);
            return Err(CommitteeError::TooLarge { what: "bytes of an update", found, max });
        }
        let mut reader = Reader::new(WHAT, bytes);
        reader.prefix(PREFIX)?;
        let network = NetworkId::new(reader.array()?);
        let group = GroupId::new(reader.array()?);
        let author = PublicKey::from_slice(&reader.array::<33>()?)?;
        let (id, last_valid) = (reader.array()?, reader.u64()?);
        let operation = match reader.u8()? {
            1 => read_set(&mut reader, bytes)?,
            2 => {
                let record = reader.long("bytes of an object's record", UPDATE_BYTES_MAX)?;
                let policy = reader.long("bytes of a policy", UPDATE_BYTES_MAX)?;
                let [record, policy] = [record, policy].map(|one| bytes.slice_ref(one));
                Operation::Object { record, policy }
            }
            3 => {
                let certificate = reader.long("bytes of a certificate", UPDATE_BYTES_MAX)?;
                Operation::Peer { certificate: bytes.slice_ref(certificate) }
            }
            4 => {
                let operation = Operation::Members(Change::decode(reader.rest())?);
                return Ok(Self { network, group, author, id, last_valid, operation });
            }
            _ => return Err(CommitteeError::Field("operation of the update")),
        };
        reader.end()?;
        Ok(Self { network, group, author, id, last_valid, operation })
    }

    /// Signs it by itself; `key` is the author's.
    ///
    /// # Errors
    /// [`CommitteeError`] for what no update can say, or for another's key.
    pub fn sign(&self, key: &SecretKey) -> Result<Submission, CommitteeError> {
        let (body, read) = self.read_again()?;
        of_author(self, key)?;
        let unsigned = Unsigned::of(vec![body], vec![read], Vec::new())?;
        let signature = key.sign(DOMAIN, &self.network, unsigned.first_digest()?.as_bytes());
        Ok(unsigned.signed(signature, false, None))
    }
}

/// Reads where a version is.
pub(crate) fn read_version(reader: &mut Reader<'_>) -> Result<VersionId, CommitteeError> {
    let h = RecordId::new(reader.array()?);
    Ok(VersionId { h, l: reader.u64()?, n: Hint::new(reader.array()?) })
}

/// Appends where a version is.
pub(crate) fn put_version(out: &mut Vec<u8>, version: &VersionId) {
    out.extend_from_slice(version.h.as_bytes());
    out.extend_from_slice(&version.l.to_be_bytes());
    out.extend_from_slice(version.n.as_bytes());
}

/// Reads a branch's name.
pub(crate) fn read_branch(reader: &mut Reader<'_>) -> Result<Box<str>, CommitteeError> {
    let length = usize::from(reader.u8()?);
    let branch = std::str::from_utf8(reader.take(length)?);
    let branch = branch.map_err(|_| CommitteeError::Field("name of the branch"))?;
    check_branch(branch)?;
    Ok(branch.into())
}

/// Whether a branch can be called so.
pub(crate) fn check_branch(branch: &str) -> Result<(), CommitteeError> {
    let right = (1..=BRANCH_BYTES_MAX).contains(&branch.len());
    if right && !branch.chars().any(char::is_control) {
        Ok(())
    } else {
        Err(CommitteeError::Field("name of the branch"))
    }
}

fn read_set(reader: &mut Reader<'_>, whole: &Bytes) -> Result<Operation, CommitteeError> {
    let object = ObjectKey::new(reader.array()?);
    let branch = read_branch(reader)?;
    let expected = match reader.flag()? {
        true => Some((RecordId::new(reader.array()?), reader.u64()?)),
        false => None,
    };
    let new = read_version(reader)?;
    let count = usize::from(reader.u8()?);
    if count > RECEIPTS_MAX {
        let max = RECEIPTS_MAX;
        return Err(CommitteeError::TooLarge { what: "receipts of an update", found: count, max });
    }
    let receipt = |_| {
        let bytes = reader.long("bytes of a receipt", RECEIPT_BYTES_MAX)?;
        Received::check_form(bytes)?;
        Ok::<_, CommitteeError>(whole.slice_ref(bytes))
    };
    let receipts = (0..count).map(receipt).collect::<Result<_, _>>()?;
    Ok(Operation::Set { object, branch, expected, new, receipts })
}

/// The digest of a body.
pub fn digest(body: &[u8]) -> UpdateDigest {
    UpdateDigest(Suite::Holdfast1.hash(body))
}

/// What a client sends: updates under one signature. Decoded, it is nobody's word yet: [`Submission::verify`].
///
/// A copy shares everything: what waits, what a block carries and what is answered is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Submission(Arc<Signed>);

/// What stands under one signature, and what is computed of it once.
struct Signed {
    bytes: Bytes,
    key: UpdateDigest,
    tag: Tag,
    all: Unsigned,
    signature: Signature,
    bundle: bool,
    /// Whose receipts for the whole bundle hold in the network's suite, once that was asked.
    kept: OnceLock<(Suite, Vec<PeerId>)>,
}

/// All else follows from the bytes.
impl PartialEq for Signed {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Signed {}

/// Updates of one author, before they are signed for.
struct Unsigned {
    bodies: Vec<Bytes>,
    updates: Vec<Update>,
    digests: Vec<UpdateDigest>,
    /// Receipts for all versions that the updates set.
    receipts: Vec<Receipt>,
    /// What a bundle's author signs.
    message: [u8; MESSAGE_BYTES_KEPT],
}

/// An update as it is executed.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The update.
    pub(crate) update: &'a Update,
    /// Its digest.
    pub(crate) digest: &'a UpdateDigest,
    /// What it came in.
    of: &'a Submission,
}

impl<'a> Asked<'a> {
    /// Who keeps its version, as receipts beside the update say that hold; `suite` is the network's.
    pub(crate) fn kept(&self, suite: Suite) -> &'a [PeerId] {
        let Signed { kept, all, .. } = &*self.of.0;
        if all.receipts.is_empty() {
            return &[];
        }
        let (of, peers) = kept.get_or_init(|| (suite, all.kept(suite)));
        if *of == suite { peers } else { &[] }
    }
}

impl Unsigned {
    /// `updates` are what the bodies say.
    fn of(
        bodies: Vec<Bytes>,
        updates: Vec<Update>,
        receipts: Vec<Receipt>,
    ) -> Result<Self, CommitteeError> {
        let (found, max) = (updates.len(), BUNDLE_UPDATES_MAX);
        let first = updates.first().filter(|_| found <= max);
        let first =
            first.ok_or(CommitteeError::TooLarge { what: "updates of a bundle", found, max })?;
        let same = |one: &Update| {
            (one.author, one.network, one.group) == (first.author, first.network, first.group)
        };
        if !updates.iter().all(same) {
            return Err(CommitteeError::Field("author, network or committee of the bundle"));
        }
        let (found, max) = (receipts.len(), RECEIPTS_MAX);
        if found > max {
            return Err(CommitteeError::TooLarge { what: "receipts of a bundle", found, max });
        }
        let sets = new_versions(&updates).count();
        let fits =
            |one: &Receipt| one.network == first.network && one.count as usize == sets && sets > 0;
        if !receipts.iter().all(fits) {
            return Err(CommitteeError::Field("network or count of the bundle's receipts"));
        }
        let receipts_bytes = receipts_written(&receipts);
        let length: usize = bodies.iter().map(|body| body.len() + 4).sum();
        let length = length + receipts_bytes.len();
        if length + BUNDLE_PREFIX.len() + 68 > SUBMISSION_BYTES_MAX {
            let (found, max) = (length, SUBMISSION_BYTES_MAX);
            return Err(CommitteeError::TooLarge { what: "bytes of a bundle", found, max });
        }
        let digests: Vec<UpdateDigest> = bodies.iter().map(|body| digest(body)).collect();
        let message = message(&digests, &receipts_bytes);
        Ok(Self { bodies, updates, digests, receipts, message })
    }

    /// What a bundle's author signs.
    fn message(&self) -> &[u8] {
        let length = if self.receipts.is_empty() { MESSAGE_BYTES } else { MESSAGE_BYTES_KEPT };
        self.message.get(..length).unwrap_or_default()
    }

    fn first(&self) -> Result<&Update, CommitteeError> {
        self.updates.first().ok_or(CommitteeError::Length(WHAT))
    }

    fn first_digest(&self) -> Result<&UpdateDigest, CommitteeError> {
        self.digests.first().ok_or(CommitteeError::Length(WHAT))
    }

    /// Whose receipts for all that is set hold.
    fn kept(&self, suite: Suite) -> Vec<PeerId> {
        let mut kept = Vec::with_capacity(self.receipts.len());
        let hs: Vec<RecordId> = new_versions(&self.updates).collect();
        let root = merkle::root(suite, &hs).unwrap_or_default();
        for one in &self.receipts {
            if !kept.contains(&one.peer) && one.verify_root(&root).is_ok() {
                kept.push(one.peer);
            }
        }
        kept
    }

    fn signed(self, signature: Signature, bundle: bool, bytes: Option<Bytes>) -> Submission {
        let bytes = bytes.unwrap_or_else(|| encoded(&self, &signature, bundle));
        let key = UpdateDigest(Suite::Holdfast1.hash(self.message()));
        let mut tag = [0; 32];
        tag.copy_from_slice(&signature[..32]);
        let (all, kept) = (self, OnceLock::new());
        Submission(Arc::new(Signed { bytes, key, tag, all, signature, bundle, kept }))
    }
}

impl std::fmt::Debug for Submission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Submission of {} updates, {:?}", self.updates().len(), self.key())
    }
}

impl Submission {
    /// Signs updates of one author together.
    ///
    /// # Errors
    /// [`CommitteeError`] for none, too many, or what no update can say.
    pub fn bundle(updates: &[Update], key: &SecretKey) -> Result<Self, CommitteeError> {
        Self::bundle_kept(updates, Vec::new(), key)
    }

    /// As [`Submission::bundle`], with receipts for all versions that the updates set, in their order: those of a call that put
    /// just these. At most [`RECEIPTS_MAX`]. They count beside what each update carries itself.
    ///
    /// # Errors
    /// As [`Submission::bundle`], and [`CommitteeError::Field`] for receipts for others. Whether they hold is seen where the
    /// updates are executed.
    pub fn bundle_kept(
        updates: &[Update],
        receipts: Vec<Receipt>,
        key: &SecretKey,
    ) -> Result<Self, CommitteeError> {
        let all: Vec<_> = updates.iter().map(Update::read_again).collect::<Result<_, _>>()?;
        let (bodies, updates) = all.into_iter().unzip();
        let unsigned = Unsigned::of(bodies, updates, receipts)?;
        let first = unsigned.first()?;
        of_author(first, key)?;
        let signature = key.sign(BUNDLE_DOMAIN, &first.network, unsigned.message());
        Ok(unsigned.signed(signature, true, None))
    }

    fn checked(
        bodies: Vec<Bytes>,
        receipts: Vec<Receipt>,
        signature: Signature,
        bundle: bool,
        bytes: Option<Bytes>,
    ) -> Result<Self, CommitteeError> {
        let updates = bodies.iter().map(Update::decode).collect::<Result<_, _>>()?;
        Ok(Unsigned::of(bodies, updates, receipts)?.signed(signature, bundle, bytes))
    }

    /// Decodes and checks the form. It keeps `bytes`, and whatever they are a part of.
    ///
    /// # Errors
    /// [`CommitteeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, CommitteeError> {
        if bytes.len() > SUBMISSION_BYTES_MAX {
            let (found, max) = (bytes.len(), SUBMISSION_BYTES_MAX);
            return Err(CommitteeError::TooLarge { what: "bytes of a bundle", found, max });
        }
        if bytes.starts_with(ONE_PREFIX) {
            let mut reader = Reader::new(WHAT, bytes);
            reader.prefix(ONE_PREFIX)?;
            let signature = reader.array()?;
            let bodies = vec![bytes.slice_ref(reader.rest())];
            return Self::checked(bodies, Vec::new(), signature, false, Some(bytes.clone()));
        }
        let mut reader = Reader::new("bundle of updates", bytes);
        let with_receipts = bytes.starts_with(KEPT_PREFIX);
        reader.prefix(if with_receipts { KEPT_PREFIX } else { BUNDLE_PREFIX })?;
        let signature = reader.array()?;
        let receipts = if with_receipts { read_receipts(&mut reader)? } else { Vec::new() };
        let (found, max) = (reader.u32()? as usize, BUNDLE_UPDATES_MAX);
        if found > max {
            return Err(CommitteeError::TooLarge { what: "updates of a bundle", found, max });
        }
        let body = |_| {
            let body = reader.long("bytes of an update", UPDATE_BYTES_MAX)?;
            Ok::<_, CommitteeError>(bytes.slice_ref(body))
        };
        let bodies = (0..found).map(body).collect::<Result<_, _>>()?;
        reader.end()?;
        Self::checked(bodies, receipts, signature, true, Some(bytes.clone()))
    }

    /// The same in bytes of its own: one that waits long keeps no message alive around it.
    ///
    /// # Errors
    /// None: it was decoded before.
    pub(crate) fn detached(bytes: &[u8]) -> Result<Self, CommitteeError> {
        Self::decode(&Bytes::copy_from_slice(bytes))
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        self.0.bytes.clone()
    }

    /// The length of the encoding, in bytes.
    pub fn size(&self) -> usize {
        self.0.bytes.len()
    }

    /// Checks the signature.
    ///
    /// # Errors
    /// [`CommitteeError::Key`].
    pub fn verify(self) -> Result<Self, CommitteeError> {
        let Signed { all, signature, bundle, .. } = &*self.0;
        let Update { author, network, .. } = all.first()?;
        if *bundle {
            author.verify(BUNDLE_DOMAIN, network, all.message(), signature)?;
        } else {
            author.verify(DOMAIN, network, all.first_digest()?.as_bytes(), signature)?;
        }
        Ok(self)
    }

    /// Its updates as they are executed, in order.
    pub(crate) fn asked(&self) -> impl Iterator<Item = Asked<'_>> {
        let all = self.updates().iter().zip(self.digests());
        all.map(|(update, digest)| Asked { update, digest, of: self })
    }

    /// Its updates, in order.
    pub fn updates(&self) -> &[Update] {
        &self.0.all.updates
    }

    /// Their bodies.
    pub fn bodies(&self) -> &[Bytes] {
        &self.0.all.bodies
    }

    /// Their digests.
    pub fn digests(&self) -> &[UpdateDigest] {
        &self.0.all.digests
    }

    /// What stands for all of it, the signature aside.
    pub fn key(&self) -> &UpdateDigest {
        &self.0.key
    }

    /// A part of the signature, which two submissions share only where somebody made the second for that.
    pub(crate) fn tag(&self) -> &Tag {
        &self.0.tag
    }

    /// The tag of what is encoded so; `None` of what is no submission. It is read and not computed, so it says where to look and
    /// nothing else.
    pub(crate) fn tag_of(bytes: &[u8]) -> Option<Tag> {
        let prefixes = [ONE_PREFIX, BUNDLE_PREFIX, KEPT_PREFIX];
        let signed = prefixes.into_iter().find_map(|prefix| bytes.strip_prefix(prefix))?;
        signed.first_chunk().copied()
    }
}

/// Whether a key is the author's.
fn of_author(update: &Update, key: &SecretKey) -> Result<(), CommitteeError> {
    if key.public() == update.author { Ok(()) } else { Err(KeyError::Signature.into()) }
}

/// The versions to which heads are set, in order.
fn new_versions(updates: &[Update]) -> impl Iterator<Item = RecordId> {
    updates.iter().filter_map(|update| match &update.operation {
        Operation::Set { new, .. } => Some(new.h),
        _ => None,
    })
}

fn read_receipts(reader: &mut Reader<'_>) -> Result<Vec<Receipt>, CommitteeError> {
    let (found, max) = (usize::from(reader.u8()?), RECEIPTS_MAX);
    if found == 0 {
        return Err(CommitteeError::Field("number of the bundle's receipts"));
    }
    if found > max {
        return Err(CommitteeError::TooLarge { what: "receipts of a bundle", found, max });
    }
    let receipt = |_| {
        let bytes = reader.long("bytes of a receipt", RECEIPT_BYTES_MAX)?;
        Ok::<_, CommitteeError>(Receipt::decode(bytes)?)
    };
    (0..found).map(receipt).collect()
}

/// Receipts as they stand in a bundle; nothing where there are none.
fn receipts_written(receipts: &[Receipt]) -> Vec<u8> {
    let mut out = Vec::new();
    if !receipts.is_empty() {
        out.push(receipts.len() as u8);
        receipts.iter().for_each(|receipt| put_long(&mut out, &receipt.encode()));
    }
    out
}

fn message(digests: &[UpdateDigest], receipts: &[u8]) -> [u8; MESSAGE_BYTES_KEPT] {
    let mut message = [0; MESSAGE_BYTES_KEPT];
    let leaves: Vec<RecordId> = digests.iter().map(|one| RecordId::new(*one.as_bytes())).collect();
    message[..4].copy_from_slice(&(digests.len() as u32).to_be_bytes());
    let root = merkle::root(Suite::Holdfast1, &leaves).unwrap_or_default();
    message[4..MESSAGE_BYTES].copy_from_slice(&root);
    if !receipts.is_empty() {
        message[MESSAGE_BYTES..].copy_from_slice(&Suite::Holdfast1.hash(receipts));
    }
    message
}

fn encoded(all: &Unsigned, signature: &Signature, bundle: bool) -> Bytes {
    let Unsigned { bodies, receipts, .. } = all;
    let receipts = receipts_written(receipts);
    let length: usize = bodies.iter().map(|body| body.len() + 4).sum();
    let mut out = Vec::with_capacity(BUNDLE_PREFIX.len() + 68 + receipts.len() + length);
    out.extend_from_slice(match (bundle, receipts.is_empty()) {
        (false, _) => ONE_PREFIX,
        (true, true) => BUNDLE_PREFIX,
        (true, false) => KEPT_PREFIX,
    });
    out.extend_from_slice(signature);
    if bundle {
        out.extend_from_slice(&receipts);
        out.extend_from_slice(&(bodies.len() as u32).to_be_bytes());
        bodies.iter().for_each(|body| put_long(&mut out, body));
    } else {
        bodies.iter().for_each(|body| out.extend_from_slice(body));
    }
    out.into()
}

#[cfg(test)]
mod tests;
