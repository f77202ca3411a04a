//! Get, tips and list: what is here, to whoever may read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::RecordId;
use document::{Kind, Record};
use env::Env;
use env::calls::objects::{
    ANSWER_BYTES_MAX, FoundVersion, GetTips, GetVersions, ListObjects, NAMES_MAX, OBJECTS_MAX,
    ObjectTips, TIPS_MAX, VersionAt,
};
use env::calls::{BATCH_MAX, CallError};
use futures::StreamExt;
use objects::ObjectsError;
use store::Part;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use version::{ObjectKey, ObjectRecord};

use super::permissions::Reader;
use super::{ObjectShelf, invalid};

/// Versions of one call being read at once.
const READ_PARALLEL: usize = 16;
/// Lists being made at once: each reads the records of all objects here, a second or two a million.
const LISTS_MAX: usize = 2;
/// When to ask again where they are.
const LIST_AGAIN: Duration = Duration::from_secs(1);
/// How long who watches a family waits for its turn to read them: those who follow it wait no longer than 5 s for an answer.
const FAMILY_WAIT: Duration = Duration::from_secs(3);

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

/// Lets the records of all objects be read few times at once.
pub(super) struct Turns {
    lists: Arc<Semaphore>,
    /// Of the lists, the one that strangers together have, so that they keep no member out.
    of_strangers: Arc<Semaphore>,
    /// Beside the lists, so that nobody keeps others from these by watching.
    families: Arc<Semaphore>,
}

/// The right to read them once. The reading keeps it to its end, which it reaches also where nobody waits for it any more: who asks
/// and goes away again and again has no more of them.
pub(super) struct Turn {
    _all: OwnedSemaphorePermit,
    _of_strangers: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(super) fn new() -> Self {
        let of = |most| Arc::new(Semaphore::new(most));
        Self { lists: of(LISTS_MAX), of_strangers: of(1), families: of(1) }
    }

    /// For a list.
    ///
    /// # Errors
    /// `Busy` where as many as may be are being made.
    fn list(&self, by_stranger: bool) -> Result<Turn, CallError> {
        let one = |of: &Arc<Semaphore>| Arc::clone(of).try_acquire_owned().map_err(|_| again());
        let of_strangers = by_stranger.then(|| one(&self.of_strangers)).transpose()?;
        Ok(Turn { _all: one(&self.lists)?, _of_strangers: of_strangers })
    }

    /// For the objects of a family that is watched.
    ///
    /// # Errors
    /// `Busy` where its turn does not come soon.
    pub(super) async fn family(&self, env: &Env) -> Result<Turn, CallError> {
        let one = Arc::clone(&self.families).acquire_owned();
        match env.within(FAMILY_WAIT, one).await {
            Ok(Ok(all)) => Ok(Turn { _all: all, _of_strangers: None }),
            _ => Err(again()),
        }
    }
}

fn again() -> CallError {
    CallError::Busy { retry_after: LIST_AGAIN }
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
        let Some(record) = self.proven_of(object, h).await? else { return Ok(None) };
        let attestation = if attested { self.attestation(h, named).await? } else { None };
        Ok(Some(FoundVersion { record, attestation }))
    }

    /// A version's record, proven; `None` where it is not here, also where what is here under that hash is no version of this object:
    /// of it there is none anywhere, and that is no failure of this peer.
    pub(super) async fn proven_of(
        &self,
        object: &ObjectKey,
        h: &RecordId,
    ) -> Result<Option<Record>, CallError> {
        match self.objects.proven(object, h).await {
            Ok(found) => Ok(found.map(|(record, _)| record)),
            Err(ObjectsError::OtherObject { .. }) => Ok(None),
            Err(error) => Err(self.refused(error)),
        }
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
        if request.objects.iter().collect::<BTreeSet<_>>().len() < count {
            return Err(invalid("tips of an object are asked for once a call"));
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
        let (tips, more) = self.objects.first_tips(&object, TIPS_MAX);
        answer.more = more;
        for tip in &tips {
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
        let turn = self.turns.list(reader.is_stranger())?;
        let may = move |shelf: &Self, named: &ObjectRecord| shelf.may_read(&reader, named);
        let found = self.names_of(turn, request, may);
        let mut room = Room::new();
        let records = found.await?.into_iter().map(|(_, named)| named.record(self.suite));
        let records = records.filter_map(Result::ok);
        Ok(records.take_while(|record| room.take(record.bytes.len())).collect())
    }

    /// The first so many of an owner's names behind one, of objects that pass, read from the store.
    async fn names_of(
        self: &Arc<Self>,
        turn: Turn,
        request: ListObjects,
        pass: impl Fn(&Self, &ObjectRecord) -> bool + Send + 'static,
    ) -> Result<Vec<(ObjectKey, ObjectRecord)>, CallError> {
        let most = request.most as usize;
        let found: BTreeMap<Bytes, (ObjectKey, ObjectRecord)> = BTreeMap::new();
        let found = self.each_object(turn, found, move |shelf, found, part| {
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
            if (found.len() == most && is_behind) || !pass(shelf, &named) {
                return;
            }
            if shelf.suite.id(&bytes) == part.id {
                found.insert(named.name.clone(), (part.id.into(), named));
            }
            if found.len() > most {
                found.pop_last();
            }
        });
        Ok(found.await?.into_values().collect())
    }

    /// Reads the records of all objects, by turn; what `each` made of them. Where whoever waits for it goes away, it passes over those
    /// that are left.
    pub(super) async fn each_object<T: Send + 'static>(
        self: &Arc<Self>,
        turn: Turn,
        mut found: T,
        mut each: impl FnMut(&Self, &mut T, Part<'_>) + Send + 'static,
    ) -> Result<T, CallError> {
        let shelf = Arc::clone(self);
        let waiting = Arc::new(());
        let waits = Arc::downgrade(&waiting);
        let read = move || {
            let _turn = turn;
            if waits.strong_count() == 0 {
                return Ok(found);
            }
            let scanned = shelf.store.each_of(&[Kind::Object], &mut |part| {
                if waits.strong_count() > 0 {
                    each(&shelf, &mut found, part);
                }
            });
            scanned.map(|_| found)
        };
        let found = self.env.blocking(read).await;
        found.map_err(|error| self.refused(error.into()))
    }
}
