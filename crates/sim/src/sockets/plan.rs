//! What goes wrong on simulated sockets, made from the seed before the run.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::chance::Chance;

/// One thing that goes wrong, or ends. Peers by number; authors come after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// These parties are cut off from the others: what is on its way is lost for good.
    CutOff(BTreeSet<usize>),
    /// Nothing from these parties reaches the others, which they hear all the same.
    Mute(BTreeSet<usize>),
    /// The end of both.
    Together,
    /// What these and the others send each other waits.
    Hold(BTreeSet<usize>),
    /// And comes.
    Release(BTreeSet<usize>),
    /// The longest a segment takes, in milliseconds.
    Latency(u64),
    /// The peer is killed; its disks have what it wrote.
    Kill(usize),
    /// The power of the peer goes after so many more operations of its disks, in the middle of the next one.
    PowerFails(usize, u64),
    /// The peer has no power; its disks have what was synced, and any part of the rest.
    PowerCut(usize),
    /// The peer starts again.
    Start(usize),
}

/// Operations of a disk before the power goes, at most.
const OPERATIONS_MAX: u64 = 12;
/// How long a peer stays without power at least.
const DARK: Duration = Duration::from_millis(500);

/// What happens, in order.
pub(super) fn plan(
    seed: u64,
    peers: usize,
    authors: usize,
    from: Duration,
    until: Duration,
) -> Vec<(Duration, Trouble)> {
    let mut chance = Chance::new(seed, "sockets");
    let mut events = Vec::new();
    let span = (until - from).as_millis() as u64;
    let some = |chance: &mut Chance| -> BTreeSet<usize> {
        (0..peers + authors).filter(|_| chance.permille(300)).collect()
    };
    // Partitions and holds do not mix in this network, so each has its own part of the time.
    let parts = 2 + chance.below(2);
    for part in 0..parts {
        let at = from + Duration::from_millis(span * part / parts);
        let end = at + Duration::from_millis(span / parts * (30 + chance.below(50)) / 100);
        let side = some(&mut chance);
        let (begins, ends) = match chance.below(3) {
            0 => (Trouble::CutOff(side), Trouble::Together),
            1 => (Trouble::Mute(side), Trouble::Together),
            _ => (Trouble::Hold(side.clone()), Trouble::Release(side)),
        };
        events.extend([(at, begins), (end, ends)]);
    }
    for _ in 0..(3 + peers as u64 / 4) {
        let at = from + Duration::from_millis(chance.below(span * 3 / 4));
        let back = at + Duration::from_millis(500 + chance.below(span / 4));
        let peer = chance.index(peers);
        if chance.permille(700) {
            // Where the peer does not use its disks so much, the power goes in between.
            let fails = Trouble::PowerFails(peer, chance.below(OPERATIONS_MAX));
            let back = back.min(until - DARK);
            events.extend([(at, fails), (back, Trouble::PowerCut(peer))]);
            events.push((back + DARK, Trouble::Start(peer)));
        } else {
            events.extend([(at, Trouble::Kill(peer)), (back, Trouble::Start(peer))]);
        }
    }
    for _ in 0..3 {
        let at = from + Duration::from_millis(chance.below(span));
        events.push((at, Trouble::Latency(chance.one(&[5, 40, 250]))));
    }
    events.sort_by_key(|(at, _)| *at);
    events
}
