//! Three etcd on this machine, and what its own tool writes to them: order among those that trust each other.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Bench;
use crate::error::BenchError;
use crate::folder::Folder;
use crate::ports::Ports;
use crate::program::Run;
use crate::stop::Stop;

/// What `etcdctl check perf` is asked for, and the writes a second that it goes up to by itself, whatever the members could take:
/// the most there is, and for a quick run the least.
const LOAD: (&str, u32) = ("--load=xl", 15_000);
const LOAD_QUICK: (&str, u32) = ("--load=s", 150);
const LIMIT: Duration = Duration::from_secs(180);
const MEMBERS: usize = 3;

/// The two programs.
#[derive(Clone, Debug)]
pub struct Etcd {
    /// `etcd`.
    pub server: PathBuf,
    /// `etcdctl`.
    pub client: PathBuf,
}

impl Etcd {
    /// Those on the PATH, where both are there.
    pub fn on_path() -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        let find = |name: &str| {
            std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
        };
        Some(Self { server: find("etcd")?, client: find("etcdctl")? })
    }

    fn load(bench: &Bench) -> (&'static str, u32) {
        if bench.quick { LOAD_QUICK } else { LOAD }
    }

    /// Writes a second that its tool asks for: no more are measured.
    pub(super) fn asked(bench: &Bench) -> u32 {
        Self::load(bench).1
    }

    /// Writes a second that three members take, of [`Etcd::asked`].
    pub(super) fn measure(&self, bench: &Bench) -> Result<f64, BenchError> {
        let (folder, mut ports) = (Folder::new(bench.dir.as_deref())?, Ports::new());
        let mut place = || {
            let port = ports.free()?;
            Ok::<_, BenchError>(format!("http://{}:{port}", Ipv4Addr::LOCALHOST))
        };
        let mut places = Vec::new();
        for _ in 0..MEMBERS {
            places.push((place()?, place()?));
        }
        let all = places.iter().enumerate().map(|(one, (_, peers))| format!("e{one}={peers}"));
        let cluster = all.collect::<Vec<_>>().join(",");
        let mut runs = Vec::new();
        for (one, (clients, peers)) in places.iter().enumerate() {
            let mut command = Command::new(&self.server);
            command
                .args(["--name", &format!("e{one}"), "--initial-cluster", &cluster])
                .args(["--listen-client-urls", clients, "--advertise-client-urls", clients])
                .args(["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers])
                .args(["--initial-cluster-state", "new", "--log-level", "error", "--data-dir"])
                .arg(folder.path().join(one.to_string()))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            runs.push(Run::start(&mut command)?);
        }
        let endpoints: Vec<&str> = places.iter().map(|(clients, _)| clients.as_str()).collect();
        let tool = |args: &[&str]| {
            let mut command = Command::new(&self.client);
            command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoints.join(",")]).args(args);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        bench.stop.until("etcd did not start", LIMIT, || {
            let healthy = Run::start(&mut tool(&["endpoint", "health"]))?;
            Ok(healthy.finish(LIMIT, &bench.stop).ok().map(drop))
        })?;
        rate(&mut tool(&["check", "perf", Self::load(bench).0]), &bench.stop)
    }
}

/// Runs the tool's check to its end, which is no success where the tool is not content.
fn rate(tool: &mut Command, stop: &Stop) -> Result<f64, BenchError> {
    let ended = Run::start(tool)?.end(LIMIT, stop)?;
    match writes(&ended.text()) {
        Some(rate) => Ok(rate),
        None => {
            ended.well()?;
            Err(BenchError::Answer { verb: String::from("etcdctl check perf") })
        }
    }
}

/// The number before `writes/s`; the tool says it whether or not it is content.
fn writes(text: &str) -> Option<f64> {
    let before = text.split("writes/s").next().filter(|before| before.len() < text.len())?;
    before.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_rate_is_read_whether_it_is_content_or_not() {
        assert_eq!(writes("PASS: Throughput is 4360 writes/s\nPASS: x"), Some(4360.0));
        assert_eq!(writes("FAIL: Throughput too low: 961 writes/s"), Some(961.0));
        assert_eq!(writes("nothing"), None);
        let run = |script: &str, stop: &Stop| {
            let mut tool = Command::new("sh");
            rate(tool.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped()), stop)
        };
        let stop = Stop::default();
        let told = run("echo 'FAIL: Throughput too low: 961 writes/s'; exit 1", &stop);
        assert_eq!(told.ok(), Some(961.0));
        let failed = run("echo broken >&2; exit 4", &stop);
        assert!(matches!(failed, Err(BenchError::Program { code: Some(4), .. })), "{failed:?}");
        assert!(matches!(run("true", &stop), Err(BenchError::Answer { .. })));
        stop.stop();
        let stopped = run("exec sleep 600", &stop);
        assert!(matches!(stopped, Err(BenchError::Interrupted)), "{stopped:?}");
    }
}
