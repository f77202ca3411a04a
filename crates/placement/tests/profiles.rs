//! Profiles: by the number of peers, by name, and what a genesis says.
#![allow(clippy::unwrap_used, reason = "tests")]

use crypto::genesis::{COPIES_MAX, FRAGMENTS_MAX};
use crypto::{Genesis, GenesisProfile, OrgId, Organisation, PeerId, PublicKey, SecretKey, Suite};
use placement::{Candidate, Profile, ProfileError, View};
use proptest::prelude::*;

const fn stripe(k: u32, n: u32) -> Profile {
    Profile::Stripe { k, n }
}

#[test]
fn the_number_of_peers_decides_as_the_table_says() {
    let rows = [
        (0, Profile::Copies(3)),
        (1, Profile::Copies(3)),
        (8, Profile::Copies(3)),
        (9, stripe(4, 8)),
        (17, stripe(4, 8)),
        (18, stripe(8, 16)),
        (24, stripe(8, 16)),
        (25, stripe(8, 24)),
        (47, stripe(8, 24)),
        (48, stripe(16, 48)),
        (1_000_000, stripe(16, 48)),
    ];
    for (peers, expected) in rows {
        assert_eq!(Profile::by_peers(peers), expected, "{peers} peers");
    }
    for peers in 9..200 {
        // Each fragment has a peer of its own, and one may be lost before there are too few.
        assert!(Profile::by_peers(peers).peers_min() <= peers, "{peers} peers");
    }
}

fn key(number: usize) -> PublicKey {
    let mut bytes = [1; 32];
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    SecretKey::from_bytes(&bytes).unwrap().public()
}

fn organisation(number: usize) -> OrgId {
    OrgId::new(key(1 << 20 | number))
}

/// A view of organisations with so many peers each.
fn view(sizes: &[usize]) -> View {
    let organisations = sizes.iter().enumerate().flat_map(|(of, size)| vec![of; *size]);
    let candidates = organisations.enumerate().map(|(peer, of)| Candidate {
        peer: PeerId::new(key(peer)),
        organisation: organisation(of),
        weight: 1,
    });
    View::new(1, candidates.collect())
}

#[test]
fn of_no_stripe_has_one_organisation_more_than_there_is_parity() {
    let rows: [(&[usize], Profile); 9] = [
        (&[64], stripe(16, 48)),
        (&[3, 3, 3], stripe(4, 8)),
        (&[8, 8, 8], stripe(8, 16)),
        (&[4; 6], stripe(8, 16)),
        (&[8; 8], stripe(16, 48)),
        (&[5, 4], stripe(4, 8)),
        // One with many certificates: with 16/48 it would have 36 of each stripe's fragments, with 8/24 it has half.
        (&[4, 4, 4, 40], stripe(8, 24)),
        (&[2, 2, 60], stripe(4, 8)),
        (&[1, 60], Profile::Copies(3)),
    ];
    for (sizes, expected) in rows {
        let profile = Profile::by_view(&view(sizes));
        assert_eq!(profile, expected, "{sizes:?}");
        if let (Profile::Stripe { k, n }, true) = (profile, sizes.len() > 1) {
            assert!(view(sizes).most_of_one(n as usize) <= (n - k) as usize, "{sizes:?}");
        }
    }
}

#[test]
fn where_too_few_are_reached_the_row_is_that_of_those_alone() {
    /// Whether it is a peer of one of these organisations.
    fn of<'a>(view: &'a View, organisations: &'a [usize]) -> impl Fn(&PeerId) -> bool + use<'a> {
        let keys: Vec<OrgId> = organisations.iter().map(|of| organisation(*of)).collect();
        let all = view.candidates();
        move |peer| all.iter().any(|one| one.peer == *peer && keys.contains(&one.organisation))
    }
    // 39 peers that run, of three organisations, and certificates of a fourth for 9 that do not.
    let all = view(&[13, 13, 13, 9]);
    let profile = Profile::by_view(&all);
    assert_eq!((profile, profile.threshold()), (stripe(16, 48), 40));
    let reached = all.reached(of(&all, &[0, 1, 2])).unwrap();
    assert_eq!((reached.len(), reached.organisations(), reached.roster()), (39, 3, all.roster()));
    assert_eq!(Profile::by_view(&reached), stripe(8, 24));
    // Who reaches less than half of the organisations, or next to nobody, is cut off and goes by all.
    assert!(all.reached(of(&all, &[0, 3])).is_some());
    assert!(all.reached(of(&all, &[0])).is_none());
    let small = view(&[1, 1, 1, 9]);
    assert!(small.reached(of(&small, &[0, 1])).is_none());
    assert_eq!(small.reached(of(&small, &[0, 1, 2])).unwrap().len(), 3);
}

#[test]
fn names_stand_for_stripes() {
    let rows = [("lean", stripe(10, 16)), ("archive", stripe(16, 64)), ("storj", stripe(29, 80))];
    for (name, expected) in rows {
        assert_eq!(name.parse(), Ok(expected));
    }
    assert_eq!("4/8".parse(), Ok(stripe(4, 8)));
    assert_eq!("255/256".parse(), Ok(stripe(255, 256)));
    assert_eq!("copies:64".parse(), Ok(Profile::Copies(64)));
    assert_eq!(Profile::LEAN.to_string(), "10/16");
}

#[test]
fn what_is_no_profile_is_refused_for_its_reason() {
    use ProfileError::{Copies, Form, Stripe};
    let rows = [
        ("", Form),
        ("Lean", Form),
        ("lean ", Form),
        ("4", Form),
        ("/", Form),
        ("4/", Form),
        ("/8", Form),
        ("4/8/16", Form),
        ("-4/8", Form),
        ("+4/8", Form),
        (" 4/8", Form),
        ("4 / 8", Form),
        ("four/eight", Form),
        ("\u{664}/8", Form),
        ("copies", Form),
        ("copies:", Form),
        ("copies:-1", Form),
        ("copies:3/4", Form),
        ("0/8", Stripe),
        ("0/0", Stripe),
        ("8/8", Stripe),
        ("9/8", Stripe),
        ("1/257", Stripe),
        ("256/257", Stripe),
        ("1/99999999999999999999", Stripe),
        ("copies:0", Copies),
        ("copies:65", Copies),
        ("copies:99999999999999999999", Copies),
    ];
    for (text, expected) in rows {
        assert_eq!(text.parse::<Profile>(), Err(expected), "{text:?}");
    }
    assert_eq!(
        Form.to_string(),
        "a profile is lean, archive, storj, K/N such as 16/48, or copies:N"
    );
    assert_eq!(Stripe.to_string(), "K/N: K from 1 to N - 1, and N at most 256");
    assert_eq!(Copies.to_string(), "copies:N: N from 1 to 64");
}

#[test]
fn the_threshold_waits_for_three_quarters_of_the_parity() {
    let rows = [((4, 8), 7), ((8, 16), 14), ((8, 24), 20), ((16, 48), 40), ((10, 16), 15)];
    for ((k, n), expected) in rows {
        assert_eq!(stripe(k, n).threshold(), expected, "{k}/{n}");
    }
    assert_eq!(Profile::ARCHIVE.threshold(), 52);
    assert_eq!(Profile::STORJ.threshold(), 68);
    assert_eq!([1, 2, 3, 5].map(|copies| Profile::Copies(copies).threshold()), [1, 2, 2, 3]);
    // By hand, without the checks: no panic.
    assert_eq!(stripe(8, 4).threshold(), 8);
    assert!(stripe(1, u32::MAX).threshold() < u32::MAX);
}

#[test]
fn a_genesis_decides_before_the_number_of_peers() {
    let key = OrgId::new(SecretKey::from_bytes(&[1; 32]).unwrap().public());
    let organisations = vec![Organisation { key, name: "one".to_owned() }];
    let of = |suite, copies, profile| {
        let (name, created, nonce) = ("n".to_owned(), 1, [0; 16]);
        let organisations = organisations.clone();
        Genesis { name, suite, organisations, copies, profile, created, nonce }.checked().unwrap()
    };
    let nothing = of(Suite::Holdfast1, None, None);
    assert_eq!(Profile::of_network(&nothing, &view(&[8])), Profile::Copies(3));
    assert_eq!(Profile::of_network(&nothing, &view(&[64])), stripe(16, 48));
    let copies = of(Suite::Holdfast1, Some(5), None);
    assert_eq!(Profile::of_network(&copies, &view(&[64])), Profile::Copies(5));
    let asked = of(Suite::Holdfast1, None, Some(GenesisProfile { k: 10, n: 16 }));
    assert_eq!(Profile::of_network(&asked, &view(&[64])), Profile::LEAN);
    // Too few peers: whoever puts has to say so, and not to keep something else in silence.
    assert_eq!(Profile::of_network(&asked, &view(&[3])).peers_min(), 16);
    assert_eq!(
        Profile::of_network(&of(Suite::Libri1, None, None), &view(&[64])),
        Profile::Copies(3),
        "libri-1 has no stripes"
    );
    assert!(Profile::has_stripes(&nothing, 9) && !Profile::has_stripes(&nothing, 8));
    assert!(Profile::has_stripes(&asked, 3) && !Profile::has_stripes(&copies, 64));
}

proptest! {
    #[test]
    fn what_is_shown_parses_to_the_same(
        copies in 1..=COPIES_MAX, k in 1..256_u32, m in 1..256_u32,
    ) {
        let copies = Profile::copies(copies).unwrap();
        prop_assert_eq!(copies.to_string().parse(), Ok(copies));
        prop_assume!(k + m <= FRAGMENTS_MAX);
        let stripe = Profile::stripe(k, k + m).unwrap();
        prop_assert_eq!(stripe.to_string().parse(), Ok(stripe));
        // More than k, so that an answered put survives a loss; no more than there are.
        prop_assert!((k + 1..=k + m).contains(&stripe.threshold()));
    }

    #[test]
    fn any_text_is_a_profile_or_an_error(text in "[a-z0-9:/ +-]{0,12}") {
        if let Ok(profile) = text.parse::<Profile>() {
            prop_assert_eq!(profile.to_string().parse(), Ok(profile));
        }
    }
}
