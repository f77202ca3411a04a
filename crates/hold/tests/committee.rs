//! Four librarians of four organisations, as processes, found a committee and certify heads: through kills, lost races, unlisted
//! writers, versions that nobody keeps, and files that somebody changed.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::collections::HashSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{Home, Network, Outcome, Running, hold, run};
use serde_json::Value;

const COUNT: usize = 4;
/// The longest that a founding, or a committee that was cut short, may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Loopback addresses whose ports are free, below those that systems hand out to outgoing connections.
fn free_addresses(count: usize) -> Vec<String> {
    let first = 10_240 + (std::process::id() as u16 * 97) % 20_000;
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports = (first..32_768).filter(free).take(count);
    ports.map(|port| format!("127.0.0.1:{port}")).collect()
}

struct Four {
    network: Network,
    /// The committee's key.
    key: String,
}

impl Four {
    /// Four peers of four organisations that run, and the committee that they found.
    fn founded() -> Self {
        let mut network = Network::new(COUNT, &[]);
        network.add_peers(COUNT);
        network.start_all();
        network.acquainted();
        let listen = free_addresses(COUNT);
        let founders: Vec<Running> = (0..COUNT)
            .map(|which| {
                let others = network.peers.iter().enumerate().filter(|(one, _)| *one != which);
                let with: Vec<&str> = others.map(|(_, peer)| peer.address.as_str()).collect();
                let mut command = hold(["committee", "init", "--json", "--dir"]);
                command.arg(&network.peers[which].dir).args(["--listen", &listen[which]]);
                command.args(["--with", &with.join(","), "--within", "200"]);
                Running::start(&mut command)
            })
            .collect();
        let founded: Vec<Value> =
            founders.into_iter().map(|founder| founder.finish(PATIENCE).expect(0).json()).collect();
        let keys: HashSet<&str> =
            founded.iter().map(|one| one["committee"].as_str().unwrap()).collect();
        assert_eq!(keys.len(), 1, "{founded:?}");
        let members: HashSet<&str> =
            founded.iter().map(|one| one["member"].as_str().unwrap()).collect();
        assert_eq!(members.len(), COUNT);
        let key = keys.into_iter().next().unwrap().to_owned();
        Self { network, key }
    }

    fn head(&self, home: &Home, verb: &str, more: &[&str]) -> Command {
        let mut command = home.hold(["head", verb, "--json", "--committee", &self.key]);
        command.args(["--via", &self.network.everybody()]).args(more);
        command
    }

    fn object(&self, home: &Home, verb: &str, more: &[&str]) -> Outcome {
        let mut command = home.hold(["object", verb, "--json"]);
        run(command.args(["--via", &self.network.everybody()]).args(more))
    }

    /// Puts a version, keeps its receipts, and gives it.
    fn put(&self, home: &Home, value: &str) -> String {
        let put = self.object(home, "put", &["board", "--value", value, "--receipt"]);
        assert!(matches!(put.code, Some(0 | 3)), "{put:?}");
        let put = put.json();
        assert!(!put["receipts"].as_array().unwrap().is_empty());
        put["version"].as_str().unwrap().to_owned()
    }

    /// Runs it until it ends so, or is out of patience.
    fn until(&self, code: i32, mut command: impl FnMut() -> Command) -> Outcome {
        let started = Instant::now();
        loop {
            let outcome = run(&mut command());
            if outcome.code == Some(code) {
                return outcome;
            }
            assert!(started.elapsed() < PATIENCE, "not {code}: {outcome:?}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn verify(&self, file: &Path, more: &[&str]) -> Outcome {
        let mut command = hold(["committee", "verify", "--json", "--key", &self.key]);
        let network = self.network.network_id();
        run(command.arg(file).args(["--network-id", &network]).args(more))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.network.folder.path().join(name)
    }
}

impl Network {
    /// Its id, as a peer tells it.
    fn network_id(&self) -> String {
        let first = self.peers.iter().find(|peer| peer.running()).unwrap();
        first.status()["network_id"].as_str().unwrap().to_owned()
    }
}

#[test]
fn four_organisations_agree_through_kills_and_lies_are_found_offline() {
    let mut four = Four::founded();
    let (ada, eve) = (four.network.home("ada", 0), four.network.home("eve", 1));
    four.object(&ada, "create", &["board", "--open", "--public"]).expect(0);
    let first = four.put(&ada, "one");

    // The first update makes the object, and the holders that gave receipts, known; the answer is checked.
    let proof = four.file("proof");
    let kept = ["--proof", proof.to_str().unwrap()];
    let set = |version: &str, more: &[&str]| {
        let mut command = four.head(&ada, "update", &["board", version]);
        command.args(more);
        command
    };
    let decided = run(&mut set(&first, &kept)).expect(0).json();
    assert_eq!(decided["version"], first.as_str());
    let read_file = four.file("read");
    let to = ["board", "--proof", read_file.to_str().unwrap()];
    for more in [&["--fresh"][..], &[]] {
        let mut command = four.head(&ada, "read", &to);
        let read = run(command.args(more)).expect(0).json();
        assert_eq!((&read["version"], &read["since"]), (&first.as_str().into(), &decided["since"]));
    }

    // Lost races and others' hands.
    let second = four.put(&ada, "two");
    let at = format!("{first}@{}", decided["since"]);
    run(&mut set(&second, &["--expected", &at])).expect(0);
    let lost = run(&mut set(&first, &["--expected", &at])).expect(14);
    assert!(lost.error().contains(&second), "{lost:?}");
    let owner = ada.hold(["keys", "show", "--owner", "--json"]);
    let owner = run(&mut { owner }).expect(0).json();
    let named = format!("{}:board", owner["owner_key"].as_str().unwrap());
    let refused = run(&mut four.head(&eve, "update", &[&named, &first])).expect(13);
    assert!(refused.error().contains("writer"), "{refused:?}");
    let nowhere = format!("{}:7:{}", "ab".repeat(32), "00".repeat(16));
    let refused = run(&mut set(&nowhere, &[])).expect(2);
    assert!(refused.error().contains("receipts"), "{refused:?}");

    let status = || {
        let mut command = ada.hold(["committee", "status", "--json", "--committee", &four.key]);
        command.args(["--via", &four.network.everybody()]);
        command
    };
    let told = run(&mut status()).expect(0).json();
    assert_eq!((told["voting"].as_u64(), told["needed"].as_u64()), (Some(4), Some(3)));
    let own = four.network.peers[0].status();
    assert_eq!(own["committee"]["committee"], four.key.as_str());
    assert!(four.network.peers[0].counter("holdfast_committee_height") > 0);

    verifies_what_holds_and_nothing_else(&four, &proof, &read_file);

    // One is killed: it goes on. What the others need later is put while enough of them live.
    let [third, fourth] = ["three", "four"].map(|value| four.put(&ada, value));
    four.network.peers[3].kill();
    let set = |four: &Four, version: &str| four.head(&ada, "update", &["board", version]);
    four.until(0, || set(&four, &third));
    // Two are killed: updates end, reads with proofs go on.
    four.network.peers[2].kill();
    let few = four.until(15, || set(&four, &fourth));
    assert!(few.error().contains("not enough members"), "{few:?}");
    let read = run(&mut four.head(&ada, "read", &to)).expect(0).json();
    assert_eq!(read["version"], third.as_str());
    four.verify(&read_file, &[]).expect(0);
    let fresh = run(four.head(&ada, "read", &to).arg("--fresh")).expect(15);
    assert!(fresh.error().contains("not enough members"), "{fresh:?}");
    // One returns, on its folder.
    four.network.peers[2].start();
    four.until(0, || set(&four, &fourth));
    let read = four.until(0, || {
        let mut command = four.head(&ada, "read", &to);
        command.arg("--fresh");
        command
    });
    assert_eq!(read.json()["version"], fourth.as_str());
    for peer in &mut four.network.peers[..3] {
        assert_eq!(peer.terminate(), Some(0));
    }
}

/// Yes to the real ones, and no with the reason to each that was changed.
fn verifies_what_holds_and_nothing_else(four: &Four, answer: &Path, read: &Path) {
    let object = |path: &Path| four.verify(path, &[]).expect(0).json();
    let (answered, told) = (object(answer), object(read));
    assert_eq!((&answered["kind"], &answered["outcome"]), (&"answer".into(), &"accepted".into()));
    assert_eq!((&told["kind"], &told["branch"]), (&"read".into(), &"main".into()));
    let object = told["object"].as_str().unwrap();
    four.verify(read, &["--object", object, "--branch", "main"]).expect(0);

    // Another object's path.
    let other = "cd".repeat(32);
    for file in [answer, read] {
        let no = four.verify(file, &["--object", &other]).expect(16);
        assert!(no.error().contains("another's"), "{no:?}");
        let no = four.verify(file, &["--branch", "elsewhere"]).expect(16);
        assert!(no.error().contains("another's"), "{no:?}");
    }
    // Another network, and another committee.
    let mut elsewhere = hold(["committee", "verify", "--key", &four.key, "--network-id", &other]);
    run(elsewhere.arg(read)).expect(13);
    // One bit, anywhere: some here, each in the crate's own tests.
    for file in [answer, read] {
        let bytes = fs::read(file).unwrap();
        let changed = four.file("changed");
        for at in (0..bytes.len()).step_by(bytes.len() / 24) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&changed, &bytes).unwrap();
            let no = four.verify(&changed, &[]);
            assert!(matches!(no.code, Some(2 | 13 | 16)), "byte {at}: {no:?}");
            assert!(!no.error().is_empty(), "byte {at}");
        }
        fs::write(&changed, &bytes[..bytes.len() - 1]).unwrap();
        four.verify(&changed, &[]).expect(2);
    }
    // An altered height: behind prefix, network, key and epoch of the certificate's header.
    let bytes = fs::read(read).unwrap();
    let header = b"holdfast head v1";
    let at = bytes.windows(header.len()).position(|window| window == header).unwrap();
    let at = at + header.len() + 32 + 96;
    for field in [at + 7, at + 15] {
        let mut bytes = bytes.clone();
        bytes[field] ^= 1;
        let changed = four.file("changed");
        fs::write(&changed, &bytes).unwrap();
        let no = four.verify(&changed, &[]).expect(16);
        assert!(no.error().contains("did not sign"), "{no:?}");
    }
}
