//! KEYS and the scans.
//!
//! The cursor of SCAN is the index of a slot. Slots do not move, so a key that is there all the
//! time is given exactly once; one that comes or goes meanwhile may be given. HSCAN and ZSCAN give
//! all at once with cursor 0, as Redis does with small ones: both are bounded.

use crate::commands::strings::type_name;
use crate::door::Door;
use crate::fail::{Done, Fail, SYNTAX};
use crate::fields;
use crate::glob::{self, PATTERN_BYTES_MAX};
use crate::number;
use crate::session::Call;

/// Keys of one SCAN without COUNT.
const COUNT: usize = 10;
/// Slots that one SCAN looks at, at most.
const COUNT_MAX: usize = 100_000;

const PATTERN_TOO_LONG: Fail = Fail::Say("ERR a pattern has at most 1024 bytes");

/// What a scan was told.
struct Choices<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    wanted: Option<Vec<u8>>,
}

impl<'a> Choices<'a> {
    fn read(call: &Call<'a>, first: usize, typed: bool) -> Result<Self, Fail> {
        let mut choices = Self { pattern: None, count: COUNT, wanted: None };
        let mut at = first;
        while at < call.len() {
            if at + 1 == call.len() {
                return Err(SYNTAX);
            }
            if call.is(at, "match") {
                if call.arg(at + 1).len() > PATTERN_BYTES_MAX {
                    return Err(PATTERN_TOO_LONG);
                }
                choices.pattern = Some(call.arg(at + 1)).filter(|pattern| *pattern != b"*");
            } else if call.is(at, "count") {
                choices.count = call.count(at + 1)?;
                if choices.count == 0 {
                    return Err(SYNTAX);
                }
            } else if call.is(at, "type") && typed {
                choices.wanted = Some(call.arg(at + 1).to_ascii_lowercase());
            } else {
                return Err(SYNTAX);
            }
            at += 2;
        }
        Ok(choices)
    }

    fn matches(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

fn cursor(call: &Call<'_>, at: usize) -> Result<u64, Fail> {
    let cursor = number::integer(call.arg(at)).and_then(|cursor| u64::try_from(cursor).ok());
    cursor.ok_or(Fail::Say("ERR invalid cursor"))
}

/// SCAN.
pub(crate) fn scan(door: &mut Door, call: &mut Call<'_>) -> Done {
    let cursor = cursor(call, 1)?;
    let choices = Choices::read(call, 2, true)?;
    door.lean_on_all();
    let end = door.slots.end();
    let mut index = u32::try_from(cursor).unwrap_or(end);
    let last = index.saturating_add(choices.count.min(COUNT_MAX) as u32).min(end);
    let mut found = Vec::new();
    while index < last {
        if choices.matches(&door.slots.slot(index).key) && is(door, index, &choices)? {
            found.push(index);
        }
        index += 1;
    }
    let next = if index >= end { 0 } else { index };
    call.out.array(2);
    call.out.bulk(next.to_string().as_bytes());
    call.out.array(found.len());
    tell(door, call, &found)
}

/// Answers with keys.
fn tell(door: &Door, call: &mut Call<'_>, found: &[u32]) -> Done {
    for index in found {
        call.out.fits()?;
        call.out.bulk(&door.slots.slot(*index).key);
    }
    Ok(())
}

/// Whether the key is there, and of the wanted type.
fn is(door: &mut Door, index: u32, choices: &Choices<'_>) -> Result<bool, Fail> {
    if !door.is_present(index)? {
        return Ok(false);
    }
    let Some(wanted) = &choices.wanted else { return Ok(true) };
    // Of what type one is that cannot be read nobody knows.
    let name = type_name(&door.slots.slot(index).state.content).ok();
    Ok(name.is_some_and(|name| name.as_bytes() == wanted.as_slice()))
}

/// KEYS.
pub(crate) fn keys(door: &mut Door, call: &mut Call<'_>) -> Done {
    door.lean_on_all();
    let pattern = call.arg(1);
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(PATTERN_TOO_LONG);
    }
    let mut found = Vec::new();
    for index in 0..door.slots.end() {
        let fits = pattern == b"*" || glob::matches(pattern, &door.slots.slot(index).key);
        if fits && door.is_present(index)? {
            found.push(index);
        }
    }
    call.out.array(found.len());
    tell(door, call, &found)
}

/// HSCAN.
pub(crate) fn hscan(door: &mut Door, call: &mut Call<'_>) -> Done {
    cursor(call, 2)?;
    let choices = Choices::read(call, 3, false)?;
    let found = door.hash(call.arg(1))?;
    let bytes = found.map_or(&[][..], |index| door.bytes(index));
    let fits = || fields::iterate(bytes).filter(|(field, _)| choices.matches(field));
    call.out.array(2);
    call.out.bulk(b"0");
    call.out.array(fits().count() * 2);
    for (field, value) in fits() {
        call.out.bulk(field);
        call.out.bulk(value);
    }
    Ok(())
}

/// ZSCAN.
pub(crate) fn zscan(door: &mut Door, call: &mut Call<'_>) -> Done {
    let from = usize::try_from(cursor(call, 2)?).unwrap_or(usize::MAX);
    let choices = Choices::read(call, 3, false)?;
    let Some(sorted) = door.sorted(call.arg(1))?.and_then(|index| door.set_of(index)) else {
        call.out.array(2);
        call.out.bulk(b"0");
        call.out.array(0);
        return Ok(());
    };
    // Members come and go; only all at once is each one there given.
    let all = sorted.order().range(if from == 0 { 0 } else { usize::MAX }, sorted.len());
    let fits = all.filter(|ranked| choices.matches(&ranked.member));
    call.out.array(2);
    call.out.bulk(b"0");
    call.out.array(fits.clone().count() * 2);
    for ranked in fits {
        call.out.fits()?;
        call.out.bulk(&ranked.member);
        call.out.bulk(number::text(ranked.score).as_bytes());
    }
    Ok(())
}
