//! The directory: what it believes, what it forgets, what it tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use crypto::{Announcement, CertificateError, PeerCertificate, PeerState};
use env::Clock;
use env::calls::KnownPeer;
use futures::future::BoxFuture;
use testkit::network::{community, key};
use testkit::time::{START_UNIX_S, run};
use walk::{Directory, Health, Learnt};

#[test]
fn the_higher_sequence_counts_and_forgeries_do_not() {
    run(1, |env| async move {
        let community = community(2, 4);
        let directory = Directory::new(community.genesis.clone(), env, None);
        let mut changes = directory.changes();
        let first = community.members[0].announcement.clone();
        assert_eq!(directory.learn(&first).unwrap(), Learnt::New);
        assert_eq!(directory.learn(&first).unwrap(), Learnt::Known);
        let stopped = community.announce(0, PeerState::Stopped, 3);
        assert_eq!(directory.learn(&stopped).unwrap(), Learnt::Newer);
        let older = community.announce(0, PeerState::Serving, 2);
        assert_eq!(directory.learn(&older).unwrap(), Learnt::Known);
        assert_eq!(directory.peers()[0].state, PeerState::Stopped);
        assert_eq!(directory.health(&community.peer(0)), Health::Away);
        // It is still a member, and keeps its rank.
        assert!(directory.is_member(&community.peer(0)));
        assert_eq!(directory.view().len(), 1);

        // Every bit of an announcement is covered by a signature, or by the form.
        for at in 0..first.len() {
            let mut forged = community.members[1].announcement.to_vec();
            if let Some(byte) = forged.get_mut(at) {
                *byte ^= 1 << (at % 8);
                assert!(directory.learn(&forged.into()).is_err(), "byte {at}");
            }
        }
        let other = testkit::network::Community::new(&testkit::network::CommunityOptions {
            organisations: 3,
            peers: 1,
            suite: crypto::Suite::Libri1,
            copies: None,
            capacity: 1,
        });
        let error = directory.learn(&other.members[0].announcement).unwrap_err();
        assert!(matches!(error, CertificateError::Network(_)), "{error}");
        assert_eq!(directory.view().len(), 1);

        let told = changes.recv().await.unwrap();
        assert_eq!((told.peer, told.learnt), (community.peer(0), Learnt::New));
        let told = changes.recv().await.unwrap();
        assert_eq!((told.learnt, told.bytes), (Learnt::Newer, stopped));
        assert!(changes.try_recv().is_err());
    });
}

#[test]
fn a_peer_that_changes_all_the_time_is_followed_at_a_walk() {
    run(1, |env| async move {
        let community = community(2, 4);
        let directory = Directory::new(community.genesis.clone(), env.clone(), None);
        let own = Directory::new(community.genesis.clone(), env.clone(), Some(community.peer(0)));
        let taken = |directory: &Directory, from: u64| {
            let announced = (from..from + 100).map(|sequence| {
                let state = [PeerState::Serving, PeerState::Leaving][sequence as usize % 2];
                directory.learn(&community.announce(0, state, sequence)).unwrap()
            });
            announced.filter(|learnt| *learnt == Learnt::Newer).count()
        };
        for directory in [&directory, &own] {
            directory.learn(&community.members[0].announcement).unwrap();
        }
        assert_eq!(taken(&directory, 100), 16);
        assert_eq!(taken(&own, 100), 100, "what it says itself it says as often as it likes");
        env.clock.sleep(Duration::from_secs(4)).await;
        assert_eq!(taken(&directory, 200), 2);
        let last = community.announce(0, PeerState::Left, 1_000);
        assert_eq!(directory.learn(&last).unwrap(), Learnt::Often);
        // Told again it counts: nothing of it was kept.
        env.clock.sleep(Duration::from_secs(2)).await;
        assert_eq!(directory.learn(&last).unwrap(), Learnt::Newer);
        assert!(!directory.is_member(&community.peer(0)));
        env.clock.sleep(Duration::from_secs(3_600)).await;
        assert_eq!(taken(&directory, 2_000), 16);
    });
}

#[test]
fn of_two_things_that_a_peer_announced_at_once_all_believe_the_same() {
    run(1, |env| async move {
        let community = community(2, 4);
        let said = [PeerState::Serving, PeerState::Leaving, PeerState::Left]
            .map(|state| community.announce(0, state, 7));
        let all = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].map(|order| {
            let directory = Directory::new(community.genesis.clone(), env.clone(), None);
            let mut changes = directory.changes();
            let learnt = order.map(|at| directory.learn(&said[at]).unwrap());
            assert_eq!(learnt[0], Learnt::New);
            // What is believed in the end is told to whoever listens, and what was before it is not believed again.
            let told = std::iter::from_fn(|| changes.try_recv().ok()).last().unwrap();
            assert!(said.iter().all(|one| directory.learn(one).unwrap() == Learnt::Known));
            let believed = directory.announced(&[community.peer(0)]);
            assert_eq!(believed, [told.bytes]);
            // Whatever it was, what comes later counts.
            directory.learn(&community.announce(0, PeerState::Serving, 8)).unwrap();
            assert_eq!(directory.peers()[0].state, PeerState::Serving);
            believed
        });
        assert!(all.iter().all(|believed| *believed == all[0]));
    });
}

#[test]
fn who_left_has_no_rank_and_does_not_come_back_by_an_old_word() {
    run(1, |env| async move {
        let community = community(2, 4);
        let directory = Directory::new(community.genesis.clone(), env, None);
        assert_eq!(directory.learn_from(&community.known()).new, 4);
        let view = directory.view();
        assert!(std::sync::Arc::ptr_eq(&view, &directory.view()), "a view is kept");
        directory.learn(&community.announce(2, PeerState::Left, 9)).unwrap();
        assert_eq!((view.len(), directory.view().len()), (4, 3));
        assert!(!directory.is_member(&community.peer(2)));
        assert_eq!(directory.organisation_of(&community.peer(2)), None);
        let learnt = directory.learn_from(&community.known());
        assert_eq!((learnt.new, learnt.newer, learnt.bad), (0, 0, 0));
        assert_eq!(directory.view().len(), 3);
    });
}

#[test]
fn an_expired_certificate_drops_out_at_once_and_of_the_view_with_others() {
    run(1, |env| async move {
        let community = community(1, 2);
        let directory = Directory::new(community.genesis.clone(), env.clone(), None);
        directory.learn_from(&community.known());
        let network = community.genesis.network();
        let certified = |number: usize, until_s: u64| {
            let peer = key("peer", number);
            let certificate = PeerCertificate {
                peer: peer.public().into(),
                organisation: community.members[0].organisation,
                addresses: vec!["a:1".to_owned()],
                capacity: 1,
                from: START_UNIX_S,
                until: START_UNIX_S + until_s,
            };
            let announcement = Announcement {
                certificate_bytes: certificate.sign(&community.organisations[0], &network),
                certificate,
                sequence: 1,
                p2p_addresses: Vec::new(),
                state: PeerState::Serving,
            };
            announcement.sign(&peer, &network)
        };
        let bytes = certified(77, 100);
        directory.learn(&bytes).unwrap();
        directory.learn(&certified(78, 103)).unwrap();
        directory.learn(&certified(79, 601)).unwrap();
        let id = key("peer", 77).public().into();
        assert_eq!((directory.view().len(), directory.is_member(&id)), (5, true));
        let view = directory.view();
        env.clock.sleep(Duration::from_secs(100)).await;
        assert!(!directory.is_member(&id));
        assert_eq!(directory.peers().len(), 4);
        assert_eq!((directory.health(&id), directory.announced(&[id]).len()), (Health::Away, 0));
        assert!(matches!(directory.learn(&bytes), Err(CertificateError::Time { .. })));
        // Ranks change at multiples of ten minutes alone, at whoever's calendar.
        env.clock.sleep(Duration::from_secs(499)).await;
        assert_eq!(directory.peers().len(), 3);
        assert!(std::sync::Arc::ptr_eq(&view, &directory.view()));
        env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(directory.view().len(), 3);
        env.clock.sleep(Duration::from_secs(599)).await;
        assert_eq!((directory.peers().len(), directory.view().len()), (2, 3));
        env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(directory.view().len(), 2);
    });
}

/// A calendar that can be set.
struct Calendar {
    clock: Arc<dyn Clock>,
    ahead_s: AtomicU64,
}

impl Clock for Calendar {
    fn unix_ms(&self) -> u64 {
        self.clock.unix_ms() + self.ahead_s.load(Ordering::SeqCst) * 1000
    }

    fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }
}

#[test]
fn a_calendar_that_was_ahead_for_a_while_has_emptied_no_directory() {
    run(1, |mut env| async move {
        let calendar = Calendar { clock: env.clock.clone(), ahead_s: AtomicU64::new(0) };
        let calendar = Arc::new(calendar);
        env.clock = calendar.clone();
        let community = community(2, 4);
        let directory = Directory::new(community.genesis.clone(), env.clone(), None);
        directory.learn_from(&community.known());
        let view = directory.view();
        // Behind the end of all certificates.
        calendar.ahead_s.store(9_000_000_000, Ordering::SeqCst);
        assert_eq!((directory.view().len(), directory.peers().len()), (0, 0));
        assert!(directory.announcements(10).is_empty());
        assert!(!directory.is_member(&community.peer(0)));
        let told = &community.members[0].announcement;
        assert!(matches!(directory.learn(told), Err(CertificateError::Time { .. })));
        calendar.ahead_s.store(0, Ordering::SeqCst);
        assert_eq!(directory.view().candidates(), view.candidates());
        assert_eq!((directory.peers().len(), directory.announcements(10).len()), (4, 4));
        assert!(directory.is_member(&community.peer(0)));
        assert_eq!(directory.learn(told).unwrap(), Learnt::Known);
    });
}

#[test]
fn what_was_announced_under_a_calendar_that_was_ahead_gives_way_to_what_counts() {
    run(1, |mut env| async move {
        let calendar = Calendar { clock: env.clock.clone(), ahead_s: AtomicU64::new(0) };
        let calendar = Arc::new(calendar);
        env.clock = calendar.clone();
        let community = community(2, 4);
        let peer = community.peer(0);
        // At the peer itself, and at another whose calendar was ahead as far.
        for own in [Some(peer), None] {
            let directory = Directory::new(community.genesis.clone(), env.clone(), own);
            calendar.ahead_s.store(3_600, Ordering::SeqCst);
            let ahead = community.announce(0, PeerState::Serving, env.clock.unix_ms());
            assert_eq!(directory.learn(&ahead).unwrap(), Learnt::New);
            let older = community.announce(0, PeerState::ReadOnly, env.clock.unix_ms() - 1);
            assert_eq!(directory.learn(&older).unwrap(), Learnt::Known);
            calendar.ahead_s.store(0, Ordering::SeqCst);
            let now_ms = env.clock.unix_ms();
            let leaving = community.announce(0, PeerState::Leaving, now_ms);
            assert_eq!(directory.learn(&leaving).unwrap(), Learnt::Newer);
            assert_eq!(directory.peers()[0].state, PeerState::Leaving);
            let told = directory.learn(&ahead).unwrap_err();
            assert!(matches!(told, CertificateError::Ahead { ahead_s: 3_600 }), "{told}");
            assert_eq!(directory.peers()[0].state, PeerState::Leaving);
            // Ahead by no more than clocks may differ: everybody may have it, and it counts.
            let soon = community.announce(0, PeerState::Serving, now_ms + 100_000);
            assert_eq!(directory.learn(&soon).unwrap(), Learnt::Newer);
            assert_eq!(directory.learn(&leaving).unwrap(), Learnt::Known);
            assert_eq!(directory.peers()[0].state, PeerState::Serving);
        }
    });
}

#[test]
fn what_is_told_is_all_or_a_sample() {
    run(1, |env| async move {
        let community = community(3, 30);
        let own = community.peer(5);
        let directory = Directory::new(community.genesis.clone(), env, Some(own));
        let bad = KnownPeer { announcement: Bytes::from_static(b"bad"), last_good_ms: None };
        let known: Vec<KnownPeer> = community.known().into_iter().chain([bad]).collect();
        let learnt = directory.learn_from(&known);
        assert_eq!((learnt.new, learnt.bad), (30, 1));
        assert_eq!(directory.announcements(100).len(), 29, "all but its own");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..60 {
            let sample = directory.announcements(5);
            let distinct: std::collections::BTreeSet<_> =
                sample.into_iter().map(|peer| peer.announcement).collect();
            assert_eq!(distinct.len(), 5);
            seen.extend(distinct);
        }
        assert_eq!(seen.len(), 29, "everybody is told sooner or later");
    });
}

#[test]
fn the_endpoint_moves_on_from_an_address_that_fails() {
    run(1, |env| async move {
        let community = community(1, 1);
        let directory = Directory::new(community.genesis.clone(), env, None);
        let network = community.genesis.network();
        let member = &community.members[0];
        let certificate = PeerCertificate {
            peer: member.peer,
            organisation: member.organisation,
            addresses: vec!["a:1".to_owned(), "b:2".to_owned()],
            capacity: 1,
            from: 0,
            until: u64::MAX,
        };
        let announcement = Announcement {
            certificate_bytes: certificate.sign(&community.organisations[0], &network),
            certificate,
            sequence: 7,
            p2p_addresses: Vec::new(),
            state: PeerState::Serving,
        };
        directory.learn(&announcement.sign(&member.key, &network)).unwrap();
        let address = || directory.endpoint(&member.peer).unwrap().address;
        assert_eq!(address(), "a:1");
        let refused = env::calls::CallError::Unreachable {
            address: "a:1".to_owned(),
            reason: "refused".to_owned(),
        };
        // Two calls that shared a dial: the second says nothing of the address that is next.
        directory.failed(&member.peer, &refused);
        directory.failed(&member.peer, &refused);
        assert_eq!(address(), "b:2");
        let late = |address: &str| env::calls::CallError::TimedOut {
            address: address.to_owned(),
            limit: Duration::from_secs(5),
        };
        // Nobody ever answered there: a firewall may drop what is sent.
        directory.failed(&member.peer, &late("b:2"));
        assert_eq!(address(), "a:1");
        directory.failed(&member.peer, &refused);
        directory.good(&member.peer, Duration::from_millis(1));
        // It is slow, perhaps; the second time in a row that is not it.
        directory.failed(&member.peer, &late("b:2"));
        assert_eq!(address(), "b:2");
        directory.failed(&member.peer, &late("b:2"));
        directory.failed(&member.peer, &late("b:2"));
        assert_eq!(address(), "a:1");
        directory.failed(&member.peer, &refused);
        directory.good(&member.peer, Duration::from_millis(1));
        assert_eq!(address(), "b:2");
        assert_eq!(directory.peers()[0].organisation_name, "organisation-0");
    });
}
