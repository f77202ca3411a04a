//! Runs that put one question, where the runs of [`crate::run()`] put all to everything.
//!
//! - [`Trial::Losses`]: at the answer of a put, or once it is full, every peer that can be taken away without taking the last k
//!   fragments or the last copy is gone, emptied or lies; all is read (Q2, Q1, Q6).
//! - [`Trial::Churn`]: peers restart, leave and join while others read what is full (Q2).
//! - [`Trial::Keeping`]: peers vanish, lose disks, return with old ones and cheat; what is paid for is whole again by itself, and
//!   what is not is gone (Q3, Q2, Q1).
//! - [`slow`]: one holder answers a hundred times slower; readers take no longer (Q8).
//!
//! The peers are more than in other runs, and the contents few and mostly small.

mod churn;
mod keeping;
mod losses;
mod slow;

use std::sync::Arc;

use ::bytes::Bytes;
use author::{NoProgress, PutOptions, PutReport};

use crate::chance::Chance;
use crate::check::answers::{self, Begun};
use crate::check::bytes;
use crate::check::holdings::Kept;
use crate::history::Content;
use crate::run::{Report, RunOptions, in_world, run_all};
use crate::workload::content;
use crate::world::World;

pub use keeping::{CASTS, GEPPETTO, HONEST, POISONER, REVENANT};
pub use slow::{Compared, slow};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Whether a put survives every loss that it promises to survive.
    Losses,
    /// Whether readers find what is full while peers come and go.
    Churn,
    /// Whether the network mends itself, and forgets, whatever befalls it and whoever cheats.
    Keeping,
}

/// The trial of this seed.
pub fn run(seed: u64, trial: Trial, options: RunOptions) -> Report {
    match trial {
        Trial::Losses => in_world(seed, options, losses::plan(seed), losses::run),
        Trial::Churn => in_world(seed, options, churn::plan(seed), churn::run),
        Trial::Keeping => in_world(seed, options, keeping::plan(seed), keeping::run),
    }
}

/// Trials of seeds on `threads` threads, as [`crate::run_many`].
pub fn run_many(
    seeds: std::ops::Range<u64>,
    threads: usize,
    trial: Trial,
    options: RunOptions,
) -> Vec<Report> {
    let command = |seed| command(seed, trial);
    run_all(seeds, threads, options.bug.is_none(), command, |seed| run(seed, trial, options))
}

/// The command that runs one trial again and tells all its events.
pub fn command(seed: u64, trial: Trial) -> String {
    let test = match trial {
        Trial::Losses => "stripes a_put_survives",
        Trial::Churn => "stripes what_is_full",
        Trial::Keeping => "keeping",
    };
    format!("HOLD_SIM_SEED={seed} cargo test -p sim --test {test} -- --nocapture")
}

/// A put that was answered.
pub(crate) struct Answered {
    /// Which of the history's contents.
    at: usize,
    pub(crate) report: PutReport,
    /// Who acknowledged what of it.
    kept: Vec<Kept>,
}

impl World {
    /// Puts one content and notes what was acknowledged; `None` where it failed.
    pub(crate) async fn put_kept(
        &self,
        number: usize,
        len: usize,
        options: PutOptions,
        readers: &[usize],
        chance: &mut Chance,
    ) -> Option<Answered> {
        let running = self.author(number).await;
        let needle = self.history.needle();
        let mut keys = Vec::new();
        for reader in readers {
            keys.push(self.author(*reader).await.author.reader_keys()[0]);
        }
        let options = PutOptions { readers: keys, ..options };
        let walker = running.author.walker();
        let begun = Begun::new(&self.history, self.author_party(number), walker);
        let source = Bytes::from(content(chance.bits(), len, &needle));
        let putting = running.author.put(&source[..], options, Arc::new(NoProgress));
        let report = match self.within(number, &running, "put", putting).await? {
            Ok(report) => report,
            Err(error) => {
                self.history.tally("failed");
                self.history.event(format!("a put failed: {}", bytes::text(&error)));
                return None;
            }
        };
        self.history.tally(if report.full { "put in full" } else { "put partly" });
        self.history.event(format!("put {len} as {} full {}", report.profile, report.full));
        let (promise, kept) = begun.answered(&self.history, walker, &report);
        let shared = readers.iter().zip(&report.envelopes);
        let shared = shared.map(|(reader, to)| (*reader, to.address)).collect();
        let (address, full) = (report.address, report.full);
        let put = Content { author: number, bytes: source, address, full, shared, promise };
        let mut history = self.history.lock();
        history.contents.push(put);
        let at = history.contents.len() - 1;
        drop(history);
        Some(Answered { at, report, kept })
    }

    /// What a put reached in a network of so many peers with which nothing is wrong.
    fn check_calm(&self, put: &Answered, peers: usize) {
        let genesis = &self.community.genesis;
        answers::by_the_table(&self.history, &put.kept, put.report.full, peers, genesis);
    }

    /// Counts stripes of which a spare has a fragment.
    fn count_displaced(&self, number: usize, kept: &[Kept]) {
        let authors = self.authors();
        let Some(running) = &authors[number].running else { return };
        let view = running.author.walker().directory().view();
        for one in kept {
            let Kept::Stripe { id, holders, .. } = one else { continue };
            let belongs = view.stripe_holders(&(*id).into(), holders.len(), |_| false).own;
            let displaced = holders.iter().zip(&belongs).any(|(holders, own)| {
                holders.iter().any(|holder| self.community.peer(*holder) != *own)
            });
            if displaced {
                self.history.tally("path: a spare takes a fragment");
            }
        }
    }
}
