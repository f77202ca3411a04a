//! Q2: an acknowledged put survives any W-1 losses of copies and any s-k of fragments, once full any N-1 and n-k; power cuts of all
//! peers lose nothing.
//!
//! Three looks at it: at each restart every record that the peer acknowledged is there (`check_kept` in the world); at each
//! answer as many had acknowledged as it takes, of each stripe on peers of their own ([`super::answers`]); and here, at
//! the end, peers are taken away for good, one after the other, the holders of one of the contents first, and what must survive so
//! many losses is read again from the others.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::chance::Chance;
use crate::check::bytes;
use crate::history::Content;
use crate::world::World;

/// How long after their calendars are set right peers may take to be known to all again.
const CLOCKS_SET: Duration = Duration::from_secs(60);
/// Contents of one author that are read after each loss.
const READ_MAX: usize = 4;

/// How many losses a content must survive.
fn survives(content: &Content) -> usize {
    if content.full { content.promise.full } else { content.promise.answered }
}

/// Takes peers away and reads what must survive it.
pub async fn check(world: &World) {
    check_disks(world).await;
    // Who starts anew does not believe a peer whose calendar is minutes off, and soon only such may be left.
    world.peers().iter().for_each(|slot| slot.clock.set(0));
    world.env.clock.sleep(CLOCKS_SET).await;
    let mut chance = Chance::new(world.seed, "losses");
    // The victim lost some of its copies already: it is one of the losses.
    let mut lost: BTreeSet<usize> = world.plan.victim.into_iter().collect();
    lost.iter().for_each(|number| world.kill_peer(*number));
    for losses in 1.. {
        let mut holders = {
            let history = world.history.lock();
            let mut left: Vec<&Content> = history.contents.iter().collect();
            left.retain(|content| survives(content) >= losses);
            if left.is_empty() {
                return;
            }
            left[chance.index(left.len())].promise.holders.clone().into_iter()
        };
        while lost.len() < losses.min(world.plan.peers) {
            let number = holders.next().unwrap_or_else(|| chance.index(world.plan.peers));
            lost.insert(number);
            world.kill_peer(number);
        }
        world.history.event(format!("peers {lost:?} are lost"));
        world.history.tally(LOSSES[losses.min(LOSSES.len()) - 1]);
        read_some(world, &mut chance, losses).await;
    }
}

/// What a tally calls so many losses.
const LOSSES: [&str; 4] =
    ["losses: one, and all is read", "losses: two", "losses: three", "losses: four and more"];

/// Every record that a peer acknowledged reads well from its disk.
async fn check_disks(world: &World) {
    for number in 0..world.plan.peers {
        let running = world.peers()[number].running.clone();
        let Some(running) = running.filter(|_| world.plan.victim != Some(number)) else { continue };
        let kept = world.history.lock().acknowledged.get(&number).cloned().unwrap_or_default();
        for id in kept.into_keys() {
            use store::RecordStore;
            if !matches!(running.store.get(&id).await, Ok(Some(_))) {
                world.history.find("Q2", format!("peer {number} acknowledged {id} and lost it"));
            }
        }
    }
}

async fn read_some(world: &World, chance: &mut Chance, losses: usize) {
    for number in 0..world.plan.authors {
        world.leave_author(number);
        let running = world.author(number).await;
        let mut own: Vec<_> = {
            let history = world.history.lock();
            let contents = history.contents.iter().enumerate();
            let wanted = contents
                .filter(|(_, one)| one.author == number && survives(one) >= losses)
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
