//! Decoders of `version`: what versioned objects are made of.

use bytes::Bytes;
use crypto::{NetworkId, SecretKey, Suite};
use version::{
    Bases, Hint, ObjectKey, ObjectRecord, Proven, ValueKind, Version, VersionError, View, prove,
};

use super::Target;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "version", run: run_version, seeds: versions },
    Target { name: "object", run: run_object, seeds: objects },
];

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
}

fn object() -> ObjectRecord {
    let name = Bytes::from_static(b"name");
    ObjectRecord { network: NetworkId::new([9; 32]), owner: secret(1).public(), name }
}

fn version(bases: Bases, l: u64, kind: ValueKind, value: &'static [u8]) -> Version {
    Version { object: ObjectKey::new([7; 32]), bases, l, kind, value: Bytes::from_static(value) }
}

fn versions() -> Vec<Vec<u8>> {
    let root = version(Bases::NONE, 0, ValueKind::Bytes, b"value");
    let h = |version: &Version| Suite::Holdfast1.id(&version.encode());
    let put = version(Bases::one(h(&root)), 1, ValueKind::Commit, b"");
    let two = Bases::two(h(&root), h(&put)).expect("they differ");
    let merge = version(two, 2, ValueKind::Entry, &[1; 32]);
    let gone = version(Bases::one(h(&merge)), 3, ValueKind::Tombstone, b"");
    [root, put, merge, gone].iter().map(|version| version.encode().to_vec()).collect()
}

fn objects() -> Vec<Vec<u8>> {
    vec![object().encode().expect("a good name").to_vec()]
}

fn run_version(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    let Ok(version) = Version::decode(&data) else {
        assert!(View::decode(&data).is_err());
        return;
    };
    assert_eq!(version.encode(), data);
    for suite in Suite::ALL {
        let (record, _) = version.record(suite, Hint::FIRST);
        assert_eq!(prove(suite, &record).expect("decoded"), Proven::Version(version.clone()));
    }
}

fn run_object(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    match ObjectRecord::decode(&data) {
        Ok(object) => assert_eq!(object.encode().expect("decoded"), data),
        Err(VersionError::Id(_) | VersionError::Place(_)) => panic!("it knows neither"),
        Err(_) => {}
    }
}
