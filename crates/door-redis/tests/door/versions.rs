use crate::client::{Answer, Caller, Opened, request};

fn tips(caller: &mut Caller, key: &str) -> Vec<String> {
    caller.ask(&format!("HOLD.TIPS {key}")).list().iter().map(Answer::text).collect()
}

#[test]
fn a_key_s_history_is_read() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    assert_eq!(tips(&mut caller, "k"), [""; 0]);
    for n in 0..20 {
        caller.say(&format!("SET k v{n}"));
    }
    caller.pipeline(&["DEL k", "HSET k f v", "EXPIRE k 1000"]);
    let tip = tips(&mut caller, "k");
    assert_eq!(tip.len(), 1);
    let tip = &tip[0];
    assert!(tip.contains(":22:"), "{tip}");
    assert_eq!(caller.say(&format!("HOLD.GET k {tip}")), "[f v]");
    let before = caller.ask(&format!("HOLD.PREV k {tip} 100 VALUES")).list();
    assert_eq!(before.len(), 22);
    let values: Vec<String> = before.iter().map(|pair| pair.list()[1].text()).collect();
    assert_eq!(values[..4], ["[f v]", "nil", "v19", "v18"]);
    assert_eq!(values[21], "v0");
    let third = before[3].list()[0].text();
    assert_eq!(caller.say(&format!("HOLD.GET k {third}")), "v18");
    assert_eq!(caller.ask(&format!("HOLD.PREV k {third}")).list().len(), 1);
    assert_eq!(caller.ask(&format!("HOLD.PREV k {third} 5")).list().len(), 5);
    let log = caller.ask(&format!("HOLD.LOG k {tip} 4")).list();
    let kinds: Vec<String> = log.iter().map(|entry| entry.list()[2].text()).collect();
    assert_eq!(kinds, ["hash", "hash", "tombstone", "string"]);
    assert_eq!(log[0].list()[0].text(), *tip);
}

#[test]
fn a_history_of_large_values_is_read_in_little_memory() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let value = vec![b'v'; (2 << 20) - 20];
    for n in 0..40 {
        let value = [&value[..], n.to_string().as_bytes()].concat();
        assert_eq!(caller.call(&[b"SET", b"k", &value]).text(), "OK");
    }
    let tip = tips(&mut caller, "k")[0].clone();
    let answer = caller.say(&format!("HOLD.PREV k {tip} 1000 VALUES"));
    assert_eq!(answer, "ERR the values are more than 64 MiB: ask for fewer");
    assert_eq!(opened.memory.log().told, 33, "no more is read than is answered");
    assert_eq!(caller.ask(&format!("HOLD.PREV k {tip} 1000")).list().len(), 39);
    assert_eq!(caller.ask(&format!("HOLD.PREV k {tip} 30 VALUES")).list().len(), 30);
}

#[test]
fn branches_are_made_and_merged() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let root = caller.say("HOLD.PUT k - root");
    assert_eq!(caller.say("GET k"), "root");
    let left = caller.say(&format!("HOLD.PUT k {root} left"));
    let right = caller.say(&format!("HOLD.PUT k {root} right COMPRESS"));
    let both = tips(&mut caller, "k");
    assert_eq!(both.len(), 2);
    assert!(both.contains(&left) && both.contains(&right));
    let counts = if both[0] == left { "left" } else { "right" };
    assert_eq!(caller.say("GET k"), counts);
    // The same put again is the same version.
    assert_eq!(caller.say(&format!("HOLD.PUT k {root} left")), left);
    assert_eq!(tips(&mut caller, "k").len(), 2);
    let merged = caller.say(&format!("HOLD.MERGE k {left} {right} FUNC append"));
    assert_eq!(caller.say("GET k"), "leftright");
    assert_eq!(tips(&mut caller, "k"), std::slice::from_ref(&merged));
    assert_eq!(caller.ask(&format!("HOLD.PREV k {merged}")).list().len(), 2);
    assert_eq!(caller.ask(&format!("HOLD.PREV k {merged} 5")).list().len(), 2, "both bases");
    let log = caller.ask(&format!("HOLD.LOG k {merged} 10")).list();
    assert_eq!(log.len(), 4);
    assert_eq!(log[3].list()[0].text(), root);
    assert_eq!(caller.say("SET k on"), "OK");
    caller.say(&format!("HOLD.PUT k {root} short"));
    assert_eq!(caller.say("GET k"), "on", "a shorter branch does not count");
    assert_eq!(tips(&mut caller, "k").len(), 2);
    let other = caller.say(&format!("HOLD.MERGE k {left} {merged} value"));
    assert!(other.contains(":3:"), "{other}");
    let opened = opened.again();
    let mut caller = opened.caller();
    let first = &tips(&mut caller, "k")[0];
    let value = caller.say(&format!("HOLD.GET k {first}"));
    assert_eq!(caller.say("GET k"), value);
}

#[test]
fn versions_that_are_none_are_refused() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let a = caller.say("HOLD.PUT a - v");
    caller.say("SET b v");
    let none = format!("{}:0:{}", "0".repeat(64), "0".repeat(32));
    let deeper = a.replace(":0:", ":1:");
    for line in [
        format!("HOLD.GET b {a}"),
        format!("HOLD.GET a {none}"),
        format!("HOLD.GET a {deeper}"),
        format!("HOLD.PUT b {a} v"),
        format!("HOLD.PREV b {a} 3"),
        format!("HOLD.LOG b {a} 3"),
        format!("HOLD.MERGE a {a} {none} v"),
    ] {
        assert_eq!(caller.say(&line), "ERR no such version of this key here", "{line}");
    }
    for line in ["HOLD.GET a x", "HOLD.PUT a 1:2 v", "HOLD.PREV a "] {
        assert!(caller.say(line).starts_with("ERR a version is written h:l:n"), "{line}");
    }
    assert!(caller.say(&format!("HOLD.MERGE a {a} {a} v")).starts_with("ERR a version is not"));
    let b = caller.say(&format!("HOLD.PUT a {a} w"));
    let text = caller.say(&format!("HOLD.MERGE a {a} {b} FUNC nosuch"));
    assert_eq!(text, "ERR no such function");
    assert!(caller.say(&format!("HOLD.PREV a {a} 4097")).starts_with("ERR at most 4096"));
}

#[test]
fn a_connection_is_told_once_however_many_of_its_prefixes_fit() {
    let opened = Opened::new();
    let (mut watcher, mut writer) = (opened.caller(), opened.caller());
    let prefixes =
        ["", "k", "ke", "key"].map(|prefix| request(&[b"HOLD.WATCH", prefix.as_bytes()]));
    // One connection may watch 64, and one that it watches already is none more.
    for prefix in prefixes.iter().cycle().take(400) {
        watcher.send(prefix);
        assert_eq!(watcher.answer().text(), "OK");
    }
    writer.pipeline(&["MSET key:1 a key:2 b", "SET other c"]);
    for key in ["key:1", "key:2", "other"] {
        let told = watcher.answer().text();
        assert!(told.starts_with(&format!("[hold.version {key} ")), "{told}");
    }
    assert_eq!(watcher.say("PING"), "[pong ]");
}

#[test]
fn watchers_are_told_of_what_is_in_the_log() {
    let opened = Opened::new();
    let (mut new, mut old, mut writer) = (opened.caller(), opened.caller(), opened.caller());
    new.ask("HELLO 3");
    assert_eq!(new.say("HOLD.WATCH user:"), "OK");
    assert_eq!(old.say("HOLD.WATCH user:1"), "OK");
    opened.memory.log().failing = 1;
    assert!(writer.say("SET user:1 lost").starts_with("MISCONF"));
    writer.pipeline(&["SET other v", "SET user:1 a", "SET user:2 b", "ZADD user:3 1 m"]);
    let tip = tips(&mut writer, "user:1");
    let told = new.answer();
    assert!(matches!(told, Answer::Push(_)));
    assert_eq!(told.text(), format!("[hold.version user:1 {} nil]", tip[0]));
    assert!(new.answer().text().starts_with("[hold.version user:2 "));
    assert!(new.answer().text().starts_with("[hold.version user:3 "));
    assert!(new.answer().text().ends_with(" m]"));
    let told = old.answer();
    assert!(matches!(told, Answer::Array(_)));
    assert!(told.text().starts_with("[hold.version user:1 "));
    assert!(old.say("GET user:1").starts_with("ERR Can't execute 'get': only HOLD.WATCH"));
    assert_eq!(old.say("PING"), "[pong ]");
    assert_eq!(old.say("HOLD.UNWATCH"), "OK");
    assert_eq!(old.say("GET user:1"), "a");
    assert_eq!(new.say("GET user:1"), "a");
    drop(new);
    assert_eq!(writer.say("SET user:1 b"), "OK");
    assert_eq!(old.say("PING"), "PONG");
}
