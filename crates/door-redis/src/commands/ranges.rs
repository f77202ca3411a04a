//! Ranges of sorted sets: by rank, by score, by bytes. Each is first made two ranks.

use bytes::Bytes;

use crate::commands::{range, sorted_sets};
use crate::door::Door;
use crate::fail::{Done, Fail, NOT_INTEGER, SYNTAX};
use crate::number;
use crate::ranked::{Order, Ranked, scores};
use crate::session::Call;

/// What the ends of a range are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Bytes,
}

/// What a range was told beside its ends.
struct Choices {
    by: By,
    reverse: bool,
    scores: bool,
    limit: Option<(i64, i64)>,
}

impl Choices {
    fn read(call: &Call<'_>, mut by: By, reverse: bool, any: bool) -> Result<Self, Fail> {
        let mut reverse = reverse;
        let (mut scores, mut limit) = (false, None);
        let mut at = 4;
        while at < call.len() {
            match call.arg(at).to_ascii_lowercase().as_slice() {
                b"withscores" => scores = true,
                b"limit" if at + 2 < call.len() => {
                    limit = Some((call.integer(at + 1)?, call.integer(at + 2)?));
                    at += 2;
                }
                b"byscore" if any => by = By::Score,
                b"bylex" if any => by = By::Bytes,
                b"rev" if any => reverse = true,
                _ => return Err(SYNTAX),
            }
            at += 1;
        }
        if by == By::Rank && limit.is_some() {
            return Err(Fail::Say(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ));
        }
        if by == By::Bytes && scores {
            return Err(Fail::Say(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        Ok(Self { by, reverse, scores, limit })
    }
}

/// One end of a range of scores: the score, and whether it is itself outside.
fn score_end(text: &[u8]) -> Result<(f64, bool), Fail> {
    let (text, outside) = match text {
        [b'(', rest @ ..] => (rest, true),
        rest => (rest, false),
    };
    let score = number::double(text).ok_or(Fail::Say("ERR min or max is not a float"))?;
    Ok((score, outside))
}

/// One end of a range of bytes.
enum Lex<'a> {
    Least,
    Greatest,
    Within(&'a [u8]),
    Outside(&'a [u8]),
}

fn lex_end(text: &[u8]) -> Result<Lex<'_>, Fail> {
    match text {
        b"-" => Ok(Lex::Least),
        b"+" => Ok(Lex::Greatest),
        [b'[', rest @ ..] => Ok(Lex::Within(rest)),
        [b'(', rest @ ..] => Ok(Lex::Outside(rest)),
        _ => Err(Fail::Say("ERR min or max not valid string range item")),
    }
}

impl Lex<'_> {
    /// Whether a member is before the range that begins here.
    fn before(&self, ranked: &Ranked) -> bool {
        match self {
            Lex::Least => false,
            Lex::Greatest => true,
            Lex::Within(end) => ranked.member.as_ref() < *end,
            Lex::Outside(end) => ranked.member.as_ref() <= *end,
        }
    }

    /// Whether a member is not behind the range that ends here.
    fn up_to(&self, ranked: &Ranked) -> bool {
        match self {
            Lex::Least => false,
            Lex::Greatest => true,
            Lex::Within(end) => ranked.member.as_ref() <= *end,
            Lex::Outside(end) => ranked.member.as_ref() < *end,
        }
    }
}

/// The ranks of a range: the first, and the one behind the last.
fn ranks(order: &Order, by: By, reverse: bool, a: &[u8], b: &[u8]) -> Result<(usize, usize), Fail> {
    match by {
        By::Rank => {
            let (start, end) = (number::integer(a), number::integer(b));
            let (Some(start), Some(end)) = (start, end) else { return Err(NOT_INTEGER) };
            let Some((first, last)) = range(start, end, order.len()) else { return Ok((0, 0)) };
            let length = order.len();
            Ok(if reverse { (length - 1 - last, length - first) } else { (first, last + 1) })
        }
        By::Score => {
            let (low, high) = if reverse { (b, a) } else { (a, b) };
            let ((low, above), (high, below)) = (score_end(low)?, score_end(high)?);
            let first = order.position(|each| {
                let order = scores(each.score, low);
                order.is_lt() || (above && order.is_eq())
            });
            let last = order.position(|each| {
                let order = scores(each.score, high);
                order.is_lt() || (!below && order.is_eq())
            });
            Ok((first, last))
        }
        By::Bytes => {
            let (low, high) = if reverse { (b, a) } else { (a, b) };
            let (low, high) = (lex_end(low)?, lex_end(high)?);
            let first = order.position(|each| low.before(each));
            Ok((first, order.position(|each| high.up_to(each))))
        }
    }
}

fn answer(door: &mut Door, call: &mut Call<'_>, choices: &Choices) -> Done {
    static EMPTY: std::sync::LazyLock<Order> = std::sync::LazyLock::new(Order::default);
    let found = door.sorted(call.arg(1))?;
    let order = found.and_then(|index| door.set_of(index)).map_or(&*EMPTY, |set| set.order());
    let (a, b) = (call.arg(2), call.arg(3));
    let (mut first, mut last) = ranks(order, choices.by, choices.reverse, a, b)?;
    if let Some((offset, count)) = choices.limit {
        let Ok(offset) = usize::try_from(offset) else {
            call.out.array(0);
            return Ok(());
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if choices.reverse {
            last = last.saturating_sub(offset);
            first = first.max(last.saturating_sub(count));
        } else {
            first = first.saturating_add(offset);
            last = last.min(first.saturating_add(count));
        }
    }
    let count = last.saturating_sub(first);
    let pairs = choices.scores && call.out.protocol() == 3;
    call.out.array(if choices.scores && !pairs { count * 2 } else { count });
    let mut tell = |ranked: &Ranked| {
        call.out.fits()?;
        if pairs {
            call.out.array(2);
        }
        call.out.bulk(&ranked.member);
        if choices.scores {
            call.out.double(ranked.score);
        }
        Ok(())
    };
    if count > 0 && choices.reverse {
        order.range(first, last).rev().try_for_each(&mut tell)
    } else if count > 0 {
        order.range(first, last).try_for_each(&mut tell)
    } else {
        Ok(())
    }
}

/// ZRANGE.
pub(crate) fn zrange(door: &mut Door, call: &mut Call<'_>) -> Done {
    let choices = Choices::read(call, By::Rank, false, true)?;
    answer(door, call, &choices)
}

/// ZREVRANGE.
pub(crate) fn zrevrange(door: &mut Door, call: &mut Call<'_>) -> Done {
    let choices = Choices::read(call, By::Rank, true, false)?;
    answer(door, call, &choices)
}

/// ZRANGEBYSCORE.
pub(crate) fn zrangebyscore(door: &mut Door, call: &mut Call<'_>) -> Done {
    let choices = Choices::read(call, By::Score, false, false)?;
    answer(door, call, &choices)
}

/// ZREVRANGEBYSCORE.
pub(crate) fn zrevrangebyscore(door: &mut Door, call: &mut Call<'_>) -> Done {
    let choices = Choices::read(call, By::Score, true, false)?;
    answer(door, call, &choices)
}

/// ZRANGEBYLEX.
pub(crate) fn zrangebylex(door: &mut Door, call: &mut Call<'_>) -> Done {
    let choices = Choices::read(call, By::Bytes, false, false)?;
    answer(door, call, &choices)
}

/// ZREVRANGEBYLEX.
pub(crate) fn zrevrangebylex(door: &mut Door, call: &mut Call<'_>) -> Done {
    let choices = Choices::read(call, By::Bytes, true, false)?;
    answer(door, call, &choices)
}

fn count(door: &mut Door, call: &mut Call<'_>, by: By) -> Done {
    // Ends that are none are refused even where there is no key.
    let (a, b) = (call.arg(2), call.arg(3));
    ranks(&Order::default(), by, false, a, b)?;
    let found = door.sorted(call.arg(1))?;
    let count = match found.and_then(|index| door.set_of(index)) {
        Some(sorted) => {
            let (first, last) = ranks(sorted.order(), by, false, a, b)?;
            last.saturating_sub(first)
        }
        None => 0,
    };
    call.out.count(count);
    Ok(())
}

/// ZCOUNT.
pub(crate) fn zcount(door: &mut Door, call: &mut Call<'_>) -> Done {
    count(door, call, By::Score)
}

/// ZLEXCOUNT.
pub(crate) fn zlexcount(door: &mut Door, call: &mut Call<'_>) -> Done {
    count(door, call, By::Bytes)
}

fn remove(door: &mut Door, call: &mut Call<'_>, by: By) -> Done {
    let (a, b) = (call.arg(2), call.arg(3));
    ranks(&Order::default(), by, false, a, b)?;
    let found = door.sorted(call.arg(1))?;
    let (Some(index), Some(sorted)) = (found, found.and_then(|index| door.set_of(index))) else {
        call.out.integer(0);
        return Ok(());
    };
    let (first, last) = ranks(sorted.order(), by, false, a, b)?;
    sorted_sets::check_removed(last.saturating_sub(first))?;
    let members: Vec<Bytes> =
        sorted.order().range(first, last).map(|ranked| ranked.member.clone()).collect();
    let removed = sorted_sets::remove(door, index, members.into_iter())?;
    call.out.count(removed);
    Ok(())
}

/// ZREMRANGEBYRANK.
pub(crate) fn zremrangebyrank(door: &mut Door, call: &mut Call<'_>) -> Done {
    remove(door, call, By::Rank)
}

/// ZREMRANGEBYSCORE.
pub(crate) fn zremrangebyscore(door: &mut Door, call: &mut Call<'_>) -> Done {
    remove(door, call, By::Score)
}

/// ZREMRANGEBYLEX.
pub(crate) fn zremrangebylex(door: &mut Door, call: &mut Call<'_>) -> Done {
    remove(door, call, By::Bytes)
}
