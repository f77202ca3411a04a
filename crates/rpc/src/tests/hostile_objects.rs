//! What a peer may answer about objects: anything, and the caller is told that it is corrupt and why.

use bytes::Bytes;
use document::Kind;
use env::calls::objects::*;
use env::calls::*;
use futures::StreamExt;
use prost::Message;

use super::hostile_peers::{answering, message};
use super::objects::{at, exchanges, record, version};
use super::watching::watches;
use super::*;
use crate::proto;
use crate::proto::objects_response::Answer;

type Case = (&'static str, ObjectsRequest, Option<Answer>);

/// Why a client does not take what the peer answered.
async fn corrupt(request: ObjectsRequest, answer: Option<Answer>) -> String {
    let bytes = proto::ObjectsResponse { answer }.encode_to_vec();
    let address = answering(move || message(bytes.len(), &bytes)).await;
    match client().objects(&endpoint(address), request, LIMIT).await {
        Err(CallError::Corrupt { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn wire(kind: Kind, seed: u8) -> Option<proto::Record> {
    Some(record(kind, seed, 40).into())
}

fn found(record: Option<proto::Record>, attestation: usize) -> proto::VersionAnswer {
    let attestation = vec![1; attestation].into();
    let found = proto::FoundVersion { record, attestation };
    proto::VersionAnswer { result: Some(proto::version_answer::Result::Found(found)) }
}

fn puts() -> Vec<Case> {
    let put = |kind| {
        let records = vec![record(kind, 1, 40)];
        ObjectsRequest::Put(PutObjects { records, ..PutObjects::default() })
    };
    let answer = |outcomes: Vec<Option<proto::put_answer::Result>>, receipt: usize| {
        let outcomes = outcomes.into_iter().map(|result| proto::PutAnswer { result }).collect();
        Some(Answer::Put(proto::PutObjectsAnswer { outcomes, receipt: vec![1; receipt].into() }))
    };
    use proto::put_answer::Result as Put;
    let redirect = |len: usize| Some(Put::Redirect(vec![1; len].into()));
    let failure = proto::Failure { code: 77, ..proto::Failure::default() };
    vec![
        ("one answer an item", put(Kind::Version), answer(vec![], 0)),
        ("one answer an item", put(Kind::Version), answer(vec![Some(Put::Outcome(1)); 2], 0)),
        ("1,024", put(Kind::Version), answer(vec![Some(Put::Outcome(1)); 1025], 0)),
        ("neither outcome", put(Kind::Version), answer(vec![None], 0)),
        ("no known outcome", put(Kind::Version), answer(vec![Some(Put::Outcome(0))], 0)),
        ("no known outcome", put(Kind::Version), answer(vec![Some(Put::Outcome(4))], 0)),
        ("no known code", put(Kind::Version), answer(vec![Some(Put::Failure(failure))], 0)),
        ("redirect", put(Kind::Version), answer(vec![redirect(220)], 0)),
        ("redirect", put(Kind::Version), answer(vec![redirect(0)], 0)),
        ("receipt", put(Kind::Version), answer(vec![Some(Put::Outcome(1))], 719)),
        ("record that is none", put(Kind::Head), answer(vec![Some(Put::Outcome(3))], 0)),
        ("record that is none", put(Kind::Policy), answer(vec![redirect(221)], 0)),
    ]
}

fn gets() -> Vec<Case> {
    let get = |count| {
        let versions = vec![at(1); count];
        ObjectsRequest::Get(GetVersions { versions, attested: true, reader: None })
    };
    let answer = |answers| Some(Answer::Get(proto::GetVersionsAnswer { answers }));
    let long = crate::RECORD_BYTES_MAX + 1;
    let good = || found(wire(Kind::Version, 1), 0);
    vec![
        ("one answer an item", get(2), answer(vec![good()])),
        ("one answer an item", get(1), answer(vec![good(); 2])),
        ("1,024", get(1), answer(vec![good(); 1025])),
        ("another record", get(1), answer(vec![found(wire(Kind::Version, 2), 0)])),
        ("another kind", get(1), answer(vec![found(wire(Kind::Policy, 1), 0)])),
        ("record is missing", get(1), answer(vec![found(None, 0)])),
        ("attestation", get(1), answer(vec![found(wire(Kind::Version, 1), long)])),
        ("neither version", get(1), answer(vec![proto::VersionAnswer { result: None }])),
    ]
}

fn histories() -> Vec<Case> {
    let ask = |most| ObjectsRequest::Previous(GetPrevious { version: at(1), most, reader: None });
    let answer = |seeds: Vec<u8>, missing: usize| {
        let records = seeds.into_iter().map(|seed| version(seed).into()).collect();
        let missing = vec![1; missing].into();
        Some(Answer::Previous(proto::PreviousAnswer { records, missing }))
    };
    let page = proto::PreviousAnswer {
        records: vec![version(1).into(), record(Kind::Page, 2, 10).into()],
        missing: Bytes::new(),
    };
    vec![
        ("more predecessors", ask(1), answer(vec![1, 2, 3], 0)),
        ("1,024", ask(1024), answer(vec![1; 1026], 0)),
        ("another record", ask(2), answer(vec![2, 1], 0)),
        ("missing", ask(1), answer(vec![1], 31)),
        ("another kind", ask(1), Some(Answer::Previous(page))),
    ]
}

fn tips() -> Vec<Case> {
    let ask = |count| {
        let objects = vec![at(1).object; count];
        ObjectsRequest::Tips(GetTips { objects, reader: None })
    };
    let answer = |all: Vec<proto::ObjectTips>| {
        let tips = |one| proto::TipsAnswer { result: Some(proto::tips_answer::Result::Tips(one)) };
        Some(Answer::Tips(proto::GetTipsAnswer { answers: all.into_iter().map(tips).collect() }))
    };
    let empty = proto::ObjectTips::default;
    let tip = |kind| proto::FoundVersion { record: wire(kind, 1), attestation: Bytes::new() };
    let redirects = |count, len: usize| proto::ObjectTips {
        redirects: vec![vec![1; len].into(); count],
        ..empty()
    };
    let with_tips = |count, kind| proto::ObjectTips { tips: vec![tip(kind); count], ..empty() };
    let with_object = |kind, seed| proto::ObjectTips { object: wire(kind, seed), ..empty() };
    let neither = vec![proto::TipsAnswer { result: None }];
    vec![
        ("one answer an item", ask(1), answer(vec![empty(); 2])),
        ("256", ask(256), answer(vec![empty(); 257])),
        ("another record", ask(1), answer(vec![with_object(Kind::Object, 6)])),
        ("another kind", ask(1), answer(vec![with_object(Kind::Version, 7)])),
        (
            "policy",
            ask(1),
            answer(vec![proto::ObjectTips { policy: wire(Kind::Object, 7), ..empty() }]),
        ),
        ("64 tips", ask(1), answer(vec![with_tips(65, Kind::Version)])),
        ("another kind", ask(1), answer(vec![with_tips(1, Kind::Attestation)])),
        ("17 redirects", ask(1), answer(vec![redirects(18, 221)])),
        ("221", ask(1), answer(vec![redirects(1, 222)])),
        ("neither tips", ask(1), Some(Answer::Tips(proto::GetTipsAnswer { answers: neither }))),
    ]
}

fn heads_and_lists() -> Vec<Case> {
    let requests = exchanges();
    let heads = requests[6].0.clone();
    let list = requests[8].0.clone();
    let answer = |heads, devices| Some(Answer::Heads(proto::HeadsAnswer { heads, devices }));
    let head = record(Kind::Head, 1, 10);
    let objects = |kind, count: usize| {
        let objects = vec![record(kind, 1, 10).into(); count];
        Some(Answer::List(proto::ListObjectsAnswer { objects }))
    };
    vec![
        ("another kind", heads.clone(), answer(vec![version(1).into()], None)),
        ("another kind", heads.clone(), answer(vec![], wire(Kind::Head, 1))),
        ("4,096", heads, answer(vec![head.into(); 4097], None)),
        ("more names", list.clone(), objects(Kind::Object, 3)),
        ("1,024", list.clone(), objects(Kind::Object, 1025)),
        ("another kind", list, objects(Kind::Head, 1)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_not_one_is_corrupt_and_says_why() {
    let all = [puts(), gets(), histories(), tips(), heads_and_lists()].concat();
    for (why, request, answer) in all {
        let reason = corrupt(request, answer).await;
        assert!(reason.contains(why), "{reason} should say {why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_another_request_is_corrupt() {
    let empty = [
        Answer::Put(proto::PutObjectsAnswer::default()),
        Answer::Get(proto::GetVersionsAnswer::default()),
        Answer::Previous(proto::PreviousAnswer::default()),
        Answer::Tips(proto::GetTipsAnswer::default()),
        Answer::Heads(proto::HeadsAnswer::default()),
        Answer::List(proto::ListObjectsAnswer::default()),
    ];
    let requests: Vec<_> = exchanges().into_iter().map(|(request, _)| request).collect();
    // One of each name, in the order of the answers.
    let requests = [0, 2, 3, 5, 6, 8].map(|i| requests[i].clone());
    for (i, request) in requests.iter().enumerate() {
        let reason = corrupt(request.clone(), None).await;
        assert!(reason.contains("no known answer"), "{reason}");
        for (_, answer) in empty.iter().enumerate().filter(|(j, _)| *j != i) {
            let reason = corrupt(request.clone(), Some(answer.clone())).await;
            assert!(reason.contains("another request"), "{i} {answer:?} {reason}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_not_one_ends_its_watch() {
    use proto::watch_event::Event;
    let told = |record: Option<Option<proto::Record>>, attestation: usize| {
        let attestation = vec![1; attestation].into();
        let found = record.map(|record| proto::FoundVersion { record, attestation });
        Some(Event::Record(proto::WatchedRecord { found, cursor: None }))
    };
    let cursor = |peer: &[u8]| {
        let peer = Bytes::copy_from_slice(peer);
        proto::WatchCursor { peer, run: 1, next: 1 }
    };
    let long = crate::RECORD_BYTES_MAX + 1;
    let cases = [
        ("no known kind", None),
        ("without its record", told(None, 0)),
        ("record is missing", told(Some(None), 0)),
        ("never told", told(Some(wire(Kind::Page, 1)), 0)),
        ("never told", told(Some(wire(Kind::Policy, 1)), 0)),
        ("attestation", told(Some(wire(Kind::Version, 1)), long)),
        ("cursor", Some(Event::CaughtUp(cursor(&[])))),
        ("cursor", Some(Event::CaughtUp(cursor(&[0xff; 33])))),
    ];
    for (why, event) in cases {
        let bytes = proto::WatchEvent { event }.encode_to_vec();
        let address = answering(move || message(bytes.len(), &bytes)).await;
        let told = client().watch(&endpoint(address), watches().remove(0), LIMIT).await.unwrap();
        let told: Vec<_> = told.collect().await;
        let [Err(CallError::Corrupt { reason, .. })] = &told[..] else { panic!("{told:?}") };
        assert!(reason.contains(why), "{reason} should say {why}");
    }
}

/// A request of the wire that the typed client would not send, and what the refusal names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_with_wrong_fields_is_told_which() {
    use proto::objects_request::Request;
    let peer = Running::start(ServerLimits::default());
    let mut wire = crate::client::wire(&identity(2, 1), &peer.endpoint()).await.unwrap();
    let bytes = |len: usize| Bytes::from(vec![1; len]);
    let put = |record, durability| {
        let records = vec![record];
        let put = proto::PutObjects { records, durability, ..proto::PutObjects::default() };
        Some(Request::Put(put))
    };
    let good: proto::Record = version(1).into();
    let at = |object, h, n| proto::VersionAt { object: bytes(object), h: bytes(h), n: bytes(n) };
    let get = |at| {
        let versions = vec![at];
        Some(Request::Get(proto::GetVersions { versions, attested: false, reader: bytes(0) }))
    };
    let key = Bytes::copy_from_slice(secret(1).public().as_bytes());
    let heads = |owner: &Bytes, object| {
        let (owner, object, branch) = (owner.clone(), bytes(object), bytes(4));
        Some(Request::Heads(proto::GetHeads { owner, object, branch, reader: bytes(0) }))
    };
    let previous = proto::GetPrevious { version: None, most: 1, reader: bytes(0) };
    let tips = proto::GetTips { objects: vec![bytes(33)], reader: bytes(0) };
    let cases = [
        ("no known request", None),
        ("durability", put(good.clone(), Some(4))),
        ("durability", put(good.clone(), Some(256))),
        ("kind", put(proto::Record { kind: 99, ..good.clone() }, None)),
        ("id", put(proto::Record { id: bytes(31), ..good }, None)),
        ("key", get(at(31, 32, 0))),
        ("h of a version", get(at(32, 33, 0))),
        ("hint", get(at(32, 32, 15))),
        ("hint", get(at(32, 32, 17))),
        ("version is missing", Some(Request::Previous(previous))),
        ("key", Some(Request::Tips(tips))),
        ("owner", heads(&bytes(33), 32)),
        ("owner", heads(&bytes(0), 32)),
        ("key", heads(&key, 0)),
    ];
    for (why, request) in cases {
        let refused = wire.objects(proto::ObjectsRequest { request }).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains(why), "{refused:?} should say {why}");
    }
    let cursor = proto::WatchCursor { peer: bytes(33), run: 1, next: 1 };
    let what = crate::proto::watch_request::What::Family(proto::WatchedFamily {
        owner: key,
        prefix: bytes(0),
    });
    let missing = proto::WatchRequest { what: None, from: None, reader: bytes(0) };
    let astray = proto::WatchRequest { what: Some(what), from: Some(cursor), reader: bytes(0) };
    for (why, request) in [("missing", missing), ("cursor", astray)] {
        let refused = wire.watch(request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains(why), "{refused:?} should say {why}");
    }
    let script = peer.service.objects.lock().unwrap();
    assert!(script.requests.is_empty() && script.watches.is_empty());
}
