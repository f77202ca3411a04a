//! Signed heads and lists of devices: kept for whoever reads them, who decides which of them count.
//!
//! Anybody of the network may carry heads here, also of devices that no list names (yet). So of a branch the tips are kept, of
//! those that they supersede the 256 nearest to them ([`Known`]), and apart from these the newest 256 of devices that do not count:
//! nobody crowds out a branch with keys of his own. What is dropped is removed from the store too. What was superseded stays so:
//! such a head that comes again is as good as here, and not kept ([`passed`]).
//!
//! Limits: 4,096 dropped heads of a branch are remembered, and until the peer ends, for its log has none of them any more. An older
//! one that somebody sends again is a tip here; and so is the last that a peer had which was away while all others dropped
//! what took its place. Whoever reads the branch finds by the histories of versions that such a tip is of the past, unless
//! what it was at was undone since; and the next update supersedes it.

mod known;
mod passed;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crypto::{Place, PublicKey, RecordId, Suite};
use document::Record;
use env::calls::CallError;
use env::calls::objects::{GetHeads, HeadsAnswer};
use store::PUT_RECORDS_MAX;
use version::head::{BRANCH_BYTES_MAX, RECORDS_MAX, heads_place};
use version::policy::Taken;
use version::{DeviceList, Head, ObjectKey, ObjectRecord, VersionError};

use self::known::{InOrder, Known};
use self::passed::Memories;
use super::memory::{Bringer, Memory};
use super::permissions::{Reader, unreadable};
use super::proving::refusal;
use super::reads::{Room, too_much};
use super::{ObjectShelf, invalid};

/// Bytes of heads and lists of devices in memory, about: those that one organisation brings are half of it.
const BYTES_MAX: usize = 128 << 20;
/// The same of the ids of heads that are gone.
const PASSED_BYTES_MAX: usize = BYTES_MAX / 4;
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
    /// By the places of their heads.
    branches: BTreeMap<Place, Known>,
    devices: BTreeMap<PublicKey, (DeviceList, RecordId)>,
    /// Who brought those lists.
    devices_by: BTreeMap<PublicKey, Bringer>,
    memory: Memories,
    /// Heads that were dropped and are in the store still.
    dropped: Vec<RecordId>,
    /// Whether the store is being read. Only at its end is it known what supersedes what: nothing is dropped before, unless a
    /// branch is full.
    reading: bool,
    /// Whether a list of devices could not be read: what does not count may be a device's whose list that was, and stays.
    keeps_others: bool,
}

fn size(head: &Head) -> usize {
    let names = head.branch.name.len() + head.branch.branch.len();
    AROUND_BYTES + names + SUPERSEDED_BYTES * head.supersedes.len()
}

impl Heads {
    pub(super) fn new(suite: Suite) -> Self {
        let inner = Inner {
            branches: BTreeMap::new(),
            devices: BTreeMap::new(),
            devices_by: BTreeMap::new(),
            memory: Memories {
                heads: Memory::new(BYTES_MAX),
                passed: Memory::new(PASSED_BYTES_MAX),
            },
            dropped: Vec::new(),
            reading: false,
            keeps_others: false,
        };
        Self { suite, inner: Mutex::new(inner) }
    }

    /// Nothing that can panic half-way through a change runs under the lock.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store is read from now on, in whatever order its records are.
    pub(super) fn begin(&self) {
        self.lock().reading = true;
    }

    /// Lists of devices that the store has could not be read.
    pub(super) fn lost_lists(&self) {
        self.lock().keeps_others = true;
    }

    /// All that the store has was met; what of it is more than is kept.
    pub(super) fn settle(&self) -> Vec<RecordId> {
        let mut inner = self.lock();
        let Inner { branches, devices, memory, dropped, reading, keeps_others, .. } = &mut *inner;
        *reading = false;
        for known in branches.values_mut() {
            known.count_by(devices.get(&known.object.owner), memory);
            known.prune(!*keeps_others, memory, dropped);
        }
        std::mem::take(dropped)
    }

    /// Takes a head or a list of devices as the store has it; whether it is one.
    pub(super) fn met(&self, id: RecordId, bytes: &Bytes, is_head: bool) -> bool {
        if self.suite.id(bytes) != id {
            return false;
        }
        if is_head {
            return Head::verify(bytes)
                .is_ok_and(|head| self.taken(id, head, Bringer::Start).is_ok());
        }
        let taken =
            DeviceList::verify(bytes).and_then(|list| self.take_devices(list, id, Bringer::Start));
        matches!(taken, Ok(()) | Err(VersionError::OldDevices { .. }))
    }

    /// Whether a head at this place was superseded, and is not kept for that reason.
    pub(super) fn is_passed(&self, id: &RecordId, place: &Place) -> bool {
        let mut inner = self.lock();
        let Inner { branches, devices, memory, .. } = &mut *inner;
        branches.get_mut(place).is_some_and(|known| {
            known.count_by(devices.get(&known.object.owner), memory);
            known.passed.contains(id)
        })
    }

    /// Whether a head at this place is here and another one here supersedes it.
    pub(super) fn is_superseded(&self, id: &RecordId, place: &Place) -> bool {
        let mut inner = self.lock();
        let Inner { branches, devices, memory, .. } = &mut *inner;
        branches.get_mut(place).is_some_and(|known| {
            known.count_by(devices.get(&known.object.owner), memory);
            known.is_superseded(id)
        })
    }

    /// Such a head came again.
    pub(super) fn pass_over(&self, id: &RecordId, head: &Head, by: Bringer) {
        let Ok(place) = head.branch.place(self.suite) else { return };
        let mut inner = self.lock();
        let Inner { branches, memory, dropped, .. } = &mut *inner;
        let known = branches.get_mut(&place).filter(|known| known.passed.contains(id));
        if let Some(known) = known {
            known.pass_over(head, by, memory, dropped);
        }
    }

    /// Keeps room for a head of whoever brings it, which is on its way into the store: how much, to be given back.
    ///
    /// # Errors
    /// `Busy` where that one may bring no more, or the branch has as many heads as are looked at.
    pub(super) fn reserve(
        &self,
        id: &RecordId,
        head: &Head,
        by: Bringer,
    ) -> Result<usize, CallError> {
        let place = head.branch.place(self.suite).map_err(|error| refusal(&error))?;
        let mut inner = self.lock();
        let Inner { branches, devices, memory, dropped, keeps_others, .. } = &mut *inner;
        if let Some(known) = branches.get_mut(&place) {
            // What counts no more by a newer list is in nobody's way.
            known.count_by(devices.get(&known.object.owner), memory);
            known.prune(!*keeps_others, memory, dropped);
            if known.met.contains_key(id) {
                return Ok(0);
            }
            if known.met.len() >= RECORDS_MAX {
                return Err(busy());
            }
        }
        let bytes = size(head);
        if !memory.heads.has_room(by, bytes) {
            return Err(busy());
        }
        memory.heads.add(by, bytes);
        Ok(bytes)
    }

    pub(super) fn give_back(&self, by: Bringer, bytes: usize) {
        self.lock().memory.heads.give_back(by, bytes);
    }

    /// Takes a proven head that is in the store; which ones are to be removed from there, itself among them where it is not kept.
    ///
    /// # Errors
    /// [`VersionError::Full`] where the branch has as many tips as are looked at.
    pub(super) fn take(
        &self,
        id: RecordId,
        head: Head,
        by: Bringer,
    ) -> Result<Vec<RecordId>, VersionError> {
        self.taken(id, head, by)?;
        Ok(self.dropped())
    }

    /// Heads that were dropped since the last call, and are to be removed from the store.
    pub(super) fn dropped(&self) -> Vec<RecordId> {
        std::mem::take(&mut self.lock().dropped)
    }

    fn taken(&self, id: RecordId, head: Head, by: Bringer) -> Result<(), VersionError> {
        let place = head.branch.place(self.suite)?;
        let mut inner = self.lock();
        let Inner { branches, devices, memory, dropped, reading, keeps_others, .. } = &mut *inner;
        let known = branches.entry(place).or_insert_with(|| Known::new(&head));
        let devices = devices.get(&known.object.owner);
        known.count_by(devices, memory);
        if !*reading || known.met.len() >= RECORDS_MAX {
            known.prune(!*keeps_others, memory, dropped);
        }
        if known.passed.contains(&id) {
            known.pass_over(&head, by, memory, dropped);
            dropped.push(id);
            return Ok(());
        }
        let weight = size(&head);
        // It may have been dropped, and not be removed yet.
        dropped.retain(|pending| *pending != id);
        if known.take(id, head, devices, by)? == Taken::New {
            memory.heads.add(by, weight);
            if !*reading {
                known.prune(!*keeps_others, memory, dropped);
            }
        }
        Ok(())
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
        if more > 0 && !memory.heads.has_room(by, more) {
            return Err(VersionError::Full { what: "memory of devices", max: BYTES_MAX });
        }
        memory.heads.add(by, weight(&list));
        if let Some((bringer, bytes)) = before {
            memory.heads.give_back(bringer, bytes);
        }
        devices_by.insert(list.owner, by);
        devices.insert(list.owner, (list, id));
        Ok(())
    }

    /// The object of a branch, as its heads say.
    fn object_of(&self, object: &ObjectKey, branch: &str) -> Option<ObjectRecord> {
        let place = heads_place(self.suite, object, branch);
        self.lock().branches.get(&place).map(|known| known.object.clone())
    }

    /// The heads of a branch, tips first and how many these are, and the list of devices.
    fn of(
        &self,
        owner: &PublicKey,
        object: &ObjectKey,
        branch: &str,
    ) -> (Vec<RecordId>, usize, Option<RecordId>) {
        let place = heads_place(self.suite, object, branch);
        let mut inner = self.lock();
        let Inner { branches, devices, memory, .. } = &mut *inner;
        let heads = branches.get_mut(&place).map_or_else(InOrder::default, |known| {
            known.count_by(devices.get(&known.object.owner), memory);
            known.in_order()
        });
        let InOrder { tips, superseded, others } = heads;
        let devices = devices.get(owner).map(|(_, id)| *id);
        ([&tips[..], &superseded[..], &others[..]].concat(), tips.len(), devices)
    }

    /// How many heads there are.
    pub(super) fn len(&self) -> usize {
        self.lock().branches.values().map(|known| known.met.len()).sum()
    }
}

/// There is no room for a head.
pub(super) const fn busy() -> CallError {
    CallError::Busy { retry_after: AGAIN }
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

    /// Whether a head at this place was superseded and is not kept for that reason: it does not lack here.
    pub(crate) fn is_passed(&self, id: &RecordId, place: &Place) -> bool {
        self.heads.is_passed(id, place)
    }

    /// Whether a head at this place is here and another one here supersedes it.
    pub(crate) fn is_superseded(&self, id: &RecordId, place: &Place) -> bool {
        self.heads.is_superseded(id, place)
    }

    /// Removes heads that nobody needs any more. One that stays after a failure is dropped again at the next start.
    pub(super) async fn forget(&self, heads: Vec<RecordId>) {
        for some in heads.chunks(PUT_RECORDS_MAX) {
            if let Err(error) = self.store.remove(some.to_vec()).await {
                tracing::warn!(%error, "superseded heads could not be removed");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
