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
//! 2. A place is dropped only when no lease holds it, pending ones counted, it was not here without a lease, and nothing is
//!    being written there.
//! 3. A place that is being dropped takes no lease and no record until that is done.
//! 4. A lease that was forgotten is not admitted while its tombstone stands.
//! 5. Who pays for a place may renew there, however full the table; of the room for others a part is each organisation's.
//! 6. What is being written at a place without a lease takes none until it is there, so that it is known to have come without.
//!
//! A client has [`CLIENT_LEASES_MAX`] leases of a place: of more, the one that ends first gives way, so that whoever renews every
//! week is never refused, and nobody takes another's room. Which ones those are goes by their ends alone, so that it is the same
//! after a restart, when they are read in any order.

mod words;
mod writes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use crypto::certificate::CLOCK_SKEW_S;
use crypto::lease::{Checked, Leaf};
use crypto::{ClientKey, LeaseId, OrgId, Place, PublicKey, RecordId};

use super::By;
pub(crate) use writes::Wanted;
use writes::Writing;

/// Leases of one client for one place: one, and the one that renews it.
pub(crate) const CLIENT_LEASES_MAX: usize = 2;
/// Clients at places that are kept account of: a client counts at each place that it pays for, once for each organisation whose it is, so whoever renews is never
/// refused for room. Measured: 170 bytes a lease and place in leases of 256 places, 530 in leases of one, so with
/// [`CLIENT_LEASES_MAX`] of each client 0.7 to 2.2 GB of a full table.
pub(crate) const PAYERS_MAX: usize = if cfg!(test) { 32 } else { 2 << 20 };
/// Leases of one organisation's clients for one place, but for those of a client that has one there.
pub(crate) const ORGANISATION_LEASES_MAX: usize = 8;
/// Places remembered whose number of holders changed; above, all are looked at.
const OTHER_MAX: usize = if cfg!(test) { 8 } else { 1 << 16 };
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
    #[error(
        "this peer keeps account of {PAYERS_MAX} clients at places at most, and of room for each organisation among \
         them: store at another peer, or renew what is here"
    )]
    Full,
    #[error(
        "clients of organisation {organisation} have {ORGANISATION_LEASES_MAX} leases for the place {place} \
         already"
    )]
    Crowded { organisation: OrgId, place: Place },
    #[error("what lives at {0} is held under a lease alone, and goes with it: show one")]
    Alone(Place),
    /// Again in a moment.
    #[error("what is at {0} is being dropped or written just now")]
    Busy(Place),
}

impl Refusal {
    /// Whether it is of that lease alone: another for the same place may count.
    pub(crate) fn is_of_one(&self) -> bool {
        matches!(self, Self::Quota { .. } | Self::Full | Self::Forgotten(_))
    }
}

/// A lease that runs for a place, as far as it matters to who keeps what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payer {
    pub(crate) lease: LeaseId,
    pub(crate) client: ClientKey,
    pub(crate) organisation: OrgId,
    /// Unix seconds.
    pub(crate) until: u64,
}

impl Payer {
    pub(crate) fn of(checked: &Checked) -> Self {
        let Checked { id, client, organisation, terms, .. } = *checked;
        Self { lease: id, client, organisation, until: terms.until }
    }

    /// Whether a peer that holds a place by these leases holds it for this one too, or would leave it out beside them: see
    /// [`Table`] on how many are kept of a client and of an organisation.
    pub(crate) fn is_kept_by(&self, theirs: &[Self]) -> bool {
        let own = || theirs.iter().filter(|payer| payer.client == self.client);
        let later = own().filter(|payer| (payer.until, payer.lease) > (self.until, self.lease));
        let of_organisation = theirs.iter().filter(|payer| payer.organisation == self.organisation);
        theirs.iter().any(|payer| payer.lease == self.lease)
            || later.count() >= CLIENT_LEASES_MAX
            || (own().next().is_none() && of_organisation.count() >= ORGANISATION_LEASES_MAX)
    }
}

/// Who pays for what lives at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Payers {
    /// In no order.
    pub(crate) ones: Vec<Payer>,
    /// It stays without any.
    pub(crate) unleased: bool,
}

/// A lease as it is held here.
#[derive(Debug)]
struct Held {
    client: ClientKey,
    organisation: OrgId,
    until: u64,
    /// How many holders it pays for.
    copies: u32,
    /// Where its pass is kept.
    pass: RecordId,
    /// Where its leaves are kept; those of one write together.
    frames: Vec<RecordId>,
    /// Places that it holds, or held: which of them it does, they say.
    places: Vec<Place>,
    /// How many it holds.
    live: u32,
    /// How many of those are being written.
    pending: u32,
}

/// A lease of a place.
#[derive(Clone, Copy, Debug)]
struct Hold {
    lease: LeaseId,
    bytes: u32,
    /// Which of the lease's frames has the leaf; [`PENDING`] while it is being written.
    frame: u32,
}

/// A hold that is not durable yet.
const PENDING: u32 = u32::MAX;

/// Bytes that a client was charged for by its pass's quota: it has them back when they are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Who stored them.
    pub(crate) client: ClientKey,
    /// How many.
    pub(crate) bytes: u64,
}

#[derive(Debug, Default)]
struct At {
    holds: Vec<Hold>,
    /// The record was here before any lease, and stays.
    unleased: bool,
    charged: Option<Box<Charge>>,
}

impl OtherCopies {
    fn add(&mut self, place: Place) {
        if let Self::At(places) = self {
            places.insert(place);
            if places.len() > OTHER_MAX {
                *self = Self::Many;
            }
        }
    }
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
    /// The lease.
    pub(crate) lease: Option<LeaseId>,
    /// Records of the lease itself, to be removed; that of its pass too, where no other lease names it.
    pub(crate) frames: Vec<RecordId>,
    /// The last of them, where it is that of the pass.
    pub(crate) pass: Option<RecordId>,
    /// Places whose records are to be dropped, and who was charged for them.
    pub(crate) places: Vec<(Place, Option<Charge>)>,
}

/// What is left to do where leases were taken off places that others hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LetGo {
    /// Records of leases that hold nothing now, to be removed, those of `passes` among them.
    pub(crate) frames: Vec<RecordId>,
    /// Passes that no lease names any more: they take none until [`Table::gone`].
    pub(crate) passes: Vec<RecordId>,
    /// Who was charged for what was there.
    pub(crate) charges: Vec<Charge>,
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
    accounts: BTreeMap<OrgId, Account>,
    /// How many leases name a pass.
    passes: HashMap<RecordId, u32>,
    ends: BTreeSet<(u64, LeaseId)>,
    tombstones: HashMap<LeaseId, Tombstone>,
    heard: BTreeSet<(u64, LeaseId)>,
    dropping: HashSet<Place>,
    dropping_passes: HashSet<RecordId>,
    /// Places at which nothing is written for a moment, though what leases hold there stays theirs.
    off: HashSet<Place>,
    writing: HashMap<Place, Writing>,
    /// Leases that hold nothing any more, since others of their clients run longer: their records are to be removed.
    spent: BTreeSet<LeaseId>,
    /// Clients at places, of all organisations.
    payers: usize,
    /// Places whose records were here before, and are paid for at another number of holders since.
    other: OtherCopies,
}

/// What an organisation has here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    /// Bytes that it pays for.
    bytes: u64,
    /// Its clients at places.
    payers: usize,
}

/// Within what a lease is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    /// Bytes that its organisation may have here.
    pub(crate) quota: u64,
    /// Who brings it.
    pub(crate) by: By,
    /// Organisations of the network: half of the table is shared equally among them, the other half is whose it comes to.
    pub(crate) organisations: usize,
}

/// Places at which the number of holders that is paid for changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum OtherCopies {
    /// At these.
    At(HashSet<Place>),
    /// At more than [`OTHER_MAX`], or nobody looked for long.
    #[default]
    Many,
}

impl Table {
    /// Bytes that an organisation pays for at a place.
    fn charge(&self, place: &Place, organisation: &OrgId) -> u64 {
        let Some(at) = self.places.get(place) else { return 0 };
        let of = |hold: &&Hold| {
            self.leases.get(&hold.lease).is_some_and(|held| held.organisation == *organisation)
        };
        at.holds.iter().filter(of).map(|hold| u64::from(hold.bytes)).max().unwrap_or(0)
    }

    fn hold_of(&self, lease: &LeaseId, place: &Place) -> Option<&Hold> {
        self.places.get(place)?.holds.iter().find(|hold| hold.lease == *lease)
    }

    /// Whether a client of an organisation pays for a place.
    fn pays(&self, (client, organisation): (&ClientKey, &OrgId), place: &Place) -> bool {
        let Some(at) = self.places.get(place) else { return false };
        let mut held = at.holds.iter().filter_map(|hold| self.leases.get(&hold.lease));
        held.any(|held| (&held.client, &held.organisation) == (client, organisation))
    }

    /// Whether so many clients more at places of an organisation leave what is kept free for the others.
    fn has_room(&self, organisation: &OrgId, more: usize, organisations: usize) -> bool {
        let Some(free) = PAYERS_MAX.checked_sub(self.payers + more).filter(|_| more > 0) else {
            return more == 0;
        };
        let own = PAYERS_MAX / 2 / organisations.max(1);
        let used = |account: &Account| account.payers.min(own);
        if self.accounts.get(organisation).map_or(0, |account| account.payers) + more <= own {
            return true;
        }
        let others = self.accounts.iter().filter(|(other, _)| *other != organisation);
        let used: usize = others.map(|(_, account)| used(account)).sum();
        free >= (own * (organisations.max(1) - 1)).saturating_sub(used)
    }

    /// Whether a lease for a place would be more than is kept of its client, or of its organisation's.
    ///
    /// # Errors
    /// [`Refusal::Crowded`].
    fn is_superfluous(&self, lease: &Checked, place: &Place, by: By) -> Result<bool, Refusal> {
        let Some(at) = self.places.get(place) else { return Ok(false) };
        let (mut later, mut own, mut others) = (0, 0, 0);
        for held in
            at.holds.iter().filter_map(|hold| Some((hold.lease, self.leases.get(&hold.lease)?)))
        {
            if held.1.client == lease.client {
                own += 1;
                later += usize::from((held.1.until, held.0) > (lease.terms.until, lease.id));
            } else if held.1.organisation == lease.organisation {
                others += 1;
            }
        }
        if later >= CLIENT_LEASES_MAX {
            return Ok(true);
        }
        match (own == 0 && others >= ORGANISATION_LEASES_MAX, by) {
            (false, _) => Ok(false),
            // It lives on under those: what a peer passes on is not refused for it.
            (true, By::Peer) => Ok(true),
            (true, By::Client) => {
                let (organisation, place) = (lease.organisation, *place);
                Err(Refusal::Crowded { organisation, place })
            }
        }
    }

    /// The leaves of a lease that it does not hold yet and would.
    ///
    /// # Errors
    /// [`Refusal`].
    fn plan(
        &self,
        lease: &Checked,
        pass: RecordId,
        leaves: &[Leaf],
        Within { quota, by, organisations }: Within,
    ) -> Result<Vec<Leaf>, Refusal> {
        let forgotten = self.tombstones.contains_key(&lease.id);
        #[cfg(feature = "planted-bugs")]
        let forgotten = forgotten && !super::resurrects();
        if forgotten {
            return Err(Refusal::Forgotten(lease.id));
        }
        if self.dropping_passes.contains(&pass) {
            return Err(Refusal::Busy(
                leaves.first().map_or(Place::new([0; 32]), |leaf| leaf.place),
            ));
        }
        let mut new: Vec<Leaf> = Vec::new();
        let (mut more, mut payers) = (0u64, 0);
        for leaf in leaves {
            let place = leaf.place;
            match self.hold_of(&lease.id, &place) {
                Some(Hold { frame: PENDING, .. }) => return Err(Refusal::Busy(place)),
                Some(_) => continue,
                None if new.iter().any(|other| other.place == place) => continue,
                None => {}
            }
            let bare = self.writing.get(&place).is_some_and(|writing| writing.bare > 0);
            if bare || self.dropping.contains(&place) || self.off.contains(&place) {
                return Err(Refusal::Busy(place));
            }
            if self.is_superfluous(lease, &place, by)? {
                continue;
            }
            let paid = self.charge(&place, &lease.organisation);
            more = more.saturating_add(leaf.bytes.saturating_sub(paid));
            payers += usize::from(!self.pays((&lease.client, &lease.organisation), &place));
            new.push(*leaf);
        }
        if !self.has_room(&lease.organisation, payers, organisations) {
            return Err(Refusal::Full);
        }
        let used = self.account(&lease.organisation);
        if more > 0 && used.saturating_add(more) > quota {
            let organisation = lease.organisation;
            return Err(Refusal::Quota { organisation, used, quota, more });
        }
        Ok(new)
    }

    /// Why a lease that a peer passes on would not hold a place; nothing where it does already, would, or may in a moment. One that
    /// would be left out since its client or organisation has enough there is crowded.
    pub(crate) fn refuses(
        &self,
        lease: &Checked,
        pass: RecordId,
        leaf: &Leaf,
        within: Within,
    ) -> Option<Refusal> {
        match self.plan(lease, pass, std::slice::from_ref(leaf), within) {
            Ok(new) if new.is_empty() && self.hold_of(&lease.id, &leaf.place).is_none() => {
                let (organisation, place) = (lease.organisation, leaf.place);
                Some(Refusal::Crowded { organisation, place })
            }
            Ok(_) | Err(Refusal::Busy(_)) => None,
            Err(refusal) => Some(refusal),
        }
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
        within: Within,
        unleased: impl Fn(&Place) -> bool,
    ) -> Result<Admitted, Refusal> {
        let new = self.plan(lease, pass, leaves, within)?;
        for leaf in &new {
            let bare = !self.places.contains_key(&leaf.place) && unleased(&leaf.place);
            self.hold(lease, pass, leaf, PENDING, bare);
        }
        Ok(Admitted { lease: lease.id, new })
    }

    /// Puts a leaf into the table.
    fn hold(&mut self, lease: &Checked, pass: RecordId, leaf: &Leaf, frame: u32, unleased: bool) {
        let before = self.charge(&leaf.place, &lease.organisation);
        let copies_before = self.copies(&leaf.place);
        let paid = self.pays((&lease.client, &lease.organisation), &leaf.place);
        let Checked { id, client, organisation, terms, .. } = *lease;
        let (until, copies) = (terms.until, terms.redundancy);
        let held = self.leases.entry(id).or_insert_with(|| {
            self.ends.insert((until, id));
            *self.passes.entry(pass).or_default() += 1;
            let (frames, places) = (Vec::new(), Vec::new());
            Held { client, organisation, until, copies, pass, frames, places, live: 0, pending: 0 }
        });
        let at = self.places.entry(leaf.place).or_default();
        at.unleased |= unleased;
        let bytes = u32::try_from(leaf.bytes).unwrap_or(u32::MAX);
        if at.holds.iter().all(|hold| hold.lease != id) {
            push(&mut at.holds, Hold { lease: id, bytes, frame });
            push(&mut held.places, leaf.place);
            held.live += 1;
            held.pending += u32::from(frame == PENDING);
            self.spent.remove(&id);
        }
        // A record that comes with its first lease is counted by whoever stores it.
        if copies_before > 0 && self.copies(&leaf.place) != copies_before {
            self.other.add(leaf.place);
        }
        let after = self.charge(&leaf.place, &organisation);
        let account = self.accounts.entry(organisation).or_default();
        account.bytes += after.saturating_sub(before);
        account.payers += usize::from(!paid);
        self.payers += usize::from(!paid);
    }

    /// How many holders the most of the leases of a place pay for; 0 where none holds it, or where the record stays without one:
    /// such a record is passed on without its leases, so whoever fetched it would not know of them, and drop it again.
    pub(crate) fn copies(&self, place: &Place) -> u32 {
        let Some(at) = self.places.get(place).filter(|at| !at.unleased) else { return 0 };
        let held = at.holds.iter().filter_map(|hold| self.leases.get(&hold.lease));
        held.map(|held| held.copies).max().unwrap_or(0)
    }

    /// Where that changed since the last call.
    pub(crate) fn other_copies(&mut self) -> OtherCopies {
        std::mem::replace(&mut self.other, OtherCopies::At(HashSet::new()))
    }

    /// What was admitted is durable, in this frame.
    pub(crate) fn commit(&mut self, admitted: &Admitted, frame: RecordId) {
        let Some(held) = self.leases.get_mut(&admitted.lease) else { return };
        let (number, client) = (held.frames.len() as u32, held.client);
        push(&mut held.frames, frame);
        for leaf in &admitted.new {
            let at = self.places.get_mut(&leaf.place);
            let hold =
                at.and_then(|at| at.holds.iter_mut().find(|hold| hold.lease == admitted.lease));
            if let Some(hold) = hold.filter(|hold| hold.frame == PENDING) {
                hold.frame = number;
                if let Some(held) = self.leases.get_mut(&admitted.lease) {
                    held.pending -= 1;
                }
            }
        }
        admitted.new.iter().for_each(|leaf| self.give_way(&leaf.place, &client));
    }

    /// Notes who was charged for what was stored at a place, where leases hold it.
    pub(crate) fn charged(&mut self, place: &Place, charge: Charge) {
        let Some(at) = self.places.get_mut(place) else { return };
        match &mut at.charged {
            Some(charged) if charged.client == charge.client => {
                charged.bytes = charged.bytes.saturating_add(charge.bytes);
            }
            Some(_) => {}
            None => at.charged = Some(Box::new(charge)),
        }
    }

    /// Who was charged for what is stored at a place.
    pub(crate) fn charge_at(&self, place: &Place) -> Option<Charge> {
        self.places.get(place)?.charged.as_deref().copied()
    }

    /// Of more leases of a client for a place than are kept, those that end first hold it no more.
    fn give_way(&mut self, place: &Place, client: &ClientKey) {
        loop {
            let Some(at) = self.places.get(place) else { return };
            let held = at.holds.iter().filter(|hold| hold.frame != PENDING);
            let of = held.filter_map(|hold| Some((hold.lease, self.leases.get(&hold.lease)?)));
            let own = of.filter(|(_, held)| held.client == *client);
            let own: Vec<(u64, LeaseId)> = own.map(|(id, held)| (held.until, id)).collect();
            let first = own.iter().min().filter(|_| own.len() > CLIENT_LEASES_MAX);
            let Some((_, lease)) = first else { return };
            self.release(lease, place);
            if self.leases.get(lease).is_some_and(|held| held.live == 0) {
                self.spent.insert(*lease);
            }
        }
    }

    /// What was admitted was not written.
    pub(crate) fn withdraw(&mut self, admitted: &Admitted) {
        for leaf in &admitted.new {
            self.release(&admitted.lease, &leaf.place);
        }
        match self.leases.get(&admitted.lease) {
            Some(held) if held.live == 0 && held.frames.is_empty() => {
                self.remove(&admitted.lease);
            }
            Some(held) if held.live == 0 => drop(self.spent.insert(admitted.lease)),
            _ => {}
        }
    }

    /// What the store has of a lease, at the start: of each leaf whether its record came without one, and who was charged.
    pub(crate) fn restore(
        &mut self,
        lease: &Checked,
        pass: RecordId,
        leaves: &[(Leaf, bool, Option<Charge>)],
        frame: RecordId,
    ) {
        let number = self.leases.get(&lease.id).map_or(0, |held| held.frames.len() as u32);
        for (leaf, unleased, charge) in leaves {
            self.hold(lease, pass, leaf, number, *unleased);
            if let (Some(charge), Some(at)) = (charge, self.places.get_mut(&leaf.place)) {
                let most = at.charged.as_ref().map_or(0, |charged| charged.bytes);
                if charge.bytes > most {
                    at.charged = Some(Box::new(*charge));
                }
            }
        }
        if let Some(held) = self.leases.get_mut(&lease.id) {
            push(&mut held.frames, frame);
        }
        leaves.iter().for_each(|(leaf, ..)| self.give_way(&leaf.place, &lease.client));
    }

    /// Takes a lease off a place; where nobody holds it now and it does not stay, who was charged for it.
    fn release(&mut self, lease: &LeaseId, place: &Place) -> Option<Option<Charge>> {
        let Held { client, organisation, .. } = *self.leases.get(lease)?;
        let before = self.charge(place, &organisation);
        let copies_before = self.copies(place);
        let at = self.places.get_mut(place)?;
        let number = at.holds.iter().position(|hold| hold.lease == *lease)?;
        let hold = at.holds.swap_remove(number);
        let is_last = at.holds.is_empty();
        let bare = (is_last && !at.unleased).then(|| at.charged.as_deref().copied());
        if is_last {
            self.places.remove(place);
        }
        if !is_last && self.copies(place) != copies_before {
            self.other.add(*place);
        }
        if let Some(held) = self.leases.get_mut(lease) {
            held.live -= 1;
            held.pending -= u32::from(hold.frame == PENDING);
        }
        let after = self.charge(place, &organisation);
        let gone = usize::from(!self.pays((&client, &organisation), place));
        self.payers -= gone;
        if let Some(account) = self.accounts.get_mut(&organisation) {
            account.bytes = account.bytes.saturating_sub(before.saturating_sub(after));
            account.payers -= gone;
            if *account == Account::default() {
                self.accounts.remove(&organisation);
            }
        }
        bare
    }

    /// Forgets that a lease was here; what is to be removed of its own, and its pass where no other lease names it.
    fn remove(&mut self, lease: &LeaseId) -> (Vec<RecordId>, Option<RecordId>) {
        let Some(held) = self.leases.remove(lease) else { return Default::default() };
        self.ends.remove(&(held.until, *lease));
        self.spent.remove(lease);
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

    /// Leases that have ended at `now`, Unix seconds, the oldest first, after those that hold nothing any more.
    pub(crate) fn due(&self, now: u64, max: usize) -> Vec<LeaseId> {
        let over = |(until, _): &&(u64, LeaseId)| until.saturating_add(CLOCK_SKEW_S) <= now;
        let over = self.ends.iter().take_while(over).map(|(_, id)| id);
        let over = over.filter(|id| !self.spent.contains(*id));
        self.spent.iter().chain(over).take(max).copied().collect()
    }

    /// Ends a lease; `None` where it is not here, or something is being written under it just now. The places it says are being
    /// dropped until [`Table::dropped`].
    pub(crate) fn end(&mut self, lease: &LeaseId) -> Option<Ended> {
        let held = self.leases.get(lease)?;
        let writes = |place: &Place| {
            self.writing.contains_key(place) && self.hold_of(lease, place).is_some()
        };
        if held.pending > 0 || (!self.writing.is_empty() && held.places.iter().any(writes)) {
            return None;
        }
        let mut all = held.places.clone();
        all.sort_unstable();
        let mut places = Vec::new();
        for place in all {
            if let Some(charge) = self.release(lease, &place) {
                self.dropping.insert(place);
                places.push((place, charge));
            }
        }
        let (mut frames, pass) = self.remove(lease);
        frames.extend(pass);
        self.dropping_passes.extend(pass);
        Some(Ended { lease: Some(*lease), frames, pass, places })
    }

    /// Takes all leases off places whose records were dropped since others hold them: they pay for nothing here any more. A place at
    /// which something is being written keeps its leases.
    pub(crate) fn let_go(&mut self, places: &[Place]) -> LetGo {
        let mut gone = LetGo::default();
        for place in places {
            let Some(at) = self.places.get(place) else { continue };
            if self.writing.contains_key(place) || at.holds.iter().any(|hold| hold.frame == PENDING)
            {
                continue;
            }
            gone.charges.extend(at.charged.as_deref().copied());
            let leases: Vec<LeaseId> = at.holds.iter().map(|hold| hold.lease).collect();
            for lease in leases {
                self.release(&lease, place);
                if self.leases.get(&lease).is_some_and(|held| held.live == 0) {
                    let (frames, pass) = self.remove(&lease);
                    gone.frames.extend(frames);
                    gone.frames.extend(pass);
                    gone.passes.extend(pass);
                }
            }
        }
        self.dropping_passes.extend(&gone.passes);
        gone
    }

    /// These passes are gone, or stay for now: leases may name them again.
    pub(crate) fn gone(&mut self, passes: &[RecordId]) {
        for pass in passes {
            self.dropping_passes.remove(pass);
        }
    }

    /// What was being dropped is gone.
    pub(crate) fn dropped(&mut self, ended: &Ended) {
        for (place, _) in &ended.places {
            self.dropping.remove(place);
        }
        self.gone(ended.pass.as_slice());
    }

    /// Whether records of this place are being dropped.
    pub(crate) fn is_dropping(&self, place: &Place) -> bool {
        !self.dropping.is_empty() && self.dropping.contains(place)
    }

    /// Whether a lease holds the place.
    pub(crate) fn covers(&self, place: &Place) -> bool {
        self.places.contains_key(place)
    }

    /// Whether leases hold a place and all of them have ended at `now`, Unix seconds, or did and its records are being dropped.
    pub(crate) fn is_over(&self, place: &Place, now: u64) -> bool {
        if self.is_dropping(place) {
            return true;
        }
        let Some(at) = self.places.get(place).filter(|at| !at.unleased) else { return false };
        let mut held = at.holds.iter().filter_map(|hold| self.leases.get(&hold.lease));
        held.all(|held| held.until <= now)
    }

    /// Whether the record at a place stays without a lease, as far as leases know.
    pub(crate) fn is_unleased(&self, place: &Place) -> bool {
        self.places.get(place).is_none_or(|at| at.unleased)
    }

    /// Who pays for what lives at a place; of that for which nobody ever did, that it stays.
    pub(crate) fn payers(&self, place: &Place) -> Payers {
        let Some(at) = self.places.get(place) else {
            return Payers { ones: Vec::new(), unleased: true };
        };
        let payer = |hold: &Hold| {
            let held = self.leases.get(&hold.lease)?;
            let Held { client, organisation, until, .. } = *held;
            Some(Payer { lease: hold.lease, client, organisation, until })
        };
        Payers { ones: at.holds.iter().filter_map(payer).collect(), unleased: at.unleased }
    }

    /// The fewest bytes that any lease is for at a place: each was at least what came, and more says nothing.
    pub(crate) fn bytes_at(&self, place: &Place) -> Option<u64> {
        let holds = &self.places.get(place)?.holds;
        holds.iter().map(|hold| u64::from(hold.bytes)).min()
    }

    /// Where leases of a place are kept, at most so many: of each the frame with its leaf and the one with its pass. First those
    /// of `client`, then the longest of each organisation, then the others, the longest first.
    pub(crate) fn frames_at(
        &self,
        place: &Place,
        client: Option<&PublicKey>,
        max: usize,
    ) -> Vec<(LeaseId, RecordId, RecordId)> {
        let Some(at) = self.places.get(place) else { return Vec::new() };
        let mut all: Vec<(&Hold, &Held)> = at
            .holds
            .iter()
            .filter_map(|hold| Some((hold, self.leases.get(&hold.lease)?)))
            .filter(|(hold, _)| hold.frame != PENDING)
            .collect();
        all.sort_unstable_by_key(|(hold, held)| (Reverse(held.until), hold.lease));
        let mut seen = BTreeSet::new();
        let mut ranked: Vec<_> = all
            .into_iter()
            .map(|(hold, held)| {
                let own = client.is_some_and(|client| held.client.key() == client);
                (!own, !seen.insert(held.organisation), hold, held)
            })
            .collect();
        ranked.sort_by_key(|(others, further, ..)| (*others, *further));
        let frame = |(_, _, hold, held): &(bool, bool, &Hold, &Held)| {
            Some((hold.lease, *held.frames.get(hold.frame as usize)?, held.pass))
        };
        ranked.iter().take(max).filter_map(frame).collect()
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
        self.accounts.get(organisation).map_or(0, |account| account.bytes)
    }

    /// All accounts.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (&OrgId, u64)> {
        let paying = self.accounts.iter().filter(|(_, account)| account.bytes > 0);
        paying.map(|(organisation, account)| (organisation, account.bytes))
    }

    /// Leases, places that they hold, and tombstones.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        (self.leases.len(), self.places.len(), self.tombstones.len())
    }
}

/// Adds one without room for three more: most lists here have one.
fn push<T>(list: &mut Vec<T>, item: T) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list.push(item);
}

#[cfg(test)]
mod tests;
