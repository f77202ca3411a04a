//! Members of a committee change, as processes and by the verbs alone: four organisations found one, a fifth joins and becomes a
//! member, a founder is removed, all are refreshed, and all are killed and come back; under one key, while updates go on.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::{Home, Network, Outcome, Running, free_addresses, hold, run};
use serde_json::Value;

const FOUNDERS: usize = 4;
/// The longest that a founding, or a change of the members, may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(300);

struct Town {
    network: Network,
    key: String,
    /// The members' keys, by peer.
    members: Vec<String>,
}

impl Town {
    /// Five peers of five organisations and one more of the first, and the committee that four of them found.
    fn founded() -> Self {
        let mut network = Network::new(FOUNDERS + 1, &[]);
        network.add_peers(FOUNDERS + 2);
        network.start_all();
        network.acquainted();
        let listen = free_addresses(FOUNDERS);
        let founders: Vec<Running> = (0..FOUNDERS)
            .map(|which| {
                let others = (0..FOUNDERS).filter(|other| *other != which);
                let with: Vec<&str> =
                    others.map(|other| network.peers[other].address.as_str()).collect();
                let mut command = hold(["committee", "init", "--json", "--dir"]);
                command.arg(&network.peers[which].dir).args(["--listen", &listen[which]]);
                command.args(["--with", &with.join(","), "--within", "200"]);
                Running::start(&mut command)
            })
            .collect();
        let founded: Vec<Value> =
            founders.into_iter().map(|founder| founder.finish(PATIENCE).expect(0).json()).collect();
        let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
        let key = text(&founded[0], "committee");
        let members = founded.iter().map(|one| text(one, "member")).collect();
        let town = Self { network, key, members };
        (0..FOUNDERS).for_each(|which| town.runs(which));
        town
    }

    fn dir(&self, which: usize) -> &Path {
        &self.network.peers[which].dir
    }

    /// Waits until the librarian has its member running.
    fn runs(&self, which: usize) {
        self.until(which, "runs", |status| status["committee"]["running"] == true);
    }

    fn until(&self, which: usize, what: &str, holds: impl Fn(&Value) -> bool) {
        let started = Instant::now();
        loop {
            let status = self.network.peers[which].status();
            if holds(&status) {
                return;
            }
            let log = || self.network.peers[which].log();
            assert!(started.elapsed() < PATIENCE, "{which}: not {what}: {status}\n{}", log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The operators of these peers ask at the same time.
    fn ask(&self, by: &[usize], verb: &str, more: &[&str]) -> Vec<Outcome> {
        let asked: Vec<Running> = by
            .iter()
            .map(|which| {
                let mut command = hold(["committee", verb, "--json", "--dir"]);
                Running::start(command.arg(self.dir(*which)).args(more))
            })
            .collect();
        asked.into_iter().map(|one| one.finish(PATIENCE)).collect()
    }

    /// They ask, and it comes about: what each is told.
    fn change(&self, by: &[usize], verb: &str, more: &[&str], epoch: u64, list: &[usize]) {
        let expected: BTreeSet<&str> =
            list.iter().map(|which| self.members[*which].as_str()).collect();
        for outcome in self.ask(by, verb, more) {
            let told = outcome.expect(0).json();
            let members: BTreeSet<&str> = told["members"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one.as_str().unwrap())
                .collect();
            assert_eq!((&told["changed"], told["epoch"].as_u64()), (&true.into(), Some(epoch)));
            assert_eq!(
                (members, &told["committee"]),
                (expected.clone(), &self.key.as_str().into())
            );
        }
        self.votes(epoch, list);
    }

    /// Waits until these vote in an epoch.
    fn votes(&self, epoch: u64, list: &[usize]) {
        for which in list {
            self.until(*which, "voting in the epoch", |status| {
                let member = &status["committee"];
                member["votes"] == true && member["epoch"].as_u64() == Some(epoch)
            });
        }
    }

    fn head(&self, home: &Home, verb: &str, more: &[&str]) -> Outcome {
        let mut command = home.hold(["head", verb, "--json", "--committee", &self.key]);
        run(command.args(["--via", &self.network.everybody()]).args(more))
    }

    fn object(&self, home: &Home, verb: &str, more: &[&str]) -> Outcome {
        let mut command = home.hold(["object", verb, "--json"]);
        run(command.args(["--via", &self.network.everybody()]).args(more))
    }

    /// Puts a version and has it certified, through whatever is unavailable for a while.
    fn update(&self, home: &Home, value: &str, more: &[&str]) {
        let put = self.object(home, "put", &["board", "--value", value, "--receipt"]);
        assert!(matches!(put.code, Some(0 | 3)), "{put:?}");
        let version = put.json()["version"].as_str().unwrap().to_owned();
        let started = Instant::now();
        loop {
            let outcome = self.head(home, "update", &[&["board", &version], more].concat());
            if outcome.code == Some(0) {
                return;
            }
            let later = matches!(outcome.code, Some(11 | 15));
            assert!(later && started.elapsed() < PATIENCE, "{value}: {outcome:?}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.network.folder.path().join(name)
    }

    fn verify(&self, file: &Path) {
        let mut command = hold(["committee", "verify", "--key", &self.key, "--network"]);
        run(command.arg(&self.network.file).arg(file)).expect(0);
    }

    /// The members that clients find, by key.
    fn seats(&self, home: &Home) -> BTreeSet<String> {
        let mut command = home.hold(["committee", "members", "--json", "--committee", &self.key]);
        let told = run(command.args(["--via", &self.network.via()])).expect(0).text();
        let member = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["member"].as_str().unwrap().to_owned()
        };
        told.lines().map(member).collect()
    }

    /// A peer follows the committee.
    fn join(&mut self, which: usize) {
        let at = free_addresses(1);
        let mut command = hold(["committee", "join", "--json", "--committee", &self.key, "--dir"]);
        command.arg(self.dir(which)).args(["--listen", &at[0]]);
        // One organisation's word is not enough.
        let [first, second] = [0, 1].map(|peer| self.network.peers[peer].address.as_str());
        let alone = run(command.args(["--via", first])).expect(2);
        assert!(alone.stderr.contains("two organisations"), "{alone:?}");
        let both = [first, second].join(",");
        let mut command = hold(["committee", "join", "--json", "--committee", &self.key, "--dir"]);
        command.arg(self.dir(which)).args(["--listen", &at[0], "--via", &both]);
        let joined = run(&mut command).expect(0).json();
        self.members.push(joined["member"].as_str().unwrap().to_owned());
        self.until(which, "following", |status| {
            status["committee"]["running"] == true && status["committee"]["votes"] == false
        });
    }
}

#[test]
fn members_change_by_the_verbs_under_one_key_while_updates_go_on() {
    let mut town = Town::founded();
    let ada = town.network.home("ada", 0);
    town.object(&ada, "create", &["board", "--open", "--public"]).expect(0);
    let before = town.file("before");
    town.update(&ada, "founded", &["--proof", before.to_str().unwrap()]);

    // What is no change is refused, and says why; nobody is asked for anything.
    let refused = |more: &[&str], why: &str| {
        let outcome = town.ask(&[0], "reshare", more).remove(0).expect(2);
        assert!(outcome.stderr.contains(why), "{outcome:?}");
    };
    refused(&[], "whom");
    let second = town.network.peers[1].address.clone();
    refused(&["--add", &second], "a member already");
    refused(&["--remove", &town.members[3]], "4 to 32");
    refused(&["--remove", "00112233"], "not the beginning of one");
    let fifth = town.network.peers[FOUNDERS].address.clone();
    refused(&["--add", &fifth], "hold committee join");
    town.join(FOUNDERS);
    town.join(FOUNDERS + 1);
    // Of one organisation with the first.
    let sixth = town.network.peers[FOUNDERS + 1].address.clone();
    let both = town.ask(&[1], "reshare", &["--add", &sixth]).remove(0).expect(2);
    assert!(both.stderr.contains("of one organisation"), "{both:?}");
    let own = town.ask(&[FOUNDERS], "refresh", &[]).remove(0).expect(2);
    assert!(own.stderr.contains("operators of members ask"), "{own:?}");
    // One operator alone changes nothing.
    let alone = town.ask(&[3], "reshare", &["--add", &fifth, "--within", "4"]).remove(0).expect(15);
    assert!(alone.stderr.contains("not asked for the same yet"), "{alone:?}");

    // Updates go on throughout.
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (town, ada) = (&town, &ada);
        let updates = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let number = done.load(Ordering::Relaxed);
                town.update(ada, &format!("update {number}"), &[]);
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let ended = Stop(&stop);
        town.change(&[0, 1, 3], "reshare", &["--add", &fifth], 1, &[0, 1, 2, 3, 4]);
        let five = done.load(Ordering::Relaxed);
        // A founder is removed, by the first digits of its key; it asks for it itself, too.
        let gone = town.members[2][..12].to_owned();
        town.change(&[0, 1, 2, 4], "reshare", &["--remove", &gone], 2, &[0, 1, 3, 4]);
        town.until(2, "removed", |status| {
            let member = &status["committee"];
            member["votes"] == false && member["seated"] == false && member["epoch"] == 2
        });
        // Its operator is told a look later.
        let started = Instant::now();
        while !town.network.peers[2].log().contains("removed from its committee") {
            assert!(started.elapsed() < PATIENCE, "{}", town.network.peers[2].log());
            std::thread::sleep(Duration::from_millis(200));
        }
        town.change(&[0, 1, 3, 4], "refresh", &[], 3, &[0, 1, 3, 4]);
        let refreshed = done.load(Ordering::Relaxed);
        assert!(five > 0 && refreshed > five, "{five} and {refreshed} updates");
        drop(ended);
        updates.join().unwrap();
    });
    town.verify(&before);
    assert_eq!(town.seats(&ada), [0, 1, 3, 4].map(|which| town.members[which].clone()).into());

    // All are killed at once, and come back: one of them with the charter not yet beside its member.
    town.network.peers.iter_mut().for_each(harness::Peer::kill);
    fs::remove_file(town.dir(1).join("committee/charter")).unwrap();
    town.network.start_all();
    town.votes(3, &[0, 1, 3, 4]);
    let after = town.file("after");
    town.update(&ada, "after all were killed", &["--proof", after.to_str().unwrap()]);
    town.verify(&after);
    // With the removed one and one of the founders gone, the fifth is needed, and is there.
    for gone in [2, 3] {
        assert_eq!(town.network.peers[gone].terminate(), Some(0));
    }
    town.update(&ada, "with the fifth", &[]);
    town.head(&ada, "read", &["board", "--fresh"]).expect(0);
    // A user who never saw the committee finds its members of now.
    let eve = town.network.home("eve", 1);
    assert_eq!(town.seats(&eve).len(), 4);
}

/// Ends the updates, also where a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
