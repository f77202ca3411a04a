use crypto::Place;
use proptest::prelude::*;

use super::*;
use crate::{Proven, places, prove};

const SUITE: Suite = Suite::Holdfast1;

fn id(byte: u8) -> RecordId {
    RecordId::new([byte; 32])
}

fn version(bases: Bases, l: u64, value: &'static [u8]) -> Version {
    let value = Bytes::from_static(value);
    Version { object: ObjectKey::new([7; 32]), bases, l, kind: ValueKind::Bytes, value }
}

fn any_version() -> impl Strategy<Value = Version> {
    let bases = prop_oneof![
        Just(Bases::NONE),
        any::<[u8; 32]>().prop_map(|base| Bases::one(RecordId::new(base))),
        any::<([u8; 32], [u8; 32])>().prop_filter_map("twice the same", |(a, b)| {
            Bases::two(RecordId::new(a), RecordId::new(b)).ok()
        }),
    ];
    let value = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(|value| (0, value)),
        any::<[u8; 32]>().prop_map(|entry| (1, entry.to_vec())),
        Just((2, Vec::new())),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(|value| (3, value)),
    ];
    (any::<[u8; 32]>(), bases, 1_u64.., value).prop_map(|(object, bases, l, (kind, value))| {
        let kind = ValueKind::from_number(kind).expect("a kind");
        let l = if bases.is_empty() { 0 } else { l };
        Version { object: ObjectKey::new(object), bases, l, kind, value: value.into() }
    })
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(version in any_version()) {
        let bytes = version.encode();
        prop_assert_eq!(bytes.len(), version.view().encoded_len());
        prop_assert_eq!(&Version::decode(&bytes).expect("its own"), &version);
        prop_assert_eq!(View::decode(&bytes).expect("its own"), version.view());
        let (record, found) = version.record(SUITE, Hint::FIRST);
        prop_assert_eq!((found.h, found.l), (record.id, version.l));
        prop_assert_eq!(prove(SUITE, &record).expect("its own"), Proven::Version(version));
    }

    /// Any other bytes are another version, or none: what decodes encodes to the same bytes.
    #[test]
    fn one_version_has_one_encoding(version in any_version(), at: usize, bit in 0..8, cut: usize) {
        let bytes = version.encode();
        let mut other = bytes.to_vec();
        let at = at % other.len();
        other[at] ^= 1_u8 << bit;
        if let Ok(decoded) = View::decode(&other) {
            prop_assert_eq!(&decoded.encode()[..], &other[..]);
            prop_assert_ne!(decoded, version.view());
        }
        prop_assert!(View::decode(&bytes[..cut % bytes.len()]).is_err());
        prop_assert!(View::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = View::decode(&bytes);
        let _ = View::decode(&[PREFIX, &bytes].concat());
    }
}

#[test]
fn what_no_version_can_be_is_refused() {
    let refused = |version: &Version, why: &str| {
        let found = Version::decode(&encoded_unchecked(version)).expect_err(why);
        assert!(matches!(found, VersionError::Field(_) | VersionError::TooLarge { .. }), "{why}");
    };
    refused(&version(Bases::NONE, 1, b""), "a root has depth 0");
    refused(&version(Bases::one(id(1)), 0, b""), "what has a base has a depth");
    let kind = |kind, value| Version { kind, ..version(Bases::NONE, 0, value) };
    refused(&kind(ValueKind::Tombstone, b"x"), "a tombstone is empty");
    refused(&kind(ValueKind::Entry, &[1; 31]), "an id has 32 bytes");
    refused(&kind(ValueKind::Entry, &[1; 33]), "an id has 32 bytes");
    refused(&version(Bases::NONE, 0, &[0; VALUE_BYTES_MAX + 1]), "a value has a bound");
    assert!(Bases::two(id(1), id(1)).is_err());
    assert!(Bases::from_slice(&[id(1), id(2), id(3)]).is_err());

    let good = version(Bases::two(id(1), id(2)).expect("they differ"), 3, b"value").encode();
    let changed = |at: usize, bytes: &[u8]| {
        let mut changed = good.to_vec();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        View::decode(&changed).map(|_| ())
    };
    assert!(changed(0, PREFIX).is_ok());
    assert!(matches!(changed(0, b"H"), Err(VersionError::Prefix(_))));
    assert!(changed(PREFIX.len(), &33_u64.to_be_bytes()).is_err(), "a key has 32 bytes");
    let count = PREFIX.len() + 8 + 32;
    assert!(changed(count, &[3]).is_err(), "at most two bases");
    assert!(changed(count + 1, &[2; 32]).is_err(), "two bases differ");
    assert!(changed(count + 1 + 64 + 8, &[4]).is_err(), "an unknown kind of value");
    assert!(changed(count + 1 + 64 + 9, &u64::MAX.to_be_bytes()).is_err(), "a length that lies");
}

/// As [`View::encode_into`], of what cannot be.
fn encoded_unchecked(version: &Version) -> Bytes {
    let mut out = Vec::new();
    version.view().head_into(version.value.len(), &mut out);
    out.extend_from_slice(&version.value);
    out.into()
}

#[test]
fn the_longest_version_fits_a_record() {
    let bases = Bases::two(id(1), id(2)).expect("they differ");
    let longest = version(bases, u64::MAX, &[7; VALUE_BYTES_MAX]);
    let bytes = longest.encode();
    assert_eq!(bytes.len(), VERSION_BYTES_MAX);
    assert!(bytes.len() <= document::DOCUMENT_BYTES_MAX);
    let decoded = Version::decode(&bytes).expect("its own");
    assert!(bytes.as_ptr_range().contains(&decoded.value.as_ptr()), "nothing is copied");
    assert!(depth([3, u64::MAX]).is_err());
    assert_eq!(depth([3, 9]).expect("deeper"), 10);
    assert_eq!(depth([]).expect("a root"), 0);
}

#[test]
fn a_record_is_proven_by_id_kind_and_place() {
    for suite in Suite::ALL {
        let version = version(Bases::one(id(1)), 1, b"value");
        for (hint, place) in places(suite, version.object) {
            let (record, id) = version.record(suite, hint);
            assert_eq!((record.place, id.n), (place, hint));
            assert!(prove(suite, &record).is_ok());
        }
        let (good, _) = version.record(suite, Hint::FIRST);
        let refused = |change: &dyn Fn(&mut Record)| {
            let mut record = good.clone();
            change(&mut record);
            prove(suite, &record).expect_err("another record")
        };
        let elsewhere = |record: &mut Record| record.place = Place::from(record.id);
        assert!(matches!(refused(&elsewhere), VersionError::Place(_)));
        assert!(matches!(refused(&|record| record.id = id(2)), VersionError::Id(_)));
        let page = |record: &mut Record| record.kind = Kind::Page;
        assert!(matches!(refused(&page), VersionError::Kind { .. }));
        let object = |record: &mut Record| record.kind = Kind::Object;
        assert!(matches!(refused(&object), VersionError::Prefix(_)));
        // No document is proven as one of these, and none of these as a document.
        let unproven = document::prove(suite, &good);
        assert!(matches!(unproven, Err(document::DocumentError::NoDocument { .. })));
    }
}
