//! A memory peer that also keeps a log of publications, and can change what it sends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::PeerId;
use document::{Bloom, Document, Kind, Publication, Record};
use env::Env;
use env::calls::{
    CallError, Caller, Cursor, Events, FindRequest, FindResponse, IntroduceRequest,
    IntroduceResponse, PutResponse, Service, StoreOutcome, SubscribeEvent, SubscribeRequest,
    VerifyRequest, VerifyResponse,
};
use futures::{FutureExt, StreamExt};
use testkit::network::MemoryPeer;
use tokio::sync::watch;

/// What every peer of a network shares: the news, and what a liar makes of records.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) log: watch::Sender<Vec<(Publication, u64)>>,
    pub(crate) tamper: Arc<Mutex<Option<Tamper>>>,
}

pub(crate) type Tamper = Arc<dyn Fn(Record) -> Record + Send + Sync>;

impl Shared {
    pub(crate) fn new() -> Self {
        Self { log: watch::channel(Vec::new()).0, tamper: Arc::default() }
    }

    pub(crate) fn tamper(&self, with: Option<Tamper>) {
        *self.tamper.lock().unwrap() = with;
    }
}

pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) memory: Arc<MemoryPeer>,
    pub(crate) shared: Shared,
    pub(crate) env: Env,
    /// Where this peer's log starts: what is before was dropped.
    pub(crate) log_start: Mutex<u64>,
    /// Publications that it makes up.
    pub(crate) invented: Mutex<Vec<Publication>>,
    /// Whether its log has no end: it tells the same again and again, and never that this is all.
    pub(crate) endless: AtomicBool,
    /// Whether some of its log is damaged where readers ask.
    pub(crate) damaged: AtomicBool,
    /// How long it takes to tell its log, with a sign of life each minute.
    pub(crate) slow: Mutex<Duration>,
    /// Whether it takes pages alone.
    pub(crate) pages_alone: AtomicBool,
    /// Whether it answers that it has whatever it is asked to prove.
    pub(crate) claims_all: AtomicBool,
}

impl Peer {
    fn sent(&self, answer: FindResponse) -> FindResponse {
        match (self.shared.tamper.lock().unwrap().clone(), answer) {
            (Some(tamper), FindResponse::Found(record)) => FindResponse::Found(tamper(record)),
            (_, answer) => answer,
        }
    }

    /// Whether it refuses entries and envelopes.
    pub(crate) fn refuse_entries(&self, refuse: bool) {
        self.pages_alone.store(refuse, Ordering::Release);
    }

    fn took(&self, record: &Record) {
        let Ok(Document::Envelope(envelope)) = Document::decode(&record.bytes) else { return };
        let publication = Publication::from_envelope(record.id, &envelope);
        let now = self.env.clock.unix_ms();
        self.shared.log.send_if_modified(|log| {
            let new = log.iter().all(|(known, _)| known.envelope != publication.envelope);
            if new {
                log.push((publication, now));
            }
            new
        });
    }

    fn event(&self, offset: usize, publication: &Publication, unix_ms: u64) -> SubscribeEvent {
        SubscribeEvent::Publication {
            publication: publication.encode(),
            received_ms: unix_ms,
            cursor: Cursor { peer: Some(self.id), offset: offset as u64 + 1, unix_ms },
        }
    }
}

#[async_trait]
impl Service for Peer {
    async fn introduce(
        &self,
        caller: Caller,
        request: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError> {
        self.memory.introduce(caller, request).await
    }

    async fn find(&self, caller: Caller, request: FindRequest) -> Result<FindResponse, CallError> {
        self.memory.find(caller, request).await.map(|answer| self.sent(answer))
    }

    async fn find_batch(
        &self,
        caller: Caller,
        requests: Vec<FindRequest>,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        let answers = self.memory.find_batch(caller, requests).await?;
        Ok(answers.into_iter().map(|answer| answer.map(|answer| self.sent(answer))).collect())
    }

    async fn verify(
        &self,
        caller: Caller,
        request: VerifyRequest,
    ) -> Result<VerifyResponse, CallError> {
        self.memory.verify(caller, request).await
    }

    async fn verify_batch(
        &self,
        caller: Caller,
        requests: Vec<VerifyRequest>,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        if self.claims_all.load(Ordering::Acquire) {
            return Ok(requests.iter().map(|_| Ok(VerifyResponse::Mac([7; 32]))).collect());
        }
        self.memory.verify_batch(caller, requests).await
    }

    async fn store(&self, caller: Caller, record: Record) -> Result<StoreOutcome, CallError> {
        if self.pages_alone.load(Ordering::Acquire) && record.kind != Kind::Page {
            return Err(CallError::ReadOnly { reason: "pages alone".to_owned() });
        }
        let outcome = self.memory.store(caller, record.clone()).await?;
        self.took(&record);
        Ok(outcome)
    }

    async fn store_batch(
        &self,
        caller: Caller,
        records: Vec<Record>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        let outcomes = self.memory.store_batch(caller, records.clone()).await?;
        records.iter().for_each(|record| self.took(record));
        Ok(outcomes)
    }

    async fn put(
        &self,
        caller: Caller,
        record: Record,
        wait: Duration,
    ) -> Result<PutResponse, CallError> {
        self.memory.put(caller, record, wait).await
    }

    async fn get(&self, caller: Caller, request: FindRequest) -> Result<Record, CallError> {
        self.memory.get(caller, request).await
    }

    /// Sends the log from the cursor, then *caught up*, then new ones. Two minutes are replayed to a cursor of another peer.
    async fn subscribe(
        &self,
        _caller: Caller,
        request: SubscribeRequest,
    ) -> Result<Events, CallError> {
        let filter = |bytes: &Bytes| Bloom::decode(bytes).expect("the author's filter is valid");
        let (authors, readers) =
            (request.authors.as_ref().map(filter), request.readers.as_ref().map(filter));
        let passes = move |publication: &Publication| {
            let by = |filter: &Option<Bloom>, key: &[u8]| {
                filter.as_ref().is_none_or(|filter| filter.may_contain(key))
            };
            by(&authors, publication.author.as_bytes())
                && by(&readers, publication.reader.as_bytes())
        };
        assert!(request.authors.is_some() || request.readers.is_some(), "everything is asked for");
        let mut log = self.shared.log.subscribe();
        let start = *self.log_start.lock().unwrap() as usize;
        let mut first = Vec::new();
        for publication in self.invented.lock().unwrap().iter() {
            first.push(Ok(self.event(0, publication, 0)));
        }
        if request.readers.is_some() && self.damaged.load(Ordering::Acquire) {
            let cursor = Cursor { peer: Some(self.id), ..Cursor::default() };
            first.push(Ok(SubscribeEvent::Gap { cursor }));
        }
        let (from, mut sent) = (request.from, 0);
        {
            let known = log.borrow_and_update();
            let own = from.peer == Some(self.id);
            if (own && (from.offset as usize) < start) || (!own && from.unix_ms > 0 && start > 0) {
                let cursor = Cursor { peer: Some(self.id), offset: start as u64, unix_ms: 0 };
                first.push(Ok(SubscribeEvent::Gap { cursor }));
            }
            for (offset, (publication, at)) in known.iter().enumerate() {
                let wanted =
                    if own { offset as u64 >= from.offset } else { *at + 120_000 >= from.unix_ms };
                if offset >= start && wanted && passes(publication) {
                    first.push(Ok(self.event(offset, publication, *at)));
                }
                sent = offset + 1;
            }
            let unix_ms = known.last().map_or(0, |(_, at)| *at);
            let cursor = Cursor { peer: Some(self.id), offset: sent as u64, unix_ms };
            first.push(Ok(SubscribeEvent::CaughtUp { cursor }));
        }
        if self.endless.load(Ordering::Acquire) {
            first.pop();
            first.push(Ok(SubscribeEvent::Publication {
                publication: Bytes::from_static(b"nothing"),
                received_ms: 0,
                cursor: Cursor::default(),
            }));
            let (clock, again) = (self.env.clock.clone(), first.clone());
            let endless = futures::stream::iter(first)
                .chain(futures::stream::iter(again).cycle())
                .then(move |event| clock.sleep(Duration::from_millis(10)).map(|()| event));
            return Ok(endless.boxed());
        }
        let slow = *self.slow.lock().unwrap();
        if slow > Duration::ZERO {
            let minute = Duration::from_secs(60);
            let sign = SubscribeEvent::Publication {
                publication: Bytes::from_static(b"nothing"),
                received_ms: 0,
                cursor: Cursor { peer: Some(self.id), ..Cursor::default() },
            };
            let clock = self.env.clock.clone();
            let minutes = (slow.as_secs() / 60) as usize;
            let signs = futures::stream::iter(std::iter::repeat_n(sign, minutes))
                .then(move |sign| clock.sleep(minute).map(|()| Ok(sign)));
            return Ok(signs.chain(futures::stream::iter(first)).boxed());
        }
        let first = futures::stream::iter(first);
        if !request.follow {
            return Ok(first.boxed());
        }
        let id = self.id;
        let news = futures::stream::unfold((log, sent), move |(mut log, sent)| {
            let passes = passes.clone();
            async move {
                log.changed().await.ok()?;
                let new: Vec<_> = log
                    .borrow_and_update()
                    .iter()
                    .enumerate()
                    .skip(sent)
                    .map(|(offset, (publication, at))| (offset, publication.clone(), *at))
                    .collect();
                let sent = sent + new.len();
                let new = new
                    .into_iter()
                    .filter(move |(_, publication, _)| passes(publication))
                    .map(move |(offset, publication, unix_ms)| {
                        Ok(SubscribeEvent::Publication {
                            publication: publication.encode(),
                            received_ms: unix_ms,
                            cursor: Cursor { peer: Some(id), offset: offset as u64 + 1, unix_ms },
                        })
                    });
                Some((futures::stream::iter(new), (log, sent)))
            }
        });
        Ok(first.chain(news.flatten()).boxed())
    }
}
