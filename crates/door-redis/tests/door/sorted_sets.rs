use crate::client::Opened;
use crate::strings::script;

#[test]
fn members_are_added_and_scored() {
    script(
        &Opened::new(),
        &[
            ("ZADD z 1 a 2 b 3 c", "3"),
            ("ZADD z 5 a", "0"),
            ("ZADD z CH 6 a 2 b 9 d", "2"),
            ("ZADD z NX 1 a 1 e", "1"),
            ("ZADD z XX 7 a 1 f", "0"),
            ("ZADD z GT 3 a 4 c", "0"),
            ("ZADD z LT CH 1 c 9 a", "1"),
            ("ZADD z INCR 2 a", "9"),
            ("ZADD z NX INCR 2 a", "nil"),
            ("ZINCRBY z -0.5 a", "8.5"),
            ("ZINCRBY z 1 new", "1"),
            ("ZSCORE z a", "8.5"),
            ("ZSCORE z none", "nil"),
            ("ZMSCORE z a none b", "[8.5 nil 2]"),
            ("ZCARD z", "6"),
            ("ZRANGE z 0 -1 WITHSCORES", "[c 1 e 1 new 1 b 2 a 8.5 d 9]"),
            ("ZRANK z b", "3"),
            ("ZREVRANK z b", "2"),
            ("ZRANK z none", "nil"),
            ("ZRANK z b WITHSCORE", "[3 2]"),
            ("ZREM z e new none", "2"),
            ("ZADD z inf top -inf bottom", "2"),
            ("ZRANGE z 0 0 WITHSCORES", "[bottom -inf]"),
            ("ZINCRBY z -inf top", "ERR resulting score is not a number (NaN)"),
            ("ZADD z nan x", "ERR value is not a valid float"),
            ("ZADD z x x", "ERR value is not a valid float"),
            ("ZADD z 1e400 x", "ERR value is not a valid float"),
            ("ZADD z 1 x 1e-400 x", "ERR value is not a valid float"),
            ("ZINCRBY z -1e400 top", "ERR value is not a valid float"),
            ("ZCOUNT z 1e400 +inf", "1"),
            ("ZADD z 1", "ERR wrong number of arguments for 'zadd' command"),
            ("ZADD z 1 a 2", "ERR syntax error"),
            ("ZADD z NX XX 1 a", "ERR XX and NX options at the same time are not compatible"),
            (
                "ZADD z NX GT 1 a",
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ),
            ("ZADD z INCR 1 a 2 b", "ERR INCR option supports a single increment-element pair"),
            ("ZADD none XX 1 a", "0"),
            ("EXISTS none", "0"),
            ("TYPE z", "zset"),
            ("ZREM z a b c d top bottom", "6"),
            ("EXISTS z", "0"),
        ],
    );
}

#[test]
fn ranges_by_rank_score_and_bytes() {
    script(
        &Opened::new(),
        &[
            ("ZADD z 1 a 2 b 3 c 4 d 5 e", "5"),
            ("ZRANGE z 1 2", "[b c]"),
            ("ZRANGE z -2 100", "[d e]"),
            ("ZRANGE z 3 1", "[]"),
            ("ZRANGE z 0 1 REV WITHSCORES", "[e 5 d 4]"),
            ("ZREVRANGE z 0 1", "[e d]"),
            ("ZRANGEBYSCORE z 2 4", "[b c d]"),
            ("ZRANGEBYSCORE z (2 (4 WITHSCORES", "[c 3]"),
            ("ZRANGEBYSCORE z -inf +inf LIMIT 1 2", "[b c]"),
            ("ZRANGEBYSCORE z -inf +inf LIMIT 3 -1", "[d e]"),
            ("ZRANGEBYSCORE z -inf +inf LIMIT -1 2", "[]"),
            ("ZRANGEBYSCORE z 9 10", "[]"),
            ("ZREVRANGEBYSCORE z 4 2", "[d c b]"),
            ("ZREVRANGEBYSCORE z +inf (1 LIMIT 1 2", "[d c]"),
            ("ZRANGE z 2 4 BYSCORE LIMIT 0 2", "[b c]"),
            ("ZRANGE z 4 2 BYSCORE REV", "[d c b]"),
            ("ZCOUNT z (1 4", "3"),
            ("ZCOUNT none 0 1", "0"),
            ("ZCOUNT z x 1", "ERR min or max is not a float"),
            (
                "ZRANGE z 0 1 LIMIT 0 1",
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ),
            ("ZADD l 0 a 0 b 0 c 0 d", "4"),
            ("ZRANGEBYLEX l [b +", "[b c d]"),
            ("ZRANGEBYLEX l - (c", "[a b]"),
            ("ZREVRANGEBYLEX l + (b LIMIT 0 1", "[d]"),
            ("ZRANGE l [a (c BYLEX", "[a b]"),
            ("ZLEXCOUNT l - +", "4"),
            ("ZRANGEBYLEX l b c", "ERR min or max not valid string range item"),
            ("ZPOPMIN z", "[a 1]"),
            ("ZPOPMAX z 2", "[e 5 d 4]"),
            ("ZPOPMIN none", "[]"),
            ("ZREMRANGEBYSCORE z 2 2", "1"),
            ("ZREMRANGEBYRANK l 0 0", "1"),
            ("ZREMRANGEBYLEX l [d [d", "1"),
            ("ZRANGE l 0 -1", "[b c]"),
            ("ZSCAN l 0", "[0 [b 0 c 0]]"),
            ("ZREMRANGEBYRANK z 0 -1", "1"),
            ("EXISTS z", "0"),
        ],
    );
}

#[test]
fn a_set_that_is_made_again_has_nothing_of_the_old() {
    let opened = Opened::new();
    let lines = [
        ("ZADD z 1 a 2 b", "2"),
        ("DEL z", "1"),
        ("ZADD z 3 c", "1"),
        ("ZRANGE z 0 -1", "[c]"),
        ("SET z v", "OK"),
        ("DEL z", "1"),
        ("ZADD z 4 a", "1"),
        ("ZRANGE z 0 -1 WITHSCORES", "[a 4]"),
    ];
    script(&opened, &lines);
    let mut caller = opened.caller();
    let lines = ["ZREM z a", "ZADD z 5 a", "ZADD z 6 a", "ZREM z a", "ZADD z 7 a", "ZSCORE z a"];
    assert_eq!(caller.pipeline(&lines), ["1", "1", "0", "1", "1", "7"]);
    script(&opened.again(), &[("ZRANGE z 0 -1 WITHSCORES", "[a 7]")]);
}

/// A command that is taken back leaves what the commands before it did to its members.
#[test]
fn a_member_that_was_removed_is_still_so_after_a_command_that_failed() {
    let opened = Opened::new();
    let mut caller = opened.caller();
    assert_eq!(caller.say("ZADD z 1 m 1 n"), "2");
    let long = "x".repeat(1_100);
    let failing = format!("ZADD z 1 m 2 m 3 {long}");
    let answers = caller.pipeline(&["ZREM z m", &failing, "ZADD z 9 m"]);
    assert!(answers[1].starts_with("ERR key is too long"), "{answers:?}");
    assert_eq!((&*answers[0], &*answers[2]), ("1", "1"));
    {
        let log = opened.memory.log();
        let object = log.object(b"redis/z\0\0\0\x01z\0\0\0\0\0\0\0\0m");
        assert_eq!(log.tips(&object).len(), 1, "each version stands on the one before");
    }
    script(&opened.again(), &[("ZSCORE z m", "9")]);
}
