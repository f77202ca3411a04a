//! Messages about versioned objects: their parts, and the bounds of requests.
//!
//! The bounds stand once, over the plain types: the answering side opens a message and checks it, the asking side checks
//! before it sends, and both name the same field. What an answer must be for its request is in `answers`, and how it is
//! cut to what travels in `fitting`.

mod answers;
mod fitting;
mod requests;

use bytes::Bytes;
use crypto::{PublicKey, RecordId};
use document::{Kind, Record};
use env::calls::objects::{
    FoundVersion, NAMES_MAX, OBJECTS_MAX, ObjectsRequest, PREVIOUS_MAX, PutObjects, VersionAt,
    WatchRequest, Watched,
};
use env::calls::{BATCH_BYTES_MAX, BATCH_MAX};
use version::claim::READER_BYTES;
use version::head::BRANCH_BYTES_MAX;
use version::{HINT_BYTES, Hint, NAME_BYTES_MAX, ObjectKey};

pub(crate) use self::answers::check_answer;
pub(crate) use self::fitting::Asked;
use super::{Open, Wrong, array32, copied};
use crate::limits::RECORD_BYTES_MAX;
use crate::proto;

pub(super) fn object(bytes: &[u8]) -> Result<ObjectKey, Wrong> {
    Ok(ObjectKey::new(array32(bytes, "an object's key is not 32 bytes")?))
}

pub(super) fn all_objects(all: &[Bytes]) -> Result<Vec<ObjectKey>, Wrong> {
    // Nothing is kept for more than are taken.
    check_objects(all.len())?;
    all.iter().map(|bytes| object(bytes)).collect()
}

pub(super) fn owner(bytes: &[u8]) -> Result<PublicKey, Wrong> {
    PublicKey::from_slice(bytes).map_err(|_| Wrong("the owner is not a public key"))
}

/// Bytes that are absent where they are empty.
pub(super) fn given(bytes: Bytes) -> Option<Bytes> {
    (!bytes.is_empty()).then_some(bytes)
}

impl Open<VersionAt> for proto::VersionAt {
    fn open(self) -> Result<VersionAt, Wrong> {
        let n = match self.n.len() {
            0 => Hint::FIRST,
            _ => {
                let n: [u8; HINT_BYTES] =
                    self.n.as_ref().try_into().map_err(|_| {
                        Wrong("the hint of a version is neither empty nor 16 bytes")
                    })?;
                Hint::new(n)
            }
        };
        let h = RecordId::new(array32(&self.h, "h of a version is not 32 bytes")?);
        Ok(VersionAt { object: object(&self.object)?, h, n })
    }
}

impl From<VersionAt> for proto::VersionAt {
    fn from(at: VersionAt) -> Self {
        let n = if at.n == Hint::FIRST { Bytes::new() } else { copied(at.n.as_bytes()) };
        Self { object: copied(at.object.as_bytes()), h: copied(at.h.as_bytes()), n }
    }
}

impl Open<FoundVersion> for proto::FoundVersion {
    fn open(self) -> Result<FoundVersion, Wrong> {
        if self.attestation.len() > RECORD_BYTES_MAX {
            return Err(Wrong("an attestation over 2 MiB + 1 KiB"));
        }
        Ok(FoundVersion { record: self.record.open()?, attestation: given(self.attestation) })
    }
}

impl From<FoundVersion> for proto::FoundVersion {
    fn from(found: FoundVersion) -> Self {
        let attestation = found.attestation.unwrap_or_default();
        Self { record: Some(found.record.into()), attestation }
    }
}

/// Checks the bounds of a request, on either side.
pub(crate) fn check_request(request: &ObjectsRequest) -> Result<(), Wrong> {
    match request {
        ObjectsRequest::Put(put) => check_put(put),
        ObjectsRequest::Get(get) => {
            check_batch(get.versions.len())?;
            check_reader(get.reader.as_ref())
        }
        ObjectsRequest::Previous(previous) => {
            if !(1..=PREVIOUS_MAX).contains(&(previous.most as usize)) {
                return Err(Wrong("not 1 to 1,024 predecessors"));
            }
            check_reader(previous.reader.as_ref())
        }
        ObjectsRequest::Tips(tips) => {
            check_objects(tips.objects.len())?;
            check_reader(tips.reader.as_ref())
        }
        ObjectsRequest::Heads(heads) => {
            check_branch(&heads.branch)?;
            check_reader(heads.reader.as_ref())
        }
        ObjectsRequest::List(list) => {
            check_prefix(&list.prefix)?;
            if list.after.len() > NAME_BYTES_MAX {
                return Err(Wrong("the name to list after is over 1,024 bytes"));
            }
            if !(1..=NAMES_MAX).contains(&(list.most as usize)) {
                return Err(Wrong("not 1 to 1,024 names"));
            }
            check_reader(list.reader.as_ref())
        }
        _ => Err(Wrong("a request that this release cannot send")),
    }
}

/// Checks the bounds of a watch, on either side.
pub(crate) fn check_watch(request: &WatchRequest) -> Result<(), Wrong> {
    match &request.what {
        Watched::Objects(objects) => check_objects(objects.len())?,
        Watched::Family(_, prefix) => check_prefix(prefix)?,
        Watched::Branch(_, _, branch) => check_branch(branch)?,
    }
    check_reader(request.reader.as_ref())
}

fn check_put(put: &PutObjects) -> Result<(), Wrong> {
    check_batch(put.records.len())?;
    put.records.iter().try_for_each(check_record)?;
    if put.records.iter().map(|record| record.bytes.len()).sum::<usize>() > BATCH_BYTES_MAX {
        return Err(Wrong("over 8 MiB of records in one batch"));
    }
    Ok(())
}

fn check_record(record: &Record) -> Result<(), Wrong> {
    if record.kind.is_document() {
        return Err(Wrong("a record that is not of an object: store it"));
    }
    match record.bytes.len() {
        0 => Err(Wrong("a record without bytes")),
        1..=RECORD_BYTES_MAX => Ok(()),
        _ => Err(Wrong("a record over 2 MiB + 1 KiB")),
    }
}

fn check_batch(len: usize) -> Result<(), Wrong> {
    match len {
        0 => Err(Wrong("an empty batch")),
        1..=BATCH_MAX => Ok(()),
        _ => Err(Wrong("over 1,024 in one batch")),
    }
}

fn check_objects(len: usize) -> Result<(), Wrong> {
    match len {
        1..=OBJECTS_MAX => Ok(()),
        _ => Err(Wrong("not 1 to 256 objects")),
    }
}

fn check_reader(reader: Option<&Bytes>) -> Result<(), Wrong> {
    match reader {
        Some(claim) if claim.len() != READER_BYTES => {
            Err(Wrong("a reader's claim is not 155 bytes"))
        }
        _ => Ok(()),
    }
}

fn check_branch(name: &Bytes) -> Result<(), Wrong> {
    match name.len() {
        1..=BRANCH_BYTES_MAX => Ok(()),
        _ => Err(Wrong("the name of a branch is not 1 to 128 bytes")),
    }
}

fn check_prefix(prefix: &Bytes) -> Result<(), Wrong> {
    match prefix.len() {
        0..=NAME_BYTES_MAX => Ok(()),
        _ => Err(Wrong("a prefix over 1,024 bytes")),
    }
}

/// A record is of the kind that belongs where it stands.
fn check_kind(record: &Record, kind: Kind, what: &'static str) -> Result<(), Wrong> {
    if record.kind == kind { Ok(()) } else { Err(Wrong(what)) }
}

#[cfg(test)]
mod tests;
