//! Q2: an acknowledged put survives any W-1 losses and, once full, any N-1; power cuts of all peers lose nothing.
//!
//! Three looks at it: at each restart every record that the peer acknowledged is there (`check_kept` in the world); at each
//! answer W holders had acknowledged every record (`check_acknowledged` in the workload); and here, at the end, peers are taken
//! away for good and everything is read again from the others.

use std::collections::BTreeSet;

use crate::chance::Chance;
use crate::check::bytes;
use crate::world::World;

/// Peers whose loss every acknowledged content survives: the least W is 2.
const LOST_ACKNOWLEDGED: usize = 1;
/// Peers whose loss every content that is full survives: the least N is 3.
const LOST_FULL: usize = 2;
/// Contents read after each loss.
const READ_MAX: usize = 6;

/// Takes peers away and reads what must survive it.
pub async fn check(world: &World) {
    check_disks(world).await;
    let mut chance = Chance::new(world.seed, "losses");
    // The victim lost some of its copies already: it is one of the losses.
    let mut lost: BTreeSet<usize> = world.plan.victim.into_iter().collect();
    for (losses, full_only) in [(LOST_ACKNOWLEDGED, false), (LOST_FULL, true)] {
        while lost.len() < losses {
            lost.insert(chance.index(world.plan.peers));
        }
        for number in &lost {
            world.kill_peer(*number);
        }
        world.history.event(format!("peers {lost:?} are lost"));
        read_some(world, &mut chance, full_only).await;
    }
}

/// Every record that a peer acknowledged reads well from its disk.
async fn check_disks(world: &World) {
    for number in 0..world.plan.peers {
        let running = world.peers()[number].running.clone();
        let Some(running) = running.filter(|_| world.plan.victim != Some(number)) else { continue };
        let kept = world.history.lock().acknowledged.get(&number).cloned().unwrap_or_default();
        for id in kept {
            use store::RecordStore;
            if !matches!(running.store.get(&id).await, Ok(Some(_))) {
                world.history.find("Q2", format!("peer {number} acknowledged {id} and lost it"));
            }
        }
    }
}

async fn read_some(world: &World, chance: &mut Chance, full_only: bool) {
    for number in 0..world.plan.authors {
        world.leave_author(number);
        let running = world.author(number).await;
        let mut own: Vec<_> = {
            let history = world.history.lock();
            let contents = history.contents.iter().enumerate();
            let wanted = contents
                .filter(|(_, one)| one.author == number && (one.full || !full_only))
                .map(|(at, one)| (at, one.address));
            wanted.collect()
        };
        while own.len() > READ_MAX {
            own.swap_remove(chance.index(own.len()));
        }
        for (at, address) in own {
            if let Some(Err(error)) = world.read(number, &running, at, address, None).await {
                let what = format!("content {at} is lost with peers: {}", bytes::text(&error));
                world.history.find("Q2", what);
            }
        }
    }
}
