//! Whom a reader of a stripe asks next, and for what.
//!
//! There are two questions. A *guess* asks a peer for the fragment that belongs to it: one record, or a bare no. An *open* question asks a
//! peer for whatever it has of what is missing: it costs an id a fragment and finds what lies out of place, as after peers joined or
//! left. Guesses come first, of the peers that are well; where more guesses miss than hit, the rank is not the
//! one that the stripe was stored by, and open questions take over. Peers that failed a moment ago, or are away, come last.

use std::collections::BTreeSet;

use crypto::PeerId;
use placement::{SPARES, StripeHolders};

use super::StripeShape;
use crate::candidates::ASKED_MAX;
use crate::core::Core;
use crate::directory::Standing;
use crate::health::Health;
use crate::latency::Size;

/// Guesses that missed before the rank is doubted.
const MISSES_MIN: usize = 2;
/// Peers before and behind the one that a page belongs to, which may have it after so many joined or left.
const NEIGHBOURS: usize = 2;

/// What a peer is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// This fragment.
    One(usize),
    /// Whatever it has of these.
    Any(Vec<usize>),
}

/// A peer to be asked.
#[derive(Clone, Debug)]
pub(super) struct Next {
    pub(super) peer: PeerId,
    /// A guess's fragment; `None`: an open question.
    pub(super) index: Option<usize>,
    pub(super) standing: Standing,
}

/// Who may have which fragment, as far as they were not asked.
pub(super) struct Asking {
    size: Size,
    /// The peer each fragment belongs to.
    own: Vec<PeerId>,
    spares: Vec<PeerId>,
    guesses: Vec<(usize, PeerId)>,
    /// The guesses by the roster before, which count where the first ones missed.
    old: Vec<(usize, PeerId)>,
    /// Peers that may be asked openly: those near the top of a rank, then the others.
    near: Vec<PeerId>,
    /// Looked up when it is needed.
    far: Option<Vec<PeerId>>,
    /// All that was ever in `near`.
    seen: BTreeSet<PeerId>,
    /// Peers that lied about this stripe, or could not say.
    excluded: BTreeSet<PeerId>,
    hits: usize,
    misses: usize,
}

impl Asking {
    pub(super) fn new(core: &Core, shape: &StripeShape) -> Self {
        let (view, before) = core.directory.views();
        let (place, n) = (shape.place(), shape.n());
        let away = |peer: &PeerId| core.directory.health(peer) == Health::Away;
        let StripeHolders { own, spares } = view.stripe_holders(&place, n, away);
        let before = before.map(|before| before.stripe_holders(&place, n, away));
        let old_own = before.as_ref().map_or(&[][..], |before| &before.own);
        let moved = |(index, peer): &(usize, PeerId)| own.get(*index) != Some(peer);
        let old = old_own.iter().copied().enumerate().filter(moved).collect();
        let mut near: Vec<PeerId> = own.iter().chain(&spares).copied().collect();
        let others =
            before.into_iter().flat_map(|before| before.own.into_iter().chain(before.spares));
        for peer in others {
            if !near.contains(&peer) {
                near.push(peer);
            }
        }
        let seen = near.iter().copied().collect();
        let guesses = own.iter().copied().enumerate().collect();
        let excluded = core.own.iter().map(|(own, _)| *own).collect();
        let size = Size::of(shape.fragment_bytes);
        let (far, hits, misses) = (None, 0, 0);
        Self { size, own, spares, guesses, old, near, far, seen, excluded, hits, misses }
    }

    /// The peer a fragment belongs to.
    pub(super) fn owner(&self, index: usize) -> Option<PeerId> {
        self.own.get(index).copied()
    }

    /// Notes how a question went: whether the guesses go by the right rank.
    pub(super) fn guessed(&mut self, question: &Question, hit: bool) {
        match (question, hit) {
            (Question::One(_), true) => self.hits += 1,
            (Question::One(_), false) => self.misses += 1,
            (Question::Any(_), _) => {}
        }
    }

    /// Nothing of what this peer says about the stripe counts any more.
    pub(super) fn exclude(&mut self, peer: PeerId) {
        self.excluded.insert(peer);
    }

    /// Puts back what a peer was too busy to answer.
    pub(super) fn again(&mut self, peer: PeerId, question: Question) {
        match question {
            Question::One(index) => self.guesses.push((index, peer)),
            Question::Any(_) => self.near.push(peer),
        }
    }

    /// Whether the guesses go by another rank than the stripe was stored by.
    fn is_elsewhere(&self) -> bool {
        self.misses >= MISSES_MIN && self.misses > self.hits
    }

    /// The peers to ask at once for a page that is not where it belongs: its neighbours in rank and the spares, those that are
    /// well and that `free` lets pass. Asking them costs less than k fragments.
    pub(super) fn around(
        &mut self,
        core: &Core,
        index: usize,
        free: impl Fn(&PeerId) -> bool,
    ) -> Vec<PeerId> {
        let low = index.saturating_sub(NEIGHBOURS);
        let high = (index + NEIGHBOURS + 1).min(self.own.len());
        let beside = (low..high).filter(|at| *at != index).map(|at| self.own[at]);
        let old = self.old.iter().filter(|(of, _)| *of == index).map(|(_, peer)| *peer);
        let mut all: Vec<PeerId> = Vec::new();
        for peer in old.chain(beside).chain(self.spares.iter().copied().take(SPARES)) {
            let well = core.directory.standing(&peer, self.size, false) == Standing::Ready;
            if well && free(&peer) && !self.excluded.contains(&peer) && !all.contains(&peer) {
                all.push(peer);
            }
        }
        self.old.retain(|(of, peer)| *of != index || !all.contains(peer));
        all
    }

    /// Whom to ask next, of those that `free` lets pass (nothing is on its way from them): for a fragment that `lacks` lets pass,
    /// `first` ones first, or openly.
    pub(super) fn next(
        &mut self,
        core: &Core,
        free: impl Fn(&PeerId) -> bool,
        lacks: impl Fn(usize) -> bool,
        first: impl Fn(usize) -> bool,
    ) -> Option<Next> {
        let next = self.best(core, &free, &lacks, &first)?;
        self.remove(&next);
        let claimed = core.directory.claim(&next.peer, self.size);
        let standing = match next.standing {
            // Somebody else claimed the try meanwhile.
            Standing::Ready | Standing::Slow | Standing::Trial if !claimed => Standing::Waiting,
            standing => standing,
        };
        Some(Next { standing, ..next })
    }

    fn best(
        &self,
        core: &Core,
        free: &impl Fn(&PeerId) -> bool,
        lacks: &impl Fn(usize) -> bool,
        first: &impl Fn(usize) -> bool,
    ) -> Option<Next> {
        let guesses = || {
            let waits = |index: usize| self.guesses.iter().any(|(of, _)| *of == index);
            let old = self.old.iter().filter(move |(index, _)| !waits(*index));
            let all = self.guesses.iter().chain(old);
            all.filter(|(index, _)| lacks(*index)).map(|(index, peer)| (Some(*index), *peer, true))
        };
        let is_first = |index: &Option<usize>| index.is_some_and(first);
        let firsts = guesses().filter(|(index, ..)| is_first(index));
        let others = guesses().filter(|(index, ..)| !is_first(index));
        let near = self.near.iter().map(|peer| (None, *peer, true));
        let far = self.far.iter().flatten().map(|peer| (None, *peer, false));
        let mut best: Option<(u8, Next)> = None;
        for (index, peer, near) in firsts.chain(others).chain(near).chain(far) {
            if !free(&peer) || self.excluded.contains(&peer) {
                continue;
            }
            let standing = core.directory.standing(&peer, self.size, false);
            if standing == Standing::Gone {
                continue;
            }
            let class = class(standing, index.is_some(), near, self.is_elsewhere());
            if best.as_ref().is_none_or(|(found, _)| class < *found) {
                best = Some((class, Next { peer, index, standing }));
                if class == 0 {
                    break;
                }
            }
        }
        best.map(|(_, next)| next)
    }

    /// Adds the peers that are not near the top of the rank; `false` where that was done before.
    pub(super) fn widen(&mut self, core: &Core, shape: &StripeShape) -> bool {
        if self.far.is_some() {
            return false;
        }
        let rank = core.directory.view().holders(&shape.place(), ASKED_MAX.max(shape.n() + SPARES));
        self.far = Some(rank.into_iter().filter(|peer| !self.seen.contains(peer)).collect());
        true
    }

    fn remove(&mut self, next: &Next) {
        match next.index {
            Some(index) => {
                let other = |guess: &(usize, PeerId)| *guess != (index, next.peer);
                self.guesses.retain(other);
                self.old.retain(other);
            }
            None => {
                self.near.retain(|peer| *peer != next.peer);
                self.far.iter_mut().for_each(|far| far.retain(|peer| *peer != next.peer));
            }
        }
    }
}

/// When a peer of this standing is asked; less is earlier.
fn class(standing: Standing, is_guess: bool, near: bool, elsewhere: bool) -> u8 {
    match (standing, is_guess) {
        (Standing::Ready | Standing::Trial, true) if !elsewhere => 0,
        (Standing::Slow, true) if !elsewhere => 1,
        (Standing::Ready | Standing::Trial, false) if near => {
            if elsewhere {
                0
            } else {
                2
            }
        }
        (Standing::Slow, false) if near => {
            if elsewhere {
                1
            } else {
                3
            }
        }
        // Where open questions take over, what is left of the guesses is asked all the same, at the end.
        (Standing::Ready | Standing::Slow | Standing::Trial, true) => 4,
        (Standing::Waiting, true) => 5,
        (Standing::Ready | Standing::Slow | Standing::Trial, false) => 6,
        (Standing::Away | Standing::Stopped | Standing::Gone, true) => 7,
        (Standing::Waiting, false) => 8,
        (Standing::Away | Standing::Stopped | Standing::Gone, false) => 9,
    }
}
