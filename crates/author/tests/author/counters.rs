//! One home, many programs: counters are issued once, also by programs that are killed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use author::Home;
use env::SystemEntropy;

use crate::network::PASSPHRASE;

/// The folder that a child of this test issues counters from.
const CHILD_HOME: &str = "AUTHOR_TEST_CHILD_HOME";
const CHILDREN: usize = 3;
const ROUNDS: usize = 4;

/// Issues counters and prints each, until it is killed.
fn child(dir: &Path) -> ! {
    let home = Home::open(dir, PASSPHRASE).unwrap();
    loop {
        let counters = home.issue(2).unwrap();
        let mut out = std::io::stdout().lock();
        for counter in counters {
            writeln!(out, "counter {counter}").unwrap();
        }
        out.flush().unwrap();
    }
}

fn start(dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "counters::programs_that_are_killed_never_issue_a_counter_twice";
    command.args(["--exact", name, "--nocapture"]).env(CHILD_HOME, dir);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn programs_that_are_killed_never_issue_a_counter_twice() {
    if let Some(dir) = std::env::var_os(CHILD_HOME) {
        child(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("home");
    Home::create_with(&dir, PASSPHRASE, &SystemEntropy, 10).unwrap();
    let mut issued = BTreeSet::new();
    let mut last = 0;
    for round in 0..ROUNDS {
        let mut children: Vec<Child> = (0..CHILDREN).map(|_| start(&dir)).collect();
        let outputs: Vec<_> =
            children.iter_mut().map(|child| child.stdout.take().unwrap()).collect();
        // Each is killed in the middle of its work, after another number of counters.
        let readers =
            children.into_iter().zip(outputs).enumerate().map(|(number, (mut child, out))| {
                std::thread::spawn(move || {
                    let mut counters = Vec::new();
                    for line in BufReader::new(out).lines().map_while(Result::ok) {
                        // A line cut by the kill does not count; one that is whole was printed after it was issued.
                        let counter =
                            line.strip_prefix("counter ").and_then(|text| text.parse().ok());
                        counters.extend::<Option<u64>>(counter);
                        if counters.len() == 5 + 3 * number + round {
                            child.kill().unwrap();
                            child.wait().unwrap();
                        }
                    }
                    counters
                })
            });
        let readers: Vec<_> = readers.collect();
        for reader in readers {
            for counter in reader.join().unwrap() {
                assert!(issued.insert(counter), "{counter} was issued twice");
            }
        }
        let next = Home::open(&dir, PASSPHRASE).unwrap().next_counter().unwrap();
        assert!(issued.iter().all(|counter| *counter < next));
        assert!(next > last);
        last = next;
    }
    assert!(issued.len() >= ROUNDS * CHILDREN * 5);
}
