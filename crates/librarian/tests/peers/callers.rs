//! Who may ask what: strangers, clients, peers, and credentials that do not count.

use std::sync::Arc;
use std::time::Duration;

use crypto::{ClientKey, PeerState, Tier};
use env::calls::{
    CallError, Calls, Credential, Cursor, FindRequest, FindResponse, StoreOutcome, VerifyRequest,
};
use testkit::network::{Community, CommunityOptions, key};

use crate::town::{LIMIT, Town, envelope, everything, introduce, page};

/// Whether each call is denied: store, verify, subscribe, put, get, and the batch forms.
async fn denied(town: &Town, calls: &Arc<dyn Calls>) -> Vec<bool> {
    let to = town.at(0);
    let record = page(77, 100);
    let find = FindRequest { id: record.id, place: record.place };
    let verify = VerifyRequest { id: record.id, place: record.place, mac_key: [1; 32] };
    let all = [
        calls.store(&to, record.clone(), LIMIT).await.map(drop),
        calls.verify(&to, verify, LIMIT).await.map(drop),
        calls.subscribe(&to, everything(Cursor::default(), false), LIMIT).await.map(drop),
        calls.put(&to, record.clone(), LIMIT).await.map(drop),
        calls.get(&to, find, LIMIT).await.map(drop),
        calls.store_batch(&to, vec![record], LIMIT).await.map(drop),
        calls.find_batch(&to, vec![find], LIMIT).await.map(drop),
        calls.verify_batch(&to, vec![verify], LIMIT).await.map(drop),
    ];
    all.iter().map(|result| matches!(result, Err(CallError::Denied { .. }))).collect()
}

#[test]
fn a_stranger_may_introduce_itself_and_find() {
    testkit::time::run(1, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let stranger = town.stranger();
        let answer = introduce(&stranger, &town.at(0), Credential::None).await.unwrap();
        assert_eq!(answer.peers.len(), 2);
        let find = FindRequest { id: page(1, 16).id, place: page(1, 16).place };
        let found = stranger.find(&town.at(0), find, LIMIT).await;
        assert!(matches!(found, Ok(FindResponse::Closest(_))), "{found:?}");
        assert_eq!(denied(&town, &stranger).await, [true; 8]);
    });
}

#[test]
fn only_own_clients_may_let_a_peer_walk_for_them() {
    testkit::time::run(2, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let fan_out = [false, false, false, true, true, false, false, false];
        let known = town.client(0, Tier::Known).await;
        assert_eq!(denied(&town, &known).await, fan_out);
        // Own counts at the organisation's own peers alone: peer 0 is organisation 0's.
        let anothers = town.client(1, Tier::Own).await;
        assert_eq!(denied(&town, &anothers).await, fan_out);
        let own = town.client(0, Tier::Own).await;
        assert_eq!(denied(&town, &own).await, [false; 8]);
        let peer = town.network.calls(town.community.members[1].key.public());
        assert_eq!(denied(&town, &peer).await, fan_out, "peers walk by themselves");
    });
}

#[test]
fn a_peer_may_open_its_walks_to_the_roster() {
    testkit::time::run(3, |env| async move {
        let mut town = Town::empty(&env, 2, 1);
        town.start_next(|options| options.limits.open_fan_out = true).await;
        let known = town.client(1, Tier::Known).await;
        assert_eq!(denied(&town, &known).await, [false; 8]);
        assert_eq!(denied(&town, &town.stranger()).await, [true; 8]);
    });
}

#[test]
fn credentials_that_do_not_count_are_denied_and_give_nothing() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let client = key("client", 99);
        let calls = town.network.calls(client.public());
        let own = ClientKey::new(client.public());
        let another = ClientKey::new(key("client", 98).public());
        let foreign = Community::new(&CommunityOptions {
            organisations: 3,
            peers: 3,
            suite: crypto::Suite::Holdfast1,
            copies: Some(2),
            capacity: 1,
        });
        let bad = [
            Credential::Client(town.community.pass(another, 0, Tier::Own, &env)),
            Credential::Client(foreign.pass(own, 0, Tier::Own, &env)),
            Credential::Client(town.community.members[1].announcement.clone()),
            Credential::Peer(town.community.members[1].announcement.clone()),
            Credential::Peer(town.community.pass(own, 0, Tier::Own, &env)),
            Credential::Peer(foreign.members[1].announcement.clone()),
            Credential::Client(bytes::Bytes::new()),
            Credential::Peer(bytes::Bytes::from(vec![7; 100_000])),
        ];
        for credential in bad {
            let answer = introduce(&calls, &town.at(0), credential.clone()).await;
            let refused =
                matches!(answer, Err(CallError::Denied { .. } | CallError::Invalid { .. }));
            assert!(refused, "{credential:?}: {answer:?}");
        }
        assert_eq!(denied(&town, &calls).await, [true; 8]);
    });
}

#[test]
fn a_pass_runs_out_while_its_holder_is_connected() {
    testkit::time::run(5, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = town.client(0, Tier::Known).await;
        let stored = client.store(&town.at(0), page(1, 100), LIMIT).await;
        assert_eq!(stored, Ok(StoreOutcome::Stored));
        // The test's passes are good for half an hour from now.
        env.clock.sleep(Duration::from_secs(1799)).await;
        client.store(&town.at(0), page(2, 100), LIMIT).await.unwrap();
        env.clock.sleep(Duration::from_secs(2)).await;
        let late = client.store(&town.at(0), page(3, 100), LIMIT).await;
        assert!(matches!(late, Err(CallError::Denied { .. })), "{late:?}");
        let _renewed = town.client(0, Tier::Known).await;
        client.store(&town.at(0), page(3, 100), LIMIT).await.unwrap();
    });
}

#[test]
fn a_peer_that_left_is_a_stranger() {
    testkit::time::run(6, |env| async move {
        let town = Town::new(&env, 2, 3).await;
        let leaver = town.network.calls(town.community.members[2].key.public());
        leaver.store(&town.at(0), page(1, 100), LIMIT).await.unwrap();
        let later = env.clock.unix_ms() + 60_000;
        let left = town.community.announce(2, PeerState::Left, later);
        introduce(&leaver, &town.at(0), Credential::Peer(left)).await.unwrap();
        assert_eq!(denied(&town, &leaver).await, [true; 8]);
    });
}

#[test]
fn calls_at_once_are_bounded_and_the_bound_lets_go() {
    testkit::time::run(7, |env| async move {
        let mut town = Town::empty(&env, 1, 1);
        town.start_next(|options| options.limits.write_bytes_max = 1000).await;
        let client = town.client(0, Tier::Known).await;
        let many = (0..20).map(|n| {
            let (client, to) = (client.clone(), town.at(0));
            async move { client.store(&to, envelope(n, 0).0, LIMIT).await }
        });
        let outcomes = futures::future::join_all(many).await;
        let busy = outcomes.iter().filter(|one| matches!(one, Err(CallError::Busy { .. }))).count();
        let stored = outcomes.iter().filter(|one| one.is_ok()).count();
        assert!(busy > 0 && stored > 0 && busy + stored == 20, "{outcomes:?}");
        client.store(&town.at(0), page(100, 400), LIMIT).await.unwrap();
    });
}
