//! The guides are followed word by word: every command by the person who is named before it, and what it shows is what is shown.
//!
//! `…` in what is shown stands for anything. A word that is cut off, as `hold:5d41…`, stands for one word of a run: that which is
//! shown where it is first, and is used in later commands. `^C` ends the peer that its person runs. Founders found at the same time. Only the ports
//! are others, so that tests can run beside each other.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Outcome, PASSPHRASE, Running, free_addresses, hold};

/// The longest that a step may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(240);
/// Commands that persons give at the same time.
const TOGETHER: &str = "hold committee init";

struct Step {
    person: String,
    command: String,
    shown: Vec<String>,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            let person = line.split_once("$ ").filter(|(person, _)| {
                !person.is_empty() && person.bytes().all(|byte| byte.is_ascii_lowercase())
            });
            match person {
                Some((person, command)) => steps.push(Step {
                    person: person.to_owned(),
                    command: command.trim().to_owned(),
                    shown: Vec::new(),
                }),
                None => steps.last_mut().unwrap().shown.push(line.to_owned()),
            }
        }
    }
    steps
}

/// Whether a text has what is shown, in which `…` is anything.
fn shows(text: &str, shown: &str) -> bool {
    let mut rest = text;
    shown.split('…').all(|part| match rest.split_once(part) {
        Some((_, behind)) => {
            rest = behind;
            true
        }
        None => false,
    })
}

/// Whether it is the beginning of a word that differs from run to run.
fn is_cut_off(word: &str) -> bool {
    let begun = word.strip_suffix('…').map(|word| word.rsplit(':').next().unwrap());
    begun.is_some_and(|begun| begun.len() > 3 && begun.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The people, who share a machine here: the folder they work in, and the user whose terminals they type in.
struct People {
    folder: tempfile::TempDir,
    ports: Vec<(String, String)>,
    exports: BTreeMap<String, String>,
    /// Words that are cut off, and what they stand for in this run.
    words: BTreeMap<String, String>,
    peers: BTreeMap<String, Child>,
}

impl People {
    fn new(text: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("hold-guide-").tempdir().unwrap();
        let mut named: Vec<&str> = text
            .match_indices("127.0.0.1:")
            .map(|(at, _)| text[at..].split(|c: char| c != '.' && c != ':' && !c.is_ascii_digit()))
            .filter_map(|mut words| words.next())
            .collect();
        named.sort_unstable();
        named.dedup();
        let free = free_addresses(named.len());
        let ports = named.iter().map(|name| String::from(*name)).zip(free);
        let ports = ports.collect();
        let (exports, words, peers) = Default::default();
        Self { folder, ports, exports, words, peers }
    }

    fn here(&self, command: &str) -> String {
        let ports = self.ports.iter().map(|(name, here)| (name, here));
        let all = ports.chain(&self.words);
        all.fold(command.to_owned(), |command, (name, here)| command.replace(name, here))
    }

    /// Learns what the words that are cut off stand for, by what came in their places.
    fn learn(&mut self, step: &Step, text: &str) {
        for (shown, line) in step.shown.iter().zip(text.lines()) {
            let words = [shown, line].map(|line| line.split(' ').next().unwrap());
            if is_cut_off(words[0]) {
                self.words.entry(words[0].to_owned()).or_insert_with(|| words[1].to_owned());
            }
        }
    }

    fn shell(&self, person: &str, command: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_hold")).parent().unwrap();
        let path = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect::<Vec<_>>();
        let path = std::env::join_paths([program.to_owned()].into_iter().chain(path)).unwrap();
        let mut shell = Command::new("bash");
        // As in other tests, nothing of this machine's settings.
        for (name, _) in hold([] as [&str; 0]).get_envs() {
            shell.env_remove(name);
        }
        let exports = self.exports.get(person).map_or("", String::as_str);
        shell.args(["-c", &format!("{exports}\n{}", self.here(command))]);
        // One for all: who does not say where the own keys are has those of the others.
        let home = self.folder.path().join("home");
        fs::create_dir_all(&home).unwrap();
        shell.current_dir(self.folder.path()).env("PATH", path).env("HOME", home);
        shell.env("HOLD_PASSPHRASE", PASSPHRASE).env("LC_ALL", "C");
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell
    }

    fn start(&mut self, step: &Step) {
        let log = fs::File::create(self.folder.path().join(format!("{}.log", step.person)));
        let mut command = self.shell(&step.person, &format!("exec {}", step.command));
        let mut child = command.stderr(log.unwrap()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "{}: {line}", step.command);
        assert!(self.peers.insert(step.person.clone(), child).is_none());
    }

    fn end(&mut self, person: &str) {
        let mut peer = self.peers.remove(person).expect("it runs");
        harness::signal(i32::try_from(peer.id()).unwrap(), "INT");
        assert_eq!(peer.wait().unwrap().code(), Some(0), "{person}");
    }

    /// What a step came to, where it is what is shown.
    fn held(&mut self, step: &Step, done: &Outcome) -> bool {
        let fails = step.shown.iter().any(|line| line.starts_with("error:"));
        let right = match fails {
            true => !matches!(done.code, Some(0 | 3)),
            // What is safe, and not at all peers while one is away, is 3.
            false => matches!(done.code, Some(0 | 3)),
        };
        if right {
            self.learn(step, &done.text());
        }
        let text = format!("{}{}", done.text(), done.stderr);
        right && step.shown.iter().all(|line| shows(&text, &self.here(line)))
    }

    /// Takes a step. Members that were just founded, or lost one, may need a moment, as for people.
    fn take(&mut self, step: &Step) {
        let Step { person, command, .. } = step;
        if command.starts_with("hold peer run") {
            return self.start(step);
        }
        if command == "^C" {
            return self.end(person);
        }
        if command.starts_with("export ") {
            let command = self.here(command);
            self.exports.entry(person.clone()).or_default().push_str(&format!("{command}\n"));
            return;
        }
        let started = Instant::now();
        loop {
            let done = Running::start(&mut self.shell(person, command)).finish(PATIENCE);
            if self.held(step, &done) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{person}$ {command}\n{done:?}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn follow(&mut self, steps: &[Step]) {
        let mut rest = steps;
        while let Some((first, behind)) = rest.split_first() {
            let count = rest.iter().take_while(|one| one.command.starts_with(TOGETHER)).count();
            if count == 0 {
                self.take(first);
                rest = behind;
                continue;
            }
            let (together, behind) = rest.split_at(count);
            let shell = |one: &Step| Running::start(&mut self.shell(&one.person, &one.command));
            let running: Vec<Running> = together.iter().map(shell).collect();
            for (step, running) in together.iter().zip(running) {
                let done = running.finish(PATIENCE);
                assert!(self.held(step, &done), "{}$ {}\n{done:?}", step.person, step.command);
            }
            rest = behind;
        }
    }
}

impl Drop for People {
    fn drop(&mut self) {
        for peer in self.peers.values_mut() {
            let _ = peer.kill();
            let _ = peer.wait();
        }
    }
}

fn page(name: &str) -> String {
    let path = Path::new(testkit::manifest!()).join("../../docs").join(name);
    fs::read_to_string(path).unwrap()
}

#[test]
fn four_organisations_agree_as_the_guide_says() {
    let text = page("guides/four-organisations.md");
    let steps = steps(&text);
    assert!(steps.len() > 35, "{}", steps.len());
    let mut people = People::new(&text);
    people.follow(&steps);
    let left: Vec<String> = people.peers.keys().cloned().collect();
    assert_eq!(left, ["clinic", "company", "research"]);
    left.iter().for_each(|person| people.end(person));
}

#[test]
fn the_first_steps_are_those_of_the_page() {
    let text = page("start/README.md");
    let steps = steps(&text);
    assert!(steps.len() > 20, "{}", steps.len());
    let mut people = People::new(&text);
    let folder = people.folder.path().to_owned();
    fs::write(folder.join("report.pdf"), "what the user put").unwrap();
    people.follow(&steps);
    assert_eq!(fs::read_to_string(folder.join("copy.pdf")).unwrap(), "what the user put");
}

#[test]
fn what_is_shown_is_found_in_its_order() {
    assert!(shows("a 12 b 34 c", "a … b … c"));
    assert!(!shows("b a", "a … b"));
    assert!(["hold:5d41…", "02c6…"].into_iter().all(is_cut_off));
    assert!(!["…@…", "…", "hold:5d41", "there…"].into_iter().any(is_cut_off));
    let steps = steps("x\n```console\nada$ one\n…\nada$   two | cut -d' ' -f1\n```\n");
    assert_eq!(steps.len(), 2);
    assert_eq!((steps[0].shown.len(), &*steps[1].command), (1, "two | cut -d' ' -f1"));
}
