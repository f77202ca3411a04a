//! A peer whose calendar was wrong is one of the others again soon after it is set right.

use std::time::Duration;

use crypto::Announcement;
use env::calls::Credential;
use sim::{History, Needle, World};
use walk::Health;

/// Some of a peer's looks at itself, and of the others' at it.
const SOON: Duration = Duration::from_secs(120);

#[test]
fn a_peer_that_was_started_while_its_calendar_was_behind_is_known_again_once_it_is_right() {
    testkit::time::run(1, |env| async move {
        let history = History::new(env.clock.clone(), Needle::new(1), false);
        let world = World::new(env.clone(), 1, history, None);
        for number in 0..world.plan.peers {
            world.start_peer(number).await;
        }
        env.clock.sleep(SOON).await;
        // It stops, says so, and comes back minutes before that.
        world.stop_peer(1).await;
        world.peers()[1].clock.set(-200_000);
        world.start_peer(1).await;
        env.clock.sleep(SOON / 4).await;
        world.peers()[1].clock.set(0);
        env.clock.sleep(SOON).await;
        let stopped = world.community.peer(1);
        for number in (0..world.plan.peers).filter(|number| *number != 1) {
            let running = world.peers()[number].running.clone().expect("it runs");
            let health = running.librarian.directory().health(&stopped);
            assert_eq!(health, Health::Healthy, "as peer {number} sees it");
        }
        world.end();
    });
}

#[test]
fn a_peer_that_was_started_while_its_calendar_was_ahead_is_taken_by_newcomers_once_it_is_right() {
    testkit::time::run(2, |env| async move {
        let history = History::new(env.clock.clone(), Needle::new(2), false);
        let world = World::new(env.clone(), 2, history, None);
        world.peers()[0].clock.set(300_000);
        for number in 0..world.plan.peers {
            world.start_peer(number).await;
        }
        let announced = || {
            let running = world.peers()[0].running.clone().expect("it runs");
            let Credential::Peer(bytes) = running.librarian.credential() else { panic!("a peer") };
            Announcement::verify(&bytes, &world.community.genesis, env.clock.unix_s())
        };
        env.clock.sleep(SOON / 4).await;
        assert!(announced().is_err(), "it comes from the future");
        world.peers()[0].clock.set(0);
        env.clock.sleep(SOON / 4).await;
        assert!(announced().is_ok());
        world.end();
    });
}
