//! What was put and acknowledged, and what should have become of it by now.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::RecordId;
use crypto::certificate::CLOCK_SKEW_S;
use store::{LogStore, RecordStore};

use crate::check::holdings::Kept;
use crate::world::{Running, World};

/// How long after a lease ended its records may be there: a sweep, and one more that was under way.
pub(crate) const SWEPT_WITHIN_S: u64 = 40;

/// What should have become of something that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is paid for, or nobody needs to.
    Stays,
    /// Its leases end at this time, Unix seconds.
    Ends(u64),
    /// Its author ended them, and some holder heard of it.
    Forgotten,
    /// Its author tried to, and nobody knows how far that went.
    Unsure,
}

/// Something that was acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its author, and where that finds it; none for a record that was stored by itself.
    pub(crate) content: Option<(usize, RecordId)>,
    /// Its records and stripes, as they were acknowledged.
    pub(crate) kept: Vec<Kept>,
    /// What should have become of it.
    pub(crate) fate: Fate,
}

impl Entry {
    /// Whether it must be there at this time, Unix seconds.
    pub(crate) fn is_kept(&self, now_s: u64) -> bool {
        match self.fate {
            Fate::Stays => true,
            Fate::Ends(until) => now_s < until,
            Fate::Forgotten | Fate::Unsure => false,
        }
    }

    /// Whether nothing of it may be there any more.
    pub(crate) fn is_gone(&self, now_s: u64) -> bool {
        match self.fate {
            Fate::Forgotten => true,
            Fate::Ends(until) => now_s > until + CLOCK_SKEW_S + SWEPT_WITHIN_S,
            Fate::Stays | Fate::Unsure => false,
        }
    }
}

/// Everything that was acknowledged in one run.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Vec<Entry>>);

impl Ledger {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be checked at this time.
    pub(crate) fn entries(&self, which: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        self.lock().iter().filter(|entry| which(entry)).cloned().collect()
    }
}

/// Peers that run, but for these. Who has left runs on and serves nobody; whose power went does not run any more.
pub(crate) fn running(world: &World, but: &BTreeSet<usize>) -> Vec<(usize, Running)> {
    let peers = world.peers();
    let all = peers.iter().enumerate().filter(|(number, _)| !but.contains(number));
    let runs = all.filter_map(|(number, peer)| Some((number, peer.running.clone()?)));
    runs.filter(|(_, one)| one.is_alive() && !one.librarian.has_left()).collect()
}

/// What is really on the disks of these, of something that was acknowledged.
pub(crate) fn held(world: &World, kept: &Kept, by: &[(usize, Arc<LogStore>)]) -> Kept {
    let holders = |id: &RecordId| -> BTreeSet<usize> {
        by.iter().filter(|(_, store)| store.contains(id)).map(|(number, _)| *number).collect()
    };
    match kept {
        Kept::Copies { id, kind, .. } => {
            Kept::Copies { id: *id, kind: *kind, holders: holders(id) }
        }
        Kept::Stripe { id, k, holders: all } => {
            let header = holders(id);
            let fragments = fragments(world, id);
            let of = |index| fragments.get(index).map(holders).unwrap_or_default();
            let holders = (0..all.len()).map(|index| &of(index) & &header).collect();
            Kept::Stripe { id: *id, k: *k, holders }
        }
    }
}

/// The fragments of a stripe.
pub(crate) fn fragments(world: &World, id: &RecordId) -> Vec<RecordId> {
    let history = world.history.lock();
    history.stripes.get(id).map(|stripe| stripe.fragments().to_vec()).unwrap_or_default()
}

/// The stores of peers.
pub(crate) fn stores(running: &[(usize, Running)]) -> Vec<(usize, Arc<LogStore>)> {
    running.iter().map(|(number, one)| (*number, Arc::clone(&one.store))).collect()
}
