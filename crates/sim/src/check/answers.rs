//! Q2 at the answer of a put: every copied record at W holders, s fragments of every stripe, all of them where it says *full*,
//! and no record that lacks more than the report says.
//!
//! W and N are what the author's own program says, since who it knows and reaches decides them. That alone would find nothing where
//! the program says too little: so whoever knows three peers must survive the loss of one, and where nothing is wrong with the
//! network what was acknowledged goes by the table of all its peers ([`by_the_table`]).

use std::collections::BTreeSet;

use author::PutReport;
use crypto::{Genesis, RecordId};
use document::Kind;
use placement::{PAGE_COPIES, Profile, Redundancy, redundancy};
use walk::Walker;

use super::holdings::{Kept, Received};
use crate::history::History;

/// The redundancy of each kind as an author saw it at one time, and how many peers it knew.
pub(crate) struct Seen {
    kinds: [(Kind, Redundancy); 4],
    peers: usize,
}

impl Seen {
    /// As this walker sees it now.
    pub(crate) fn by(walker: &Walker) -> Self {
        let kinds = [Kind::Page, Kind::Entry, Kind::Envelope, Kind::Stripe];
        let kinds = kinds.map(|kind| (kind, walker.redundancy(kind)));
        Self { kinds, peers: walker.directory().view().len() }
    }

    fn of(&self, kind: Kind) -> Redundancy {
        let found = self.kinds.iter().find(|(one, _)| *one == kind);
        found.map_or(Redundancy { copies: 1, acknowledged: 1 }, |(_, redundancy)| *redundancy)
    }
}

/// A put that is about to begin: what its author had sent before, and what it saw.
pub(crate) struct Begun {
    party: usize,
    earlier: BTreeSet<RecordId>,
    seen: Seen,
}

/// What an answered put promises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Peers whose loss its records survive from the answer on, whichever they are.
    pub answered: usize,
    /// The same once it is full.
    pub full: usize,
    /// Who acknowledged its records, those first whose loss comes nearest to taking it.
    pub holders: Vec<usize>,
}

impl Begun {
    /// Whatever this party sends from now on belongs to the put.
    pub(crate) fn new(history: &History, party: usize, walker: &Walker) -> Self {
        let inner = history.lock();
        let earlier = inner.received.get(&party);
        let earlier = earlier.into_iter().flat_map(|all| all.keys().copied()).collect();
        drop(inner);
        Self { party, earlier, seen: Seen::by(walker) }
    }

    /// The put was answered so. An author that learns peers meanwhile may want more of later records than of earlier ones: the
    /// less is held against it.
    pub(crate) fn answered(
        self,
        history: &History,
        walker: &Walker,
        report: &PutReport,
    ) -> (Promise, Vec<Kept>) {
        let kept = {
            let inner = history.lock();
            let nothing = Received::new();
            let received = inner.received.get(&self.party).unwrap_or(&nothing);
            Kept::all(received, &inner.stripes, &self.earlier)
        };
        let after = Seen::by(walker);
        if kept.is_empty() {
            history.find("Q2", "a put was answered and nobody acknowledged anything".to_owned());
            return (Promise::default(), kept);
        }
        let mut promise = Promise { answered: usize::MAX, full: usize::MAX, holders: Vec::new() };
        for one in &kept {
            let (needed, wanted, spared) = match one {
                Kept::Copies { kind, .. } => {
                    let (before, after) = (self.seen.of(*kind), after.of(*kind));
                    let needed = before.acknowledged.min(after.acknowledged);
                    (needed, before.copies.min(after.copies), 1)
                }
                Kept::Stripe { k, holders, .. } => {
                    let (k, n) = (*k as u32, holders.len() as u32);
                    (Profile::Stripe { k, n }.threshold(), n, k)
                }
            };
            promise.answered = promise.answered.min((needed - spared) as usize);
            promise.full = promise.full.min((wanted - spared) as usize);
            let needed = if report.full { wanted } else { needed };
            check_one(history, one, needed as usize, (needed - spared) as usize);
            let lacks = (wanted as usize).saturating_sub(one.acked());
            if lacks > report.wanted.saturating_sub(report.acked) as usize {
                let (acked, id) = (one.acked(), one.id());
                let said = format!("{} of {}", report.acked, report.wanted);
                let what = format!("{id} has {acked} of {wanted} and a put says {said}");
                history.find("Q2", what);
            }
        }
        // W is 2 at least of three copies, which there are of everything where three peers are known.
        let known = self.seen.peers.min(after.peers);
        if promise.answered == 0 && known >= PAGE_COPIES as usize {
            let what = format!("a put by one who knows {known} peers survives no loss of any");
            history.find("Q2", what);
        }
        promise.holders = dearest_first(&kept);
        (promise, kept)
    }
}

/// Where nothing is wrong with a network of so many peers: every copied record is at W holders of the table, at N where the put says
/// *full*, whatever the author's program takes for its W and N.
pub(crate) fn by_the_table(
    history: &History,
    kept: &[Kept],
    full: bool,
    peers: usize,
    genesis: &Genesis,
) {
    for one in kept {
        let Kept::Copies { id, kind, holders } = one else { continue };
        let wanted = redundancy(*kind, peers, genesis.suite, genesis.copies);
        let needed = if full { wanted.copies } else { wanted.acknowledged };
        if holders.len() < needed as usize {
            let (kind, acked) = (kind.name(), holders.len());
            let what =
                format!("{kind} {id} has {acked} holders and not {needed}, of {peers} peers");
            history.find("Q2", what);
        }
    }
}

fn check_one(history: &History, one: &Kept, needed: usize, losses: usize) {
    let (acked, id) = (one.acked(), one.id());
    if acked < needed {
        history.find("Q2", format!("a put was answered with {acked} of {needed} of {id}"));
    } else if let Some(peer) = one.doubled() {
        history.find("Q2", format!("peer {peer} has two fragments of {id}"));
    } else if one.survives() < Some(losses) {
        let survives = one.survives();
        history.find("Q2", format!("{id} survives {survives:?} losses and not {losses}"));
    }
}

/// All holders, those first that have what survives least.
fn dearest_first(kept: &[Kept]) -> Vec<usize> {
    let mut order: Vec<&Kept> = kept.iter().collect();
    order.sort_by_key(|one| (one.survives(), matches!(one, Kept::Copies { .. })));
    let mut holders = Vec::new();
    for peer in order.into_iter().flat_map(Kept::holders) {
        if !holders.contains(&peer) {
            holders.push(peer);
        }
    }
    holders
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::search::Needle;

    #[test]
    fn fewer_holders_than_the_table_asks_for_are_found() {
        let clock = Arc::new(testkit::time::VirtualClock::new());
        let history = History::new(clock, Needle::new(1), false);
        let genesis = testkit::network::community(1, 1).genesis;
        let found = |holders: usize, full: bool, peers: usize| {
            let holders = (0..holders).collect();
            let id = RecordId::new([1; 32]);
            let kept = [Kept::Copies { id, kind: Kind::Entry, holders }];
            by_the_table(&history, &kept, full, peers, &genesis);
            std::mem::take(&mut history.lock().findings).len()
        };
        assert_eq!([found(3, true, 8), found(2, true, 8)], [0, 1], "N");
        assert_eq!([found(2, false, 8), found(1, false, 8)], [0, 1], "W");
        assert_eq!([found(5, true, 9), found(3, true, 9)], [0, 1], "of nine peers");
    }
}
