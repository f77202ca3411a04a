//! Requests about objects over real sockets: each kind there, its answer back, and what is not sent or not taken.

use bytes::Bytes;
use crypto::{Place, RecordId};
use document::{Kind, Record};
use env::calls::objects::*;
use env::calls::*;
use version::claim::{READER_BYTES, REDIRECT_BYTES};
use version::{Durability, Hint, ObjectKey};

use super::*;
use crate::status::tests::every_error;

/// A record of this kind: what is in it is nobody's business here.
pub(crate) fn record(kind: Kind, seed: u8, len: usize) -> Record {
    let (id, place) = (RecordId::new([seed; 32]), Place::new([seed ^ 0x80; 32]));
    Record { kind, id, place, bytes: vec![seed; len].into() }
}

pub(crate) fn version(seed: u8) -> Record {
    record(Kind::Version, seed, 100)
}

pub(crate) fn at(seed: u8) -> VersionAt {
    let n = if seed.is_multiple_of(2) { Hint::FIRST } else { Hint::new([seed; 16]) };
    VersionAt { object: ObjectKey::new([7; 32]), h: RecordId::new([seed; 32]), n }
}

pub(crate) fn found(seed: u8) -> FoundVersion {
    FoundVersion { record: version(seed), attestation: Some(vec![seed; 200].into()) }
}

pub(crate) fn claim() -> Option<Bytes> {
    Some(vec![9; READER_BYTES].into())
}

fn redirect() -> Bytes {
    vec![5; REDIRECT_BYTES].into()
}

fn failed<T>(all: Vec<T>) -> Vec<Result<T, CallError>> {
    all.into_iter().map(Ok).chain(every_error().into_iter().map(Err)).collect()
}

/// One request of each kind and an answer of its name that has every part, and some that have none.
pub(crate) fn exchanges() -> Vec<(ObjectsRequest, ObjectsAnswer)> {
    let owner = secret(3).public();
    let object = ObjectKey::new([7; 32]);
    let count = every_error().len() as u8;
    let outcomes = vec![
        PutOutcome::Stored,
        PutOutcome::Present,
        PutOutcome::Redirect(redirect()),
        PutOutcome::NoObject,
    ];
    let put = PutObjects {
        records: (0..4 + count).map(version).collect(),
        compress: true,
        durability: Some(Durability::Memory),
        receipt: true,
    };
    let kinds = [Kind::Object, Kind::Policy, Kind::Attestation, Kind::Head, Kind::Devices];
    let others = PutObjects {
        records: kinds.into_iter().map(|kind| record(kind, 1, 50)).collect(),
        ..PutObjects::default()
    };
    let bare = FoundVersion { record: version(1), attestation: None };
    let full = ObjectTips {
        object: Some(record(Kind::Object, 7, 90)),
        policy: Some(record(Kind::Policy, 8, 90)),
        tips: vec![found(1), found(2)],
        more: true,
        redirects: vec![redirect(); REDIRECTS_MAX],
    };
    let heads = GetHeads { owner, object, branch: Bytes::from_static(b"main"), reader: claim() };
    let list = ListObjects {
        owner,
        prefix: Bytes::from_static(b"notes/"),
        after: Bytes::from_static(b"notes/a"),
        most: 2,
        reader: None,
    };
    vec![
        (
            ObjectsRequest::Put(put),
            ObjectsAnswer::Put(PutObjectsAnswer {
                outcomes: failed(outcomes),
                receipt: Some(Bytes::from_static(b"receipt")),
            }),
        ),
        (
            ObjectsRequest::Put(others),
            ObjectsAnswer::Put(PutObjectsAnswer {
                outcomes: vec![Ok(PutOutcome::Stored); 5],
                receipt: None,
            }),
        ),
        (
            ObjectsRequest::Get(GetVersions {
                versions: (0..3 + count).map(at).collect(),
                attested: true,
                reader: claim(),
            }),
            ObjectsAnswer::Get(failed(vec![Some(found(0)), Some(bare), None])),
        ),
        (
            ObjectsRequest::Previous(GetPrevious { version: at(4), most: 2, reader: None }),
            ObjectsAnswer::Previous(PreviousAnswer {
                records: vec![version(4), version(5), version(6)],
                missing: Some(RecordId::new([3; 32])),
            }),
        ),
        (
            ObjectsRequest::Previous(GetPrevious { version: at(4), most: 1024, reader: claim() }),
            ObjectsAnswer::Previous(PreviousAnswer::default()),
        ),
        (
            ObjectsRequest::Tips(GetTips {
                objects: vec![object; 2 + usize::from(count)],
                reader: claim(),
            }),
            ObjectsAnswer::Tips(failed(vec![full, ObjectTips::default()])),
        ),
        (
            ObjectsRequest::Heads(heads.clone()),
            ObjectsAnswer::Heads(HeadsAnswer {
                heads: vec![record(Kind::Head, 1, 60); 3],
                devices: Some(record(Kind::Devices, 2, 60)),
            }),
        ),
        (ObjectsRequest::Heads(heads), ObjectsAnswer::Heads(HeadsAnswer::default())),
        (
            ObjectsRequest::List(list),
            ObjectsAnswer::List(vec![record(Kind::Object, 1, 60), record(Kind::Object, 2, 60)]),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_about_objects_arrives_and_its_answer_comes_back() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    for (request, answer) in exchanges() {
        peer.service.objects.lock().unwrap().answer = Some(Ok(answer.clone()));
        assert_eq!(client.objects(&to, request.clone(), LIMIT).await, Ok(answer));
        let arrived = peer.service.objects.lock().unwrap().requests.pop();
        assert_eq!(arrived, Some(request));
    }
    for error in every_error() {
        peer.service.objects.lock().unwrap().answer = Some(Err(error.clone()));
        let (request, _) = exchanges().pop().unwrap();
        assert_eq!(client.objects(&to, request, LIMIT).await, Err(error));
    }
    peer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_of_eight_mib_arrives_whole() {
    let peer = Running::start(ServerLimits::default());
    let records: Vec<Record> = (0..8).map(|i| record(Kind::Version, i, 1 << 20)).collect();
    let put = PutObjects { records, ..PutObjects::default() };
    let outcomes = vec![Ok(PutOutcome::Stored); 8];
    let answer = ObjectsAnswer::Put(PutObjectsAnswer { outcomes, receipt: None });
    peer.service.objects.lock().unwrap().answer = Some(Ok(answer.clone()));
    let request = ObjectsRequest::Put(put);
    assert_eq!(client().objects(&peer.endpoint(), request.clone(), LIMIT).await, Ok(answer));
    let arrived = peer.service.objects.lock().unwrap().requests.pop();
    assert!(arrived == Some(request), "other records arrived");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_cut_to_what_travels() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    let large = |seed| FoundVersion {
        record: record(Kind::Version, seed, 1 << 20),
        attestation: Some(vec![seed; 1 << 20].into()),
    };
    let ask = async |request: ObjectsRequest, answer: ObjectsAnswer| {
        peer.service.objects.lock().unwrap().answer = Some(Ok(answer));
        client.objects(&to, request, LIMIT).await.unwrap()
    };

    let versions = (0..6).map(at).collect();
    let request = ObjectsRequest::Get(GetVersions { versions, attested: true, reader: None });
    let answer = ObjectsAnswer::Get((0..6).map(|seed| Ok(Some(large(seed)))).collect());
    let ObjectsAnswer::Get(answers) = ask(request, answer).await else { panic!("not a get") };
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 4);
    assert_eq!(answers[5], Err(CallError::Busy { retry_after: Duration::ZERO }));

    let records: Vec<Record> = (0..7).map(|seed| record(Kind::Version, seed, 2 << 20)).collect();
    let request = GetPrevious { version: at(0), most: 9, reader: None };
    let answer = PreviousAnswer { records: records.clone(), missing: None };
    let answer = ask(ObjectsRequest::Previous(request), ObjectsAnswer::Previous(answer)).await;
    let ObjectsAnswer::Previous(answer) = answer else { panic!("not a history") };
    assert_eq!(answer.records.len(), 4);
    assert_eq!(answer.missing, Some(records[4].id), "whoever asked knows where to go on");

    let objects = vec![ObjectKey::new([7; 32]); 3];
    let tips = ObjectTips {
        object: Some(record(Kind::Object, 7, 90)),
        tips: (0..3).map(large).collect(),
        ..ObjectTips::default()
    };
    let request = ObjectsRequest::Tips(GetTips { objects, reader: None });
    let ObjectsAnswer::Tips(answers) = ask(request, ObjectsAnswer::Tips(vec![Ok(tips); 3])).await
    else {
        panic!("not tips")
    };
    let sent = |i: usize| answers[i].as_ref().map(|tips| (tips.tips.len(), tips.more)).unwrap();
    assert_eq!((sent(0), sent(1), sent(2)), ((3, false), (0, true), (0, true)));
    peer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_answers_something_else_has_a_defect() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    let all = exchanges();
    for (i, (request, _)) in all.iter().enumerate() {
        for (j, (_, answer)) in all.iter().enumerate() {
            let same = std::mem::discriminant(&all[i].1) == std::mem::discriminant(answer);
            let counts = matches!(answer, ObjectsAnswer::Put(_)) && i != j;
            if same && !counts {
                continue;
            }
            peer.service.objects.lock().unwrap().answer = Some(Ok(answer.clone()));
            let refused = client.objects(&to, request.clone(), LIMIT).await;
            assert!(matches!(refused, Err(CallError::Internal { .. })), "{i} {j} {refused:?}");
        }
    }
}

/// Each request with one bound passed, and what the refusal names.
fn over_bounds() -> Vec<(&'static str, ObjectsRequest)> {
    let put = |records| ObjectsRequest::Put(PutObjects { records, ..PutObjects::default() });
    let get = |count: usize, reader| {
        let versions = vec![at(1); count];
        ObjectsRequest::Get(GetVersions { versions, attested: false, reader })
    };
    let previous =
        |most| ObjectsRequest::Previous(GetPrevious { version: at(1), most, reader: None });
    let tips = |count| {
        let objects = vec![ObjectKey::new([7; 32]); count];
        ObjectsRequest::Tips(GetTips { objects, reader: None })
    };
    let (owner, object) = (secret(3).public(), ObjectKey::new([7; 32]));
    let heads = |len: usize| {
        let branch = vec![b'm'; len].into();
        ObjectsRequest::Heads(GetHeads { owner, object, branch, reader: None })
    };
    let list = |prefix: usize, after: usize, most| {
        let (prefix, after) = (vec![1; prefix].into(), vec![1; after].into());
        ObjectsRequest::List(ListObjects { owner, prefix, after, most, reader: None })
    };
    let bytes = |len: usize| Some(vec![1; len].into());
    vec![
        ("empty batch", put(vec![])),
        ("1,024", put(vec![version(1); 1025])),
        ("8 MiB", put([vec![record(Kind::Version, 1, 2 << 20); 4], vec![version(1)]].concat())),
        ("without bytes", put(vec![record(Kind::Version, 1, 0)])),
        ("2 MiB", put(vec![record(Kind::Version, 1, crate::RECORD_BYTES_MAX + 1)])),
        ("not of an object", put(vec![version(1), record(Kind::Page, 1, 10)])),
        ("empty batch", get(0, None)),
        ("1,024", get(1025, None)),
        ("claim", get(1, bytes(READER_BYTES - 1))),
        ("claim", get(1, bytes(READER_BYTES + 1))),
        ("predecessors", previous(0)),
        ("predecessors", previous(1025)),
        ("256 objects", tips(0)),
        ("256 objects", tips(257)),
        ("branch", heads(0)),
        ("branch", heads(129)),
        ("prefix", list(1025, 0, 1)),
        ("after", list(0, 1025, 1)),
        ("names", list(0, 0, 0)),
        ("names", list(0, 0, 1025)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_over_a_bound_is_neither_sent_nor_taken() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    let mut wire = crate::client::wire(&identity(2, 1), &to).await.unwrap();
    for (what, request) in over_bounds() {
        let unsent = client.objects(&to, request.clone(), LIMIT).await;
        let Err(CallError::Invalid { reason }) = unsent else { panic!("{what}: {unsent:?}") };
        assert!(reason.contains(what), "{reason} should name {what}");
        let refused = wire.objects(crate::proto::ObjectsRequest::from(request)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{what}: {refused:?}");
        assert!(refused.message().contains(what), "{refused:?} should name {what}");
    }
    assert!(peer.service.objects.lock().unwrap().requests.is_empty());
}
