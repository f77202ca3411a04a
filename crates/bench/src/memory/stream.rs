//! A stream of any length through `hold put -` and `hold get -o -`, and the peaks it leaves.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Bench;
use crate::community::{Community, Home};
use crate::error::BenchError;
use crate::full::is_full;
use crate::process::{self, Pid};
use crate::program::Run;
use crate::seeded::Seeded;

/// What stands in the pipe at a time.
const BLOCK: usize = 1 << 20;
/// How often the peak is looked at; it only grows, so this matters at the end alone.
const LOOK_EVERY: u64 = 16;
const STREAM_LIMIT: Duration = Duration::from_secs(4 * 3600);
const SEED: u64 = 9;

/// How a stream went.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Streamed {
    work: &'static str,
    bytes: u64,
    seconds: f64,
    mb_s: f64,
    /// Largest resident sizes so far, in bytes.
    pub(super) author_peak: Option<u64>,
    pub(super) peer_peak: Option<u64>,
}

impl Streamed {
    fn new(
        work: &'static str,
        bytes: u64,
        started: Instant,
        author_peak: Option<u64>,
        community: &Community,
    ) -> Self {
        let seconds = started.elapsed().as_secs_f64();
        let peer_peak = community.pids().filter_map(process::peak_memory).max();
        let mb_s = bytes as f64 / 1e6 / seconds;
        Self { work, bytes, seconds, mb_s, author_peak, peer_peak }
    }
}

/// The lengths of the stream's blocks.
fn blocks(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let last = bytes.div_ceil(BLOCK as u64);
    (0..last).map(move |number| {
        let left = bytes - number * BLOCK as u64;
        (number, left.min(BLOCK as u64) as usize)
    })
}

/// The larger of the peak so far and the one now; a process that just ended keeps its last.
fn peak(pid: Pid, so_far: Option<u64>) -> Option<u64> {
    process::peak_memory(pid).max(so_far)
}

/// Puts the stream; what it left, and its address.
pub(super) fn put(
    bench: &Bench,
    community: &Community,
    home: &Home,
    bytes: u64,
) -> Result<(Streamed, String), BenchError> {
    let mut command = home.command(&community.program, ["put", "-", "--json"]);
    let started = Instant::now();
    let mut stdin = None;
    let run = Run::start_taking(command.stdin(Stdio::piped()), |child| {
        stdin = child.stdin.take();
    })?;
    let (pid, mut author) = (run.pid(), None);
    if let Some(mut stdin) = stdin {
        let (mut seeded, mut block) = (Seeded::new(SEED), vec![0; BLOCK]);
        for (number, length) in blocks(bytes) {
            bench.stop.check()?;
            seeded.fill(&mut block);
            if stdin.write_all(&block[..length]).is_err() {
                // It ended: why is told by its end.
                break;
            }
            if number % LOOK_EVERY == 0 {
                author = peak(pid, author);
            }
        }
    }
    let mut run = run;
    bench.stop.until("a stream did not end", STREAM_LIMIT, || {
        author = peak(pid, author);
        run.ended()
    })?;
    let object = run.finish(STREAM_LIMIT, &bench.stop)?.object()?;
    is_full(&object)?;
    if object["bytes"].as_u64() != Some(bytes) {
        return Err(BenchError::Wrong("another number of bytes was stored"));
    }
    let address = object["address"].as_str().unwrap_or_default().to_owned();
    Ok((Streamed::new("put", bytes, started, author, community), address))
}

/// Gets the stream and compares it on the way.
pub(super) fn get(
    bench: &Bench,
    community: &Community,
    home: &Home,
    address: &str,
    bytes: u64,
) -> Result<Streamed, BenchError> {
    let mut command = home.command(&community.program, ["get", address, "--json", "-o", "-"]);
    let started = Instant::now();
    let mut stdout = None;
    let run = Run::start_taking(&mut command, |child| stdout = child.stdout.take())?;
    let (pid, mut author, mut whole) = (run.pid(), None, true);
    if let Some(mut stdout) = stdout {
        let (mut seeded, mut block, mut got) = (Seeded::new(SEED), vec![0; BLOCK], vec![0; BLOCK]);
        for (number, length) in blocks(bytes) {
            bench.stop.check()?;
            seeded.fill(&mut block);
            whole = stdout.read_exact(&mut got[..length]).is_ok();
            if !whole {
                break;
            }
            if got[..length] != block[..length] {
                return Err(BenchError::Wrong("the stream's bytes differ"));
            }
            if number % LOOK_EVERY == 0 || number + 8 > bytes / BLOCK as u64 {
                author = peak(pid, author);
            }
        }
        whole &= matches!(stdout.read(&mut got), Ok(0));
    }
    // A run that failed says why; one that ended well has given all, and nothing more.
    run.finish(STREAM_LIMIT, &bench.stop)?.diverted()?;
    if !whole {
        return Err(BenchError::Wrong("the stream has another length"));
    }
    Ok(Streamed::new("get", bytes, started, author, community))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_the_stream() {
        for bytes in [1, 5, BLOCK as u64, BLOCK as u64 + 1, 3 * BLOCK as u64] {
            let sum: u64 = blocks(bytes).map(|(_, length)| length as u64).sum();
            assert_eq!(sum, bytes);
        }
    }
}
