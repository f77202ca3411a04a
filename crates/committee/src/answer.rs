//! What a member answers, and anyone checks offline: what became of an update, and where a head is.
//!
//! ```text
//! answer  "holdfast answer v1" | length 4 | update's body | index 4 | length 2 | result | siblings, 32 each, as many as index and count say | certificate
//! read    "holdfast read v1" | object 32 | branch length 1 | branch | there is one 1 [length 4 | entry] | proof | certificate
//! ```
//! An answer proves what the committee decided on one update. A read proves where a head was *as of the certificate's height and
//! time*, or that there was none; whether that is the newest, only the members can say.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use crypto::{NetworkId, Suite};
use version::ObjectKey;
use version::merkle::Path;

use crate::certificate::Certificate;
use crate::entry::{Entry, HeadEntry, Subject};
use crate::header::{BLOCK_UPDATES_MAX, Header};
use crate::map::Proof;
use crate::outcome::{self, OUTCOME_BYTES_MAX, Outcome};
use crate::reader::{Reader, put_long};
use crate::update::{
    Submission, UPDATE_BYTES_MAX, Update, UpdateDigest, check_branch, digest, read_branch,
};
use crate::{CommitteeError, GroupId, GroupKey};

/// What an encoded answer begins with.
pub const ANSWER_PREFIX: &[u8] = b"holdfast answer v1";
/// What an encoded read begins with.
pub const READ_PREFIX: &[u8] = b"holdfast read v1";
/// The longest encoded head, in bytes.
const ENTRY_BYTES_MAX: usize = 1 << 10;

/// What became of an update, with the proof. Decoded, it proves nothing yet: [`Answer::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The update's body.
    pub body: Bytes,
    /// What became of it.
    pub outcome: Outcome,
    /// What leads from the result to the header's root.
    pub path: Path,
    /// The committee's word for the header.
    pub certificate: Certificate,
}

/// How many siblings a leaf of such a tree has.
const fn siblings(index: u32, count: u32) -> usize {
    let (mut at, mut last, mut siblings) = (index, count.saturating_sub(1), 0);
    while last > 0 {
        siblings += (at & 1 == 1 || at < last) as usize;
        (at, last) = (at >> 1, last >> 1);
    }
    siblings
}

impl Answer {
    /// Checks, with nothing but the group key, that the committee decided so.
    ///
    /// # Errors
    /// [`CommitteeError`] with the reason.
    pub fn verify(&self, network: &NetworkId, group: &GroupKey) -> Result<Update, CommitteeError> {
        self.certificate.verify(network, group)?;
        let update = Update::decode(&self.body)?;
        if update.network != *network {
            return Err(CommitteeError::Network(update.network));
        }
        if update.group != group.id() {
            return Err(CommitteeError::Group);
        }
        self.leads(&digest(&self.body))?;
        Ok(update)
    }

    /// Whether the header has this result of the update with this digest.
    fn leads(&self, digest: &UpdateDigest) -> Result<(), CommitteeError> {
        let header = self.certificate.header();
        let leaf = outcome::leaf(self.path.index, digest, &self.outcome);
        let root = self.path.root(Suite::Holdfast1, &leaf, header.count);
        if root == Some(header.results) { Ok(()) } else { Err(CommitteeError::Path("result")) }
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        let certificate = self.certificate.encode();
        let siblings = 32 * self.path.siblings.len();
        let size = ANSWER_PREFIX.len() + 14 + self.body.len() + OUTCOME_BYTES_MAX + siblings;
        let mut out = Vec::with_capacity(size + certificate.len());
        out.extend_from_slice(ANSWER_PREFIX);
        put_long(&mut out, &self.body);
        out.extend_from_slice(&self.path.index.to_be_bytes());
        let outcome = self.outcome.encode();
        out.extend_from_slice(&(outcome.len() as u16).to_be_bytes());
        out.extend_from_slice(&outcome);
        out.extend_from_slice(&self.certificate.header().count.to_be_bytes());
        self.path.siblings.iter().for_each(|one| out.extend_from_slice(one));
        out.extend_from_slice(&certificate);
        out.into()
    }

    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`CommitteeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, CommitteeError> {
        let read = |body: &[u8]| {
            let body = bytes.slice_ref(body);
            Update::decode(&body)?;
            Ok(body)
        };
        Self::read(bytes, read, Certificate::decode)
    }

    fn read(
        bytes: &Bytes,
        body: impl FnOnce(&[u8]) -> Result<Bytes, CommitteeError>,
        certificate: impl FnOnce(&[u8]) -> Result<Certificate, CommitteeError>,
    ) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new("answer of a committee", bytes);
        reader.prefix(ANSWER_PREFIX)?;
        let body = body(reader.long("bytes of an update", UPDATE_BYTES_MAX)?)?;
        let index = reader.u32()?;
        let length = usize::from(reader.u16()?);
        if length > OUTCOME_BYTES_MAX {
            let max = OUTCOME_BYTES_MAX;
            return Err(CommitteeError::TooLarge { what: "bytes of a result", found: length, max });
        }
        let outcome = Outcome::decode(reader.take(length)?)?;
        let count = reader.u32()?;
        if index >= count || count as usize > BLOCK_UPDATES_MAX {
            return Err(CommitteeError::Field("index of the result"));
        }
        let found = siblings(index, count);
        let mut siblings = Vec::with_capacity(found);
        for _ in 0..found {
            siblings.push(reader.array()?);
        }
        let path = Path { index, siblings };
        let certificate = certificate(reader.rest())?;
        if certificate.header().count != count {
            return Err(CommitteeError::Path("number of results"));
        }
        Ok(Self { body, outcome, path, certificate })
    }
}

/// How many certificates that hold are remembered: those of the last blocks, while their answers come.
const PROVEN_MAX: usize = 16;

/// A client's check of what its submissions were answered with: one signature stands for all answers of a block, so it is checked
/// once.
#[derive(Debug)]
pub struct Proofs {
    network: NetworkId,
    group: GroupKey,
    id: GroupId,
    /// Certificates that hold, encoded and read, the newest first.
    proven: Mutex<VecDeque<(Bytes, Certificate)>>,
}

impl Proofs {
    /// Of what this committee certifies in this network.
    pub fn new(network: NetworkId, group: GroupKey) -> Self {
        Self { network, id: group.id(), group, proven: Mutex::default() }
    }

    /// The committee's key.
    pub const fn group(&self) -> &GroupKey {
        &self.group
    }

    /// The answers to each of a submission's updates, in order, where each of them holds as with [`Answer::verify`].
    ///
    /// # Errors
    /// As [`Answer::decode`] and [`Answer::verify`], of the first that does not hold; [`CommitteeError::Path`] of an answer to another
    /// update, [`CommitteeError::Field`] of too few or too many.
    pub fn answers(
        &self,
        submission: &Submission,
        answers: &[Bytes],
    ) -> Result<Vec<Answer>, CommitteeError> {
        let (bodies, digests) = (submission.bodies(), submission.digests());
        if answers.len() != bodies.len() {
            return Err(CommitteeError::Field("number of answers"));
        }
        if let Some(update) = submission.updates().first() {
            if update.network != self.network {
                return Err(CommitteeError::Network(update.network));
            }
            if update.group != self.id {
                return Err(CommitteeError::Group);
            }
        }
        let mut all = Vec::with_capacity(answers.len());
        for (bytes, (body, digest)) in answers.iter().zip(bodies.iter().zip(digests)) {
            let same = |found: &[u8]| match found == body {
                true => Ok(body.clone()),
                false => Err(CommitteeError::Path("update")),
            };
            let answer = Answer::read(bytes, same, |bytes| self.certificate(bytes))?;
            answer.leads(digest)?;
            all.push(answer);
        }
        Ok(all)
    }

    /// A certificate that holds.
    fn certificate(&self, bytes: &[u8]) -> Result<Certificate, CommitteeError> {
        let proven = || self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        let known = proven().iter().find(|(known, _)| known == bytes).map(|(_, one)| one.clone());
        if let Some(known) = known {
            return Ok(known);
        }
        let certificate = Certificate::decode(bytes)?;
        certificate.verify(&self.network, &self.group)?;
        let mut proven = proven();
        proven.push_front((certificate.encode(), certificate.clone()));
        proven.truncate(PROVEN_MAX);
        Ok(certificate)
    }
}

/// Where a head is, with the proof. Decoded, it proves nothing yet: [`Read::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The object.
    pub object: ObjectKey,
    /// The branch.
    pub branch: Box<str>,
    /// The encoded entry; `None` where there is no head.
    pub value: Option<Bytes>,
    /// What leads from it to the header's root.
    pub proof: Proof,
    /// The committee's word for the header.
    pub certificate: Certificate,
}

/// Where a head was at a height.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedHead {
    /// The head; `None` where there was none.
    pub head: Option<HeadEntry>,
    /// As of which header.
    pub header: Header,
}

impl Read {
    /// Checks, with nothing but the group key, that the head was there at the certificate's epoch and view. So the certificate must be
    /// the header's own: under one of a later block an old head would pass for that of the later view.
    ///
    /// # Errors
    /// [`CommitteeError`] with the reason.
    pub fn verify(
        &self,
        network: &NetworkId,
        group: &GroupKey,
        object: &ObjectKey,
        branch: &str,
    ) -> Result<CertifiedHead, CommitteeError> {
        if self.object != *object || *self.branch != *branch {
            return Err(CommitteeError::Path("object or branch"));
        }
        self.certificate.verify_own(network, group)?;
        let header = self.certificate.header().clone();
        let key = Subject::Head(object, branch).key();
        if self.proof.root(&key, self.value.as_deref()) != Some(header.state) {
            return Err(CommitteeError::Path("entry"));
        }
        let head = match self.value.as_deref().map(Entry::decode).transpose()? {
            None => None,
            Some(Entry::Head(head)) => Some(head),
            Some(_) => return Err(CommitteeError::Path("entry")),
        };
        Ok(CertifiedHead { head, header })
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(2_048);
        out.extend_from_slice(READ_PREFIX);
        out.extend_from_slice(self.object.as_bytes());
        out.push(self.branch.len() as u8);
        out.extend_from_slice(self.branch.as_bytes());
        out.push(u8::from(self.value.is_some()));
        self.value.iter().for_each(|value| put_long(&mut out, value));
        self.proof.write(&mut out);
        out.extend_from_slice(&self.certificate.encode());
        out.into()
    }

    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`CommitteeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new("read of a committee", bytes);
        reader.prefix(READ_PREFIX)?;
        let object = ObjectKey::new(reader.array()?);
        let branch = read_branch(&mut reader)?;
        check_branch(&branch)?;
        let value = match reader.flag()? {
            true => Some(bytes.slice_ref(reader.long("bytes of an entry", ENTRY_BYTES_MAX)?)),
            false => None,
        };
        let proof = Proof::read(&mut reader)?;
        let certificate = Certificate::read(&mut reader)?;
        reader.end()?;
        Ok(Self { object, branch, value, proof, certificate })
    }
}

#[cfg(test)]
mod tests;
