//! Whom a writer can reach, and what it waits for where they are few: certificates for peers that never run end no writing.

use std::time::Duration;

use crypto::PeerState;
use document::Kind;
use env::Env;
use env::calls::CallError;
use placement::Redundancy;
use testkit::network::{Fault, community, key};
use testkit::time::run;
use walk::{AWAY_AFTER, CALL_LIMIT, Directory, UNHEARD_PAUSE, WalkOptions, Walker};

use super::{LONG, Stage, small};

/// Four organisations with a peer each that runs, and a fifth with certificates for fourteen that do not.
fn unrun(env: &Env) -> Stage {
    let mut community = community(5, 0);
    for organisation in (0..4).chain([4; 14]) {
        community.admit(organisation, 1 << 40);
    }
    let (network, peers) = community.network(env);
    let directory = Directory::new(community.genesis.clone(), env.clone(), None);
    directory.learn_from(&community.known());
    let calls = network.calls(key("client", 0).public());
    let walker = Walker::new(env.clone(), calls, directory.clone(), WalkOptions::default());
    let stage = Stage { community, network, peers, directory, walker };
    (4..18).for_each(|number| stage.set(number, Fault::Down));
    stage
}

/// Calls to these failed for a minute.
async fn fail(env: &Env, stage: &Stage, numbers: std::ops::Range<usize>) {
    let (address, reason) = ("a".to_owned(), "refused".to_owned());
    let refused = CallError::Unreachable { address, reason };
    for _ in 0..2 {
        for number in numbers.clone() {
            stage.directory.failed(&stage.peer(number), &refused);
        }
        env.clock.sleep(AWAY_AFTER).await;
    }
}

#[test]
fn where_fewer_can_be_reached_than_acknowledge_a_document_so_many_do_as_of_those_alone() {
    run(1, |env| async move {
        let stage = unrun(&env);
        let now = |kind| {
            let Redundancy { copies, acknowledged } = stage.walker.redundancy(kind);
            (copies, acknowledged)
        };
        assert_eq!((now(Kind::Page), now(Kind::Entry)), ((3, 2), (9, 5)));
        let record = small(1);
        let by_all = stage.walker.redundancy(Kind::Entry);
        assert!(stage.walker.store(record.clone(), by_all).await.is_err(), "four of five");
        // Five may be there: nothing changes.
        fail(&env, &stage, 5..18).await;
        assert_eq!(now(Kind::Entry), (9, 5));
        fail(&env, &stage, 4..5).await;
        for kind in [Kind::Entry, Kind::Envelope, Kind::Stripe] {
            assert_eq!(now(kind), (9, 2), "N stays, {kind:?}");
        }
        assert_eq!((now(Kind::Page), now(Kind::Parity)), ((3, 2), (3, 2)));
        // A reader of these asks more than N - W, to meet one that acknowledged.
        for kind in [Kind::Head, Kind::Policy, Kind::Devices, Kind::Object, Kind::Attestation] {
            assert_eq!(now(kind), (9, 5), "{kind:?}");
        }
        let mut stored =
            stage.walker.store(small(2), stage.walker.redundancy(Kind::Entry)).await.unwrap();
        assert!(stored.acked >= 2 && stored.wanted == 9);
        let reached = stored.rest.wait(LONG).await;
        assert_eq!((reached.acked, reached.is_full()), (4, false), "all that are there have it");
        // Where one more comes back it is as before.
        stage.directory.good(&stage.peer(9), Duration::from_millis(1));
        assert_eq!(now(Kind::Entry), (9, 5));
        // What a put asks for by number it gets.
        stage.announce(9, PeerState::ReadOnly, 2);
        assert_eq!(now(Kind::Entry), (9, 2), "it takes nothing");
        let asked = |kind| stage.walker.redundancy_to_put(kind, Some(7)).acknowledged;
        assert_eq!((asked(Kind::Page), asked(Kind::Entry)), (4, 4));
        // Three of them are enough to go by; who reaches two, of two organisations of five, is cut off.
        stage.announce(0, PeerState::Stopped, 2);
        assert_eq!(now(Kind::Entry), (9, 2));
        stage.announce(1, PeerState::Stopped, 2);
        assert_eq!(now(Kind::Entry), (9, 5));
    });
}

#[test]
fn a_program_that_has_just_begun_asks_those_whom_it_never_heard_where_they_decide() {
    run(2, |env| async move {
        let stage = unrun(&env);
        let view = stage.directory.view();
        let unheard = |needed: usize| stage.directory.unheard(&view, needed).len();
        assert_eq!(unheard(5), 0, "it introduced itself to nobody, and knows nothing of anybody");
        assert!(stage.directory.heard(&view, 5).is_none());
        for number in 0..4 {
            let to = stage.directory.endpoint(&stage.peer(number)).unwrap();
            stage.walker.introduce(&to).await.unwrap();
        }
        assert_eq!((unheard(4), unheard(5)), (0, 14), "four answered");
        // Who never answered is asked, and does not count; of those that did not fail it, nobody knows.
        assert_eq!(stage.directory.heard(&view, 5).map(|heard| heard.len()), Some(4));
        assert!(stage.directory.heard(&view, 4).is_none());
        assert!(stage.directory.reached(&view, 5).is_none());
        stage.set(7, Fault::None);
        for number in 4..18 {
            let to = stage.directory.endpoint(&stage.peer(number)).unwrap();
            assert_eq!(stage.walker.introduce(&to).await.is_ok(), number == 7);
        }
        assert!(stage.directory.heard(&view, 5).is_none());
        assert_eq!((unheard(5), unheard(6)), (0, 13));
        // Whom it asked in vain twice it asks no more.
        env.clock.sleep(CALL_LIMIT).await;
        for number in (4..18).filter(|number| *number != 7) {
            let to = stage.directory.endpoint(&stage.peer(number)).unwrap();
            assert!(stage.walker.introduce(&to).await.is_err());
        }
        assert_eq!(unheard(6), 0);
        assert_eq!(stage.directory.heard(&view, 6).map(|heard| heard.len()), Some(5));
    });
}

#[test]
fn where_one_waited_in_vain_nobody_is_asked_again_for_a_while() {
    run(3, |env| async move {
        let stage = unrun(&env);
        let view = stage.directory.view();
        let unheard = || stage.directory.unheard(&view, 5).len();
        for number in 0..4 {
            let to = stage.directory.endpoint(&stage.peer(number)).unwrap();
            stage.walker.introduce(&to).await.unwrap();
        }
        assert_eq!(unheard(), 14);
        stage.directory.asked_in_vain();
        assert_eq!(unheard(), 0);
        assert_eq!(stage.directory.heard(&view, 5).map(|heard| heard.len()), Some(4));
        env.clock.sleep(UNHEARD_PAUSE - Duration::from_secs(1)).await;
        assert_eq!(unheard(), 0);
        env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(unheard(), 14);
    });
}
