//! What a member answers, and anyone checks offline: what became of an update, and where a head is.
//!
//! ```text
//! answer  "holdfast answer v1" | length 4 | update's body | index 4 | length 2 | result | siblings, 32 each, as many as index and count say | certificate
//! read    "holdfast read v1" | object 32 | branch length 1 | branch | there is one 1 [length 4 | entry] | proof | certificate
//! ```
//! An answer proves what the committee decided on one update. A read proves where a head was *as of the certificate's height and
//! time*, or that there was none; whether that is the newest, only the members can say.

use bytes::Bytes;
use crypto::{NetworkId, Suite};
use version::ObjectKey;
use version::merkle::Path;

use crate::certificate::Certificate;
use crate::entry::{Entry, HeadEntry, Subject};
use crate::header::{BLOCK_UPDATES_MAX, Header, HeaderDigest};
use crate::map::Proof;
use crate::outcome::{self, OUTCOME_BYTES_MAX, Outcome};
use crate::reader::{Reader, put_long};
use crate::update::{UPDATE_BYTES_MAX, Update, check_branch, digest, read_branch};
use crate::{CommitteeError, GroupKey};

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
        self.leads(network, group)
    }

    /// As [`Answer::verify`] of each of them. Those of one block share a certificate, whose signature is checked once.
    ///
    /// # Errors
    /// As [`Answer::verify`], of the first that does not hold.
    pub fn verify_all(
        answers: &[Self],
        network: &NetworkId,
        group: &GroupKey,
    ) -> Result<Vec<Update>, CommitteeError> {
        let mut checked: Option<&Certificate> = None;
        let mut updates = Vec::with_capacity(answers.len());
        for answer in answers {
            if checked != Some(&answer.certificate) {
                answer.certificate.verify(network, group)?;
                checked = Some(&answer.certificate);
            }
            updates.push(answer.leads(network, group)?);
        }
        Ok(updates)
    }

    /// As [`Answer::verify`], but for the signature, where the certificate of the header with this
    /// digest was checked before: one signature stands for all answers of a block.
    ///
    /// # Errors
    /// As [`Answer::verify`], and [`CommitteeError::Path`] of one under another header.
    pub fn verify_under(
        &self,
        certified: &HeaderDigest,
        network: &NetworkId,
        group: &GroupKey,
    ) -> Result<Update, CommitteeError> {
        match self.certificate.header().digest() == *certified {
            true => self.leads(network, group),
            false => Err(CommitteeError::Path("header")),
        }
    }

    /// What the update says that a header, which is certified, decided on.
    fn leads(&self, network: &NetworkId, group: &GroupKey) -> Result<Update, CommitteeError> {
        let header = self.certificate.header();
        let update = Update::decode(&self.body)?;
        if update.network != *network {
            return Err(CommitteeError::Network(update.network));
        }
        if update.group != group.id() {
            return Err(CommitteeError::Group);
        }
        let leaf = outcome::leaf(self.path.index, &digest(&self.body), &self.outcome);
        let root = self.path.root(Suite::Holdfast1, &leaf, header.count);
        if root != Some(header.results) {
            return Err(CommitteeError::Path("result"));
        }
        Ok(update)
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(1_024);
        out.extend_from_slice(ANSWER_PREFIX);
        put_long(&mut out, &self.body);
        out.extend_from_slice(&self.path.index.to_be_bytes());
        let outcome = self.outcome.encode();
        out.extend_from_slice(&(outcome.len() as u16).to_be_bytes());
        out.extend_from_slice(&outcome);
        out.extend_from_slice(&self.certificate.header().count.to_be_bytes());
        self.path.siblings.iter().for_each(|one| out.extend_from_slice(one));
        self.certificate.write(&mut out);
        out.into()
    }

    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`CommitteeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new("answer of a committee", bytes);
        reader.prefix(ANSWER_PREFIX)?;
        let body = bytes.slice_ref(reader.long("bytes of an update", UPDATE_BYTES_MAX)?);
        Update::decode(&body)?;
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
        let siblings = (0..siblings(index, count)).map(|_| reader.array());
        let path = Path { index, siblings: siblings.collect::<Result<_, _>>()? };
        let certificate = Certificate::read(&mut reader)?;
        reader.end()?;
        if certificate.header().count != count {
            return Err(CommitteeError::Path("number of results"));
        }
        Ok(Self { body, outcome, path, certificate })
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
    /// Checks, with nothing but the group key, that the head was there.
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
        self.certificate.verify(network, group)?;
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
        self.certificate.write(&mut out);
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
