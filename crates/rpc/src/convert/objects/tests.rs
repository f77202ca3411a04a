//! Whatever a request or an answer says, it arrives as it was; and whatever arrives, is opened or refused.

use bytes::Bytes;
use crypto::{PeerId, Place, SecretKey};
use env::calls::CallError;
use env::calls::objects::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use version::Durability;
use version::claim::REDIRECT_BYTES;

use super::*;
use crate::limits::BATCH_MESSAGE_BYTES_MAX;

const HERE: &str = "192.0.2.1:7000";

fn key() -> impl Strategy<Value = PublicKey> {
    let key = |byte| SecretKey::from_bytes(&[byte; 32]).expect("a scalar").public();
    (1..20u8).prop_map(key)
}

fn text(most: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=most).prop_map(Bytes::from)
}

fn some(most: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 1..=most).prop_map(Bytes::from)
}

fn claim() -> impl Strategy<Value = Option<Bytes>> {
    option::of(any::<u8>().prop_map(|byte| vec![byte; READER_BYTES].into()))
}

fn key_of_object() -> impl Strategy<Value = ObjectKey> {
    any::<[u8; 32]>().prop_map(ObjectKey::new)
}

fn record_of(kind: impl Strategy<Value = Kind>) -> impl Strategy<Value = Record> {
    let place = option::of(any::<[u8; 32]>());
    (kind, any::<[u8; 32]>(), place, some(60)).prop_map(|(kind, id, place, bytes)| {
        let id = RecordId::new(id);
        let place = place.map_or(Place::from(id), Place::new);
        Record { kind, id, place, bytes }
    })
}

fn record(kind: Kind) -> impl Strategy<Value = Record> {
    record_of(Just(kind))
}

fn found(kind: Kind) -> impl Strategy<Value = FoundVersion> {
    let parts = (record(kind), option::of(some(60)));
    parts.prop_map(|(record, attestation)| FoundVersion { record, attestation })
}

fn version_at() -> impl Strategy<Value = VersionAt> {
    let hint = prop_oneof![Just(Hint::FIRST), any::<[u8; 16]>().prop_map(Hint::new)];
    let parts = (key_of_object(), any::<[u8; 32]>(), hint);
    parts.prop_map(|(object, h, n)| VersionAt { object, h: RecordId::new(h), n })
}

fn request() -> impl Strategy<Value = ObjectsRequest> {
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !kind.is_document()).collect();
    let durability = option::of(proptest::sample::select(&Durability::ALL[..]));
    let records = vec(record_of(proptest::sample::select(kinds)), 1..5);
    let put = (records, any::<bool>(), durability, any::<bool>()).prop_map(
        |(records, compress, durability, receipt)| {
            ObjectsRequest::Put(PutObjects { records, compress, durability, receipt })
        },
    );
    let get = (vec(version_at(), 1..5), any::<bool>(), claim()).prop_map(
        |(versions, attested, reader)| {
            ObjectsRequest::Get(GetVersions { versions, attested, reader })
        },
    );
    let previous = (version_at(), 1..=1024u32, claim()).prop_map(|(version, most, reader)| {
        ObjectsRequest::Previous(GetPrevious { version, most, reader })
    });
    let tips = (vec(key_of_object(), 1..5), claim())
        .prop_map(|(objects, reader)| ObjectsRequest::Tips(GetTips { objects, reader }));
    let heads =
        (key(), key_of_object(), some(128), claim()).prop_map(|(owner, object, branch, reader)| {
            ObjectsRequest::Heads(GetHeads { owner, object, branch, reader })
        });
    let list = (key(), text(1024), text(1024), 1..=1024u32, claim()).prop_map(
        |(owner, prefix, after, most, reader)| {
            ObjectsRequest::List(ListObjects { owner, prefix, after, most, reader })
        },
    );
    prop_oneof![put, get, previous, tips, heads, list]
}

fn error() -> impl Strategy<Value = CallError> {
    proptest::sample::select(crate::status::tests::every_error())
}

fn outcomes<T: Clone + std::fmt::Debug>(
    good: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<Result<T, CallError>>> {
    vec(prop_oneof![3 => good.prop_map(Ok), 1 => error().prop_map(Err)], 0..5)
}

fn answer() -> impl Strategy<Value = ObjectsAnswer> {
    let redirect = any::<u8>().prop_map(|byte| Bytes::from(vec![byte; REDIRECT_BYTES]));
    let redirects = vec(redirect.clone(), 0..3);
    let outcome = prop_oneof![
        Just(PutOutcome::Stored),
        Just(PutOutcome::Present),
        Just(PutOutcome::NoObject),
        redirect.prop_map(PutOutcome::Redirect),
    ];
    let put = (outcomes(outcome), option::of(some(718)))
        .prop_map(|(outcomes, receipt)| ObjectsAnswer::Put(PutObjectsAnswer { outcomes, receipt }));
    let get = outcomes(option::of(found(Kind::Version))).prop_map(ObjectsAnswer::Get);
    let missing = option::of(any::<[u8; 32]>().prop_map(RecordId::new));
    let previous = (vec(record(Kind::Version), 0..5), missing).prop_map(|(records, missing)| {
        ObjectsAnswer::Previous(PreviousAnswer { records, missing })
    });
    let one = (
        option::of(record(Kind::Object)),
        option::of(record(Kind::Policy)),
        vec(found(Kind::Version), 0..4),
        any::<bool>(),
        redirects,
    );
    let one = one.prop_map(|(object, policy, tips, more, redirects)| ObjectTips {
        object,
        policy,
        tips,
        more,
        redirects,
    });
    let heads = (vec(record(Kind::Head), 0..5), option::of(record(Kind::Devices)))
        .prop_map(|(heads, devices)| ObjectsAnswer::Heads(HeadsAnswer { heads, devices }));
    let list = vec(record(Kind::Object), 0..5).prop_map(ObjectsAnswer::List);
    let tips = outcomes(one).prop_map(ObjectsAnswer::Tips);
    prop_oneof![put, get, previous, tips, heads, list]
}

/// What such an answer answers, as far as its bounds go.
fn asked(answer: &ObjectsAnswer) -> Asked {
    match answer {
        ObjectsAnswer::Put(put) => Asked::Put(put.outcomes.len()),
        ObjectsAnswer::Get(all) => Asked::Get(all.len()),
        ObjectsAnswer::Previous(_) => Asked::Previous(9),
        ObjectsAnswer::Tips(all) => Asked::Tips(all.len()),
        ObjectsAnswer::Heads(_) => Asked::Heads,
        ObjectsAnswer::List(_) => Asked::List(9),
        _ => Asked::Other,
    }
}

fn cursor() -> impl Strategy<Value = WatchCursor> {
    let parts = (key(), any::<u64>(), any::<u64>());
    parts.prop_map(|(peer, run, next)| WatchCursor { peer: PeerId::new(peer), run, next })
}

fn watch() -> impl Strategy<Value = WatchRequest> {
    let what = prop_oneof![
        vec(key_of_object(), 1..5).prop_map(Watched::Objects),
        (key(), text(1024)).prop_map(|(owner, prefix)| Watched::Family(owner, prefix)),
        (key(), key_of_object(), some(128))
            .prop_map(|(owner, object, branch)| Watched::Branch(owner, object, branch)),
    ];
    let parts = (what, option::of(cursor()), claim());
    parts.prop_map(|(what, from, reader)| WatchRequest { what, from, reader })
}

fn event() -> impl Strategy<Value = WatchEvent> {
    let kinds = prop_oneof![found(Kind::Version), found(Kind::Head), found(Kind::Devices)];
    prop_oneof![
        (kinds, option::of(cursor()))
            .prop_map(|(found, cursor)| WatchEvent::Record { found, cursor }),
        Just(WatchEvent::Gap),
        cursor().prop_map(WatchEvent::CaughtUp),
    ]
}

/// The message after a way over the wire.
fn carried<M: Message + Default>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).expect("its own bytes")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn requests_and_watches_arrive_as_they_were(request in request(), watch in watch()) {
        let arrived = carried(&proto::ObjectsRequest::from(request.clone())).open();
        prop_assert_eq!(arrived, Ok(request));
        let arrived = carried(&proto::WatchRequest::from(watch.clone())).open();
        prop_assert_eq!(arrived, Ok(watch));
    }

    #[test]
    fn answers_and_events_arrive_as_they_were(answer in answer(), event in event()) {
        let sent = asked(&answer).fit(answer.clone()).expect("it answers what was asked");
        prop_assert_eq!(carried(&sent).open(HERE), Ok(answer));
        let arrived = carried(&proto::WatchEvent::from(event.clone())).open();
        prop_assert_eq!(arrived, Ok(event));
    }

    /// Whatever arrives is opened or refused, and what is opened closes to the same again.
    #[test]
    fn opening_any_bytes_never_panics(
        request in request(),
        answer in answer(),
        flips in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let flipped = |mut bytes: Vec<u8>| {
            for (at, byte) in &flips {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
            }
            bytes
        };
        let bytes = flipped(proto::ObjectsRequest::from(request).encode_to_vec());
        if let Ok(message) = proto::ObjectsRequest::decode(&bytes[..])
            && let Ok(request) = Open::<ObjectsRequest>::open(message)
        {
            let again = proto::ObjectsRequest::from(request.clone()).open();
            prop_assert_eq!(again, Ok(request));
        }
        let sent = asked(&answer).fit(answer).expect("it answers what was asked");
        let bytes = flipped(sent.encode_to_vec());
        if let Ok(message) = proto::ObjectsResponse::decode(&bytes[..])
            && let Ok(answer) = message.open(HERE)
        {
            let again = asked(&answer).fit(answer.clone()).map(|sent| sent.open(HERE));
            prop_assert_eq!(again, Ok(Ok(answer)));
        }
        let _ = proto::WatchRequest::decode(&bytes[..]).map(Open::open);
        let _ = proto::WatchEvent::decode(&bytes[..]).map(Open::open);
    }
}

/// A record of this many bytes; they share one buffer.
fn long(kind: Kind, len: usize) -> Record {
    static BYTES: [u8; 2 << 20] = [1; 2 << 20];
    let id = RecordId::new([1; 32]);
    Record { kind, id, place: Place::new([2; 32]), bytes: Bytes::from_static(&BYTES[..len]) }
}

/// The most that a service may give of each kind fits a message, and fits what a client takes.
#[test]
fn the_largest_answers_of_every_kind_fit_a_message() {
    let reason = "a reason of many words ".repeat(100);
    let failure = || CallError::Unreachable { address: reason.clone(), reason: reason.clone() };
    let found = |len| FoundVersion { record: long(Kind::Version, len), attestation: None };
    let tips = |count: usize, len| ObjectTips {
        object: Some(long(Kind::Object, 1_200)),
        policy: Some(long(Kind::Policy, 24 << 10)),
        tips: vec![found(len); count],
        more: false,
        redirects: vec![vec![1; REDIRECT_BYTES].into(); 40],
    };
    let list = |len, count| ObjectsAnswer::List(vec![long(Kind::Object, len); count]);
    let heads = |len, count: usize| {
        let devices = Some(long(Kind::Devices, 8 << 10));
        ObjectsAnswer::Heads(HeadsAnswer { heads: vec![long(Kind::Head, len); count], devices })
    };
    let previous = |len, count: usize| {
        let records = vec![long(Kind::Version, len); count];
        ObjectsAnswer::Previous(PreviousAnswer { records, missing: None })
    };
    let mut gets = vec![Ok(Some(found(2 << 20))); 4];
    gets.extend((4..1024).map(|_| Err(failure())));
    let outcomes = (0..1024).map(|_| Err(failure())).collect();
    let answers = [
        ObjectsAnswer::Put(PutObjectsAnswer { outcomes, receipt: None }),
        ObjectsAnswer::Get(gets),
        ObjectsAnswer::Get(vec![Ok(Some(found(8 << 10))); 1024]),
        ObjectsAnswer::Get((0..1024).map(|_| Err(failure())).collect()),
        previous(1 << 20, 1025),
        previous(100, 2000),
        ObjectsAnswer::Tips(vec![Ok(tips(200, 100)); 256]),
        ObjectsAnswer::Tips(vec![Ok(tips(64, 2 << 20)); 256]),
        ObjectsAnswer::Tips((0..256).map(|_| Err(failure())).collect()),
        heads(8 << 10, 5000),
        heads(2_000, 5000),
        heads(100, 5000),
        list(1_200, 2000),
    ];
    for answer in answers {
        let asked = match asked(&answer) {
            Asked::Previous(_) => Asked::Previous(1024),
            Asked::List(_) => Asked::List(1024),
            other => other,
        };
        let sent = asked.fit(answer).expect("it answers what was asked");
        let len = sent.encoded_len();
        assert!(len <= BATCH_MESSAGE_BYTES_MAX, "{asked:?} has {len} bytes");
        let arrived = sent.open(HERE).unwrap_or_else(|wrong| panic!("{asked:?}: {wrong}"));
        match arrived {
            ObjectsAnswer::Get(all) => assert_eq!(all.len(), 1024),
            ObjectsAnswer::Tips(all) => assert_eq!(all.len(), 256),
            _ => {}
        }
    }
}
