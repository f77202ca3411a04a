//! Processes of other programs: some that serve until they are ended, some that run to their end.
//!
//! Each has a home of its own in the experiment's folder and nothing of the caller's environment but
//! where programs are found, so that no settings of a user are read or written.
//!
//! Invariant: a process is ended by its own handle when its owner is dropped, however that comes.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bench::Stop;

use crate::error::RivalError;

/// How often a process is looked at: what a client took is known to half of this.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// What is read of a process's output, in bytes from its end.
const TOLD_BYTES_MAX: u64 = 4096;
/// How long a program may take to serve.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Variables that reach a program: where others are found, and where Go and pip fetch and keep.
const KEPT: &[&str] = &["PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// A command that knows nothing of the caller, with its home and files in `home`.
pub(crate) fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().current_dir(home).env("HOME", home).env("TMPDIR", home);
    command.envs(KEPT.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
    command
}

/// A process and what it says, which goes to a file.
struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(mut command: Command, log: &Path) -> Result<Self, RivalError> {
        let file = File::create(log).map_err(RivalError::io("write", log))?;
        let beside = file.try_clone().map_err(RivalError::io("write", log))?;
        command.stdin(Stdio::null()).stdout(file).stderr(beside);
        let program = PathBuf::from(command.get_program());
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let child = command.spawn().map_err(RivalError::io("start", &program))?;
        Ok(Self { name, child, log: log.to_owned() })
    }

    /// Whether it ended, and with which code.
    fn ended(&mut self) -> Result<Option<Option<i32>>, RivalError> {
        let status = self.child.try_wait().map_err(RivalError::io("wait for", &self.name))?;
        Ok(status.map(|status| status.code()))
    }

    fn told(&self) -> Result<String, RivalError> {
        end_of(&self.log).map_err(RivalError::io("read", &self.log))
    }

    fn failed(&self, code: Option<i32>) -> RivalError {
        let (program, told) = (self.name.clone(), self.told().unwrap_or_default());
        RivalError::Ended { program, code, told: told.trim().to_owned() }
    }

    fn late(&self, limit: Duration) -> RivalError {
        let (program, told) = (self.name.clone(), self.told().unwrap_or_default());
        RivalError::Late { program, limit, told: told.trim().to_owned() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of a file, as text.
fn end_of(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(TOLD_BYTES_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(TOLD_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A program that serves until this is dropped.
pub(crate) struct Daemon(Process);

impl Daemon {
    /// Starts it; what it says goes to `log`.
    pub(crate) fn start(command: Command, log: &Path) -> Result<Self, RivalError> {
        Process::start(command, log).map(Self)
    }

    /// Starts it and waits until it is [`Daemon::ready`].
    ///
    /// # Errors
    /// As [`Daemon::ready`].
    pub(crate) fn serving<T>(
        command: Command,
        log: &Path,
        stop: &Stop,
        ready: impl FnMut(&str) -> Result<Option<T>, RivalError>,
    ) -> Result<(Self, T), RivalError> {
        let mut daemon = Self::start(command, log)?;
        let found = daemon.ready(stop, ready)?;
        Ok((daemon, found))
    }

    /// Waits until `ready` finds what it looks for in the end of what the program said.
    ///
    /// # Errors
    /// [`RivalError::Ended`], [`RivalError::Late`], and what `ready` fails with.
    pub(crate) fn ready<T>(
        &mut self,
        stop: &Stop,
        mut ready: impl FnMut(&str) -> Result<Option<T>, RivalError>,
    ) -> Result<T, RivalError> {
        let started = Instant::now();
        loop {
            if let Some(code) = self.0.ended()? {
                return Err(self.0.failed(code));
            }
            if let Some(found) = ready(&self.0.told()?)? {
                return Ok(found);
            }
            if started.elapsed() > READY_LIMIT {
                return Err(self.0.late(READY_LIMIT));
            }
            stop.sleep(Duration::from_millis(50))?;
        }
    }
}

/// A run that ended well.
#[derive(Debug)]
pub(crate) struct Ran {
    /// From its start to its end.
    pub(crate) took: Duration,
    /// The end of what it said.
    pub(crate) told: String,
}

/// Runs a program to its end; what it says goes to `log`.
///
/// # Errors
/// [`RivalError::Ended`] where it did not end with 0, [`RivalError::Late`] after `limit`; then it is ended.
pub(crate) fn run(
    command: Command,
    log: &Path,
    limit: Duration,
    stop: &Stop,
) -> Result<Ran, RivalError> {
    let started = Instant::now();
    let mut process = Process::start(command, log)?;
    let code = loop {
        if let Some(code) = process.ended()? {
            break code;
        }
        if started.elapsed() > limit {
            return Err(process.late(limit));
        }
        stop.check()?;
        std::thread::sleep(LOOK_EVERY);
    };
    let took = started.elapsed();
    if code != Some(0) {
        return Err(process.failed(code));
    }
    Ok(Ran { took, told: process.told()? })
}

/// Bytes of all files below some folders. What is kept ahead and not written yet does not count.
pub(crate) fn bytes_below(folders: &[PathBuf]) -> Result<u64, RivalError> {
    use std::os::unix::fs::MetadataExt;
    /// What the system counts a file's blocks in.
    const BLOCK: u64 = 512;
    /// The most that an inode holds of its file.
    const INODE_BYTES_MAX: u64 = 4096;
    let (mut bytes, mut folders) = (0, folders.to_vec());
    while let Some(folder) = folders.pop() {
        let failed = || RivalError::io("look into", &folder);
        // A program may remove files of its own between two looks.
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.map_err(failed())?,
        };
        for entry in entries {
            let entry = entry.map_err(failed())?;
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                folders.push(entry.path());
            } else if about.is_file() {
                // A small file may lie in its inode, with no block of its own.
                let length = about.len();
                let inside = about.blocks() == 0 && length <= INODE_BYTES_MAX;
                bytes += if inside { length } else { length.min(about.blocks() * BLOCK) };
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn shell(home: &Path, script: &str) -> Command {
        let mut command = command(Path::new("/bin/sh"), home);
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_run_tells_its_end_and_how_it_failed() {
        let folder = tempfile::tempdir().unwrap();
        let (home, log, stop) = (folder.path(), folder.path().join("log"), Stop::default());
        let ran = run(shell(home, "echo one; echo two >&2"), &log, LIMIT, &stop).unwrap();
        assert_eq!(ran.told, "one\ntwo\n");
        let failed = run(shell(home, "echo broken; exit 7"), &log, LIMIT, &stop).unwrap_err();
        let RivalError::Ended { program, code, told } = failed else { panic!("{failed:?}") };
        assert_eq!((program.as_str(), code, told.as_str()), ("sh", Some(7), "broken"));
        let short = Duration::from_millis(10);
        let late = run(shell(home, "exec sleep 600"), &log, short, &stop).unwrap_err();
        assert!(matches!(late, RivalError::Late { .. }), "{late:?}");
        stop.stop();
        let stopped = run(shell(home, "exec sleep 600"), &log, LIMIT, &stop).unwrap_err();
        assert!(matches!(stopped, RivalError::Bench(bench::BenchError::Interrupted)));
    }

    #[test]
    fn the_callers_settings_do_not_reach_it() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo \"$HOME $CARGO_MANIFEST_DIR|$PWD\"";
        let log = folder.path().join("log");
        let ran = run(shell(folder.path(), script), &log, LIMIT, &Stop::default()).unwrap();
        let home = folder.path().display();
        assert_eq!(ran.told.trim(), format!("{home} |{home}"));
    }

    #[test]
    fn a_daemon_ends_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let (log, stop) = (folder.path().join("log"), Stop::default());
        let script = "echo \"serving as $$\"; exec sleep 600";
        let mut daemon = Daemon::start(shell(folder.path(), script), &log).unwrap();
        let pid: String = daemon
            .ready(&stop, |told| Ok(told.trim().strip_prefix("serving as ").map(str::to_owned)))
            .unwrap();
        let process = PathBuf::from(format!("/proc/{pid}"));
        assert!(process.exists());
        drop(daemon);
        assert!(!process.exists());
        let mut gone = Daemon::start(shell(folder.path(), "echo bye; exit 2"), &log).unwrap();
        let failed = gone.ready(&stop, |_| Ok(None::<()>)).unwrap_err();
        assert!(matches!(failed, RivalError::Ended { code: Some(2), .. }), "{failed:?}");
    }

    #[test]
    fn stored_bytes_are_those_of_all_files_below() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("c"), vec![1; 100_000]).unwrap();
        fs::write(folder.path().join("d"), b"1234").unwrap();
        assert_eq!(bytes_below(&[folder.path().to_owned()]).unwrap(), 100_004);
        // Room that was only set aside is not stored.
        let file = File::create(deep.join("e")).unwrap();
        file.set_len(1 << 30).unwrap();
        assert!(bytes_below(&[folder.path().to_owned()]).unwrap() < 200_000);
    }
}
