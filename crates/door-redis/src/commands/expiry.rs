//! When keys end.

use crate::door::{Door, New};
use crate::fail::{Done, Fail, NOT_INTEGER};
use crate::session::Call;
use crate::value::NEVER;

/// How an end is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Millis,
    AtSeconds,
    AtMillis,
}

impl Unit {
    /// The unit of an option of SET.
    pub(crate) fn of(word: &[u8]) -> Option<Self> {
        let units = [
            ("ex", Self::Seconds),
            ("px", Self::Millis),
            ("exat", Self::AtSeconds),
            ("pxat", Self::AtMillis),
        ];
        let same = |(name, _): &&(&str, Self)| word.eq_ignore_ascii_case(name.as_bytes());
        units.iter().find(same).map(|(_, unit)| *unit)
    }

    /// The end in Unix ms; positive, as SET wants it.
    pub(crate) fn end(self, now: u64, value: i64, name: &str) -> Result<u64, Fail> {
        let end = self.moment(now, value).filter(|_| value > 0).ok_or_else(|| invalid(name))?;
        u64::try_from(end).map_err(|_| invalid(name))
    }

    fn moment(self, now: u64, value: i64) -> Option<i64> {
        let millis = match self {
            Self::Seconds | Self::AtSeconds => value.checked_mul(1000)?,
            Self::Millis | Self::AtMillis => value,
        };
        match self {
            Self::Seconds | Self::Millis => millis.checked_add(i64::try_from(now).ok()?),
            Self::AtSeconds | Self::AtMillis => Some(millis),
        }
    }
}

fn invalid(name: &str) -> Fail {
    Fail::Long(format!("ERR invalid expire time in '{name}' command"))
}

/// EXPIRE.
pub(crate) fn expire(door: &mut Door, call: &mut Call<'_>) -> Done {
    end(door, call, Unit::Seconds, "expire")
}

/// PEXPIRE.
pub(crate) fn pexpire(door: &mut Door, call: &mut Call<'_>) -> Done {
    end(door, call, Unit::Millis, "pexpire")
}

/// EXPIREAT.
pub(crate) fn expireat(door: &mut Door, call: &mut Call<'_>) -> Done {
    end(door, call, Unit::AtSeconds, "expireat")
}

/// PEXPIREAT.
pub(crate) fn pexpireat(door: &mut Door, call: &mut Call<'_>) -> Done {
    end(door, call, Unit::AtMillis, "pexpireat")
}

fn end(door: &mut Door, call: &mut Call<'_>, unit: Unit, name: &str) -> Done {
    let value = call.integer(2)?;
    let moment = unit.moment(door.now, value).ok_or_else(|| invalid(name))?;
    let (mut absent, mut present, mut later, mut sooner) = (false, false, false, false);
    for at in 3..call.len() {
        match call.arg(at).to_ascii_lowercase().as_slice() {
            b"nx" => absent = true,
            b"xx" => present = true,
            b"gt" => later = true,
            b"lt" => sooner = true,
            other => {
                let word = String::from_utf8_lossy(other).into_owned();
                return Err(Fail::Long(format!("ERR Unsupported option {word}")));
            }
        }
    }
    if absent && (present || later || sooner) {
        return Err(Fail::Say(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if later && sooner {
        return Err(Fail::Say("ERR GT and LT options at the same time are not compatible"));
    }
    let Some(index) = door.lookup(call.arg(1))? else {
        call.out.integer(0);
        return Ok(());
    };
    // A key without an end ends later than all that have one.
    let old = door.slots.slot(index).state.expires;
    let new = u64::try_from(moment).unwrap_or(0);
    let refused = (absent && old != NEVER)
        || (present && old == NEVER)
        || (later && new <= old)
        || (sooner && new >= old);
    if !refused {
        set(door, index, new)?;
    }
    call.out.integer(i64::from(!refused));
    Ok(())
}

/// Sets when a key ends; where that is over, deletes it.
pub(crate) fn set(door: &mut Door, index: u32, expires: u64) -> Result<(), Fail> {
    if expires <= door.now {
        door.write(index, New::Gone, NEVER)?;
    } else if expires != door.slots.slot(index).state.expires {
        door.renew(index, expires)?;
    }
    Ok(())
}

/// PERSIST.
pub(crate) fn persist(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.lookup(call.arg(1))?;
    let ends = found.filter(|index| door.slots.slot(*index).state.expires != NEVER);
    if let Some(index) = ends {
        door.renew(index, NEVER)?;
    }
    call.out.integer(i64::from(ends.is_some()));
    Ok(())
}

/// TTL.
pub(crate) fn ttl(door: &mut Door, call: &mut Call<'_>) -> Done {
    left(door, call, |end, now| (end - now + 500) / 1000)
}

/// PTTL.
pub(crate) fn pttl(door: &mut Door, call: &mut Call<'_>) -> Done {
    left(door, call, |end, now| end - now)
}

/// EXPIRETIME.
pub(crate) fn expiretime(door: &mut Door, call: &mut Call<'_>) -> Done {
    left(door, call, |end, _| (end + 500) / 1000)
}

/// PEXPIRETIME.
pub(crate) fn pexpiretime(door: &mut Door, call: &mut Call<'_>) -> Done {
    left(door, call, |end, _| end)
}

fn left(door: &mut Door, call: &mut Call<'_>, tell: fn(u64, u64) -> u64) -> Done {
    let answer = match door.lookup(call.arg(1))? {
        None => -2,
        Some(index) => match door.slots.slot(index).state.expires {
            NEVER => -1,
            end => i64::try_from(tell(end, door.now)).map_err(|_| NOT_INTEGER)?,
        },
    };
    call.out.integer(answer);
    Ok(())
}
