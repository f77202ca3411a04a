//! Peers find each other from one address, survive its loss, and learn of joins and departures.

use std::time::Duration;

use crypto::{PeerState, Tier};
use testkit::network::Fault;
use walk::Health;

use crate::town::{LIMIT, Town, page};

#[test]
fn one_bootstrap_address_is_enough_and_may_go() {
    testkit::time::run(1, |env| async move {
        let mut town = Town::empty(&env, 3, 10);
        for _ in 0..9 {
            town.start_next(|_| {}).await;
        }
        town.until("nine know nine", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 9)
        })
        .await;
        // The first peer, everybody's bootstrap, is gone for good.
        town.network.remove(&town.community.members[0].address.clone());
        let second = town.community.members[1].address.clone();
        let bootstrap = vec![town.community.members[0].address.clone(), second];
        let newcomer = town.start_next(|options| options.bootstrap = bootstrap).await;
        let own = town.community.peer(newcomer);
        town.until("all learn of the newcomer", |town| {
            town.peers[1..].iter().all(|peer| peer.directory().is_member(&own))
        })
        .await;
        assert_eq!(town.peers[newcomer].directory().view().len(), 10);
        // The lost one is known to be away, by those that look after it.
        let lost = town.community.peer(0);
        town.until("it is away", |town| {
            town.peers[1..].iter().all(|peer| peer.directory().health(&lost) == Health::Away)
        })
        .await;
    });
}

#[test]
fn a_first_peer_serves_alone_and_keeps_asking_its_bootstrap() {
    testkit::time::run(2, |env| async move {
        let mut town = Town::empty(&env, 1, 2);
        // Both name each other; the second is not there yet.
        let second = town.community.members[1].address.clone();
        town.start_next(|options| options.bootstrap = vec![second]).await;
        let client = town.client(0, Tier::Own).await;
        let put = client.put(&town.at(0), page(1, 100), Duration::ZERO, LIMIT).await.unwrap();
        assert_eq!((put.acked, put.wanted), (1, 1));
        env.clock.sleep(Duration::from_secs(600)).await;
        town.start_next(|options| options.bootstrap = Vec::new()).await;
        town.until("they found each other", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 2)
        })
        .await;
        assert!(town.network.counts(&town.community.peer(1)).introduce < 20, "with patience");
    });
}

/// The first is in touch with the second before its bootstrap address answers, and nobody else knows of the third.
#[test]
fn groups_that_began_while_their_link_was_down_meet_once_it_is_up() {
    testkit::time::run(8, |env| async move {
        let mut town = Town::empty(&env, 2, 3);
        let third = town.community.members[2].address.clone();
        town.start_next(|options| options.bootstrap = vec![third]).await;
        town.start_next(|_| {}).await;
        town.until("two are in touch", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 2)
        })
        .await;
        env.clock.sleep(Duration::from_secs(120)).await;
        town.start_next(|options| options.bootstrap = Vec::new()).await;
        env.clock.sleep(Duration::from_secs(600)).await;
        let known = town.peers.iter().map(|peer| peer.directory().view().len());
        assert_eq!(known.collect::<Vec<_>>(), [3, 3, 3]);
    });
}

#[test]
fn peers_of_the_last_run_stand_in_for_a_lost_bootstrap() {
    testkit::time::run(3, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let known = town.peers[4].known_peers();
        assert_eq!(known.len(), 9, "all others, and itself");
        town.peers[4].stop().await.unwrap();
        town.network.remove(&town.community.members[0].address.clone());
        let restarted = town
            .start(4, std::sync::Arc::new(store::MemoryStore::new()), |options| {
                options.bootstrap = Vec::new();
                options.known_peers = known;
            })
            .await;
        let own = town.community.peer(4);
        town.until("the others hear that it is back", |town| {
            (1..9).filter(|n| *n != 4).all(|n| {
                let announced = town.peers[n].directory().announcement(&own).unwrap();
                announced.state == PeerState::Serving
            })
        })
        .await;
        assert_eq!(restarted.directory().view().len(), 9);
    });
}

#[test]
fn a_peer_that_stops_is_known_to_have_stopped_at_once() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        town.peers[8].stop().await.unwrap();
        let gone = town.community.peer(8);
        env.clock.sleep(Duration::from_secs(1)).await;
        for peer in &town.peers[..8] {
            assert_eq!(peer.directory().announcement(&gone).unwrap().state, PeerState::Stopped);
            assert_eq!(peer.directory().health(&gone), Health::Away);
        }
        // It keeps its rank: it means to come back.
        assert_eq!(town.peers[0].directory().view().len(), 9);
    });
}

#[test]
fn departures_are_learnt_without_the_mesh_too() {
    testkit::time::run(5, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let gone = town.community.peer(8);
        for other in 0..8 {
            town.mesh.cut(gone, town.community.peer(other));
        }
        town.peers[8].stop().await.unwrap();
        env.clock.sleep(Duration::from_secs(1)).await;
        for peer in &town.peers[..8] {
            assert_eq!(peer.directory().announcement(&gone).unwrap().state, PeerState::Stopped);
        }
    });
}

#[test]
fn health_follows_what_peers_do_without_any_work() {
    testkit::time::run(6, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let sick = town.community.peer(5);
        env.clock.sleep(Duration::from_secs(60)).await;
        town.network.set(&sick, Fault::Hang);
        env.clock.sleep(Duration::from_secs(240)).await;
        for number in [0, 3, 8] {
            assert_eq!(town.peers[number].directory().health(&sick), Health::Away);
            let status = town.peers[number].status();
            assert_eq!((status.peers.healthy, status.peers.away), (7, 1));
        }
        town.network.heal();
        town.until("it is well again", |town| {
            let others = (0..9).filter(|n| *n != 5);
            let mut health = others.map(|n| town.peers[n].directory().health(&sick));
            health.all(|health| health == Health::Healthy)
        })
        .await;
    });
}

#[test]
fn what_a_peer_says_about_itself_rises() {
    testkit::time::run(7, |env| async move {
        let town = Town::new(&env, 1, 2).await;
        let own = town.community.peer(0);
        let first = town.peers[1].directory().announcement(&own).unwrap().sequence;
        env.clock.sleep(Duration::from_secs(2 * 3600)).await;
        let later = town.peers[1].directory().announcement(&own).unwrap().sequence;
        assert!(later >= first + 3_600_000, "each hour anew: {first} {later}");
    });
}
