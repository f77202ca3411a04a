//! All members killed with -9 and started again, again and again, while clients work.
//!
//! A client sends the very update again that was not answered, and its next one says from which version and height the head moves.
//! So an update that was certified and lost, or applied twice, ends the experiment at the client's next answer; each client
//! moves its heads once more when the last members run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use env::{Entropy, SystemEntropy};
use serde::Serialize;

use super::client::{Client, Shared, TRIES_KILLED};
use super::member::Members;
use crate::Bench;
use crate::error::BenchError;
use crate::line;

/// Clients with one update each under way, and with a bundle.
const CLIENTS: u32 = 120;
const BUNDLERS: u32 = 4;
const BUNDLE: usize = 50;
/// Updates that are certified after a start before the next kill, and by when.
const BETWEEN: u64 = 200;
const WITHIN: Duration = Duration::from_secs(120);
/// The longest time from then to the kill.
const LATER_MS: u64 = 1_500;

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Killed {
    what: &'static str,
    members: usize,
    kills: u32,
    clients: u32,
    updates: u64,
    seconds: f64,
    /// From a kill of all to [`BETWEEN`] more updates that are certified, the longest, milliseconds.
    longest_ms: u64,
}

fn delay() -> Duration {
    let mut random = [0; 8];
    SystemEntropy.fill(&mut random);
    Duration::from_millis(u64::from_le_bytes(random) % LATER_MS)
}

/// Works until it is told to end, then moves its heads once more.
async fn work(mut client: Client, end: Arc<AtomicBool>) -> Result<(), BenchError> {
    client.begin().await?;
    while !end.load(Ordering::SeqCst) {
        client.turn().await?;
    }
    client.turn().await.map(drop)
}

async fn clients(
    shared: Arc<Shared>,
    places: Vec<SocketAddr>,
    end: Arc<AtomicBool>,
) -> Result<(), BenchError> {
    let lines = line::all(&places).await?;
    let mut all = Vec::new();
    for which in 0..CLIENTS + BUNDLERS {
        let line = lines.get(which as usize % lines.len().max(1));
        let line = line.ok_or(BenchError::Wrong("no members"))?;
        let branches = if which < CLIENTS { 1 } else { BUNDLE };
        let client = Client::new(&shared, line, which, branches)?;
        all.push(work(client, Arc::clone(&end)));
    }
    futures::future::try_join_all(all).await.map(drop)
}

/// Runs it.
pub(super) fn run(bench: &Bench, count: usize, kills: u32) -> Result<Killed, BenchError> {
    let mut members = Members::start(bench, count)?;
    let shared = Shared::new(&members.charter, TRIES_KILLED)?;
    let end = Arc::new(AtomicBool::new(false));
    let working = {
        let (shared, places, end) =
            (Arc::clone(&shared), members.clients.clone(), Arc::clone(&end));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime
                .map_err(BenchError::io("run", "clients"))?
                .block_on(clients(shared, places, end))
        })
    };
    let certified = || shared.certified.load(Ordering::Relaxed);
    let (started, mut longest, mut done) = (Instant::now(), Duration::ZERO, 0);
    let mut killed: Option<Instant> = None;
    // Once more behind the last kill.
    for round in 0..=kills {
        let before = certified();
        bench.stop.until("no updates after a kill", WITHIN, || {
            let on = certified() >= before + BETWEEN || working.is_finished();
            Ok(on.then_some(()))
        })?;
        if working.is_finished() {
            break;
        }
        longest = longest.max(killed.map_or(Duration::ZERO, |at| at.elapsed()));
        if round == kills {
            break;
        }
        bench.stop.sleep(delay())?;
        killed = Some(Instant::now());
        members.kill();
        members.run(bench)?;
        done += 1;
        if round % 10 == 9 {
            bench.tell(format!("killed {} times, {} updates certified", round + 1, certified()));
        }
    }
    end.store(true, Ordering::SeqCst);
    working.join().map_err(|_| BenchError::Wrong("a client that fell"))??;
    let (updates, seconds) = (certified(), started.elapsed().as_secs_f64());
    let longest_ms = longest.as_millis() as u64;
    bench.tell(format!(
        "{count} members killed {done} times while {} clients worked: {updates} updates certified in \
         {seconds:.0} s, none lost, none applied twice; at most {longest_ms} ms until {BETWEEN} more",
        CLIENTS + BUNDLERS
    ));
    let clients = CLIENTS + BUNDLERS;
    Ok(Killed { what: "kills", members: count, kills: done, clients, updates, seconds, longest_ms })
}
