//! What a keyring was used for is found by the logs, and its counters are not issued again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use author::{
    AHEAD, Author, AuthorError, GAP, Home, RecoverReport, Recovered, SCAN_MAX, UNTOLD_NEXT,
};
use crypto::{RecordId, Suite};
use document::Publication;
use testkit::network::Fault;
use testkit::time;

use crate::network::{Net, PASSPHRASE, get, put, put_to};

/// A home of the same words, with nothing else.
fn restored(net: &Net, of: &Author, name: &str) -> Arc<Author> {
    let (words, dir) = (of.home().words(), net.home_dir(name));
    Home::import(&dir, &words, None, PASSPHRASE, net.env.entropy.as_ref()).unwrap();
    net.user(name)
}

async fn recover(author: &Arc<Author>) -> (RecoverReport, Vec<Recovered>) {
    recover_told(author, None).await
}

async fn recover_told(author: &Arc<Author>, told: Option<u64>) -> (RecoverReport, Vec<Recovered>) {
    let mut found = Vec::new();
    let report = author.recover(told, |one| found.push(one)).await.unwrap();
    found.sort_by_key(|one| one.address);
    (report, found)
}

fn addresses(found: &[Recovered], own: bool) -> Vec<RecordId> {
    found.iter().filter(|one| one.own == own).map(|one| one.address).collect()
}

#[test]
fn what_was_put_and_what_was_shared_is_found_and_no_counter_comes_twice() {
    for suite in Suite::ALL {
        time::run(1, |env| async move {
            let net = Net::new(&env, 3, 9, suite);
            let (ada, ben) = (net.user("ada"), net.user("ben"));
            let (to_ada, to_ben) = (ada.reader_keys()[63], ben.reader_keys()[0]);
            let first = put(&ada, b"first").await.unwrap().address;
            // The put of counters that were never used leaves a hole.
            ada.home().issue(1_500).unwrap();
            let second = put_to(&ada, b"second", &[to_ben, to_ben]).await.unwrap().address;
            ada.share(second, to_ben).await.unwrap();
            let theirs = put(&ben, b"theirs").await.unwrap().address;
            let shared = ben.share(theirs, to_ada).await.unwrap();
            let before = ada.home().next_counter().unwrap();

            let again = restored(&net, &ada, "again");
            let (report, found) = recover(&again).await;
            assert_eq!((report.own, report.received, report.unopened), (2, 1, 0));
            assert!(report.complete && report.next >= before, "{report:?}");
            let mut own = vec![first, second];
            own.sort_unstable();
            assert_eq!((addresses(&found, true), addresses(&found, false)), (own, vec![shared]));
            for one in &found {
                let (details, created) = one.opened.as_ref().unwrap();
                assert_eq!(details.name.as_deref(), Some("letters/to anna.txt"));
                assert!(*created > 0);
            }
            for (address, content) in [(first, &b"first"[..]), (second, b"second")] {
                assert_eq!(get(&again, address).await.unwrap().0, content);
            }
            assert_eq!(get(&again, shared).await.unwrap().0, b"theirs");

            // A second run tells the same and wastes no counters.
            let (twice, found_twice) = recover(&again).await;
            assert_eq!((twice, found_twice.len()), (report, 3));
            put(&again, b"new").await.unwrap();
            let log = net.shared.log.borrow().clone();
            let mut keys: Vec<_> = log.iter().map(|(news, _)| news.author).collect();
            let all = keys.len();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), all, "no author key was used twice");
        });
    }
}

#[test]
fn a_user_of_many_counters_is_found_window_by_window() {
    time::run(2, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let ada = net.user("ada");
        let mut own = vec![put(&ada, b"0").await.unwrap().address];
        // Far apart, and never further than is looked ahead.
        for n in 1..=2 {
            for _ in 0..3 {
                ada.home().issue(2_048).unwrap();
            }
            own.push(put(&ada, format!("{n}").as_bytes()).await.unwrap().address);
        }
        own.sort_unstable();
        let highest = ada.home().next_counter().unwrap() - 1;
        assert!(highest > AHEAD && highest < 2 * AHEAD);
        let again = restored(&net, &ada, "again");
        let (report, found) = recover(&again).await;
        assert_eq!((addresses(&found, true), report.next), (own, highest + 1 + GAP));
    });
}

#[test]
fn liars_and_cut_logs_hide_and_invent_nothing_unseen() {
    time::run(3, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        let own = put(&ada, b"own").await.unwrap();
        // Everyone invents envelopes for the one key that it saw.
        let seen = net.shared.log.borrow()[0].0.clone();
        for (number, peer) in net.peers.iter().enumerate() {
            let invented =
                (0..3u8 + u8::try_from(number).unwrap() / 8 * 100).map(|n| Publication {
                    envelope: RecordId::new([n + 1; 32]),
                    entry: own.entry,
                    ..seen.clone()
                });
            peer.invented.lock().unwrap().extend(invented);
        }
        let again = restored(&net, &ada, "again");
        let (report, found) = recover(&again).await;
        assert_eq!(addresses(&found, true), [own.address], "{found:?}");
        assert_eq!((report.own, report.unopened, report.next), (1, 0, 1 + GAP));

        for peer in &net.peers {
            peer.invented.lock().unwrap().clear();
            *peer.log_start.lock().unwrap() = 1;
        }
        let (report, found) = recover_told(&again, Some(1 + GAP)).await;
        assert!(!report.complete && found.is_empty(), "a cut log is told: {report:?}");
        assert!(!report.unsure && report.next == 1 + GAP, "{report:?}");

        // Another user's words find nothing of this one's.
        net.peers.iter().for_each(|peer| *peer.log_start.lock().unwrap() = 0);
        let (report, found) = recover(&restored(&net, &ben, "other")).await;
        assert!(report.complete && found.is_empty() && report.own + report.received == 0);

        for peer in &net.peers {
            net.network.set(&peer.id, Fault::Down);
        }
        let failed = again.recover(None, |_| ()).await.unwrap_err();
        assert!(matches!(failed, AuthorError::Follow(_)), "{failed:?}");
    });
}

/// An envelope of this user's own opens whatever counter it is said to have.
#[test]
fn a_librarian_that_names_another_envelope_of_ones_own_hides_none() {
    time::run(13, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let ada = net.user("ada");
        let (first, second) =
            (put(&ada, b"first").await.unwrap(), put(&ada, b"second").await.unwrap());
        let seen = net.shared.log.borrow().clone();
        let of_second = seen.iter().find(|(seen, ..)| seen.envelope == second.address);
        let of_second = of_second.expect("it was published").0.clone();
        // First in every log, and so looked at first.
        for peer in &net.peers {
            let (envelope, entry) = (first.address, first.entry);
            let mut invented = peer.invented.lock().unwrap();
            invented.push(Publication { envelope, entry, ..of_second.clone() });
            // Its own envelope, with another entry or to another reader.
            invented.push(Publication { entry, ..of_second.clone() });
            invented.push(Publication { reader: seen[0].0.reader, ..of_second.clone() });
        }
        let (report, found) = recover(&restored(&net, &ada, "again")).await;
        let mut both = vec![first.address, second.address];
        both.sort_unstable();
        assert_eq!(addresses(&found, true), both, "{found:?}");
        assert_eq!((report.own, report.unopened), (2, 0));
    });
}

#[test]
fn a_log_without_end_is_given_up_and_another_is_read() {
    time::run(9, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let ada = net.user("ada");
        let own = put(&ada, b"own").await.unwrap();
        // Six of nine: with some left, whoever is asked first.
        for peer in &net.peers[..6] {
            peer.endless.store(true, Ordering::Release);
        }
        for seed in 0..4 {
            let again = restored(&net, &ada, &format!("again {seed}"));
            // At worst three rounds in which not two have an end.
            let limit = Duration::from_secs(2_000);
            let (report, found) = env.within(limit, recover(&again)).await.expect("it ends");
            assert_eq!((report.own, addresses(&found, true)), (1, vec![own.address]));
        }
    });
}

#[test]
fn what_a_log_told_that_was_given_up_counts_and_the_rest_may_be_missing() {
    time::run(10, |env| async move {
        // All three are asked, and one of them does not end.
        let net = Net::new(&env, 3, 3, Suite::Holdfast1);
        let ada = net.user("ada");
        let own = put(&ada, b"own").await.unwrap();
        net.peers[0].endless.store(true, Ordering::Release);
        let (report, _) = recover(&restored(&net, &ada, "again")).await;
        assert_eq!((report.own, report.complete), (1, false));
        // Where the others have forgotten, it alone knows, and no counter is issued again.
        for peer in &net.peers[1..] {
            *peer.log_start.lock().unwrap() = 1_000;
        }
        let (report, found) = recover(&restored(&net, &ada, "and again")).await;
        assert_eq!(addresses(&found, true), [own.address]);
        assert_eq!((report.own, report.unsure, report.next), (1, false, UNTOLD_NEXT));
    });
}

/// Logs forget what is old: with the words alone nothing says how far the counters were used.
#[test]
fn behind_cut_logs_recent_contents_are_found_and_old_ones_open() {
    time::run(14, |env| async move {
        let net = Net::new(&env, 3, 3, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        let cut = || {
            let log = net.shared.log.borrow().len() as u64;
            net.peers.iter().for_each(|peer| *peer.log_start.lock().unwrap() = log);
        };
        // One who put much, and lately one more.
        put(&ada, b"early").await.unwrap();
        for _ in 0..5 {
            ada.home().issue(2_048).unwrap();
        }
        cut();
        let late = put(&ada, b"late").await.unwrap().address;
        let next = ada.home().next_counter().unwrap();
        assert!(next > AHEAD, "{next}");
        let (report, found) = recover(&restored(&net, &ada, "ada again")).await;
        assert_eq!(addresses(&found, true), [late]);
        assert!(!report.complete && !report.unsure && report.next >= next, "{report:?}");

        // One who put some, and nothing since.
        ben.home().issue(2_048).unwrap();
        let old = put(&ben, b"old").await.unwrap().address;
        let next = ben.home().next_counter().unwrap();
        assert!(next > 2 * GAP, "{next}");
        cut();
        let again = restored(&net, &ben, "ben again");
        let (report, found) = recover(&again).await;
        assert!(found.is_empty() && !report.complete && report.unsure, "{report:?}");
        assert_eq!(report.next, UNTOLD_NEXT);
        assert_eq!(get(&again, old).await.unwrap().0, b"old");
    });
}

#[test]
fn of_more_counters_than_are_looked_for_the_newest_are() {
    time::run(15, |env| async move {
        let net = Net::new(&env, 3, 3, Suite::Holdfast1);
        let ada = net.user("ada");
        let first = SCAN_MAX as u64 + 3 * AHEAD;
        let (words, dir) = (ada.home().words(), net.home_dir("late"));
        Home::import(&dir, &words, Some(first), PASSPHRASE, env.entropy.as_ref()).unwrap();
        let late = net.user("late");
        let own = put(&late, b"late").await.unwrap().address;
        let told = late.home().next_counter().unwrap();
        assert!(told > first, "{told}");
        let (report, found) = recover_told(&late, Some(told)).await;
        assert_eq!(addresses(&found, true), [own]);
        assert!(!report.complete, "the oldest were not looked for: {report:?}");
    });
}

#[test]
fn a_gap_where_shares_are_looked_for_is_told() {
    time::run(11, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        let theirs = put(&ben, b"theirs").await.unwrap().address;
        ben.share(theirs, ada.reader_keys()[0]).await.unwrap();
        let (report, _) = recover(&restored(&net, &ada, "again")).await;
        assert_eq!((report.received, report.complete), (1, true));
        net.peers.iter().for_each(|peer| peer.damaged.store(true, Ordering::Release));
        let (report, _) = recover(&restored(&net, &ada, "and again")).await;
        assert_eq!((report.received, report.complete), (1, false));
    });
}

/// Of many librarians the worst are not tried before the best: a few that are well are enough.
#[test]
fn librarians_that_are_well_are_asked_first() {
    time::run(12, |env| async move {
        let net = Net::new(&env, 3, 24, Suite::Holdfast1);
        let ada = net.user("ada");
        let own = put(&ada, b"own").await.unwrap();
        for seed in 0..4 {
            let again = restored(&net, &ada, &format!("again {seed}"));
            let (well, away) = net.peers.split_at(3);
            for peer in away {
                net.network.set(&peer.id, Fault::Down);
                let gone = env::calls::CallError::Unreachable {
                    address: "peer".to_owned(),
                    reason: "gone".to_owned(),
                };
                again.walker().directory().failed(&peer.id, &gone);
            }
            let heard = well.iter().map(|peer| &peer.id);
            heard.for_each(|peer| again.walker().directory().good(peer, Duration::ZERO));
            let mut found = Vec::new();
            let report = again.recover(None, |one| found.push(one)).await.unwrap();
            assert_eq!((report.own, report.complete), (1, true));
            assert_eq!(addresses(&found, true), [own.address]);
            net.network.heal();
        }
    });
}

#[test]
fn what_librarians_logged_ahead_of_the_calendar_was_not_put_later_than_now() {
    time::run(13, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let ada = net.user("ada");
        let own = put(&ada, b"own").await.unwrap();
        let day_ms = 24 * 3_600_000;
        net.shared.log.send_modify(|log| log.iter_mut().for_each(|(_, at)| *at += day_ms));
        let (_, found) = recover(&restored(&net, &ada, "again")).await;
        assert_eq!(addresses(&found, true), [own.address]);
        assert!(found[0].received_ms <= env.clock.unix_ms(), "{found:?}");
    });
}
