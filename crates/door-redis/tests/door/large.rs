//! Commands and transactions that would write or answer more than the door takes at once: each fails alone.

use door_redis::{Limits, Options};

use crate::client::{Caller, Opened, options, request};

/// Queues all, then EXEC in one write with what stands before MULTI; the answer of the first and of EXEC.
fn executed(caller: &mut Caller, first: &str, requests: &[Vec<u8>]) -> (String, String) {
    let words: Vec<&[u8]> = first.split(' ').map(str::as_bytes).collect();
    let ends = [request(&words), request(&[b"MULTI"])].concat();
    let mut sender = caller.socket.try_clone().unwrap();
    let all = [ends, requests.concat(), request(&[b"EXEC"])].concat();
    let thread = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &all));
    let first = caller.answer().text();
    assert_eq!(caller.answer().text(), "OK");
    for _ in requests {
        assert_eq!(caller.answer().text(), "QUEUED");
    }
    let executed = caller.answer().text();
    thread.join().unwrap().unwrap();
    (first, executed)
}

fn sets(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| request(&[b"SET", format!("k{n}").as_bytes(), b"v"])).collect()
}

fn members(caller: &mut Caller, count: usize) {
    let all: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
    for some in all.chunks(20_000) {
        let pairs = some.iter().flat_map(|member| [&b"1"[..], member.as_bytes()]);
        let words: Vec<&[u8]> = [&b"ZADD"[..], b"z"].into_iter().chain(pairs).collect();
        assert_eq!(caller.call(&words).text(), some.len().to_string());
    }
}

#[test]
fn a_transaction_of_too_many_records_is_refused_whole_and_alone() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let (first, answer) = executed(&mut caller, "SET other v", &sets(33_000));
    assert_eq!(first, "OK");
    assert!(answer.starts_with("ERR") && answer.contains("57344 records"), "{answer}");
    assert_eq!(caller.say("DBSIZE"), "1");
    let (_, answer) = executed(&mut caller, "PING", &sets(28_000));
    assert!(answer.starts_with("[OK OK"), "{answer:.100}");
    assert_eq!(caller.say("DBSIZE"), "28001");
    // Of keys that are there a version each.
    let (_, answer) = executed(&mut caller, "PING", &[sets(28_000), sets(28_000)].concat());
    assert!(answer.starts_with("[OK OK"), "{answer:.100}");
    assert_eq!(opened.metric("failed_commits"), 0);
}

#[test]
fn a_transaction_of_too_many_bytes_is_refused_whole_and_alone() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let value = vec![b'v'; (2 << 20) - 12];
    assert_eq!(caller.call(&[b"SET", b"k", &value]).text(), "OK");
    let change = request(&[b"SETRANGE", b"k", b"0", b"x"]);
    let set = request(&[b"SET", b"beside", b"v"]);
    let (first, answer) =
        executed(&mut caller, "SET other v", &[vec![set], vec![change.clone(); 33]].concat());
    assert_eq!(first, "OK");
    assert!(answer.starts_with("ERR") && answer.contains("48 MiB"), "{answer}");
    assert_eq!(caller.say("GETRANGE k 0 1"), "vv");
    assert_eq!(caller.say("MGET other beside"), "[v nil]");
    let (_, answer) = executed(&mut caller, "PING", &vec![change; 20]);
    assert!(answer.starts_with("[2097140 "), "{answer}");
    assert_eq!(caller.say("GETRANGE k 0 1"), "xv");
    assert_eq!(opened.metric("failed_commits"), 0);
}

#[test]
fn more_members_than_fit_a_commit_are_not_removed_at_once() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    members(&mut caller, 70_000);
    for line in ["ZPOPMIN z 70000", "ZREMRANGEBYRANK z 0 -1", "ZREMRANGEBYSCORE z 1 1"] {
        let answers = caller.pipeline(&["SET other v", line]);
        assert_eq!(answers[0], "OK", "{line}");
        let told = answers[1].starts_with("ERR") && answers[1].contains("at most 50000 members");
        assert!(told, "{line}: {:.100}", answers[1]);
    }
    assert_eq!(caller.say("ZCARD z"), "70000");
    let transaction = caller.pipeline(&[
        "SET other w",
        "MULTI",
        "ZREMRANGEBYRANK z 0 49999",
        "ZREMRANGEBYRANK z 0 -1",
        "EXEC",
    ]);
    assert_eq!(transaction[0], "OK");
    assert!(transaction[4].starts_with("ERR the transaction"), "{}", transaction[4]);
    assert_eq!(caller.pipeline(&["ZCARD z", "ZREMRANGEBYRANK z 0 49999"]), ["70000", "50000"]);
    assert_eq!(caller.pipeline(&["ZREMRANGEBYRANK z 0 -1", "EXISTS z"]), ["20000", "0"]);
    assert_eq!(opened.metric("failed_commits"), 0);
}

#[test]
fn an_answer_over_the_bound_is_an_error_and_nothing_of_it_is_kept() {
    let limits = Limits { output_bytes: 1 << 20, ..Limits::default() };
    let opened = Opened::with(Options { limits, ..options() });
    let mut caller = opened.caller();
    let value = vec![b'v'; 100_000];
    caller.call(&[b"HSET", b"h", b"f", &value]);
    caller.call(&[b"SET", b"k", &value]);
    members(&mut caller, 60_000);
    for (head, word) in [(&[&b"HMGET"[..], b"h"][..], &b"f"[..]), (&[b"MGET"], b"k")] {
        let answered = |count| [head, &vec![word; count][..]].concat();
        assert_eq!(caller.call(&answered(10)).list().len(), 10);
        let refused = caller.call(&answered(1_000)).text();
        assert!(refused.starts_with("ERR the answer is longer than 1 MiB"), "{refused:.100}");
    }
    for line in ["ZRANGE z 0 -1 WITHSCORES", "ZRANGE z 0 -1 REV WITHSCORES", "ZSCAN z 0"] {
        let refused = caller.say(line);
        assert!(refused.starts_with("ERR the answer"), "{line}: {refused:.100}");
    }
    let part = [&["MULTI", "SET n 1"][..], &["GETRANGE k 0 -1"; 12], &["EXEC"]].concat();
    let refused = caller.pipeline(&part).pop().unwrap();
    assert!(refused.starts_with("ERR the answer"), "{refused:.100}");
    assert_eq!(caller.say("EXISTS n"), "0");
    let whole = caller.pipeline(&["MULTI", "SET n 1", "GETRANGE k 0 -1", "EXEC"]).pop().unwrap();
    assert!(whole.starts_with("[OK v"), "{whole:.100}");
    // A pipeline is bounded answer by answer.
    let parts = caller.pipeline(&["GETRANGE k 0 -1"; 40]);
    assert!(parts.iter().all(|part| part.len() == 100_000));
    let names: Vec<Vec<u8>> = (0..2_000).map(|n| format!("{n:01000}").into_bytes()).collect();
    for name in &names {
        caller.send(&request(&[b"SET", name, b"v"]));
    }
    names.iter().for_each(|_| assert_eq!(caller.answer().text(), "OK"));
    for line in ["KEYS *", "SCAN 0 COUNT 100000"] {
        let refused = caller.say(line);
        assert!(refused.starts_with("ERR the answer"), "{line}: {refused:.100}");
    }
}

#[test]
fn what_is_read_in_one_turn_does_not_fill_the_memory() {
    let opened = Opened::with(Options { cache_bytes: 1 << 20, ..options() });
    let mut caller = opened.caller();
    let value = vec![b'v'; 1 << 20];
    for n in 0..80 {
        assert_eq!(caller.call(&[b"SET", format!("k{n}").as_bytes(), &value]).text(), "OK");
    }
    // A key that is written in the turn is read in it, whatever is dropped.
    let mut lines = vec!["SET k0 written".to_owned()];
    lines.extend((0..80).map(|n| format!("STRLEN k{n}")));
    lines.extend(["INFO memory".to_owned(), "GET k0".to_owned()]);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let answers = caller.pipeline(&lines);
    assert_eq!((&answers[1][..], &answers[2][..]), ("7", "1048576"));
    assert_eq!(answers[82], "written");
    let used = answers[81].split("used_memory:").nth(1).unwrap();
    let used: usize = used.split("\r\n").next().unwrap().parse().unwrap();
    assert!(used < 24 << 20, "{used}");
}
