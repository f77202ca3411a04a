//! Sums, lists and maps of two peers that hold what they should, or lost some of it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use bytes::Bytes;
use crypto::{Genesis, Suite};
use document::Stripe;
use placement::{Candidate, View};
use testkit::network::{Community, community};

use super::super::epoch::Absent;
use super::super::{Keeping, KeepingOptions};
use super::*;

fn world(peers: usize) -> (Community, Arc<Genesis>, Arc<View>) {
    let community = community(3, peers);
    let genesis = community.genesis.clone();
    let candidates = community.members.iter().map(|member| Candidate {
        peer: PeerId::new(member.key.public()),
        organisation: member.organisation,
        weight: 1 << 40,
    });
    let view = Arc::new(View::new(0, candidates.collect()));
    (community, genesis, view)
}

fn epoch(genesis: &Arc<Genesis>, view: &Arc<View>, absent: &[PeerId]) -> Arc<Epoch> {
    let who = Absent { absent: absent.iter().copied().collect(), leaving: BTreeSet::new() };
    Arc::new(Epoch::new(Arc::clone(genesis), Arc::clone(view), who))
}

fn id(number: u32) -> RecordId {
    Suite::Holdfast1.id(&number.to_be_bytes())
}

fn entry(number: u32) -> Placed {
    let id = id(number);
    Placed { id, kind: Kind::Entry, place: Place::from(id) }
}

fn stripe(number: u32, n: u32) -> (RecordId, Stripe) {
    let fragments: Vec<RecordId> = (0..n).map(|index| id(number * 1000 + index)).collect();
    let stripe = Stripe::new(vec![100; 2], fragments).expect("a stripe");
    let bytes: Bytes = document::Document::Stripe(stripe.clone()).encode();
    (Suite::Holdfast1.id(&bytes), stripe)
}

/// Two peers that hold all that is the duty of either.
fn two(count: u32) -> (PeerId, Inventory, PeerId, Inventory) {
    let (_, genesis, view) = world(6);
    let epoch = epoch(&genesis, &view, &[]);
    let (a, b) = (view.candidates()[1].peer, view.candidates()[4].peer);
    let mut inventories = [a, b].map(|own| Inventory::new(own, Arc::clone(&epoch)));
    for number in 0..count {
        let placed = entry(number);
        let duty = epoch.duty(&placed.place, placed.kind);
        for inventory in &mut inventories {
            if duty.contains(&inventory.own) {
                inventory.add_copy(Held { placed, copies: 0 });
            }
        }
        let (stripe_id, stripe) = stripe(number, 4);
        let holders = view.holders(&Place::from(stripe_id), 4);
        for inventory in &mut inventories {
            let Some(index) = holders.iter().position(|peer| *peer == inventory.own) else {
                continue;
            };
            let fragment = stripe.fragments()[index];
            inventory.add_fragment(fragment, stripe_id, index as u8, |epoch, names| {
                StripeMap::by_rank(&stripe_id, &stripe, epoch, names)
            });
        }
    }
    let [first, second] = inventories;
    (a, first, b, second)
}

#[test]
fn two_peers_that_hold_what_they_should_have_the_same_sums_at_every_depth() {
    let (a, first, b, second) = two(500);
    for range in [Range::ALL, Range::ALL.part(7), Range::ALL.part(7).part(200)] {
        assert_eq!(first.sums(&b, range), second.sums(&a, range));
    }
    assert!(first.sums(&b, Range::ALL).iter().any(|sum| *sum != 0));
}

#[test]
fn deeper_sums_add_up_to_the_one_above_them() {
    let (_, first, b, _) = two(500);
    let top = first.sums(&b, Range::ALL);
    for number in [0, 7, 255] {
        let below = first.sums(&b, Range::ALL.part(number));
        let sum = below.iter().fold(0, |all: Sum, one| all.wrapping_add(*one));
        assert_eq!(sum, top[usize::from(number)]);
    }
}

#[test]
fn what_one_lost_shows_in_its_part_alone_and_the_list_names_it() {
    let (a, mut first, b, second) = two(500);
    let common = second.listed(&a, Range::ALL, usize::MAX).copies;
    let (lost, place) = common[3];
    assert!(first.drop_copy(&lost));
    let (mine, theirs) = (first.sums(&b, Range::ALL), second.sums(&a, Range::ALL));
    let differ: Vec<usize> = (0..SUMS).filter(|at| mine[*at] != theirs[*at]).collect();
    assert_eq!(differ, vec![usize::from(place.as_bytes()[0])]);
    let part = Range::ALL.part(place.as_bytes()[0]);
    let (mine, theirs) = (first.listed(&b, part, usize::MAX), second.listed(&a, part, usize::MAX));
    assert!(theirs.copies.contains(&(lost, place)) && !mine.copies.contains(&(lost, place)));
    first.add_copy(Held { placed: Placed { id: lost, kind: Kind::Entry, place }, copies: 0 });
    first.add_copy(Held { placed: Placed { id: lost, kind: Kind::Entry, place }, copies: 0 });
    assert_eq!(first.sums(&b, Range::ALL), second.sums(&a, Range::ALL), "counted once");
}

#[test]
fn a_lost_fragment_leaves_the_map_when_its_holder_lists_no_more_of_the_stripe() {
    let (a, mut first, b, mut second) = two(200);
    let all = first.listed(&b, Range::ALL, usize::MAX);
    let theirs = second.listed(&a, Range::ALL, usize::MAX);
    let shared = theirs
        .fragments
        .iter()
        .find(|fragment| all.fragments.iter().any(|mine| mine.stripe == fragment.stripe));
    let shared = *shared.expect("a stripe of which both hold a fragment");
    let fragments: Vec<(RecordId, (RecordId, u8))> =
        second.fragments.iter().map(|(id, at)| (*id, *at)).collect();
    let (lost, _) = fragments.iter().find(|(_, at)| *at == (shared.stripe, shared.index)).unwrap();
    assert!(second.drop_fragment(lost).is_some());
    let part = Range::ALL.part(shared.stripe.as_bytes()[0]);
    let changed = first.correct(&b, &second.listed(&a, part, usize::MAX));
    assert_eq!(changed.changed, vec![shared.stripe]);
    let holder = first.stripes[&shared.stripe].holder(shared.index);
    assert_eq!(holder, None);
    assert_eq!(first.correct(&b, &second.listed(&a, part, usize::MAX)), Corrected::default());
    let range = Range::ALL;
    assert_eq!(first.sums(&b, range), second.sums(&a, range), "both know of it now");
}

#[test]
fn turning_to_another_epoch_counts_as_if_all_were_added_under_it() {
    let (_, genesis, view) = world(6);
    let (before, gone) = (epoch(&genesis, &view, &[]), view.candidates()[2].peer);
    let after = epoch(&genesis, &view, &[gone]);
    let own = view.candidates()[0].peer;
    let mut turned = Inventory::new(own, before);
    let mut fresh = Inventory::new(own, Arc::clone(&after));
    for number in 0..300 {
        turned.add_copy(Held { placed: entry(number), copies: 0 });
        fresh.add_copy(Held { placed: entry(number), copies: 0 });
    }
    turned.turn(after);
    for candidate in view.candidates() {
        let peer = candidate.peer;
        assert_eq!(turned.sums(&peer, Range::ALL), fresh.sums(&peer, Range::ALL));
    }
    assert!(turned.sums(&gone, Range::ALL).iter().all(|sum| *sum == 0));
}

#[test]
fn a_list_is_cut_where_it_is_too_long_and_says_so() {
    let (_, first, b, _) = two(500);
    let whole = first.listed(&b, Range::ALL, usize::MAX);
    assert!(!whole.more);
    let cut = first.listed(&b, Range::ALL, 10);
    assert!(cut.more && cut.copies.len() + cut.fragments.len() <= 10);
}

#[test]
fn of_a_stripe_others_take_what_all_said_and_nothing_about_themselves() {
    let (_, genesis, view) = world(9);
    let (stripe_id, stripe) = stripe(7, 6);
    let rank = view.holders(&Place::from(stripe_id), 9);
    let (own, other, twice) = (rank[0], rank[6], rank[7]);
    let mut inventory = Inventory::new(own, epoch(&genesis, &view, &[]));
    inventory.add_fragment(stripe.fragments()[0], stripe_id, 0, |epoch, names| {
        StripeMap::by_rank(&stripe_id, &stripe, epoch, names)
    });
    let keeping = Keeping::new(KeepingOptions::default(), Arc::default());
    *keeping.inventory.lock().unwrap() = Some(inventory);
    // The last one is no fragment of this peer, whatever others say; the first is, whatever they say.
    let said = [(0, other), (1, other), (2, twice), (3, twice), (5, own)];
    keeping.settled(&stripe_id, &said, false);
    let inventory = keeping.inventory.lock().unwrap();
    let map = &inventory.as_ref().unwrap().stripes[&stripe_id];
    let names = &inventory.as_ref().unwrap().names;
    let holder = |index| names.peer(map.holder(index)?);
    let held: Vec<Option<PeerId>> = (0..6).map(holder).collect();
    let all = [own, other, twice, twice, rank[4], rank[5]].map(Some);
    assert_eq!(held, all);
}
