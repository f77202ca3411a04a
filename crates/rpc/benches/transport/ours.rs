//! Our own client and server, as a librarian and its members use them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::{NetworkId, PeerId, Place, RecordId, SecretKey};
use document::Record;
use env::Env;
use env::calls::*;
use rpc::{Client, ClientLimits, Identity, RpcError, Server, ServerLimits};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::measure::{Kind, LARGE_BYTES, SMALL_BYTES, Way};

const LIMIT: Duration = Duration::from_secs(60);

/// A librarian that keeps nothing and vouches for everybody: the transport alone is measured.
struct Null([Record; 2]);

impl Null {
    fn answer(&self, request: FindRequest) -> FindResponse {
        FindResponse::Found(self.0[usize::from(request.id.as_bytes()[0])].clone())
    }
}

fn unused<T>() -> Result<T, CallError> {
    Err(CallError::Invalid { reason: "not measured".into() })
}

#[async_trait]
impl Service for Null {
    async fn introduce(
        &self,
        _: Caller,
        _: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError> {
        Ok(IntroduceResponse {
            announcement: Bytes::new(),
            peers: Vec::new(),
            roster: 0,
            unix_ms: 0,
            records: 0,
            bytes: 0,
            rosters: Vec::new(),
            revocations: Vec::new(),
            member: None,
        })
    }
    async fn find(&self, _: Caller, request: FindRequest) -> Result<FindResponse, CallError> {
        Ok(self.answer(request))
    }
    async fn find_batch(
        &self,
        _: Caller,
        requests: Vec<FindRequest>,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        Ok(requests.into_iter().map(|request| Ok(self.answer(request))).collect())
    }
    async fn verify(&self, _: Caller, _: VerifyRequest) -> Result<VerifyResponse, CallError> {
        unused()
    }
    async fn verify_batch(
        &self,
        _: Caller,
        _: Vec<VerifyRequest>,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        unused()
    }
    async fn store(&self, _: Caller, _: Record) -> Result<StoreOutcome, CallError> {
        Ok(StoreOutcome::Stored)
    }
    async fn store_batch(
        &self,
        _: Caller,
        records: Vec<Record>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        Ok(records.iter().map(|_| Ok(StoreOutcome::Stored)).collect())
    }
    async fn put(&self, _: Caller, _: Record, _: Duration) -> Result<PutResponse, CallError> {
        unused()
    }
    async fn get(&self, _: Caller, _: FindRequest) -> Result<Record, CallError> {
        unused()
    }
    async fn subscribe(&self, _: Caller, _: SubscribeRequest) -> Result<Events, CallError> {
        unused()
    }
}

fn record(large: bool) -> Record {
    let (first, len) = if large { (1, LARGE_BYTES) } else { (0, SMALL_BYTES) };
    let id = RecordId::new([first; 32]);
    Record { kind: document::Kind::Page, id, place: Place::from(id), bytes: vec![7; len].into() }
}

pub(crate) struct Ours {
    client: Arc<Client>,
    to: Endpoint,
    records: [Record; 2],
    stop: CancellationToken,
    serving: Mutex<Option<JoinHandle<Result<(), RpcError>>>>,
}

impl Ours {
    pub(crate) async fn start() -> Arc<Self> {
        let network = NetworkId::new([1; 32]);
        let identity = |byte| {
            let secret = SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key");
            Identity::new(secret, network).expect("an identity")
        };
        let peer = PeerId::new(*identity(1).key());
        let server = Server::bind("127.0.0.1:0", identity(1), ServerLimits::default());
        let server = server.expect("a free port");
        let to = Endpoint::of(peer, server.address().to_string());
        let (stop, env) = (CancellationToken::new(), Env::real());
        let service = Arc::new(Null([record(false), record(true)]));
        let serving = tokio::spawn(server.serve(service, env.clone(), stop.clone()));
        // Without a credential the windows would be a stranger's.
        let pass = || Credential::Client(Bytes::from_static(b"pass"));
        let client = Client::new(identity(2), Arc::new(pass), env, ClientLimits::default());
        let records = [record(false), record(true)];
        let serving = Mutex::new(Some(serving));
        Arc::new(Self { client, to, records, stop, serving })
    }

    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        let serving = self.serving.lock().await.take().expect("stopped once");
        serving.await.expect("it ends").expect("it ends well");
    }
}

#[async_trait]
impl Way for Ours {
    async fn call(&self, kind: Kind, _: usize) {
        let large = matches!(kind, Kind::StoreLarge | Kind::FindLarge);
        let record = &self.records[usize::from(large)];
        match kind {
            Kind::StoreLarge | Kind::StoreSmall => {
                self.client.store(&self.to, record.clone(), LIMIT).await.expect("stored");
            }
            Kind::FindLarge | Kind::FindSmall => {
                let request = FindRequest { id: record.id, place: record.place };
                self.client.find(&self.to, request, LIMIT).await.expect("found");
            }
        }
    }
}
