//! Put: records of objects, in their order, one outcome each.
//!
//! Objects, policies and devices count for what stands behind them in the same request. A version is taken with an attestation of the
//! request or one that is here. What is taken goes into the store with one write, attestations before versions.
//!
//! A request has 1,024 records, and an attestation of it may name 65,536 versions, or one as often. So of the attestations of a
//! request [`BY_REQUEST_MAX`] are looked at for a version, each once; of a version that stands in it again the outcome is that of the
//! first; and others have the thread after so many steps ([`Pace`]).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crypto::{AuthorKey, Place, PublicKey, RecordId};
use document::{Kind, Record};
use env::calls::objects::{PutObjects, PutObjectsAnswer, PutOutcome};
use env::calls::{BATCH_BYTES_MAX, BATCH_MAX, CallError};
use objects::{Incoming, ObjectsError};
use version::attestation::Attester;
use version::merkle::Tree;
use version::policy::Policy;
use version::receipt::Terms;
use version::{
    AnyAttestation, DeviceList, Head, ObjectKey, ObjectRecord, Proven, Receipt, Version,
    VersionError, places,
};

use super::Bringer;
use super::attestations::OF_AUTHOR_MAX;
use super::feed::News;
use super::proving::{Given, refusal};
use super::regions::Reserved;
use super::{ObjectShelf, denied, heads, invalid};
use crate::leases::owned;
use crate::shelf::closed;

/// Versions that are here, and not in the request, for which one call looks whether an attestation's author may write.
const BEFORE_MAX: usize = 1_024;
/// Attestations of a request that are looked at for one version of it.
const BY_REQUEST_MAX: usize = 16;
/// Steps of a put (a version that is looked at, some of those that an attestation names) behind which others have the thread.
const STEPS_AT_ONCE: usize = 64;
/// Versions that an attestation names, in one step.
const NAMED_A_STEP: usize = 128;
/// Steps that a version takes for which attestations that are here are looked at.
const ATTESTED_STEPS: usize = 16;
/// When to put a version again whose object has too many branches: somebody has to merge some.
const BRANCHES_AGAIN: Duration = Duration::from_secs(60);

type Outcome = Result<PutOutcome, CallError>;

impl ObjectShelf {
    /// Puts records. A caller that goes away does not undo it: it is for this peer's own work, which itself bounds how many
    /// there are.
    ///
    /// # Errors
    /// For the whole request; what is wrong with one record is its outcome.
    pub(crate) async fn put(
        self: &Arc<Self>,
        request: PutObjects,
        by: Bringer,
    ) -> Result<PutObjectsAnswer, CallError> {
        let shelf = Arc::clone(self);
        let work = async move { shelf.put_here(request, by).await };
        owned(&self.env, work).await.unwrap_or_else(|| Err(closed()))
    }

    /// Puts records as [`ObjectShelf::put`], in a task that goes on to its end ([`owned`]) and keeps what counts their bytes: these
    /// are reserved before they are written, and a version becomes a tip behind its write, which must not be left half done.
    ///
    /// # Errors
    /// As [`ObjectShelf::put`].
    pub(crate) async fn put_here(
        self: &Arc<Self>,
        request: PutObjects,
        by: Bringer,
    ) -> Result<PutObjectsAnswer, CallError> {
        check(&request)?;
        self.shelf.check_writes()?;
        Box::pin(self.put_all(request, by)).await
    }

    async fn put_all(
        self: &Arc<Self>,
        request: PutObjects,
        by: Bringer,
    ) -> Result<PutObjectsAnswer, CallError> {
        let PutObjects { records, compress, durability, receipt } = request;
        let ids: Vec<RecordId> = records.iter().map(|record| record.id).collect();
        let is_version: Vec<bool> =
            records.iter().map(|record| record.kind == Kind::Version).collect();
        let given = self.prove(records).await;
        let mut putting = Putting::new(self, given, compress, by);
        putting.named_by().await;
        putting.objects();
        putting.words();
        putting.versions().await?;
        putting.before().await?;
        putting.attestations().await;
        let terms = durability.map(store_durability);
        let outcomes = putting.commit(terms).await;
        for (outcome, is_version) in outcomes.iter().zip(&is_version) {
            if *is_version {
                self.metrics.objects.put(outcome);
            }
        }
        let receipt = receipt.then(|| {
            let taken =
                |outcome: &Outcome| matches!(outcome, Ok(PutOutcome::Stored | PutOutcome::Present));
            let kept = ids.iter().zip(&is_version).zip(&outcomes);
            let kept = kept.filter(|((_, is_version), outcome)| **is_version && taken(outcome));
            let kept: Vec<RecordId> = kept.map(|((id, _), _)| *id).collect();
            let offered = durability.unwrap_or_else(|| version_durability(self.store.durability()));
            let time_ms = self.env.clock.unix_ms();
            let terms = Terms { durability: offered, lease_ms: 0, time_ms };
            let tree = Tree::new(self.suite, &kept)?;
            Some(Receipt::sign(&self.secret, &self.network, terms, &tree).encode())
        });
        Ok(PutObjectsAnswer { outcomes, receipt: receipt.flatten() })
    }

    /// Whether an author may write an object under the policy that counts here.
    fn judge(&self, object: &ObjectRecord, attester: &Attester) -> Result<(), Unfit> {
        let author = *attester.author.key();
        let (may, known) =
            self.policies.with(object, |policy| (policy.may_write(&author), policy.version));
        if !may {
            return Err(Unfit::NoWriter { author, known });
        }
        if attester.policy_version > known {
            return Err(Unfit::Ahead { said: attester.policy_version, known });
        }
        Ok(())
    }
}

/// Why an attestation does not count for an object. It is told of one of many, so there are no words before.
enum Unfit {
    NoWriter { author: PublicKey, known: u64 },
    Ahead { said: u64, known: u64 },
}

impl From<Unfit> for CallError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::NoWriter { author, known } => {
                denied(format!("{author} may not write the object, by policy {known}"))
            }
            Unfit::Ahead { said, known } => denied(format!(
                "the attestation is under policy {said}, and this peer knows policy {known}: put the \
                 policy with it"
            )),
        }
    }
}

/// Lets others have the thread behind some steps of work that waits for nothing.
#[derive(Default)]
struct Pace(usize);

impl Pace {
    async fn steps(&mut self, steps: usize) {
        self.0 += steps;
        if self.0 >= STEPS_AT_ONCE {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Which attestations of a request name each of its versions: by their numbers, and the index that each has it at first.
#[derive(Default)]
struct Named(HashMap<RecordId, Vec<(usize, usize)>>);

impl Named {
    fn of(versions: impl Iterator<Item = RecordId>) -> Self {
        Self(versions.map(|h| (h, Vec::new())).collect())
    }

    /// An attestation names these, among others. They are looked at in the order of the attestations' numbers.
    fn add(&mut self, signed: usize, named: &[(usize, RecordId)]) {
        for (index, h) in named {
            if let Some(by) = self.0.get_mut(h)
                && by.len() < BY_REQUEST_MAX
                && by.last().is_none_or(|(last, _)| *last != signed)
            {
                by.push((signed, *index));
            }
        }
    }

    fn of_version(&self, h: &RecordId) -> &[(usize, usize)] {
        self.0.get(h).map_or(&[][..], Vec::as_slice)
    }
}

/// A put on its way.
struct Putting<'a> {
    shelf: &'a Arc<ObjectShelf>,
    compress: bool,
    /// Whose share of memory words take.
    bringer: Bringer,
    /// What the heads of the request take of it until they are written.
    on_its_way: OnItsWay<'a>,
    given: Vec<Option<Given>>,
    outcomes: Vec<Option<Outcome>>,
    incoming: Incoming,
    /// Which record of the request is where in the write. An attestation may be several.
    written: Vec<(usize, Slot)>,
    /// The attestations of the request: where they stand, and the indices of the versions they are taken for.
    signed: Vec<(usize, Vec<usize>)>,
    /// Which of those name a version.
    by_version: Named,
    /// Objects whose records are in the request.
    named: HashMap<ObjectKey, Arc<ObjectRecord>>,
    /// Versions of the write that are not here: where they are in it, and the bytes that are kept for them.
    reserved: HashMap<RecordId, (usize, Reserved<'a>)>,
    /// Versions that stand in the request again, and where they do first.
    again: Vec<(usize, usize)>,
    /// How many attestations of a version by an author are written.
    signing: HashMap<(RecordId, PublicKey), usize>,
    pace: Pace,
}

/// Bytes of memory that are kept for heads, and given back when they count or were not written.
struct OnItsWay<'a>(usize, Bringer, &'a ObjectShelf);

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        let Self(bytes, by, shelf) = self;
        shelf.heads.give_back(*by, *bytes);
    }
}

#[derive(Clone, Copy)]
enum Slot {
    Beside(usize),
    Version(usize),
}

/// Who attests a version: an attestation of the request, or one that is here.
enum By {
    Request { signed: usize, index: usize },
    Here,
}

impl<'a> Putting<'a> {
    fn new(
        shelf: &'a Arc<ObjectShelf>,
        given: Vec<Result<Given, CallError>>,
        compress: bool,
        bringer: Bringer,
    ) -> Self {
        let incoming = shelf.objects.incoming(shelf.env.clone());
        let incoming = match bringer {
            Bringer::Organisation(organisation) => incoming.of(organisation),
            Bringer::Repair | Bringer::Start => incoming,
        };
        let mut putting = Self {
            shelf,
            compress,
            bringer,
            on_its_way: OnItsWay(0, bringer, shelf),
            given: Vec::with_capacity(given.len()),
            outcomes: Vec::with_capacity(given.len()),
            incoming,
            written: Vec::new(),
            signed: Vec::new(),
            by_version: Named::default(),
            named: HashMap::new(),
            reserved: HashMap::new(),
            again: Vec::new(),
            signing: HashMap::new(),
            pace: Pace::default(),
        };
        for (at, one) in given.into_iter().enumerate() {
            if let Ok(Given { proven: Proven::Attestation(_), .. }) = &one {
                putting.signed.push((at, Vec::new()));
            }
            putting.outcomes.push(one.as_ref().err().cloned().map(Err));
            putting.given.push(one.ok());
        }
        putting
    }

    /// Finds which attestations of the request name each of its versions.
    async fn named_by(&mut self) {
        let versions = self.given.iter().flatten();
        let versions = versions.filter(|one| matches!(one.proven, Proven::Version(_)));
        self.by_version = Named::of(versions.map(|one| one.record.id));
        for (number, (at, _)) in self.signed.iter().enumerate() {
            let Some(Given { named, .. }) = &self.given[*at] else { continue };
            for some in named.chunks(NAMED_A_STEP) {
                self.by_version.add(number, some);
                self.pace.steps(1).await;
            }
        }
    }

    fn refuse(&mut self, at: usize, error: CallError) {
        self.outcomes[at] = Some(Err(error));
    }

    fn keep(&mut self, at: usize, record: Record) {
        let slot = self.incoming.add(record);
        self.written.push((at, Slot::Beside(slot)));
    }

    fn objects(&mut self) {
        for at in 0..self.given.len() {
            let Some(Given { record, proven: Proven::Object(object), .. }) = &self.given[at] else {
                continue;
            };
            self.named.insert(record.id.into(), Arc::new(object.clone()));
            let record = record.clone();
            self.keep(at, record);
        }
    }

    /// Policies and lists of devices: they count from here on, also where the write fails, which is the stricter side. Heads
    /// count behind the write.
    fn words(&mut self) {
        for at in 0..self.given.len() {
            let Some(Given { record, proven, .. }) = &self.given[at] else { continue };
            let taken = match proven {
                Proven::Policy(policy) => self.shelf.take_policy(policy, record.id, self.bringer),
                Proven::Devices(list) => self
                    .shelf
                    .heads
                    .take_devices((**list).clone(), record.id, self.bringer)
                    .map_err(|error| refusal(&error)),
                // What was superseded long ago is as good as here, and no tip again.
                Proven::Head(head) if self.shelf.is_passed(&record.id, &record.place) => {
                    self.shelf.heads.pass_over(&record.id, head, self.bringer);
                    self.outcomes[at] = Some(Ok(PutOutcome::Present));
                    continue;
                }
                Proven::Head(head) => {
                    self.shelf.heads.reserve(&record.id, head, self.bringer).map(|bytes| {
                        self.on_its_way.0 += bytes;
                    })
                }
                _ => continue,
            };
            let record = record.clone();
            match taken {
                Ok(()) => self.keep(at, record),
                Err(error) => self.refuse(at, error),
            }
        }
    }

    async fn versions(&mut self) -> Result<(), CallError> {
        let mut first: HashMap<(RecordId, Place), usize> = HashMap::new();
        for at in 0..self.given.len() {
            let Some(Given { record, proven: Proven::Version(version), .. }) = &self.given[at]
            else {
                continue;
            };
            match first.entry((record.id, record.place)) {
                Entry::Occupied(first) => {
                    self.again.push((at, *first.get()));
                    continue;
                }
                Entry::Vacant(entry) => entry.insert(at),
            };
            let (record, version) = (record.clone(), version.clone());
            self.pace.steps(1).await;
            if let Some(outcome) = self.version(at, record, &version).await? {
                self.outcomes[at] = Some(outcome);
            }
        }
        Ok(())
    }

    /// Takes a version, or tells what is in the way.
    async fn version(
        &mut self,
        at: usize,
        record: Record,
        version: &Version,
    ) -> Result<Option<Outcome>, CallError> {
        let (h, object, bytes) = (record.id, version.object, record.bytes.len() as u64);
        let Some(named) = self.object(&object).await? else {
            return Ok(Some(Ok(PutOutcome::NoObject)));
        };
        let by = match self.attester(&h, &named).await? {
            Ok(by) => by,
            Err(error) => return Ok(Some(Err(error))),
        };
        let n = places(self.shelf.suite, object).find(|(_, place)| *place == record.place);
        let Some((n, _)) = n else { return Ok(Some(Err(invalid("at no place of its object")))) };
        let shelf = self.shelf;
        let mut reserved = None;
        if !shelf.objects.holds(&h) && !self.reserved.contains_key(&h) {
            reserved = shelf.reserve(&named, object, n, bytes);
            if reserved.is_none() {
                return Ok(Some(shelf.redirected(&object, &n)));
            }
        }
        let open = self.compress && shelf.policies.with(&named, |policy| policy.open);
        match self.incoming.version(record, version, open).await {
            Ok(slot) => {
                if let Some(reserved) = reserved {
                    self.reserved.insert(h, (slot, reserved));
                }
                self.written.push((at, Slot::Version(slot)));
                if let By::Request { signed, index } = by {
                    self.signed[signed].1.push(index);
                }
                Ok(None)
            }
            Err(ObjectsError::Branches { .. }) => {
                Ok(Some(Err(CallError::Busy { retry_after: BRANCHES_AGAIN })))
            }
            Err(error) => Ok(Some(Err(shelf.refused(error)))),
        }
    }

    async fn object(&self, object: &ObjectKey) -> Result<Option<Arc<ObjectRecord>>, CallError> {
        match self.named.get(object) {
            Some(named) => Ok(Some(Arc::clone(named))),
            None => self.shelf.named(object).await,
        }
    }

    /// Who attests a version that may write it; the inner error says why nobody does.
    async fn attester(
        &mut self,
        h: &RecordId,
        object: &ObjectRecord,
    ) -> Result<Result<By, CallError>, CallError> {
        let mut reason = None;
        for (signed, index) in self.by_version.of_version(h) {
            let Some(Given { proven: Proven::Attestation(attestation), .. }) =
                &self.given[self.signed[*signed].0]
            else {
                continue;
            };
            match self.shelf.judge(object, attestation.attester()) {
                Ok(()) => return Ok(Ok(By::Request { signed: *signed, index: *index })),
                Err(unfit) => reason = Some(unfit),
            }
        }
        self.pace.steps(ATTESTED_STEPS).await;
        for opened in self.shelf.attested(h).await? {
            if let Err(unfit) = self.shelf.judge(object, opened.attestation.attester()) {
                reason = Some(unfit);
                continue;
            }
            if self.shelf.is_signed(&opened).await {
                return Ok(Ok(By::Here));
            }
        }
        let none = || {
            denied(format!(
                "no attestation of this network names version {h}: put one with it, signed by its \
                 writer"
            ))
        };
        Ok(Err(reason.map_or_else(none, CallError::from)))
    }

    /// Attestations of versions that are here and not in the request: taken where their author may write those.
    async fn before(&mut self) -> Result<(), CallError> {
        let in_request = |given: &Option<Given>| given.as_ref().map(|given| given.record.id);
        let sent: HashSet<RecordId> = self.given.iter().filter_map(in_request).collect();
        let mut left = BEFORE_MAX;
        for signed in 0..self.signed.len() {
            let Some(Given { proven: Proven::Attestation(attestation), named, .. }) =
                &self.given[self.signed[signed].0]
            else {
                continue;
            };
            self.pace.steps(named.len() / NAMED_A_STEP).await;
            let attester = attestation.attester().clone();
            let others = named.iter().filter(|(_, h)| !sent.contains(h)).take(left);
            let others: Vec<(usize, RecordId)> = others.copied().collect();
            left -= others.len();
            for (index, h) in others {
                let found = self.shelf.object_of(&h).await?;
                let Some(named) = found else { continue };
                if self.shelf.judge(&named, &attester).is_ok() {
                    self.signed[signed].1.push(index);
                }
            }
        }
        Ok(())
    }

    /// Whether what stands for a version under an attestation is kept. Its author has said enough of it where as many as are found
    /// are here, or in the request before. What is here already is none more. What a new version comes with is kept, whatever the
    /// disk did to those that were here before; and what was fetched: it is the one that its holder found.
    fn is_wanted(&mut self, id: &RecordId, h: &RecordId, author: &AuthorKey) -> bool {
        let is_bounded = matches!(self.bringer, Bringer::Organisation(_));
        if !is_bounded || self.reserved.contains_key(h) || self.shelf.store.contains(id) {
            return true;
        }
        let room = self.shelf.attestations.room(h, author.as_bytes());
        let signing = self.signing.entry((*h, *author.key())).or_default();
        *signing += 1;
        *signing <= room
    }

    /// Keeps attestations whole where all of their versions are taken or here, else what stands for each that is.
    async fn attestations(&mut self) {
        for (at, mut taken) in std::mem::take(&mut self.signed) {
            // A version may stand in the request twice.
            taken.sort_unstable();
            taken.dedup();
            let Some(Given { record, proven: Proven::Attestation(attestation), named }) =
                self.given[at].take()
            else {
                continue;
            };
            self.pace.steps(1 + taken.len() / NAMED_A_STEP).await;
            if taken.is_empty() {
                let reason =
                    "it names no version that is taken or here and that its author may write";
                self.refuse(at, denied(reason));
                continue;
            }
            let is_whole = taken.len() == attestation.attester().count as usize
                || matches!(*attestation, AnyAttestation::One(_));
            let author = attestation.attester().author;
            taken.retain(|index| {
                let found = named.binary_search_by_key(index, |(index, _)| *index);
                found.is_ok_and(|at| self.is_wanted(&record.id, &named[at].1, &author))
            });
            if taken.is_empty() {
                let reason = format!(
                    "{OF_AUTHOR_MAX} attestations by its author are here of each version that it names: \
                     one is enough"
                );
                self.refuse(at, invalid(reason));
                continue;
            }
            if is_whole {
                self.keep(at, record);
                continue;
            }
            let suite = self.shelf.suite;
            let parts = move || -> Vec<Record> {
                let AnyAttestation::Batch(batch) = *attestation else { return Vec::new() };
                let Some(tree) = batch.paths(suite) else { return Vec::new() };
                let one = |index| batch.of_one(&tree, index).map(|one| one.record(suite));
                taken.into_iter().filter_map(one).collect()
            };
            for record in self.shelf.env.cpu(parts).await {
                self.keep(at, record);
            }
        }
    }

    /// Writes what was taken; the outcomes of all.
    async fn commit(self, durability: Option<store::Durability>) -> Vec<Outcome> {
        let Self { shelf, bringer, on_its_way, mut outcomes, incoming, .. } = self;
        let Self { written, reserved, again, .. } = self;
        let beside: Vec<Record> = incoming.beside().cloned().collect();
        let stored = |done: &objects::Written| {
            let new = beside.iter().zip(&done.beside).filter(|(_, new)| **new);
            new.for_each(|(record, _)| shelf.stored(record.kind, record.id, &record.bytes));
        };
        let done = incoming.commit(durability, stored).await;
        let mut no_room = Vec::new();
        if let Ok(done) = &done {
            let all = beside.iter().zip(done.beside.iter().copied());
            no_room = shelf.words_stored(all, bringer).await;
        }
        drop(on_its_way);
        for (slot, reserved) in reserved.into_values() {
            if done.as_ref().is_ok_and(|done| done.versions.get(slot) == Some(&true)) {
                reserved.stored();
            }
        }
        let done = done.map_err(|error| shelf.refused(error));
        let is_left_out =
            |number: usize| beside.get(number).is_some_and(|record| no_room.contains(&record.id));
        for (at, slot) in written {
            let outcome = match (&done, slot) {
                (Err(error), _) => Err(error.clone()),
                (Ok(_), Slot::Beside(number)) if is_left_out(number) => Err(heads::busy()),
                (Ok(done), Slot::Beside(number)) => Ok(done.beside.get(number)),
                (Ok(done), Slot::Version(number)) => Ok(done.versions.get(number)),
            };
            let outcome = outcome.map(|new| match new {
                Some(true) => PutOutcome::Stored,
                _ => PutOutcome::Present,
            });
            // Of several records that stand for one, any that is new makes it that.
            if !matches!(outcomes[at], Some(Ok(PutOutcome::Stored))) {
                outcomes[at] = Some(outcome);
            }
        }
        for (at, first) in again {
            outcomes[at] = outcomes[first].clone();
        }
        let none = || Err(CallError::Internal { reason: "a record had no outcome".to_owned() });
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(none)).collect()
    }
}

impl ObjectShelf {
    /// Heads and lists of devices are in the store: they count, and watchers are told of those that are new there. Heads for which
    /// their branch had no room when they came there, of several at once, are removed again: which.
    async fn words_stored<'a>(
        &self,
        records: impl Iterator<Item = (&'a Record, bool)>,
        by: Bringer,
    ) -> Vec<RecordId> {
        let (mut dropped, mut no_room) = (Vec::new(), Vec::new());
        for (Record { kind, id, bytes, .. }, new) in records {
            match kind {
                Kind::Head => {
                    let Ok(head) = Head::verify(bytes) else { continue };
                    let branch: Arc<str> = head.branch.branch.as_str().into();
                    let Ok(object) = head.branch.object(self.suite) else { continue };
                    match self.heads.take(*id, head, by) {
                        Ok(others) => {
                            if new && !others.contains(id) {
                                self.feed.word(News::Head(object, branch, *id));
                            }
                            dropped.extend(others);
                        }
                        Err(error) => {
                            tracing::warn!(%error, "a branch has too many tips");
                            no_room.push(*id);
                        }
                    }
                }
                Kind::Devices if new => {
                    let Ok(list) = DeviceList::verify(bytes) else { continue };
                    self.feed.word(News::Devices(list.owner, *id));
                }
                _ => {}
            }
        }
        dropped.extend(self.heads.dropped());
        dropped.extend(&no_room);
        self.forget(dropped).await;
        no_room
    }

    fn take_policy(&self, policy: &Policy, id: RecordId, by: Bringer) -> Result<(), CallError> {
        let taken = self.policies.take(policy.clone(), id, by);
        taken.map(drop).map_err(|error: VersionError| refusal(&error))
    }

    /// The object of a version that is here.
    async fn object_of(&self, h: &RecordId) -> Result<Option<Arc<ObjectRecord>>, CallError> {
        let record = match self.store.get(h).await {
            Ok(record) => record.filter(|record| record.kind == Kind::Version),
            Err(store::StoreError::Damaged { .. }) => None,
            Err(error) => return Err(self.shelf.refused(error)),
        };
        let Some(record) = record else { return Ok(None) };
        let Ok(version) = Version::decode(&record.bytes) else { return Ok(None) };
        self.named(&version.object).await
    }
}

fn check(request: &PutObjects) -> Result<(), CallError> {
    let bytes: usize = request.records.iter().map(|record| record.bytes.len()).sum();
    if request.records.is_empty() || request.records.len() > BATCH_MAX || bytes > BATCH_BYTES_MAX {
        return Err(invalid(format!(
            "a put has 1 to {BATCH_MAX} records of together {BATCH_BYTES_MAX} bytes at most"
        )));
    }
    Ok(())
}

fn store_durability(asked: version::Durability) -> store::Durability {
    match asked {
        version::Durability::Memory => store::Durability::Memory,
        version::Durability::Everysec => store::Durability::EverySecond,
        version::Durability::Group => store::Durability::Group,
        version::Durability::Always => store::Durability::Always,
    }
}

fn version_durability(set: store::Durability) -> version::Durability {
    match set {
        store::Durability::Memory => version::Durability::Memory,
        store::Durability::EverySecond => version::Durability::Everysec,
        store::Durability::Group => version::Durability::Group,
        store::Durability::Always => version::Durability::Always,
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn id(number: u8) -> RecordId {
        RecordId::new([number; 32])
    }

    /// Attestations that name one version as often as they may, and very many that do, cost no more for it than a few.
    #[test]
    fn an_attestation_is_looked_at_once_for_a_version_however_often_it_names_it() {
        let mut named = Named::of([id(1), id(2)].into_iter());
        let copies: Vec<(usize, RecordId)> = (0..65_536).map(|index| (index, id(1))).collect();
        for signed in 0..3 {
            for some in copies.chunks(NAMED_A_STEP) {
                named.add(signed, some);
            }
        }
        assert_eq!(named.of_version(&id(1)), [(0, 0), (1, 0), (2, 0)]);
        for signed in 3..1_000 {
            named.add(signed, &[(7, id(3)), (8, id(2)), (9, id(1)), (10, id(2))]);
        }
        assert_eq!(named.of_version(&id(1)).len(), BY_REQUEST_MAX);
        assert_eq!(named.of_version(&id(2))[..2], [(3, 8), (4, 8)]);
        assert!(named.of_version(&id(3)).is_empty(), "it is not in the request");
    }

    #[test]
    fn a_put_of_many_versions_lets_others_have_the_thread() {
        let mut work = pin!(async {
            let mut pace = Pace::default();
            for _ in 0..5 * STEPS_AT_ONCE {
                pace.steps(1).await;
            }
        });
        let mut context = Context::from_waker(Waker::noop());
        let mut polls = 1;
        while work.as_mut().poll(&mut context).is_pending() {
            polls += 1;
        }
        assert_eq!(polls, 6);
    }
}
