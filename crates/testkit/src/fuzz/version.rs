//! Decoders of `version`: what versioned objects are made of.

use bytes::Bytes;
use crypto::{NetworkId, RecordId, SecretKey, Suite};
use version::merge::{Value, map};
use version::merkle::Tree;
use version::policy::{Copies, For};
use version::receipt::Terms;
use version::{
    AnyAttestation, Attestation, Bases, BatchAttester, Branch, BranchName, Codecs, DeviceList,
    Durability, Form, Head, Hint, Merges, ObjectKey, ObjectRecord, Policies, Policy, Proven,
    Receipt, Received, SPLICE, VALUE_BYTES_MAX, ValueKind, Version, VersionError, VersionId, View,
    ZSTD, prove,
};

use super::Target;

const NETWORK: NetworkId = NetworkId::new([9; 32]);

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "version", run: run_version, seeds: versions },
    Target { name: "object", run: run_object, seeds: objects },
    Target { name: "form", run: run_form, seeds: forms },
    Target { name: "attestation", run: run_attestation, seeds: attestations },
    Target { name: "receipt", run: run_receipt, seeds: receipts },
    Target { name: "policy", run: run_policy, seeds: policies },
    Target { name: "head", run: run_head, seeds: heads },
    Target { name: "devices", run: run_devices, seeds: devices },
    Target { name: "map-value", run: run_map, seeds: maps },
    Target { name: "merges", run: run_merges, seeds: merges },
];

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
}

fn object() -> ObjectRecord {
    let name = Bytes::from_static(b"name");
    ObjectRecord { network: NETWORK, owner: secret(1).public(), name }
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

/// The value that the forms are made against: of splice, of zstd, and of two bases.
const ANCESTOR: &[u8] =
    b"The same again and again, and the same again and again, and then no more of it.";

fn forms() -> Vec<Vec<u8>> {
    let root = version(Bases::NONE, 0, ValueKind::Bytes, ANCESTOR);
    let h = Suite::Holdfast1.id(&root.encode());
    let value = b"The same again and again, and the same once more, and then no more of it.";
    let put = version(Bases::one(h), 1, ValueKind::Bytes, value);
    let two = Bases::two(Suite::Holdfast1.id(&put.encode()), h).expect("they differ");
    let merge = version(two, 2, ValueKind::Bytes, b"Again: The same again and again.");
    let form = |version: &Version, codec| {
        let form = Codecs::new().compress_by(codec, &version.view(), &h, ANCESTOR);
        form.expect("a codec that is there").map(|form| form.to_vec())
    };
    [form(&put, SPLICE), form(&put, ZSTD), form(&merge, ZSTD)].into_iter().flatten().collect()
}

fn run_form(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    let Ok(form) = Form::decode(&data) else { return };
    assert_eq!(form.encode(), data);
    assert!(form.value_bytes <= VALUE_BYTES_MAX);
    let Ok(bytes) = form.expand(&Codecs::new(), ANCESTOR) else { return };
    let version = View::decode(&bytes).expect("what comes out is a version");
    assert_eq!(version.value.len(), form.value_bytes);
    assert_eq!((version.bases, version.l), (form.bases, form.l));
}

fn three() -> [RecordId; 3] {
    [1_u8, 2, 3].map(|number| Suite::Holdfast1.id(&[number]))
}

fn attestations() -> Vec<Vec<u8>> {
    let suite = Suite::Holdfast1;
    let mut batch = BatchAttester::new(suite, NETWORK, 3);
    for h in &three() {
        batch.add(h).expect("room");
    }
    let batch = batch.finish(suite, &secret(1)).expect("three versions");
    let decoded = Attestation::decode(&batch.bytes).expect("our own");
    let tree = decoded.paths(suite).expect("three versions");
    let one = decoded.of_one(&tree, 1).expect("one of them").record(suite);
    vec![batch.bytes.to_vec(), one.bytes.to_vec()]
}

/// What decodes encodes to the same; that the signature of other bytes does not verify is the crate's own test.
fn run_attestation(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    let suite = Suite::Holdfast1;
    match AnyAttestation::decode(&data) {
        Ok(AnyAttestation::Batch(batch)) => {
            assert_eq!(batch.encode(), data);
            let count = batch.attester.count as usize;
            assert_eq!(batch.hs().count(), count);
            let tree = batch.paths(suite).expect("one at least");
            let last = batch.of_one(&tree, count - 1).expect("the last");
            assert_eq!(last.verify(suite).is_ok(), batch.verify(suite).is_ok());
        }
        Ok(AnyAttestation::One(one)) => {
            assert_eq!(one.record(suite).bytes, data);
            let _ = one.verify(suite);
        }
        Err(_) => {}
    }
}

fn receipts() -> Vec<Vec<u8>> {
    let tree = Tree::new(Suite::Holdfast1, &three()).expect("three versions");
    let terms = Terms { durability: Durability::Group, lease_ms: 1, time_ms: 2 };
    let receipt = Receipt::sign(&secret(5), &NETWORK, terms, &tree);
    let one = receipt.of_one(&three(), &tree, 2).expect("one of them");
    vec![receipt.encode().to_vec(), one.encode().to_vec()]
}

fn run_receipt(data: &[u8]) {
    if let Ok(receipt) = Receipt::decode(data) {
        assert_eq!(receipt.encode()[..], *data);
        let _ = receipt.verify(Suite::Holdfast1, &three());
    }
    if let Ok(received) = Received::decode(data) {
        assert_eq!(received.encode()[..], *data);
        let _ = received.verify(Suite::Holdfast1);
    }
}

fn policies() -> Vec<Vec<u8>> {
    let object = Policy {
        for_what: For::Object(Bytes::from_static(b"name")),
        version: 2,
        public: true,
        readers: vec![secret(2).public()],
        writers: vec![secret(3).public(), secret(4).public()],
        copies: Some(Copies { copies: 3, acknowledged: 2 }),
        region_bytes: 1 << 30,
        payer: Some(secret(5).public()),
        ..Policy::implied(NETWORK, secret(1).public())
    };
    let family = Policy { version: 1, open: true, ..Policy::implied(NETWORK, secret(1).public()) };
    let sign = |policy: &Policy| policy.sign(Suite::Holdfast1, &secret(1)).expect("a good policy");
    [object, family].iter().map(|policy| sign(policy).bytes.to_vec()).collect()
}

/// One meaning has one encoding: what verifies is, signed again, the same bytes.
fn run_policy(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(policy) = Policy::verify(&data) {
        let again = policy.sign(Suite::Holdfast1, &secret(1)).expect("of our own key");
        assert_eq!(again.bytes, data);
        let mut policies = Policies::new(Suite::Holdfast1, policy.network);
        policies.take(policy).expect("the first");
    }
}

fn heads() -> Vec<Vec<u8>> {
    let (owner, name) = (secret(1).public(), Bytes::from_static(b"name"));
    let branch = BranchName { network: NETWORK, owner, name, branch: "main".into() };
    let [h, first, second] = three();
    let version = |n| VersionId { h, l: 3, n };
    let branch = Branch::new(branch);
    let root = branch.next(&[], owner, version(Hint::FIRST), 0);
    let next = branch.next(&[first, second], owner, version(Hint::new([1; 16])), 7);
    let sign = |head: &Head| head.sign(Suite::Holdfast1, &secret(1)).expect("a good head");
    [root, next].iter().map(|head| sign(head).bytes.to_vec()).collect()
}

fn run_head(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(head) = Head::verify(&data) {
        let again = head.sign(Suite::Holdfast1, &secret(1)).expect("of our own key");
        assert_eq!(again.bytes, data);
        let mut branch = Branch::new(head.branch.clone());
        branch.take(again.id, head).expect("room");
        assert_eq!(branch.tips(None).len(), 1);
    }
}

fn devices() -> Vec<Vec<u8>> {
    let devices = vec![secret(2).public(), secret(3).public()];
    let (network, owner) = (NETWORK, secret(1).public());
    let list = DeviceList { network, owner, sequence: 4, devices };
    let none = DeviceList { devices: Vec::new(), ..list.clone() };
    let sign = |list: &DeviceList| list.sign(Suite::Holdfast1, &secret(1)).expect("a good list");
    [list, none].iter().map(|list| sign(list).bytes.to_vec()).collect()
}

fn run_devices(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(list) = DeviceList::verify(&data) {
        let again = list.sign(Suite::Holdfast1, &secret(1)).expect("of our own key");
        assert_eq!(again.bytes, data);
    }
}

fn maps() -> Vec<Vec<u8>> {
    let fields = [(&b"field"[..], &b"value"[..]), (b"", b""), (b"other", b"")];
    vec![map::encode([]).to_vec(), map::encode(fields).to_vec()]
}

fn run_map(data: &[u8]) {
    if let Ok(fields) = map::decode(data) {
        assert_eq!(map::encode(fields)[..], *data);
    }
}

/// Three values with a byte 1 between.
fn merges() -> Vec<Vec<u8>> {
    let map = |value: &'static [u8]| map::encode([(&b"field"[..], value), (b"x", b"y")]);
    vec![
        b"a\nb\nc\n\x01A\nb\nc\n\x01a\nb\nC\n".to_vec(),
        b"10\x0112\x019".to_vec(),
        [&map(b"1")[..], &[1], &map(b"2"), &[1], &map(b"1")].concat(),
    ]
}

fn run_merges(data: &[u8]) {
    let mut values = data.splitn(3, |byte| *byte == 1).map(Value::bytes);
    let (Some(v1), Some(v2)) = (values.next(), values.next()) else { return };
    let v0 = values.next();
    let merges = Merges::new();
    for name in merges.names() {
        let f = merges.get(name).expect("its name");
        let merged = f.merge(v0, v1, v2);
        // Whoever merges makes the same.
        assert_eq!(f.merge(v0, v1, v2), merged, "{name}");
    }
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
