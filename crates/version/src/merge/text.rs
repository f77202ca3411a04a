//! Text, merged line by line.
//!
//! Each side's changes to v0 are found as a shortest list of lines deleted and inserted (Myers, "An O(ND) difference
//! algorithm", 1986), and both lists are applied. Changes that overlap or touch, with no unchanged line between, are a clash
//! unless both sides made the same of these lines; so what comes out is never lines that nobody wrote side by side.
//!
//! A line ends with a line feed, which belongs to it; the last may lack it. Nothing is assumed of the bytes in it.
//!
//! Limits: past [`EDITS_MAX`] differing lines between v0 and a side, or [`STEPS_MAX`] comparisons, all between the first
//! and the last differing line counts as one change, which merges less and never wrong. So a value made to be slow is not.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{CLASHES_MAX, Clash, Conflict, Merge, Merged, Value, all_bytes, settled};

/// The most lines that one side may have deleted and inserted, for the shortest list of changes.
const EDITS_MAX: usize = 1_000;
/// The most comparisons of lines that are spent on it.
const STEPS_MAX: usize = 8 << 20;

/// v0 with the changes of both sides, by lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreeWayText;

impl Merge for ThreeWayText {
    fn merge(&self, v0: Option<Value<'_>>, v1: Value<'_>, v2: Value<'_>) -> Merged {
        if let Some(value) = settled(v0, v1, v2) {
            return Merged::of(value);
        }
        match all_bytes(v0, v1, v2, b"") {
            Ok([v0, v1, v2]) => lines(v0, v1, v2),
            Err(conflict) => conflict,
        }
    }
}

/// Lines by number: the same lines have the same.
#[derive(Default)]
struct Numbers<'a>(BTreeMap<&'a [u8], u32>);

/// A text as lines.
struct Text<'a> {
    lines: Vec<&'a [u8]>,
    numbers: Vec<u32>,
}

impl<'a> Numbers<'a> {
    fn text(&mut self, bytes: &'a [u8]) -> Text<'a> {
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let number = |line: &&'a [u8]| {
            let next = self.0.len() as u32;
            *self.0.entry(line).or_insert(next)
        };
        let numbers = lines.iter().map(number).collect();
        Text { lines, numbers }
    }
}

/// Some lines of v0, and what a side has in their stead. No two of a side touch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    base: Range<usize>,
    side: Range<usize>,
}

fn lines(v0: &[u8], v1: &[u8], v2: &[u8]) -> Merged {
    let mut numbers = Numbers::default();
    let (base, first, second) = (numbers.text(v0), numbers.text(v1), numbers.text(v2));
    let mut first = Side { changes: &changes(&base.numbers, &first.numbers), text: &first };
    let mut second = Side { changes: &changes(&base.numbers, &second.numbers), text: &second };
    let (mut out, mut clashes) = (Vec::with_capacity(v1.len().max(v2.len())), Vec::new());
    let mut done = 0;
    while clashes.len() < CLASHES_MAX
        && let Some(mut range) = first_of(first.next(), second.next())
    {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // All that overlaps or touches belongs together.
        while first.take(&mut range, &mut ours) || second.take(&mut range, &mut theirs) {}
        append(&mut out, &base.lines[done..range.start]);
        done = range.end;
        let made = match (&ours[..], &theirs[..]) {
            (ours, []) => first.made(ours, &range),
            ([], theirs) => second.made(theirs, &range),
            (ours, theirs) => {
                let (ours, theirs) = (first.made(ours, &range), second.made(theirs, &range));
                if ours != theirs {
                    clashes.push(Clash::Lines { from: range.start, until: range.end });
                }
                ours
            }
        };
        append(&mut out, made);
    }
    if !clashes.is_empty() {
        let reason = "both sides changed the same lines".into();
        return Merged::Conflict(Conflict { reason, clashes });
    }
    append(&mut out, &base.lines[done..]);
    Merged::bytes(out)
}

fn append(out: &mut Vec<u8>, lines: &[&[u8]]) {
    for line in lines {
        out.extend_from_slice(line);
    }
}

/// A side's changes that are still to be applied.
struct Side<'a> {
    changes: &'a [Change],
    text: &'a Text<'a>,
}

impl<'a> Side<'a> {
    fn next(&self) -> Option<&Range<usize>> {
        self.changes.first().map(|change| &change.base)
    }

    /// Moves the next change to `taken` if it touches the range, which then covers it too.
    fn take(&mut self, range: &mut Range<usize>, taken: &mut Vec<&'a Change>) -> bool {
        let Some((next, rest)) = self.changes.split_first() else { return false };
        if next.base.start > range.end {
            return false;
        }
        range.end = range.end.max(next.base.end);
        taken.push(next);
        self.changes = rest;
        true
    }

    /// What the side has in the stead of these lines of v0, which cover its changes.
    fn made(&self, changes: &[&Change], range: &Range<usize>) -> &'a [&'a [u8]] {
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return &[] };
        let from = first.side.start - (first.base.start - range.start);
        let until = last.side.end + (range.end - last.base.end);
        &self.text.lines[from..until]
    }
}

fn first_of(a: Option<&Range<usize>>, b: Option<&Range<usize>>) -> Option<Range<usize>> {
    // It grows by `Side::take` to all that touches it.
    let start = a.into_iter().chain(b).map(|range| range.start).min()?;
    Some(start..start)
}

/// What makes `side` of `base`, in order.
fn changes(base: &[u32], side: &[u32]) -> Vec<Change> {
    let head = base.iter().zip(side).take_while(|(a, b)| a == b).count();
    let (rest, other) = (&base[head..], &side[head..]);
    let tail = rest.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let (rest, other) = (&rest[..rest.len() - tail], &other[..other.len() - tail]);
    if rest.is_empty() && other.is_empty() {
        return Vec::new();
    }
    let same = same_runs(rest, other, STEPS_MAX).unwrap_or_default();
    let mut changes = Vec::new();
    let (mut at, mut at_side) = (0, 0);
    let end = Run { base: rest.len(), side: other.len(), lines: 0 };
    for run in same.iter().chain([&end]) {
        if run.base > at || run.side > at_side {
            let base = head + at..head + run.base;
            changes.push(Change { base, side: head + at_side..head + run.side });
        }
        (at, at_side) = (run.base + run.lines, run.side + run.lines);
    }
    changes
}

/// So many lines that are the same.
#[derive(Clone, Copy)]
struct Run {
    base: usize,
    side: usize,
    lines: usize,
}

/// How far the furthest path of so many edits reaches on each diagonal, from -edits to edits.
struct Reach {
    edits: i64,
    /// The index in `a`, -1 where no path reaches the diagonal; every second diagonal is of another parity and not used.
    x: Vec<i64>,
}

impl Reach {
    fn new(edits: i64) -> Self {
        Self { edits, x: vec![-1; 2 * edits as usize + 1] }
    }

    fn at(&self, diagonal: i64) -> i64 {
        let index = usize::try_from(diagonal + self.edits).ok();
        index.and_then(|index| self.x.get(index)).copied().unwrap_or(-1)
    }

    /// Where a path of one edit more enters a diagonal: by an insertion (x stays) or a deletion, whichever is further.
    fn entry(&self, diagonal: i64, a: &[u32], b: &[u32]) -> Option<(i64, bool)> {
        let inserted = Some(self.at(diagonal + 1));
        let inserted = inserted.filter(|x| *x >= 0 && *x - diagonal <= b.len() as i64);
        let deleted = Some(self.at(diagonal - 1) + 1).filter(|x| *x > 0 && *x <= a.len() as i64);
        match (inserted, deleted) {
            (Some(inserted), deleted) if deleted.is_none_or(|deleted| inserted >= deleted) => {
                Some((inserted, true))
            }
            (_, deleted) => deleted.map(|x| (x, false)),
        }
    }
}

/// The runs that a shortest list of edits leaves, in order; `None` past [`EDITS_MAX`], or so many steps.
fn same_runs(a: &[u32], b: &[u32], mut steps: usize) -> Option<Vec<Run>> {
    let mut reaches: Vec<Reach> = Vec::new();
    let goal = a.len() as i64 - b.len() as i64;
    for edits in 0..=(EDITS_MAX as i64) {
        let mut reach = Reach::new(edits);
        for diagonal in (-edits..=edits).step_by(2) {
            let entry = match reaches.last() {
                None => Some(0),
                Some(before) => before.entry(diagonal, a, b).map(|(x, _)| x),
            };
            let Some(x) = entry else { continue };
            let rest = (a.get(x as usize..)?, b.get((x - diagonal) as usize..)?);
            let run = rest.0.iter().zip(rest.1).take_while(|(a, b)| a == b).count();
            steps = steps.checked_sub(run + 1)?;
            reach.x[(diagonal + edits) as usize] = x + run as i64;
        }
        let done = reach.at(goal) == a.len() as i64;
        reaches.push(reach);
        if done {
            return backwards(&reaches, a, b);
        }
    }
    None
}

/// The runs on the path that reached the end, found from there.
fn backwards(reaches: &[Reach], a: &[u32], b: &[u32]) -> Option<Vec<Run>> {
    let mut runs = Vec::new();
    let mut diagonal = a.len() as i64 - b.len() as i64;
    for (edits, reach) in reaches.iter().enumerate().rev() {
        let x = reach.at(diagonal);
        let (entry, inserted) = match edits.checked_sub(1) {
            None => (0, false),
            Some(before) => reaches[before].entry(diagonal, a, b)?,
        };
        if x > entry {
            let (base, side) = (entry as usize, (entry - diagonal) as usize);
            runs.push(Run { base, side, lines: (x - entry) as usize });
        }
        diagonal += if inserted { 1 } else { -1 };
    }
    runs.reverse();
    Some(runs)
}

#[cfg(test)]
mod tests;
