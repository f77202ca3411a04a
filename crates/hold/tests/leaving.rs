//! A whole organisation leaves a network of processes in order, and nothing has fewer copies or fragments at any moment; and
//! one that vanishes takes what its share was and no more.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::{Home, Network, assert_same, full, hold, random_file, run};
use serde_json::Value;

/// How long repair may take, the time until peers count as absent included.
const LIMIT: Duration = Duration::from_secs(400);
/// After how many seconds of silence a peer is absent, where that is what a test waits for.
const ABSENT_S: u64 = 5;
/// And where a peer that is only slow, on a busy machine, must not be.
const PATIENT_S: u64 = 90;
const ORGS: usize = 4;
const PEERS: usize = 12;
/// The organisation that goes.
const LEAVER: usize = 3;

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

struct World {
    network: Network,
    home: Home,
    files: Vec<(PathBuf, String)>,
}

impl World {
    /// Contents in copies, and in stripes of 3/6: an organisation of four has at most two fragments of six.
    fn new(absent_after_s: u64) -> Self {
        let repair =
            format!("\n[repair]\nabsent_after_s = {absent_after_s}\ncompare_s = 1\nsettle_s = 2\n");
        let mut network = Network::new(ORGS, &["--profile", "3/6"]);
        network.add_peers(PEERS);
        for peer in &network.peers {
            let path = peer.dir.join("peer.toml");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text + &repair).unwrap();
        }
        network.start_all();
        network.acquainted();
        let (home, via) = (network.home("owner", 0), network.everybody());
        let sizes: &[usize] = match full() {
            true => &[300, 5_000, 90_000, 1 << 20, 9 << 20, 40 << 20],
            false => &[300, 5_000, 90_000, 2 << 20],
        };
        let mut files = Vec::new();
        for (number, bytes) in sizes.iter().enumerate() {
            let file = network.folder.path().join(format!("file{number}"));
            random_file(&file, *bytes, number as u64 + 1);
            let put = home.put(&via, &file);
            files.push((file, put["address"].as_str().unwrap().to_owned()));
        }
        Self { network, home, files }
    }

    fn staying(&self) -> String {
        let stay =
            self.network.peers.iter().enumerate().filter(|(number, _)| number % ORGS != LEAVER);
        stay.map(|(_, peer)| peer.address.clone()).collect::<Vec<_>>().join(",")
    }

    /// What a check of all says, a line a content.
    fn check(&self) -> Vec<Value> {
        let args = ["check", "--json", "--via", &self.staying()];
        let addresses = self.files.iter().map(|(_, address)| address);
        let text = run(self.home.hold(args).args(addresses)).text();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn is_full(&self) -> bool {
        let checked = self.check();
        checked.len() == self.files.len() && checked.iter().all(|one| one["state"] == "full")
    }

    #[track_caller]
    fn reads_all(&self) {
        let back = self.network.folder.path().join("back");
        for (file, address) in &self.files {
            self.home.get(&self.staying(), address, &back).expect(0);
            assert_same(file, &back);
            fs::remove_file(&back).unwrap();
        }
    }

    /// Takes the organisation off the roster, signed by two of the others.
    fn remove_organisation(&self) {
        let proposal = self.network.folder.path().join("removal");
        let mut propose = hold(["network", "remove-org", "--network"]);
        propose.arg(&self.network.file).args(["--org", &format!("org{LEAVER}"), "-o"]);
        run(propose.arg(&proposal)).expect(0);
        for org in &self.network.orgs[..3] {
            let mut sign = hold(["org", "sign-roster", "--dir"]);
            sign.arg(org).arg("--network").arg(&self.network.file).arg("--roster");
            run(sign.arg(&proposal)).expect(0);
        }
        let mut apply = hold(["network", "apply", "--network"]);
        apply.arg(&self.network.file).arg("--roster").arg(&proposal);
        run(apply.args(["--via", &self.network.peers[0].address])).expect(0);
    }

    /// A number of what repair did, over the peers that stay.
    fn repaired(&self, what: &str) -> u64 {
        let stay =
            self.network.peers.iter().enumerate().filter(|(number, _)| number % ORGS != LEAVER);
        stay.map(|(_, peer)| peer.status()["repair"][what].as_u64().unwrap()).sum()
    }
}

#[test]
fn while_a_whole_organisation_leaves_in_order_nothing_is_degraded() {
    let world = World::new(PATIENT_S);
    until("all was put", || world.is_full());
    let made = world.repaired("fragments_made");
    let (over, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // Whoever looks finds everything full, at those that stay and those that leave together, and can read it.
        let looking = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let checked = world.check();
                let full = checked.iter().all(|one| one["state"] == "full");
                assert!(full && checked.len() == world.files.len(), "degraded: {checked:#?}");
                world.reads_all();
                looks.fetch_add(1, Ordering::AcqRel);
            }
        });
        let leavers = world.network.peers.iter().enumerate();
        for (_, peer) in leavers.filter(|(number, _)| number % ORGS == LEAVER) {
            let left = run(hold(["peer", "leave", "--json", "--dir"]).arg(&peer.dir));
            assert_eq!(left.expect(0).json()["left"], true);
            assert!(!looking.is_finished(), "something was degraded");
        }
        over.store(true, Ordering::Release);
        looking.join().unwrap();
    });
    println!("checked and read {} times while they left", looks.load(Ordering::Acquire));
    assert!(looks.load(Ordering::Acquire) > 0);
    assert!(world.is_full(), "{:#?}", world.check());
    assert_eq!(world.repaired("fragments_made"), made, "handed over, and not made again");
    world.remove_organisation();
    until("nobody knows the organisation any more", || {
        (0..PEERS)
            .filter(|number| number % ORGS != LEAVER)
            .all(|number| world.network.peers[number].status()["organisations"] == ORGS as u64 - 1)
    });
    until("everything is full without it", || world.is_full());
    world.reads_all();
}

/// `docs/operating/durability.md`: the rank gives each organisation an even share of a stripe, so of four one has at most two
/// fragments of six, and three are enough.
#[test]
fn an_organisation_that_vanishes_takes_its_even_share_and_the_others_make_it_again() {
    let mut world = World::new(ABSENT_S);
    until("all was put", || world.is_full());
    for number in (0..PEERS).filter(|number| number % ORGS == LEAVER) {
        world.network.peers[number].kill();
    }
    let after = world.check();
    for one in &after {
        assert!(matches!(one["state"].as_str(), Some("full" | "lacking")), "{one}");
        // 6 - 3 may be lost, and at most ceil(6 / 4) were; of copies there are five on four, and two at most were here.
        let survives = one["survives"].as_u64().unwrap();
        assert!(survives >= 1, "more than an even share is gone: {one}");
    }
    world.reads_all();
    until("its share is made again", || world.is_full());
    world.reads_all();
}
