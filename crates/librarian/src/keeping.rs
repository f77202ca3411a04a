//! Keeping the network whole: what both should hold is compared with other peers, what lacks is fetched or made, and what is
//! too much is dropped. `docs/adr/0008-repair-and-audit.md` says what and why.
//!
//! ```text
//!   observed -> inventory (what is here, by place)       present (who is absent, by words)
//!                   |                                        |
//!                   +----------- epoch (who should hold) ----+
//!                   |
//!   compare (sums, then lists, with one peer after the other)
//!      |                            |
//!   pull (copies that lack here)   mend (claim, survey, fetch k, make, hand out)
//! ```
//! `answers` is the other side of all of it. What is in work is in memory alone: after a crash the same comparisons find it again.
//!
//! Invariants:
//! 1. No word, list or map is believed where bytes could be lost by it: a copy is dropped only when the others proved
//!    theirs, a stripe is mended by what its holders say when it is claimed.
//! 2. What is fetched or made is proven before it is stored or sent, as every record is.
//! 3. One lock at a time, never over a wait.

mod account;
mod answers;
mod ask;
mod audit;
mod budget;
mod claims;
mod compare;
mod epoch;
mod gather;
mod hand_out;
mod inventory;
mod leave;
mod make;
mod map;
mod mend;
mod observed;
mod paces;
mod present;
mod prove;
mod pull;
mod surplus;
mod taken;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crypto::{PeerId, PeerState, Place, RecordId};
use document::{Kind, Stripe};
use env::Task;
use env::calls::keep::Words;
use futures::{FutureExt, StreamExt};
use store::{Placed, StoreError};
use tokio::sync::{Notify, Semaphore};
use version::COPIES_MAX;

use crate::core::Core;
use crate::leases::OtherCopies;
use crate::{fragments, listing};
use audit::Audits;
use budget::Budget;
use claims::Claims;
use epoch::{Absent, Epoch};
use inventory::{Held, Inventory};
use map::StripeMap;
use observed::{Change, is_counted};
pub(crate) use observed::{Fresh, Observed};
use paces::Paces;
use present::{Present, Spans};
pub(crate) use pull::again;
use taken::TimeTaken;
use work::Work;

/// Stripes looked at before others have their turn.
const LOOK_STEP: usize = 4096;
/// Changes counted at a time, under the inventory's lock.
const TAKE_STEP: usize = 1024;
/// The same while the store is read.
const READ_STEP: usize = 4096;
/// Headers read at once.
const HEADERS_AT_ONCE: usize = 8;
/// How often changes are counted.
const TAKE_EVERY: Duration = Duration::from_secs(1);
/// How often a record is looked for that somebody stored and did not wait for.
const MAYBE_TIMES: u8 = 30;
/// Places remembered with the copies that versions there should have.
const PLACES_KEPT_MAX: usize = 1 << 16;
/// Rounds for which another's words count.
const WORDS_ROUNDS: u32 = 3;
/// Times `absent_after` until a peer that hears fewer than half of the organisations believes that the others are gone, and
/// not that it is cut off.
const CUT_OFF: u32 = 10;

/// How a peer keeps the network whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepingOptions {
    /// How often it compares with one other peer, in turn.
    pub compare: Duration,
    /// How long a peer does not answer until the network does without it.
    pub absent_after: Duration,
    /// How long something lacks until it is mended: puts are under way, and a claim goes first to who ranks first.
    pub settle: Duration,
    /// Bytes a second that mending may move, sent and fetched together.
    pub bytes_s: u64,
    /// How long the same peers are there until what is too much is dropped.
    pub surplus_after: Duration,
    /// How often it asks one other peer, in turn, to prove what both should hold.
    pub audit: Duration,
}

impl Default for KeepingOptions {
    fn default() -> Self {
        Self {
            compare: Duration::from_secs(10),
            absent_after: Duration::from_secs(180),
            settle: Duration::from_secs(15),
            bytes_s: 64 << 20,
            surplus_after: Duration::from_secs(600),
            audit: Duration::from_secs(10),
        }
    }
}

/// What one peer does to keep the network whole.
pub(crate) struct Keeping {
    options: KeepingOptions,
    fresh: Arc<Fresh>,
    /// `None` until the store was read, and while this peer is alone.
    inventory: Mutex<Option<Inventory>>,
    present: Mutex<Present>,
    claims: Mutex<Claims>,
    work: Mutex<Work>,
    agreed: Mutex<Agreed>,
    budget: Budget,
    audits: Mutex<Audits>,
    paces: Mutex<Paces>,
    /// With whom all was compared last, until that peer is challenged.
    compared_last: Mutex<Option<PeerId>>,
    /// The fragment of a stripe that this peer is about to drop: it says of it no more that it has it, so that of two that drop at once
    /// neither counts on the other, whatever became of their claims.
    dropping: Mutex<Option<(RecordId, u8)>>,
    /// What others' comparisons took of this peer's time.
    taken: Mutex<TimeTaken>,
    /// Of challenges that are answered at once.
    proving: Semaphore,
    /// Who is being answered one now.
    proved: Mutex<BTreeSet<PeerId>>,
    /// Of those that bring inventory and epoch up to now: one at a time.
    refreshing: Semaphore,
    /// How many copies of versions at a place there should be, by the policies as of the last reading.
    copies: Mutex<HashMap<Place, u8>>,
    wake: Notify,
    /// Notified when somebody asks to look now.
    asked: Notify,
    /// Notified when others are to be compared with.
    compare: Notify,
    /// Whether those are all of them.
    compare_all: AtomicBool,
    /// Whether this peer hands over what it holds and leaves.
    leaving: AtomicBool,
    /// Notified when it begins.
    leaves: Notify,
    /// Whether all was handed over.
    left: AtomicBool,
    /// Of a peer that leaves: how many copies each other lacks that should have them, as of the last look.
    takers: Mutex<BTreeMap<PeerId, u64>>,
    /// Of a peer that leaves: fragments that others took, by their ids. It has them still.
    given: Mutex<BTreeMap<RecordId, leave::Given>>,
    /// Whether versions here may lack what came with them, and are looked for.
    bereft: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks is complete in itself, so what a panic elsewhere left is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// With whom this peer has compared under one epoch.
#[derive(Default)]
struct Agreed {
    /// The epoch's.
    hash: [u8; 16],
    with: BTreeSet<PeerId>,
}

impl Agreed {
    fn has(&self, epoch: &Epoch, peer: &PeerId) -> bool {
        self.hash == epoch.hash && self.with.contains(peer)
    }

    fn add(&mut self, hash: [u8; 16], peer: PeerId) {
        if self.hash != hash {
            *self = Self { hash, with: BTreeSet::new() };
        }
        self.with.insert(peer);
    }
}

/// What is being done, for people and scripts.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RepairStatus {
    /// Peers that the network does without now, hex.
    pub absent: Vec<String>,
    /// Of other peers, those that this one says it cannot reach.
    pub unreachable: usize,
    /// Of other peers, those that fail what they are asked to prove.
    pub faulty: usize,
    /// Copies that should be here and are not yet.
    pub copies_lacking: usize,
    /// Stripes known here to lack fragments.
    pub stripes_due: usize,
    /// Of those, stripes that nobody can read now.
    pub stripes_unreadable: usize,
    /// Fragments that they lack.
    pub fragments_missing: usize,
    /// Stripes being mended by this peer.
    pub mending: usize,
    /// Bytes a second that mending may move.
    pub bytes_s: u64,
    /// Copies fetched since the start.
    pub copies_fetched: u64,
    /// Fragments made since the start.
    pub fragments_made: u64,
    /// Fragments moved since the start.
    pub fragments_moved: u64,
    /// Bytes fetched since the start.
    pub fetched_bytes: u64,
    /// Bytes sent since the start.
    pub sent_bytes: u64,
    /// Surplus records dropped since the start.
    pub dropped: u64,
    /// What each other peer proved of what it should hold, by its key.
    pub audits: Vec<AuditStatus>,
    /// Whether this peer hands over what it holds.
    pub leaving: bool,
    /// Of a peer that leaves: what is not handed over yet, as of its last look.
    pub left_to_hand_over: u64,
    /// Of a peer that leaves: who lacks copies yet that it should take, as of the last look.
    pub takers: Vec<TakerStatus>,
    /// Other peers with which this one has not compared since the last of them came or went.
    pub unknown: usize,
    /// Whether nothing is left to be done here: it was compared with all others, and all that any of them has was found. Stripes
    /// that nobody can read now are none of it, once their holders were asked.
    pub settled: bool,
}

/// Who has yet to take what a peer hands over that leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TakerStatus {
    /// Its key, hex.
    pub peer: String,
    /// Copies that it lacks.
    pub copies: u64,
}

/// What one peer proved of what it should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AuditStatus {
    /// Its key, hex.
    pub peer: String,
    /// Items proven since the start.
    pub proven: u64,
    /// Items that were not, since the start.
    pub failed: u64,
    /// Of the last 64 items asked for, how many there were.
    pub last: u32,
    /// Of those, how many failed.
    pub last_failed: u32,
    /// The 95th percentile of its last answers, milliseconds.
    pub usual_ms: u64,
    /// Whether this peer says that it is faulty.
    pub faulty: bool,
}

/// Starts what keeps the network whole.
pub(crate) fn start(core: &Arc<Core>) -> Vec<Task> {
    let Some(keeping) = &core.keeping else { return Vec::new() };
    let with = || (Arc::clone(core), Arc::clone(keeping));
    let spawn = |work: futures::future::BoxFuture<'static, ()>| core.env.tasks.spawn(work);
    let ((a, b), (c, d), (e, f)) = (with(), with(), with());
    let ((g, h), (i, j), (k, l)) = (with(), with(), with());
    let ((m, n), (o, p), (q, r)) = (with(), with(), with());
    vec![
        spawn(take_all(m, n).boxed()),
        spawn(compare::refresh_all(o, p).boxed()),
        spawn(compare::compare_all(a, b).boxed()),
        spawn(pull::pull_all(c, d).boxed()),
        spawn(mend::mend_all(e, f).boxed()),
        spawn(surplus::offer_all(q, r).boxed()),
        spawn(surplus::drop_all(g, h).boxed()),
        spawn(leave::leave_all(i, j).boxed()),
        spawn(audit::audit_all(k, l).boxed()),
    ]
}

impl Keeping {
    pub(crate) fn new(options: KeepingOptions, fresh: Arc<Fresh>) -> Arc<Self> {
        Arc::new(Self {
            options,
            fresh,
            inventory: Mutex::default(),
            present: Mutex::default(),
            claims: Mutex::default(),
            work: Mutex::default(),
            agreed: Mutex::default(),
            budget: Budget::new(options.bytes_s),
            audits: Mutex::default(),
            paces: Mutex::default(),
            compared_last: Mutex::default(),
            dropping: Mutex::default(),
            taken: Mutex::default(),
            proving: Semaphore::new(prove::PROVEN_AT_ONCE),
            proved: Mutex::default(),
            refreshing: Semaphore::new(1),
            copies: Mutex::default(),
            wake: Notify::new(),
            asked: Notify::new(),
            compare: Notify::new(),
            compare_all: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            leaves: Notify::new(),
            left: AtomicBool::new(false),
            takers: Mutex::default(),
            given: Mutex::default(),
            bereft: AtomicBool::new(false),
        })
    }

    /// Where a record lives that is counted here, though the disk damaged what says so.
    pub(crate) fn place_of(&self, id: &RecordId) -> Option<Place> {
        locked(&self.inventory).as_ref().and_then(|inventory| inventory.place_of(id))
    }

    /// Whether there is somebody to compare with, and it is known what is here.
    pub(crate) fn is_comparing(&self) -> bool {
        self.epoch().is_some()
    }

    /// Waits until repair may go on at its pace.
    pub(crate) async fn wait(&self, core: &Core) {
        self.budget.wait(&core.env).await;
    }

    /// Notes whether versions here may lack what came with them, and are looked for.
    pub(crate) fn set_bereft(&self, bereft: bool) {
        self.bereft.store(bereft, Ordering::SeqCst);
    }

    /// How long others' words count.
    fn words_for(&self, peers: usize) -> Duration {
        let round = self.options.compare * u32::try_from(peers.max(1)).unwrap_or(u32::MAX);
        round * WORDS_ROUNDS
    }

    /// The epoch now; `None` while nothing is compared.
    fn epoch(&self) -> Option<Arc<Epoch>> {
        locked(&self.inventory).as_ref().map(|inventory| Arc::clone(inventory.epoch()))
    }

    fn own_words(&self) -> Words {
        locked(&self.present).own()
    }

    /// Brings epoch and inventory up to now; whether all are to be compared with, since the epoch or the own words changed.
    /// `None` where this peer is alone.
    async fn refresh(&self, core: &Core) -> Result<Option<bool>, StoreError> {
        let Ok(_one) = self.refreshing.acquire().await else { return Ok(None) };
        let view = core.directory.view();
        if view.len() < 2 {
            self.fresh.leave();
            *locked(&self.inventory) = None;
            return Ok(None);
        }
        let (who, words) = self.who(core, &view);
        let changes = self.fresh.take();
        let known = locked(&self.inventory).is_some();
        let Some(changes) = changes.filter(|_| known) else {
            #[cfg(feature = "planted-bugs")]
            if !known {
                crate::planted::starts(core.own, core.store.stats().records);
            }
            let epoch = Arc::new(Epoch::new(Arc::clone(&core.genesis), view, who));
            // Changes were lost: where it cannot be read now, what was known is not what is here, and the next call reads again.
            let inventory = self.read(core, epoch).await.inspect_err(|_| {
                *locked(&self.inventory) = None;
            })?;
            *locked(&self.inventory) = Some(inventory);
            self.look_at_all(core).await;
            return Ok(Some(true));
        };
        self.take(core, changes).await;
        self.take_paid(core).await;
        let current = self.epoch().is_some_and(|epoch| epoch.is_of(&view, &who));
        if current {
            // What this peer says of others is told to all when it is new: nobody else may have seen it yet.
            return Ok(Some(words));
        }
        let epoch = Arc::new(Epoch::new(Arc::clone(&core.genesis), view, who));
        // Nobody else takes it away: this is the one task that changes epochs.
        let Some(mut inventory) = locked(&self.inventory).take() else { return Ok(Some(true)) };
        let turned = core.env.cpu(move || {
            inventory.turn(epoch);
            inventory
        });
        let turned = turned.await;
        *locked(&self.inventory) = Some(turned);
        if let Some(epoch) = self.epoch() {
            let should_be_here =
                |place: &Place| epoch.first(place, COPIES_MAX as usize).contains(&core.own);
            let mut work = locked(&self.work);
            work.only_those(should_be_here);
            work.anew(core.env.clock.elapsed());
        }
        self.look_at_all(core).await;
        Ok(Some(true))
    }

    /// Who is absent now, by all words, and whether the own ones are others than before.
    fn who(&self, core: &Core, view: &placement::View) -> (Absent, bool) {
        let (peers, now) = (core.directory.peers(), core.env.clock.elapsed());
        let leaving = peers.iter().filter(|status| status.state == PeerState::Leaving);
        let mut present = locked(&self.present);
        let leaving = present.leaving(leaving.map(|status| status.peer), now);
        let changed = present.look(&peers, view, &core.own, now, self.options.absent_after);
        let spans = Spans {
            fresh: self.words_for(view.len()),
            cut_off: self.options.absent_after * CUT_OFF,
        };
        let absent = present.absent(view, &core.own, leaving, now, spans);
        let cut_off = present.is_cut_off(now, self.options.absent_after);
        drop(present);
        if core.shelf.set_cut_off(cut_off) {
            match cut_off {
                true => tracing::warn!(
                    "fewer than half of the organisations are heard: clients read here, and write nothing, until more are"
                ),
                false => tracing::info!("enough organisations are heard again: clients write here"),
            }
        }
        (absent, changed)
    }

    /// Reads the store.
    async fn read(&self, core: &Core, epoch: Arc<Epoch>) -> Result<Inventory, StoreError> {
        self.fresh.listen();
        // What is paid for is asked anew of each.
        let _ = core.leases.other_copies();
        // What policies say may be new.
        locked(&self.copies).clear();
        let mut inventory = Inventory::new(core.own, epoch);
        let mut from = RecordId::new([0; 32]);
        loop {
            let (listed, next) = listing::part(&*core.store, &from).await?;
            let changes: Vec<Change> = listed.into_iter().map(Change::Stored).collect();
            inventory = self.counted(core, inventory, changes).await;
            // What was listed before it changed is counted by now, so this is the later word of each.
            for some in self.fresh.take_many().chunks(READ_STEP) {
                inventory = self.counted(core, inventory, some.to_vec()).await;
            }
            match next {
                Some(after) => from = after,
                None => return Ok(inventory),
            }
        }
    }

    /// Counts what is there, or changed, in an inventory that nobody sees yet: all of it is looked at when all is read.
    async fn counted(
        &self,
        core: &Core,
        mut inventory: Inventory,
        changes: Vec<Change>,
    ) -> Inventory {
        let found = self.found(core, changes).await;
        let count = move || {
            for found in found {
                let _ = apply(&mut inventory, found);
            }
            inventory
        };
        core.env.cpu(count).await
    }

    /// Takes what changed in the store.
    async fn take(&self, core: &Core, changes: Vec<Change>) {
        for some in changes.chunks(TAKE_STEP) {
            let found = self.found(core, some.to_vec()).await;
            let stripes: BTreeSet<RecordId> = {
                let mut inventory = locked(&self.inventory);
                let Some(inventory) = inventory.as_mut() else { return };
                found.into_iter().flat_map(|found| apply(inventory, found)).collect()
            };
            // A stripe that is new may lack what a holder has that is absent: no change of peers will say so.
            self.look_at(core, &stripes.into_iter().collect::<Vec<RecordId>>());
            tokio::task::yield_now().await;
        }
    }

    /// Counts what is here of a stripe whose header could not be read when that was looked at, and can be now.
    pub(crate) fn header_is_back(&self, core: &Core, stripe: &RecordId, header: &Stripe) {
        let place = Place::from(*stripe);
        let here = header.fragments().iter().filter(|id| core.shelf.holds(id));
        // Which of the two kinds of fragments it is makes no difference.
        let stored = here.map(|id| Change::Stored(Placed { id: *id, kind: Kind::Page, place }));
        self.fresh.again(stored.collect());
    }

    /// Counts as a copy, too, what is here as a fragment of a stripe and lives at its own id: the store knows one place of each.
    async fn is_here(&self, core: &Core, id: &RecordId, place: &Place) {
        let counted = locked(&self.inventory).as_ref().is_none_or(|all| all.has_copy(id, place));
        if counted || *place != Place::from(*id) {
            return;
        }
        if let Ok(Some(record)) = core.shelf.get(id).await {
            let placed = Placed { id: *id, kind: record.kind, place: *place };
            self.fresh.again(vec![Change::Stored(placed)]);
        }
    }

    /// Takes how many copies are paid for, where that changed.
    async fn take_paid(&self, core: &Core) {
        match core.leases.other_copies() {
            OtherCopies::At(places) => {
                let places: Vec<Place> = places.into_iter().collect();
                for some in places.chunks(TAKE_STEP) {
                    {
                        let mut inventory = locked(&self.inventory);
                        let Some(inventory) = inventory.as_mut() else { return };
                        some.iter().for_each(|at| inventory.pay(at, core.leases.copies(at)));
                    }
                    tokio::task::yield_now().await;
                }
            }
            OtherCopies::Many => {
                for part in 0..inventory::PARTS {
                    {
                        let mut inventory = locked(&self.inventory);
                        let Some(inventory) = inventory.as_mut() else { return };
                        inventory.pay_part(part, |place| core.leases.copies(place));
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// What is to be counted of changes: fragments by their headers, versions by their policies.
    async fn found(&self, core: &Core, changes: Vec<Change>) -> Vec<Found> {
        let changes = self.certain(core, changes);
        let headers = headers(core, &changes).await;
        let mut all = Vec::with_capacity(changes.len());
        for change in changes {
            let found = match change {
                Change::Stored(placed) if is_fragment(&placed) => {
                    let stripe = RecordId::new(*placed.place.as_bytes());
                    let at = headers.binary_search_by_key(&stripe, |(id, _)| *id).ok();
                    let header = at.and_then(|at| headers.get(at)).map(|(_, header)| header);
                    // A fragment whose header is damaged here is not counted until that is mended.
                    let index = header.and_then(|header| header.index_of(&placed.id));
                    let index = index.and_then(|index| u8::try_from(index).ok());
                    let Some((header, index)) = header.zip(index) else { continue };
                    Found::Fragment { id: placed.id, stripe, index, header: Arc::clone(header) }
                }
                Change::Stored(placed) if placed.kind == Kind::Version => {
                    let copies = self.copies_of(core, &placed).await;
                    Found::Copy(Held { placed, copies })
                }
                Change::StoredHere(placed) => Found::Copy(Held { placed, copies: 1 }),
                Change::Stored(placed) if placed.kind.is_document() && is_counted(placed.kind) => {
                    let copies = core.leases.copies(&placed.place);
                    Found::Copy(Held { placed, copies })
                }
                Change::Stored(placed) if is_counted(placed.kind) => {
                    Found::Copy(Held { placed, copies: 0 })
                }
                Change::Stored(_) | Change::Maybe(..) => continue,
                Change::Dropped(id) => Found::Dropped(id),
            };
            all.push(found);
        }
        all
    }

    /// Of what is perhaps there: what is. What is not yet is looked for once more.
    fn certain(&self, core: &Core, changes: Vec<Change>) -> Vec<Change> {
        let mut again = Vec::new();
        let mut all = Vec::with_capacity(changes.len());
        for change in changes {
            match change {
                Change::Maybe(placed, _) if core.store.contains(&placed.id) => {
                    all.push(Change::Stored(placed));
                }
                Change::Maybe(placed, times) if times < MAYBE_TIMES => {
                    again.push(Change::Maybe(placed, times + 1));
                }
                Change::Maybe(..) => {}
                change => all.push(change),
            }
        }
        if !again.is_empty() {
            self.fresh.again(again);
        }
        all
    }

    /// How many copies of a version its object's policy asks for; 0: it says nothing. Asked of one version of each place.
    async fn copies_of(&self, core: &Core, placed: &Placed) -> u8 {
        if let Some(known) = locked(&self.copies).get(&placed.place) {
            return *known;
        }
        let copies = core.objects.copies_of(&placed.id).await.unwrap_or(0);
        let copies = u8::try_from(copies).unwrap_or(u8::MAX);
        let mut known = locked(&self.copies);
        if known.len() >= PLACES_KEPT_MAX {
            known.clear();
        }
        known.insert(placed.place, copies);
        copies
    }

    /// Looks at every stripe for what it lacks, and at those that were to be mended.
    async fn look_at_all(&self, core: &Core) {
        let mut ids: BTreeSet<RecordId> = locked(&self.work).due.keys().copied().collect();
        if let Some(inventory) = locked(&self.inventory).as_ref() {
            ids.extend(inventory.stripes.keys());
        }
        let ids: Vec<RecordId> = ids.into_iter().collect();
        for some in ids.chunks(LOOK_STEP) {
            self.look_at(core, some);
            tokio::task::yield_now().await;
        }
    }

    /// Looks at stripes for what they lack.
    fn look_at(&self, core: &Core, stripes: &[RecordId]) {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_blind(&core.own) {
            return;
        }
        let now = core.env.clock.elapsed();
        let mut states = Vec::with_capacity(stripes.len());
        {
            let inventory = locked(&self.inventory);
            let Some(inventory) = inventory.as_ref() else { return };
            for id in stripes {
                states.push((*id, mend::lacks(inventory, id, &core.own)));
            }
        }
        let mut work = locked(&self.work);
        let mut any = false;
        for (id, state) in states {
            any |= state.is_some();
            work.stripe(id, state, now);
        }
        drop(work);
        if any {
            self.wake.notify_one();
        }
    }

    /// Those that answer and with which nothing was compared under this epoch.
    fn unknown(&self, core: &Core) -> Vec<PeerId> {
        let epoch = self.epoch();
        // While the store is read it knows nothing, and says so.
        let view =
            epoch.as_ref().map_or_else(|| core.directory.view(), |all| Arc::clone(&all.view));
        let agreed = locked(&self.agreed);
        let others = view.candidates().iter().map(|candidate| candidate.peer);
        let is_unknown = |peer: &PeerId| match &epoch {
            Some(epoch) => epoch.answers(peer) && !agreed.has(epoch, peer),
            None => true,
        };
        others.filter(|peer| *peer != core.own && is_unknown(peer)).collect()
    }

    /// What each other peer proved, by its key.
    fn audits(&self) -> Vec<AuditStatus> {
        let audits = locked(&self.audits);
        let mut all: Vec<AuditStatus> = audits
            .all()
            .map(|(peer, account)| {
                let (last, last_failed) = account.last();
                AuditStatus {
                    peer: peer.to_string(),
                    proven: account.proven,
                    failed: account.failed,
                    last,
                    last_failed,
                    usual_ms: u64::try_from(account.usual().as_millis()).unwrap_or(u64::MAX),
                    faulty: account.is_faulty(),
                }
            })
            .collect();
        all.sort_by(|one, other| one.peer.cmp(&other.peer));
        all
    }

    /// What is being done.
    pub(crate) fn status(&self, core: &Core) -> RepairStatus {
        let mut status = RepairStatus { bytes_s: self.budget.bytes_s(), ..RepairStatus::default() };
        if let Some(epoch) = self.epoch() {
            status.absent = epoch.absent.iter().map(ToString::to_string).collect();
        }
        let words = self.own_words();
        (status.unreachable, status.faulty) = (words.absent.len(), words.faulty.len());
        {
            let work = locked(&self.work);
            status.copies_lacking = work.lacking();
            status.stripes_due = work.due.len();
            let lacks = || work.due.values().map(|due| due.lack);
            status.stripes_unreadable = lacks().filter(|lack| lack.spare < 0).count();
            status.fragments_missing = lacks().map(|lack| lack.missing).sum();
            status.mending = work.mending;
            status.settled = work.is_done();
        }
        status.audits = self.audits();
        let counts = &core.metrics.keeping;
        status.copies_fetched = counts.copies.get();
        status.fragments_made = counts.made.get();
        status.fragments_moved = counts.moved.get();
        status.fetched_bytes = counts.fetched_bytes.get();
        status.sent_bytes = counts.sent_bytes.get();
        status.dropped = counts.dropped.get();
        status.leaving = self.is_leaving();
        status.left_to_hand_over = u64::try_from(counts.to_hand_over.get()).unwrap_or(0);
        let takers = locked(&self.takers);
        let taker = |(peer, copies): (&PeerId, &u64)| TakerStatus {
            peer: peer.to_string(),
            copies: *copies,
        };
        status.takers = takers.iter().map(taker).collect();
        drop(takers);
        status.unknown = self.unknown(core).len();
        status.settled &= status.unknown == 0
            && status.copies_lacking == 0
            && !self.bereft.load(Ordering::SeqCst);
        status
    }
}

/// Takes what changed in the store every second, so that little is kept for it.
async fn take_all(core: Arc<Core>, keeping: Arc<Keeping>) {
    while core.beat(TAKE_EVERY).await {
        // Whoever refreshes takes it too.
        let Ok(_one) = keeping.refreshing.try_acquire() else { continue };
        if locked(&keeping.inventory).is_none() {
            continue;
        }
        let Some(changes) = keeping.fresh.take() else { continue };
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = keeping.take(&core, changes) => {}
        }
    }
}

/// The headers of the stripes of which fragments are among the changes, ascending.
async fn headers(core: &Core, changes: &[Change]) -> Vec<(RecordId, Arc<Stripe>)> {
    let mut stripes = BTreeSet::new();
    for change in changes {
        if let Change::Stored(placed) = change
            && is_fragment(placed)
        {
            stripes.insert(RecordId::new(*placed.place.as_bytes()));
        }
    }
    let mut headers = Vec::with_capacity(stripes.len());
    let read = stripes.into_iter().map(|id| async move { (id, core.shelf.stripe(&id).await) });
    // In their order.
    let mut read = futures::stream::iter(read).buffered(HEADERS_AT_ONCE);
    while let Some((id, stripe)) = read.next().await {
        if let Ok(Some(stripe)) = stripe {
            headers.push((id, Arc::new(stripe)));
        }
    }
    headers
}

fn is_fragment(placed: &Placed) -> bool {
    fragments::is_one(placed.kind, &placed.id, &placed.place)
}

/// Something to count.
enum Found {
    Copy(Held),
    Fragment { id: RecordId, stripe: RecordId, index: u8, header: Arc<Stripe> },
    Dropped(RecordId),
}

/// Counts a change; the stripes that have another fragment here, or one less. What was dropped and is not found was never counted.
fn apply(inventory: &mut Inventory, found: Found) -> Vec<RecordId> {
    match found {
        Found::Copy(held) => {
            inventory.add_copy(held);
            Vec::new()
        }
        Found::Fragment { id, stripe, index, header } => {
            inventory.add_fragment(id, stripe, index, |epoch, names| {
                StripeMap::by_rank(&stripe, &header, epoch, names)
            });
            vec![stripe]
        }
        Found::Dropped(id) => match inventory.drop_copy(&id) {
            true => Vec::new(),
            false => inventory.drop_fragment(&id),
        },
    }
}
