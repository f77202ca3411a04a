//! Runs of the program itself: verbs to their end, and what they told.
//!
//! The experiments start the program as a user's shell would: nothing of the caller's environment
//! that speaks to the program reaches it, and every process is ended by its own handle when its
//! owner is dropped, also when the experiment fails or is stopped.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::error::BenchError;
use crate::process::Pid;
use crate::stop::Stop;

/// The longest a verb may take that makes a file or two.
const SMALL_VERB_LIMIT: Duration = Duration::from_secs(120);
/// The most of a process's output that is kept, in bytes; the rest is read and dropped.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// What is shown of the stderr of a run that failed, in bytes from its end.
const TOLD_BYTES_MAX: usize = 500;

/// The program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
}

impl Program {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// A command with these arguments and a clean environment.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.path);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HOLD_") {
                command.env_remove(name);
            }
        }
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a small verb to its end and gives its result object, which is null where it says nothing.
    pub(crate) fn ask<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        stop: &Stop,
    ) -> Result<Value, BenchError> {
        let mut command = self.command(args);
        command.arg("--json");
        Run::start(&mut command)?.finish(SMALL_VERB_LIMIT, stop)?.object()
    }
}

/// A process of the program, ended when dropped.
pub(crate) struct Run {
    verb: String,
    child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    verb: String,
    /// None where a signal ended it.
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// The last line of a stream as a JSON object.
fn object(text: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(text);
    serde_json::from_str(text.lines().rev().find(|line| !line.trim().is_empty())?).ok()
}

impl Ended {
    /// # Errors
    /// [`BenchError::Program`] where it did not end with 0 or 3.
    pub(crate) fn well(self) -> Result<Self, BenchError> {
        let Self { verb, code, stderr, .. } = &self;
        if matches!(code, Some(0 | 3)) {
            return Ok(self);
        }
        let from = stderr.len().saturating_sub(TOLD_BYTES_MAX);
        let told = String::from_utf8_lossy(&stderr[from..]).trim().to_owned();
        Err(BenchError::Program { verb: verb.clone(), code: *code, told })
    }

    /// The result object; null where nothing was printed.
    pub(crate) fn object(self) -> Result<Value, BenchError> {
        if self.stdout.is_empty() {
            return Ok(Value::Null);
        }
        object(&self.stdout).ok_or(BenchError::Answer { verb: self.verb })
    }

    /// All that it printed.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// As [`Ended::object`], for a verb whose content went to stdout: its result is on stderr.
    pub(crate) fn diverted(self) -> Result<Value, BenchError> {
        object(&self.stderr).ok_or(BenchError::Answer { verb: self.verb })
    }
}

impl Run {
    /// Starts it. Pipes of its output that nobody took are read to their end.
    pub(crate) fn start(command: &mut Command) -> Result<Self, BenchError> {
        Self::start_taking(command, |_| ())
    }

    /// As [`Run::start`], after `take` took what it wants of the process's pipes.
    pub(crate) fn start_taking<T>(
        command: &mut Command,
        take: impl FnOnce(&mut Child) -> T,
    ) -> Result<Self, BenchError> {
        let name = Path::new(command.get_program()).file_name().into_iter();
        let verb = name.chain(command.get_args().take(2)).map(OsStr::to_string_lossy);
        let verb = verb.collect::<Vec<_>>().join(" ");
        let mut child = command.spawn().map_err(BenchError::io("start", command.get_program()))?;
        take(&mut child);
        let stdout = child.stdout.take().map(drain);
        let stderr = child.stderr.take().map(drain);
        Ok(Self { verb, child, stdout, stderr })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.child.id()
    }

    /// Whether it ended, and how.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, BenchError> {
        self.child.try_wait().map_err(BenchError::io("wait for", &self.verb))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`BenchError::Program`] where it did not end with 0 (or 3: stored, and not all copies yet, which who times it looks for by
    /// [`is_full`](crate::full::is_full)),
    /// [`BenchError::Late`] after `limit`; then it is ended.
    pub(crate) fn finish(self, limit: Duration, stop: &Stop) -> Result<Ended, BenchError> {
        self.end(limit, stop)?.well()
    }

    /// As [`Run::finish`], whatever it ended with.
    pub(crate) fn end(mut self, limit: Duration, stop: &Stop) -> Result<Ended, BenchError> {
        let status = stop.until("a run of the program did not end", limit, || self.ended())?;
        let text = |reader: Option<JoinHandle<Vec<u8>>>| {
            reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
        };
        let (stdout, stderr) = (text(self.stdout.take()), text(self.stderr.take()));
        let verb = std::mem::take(&mut self.verb);
        Ok(Ended { verb, code: status.code(), stdout, stderr })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads to the end, and keeps the beginning.
fn drain(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let _ = from.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut kept);
        let _ = std::io::copy(&mut from, &mut std::io::sink());
        kept
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Program::new(Path::new("/bin/sh")).command(["-c", script]);
        command.env_remove("ENV");
        command
    }

    fn finish(script: &str) -> Result<Ended, BenchError> {
        Run::start(&mut shell(script))?.finish(LIMIT, &Stop::default())
    }

    #[test]
    fn the_result_is_the_last_line() {
        let ended = finish("echo noise; echo '{\"a\":1}'; echo note >&2").unwrap();
        assert_eq!(ended.object().unwrap()["a"], 1);
        let ended = finish("echo content; echo note >&2; echo '{\"b\":2}' >&2").unwrap();
        assert_eq!(ended.diverted().unwrap()["b"], 2);
        assert_eq!(finish("true").unwrap().object().unwrap(), Value::Null);
        assert!(matches!(finish("echo hello").unwrap().object(), Err(BenchError::Answer { .. })));
    }

    #[test]
    fn a_failure_is_told_with_its_end() {
        let failed = finish("echo it broke >&2; exit 16").unwrap_err();
        let BenchError::Program { code, told, .. } = failed else { panic!("{failed:?}") };
        assert_eq!((code, told.as_str()), (Some(16), "it broke"));
        assert!(finish("exit 3").is_ok(), "stored, and not all copies yet");
    }

    #[test]
    fn a_process_ends_with_its_owner() {
        let run = Run::start(&mut shell("exec sleep 600")).unwrap();
        let pid = run.pid();
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        drop(run);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let stop = Stop::default();
        stop.stop();
        let stopped = Run::start(&mut shell("exec sleep 600")).unwrap().finish(LIMIT, &stop);
        assert!(matches!(stopped, Err(BenchError::Interrupted)));
    }
}
