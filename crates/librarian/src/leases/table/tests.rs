//! The table beside a reference that keeps everything in lists and counts it anew each time.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use crypto::lease::{self, Leaf, Terms};
use crypto::{ClientKey, Genesis, OrgId, Organisation, Pass, SecretKey, Suite, Tier};
use proptest::prelude::*;

use super::*;

const NOW: u64 = 1_700_000_000;
/// Without a quota, from a client.
const FREE: Within = Within { quota: u64::MAX, by: By::Client, organisations: 1 };

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

fn genesis() -> Genesis {
    let organisation = |byte: u8| Organisation {
        key: OrgId::new(secret(byte).public()),
        name: format!("organisation {byte}"),
    };
    let organisations = vec![organisation(1), organisation(2), organisation(3), organisation(4)];
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

fn place(number: u8) -> Place {
    Place::new([number; 32])
}

/// A lease of an organisation over some places, and where its pass is kept.
fn lease(by: u8, leaves: &[Leaf], until: u64) -> (Checked, RecordId) {
    lease_of(4, by, leaves, until)
}

fn lease_of(client: u8, by: u8, leaves: &[Leaf], until: u64) -> (Checked, RecordId) {
    lease_for(3, (client, by), leaves, until)
}

/// One that pays for so many holders.
fn lease_for(
    copies: u32,
    (client, by): (u8, u8),
    leaves: &[Leaf],
    until: u64,
) -> (Checked, RecordId) {
    let network = genesis().network();
    let pass = Pass {
        client: ClientKey::new(secret(client).public()),
        organisation: OrgId::new(secret(by).public()),
        tier: Tier::Known,
        quota: 0,
        from: NOW,
        until: NOW + 100,
    };
    let pass = pass.sign(&secret(by), &network);
    let terms = Terms { redundancy: copies, from: NOW, until };
    let shown = lease::sign(leaves, terms, &pass, &secret(client), &network).unwrap();
    let checked = Checked::verify(&shown.lease, &shown.pass, &genesis()).unwrap();
    (checked, lease::pass_id(&shown.pass))
}

fn leaf(number: u8, bytes: u64) -> Leaf {
    Leaf { place: place(number), bytes }
}

fn frame(number: u8) -> RecordId {
    RecordId::new([number; 32])
}

fn none(_: &Place) -> bool {
    false
}

/// Admits and commits.
fn take(table: &mut Table, (lease, pass): &(Checked, RecordId), leaves: &[Leaf], number: u8) {
    let admitted = table.admit(lease, *pass, leaves, FREE, none).unwrap();
    table.commit(&admitted, frame(number));
}

#[test]
fn a_place_is_dropped_when_its_last_lease_ends() {
    let mut table = Table::default();
    let (short, long) = (lease(1, &[leaf(1, 10)], NOW + 50), lease(2, &[leaf(1, 12)], NOW + 90));
    take(&mut table, &short, &[leaf(1, 10)], 1);
    take(&mut table, &long, &[leaf(1, 12)], 2);
    assert_eq!(table.due(NOW + 50 + CLOCK_SKEW_S - 1, 9), []);
    assert_eq!(table.due(NOW + 50 + CLOCK_SKEW_S, 9), [short.0.id]);
    let ended = table.end(&short.0.id).unwrap();
    assert_eq!((ended.places.len(), ended.frames.as_slice()), (0, [frame(1), short.1].as_slice()));
    assert!(table.covers(&place(1)));
    let ended = table.end(&long.0.id).unwrap();
    assert_eq!(ended.places, [(place(1), None)]);
    assert!(!table.covers(&place(1)) && table.is_dropping(&place(1)));
    // While it is being dropped it takes no lease, nor does its pass.
    let again = table.admit(&short.0, short.1, &[leaf(1, 10)], FREE, none);
    assert!(matches!(again, Err(Refusal::Busy(_))));
    table.dropped(&ended);
    assert!(!table.is_dropping(&place(1)));
    assert_eq!(table.counts(), (0, 0, 0));
}

#[test]
fn the_most_copies_that_are_paid_for_count_and_each_change_is_told_once() {
    let mut table = Table::default();
    assert_eq!(table.other_copies(), OtherCopies::Many, "nobody looked yet");
    let at =
        |numbers: &[u8]| OtherCopies::At(numbers.iter().map(|number| place(*number)).collect());
    let leaves = [leaf(1, 10), leaf(2, 10)];
    let three = lease(1, &leaves, NOW + 50);
    take(&mut table, &three, &leaves, 1);
    assert_eq!((table.copies(&place(1)), table.copies(&place(9))), (3, 0));
    assert_eq!(table.other_copies(), at(&[]), "who stores a new record asks for it");
    // Of one place more, for a while.
    let five = lease_for(5, (4, 2), &leaves[..1], NOW + 40);
    take(&mut table, &five, &leaves[..1], 2);
    assert_eq!((table.copies(&place(1)), table.copies(&place(2))), (5, 3));
    assert_eq!(table.other_copies(), at(&[1]));
    assert_eq!(table.other_copies(), at(&[]));
    // Fewer than that change nothing, neither when they come nor when they go.
    let two = lease_for(2, (5, 2), &leaves, NOW + 30);
    take(&mut table, &two, &leaves, 3);
    let ended = table.end(&two.0.id).unwrap();
    table.dropped(&ended);
    assert_eq!(table.other_copies(), at(&[]));
    let ended = table.end(&five.0.id).unwrap();
    table.dropped(&ended);
    assert_eq!((table.copies(&place(1)), table.other_copies()), (3, at(&[1])));
    // What goes with its last lease is no change. Of what stays without one, no lease says how many.
    let ended = table.end(&three.0.id).unwrap();
    table.dropped(&ended);
    assert_eq!(table.other_copies(), at(&[]));
    let admitted = table.admit(&three.0, three.1, &leaves, FREE, |_| true).unwrap();
    table.commit(&admitted, frame(4));
    assert_eq!((table.copies(&place(1)), table.other_copies()), (0, at(&[])));
    let ended = table.end(&three.0.id).unwrap();
    table.dropped(&ended);
    assert_eq!((table.copies(&place(1)), table.other_copies()), (0, at(&[])));
}

#[test]
fn more_places_whose_copies_changed_than_are_remembered_are_all_looked_at() {
    let mut table = Table::default();
    let _ = table.other_copies();
    for number in 1..=OTHER_MAX as u8 + 1 {
        let leaves = [leaf(number, 10)];
        take(&mut table, &lease(1, &leaves, NOW + 50), &leaves, number);
        take(&mut table, &lease_for(5, (4, 2), &leaves, NOW + 50), &leaves, 100 + number);
    }
    assert_eq!(table.other_copies(), OtherCopies::Many);
}

#[test]
fn a_record_that_came_without_a_lease_stays() {
    let mut table = Table::default();
    let one = lease(1, &[leaf(1, 10)], NOW + 50);
    let admitted = table.admit(&one.0, one.1, &[leaf(1, 10)], FREE, |_| true).unwrap();
    table.commit(&admitted, frame(1));
    // The mark goes on to those that come later, since the first lease's record goes with it.
    let other = lease(2, &[leaf(1, 10)], NOW + 60);
    take(&mut table, &other, &[leaf(1, 10)], 2);
    assert!(table.is_unleased(&place(1)));
    assert_eq!(table.end(&one.0.id).unwrap().places, []);
    assert!(table.is_unleased(&place(1)));
    assert_eq!(table.end(&other.0.id).unwrap().places, []);
}

#[test]
fn who_pays_for_what_others_hold_now_pays_no_more_here() {
    let mut table = Table::default();
    let leaves = [leaf(1, 10), leaf(2, 20)];
    let one = lease(1, &leaves, NOW + 50);
    take(&mut table, &one, &leaves, 1);
    let account = |table: &Table| table.account(&OrgId::new(secret(1).public()));
    assert_eq!(account(&table), 30);
    let gone = table.let_go(&[place(1), place(9)]);
    assert_eq!(gone, LetGo::default(), "its frame is the other place's too");
    assert_eq!((account(&table), table.covers(&place(1))), (20, false));
    // It may come back, with its lease.
    let admitted = table.admit(&one.0, one.1, &leaves[..1], FREE, none).unwrap();
    assert_eq!(table.let_go(&[place(1)]), LetGo::default(), "it is being written");
    assert_eq!(account(&table), 30);
    table.commit(&admitted, frame(2));
    assert_eq!(table.let_go(&[place(1), place(2)]).frames, [frame(1), frame(2), one.1]);
    assert_eq!((account(&table), table.counts()), (0, (0, 0, 0)));
}

#[test]
fn a_pass_that_goes_with_what_others_hold_takes_no_lease_until_it_is_gone() {
    let mut table = Table::default();
    let leaves = [leaf(1, 10)];
    let one = lease(1, &leaves, NOW + 50);
    take(&mut table, &one, &leaves, 1);
    let gone = table.let_go(&[place(1)]);
    assert_eq!((gone.frames, gone.passes.as_slice()), (vec![frame(1), one.1], &[one.1][..]));
    // Taken now, it would rely on a record of the pass that is about to be removed.
    let others = [leaf(2, 10)];
    let other = lease(1, &others, NOW + 60);
    assert_eq!(other.1, one.1, "of the same pass");
    let early = table.admit(&other.0, other.1, &others, FREE, none);
    assert_eq!(early.unwrap_err(), Refusal::Busy(place(2)));
    table.gone(&gone.passes);
    take(&mut table, &other, &others, 2);
}

#[test]
fn a_quota_is_an_organisations_and_counts_a_place_once() {
    let mut table = Table::default();
    let leaves = [leaf(1, 60), leaf(2, 30)];
    let first = lease(1, &leaves, NOW + 50);
    let admitted =
        table.admit(&first.0, first.1, &leaves, Within { quota: 100, ..FREE }, none).unwrap();
    table.commit(&admitted, frame(1));
    let longer = lease(1, &leaves, NOW + 90);
    let renewed =
        table.admit(&longer.0, longer.1, &leaves, Within { quota: 100, ..FREE }, none).unwrap();
    table.commit(&renewed, frame(2));
    assert_eq!(table.account(&first.0.organisation), 90, "a renewal costs nothing");
    let more = lease(1, &[leaf(3, 11)], NOW + 50);
    let refused = table.admit(&more.0, more.1, &[leaf(3, 11)], Within { quota: 100, ..FREE }, none);
    assert!(matches!(refused, Err(Refusal::Quota { used: 90, quota: 100, more: 11, .. })));
    let other = lease(2, &[leaf(3, 11)], NOW + 50);
    take(&mut table, &other, &[leaf(3, 11)], 3);
    assert_eq!(table.account(&other.0.organisation), 11);
    let fits = lease(1, &[leaf(3, 10)], NOW + 50);
    let admitted =
        table.admit(&fits.0, fits.1, &[leaf(3, 10)], Within { quota: 100, ..FREE }, none).unwrap();
    table.withdraw(&admitted);
    assert_eq!(table.account(&first.0.organisation), 90, "what was not written costs nothing");
    assert_eq!(table.counts().0, 3);
}

#[test]
fn nothing_is_dropped_while_a_lease_for_it_is_being_written() {
    let mut table = Table::default();
    let (old, new) = (lease(1, &[leaf(1, 10)], NOW + 50), lease(1, &[leaf(1, 10)], NOW + 90));
    take(&mut table, &old, &[leaf(1, 10)], 1);
    let pending = table.admit(&new.0, new.1, &[leaf(1, 10)], FREE, none).unwrap();
    assert_eq!(table.end(&old.0.id).unwrap().places, []);
    assert!(table.end(&new.0.id).is_none(), "it is not durable yet");
    let twice = table.admit(&new.0, new.1, &[leaf(1, 10)], FREE, none);
    assert!(matches!(twice, Err(Refusal::Busy(_))));
    table.commit(&pending, frame(2));
    assert_eq!(table.frames_at(&place(1), None, 9), [(new.0.id, frame(2), new.1)]);
}

#[test]
fn what_was_forgotten_is_not_taken_again_until_its_tombstone_goes() {
    let mut table = Table::default();
    let one = lease(1, &[leaf(1, 10)], NOW + 50);
    let word = Bytes::from_static(b"word");
    assert!(table.bury(one.0.id, word.clone(), 5, NOW + 50, frame(7)).is_empty());
    let refused = table.admit(&one.0, one.1, &[leaf(1, 10)], FREE, none);
    assert_eq!(refused.unwrap_err(), Refusal::Forgotten(one.0.id));
    assert_eq!(table.tombstones_since(5, None, 9), (vec![word], None));
    assert_eq!(table.tombstones_since(6, None, 9), (vec![], None));
    assert!(table.unbury(NOW + 49).is_empty());
    assert_eq!(table.unbury(NOW + 50), [frame(7)]);
    take(&mut table, &one, &[leaf(1, 10)], 1);
}

#[test]
fn words_are_told_to_the_last_though_more_than_are_told_at_once_came_in_one_moment() {
    let mut table = Table::default();
    let word = |number: u8| Bytes::copy_from_slice(&[number]);
    for number in 0..200u8 {
        let lease = LeaseId::new([number; 32]);
        table.bury(lease, word(number), 5 + u64::from(number / 150), NOW + 50, frame(number));
    }
    let (mut from, mut told) = ((5, None), Vec::new());
    loop {
        let (words, next) = table.tombstones_since(from.0, from.1, 7);
        told.extend(words);
        let Some((heard_ms, lease)) = next else { break };
        assert!((heard_ms, Some(lease)) > from, "it goes on");
        from = (heard_ms, Some(lease));
    }
    assert_eq!(told, (0..200).map(word).collect::<Vec<_>>());
}

#[test]
fn of_a_client_the_two_longest_leases_hold_a_place_whatever_came_first() {
    let all: Vec<_> = (0..5).map(|at| lease(1, &[leaf(1, 10)], NOW + 50 + at)).collect();
    let ids = |table: &Table| {
        let frames = table.frames_at(&place(1), None, 9);
        frames.into_iter().map(|(lease, ..)| lease).collect::<Vec<_>>()
    };
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]] {
        let (mut table, mut again) = (Table::default(), Table::default());
        for at in order {
            take(&mut table, &all[at], &[leaf(1, 10)], at as u8);
            again.restore(&all[at].0, all[at].1, &[(leaf(1, 10), false, None)], frame(at as u8));
        }
        assert_eq!(ids(&table), [all[4].0.id, all[3].0.id], "never refused");
        assert_eq!(ids(&again), ids(&table));
        assert_eq!(table.account(&all[0].0.organisation), 10);
        // What gave way is removed by the next sweep, and drops nothing.
        for lease in table.due(NOW, 9) {
            assert_eq!(table.end(&lease).unwrap().places, []);
        }
        assert_eq!(table.counts(), (2, 1, 0));
        assert_eq!(table.due(NOW, 9), []);
    }
}

#[test]
fn an_organisations_clients_cannot_take_the_room_of_others_at_a_place() {
    let mut table = Table::default();
    let leaves = [leaf(1, 10)];
    for client in 10..10 + ORGANISATION_LEASES_MAX as u8 {
        take(&mut table, &lease_of(client, 1, &leaves, NOW + 50), &leaves, client);
    }
    let over = lease_of(30, 1, &leaves, NOW + 50);
    let refused = table.admit(&over.0, over.1, &leaves, FREE, none).unwrap_err();
    assert!(matches!(refused, Refusal::Crowded { .. }), "{refused}");
    // What a peer passes on lives under the others.
    let skipped =
        table.admit(&over.0, over.1, &leaves, Within { by: By::Peer, ..FREE }, none).unwrap();
    assert_eq!(skipped.new, []);
    // Who has one there renews it, and another organisation has its own room.
    for (number, one) in
        [lease_of(10, 1, &leaves, NOW + 90), lease_of(30, 2, &leaves, NOW + 50)].iter().enumerate()
    {
        let admitted = table.admit(&one.0, one.1, &leaves, FREE, none).unwrap();
        assert_eq!(admitted.new.len(), 1);
        table.commit(&admitted, frame(100 + number as u8));
    }
    // Of more than are told, the asker's own and each organisation's longest come first.
    let client = secret(17).public();
    let told = table.frames_at(&place(1), Some(&client), 3);
    let told: Vec<ClientKey> =
        told.iter().map(|(lease, ..)| table.client(lease).unwrap()).collect();
    let expected = [17, 10, 30].map(|client| ClientKey::new(secret(client).public()));
    assert_eq!(told, expected);
}

#[test]
fn a_full_table_takes_whoever_renews_and_nobody_else() {
    let mut table = Table::default();
    let leaves: Vec<Leaf> = (0..PAYERS_MAX as u8).map(|at| leaf(at, 1)).collect();
    take(&mut table, &lease(1, &leaves, NOW + 50), &leaves, 1);
    let renewed = lease(1, &leaves, NOW + 60);
    take(&mut table, &renewed, &leaves, 2);
    let more = lease_of(5, 1, &leaves, NOW + 50);
    let refused = table.admit(&more.0, more.1, &leaves[..1], FREE, none);
    assert_eq!(refused.unwrap_err(), Refusal::Full);
    // The first of the two pays for them still.
    let ended = table.end(&renewed.0.id).unwrap();
    table.dropped(&ended);
    let refused = table.admit(&more.0, more.1, &leaves[..1], FREE, none);
    assert_eq!(refused.unwrap_err(), Refusal::Full);
    let ended = table.end(&lease(1, &leaves, NOW + 50).0.id).unwrap();
    table.dropped(&ended);
    take(&mut table, &more, &leaves[..1], 3);
}

#[test]
fn a_client_of_two_organisations_counts_for_each_while_it_pays_there() {
    let mut table = Table::default();
    let leaves = [leaf(1, 10)];
    let (one, two) = (lease_of(5, 1, &leaves, NOW + 50), lease_of(5, 2, &leaves, NOW + 60));
    take(&mut table, &one, &leaves, 1);
    take(&mut table, &two, &leaves, 2);
    assert_eq!(table.payers, 2);
    for (left, lease) in [(1, one.0.id), (0, two.0.id)] {
        let ended = table.end(&lease).unwrap();
        table.dropped(&ended);
        assert_eq!(table.payers, left);
    }
    assert!(table.accounts.is_empty());
}

#[test]
fn one_organisation_does_not_fill_the_table() {
    let of_four = Within { organisations: 4, ..FREE };
    let mut table = Table::default();
    let leaves: Vec<Leaf> = (0..PAYERS_MAX as u8).map(|at| leaf(at, 1)).collect();
    // Half is shared, an eighth for each of four: three of those are the others'.
    let own = PAYERS_MAX - 3 * (PAYERS_MAX / 8);
    let greedy = lease_of(5, 1, &leaves, NOW + 50);
    let refused = table.admit(&greedy.0, greedy.1, &leaves[..own + 1], of_four, none);
    assert_eq!(refused.unwrap_err(), Refusal::Full);
    take(&mut table, &greedy, &leaves[..own], 1);
    let again = lease_of(5, 1, &leaves, NOW + 60);
    take(&mut table, &again, &leaves[..own], 2);
    for (number, by) in [2, 3, 4].into_iter().enumerate() {
        let mine = lease_of(20 + by, by, &leaves, NOW + 50);
        let within = &leaves[..PAYERS_MAX / 8];
        let admitted = table.admit(&mine.0, mine.1, within, of_four, none).unwrap();
        table.commit(&admitted, frame(10 + number as u8));
        let refused = table.admit(&mine.0, mine.1, &leaves[..within.len() + 1], of_four, none);
        assert_eq!(refused.unwrap_err(), Refusal::Full);
    }
    assert_eq!(table.payers, PAYERS_MAX);
}

#[test]
fn what_is_being_written_is_not_dropped_and_takes_no_lease_half_way() {
    let mut table = Table::default();
    let one = lease(1, &[leaf(1, 10)], NOW + 50);
    let wanted = |paid, stays| [Wanted { place: place(1), paid, stays }];
    let bare = table.begin(&wanted(false, true)).unwrap();
    let early = table.admit(&one.0, one.1, &[leaf(1, 10)], FREE, none);
    assert_eq!(early.unwrap_err(), Refusal::Busy(place(1)), "it is not known yet how it came");
    table.written(&bare);
    take(&mut table, &one, &[leaf(1, 10)], 1);
    // Who reckons with its staying is refused, who passes on is not; and nothing is dropped meanwhile.
    let alone = table.begin(&wanted(false, true));
    assert_eq!(alone.unwrap_err(), Refusal::Alone(place(1)));
    for paid in [true, false] {
        let writes = table.begin(&wanted(paid, false)).unwrap();
        assert_eq!(table.end(&one.0.id), None);
        table.written(&writes);
    }
    let ended = table.end(&one.0.id).unwrap();
    assert_eq!(table.begin(&wanted(true, false)).unwrap_err(), Refusal::Busy(place(1)));
    table.dropped(&ended);
    table.begin(&wanted(false, true)).unwrap();
}

#[test]
fn who_was_charged_is_known_to_the_end_of_the_last_lease() {
    let mut table = Table::default();
    let client = ClientKey::new(secret(4).public());
    let charge = |bytes| Charge { client, bytes };
    let (short, long) = (lease(1, &[leaf(1, 10)], NOW + 50), lease(2, &[leaf(1, 12)], NOW + 90));
    take(&mut table, &short, &[leaf(1, 10)], 1);
    table.charged(&place(1), charge(7));
    table.charged(&place(1), charge(2));
    take(&mut table, &long, &[leaf(1, 12)], 2);
    assert_eq!(table.end(&short.0.id).unwrap().places, []);
    assert_eq!(table.end(&long.0.id).unwrap().places, [(place(1), Some(charge(9)))]);
    // Read back from several records the most counts, and not the sum.
    let mut again = Table::default();
    again.restore(&short.0, short.1, &[(leaf(1, 10), false, Some(charge(7)))], frame(1));
    again.restore(&long.0, long.1, &[(leaf(1, 12), false, Some(charge(9)))], frame(2));
    assert_eq!(again.charge_at(&place(1)), Some(charge(9)));
}

/// One step of the model.
#[derive(Clone, Debug)]
enum Step {
    Take { lease: usize, places: Vec<u8>, fails: bool },
    End { lease: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let take = (0..6usize, proptest::collection::vec(0..4u8, 1..4), proptest::bool::weighted(0.2));
    let step = prop_oneof![
        3 => take.prop_map(|(lease, places, fails)| Step::Take { lease, places, fails }),
        1 => (0..6usize).prop_map(|lease| Step::End { lease }),
    ];
    proptest::collection::vec(step, 1..40)
}

/// What the reference knows: of each lease the places that it holds.
type Reference = BTreeMap<usize, BTreeMap<u8, u64>>;

/// Leaves that were committed together, and where.
type Frame = (RecordId, Vec<(Leaf, bool, Option<Charge>)>);

fn bytes_of(lease: usize, place: u8) -> u64 {
    10 + lease as u64 * 3 + u64::from(place)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Accounts, covered places and what each end drops are those of the reference, over any history, and after reading
    /// back what was committed.
    #[test]
    fn the_table_is_the_reference(steps in steps()) {
        let by = |lease: usize| 1 + (lease % 2) as u8;
        let all: Vec<_> = (0..6usize).map(|number| {
            let leaves: Vec<Leaf> = (0..4).map(|at| leaf(at, bytes_of(number, at))).collect();
            lease_of(10 + number as u8, by(number), &leaves, NOW + 50 + number as u64)
        }).collect();
        let mut table = Table::default();
        let mut reference = Reference::new();
        let mut kept: BTreeMap<usize, Vec<Frame>> = BTreeMap::new();
        let mut frames = 0u8;
        for step in steps {
            match step {
                Step::Take { lease, places, fails } => {
                    let leaves: Vec<Leaf> =
                        places.iter().map(|at| leaf(*at, bytes_of(lease, *at))).collect();
                    let (checked, pass) = &all[lease];
                    let admitted = table.admit(checked, *pass, &leaves, FREE, none).unwrap();
                    if fails {
                        table.withdraw(&admitted);
                        continue;
                    }
                    frames += 1;
                    table.commit(&admitted, frame(frames));
                    let of = reference.entry(lease).or_default();
                    of.extend(places.iter().map(|at| (*at, bytes_of(lease, *at))));
                    if !admitted.new.is_empty() {
                        let new = admitted.new.iter().map(|leaf| (*leaf, false, None)).collect();
                        kept.entry(lease).or_default().push((frame(frames), new));
                    }
                }
                Step::End { lease } => {
                    let ended = table.end(&all[lease].0.id);
                    let gone = reference.remove(&lease);
                    kept.remove(&lease);
                    prop_assert_eq!(ended.is_some(), gone.is_some());
                    let Some(ended) = ended else { continue };
                    let held = |at: &u8| reference.values().any(|of| of.contains_key(at));
                    let bare: Vec<Place> =
                        gone.unwrap().keys().filter(|at| !held(at)).map(|at| place(*at)).collect();
                    let dropped = ended.places.iter().map(|(place, _)| *place);
                    prop_assert_eq!(dropped.collect::<Vec<_>>(), bare);
                    table.dropped(&ended);
                }
            }
            agree(&table, &reference, &all)?;
        }
        let mut again = Table::default();
        for (lease, frames) in &kept {
            for (frame, leaves) in frames {
                again.restore(&all[*lease].0, all[*lease].1, leaves, *frame);
            }
        }
        agree(&again, &reference, &all)?;
    }
}

fn agree(
    table: &Table,
    reference: &Reference,
    all: &[(Checked, RecordId)],
) -> Result<(), TestCaseError> {
    for at in 0..4u8 {
        let held = reference.values().any(|of| of.contains_key(&at));
        prop_assert_eq!(table.covers(&place(at)), held);
    }
    for by in [0usize, 1] {
        let paid = (0..4u8).map(|at| {
            let own = reference.iter().filter(|(lease, _)| **lease % 2 == by);
            own.filter_map(|(_, of)| of.get(&at)).max().copied().unwrap_or(0)
        });
        prop_assert_eq!(table.account(&all[by].0.organisation), paid.sum::<u64>());
    }
    let held = reference.values().filter(|of| !of.is_empty()).count();
    prop_assert_eq!(table.counts().0, held);
    Ok(())
}

#[test]
fn what_is_dropped_since_others_hold_it_meets_no_write() {
    let mut table = Table::default();
    let leaves = [leaf(1, 10)];
    take(&mut table, &lease(1, &leaves, NOW + 50), &leaves, 1);
    let at = |n| [Wanted { place: place(n), paid: false, stays: false }];
    let begun = table.begin(&at(2)).unwrap();
    assert_eq!(table.keep_off(&[place(1), place(2)]), [place(1)], "the other is being written");
    assert_eq!(table.keep_off(&[place(1)]), [], "one is enough");
    assert!(matches!(table.begin(&at(1)), Err(Refusal::Busy(_))));
    let other = lease(2, &leaves, NOW + 60);
    assert!(matches!(table.admit(&other.0, other.1, &leaves, FREE, none), Err(Refusal::Busy(_))));
    table.let_go(&[place(1)]);
    table.let_on(&[place(1)]);
    table.written(&begun);
    assert!(table.admit(&other.0, other.1, &leaves, FREE, none).is_ok());
    assert!(table.begin(&at(1)).is_ok());
}

/// Whatever a table leaves out for those that it has, it keeps the place for, and for nobody else.
#[test]
fn a_place_is_kept_for_whoever_pays_or_would_be_left_out_there() {
    let leaf = Leaf { place: place(1), bytes: 10 };
    let of = |client, by, until| Payer::of(&lease_of(client, by, &[leaf], until).0);
    let mine = of(4, 1, NOW + 100);
    let kept = |theirs: &[Payer]| mine.is_kept_by(theirs);
    assert!(!kept(&[]));
    assert!(kept(&[mine]));
    // A client's later ones, as many as are kept of it.
    let later = [of(4, 1, NOW + 200), of(4, 1, NOW + 300)];
    assert!(!kept(&later[..1]) && kept(&later));
    assert!(!kept(&[of(4, 1, NOW + 50), later[0]]));
    // Those of its organisation, as many as are kept of it, and none of its own.
    let others: Vec<Payer> = (5..5 + 8).map(|client| of(client, 1, NOW + 10)).collect();
    assert!(!kept(&others[..7]) && kept(&others));
    assert!(!kept(&[&others[..], &later[..1]].concat()));
    let strangers: Vec<Payer> = (5..5 + 8).map(|client| of(client, 2, NOW + 10)).collect();
    assert!(!kept(&strangers));

    let mut table = Table::default();
    assert_eq!(table.payers(&place(1)), Payers { ones: Vec::new(), unleased: true });
    let (checked, pass) = lease(1, &[leaf], NOW + 100);
    for bare in [false, true] {
        let admitted = table.admit(&checked, pass, &[leaf], FREE, |_| bare).unwrap();
        let payers = Payers { ones: vec![Payer::of(&checked)], unleased: bare };
        assert_eq!(table.payers(&place(1)), payers);
        table.withdraw(&admitted);
    }
}
