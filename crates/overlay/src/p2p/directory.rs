//! Where other peers' overlays are, and when to try each again.
//!
//! A network of up to [`FULL_MESH_MAX`] known peers links everybody to everybody: news is one hop
//! away, and the loss of any peer costs nobody else a link. A larger one wants [`LINKS_WANTED`]
//! dialled links each, which makes about twice as many a peer on average, as every link has two
//! ends. A peer that cannot be dialled is tried again after 1, 2, 4, ... [`BACK_OFF_MAX`], with up
//! to a quarter of jitter, so that a peer that comes back is not met by everybody at once.
//!
//! Addresses that a peer's announcement gave (`learn`) replace those found by asking around, never
//! the other way: the former are signed. It is pure: time and jitter are arguments.

use std::collections::HashMap;
use std::time::Duration;

use libp2p::{Multiaddr, PeerId};

/// Up to so many known peers, all are linked.
pub const FULL_MESH_MAX: usize = 12;
/// Links that a peer of a larger network dials for.
pub const LINKS_WANTED: usize = 8;
/// The most peers whose addresses are kept; a further one takes the place of one that does not answer, or of any.
pub const KNOWN_MAX: usize = 4_096;
/// The most addresses kept of a peer.
pub const ADDRESSES_MAX: usize = 16;
/// Addresses of a peer that one dial tries. A certificate costs nothing, and its peer's announcement may name any addresses: each dial of
/// it is a connection to each of these.
const ADDRESSES_DIALLED: usize = 3;
/// The most dials begun at one time.
pub(super) const DIALS_MAX: usize = 8;
/// The longest wait before a peer is dialled again.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(60);

const BACK_OFF_FIRST: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Directory(HashMap<PeerId, Known>);

struct Known {
    addresses: Vec<Multiaddr>,
    announced: bool,
    failures: u32,
    next: Duration,
    linked: bool,
}

impl Directory {
    /// Notes a peer's addresses, announced or found. True where that changed anything; then the
    /// peer may be dialled at once.
    pub(super) fn note(
        &mut self,
        peer: PeerId,
        mut addresses: Vec<Multiaddr>,
        announced: bool,
    ) -> bool {
        addresses.truncate(ADDRESSES_MAX);
        if addresses.is_empty() {
            return false;
        }
        if self.0.len() >= KNOWN_MAX && !self.0.contains_key(&peer) {
            self.make_room();
        }
        if let Some(known) = self.0.get(&peer) {
            let nothing_new = if announced {
                known.announced && known.addresses == addresses
            } else {
                // Different peers tell different subsets: only what is new counts, or two of them
                // would change the entry to and fro.
                known.announced || addresses.iter().all(|found| known.addresses.contains(found))
            };
            if nothing_new {
                return false;
            }
        }
        let linked = self.0.get(&peer).is_some_and(|known| known.linked);
        let (failures, next) = (0, Duration::ZERO);
        self.0.insert(peer, Known { addresses, announced, failures, next, linked });
        true
    }

    /// Forgets the peer without a link that was dialled in vain most often, one that was found before one that was announced; among equals any,
    /// by an order that nobody outside can aim at. Else whoever came first, and in numbers, would be all that is known.
    fn make_room(&mut self) {
        let unlinked = self.0.iter().filter(|(_, known)| !known.linked);
        let worst = unlinked.max_by_key(|(_, known)| (known.failures, !known.announced));
        if let Some(worst) = worst.map(|(peer, _)| *peer) {
            self.0.remove(&worst);
        }
    }

    pub(super) fn remove(&mut self, peer: &PeerId) {
        self.0.remove(peer);
    }

    /// Where to dial a peer next: up to [`ADDRESSES_DIALLED`] of its addresses, and after each failure those that follow.
    pub(super) fn addresses(&self, peer: &PeerId) -> Vec<Multiaddr> {
        let Some(known) = self.0.get(peer) else { return Vec::new() };
        let (all, tried) = (&known.addresses, known.failures as usize * ADDRESSES_DIALLED);
        let from = tried.checked_rem(all.len()).unwrap_or_default();
        all.iter().cycle().skip(from).take(all.len().min(ADDRESSES_DIALLED)).cloned().collect()
    }

    /// A link to the peer stands: the next loss is met without a wait.
    pub(super) fn linked(&mut self, peer: &PeerId) {
        if let Some(known) = self.0.get_mut(peer) {
            known.failures = 0;
            known.next = Duration::ZERO;
            known.linked = true;
        }
    }

    /// A dial failed, or the other side closed the link; `jitter` is random.
    pub(super) fn failed(&mut self, peer: &PeerId, now: Duration, jitter: u8) {
        if let Some(known) = self.0.get_mut(peer) {
            let wait = BACK_OFF_FIRST.saturating_mul(1 << known.failures.min(10)).min(BACK_OFF_MAX);
            known.failures = known.failures.saturating_add(1);
            known.linked = false;
            known.next = now + wait + wait * u32::from(jitter) / 1_024;
        }
    }

    /// Whom to dial now: as many as are missing to the links wanted, those that failed least first.
    ///
    /// `counts` says who may be dialled at all, `linked` who is linked or being dialled. `salt`
    /// turns the order among equals, so that a hundred peers that start together do not all dial
    /// the same one.
    pub(super) fn to_dial(
        &self,
        now: Duration,
        salt: u64,
        counts: impl Fn(&PeerId) -> bool,
        linked: impl Fn(&PeerId) -> bool,
    ) -> Vec<PeerId> {
        let standing = self.0.keys().filter(|peer| linked(peer) && counts(peer)).count();
        if standing >= FULL_MESH_MAX.max(LINKS_WANTED) {
            return Vec::new();
        }
        let known: Vec<_> = self.0.iter().filter(|(peer, _)| counts(peer)).collect();
        let wanted = if known.len() <= FULL_MESH_MAX { known.len() } else { LINKS_WANTED };
        let due = |(peer, known): &(&PeerId, &Known)| !linked(peer) && known.next <= now;
        let mut due: Vec<_> = known.into_iter().filter(due).collect();
        due.sort_by_key(|(peer, known)| (known.failures, turned(peer, salt)));
        due.truncate(wanted.saturating_sub(standing).min(DIALS_MAX));
        due.into_iter().map(|(peer, _)| *peer).collect()
    }
}

fn turned(peer: &PeerId, salt: u64) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (salt, peer).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Vec<Multiaddr> {
        vec![format!("/ip4/127.0.0.1/tcp/{port}").parse().expect("an address")]
    }

    fn directory(peers: usize) -> (Directory, Vec<PeerId>) {
        let ids: Vec<_> = (0..peers).map(|_| PeerId::random()).collect();
        let mut directory = Directory::default();
        for (port, id) in (1..).zip(&ids) {
            assert!(directory.note(*id, address(port), true));
        }
        (directory, ids)
    }

    const NOW: Duration = Duration::from_secs(1_000);

    #[test]
    fn a_small_network_is_dialled_whole_and_a_large_one_to_the_links_wanted() {
        let (small, _) = directory(7);
        assert_eq!(small.to_dial(NOW, 1, |_| true, |_| false).len(), 7);
        let (large, ids) = directory(40);
        assert_eq!(large.to_dial(NOW, 1, |_| true, |_| false).len(), LINKS_WANTED);
        let linked = |peer: &PeerId| ids[..5].contains(peer);
        assert_eq!(large.to_dial(NOW, 1, |_| true, linked).len(), LINKS_WANTED - 5);
        assert!(large.to_dial(NOW, 1, |_| false, |_| false).is_empty());
    }

    #[test]
    fn a_failing_peer_is_tried_less_and_less_until_a_link_stands() {
        let (mut directory, ids) = directory(1);
        let peer = ids[0];
        let due =
            |directory: &Directory, now| !directory.to_dial(now, 1, |_| true, |_| false).is_empty();
        let mut now = NOW;
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            let wait = Duration::from_secs(wait);
            directory.failed(&peer, now, 255);
            assert!(!due(&directory, now + wait - Duration::from_millis(1)));
            assert!(due(&directory, now + wait + wait / 4));
            now += wait * 2;
        }
        directory.linked(&peer);
        assert!(due(&directory, now));
    }

    #[test]
    fn a_dial_tries_a_few_addresses_and_the_next_one_others() {
        let peer = PeerId::random();
        let all: Vec<Multiaddr> = (1..=7).flat_map(address).collect();
        let mut directory = Directory::default();
        assert!(directory.addresses(&peer).is_empty());
        directory.note(peer, all.clone(), true);
        let mut tried = Vec::new();
        for _ in 0..3 {
            let now = directory.addresses(&peer);
            assert_eq!(now.len(), 3);
            tried.extend(now);
            directory.failed(&peer, NOW, 0);
        }
        assert_eq!((&tried[..7], &tried[7..]), (&all[..], &all[..2]));
        directory.linked(&peer);
        assert_eq!(directory.addresses(&peer), all[..3]);
        let one = PeerId::random();
        directory.note(one, address(9), true);
        directory.failed(&one, NOW, 0);
        assert_eq!(directory.addresses(&one), address(9));
    }

    #[test]
    fn what_was_announced_outweighs_what_was_found() {
        let (mut directory, ids) = directory(1);
        assert!(!directory.note(ids[0], address(9), false));
        assert!(!directory.note(ids[0], address(1), true));
        assert!(directory.note(ids[0], address(9), true));
        assert_eq!(directory.addresses(&ids[0]), address(9));
        let found = PeerId::random();
        assert!(directory.note(found, address(2), false));
        assert!(!directory.note(found, address(2), false));
        assert!(directory.note(found, [address(2), address(4)].concat(), false));
        assert!(!directory.note(found, address(4), false));
        assert!(directory.note(found, address(3), true));
        directory.remove(&found);
        assert!(directory.addresses(&found).is_empty());
    }

    #[test]
    fn it_stays_bounded() {
        let (mut directory, _) = directory(KNOWN_MAX);
        let linked: Vec<_> = directory.0.keys().take(KNOWN_MAX / 2).copied().collect();
        linked.iter().for_each(|peer| directory.linked(peer));
        let unlinked = directory.0.iter().find(|(_, known)| !known.linked);
        let dead = *unlinked.expect("half of them").0;
        directory.failed(&dead, Duration::ZERO, 0);
        for newcomer in [PeerId::random(), PeerId::random()] {
            assert!(directory.note(newcomer, address(1), true));
            assert_eq!(directory.0.len(), KNOWN_MAX);
            assert!(!directory.addresses(&newcomer).is_empty());
            assert!(directory.addresses(&dead).is_empty(), "it goes first");
        }
        for _ in 0..KNOWN_MAX {
            assert!(directory.note(PeerId::random(), address(1), true));
        }
        assert!(linked.iter().all(|peer| !directory.addresses(peer).is_empty()), "they stay");
        let many = (1..=40).flat_map(address).collect();
        let known = *directory.0.keys().next().expect("it is full");
        assert!(directory.note(known, many, true));
        assert_eq!(directory.0[&known].addresses.len(), ADDRESSES_MAX);
    }
}
