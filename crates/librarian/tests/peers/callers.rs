//! Who may ask what: strangers, clients, peers, and credentials that do not count.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crypto::{ClientKey, PeerState, Tier};
use env::calls::{
    CallError, Calls, Credential, Cursor, FindRequest, FindResponse, StoreOutcome, VerifyRequest,
};
use testkit::network::{Community, CommunityOptions, key};

use crate::lines::Lines;
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
        calls.put(&to, record.clone(), Duration::ZERO, LIMIT).await.map(drop),
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

/// What vouches for a caller costs signatures to look at, so who showed nothing that counts as often as a stranger may is told
/// to wait before the next is looked at. Whoever comes with another key is not.
#[test]
fn credentials_that_do_not_count_are_looked_at_so_often_and_then_later() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 2, 2).await;
        let client = key("client", 99);
        let calls = town.network.calls(client.public());
        let another = ClientKey::new(key("client", 98).public());
        let bad = Credential::Client(town.community.pass(another, 0, Tier::Own, &env));
        let own = ClientKey::new(client.public());
        let good = Credential::Client(town.community.pass(own, 0, Tier::Own, &env));
        for _ in 0..10 {
            let answer = introduce(&calls, &town.at(0), bad.clone()).await;
            assert!(matches!(answer, Err(CallError::Denied { .. })), "{answer:?}");
        }
        for credential in [&bad, &good] {
            let answer = introduce(&calls, &town.at(0), credential.clone()).await;
            let wait = Duration::from_millis(100);
            assert!(
                matches!(answer, Err(CallError::Busy { retry_after }) if retry_after <= wait),
                "{answer:?}"
            );
        }
        let other = key("client", 98);
        let answer = introduce(&town.network.calls(other.public()), &town.at(0), bad).await;
        assert!(answer.is_ok(), "{answer:?}");
        env.clock.sleep(Duration::from_secs(1)).await;
        let answer = introduce(&calls, &town.at(0), good).await;
        assert!(answer.is_ok(), "{answer:?}");
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

#[test]
fn a_known_caller_over_its_rate_is_told_when_and_a_batch_is_refused_whole() {
    testkit::time::run(8, |env| async move {
        let mut town = Town::empty(&env, 2, 1);
        let ten = |options: &mut librarian::LibrarianOptions| {
            options.limits.rates.known.store = librarian::Rate::a_second(10);
        };
        town.start_next(ten).await;
        let known = town.client(1, Tier::Known).await;
        let records = |from: u32, n: u32| (from..from + n).map(|n| page(n, 100)).collect();
        known.store_batch(&town.at(0), records(0, 8), LIMIT).await.unwrap();
        let over = known.store_batch(&town.at(0), records(10, 4), LIMIT).await;
        assert_eq!(over, Err(CallError::Busy { retry_after: Duration::from_millis(200) }));
        assert_eq!(town.peers[0].status().store.records, 8, "nothing half done");
        let own = town.client(0, Tier::Own).await;
        own.store_batch(&town.at(0), records(20, 500), LIMIT).await.unwrap();
        env.clock.sleep(Duration::from_millis(200)).await;
        known.store_batch(&town.at(0), records(10, 4), LIMIT).await.unwrap();
        let page = town.peers[0].metrics();
        let line = "refused_total{tier=\"Known\",method=\"StoreBatch\",bound=\"Second\"} 1";
        assert!(page.contains(line), "{page}");
    });
}

#[test]
fn a_stranger_finds_once_a_second_and_a_flood_of_them_slows_no_member() {
    testkit::time::run(9, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let member = town.client(0, Tier::Known).await;
        let find = FindRequest { id: page(1, 16).id, place: page(1, 16).place };
        let stranger = town.stranger();
        stranger.find(&town.at(0), find, LIMIT).await.unwrap();
        let again = stranger.find(&town.at(0), find, LIMIT).await;
        assert_eq!(again, Err(CallError::Busy { retry_after: Duration::from_secs(1) }));
        let mut refused = 0;
        for number in 1..400 {
            let one = town.network.calls(key("stranger", number).public());
            refused += usize::from(one.find(&town.at(0), find, LIMIT).await.is_err());
            member.find(&town.at(0), find, LIMIT).await.unwrap();
            let introduced = introduce(&one, &town.at(0), Credential::None).await;
            assert!(matches!(introduced, Ok(_) | Err(CallError::Busy { .. })));
        }
        assert!(refused > 200, "{refused}");
        let _newcomer = town.client(0, Tier::Own).await;
        env.clock.sleep(Duration::from_secs(1)).await;
        stranger.find(&town.at(0), find, LIMIT).await.unwrap();
    });
}

/// What strangers ask may wait, for a slow disk or for a committee: somebody becomes known beside it.
#[test]
fn strangers_whose_questions_wait_are_so_many_and_keep_none_from_introducing_itself() {
    testkit::time::run(22, |env| async move {
        let mut town = Town::empty(&env, 1, 1);
        town.start_next(|options| options.limits.calls_strangers_max = 2).await;
        let (member, to, record) = (town.client(0, Tier::Own).await, town.at(0), page(1, 100));
        member.store(&to, record.clone(), LIMIT).await.unwrap();
        town.stores[0].slow_reads(&env, Duration::from_secs(5));
        let find = FindRequest { id: record.id, place: record.place };
        let strangers =
            [1, 2, 3].map(|number| town.network.calls(key("stranger", number).public()));
        let mut asking: Vec<_> =
            strangers[..2].iter().map(|one| one.find(&to, find, LIMIT)).collect();
        for call in &mut asking {
            assert!(futures::poll!(call.as_mut()).is_pending(), "it waits for the disk");
        }
        let over = strangers[2].find(&to, find, LIMIT).await;
        assert!(matches!(over, Err(CallError::Busy { .. })), "{over:?}");
        // One of nobody, and one that is somebody from then on.
        introduce(&strangers[2], &to, Credential::None).await.unwrap();
        let newcomer = key("client", 77).public();
        let pass = town.community.pass(ClientKey::new(newcomer), 0, Tier::Known, &env);
        let newcomer = town.network.calls(newcomer);
        introduce(&newcomer, &to, Credential::Client(pass)).await.unwrap();
        newcomer.store(&to, page(2, 100), LIMIT).await.unwrap();
        for call in asking {
            let found = call.await;
            assert_eq!(found, Ok(FindResponse::Found(record.clone())));
        }
    });
}

/// A request for a proof is a hundred bytes, and what it reads may be megabytes.
#[test]
fn proofs_are_made_so_many_at_once_for_one_caller_and_for_all() {
    testkit::time::run(23, |env| async move {
        let mut town = Town::empty(&env, 1, 1);
        town.start_next(|_| {}).await;
        let (member, to, record) = (town.client(0, Tier::Own).await, town.at(0), page(1, 100));
        member.store(&to, record.clone(), LIMIT).await.unwrap();
        let mut callers = Vec::new();
        for number in 0..9 {
            let caller = key("client", 100 + number).public();
            let pass = town.community.pass(ClientKey::new(caller), 0, Tier::Own, &env);
            let calls = town.network.calls(caller);
            introduce(&calls, &to, Credential::Client(pass)).await.unwrap();
            callers.push(calls);
        }
        town.stores[0].slow_reads(&env, Duration::from_secs(5));
        let reads = || town.stores[0].reads.load(Ordering::SeqCst);
        let before = reads();
        let proof = VerifyRequest { id: record.id, place: record.place, mac_key: [1; 32] };
        let mut asking = Vec::new();
        // Two batches of one caller, then one of each other.
        for (some, most) in [(&callers[..1], 8), (&callers[..1], 8), (&callers[1..], 32)] {
            for caller in some {
                let mut call = caller.verify_batch(&to, vec![proof; 40], LIMIT);
                assert!(futures::poll!(call.as_mut()).is_pending(), "it waits for the disk");
                asking.push(call);
            }
            env.clock.sleep(Duration::from_millis(10)).await;
            assert_eq!(reads() - before, most, "records are being read");
        }
        // Where the callers went away what began has its places until it is done, and no longer.
        drop(asking);
        let mut last = callers[0].verify(&to, proof, LIMIT * 2);
        assert!(futures::poll!(last.as_mut()).is_pending());
        env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(reads() - before, 32, "it waits for its place");
        let proven = last.await;
        assert!(matches!(proven, Ok(env::calls::VerifyResponse::Mac(_))), "{proven:?}");
    });
}

#[test]
fn a_quota_bounds_what_a_client_stores_and_outlives_its_pass_and_the_peer() {
    testkit::time::run(10, |env| async move {
        let mut town = Town::empty(&env, 1, 2);
        town.start_next(|_| {}).await;
        let secret = key("client", 5);
        let client = town.network.calls(secret.public());
        let community = town.community.clone();
        let pass = |quota| {
            let now = env.clock.unix_s();
            let organisation = crypto::OrgId::new(community.organisations[0].public());
            let client = ClientKey::new(secret.public());
            let (from, until) = (now, now + 3600);
            let pass = crypto::Pass { client, organisation, tier: Tier::Own, quota, from, until };
            let network = community.genesis.network();
            Credential::Client(pass.sign(&community.organisations[0], &network))
        };
        let size = page(1, 1000).bytes.len() as u64;
        introduce(&client, &town.at(0), pass(2 * size)).await.unwrap();
        let first = client.store(&town.at(0), page(1, 1000), LIMIT).await;
        assert_eq!(first, Ok(StoreOutcome::Stored));
        for _ in 0..5 {
            let again = client.store(&town.at(0), page(1, 1000), LIMIT).await;
            assert_eq!(again, Ok(StoreOutcome::Present), "the same again costs nothing");
        }
        let batch = vec![page(2, 1000), page(3, 1000)];
        let over = client.store_batch(&town.at(0), batch, LIMIT).await;
        let quota = |error: &CallError| matches!(error, CallError::Denied { reason } if reason.contains("quota"));
        assert!(over.as_ref().is_err_and(quota), "{over:?}");
        assert_eq!(town.peers[0].status().store.records, 1, "nothing half done");
        introduce(&client, &town.at(0), pass(2 * size)).await.unwrap();
        client.store(&town.at(0), page(2, 1000), LIMIT).await.unwrap();
        let stored = town.peers[0].stored_bytes().0;
        assert_eq!(stored, [(ClientKey::new(secret.public()), 2 * size)]);
        // The next start: this one's counts are another peer's from here on.
        town.start_next(|options| options.stored_bytes = stored).await;
        introduce(&client, &town.at(1), pass(2 * size)).await.unwrap();
        let over = client.store(&town.at(1), page(4, 1000), LIMIT).await;
        assert!(over.as_ref().is_err_and(quota), "{over:?}");
        introduce(&client, &town.at(1), pass(3 * size)).await.unwrap();
        client.store(&town.at(1), page(4, 1000), LIMIT).await.unwrap();
    });
}

#[test]
fn what_a_client_lets_a_librarian_store_again_costs_nothing() {
    testkit::time::run(20, |env| async move {
        let town = Town::new(&env, 3, 4).await;
        let secret = key("client", 6);
        let client = town.network.calls(secret.public());
        let size = page(1, 1000).bytes.len() as u64;
        let (from, until) = (env.clock.unix_s(), env.clock.unix_s() + 3600);
        let pass = crypto::Pass {
            client: ClientKey::new(secret.public()),
            organisation: crypto::OrgId::new(town.community.organisations[0].public()),
            tier: Tier::Own,
            quota: 2 * size,
            from,
            until,
        };
        let network = town.community.genesis.network();
        let pass = Credential::Client(pass.sign(&town.community.organisations[0], &network));
        introduce(&client, &town.at(0), pass).await.unwrap();
        for number in [1, 1, 1, 2] {
            let (to, wait) = (town.at(0), Duration::from_secs(5));
            client.put(&to, page(number, 1000), wait, LIMIT).await.unwrap();
        }
        let stored = town.peers[0].stored_bytes().0;
        assert_eq!(stored, [(ClientKey::new(secret.public()), 2 * size)]);
        let over = client.put(&town.at(0), page(3, 1000), Duration::ZERO, LIMIT).await;
        assert!(matches!(over, Err(CallError::Denied { .. })), "{over:?}");
    });
}

#[test]
fn revoked_clients_and_peers_are_denied_at_once_everywhere_and_after_a_restart() {
    testkit::time::run(11, |env| async move {
        let mut town = Town::new(&env, 3, 6).await;
        let client = town.client(0, Tier::Own).await;
        let other = town.client(1, Tier::Known).await;
        let all = everything(Cursor::default(), false);
        let mut events = client.subscribe(&town.at(1), all, LIMIT).await.unwrap();
        let _caught_up = crate::town::next(&env, &mut events, LIMIT).await;
        client.store(&town.at(1), page(1, 100), LIMIT).await.unwrap();

        // Peer 3 and the client are organisation 0's; the list names another's client too.
        let gone =
            [key("client", 1).public(), key("client", 10).public(), *town.community.peer(3).key()];
        let organisation = crypto::OrgId::new(town.community.organisations[0].public());
        let list = |keys: &[crypto::PublicKey], sequence| {
            let list = crypto::Revocation { organisation, sequence, keys: keys.to_vec() };
            list.sign(&town.community.organisations[0], &town.community.genesis.network())
        };
        let now = env.clock.unix_ms();
        let (none, signed) = (list(&[], now - 1), list(&gone, now));
        assert!(town.peers[0].revoke(&signed).await.unwrap());
        assert!(!town.peers[0].revoke(&none).await.unwrap(), "older");
        town.until("all heard", |town| {
            let rest = [0, 1, 2, 4, 5].map(|number| &town.peers[number]);
            rest.iter().all(|peer| peer.directory().view().len() == 5)
        })
        .await;

        let pass = |organisation, client: &str, number| {
            let client = ClientKey::new(key(client, number).public());
            Credential::Client(town.community.pass(client, organisation, Tier::Own, &env))
        };
        for number in [0, 1, 2, 4, 5] {
            let late = client.store(&town.at(number), page(2, 100), LIMIT).await;
            assert!(matches!(late, Err(CallError::Denied { .. })), "{late:?}");
            let again = introduce(&client, &town.at(number), pass(0, "client", 1)).await;
            let told = |reason: &str| reason.contains("revoked");
            assert!(
                matches!(&again, Err(CallError::Denied { reason }) if told(reason)),
                "{again:?}"
            );
            // An organisation speaks for its own alone.
            introduce(&other, &town.at(number), pass(1, "client", 10)).await.unwrap();
            other.store(&town.at(number), page(3, 100), LIMIT).await.unwrap();
            let announcement = Credential::Peer(town.peers[3].known_peers().swap_remove(0));
            let peer = introduce(&town.peer_calls(3), &town.at(number), announcement).await;
            assert!(matches!(peer, Err(CallError::Denied { .. })), "{peer:?}");
        }
        assert!(!matches!(
            futures::StreamExt::next(&mut events).await,
            Some(Ok(env::calls::SubscribeEvent::Publication { .. }))
        ));

        let (kept, known) = (town.peers[1].revocations(), town.peers[1].known_peers());
        assert_eq!(kept, [signed]);
        town.peers[1].stop().await.unwrap();
        let store = Arc::new(store::MemoryStore::new());
        let restarted = town.start(1, store, |options| {
            options.revocations = kept;
            options.known_peers = known;
            options.bootstrap.clear();
        });
        town.peers[1] = restarted.await;
        let again = introduce(&client, &town.at(1), pass(0, "client", 1)).await;
        assert!(matches!(again, Err(CallError::Denied { .. })), "{again:?}");
        // A newer list without the client takes it back.
        let back = list(&gone[1..], now + 1);
        town.peers[1].revoke(&back).await.unwrap();
        introduce(&client, &town.at(1), pass(0, "client", 1)).await.unwrap();
    });
}

#[test]
fn a_list_that_is_kept_counts_after_a_restart_with_the_clock_set_back() {
    testkit::time::run(19, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let (genesis, secret) = (&town.community.genesis, &town.community.organisations[0]);
        let organisation = crypto::OrgId::new(secret.public());
        let keys = vec![key("client", 1).public()];
        let sequence = env.clock.unix_ms() + 86_400_000;
        let list = crypto::Revocation { organisation, sequence, keys };
        let list = list.sign(secret, &genesis.network());
        assert!(town.peers[0].revoke(&list).await.is_err(), "told anew it is of the future");
        town.peers[0].stop().await.unwrap();
        let store = Arc::new(store::MemoryStore::new());
        let restarted = town.start(0, store, |options| options.revocations = vec![list.clone()]);
        assert_eq!(restarted.await.revocations(), [list]);
    });
}

/// What it asks is refused and nobody calls it: its operator would see nothing else.
#[test]
fn a_peer_whose_key_is_revoked_tells_its_operator_once() {
    testkit::time::run(14, |env| async move {
        let lines = Lines::default();
        let _logs = tracing::subscriber::set_default(lines.clone());
        let town = Town::new(&env, 3, 3).await;
        let list = |keys: &[crypto::PublicKey], sequence| {
            let organisation = crypto::OrgId::new(town.community.organisations[0].public());
            let list = crypto::Revocation { organisation, sequence, keys: keys.to_vec() };
            list.sign(&town.community.organisations[0], &town.community.genesis.network())
        };
        let disowned = |town: &Town| town.peers[0].status().disowned;
        let (now, own) = (env.clock.unix_ms(), town.community.peer(0));
        assert_eq!(disowned(&town), None);
        assert!(town.peers[0].metrics().contains("holdfast_disowned 0\n"));
        town.peers[1].revoke(&list(&[*own.key()], now)).await.unwrap();
        town.until("it heard", |town| disowned(town).is_some()).await;
        assert_eq!(disowned(&town), Some("its organisation revoked its key"));
        assert!(town.peers[0].metrics().contains("holdfast_disowned 1\n"));
        env.clock.sleep(Duration::from_secs(300)).await;
        let told = lines.with("takes this peer for a member");
        let [told] = &told[..] else { panic!("once, by it alone: {told:?}") };
        assert!(told.starts_with("ERROR") && told.contains(&own.to_string()), "{told}");
        assert!(told.contains("hold org revoke --undo"), "{told}");

        town.peers[0].revoke(&list(&[], now + 1)).await.unwrap();
        assert_eq!(disowned(&town), None);
        env.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(lines.with("counts as a member again").len(), 1);
    });
}

#[test]
fn read_only_is_switched_while_the_peer_runs_and_others_learn_it() {
    testkit::time::run(12, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let client = town.client(0, Tier::Own).await;
        client.store(&town.at(0), page(1, 100), LIMIT).await.unwrap();
        town.peers[0].set_read_only(true).await;
        let refused = client.store(&town.at(0), page(2, 100), LIMIT).await;
        assert!(matches!(refused, Err(CallError::ReadOnly { .. })), "{refused:?}");
        let find = FindRequest { id: page(1, 100).id, place: page(1, 100).place };
        let found = client.find(&town.at(0), find, LIMIT).await;
        assert!(matches!(found, Ok(FindResponse::Found(_))), "{found:?}");
        let seen = |town: &Town, state| {
            let peer = town.community.peer(0);
            town.peers[1].directory().announcement(&peer).is_some_and(|said| said.state == state)
        };
        town.until("the others know", |town| seen(town, PeerState::ReadOnly)).await;
        town.peers[0].set_read_only(false).await;
        client.store(&town.at(0), page(2, 100), LIMIT).await.unwrap();
        town.until("the others know", |town| seen(town, PeerState::Serving)).await;
    });
}

#[test]
fn a_write_whose_caller_went_away_counts_until_it_is_done_and_costs_what_is_stored() {
    testkit::time::run(13, |env| async move {
        let mut town = Town::empty(&env, 1, 1);
        town.start_next(|options| options.limits.write_bytes_max = 10_000).await;
        let (secret, now) = (key("client", 5), env.clock.unix_s());
        let client = town.network.calls(secret.public());
        let pass = crypto::Pass {
            client: ClientKey::new(secret.public()),
            organisation: crypto::OrgId::new(town.community.organisations[0].public()),
            tier: Tier::Own,
            quota: 100_000,
            from: now,
            until: now + 3600,
        };
        let network = town.community.genesis.network();
        let pass = pass.sign(&town.community.organisations[0], &network);
        introduce(&client, &town.at(0), Credential::Client(pass)).await.unwrap();
        town.stores[0].slow(&env, Duration::from_secs(5));
        let (first, mut bad, next) = (page(1, 6_000), page(2, 1_000), page(3, 6_000));
        bad.bytes = bytes::Bytes::from(vec![7; 1_000]);
        let to = town.at(0);
        {
            let mut call = client.store_batch(&to, vec![first.clone(), bad], LIMIT);
            for _ in 0..3 {
                assert!(futures::poll!(call.as_mut()).is_pending(), "it is being written");
            }
        }
        for _ in 0..4 {
            let refused = client.store(&to, next.clone(), LIMIT).await;
            assert!(matches!(refused, Err(CallError::Busy { .. })), "{refused:?}");
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        assert!(!town.stores[0].holds(&first.id), "it is still being written");
        env.clock.sleep(Duration::from_secs(2)).await;
        assert!(town.stores[0].holds(&first.id));
        let charged = (ClientKey::new(secret.public()), first.bytes.len() as u64);
        assert_eq!(town.peers[0].stored_bytes().0, [charged]);
        client.store(&to, next, LIMIT).await.unwrap();
    });
}
