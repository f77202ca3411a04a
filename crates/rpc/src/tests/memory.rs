//! A librarian over a map, with ids that misbehave.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::{OrgId, Place, PublicKey, RecordId, Suite};
use document::{Kind, Record};
use env::calls::keep::*;
use env::calls::objects::*;
use env::calls::*;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

/// Finding this one never ends.
pub(crate) const HANGS: RecordId = RecordId::new([0xee; 32]);
/// Finding this one panics.
pub(crate) const PANICS: RecordId = RecordId::new([0xdd; 32]);
/// Finding this one takes until [`Memory::slow`] is cancelled.
pub(crate) const SLOW: RecordId = RecordId::new([0xcc; 32]);
/// Finding this one needs an introduction.
pub(crate) const PRIVATE: RecordId = RecordId::new([0xbb; 32]);
/// Strangers that ask for this hear that the peer is busy.
pub(crate) const MEMBERS_FIRST: RecordId = RecordId::new([0xbc; 32]);

/// A record of these bytes: content that proves itself.
pub(crate) fn record(bytes: impl Into<Bytes>) -> Record {
    let bytes = bytes.into();
    let id = Suite::Holdfast1.id(&bytes);
    Record { kind: Kind::Page, id, place: Place::from(id), bytes }
}

pub(crate) fn of(id: RecordId) -> FindRequest {
    FindRequest { id, place: Place::from(id) }
}

#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) records: Mutex<HashMap<RecordId, Record>>,
    pub(crate) callers: Mutex<HashSet<PublicKey>>,
    pub(crate) introductions: Mutex<Vec<Credential>>,
    pub(crate) known: Mutex<HashSet<PublicKey>>,
    /// How it announces itself instead.
    pub(crate) announcement: Mutex<Option<Bytes>>,
    pub(crate) asked: Mutex<Vec<RecordId>>,
    /// Keys that nobody vouches for any more.
    pub(crate) revoked: Mutex<HashSet<PublicKey>>,
    /// Ends the wait of those that find [`SLOW`].
    pub(crate) slow: CancellationToken,
    pub(crate) objects: Mutex<Script>,
    pub(crate) keeping: Mutex<Keeping>,
}

/// What calls that keep the network asked, and what they are answered.
#[derive(Default)]
pub(crate) struct Keeping {
    pub(crate) requests: Vec<KeepRequest>,
    pub(crate) answer: Option<Result<KeepAnswer, CallError>>,
    /// Whether callers may ask nothing of that.
    pub(crate) closed: bool,
}

/// What calls about objects asked, and what they are answered.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) requests: Vec<ObjectsRequest>,
    pub(crate) answer: Option<Result<ObjectsAnswer, CallError>>,
    pub(crate) watches: Vec<WatchRequest>,
    pub(crate) events: Vec<Result<WatchEvent, CallError>>,
    /// Whether watches stay open after their events.
    pub(crate) goes_on: bool,
}

pub(crate) fn closest() -> Vec<Bytes> {
    vec![Bytes::from_static(b"first"), Bytes::from_static(b"second")]
}

#[async_trait]
impl Service for Memory {
    fn vouched_by(&self, caller: Caller) -> Option<OrgId> {
        let revoked = self.revoked.lock().unwrap().contains(&caller.key);
        (!revoked).then(|| OrgId::new(caller.key))
    }

    async fn introduce(
        &self,
        caller: Caller,
        request: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError> {
        self.known.lock().unwrap().insert(caller.key);
        self.introductions.lock().unwrap().push(request.credential);
        let known = KnownPeer { announcement: Bytes::from_static(b"other"), last_good_ms: Some(0) };
        let announcement = self.announcement.lock().unwrap().clone();
        Ok(IntroduceResponse {
            announcement: announcement.unwrap_or(Bytes::from_static(b"mine")),
            peers: vec![known; request.peers_max as usize],
            roster: 7,
            unix_ms: 8,
            records: 9,
            bytes: 10,
            rosters: vec![Bytes::from_static(b"roster")],
            revocations: vec![Bytes::from_static(b"revocation")],
            member: Some(Bytes::from_static(b"card")),
        })
    }

    async fn find(&self, caller: Caller, request: FindRequest) -> Result<FindResponse, CallError> {
        self.callers.lock().unwrap().insert(caller.key);
        self.asked.lock().unwrap().push(request.id);
        match request.id {
            HANGS => std::future::pending().await,
            PANICS => panic!("asked to"),
            SLOW => self.slow.cancelled().await,
            PRIVATE if !self.known.lock().unwrap().contains(&caller.key) => {
                return Err(CallError::Denied { reason: "who are you".into() });
            }
            MEMBERS_FIRST if !self.known.lock().unwrap().contains(&caller.key) => {
                return Err(CallError::Busy { retry_after: Duration::from_secs(1) });
            }
            _ => {}
        }
        match self.records.lock().unwrap().get(&request.id) {
            Some(record) => Ok(FindResponse::Found(record.clone())),
            None => Ok(FindResponse::Closest(closest())),
        }
    }

    async fn find_batch(
        &self,
        caller: Caller,
        requests: Vec<FindRequest>,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        Ok(futures::future::join_all(requests.into_iter().map(|one| self.find(caller, one))).await)
    }

    async fn verify(&self, _: Caller, request: VerifyRequest) -> Result<VerifyResponse, CallError> {
        match self.records.lock().unwrap().get(&request.id) {
            Some(record) => {
                let mac = Suite::Holdfast1.mac(&request.mac_key, &record.bytes);
                Ok(VerifyResponse::Mac(mac))
            }
            None => Ok(VerifyResponse::Closest(closest())),
        }
    }

    async fn verify_batch(
        &self,
        caller: Caller,
        requests: Vec<VerifyRequest>,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        let all = requests.into_iter().map(|one| self.verify(caller, one));
        Ok(futures::future::join_all(all).await)
    }

    async fn store(&self, _: Caller, record: Record) -> Result<StoreOutcome, CallError> {
        if Suite::Holdfast1.id(&record.bytes) != record.id {
            return Err(CallError::Invalid { reason: "the id is not the bytes' hash".into() });
        }
        match self.records.lock().unwrap().insert(record.id, record) {
            None => Ok(StoreOutcome::Stored),
            Some(_) => Ok(StoreOutcome::Present),
        }
    }

    async fn store_batch(
        &self,
        caller: Caller,
        records: Vec<Record>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        let all = records.into_iter().map(|one| self.store(caller, one));
        Ok(futures::future::join_all(all).await)
    }

    /// Tells what it was asked to wait in `acked`, in seconds.
    async fn put(
        &self,
        caller: Caller,
        record: Record,
        wait: Duration,
    ) -> Result<PutResponse, CallError> {
        self.store(caller, record).await?;
        Ok(PutResponse { acked: 1 + wait.as_secs() as u32, wanted: 30 })
    }

    async fn get(&self, caller: Caller, request: FindRequest) -> Result<Record, CallError> {
        match self.find(caller, request).await? {
            FindResponse::Found(record) => Ok(record),
            FindResponse::Closest(_) => Err(CallError::NotFound),
        }
    }

    async fn objects(
        &self,
        _: Caller,
        request: ObjectsRequest,
    ) -> Result<ObjectsAnswer, CallError> {
        let mut script = self.objects.lock().unwrap();
        script.requests.push(request);
        script.answer.clone().unwrap_or(Err(CallError::NotFound))
    }

    fn may_keep(&self, _: &Caller) -> Result<(), CallError> {
        match self.keeping.lock().unwrap().closed {
            true => Err(CallError::Denied { reason: "peers alone".into() }),
            false => Ok(()),
        }
    }

    async fn keep(&self, _: Caller, request: KeepRequest) -> Result<KeepAnswer, CallError> {
        let mut keeping = self.keeping.lock().unwrap();
        keeping.requests.push(request);
        keeping.answer.clone().unwrap_or(Err(CallError::NotFound))
    }

    async fn watch(&self, _: Caller, request: WatchRequest) -> Result<WatchEvents, CallError> {
        let mut script = self.objects.lock().unwrap();
        script.watches.push(request);
        let events = futures::stream::iter(std::mem::take(&mut script.events));
        if script.goes_on {
            return Ok(events.chain(futures::stream::pending()).boxed());
        }
        Ok(events.boxed())
    }

    async fn subscribe(&self, _: Caller, request: SubscribeRequest) -> Result<Events, CallError> {
        let cursor = request.from;
        let first = vec![
            Ok(SubscribeEvent::Gap { cursor }),
            Ok(SubscribeEvent::Publication {
                publication: Bytes::from_static(b"publication"),
                received_ms: 5,
                cursor,
            }),
            Ok(SubscribeEvent::CaughtUp { cursor }),
        ];
        let first = futures::stream::iter(first);
        if request.follow {
            return Ok(first.chain(futures::stream::pending()).boxed());
        }
        Ok(first.boxed())
    }
}
