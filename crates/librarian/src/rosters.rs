//! Who takes part, as it changes while the peer runs: what a newer roster ends, and that the others hear of it.
//!
//! A roster comes by news, in an answer to an introduction, offered by a caller, or from the peer's directory. The
//! directory of peers takes it, and from then on who left is a stranger: every look at a standing asks the newest
//! roster. What is left to do follows here: subscriptions end, links are closed, and the roster is told on,
//! once by each peer that learns it.
//!
//! A peer that hears of a roster beyond the next one asks others for those between at once.

use std::sync::Arc;
use std::time::Duration;

use crypto::Roster;
use overlay::News;
use tokio::sync::broadcast;
use walk::{Departures, Health};

use crate::core::Core;
use crate::spread;

/// Peers that are asked for missing rosters, one after the other.
const ASKED_MAX: usize = 4;
/// Between two rounds of asking.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Ends what departures end, until the peer stops.
pub(crate) async fn follow_departures(
    core: Arc<Core>,
    mut departures: broadcast::Receiver<Departures>,
) {
    // One that was taken just before a crash may be news to the others.
    core.tell_roster().await;
    loop {
        let departed = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            departed = departures.recv() => departed,
        };
        match departed {
            Ok(Departures::Roster { roster, peers }) => {
                core.end_peers(&peers);
                core.roster_changed(&roster).await;
            }
            Ok(Departures::Revoked { keys, peers }) => {
                core.end_keys(&keys);
                core.end_peers(&peers);
            }
            Err(broadcast::error::RecvError::Lagged(_)) => {
                core.roster_changed(&core.directory.roster()).await;
            }
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// Asks others for rosters whenever somebody showed that this peer lacks some, until it stops.
pub(crate) async fn catch_up_rosters(core: Arc<Core>) {
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = core.behind.notified() => {}
        }
        let before = core.directory.roster();
        let peers = core.directory.peers().into_iter();
        let well = peers.filter(|one| one.peer != core.own && one.health == Health::Healthy);
        let mut well: Vec<_> = well.map(|status| status.peer).collect();
        for _ in 0..ASKED_MAX {
            let Some(peer) = core.pick(&well) else { break };
            well.retain(|other| *other != peer);
            let Some(to) = core.directory.endpoint(&peer) else { continue };
            let asked = tokio::select! {
                biased;
                () = core.stop.cancelled() => return,
                asked = core.walker.introduce(&to) => asked,
            };
            if asked.is_ok() && core.directory.roster().hash() != before.hash() {
                break;
            }
        }
        if !core.pause(ASK_EVERY).await {
            return;
        }
    }
}

impl Core {
    /// Ends what callers of organisations that left have here, and tells the others of the roster.
    async fn roster_changed(&self, roster: &Roster) {
        let left = self.standings.unlisted(roster, self.env.clock.unix_s());
        self.end_keys(&left);
        self.tell_roster().await;
    }

    async fn tell_roster(&self) {
        if let Some(bytes) = self.directory.newest_roster() {
            spread::publish_once(self.overlay.as_ref(), News::Roster(bytes)).await;
        }
    }
}
