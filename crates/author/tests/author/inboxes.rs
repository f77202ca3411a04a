//! Inboxes: what was shared arrives, once, from librarians that fail, forget and lie.

use std::sync::atomic::Ordering;
use std::time::Duration;

use author::{AuthorError, Inbox, InboxEvent, Received};
use crypto::{AuthorKey, ReaderKey, RecordId, Suite};
use document::Publication;
use env::Env;
use env::calls::{CallError, Cursor};
use futures::StreamExt;
use testkit::network::{Fault, key};
use testkit::time;
use walk::Health;

use crate::network::{Net, get, put, put_to};

/// What arrives until it is caught up.
async fn listed(inbox: &mut Inbox) -> Vec<Received> {
    let mut received = Vec::new();
    while let Some(event) = inbox.next().await {
        match event.unwrap() {
            InboxEvent::Received(one) => received.push(one),
            InboxEvent::CaughtUp => return received,
            InboxEvent::Gap { .. } => panic!("no gap was expected"),
        }
    }
    panic!("the inbox ended before it was caught up");
}

async fn next(env: &Env, inbox: &mut Inbox) -> InboxEvent {
    let next = env.within(Duration::from_secs(60), inbox.next()).await;
    next.expect("something arrives").expect("it does not end").unwrap()
}

#[test]
fn a_share_arrives_once_and_is_read() {
    time::run(1, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let (ada, ben, eve) = (net.user("ada"), net.user("ben"), net.user("eve"));
        let before = put_to(&ada, b"before", &[ben.reader_keys()[63]]).await.unwrap();
        let mut inbox = ben.inbox(true, &[]);
        let first = listed(&mut inbox).await;
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].address, before.envelopes[0].address);
        assert_eq!((first[0].entry, first[0].proven), (before.entry, true));

        let own = put(&ada, b"after").await.unwrap();
        let started = env.clock.elapsed();
        let shared = ada.share(own.address, ben.reader_keys()[0]).await.unwrap();
        let InboxEvent::Received(received) = next(&env, &mut inbox).await else { panic!() };
        assert_eq!((received.address, received.entry), (shared, own.entry));
        assert!(env.clock.elapsed() - started < Duration::from_secs(1));
        assert_eq!(get(&ben, received.address).await.unwrap().0, b"after");
        let more = env.within(Duration::from_secs(5), inbox.next()).await;
        assert!(more.is_err(), "three librarians, told once: {more:?}");
        assert!(listed(&mut eve.inbox(false, &[])).await.is_empty());
    });
}

#[test]
fn a_listing_ends_and_goes_on_from_its_cursors() {
    time::run(2, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        for _ in 0..5 {
            put_to(&ada, b"x", &[ben.reader_keys()[0]]).await.unwrap();
        }
        let mut inbox = ben.inbox(false, &[]);
        assert_eq!(listed(&mut inbox).await.len(), 5);
        assert!(inbox.next().await.is_none(), "it ends");
        let cursors = inbox.cursors().to_vec();
        assert_eq!(cursors.len(), 3);
        assert!(listed(&mut ben.inbox(false, &cursors)).await.is_empty());
        let new = put_to(&ada, b"y", &[ben.reader_keys()[0]]).await.unwrap();
        let received = listed(&mut ben.inbox(false, &cursors)).await;
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].address, new.envelopes[0].address);
    });
}

#[test]
fn librarians_that_fail_are_replaced() {
    for fault in [Fault::Down, Fault::Hang, Fault::Error(CallError::Full)] {
        time::run(3, |env| async move {
            let net = Net::new(&env, 3, 9, Suite::Holdfast1);
            let (ada, ben) = (net.user("ada"), net.user("ben"));
            put_to(&ada, b"x", &[ben.reader_keys()[0]]).await.unwrap();
            // Six of nine fail: at least one follower starts at a bad one in most runs, and all end at good ones.
            for number in 0..6 {
                net.network.set(&net.community.peer(number), fault.clone());
            }
            assert_eq!(listed(&mut ben.inbox(false, &[])).await.len(), 1, "{fault:?}");
        });
    }
}

#[test]
fn an_inbox_that_nobody_serves_says_so() {
    time::run(4, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let ben = net.user("ben");
        net.peers.iter().for_each(|peer| net.network.set(&peer.id, Fault::Down));
        let mut inbox = ben.inbox(false, &[]);
        let error = inbox.next().await.expect("an answer").unwrap_err();
        assert!(matches!(error, AuthorError::Follow(_)), "{error:?}");
        assert!(inbox.next().await.is_none());
        // One that follows waits for them to come back.
        let mut inbox = ben.inbox(true, &[]);
        assert!(env.within(Duration::from_secs(60), inbox.next()).await.is_err());
        net.network.heal();
        assert_eq!(next(&env, &mut inbox).await, InboxEvent::CaughtUp);

        let nobody = Net::new(&env, 1, 0, Suite::Holdfast1);
        let error = nobody.user("ben").inbox(true, &[]).next().await.expect("an answer");
        assert!(matches!(error, Err(AuthorError::NoPeers)));
    });
}

#[test]
fn a_gap_is_told() {
    time::run(5, |env| async move {
        let net = Net::new(&env, 1, 1, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        put_to(&ada, b"x", &[ben.reader_keys()[0]]).await.unwrap();
        let mut inbox = ben.inbox(false, &[]);
        listed(&mut inbox).await;
        let cursors = inbox.cursors().to_vec();
        for _ in 0..3 {
            put_to(&ada, b"y", &[ben.reader_keys()[0]]).await.unwrap();
        }
        // Each put is two publications; the first two puts are forgotten.
        *net.peers[0].log_start.lock().unwrap() = 4;
        let mut inbox = ben.inbox(false, &cursors);
        let InboxEvent::Gap { peer, from } = next(&env, &mut inbox).await else { panic!() };
        assert_eq!((peer, from.offset), (net.peers[0].id, 4));
        assert_eq!(listed(&mut inbox).await.len(), 2);
    });
}

#[test]
fn a_librarian_that_tells_of_gaps_without_end_is_heard_once() {
    time::run(5, |env| async move {
        let net = Net::new(&env, 3, 3, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        put_to(&ada, b"x", &[ben.reader_keys()[0]]).await.unwrap();
        net.peers[1].damaged.store(true, Ordering::Release);
        net.peers[1].endless.store(true, Ordering::Release);
        let mut inbox = ben.inbox(false, &[]);
        let (mut gaps, mut received, mut caught_up) = (0, 0, 0);
        while let Some(event) = inbox.next().await {
            match event.unwrap() {
                InboxEvent::Gap { .. } => gaps += 1,
                InboxEvent::Received(_) => received += 1,
                InboxEvent::CaughtUp => caught_up += 1,
            }
        }
        assert_eq!((gaps, received, caught_up), (1, 1, 1));
    });
}

#[test]
fn made_up_news_are_not_believed() {
    time::run(6, |env| async move {
        let net = Net::new(&env, 3, 3, Suite::Holdfast1);
        let (ada, ben, eve) = (net.user("ada"), net.user("ben"), net.user("eve"));
        let real = put_to(&ada, b"x", &[ben.reader_keys()[0]]).await.unwrap();
        let to_eve = put_to(&ada, b"x", &[eve.reader_keys()[0]]).await.unwrap();
        let made_up = |envelope: RecordId| Publication {
            envelope,
            entry: RecordId::new([9; 32]),
            author: AuthorKey::new(key("liar", 0).public()),
            reader: ben.reader_keys()[0],
        };
        *net.peers[0].invented.lock().unwrap() = vec![
            made_up(RecordId::new([8; 32])),
            made_up(real.entry),
            made_up(to_eve.envelopes[0].address),
            // A real envelope under a wrong entry and author: told as the envelope says.
            made_up(real.envelopes[0].address),
        ];
        let received = listed(&mut ben.inbox(false, &[])).await;
        assert_eq!(received.len(), 1, "{received:?}");
        assert_eq!((received[0].entry, received[0].proven), (real.entry, true));
        assert_ne!(received[0].author, AuthorKey::new(key("liar", 0).public()));
        // Whoever holds what it named is not blamed for it.
        for status in ben.walker().directory().peers() {
            assert_eq!(status.health, Health::Healthy);
        }
    });
}

#[test]
fn envelopes_whose_holders_are_away_are_told_unproven() {
    time::run(7, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        let report = put_to(&ada, b"x", &[ben.reader_keys()[5]]).await.unwrap();
        let address = report.envelopes[0].address;
        net.break_holders(&ada, address, 6, &Fault::Down);
        let received = listed(&mut ben.inbox(false, &[])).await;
        assert_eq!(received.len(), 1);
        assert_eq!((received[0].address, received[0].proven), (address, false));
        assert_eq!(received[0].reader, ReaderKey::new(*ben.reader_keys()[5].key()));
    });
}

#[test]
fn a_reader_that_takes_its_time_gets_all() {
    time::run(9, |env| async move {
        let net = Net::new(&env, 3, 3, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        // More than wait for a reader on both queues.
        for _ in 0..700 {
            put_to(&ada, b"x", &[ben.reader_keys()[0]]).await.unwrap();
        }
        let mut inbox = ben.inbox(false, &[]);
        let mut received = 0;
        while let Some(event) = inbox.next().await {
            received += u64::from(matches!(event.unwrap(), InboxEvent::Received(_)));
            env.clock.sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(received, 700);
    });
}

#[test]
fn one_short_log_says_nothing_of_the_others() {
    time::run(10, |env| async move {
        let net = Net::new(&env, 3, 3, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        put_to(&ada, b"x", &[ben.reader_keys()[0]]).await.unwrap();
        // One that leaves everything out at once, one that hangs, and an honest one that takes minutes.
        *net.peers[0].log_start.lock().unwrap() = 1_000;
        net.network.set(&net.community.peer(1), Fault::Hang);
        *net.peers[2].slow.lock().unwrap() = Duration::from_secs(300);
        let mut inbox = ben.inbox(false, &[]);
        assert_eq!(listed(&mut inbox).await.len(), 1);
    });
}

#[test]
fn a_log_without_end_is_not_waited_for() {
    time::run(8, |env| async move {
        let net = Net::new(&env, 3, 3, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        let put = put_to(&ada, b"x", &[ben.reader_keys()[0]]).await.unwrap();
        net.peers[1].endless.store(true, Ordering::Release);
        let started = env.clock.elapsed();
        let mut inbox = ben.inbox(false, &[]);
        let received = listed(&mut inbox).await;
        assert_eq!(received.len(), 1, "once, however often it is told");
        assert!(inbox.next().await.is_none(), "it ends");
        let took = env.clock.elapsed() - started;
        assert!((90..100).contains(&took.as_secs()), "{took:?}");
        // One that follows says that it is caught up, and goes on.
        let mut inbox = ben.inbox(true, &[]);
        assert_eq!(listed(&mut inbox).await.len(), 1);
        // The time of a reader that is in no hurry is no librarian's.
        env.clock.sleep(Duration::from_secs(3_600)).await;
        let shared = ada.share(put.address, ben.reader_keys()[1]).await.unwrap();
        let InboxEvent::Received(received) = next(&env, &mut inbox).await else { panic!() };
        assert_eq!(received.address, shared);
    });
}

#[test]
fn librarians_without_a_cursor_are_followed_from_where_the_others_are() {
    time::run(11, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        for _ in 0..5 {
            put_to(&ada, b"old", &[ben.reader_keys()[0]]).await.unwrap();
        }
        env.clock.sleep(Duration::from_secs(600)).await;
        let last = put_to(&ada, b"last", &[ben.reader_keys()[0]]).await.unwrap();
        let mut inbox = ben.inbox(false, &[]);
        assert_eq!(listed(&mut inbox).await.len(), 6);
        let mut kept = inbox.cursors().to_vec();
        let whole = kept.clone();
        kept.truncate(1);
        env.clock.sleep(Duration::from_secs(600)).await;
        let new = put_to(&ada, b"new", &[ben.reader_keys()[0]]).await.unwrap();
        let mut received = listed(&mut ben.inbox(false, &kept)).await;
        // Two minutes are replayed.
        received.retain(|one| one.address != last.envelopes[0].address);
        let received: Vec<_> = received.iter().map(|one| one.address).collect();
        assert_eq!(received, [new.envelopes[0].address]);
        // One that was not read yet is read from its start, and then so are those that come to be known.
        let unread = [whole[0], Cursor::default()];
        assert_eq!(listed(&mut ben.inbox(false, &unread)).await.len(), 7);
        // An inbox that ends before all have told says so.
        net.network.set(&whole[1].peer.unwrap(), Fault::Hang);
        let mut inbox = ben.inbox(true, &[whole[0], whole[1]]);
        next(&env, &mut inbox).await;
        assert_eq!(inbox.cursors().len(), 3);
        assert_eq!(inbox.cursors()[1], whole[1]);
    });
}

#[test]
fn what_librarians_logged_ahead_of_the_calendar_did_not_come_later_than_now() {
    time::run(14, |env| async move {
        let net = Net::new(&env, 3, 3, Suite::Holdfast1);
        let (ada, ben) = (net.user("ada"), net.user("ben"));
        put_to(&ada, b"x", &[ben.reader_keys()[0]]).await.unwrap();
        let day_ms = 24 * 3_600_000;
        net.shared.log.send_modify(|log| log.iter_mut().for_each(|(_, at)| *at += day_ms));
        let received = listed(&mut ben.inbox(false, &[])).await;
        assert_eq!(received.len(), 1);
        assert!(received[0].received_ms <= env.clock.unix_ms(), "{received:?}");
    });
}
