use std::time::Duration;

use crate::client::{Answer, Opened, options, request};
use crate::memory::{Calendar, Memory};

#[test]
fn a_pipeline_is_answered_in_order_and_committed_together() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let lines: Vec<String> =
        (0..500).flat_map(|n| [format!("SET k{n} {n}"), format!("GET k{n}")]).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let answers = caller.pipeline(&lines);
    for n in 0..500 {
        assert_eq!(answers[2 * n], "OK");
        assert_eq!(answers[2 * n + 1], n.to_string());
    }
    let commits = opened.memory.log().commits;
    assert!(commits < 100, "500 writes in {commits} commits");
}

#[test]
fn many_callers_each_get_their_own_answers() {
    let opened = Opened::new();
    let address = opened.handle.address();
    let threads: Vec<_> = (0..8)
        .map(|who| {
            std::thread::spawn(move || {
                let mut caller = crate::client::Caller::to(address);
                for n in 0..100 {
                    assert_eq!(caller.say(&format!("SET k{who} {n}")), "OK");
                    assert_eq!(caller.say(&format!("GET k{who}")), n.to_string());
                    caller.say("INCR all");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(opened.caller().say("GET all"), "800");
}

#[test]
fn a_failed_commit_takes_back_all_of_its_turn() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.pipeline(&["SET a 1", "SET b 1", "HSET h f 1", "ZADD z 1 m 2 n", "SET gone 1"]);
    opened.memory.log().failing = 1;
    let answers = caller.pipeline(&[
        "GET b",
        "SET a 2",
        "GET a",
        "GET b",
        "SET new 1",
        "DEL gone",
        "EXISTS gone",
        "HSET h f 2 g 3",
        "ZADD z 5 m 6 o",
        "ZREM z n",
        "EXPIRE b 100",
        "DEL z",
        "PING",
        "DBSIZE",
        "LPUSH x y",
    ]);
    for (at, answer) in answers.iter().enumerate() {
        match at {
            // What did not depend on it is answered as it is.
            0 | 3 => assert_eq!(answer, "1"),
            12 => assert_eq!(answer, "PONG"),
            14 => assert!(answer.starts_with("ERR unknown command 'LPUSH'"), "{answer}"),
            _ => assert!(answer.starts_with("MISCONF Nothing of this"), "{at}: {answer}"),
        }
    }
    let after = [
        ("MGET a b gone new", "[1 1 1 nil]"),
        ("TTL b", "-1"),
        ("HGETALL h", "[f 1]"),
        ("ZRANGE z 0 -1 WITHSCORES", "[m 1 n 2]"),
        ("ZRANK z n", "1"),
        ("DBSIZE", "5"),
        ("SET a 3", "OK"),
        ("ZADD z 9 n", "0"),
    ];
    crate::strings::script(&opened, &after);
    assert_eq!(opened.metric("failed_commits"), 1);
    let opened = opened.again();
    crate::strings::script(
        &opened,
        &[("MGET a b gone new", "[3 1 1 nil]"), ("ZRANGE z 0 -1 WITHSCORES", "[m 1 n 9]")],
    );
}

/// A large turn is written in parts while it is executed: one that fails takes with it what stands on it, and no more.
#[test]
fn a_part_that_fails_takes_with_it_what_stands_on_it() {
    for good in 0..9 {
        let memory = Memory::parted(40);
        let opened = Opened::over(options(), memory, Calendar::new());
        let mut caller = opened.caller();
        caller.pipeline(&["SET a 1", "HSET h f 1", "ZADD z 1 m 2 n", "SET gone 1"]);
        {
            let mut log = opened.memory.log();
            (log.failing, log.good) = (1, good);
        }
        let lines: Vec<String> = (0..40)
            .flat_map(|n| {
                [
                    format!("SET a {n}........................."),
                    "GET a".to_owned(),
                    format!("SET b{n} ........................."),
                    "PING".to_owned(),
                    "DEL gone".to_owned(),
                    format!("SET gone {n}"),
                    format!("ZADD z {n} m"),
                    "ZREM z n".to_owned(),
                    "ZADD z 2 n".to_owned(),
                    format!("HSET h f {n}"),
                ]
            })
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let answers = caller.pipeline(&lines);
        // Counters are those of the last whole turn.
        caller.say("PING");
        let lost = |answer: &String| answer.starts_with("MISCONF");
        assert_eq!(opened.metric("failed_commits"), 1, "{good}");
        // What was lost is in a row, but for what depends on nothing.
        let first = answers.iter().position(lost).expect("some are lost");
        let last = answers.iter().rposition(lost).expect("some are lost");
        for (at, answer) in answers.iter().enumerate() {
            let within = (first..=last).contains(&at) && at % 10 != 3;
            assert_eq!(lost(answer), within, "{good}: {at} {answer}");
        }
        // What is there is what was answered last, also after the keys were loaded again.
        let last_of = |which: usize, within: &dyn Fn(usize) -> String, before: &str| {
            let kept = (0..40).rfind(|n| !lost(&answers[n * 10 + which]));
            kept.map_or_else(|| before.to_owned(), within)
        };
        let a = last_of(0, &|n| format!("{n}........................."), "1");
        let gone = last_of(5, &|n| n.to_string(), "1");
        let m = last_of(6, &|n| n.to_string(), "1");
        let f = last_of(9, &|n| n.to_string(), "1");
        let z = "ZSCORE z m";
        let after = [("GET a", &*a), ("GET gone", &*gone), (z, &*m), ("HGET h f", &*f)];
        crate::strings::script(&opened, &after);
        crate::strings::script(&opened, &[("ZSCORE z n", "2")]);
        let opened = opened.again();
        crate::strings::script(&opened, &after);
        crate::strings::script(&opened, &[("ZSCORE z n", "2")]);
        for n in 0..40 {
            let there = if lost(&answers[n * 10 + 2]) { "0" } else { "1" };
            assert_eq!(opened.caller().say(&format!("EXISTS b{n}")), there);
        }
    }
}

#[test]
fn of_a_transaction_behind_a_part_that_fails_nothing_is_done() {
    let memory = Memory::parted(10);
    let opened = Opened::over(options(), memory, Calendar::new());
    let mut caller = opened.caller();
    caller.say("SET l before");
    opened.memory.log().failing = 1;
    let answers =
        caller.pipeline(&["SET k 0123456789", "MULTI", "SET k 1", "SET l 1", "EXEC", "GET l"]);
    assert!(answers[0].starts_with("MISCONF"), "{answers:?}");
    assert!(answers[4].starts_with("MISCONF"), "{answers:?}");
    assert_eq!(answers[5], "before");
    assert_eq!(caller.say("MGET k l"), "[nil before]");
}

/// A value that is out of the cache is read once what is being written is there; where that fails nothing is said of the value.
#[test]
fn keys_that_could_not_be_read_are_not_told_as_absent() {
    let memory = Memory::parted(10);
    let options = door_redis::Options { cache_bytes: 0, ..options() };
    let opened = Opened::over(options, memory, Calendar::new());
    let mut caller = opened.caller();
    assert_eq!(caller.say("SET b there"), "OK");
    assert_eq!(caller.say("HSET h f v"), "1");
    opened.memory.log().failing = 1;
    let answers = caller.pipeline(&["SET k 0123456789", "MGET h b none"]);
    assert!(answers.iter().all(|answer| answer.starts_with("MISCONF")), "{answers:?}");
    assert_eq!(caller.say("MGET h b none k"), "[nil there nil nil]");
}

#[test]
fn no_key_is_not_the_answer_where_none_can_be_read() {
    let opened = Opened::new();
    assert_eq!(opened.caller().say("SET k v"), "OK");
    opened.memory.log().unreadable = true;
    let opened = opened.again();
    let answer = opened.caller().say("RANDOMKEY");
    assert!(answer.starts_with("MISCONF"), "{answer}");
    opened.memory.log().unreadable = false;
    assert_eq!(opened.caller().say("RANDOMKEY"), "k");
}

#[test]
fn a_failed_commit_is_told_to_every_caller_of_the_turn_and_to_none_after() {
    let opened = Opened::new();
    let mut callers: Vec<_> = (0..4).map(|_| opened.caller()).collect();
    opened.memory.log().failing = u64::MAX;
    for (at, caller) in callers.iter_mut().enumerate() {
        caller.send(&request(&[b"SET", format!("k{at}").as_bytes(), b"v"]));
    }
    for caller in &mut callers {
        assert!(caller.answer().text().starts_with("MISCONF"));
    }
    assert_eq!(callers[0].say("DBSIZE"), "0");
    opened.memory.log().failing = 0;
    assert_eq!(callers[0].say("SET k v"), "OK");
    let info = callers[0].say("INFO persistence");
    assert!(info.contains("aof_last_write_status:ok"), "{info}");
}

#[test]
fn a_command_that_fails_half_way_leaves_nothing() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let long = [b'k'; 2000];
    let answer = caller.call(&[b"MSET", b"a", b"1", &long, b"2"]);
    assert!(answer.text().starts_with("ERR key is too long"), "{answer:?}");
    assert_eq!(caller.say("DBSIZE"), "0");
    let answer = caller.call(&[b"ZADD", b"z", b"1", b"m", b"2", &long]);
    assert!(answer.text().starts_with("ERR key is too long"), "{answer:?}");
    assert_eq!(caller.say("EXISTS z"), "0");
    assert_eq!(caller.say("ZADD z 1 m"), "1");
    assert_eq!(caller.say("ZCARD z"), "1");
    assert_eq!(opened.memory.log().names.len(), 2);
}

#[test]
fn transactions_are_executed_together_or_not_at_all() {
    let opened = Opened::new();
    let (mut a, mut b) = (opened.caller(), opened.caller());
    assert_eq!(
        a.pipeline(&["MULTI", "SET k 1", "INCR k", "INCR k x", "GET k", "EXEC"]),
        [
            "OK",
            "QUEUED",
            "QUEUED",
            "ERR wrong number of arguments for 'incr' command",
            "QUEUED",
            "EXECABORT Transaction discarded because of previous errors."
        ]
    );
    assert_eq!(a.pipeline(&["MULTI", "SET k 1", "LPUSH", "HGET k f", "INCR k", "EXEC"]).len(), 6);
    let answers = a.pipeline(&["MULTI", "SET k 1", "HGET k f", "INCR k", "EXEC"]);
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    assert_eq!(answers[4], format!("[OK {wrong} 2]"));
    assert_eq!(a.pipeline(&["MULTI", "SET k 9", "DISCARD", "GET k"])[3], "2");
    assert_eq!(a.say("EXEC"), "ERR EXEC without MULTI");
    assert_eq!(a.say("DISCARD"), "ERR DISCARD without MULTI");
    assert_eq!(a.pipeline(&["MULTI", "MULTI"])[1], "ERR MULTI calls can not be nested");
    assert_eq!(a.pipeline(&["WATCH k", "EXEC"])[0], "ERR WATCH inside MULTI is not allowed");
    // Watched and written by another.
    a.say("WATCH k none");
    b.say("SET k other");
    assert_eq!(a.pipeline(&["MULTI", "SET k mine", "EXEC"])[2], "nil");
    assert_eq!(b.say("GET k"), "other");
    a.say("WATCH k none");
    assert_eq!(a.pipeline(&["MULTI", "SET k mine", "EXEC"])[2], "[OK]");
    a.say("WATCH none");
    b.say("HSET none f v");
    assert_eq!(a.pipeline(&["MULTI", "SET k x", "EXEC"])[2], "nil");
    // Of one that was not there and is not, what was between is seen too; that what had ended is deleted is none.
    for written in [true, false] {
        b.say("SET ended v PX 100");
        opened.calendar.pass(100);
        a.say("WATCH fleeting ended");
        if written {
            b.pipeline(&["SET fleeting v", "DEL fleeting"]);
        }
        std::thread::sleep(Duration::from_millis(150));
        b.say("PING");
        let wanted = if written { "nil" } else { "[OK]" };
        assert_eq!(a.pipeline(&["MULTI", "SET k x", "EXEC"])[2], wanted);
    }
    a.say("WATCH k");
    a.say("UNWATCH");
    b.say("SET k other");
    assert_eq!(a.pipeline(&["MULTI", "SET k mine", "EXEC"])[2], "[OK]");
    // One commit, and an error for all of it where that fails.
    opened.memory.log().failing = 1;
    let answers = a.pipeline(&["MULTI", "SET k lost", "SET l lost", "EXEC"]);
    assert!(answers[3].starts_with("MISCONF"), "{answers:?}");
    assert_eq!(a.say("MGET k l"), "[mine nil]");
}

#[test]
fn what_others_write_is_seen() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.pipeline(&["SET a 1", "SET b 1", "ZADD z 1 m"]);
    {
        let mut log = opened.memory.log();
        log.write_beside(b"redis/ka", version::ValueKind::Bytes, b"theirs");
        log.write_beside(b"redis/kb", version::ValueKind::Tombstone, b"");
        log.write_beside(b"redis/kc", version::ValueKind::Bytes, b"\0h\0\0\0\x01f\0\0\0\x01v");
        log.write_beside(b"redis/kd", version::ValueKind::Bytes, b"\0garbage");
        let member = b"redis/z\0\0\0\x01z\0\0\0\0\0\0\0\0n";
        log.write_beside(member, version::ValueKind::Bytes, &7_f64.to_be_bytes());
    }
    opened.handle.wake();
    crate::strings::script(
        &opened,
        &[
            ("GET a", "theirs"),
            ("GET b", "nil"),
            ("HGETALL c", "[f v]"),
            ("ZRANGE z 0 -1 WITHSCORES", "[m 1 n 7]"),
            ("GET d", "WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("TYPE d", "foreign"),
            ("MGET a d", "[theirs nil]"),
            ("SET d mine", "OK"),
            ("GET d", "mine"),
            ("APPEND a !", "7"),
            ("DBSIZE", "4"),
        ],
    );
}

/// What cannot be read is no reason to show, or to write on, what was there before it.
#[test]
fn what_others_write_and_cannot_be_read_hides_nothing() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.pipeline(&["SET a 1", "SET b 1", "ZADD z 1 m"]);
    {
        let mut log = opened.memory.log();
        log.unreadable = true;
        log.write_beside(b"redis/ka", version::ValueKind::Bytes, b"theirs");
        log.write_beside(b"redis/kb", version::ValueKind::Bytes, b"theirs");
        log.write_beside(&member("z", 0, "n"), version::ValueKind::Bytes, &7_f64.to_be_bytes());
    }
    opened.handle.wake();
    assert_eq!(caller.say("PING"), "PONG");
    for line in ["GET a", "APPEND b x"] {
        let refused = caller.say(line);
        assert!(refused.starts_with("MISCONF"), "{line}: {refused}");
    }
    opened.memory.log().unreadable = false;
    opened.calendar.pass(2_000);
    opened.handle.wake();
    crate::strings::script(
        &opened,
        &[
            ("GET a", "theirs"),
            ("APPEND b !", "7"),
            ("GET b", "theirs!"),
            ("ZRANGE z 0 -1 WITHSCORES", "[m 1 n 7]"),
        ],
    );
    // What was written on it is what counts after a restart.
    let opened = opened.again();
    assert_eq!(opened.caller().say("GET b"), "theirs!");
}

/// Others have their turn while one asks what takes long.
#[test]
fn a_pipeline_of_dear_requests_is_served_in_parts() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    for part in 0..20 {
        let fields: Vec<String> = (0..1_000).map(|n| format!("field-{part}-{n:060} v")).collect();
        assert_eq!(caller.say(&format!("HSET h {}", fields.join(" "))), "1000");
    }
    let before = opened.metric("turns");
    let answers = caller.pipeline(&["HGET h nosuch"; 1_000]);
    assert!(answers.iter().all(|answer| answer == "nil"));
    let turns = opened.metric("turns") - before;
    assert!(turns >= 3, "{turns} turns");
}

/// The name of a member's object.
fn member(key: &str, generation: u64, member: &str) -> Vec<u8> {
    let length = (key.len() as u32).to_be_bytes();
    let generation = generation.to_be_bytes();
    [b"redis/z", &length[..], key.as_bytes(), &generation, member.as_bytes()].concat()
}

#[test]
fn a_sorted_set_that_others_make_has_its_members() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    assert_eq!(caller.say("ZADD old 1 m"), "1");
    let bytes = version::ValueKind::Bytes;
    let set = |generation: u64| [b"\0z", &generation.to_be_bytes()[..]].concat();
    {
        let mut log = opened.memory.log();
        log.write_beside(&member("z", 0, "a"), bytes, &1_f64.to_be_bytes());
        log.write_beside(b"redis/kz", bytes, &set(0));
        log.write_beside(&member("z", 0, "b"), bytes, &2_f64.to_be_bytes());
    }
    opened.handle.wake();
    let lines = [("ZCARD z", "2"), ("ZRANGE z 0 -1 WITHSCORES", "[a 1 b 2]"), ("ZADD z 3 a", "0")];
    crate::strings::script(&opened, &lines);
    // Keys that were loaded and not read yet when others changed them.
    opened.memory.log().unreadable = true;
    let opened = opened.again();
    assert_eq!(opened.caller().say("PING"), "PONG");
    {
        let mut log = opened.memory.log();
        log.unreadable = false;
        log.write_beside(&member("z", 0, "a"), bytes, &5_f64.to_be_bytes());
        log.write_beside(&member("z", 0, "c"), bytes, &7_f64.to_be_bytes());
        log.write_beside(b"redis/kold", bytes, &set(0));
    }
    opened.handle.wake();
    let lines = [
        ("ZRANGE z 0 -1 WITHSCORES", "[b 2 a 5 c 7]"),
        ("ZADD z 6 a", "0"),
        ("ZRANGE old 0 -1 WITHSCORES", "[m 1]"),
    ];
    crate::strings::script(&opened, &lines);
    let log = opened.memory.log();
    assert_eq!(log.tips(&log.object(&member("z", 0, "a"))).len(), 1);
}

/// Members come turns before their set, of a key that nobody knows, of one that was deleted, and of one that is read with the
/// generation before; and a door is opened between the two.
#[test]
fn members_that_come_before_their_set_are_in_it() {
    let mut opened = Opened::new();
    let bytes = version::ValueKind::Bytes;
    let set = |generation: u64| [b"\0z", &generation.to_be_bytes()[..]].concat();
    let sets = [("new", 0), ("again", 2), ("other", 1)];
    for is_opened_between in [false, true] {
        let key = |key: &str| format!("{key}{}", u8::from(is_opened_between));
        let mut caller = opened.caller();
        let (again, other) = (key("again"), key("other"));
        let lines =
            [format!("ZADD {again} 1 old"), format!("DEL {again}"), format!("SET {other} v")];
        lines.iter().for_each(|line| drop(caller.say(line)));
        for (name, generation) in sets {
            let name = member(&key(name), generation, "early");
            opened.memory.log().write_beside(&name, bytes, &1_f64.to_be_bytes());
        }
        opened.handle.wake();
        assert_eq!(caller.say("PING"), "PONG");
        drop(caller);
        if is_opened_between {
            opened = opened.again();
        }
        for (name, generation) in sets {
            let name = [b"redis/k", key(name).as_bytes()].concat();
            opened.memory.log().write_beside(&name, bytes, &set(generation));
        }
        opened.handle.wake();
        let mut caller = opened.caller();
        for (name, _) in sets {
            let key = key(name);
            assert_eq!(caller.say(&format!("ZADD {key} 2 late")), "1", "{key}");
            assert_eq!(caller.say(&format!("ZRANGE {key} 0 -1")), "[early late]");
            assert_eq!(caller.say(&format!("ZREM {key} late")), "1");
            assert_eq!(caller.say(&format!("EXISTS {key}")), "1");
        }
    }
}

/// A set's versions are handed over with the last first, behind another's that counted for a while.
#[test]
fn a_set_that_comes_back_has_all_its_members() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.pipeline(&["ZADD z 1 a 2 b", "DEL z", "SET z v"]);
    let set = [b"\0z", &0_u64.to_be_bytes()[..]].concat();
    opened.memory.log().write_beside(b"redis/kz", version::ValueKind::Bytes, &set);
    opened.handle.wake();
    let again = [("PING", "PONG"), ("ZRANGE z 0 -1", "[a b]"), ("ZREM z a", "1"), ("ZCARD z", "1")];
    crate::strings::script(&opened, &again);
}

#[test]
fn a_door_that_is_closed_has_answered_what_came() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    assert_eq!(caller.say("PING"), "PONG");
    let lines = vec!["SET k v"; 200];
    let all: Vec<u8> = lines.iter().flat_map(|_| request(&[b"SET", b"k", b"v"])).collect();
    caller.send(&all);
    std::thread::sleep(Duration::from_millis(50));
    opened.handle.close();
    for _ in 0..200 {
        assert_eq!(caller.answer(), Answer::Simple("OK".into()));
    }
    assert!(caller.is_closed());
    let object = opened.memory.log().object(b"redis/kk");
    assert_eq!(opened.memory.log().versions[&object].len(), 200);
}

#[test]
fn large_batches_are_committed_in_parts() {
    let opened = Opened::with(door_redis::Options { cache_bytes: 1 << 20, ..options() });
    let mut caller = opened.caller();
    let value = vec![1; 500_000];
    let all: Vec<u8> =
        (0..40).flat_map(|n| request(&[b"SET", format!("k{n}").as_bytes(), &value])).collect();
    let mut sender = caller.socket.try_clone().unwrap();
    let thread = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &all));
    for _ in 0..40 {
        assert_eq!(caller.answer().text(), "OK");
    }
    thread.join().unwrap().unwrap();
    assert_eq!(caller.say("STRLEN k39"), "500000");
}
