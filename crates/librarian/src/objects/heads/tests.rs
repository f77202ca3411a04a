#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Instant;

use crypto::{NetworkId, OrgId, SecretKey};
use version::head::{BranchName, RECORDS_MAX};
use version::{Hint, VersionId};

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

/// A branch of which everything is worked out anew each time.
struct Plain {
    heads: BTreeMap<RecordId, (u64, Head)>,
}

impl Plain {
    fn branch(&self) -> Branch {
        let mut branch = Branch::new(head(device(1), []).branch);
        for (id, (_, head)) in &self.heads {
            branch.take(*id, head.clone()).unwrap();
        }
        branch
    }

    /// The heads with the tips first, each part newest first, and how many these are.
    fn in_order(&self, devices: &DeviceList) -> (Vec<RecordId>, usize) {
        let branch = self.branch();
        let newest = |ids: &mut Vec<RecordId>| ids.sort_by_key(|id| Reverse(self.heads[id].0));
        let mut tips: Vec<RecordId> =
            branch.tips(Some(devices)).into_iter().map(|(id, _)| id).collect();
        let is_tip: BTreeSet<RecordId> = tips.iter().copied().collect();
        let rest = self.heads.keys().filter(|id| !is_tip.contains(id));
        let mut rest: Vec<RecordId> = rest.copied().collect();
        newest(&mut tips);
        newest(&mut rest);
        let count = tips.len();
        (tips.into_iter().chain(rest).collect(), count)
    }

    fn superseded(&self, counts: impl Fn(&Head) -> bool) -> BTreeSet<RecordId> {
        let valid = self.heads.values().map(|(_, head)| head).filter(|head| counts(head));
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

    fn take(&mut self, id: RecordId, came: u64, head: Head, devices: &DeviceList) {
        self.heads.insert(id, (came, head));
        let counts = |head: &Head| head.device == device(1) || devices.names(&head.device);
        let superseded = self.superseded(counts);
        let (ids, tips) = self.in_order(devices);
        let (of_those, others): (Vec<RecordId>, Vec<RecordId>) =
            ids[tips..].iter().partition(|id| superseded.contains(id) || counts(&self.heads[id].1));
        if of_those.len().max(others.len()) <= KEPT_MAX + SLACK {
            return;
        }
        for kept in [of_those, others] {
            kept.iter().skip(KEPT_MAX).for_each(|id| drop(self.heads.remove(id)));
        }
    }
}

#[test]
fn what_is_counted_as_heads_come_is_what_a_look_at_all_of_them_finds() {
    let heads = Heads::new(SUITE);
    let mut plain = Plain { heads: BTreeMap::new() };
    let lists = [&[2][..], &[2, 3], &[], &[3], &[2, 3, 4]];
    let (mut newest, mut sequence) = (list(1, lists[0]), 1);
    heads.take_devices(newest.0.clone(), newest.1, Bringer::Start).unwrap();
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let mut dropped = 0;
    for came in 0..2_000_u64 {
        // Some come before those that they supersede.
        let number = came ^ 5;
        let by = device([1, 1, 2, 2, 3, 4, 9, 9][random(8) as usize]);
        let before = (0..random(4)).map(|_| number.saturating_sub(1 + random(12)));
        let one = head(by, before.filter(|other| *other < number).collect::<Vec<_>>());
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
            assert_eq!((ids, tips), plain.in_order(&newest.0), "{came}");
            assert_eq!(said, Some(newest.1));
        }
    }
    assert!(dropped > 500, "{dropped}");
    let inner = heads.lock();
    let known = inner.branches.values().next().unwrap();
    let weight = known.branch.records().map(|(_, head)| size(head)).sum::<usize>();
    let of_list = AROUND_BYTES + 33 * newest.0.devices.len();
    assert_eq!(inner.memory.held(), weight + of_list);
    // Nothing is remembered of those that were dropped.
    let heard = |(id, head): &(&RecordId, &Head)| {
        known.named.contains_key(id) || known.counts(&head.device, Some(&newest))
    };
    let heard = known.branch.records().filter(heard);
    let named: BTreeSet<RecordId> = heard.flat_map(|(_, head)| head.supersedes.clone()).collect();
    assert!(known.named.keys().eq(named.iter()));
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
        let before = heads.lock().memory.held();
        while let Ok(bytes) = heads.reserve(&heavy(number), by) {
            heads.give_back(by, bytes);
            heads.take(id(number), heavy(number), by).unwrap();
            number += 1;
        }
        heads.lock().memory.held() - before
    };
    let (first, second) = (fill(one), fill(two));
    let about = |bytes: usize, part: usize| bytes.abs_diff(BYTES_MAX / part) < 1 << 20;
    assert!(about(first, 2) && about(second, 4), "{first}, {second}");
    // What is on its way counts too: many batches at once are no way around it.
    let mut reserved = 0;
    while let Ok(bytes) = heads.reserve(&heavy(0), Bringer::Repair) {
        reserved += bytes;
    }
    assert!(about(reserved, 8), "{reserved}: what is fetched has a share too");
    heads.give_back(Bringer::Repair, reserved);
    assert_eq!(heads.lock().memory.held(), first + second);
}
