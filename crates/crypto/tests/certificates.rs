//! Hostile genesis files, certificates, passes and announcements.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use crypto::certificate::{ADDRESS_BYTES_MAX, ADDRESSES_MAX, CLOCK_SKEW_S, PASS_SECONDS_MAX};
use crypto::genesis::{
    COPIES_MAX, FRAGMENTS_MAX, GENESIS_BYTES_MAX, NAME_BYTES_MAX, ORGANISATIONS_MAX,
};
use crypto::{
    Announcement, CertificateError, Class, Classified, ClientKey, Genesis, GenesisError,
    GenesisProfile, OrgId, Organisation, Pass, PeerCertificate, PeerId, PeerState, SecretKey,
    Suite, Tier,
};
use proptest::prelude::*;
use prost::Message;

const NOW: u64 = 1_700_000_000;

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

fn organisation(byte: u8) -> Organisation {
    Organisation { key: OrgId::new(secret(byte).public()), name: format!("organisation {byte}") }
}

fn genesis() -> Genesis {
    Genesis {
        name: "network".into(),
        suite: Suite::Holdfast1,
        organisations: vec![organisation(1), organisation(2)],
        copies: Some(3),
        profile: None,
        created: NOW,
        nonce: [7; 16],
    }
    .checked()
    .unwrap()
}

fn certificate() -> PeerCertificate {
    PeerCertificate {
        peer: PeerId::new(secret(3).public()),
        organisation: organisation(1).key,
        addresses: vec!["peer.example:7000".into()],
        capacity: 1 << 40,
        from: NOW,
        until: NOW + 1000,
    }
}

fn pass() -> Pass {
    Pass {
        client: ClientKey::new(secret(4).public()),
        organisation: organisation(1).key,
        tier: Tier::Known,
        quota: 0,
        from: NOW,
        until: NOW + 1000,
    }
}

fn announcement() -> Announcement {
    let certificate = certificate();
    Announcement {
        certificate_bytes: certificate.sign(&secret(1), &genesis().network()),
        certificate,
        sequence: 5,
        p2p_addresses: vec!["/ip4/192.0.2.1/tcp/7001".into()],
        state: PeerState::ReadOnly,
    }
}

fn verified(certificate: &PeerCertificate) -> Result<PeerCertificate, CertificateError> {
    let bytes = certificate.sign(&secret(1), &genesis().network());
    PeerCertificate::verify(&bytes, &genesis(), NOW)
}

fn verified_pass(pass: &Pass) -> Result<Pass, CertificateError> {
    Pass::verify(&pass.sign(&secret(1), &genesis().network()), &genesis(), NOW)
}

fn verified_announcement(announcement: &Announcement) -> Result<Announcement, CertificateError> {
    let bytes = announcement.sign(&secret(3), &genesis().network());
    Announcement::verify(&bytes, &genesis(), NOW)
}

fn flipped(bytes: &Bytes, bit: usize) -> Bytes {
    let mut bad = bytes.to_vec();
    bad[bit / 8] ^= 1 << (bit % 8);
    bad.into()
}

#[test]
fn good_ones_are_taken() {
    assert_eq!(verified(&certificate()).unwrap(), certificate());
    assert_eq!(verified_pass(&pass()).unwrap(), pass());
    let states = [
        PeerState::Serving,
        PeerState::ReadOnly,
        PeerState::Stopped,
        PeerState::Left,
        PeerState::Leaving,
    ];
    for state in states {
        let announcement = Announcement { state, ..announcement() };
        assert_eq!(verified_announcement(&announcement).unwrap(), announcement);
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let (genesis, network) = (genesis(), genesis().network());
    let bytes = certificate().sign(&secret(1), &network);
    for bit in 0..bytes.len() * 8 {
        assert!(PeerCertificate::verify(&flipped(&bytes, bit), &genesis, NOW).is_err());
    }
    let bytes = pass().sign(&secret(1), &network);
    for bit in 0..bytes.len() * 8 {
        assert!(Pass::verify(&flipped(&bytes, bit), &genesis, NOW).is_err());
    }
    let bytes = announcement().sign(&secret(3), &network);
    for bit in 0..bytes.len() * 8 {
        assert!(Announcement::verify(&flipped(&bytes, bit), &genesis, NOW).is_err());
    }
}

#[test]
fn the_signer_is_the_one_named() {
    let (genesis, network) = (genesis(), genesis().network());
    let denied = |error: CertificateError| assert_eq!(error.class(), Class::Denied, "{error}");
    for other in [2, 3, 5] {
        let bytes = certificate().sign(&secret(other), &network);
        denied(PeerCertificate::verify(&bytes, &genesis, NOW).unwrap_err());
        denied(Pass::verify(&pass().sign(&secret(other), &network), &genesis, NOW).unwrap_err());
    }
    for other in [1, 2, 4] {
        let bytes = announcement().sign(&secret(other), &network);
        denied(Announcement::verify(&bytes, &genesis, NOW).unwrap_err());
    }
    // An organisation that is not listed, signing by its own key.
    let outside = organisation(9);
    let bytes =
        PeerCertificate { organisation: outside.key, ..certificate() }.sign(&secret(9), &network);
    let refused = PeerCertificate::verify(&bytes, &genesis, NOW).unwrap_err();
    assert!(matches!(refused, CertificateError::Organisation(key) if key == outside.key));
    denied(refused);
}

#[test]
fn one_is_not_taken_for_another_nor_in_another_network() {
    let (genesis, network) = (genesis(), genesis().network());
    let (certificate, pass) =
        (certificate().sign(&secret(1), &network), pass().sign(&secret(1), &network));
    assert!(Pass::verify(&certificate, &genesis, NOW).is_err());
    assert!(PeerCertificate::verify(&pass, &genesis, NOW).is_err());
    assert!(Announcement::verify(&certificate, &genesis, NOW).is_err());
    for other in [
        Genesis { suite: Suite::Libri1, ..genesis.clone() },
        Genesis { nonce: [8; 16], ..genesis.clone() },
    ] {
        let refused = PeerCertificate::verify(&certificate, &other, NOW).unwrap_err();
        assert!(matches!(refused, CertificateError::Network(found) if found == network));
        assert!(matches!(Pass::verify(&pass, &other, NOW), Err(CertificateError::Network(_))));
    }
}

#[test]
fn times_are_kept_to_within_the_skew() {
    let bytes = certificate().sign(&secret(1), &genesis().network());
    let at = |now| PeerCertificate::verify(&bytes, &genesis(), now);
    assert!(at(NOW).is_ok() && at(NOW + 999).is_ok() && at(NOW - CLOCK_SKEW_S).is_ok());
    for now in [0, NOW - CLOCK_SKEW_S - 1, NOW + 1000, u64::MAX] {
        assert!(matches!(at(now), Err(CertificateError::Time { .. })), "{now}");
    }
    // An announcement lives no longer than its certificate.
    let bytes = announcement().sign(&secret(3), &genesis().network());
    assert!(matches!(
        Announcement::verify(&bytes, &genesis(), NOW + 1000),
        Err(CertificateError::Time { .. })
    ));
    // What ends when it begins, or before, counts at no time: also not while its start is within the skew.
    for until in [NOW + 1, NOW + 60] {
        let pass = Pass { from: NOW + 60, until, ..pass() };
        assert!(matches!(verified_pass(&pass), Err(CertificateError::Time { .. })), "{until}");
        let certificate = PeerCertificate { from: NOW + 60, until, ..certificate() };
        assert!(matches!(verified(&certificate), Err(CertificateError::Time { .. })), "{until}");
    }
    assert!(verified_pass(&Pass { from: NOW + 60, until: NOW + 61, ..pass() }).is_ok());
    let at = |sequence| verified_announcement(&Announcement { sequence, ..announcement() });
    assert!(at((NOW + CLOCK_SKEW_S) * 1000).is_ok());
    let ahead = at((NOW + 600) * 1000 + 1).unwrap_err();
    assert!(matches!(ahead, CertificateError::Ahead { ahead_s: 600 }), "{ahead}");
    let day = Pass { until: NOW + PASS_SECONDS_MAX, ..pass() };
    assert!(verified_pass(&day).is_ok());
    let longer = Pass { until: NOW + PASS_SECONDS_MAX + 1, ..pass() };
    assert!(matches!(verified_pass(&longer), Err(CertificateError::Field("length of validity"))));
}

#[test]
fn fields_out_of_bounds_are_refused() {
    let nothing = PeerCertificate { capacity: 0, ..certificate() };
    assert!(matches!(verified(&nothing), Err(CertificateError::Field("capacity"))));
    let with = |addresses: Vec<String>| verified(&PeerCertificate { addresses, ..certificate() });
    assert!(with(vec!["a:1".into(); ADDRESSES_MAX]).is_ok());
    assert!(with(vec!["a".repeat(ADDRESS_BYTES_MAX)]).is_ok());
    let too_large = [
        vec!["a:1".into(); ADDRESSES_MAX + 1],
        vec!["a".repeat(ADDRESS_BYTES_MAX + 1)],
        vec![String::new()],
        vec!["a".repeat(17 << 10)],
    ];
    for addresses in too_large {
        assert!(matches!(with(addresses), Err(CertificateError::TooLarge)));
    }
    for bad in ["a b", "a\n", "\u{1b}[2J", "häfen:1"] {
        assert!(matches!(with(vec![bad.into()]), Err(CertificateError::Field("address"))), "{bad}");
        let announcement = Announcement { p2p_addresses: vec![bad.into()], ..announcement() };
        assert!(verified_announcement(&announcement).is_err());
    }
    let many =
        Announcement { p2p_addresses: vec!["a".into(); ADDRESSES_MAX + 1], ..announcement() };
    assert!(matches!(verified_announcement(&many), Err(CertificateError::TooLarge)));
}

/// The body of a pass, to sign values that [`Pass`] cannot hold.
#[derive(Clone, PartialEq, Message)]
struct PassWire {
    #[prost(bytes = "vec", tag = "1")]
    network: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    client: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    organisation: Vec<u8>,
    #[prost(uint32, tag = "4")]
    tier: u32,
    #[prost(uint64, tag = "7")]
    until: u64,
    #[prost(uint64, tag = "9")]
    unknown: u64,
}

#[derive(Clone, PartialEq, Message)]
struct SignedWire {
    #[prost(bytes = "vec", tag = "1")]
    body: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    signature: Vec<u8>,
}

#[test]
fn well_signed_nonsense_is_refused() {
    let (genesis, network) = (genesis(), genesis().network());
    let good = PassWire {
        network: network.as_bytes().to_vec(),
        client: secret(4).public().as_bytes().to_vec(),
        organisation: organisation(1).key.as_bytes().to_vec(),
        tier: 1,
        until: PASS_SECONDS_MAX,
        unknown: 0,
    };
    let verify = |change: &dyn Fn(&mut PassWire)| {
        let mut wire = good.clone();
        change(&mut wire);
        let body = wire.encode_to_vec();
        let signature = secret(1).sign("pass", &network, &body).to_vec();
        Pass::verify(&SignedWire { body, signature }.encode_to_vec().into(), &genesis, 10)
    };
    assert!(verify(&|_| ()).is_ok());
    for tier in [0, 3, u32::MAX] {
        assert!(matches!(verify(&|wire| wire.tier = tier), Err(CertificateError::Field("tier"))));
    }
    assert!(matches!(verify(&|wire| wire.unknown = 1), Err(CertificateError::Encoding(_))));
    assert!(matches!(verify(&|wire| wire.network.truncate(31)), Err(CertificateError::Field(_))));
    assert!(matches!(verify(&|wire| wire.client[1..].fill(0xff)), Err(CertificateError::Key(_))));
    assert!(matches!(verify(&|wire| wire.client.clear()), Err(CertificateError::Key(_))));
    assert!(matches!(verify(&|wire| wire.organisation[0] = 4), Err(CertificateError::Key(_))));
}

fn stripes() -> Genesis {
    Genesis { copies: None, ..genesis() }
}

#[test]
fn a_genesis_is_checked() {
    let names = |name: String| Genesis { name, ..genesis() };
    // The last two read like others: what is behind them runs backwards, or is not seen.
    let hidden = ["clinic\u{202e}", "clin\u{200b}ic"].map(str::to_owned);
    let bad = [String::new(), "a\nb".into(), "\u{1b}".into(), "n".repeat(NAME_BYTES_MAX + 1)];
    for good in ["Klinik Süd", "診療所", "می\u{200c}خواهم"] {
        assert!(names(good.into()).checked().is_ok(), "{good}");
    }
    for bad in bad.into_iter().chain(hidden) {
        assert!(matches!(names(bad.clone()).checked(), Err(GenesisError::Name)), "{bad:?}");
        assert!(matches!(Genesis::decode(&names(bad).encode()), Err(GenesisError::Name)));
    }
    let mut nameless = genesis();
    nameless.organisations[0].name.clear();
    assert!(matches!(nameless.checked(), Err(GenesisError::Name)));
    for copies in [Some(0), Some(COPIES_MAX + 1)] {
        let refused = Genesis { copies, ..genesis() }.checked();
        assert!(matches!(refused, Err(GenesisError::Copies)));
    }
    let profiles = |k, n| Genesis { profile: Some(GenesisProfile { k, n }), ..stripes() };
    for (k, n) in [(1, 2), (16, 48), (255, 256)] {
        assert!(profiles(k, n).checked().is_ok(), "{k}/{n}");
    }
    for (k, n) in [(0, 0), (0, 8), (8, 0), (8, 8), (9, 8), (1, 257), (u32::MAX, u32::MAX)] {
        assert!(matches!(profiles(k, n).checked(), Err(GenesisError::Profile)), "{k}/{n}");
        assert!(Genesis::decode(&profiles(k, n).encode()).is_err(), "{k}/{n}");
    }
    let both = Genesis { copies: Some(3), ..profiles(4, 8) };
    assert!(matches!(both.checked(), Err(GenesisError::CopiesAndProfile)));
    let libri = Genesis { suite: Suite::Libri1, ..profiles(4, 8) };
    assert!(matches!(libri.checked(), Err(GenesisError::ProfileOfLibri)));
    let one = organisation(1);
    for organisations in
        [vec![], vec![one.clone(), one.clone()], vec![one.clone(); ORGANISATIONS_MAX + 1]]
    {
        let refused = Genesis { organisations, ..genesis() }.checked();
        assert!(matches!(refused, Err(GenesisError::Organisations)));
    }
    // Decoding does not sort: one roster has one encoding.
    let mut backwards = genesis();
    backwards.organisations.reverse();
    let refused = Genesis::decode(&backwards.encode());
    assert!(matches!(refused, Err(GenesisError::Organisations)));
    let large = vec![0; GENESIS_BYTES_MAX + 1];
    assert!(matches!(Genesis::decode(&large), Err(GenesisError::TooLarge)));
    assert_eq!(Genesis::decode(&large).unwrap_err().class(), Class::Invalid);
}

#[test]
fn a_genesis_of_another_version_or_suite_says_so() {
    let mut bytes = genesis().encode();
    assert_eq!(bytes[..2], [8, 1]);
    bytes[1] = 2;
    assert!(matches!(Genesis::decode(&bytes), Err(GenesisError::Version(2))));
    let text = String::from_utf8_lossy(&genesis().encode()).into_owned();
    assert!(text.contains("holdfast-1"));
    let mut bytes = genesis().encode();
    let at = bytes.windows(10).position(|part| part == b"holdfast-1").unwrap();
    bytes[at + 9] = b'9';
    assert!(matches!(Genesis::decode(&bytes), Err(GenesisError::Suite(_))));
}

#[test]
fn every_flipped_bit_of_a_genesis_is_refused_or_another_network() {
    let profile = Some(GenesisProfile { k: 16, n: 48 });
    for genesis in [genesis(), Genesis { profile, ..stripes() }] {
        let bytes = Bytes::from(genesis.encode());
        for bit in 0..bytes.len() * 8 {
            if let Ok(other) = Genesis::decode(&flipped(&bytes, bit)) {
                assert_ne!(other.network(), genesis.network(), "bit {bit}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_genesis_round_trips(
        name in "[ -~]{1,64}",
        count in 1..20_u8,
        copies in proptest::option::of(1..=COPIES_MAX),
        stripe in proptest::option::of((1..=255_u32, 1..=255_u32)),
        created in any::<u64>(),
        nonce in any::<[u8; 16]>(),
        libri in any::<bool>(),
    ) {
        let profile = stripe.filter(|_| !libri).map(|(k, parity)| GenesisProfile {
            k,
            n: (k + parity).min(FRAGMENTS_MAX),
        });
        let genesis = Genesis {
            name,
            suite: if libri { Suite::Libri1 } else { Suite::Holdfast1 },
            organisations: (1..=count).map(organisation).collect(),
            copies: copies.filter(|_| profile.is_none()),
            profile,
            created,
            nonce,
        }
        .checked()
        .unwrap();
        let decoded = Genesis::decode(&genesis.encode()).unwrap();
        prop_assert_eq!(decoded.network(), genesis.network());
        prop_assert_eq!(decoded, genesis);
    }
}

fn revocation() -> crypto::Revocation {
    let mut keys: Vec<_> = (5..8).map(|byte| secret(byte).public()).collect();
    keys.sort_unstable();
    crypto::Revocation { organisation: organisation(1).key, sequence: NOW * 1000, keys }
}

#[test]
fn a_revocation_counts_for_its_signer_network_and_time_alone() {
    let (genesis, network) = (genesis(), genesis().network());
    let verify = |bytes: &Bytes| crypto::Revocation::verify(bytes, &genesis, NOW);
    assert_eq!(verify(&revocation().sign(&secret(1), &network)).unwrap(), revocation());
    let none = crypto::Revocation { keys: Vec::new(), ..revocation() };
    assert_eq!(verify(&none.sign(&secret(1), &network)).unwrap(), none);
    assert!(verify(&revocation().sign(&secret(2), &network)).is_err(), "another's key");
    let foreign = crypto::NetworkId::new([9; 32]);
    assert!(matches!(
        verify(&revocation().sign(&secret(1), &foreign)),
        Err(CertificateError::Network(_))
    ));
    let unlisted = crypto::Revocation { organisation: organisation(9).key, ..revocation() };
    assert!(matches!(
        verify(&unlisted.sign(&secret(9), &network)),
        Err(CertificateError::Organisation(_))
    ));
    let ahead = crypto::Revocation { sequence: (NOW + CLOCK_SKEW_S) * 1000 + 1, ..revocation() };
    assert!(matches!(
        verify(&ahead.sign(&secret(1), &network)),
        Err(CertificateError::Field("sequence"))
    ));
    let kept = ahead.sign(&secret(1), &network);
    assert_eq!(crypto::Revocation::verify_kept(&kept, &genesis, NOW).unwrap(), ahead);
    let other = ahead.sign(&secret(2), &network);
    assert!(crypto::Revocation::verify_kept(&other, &genesis, NOW).is_err(), "another's key");
    // A pass is no revocation: the domain differs.
    assert!(verify(&pass().sign(&secret(1), &network)).is_err());
}

#[test]
fn every_flipped_bit_of_a_revocation_is_refused() {
    let (genesis, network) = (genesis(), genesis().network());
    let bytes = revocation().sign(&secret(1), &network);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(crypto::Revocation::verify(&flipped.into(), &genesis, NOW).is_err(), "bit {bit}");
    }
}

#[test]
fn a_revocation_of_too_many_keys_is_refused() {
    let keys = (0..=crypto::revocation::REVOKED_MAX).map(|n| {
        let mut bytes = [1; 32];
        bytes[..8].copy_from_slice(&(n as u64).to_be_bytes());
        SecretKey::from_bytes(&bytes).unwrap().public()
    });
    let mut keys: Vec<_> = keys.collect();
    let over = crypto::Revocation { keys: keys.clone(), ..revocation() };
    let bytes = over.sign(&secret(1), &genesis().network());
    let refused = crypto::Revocation::verify(&bytes, &genesis(), NOW);
    assert!(matches!(refused, Err(CertificateError::TooLarge)), "{refused:?}");
    keys.pop();
    let most = crypto::Revocation { keys, ..revocation() };
    let bytes = most.sign(&secret(1), &genesis().network());
    crypto::Revocation::verify(&bytes, &genesis(), NOW).unwrap();
}
