use std::io::{Read, Write};
use std::time::Duration;

use door_redis::{Limits, Options};
use zeroize::Zeroizing;

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

/// What is counted of answers is what is there, also of callers that are refused.
#[test]
fn refused_callers_leave_the_count_of_answers_as_it_was() {
    let opened = with(Limits { input_bytes: 1 << 20, ..Limits::default() });
    let mut other = opened.caller();
    assert_eq!(other.say("PING"), "PONG");
    let part = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\n"[..], &[1; 1_900_000]].concat();
    for refused in 1..=3 {
        let mut caller = opened.caller();
        let _ = caller.socket.write_all(&part);
        while opened.metric("cut_off") < refused {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // Much is written into the buffer of its answers, which is given back once they are sent.
    let value = [b'v'; 10_000];
    other.call(&[b"SET", b"k", &value]);
    let words = [&[&b"MGET"[..]][..], &[&b"k"[..]; 20]].concat();
    for _ in 0..3 {
        assert_eq!(other.call(&words).list().len(), 20);
        assert_eq!(other.say("PING"), "PONG");
    }
}

#[test]
fn keys_and_prefixes_that_no_key_can_have_are_not_watched() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let (long, longest) = ([b'k'; 1_018], [b'k'; 1_017]);
    for command in [&b"WATCH"[..], b"HOLD.WATCH"] {
        let refused = caller.call(&[command, &long]).text();
        assert!(refused.starts_with("ERR key is too long"), "{refused:.100}");
        assert_eq!(caller.call(&[command, &longest]).text(), "OK");
    }
    let mut caller = opened.caller();
    let refused = caller.call(&[b"WATCH", b"k", &long]).text();
    assert!(refused.starts_with("ERR key is too long"), "{refused:.100}");
}

#[test]
fn keys_that_are_watched_are_counted_until_they_are_not() {
    let opened = with(Limits { input_bytes: 1 << 20, ..Limits::default() });
    let key = [b'k'; 1_000];
    let words = [&[&b"WATCH"[..]][..], &[&key[..]; 200]].concat();
    let mut caller = opened.caller();
    for end in ["UNWATCH", "EXEC", "RESET", "DISCARD"].iter().cycle().take(12) {
        assert_eq!(caller.call(&words).text(), "OK");
        caller.pipeline(&["MULTI", end]);
        caller.pipeline(&["DISCARD", "UNWATCH"]);
    }
    let mut others: Vec<_> = (0..8).map(|_| opened.caller()).collect();
    let answers: Vec<String> = others.iter_mut().map(|other| other.call(&words).text()).collect();
    assert_eq!(answers, ["OK"; 8]);
    for other in &mut others[..4] {
        assert_eq!(other.say("PING"), "PONG");
    }
    let told = others[7].answer().text();
    assert!(told.contains("too many requests wait"), "{told}");
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

/// Of an answer that is sent with many writes the rest is sent at once while the other side takes it.
#[test]
fn a_large_answer_is_not_waited_with() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.call(&[b"SET", b"k", &[b'v'; 16 << 10]]);
    let words = [&[&b"MGET"[..]][..], &[&b"k"[..]; 2_000]].concat();
    let mut buffer = vec![0; 1 << 20];
    // Whoever is left waiting in the middle of an answer is so for 100 ms.
    let took: Vec<Duration> = (0..30)
        .map(|_| {
            let mut longest = Duration::ZERO;
            caller.send(&request(&words));
            let mut left = "*2000\r\n".len() + 2_000 * ("$16384\r\n\r\n".len() + (16 << 10));
            // Before its first byte it is made, and that takes what it takes.
            left -= caller.socket.read(&mut buffer[..1]).unwrap();
            while left > 0 {
                let room = left.min(buffer.len());
                let begin = std::time::Instant::now();
                left -= caller.socket.read(&mut buffer[..room]).unwrap();
                longest = longest.max(begin.elapsed());
            }
            longest
        })
        .collect();
    let waited = took.iter().filter(|took| **took >= Duration::from_millis(95)).count();
    assert!(waited < 6, "{took:?}");
}

/// One command may be more events than all answers may have bytes: they are sent while they are told, and who does not read them is
/// cut off then.
#[test]
fn what_one_command_tells_is_bounded_too() {
    let limits = Limits { output_bytes: 4 << 20, outputs_bytes: 1 << 20, ..Limits::default() };
    let opened = with(limits);
    let mut deaf = opened.caller();
    assert_eq!(deaf.say("HOLD.WATCH k"), "OK");
    let mut reading = opened.caller();
    assert_eq!(reading.say("HOLD.WATCH k"), "OK");
    let keys: Vec<Vec<u8>> =
        (0..8_000).map(|n| [format!("k{n:06}").as_bytes(), &[b'x'; 900]].concat()).collect();
    let words: Vec<&[u8]> =
        [&b"MSET"[..]].into_iter().chain(keys.iter().flat_map(|key| [&key[..], b"v"])).collect();
    let mut socket = reading.socket.try_clone().unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut socket, &mut std::io::sink()));
    let mut writer = opened.caller();
    for _ in 0..20 {
        assert_eq!(writer.call(&words).text(), "OK");
        if opened.metric("cut_off") > 0 {
            break;
        }
    }
    assert!(opened.metric("cut_off") > 0, "who reads nothing holds no more than there may be");
    assert_eq!(writer.say("PING"), "PONG");
    drop(opened);
    let read = reader.join().unwrap().unwrap();
    assert!(read > 64 << 10, "{read} bytes");
}

#[test]
fn patterns_are_bounded() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.pipeline(&["SET k v", "HSET h f v"]);
    let (long, longest) = ([b'*'; 1_025], [b'*'; 1_024]);
    for (command, fits) in [
        (&[&b"KEYS"[..]][..], "[k h]"),
        (&[b"SCAN", b"0", b"MATCH"], "[0 [k h]]"),
        (&[b"HSCAN", b"h", b"0", b"MATCH"], "[0 [f v]]"),
    ] {
        let refused = caller.call(&[command, &[&long]].concat()).text();
        assert_eq!(refused, "ERR a pattern has at most 1024 bytes");
        assert_eq!(caller.call(&[command, &[&longest]].concat()).text(), fits);
    }
}

/// All answers together are bounded, those that nobody asked for among them.
#[test]
fn a_watcher_that_does_not_read_is_cut_off_where_there_is_too_much_of_all() {
    let limits = Limits { output_bytes: 1 << 30, outputs_bytes: 1 << 20, ..Limits::default() };
    let opened = with(limits);
    let mut deaf = opened.caller();
    assert_eq!(deaf.say("HOLD.WATCH k"), "OK");
    let mut reading = opened.caller();
    assert_eq!(reading.say("HOLD.WATCH key"), "OK");
    let mut writer = opened.caller();
    let (key, words) = ([&b"k"[..], &[b'x'; 1_000]].concat(), ["SET key v"; 10]);
    let some = request(&[b"SET", &key, b"v"]).repeat(100);
    for _ in 0..400 {
        writer.send(&some);
        (0..100).for_each(|_| assert_eq!(writer.answer().text(), "OK"));
        if opened.metric("cut_off") > 0 {
            break;
        }
    }
    assert_eq!(opened.metric("cut_off"), 1);
    writer.pipeline(&words);
    (0..10).for_each(|_| assert_eq!(reading.answer().list().len(), 4));
}

/// What came and the end after it may be told to the door at once, and only once.
/// One that does not read leaves the others half of the room for answers, and loses none of its own; what does not fit the room
/// is refused.
#[test]
fn answers_of_all_callers_are_bounded_together() {
    let opened = with(Limits { outputs_bytes: 24 << 20, ..Limits::default() });
    let (mut hog, mut other) = (opened.caller(), opened.caller());
    let value = vec![b'v'; 1 << 20];
    assert_eq!(hog.call(&[b"SET", b"k", &value]).text(), "OK");
    let large = request(&[&[&b"MGET"[..]][..], &[&b"k"[..]; 16]].concat());
    let begin = std::time::Instant::now();
    hog.send(&request(&[b"GET", b"k"]).repeat(64));
    loop {
        other.send(&large);
        let answer = other.answer().text();
        if answer.starts_with("ERR there is no room for the answer") {
            break;
        }
        assert!(answer.starts_with("[vvv"), "{answer:.100}");
        assert!(begin.elapsed() < Duration::from_secs(20), "its answers are not counted");
    }
    assert_eq!(other.say("STRLEN k"), "1048576");
    assert_eq!(other.say("GET k").len(), 1 << 20);
    for _ in 0..64 {
        assert_eq!(hog.answer().text().len(), 1 << 20);
    }
    other.send(&large);
    assert!(other.answer().text().starts_with("[vvv"), "there is room again");
}

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

fn guarded(limits: Limits) -> Opened {
    let password = Some(Zeroizing::new("open sesame".to_owned()));
    Opened::with(Options { limits, password, ..options() })
}

/// Who says nothing holds no place that somebody with the password wants; who gave it keeps its place.
#[test]
fn strangers_make_room_for_newcomers_and_those_with_the_password_stay() {
    let opened = guarded(Limits { clients: 2, ..Limits::default() });
    let mut silent: Vec<_> = (0..2).map(|_| opened.caller()).collect();
    let mut first = opened.caller();
    assert_eq!(first.call(&[b"AUTH", b"open sesame"]).text(), "OK");
    assert!(silent[0].is_closed());
    let mut second = opened.caller();
    assert_eq!(second.call(&[b"AUTH", b"open sesame"]).text(), "OK");
    assert!(silent[1].is_closed());
    assert_eq!(opened.caller().answer().text(), "ERR max number of clients reached");
    assert_eq!((first.say("PING"), second.say("PING")), ("PONG".into(), "PONG".into()));
    // Who gave it up is a stranger again.
    assert_eq!(second.say("RESET"), "RESET");
    let mut third = opened.caller();
    assert_eq!(third.call(&[b"AUTH", b"open sesame"]).text(), "OK");
    assert!(second.is_closed());
    assert_eq!(first.say("PING"), "PONG");
}

#[test]
fn what_strangers_hold_leaves_the_others_room() {
    let opened = guarded(Limits { input_bytes: 4 << 20, ..Limits::default() });
    // Nine arguments of ten, 144 KB, in buffers of twice that at most: of half a MiB two or three have room.
    let argument = [&b"$16000\r\n"[..], &[b'a'; 16_000], b"\r\n"].concat();
    let part = [&b"*10\r\n"[..], &argument.repeat(9)].concat();
    let mut strangers: Vec<_> = (0..8).map(|_| opened.caller()).collect();
    for stranger in &mut strangers {
        let _ = stranger.socket.write_all(&part);
    }
    while opened.metric("cut_off") < 5 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut caller = opened.caller();
    assert_eq!(caller.call(&[b"AUTH", b"open sesame"]).text(), "OK");
    assert_eq!(caller.call(&[b"SET", b"k", &vec![1; 2_000_000]]).text(), "OK");
    assert!((5..8).contains(&opened.metric("cut_off")));
}

/// Errors that a stranger does not read are not made by the million.
#[test]
fn a_stranger_that_does_not_read_is_not_read_from() {
    let opened = guarded(Limits::default());
    let mut deaf = opened.caller();
    deaf.socket.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    // Sockets may take some MB of answers of 35 bytes.
    let _ = deaf.socket.write_all(&b"a\n".repeat(1_000_000));
    let mut caller = opened.caller();
    assert_eq!(caller.call(&[b"AUTH", b"open sesame"]).text(), "OK");
    let mut before = u64::MAX;
    while before != opened.metric("errors") {
        before = opened.metric("errors");
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!((1..500_000).contains(&before), "{before}");
    assert_eq!(caller.say("PING"), "PONG");
}
