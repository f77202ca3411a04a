//! Watches over real sockets.

use bytes::Bytes;
use crypto::PeerId;
use document::Kind;
use env::calls::objects::*;
use env::calls::*;
use env::{Clock, SystemClock};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use version::ObjectKey;

use super::objects::{claim, found, record};
use super::*;
use crate::limits::STREAM_SILENCE_MAX;

/// A clock for which the longest silence of a stream is short.
#[derive(Default)]
struct Impatient(SystemClock);

impl Clock for Impatient {
    fn unix_ms(&self) -> u64 {
        self.0.unix_ms()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        match duration {
            STREAM_SILENCE_MAX => tokio::time::sleep(Duration::from_millis(50)).boxed(),
            other => self.0.sleep(other),
        }
    }
}

fn cursor(next: u64) -> WatchCursor {
    WatchCursor { peer: PeerId::new(secret(1).public()), run: u64::MAX, next }
}

fn events() -> Vec<WatchEvent> {
    let told = |kind| FoundVersion { record: record(kind, 3, 60), attestation: None };
    vec![
        WatchEvent::Gap,
        WatchEvent::Record { found: found(1), cursor: None },
        WatchEvent::CaughtUp(cursor(0)),
        WatchEvent::Record { found: told(Kind::Head), cursor: Some(cursor(1)) },
        WatchEvent::Record { found: told(Kind::Devices), cursor: Some(cursor(2)) },
        WatchEvent::CaughtUp(cursor(2)),
    ]
}

pub(crate) fn watches() -> Vec<WatchRequest> {
    let (owner, object) = (secret(3).public(), ObjectKey::new([7; 32]));
    let plain = |what| WatchRequest { what, from: None, reader: None };
    vec![
        WatchRequest {
            what: Watched::Objects(vec![object; OBJECTS_MAX]),
            from: Some(cursor(5)),
            reader: claim(),
        },
        plain(Watched::Family(owner, Bytes::from_static(b"notes/"))),
        plain(Watched::Family(owner, Bytes::new())),
        plain(Watched::Branch(owner, object, Bytes::from_static(b"main"))),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_arrives_passes_its_events_and_ends() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    for request in watches() {
        peer.service.objects.lock().unwrap().events = events().into_iter().map(Ok).collect();
        let told = client.watch(&to, request.clone(), LIMIT).await.unwrap();
        let told: Vec<_> = told.map(Result::unwrap).collect().await;
        assert_eq!(told, events());
        assert_eq!(peer.service.objects.lock().unwrap().watches.pop(), Some(request));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_the_largest_version_and_attestation_arrives() {
    let peer = Running::start(ServerLimits::default());
    let largest = crate::RECORD_BYTES_MAX;
    let found = FoundVersion {
        record: record(Kind::Version, 1, largest),
        attestation: Some(vec![2; largest].into()),
    };
    let event = WatchEvent::Record { found, cursor: Some(cursor(1)) };
    peer.service.objects.lock().unwrap().events = vec![Ok(event.clone())];
    let request = watches().remove(1);
    let mut told = client().watch(&peer.endpoint(), request, LIMIT).await.unwrap();
    assert!(told.next().await == Some(Ok(event)), "another event arrived");
    assert!(told.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_the_last_of_a_watch() {
    let peer = Running::start(ServerLimits::default());
    let denied = CallError::Denied { reason: "no more a reader".into() };
    let all = vec![Ok(WatchEvent::Gap), Err(denied.clone()), Ok(WatchEvent::Gap)];
    peer.service.objects.lock().unwrap().events = all;
    let request = watches().remove(1);
    let told = client().watch(&peer.endpoint(), request, LIMIT).await.unwrap();
    let told: Vec<_> = told.collect().await;
    assert_eq!(told, [Ok(WatchEvent::Gap), Err(denied)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_watched_is_neither_sent_nor_taken() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    let mut wire = crate::client::wire(&identity(2, 1), &to).await.unwrap();
    let (owner, object) = (secret(3).public(), ObjectKey::new([7; 32]));
    let long = |len: usize| Bytes::from(vec![b'a'; len]);
    let wrong = [
        ("256 objects", Watched::Objects(vec![])),
        ("256 objects", Watched::Objects(vec![object; 257])),
        ("prefix", Watched::Family(owner, long(1025))),
        ("branch", Watched::Branch(owner, object, long(0))),
        ("branch", Watched::Branch(owner, object, long(129))),
    ];
    let mut wrong: Vec<_> = wrong
        .into_iter()
        .map(|(name, what)| (name, WatchRequest { what, from: None, reader: None }))
        .collect();
    let claim = Some(Bytes::from_static(b"short"));
    wrong.push(("claim", WatchRequest { reader: claim, ..watches().remove(1) }));
    for (name, request) in wrong {
        let unsent = client.watch(&to, request.clone(), LIMIT).await.map(|_| ());
        let Err(CallError::Invalid { reason }) = unsent else { panic!("{name}: {unsent:?}") };
        assert!(reason.contains(name), "{reason} should name {name}");
        let refused = wire.watch(crate::proto::WatchRequest::from(request)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{name}: {refused:?}");
        assert!(refused.message().contains(name), "{refused:?} should name {name}");
    }
    assert!(peer.service.objects.lock().unwrap().watches.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_end_with_the_server() {
    let peer = Running::start(ServerLimits::default());
    {
        let mut script = peer.service.objects.lock().unwrap();
        script.events = events().into_iter().map(Ok).collect();
        script.goes_on = true;
    }
    let client = client();
    let mut told = client.watch(&peer.endpoint(), watches().remove(0), LIMIT).await.unwrap();
    for _ in events() {
        told.next().await.unwrap().unwrap();
    }
    peer.stop().await;
    assert!(matches!(told.next().await, Some(Err(CallError::Unreachable { .. }))));
    assert!(told.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_which_nothing_comes_for_a_minute_is_over() {
    let peer = Running::start(ServerLimits::default());
    peer.service.objects.lock().unwrap().goes_on = true;
    let env = Env { clock: Arc::new(Impatient::default()), ..Env::real() };
    let limits = ClientLimits::default();
    let client = Client::new(identity(2, 1), Arc::new(|| Credential::None), env, limits);
    let told = client.watch(&peer.endpoint(), watches().remove(0), LIMIT).await.unwrap();
    let told: Vec<_> = told.collect().await;
    let (address, limit) = (peer.address.to_string(), STREAM_SILENCE_MAX);
    assert_eq!(told, [Err(CallError::TimedOut { address, limit })]);
}
