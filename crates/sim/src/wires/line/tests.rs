#![allow(clippy::unwrap_used, reason = "tests")]

use env::Env;
use env::calls::objects::{FoundVersion, WatchEvent};
use testkit::network::DirectNetwork;

use super::*;
use crate::search::Needle;

const ADDRESS: &str = "peer:1";

/// A record that is the marker.
fn marked() -> Record {
    let bytes = Bytes::copy_from_slice(Needle::new(1).bytes());
    let id = crypto::RecordId::new([1; 32]);
    Record { kind: Kind::Version, id, place: id.into(), bytes }
}

fn is_marked(event: Option<Result<WatchEvent, CallError>>) -> bool {
    matches!(event, Some(Ok(WatchEvent::Record { found, .. })) if found.record == marked())
}

/// A line of party 1 to party 0, who tells of the marker again and again, and 0's process.
fn watched() -> (Arc<Wires>, Arc<Process>, BoxStream<'static, Result<WatchEvent, CallError>>) {
    let env = Env::real();
    let history = History::new(Arc::clone(&env.clock), Needle::new(1), false);
    let wires = Wires::new(env.clone(), 1, history);
    let process = Arc::new(Process::default());
    wires.serve(0, ADDRESS, Arc::clone(&process));
    let key = crypto::SecretKey::from_bytes(&[1; 32]).unwrap().public();
    let inner = DirectNetwork::new(env).calls(key);
    let credential = Arc::new(|| Credential::None);
    let line = Line { wires: Arc::clone(&wires), party: 1, run: 1, inner, credential };
    let told = || {
        let found = FoundVersion { record: marked(), attestation: None };
        Ok(WatchEvent::Record { found, cursor: None })
    };
    let events = futures::stream::repeat_with(told).boxed();
    let to = Endpoint::at(ADDRESS);
    let by = wires.process_at(ADDRESS);
    let told = line.following(&to, by, events, "watched").unwrap();
    let nothing = futures::stream::empty::<Result<WatchEvent, CallError>>().boxed();
    assert!(line.following(&to, None, nothing, "watched").is_err());
    (wires, process, told)
}

async fn ends(told: &mut BoxStream<'static, Result<WatchEvent, CallError>>, why: &str) {
    let end = told.next().await;
    let Some(Err(CallError::Unreachable { reason, .. })) = &end else { panic!("{end:?}") };
    assert_eq!(reason, why);
    assert_eq!(told.next().await, None, "an error is the last");
}

#[tokio::test]
async fn a_stream_ends_with_an_error_when_its_callee_dies() {
    let (wires, process, mut told) = watched();
    for _ in 0..3 {
        assert!(is_marked(told.next().await));
    }
    assert_eq!(wires.history.lock().findings.len(), 3);
    process.kill();
    ends(&mut told, "connection reset").await;
}

#[tokio::test]
async fn a_stream_ends_with_the_run_that_opened_it_though_another_serves_there_now() {
    let (wires, process, mut told) = watched();
    assert!(is_marked(told.next().await));
    process.kill();
    wires.serve(0, ADDRESS, Arc::new(Process::default()));
    ends(&mut told, "connection reset").await;
}

#[tokio::test]
async fn a_stream_ends_with_an_error_when_an_event_does_not_arrive() {
    let (wires, _process, mut told) = watched();
    assert!(is_marked(told.next().await));
    wires.cut_off(BTreeSet::from([1]));
    ends(&mut told, "connection lost").await;
    assert_eq!(wires.history.lock().findings.len(), 1, "what is lost is not seen");
}
