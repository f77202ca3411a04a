//! Who should hold a record now: the rank without the absent, by key and by index.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crypto::{OrgId, PeerId, Place, PublicKey, SecretKey, Suite};
use placement::{Candidate, View};
use proptest::prelude::*;

const KEYS: usize = 48;

static PUBLIC: LazyLock<Vec<PublicKey>> = LazyLock::new(|| {
    (0..KEYS).map(|i| SecretKey::from_bytes(&[i as u8 + 1; 32]).unwrap().public()).collect()
});

fn place(number: u64) -> Place {
    Place::new(Suite::Holdfast1.hash(&number.to_be_bytes()))
}

prop_compose! {
    /// Up to 48 peers of up to 8 organisations, each with whether it is absent.
    fn network()(
        rows in prop::collection::vec((0..8_usize, 1..1_000_u64, 0..4_u8), 1..KEYS)
    ) -> (View, BTreeSet<PeerId>) {
        let all: Vec<Candidate> = rows.iter().enumerate().map(|(peer, (organisation, weight, _))| {
            let peer = PeerId::new(PUBLIC[peer]);
            let organisation = OrgId::new(PUBLIC[*organisation]);
            Candidate { peer, organisation, weight: weight << 30 }
        }).collect();
        let absent = all.iter().zip(&rows).filter(|(_, row)| row.2 == 0);
        let absent = absent.map(|(candidate, _)| candidate.peer).collect();
        (View::new(0, all), absent)
    }
}

proptest! {
    /// The reference: the whole rank, without the absent, cut off.
    #[test]
    fn duty_is_the_rank_without_the_absent(
        (view, absent) in network(), number: u64, n in 0..60_usize,
    ) {
        let place = place(number);
        let rank = view.rank(&place).into_iter();
        let expected: Vec<PeerId> = rank.filter(|peer| !absent.contains(peer)).take(n).collect();
        prop_assert_eq!(&view.on_duty(&place, n, |peer| absent.contains(peer)), &expected);
        let flags: Vec<bool> =
            view.candidates().iter().map(|one| absent.contains(&one.peer)).collect();
        let mut out = vec![9; 3];
        view.on_duty_into(&place, n, &flags, &mut out);
        let found: Vec<PeerId> = out.iter().map(|index| *view.peer(*index).unwrap()).collect();
        prop_assert_eq!(found, expected);
    }

    /// What one absence moves is what that peer had to hold, to one other each; nobody else gains or loses.
    #[test]
    fn an_absence_moves_its_own_share_alone(
        (view, mut absent) in network(), number: u64, n in 1..20_usize, one: prop::sample::Index,
    ) {
        let gone = view.candidates()[one.index(view.len())].peer;
        absent.remove(&gone);
        let place = place(number);
        let duty = |absent: &BTreeSet<PeerId>| -> BTreeSet<PeerId> {
            view.on_duty(&place, n, |peer| absent.contains(peer)).into_iter().collect()
        };
        let before = duty(&absent);
        absent.insert(gone);
        let after = duty(&absent);
        let lost: Vec<_> = before.difference(&after).copied().collect();
        let gained = after.difference(&before).count();
        if before.contains(&gone) {
            prop_assert_eq!(lost, vec![gone]);
            prop_assert!(gained <= 1);
        } else {
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn indexes_are_those_of_the_candidates((view, _) in network()) {
        for (index, candidate) in (0..).zip(view.candidates()) {
            prop_assert_eq!(view.index_of(&candidate.peer), Some(index));
            prop_assert_eq!(view.peer(index), Some(&candidate.peer));
        }
        prop_assert_eq!(view.peer(view.len() as u16), None);
        prop_assert_eq!(view.index_of(&PeerId::new(PUBLIC[KEYS - 1])), None);
    }
}

#[test]
fn a_short_list_of_absences_and_a_long_one_are_taken() {
    let all = (0..3).map(|peer| Candidate {
        peer: PeerId::new(PUBLIC[peer]),
        organisation: OrgId::new(PUBLIC[peer]),
        weight: 1,
    });
    let view = View::new(0, all.collect());
    let mut out = Vec::new();
    view.on_duty_into(&place(1), 9, &[], &mut out);
    assert_eq!(out.len(), 3);
    view.on_duty_into(&place(1), 9, &[true], &mut out);
    assert_eq!(out.len(), 2);
    assert!(!out.contains(&0));
    view.on_duty_into(&place(1), 1, &[true; 90], &mut out);
    assert!(out.is_empty());
    View::new(0, Vec::new()).on_duty_into(&place(1), 3, &[true], &mut out);
    assert!(out.is_empty());
}
