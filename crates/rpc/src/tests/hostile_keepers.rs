//! What a peer may answer, and what a caller may send, where the network is kept whole: anything, and the other side
//! says what is wrong.

use bytes::Bytes;
use document::Kind;
use env::calls::keep::*;
use env::calls::{CallError, Calls};
use prost::Message;

use super::hostile_peers::{answering, message};
use super::keeping::{compare, exchanges, fetch_at, id, listed, peer};
use super::objects::record;
use super::*;
use crate::proto;
use crate::proto::keep_response::Answer;

type Case = (&'static str, KeepRequest, Option<Answer>);

/// Why a client does not take what the peer answered.
async fn corrupt(request: KeepRequest, answer: Option<Answer>) -> String {
    let bytes = proto::KeepResponse { answer }.encode_to_vec();
    let address = answering(move || message(bytes.len(), &bytes)).await;
    match client().keep(&endpoint(address), request, LIMIT).await {
        Err(CallError::Corrupt { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn filled(len: usize) -> Bytes {
    vec![1; len].into()
}

fn compares() -> Vec<Case> {
    let ask = || KeepRequest::Compare(compare());
    let answer = |differ: &[u8], view: u8, absent: Bytes| {
        let words = Some(proto::KeepWords { absent, faulty: Bytes::new() });
        let (differ, view) = (Bytes::copy_from_slice(differ), vec![view; 16].into());
        Some(Answer::Compare(proto::KeepCompareAnswer { differ, view, words }))
    };
    let none = Bytes::new;
    let short = proto::KeepCompareAnswer { view: filled(15), ..Default::default() };
    let key = peer(1).as_bytes().to_vec();
    let twice = Bytes::from([key.clone(), key.clone()].concat());
    vec![
        ("not ascending", ask(), answer(&[2, 1], 7, none())),
        ("not ascending", ask(), answer(&[1, 1], 7, none())),
        ("not ascending", ask(), answer(&[0; 1 << 20], 7, none())),
        ("another view", ask(), answer(&[1], 8, none())),
        ("view is not 16 bytes", ask(), Some(Answer::Compare(short))),
        ("33 bytes each", ask(), answer(&[], 7, filled(34))),
        ("1,024 absent", ask(), answer(&[], 7, key.repeat(1025).into())),
        ("absent peers are not ascending", ask(), answer(&[], 7, twice)),
        ("not a public key", ask(), answer(&[], 7, vec![0xff; 33].into())),
    ]
}

fn lists() -> Vec<Case> {
    let ask = || KeepRequest::Lists(vec![listed(1), listed(2)]);
    let answer = |all: Vec<Listed>| Some(Answer::Lists(all.into()));
    let with = |change: &dyn Fn(&mut Vec<Listed>)| {
        let mut all = vec![listed(1), listed(2)];
        change(&mut all);
        answer(all)
    };
    let bare = |bits| {
        let range = Some(proto::PlaceRange { prefix: 0, bits });
        let ranges = vec![proto::ListedRange { range, ..Default::default() }];
        Some(Answer::Lists(proto::KeepLists { ranges }))
    };
    let missing = vec![proto::ListedRange::default()];
    vec![
        ("64 ranges", ask(), answer(vec![])),
        ("64 ranges", ask(), answer((0..65).map(listed).collect())),
        ("not the ranges", ask(), answer(vec![listed(1)])),
        ("not the ranges", ask(), answer(vec![listed(2), listed(1)])),
        ("not the ranges", ask(), answer(vec![listed(1), listed(2), listed(3)])),
        ("not the ranges", ask(), answer(vec![listed(1), listed(3)])),
        ("over 32 bits", ask(), bare(33)),
        ("over 32 bits", ask(), bare(256)),
        ("range is missing", ask(), Some(Answer::Lists(proto::KeepLists { ranges: missing }))),
        ("2,048 items", ask(), with(&|all| all[0].copies = vec![listed(1).copies[0]; 2048])),
        ("copy that is not in", ask(), with(&|all| all[0].copies = listed(2).copies)),
        ("fragment that is not in", ask(), with(&|all| all[0].fragments = listed(2).fragments)),
    ]
}

fn claims_and_fetches() -> Vec<Case> {
    let claim = |count| KeepRequest::Claim(vec![id(1); count]);
    let claimed = |count: usize, held: &[u8], by: &[u8]| {
        let held = Bytes::copy_from_slice(held);
        let claimed_by = Bytes::copy_from_slice(by);
        let stripes = vec![proto::ClaimedStripe { held, claimed_by }; count];
        Some(Answer::Claim(proto::KeepClaimAnswer { stripes }))
    };
    let fetch = |count| KeepRequest::Fetch(vec![fetch_at(1); count]);
    use proto::fetch_answer::Result as Fetch;
    let fetched = |results: Vec<Option<Fetch>>| {
        let answers = results.into_iter().map(|result| proto::FetchAnswer { result }).collect();
        Some(Answer::Fetch(proto::KeepFetchAnswer { answers }))
    };
    let found = |record: Option<proto::Record>, companions: usize| {
        let companions = vec![super::objects::version(3).into(); companions];
        Some(Fetch::Found(proto::FetchedRecord { record, companions }))
    };
    let right = || Some(proto::Record::from(record(Kind::Version, 1, 40)));
    let moved = proto::Record { place: filled(32), ..right().unwrap() };
    let absent = || Some(Fetch::NotHere(proto::NotHere {}));
    vec![
        ("one answer an item", claim(2), claimed(1, &[], &[])),
        ("one answer an item", claim(1), claimed(2, &[], &[])),
        ("256 stripes", claim(1), claimed(257, &[], &[])),
        ("256 stripes", claim(1), claimed(0, &[], &[])),
        ("over 16 fragments", claim(1), claimed(1, &(0..17).collect::<Vec<u8>>(), &[])),
        ("not ascending", claim(1), claimed(1, &[7, 7], &[])),
        ("not ascending", claim(1), claimed(1, &[8, 7], &[])),
        ("not a public key", claim(1), claimed(1, &[], &[2; 32])),
        ("not a public key", claim(1), claimed(1, &[], &[0xff; 33])),
        ("one answer an item", fetch(2), fetched(vec![absent()])),
        ("one answer an item", fetch(1), fetched(vec![absent(), absent()])),
        ("256 records", fetch(1), fetched(vec![absent(); 257])),
        ("neither record", fetch(1), fetched(vec![None])),
        ("record is missing", fetch(1), fetched(vec![found(None, 0)])),
        ("4 companions", fetch(1), fetched(vec![found(right(), 5)])),
        (
            "another record",
            fetch(1),
            fetched(vec![found(Some(record(Kind::Version, 2, 40).into()), 0)]),
        ),
        ("another place", fetch(1), fetched(vec![found(Some(moved), 0)])),
    ]
}

fn proofs_and_others() -> Vec<Case> {
    let prove = |count| KeepRequest::Prove(vec![ProveAt { id: id(1), chunk: 1 }; count]);
    use proto::prove_answer::Result as Proof;
    let answer = |results: Vec<Option<Proof>>| {
        let answers = results.into_iter().map(|result| proto::ProveAnswer { result }).collect();
        Some(Answer::Prove(proto::KeepProveAnswer { answers }))
    };
    let none_last = proto::ChunkProof::default;
    let proof = |length, chunk: usize, path: usize| {
        let (chunk, path) = (filled(chunk), filled(path));
        answer(vec![Some(Proof::Proof(proto::ChunkProof { length, chunk, path, ..none_last() }))])
    };
    let last = |last: usize, path: usize| {
        let (last, last_path) = (filled(last), filled(path));
        let (chunk, path) = (filled(1024), filled(32));
        let proof = proto::ChunkProof { length: 2000, chunk, path, last, last_path };
        answer(vec![Some(Proof::Proof(proof))])
    };
    let none = || Some(Proof::NotHere(proto::NotHere {}));
    let have = |held: &[u8]| {
        let held = Bytes::copy_from_slice(held);
        Some(Answer::Have(proto::KeepHaveAnswer { held }))
    };
    let ask = |count| KeepRequest::Have(vec![id(1); count]);
    let look = KeepRequest::Look(vec![crypto::Place::new([1; 32]); 3]);
    let record_max = crate::RECORD_BYTES_MAX as u32;
    vec![
        ("one answer an item", prove(2), answer(vec![none()])),
        ("one answer an item", prove(1), answer(vec![none(), none()])),
        ("64 chunks", prove(64), answer(vec![none(); 65])),
        ("neither proof", prove(1), answer(vec![None])),
        ("length", prove(1), proof(0, 1, 0)),
        ("length", prove(1), proof(record_max + 1, 1, 0)),
        ("chunk", prove(1), proof(1, 0, 0)),
        ("chunk", prove(1), proof(2000, 1025, 32)),
        ("12 values", prove(1), proof(record_max, 1024, 13 * 32)),
        ("32 bytes each", prove(1), proof(2000, 1024, 33)),
        ("last chunk", prove(1), last(1025, 32)),
        ("12 values", prove(1), last(976, 13 * 32)),
        ("32 bytes each", prove(1), last(976, 31)),
        ("one answer an item", ask(2), have(&[1])),
        ("one answer an item", ask(1), have(&[1, 0])),
        ("neither 0 nor 1", ask(1), have(&[2])),
        ("1,024 records", ask(1), have(&[0; 1025])),
        ("in work", look, Some(Answer::Look(proto::KeepLookAnswer { in_work: 4 }))),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_not_one_is_corrupt_and_says_why() {
    let all = [compares(), lists(), claims_and_fetches(), proofs_and_others()].concat();
    for (why, request, answer) in all {
        let reason = corrupt(request, answer).await;
        assert!(reason.contains(why), "{reason} should say {why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_another_request_is_corrupt() {
    let all = exchanges();
    for (i, (request, own)) in all.iter().enumerate() {
        let reason = corrupt(request.clone(), None).await;
        assert!(reason.contains("no known answer"), "{reason}");
        for (other, answer) in &all {
            if std::mem::discriminant(own) == std::mem::discriminant(answer) {
                continue;
            }
            let asked = crate::convert::keep::Asked::of(other);
            let sent = asked.fit(answer.clone()).unwrap().answer;
            let reason = corrupt(request.clone(), sent).await;
            assert!(reason.contains("another request"), "{i} {answer:?} {reason}");
        }
    }
}

/// A request of the wire that the typed client would not send, and what the refusal names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_with_wrong_fields_is_told_which() {
    use proto::keep_request::Request;
    let served = Running::start(ServerLimits::default());
    let mut wire = crate::client::wire(&identity(2, 1), &served.endpoint()).await.unwrap();
    let range = Some(proto::PlaceRange { prefix: 0, bits: 0 });
    let compare = |sums: usize, view: usize, absent: usize| {
        let words = Some(proto::KeepWords { absent: vec![0xff; absent].into(), faulty: filled(0) });
        let (sums, view) = (filled(sums), filled(view));
        Some(Request::Compare(proto::KeepCompare { range, sums, view, words }))
    };
    let without = proto::KeepCompare { sums: filled(4096), view: filled(16), ..Default::default() };
    let listed = |copies, fragments| {
        let ranges = vec![proto::ListedRange { range, copies, fragments, more: false }];
        Some(Request::Lists(proto::KeepLists { ranges }))
    };
    let copy = |id, place| proto::HeldCopy { id: filled(id), place: filled(place) };
    let held = |stripe, index| proto::HeldFragment { stripe: filled(stripe), index };
    let settled = |stripe, index, holder| {
        let moved = vec![proto::MovedFragment { index, holder: filled(holder) }];
        let stripes = vec![proto::SettledStripe { stripe: filled(stripe), moved }];
        Some(Request::Settled(proto::KeepSettled { stripes }))
    };
    let fetch = |id, place| {
        let records = vec![proto::FetchAt { id: filled(id), place: filled(place) }];
        Some(Request::Fetch(proto::KeepFetch { records }))
    };
    let prove = proto::KeepProve { asks: vec![proto::ProveAt { id: filled(33), chunk: 0 }] };
    let cases = [
        ("no known request", None),
        ("256 sums", compare(4095, 16, 0)),
        ("256 sums", compare(4112, 16, 0)),
        ("view", compare(4096, 17, 0)),
        ("33 bytes each", compare(4096, 16, 32)),
        ("public key", compare(4096, 16, 33)),
        ("range is missing", Some(Request::Compare(without))),
        ("id", listed(vec![copy(31, 0)], vec![])),
        ("place", listed(vec![copy(32, 31)], vec![])),
        ("stripe", listed(vec![], vec![held(0, 1)])),
        ("over 255", listed(vec![], vec![held(32, 256)])),
        ("ids are not 32", Some(Request::Claim(proto::KeepStripes { stripes: filled(63) }))),
        ("stripe is not", settled(31, 1, 33)),
        ("over 255", settled(32, 256, 33)),
        ("public key", settled(32, 1, 0)),
        ("id", fetch(0, 32)),
        ("place", fetch(32, 33)),
        ("ids are not 32", Some(Request::Have(proto::KeepHave { ids: filled(33) }))),
        ("id", Some(Request::Prove(prove))),
        ("places are not", Some(Request::Look(proto::KeepLook { places: filled(33) }))),
    ];
    for (why, request) in cases {
        let refused = wire.keep(proto::KeepRequest { request }).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains(why), "{refused:?} should say {why}");
    }
    assert!(served.service.keeping.lock().unwrap().requests.is_empty());
}

#[tokio::test]
async fn what_a_stranger_asks_of_keeping_is_not_decoded() {
    use proto::keep_request::Request;
    let served = Running::start(ServerLimits::default());
    served.service.keeping.lock().unwrap().closed = true;
    let mut wire = crate::client::wire(&identity(2, 1), &served.endpoint()).await.unwrap();
    // It would be found to be no list of ids.
    let request = Some(Request::Have(proto::KeepHave { ids: filled(33) }));
    let refused = wire.keep(proto::KeepRequest { request }).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused:?}");
}
