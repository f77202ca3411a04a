//! Runs of `hold put -` that have opened their keyrings and wait for their input.
//!
//! Opening a keyring takes memory and processor time that are no part of a transfer. A run that reads
//! a pipe can be given time for it: where it is at rest, and has used what opening takes, it waits.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::TRANSFER_LIMIT;
use crate::Bench;
use crate::error::BenchError;
use crate::full::is_full;
use crate::process::{self, Pid};
use crate::program::Run;

/// How long runs may take to open their keyrings, together.
const OPEN_LIMIT: Duration = Duration::from_secs(300);
/// How long a run must have been at rest to be waiting for its input.
const REST: Duration = Duration::from_millis(300);
/// Processor time that opening a keyring takes at least.
const OPENING_MIN: Duration = Duration::from_millis(20);

/// A run that waits for its input.
pub(super) struct Waiting {
    run: Run,
    stdin: Option<ChildStdin>,
}

impl Waiting {
    /// Starts it with a pipe as its input.
    pub(super) fn start(mut command: Command) -> Result<Self, BenchError> {
        let mut stdin = None;
        let run = Run::start_taking(command.stdin(Stdio::piped()), |child| {
            stdin = child.stdin.take();
        })?;
        Ok(Self { run, stdin })
    }

    pub(super) fn pid(&self) -> Pid {
        self.run.pid()
    }

    /// Gives it its part and waits for its end, when all of it must be stored: what it answered.
    pub(super) fn feed(
        mut self,
        bench: &Bench,
        file: &Path,
        (from, length): (u64, u64),
    ) -> Result<Value, BenchError> {
        let failed = || BenchError::io("read", file);
        let mut file = File::open(file).map_err(failed())?;
        file.seek(SeekFrom::Start(from)).map_err(failed())?;
        if let Some(mut stdin) = self.stdin.take() {
            // Where it does not take all it ended, and its end says why.
            let _ = std::io::copy(&mut file.take(length), &mut stdin);
        }
        let object = self.run.finish(TRANSFER_LIMIT, &bench.stop)?.object()?;
        if object["bytes"].as_u64() != Some(length) {
            return Err(BenchError::Wrong("another number of bytes was stored"));
        }
        is_full(&object)?;
        Ok(object)
    }
}

/// Waits until each run has opened its keyring and is at rest: then it waits for its input.
pub(super) fn opened(bench: &Bench, pids: &[Pid]) -> Result<(), BenchError> {
    let look = || pids.iter().map(|pid| process::cpu(*pid)).collect::<Option<Vec<_>>>();
    let mut before = look();
    let mut since = Instant::now();
    bench.stop.until("runs did not open their keyrings", OPEN_LIMIT, || {
        if since.elapsed() < REST {
            return Ok(None);
        }
        let now = look();
        let rest = now == before
            && now.as_ref().is_some_and(|all| all.iter().all(|cpu| *cpu >= OPENING_MIN));
        // One that ended is told by its own end.
        let rest = rest || now.is_none();
        (before, since) = (now, Instant::now());
        Ok(rest.then_some(()))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn who_ended_is_not_waited_for() {
        let bench = Bench {
            program: "hold".into(),
            dir: None,
            quick: true,
            stop: crate::Stop::default(),
            tell: Box::new(|_| ()),
        };
        opened(&bench, &[u32::MAX - 1]).unwrap();
    }
}
