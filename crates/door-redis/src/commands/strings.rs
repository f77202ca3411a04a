//! Strings.

use bytes::{Bytes, BytesMut};

use crate::commands::{expiry, range};
use crate::door::{Door, New};
use crate::fail::{Done, Fail, SYNTAX, TOO_LONG, WRONG_TYPE};
use crate::session::Call;
use crate::slots::Content;
use crate::value::{NEVER, TEXT_BYTES_MAX};

/// GET.
pub(crate) fn get(door: &mut Door, call: &mut Call<'_>) -> Done {
    match door.text(call.arg(1))? {
        Some(index) => call.out.shared(door.bytes(index)),
        None => call.out.null(),
    }
    Ok(())
}

/// MGET: what is no string is null.
pub(crate) fn mget(door: &mut Door, call: &mut Call<'_>) -> Done {
    call.out.array(call.len() - 1);
    for key in call.args.from(1) {
        call.out.fits()?;
        match door.text(key) {
            Ok(Some(index)) => call.out.shared(door.bytes(index)),
            Ok(None) => call.out.null(),
            Err(fail) if fail.is_wrong_type() => call.out.null(),
            Err(fail) => return Err(fail),
        }
    }
    Ok(())
}

/// What SET was told beside key and value.
#[derive(Default)]
struct Choices {
    absent: bool,
    present: bool,
    get: bool,
    keep: bool,
    expires: Option<u64>,
}

impl Choices {
    fn read(door: &Door, call: &Call<'_>) -> Result<Self, Fail> {
        let mut choices = Self::default();
        let mut at = 3;
        while at < call.len() {
            let plain = !choices.keep && choices.expires.is_none();
            if call.is(at, "nx") && !choices.present {
                choices.absent = true;
            } else if call.is(at, "xx") && !choices.absent {
                choices.present = true;
            } else if call.is(at, "get") {
                choices.get = true;
            } else if call.is(at, "keepttl") && plain {
                choices.keep = true;
            } else if let Some(unit) = expiry::Unit::of(call.arg(at)).filter(|_| plain) {
                if at + 1 >= call.len() {
                    return Err(SYNTAX);
                }
                at += 1;
                choices.expires = Some(unit.end(door.now, call.integer(at)?, "set")?);
            } else {
                return Err(SYNTAX);
            }
            at += 1;
        }
        Ok(choices)
    }
}

/// SET.
pub(crate) fn set(door: &mut Door, call: &mut Call<'_>) -> Done {
    let key = call.arg(1);
    if call.len() == 3 {
        let index = door.slot_for(key)?;
        door.write(index, New::Text(call.arg(2)), NEVER)?;
        call.out.ok();
        return Ok(());
    }
    let choices = Choices::read(door, call)?;
    let found = match (choices.get, choices.keep) {
        (true, _) => door.text(key)?,
        (_, true) => door.lookup(key)?,
        _ => door.present(key)?,
    };
    if choices.get {
        match found {
            Some(index) => call.out.shared(door.bytes(index)),
            None => call.out.null(),
        }
    }
    if (choices.absent && found.is_some()) || (choices.present && found.is_none()) {
        if !choices.get {
            call.out.null();
        }
        return Ok(());
    }
    let kept = found.filter(|_| choices.keep).map(|index| door.slots.slot(index).state.expires);
    let expires = choices.expires.or(kept).unwrap_or(NEVER);
    let index = door.slot_for(key)?;
    door.write(index, New::Text(call.arg(2)), expires)?;
    if !choices.get {
        call.out.ok();
    }
    Ok(())
}

/// SETNX.
pub(crate) fn setnx(door: &mut Door, call: &mut Call<'_>) -> Done {
    let free = door.lookup(call.arg(1))?.is_none();
    if free {
        let index = door.slot_for(call.arg(1))?;
        door.write(index, New::Text(call.arg(2)), NEVER)?;
    }
    call.out.integer(i64::from(free));
    Ok(())
}

/// SETEX.
pub(crate) fn setex(door: &mut Door, call: &mut Call<'_>) -> Done {
    ending(door, call, expiry::Unit::Seconds, "setex")
}

/// PSETEX.
pub(crate) fn psetex(door: &mut Door, call: &mut Call<'_>) -> Done {
    ending(door, call, expiry::Unit::Millis, "psetex")
}

fn ending(door: &mut Door, call: &mut Call<'_>, unit: expiry::Unit, name: &str) -> Done {
    let expires = unit.end(door.now, call.integer(2)?, name)?;
    let index = door.slot_for(call.arg(1))?;
    door.write(index, New::Text(call.arg(3)), expires)?;
    call.out.ok();
    Ok(())
}

/// GETSET.
pub(crate) fn getset(door: &mut Door, call: &mut Call<'_>) -> Done {
    get(door, call)?;
    let index = door.slot_for(call.arg(1))?;
    door.write(index, New::Text(call.arg(2)), NEVER)?;
    Ok(())
}

/// GETDEL.
pub(crate) fn getdel(door: &mut Door, call: &mut Call<'_>) -> Done {
    get(door, call)?;
    if let Some(index) = door.text(call.arg(1))? {
        door.write(index, New::Gone, NEVER)?;
    }
    Ok(())
}

/// GETEX.
pub(crate) fn getex(door: &mut Door, call: &mut Call<'_>) -> Done {
    let expires = match call.len() {
        2 => None,
        3 if call.is(2, "persist") => Some(NEVER),
        4 => {
            let unit = expiry::Unit::of(call.arg(2)).ok_or(SYNTAX)?;
            Some(unit.end(door.now, call.integer(3)?, "getex")?)
        }
        _ => return Err(SYNTAX),
    };
    get(door, call)?;
    if let (Some(index), Some(expires)) = (door.text(call.arg(1))?, expires) {
        expiry::set(door, index, expires)?;
    }
    Ok(())
}

/// MSET.
pub(crate) fn mset(door: &mut Door, call: &mut Call<'_>) -> Done {
    pairs(call, "mset")?;
    write_pairs(door, call)?;
    call.out.ok();
    Ok(())
}

/// MSETNX.
pub(crate) fn msetnx(door: &mut Door, call: &mut Call<'_>) -> Done {
    pairs(call, "msetnx")?;
    for at in (1..call.len()).step_by(2) {
        if door.lookup(call.arg(at))?.is_some() {
            call.out.integer(0);
            return Ok(());
        }
    }
    write_pairs(door, call)?;
    call.out.integer(1);
    Ok(())
}

fn pairs(call: &Call<'_>, name: &'static str) -> Done {
    if call.len().is_multiple_of(2) { Err(crate::run::arity(name)) } else { Ok(()) }
}

fn write_pairs(door: &mut Door, call: &Call<'_>) -> Done {
    for at in (1..call.len()).step_by(2) {
        let index = door.slot_for(call.arg(at))?;
        door.write(index, New::Text(call.arg(at + 1)), NEVER)?;
    }
    Ok(())
}

/// STRLEN.
pub(crate) fn strlen(door: &mut Door, call: &mut Call<'_>) -> Done {
    let length = door.text(call.arg(1))?.map_or(0, |index| door.bytes(index).len());
    call.out.count(length);
    Ok(())
}

/// APPEND.
pub(crate) fn append(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.text(call.arg(1))?;
    let old = found.map_or(&[][..], |index| door.bytes(index));
    let more = call.arg(2);
    if old.len() + more.len() > TEXT_BYTES_MAX {
        return Err(TOO_LONG);
    }
    let mut new = BytesMut::with_capacity(old.len() + more.len());
    new.extend_from_slice(old);
    new.extend_from_slice(more);
    call.out.count(new.len());
    change(door, call, found, new.freeze())
}

/// Writes a string, and keeps when it ends.
pub(crate) fn change(door: &mut Door, call: &Call<'_>, found: Option<u32>, new: Bytes) -> Done {
    let (index, expires) = match found {
        Some(index) => (index, door.slots.slot(index).state.expires),
        None => (door.slot_for(call.arg(1))?, NEVER),
    };
    door.write(index, New::Text(&new), expires)?;
    Ok(())
}

/// GETRANGE.
pub(crate) fn getrange(door: &mut Door, call: &mut Call<'_>) -> Done {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let found = door.text(call.arg(1))?;
    let bytes = found.map_or(&[][..], |index| door.bytes(index));
    // An end before the beginning is the beginning, unless both count from the end and cross.
    let crosses = start < 0 && end < 0 && start > end;
    let before = end < 0 && end.unsigned_abs() > bytes.len() as u64;
    let end = if before && !crosses { 0 } else { end };
    match range(start, end, bytes.len()) {
        Some((first, last)) => call.out.bulk(&bytes[first..=last]),
        None => call.out.bulk(b""),
    }
    Ok(())
}

/// SETRANGE.
pub(crate) fn setrange(door: &mut Door, call: &mut Call<'_>) -> Done {
    let offset = call.integer(2)?;
    let offset = usize::try_from(offset).map_err(|_| Fail::Say("ERR offset is out of range"))?;
    let part = call.arg(3);
    let found = door.text(call.arg(1))?;
    let old = found.map_or(&[][..], |index| door.bytes(index));
    if part.is_empty() {
        call.out.count(old.len());
        return Ok(());
    }
    let end = offset.saturating_add(part.len());
    if end > TEXT_BYTES_MAX {
        return Err(TOO_LONG);
    }
    let mut new = BytesMut::with_capacity(old.len().max(end));
    new.extend_from_slice(old);
    new.resize(old.len().max(end), 0);
    new[offset..end].copy_from_slice(part);
    call.out.count(new.len());
    change(door, call, found, new.freeze())
}

/// What TYPE says of a slot's content.
pub(crate) fn type_name(content: &Content) -> Result<&'static str, Fail> {
    match content {
        Content::Text(_) => Ok("string"),
        Content::Hash(_) => Ok("hash"),
        Content::Sorted(_) => Ok("zset"),
        Content::Foreign => Ok("foreign"),
        Content::Absent | Content::Unknown => Err(WRONG_TYPE),
    }
}
