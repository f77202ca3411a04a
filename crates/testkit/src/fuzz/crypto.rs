//! Decoders of `crypto`: genesis, certificates, passes, announcements, keyrings, request tokens.

use bytes::Bytes;
use crypto::keyring::issued::ROW_BYTES;
use crypto::{
    Announcement, Change, ClientKey, Genesis, GenesisProfile, Keyring, KeyringFile, OrgId,
    Organisation, Pass, PeerCertificate, PeerId, PeerState, Place, PublicKey, Purpose, Roster,
    Rosters, SecretKey, SignedRoster, Suite, Taught, Tier, jwt, lease,
};

use super::Target;

/// When it is, in these tests.
const NOW: u64 = 1_700_000_000;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "genesis", run: run_genesis, seeds: geneses },
    Target { name: "peer-certificate", run: run_peer_certificate, seeds: || vec![certificate()] },
    Target { name: "pass", run: run_pass, seeds: || vec![pass()] },
    Target { name: "announcement", run: run_announcement, seeds: || vec![announcement()] },
    Target { name: "keyring-file", run: run_keyring_file, seeds: || vec![keyring_file()] },
    Target { name: "keyring-words", run: run_keyring_words, seeds: || vec![words()] },
    Target { name: "issued-row", run: run_issued_row, seeds: || vec![issued_row().to_vec()] },
    Target { name: "signed-roster", run: run_signed_roster, seeds: || vec![signed_roster()] },
    Target { name: "lease", run: run_lease, seeds: || vec![lease(), kept()] },
    Target { name: "forget", run: run_forget, seeds: || vec![forget()] },
    Target { name: "request-token", run: run_request_token, seeds: || vec![token()] },
];

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
}

fn genesis() -> Genesis {
    let organisation = |byte, name: &str| Organisation {
        key: OrgId::new(secret(byte).public()),
        name: name.to_owned(),
    };
    Genesis {
        name: "network".into(),
        suite: Suite::Holdfast1,
        organisations: vec![organisation(1, "one"), organisation(2, "two")],
        copies: Some(3),
        profile: None,
        created: NOW,
        nonce: [7; 16],
    }
    .checked()
    .expect("a good genesis")
}

fn geneses() -> Vec<Vec<u8>> {
    let profile = Some(GenesisProfile { k: 16, n: 48 });
    vec![genesis().encode(), Genesis { copies: None, profile, ..genesis() }.encode()]
}

fn certificate() -> Vec<u8> {
    let certificate = PeerCertificate {
        peer: PeerId::new(secret(3).public()),
        organisation: OrgId::new(secret(1).public()),
        addresses: vec!["peer.example:7000".into(), "192.0.2.1:7000".into()],
        capacity: 1 << 40,
        from: NOW - 60,
        until: NOW + 60,
    };
    certificate.sign(&secret(1), &genesis().network()).to_vec()
}

fn pass() -> Vec<u8> {
    let pass = Pass {
        client: ClientKey::new(secret(4).public()),
        organisation: OrgId::new(secret(1).public()),
        tier: Tier::Own,
        quota: 1 << 30,
        from: NOW - 60,
        until: NOW + 60,
    };
    pass.sign(&secret(1), &genesis().network()).to_vec()
}

const LEAVES: [lease::Leaf; 3] = [
    lease::Leaf { place: Place::new([1; 32]), bytes: 1000 },
    lease::Leaf { place: Place::new([2; 32]), bytes: 211 },
    lease::Leaf { place: Place::new([3; 32]), bytes: 2 << 20 },
];
const UNTIL: u64 = NOW + 365 * 86_400;

fn lease() -> Vec<u8> {
    let terms = lease::Terms { redundancy: 5, from: NOW, until: UNTIL };
    let pass = pass().into();
    let shown = lease::sign(&LEAVES, terms, &pass, &secret(4), &genesis().network());
    shown.expect("good terms").encode().to_vec()
}

fn kept() -> Vec<u8> {
    let shown = lease::Shown::decode(&lease().into()).expect("our own");
    let pass = lease::pass_id(&shown.pass);
    let leaves = shown.leaves.into_iter().map(|leaf| (leaf, true)).collect();
    let client = ClientKey::new(secret(4).public());
    let charged = vec![lease::Charged { leaf: 0, client, bytes: 100 }];
    let holding = lease::Holding { lease: shown.lease, pass, leaves, charged };
    lease::Kept::Holding(holding).encode().to_vec()
}

fn forget() -> Vec<u8> {
    let shown = lease::Shown::decode(&lease().into()).expect("our own");
    let lease = lease::id(&shown.lease).expect("our own");
    let client = ClientKey::new(secret(4).public());
    let forget = lease::Forget { lease, client, until: UNTIL, at: NOW };
    forget.sign(&secret(4), &genesis().network()).to_vec()
}

fn announcement() -> Vec<u8> {
    let certificate_bytes = Bytes::from(certificate());
    let certificate = PeerCertificate::verify(&certificate_bytes, &genesis(), NOW);
    let announcement = Announcement {
        certificate: certificate.expect("our own"),
        certificate_bytes,
        sequence: NOW * 1000,
        p2p_addresses: vec!["/ip4/192.0.2.1/tcp/7001".into()],
        state: PeerState::Serving,
    };
    announcement.sign(&secret(3), &genesis().network()).to_vec()
}

fn signed_roster() -> Vec<u8> {
    let first = Roster::first(&genesis());
    let change = Change::Key {
        from: OrgId::new(secret(2).public()),
        to: OrgId::new(secret(6).public()),
        until: Some(NOW + 60),
    };
    let next = first.changed(&change, NOW).expect("a change").expect("of a listed key");
    let mut signed = SignedRoster::proposal(next);
    for byte in [1, 2] {
        signed.sign(&secret(byte), &first).expect("listed");
    }
    signed.encode().to_vec()
}

fn keyring() -> Keyring {
    Keyring::from_seed(&[5; 32])
}

fn keyring_file() -> Vec<u8> {
    KeyringFile::seal_with(&keyring(), b"passphrase", [1; 16], [2; 12], 10)
}

fn words() -> Vec<u8> {
    keyring().to_words().as_bytes().to_vec()
}

fn issued_row() -> [u8; ROW_BYTES] {
    keyring().issued_row(Purpose::OwnReader, 7, &keyring().own_reader(7).public())
}

fn token() -> Vec<u8> {
    jwt::sign(&secret(1), b"request").into_bytes()
}

fn run_genesis(data: &[u8]) {
    if let Ok(genesis) = Genesis::decode(data) {
        assert_eq!(genesis.encode(), data);
        assert_eq!(genesis.clone().checked().expect("checked before"), genesis);
    }
}

// Signatures are deterministic, so signing what was verified gives the same bytes.

fn run_peer_certificate(data: &[u8]) {
    let (data, genesis) = (Bytes::copy_from_slice(data), genesis());
    if let Ok(certificate) = PeerCertificate::verify(&data, &genesis, NOW) {
        assert_eq!(certificate.sign(&secret(1), &genesis.network()), data);
    }
}

fn run_pass(data: &[u8]) {
    let (data, genesis) = (Bytes::copy_from_slice(data), genesis());
    if let Ok(pass) = Pass::verify(&data, &genesis, NOW) {
        assert_eq!(pass.sign(&secret(1), &genesis.network()), data);
    }
}

fn run_announcement(data: &[u8]) {
    let (data, genesis) = (Bytes::copy_from_slice(data), genesis());
    if let Ok(announcement) = Announcement::verify(&data, &genesis, NOW) {
        assert_eq!(announcement.sign(&secret(3), &genesis.network()), data);
    }
}

fn run_signed_roster(data: &[u8]) {
    let (data, first) = (Bytes::copy_from_slice(data), Roster::first(&genesis()));
    if let Ok(signed) = SignedRoster::decode(&data, &first) {
        assert_eq!(signed.encode(), data);
    }
    let mut rosters = Rosters::new(std::sync::Arc::new(genesis()));
    if rosters.learn(&data).is_ok_and(|taught| taught == Taught::Newer) {
        assert!(SignedRoster::verify(&data, &first).is_ok(), "learnt and not signed");
    }
}

fn run_lease(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(kept) = lease::Kept::decode(&data) {
        assert_eq!(lease::Kept::decode(&kept.encode()).expect("its own"), kept);
    }
    let Ok(shown) = lease::Shown::decode(&data) else { return };
    assert_eq!(shown.encode(), data);
    let leaf = shown.leaves[0].clone();
    assert_eq!(lease::ShownLeaf::decode(&leaf.encode()).expect("its own"), leaf);
    if let Ok(checked) = lease::Checked::verify(&shown.lease, &shown.pass, &genesis()) {
        for leaf in &shown.leaves {
            let real = checked.leaf(leaf).is_ok();
            assert!(!real || LEAVES.contains(&leaf.leaf), "a forged leaf");
        }
    }
}

fn run_forget(data: &[u8]) {
    let network = genesis().network();
    if let Ok(signed) = lease::SignedForget::verify(Bytes::copy_from_slice(data), &network) {
        assert_eq!(signed.forget.sign(&secret(4), &network), data);
    }
}

fn run_keyring_file(data: &[u8]) {
    // The form alone: the cost of opening is bounded, but not small.
    if let Ok(file) = KeyringFile::decode(data) {
        assert_eq!(file.encode(), data);
    }
}

fn run_keyring_words(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(keyring) = Keyring::from_words(text) {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        assert_eq!(*keyring.to_words(), words);
    }
}

fn run_issued_row(data: &[u8]) {
    let keyring = keyring();
    if let Ok((tag, counter)) = keyring.read_issued_row(data) {
        assert_eq!((&tag[..], counter), (&issued_row()[..16], 7), "a forged row");
    }
}

fn run_request_token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let key: PublicKey = secret(1).public();
    if jwt::verify(text, &key, b"request").is_ok() {
        assert_eq!(data, token(), "a forged token");
    }
}
