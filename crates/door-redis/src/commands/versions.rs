//! HOLD.*: a key's versions as they are.
//!
//! Reads commit first what the turn wrote before them, so that the engine knows every version it is
//! asked for.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use bytes::Bytes;
use crypto::RecordId;

use crate::batch::Undo;
use crate::commands::strings::type_name;
use crate::door::{Door, KEY_BYTES_MAX};
use crate::fail::{Done, Fail, KEY_TOO_LONG, NOT_KEPT, SYNTAX, TOO_LONG};
use crate::fields;
use crate::keyspace::Stored;
use crate::reply::Output;
use crate::session::{Call, Watcher};
use crate::slots::Content;
use crate::value::{self, NEVER, TEXT_BYTES_MAX, VALUE_BYTES_MAX, Value};
use version::{ObjectKey, ValueKind, VersionId};

/// Versions of one HOLD.PREV or HOLD.LOG.
const VERSIONS_MAX: usize = 4_096;
/// Bytes of values that one HOLD.PREV answers.
const VALUES_BYTES_MAX: usize = 64 << 20;
/// Bytes of values that one HOLD.PREV reads for what versions say of their bases.
const READ_BYTES_MAX: usize = 512 << 20;
/// Prefixes that one connection watches.
const PREFIXES_MAX: usize = 64;
/// Prefixes that all connections watch.
const WATCHERS_MAX: usize = 4_096;

const NOT_MERGED: Fail =
    Fail::Say("ERR only versions that are strings, or hashes, are merged by a function");
const NOT_HERE: Fail = Fail::Say("ERR no such version of this key here");

fn version(text: &[u8]) -> Result<VersionId, Fail> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or(Fail::Say(
        "ERR a version is written h:l:n, as SET's answer in HOLD.TIPS: 64 hex digits, a number, \
         32 hex digits",
    ))
}

/// The key's object, with all that was written in the log.
fn settled(door: &mut Door, key: &[u8]) -> Result<(u32, ObjectKey), Fail> {
    door.lean_on_all();
    if !door.commit() {
        // Why, whoever wrote is told.
        return Err(NOT_KEPT);
    }
    let index = door.slot_for(key)?;
    Ok((index, door.slots.slot(index).object))
}

fn stored(door: &mut Door, object: &ObjectKey, id: &VersionId) -> Result<Stored, Fail> {
    let stored = door.keyspace.get(object, &id.h)?.ok_or(NOT_HERE)?;
    if stored.id.l != id.l {
        return Err(NOT_HERE);
    }
    Ok(stored)
}

/// Puts a version, which counts from then on if it is the longest.
fn make(
    door: &mut Door,
    index: u32,
    bases: &[VersionId],
    value: Value,
    expires: u64,
    compress: bool,
) -> Result<VersionId, Fail> {
    let bytes = match &value {
        Value::Text(bytes) => value::text(bytes, expires),
        Value::Hash(fields) => value::hash(fields, expires).into(),
        Value::Gone | Value::Sorted(_) | Value::Foreign => return Err(NOT_MERGED),
    };
    let is_long = matches!(&value, Value::Text(bytes) if bytes.len() > TEXT_BYTES_MAX);
    if is_long || bytes.len() > VALUE_BYTES_MAX {
        return Err(TOO_LONG);
    }
    let id = door.put(index, bases, ValueKind::Bytes, &bytes, compress)?.id;
    let tip = door.slots.slot(index).state.tip;
    if tip.is_none_or(|tip| (id.l, id.h) > (tip.l, tip.h)) {
        let undo: Undo = door.adopt(index, id, value, expires);
        door.batch.undo.push(undo);
    }
    Ok(id)
}

/// HOLD.PUT.
pub(crate) fn put(door: &mut Door, call: &mut Call<'_>) -> Done {
    let compress = match call.len() {
        4 => false,
        5 if call.is(4, "compress") => true,
        _ => return Err(SYNTAX),
    };
    let (index, object) = settled(door, call.arg(1))?;
    let base = match call.arg(2) {
        b"-" => None,
        text => Some(stored(door, &object, &version(text)?)?.id),
    };
    let value = Value::Text(call.args.bytes(3));
    let id = make(door, index, base.as_slice(), value, NEVER, compress)?;
    call.out.bulk(id.to_string().as_bytes());
    Ok(())
}

/// HOLD.GET.
pub(crate) fn get(door: &mut Door, call: &mut Call<'_>) -> Done {
    let id = version(call.arg(2))?;
    let (_, object) = settled(door, call.arg(1))?;
    let stored = stored(door, &object, &id)?;
    tell(call.out, &stored)
}

fn tell(out: &mut Output, stored: &Stored) -> Done {
    match value::decode(stored.kind, &stored.value).0 {
        Value::Gone => out.null(),
        Value::Text(bytes) => out.shared(&bytes),
        Value::Hash(bytes) => {
            out.map(fields::count(&bytes));
            for (field, value) in fields::iterate(&bytes) {
                out.bulk(field);
                out.bulk(value);
            }
        }
        Value::Sorted(_) => {
            return Err(Fail::Say(
                "ERR this version made a sorted set: its members are objects of their own",
            ));
        }
        Value::Foreign => out.shared(&stored.value),
    }
    Ok(())
}

/// HOLD.PREV.
pub(crate) fn prev(door: &mut Door, call: &mut Call<'_>) -> Done {
    let id = version(call.arg(2))?;
    let values = match call.len() {
        3 | 4 => false,
        5 if call.is(4, "values") => true,
        _ => return Err(SYNTAX),
    };
    let m = if call.len() > 3 { call.count(3)? } else { 0 };
    if m > VERSIONS_MAX {
        return Err(Fail::Say("ERR at most 4096 versions at once"));
    }
    let (_, object) = settled(door, call.arg(1))?;
    let bytes_max = if values { VALUES_BYTES_MAX } else { READ_BYTES_MAX };
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut keep = |mut stored: Stored| {
        bytes += stored.value.len();
        if !values {
            stored.value = Bytes::new();
        }
        found.push(stored);
        bytes <= bytes_max
    };
    let of = stored(door, &object, &id)?;
    if call.len() == 3 {
        for base in of.bases.iter() {
            keep(door.keyspace.get(&object, &base)?.ok_or(NOT_HERE)?);
        }
    } else {
        door.keyspace.previous(&object, &id.h, m, &mut keep)?;
    }
    if bytes > bytes_max {
        return Err(too_long(bytes_max));
    }
    call.out.array(found.len());
    for stored in &found {
        if values {
            call.out.array(2);
        }
        call.out.bulk(stored.id.to_string().as_bytes());
        if values {
            tell(call.out, stored)?;
        }
    }
    Ok(())
}

fn too_long(bytes_max: usize) -> Fail {
    let mib = bytes_max >> 20;
    Fail::Long(format!("ERR the values are more than {mib} MiB: ask for fewer"))
}

/// HOLD.MERGE.
pub(crate) fn merge(door: &mut Door, call: &mut Call<'_>) -> Done {
    let function = match call.len() {
        5 => None,
        6 if call.is(4, "func") => Some(call.arg(5)),
        _ => return Err(SYNTAX),
    };
    let (a, b) = (version(call.arg(2))?, version(call.arg(3))?);
    let (index, object) = settled(door, call.arg(1))?;
    let (a, b) = (stored(door, &object, &a)?.id, stored(door, &object, &b)?.id);
    if a == b {
        return Err(Fail::Say("ERR a version is not merged with itself"));
    }
    let (value, expires) = match function {
        None => (Value::Text(call.args.bytes(4)), NEVER),
        Some(name) => {
            let merged = door.keyspace.merge(&object, &a.h, &b.h, name)?;
            value::decode(ValueKind::Bytes, &merged)
        }
    };
    let id = make(door, index, &[a, b], value, expires, false)?;
    call.out.bulk(id.to_string().as_bytes());
    Ok(())
}

/// HOLD.LOG.
pub(crate) fn log(door: &mut Door, call: &mut Call<'_>) -> Done {
    let (id, m) = (version(call.arg(2))?, call.count(3)?);
    if m > VERSIONS_MAX {
        return Err(Fail::Say("ERR at most 4096 versions at once"));
    }
    let (_, object) = settled(door, call.arg(1))?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut ahead: BinaryHeap<(u64, Reverse<RecordId>)> = BinaryHeap::new();
    let mut seen = HashSet::from([id.h]);
    let mut read = |door: &mut Door, h: &RecordId| {
        let stored = door.keyspace.get(&object, h)?.ok_or(NOT_HERE)?;
        bytes += stored.value.len();
        match bytes <= READ_BYTES_MAX {
            true => Ok(stored),
            false => Err(too_long(READ_BYTES_MAX)),
        }
    };
    stored(door, &object, &id)?;
    ahead.push((id.l, Reverse(id.h)));
    while found.len() < m
        && let Some((_, Reverse(h))) = ahead.pop()
    {
        let mut stored = read(door, &h)?;
        for base in stored.bases.iter() {
            if seen.insert(base) {
                let l = read(door, &base)?.id.l;
                ahead.push((l, Reverse(base)));
            }
        }
        let (value, _) = value::decode(stored.kind, &stored.value);
        let length = stored.value.len();
        stored.value = Bytes::new();
        found.push((stored, value_name(&value), length));
    }
    call.out.array(found.len());
    for (stored, name, length) in found {
        call.out.array(4);
        call.out.bulk(stored.id.to_string().as_bytes());
        call.out.array(stored.bases.len());
        for base in stored.bases.iter() {
            call.out.bulk(base.to_string().as_bytes());
        }
        call.out.bulk(name.as_bytes());
        call.out.count(length);
    }
    Ok(())
}

fn value_name(value: &Value) -> &'static str {
    match value {
        Value::Gone => "tombstone",
        Value::Text(_) => "string",
        Value::Hash(_) => "hash",
        Value::Sorted(_) => "zset",
        Value::Foreign => type_name(&Content::Foreign).unwrap_or("foreign"),
    }
}

/// HOLD.TIPS.
pub(crate) fn tips(door: &mut Door, call: &mut Call<'_>) -> Done {
    let (_, object) = settled(door, call.arg(1))?;
    let tips = door.keyspace.tips(&object)?;
    call.out.array(tips.len());
    for tip in tips {
        call.out.bulk(tip.to_string().as_bytes());
    }
    Ok(())
}

/// HOLD.WATCH.
pub(crate) fn watch(door: &mut Door, call: &mut Call<'_>) -> Done {
    if call.session.watching >= PREFIXES_MAX || door.watchers.len() >= WATCHERS_MAX {
        return Err(Fail::Say("ERR at most 64 prefixes a connection, 4096 of all"));
    }
    if call.arg(1).len() > KEY_BYTES_MAX {
        return Err(KEY_TOO_LONG);
    }
    let watcher = Watcher { client: call.session.id, prefix: call.args.bytes(1) };
    let is_same =
        |other: &Watcher| other.client == watcher.client && other.prefix == watcher.prefix;
    if door.watchers.iter().any(is_same) {
        call.out.ok();
        return Ok(());
    }
    door.watchers.push(watcher);
    call.session.watching += 1;
    call.out.ok();
    Ok(())
}

/// HOLD.UNWATCH.
pub(crate) fn unwatch(door: &mut Door, call: &mut Call<'_>) -> Done {
    let id = call.session.id;
    door.watchers.retain(|watcher| watcher.client != id);
    call.session.watching = 0;
    call.out.ok();
    Ok(())
}
