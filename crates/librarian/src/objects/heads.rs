//! Signed heads and lists of devices: kept for whoever reads them, who decides which of them count.
//!
//! Anybody of the network may carry heads here, also of devices that no list names (yet). So of a branch the tips are kept, the
//! newest [`KEPT_MAX`] of those that they supersede, and apart from these as many of devices that do not count: nobody
//! crowds out a branch with keys of his own. What is dropped is removed from the store too.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crypto::{PublicKey, RecordId, Suite};
use document::Record;
use env::calls::CallError;
use env::calls::objects::{GetHeads, HeadsAnswer};
use version::head::BRANCH_BYTES_MAX;
use version::policy::Taken;
use version::{Branch, DeviceList, Head, ObjectKey, ObjectRecord, VersionError};

use super::memory::{Bringer, Memory};
use super::permissions::{Reader, unreadable};
use super::reads::{Room, too_much};
use super::{ObjectShelf, invalid};

/// Heads of a branch that are kept beside its tips: of those that count, and of the others.
const KEPT_MAX: usize = 256;
/// How far either may go over before it is brought back to it.
const SLACK: usize = 32;
/// Bytes of heads and lists of devices in memory, about: those that one organisation brings are half of it.
const BYTES_MAX: usize = 128 << 20;
/// What is around one of them in memory, about.
const AROUND_BYTES: usize = 512;
/// What one that a head supersedes takes there, about: its hash, and that it is named.
const SUPERSEDED_BYTES: usize = 96;
/// When to try again where there is no room.
const AGAIN: Duration = Duration::from_secs(60);

/// What this peer knows of branches.
pub(super) struct Heads {
    suite: Suite,
    inner: Mutex<Inner>,
}

struct Inner {
    branches: BTreeMap<(ObjectKey, String), Known>,
    devices: BTreeMap<PublicKey, (DeviceList, RecordId)>,
    /// Who brought those lists.
    devices_by: BTreeMap<PublicKey, Bringer>,
    memory: Memory,
}

/// The heads of one branch. How many are superseded, and how many others are no tips, is counted as they come and go: a branch of
/// thousands is gone through only when some of it is dropped.
struct Known {
    branch: Branch,
    object: ObjectRecord,
    met: BTreeMap<RecordId, Met>,
    next: u64,
    /// The list of devices that they count by.
    list: Option<RecordId>,
    /// How many of the heads that are heard supersede each. Heard are those that count, and those that one which is heard
    /// supersedes.
    named: BTreeMap<RecordId, u32>,
    /// Heads here that are in `named`.
    superseded: usize,
    /// Heads here that are not, and do not count: all but these and the superseded are tips.
    others: usize,
}

/// A head that is here.
struct Met {
    /// When it came, by a number that rises.
    came: u64,
    /// Whether its device counts.
    counts: bool,
    by: Bringer,
}

fn size(head: &Head) -> usize {
    let names = head.branch.name.len() + head.branch.branch.len();
    AROUND_BYTES + names + SUPERSEDED_BYTES * head.supersedes.len()
}

impl Known {
    fn new(head: &Head) -> Self {
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
        }
    }

    fn counts(&self, device: &PublicKey, devices: Option<&(DeviceList, RecordId)>) -> bool {
        *device == self.object.owner || devices.is_some_and(|(list, _)| list.names(device))
    }

    /// Lets heads count by this list of devices.
    fn count_by(&mut self, devices: Option<&(DeviceList, RecordId)>) {
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

    /// Takes a head, which counts by this list of devices; whether it is new.
    fn take(
        &mut self,
        id: RecordId,
        head: Head,
        devices: Option<&(DeviceList, RecordId)>,
        by: Bringer,
    ) -> Result<Taken, VersionError> {
        self.count_by(devices);
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

    fn is_tip(&self, id: &RecordId, met: &Met) -> bool {
        met.counts && !self.named.contains_key(id)
    }

    /// The heads with the tips first, each part newest first; how many these are.
    fn in_order(&self) -> (Vec<RecordId>, usize) {
        let place = |(id, met): (&RecordId, &Met)| (!self.is_tip(id, met), Reverse(met.came), *id);
        let mut all: Vec<(bool, Reverse<u64>, RecordId)> = self.met.iter().map(place).collect();
        all.sort_unstable();
        let tips = all.partition_point(|(is_rest, ..)| !is_rest);
        (all.into_iter().map(|(.., id)| id).collect(), tips)
    }

    /// Drops what is more than is kept; which.
    fn prune(&mut self, memory: &mut Memory) -> Vec<RecordId> {
        if self.superseded.max(self.others) <= KEPT_MAX + SLACK {
            return Vec::new();
        }
        let (ids, tips) = self.in_order();
        let (mut of_those, mut others) = (0, 0);
        let is_over = |id: &RecordId| {
            let kept = if self.named.contains_key(id) { &mut of_those } else { &mut others };
            *kept += 1;
            *kept > KEPT_MAX
        };
        let dropped: Vec<RecordId> = ids.into_iter().skip(tips).filter(is_over).collect();
        for (by, bytes) in dropped.iter().filter_map(|id| self.remove(*id)) {
            memory.give_back(by, bytes);
        }
        dropped
    }
}

impl Heads {
    pub(super) fn new(suite: Suite) -> Self {
        let inner = Inner {
            branches: BTreeMap::new(),
            devices: BTreeMap::new(),
            devices_by: BTreeMap::new(),
            memory: Memory::new(BYTES_MAX),
        };
        Self { suite, inner: Mutex::new(inner) }
    }

    /// Nothing that can panic half-way through a change runs under the lock.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a head or a list of devices as the store has it; whether it is one.
    pub(super) fn met(&self, id: RecordId, bytes: &Bytes, is_head: bool) -> bool {
        if self.suite.id(bytes) != id {
            return false;
        }
        if is_head {
            return Head::verify(bytes)
                .is_ok_and(|head| self.take(id, head, Bringer::Start).is_ok());
        }
        let taken =
            DeviceList::verify(bytes).and_then(|list| self.take_devices(list, id, Bringer::Start));
        matches!(taken, Ok(()) | Err(VersionError::OldDevices { .. }))
    }

    /// Keeps room for a head of whoever brings it, which is on its way into the store: how much, to be given back.
    ///
    /// # Errors
    /// `Busy` where that one may bring no more.
    pub(super) fn reserve(&self, head: &Head, by: Bringer) -> Result<usize, CallError> {
        let memory = &mut self.lock().memory;
        let bytes = size(head);
        if !memory.has_room(by, bytes) {
            return Err(CallError::Busy { retry_after: AGAIN });
        }
        memory.add(by, bytes);
        Ok(bytes)
    }

    pub(super) fn give_back(&self, by: Bringer, bytes: usize) {
        self.lock().memory.give_back(by, bytes);
    }

    /// Takes a proven head; which ones it crowded out.
    ///
    /// # Errors
    /// [`VersionError::Full`] where the branch has as many tips as are looked at.
    pub(super) fn take(
        &self,
        id: RecordId,
        head: Head,
        by: Bringer,
    ) -> Result<Vec<RecordId>, VersionError> {
        let object = head.branch.object(self.suite)?;
        let mut inner = self.lock();
        let Inner { branches, devices, memory, .. } = &mut *inner;
        let key = (object, head.branch.branch.clone());
        let known = branches.entry(key).or_insert_with(|| Known::new(&head));
        let weight = size(&head);
        if known.take(id, head, devices.get(&known.object.owner), by)? == Taken::Known {
            return Ok(Vec::new());
        }
        memory.add(by, weight);
        Ok(known.prune(memory))
    }

    /// Takes a proven list of devices. It counts from now on.
    ///
    /// # Errors
    /// [`VersionError::OldDevices`], [`VersionError::Full`].
    pub(super) fn take_devices(
        &self,
        list: DeviceList,
        id: RecordId,
        by: Bringer,
    ) -> Result<(), VersionError> {
        let mut inner = self.lock();
        let Inner { devices, devices_by, memory, .. } = &mut *inner;
        let known = devices.get(&list.owner).map(|(list, _)| list);
        if list.follows(known)? == Taken::Known {
            return Ok(());
        }
        let weight = |list: &DeviceList| AROUND_BYTES + 33 * list.devices.len();
        let before = devices_by.get(&list.owner).copied().zip(known.map(weight));
        // Whoever brought the one before: a list that names no more than that is always taken.
        let more = weight(&list).saturating_sub(before.map_or(0, |(_, bytes)| bytes));
        if more > 0 && !memory.has_room(by, more) {
            return Err(VersionError::Full { what: "memory of devices", max: BYTES_MAX });
        }
        memory.add(by, weight(&list));
        if let Some((bringer, bytes)) = before {
            memory.give_back(bringer, bytes);
        }
        devices_by.insert(list.owner, by);
        devices.insert(list.owner, (list, id));
        Ok(())
    }

    /// The object of a branch, as its heads say.
    fn object_of(&self, object: &ObjectKey, branch: &str) -> Option<ObjectRecord> {
        let inner = self.lock();
        let known = inner.branches.get(&(*object, branch.to_owned()))?;
        Some(known.object.clone())
    }

    /// The heads of a branch, tips first and how many these are, and the list of devices.
    fn of(
        &self,
        owner: &PublicKey,
        object: &ObjectKey,
        branch: &str,
    ) -> (Vec<RecordId>, usize, Option<RecordId>) {
        let mut inner = self.lock();
        let Inner { branches, devices, .. } = &mut *inner;
        let known = branches.get_mut(&(*object, branch.to_owned()));
        let (heads, tips) = known.map_or_else(Default::default, |known| {
            known.count_by(devices.get(&known.object.owner));
            known.in_order()
        });
        (heads, tips, devices.get(owner).map(|(_, id)| *id))
    }

    /// How many heads there are.
    pub(super) fn len(&self) -> usize {
        self.lock().branches.values().map(|known| known.met.len()).sum()
    }
}

/// A branch's name, as it is asked for.
pub(super) fn branch_name(bytes: &Bytes) -> Result<&str, CallError> {
    let name = std::str::from_utf8(bytes).ok();
    let name = name.filter(|name| (1..=BRANCH_BYTES_MAX).contains(&name.len()));
    name.ok_or_else(|| invalid(format!("a branch has a name of 1 to {BRANCH_BYTES_MAX} bytes")))
}

impl ObjectShelf {
    /// What a branch is at, to whoever may read its object.
    ///
    /// # Errors
    /// For the whole request; `Busy` where the tips are more than an answer holds.
    pub(crate) async fn heads(
        &self,
        reader: Reader,
        request: GetHeads,
    ) -> Result<HeadsAnswer, CallError> {
        let GetHeads { owner, object, branch, .. } = request;
        let branch = branch_name(&branch)?;
        self.readable_branch(&reader, &owner, &object, branch).await?;
        let (ids, tips, devices) = self.heads.of(&owner, &object, branch);
        let (mut answer, mut room) = (HeadsAnswer::default(), Room::new());
        if let Some(id) = devices {
            answer.devices = self.intact(&id).await?.filter(|list| room.take(list.bytes.len()));
        }
        for (at, id) in ids.iter().enumerate() {
            let Some(head) = self.intact(id).await? else { continue };
            if !room.take(head.bytes.len()) {
                if at < tips {
                    return Err(too_much());
                }
                break;
            }
            answer.heads.push(head);
        }
        Ok(answer)
    }

    /// Whether somebody may read a branch. An object may be known by its heads alone.
    pub(super) async fn readable_branch(
        &self,
        reader: &Reader,
        owner: &PublicKey,
        object: &ObjectKey,
        branch: &str,
    ) -> Result<(), CallError> {
        let named = match self.named(object).await? {
            Some(named) => Some((*named).clone()),
            None => self.heads.object_of(object, branch),
        };
        match named {
            Some(named) if named.owner == *owner && self.may_read(reader, &named) => Ok(()),
            None if reader.is_peer() => Ok(()),
            _ => Err(unreadable()),
        }
    }

    /// A record that stands beside versions, if its bytes are those of its id.
    pub(super) async fn intact(&self, id: &RecordId) -> Result<Option<Record>, CallError> {
        let found = match self.store.get(id).await {
            Err(store::StoreError::Damaged { .. }) => {
                self.metrics.damaged_read();
                None
            }
            found => found.map_err(|error| self.refused(error.into()))?,
        };
        let Some(record) = found else { return Ok(None) };
        if self.suite.id(&record.bytes) == *id {
            return Ok(Some(record));
        }
        self.metrics.objects.altered.inc();
        tracing::error!(%id, "a record of an object was altered on disk and is not served");
        Ok(None)
    }

    /// Removes heads that nobody needs any more. One that stays after a failure is dropped again at the next start.
    pub(super) async fn forget(&self, heads: Vec<RecordId>) {
        if heads.is_empty() {
            return;
        }
        if let Err(error) = self.store.remove(heads).await {
            tracing::warn!(%error, "superseded heads could not be removed");
        }
    }
}

#[cfg(test)]
mod tests;
