//! Numbers in strings.

use bytes::Bytes;

use crate::commands::strings::change;
use crate::door::Door;
use crate::fail::{Done, Fail, NOT_FLOAT, NOT_INTEGER, OVERFLOW};
use crate::number::{self, FloatError};
use crate::session::Call;

/// INCR.
pub(crate) fn incr(door: &mut Door, call: &mut Call<'_>) -> Done {
    add(door, call, 1)
}

/// DECR.
pub(crate) fn decr(door: &mut Door, call: &mut Call<'_>) -> Done {
    add(door, call, -1)
}

/// INCRBY.
pub(crate) fn incrby(door: &mut Door, call: &mut Call<'_>) -> Done {
    let by = call.integer(2)?;
    add(door, call, by)
}

/// DECRBY.
pub(crate) fn decrby(door: &mut Door, call: &mut Call<'_>) -> Done {
    let by = call.integer(2)?.checked_neg().ok_or(Fail::Say("ERR decrement would overflow"))?;
    add(door, call, by)
}

fn add(door: &mut Door, call: &mut Call<'_>, by: i64) -> Done {
    let found = door.text(call.arg(1))?;
    let old = match found {
        Some(index) => number::integer(door.bytes(index)).ok_or(NOT_INTEGER)?,
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(OVERFLOW)?;
    let mut text = Vec::with_capacity(20);
    number::push_integer(&mut text, sum);
    change(door, call, found, Bytes::from(text))?;
    call.out.integer(sum);
    Ok(())
}

/// INCRBYFLOAT.
pub(crate) fn incrbyfloat(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.text(call.arg(1))?;
    let old = found.map_or(&b"0"[..], |index| door.bytes(index));
    let sum = sum(old, call.arg(2))?;
    call.out.bulk(sum.as_bytes());
    change(door, call, found, Bytes::from(sum))
}

/// The sum of two decimals.
pub(crate) fn sum(a: &[u8], b: &[u8]) -> Result<String, Fail> {
    number::add(a, b).map_err(|error| match error {
        FloatError::NotANumber => NOT_FLOAT,
        FloatError::Infinite => Fail::Say("ERR increment would produce NaN or Infinity"),
    })
}
