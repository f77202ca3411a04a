//! The bytes of `crypto`'s formats with fixed keys. `HOLD_GOLDEN=update` writes them on purpose; see
//! `testkit::golden`. `docs/formats/` explains these very bytes.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use crypto::{
    Announcement, AuthorKey, ClientKey, Eek, Genesis, GenesisProfile, Kek, KekContext, Keyring,
    KeyringFile, NetworkId, OrgId, Organisation, Pass, PeerCertificate, PeerId, PeerState, Place,
    Purpose, ReaderKey, RecordId, SecretKey, Suite, Tier, lease,
};

const NOW: u64 = 1_700_000_000;

fn golden(name: &str, bytes: &[u8]) {
    testkit::golden::check(testkit::manifest!(), name, bytes);
}

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

fn genesis() -> Genesis {
    let organisation = |byte, name: &str| Organisation {
        key: OrgId::new(secret(byte).public()),
        name: name.to_owned(),
    };
    Genesis {
        name: "coast".into(),
        suite: Suite::Holdfast1,
        organisations: vec![organisation(3, "harbour"), organisation(4, "light")],
        copies: None,
        profile: None,
        created: NOW,
        nonce: [7; 16],
    }
    .checked()
    .unwrap()
}

#[test]
fn a_genesis_and_its_id() {
    let bytes = genesis().encode();
    golden("genesis", &bytes);
    assert_eq!(Genesis::decode(&bytes).unwrap(), genesis());
    golden("network-id", genesis().network().as_bytes());
}

#[test]
fn a_genesis_with_a_profile() {
    let profile = Some(GenesisProfile { k: 10, n: 16 });
    let asking = Genesis { profile, ..genesis() }.checked().unwrap();
    let bytes = asking.encode();
    golden("genesis-profile", &bytes);
    assert_eq!(Genesis::decode(&bytes).unwrap(), asking);
    // It is what the one without has, and the new field behind it.
    assert_eq!(bytes.strip_prefix(&genesis().encode()[..]), Some(&[0x42, 4, 8, 10, 16, 16][..]));
}

#[test]
fn a_certificate_a_pass_and_an_announcement() {
    let (genesis, network) = (genesis(), genesis().network());
    let certificate = PeerCertificate {
        peer: PeerId::new(secret(5).public()),
        organisation: OrgId::new(secret(3).public()),
        addresses: vec!["peer.example:7000".into()],
        capacity: 1 << 40,
        from: NOW,
        until: NOW + 365 * 86_400,
    };
    let certificate_bytes = certificate.sign(&secret(3), &network);
    golden("peer-certificate", &certificate_bytes);
    assert_eq!(PeerCertificate::verify(&certificate_bytes, &genesis, NOW).unwrap(), certificate);

    let pass = Pass {
        client: ClientKey::new(secret(6).public()),
        organisation: OrgId::new(secret(3).public()),
        tier: Tier::Own,
        quota: 1 << 30,
        from: NOW,
        until: NOW + 86_400,
    };
    let bytes = pass.sign(&secret(3), &network);
    golden("pass", &bytes);
    assert_eq!(Pass::verify(&bytes, &genesis, NOW).unwrap(), pass);

    let announcement = Announcement {
        certificate,
        certificate_bytes,
        sequence: NOW * 1000,
        p2p_addresses: vec!["/ip4/192.0.2.1/tcp/7001".into()],
        state: PeerState::Serving,
    };
    let bytes = announcement.sign(&secret(5), &network);
    golden("announcement", &bytes);
    assert_eq!(Announcement::verify(&bytes, &genesis, NOW).unwrap(), announcement);
}

#[test]
fn a_lease_and_a_forget() {
    let (genesis, network) = (genesis(), genesis().network());
    let client = ClientKey::new(secret(6).public());
    let pass = Pass {
        client,
        organisation: OrgId::new(secret(3).public()),
        tier: Tier::Own,
        quota: 0,
        from: NOW,
        until: NOW + 86_400,
    };
    let pass = pass.sign(&secret(3), &network);
    let leaf = |byte, bytes| lease::Leaf { place: Place::new([byte; 32]), bytes };
    let leaves = [leaf(1, 1_000), leaf(2, 211), leaf(3, 211)];
    let until = NOW + 365 * 86_400;
    let terms = lease::Terms { redundancy: 5, from: NOW, until };
    let shown = lease::sign(&leaves, terms, &pass, &secret(6), &network).unwrap();
    golden("lease", &shown.lease);
    golden("lease-shown", &shown.encode());
    let checked = lease::Checked::verify(&shown.lease, &shown.pass, &genesis).unwrap();
    golden("lease-id", checked.id.as_bytes());
    let forget = lease::Forget { lease: checked.id, client, until, at: NOW + 60 };
    let forget = forget.sign(&secret(6), &network);
    golden("forget", &forget);
    let leaves = shown.leaves.iter().cloned().zip([false, true]).collect();
    let (lease, pass_id) = (shown.lease, lease::pass_id(&pass));
    let holding = lease::Holding { lease, pass: pass_id, leaves, charged: Vec::new() };
    let charged = lease::Charged { leaf: 1, client, bytes: 200 };
    let charged = lease::Holding { charged: vec![charged], ..holding.clone() };
    let charged = lease::Kept::Holding(charged);
    let buried = lease::Kept::Buried { forget, heard_ms: NOW * 1000, until };
    let all = [lease::Kept::Pass(pass), lease::Kept::Holding(holding), buried, charged];
    let names = ["kept-pass", "kept-holding", "kept-forget", "kept-charged"];
    for (kept, name) in all.into_iter().zip(names) {
        let bytes = kept.encode();
        golden(name, &bytes);
        assert_eq!(lease::Kept::decode(&bytes).unwrap(), kept);
    }
}

#[test]
fn a_revocation() {
    let network = genesis().network();
    let revocation = crypto::Revocation {
        organisation: OrgId::new(secret(3).public()),
        sequence: NOW * 1000,
        keys: vec![secret(6).public(), secret(5).public()],
    };
    let bytes = revocation.sign(&secret(3), &network);
    golden("revocation", &bytes);
    let checked = crypto::Revocation::verify(&bytes, &genesis(), NOW).unwrap();
    assert!(checked.keys.is_sorted() && checked.keys.len() == 2);
    assert!(revocation.keys.iter().all(|key| checked.names(key)));
    assert!(!checked.names(&secret(7).public()));
}

#[test]
fn keys_of_a_keyring() {
    let keyring = Keyring::from_seed(&[1; 32]);
    let keys = [
        keyring.reader(0).unwrap(),
        keyring.reader(63).unwrap(),
        keyring.author(0),
        keyring.author(1 << 40),
        keyring.own_reader(0),
        keyring.client(),
    ];
    golden("keyring-public-keys", &keys.map(|key| *key.public().as_bytes()).concat());
    let row = keyring.issued_row(Purpose::OwnReader, 0, &keyring.own_reader(0).public());
    golden("issued-row", &row);
}

#[test]
fn a_keyring_file_of_full_cost() {
    let bytes = KeyringFile::seal(&Keyring::from_seed(&[1; 32]), b"open", [2; 16], [3; 12]);
    golden("keyring-file", &bytes);
    let opened = KeyringFile::open(&bytes, b"open").unwrap();
    assert_eq!(*opened.to_words(), *Keyring::from_seed(&[1; 32]).to_words());
}

#[test]
fn keys_and_seals_of_holdfast_1() {
    let suite = Suite::Holdfast1;
    let context = KekContext {
        network: NetworkId::new([9; 32]),
        entry: RecordId::new([8; 32]),
        author: AuthorKey::new(secret(1).public()),
        reader: ReaderKey::new(secret(2).public()),
    };
    let kek = Kek::derive(suite, &secret(1), &secret(2).public(), &context);
    golden("kek", &kek.to_bytes()[..]);
    let eek = Eek::from_bytes(&std::array::from_fn(|i| i as u8 + 1));
    let (sealed, mac) = kek.seal_eek(suite, &eek);
    golden("sealed-eek", &[&sealed[..], &mac].concat());
    golden("mac-key", &eek.mac_key(suite)[..]);
    let whole = eek.whole_keys();
    let crypto::WholeKeys { page, chunk, chunks, pages } = &whole;
    golden("whole-keys", &[**page, **chunk, **chunks, **pages].concat());
    golden("chunk-tag", &whole.chunk_tag(0x0102_0304, b"a chunk").unwrap());
    golden("page-mac", &whole.page_mac(&[7; 16]).unwrap());
    let nonces = [0, 1, 258, 1 << 31].map(|index| eek.page_nonce(suite, index));
    golden("page-nonces", &nonces.concat());
    golden("sealed-page", &eek.seal_page(suite, 258, b"\0a chunk".to_vec()).unwrap());
    let (sealed, mac) = eek.seal_metadata(suite, b"metadata".to_vec()).unwrap();
    golden("sealed-metadata", &[&sealed[..], &mac].concat());
}

#[test]
fn a_signature_with_its_domain() {
    let signature = secret(1).sign("pass", &NetworkId::new([9; 32]), b"message");
    golden("signature", &Bytes::copy_from_slice(&signature));
}

#[test]
fn the_examples_of_the_documentation_are_these_bytes() {
    testkit::golden::check_page(testkit::manifest!(), "keyring.md");
    testkit::golden::check_page(testkit::manifest!(), "certificates.md");
}
