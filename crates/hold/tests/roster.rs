//! Who takes part changes while a network of processes runs: organisations join and leave, everybody learns it, and it
//! survives restarts and kill -9.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use harness::{
    Home, Network, Outcome, PATIENCE, Running, assert_same, full, hold, random_file, run,
};
use serde_json::Value;

/// What a running network needs to learn a roster: news take a second, an introduction half a minute.
const LEARNT_WITHIN: Duration = Duration::from_secs(100);

/// A network and the files that go round in it.
struct World {
    network: Network,
}

impl World {
    fn running(peers: usize) -> Self {
        Self { network: Network::running(peers, &[]) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.network.folder.path().join(name)
    }

    /// Makes another organisation; its directory.
    fn organise(&mut self, name: &str) -> PathBuf {
        let dir = self.at(name);
        run(hold(["org", "init", "--dir"]).arg(&dir)).expect(0);
        self.network.orgs.push(dir.clone());
        dir
    }

    /// A proposal by `network VERB` with these arguments.
    fn propose(&self, verb: &str, name: &str, args: &[&str]) -> PathBuf {
        let file = self.at(name);
        let mut command = hold(["network", verb, "--network"]);
        command.arg(&self.network.file).args(args).arg("-o").arg(&file);
        run(&mut command).expect(0);
        file
    }

    fn sign(&self, org: usize, file: &Path) -> Outcome {
        let mut command = hold(["org", "sign-roster", "--json", "--dir"]);
        command.arg(&self.network.orgs[org]).arg("--network").arg(&self.network.file);
        run(command.arg("--roster").arg(file))
    }

    fn apply(&self, files: &[&Path], args: &[&str]) -> Outcome {
        let mut command = hold(["network", "apply", "--json", "--network"]);
        command.arg(&self.network.file).args(args);
        for file in files {
            command.arg("--roster").arg(file);
        }
        run(&mut command)
    }

    /// Proposes, has organisations 0 and 1 sign, and hands it to librarian 0.
    fn change(&self, verb: &str, name: &str, args: &[&str]) -> Value {
        let file = self.propose(verb, name, args);
        self.sign(0, &file).expect(0);
        self.sign(1, &file).expect(0);
        let via = self.network.peers[0].address.clone();
        self.apply(&[&file], &["--via", &via]).expect(0).json()
    }

    fn status(&self, peer: usize) -> Value {
        let via = self.network.peers[peer].address.clone();
        let mut command = hold(["peer", "status", "--json", "--via", &via]);
        run(command.env("HOLD_NETWORK", &self.network.file)).expect(0).json()
    }

    #[track_caller]
    fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let since = Instant::now();
        while !holds(self) {
            assert!(since.elapsed() < LEARNT_WITHIN, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn knows(&self, peer: usize, roster: u64) -> bool {
        self.status(peer)["roster"] == roster
    }

    fn healthy(&self, peer: usize) -> usize {
        let status = self.status(peer);
        let peers = status["peers"].as_array().unwrap();
        peers.iter().filter(|peer| peer["health"] == "healthy").count()
    }
}

fn rosters_beside(network: &Path) -> PathBuf {
    network.with_file_name(format!("{}.rosters", network.file_name().unwrap().to_str().unwrap()))
}

#[track_caller]
fn get_same(home: &Home, via: &str, address: &Value, file: &Path) {
    let to = file.with_extension("back");
    let _ = fs::remove_file(&to);
    home.get(via, address.as_str().unwrap(), &to).expect(0);
    assert_same(file, &to);
}

#[test]
fn an_organisation_joins_a_running_network_holds_and_serves_and_restarts_keep_it() {
    let mut world = World::running(3);
    let file = world.at("file");
    random_file(&file, 3 << 20, 1);
    let home = world.network.home("home", 0);
    let before = home.put(&world.network.via(), &file);

    // Its user is there before it is: the home has the network file of then.
    let fourth = world.organise("org3");
    let late = world.network.home("late", 3);
    let denied = {
        let mut command = late.hold(["put", "--via", &world.network.via()]);
        run(command.env("HOLD_ORG", &fourth).arg(&file))
    };
    denied.expect_error(13);

    // Two copies of one proposal, signed apart.
    let one = world.propose("add-org", "one", &["--org", fourth.to_str().unwrap()]);
    let two = world.at("two");
    fs::copy(&one, &two).unwrap();
    assert_eq!(world.sign(0, &one).expect(0).json()["needed"], 2);
    world.sign(2, &two).expect(0);
    let few = world.apply(&[&one], &["--via", &world.network.via()]).expect_error(13);
    assert!(few.stderr.contains("sign-roster"), "{}", few.stderr);
    assert!(!rosters_beside(&world.network.file).exists());
    let via = world.network.peers[1].address.clone();
    let applied = world.apply(&[&one, &two], &["--via", &via]).expect(0).json();
    assert_eq!((&applied["roster"], &applied["organisations"]), (&1.into(), &4.into()));
    assert_eq!(applied["told"][0]["taken"], true);
    world.until("all know it", |world| (0..3).all(|peer| world.knows(peer, 1)));

    world.network.add_peers(1);
    world.network.start_all();
    world.until("all meet the newcomer", |world| (0..4).all(|peer| world.healthy(peer) == 4));
    // What its user learns while joining is what counts: the pass, and who is asked.
    let newcomer = world.network.peers[3].address.clone();
    let mut command = late.hold(["put", "--json", "--via", &newcomer]);
    let put = run(command.env("HOLD_ORG", &fourth).arg(&file)).expect(0).json();
    assert_eq!(put["acked"], put["wanted"], "{put}");
    assert!(rosters_beside(&late.dir.join("network")).exists(), "what was learnt is kept");
    get_same(&home, &newcomer, &before["address"], &file);
    assert!(rosters_beside(&home.dir.join("network")).exists());
    // Copies lie at three of four peers: with ten small files the newcomer has some.
    for seed in 0..10 {
        let small = world.at(&format!("small{seed}"));
        random_file(&small, 30_000, 100 + seed);
        home.put(&newcomer, &small);
    }
    world.until("the newcomer holds", |world| world.status(3)["records"] != 0);

    for peer in &mut world.network.peers {
        assert_eq!(peer.terminate(), Some(0));
        assert!(rosters_beside(&peer.dir.join("network")).exists());
    }
    world.network.start_all();
    world.until("all are back", |world| (0..4).all(|peer| world.healthy(peer) == 4));
    assert!((0..4).all(|peer| world.knows(peer, 1)));
    get_same(&home, &newcomer, &before["address"], &file);
}

/// A watch, and a put of lines of which none comes: each goes on until it is stopped.
fn goes_on(home: &Home, via: &str) -> Vec<Running> {
    let made = run(&mut home.hold(["object", "create", "board", "--json", "--via", via]));
    assert!(matches!(made.code, Some(0 | 3)), "{made:?}");
    let verbs = [&["watch", "board"][..], &["put", "list", "--lines"]];
    let start = |verb: &[&str]| {
        let mut command = home.hold(["object"]);
        command.args(verb).args(["--json", "--via", via]).stdin(Stdio::piped());
        Running::start(&mut command)
    };
    verbs.into_iter().map(start).collect()
}

#[test]
fn an_organisation_that_leaves_is_refused_everywhere_and_the_others_go_on() {
    let world = World::running(4);
    let file = world.at("file");
    random_file(&file, 2 << 20, 2);
    let (stays, leaves) = (world.network.home("stays", 1), world.network.home("leaves", 2));
    let put = stays.put(&world.network.via(), &file);
    leaves.put(&world.network.via(), &file);
    let mut follower = stays.hold(["inbox", "--follow", "--json", "--via", &world.network.via()]);
    let mut follower = Running::start(&mut follower);
    let mut theirs = leaves.hold(["inbox", "--follow", "--json", "--via", &world.network.via()]);
    let mut theirs = Running::start(&mut theirs);
    let going = if full() { goes_on(&leaves, &world.network.via()) } else { Vec::new() };
    std::thread::sleep(Duration::from_secs(1));

    let name = "org2";
    let applied = world.change("remove-org", "removal", &["--org", name]);
    assert_eq!(applied["organisations"], 2);
    let others = [0, 1, 3];
    world.until("the others know it", |world| others.iter().all(|peer| world.knows(*peer, 1)));
    world.until("its peer is gone", |world| {
        others.iter().all(|peer| world.status(*peer)["peers"].as_array().unwrap().len() == 3)
    });
    // Its peer is told in its log; its client is denied, also with a pass that had hours left.
    world
        .until("its peer knows", |world| world.network.peers[2].log().contains("left the network"));
    let via = world.network.peers[0].address.clone();
    let mut command = leaves.hold(["put", "--json", "--via", &via]);
    command.arg(&file);
    // Also when its network file has the roster already, and it shows peers no pass.
    for _ in 0..2 {
        let refused = run(&mut command).expect_error(13);
        assert!(refused.stderr.contains("not in the network's roster"), "{}", refused.stderr);
    }
    let shown = run(&mut leaves.hold(["doctor", "--json", "--via", &via])).json();
    let checks = shown["checks"].as_array().unwrap();
    let told = checks.iter().find(|check| check["check"] == "roster").unwrap();
    assert_eq!(told["verdict"], "warn", "{shown}");
    // What it signs now counts nowhere, and is not signed at all.
    let pass = world.at("pass");
    let mut command = hold(["org", "pass", "--client", &stays.reader(), "--dir"]);
    command.arg(&world.network.orgs[2]).arg("--network").arg(&world.network.file);
    let refused = run(command.arg("-o").arg(&pass)).expect_error(13);
    assert!(refused.stderr.contains("hold network"), "{}", refused.stderr);

    // The others go on with what they have.
    get_same(&stays, &via, &put["address"], &file);
    stays.put(&via, &file);
    let shown = run(&mut stays.hold(["doctor", "--json", "--via", &via])).json();
    let checks = shown["checks"].as_array().unwrap();
    let told = checks.iter().find(|check| check["check"] == "roster").unwrap();
    assert_eq!((&told["verdict"], &told["text"]), (&"ok".into(), &"1, 2 organisations".into()));

    // Its peer starts no more: what it would show counts nowhere.
    let mut world = world;
    world.network.peers[2].kill();
    let mut command = hold(["peer", "run", "--dir"]);
    run(command.arg(&world.network.peers[2].dir)).expect_error(13);
    assert!(!follower.ended(), "who stays goes on listening");
    if full() {
        world.until("who left is told so", |_| theirs.ended());
        let told = theirs.finish(PATIENCE).expect_error(13);
        assert!(told.stderr.contains("by roster 1"), "{}", told.stderr);
        for mut one in going {
            world.until("what goes on is told so", |_| one.ended());
            let told = one.finish(PATIENCE).expect_error(13);
            assert!(told.stderr.contains("by roster 1"), "{}", told.stderr);
        }
        // It asks what changed once a minute.
        let beside = rosters_beside(&stays.dir.join("network"));
        let _ = fs::remove_file(&beside);
        world.change("rename-org", "renamed", &["--org", "org1", "--name", "one"]);
        world.until("who listens learnt it", |_| beside.exists());
    }
    follower.signal("TERM");
    follower.finish(PATIENCE).expect(130);
}

#[test]
fn a_roster_that_was_applied_survives_kill_9_before_its_news() {
    let mut world = World::running(3);
    let dir = world.network.peers[1].dir.to_str().unwrap().to_owned();
    let mut named = "org2".to_owned();
    for (round, wait) in [(1, 0), (2, 400), (3, 1_100)] {
        let name = format!("name {round}");
        let args = ["--org", named.as_str(), "--name", name.as_str()];
        let file = world.propose("rename-org", &name, &args);
        world.sign(0, &file).expect(0);
        world.sign(1, &file).expect(0);
        let applied = world.apply(&[&file], &["--peer", &dir]).expect(0).json();
        assert_eq!(applied["told"][0]["taken"], true);
        std::thread::sleep(Duration::from_millis(wait));
        world.network.peers[1].kill();
        world.network.peers[1].start();
        assert!(world.knows(1, round), "it was acknowledged");
        world.until("all know it", |world| (0..3).all(|peer| world.knows(peer, round)));
        named = name;
    }
}

#[test]
fn every_verb_of_rosters_refuses_what_does_not_count_and_says_what_to_do() {
    let mut world = World { network: Network::new(3, &[]) };
    let outsider = world.organise("outsider");
    let outsider = outsider.to_str().unwrap();
    let file = world.network.file.clone();
    let verb = |verb: &str, args: &[&str], out: &str| {
        let mut command = hold(["network", verb, "--json", "--network"]);
        run(command.arg(&file).args(args).arg("-o").arg(world.at(out)))
    };
    let listed = world.network.orgs[0].to_str().unwrap();
    verb("add-org", &["--org", listed], "x").expect_error(2);
    verb("add-org", &["--org", "nobody"], "x").expect_error(2);
    verb("remove-org", &["--org", outsider], "x").expect_error(13);
    verb("rename-org", &["--org", "org0", "--name", "org0"], "x").expect_error(2);
    verb("rename-org", &["--org", "org0", "--name", "a\nb"], "x").expect_error(2);
    verb("change-key", &["--org", "org0", "--to", listed], "x").expect_error(2);
    assert!(!world.at("x").exists(), "a proposal that is none leaves no file");
    let made = verb("add-org", &["--org", outsider], "join").expect(0).json();
    assert_eq!(made["joins"][0]["name"], "outsider");
    assert_eq!((&made["roster"], &made["needed"], &made["of"]), (&1.into(), &2.into(), &3.into()));
    verb("add-org", &["--org", outsider], "join").expect_error(14);

    let join = world.at("join");
    assert!(world.apply(&[&join], &[]).expect_error(13).stderr.contains("0 of 3"));
    world.sign(3, &join).expect_error(13);
    let signed = world.sign(0, &join).expect(0).json();
    assert_eq!(signed["signed"][0]["name"], "org0");
    assert_eq!(world.sign(0, &join).expect(0).json()["signed"].as_array().unwrap().len(), 1);
    // A second roster of one number is signed only where it is meant.
    verb("remove-org", &["--org", "org2"], "leave").expect(0);
    let leave = world.at("leave");
    assert!(world.sign(0, &leave).expect_error(14).stderr.contains("--instead"));
    let mut instead = hold(["org", "sign-roster", "--instead", "--dir"]);
    instead.arg(&world.network.orgs[0]).arg("--network").arg(&file).arg("--roster").arg(&leave);
    run(&mut instead).expect(0);
    assert!(world.sign(0, &join).expect_error(14).stderr.contains("--instead"));
    world.apply(&[&join, &leave], &[]).expect_error(2);
    let mut show = hold(["network", "show", "--json"]);
    let shown = run(show.arg(&file).arg("--roster").arg(&leave)).expect(0).json();
    assert_eq!((&shown["leaves"][0]["name"], &shown["needed"]), (&"org2".into(), &2.into()));

    let garbage = world.at("garbage");
    fs::write(&garbage, "garbage").unwrap();
    world.apply(&[&garbage], &[]).expect_error(2);
    world.sign(1, &garbage).expect_error(2);
    world.apply(&[&world.at("missing")], &[]).expect_error(10);
    let foreign = World { network: Network::new(2, &[]) };
    let theirs = foreign.propose("remove-org", "leave", &["--org", "org1"]);
    foreign.sign(0, &theirs).expect(0);
    foreign.sign(1, &theirs).expect(0);
    world.apply(&[&theirs], &[]).expect_error(13);
    let mut bytes = fs::read(&join).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&garbage, bytes).unwrap();
    let flipped = world.apply(&[&garbage], &[]);
    assert!(matches!(flipped.code, Some(2 | 13 | 16)), "{flipped:?}");
    assert!(!rosters_beside(&file).exists(), "nothing of that counts");

    // The join counts; what was proposed beside it does not follow any more.
    world.sign(2, &join).expect(0);
    let applied = world.apply(&[&join], &[]).expect(0).json();
    assert_eq!((&applied["roster"], &applied["organisations"]), (&1.into(), &4.into()));
    world.apply(&[&join], &[]).expect(0);
    assert!(world.sign(1, &leave).expect_error(14).stderr.contains("propose the change again"));
    // Nobody answers: the file has it, and that nobody was told is told.
    let nobody = world.apply(&[], &["--via", "127.0.0.1:9"]).expect(3).json();
    assert_eq!((&nobody["roster"], &nobody["told"][0]["taken"]), (&1.into(), &false.into()));

    // A key that changes goes on counting until its end; a stolen one does not.
    let new = world.organise("new");
    let new = new.to_str().unwrap();
    let change = ["--org", "org0", "--to", new];
    let kept = world.propose("change-key", "kept", &change);
    let stolen = world.propose("change-key", "stolen", &[&change[..], &["--stolen"]].concat());
    let show = |path: &Path| {
        let mut show = hold(["network", "show", "--json"]);
        run(show.arg(&file).arg("--roster").arg(path)).expect(0).json()
    };
    assert_eq!(show(&kept)["former"].as_array().unwrap().len(), 1);
    assert_eq!(show(&stolen)["former"].as_array().unwrap().len(), 0);
    for org in 1..4 {
        world.sign(org, &kept).expect(0);
    }
    world.apply(&[&kept], &[]).expect(0);
    let shown = run(hold(["network", "show", "--json"]).arg(&file)).expect(0).json();
    assert_eq!((&shown["roster"], shown["former"].as_array().unwrap().len()), (&2.into(), 1));
}

#[test]
fn an_organisation_signs_one_roster_of_a_number_also_where_two_are_signed_at_once() {
    let mut world = World { network: Network::new(3, &[]) };
    let outsider = world.organise("outsider");
    let proposals = [
        world.propose("remove-org", "leave", &["--org", "org2"]),
        world.propose("add-org", "join", &["--org", outsider.to_str().unwrap()]),
    ];
    let unsigned = proposals.each_ref().map(|path| fs::read(path).unwrap());
    let org = world.network.orgs[0].clone();
    let start = |file: &Path| {
        let mut command = hold(["org", "sign-roster", "--dir"]);
        command.arg(&org).arg("--network").arg(&world.network.file);
        Running::start(command.arg("--roster").arg(file))
    };
    for _ in 0..8 {
        let signing = proposals.each_ref().map(|path| start(path));
        let mut codes = signing.map(|one| one.finish(PATIENCE).code);
        codes.sort();
        assert_eq!(codes, [Some(0), Some(14)], "one of them alone");
        for (path, bytes) in proposals.iter().zip(&unsigned) {
            fs::write(path, bytes).unwrap();
        }
        let remembered = fs::read_dir(&org).unwrap().map(|item| item.unwrap().path());
        let is_list = |path: &PathBuf| path.to_str().unwrap().contains("signed-rosters-");
        remembered.filter(is_list).for_each(|path| fs::remove_file(path).unwrap());
    }
    // While another signs it waits.
    let other = fs::OpenOptions::new().write(true).open(org.join("signed.lock")).unwrap();
    other.lock().unwrap();
    let mut waiting = start(&proposals[0]);
    std::thread::sleep(Duration::from_millis(500));
    assert!(!waiting.ended());
    assert_eq!(fs::read(&proposals[0]).unwrap(), unsigned[0]);
    drop(other);
    waiting.finish(PATIENCE).expect(0);
}
