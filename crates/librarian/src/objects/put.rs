//! Put: records of objects, in their order, one outcome each.
//!
//! Objects, policies and devices count for what stands behind them in the same request. A version is taken with an attestation of the
//! request or one that is here. What is taken goes into the store with one write, attestations before versions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crypto::RecordId;
use document::{Kind, Record};
use env::calls::objects::{PutObjects, PutObjectsAnswer, PutOutcome};
use env::calls::{BATCH_BYTES_MAX, BATCH_MAX, CallError};
use objects::Incoming;
use version::attestation::Attester;
use version::merkle::Tree;
use version::policy::Policy;
use version::receipt::Terms;
use version::{
    AnyAttestation, DeviceList, Head, Hint, ObjectKey, ObjectRecord, Proven, Receipt, Version,
    VersionError, places,
};

use super::Bringer;
use super::feed::News;
use super::proving::{Given, refusal};
use super::{ObjectShelf, denied, invalid};
use crate::leases::owned;
use crate::shelf::closed;

/// Versions that are here, and not in the request, for which one call looks whether an attestation's author may write.
const BEFORE_MAX: usize = 1_024;

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
    fn judge(&self, object: &ObjectRecord, attester: &Attester) -> Result<(), CallError> {
        let author = attester.author.key();
        let (may, known) =
            self.policies.with(object, |policy| (policy.may_write(author), policy.version));
        if !may {
            return Err(denied(format!("{author} may not write the object, by policy {known}")));
        }
        if attester.policy_version > known {
            let said = attester.policy_version;
            return Err(denied(format!(
                "the attestation is under policy {said}, and this peer knows policy {known}: put the \
                 policy with it"
            )));
        }
        Ok(())
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
    by_version: HashMap<RecordId, Vec<usize>>,
    /// Objects whose records are in the request.
    named: HashMap<ObjectKey, Arc<ObjectRecord>>,
    /// Bytes counted for versions that are not here.
    reserved: HashMap<usize, (ObjectKey, Hint, u64)>,
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
        let mut putting = Self {
            shelf,
            compress,
            bringer,
            on_its_way: OnItsWay(0, bringer, shelf),
            given: Vec::with_capacity(given.len()),
            outcomes: Vec::with_capacity(given.len()),
            incoming: shelf.objects.incoming(shelf.env.clone()),
            written: Vec::new(),
            signed: Vec::new(),
            by_version: HashMap::new(),
            named: HashMap::new(),
            reserved: HashMap::new(),
        };
        for (at, one) in given.into_iter().enumerate() {
            if let Ok(Given { proven: Proven::Attestation(_), named, .. }) = &one {
                for (_, h) in named {
                    putting.by_version.entry(*h).or_default().push(putting.signed.len());
                }
                putting.signed.push((at, Vec::new()));
            }
            putting.outcomes.push(one.as_ref().err().cloned().map(Err));
            putting.given.push(one.ok());
        }
        putting
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
                Proven::Head(head) => self.shelf.heads.reserve(head, self.bringer).map(|bytes| {
                    self.on_its_way.0 += bytes;
                }),
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
        for at in 0..self.given.len() {
            let Some(Given { record, proven: Proven::Version(version), .. }) = &self.given[at]
            else {
                continue;
            };
            let (record, version) = (record.clone(), version.clone());
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
        let is_here = self.shelf.objects.holds(&h) || self.is_staged(&h);
        if !is_here && !self.shelf.objects.reserve(&object, &n, bytes, self.shelf.region(&named)) {
            return Ok(Some(self.shelf.redirected(&object, &n)));
        }
        let open = self.compress && self.shelf.policies.with(&named, |policy| policy.open);
        match self.incoming.version(record, version, open).await {
            Ok(slot) => {
                if !is_here {
                    self.reserved.insert(slot, (object, n, bytes));
                }
                self.written.push((at, Slot::Version(slot)));
                if let By::Request { signed, index } = by {
                    self.signed[signed].1.push(index);
                }
                Ok(None)
            }
            Err(error) => {
                if !is_here {
                    self.shelf.objects.give_back(&object, &n, bytes);
                }
                Ok(Some(Err(self.shelf.refused(error))))
            }
        }
    }

    /// Whether a version stands in the request before.
    fn is_staged(&self, h: &RecordId) -> bool {
        let is_it = |at: &usize| self.given[*at].as_ref().is_some_and(|one| one.record.id == *h);
        self.written.iter().any(|(at, slot)| matches!(slot, Slot::Version(_)) && is_it(at))
    }

    async fn object(&self, object: &ObjectKey) -> Result<Option<Arc<ObjectRecord>>, CallError> {
        match self.named.get(object) {
            Some(named) => Ok(Some(Arc::clone(named))),
            None => self.shelf.named(object).await,
        }
    }

    /// Who attests a version that may write it; the inner error says why nobody does.
    async fn attester(
        &self,
        h: &RecordId,
        object: &ObjectRecord,
    ) -> Result<Result<By, CallError>, CallError> {
        let mut reason = denied(format!(
            "no attestation of this network names version {h}: put one with it, signed by its writer"
        ));
        for signed in self.by_version.get(h).into_iter().flatten() {
            let Some(Given { proven: Proven::Attestation(attestation), named, .. }) =
                &self.given[self.signed[*signed].0]
            else {
                continue;
            };
            let index = named.iter().find(|(_, one)| one == h).map_or(0, |(index, _)| *index);
            match self.shelf.judge(object, attestation.attester()) {
                Ok(()) => return Ok(Ok(By::Request { signed: *signed, index })),
                Err(error) => reason = error,
            }
        }
        for opened in self.shelf.attested(h).await? {
            let attestation = &opened.attestation;
            let judged = self.shelf.judge(object, attestation.attester());
            let signed = attestation.attester().network == self.shelf.network
                && attestation.verify(self.shelf.suite).is_ok();
            match judged {
                Ok(()) if signed => return Ok(Ok(By::Here)),
                Ok(()) => {}
                Err(error) => reason = error,
            }
        }
        Ok(Err(reason))
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

    /// Keeps attestations whole where all of their versions are taken or here, else what stands for each that is.
    async fn attestations(&mut self) {
        for (at, mut taken) in std::mem::take(&mut self.signed) {
            // A version may stand in the request twice.
            taken.sort_unstable();
            taken.dedup();
            let Some(Given { record, proven: Proven::Attestation(attestation), .. }) =
                self.given[at].take()
            else {
                continue;
            };
            if taken.is_empty() {
                let reason =
                    "it names no version that is taken or here and that its author may write";
                self.refuse(at, denied(reason));
                continue;
            }
            if taken.len() == attestation.attester().count as usize
                || matches!(*attestation, AnyAttestation::One(_))
            {
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
        let Self { shelf, bringer, on_its_way, mut outcomes, incoming, written, reserved, .. } =
            self;
        let beside: Vec<Record> = incoming.beside().cloned().collect();
        let stored = |done: &objects::Written| {
            let new = beside.iter().zip(&done.beside).filter(|(_, new)| **new);
            new.for_each(|(record, _)| shelf.stored(record.kind, record.id, &record.bytes));
        };
        let done = incoming.commit(durability, stored).await;
        if let Ok(done) = &done {
            let new = beside.iter().zip(&done.beside).filter(|(_, new)| **new);
            shelf.words_stored(new.map(|(record, _)| record), bringer).await;
        }
        drop(on_its_way);
        for (slot, (object, n, bytes)) in reserved {
            let new = done.as_ref().is_ok_and(|done| done.versions.get(slot) == Some(&true));
            if !new {
                shelf.objects.give_back(&object, &n, bytes);
            }
        }
        let done = done.map_err(|error| shelf.refused(error));
        for (at, slot) in written {
            let outcome = match (&done, slot) {
                (Err(error), _) => Err(error.clone()),
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
        let none = || Err(CallError::Internal { reason: "a record had no outcome".to_owned() });
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(none)).collect()
    }
}

impl ObjectShelf {
    /// Heads and lists of devices are in the store: they count, and watchers are told.
    async fn words_stored(&self, records: impl Iterator<Item = &Record>, by: Bringer) {
        let mut dropped = Vec::new();
        for Record { kind, id, bytes, .. } in records {
            match kind {
                Kind::Head => {
                    let Ok(head) = Head::verify(bytes) else { continue };
                    let branch: Arc<str> = head.branch.branch.as_str().into();
                    let Ok(object) = head.branch.object(self.suite) else { continue };
                    match self.heads.take(*id, head, by) {
                        Ok(others) => dropped.extend(others),
                        Err(error) => tracing::warn!(%error, "a branch has too many tips"),
                    }
                    self.feed.word(News::Head(object, branch, *id));
                }
                Kind::Devices => {
                    let Ok(list) = DeviceList::verify(bytes) else { continue };
                    self.feed.word(News::Devices(list.owner, *id));
                }
                _ => {}
            }
        }
        self.forget(dropped).await;
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
