//! Who stays where the directory is full: organisations share it.
//!
//! The cost of one newcomer to a full directory is a walk over it under its lock (10,000 peers: below a millisecond), beside the two
//! signatures that were checked before.

use std::collections::BTreeMap;
use std::time::Duration;

use crypto::{Announcement, OrgId, PeerCertificate, PeerId};

use super::Inner;

impl Inner {
    /// Where it is full and this is a newcomer: forgets whose certificates expired, else a peer of the organisation that has
    /// most, where that has more than the newcomer's would have, or the newcomer is this program's own peer. `now_s` is Unix seconds, `now` the clock's `elapsed`.
    pub(super) fn make_room(
        &mut self,
        newcomer: &Announcement,
        own: Option<PeerId>,
        now_s: u64,
        now: Duration,
    ) {
        let PeerCertificate { peer, organisation, .. } = &newcomer.certificate;
        if self.peers.len() < self.peers_max
            || self.peers.contains_key(peer)
            || self.is_revoked(organisation, peer.key())
        {
            return;
        }
        self.peers.retain(|_, known| now_s < known.announcement.certificate.until);
        if self.peers.len() < self.peers_max {
            self.view = None;
            return;
        }
        let mut shares: BTreeMap<OrgId, usize> = BTreeMap::new();
        for known in self.peers.values() {
            *shares.entry(known.announcement.certificate.organisation).or_default() += 1;
        }
        let share = shares.get(organisation).copied().unwrap_or(0);
        let Some((largest, most)) = shares.into_iter().max_by_key(|(_, share)| *share) else {
            return;
        };
        if share + 1 >= most && Some(*peer) != own {
            return;
        }
        let of_largest = self.peers.iter().filter(|(id, known)| {
            known.announcement.certificate.organisation == largest && Some(**id) != own
        });
        // The last of the keys among equals: it has no other meaning.
        let worst = of_largest.max_by_key(|(_, known)| known.health(now));
        if let Some(worst) = worst.map(|(id, _)| *id) {
            self.peers.remove(&worst);
            self.view = None;
        }
    }
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
}
