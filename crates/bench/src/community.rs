//! A network of peer processes on this machine, made and run as operators would.
//!
//! ```text
//! DIR/orgN/  DIR/NET  DIR/peerN/  DIR/homeN/      one folder, removed at the end
//! ```
//! Every peer is a process of the program (`hold peer run`) on loopback ports of its own.
//!
//! Invariant: when a community is dropped its processes have ended and its folder is gone.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc;
use std::time::Duration;

use placement::Profile;
use serde_json::Value;

use crate::Bench;
use crate::error::BenchError;
use crate::folder::Folder;
use crate::ports::Ports;
use crate::process::{self, Pid};
use crate::program::{Program, Run};
use crate::relay::Relay;
use crate::stop::Stop;

/// Organisations, as in `hold up`.
pub(crate) const ORGANISATIONS: usize = 3;
/// Peers at most: each is a process with its threads, sockets and files.
pub const PEERS_MAX: usize = 64;
/// How long one peer may take to serve, and all to know each other.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// How long a peer may take for its page.
const PAGE_LIMIT: Duration = Duration::from_secs(10);
/// The longest page of a peer, in bytes.
const PAGE_BYTES_MAX: u64 = 1 << 20;
const PASSPHRASE: &str = "only for measuring";

/// What kind of network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) peers: usize,
    pub(crate) suite: &'static str,
    /// What the genesis says files are kept as; by the table where none.
    pub(crate) profile: Option<Profile>,
}

/// How a network differs from the usual one.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Organisations, whose peers take turns.
    pub(crate) organisations: usize,
    /// What stands at the end of every `peer.toml`.
    pub(crate) settings: String,
}

impl Default for Shape {
    fn default() -> Self {
        Self { organisations: ORGANISATIONS, settings: String::new() }
    }
}

/// One peer process.
pub(crate) struct Peer {
    number: usize,
    pub(crate) address: String,
    /// Its key, hex.
    pub(crate) id: String,
    pub(crate) organisation: usize,
    metrics: String,
    run: Run,
}

/// A peer that was killed and can be started again, with all that it had.
#[derive(Debug)]
pub(crate) struct Down {
    number: usize,
    address: String,
}

/// The network.
pub(crate) struct Community {
    // In this order: processes end before their folder goes.
    pub(crate) peers: Vec<Peer>,
    folder: Folder,
    pub(crate) program: Program,
    /// In front of the last peer, where one is.
    relay: Option<Relay>,
    shape: Shape,
    stop: Stop,
}

impl Community {
    /// Makes a network and waits until its peers know each other.
    pub(crate) fn start(bench: &Bench, kind: Kind) -> Result<Self, BenchError> {
        Self::make(bench, kind, Shape::default(), None)
    }

    /// The same, with a relay that everybody reaches the last peer through.
    pub(crate) fn behind_relay(bench: &Bench, kind: Kind) -> Result<Self, BenchError> {
        Self::make(bench, kind, Shape::default(), kind.peers.checked_sub(1))
    }

    /// A network of another shape.
    pub(crate) fn shaped(bench: &Bench, kind: Kind, shape: Shape) -> Result<Self, BenchError> {
        Self::make(bench, kind, shape, None)
    }

    fn make(
        bench: &Bench,
        kind: Kind,
        shape: Shape,
        relayed: Option<usize>,
    ) -> Result<Self, BenchError> {
        if !(1..=PEERS_MAX).contains(&kind.peers) {
            return Err(BenchError::Argument { name: "--peers", reason: "from 1 to 64" });
        }
        let program = Program::new(&bench.program);
        let folder = Folder::new(bench.dir.as_deref())?;
        let (stop, relay) = (bench.stop.clone(), None);
        let mut this = Self { peers: Vec::new(), folder, program, relay, shape, stop };
        this.create(kind)?;
        let mut ports = Ports::new();
        let mut waiting = Vec::new();
        let mut first = None;
        for number in 0..kind.peers {
            let listen = format!("127.0.0.1:{}", ports.free()?);
            if relayed == Some(number) {
                this.relay = Some(Relay::start(ports.free()?, &listen)?);
            }
            let starting = this.launch(number, &listen, first.as_deref())?;
            first.get_or_insert(starting.address.clone());
            waiting.push(starting);
            if number == 0 {
                // The first is whom all others meet.
                let only = waiting.pop().into_iter().map(|starting| starting.ready(&this.stop));
                this.peers.extend(only.collect::<Result<Vec<_>, _>>()?);
            }
        }
        let others = waiting.into_iter().map(|starting| starting.ready(&this.stop));
        this.peers.extend(others.collect::<Result<Vec<_>, _>>()?);
        this.acquainted()?;
        Ok(this)
    }

    fn create(&self, kind: Kind) -> Result<(), BenchError> {
        let orgs: Vec<PathBuf> = (0..self.shape.organisations).map(|org| self.org(org)).collect();
        for org in &orgs {
            self.program.ask(
                ["org".as_ref(), "init".as_ref(), "--dir".as_ref(), org.as_os_str()],
                &self.stop,
            )?;
        }
        let names: Vec<String> = orgs.iter().map(|org| org.display().to_string()).collect();
        let mut args = vec!["network".to_owned(), "init".to_owned(), "--org".to_owned()];
        args.extend([names.join(","), "--suite".to_owned(), kind.suite.to_owned()]);
        if let Some(profile) = kind.profile {
            args.extend(["--profile".to_owned(), profile.to_string()]);
        }
        args.extend(["-o".to_owned(), self.network().display().to_string()]);
        self.program.ask(args, &self.stop).map(drop)
    }

    fn launch(
        &self,
        number: usize,
        listen: &str,
        first: Option<&str>,
    ) -> Result<Starting, BenchError> {
        let dir = self.folder.path().join(format!("peer{number}"));
        let organisation = self.organisation(number);
        let text = |path: &Path| path.display().to_string();
        let mut args = ["peer", "init", "--dir"].map(str::to_owned).to_vec();
        args.extend([text(&dir), "--network".to_owned(), text(&self.network())]);
        args.extend(["--org".to_owned(), text(&self.org(organisation))]);
        args.extend(["--listen".to_owned(), listen.to_owned()]);
        // The relay is started just before the peer that it stands before, which is the last.
        let address = self.relay.as_ref().map_or(listen, Relay::address).to_owned();
        if address != listen {
            args.extend(["--advertise".to_owned(), address.clone()]);
        }
        if let Some(first) = first {
            args.extend(["--bootstrap".to_owned(), first.to_owned()]);
        }
        self.program.ask(args, &self.stop)?;
        let config = dir.join("peer.toml");
        let text = fs::read_to_string(&config).map_err(BenchError::io("read", &config))?;
        fs::write(&config, text + &self.shape.settings)
            .map_err(BenchError::io("write", &config))?;
        self.spawn(number, address)
    }

    /// Starts the process of a peer that was made.
    fn spawn(&self, number: usize, address: String) -> Result<Starting, BenchError> {
        let dir = self.folder.path().join(format!("peer{number}"));
        let log = dir.with_extension("log");
        let file = OpenOptions::new().create(true).append(true).open(&log);
        let mut command = self.program.command(["peer", "run", "--json", "--dir"]);
        command.arg(&dir).stderr(file.map_err(BenchError::io("write", &log))?);
        let mut line = None;
        let run = Run::start_taking(&mut command, |child| line = first_line(child))?;
        Ok(Starting { number, organisation: self.organisation(number), address, run, line })
    }

    /// Whose a peer is: they take turns.
    fn organisation(&self, number: usize) -> usize {
        number % self.shape.organisations
    }

    /// Waits until every peer knows every other.
    fn acquainted(&self) -> Result<(), BenchError> {
        let others = self.peers.len() as u64 - 1;
        let mut left: Vec<&Peer> = self.peers.iter().collect();
        self.stop.until("some peers did not get to know all others", READY_LIMIT, || {
            left.retain(|peer| {
                let known = peer.status().ok().map(|status| status["peers"]["healthy"].as_u64());
                known.flatten() != Some(others)
            });
            Ok(left.is_empty().then_some(()))
        })
    }

    /// Kills the last so many peers; the others stay.
    pub(crate) fn kill_last(&mut self, count: usize) {
        self.peers.truncate(self.peers.len().saturating_sub(count));
    }

    /// Kills one of those that run, by its place among them.
    pub(crate) fn kill(&mut self, at: usize) -> Down {
        let Peer { number, address, .. } = self.peers.remove(at);
        Down { number, address }
    }

    /// Starts peers that were killed, at once, and waits until they serve.
    pub(crate) fn restart(&mut self, down: Vec<Down>) -> Result<(), BenchError> {
        let starting = down.into_iter().map(|down| self.spawn(down.number, down.address));
        let starting = starting.collect::<Result<Vec<_>, _>>()?;
        let started = starting.into_iter().map(|starting| starting.ready(&self.stop));
        self.peers.extend(started.collect::<Result<Vec<_>, _>>()?);
        Ok(())
    }

    /// Kills all peers of some organisations; the others stay.
    pub(crate) fn kill_organisations(&mut self, gone: impl Fn(usize) -> bool) {
        self.peers.retain(|peer| !gone(peer.organisation));
    }

    /// From now on what the peer behind the relay answers is so late.
    pub(crate) fn delay(&self, delay: Duration) {
        if let Some(relay) = &self.relay {
            relay.delay(delay);
        }
    }

    /// The network's file.
    pub(crate) fn network(&self) -> PathBuf {
        self.folder.path().join("NET")
    }

    /// An organisation's directory.
    pub(crate) fn org(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("org{number}"))
    }

    /// Where further files of the experiment may lie.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A home with a keyring, whose organisation is the first.
    pub(crate) fn home(&self, name: &str) -> Result<Home, BenchError> {
        let home = Home::new(self.folder.path().join(name), self.via());
        let mut command = home.command(&self.program, ["keys", "init", "--json", "--network"]);
        command.arg(self.network()).arg("--org").arg(self.org(0));
        Run::start(&mut command)?.finish(READY_LIMIT, &self.stop)?;
        Ok(home)
    }

    /// The peers' addresses, as `--via` takes them.
    pub(crate) fn via(&self) -> String {
        let addresses: Vec<&str> = self.peers.iter().map(|peer| peer.address.as_str()).collect();
        addresses.join(",")
    }

    /// The peers' processes.
    pub(crate) fn pids(&self) -> impl Iterator<Item = Pid> {
        self.peers.iter().map(|peer| peer.run.pid())
    }

    /// Processor time of all peers so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.pids().filter_map(process::cpu).sum()
    }

    /// Bytes of records that all peers hold.
    pub(crate) fn stored(&self) -> Result<u64, BenchError> {
        let held = self.peers.iter().map(|peer| {
            let status = peer.status()?;
            status["store"]["bytes"]
                .as_u64()
                .ok_or(BenchError::Answer { verb: "hold peer run".into() })
        });
        held.sum()
    }

    /// # Errors
    /// [`BenchError::Program`] where a peer is not running any more.
    pub(crate) fn check(&mut self) -> Result<(), BenchError> {
        for peer in &mut self.peers {
            if let Some(status) = peer.run.ended()? {
                let (verb, code) = ("hold peer run".to_owned(), status.code());
                return Err(BenchError::Program { verb, code, told: peer.address.clone() });
            }
        }
        Ok(())
    }
}

impl Peer {
    /// Its status page.
    pub(crate) fn status(&self) -> Result<Value, BenchError> {
        let body = page(&self.metrics, "/status").map_err(BenchError::io("read", &self.metrics))?;
        Ok(serde_json::from_slice(&body)?)
    }
}

/// A GET of HTTP/1.0 of a small page on loopback.
fn page(address: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PAGE_LIMIT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let body = head.map_or(answer.len(), |at| at + 4);
    Ok(answer.split_off(body))
}

/// A peer that was started and has not said yet that it serves.
struct Starting {
    number: usize,
    organisation: usize,
    address: String,
    run: Run,
    line: Option<mpsc::Receiver<String>>,
}

impl Starting {
    fn ready(mut self, stop: &Stop) -> Result<Peer, BenchError> {
        let line = self.line.take();
        let line = stop.until("a peer did not start", READY_LIMIT, || {
            if let Some(status) = self.run.ended()? {
                let (verb, code) = ("hold peer run".to_owned(), status.code());
                let told = self.address.clone();
                return Err(BenchError::Program { verb, code, told });
            }
            Ok(line.as_ref().and_then(|line| line.try_recv().ok()))
        })?;
        let ready: Value = serde_json::from_str(&line)?;
        let text = |name: &str| ready[name].as_str().unwrap_or_default().to_owned();
        let (id, metrics) = (text("peer"), text("metrics"));
        let Self { number, organisation, address, run, .. } = self;
        Ok(Peer { number, address, id, organisation, metrics, run })
    }
}

/// The first line of a process's stdout, when it comes; the rest is read and dropped.
pub(crate) fn first_line(child: &mut Child) -> Option<mpsc::Receiver<String>> {
    let stdout = child.stdout.take()?;
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        if let Some(line) = lines.next() {
            let _ = send.send(line);
        }
        lines.for_each(drop);
    });
    Some(receive)
}

/// A `$HOLD_HOME` of the network.
pub(crate) struct Home {
    dir: PathBuf,
    via: String,
}

impl Home {
    /// One in this folder, whose peers are at these addresses; the caller makes the keyring.
    pub(crate) fn new(dir: PathBuf, via: String) -> Self {
        Self { dir, via }
    }

    /// The program with this home.
    pub(crate) fn command<const N: usize>(
        &self,
        program: &Program,
        args: [&str; N],
    ) -> std::process::Command {
        let mut command = program.command(args);
        command.env("HOLD_HOME", &self.dir).env("HOLD_PASSPHRASE", PASSPHRASE);
        command.env("HOLD_VIA", &self.via);
        command
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_page_is_what_stands_below_its_head() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // All of the request: a socket closed before would be reset.
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.extend(byte);
            }
            stream.write_all(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{\"c\":1}").unwrap();
            asked
        });
        assert_eq!(page(&address, "/status").unwrap(), b"{\"c\":1}");
        assert!(serving.join().unwrap().starts_with(b"GET /status HTTP/1.0\r\n"));
    }
}
