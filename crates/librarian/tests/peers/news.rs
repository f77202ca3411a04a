//! A publication reaches every log once: by news, or by catching up where news are lost.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use crypto::Tier;
use env::calls::CallError;
use overlay::News;
use testkit::network::Fault;

use crate::town::{LIMIT, Town, envelope, page};

#[test]
fn a_publication_is_in_every_log_once_within_a_second() {
    testkit::time::run(1, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let client = town.client(0, Tier::Own).await;
        let mut wanted = BTreeSet::new();
        for n in 0..20 {
            let (record, publication) = envelope(n, 0);
            client.put(&town.at(n as usize % 3 * 3), record, Duration::ZERO, LIMIT).await.unwrap();
            wanted.insert(publication);
        }
        env.clock.sleep(Duration::from_secs(1)).await;
        for number in 0..9 {
            let log = town.log_of(number).await;
            assert_eq!(log.len(), 20, "peer {number}: each once");
            assert_eq!(log.into_iter().collect::<BTreeSet<Bytes>>(), wanted);
        }
        // Pages and entries are no news.
        client.put(&town.at(0), page(1, 100), Duration::ZERO, LIMIT).await.unwrap();
        env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(town.log_of(0).await.len(), 20);
    });
}

#[test]
fn storing_an_envelope_again_is_no_news() {
    testkit::time::run(2, |env| async move {
        let town = Town::new(&env, 1, 2).await;
        let client = town.client(0, Tier::Known).await;
        let (record, _) = envelope(1, 0);
        for _ in 0..3 {
            client.store(&town.at(0), record.clone(), LIMIT).await.unwrap();
            client.store(&town.at(1), record.clone(), LIMIT).await.unwrap();
        }
        let twice = vec![record.clone(), record];
        client.store_batch(&town.at(0), twice, LIMIT).await.unwrap();
        env.clock.sleep(Duration::from_secs(300)).await;
        assert_eq!((town.log_of(0).await.len(), town.log_of(1).await.len()), (1, 1));
    });
}

/// Whoever is not the first of an envelope's holders tells in its turn, also where nothing came for long before: the first mostly
/// has told by then, and each message wakes every peer.
#[test]
fn a_further_holder_waits_for_its_turn_however_long_it_was_idle() {
    testkit::time::run(10, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let client = town.client(0, Tier::Own).await;
        let (mut soon, mut late) = (0, 0);
        for n in 0..40 {
            env.clock.sleep(Duration::from_secs(20)).await;
            let before = town.log_of(1).await.len();
            // None of its other holders has it.
            client.store(&town.at(0), envelope(n, 0).0, LIMIT).await.unwrap();
            env.clock.sleep(Duration::from_millis(700)).await;
            let heard = town.log_of(1).await.len() > before;
            (soon, late) = if heard { (soon + 1, late) } else { (soon, late + 1) };
            env.clock.sleep(Duration::from_secs(5)).await;
            assert_eq!(town.log_of(1).await.len(), before + 1, "envelope {n}");
        }
        // Two or three of nine peers hold each.
        assert!(soon > 20 && late > 2, "{soon} {late}");
    });
}

/// Peers that were given envelopes to tell of.
fn tellers(town: &Town) -> Vec<usize> {
    let given = |at: &usize| {
        let page = town.peers[*at].metrics();
        page.lines().any(|line| line.contains("method=\"Tell\"") && !line.ends_with(" 0"))
    };
    (0..town.peers.len()).filter(given).collect()
}

/// Whether a peer counted something under this name.
fn counted(town: &Town, number: usize, name: &str) -> bool {
    let page = town.peers[number].metrics();
    page.lines().any(|line| line.contains(name) && !line.ends_with(" 0"))
}

#[test]
fn in_a_large_network_one_peer_tells_for_all_and_who_does_not_hear_it_tells_too() {
    testkit::time::run(8, |env| async move {
        let town = Town::new(&env, 3, 18).await;
        let client = town.client(0, Tier::Own).await;
        let at = town.at(0);
        let put = |n: u32| client.put(&at, envelope(n, 0).0, Duration::ZERO, LIMIT);
        for n in 0..20 {
            put(n).await.unwrap();
        }
        env.clock.sleep(Duration::from_secs(3)).await;
        let wanted: BTreeSet<Bytes> = (0..20).map(|n| envelope(n, 0).1).collect();
        for number in 0..18 {
            let log = town.log_of(number).await;
            assert_eq!(log.len(), 20, "peer {number}: each once");
            assert_eq!(log.into_iter().collect::<BTreeSet<Bytes>>(), wanted);
        }
        let tellers = tellers(&town);
        assert_eq!(tellers.len(), 1, "{tellers:?}");
        // It answers still, and nobody hears it.
        for other in (0..18).filter(|other| *other != tellers[0]) {
            town.mesh.cut(town.community.peer(tellers[0]), town.community.peer(other));
        }
        for n in 20..30 {
            put(n).await.unwrap();
        }
        env.clock.sleep(Duration::from_secs(5)).await;
        for number in (0..18).filter(|number| *number != tellers[0]) {
            assert_eq!(town.log_of(number).await.len(), 30, "peer {number}");
        }
    });
}

#[test]
fn peers_alone_give_news_to_tell_and_nothing_but_envelopes() {
    testkit::time::run(9, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let (record, publication) = envelope(1, 0);
        let own = town.client(0, Tier::Own).await;
        let refused = own.tell(&town.at(0), vec![record.bytes.clone()], LIMIT).await;
        assert!(matches!(refused, Err(CallError::Denied { .. })), "{refused:?}");
        let refused = town.stranger().tell(&town.at(0), vec![record.bytes.clone()], LIMIT).await;
        assert!(matches!(refused, Err(CallError::Denied { .. })), "{refused:?}");
        let peer = town.peer_calls(1);
        let page = page(1, 100).bytes;
        let bad = [
            vec![],
            vec![record.bytes.clone(), page],
            vec![record.bytes.clone(), Bytes::from_static(b"junk")],
            vec![record.bytes.clone(); 129],
        ];
        for envelopes in bad {
            let refused = peer.tell(&town.at(0), envelopes, LIMIT).await;
            assert!(matches!(refused, Err(CallError::Invalid { .. })), "{refused:?}");
        }
        env.clock.sleep(Duration::from_secs(2)).await;
        assert!(town.log_of(0).await.is_empty(), "all or none");
        peer.tell(&town.at(0), vec![record.bytes], LIMIT).await.unwrap();
        env.clock.sleep(Duration::from_secs(1)).await;
        for number in 0..3 {
            assert_eq!(town.log_of(number).await, std::slice::from_ref(&publication));
        }
    });
}

#[test]
fn a_peer_that_heard_nothing_catches_up() {
    testkit::time::run(3, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        // Past the quick rounds of the start.
        env.clock.sleep(Duration::from_secs(60)).await;
        for other in 0..8 {
            town.mesh.cut(town.community.peer(8), town.community.peer(other));
        }
        let client = town.client(0, Tier::Own).await;
        for n in 0..50 {
            client.put(&town.at(0), envelope(n, 0).0, Duration::ZERO, LIMIT).await.unwrap();
        }
        env.clock.sleep(Duration::from_secs(1)).await;
        assert!(town.log_of(8).await.len() < 50, "its links are down");
        let asked = || {
            let counts = (0..9).map(|at| town.network.counts(&town.community.peer(at)));
            let counts: Vec<_> = counts.map(|counts| (counts.find, counts.find_batch)).collect();
            let sum = |of: fn(&(u64, u64)) -> u64| counts.iter().map(of).sum::<u64>();
            (sum(|(singles, _)| *singles), sum(|(_, batches)| *batches))
        };
        let (singles, batches) = asked();
        env.clock.sleep(Duration::from_secs(150)).await;
        let log: BTreeSet<Bytes> = town.log_of(8).await.into_iter().collect();
        assert_eq!(log, (0..50).map(|n| envelope(n, 0).1).collect());
        assert_eq!(town.log_of(8).await.len(), 50);
        assert!(counted(&town, 8, "publications_total{source=\"CatchUp\"}"));
        // The envelopes that it lacks, those of one holder in one call.
        let (singles, batches) = (asked().0 - singles, asked().1 - batches);
        assert!((1..=8).contains(&batches), "{batches}");
        assert!(singles <= 3, "{singles} alone");
    });
}

#[test]
fn a_peer_that_was_down_has_what_it_missed_soon_after_its_start() {
    testkit::time::run(4, |env| async move {
        let mut town = Town::empty(&env, 3, 9);
        for _ in 0..8 {
            town.start_next(|_| {}).await;
        }
        town.until("eight know eight", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 8)
        })
        .await;
        let client = town.client(0, Tier::Own).await;
        for n in 0..50 {
            client.put(&town.at(0), envelope(n, 0).0, Duration::ZERO, LIMIT).await.unwrap();
        }
        env.clock.sleep(Duration::from_secs(3600)).await;
        town.start_next(|_| {}).await;
        env.clock.sleep(Duration::from_secs(20)).await;
        assert_eq!(town.log_of(8).await.len(), 50);
    });
}

/// It logs something new at once when it is back, and is stopped again before it asked anybody what it missed.
#[test]
fn a_restart_in_the_middle_of_catching_up_loses_nothing_of_the_absence() {
    testkit::time::run(14, |env| async move {
        let mut town = Town::new(&env, 3, 5).await;
        // For as long as it takes to have come to the ends of the others' logs some times.
        env.clock.sleep(Duration::from_secs(3600)).await;
        let marked = town.peers[4].journal().marked_ms();
        assert!(marked.is_some_and(|ms| ms + 1_800_000 > env.clock.unix_ms()), "{marked:?}");
        let records = town.take_down(4).await;
        let client = town.client_of(0, Tier::Own, &[0, 1, 2, 3]).await;
        for n in 0..50 {
            client.put(&town.at(0), envelope(n, 0).0, Duration::ZERO, LIMIT).await.unwrap();
        }
        env.clock.sleep(Duration::from_secs(4 * 3600)).await;
        town.bring_back(4, records).await;
        let news = vec![(env.clock.unix_ms(), envelope(70, 0).1)];
        town.peers[4].journal().append(news).await.unwrap();
        assert_eq!(town.log_of(4).await.len(), 1, "it asked nobody yet");
        town.restart(4).await;
        env.clock.sleep(Duration::from_secs(120)).await;
        assert_eq!(town.log_of(4).await.len(), 51);
        // A mark goes on from there.
        env.clock.sleep(Duration::from_secs(3600)).await;
        assert!(town.peers[4].journal().marked_ms() > marked);
    });
}

#[test]
fn catching_up_believes_no_log_without_the_envelopes() {
    testkit::time::run(5, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        // Peer 2's log holds claims whose envelopes nobody has, and one with a changed reader.
        let (_, missing) = envelope(1, 0);
        let (record, truth) = envelope(2, 0);
        let (_, lie) = envelope(2, 1);
        let claim = {
            let truth = document::Publication::decode(&truth).unwrap();
            let lie = document::Publication::decode(&lie).unwrap();
            document::Publication { reader: lie.reader, ..truth }.encode()
        };
        let journal = town.peers[2].journal();
        let now = env.clock.unix_ms();
        journal.append(vec![(now, missing), (now, claim)]).await.unwrap();
        let client = town.client(0, Tier::Own).await;
        client.put(&town.at(0), record, Duration::ZERO, LIMIT).await.unwrap();
        env.clock.sleep(Duration::from_secs(1200)).await;
        for number in 0..2 {
            assert_eq!(town.log_of(number).await, std::slice::from_ref(&truth), "peer {number}");
        }
    });
}

#[test]
fn garbage_news_are_dropped_and_counted() {
    testkit::time::run(6, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        // Everybody passes this mesh, so what counts here is the librarian's own check.
        let stranger = town.mesh.join(crypto::PeerId::new(crate::town::reader(9).public()));
        stranger.learn(town.community.peer(0), &[]);
        stranger.publish(News::Envelope(envelope(5, 0).0.bytes)).await.unwrap();
        let member = town.mesh.join(town.community.peer(2));
        member.learn(town.community.peer(0), &[]);
        member.publish(News::Envelope(Bytes::from_static(b"junk"))).await.unwrap();
        member.publish(News::Envelope(page(1, 100).bytes)).await.unwrap();
        member.publish(News::Announcement(Bytes::from_static(b"junk"))).await.unwrap();
        env.clock.sleep(Duration::from_secs(1)).await;
        let page = town.peers[0].metrics();
        assert!(page.contains("news_dropped_total{reason=\"Stranger\"} 1"), "{page}");
        assert!(page.contains("news_dropped_total{reason=\"Malformed\"} 3"), "{page}");
        assert_eq!(town.log_of(0).await.len(), 0);
    });
}

#[test]
fn one_peer_cannot_flood_the_logs() {
    testkit::time::run(7, |env| async move {
        let mut town = Town::empty(&env, 1, 2);
        town.start_next(|options| options.limits.news_per_second = 10).await;
        town.start_next(|_| {}).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        let flood = town.mesh.join(town.community.peer(1));
        flood.learn(town.community.peer(0), &[]);
        for n in 0..200 {
            flood.publish(News::Envelope(envelope(n, 0).0.bytes)).await.unwrap();
        }
        env.clock.sleep(Duration::from_millis(900)).await;
        let logged = town.log_of(0).await.len();
        assert!((1..=20).contains(&logged), "{logged}");
        assert!(counted(&town, 0, "news_dropped_total{reason=\"Rate\"}"));
    });
}

#[test]
fn what_was_told_before_takes_nothing_of_a_peers_rate() {
    testkit::time::run(7, |env| async move {
        let mut town = Town::empty(&env, 1, 2);
        town.start_next(|options| options.limits.news_per_second = 10).await;
        town.start_next(|_| {}).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        let member = town.mesh.join(town.community.peer(1));
        member.learn(town.community.peer(0), &[]);
        for wanted in [8, 16] {
            // What was logged before is told first, long enough ago for the overlay to bring it again.
            env.clock.sleep(Duration::from_secs(300)).await;
            for n in 0..wanted {
                member.publish(News::Envelope(envelope(n, 0).0.bytes)).await.unwrap();
            }
            env.clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(town.log_of(0).await.len(), wanted as usize);
        }
        assert!(!counted(&town, 0, "news_dropped_total{reason=\"Rate\"}"));
    });
}

#[test]
fn a_peer_that_hangs_does_not_keep_others_from_catching_up() {
    testkit::time::run(8, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        for other in 0..8 {
            town.mesh.cut(town.community.peer(8), town.community.peer(other));
        }
        town.network.set(&town.community.peer(1), Fault::Hang);
        town.network.set(&town.community.peer(2), Fault::Error(CallError::Full));
        let client = town.client_of(0, Tier::Own, &[0]).await;
        for n in 0..10 {
            client.put(&town.at(0), envelope(n, 0).0, Duration::ZERO, LIMIT).await.unwrap();
        }
        env.clock.sleep(Duration::from_secs(400)).await;
        assert_eq!(town.log_of(8).await.len(), 10);
    });
}

#[test]
fn an_envelope_whose_publication_cannot_be_logged_is_not_acknowledged() {
    testkit::time::run(9, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = town.client(0, Tier::Known).await;
        town.peers[0].journal().close().await.unwrap();
        let (record, _) = envelope(1, 0);
        let stored = client.store(&town.at(0), record.clone(), LIMIT).await;
        assert!(matches!(stored, Err(CallError::Busy { .. })), "{stored:?}");
        let batch = vec![record, page(1, 100)];
        let stored = client.store_batch(&town.at(0), batch, LIMIT).await.unwrap();
        assert!(stored.iter().all(Result::is_err), "all or none: {stored:?}");
        client.store(&town.at(0), page(2, 100), LIMIT).await.unwrap();
    });
}

#[test]
fn a_writer_that_goes_away_leaves_no_envelope_without_its_publication() {
    testkit::time::run(10, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = town.client(0, Tier::Known).await;
        for n in 0..20 {
            let to = town.at(0);
            // Polled a few times, then dropped.
            let mut call = client.store(&to, envelope(n, 0).0, LIMIT);
            for _ in 0..n % 4 {
                let _ = futures::poll!(call.as_mut());
            }
            drop(call);
        }
        env.clock.sleep(Duration::from_secs(1)).await;
        let held = town.stores[0].stats_records();
        assert!(held > 0, "some had got that far");
        assert_eq!(town.log_of(0).await.len() as u64, held);
    });
}

#[test]
fn what_a_peer_gives_others_to_tell_counts_each_as_one_of_its_news_and_requests() {
    testkit::time::run(11, |env| async move {
        let mut town = Town::empty(&env, 1, 3);
        town.start_next(|options| options.limits.news_per_second = 100).await;
        town.start_next(|options| {
            options.limits.rates.own.store = librarian::Rate::a_second(100);
        })
        .await;
        town.start_next(|_| {}).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        let calls = town.peer_calls(2);
        let some = |first: u32| (first..first + 60).map(|n| envelope(n, 0).0.bytes).collect();
        for number in [0, 1] {
            let to = town.at(number);
            let first = 1000 * number as u32;
            calls.tell(&to, some(first), LIMIT).await.unwrap();
            let refused = calls.tell(&to, some(first + 60), LIMIT).await;
            assert!(matches!(refused, Err(CallError::Busy { .. })), "{number}: {refused:?}");
            env.clock.sleep(Duration::from_secs(2)).await;
            calls.tell(&to, some(first + 60), LIMIT).await.unwrap();
            env.clock.sleep(Duration::from_secs(2)).await;
        }
        assert_eq!(town.log_of(1).await.len(), 240);
    });
}

#[test]
fn what_others_tell_is_logged_when_there_is_room_again_and_not_on_a_full_disk() {
    testkit::time::run(12, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        // Past the quick rounds of the start.
        env.clock.sleep(Duration::from_secs(60)).await;
        town.stores[8].full.store(true, Ordering::SeqCst);
        let client = town.client_of(0, Tier::Own, &[0]).await;
        for n in 0..20 {
            client.put(&town.at(0), envelope(n, 0).0, Duration::ZERO, LIMIT).await.unwrap();
        }
        // Rounds with each of the others would have passed.
        env.clock.sleep(Duration::from_secs(1200)).await;
        assert_eq!(town.log_of(7).await.len(), 20);
        assert!(town.log_of(8).await.is_empty(), "what is left is for removals");
        assert!(counted(&town, 8, "news_dropped_total{reason=\"Full\"}"));
        town.stores[8].full.store(false, Ordering::SeqCst);
        env.clock.sleep(Duration::from_secs(300)).await;
        let log: BTreeSet<Bytes> = town.log_of(8).await.into_iter().collect();
        assert_eq!(log, (0..20).map(|n| envelope(n, 0).1).collect());
        assert_eq!(town.log_of(8).await.len(), 20);
    });
}
