//! Which links count, and for how long a stranger's is kept.
//!
//! A newcomer's link may stand before its announcement has arrived here by way of others. So a link
//! of somebody who is no member yet is kept for [`STRANGER_FOR`], and at most [`STRANGERS_MAX`] of
//! them at a time; what becomes of its news meanwhile is in `intake`. Then it is closed.
//!
//! Above [`LINKS_MAX`] the surplus of members' links is closed too, of those outside of the mesh the
//! newest first, so that whoever opens many takes nobody else's: a bootstrap peer that everybody
//! dials gives the newcomers on to others. But never a link younger than [`SETTLE_FOR`]: Kademlia
//! dials dozens of peers in one lookup, and closing those under its hands made it dial them again
//! (64 peers that had just met kept two thirds of a core busy with handshakes).

use std::collections::HashMap;
use std::time::Duration;

use libp2p::PeerId;

/// How long a link of somebody who is no member (yet) is kept.
pub const STRANGER_FOR: Duration = Duration::from_secs(10);
/// The most such links at a time.
pub const STRANGERS_MAX: usize = 32;
/// The most links to members that are kept for long.
pub const LINKS_MAX: usize = 32;
/// How long every link to a member is left alone.
pub const SETTLE_FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Links {
    /// Since when each linked member is linked.
    members: HashMap<PeerId, Duration>,
    /// Until when each stranger's link is kept.
    strangers: HashMap<PeerId, Duration>,
}

impl Links {
    /// A connection to the peer stands. False where it must be closed.
    pub(super) fn opened(&mut self, peer: PeerId, member: bool, now: Duration) -> bool {
        if member {
            self.strangers.remove(&peer);
            self.members.entry(peer).or_insert(now);
            return true;
        }
        if self.strangers.len() >= STRANGERS_MAX && !self.strangers.contains_key(&peer) {
            return false;
        }
        self.members.remove(&peer);
        self.strangers.entry(peer).or_insert(now + STRANGER_FOR);
        true
    }

    /// The last connection to the peer is gone.
    pub(super) fn closed(&mut self, peer: &PeerId) {
        self.members.remove(peer);
        self.strangers.remove(peer);
    }

    /// Whether there is a link to the peer, member or not.
    pub(super) fn has(&self, peer: &PeerId) -> bool {
        self.members.contains_key(peer) || self.strangers.contains_key(peer)
    }

    /// Linked members.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Looks again who is a member, and returns the links to close: strangers out of time, and the
    /// surplus over [`LINKS_MAX`] of those that `spare` says can be spared.
    pub(super) fn review(
        &mut self,
        now: Duration,
        member: impl Fn(&PeerId) -> bool,
        spare: impl Fn(&PeerId) -> bool,
    ) -> Vec<PeerId> {
        let strangers: Vec<_> = self.strangers.keys().copied().collect();
        let promoted: Vec<_> = strangers.into_iter().filter(|peer| member(peer)).collect();
        let demoted: Vec<_> = self.members.keys().filter(|peer| !member(peer)).copied().collect();
        for peer in promoted {
            self.opened(peer, true, now);
        }
        let mut close = Vec::new();
        for peer in demoted {
            if !self.opened(peer, false, now) {
                close.push(peer);
            }
        }
        let late = self.strangers.iter().filter(|(_, until)| **until <= now);
        close.extend(late.map(|(peer, _)| *peer));
        let surplus = self.members.len().saturating_sub(LINKS_MAX);
        close.extend(self.newest_settled(now).into_iter().filter(spare).take(surplus));
        close
    }

    /// Members' links that are no longer left alone, the newest first.
    fn newest_settled(&self, now: Duration) -> Vec<PeerId> {
        let settled = self.members.iter().filter(|(_, since)| **since + SETTLE_FOR <= now);
        let mut settled: Vec<_> = settled.map(|(peer, since)| (*since, *peer)).collect();
        settled.sort_unstable_by(|one, other| other.cmp(one));
        settled.into_iter().map(|(_, peer)| peer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    #[test]
    fn a_stranger_stays_until_it_is_a_member_or_its_time_is_up() {
        let mut links = Links::default();
        let (a, b) = (PeerId::random(), PeerId::random());
        assert!(links.opened(a, false, NOW));
        assert!(links.opened(b, false, NOW));
        assert_eq!(links.len(), 0);
        assert!(links.has(&a));
        let later = NOW + STRANGER_FOR - Duration::from_millis(1);
        assert!(links.review(later, |peer| *peer == a, |_| true).is_empty());
        assert_eq!(links.len(), 1);
        assert_eq!(links.review(NOW + STRANGER_FOR, |peer| *peer == a, |_| true), [b]);
        // A second connection of a stranger does not start its time anew.
        assert!(links.opened(b, false, later));
        assert_eq!(links.review(NOW + STRANGER_FOR, |peer| *peer == a, |_| true), [b]);
    }

    #[test]
    fn who_is_no_member_any_more_becomes_a_stranger() {
        let mut links = Links::default();
        let peer = PeerId::random();
        assert!(links.opened(peer, true, NOW));
        assert!(links.review(NOW, |_| false, |_| true).is_empty());
        assert_eq!(links.len(), 0);
        assert_eq!(links.review(NOW + STRANGER_FOR, |_| false, |_| true), [peer]);
        links.closed(&peer);
        assert!(!links.has(&peer));
    }

    #[test]
    fn strangers_and_members_are_bounded() {
        let mut links = Links::default();
        for _ in 0..STRANGERS_MAX {
            assert!(links.opened(PeerId::random(), false, NOW));
        }
        assert!(!links.opened(PeerId::random(), false, NOW));
        let kept = PeerId::random();
        assert!(links.opened(kept, true, NOW));
        for _ in 0..LINKS_MAX + 4 {
            assert!(links.opened(PeerId::random(), true, NOW));
        }
        let members = links.members.clone();
        let mut review =
            |now| links.review(now, |peer| members.contains_key(peer), |peer| *peer != kept);
        assert!(review(NOW + STRANGER_FOR - Duration::from_millis(1)).is_empty());
        let mut close = review(NOW + SETTLE_FOR);
        close.retain(|peer| members.contains_key(peer));
        assert_eq!(close.len(), 5);
        assert!(!close.contains(&kept));
    }

    #[test]
    fn of_surplus_links_the_newest_are_closed() {
        let mut links = Links::default();
        let old: Vec<_> = (0..LINKS_MAX).map(|_| PeerId::random()).collect();
        for peer in &old {
            assert!(links.opened(*peer, true, NOW));
        }
        let second = Duration::from_secs(1);
        let new: Vec<_> = (0..20).map(|_| PeerId::random()).collect();
        for peer in &new {
            assert!(links.opened(*peer, true, NOW + second));
        }
        let mut close = links.review(NOW + second + SETTLE_FOR, |_| true, |_| true);
        close.sort_unstable();
        let mut new = new;
        new.sort_unstable();
        assert_eq!(close, new);
    }
}
