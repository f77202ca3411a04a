//! What may be asked and answered about committees: anything, and whoever reads it is told what is wrong.

use bytes::Bytes;
use env::calls::committee::*;
use env::calls::*;
use prost::Message;
use version::ObjectKey;

use super::hostile_peers::{answering, message};
use super::*;
use crate::convert::Open as _;
use crate::proto;
use crate::proto::committee_response::Answer;

fn asking(ask: CommitteeAsk) -> CommitteeRequest {
    CommitteeRequest { group: Some([7; 32]), ask }
}

/// Why a client does not take what the peer answered.
async fn corrupt(ask: CommitteeAsk, answer: Option<Answer>) -> String {
    let bytes = proto::CommitteeResponse { answer }.encode_to_vec();
    let address = answering(move || message(bytes.len(), &bytes)).await;
    match client().committee(&endpoint(address), asking(ask), LIMIT).await {
        Err(CallError::Corrupt { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn status() -> proto::CommitteeStatusAnswer {
    proto::CommitteeStatusAnswer {
        group: vec![1; 96].into(),
        member: vec![1; 32].into(),
        ..proto::CommitteeStatusAnswer::default()
    }
}

#[tokio::test]
async fn answers_about_committees_that_are_none_are_corrupt() {
    let [long, card] = [ANSWER_BYTES_MAX, CARD_BYTES_MAX].map(|max| Bytes::from(vec![1; max + 1]));
    let told = |status| Some(Answer::Status(status));
    let key = Bytes::from(vec![1; 32]);
    let update = |answers| {
        let end = Bytes::new();
        Some(Answer::Update(proto::CommitteeUpdateAnswer { answers, end }))
    };
    let read = || CommitteeAsk::Read {
        object: ObjectKey::new([1; 32]),
        branch: Bytes::from_static(b"main"),
        at: None,
    };
    let sent = || CommitteeAsk::Update(Bytes::from_static(b"u"));
    let cases = [
        ("missing", CommitteeAsk::Status, None),
        ("something else", CommitteeAsk::Status, Some(Answer::Charter(Bytes::new()))),
        ("something else", read(), Some(Answer::HowFar(Bytes::new()))),
        ("something else", sent(), Some(Answer::Read(Bytes::new()))),
        ("96 KiB", read(), Some(Answer::Read(long.clone()))),
        ("96 KiB", CommitteeAsk::HowFar([0; 32]), Some(Answer::HowFar(long.clone()))),
        ("96 KiB", CommitteeAsk::Charter, Some(Answer::Charter(long.clone()))),
        ("96 KiB", sent(), update(vec![long.clone()])),
        ("1,024", sent(), update(vec![Bytes::new(); ANSWERS_MAX + 1])),
        ("96 bytes", CommitteeAsk::Status, told(proto::CommitteeStatusAnswer::default())),
        (
            "32 bytes",
            CommitteeAsk::Status,
            told(proto::CommitteeStatusAnswer { member: Bytes::new(), ..status() }),
        ),
        (
            "32 members",
            CommitteeAsk::Status,
            told(proto::CommitteeStatusAnswer { members: vec![key.clone(); 33], ..status() }),
        ),
        (
            "64 cards",
            CommitteeAsk::Status,
            told(proto::CommitteeStatusAnswer { cards: vec![key; 65], ..status() }),
        ),
        (
            "512 bytes",
            CommitteeAsk::Status,
            told(proto::CommitteeStatusAnswer { cards: vec![card], ..status() }),
        ),
    ];
    for (number, (expected, ask, answer)) in cases.into_iter().enumerate() {
        let reason = corrupt(ask, answer).await;
        assert!(reason.contains(expected), "case {number}: {reason}");
    }
}

#[tokio::test]
async fn requests_about_committees_over_their_bounds_are_not_sent_and_not_taken() {
    let long = Bytes::from(vec![1; SUBMISSION_BYTES_MAX + 1]);
    let name = Bytes::from(vec![b'b'; BRANCH_BYTES_MAX + 1]);
    let object = ObjectKey::new([1; 32]);
    for (expected, ask) in [
        ("1 MiB", CommitteeAsk::Update(long)),
        ("missing", CommitteeAsk::Update(Bytes::new())),
        ("128", CommitteeAsk::Read { object, branch: name, at: None }),
        ("128", CommitteeAsk::Read { object, branch: Bytes::new(), at: None }),
    ] {
        let wire = proto::CommitteeRequest::from(asking(ask.clone()));
        let opened: Result<CommitteeRequest, _> = wire.open();
        assert!(opened.expect_err("over a bound").0.contains(expected), "{expected}");
        let to = endpoint("127.0.0.1:1".parse().expect("an address"));
        match client().committee(&to, asking(ask), LIMIT).await {
            Err(CallError::Invalid { reason }) => assert!(reason.contains(expected), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    use proto::committee_request::Request;
    let nonce = proto::CommitteeHowFar { nonce: vec![1; 31].into() };
    let branch = Bytes::from_static(b"main");
    let object = Bytes::from_static(b"short");
    let read = proto::CommitteeRead { object, branch, epoch: 0, view: 0 };
    for (group, request) in [
        (31, Some(Request::Status(proto::CommitteeStatus {}))),
        (32, Some(Request::HowFar(nonce))),
        (32, Some(Request::Read(read))),
        (0, None),
    ] {
        let wire = proto::CommitteeRequest { group: vec![1; group].into(), request };
        let opened: Result<CommitteeRequest, _> = wire.open();
        assert!(opened.is_err(), "{group}");
    }
}

/// Answers of so many bytes each, whose first bytes differ.
fn answers(count: usize, bytes: usize) -> Vec<Bytes> {
    let answer = |number: usize| {
        let mut answer = vec![1; bytes];
        answer[..8].copy_from_slice(&number.to_be_bytes());
        answer.into()
    };
    (0..count).map(answer).collect()
}

#[test]
fn answers_of_one_block_travel_with_one_certificate_and_others_not_in_a_message_that_is_too_long() {
    let fits = |answers| crate::convert::committee::fits(&CommitteeAnswer::Update(answers));
    // The longest certificates, of as many updates as a bundle has.
    let all = answers(ANSWERS_MAX, 22 << 10);
    assert!(fits(all.clone()).is_ok());
    for answers in [all, answers(3, 40), answers(1, 40), vec![Bytes::from_static(b"same"); 3]] {
        let sent = CommitteeAnswer::Update(answers);
        let wire = proto::CommitteeResponse::from(sent.clone());
        assert!(wire.encoded_len() < 64 << 10, "{}", wire.encoded_len());
        let opened: Result<CommitteeAnswer, _> = wire.open();
        assert_eq!(opened.ok(), Some(sent));
    }
    // Their ends differ.
    let mut others = answers(100, ANSWER_BYTES_MAX);
    for (number, one) in others.iter_mut().enumerate() {
        let mut bytes = one.to_vec();
        *bytes.last_mut().expect("bytes") = number as u8;
        *one = bytes.into();
    }
    assert!(fits(others[..80].to_vec()).is_ok());
    assert!(fits(others).is_err());
}

#[tokio::test]
async fn an_end_that_makes_answers_longer_than_they_may_be_is_corrupt() {
    let update = |count: usize, end: usize| {
        let (answers, end) = (vec![Bytes::from_static(&[1]); count], vec![1; end].into());
        Some(Answer::Update(proto::CommitteeUpdateAnswer { answers, end }))
    };
    let ask = CommitteeAsk::Update(Bytes::from_static(b"some"));
    let one = corrupt(ask.clone(), update(1, ANSWER_BYTES_MAX)).await;
    assert!(one.contains("96 KiB"), "{one}");
    let all = corrupt(ask, update(ANSWERS_MAX, ANSWER_BYTES_MAX - 1)).await;
    assert!(all.contains("32 MiB"), "{all}");
}
