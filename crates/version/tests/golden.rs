//! The bytes of every format with fixed keys. `HOLD_GOLDEN=update` writes them on purpose; see `testkit::golden`.
//! `docs/formats/versions.md` explains these very bytes.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use crypto::{NetworkId, RecordId, SecretKey, Suite};
use version::merge::map;
use version::merkle::Tree;
use version::policy::{Copies, For};
use version::receipt::Terms;
use version::{
    Attestation, Bases, BatchAttester, Branch, BranchName, Codecs, DeviceList, Durability, Form,
    Hint, ObjectKey, ObjectRecord, Policy, Receipt, ValueKind, Version, VersionId, ZSTD, places,
};

const SUITE: Suite = Suite::Holdfast1;
const NETWORK: NetworkId = NetworkId::new([9; 32]);

fn golden(name: &str, bytes: &[u8]) {
    testkit::golden::check(testkit::manifest!(), name, bytes);
}

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

fn object() -> ObjectRecord {
    let name = Bytes::from_static(b"report");
    ObjectRecord { network: NETWORK, owner: secret(1).public(), name }
}

fn key() -> ObjectKey {
    object().key(SUITE).unwrap()
}

fn put(bases: Bases, l: u64, value: &'static [u8]) -> Version {
    let value = Bytes::from_static(value);
    Version { object: key(), bases, l, kind: ValueKind::Bytes, value }
}

/// A root, two puts on it, and their merge.
fn versions() -> [Version; 4] {
    let h = |version: &Version| SUITE.id(&version.encode());
    let root = put(Bases::NONE, 0, b"The light is on.\n");
    let one = put(Bases::one(h(&root)), 1, b"The light is off.\n");
    let other = put(Bases::one(h(&root)), 1, b"The light is on.\nNo ship.\n");
    let bases = Bases::two(h(&one), h(&other)).unwrap();
    let merge = put(bases, 2, b"The light is off.\nNo ship.\n");
    [root, one, other, merge]
}

#[test]
fn an_object_and_its_versions() {
    golden("object", &object().encode().unwrap());
    golden("object-key", key().as_bytes());
    let [root, one, _, merge] = versions();
    golden("version-root", &root.encode());
    golden("version-put", &one.encode());
    golden("version-merge", &merge.encode());
    let (record, id) = one.record(SUITE, Hint::FIRST);
    golden("version-h", record.id.as_bytes());
    assert_eq!(id.to_string(), format!("{}:1:{}", record.id, "00".repeat(16)));
    let tombstone = Version {
        kind: ValueKind::Tombstone,
        value: Bytes::new(),
        ..put(Bases::one(record.id), 2, b"")
    };
    golden("version-tombstone", &tombstone.encode());
}

#[test]
fn the_places_of_an_object() {
    let (hints, places): (Vec<_>, Vec<_>) = places(SUITE, key()).unzip();
    let hints = hints.iter().take(3).map(Hint::as_bytes);
    golden("hints", hints.copied().collect::<Vec<_>>().concat().as_slice());
    let places = places.iter().take(2).map(crypto::Place::as_bytes);
    golden("places", places.copied().collect::<Vec<_>>().concat().as_slice());
}

#[test]
fn forms_of_a_version() {
    let [root, one, ..] = versions();
    let codecs = Codecs::new();
    let form = |version: &Version, ancestor: &Version| {
        let h = SUITE.id(&ancestor.encode());
        codecs.compress(&version.view(), &h, &ancestor.value).unwrap()
    };
    golden("form-splice", &form(&one, &root));
    // Two versions on: its base is not its ancestor.
    let later = put(Bases::one(SUITE.id(&one.encode())), 2, b"The light is red.\n");
    golden("form-later", &form(&later, &root));
    let h = SUITE.id(&root.encode());
    let dictionary = b"Whoever sees this lamp is near the harbour. ".repeat(3);
    let value = Bytes::from([&b"Note: "[..], &dictionary].concat());
    let version = Version { value, ..later };
    let bytes = codecs.compress(&version.view(), &h, &dictionary).unwrap();
    assert_eq!(bytes[0], ZSTD);
    // Another release of zstd may make other bytes; those of this one must always expand.
    if testkit::golden::updating() {
        golden("form-zstd", &bytes);
    }
    let bytes = testkit::golden::read(testkit::manifest!(), "form-zstd");
    let form = Form::decode(&bytes.into()).unwrap();
    assert_eq!(form.expand(&codecs, &dictionary).unwrap(), version.encode());
}

#[test]
fn a_value_that_is_a_map() {
    golden("map", &map::encode([(&b"lamp"[..], &b"on"[..]), (b"ships", b"0")]));
}

fn hs() -> Vec<RecordId> {
    versions().iter().map(|version| SUITE.id(&version.encode())).collect()
}

#[test]
fn attestations_of_a_batch_and_of_one() {
    let mut batch = BatchAttester::new(SUITE, NETWORK, 3);
    for h in &hs() {
        batch.add(h).unwrap();
    }
    let record = batch.finish(SUITE, &secret(1)).unwrap();
    golden("attestation", &record.bytes);
    let attestation = Attestation::decode(&record.bytes).unwrap();
    let one = attestation.of_one(&attestation.paths(SUITE).unwrap(), 3).unwrap();
    golden("attested", &one.record(SUITE).bytes);
}

#[test]
fn receipts_for_all_and_for_one() {
    let tree = Tree::new(SUITE, &hs()).unwrap();
    let time_ms = 1_700_000_000_000;
    let terms = Terms { durability: Durability::Group, lease_ms: 0, time_ms };
    let receipt = Receipt::sign(&secret(5), &NETWORK, terms, &tree);
    golden("receipt", &receipt.encode());
    golden("received", &receipt.of_one(&hs(), &tree, 2).unwrap().encode());
}

#[test]
fn policies_of_an_object_and_a_family() {
    let policy = Policy {
        for_what: For::Object(Bytes::from_static(b"report")),
        version: 2,
        readers: vec![secret(2).public()],
        writers: vec![secret(6).public()],
        copies: Some(Copies { copies: 3, acknowledged: 2 }),
        ..Policy::implied(NETWORK, secret(1).public())
    };
    golden("policy", &policy.sign(SUITE, &secret(1)).unwrap().bytes);
    let family = Policy {
        for_what: For::Family(Bytes::from_static(b"redis/")),
        version: 1,
        open: true,
        copies: Some(Copies { copies: 1, acknowledged: 1 }),
        ..Policy::implied(NETWORK, secret(1).public())
    };
    golden("policy-family", &family.sign(SUITE, &secret(1)).unwrap().bytes);
}

#[test]
fn a_head_and_the_devices_that_may_write_it() {
    let devices = [2, 6].map(|byte| secret(byte).public()).to_vec();
    let owner = secret(1).public();
    let list = DeviceList { network: NETWORK, owner, sequence: 1, devices };
    golden("devices", &list.sign(SUITE, &secret(1)).unwrap().bytes);
    let name = Bytes::from_static(b"report");
    let branch = BranchName { network: NETWORK, owner, name, branch: "main".into() };
    let version = VersionId { h: hs()[3], l: 2, n: Hint::FIRST };
    let seen = [RecordId::new([0x11; 32]), RecordId::new([0x22; 32])];
    let head = Branch::new(branch).next(&seen, secret(6).public(), version, 1_700_000_000_000);
    golden("head", &head.sign(SUITE, &secret(6)).unwrap().bytes);
}

#[test]
fn the_pages_examples_are_the_golden_files() {
    testkit::golden::check_page(testkit::manifest!(), "versions.md");
}
