//! Following a peer's log: filters, cursors, gaps, heartbeats, and readers that stopped reading.

use std::time::Duration;

use bytes::Bytes;
use crypto::{ClientKey, Suite, Tier};
use document::Bloom;
use env::calls::{
    CallError, Credential, Cursor, Events, KNOWN_KEY_BYTES, SubscribeEvent, SubscribeRequest,
};
use futures::StreamExt;
use store::JournalOptions;
use testkit::network::key;

use crate::town::{LIMIT, Shop, Town, envelope, everything, introduce, next, reader};

/// Reads to the end of what is logged: the publications with the cursors after them, and the last
/// cursor.
async fn read(town: &Town, events: &mut Events) -> (Vec<(Bytes, Cursor)>, Cursor, bool) {
    let (mut all, mut gap) = (Vec::new(), false);
    loop {
        match next(&town.env, events, LIMIT).await {
            SubscribeEvent::Publication { publication, cursor, .. } => {
                all.push((publication, cursor));
            }
            SubscribeEvent::Gap { .. } => gap = true,
            SubscribeEvent::CaughtUp { cursor } => return (all, cursor, gap),
        }
    }
}

async fn subscribe(town: &Town, number: usize, request: SubscribeRequest) -> Events {
    let calls = town.client(0, Tier::Known).await;
    calls.subscribe(&town.at(number), request, LIMIT).await.unwrap()
}

async fn publish(town: &Town, numbers: std::ops::Range<u32>) -> Vec<Bytes> {
    let client = town.client(0, Tier::Own).await;
    let mut all = Vec::new();
    for n in numbers {
        let (record, publication) = envelope(n, n as usize % 2);
        client.put(&town.at(0), record, Duration::ZERO, LIMIT).await.unwrap();
        all.push(publication);
    }
    all
}

#[test]
fn a_follower_gets_each_publication_once_and_at_once() {
    testkit::time::run(1, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let before = publish(&town, 0..5).await;
        env.clock.sleep(Duration::from_secs(1)).await;
        let mut events = subscribe(&town, 7, everything(Cursor::default(), true)).await;
        let (got, end, gap) = read(&town, &mut events).await;
        let got: Vec<Bytes> = got.into_iter().map(|(publication, _)| publication).collect();
        assert_eq!((got, gap, end.peer), (before, false, Some(town.community.peer(7))));
        for n in 5..15 {
            let since = env.clock.elapsed();
            let published = publish(&town, n..n + 1).await;
            let event = next(&env, &mut events, Duration::from_secs(1)).await;
            let SubscribeEvent::Publication { publication, .. } = event else {
                panic!("{event:?}")
            };
            assert_eq!(vec![publication], published);
            assert!(env.clock.elapsed() - since < Duration::from_secs(1));
        }
        // Nothing more but heartbeats.
        for _ in 0..5 {
            let since = env.clock.elapsed();
            let event = next(&env, &mut events, Duration::from_secs(25)).await;
            assert!(matches!(event, SubscribeEvent::CaughtUp { .. }), "{event:?}");
            assert!(env.clock.elapsed() - since <= Duration::from_secs(20));
        }
    });
}

#[test]
fn filters_let_through_what_matches_both() {
    testkit::time::run(2, |env| async move {
        let town = Town::new(&env, 1, 2).await;
        publish(&town, 0..20).await;
        let filter = |keys: &[&[u8]]| {
            let mut bloom = Bloom::with_capacity(keys.len() * 10, 5);
            keys.iter().for_each(|key| bloom.insert(key));
            Some(bloom.encode())
        };
        let author = testkit::network::key("author", 1).public();
        let stranger = reader(7).public();
        let reader = reader(1).public();
        let all = everything(Cursor::default(), false);
        let with = |authors, readers| SubscribeRequest { authors, readers, ..all.clone() };
        let rows = [
            (with(None, filter(&[reader.as_bytes()])), 10),
            (with(filter(&[author.as_bytes()]), None), 20),
            (with(filter(&[author.as_bytes()]), filter(&[reader.as_bytes()])), 10),
            (with(filter(&[stranger.as_bytes()]), filter(&[reader.as_bytes()])), 0),
            (with(None, filter(&[])), 0),
        ];
        for (request, expected) in rows {
            let mut events = subscribe(&town, 0, request).await;
            let (got, end, _) = read(&town, &mut events).await;
            assert_eq!(got.len(), expected);
            assert_eq!(end.offset, 20, "the cursor is past what did not match, too");
            assert!(events.next().await.is_none(), "it does not follow");
        }
        let calls = town.peer_calls(1);
        let nonsense = Some(Bytes::from_static(b"no filter"));
        let known = SubscribeRequest { known: nonsense.clone(), ..all.clone() };
        for bad in [with(None, nonsense), known] {
            let refused = calls.subscribe(&town.at(0), bad, LIMIT).await.map(drop);
            assert!(matches!(refused, Err(CallError::Invalid { .. })), "{refused:?}");
        }
    });
}

#[test]
fn what_a_subscriber_has_is_left_out() {
    testkit::time::run(12, |env| async move {
        let town = Town::new(&env, 1, 2).await;
        let all = publish(&town, 0..20).await;
        let mut bloom = Bloom::with_capacity(200, 5);
        for publication in &all[..15] {
            bloom.insert(&Suite::Holdfast1.id(publication).as_bytes()[..KNOWN_KEY_BYTES]);
        }
        let known = Some(bloom.encode());
        let request = SubscribeRequest { known, ..everything(Cursor::default(), false) };
        let mut events = subscribe(&town, 0, request).await;
        let (got, end, _) = read(&town, &mut events).await;
        let got: Vec<Bytes> = got.into_iter().map(|(publication, _)| publication).collect();
        assert_eq!(got, all[15..]);
        assert_eq!(end.offset, 20);
    });
}

#[test]
fn every_cursor_resumes_exactly_after_its_event() {
    testkit::time::run(3, |env| async move {
        let town = Town::new(&env, 1, 2).await;
        let all = publish(&town, 0..10).await;
        let mut events = subscribe(&town, 0, everything(Cursor::default(), false)).await;
        let (got, end, _) = read(&town, &mut events).await;
        for (at, (_, cursor)) in got.iter().enumerate() {
            let mut events = subscribe(&town, 0, everything(*cursor, false)).await;
            let (rest, again, gap) = read(&town, &mut events).await;
            let rest: Vec<Bytes> = rest.into_iter().map(|(publication, _)| publication).collect();
            assert_eq!((&rest[..], gap), (&all[at + 1..], false));
            assert_eq!(again, end);
        }
    });
}

#[test]
fn at_another_peer_two_minutes_are_replayed() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 1, 2).await;
        publish(&town, 0..3).await;
        env.clock.sleep(Duration::from_secs(1000)).await;
        let recent = publish(&town, 3..6).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        let mut events = subscribe(&town, 0, everything(Cursor::default(), false)).await;
        let (_, end, _) = read(&town, &mut events).await;
        let newer = publish(&town, 6..8).await;
        env.clock.sleep(Duration::from_secs(1)).await;
        let mut events = subscribe(&town, 1, everything(end, false)).await;
        let (got, _, gap) = read(&town, &mut events).await;
        let got: Vec<Bytes> = got.into_iter().map(|(publication, _)| publication).collect();
        assert_eq!((got, gap), ([recent, newer].concat(), false));
    });
}

#[test]
fn a_cursor_that_is_not_of_this_log_gets_a_gap() {
    testkit::time::run(5, |env| async move {
        let town = Town::new(&env, 1, 2).await;
        let all = publish(&town, 0..3).await;
        let now = env.clock.unix_ms();
        let peer = Some(town.community.peer(0));
        let from = Cursor { peer, offset: 1_000, unix_ms: now };
        let mut events = subscribe(&town, 0, everything(from, false)).await;
        let (got, _, gap) = read(&town, &mut events).await;
        assert_eq!((got.len(), gap), (all.len(), true), "by time, and told so");
        // A cursor far in the future of another peer is the end of this log.
        let from = Cursor { peer: None, offset: 0, unix_ms: u64::MAX };
        let mut events = subscribe(&town, 0, everything(from, false)).await;
        let (got, _, gap) = read(&town, &mut events).await;
        assert_eq!((got.len(), gap), (0, false));
    });
}

#[test]
fn a_log_that_was_cut_says_so() {
    testkit::time::run(6, |env| async move {
        let mut town = Town::empty(&env, 1, 2);
        let short = JournalOptions {
            retain_ms: 3_600_000,
            segment_bytes_max: 4096,
            ..JournalOptions::default()
        };
        let shop = std::sync::Arc::new(Shop::new(std::sync::Arc::new(store::MemoryStore::new())));
        let peer = town.start_with(0, shop.clone(), short, |_| {}).await;
        town.peers.push(peer);
        town.stores.push(shop);
        publish(&town, 0..100).await;
        let mut events = subscribe(&town, 0, everything(Cursor::default(), false)).await;
        let (old, _, _) = read(&town, &mut events).await;
        assert_eq!(old.len(), 100);
        env.clock.sleep(Duration::from_secs(7200)).await;
        let cut = publish(&town, 100..200).await;
        let start = town.peers[0].journal().start();
        assert!(start > 10, "the log was cut");
        let mut events = subscribe(&town, 0, everything(old[5].1, false)).await;
        let (got, _, gap) = read(&town, &mut events).await;
        assert!(gap && got.len() >= cut.len());
        // By time from another peer's cursor too.
        let from = Cursor { peer: Some(town.community.peer(1)), ..old[5].1 };
        let mut events = subscribe(&town, 0, everything(from, false)).await;
        assert!(read(&town, &mut events).await.2);
        // Who asks for what there is, gets it without a gap.
        let mut events = subscribe(&town, 0, everything(Cursor::default(), false)).await;
        assert!(!read(&town, &mut events).await.2);
    });
}

#[test]
fn a_reader_that_stopped_reading_makes_room() {
    testkit::time::run(7, |env| async move {
        let mut town = Town::empty(&env, 1, 2);
        town.start_next(|options| options.limits.subscribers_max = 2).await;
        publish(&town, 0..5).await;
        let mut slow = subscribe(&town, 0, everything(Cursor::default(), true)).await;
        next(&env, &mut slow, LIMIT).await;
        let mut quick = subscribe(&town, 0, everything(Cursor::default(), true)).await;
        read(&town, &mut quick).await;
        let calls = town.client(0, Tier::Known).await;
        let third = calls.subscribe(&town.at(0), everything(Cursor::default(), true), LIMIT).await;
        assert!(matches!(third.map(drop), Err(CallError::Busy { .. })));
        for _ in 0..4 {
            let event = next(&env, &mut quick, Duration::from_secs(25)).await;
            assert!(matches!(event, SubscribeEvent::CaughtUp { .. }));
        }
        let mut third = subscribe(&town, 0, everything(Cursor::default(), true)).await;
        assert_eq!(read(&town, &mut third).await.0.len(), 5);
        assert!(matches!(slow.next().await, Some(Err(CallError::Busy { .. }))));
        assert!(slow.next().await.is_none());
        next(&env, &mut quick, Duration::from_secs(25)).await;
    });
}

/// What is told until the stream ends, or for so long.
async fn told_for(
    town: &Town,
    events: &mut Events,
    period: Duration,
) -> (Vec<Bytes>, Option<CallError>) {
    let (until, mut all) = (town.env.clock.elapsed() + period, Vec::new());
    loop {
        let left = until.saturating_sub(town.env.clock.elapsed());
        match town.env.within(left, events.next()).await {
            Err(_) => return (all, None),
            Ok(None) => panic!("it ends with an error"),
            Ok(Some(Err(error))) => return (all, Some(error)),
            Ok(Some(Ok(SubscribeEvent::Publication { publication, .. }))) => all.push(publication),
            Ok(Some(Ok(_))) => {}
        }
    }
}

#[test]
fn a_stream_ends_with_the_pass_that_opened_it() {
    testkit::time::run(11, |env| async move {
        let mut town = Town::empty(&env, 1, 2);
        // So few that who opened a stream is forgotten long before its pass ends.
        town.start_next(|options| options.limits.standings_max = 2).await;
        let mut events = subscribe(&town, 0, everything(Cursor::default(), true)).await;
        let minutes = |n: u64| Duration::from_secs(60 * n);
        for n in 0..10 {
            let others = key("others", n);
            let calls = town.network.calls(others.public());
            let client = ClientKey::new(others.public());
            let pass = town.community.pass(client, 0, Tier::Known, &env);
            introduce(&calls, &town.at(0), Credential::Client(pass)).await.unwrap();
        }
        let first = publish(&town, 0..3).await;
        assert_eq!(told_for(&town, &mut events, minutes(20)).await, (first, None));
        // It runs out after half an hour; what is published then is told no more.
        assert_eq!(told_for(&town, &mut events, minutes(9)).await, (vec![], None));
        env.clock.sleep(minutes(2)).await;
        publish(&town, 3..6).await;
        let (told, error) = told_for(&town, &mut events, minutes(5)).await;
        assert!(matches!(error, Some(CallError::Denied { .. })), "{error:?}");
        assert!(told.is_empty() && events.next().await.is_none());
    });
}

#[test]
fn a_stream_goes_on_by_a_pass_that_was_renewed() {
    testkit::time::run(12, |env| async move {
        let mut town = Town::empty(&env, 1, 2);
        town.start_next(|_| {}).await;
        let mut events = subscribe(&town, 0, everything(Cursor::default(), true)).await;
        let minutes = |n: u64| Duration::from_secs(60 * n);
        assert_eq!(told_for(&town, &mut events, minutes(20)).await, (vec![], None));
        // The same key, by another connection.
        town.client(0, Tier::Known).await;
        assert_eq!(told_for(&town, &mut events, minutes(20)).await, (vec![], None));
        let more = publish(&town, 0..3).await;
        assert_eq!(told_for(&town, &mut events, minutes(5)).await, (more, None));
    });
}

/// Flips a byte of an entry in the file of a peer's log.
pub(crate) fn rot_entry(town: &Town, number: usize, publication: &Bytes) {
    let folder = town.folder.path().join(format!("peer-{number}"));
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let Ok(mut bytes) = std::fs::read(&path) else { continue };
        let len = publication.len();
        if let Some(at) = bytes.windows(len).position(|window| window == &publication[..]) {
            bytes[at + len / 2] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            return;
        }
    }
    panic!("the publication is in no file");
}

#[test]
fn a_hole_in_the_log_is_told_once() {
    testkit::time::run(7, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let all = publish(&town, 0..6).await;
        rot_entry(&town, 0, &all[2]);
        rot_entry(&town, 0, &all[5]);
        let mut events = subscribe(&town, 0, everything(Cursor::default(), false)).await;
        let mut told = Vec::new();
        loop {
            match next(&env, &mut events, LIMIT).await {
                SubscribeEvent::Publication { publication, .. } => told.push(Some(publication)),
                SubscribeEvent::Gap { .. } => told.push(None),
                SubscribeEvent::CaughtUp { .. } => break,
            }
        }
        let some = |at: usize| Some(all[at].clone());
        assert_eq!(told, [some(0), some(1), None, some(3), some(4), None]);
    });
}
