//! What mends a stripe: which fragments are made and for whom, which move, and which copies are too many.
//!
//! A fragment is the duty of nobody by name: any of the first n + 4 peers that are not absent may hold one,
//! one each. So what is whole stays where it is as far as it can, since a fragment that stays costs nothing, one that
//! moves costs itself, and one that is made costs k others. That is a matching:
//!
//! ```text
//!   fragments that are whole        peers that may hold one, best first
//!            0 ------------------------- a        0 stays with b, and 1 with a: nothing moves.
//!              \------------------------ b        (0 staying with a, the better one, would make
//!            1 ------------------------- a         1 move.)
//!            2 -- x, who may not                  2 moves to the best who has none.
//! ```
//!
//! One organisation's loss must leave k fragments, so none should have more than n - k. The rank sees to that (see
//! [`crate::Profile::by_view`]), but a peer that is away displaces its fragment to a spare of any organisation:
//!
//! ```text
//!   8/16, two organisations of nine peers      a has  b has
//!   as the rank says                               8      8
//!   b1 is away during the put: a9 has its own      9      7     without a the stripe is lost
//!   b1 is back, and holds nothing: a9 -> b1        8      8
//! ```
//! So [`View::plan`] counts the fragments of each organisation too. What is made or moves anyway goes to the best peer whose
//! organisation has room. Of two copies the one stays that leaves nobody with too many, which costs nothing. And what an
//! organisation has beyond n - k moves to peers of others that hold none, as the least urgent need: all of it, or none where
//! those others have no room for all, since a part of it would save nothing. It does not move back: a plan moves nothing to an
//! organisation that would have too many by it, as long as another peer may take it.
//!
//! Invariants (asserted by properties in `tests/mend.rs`): with enough peers, a stripe to which the plan was applied is
//! whole, nobody has two fragments, and the next plan is empty; with too few the next is empty too. A fragment's last
//! whole copy is never surplus. The plan does not depend on the order of what it is given. No more is made than is missing.
//! Where nobody has more than n - k of the first n peers that may hold one, no organisation has more by the stripe that is
//! mended. Nothing moves for an organisation's sake that does not bring it from beyond n - k to n - k.

use std::collections::{BTreeMap, BTreeSet};

use crypto::PeerId;

use crate::view::View;

/// What is known of a stripe.
#[derive(Clone, Copy, Debug)]
pub struct StripeNow<'a> {
    /// Fragments that are enough.
    pub k: usize,
    /// Fragments in all: at most 256. Fragments with numbers from here on are not looked at.
    pub n: usize,
    /// Every fragment and peer that holds it whole and is not absent; several peers of a fragment are possible.
    pub whole: &'a [(u8, PeerId)],
    /// Who may hold one: the first n + 4 of the rank that are not absent, in rank order, and do not leave.
    pub possible: &'a [PeerId],
    /// Who leaves: serves what it has until it is elsewhere, and takes nothing.
    pub leaving: &'a BTreeSet<PeerId>,
}

/// A fragment goes from one holder to another, who has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Move {
    /// Which fragment.
    pub index: u8,
    /// Who has it whole.
    pub from: PeerId,
    /// Who gets it.
    pub to: PeerId,
}

/// What mends a stripe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mend {
    /// Fragments that nobody has, and who gets them, by number. Fewer than are missing where there are fewer peers
    /// without one; none where too few fragments are left to make any.
    pub make: Vec<(u8, PeerId)>,
    /// Fragments that are whole where they cannot stay: at a peer that leaves, at one that has another fragment, at one that
    /// ranks too low, or at an organisation that has too many; in this order, which is that of need.
    pub moves: Vec<Move>,
    /// Copies that may be dropped once those that stay were proven, by number.
    pub surplus: Vec<(u8, PeerId)>,
    /// Fragments that may be lost before the stripe is: those that are whole, less k. Below 0 it cannot be mended now.
    pub spare: i32,
}

impl Mend {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.make.is_empty() && self.moves.is_empty() && self.surplus.is_empty()
    }
}

/// What mends this stripe, whosever peers hold it.
///
/// Peers without any fragment get those that are made, the best the lowest number, and then those that move. Where no
/// such peer is left, one all of whose copies are surplus gets one.
pub fn plan(now: &StripeNow<'_>) -> Mend {
    planned(now, |_| None)
}

impl View {
    /// As [`plan`], so that the loss of any one organisation leaves k fragments as far as its peers allow.
    ///
    /// A peer that the view does not have counts as nobody's.
    pub fn plan(&self, now: &StripeNow<'_>) -> Mend {
        planned(now, |peer| Some(self.organisation_at(self.position(peer)?)))
    }
}

fn planned(now: &StripeNow<'_>, organisation_of: impl Fn(&PeerId) -> Option<usize>) -> Mend {
    let stripe = Stripe::new(now);
    let mut kept = stripe.kept();
    let mut shares = Shares {
        of: stripe.possible.iter().map(organisation_of).collect(),
        counts: BTreeMap::new(),
        most: stripe.holders.len().saturating_sub(now.k),
    };
    kept.iter().flatten().for_each(|rank| shares.add(*rank));
    stripe.give_way(&mut kept, &mut shares);
    let mut mend = Mend { spare: stripe.spare(now.k), ..Mend::default() };
    let mut free = stripe.free(&kept);
    if mend.spare >= 0 {
        for (index, _) in stripe.numbered().filter(|(_, holders)| holders.is_empty()) {
            let Some(to) = shares.next(&mut free) else { break };
            mend.make.push((index, stripe.possible[to]));
        }
    }
    let mut moving: Vec<(Need, u8, PeerId)> = Vec::new();
    for ((index, holders), kept) in stripe.numbered().zip(&kept) {
        let stays = kept.map(|rank| stripe.possible[rank]);
        let stays = stays.or_else(|| {
            let (need, from) = stripe.source(holders)?;
            moving.push((need, index, from));
            Some(from)
        });
        let others = holders.iter().filter(|holder| Some(**holder) != stays);
        mend.surplus.extend(others.map(|holder| (index, *holder)));
    }
    moving.sort_unstable();
    for (_, index, from) in moving {
        let Some(to) = shares.next(&mut free) else { break };
        mend.moves.push(Move { index, from, to: stripe.possible[to] });
    }
    // Of what nobody can read as it is, what matters moves first.
    if mend.spare >= 0 {
        mend.moves.extend(stripe.relief(&kept, free, &mut shares));
    }
    mend
}

/// How many of a stripe's fragments each organisation has once all is done that is planned so far.
struct Shares {
    /// Whose the peer of this rank is; none: nobody's that counts.
    of: Vec<Option<usize>>,
    counts: BTreeMap<usize, usize>,
    /// How many one should have at most: as many as may be lost.
    most: usize,
}

impl Shares {
    fn count(&self, organisation: usize) -> usize {
        self.counts.get(&organisation).copied().unwrap_or(0)
    }

    /// One more is at the peer of this rank.
    fn add(&mut self, rank: usize) {
        if let Some(of) = self.of[rank] {
            *self.counts.entry(of).or_default() += 1;
        }
    }

    /// One less is.
    fn remove(&mut self, rank: usize) {
        if let Some(count) = self.of[rank].and_then(|of| self.counts.get_mut(&of)) {
            *count -= 1;
        }
    }

    /// Whether the organisation of this peer may have one more.
    fn has_room(&self, rank: usize) -> bool {
        self.of[rank].is_none_or(|of| self.count(of) < self.most)
    }

    /// Whether it has more than it should.
    fn is_beyond(&self, rank: usize) -> bool {
        self.of[rank].is_some_and(|of| self.count(of) > self.most)
    }

    /// By how many which organisations have more than they should, the least first.
    fn beyond(&self) -> Vec<(usize, usize)> {
        let beyond = |(of, count): (&usize, &usize)| {
            let beyond = count.saturating_sub(self.most);
            (beyond > 0).then_some((beyond, *of))
        };
        let mut all: Vec<(usize, usize)> = self.counts.iter().filter_map(beyond).collect();
        all.sort_unstable();
        all
    }

    /// How many of these peers can get one each without their organisations having more than they should.
    fn room(&self, free: &[usize]) -> usize {
        let mut counts = self.counts.clone();
        let gets = |rank: &&usize| {
            let Some(of) = self.of[**rank] else { return true };
            let count = counts.entry(of).or_default();
            *count += 1;
            *count <= self.most
        };
        free.iter().filter(gets).count()
    }

    /// Takes out of these peers who is to get the next fragment: the first whose organisation has room, or else the first.
    fn next(&mut self, free: &mut Vec<usize>) -> Option<usize> {
        let at = free.iter().position(|rank| self.has_room(*rank)).unwrap_or(0);
        let rank = (at < free.len()).then(|| free.remove(at))?;
        self.add(rank);
        Some(rank)
    }
}

/// Why a fragment that is whole moves, most needed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// Who has it leaves.
    Leaving,
    /// Who has it has another that stays: one loss would take two.
    Second,
    /// Who has it ranks too low.
    Low,
}

/// A stripe without what does not count.
struct Stripe<'a> {
    /// Each peer once, best first.
    possible: Vec<PeerId>,
    ranks: BTreeMap<PeerId, usize>,
    leaving: &'a BTreeSet<PeerId>,
    /// Who has the fragment with this number whole.
    holders: Vec<BTreeSet<PeerId>>,
}

impl<'a> Stripe<'a> {
    fn new(now: &StripeNow<'a>) -> Self {
        let (mut possible, mut ranks) = (Vec::new(), BTreeMap::new());
        for peer in now.possible.iter().filter(|peer| !now.leaving.contains(peer)) {
            if let std::collections::btree_map::Entry::Vacant(rank) = ranks.entry(*peer) {
                rank.insert(possible.len());
                possible.push(*peer);
            }
        }
        let mut holders = vec![BTreeSet::new(); now.n.min(1 << u8::BITS)];
        for (index, peer) in now.whole {
            if let Some(holders) = holders.get_mut(usize::from(*index)) {
                holders.insert(*peer);
            }
        }
        Self { possible, ranks, leaving: now.leaving, holders }
    }

    /// Who has each fragment whole, with its number.
    fn numbered(&self) -> impl Iterator<Item = (u8, &BTreeSet<PeerId>)> {
        (0..=u8::MAX).zip(&self.holders)
    }

    fn spare(&self, k: usize) -> i32 {
        let whole = self.holders.iter().filter(|holders| !holders.is_empty()).count();
        let bounded = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        bounded(whole).saturating_sub(bounded(k))
    }

    /// By which rank each fragment stays where it is: one a peer, as many fragments as can, each with the best it has as
    /// far as that allows.
    fn kept(&self) -> Vec<Option<usize>> {
        let may: Vec<Vec<usize>> = self
            .holders
            .iter()
            .map(|holders| {
                let mut ranks: Vec<usize> =
                    holders.iter().filter_map(|holder| self.ranks.get(holder).copied()).collect();
                ranks.sort_unstable();
                ranks
            })
            .collect();
        let mut by_rank = vec![None; self.possible.len()];
        for fragment in 0..may.len() {
            seat(fragment, &may, &mut by_rank, &mut vec![false; self.possible.len()]);
        }
        let mut kept = vec![None; may.len()];
        for (rank, fragment) in by_rank.iter().enumerate() {
            if let Some(fragment) = fragment {
                kept[*fragment] = Some(rank);
            }
        }
        kept
    }

    /// Lets a fragment stay with another that has it too, where the organisation of whom it stays with has too many: that moves
    /// nothing. As many fragments stay as before, so no other could stay where this one did.
    fn give_way(&self, kept: &mut [Option<usize>], shares: &mut Shares) {
        if shares.beyond().is_empty() {
            return;
        }
        for (rank, fragment) in worst_first(kept) {
            if !shares.is_beyond(rank) {
                continue;
            }
            let holders = self.holders[fragment].iter();
            let ranks = holders.filter_map(|holder| self.ranks.get(holder).copied());
            let is_free = |other: &usize| shares.has_room(*other) && !kept.contains(&Some(*other));
            if let Some(other) = ranks.filter(is_free).min() {
                shares.remove(rank);
                shares.add(other);
                kept[fragment] = Some(other);
            }
        }
    }

    /// What organisations have beyond n - k goes to these peers of others, the worst ranked of it to the best of them. Of an
    /// organisation all of it or nothing; those that have the least go first, so that as many as can are brought to n - k.
    fn relief(
        &self,
        kept: &[Option<usize>],
        mut free: Vec<usize>,
        shares: &mut Shares,
    ) -> Vec<Move> {
        let mut moves = Vec::new();
        for (beyond, organisation) in shares.beyond() {
            if shares.room(&free) < beyond {
                break;
            }
            let own = |(rank, _): &(usize, usize)| shares.of[*rank] == Some(organisation);
            let goes: Vec<(usize, usize)> =
                worst_first(kept).into_iter().filter(own).take(beyond).collect();
            for (rank, fragment) in goes {
                let (Some(to), Ok(index)) = (shares.next(&mut free), u8::try_from(fragment)) else {
                    break;
                };
                shares.remove(rank);
                moves.push(Move { index, from: self.possible[rank], to: self.possible[to] });
            }
        }
        moves
    }

    /// By rank, who may take a fragment: those that have none, best first; then those that keep none of what they have.
    fn free(&self, kept: &[Option<usize>]) -> Vec<usize> {
        let keep: BTreeSet<usize> = kept.iter().flatten().copied().collect();
        let have: BTreeSet<&PeerId> = self.holders.iter().flatten().collect();
        let unkept = (0..self.possible.len()).filter(|rank| !keep.contains(rank));
        let (some, none): (Vec<_>, Vec<_>) =
            unkept.partition(|rank| have.contains(&self.possible[*rank]));
        [none, some].concat()
    }

    /// Which of the holders of a fragment that stays with nobody it moves from, and why: rather one that has no need of its
    /// own to be rid of it. None where nobody has it.
    ///
    /// Every holder that may hold one keeps another here: else it would keep this.
    fn source(&self, holders: &BTreeSet<PeerId>) -> Option<(Need, PeerId)> {
        let need = |holder: &PeerId| match (self.leaving.contains(holder), self.ranks.get(holder)) {
            (true, _) => Need::Leaving,
            (false, Some(_)) => Need::Second,
            (false, None) => Need::Low,
        };
        holders.iter().map(|holder| (need(holder), *holder)).max_by(|(a, x), (b, y)| {
            // Of equal needs the lower key.
            a.cmp(b).then(y.cmp(x))
        })
    }
}

/// The fragments that stay where they are, with the ranks of whom they stay with, the worst first.
fn worst_first(kept: &[Option<usize>]) -> Vec<(usize, usize)> {
    let kept = kept.iter().enumerate();
    let mut all: Vec<(usize, usize)> =
        kept.filter_map(|(fragment, rank)| Some(((*rank)?, fragment))).collect();
    all.sort_unstable();
    all.reverse();
    all
}

/// Finds a peer for a fragment among those that have it, best first, moving others that have a choice (an augmenting path:
/// Kuhn's way to a greatest matching). The depth is bounded by the peers, each of which is tried once.
fn seat(
    fragment: usize,
    may: &[Vec<usize>],
    by_rank: &mut [Option<usize>],
    tried: &mut [bool],
) -> bool {
    for &rank in &may[fragment] {
        if std::mem::replace(&mut tried[rank], true) {
            continue;
        }
        let vacant = match by_rank[rank] {
            None => true,
            Some(other) => seat(other, may, by_rank, tried),
        };
        if vacant {
            by_rank[rank] = Some(fragment);
            return true;
        }
    }
    false
}
