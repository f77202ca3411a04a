//! What is known of the leases here: who pays for which place, and until when. Pure: no clock, no store.
//!
//! ```text
//!   admit -> pending -- commit --> held -- due, ended --> its places without another lease are dropped
//!               `----- withdraw (the write failed)
//! ```
//! A lease is admitted before what it pays for is written, so nothing that is being written under it is dropped meanwhile,
//! and an organisation's account is never over its quota by two calls at once.
//!
//! Invariants:
//! 1. An organisation's account is the sum, over the places that it pays for, of the largest bytes among its leases there.
//! 2. A place is dropped only when no lease holds it, pending ones counted, and it was not here without a lease.
//! 3. A place that is being dropped takes no lease until that is done.
//! 4. A lease that was forgotten is not admitted while its tombstone stands.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use crypto::certificate::CLOCK_SKEW_S;
use crypto::lease::{Checked, Leaf};
use crypto::{ClientKey, LeaseId, OrgId, Place, RecordId};

/// Places that are kept account of: about 150 bytes each.
pub(crate) const PLACES_MAX: usize = 4 << 20;
/// Leases of one place.
pub(crate) const PLACE_LEASES_MAX: usize = env::calls::leases::PLACE_LEASES_MAX;
/// Words of ended leases that are kept; of more, the oldest goes.
pub(crate) const TOMBSTONES_MAX: usize = 1 << 20;
/// How long such a word is kept at most, in seconds: 90 days.
pub(crate) const TOMBSTONE_SECONDS_MAX: u64 = 90 * 24 * 3600;

/// Why a lease is not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Refusal {
    #[error("the lease {0} was ended by its client: sign another")]
    Forgotten(LeaseId),
    #[error(
        "organisation {organisation} has {used} of {quota} bytes here, and this is {more} more: free some \
         (hold forget), or ask this peer's operator for more"
    )]
    Quota { organisation: OrgId, used: u64, quota: u64, more: u64 },
    #[error("this peer keeps account of {PLACES_MAX} places at most: store at another peer")]
    Full,
    #[error("over {PLACE_LEASES_MAX} leases for the place {0}")]
    Crowded(Place),
    /// Again in a moment.
    #[error("what is at {0} is being dropped or written just now")]
    Busy(Place),
}

/// A lease as it is held here.
#[derive(Debug)]
struct Held {
    client: ClientKey,
    organisation: OrgId,
    until: u64,
    /// Where its pass is kept.
    pass: RecordId,
    /// Where its leaves are kept; those of one write together.
    frames: Vec<RecordId>,
    places: BTreeMap<Place, Hold>,
}

/// What a lease holds at a place.
#[derive(Clone, Copy, Debug)]
struct Hold {
    bytes: u64,
    /// Which of the lease's frames has the leaf; `None` while it is being written.
    frame: Option<u32>,
}

#[derive(Debug, Default)]
struct At {
    leases: Vec<LeaseId>,
    /// The record was here before any lease, and stays.
    unleased: bool,
}

/// A word that ended a lease.
#[derive(Clone, Debug)]
struct Tombstone {
    bytes: Bytes,
    heard_ms: u64,
    /// Unix seconds.
    until: u64,
    frame: RecordId,
}

/// What the end of a lease leaves to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Records of the lease itself, to be removed; that of its pass too, where no other lease names it.
    pub(crate) frames: Vec<RecordId>,
    /// The last of them, where it is that of the pass.
    pub(crate) pass: Option<RecordId>,
    /// Places whose records are to be dropped, and how many bytes were paid for there.
    pub(crate) places: Vec<(Place, u64)>,
    /// Who had signed it.
    pub(crate) client: Option<ClientKey>,
}

/// What a lease brings to the table.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) lease: LeaseId,
    /// The leaves that it did not hold here before.
    pub(crate) new: Vec<Leaf>,
}

/// The leases of one peer.
#[derive(Debug, Default)]
pub(crate) struct Table {
    leases: HashMap<LeaseId, Held>,
    places: HashMap<Place, At>,
    accounts: BTreeMap<OrgId, u64>,
    /// How many leases name a pass.
    passes: HashMap<RecordId, u32>,
    ends: BTreeSet<(u64, LeaseId)>,
    tombstones: HashMap<LeaseId, Tombstone>,
    heard: BTreeSet<(u64, LeaseId)>,
    dropping: HashSet<Place>,
    dropping_passes: HashSet<RecordId>,
}

impl Table {
    /// Bytes that an organisation pays for at a place.
    fn charge(&self, place: &Place, organisation: &OrgId) -> u64 {
        let Some(at) = self.places.get(place) else { return 0 };
        let of = at.leases.iter().filter_map(|id| self.leases.get(id));
        let own = of.filter(|held| held.organisation == *organisation);
        own.filter_map(|held| Some(held.places.get(place)?.bytes)).max().unwrap_or(0)
    }

    /// Takes leaves of a lease, as pending, or nothing of them. `unleased` says which places have a record that came without a
    /// lease, of those that no lease holds.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn admit(
        &mut self,
        lease: &Checked,
        pass: RecordId,
        leaves: &[Leaf],
        quota: u64,
        unleased: impl Fn(&Place) -> bool,
    ) -> Result<Admitted, Refusal> {
        if self.tombstones.contains_key(&lease.id) {
            return Err(Refusal::Forgotten(lease.id));
        }
        if self.dropping_passes.contains(&pass) {
            return Err(Refusal::Busy(
                leaves.first().map_or(Place::new([0; 32]), |leaf| leaf.place),
            ));
        }
        let mut new: Vec<Leaf> = Vec::new();
        let mut more = 0u64;
        for leaf in leaves {
            let place = leaf.place;
            let held = self.leases.get(&lease.id).and_then(|held| held.places.get(&place));
            match held {
                Some(Hold { frame: None, .. }) => return Err(Refusal::Busy(place)),
                Some(_) => continue,
                None if new.iter().any(|other| other.place == place) => continue,
                None => {}
            }
            if self.dropping.contains(&place) {
                return Err(Refusal::Busy(place));
            }
            let crowd = self.places.get(&place).map_or(0, |at| at.leases.len());
            if crowd >= PLACE_LEASES_MAX {
                return Err(Refusal::Crowded(place));
            }
            let paid = self.charge(&place, &lease.organisation);
            more = more.saturating_add(leaf.bytes.saturating_sub(paid));
            new.push(*leaf);
        }
        if self.places.len() + new.len() > PLACES_MAX {
            return Err(Refusal::Full);
        }
        let used = self.account(&lease.organisation);
        if more > 0 && used.saturating_add(more) > quota {
            let organisation = lease.organisation;
            return Err(Refusal::Quota { organisation, used, quota, more });
        }
        for leaf in &new {
            let bare = !self.places.contains_key(&leaf.place) && unleased(&leaf.place);
            self.hold(lease, pass, leaf, None, bare);
        }
        Ok(Admitted { lease: lease.id, new })
    }

    /// Puts a leaf into the table.
    fn hold(
        &mut self,
        lease: &Checked,
        pass: RecordId,
        leaf: &Leaf,
        frame: Option<u32>,
        unleased: bool,
    ) {
        let before = self.charge(&leaf.place, &lease.organisation);
        let Checked { id, client, organisation, terms, .. } = *lease;
        let until = terms.until;
        let held = self.leases.entry(id).or_insert_with(|| {
            self.ends.insert((until, id));
            *self.passes.entry(pass).or_default() += 1;
            let (frames, places) = (Vec::new(), BTreeMap::new());
            Held { client, organisation, until, pass, frames, places }
        });
        held.places.insert(leaf.place, Hold { bytes: leaf.bytes, frame });
        let at = self.places.entry(leaf.place).or_default();
        at.unleased |= unleased;
        if !at.leases.contains(&id) {
            at.leases.push(id);
        }
        let after = self.charge(&leaf.place, &organisation);
        *self.accounts.entry(organisation).or_default() += after.saturating_sub(before);
    }

    /// What was admitted is durable, in this frame.
    pub(crate) fn commit(&mut self, admitted: &Admitted, frame: RecordId) {
        let Some(held) = self.leases.get_mut(&admitted.lease) else { return };
        let number = u32::try_from(held.frames.len()).unwrap_or(u32::MAX);
        held.frames.push(frame);
        for leaf in &admitted.new {
            if let Some(hold) = held.places.get_mut(&leaf.place) {
                hold.frame = Some(number);
            }
        }
    }

    /// What was admitted was not written.
    pub(crate) fn withdraw(&mut self, admitted: &Admitted) {
        for leaf in &admitted.new {
            self.release(&admitted.lease, &leaf.place);
        }
        if self.leases.get(&admitted.lease).is_some_and(|held| held.places.is_empty()) {
            self.remove(&admitted.lease);
        }
    }

    /// What the store has of a lease, at the start.
    pub(crate) fn restore(
        &mut self,
        lease: &Checked,
        pass: RecordId,
        leaves: &[(Leaf, bool)],
        frame: RecordId,
    ) {
        let number = self.leases.get(&lease.id).map_or(0, |held| held.frames.len());
        let number = Some(u32::try_from(number).unwrap_or(u32::MAX));
        for (leaf, unleased) in leaves {
            self.hold(lease, pass, leaf, number, *unleased);
        }
        if let Some(held) = self.leases.get_mut(&lease.id) {
            held.frames.push(frame);
        }
    }

    /// Takes a lease off a place; whether nobody holds it now.
    fn release(&mut self, lease: &LeaseId, place: &Place) -> bool {
        let Some(organisation) = self.leases.get(lease).map(|held| held.organisation) else {
            return false;
        };
        let before = self.charge(place, &organisation);
        if let Some(held) = self.leases.get_mut(lease) {
            held.places.remove(place);
        }
        let mut bare = false;
        if let Some(at) = self.places.get_mut(place) {
            at.leases.retain(|other| other != lease);
            bare = at.leases.is_empty() && !at.unleased;
            if at.leases.is_empty() {
                self.places.remove(place);
            }
        }
        let after = self.charge(place, &organisation);
        let left = self.account(&organisation).saturating_sub(before.saturating_sub(after));
        match left {
            0 => drop(self.accounts.remove(&organisation)),
            left => drop(self.accounts.insert(organisation, left)),
        }
        bare
    }

    /// Forgets that a lease was here; what is to be removed of its own, and its pass where no other lease names it.
    fn remove(&mut self, lease: &LeaseId) -> (Vec<RecordId>, Option<RecordId>) {
        let Some(held) = self.leases.remove(lease) else { return Default::default() };
        self.ends.remove(&(held.until, *lease));
        let mut pass = None;
        if let Some(count) = self.passes.get_mut(&held.pass) {
            *count -= 1;
            if *count == 0 {
                self.passes.remove(&held.pass);
                pass = Some(held.pass);
            }
        }
        (held.frames, pass)
    }

    /// Leases that have ended at `now`, Unix seconds, the oldest first.
    pub(crate) fn due(&self, now: u64, max: usize) -> Vec<LeaseId> {
        let over = |(until, _): &&(u64, LeaseId)| until.saturating_add(CLOCK_SKEW_S) <= now;
        self.ends.iter().take_while(over).take(max).map(|(_, id)| *id).collect()
    }

    /// Ends a lease; `None` where it is not here, or something is being written under it just now. The places it says are being
    /// dropped until [`Table::dropped`].
    pub(crate) fn end(&mut self, lease: &LeaseId) -> Option<Ended> {
        let held = self.leases.get(lease)?;
        if held.places.values().any(|hold| hold.frame.is_none()) {
            return None;
        }
        let client = Some(held.client);
        let all: Vec<(Place, u64)> =
            held.places.iter().map(|(place, hold)| (*place, hold.bytes)).collect();
        let mut places = Vec::new();
        for (place, bytes) in all {
            if self.release(lease, &place) {
                self.dropping.insert(place);
                places.push((place, bytes));
            }
        }
        let (mut frames, pass) = self.remove(lease);
        frames.extend(pass);
        self.dropping_passes.extend(pass);
        Some(Ended { frames, pass, places, client })
    }

    /// What was being dropped is gone.
    pub(crate) fn dropped(&mut self, ended: &Ended) {
        for (place, _) in &ended.places {
            self.dropping.remove(place);
        }
        if let Some(pass) = &ended.pass {
            self.dropping_passes.remove(pass);
        }
    }

    /// Whether records of this place are being dropped.
    pub(crate) fn is_dropping(&self, place: &Place) -> bool {
        !self.dropping.is_empty() && self.dropping.contains(place)
    }

    /// Whether a lease holds the place.
    pub(crate) fn covers(&self, place: &Place) -> bool {
        self.places.contains_key(place)
    }

    /// Whether leases hold a place and all of them have ended at `now`, Unix seconds.
    pub(crate) fn is_over(&self, place: &Place, now: u64) -> bool {
        let Some(at) = self.places.get(place).filter(|at| !at.unleased) else { return false };
        let mut held = at.leases.iter().filter_map(|id| self.leases.get(id));
        held.all(|held| held.until <= now)
    }

    /// Whether the record at a place stays without a lease, as far as leases know.
    pub(crate) fn is_unleased(&self, place: &Place) -> bool {
        self.places.get(place).is_none_or(|at| at.unleased)
    }

    /// The fewest bytes that any lease is for at a place: each was at least what came, and more says nothing.
    pub(crate) fn bytes_at(&self, place: &Place) -> Option<u64> {
        let at = self.places.get(place)?;
        let holds = at.leases.iter().filter_map(|id| self.leases.get(id)?.places.get(place));
        holds.map(|hold| hold.bytes).min()
    }

    /// Where the leases of a place are kept: of each the frame with its leaf and the one with its pass.
    pub(crate) fn frames_at(&self, place: &Place) -> Vec<(LeaseId, RecordId, RecordId)> {
        let Some(at) = self.places.get(place) else { return Vec::new() };
        let frame = |id: &LeaseId| {
            let held = self.leases.get(id)?;
            let number = held.places.get(place)?.frame?;
            Some((*id, *held.frames.get(number as usize)?, held.pass))
        };
        at.leases.iter().filter_map(frame).collect()
    }

    /// Who signed a lease that is held.
    pub(crate) fn client(&self, lease: &LeaseId) -> Option<ClientKey> {
        self.leases.get(lease).map(|held| held.client)
    }

    /// When a lease that is held ends, Unix seconds.
    pub(crate) fn until(&self, lease: &LeaseId) -> Option<u64> {
        self.leases.get(lease).map(|held| held.until)
    }

    /// Bytes that an organisation pays for.
    pub(crate) fn account(&self, organisation: &OrgId) -> u64 {
        self.accounts.get(organisation).copied().unwrap_or(0)
    }

    /// All accounts.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (&OrgId, u64)> {
        self.accounts.iter().map(|(organisation, bytes)| (organisation, *bytes))
    }

    /// Leases, places that they hold, and tombstones.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        (self.leases.len(), self.places.len(), self.tombstones.len())
    }

    /// Keeps the word that ended a lease; what it makes superfluous.
    pub(crate) fn bury(
        &mut self,
        lease: LeaseId,
        bytes: Bytes,
        heard_ms: u64,
        until: u64,
        frame: RecordId,
    ) -> Vec<RecordId> {
        let mut superfluous = Vec::new();
        if let Some(old) = self.tombstones.remove(&lease) {
            self.heard.remove(&(old.heard_ms, lease));
            superfluous.extend((old.frame != frame).then_some(old.frame));
        }
        if self.tombstones.len() >= TOMBSTONES_MAX
            && let Some((_, oldest)) = self.heard.pop_first()
        {
            superfluous.extend(self.tombstones.remove(&oldest).map(|old| old.frame));
        }
        self.heard.insert((heard_ms, lease));
        self.tombstones.insert(lease, Tombstone { bytes, heard_ms, until, frame });
        superfluous
    }

    /// Whether the lease was ended, as far as is known.
    pub(crate) fn is_buried(&self, lease: &LeaseId) -> bool {
        self.tombstones.contains_key(lease)
    }

    /// Forgets words whose time is over at `now`, Unix seconds; where they are kept.
    pub(crate) fn unbury(&mut self, now: u64) -> Vec<RecordId> {
        let over: Vec<LeaseId> = self
            .tombstones
            .iter()
            .filter(|(_, tombstone)| tombstone.until <= now)
            .map(|(lease, _)| *lease)
            .collect();
        let mut frames = Vec::new();
        for lease in over {
            if let Some(tombstone) = self.tombstones.remove(&lease) {
                self.heard.remove(&(tombstone.heard_ms, lease));
                frames.push(tombstone.frame);
            }
        }
        frames
    }

    /// Words heard since then, Unix milliseconds, oldest first, after so many of them; and whether there are more.
    pub(crate) fn tombstones_since(
        &self,
        since_ms: u64,
        skip: usize,
        max: usize,
    ) -> (Vec<Bytes>, bool) {
        let from = (since_ms, LeaseId::new([0; 32]));
        let mut heard = self.heard.range(from..).skip(skip);
        let some = heard.by_ref().take(max);
        let words = some.filter_map(|(_, lease)| Some(self.tombstones.get(lease)?.bytes.clone()));
        let words = words.collect();
        (words, heard.next().is_some())
    }

    /// Leases that are held though a word ended them: a crash came between.
    pub(crate) fn unfinished(&self) -> Vec<LeaseId> {
        self.leases.keys().filter(|lease| self.tombstones.contains_key(lease)).copied().collect()
    }
}

#[cfg(test)]
mod tests;
