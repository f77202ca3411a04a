//! The heads of one branch: which of them are tips, which are superseded, and which of those stay here.
//!
//! How many are superseded, and how many others are no tips, is counted as heads come and go: a branch of thousands is gone through
//! only when it is told, or some of it is dropped.
//!
//! Superseded heads are dropped from the far end, and not in the order in which they came: what a peer brings that was away are
//! the oldest and come last, and in their stead those would go that supersede them. The far end is by **height**: that of a head
//! is the depth of its version, or one more than the greatest of those that it names and that are superseded here, whichever is more. So
//! what is here hangs together, each superseded head named by one that is here and heard, and holders of the same heads drop the same.
//!
//! Invariants:
//! 1. `named` has what the heads here name that are heard, and nothing else.
//! 2. What is here is not in `passed`.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crypto::{PublicKey, RecordId};
use version::policy::Taken;
use version::{Branch, DeviceList, Head, ObjectRecord, VersionError};

use super::passed::{Memories, Passed};
use super::size;
use crate::objects::memory::Bringer;

/// Heads of a branch that are kept beside its tips: of those that are superseded, and of the others.
pub(super) const KEPT_MAX: usize = 256;
/// How far either may go over before it is brought back to it.
pub(super) const SLACK: usize = 32;

/// The heads of one branch.
pub(super) struct Known {
    pub(super) branch: Branch,
    pub(super) object: ObjectRecord,
    pub(super) met: BTreeMap<RecordId, Met>,
    next: u64,
    /// The list of devices that they count by.
    list: Option<RecordId>,
    /// How many of the heads that are heard supersede each. Heard are those that count, and those that one which is heard
    /// supersedes.
    pub(super) named: BTreeMap<RecordId, u32>,
    /// Heads here that are in `named`.
    superseded: usize,
    /// Heads here that are not, and do not count: all but these and the superseded are tips.
    others: usize,
    /// Heads that were here, or were named by such, and are superseded for good.
    pub(super) passed: Passed,
}

/// A head that is here.
pub(super) struct Met {
    /// When it came, by a number that rises.
    came: u64,
    /// Whether its device counts.
    counts: bool,
    by: Bringer,
}

/// The heads of a branch: tips and others newest first, and the superseded highest first.
#[derive(Default)]
pub(super) struct InOrder {
    pub(super) tips: Vec<RecordId>,
    pub(super) superseded: Vec<RecordId>,
    pub(super) others: Vec<RecordId>,
}

impl Known {
    pub(super) fn new(head: &Head) -> Self {
        let name = head.branch.clone();
        let object = ObjectRecord {
            network: name.network,
            owner: name.owner,
            name: Bytes::copy_from_slice(&name.name),
        };
        Self {
            branch: Branch::new(name),
            object,
            met: BTreeMap::new(),
            next: 0,
            list: None,
            named: BTreeMap::new(),
            superseded: 0,
            others: 0,
            passed: Passed::default(),
        }
    }

    pub(super) fn counts(
        &self,
        device: &PublicKey,
        devices: Option<&(DeviceList, RecordId)>,
    ) -> bool {
        *device == self.object.owner || devices.is_some_and(|(list, _)| list.names(device))
    }

    /// Lets heads count by this list of devices.
    pub(super) fn count_by(
        &mut self,
        devices: Option<&(DeviceList, RecordId)>,
        memory: &mut Memories,
    ) {
        let list = devices.map(|(_, id)| *id);
        if std::mem::replace(&mut self.list, list) == list {
            return;
        }
        let other = |(id, head): &(&RecordId, &Head)| {
            let counts = self.counts(&head.device, devices);
            self.met.get(id).is_some_and(|met| met.counts != counts)
        };
        let changed: Vec<RecordId> =
            self.branch.records().filter(other).map(|(id, _)| *id).collect();
        // What a tip superseded is back when its device counts no more, through those that are gone too.
        let was_tip = |id: &RecordId| {
            self.met.get(id).is_some_and(|met| met.counts) && !self.named.contains_key(id)
        };
        if changed.iter().any(was_tip) {
            self.passed.clear(&mut memory.passed);
        }
        for id in changed {
            let Some(met) = self.met.get_mut(&id) else { continue };
            met.counts = !met.counts;
            match (self.named.contains_key(&id), met.counts) {
                // It is heard either way.
                (true, _) => {}
                (false, true) => {
                    self.others -= 1;
                    self.hear(id);
                }
                (false, false) => {
                    self.others += 1;
                    self.unhear(id);
                }
            }
        }
    }

    /// Whether a head is here, and one that is heard supersedes it.
    pub(super) fn is_superseded(&self, id: &RecordId) -> bool {
        self.met.contains_key(id) && self.named.contains_key(id)
    }

    /// A head is heard from now on: what it supersedes is superseded.
    fn hear(&mut self, id: RecordId) {
        let mut heard = vec![id];
        while let Some(head) = heard.pop().and_then(|id| self.branch.get(&id)) {
            for id in &head.supersedes {
                let times = self.named.entry(*id).or_default();
                *times += 1;
                if *times == 1
                    && let Some(met) = self.met.get(id)
                {
                    self.superseded += 1;
                    if !met.counts {
                        self.others -= 1;
                        heard.push(*id);
                    }
                }
            }
        }
    }

    /// A head is not heard any more.
    fn unhear(&mut self, id: RecordId) {
        let mut unheard = vec![id];
        while let Some(head) = unheard.pop().and_then(|id| self.branch.get(&id)) {
            for id in &head.supersedes {
                let Entry::Occupied(mut times) = self.named.entry(*id) else { continue };
                *times.get_mut() -= 1;
                if *times.get() > 0 {
                    continue;
                }
                times.remove();
                if let Some(met) = self.met.get(id) {
                    self.superseded -= 1;
                    if !met.counts {
                        self.others += 1;
                        unheard.push(*id);
                    }
                }
            }
        }
    }

    /// Takes a head that is not in `passed`, and counts by this list of devices, by which the others do; whether it is new.
    pub(super) fn take(
        &mut self,
        id: RecordId,
        head: Head,
        devices: Option<&(DeviceList, RecordId)>,
        by: Bringer,
    ) -> Result<Taken, VersionError> {
        let counts = self.counts(&head.device, devices);
        if self.branch.take(id, head)? == Taken::Known {
            return Ok(Taken::Known);
        }
        self.met.insert(id, Met { came: self.next, counts, by });
        self.next += 1;
        let is_superseded = self.named.contains_key(&id);
        self.superseded += usize::from(is_superseded);
        self.others += usize::from(!is_superseded && !counts);
        if is_superseded || counts {
            self.hear(id);
        }
        Ok(Taken::New)
    }

    /// Forgets a head; who brought it, and the bytes that it took.
    fn remove(&mut self, id: RecordId) -> Option<(Bringer, usize)> {
        let Met { counts, by, .. } = self.met.remove(&id)?;
        let is_superseded = self.named.contains_key(&id);
        self.superseded -= usize::from(is_superseded);
        self.others -= usize::from(!is_superseded && !counts);
        if is_superseded || counts {
            self.unhear(id);
        }
        Some((by, self.branch.remove(&id).map_or(0, |head| size(&head))))
    }

    /// Drops superseded heads, the last of these first: they stay superseded, and so does what they named.
    fn pass(&mut self, mut ids: Vec<RecordId>, memory: &mut Memories, dropped: &mut Vec<RecordId>) {
        while let Some(id) = ids.pop() {
            let below = self.branch.get(&id).map(|head| head.supersedes.clone());
            let Some((by, bytes)) = self.remove(id) else { continue };
            memory.heads.give_back(by, bytes);
            self.passed.note(id, by, &mut memory.passed);
            dropped.push(id);
            self.pass_named(&below.unwrap_or_default(), by, memory, &mut ids);
        }
    }

    /// Sees to it that what a head named that is not here stays superseded: what nothing here supersedes is to go.
    fn pass_named(
        &mut self,
        below: &[RecordId],
        by: Bringer,
        memory: &mut Memories,
        to_go: &mut Vec<RecordId>,
    ) {
        for id in below {
            match (self.met.contains_key(id), self.named.contains_key(id)) {
                (true, true) => {}
                (true, false) => to_go.push(*id),
                // Without room it is not remembered, and would be a tip if it came.
                (false, _) => self.passed.note(*id, by, &mut memory.passed),
            }
        }
    }

    /// A head that is in `passed` came again: it is not taken, and what it named is superseded as it is.
    pub(super) fn pass_over(
        &mut self,
        head: &Head,
        by: Bringer,
        memory: &mut Memories,
        dropped: &mut Vec<RecordId>,
    ) {
        let mut to_go = Vec::new();
        self.pass_named(&head.supersedes, by, memory, &mut to_go);
        self.pass(to_go, memory, dropped);
    }

    /// The heights of the superseded heads here.
    fn heights(&self) -> BTreeMap<RecordId, u128> {
        let is_superseded = |id: &&RecordId| self.named.contains_key(*id);
        let mut path: Vec<RecordId> = self.met.keys().filter(is_superseded).copied().collect();
        let (mut entered, mut heights) = (BTreeSet::new(), BTreeMap::<RecordId, u128>::new());
        while let Some(id) = path.last().copied() {
            let Some(head) = self.branch.get(&id) else {
                path.pop();
                continue;
            };
            if entered.insert(id) {
                // Those that it names first; ids are hashes, so no head names itself through others.
                path.extend(head.supersedes.iter().filter(|below| !entered.contains(*below)));
                continue;
            }
            path.pop();
            let below = head.supersedes.iter().filter_map(|below| heights.get(below)).max();
            let least = below.map_or(0, |below| below + 1);
            heights.insert(id, least.max(u128::from(head.version.l)));
        }
        heights
    }

    /// The heads in the order in which they are told.
    pub(super) fn in_order(&self) -> InOrder {
        let heights = self.heights();
        let (mut tips, mut superseded, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (id, met) in &self.met {
            match (heights.get(id), met.counts) {
                (Some(height), _) => superseded.push((Reverse(*height), *id)),
                (None, true) => tips.push((Reverse(met.came), *id)),
                (None, false) => others.push((Reverse(met.came), *id)),
            }
        }
        tips.sort_unstable();
        superseded.sort_unstable();
        others.sort_unstable();
        InOrder {
            tips: tips.into_iter().map(|(_, id)| id).collect(),
            superseded: superseded.into_iter().map(|(_, id)| id).collect(),
            others: others.into_iter().map(|(_, id)| id).collect(),
        }
    }

    /// Drops what is more than is kept; `others_too`, of those that do not count as well.
    pub(super) fn prune(
        &mut self,
        others_too: bool,
        memory: &mut Memories,
        dropped: &mut Vec<RecordId>,
    ) {
        let others = if others_too { self.others } else { 0 };
        if self.superseded.max(others) <= KEPT_MAX + SLACK {
            return;
        }
        let InOrder { superseded, others, .. } = self.in_order();
        let far = superseded.into_iter().skip(KEPT_MAX).collect();
        self.pass(far, memory, dropped);
        for id in others.into_iter().skip(KEPT_MAX).filter(|_| others_too) {
            if let Some((by, bytes)) = self.remove(id) {
                memory.heads.give_back(by, bytes);
                dropped.push(id);
            }
        }
    }
}
