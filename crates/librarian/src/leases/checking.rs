//! Leases that came with records, or for records that are here: checked, admitted, written beside them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use crypto::lease::{
    Checked, Holding, Kept, Leaf, LeaseError, SHOWN_LEAVES_MAX, Shown, ShownLeaf, kept_id, pass_id,
};
use crypto::{Class, Classified, Place, RecordId};
use document::Record;
use env::calls::CallError;
use env::calls::leases::{PlaceLeases, SHOWN_MAX};

use super::table::{Admitted, Refusal};
use super::{CHECKED_MAX, Leases, kept};

/// Who shows a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A client, for the first time: it must have been signed just now.
    Client,
    /// A peer, which may pass on any that runs.
    Peer,
}

/// Leases that were checked, each with the leaves that were shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Covered(Vec<One>);

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
        self.0.is_empty()
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

fn invalid(reason: String) -> CallError {
    CallError::Invalid { reason }
}

impl Leases {
    /// Checks leases that came with these records: each record is paid for, and nothing that did not come.
    ///
    /// # Errors
    /// `Invalid` or `Denied`, with what is wrong with which.
    pub(crate) fn check(
        &self,
        shown: Vec<Shown>,
        records: &[Record],
        by: By,
    ) -> Result<Covered, CallError> {
        let mut bytes: BTreeMap<Place, u64> = BTreeMap::new();
        for record in records {
            *bytes.entry(record.place).or_default() += record.bytes.len() as u64;
        }
        let covered = self.check_all(shown, by)?;
        for leaf in covered.0.iter().flat_map(|one| &one.leaves).map(|shown| shown.leaf) {
            let Some(&found) = bytes.get(&leaf.place) else {
                let place = leaf.place;
                let reason = format!("a lease for {place} came, and no record that lives there");
                return Err(invalid(reason));
            };
            if found > leaf.bytes {
                let (place, said) = (leaf.place, leaf.bytes);
                return Err(refusal(&LeaseError::Understated { place, said, found }));
            }
        }
        let paid = |place: &Place| {
            let mut leaves = covered.0.iter().flat_map(|one| &one.leaves);
            leaves.any(|shown| shown.leaf.place == *place)
        };
        if by == By::Peer
            && let Some(record) = records
                .iter()
                .find(|record| !paid(&record.place) && self.was_dropped(&record.place))
        {
            let place = record.place;
            let reason = format!("what lives at {place} was dropped here: nobody pays for it");
            return Err(CallError::Denied { reason });
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

    /// Of the leases that another holder has for a record those that count here; `None` where it says some and none does, or
    /// where the record was dropped here.
    pub(crate) fn passed_on(&self, record: &Record, said: PlaceLeases) -> Option<Covered> {
        if said.unleased {
            return Some(Covered::default());
        }
        let mut covered = Covered::default();
        let buried = |one: &One| self.table().is_buried(&one.checked.id);
        for shown in said.leases {
            if let Ok(some) = self.check(vec![shown], std::slice::from_ref(record), By::Peer) {
                covered.0.extend(some.0.into_iter().filter(|one| !buried(one)));
            }
        }
        (!covered.is_empty()).then_some(covered)
    }

    /// Checks leases by themselves.
    pub(crate) fn check_all(&self, shown: Vec<Shown>, by: By) -> Result<Covered, CallError> {
        let leaves: usize = shown.iter().map(|one| one.leaves.len()).sum();
        if shown.len() > SHOWN_MAX || leaves > SHOWN_LEAVES_MAX {
            return Err(invalid(format!(
                "at most {SHOWN_MAX} leases with {SHOWN_LEAVES_MAX} leaves are shown at once"
            )));
        }
        let now = self.env.clock.unix_s();
        let one = |shown: Shown| {
            let Shown { lease, pass, leaves } = shown;
            let checked = self.checked(&lease, &pass).map_err(|error| refusal(&error))?;
            let time = match by {
                By::Client => checked.is_fresh(now),
                By::Peer => checked.runs(now),
            };
            time.map_err(|error| refusal(&error))?;
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
        Ok(Covered(shown.into_iter().map(one).collect::<Result<_, _>>()?))
    }

    /// The lease, its signatures checked now or a moment ago.
    fn checked(&self, lease: &Bytes, pass: &Bytes) -> Result<Checked, LeaseError> {
        let key = kept_id(&[&lease[..], &pass[..]].concat());
        {
            let cache = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(checked) = cache.iter().find_map(|generation| generation.get(&key)) {
                return Ok(checked.clone());
            }
        }
        let checked = Checked::verify(lease, pass, &self.directory.roster())?;
        let mut cache = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if cache[0].len() >= CHECKED_MAX / 2 {
            cache[1] = std::mem::take(&mut cache[0]);
        }
        cache[0].insert(key, checked.clone());
        Ok(checked)
    }

    /// Takes leases for these places, or nothing of them; what is to be written for it.
    ///
    /// # Errors
    /// `Denied` (an organisation's quota, a forgotten lease, a full table), `Busy` where a place is being dropped.
    pub(crate) fn admit(
        self: &Arc<Self>,
        covered: &Covered,
        places: impl Fn(&Place) -> bool,
    ) -> Result<Admission, CallError> {
        let mut admission =
            Admission { leases: Arc::clone(self), admitted: Vec::new(), records: Vec::new() };
        for One { checked, lease, pass, leaves } in &covered.0 {
            let mine: Vec<&ShownLeaf> =
                leaves.iter().filter(|shown| places(&shown.leaf.place)).collect();
            if mine.is_empty() {
                continue;
            }
            let kept_pass = pass_id(pass);
            let plain: Vec<Leaf> = mine.iter().map(|shown| shown.leaf).collect();
            let quota = self.settings.quota_of(&checked.organisation);
            // What is here and in no lease's account came without one.
            let here = |place: &Place| self.store.contains(&RecordId::new(*place.as_bytes()));
            let mut table = self.table();
            let admitted = table.admit(checked, kept_pass, &plain, quota, here);
            let admitted = match admitted {
                Ok(admitted) => admitted,
                Err(refusal) => {
                    drop(table);
                    return Err(refused(&refusal));
                }
            };
            if admitted.new.is_empty() {
                continue;
            }
            let is_new = |shown: &&&ShownLeaf| admitted.new.contains(&shown.leaf);
            let leaves = mine.iter().filter(is_new);
            let leaves =
                leaves.map(|shown| ((*shown).clone(), table.is_unleased(&shown.leaf.place)));
            let holding =
                Holding { lease: lease.clone(), pass: kept_pass, leaves: leaves.collect() };
            drop(table);
            if !self.store.contains(&kept_pass) {
                admission.records.push(kept(&Kept::Pass(pass.clone())));
            }
            let frame = kept(&Kept::Holding(holding));
            admission.admitted.push((admitted, frame.id));
            admission.records.push(frame);
        }
        Ok(admission)
    }

    /// Takes leases for records that are here; of each lease's leaves whether there is a record.
    ///
    /// # Errors
    /// As [`Leases::check`] and [`Leases::admit`], and what the store says.
    pub(crate) async fn show(
        self: &Arc<Self>,
        shown: Vec<Shown>,
        by: By,
    ) -> Result<Vec<Vec<bool>>, CallError> {
        let covered = self.check_all(shown, by)?;
        let mut held = Vec::with_capacity(covered.0.len());
        let mut here = std::collections::BTreeSet::new();
        for one in &covered.0 {
            let mut of_one = Vec::with_capacity(one.leaves.len());
            for ShownLeaf { leaf, .. } in &one.leaves {
                let found = self.bytes_here(&leaf.place).await?;
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
        let mut admission = self.admit(&covered, |place| here.contains(place))?;
        let records = std::mem::take(&mut admission.records);
        if !records.is_empty() {
            let stored = self.store.put(records.clone()).await;
            let new = stored.map_err(|error| crate::shelf::refusal(&error))?;
            admission.records = records;
            admission.committed(&new);
        }
        Ok(held)
    }

    /// How many bytes there are at a place, as other leases say, or as they are; `None` where no record lives there.
    async fn bytes_here(&self, place: &Place) -> Result<Option<u64>, CallError> {
        let id = RecordId::new(*place.as_bytes());
        if !self.store.contains(&id) {
            return Ok(None);
        }
        if let Some(bytes) = self.table().bytes_at(place) {
            return Ok(Some(bytes));
        }
        match self.records_at(place).await {
            Ok(records) => {
                // A stripe's header, and the longest of its fragments.
                let mut bytes = records.iter().map(|(_, bytes)| *bytes);
                let first = bytes.next();
                Ok(first.map(|first| first.saturating_add(bytes.max().unwrap_or(0))))
            }
            Err(error) => Err(crate::shelf::refusal(&error)),
        }
    }
}
