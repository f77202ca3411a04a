//! Q3: after faults the network is at full redundancy again by itself: every acknowledged record is at all whose duty it is, and of
//! every stripe all n fragments are at holders of their own, or as many as there are peers that may hold one.
//!
//! It looks at the disks and not at what peers say: a peer with two fragments is one holder. Who is absent the peers say; they
//! must all say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crypto::{PeerId, Place, RecordId};
use placement::{SPARES, View, redundancy};
use store::{LogStore, RecordStore};

use super::holdings::Kept;
use crate::ledger::{self, Entry};
use crate::world::{Running, World};

/// Who takes part, as the checker counts.
pub(crate) struct Parties<'a> {
    /// Peers that cheat.
    pub(crate) rogues: &'a BTreeSet<usize>,
    /// Of those, the ones whose own share nobody can see to: what they say that they hold nobody can tell from the truth.
    pub(crate) believed: &'a BTreeSet<usize>,
}

/// What keeps everything of these from being whole.
pub(crate) fn lacks(world: &World, entries: &[Entry], parties: &Parties<'_>) -> Vec<String> {
    let running = ledger::running(world, &BTreeSet::new());
    let honest = |number: &usize| !parties.rogues.contains(number);
    let said: Vec<(usize, BTreeSet<String>)> = running
        .iter()
        .filter(|(number, _)| honest(number))
        .map(|(number, one)| (*number, absent(one)))
        .collect();
    let Some((first, absent)) = said.first() else { return vec!["nobody runs".to_owned()] };
    for (number, other) in &said {
        if other != absent {
            let (few, more) = (absent.len(), other.len());
            let what = format!("{few} are absent for peer {first} and {more} for peer {number}");
            return vec![what];
        }
    }
    let view = running.iter().find(|(number, _)| number == first);
    let Some(view) = view.map(|(_, one)| one.librarian.directory().view()) else {
        return Vec::new();
    };
    let by = ledger::stores(&running);
    let number_of: BTreeMap<PeerId, usize> =
        (0..world.plan.peers).map(|number| (world.community.peer(number), number)).collect();
    let duty = Duty { world, view, absent, number_of: &number_of, believed: parties.believed };
    let kept = entries.iter().flat_map(|entry| &entry.kept);
    kept.filter_map(|kept| duty.lacks(&ledger::held(world, kept, &by), &by)).collect()
}

/// Who is absent, as a peer says.
pub(crate) fn absent(running: &Running) -> BTreeSet<String> {
    let status = running.librarian.repair();
    status.map(|status| status.absent.into_iter().collect()).unwrap_or_default()
}

struct Duty<'a> {
    world: &'a World,
    view: Arc<View>,
    absent: &'a BTreeSet<String>,
    number_of: &'a BTreeMap<PeerId, usize>,
    believed: &'a BTreeSet<usize>,
}

impl Duty<'_> {
    fn first(&self, place: &Place, n: usize) -> Vec<usize> {
        let is_absent = |peer: &PeerId| self.absent.contains(&peer.to_string());
        let first = self.view.on_duty(place, n, is_absent);
        first.iter().filter_map(|peer| self.number_of.get(peer).copied()).collect()
    }

    /// What a record or a stripe lacks of its full redundancy.
    fn lacks(&self, held: &Kept, by: &[(usize, Arc<LogStore>)]) -> Option<String> {
        let place = Place::from(held.id());
        match held {
            Kept::Copies { id, kind, holders } => {
                let genesis = &self.world.community.genesis;
                let wanted = redundancy(*kind, self.view.len(), genesis.suite, genesis.copies);
                let duty = self.first(&place, wanted.copies as usize);
                let mut without = duty
                    .iter()
                    .filter(|peer| !holders.contains(peer) && !self.believed.contains(peer));
                let peer = without.next()?;
                Some(format!("{kind:?} {id} is not at peer {peer} (of {duty:?}: {holders:?})"))
            }
            Kept::Stripe { id, holders, .. } => {
                let possible = self.first(&place, holders.len() + SPARES);
                let doubtful = possible.iter().filter(|peer| self.believed.contains(peer)).count();
                let may: Vec<Vec<usize>> = holders
                    .iter()
                    .map(|one| {
                        let at = |peer: &usize| possible.iter().position(|other| other == peer);
                        one.iter().filter_map(at).collect()
                    })
                    .collect();
                let alone = seated(&may, possible.len());
                let wanted = holders.len().min(possible.len());
                // For who looks into it: whoever has a fragment without its header too.
                let at = |id: &RecordId| -> Vec<usize> {
                    let have = by.iter().filter(|(_, store)| store.contains(id));
                    have.map(|(number, _)| *number).collect()
                };
                let bare = || -> Vec<Vec<usize>> {
                    ledger::fragments(self.world, id).iter().map(at).collect()
                };
                (alone + doubtful < wanted).then(|| {
                    format!("{alone} of {wanted} fragments of {id} are at holders of their own ({:?}, headers {:?}, of {possible:?})", bare(), at(id))
                })
            }
        }
    }
}

/// How many fragments can be counted with a holder each that no other is counted with (a greatest matching).
fn seated(may: &[Vec<usize>], peers: usize) -> usize {
    fn seat(one: usize, may: &[Vec<usize>], of: &mut [Option<usize>], tried: &mut [bool]) -> bool {
        for &peer in &may[one] {
            if std::mem::replace(&mut tried[peer], true) {
                continue;
            }
            if of[peer].is_none_or(|other| seat(other, may, of, tried)) {
                of[peer] = Some(one);
                return true;
            }
        }
        false
    }
    let mut of = vec![None; peers];
    (0..may.len()).filter(|one| seat(*one, may, &mut of, &mut vec![false; peers])).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_with_two_fragments_is_one_holder() {
        assert_eq!(seated(&[vec![0], vec![1], vec![2]], 3), 3);
        assert_eq!(seated(&[vec![0], vec![0], vec![2]], 3), 2);
        assert_eq!(
            seated(&[vec![0, 1], vec![0], vec![1, 2]], 3),
            3,
            "whoever has a choice gives way"
        );
        assert_eq!(seated(&[vec![], vec![0]], 1), 1);
    }
}
