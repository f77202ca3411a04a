//! That one organisation's loss takes no stripe, whoever was away while it was stored: by real ranks.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use crypto::{OrgId, PeerId, Place, SecretKey};
use placement::{Candidate, Mend, Profile, SPARES, StripeNow, View};

fn key(kind: u8, number: usize) -> crypto::PublicKey {
    let mut bytes = [kind; 32];
    bytes[31] = number as u8 + 1;
    SecretKey::from_bytes(&bytes).unwrap().public()
}

/// A network of organisations of so many peers each.
fn network(sizes: &[usize]) -> View {
    let mut candidates = Vec::new();
    for (organisation, size) in sizes.iter().enumerate() {
        for _ in 0..*size {
            candidates.push(Candidate {
                peer: PeerId::new(key(1, candidates.len())),
                organisation: OrgId::new(key(2, organisation)),
                weight: 1 << 40,
            });
        }
    }
    View::new(0, candidates)
}

fn place(number: u8) -> Place {
    Place::new([number; 32])
}

/// A stripe at its holders, those who are away too.
#[derive(Clone)]
struct Stripe<'a> {
    view: &'a View,
    place: Place,
    k: usize,
    n: usize,
    whole: BTreeSet<(u8, PeerId)>,
    away: BTreeSet<PeerId>,
}

impl<'a> Stripe<'a> {
    /// Stored while these were away: fragment i at the i-th of the rank, or at the next spare.
    fn put(view: &'a View, place: Place, away: &[PeerId]) -> Self {
        let Profile::Stripe { k, n } = Profile::by_view(view) else { panic!("no stripes") };
        let (k, n) = (k as usize, n as usize);
        let holders = view.stripe_holders(&place, n, |peer| away.contains(peer));
        let mut spares = holders.spares.into_iter();
        let mut whole = BTreeSet::new();
        for (index, own) in (0..=u8::MAX).zip(holders.own) {
            let displaced = away.contains(&own);
            whole.insert((index, if displaced { spares.next().unwrap() } else { own }));
        }
        Self { view, place, k, n, whole, away: BTreeSet::new() }
    }

    fn plan(&self) -> Mend {
        let is_away = |peer: &PeerId| self.away.contains(peer);
        let possible = self.view.on_duty(&self.place, self.n + SPARES, is_away);
        let whole: Vec<(u8, PeerId)> =
            self.whole.iter().filter(|(_, peer)| !is_away(peer)).copied().collect();
        let (k, n, leaving) = (self.k, self.n, &BTreeSet::new());
        self.view.plan(&StripeNow { k, n, whole: &whole, possible: &possible, leaving })
    }

    /// Carries the plan out, behind which there is nothing to do.
    fn mended(&mut self) -> Mend {
        let mend = self.plan();
        for copy in &mend.surplus {
            assert!(self.whole.remove(copy));
        }
        for one in &mend.moves {
            assert!(self.whole.remove(&(one.index, one.from)));
            assert!(self.whole.insert((one.index, one.to)));
        }
        for made in &mend.make {
            assert!(self.whole.insert(*made));
        }
        assert!(self.plan().is_empty());
        mend
    }

    /// The most fragments that one organisation has.
    fn most_of_one(&self) -> usize {
        let organisation = |peer: &PeerId| {
            let index = self.view.index_of(peer).unwrap();
            self.view.candidates()[usize::from(index)].organisation
        };
        let mut shares: BTreeMap<OrgId, BTreeSet<u8>> = BTreeMap::new();
        for (index, peer) in &self.whole {
            shares.entry(organisation(peer)).or_default().insert(*index);
        }
        shares.values().map(BTreeSet::len).max().unwrap()
    }
}

/// Every one and every two of the first n away during the put, in networks where organisations have no fragment to spare.
#[test]
fn who_comes_back_takes_what_another_organisation_has_too_many_of_and_it_stays() {
    let mut beyond = 0;
    for (sizes, profile) in
        [(&[9, 9][..], (8, 16)), (&[5, 4], (4, 8)), (&[2, 2, 60], (4, 8)), (&[4, 4, 4], (4, 8))]
    {
        let view = network(sizes);
        let (k, n) = profile;
        assert_eq!(Profile::by_view(&view), Profile::Stripe { k, n });
        let most = (n - k) as usize;
        for number in 0..6 {
            let place = place(number);
            let own = view.holders(&place, n as usize);
            for (first, second) in (0..own.len()).flat_map(|a| (0..=a).map(move |b| (a, b))) {
                let away = [own[first], own[second]];
                let spares = view.stripe_holders(&place, n as usize, |peer| away.contains(peer));
                let displaced = if first == second { 1 } else { 2 };
                if spares.spares.len() < displaced {
                    continue;
                }
                let mut stripe = Stripe::put(&view, place, &away);
                let too_many = stripe.most_of_one().saturating_sub(most);
                beyond += too_many;
                let mend = stripe.mended();
                assert_eq!((mend.make.len(), mend.surplus.len()), (0, 0));
                assert_eq!(mend.moves.len(), too_many, "{sizes:?} {number} {first} {second}");
                assert!(stripe.most_of_one() <= most, "{sizes:?} {number} {first} {second}");
                // Away again, so that what they have is made again, and back with it: nothing moves.
                for _ in 0..2 {
                    stripe.away = away.into();
                    assert_eq!(stripe.mended().moves, []);
                    stripe.away.clear();
                    assert_eq!(stripe.mended().moves, []);
                    assert_eq!(stripe.whole.len(), n as usize);
                    assert!(stripe.most_of_one() <= most);
                }
            }
        }
    }
    assert!(beyond > 300, "{beyond}: hardly any organisation had too many");
}

/// All of two organisations away, or empty when they come back.
#[test]
fn organisations_that_come_back_empty_get_their_parts_of_a_stripe_back() {
    let view = network(&[2, 2, 60]);
    for number in 0..20 {
        let may_hold = view.holders(&place(number), 12);
        let is_small = |peer: &&PeerId| {
            let index = usize::from(view.index_of(peer).unwrap());
            let of = view.candidates()[index].organisation;
            view.candidates().iter().filter(|one| one.organisation == of).count() == 2
        };
        let small: Vec<PeerId> = may_hold.iter().filter(is_small).copied().collect();
        assert_eq!(small.len(), 4);
        let mut stripe = Stripe::put(&view, place(number), &[]);
        stripe.away = small.iter().copied().collect();
        assert_eq!(stripe.mended().make.len(), 4);
        // Their disks are new.
        let away = std::mem::take(&mut stripe.away);
        stripe.whole.retain(|(_, peer)| !away.contains(peer));
        assert_eq!(stripe.most_of_one(), 8);
        let mend = stripe.mended();
        assert_eq!((mend.make.len(), mend.moves.len()), (0, 4));
        assert_eq!(stripe.most_of_one(), 4);
    }
}

/// Where the others have too few peers for it nothing moves, back and forth least of all.
#[test]
fn nothing_moves_where_no_organisation_can_be_brought_to_what_may_be_lost() {
    for sizes in [&[18][..], &[14, 4], &[12, 3, 3]] {
        let view = network(sizes);
        for number in 0..20 {
            // 10/16 by name, of which the largest always has more than six.
            let place = place(number);
            let own = view.holders(&place, 16);
            let whole: BTreeSet<(u8, PeerId)> = (0..=u8::MAX).zip(own.iter().copied()).collect();
            let away = BTreeSet::new();
            let mut stripe = Stripe { view: &view, place, k: 10, n: 16, whole, away };
            assert!(stripe.most_of_one() > 6);
            assert!(stripe.plan().is_empty());
            for peer in own {
                stripe.away = [peer].into();
                assert_eq!(stripe.mended().moves, []);
                stripe.away.clear();
                assert_eq!(stripe.mended().moves, []);
            }
        }
    }
}
