//! Which peer holds which fragment of a stripe, as this peer believes.

use std::collections::HashMap;

use crypto::{PeerId, Place, RecordId};
use document::Stripe;

use super::epoch::Epoch;

/// No peer.
pub(super) const NOBODY: u16 = u16::MAX;

/// Numbers for peers, so that a map has two bytes a fragment. A number is no other peer's until all are given anew ([`Renumbering`]).
#[derive(Default)]
pub(crate) struct Names {
    peers: Vec<PeerId>,
    numbers: HashMap<PeerId, u16>,
}

impl Names {
    /// The peer's number; a peer that is one too many shares the number that stands for nobody.
    pub(crate) fn of(&mut self, peer: &PeerId) -> u16 {
        if let Some(number) = self.numbers.get(peer) {
            return *number;
        }
        let Some(number) = u16::try_from(self.peers.len()).ok().filter(|new| *new != NOBODY) else {
            return NOBODY;
        };
        self.peers.push(*peer);
        self.numbers.insert(*peer, number);
        number
    }

    /// The number of a peer that has one.
    pub(crate) fn known(&self, peer: &PeerId) -> Option<u16> {
        self.numbers.get(peer).copied()
    }

    /// Whose number it is.
    pub(crate) fn peer(&self, number: u16) -> Option<PeerId> {
        self.peers.get(usize::from(number)).copied()
    }

    /// As many as there can be.
    #[cfg(test)]
    pub(super) fn full(peer: PeerId) -> Self {
        Self { peers: vec![peer; usize::from(NOBODY)], numbers: HashMap::from([(peer, 0)]) }
    }
}

/// Numbers given anew: of who is gone and holds nothing none is kept, or whoever changes its key again and again would use them up.
pub(super) struct Renumbering {
    old: Names,
    new: Names,
    /// By the old number, the new one.
    known: Vec<Option<u16>>,
}

impl Renumbering {
    /// Begins with those that must have one.
    pub(super) fn new<'a>(old: Names, first: impl Iterator<Item = &'a PeerId>) -> Self {
        let mut new = Names::default();
        for peer in first {
            new.of(peer);
        }
        let known = vec![None; old.peers.len()];
        Self { old, new, known }
    }

    /// Gives those that a map names their new ones.
    pub(super) fn map(&mut self, map: &mut StripeMap) {
        for holder in map.holders.iter_mut() {
            let at = usize::from(*holder);
            let (Some(peer), Some(known)) = (self.old.peers.get(at), self.known.get_mut(at)) else {
                continue;
            };
            *holder = *known.get_or_insert_with(|| self.new.of(peer));
        }
    }

    /// All of them.
    pub(super) fn names(self) -> Names {
        self.new
    }
}

/// Who holds a stripe's fragments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StripeMap {
    /// How many fragments bring the stripe back.
    k: u8,
    holders: Box<[u16]>,
    /// The fragments that are here.
    pub(crate) mine: Vec<u8>,
}

impl StripeMap {
    /// The map of a stripe of which nothing else is known: each fragment is where it belongs by rank.
    pub(crate) fn by_rank(
        id: &RecordId,
        stripe: &Stripe,
        epoch: &Epoch,
        names: &mut Names,
    ) -> Self {
        let n = stripe.fragments().len();
        let mut holders = vec![NOBODY; n];
        for (holder, peer) in holders.iter_mut().zip(epoch.view.holders(&Place::from(*id), n)) {
            *holder = names.of(&peer);
        }
        // k is 1 to 255: the decoder says so.
        let k = u8::try_from(stripe.k()).unwrap_or(u8::MAX);
        Self { k, holders: holders.into(), mine: Vec::new() }
    }

    pub(crate) fn k(&self) -> usize {
        usize::from(self.k)
    }

    pub(crate) fn n(&self) -> usize {
        self.holders.len()
    }

    /// Who is believed to hold each fragment.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Option<u16>> {
        self.holders.iter().map(|holder| (*holder != NOBODY).then_some(*holder))
    }

    pub(crate) fn holder(&self, index: u8) -> Option<u16> {
        self.holders.get(usize::from(index)).copied().filter(|holder| *holder != NOBODY)
    }

    /// Believes of a fragment that a peer holds it, or nobody.
    pub(crate) fn set(&mut self, index: u8, holder: Option<u16>) {
        if let Some(at) = self.holders.get_mut(usize::from(index)) {
            *at = holder.unwrap_or(NOBODY);
        }
    }

    /// Believes that a peer holds nothing of it.
    pub(crate) fn forget(&mut self, holder: u16) {
        for at in self.holders.iter_mut().filter(|at| **at == holder) {
            *at = NOBODY;
        }
    }

    /// Notes that a fragment is here.
    pub(crate) fn take(&mut self, index: u8) {
        if !self.mine.contains(&index) {
            self.mine.push(index);
        }
    }

    /// Who is believed to hold which fragment, with names.
    pub(crate) fn whole<'a>(&'a self, names: &'a Names) -> impl Iterator<Item = (u8, PeerId)> + 'a {
        self.holders()
            .enumerate()
            .filter_map(|(index, holder)| Some((u8::try_from(index).ok()?, names.peer(holder?)?)))
    }
}
