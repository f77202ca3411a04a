use zeroize::Zeroizing;

use crate::client::{Answer, Opened, options};
use crate::strings::script;

fn guarded() -> Opened {
    let password = Some(Zeroizing::new("open sesame".to_owned()));
    Opened::with(door_redis::Options { password, ..options() })
}

#[test]
fn errors_are_worded_as_redis_does() {
    script(
        &Opened::new(),
        &[
            ("NOSUCH a b", "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' "),
            ("GET", "ERR wrong number of arguments for 'get' command"),
            ("GET a b", "ERR wrong number of arguments for 'get' command"),
            ("PING a b", "ERR wrong number of arguments for 'ping' command"),
            ("HSET h f v", "1"),
            ("GET h", "WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("CONFIG NOSUCH", "ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP."),
            ("CONFIG GET", "ERR wrong number of arguments for 'config|get' command"),
            ("SELECT 0", "OK"),
            ("SELECT 1", "ERR DB index is out of range"),
            ("RENAME none x", "ERR no such key"),
            ("WAIT 0 0", "0"),
            ("ECHO hi", "hi"),
            ("PING hi", "hi"),
        ],
    );
    let opened = Opened::new();
    let mut caller = opened.caller();
    for absent in
        ["SUBSCRIBE c", "EVAL x 0", "LPUSH l v", "SADD s m", "XADD s * f v", "SETBIT k 1 1"]
    {
        let text = caller.say(absent);
        let name = absent.split(' ').next().unwrap();
        assert!(text.starts_with(&format!("ERR unknown command '{name}': ")), "{text}");
    }
}

#[test]
fn the_password_is_asked_for() {
    let opened = guarded();
    let mut caller = opened.caller();
    assert_eq!(caller.say("GET k"), "NOAUTH Authentication required.");
    assert_eq!(caller.say("PING"), "NOAUTH Authentication required.");
    assert!(caller.say("HELLO 3").starts_with("NOAUTH HELLO must be called"));
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!(caller.say("AUTH sesame"), wrong);
    assert_eq!(caller.say("AUTH nobody sesame"), wrong);
    assert_eq!(caller.call(&[b"AUTH", b"nobody", b"open sesame"]).text(), wrong);
    assert_eq!(caller.call(&[b"AUTH", b"open sesame"]).text(), "OK");
    assert_eq!(caller.say("PING"), "PONG");
    assert_eq!(caller.say("RESET"), "RESET");
    assert_eq!(caller.say("PING"), "NOAUTH Authentication required.");
    let hello =
        caller.call(&[b"HELLO", b"3", b"AUTH", b"default", b"open sesame", b"SETNAME", b"me"]);
    assert!(matches!(hello, Answer::Map(_)), "{hello:?}");
    assert_eq!(caller.say("CLIENT GETNAME"), "me");
    assert_eq!(opened.metric("wrong_passwords"), 3);
    for _ in 0..20 {
        let mut caller = opened.caller();
        caller.send(&b"AUTH wrong\r\n".repeat(40));
        while !caller.is_closed() {}
    }
    assert!(opened.metric("wrong_passwords") <= 3 + 20 * 16);
    // Without a password there is none to give.
    let text = Opened::new().caller().say("AUTH x");
    assert!(text.starts_with("ERR AUTH <password> called without any password"), "{text}");
}

#[test]
fn a_door_for_others_has_a_password() {
    let listen = "0.0.0.0:0".parse().unwrap();
    let bare = door_redis::Options { listen, ..options() };
    let memory = Box::new(crate::memory::Memory::default());
    let calendar = crate::memory::Calendar::new();
    let refused = door_redis::open(bare.clone(), memory.clone(), calendar.clone());
    assert!(matches!(refused, Err(door_redis::DoorError::Exposed(_))));
    let password = Some(Zeroizing::new("p".to_owned()));
    door_redis::open(door_redis::Options { password, ..bare }, memory, calendar).unwrap().close();
}

#[test]
fn both_protocols_are_spoken() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.pipeline(&["HSET h f v", "ZADD z 1.5 m", "SET s v"]);
    assert_eq!(caller.ask("HGETALL h"), Answer::Array(vec![bulk("f"), bulk("v")]));
    assert_eq!(caller.ask("ZSCORE z m"), bulk("1.5"));
    assert!(matches!(caller.ask("HELLO"), Answer::Array(_)));
    assert_eq!(caller.ask("HELLO 4").text(), "NOPROTO unsupported protocol version");
    assert_eq!(
        caller.ask("HELLO x").text(),
        "ERR Protocol version is not an integer or out of range"
    );
    assert_eq!(caller.ask("HELLO 3 NO").text(), "ERR Syntax error in HELLO option 'NO'");
    let hello = caller.ask("HELLO 3").list();
    assert!(hello.chunks(2).any(|pair| pair == [bulk("proto"), Answer::Integer(3)]), "{hello:?}");
    assert_eq!(caller.ask("HGETALL h"), Answer::Map(vec![bulk("f"), bulk("v")]));
    assert_eq!(caller.ask("ZSCORE z m"), Answer::Double("1.5".into()));
    assert_eq!(caller.ask("GET none"), Answer::Null);
    let pair = Answer::Array(vec![bulk("m"), Answer::Double("1.5".into())]);
    assert_eq!(caller.ask("ZRANGE z 0 -1 WITHSCORES"), Answer::Array(vec![pair]));
    assert!(matches!(caller.ask("INFO"), Answer::Verbatim(_)));
    assert!(matches!(caller.ask("CONFIG GET save"), Answer::Map(_)));
    assert!(matches!(caller.ask("COMMAND DOCS get"), Answer::Map(_)));
    assert!(matches!(caller.ask("HELLO 2"), Answer::Array(_)));
}

fn bulk(text: &str) -> Answer {
    Answer::Bulk(text.as_bytes().to_vec())
}

#[test]
fn lines_typed_by_hand_are_answered() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.send(b"SET k \"a b\"\r\nGET k\r\n\r\nPING\n");
    assert_eq!(caller.answer().text(), "OK");
    assert_eq!(caller.answer().text(), "a b");
    assert_eq!(caller.answer().text(), "PONG");
}

#[test]
fn what_is_no_request_ends_the_connection() {
    let opened = Opened::new();
    let cases: [(&[u8], &str); 6] = [
        (b"*1\r\n:1\r\n", "ERR Protocol error: expected '$', got ':'"),
        (b"*1\r\n$99999999\r\n", "ERR Protocol error: invalid bulk length"),
        (b"*1\r\n$-5\r\n", "ERR Protocol error: invalid bulk length"),
        (b"*999999999\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"GET \"k\r\n", "ERR Protocol error: unbalanced quotes in request"),
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "ERR unknown command 'POST'"),
    ];
    for (bytes, expected) in cases {
        let mut caller = opened.caller();
        caller.send(b"*1\r\n$4\r\nPING\r\n");
        caller.send(bytes);
        caller.send(b"*3\r\n$3\r\nSET\r\n$5\r\nafter\r\n$1\r\nv\r\n");
        assert_eq!(caller.answer().text(), "PONG");
        let text = caller.answer().text();
        assert!(text.starts_with(expected), "{text}");
        assert!(caller.is_closed(), "{expected}");
    }
    assert_eq!(opened.caller().say("EXISTS after"), "0");
}

#[test]
fn the_door_tells_about_itself() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    caller.pipeline(&["SET k v", "GET k", "GET none"]);
    let info = caller.say("INFO");
    for line in ["redis_version:7", "server_name:holdfast", "db0:keys=1", "connected_clients:1"] {
        assert!(info.contains(line), "{line} in {info}");
    }
    let resident = info.lines().find_map(|line| line.strip_prefix("used_memory_rss:"));
    let resident: u64 = resident.unwrap().parse().unwrap();
    assert!(resident > 1 << 20, "{info}");
    assert!(info.contains("maxmemory:"), "{info}");
    assert_eq!(caller.say("SET e v EX 100"), "OK");
    let keys = caller.say("INFO keyspace");
    assert!(keys.contains("db0:keys=2,expires=1,"), "{keys}");
    assert_eq!(caller.say("DEL e"), "1");
    assert!(!caller.say("INFO stats").contains("redis_version"));
    assert_eq!(caller.say("CONFIG GET maxclients"), "[maxclients 10000]");
    assert_eq!(caller.ask("CONFIG GET *").list().len() % 2, 0);
    assert_eq!(caller.say("CONFIG SET save x appendonly no"), "OK");
    assert!(caller.say("CONFIG SET dir /etc").starts_with("ERR CONFIG SET failed"));
    assert_eq!(caller.say("CONFIG RESETSTAT"), "OK");
    let count = caller.ask("COMMAND COUNT");
    assert_eq!(count, Answer::Integer(caller.ask("COMMAND").list().len() as i64));
    assert_eq!(caller.ask("COMMAND LIST").list().len(), caller.ask("COMMAND INFO").list().len());
    let get = caller.ask("COMMAND INFO get none").list();
    assert_eq!(get[0].text(), "[get 2 [readonly fast] 1 1 1 [@string] [] [] []]");
    assert_eq!(get[1], Answer::Null);
    assert_eq!(caller.say("COMMAND GETKEYS MSET a 1 b 2"), "[a b]");
    assert_eq!(caller.say("CLIENT SETNAME me"), "OK");
    assert_eq!(caller.say("CLIENT SETINFO LIB-NAME lib"), "OK");
    let list = caller.say("CLIENT LIST");
    assert!(list.contains(" name=me ") && list.contains("lib-name=lib"), "{list}");
    assert!(caller.call(&[b"CLIENT", b"SETNAME", b"a b"]).text().starts_with("ERR Client names"));
    assert_eq!(caller.say("CLIENT NO-EVICT on"), "OK");
    assert!(caller.say("CLIENT KILL x").starts_with("ERR unknown subcommand"));
    assert_eq!(caller.say("TIME"), "[1800000000 0]");
    assert_eq!(caller.say("OBJECT ENCODING k"), "embstr");
    assert_eq!(caller.say("MEMORY USAGE none"), "nil");
    assert!(matches!(caller.ask("MEMORY USAGE k"), Answer::Integer(1..)));
    assert_eq!(caller.say("QUIT"), "OK");
    assert!(caller.is_closed());
}

/// `HOLD_UPDATE_SNAPSHOTS=1 cargo test -p door-redis --test door page` writes it anew.
#[test]
fn the_page_lists_the_commands_as_they_are() {
    let path = format!("{}/../../docs/doors/redis.md", testkit::manifest!());
    let page = std::fs::read_to_string(&path).unwrap();
    let begin = "<!-- Made from the table of commands: -->\n";
    let (head, rest) = page.split_once(begin).expect("a place for the commands");
    let end = "\n<!-- until here. -->";
    let (_, tail) = rest.split_once(end).expect("its end");
    let made = format!("{head}{begin}{}{end}{tail}", door_redis::page());
    if std::env::var_os("HOLD_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert!(page == made || std::env::var_os("HOLD_UPDATE_SNAPSHOTS").is_some(), "stale");
}
