//! Peers that are down, hang, lie or are full while contents are put and got.

use std::sync::Arc;
use std::time::Duration;

use author::{AuthorError, NoProgress, Progress, PutOptions};
use crypto::{Class, Classified, Suite};
use env::Env;
use env::calls::CallError;
use futures::future::BoxFuture;
use testkit::network::Fault;
use testkit::time;

use crate::network::{Net, get, noise, put, try_get};

const CONTENT_BYTES: usize = (5 << 20) + 3;

fn faults() -> Vec<Fault> {
    vec![
        Fault::Down,
        Fault::Hang,
        Fault::Delay(Duration::from_secs(2)),
        Fault::Error(CallError::Internal { reason: "a defect".to_owned() }),
        Fault::Deny,
        Fault::Flip,
        Fault::Garbage,
    ]
}

#[test]
fn two_bad_peers_of_nine_lose_nothing() {
    for fault in faults() {
        time::run(1, |env| async move {
            let net = Net::copying(&env);
            let author = net.user("ada");
            let content = noise(1, CONTENT_BYTES);
            let report = put(&author, &content).await.unwrap();
            net.break_holders(&author, report.address, 2, &fault);
            let (bytes, got) = get(&author, report.address).await.unwrap();
            assert!(bytes == content, "{fault:?}");
            // A late holder, and one that says that it has nothing, are not failed ones: the next one is asked.
            let well = matches!(fault, Fault::Delay(_) | Fault::Hang | Fault::Deny);
            assert!(got.degraded || well, "{fault:?}: the best holder of the envelope failed");

            // And a put goes round them.
            let second = noise(2, CONTENT_BYTES);
            let report = put(&author, &second).await.unwrap();
            net.network.heal();
            assert!(get(&author, report.address).await.unwrap().0 == second, "{fault:?}");
            assert_eq!(author.window_bytes().0, 0);
        });
    }
}

#[test]
fn peers_that_take_no_writes_are_gone_round() {
    for error in [CallError::Full, CallError::ReadOnly { reason: "by its operator".to_owned() }] {
        time::run(2, |env| async move {
            let net = Net::copying(&env);
            let author = net.user("ada");
            for number in 0..4 {
                net.network.set(&net.community.peer(number), Fault::Writes(error.clone()));
            }
            let content = noise(1, CONTENT_BYTES);
            let report = put(&author, &content).await.unwrap();
            assert!(report.full, "five peers are left for five copies: {report:?}");
            assert!(get(&author, report.address).await.unwrap().0 == content);
        });
    }
}

#[test]
fn too_few_peers_for_all_copies_is_partly_done() {
    time::run(3, |env| async move {
        let net = Net::copying(&env);
        let author = net.user("ada");
        for number in 0..6 {
            net.network.set(&net.community.peer(number), Fault::Down);
        }
        let before = env.clock.elapsed();
        let report = put(&author, &noise(1, CONTENT_BYTES)).await.unwrap();
        assert!(!report.full);
        assert_eq!((report.acked, report.wanted), (3, 5), "entries want five, three are left");
        let waited = env.clock.elapsed() - before;
        assert!(waited < Duration::from_secs(60), "{waited:?}");
        assert!(report.stored > 3 * CONTENT_BYTES as u64);
    });
}

#[test]
fn too_few_peers_for_an_acknowledgement_is_an_error_and_nothing_dangles() {
    for (up, fault) in [(0, Fault::Down), (1, Fault::Down), (2, Fault::Hang), (1, Fault::Hang)] {
        time::run(4, |env| async move {
            let net = Net::copying(&env);
            let author = net.user("ada");
            for number in up..9 {
                net.network.set(&net.community.peer(number), fault.clone());
            }
            let before = env.clock.elapsed();
            let error = put(&author, &noise(1, CONTENT_BYTES)).await.unwrap_err();
            assert!(matches!(error, AuthorError::Store { .. }), "{error:?}");
            assert_eq!(error.class(), Class::Unavailable, "{error:?}");
            let took = env.clock.elapsed() - before;
            assert!(took < Duration::from_secs(200), "{up} {fault:?}: {took:?}");
            assert!(net.shared.log.borrow().is_empty(), "no envelope was stored");
            assert_eq!(author.window_bytes().0, 0, "every lease is given back");
        });
    }
}

#[test]
fn all_full_is_busy_and_denied_is_denied() {
    let cases = [
        (CallError::Full, Class::Busy),
        (CallError::Denied { reason: "a stranger".to_owned() }, Class::Denied),
    ];
    for (error, class) in cases {
        time::run(5, |env| async move {
            let net = Net::new(&env, 3, 9, Suite::Holdfast1);
            let author = net.user("ada");
            for peer in &net.peers {
                net.network.set(&peer.id, Fault::Error(error.clone()));
            }
            assert_eq!(put(&author, b"x").await.unwrap_err().class(), class);
        });
    }
}

#[test]
fn a_network_of_nobody_says_so() {
    time::run(6, |env| async move {
        let net = Net::new(&env, 1, 0, Suite::Holdfast1);
        let author = net.user("ada");
        assert_eq!(put(&author, b"x").await.unwrap_err().class(), Class::Unavailable);
        let (_, got) = try_get(&author, crypto::RecordId::new([1; 32])).await;
        assert_eq!(got.unwrap_err().class(), Class::Unavailable);
    });
}

#[test]
fn a_lost_page_is_an_error_that_names_it() {
    time::run(7, |env| async move {
        let net = Net::copying(&env);
        let author = net.user("ada");
        let report = put(&author, &noise(1, CONTENT_BYTES)).await.unwrap();
        let info = author.info(report.address).await.unwrap();
        let lost = info.fragments.iter().find(|fragment| fragment.index == Some(1)).unwrap().id;
        assert!(net.peers.iter().filter(|peer| peer.memory.lose(&lost)).count() > 0);
        let (_, got) = try_get(&author, report.address).await;
        let error = got.unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.class()),
            ("cannot fetch page 1", Class::NotFound)
        );
        let info = author.info(report.address).await.unwrap();
        let fragment = info.fragments.iter().find(|fragment| fragment.id == lost).unwrap();
        assert_eq!(fragment.holders.len(), 3);
        assert!(fragment.holders.iter().all(|holder| holder.reachable && !holder.held));
    });
}

#[test]
fn a_put_waits_as_long_as_it_is_told_to_for_a_copy_that_is_late() {
    for (seconds, full) in [(2, false), (20, true)] {
        time::run(9, |env| async move {
            let net = Net::new(&env, 3, 5, Suite::Holdfast1);
            let author = net.user("ada");
            put(&author, b"they know each other").await.unwrap();
            net.network.set(&net.peers[2].id, Fault::Delay(Duration::from_secs(4)));
            let full_wait = Some(Duration::from_secs(seconds));
            let options = PutOptions { full_wait, ..PutOptions::default() };
            let report = author.put(&b"a letter"[..], options, Arc::new(NoProgress)).await.unwrap();
            let acked = if full { 3 } else { 2 };
            assert_eq!((report.full, report.acked, report.wanted), (full, acked, 3));
        });
    }
}

/// Waits for late copies until so much time has passed since all was acknowledged.
struct WaitsFor(Env, Duration);

impl Progress for WaitsFor {
    fn acknowledged(&self) -> BoxFuture<'static, ()> {
        let Self(env, wait) = self;
        let (env, wait) = (env.clone(), *wait);
        Box::pin(async move { env.clock.sleep(wait).await })
    }
}

#[test]
fn the_wait_for_a_copy_that_is_late_ends_when_it_is_enough() {
    for (wait_s, full) in [(1, false), (10, true)] {
        time::run(9, |env| async move {
            let net = Net::new(&env, 3, 5, Suite::Holdfast1);
            let author = net.user("ada");
            put(&author, b"they know each other").await.unwrap();
            net.network.set(&net.peers[2].id, Fault::Delay(Duration::from_secs(4)));
            let full_wait = Some(Duration::from_secs(20));
            let options = PutOptions { full_wait, ..PutOptions::default() };
            let progress = Arc::new(WaitsFor(env, Duration::from_secs(wait_s)));
            let report = author.put(&b"a letter"[..], options, progress).await.unwrap();
            assert_eq!((report.full, report.wanted), (full, 3));
            net.network.heal();
            let (bytes, got) = try_get(&author, report.address).await;
            got.unwrap();
            assert_eq!(bytes, b"a letter");
        });
    }
}

#[test]
fn info_tells_who_is_down_who_lost_it_and_who_lies() {
    time::run(8, |env| async move {
        let net = Net::copying(&env);
        let author = net.user("ada");
        let report = put(&author, &noise(1, 1 << 20)).await.unwrap();
        let page = author.info(report.address).await.unwrap().fragments[2].clone();
        let peers: Vec<_> = page.holders.iter().map(|holder| holder.peer).collect();
        let held = async || {
            let info = author.info(report.address).await.unwrap();
            let page = &info.fragments[2];
            let near = page.holders.iter().filter(|holder| peers.contains(&holder.peer));
            near.map(|holder| (holder.reachable, holder.held)).collect::<Vec<_>>()
        };
        assert_eq!(held().await, [(true, true); 3]);
        net.network.set(&peers[0], Fault::Down);
        assert_eq!(held().await, [(false, false), (true, true), (true, true)]);
        net.network.set(&peers[0], Fault::Garbage);
        assert_eq!(held().await, [(true, false), (true, true), (true, true)]);
        net.network.heal();
        let second = net.peers.iter().find(|peer| peer.id == peers[1]).unwrap();
        second.memory.lose(&page.id);
        assert_eq!(held().await, [(true, true), (true, false), (true, true)]);
    });
}
