//! The two that are compared: a librarian with the door for Redis's clients, and a Redis.
//!
//! Each is a process in a folder of its own, on a free port of loopback, ended with its owner; the folder
//! goes with it.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::Bench;
use crate::community::{Home, first_line};
use crate::error::BenchError;
use crate::folder::Folder;
use crate::ports::Ports;
use crate::process::{self, Pid};
use crate::program::{Program, Run};

/// How long either may take to serve.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Requests a second that a run of the tool makes at least: with fewer it is ended.
const REQUESTS_MIN: u64 = 1_000;
/// The package that has both of Redis's programs.
const PACKAGE: &str = "redis-server";
const SERVER: &str = "redis-server";
const TOOL: &str = "redis-benchmark";

/// How durable what a Redis was told is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// In memory alone.
    Memory,
    /// Appended to a file, which is synced every second.
    EverySecond,
}

/// One that serves.
pub(super) struct Side {
    /// What it is called in tables.
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    // In this order: the process ends before its folder goes.
    run: Run,
    _folder: Folder,
}

impl Side {
    /// A librarian with the door in its process, with these further arguments.
    pub(super) fn door(bench: &Bench, more: &[&str]) -> Result<Self, BenchError> {
        let folder = Folder::new(bench.dir.as_deref())?;
        let program = Program::new(&bench.program);
        let of = |name: &str| folder.path().join(name).display().to_string();
        let (org, network, peer) = (of("org"), of("NET"), of("peer"));
        let listen = format!("127.0.0.1:{}", Ports::new().free()?);
        let makings: [&[&str]; 3] = [
            &["org", "init", "--dir", &org],
            &["network", "init", "--org", &org, "-o", &network],
            &[
                "peer",
                "init",
                "--dir",
                &peer,
                "--network",
                &network,
                "--org",
                &org,
                "--listen",
                &listen,
            ],
        ];
        for args in makings {
            program.ask(args, &bench.stop)?;
        }
        let home = Home::new(folder.path().join("home"), listen);
        let mut keys = home.command(&program, ["keys", "init", "--json", "--network"]);
        Run::start(keys.arg(&network).args(["--org", &org]))?.finish(READY_LIMIT, &bench.stop)?;
        let mut command =
            home.command(&program, ["serve", "redis", "--json", "--listen", "127.0.0.1:0"]);
        command.args(["--peer", &peer]).args(more).stderr(log(folder.path())?);
        let mut line = None;
        let mut run = Run::start_taking(&mut command, |child| line = first_line(child))?;
        let line = bench.stop.until("the door did not open", READY_LIMIT, || {
            alive(&mut run, "hold serve redis", folder.path())?;
            Ok(line.as_ref().and_then(|line| line.try_recv().ok()))
        })?;
        let ready: Value = serde_json::from_str(&line)?;
        let address = ready["redis"].as_str().and_then(|address| address.parse().ok());
        let address = address.ok_or(BenchError::Answer { verb: "hold serve redis".into() })?;
        Ok(Self { name: "door", address, run, _folder: folder })
    }

    /// A Redis. It never rewrites what it appended: that would come in some turns and not in others.
    pub(super) fn redis(bench: &Bench, keeping: Keeping) -> Result<Self, BenchError> {
        let folder = Folder::new(bench.dir.as_deref())?;
        let address = SocketAddr::from(([127, 0, 0, 1], Ports::new().free()?));
        let mut command = Command::new(SERVER);
        command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--auto-aof-rewrite-percentage", "0"]);
        let (name, append) = match keeping {
            Keeping::Memory => ("redis", "no"),
            Keeping::EverySecond => ("redis, everysec", "yes"),
        };
        command.args(["--appendonly", append, "--appendfsync", "everysec"]);
        command.arg("--dir").arg(folder.path()).stdin(Stdio::null());
        command.stdout(log(folder.path())?).stderr(Stdio::null());
        let mut run = installed(SERVER, Run::start(&mut command))?;
        bench.stop.until("redis-server did not serve", READY_LIMIT, || {
            alive(&mut run, SERVER, folder.path())?;
            Ok(TcpStream::connect(address).ok().map(drop))
        })?;
        Ok(Self { name, address, run, _folder: folder })
    }

    /// Its process.
    pub(super) fn pid(&self) -> Pid {
        self.run.pid()
    }

    /// Processor time that it used so far.
    pub(super) fn cpu(&self) -> Duration {
        process::cpu(self.pid()).unwrap_or_default()
    }
}

/// Where its words go.
fn log(folder: &Path) -> Result<fs::File, BenchError> {
    let path = folder.join("log");
    fs::File::create(&path).map_err(BenchError::io("write", &path))
}

/// # Errors
/// [`BenchError::Program`] with the end of its log where it ended.
fn alive(run: &mut Run, verb: &str, folder: &Path) -> Result<(), BenchError> {
    let Some(status) = run.ended()? else { return Ok(()) };
    let text = fs::read_to_string(folder.join("log")).unwrap_or_default();
    let told = text.lines().rev().take(3).collect::<Vec<_>>().join(" / ");
    Err(BenchError::Program { verb: verb.to_owned(), code: status.code(), told })
}

/// Names the package where a program of Redis's is not there.
fn installed<T>(program: &'static str, tried: Result<T, BenchError>) -> Result<T, BenchError> {
    match tried {
        Err(BenchError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Err(BenchError::Missing { program, package: PACKAGE })
        }
        tried => tried,
    }
}

/// What a program of Redis's prints.
fn printed(
    program: &'static str,
    args: &[String],
    limit: Duration,
    bench: &Bench,
) -> Result<String, BenchError> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = installed(program, Run::start(&mut command))?.finish(limit, &bench.stop)?;
    Ok(ended.text())
}

/// Which Redis it is: the version, as it tells it. Asked first, so that where there is none nothing is begun.
pub(super) fn version(bench: &Bench) -> Result<String, BenchError> {
    printed(TOOL, &["--version".to_owned()], READY_LIMIT, bench)?;
    let told = printed(SERVER, &["--version".to_owned()], READY_LIMIT, bench)?;
    let version = told.split_whitespace().find_map(|word| word.strip_prefix("v="));
    Ok(version.unwrap_or("unknown").to_owned())
}

/// What `redis-benchmark` prints, with these arguments, which have it make so many requests.
pub(super) fn benchmark(
    args: &[String],
    requests: usize,
    bench: &Bench,
) -> Result<String, BenchError> {
    printed(TOOL, args, limit(requests), bench)
}

/// How long a run of the tool with so many requests may take.
const fn limit(requests: usize) -> Duration {
    READY_LIMIT.saturating_add(Duration::from_secs(requests as u64 / REQUESTS_MIN))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_run_of_many_requests_may_take_long() {
        assert_eq!(limit(0), READY_LIMIT);
        // A third of the most there are, in a pipeline six times as many.
        assert_eq!(limit(200_000_000), READY_LIMIT + Duration::from_secs(200_000));
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let missing = installed("it", Run::start(&mut Command::new("/nowhere/it")));
        let Err(error) = missing else { panic!("it started") };
        assert!(matches!(error, BenchError::Missing { program: "it", package: PACKAGE }));
        assert!(error.to_string().contains("redis-server"), "{error}");
        let other = installed("it", Err::<(), _>(BenchError::Interrupted));
        assert!(matches!(other, Err(BenchError::Interrupted)));
    }
}
