use crate::client::{Answer, Opened};
use crate::strings::script;

#[test]
fn hashes_are_maps_of_fields() {
    script(
        &Opened::new(),
        &[
            ("HSET h a 1 b 2", "2"),
            ("HSET h b 3 c 4", "1"),
            ("HGET h b", "3"),
            ("HGET h none", "nil"),
            ("HGET none a", "nil"),
            ("HMGET h a none c", "[1 nil 4]"),
            ("HMGET none a", "[nil]"),
            ("HGETALL h", "[a 1 b 3 c 4]"),
            ("HGETALL none", "[]"),
            ("HKEYS h", "[a b c]"),
            ("HVALS h", "[1 3 4]"),
            ("HLEN h", "3"),
            ("HEXISTS h a", "1"),
            ("HEXISTS h z", "0"),
            ("HSTRLEN h a", "1"),
            ("HSETNX h a 9", "0"),
            ("HSETNX h d 9", "1"),
            ("HMSET h e 5", "OK"),
            ("HINCRBY h a 41", "42"),
            ("HINCRBY h new -1", "-1"),
            ("HINCRBYFLOAT h a 0.5", "42.5"),
            ("HINCRBY h a 1", "ERR hash value is not an integer"),
            ("HSET h t text", "1"),
            ("HINCRBYFLOAT h t 1", "ERR hash value is not a float"),
            ("HSET h a", "ERR wrong number of arguments for 'hset' command"),
            ("HSET h a 1 b", "ERR wrong number of arguments for 'hset' command"),
            ("HDEL h a b none", "2"),
            ("HSCAN h 0 MATCH [cd]", "[0 [c 4 d 9]]"),
            ("TYPE h", "hash"),
            ("EXPIRE h 100", "1"),
            ("HSET h z 1", "1"),
            ("TTL h", "100"),
            ("HDEL h c d e new t z", "6"),
            ("EXISTS h", "0"),
            ("TYPE h", "none"),
            ("HDEL h a", "0"),
        ],
    );
}

#[test]
fn a_hash_is_bounded_as_a_whole() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let part = vec![1; 600_000];
    for field in [b"a", b"b", b"c"] {
        assert_eq!(caller.call(&[b"HSET", b"h", field, &part]), Answer::Integer(1));
    }
    let text = caller.call(&[b"HSET", b"h", b"d", &part]).text();
    assert!(text.starts_with("ERR a hash has at most 2 MiB"), "{text}");
    assert_eq!(caller.say("HLEN h"), "3");
}

/// Each field is looked for once, not along all the others.
#[test]
fn many_fields_are_read_as_fast_as_they_are_many() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    let names: Vec<String> = (0..100_000).map(|n| format!("{n:05}")).collect();
    for some in names.chunks(20_000) {
        let pairs = some.iter().flat_map(|name| [name.as_bytes(), &name.as_bytes()[4..]]);
        let words: Vec<&[u8]> = [&b"HSET"[..], b"h"].into_iter().chain(pairs).collect();
        assert_eq!(caller.call(&words).text(), "20000");
    }
    let asked = names.iter().rev().map(String::as_bytes).chain([&b"none"[..], b"00007"]);
    let words: Vec<&[u8]> = [&b"HMGET"[..], b"h"].into_iter().chain(asked).collect();
    let begin = std::time::Instant::now();
    let answers = caller.call(&words).list();
    let took = begin.elapsed();
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    assert_eq!(answers.len(), 100_002);
    for (name, answer) in names.iter().rev().zip(&answers) {
        assert_eq!(answer.text(), name[4..]);
    }
    assert_eq!((&answers[100_000], answers[100_001].text()), (&Answer::Null, "7".to_owned()));
}
