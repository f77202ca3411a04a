//! The one table of commands: from it requests are found, and COMMAND and the page are made.

use std::fmt::Write;

use crate::commands::{
    about, client, counters, expiry, hashes, hellos, keys, ranges, scan, sorted_sets, strings,
    transactions, versions,
};
use crate::door::Door;
use crate::fail::Done;
use crate::session::Call;

/// It writes keys.
pub(crate) const WRITE: u16 = 1;
/// It reads keys.
pub(crate) const READ: u16 = 2;
/// Its time does not grow with what is stored.
pub(crate) const FAST: u16 = 4;
/// It is about the door itself.
pub(crate) const ADMIN: u16 = 8;
/// It needs no password.
pub(crate) const NO_AUTH: u16 = 16;
/// It is executed at once between MULTI and EXEC.
pub(crate) const FIRST: u16 = 32;
/// It is refused between MULTI and EXEC.
pub(crate) const LATER: u16 = 64;
/// A RESP2 connection that watches may still give it.
pub(crate) const WATCHING: u16 = 128;
const CONNECTION: u16 = FAST | NO_AUTH | FIRST;

/// One command.
#[derive(Debug)]
pub(crate) struct Command {
    pub name: &'static str,
    /// Arguments with the name; where negative, at least so many.
    pub arity: i32,
    pub flags: u16,
    /// The first key, the last (negative: from the end), and the step between them; 0 for none.
    pub keys: (i32, i32, i32),
    pub group: &'static str,
    /// What follows the name.
    pub arguments: &'static str,
    pub summary: &'static str,
    pub run: fn(&mut Door, &mut Call<'_>) -> Done,
}

impl Command {
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { arguments >= wanted } else { arguments == wanted }
    }
}

macro_rules! commands {
    ($($group:literal { $($name:literal $arity:literal $flags:expr, $keys:expr, $run:path,
        $arguments:literal, $summary:literal;)* })*) => {
        /// All commands, by group.
        pub(crate) static COMMANDS: &[Command] = &[$($(Command {
            name: $name, arity: $arity, flags: $flags, keys: $keys, group: $group,
            arguments: $arguments, summary: $summary, run: $run,
        },)*)*];
    };
}

const NONE: (i32, i32, i32) = (0, 0, 0);
const ONE: (i32, i32, i32) = (1, 1, 1);
const ALL: (i32, i32, i32) = (1, -1, 1);
const PAIRS: (i32, i32, i32) = (1, -1, 2);
const TWO: (i32, i32, i32) = (1, 2, 1);

commands! {
    "string" {
        "get" 2 READ | FAST, ONE, strings::get, "key", "The string of a key.";
        "set" -3 WRITE, ONE, strings::set,
            "key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]",
            "Sets a string.";
        "setnx" 3 WRITE | FAST, ONE, strings::setnx, "key value", "Sets a string if there is no key.";
        "setex" 4 WRITE, ONE, strings::setex, "key seconds value", "Sets a string that ends.";
        "psetex" 4 WRITE, ONE, strings::psetex, "key ms value", "Sets a string that ends.";
        "getset" 3 WRITE | FAST, ONE, strings::getset, "key value", "Sets a string, gives the old.";
        "getdel" 2 WRITE | FAST, ONE, strings::getdel, "key", "Gives a string and deletes it.";
        "getex" -2 WRITE | FAST, ONE, strings::getex,
            "key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]", "Gives a string, sets when it ends.";
        "mget" -2 READ | FAST, ALL, strings::mget, "key ...", "The strings of keys.";
        "mset" -3 WRITE, PAIRS, strings::mset, "key value ...", "Sets strings, all or none.";
        "msetnx" -3 WRITE, PAIRS, strings::msetnx, "key value ...",
            "Sets strings if none of the keys is there.";
        "strlen" 2 READ | FAST, ONE, strings::strlen, "key", "A string's length.";
        "append" 3 WRITE | FAST, ONE, strings::append, "key value", "Adds to a string's end.";
        "getrange" 4 READ, ONE, strings::getrange, "key start end", "A part of a string.";
        "substr" 4 READ, ONE, strings::getrange, "key start end", "As GETRANGE.";
        "setrange" 4 WRITE, ONE, strings::setrange, "key offset value", "Writes into a string.";
        "incr" 2 WRITE | FAST, ONE, counters::incr, "key", "Adds 1.";
        "decr" 2 WRITE | FAST, ONE, counters::decr, "key", "Subtracts 1.";
        "incrby" 3 WRITE | FAST, ONE, counters::incrby, "key integer", "Adds an integer.";
        "decrby" 3 WRITE | FAST, ONE, counters::decrby, "key integer", "Subtracts an integer.";
        "incrbyfloat" 3 WRITE | FAST, ONE, counters::incrbyfloat, "key float", "Adds a decimal.";
    }
    "generic" {
        "del" -2 WRITE, ALL, keys::del, "key ...", "Deletes keys: their next version is a tombstone.";
        "unlink" -2 WRITE | FAST, ALL, keys::del, "key ...", "As DEL.";
        "exists" -2 READ | FAST, ALL, keys::exists, "key ...", "How many of the keys are there.";
        "touch" -2 READ | FAST, ALL, keys::exists, "key ...", "As EXISTS.";
        "type" 2 READ | FAST, ONE, keys::type_of, "key", "What a key is.";
        "rename" 3 WRITE, TWO, keys::rename, "key new", "Gives a key another name.";
        "renamenx" 3 WRITE | FAST, TWO, keys::renamenx, "key new",
            "The same, if the name is free.";
        "keys" 2 READ, NONE, scan::keys, "pattern", "All keys that match.";
        "scan" -2 READ, NONE, scan::scan, "cursor [MATCH pattern] [COUNT n] [TYPE type]",
            "Keys, some at a time: what is there all the time is given exactly once.";
        "randomkey" 1 READ, NONE, keys::randomkey, "", "Some key.";
        "expire" -3 WRITE | FAST, ONE, expiry::expire, "key seconds [NX | XX | GT | LT]",
            "Sets when a key ends.";
        "pexpire" -3 WRITE | FAST, ONE, expiry::pexpire, "key ms [NX | XX | GT | LT]",
            "Sets when a key ends.";
        "expireat" -3 WRITE | FAST, ONE, expiry::expireat, "key unix-s [NX | XX | GT | LT]",
            "Sets when a key ends.";
        "pexpireat" -3 WRITE | FAST, ONE, expiry::pexpireat, "key unix-ms [NX | XX | GT | LT]",
            "Sets when a key ends.";
        "persist" 2 WRITE | FAST, ONE, expiry::persist, "key", "A key ends no more.";
        "ttl" 2 READ | FAST, ONE, expiry::ttl, "key", "Seconds until a key ends.";
        "pttl" 2 READ | FAST, ONE, expiry::pttl, "key", "Milliseconds until a key ends.";
        "expiretime" 2 READ | FAST, ONE, expiry::expiretime, "key", "When a key ends, Unix s.";
        "pexpiretime" 2 READ | FAST, ONE, expiry::pexpiretime, "key", "When a key ends, Unix ms.";
        "object" -2 READ, (2, 2, 1), keys::object, "ENCODING | REFCOUNT | IDLETIME | FREQ key",
            "What Redis would tell of a key's memory.";
        "memory" -2 READ, (2, 2, 1), keys::memory, "USAGE key [SAMPLES n]", "A key's bytes in memory.";
        "wait" 3 FAST, NONE, about::wait, "replicas ms", "0: the door's peer is the only copy.";
    }
    "hash" {
        "hset" -4 WRITE | FAST, ONE, hashes::hset, "key field value ...", "Sets fields.";
        "hmset" -4 WRITE | FAST, ONE, hashes::hmset, "key field value ...", "As HSET, answers OK.";
        "hsetnx" 4 WRITE | FAST, ONE, hashes::hsetnx, "key field value", "Sets a field if it is not there.";
        "hget" 3 READ | FAST, ONE, hashes::hget, "key field", "A field's value.";
        "hmget" -3 READ | FAST, ONE, hashes::hmget, "key field ...", "Fields' values.";
        "hgetall" 2 READ, ONE, hashes::hgetall, "key", "All fields and values.";
        "hkeys" 2 READ, ONE, hashes::hkeys, "key", "All fields.";
        "hvals" 2 READ, ONE, hashes::hvals, "key", "All values.";
        "hlen" 2 READ | FAST, ONE, hashes::hlen, "key", "How many fields there are.";
        "hexists" 3 READ | FAST, ONE, hashes::hexists, "key field", "Whether a field is there.";
        "hstrlen" 3 READ | FAST, ONE, hashes::hstrlen, "key field", "A value's length.";
        "hdel" -3 WRITE | FAST, ONE, hashes::hdel, "key field ...", "Deletes fields.";
        "hincrby" 4 WRITE | FAST, ONE, hashes::hincrby, "key field integer", "Adds to a field.";
        "hincrbyfloat" 4 WRITE | FAST, ONE, hashes::hincrbyfloat, "key field float", "Adds to a field.";
        "hscan" -3 READ, ONE, scan::hscan, "key cursor [MATCH pattern] [COUNT n]",
            "Fields and values; all at once.";
    }
    "sorted-set" {
        "zadd" -4 WRITE | FAST, ONE, sorted_sets::zadd,
            "key [NX | XX] [GT | LT] [CH] [INCR] score member ...", "Sets members' scores.";
        "zincrby" 4 WRITE | FAST, ONE, sorted_sets::zincrby, "key score member", "Adds to a score.";
        "zrem" -3 WRITE | FAST, ONE, sorted_sets::zrem, "key member ...", "Removes members.";
        "zscore" 3 READ | FAST, ONE, sorted_sets::zscore, "key member", "A member's score.";
        "zmscore" -3 READ | FAST, ONE, sorted_sets::zmscore, "key member ...", "Members' scores.";
        "zcard" 2 READ | FAST, ONE, sorted_sets::zcard, "key", "How many members there are.";
        "zrank" -3 READ | FAST, ONE, sorted_sets::zrank, "key member [WITHSCORE]",
            "How many members are before one.";
        "zrevrank" -3 READ | FAST, ONE, sorted_sets::zrevrank, "key member [WITHSCORE]",
            "How many members are behind one.";
        "zcount" 4 READ | FAST, ONE, ranges::zcount, "key min max", "How many scores are between.";
        "zlexcount" 4 READ | FAST, ONE, ranges::zlexcount, "key min max",
            "How many members are between, of one score.";
        "zrange" -4 READ, ONE, ranges::zrange,
            "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
            "Members by rank, score or bytes.";
        "zrevrange" -4 READ, ONE, ranges::zrevrange, "key start stop [WITHSCORES]",
            "The same by rank, greatest first.";
        "zrangebyscore" -4 READ, ONE, ranges::zrangebyscore,
            "key min max [WITHSCORES] [LIMIT offset count]", "Members by score.";
        "zrevrangebyscore" -4 READ, ONE, ranges::zrevrangebyscore,
            "key max min [WITHSCORES] [LIMIT offset count]", "The same, greatest first.";
        "zrangebylex" -4 READ, ONE, ranges::zrangebylex, "key min max [LIMIT offset count]",
            "Members by bytes, of one score.";
        "zrevrangebylex" -4 READ, ONE, ranges::zrevrangebylex, "key max min [LIMIT offset count]",
            "The same, greatest first.";
        "zpopmin" -2 WRITE | FAST, ONE, sorted_sets::zpopmin, "key [count]", "Removes the least.";
        "zpopmax" -2 WRITE | FAST, ONE, sorted_sets::zpopmax, "key [count]", "Removes the greatest.";
        "zremrangebyrank" 4 WRITE, ONE, ranges::zremrangebyrank, "key start stop",
            "Removes members by rank.";
        "zremrangebyscore" 4 WRITE, ONE, ranges::zremrangebyscore, "key min max",
            "Removes members by score.";
        "zremrangebylex" 4 WRITE, ONE, ranges::zremrangebylex, "key min max",
            "Removes members by bytes, of one score.";
        "zscan" -3 READ, ONE, scan::zscan, "key cursor [MATCH pattern] [COUNT n]",
            "Members and scores; all at once.";
    }
    "versions" {
        "hold.put" -4 WRITE | LATER, ONE, versions::put, "key base value [COMPRESS]",
            "A version on a base, or on `-`: a root.";
        "hold.get" 3 READ | LATER, ONE, versions::get, "key version", "A version's value.";
        "hold.prev" -3 READ | LATER, ONE, versions::prev, "key version [m [VALUES]]",
            "A version's bases, or up to m predecessors.";
        "hold.merge" -5 WRITE | LATER, ONE, versions::merge, "key v1 v2 value | FUNC name",
            "A version with two bases.";
        "hold.log" 4 READ | LATER, ONE, versions::log, "key version m", "Up to m versions from one on.";
        "hold.tips" 2 READ | LATER, ONE, versions::tips, "key",
            "Versions without a successor, the one that counts first.";
        "hold.watch" 2 LATER | WATCHING, NONE, versions::watch, "prefix",
            "Tells of each version of keys that begin so.";
        "hold.unwatch" 1 LATER | WATCHING, NONE, versions::unwatch, "", "Ends all of that.";
    }
    "transactions" {
        "multi" 1 FAST | FIRST, NONE, transactions::multi, "", "What follows waits for EXEC.";
        "exec" 1 FIRST, NONE, transactions::exec, "", "Executes what waits: in one commit.";
        "discard" 1 FAST | FIRST, NONE, transactions::discard, "", "Forgets what waits.";
        "watch" -2 FAST | FIRST, ALL, transactions::watch, "key ...",
            "EXEC does nothing if one of the keys was written since.";
        "unwatch" 1 FAST, NONE, transactions::unwatch, "", "Ends that.";
    }
    "connection" {
        "ping" -1 FAST | WATCHING, NONE, hellos::ping, "[message]", "PONG, or the message.";
        "echo" 2 FAST, NONE, hellos::echo, "message", "The message.";
        "hello" -1 FAST | NO_AUTH, NONE, hellos::hello,
            "[2 | 3 [AUTH user password] [SETNAME name]]", "Chooses RESP2 or RESP3.";
        "auth" -2 FAST | NO_AUTH, NONE, hellos::auth, "[default] password", "Gives the password.";
        "select" 2 FAST, NONE, hellos::select, "0", "There is one database.";
        "quit" -1 CONNECTION | WATCHING, NONE, hellos::quit, "", "Ends the connection.";
        "reset" 1 CONNECTION | WATCHING, NONE, hellos::reset, "", "As a new connection.";
        "client" -2 ADMIN, NONE, client::client,
            "ID | INFO | LIST | GETNAME | SETNAME name | SETINFO what text | NO-EVICT | NO-TOUCH",
            "About connections.";
    }
    "server" {
        "dbsize" 1 READ | FAST, NONE, keys::dbsize, "", "How many keys there are.";
        "flushdb" -1 WRITE | LATER, NONE, keys::flush, "[ASYNC | SYNC]", "Deletes all keys, where allowed.";
        "flushall" -1 WRITE | LATER, NONE, keys::flush, "[ASYNC | SYNC]", "As FLUSHDB.";
        "time" 1 FAST, NONE, about::time, "", "The calendar's time.";
        "info" -1 ADMIN, NONE, about::info, "[section ...]", "What the door is and does.";
        "config" -2 ADMIN, NONE, about::config, "GET pattern ... | SET name value | RESETSTAT",
            "What tools ask for of Redis's settings.";
        "command" -1 ADMIN, NONE, about::command,
            "[COUNT | DOCS [name ...] | INFO [name ...] | LIST | GETKEYS command ...]",
            "About commands.";
        "lastsave" 1 FAST, NONE, about::lastsave, "", "Now: all that was answered is in the log.";
    }
}

/// Commands of Redis's that are not here, and why.
const ABSENT: &[(&str, &[&str])] = &[
    (
        "there are no channels here; HOLD.WATCH tells of versions",
        &[
            "subscribe",
            "unsubscribe",
            "psubscribe",
            "punsubscribe",
            "publish",
            "pubsub",
            "ssubscribe",
            "sunsubscribe",
            "spublish",
        ],
    ),
    (
        "there are no scripts here; MULTI and EXEC make several commands one",
        &["eval", "evalsha", "eval_ro", "evalsha_ro", "script", "function", "fcall", "fcall_ro"],
    ),
    (
        "there are no lists here, but strings, hashes and sorted sets",
        &[
            "lpush",
            "rpush",
            "lpop",
            "rpop",
            "llen",
            "lrange",
            "lindex",
            "lset",
            "lrem",
            "ltrim",
            "linsert",
            "lpushx",
            "rpushx",
            "rpoplpush",
            "lmove",
            "lmpop",
            "lpos",
            "blpop",
            "brpop",
            "blmove",
            "brpoplpush",
            "blmpop",
            "sort",
            "sort_ro",
        ],
    ),
    (
        "there are no sets here, but sorted sets",
        &[
            "sadd",
            "srem",
            "smembers",
            "sismember",
            "smismember",
            "scard",
            "spop",
            "srandmember",
            "sinter",
            "sunion",
            "sdiff",
            "smove",
            "sscan",
            "sintercard",
            "sinterstore",
            "sunionstore",
            "sdiffstore",
        ],
    ),
    (
        "there are no streams here; HOLD.LOG reads a key's history",
        &["xadd", "xread", "xrange", "xrevrange", "xlen", "xdel", "xgroup", "xreadgroup", "xack"],
    ),
    (
        "there are no bit operations and sketches here",
        &["setbit", "getbit", "bitcount", "bitop", "bitpos", "bitfield", "pfadd", "pfcount"],
    ),
    (
        "a key's versions are replicated by its peer, not by this protocol",
        &["replicaof", "slaveof", "sync", "psync", "cluster", "migrate", "failover"],
    ),
    (
        "what was answered is in the peer's log; `hold peer snapshot` copies it",
        &["save", "bgsave", "bgrewriteaof", "dump", "restore"],
    ),
];

/// Why a command of Redis's is not here.
pub(crate) fn absent(name: &[u8]) -> Option<&'static str> {
    let lists = |names: &&[&str]| names.iter().any(|n| n.as_bytes().eq_ignore_ascii_case(name));
    ABSENT.iter().find(|(_, names)| lists(names)).map(|(why, _)| *why)
}

/// Places of the table; four times as many as commands.
const PLACES: usize = 512;

/// Commands by name.
#[derive(Debug)]
pub(crate) struct Table {
    places: Box<[Option<&'static Command>; PLACES]>,
}

impl Table {
    pub(crate) fn new() -> Self {
        let mut places = Box::new([None; PLACES]);
        for command in COMMANDS {
            let mut at = place(command.name.as_bytes());
            while places[at].is_some() {
                at = (at + 1) % PLACES;
            }
            places[at] = Some(command);
        }
        Self { places }
    }

    /// The command of a name, in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut at = place(name);
        while let Some(command) = self.places[at] {
            if command.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(command);
            }
            at = (at + 1) % PLACES;
        }
        None
    }
}

/// Where to look for a name first.
fn place(name: &[u8]) -> usize {
    let mut hash = 0x811c_9dc5_u32;
    for byte in name.iter().take(32) {
        hash = (hash ^ u32::from(byte | 0x20)).wrapping_mul(0x0100_0193);
    }
    (hash ^ hash >> 15) as usize % PLACES
}

/// The tables of the documentation's page, made from the commands.
pub fn page() -> String {
    let mut page = String::new();
    let mut group = "";
    for command in COMMANDS {
        if command.group != group {
            group = command.group;
            let _ = write!(page, "\n### {group}\n\n| command | |\n|---|---|\n");
        }
        let arguments = command.arguments.replace('|', "\\|");
        let name = format!("{} {arguments}", command.name.to_uppercase());
        let _ = writeln!(page, "| `{}` | {} |", name.trim_end(), command.summary);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_no_other() {
        let table = Table::new();
        for command in COMMANDS {
            for name in [command.name.to_owned(), command.name.to_uppercase()] {
                let found = table.find(name.as_bytes()).expect("a command");
                assert_eq!(found.name, command.name);
            }
            assert_eq!(absent(command.name.as_bytes()), None, "{}", command.name);
            let (first, ..) = command.keys;
            assert!(first as u32 <= command.arity.unsigned_abs(), "{}", command.name);
        }
        assert!(table.find(b"").is_none());
        assert!(table.find(&[b'x'; 5000]).is_none());
        assert!(absent(b"EVAL").is_some());
    }

    #[test]
    fn arguments_are_counted_with_the_name() {
        let table = Table::new();
        let get = table.find(b"get").expect("a command");
        assert!(get.takes(2) && !get.takes(1) && !get.takes(3));
        let del = table.find(b"del").expect("a command");
        assert!(del.takes(2) && del.takes(9) && !del.takes(1));
    }
}
