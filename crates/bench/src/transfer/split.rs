//! The same content cut by hand into parts, some put at once: does that gain anything?
//!
//! ```text
//! lane 1   part 1 -> a run of `put -`      part 3 -> another      ...     all runs are started before,
//! lane 2   part 2 -> a run of `put -`      ...                            and wait for their input
//! ```
//! Opening a keyring takes memory and processor time that are no part of a transfer, so every run is
//! given time to open it, and to wait for its input, before the clock starts. The whole goes the same way, through one pipe,
//! before all others, after them, between, and right before the last: what a shared machine gives changes within minutes, so each
//! is held against the wholes before and behind it. The most at once, and the number that gained most at the first network, are measured
//! at three, of which the middle one counts: the best of some numbers measured once each is the one that had luck. (Gets have no such
//! form: a run reads as soon as its keyring is open.)
//!
//! Meanwhile what all runs together have read is looked at, which gives the rate over time as Storj's report draws it (its
//! Figures 1 to 5: whole and in chunks, 1 to 32 at once).

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::waiting::{Waiting, opened};
use super::{SAMPLE_EVERY, content, settle};
use crate::chart::Chart;
use crate::community::{Community, Home, Kind};
use crate::error::BenchError;
use crate::percentiles::middle;
use crate::process::{self, Pid};
use crate::report::{Bar, Report};
use crate::{Bench, size};

/// Puts at once at most: each takes scrypt's 128 MiB while it opens its keyring.
pub(super) const TRANSFERS_MAX: usize = 32;
/// Parts of one go at most: each is a process that waits.
const PARTS_MAX: u64 = 128;
/// The most that cutting by hand may gain.
const GAIN_MAX: f64 = 1.05;
/// The most that the sum may lose where as many as may are put at once.
const CROWD_MIN: f64 = 0.95;

/// Networks at which the most are put at once, and what gained most; the middle of their ratios counts.
const ROUNDS: usize = 3;
/// Measurements in parts between two of the whole, at most.
const WHOLE_EVERY: usize = 3;

/// What is cut, and how.
#[derive(Clone, Debug)]
pub(super) struct Cut<'a> {
    pub(super) bytes: u64,
    pub(super) part: u64,
    /// How many at once, one measurement each.
    pub(super) at_once: &'a [usize],
}

/// One measurement.
#[derive(Debug, Serialize)]
struct Went {
    work: &'static str,
    part_bytes: u64,
    parts: usize,
    at_once: usize,
    bytes: u64,
    seconds: f64,
    mb_s: f64,
    /// Seconds since the start, and MB/s of all runs together in the moment before.
    rates: Vec<(f64, f64)>,
}

/// What was measured at one network.
struct Round {
    wholes: Vec<Went>,
    went: Vec<Went>,
    /// Of each that went in parts, to the wholes around it.
    ratios: Vec<f64>,
}

impl Round {
    /// How many at once gained most.
    fn gained_most(&self) -> usize {
        let both = self.went.iter().zip(&self.ratios);
        let most = both.max_by(|(_, a), (_, b)| a.total_cmp(b));
        most.map_or(1, |(went, _)| went.at_once)
    }

    /// That of so many at once.
    fn ratio_of(&self, at_once: usize) -> f64 {
        let mut both = self.went.iter().zip(&self.ratios);
        both.find(|(went, _)| went.at_once == at_once).map_or(f64::NAN, |(_, ratio)| *ratio)
    }
}

impl Cut<'_> {
    /// Bytes of one go with so many at once: the whole once, and more where that is too few parts.
    fn bytes_of(&self, at_once: usize) -> u64 {
        self.parts(at_once).iter().map(|(_, length)| *length).sum()
    }

    /// Bytes of content that the largest round puts.
    pub(super) fn bytes_of_all(&self) -> u64 {
        let count = self.at_once.len();
        let between = (1..count).filter(|number| whole_before(*number, count)).count();
        let wholes = (2 + between as u64) * self.bytes;
        self.at_once.iter().map(|at_once| self.bytes_of(*at_once)).sum::<u64>() + wholes
    }

    /// Where each part begins in the file, and its length; from the beginning again where the file
    /// has fewer parts than are put at once.
    fn parts(&self, at_once: usize) -> Vec<(u64, u64)> {
        let of_file = self.bytes.div_ceil(self.part).max(1);
        let count = of_file.max(at_once as u64);
        let part = |number: u64| {
            let from = number % of_file * self.part;
            (from, self.part.min(self.bytes - from))
        };
        (0..count).map(part).collect()
    }

    /// # Errors
    /// [`BenchError::Argument`].
    pub(super) fn check(&self) -> Result<(), BenchError> {
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        if self.part == 0 || self.bytes.div_ceil(self.part) > PARTS_MAX {
            return wrong("--chunks", "at least one byte, and at most 128 of them in the file");
        }
        if self.at_once.is_empty() || self.at_once.len() > TRANSFERS_MAX {
            return wrong("--transfers", "1 to 32 numbers");
        }
        if !self.at_once.iter().all(|at_once| (1..=TRANSFERS_MAX).contains(at_once)) {
            return wrong("--transfers", "each from 1 to 32");
        }
        Ok(())
    }

    /// Measures all, and says what was gained. Each round has a new network, whose folder is gone before the next.
    pub(super) fn run(
        &self,
        bench: &Bench,
        kind: Kind,
        report: &mut Report,
    ) -> Result<(), BenchError> {
        let most = self.at_once.iter().copied().max().unwrap_or(1);
        let all = self.round(bench, kind, self.at_once)?;
        let gained_most = all.gained_most();
        let again = if gained_most == most { vec![most] } else { vec![gained_most, most] };
        // As many as may be take the machine to its edge, where one measurement in ten is a tenth off.
        let more = if bench.quick { 0 } else { ROUNDS - 1 };
        let mut rounds = vec![all];
        for _ in 0..more {
            rounds.push(self.round(bench, kind, &again)?);
        }
        let usual = |at_once: usize| {
            let ratios: Vec<f64> = rounds.iter().map(|round| round.ratio_of(at_once)).collect();
            *middle(&ratios, |ratio| *ratio)
        };
        let (best, crowd) = (usual(gained_most), usual(most));
        let all = &rounds[0];
        let part = size::text(self.part);
        report.ratio("put_in_chunks_to_whole", best);
        let name = format!("put in chunks of {part}, {gained_most} at once, to the whole");
        report.bars.push(Bar::at_most(name, best, GAIN_MAX));
        report.ratio(format!("put_{most}_at_once_to_whole"), crowd);
        let name = format!("{most} puts of {part} at once, their sum to the whole");
        report.bars.push(Bar::at_least(name, crowd, CROWD_MIN));
        let whole = mean(&all.wholes);
        let points = all.went.iter().map(|went| (went.at_once as f64, went.mb_s)).collect();
        let line = all.went.iter().map(|went| (went.at_once as f64, whole)).collect();
        let title = format!("{} cut into parts of {part}", size::text(self.bytes));
        let chart = Chart::lines(&title, "puts at once", "MB/s in all").log(true, false);
        report.charts.push(chart.with("in parts", points).beside("whole", line));
        report.charts.push(rates(&part, &all.wholes, &all.went));
        let rows = rounds.iter().flat_map(|round| round.wholes.iter().chain(&round.went));
        rows.into_iter().try_for_each(|went| report.run(went))
    }

    /// Each of these numbers at once, at a network of its own, with wholes around them.
    fn round(&self, bench: &Bench, kind: Kind, at_once: &[usize]) -> Result<Round, BenchError> {
        let mut community = Community::start(bench, kind)?;
        let file = community.path().join("content");
        content::write(&file, self.bytes, &bench.stop)?;
        rustix::fs::sync();
        let most = at_once.iter().copied().max().unwrap_or(1);
        let homes = (0..most).map(|number| community.home(&format!("lane{number}")));
        let homes = homes.collect::<Result<Vec<_>, _>>()?;
        let at_once_count = at_once.len();
        let go = |at_once: usize, parts: &[(u64, u64)]| {
            self.go(bench, &community, &file, &homes[..at_once], parts)
        };
        let mut wholes = vec![go(1, &[(0, self.bytes)])?];
        // With each, how many wholes went before it.
        let mut went: Vec<(Went, usize)> = Vec::new();
        for (number, at_once) in at_once.iter().enumerate() {
            if number > 0 && whole_before(number, at_once_count) {
                wholes.push(go(1, &[(0, self.bytes)])?);
            }
            let one = go(*at_once, &self.parts(*at_once))?;
            went.push((one, wholes.len()));
        }
        wholes.push(go(1, &[(0, self.bytes)])?);
        community.check()?;
        let with_ratio = went.into_iter().map(|(one, before)| {
            let ratio = one.mb_s / mean(&wholes[before - 1..=before]);
            (one, ratio)
        });
        let (went, ratios) = with_ratio.unzip();
        Ok(Round { wholes, went, ratios })
    }

    /// Puts the parts in as many lanes as there are homes.
    fn go(
        &self,
        bench: &Bench,
        community: &Community,
        file: &Path,
        homes: &[Home],
        parts: &[(u64, u64)],
    ) -> Result<Went, BenchError> {
        settle(bench, community)?;
        let mut lanes: Vec<Vec<(Waiting, (u64, u64))>> = homes.iter().map(|_| Vec::new()).collect();
        for (number, part) in parts.iter().enumerate() {
            let lane = number % homes.len();
            let put = homes[lane].command(&community.program, ["put", "-", "--json"]);
            lanes[lane].push((Waiting::start(put)?, *part));
        }
        let pids: Vec<Pid> = lanes.iter().flatten().map(|(waiting, _)| waiting.pid()).collect();
        opened(bench, &pids)?;
        let mut read = Reading::of(&pids);
        let started = Instant::now();
        let seconds = std::thread::scope(|scope| {
            let lanes: Vec<_> = lanes
                .into_iter()
                .map(|lane| {
                    scope.spawn(move || {
                        lane.into_iter()
                            .try_for_each(|(run, part)| run.feed(bench, file, part).map(drop))
                            .map(|()| started.elapsed().as_secs_f64())
                    })
                })
                .collect();
            read.watch(started, || lanes.iter().any(|lane| !lane.is_finished()));
            // A lane that panicked is a bug here, and nothing was measured. The last one's end is that of all.
            lanes.into_iter().try_fold(0.0, |last: f64, lane| {
                let ended = lane.join().unwrap_or(Err(BenchError::Interrupted));
                ended.map(|ended| last.max(ended))
            })
        })?;
        let bytes: u64 = parts.iter().map(|(_, length)| *length).sum();
        let work = if parts.len() == 1 { "put through a pipe" } else { "put in chunks" };
        let part_bytes = parts.first().map_or(0, |(_, length)| *length);
        let mb_s = bytes as f64 / 1e6 / seconds;
        bench.tell(format!(
            "{work}: {} of up to {}, {} at once: {mb_s:.0} MB/s",
            parts.len(),
            size::text(part_bytes),
            homes.len()
        ));
        let (parts, at_once) = (parts.len(), homes.len());
        let rates = read.rates;
        Ok(Went { work, part_bytes, parts, at_once, bytes, seconds, mb_s, rates })
    }
}

/// Whether the whole is put again before the measurement of this number, of so many: before every third, and before the last.
fn whole_before(number: usize, of: usize) -> bool {
    number.is_multiple_of(WHOLE_EVERY) || number + 1 == of
}

/// What some runs read, looked at from outside.
struct Reading {
    /// Each run with what it had read when it was looked at last. One that ended tells no more, and has read that.
    runs: Vec<(Pid, u64)>,
    rates: Vec<(f64, f64)>,
}

impl Reading {
    fn of(pids: &[Pid]) -> Self {
        let mut reading =
            Self { runs: pids.iter().map(|pid| (*pid, 0)).collect(), rates: Vec::new() };
        // What they read before, to start and to open their keyrings, is no part of it.
        reading.more();
        reading
    }

    /// Bytes read since the last look.
    fn more(&mut self) -> u64 {
        let more = self.runs.iter_mut().map(|(pid, last)| {
            let now = process::moved(*pid).map_or(*last, |(read, _)| read.max(*last));
            now - std::mem::replace(last, now)
        });
        more.sum()
    }

    /// Looks until nothing runs any more.
    fn watch(&mut self, started: Instant, runs: impl Fn() -> bool) {
        let mut before = Duration::ZERO;
        while runs() {
            std::thread::sleep(SAMPLE_EVERY);
            let at = started.elapsed();
            let rate = self.more() as f64 / 1e6 / (at - before).as_secs_f64();
            self.rates.push((at.as_secs_f64(), rate));
            before = at;
        }
    }
}

/// Their rates' mean.
fn mean(went: &[Went]) -> f64 {
    went.iter().map(|went| went.mb_s).sum::<f64>() / went.len() as f64
}

/// Rates over time: the whole, and a line for each number at once.
fn rates(part: &str, wholes: &[Went], went: &[Went]) -> Chart {
    let title = format!("Rate over time, whole and in parts of {part}");
    let chart = Chart::lines(&title, "seconds", "MB/s in all");
    let whole = wholes.iter().take(1).map(|one| ("whole".to_owned(), one));
    let parts = went.iter().map(|one| (format!("parts, {} at once", one.at_once), one));
    whole.chain(parts).fold(chart, |chart, (name, one)| chart.with(&name, one.rates.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn went(at_once: usize, mb_s: f64) -> Went {
        let (bytes, rates) = (1, Vec::new());
        let work = "put in chunks";
        Went { work, part_bytes: 1, parts: 1, at_once, bytes, seconds: 1.0, mb_s, rates }
    }

    fn cut(bytes: u64, part: u64, at_once: &[usize]) -> Cut<'_> {
        Cut { bytes, part, at_once }
    }

    #[test]
    fn parts_are_the_file_once_or_as_many_as_are_put_at_once() {
        let parts = cut(10, 4, &[1]).parts(1);
        assert_eq!(parts, [(0, 4), (4, 4), (8, 2)]);
        let parts = cut(8, 4, &[5]).parts(5);
        assert_eq!(parts, [(0, 4), (4, 4), (0, 4), (4, 4), (0, 4)]);
        assert_eq!(cut(3, 64, &[1]).parts(1), [(0, 3)]);
        assert_eq!(cut(8, 4, &[5]).bytes_of_all(), 20 + 2 * 8);
        assert_eq!(cut(8, 4, &[1, 5]).bytes_of_all(), 8 + 20 + 3 * 8, "one right before the last");
        let before: Vec<usize> = (1..6).filter(|number| whole_before(*number, 6)).collect();
        assert_eq!(before, [3, 5]);
        assert!(whole_before(1, 2), "one between two");
    }

    #[test]
    fn what_gained_most_is_found_by_its_ratio() {
        let of = |measured: &[(usize, f64, f64)]| {
            let each =
                measured.iter().map(|(at_once, mb_s, ratio)| (went(*at_once, *mb_s), *ratio));
            let (went, ratios) = each.unzip();
            Round { wholes: Vec::new(), went, ratios }
        };
        let round = of(&[(1, 300.0, 0.9), (4, 290.0, 1.04), (32, 310.0, 0.97)]);
        assert_eq!(round.gained_most(), 4);
        assert_eq!(round.ratio_of(32), 0.97);
        assert!(round.ratio_of(2).is_nan());
        assert_eq!(of(&[]).gained_most(), 1);
    }

    #[test]
    fn more_processes_than_a_machine_holds_are_refused() {
        cut(1 << 30, 64 << 20, &[1, 2, 32]).check().unwrap();
        for bad in [cut(8, 0, &[1]), cut(1 << 30, 1 << 20, &[1]), cut(8, 4, &[]), cut(8, 4, &[33])]
        {
            assert!(matches!(bad.check(), Err(BenchError::Argument { .. })), "{bad:?}");
        }
    }

    #[test]
    fn what_a_run_reads_is_seen_while_it_reads() {
        let pid = std::process::id();
        let mut reading = Reading::of(&[pid, u32::MAX - 1]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 3 << 20]).unwrap();
        let looks = std::cell::Cell::new(0);
        reading.watch(Instant::now(), || {
            std::fs::read(file.path()).unwrap();
            looks.set(looks.get() + 1);
            looks.get() <= 2
        });
        assert_eq!(reading.rates.len(), 2);
        // At least what this test read: the others of this process read too.
        let bytes = reading.rates.iter().scan(0.0, |before, (at, mb_s)| {
            let bytes = (at - std::mem::replace(before, *at)) * mb_s * 1e6;
            Some(bytes)
        });
        assert!(bytes.sum::<f64>() >= 6e6, "{:?}", reading.rates);
        let whole = Went { rates: vec![(0.1, 5.0)], ..went(1, 1.0) };
        let parts = Went { rates: vec![(0.1, 7.0)], ..went(32, 1.0) };
        let page = Chart::page(&[rates("1 MiB", &[whole], &[parts])]);
        assert!(page.contains(">whole<") && page.contains(">parts, 32 at once<"), "{page}");
    }
}
