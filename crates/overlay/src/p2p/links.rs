//! Which links count, and for how long a stranger's is kept.
//!
//! A newcomer's link may stand before its announcement has arrived here by way of others. So a link
//! of somebody who is no member yet is kept for [`STRANGER_FOR`], and at most [`STRANGERS_MAX`] of
//! them at a time; what becomes of its news meanwhile is in `intake`. Then it is closed.
//!
//! Above [`LINKS_MAX`] the surplus of members' links is closed too: a bootstrap peer that everybody
//! dials gives the newcomers on to others. But never a link younger than [`SETTLE_FOR`]: Kademlia
//! dials dozens of peers in one lookup, and closing those under its hands made it dial them again
//! (64 peers that had just met kept two thirds of a core busy with handshakes).
//!
//! An organisation can name as many peers as it likes. So where there are too many links, be it the surplus or, at once, those
//! over [`MEMBERS_MAX`], the organisation that has the most loses its newest: it can keep nobody else from being linked. Of the
//! surplus, links in the mesh are spared.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crypto::OrgId;
use libp2p::PeerId;

/// How long a link of somebody who is no member (yet) is kept.
pub const STRANGER_FOR: Duration = Duration::from_secs(10);
/// The most such links at a time.
pub const STRANGERS_MAX: usize = 32;
/// The most links to members that are kept for long.
pub const LINKS_MAX: usize = 32;
/// The most links to members at a time.
pub(super) const MEMBERS_MAX: usize = 96;
/// How long every link to a member is left alone.
pub const SETTLE_FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Links {
    members: HashMap<PeerId, Linked>,
    strangers: HashMap<PeerId, Stranger>,
}

/// A linked stranger.
#[derive(Clone, Copy)]
struct Stranger {
    /// Until when its link is kept.
    until: Duration,
    /// Where it is, as far as it has an address.
    source: Option<IpAddr>,
}

/// A linked member.
#[derive(Clone, Copy)]
struct Linked {
    organisation: OrgId,
    since: Duration,
}

impl Links {
    /// A connection to the peer at this source stands, of this organisation where it is a member. Whose connections must be closed: the peer's own, or those
    /// of another that has to make room.
    #[must_use]
    pub(super) fn opened(
        &mut self,
        peer: PeerId,
        source: Option<IpAddr>,
        organisation: Option<OrgId>,
        now: Duration,
    ) -> Option<PeerId> {
        let Some(organisation) = organisation else {
            if !self.strangers.contains_key(&peer) && !self.has_room_for_stranger(source) {
                return Some(peer);
            }
            self.members.remove(&peer);
            let until = now + STRANGER_FOR;
            self.strangers.entry(peer).or_insert(Stranger { until, source });
            return None;
        };
        let displaced = match self.members.len() < MEMBERS_MAX || self.members.contains_key(&peer) {
            true => None,
            false => match self.displaced_by(organisation) {
                None => return Some(peer),
                displaced => displaced,
            },
        };
        self.strangers.remove(&peer);
        self.members.entry(peer).or_insert(Linked { organisation, since: now });
        if let Some(displaced) = &displaced {
            self.members.remove(displaced);
        }
        displaced
    }

    /// Whether one more stranger at this source may be linked: a source has no more of them than it leaves free, or whoever has as many
    /// keys as it likes would keep all newcomers out.
    fn has_room_for_stranger(&self, source: Option<IpAddr>) -> bool {
        let same = self.strangers.values();
        let same = same.filter(|stranger| source.is_some() && stranger.source == source).count();
        let free = STRANGERS_MAX.saturating_sub(self.strangers.len());
        same < free
    }

    /// Whose link is given up for one more of this organisation, if any is.
    fn displaced_by(&self, organisation: OrgId) -> Option<PeerId> {
        let counts = self.counts();
        let (largest, most) = counts.iter().max_by_key(|(id, count)| (**count, **id))?;
        let own = counts.get(&organisation).copied().unwrap_or(0);
        // One that had only one more would get it back in the same way.
        if *most <= own + 1 {
            return None;
        }
        let of_largest = self.members.iter().filter(|(_, link)| link.organisation == *largest);
        let newest = of_largest.max_by_key(|(peer, link)| (link.since, **peer));
        newest.map(|(peer, _)| *peer)
    }

    /// How many links each organisation has.
    fn counts(&self) -> HashMap<OrgId, usize> {
        let mut counts = HashMap::new();
        for link in self.members.values() {
            *counts.entry(link.organisation).or_default() += 1;
        }
        counts
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
        member: impl Fn(&PeerId) -> Option<OrgId>,
        spare: impl Fn(&PeerId) -> bool,
    ) -> Vec<PeerId> {
        let mut close = Vec::new();
        let linked: Vec<_> = self.strangers.keys().chain(self.members.keys()).copied().collect();
        for peer in linked {
            let organisation = member(&peer);
            match (self.members.get_mut(&peer), organisation) {
                // Who joined another organisation counts there from now on.
                (Some(link), Some(organisation)) => link.organisation = organisation,
                // Still a stranger, or given up for one of those before.
                (None, None) => {}
                (None, Some(_)) if !self.strangers.contains_key(&peer) => {}
                _ => close.extend(self.opened(peer, None, organisation, now)),
            }
        }
        let late = self.strangers.iter().filter(|(_, stranger)| stranger.until <= now);
        close.extend(late.map(|(peer, _)| *peer));
        close.extend(self.surplus(now, spare));
        close
    }

    /// Links to close, one after the other the newest of the organisation that has the most.
    fn surplus(&self, now: Duration, spare: impl Fn(&PeerId) -> bool) -> Vec<PeerId> {
        let mut counts = self.counts();
        let settled = self.members.iter().filter(|(_, link)| link.since + SETTLE_FOR <= now);
        let spared = settled.filter(|(peer, _)| spare(peer));
        let mut spared: Vec<_> = spared
            .map(|(peer, link)| (counts[&link.organisation], link.since, *peer, *link))
            .collect();
        let mut close = Vec::new();
        while self.members.len() - close.len() > LINKS_MAX {
            for (count, _, _, link) in &mut spared {
                *count = counts[&link.organisation];
            }
            let largest = spared.iter().enumerate();
            let Some((at, _)) =
                largest.max_by_key(|(_, (count, since, peer, _))| (*count, *since, *peer))
            else {
                break;
            };
            let (_, _, peer, link) = spared.swap_remove(at);
            counts.entry(link.organisation).and_modify(|count| *count -= 1);
            close.push(peer);
        }
        close
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    fn organisation(byte: u8) -> Option<OrgId> {
        let secret = crypto::SecretKey::from_bytes(&[byte; 32]).expect("a scalar");
        Some(OrgId::new(secret.public()))
    }

    fn open(links: &mut Links, count: usize, of: Option<OrgId>, now: Duration) -> Vec<PeerId> {
        let opened: Vec<_> = (0..count).map(|_| PeerId::random()).collect();
        for peer in &opened {
            assert_eq!(links.opened(*peer, None, of, now), None);
        }
        opened
    }

    #[test]
    fn a_stranger_stays_until_it_is_a_member_or_its_time_is_up() {
        let mut links = Links::default();
        let (a, b) = (PeerId::random(), PeerId::random());
        assert_eq!(links.opened(a, None, None, NOW), None);
        assert_eq!(links.opened(b, None, None, NOW), None);
        assert_eq!(links.len(), 0);
        assert!(links.has(&a));
        let later = NOW + STRANGER_FOR - Duration::from_millis(1);
        let member = |peer: &PeerId| (*peer == a).then(|| organisation(1)).flatten();
        assert!(links.review(later, member, |_| true).is_empty());
        assert_eq!(links.len(), 1);
        assert_eq!(links.review(NOW + STRANGER_FOR, member, |_| true), [b]);
        // A second connection of a stranger does not start its time anew.
        assert_eq!(links.opened(b, None, None, later), None);
        assert_eq!(links.review(NOW + STRANGER_FOR, member, |_| true), [b]);
    }

    #[test]
    fn who_is_no_member_any_more_becomes_a_stranger() {
        let mut links = Links::default();
        let peer = PeerId::random();
        assert_eq!(links.opened(peer, None, organisation(1), NOW), None);
        assert!(links.review(NOW, |_| None, |_| true).is_empty());
        assert_eq!(links.len(), 0);
        assert_eq!(links.review(NOW + STRANGER_FOR, |_| None, |_| true), [peer]);
        links.closed(&peer);
        assert!(!links.has(&peer));
    }

    #[test]
    fn strangers_and_members_are_bounded() {
        let mut links = Links::default();
        open(&mut links, STRANGERS_MAX, None, NOW);
        let late = PeerId::random();
        assert_eq!(links.opened(late, None, None, NOW), Some(late));
        let kept = open(&mut links, 1, organisation(1), NOW)[0];
        open(&mut links, LINKS_MAX + 4, organisation(1), NOW);
        let members = links.members.clone();
        let organisation_of = |peer: &PeerId| members.get(peer).map(|link| link.organisation);
        let mut review = |now| links.review(now, organisation_of, |peer| *peer != kept);
        assert!(review(NOW + STRANGER_FOR - Duration::from_millis(1)).is_empty());
        let mut close = review(NOW + SETTLE_FOR);
        close.retain(|peer| members.contains_key(peer));
        assert_eq!(close.len(), 5);
        assert!(!close.contains(&kept));
        open(&mut links, MEMBERS_MAX - members.len(), organisation(1), NOW);
        assert_eq!(links.opened(late, None, organisation(1), NOW), Some(late));
    }

    #[test]
    fn one_source_leaves_places_for_other_strangers() {
        let mut links = Links::default();
        let at = |host: u8| Some(IpAddr::from([192, 0, 2, host]));
        let mut open = |host: u8, peer: PeerId| links.opened(peer, at(host), None, NOW).is_none();
        let first = PeerId::random();
        assert!(open(1, first));
        assert_eq!((0..100).filter(|_| open(1, PeerId::random())).count(), STRANGERS_MAX / 2 - 1);
        assert!(open(1, first), "one that is linked is no further one");
        assert_eq!((0..100).filter(|_| open(2, PeerId::random())).count(), STRANGERS_MAX / 4);
        assert!(open(3, PeerId::random()));
        // Members are counted by their organisations alone.
        let member =
            |links: &mut Links| links.opened(PeerId::random(), at(1), organisation(1), NOW);
        assert!((0..MEMBERS_MAX).all(|_| member(&mut links).is_none()));
    }

    #[test]
    fn of_surplus_links_the_newest_are_closed() {
        let mut links = Links::default();
        open(&mut links, LINKS_MAX, organisation(1), NOW);
        let second = Duration::from_secs(1);
        let mut new = open(&mut links, 20, organisation(1), NOW + second);
        let mut close = links.review(NOW + second + SETTLE_FOR, |_| organisation(1), |_| true);
        close.sort_unstable();
        new.sort_unstable();
        assert_eq!(close, new);
    }

    #[test]
    fn an_organisation_with_many_peers_keeps_nobody_else_out() {
        let mut links = Links::default();
        let many = open(&mut links, MEMBERS_MAX, organisation(1), NOW);
        let mut of: HashMap<_, _> = many.iter().map(|peer| (*peer, organisation(1))).collect();
        let (mut others, mut given_up) = (Vec::new(), Vec::new());
        for byte in 2..12 {
            let peer = PeerId::random();
            let displaced = links.opened(peer, None, organisation(byte), NOW + SETTLE_FOR);
            given_up.push(displaced.expect("no room but the first's"));
            others.push(peer);
            of.insert(peer, organisation(byte));
        }
        assert!(given_up.iter().all(|peer| many.contains(peer)) && !links.has(&given_up[0]));
        // It does not get them back in the same way.
        assert_eq!(links.opened(given_up[0], None, organisation(1), NOW), Some(given_up[0]));
        assert_eq!(links.len(), MEMBERS_MAX);
        // Nor is the surplus anybody else's, although theirs are the newest.
        let close = links.review(NOW + 2 * SETTLE_FOR, |peer| of[peer], |_| true);
        assert_eq!(close.len(), MEMBERS_MAX - LINKS_MAX);
        assert!(close.iter().all(|peer| many.contains(peer)));
    }

    #[test]
    fn two_organisations_that_have_as_many_displace_nobody() {
        let mut links = Links::default();
        open(&mut links, MEMBERS_MAX / 2, organisation(1), NOW);
        open(&mut links, MEMBERS_MAX / 2, organisation(2), NOW);
        for byte in [1, 2] {
            let late = PeerId::random();
            assert_eq!(links.opened(late, None, organisation(byte), NOW), Some(late));
        }
        assert!(links.opened(PeerId::random(), None, organisation(3), NOW).is_some());
        assert_eq!(links.len(), MEMBERS_MAX);
    }

    #[test]
    fn who_makes_room_in_a_review_is_not_linked_again_by_it() {
        let mut links = Links::default();
        let many = open(&mut links, MEMBERS_MAX, organisation(1), NOW);
        let new = open(&mut links, 3, None, NOW);
        let organisation_of = |peer: &PeerId| match new.contains(peer) {
            true => organisation(2),
            false => organisation(1),
        };
        let close = links.review(NOW, organisation_of, |_| true);
        assert_eq!(close.len(), 3);
        assert!(close.iter().all(|peer| many.contains(peer) && !links.has(peer)));
        assert!(new.iter().all(|peer| links.members.contains_key(peer)));
    }
}
