//! Real processes for the system tests: networks of `hold peer run`, homes, and runs of `hold`.
//!
//! Everything lives below one temporary folder and on ports the system chose; every process is
//! ended by its own handle when its owner is dropped, also when a test fails.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub const PASSPHRASE: &str = "correct horse battery staple";
/// A process that says nothing for this long has failed its test.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Whether the tests run at the size of the promise rather than at the size of a quick check.
pub fn full() -> bool {
    std::env::var_os("HOLD_SHOWS_FULL").is_some_and(|value| value == "1")
}

/// How a run of `hold` ended.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub seconds: f64,
}

impl Outcome {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }

    /// The one JSON object of the result.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout {}\nstderr {}", self.text(), self.stderr);
        self
    }

    /// Fails with this code, an error in either form, and no panic.
    #[track_caller]
    pub fn expect_error(self, code: i32) -> Self {
        let this = self.expect(code);
        let told = this.stderr.contains("error: ") || this.stderr.contains("\"error\":");
        assert!(told, "no error line: {}", this.stderr);
        assert!(!this.stderr.contains("panicked"), "a panic: {}", this.stderr);
        this
    }
}

/// `hold` with a clean environment and these arguments.
pub fn hold<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hold"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HOLD_") {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process that is killed when dropped.
pub struct Running {
    child: Child,
    stdout: Option<std::thread::JoinHandle<Vec<u8>>>,
    stderr: Option<std::thread::JoinHandle<Vec<u8>>>,
    started: Instant,
}

fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(drain);
        let stderr = child.stderr.take().map(drain);
        Self { child, stdout, stderr, started: Instant::now() }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub fn stdin(&mut self) -> impl Write + use<> {
        self.child.stdin.take().unwrap()
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end; kills it and fails after `limit`.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Outcome {
        let status = wait(&mut self.child, limit);
        let stdout = self.stdout.take().map_or_else(Vec::new, |reader| reader.join().unwrap());
        let stderr = self.stderr.take().map_or_else(Vec::new, |reader| reader.join().unwrap());
        let outcome = Outcome {
            code: status.and_then(|status| status.code()),
            stdout,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            seconds: self.started.elapsed().as_secs_f64(),
        };
        assert!(status.is_some(), "no end within {limit:?}: {outcome:?}");
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    while started.elapsed() < limit {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Loopback addresses whose ports are free and below those that systems hand out to outgoing connections; none is told twice.
pub fn free_addresses(count: usize) -> Vec<String> {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    let mut free = Vec::new();
    while free.len() < count {
        let next = std::process::id().wrapping_mul(89) + TOLD.fetch_add(1, Ordering::Relaxed);
        let address = format!("127.0.0.1:{}", 10_240 + next % 22_000);
        if TcpListener::bind(&address).is_ok() {
            free.push(address);
        }
    }
    free
}

/// Sends a signal to one process, by its id.
pub fn signal(pid: i32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// Waits until a process handles SIGINT and SIGTERM.
#[track_caller]
pub fn until_handled(pid: i32) {
    let both = 1 << (2 - 1) | 1 << (15 - 1);
    let started = Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        if u64::from_str_radix(caught.trim(), 16).unwrap() & both == both {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "signals are never handled");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `hold` to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Outcome {
    Running::start(command).finish(PATIENCE)
}

/// A number of kB from `/proc/PID/status` in bytes: `VmHWM` is the peak, `VmRSS` the present size, `RssAnon` what of it
/// is no file's.
pub fn memory(pid: i32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// One librarian, running or not.
pub struct Peer {
    pub dir: PathBuf,
    pub address: String,
    pub id: String,
    pub metrics: String,
    child: Option<Child>,
}

impl Peer {
    /// Starts it and waits for its ready line.
    #[track_caller]
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.with_extension("log"))
            .unwrap();
        let mut command = hold(["peer", "run", "--json", "--dir"]);
        command.arg(&self.dir).stderr(log);
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        self.child = Some(child);
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines();
            let _ = send.send(lines.next());
            lines.for_each(drop);
        });
        let line = receive.recv_timeout(PATIENCE).ok().flatten().and_then(Result::ok);
        let line = line.unwrap_or_else(|| panic!("never ready:\n{}", self.log()));
        let ready: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(ready["ready"], true, "{line}");
        assert_eq!(ready["peer"], self.id.as_str());
        self.metrics = ready["metrics"].as_str().unwrap().to_owned();
    }

    /// A copy of a peer that is down, with its keys, its records and its place in a committee, that listens elsewhere.
    pub fn twin(&self) -> Self {
        assert!(!self.running());
        let dir = self.dir.with_extension("twin");
        copy(&self.dir, &dir);
        let [address, member] = free_addresses(2).try_into().unwrap();
        let swap = |name: &str, old: &str, new: &str| {
            let text = fs::read_to_string(dir.join(name)).unwrap();
            assert!(text.contains(old), "{text}");
            fs::write(dir.join(name), text.replace(old, new)).unwrap();
        };
        swap("peer.toml", &self.address, &address);
        let links = fs::read_to_string(dir.join("committee/links")).unwrap();
        swap("committee/links", links.lines().next().unwrap(), &member);
        Self { dir, address, id: self.id.clone(), metrics: String::new(), child: None }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.with_extension("log")).unwrap_or_default()
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().expect("it runs").id()).unwrap()
    }

    pub fn running(&self) -> bool {
        self.child.is_some()
    }

    /// A page of its metrics' listener: `/metrics`, `/status`.
    fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.metrics).unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    /// The sum of a counter over its labels.
    pub fn counter(&self, name: &str) -> u64 {
        let page = self.page("/metrics");
        let rest = |line: &str| line.strip_prefix(name).map(str::to_owned);
        let lines = page.lines().filter_map(rest).filter(|rest| rest.starts_with(['{', ' ']));
        let values = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
        values.sum::<f64>() as u64
    }

    /// What it says of itself.
    pub fn status(&self) -> Value {
        let page = self.page("/status");
        serde_json::from_str(page.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends it with SIGTERM and gives its exit code.
    #[track_caller]
    pub fn terminate(&mut self) -> Option<i32> {
        signal(self.pid(), "TERM");
        let mut child = self.child.take().unwrap();
        let status = wait(&mut child, Duration::from_secs(30));
        status.unwrap_or_else(|| panic!("did not drain:\n{}", self.log())).code()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for item in fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let to = to.join(item.file_name());
        match item.file_type().unwrap() {
            one if one.is_dir() => copy(&item.path(), &to),
            one if one.is_file() => drop(fs::copy(item.path(), to).unwrap()),
            // A socket is made anew.
            _ => {}
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A network of processes: organisations and peers below one temporary folder.
pub struct Network {
    pub folder: TempDir,
    pub file: PathBuf,
    pub orgs: Vec<PathBuf>,
    pub peers: Vec<Peer>,
}

impl Network {
    /// Makes organisations and the genesis, with further arguments to `network init`.
    #[track_caller]
    pub fn new(orgs: usize, args: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("hold-system-").tempdir().unwrap();
        let file = folder.path().join("NET");
        let orgs: Vec<PathBuf> =
            (0..orgs).map(|org| folder.path().join(format!("org{org}"))).collect();
        for org in &orgs {
            run(hold(["org", "init", "--dir"]).arg(org)).expect(0);
        }
        let names: Vec<&str> = orgs.iter().map(|org| org.to_str().unwrap()).collect();
        let mut command = hold(["network", "init", "--org", &names.join(",")]);
        run(command.args(args).arg("-o").arg(&file)).expect(0);
        Self { folder, file, orgs, peers: Vec::new() }
    }

    /// Makes `count` more peers, organisations in turn; the first peer is the bootstrap of all.
    #[track_caller]
    pub fn add_peers(&mut self, count: usize) {
        for _ in 0..count {
            let dir = self.folder.path().join(format!("peer{}", self.peers.len()));
            self.add_peer_at(dir);
        }
    }

    #[track_caller]
    pub fn add_peer_at(&mut self, dir: PathBuf) -> usize {
        let index = self.peers.len();
        let mut command = hold(["peer", "init", "--json", "--dir"]);
        command.arg(&dir).arg("--network").arg(&self.file);
        command.arg("--org").arg(&self.orgs[index % self.orgs.len()]);
        if let Some(first) = self.peers.first() {
            command.args(["--bootstrap", &first.address]);
        }
        let made = run(&mut command).expect(0).json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        let (address, id) = (text("address"), text("peer"));
        self.peers.push(Peer { dir, address, id, metrics: String::new(), child: None });
        index
    }

    /// Three organisations and `peers` running peers.
    #[track_caller]
    pub fn running(peers: usize, args: &[&str]) -> Self {
        let mut network = Self::new(3, args);
        network.add_peers(peers);
        network.start_all();
        network
    }

    /// Starts every peer that does not run.
    #[track_caller]
    pub fn start_all(&mut self) {
        let mut starting = self.peers.iter_mut().filter(|peer| !peer.running());
        // The first is whom the others meet.
        starting.by_ref().take(1).for_each(Peer::start);
        std::thread::scope(|scope| {
            starting.for_each(|peer| drop(scope.spawn(|| peer.start())));
        });
    }

    /// Waits until every peer that runs holds so many others healthy.
    #[track_caller]
    pub fn acquainted(&self) {
        let mut left: Vec<&Peer> = self.peers.iter().filter(|peer| peer.running()).collect();
        let (others, started) = (left.len() as u64 - 1, Instant::now());
        loop {
            left.retain(|peer| peer.status()["peers"]["healthy"].as_u64() < Some(others));
            if left.is_empty() {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "some never met all: {}", left[0].status());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The sum of a counter over all peers that run.
    pub fn counter(&self, name: &str) -> u64 {
        let running = self.peers.iter().filter(|peer| peer.running());
        running.map(|peer| peer.counter(name)).sum()
    }

    /// Addresses of all peers, also of those that do not run.
    pub fn everybody(&self) -> String {
        let all = self.peers.iter().map(|peer| peer.address.clone());
        all.collect::<Vec<_>>().join(",")
    }

    /// Addresses of the peers that run.
    pub fn via(&self) -> String {
        let running = self.peers.iter().filter(|peer| peer.running());
        running.map(|peer| peer.address.clone()).collect::<Vec<_>>().join(",")
    }

    /// A new home with a keyring; its pass comes from organisation `org`.
    #[track_caller]
    pub fn home(&self, name: &str, org: usize) -> Home {
        let home = Home { dir: self.folder.path().join(name) };
        let mut command = home.hold(["keys", "init", "--network"]);
        run(command.arg(&self.file).arg("--org").arg(&self.orgs[org])).expect(0);
        home
    }
}

/// A `$HOLD_HOME`.
pub struct Home {
    pub dir: PathBuf,
}

impl Home {
    /// `hold` with this home and the passphrase of the tests.
    pub fn hold<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = hold(args);
        command.env("HOLD_HOME", &self.dir).env("HOLD_PASSPHRASE", PASSPHRASE);
        command
    }

    /// The first published reader key.
    #[track_caller]
    pub fn reader(&self) -> String {
        let listed = run(&mut self.hold(["keys", "list", "--json"])).expect(0).json();
        listed["reader_keys"][0].as_str().unwrap().to_owned()
    }

    /// Puts a file and gives the result object.
    #[track_caller]
    pub fn put(&self, via: &str, file: &Path) -> Value {
        let mut command = self.hold(["put", "--json", "--via", via]);
        run(command.arg(file)).expect(0).json()
    }

    /// Gets an address into `to`.
    #[track_caller]
    pub fn get(&self, via: &str, address: &str, to: &Path) -> Outcome {
        let mut command = self.hold(["get", address, "--json", "--via", via, "-o"]);
        run(command.arg(to))
    }
}

/// Writes a file of pseudo-random bytes that differ with `seed`.
pub fn random_file(path: &Path, bytes: usize, seed: u64) {
    let mut file = std::io::BufWriter::new(fs::File::create(path).unwrap());
    let mut noise = Noise::new(seed);
    let mut left = bytes;
    let mut block = vec![0; 1 << 16];
    while left > 0 {
        let part = left.min(block.len());
        noise.fill(&mut block[..part]);
        file.write_all(&block[..part]).unwrap();
        left -= part;
    }
    file.flush().unwrap();
}

/// Pseudo-random bytes (xorshift): the same for the same seed.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

/// Whether two files hold the same bytes.
#[track_caller]
pub fn assert_same(left: &Path, right: &Path) {
    let (left, right) = (fs::read(left).unwrap(), fs::read(right).unwrap());
    assert_eq!(left.len(), right.len());
    assert!(left == right, "the bytes differ");
}

/// Whether a folder holds no file but these names.
#[track_caller]
pub fn assert_only(folder: &Path, names: &[&str]) {
    let mut found: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, names);
}
