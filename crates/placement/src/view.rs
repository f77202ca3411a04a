//! A view of the network at one roster number, and the rank of its peers for a place.
//!
//! The rank takes one organisation at a time: the best peer of each, in order of their scores, then
//! the second best of each, and so on. So n holders span as many organisations as there are, and
//! one organisation's fire, bankruptcy or lie costs a record no more than its even share of the
//! copies, however many peers it runs, as long as the others have peers left; by how that is, the
//! profile is chosen ([`crate::Profile::by_view`]).
//!
//! Only a round that is taken whole gives organisations even shares. Of the last one, and of the first where there are more
//! organisations than copies, those come first whose peer has the best score: by it more capacity is more records, between
//! organisations too.
//!
//! A view has everybody who is certified, whether it runs or not: ranks must not change when a peer is away for an hour. What
//! a writer waits for goes by it too, as long as so many can be reached ([`View::reached`]).
//!
//! Invariants: candidates ascend by key and none is there twice; weights are not 0 (both
//! established by [`View::new`]); a rank names each candidate once.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use crypto::{OrgId, PeerId, Place};

use crate::memo::Memo;
use crate::redundancy::PAGE_COPIES;
use crate::score::{self, Score};

/// A peer that may hold records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// Who it is.
    pub peer: PeerId,
    /// Whose it is, by its certificate.
    pub organisation: OrgId,
    /// Bytes it offers, more than 0: its share of the records of its organisation goes by it.
    pub weight: u64,
}

/// The peers of a network as one roster and their certificates say. Immutable, but for what it remembers of its own answers.
#[derive(Clone, Debug)]
pub struct View {
    roster: u64,
    candidates: Vec<Candidate>,
    /// The point of the candidate at the same index.
    points: Vec<[u8; 32]>,
    /// Indexes of the candidates of each organisation.
    organisations: Vec<Vec<u32>>,
    /// The number of the candidate's organisation, at the same index.
    organisation_of: Vec<u32>,
    /// Ranks that were asked for lately.
    memo: Memo,
}

/// A candidate (by index) with its score for one place.
#[derive(Clone, Copy)]
struct Ranked {
    /// How many of its organisation come before it.
    round: u32,
    index: u32,
    score: Score,
}

impl Ranked {
    /// Best first; of equal scores the lesser key, which is the lesser index.
    fn order(&self, other: &Self) -> Ordering {
        other.score.compare(&self.score).then(self.index.cmp(&other.index))
    }
}

impl View {
    /// The view of these candidates. Their order does not matter; of two with the same key the
    /// lesser by (organisation, weight) stays, and a weight of 0 counts as 1.
    ///
    /// # Panics
    /// With 2^32 candidates or more, which no memory holds.
    pub fn new(roster: u64, mut candidates: Vec<Candidate>) -> Self {
        for candidate in &mut candidates {
            candidate.weight = candidate.weight.max(1);
        }
        candidates.sort_unstable();
        candidates.dedup_by_key(|candidate| candidate.peer);
        assert!(u32::try_from(candidates.len()).is_ok(), "fewer than 2^32 peers");
        let points = candidates.iter().map(|candidate| score::point(&candidate.peer)).collect();
        let of = |index: u32| candidates[index as usize].organisation;
        let mut by_organisation: Vec<u32> = (0..candidates.len() as u32).collect();
        by_organisation.sort_by_key(|&index| of(index));
        let organisations: Vec<Vec<u32>> =
            by_organisation.chunk_by(|&a, &b| of(a) == of(b)).map(<[u32]>::to_vec).collect();
        let mut organisation_of = vec![0; candidates.len()];
        for (number, members) in organisations.iter().enumerate() {
            members.iter().for_each(|&index| organisation_of[index as usize] = number as u32);
        }
        let memo = Memo::default();
        Self { roster, candidates, points, organisations, organisation_of, memo }
    }

    /// How many peers it has.
    pub fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// The number of the roster it was made by.
    pub fn roster(&self) -> u64 {
        self.roster
    }

    /// The peers, ascending by key.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// How many organisations its peers belong to.
    pub fn organisations(&self) -> usize {
        self.organisations.len()
    }

    /// With fewer peers within reach a writer does not go by them alone: as many as a page has copies.
    pub const REACHED_MIN: usize = PAGE_COPIES as usize;

    /// The view of those of its peers that can be reached, for a writer that waits for more than they are: what it waits for it
    /// chooses by them alone. A certificate costs nothing, so an organisation with some for peers that never run would else end
    /// all writing.
    ///
    /// `None` where they are fewer than [`View::REACHED_MIN`], or of less than half of the organisations: there the writer is cut off, and what it
    /// stored would be known to few.
    pub fn reached(&self, is_reached: impl Fn(&PeerId) -> bool) -> Option<Self> {
        let reached = self.candidates.iter().filter(|candidate| is_reached(&candidate.peer));
        let reached: Vec<Candidate> = reached.cloned().collect();
        let organisations: BTreeSet<OrgId> =
            reached.iter().map(|candidate| candidate.organisation).collect();
        let enough = reached.len() >= Self::REACHED_MIN;
        let spread = organisations.len() * 2 >= self.organisations();
        (enough && spread).then(|| Self::new(self.roster, reached))
    }

    /// Every peer, best holder first, one organisation at a time.
    pub fn rank(&self, place: &Place) -> Vec<PeerId> {
        self.holders(place, self.len())
    }

    /// The first `n` of the rank (all of it where there are fewer).
    pub fn holders(&self, place: &Place, n: usize) -> Vec<PeerId> {
        self.first_indexes(place, n).map(|index| self.candidates[index].peer).collect()
    }

    /// The first `n` of the rank, as indexes.
    pub(crate) fn first_indexes(
        &self,
        place: &Place,
        n: usize,
    ) -> impl Iterator<Item = usize> + use<> {
        let n = n.min(self.len());
        let known = self.memo.get(place, n).unwrap_or_else(|| {
            let first = self.first(place, n);
            let first: Arc<[u32]> = first.into_iter().map(|ranked| ranked.index).collect();
            self.memo.keep(place, &first);
            first
        });
        (0..n).filter_map(move |at| known.get(at).map(|index| *index as usize))
    }

    /// The first `n` of the rank.
    ///
    /// Every peer's draw is needed, but only those of each organisation that can be among the n are
    /// sorted. One allocation: a million records ask for this.
    fn first(&self, place: &Place, n: usize) -> Vec<Ranked> {
        let rounds = self.rounds(n);
        let mut ranked: Vec<Ranked> = Vec::with_capacity(self.len());
        for members in &self.organisations {
            let start = ranked.len();
            ranked.extend(members.iter().map(|&index| self.score(index, place)));
            if rounds < members.len() {
                if rounds > 0 {
                    ranked[start..].select_nth_unstable_by(rounds - 1, Ranked::order);
                }
                ranked.truncate(start + rounds);
            }
            ranked[start..].sort_unstable_by(Ranked::order);
            (0..).zip(&mut ranked[start..]).for_each(|(round, ranked)| ranked.round = round);
        }
        ranked.sort_unstable_by(|a, b| a.round.cmp(&b.round).then_with(|| a.order(b)));
        ranked.truncate(n);
        ranked
    }

    /// Where in the rank a peer stands, 0 being the best; `None` where the view does not have it.
    pub fn rank_of(&self, place: &Place, peer: &PeerId) -> Option<usize> {
        self.position(peer)?;
        self.rank(place).iter().position(|found| found == peer)
    }

    /// In how many rounds of one peer an organisation n peers are taken.
    fn rounds(&self, n: usize) -> usize {
        let taken = |rounds: usize| -> usize {
            self.organisations.iter().map(|members| members.len().min(rounds)).sum()
        };
        let (mut enough, mut low) = (self.len(), 0);
        while low < enough {
            let middle = low.midpoint(enough);
            if taken(middle) < n { low = middle + 1 } else { enough = middle }
        }
        enough
    }

    /// Of the first n of any rank, how many one organisation has at most.
    pub fn most_of_one(&self, n: usize) -> usize {
        let rounds = self.rounds(n.min(self.len()));
        self.organisations.iter().map(|members| members.len().min(rounds)).max().unwrap_or(0)
    }

    fn score(&self, index: u32, place: &Place) -> Ranked {
        let at = index as usize;
        let score = Score::new(&self.points[at], place, self.candidates[at].weight);
        Ranked { round: 0, index, score }
    }

    /// The index of a peer among the candidates.
    pub(crate) fn position(&self, peer: &PeerId) -> Option<usize> {
        self.candidates.binary_search_by_key(peer, |candidate| candidate.peer).ok()
    }

    /// The number of the organisation of the candidate with this index, below [`View::organisations`].
    pub(crate) fn organisation_at(&self, index: usize) -> usize {
        self.organisation_of[index] as usize
    }
}
