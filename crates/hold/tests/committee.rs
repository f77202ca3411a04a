//! Four librarians of four organisations, as processes, found a committee and certify heads: through kills, lost races, unlisted
//! writers, versions that nobody keeps, and files that somebody changed.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use committee::{GroupKey, Position, Read};
use crypto::{NetworkId, SecretKey};
use env::Env;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeRequest};
use env::calls::{CallError, Calls as _, Credential, Endpoint};
use harness::{Home, Network, Outcome, Peer, Running, free_addresses, hold, run};
use rpc::{Client, ClientLimits, Identity};
use serde_json::Value;
use version::ObjectKey;

const COUNT: usize = 4;
/// The longest that a founding, or a committee that was cut short, may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(300);

struct Four {
    network: Network,
    /// The committee's key.
    key: String,
}

impl Four {
    /// Four peers of four organisations that run, and the committee that they found.
    fn founded() -> Self {
        Self::founded_in(&[])
    }

    /// In a network that is made with these arguments.
    fn founded_in(args: &[&str]) -> Self {
        let mut network = Network::new(COUNT, args);
        network.add_peers(COUNT);
        network.start_all();
        network.acquainted();
        let listen = free_addresses(COUNT);
        let founders: Vec<Running> = (0..COUNT)
            .map(|which| {
                let others = network.peers.iter().enumerate().filter(|(one, _)| *one != which);
                let with: Vec<&str> = others.map(|(_, peer)| peer.address.as_str()).collect();
                let mut command = hold(["committee", "init", "--dir"]);
                command.arg(&network.peers[which].dir).args(["--listen", &listen[which]]);
                command.args((which > 0).then_some("--json"));
                command.args(["--with", &with.join(","), "--within", "200"]);
                Running::start(&mut command)
            })
            .collect();
        let founded: Vec<Outcome> =
            founders.into_iter().map(|founder| founder.finish(PATIENCE).expect(0)).collect();
        // The first operator sees with whom it founds, and the key alone.
        let (first, others) = founded.split_first().unwrap();
        let named = "founding as org0 together with org1, org2, org3";
        assert!(first.stderr.contains(named), "{}", first.stderr);
        let others: Vec<Value> = others.iter().map(Outcome::json).collect();
        let key = first.text();
        assert!(others.iter().all(|one| one["committee"] == key.as_str()), "{others:?}");
        let members: HashSet<&str> =
            others.iter().map(|one| one["member"].as_str().unwrap()).collect();
        assert_eq!(members.len(), COUNT - 1);
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

    /// A read with a real notarisation of its header in the place of the finalisation, as a member's librarian lets have both.
    fn notarised(&self) -> PathBuf {
        let network: NetworkId = self.network.network_id().parse().unwrap();
        let key = SecretKey::from_bytes(&[9; 32]).unwrap();
        let identity = Identity::new(key, network).unwrap();
        let group: GroupKey = self.key.parse().unwrap();
        // Two peers are asked one right after the other: a block comes each second, and one peer answers a stranger as often.
        let to = [0, 1].map(|peer| Endpoint::at(&self.network.peers[peer].address));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let forged = runtime.block_on(async {
            let stranger = Arc::new(|| Credential::None);
            let client = Client::new(identity, stranger, Env::real(), ClientLimits::default());
            let ask = async |to: &Endpoint, ask| {
                let request = CommitteeRequest { group: Some(*group.id().as_bytes()), ask };
                loop {
                    match client.committee(to, request.clone(), PATIENCE).await {
                        // A stranger may ask once a second.
                        Err(CallError::Busy { retry_after }) => {
                            tokio::time::sleep(retry_after).await
                        }
                        answer => break answer.unwrap(),
                    }
                }
            };
            let object = ObjectKey::new([0; 32]);
            let read = CommitteeAsk::Read { object, branch: Bytes::from_static(b"main"), at: None };
            loop {
                let ask_how_far = ask(&to[0], CommitteeAsk::HowFar([7; 32]));
                let CommitteeAnswer::HowFar(position) = ask_how_far.await else {
                    panic!("no position")
                };
                let position = Position::decode(&position).unwrap();
                position.verify(&[7; 32], &network, &group).unwrap();
                let CommitteeAnswer::Read(read) = ask(&to[1], read.clone()).await else {
                    panic!("no read")
                };
                let read = Read::decode(&read).unwrap();
                read.verify(&network, &group, &object, "main").unwrap();
                // Another block may have come in between.
                if let Some(certificate) = position.instead_of(&read.certificate) {
                    break Read { certificate, ..read };
                }
            }
        });
        let file = self.file("notarised");
        fs::write(&file, forged.encode()).unwrap();
        file
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

/// A user with an object, whose first version is certified.
fn begun(four: &Four) -> (Home, String, Value) {
    let ada = four.network.home("ada", 0);
    four.object(&ada, "create", &["board", "--open", "--public"]).expect(0);
    let first = four.put(&ada, "one");
    // The first update makes the object, and the holders that gave receipts, known.
    let decided = run(&mut four.head(&ada, "update", &["board", &first])).expect(0).json();
    assert_eq!(decided["version"], first.as_str());
    (ada, first, decided)
}

#[test]
fn four_organisations_agree_through_kills_and_resume() {
    let mut four = Four::founded();
    let (ada, first, decided) = begun(&four);
    // The committee is not asked for a version that is named with another depth than it has.
    let mut named: Vec<&str> = first.split(':').collect();
    named[1] = "9";
    let refused = run(&mut four.head(&ada, "update", &["board", &named.join(":")]));
    let refused = refused.expect_error(2);
    assert!(refused.stderr.contains("its name says 9"), "{}", refused.stderr);
    let to = ["board"];
    for more in [&["--fresh"][..], &[]] {
        let read = run(four.head(&ada, "read", &to).args(more)).expect(0).json();
        assert_eq!((&read["version"], &read["since"]), (&first.as_str().into(), &decided["since"]));
    }
    let status = |four: &Four, verb: &str| {
        let mut command = ada.hold(["committee", verb, "--json", "--committee", &four.key]);
        command.args(["--via", &four.network.everybody()]);
        command
    };
    let told = run(&mut status(&four, "status")).expect(0).json();
    assert_eq!((told["voting"].as_u64(), told["needed"].as_u64()), (Some(4), Some(3)));
    let members = run(&mut status(&four, "members")).expect(0).text();
    assert_eq!(members.lines().count(), COUNT, "{members}");
    let own = four.network.peers[0].status();
    assert_eq!(own["committee"]["committee"], four.key.as_str());
    assert!(four.network.peers[0].counter("holdfast_committee_height") > 0);
    let mut own = hold(["peer", "status", "--json", "--dir"]);
    let own = run(own.arg(&four.network.peers[0].dir)).expect(0).json();
    assert_eq!(own["committee"]["votes"], true, "{own}");

    // One is killed: it goes on. What the others need later is put while enough of them live.
    let [third, fourth] = ["three", "four"].map(|value| four.put(&ada, value));
    four.network.peers[3].kill();
    let set = |four: &Four, version: &str| four.head(&ada, "update", &["board", version]);
    four.until(0, || set(&four, &third));
    // Two are killed: updates end, reads with proofs go on.
    four.network.peers[2].kill();
    let few = four.until(15, || set(&four, &fourth));
    assert!(few.stderr.contains("not enough members"), "{few:?}");
    let proof = four.file("read");
    let mut read = four.head(&ada, "read", &to);
    let read = run(read.arg("--proof").arg(&proof)).expect(0).json();
    assert_eq!(read["version"], third.as_str());
    four.verify(&proof, &[]).expect(0);
    let fresh = run(four.head(&ada, "read", &to).arg("--fresh")).expect(15);
    assert!(fresh.stderr.contains("not enough members"), "{fresh:?}");
    run(&mut status(&four, "status")).expect(15);
    // One returns, on its folder.
    four.network.peers[2].start();
    four.until(0, || set(&four, &fourth));
    let fresh = || {
        let mut command = four.head(&ada, "read", &to);
        command.arg("--fresh");
        command
    };
    assert_eq!(four.until(0, fresh).json()["version"], fourth.as_str());

    // Who saw a height takes nothing older, in another run neither.
    let memory = ada.dir.join("committees");
    let memory = fs::read_dir(&memory).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&memory).unwrap();
    let rest: Vec<&str> = text.lines().filter(|line| !line.starts_with("height")).collect();
    fs::write(&memory, format!("height 999999999\n{}\n", rest.join("\n"))).unwrap();
    let behind = run(&mut four.head(&ada, "read", &to)).expect(15);
    assert!(behind.stderr.contains("behind"), "{behind:?}");
    for peer in &mut four.network.peers[..3] {
        assert_eq!(peer.terminate(), Some(0));
    }
}

#[test]
fn updates_that_may_not_be_are_refused_and_the_refusal_is_proven() {
    let four = Four::founded();
    let (ada, first, decided) = begun(&four);
    let eve = four.network.home("eve", 1);
    let set = |version: &str, more: &[&str]| {
        let mut command = four.head(&ada, "update", &["board", version]);
        command.args(more);
        command
    };
    // A lost race names who won.
    let second = four.put(&ada, "two");
    let at = format!("{first}@{}", decided["since"]);
    run(&mut set(&second, &["--expected", &at])).expect(0);
    let proof = four.file("lost");
    let kept = ["--expected", &at, "--proof", proof.to_str().unwrap()];
    let lost = run(&mut set(&first, &kept)).expect(14);
    assert!(lost.stderr.contains(&second), "{lost:?}");
    let proven = four.verify(&proof, &[]).expect(0).json();
    assert!(proven["outcome"].as_str().unwrap().contains(&second), "{proven}");
    run(&mut set(&second, &["--expected", "none"])).expect(14);
    run(&mut set(&second, &["--expected", &"ab".repeat(32)])).expect(2);
    // Not on the list; then on it, and told.
    let owner = |home: &Home| run(&mut home.hold(["keys", "show", "--owner"])).expect(0).text();
    let named = format!("{}:board", owner(&ada).trim());
    let others = || four.head(&eve, "update", &[&named, &second]);
    let refused = run(&mut others()).expect(13);
    assert!(refused.stderr.contains("writer"), "{refused:?}");
    let writer = owner(&eve);
    let policy = ["board", "--set", "--open", "--public", "--writer", writer.trim()];
    four.object(&ada, "policy", &policy).expect(0);
    run(&mut others()).expect(13);
    run(&mut four.head(&ada, "policy", &["board"])).expect(0);
    run(&mut others()).expect(0);
    // A version that nobody keeps, and a branch that nobody began.
    let nowhere = format!("{}:7:{}", "ab".repeat(32), "00".repeat(16));
    let refused = run(&mut set(&nowhere, &[])).expect(2);
    assert!(refused.stderr.contains("receipts"), "{refused:?}");
    run(&mut four.head(&ada, "read", &["board", "--branch", "other"])).expect(10);
    // A committee that there is not.
    let mut unknown = ada.hold(["head", "read", "board", "--committee"]);
    let key = four.key.replace(['0', '1'], "2");
    run(unknown.arg(key).args(["--via", &four.network.via()])).expect(2);
}

/// Whoever may look may read, and follow: each peer answers a stranger once a second.
#[test]
fn strangers_read_and_a_peer_joins() {
    let mut four = Four::founded();
    let (ada, first, _) = begun(&four);
    let stranger = Home { dir: four.network.folder.path().join("stranger") };
    let mut init = stranger.hold(["keys", "init", "--network"]);
    run(init.arg(&four.network.file)).expect(0);
    let owner = run(&mut ada.hold(["keys", "show", "--owner"])).expect(0).text();
    let board = format!("{}:board", owner.trim());
    for more in [&[][..], &["--fresh"]] {
        let read = run(four.head(&stranger, "read", &[&board]).args(more)).expect(0).json();
        assert_eq!(read["version"], first.as_str(), "{more:?}");
    }
    // What the next one does without a librarian of theirs is refused as ever.
    run(&mut four.head(&stranger, "update", &[&board, &first])).expect(13);

    let listen = free_addresses(1).remove(0);
    let fifth = four.network.add_peer_at(four.network.folder.path().join("peer4"));
    let via = four.network.peers[..COUNT].iter().map(|peer| peer.address.clone());
    let via = via.collect::<Vec<_>>().join(",");
    let dir = four.network.peers[fifth].dir.clone();
    let join = |listen: &str| {
        let mut command = hold(["committee", "join", "--json", "--committee", &four.key, "--dir"]);
        command.arg(&dir).args(["--listen", listen, "--via", &via]);
        run(&mut command)
    };
    let nowhere = join("0.0.0.0:7999").expect(2);
    assert!(nowhere.stderr.contains("--advertise"), "{nowhere:?}");
    let joined = join(&listen).expect(0).json();
    assert_eq!((&joined["committee"], &joined["needed"]), (&four.key.as_str().into(), &3.into()));
    let again = join(&listen).expect(2);
    assert!(again.stderr.contains("already"), "{again:?}");
    // Its librarian hosts it: it follows, and does not vote.
    four.network.peers[fifth].start();
    let started = Instant::now();
    let own = loop {
        let own = four.network.peers[fifth].status()["committee"].clone();
        if own["running"] == true {
            break own;
        }
        assert!(started.elapsed() < PATIENCE, "{own}: {}", four.network.peers[fifth].log());
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!((&own["votes"], &own["member"]), (&false.into(), &joined["member"]));
}

/// A version is stored, and its id told, whatever becomes of what is kept of it at home.
#[test]
fn a_version_whose_receipts_cannot_be_kept_is_told_and_certified() {
    let four = Four::founded();
    let (ada, ..) = begun(&four);
    fs::remove_dir_all(ada.dir.join("receipts")).unwrap();
    fs::write(ada.dir.join("receipts"), "in the way").unwrap();
    let put = four.object(&ada, "put", &["board", "--value", "two", "--receipt"]);
    assert!(matches!(put.code, Some(0 | 3)), "{put:?}");
    assert!(put.stderr.contains("could not be kept"), "{put:?}");
    let version = put.json()["version"].as_str().unwrap().to_owned();
    run(&mut four.head(&ada, "update", &["board", &version])).expect(0);

    // What was seen before is not known: that is said, and nobody is taken back for it.
    let memory = fs::read_dir(ada.dir.join("committees")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read(&memory).unwrap();
    fs::write(&memory, "").unwrap();
    let spoilt = run(&mut four.head(&ada, "read", &["board"])).expect(16);
    assert!(spoilt.stderr.contains("damaged"), "{spoilt:?}");
    fs::write(&memory, text).unwrap();
    run(&mut four.head(&ada, "read", &["board"])).expect(0);
}

/// Yes to the real ones, and no with the reason to each that was changed.
#[test]
fn what_holds_verifies_and_nothing_else() {
    let four = Four::founded_in(&["--suite", "libri-1"]);
    let (ada, ..) = begun(&four);
    let second = four.put(&ada, "two");
    let [answer, read] = ["answer", "read"].map(|name| four.file(name));
    let mut update = four.head(&ada, "update", &["board", &second]);
    run(update.arg("--proof").arg(&answer)).expect(0);
    let mut reading = four.head(&ada, "read", &["board"]);
    run(reading.arg("--proof").arg(&read)).expect(0);
    let [answer, read] = [answer.as_path(), read.as_path()];
    let object = |path: &Path| four.verify(path, &[]).expect(0).json();
    let (answered, told) = (object(answer), object(read));
    assert_eq!((&answered["kind"], &answered["outcome"]), (&"answer".into(), &"accepted".into()));
    assert_eq!((&told["kind"], &told["branch"]), (&"read".into(), &"main".into()));
    let object = told["object"].as_str().unwrap();
    four.verify(read, &["--object", object, "--branch", "main"]).expect(0);

    // A policy's names the object as this network does; with its id alone that is not known.
    let policy = four.file("policy");
    run(four.head(&ada, "policy", &["board"]).arg("--proof").arg(&policy)).expect(0);
    assert_eq!(four.verify(&policy, &[]).expect(0).json()["object"], Value::Null);
    four.verify(&policy, &["--object", object]).expect(0);
    let mut by_file = hold(["committee", "verify", "--json", "--key", &four.key, "--network"]);
    let by_file = run(by_file.arg(&four.network.file).arg(&policy)).expect(0).json();
    assert_eq!(by_file["object"], object);

    // Another object's path.
    let other = "cd".repeat(32);
    for file in [answer, read, &policy] {
        let no = four.verify(file, &["--object", &other]).expect(16);
        assert!(no.stderr.contains("another's"), "{no:?}");
        let no = four.verify(file, &["--branch", "elsewhere"]).expect(16);
        assert!(no.stderr.contains("another's"), "{no:?}");
    }
    // Another network, and another committee.
    let mut elsewhere = hold(["committee", "verify", "--key", &four.key, "--network-id", &other]);
    run(elsewhere.arg(read)).expect(13);
    let no = four.verify(&four.notarised(), &[]).expect(16);
    assert!(no.stderr.contains("notarisation"), "{no:?}");
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
            assert!(!no.stderr.is_empty(), "byte {at}");
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
        assert!(no.stderr.contains("did not sign"), "{no:?}");
    }
}

/// How long one of two that run with one key is held at most, in the first three rounds.
const HELD: Duration = Duration::from_secs(5);

/// The simulation's equivocator as processes: one member runs twice, with the same key and share, each on its own. Some of the
/// others hear the one, some the other, and each votes and proposes as if it were alone.
#[test]
fn a_member_that_runs_twice_bends_no_answer() {
    let mut four = Four::founded();
    let (ada, _, mut last) = begun(&four);
    four.network.peers[3].kill();
    let mut twin = four.network.peers[3].twin();
    twin.start();
    four.network.peers[3].start();
    let heard = |peer: &Peer| peer.status()["committee"]["heard"].as_u64().unwrap_or_default();
    let mut split = false;
    let owner = run(&mut ada.hold(["keys", "show", "--owner"])).expect(0).text();
    let named = format!("{}:board", owner.trim());
    for round in 0..12_usize {
        // Whoever comes back is reached by the one of the two that is not held meanwhile.
        let which = round % 3;
        let of_twin = round % 2 == 0;
        let held = if of_twin { four.network.peers[3].pid() } else { twin.pid() };
        harness::signal(held, "STOP");
        four.network.peers[which].kill();
        four.network.peers[which].start();
        // Where a start takes longer than that, as on a slow machine, it is twice as long every three rounds.
        let (started, held_for) = (Instant::now(), HELD * (1u32 << (round / 3)));
        while heard(if of_twin { &twin } else { &four.network.peers[3] }) < 2
            && started.elapsed() < held_for
        {
            std::thread::sleep(Duration::from_millis(100));
        }
        harness::signal(held, "CONT");
        let value = format!("value {round}");
        let version = four.put(&ada, &value);
        let update = || four.head(&ada, "update", &["board", &version]);
        let decided = four.until(0, update).json();
        assert_eq!(decided["version"], version.as_str());
        assert!(decided["since"].as_u64() > last["since"].as_u64(), "{decided} {last}");
        // Another client sees it too.
        let bob = four.network.home(&format!("bob{round}"), which);
        for (home, named) in [(&ada, "board"), (&bob, &named)] {
            let fresh = || {
                let mut command = four.head(home, "read", &[named]);
                command.arg("--fresh");
                command
            };
            let read = four.until(0, fresh).json();
            assert_eq!(
                (&read["version"], &read["since"]),
                (&decided["version"], &decided["since"])
            );
        }
        last = decided;
        split |= heard(&twin) > 1 && heard(&four.network.peers[3]) > 1;
        if split && round >= 3 {
            break;
        }
    }
    assert!(split, "each of the two was heard by some");
    let height = |peer: &Peer| peer.status()["committee"]["height"].as_u64().unwrap();
    let since = last["since"].as_u64().unwrap();
    // Of the two, each is connected to those that the other is not: one may be left with none.
    let started = Instant::now();
    while four.network.peers[..3].iter().any(|peer| height(peer) < since) {
        assert!(started.elapsed() < PATIENCE, "one of them stopped");
        std::thread::sleep(Duration::from_millis(300));
    }
}
