//! The peers of one rank that a walk has still to ask, and which of them next.
//!
//! The rank says who should hold a record; health says whom to ask first. Writers take the rank from its top past everybody
//! who is unwell. Readers ask the well ones among the first N + [`NEAR_EXTRA`] first, since a copy is most likely there,
//! then the well ones further down, then those that failed a moment ago. Of the first N those that owe a large record give way to the
//! others for one more ([`crate::owing`]).

use std::collections::BTreeSet;

use crypto::{PeerId, Place};
use placement::View;

use crate::core::Core;
use crate::directory::Standing;
use crate::latency::Size;

/// A copy may be on any of so many peers more than there are copies without being out of place.
pub const NEAR_EXTRA: usize = 4;
/// The most peers that one walk asks for one record.
pub const ASKED_MAX: usize = 256;

/// How likely a copy is at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// It is one of those that should have one.
    First,
    /// It ranks right behind them.
    Near,
    Far,
}

/// Peers to ask, in the order of their rank.
pub(crate) struct Candidates {
    /// In the order to be asked.
    left: Vec<(At, PeerId)>,
    write: bool,
    size: Size,
}

impl Candidates {
    /// All peers of the view, of which `copies` should hold what is at `place`: for a writer.
    pub(crate) fn to_write(view: &View, place: &Place, size: Size) -> Self {
        let rank = view.rank(place).into_iter().take(ASKED_MAX);
        Self { left: rank.map(|peer| (At::First, peer)).collect(), write: true, size }
    }

    /// As [`Candidates::to_write`] for a reader, who looks under the view before as well: near the top of the new
    /// rank, then near the top of the old one, then further down the new one.
    pub(crate) fn to_read(
        (view, copies): (&View, usize),
        before: Option<(&View, usize)>,
        place: &Place,
        size: Size,
    ) -> Self {
        let mut rank = view.rank(place);
        let far = rank.split_off(rank.len().min(copies + NEAR_EXTRA));
        if let Some((before, copies)) = before {
            let old = before.holders(place, copies + NEAR_EXTRA);
            let old: Vec<PeerId> = old.into_iter().filter(|peer| !rank.contains(peer)).collect();
            rank.extend(old);
        }
        let near: BTreeSet<PeerId> = rank.iter().copied().collect();
        let far = far.into_iter().filter(|peer| !near.contains(peer)).map(|peer| (At::Far, peer));
        let at = |number: usize| if number < copies { At::First } else { At::Near };
        let near = rank.iter().enumerate().map(|(number, peer)| (at(number), *peer));
        let left = near.chain(far).take(ASKED_MAX);
        Self { left: left.collect(), write: false, size }
    }

    /// The same peers without these.
    pub(crate) fn without(mut self, peers: impl Fn(&PeerId) -> bool) -> Self {
        self.left.retain(|(_, peer)| !peers(peer));
        self
    }

    /// Leaves those away where a copy is not likely: nobody asks the whole rank for what may not be there yet.
    pub(crate) fn near_alone(&mut self) {
        self.left.retain(|(at, _)| *at != At::Far);
    }

    /// Takes all peers out of it.
    pub(crate) fn take(&mut self) -> Self {
        Self { left: std::mem::take(&mut self.left), ..*self }
    }

    /// Of those left, the peers that serve and take no writes now: they were not asked for that reason.
    pub(crate) fn read_only(&self, core: &Core) -> Vec<PeerId> {
        let standing = |peer: &PeerId, write: bool| core.directory.standing(peer, self.size, write);
        let left = self.left.iter().map(|(_, peer)| *peer);
        left.filter(|peer| standing(peer, true) == Standing::Gone)
            .filter(|peer| standing(peer, false) < Standing::Stopped)
            .collect()
    }

    /// Whether nobody is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Puts a peer back, to be asked once more.
    pub(crate) fn again(&mut self, peer: PeerId) {
        self.left.push((At::Far, peer));
    }

    /// The next peer to ask, of those whose standing is `worst` or better.
    pub(crate) fn next(&mut self, core: &Core, worst: Standing) -> Option<(PeerId, Standing)> {
        loop {
            let (at, standing) = self.best(core, worst)?;
            let (_, peer) = self.left.remove(at);
            let claimed = core.directory.claim(&peer, self.size);
            match standing {
                // Somebody else claimed the try meanwhile: it is among those that wait now.
                Standing::Ready | Standing::Slow | Standing::Trial if !claimed => {
                    if worst >= Standing::Waiting {
                        return Some((peer, Standing::Waiting));
                    }
                }
                _ => return Some((peer, standing)),
            }
        }
    }

    /// The place among `left` and the standing of the peer to be asked next.
    fn best(&self, core: &Core, worst: Standing) -> Option<(usize, Standing)> {
        // What is usual of a line of which nothing is known is not known either.
        let any = core.line.takes_unknown();
        let mut best: Option<(u8, usize, Standing)> = None;
        for (number, (at, peer)) in self.left.iter().enumerate() {
            let standing = core.directory.standing(peer, self.size, self.write);
            let asks_large = !self.write && self.size == Size::Large && *at == At::First;
            let gives_way = asks_large && core.owing.gives_way(peer, any);
            let order = self.order(standing, *at, gives_way);
            if standing <= worst && best.is_none_or(|(found, ..)| order < found) {
                best = Some((order, number, standing));
                if order == 0 {
                    break;
                }
            }
        }
        best.map(|(_, number, standing)| (number, standing))
    }

    /// Less is earlier; peers of the same number go by rank.
    fn order(&self, standing: Standing, at: At, gives_way: bool) -> u8 {
        let far = at == At::Far && !self.write;
        match (standing, far) {
            (Standing::Ready | Standing::Trial, false) if gives_way => 1,
            // Those behind the first N have no copy mostly: who owes one is asked before them.
            (Standing::Ready | Standing::Trial, false) if at == At::Near && !self.write => 2,
            (Standing::Ready | Standing::Trial, false) => 0,
            (Standing::Slow, false) => 3,
            (Standing::Ready | Standing::Trial, true) => 4,
            (Standing::Slow, true) => 5,
            (Standing::Waiting, _) => 6,
            (Standing::Away, _) => 7,
            (Standing::Stopped, _) => 8,
            (Standing::Gone, _) => 9,
        }
    }
}
