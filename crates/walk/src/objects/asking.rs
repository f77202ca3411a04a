//! Asking the holders of a place: the first proven answer, or those of enough of them.
//!
//! The first N of the rank are asked, then [`NEAR_EXTRA`] more of it (writers go on to the next in rank where one fails), of
//! the rank under the roster before as well. The whole network is not asked: what nobody of those has is, for now, not here.

use std::sync::Arc;
use std::time::Duration;

use crypto::{PeerId, Place};
use env::calls::CallError;
use env::calls::objects::ObjectsRequest;

use super::Judge;
use crate::candidates::{Candidates, NEAR_EXTRA};
use crate::core::{Core, LAST_RESORT_LIMIT, WALK_LIMIT, limit};
use crate::directory::Standing;
use crate::error::{ERRORS_MAX, WalkError};
use crate::latency::Size;
use crate::line::{Load, Moved};
use crate::race::{Ended, Event, Race};
use crate::walker::Walker;

/// The most holders of one place that are asked at once.
pub const HOLDERS_ASKED_MAX: usize = 64;

/// What is asked of the holders of a place.
pub struct Question<T> {
    /// Which place.
    pub place: Place,
    /// How many should hold it (N).
    pub copies: u32,
    /// How many answers are enough to have met somebody who knows (N - W + 1).
    pub enough: u32,
    /// What is asked.
    pub request: ObjectsRequest,
    /// Bytes of an answer, about; its deadline goes by it.
    pub bytes: usize,
    /// Proves an answer.
    pub judge: Judge<T>,
    /// Whether *denied* means that there is nothing: who may read all there is is denied only what a peer does not know.
    pub may_all: bool,
}

/// Nobody asked had it, or not enough answered.
#[derive(Clone, Debug)]
pub struct Unanswered {
    /// Peers that do not have it.
    pub not_here: Vec<PeerId>,
    /// The others, and what each said or did.
    pub errors: Vec<(PeerId, CallError)>,
    /// Whether so many holders do not have it that it was not acknowledged when they were asked.
    pub is_nowhere: bool,
}

/// What holders answered.
#[derive(Clone, Debug)]
pub struct Answers<T> {
    /// Proven answers; `None` of a peer that knows nothing of what was asked.
    pub answers: Vec<(PeerId, Option<T>)>,
    /// The others, and what each said or did.
    pub errors: Vec<(PeerId, CallError)>,
    /// Whether as many of the first N answered as were to be enough.
    pub is_enough: bool,
}

impl Unanswered {
    /// Those that answered what does not prove itself.
    pub fn liars(&self) -> Vec<PeerId> {
        let lied = |(_, error): &&(PeerId, CallError)| matches!(error, CallError::Corrupt { .. });
        self.errors.iter().filter(lied).map(|(peer, _)| *peer).take(ERRORS_MAX).collect()
    }
}

impl Walker {
    /// Asks holders until one answers what proves itself; tells who did, and who answered before it what does not.
    ///
    /// Cancel safe: nothing is kept of a dropped call.
    ///
    /// # Errors
    /// [`Unanswered`], also where no peer is known or a librarian walks for this program.
    pub async fn first_answer<T: Send + 'static>(
        &self,
        question: &Question<T>,
    ) -> Result<(T, PeerId, Vec<(PeerId, CallError)>), Unanswered> {
        let mut asking = Asking::new(&self.core, question);
        loop {
            asking.fill(1 + asking.without.len());
            match asking.step().await {
                Some((peer, Ok(Some(found)))) => {
                    asking.race.give_up();
                    return Ok((found, peer, asking.errors));
                }
                Some((peer, Ok(None))) => asking.without.push(peer),
                Some((peer, Err(error))) => asking.errors.push((peer, error)),
                None => return Err(asking.unanswered()),
            }
        }
    }

    /// Asks one peer, and proves its answer; `None` where it has nothing. `bytes` is how many an answer has, about.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`CallError`]; of an answer that does not prove itself [`CallError::Corrupt`].
    pub async fn answer_of<T: Send + 'static>(
        &self,
        peer: &PeerId,
        request: ObjectsRequest,
        bytes: usize,
        judge: Judge<T>,
    ) -> Result<Option<T>, CallError> {
        self.core.judged_at(peer, request, judge, Size::of(bytes), limit(bytes)).await
    }

    /// Asks the first N, and further ones in the stead of those that fail; answers when all have answered that will in time,
    /// or `enough` of the first N and the others are late. With `wide` all that might have been written to are asked.
    ///
    /// Cancel safe: nothing is kept of a dropped call.
    ///
    /// # Errors
    /// [`WalkError::NoPeers`], [`WalkError::ObjectsThrough`]; that nobody answered is no error here.
    pub async fn answers<T: Send + 'static>(
        &self,
        question: &Question<T>,
        wide: bool,
    ) -> Result<Answers<T>, WalkError> {
        if self.is_thin() {
            return Err(WalkError::ObjectsThrough);
        }
        if self.core.directory.view().is_empty() {
            return Err(WalkError::NoPeers { tried: Vec::new() });
        }
        let mut asking = Asking::new(&self.core, question);
        let extra = if wide { NEAR_EXTRA } else { 0 };
        let copies = (question.copies as usize + extra).min(HOLDERS_ASKED_MAX);
        let mut answers: Vec<(PeerId, Option<T>)> = Vec::new();
        loop {
            asking.fill(copies.saturating_sub(answers.len()));
            // Those whose answer is late are not waited for, once enough have answered.
            let of_first = answers.iter().filter(|(peer, _)| asking.first.contains(peer)).count();
            let is_enough = of_first >= question.enough as usize;
            if is_enough && (asking.race.counted() == 0 || answers.len() >= copies) {
                asking.race.give_up();
                return Ok(Answers { answers, errors: asking.errors, is_enough });
            }
            match asking.step().await {
                Some((peer, Ok(answer))) => answers.push((peer, answer)),
                Some((peer, Err(error))) => asking.errors.push((peer, error)),
                None => return Ok(Answers { answers, errors: asking.errors, is_enough }),
            }
        }
    }
}

impl<T> Ended for Result<Option<T>, CallError> {
    fn moved(&self) -> Moved {
        match self {
            Ok(Some(_)) => Moved::Yes,
            Ok(None) => Moved::Nothing,
            Err(error) => error.moved(),
        }
    }
}

struct Asking<'a, T> {
    core: Arc<Core>,
    question: &'a Question<T>,
    /// The first N of the rank.
    first: Vec<PeerId>,
    candidates: Candidates,
    race: Race<Result<Option<T>, CallError>>,
    without: Vec<PeerId>,
    errors: Vec<(PeerId, CallError)>,
    until: Duration,
}

impl<'a, T: Send + 'static> Asking<'a, T> {
    fn new(core: &Arc<Core>, question: &'a Question<T>) -> Self {
        let (view, before) = core.directory.views();
        let (copies, place) = (question.copies as usize, &question.place);
        let before = before.as_deref().map(|view| (view, copies));
        let size = Size::of(question.bytes);
        let mut candidates = Candidates::to_read((&view, copies), before, place, size);
        candidates.near_alone();
        if core.through.is_some() {
            candidates.take();
        }
        let own = core.directory.own();
        Self {
            first: view.holders(place, copies),
            candidates: candidates.without(|peer| Some(*peer) == own),
            race: Race::new(core.clone(), size),
            core: core.clone(),
            question,
            without: Vec::new(),
            errors: Vec::new(),
            until: core.env.clock.elapsed() + WALK_LIMIT,
        }
    }

    /// Starts calls until so many are running that were not replaced.
    fn fill(&mut self, width: usize) {
        let width = width.min(HOLDERS_ASKED_MAX);
        while self.race.counted() < width && self.race.len() < HOLDERS_ASKED_MAX {
            let Some((peer, standing)) = self.candidates.next(&self.core, Standing::Stopped) else {
                return;
            };
            let size = Size::of(self.question.bytes);
            let load = match standing > Standing::Trial {
                true => Load::little().at_most(LAST_RESORT_LIMIT),
                false => Load::question(self.question.bytes),
            };
            let (core, judge) = (self.core.clone(), self.question.judge.clone());
            let request = self.question.request.clone();
            let may_all = self.question.may_all;
            self.race.start(peer, load, move |limit| async move {
                match core.judged_at(&peer, request, judge, size, limit).await {
                    Err(CallError::Denied { .. }) if may_all => Ok(None),
                    answer => answer,
                }
            });
            if standing == Standing::Trial {
                self.race.replace(&peer);
            }
        }
    }

    /// The next answer; `None` when nothing runs any more, or the walk has taken too long. A late call is counted as
    /// replaced, which lets the next in rank be asked.
    async fn step(&mut self) -> Option<(PeerId, Result<Option<T>, CallError>)> {
        loop {
            match self.race.next(self.until).await {
                Some(Event::Done(peer, answer)) => return Some((peer, answer)),
                Some(Event::Late(peer) | Event::Overdue(peer)) => {
                    self.race.replace(&peer);
                    self.fill(self.race.counted() + 1);
                }
                Some(Event::Idle) | None => return None,
            }
        }
    }

    fn unanswered(self) -> Unanswered {
        let without = self.first.iter().filter(|peer| self.without.contains(peer)).count();
        let is_nowhere = !self.first.is_empty()
            && without >= (self.question.enough as usize).min(self.first.len());
        Unanswered { not_here: self.without, errors: self.errors, is_nowhere }
    }
}
