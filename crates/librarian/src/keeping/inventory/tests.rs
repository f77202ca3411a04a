//! Sums, lists and maps of two peers that hold what they should, or lost some of it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use bytes::Bytes;
use crypto::{Genesis, Suite};
use document::Stripe;
use env::calls::keep::COMPARE_BITS_MAX;
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

/// A version of an object: all of one object live at one place.
fn version(object: u32, number: u32) -> Placed {
    let place = Place::from(id(object));
    Placed { id: id(number), kind: Kind::Version, place }
}

/// Two peers that hold all that is the duty of either.
fn two(count: u32) -> (PeerId, Inventory, PeerId, Inventory) {
    let (_, genesis, view) = world(6);
    let epoch = epoch(&genesis, &view, &[]);
    let (a, b) = (view.candidates()[1].peer, view.candidates()[4].peer);
    let mut inventories = [a, b].map(|own| Inventory::new(own, Arc::clone(&epoch)));
    for number in 0..count {
        let placed = entry(number);
        let duty = epoch.first(&placed.place, epoch.copies(placed.kind));
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

/// How much of a list may be asked for at once here.
const FEW: usize = 40;

/// The lists of all ranges that have no more than so many items each, found by asking for parts of those that have more.
fn listed_in_parts(inventory: &Inventory, peer: &PeerId) -> Vec<Listed> {
    let (mut ranges, mut lists) = (vec![Range::ALL], Vec::new());
    while let Some(range) = ranges.pop() {
        let listed = inventory.listed(peer, range, FEW);
        if listed.more {
            assert!(range.bits <= COMPARE_BITS_MAX, "{range:?} has no parts");
            ranges.extend((0..=u8::MAX).map(|number| range.part(number)));
        } else {
            lists.push(listed);
        }
    }
    lists
}

#[test]
fn however_many_versions_live_at_one_place_the_parts_of_it_are_small_and_are_all_of_it() {
    let (_, genesis, view) = world(3);
    let epoch = epoch(&genesis, &view, &[]);
    let [a, b] = [0, 1].map(|at| view.candidates()[at].peer);
    let mut inventory = Inventory::new(a, Arc::clone(&epoch));
    let mut all = BTreeSet::new();
    for number in 0..6_000 {
        let placed = if number % 10 == 0 { entry(number) } else { version(number % 2, number) };
        inventory.add_copy(Held { placed, copies: 3 });
        all.insert((placed.id, placed.place));
    }
    let lists = listed_in_parts(&inventory, &b);
    assert!(lists.iter().any(|one| one.range.bits > 16));
    let mut found = BTreeSet::new();
    for Listed { range, copies, .. } in &lists {
        assert!(copies.iter().all(|(id, place)| range.holds(id, place)));
        // What ranges cut is what the whole says of it.
        let sum = copies.iter().fold(0, |all: Sum, (id, _)| all.wrapping_add(copy_item(id)));
        let above = Range { prefix: range.prefix >> 8, bits: range.bits.saturating_sub(8) };
        if range.bits > 0 && (range.prefix % 16 == 0 || !copies.is_empty()) {
            assert_eq!(inventory.sums(&b, above)[range.prefix as usize % SUMS], sum, "{range:?}");
        }
        found.extend(copies.iter().copied());
    }
    assert_eq!(found, all);
    for (id, place) in &all {
        assert_eq!(inventory.place_of(id), Some(*place));
        assert!(inventory.drop_copy(id));
        assert_eq!(inventory.place_of(id), None);
    }
    assert!(inventory.sums(&b, Range::ALL).iter().all(|sum| *sum == 0));
}

#[test]
fn of_many_versions_at_one_place_each_is_drawn_as_often_as_another() {
    let (_, genesis, view) = world(3);
    let epoch = epoch(&genesis, &view, &[]);
    let [a, b] = [0, 1].map(|at| view.candidates()[at].peer);
    let mut inventory = Inventory::new(a, epoch);
    for number in 0..1_000 {
        inventory.add_copy(Held { placed: version(0, number), copies: 3 });
    }
    let part = id(0).as_bytes()[0];
    let mut drawn: BTreeMap<RecordId, u32> = BTreeMap::new();
    for number in 0_u32..4_000 {
        let random = Suite::Holdfast1.hash(&number.to_be_bytes());
        let random = u64::from_be_bytes(random[..8].try_into().unwrap());
        match inventory.sample(&b, part, random) {
            Some(Common::Copy(placed)) => *drawn.entry(placed.id).or_default() += 1,
            other => panic!("{other:?}"),
        }
    }
    // By chance a thousand draws of four have about 980 different ones if all are as likely, and those behind wide gaps come oftener.
    assert!(drawn.len() > 700, "{} of 1,000", drawn.len());
    assert!(drawn.values().all(|times| *times < 60), "{:?}", drawn.values().max());
}

#[test]
fn all_strays_are_met_however_many_live_at_one_place_and_then_again() {
    let (_, genesis, view) = world(6);
    let epoch = epoch(&genesis, &view, &[]);
    let own = view.candidates()[0].peer;
    let mut inventory = Inventory::new(own, Arc::clone(&epoch));
    let mut strays = BTreeSet::new();
    for number in 0..3_000 {
        // Of an object all versions are strays or none is.
        let placed = if number % 3 == 0 { entry(number) } else { version(number % 7, number) };
        let held = Held { placed, copies: 2 };
        inventory.add_copy(held);
        if !inventory.duty(&held).contains(&own) {
            strays.insert(placed.id);
        }
    }
    for number in 3_000..3_100 {
        inventory.add_copy(Held { placed: entry(number), copies: 1 });
    }
    assert!(strays.len() > 1_000);
    for (parts, most) in [(1, 10), (4, 256), (255, 7), (3, usize::MAX)] {
        let mut walk = Walk::default();
        for _ in 0..2 {
            let mut met = Vec::new();
            loop {
                let some = inventory.strays(&mut walk, parts, most);
                assert!(some.len() <= most);
                met.extend(some.iter().map(|held| held.placed.id));
                if walk == Walk::default() {
                    break;
                }
            }
            assert_eq!(met.len(), strays.len(), "each once: {parts} parts, {most} at a time");
            assert_eq!(met.into_iter().collect::<BTreeSet<_>>(), strays);
        }
    }
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
    assert_eq!(second.drop_fragment(lost), [shared.stripe]);
    let part = Range::ALL.part(shared.stripe.as_bytes()[0]);
    let changed = first.correct(&b, &second.listed(&a, part, usize::MAX));
    assert_eq!(changed.changed, vec![shared.stripe]);
    let holder = first.stripes[&shared.stripe].holder(shared.index);
    assert_eq!(holder, None);
    assert_eq!(first.correct(&b, &second.listed(&a, part, usize::MAX)), Corrected::default());
    let range = Range::ALL;
    assert_eq!(first.sums(&b, range), second.sums(&a, range), "both know of it now");
}

/// A page that two stripes name is here once, and lost for both.
#[test]
fn a_fragment_of_two_stripes_leaves_both_their_maps() {
    let (_, genesis, view) = world(6);
    let own = view.candidates()[1].peer;
    let mut inventory = Inventory::new(own, epoch(&genesis, &view, &[]));
    let stripes: Vec<(RecordId, Stripe)> = (1..=2).map(|number| stripe(number, 4)).collect();
    let shared = id(7);
    for ((stripe_id, stripe), index) in stripes.iter().zip([2, 3]) {
        for _ in 0..2 {
            inventory.add_fragment(shared, *stripe_id, index, |epoch, names| {
                StripeMap::by_rank(stripe_id, stripe, epoch, names)
            });
        }
        assert_eq!(inventory.stripes[stripe_id].mine, [index]);
    }
    assert_eq!(inventory.place_of(&shared), Some(Place::from(stripes[0].0)));
    assert_eq!(inventory.drop_fragment(&shared), [stripes[0].0, stripes[1].0]);
    assert!(inventory.stripes.is_empty(), "nothing of either is here");
    assert!(inventory.drop_fragment(&shared).is_empty());
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
fn what_is_paid_for_beyond_the_networks_number_is_offered_and_no_stray_and_changes_no_sum() {
    let (_, genesis, view) = world(6);
    let epoch = epoch(&genesis, &view, &[]);
    let own = view.candidates()[0].peer;
    let copies = |number: u32| [0, 5, 4][number as usize % 3];
    let (mut one, mut all) =
        (Inventory::new(own, Arc::clone(&epoch)), Inventory::new(own, Arc::clone(&epoch)));
    let mut fresh = Inventory::new(own, epoch);
    for number in 0..300 {
        one.add_copy(Held { placed: entry(number), copies: 0 });
        all.add_copy(Held { placed: entry(number), copies: 7 });
        fresh.add_copy(Held { placed: entry(number), copies: copies(number) });
    }
    let before: Vec<_> =
        view.candidates().iter().map(|other| one.sums(&other.peer, Range::ALL)).collect();
    for number in 0..400 {
        one.pay(&entry(number).place, copies(number));
    }
    let paid: BTreeMap<Place, u8> =
        (0..300).map(|number| (entry(number).place, copies(number))).collect();
    (0..PARTS).for_each(|part| all.pay_part(part, |place| paid[place]));
    for inventory in [&one, &all, &fresh] {
        // Who knows of no lease counts the same.
        let sums: Vec<_> =
            view.candidates().iter().map(|other| inventory.sums(&other.peer, Range::ALL)).collect();
        assert_eq!(sums, before);
        let walked = |step: &dyn Fn(&mut Walk) -> Vec<Held>| {
            let mut walk = Walk::default();
            let mut met = step(&mut walk);
            met.extend(step(&mut walk));
            assert_eq!(walk, Walk::default());
            met.into_iter().map(|held| (held.placed.id, held.copies)).collect::<BTreeMap<_, _>>()
        };
        let strays = walked(&|walk| inventory.strays(walk, 128, usize::MAX));
        let offers = walked(&|walk| inventory.offers(walk, 128, usize::MAX));
        for number in 0..300 {
            let held = Held { placed: entry(number), copies: copies(number) };
            let rank = view.holders(&held.placed.place, 6).iter().position(|peer| *peer == own);
            let wanted = usize::from(held.copies.max(3));
            let is_stray = rank >= Some(wanted);
            assert_eq!(strays.contains_key(&held.placed.id), is_stray, "{number}");
            let is_offered = is_stray || held.copies > 3;
            assert_eq!(offers.contains_key(&held.placed.id), is_offered, "{number}");
        }
        assert!(offers.iter().all(|(id, counted)| paid[&Place::from(*id)] == *counted));
    }
}

#[test]
fn what_is_kept_of_whose_duty_a_copy_is_is_what_the_epoch_says_however_many_copies_there_are() {
    let (_, genesis, view) = world(6);
    let (before, gone) = (epoch(&genesis, &view, &[]), view.candidates()[2].peer);
    let own = view.candidates()[0].peer;
    let absent = BTreeSet::from([own]);
    let who = Absent { leaving: absent.clone(), absent };
    let leaving = Arc::new(Epoch::new(Arc::clone(&genesis), Arc::clone(&view), who));
    let mut inventory = Inventory::new(own, Arc::clone(&before));
    // 0 is what the network says: three; with five none is kept. Of a document five would be what is paid for.
    let policed = |number: u32| Placed { kind: Kind::Version, ..entry(number) };
    let copies = |number: u32| [0, 1, 2, 5][number as usize % 4];
    for number in 0..400 {
        inventory.add_copy(Held { placed: policed(number), copies: copies(number) });
    }
    for epoch in [before, epoch(&genesis, &view, &[gone]), leaving] {
        inventory.turn(Arc::clone(&epoch));
        for candidate in view.candidates() {
            let listed = inventory.listed(&candidate.peer, Range::ALL, usize::MAX);
            let listed: BTreeSet<RecordId> = listed.copies.iter().map(|(id, _)| *id).collect();
            let offers = epoch.leaving.contains(&own);
            let wanted =
                (0..400).map(|number| Held { placed: policed(number), copies: copies(number) });
            let wanted = wanted.filter(|held| {
                let duty = inventory.duty(held);
                duty.contains(&candidate.peer) && (offers || duty.contains(&own))
            });
            assert_eq!(listed, wanted.map(|held| held.placed.id).collect());
        }
        let mut walk = Walk::default();
        let mut strays = inventory.strays(&mut walk, 128, usize::MAX);
        strays.extend(inventory.strays(&mut walk, 128, usize::MAX));
        assert_eq!(walk, Walk::default(), "all were looked at");
        for number in 0..400 {
            let held = Held { placed: policed(number), copies: copies(number) };
            let is_stray = held.copies != 1 && !inventory.duty(&held).contains(&own);
            assert_eq!(strays.contains(&held), is_stray, "{number}");
        }
    }
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
    // The last one is no fragment of this peer, whatever others say; the first is, whatever they say; and of each other one counts.
    let said = [(0, other), (1, other), (2, twice), (3, twice), (5, own)];
    keeping.settled(&stripe_id, &said, false);
    let inventory = keeping.inventory.lock().unwrap();
    let map = &inventory.as_ref().unwrap().stripes[&stripe_id];
    let names = &inventory.as_ref().unwrap().names;
    let holder = |index| names.peer(map.holder(index)?);
    let held: Vec<Option<PeerId>> = (0..6).map(holder).collect();
    let all = [own, other, twice, rank[3], rank[4], rank[5]].map(Some);
    assert_eq!(held, all);
}

/// Whoever had its certificates changed again and again used up all numbers: who is there has one again with the next turn.
#[test]
fn numbers_of_peers_that_came_and_went_are_given_anew() {
    let (_, genesis, view) = world(9);
    let (stripe_id, stripe) = stripe(7, 6);
    let own = view.holders(&Place::from(stripe_id), 1)[0];
    let gone = PeerId::new(testkit::network::key("gone", 0).public());
    let mut inventory = Inventory::new(own, epoch(&genesis, &view, &[]));
    inventory.names = Names::full(gone);
    inventory.add_fragment(stripe.fragments()[0], stripe_id, 0, |epoch, names| {
        StripeMap::by_rank(&stripe_id, &stripe, epoch, names)
    });
    inventory.with_map(&stripe_id, |map, names| map.set(1, Some(names.of(&gone))));
    let known = |inventory: &Inventory| {
        let of = |peer: &PeerId| inventory.names.known(peer).is_some();
        view.candidates().iter().filter(|candidate| of(&candidate.peer)).count()
    };
    let holder = |inventory: &Inventory, index| {
        inventory.names.peer(inventory.stripes[&stripe_id].holder(index)?)
    };
    assert_eq!((known(&inventory), inventory.names.of(&own)), (0, NOBODY));
    inventory.turn(epoch(&genesis, &view, &[]));
    assert_eq!(known(&inventory), 9);
    assert_eq!(holder(&inventory, 1), Some(gone), "a map names it still");
    inventory.with_map(&stripe_id, |map, names| map.set(1, Some(names.of(&own))));
    inventory.turn(epoch(&genesis, &view, &[]));
    assert_eq!((holder(&inventory, 1), inventory.names.known(&gone)), (Some(own), None));
}
