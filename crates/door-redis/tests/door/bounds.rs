use std::io::Write;
use std::time::Duration;

use door_redis::{Limits, Options};

use crate::client::{Opened, options, request};

fn with(limits: Limits) -> Opened {
    Opened::with(Options { limits, ..options() })
}

#[test]
fn callers_over_the_bound_are_refused() {
    let opened = with(Limits { clients: 2, ..Limits::default() });
    let (mut a, mut b) = (opened.caller(), opened.caller());
    assert_eq!((a.say("PING"), b.say("PING")), ("PONG".into(), "PONG".into()));
    let mut c = opened.caller();
    assert_eq!(c.answer().text(), "ERR max number of clients reached");
    assert!(c.is_closed());
    assert_eq!(a.say("QUIT"), "OK");
    assert!(a.is_closed());
    assert_eq!(opened.caller().say("PING"), "PONG");
    assert_eq!(opened.metric("refused"), 1);
}

#[test]
fn a_caller_that_does_not_read_is_cut_off_and_the_others_are_served() {
    let limits =
        Limits { output_bytes: 1 << 20, stall: Duration::from_millis(300), ..Limits::default() };
    let opened = with(limits);
    let mut deaf = opened.caller();
    deaf.call(&[b"SET", b"k", &vec![1; 1 << 20]]);
    let many = request(&[b"GET", b"k"]).repeat(64);
    let mut other = opened.caller();
    let _ = deaf.socket.write_all(&many);
    while opened.metric("cut_off") == 0 {
        assert_eq!(other.say("PING"), "PONG");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(other.say("STRLEN k"), "1048576");
}

#[test]
fn a_caller_that_reads_slowly_gets_everything() {
    let opened = with(Limits { output_bytes: 1 << 20, ..Limits::default() });
    let mut caller = opened.caller();
    caller.call(&[b"SET", b"k", &vec![1; 1 << 20]]);
    caller.send(&request(&[b"GET", b"k"]).repeat(40));
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..40 {
        assert_eq!(caller.answer().text().len(), 1 << 20);
    }
    assert_eq!(caller.say("PING"), "PONG");
}

#[test]
fn unfinished_requests_of_all_callers_are_bounded_together() {
    let opened = with(Limits { input_bytes: 4 << 20, ..Limits::default() });
    let part = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\n"[..], &[1; 1_900_000]].concat();
    let mut callers: Vec<_> = (0..8).map(|_| opened.caller()).collect();
    for caller in &mut callers {
        let _ = caller.socket.write_all(&part);
    }
    while opened.metric("cut_off") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(callers);
    let mut caller = opened.caller();
    // What they held counts until the door has seen that they are gone.
    while !caller.say("INFO clients").contains("connected_clients:1\r\n") {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(caller.call(&[b"SET", b"k", &vec![1; 2_000_000]]).text(), "OK");
}

/// Callers at rest hold next to nothing, whatever they said before.
#[test]
fn callers_at_rest_are_not_charged_for_what_they_said() {
    let opened = with(Limits { input_bytes: 4 << 20, ..Limits::default() });
    let value = [b'v'; 1_000];
    let words: Vec<&[u8]> = [&b"MSET"[..]]
        .into_iter()
        .chain(std::iter::repeat_n([&b"k"[..], &value], 1_000).flatten())
        .collect();
    let many: Vec<&[u8]> =
        [&b"EXISTS"[..]].into_iter().chain(std::iter::repeat_n(&b"k"[..], 100_000)).collect();
    let mut callers: Vec<_> = (0..8).map(|_| opened.caller()).collect();
    for caller in &mut callers {
        assert_eq!(caller.call(&words).text(), "OK");
        assert_eq!(caller.call(&many).text(), "100000");
    }
    assert!(callers.iter_mut().all(|caller| caller.say("PING") == "PONG"));
}

/// What came and the end after it may be told to the door at once, and only once.
#[test]
fn callers_that_end_right_behind_what_they_say_are_answered_and_let_go() {
    let opened = Opened::new();
    let whole = request(&[b"PING"]);
    let part = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$200000\r\n"[..], &[1; 100_000]].concat();
    for (said, answer) in [(&whole, "PONG"), (&part, ""), (&Vec::new(), "")] {
        let mut callers: Vec<_> = (0..100).map(|_| opened.caller()).collect();
        for caller in &mut callers {
            caller.send(said);
            caller.socket.shutdown(std::net::Shutdown::Write).unwrap();
        }
        for caller in &mut callers {
            if !answer.is_empty() {
                assert_eq!(caller.answer().text(), answer);
            }
            assert!(caller.is_closed());
        }
    }
    assert!(opened.caller().say("INFO clients").contains("connected_clients:1\r\n"));
}

/// A connection that is closed while more of it is to be executed leaves its place to the next.
#[test]
fn callers_that_come_in_the_place_of_one_that_left_are_answered() {
    let opened = Opened::new();
    std::thread::scope(|scope| {
        let leavers = scope.spawn(|| {
            // More than is executed in a turn; the system refuses its answers from the second turn on.
            let many = b"PING\r\n".repeat(10_000);
            for _ in 0..1_000 {
                let _ = opened.caller().socket.write_all(&many);
            }
        });
        while !leavers.is_finished() {
            assert_eq!(opened.caller().say("PING"), "PONG");
        }
    });
}

#[test]
fn commands_that_write_too_much_at_once_are_refused() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let mut words: Vec<&[u8]> = vec![b"DEL"];
    words.resize(50_001, b"k");
    assert!(caller.call(&words).text().starts_with("ERR too many arguments"));
    words[0] = b"EXISTS";
    assert_eq!(caller.call(&words).text(), "0");
    words.resize(131_073, b"k");
    assert_eq!(caller.call(&words).text(), "ERR Protocol error: invalid multibulk length");
}

#[test]
fn random_bytes_do_no_harm() {
    let opened = Opened::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..40 {
        let bytes: Vec<u8> = (0..3000)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                b"*$\r\n0123 SETGk\xff"[(seed % 15) as usize]
            })
            .collect();
        let mut caller = opened.caller();
        let _ = caller.socket.write_all(&bytes);
        let _ = caller.socket.shutdown(std::net::Shutdown::Write);
        while !caller.is_closed() {}
    }
    assert_eq!(opened.caller().say("PING"), "PONG");
}
