//! Inputs that nobody would type: files of something else, names that drive terminals, noise at every port, damage
//! beside a peer's store.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{Network, Noise, PATIENCE, assert_only, assert_same, hold, random_file, run};

/// Larger than any small file may be.
const LARGE: usize = 3 << 20;

/// A file of each wrong kind, by name.
fn wrong_files(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let path = |name: &str| folder.join(name);
    let mut noise = vec![0xff; 2000];
    Noise::new(7).fill(&mut noise[1..]);
    fs::write(path("empty"), "").unwrap();
    fs::write(path("noise"), noise).unwrap();
    random_file(&path("large"), LARGE, 9);
    fs::create_dir(path("folder")).unwrap();
    ["missing", "empty", "noise", "large", "folder"].map(|name| (name, path(name))).to_vec()
}

/// Every verb with a file argument, given a file that is none of its kind.
#[test]
fn a_file_that_is_not_what_it_should_be_is_told_by_name() {
    let network = Network::new(1, &[]);
    let home = network.home("home", 0);
    let folder = network.folder.path().join("wrong");
    fs::create_dir(&folder).unwrap();
    let (org, net) = (network.orgs[0].as_os_str(), network.file.as_os_str());
    let files = wrong_files(&folder);
    for (kind, file) in &files {
        let code = if *kind == "missing" { 10 } else { 2 };
        let verbs: [&[&OsStr]; 9] = [
            &["network", "show"].map(OsStr::new),
            &["keys", "init", "--home", "new", "--network"].map(OsStr::new),
            &["peer", "init", "--dir", "new", "--network"].map(OsStr::new),
            &["network", "init", "-o", "new", "--org"].map(OsStr::new),
            &[
                OsStr::new("org"),
                OsStr::new("sign-peer"),
                OsStr::new("-o"),
                OsStr::new("new"),
                OsStr::new("--dir"),
                org,
                OsStr::new("--network"),
                net,
                OsStr::new("--request"),
            ],
            &["document", "show"].map(OsStr::new),
            &["document", "open", "00", "--dir", ".", "-o", "new", "--reader-key"].map(OsStr::new),
            &["keys", "list", "--passphrase-file"].map(OsStr::new),
            &["inbox", "--via", "127.0.0.1:1", "--cursor-file"].map(OsStr::new),
        ];
        for args in verbs {
            // An organisation may be named by its key, and a cursor file may be yet to come.
            let exempt = [(3, "missing", 2), (3, "folder", 10), (8, "missing", 15)];
            let number = verbs.iter().position(|verb| *verb == args).unwrap();
            let code = exempt
                .iter()
                .find_map(|(verb, of, code)| ((*verb, *of) == (number, *kind)).then_some(*code))
                .unwrap_or(code);
            let mut command = home.hold(args);
            let outcome = run(command.arg(file).current_dir(&folder)).expect_error(code);
            let named = outcome.stderr.contains(*kind);
            assert!(named || code == 15, "{args:?} {kind}: {}", outcome.stderr);
            assert!(outcome.stdout.is_empty());
            assert!(!folder.join("new").exists(), "{args:?} {kind} made something");
        }
    }
    assert_only(&folder, &["empty", "folder", "large", "noise"]);
    settings(&home.dir.join("holdfast.toml"), || home.hold(["keys", "list"]));
}

/// A configuration file of each wrong kind ends its verb with 2 and is told by name.
fn settings(path: &Path, verb: impl Fn() -> std::process::Command) {
    let good = fs::read(path).unwrap_or_default();
    let name = path.file_name().unwrap().to_str().unwrap();
    for text in [&b"= 1"[..], b"\xff\xfe", b"nonsense = 1", &vec![b'#'; LARGE]] {
        fs::write(path, text).unwrap();
        let outcome = run(&mut verb()).expect_error(2);
        assert!(outcome.stderr.contains(name), "{}", outcome.stderr);
    }
    fs::write(path, good).unwrap();
}

#[test]
fn a_peers_directory_with_a_wrong_file_does_not_start() {
    let mut network = Network::new(2, &[]);
    network.add_peers(2);
    let dir = network.peers[0].dir.clone();
    let start =
        || hold([OsStr::new("peer"), OsStr::new("run"), OsStr::new("--dir"), dir.as_os_str()]);
    settings(&dir.join("peer.toml"), start);
    for (file, codes) in
        [("peer.key", [10, 2, 2]), ("network", [10, 2, 2]), ("peer.cert", [10, 2, 2])]
    {
        let path = dir.join(file);
        let good = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        run(&mut start()).expect_error(codes[0]);
        fs::write(&path, "").unwrap();
        run(&mut start()).expect_error(codes[1]);
        fs::write(&path, [0xff; 300]).unwrap();
        run(&mut start()).expect_error(codes[2]);
        fs::write(&path, good).unwrap();
    }
    // The certificate of another peer of the same network.
    let (own, other) = (dir.join("peer.cert"), network.peers[1].dir.join("peer.cert"));
    let good = fs::read(&own).unwrap();
    fs::copy(other, &own).unwrap();
    run(&mut start()).expect_error(2);
    fs::write(&own, good).unwrap();
    // A list of revoked keys that cannot be read: what it revokes would count again.
    let closed = dir.join("revoked").join("closed");
    fs::create_dir_all(&closed).unwrap();
    let refused = run(&mut start()).expect_error(2);
    assert!(refused.stderr.contains("revoked/closed"), "{}", refused.stderr);
    fs::remove_dir(&closed).unwrap();
    network.start_all();
    // While it runs, its log says so.
    fs::create_dir(&closed).unwrap();
    let started = Instant::now();
    while !network.peers[0].log().contains("revoked/closed") {
        assert!(started.elapsed() < PATIENCE, "{}", network.peers[0].log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_peer_starts_without_what_is_damaged_beside_its_store() {
    let mut network = Network::running(3, &[]);
    let home = network.home("home", 0);
    let file = network.folder.path().join("file");
    random_file(&file, 300_000, 1);
    let address = home.put(&network.via(), &file)["address"].as_str().unwrap().to_owned();
    network.peers.iter_mut().for_each(|peer| assert_eq!(peer.terminate(), Some(0)));
    for peer in &network.peers {
        let mut noise = vec![0; 50_000];
        Noise::new(3).fill(&mut noise);
        for name in ["peers", "quotas", "words"] {
            fs::write(peer.dir.join(name), &noise).unwrap();
        }
        let revoked = peer.dir.join("revoked");
        fs::create_dir_all(&revoked).unwrap();
        fs::write(revoked.join("noise"), &noise).unwrap();
        fs::write(revoked.join("empty"), "").unwrap();
    }
    network.start_all();
    let back = network.folder.path().join("back");
    home.get(&network.via(), &address, &back).expect(0);
    assert_same(&file, &back);
    assert!(network.peers[0].log().contains("does not count"), "{}", network.peers[0].log());
}

#[test]
fn noise_at_every_port_of_a_peer_does_no_harm() {
    let mut network = Network::new(1, &[]);
    network.add_peers(3);
    let mut signed = Vec::new();
    for peer in &network.peers {
        let [listen, p2p] = harness::free_addresses(2).try_into().unwrap();
        let path = peer.dir.join("peer.toml");
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace("p2p_listen = \"127.0.0.1:0\"", &format!("p2p_listen = {p2p:?}"));
        fs::write(&path, format!("signed_listen = {listen:?}\n{text}")).unwrap();
        signed.extend([listen, p2p]);
    }
    network.start_all();
    let home = network.home("home", 0);
    let file = network.folder.path().join("file");
    random_file(&file, 200_000, 2);
    let ports: Vec<String> = network
        .peers
        .iter()
        .flat_map(|peer| [peer.address.clone(), peer.metrics.clone()])
        .chain(signed)
        .collect();
    let lines: [&[u8]; 5] = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\xff\xff\xff\xff",
        b"\x16\x03\x01\xff\xff\x01",
        b"/multistream/1.0.0\n",
    ];
    let mut open = Vec::new();
    for (number, port) in ports.iter().enumerate() {
        for line in lines {
            let mut stream = TcpStream::connect(port).unwrap();
            let mut noise = vec![0; 10_000];
            Noise::new(number as u64).fill(&mut noise);
            // A peer may go away at any byte of it.
            let _ = stream.write_all(line).and_then(|()| stream.write_all(&noise));
            open.push(stream);
        }
    }
    // They are still open while others work.
    let via = network.via();
    let address = home.put(&via, &file)["address"].as_str().unwrap().to_owned();
    let back = network.folder.path().join("back");
    home.get(&via, &address, &back).expect(0);
    assert_same(&file, &back);
    for peer in &network.peers {
        let ask = |page: &str, host: &str| {
            let mut stream = TcpStream::connect(&peer.metrics).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let asked = format!("GET {page} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            stream.write_all(asked.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let answer = ask("/healthz", "x");
        assert!(answer.contains("200 OK") && answer.contains("serving"), "{answer}");
        // A name may be anybody's who makes it lead here.
        for page in ["/status", "/metrics"] {
            assert!(ask(page, "evil.example").starts_with("HTTP/1.1 421"), "{page}");
            assert!(ask(page, &peer.metrics).starts_with("HTTP/1.1 200"), "{page}");
        }
        assert!(!peer.log().contains("panicked"), "{}", peer.log());
    }
    drop(open);
}

#[test]
fn names_from_outside_do_not_drive_the_terminal() {
    let network = Network::running(3, &[]);
    let (home, via) = (network.home("home", 0), network.via());
    let tree = network.folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let name = "red\u{1b}[31m\r\nhold:0000";
    fs::write(tree.join(name), "x").unwrap();
    let put = run(home.hold(["put", "--via", &via]).arg(&tree)).expect(0);
    let text = put.text();
    assert!(!text.contains(['\u{1b}', '\r']) && text.lines().count() == 1, "{text:?}");
    let address = text.split_whitespace().next().unwrap().to_owned();
    let info = run(&mut home.hold(["info", &address, "--via", &via])).expect(0).text();
    assert!(!info.contains(['\u{1b}', '\r']) && info.contains("\\u{1b}[31m"), "{info:?}");
    // In JSON it is the name itself: JSON escapes.
    let info = run(&mut home.hold(["info", &address, "--json", "--via", &via])).expect(0).json();
    assert_eq!(info["name"], name);
    let out = network.folder.path().join("out");
    fs::create_dir(&out).unwrap();
    run(home.hold(["get", &address, "--via", &via]).current_dir(&out)).expect(0);
    assert_only(&out, &["red[31mhold:0000"]);
}

#[test]
fn names_that_are_no_text_and_names_with_spaces_work() {
    let network = Network::running(3, &[]);
    let via = network.via();
    let odd = |bytes: &[u8]| network.folder.path().join(OsStr::from_bytes(bytes));
    let home = network.home("a home with spaces", 0);
    let file = odd(b"in \xff\xfe.txt");
    fs::write(&file, "the content").unwrap();
    let address = home.put(&via, &file)["address"].as_str().unwrap().to_owned();
    for name in [&b"out \xff"[..], b"out with spaces", b"-"] {
        let back = if name == b"-" { OsString::from("./-") } else { odd(name).into_os_string() };
        let mut get = home.hold(["get", &address, "--json", "--via", &via, "-o"]);
        let got = run(get.arg(&back).current_dir(network.folder.path())).expect(0).json();
        let shown = got["file"].as_str().unwrap();
        assert_eq!(shown, back.to_string_lossy());
        let path = network.folder.path().join(&back);
        assert_eq!(fs::read(path).unwrap(), b"the content");
    }
    // Directories too, in each verb that makes one.
    let dir = odd(b"org \xff");
    let made =
        run(hold(["org", "init", "--json", "--name", "o", "--dir"]).arg(&dir)).expect(0).json();
    assert_eq!(made["dir"], dir.to_string_lossy().as_ref());
    let net = odd(b"net \xff");
    run(hold(["network", "init", "--org"]).arg(&network.orgs[0]).arg("-o").arg(&net)).expect(0);
    let peer = odd(b"peer \xff");
    let mut init = hold(["peer", "init", "--json", "--dir"]);
    init.arg(&peer).arg("--network").arg(&net).arg("--org").arg(&network.orgs[0]);
    run(&mut init).expect(0);
    let set = run(hold(["peer", "set", "--json", "--dir"]).arg(&peer).args(["read-only", "on"]));
    assert_eq!(set.expect(0).json()["read_only"], true);
}
