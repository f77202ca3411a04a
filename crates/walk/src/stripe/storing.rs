//! Storing one stripe: all fragments at once (a quarter at a time where programs crowd for the processors), answered at the success threshold, the slow ones replaced or finished behind.
//!
//! ```text
//!            start n calls            s are durable              n are durable, or nobody is left
//!   rank ----------------> storing -----------------> stored ---------------------------------> done
//!                          |     ^        (the writer goes on; the rest is finished behind)
//!      error, late, unwell v     |
//!                   the next spare, for this fragment alone
//! ```
//! Invariants:
//! 1. At most one call is in flight to a peer, and none has two: so no peer gets two fragments of a stripe.
//! 2. At most n + [`SPARES`] peers have a fragment or are being sent one. A peer that refused or failed is none of them: the next
//!    in rank has its place, as if it were away, so a few dead or full peers leave no stripe short.
//! 3. Peers that are unwell are sent to only while the threshold cannot be reached without them.
//! 4. Of the spares that may have a fragment the best gets it whose organisation has no more of the stripe by it than there is parity,
//!    so that the loss of one organisation leaves k; the best of all where there is none. Else repair would have to move it there.
//! 5. The bytes of a fragment are dropped when it is durable and no call carries them, and the writer is told: what waits behind an answered put is what is owed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crypto::lease::Shown;
use crypto::{OrgId, PeerId};
use document::{Kind, Record};
use env::calls::CallError;
use placement::{SPARES, View};

use super::{OnDurable, StripeRecords};
use crate::candidates::ASKED_MAX;
use crate::core::{BUSY_WAIT_MAX, Core, WALK_LIMIT};
use crate::directory::Standing;
use crate::error::WalkError;
use crate::latency::Size;
use crate::race::{Event, Race};

/// Of a stripe's calls, one in so many runs at a time where many programs want the processors: so many turns, however many
/// fragments there are. Two of 4/8 were measured (`docs/benchmarks.md`).
const TURNS_IN_CROWD: usize = 4;

/// A stripe on its way to its holders.
pub(crate) struct StripeStoring {
    core: Arc<Core>,
    header: Record,
    leases: Arc<Vec<Shown>>,
    /// Those that are not durable yet.
    fragments: Vec<Option<Record>>,
    /// Bytes of each.
    lengths: Vec<usize>,
    /// Told when a fragment is durable and its bytes are held no more.
    durable: OnDurable,
    threshold: u32,
    size: Size,
    /// The peer each fragment belongs to.
    own: Vec<PeerId>,
    /// Those of the rank after them, best first.
    further: VecDeque<PeerId>,
    /// How many of those were taken out.
    used: usize,
    /// Whose each of all these is.
    organisations: BTreeMap<PeerId, OrgId>,
    /// How many fragments one organisation should have at most: as many as are parity.
    most_of_one: usize,
    /// Who failed or refused, or was passed by: the rank goes on as if they were away.
    lost: BTreeSet<PeerId>,
    /// Peers passed by since they are unwell: a last resort.
    unwell: VecDeque<PeerId>,
    /// Who was sent to, whatever came of it.
    asked: BTreeSet<PeerId>,
    /// Fragments that need a call, in order.
    due: VecDeque<usize>,
    /// What is on its way to whom.
    carried: BTreeMap<PeerId, usize>,
    race: Race<Result<(), CallError>>,
    holders: Vec<PeerId>,
    /// Peers that have a fragment which another one has too.
    surplus: usize,
    errors: Vec<(PeerId, CallError)>,
    until: Duration,
}

impl StripeStoring {
    pub(crate) fn new(
        core: Arc<Core>,
        view: &View,
        stripe: StripeRecords,
        leases: Vec<Shown>,
        durable: OnDurable,
    ) -> Self {
        let StripeRecords { header, fragments, threshold } = stripe;
        let count = fragments.len();
        let lengths: Vec<_> = fragments.iter().map(|fragment| fragment.bytes.len()).collect();
        let most_of_one = fragments.iter().filter(|one| one.kind == Kind::Parity).count();
        let mut own = view.holders(&header.place, ASKED_MAX.max(count + SPARES));
        let organisations = own.iter().filter_map(|peer| Some((*peer, owner(view, peer)?)));
        let organisations = organisations.collect();
        let further = own.split_off(count.min(own.len()));
        let size = Size::of(lengths.iter().copied().max().unwrap_or_default());
        Self {
            race: Race::new(core.clone(), size),
            until: core.env.clock.elapsed() + WALK_LIMIT,
            core,
            header,
            leases: Arc::new(leases),
            fragments: fragments.into_iter().map(Some).collect(),
            lengths,
            durable,
            threshold: threshold.min(u32::try_from(count).unwrap_or(u32::MAX)),
            size,
            own,
            further: further.into(),
            used: 0,
            organisations,
            most_of_one,
            lost: BTreeSet::new(),
            unwell: VecDeque::new(),
            asked: BTreeSet::new(),
            due: (0..count).collect(),
            carried: BTreeMap::new(),
            holders: Vec::new(),
            surplus: 0,
            errors: Vec::new(),
        }
    }

    /// Fragments in all.
    pub(crate) fn wanted(&self) -> u32 {
        u32::try_from(self.fragments.len()).unwrap_or(u32::MAX)
    }

    /// Fragments that are durable.
    pub(crate) fn acked(&self) -> u32 {
        u32::try_from(self.holders.len()).unwrap_or(u32::MAX)
    }

    /// Who has one, in the order in which they took it.
    pub(crate) fn holders(&self) -> &[PeerId] {
        &self.holders
    }

    /// Bytes of the fragments that are still owed.
    pub(crate) fn bytes(&self) -> usize {
        self.fragments.iter().flatten().map(|fragment| fragment.bytes.len()).sum()
    }

    /// Goes on until the success threshold is durable.
    ///
    /// # Errors
    /// [`WalkError`] where nobody is left to ask, or [`WALK_LIMIT`] has passed.
    pub(crate) async fn acknowledged(&mut self) -> Result<(), WalkError> {
        // Fewer peers than fragments that must be durable: nothing is sent that could not be kept.
        let possible = self.own.len() + self.further.len() >= self.threshold as usize;
        while self.acked() < self.enough() {
            if !possible || !self.step().await {
                let mut errors = std::mem::take(&mut self.errors);
                errors.extend(self.read_only());
                return Err(WalkError::of_write(self.acked(), self.threshold, errors));
            }
        }
        Ok(())
    }

    /// Fragments at which a writer is answered.
    fn enough(&self) -> u32 {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_on(crate::planted::PlantedBug::AcknowledgeStripeEarly) {
            return self.threshold - 1;
        }
        self.threshold
    }

    /// Goes on until all fragments are durable or nothing more can be done; `on_holder` is told after each. Cancel safe.
    pub(crate) async fn complete(&mut self, mut on_holder: impl FnMut(&[PeerId]) + Send) {
        let mut known = self.holders.len();
        while self.acked() < self.wanted() && self.step().await {
            if self.holders.len() > known {
                known = self.holders.len();
                on_holder(&self.holders);
            }
        }
        self.race.give_up();
        on_holder(&self.holders);
    }

    /// Starts what there is to start and waits for one event; `false` when nothing runs any more.
    async fn step(&mut self) -> bool {
        self.fill();
        match self.race.next(self.until).await {
            Some(Event::Done(peer, outcome)) => self.ended(peer, outcome),
            Some(Event::Late(peer)) => {
                // Behind an answered put nobody waits: there only a peer that is overdue is replaced.
                if self.acked() < self.threshold && self.race.may_send_twice(&peer) {
                    self.replace(&peer);
                }
            }
            Some(Event::Overdue(peer)) => self.replace(&peer),
            Some(Event::Idle) | None => return false,
        }
        true
    }

    fn ended(&mut self, peer: PeerId, outcome: Result<(), CallError>) {
        let Some(index) = self.carried.remove(&peer) else { return };
        match outcome {
            // Of two calls for one fragment the first counts; the second copy is surplus, which repair drops.
            Ok(()) if self.fragments[index].take().is_some() => self.holders.push(peer),
            Ok(()) => self.surplus += 1,
            Err(error) => {
                self.lost.insert(peer);
                self.errors.push((peer, error));
                self.owe(index);
            }
        }
        // Once a fragment: no call begins for one that is durable.
        if self.fragments[index].is_none() && !self.carried.values().any(|of| *of == index) {
            (self.durable)(self.lengths[index]);
        }
    }

    /// Another peer is to get what this one is slow to take.
    fn replace(&mut self, peer: &PeerId) {
        let Some(&index) = self.carried.get(peer) else { return };
        if self.race.replace(peer) {
            tracing::debug!(%peer, index, "a fragment takes long: another peer is to get it");
            self.owe(index);
        }
    }

    /// A fragment needs a call, unless it is durable or one that is not late carries it.
    fn owe(&mut self, index: usize) {
        let carried = |(peer, of): (&PeerId, &usize)| *of == index && self.race.is_counted(peer);
        let running = self.carried.iter().any(carried);
        if self.fragments[index].is_some() && !running && !self.due.contains(&index) {
            self.due.push_back(index);
        }
    }

    fn fill(&mut self) {
        let most = self.calls_max();
        for _ in 0..self.due.len() {
            if self.race.counted() >= most {
                return;
            }
            let Some(index) = self.due.pop_front() else { return };
            let Some(fragment) = self.fragments[index].clone() else { continue };
            match self.holder_for(index) {
                Some(peer) => self.start(peer, index, fragment),
                // It stays owed: a peer that fails may leave room for it.
                None => self.due.push_back(index),
            }
        }
    }

    /// Calls that may run at once: all, unless many programs want the processors. Then a few keep them as busy, and the bytes
    /// that peers hold until a fragment is whole are fewer.
    fn calls_max(&self) -> usize {
        let crowded = !self.due.is_empty() && self.core.env.tasks.crowded();
        if crowded { self.fragments.len().div_ceil(TURNS_IN_CROWD) } else { usize::MAX }
    }

    /// Who is to take a fragment now: the peer it belongs to, a spare, or, where the threshold needs it, one that is unwell.
    fn holder_for(&mut self, index: usize) -> Option<PeerId> {
        let have = self.holders.len() + self.surplus;
        if have + self.race.len() >= self.fragments.len() + SPARES {
            return None;
        }
        let own = self.own.get(index).copied().filter(|own| !self.asked.contains(own));
        if let Some(own) = own {
            if self.is_well(&own) {
                return Some(own);
            }
            self.pass_by(own);
        }
        while let Some(spare) = self.next_spare() {
            if self.is_well(&spare) {
                return Some(spare);
            }
            self.pass_by(spare);
        }
        if self.holders.len() + self.race.counted() >= self.threshold as usize {
            return None;
        }
        let at = own.and_then(|own| self.unwell.iter().position(|peer| *peer == own));
        self.unwell.remove(at.unwrap_or(0))
    }

    /// Takes out the best spare whose organisation has room, of those that may hold a fragment; where there is none, the best.
    fn next_spare(&mut self) -> Option<PeerId> {
        // The first n + SPARES that are not away: each that is lost lets one more in.
        let may_hold = (SPARES + self.lost.len()).saturating_sub(self.used);
        let at = self.further.iter().take(may_hold).position(|spare| self.has_room(spare));
        let spare = self.further.remove(at.unwrap_or(0))?;
        self.used += 1;
        Some(spare)
    }

    /// Whether one more fragment leaves a peer's organisation with no more than there is parity: of those that are durable, those that are
    /// on their way and not late, and those that are still to be sent where they belong.
    fn has_room(&self, peer: &PeerId) -> bool {
        let Some(organisation) = self.organisations.get(peer) else { return true };
        let sent = self.carried.keys().filter(|peer| self.race.is_counted(peer));
        let to_send = self.due.iter().filter_map(|index| self.own.get(*index));
        let to_send = to_send.filter(|own| !self.asked.contains(*own) && !self.lost.contains(*own));
        let all = self.holders.iter().chain(sent).chain(to_send);
        let of_it = all.filter(|holder| self.organisations.get(*holder) == Some(organisation));
        of_it.count() < self.most_of_one
    }

    fn pass_by(&mut self, peer: PeerId) {
        self.lost.insert(peer);
        let standing = self.core.directory.standing(&peer, self.size, true);
        if standing != Standing::Gone && !self.unwell.contains(&peer) {
            self.unwell.push_back(peer);
        }
    }

    fn is_well(&self, peer: &PeerId) -> bool {
        let directory = &self.core.directory;
        self.core.local(peer).is_some()
            || (directory.standing(peer, self.size, true) <= Standing::Slow
                && directory.claim(peer, self.size))
    }

    fn start(&mut self, peer: PeerId, index: usize, fragment: Record) {
        self.asked.insert(peer);
        self.unwell.retain(|unwell| *unwell != peer);
        self.lost.remove(&peer);
        self.carried.insert(peer, index);
        let (core, header) = (self.core.clone(), self.header.clone());
        let leases = self.leases.clone();
        let load = core.load_to(&peer, header.bytes.len() + fragment.bytes.len());
        self.race.start(peer, load, move |limit| async move {
            core.store_fragment(peer, header, fragment, &leases, limit).await
        });
    }

    /// Whoever serves and was known to take no writes was not asked: it is a reason like a refusal.
    fn read_only(&self) -> Vec<(PeerId, CallError)> {
        let standing =
            |peer: &PeerId, write: bool| self.core.directory.standing(peer, self.size, write);
        let silent = self.own.iter().filter(|peer| !self.asked.contains(*peer));
        let silent = silent.filter(|peer| standing(peer, true) == Standing::Gone);
        let silent = silent.filter(|peer| standing(peer, false) < Standing::Stopped);
        let reason = || "it said so before".to_owned();
        silent.map(|peer| (*peer, CallError::ReadOnly { reason: reason() })).collect()
    }
}

/// Whose a peer is.
fn owner(view: &View, peer: &PeerId) -> Option<OrgId> {
    let all = view.candidates();
    let at = all.binary_search_by_key(peer, |candidate| candidate.peer).ok()?;
    all.get(at).map(|candidate| candidate.organisation)
}

impl Core {
    /// Stores a fragment and its stripe's header at one peer; both are durable then. A busy peer is waited for once.
    async fn store_fragment(
        &self,
        peer: PeerId,
        header: Record,
        fragment: Record,
        leases: &[Shown],
        limit: Duration,
    ) -> Result<(), CallError> {
        if let Some(own) = self.local(&peer) {
            own.store_leased(header, leases.to_vec()).await?;
            return own.store_leased(fragment, leases.to_vec()).await.map(drop);
        }
        let (first, of_it) = (header.clone(), fragment.clone());
        match self.store_fragment_once(&peer, first, of_it, leases, limit).await {
            Err(CallError::Busy { retry_after }) => {
                self.env.clock.sleep(retry_after.min(BUSY_WAIT_MAX)).await;
                self.store_fragment_once(&peer, header, fragment, leases, limit).await
            }
            answer => answer,
        }
    }

    async fn store_fragment_once(
        &self,
        peer: &PeerId,
        header: Record,
        fragment: Record,
        leases: &[Shown],
        limit: Duration,
    ) -> Result<(), CallError> {
        let to = self.endpoint(peer)?;
        let bytes = fragment.bytes.len();
        let size = Size::of(bytes);
        let since = self.env.clock.elapsed();
        let records = vec![header, fragment];
        let call = async {
            if leases.is_empty() {
                return self.calls.store_batch(&to, records, limit).await;
            }
            self.calls.store_leased(&to, records, leases.to_vec(), limit).await
        };
        let answer = self.bounded(&to, limit, call).await.and_then(|outcomes| {
            // One answer a record, in order: the fragment counts only with its header.
            if outcomes.len() == 2 {
                return outcomes.into_iter().find_map(Result::err).map_or(Ok(()), Err);
            }
            let reason = "it did not answer for every record of a batch".to_owned();
            Err(CallError::Corrupt { address: to.address.clone(), reason })
        });
        self.note(peer, size, since, &answer);
        let took = self.env.clock.elapsed().saturating_sub(since);
        tracing::debug!(%peer, bytes, ?took, ?limit, error = ?answer.as_ref().err(), "a fragment was sent");
        answer
    }
}
