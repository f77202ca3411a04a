//! What is typed twice, in the wrong order, or with a file of another time: each is told, and nothing is half done.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Home, Network, Outcome, PATIENCE, Running, assert_only, hold, run, until_handled};

/// Public keys of nobody here.
const KEYS: [&str; 2] = [
    "02531fe6068134503d2723133227c867ac8fa6c83c537e9a44c3c5bdbdcb1fe337",
    "03774ae7f858a9411e5ef4246b70c65aac5649980be5c17891bbec17895da008cb",
];

#[track_caller]
fn revoked(outcome: &Outcome) -> Vec<String> {
    let list = outcome.json()["revoked"].as_array().unwrap().clone();
    list.iter().map(|key| key.as_str().unwrap().to_owned()).collect()
}

/// The list that an organisation's directory keeps.
fn kept_of(org: &Path) -> PathBuf {
    let paths = fs::read_dir(org).unwrap().map(|item| item.unwrap().path());
    let is_one =
        |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("revoked-");
    let kept: Vec<PathBuf> = paths.filter(is_one).collect();
    assert_eq!(kept.len(), 1);
    kept[0].clone()
}

#[test]
fn a_list_of_revoked_keys_goes_on_from_the_last_one_wherever_that_is_kept() {
    let mut network = Network::new(2, &[]);
    network.add_peers(1);
    let folder = network.folder.path();
    let list = |name: &str| folder.join(name);
    let revoke = |org: usize, key: &str, args: &[&str], to: &Path| {
        let mut command = hold(["org", "revoke", "--json", "--key", key, "--dir"]);
        command.arg(&network.orgs[org]).arg("--network").arg(&network.file);
        run(command.args(args).arg("-o").arg(to))
    };
    // Nothing to undo.
    let none = revoke(0, KEYS[0], &["--undo"], &list("none")).expect_error(2);
    assert!(none.stderr.contains("--from"), "{}", none.stderr);
    assert!(!list("none").exists());
    let first = revoke(0, KEYS[0], &[], &list("first")).expect(0);
    assert!(first.stderr.contains("no earlier list"), "{}", first.stderr);
    // Another copy of the organisation's directory, which has no list: as after a loss, or on another machine.
    let kept = kept_of(&network.orgs[0]);
    fs::remove_file(&kept).unwrap();
    // The list of another organisation is none of this one's.
    revoke(1, KEYS[1], &[], &list("others")).expect(0);
    let others = list("others").to_str().unwrap().to_owned();
    let wrong = revoke(0, KEYS[1], &["--from", &others], &list("none")).expect_error(2);
    assert!(wrong.stderr.contains("another organisation"), "{}", wrong.stderr);
    let from = list("first").to_str().unwrap().to_owned();
    let second = revoke(0, KEYS[1], &["--from", &from], &list("second")).expect(0);
    assert_eq!(revoked(&second), KEYS);
    assert!(!second.stderr.contains("no earlier list"), "{}", second.stderr);
    // An older list than the one that is kept takes nothing back.
    let third = revoke(0, KEYS[0], &["--undo", "--from", &from], &list("third")).expect(0);
    assert_eq!(revoked(&third), KEYS[1..]);
    // A pipe that it is sent through stays one.
    let pipe = list("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let through = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    revoke(0, KEYS[0], &["--undo"], &pipe).expect(0);
    assert!(!fs::metadata(&pipe).unwrap().is_file());
    assert_eq!(through.join().unwrap(), fs::read(&kept).unwrap());
    fs::write(list("third"), fs::read(&kept).unwrap()).unwrap();

    // One that was signed while the clock was ahead, which no peer takes: what it revokes goes on, and its date does not.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let text = fs::read_to_string(network.orgs[1].join("org.key")).unwrap();
    let secret: [u8; 32] = hex::decode(text.trim()).unwrap().try_into().unwrap();
    let secret = crypto::SecretKey::from_bytes(&secret).unwrap();
    let ahead = crypto::Revocation {
        organisation: crypto::OrgId::new(secret.public()),
        sequence: (now.as_secs() + 7_200) * 1000,
        keys: vec![*KEYS[0].parse::<crypto::ClientKey>().unwrap().key()],
    };
    let signed = kept_of(&network.orgs[1]);
    let id = signed.file_name().unwrap().to_str().unwrap().strip_prefix("revoked-").unwrap();
    fs::write(&signed, ahead.sign(&secret, &id.parse().unwrap())).unwrap();
    let right = revoke(1, KEYS[1], &[], &list("right")).expect(0);
    assert_eq!(revoked(&right), KEYS);
    assert!(right.stderr.contains("ahead"), "{}", right.stderr);

    // Numbers are milliseconds.
    let unix_ms = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::try_from(now.as_millis()).unwrap()
    };
    fs::remove_file(kept_of(&network.orgs[1])).unwrap();
    let before = unix_ms();
    let number = revoke(1, KEYS[1], &[], &list("dated")).expect(0).json()["sequence"].clone();
    let number = number.as_u64().unwrap();
    assert!((before..=unix_ms()).contains(&number), "{before} {number}");

    // A peer takes the newest, and says so of an older one.
    let set = |list: &Path| {
        let mut command = hold(["peer", "set", "--json", "--dir"]);
        run(command.arg(&network.peers[0].dir).arg("--revocations").arg(list))
    };
    let taken = set(&list("third")).expect(0);
    assert_eq!(revoked(&taken), KEYS[1..]);
    let told = taken.json()["list"].clone();
    assert!(told["organisation"].is_string() && told["number"].as_u64() > Some(0), "{told}");
    let mut both = hold(["peer", "set", "--dir"]);
    both.arg(&network.peers[0].dir).args(["read-only", "on", "--revocations"]);
    let text = run(both.arg(list("third"))).expect(0).text();
    let (number, organisation) = (&told["number"], told["organisation"].as_str().unwrap());
    let lines = format!(
        "read-only on\nlist {number} of {organisation} counts: it revokes 1 keys\nrevoked {}",
        KEYS[1]
    );
    assert_eq!(text, lines);
    let mut alone = hold(["peer", "set", "--dir"]);
    alone.arg(&network.peers[0].dir).arg("--revocations").arg(list("third"));
    let text = run(&mut alone).expect(0).text();
    assert!(!text.contains("read-only") && text.contains(KEYS[1]), "{text}");
    let older = set(&list("second")).expect_error(2);
    assert!(older.stderr.contains("newer list"), "{}", older.stderr);
    assert_eq!(
        revoked(&set(&list("third")).expect(0)),
        KEYS[1..],
        "the same again is no older one"
    );
    set(&list("others")).expect(0);
}

/// Two copies of an organisation's directory sign at the same moment: all peers come to the same list, and whoever hands in the other
/// one is told.
#[test]
fn of_two_lists_with_one_number_the_same_one_counts_at_every_peer() {
    let mut network = Network::new(2, &[]);
    network.add_peers(2);
    let text = fs::read_to_string(network.orgs[0].join("org.key")).unwrap();
    let secret: [u8; 32] = hex::decode(text.trim()).unwrap().try_into().unwrap();
    let secret = crypto::SecretKey::from_bytes(&secret).unwrap();
    let genesis = crypto::Genesis::decode(&fs::read(&network.file).unwrap()).unwrap();
    let mut lists = KEYS.map(|key| {
        let list = crypto::Revocation {
            organisation: crypto::OrgId::new(secret.public()),
            sequence: 1_700_000_000_000,
            keys: vec![*key.parse::<crypto::ClientKey>().unwrap().key()],
        };
        list.sign(&secret, &genesis.network())
    });
    lists.sort();
    let files = ["lesser", "greater"].map(|name| network.folder.path().join(name));
    for (file, list) in files.iter().zip(&lists) {
        fs::write(file, list).unwrap();
    }
    for (peer, order) in network.peers.iter().zip([[0, 1], [1, 0]]) {
        for which in order {
            let mut set = hold(["peer", "set", "--json", "--dir"]);
            let set = run(set.arg(&peer.dir).arg("--revocations").arg(&files[which]));
            // The lesser one counts until the other comes, and not after it.
            if which == 0 && order[0] == 1 {
                let told = set.expect_error(2);
                assert!(told.stderr.contains("the same number"), "{}", told.stderr);
            } else {
                set.expect(0);
            }
        }
        let organisation = crypto::OrgId::new(secret.public()).to_string();
        assert_eq!(fs::read(peer.dir.join("revoked").join(organisation)).unwrap(), lists[1]);
    }
}

/// Whoever lost a device, and lists its key, sees on the device that it is over.
#[test]
fn doctor_tells_a_client_that_its_key_is_revoked() {
    let mut network = Network::new(2, &[]);
    network.add_peers(1);
    network.start_all();
    let (home, via) = (network.home("home", 0), network.via());
    let looked = || {
        let outcome = run(&mut home.hold(["doctor", "--json", "--via", &via]));
        let told = outcome.stderr.contains("checks failed");
        assert_eq!(told, outcome.code == Some(1), "{}", outcome.stderr);
        let checks = outcome.json()["checks"].as_array().unwrap().clone();
        let pass = checks.into_iter().find(|check| check["check"] == "pass").unwrap();
        (outcome.code, pass)
    };
    let (_, before) = looked();
    assert_eq!(before["verdict"], "ok", "{before}");
    let mut follower = home.hold(["inbox", "--follow", "--json", "--via", &via]);
    let follower = Running::start(&mut follower);
    until_handled(follower.pid());

    let listed = run(&mut home.hold(["keys", "list", "--json"])).expect(0).json();
    let list = network.folder.path().join("list");
    let mut revoke = hold(["org", "revoke", "--key", listed["client_key"].as_str().unwrap()]);
    revoke.arg("--dir").arg(&network.orgs[0]).arg("--network").arg(&network.file);
    run(revoke.arg("-o").arg(&list)).expect(0);
    let mut set = hold(["peer", "set", "--dir"]);
    run(set.arg(&network.peers[0].dir).arg("--revocations").arg(&list)).expect(0);
    // The peer takes it within seconds.
    let started = Instant::now();
    let (code, told) = loop {
        let (code, pass) = looked();
        if pass["verdict"] != "ok" || started.elapsed() > PATIENCE {
            break (code, pass);
        }
        std::thread::sleep(Duration::from_millis(300));
    };
    assert_eq!((code, &told["verdict"]), (Some(1), &"fail".into()), "{told}");
    assert!(told["text"].as_str().unwrap().contains("revoked this key"), "{told}");
    assert!(!told["hint"].as_str().unwrap().contains("peer init"), "a client is told: {told}");
    // All were asked, and denied it: trying again is no use.
    let file = network.folder.path().join("file");
    fs::write(&file, "some text").unwrap();
    let denied = loop {
        let put = run(home.hold(["put", "--json", "--via", &via]).arg(&file));
        if put.code == Some(13) || started.elapsed() > PATIENCE {
            break put.expect_error(13);
        }
        std::thread::sleep(Duration::from_millis(300));
    };
    assert!(denied.stderr.contains("revoked this key"), "{}", denied.stderr);
    // What runs asks what changed once a minute.
    follower.finish(PATIENCE).expect_error(13);
}

#[test]
fn a_peer_or_an_organisation_is_made_whole_or_not_at_all() {
    let network = Network::new(1, &[]);
    let dir = network.folder.path().join("peer");
    let init = |args: &[&str]| {
        let mut command = hold(["peer", "init", "--dir"]);
        command.arg(&dir).arg("--network").arg(&network.file).arg("--org").arg(&network.orgs[0]);
        run(command.args(args))
    };
    let unreachable = ["0.0.0.0:4100", "[::]:4100", "[0::0]:4100", "peer.example:0"];
    let many = ["peer.example:1"; 100].join(",");
    let wrong = [
        &["--listen", "0.0.0.0:4100"][..],
        &["--listen", "[::0]:4100"],
        &["--metrics", "peer.example:9100"],
        &["--advertise", &many],
        &["--bootstrap", "nowhere"],
    ];
    for args in wrong {
        init(args).expect_error(2);
        assert!(!dir.exists(), "{args:?}");
    }
    for address in unreachable {
        let refused = init(&["--advertise", address]).expect_error(2);
        assert!(refused.stderr.contains("cannot reach"), "{}", refused.stderr);
        assert!(!dir.exists());
    }
    // What is there already is not written around.
    fs::create_dir(&dir).unwrap();
    for name in ["peer.cert", "peer.toml", "peer.key"] {
        fs::write(dir.join(name), "an old one").unwrap();
        init(&[]).expect_error(14);
        assert_only(&dir, &[name]);
        fs::remove_file(dir.join(name)).unwrap();
    }
    init(&[]).expect(0);

    let org = network.folder.path().join("org");
    fs::create_dir(&org).unwrap();
    fs::write(org.join("org.pub"), "an old one").unwrap();
    run(hold(["org", "init", "--dir"]).arg(&org)).expect_error(14);
    assert_only(&org, &["org.pub"]);
}

#[test]
fn a_taken_port_is_busy_whichever_it_is() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let peer = network.peers[0].dir.clone();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let settings = fs::read_to_string(peer.join("peer.toml")).unwrap();
    let ours = format!("listen = \"{}\"", network.peers[0].address);
    for (old, new) in [
        (&ours[..], format!("listen = \"{taken}\"")),
        ("p2p_listen = \"127.0.0.1:0\"", format!("p2p_listen = \"{taken}\"")),
        ("metrics = \"127.0.0.1:0\"", format!("metrics = \"{taken}\"")),
    ] {
        assert!(settings.contains(old), "{settings}");
        fs::write(peer.join("peer.toml"), settings.replacen(old, &new, 1)).unwrap();
        let refused = run(hold(["peer", "run", "--dir"]).arg(&peer)).expect_error(11);
        assert!(refused.stderr.contains(&taken), "{}", refused.stderr);
    }
    fs::write(peer.join("peer.toml"), settings).unwrap();
    let home = network.home("home", 0);
    let mut door = home.hold(["serve", "redis", "--listen", &taken, "--peer"]);
    let refused = run(door.arg(&peer)).expect_error(11);
    assert!(refused.stderr.contains(&taken), "{}", refused.stderr);
    // And nothing of it is left behind: the peer runs.
    network.start_all();
}

/// Waits until a peer says of itself that it serves.
#[track_caller]
fn until_serving(peer: &mut Running, dir: &Path) {
    let started = Instant::now();
    loop {
        let status = run(hold(["peer", "status", "--json", "--dir"]).arg(dir));
        if status.code == Some(0) && status.json()["state"] == "serving" {
            return;
        }
        assert!(!peer.ended() && started.elapsed() < PATIENCE, "it never serves");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What reads a peer's log may end before it, and the disk with its output be full: neither is the peer's concern.
#[test]
fn a_peer_whose_log_and_ready_line_cannot_be_written_serves_on() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let dir = network.peers[0].dir.clone();
    let start = || {
        let mut command = hold(["peer", "run", "--dir"]);
        // Every part of it logs.
        command.arg(&dir).env("HOLD_LOG", "debug");
        command
    };
    let (reader, log) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let mut peer = Running::start(start().stderr(log));
    until_serving(&mut peer, &dir);
    // Its tasks have looked at their files, and logged, by then.
    std::thread::sleep(Duration::from_secs(3));
    until_serving(&mut peer, &dir);
    peer.signal("TERM");
    peer.finish(PATIENCE).expect(0);

    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut peer = Running::start(start().stdout(full));
    until_serving(&mut peer, &dir);
    peer.signal("TERM");
    let ended = peer.finish(PATIENCE).expect_error(1);
    assert!(ended.stderr.contains("cannot write the output"), "{}", ended.stderr);
}

/// What others go by is the certificate: settings that it says otherwise are told, and so is a key that others may read.
#[test]
fn a_peer_whose_settings_are_not_certified_says_so() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let (dir, certified) = (network.peers[0].dir.clone(), network.peers[0].address.clone());
    let settings = dir.join("peer.toml");
    let text = fs::read_to_string(&settings).unwrap();
    let text = text.replace(&certified, &harness::free_addresses(1)[0]);
    let changed = text.replace("capacity = 107374182400\n", "capacity = 5\n");
    assert_ne!(text, changed);
    fs::write(&settings, changed).unwrap();
    fs::set_permissions(dir.join("peer.key"), fs::Permissions::from_mode(0o666)).unwrap();
    let mut peer = Running::start(hold(["peer", "run", "--dir"]).arg(&dir));
    until_serving(&mut peer, &dir);
    peer.signal("TERM");
    let ended = peer.finish(PATIENCE).expect(0);
    let ready = ended.text();
    assert!(ready.starts_with(&format!("ready at {certified},")), "{ready}");
    for part in ["\"addresses\"", "\"capacity\"", "hold peer request --dir", "chmod 600"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}

/// Of a start, a stop and a start that fails.
#[test]
fn every_line_of_a_peer_that_logs_json_is_json() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let dir = network.peers[0].dir.clone();
    let start = || {
        let mut command = hold(["peer", "run", "--log-json", "--dir"]);
        command.arg(&dir);
        command
    };
    let is_json = |outcome: &Outcome| {
        let lines: Vec<&str> = outcome.stderr.lines().collect();
        assert!(!lines.is_empty());
        for line in lines {
            let read = serde_json::from_str::<serde_json::Value>(line);
            assert!(read.is_ok_and(|value| value.is_object()), "{line}");
        }
    };
    let mut peer = Running::start(&mut start());
    until_serving(&mut peer, &dir);
    let second = run(&mut start()).expect_error(11);
    is_json(&second);
    assert!(second.stderr.contains("\"hint\":\"stop the other"), "{}", second.stderr);
    peer.signal("TERM");
    is_json(&peer.finish(PATIENCE).expect(0));
}

/// What reads a peer's log may stall, as `less` does, or a collector that was stopped: the peer goes on.
#[test]
fn a_peer_whose_log_nobody_reads_serves_on_and_stops() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let dir = network.peers[0].dir.clone();
    let (reader, log) = rustix::pipe::pipe().unwrap();
    let mut log = fs::File::from(log);
    // There is room for nothing more.
    let room = rustix::pipe::fcntl_getpipe_size(&log).unwrap();
    log.write_all(&vec![b'\n'; room]).unwrap();
    let mut command = hold(["peer", "run", "--dir"]);
    let mut peer = Running::start(command.arg(&dir).env("HOLD_LOG", "debug").stderr(log));
    until_serving(&mut peer, &dir);
    // Its tasks have looked at their files, and logged, by then.
    std::thread::sleep(Duration::from_secs(3));
    until_serving(&mut peer, &dir);
    peer.signal("TERM");
    peer.finish(PATIENCE).expect(0);
    drop(reader);
}

/// A signal ends a program that waits for its standard input.
#[test]
fn a_signal_is_heard_while_the_words_are_awaited() {
    let network = Network::new(1, &[]);
    for (number, verb) in ["import", "recover"].into_iter().enumerate() {
        let home = Home { dir: network.folder.path().join(format!("home{number}")) };
        let mut command = home.hold(["--via", "127.0.0.1:1", "keys", verb, "--network"]);
        let mut waiting = Running::start(command.arg(&network.file).stdin(Stdio::piped()));
        let mut stdin = waiting.stdin();
        stdin.write_all(b"abandon abandon").unwrap();
        until_handled(waiting.pid());
        waiting.signal("INT");
        waiting.finish(PATIENCE).expect(130);
        drop(stdin);
        assert!(!home.dir.join("keyring").exists());
    }
}

/// So too where a named pipe has no other end yet, and while a peer or a network starts.
#[test]
fn a_signal_is_heard_while_a_pipe_is_opened_and_while_something_starts() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let home = network.home("home", 0);
    let folder = network.folder.path();
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let stopped = |command: &mut Command, code: i32| {
        let waiting = Running::start(command);
        until_handled(waiting.pid());
        waiting.signal("TERM");
        waiting.finish(PATIENCE).expect(code);
    };
    let address = format!("hold:{}", "ab".repeat(32));
    let through = ["--via", "127.0.0.1:1"];
    stopped(home.hold(["keys", "list", "--passphrase-file"]).arg(&pipe), 130);
    stopped(home.hold(["share", &address, "--to-file"]).arg(&pipe).args(through), 130);
    let mut open = home.hold(["document", "open", &"ab".repeat(32), "--dir", ".", "--reader-key"]);
    stopped(open.arg(home.dir.join("keyring")).arg("-o").arg(&pipe), 130);

    let mut door = home.hold(["serve", "redis", "--listen", "127.0.0.1:0", "--peer"]);
    stopped(door.arg(&network.peers[0].dir), 0);
    let temporary = folder.join("temporary");
    fs::create_dir(&temporary).unwrap();
    for (verb, code) in [("up", 0), ("demo", 130)] {
        stopped(hold([verb]).env("TMPDIR", &temporary), code);
        assert_only(&temporary, &[]);
    }
    // And the peer's directory is free.
    network.start_all();
}

#[test]
fn what_would_be_ignored_is_refused() {
    let mut network = Network::running(3, &[]);
    let via = network.via();
    let home = network.home("home", 0);
    let tree = network.folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "a").unwrap();
    let put = |args: &[&str]| run(home.hold(["put", "--via", &via]).args(args).arg(&tree));
    let named = put(&["--name", "letters"]).expect_error(2);
    assert!(named.stderr.contains("--pack"), "{}", named.stderr);
    put(&["--name", "letters", "--pack"]).expect(0);
    // A name that is taken is told before anything is got.
    let address = home.put(&via, &tree.join("a"))["address"].as_str().unwrap().to_owned();
    let get = || run(home.hold(["get", &address, "--via", &via]).current_dir(&tree));
    get().expect_error(14);
    fs::remove_file(tree.join("a")).unwrap();
    get().expect(0);
    assert_only(&tree, &["a"]);

    let log = |text: &str| run(home.hold(["keys", "list"]).env("HOLD_LOG", text));
    for wrong in ["chatty", "rpc", "info,rpc", "rpc=chatty"] {
        let refused = log(wrong).expect_error(2);
        assert!(refused.stderr.contains("HOLD_LOG"), "{}", refused.stderr);
    }
    log("warn,rpc=debug").expect(0);

    // A keyring that is there keeps its network, and learns one that it lacks.
    let other = Network::new(1, &[]);
    let recover =
        |file: &Path| run(home.hold(["keys", "recover", "--via", &via, "--network"]).arg(file));
    let refused = recover(&other.file).expect_error(2);
    assert!(refused.stderr.contains("another network"), "{}", refused.stderr);
    let kept = fs::read(home.dir.join("network")).unwrap();
    assert_eq!(kept, fs::read(&network.file).unwrap());
    fs::remove_file(home.dir.join("network")).unwrap();
    recover(&network.file).expect(0);
    // Nor is a keyring made in another network's home.
    let foreign = Home { dir: network.folder.path().join("foreign") };
    fs::create_dir(&foreign.dir).unwrap();
    fs::copy(&other.file, foreign.dir.join("network")).unwrap();
    let mut init = foreign.hold(["keys", "init", "--network"]);
    let refused = run(init.arg(&network.file)).expect_error(2);
    assert!(refused.stderr.contains("another network"), "{}", refused.stderr);
    assert_only(&foreign.dir, &["network"]);
    assert_eq!(kept, fs::read(home.dir.join("network")).unwrap());
    let settings = fs::read_to_string(home.dir.join("holdfast.toml")).unwrap();
    assert!(settings.contains("org = "), "where its passes come from is not forgotten: {settings}");
    put(&["--pack"]).expect(0);
    network.peers.iter_mut().for_each(harness::Peer::kill);
}

#[test]
fn a_kept_network_has_the_peers_that_it_was_made_with() {
    let folder = tempfile::tempdir().unwrap();
    let up = |args: &[&str]| {
        let mut command = hold(["up", "--json", "--dir"]);
        command.arg(folder.path().join("net")).args(args);
        command
    };
    let ends = |mut command: Command| {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        harness::signal(i32::try_from(child.id()).unwrap(), "TERM");
        assert!(child.wait().unwrap().success());
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        ready["librarians"].as_array().unwrap().len()
    };
    assert_eq!(ends(up(&["--peers", "2"])), 2);
    assert_eq!(ends(up(&[])), 2);
    assert_eq!(ends(up(&["--peers", "2"])), 2);
    let refused = run(&mut up(&["--peers", "5"])).expect_error(2);
    assert!(refused.stderr.contains("has 2"), "{}", refused.stderr);
}
