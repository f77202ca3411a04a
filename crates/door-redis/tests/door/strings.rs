use crate::client::{Answer, Opened, options};

/// Pairs of a command and its answer.
pub fn script(opened: &Opened, lines: &[(&str, &str)]) {
    let mut caller = opened.caller();
    for (line, expected) in lines {
        assert_eq!(caller.say(line), *expected, "{line}");
    }
}

const NOT_INTEGER: &str = "ERR value is not an integer or out of range";

#[test]
fn strings_are_set_read_and_deleted() {
    let opened = Opened::new();
    script(
        &opened,
        &[
            ("GET k", "nil"),
            ("SET k v", "OK"),
            ("get k", "v"),
            ("SET k w NX", "nil"),
            ("SET x w XX", "nil"),
            ("SET k w XX GET", "v"),
            ("SET new w NX GET", "nil"),
            ("GET new", "w"),
            ("SET k z NX GET", "w"),
            ("GETSET k y", "w"),
            ("GETDEL k", "y"),
            ("GETDEL k", "nil"),
            ("SETNX k a", "1"),
            ("SETNX k b", "0"),
            ("STRLEN k", "1"),
            ("APPEND k bcd", "4"),
            ("APPEND other x", "1"),
            ("GETRANGE k 1 2", "bc"),
            ("GETRANGE k -2 -1", "cd"),
            ("GETRANGE k 3 1", ""),
            ("GETRANGE k -100 100", "abcd"),
            ("GETRANGE k 0 -100", "a"),
            ("GETRANGE k -100 -50", "a"),
            ("GETRANGE k -50 -100", ""),
            ("GETRANGE k 1 -100", ""),
            ("GETRANGE gone 0 -100", ""),
            ("GETRANGE gone 0 -1", ""),
            ("SETRANGE k 2 XYZ", "5"),
            ("GET k", "abXYZ"),
            ("SETRANGE gone 0 x", "1"),
            ("SETRANGE k -1 x", "ERR offset is out of range"),
            ("MSET a 1 b 2", "OK"),
            ("MGET a b none", "[1 2 nil]"),
            ("MSETNX a 3 c 4", "0"),
            ("MSETNX c 4 d 5", "1"),
            ("EXISTS a b a none", "3"),
            ("DEL a b none", "2"),
            ("UNLINK c", "1"),
            ("TYPE d", "string"),
            ("TYPE none", "none"),
            ("SET k v EX", "ERR syntax error"),
            ("SET k v NX XX", "ERR syntax error"),
            ("SET k v EX 1 PX 1", "ERR syntax error"),
            ("SET k v EX 0", "ERR invalid expire time in 'set' command"),
            ("SET k v EX x", NOT_INTEGER),
            ("SETEX k -1 v", "ERR invalid expire time in 'setex' command"),
            ("MSET a", "ERR wrong number of arguments for 'mset' command"),
            ("MSET a 1 b", "ERR wrong number of arguments for 'mset' command"),
        ],
    );
}

#[test]
fn numbers_in_strings() {
    script(
        &Opened::new(),
        &[
            ("INCR n", "1"),
            ("INCRBY n 41", "42"),
            ("DECR n", "41"),
            ("DECRBY n 50", "-9"),
            ("GET n", "-9"),
            ("SET n 9223372036854775807", "OK"),
            ("INCR n", "ERR increment or decrement would overflow"),
            ("DECRBY n -9223372036854775808", "ERR decrement would overflow"),
            ("GET n", "9223372036854775807"),
            ("SET t text", "OK"),
            ("INCR t", NOT_INTEGER),
            ("INCRBY n x", NOT_INTEGER),
            ("INCRBYFLOAT f 0.1", "0.1"),
            ("INCRBYFLOAT f 0.2", "0.3"),
            ("INCRBYFLOAT t 1", "ERR value is not a valid float"),
            ("INCRBYFLOAT f inf", "ERR increment would produce NaN or Infinity"),
        ],
    );
}

#[test]
fn any_bytes_are_a_value_and_a_key() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let all: Vec<u8> = (0..=255).collect();
    let values: Vec<Vec<u8>> =
        vec![vec![], vec![0], b"\0s".to_vec(), b"\0hx".to_vec(), all.clone(), vec![7; 300_000]];
    for (at, value) in values.iter().enumerate() {
        let key = [&all[..at * 40], b"\r\n"].concat();
        assert_eq!(caller.call(&[b"SET", &key, value]).text(), "OK");
        assert_eq!(caller.call(&[b"GET", &key]), Answer::Bulk(value.clone()));
        assert_eq!(caller.call(&[b"STRLEN", &key]), Answer::Integer(value.len() as i64));
    }
    let opened = opened.again();
    let mut caller = opened.caller();
    for (at, value) in values.iter().enumerate() {
        let key = [&all[..at * 40], b"\r\n"].concat();
        assert_eq!(caller.call(&[b"GET", &key]), Answer::Bulk(value.clone()));
    }
}

#[test]
fn sizes_are_bounded_with_clear_errors() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let largest = vec![1; (2 << 20) - 12];
    assert_eq!(caller.call(&[b"SET", b"k", &largest]).text(), "OK");
    assert!(caller.call(&[b"APPEND", b"k", b"x"]).text().starts_with("ERR string exceeds"));
    let over = vec![1; (2 << 20) - 11];
    assert!(caller.call(&[b"SET", b"k", &over]).text().starts_with("ERR string exceeds"));
    assert!(caller.say("SETRANGE k 2097152 x").starts_with("ERR string exceeds"));
    assert_eq!(caller.call(&[b"GET", b"k"]), Answer::Bulk(largest));
    assert_eq!(caller.call(&[b"SET", &[b'k'; 1017], b"v"]).text(), "OK");
    let text = caller.call(&[b"SET", &[b'k'; 1018], b"v"]).text();
    assert!(text.starts_with("ERR key is too long"), "{text}");
    assert_eq!(caller.call(&[b"GET", &[b'k'; 5000]]).text(), "nil");
}

#[test]
fn keys_end_when_their_time_has_come() {
    let opened = Opened::new();
    script(
        &opened,
        &[
            ("SET a v EX 10", "OK"),
            ("SET b v PX 1500", "OK"),
            ("SETEX c 10 v", "OK"),
            ("PSETEX d 700 v", "OK"),
            ("SET e v EXAT 1800000020", "OK"),
            ("SET f v PXAT 1800000020500", "OK"),
            ("TTL a", "10"),
            ("PTTL b", "1500"),
            ("EXPIRETIME e", "1800000020"),
            ("PEXPIRETIME f", "1800000020500"),
            ("TTL none", "-2"),
            ("SET n v", "OK"),
            ("TTL n", "-1"),
            ("EXPIRE n 100", "1"),
            ("EXPIRE n 50 GT", "0"),
            ("EXPIRE n 50 LT", "1"),
            ("EXPIRE n 60 NX", "0"),
            ("EXPIRE n 60 XX", "1"),
            ("EXPIRE none 60", "0"),
            ("PERSIST n", "1"),
            ("PERSIST n", "0"),
            ("EXPIRE n 5 GT", "0"),
            ("SET a w KEEPTTL", "OK"),
            ("APPEND a x", "2"),
            ("TTL a", "10"),
            ("SET c w", "OK"),
            ("TTL c", "-1"),
            ("GETEX c EX 10", "w"),
            ("TTL c", "10"),
            ("GETEX c PERSIST", "w"),
            ("TTL c", "-1"),
            (
                "EXPIRE n 10 NX XX",
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ),
            ("EXPIRE n 10 XY", "ERR Unsupported option xy"),
            ("EXPIRE n 9223372036854775807", "ERR invalid expire time in 'expire' command"),
        ],
    );
    opened.calendar.pass(2_000);
    script(&opened, &[("MGET a b c d e", "[wx nil w nil v]"), ("EXISTS b d", "0"), ("TTL a", "8")]);
    opened.calendar.pass(30_000);
    script(
        &opened,
        &[
            ("MGET a e f n", "[nil nil nil v]"),
            ("SET a again NX", "OK"),
            ("INCR b", "1"),
            ("TTL b", "-1"),
            ("EXPIRE n -1", "1"),
            ("EXISTS n", "0"),
        ],
    );
}

#[test]
fn what_has_ended_gets_its_tombstone_and_stays_away_after_a_restart() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.say("SET k v PX 1000");
    caller.say("SET stays v PX 100000");
    opened.calendar.pass(2_000);
    opened.handle.wake();
    while caller.say("DBSIZE") != "1" {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(opened.metric("expired"), 1);
    let log = opened.memory.log();
    let object = log.object(b"redis/kk");
    assert!(log.versions[&object].values().any(|v| v.kind == version::ValueKind::Tombstone));
    drop(log);
    let opened = opened.again();
    script(&opened, &[("EXISTS k", "0"), ("GET stays", "v"), ("PTTL stays", "98000")]);
    opened.calendar.pass(200_000);
    script(&opened.again(), &[("GET stays", "nil")]);
}

#[test]
fn values_beyond_the_cache_are_read_again() {
    let opened = Opened::with(door_redis::Options { cache_bytes: 10_000, ..options() });
    let mut caller = opened.caller();
    for key in 0..100 {
        caller.call(&[b"SET", format!("k{key}").as_bytes(), &[key; 1000]]);
        caller.call(&[b"HSET", format!("h{key}").as_bytes(), b"f", &[key; 1000]]);
    }
    for key in 0..100 {
        let answer = caller.call(&[b"GET", format!("k{key}").as_bytes()]);
        assert_eq!(answer, Answer::Bulk(vec![key; 1000]));
        let answer = caller.call(&[b"HGET", format!("h{key}").as_bytes(), b"f"]);
        assert_eq!(answer, Answer::Bulk(vec![key; 1000]));
    }
    assert!(opened.metric("cached_bytes") <= 10_000);
    assert!(opened.metric("reads") >= 180, "{}", opened.metric("reads"));
    assert_eq!(caller.say("APPEND k0 x"), "1001");
    assert_eq!(caller.say("EXPIRE h1 100"), "1");
    assert_eq!(caller.say("HLEN h1"), "1");
    assert_eq!(caller.say("RENAME h2 h3"), "OK");
    assert_eq!(caller.say("HSTRLEN h3 f"), "1000");
}
