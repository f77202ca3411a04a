//! Reads while some of the peers are gone: as many as the profile may lose.
//!
//! The same content before and after they were killed, in the same run. Nobody repairs anything
//! meanwhile, and every read is a new process, which has to find out who is gone.

use std::path::Path;

use super::{content, get, settle};
use crate::community::{Community, Home};
use crate::error::BenchError;
use crate::limit::Bound;
use crate::percentiles::middle;
use crate::report::{Bar, Report};
use crate::{Bench, size};
use std::time::Duration;

/// The part of the healthy rate that is promised.
const BAR: f64 = 0.7;

/// What is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'a> {
    pub(super) file: &'a Path,
    pub(super) address: &'a str,
    pub(super) profile: placement::Profile,
}

/// Reads, kills the last `lost` peers, and reads again, each so often. It ends with fewer peers.
pub(super) fn run(
    bench: &Bench,
    community: &mut Community,
    home: &Home,
    stored: Stored,
    (lost, tries): (usize, usize),
    (bound, keyring): (&Bound, Duration),
    report: &mut Report,
) -> Result<(), BenchError> {
    let out = community.path().join("out");
    let mut rates = Vec::new();
    for work in ["get, all peers well", "get, peers killed"] {
        let mut gets = Vec::new();
        for _ in 0..tries {
            settle(bench, community)?;
            let mut one = get(bench, community, home, stored.address, &out, bound, keyring)?;
            one.work = work;
            content::same(stored.file, &out, &bench.stop)?;
            std::fs::remove_file(&out).map_err(BenchError::io("remove", &out))?;
            bench.tell(format!("{work}: {:.0} MB/s", one.mb_s));
            report.run(&one)?;
            gets.push(one);
        }
        community.check()?;
        // Of an even number the faster of those that the others are held against, and the slower of these.
        if rates.is_empty() {
            rates.push(middle(&gets, |get| -get.mb_s).clone());
            community.kill_last(lost);
        } else {
            rates.push(middle(&gets, |get| get.mb_s).clone());
        }
    }
    let kept = rates[1].mb_s / rates[0].mb_s;
    report.ratio("get_degraded_to_well", kept);
    let name = format!(
        "get {} of {} with {lost} peers killed, to before",
        size::text(rates[0].bytes),
        stored.profile
    );
    report.bars.push(Bar::at_least(name, kept, BAR));
    Ok(())
}
