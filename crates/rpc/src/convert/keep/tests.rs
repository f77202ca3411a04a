//! Whatever a request or an answer says, it arrives as it was; and whatever arrives, is opened or refused.

use crypto::{Place, SecretKey};
use document::proof::{PROOF_CHUNK_BYTES, PROOF_PATH_BYTES_MAX};
use document::{Kind, Record};
use env::calls::keep::*;
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::limits::{BATCH_MESSAGE_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX};

fn peer_of(byte: u8) -> PeerId {
    PeerId::new(SecretKey::from_bytes(&[byte; 32]).expect("a scalar").public())
}

fn any_peer() -> impl Strategy<Value = PeerId> {
    (1..20u8).prop_map(peer_of)
}

fn ascending() -> impl Strategy<Value = Vec<PeerId>> {
    btree_set(any_peer(), 0..6).prop_map(|peers| peers.into_iter().collect())
}

fn words() -> impl Strategy<Value = Words> {
    (ascending(), ascending()).prop_map(|(absent, faulty)| Words { absent, faulty })
}

fn id() -> impl Strategy<Value = RecordId> {
    any::<[u8; 32]>().prop_map(RecordId::new)
}

fn some_bytes(most: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 1..=most).prop_map(Bytes::from)
}

/// A place in this range: its first bits, then these.
fn place_in(range: Range, rest: [u8; 32]) -> [u8; 32] {
    let mut place = rest;
    let first = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
    let kept = u32::MAX.checked_shr(range.bits.into()).unwrap_or(0);
    let prefix = range.prefix.checked_shl(32 - u32::from(range.bits)).unwrap_or(0);
    place[..4].copy_from_slice(&(prefix | first & kept).to_be_bytes());
    place
}

/// Ranges of one length, of which none is in another.
fn lists() -> impl Strategy<Value = Vec<Listed>> {
    let of = |range: Range| {
        let at = move |rest| place_in(range, rest);
        // Of what lives elsewhere than at its id the place says the first two bytes, the id the others.
        let elsewhere = any::<([u8; 32], [u8; 32])>().prop_map(move |(mut id, mut place)| {
            let within = at(id);
            id[2..4].copy_from_slice(&within[2..4]);
            place[..2].copy_from_slice(&within[..2]);
            (RecordId::new(id), Place::new(place))
        });
        let own = any::<[u8; 32]>().prop_map(move |rest| {
            let id = RecordId::new(at(rest));
            (id, Place::from(id))
        });
        let copy = prop_oneof![own, elsewhere];
        let stripe = any::<[u8; 32]>().prop_map(move |rest| RecordId::new(at(rest)));
        let held = (stripe, any::<u8>());
        let held = held.prop_map(|(stripe, index)| HeldFragment { stripe, index });
        (vec(copy, 0..4), vec(held, 0..4), any::<bool>())
            .prop_map(move |(copies, fragments, more)| Listed { range, copies, fragments, more })
    };
    let some = (1..=32u8, btree_set(any::<u32>(), 1..5)).prop_map(|(bits, prefixes)| {
        let prefixes = prefixes.into_iter().map(|prefix| prefix >> (32 - bits));
        let prefixes: std::collections::BTreeSet<_> = prefixes.collect();
        prefixes.into_iter().map(|prefix| Range { prefix, bits }).collect()
    });
    let ranges = prop_oneof![Just(vec![Range::ALL]), some];
    ranges.prop_flat_map(move |ranges| ranges.into_iter().map(of).collect::<Vec<_>>())
}

fn request() -> impl Strategy<Value = KeepRequest> {
    let range = prop_oneof![
        Just(Range::ALL),
        any::<u8>().prop_map(|part| Range::ALL.part(part)),
        any::<[u8; 2]>().prop_map(|[a, b]| Range::ALL.part(a).part(b)),
        any::<[u8; 3]>().prop_map(|[a, b, c]| Range::ALL.part(a).part(b).part(c)),
    ];
    let compare = (range, vec(any::<u128>(), SUMS), any::<[u8; 16]>(), words());
    let compare =
        compare.prop_map(|(range, sums, view, words)| Compare { range, sums, view, words });
    let moved = (id(), vec((any::<u8>(), any_peer()), 0..4));
    let settled = moved.prop_map(|(stripe, moved)| SettledStripe { stripe, moved });
    let place = any::<[u8; 32]>().prop_map(Place::new);
    let fetch = (id(), option::of(place.clone())).prop_map(|(id, place)| {
        let place = place.unwrap_or(Place::from(id));
        FetchAt { id, place }
    });
    let prove = (id(), any::<u32>()).prop_map(|(id, chunk)| ProveAt { id, chunk });
    prop_oneof![
        compare.prop_map(KeepRequest::Compare),
        lists().prop_map(KeepRequest::Lists),
        vec(id(), 1..5).prop_map(KeepRequest::Claim),
        vec(settled, 1..5).prop_map(KeepRequest::Settled),
        vec(fetch, 1..5).prop_map(KeepRequest::Fetch),
        vec(id(), 1..5).prop_map(KeepRequest::Have),
        vec(prove, 1..5).prop_map(KeepRequest::Prove),
        vec(place, 0..5).prop_map(KeepRequest::Look),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let parts = (proptest::sample::select(&Kind::ALL[..]), id(), any::<bool>(), some_bytes(60));
    parts.prop_map(|(kind, id, home, bytes)| {
        let place = if home { Place::from(id) } else { Place::new([7; 32]) };
        Record { kind, id, place, bytes }
    })
}

fn answer() -> impl Strategy<Value = KeepAnswer> {
    let differ = btree_set(any::<u8>(), 0..9);
    let compare = (differ, any::<[u8; 16]>(), words()).prop_map(|(differ, view, words)| {
        let differ = differ.into_iter().collect();
        KeepAnswer::Compare(CompareAnswer { differ, view, words })
    });
    let claim = (btree_set(any::<u8>(), 0..=HELD_MAX), option::of(any_peer()));
    let claim = claim.prop_map(|(held, claimed_by)| ClaimAnswer {
        held: held.into_iter().collect(),
        claimed_by,
    });
    let found = (record(), vec(record(), 0..=COMPANIONS_MAX));
    let fetch = prop_oneof![
        found.prop_map(|(record, companions)| FetchAnswer::Found { record, companions }),
        Just(FetchAnswer::Absent),
        Just(FetchAnswer::Later),
    ];
    let path = vec(any::<[u8; 32]>(), 0..=12).prop_map(|path| Bytes::from(path.concat()));
    let length = 1..=crate::RECORD_BYTES_MAX as u32;
    let last = vec(any::<u8>(), 0..=PROOF_CHUNK_BYTES).prop_map(Bytes::from);
    let proof = (length, some_bytes(PROOF_CHUNK_BYTES), path.clone(), last, path);
    let proof = proof.prop_map(|(length, chunk, path, last, last_path)| ChunkProof {
        length,
        chunk,
        path,
        last,
        last_path,
    });
    prop_oneof![
        compare,
        lists().prop_map(KeepAnswer::Lists),
        vec(claim, 1..5).prop_map(KeepAnswer::Claim),
        Just(KeepAnswer::Settled),
        vec(fetch, 1..5).prop_map(KeepAnswer::Fetch),
        vec(any::<bool>(), 1..5).prop_map(KeepAnswer::Have),
        vec(option::of(proof), 1..5).prop_map(KeepAnswer::Prove),
        any::<u32>().prop_map(KeepAnswer::Look),
    ]
}

/// What such an answer answers.
fn asked(answer: &KeepAnswer) -> Asked {
    let at = |answer: &FetchAnswer| match answer {
        FetchAnswer::Found { record, .. } => FetchAt { id: record.id, place: record.place },
        _ => FetchAt { id: RecordId::new([1; 32]), place: Place::new([1; 32]) },
    };
    match answer {
        KeepAnswer::Compare(answer) => Asked::Compare(answer.view),
        KeepAnswer::Lists(lists) => Asked::Lists(lists.iter().map(|one| one.range).collect()),
        KeepAnswer::Claim(answers) => Asked::Claim(answers.len()),
        KeepAnswer::Settled => Asked::Settled,
        KeepAnswer::Fetch(answers) => Asked::Fetch(answers.iter().map(at).collect()),
        KeepAnswer::Have(held) => Asked::Have(held.len()),
        KeepAnswer::Prove(proofs) => Asked::Prove(proofs.len()),
        KeepAnswer::Look(_) => Asked::Look(0),
        _ => Asked::Other,
    }
}

/// The message after a way over the wire.
fn carried<M: Message + Default>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).expect("its own bytes")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn requests_arrive_as_they_were(request in request()) {
        prop_assert_eq!(check_request(&request), Ok(()));
        let arrived = carried(&proto::KeepRequest::from(request.clone())).open();
        prop_assert_eq!(arrived, Ok(request));
    }

    #[test]
    fn answers_arrive_as_they_were(answer in answer()) {
        let sent = asked(&answer).fit(answer.clone()).expect("it answers what was asked");
        prop_assert_eq!(carried(&sent).open(), Ok(answer.clone()));
        prop_assert_eq!(asked(&answer).check(&answer), Ok(()));
    }

    /// Whatever arrives is opened or refused, and what is opened is within every bound and closes to the same again.
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
        let bytes = flipped(proto::KeepRequest::from(request).encode_to_vec());
        if let Ok(message) = proto::KeepRequest::decode(&bytes[..])
            && let Ok(request) = message.open()
        {
            prop_assert_eq!(check_request(&request), Ok(()));
            let again = proto::KeepRequest::from(request.clone()).open();
            prop_assert_eq!(again, Ok(request));
        }
        let sent = asked(&answer).fit(answer).expect("it answers what was asked");
        let bytes = flipped(sent.encode_to_vec());
        if let Ok(message) = proto::KeepResponse::decode(&bytes[..])
            && let Ok(answer) = message.open()
        {
            let again = asked(&answer).fit(answer.clone()).map(Open::open);
            prop_assert_eq!(again, Ok(Ok(answer)));
        }
    }
}

fn long(len: usize) -> Record {
    static BYTES: [u8; 2 << 20] = [1; 2 << 20];
    let id = RecordId::new([1; 32]);
    let bytes = Bytes::from_static(&BYTES[..len]);
    Record { kind: Kind::Page, id, place: Place::new([2; 32]), bytes }
}

fn ascending_keys(count: usize) -> Vec<PeerId> {
    let scalar = |i: usize| {
        let mut bytes = [1; 32];
        bytes[24..].copy_from_slice(&(i as u64).to_be_bytes());
        bytes
    };
    let mut keys: Vec<_> = (0..count)
        .map(|i| PeerId::new(SecretKey::from_bytes(&scalar(i)).expect("a scalar").public()))
        .collect();
    keys.sort_unstable();
    keys
}

/// So no request needs more than a caller without records may send.
#[test]
fn the_largest_request_of_every_kind_fits_a_small_message() {
    let (id, place, peer) = (RecordId::new([0xff; 32]), Place::new([0xee; 32]), peer_of(1));
    let all = ascending_keys(WORDS_MAX);
    let words = Words { absent: all.clone(), faulty: all };
    let range = Range { prefix: 0xff_ffff, bits: 24 };
    let compare = Compare { range, sums: vec![u128::MAX; SUMS], view: [1; 16], words };
    let listed = |i: u32| {
        let range = Range { prefix: u32::MAX - i, bits: 32 };
        let within = place_in(range, [1; 32]);
        // A place that is not the id, which would be left out.
        let mut place = [0xee; 32];
        place[..2].copy_from_slice(&within[..2]);
        let copy = (RecordId::new(within), Place::new(place));
        let copies = vec![copy; ITEMS_MAX / RANGES_MAX];
        Listed { range, copies, fragments: vec![], more: true }
    };
    let settled = |moved: usize| SettledStripe { stripe: id, moved: vec![(255, peer); moved] };
    let requests = [
        KeepRequest::Compare(compare),
        KeepRequest::Lists((0..RANGES_MAX as u32).map(listed).collect()),
        KeepRequest::Claim(vec![id; CLAIMS_MAX]),
        KeepRequest::Settled(vec![settled(MOVED_MAX / CLAIMS_MAX); CLAIMS_MAX]),
        KeepRequest::Fetch(vec![FetchAt { id, place }; FETCH_MAX]),
        KeepRequest::Have(vec![id; HAVE_MAX]),
        KeepRequest::Prove(vec![ProveAt { id, chunk: u32::MAX }; PROVE_MAX]),
        KeepRequest::Look(vec![place; LOOK_MAX]),
    ];
    for request in requests {
        assert_eq!(check_request(&request), Ok(()));
        let sent = proto::KeepRequest::from(request.clone());
        let len = sent.encoded_len();
        assert!(len <= SMALL_MESSAGE_BYTES_MAX, "{len} bytes");
        assert!(sent.open() == Ok(request));
    }
}

/// The most that a service may give of each kind fits a message, and fits what a client takes.
#[test]
fn the_largest_answer_of_every_kind_fits_a_message() {
    let all = ascending_keys(WORDS_MAX);
    let words = Words { absent: all.clone(), faulty: all };
    let compare = CompareAnswer { differ: (0..=255).collect(), view: [1; 16], words };
    let found = |len: usize, companions: usize| FetchAnswer::Found {
        record: long(len),
        companions: vec![long(len); companions],
    };
    let proof = ChunkProof {
        length: crate::RECORD_BYTES_MAX as u32,
        chunk: vec![1; PROOF_CHUNK_BYTES].into(),
        path: vec![1; PROOF_PATH_BYTES_MAX].into(),
        last: vec![1; PROOF_CHUNK_BYTES].into(),
        last_path: vec![1; PROOF_PATH_BYTES_MAX].into(),
    };
    let claim = ClaimAnswer { held: (240..=255).collect(), claimed_by: Some(peer_of(1)) };
    let answers = [
        KeepAnswer::Compare(compare),
        KeepAnswer::Claim(vec![claim; CLAIMS_MAX]),
        KeepAnswer::Fetch(vec![found(2 << 20, 0); FETCH_MAX]),
        KeepAnswer::Fetch(vec![found(1 << 20, COMPANIONS_MAX); FETCH_MAX]),
        KeepAnswer::Fetch(vec![found(1, COMPANIONS_MAX); FETCH_MAX]),
        KeepAnswer::Fetch(vec![found(6553, COMPANIONS_MAX); FETCH_MAX]),
        KeepAnswer::Have(vec![true; HAVE_MAX]),
        KeepAnswer::Prove(vec![Some(proof); PROVE_MAX]),
        KeepAnswer::Look(u32::MAX),
    ];
    for answer in answers {
        let asked = asked(&answer);
        let sent = asked.clone().fit(answer).expect("it answers what was asked");
        assert!(sent.encoded_len() <= BATCH_MESSAGE_BYTES_MAX, "{} bytes", sent.encoded_len());
        let arrived = sent.open().expect("it fits");
        assert_eq!(asked.check(&arrived), Ok(()));
    }
}

#[test]
fn a_list_that_does_not_fit_is_left_out_whole() {
    let listed = |part: u8, count: usize| {
        let range = Range::ALL.part(part);
        let copies = vec![(RecordId::new([1; 32]), Place::new([part; 32])); count];
        Listed { range, copies, fragments: vec![], more: false }
    };
    let lists = vec![listed(1, 2000), listed(2, 100), listed(3, 48)];
    let ranges = lists.iter().map(|one| one.range).collect();
    let sent = Asked::Lists(ranges).fit(KeepAnswer::Lists(lists)).expect("it is cut");
    let Ok(KeepAnswer::Lists(lists)) = sent.open() else { panic!("not lists") };
    let told: Vec<_> = lists.iter().map(|one| (one.copies.len(), one.more)).collect();
    assert_eq!(told, [(2000, false), (0, true), (48, false)]);
}
