//! Bad input and failure: each ends with its exit code and a clear error, and nothing is lost,
//! leaked or left half done.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::{
    Home, Network, Outcome, Running, assert_only, assert_same, hold, random_file, run,
    until_handled,
};

const MIB: usize = 1 << 20;
const ADDRESS: &str = "hold:31fe6068134503d2723133227c867ac8fa6c83c537e9a44c3c5bdbdcb1fe3370";
/// A public key.
const KEY: &str = "02531fe6068134503d2723133227c867ac8fa6c83c537e9a44c3c5bdbdcb1fe337";

#[test]
fn wrong_arguments_end_with_2_and_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let home = Home { dir: folder.path().join("home") };
    for args in [
        &["nonsense"][..],
        &["put"],
        &["get"],
        &["get", "--range", "x", "hold:00"],
        &["get", "--sync", "--output", "-", ADDRESS],
        &["--via", "no-port", "get", "hold:00"],
        &["network", "init", "-o", "x"],
        &["network", "init", "--org", "zz", "-o", "x"],
        &["network", "init", "--org", KEY, "--profile", "8/8", "-o", "x"],
        &["network", "init", "--org", KEY, "--profile", "4/8", "--copies", "3", "-o", "x"],
        &["network", "init", "--org", KEY, "--profile", "4/8", "--suite", "libri-1", "-o", "x"],
        &["org", "pass"],
        &["peer", "run"],
        &["document", "open"],
    ] {
        let outcome = run(home.hold(args).current_dir(folder.path()));
        outcome.expect_error(2);
        let mut json = home.hold(args);
        let outcome = run(json.arg("--json").current_dir(folder.path())).expect(2);
        let error: serde_json::Value = serde_json::from_str(outcome.stderr.trim()).unwrap();
        assert_eq!((&error["exit"], &error["class"]), (&2.into(), &"invalid".into()), "{args:?}");
        assert!(error["error"].is_string() && error.get("hint").is_some());
        assert!(outcome.stdout.is_empty());
    }
    assert!(!home.dir.exists(), "a refused command makes nothing");
    // A variable is no flag that would have to be given.
    let put = run(&mut home.hold(["put"])).expect_error(2).stderr;
    assert!(put.contains("Usage: hold put <FILE") && !put.contains("--home"), "{put}");
    fs::create_dir_all(&home.dir).unwrap();
    fs::write(home.dir.join("holdfast.toml"), "vai = []").unwrap();
    run(&mut home.hold(["keys", "list"])).expect_error(2);
}

/// What wants a subcommand shows its help, and in JSON an error of one line.
#[test]
fn a_missing_subcommand_is_an_error_of_one_line_in_json() {
    for verb in ["keys", "org", "object"] {
        let outcome = run(&mut hold(["--json", verb])).expect(2);
        let error: serde_json::Value = serde_json::from_str(outcome.stderr.trim()).unwrap();
        assert_eq!((&error["exit"], &error["class"]), (&2.into(), &"invalid".into()), "{error}");
        let text = error["error"].as_str().unwrap();
        assert!(text.contains(&format!("hold {verb}")), "{text}");
        assert!(text.len() < 200 && !text.contains('\n'), "{text}");
    }
}

#[test]
fn a_source_that_is_neither_file_nor_folder_nor_pipe_is_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let home = Home { dir: folder.path().join("home") };
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink("b", at("a")).unwrap();
    std::os::unix::fs::symlink("a", at("b")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for name in ["a", "socket"] {
        run(home.hold(["put"]).arg(at(name))).expect_error(2);
        run(home.hold(["put", "--pack"]).arg(at(name))).expect_error(2);
    }
}

/// The runtime opens `/dev/null` in place of what is closed, where an address would be lost.
#[test]
fn that_standard_output_is_closed_is_told_before_anything_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let home = Home { dir: folder.path().join("home") };
    let file = folder.path().join("file");
    fs::write(&file, "bytes").unwrap();
    let with = |redirected: &str, command: &Command| {
        run(&mut begun_by("sh", &["-c", &format!("exec \"$0\" \"$@\" {redirected}")], command))
    };
    let mut put = home.hold(["put"]);
    put.arg(&file);
    let share = home.hold(["share", ADDRESS, "--to", KEY]);
    for command in [&put, &share] {
        let told = with(">&-", command).expect_error(1);
        assert!(told.stderr.contains("cannot write the output"), "{}", told.stderr);
    }
    // Whoever begins it with an output that goes nowhere says so: it goes on, and there is no network file.
    for nowhere in [">/dev/null", "<>/dev/null >&0"] {
        with(nowhere, &put).expect_error(10);
    }
    let told = with("<&-", &home.hold(["put", "-"])).expect_error(1);
    assert!(told.stderr.contains("standard input"), "{}", told.stderr);
}

#[test]
fn a_file_over_a_limit_of_the_shell_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = hold(["man", "--dir"]);
    command.arg(folder.path());
    let told = run(&mut begun_by("sh", &["-c", "ulimit -f 0; exec \"$0\" \"$@\""], &command));
    let told = told.expect_error(11);
    assert!(told.stderr.contains("too large"), "{}", told.stderr);
}

/// A file of variables has lines such as `HOLD_VIA=`, and people write switches in more than one way.
#[test]
fn a_variable_set_to_nothing_is_not_set_and_a_switch_takes_yes_and_no() {
    const VARIABLES: [&str; 9] = [
        "HOLD_HOME",
        "HOLD_VIA",
        "HOLD_THIN",
        "HOLD_NETWORK",
        "HOLD_ORG",
        "HOLD_PASSPHRASE",
        "HOLD_PASSPHRASE_FILE",
        "HOLD_LOG",
        "HOLD_LOG_JSON",
    ];
    let folder = tempfile::tempdir().unwrap();
    let init = |name: &str| {
        let mut init = hold(["org", "init", "--dir"]);
        init.arg(folder.path().join(name)).env("HOME", folder.path());
        init
    };
    let mut empty = init("empty");
    run(empty.envs(VARIABLES.map(|name| (name, "")))).expect(0);
    for switch in ["HOLD_LOG_JSON", "HOLD_THIN"] {
        for value in ["1", "0", "true", "false", "yes", "no"] {
            run(init(&format!("{switch}-{value}")).env(switch, value)).expect(0);
        }
        run(init("neither").env(switch, "perhaps")).expect_error(2);
    }
}

/// The same command, begun by another program with these arguments before it.
fn begun_by(program: &str, args: &[&str], command: &Command) -> Command {
    let mut begun = Command::new(program);
    begun.args(args).arg(command.get_program()).args(command.get_args());
    begun.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => begun.env(name, value),
            None => begun.env_remove(name),
        };
    }
    begun
}

/// The same command without the terminal that these tests may run at: it would be asked there.
fn without_terminal(command: &Command) -> Command {
    begun_by("setsid", &["--wait"], command)
}

#[test]
fn keys_and_organisations_are_guarded() {
    let network = Network::new(1, &[]);
    let home = network.home("home", 0);
    let mut again = home.hold(["keys", "init", "--network"]);
    run(again.arg(&network.file).arg("--org").arg(&network.orgs[0])).expect_error(14);
    let mut wrong = home.hold(["keys", "list"]);
    run(wrong.env("HOLD_PASSPHRASE", "another")).expect_error(12);
    let mut none = home.hold(["keys", "list"]);
    run(&mut without_terminal(none.env_remove("HOLD_PASSPHRASE"))).expect_error(2);
    let mut nothing = home.hold(["keys", "list"]);
    run(&mut without_terminal(nothing.env("HOLD_PASSPHRASE", ""))).expect_error(2);
    let mut noise = home.hold(["keys", "list"]);
    let noise = run(noise.env("HOLD_PASSPHRASE", OsStr::from_bytes(b"\xff"))).expect_error(2);
    assert!(noise.stderr.contains("HOLD_PASSPHRASE is not UTF-8"), "{}", noise.stderr);
    let empty = Home { dir: network.folder.path().join("nobody") };
    run(&mut empty.hold(["keys", "list"])).expect_error(10);
    run(hold(["org", "init", "--dir"]).arg(&network.orgs[0])).expect_error(14);
    let words = run(&mut home.hold(["keys", "export", "--yes"])).expect(0).text();
    let (seed, next) = words.split_once('\n').unwrap();
    assert_eq!((seed.split_whitespace().count(), next), (24, "next counter: 0"));
    let mut many = empty.hold(["keys", "import", "--next", "9999999999999999999"]);
    let mut many = Running::start(many.stdin(Stdio::piped()));
    many.stdin().write_all(words.as_bytes()).unwrap();
    many.finish(harness::PATIENCE).expect_error(2);
    assert!(!empty.dir.exists(), "there is no such counter");
    let mut import = empty.hold(["keys", "import"]);
    let mut import = Running::start(import.stdin(Stdio::piped()));
    import.stdin().write_all(words.as_bytes()).unwrap();
    import.finish(harness::PATIENCE).expect(0);
    assert_eq!(empty.reader(), home.reader());
    // The counter went over with the words: nothing of a gap is skipped.
    let again = run(&mut empty.hold(["keys", "export", "--yes", "--json"])).expect(0).json();
    assert_eq!(again["next"], 0);
    // What cannot be written is a failure, help too.
    for args in [&["--help"][..], &["put", "--help"], &["--version"], &["keys", "list"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let refused = run(home.hold(args).stdout(full)).expect_error(1);
        assert!(refused.stderr.contains("cannot write the output"), "{}", refused.stderr);
    }
    // A reader that went away is no failure of what it read.
    let mut cut = Command::new("sh");
    cut.args(["-c", "\"$0\" keys list | head -n 1"]).arg(env!("CARGO_BIN_EXE_hold"));
    cut.env("HOLD_HOME", &home.dir).env("HOLD_PASSPHRASE", harness::PASSPHRASE);
    let outcome = cut.output().unwrap();
    assert!(outcome.stderr.is_empty(), "{}", String::from_utf8_lossy(&outcome.stderr));
}

/// One network, and what can go wrong with it, the gentle first.
#[test]
fn a_network_with_faults_answers_with_the_right_code() {
    let mut network = Network::running(4, &[]);
    let (home, other) = (network.home("home", 0), network.home("other", 1));
    let folder = network.folder.path().to_owned();
    let via = network.via();
    let file = folder.join("file.bin");
    random_file(&file, 5 * MIB + 17, 1);
    let address = home.put(&via, &file)["address"].as_str().unwrap().to_owned();
    let back = folder.join("out").join("back.bin");
    fs::create_dir(folder.join("out")).unwrap();
    home.get(&via, &address, &back).expect(0);
    assert_same(&file, &back);
    fs::remove_file(&back).unwrap();

    bad_addresses(&home, &other, &via, &address, &back);
    ranges(&home, &via, &address, &file);
    bad_sources(&home, &via, &folder);
    bad_librarians(&network, &home, &via, &address, &file, &back);
    strangers(&network, &via, &file);
    interrupted(&home, &via, &address, &folder);
    second_run(&network);
    hanging(&network, &home, &address, &file, &back);
    tampered(&mut network, &home, &address, &file, &back);
    too_few(&mut network, &home, &file);
}

fn bad_addresses(home: &Home, other: &Home, via: &str, address: &str, back: &Path) {
    let none = format!("hold:{}", "ab".repeat(32));
    home.get(via, &none, back).expect_error(10);
    home.get(via, "hold:xyz", back).expect_error(2);
    let cut = home.get(via, &address[..address.len() - 1], back).expect_error(2);
    assert!(cut.stderr.contains("expected 64 hexadecimal digits, found 63"), "{}", cut.stderr);
    other.get(via, address, back).expect_error(12);
    // An author opens what was put, and not what was shared of it.
    let mut share = home.hold(["share", address, "--json", "--via", via, "--to"]);
    let share = run(share.arg(other.reader())).expect(0).json();
    let theirs = home.get(via, share["address"].as_str().unwrap(), back).expect_error(12);
    assert!(theirs.stderr.contains("take what hold put printed"), "{}", theirs.stderr);
    let wrong = |verb: &[&str]| {
        let mut command = home.hold(verb);
        run(command.args(["--via", via]).env("HOLD_PASSPHRASE", "wrong")).expect_error(12)
    };
    wrong(&["get", address, "-o", "x"]);
    wrong(&["put", "/dev/null"]);
    let bare = address.strip_prefix("hold:").unwrap();
    home.get(via, bare, back).expect(0);
    fs::remove_file(back).unwrap();
    let missing = back.with_file_name("no-folder").join("x");
    home.get(via, address, &missing).expect_error(10);
    // No file can have such a name: told before anything is fetched, and before it is asked who asks.
    for name in ["new/", "new/.", &"n".repeat(256)] {
        let mut get = home.hold(["get", address, "--via", via, "-o"]);
        get.arg(back.parent().unwrap().join(name));
        run(get.env("HOLD_PASSPHRASE", "wrong")).expect_error(2);
    }
    assert_only(back.parent().unwrap(), &[]);
}

fn ranges(home: &Home, via: &str, address: &str, file: &Path) {
    let whole = fs::read(file).unwrap();
    let range = |text: &str| {
        let mut get = home.hold(["get", address, "-o", "-", "--via", via, "--range", text]);
        run(&mut get)
    };
    // Both ends belong to the range, as in HTTP.
    assert_eq!(range("0-0").expect(0).stdout, whole[..1]);
    assert_eq!(range("2097150-2097160").expect(0).stdout, whole[2_097_150..=2_097_160]);
    assert_eq!(range("5242890-").expect(0).stdout, whole[5_242_890..]);
    range("9-8").expect_error(2);
    range("99999999-100000000").expect_error(2);
}

fn bad_sources(home: &Home, via: &str, folder: &Path) {
    let put = |source: &Path| run(home.hold(["put", "--via", via]).arg(source));
    put(&folder.join("nothing")).expect_error(10);
    // A file whose reads fail, also for root.
    put(Path::new("/proc/self/mem")).expect_error(1);
    let empty = folder.join("empty");
    fs::write(&empty, "").unwrap();
    let stored = home.put(via, &empty);
    assert_eq!(stored["bytes"], 0);
    let back = folder.join("empty-back");
    home.get(via, stored["address"].as_str().unwrap(), &back).expect(0);
    assert_eq!(fs::read(&back).unwrap(), b"");

    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("a.txt"), "a").unwrap();
    fs::write(tree.join("sub/b.txt"), "b").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", tree.join("link")).unwrap();
    let listed = put(&tree).expect(0).text();
    assert_eq!(listed.lines().count(), 2, "{listed}");
}

fn bad_librarians(
    network: &Network,
    home: &Home,
    via: &str,
    address: &str,
    file: &Path,
    back: &Path,
) {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    run(home.hold(["put", "--via", &closed]).arg(file)).expect_error(15);
    home.get(&closed, address, back).expect_error(15);
    run(home.hold(["put"]).arg(file)).expect_error(2);

    // One that takes connections and says nothing, one that answers with noise.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let babbling = TcpListener::bind("127.0.0.1:0").unwrap();
    let noise = babbling.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in babbling.incoming() {
            let _ = stream.and_then(|mut stream| stream.write_all(&[0x5a; 4096]));
        }
    });
    let quiet = silent.local_addr().unwrap().to_string();
    for bad in [quiet, noise] {
        home.get(&bad, address, back).expect_error(15);
        home.get(&format!("{bad},{via}"), address, back).expect(0);
        fs::remove_file(back).unwrap();
    }

    let mut foreign = Network::new(1, &[]);
    foreign.add_peers(1);
    foreign.start_all();
    let outcome = home.get(&foreign.via(), address, back);
    assert!(matches!(outcome.code, Some(13 | 15)), "{outcome:?}");
    let mut joiner = Network::new(1, &[]);
    joiner.add_peers(1);
    // A peer whose bootstrap is of another network serves, and neither learns of the other.
    let toml = joiner.peers[0].dir.join("peer.toml");
    let text = fs::read_to_string(&toml).unwrap();
    let text =
        text.replace("bootstrap = []", &format!("bootstrap = [{:?}]", network.peers[0].address));
    fs::write(&toml, text).unwrap();
    joiner.start_all();
    let mut status = home.hold(["peer", "status", "--json", "--via", &network.peers[0].address]);
    let known = run(&mut status).expect(0).json()["peers"].as_array().unwrap().len();
    assert_eq!(known, network.peers.len());
    assert_only(back.parent().unwrap(), &[]);
}

fn strangers(network: &Network, via: &str, file: &Path) {
    let folder = network.folder.path();
    run(hold(["org", "init", "--dir"]).arg(folder.join("outsider"))).expect(0);
    let stranger = Home { dir: folder.join("stranger") };
    let mut init = stranger.hold(["keys", "init", "--network"]);
    let made = run(init.arg(&network.file).arg("--org").arg(folder.join("outsider"))).expect(0);
    assert!(made.stderr.contains("warning"), "{}", made.stderr);
    run(stranger.hold(["put", "--via", via]).arg(file)).expect_error(13);
    let plain = Home { dir: folder.join("plain") };
    run(plain.hold(["keys", "init", "--network"]).arg(&network.file)).expect(0);
    run(plain.hold(["put", "--via", via]).arg(file)).expect_error(13);
}

/// Whether these tests run so that they outlive their terminal (`nohup`): what they start does too, then.
fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
}

fn interrupted(home: &Home, via: &str, address: &str, folder: &Path) {
    let stop = |command: &mut Command, after: Duration, name: &str| -> Outcome {
        let running = Running::start(command);
        // No signal counts before it is handled, and nothing is got before that.
        until_handled(running.pid());
        std::thread::sleep(after);
        running.signal(name);
        running.finish(Duration::from_secs(20))
    };
    let big = folder.join("big.bin");
    random_file(&big, 64 * MIB, 5);
    // While the keyring opens: the signal comes as soon as it is handled.
    let mut put = home.hold(["put", "--via", via]);
    let opening = Running::start(put.arg(&big));
    until_handled(opening.pid());
    opening.signal("INT");
    opening.finish(Duration::from_secs(20)).expect(130);
    // While bytes go out, and while the pipe says nothing: it has taken all but what the pipe holds, and the pipe stays open.
    let hangup = if is_hangup_ignored() { "TERM" } else { "HUP" };
    for (bytes, name) in [(8 * MIB, "INT"), (8 * MIB, "TERM"), (8 * MIB, hangup), (10, "INT")] {
        let mut put = home.hold(["put", "-", "--via", via]);
        let mut waiting = Running::start(put.stdin(Stdio::piped()));
        let mut stdin = waiting.stdin();
        until_handled(waiting.pid());
        stdin.write_all(&vec![7; bytes]).unwrap();
        waiting.signal(name);
        waiting.finish(Duration::from_secs(20)).expect(130);
        drop(stdin);
    }

    outlives_its_terminal(home, via);
    let stored = home.put(via, &big)["address"].as_str().unwrap().to_owned();
    let out = folder.join("stopped");
    fs::create_dir(&out).unwrap();
    let mut cut = 0;
    for after in [20, 300, 600, 800, 1000, 1200] {
        let to = out.join("big.bin");
        let mut get = home.hold(["get", &stored, "--via", via, "-o"]);
        let outcome = stop(get.arg(&to), Duration::from_millis(after), "INT");
        match outcome.code {
            Some(130) => {
                cut += 1;
                assert_only(&out, &[]);
            }
            Some(0) => {
                assert_same(&big, &to);
                fs::remove_file(&to).unwrap();
            }
            _ => panic!("{after} ms: {outcome:?}"),
        }
    }
    assert!(cut > 0, "no get was stopped in time");
    // What was not asked to stop still works.
    home.get(via, address, &out.join("x")).expect(0);
}

/// A run that was begun to outlive its terminal, as `nohup` does it: with the signal of that end ignored.
fn outlives_its_terminal(home: &Home, via: &str) {
    let put = home.hold(["put", "-", "--json", "--via", via]);
    let mut nohup = begun_by("sh", &["-c", "trap '' HUP; exec \"$0\" \"$@\""], &put);
    let mut running = Running::start(nohup.stdin(Stdio::piped()));
    let mut stdin = running.stdin();
    until_handled(running.pid());
    running.signal("HUP");
    stdin.write_all(&vec![7; 8 * MIB]).unwrap();
    running.signal("HUP");
    drop(stdin);
    let put = running.finish(harness::PATIENCE).expect(0).json();
    assert_eq!(put["bytes"], 8 * MIB);
}

fn second_run(network: &Network) {
    let again = run(hold(["peer", "run", "--dir"]).arg(&network.peers[1].dir)).expect_error(11);
    assert!(again.stderr.contains("in use"), "{}", again.stderr);
}

fn hanging(network: &Network, home: &Home, address: &str, file: &Path, back: &Path) {
    let pid = network.peers[3].pid();
    harness::signal(pid, "STOP");
    let via = network.peers[0].address.clone();
    let got = home.get(&via, address, back);
    let put = run(home.hold(["put", "--via", &via]).arg(file));
    harness::signal(pid, "CONT");
    got.expect(0);
    assert_same(file, back);
    fs::remove_file(back).unwrap();
    assert!(matches!(put.code, Some(0 | 3)), "{put:?}");
}

/// Flips bytes all over every peer's store while it is down: whatever is read back is right.
fn tampered(network: &mut Network, home: &Home, address: &str, file: &Path, back: &Path) {
    network.peers.iter_mut().for_each(|peer| assert_eq!(peer.terminate(), Some(0)));
    for peer in &network.peers {
        for path in files_below(&peer.dir.join("store")) {
            let mut bytes = fs::read(&path).unwrap();
            let from = bytes.len().min(4096);
            bytes[from..].iter_mut().step_by(64 * 1024).for_each(|byte| *byte ^= 0x10);
            fs::write(&path, bytes).unwrap();
        }
    }
    network.start_all();
    let outcome = home.get(&network.via(), address, back);
    match outcome.code {
        Some(0) => assert_same(file, back),
        Some(10 | 15 | 16) => assert_only(back.parent().unwrap(), &[]),
        _ => panic!("{outcome:?}"),
    }
    assert_ne!(outcome.code, Some(0), "every copy of every page was damaged");
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

fn too_few(network: &mut Network, home: &Home, file: &Path) {
    network.peers[1..].iter_mut().for_each(harness::Peer::kill);
    run(home.hold(["put", "--via", &network.via()]).arg(file)).expect_error(15);
}

/// A disk with room for 16 MiB beside the reserve of 64: its peer refuses, the others take the file, what was there stays readable.
#[test]
fn a_full_disk_at_a_peer_loses_nothing() {
    let mut network = Network::new(3, &[]);
    network.add_peers(3);
    let mount = network.folder.path().join("small");
    fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=80m", "tmpfs"])
        .arg(&mount)
        .output()
        .is_ok_and(|done| done.status.success());
    if !mounted {
        return testkit::skipped("a full disk at a peer: a tmpfs cannot be mounted here");
    }
    let _unmount = Unmount(mount.clone());
    network.add_peer_at(mount.join("peer"));
    network.start_all();
    let home = network.home("home", 0);
    let folder = network.folder.path();
    let (small, big) = (folder.join("small.bin"), folder.join("big.bin"));
    random_file(&small, MIB, 1);
    random_file(&big, 40 * MIB, 2);
    let via = network.via();
    let first = home.put(&via, &small)["address"].as_str().unwrap().to_owned();
    let put = run(home.hold(["put", "--json", "--via", &via]).arg(&big));
    assert!(matches!(put.code, Some(0 | 3)), "{put:?}");
    let second = put.json()["address"].as_str().unwrap().to_owned();
    let back = folder.join("back.bin");
    for (address, file) in [(&first, &small), (&second, &big)] {
        home.get(&via, address, &back).expect(0);
        assert_same(file, &back);
    }
    // It did refuse: three copies over four peers are 30 MiB each, and it has half of that.
    let full = network.peers[3].address.clone();
    let held = run(&mut home.hold(["peer", "status", "--json", "--via", &full])).expect(0).json();
    assert!(held["bytes"].as_u64().unwrap() < 17 << 20, "{held}");
    network.peers.iter_mut().for_each(harness::Peer::kill);
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
