use std::collections::HashSet;

use crate::client::{Caller, Opened, options};
use crate::strings::script;

fn scan(caller: &mut Caller, options: &str, mut between: impl FnMut(usize)) -> Vec<String> {
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    for step in 0.. {
        let answer = caller.ask(format!("SCAN {cursor} {options}").trim_end()).list();
        cursor = answer[0].text();
        found.extend(answer[1].list().iter().map(crate::client::Answer::text));
        if cursor == "0" {
            break;
        }
        between(step);
    }
    found
}

#[test]
fn keys_are_found_by_pattern_and_type() {
    let opened = Opened::new();
    script(
        &opened,
        &[
            ("MSET one 1 two 2 three 3", "OK"),
            ("HSET hash f v", "1"),
            ("ZADD sorted 1 m", "1"),
            ("KEYS t*", "[two three]"),
            ("KEYS [oh]*", "[one hash]"),
            ("KEYS none", "[]"),
            ("SCAN 0 TYPE hash", "[0 [hash]]"),
            ("SCAN 0 TYPE ZSET COUNT 100", "[0 [sorted]]"),
            ("SCAN 0 MATCH *e COUNT 100", "[0 [one three]]"),
            ("SCAN x", "ERR invalid cursor"),
            ("SCAN 0 COUNT 0", "ERR syntax error"),
            ("SCAN 0 COUNT", "ERR syntax error"),
            ("SCAN 99999999999", "[0 []]"),
            ("DBSIZE", "5"),
        ],
    );
    let mut caller = opened.caller();
    assert!(["one", "two", "three", "hash", "sorted"].contains(&caller.say("RANDOMKEY").as_str()));
    assert_eq!(Opened::new().caller().say("RANDOMKEY"), "nil");
}

#[test]
fn a_scan_gives_each_key_that_stays_exactly_once() {
    let opened = Opened::new();
    let (mut caller, mut other) = (opened.caller(), opened.caller());
    let stays: HashSet<String> = (0..300).map(|n| format!("stays{n}")).collect();
    for (n, key) in stays.iter().enumerate() {
        caller.say(&format!("SET {key} v"));
        caller.say(&format!("SET goes{n} v"));
    }
    let found = scan(&mut caller, "COUNT 7", |step| {
        other.say(&format!("DEL goes{} goes{}", step * 3, 299 - step));
        other.say(&format!("SET comes{step} v"));
        other.say(&format!("SET stays{step} again"));
        other.say(&format!("EXPIRE stays{} 1000", 299 - step));
    });
    for key in &stays {
        assert_eq!(found.iter().filter(|each| *each == key).count(), 1, "{key}");
    }
    let all: HashSet<&String> = found.iter().collect();
    assert_eq!(all.len(), found.len(), "nothing twice");
}

#[test]
fn names_change_with_values_and_ends() {
    script(
        &Opened::new(),
        &[
            ("SET a v EX 100", "OK"),
            ("RENAME a b", "OK"),
            ("TTL b", "100"),
            ("EXISTS a", "0"),
            ("HSET h f v", "1"),
            ("RENAME h b", "OK"),
            ("HGET b f", "v"),
            ("TTL b", "-1"),
            ("ZADD z 1 m 2 n", "2"),
            ("EXPIRE z 50", "1"),
            ("RENAME z y", "OK"),
            ("ZRANGE y 0 -1 WITHSCORES", "[m 1 n 2]"),
            ("TTL y", "50"),
            ("ZADD z 5 new", "1"),
            ("ZRANGE z 0 -1", "[new]"),
            ("RENAMENX y z", "0"),
            ("RENAMENX y x", "1"),
            ("RENAME x x", "OK"),
            ("ZCARD x", "2"),
        ],
    );
}

#[test]
fn all_keys_are_deleted_only_where_that_is_allowed() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.pipeline(&["SET a v", "HSET h f v", "ZADD z 1 m"]);
    assert_eq!(caller.say("FLUSHALL ASYNC"), "OK");
    script(&opened, &[("DBSIZE", "0"), ("KEYS *", "[]"), ("SET a w", "OK"), ("ZCARD z", "0")]);
    script(&opened.again(), &[("GET a", "w"), ("DBSIZE", "1")]);
    let opened = Opened::with(door_redis::Options { flush: false, ..options() });
    let mut caller = opened.caller();
    caller.say("SET a v");
    assert!(caller.say("FLUSHDB").starts_with("ERR this door does not delete all keys"));
    assert_eq!(caller.say("GET a"), "v");
}

#[test]
fn everything_is_there_after_a_restart() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    for n in 0..300 {
        caller.say(&format!("SET k{n} v{n}"));
    }
    caller.pipeline(&[
        "HSET h f v g w",
        "ZADD z 1 a 2 b 3 c",
        "ZREM z b",
        "DEL k7",
        "ZADD gone 1 x",
        "DEL gone",
        "ZADD gone 2 y",
        "SET ends v EX 100",
    ]);
    let opened = opened.again();
    script(
        &opened,
        &[
            ("GET k299", "v299"),
            ("GET k7", "nil"),
            ("HGETALL h", "[f v g w]"),
            ("ZRANGE z 0 -1 WITHSCORES", "[a 1 c 3]"),
            ("ZRANGE gone 0 -1", "[y]"),
            ("TTL ends", "100"),
            ("DBSIZE", "303"),
            ("ZADD z 9 b", "1"),
            ("SET k7 again", "OK"),
            ("HSET h f x", "0"),
        ],
    );
    script(
        &opened.again(),
        &[("ZRANGE z 0 -1", "[a c b]"), ("GET k7", "again"), ("HGETALL h", "[f x g w]")],
    );
}

#[test]
fn a_key_that_cannot_be_read_is_listed_deleted_and_written() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.pipeline(&["SET a 1", "SET b 1", "ZADD z 1 m", "SET c 1", "SET d 1"]);
    opened.memory.log().unreadable = true;
    let opened = opened.again();
    let mut caller = opened.caller();
    assert!(caller.say("GET a").starts_with("MISCONF"));
    assert_eq!(caller.ask("KEYS *").list().len(), 5);
    assert_eq!(caller.ask("SCAN 0 COUNT 100").list()[1].list().len(), 5);
    assert_eq!(caller.ask("SCAN 0 COUNT 100 TYPE string").list()[1].list().len(), 0);
    assert_eq!(caller.say("DEL a none"), "1");
    assert_eq!(caller.say("UNLINK z"), "1");
    assert_eq!(caller.say("SET b 2"), "OK");
    assert_eq!(caller.say("SET c 2 XX EX 100"), "OK");
    assert_eq!(caller.say("SET c 3 NX"), "nil");
    assert!(caller.say("SET d 2 KEEPTTL").starts_with("MISCONF"), "nobody knows when it ends");
    opened.memory.log().unreadable = false;
    assert_eq!(caller.say("MGET a b c d"), "[nil 2 2 1]");
    let opened = opened.again();
    assert_eq!(opened.caller().say("MGET a b c d"), "[nil 2 2 1]");
    assert_eq!(opened.caller().say("DBSIZE"), "3");
}
