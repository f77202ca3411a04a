//! Keys of any type.

use bytes::Bytes;

use crate::commands::strings::type_name;
use crate::door::{Door, New};
use crate::fail::{Done, Fail, NO_SUCH_KEY, SYNTAX};
use crate::number;
use crate::session::Call;
use crate::slots::{Content, Slot};
use crate::value::NEVER;

/// Slots looked at for a key of RANDOMKEY before all are.
const RANDOM_TRIES: u32 = 100;
/// Tombstones of FLUSHALL in one commit.
const FLUSH_STEP: usize = 8_192;
/// Members of a sorted set that RENAME writes anew in one commit.
const RENAME_MEMBERS_MAX: usize = 25_000;
/// What a slot takes beside its key and value, about.
const SLOT_BYTES: usize = size_of::<Slot>() + 16;
/// What a member takes beside its bytes, about.
const MEMBER_BYTES: usize = 200;
/// Strings up to this length are `embstr` in Redis.
const EMBEDDED_BYTES: usize = 44;

/// DEL.
pub(crate) fn del(door: &mut Door, call: &mut Call<'_>) -> Done {
    let mut deleted = 0;
    for key in call.args.from(1) {
        if let Some(index) = door.present(key)? {
            door.write(index, New::Gone, NEVER)?;
            deleted += 1;
        }
    }
    call.out.integer(deleted);
    Ok(())
}

/// EXISTS: a key that is named twice counts twice.
pub(crate) fn exists(door: &mut Door, call: &mut Call<'_>) -> Done {
    let mut found = 0;
    for key in call.args.from(1) {
        found += i64::from(door.lookup(key)?.is_some());
    }
    call.out.integer(found);
    Ok(())
}

/// TYPE.
pub(crate) fn type_of(door: &mut Door, call: &mut Call<'_>) -> Done {
    match door.lookup(call.arg(1))? {
        Some(index) => call.out.simple(type_name(&door.slots.slot(index).state.content)?),
        None => call.out.simple("none"),
    }
    Ok(())
}

/// RENAME.
pub(crate) fn rename(door: &mut Door, call: &mut Call<'_>) -> Done {
    let from = door.lookup(call.arg(1))?.ok_or(NO_SUCH_KEY)?;
    if call.arg(1) != call.arg(2) {
        rename_to(door, from, call.arg(2))?;
    }
    call.out.ok();
    Ok(())
}

/// RENAMENX.
pub(crate) fn renamenx(door: &mut Door, call: &mut Call<'_>) -> Done {
    let from = door.lookup(call.arg(1))?.ok_or(NO_SUCH_KEY)?;
    let free = door.lookup(call.arg(2))?.is_none();
    if free {
        rename_to(door, from, call.arg(2))?;
    }
    call.out.integer(i64::from(free));
    Ok(())
}

/// The new key goes on with the value, the old one ends with a tombstone. The history stays where
/// it is.
fn rename_to(door: &mut Door, from: u32, key: &[u8]) -> Done {
    let expires = door.slots.slot(from).state.expires;
    let old_key = door.slots.slot(from).key.clone();
    match &door.slots.slot(from).state.content {
        Content::Text(_) => {
            door.text(&old_key)?;
            let bytes = door.bytes(from).clone();
            let to = door.slot_for(key)?;
            door.write(to, New::Text(&bytes), expires)?;
        }
        Content::Hash(_) => {
            door.hash(&old_key)?;
            let fields = door.bytes(from).clone();
            let to = door.slot_for(key)?;
            door.write(to, New::Hash(&fields), expires)?;
        }
        Content::Sorted(sorted) => {
            if sorted.len() > RENAME_MEMBERS_MAX {
                return Err(Fail::Say(
                    "ERR a sorted set of more than 25000 members cannot be renamed: each member \
                     is an object of its own; copy it with ZSCAN and ZADD",
                ));
            }
            let members: Vec<(Bytes, f64)> = sorted
                .order()
                .range(0, sorted.len())
                .map(|ranked| (ranked.member.clone(), ranked.score))
                .collect();
            let to = door.slot_for(key)?;
            door.write(to, New::Sorted, expires)?;
            for (member, score) in members {
                door.set_member(to, &member, Some(score))?;
            }
        }
        Content::Absent | Content::Unknown | Content::Foreign => {
            return Err(Fail::Say(
                "ERR this key was written by another program: RENAME does not \
                know its value",
            ));
        }
    }
    door.write(from, New::Gone, NEVER)?;
    Ok(())
}

/// RANDOMKEY.
pub(crate) fn randomkey(door: &mut Door, call: &mut Call<'_>) -> Done {
    door.lean_on_all();
    let mut unread = None;
    for attempt in 0..RANDOM_TRIES.saturating_add(door.slots.end()) {
        let index = attempt.checked_sub(RANDOM_TRIES).or_else(|| door.slots.any());
        let Some(index) = index else { break };
        match door.see(index) {
            Ok(None) => {}
            Ok(Some(index)) => {
                call.out.bulk(&door.slots.slot(index).key);
                return Ok(());
            }
            // Another may be read; that there is none is said only where it is so.
            Err(fail) => unread = Some(fail),
        }
    }
    if let Some(fail) = unread {
        return Err(fail);
    }
    call.out.null();
    Ok(())
}

/// DBSIZE.
pub(crate) fn dbsize(door: &mut Door, call: &mut Call<'_>) -> Done {
    door.lean_on_all();
    call.out.count(door.slots.live());
    Ok(())
}

/// FLUSHALL and FLUSHDB. Many keys are deleted in several commits, so that a peer whose disk fills
/// up meanwhile says how far it came.
pub(crate) fn flush(door: &mut Door, call: &mut Call<'_>) -> Done {
    if call.len() > 2 || (call.len() == 2 && !call.is(1, "async") && !call.is(1, "sync")) {
        return Err(SYNTAX);
    }
    if !door.options.flush {
        return Err(Fail::Say(
            "ERR this door does not delete all keys at once: it was opened without leave for \
             FLUSHALL and FLUSHDB",
        ));
    }
    let mut written = 0;
    for index in 0..door.slots.end() {
        if matches!(door.slots.slot(index).state.content, Content::Absent) {
            continue;
        }
        door.write(index, New::Gone, NEVER)?;
        written += 1;
        if written % FLUSH_STEP == 0 && !door.commit() {
            return Err(Fail::Long(format!(
                "MISCONF the deletions were not all kept: {} keys are left; mend the cause, then \
                 try again",
                door.slots.live()
            )));
        }
    }
    call.out.ok();
    Ok(())
}

/// OBJECT.
pub(crate) fn object(door: &mut Door, call: &mut Call<'_>) -> Done {
    let word = call.arg(1).to_ascii_lowercase();
    if call.len() != 3 {
        return Err(crate::run::arity("object"));
    }
    let Some(index) = door.lookup(call.arg(2))? else {
        call.out.null();
        return Ok(());
    };
    match word.as_slice() {
        b"encoding" => {
            if matches!(door.slots.slot(index).state.content, Content::Text(None)) {
                door.text(call.arg(2))?;
            }
            let encoding = match &door.slots.slot(index).state.content {
                Content::Text(Some(bytes)) if number::integer(bytes).is_some() => "int",
                Content::Text(Some(bytes)) if bytes.len() <= EMBEDDED_BYTES => "embstr",
                Content::Hash(_) => "listpack",
                Content::Sorted(_) => "skiplist",
                _ => "raw",
            };
            call.out.bulk(encoding.as_bytes());
        }
        b"refcount" => call.out.integer(1),
        b"idletime" | b"freq" => call.out.integer(0),
        _ => return Err(crate::commands::client::unknown(call, "OBJECT")),
    }
    Ok(())
}

/// MEMORY USAGE.
pub(crate) fn memory(door: &mut Door, call: &mut Call<'_>) -> Done {
    if !call.is(1, "usage") {
        return Err(crate::commands::client::unknown(call, "MEMORY"));
    }
    if call.len() < 3 {
        return Err(crate::run::arity("memory|usage"));
    }
    let Some(index) = door.lookup(call.arg(2))? else {
        call.out.null();
        return Ok(());
    };
    let slot = door.slots.slot(index);
    let value = match &slot.state.content {
        Content::Text(Some(bytes)) | Content::Hash(Some(bytes)) => bytes.len(),
        Content::Sorted(sorted) => sorted.len() * MEMBER_BYTES,
        _ => 0,
    };
    call.out.count(SLOT_BYTES + slot.key.len() + value);
    Ok(())
}
