//! Which peers owe an answer with a large record just now.
//!
//! Calls begin side by side, and what a peer is like is known once they end: so a peer that hangs was asked for many records before
//! the first of them was given up. A reader asks others first while a peer owes an answer that is late, and on a line of which nothing
//! is known yet ([`crate::line`]) while it owes any: there a few calls are all that may be on their way, and one peer must not have them
//! all. Memory: an entry for each peer that is being asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::PeerId;

/// Answers that a peer owes.
#[derive(Clone, Copy, Debug, Default)]
struct Owes {
    all: u32,
    /// Of them those that take longer than is usual.
    late: u32,
}

/// What all peers owe.
#[derive(Debug, Default)]
pub(crate) struct Owing(Mutex<BTreeMap<PeerId, Owes>>);

impl Owing {
    /// The peer is asked; it owes until what this returns is dropped.
    pub(crate) fn begin(self: &Arc<Self>, peer: PeerId) -> Owed {
        self.lock().entry(peer).or_default().all += 1;
        Owed { owing: Arc::clone(self), peer, late: false }
    }

    /// Whether others are to be asked first. `any`: also where nothing is late.
    pub(crate) fn gives_way(&self, peer: &PeerId, any: bool) -> bool {
        self.lock().get(peer).is_some_and(|owes| any || owes.late > 0)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PeerId, Owes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that a peer owes.
#[derive(Debug)]
pub(crate) struct Owed {
    owing: Arc<Owing>,
    peer: PeerId,
    late: bool,
}

impl Owed {
    /// It takes longer than is usual.
    pub(crate) fn late(&mut self) {
        if !std::mem::replace(&mut self.late, true)
            && let Some(owes) = self.owing.lock().get_mut(&self.peer)
        {
            owes.late += 1;
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        let mut all = self.owing.lock();
        let Some(owes) = all.get_mut(&self.peer) else { return };
        owes.all -= 1;
        owes.late -= u32::from(self.late);
        if owes.all == 0 {
            all.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_gives_way_until_all_that_it_owes_came() {
        let owing = Arc::new(Owing::default());
        let peer = |number| testkit::network::key("owing", number).public().into();
        let (one, other): (PeerId, PeerId) = (peer(1), peer(2));
        let (mut first, second) = (owing.begin(one), owing.begin(one));
        assert!(owing.gives_way(&one, true) && !owing.gives_way(&one, false));
        assert!(!owing.gives_way(&other, true));
        first.late();
        first.late();
        assert!(owing.gives_way(&one, false));
        drop(first);
        assert!(owing.gives_way(&one, true) && !owing.gives_way(&one, false));
        drop(second);
        assert!(!owing.gives_way(&one, true));
        assert!(owing.lock().is_empty());
    }
}
