//! Rosters: what counts, what does not, and that everybody comes to the same one.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bytes::Bytes;
use crypto::lease::{self, Checked, LEASE_SECONDS_MAX, Leaf, Terms};
use crypto::{
    CertificateError, Change, Class, Classified, ClientKey, Genesis, Listing, OrgId, Organisation,
    Pass, PeerCertificate, PeerId, Place, Revocation, Roster, RosterError, Rosters, SecretKey,
    SignedRoster, Suite, Taught, Tier,
};
use proptest::prelude::*;

const NOW: u64 = 1_700_000_000;

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

fn org(byte: u8) -> OrgId {
    OrgId::new(secret(byte).public())
}

fn named(byte: u8) -> Organisation {
    Organisation { key: org(byte), name: format!("organisation {byte}") }
}

/// A network of organisations 1 to `count`.
fn genesis(count: u8) -> Arc<Genesis> {
    let genesis = Genesis {
        name: "coast".into(),
        suite: Suite::Holdfast1,
        organisations: (1..=count).map(named).collect(),
        copies: None,
        profile: None,
        created: NOW,
        nonce: [7; 16],
    };
    Arc::new(genesis.checked().unwrap())
}

fn add(byte: u8) -> Change {
    Change::Add(named(byte))
}

/// The roster after `previous` with a change, signed by these.
fn signed(previous: &Roster, change: &Change, by: &[u8]) -> Bytes {
    let mut proposal = SignedRoster::proposal(previous.changed(change, NOW).unwrap().unwrap());
    for byte in by {
        proposal.sign(&secret(*byte), previous).unwrap();
    }
    proposal.encode()
}

fn keys(roster: &Roster) -> Vec<OrgId> {
    roster.organisations().iter().map(|organisation| organisation.key).collect()
}

#[test]
fn golden_bytes_of_a_signed_roster() {
    let first = Roster::first(&genesis(2));
    let until = Some(NOW + 30 * 86_400);
    let mut proposal = SignedRoster::proposal(
        first.changed(&Change::Key { from: org(2), to: org(3), until }, NOW).unwrap().unwrap(),
    );
    proposal.sign(&secret(1), &first).unwrap();
    proposal.sign(&secret(2), &first).unwrap();
    let bytes = proposal.encode();
    testkit::golden::check(testkit::manifest!(), "signed-roster", &bytes);
    testkit::golden::check(testkit::manifest!(), "roster-hash", proposal.roster.hash());
    assert_eq!(SignedRoster::verify(&bytes, &first).unwrap(), proposal);
}

#[test]
fn more_than_half_must_sign_and_only_those_that_were_listed() {
    for (count, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
        let mut rosters = Rosters::new(genesis(count));
        let first = rosters.current().clone();
        assert_eq!(first.needed(), needed);
        let few: Vec<u8> = (1..u8::try_from(needed).unwrap()).collect();
        let refused = rosters.learn(&signed(&first, &add(9), &few)).unwrap_err();
        assert!(matches!(refused, RosterError::NotEnough { .. }), "{refused}");
        assert_eq!(refused.class(), Class::Denied);
        let enough: Vec<u8> = (1..=u8::try_from(needed).unwrap()).collect();
        assert_eq!(rosters.learn(&signed(&first, &add(9), &enough)).unwrap(), Taught::Newer);
        assert_eq!(keys(rosters.current()).len(), usize::from(count) + 1);
    }
    // The newcomer has no say in its own joining, nor has one that left before.
    let first = Roster::first(&genesis(3));
    let mut proposal = SignedRoster::proposal(first.changed(&add(9), NOW).unwrap().unwrap());
    assert!(matches!(proposal.sign(&secret(9), &first), Err(RosterError::Signer(_))));
    let left = first.changed(&Change::Remove(org(1)), NOW).unwrap().unwrap();
    let mut proposal = SignedRoster::proposal(left.changed(&add(9), NOW).unwrap().unwrap());
    assert!(matches!(proposal.sign(&secret(1), &left), Err(RosterError::Signer(_))));
}

/// A field of bytes, as the format has it.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut out);
    out.extend(bytes);
    out
}

/// The bytes of a signed roster with these signatures as they stand, whoever made them.
fn forged(roster: &Roster, signatures: &[(OrgId, [u8; 64])]) -> Bytes {
    let mut out = field(1, &roster.body());
    for (organisation, signature) in signatures {
        out.extend(field(2, &[field(1, organisation.as_bytes()), field(2, signature)].concat()));
    }
    out.into()
}

/// A roster that nobody signed, of `count` organisations whose keys are no points of the curve.
fn of_no_keys(network: &[u8], number: u8, previous: &[u8], count: usize) -> Bytes {
    let organisation = [field(1, &[0xff; 33]), field(2, b"a")].concat();
    let mut body = [field(1, network), vec![2 << 3, number], field(3, previous)].concat();
    for _ in 0..count {
        body.extend(field(4, &organisation));
    }
    field(1, &body).into()
}

/// Finding out whether bytes are a key takes some 15 us, and anybody may offer a roster of a thousand: so whatever is cheaper
/// to refuse is refused before, which shows in what is said of keys that are none.
#[test]
fn no_key_of_a_roster_is_looked_at_before_those_before_it_signed() {
    let mut rosters = Rosters::new(genesis(3));
    let first = rosters.current().clone();
    let (network, hash) = (*first.network().as_bytes(), *first.hash());
    let mut learn = |bytes: &Bytes| rosters.learn(bytes);
    let refused = learn(&of_no_keys(&[1; 32], 1, &hash, 1000)).unwrap_err();
    assert!(matches!(refused, RosterError::Network(_)), "{refused}");
    let refused = learn(&of_no_keys(&network, 1, &hash, 1001)).unwrap_err();
    assert!(matches!(refused, RosterError::Field("list of organisations")), "{refused}");
    let refused = learn(&of_no_keys(&network, 1, &hash, 0)).unwrap_err();
    assert!(matches!(refused, RosterError::Field("list of organisations")), "{refused}");
    assert_eq!(learn(&of_no_keys(&network, 2, &[1; 32], 1000)).unwrap(), Taught::Behind);
    let unsigned = of_no_keys(&network, 1, &hash, 1000);
    let refused = learn(&unsigned).unwrap_err();
    assert!(matches!(refused, RosterError::NotEnough { signed: 0, .. }), "{refused}");
    // Signatures that are of somebody else, or of nobody.
    let signature = |key: OrgId| field(2, &[field(1, key.as_bytes()), field(2, &[7; 64])].concat());
    let mut strange = [org(8), org(9)];
    strange.sort_unstable();
    let by = |keys: &[OrgId]| {
        let signatures = keys.iter().flat_map(|key| signature(*key));
        Bytes::from([unsigned.to_vec(), signatures.collect()].concat())
    };
    let refused = learn(&by(&strange)).unwrap_err();
    assert!(matches!(refused, RosterError::Signer(_)), "{refused}");
    let mut listed = [org(1), org(2)];
    listed.sort_unstable();
    let refused = learn(&by(&listed)).unwrap_err();
    assert!(matches!(refused, RosterError::Key(crypto::KeyError::Signature)), "{refused}");
}

/// The same of one that disputes a roster long ago, of which the bytes alone are kept.
#[test]
fn a_rival_of_an_old_roster_is_looked_at_once_somebody_signed_it() {
    let mut rosters = Rosters::new(genesis(3));
    let mut hashes = vec![*rosters.current().hash()];
    for byte in 10..16 {
        let next = signed(
            rosters.current(),
            &add(byte),
            &[1, 2, 3, 10, 11, 12, 13, 14][..usize::from(byte - 7).min(8)],
        );
        assert_eq!(rosters.learn(&next).unwrap(), Taught::Newer);
        hashes.push(*rosters.current().hash());
    }
    let network = *rosters.current().network().as_bytes();
    let refused = rosters.learn(&of_no_keys(&network, 3, &[5; 32], 1000)).unwrap_err();
    assert!(matches!(refused, RosterError::Link(3)), "{refused}");
    let unsigned = of_no_keys(&network, 3, &hashes[2], 1000);
    let refused = rosters.learn(&unsigned).unwrap_err();
    assert!(matches!(refused, RosterError::NotEnough { signed: 0, of: 5, needed: 3 }), "{refused}");
    let signature = |key: OrgId| field(2, &[field(1, key.as_bytes()), field(2, &[7; 64])].concat());
    let by = |mut keys: Vec<OrgId>| {
        keys.sort_unstable();
        let signatures = keys.into_iter().flat_map(signature);
        Bytes::from([unsigned.to_vec(), signatures.collect()].concat())
    };
    let refused = rosters.learn(&by(vec![org(7), org(8), org(9)])).unwrap_err();
    assert!(matches!(refused, RosterError::Signer(_)), "{refused}");
    let refused = rosters.learn(&by(vec![org(1), org(2), org(3)])).unwrap_err();
    assert!(matches!(refused, RosterError::Key(crypto::KeyError::Signature)), "{refused}");
}

#[test]
fn a_signature_counts_once_in_order_and_for_this_roster_alone() {
    let first = Roster::first(&genesis(3));
    let next = first.changed(&add(9), NOW).unwrap().unwrap();
    let other = first.changed(&add(8), NOW).unwrap().unwrap();
    let sign = |roster: &Roster, byte| {
        (org(byte), secret(byte).sign("roster", &first.network(), &roster.body()))
    };
    let mut pair = [sign(&next, 1), sign(&next, 2)];
    pair.sort_by_key(|(organisation, _)| *organisation);
    SignedRoster::verify(&forged(&next, &pair), &first).unwrap();
    let twice = [pair[0], pair[0]];
    let backwards = [pair[1], pair[0]];
    for bad in [twice, backwards] {
        let refused = SignedRoster::verify(&forged(&next, &bad), &first).unwrap_err();
        assert!(matches!(refused, RosterError::Field("order of signatures")), "{refused}");
    }
    let mut moved = pair;
    moved[1].1 = sign(&other, 2).1;
    moved[0].1 = sign(&other, 1).1;
    assert!(matches!(
        SignedRoster::verify(&forged(&next, &moved), &first),
        Err(RosterError::Key(_))
    ));
    // The same bytes signed for another purpose.
    let mut other_domain = pair;
    for (organisation, signature) in &mut other_domain {
        let byte = if *organisation == org(1) { 1 } else { 2 };
        *signature = secret(byte).sign("pass", &first.network(), &next.body());
    }
    assert!(SignedRoster::verify(&forged(&next, &other_domain), &first).is_err());
}

#[test]
fn every_flipped_bit_is_refused() {
    let first = Roster::first(&genesis(3));
    let bytes = signed(&first, &add(9), &[1, 3]);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(SignedRoster::verify(&flipped.into(), &first).is_err(), "bit {bit}");
    }
}

#[test]
fn a_roster_of_another_network_number_or_history_is_refused() {
    let mut rosters = Rosters::new(genesis(3));
    let first = rosters.current().clone();
    let foreign = Roster::first(&genesis(4));
    let refused = rosters.learn(&signed(&foreign, &add(9), &[1, 2, 3])).unwrap_err();
    assert!(matches!(refused, RosterError::Network(_)));

    let one = signed(&first, &add(4), &[1, 2]);
    let after = first.changed(&add(4), NOW).unwrap().unwrap();
    let two = signed(&after, &add(5), &[1, 2, 4]);
    assert_eq!(rosters.learn(&two).unwrap(), Taught::Behind, "its predecessor is missing");
    assert_eq!(rosters.learn(&one).unwrap(), Taught::Newer);
    assert_eq!(rosters.learn(&one).unwrap(), Taught::Known);
    assert_eq!(rosters.learn(&two).unwrap(), Taught::Newer);
    assert_eq!(rosters.current().number(), 2);
    assert_eq!(rosters.previous().unwrap().number(), 1);
    assert_eq!(rosters.learn(&one).unwrap(), Taught::Known);
    assert_eq!(rosters.conflicts(), 0);

    let stale = SignedRoster::verify(&one, rosters.current()).unwrap_err();
    assert!(matches!(stale, RosterError::Number { expected: 3, found: 1 }), "{stale}");
    assert_eq!(stale.class(), Class::Conflict);
    // Of the same number after another roster.
    let elsewhere = first.changed(&add(7), NOW).unwrap().unwrap();
    let unlinked = signed(&elsewhere, &add(8), &[1, 2, 3]);
    let refused = SignedRoster::verify(&unlinked, &after).unwrap_err();
    assert!(matches!(refused, RosterError::Link(2)), "{refused}");
}

#[test]
fn a_roster_lists_somebody_once_and_changes_something() {
    let first = Roster::first(&genesis(2));
    let organisations = first.organisations().to_vec();
    let next = |organisations: Vec<Organisation>| first.next(organisations, Vec::new());
    assert!(matches!(next(organisations.clone()), Err(RosterError::Unchanged)));
    assert!(matches!(next(Vec::new()), Err(RosterError::Field(_))));
    let twice = organisations.iter().chain(&organisations).cloned().collect();
    assert!(matches!(next(twice), Err(RosterError::Field("list of organisations"))));
    for name in ["", "a\nb", &"x".repeat(65)] {
        let mut badly = organisations.clone();
        badly[0].name = name.to_owned();
        assert!(matches!(next(badly), Err(RosterError::Field("name of an organisation"))));
    }
    assert_eq!(first.changed(&Change::Remove(org(7)), NOW).unwrap(), None);
    assert_eq!(first.changed(&Change::Add(named(1)), NOW).unwrap(), None);
    let renamed = Change::Name(Organisation { key: org(1), name: "pier".into() });
    let renamed = first.changed(&renamed, NOW).unwrap().unwrap();
    assert_eq!(renamed.organisation(&org(1)).unwrap().name, "pier");
}

fn certificate(by: u8, roster: &impl Listing) -> Bytes {
    let certificate = PeerCertificate {
        peer: PeerId::new(secret(20).public()),
        organisation: org(by),
        addresses: vec!["peer.example:7000".into()],
        capacity: 1,
        from: NOW,
        until: NOW + 365 * 86_400,
    };
    certificate.sign(&secret(by), &roster.network_id())
}

#[test]
fn certificates_count_for_those_listed_now() {
    let first = Roster::first(&genesis(2));
    let old = certificate(2, &first);
    let left = first.changed(&Change::Remove(org(2)), NOW).unwrap().unwrap();
    PeerCertificate::verify(&old, &first, NOW).unwrap();
    let refused = PeerCertificate::verify(&old, &left, NOW).unwrap_err();
    assert!(matches!(refused, CertificateError::Organisation(_)));
    let joined = first.changed(&add(3), NOW).unwrap().unwrap();
    assert!(PeerCertificate::verify(&certificate(3, &first), &first, NOW).is_err());
    PeerCertificate::verify(&certificate(3, &first), &joined, NOW).unwrap();
}

#[test]
fn a_former_key_speaks_for_its_organisation_until_its_end() {
    let first = Roster::first(&genesis(2));
    let (old, until) = (certificate(2, &first), NOW + 1000);
    let changed = |until| Change::Key { from: org(2), to: org(3), until };
    let next = first.changed(&changed(Some(until)), NOW).unwrap().unwrap();
    let found = PeerCertificate::verify(&old, &next, NOW).unwrap();
    assert_eq!((found.organisation, found.until), (org(3), until));
    assert!(PeerCertificate::verify(&old, &next, until).is_err());
    PeerCertificate::verify(&certificate(3, &next), &next, until).unwrap();
    let list = Revocation { organisation: org(2), sequence: 1, keys: vec![secret(20).public()] };
    let list = Revocation::verify(&list.sign(&secret(2), &next.network()), &next, NOW).unwrap();
    assert_eq!(list.organisation, org(3));
    // It signs no roster, and of a stolen key nothing counts.
    let mut proposal = SignedRoster::proposal(next.changed(&add(4), NOW).unwrap().unwrap());
    assert!(matches!(proposal.sign(&secret(2), &next), Err(RosterError::Signer(_))));
    let stolen = first.changed(&changed(None), NOW).unwrap().unwrap();
    assert!(PeerCertificate::verify(&old, &stolen, NOW).is_err());
    // The next roster carries it on, and nobody makes it last longer or names one that never was.
    let after = next.changed(&add(4), NOW).unwrap().unwrap();
    assert_eq!(after.former(), next.former());
    // For leases that were signed before its end it is known for as long as those may run.
    let long_after = until + LEASE_SECONDS_MAX;
    let known = next.changed(&add(4), long_after - 1).unwrap().unwrap();
    assert_eq!(known.former(), next.former());
    assert!(PeerCertificate::verify(&old, &known, until).is_err());
    assert!(next.changed(&add(4), long_after).unwrap().unwrap().former().is_empty());
    let with = |former: Vec<crypto::FormerKey>| {
        next.next(after.organisations().to_vec(), former).map(drop)
    };
    let mut longer = next.former().to_vec();
    longer[0].until += 1;
    assert!(matches!(with(longer), Err(RosterError::Field("former key"))));
    let mut never = next.former().to_vec();
    never[0].former = org(9);
    assert!(matches!(with(never), Err(RosterError::Field("former key"))));
    let mut present = next.former().to_vec();
    present[0].former = org(1);
    assert!(matches!(with(present), Err(RosterError::Field("former key"))));
}

/// What was paid for under a key that is no longer the organisation's is mended like all else: its lease is checked at the time at
/// which it was signed.
#[test]
fn a_lease_outlives_the_key_that_signed_its_pass() {
    let first = Roster::first(&genesis(2));
    let client = secret(30);
    let pass = Pass {
        client: ClientKey::new(client.public()),
        organisation: org(2),
        tier: Tier::Known,
        quota: 0,
        from: NOW - 10,
        until: NOW + 1000,
    };
    let pass = pass.sign(&secret(2), &first.network());
    let leaf = Leaf { place: Place::new([7; 32]), bytes: 100 };
    let signed = |from: u64| {
        let terms = Terms { redundancy: 3, from, until: NOW + 100_000 };
        lease::sign(&[leaf], terms, &pass, &client, &first.network()).unwrap()
    };
    let (before, after) = (signed(NOW), signed(NOW + 500));
    let key = Change::Key { from: org(2), to: org(3), until: Some(NOW + 300) };
    let next = first.changed(&key, NOW + 100).unwrap().unwrap();
    let later = next.changed(&add(4), NOW + 50_000).unwrap().unwrap();
    let checked = |shown: &lease::Shown| Checked::verify(&shown.lease, &shown.pass, &later);
    assert_eq!(checked(&before).unwrap().organisation, org(3), "it pays for it by its present key");
    checked(&after).unwrap_err();
    // A key that was stolen speaks for nothing, and one that left for nobody.
    for change in [Change::Key { from: org(2), to: org(3), until: None }, Change::Remove(org(2))] {
        let next = first.changed(&change, NOW + 100).unwrap().unwrap();
        Checked::verify(&before.lease, &before.pass, &next).unwrap_err();
    }
}

/// Two rosters of the same number, the one that wins first.
fn rivals(previous: &Roster) -> [(Roster, Bytes); 2] {
    let one = |byte: u8, by: &[u8]| {
        let roster = previous.changed(&add(byte), NOW).unwrap().unwrap();
        (roster, signed(previous, &add(byte), by))
    };
    let mut both = [one(8, &[1, 2]), one(9, &[2, 3])];
    both.sort_by_key(|(roster, _)| *roster.hash());
    both
}

#[test]
fn of_two_newest_rosters_the_smaller_hash_counts_and_who_signed_both_is_told() {
    let first = Rosters::new(genesis(3));
    let [(winner, winning), (_, losing)] = rivals(first.current());
    for order in [[&winning, &losing], [&losing, &winning]] {
        let mut rosters = first.clone();
        for bytes in order {
            rosters.learn(bytes).unwrap();
        }
        assert_eq!(**rosters.current(), winner);
        let conflict = rosters.conflict().unwrap();
        assert_eq!((conflict.number, &conflict.signed_both), (1, &vec![org(2)]));
        assert_eq!(conflict.ours, *winner.hash());
        for bytes in order {
            rosters.learn(bytes).unwrap();
        }
        assert_eq!((**rosters.current() == winner, rosters.conflicts()), (true, 1));
    }
}

#[test]
fn a_rival_with_a_successor_counts_and_what_has_a_successor_is_settled() {
    let first = Rosters::new(genesis(3));
    let [(winner, winning), (loser, losing)] = rivals(first.current());
    // The organisations went on with the one of the larger hash.
    let after_loser = signed(&loser, &add(10), &[1, 2, 3]);
    let after_winner = signed(&winner, &add(11), &[1, 2, 3]);
    let mut rosters = first.clone();
    assert_eq!(rosters.learn(&winning).unwrap(), Taught::Newer);
    assert_eq!(rosters.learn(&after_loser).unwrap(), Taught::Behind, "its predecessor is unseen");
    assert_eq!(rosters.learn(&losing).unwrap(), Taught::Known);
    assert_eq!(rosters.learn(&after_loser).unwrap(), Taught::Newer);
    assert_eq!((rosters.current().number(), *rosters.hash_at(1)), (2, *loser.hash()));
    // From now on nothing rewrites it: not the smaller hash, not with a successor of its own.
    assert_eq!(rosters.learn(&winning).unwrap(), Taught::Known);
    assert_ne!(rosters.learn(&after_winner).ok(), Some(Taught::Newer));
    assert_eq!((rosters.current().number(), *rosters.hash_at(1)), (2, *loser.hash()));
    assert!(rosters.conflicts() > 0);
}

trait HashAt {
    fn hash_at(&self, number: u64) -> &[u8; 32];
}

impl HashAt for Rosters {
    fn hash_at(&self, number: u64) -> &[u8; 32] {
        match number {
            _ if number == self.current().number() => self.current().hash(),
            _ => self.previous().unwrap().hash(),
        }
    }
}

#[test]
fn whoever_was_away_gets_what_it_lacks_in_bounded_parts() {
    let mut all = Rosters::new(genesis(3));
    for byte in 4..24 {
        let by: Vec<u8> = (1..byte).collect();
        let next = signed(&all.current().clone(), &add(byte), &by);
        assert_eq!(all.learn(&next).unwrap(), Taught::Newer);
    }
    let mut late = Rosters::new(genesis(3));
    let mut rounds = 0;
    while late.current().hash() != all.current().hash() {
        let lacking = all.lacking(late.current().number(), late.current().hash(), 6, 1 << 20);
        assert!((1..=6).contains(&lacking.len()));
        for bytes in &lacking {
            late.learn(bytes).unwrap();
        }
        rounds += 1;
    }
    assert_eq!(rounds, 4);
    assert!(all.lacking(20, all.current().hash(), 6, 1 << 20).is_empty());
    let size = all.newest().unwrap().len();
    assert!(all.from(1, 100, size).len() < 20, "bytes are bounded too");
    assert!(all.from(u64::MAX, 100, 1 << 20).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever the order in which the rosters of a history with one fork at its end arrive, and
    /// however often: everybody ends at the same one.
    #[test]
    fn everybody_comes_to_the_same_roster(
        length in 1_u8..5,
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let first = Rosters::new(genesis(3));
        let mut whole = first.clone();
        let mut all = Vec::new();
        for byte in 0..length {
            let next = signed(&whole.current().clone(), &add(30 + byte), &[1, 2, 3]);
            whole.learn(&next).unwrap_or(Taught::Behind);
            if whole.newest() != Some(&next) {
                break;
            }
            all.push(next);
        }
        let tip = whole.current().clone();
        let needed: Vec<u8> = (1..4).chain(30..30 + length).take(tip.needed()).collect();
        for byte in [50, 51] {
            all.push(signed(&tip, &add(byte), &needed));
        }
        for bytes in &all {
            whole.learn(bytes).unwrap();
        }
        let mut other = first;
        for index in &order {
            let _ = other.learn(index.get(&all)).unwrap();
        }
        for bytes in all.iter().rev().chain(&all).chain(all.iter().rev()) {
            other.learn(bytes).unwrap();
        }
        for bytes in &all {
            other.learn(bytes).unwrap();
        }
        prop_assert_eq!(other.current(), whole.current());
    }

    /// Any history of changes is one that each of its rosters proves, and who is listed is what the
    /// changes say.
    #[test]
    fn a_history_of_changes_is_what_a_model_says(
        changes in prop::collection::vec((0_u8..4, 1_u8..12, 1_u8..12), 1..12)
    ) {
        let mut rosters = Rosters::new(genesis(3));
        let mut model: std::collections::BTreeSet<u8> = (1..=3).collect();
        for (what, a, b) in changes {
            let (change, after) = match what {
                0 | 3 => (add(a), { let mut m = model.clone(); m.insert(a); m }),
                1 => (Change::Remove(org(a)), { let mut m = model.clone(); m.remove(&a); m }),
                _ => {
                    let mut m = model.clone();
                    if m.contains(&a) && !m.contains(&b) { m.remove(&a); m.insert(b); }
                    (Change::Key { from: org(a), to: org(b), until: Some(NOW + 5) }, m)
                }
            };
            let current = rosters.current().clone();
            let Ok(next) = current.changed(&change, NOW) else {
                prop_assert!(after.is_empty() || after == model);
                continue;
            };
            let Some(next) = next else {
                prop_assert_eq!(&after, &model);
                continue;
            };
            let mut proposal = SignedRoster::proposal(next);
            for byte in &model {
                proposal.sign(&secret(*byte), &current).unwrap();
            }
            prop_assert_eq!(rosters.learn(&proposal.encode()).unwrap(), Taught::Newer);
            model = after;
            let mut expected: Vec<OrgId> = model.iter().map(|byte| org(*byte)).collect();
            expected.sort();
            prop_assert_eq!(keys(rosters.current()), expected);
        }
    }
}
