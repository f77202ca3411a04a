//! Who pays for what is here, and until when: leases shown, kept beside the records, ended, and what nobody pays for dropped.
//!
//! ```text
//!   shown --> checked (signature, pass, path, bytes) --> admitted (account, tombstones) --> written with the records
//!                                                                                                   |
//!   dropped <-- swept (ended: its time, or a Forget) <------------------- held --------------------'
//! ```
//! Leases lie in the record log as records of kind `lease` and are written in one write with the records that they came with
//! (ADR 9 says why), so after a crash there is both or neither, and a record that was dropped by half is dropped again at
//! the next sweep.
//!
//! Limits: see [`table`]; [`CHECKED_MAX`] leases whose signatures are remembered. A damaged record of a lease counts as
//! none: what it paid for stays then.

mod calendar;
mod checking;
mod dropping;
mod elsewhere;
mod endings;
mod table;
mod work;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crypto::genesis::COPIES_MAX;
use crypto::lease::{Charged, Checked, Kept, LeaseError, SignedForget, kept_id};
use crypto::{Listing, OrgId, Place, RecordId};
use document::{Kind, Record};
use env::Env;
use store::{RecordStore, StoreError};
use walk::Directory;

use calendar::Calendar;
use checking::Seen;
pub(crate) use checking::{By, Covered, nobody_pays};
pub(crate) use dropping::{Swept, sweep_whole};
use elsewhere::Elsewhere;
pub(crate) use endings::Frames;
use futures::FutureExt;
pub(crate) use table::{Charge, OtherCopies, Payers};
use table::{Ended, Table, Within};
use tokio::sync::oneshot;
pub(crate) use work::{erase_all, forget, hear_all, sweep_all};

/// Leases whose signatures were checked and that may come again soon: a put shows one to each holder of several records.
const CHECKED_MAX: usize = 4096;

/// Places remembered that were dropped, of which a peer that has not yet dropped them may send a copy.
const DROPPED_MAX: usize = 16_384;
/// When to try again what meets something that is being written or dropped.
const BUSY_AGAIN: Duration = Duration::from_millis(100);

/// What a peer asks of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Whether clients' records are taken with a lease alone.
    pub demanded: bool,
    /// Bytes that each organisation may have here; `None` for as many as there is room for.
    pub quota: Option<u64>,
    /// Bytes that these may have.
    pub quotas: BTreeMap<OrgId, u64>,
    /// How often what nobody pays for any more is dropped.
    pub sweep: Duration,
    /// Within what time after that its bytes are gone from the files.
    pub erase_within: Duration,
    /// How often one other peer is asked for words that ended leases.
    pub ask: Duration,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        Self {
            demanded: false,
            quota: None,
            quotas: BTreeMap::new(),
            sweep: Duration::from_secs(600),
            erase_within: Duration::from_secs(24 * 3600),
            ask: Duration::from_secs(60),
        }
    }
}

impl LeaseSettings {
    /// Bytes that an organisation may have here.
    fn quota_of(&self, organisation: &OrgId) -> u64 {
        self.quotas.get(organisation).copied().or(self.quota).unwrap_or(u64::MAX)
    }
}

/// The leases of one peer.
pub(crate) struct Leases {
    env: Env,
    store: Arc<dyn RecordStore>,
    directory: Arc<Directory>,
    pub(crate) settings: LeaseSettings,
    table: Mutex<Table>,
    /// Records of kind `lease`: they are not counted among the peer's records.
    own: Mutex<Own>,
    checked: Mutex<Seen>,
    /// Places whose records were dropped last: repair brings none of them back.
    dropped: Mutex<Lately>,
    /// Ended leases whose records could not be dropped: the next sweep tries again.
    undone: Mutex<Vec<Ended>>,
    /// When something was dropped first whose bytes may still be in the files.
    erasing: Mutex<Option<Duration>>,
    /// Until when words that ended leases were heard of all organisations, Unix milliseconds.
    heard_ms: AtomicU64,
    calendar: Mutex<Calendar>,
    elsewhere: Mutex<Elsewhere>,
}

impl Leases {
    /// Reads what the store has of leases.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(crate) async fn open(
        env: Env,
        store: Arc<dyn RecordStore>,
        directory: Arc<Directory>,
        settings: LeaseSettings,
    ) -> Result<Arc<Self>, StoreError> {
        let begun = env.clock.elapsed();
        let blocking = env.clone();
        let open = move || {
            let mut read = Reading::default();
            store.each_of(&[Kind::Lease], &mut |part| read.part(part.id, part.payload))?;
            let own = std::mem::take(&mut read.own);
            let here = |place: &Place| store.contains(&RecordId::new(*place.as_bytes()));
            let table = read.table(&directory.roster(), here);
            let (leases, places, tombstones) = table.counts();
            // What was dropped before the start may be in the files still, the last that was leased among it.
            let leased = settings.demanded || leases + tombstones > 0;
            let dead = leased && store.upkeep().is_some_and(|upkeep| upkeep.dead_bytes() > 0);
            if leases + tombstones > 0 {
                tracing::info!(leases, places, tombstones, "leases were read");
            }
            Ok(Arc::new(Self {
                env,
                store,
                directory,
                settings,
                table: Mutex::new(table),
                own: Mutex::new(own),
                checked: Mutex::default(),
                dropped: Mutex::default(),
                undone: Mutex::default(),
                erasing: Mutex::new(dead.then_some(begun)),
                heard_ms: AtomicU64::new(0),
                calendar: Mutex::default(),
                elsewhere: Mutex::default(),
            }))
        };
        blocking.blocking(open).await
    }

    /// Until when words that ended leases were heard of all organisations, Unix milliseconds.
    pub(crate) fn heard_ms(&self) -> u64 {
        self.heard_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn set_heard_ms(&self, until: u64) {
        self.heard_ms.store(until, Ordering::Relaxed);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records of kind `lease` in the store, and their bytes.
    pub(crate) fn own(&self) -> (u64, u64) {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        (own.lengths.len() as u64, own.bytes)
    }

    fn count_own(&self, change: impl FnOnce(&mut Own)) {
        change(&mut self.own.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether a lease holds this place.
    pub(crate) fn covers(&self, place: &Place) -> bool {
        self.table().covers(place)
    }

    /// How many copies of the record at a place are paid for: 0, or 2 to [`COPIES_MAX`].
    pub(crate) fn copies(&self, place: &Place) -> u8 {
        told_copies(self.table().copies(place))
    }

    /// Who pays for what lives at a place.
    pub(crate) fn payers(&self, place: &Place) -> Payers {
        self.table().payers(place)
    }

    /// Where that changed since the last call.
    pub(crate) fn other_copies(&self) -> OtherCopies {
        self.table().other_copies()
    }

    /// Whether every lease of this place has ended, and its record waits for the sweep: it is not passed on.
    pub(crate) fn is_over(&self, place: &Place) -> bool {
        self.table().is_over(place, self.env.clock.unix_s())
    }

    /// Whether the record of this place was dropped lately, and nobody pays for it since.
    pub(crate) fn was_dropped(&self, place: &Place) -> bool {
        #[cfg(feature = "planted-bugs")]
        if resurrects() {
            return false;
        }
        let dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = dropped.places.contains(place);
        drop(dropped);
        lately && !self.covers(place)
    }

    /// Whether a record of this place is here and is not being dropped. The table is asked first: what was dropped between the two is
    /// not in the store.
    pub(crate) fn stays(&self, place: &Place) -> bool {
        let dropping = self.table().is_dropping(place);
        !dropping && self.store.contains(&RecordId::new(*place.as_bytes()))
    }

    /// A client stored something at these places again: it is as if nothing had been dropped there.
    fn note_stored(&self, places: impl Iterator<Item = Place>) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        places.for_each(|place| dropped.remove(&place));
    }

    fn note_dropped(&self, places: impl Iterator<Item = Place>) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        places.for_each(|place| dropped.add(place));
    }

    /// Bytes that organisations pay for here, by the organisation.
    pub(crate) fn accounts(&self) -> Vec<(OrgId, u64)> {
        self.table().accounts().map(|(organisation, bytes)| (*organisation, bytes)).collect()
    }

    /// Leases, places that they hold, and words that ended some.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        self.table().counts()
    }

    /// Within what this lease is taken.
    fn within(&self, lease: &Checked, by: By) -> Within {
        let quota = self.settings.quota_of(&lease.organisation);
        Within { quota, by, organisations: self.directory.roster().organisations().len() }
    }

    /// The quota of an organisation here, where one is set.
    pub(crate) fn quota_of(&self, organisation: &OrgId) -> Option<u64> {
        Some(self.settings.quota_of(organisation)).filter(|quota| *quota < u64::MAX)
    }
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (leases, places, tombstones) = self.counts();
        write!(f, "Leases({leases} for {places} places, {tombstones} ended)")
    }
}

/// Places, the oldest first, each once.
#[derive(Debug, Default)]
struct Lately {
    order: VecDeque<Place>,
    places: HashSet<Place>,
}

impl Lately {
    fn remove(&mut self, place: &Place) {
        if self.places.remove(place) {
            self.order.retain(|other| other != place);
        }
    }

    fn add(&mut self, place: Place) {
        if !self.places.insert(place) {
            return;
        }
        self.order.push_back(place);
        if self.order.len() > DROPPED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.places.remove(&oldest);
        }
    }
}

/// Runs work to its end, also where whoever waits for it goes away; `None` where the peer ends first. What bounds how much of it there
/// is must be inside it.
pub(crate) async fn owned<T: Send + 'static>(
    env: &Env,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    let work = async move {
        let _ = answer.send(work.await);
    };
    env.tasks.spawn(work.boxed()).detach();
    answered.await.ok()
}

#[cfg(feature = "planted-bugs")]
fn resurrects() -> bool {
    crate::planted::is_on(crate::planted::PlantedBug::ResurrectAfterTombstone)
}

/// The records of kind `lease` in the store.
#[derive(Debug, Default)]
struct Own {
    lengths: HashMap<RecordId, u32>,
    bytes: u64,
}

impl Own {
    fn add(&mut self, id: RecordId, length: usize) {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        if self.lengths.insert(id, length).is_none() {
            self.bytes += u64::from(length);
        }
    }

    fn remove(&mut self, id: &RecordId) {
        if let Some(length) = self.lengths.remove(id) {
            self.bytes -= u64::from(length);
        }
    }
}

/// What the store has of leases, as it is read.
#[derive(Default)]
struct Reading {
    passes: HashMap<RecordId, Bytes>,
    holdings: Vec<(RecordId, crypto::lease::Holding)>,
    buried: Vec<(RecordId, Bytes, u64, u64)>,
    own: Own,
}

impl Reading {
    fn part(&mut self, id: RecordId, payload: &[u8]) {
        let bytes = Bytes::copy_from_slice(payload);
        self.own.add(id, payload.len());
        match Kept::decode(&bytes) {
            Ok(Kept::Pass(pass)) => drop(self.passes.insert(id, pass)),
            Ok(Kept::Holding(holding)) => self.holdings.push((id, holding)),
            Ok(Kept::Buried { forget, heard_ms, until }) => {
                self.buried.push((id, forget, heard_ms, until));
            }
            Err(error) => tracing::warn!(record = %id, %error, "a record of a lease is unknown"),
        }
    }

    /// The table of it. Signatures were checked when it was written, and the disk has checksums; what was signed by an
    /// organisation that has left since counts on.
    fn table(self, roster: &crypto::Roster, here: impl Fn(&Place) -> bool) -> Table {
        let mut table = Table::default();
        let network = roster.network_id();
        for (frame, forget, heard_ms, until) in self.buried {
            match SignedForget::verify(forget, &network) {
                Ok(signed) => {
                    let lease = signed.forget.lease;
                    drop(table.bury(lease, signed.bytes, heard_ms, until, frame));
                }
                Err(error) => tracing::warn!(%error, "a word that ended a lease does not count"),
            }
        }
        for (frame, holding) in self.holdings {
            let checked = self
                .passes
                .get(&holding.pass)
                .ok_or(LeaseError::Field("pass"))
                .and_then(|pass| Checked::trusted(&holding.lease, pass, roster));
            match checked {
                Ok(lease) => {
                    let mut leaves: Vec<_> = holding
                        .leaves
                        .iter()
                        .map(|(shown, bare)| (shown.leaf, *bare, None))
                        .collect();
                    for Charged { leaf, client, bytes } in holding.charged {
                        if let Some(leaf) = leaves.get_mut(leaf as usize) {
                            leaf.2 = Some(Charge { client, bytes });
                        }
                    }
                    // Of what was dropped since others hold it, and of what a torn write left alone, nobody pays.
                    leaves.retain(|(leaf, ..)| here(&leaf.place));
                    if !leaves.is_empty() {
                        table.restore(&lease, holding.pass, &leaves, frame);
                    }
                }
                Err(error) => tracing::warn!(%frame, %error, "a lease that is kept does not count"),
            }
        }
        table
    }
}

/// How many copies leases ask for that pay for so many holders at most: 0, or 2 to [`COPIES_MAX`]. For one signs somebody for whom
/// a librarian keeps as many as it finds right.
fn told_copies(holders: u32) -> u8 {
    match holders.min(COPIES_MAX) {
        0 | 1 => 0,
        more => u8::try_from(more).unwrap_or(u8::MAX),
    }
}

/// The record that keeps this.
fn kept(kept: &Kept) -> Record {
    let bytes = kept.encode();
    let id = kept_id(&bytes);
    Record { kind: Kind::Lease, id, place: id.into(), bytes }
}
