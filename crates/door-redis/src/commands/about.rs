//! The door about itself: INFO, CONFIG, COMMAND, TIME.

use std::fmt::Write;

use crate::commands::client;
use crate::commands::hellos::REDIS_VERSION;
use crate::door::Door;
use crate::fail::{Done, Fail};
use crate::glob;
use crate::options::Compress;
use crate::reply::Output;
use crate::session::Call;
use crate::table::{ADMIN, COMMANDS, Command, FAST, NO_AUTH, READ, WRITE};

/// TIME.
pub(crate) fn time(door: &mut Door, call: &mut Call<'_>) -> Done {
    call.out.array(2);
    call.out.bulk((door.now / 1000).to_string().as_bytes());
    call.out.bulk((door.now % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

/// LASTSAVE.
pub(crate) fn lastsave(door: &mut Door, call: &mut Call<'_>) -> Done {
    call.out.integer(i64::try_from(door.now / 1000).unwrap_or(i64::MAX));
    Ok(())
}

/// WAIT.
pub(crate) fn wait(_: &mut Door, call: &mut Call<'_>) -> Done {
    call.integer(1)?;
    let timeout = call.integer(2)?;
    if timeout < 0 {
        return Err(Fail::Say("ERR timeout is negative"));
    }
    call.out.integer(0);
    Ok(())
}

/// INFO.
pub(crate) fn info(door: &mut Door, call: &mut Call<'_>) -> Done {
    let wanted: Vec<Vec<u8>> = call.args.from(1).map(<[u8]>::to_ascii_lowercase).collect();
    let everything = [&b"all"[..], b"everything", b"default"];
    let mut text = String::new();
    for (section, lines) in sections(door) {
        let lower = section.to_ascii_lowercase();
        let named =
            |each: &Vec<u8>| each == lower.as_bytes() || everything.contains(&each.as_slice());
        if wanted.is_empty() || wanted.iter().any(named) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {section}\r\n");
            for (name, value) in lines {
                let _ = write!(text, "{name}:{value}\r\n");
            }
        }
    }
    call.out.verbatim(&text);
    Ok(())
}

type Lines = Vec<(&'static str, String)>;

/// Bytes of this process's memory that are resident, by `/proc/self/status` (proc(5)); 0 where that cannot be read.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

fn sections(door: &Door) -> Vec<(&'static str, Lines)> {
    let counters = &door.counters;
    let up = door.now.saturating_sub(door.started) / 1000;
    let of = |number: u64| number.to_string();
    let server = vec![
        ("redis_version", REDIS_VERSION.to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("server_name", "holdfast".to_owned()),
        ("holdfast_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("holdfast_objects", "open: peers that hold them see keys and values".to_owned()),
        ("os", std::env::consts::OS.to_owned()),
        ("arch_bits", usize::BITS.to_string()),
        ("multiplexing_api", "mio".to_owned()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", door.options.listen.port().to_string()),
        ("uptime_in_seconds", of(up)),
        ("uptime_in_days", of(up / 86_400)),
    ];
    let clients = vec![
        ("connected_clients", of(door.clients.len() as u64)),
        ("maxclients", door.options.limits.clients.to_string()),
        ("watching_prefixes", of(door.watchers.len() as u64)),
    ];
    let memory = vec![
        ("used_memory", of(door.slots.cached() as u64)),
        ("used_memory_rss", of(resident_bytes())),
        ("maxmemory", door.options.cache_bytes.to_string()),
        ("maxmemory_policy", "allkeys-lru".to_owned()),
    ];
    let compress = match door.options.compress {
        Compress::Never => "never",
        Compress::Hashes => "hashes",
        Compress::All => "all",
    };
    let persistence = vec![
        ("loading", of(0)),
        ("aof_enabled", of(1)),
        ("aof_last_write_status", status(door)),
        ("rdb_last_bgsave_status", "ok".to_owned()),
        ("holdfast_compress", compress.to_owned()),
        ("holdfast_commits", of(counters.commits)),
        ("holdfast_failed_commits", of(counters.failed_commits)),
        ("holdfast_versions", of(counters.versions)),
    ];
    let stats = vec![
        ("total_connections_received", of(counters.accepted)),
        ("total_commands_processed", of(counters.commands)),
        ("total_net_input_bytes", of(counters.received_bytes)),
        ("total_net_output_bytes", of(counters.sent_bytes)),
        ("rejected_connections", of(counters.refused)),
        ("total_error_replies", of(counters.errors)),
        ("expired_keys", of(counters.expired)),
        ("keyspace_hits", of(counters.hits)),
        ("keyspace_misses", of(counters.misses)),
        ("holdfast_value_reads", of(counters.reads)),
        ("holdfast_cut_off", of(counters.cut_off)),
        ("holdfast_turns", of(counters.turns)),
    ];
    let replication = vec![("role", "master".to_owned()), ("connected_slaves", of(0))];
    let mut keyspace = Vec::new();
    if door.slots.live() > 0 {
        let (keys, expires) = (door.slots.live(), door.slots.ending());
        keyspace.push(("db0", format!("keys={keys},expires={expires},avg_ttl=0")));
    }
    vec![
        ("Server", server),
        ("Clients", clients),
        ("Memory", memory),
        ("Persistence", persistence),
        ("Stats", stats),
        ("Replication", replication),
        ("Cluster", vec![("cluster_enabled", of(0))]),
        ("Keyspace", keyspace),
    ]
}

fn status(door: &Door) -> String {
    if door.failed_at.is_some() { "err".to_owned() } else { "ok".to_owned() }
}

/// Settings of Redis's that tools ask for, as far as they mean something here.
fn settings(door: &Door) -> Lines {
    let limits = &door.options.limits;
    vec![
        ("appendfsync", "everysec".to_owned()),
        ("appendonly", "yes".to_owned()),
        ("bind", door.options.listen.ip().to_string()),
        ("databases", "1".to_owned()),
        ("maxclients", limits.clients.to_string()),
        ("maxmemory", door.options.cache_bytes.to_string()),
        ("maxmemory-policy", "allkeys-lru".to_owned()),
        ("port", door.options.listen.port().to_string()),
        ("proto-max-bulk-len", limits.argument_bytes.to_string()),
        ("save", String::new()),
        ("timeout", "0".to_owned()),
    ]
}

/// Settings that may be set and then mean nothing here: tools set them before they begin.
const IGNORED: &[&str] =
    &["appendfsync", "appendonly", "latency-tracking", "notify-keyspace-events", "save", "timeout"];

/// CONFIG.
pub(crate) fn config(door: &mut Door, call: &mut Call<'_>) -> Done {
    let word = call.arg(1).to_ascii_lowercase();
    match (word.as_slice(), call.len()) {
        (b"get", 3..) => {
            let patterns: Vec<Vec<u8>> =
                call.args.from(2).map(<[u8]>::to_ascii_lowercase).collect();
            let fits = |name: &str| patterns.iter().any(|p| glob::matches(p, name.as_bytes()));
            let found: Lines = settings(door).into_iter().filter(|(name, _)| fits(name)).collect();
            call.out.map(found.len());
            for (name, value) in found {
                call.out.bulk(name.as_bytes());
                call.out.bulk(value.as_bytes());
            }
        }
        (b"set", 4..) if call.len().is_multiple_of(2) => {
            for name in call.args.from(2).step_by(2) {
                if !IGNORED.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name)) {
                    let name = String::from_utf8_lossy(name).into_owned();
                    return Err(Fail::Long(format!(
                        "ERR CONFIG SET failed (possibly related to argument '{name}') - the door \
                         is set up where it is started, see its page"
                    )));
                }
            }
            call.out.ok();
        }
        (b"resetstat", 2) => {
            let counters = &mut door.counters;
            *counters = crate::counters::Counters {
                clients: counters.clients,
                keys: counters.keys,
                cached_bytes: counters.cached_bytes,
                ..Default::default()
            };
            call.out.ok();
        }
        (b"get" | b"set" | b"resetstat", _) => {
            let word = String::from_utf8_lossy(&word).into_owned();
            return Err(crate::run::arity(&format!("config|{word}")));
        }
        _ => return Err(client::unknown(call, "CONFIG")),
    }
    Ok(())
}

/// COMMAND.
pub(crate) fn command(door: &mut Door, call: &mut Call<'_>) -> Done {
    let word = call.arg(1).to_ascii_lowercase();
    match (word.as_slice(), call.len()) {
        (_, 1) => {
            call.out.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| describe(call.out, command));
        }
        (b"count", 2) => call.out.count(COMMANDS.len()),
        (b"list", 2) => {
            call.out.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| call.out.bulk(command.name.as_bytes()));
        }
        (b"info", _) => {
            if call.len() == 2 {
                call.out.array(COMMANDS.len());
                COMMANDS.iter().for_each(|command| describe(call.out, command));
                return Ok(());
            }
            call.out.array(call.len() - 2);
            for name in call.args.from(2) {
                match door.table.find(name) {
                    Some(command) => describe(call.out, command),
                    None => call.out.null_array(),
                }
            }
        }
        (b"docs", _) => {
            let named = call.args.from(2).filter_map(|name| door.table.find(name));
            let found: Vec<&Command> =
                if call.len() == 2 { COMMANDS.iter().collect() } else { named.collect() };
            call.out.map(found.len());
            found.into_iter().for_each(|command| document(call.out, command));
        }
        (b"getkeys", 3..) => get_keys(door, call)?,
        _ => return Err(client::unknown(call, "COMMAND")),
    }
    Ok(())
}

fn describe(out: &mut Output, command: &Command) {
    let flags = [
        (WRITE, "write"),
        (READ, "readonly"),
        (FAST, "fast"),
        (ADMIN, "admin"),
        (NO_AUTH, "no_auth"),
    ];
    let flags: Vec<&str> =
        flags.iter().filter(|(bit, _)| command.flags & bit != 0).map(|(_, name)| *name).collect();
    out.array(10);
    out.bulk(command.name.as_bytes());
    out.integer(i64::from(command.arity));
    out.set(flags.len());
    flags.iter().for_each(|flag| out.simple(flag));
    let (first, last, step) = command.keys;
    [first, last, step].iter().for_each(|number| out.integer(i64::from(*number)));
    out.set(1);
    out.simple(&format!("@{}", command.group));
    for _ in 0..3 {
        out.array(0);
    }
}

fn document(out: &mut Output, command: &Command) {
    out.bulk(command.name.as_bytes());
    out.map(4);
    let pairs = [
        ("summary", command.summary),
        ("since", "1.0.0"),
        ("group", command.group),
        ("syntax", command.arguments),
    ];
    for (name, text) in pairs {
        out.bulk(name.as_bytes());
        out.bulk(text.as_bytes());
    }
}

fn get_keys(door: &Door, call: &mut Call<'_>) -> Done {
    let command = door.table.find(call.arg(2)).ok_or(Fail::Say("ERR Invalid command specified"))?;
    let count = call.len() - 2;
    if !command.takes(count) {
        return Err(Fail::Say("ERR Invalid number of arguments specified for command"));
    }
    let (first, last, step) = command.keys;
    if step <= 0 {
        return Err(Fail::Say("ERR The command has no key arguments"));
    }
    let last = if last < 0 { count as i32 + last } else { last };
    let keys: Vec<&[u8]> =
        (first..=last).step_by(step as usize).map(|at| call.arg(at as usize + 2)).collect();
    call.out.array(keys.len());
    keys.into_iter().for_each(|key| call.out.bulk(key));
    Ok(())
}
