//! Sorted sets. Each member is an object, its score that object's newest version.

use bytes::Bytes;

use crate::door::{Door, New};
use crate::fail::{Done, Fail, NOT_FLOAT, SYNTAX};
use crate::number;
use crate::session::Call;
use crate::value::NEVER;

/// Members that one command removes: each leaves a version, and all are in one commit.
const REMOVED_MAX: usize = 50_000;

/// What ZADD was told.
#[derive(Clone, Copy, Default)]
struct Choices {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
    changed: bool,
    increment: bool,
}

impl Choices {
    /// The choices, and where the scores begin.
    fn read(call: &Call<'_>) -> Result<(Self, usize), Fail> {
        let mut choices = Self::default();
        let mut at = 2;
        while at < call.len() {
            match call.arg(at).to_ascii_lowercase().as_slice() {
                b"nx" => choices.absent = true,
                b"xx" => choices.present = true,
                b"gt" => choices.greater = true,
                b"lt" => choices.less = true,
                b"ch" => choices.changed = true,
                b"incr" => choices.increment = true,
                _ => break,
            }
            at += 1;
        }
        let rest = call.len().saturating_sub(at);
        if rest == 0 || !rest.is_multiple_of(2) {
            return Err(SYNTAX);
        }
        if choices.absent && choices.present {
            return Err(Fail::Say("ERR XX and NX options at the same time are not compatible"));
        }
        if (choices.greater && (choices.absent || choices.less)) || (choices.less && choices.absent)
        {
            return Err(Fail::Say(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if choices.increment && rest > 2 {
            return Err(Fail::Say("ERR INCR option supports a single increment-element pair"));
        }
        Ok((choices, at))
    }

    /// The new score, or none where the choices forbid it.
    fn decide(self, old: Option<f64>, given: f64) -> Result<Option<f64>, Fail> {
        let Some(old) = old else {
            return Ok(Some(given).filter(|_| !self.present));
        };
        if self.absent {
            return Ok(None);
        }
        let new = if self.increment { old + given } else { given };
        if new.is_nan() {
            return Err(Fail::Say("ERR resulting score is not a number (NaN)"));
        }
        let refused = (self.greater && new <= old) || (self.less && new >= old);
        Ok(Some(new).filter(|_| !refused))
    }
}

/// ZADD.
pub(crate) fn zadd(door: &mut Door, call: &mut Call<'_>) -> Done {
    let (choices, first) = Choices::read(call)?;
    add(door, call, choices, first)
}

/// ZINCRBY.
pub(crate) fn zincrby(door: &mut Door, call: &mut Call<'_>) -> Done {
    add(door, call, Choices { increment: true, ..Choices::default() }, 2)
}

fn add(door: &mut Door, call: &mut Call<'_>, choices: Choices, first: usize) -> Done {
    let mut scores = Vec::with_capacity((call.len() - first) / 2);
    for at in (first..call.len()).step_by(2) {
        scores.push(number::score(call.arg(at)).ok_or(NOT_FLOAT)?);
    }
    let mut found = door.sorted(call.arg(1))?;
    let (mut added, mut updated, mut last) = (0, 0, None);
    for (nth, given) in scores.into_iter().enumerate() {
        let member = call.arg(first + 2 * nth + 1);
        let known = found.and_then(|index| door.set_of(index)).and_then(|set| set.get(member));
        let old = known.map(|known| known.score);
        last = choices.decide(old, given)?;
        let Some(new) = last.filter(|new| old != Some(*new)) else { continue };
        let index = match found {
            Some(index) => index,
            None => {
                let index = door.slot_for(call.arg(1))?;
                door.write(index, New::Sorted, NEVER)?;
                found = Some(index);
                index
            }
        };
        door.set_member(index, &Bytes::copy_from_slice(member), Some(new))?;
        added += usize::from(old.is_none());
        updated += usize::from(old.is_some());
    }
    match (choices.increment, last) {
        (true, Some(score)) => call.out.double(score),
        (true, None) => call.out.null(),
        (false, _) => call.out.count(if choices.changed { added + updated } else { added }),
    }
    Ok(())
}

/// Refuses to remove more members than fit one commit.
pub(crate) fn check_removed(count: usize) -> Done {
    if count > REMOVED_MAX {
        return Err(Fail::Say(
            "ERR at most 50000 members are removed at once: each is an object of its own; make \
             several, or DEL the key",
        ));
    }
    Ok(())
}

/// Removes members; a set without any is no key. Gives how many were there.
pub(crate) fn remove(
    door: &mut Door,
    index: u32,
    members: impl Iterator<Item = Bytes>,
) -> Result<usize, Fail> {
    let mut removed = 0;
    for member in members {
        if door.set_of(index).is_some_and(|sorted| sorted.get(&member).is_some()) {
            door.set_member(index, &member, None)?;
            removed += 1;
        }
    }
    if door.set_of(index).is_some_and(|sorted| sorted.len() == 0) {
        door.write(index, New::Gone, NEVER)?;
    }
    Ok(removed)
}

/// ZREM.
pub(crate) fn zrem(door: &mut Door, call: &mut Call<'_>) -> Done {
    let removed = match door.sorted(call.arg(1))? {
        Some(index) => remove(door, index, call.args.from(2).map(Bytes::copy_from_slice))?,
        None => 0,
    };
    call.out.count(removed);
    Ok(())
}

fn score(door: &Door, found: Option<u32>, member: &[u8]) -> Option<f64> {
    Some(door.set_of(found?)?.get(member)?.score)
}

/// ZSCORE.
pub(crate) fn zscore(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.sorted(call.arg(1))?;
    match score(door, found, call.arg(2)) {
        Some(score) => call.out.double(score),
        None => call.out.null(),
    }
    Ok(())
}

/// ZMSCORE.
pub(crate) fn zmscore(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.sorted(call.arg(1))?;
    call.out.array(call.len() - 2);
    for member in call.args.from(2) {
        match score(door, found, member) {
            Some(score) => call.out.double(score),
            None => call.out.null(),
        }
    }
    Ok(())
}

/// ZCARD.
pub(crate) fn zcard(door: &mut Door, call: &mut Call<'_>) -> Done {
    let found = door.sorted(call.arg(1))?;
    let count = found.and_then(|index| door.set_of(index)).map_or(0, |sorted| sorted.len());
    call.out.count(count);
    Ok(())
}

/// ZRANK.
pub(crate) fn zrank(door: &mut Door, call: &mut Call<'_>) -> Done {
    rank(door, call, false)
}

/// ZREVRANK.
pub(crate) fn zrevrank(door: &mut Door, call: &mut Call<'_>) -> Done {
    rank(door, call, true)
}

fn rank(door: &mut Door, call: &mut Call<'_>, reverse: bool) -> Done {
    let with_score = match call.len() {
        3 => false,
        4 if call.is(3, "withscore") => true,
        _ => return Err(SYNTAX),
    };
    let found = door.sorted(call.arg(1))?;
    let place = found.and_then(|index| door.set_of(index)).and_then(|sorted| {
        let score = sorted.get(call.arg(2))?.score;
        let rank = sorted.order().rank(score, call.arg(2))?;
        Some((if reverse { sorted.len() - 1 - rank } else { rank }, score))
    });
    match place {
        Some((rank, score)) if with_score => {
            call.out.array(2);
            call.out.count(rank);
            call.out.double(score);
        }
        Some((rank, _)) => call.out.count(rank),
        None if with_score => call.out.null_array(),
        None => call.out.null(),
    }
    Ok(())
}

/// ZPOPMIN.
pub(crate) fn zpopmin(door: &mut Door, call: &mut Call<'_>) -> Done {
    pop(door, call, false)
}

/// ZPOPMAX.
pub(crate) fn zpopmax(door: &mut Door, call: &mut Call<'_>) -> Done {
    pop(door, call, true)
}

fn pop(door: &mut Door, call: &mut Call<'_>, greatest: bool) -> Done {
    let counted = call.len() == 3;
    let count = match call.len() {
        2 => 1,
        3 => call.count(2).map_err(|_| Fail::Say("ERR value is out of range, must be positive"))?,
        _ => return Err(SYNTAX),
    };
    let Some(index) = door.sorted(call.arg(1))? else {
        call.out.array(0);
        return Ok(());
    };
    let mut taken: Vec<(Bytes, f64)> = Vec::new();
    if let Some(sorted) = door.set_of(index) {
        let count = count.min(sorted.len());
        check_removed(count)?;
        let (from, to) = if greatest { (sorted.len() - count, sorted.len()) } else { (0, count) };
        let range = sorted.order().range(from, to);
        taken.extend(range.map(|ranked| (ranked.member.clone(), ranked.score)));
    }
    if greatest {
        taken.reverse();
    }
    let pairs = counted && call.out.protocol() == 3;
    call.out.array(if pairs { taken.len() } else { taken.len() * 2 });
    for (member, score) in &taken {
        if pairs {
            call.out.array(2);
        }
        call.out.bulk(member);
        call.out.double(*score);
    }
    remove(door, index, taken.into_iter().map(|(member, _)| member))?;
    Ok(())
}
