use bytes::Bytes;
use env::calls::{Cursor, FindRequest, SubscribeEvent};
use proptest::prelude::*;
use prost::Message;

use super::*;

fn good() -> proto::Record {
    let id = Bytes::from(vec![1; 32]);
    proto::Record { kind: 3, id, place: Bytes::new(), bytes: Bytes::from_static(b"x") }
}

#[test]
fn a_record_is_opened_or_refused_by_each_of_its_fields() {
    let record = good().open().expect("it is good");
    assert_eq!(record.place, Place::from(record.id));
    assert_eq!(proto::Record::from(record), good());
    type Spoil = fn(&mut proto::Record);
    let cases: [(&str, Spoil); 8] = [
        ("kind", |r| r.kind = 0),
        ("kind", |r| r.kind = 259),
        ("id", |r| r.id = Bytes::from(vec![1; 31])),
        ("id", |r| r.id = Bytes::new()),
        ("place", |r| r.place = Bytes::from(vec![1; 33])),
        ("place", |r| r.place = Bytes::from(vec![1; 1])),
        ("without bytes", |r| r.bytes = Bytes::new()),
        ("over", |r| r.bytes = Bytes::from(vec![0; RECORD_BYTES_MAX + 1])),
    ];
    for (what, spoil) in cases {
        let mut record = good();
        spoil(&mut record);
        let wrong = record.open().expect_err(what);
        assert!(wrong.0.contains(what), "{wrong} should name {what}");
    }
}

#[test]
fn a_short_record_is_copied_out_of_its_message_and_a_long_one_is_not() {
    let frame = Bytes::from(vec![7; 1 << 20]);
    for (len, shares) in [(300, false), (COPIED_BYTES - 1, false), (COPIED_BYTES, true)] {
        let bytes = frame.slice(5..5 + len);
        let record = proto::Record { bytes: bytes.clone(), ..good() }.open().expect("it is good");
        assert_eq!(record.bytes, bytes);
        assert_eq!(frame.as_ptr_range().contains(&record.bytes.as_ptr()), shares, "{len}");
    }
}

#[test]
fn a_cursor_needs_a_key_on_the_curve() {
    let cursor = |peer: Vec<u8>| Some(proto::Cursor { peer: peer.into(), offset: 1, unix_ms: 2 });
    assert_eq!(cursor(vec![]).open(), Ok(Cursor { peer: None, offset: 1, unix_ms: 2 }));
    for bad in [vec![2; 32], vec![0xff; 33], [vec![2], vec![0xff; 32]].concat()] {
        assert!(cursor(bad).open().is_err());
    }
}

#[test]
fn answers_are_cut_to_what_a_client_takes() {
    let many = vec![Bytes::from(vec![0; 16 << 10]); 1024];
    let closest = proto::Closest::from(many);
    assert!(closest.encoded_len() <= 2 << 20 && closest.announcements.len() > 100);
    assert!(closest.open().is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever arrives is opened or refused, and what is opened closes to the same again.
    #[test]
    fn opening_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = &bytes[..];
        if let Ok(message) = proto::FindRequest::decode(bytes)
            && let Ok(request) = Open::<FindRequest>::open(message)
        {
            let again: FindRequest = proto::FindRequest::from(request).open().expect("it was");
            prop_assert_eq!(again, request);
        }
        if let Ok(message) = proto::SubscribeEvent::decode(bytes)
            && let Ok(event) = Open::<SubscribeEvent>::open(message)
        {
            let again = proto::SubscribeEvent::from(event.clone()).open().expect("it was");
            prop_assert_eq!(again, event);
        }
        if let Ok(message) = proto::CommitteeRequest::decode(bytes)
            && let Ok(request) = Open::<env::calls::committee::CommitteeRequest>::open(message)
        {
            let again = proto::CommitteeRequest::from(request.clone()).open().expect("it was");
            prop_assert_eq!(again, request);
        }
        if let Ok(message) = proto::CommitteeResponse::decode(bytes)
            && let Ok(answer) = Open::<env::calls::committee::CommitteeAnswer>::open(message)
        {
            let again = proto::CommitteeResponse::from(answer.clone()).open().expect("it was");
            prop_assert_eq!(again, answer);
        }
        let _ = proto::StoreBatchRequest::decode(bytes).map(Open::open);
        let _ = proto::IntroduceRequest::decode(bytes).map(Open::open);
        let _ = proto::IntroduceResponse::decode(bytes).map(Open::open);
        let _ = proto::SubscribeRequest::decode(bytes).map(Open::open);
        let _ = proto::VerifyBatchRequest::decode(bytes).map(Open::open);
        let _ = proto::FindAnswer::decode(bytes).map(|answer| answer.open("here"));
    }
}
