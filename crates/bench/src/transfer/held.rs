//! An author held to one core: how long a put takes it, and how far its memory rises.
//!
//! ```text
//! taskset -c N hold put -   keyring open, at rest | its peak is set back, the content comes | its end
//!                           idle                  | above idle, and the clock               |
//! ```
//! The peers have all cores. What was put is got and compared when the clock stands. *Idle* is the resident size of the process at rest with the keyring open;
//! *above idle* the largest later one without it. A run keeps a part of what opening took (scrypt's 128 MiB) for what it is about
//! to put, and gives it back when nothing comes: idle is what it has then ([`GIVEN_BACK`]). The kernel forgets the peak
//! where `clear_refs` is told so.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::waiting::{Waiting, opened};
use super::{TRANSFER_LIMIT, content, settle};
use crate::community::{Community, Home};
use crate::error::BenchError;
use crate::percentiles::largest;
use crate::process;
use crate::program::Run;
use crate::report::{Bar, Report};
use crate::{Bench, size};

/// The most that it may take of the clock, and of memory, for what the promise is about: 100 MB.
const SECONDS_MAX: f64 = 1.0;
const ABOVE_IDLE_MAX_MIB: f64 = 64.0;
const MIB: f64 = (1 << 20) as f64;
/// Behind this a run that waits for its input has given back what it kept.
const GIVEN_BACK: Duration = Duration::from_secs(25);

/// One put.
#[derive(Clone, Copy, Debug, Serialize)]
struct Went {
    work: &'static str,
    bytes: u64,
    seconds: f64,
    author_cpu_s: f64,
    idle_mib: f64,
    above_idle_mib: f64,
}

/// Measures so many puts of so many bytes; the middle time counts, and the largest size.
pub(super) fn run(
    bench: &Bench,
    community: &Community,
    home: &Home,
    (bytes, tries): (u64, usize),
    report: &mut Report,
) -> Result<(), BenchError> {
    let file = community.path().join("held");
    content::write(&file, bytes, &bench.stop)?;
    let mut went = Vec::new();
    for _ in 0..tries {
        settle(bench, community)?;
        let (one, address) = put(bench, community, home, (&file, bytes))?;
        read_back(bench, community, home, (&file, &address))?;
        bench.tell(format!(
            "put {} on one core: {:.2} s, {:.1} MiB above idle ({:.1} MiB)",
            size::text(bytes),
            one.seconds,
            one.above_idle_mib,
            one.idle_mib
        ));
        report.run(&one)?;
        went.push(one);
    }
    went.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let seconds = went.get(went.len() / 2).map_or(f64::NAN, |one| one.seconds);
    let above = largest(went.iter().map(|one| one.above_idle_mib));
    let what = format!("put {} on one core", size::text(bytes));
    report.bars.push(Bar::at_most(format!("{what}, seconds"), seconds, SECONDS_MAX));
    report.bars.push(Bar::at_most(format!("{what}, MiB above idle"), above, ABOVE_IDLE_MAX_MIB));
    Ok(())
}

fn put(
    bench: &Bench,
    community: &Community,
    home: &Home,
    (file, bytes): (&Path, u64),
) -> Result<(Went, String), BenchError> {
    let command = home.command(&community.program, ["put", "-", "--json"]);
    let waiting = Waiting::start(held(&command, process::first_core().unwrap_or(0)))?;
    let pid = waiting.pid();
    opened(bench, &[pid])?;
    if !bench.quick {
        bench.stop.sleep(GIVEN_BACK)?;
    }
    let (idle, cpu) = (process::resident(pid), process::cpu(pid));
    process::forget_peak(pid).map_err(BenchError::io("set back the peak of", "the author"))?;
    let (mut peak, mut used, started) = (idle, cpu, Instant::now());
    let answer = std::thread::scope(|scope| {
        let feeding = scope.spawn(|| waiting.feed(bench, file, (0, bytes)));
        bench.stop.until("a put did not end", TRANSFER_LIMIT, || {
            peak = process::peak_memory(pid).max(peak);
            used = process::cpu(pid).max(used);
            Ok(feeding.is_finished().then_some(()))
        })?;
        feeding.join().unwrap_or(Err(BenchError::Interrupted))
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let mib = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64 / MIB);
    let author_cpu_s = used.zip(cpu).map_or(f64::NAN, |(used, cpu)| (used - cpu).as_secs_f64());
    let (idle_mib, above_idle_mib) = (mib(idle), mib(peak) - mib(idle));
    let went =
        Went { work: "put on one core", bytes, seconds, author_cpu_s, idle_mib, above_idle_mib };
    Ok((went, answer["address"].as_str().unwrap_or_default().to_owned()))
}

/// Gets it, by an author that has all cores, and compares it with what went in.
fn read_back(
    bench: &Bench,
    community: &Community,
    home: &Home,
    (file, address): (&Path, &str),
) -> Result<(), BenchError> {
    let out = community.path().join("held-out");
    let mut command = home.command(&community.program, ["get", "--json", address, "-o"]);
    Run::start(command.arg(&out))?.finish(TRANSFER_LIMIT, &bench.stop)?;
    content::same(file, &out, &bench.stop)?;
    std::fs::remove_file(&out).map_err(BenchError::io("remove", &out))
}

/// The command under `taskset`, which becomes it.
fn held(command: &Command, core: usize) -> Command {
    let mut held = Command::new("taskset");
    held.args(["-c", &core.to_string()]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => held.env(name, value),
            None => held.env_remove(name),
        };
    }
    held.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    held
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_command_is_held_to_its_core() {
        let core = process::first_core().unwrap();
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]).env("LC_ALL", "C");
        let told = held(&command, core).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        assert_eq!(told.split_whitespace().nth(1), Some(core.to_string().as_str()), "{told}");
    }
}
