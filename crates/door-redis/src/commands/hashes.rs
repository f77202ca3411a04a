//! Hashes. Each change is a version of the whole hash.

use bytes::Bytes;

use crate::commands::counters;
use crate::door::{Door, New};
use crate::fail::{Done, Fail};
use crate::fields;
use crate::number;
use crate::session::Call;
use crate::value::{NEVER, VALUE_BYTES_MAX};

fn encoded(door: &Door, found: Option<u32>) -> &[u8] {
    found.map_or(&[][..], |index| door.bytes(index))
}

/// Sets fields; gives how many are new.
fn write(
    door: &mut Door,
    key: &[u8],
    found: Option<u32>,
    changes: &[(&[u8], &[u8])],
) -> Result<usize, Fail> {
    let (fields, new) = fields::set(encoded(door, found), changes);
    let (index, expires) = match found {
        Some(index) => (index, door.slots.slot(index).state.expires),
        None => (door.slot_for(key)?, NEVER),
    };
    if fields.len() > VALUE_BYTES_MAX {
        return Err(Fail::Say("ERR a hash has at most 2 MiB here with all its fields"));
    }
    door.write(index, New::Hash(&fields), expires)?;
    Ok(new)
}

fn set(door: &mut Door, call: &Call<'_>, name: &str) -> Result<usize, Fail> {
    if !call.len().is_multiple_of(2) {
        return Err(crate::run::arity(name));
    }
    let pair = |at: usize| (call.arg(at), call.arg(at + 1));
    let changes: Vec<(&[u8], &[u8])> = (2..call.len()).step_by(2).map(pair).collect();
    let found = door.hash(call.arg(1))?;
    write(door, call.arg(1), found, &changes)
}

/// HSET.
pub(crate) fn hset(door: &mut Door, call: &mut Call<'_>) -> Done {
    let new = set(door, call, "hset")?;
    call.out.count(new);
    Ok(())
}

/// HMSET.
pub(crate) fn hmset(door: &mut Door, call: &mut Call<'_>) -> Done {
    set(door, call, "hmset")?;
    call.out.ok();
    Ok(())
}

/// HSETNX.
pub(crate) fn hsetnx(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.hash(call.arg(1))?;
    let free = fields::get(encoded(door, found), call.arg(2)).is_none();
    if free {
        write(door, call.arg(1), found, &[(call.arg(2), call.arg(3))])?;
    }
    call.out.integer(i64::from(free));
    Ok(())
}

/// HGET.
pub(crate) fn hget(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.hash(call.arg(1))?;
    match fields::get(encoded(door, found), call.arg(2)) {
        Some(value) => call.out.bulk(value),
        None => call.out.null(),
    }
    Ok(())
}

/// HMGET.
pub(crate) fn hmget(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.hash(call.arg(1))?;
    let bytes = encoded(door, found);
    let values = fields::Values::of(bytes, call.args.from(2));
    call.out.array(call.len() - 2);
    for field in call.args.from(2) {
        call.out.fits()?;
        match values.get(field) {
            Some(value) => call.out.bulk(value),
            None => call.out.null(),
        }
    }
    Ok(())
}

/// HGETALL.
pub(crate) fn hgetall(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.hash(call.arg(1))?;
    let bytes = encoded(door, found);
    call.out.map(fields::count(bytes));
    for (field, value) in fields::iterate(bytes) {
        call.out.bulk(field);
        call.out.bulk(value);
    }
    Ok(())
}

/// HKEYS.
pub(crate) fn hkeys(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.hash(call.arg(1))?;
    let bytes = encoded(door, found);
    call.out.array(fields::count(bytes));
    fields::iterate(bytes).for_each(|(field, _)| call.out.bulk(field));
    Ok(())
}

/// HVALS.
pub(crate) fn hvals(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.hash(call.arg(1))?;
    let bytes = encoded(door, found);
    call.out.array(fields::count(bytes));
    fields::iterate(bytes).for_each(|(_, value)| call.out.bulk(value));
    Ok(())
}

/// HLEN.
pub(crate) fn hlen(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.hash(call.arg(1))?;
    call.out.count(fields::count(encoded(door, found)));
    Ok(())
}

/// HEXISTS.
pub(crate) fn hexists(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.hash(call.arg(1))?;
    let there = fields::get(encoded(door, found), call.arg(2)).is_some();
    call.out.integer(i64::from(there));
    Ok(())
}

/// HSTRLEN.
pub(crate) fn hstrlen(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.hash(call.arg(1))?;
    let length = fields::get(encoded(door, found), call.arg(2)).map_or(0, <[u8]>::len);
    call.out.count(length);
    Ok(())
}

/// HDEL: a hash without fields is no key.
pub(crate) fn hdel(door: &mut Door, call: &mut Call<'_>) -> Done {
    let Some(index) = door.hash(call.arg(1))? else {
        call.out.integer(0);
        return Ok(());
    };
    let (left, removed) = fields::remove(door.bytes(index), call.args.from(2));
    if removed > 0 {
        let expires = door.slots.slot(index).state.expires;
        if left.is_empty() {
            door.write(index, New::Gone, NEVER)?;
        } else {
            door.write(index, New::Hash(&left), expires)?;
        }
    }
    call.out.count(removed);
    Ok(())
}

/// HINCRBY.
pub(crate) fn hincrby(door: &mut Door, call: &mut Call<'_>) -> Done {
    let by = call.integer(3)?;
    let found = door.hash(call.arg(1))?;
    let old = match fields::get(encoded(door, found), call.arg(2)) {
        Some(value) => {
            number::integer(value).ok_or(Fail::Say("ERR hash value is not an integer"))?
        }
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(crate::fail::OVERFLOW)?;
    write(door, call.arg(1), found, &[(call.arg(2), sum.to_string().as_bytes())])?;
    call.out.integer(sum);
    Ok(())
}

/// HINCRBYFLOAT.
pub(crate) fn hincrbyfloat(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.hash(call.arg(1))?;
    let old = fields::get(encoded(door, found), call.arg(2)).unwrap_or(b"0");
    if number::double(old).is_none() {
        return Err(Fail::Say("ERR hash value is not a float"));
    }
    let sum = Bytes::from(counters::sum(old, call.arg(3))?);
    write(door, call.arg(1), found, &[(call.arg(2), &sum)])?;
    call.out.bulk(&sum);
    Ok(())
}
