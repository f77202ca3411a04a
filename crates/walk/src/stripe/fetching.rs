//! Fetching pages of one stripe: as they are where their holders are well, any k fragments where not.
//!
//! ```text
//!   wanted pages at their holders --all there--> done (nothing is decoded)
//!          | one is away, slow, late or failed          | one is not there
//!          v                                            v
//!   further fragments until k are there          its neighbours in rank and the spares, where few pages are wanted
//!          | too few where they belong                  | not there either: as on the left
//!          v
//!   whatever the others have of it, near the top of the rank first
//! ```
//! A holder that is usually slow is passed by where as many others can give a fragment, so one slow peer costs a reader
//! a decoding and no waiting. A call that is late is hedged by as many as make it unneeded, out of the budget of all walks.
//!
//! Invariants: nothing unproven is counted; one question at a time is on its way to a peer; at most n + [`EXTRA_MAX`] calls run; a
//! peer that lied is asked nothing more.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crypto::{Class, Classified, PeerId};
use document::Record;
use env::calls::{CallError, FindResponse};

use super::asking::{Asking, Next, Question};
use super::{Fetched, FragmentAt, FragmentState, StripeShape};
use crate::core::{Answer, BUSY_WAIT_MAX, Core, LAST_RESORT_LIMIT, WALK_LIMIT, Wanted};
use crate::directory::Standing;
use crate::error::{ERRORS_MAX, WalkError, alike, class_of_lack, could_not_ask};
use crate::latency::Size;
use crate::line::{Load, Moved};
use crate::proof::Proven;
use crate::race::{Ended, Event, Race};

/// Calls in flight for one stripe beyond its fragments.
const EXTRA_MAX: usize = 4;
/// Failures told, for each fragment of the stripe.
const FAILED_MAX: usize = 4;

/// What a peer said: of a guess one answer, of an open question one for each fragment that it sent, and one for what it could not send.
type Reply = Result<Vec<(usize, Answer)>, CallError>;

impl Ended for Reply {
    fn moved(&self) -> Moved {
        match self {
            Ok(answers) => answers.iter().map(|(_, answer)| answer.moved()).max(),
            Err(error) => Some(error.moved()),
        }
        .unwrap_or(Moved::Nothing)
    }
}

/// A stripe being fetched.
pub(crate) struct Fetching {
    core: Arc<Core>,
    shape: StripeShape,
    wanted: Range<usize>,
    asking: Asking,
    have: BTreeMap<usize, Record>,
    /// What is on its way from whom.
    asked: BTreeMap<PeerId, Question>,
    race: Race<Reply>,
    failed: Vec<FragmentAt>,
    /// Peers that answered that they have nothing of what they were asked for.
    not_here: BTreeSet<PeerId>,
    errors: Vec<(PeerId, CallError)>,
    /// What peers were too busy for and may be asked once more; `None` when that was done.
    busy: Option<Vec<(PeerId, Question, Duration)>>,
    looked_at_own: bool,
    until: Duration,
}

impl Fetching {
    pub(crate) fn new(core: Arc<Core>, shape: StripeShape, wanted: Range<usize>) -> Self {
        Self {
            asking: Asking::new(&core, &shape),
            race: Race::new(core.clone(), Size::of(shape.fragment_bytes)),
            until: core.env.clock.elapsed() + WALK_LIMIT,
            core,
            shape,
            wanted,
            have: BTreeMap::new(),
            asked: BTreeMap::new(),
            failed: Vec::new(),
            not_here: BTreeSet::new(),
            errors: Vec::new(),
            busy: Some(Vec::new()),
            looked_at_own: false,
        }
    }

    /// Goes on until what was wanted, or k fragments, are there, or nobody is left to ask. Cancel safe.
    ///
    /// # Errors
    /// [`WalkError`].
    pub(crate) async fn run(mut self) -> Result<Fetched, WalkError> {
        self.own(self.wanted.clone()).await;
        while !self.is_enough() {
            self.fill();
            match self.race.next(self.until).await {
                Some(Event::Done(from, reply)) => self.answered(from, reply),
                Some(Event::Late(peer)) => {
                    let counted = self.race.is_counted(&peer);
                    if counted && self.core.budget.spend_many(self.calls_instead_of(&peer)) {
                        self.race.replace(&peer);
                    }
                }
                Some(Event::Overdue(peer)) => {
                    self.race.replace(&peer);
                }
                Some(Event::Idle) => {
                    if !self.go_on_idle().await {
                        return Err(self.verdict());
                    }
                }
                None => return Err(self.verdict()),
            }
            // Its own parity spares a reader a call only where something is missing: with all pages nothing is decoded.
            if !self.failed.is_empty() && !self.is_enough() {
                self.own_parity().await;
            }
        }
        self.race.give_up();
        Ok(Fetched { fragments: self.have.into_iter().collect(), failed: self.failed })
    }

    fn is_enough(&self) -> bool {
        self.have.len() >= self.shape.k
            || self.wanted.clone().all(|index| self.have.contains_key(&index))
    }

    /// Nothing runs and it is not enough: whom else there is to ask; `false` where nobody.
    async fn go_on_idle(&mut self) -> bool {
        self.own_parity().await;
        self.is_enough() || self.asking.widen(&self.core, &self.shape) || self.busy_peers().await
    }

    async fn own_parity(&mut self) {
        if !std::mem::replace(&mut self.looked_at_own, true) {
            self.own(0..self.shape.n()).await;
        }
    }

    /// Takes what lies in this program's own store.
    async fn own(&mut self, indices: Range<usize>) {
        let Some((own, store)) = self.core.own.clone() else { return };
        for index in indices {
            if self.have.contains_key(&index) {
                continue;
            }
            let wanted = Wanted::fragment(&self.shape, index);
            let found = match store.find(&wanted.request.id).await {
                // It is kept at the place that it came with first, which may be that of another stripe.
                Ok(Some(record)) => {
                    let record = Record { place: wanted.request.place, ..record };
                    self.core.prove(&own, &wanted, record).await
                }
                Ok(None) => {
                    if self.asking.owner(index) == Some(own) {
                        self.fail(index, own, FragmentState::Missing);
                    }
                    continue;
                }
                Err(error) => Err(error),
            };
            match found {
                Ok(proven) => {
                    self.have.insert(index, proven.record);
                }
                // Damage of the own disk is no peer's lie: others may have it whole.
                Err(error) => {
                    self.fail(index, own, state_of(&error));
                    self.errors.push((own, error));
                }
            }
        }
    }

    /// Starts calls until what is there and on its way is enough if all goes well.
    fn fill(&mut self) {
        while self.race.len() < self.shape.n() + EXTRA_MAX {
            let (flying, open) = self.flying(None);
            let coming = |index: usize| self.have.contains_key(&index) || flying.contains(&index);
            if self.have.len() + flying.len() + open >= self.shape.k
                || self.wanted.clone().all(coming)
            {
                return;
            }
            let free = |peer: &PeerId| !self.asked.contains_key(peer);
            let lacks = |index: usize| !coming(index);
            let first = |index: usize| self.wanted.contains(&index);
            let Some(next) = self.asking.next(&self.core, free, lacks, first) else { return };
            self.start(next);
        }
    }

    /// The fragments that are on their way and not late, and how many open questions are, leaving out one peer.
    fn flying(&self, without: Option<&PeerId>) -> (BTreeSet<usize>, usize) {
        let (mut flying, mut open) = (BTreeSet::new(), 0);
        let counted = |peer: &PeerId| Some(peer) != without && self.race.is_counted(peer);
        for question in self.asked.iter().filter(|(peer, _)| counted(peer)).map(|(_, of)| of) {
            match question {
                Question::One(index) if self.have.contains_key(index) => {}
                Question::One(index) => _ = flying.insert(*index),
                Question::Any(_) => open += 1,
            }
        }
        (flying, open)
    }

    /// How many calls it takes to do without the answer of this peer.
    fn calls_instead_of(&self, peer: &PeerId) -> u32 {
        let (flying, open) = self.flying(Some(peer));
        let expected = self.have.len() + flying.len() + open;
        u32::try_from(self.shape.k.saturating_sub(expected)).unwrap_or(u32::MAX).max(1)
    }

    fn start(&mut self, Next { peer, index, standing }: Next) {
        let unwell = standing > Standing::Trial;
        let load = self.load();
        let load = if unwell { Load::little().at_most(LAST_RESORT_LIMIT) } else { load };
        match index {
            Some(index) => self.guess(peer, index, load),
            None => self.ask_openly(peer, load),
        }
        if standing >= Standing::Trial {
            // It is not counted on: what can be had elsewhere is asked for at the same time.
            self.race.replace(&peer);
        }
    }

    /// What a fragment puts on the line.
    fn load(&self) -> Load {
        Load::taken(self.shape.fragment_bytes)
    }

    fn guess(&mut self, peer: PeerId, index: usize, load: Load) {
        let (core, wanted) = (self.core.clone(), Wanted::fragment(&self.shape, index));
        self.asked.insert(peer, Question::One(index));
        self.race.start(peer, load, move |limit| async move {
            Ok(vec![(index, core.find_at(peer, wanted, limit).await)])
        });
    }

    fn ask_openly(&mut self, peer: PeerId, load: Load) {
        let missing: Vec<usize> =
            (0..self.shape.n()).filter(|index| !self.have.contains_key(index)).collect();
        let sought: Vec<_> =
            missing.iter().map(|index| (*index, Wanted::fragment(&self.shape, *index))).collect();
        self.asked.insert(peer, Question::Any(missing));
        let core = self.core.clone();
        self.race.start(peer, load, move |limit| async move {
            core.find_any(peer, sought, limit).await
        });
    }

    fn answered(&mut self, from: PeerId, reply: Reply) {
        let Some(question) = self.asked.remove(&from) else { return };
        let answers = match reply {
            Ok(answers) => answers,
            Err(error) => return self.refused(from, question, error),
        };
        if answers.is_empty() {
            self.not_here.insert(from);
        }
        let is_open = matches!(question, Question::Any(_));
        for (index, answer) in answers {
            match answer {
                Answer::Found(proven) => {
                    self.asking.guessed(&question, true);
                    self.have.entry(index).or_insert(proven.record);
                }
                Answer::NotHere => self.missed(from, index),
                Answer::Failed(error) if is_open && !is_lie(&error) => {
                    self.errors.push((from, error));
                }
                Answer::Failed(error) => self.refused(from, Question::One(index), error),
            }
        }
    }

    /// A guess was wrong: this peer does not have the fragment.
    fn missed(&mut self, from: PeerId, index: usize) {
        self.not_here.insert(from);
        if self.asking.owner(index) != Some(from) {
            return;
        }
        self.asking.guessed(&Question::One(index), false);
        self.fail(index, from, FragmentState::Missing);
        let few = self.wanted.len() < self.shape.k;
        if few && self.wanted.contains(&index) && !self.have.contains_key(&index) {
            let free = |peer: &PeerId| !self.asked.contains_key(peer);
            for peer in self.asking.around(&self.core, index, free) {
                self.guess(peer, index, self.load());
            }
        }
    }

    fn refused(&mut self, from: PeerId, question: Question, error: CallError) {
        if let Question::One(index) = &question
            && (is_lie(&error) || self.asking.owner(*index) == Some(from))
        {
            self.fail(*index, from, state_of(&error));
        }
        match &error {
            CallError::Corrupt { .. } => self.asking.exclude(from),
            CallError::Busy { retry_after } => {
                let busy = self.busy.iter_mut();
                busy.for_each(|busy| busy.push((from, question.clone(), *retry_after)));
            }
            _ => {}
        }
        self.errors.push((from, error));
    }

    fn fail(&mut self, index: usize, holder: PeerId, state: FragmentState) {
        if self.failed.len() < FAILED_MAX * self.shape.n() {
            self.failed.push(FragmentAt { index, holder: Some(holder), state });
        }
    }

    /// Waits for peers that were busy and lets them be asked once more, once; `false` where there are none.
    async fn busy_peers(&mut self) -> bool {
        let busy = self.busy.take().unwrap_or_default();
        let Some(wait) = busy.iter().map(|(.., wait)| *wait).min() else { return false };
        let asked_again = |peer: &PeerId| busy.iter().any(|(of, ..)| of == peer);
        self.errors.retain(|(peer, error)| {
            !(matches!(error, CallError::Busy { .. }) && asked_again(peer))
        });
        self.core.env.clock.sleep(wait.min(BUSY_WAIT_MAX)).await;
        busy.into_iter().for_each(|(peer, question, _)| self.asking.again(peer, question));
        true
    }

    fn verdict(&mut self) -> WalkError {
        let (id, found) = (self.shape.id, self.have.len());
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let asked = count(self.not_here.len());
        let errors = std::mem::take(&mut self.errors);
        if self.core.directory.view().is_empty() && self.core.own.is_none() {
            return WalkError::NoPeers { tried: Vec::new() };
        }
        // Whoever has not answered by now could not be asked.
        let silent = !self.asked.is_empty();
        let said = errors.iter().map(|(_, error)| error.class());
        let class = class_of_lack(said.chain(silent.then_some(Class::Unavailable)));
        if found == 0 {
            let liars = errors.iter().filter(|(_, error)| is_lie(error)).map(|(peer, _)| *peer);
            let from: Vec<PeerId> = liars.take(ERRORS_MAX).collect();
            if !from.is_empty() && !silent && !could_not_ask(&errors) {
                return WalkError::Corrupt { id, from };
            }
            if class == Class::NotFound {
                return WalkError::NotFound { id, asked };
            }
            if let Some(error) = alike(&errors).filter(|_| asked == 0) {
                return error;
            }
        }
        let (found, needed) = (count(found), count(self.shape.k));
        let errors = errors.into_iter().take(ERRORS_MAX).collect();
        WalkError::TooFewFragments { id, found, needed, class, errors }
    }
}

fn is_lie(error: &CallError) -> bool {
    matches!(error, CallError::Corrupt { .. })
}

fn state_of(error: &CallError) -> FragmentState {
    match error {
        CallError::Corrupt { .. } => FragmentState::Corrupt,
        CallError::NotFound => FragmentState::Missing,
        error => FragmentState::Unreachable(error.clone()),
    }
}

impl Core {
    /// Asks one peer for whatever it has of these records, and proves what it sends.
    async fn find_any(&self, peer: PeerId, sought: Vec<(usize, Wanted)>, limit: Duration) -> Reply {
        let to = self.endpoint(&peer)?;
        let since = self.env.clock.elapsed();
        let requests = sought.iter().map(|(_, wanted)| wanted.request).collect();
        let answers = self.bounded(&to, limit, self.calls.find_batch(&to, requests, limit)).await;
        let answers = answers.and_then(|answers| {
            let reason = "it did not answer for every record of a batch".to_owned();
            let whole = answers.len() == sought.len();
            whole.then_some(answers).ok_or(CallError::Corrupt { address: to.address, reason })
        });
        self.note(&peer, Size::Small, since, &answers);
        let (mut found, mut untold) = (Vec::new(), None);
        for ((index, wanted), answer) in sought.into_iter().zip(answers?) {
            let proven: Result<Proven, CallError> = match answer {
                Ok(FindResponse::Found(record)) => self.prove(&peer, &wanted, record).await,
                Err(lie) if is_lie(&lie) => Err(lie),
                // What it does not have is not told one by one.
                Ok(FindResponse::Closest(_)) | Err(CallError::NotFound) => continue,
                // What did not fit, or cannot be read, others may have: one of these says that there is more here.
                Err(error) => {
                    untold.get_or_insert((index, Answer::Failed(error)));
                    continue;
                }
            };
            if let Err(error) = &proven {
                self.directory.failed(&peer, error);
            }
            found.push((index, Answer::from(proven.map(Some))));
        }
        found.extend(untold);
        Ok(found)
    }
}
