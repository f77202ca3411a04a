//! Q6: when faults stop, everything pending finishes: all peers see each other, every publication is in every log, every
//! acknowledged content can be read by all who may, and every share is in its reader's inbox.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use crypto::RecordId;
use document::Publication;
use walk::Health;

use crate::check::bytes::text;
use crate::world::{Running, World};

/// How long the network may take to be whole again: back-offs end after half a minute, logs are compared once a minute with one
/// other peer.
pub const WHOLE_WITHIN: Duration = Duration::from_secs(1800);
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// More than a log has in one run.
const ROWS_MAX: usize = 100_000;

/// Waits for the network to be whole, then reads everything.
pub async fn check(world: &World) {
    let began = world.env.clock.elapsed();
    let mut decoded = Decoded::new();
    loop {
        let lacks = lacks(world, &mut decoded).await;
        if lacks.is_empty() {
            break;
        }
        if world.env.clock.elapsed() - began > WHOLE_WITHIN {
            lacks.into_iter().take(4).for_each(|what| world.history.find("Q6", what));
            break;
        }
        world.env.clock.sleep(LOOK_EVERY).await;
    }
    world.history.event("the network is whole");
    for number in 0..world.plan.authors {
        read_all(world, number).await;
    }
}

/// Envelopes by the rows that tell of them: all logs have the same rows, and they are looked at again and again.
type Decoded = BTreeMap<Bytes, Option<RecordId>>;

/// What keeps the network from being whole.
async fn lacks(world: &World, decoded: &mut Decoded) -> Vec<String> {
    let running: Vec<Option<Running>> =
        world.peers().iter().map(|peer| peer.running.clone()).collect();
    let told: BTreeSet<RecordId> = {
        let history = world.history.lock();
        let contents = history.contents.iter();
        contents
            .flat_map(|content| {
                let shared = content.shared.iter().map(|(_, address)| *address);
                shared.chain([content.address])
            })
            .collect()
    };
    let mut lacks = Vec::new();
    for (number, peer) in running.iter().enumerate() {
        let Some(Running { librarian, .. }) = peer else {
            lacks.push(format!("peer {number} does not run"));
            continue;
        };
        let peers = librarian.directory().peers();
        let well = peers
            .iter()
            .filter(|status| status.peer != librarian.peer() && status.health == Health::Healthy);
        let well = well.count() + 1;
        if well < world.plan.peers {
            lacks.push(format!("peer {number} sees {well} of {} peers", world.plan.peers));
            continue;
        }
        let journal = librarian.journal();
        let rows = match journal.read(journal.start(), ROWS_MAX).await {
            Ok(rows) => rows,
            Err(error) => {
                lacks.push(format!("the log of peer {number} cannot be read: {error}"));
                continue;
            }
        };
        let logged = rows.into_iter().filter_map(|(.., row)| {
            let envelope = || Publication::decode(&row).ok().map(|one| one.envelope);
            *decoded.entry(row.clone()).or_insert_with(envelope)
        });
        let logged: BTreeSet<RecordId> = logged.collect();
        let missing = told.difference(&logged).count();
        if missing > 0 {
            lacks.push(format!("the log of peer {number} lacks {missing} of {}", told.len()));
        }
    }
    lacks
}

/// Everything that an author may read is read.
async fn read_all(world: &World, number: usize) {
    world.kill_author(number);
    let running = world.author(number).await;
    for (at, address) in world.readable(number) {
        match world.read(number, &running, at, address, None).await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                let what = format!("content {at} cannot be read: {}", text(&error));
                world.history.find("Q2", what);
            }
            None => world.history.find("Q6", format!("content {at} gave no answer")),
        }
    }
    let inbox: BTreeSet<RecordId> = world.inbox(number, &running).await.into_iter().collect();
    let history = world.history.lock();
    let shared = history.contents.iter().flat_map(|content| content.shared.iter());
    let to_us = shared.filter(|(reader, _)| *reader == number);
    let missing = to_us.filter(|(_, address)| !inbox.contains(address)).count();
    drop(history);
    if missing > 0 {
        world.history.find("Q6", format!("{missing} shares are not in the inbox of {number}"));
    }
}
