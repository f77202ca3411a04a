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
    let update = |answers| Some(Answer::Update(proto::CommitteeUpdateAnswer { answers }));
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

#[test]
fn answers_that_are_longer_than_a_message_are_not_sent() {
    let one = Bytes::from(vec![1; ANSWER_BYTES_MAX]);
    let fits =
        |count| crate::convert::committee::fits(&CommitteeAnswer::Update(vec![one.clone(); count]));
    assert!(fits(80).is_ok());
    assert!(fits(100).is_err());
}
