//! Joining: from one address to everybody.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{Announcement, Class, Classified, PeerCertificate, PeerId, PeerState};
use env::Env;
use env::calls::{CallError, Endpoint};
use testkit::network::{Community, DirectNetwork, Fault, MemoryPeer, community, key};
use testkit::time::run;
use walk::{CALL_LIMIT, Directory, INTRODUCED_MAX, JOIN_GRACE, WalkError, WalkOptions, Walker};

fn newcomer(
    env: &Env,
    community: &Community,
    network: &Arc<DirectNetwork>,
) -> (Arc<Directory>, Arc<Walker>) {
    let directory = Directory::new(community.genesis.clone(), env.clone(), None);
    let calls = network.calls(key("client", 0).public());
    let walker = Walker::new(env.clone(), calls, directory.clone(), WalkOptions::default());
    (directory, walker)
}

fn address(community: &Community, number: usize) -> String {
    community.members[number].address.clone()
}

#[test]
fn one_address_is_enough() {
    run(1, |env| async move {
        let community = community(3, 9);
        let (network, _) = community.network(&env);
        let (directory, walker) = newcomer(&env, &community, &network);
        assert_eq!(walker.join(&[address(&community, 4)]).await.unwrap(), 9);
        assert_eq!(directory.view().len(), 9);
        // The address is dead: those known from before are enough.
        network.set(&community.peer(4), Fault::Down);
        assert_eq!(walker.join(&[address(&community, 4)]).await.unwrap(), 9);
        assert_eq!(walker.join(&[]).await.unwrap(), 9);
    });
}

#[test]
fn where_all_are_slow_they_get_more_time_and_no_end_of_it() {
    run(1, |env| async move {
        let community = community(3, 3);
        let (network, _) = community.network(&env);
        let all = |fault: Fault| {
            (0..3).for_each(|number| network.set(&community.peer(number), fault.clone()));
        };
        // Longer than a call usually may take.
        all(Fault::Delay(Duration::from_secs(15)));
        let (_, walker) = newcomer(&env, &community, &network);
        assert_eq!(walker.join(&[address(&community, 1)]).await.unwrap(), 3);
        all(Fault::Hang);
        let (_, walker) = newcomer(&env, &community, &network);
        let since = env.clock.elapsed();
        let nobody = walker.join(&[address(&community, 1)]).await;
        assert!(matches!(nobody, Err(WalkError::NoPeers { .. })));
        assert!(env.clock.elapsed() - since < Duration::from_secs(75));
    });
}

#[test]
fn a_chain_is_followed_to_its_end() {
    run(1, |env| async move {
        let community = community(3, 12);
        let network = DirectNetwork::new(env.clone());
        for (number, member) in community.members.iter().enumerate() {
            let genesis = community.genesis.clone();
            let peer = MemoryPeer::new(genesis, member.announcement.clone(), &env);
            // Each knows the next one alone.
            if let Some(next) = community.members.get(number + 1) {
                peer.learn(&next.announcement);
            }
            network.serve(&member.address, member.peer, peer);
        }
        let (_, walker) = newcomer(&env, &community, &network);
        assert_eq!(walker.join(&[address(&community, 0)]).await.unwrap(), 12);
    });
}

#[test]
fn nobody_there_says_what_each_address_said() {
    run(1, |env| async move {
        let community = community(3, 3);
        let (network, _) = community.network(&env);
        network.set(&community.peer(0), Fault::Down);
        network.set(&community.peer(1), Fault::Hang);
        network.set(&community.peer(2), Fault::Garbage);
        let (_, walker) = newcomer(&env, &community, &network);
        let mut addresses: Vec<String> = (0..3).map(|at| address(&community, at)).collect();
        addresses.push("nowhere.test:1".to_owned());
        let error = walker.join(&addresses).await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable);
        let WalkError::NoPeers { tried } = error else { panic!("{error}") };
        let class = |address: &String| {
            let found = tried.iter().find(|(tried, _)| tried == address);
            found.map(|(_, error)| error.class())
        };
        assert_eq!(class(&addresses[0]), Some(Class::Unavailable));
        assert_eq!(class(&addresses[1]), Some(Class::Unavailable));
        assert_eq!(class(&addresses[2]), Some(Class::Denied));
        assert_eq!(class(&addresses[3]), Some(Class::Unavailable));
        let (_, walker) = newcomer(&env, &community, &network);
        assert!(matches!(walker.join(&[]).await, Err(WalkError::NoPeers { .. })));
    });
}

#[test]
fn a_peer_of_another_network_teaches_nothing() {
    run(1, |env| async move {
        let ours = community(3, 1);
        let theirs = community(4, 5);
        let (network, _) = theirs.network(&env);
        let (directory, walker) = newcomer(&env, &ours, &network);
        let error = walker.join(&[address(&theirs, 2)]).await.unwrap_err();
        assert!(matches!(error, WalkError::NoPeers { .. }));
        assert!(directory.view().is_empty());
    });
}

/// Where a connection proves no key, a peer that is named is who it says to be.
#[test]
fn an_older_word_of_another_peer_is_not_taken_for_the_one_that_was_called() {
    run(1, |env| async move {
        let community = community(3, 3);
        let (network, peers) = community.network(&env);
        let (directory, walker) = newcomer(&env, &community, &network);
        directory.learn(&community.announce(1, PeerState::Serving, 5)).unwrap();
        peers[0].announce(community.members[1].announcement.clone());
        let to = |number: usize| Endpoint::of(community.peer(number), address(&community, number));
        let error = walker.introduce(&to(0)).await.unwrap_err();
        assert!(matches!(error, CallError::WrongPeer { .. }), "{error}");
        assert_eq!(directory.view().len(), 1);
        // One whose own word is older than what others told of it is itself.
        let answer = walker.introduce(&to(1)).await.unwrap();
        assert_eq!(answer.announcement, community.members[1].announcement);
        assert_eq!(directory.view().len(), 3);
    });
}

/// A peer of organisation 2 whose key is lower than this one and whose certificate lists these addresses, as it announces itself.
fn claiming(community: &Community, below: PeerId, addresses: Vec<String>) -> Bytes {
    let keys = (0..).map(|number| key("hostile", number));
    let hostile = keys.into_iter().find(|key| PeerId::new(key.public()) < below).unwrap();
    let network = community.genesis.network();
    let certificate = PeerCertificate {
        peer: PeerId::new(hostile.public()),
        organisation: community.organisation(2).key,
        addresses,
        capacity: 1,
        from: 0,
        until: 10_000_000_000,
    };
    let announcement = Announcement {
        certificate_bytes: certificate.sign(&community.organisations[2], &network),
        certificate,
        sequence: 1,
        p2p_addresses: Vec::new(),
        state: PeerState::Serving,
    };
    announcement.sign(&hostile, &network)
}

#[test]
fn who_claims_the_addresses_of_others_hides_none_of_them() {
    run(1, |env| async move {
        let community = community(3, 9);
        let (network, _) = community.network(&env);
        let (directory, walker) = newcomer(&env, &community, &network);
        let lowest = community.members.iter().map(|member| member.peer).min().unwrap();
        for at in 0..9 {
            let addresses = vec![address(&community, at), address(&community, 0)];
            let below = if at == 0 { lowest } else { community.peer(at) };
            let hostile = claiming(&community, below, addresses);
            directory.learn(&hostile).unwrap();
        }
        directory.learn_from(&community.known());
        walker.join(&[address(&community, 0)]).await.unwrap();
        let asked = |number: usize| network.counts(&community.peer(number)).introduce;
        assert_eq!((0..9).map(asked).collect::<Vec<_>>(), [1; 9]);
    });
}

#[test]
fn an_organisation_with_many_peers_leaves_introductions_for_others() {
    run(1, |env| async move {
        let mut community = community(3, 3);
        (0..200).for_each(|_| {
            community.admit(0, 1);
        });
        let network = DirectNetwork::new(env.clone());
        let (directory, walker) = newcomer(&env, &community, &network);
        let last = [1, 2].into_iter().max_by_key(|number| community.peer(*number)).unwrap();
        let mut lower = 0;
        for member in &community.members {
            let peer =
                MemoryPeer::new(community.genesis.clone(), member.announcement.clone(), &env);
            network.serve(&member.address, member.peer, peer);
            directory.learn(&member.announcement).unwrap();
            lower += usize::from(member.peer < community.peer(last));
        }
        assert!(lower > INTRODUCED_MAX, "{lower}");
        walker.join(&[]).await.unwrap();
        assert_eq!(network.counts(&community.peer(last)).introduce, 1);
        let asked = |number| network.counts(&community.peer(number)).introduce;
        assert_eq!((3..203).map(asked).sum::<u64>() + asked(0), INTRODUCED_MAX as u64 / 3);
    });
}

/// The quickest of those that were named knows its own organisation alone.
#[test]
fn who_answers_first_does_not_decide_alone_whom_one_knows() {
    run(1, |env| async move {
        let community = community(3, 9);
        let (network, _) = community.network(&env);
        let liar = &community.members[0];
        let teller = MemoryPeer::new(community.genesis.clone(), liar.announcement.clone(), &env);
        network.serve(&liar.address, liar.peer, teller);
        let named = [address(&community, 0), address(&community, 1)];
        let late = Duration::from_secs(2);
        network.set(&community.peer(1), Fault::Delay(late));
        let (directory, walker) = newcomer(&env, &community, &network);
        let since = env.clock.elapsed();
        let rest = walker.join_soon(&named).await.unwrap();
        assert_eq!(env.clock.elapsed() - since, late);
        assert_eq!(directory.view().len(), 9);
        drop(rest);
        // Where no other one ever answers, that one is better than nobody.
        network.set(&community.peer(1), Fault::Hang);
        let (directory, walker) = newcomer(&env, &community, &network);
        let since = env.clock.elapsed();
        let rest = walker.join_soon(&named).await.unwrap();
        assert!(env.clock.elapsed() - since <= JOIN_GRACE + CALL_LIMIT);
        assert_eq!(directory.view().len(), 1);
        drop(rest);
    });
}

#[test]
fn a_newer_word_of_a_known_peer_is_learnt() {
    run(1, |env| async move {
        let community = community(3, 3);
        let (network, peers) = community.network(&env);
        let (directory, walker) = newcomer(&env, &community, &network);
        walker.join(&[address(&community, 0)]).await.unwrap();
        peers[1].announce(community.announce(1, PeerState::ReadOnly, 5));
        let to = directory.endpoint(&community.peer(1)).unwrap();
        let answer = walker.introduce(&to).await.unwrap();
        assert_eq!(answer.records, 0);
        let state = |number: usize| {
            let peer = community.peer(number);
            directory.announcement(&peer).map(|announcement| announcement.state)
        };
        assert_eq!(state(1), Some(PeerState::ReadOnly));
        assert_eq!(state(0), Some(PeerState::Serving));
    });
}

#[test]
fn a_dead_address_is_not_waited_for_and_all_dead_ones_are_told() {
    run(1, |env| async move {
        let community = community(3, 9);
        let (network, _) = community.network(&env);
        let named: Vec<String> = (0..3).map(|number| address(&community, number)).collect();
        let well = [1, 2].map(|number| community.peer(number));
        network.set(&community.peer(0), Fault::Hang);
        well.iter().for_each(|peer| network.set(peer, Fault::Delay(Duration::from_millis(200))));
        let (directory, walker) = newcomer(&env, &community, &network);
        let since = env.clock.elapsed();
        let rest = walker.join_soon(&named).await.unwrap();
        let took = env.clock.elapsed() - since;
        assert!(took <= Duration::from_millis(200) + JOIN_GRACE, "{took:?}");
        assert_eq!(directory.view().len(), 9);
        // The rest is asked behind: all peers are met.
        env.clock.sleep(Duration::from_secs(30)).await;
        assert!((0..9).all(|n| network.counts(&community.peer(n)).introduce > 0));
        drop(rest);

        (0..3).for_each(|number| network.set(&community.peer(number), Fault::Down));
        let (_, stranger) = newcomer(&env, &community, &network);
        let error = stranger.join_soon(&named).await.map(drop).unwrap_err();
        assert!(matches!(&error, WalkError::NoPeers { tried } if tried.len() == 3), "{error:?}");
    });
}
