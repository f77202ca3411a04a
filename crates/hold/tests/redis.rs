//! The door for Redis's clients as a process: what it answered is there after SIGKILL, and so is every version before it.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use harness::{Home, Network, hold, run, signal};
use serde_json::Value;

/// A librarian with the door, killed when dropped.
struct Door {
    child: Child,
    address: String,
}

impl Door {
    fn start(home: &Home, peer: &Path, more: &[&str]) -> Self {
        let mut command = home.hold(["serve", "redis", "--json", "--listen", "127.0.0.1:0"]);
        command.arg("--peer").arg(peer).args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(ready["ready"], true);
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address: ready["redis"].as_str().unwrap().to_owned() }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client(BufReader::new(stream))
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Line(String),
    Error(String),
    Number(i64),
    Bytes(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

/// A caller that knows RESP2 and nothing else of the door.
struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, parts: &[&[u8]]) {
        let mut out = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&out).unwrap();
    }

    fn read(&mut self) -> Reply {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1);
        match kind {
            "+" => Reply::Line(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(rest.parse().unwrap()),
            "$" if rest == "-1" => Reply::Bytes(None),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Reply::Bytes(Some(bytes))
            }
            "*" => Reply::Array((0..rest.parse().unwrap()).map(|_| self.read()).collect()),
            _ => panic!("{line}"),
        }
    }

    fn ask(&mut self, line: &str) -> Reply {
        self.send(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        self.read()
    }

    fn text(&mut self, line: &str) -> String {
        match self.ask(line) {
            Reply::Bytes(Some(bytes)) => String::from_utf8(bytes).unwrap(),
            other => panic!("{line}: {other:?}"),
        }
    }
}

fn ok() -> Reply {
    Reply::Line("OK".to_owned())
}

fn network() -> (Network, Home, std::path::PathBuf) {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let home = network.home("owner", 0);
    let peer = network.peers[0].dir.clone();
    (network, home, peer)
}

#[test]
fn what_was_answered_is_there_after_a_kill_with_every_version_before_it() {
    let (_network, home, peer) = network();
    let door = Door::start(&home, &peer, &["--compress", "all"]);
    let mut client = door.client();
    assert_eq!(client.ask("PING"), Reply::Line("PONG".to_owned()));
    for number in 0..200 {
        assert_eq!(client.ask(&format!("SET counter {number}")), ok());
        assert_eq!(
            client.ask(&format!("HSET person:{number} name n{number} age 7")),
            Reply::Number(2)
        );
    }
    assert_eq!(client.ask("ZADD order 3 c 1 a 2 b"), Reply::Number(3));
    assert_eq!(client.ask("DEL person:7"), Reply::Number(1));
    let long = "x".repeat(1 << 20);
    assert_eq!(client.ask(&format!("SET long {long}")), ok());
    // A thousand writes in one pipeline; some answers are read, and the program is killed.
    for number in 0..1000 {
        client.send(&[b"SET", format!("many:{number}").as_bytes(), b"value"]);
    }
    for _ in 0..500 {
        assert_eq!(client.read(), ok());
    }
    signal(i32::try_from(door.child.id()).unwrap(), "KILL");
    drop(door);

    let door = Door::start(&home, &peer, &[]);
    let mut client = door.client();
    for number in 0..500 {
        assert_eq!(client.text(&format!("GET many:{number}")), "value");
    }
    assert_eq!(client.text("GET counter"), "199");
    assert_eq!(client.text("HGET person:199 name"), "n199");
    assert_eq!(client.ask("EXISTS person:7"), Reply::Number(0));
    assert_eq!(client.text("GET long").len(), 1 << 20);
    let Reply::Array(order) = client.ask("ZRANGE order 0 -1") else { panic!("no array") };
    let member = |name: &str| Reply::Bytes(Some(name.as_bytes().to_vec()));
    assert_eq!(order, [member("a"), member("b"), member("c")]);
    // History: 199 versions behind the tip.
    let Reply::Array(tips) = client.ask("HOLD.TIPS counter") else { panic!("no array") };
    let [Reply::Bytes(Some(tip))] = &tips[..] else { panic!("{tips:?}") };
    let tip = String::from_utf8(tip.clone()).unwrap();
    assert_eq!(client.text(&format!("HOLD.GET counter {tip}")), "199");
    let before = client.ask(&format!("HOLD.PREV counter {tip} 1000"));
    let Reply::Array(before) = before else { panic!("{before:?}") };
    assert_eq!(before.len(), 199);
    // It ends well, and a second life finds the same.
    signal(i32::try_from(door.child.id()).unwrap(), "TERM");
    let mut door = door;
    assert_eq!(door.child.wait().unwrap().code(), Some(0));
    let door = Door::start(&home, &peer, &["--durability", "group"]);
    let mut client = door.client();
    assert_eq!(client.text("GET counter"), "199");
    assert_eq!(client.ask("SET counter 200"), ok());
}

#[test]
fn a_password_is_asked_for_and_others_than_loopback_need_one() {
    let (network, home, peer) = network();
    let secret = network.folder.path().join("secret");
    std::fs::write(&secret, "open sesame\n").unwrap();
    let door = Door::start(&home, &peer, &["--password-file", secret.to_str().unwrap()]);
    let mut client = door.client();
    let Reply::Error(refused) = client.ask("GET a") else { panic!("it answered") };
    assert!(refused.starts_with("NOAUTH"), "{refused}");
    client.send(&[b"AUTH", b"open sesame"]);
    assert_eq!(client.read(), ok());
    assert_eq!(client.ask("GET a"), Reply::Bytes(None));
    drop(door);
    let exposed = ["serve", "redis", "--listen", "0.0.0.0:0", "--peer", peer.to_str().unwrap()];
    let refused = run(&mut home.hold(exposed)).expect_error(2);
    assert!(refused.stderr.contains("password"), "{}", refused.stderr);
    let missing = ["serve", "redis", "--peer", "/nowhere/peer"];
    run(&mut home.hold(missing)).expect_error(10);
    run(&mut hold(["serve", "redis"])).expect_error(2);
}

/// How long a peer may take to hand over what it holds.
const LEAVE_LIMIT: Duration = Duration::from_secs(300);
const REPAIR: &str = "\n[repair]\nabsent_after_s = 5\ncompare_s = 1\nsettle_s = 2\n";

#[test]
fn a_peer_that_leaves_ends_the_writes_of_its_door_first_and_hands_over_all_that_it_answered() {
    let mut network = Network::new(3, &[]);
    network.add_peers(5);
    for peer in &network.peers {
        let path = peer.dir.join("peer.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text + REPAIR).unwrap();
    }
    let home = network.home("owner", 0);
    let leaver = network.peers[0].dir.clone();
    // Killed before it attested what it had answered; who opens the door next does.
    let door = Door::start(&home, &leaver, &[]);
    let mut writer = door.client();
    for number in 0..50 {
        assert_eq!(writer.ask(&format!("SET killed{number} value{number}")), ok());
    }
    drop(door);
    let mut door = Door::start(&home, &leaver, &[]);
    network.peers[1..].iter_mut().for_each(harness::Peer::start);
    let started = Instant::now();
    while network.peers[1].status()["peers"]["healthy"].as_u64() < Some(4) {
        assert!(started.elapsed() < LEAVE_LIMIT, "they never met");
        std::thread::sleep(Duration::from_millis(50));
    }

    let (mut writer, mut reader) = (door.client(), door.client());
    let writing = std::thread::spawn(move || {
        let mut answered = 0;
        loop {
            match writer.ask(&format!("SET key{answered} value{answered}")) {
                Reply::Line(_) => answered += 1,
                Reply::Error(text) => return (answered, text),
                other => panic!("{other:?}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let leaving = harness::Running::start(hold(["peer", "leave", "--json", "--dir"]).arg(&leaver));
    let (answered, told) = writing.join().unwrap();
    assert!(told.starts_with("READONLY") && told.contains("leaves"), "{told}");
    assert!(answered > 0);
    assert_eq!(reader.text("GET key0"), "value0", "reads go on");
    let left = leaving.finish(LEAVE_LIMIT).expect(0).json();
    assert_eq!(left["left"], true, "{left}");
    assert_eq!(door.child.wait().unwrap().code(), Some(0), "it ended by itself");

    // What was answered last is at the others, and so is what was answered first.
    let listed = run(&mut home.hold(["keys", "list", "--json"])).expect(0).json();
    let owner = listed["owner_key"].as_str().unwrap();
    let via = network.via();
    let last = (answered - answered.min(10)..answered).map(|number| ("key", number));
    for (key, number) in [("key", 0), ("killed", 0), ("killed", 49)].into_iter().chain(last) {
        let object = format!("{owner}:redis/k{key}{number}");
        // Those that have it now may still have to hear that the leaver is gone.
        let got = loop {
            let got = run(&mut home.hold(["object", "get", &object, "--via", &via]));
            if got.code == Some(0) {
                break got;
            }
            assert!(started.elapsed() < LEAVE_LIMIT, "{key}{number}: {got:?}");
            std::thread::sleep(Duration::from_secs(1));
        };
        assert_eq!(got.text(), format!("value{number}"));
    }
    let serve = ["serve", "redis", "--listen", "127.0.0.1:0", "--peer", leaver.to_str().unwrap()];
    let refused = run(&mut home.hold(serve)).expect_error(2);
    assert!(refused.stderr.contains("has left"), "{}", refused.stderr);
    // Nor is a door opened on one that has not handed over everything yet.
    std::fs::remove_file(leaver.join("left")).unwrap();
    let refused = run(&mut home.hold(serve)).expect_error(2);
    assert!(refused.stderr.contains("leaves the network"), "{}", refused.stderr);
}
