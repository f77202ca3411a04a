//! Q6: when faults stop, everything pending finishes: all peers see each other and take writes, every publication is in every
//! log, every acknowledged content can be read by all who may, every share is in its reader's inbox, and what is put then gets
//! all its copies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use author::PutOptions;
use bytes::Bytes;
use crypto::RecordId;
use document::Publication;
use librarian::Librarian;
use placement::{PAGE_COPIES, Profile};
use walk::Health;

use crate::chance::Chance;
use crate::check::bytes::text;
use crate::world::{Running, World};

/// How long the network may take to be whole again: back-offs end after half a minute, logs are compared once a minute with one
/// other peer.
pub const WHOLE_WITHIN: Duration = Duration::from_secs(1800);
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long after that a put may still find a holder that takes nothing: back-offs end after half a minute.
pub const FULL_WITHIN: Duration = Duration::from_secs(120);
/// A content that is put then: more than an entry takes, so that its page has holders too.
const LAST_BYTES: usize = 20_000;
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
    for number in 0..world.plan.authors {
        put_in_full(world, number).await;
    }
}

/// What an author puts once all trouble is over gets all its copies, and soon.
pub(crate) async fn put_in_full(world: &World, number: usize) {
    let began = world.env.clock.elapsed();
    let mut chance = Chance::new(world.seed, &format!("last put of author {number}"));
    loop {
        let profile = Some(Profile::Copies(PAGE_COPIES));
        let options = PutOptions { profile, ..PutOptions::default() };
        let putting = world.put_kept(number, LAST_BYTES, options, &[], &mut chance);
        let put = Box::pin(putting).await;
        let reached = put.map(|put| (put.report.acked, put.report.wanted, put.report.full));
        if let Some((.., true)) = reached {
            return world.history.tally("put in full at the end");
        }
        if world.env.clock.elapsed() - began > FULL_WITHIN {
            let reached = reached.map_or("nothing".to_owned(), |(acked, wanted, _)| {
                format!("{acked} of {wanted} copies")
            });
            let what = format!("all trouble is over and a put of author {number} gets {reached}");
            return world.history.find("Q6", what);
        }
        world.env.clock.sleep(LOOK_EVERY).await;
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
        lacks.extend(refuses(number, librarian));
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

/// That a peer takes no writes, where it does not, though nobody told it to leave.
pub(crate) fn refuses(number: usize, librarian: &Librarian) -> Option<String> {
    let status = librarian.status();
    if status.state == "leaving" {
        return None;
    }
    let why = status.read_only.or((status.state != "serving").then_some(status.state))?;
    Some(format!("peer {number} takes no writes: {why}"))
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
