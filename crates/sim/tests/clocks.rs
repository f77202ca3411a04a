//! A peer whose calendar was wrong is one of the others again soon after it is set right.

use std::time::Duration;

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
