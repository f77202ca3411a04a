//! The door over the real engine, on a simulated disk that loses power and fills up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{NetworkId, PublicKey, SecretKey, Suite};
use door_redis::Engine;
use env::Env;
use objects::{NewVersion, Objects, ObjectsOptions};
use store::{Durability, LogOptions, LogStore, RecordStore};
use testkit::disk::FaultyDisk;
use version::{Bases, ObjectKey, ValueKind, Version, VersionId, key_of};

use crate::client::{Caller, options, request};

/// A peer's store, its objects, and the door.
struct Machine {
    runtime: tokio::runtime::Runtime,
    disk: FaultyDisk,
    objects: Arc<Objects>,
    store: Arc<LogStore>,
    door: door_redis::Handle,
}

const NETWORK: NetworkId = NetworkId::new([9; 32]);

fn owner() -> PublicKey {
    SecretKey::from_slice(&[7; 32]).unwrap().public()
}

impl Machine {
    fn new(disk: FaultyDisk) -> Self {
        Self::with(disk, |engine| engine)
    }

    fn with(disk: FaultyDisk, change: impl FnOnce(Engine) -> Engine) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let guard = runtime.enter();
        let env = Env::real();
        let log = LogOptions { reserve_free_bytes: 0, ..LogOptions::default() };
        let store = LogStore::open(Arc::new(disk.clone()), env.clone(), log).unwrap();
        let objects = Objects::open(store.clone(), ObjectsOptions::default()).unwrap();
        let suite = Suite::default();
        let engine = change(Engine::new(objects.clone(), suite, NETWORK, owner(), None));
        let door = door_redis::open(options(), Box::new(engine), env.clock.clone()).unwrap();
        drop(guard);
        Self { runtime, disk, objects, store, door }
    }

    fn caller(&self) -> Caller {
        Caller::to(self.door.address())
    }

    /// A version that another than the door writes.
    fn put(&self, new: NewVersion) -> VersionId {
        let objects = self.objects.clone();
        self.runtime.block_on(async move {
            let mut batch = objects.batch();
            let id = batch.put(new).await.unwrap();
            batch.commit(None).await.unwrap();
            id
        })
    }

    /// The machine after its power was cut.
    fn after_a_power_cut(self) -> Self {
        let disk = self.disk.crash();
        self.door.close();
        drop((self.objects, self.store, self.runtime));
        Self::new(disk)
    }
}

#[test]
fn what_was_answered_is_there_after_a_power_cut() {
    let machine = Machine::new(FaultyDisk::new(1));
    let mut caller = machine.caller();
    for n in 0..30 {
        assert_eq!(caller.say(&format!("SET k{} v{n}", n % 10)), "OK");
    }
    let lines = [
        "HSET h a 1 b 2",
        "HSET h a 3",
        "ZADD z 1 a 2 b 3 c",
        "ZREM z b",
        "ZINCRBY z 10 a",
        "DEL k3",
        "SET ends v EX 1000",
        "DEL z2",
        "ZADD z2 1 x",
        "DEL z2",
        "ZADD z2 1 y",
    ];
    caller.pipeline(&lines);
    let tips = caller.say("HOLD.TIPS k5");
    let machine = machine.after_a_power_cut();
    let mut caller = machine.caller();
    let expected = [
        ("MGET k0 k3 k9", "[v20 nil v29]"),
        ("HGETALL h", "[a 3 b 2]"),
        ("ZRANGE z 0 -1 WITHSCORES", "[c 3 a 11]"),
        ("ZRANGE z2 0 -1", "[y]"),
        ("TYPE ends", "string"),
        ("ZADD z 5 b", "1"),
        ("APPEND k0 !", "4"),
        ("SET k3 again", "OK"),
    ];
    for (line, answer) in expected {
        assert_eq!(caller.say(line), answer, "{line}");
    }
    assert_eq!(caller.say("HOLD.TIPS k5"), tips);
    let tip = caller.say("HOLD.TIPS k0");
    let tip = tip.trim_matches(['[', ']']);
    let answer = caller.ask(&format!("HOLD.PREV k0 {tip} 10 VALUES")).list();
    let values: Vec<String> = answer.iter().map(|pair| pair.list()[1].text()).collect();
    assert_eq!(values, ["v20", "v10", "v0"]);
    while caller.say("DBSIZE") != "14" {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let machine = machine.after_a_power_cut();
    assert_eq!(machine.caller().say("ZRANGE z 0 -1"), "[c b a]");
}

fn object(name: &[u8]) -> ObjectKey {
    key_of(Suite::default(), &NETWORK, &owner(), name).unwrap()
}

/// The power goes within the first write of keys: of each there is nothing, or its name at least. What is then written and
/// answered is there after the next start.
#[test]
fn a_key_whose_first_write_was_torn_is_written_and_found_again() {
    for seed in 0..40 {
        let machine = Machine::new(FaultyDisk::new(seed));
        let mut caller = machine.caller();
        assert_eq!(caller.say("SET before v"), "OK");
        machine.disk.crash_after(1);
        let torn = caller.say("MSET a 1 b 1 c 1 d 1 e 1 f 1");
        assert!(torn.starts_with("MISCONF"), "{torn}");
        let machine = machine.after_a_power_cut();
        for key in ["a", "b", "c", "d", "e", "f"] {
            let object = object(format!("redis/k{key}").as_bytes());
            let named = machine.objects.has_record(&object);
            assert!(named || machine.objects.tips(&object).is_empty(), "{seed}: {key}");
        }
        let mut caller = machine.caller();
        assert_eq!(caller.say("MSET a 2 b 2 c 2 d 2 e 2 f 2"), "OK");
        let machine = machine.after_a_power_cut();
        let answer = machine.caller().say("MGET before a b c d e f");
        assert_eq!(answer, "[v 2 2 2 2 2 2]", "{seed}");
    }
}

/// Stores in which versions were left without their object's record.
#[test]
fn a_key_that_lost_its_name_has_it_again_once_it_is_written() {
    let machine = Machine::new(FaultyDisk::new(5));
    let mut caller = machine.caller();
    caller.say("ZADD z 1 a");
    let nameless = [("redis/kk", &b"lost"[..]), ("redis/z\0\0\0\x01z\0\0\0\0\0\0\0\0b", &[0; 8])];
    for (name, value) in nameless {
        let value = Bytes::from_static(value);
        let (object, bases, kind) = (object(name.as_bytes()), Bases::NONE, ValueKind::Bytes);
        machine.put(NewVersion { object, bases, kind, value, compress: false });
    }
    let machine = machine.after_a_power_cut();
    let mut caller = machine.caller();
    assert_eq!(caller.say("MGET k"), "[nil]");
    assert_eq!(caller.say("SET k v"), "OK");
    assert_eq!(caller.say("ZADD z 2 b"), "1");
    let machine = machine.after_a_power_cut();
    let mut caller = machine.caller();
    assert_eq!(caller.say("GET k"), "v");
    assert_eq!(caller.say("SCAN 0 COUNT 100"), "[0 [z k]]");
    assert_eq!(caller.say("ZRANGE z 0 -1 WITHSCORES"), "[a 1 b 2]");
    let tip = caller.say("HOLD.TIPS k");
    assert!(tip.contains(":1:"), "it stands on what was lost: {tip}");
}

#[test]
fn writes_end_once_what_was_answered_is_kept_and_reads_go_on() {
    let (attest, attested) = std::sync::mpsc::sync_channel(64);
    let machine = Machine::with(FaultyDisk::new(7), |engine| engine.attested(attest));
    let mut caller = machine.caller();
    let lines = ["SET k v", "SET ends v PX 1", "HSET h f 1", "ZADD z 1 a", "SET k w"];
    caller.pipeline(&lines);
    machine.door.writes().end();
    // Whoever attests got every version, and nothing more will come.
    assert!(attested.iter().flatten().count() >= lines.len());
    let writes = [
        "SET k x",
        "SET new x",
        "DEL k",
        "HSET h f 2",
        "ZADD z 2 b",
        "ZREM z a",
        "EXPIRE k 10",
        "HOLD.PUT k - x",
        "FLUSHALL",
    ];
    for line in writes {
        let answer = caller.say(line);
        let told = answer.starts_with("READONLY") && answer.contains("leaves");
        assert!(told || line == "FLUSHALL", "{line}: {answer}");
    }
    let transaction = caller.pipeline(&["MULTI", "SET k x", "GET k", "EXEC"]);
    assert!(transaction[3].starts_with("[READONLY") && transaction[3].ends_with(" w]"));
    // One of them had a millisecond.
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(caller.say("MGET k new ends"), "[w nil nil]");
    assert_eq!(caller.say("HGETALL h"), "[f 1]");
    assert_eq!(caller.say("ZRANGE z 0 -1"), "[a]");
    // Of what has ended no tombstone is written.
    let versions = machine.store.stats().records;
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(caller.say("EXISTS ends"), "0");
    assert_eq!(machine.store.stats().records, versions);
    let writes = machine.door.writes();
    machine.door.close();
    // Nobody answers any more, and nobody is waited for.
    writes.end();
}

#[test]
fn a_full_disk_is_told_and_nothing_is_half_done() {
    let machine = Machine::new(FaultyDisk::new(2));
    let mut caller = machine.caller();
    caller.pipeline(&["SET k before", "HSET h f 1"]);
    machine.disk.set_capacity(machine.disk.used_bytes() + 100);
    let value = vec![1; 100_000];
    let answer = caller.call(&[b"MSET", b"k", &value, b"l", &value]).text();
    assert!(answer.starts_with("MISCONF") && answer.contains("disk is full"), "{answer}");
    assert_eq!(caller.say("MGET k l"), "[before nil]");
    assert_eq!(caller.say("HGET h f"), "1");
}

#[test]
fn merges_and_other_writers() {
    let machine = Machine::new(FaultyDisk::new(3));
    let mut caller = machine.caller();
    let root = caller.say("HOLD.PUT k - 5");
    let a = caller.say(&format!("HOLD.PUT k {root} 7"));
    let b = caller.say(&format!("HOLD.PUT k {root} 9"));
    caller.say(&format!("HOLD.MERGE k {a} {b} FUNC aggregate-sum"));
    assert_eq!(caller.say("GET k"), "11");
    let text = caller.say(&format!("HOLD.MERGE k {a} {b} FUNC nosuch"));
    assert!(text.contains("append") && text.starts_with("ERR there is no such"), "{text}");
    let text = caller.say(&format!("HOLD.MERGE k {a} {b} FUNC append"));
    assert!(text.starts_with("ERR the versions conflict"), "{text}");
    // The same object, written through the engine.
    let object = object(b"redis/kk");
    let tip = machine.objects.tips(&object);
    assert_eq!(tip.len(), 1);
    let new = NewVersion {
        object,
        bases: Bases::one(tip[0].h),
        kind: ValueKind::Bytes,
        value: Bytes::from_static(b"theirs"),
        compress: false,
    };
    machine.put(new);
    assert_eq!(caller.say("GET k"), "theirs");
    assert_eq!(caller.say("SET k ours"), "OK");
    assert_eq!(machine.objects.tips(&object).len(), 1);
}

/// A merge function sees values, not how the door keeps them: when keys end is carried over.
#[test]
fn what_ends_and_hashes_are_merged_by_what_is_in_them() {
    let machine = Machine::new(FaultyDisk::new(6));
    let mut caller = machine.caller();
    let object = object(b"redis/kk");
    let ends = |ms: u64| [b"\0e", &ms.to_be_bytes()[..]].concat();
    let (soon, late) = (4_000_000_000_000_u64, 4_100_000_000_000);
    let branch = |base: Option<VersionId>, parts: &[&[u8]]| {
        let bases = base.map_or(Bases::NONE, |base| Bases::one(base.h));
        let (kind, value) = (ValueKind::Bytes, Bytes::from(parts.concat()));
        machine.put(NewVersion { object, bases, kind, value, compress: false })
    };
    let merge = |caller: &mut Caller, a: VersionId, b: VersionId, function: &str| {
        caller.say(&format!("HOLD.MERGE k {a} {b} FUNC {function}"))
    };
    caller.say("HOLD.PUT k - never");
    let root = branch(None, &[&ends(soon), b"x"]);
    let a = branch(Some(root), &[&ends(soon), b"xa"]);
    let b = branch(Some(root), &[&ends(late), b"xb"]);
    let id = merge(&mut caller, a, b, "append");
    assert_eq!(caller.say(&format!("HOLD.GET k {id}")), "xab");
    assert_eq!(caller.say("GET k"), "xab");
    assert_eq!(caller.say("PEXPIRETIME k"), late.to_string());
    let c = branch(Some(id.parse().unwrap()), &[&ends(soon), b"xc"]);
    let d = branch(Some(id.parse().unwrap()), &[b"\0s\0d"]);
    merge(&mut caller, c, d, "choose-first");
    assert_eq!((caller.say("GET k"), caller.say("PEXPIRETIME k")), ("xc".into(), soon.to_string()));
    let chosen = merge(&mut caller, c, d, "choose-second");
    assert_eq!(caller.say(&format!("HOLD.GET k {chosen}")), "\0d");
    let base = branch(Some(chosen.parse().unwrap()), &[b"\0h\0\0\0\x01f\0\0\0\x01v"]);
    let field = |name: &[u8]| [b"\0h\0\0\0\x01f\0\0\0\x01v\0\0\0\x01", name, b"\0\0\0\0"].concat();
    let a = branch(Some(base), &[&ends(soon), &field(b"a")]);
    let b = branch(Some(base), &[&field(b"b")]);
    merge(&mut caller, a, b, "three-way-map");
    assert_eq!(caller.say("HGETALL k"), "[f v a  b ]");
    assert_eq!(caller.say("PTTL k"), "-1");
    let text = branch(Some(base), &[b"text"]);
    assert!(merge(&mut caller, a, text, "append").starts_with("ERR"));
}

/// Two writers merge each other's versions while both go on: what their merges have in common are two versions, and by either of
/// them alone one put counts twice, or comes again that was taken back.
#[test]
fn the_merge_of_a_criss_cross_counts_nothing_twice_and_undoes_nothing() {
    let machine = Machine::new(FaultyDisk::new(9));
    let mut caller = machine.caller();
    let merge = |caller: &mut Caller, key: &str, a: &str, b: &str, function: &str| {
        caller.say(&format!("HOLD.MERGE {key} {a} {b} FUNC {function}"))
    };
    let put = |caller: &mut Caller, base: &str, value: &str| {
        caller.say(&format!("HOLD.PUT k {base} {value}"))
    };
    let o = put(&mut caller, "-", "0");
    let (a1, b1) = (put(&mut caller, &o, "1"), put(&mut caller, &o, "2"));
    let b2 = put(&mut caller, &b1, "6");
    let m1 = merge(&mut caller, "k", &a1, &b1, "aggregate-sum");
    let m2 = merge(&mut caller, "k", &a1, &b2, "aggregate-sum");
    let all = merge(&mut caller, "k", &m1, &m2, "aggregate-sum");
    assert_eq!(caller.say(&format!("HOLD.GET k {all}")), "7");

    // Of hashes that end, too: what is in between is kept as what a key holds.
    let object = object(b"redis/kh");
    let ends = [b"\0e", &4_000_000_000_000_u64.to_be_bytes()[..]].concat();
    let hash = |field: &[u8]| {
        let field =
            if field.is_empty() { vec![] } else { [b"\0\0\0\x01", field, b"\0\0\0\0"].concat() };
        [&ends[..], b"\0h\0\0\0\x01f\0\0\0\x01v", &field[..]].concat()
    };
    let put = |base: Option<VersionId>, field: &[u8]| {
        let bases = base.map_or(Bases::NONE, |base| Bases::one(base.h));
        let (kind, value) = (ValueKind::Bytes, Bytes::from(hash(field)));
        machine.put(NewVersion { object, bases, kind, value, compress: false })
    };
    caller.say("HOLD.PUT h - never");
    let o = put(None, b"");
    let (a1, b1) = (put(Some(o), b"a"), put(Some(o), b"b"));
    let (a2, b2) = (put(Some(a1), b""), put(Some(b1), b""));
    let [a1, b1, a2, b2] = [a1, b1, a2, b2].map(|id| id.to_string());
    let m1 = merge(&mut caller, "h", &a2, &b1, "three-way-map");
    let m2 = merge(&mut caller, "h", &a1, &b2, "three-way-map");
    let all = merge(&mut caller, "h", &m1, &m2, "three-way-map");
    assert_eq!(caller.say(&format!("HOLD.GET h {all}")), "[f v]", "both were taken back");
}

/// A walk over a long history would have all others wait.
#[test]
fn what_is_common_is_looked_for_so_far_and_no_farther() {
    let machine = Machine::new(FaultyDisk::new(8));
    let mut caller = machine.caller();
    let root = caller.say("HOLD.PUT k - 0");
    let other = caller.say(&format!("HOLD.PUT k {root} 1"));
    let lines: Vec<String> = (0..5_000).map(|n| format!("SET k {n}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    caller.pipeline(&lines);
    let tip = caller.ask("HOLD.TIPS k").list()[0].text();
    assert_ne!(tip, other);
    let side = caller.say(&format!("HOLD.PUT k {root} 2"));
    let answer = caller.say(&format!("HOLD.MERGE k {side} {tip} FUNC append"));
    assert!(answer.starts_with("ERR nothing common was found in the last 4096"), "{answer}");
}

/// Where nobody waits for the disk a turn is committed in parts: what was answered is there, what was refused is not.
#[test]
fn of_a_turn_in_parts_each_part_is_kept_or_refused() {
    of_turns_each_part_is_kept_or_refused(true);
}

#[test]
fn of_turns_that_are_written_whole_each_is_kept_or_refused() {
    of_turns_each_part_is_kept_or_refused(false);
}

fn of_turns_each_part_is_kept_or_refused(beside: bool) {
    let (attest, made) = std::sync::mpsc::sync_channel(4096);
    let machine = Machine::with(FaultyDisk::new(4), |engine| {
        engine.durability(Durability::EverySecond).attested(attest).write_beside(beside)
    });
    let mut caller = machine.caller();
    machine.disk.set_capacity(machine.disk.used_bytes() + 600_000);
    let value = vec![1; 10_000];
    let requests: Vec<Vec<u8>> = (0..100)
        .map(|n| crate::client::request(&[b"SET", format!("k{}", n % 60).as_bytes(), &value[n..]]))
        .collect();
    caller.send(&requests.concat());
    let answers: Vec<String> = (0..100).map(|_| caller.answer().text()).collect();
    let kept = answers.iter().filter(|answer| *answer == "OK").count();
    assert!((20..60).contains(&kept), "{kept}");
    assert!(answers.iter().all(|answer| answer == "OK" || answer.starts_with("MISCONF")));
    for key in 0..60 {
        let last = (0..100).filter(|n| n % 60 == key && answers[*n] == "OK").max();
        let length = last.map_or(0, |n| 10_000 - n);
        assert_eq!(caller.say(&format!("STRLEN k{key}")), length.to_string(), "k{key}");
    }
    machine.disk.set_capacity(u64::MAX);
    assert_eq!(caller.say("SET k0 again"), "OK");
    machine.door.close();
    // Whoever signs them gets each once, the last when the door is closed.
    let made: Vec<crypto::RecordId> = made.iter().flatten().collect();
    let different: std::collections::BTreeSet<_> = made.iter().collect();
    assert_eq!((made.len(), different.len()), (kept + 1, kept + 1));
}

/// Callers at once, with pipelines in which keys come again and other commands stand between: every version of every key's
/// history is the hash of its bytes, and has the value that was set.
#[test]
fn whatever_is_made_ahead_each_version_is_the_hash_of_its_bytes() {
    for beside in [true, false] {
        each_version_is_the_hash_of_its_bytes(|engine| {
            engine.durability(Durability::EverySecond).write_beside(beside)
        });
    }
    each_version_is_the_hash_of_its_bytes(|engine| engine);
}

fn each_version_is_the_hash_of_its_bytes(change: impl FnOnce(Engine) -> Engine) {
    let machine = Machine::with(FaultyDisk::new(1), change);
    let value = |who: usize, n: usize| format!("{who}.{n}.").repeat(1 + n * 37 % 400);
    let key = |who: usize, n: usize| format!("{who}:{}", n * n % 23);
    let address = machine.door.address();
    let callers: Vec<_> = (0..6)
        .map(|who| {
            std::thread::spawn(move || {
                let mut caller = Caller::to(address);
                for round in 0..6 {
                    let mut lines = Vec::new();
                    for n in round * 40..(round + 1) * 40 {
                        lines.push(format!("SET {} {}", key(who, n), value(who, n)));
                        if n % 11 == 3 {
                            lines.push(format!("DEL {}", key(who, n + 1)));
                            lines.push("INCR all".to_owned());
                        }
                    }
                    // The last has one of them at a time.
                    let size = if who == 5 { 1 } else { lines.len() };
                    for lines in lines.chunks(size) {
                        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                        for (line, answer) in lines.iter().zip(caller.pipeline(&lines)) {
                            assert!(!line.starts_with("SET") || answer == "OK", "{line}: {answer}");
                        }
                    }
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    let mut caller = machine.caller();
    for who in 0..6 {
        let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for n in 0..240 {
            wanted.entry(key(who, n)).or_default().push(value(who, n));
        }
        for (key, wanted) in wanted {
            let tip = caller.ask(&format!("HOLD.TIPS {key}")).list()[0].text();
            let log = caller.ask(&format!("HOLD.LOG {key} {tip} 1000")).list();
            let mut found = Vec::new();
            for id in &log {
                let id: VersionId = id.list()[0].text().parse().unwrap();
                let got = machine.runtime.block_on(machine.store.get(&id.h));
                let record = got.unwrap().unwrap();
                assert_eq!(Suite::default().id(&record.bytes), id.h);
                let version = Version::decode(&record.bytes).unwrap();
                if version.kind == ValueKind::Bytes {
                    found.push(String::from_utf8(version.value.to_vec()).unwrap());
                }
            }
            found.reverse();
            assert_eq!(found, wanted, "{key}");
        }
    }
    machine.door.close();
}

/// A connection is closed while others' requests are read and not yet executed: nothing is taken of those.
#[test]
fn who_leaves_takes_nothing_of_what_others_sent() {
    let machine = Machine::with(FaultyDisk::new(1), |engine| {
        engine.durability(Durability::EverySecond).write_beside(true)
    });
    let connected = || {
        let mut caller = machine.caller();
        assert_eq!(caller.say("PING"), "PONG");
        caller
    };
    let (mut busy, mut leavers) = (connected(), [(); 3].map(|()| connected()));
    let writers = [(); 8].map(|()| connected());
    // The door is busy with this, so that what the others send meanwhile is there in one turn, in this order.
    let many = vec!["INCR n"; 20_000];
    busy.pipeline(&[&["MULTI"][..], &many].concat());
    busy.send(&request(&[b"EXEC"]));
    std::thread::sleep(Duration::from_millis(5));
    for leaver in &mut leavers {
        leaver.send(b"*x\r\n");
    }
    std::thread::sleep(Duration::from_millis(5));
    let writers: Vec<_> = writers
        .into_iter()
        .enumerate()
        .map(|(who, mut caller)| {
            std::thread::spawn(move || {
                let value = format!("{who}.").repeat(1000);
                let lines: Vec<String> =
                    (0..100).map(|n| format!("SET {who}:{n} {value}{n}")).collect();
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                assert!(caller.pipeline(&lines).iter().all(|answer| answer == "OK"));
                for n in 0..100 {
                    assert_eq!(caller.say(&format!("GET {who}:{n}")), format!("{value}{n}"));
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    for leaver in &mut leavers {
        assert!(leaver.answer().text().contains("Protocol error"));
        assert!(leaver.is_closed());
    }
    assert_eq!(busy.answer().list().len(), many.len());
    machine.door.close();
}
