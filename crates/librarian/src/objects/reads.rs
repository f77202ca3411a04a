//! Get, tips and list: what is here, to whoever may read it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::RecordId;
use document::{Kind, Record};
use env::calls::objects::{
    ANSWER_BYTES_MAX, FoundVersion, GetTips, GetVersions, ListObjects, NAMES_MAX, OBJECTS_MAX,
    ObjectTips, TIPS_MAX, VersionAt,
};
use env::calls::{BATCH_MAX, CallError};
use futures::StreamExt;
use tokio::sync::Semaphore;
use version::{ObjectKey, ObjectRecord};

use super::permissions::Reader;
use super::{ObjectShelf, invalid};

/// Versions of one call being read at once.
const READ_PARALLEL: usize = 16;
/// Lists being made at once: each reads the records of all objects here, a second or two a million.
const LISTS_MAX: usize = 2;
/// When to ask again where they are.
const LIST_AGAIN: Duration = Duration::from_secs(1);

/// Bytes of an answer, as they are used up.
pub(super) struct Room(usize);

impl Room {
    pub(super) fn new() -> Self {
        Self(ANSWER_BYTES_MAX)
    }

    /// Whether so many more fit; then they are used.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    /// How many are used.
    pub(super) fn used(&self) -> usize {
        ANSWER_BYTES_MAX - self.0
    }
}

/// Lets few lists be made at once.
pub(super) fn lists() -> Semaphore {
    Semaphore::new(LISTS_MAX)
}

/// What does not fit into one answer.
pub(super) fn too_much() -> CallError {
    CallError::Busy { retry_after: Duration::ZERO }
}

fn bytes_of(found: &FoundVersion) -> usize {
    found.record.bytes.len() + found.attestation.as_ref().map_or(0, Bytes::len)
}

impl ObjectShelf {
    /// Versions, one answer each, and the bytes that are answered.
    ///
    /// # Errors
    /// For the whole request.
    pub(crate) async fn get(
        &self,
        reader: Reader,
        request: GetVersions,
    ) -> Result<(Vec<Result<Option<FoundVersion>, CallError>>, usize), CallError> {
        let count = request.versions.len();
        if count == 0 || count > BATCH_MAX {
            return Err(invalid(format!("a get has 1 to {BATCH_MAX} versions")));
        }
        let attested = request.attested;
        let reads = request.versions.into_iter().map(|at| self.found(reader, at, attested));
        let mut reads = futures::stream::iter(reads).buffered(READ_PARALLEL);
        let (mut answers, mut room) = (Vec::with_capacity(count), Room::new());
        while let Some(read) = reads.next().await {
            answers.push(match read {
                Ok(Some(found)) if !room.take(bytes_of(&found)) => Err(too_much()),
                read => read,
            });
        }
        Ok((answers, room.used()))
    }

    /// A version for somebody; `None` where it is not here.
    async fn found(
        &self,
        reader: Reader,
        at: VersionAt,
        attested: bool,
    ) -> Result<Option<FoundVersion>, CallError> {
        let named = self.readable(&reader, &at.object).await?;
        self.version_of(&at.object, &at.h, named.as_deref(), attested).await
    }

    /// A version, and who wrote it.
    pub(super) async fn version_of(
        &self,
        object: &ObjectKey,
        h: &RecordId,
        named: Option<&ObjectRecord>,
        attested: bool,
    ) -> Result<Option<FoundVersion>, CallError> {
        let found = self.objects.proven(object, h).await.map_err(|error| self.refused(error))?;
        let Some((record, _)) = found else { return Ok(None) };
        let attestation = if attested { self.attestation(h, named).await? } else { None };
        Ok(Some(FoundVersion { record, attestation }))
    }

    /// What objects are at, one answer each, and the bytes that are answered.
    ///
    /// # Errors
    /// For the whole request.
    pub(crate) async fn tips(
        &self,
        reader: Reader,
        request: GetTips,
    ) -> Result<(Vec<Result<ObjectTips, CallError>>, usize), CallError> {
        let count = request.objects.len();
        if count == 0 || count > OBJECTS_MAX {
            return Err(invalid(format!("tips are asked for of 1 to {OBJECTS_MAX} objects")));
        }
        let (mut answers, mut room) = (Vec::with_capacity(count), Room::new());
        for object in request.objects {
            answers.push(self.tips_of(&reader, object, &mut room).await);
        }
        Ok((answers, room.used()))
    }

    async fn tips_of(
        &self,
        reader: &Reader,
        object: ObjectKey,
        room: &mut Room,
    ) -> Result<ObjectTips, CallError> {
        let named = self.readable(reader, &object).await?;
        let mut answer = ObjectTips::default();
        if let Some(named) = &named {
            answer.object = named.record(self.suite).ok();
            answer.policy = self.policy_of(named).await?;
            answer.redirects = self.redirects(&object, named);
            let policy = answer.policy.as_ref().map_or(0, |policy| policy.bytes.len());
            let object = answer.object.as_ref().map_or(0, |object| object.bytes.len());
            if !room.take(policy + object + answer.redirects.iter().map(Bytes::len).sum::<usize>())
            {
                return Err(too_much());
            }
        }
        let tips = self.objects.tips(&object);
        answer.more = tips.len() > TIPS_MAX;
        for tip in tips.iter().take(TIPS_MAX) {
            let Some(found) = self.version_of(&object, &tip.h, named.as_deref(), true).await?
            else {
                continue;
            };
            if !room.take(bytes_of(&found)) {
                // The one that counts is told, or nothing is: else a reader would take another for it.
                if answer.tips.is_empty() {
                    return Err(too_much());
                }
                answer.more = true;
                break;
            }
            answer.tips.push(found);
        }
        Ok(answer)
    }

    /// The record of the policy that counts, where the owner said something.
    pub(super) async fn policy_of(
        &self,
        named: &ObjectRecord,
    ) -> Result<Option<Record>, CallError> {
        let Some(id) = self.policies.record_of(named) else { return Ok(None) };
        let found = self.store.get(&id).await;
        let found = found.map_err(|error| self.refused(error.into()))?;
        Ok(found.filter(|record| self.suite.id(&record.bytes) == record.id))
    }

    /// An owner's objects whose records are here and that somebody may read, by name.
    ///
    /// # Errors
    /// For the whole request; `Busy` where as many lists as may be are being made.
    pub(crate) async fn list(
        self: &Arc<Self>,
        reader: Reader,
        request: ListObjects,
    ) -> Result<Vec<Record>, CallError> {
        let most = request.most as usize;
        if most == 0 || most > NAMES_MAX {
            return Err(invalid(format!("a list has 1 to {NAMES_MAX} names")));
        }
        let again = |_| CallError::Busy { retry_after: LIST_AGAIN };
        // Strangers together have one of them, so that they keep no member out.
        let _of_strangers = match reader.is_stranger() {
            true => Some(self.strangers_lists.try_acquire().map_err(again)?),
            false => None,
        };
        let _one = self.lists.try_acquire().map_err(again)?;
        let found = self.names_of(request, move |shelf, named| shelf.may_read(&reader, named));
        let mut room = Room::new();
        let records = found.await?.into_iter().map(|(_, named)| named.record(self.suite));
        let records = records.filter_map(Result::ok);
        Ok(records.take_while(|record| room.take(record.bytes.len())).collect())
    }

    /// The first so many of an owner's names behind one, of objects that pass, read from the store.
    pub(super) async fn names_of(
        self: &Arc<Self>,
        request: ListObjects,
        pass: impl Fn(&Self, &ObjectRecord) -> bool + Send + 'static,
    ) -> Result<Vec<(ObjectKey, ObjectRecord)>, CallError> {
        let shelf = Arc::clone(self);
        let read = move || {
            let mut found: BTreeMap<Bytes, (ObjectKey, ObjectRecord)> = BTreeMap::new();
            let most = request.most as usize;
            let scanned = shelf.store.each_of(&[Kind::Object], &mut |part| {
                let bytes = Bytes::copy_from_slice(part.payload);
                let named = ObjectRecord::decode(&bytes).ok();
                let of_owner = |named: &ObjectRecord| {
                    (named.owner, named.network) == (request.owner, shelf.network)
                        && named.name.starts_with(&request.prefix)
                        && named.name > request.after
                };
                let Some(named) = named.filter(of_owner) else { return };
                let last = found.last_key_value().map(|(name, _)| name);
                let is_behind = last.is_some_and(|last| named.name > *last);
                if (found.len() == most && is_behind) || !pass(&shelf, &named) {
                    return;
                }
                if shelf.suite.id(&bytes) == part.id {
                    found.insert(named.name.clone(), (part.id.into(), named));
                }
                if found.len() > most {
                    found.pop_last();
                }
            });
            scanned.map(|_| found.into_values().collect())
        };
        let found = self.env.blocking(read).await;
        found.map_err(|error| self.refused(error.into()))
    }
}
