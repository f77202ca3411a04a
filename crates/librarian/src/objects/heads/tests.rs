#![allow(clippy::unwrap_used, reason = "tests")]

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Instant;

use crypto::{NetworkId, OrgId, SecretKey};
use version::head::BranchName;
use version::{Branch, Hint, VersionId};

use super::known::{KEPT_MAX, SLACK};
use super::passed::{PASSED_BYTES, PASSED_MAX, Passed};
use super::*;

const SUITE: Suite = Suite::Holdfast1;

fn device(number: u8) -> PublicKey {
    SecretKey::from_bytes(&[number; 32]).unwrap().public()
}

/// The devices of whoever owns the branch, which is number 1.
fn list(sequence: u64, devices: &[u8]) -> (DeviceList, RecordId) {
    let devices = devices.iter().map(|number| device(*number)).collect();
    let list = DeviceList { network: NetworkId::NONE, owner: device(1), sequence, devices };
    (list, SUITE.id(&sequence.to_be_bytes()))
}

fn id(number: u64) -> RecordId {
    SUITE.id(&[b"head", &number.to_be_bytes()[..]].concat())
}

fn head(by: PublicKey, supersedes: impl IntoIterator<Item = u64>) -> Head {
    let (network, owner) = (NetworkId::NONE, device(1));
    let name = Bytes::from_static(b"report");
    let mut supersedes: Vec<RecordId> = supersedes.into_iter().map(id).collect();
    supersedes.sort_unstable();
    supersedes.dedup();
    Head {
        branch: BranchName { network, owner, name, branch: "main".to_owned() },
        device: by,
        version: VersionId { h: RecordId::new([1; 32]), l: 1, n: Hint::FIRST },
        supersedes,
        time_ms: 0,
    }
}

/// The same of a version at this depth.
fn grown(by: PublicKey, l: u64, supersedes: impl IntoIterator<Item = u64>) -> Head {
    let mut grown = head(by, supersedes);
    grown.version.l = l;
    grown
}

/// The owner's heads of a branch whose versions grow, each on the one before; the first is number 1.
fn chained(number: u64) -> Head {
    grown(device(1), number, (number > 1).then_some(number - 1))
}

/// What the branch is told to be at: its heads, and how many of them are tips.
fn told(heads: &Heads) -> (Vec<RecordId>, usize) {
    let object = head(device(1), []).branch.object(SUITE).unwrap();
    let (ids, tips, _) = heads.of(&device(1), &object, "main");
    (ids, tips)
}

/// A branch of which everything is worked out anew each time.
#[derive(Default)]
struct Plain {
    heads: BTreeMap<RecordId, (u64, Head)>,
    passed: BTreeSet<RecordId>,
    devices: Option<DeviceList>,
}

impl Plain {
    fn counts(&self, head: &Head) -> bool {
        head.counts(self.devices.as_ref())
    }

    fn superseded(&self) -> BTreeSet<RecordId> {
        let valid = self.heads.values().map(|(_, head)| head).filter(|head| self.counts(head));
        let mut next: Vec<RecordId> = valid.flat_map(|head| head.supersedes.clone()).collect();
        let mut superseded = BTreeSet::new();
        while let Some(id) = next.pop() {
            if superseded.insert(id)
                && let Some((_, head)) = self.heads.get(&id)
            {
                next.extend(&head.supersedes);
            }
        }
        superseded
    }

    fn height(&self, id: &RecordId, known: &mut BTreeMap<RecordId, u128>) -> u128 {
        if let Some(height) = known.get(id) {
            return *height;
        }
        let (_, head) = &self.heads[id];
        let mut height = u128::from(head.version.l);
        for below in head.supersedes.iter().filter(|below| self.heads.contains_key(*below)) {
            height = height.max(self.height(below, known) + 1);
        }
        known.insert(*id, height);
        height
    }

    /// Tips, superseded and other heads, in the order in which they are told.
    fn in_order(&self) -> [Vec<RecordId>; 3] {
        let superseded = self.superseded();
        let (mut tips, mut named, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (id, (_, head)) in &self.heads {
            match (superseded.contains(id), self.counts(head)) {
                (true, _) => named.push(*id),
                (false, true) => tips.push(*id),
                (false, false) => others.push(*id),
            }
        }
        let newest = |id: &RecordId| Reverse(self.heads[id].0);
        tips.sort_by_key(newest);
        others.sort_by_key(newest);
        let mut known = BTreeMap::new();
        named.sort_by_key(|id| (Reverse(self.height(id, &mut known)), *id));
        [tips, named, others]
    }

    /// What is superseded for good is not here, unless something here supersedes it too.
    fn pass(&mut self, mut ids: Vec<RecordId>) {
        while let Some(id) = ids.pop() {
            if !self.heads.contains_key(&id) {
                self.passed.insert(id);
            } else if !self.superseded().contains(&id) {
                self.drop_passed(&id, &mut ids);
            }
        }
    }

    fn drop_passed(&mut self, id: &RecordId, named: &mut Vec<RecordId>) {
        let (_, head) = self.heads.remove(id).unwrap();
        self.passed.insert(*id);
        named.extend(head.supersedes);
    }

    fn prune(&mut self) {
        let [_, superseded, others] = self.in_order();
        if superseded.len().max(others.len()) <= KEPT_MAX + SLACK {
            return;
        }
        others.iter().skip(KEPT_MAX).for_each(|id| drop(self.heads.remove(id)));
        let mut named = Vec::new();
        superseded.iter().skip(KEPT_MAX).for_each(|id| self.drop_passed(id, &mut named));
        self.pass(named);
    }

    fn take(&mut self, id: RecordId, came: u64, head: Head, devices: &DeviceList) {
        if self.devices.as_ref() != Some(devices) {
            let [tips, ..] = self.in_order();
            if tips.iter().any(|id| !self.heads[id].1.counts(Some(devices))) {
                self.passed.clear();
            }
            self.devices = Some(devices.clone());
        }
        self.prune();
        if self.passed.contains(&id) {
            return self.pass(head.supersedes);
        }
        self.heads.insert(id, (came, head));
        self.prune();
    }
}

#[test]
fn what_is_counted_as_heads_come_is_what_a_look_at_all_of_them_finds() {
    let heads = Heads::new(SUITE);
    let mut plain = Plain::default();
    let lists = [&[2][..], &[2, 3], &[], &[3], &[2, 3, 4]];
    let (mut newest, mut sequence) = (list(1, lists[0]), 1);
    heads.take_devices(newest.0.clone(), newest.1, Bringer::Start).unwrap();
    let mut random = random(7);
    let mut dropped = 0;
    for came in 0..2_000_u64 {
        // Some come before those that they supersede.
        let number = came ^ 5;
        let by = device([1, 1, 2, 2, 3, 4, 9, 9][random(8) as usize]);
        let before: Vec<u64> =
            (0..random(4)).map(|_| number.saturating_sub(1 + random(12))).collect();
        let one = head(by, before.into_iter().filter(|other| *other < number));
        if random(150) == 0 {
            sequence += 1;
            newest = list(sequence, lists[sequence as usize % lists.len()]);
            heads.take_devices(newest.0.clone(), newest.1, Bringer::Start).unwrap();
        }
        plain.take(id(number), came, one.clone(), &newest.0);
        dropped += heads.take(id(number), one, Bringer::Start).unwrap().len();
        if came % 10 == 0 || came > 1_900 {
            let object = head(device(1), []).branch.object(SUITE).unwrap();
            let (ids, tips, said) = heads.of(&device(1), &object, "main");
            let expected = plain.in_order();
            assert_eq!((&ids, tips), (&expected.concat(), expected[0].len()), "{came}");
            assert_eq!(said, Some(newest.1));
            // Whoever is told these finds the same tips.
            let mut branch = Branch::new(head(device(1), []).branch);
            for id in &ids {
                branch.take(*id, plain.heads[id].1.clone()).unwrap();
            }
            let found = branch.tips(Some(&newest.0)).into_iter().map(|(id, _)| id);
            let found: BTreeSet<RecordId> = found.collect();
            assert!(found.iter().eq(&ids[..tips].iter().copied().collect::<BTreeSet<_>>()));
        }
    }
    assert!(dropped > 500, "{dropped}");
    let inner = heads.lock();
    let known = inner.branches.values().next().unwrap();
    assert_eq!(known.passed.ids(), &plain.passed);
    let weight = known.branch.records().map(|(_, head)| size(head)).sum::<usize>();
    let of_list = AROUND_BYTES + 33 * newest.0.devices.len();
    let of_passed = PASSED_BYTES * plain.passed.len();
    assert_eq!(inner.memory.heads.held(), weight + of_list);
    assert_eq!(inner.memory.passed.held(), of_passed);
    // Nothing else is remembered of those that were dropped.
    let heard = |(id, head): &(&RecordId, &Head)| {
        known.named.contains_key(id) || known.counts(&head.device, Some(&newest))
    };
    let heard = known.branch.records().filter(heard);
    let named: BTreeSet<RecordId> = heard.flat_map(|(_, head)| head.supersedes.clone()).collect();
    assert!(known.named.keys().eq(named.iter()));
}

/// Numbers below what is asked for, the same in each run.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    }
}

fn in_any_order(mut numbers: Vec<u64>, random: &mut impl FnMut(u64) -> u64) -> Vec<u64> {
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, random(at as u64 + 1) as usize);
    }
    numbers
}

#[test]
fn heads_that_were_superseded_and_dropped_are_no_tips_when_they_come_again() {
    let heads = Heads::new(SUITE);
    let take = |number| heads.take(id(number), chained(number), Bringer::Repair).unwrap();
    let dropped: Vec<RecordId> = (1..=300).flat_map(take).collect();
    assert_eq!(dropped, (1..=33).map(id).collect::<Vec<_>>(), "those furthest from the tip");
    let rest: Vec<RecordId> = (34..=300).rev().map(id).collect();
    assert_eq!(told(&heads), (rest.clone(), 1));
    let held = heads.lock().memory.heads.held();
    let place = chained(1).branch.place(SUITE).unwrap();
    let mut random = random(3);
    for number in in_any_order((1..=33).collect(), &mut random) {
        assert!(heads.is_passed(&id(number), &place));
        heads.pass_over(&id(number), &chained(number), Bringer::Repair);
        assert_eq!(heads.dropped(), []);
        // Where it is in the store by now, it is removed again.
        assert_eq!(take(number), [id(number)]);
        assert_eq!(told(&heads), (rest.clone(), 1));
    }
    assert_eq!(heads.lock().memory.heads.held(), held);
    // Of another branch nobody is kept out by that, nor anything that was not superseded.
    let other = BranchName { branch: "other".to_owned(), ..chained(1).branch };
    assert!(!heads.is_passed(&id(1), &other.place(SUITE).unwrap()));
    assert!(!heads.is_passed(&id(300), &place) && !heads.is_passed(&id(301), &place));
}

#[test]
fn a_holder_that_was_away_comes_to_what_the_others_have_in_whatever_order_it_fetches() {
    let mut random = random(11);
    for turn in 0..8 {
        let heads = Heads::new(SUITE);
        let take = |number| drop(heads.take(id(number), chained(number), Bringer::Repair).unwrap());
        (1..=50).for_each(take);
        in_any_order((51..=345).collect(), &mut random).into_iter().for_each(take);
        let (ids, tips) = told(&heads);
        assert_eq!(tips, 1, "{turn}");
        assert!(ids.len() > KEPT_MAX, "{turn}: {}", ids.len());
        assert!((1..=345).rev().map(id).take(ids.len()).eq(ids), "{turn}");
    }
}

/// As after an undo: the versions from then on are less deep than those before.
#[test]
fn what_is_kept_of_a_branch_hangs_together_also_where_its_versions_were_undone() {
    let undone = |number: u64| {
        let before = (number > 1).then_some(number - 1);
        grown(device(1), if number > 200 { number - 190 } else { number }, before)
    };
    let heads = Heads::new(SUITE);
    let take = |number| drop(heads.take(id(number), undone(number), Bringer::Repair).unwrap());
    (1..=345).for_each(take);
    let rest: Vec<RecordId> = (67..=345).rev().map(id).collect();
    assert_eq!(told(&heads), (rest, 1));
    let mut random = random(5);
    for _ in 0..8 {
        let heads = Heads::new(SUITE);
        let take = |number| drop(heads.take(id(number), undone(number), Bringer::Repair).unwrap());
        (1..=50).for_each(take);
        in_any_order((51..=345).collect(), &mut random).into_iter().for_each(take);
        let (ids, tips) = told(&heads);
        assert_eq!(tips, 1);
        assert!((1..=345).rev().map(id).take(ids.len()).eq(ids));
    }
}

#[test]
fn what_a_tip_superseded_is_back_when_its_device_is_revoked() {
    let heads = Heads::new(SUITE);
    let (both, revoked) = (list(1, &[2]), list(2, &[]));
    heads.take_devices(both.0, both.1, Bringer::Start).unwrap();
    for number in 1..=300 {
        heads.take(id(number), chained(number), Bringer::Start).unwrap();
    }
    heads.take(id(301), grown(device(2), 301, [300]), Bringer::Start).unwrap();
    let place = chained(1).branch.place(SUITE).unwrap();
    assert!(heads.is_passed(&id(1), &place));
    heads.take_devices(revoked.0, revoked.1, Bringer::Start).unwrap();
    assert!(!heads.is_passed(&id(1), &place), "it may have been superseded by that one alone");
    let (ids, tips) = told(&heads);
    assert_eq!((ids[0], tips), (id(300), 1));
}

#[test]
fn a_full_branch_is_busy_until_the_device_that_filled_it_is_revoked() {
    let heads = Heads::new(SUITE);
    let (listed, revoked) = (list(1, &[2]), list(2, &[]));
    heads.take_devices(listed.0, listed.1, Bringer::Start).unwrap();
    let by = Bringer::Organisation(OrgId::new(device(7)));
    let thiefs = || head(device(2), []);
    for number in 0..RECORDS_MAX as u64 {
        let bytes = heads.reserve(&id(number), &thiefs(), by).unwrap();
        heads.give_back(by, bytes);
        assert_eq!(heads.take(id(number), thiefs(), by).unwrap(), []);
    }
    let (new, own) = (id(10_000), head(device(1), []));
    assert_eq!(heads.reserve(&new, &own, by), Err(busy()));
    assert_eq!(heads.reserve(&id(0), &thiefs(), by), Ok(0), "what is here is here");
    // One that was on its way already is not acknowledged either.
    let late = heads.take(new, own.clone(), by);
    assert!(matches!(late, Err(VersionError::Full { .. })));
    heads.take_devices(revoked.0, revoked.1, Bringer::Start).unwrap();
    let bytes = heads.reserve(&new, &own, by).unwrap();
    heads.give_back(by, bytes);
    let dropped = heads.take(new, own, by).unwrap();
    assert_eq!(dropped.len(), RECORDS_MAX - KEPT_MAX);
    let (ids, tips) = told(&heads);
    assert_eq!((ids[0], tips, ids.len()), (new, 1, 1 + KEPT_MAX));
}

/// Compaction writes records again behind others.
#[test]
fn what_a_start_reads_is_dropped_by_what_it_knows_at_its_end() {
    let heads = Heads::new(SUITE);
    heads.begin();
    let by = |number: u64| grown(device(2), number, (number > 1).then_some(number - 1));
    for number in (1..=300).rev() {
        heads.taken(id(number), by(number), Bringer::Start).unwrap();
    }
    assert_eq!(heads.len(), 300, "nobody knows yet whether the device counts");
    let (listed, of_list) = list(1, &[2]);
    heads.take_devices(listed, of_list, Bringer::Start).unwrap();
    assert_eq!(heads.settle(), (1..=43).map(id).collect::<Vec<_>>());
    assert_eq!(told(&heads), ((44..=300).rev().map(id).collect(), 1));
}

#[test]
fn so_many_dropped_heads_of_a_branch_are_remembered_and_no_more() {
    let (mut passed, mut memory) = (Passed::default(), Memory::new(BYTES_MAX));
    for number in 0..=PASSED_MAX as u64 {
        passed.note(id(number), Bringer::Repair, &mut memory);
        passed.note(id(number), Bringer::Start, &mut memory);
    }
    assert!(!passed.contains(&id(0)) && passed.contains(&id(1)));
    assert_eq!((passed.ids().len(), memory.held()), (PASSED_MAX, PASSED_MAX * PASSED_BYTES));
    passed.clear(&mut memory);
    assert_eq!((passed.ids().len(), memory.held()), (0, 0));
}

/// Thousands of tips, and then a batch of another's heads: none of them is a look at all that there are.
#[test]
fn heads_of_a_branch_of_thousands_cost_little() {
    let heads = Heads::new(SUITE);
    let (owner, stranger) = (device(1), device(9));
    let began = Instant::now();
    for number in 0..3_600 {
        assert_eq!(heads.take(id(number), head(owner, []), Bringer::Repair).unwrap(), []);
    }
    let mut dropped = 0;
    for number in 10_000..11_024 {
        dropped += heads.take(id(number), head(stranger, []), Bringer::Start).unwrap().len();
    }
    // Before, it took tens of seconds.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!((1_024 - KEPT_MAX - SLACK..=1_024 - KEPT_MAX).contains(&dropped), "{dropped}");
    assert_eq!(heads.len(), 3_600 + 1_024 - dropped);
    assert!(heads.len() < RECORDS_MAX);
}

/// Branches cost nothing: of what one organisation's clients carry here another's next head is not refused.
#[test]
fn heads_that_one_organisation_brings_leave_room_for_anothers() {
    let heads = Heads::new(SUITE);
    let [one, two] = [1, 2].map(|n| Bringer::Organisation(OrgId::new(device(n))));
    let heavy = |number: u64| {
        let mut heavy = head(device(9), (0..1_000).map(|other| number * 1_000 + other));
        heavy.branch.branch = format!("b{number}");
        heavy
    };
    let mut number = 0;
    let mut fill = |by: Bringer| {
        let before = heads.lock().memory.heads.held();
        while let Ok(bytes) = heads.reserve(&id(number), &heavy(number), by) {
            heads.give_back(by, bytes);
            heads.take(id(number), heavy(number), by).unwrap();
            number += 1;
        }
        heads.lock().memory.heads.held() - before
    };
    let (first, second) = (fill(one), fill(two));
    let about = |bytes: usize, part: usize| bytes.abs_diff(BYTES_MAX / part) < 1 << 20;
    assert!(about(first, 2) && about(second, 4), "{first}, {second}");
    // What is on its way counts too: many batches at once are no way around it.
    let mut reserved = 0;
    while let Ok(bytes) = heads.reserve(&id(number), &heavy(number), Bringer::Repair) {
        reserved += bytes;
    }
    assert!(about(reserved, 8), "{reserved}: what is fetched has a share too");
    heads.give_back(Bringer::Repair, reserved);
    assert_eq!(heads.lock().memory.heads.held(), first + second);
}
