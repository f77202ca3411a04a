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

    /// Writes a second that three members take.
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
        let load = if bench.quick { "--load=s" } else { "--load=l" };
        let output = tool(&["check", "perf", load]).output();
        let output = output.map_err(BenchError::io("run", &self.client))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        writes(&text).ok_or(BenchError::Answer { verb: String::from("etcdctl check perf") })
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
    }
}
