//! A home whose keyring is damaged says so and comes back by its words; one that cannot be written still reads.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;
#[path = "system/small_disk.rs"]
mod small_disk;

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Network, PATIENCE, Running, assert_same, hold, random_file, run};
use small_disk::SmallDisk;

#[test]
fn a_damaged_keyring_is_told_with_its_path_and_comes_back_by_its_words() {
    let network = Network::new(1, &[]);
    let home = network.home("home", 0);
    let (reader, keyring) = (home.reader(), home.dir.join("keyring"));
    let words = run(&mut home.hold(["keys", "export", "--yes"])).expect(0).text();
    let whole = fs::read(&keyring).unwrap();
    for damaged in [&b""[..], &whole[..1], &whole[..40], &whole[..whole.len() - 1], b"no keyring"] {
        fs::write(&keyring, damaged).unwrap();
        let told = run(&mut home.hold(["keys", "list"])).expect_error(16).stderr;
        assert!(told.contains(&format!("{} is damaged", keyring.display())), "{told}");
        assert!(told.contains("24 words") && !told.contains("version 0"), "{told}");
        let json = run(&mut home.hold(["keys", "list", "--json"])).expect(16).stderr;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["class"], "corrupt");
    }
    // What it says to do.
    fs::rename(&keyring, home.dir.join("damaged")).unwrap();
    let mut import = home.hold(["keys", "import"]);
    let mut import = Running::start(import.stdin(Stdio::piped()));
    import.stdin().write_all(words.as_bytes()).unwrap();
    import.finish(PATIENCE).expect(0);
    assert_eq!(home.reader(), reader);
}

/// A folder that cannot be written, also by root, until it is dropped.
struct Unwritable(PathBuf);

impl Unwritable {
    fn new(dir: &Path) -> Option<Self> {
        let mount = |args: &[&str]| {
            let done = Command::new("mount").args(args).arg(dir).output();
            done.is_ok_and(|done| done.status.success())
        };
        let this = Self(dir.to_owned());
        if mount(&["--bind", dir.to_str().unwrap()]) {
            assert!(mount(&["-o", "remount,bind,ro"]));
        } else {
            this.allow(0o500, 0o400);
        }
        fs::write(dir.join("probe"), b"").is_err().then_some(this)
    }

    fn allow(&self, folder: u32, file: u32) {
        for item in fs::read_dir(&self.0).unwrap() {
            fs::set_permissions(item.unwrap().path(), Permissions::from_mode(file)).unwrap();
        }
        fs::set_permissions(&self.0, Permissions::from_mode(folder)).unwrap();
    }
}

impl Drop for Unwritable {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).output();
        if !unmounted.is_ok_and(|done| done.status.success()) {
            self.allow(0o700, 0o600);
        }
    }
}

#[test]
fn a_home_that_cannot_be_written_reads_what_is_its_own() {
    let network = Network::running(3, &[]);
    let (home, via) = (network.home("home", 0), network.via());
    let folder = network.folder.path();
    let (file, back) = (folder.join("file"), folder.join("back"));
    random_file(&file, 100_000, 1);
    let address = home.put(&via, &file)["address"].as_str().unwrap().to_owned();
    // As it was left; then as a copy of the keyring alone, with no pass either.
    for gone in [&[][..], &["issued", "lock", "pass"]] {
        gone.iter().for_each(|name| fs::remove_file(home.dir.join(name)).unwrap());
        let Some(unwritable) = Unwritable::new(&home.dir) else {
            return testkit::skipped(
                "a home that cannot be written: no folder can be made so here",
            );
        };
        let got = home.get(&via, &address, &back).expect(0);
        assert!(got.stderr.contains("cannot be written"), "{}", got.stderr);
        assert_same(&file, &back);
        fs::remove_file(&back).unwrap();
        // A key for it cannot be issued, so nothing is put.
        let put = run(home.hold(["put", "--via", &via]).arg(&file));
        assert!(!matches!(put.code, Some(0 | 3)), "{put:?}");
        drop(unwritable);
    }
    let told = home.get(&via, &address, &back).expect(0);
    assert!(told.stderr.is_empty(), "{}", told.stderr);
    home.put(&via, &file);
}

/// A service's user may have no home, or one that is somebody else's: what a peer and its operators do needs none.
#[test]
fn verbs_that_use_no_home_work_whatever_it_is() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let (folder, dir) = (network.folder.path().to_owned(), network.peers[0].dir.clone());
    let broken = folder.join("broken");
    fs::create_dir(&broken).unwrap();
    fs::write(broken.join("holdfast.toml"), "vai = []").unwrap();
    for (number, home) in [None, Some(&broken)].into_iter().enumerate() {
        let hold = |args: &[&str]| {
            let mut command = hold(args);
            match home {
                None => command.env_remove("HOME"),
                Some(home) => command.env("HOLD_HOME", home),
            };
            command
        };
        run(hold(&["org", "init", "--dir"]).arg(folder.join(format!("other{number}")))).expect(0);
        run(hold(&["network", "show"]).arg(&network.file)).expect(0);
        run(hold(&["peer", "set", "read-only", "off", "--dir"]).arg(&dir)).expect(0);
        let mut peer = Running::start(hold(&["peer", "run", "--dir"]).arg(&dir));
        let started = Instant::now();
        let asked = || run(hold(&["peer", "status", "--json", "--dir"]).arg(&dir));
        while asked().code != Some(0) {
            assert!(!peer.ended() && started.elapsed() < PATIENCE, "it never serves");
            std::thread::sleep(Duration::from_millis(100));
        }
        // Whom it asks and in which network is said here.
        let mut status = hold(&["peer", "status", "--via", &network.peers[0].address]);
        run(status.env("HOLD_NETWORK", &network.file)).expect(0);
        peer.signal("TERM");
        peer.finish(PATIENCE).expect(0);
        // What uses one says what is wrong with it.
        run(&mut hold(&["keys", "list"])).expect_error(2);
    }
}

#[test]
fn a_path_in_the_settings_is_the_same_wherever_the_program_runs() {
    let network = Network::new(1, &[]);
    let home = network.home("home", 0);
    fs::write(home.dir.join("secret"), harness::PASSPHRASE).unwrap();
    let settings = home.dir.join("holdfast.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, format!("passphrase_file = \"secret\"\n{text}")).unwrap();
    for folder in [network.folder.path(), &home.dir, Path::new("/")] {
        let mut list = home.hold(["keys", "list"]);
        run(list.env_remove("HOLD_PASSPHRASE").current_dir(folder)).expect(0);
    }
}

#[test]
fn a_home_that_cannot_be_written_ends_nothing_and_renews_what_it_cannot_note() {
    let network = Network::running(3, &[]);
    let (home, via) = (network.home("home", 0), network.via());
    let (file, back) = (network.folder.path().join("file"), network.folder.path().join("back"));
    random_file(&file, 100_000, 1);
    let put = home.put(&via, &file);
    let (address, until) = (put["address"].as_str().unwrap(), put["until"].as_u64().unwrap());
    let Some(unwritable) = Unwritable::new(&home.dir) else {
        return testkit::skipped("a home that takes no note: no folder can be made so here");
    };
    run(&mut home.hold(["forget", address, "--via", &via])).expect_error(13);
    home.get(&via, address, &back).expect(0);
    assert_same(&file, &back);
    let renewed = run(&mut home.hold(["renew", address, "--for", "2y", "--json", "--via", &via]));
    assert!(renewed.stderr.contains("renew by it"), "{}", renewed.stderr);
    let renewed = renewed.expect(3).json();
    assert!(renewed["until"].as_u64().unwrap() > until, "{renewed}");
    assert_eq!((&renewed["whole"], &renewed["noted"]), (&true.into(), &false.into()), "{renewed}");
    let all = run(&mut home.hold(["renew", "--all", "--for", "2y", "--json", "--via", &via]));
    assert!(all.stderr.contains("could not be written"), "{}", all.stderr);
    assert_eq!(all.expect(3).json()["noted"], false);
    drop(unwritable);
    let forgot = run(&mut home.hold(["forget", address, "--json", "--via", &via])).expect(0).json();
    assert_eq!(forgot["key_forgotten"], true, "{forgot}");
    home.get(&via, address, &back).expect_error(10);
}

#[test]
fn a_home_on_a_full_disk_ends_nothing() {
    let network = Network::running(3, &[]);
    let Some(disk) = SmallDisk::mount(&network.folder.path().join("small"), "1m") else {
        return testkit::skipped("a home on a full disk: no tmpfs can be mounted here");
    };
    let (home, via) = (network.home("small", 0), network.via());
    let (file, back) = (network.folder.path().join("file"), network.folder.path().join("back"));
    random_file(&file, 100_000, 1);
    // The first time none of the files is there that it is noted in, then all are.
    for _ in 0..2 {
        let put = home.put(&via, &file);
        let address = put["address"].as_str().unwrap();
        let ballast = disk.fill();
        let refused = run(&mut home.hold(["forget", address, "--via", &via]));
        assert!(!matches!(refused.code, Some(0 | 3)), "{refused:?}");
        home.get(&via, address, &back).expect(0);
        assert_same(&file, &back);
        fs::remove_file(&back).unwrap();
        fs::remove_file(ballast).unwrap();
        let forgot = run(&mut home.hold(["forget", address, "--json", "--via", &via]));
        let forgot = forgot.expect(0).json();
        assert_eq!(forgot["key_forgotten"], true, "{forgot}");
        home.get(&via, address, &back).expect_error(10);
    }
}
