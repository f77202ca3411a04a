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
//! Invariants (asserted by properties in `tests/mend.rs`): with enough peers, a stripe to which the plan was applied is
//! whole, nobody has two fragments, and the next plan is empty; with too few the next is empty too. A fragment's last
//! whole copy is never surplus. The plan does not depend on the order of what it is given. No more is made than is missing.

use std::collections::{BTreeMap, BTreeSet};

use crypto::PeerId;

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
    /// Fragments that are whole where they cannot stay: at a peer that leaves, at one that has another fragment, or at
    /// one that ranks too low; in this order, which is that of need.
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

/// What mends this stripe.
///
/// Peers without any fragment get those that are made, the best the lowest number, and then those that move. Where no
/// such peer is left, one all of whose copies are surplus gets one.
pub fn plan(now: &StripeNow<'_>) -> Mend {
    let stripe = Stripe::new(now);
    let kept = stripe.kept();
    let mut mend = Mend { spare: stripe.spare(now.k), ..Mend::default() };
    let mut free = stripe.free(&kept).into_iter();
    if mend.spare >= 0 {
        let missing =
            stripe.holders.iter().zip(0..=u8::MAX).filter(|(holders, _)| holders.is_empty());
        mend.make = missing.map(|(_, index)| index).zip(free.by_ref()).collect();
    }
    let mut moving: Vec<(Need, u8, PeerId)> = Vec::new();
    for (index, (holders, kept)) in (0..=u8::MAX).zip(stripe.holders.iter().zip(&kept)) {
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
    mend.moves = moving
        .into_iter()
        .zip(free)
        .map(|((_, index, from), to)| Move { index, from, to })
        .collect();
    mend
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

    /// Who may take a fragment: those that have none, best first; then those that keep none of what they have.
    fn free(&self, kept: &[Option<usize>]) -> Vec<PeerId> {
        let keep: BTreeSet<usize> = kept.iter().flatten().copied().collect();
        let have: BTreeSet<&PeerId> = self.holders.iter().flatten().collect();
        let unkept = self.possible.iter().enumerate().filter(|(rank, _)| !keep.contains(rank));
        let (some, none): (Vec<_>, Vec<_>) =
            unkept.map(|(_, peer)| *peer).partition(|peer| have.contains(peer));
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
