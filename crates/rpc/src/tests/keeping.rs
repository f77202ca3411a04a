//! Requests that keep the network whole over real sockets: each kind there, its answer back, and what is not sent or not
//! taken.

use crypto::{Place, RecordId};
use document::Kind;
use env::calls::keep::*;
use env::calls::{CallError, Calls};

use super::objects::record;
use super::*;
use crate::status::tests::every_error;

pub(crate) fn id(seed: u8) -> RecordId {
    RecordId::new([seed; 32])
}

pub(crate) fn peer(seed: u8) -> PeerId {
    PeerId::new(secret(seed).public())
}

fn sorted(seeds: &[u8]) -> Vec<PeerId> {
    let mut peers: Vec<_> = seeds.iter().map(|seed| peer(*seed)).collect();
    peers.sort_unstable();
    peers
}

pub(crate) fn words() -> Words {
    Words { absent: sorted(&[1, 2, 3]), faulty: sorted(&[4]) }
}

pub(crate) fn compare() -> Compare {
    let sums = (0..SUMS as u128).map(|i| i << 64 | 1).collect();
    Compare { range: Range::ALL.part(0xab), sums, view: [7; 16], words: words() }
}

pub(crate) fn listed(part: u8) -> Listed {
    Listed {
        range: Range::ALL.part(part),
        copies: vec![(id(part), Place::from(id(part))), (id(9), Place::new([part; 32]))],
        fragments: vec![HeldFragment { stripe: id(part), index: 255 }],
        more: part == 1,
    }
}

/// A record that [`fetch_at`] asks for.
fn fetched(seed: u8, len: usize) -> document::Record {
    record(Kind::Version, seed, len)
}

pub(crate) fn fetch_at(seed: u8) -> FetchAt {
    let record = fetched(seed, 1);
    FetchAt { id: record.id, place: record.place }
}

pub(crate) fn proof() -> ChunkProof {
    let (chunk, path) = (vec![1; 1024].into(), vec![2; 32].into());
    ChunkProof {
        length: 1500,
        chunk,
        path,
        last: vec![3; 476].into(),
        last_path: vec![4; 32].into(),
    }
}

/// One request of each kind and an answer of its name that has every part, and some that have none.
pub(crate) fn exchanges() -> Vec<(KeepRequest, KeepAnswer)> {
    let whole = Compare { range: Range::ALL, words: Words::default(), ..compare() };
    let answer = CompareAnswer { differ: vec![0, 7, 255], view: [7; 16], words: words() };
    let other_view = CompareAnswer { view: [8; 16], ..CompareAnswer::default() };
    let moved = vec![(0, peer(1)), (255, peer(2))];
    let settled = |moved| SettledStripe { stripe: id(3), moved };
    let companions = vec![record(Kind::Object, 7, 90), record(Kind::Policy, 8, 90)];
    let fetch = vec![
        FetchAnswer::Found { record: fetched(1, 50), companions },
        FetchAnswer::Found { record: fetched(2, 2 << 20), companions: vec![] },
        FetchAnswer::Absent,
        FetchAnswer::Later,
    ];
    let claims = vec![
        ClaimAnswer::default(),
        ClaimAnswer { held: vec![0], claimed_by: None },
        ClaimAnswer { held: vec![255], claimed_by: Some(peer(5)) },
    ];
    let asks = vec![ProveAt { id: id(1), chunk: 0 }, ProveAt { id: id(2), chunk: u32::MAX }];
    vec![
        (KeepRequest::Compare(compare()), KeepAnswer::Compare(answer)),
        (KeepRequest::Compare(whole), KeepAnswer::Compare(other_view)),
        (
            KeepRequest::Lists(vec![listed(1), listed(2)]),
            KeepAnswer::Lists(vec![listed(1), listed(2)]),
        ),
        (KeepRequest::Claim(vec![id(1), id(2), id(3)]), KeepAnswer::Claim(claims)),
        (KeepRequest::Settled(vec![settled(moved), settled(vec![])]), KeepAnswer::Settled),
        (KeepRequest::Fetch((1..=4).map(fetch_at).collect()), KeepAnswer::Fetch(fetch)),
        (KeepRequest::Have(vec![id(1), id(2)]), KeepAnswer::Have(vec![true, false])),
        (KeepRequest::Prove(asks), KeepAnswer::Prove(vec![Some(proof()), None])),
        (KeepRequest::Look(vec![Place::new([1; 32])]), KeepAnswer::Look(1)),
        (KeepRequest::Look(vec![]), KeepAnswer::Look(70_000)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_to_keep_the_network_arrives_and_its_answer_comes_back() {
    let served = Running::start(ServerLimits::default());
    let (client, to) = (client(), served.endpoint());
    for (request, answer) in exchanges() {
        served.service.keeping.lock().unwrap().answer = Some(Ok(answer.clone()));
        assert_eq!(client.keep(&to, request.clone(), LIMIT).await, Ok(answer));
        let arrived = served.service.keeping.lock().unwrap().requests.pop();
        assert_eq!(arrived, Some(request));
    }
    for error in every_error() {
        served.service.keeping.lock().unwrap().answer = Some(Err(error.clone()));
        let (request, _) = exchanges().pop().unwrap();
        assert_eq!(client.keep(&to, request, LIMIT).await, Err(error));
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_a_fetch_comes_later() {
    let served = Running::start(ServerLimits::default());
    let answers = (0..6).map(|seed| FetchAnswer::Found {
        record: fetched(seed, 1 << 20),
        companions: vec![record(Kind::Attestation, seed, 1 << 20)],
    });
    let answer = KeepAnswer::Fetch(answers.chain([FetchAnswer::Absent]).collect());
    served.service.keeping.lock().unwrap().answer = Some(Ok(answer));
    let request = KeepRequest::Fetch((0..7).map(fetch_at).collect());
    let answer = client().keep(&served.endpoint(), request, LIMIT).await.unwrap();
    let KeepAnswer::Fetch(answers) = answer else { panic!("not records") };
    let found = |answer: &FetchAnswer| matches!(answer, FetchAnswer::Found { .. });
    assert_eq!(
        answers.iter().map(found).collect::<Vec<_>>(),
        [[true; 4].as_slice(), &[false; 3]].concat()
    );
    assert_eq!(answers[4..], [FetchAnswer::Later, FetchAnswer::Later, FetchAnswer::Absent]);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_answers_another_request_has_a_defect() {
    let served = Running::start(ServerLimits::default());
    let (client, to) = (client(), served.endpoint());
    let all = exchanges();
    for (i, (request, own)) in all.iter().enumerate() {
        for (j, (_, answer)) in all.iter().enumerate() {
            if std::mem::discriminant(own) == std::mem::discriminant(answer) {
                continue;
            }
            served.service.keeping.lock().unwrap().answer = Some(Ok(answer.clone()));
            let refused = client.keep(&to, request.clone(), LIMIT).await;
            assert!(matches!(refused, Err(CallError::Internal { .. })), "{i} {j} {refused:?}");
        }
    }
}

/// Each request with one bound passed, and what the refusal names.
fn over_bounds() -> Vec<(&'static str, KeepRequest)> {
    let compare = |change: &dyn Fn(&mut Compare)| {
        let mut compare = compare();
        change(&mut compare);
        KeepRequest::Compare(compare)
    };
    let lists = |change: &dyn Fn(&mut Vec<Listed>)| {
        let mut lists = vec![listed(1), listed(2)];
        change(&mut lists);
        KeepRequest::Lists(lists)
    };
    let empty = |range| Listed { range, copies: vec![], fragments: vec![], more: false };
    let mut over = sorted(&(1..=32).collect::<Vec<_>>());
    over.extend(vec![over[31]; WORDS_MAX - 31]);
    let settled = |stripes: usize, moved: usize| {
        let moved = vec![(1, peer(1)); moved];
        KeepRequest::Settled(vec![SettledStripe { stripe: id(1), moved }; stripes])
    };
    let ask = ProveAt { id: id(1), chunk: 1 };
    vec![
        ("0, 8, 16 or 24 bits", compare(&|one| one.range = Range { prefix: 1, bits: 32 })),
        ("0, 8, 16 or 24 bits", compare(&|one| one.range = Range { prefix: 1, bits: 4 })),
        ("more bits than it says", compare(&|one| one.range = Range { prefix: 256, bits: 8 })),
        ("more bits than it says", compare(&|one| one.range = Range { prefix: 1, bits: 0 })),
        ("256 sums", compare(&|one| one.sums.truncate(255))),
        ("256 sums", compare(&|one| one.sums.push(0))),
        ("1,024 absent", compare(&|one| one.words.absent = over.clone())),
        ("1,024 faulty", compare(&|one| one.words.faulty = over.clone())),
        ("absent peers are not asc", compare(&|one| one.words.absent = vec![peer(1); 2])),
        ("faulty peers are not asc", compare(&|one| one.words.faulty.insert(0, peer(4)))),
        ("64 ranges", lists(&Vec::clear)),
        ("64 ranges", lists(&|all| *all = (0..65).map(|i| empty(Range::ALL.part(i))).collect())),
        ("over 32 bits", lists(&|all| all[0].range = Range { prefix: 1, bits: 33 })),
        ("over 32 bits", lists(&|all| all[0].range = Range { prefix: 1, bits: 255 })),
        ("more bits than it says", lists(&|all| all[0].range.prefix = 1 << 8)),
        ("copy that is not in", lists(&|all| all[1].copies = listed(1).copies)),
        ("fragment that is not in", lists(&|all| all[1].fragments = listed(1).fragments)),
        ("2,048 items", lists(&|all| all[0].copies = vec![listed(1).copies[0]; 2045])),
        ("2,048 items", lists(&|all| all[0].fragments = vec![listed(1).fragments[0]; 2044])),
        ("in another", lists(&|all| all[1] = all[0].clone())),
        ("in another", lists(&|all| all[1] = empty(Range::ALL.part(1).part(7)))),
        ("in another", lists(&|all| all.insert(0, empty(Range::ALL)))),
        ("256 stripes", KeepRequest::Claim(vec![])),
        ("256 stripes", KeepRequest::Claim(vec![id(1); 257])),
        ("256 stripes", settled(0, 0)),
        ("256 stripes", settled(257, 0)),
        ("4,096 fragments", settled(1, 4097)),
        ("256 records", KeepRequest::Fetch(vec![])),
        ("256 records", KeepRequest::Fetch(vec![fetch_at(1); 257])),
        ("1,024 records", KeepRequest::Have(vec![])),
        ("1,024 records", KeepRequest::Have(vec![id(1); 1025])),
        ("64 chunks", KeepRequest::Prove(vec![])),
        ("64 chunks", KeepRequest::Prove(vec![ask; 65])),
        ("1,024 places", KeepRequest::Look(vec![Place::new([1; 32]); 1025])),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_over_a_bound_is_neither_sent_nor_taken() {
    let served = Running::start(ServerLimits::default());
    let (client, to) = (client(), served.endpoint());
    let mut wire = crate::client::wire(&identity(2, 1), &to).await.unwrap();
    for (what, request) in over_bounds() {
        let unsent = client.keep(&to, request.clone(), LIMIT).await;
        let Err(CallError::Invalid { reason }) = unsent else { panic!("{what}: {unsent:?}") };
        assert!(reason.contains(what), "{reason} should name {what}");
        let refused = wire.keep(crate::proto::KeepRequest::from(request)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{what}: {refused:?}");
        assert!(refused.message().contains(what), "{refused:?} should name {what}");
    }
    assert!(served.service.keeping.lock().unwrap().requests.is_empty());
}

/// A peer that runs but does not answer costs the caller its limit and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_ends_with_its_limit() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = endpoint(listener.local_addr().unwrap());
    let limit = Duration::from_millis(200);
    let late = client().keep(&to, KeepRequest::Look(vec![]), limit).await;
    assert_eq!(late, Err(CallError::TimedOut { address: to.address, limit }));
}
