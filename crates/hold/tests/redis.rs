//! The door for Redis's clients as a process: what it answered is there after SIGKILL, and so is every version before it.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

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
