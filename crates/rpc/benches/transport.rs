//! MB/s of 2 MiB records and calls/s of 256-byte ones, over real sockets and TLS on loopback, both
//! sides in one process, beside the figures the design was chosen by.
//!
//! `cargo bench -p rpc --bench transport [-- PART OF A ROW'S NAME..]`. Absolute figures do not repeat on shared machines: read them as +-20 %.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use crypto::{NetworkId, PeerId, Place, RecordId, SecretKey};
use document::{Kind, Record};
use env::Env;
use env::calls::*;
use rpc::{Client, ClientLimits, Identity, Server, ServerLimits};
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(60);
const LARGE_BYTES: usize = 2 << 20;
const SMALL_BYTES: usize = 256;
/// Each row runs for about this long.
const ROW: Duration = Duration::from_secs(3);

/// A librarian that keeps nothing: the transport alone is measured.
struct Null(Bytes, Bytes);

impl Null {
    fn answer(&self, request: FindRequest) -> FindResponse {
        let large = request.id.as_bytes()[0] == 1;
        let bytes = if large { self.0.clone() } else { self.1.clone() };
        let FindRequest { id, place } = request;
        FindResponse::Found(Record { kind: Kind::Page, id, place, bytes })
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
        unused()
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
    async fn put(&self, _: Caller, _: Record) -> Result<PutResponse, CallError> {
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
    Record { kind: Kind::Page, id, place: Place::from(id), bytes: vec![7; len].into() }
}

/// Processor time of this process so far, in clock ticks of 10 ms: on a busy machine it repeats where
/// rates do not.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |at| after_name.split_whitespace().nth(at).and_then(|text| text.parse().ok());
    field(11).unwrap_or(0) + field(12).unwrap_or(0u64)
}

/// Calls a second with so many in flight, the median call, and processor time a call.
async fn rate(
    client: &Arc<Client>,
    to: &Endpoint,
    store: bool,
    large: bool,
    in_flight: usize,
) -> (f64, Duration, Duration) {
    let (ticks_before, started) = (ticks(), Instant::now());
    let workers = (0..in_flight).map(|_| {
        let (client, to, record) = (client.clone(), to.clone(), record(large));
        tokio::spawn(async move {
            let mut times = Vec::new();
            while started.elapsed() < ROW {
                let call = Instant::now();
                if store {
                    client.store(&to, record.clone(), LIMIT).await.expect("stored");
                } else {
                    let request = FindRequest { id: record.id, place: record.place };
                    client.find(&to, request, LIMIT).await.expect("found");
                }
                times.push(call.elapsed());
            }
            times
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut times = Vec::new();
    for worker in workers {
        times.extend(worker.await.expect("the worker ends"));
    }
    times.sort_unstable();
    let processor = Duration::from_millis(10 * (ticks() - ticks_before));
    let calls = u32::try_from(times.len()).expect("few");
    let rate = f64::from(calls) / started.elapsed().as_secs_f64();
    (rate, times[times.len() / 2], processor / calls)
}

async fn run() {
    let network = NetworkId::new([1; 32]);
    let identity = |byte| {
        let secret = SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key");
        Identity::new(secret, network).expect("an identity")
    };
    let peer = PeerId::new(*identity(1).key());
    let server = Server::bind("127.0.0.1:0", identity(1), ServerLimits::default());
    let server = server.expect("a free port");
    let to = Endpoint { peer: Some(peer), address: server.address().to_string() };
    let (stop, env) = (CancellationToken::new(), Env::real());
    let service = Arc::new(Null(record(true).bytes, record(false).bytes));
    let serving = tokio::spawn(server.serve(service, env.clone(), stop.clone()));
    let client =
        Client::new(identity(2), Arc::new(|| Credential::None), env, ClientLimits::default());

    let only: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    println!("{:<27} {:>10} {:>10} {:>12}   design's figure", "", "rate", "p50", "processor");
    let rows = [
        ("store 2 MiB, 1 in flight", true, true, 1, "3,554 MB/s up (streamed)"),
        ("store 2 MiB, 4 in flight", true, true, 4, "2,593 MB/s"),
        ("find 2 MiB, 1 in flight", false, true, 1, "1,316 MB/s down (16 KiB frames)"),
        ("find 2 MiB, 4 in flight", false, true, 4, "2,593 MB/s"),
        ("store 256 B, 1 in flight", true, false, 1, "14,100/s, 69 us"),
        ("store 256 B, 64 in flight", true, false, 64, "60,000/s"),
        ("find 256 B, 64 in flight", false, false, 64, "60,000/s"),
    ];
    for (name, store, large, in_flight, figure) in rows {
        if !only.is_empty() && !only.iter().any(|only| name.contains(only.as_str())) {
            continue;
        }
        let (calls, p50, processor) = rate(&client, &to, store, large, in_flight).await;
        let rate = match large {
            true => format!("{:.0} MB/s", calls * LARGE_BYTES as f64 / 1e6),
            false => format!("{calls:.0}/s"),
        };
        let (p50, processor) = (p50.as_micros(), processor.as_nanos() as f64 / 1e3);
        println!("{name:<27} {rate:>10} {p50:>7} us {processor:>9.1} us   {figure}");
    }
    stop.cancel();
    serving.await.expect("it ends").expect("it ends well");
}

fn main() {
    // `cargo test --all-targets` runs this too, and means nothing by it.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(run());
}
