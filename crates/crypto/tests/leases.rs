//! Good leases, and every kind of lease that must not count, each refused by name.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use crypto::lease::{
    self, Checked, FRESH_SECONDS_MAX, Forget, LEASE_SECONDS_MAX, Leaf, LeaseError,
    SHOWN_LEAVES_MAX, Shown, ShownLeaf, SignedForget, Terms, tree,
};
use crypto::{
    CertificateError, ClientKey, Genesis, NetworkId, OrgId, Organisation, Pass, Place, SecretKey,
    Suite, Tier,
};
use proptest::prelude::*;

const NOW: u64 = 1_700_000_000;
const DAY_S: u64 = 86_400;

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

fn genesis() -> Genesis {
    let organisation = |byte: u8| Organisation {
        key: OrgId::new(secret(byte).public()),
        name: format!("organisation {byte}"),
    };
    let organisations = vec![organisation(1), organisation(2)];
    Genesis {
        name: "network".into(),
        suite: Suite::Holdfast1,
        organisations,
        copies: None,
        profile: None,
        created: NOW,
        nonce: [7; 16],
    }
    .checked()
    .unwrap()
}

/// A pass by organisation `by` for client 4, from NOW for a day.
fn pass_by(by: u8, network: &NetworkId) -> Bytes {
    let pass = Pass {
        client: ClientKey::new(secret(4).public()),
        organisation: OrgId::new(secret(by).public()),
        tier: Tier::Known,
        quota: 1000,
        from: NOW,
        until: NOW + DAY_S,
    };
    pass.sign(&secret(by), network)
}

fn pass() -> Bytes {
    pass_by(1, &genesis().network())
}

fn leaf(number: u8) -> Leaf {
    Leaf { place: Place::new([number; 32]), bytes: 100 + u64::from(number) }
}

const TERMS: Terms = Terms { redundancy: 5, from: NOW + 10, until: NOW + 365 * DAY_S };

fn shown() -> Shown {
    signed(TERMS, &pass(), 4, &genesis().network())
}

fn signed(terms: Terms, pass: &Bytes, client: u8, network: &NetworkId) -> Shown {
    lease::sign(&[leaf(1), leaf(2), leaf(3)], terms, pass, &secret(client), network).unwrap()
}

fn checked(shown: &Shown) -> Result<Checked, LeaseError> {
    Checked::verify(&shown.lease, &shown.pass, &genesis())
}

#[test]
fn a_good_lease_says_who_pays_for_what_and_until_when() {
    let shown = shown();
    let checked = checked(&shown).unwrap();
    assert_eq!(checked.client, ClientKey::new(secret(4).public()));
    assert_eq!(checked.organisation, OrgId::new(secret(1).public()));
    assert_eq!((checked.leaves, checked.bytes, checked.quota), (3, 306, 1000));
    assert_eq!(checked.terms, TERMS);
    assert_eq!(Checked::trusted(&shown.lease, &shown.pass, &genesis()).unwrap(), checked);
    assert_eq!(checked.id, lease::id(&shown.lease).unwrap());
    for (one, number) in shown.leaves.iter().zip(1..) {
        assert_eq!(checked.leaf(one).unwrap(), leaf(number));
    }
    let own = shown.of(|place| *place == leaf(2).place).unwrap();
    assert_eq!(Shown::decode(&own.encode()).unwrap(), own);
    assert_eq!(own.leaves.len(), 1);
    assert!(shown.of(|_| false).is_none());
}

#[test]
fn it_is_small_beside_an_envelope() {
    // An entry and its envelope: one hash of path each.
    let two = lease::sign(&[leaf(1), leaf(2)], TERMS, &pass(), &secret(4), &genesis().network());
    let own = two.unwrap().of(|place| *place == leaf(2).place).unwrap();
    let (lease, pass, all) = (own.lease.len(), own.pass.len(), own.encode().len());
    assert!(lease <= 160, "the lease takes {lease} bytes");
    assert!(pass <= 190, "the pass takes {pass} bytes");
    assert!(all <= 430, "all that is shown for one record takes {all} bytes");
}

#[test]
fn a_year_later_it_still_proves_itself_though_the_pass_has_ended() {
    let checked = checked(&shown()).unwrap();
    let later = NOW + 300 * DAY_S;
    checked.runs(later).unwrap();
    assert!(matches!(checked.is_fresh(later), Err(LeaseError::Stale { .. })));
    assert!(matches!(checked.runs(NOW + 366 * DAY_S), Err(LeaseError::Time { .. })));
    assert!(matches!(checked.runs(NOW - 200), Err(LeaseError::Time { .. })), "before its time");
    checked.is_fresh(NOW + FRESH_SECONDS_MAX).unwrap();
    assert!(checked.is_fresh(NOW + FRESH_SECONDS_MAX + 200).is_err());
}

#[test]
fn leases_that_do_not_count_are_refused_by_name() {
    let network = genesis().network();
    let other = NetworkId::new([9; 32]);
    // The pass of another network.
    let shown = signed(TERMS, &pass_by(1, &other), 4, &network);
    let error = checked(&shown).unwrap_err();
    assert!(matches!(error, LeaseError::Pass(CertificateError::Network(_))), "{error}");
    // Signed for another network.
    let error = checked(&signed(TERMS, &pass(), 4, &other)).unwrap_err();
    assert!(matches!(error, LeaseError::Signer(_)), "{error}");
    // Signed by somebody else than the pass is for.
    let error = checked(&signed(TERMS, &pass(), 5, &network)).unwrap_err();
    assert!(matches!(error, LeaseError::Signer(_)), "{error}");
    // The pass of an organisation that nobody listed.
    let error = checked(&signed(TERMS, &pass_by(3, &network), 4, &network)).unwrap_err();
    assert!(matches!(error, LeaseError::Pass(CertificateError::Organisation(_))), "{error}");
    // Another organisation's pass than the one that it was signed under.
    let swapped = Shown { pass: pass_by(2, &network), ..shown_of(TERMS) };
    let error = checked(&swapped).unwrap_err();
    assert!(matches!(error, LeaseError::OtherPass), "{error}");
    // A pass that had ended, or had not begun, when it was signed.
    for from in [NOW + DAY_S, NOW - 1000] {
        let error = checked(&shown_of(Terms { from, ..TERMS })).unwrap_err();
        assert!(matches!(error, LeaseError::Pass(CertificateError::Time { .. })), "{error}");
    }
}

fn shown_of(terms: Terms) -> Shown {
    signed(terms, &pass(), 4, &genesis().network())
}

#[test]
fn a_leaf_of_another_lease_or_with_other_bytes_does_not_count() {
    let shown = shown();
    let checked = checked(&shown).unwrap();
    let good = shown.leaves[1].clone();
    let wrong = |changed: ShownLeaf| {
        let error = checked.leaf(&changed).unwrap_err();
        assert!(matches!(error, LeaseError::Path(_)), "{error}");
    };
    wrong(ShownLeaf { leaf: Leaf { bytes: 1, ..good.leaf }, ..good.clone() });
    wrong(ShownLeaf { leaf: Leaf { place: leaf(9).place, ..good.leaf }, ..good.clone() });
    wrong(ShownLeaf { index: 0, ..good.clone() });
    wrong(ShownLeaf { index: 7, ..good.clone() });
    wrong(ShownLeaf { path: good.path[..1].to_vec(), ..good.clone() });
    wrong(ShownLeaf { path: [good.path.clone(), vec![[0; 32]]].concat(), ..good.clone() });
    let mut path = good.path.clone();
    path[0][0] ^= 1;
    wrong(ShownLeaf { path, ..good });
}

#[test]
fn terms_that_nobody_takes_are_not_signed_nor_taken() {
    let network = genesis().network();
    let terms = [
        (Terms { redundancy: 0, ..TERMS }, "redundancy"),
        (Terms { redundancy: 257, ..TERMS }, "redundancy"),
        (Terms { until: TERMS.from, ..TERMS }, "length of validity"),
        (Terms { until: TERMS.from - 1, ..TERMS }, "length of validity"),
        (Terms { until: TERMS.from + LEASE_SECONDS_MAX + 1, ..TERMS }, "length of validity"),
    ];
    for (terms, field) in terms {
        let error = lease::sign(&[leaf(1)], terms, &pass(), &secret(4), &network).unwrap_err();
        assert!(matches!(error, LeaseError::Field(found) if found == field), "{error}");
    }
    assert!(lease::sign(&[], TERMS, &pass(), &secret(4), &network).is_err());
}

#[test]
fn every_flipped_bit_is_refused() {
    let shown = shown();
    let flipped = |bytes: &Bytes, bit: usize| {
        let mut bad = bytes.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        Bytes::from(bad)
    };
    for bit in 0..shown.lease.len() * 8 {
        let bad = flipped(&shown.lease, bit);
        assert!(Checked::verify(&bad, &shown.pass, &genesis()).is_err());
    }
    for bit in 0..shown.pass.len() * 8 {
        let bad = flipped(&shown.pass, bit);
        assert!(Checked::verify(&shown.lease, &bad, &genesis()).is_err());
    }
    let forget = forget().sign(&secret(4), &genesis().network());
    for bit in 0..forget.len() * 8 {
        assert!(SignedForget::verify(flipped(&forget, bit), &genesis().network()).is_err());
    }
}

fn forget() -> Forget {
    let lease = lease::id(&shown().lease).unwrap();
    let client = ClientKey::new(secret(4).public());
    Forget { lease, client, until: TERMS.until, at: NOW + 20 }
}

#[test]
fn a_forget_is_its_clients_alone() {
    let network = genesis().network();
    let signed = SignedForget::verify(forget().sign(&secret(4), &network), &network).unwrap();
    assert_eq!(signed.forget, forget());
    for (key, of) in [(5, network), (4, NetworkId::new([9; 32]))] {
        let error = SignedForget::verify(forget().sign(&secret(key), &of), &network).unwrap_err();
        assert!(matches!(error, LeaseError::Forgetter(_)), "{error}");
    }
}

#[test]
fn what_is_shown_is_bounded() {
    let many: Vec<Leaf> = (0..=SHOWN_LEAVES_MAX as u64)
        .map(|number| Leaf { place: leaf(1).place, bytes: number })
        .collect();
    let shown = lease::sign(&many, TERMS, &pass(), &secret(4), &genesis().network()).unwrap();
    assert!(matches!(Shown::decode(&shown.encode()), Err(LeaseError::TooLarge)));
    let leaves = [0x1a, 0].repeat(100_000);
    assert!(matches!(Shown::decode(&leaves.into()), Err(LeaseError::TooLarge)));
    // A field that is none of its own, behind whose length as it seems others are hidden.
    let hidden = [vec![0x82, 0xff, 0x7f, 0], [0x1a, 0].repeat(100_000)].concat();
    assert!(matches!(Shown::decode(&hidden.into()), Err(LeaseError::Field("form"))));
    let none = Shown { leaves: Vec::new(), ..shown.clone() };
    assert!(matches!(Shown::decode(&none.encode()), Err(LeaseError::Field(_))));
    let large = Shown { lease: vec![1; lease::SHOWN_BYTES_MAX].into(), ..shown };
    assert!(matches!(Shown::decode(&large.encode()), Err(LeaseError::TooLarge)));
}

proptest! {
    /// Of trees of any size: each leaf's path leads to the root, and at no other index.
    #[test]
    fn one_leaf_has_one_path(count in 1..70u32, at in 0..70u32, other in 0..70u32) {
        let leaves: Vec<Leaf> = (0..count).map(|number| leaf(number as u8)).collect();
        let levels = tree::Levels::new(&leaves).unwrap();
        let at = at % count;
        let path = levels.path(at);
        let found = &leaves[at as usize];
        prop_assert_eq!(tree::root(found, at, count, &path), Some(levels.root()));
        if other != at {
            prop_assert_ne!(tree::root(found, other, count, &path), Some(levels.root()));
        }
        if count > 1 {
            prop_assert_ne!(tree::root(found, at, count, &path[1..]), Some(levels.root()));
        }
    }
}
