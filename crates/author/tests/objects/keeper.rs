//! A peer that keeps objects in memory, by the rules of the wire and nothing more; and that can lie.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::{NetworkId, PeerId, PublicKey, RecordId, SecretKey, Suite};
use document::{Kind, Record};
use env::Env;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeRequest};
use env::calls::objects::{
    FoundVersion, GetPrevious, HeadsAnswer, ObjectTips, ObjectsAnswer, ObjectsRequest,
    PreviousAnswer, PutObjects, PutObjectsAnswer, PutOutcome, WatchCursor, WatchEvent, WatchEvents,
    WatchRequest, Watched,
};
use env::calls::{
    CallError, Caller, Events, FindRequest, FindResponse, IntroduceRequest, IntroduceResponse,
    PutResponse, Service, StoreOutcome, SubscribeRequest, VerifyRequest, VerifyResponse,
};
use futures::StreamExt;
use testkit::network::MemoryPeer;
use tokio::sync::watch;
use version::merkle::Tree;
use version::policy::For;
use version::receipt::Terms;
use version::{
    AnyAttestation, BranchName, DeviceList, Durability, Head, Hint, ObjectKey, ObjectRecord,
    Policies, Policy, Proven, ReaderClaim, Receipt, Redirect, Version,
};

pub(crate) type Lie = Arc<dyn Fn(ObjectsAnswer) -> ObjectsAnswer + Send + Sync>;
pub(crate) type WatchLie = Arc<dyn Fn(WatchEvent) -> WatchEvent + Send + Sync>;

/// What the member answers that a keeper hosts.
pub(crate) type Hosted =
    Arc<dyn Fn(CommitteeAsk) -> Result<CommitteeAnswer, CallError> + Send + Sync>;

pub(crate) struct Keeper {
    pub(crate) id: PeerId,
    pub(crate) key: SecretKey,
    pub(crate) memory: Arc<MemoryPeer>,
    pub(crate) env: Env,
    pub(crate) suite: Suite,
    pub(crate) network: NetworkId,
    pub(crate) state: Mutex<State>,
    pub(crate) lie: Mutex<Option<Lie>>,
    /// What it makes of what watchers are told.
    pub(crate) watch_lie: Mutex<Option<WatchLie>>,
    pub(crate) hosted: Mutex<Option<Hosted>>,
    /// How long the member takes for a read that waits for a view.
    pub(crate) waits: Mutex<Duration>,
    /// Bytes of a region where no policy says.
    pub(crate) region: Mutex<u64>,
    pub(crate) events: watch::Sender<Log>,
}

/// What watchers are told, from a number on.
#[derive(Clone, Default)]
pub(crate) struct Log {
    pub(crate) run: u64,
    pub(crate) first: u64,
    pub(crate) records: Vec<FoundVersion>,
}

pub(crate) struct State {
    pub(crate) objects: BTreeMap<ObjectKey, Record>,
    policies: Policies,
    policy_records: BTreeMap<(PublicKey, For), Record>,
    pub(crate) versions: BTreeMap<RecordId, (Record, Version)>,
    attestations: BTreeMap<RecordId, Bytes>,
    bases: BTreeSet<RecordId>,
    regions: BTreeMap<(ObjectKey, Hint), u64>,
    pub(crate) heads: BTreeMap<RecordId, (Record, Head)>,
    pub(crate) devices: BTreeMap<PublicKey, (Record, DeviceList)>,
}

impl Keeper {
    pub(crate) fn new(
        key: SecretKey,
        memory: Arc<MemoryPeer>,
        env: &Env,
        (suite, network): (Suite, NetworkId),
    ) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            policies: Policies::new(suite, network),
            policy_records: BTreeMap::new(),
            versions: BTreeMap::new(),
            attestations: BTreeMap::new(),
            bases: BTreeSet::new(),
            regions: BTreeMap::new(),
            heads: BTreeMap::new(),
            devices: BTreeMap::new(),
        };
        Self {
            id: PeerId::new(key.public()),
            key,
            memory,
            env: env.clone(),
            suite,
            network,
            state: Mutex::new(state),
            lie: Mutex::default(),
            watch_lie: Mutex::default(),
            hosted: Mutex::default(),
            waits: Mutex::default(),
            region: Mutex::new(1 << 30),
            events: watch::channel(Log::default()).0,
        }
    }

    /// Lets it host a member of a committee, in the place of the one before.
    pub(crate) fn hosts(&self, member: Option<Hosted>) {
        *self.hosted.lock().unwrap() = member;
    }

    pub(crate) fn lies(&self, lie: Option<Lie>) {
        *self.lie.lock().unwrap() = lie;
    }

    pub(crate) fn holds(&self, h: &RecordId) -> bool {
        self.state.lock().unwrap().versions.contains_key(h)
    }

    /// Forgets what watchers were told before now, as a restart does.
    pub(crate) fn forget_events(&self) {
        self.events.send_modify(|log| {
            *log = Log { run: log.run + 1, first: 0, records: Vec::new() };
        });
    }

    fn hint_of(&self, object: &ObjectKey, record: &Record) -> Hint {
        let places = version::places(self.suite, *object);
        places.into_iter().find(|(_, place)| *place == record.place).map(|(n, _)| n).unwrap()
    }

    fn put(&self, request: PutObjects) -> PutObjectsAnswer {
        let mut state = self.state.lock().unwrap();
        for record in request.records.iter().filter(|record| record.kind == Kind::Attestation) {
            let Ok(attestation) = AnyAttestation::decode(&record.bytes) else { continue };
            if attestation.verify(self.suite).is_err() {
                continue;
            }
            let named = request.records.iter().filter(|one| attestation.names(&one.id));
            for version in named {
                state.attestations.entry(version.id).or_insert(record.bytes.clone());
            }
        }
        let outcomes: Vec<_> =
            request.records.iter().map(|record| self.put_one(&mut state, record)).collect();
        let kept = request.records.iter().zip(&outcomes).filter(|(record, outcome)| {
            let kept = matches!(outcome, Ok(PutOutcome::Stored | PutOutcome::Present));
            record.kind == Kind::Version && kept
        });
        let hs: Vec<RecordId> = kept.map(|(record, _)| record.id).collect();
        let tree = Tree::new(self.suite, &hs).filter(|_| request.receipt);
        let receipt = tree.map(|tree| {
            let durability = request.durability.unwrap_or(Durability::Group);
            let time_ms = self.env.clock.unix_ms();
            let terms = Terms { durability, lease_ms: 0, time_ms };
            Receipt::sign(&self.key, &self.network, terms, &tree).encode()
        });
        PutObjectsAnswer { outcomes, receipt }
    }

    fn put_one(&self, state: &mut State, record: &Record) -> Result<PutOutcome, CallError> {
        let invalid = |error: String| CallError::Invalid { reason: error };
        let proven = version::prove(self.suite, record).map_err(|e| invalid(e.to_string()))?;
        match proven {
            Proven::Object(object) => {
                let key = object.key(self.suite).unwrap();
                let new = state.objects.insert(key, record.clone()).is_none();
                Ok(if new { PutOutcome::Stored } else { PutOutcome::Present })
            }
            Proven::Policy(policy) => {
                let at = (policy.owner, policy.for_what.clone());
                let denied =
                    |error: version::VersionError| CallError::Denied { reason: error.to_string() };
                state.policies.take(*policy).map_err(denied)?;
                state.policy_records.insert(at, record.clone());
                Ok(PutOutcome::Stored)
            }
            Proven::Version(version) => self.put_version(state, record, version),
            Proven::Head(head) => {
                let new = state.heads.insert(record.id, (record.clone(), *head)).is_none();
                self.told(new, record, None);
                Ok(if new { PutOutcome::Stored } else { PutOutcome::Present })
            }
            Proven::Devices(list) => {
                let known = state.devices.get(&list.owner).map(|(_, list)| list);
                if let Err(error) = list.follows(known) {
                    return Err(CallError::Denied { reason: error.to_string() });
                }
                state.devices.insert(list.owner, (record.clone(), *list));
                Ok(PutOutcome::Stored)
            }
            _ => Ok(PutOutcome::Stored),
        }
    }

    fn put_version(
        &self,
        state: &mut State,
        record: &Record,
        version: Version,
    ) -> Result<PutOutcome, CallError> {
        let Some(object) = state.objects.get(&version.object) else {
            return Ok(PutOutcome::NoObject);
        };
        let object = ObjectRecord::decode(&object.bytes).unwrap();
        let policy = self.policy(state, &object);
        let denied = |reason: &str| CallError::Denied { reason: reason.to_owned() };
        let attestation = state.attestations.get(&record.id);
        let attestation = attestation.ok_or_else(|| denied("nobody attests it"))?;
        let attester = AnyAttestation::decode(attestation).unwrap().attester().clone();
        if !policy.may_write(attester.author.key()) || attester.network != self.network {
            return Err(denied("not a writer"));
        }
        if attester.policy_version > policy.version {
            return Err(denied("a policy that is not known here"));
        }
        if state.versions.contains_key(&record.id) {
            return Ok(PutOutcome::Present);
        }
        let n = self.hint_of(&version.object, record);
        let limit = match policy.region_bytes {
            0 => *self.region.lock().unwrap(),
            bytes => bytes,
        };
        let used = state.regions.entry((version.object, n)).or_default();
        if *used + record.bytes.len() as u64 > limit {
            let number = n.number(self.suite, &version.object).unwrap();
            let Some(next) = Hint::overflow(self.suite, &version.object, number + 1) else {
                return Err(CallError::Full);
            };
            let now = self.env.clock.unix_ms();
            let object = version.object;
            let redirect = Redirect::sign(&self.key, self.network, object, (n, next), now);
            return Ok(PutOutcome::Redirect(redirect.encode()));
        }
        *used += record.bytes.len() as u64;
        state.bases.extend(version.bases.iter());
        state.versions.insert(record.id, (record.clone(), version));
        let attestation = state.attestations.get(&record.id).cloned();
        self.told(true, record, attestation);
        Ok(PutOutcome::Stored)
    }

    fn told(&self, new: bool, record: &Record, attestation: Option<Bytes>) {
        if new {
            let found = FoundVersion { record: record.clone(), attestation };
            self.events.send_modify(|log| log.records.push(found));
        }
    }

    fn policy(&self, state: &State, object: &ObjectRecord) -> Policy {
        let known = state.policies.of(object).cloned();
        known.unwrap_or_else(|| Policy::implied(self.network, object.owner))
    }

    fn reads(&self, caller: Caller, reader: Option<&Bytes>, object: &ObjectKey) -> bool {
        let state = self.state.lock().unwrap();
        let Some(record) = state.objects.get(object) else { return true };
        let object = ObjectRecord::decode(&record.bytes).unwrap();
        let who = reader.map_or(caller.key, |bytes| {
            let claim = ReaderClaim::decode(bytes).unwrap();
            claim.verify(&self.network, &caller.key, self.env.clock.unix_s()).unwrap();
            claim.reader
        });
        self.policy(&state, &object).may_read(&who)
    }

    fn found(&self, state: &State, h: &RecordId, attested: bool) -> Option<FoundVersion> {
        let (record, _) = state.versions.get(h)?;
        let attestation = state.attestations.get(h).filter(|_| attested).cloned();
        Some(FoundVersion { record: record.clone(), attestation })
    }

    fn previous(&self, request: &GetPrevious) -> PreviousAnswer {
        let state = self.state.lock().unwrap();
        let Some((first, _)) = state.versions.get(&request.version.h) else {
            return PreviousAnswer::default();
        };
        let mut records = vec![first.clone()];
        let mut walk = version::Previous::new(request.version.h, request.most as usize);
        while let version::Step::Need(h) = walk.step() {
            let Some((_, version)) = state.versions.get(&h) else { break };
            let links = version::Links::from(&version.view());
            walk.give(&h, &links).unwrap();
        }
        let mut missing = None;
        for h in walk.found() {
            match state.versions.get(h) {
                Some((record, _)) => records.push(record.clone()),
                None => {
                    missing = Some(*h);
                    break;
                }
            }
        }
        PreviousAnswer { records, missing }
    }

    fn tips(&self, object: &ObjectKey) -> ObjectTips {
        let state = self.state.lock().unwrap();
        let Some(record) = state.objects.get(object) else { return ObjectTips::default() };
        let decoded = ObjectRecord::decode(&record.bytes).unwrap();
        let policy = state.policies.of(&decoded);
        let policy = policy.and_then(|policy| {
            state.policy_records.get(&(policy.owner, policy.for_what.clone())).cloned()
        });
        let own = state.versions.iter().filter(|(_, (_, version))| version.object == *object);
        let tips = own.filter(|(h, _)| !state.bases.contains(*h));
        let tips = tips.filter_map(|(h, _)| self.found(&state, h, true)).collect();
        let full = state.regions.iter().filter(|((of, _), _)| of == object);
        let limit = match state.policies.of(&decoded).map_or(0, |policy| policy.region_bytes) {
            0 => *self.region.lock().unwrap(),
            bytes => bytes,
        };
        let redirects = full.filter(|(_, used)| **used + 200 > limit).filter_map(|((_, n), _)| {
            let number = n.number(self.suite, object)?;
            let next = Hint::overflow(self.suite, object, number + 1)?;
            Some(Redirect::sign(&self.key, self.network, *object, (*n, next), 1).encode())
        });
        let redirects = redirects.collect();
        ObjectTips { object: Some(record.clone()), policy, tips, more: false, redirects }
    }

    fn heads(&self, owner: &PublicKey, object: &ObjectKey, branch: &[u8]) -> HeadsAnswer {
        let state = self.state.lock().unwrap();
        let of = |head: &BranchName| {
            head.object(self.suite).ok() == Some(*object) && head.branch.as_bytes() == branch
        };
        let heads = state.heads.values().filter(|(_, head)| of(&head.branch));
        let heads = heads.map(|(record, _)| record.clone()).collect();
        let devices = state.devices.get(owner).map(|(record, _)| record.clone());
        HeadsAnswer { heads, devices }
    }

    fn answer(&self, caller: Caller, request: ObjectsRequest) -> Result<ObjectsAnswer, CallError> {
        let denied = || CallError::Denied { reason: "not a reader".to_owned() };
        Ok(match request {
            ObjectsRequest::Put(put) => ObjectsAnswer::Put(self.put(put)),
            ObjectsRequest::Get(get) => {
                let answers = get.versions.iter().map(|at| {
                    if !self.reads(caller, get.reader.as_ref(), &at.object) {
                        return Err(denied());
                    }
                    Ok(self.found(&self.state.lock().unwrap(), &at.h, get.attested))
                });
                ObjectsAnswer::Get(answers.collect())
            }
            ObjectsRequest::Previous(get) => {
                if !self.reads(caller, get.reader.as_ref(), &get.version.object) {
                    return Err(denied());
                }
                ObjectsAnswer::Previous(self.previous(&get))
            }
            ObjectsRequest::Tips(get) => {
                let answers = get.objects.iter().map(|object| {
                    if !self.reads(caller, get.reader.as_ref(), object) {
                        return Err(denied());
                    }
                    Ok(self.tips(object))
                });
                ObjectsAnswer::Tips(answers.collect())
            }
            ObjectsRequest::Heads(get) => {
                ObjectsAnswer::Heads(self.heads(&get.owner, &get.object, &get.branch))
            }
            ObjectsRequest::List(list) => {
                let state = self.state.lock().unwrap();
                let mut found: Vec<(Bytes, Record)> = Vec::new();
                for record in state.objects.values() {
                    let object = ObjectRecord::decode(&record.bytes).unwrap();
                    let name = &object.name;
                    let fits = name.starts_with(&list.prefix) && *name > list.after;
                    if fits && object.owner == list.owner {
                        found.push((object.name, record.clone()));
                    }
                }
                found.sort_by(|a, b| a.0.cmp(&b.0));
                found.truncate(list.most as usize);
                ObjectsAnswer::List(found.into_iter().map(|(_, record)| record).collect())
            }
            _ => return Err(CallError::Invalid { reason: "unknown".to_owned() }),
        })
    }

    fn watched(&self, what: &Watched, found: &FoundVersion) -> bool {
        let record = &found.record;
        match (what, record.kind) {
            (Watched::Objects(objects), Kind::Version) => {
                objects.contains(&Version::decode(&record.bytes).unwrap().object)
            }
            (Watched::Family(owner, prefix), Kind::Version) => {
                let object = Version::decode(&record.bytes).unwrap().object;
                let state = self.state.lock().unwrap();
                state.objects.get(&object).is_some_and(|record| {
                    let object = ObjectRecord::decode(&record.bytes).unwrap();
                    object.owner == *owner && object.name.starts_with(prefix)
                })
            }
            (Watched::Branch(_, object, branch), Kind::Head) => {
                let head = Head::verify(&record.bytes).unwrap();
                head.branch.object(self.suite).ok() == Some(*object)
                    && head.branch.branch.as_bytes() == &branch[..]
            }
            _ => false,
        }
    }

    fn all_tips(&self, what: &Watched) -> Vec<FoundVersion> {
        let keys: Vec<ObjectKey> = match what {
            Watched::Objects(objects) => objects.clone(),
            Watched::Family(..) => self.state.lock().unwrap().objects.keys().copied().collect(),
            Watched::Branch(owner, object, branch) => {
                let heads = self.heads(owner, object, branch).heads;
                let found = |record| FoundVersion { record, attestation: None };
                return heads.into_iter().map(found).collect();
            }
        };
        let tips = keys.iter().flat_map(|key| self.tips(key).tips);
        tips.filter(|found| self.watched(what, found)).collect()
    }

    fn watch_from(self: Arc<Self>, request: WatchRequest) -> WatchEvents {
        let mut log = self.events.subscribe();
        let now = log.borrow_and_update().clone();
        let next = now.first + now.records.len() as u64;
        let cursor = |next: u64| WatchCursor { peer: self.id, run: now.run, next };
        let resumes = |from: &&WatchCursor| {
            from.peer == self.id && from.run == now.run && from.next >= now.first
        };
        let mut first = Vec::new();
        match request.from.as_ref().filter(resumes) {
            Some(from) => {
                let skip = (from.next - now.first) as usize;
                for (at, found) in now.records.iter().enumerate().skip(skip) {
                    if self.watched(&request.what, found) {
                        let cursor = Some(cursor(now.first + at as u64 + 1));
                        first.push(WatchEvent::Record { found: found.clone(), cursor });
                    }
                }
            }
            None => {
                if request.from.is_some() {
                    first.push(WatchEvent::Gap);
                }
                let tips = self.all_tips(&request.what).into_iter();
                first.extend(tips.map(|found| WatchEvent::Record { found, cursor: None }));
            }
        }
        first.push(WatchEvent::CaughtUp(cursor(next)));
        let first = futures::stream::iter(first.into_iter().map(Ok).collect::<Vec<_>>());
        let keeper = self.clone();
        let state = (log, next, now.run);
        let news = futures::stream::unfold(state, move |(mut log, next, run)| {
            let (keeper, what) = (keeper.clone(), request.what.clone());
            async move {
                log.changed().await.ok()?;
                let now = log.borrow_and_update().clone();
                if now.run != run {
                    return None;
                }
                let skip = (next - now.first) as usize;
                let mut events = Vec::new();
                for (at, found) in now.records.iter().enumerate().skip(skip) {
                    if keeper.watched(&what, found) {
                        let next = now.first + at as u64 + 1;
                        let cursor = Some(WatchCursor { peer: keeper.id, run, next });
                        events.push(Ok(WatchEvent::Record { found: found.clone(), cursor }));
                    }
                }
                let next = now.first + now.records.len() as u64;
                Some((futures::stream::iter(events), (log, next, run)))
            }
        });
        first.chain(news.flatten()).boxed()
    }
}

/// What is served: a keeper that is shared with its test.
pub(crate) struct Served(pub(crate) Arc<Keeper>);

#[async_trait]
impl Service for Served {
    async fn committee(
        &self,
        _: Caller,
        request: CommitteeRequest,
    ) -> Result<CommitteeAnswer, CallError> {
        let hosted = self.0.hosted.lock().unwrap().clone();
        if matches!(request.ask, CommitteeAsk::Read { at: Some(_), .. }) {
            let waits = *self.0.waits.lock().unwrap();
            self.0.env.clock.sleep(waits).await;
        }
        hosted.ok_or(CallError::NotFound)?(request.ask)
    }
    async fn introduce(
        &self,
        caller: Caller,
        request: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError> {
        self.0.memory.introduce(caller, request).await
    }
    async fn find(&self, caller: Caller, request: FindRequest) -> Result<FindResponse, CallError> {
        self.0.memory.find(caller, request).await
    }
    async fn find_batch(
        &self,
        caller: Caller,
        requests: Vec<FindRequest>,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        self.0.memory.find_batch(caller, requests).await
    }
    async fn verify(
        &self,
        caller: Caller,
        request: VerifyRequest,
    ) -> Result<VerifyResponse, CallError> {
        self.0.memory.verify(caller, request).await
    }
    async fn verify_batch(
        &self,
        caller: Caller,
        requests: Vec<VerifyRequest>,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        self.0.memory.verify_batch(caller, requests).await
    }
    async fn store(&self, caller: Caller, record: Record) -> Result<StoreOutcome, CallError> {
        self.0.memory.store(caller, record).await
    }
    async fn store_batch(
        &self,
        caller: Caller,
        records: Vec<Record>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        self.0.memory.store_batch(caller, records).await
    }
    async fn put(
        &self,
        caller: Caller,
        record: Record,
        wait: Duration,
    ) -> Result<PutResponse, CallError> {
        self.0.memory.put(caller, record, wait).await
    }
    async fn get(&self, caller: Caller, request: FindRequest) -> Result<Record, CallError> {
        self.0.memory.get(caller, request).await
    }
    async fn subscribe(
        &self,
        caller: Caller,
        request: SubscribeRequest,
    ) -> Result<Events, CallError> {
        self.0.memory.subscribe(caller, request).await
    }
    async fn objects(
        &self,
        caller: Caller,
        request: ObjectsRequest,
    ) -> Result<ObjectsAnswer, CallError> {
        let answer = self.0.answer(caller, request)?;
        let lie = self.0.lie.lock().unwrap().clone();
        Ok(lie.map_or_else(|| answer.clone(), |lie| lie(answer.clone())))
    }
    async fn watch(
        &self,
        _caller: Caller,
        request: WatchRequest,
    ) -> Result<WatchEvents, CallError> {
        let events = self.0.clone().watch_from(request);
        Ok(match self.0.watch_lie.lock().unwrap().clone() {
            Some(lie) => events.map(move |event| event.map(|event| lie(event))).boxed(),
            None => events,
        })
    }
}
