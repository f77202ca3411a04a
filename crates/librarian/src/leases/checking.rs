//! Leases that came with records, or for records that are here: checked, admitted, written beside them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use crypto::lease::{
    Charged, Checked, Holding, Kept, Leaf, LeaseError, SHOWN_LEAVES_MAX, Shown, ShownLeaf, kept_id,
    pass_id,
};
use crypto::{Class, Classified, ClientKey, Place, RecordId};
use document::{Kind, Record};
use env::calls::CallError;
use env::calls::leases::{PlaceLeases, SHOWN_MAX};
use store::StoreError;

use super::dropping::Here;
use super::table::{Admitted, Charge, Payer, Payers, Refusal, Wanted};
use super::{CHECKED_MAX, Leases, kept, owned, told_copies};
use crate::fragments;

/// Leases and leaves up to which the signatures are checked where the call runs: a hop costs more.
const CHECKED_HERE_MAX: usize = 2;
const LEAVES_HERE_MAX: usize = 16;

/// Who shows a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    /// A client, for the first time: it must have been signed just now.
    Client,
    /// A peer, which may pass on any that runs.
    #[default]
    Peer,
}

/// Leases that were checked, each with the leaves that were shown; and who stores what comes with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Covered {
    ones: Vec<One>,
    by: By,
    charged: Option<ClientKey>,
}

#[derive(Clone, Debug)]
struct One {
    checked: Checked,
    lease: Bytes,
    pass: Bytes,
    leaves: Vec<ShownLeaf>,
}

impl Covered {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.ones.is_empty()
    }

    /// The same, of records that this client is charged for.
    pub(crate) fn charged_to(self, client: Option<ClientKey>) -> Self {
        Self { charged: client, ..self }
    }

    /// What calls want to write of these records: each place once.
    fn wanted(&self, records: &[Record], here: impl Fn(&RecordId) -> bool) -> Vec<Wanted> {
        let paid: BTreeSet<Place> =
            self.ones.iter().flat_map(|one| &one.leaves).map(|shown| shown.leaf.place).collect();
        let mut wanted: BTreeMap<Place, Wanted> = BTreeMap::new();
        for record in records {
            let place = record.place;
            // A client reckons with its staying. So may a peer, which stores what a client gave it; but fragments that a peer made
            // again belong to who pays for the stripe.
            let is_copy =
                record.kind != Kind::Stripe && RecordId::new(*place.as_bytes()) == record.id;
            let stays = self.by == By::Client || (is_copy && here(&record.id));
            let (paid, new) = (paid.contains(&place), Wanted { place, paid: false, stays: true });
            let one = wanted.entry(place).or_insert(new);
            (one.paid, one.stays) = (paid, one.stays && stays);
        }
        wanted.into_values().collect()
    }
}

/// Places where something is being written: nothing is dropped there meanwhile.
pub(crate) struct Writes {
    leases: Arc<Leases>,
    begun: Vec<(Place, bool)>,
}

impl Drop for Writes {
    fn drop(&mut self) {
        self.leases.table().written(&self.begun);
    }
}

/// Leases on their way to the disk. Dropped before [`Admission::committed`], they are as if they had not come.
pub(crate) struct Admission {
    leases: Arc<Leases>,
    admitted: Vec<(Admitted, RecordId)>,
    /// What is to be written in the same write as the records.
    pub(crate) records: Vec<Record>,
}

impl Admission {
    /// All of it is durable.
    pub(crate) fn committed(mut self, new: &[bool]) {
        {
            let mut table = self.leases.table();
            for (admitted, frame) in self.admitted.drain(..) {
                table.commit(&admitted, frame);
            }
        }
        let written = self.records.iter().zip(new).filter(|(_, new)| **new);
        self.leases.count_own(|own| {
            written.for_each(|(record, _)| own.add(record.id, record.bytes.len()));
        });
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if !self.admitted.is_empty() {
            let mut table = self.leases.table();
            self.admitted.drain(..).for_each(|(admitted, _)| table.withdraw(&admitted));
        }
    }
}

/// A lease's defect as its sender hears it.
pub(crate) fn refusal(error: &LeaseError) -> CallError {
    let reason = error.to_string();
    match error.class() {
        Class::Denied => CallError::Denied { reason },
        _ => CallError::Invalid { reason },
    }
}

fn refused(refusal: &Refusal) -> CallError {
    match refusal {
        Refusal::Busy(_) => CallError::Busy { retry_after: super::BUSY_AGAIN },
        other => CallError::Denied { reason: other.to_string() },
    }
}

/// What is brought to a place where all was dropped, and no lease came with it.
pub(crate) fn nobody_pays(place: &Place) -> CallError {
    let reason = format!("what lives at {place} was dropped here: nobody pays for it");
    CallError::Denied { reason }
}

fn invalid(reason: String) -> CallError {
    CallError::Invalid { reason }
}

impl Leases {
    /// Checks leases that came with these records: each record is paid for, and nothing that did not come. Of those that a peer
    /// passes on one that does not count is left out where another holds its place, or the lease of an organisation that left, or
    /// one of too few bytes, would keep what others pay for from being mended.
    ///
    /// # Errors
    /// `Invalid` or `Denied`, with what is wrong with which.
    pub(crate) async fn check(
        self: &Arc<Self>,
        shown: Vec<Shown>,
        records: &[Record],
        by: By,
    ) -> Result<Covered, CallError> {
        let mut bytes: BTreeMap<Place, u64> = BTreeMap::new();
        for record in records {
            *bytes.entry(record.place).or_default() += record.bytes.len() as u64;
        }
        let places = shown.iter().flat_map(|one| &one.leaves).map(|shown| shown.leaf.place);
        let places: BTreeSet<Place> = places.collect();
        if let Some(place) = places.iter().find(|place| !bytes.contains_key(place)) {
            let reason = format!("a lease for {place} came, and no record that lives there");
            return Err(invalid(reason));
        }
        let understated = |one: &One| {
            let found = |leaf: &Leaf| bytes.get(&leaf.place).copied().unwrap_or_default();
            let leaf =
                one.leaves.iter().map(|shown| shown.leaf).find(|leaf| found(leaf) > leaf.bytes)?;
            let (place, said, found) = (leaf.place, leaf.bytes, found(&leaf));
            Some(refusal(&LeaseError::Understated { place, said, found }))
        };
        let (mut covered, mut defect) = (Covered { by, ..Covered::default() }, None);
        for one in self.check_apart(shown, by).await? {
            match one.and_then(|one| understated(&one).map_or(Ok(one), Err)) {
                Ok(one) => covered.ones.push(one),
                Err(error) if by == By::Client => return Err(error),
                Err(error) => defect = defect.or(Some(error)),
            }
        }
        let paid = |place: &Place| {
            let mut leaves = covered.ones.iter().flat_map(|one| &one.leaves);
            leaves.any(|shown| shown.leaf.place == *place)
        };
        if let Some(error) = defect
            && !places.iter().all(&paid)
        {
            return Err(error);
        }
        if by == By::Peer
            && let Some(record) = records
                .iter()
                .find(|record| !paid(&record.place) && self.was_dropped(&record.place))
        {
            return Err(nobody_pays(&record.place));
        }
        // Peers pass on what they have: some of it came without.
        if by == By::Client
            && !covered.is_empty()
            && let Some(record) = records.iter().find(|record| !paid(&record.place))
        {
            let reason = format!("none of the leases shown is for the record {}", record.id);
            return Err(invalid(reason));
        }
        Ok(covered)
    }

    /// Of the leases that another holder has for a record those that are taken here: they count, and there is room for them. Whose
    /// payer has no more room is left out, or an organisation with a full quota could keep copies of others' records from this
    /// peer by a lease of its own for them; a holder that has it drops nothing as surplus because of this one's copy
    /// ([`Leases::keeps_all`]). That it keeps the record without a lease is believed of what was never dropped here.
    ///
    /// # Errors
    /// `Denied`: it says some and none of them is taken, or the record was dropped here.
    pub(crate) async fn passed_on(
        self: &Arc<Self>,
        record: &Record,
        said: PlaceLeases,
    ) -> Result<Covered, CallError> {
        self.counted(&record.place, record.bytes.len() as u64, said).await
    }

    /// Whether a record may be kept here by what another holder says of who pays for it, before it came.
    ///
    /// # Errors
    /// As [`Leases::passed_on`].
    pub(crate) async fn may_come(
        self: &Arc<Self>,
        place: &Place,
        said: &PlaceLeases,
    ) -> Result<(), CallError> {
        self.counted(place, 0, said.clone()).await.map(drop)
    }

    async fn counted(
        self: &Arc<Self>,
        place: &Place,
        bytes: u64,
        said: PlaceLeases,
    ) -> Result<Covered, CallError> {
        let mut covered = Covered::default();
        let mut ended = self.was_dropped(place);
        let mut no_room = None;
        for shown in said.leases {
            let Ok(some) = self.check_all(vec![shown], By::Peer).await else { continue };
            for one in some.ones {
                let is_of =
                    |shown: &ShownLeaf| shown.leaf.place == *place && bytes <= shown.leaf.bytes;
                let Some(ShownLeaf { leaf, .. }) = one.leaves.first() else { continue };
                if !one.leaves.iter().all(is_of) {
                    continue;
                }
                let within = self.within(&one.checked, By::Peer);
                let refusal = self.table().refuses(&one.checked, pass_id(&one.pass), leaf, within);
                match refusal {
                    Some(Refusal::Forgotten(_)) => ended = true,
                    // It lives on under those that are here: a damaged record whose place they hold may come again.
                    Some(Refusal::Crowded { .. }) | None => covered.ones.push(one),
                    Some(refusal) => no_room = Some(refusal),
                }
            }
        }
        let counts = match said.unleased {
            true => !ended,
            false => !covered.is_empty(),
        };
        match (counts, said.unleased) {
            (true, true) => Ok(Covered::default()),
            (true, false) => Ok(covered),
            (false, _) => {
                let nobody = || "nobody pays for it any more".to_owned();
                let reason = no_room.map_or_else(nobody, |refusal| refusal.to_string());
                Err(CallError::Denied { reason })
            }
        }
    }

    /// How many copies are paid for by those leases that another holder has for a record and that are taken here; as
    /// [`Leases::copies`].
    pub(crate) async fn copies_passed_on(
        self: &Arc<Self>,
        record: &Record,
        said: &PlaceLeases,
    ) -> u8 {
        // Of one that its holder keeps without a lease none counts.
        let covered = self.passed_on(record, said.clone()).await.unwrap_or_default();
        let copies = covered.ones.iter().map(|one| one.checked.terms.redundancy).max();
        told_copies(copies.unwrap_or(0))
    }

    /// Whether another holder keeps what lives at a place for all who pay for it here, by what it says: its leases, or without one
    /// what is here without one. So nobody's lease is nowhere once this peer drops its copy for that one's.
    pub(crate) async fn keeps_all(
        self: &Arc<Self>,
        payers: &Payers,
        place: &Place,
        said: PlaceLeases,
    ) -> bool {
        if said.unleased || payers.unleased {
            return said.unleased;
        }
        let mut theirs = Vec::new();
        for shown in said.leases {
            let Ok(some) = self.check_all(vec![shown], By::Peer).await else { continue };
            let of_place = |one: &&One| one.leaves.iter().any(|shown| shown.leaf.place == *place);
            theirs.extend(some.ones.iter().filter(of_place).map(|one| Payer::of(&one.checked)));
        }
        let now = self.env.clock.unix_s();
        payers.ones.iter().filter(|payer| payer.until > now).all(|payer| payer.is_kept_by(&theirs))
    }

    /// Checks leases by themselves.
    pub(crate) async fn check_all(
        self: &Arc<Self>,
        shown: Vec<Shown>,
        by: By,
    ) -> Result<Covered, CallError> {
        let ones = self.check_apart(shown, by).await?.into_iter().collect::<Result<_, _>>()?;
        Ok(Covered { ones, by, charged: None })
    }

    /// The same, each apart from the others, on a CPU thread where they are many.
    ///
    /// # Errors
    /// `Invalid`: too many.
    async fn check_apart(
        self: &Arc<Self>,
        shown: Vec<Shown>,
        by: By,
    ) -> Result<Vec<Result<One, CallError>>, CallError> {
        let leaves: usize = shown.iter().map(|one| one.leaves.len()).sum();
        if shown.len() > SHOWN_MAX || leaves > SHOWN_LEAVES_MAX {
            return Err(invalid(format!(
                "at most {SHOWN_MAX} leases with {SHOWN_LEAVES_MAX} leaves are shown at once"
            )));
        }
        if shown.len() <= CHECKED_HERE_MAX && leaves <= LEAVES_HERE_MAX {
            return Ok(self.check_each(shown, by));
        }
        let leases = Arc::clone(self);
        Ok(self.env.cpu(move || leases.check_each(shown, by)).await)
    }

    fn check_each(&self, shown: Vec<Shown>, by: By) -> Vec<Result<One, CallError>> {
        let now = self.env.clock.unix_s();
        let one = |shown: Shown| {
            let Shown { lease, pass, leaves } = shown;
            let checked = self.checked(&lease, &pass).map_err(|error| refusal(&error))?;
            let time = match by {
                By::Client => checked.is_fresh(now),
                By::Peer => checked.runs(now),
            };
            time.map_err(|error| refusal(&error))?;
            if self.was_ended_elsewhere(&checked) {
                return Err(refused(&Refusal::Forgotten(checked.id)));
            }
            let (organisation, client) = (checked.organisation, checked.client);
            if by == By::Client && self.directory.is_revoked(&organisation, client.key()) {
                let reason = format!("organisation {organisation} revoked the lease's client");
                return Err(CallError::Denied { reason });
            }
            for leaf in &leaves {
                checked.leaf(leaf).map_err(|error| refusal(&error))?;
            }
            Ok(One { checked, lease, pass, leaves })
        };
        shown.into_iter().map(one).collect()
    }

    /// The lease, its signatures checked now or a moment ago, by this roster.
    fn checked(&self, lease: &Bytes, pass: &Bytes) -> Result<Checked, LeaseError> {
        let roster = self.directory.roster();
        let key = [kept_id(lease), kept_id(pass)];
        {
            let mut seen = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(checked) = seen.get(roster.number(), &key) {
                return Ok(checked);
            }
        }
        let checked = Checked::verify(lease, pass, &roster)?;
        let mut seen = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        seen.add(roster.number(), key, checked.clone());
        Ok(checked)
    }

    /// Lets records be written, which these leases came with: until the answer is dropped nothing goes at their places.
    ///
    /// # Errors
    /// `Busy` where a place is being dropped, `Denied` where a lease alone holds what is there and none came, or where it was dropped
    /// since a peer began to bring it back.
    pub(crate) fn begin(
        self: &Arc<Self>,
        covered: &Covered,
        records: &[Record],
    ) -> Result<Writes, CallError> {
        let wanted = covered.wanted(records, |id| self.store.contains(id));
        let begun = self.table().begin(&wanted).map_err(|refusal| refused(&refusal))?;
        let writes = Writes { leases: Arc::clone(self), begun };
        // From here on nothing is dropped there: what was so before is known.
        let unpaid = wanted.iter().filter(|one| covered.by == By::Peer && !one.paid);
        let gone = |place: &Place| {
            self.was_dropped(place) && !self.store.contains(&RecordId::new(*place.as_bytes()))
        };
        if let Some(place) = unpaid.map(|one| one.place).find(gone) {
            return Err(nobody_pays(&place));
        }
        // The header that a fragment was proven by may have gone since.
        let header_is_gone = |record: &&Record| {
            let header = RecordId::new(*record.place.as_bytes());
            fragments::is_one(record.kind, &record.id, &record.place)
                && !self.store.contains(&header)
                && !records.iter().any(|other| other.id == header)
        };
        match records.iter().find(header_is_gone) {
            Some(record) => Err(refused(&Refusal::Busy(record.place))),
            None => Ok(writes),
        }
    }

    /// Lets what is here at a place be written again: until the answer is dropped nothing goes there. `None` where it is being dropped
    /// just now.
    pub(crate) fn begin_again(self: &Arc<Self>, place: Place) -> Option<Writes> {
        let wanted = [Wanted { place, paid: false, stays: false }];
        let begun = self.table().begin(&wanted).ok()?;
        Some(Writes { leases: Arc::clone(self), begun })
    }

    /// Bytes of these records that are new, by their places.
    fn new_bytes<'a>(records: impl Iterator<Item = &'a Record>) -> BTreeMap<Place, u64> {
        let mut bytes: BTreeMap<Place, u64> = BTreeMap::new();
        for record in records {
            let at = bytes.entry(record.place).or_default();
            *at = at.saturating_add(record.bytes.len() as u64);
        }
        bytes
    }

    /// Writes records with what they are paid by, all or none; of each whether it was new.
    ///
    /// # Errors
    /// As [`Leases::begin`] and [`Leases::admit`], and what the store says by `refused`.
    pub(crate) async fn write(
        self: &Arc<Self>,
        records: Vec<Record>,
        covered: &Covered,
        refused: impl Fn(StoreError) -> CallError + Send,
    ) -> Result<Vec<bool>, CallError> {
        let _writes = self.begin(covered, &records)?;
        let places: BTreeSet<Place> = records.iter().map(|record| record.place).collect();
        let absent = records.iter().filter(|record| !self.store.contains(&record.id));
        let charges = covered.charged.map(|client| (client, Self::new_bytes(absent)));
        let here = |place: &Place| places.contains(place);
        let all_or_nothing = covered.by == By::Client;
        let admission = self.admit(covered, charges.as_ref(), all_or_nothing, here)?;
        // What pays comes first: of a write that a power cut tore nothing stays that nobody pays for.
        let mut all = admission.records.clone();
        let paying = all.len();
        all.extend(records.iter().cloned());
        let mut stored = self.store.put(all).await.map_err(refused)?;
        let new = stored.split_off(paying.min(stored.len()));
        admission.committed(&stored);
        if covered.by == By::Client {
            self.note_stored(places.into_iter());
        }
        if let Some(client) = covered.charged {
            let came = records.iter().zip(&new).filter(|(_, new)| **new);
            let mut table = self.table();
            for (place, bytes) in Self::new_bytes(came.map(|(record, _)| record)) {
                table.charged(&place, Charge { client, bytes });
            }
        }
        Ok(new)
    }

    /// Takes leases for these places, or nothing of them; what is to be written for it. `charges` is who is charged for what is
    /// about to be stored, and for how many bytes where. Unless it is `all_or_nothing`, one that there is no room for, or that its client
    /// ended, is left out where others that came with it hold all of its places, for the reason that [`Leases::passed_on`] has.
    ///
    /// # Errors
    /// `Denied` (an organisation's quota, a forgotten lease, a full table), `Busy` where a place is being dropped.
    fn admit(
        self: &Arc<Self>,
        covered: &Covered,
        charges: Option<&(ClientKey, BTreeMap<Place, u64>)>,
        all_or_nothing: bool,
        places: impl Fn(&Place) -> bool,
    ) -> Result<Admission, CallError> {
        let mut admission =
            Admission { leases: Arc::clone(self), admitted: Vec::new(), records: Vec::new() };
        let (mut held, mut left_out) = (BTreeSet::new(), Vec::new());
        for One { checked, lease, pass, leaves } in &covered.ones {
            let mine: Vec<&ShownLeaf> =
                leaves.iter().filter(|shown| places(&shown.leaf.place)).collect();
            if mine.is_empty() {
                continue;
            }
            let kept_pass = pass_id(pass);
            let plain: Vec<Leaf> = mine.iter().map(|shown| shown.leaf).collect();
            let within = self.within(checked, covered.by);
            // What is here and in no lease's account came without one.
            let here = |place: &Place| self.store.contains(&RecordId::new(*place.as_bytes()));
            let mut table = self.table();
            let admitted = table.admit(checked, kept_pass, &plain, within, here);
            let admitted = match admitted {
                Ok(admitted) => admitted,
                Err(refusal) if refusal.is_of_one() && !all_or_nothing => {
                    drop(table);
                    left_out.push((plain, refusal));
                    continue;
                }
                Err(refusal) => {
                    drop(table);
                    return Err(refused(&refusal));
                }
            };
            held.extend(plain.iter().map(|leaf| leaf.place));
            if admitted.new.is_empty() {
                continue;
            }
            let new: BTreeSet<Place> = admitted.new.iter().map(|leaf| leaf.place).collect();
            let (mut leaves, mut charged) = (Vec::new(), Vec::new());
            for shown in mine.iter().filter(|shown| new.contains(&shown.leaf.place)) {
                let place = shown.leaf.place;
                let comes = || {
                    let (client, bytes) = charges?;
                    Some(Charge { client: *client, bytes: *bytes.get(&place)? })
                };
                if let Some(Charge { client, bytes }) = table.charge_at(&place).or_else(comes) {
                    charged.push(Charged { leaf: leaves.len() as u32, client, bytes });
                }
                leaves.push(((*shown).clone(), table.is_unleased(&place)));
            }
            drop(table);
            let holding = Holding { lease: lease.clone(), pass: kept_pass, leaves, charged };
            let damaged = self.store.upkeep().is_some_and(|upkeep| upkeep.is_damaged(&kept_pass));
            if damaged || !self.store.contains(&kept_pass) {
                admission.records.push(kept(&Kept::Pass(pass.clone())));
            }
            let frame = kept(&Kept::Holding(holding));
            admission.admitted.push((admitted, frame.id));
            admission.records.push(frame);
        }
        let alone = |leaves: &[Leaf]| leaves.iter().any(|leaf| !held.contains(&leaf.place));
        match left_out.iter().find(|(leaves, _)| alone(leaves)) {
            Some((_, refusal)) => Err(refused(refusal)),
            None => Ok(admission),
        }
    }

    /// Takes leases for records that are here; of each lease's leaves whether there is a record. A caller that goes away does not
    /// undo it.
    ///
    /// # Errors
    /// As [`Leases::check`] and [`Leases::admit`], and what the store says.
    pub(crate) async fn show(
        self: &Arc<Self>,
        shown: Vec<Shown>,
        by: By,
    ) -> Result<Vec<Vec<bool>>, CallError> {
        let covered = self.check_all(shown, by).await?;
        let leases = Arc::clone(self);
        let work = async move { leases.take(&covered).await };
        owned(&self.env, work).await.unwrap_or_else(|| Err(crate::shelf::closed()))
    }

    async fn take(self: &Arc<Self>, covered: &Covered) -> Result<Vec<Vec<bool>>, CallError> {
        let shown = covered.ones.iter().flat_map(|one| &one.leaves);
        let places: BTreeSet<Place> = shown.map(|shown| shown.leaf.place).collect();
        let wanted = |place: Place| Wanted { place, paid: true, stays: false };
        let wanted: Vec<Wanted> = places.into_iter().map(wanted).collect();
        let begun = self.table().begin(&wanted).map_err(|refusal| refused(&refusal))?;
        let _writes = Writes { leases: Arc::clone(self), begun };
        let mut held = Vec::with_capacity(covered.ones.len());
        let mut here = BTreeSet::new();
        for one in &covered.ones {
            let mut of_one = Vec::with_capacity(one.leaves.len());
            for ShownLeaf { leaf, .. } in &one.leaves {
                let found = self.bytes_here(&leaf.place, leaf.bytes).await?;
                if let Some(found) = found.filter(|found| *found > leaf.bytes) {
                    let (place, said) = (leaf.place, leaf.bytes);
                    return Err(refusal(&LeaseError::Understated { place, said, found }));
                }
                if found.is_some() {
                    here.insert(leaf.place);
                }
                of_one.push(found.is_some());
            }
            held.push(of_one);
        }
        let mut admission = self.admit(covered, None, true, |place| here.contains(place))?;
        let records = std::mem::take(&mut admission.records);
        if !records.is_empty() {
            let stored = self.store.put(records.clone()).await;
            let new = stored.map_err(|error| crate::shelf::refusal(&error))?;
            admission.records = records;
            admission.committed(&new);
        }
        Ok(held)
    }

    /// How many bytes there are at a place, or as many as are `said` where another lease was taken for no more; `None` where no
    /// record lives there.
    async fn bytes_here(&self, place: &Place, said: u64) -> Result<Option<u64>, CallError> {
        let id = RecordId::new(*place.as_bytes());
        if !self.store.contains(&id) {
            return Ok(None);
        }
        if self.table().bytes_at(place).is_some_and(|bytes| bytes <= said) {
            return Ok(Some(said));
        }
        match self.records_at(place, true).await {
            Ok(Here { records, .. }) => {
                // A stripe's header, and the longest of its fragments.
                let mut bytes = records.iter().map(|(_, bytes)| *bytes);
                let first = bytes.next();
                Ok(first.map(|first| first.saturating_add(bytes.max().unwrap_or(0))))
            }
            Err(error) => Err(crate::shelf::refusal(&error)),
        }
    }
}

/// Leases whose signatures were checked by one roster, in two generations. Each is known by the hashes of lease and pass, one by
/// one: the bytes of one must not reach into the other.
#[derive(Debug, Default)]
pub(super) struct Seen {
    roster: u64,
    generations: [HashMap<[RecordId; 2], Checked>; 2],
}

impl Seen {
    fn get(&mut self, roster: u64, key: &[RecordId; 2]) -> Option<Checked> {
        if self.roster != roster {
            *self = Self { roster, ..Self::default() };
        }
        self.generations.iter().find_map(|generation| generation.get(key)).cloned()
    }

    fn add(&mut self, roster: u64, key: [RecordId; 2], checked: Checked) {
        if self.roster != roster {
            return;
        }
        if self.generations[0].len() >= CHECKED_MAX / 2 {
            self.generations[1] = std::mem::take(&mut self.generations[0]);
        }
        self.generations[0].insert(key, checked);
    }
}
