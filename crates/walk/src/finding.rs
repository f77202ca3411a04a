//! Finding one record: down the rank from its likeliest holder, each answer proven.
//!
//! One peer is asked; where it says "not here", more are asked at once ([`WIDTH_MAX`] at most), where it is late, one more
//! is. The first proven answer counts. At the end of the rank the answers decide:
//!
//! - somebody sent bytes that do not prove themselves, and everybody else said something: [`WalkError::Corrupt`];
//! - the first N of the rank do not have it, or of the first N + 4 fewer than a writer waits for (W) gave no answer and the
//!   others do not have it, and the same under the roster before: [`WalkError::NotFound`]; of a fragment of a stripe, which has one
//!   holder, all that may be asked must say so;
//! - else it may exist where nobody answered: [`WalkError::Unavailable`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crypto::{PeerId, Place};
use document::Kind;
use env::calls::CallError;
use placement::{Redundancy, View, redundancy};

use crate::candidates::{ASKED_MAX, Candidates, NEAR_EXTRA};
use crate::core::{Answer, BUSY_WAIT_MAX, Core, LAST_RESORT_LIMIT, WALK_LIMIT, Wanted};
use crate::directory::Standing;
use crate::error::{ERRORS_MAX, WalkError, alike, could_not_ask};
use crate::gather::Gather;
use crate::latency::Size;
use crate::line::Load;
use crate::proof::Proven;
use crate::race::{Event, Race};

/// Peers asked at once for one record.
pub const WIDTH_MAX: usize = 8;
/// Peers asked first for a fragment of a stripe.
const FRAGMENT_WIDTH: usize = 4;
/// How often newly learnt peers are asked too.
const VIEWS_MAX: usize = 3;

/// What was found, and where.
pub(crate) struct FoundAt {
    pub(crate) proven: Proven,
    pub(crate) from: PeerId,
    pub(crate) degraded: bool,
}

/// A record being looked for.
pub(crate) struct Finding {
    core: Arc<Core>,
    wanted: Wanted,
    size: Size,
    view: Arc<View>,
    /// By the roster before, where that differs.
    before: Option<Arc<View>>,
    views: usize,
    candidates: Candidates,
    race: Race<Answer>,
    /// Those with which it asks.
    gather: Option<Arc<Gather>>,
    asked: BTreeSet<PeerId>,
    not_here: BTreeSet<PeerId>,
    corrupt: Vec<PeerId>,
    errors: Vec<(PeerId, CallError)>,
    retried_busy: bool,
    refreshed: bool,
    until: Duration,
}

impl Finding {
    pub(crate) fn new(core: Arc<Core>, wanted: Wanted) -> Self {
        let (view, before) = core.directory.views();
        let size = wanted.size();
        let candidates = candidates(&core, &wanted, &view, before.as_deref());
        let race = Race::new(core.clone(), size);
        let until = core.env.clock.elapsed() + WALK_LIMIT;
        Self {
            core,
            wanted,
            size,
            view,
            before,
            views: 1,
            candidates,
            race,
            gather: None,
            asked: BTreeSet::new(),
            not_here: BTreeSet::new(),
            corrupt: Vec::new(),
            errors: Vec::new(),
            retried_busy: false,
            refreshed: false,
            until,
        }
    }

    /// What it asks a peer goes with what others ask it at that moment: for small records, which no call is late for by what is
    /// usual for one.
    pub(crate) fn with_others(self, gather: Arc<Gather>) -> Self {
        Self { gather: Some(gather), ..self }
    }

    /// Looks into this program's own store first.
    pub(crate) async fn local(&mut self) -> Option<FoundAt> {
        let (own, store) = self.core.own.clone()?;
        let answer = match store.find(&self.wanted.request.id).await {
            Ok(Some(record)) => self.core.prove_wanted(&own, &self.wanted, record).await,
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        self.leave_out_own();
        match answer {
            Ok(Some(proven)) => {
                return Some(FoundAt { proven, from: own, degraded: false });
            }
            Ok(None) => {
                self.not_here.insert(own);
            }
            // Damage of the own disk is no peer's lie: others may have it whole.
            Err(error) => self.errors.push((own, error)),
        }
        None
    }

    /// Asks this program's own store no more, nor itself over the network.
    pub(crate) fn leave_out_own(&mut self) {
        let Some((own, _)) = &self.core.own else { return };
        let own = *own;
        let candidates = self.candidates.take();
        self.candidates = candidates.without(|peer| *peer == own);
        self.asked.insert(own);
    }

    /// The peer to be asked first.
    pub(crate) fn choose(&mut self) -> Option<(PeerId, Standing)> {
        let chosen = self.candidates.next(&self.core, Standing::Stopped)?;
        self.asked.insert(chosen.0);
        Some(chosen)
    }

    /// Whether it may be a fragment, which is at one peer of the rank, nobody here knows which.
    fn is_fragment(&self) -> bool {
        let kind = matches!(self.wanted.kind, None | Some(Kind::Page | Kind::Parity));
        kind && self.wanted.request.place != Place::from(self.wanted.request.id)
    }

    fn fill(&mut self) {
        let first = if self.is_fragment() { FRAGMENT_WIDTH } else { 1 };
        // Peers that had nothing to say are cheap: the more of them, the more are asked at once. What this program's own store
        // lacks says nothing of others.
        let own =
            usize::from(self.core.own.as_ref().is_some_and(|(own, _)| self.not_here.contains(own)));
        let silent = self.not_here.len() - own;
        let width = (first + silent + self.errors.len() / 2).min(WIDTH_MAX);
        while self.race.counted() < width && self.race.len() < WIDTH_MAX {
            let Some((peer, standing)) = self.choose() else { return };
            self.ask(peer, standing);
            if standing == Standing::Trial {
                self.race.replace(&peer);
            }
        }
    }

    fn ask(&mut self, peer: PeerId, standing: Standing) {
        let last_resort = standing > Standing::Trial;
        if let Some(gather) = &self.gather {
            let (turn, answer) = gather.ask(&self.core, peer, last_resort, self.wanted);
            self.race.start_shared(peer, turn, answer);
            return;
        }
        let load = match self.size {
            _ if last_resort => Load::little().at_most(LAST_RESORT_LIMIT),
            Size::Small => Load::little(),
            Size::Large => self.core.line.some_record(),
        };
        let (core, wanted) = (self.core.clone(), self.wanted);
        let call = move |limit| async move { core.find_at(peer, wanted, limit).await };
        self.race.start(peer, load, call);
    }

    /// Whether another peer may be asked as well because this one is late; if so it is paid for.
    fn may_hedge(&self, peer: &PeerId) -> bool {
        let together = self.gather.as_ref();
        together.map_or_else(|| self.core.budget.spend(), |all| all.may_hedge(&self.core, peer))
    }

    /// Goes on until the record is found or nobody is left to ask. Cancel safe.
    ///
    /// # Errors
    /// [`WalkError`].
    pub(crate) async fn run(&mut self) -> Result<FoundAt, WalkError> {
        loop {
            self.fill();
            match self.race.next(self.until).await {
                Some(Event::Done(from, answer)) => {
                    if let Some(found) = self.answered(from, answer) {
                        return Ok(found);
                    }
                }
                Some(Event::Late(peer)) => {
                    if self.race.is_counted(&peer) && self.may_hedge(&peer) {
                        self.race.replace(&peer);
                    }
                }
                Some(Event::Overdue(peer)) => {
                    self.race.replace(&peer);
                }
                Some(Event::Idle) => {
                    if !self.new_peers() && !self.busy_peers().await && !self.refresh().await {
                        return Err(self.verdict());
                    }
                }
                None => return Err(self.verdict()),
            }
        }
    }

    fn answered(&mut self, from: PeerId, answer: Answer) -> Option<FoundAt> {
        match answer {
            Answer::Found(proven) => {
                if self.size == Size::Large && self.wanted.bytes.is_none() {
                    self.core.line.learn_bytes(proven.record.bytes.len());
                }
                self.race.give_up();
                let degraded = self.degraded(&from);
                return Some(FoundAt { proven: *proven, from, degraded });
            }
            Answer::NotHere => {
                self.not_here.insert(from);
            }
            Answer::Failed(error) => {
                if matches!(error, CallError::Corrupt { .. }) {
                    self.corrupt.push(from);
                }
                self.errors.push((from, error));
            }
        }
        None
    }

    /// Whether a holder that ranks before `from` failed or lied.
    fn degraded(&self, from: &PeerId) -> bool {
        if self.errors.is_empty() {
            return false;
        }
        let failed = |peer: &PeerId| self.errors.iter().any(|(found, _)| found == peer);
        let rank = self.view.rank(&self.wanted.request.place);
        rank.iter().take_while(|peer| *peer != from).any(failed)
    }

    /// Adds peers that were learnt on the way; `false` where there are none.
    fn new_peers(&mut self) -> bool {
        let (view, before) = self.core.directory.views();
        if Arc::ptr_eq(&view, &self.view) || self.views >= VIEWS_MAX {
            return false;
        }
        self.views += 1;
        let all = candidates(&self.core, &self.wanted, &view, before.as_deref());
        self.candidates = all.without(|peer| self.asked.contains(peer));
        (self.view, self.before) = (view, before);
        !self.candidates.is_empty()
    }

    /// Where somebody asked named a peer of an organisation that is not listed, learns a newer roster from one who
    /// answered, once; `false` where that brought nobody new.
    async fn refresh(&mut self) -> bool {
        let Some(from) = self.not_here.iter().find(|peer| self.core.local(peer).is_none()) else {
            return false;
        };
        if self.refreshed || !self.core.directory.take_unknown() {
            return false;
        }
        self.refreshed = true;
        let Ok(to) = self.core.endpoint(from) else { return false };
        self.core.introduce(&to).await.is_ok() && self.new_peers()
    }

    /// Waits for peers that were busy and puts them back, once; `false` where there are none.
    async fn busy_peers(&mut self) -> bool {
        let busy = |(_, error): &(PeerId, CallError)| matches!(error, CallError::Busy { .. });
        let (busy, others) = std::mem::take(&mut self.errors).into_iter().partition(busy);
        self.errors = others;
        let busy: Vec<(PeerId, CallError)> = busy;
        if self.retried_busy || busy.is_empty() {
            self.errors.extend(busy);
            return false;
        }
        self.retried_busy = true;
        let wait = busy.iter().filter_map(|(_, error)| match error {
            CallError::Busy { retry_after } => Some(*retry_after),
            _ => None,
        });
        let wait = wait.min().unwrap_or_default().min(BUSY_WAIT_MAX);
        busy.iter().for_each(|(peer, _)| self.candidates.again(*peer));
        self.core.env.clock.sleep(wait).await;
        true
    }

    /// Whether the first N of a view say that they do not have it, or so many of the first N + [`NEAR_EXTRA`], where writers put
    /// copies, that fewer are left than a writer waits for. A fragment is at one peer: all that may be asked must say so.
    fn denied_by(&self, view: &View) -> bool {
        let redundancy = redundancy_of(&self.core, self.wanted.kind, view);
        let (copies, acknowledged) = (redundancy.copies as usize, redundancy.acknowledged as usize);
        let near = view.holders(&self.wanted.request.place, copies + NEAR_EXTRA);
        let no = |peer: &PeerId| self.not_here.contains(peer);
        if self.is_fragment() {
            let rank = if std::ptr::eq(view, Arc::as_ptr(&self.view)) {
                view.holders(&self.wanted.request.place, ASKED_MAX)
            } else {
                near
            };
            return rank.iter().all(no);
        }
        let silent = near.iter().filter(|peer| !no(peer)).count();
        near.iter().take(copies).all(no) || silent < acknowledged
    }

    fn verdict(&mut self) -> WalkError {
        let id = self.wanted.request.id;
        let asked = u32::try_from(self.not_here.len()).unwrap_or(u32::MAX);
        // Where others could not be asked, one that lies is no proof that it cannot be had.
        if !self.corrupt.is_empty() && !could_not_ask(&self.errors) {
            let mut from = std::mem::take(&mut self.corrupt);
            from.truncate(ERRORS_MAX);
            return WalkError::Corrupt { id, from };
        }
        if self.view.is_empty() {
            return WalkError::NoPeers { tried: Vec::new() };
        }
        let views = [Some(&self.view), self.before.as_ref()];
        if views.into_iter().flatten().all(|view| self.denied_by(view)) {
            return WalkError::NotFound { id, asked };
        }
        let mut errors = std::mem::take(&mut self.errors);
        if let Some(error) = alike(&errors).filter(|_| asked == 0) {
            return error;
        }
        errors.truncate(ERRORS_MAX);
        let unreachable = self.view.len().saturating_sub(self.not_here.len());
        let unreachable = u32::try_from(unreachable).unwrap_or(u32::MAX);
        WalkError::Unavailable { id, asked, unreachable, errors }
    }
}

/// Whom to ask for it, in which order.
fn candidates(core: &Core, wanted: &Wanted, view: &View, before: Option<&View>) -> Candidates {
    let copies = |view: &View| redundancy_of(core, wanted.kind, view).copies as usize;
    let before = before.map(|view| (view, copies(view)));
    Candidates::to_read((view, copies(view)), before, &wanted.request.place, wanted.size())
}

/// How many copies there should be; of a record of unknown kind as many as any kind has.
pub(crate) fn redundancy_of(core: &Core, kind: Option<Kind>, view: &View) -> Redundancy {
    let genesis = core.directory.genesis();
    redundancy(kind.unwrap_or(Kind::Entry), view.len(), genesis.suite, genesis.copies)
}
