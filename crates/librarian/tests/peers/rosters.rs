//! Rosters among peers that run: who leaves is a stranger at once, who joins counts, and everybody comes to the
//! same roster, however it reaches them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{Change, ClientKey, OrgId, Organisation, Roster, SignedRoster, Suite, Taught, Tier};
use env::Env;
use env::calls::{CallError, Calls, Credential, IntroduceRequest, Known};
use testkit::network::{Community, CommunityOptions, key};
use walk::{Directory, REFRESH_EVERY, WalkOptions, Walker};

use crate::town::{LIMIT, Town, introduce, page};

fn first(town: &Town) -> Roster {
    Roster::first(&town.community.genesis)
}

/// The roster that signed bytes stand for, after `previous`.
fn read(bytes: &Bytes, previous: &Roster) -> Roster {
    SignedRoster::verify(bytes, previous).unwrap().roster
}

fn removed(town: &Town, organisation: usize) -> Change {
    Change::Remove(town.community.organisation(organisation).key)
}

fn renamed(town: &Town, name: &str) -> Change {
    Change::Name(Organisation { name: name.to_owned(), ..town.community.organisation(0) })
}

fn numbers(town: &Town) -> Vec<u64> {
    town.peers.iter().map(|peer| peer.directory().roster().number()).collect()
}

fn pass_of(town: &Town, organisation: usize, tier: Tier, env: &Env) -> Credential {
    let number = organisation * 10 + usize::from(tier == Tier::Own);
    let client = ClientKey::new(key("client", number).public());
    Credential::Client(town.community.pass(client, organisation, tier, env))
}

async fn offer(calls: &Arc<dyn Calls>, town: &Town, to: usize, roster: Bytes) -> Option<CallError> {
    // Strangers have one call a second.
    town.env.clock.sleep(Duration::from_secs(2)).await;
    let offer = IntroduceRequest { offer: Some(roster), ..IntroduceRequest::default() };
    calls.introduce(&town.at(to), offer, LIMIT).await.err()
}

#[test]
fn whoever_left_is_a_stranger_at_once_everywhere_and_after_a_restart() {
    testkit::time::run(1, |env| async move {
        let mut town = Town::new(&env, 3, 6).await;
        let leaver = town.client(2, Tier::Known).await;
        let stayer = town.client(1, Tier::Known).await;
        leaver.store(&town.at(0), page(1, 100), LIMIT).await.unwrap();
        let roster = town.community.roster(&first(&town), &removed(&town, 2), &[0, 1]);
        assert_eq!(town.peers[0].learn_roster(&roster).unwrap(), Taught::Newer);
        env.clock.sleep(Duration::from_secs(1)).await;

        let gone = [2, 5].map(|number| town.community.peer(number));
        for number in [0, 1, 3, 4] {
            let directory = town.peers[number].directory();
            assert_eq!(directory.roster().number(), 1, "peer {number} heard within a second");
            assert_eq!(directory.view().len(), 4);
            assert!(!gone.iter().any(|peer| directory.is_member(peer)));
            let late = leaver.store(&town.at(number), page(2, 100), LIMIT).await;
            assert!(matches!(late, Err(CallError::Denied { .. })), "{late:?}");
            let pass = pass_of(&town, 2, Tier::Known, &env);
            let again = introduce(&leaver, &town.at(number), pass).await;
            let told = |reason: &str| reason.contains("roster");
            assert!(
                matches!(&again, Err(CallError::Denied { reason }) if told(reason)),
                "{again:?}"
            );
            for peer in [2, 5] {
                let shown = Credential::Peer(town.community.members[peer].announcement.clone());
                let refused = introduce(&town.peer_calls(peer), &town.at(number), shown).await;
                assert!(matches!(refused, Err(CallError::Denied { .. })), "{refused:?}");
                let calls = town.peer_calls(peer);
                let refused = calls.store(&town.at(number), page(3, 100), LIMIT).await;
                assert!(matches!(refused, Err(CallError::Denied { .. })), "{refused:?}");
            }
            stayer.store(&town.at(number), page(4, 100), LIMIT).await.unwrap();
            assert!(town.peers[number].metrics().contains("holdfast_roster_number 1\n"));
            assert!(town.peers[number].metrics().contains("holdfast_roster_organisations 2\n"));
        }

        // Nobody tells it: what it kept is enough.
        let (kept, known) = (town.peers[1].rosters(), town.peers[1].known_peers());
        assert_eq!(kept, [roster]);
        town.peers[1].stop().await.unwrap();
        let restarted = town.start(1, Arc::new(store::MemoryStore::new()), |options| {
            options.rosters = kept;
            options.known_peers = known;
            options.bootstrap.clear();
        });
        town.peers[1] = restarted.await;
        let again = introduce(&leaver, &town.at(1), pass_of(&town, 2, Tier::Known, &env)).await;
        assert!(matches!(again, Err(CallError::Denied { .. })), "{again:?}");
        assert_eq!(town.peers[1].directory().view().len(), 4);
    });
}

#[test]
fn a_peer_that_heard_no_news_learns_that_its_organisation_left() {
    testkit::time::run(11, |env| async move {
        let mut town = Town::new(&env, 3, 6).await;
        // What the others tell does not come to it: they end their links to it at once.
        for number in [0, 1, 3, 4] {
            for gone in [2, 5] {
                town.mesh.cut(town.community.peer(number), town.community.peer(gone));
            }
        }
        let known = town.peers[5].known_peers();
        town.peers[5].stop().await.unwrap();
        let roster = town.community.roster(&first(&town), &removed(&town, 2), &[0, 1]);
        town.peers[0].learn_roster(&roster).unwrap();
        town.until("one that runs", |town| numbers(town)[2] == 1).await;
        let left = Some("its organisation left the network, or changed its key");
        assert_eq!(
            (town.peers[2].status().disowned, town.peers[0].status().disowned),
            (left, None)
        );
        // One that was down meanwhile is refused by everybody that it knows, or was given.
        for known in [known, Vec::new()] {
            let store = Arc::new(store::MemoryStore::new());
            town.peers[5] = town.start(5, store, |options| options.known_peers = known).await;
            town.until("one that was down", |town| numbers(town)[5] == 1).await;
            town.peers[5].stop().await.unwrap();
        }
    });
}

#[test]
fn a_client_that_runs_learns_that_its_organisation_left() {
    testkit::time::run(9, |env| async move {
        let town = Town::new(&env, 3, 6).await;
        let directory = Directory::new(town.community.genesis.clone(), env.clone(), None);
        let credential = pass_of(&town, 2, Tier::Known, &env);
        let options = WalkOptions { credential, ..WalkOptions::default() };
        let calls = town.network.calls(key("client", 20).public());
        let walker = Walker::new(env.clone(), calls, directory.clone(), options);
        let unvouched =
            Walker::new(env.clone(), town.stranger(), directory.clone(), WalkOptions::default());
        walker.join(&[town.at(0).address]).await.unwrap();
        let _current = walker.keep_current(Some(unvouched));
        let roster = town.community.roster(&first(&town), &removed(&town, 2), &[0, 1]);
        town.peers[0].learn_roster(&roster).unwrap();
        env.clock.sleep(REFRESH_EVERY * 4).await;
        assert!(matches!(walker.refresh().await, Err(CallError::Denied { .. })));
        assert_eq!(directory.roster().number(), 1, "a stranger is told");
        assert_eq!(directory.view().len(), 4);
    });
}

#[test]
fn whoever_joined_counts_at_once_and_its_peers_hold() {
    testkit::time::run(2, |env| async move {
        let mut town = Town::new(&env, 3, 3).await;
        let fourth = town.community.organise();
        let client = ClientKey::new(key("client", fourth * 10).public());
        let calls = town.network.calls(key("client", fourth * 10).public());
        let pass = Credential::Client(town.community.pass(client, fourth, Tier::Known, &env));
        let early = introduce(&calls, &town.at(0), pass.clone()).await;
        assert!(matches!(early, Err(CallError::Denied { .. })), "{early:?}");

        let change = Change::Add(town.community.organisation(fourth));
        let roster = town.community.roster(&first(&town), &change, &[0, 2]);
        town.peers[1].learn_roster(&roster).unwrap();
        env.clock.sleep(Duration::from_secs(1)).await;
        introduce(&calls, &town.at(0), pass).await.unwrap();
        calls.store(&town.at(0), page(1, 100), LIMIT).await.unwrap();

        // Its peer has the roster from whoever told it of the network.
        town.community.admit(fourth, 1 << 40);
        town.start_next(|options| options.rosters = vec![roster]).await;
        town.until("all know it", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 4)
        })
        .await;
        calls.store(&town.at(0), page(2, 100), LIMIT).await.unwrap();
        let own = town.client_of(0, Tier::Own, &[0]).await;
        for seed in 10..30 {
            own.put(&town.at(0), page(seed, 100), Duration::ZERO, LIMIT).await.unwrap();
        }
        assert!(town.stores[3].stats_records() > 0, "the newcomer holds its part");
    });
}

#[test]
fn a_peer_that_hears_no_news_learns_by_introducing_itself() {
    testkit::time::run(3, |env| async move {
        let town = Town::new(&env, 3, 6).await;
        for other in 0..5 {
            town.mesh.cut(town.community.peer(5), town.community.peer(other));
        }
        let roster = town.community.roster(&first(&town), &renamed(&town, "new"), &[0, 1]);
        town.peers[0].learn_roster(&roster).unwrap();
        env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(numbers(&town), [1, 1, 1, 1, 1, 0], "its links are down");
        env.clock.sleep(Duration::from_secs(90)).await;
        assert_eq!(numbers(&town), [1; 6]);
    });
}

#[test]
fn news_of_a_roster_beyond_the_next_make_a_peer_ask_for_those_between() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 3, 6).await;
        let links = |heal: bool| {
            for other in 0..5 {
                let (a, b) = (town.community.peer(5), town.community.peer(other));
                if heal { town.mesh.heal(a, b) } else { town.mesh.cut(a, b) }
            }
        };
        // Just after a round of introductions, so that none helps.
        links(false);
        let one = town.community.roster(&first(&town), &renamed(&town, "one"), &[0, 1]);
        let second = read(&one, &first(&town));
        town.peers[0].learn_roster(&one).unwrap();
        env.clock.sleep(Duration::from_millis(100)).await;
        links(true);
        let two = town.community.roster(&second, &renamed(&town, "two"), &[1, 2]);
        town.peers[0].learn_roster(&two).unwrap();
        env.clock.sleep(Duration::from_secs(2)).await;
        assert_eq!(numbers(&town), [2; 6]);
    });
}

#[test]
fn whoever_was_down_for_many_rosters_has_them_all_soon_after_its_start() {
    testkit::time::run(5, |env| async move {
        let mut town = Town::new(&env, 3, 6).await;
        town.peers[5].stop().await.unwrap();
        let mut newest = first(&town);
        for number in 1..=40 {
            let change = renamed(&town, &format!("name {number}"));
            let signed = town.community.roster(&newest, &change, &[0, 1]);
            newest = read(&signed, &newest);
            town.peers[number % 5].learn_roster(&signed).unwrap();
            env.clock.sleep(Duration::from_millis(500)).await;
        }
        let restarted = town.start(5, Arc::new(store::MemoryStore::new()), |_| {}).await;
        town.peers[5] = restarted;
        env.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(numbers(&town), [40; 6]);
        assert_eq!(town.peers[5].rosters().len(), 40);
    });
}

#[test]
fn what_does_not_count_is_refused_with_its_reason_and_changes_nothing() {
    testkit::time::run(6, |env| async move {
        let mut town = Town::new(&env, 3, 3).await;
        let outsider = town.community.organise();
        let stranger = town.stranger();
        let (zero, add) = (first(&town), Change::Add(town.community.organisation(outsider)));
        let good = town.community.roster(&zero, &add, &[0, 1]);
        let one = read(&good, &zero);
        let foreign = Community::new(&CommunityOptions {
            organisations: 3,
            peers: 1,
            suite: Suite::Holdfast1,
            copies: Some(2),
            capacity: 1,
        });
        let foreign = foreign.roster(
            &Roster::first(&foreign.genesis),
            &Change::Remove(foreign.organisation(0).key),
            &[0, 1, 2],
        );
        let mut flipped = good.to_vec();
        *flipped.last_mut().unwrap() ^= 1;
        let denied: [(&str, Bytes); 3] = [
            ("of another network", foreign),
            ("signed by too few", town.community.roster(&zero, &add, &[2])),
            ("signed by an outsider", forged(&town, &zero, &add, outsider)),
        ];
        for (what, roster) in denied {
            let refused = offer(&stranger, &town, 0, roster).await;
            assert!(matches!(refused, Some(CallError::Denied { .. })), "{what}: {refused:?}");
        }
        let later = town.community.roster(&one, &renamed(&town, "two"), &[0, 1, 2]);
        let invalid: [(&str, Bytes); 4] = [
            ("garbage", Bytes::from_static(b"garbage")),
            ("with a broken signature", flipped.into()),
            ("beyond the next", later.clone()),
            ("unsigned", town.community.roster(&zero, &add, &[])),
        ];
        for (what, roster) in invalid {
            let refused = offer(&stranger, &town, 0, roster).await;
            let told =
                matches!(refused, Some(CallError::Denied { .. } | CallError::Invalid { .. }));
            assert!(told, "{what}: {refused:?}");
        }
        assert_eq!(numbers(&town), [0; 3]);

        // The good one counts whoever brings it; again it is known, and an old one rewrites nothing.
        assert_eq!(offer(&stranger, &town, 0, good.clone()).await, None);
        assert_eq!(offer(&stranger, &town, 0, later).await, None);
        assert_eq!(offer(&stranger, &town, 0, good).await, None);
        let old = town.community.roster(&zero, &removed(&town, 2), &[0, 1]);
        assert_eq!(offer(&stranger, &town, 0, old).await, None, "known to be settled otherwise");
        env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(numbers(&town), [2; 3]);
        assert_eq!(town.peers[0].directory().roster().organisations().len(), 4);
        assert_eq!(town.peers[0].directory().roster_conflict().1, 1);
    });
}

/// A roster that an organisation signed which was not listed before, beside one that was.
fn forged(town: &Town, previous: &Roster, change: &Change, outsider: usize) -> Bytes {
    let honest = town.community.roster(previous, change, &[0]);
    // An outsider's signature needs a roster in which it is listed to be made at all.
    let listed = read(&town.community.roster(previous, change, &[0, 1]), previous);
    assert!(listed.organisation(&town.community.organisation(outsider).key).is_some());
    let body = listed.body();
    let key = &town.community.organisations[outsider];
    let signature = key.sign("roster", &town.community.genesis.network(), &body);
    // signatures 2 { organisation 1 (33), signature 2 (64) }
    let mut one = vec![0x12, 0x65, 0x0a, 0x21];
    one.extend(OrgId::new(key.public()).as_bytes());
    one.extend([0x12, 0x40]);
    one.extend(signature);
    let mut two: Vec<Vec<u8>> = vec![one, honest[honest.len() - 0x67..].to_vec()];
    two.sort_by_key(|signature| signature[4..37].to_vec());
    [&honest[..honest.len() - 0x67], &two.concat()].concat().into()
}

#[test]
fn of_two_rosters_of_one_number_everybody_comes_to_the_same() {
    for seed in 0..8 {
        testkit::time::run(100 + seed, |env| async move {
            let town = Town::new(&env, 3, 6).await;
            let zero = first(&town);
            // Organisation 1 signs both.
            let ours = town.community.roster(&zero, &renamed(&town, "ours"), &[0, 1]);
            let theirs = town.community.roster(&zero, &renamed(&town, "theirs"), &[1, 2]);
            // In every second run one of them has a successor, which counts then.
            let later =
                town.community.roster(&read(&theirs, &zero), &renamed(&town, "later"), &[0, 2]);
            for number in 0..6 {
                let told = if (seed >> (number % 3)) & 1 == 0 { &ours } else { &theirs };
                town.peers[number].learn_roster(told).unwrap();
            }
            if seed % 2 == 1 {
                town.peers[0].learn_roster(&later).unwrap();
            }
            env.clock.sleep(Duration::from_secs(120)).await;
            let hashes: Vec<[u8; 32]> =
                town.peers.iter().map(|peer| *peer.directory().roster().hash()).collect();
            let wanted = match seed % 2 {
                1 => *read(&later, &read(&theirs, &zero)).hash(),
                _ if seed == 0 => *read(&ours, &zero).hash(),
                _ => *read(&ours, &zero).hash().min(read(&theirs, &zero).hash()),
            };
            assert_eq!(hashes, [wanted; 6], "seed {seed}");
        });
    }
}

#[test]
fn callers_are_told_what_they_lack_and_nothing_where_they_lack_nothing() {
    testkit::time::run(7, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let stranger = town.stranger();
        let zero = first(&town);
        let one = town.community.roster(&zero, &removed(&town, 2), &[0, 1]);
        town.peers[0].learn_roster(&one).unwrap();
        let ask = |roster: u64, hash: [u8; 32]| {
            let known = Known { roster, roster_hash: hash, revoked: Suite::Holdfast1.hash(b"") };
            let request = IntroduceRequest { known: Some(known), ..IntroduceRequest::default() };
            let (stranger, to) = (stranger.clone(), town.at(0));
            async move { stranger.introduce(&to, request, LIMIT).await.unwrap() }
        };
        let told = ask(0, *zero.hash()).await;
        assert_eq!((told.roster, told.rosters), (1, vec![one.clone()]));
        assert_eq!(ask(1, *read(&one, &zero).hash()).await.rosters, Vec::<Bytes>::new());
        // Another one of the same number: it is shown the one that counts here.
        assert_eq!(ask(1, [9; 32]).await.rosters, [one]);
        assert_eq!(ask(7, [9; 32]).await.rosters, Vec::<Bytes>::new());
        // Who does not ask is told nothing.
        let plain = introduce(&stranger, &town.at(0), Credential::None).await.unwrap();
        assert_eq!(plain.rosters, Vec::<Bytes>::new());
    });
}

#[test]
fn a_changed_key_keeps_peers_and_passes_until_its_end() {
    testkit::time::run(8, |env| async move {
        let mut town = Town::new(&env, 3, 3).await;
        let client = town.client(2, Tier::Known).await;
        let new = town.community.organise();
        let (from, to) = (town.community.organisation(2).key, town.community.organisation(new).key);
        let until = Some(env.clock.unix_s() + 600);
        let change = Change::Key { from, to, until };
        let roster = town.community.roster(&first(&town), &change, &[0, 2]);
        town.peers[0].learn_roster(&roster).unwrap();
        env.clock.sleep(Duration::from_secs(1)).await;
        for peer in &town.peers {
            assert_eq!(peer.directory().view().len(), 3);
            assert_eq!(peer.directory().organisation_of(&town.community.peer(2)), Some(to));
        }
        client.store(&town.at(0), page(1, 100), LIMIT).await.unwrap();
        env.clock.sleep(Duration::from_secs(660)).await;
        let late = client.store(&town.at(0), page(2, 100), LIMIT).await;
        assert!(matches!(late, Err(CallError::Denied { .. })), "{late:?}");
        let again = introduce(&client, &town.at(0), pass_of(&town, 2, Tier::Known, &env)).await;
        assert!(matches!(again, Err(CallError::Denied { .. })), "{again:?}");
        assert_eq!(town.peers[0].directory().view().len(), 2, "its peer has no new certificate");
    });
}
