//! Signed heads and lists of devices: kept for whoever reads them, who decides which of them count.
//!
//! Anybody of the network may carry heads here, also of devices that no list names (yet). So of a branch the tips are kept, the
//! newest [`KEPT_MAX`] of those that they supersede, and apart from these as many of devices that do not count: nobody
//! crowds out a branch with keys of his own. What is dropped is removed from the store too.

use std::collections::{BTreeMap, BTreeSet};
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

use super::permissions::{Reader, unreadable};
use super::reads::{Room, too_much};
use super::{ObjectShelf, invalid};

/// Heads of a branch that are kept beside its tips: of those that count, and of the others.
const KEPT_MAX: usize = 256;
/// How far either may go over before it is brought back to it.
const SLACK: usize = 32;
/// Bytes of heads and lists of devices in memory, about.
const BYTES_MAX: usize = 64 << 20;
/// What is around one of them in memory, about.
const AROUND_BYTES: usize = 512;
/// When to try again where there is no room.
const AGAIN: Duration = Duration::from_secs(60);

/// What this peer knows of branches.
pub(super) struct Heads {
    suite: Suite,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    branches: BTreeMap<(ObjectKey, String), Known>,
    devices: BTreeMap<PublicKey, (DeviceList, RecordId)>,
    bytes: usize,
}

struct Known {
    branch: Branch,
    object: ObjectRecord,
    /// When each head came, by a number that rises.
    came: BTreeMap<RecordId, u64>,
    next: u64,
}

fn size(head: &Head) -> usize {
    AROUND_BYTES + head.branch.name.len() + head.branch.branch.len() + 32 * head.supersedes.len()
}

impl Known {
    fn new(head: &Head) -> Self {
        let name = head.branch.clone();
        let object = ObjectRecord {
            network: name.network,
            owner: name.owner,
            name: Bytes::copy_from_slice(&name.name),
        };
        Self { branch: Branch::new(name), object, came: BTreeMap::new(), next: 0 }
    }

    /// All that the heads that count supersede, themselves or through others.
    fn superseded(&self, counts: impl Fn(&Head) -> bool) -> BTreeSet<RecordId> {
        let heads: BTreeMap<_, _> = self.branch.records().collect();
        let valid = heads.values().filter(|head| counts(head));
        let mut next: Vec<RecordId> = valid.flat_map(|head| head.supersedes.clone()).collect();
        let mut superseded = BTreeSet::new();
        while let Some(id) = next.pop() {
            if superseded.insert(id)
                && let Some(head) = heads.get(&id)
            {
                next.extend(&head.supersedes);
            }
        }
        superseded
    }

    /// The heads with the tips first, each part newest first.
    fn in_order(&self, devices: Option<&DeviceList>) -> (Vec<RecordId>, usize) {
        let came = |id: &RecordId| std::cmp::Reverse(self.came.get(id).copied());
        let mut tips: Vec<RecordId> =
            self.branch.tips(devices).into_iter().map(|(id, _)| id).collect();
        let is_tip: BTreeSet<RecordId> = tips.iter().copied().collect();
        let mut rest: Vec<RecordId> =
            self.branch.records().map(|(id, _)| *id).filter(|id| !is_tip.contains(id)).collect();
        tips.sort_by_key(came);
        rest.sort_by_key(came);
        let count = tips.len();
        tips.append(&mut rest);
        (tips, count)
    }

    /// Drops what is more than is kept; which.
    fn prune(&mut self, devices: Option<&DeviceList>) -> Vec<RecordId> {
        let owner = self.object.owner;
        let counts = |head: &Head| {
            head.device == owner || devices.is_some_and(|list| list.names(&head.device))
        };
        let superseded = self.superseded(counts);
        let (ids, tips) = self.in_order(devices);
        let (mut of_those, mut others) = (0, 0);
        let mut dropped = BTreeSet::new();
        let heads: BTreeMap<RecordId, Head> =
            self.branch.records().map(|(id, head)| (*id, head.clone())).collect();
        for id in ids.iter().skip(tips) {
            let counting = superseded.contains(id) || heads.get(id).is_some_and(counts);
            let kept = if counting { &mut of_those } else { &mut others };
            *kept += 1;
            if *kept > KEPT_MAX {
                dropped.insert(*id);
            }
        }
        if of_those.max(others) <= KEPT_MAX + SLACK {
            return Vec::new();
        }
        let mut branch = Branch::new(match heads.values().next() {
            Some(head) => head.branch.clone(),
            None => return Vec::new(),
        });
        for (id, head) in heads {
            if !dropped.contains(&id) {
                // It was taken before.
                let _ = branch.take(id, head);
            }
        }
        self.branch = branch;
        self.came.retain(|id, _| !dropped.contains(id));
        dropped.into_iter().collect()
    }
}

impl Heads {
    pub(super) fn new(suite: Suite) -> Self {
        Self { suite, inner: Mutex::default() }
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
            return Head::verify(bytes).is_ok_and(|head| self.take(id, head).is_ok());
        }
        let taken = DeviceList::verify(bytes).and_then(|list| self.take_devices(list, id));
        matches!(taken, Ok(()) | Err(VersionError::OldDevices { .. }))
    }

    /// Whether there is room for one more.
    pub(super) fn check(&self) -> Result<(), CallError> {
        match self.lock().bytes < BYTES_MAX {
            true => Ok(()),
            false => Err(CallError::Busy { retry_after: AGAIN }),
        }
    }

    /// Takes a proven head; which ones it crowded out.
    ///
    /// # Errors
    /// [`VersionError::Full`] where the branch has as many tips as are looked at.
    pub(super) fn take(&self, id: RecordId, head: Head) -> Result<Vec<RecordId>, VersionError> {
        let object = head.branch.object(self.suite)?;
        let mut inner = self.lock();
        let Inner { branches, devices, bytes } = &mut *inner;
        let key = (object, head.branch.branch.clone());
        let known = branches.entry(key).or_insert_with(|| Known::new(&head));
        let devices = devices.get(&head.branch.owner).map(|(list, _)| list);
        let weight = size(&head);
        if known.branch.take(id, head)? == Taken::Known {
            return Ok(Vec::new());
        }
        *bytes += weight;
        known.came.insert(id, known.next);
        known.next += 1;
        let before: usize = known.branch.records().map(|(_, head)| size(head)).sum();
        let dropped = known.prune(devices);
        let after: usize = known.branch.records().map(|(_, head)| size(head)).sum();
        *bytes = bytes.saturating_sub(before - after);
        Ok(dropped)
    }

    /// Takes a proven list of devices. It counts from now on.
    ///
    /// # Errors
    /// [`VersionError::OldDevices`], [`VersionError::Full`].
    pub(super) fn take_devices(&self, list: DeviceList, id: RecordId) -> Result<(), VersionError> {
        let mut inner = self.lock();
        let known = inner.devices.get(&list.owner).map(|(list, _)| list);
        if list.follows(known)? == Taken::Known {
            return Ok(());
        }
        let weight = |list: &DeviceList| AROUND_BYTES + 33 * list.devices.len();
        let bytes = inner.bytes + weight(&list) - known.map_or(0, weight);
        if bytes > BYTES_MAX {
            return Err(VersionError::Full { what: "memory of devices", max: BYTES_MAX });
        }
        inner.bytes = bytes;
        inner.devices.insert(list.owner, (list, id));
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
        let inner = self.lock();
        let devices = inner.devices.get(owner);
        let known = inner.branches.get(&(*object, branch.to_owned()));
        let (heads, tips) = known
            .map_or_else(Default::default, |known| known.in_order(devices.map(|(list, _)| list)));
        (heads, tips, devices.map(|(_, id)| *id))
    }

    /// How many heads there are.
    pub(super) fn len(&self) -> usize {
        self.lock().branches.values().map(|known| known.came.len()).sum()
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
