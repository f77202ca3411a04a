//! Programs that others wrote, as they are. One that is not installed fails under `CI=true` and is
//! told as skipped elsewhere.

use std::process::Command;

use crate::client::Opened;

/// Whether the program can be run; where it must be there and is not, the test fails.
fn is_there(what: &str, mut probe: Command) -> bool {
    let there = probe.output().is_ok_and(|done| done.status.success());
    if !there {
        testkit::missing(&format!("the Redis door's foreign clients: {what} is not installed"));
    }
    there
}

fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

#[test]
fn redis_benchmark_measures_the_door() {
    if !is_there("redis-benchmark", command("redis-benchmark", &["--version"])) {
        return;
    }
    let opened = Opened::new();
    let port = opened.handle.address().port().to_string();
    let tests = "ping_inline,ping_mbulk,set,get,incr,hset,zadd,zpopmin,mset";
    for more in [&["-c", "10"][..], &["-P", "16"], &["-P", "4", "-d", "20000", "-r", "100"]] {
        let mut bench = command("redis-benchmark", &["-p", &port, "-q", "-n", "400", "-t", tests]);
        let done = bench.args(more).output().unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{out}{err}");
        for text in [&out, &err] {
            assert!(!text.contains("rror") && !text.contains("WARN"), "{out}{err}");
        }
        assert!(out.contains("SET:") && out.contains("MSET (10 keys):"), "{out}");
    }
}

#[test]
fn redis_cli_talks_to_the_door() {
    if !is_there("redis-cli", command("redis-cli", &["--version"])) {
        return;
    }
    let opened = Opened::new();
    let port = opened.handle.address().port().to_string();
    let run = |args: &[&str]| {
        let done = command("redis-cli", &["-p", &port]).args(args).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    };
    assert_eq!(run(&["SET", "k", "v"]), "OK");
    assert_eq!(run(&["-3", "GET", "k"]), "v");
    assert_eq!(run(&["-3", "HSET", "h", "f", "v"]), "1");
    assert_eq!(run(&["--scan", "--pattern", "h*"]), "h");
    assert!(run(&["--bigkeys"]).contains("Biggest string found"));
    assert!(run(&["INFO"]).contains("server_name:holdfast"));
    assert!(run(&["COMMAND", "DOCS", "get"]).contains("summary"));
    assert_eq!(run(&["HOLD.TIPS", "k"]).matches(':').count(), 2);
}

/// Every command that redis-py has a method for, in both protocols.
const SCRIPT: &str = r#"
import sys, redis
for protocol in (2, 3):
    r = redis.Redis(port=int(sys.argv[1]), protocol=protocol, decode_responses=True,
                    client_name="py")
    assert r.ping() and r.echo("x") == "x"
    r.flushall()
    assert r.set("k", "v") and r.get("k") == "v"
    assert r.set("k", "w", nx=True) is None and r.set("k", "w", xx=True, get=True) == "v"
    assert r.set("e", "v", ex=100) and 98 <= r.ttl("e") <= 100 and r.pttl("e") > 98000
    assert r.expire("e", 50) and r.persist("e") and r.ttl("e") == -1
    assert r.pexpire("e", 50000) and r.expireat("e", 4000000000) and r.expiretime("e") == 4000000000
    assert r.getex("e", persist=True) == "v" and r.setex("e", 10, "x") and r.psetex("e", 10000, "x")
    assert r.mset({"a": 1, "b": 2}) and r.mget("a", "b", "none") == ["1", "2", None]
    assert not r.msetnx({"a": 1, "c": 2}) and r.msetnx({"c": 2})
    assert r.setnx("n", 1) and r.getset("n", 2) == "1" and r.getdel("n") == "2"
    assert r.incr("i") == 1 and r.incrby("i", 4) == 5 and r.decr("i") == 4 and r.decrby("i", 2) == 2
    assert r.incrbyfloat("f", 1.5) == 1.5 and r.append("k", "!") == 2 and r.strlen("k") == 2
    assert r.getrange("k", 0, 0) == "w" and r.setrange("k", 1, "??") == 3
    assert r.exists("k", "none") == 1 and r.delete("c") == 1 and r.unlink("b") == 1
    assert r.type("k") == "string" and r.rename("k", "l") and r.renamenx("l", "k")
    assert sorted(r.keys("*")) == sorted(r.scan_iter()) and r.randomkey() and r.dbsize() == len(r.keys())
    assert list(r.scan_iter(match="k*", count=100, _type="string")) == ["k"]
    assert r.hset("h", mapping={"a": 1, "b": 2}) == 2 and r.hget("h", "a") == "1"
    assert r.hmget("h", "a", "c") == ["1", None] and r.hgetall("h") == {"a": "1", "b": "2"}
    assert r.hsetnx("h", "c", 3) and r.hdel("h", "c") == 1 and r.hexists("h", "a") and r.hlen("h") == 2
    assert r.hkeys("h") == ["a", "b"] and r.hvals("h") == ["1", "2"] and r.hstrlen("h", "a") == 1
    assert r.hincrby("h", "a", 2) == 3 and r.hincrbyfloat("h", "a", 0.5) == 3.5
    assert dict(r.hscan_iter("h")) == {"a": "3.5", "b": "2"}
    assert r.zadd("z", {"a": 1, "b": 2, "c": 3}) == 3 and r.zadd("z", {"a": 5}, gt=True, ch=True) == 1
    assert r.zscore("z", "a") == 5.0 and r.zcard("z") == 3 and r.zrank("z", "b") == 0
    assert r.zincrby("z", 1, "b") == 3.0 and r.zcount("z", 0, 10) == 3 and r.zrevrank("z", "a") == 0
    assert r.zrange("z", 0, -1) == ["b", "c", "a"]
    scored = [tuple(p) for p in r.zrange("z", 0, -1, withscores=True)]
    assert scored == [("b", 3.0), ("c", 3.0), ("a", 5.0)], scored
    assert r.zrevrange("z", 0, 0) == ["a"] and r.zrangebyscore("z", 3, 4, start=0, num=1) == ["b"]
    assert r.zrevrangebyscore("z", 9, 4) == ["a"] and r.zmscore("z", ["a", "x"]) == [5.0, None]
    assert dict(r.zscan_iter("z")) == {"a": 5.0, "b": 3.0, "c": 3.0}
    assert r.zrem("z", "c") == 1 and len(r.zpopmin("z", 1)) == 1 and len(r.zpopmax("z", 1)) == 1
    assert r.zadd("l", {"a": 0, "b": 0}) == 2 and r.zrangebylex("l", "[b", "+") == ["b"]
    assert r.zlexcount("l", "-", "+") == 2 and r.zremrangebyrank("l", 0, 0) == 1
    with r.pipeline() as p:
        p.multi(); p.set("t", 1); p.incr("t"); p.get("t")
        assert p.execute() == [True, 2, "2"]
    with r.pipeline() as p:
        p.watch("t"); p.multi(); r.set("t", 9); p.set("t", 3)
        try:
            p.execute(); assert False
        except redis.WatchError:
            pass
    with r.pipeline(transaction=False) as p:
        for n in range(1000):
            p.set("p%d" % n, n)
        assert all(p.execute())
    assert r.info()["server_name"] == "holdfast" and r.info("keyspace")["db0"]["keys"] > 1000
    assert r.config_get("maxclients") and r.config_set("appendonly", "yes") and r.time()
    assert r.command_count() > 100 and "get" in r.command()
    assert r.client_id() and r.client_getname() == "py" and len(r.client_list()) >= 1
    assert r.object("encoding", "i") == "int" and r.memory_usage("i") > 0
    for bad in (lambda: r.lpush("q", 1), lambda: r.get("h"), lambda: r.execute_command("EVAL", "x", 0)):
        try:
            bad(); assert False
        except redis.ResponseError:
            pass
    k = "versions%d" % protocol
    v = r.execute_command("HOLD.PUT", k, "-", "one")
    w = r.execute_command("HOLD.PUT", k, v, "two")
    assert r.execute_command("HOLD.GET", k, v) == "one" and r.get(k) == "two"
    assert r.execute_command("HOLD.TIPS", k) == [w]
    assert r.execute_command("HOLD.PREV", k, w, 5, "VALUES") == [[v, "one"]]
    r.close()
print("done")
"#;

#[test]
fn redis_py_works_unmodified() {
    if !is_there("redis-py", command("python3", &["-c", "import redis"])) {
        return;
    }
    let opened = Opened::new();
    let port = opened.handle.address().port().to_string();
    let done = command("python3", &["-c", SCRIPT, &port]).output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && done.stdout.starts_with(b"done"), "{err}");
}
