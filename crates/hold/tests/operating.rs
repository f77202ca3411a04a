//! The pages for operators are true: every `console` block of `docs/operating` is run, in the order of its
//! index, and what it shows is in the answers; links and the unit of systemd hold.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::{PATIENCE, Running, hold, run, signal};

/// In the order of the index.
const PAGES: [&str; 4] = ["peer.md", "backup.md", "disk.md", "certificates.md"];

fn docs() -> PathBuf {
    Path::new(testkit::manifest!()).join("../../docs/operating")
}

fn page(name: &str) -> String {
    fs::read_to_string(docs().join(name)).unwrap()
}

/// A command of a page, and what is to be seen in its answer.
struct Step {
    page: &'static str,
    command: String,
    shown: Vec<String>,
}

fn steps(name: &'static str) -> Vec<Step> {
    let text = page(name);
    let mut steps: Vec<Step> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            match line.strip_prefix("$ ") {
                Some(command) => {
                    steps.push(Step { page: name, command: command.to_owned(), shown: Vec::new() });
                }
                None => steps.last_mut().unwrap().shown.push(line.to_owned()),
            }
        }
    }
    steps
}

/// What `sudo` is here, where there is one user: the peer's user sees nothing of the operator's folder, nor what its shell exported, and
/// `/srv/holdfast` is there for who comes through here alone.
const SUDO: &str = r#"#!/bin/bash
unset "${!HOLD_@}"
if [ "$1 $2" = "-u holdfast" ]; then
  shift 2
  cd /
fi
words=()
while [ $# -gt 0 ]; do
  if [ "$1 $2" = "-o holdfast" ]; then shift 2; continue; fi
  words+=("${1//\/srv\/holdfast/$OPERATING_SRV}")
  shift
done
exec "${words[@]}"
"#;

/// The operator's machine: a folder, the peer that its systemd runs, and what the shell exported.
struct Machine {
    folder: tempfile::TempDir,
    ports: Vec<(&'static str, String)>,
    revoked: String,
    exports: Vec<String>,
    peer: Option<Child>,
}

impl Machine {
    /// An organisation and its network, as `docs/start` makes them.
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("hold-operating-").tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        run(hold(["org", "init", "--dir"]).arg(at("clinic"))).expect(0);
        let mut network = hold(["network", "init", "--org"]);
        run(network.arg(at("clinic")).arg("-o").arg(at("health.network"))).expect(0);
        // A peer whose key is to be revoked.
        let mut lost = hold(["peer", "init", "--json", "--dir"]);
        lost.arg(at("lost")).arg("--network").arg(at("health.network"));
        let revoked = run(&mut lost).expect(0).json()["peer"].as_str().unwrap().to_owned();
        let listeners = [":7100", ":7101", ":9100"]
            .map(|name| (name, TcpListener::bind("127.0.0.1:0").unwrap()));
        let ports = listeners
            .map(|(name, listener)| (name, format!(":{}", listener.local_addr().unwrap().port())));
        fs::create_dir(at("srv")).unwrap();
        fs::create_dir(at("bin")).unwrap();
        fs::write(at("bin/sudo"), SUDO).unwrap();
        fs::set_permissions(at("bin/sudo"), fs::Permissions::from_mode(0o755)).unwrap();
        let (ports, exports) = (ports.to_vec(), Vec::new());
        Self { folder, ports, revoked, exports, peer: None }
    }

    /// The command as it is here: other ports, another host, and a key that is one.
    fn here(&self, command: &str) -> String {
        let mut command = command.replace(" KEY ", " REVOKED ");
        for (name, port) in &self.ports {
            command = command.replace(name, port);
        }
        command
            .replace("peer1.example.org", "127.0.0.1")
            .replace(" REVOKED ", &format!(" {} ", self.revoked))
    }

    fn start(&mut self) {
        assert!(self.peer.is_none(), "it runs already");
        let mut command = hold(["peer", "run", "--dir"]);
        command.arg(self.folder.path().join("srv/peer"));
        let log = fs::File::create(self.folder.path().join("journal")).unwrap();
        self.peer = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    fn stop(&mut self) {
        let mut peer = self.peer.take().expect("it runs");
        signal(i32::try_from(peer.id()).unwrap(), "TERM");
        assert_eq!(peer.wait().unwrap().code(), Some(0));
    }

    fn shell(&self, command: &str) -> (bool, String) {
        let program = Path::new(env!("CARGO_BIN_EXE_hold")).parent().unwrap();
        let path = std::env::join_paths(
            [self.folder.path().join("bin"), program.to_owned()]
                .into_iter()
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        // The shell sees what `hold` sees in other tests.
        let mut shell = hold([] as [&str; 0]);
        let environment: Vec<_> = shell.get_envs().map(|(name, _)| name.to_owned()).collect();
        shell = Command::new("bash");
        for name in environment {
            shell.env_remove(name);
        }
        let script = format!("{}{command}", self.exports.concat());
        shell.args(["-c", &script]).current_dir(self.folder.path()).env("PATH", path.unwrap());
        shell.env("HOME", self.folder.path());
        shell.env("OPERATING_SRV", self.folder.path().join("srv"));
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = Running::start(&mut shell).finish(PATIENCE);
        (done.code == Some(0), format!("{}{}", done.text(), done.stderr))
    }

    /// Runs a step; what it shows may take a moment, as it does for an operator.
    fn take(&mut self, step: &Step) {
        match step.command.strip_prefix("sudo systemctl ") {
            Some("start holdfast") => return self.start(),
            Some("stop holdfast") => return self.stop(),
            Some("restart holdfast") => {
                self.stop();
                return self.start();
            }
            Some(other) => panic!("{}: systemctl {other}", step.page),
            None => {}
        }
        if step.command.starts_with("export ") {
            self.exports.push(format!("{}\n", step.command));
            return;
        }
        let command = self.here(&step.command);
        let started = Instant::now();
        loop {
            let (done, answer) = self.shell(&command);
            if done && step.shown.iter().all(|part| answer.contains(part)) {
                return;
            }
            let again = !step.shown.is_empty() && started.elapsed() < PATIENCE;
            let journal = fs::read_to_string(self.folder.path().join("journal"));
            let journal = journal.unwrap_or_default();
            assert!(again, "{}: {}\n{answer}\n{journal}", step.page, step.command);
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut peer) = self.peer.take() {
            let _ = peer.kill();
            let _ = peer.wait();
        }
    }
}

#[test]
fn every_command_of_the_operators_pages_does_what_they_say() {
    let curl = Command::new("curl").arg("--version").output().is_ok();
    if !curl {
        testkit::missing("the operators' commands that call curl, which is not installed");
    }
    let mut machine = Machine::new();
    let mut run = 0;
    for step in PAGES.into_iter().flat_map(steps) {
        if step.command.starts_with("curl") && !curl {
            continue;
        }
        machine.take(&step);
        run += 1;
    }
    assert!(run > 35, "{run}");
    assert_eq!(machine.peer.as_mut().unwrap().try_wait().unwrap(), None);
    machine.stop();
}

#[test]
fn the_index_lists_every_page_and_every_link_leads_somewhere() {
    let index = page("README.md");
    for file in fs::read_dir(docs()).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(name == "README.md" || index.contains(&format!("]({name})")), "{name}");
        let text = page(&name);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { name.clone() } else { file.to_owned() };
            let there = fs::read_to_string(docs().join(&target));
            let there = there.unwrap_or_else(|_| panic!("{name}: {link}"));
            let headings = there.lines().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(|line| {
                let title = line.trim_start_matches('#').trim().to_lowercase();
                let kept = title.chars().filter(|c| c.is_alphanumeric() || " -".contains(*c));
                kept.collect::<String>().replace(' ', "-")
            });
            assert!(anchor.is_empty() || anchors.any(|found| found == anchor), "{name}: {link}");
        }
    }
}

#[test]
fn systemd_takes_the_unit() {
    let text = page("peer.md");
    let unit = text.split("```ini\n").nth(1).unwrap().split("```").next().unwrap();
    let unit = unit.replace("/usr/local/bin/hold", env!("CARGO_BIN_EXE_hold"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("holdfast.service");
    fs::write(&path, unit).unwrap();
    let Ok(done) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output()
    else {
        return testkit::skipped("the unit: systemd-analyze is not installed");
    };
    let said = String::from_utf8_lossy(&done.stderr);
    let ours: Vec<_> = said.lines().filter(|line| line.contains("holdfast.service")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}
