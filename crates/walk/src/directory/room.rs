//! Who stays where there is no more room: organisations share the directory, and none has more of it than its part, full or not.
//!
//! A part is what the roster's organisations have of it each if all have as much, and never less than [`OF_ONE_MIN`]. Of an
//! organisation that has its part the peers with the least keys stay, beside those that left none: whoever was told of what first,
//! all keep the same, so that their views do not differ for good. What one organisation certifies beyond costs nobody memory or
//! ranks.
//!
//! The cost of one newcomer to a full directory, or to an organisation's full part, is a walk over it under its lock (10,000 peers:
//! below a millisecond), beside the two signatures that were checked before.

use crypto::{Announcement, OrgId, PeerCertificate, PeerId, PeerState};

use super::peer::Peer;
use super::{At, Inner};

/// The least part of an organisation, in peers.
pub(super) const OF_ONE_MIN: usize = 256;

/// Where a newcomer finds room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Beside all others.
    Free,
    /// In the place of this one.
    InsteadOf(PeerId),
    /// Nowhere.
    No,
}

impl Inner {
    /// Where there is room for a newcomer: where its organisation has its part, in the place of one that it would not keep; where
    /// the directory is full, of a peer of the organisation that has most, where that has more than the newcomer's would have, or
    /// the newcomer is this program's own peer. Those that no view has any more are forgotten first.
    pub(super) fn room_for(
        &mut self,
        newcomer: &Announcement,
        own: Option<PeerId>,
        at: At,
    ) -> Room {
        let organisation = newcomer.certificate.organisation;
        if self.peers.len() < self.peers_max && !self.has_part(&organisation) {
            return Room::Free;
        }
        self.peers.retain(|_, known| at.unix_s < known.leaves_view_at());
        self.count_shares();
        if self.has_part(&organisation) {
            return self.room_within(newcomer, own);
        }
        if self.peers.len() < self.peers_max {
            return Room::Free;
        }
        self.room_of_others(&newcomer.certificate, own, at)
    }

    /// In an organisation's own part: of those that left the last goes, and of the others, each where a peer comes that does not.
    fn room_within(&self, newcomer: &Announcement, own: Option<PeerId>) -> Room {
        let PeerCertificate { peer, organisation, .. } = &newcomer.certificate;
        let is_own = Some(*peer) == own;
        if newcomer.state == PeerState::Left && !is_own {
            return Room::No;
        }
        let of_it = self.peers.iter().filter(|(id, known)| {
            known.announcement.certificate.organisation == *organisation && Some(**id) != own
        });
        match of_it.max_by_key(|(id, known)| (has_left(known), **id)) {
            Some((last, known)) if is_own || has_left(known) || last > peer => {
                Room::InsteadOf(*last)
            }
            _ => Room::No,
        }
    }

    fn room_of_others(&self, newcomer: &PeerCertificate, own: Option<PeerId>, at: At) -> Room {
        let PeerCertificate { peer, organisation, .. } = newcomer;
        let share = self.share(organisation);
        let largest = self.shares.iter().max_by_key(|(_, share)| **share);
        let Some((largest, most)) = largest.map(|(of, share)| (*of, *share)) else {
            return Room::No;
        };
        if share + 1 >= most && Some(*peer) != own {
            return Room::No;
        }
        let of_largest = self.peers.iter().filter(|(id, known)| {
            known.announcement.certificate.organisation == largest && Some(**id) != own
        });
        // The last of the keys among equals: it has no other meaning.
        let worst = of_largest.max_by_key(|(_, known)| known.health(at.elapsed));
        worst.map_or(Room::No, |(id, _)| Room::InsteadOf(*id))
    }

    /// Whether as many peers of an organisation are known as are its part.
    pub(super) fn has_part(&self, organisation: &OrgId) -> bool {
        self.share(organisation) >= self.part()
    }

    /// Forgets what organisations have beyond their parts: another roster counts, by which these may be smaller.
    pub(super) fn trim(&mut self, own: Option<PeerId>) {
        self.count_shares();
        let part = self.part();
        let beyond = self.shares.iter().filter(|(_, share)| **share > part);
        let beyond: Vec<(OrgId, usize)> = beyond.map(|(of, share)| (*of, share - part)).collect();
        for (organisation, count) in beyond {
            let of_it = self.peers.iter().filter(|(id, known)| {
                known.announcement.certificate.organisation == organisation && Some(**id) != own
            });
            let mut of_it: Vec<(bool, PeerId)> =
                of_it.map(|(id, known)| (has_left(known), *id)).collect();
            of_it.sort_unstable();
            for (_, last) in of_it.into_iter().rev().take(count) {
                self.peers.remove(&last);
            }
        }
        self.count_shares();
    }

    fn part(&self) -> usize {
        self.of_one_min.max(self.peers_max / self.roster.organisations().len().max(1))
    }

    /// How many peers of an organisation are known.
    fn share(&self, organisation: &OrgId) -> usize {
        self.shares.get(organisation).copied().unwrap_or(0)
    }

    /// Counts them anew, where peers are gone or became another organisation's.
    pub(super) fn count_shares(&mut self) {
        self.shares.clear();
        for known in self.peers.values() {
            *self.shares.entry(known.announcement.certificate.organisation).or_default() += 1;
        }
    }
}

fn has_left(peer: &Peer) -> bool {
    peer.announcement.state == PeerState::Left
}

#[cfg(test)]
mod tests {
    use env::calls::CallError;
    use testkit::network::{Community, community};

    use crate::directory::{Directory, Learnt};

    fn shares(directory: &Directory, community: &Community) -> Vec<usize> {
        let all = directory.peers();
        let of = |key: &crypto::SecretKey| {
            let organisation = crypto::OrgId::new(key.public());
            all.iter().filter(|status| status.organisation == organisation).count()
        };
        community.organisations.iter().map(of).collect()
    }

    #[test]
    fn an_organisation_with_many_peers_crowds_out_its_own_alone() {
        testkit::time::run(1, |env| async move {
            let community = community(3, 60);
            let own = community.peer(0);
            let directory = Directory::new(community.genesis.clone(), env.clone(), Some(own));
            directory.lock().peers_max = 12;
            // Members are of the organisations in turn: first all of the first one.
            let of = |organisation: usize| {
                community.members.iter().skip(organisation).step_by(3).map(|it| &it.announcement)
            };
            for (number, announcement) in of(0).enumerate() {
                let learnt = directory.learn(announcement).expect("it counts");
                assert_eq!(learnt == Learnt::Full, number >= 12, "{number}");
            }
            assert_eq!(shares(&directory, &community), [12, 0, 0]);
            // The one that answers least is the first to go.
            let away = community.peer(9);
            let unreachable = CallError::Unreachable { address: "a".into(), reason: "b".into() };
            directory.failed(&away, &unreachable);
            let mut news = directory.changes();
            assert_eq!(
                directory.learn(of(1).next().expect("one")).expect("it counts"),
                Learnt::New
            );
            assert!(news.try_recv().is_ok());
            assert!(!directory.is_member(&away));
            let told = &community.members[9].announcement;
            assert_eq!(directory.signer_of(told), None, "it is to be verified again");
            let told = of(1).next().expect("one");
            assert!(directory.signer_of(told).is_some_and(|signer| directory.is_member(&signer)));
            of(1).for_each(|announcement| drop(directory.learn(announcement)));
            assert_eq!(shares(&directory, &community), [6, 6, 0]);
            of(2).for_each(|announcement| drop(directory.learn(announcement)));
            assert_eq!(shares(&directory, &community), [4, 4, 4]);
            // And nobody gets more by coming again.
            let view = directory.view();
            for announcement in of(0).chain(of(1)).chain(of(2)) {
                directory.learn(announcement).expect("it counts");
            }
            assert!(std::sync::Arc::ptr_eq(&view, &directory.view()), "no rank is computed anew");
            assert_eq!(shares(&directory, &community), [4, 4, 4]);
            assert!(directory.is_member(&own), "never itself");
            assert_eq!(directory.view().len(), 12);
            // Its own comes in, whatever the others have.
            let own = community.peer(59);
            let full = Directory::new(community.genesis.clone(), env.clone(), Some(own));
            full.lock().peers_max = 12;
            community.members.iter().for_each(|it| drop(full.learn(&it.announcement)));
            assert!(full.is_member(&own) && full.view().len() == 12);
        });
    }

    #[test]
    fn an_organisation_has_its_part_and_all_keep_the_same_of_its_peers() {
        testkit::time::run(2, |env| async move {
            let community = community(3, 60);
            let own = community.peer(57);
            let directory = |own| {
                let directory = Directory::new(community.genesis.clone(), env.clone(), own);
                let mut inner = directory.lock();
                (inner.peers_max, inner.of_one_min) = (30, 4);
                drop(inner);
                directory
            };
            // Ten of thirty are the part of each of three. The first one certifies twenty.
            let first: Vec<usize> = (0..60).step_by(3).collect();
            let (one, other) = (directory(None), directory(None));
            let learn = |directory: &Directory, number: usize| {
                directory.learn(&community.members[number].announcement).expect("it counts")
            };
            for (number, last) in first.iter().zip(first.iter().rev()) {
                learn(&one, *number);
                learn(&other, *last);
            }
            assert_eq!(shares(&one, &community), [10, 0, 0], "though nothing is full");
            assert_eq!(one.view().candidates(), other.view().candidates());
            let mut keys: Vec<_> = first.iter().map(|number| community.peer(*number)).collect();
            keys.sort_unstable();
            let kept = |directory: &Directory| -> Vec<_> {
                directory.view().candidates().iter().map(|one| one.peer).collect()
            };
            assert_eq!(kept(&one), keys[..10]);
            // Told again they change nothing; others have their own parts.
            let view = one.view();
            for number in &first {
                assert_ne!(learn(&one, *number), Learnt::New);
            }
            assert!(std::sync::Arc::ptr_eq(&view, &one.view()));
            for number in 0..60 {
                learn(&one, number);
            }
            assert_eq!(shares(&one, &community), [10, 10, 10]);
            // Who left makes room for any.
            let number_of = |peer| (0..60).find(|number| community.peer(*number) == peer);
            let leaver = number_of(keys[0]).expect("a member");
            let said = community.announce(leaver, crypto::PeerState::Left, 2);
            assert_eq!(other.learn(&said).expect("it counts"), Learnt::Newer);
            assert_eq!(learn(&other, number_of(keys[19]).expect("a member")), Learnt::New);
            assert_eq!(kept(&other)[..9], keys[1..10]);
            assert_eq!(kept(&other)[9], keys[19]);
            // A fourth organisation makes the parts smaller, and all keep the same of them.
            let mut four = community.clone();
            let fourth = four.organise();
            let change = crypto::Change::Add(four.organisation(fourth));
            let roster = four.roster(&one.roster(), &change, &[0, 1, 2]);
            one.learn_roster(&roster).expect("it counts");
            assert_eq!(shares(&one, &community), [7, 7, 7]);
            let of_first: Vec<_> =
                kept(&one).into_iter().filter(|peer| keys.contains(peer)).collect();
            assert_eq!(of_first, keys[..7]);
            // A program's own peer is in it, whatever its key.
            let with_own = directory(Some(own));
            for number in 0..60 {
                learn(&with_own, number);
            }
            assert!(with_own.is_member(&own));
            assert_eq!(shares(&with_own, &community), [10, 10, 10]);
        });
    }
}
