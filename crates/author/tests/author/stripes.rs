//! Contents in stripes: every awkward size, ranges, holders that are gone, slow or lying, and what is refused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use author::{
    Author, AuthorError, AuthorOptions, GetReport, Info, NoProgress, PEERS_WAIT, PutOptions,
    PutReport, WINDOW_BYTES_MIN,
};
use crypto::{Class, Classified, PeerId, RecordId, Suite};
use document::Kind;
use env::calls::CallError;
use placement::Profile;
use testkit::crowd::Crowd;
use testkit::network::Fault;
use testkit::time;
use walk::{AWAY_AFTER, CALL_LIMIT, Health};

use crate::network::{Net, get, noise, put, try_get};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// What a segment has in the default profile of 9 to 17 peers.
const SEGMENT: usize = 8 * MIB;

fn profile(text: &str) -> Option<Profile> {
    Some(text.parse().unwrap())
}

async fn put_as(author: &Author, content: &[u8], kept: &str) -> Result<PutReport, AuthorError> {
    let options = PutOptions { profile: profile(kept), ..PutOptions::default() };
    author.put(content, options, Arc::new(NoProgress)).await
}

async fn range(
    author: &Author,
    address: RecordId,
    range: std::ops::Range<usize>,
) -> Result<(Vec<u8>, GetReport), AuthorError> {
    let mut bytes = Vec::new();
    let range = Some(range.start as u64..range.end as u64);
    let report = author.get(address, &mut bytes, range, Arc::new(NoProgress)).await?;
    Ok((bytes, report))
}

/// Who holds a fragment of the content, by its number in its stripe.
fn holders(info: &Info, stripe: u32) -> Vec<PeerId> {
    let of = info.fragments.iter().filter(|fragment| fragment.stripe == Some(stripe));
    of.flat_map(|fragment| &fragment.holders).filter(|at| at.held).map(|at| at.peer).collect()
}

#[test]
fn every_size_comes_back_and_one_peer_holds_one_fragment() {
    time::run(1, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        let sizes = [
            (0, 0),
            (1, 0),
            (16 * KIB, 0),
            (16 * KIB + 1, 1),
            (40_000, 1),
            (SEGMENT - 1, 1),
            (SEGMENT, 1),
            (SEGMENT + 1, 2),
        ];
        for (length, stripes) in sizes {
            let content = noise(length as u64 + 1, length);
            let before = net.records();
            let report = put(&author, &content).await.unwrap();
            assert!(report.full && report.bytes == length as u64, "{length}: {report:?}");
            assert_eq!(report.profile, Profile::Stripe { k: 4, n: 8 });
            // Five copies of entry and envelope; each holder of a fragment has the header too.
            assert_eq!(net.records() - before, 2 * 5 + 2 * 8 * stripes, "{length}");
            let (bytes, got) = get(&author, report.address).await.unwrap();
            assert!(bytes == content, "{length}");
            assert!(!got.degraded && got.bytes == length as u64);

            let info = author.info(report.address).await.unwrap();
            assert_eq!((info.stripes, info.pages), (stripes as u64, 4 * stripes as u64));
            assert_eq!(info.fragments.len(), 2 + 8 * stripes);
            for stripe in 0..stripes as u32 {
                let all = holders(&info, stripe);
                assert_eq!(all.len(), 8, "every fragment is held");
                assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 8, "by a peer of its own");
            }
        }
        assert_eq!(author.window_bytes().0, 0, "every lease is given back");
    });
}

#[test]
fn what_compresses_is_as_safe_as_what_does_not() {
    time::run(2, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        // Pages of very different lengths: zeros, noise, and half of each.
        let content = [vec![0; 2 * MIB], noise(1, 2 * MIB), vec![0; MIB], noise(2, MIB)].concat();
        let report = put(&author, &content).await.unwrap();
        let info = author.info(report.address).await.unwrap();
        let all = holders(&info, 0);
        for lost in [[0, 1, 2, 3], [0, 5, 6, 7], [1, 3, 4, 6]] {
            lost.iter().for_each(|at| net.network.set(&all[*at], Fault::Down));
            let (bytes, got) = get(&author, report.address).await.unwrap();
            assert!(bytes == content && got.degraded, "without {lost:?}");
            net.network.heal();
            env.clock.sleep(Duration::from_secs(120)).await;
        }
    });
}

#[test]
fn small_content_with_long_metadata_is_a_stripe_and_not_one_page() {
    time::run(3, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        for length in [0, 5, 16 * KIB] {
            let options = PutOptions {
                properties: [("k".to_owned(), vec![7; 600])].into(),
                ..PutOptions::default()
            };
            let content = noise(9, length);
            let report = author.put(&content[..], options, Arc::new(NoProgress)).await.unwrap();
            let info = author.info(report.address).await.unwrap();
            assert_eq!((info.stripes, info.pages), (1, 4));
            assert_eq!(get(&author, report.address).await.unwrap().0, content);
        }
        let options = PutOptions {
            properties: [("k".to_owned(), vec![7; 300 << 10])].into(),
            ..PutOptions::default()
        };
        let error = author.put(&b"short"[..], options, Arc::new(NoProgress)).await.unwrap_err();
        assert!(matches!(error, AuthorError::Unsealable(_)), "{error:?}");
    });
}

#[test]
fn any_k_fragments_bring_it_back_and_one_less_is_an_error() {
    time::run(4, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        let content = noise(5, 300 * KIB);
        let report = put(&author, &content).await.unwrap();
        let info = author.info(report.address).await.unwrap();
        let all: Vec<_> = info.fragments.iter().filter(|one| one.stripe.is_some()).collect();
        // Lost for good, not only away: entry and envelope stay.
        let lose = |index: usize| {
            let peer = all[index].holders[0].peer;
            let peer = net.peers.iter().find(|one| one.id == peer).unwrap();
            assert!(peer.memory.lose(&all[index].id));
        };
        let before = |index: usize| {
            let peer = all[index].holders[0].peer;
            net.peers.iter().find(|one| one.id == peer).unwrap().memory.all()
        };
        for lost in [[0, 1, 2, 3], [0, 2, 4, 6], [1, 3, 6, 7], [4, 5, 6, 7]] {
            let kept: Vec<_> = lost
                .iter()
                .map(|at| before(*at).into_iter().find(|record| record.id == all[*at].id).unwrap())
                .collect();
            lost.iter().for_each(|at| lose(*at));
            let (bytes, got) = get(&author, report.address).await.unwrap();
            assert!(bytes == content, "without {lost:?}");
            assert_eq!(got.degraded, lost != [4, 5, 6, 7], "parity alone is not needed");
            for (at, record) in lost.iter().zip(kept) {
                let peer = net.peers.iter().find(|one| one.id == all[*at].holders[0].peer).unwrap();
                use env::calls::Service;
                let caller = env::calls::Caller { key: testkit::network::key("x", 0).public() };
                peer.memory.store(caller, record).await.unwrap();
            }
        }
        (0..5).for_each(lose);
        let (bytes, got) = try_get(&author, report.address).await;
        let error = got.unwrap_err();
        assert!(bytes.is_empty() && error.to_string() == "cannot fetch stripe 0", "{error}");
        assert!(matches!(error.class(), Class::NotFound | Class::Unavailable), "{error:?}");
        let info = author.info(report.address).await.unwrap();
        assert_eq!(holders(&info, 0).len(), 3, "info tells which are left");
    });
}

#[test]
fn four_bad_peers_of_nine_lose_nothing() {
    let faults = [
        Fault::Down,
        Fault::Hang,
        Fault::Delay(Duration::from_secs(2)),
        Fault::Error(CallError::Internal { reason: "a defect".to_owned() }),
        Fault::Deny,
        Fault::Flip,
        Fault::Garbage,
    ];
    for fault in faults {
        time::run(5, |env| async move {
            let net = Net::new(&env, 3, 9, Suite::Holdfast1);
            let author = net.user("ada");
            let content = noise(1, 3 * MIB + 3);
            let report = put(&author, &content).await.unwrap();
            let info = author.info(report.address).await.unwrap();
            // The holders of all four pages.
            let bad = &holders(&info, 0)[..4];
            bad.iter().for_each(|peer| net.network.set(peer, fault.clone()));
            let (bytes, got) = get(&author, report.address).await.unwrap();
            assert!(bytes == content, "{fault:?}");
            let late = matches!(fault, Fault::Delay(_));
            assert!(got.degraded || late, "{fault:?}: pages were made again");
            let (bytes, _) = range(&author, report.address, MIB..MIB + 5).await.unwrap();
            assert!(bytes == content[MIB..MIB + 5], "{fault:?}");
            assert_eq!(author.window_bytes().0, 0);
        });
    }
}

#[test]
fn ranges_give_their_bytes_and_touch_their_pages_alone() {
    time::run(6, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        let content = noise(9, SEGMENT + 40_001);
        let address = put(&author, &content).await.unwrap().address;
        let (size, chunk, short) = (content.len(), 2 * MIB, 10_001);
        let edges = [
            0,
            chunk - 1,
            chunk,
            SEGMENT - 1,
            SEGMENT,
            SEGMENT + short,
            SEGMENT + 3 * short,
            size - 1,
            size,
        ];
        for start in edges {
            for end in edges.into_iter().filter(|end| *end >= start) {
                let before = net.network.total();
                let (bytes, report) = range(&author, address, start..end).await.unwrap();
                assert!(bytes == content[start..end], "{start}..{end}");
                assert!(!report.degraded && report.bytes == (end - start) as u64);
                let calls = net.network.total() - before;
                // Envelope and entry, then of each stripe its header and the pages.
                let most = match (end - start, start / SEGMENT == end.saturating_sub(1) / SEGMENT) {
                    (0, _) => 2,
                    (1, _) => 4,
                    (_, true) => 3 + 4,
                    (_, false) => 4 + 8,
                };
                assert!(calls <= most, "{calls} calls for {start}..{end}");
            }
        }
        let error = range(&author, address, 0..size + 1).await.unwrap_err();
        assert!(matches!(error, AuthorError::Range { .. }));
        assert_eq!(author.window_bytes().0, 0);
    });
}

#[test]
fn a_profile_is_kept_or_refused_before_a_byte_is_read() {
    /// A source that must not be touched.
    struct Untouched;
    impl tokio::io::AsyncRead for Untouched {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _context: &mut std::task::Context<'_>,
            _into: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            panic!("a byte was read");
        }
    }
    time::run(7, |env| async move {
        let net = Net::new(&env, 3, 12, Suite::Holdfast1);
        let author = net.user("ada");
        let content = noise(1, 100 * KIB);
        for (asked, kept) in [
            ("3/5", Profile::Stripe { k: 3, n: 5 }),
            ("1/2", Profile::Stripe { k: 1, n: 2 }),
            ("11/12", Profile::Stripe { k: 11, n: 12 }),
            ("copies:2", Profile::Copies(2)),
            ("copies:12", Profile::Copies(12)),
        ] {
            let report = put_as(&author, &content, asked).await.unwrap();
            assert!(report.full && report.profile == kept, "{report:?}");
            assert!(get(&author, report.address).await.unwrap().0 == content, "{asked}");
        }
        let info = author.info(put_as(&author, &content, "copies:2").await.unwrap().address).await;
        let pages = info.unwrap().fragments.into_iter().filter(|one| one.kind == Kind::Page);
        assert_eq!(pages.count(), 1);
        for asked in ["lean", "archive", "4/13", "copies:13"] {
            let options = PutOptions { profile: profile(asked), ..PutOptions::default() };
            let since = env.clock.elapsed();
            let error = author.put(Untouched, options, Arc::new(NoProgress)).await.unwrap_err();
            assert!(matches!(error, AuthorError::TooFewPeers { known: 12, .. }), "{error:?}");
            assert_eq!(env.clock.elapsed() - since, PEERS_WAIT, "others may yet be heard of");
            assert_eq!(error.class(), Class::Unavailable);
        }
        assert!(
            put_as(&author, &content, "4/13").await.unwrap_err().to_string().contains("13 peers")
        );

        let libri = Net::new(&env, 3, 12, Suite::Libri1);
        let error = put_as(&libri.user("ada"), &content, "4/8").await.unwrap_err();
        assert!(matches!(error, AuthorError::LibriCopies { .. }));
        assert_eq!(error.class(), Class::Invalid);
    });
}

#[test]
fn a_wide_put_just_after_joining_waits_until_enough_peers_are_known() {
    time::run(15, |env| async move {
        let net = Net::new(&env, 3, 12, Suite::Holdfast1);
        let author = net.user_knowing("ada", &AuthorOptions::default(), 1);
        let content = noise(1, 100 * KIB);
        // All that others know is learnt from the one that is known.
        let report = put_as(&author, &content, "8/12").await.unwrap();
        assert!(report.full && report.profile.to_string() == "8/12", "{report:?}");
        assert!(get(&author, report.address).await.unwrap().0 == content);

        // A peer that does not answer is waited for no longer than the put may wait.
        let author = net.user_knowing("ben", &AuthorOptions::default(), 1);
        author.walker().directory().peers().iter().for_each(|one| {
            net.network.set(&one.peer, Fault::Hang);
        });
        let since = env.clock.elapsed();
        let error = put_as(&author, &content, "8/12").await.unwrap_err();
        assert!(matches!(error, AuthorError::TooFewPeers { known: 1, .. }), "{error:?}");
        assert_eq!(env.clock.elapsed() - since, PEERS_WAIT);
    });
}

#[test]
fn fewer_peers_than_fragments_up_is_partly_done_and_too_few_an_error() {
    // Of 4/8 seven are enough for an answer, and eight are wanted; nine peers are known.
    for (down, outcome) in [(1, Some(8)), (2, Some(7)), (3, None)] {
        time::run(8, |env| async move {
            let net = Net::new(&env, 3, 9, Suite::Holdfast1);
            let author = net.user("ada");
            for number in 0..down {
                net.network.set(&net.community.peer(number), Fault::Down);
            }
            let content = noise(1, MIB);
            let put = put(&author, &content).await;
            match outcome {
                Some(acked) => {
                    let report = put.unwrap();
                    assert_eq!(report.full, acked == 8, "{report:?}");
                    assert!(report.full || (report.acked, report.wanted) == (acked, 8));
                    assert!(get(&author, report.address).await.unwrap().0 == content);
                }
                None => {
                    let error = put.unwrap_err();
                    assert_eq!(error.to_string(), "cannot store stripe 0");
                    assert_eq!(error.class(), Class::Unavailable);
                    assert!(net.shared.log.borrow().is_empty(), "no envelope was stored");
                }
            }
            assert_eq!(author.window_bytes().0, 0);
        });
    }
}

/// A put that goes by 39 peers alone.
async fn put_narrow(author: &Author, content: &[u8]) {
    let report = put(author, content).await.unwrap();
    assert!(report.full && report.profile.to_string() == "8/24", "{report:?}");
    assert!(get(author, report.address).await.unwrap().0 == content);
}

/// 48 peers are certified and 9 of them never ran: 39 answer, and the row of 48 waits for 40.
#[test]
fn certificates_of_peers_that_never_ran_end_no_puts() {
    for fault in [Fault::Down, Fault::Hang] {
        time::run(16, |env| async move {
            let net = Net::new(&env, 3, 48, Suite::Holdfast1);
            // All of one organisation.
            let unrun: Vec<PeerId> = (0..9).map(|at| net.community.peer(3 * at)).collect();
            unrun.iter().for_each(|peer| net.network.set(peer, fault.clone()));
            let content = noise(7, 100 * KIB);
            // A program that has just joined: it asks those that it never heard before it goes by the others.
            let author = net.user("ada");
            let first = net.community.members[1].address.clone();
            author.walker().join(&[first]).await.unwrap();
            put_narrow(&author, &content).await;
            // What is asked for by name stays what it is, and fails.
            let error = put_as(&author, &content, "16/48").await.unwrap_err();
            assert!(matches!(error, AuthorError::Store { .. }), "{error:?}");
            // One that introduced itself to nobody knows it once calls failed for a minute.
            let author = net.user("ben");
            let directory = author.walker().directory().clone();
            let fail = |peers: &[PeerId]| {
                for peer in peers {
                    let (address, reason) = ("a".to_owned(), "refused".to_owned());
                    directory.failed(peer, &CallError::Unreachable { address, reason });
                }
            };
            fail(&unrun);
            env.clock.sleep(AWAY_AFTER).await;
            fail(&unrun);
            put_narrow(&author, &content).await;
            // With one more of them there are forty, and all is as it was.
            net.network.set(&unrun[0], Fault::None);
            directory.good(&unrun[0], Duration::from_millis(1));
            let report = put(&author, &content).await.unwrap();
            assert_eq!((report.profile.to_string().as_str(), report.acked), ("16/48", 40));
            assert!(get(&author, report.address).await.unwrap().0 == content);
        });
    }
}

/// Four peers answer of 18 that are certified: 3 copies of each page, and the entry at all four, where five were waited for.
#[test]
fn where_fewer_answer_than_acknowledge_an_entry_a_put_goes_by_those_and_says_what_is_owed() {
    time::run(17, |env| async move {
        let net = Net::new(&env, 5, 18, Suite::Holdfast1);
        (4..18).for_each(|number| net.network.set(&net.community.peer(number), Fault::Down));
        let author = net.user("ada");
        let all = author.walker().redundancy(Kind::Entry);
        assert_eq!((all.copies, all.acknowledged), (9, 5));
        let first = [net.community.members[0].address.clone()];
        author.walker().join(&first).await.unwrap();
        let content = noise(8, 100 * KIB);
        let report = put(&author, &content).await.unwrap();
        assert_eq!(report.profile, Profile::Copies(3));
        assert!(!report.full && (report.acked, report.wanted) == (4, 9), "{report:?}");
        assert!(get(&author, report.address).await.unwrap().0 == content);
        // As many copies as are asked for by number are waited for.
        let error = put_as(&author, &content, "copies:9").await.unwrap_err();
        assert!(matches!(error, AuthorError::Store { .. }), "{error:?}");
        // An envelope that is shared waits for no more than those of the put, in programs that have just joined too.
        let reader = net.user("grace");
        reader.walker().join(&first).await.unwrap();
        let to = reader.reader_keys()[0];
        let author = net.user("ada");
        author.walker().join(&first).await.unwrap();
        let shared = author.share(report.address, to).await.unwrap();
        assert!(get(&reader, shared).await.unwrap().0 == content);
        let author = net.user("ada");
        author.walker().join(&first).await.unwrap();
        let mut told = Vec::new();
        let each = |one: author::Shared| told.push(one.outcome.unwrap());
        let all = author.share_all(report.address, &[to, to], None, each).await.unwrap();
        assert_eq!((all.shared, all.failed, told.len()), (2, 0, 2));
        assert!(get(&reader, told[1]).await.unwrap().0 == content);
    });
}

/// Of 99 that are certified 60 are silent addresses: the first put waits for some of them, and the next one for nobody.
#[test]
fn addresses_that_stay_silent_keep_one_put_waiting_and_not_each() {
    time::run(18, |env| async move {
        let net = Net::new(&env, 3, 99, Suite::Holdfast1);
        let silent: Vec<PeerId> = (39..99).map(|number| net.community.peer(number)).collect();
        silent.iter().for_each(|peer| net.network.set(peer, Fault::Hang));
        let author = net.user("ada");
        let directory = author.walker().directory();
        for number in 0..39 {
            let to = directory.endpoint(&net.community.peer(number)).unwrap();
            author.walker().introduce(&to).await.unwrap();
        }
        let asked = |peer: &&PeerId| net.network.counts(peer).introduce > 0;
        // One more would be as many as the row waits for.
        let (content, since) = (noise(9, KIB), env.clock.elapsed());
        let report = put(&author, &content).await.unwrap();
        assert_eq!(report.profile.to_string(), "8/24");
        assert!(env.clock.elapsed() - since >= CALL_LIMIT);
        let first: Vec<PeerId> = silent.iter().filter(asked).copied().collect();
        assert!(first.len() > 16, "more were asked when the first had failed: {}", first.len());
        // Also whose call was cut off.
        assert!(first.iter().all(|peer| directory.health(peer) != Health::Healthy));
        let before: u64 = silent.iter().map(|peer| net.network.counts(peer).introduce).sum();
        let report = put(&author, &content).await.unwrap();
        assert_eq!(report.profile.to_string(), "8/24");
        let after: u64 = silent.iter().map(|peer| net.network.counts(peer).introduce).sum();
        assert_eq!(before, after);
    });
}

/// A small file goes into its entry and is no stripe: nobody is asked whether enough are there for one.
#[test]
fn a_small_file_waits_for_copies_of_its_entry_alone() {
    time::run(19, |env| async move {
        let net = Net::new(&env, 3, 99, Suite::Holdfast1);
        let author = net.user("ada");
        let directory = author.walker().directory();
        let met = author.walker().redundancy(Kind::Entry).acknowledged as usize;
        for number in 0..met {
            let to = directory.endpoint(&net.community.peer(number)).unwrap();
            author.walker().introduce(&to).await.unwrap();
        }
        let asked = || -> u64 {
            let others = (met..99).map(|number| net.community.peer(number));
            others.map(|peer| net.network.counts(&peer).introduce).sum()
        };
        let folder = tempfile::tempdir().unwrap();
        let put_file = async |name: &str, bytes: usize| {
            let path = folder.path().join(name);
            std::fs::write(&path, noise(9, bytes)).unwrap();
            let options = PutOptions::default();
            author.put_file(&path, options, true, Arc::new(NoProgress)).await.unwrap()
        };
        assert!(put_file("small", KIB).await.full && asked() == 0);
        assert!(put_file("large", 100 * KIB).await.full && asked() > 0);
    });
}

#[test]
fn wide_stripes_go_through_the_smallest_window_and_many_at_once() {
    time::run(9, |env| async move {
        let net = Net::new(&env, 4, 24, Suite::Holdfast1);
        let author = net.user_with("ada", &AuthorOptions { window_bytes: 0 });
        let content = noise(3, 16 * MIB + 70_000);
        let work = ["8/16", "20/24", "4/8", "8/16"].map(|kept| {
            let (author, content) = (Arc::clone(&author), &content);
            async move {
                let report = put_as(&author, content, kept).await.unwrap();
                let got = get(&author, report.address).await.unwrap();
                got.0 == *content
            }
        });
        assert_eq!(futures::future::join_all(work).await, [true; 4]);
        let (held, peak) = author.window_bytes();
        assert!(held == 0 && peak <= WINDOW_BYTES_MIN, "{peak}");
    });
}

#[test]
fn the_default_window_holds_three_stripes() {
    time::run(10, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        // Nothing is acknowledged for long: all that the window takes is on its way.
        for peer in &net.peers {
            net.network.set(&peer.id, Fault::Delay(Duration::from_secs(5)));
        }
        let author = net.user("ada");
        let content = noise(4, 6 * SEGMENT);
        let report = put(&author, &content).await.unwrap();
        let (held, peak) = author.window_bytes();
        // A stripe of 4/8 takes 16 MiB: its pages and as much parity.
        assert!(held == 0 && peak == 48 * MIB, "{peak}");
        assert!(report.bytes == content.len() as u64);
        let before = net.network.total();
        assert!(get(&author, report.address).await.unwrap().0 == content);
        assert!(net.network.total() > before);
    });
}

#[test]
fn on_a_crowded_machine_one_stripe_is_under_way() {
    time::run(12, |env| async move {
        let (env, _) = Crowd::around(&env);
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        for peer in &net.peers {
            net.network.set(&peer.id, Fault::Delay(Duration::from_secs(5)));
        }
        let author = net.user("ada");
        let content = noise(5, 3 * SEGMENT + 70_000);
        let putting = put(&author, &content);
        let watching = async {
            let mut most = 0;
            for _ in 0..60 {
                env.clock.sleep(Duration::from_millis(500)).await;
                most = most.max(author.window_bytes().0);
            }
            most
        };
        let (report, most) = futures::future::join(putting, watching).await;
        assert_eq!(most, 16 * MIB);
        assert!(get(&author, report.unwrap().address).await.unwrap().0 == content);
    });
}

/// A holder that answers one fragment for another, both of them real and of one stripe.
#[test]
fn a_right_fragment_in_the_wrong_place_is_not_taken() {
    time::run(11, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        let content = noise(6, 90_000);
        let report = put(&author, &content).await.unwrap();
        let info = author.info(report.address).await.unwrap();
        let fragments: Vec<_> = info.fragments.iter().filter(|one| one.stripe.is_some()).collect();
        let record = |at: usize| {
            let all = net.peers.iter().flat_map(|peer| peer.memory.all());
            all.into_iter().find(|record| record.id == fragments[at].id).unwrap()
        };
        for (asked, given) in [(0, 1), (2, 5), (3, 7)] {
            let other = record(given);
            let holder = fragments[asked].holders[0].peer;
            for claimed in [true, false] {
                let mut lie = other.clone();
                if claimed {
                    lie.id = fragments[asked].id;
                }
                net.network.set(&holder, Fault::Other(lie));
                let (bytes, got) = get(&author, report.address).await.unwrap();
                assert!(bytes == content && got.degraded);
                net.network.heal();
                env.clock.sleep(Duration::from_secs(120)).await;
            }
        }
    });
}
