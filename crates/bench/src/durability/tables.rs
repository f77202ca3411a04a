//! The tables of `docs/operating/durability.md`.

use std::fmt::Write;

use placement::{PAGE_COPIES, Profile};
use serde::Serialize;

use super::{Pair, odds};
use crate::error::BenchError;

const SECONDS_A_YEAR: f64 = 365.25 * 86_400.0;
/// Seconds until a peer that answers no call is said to be absent.
const ABSENT_AFTER_S: f64 = 180.0;
/// Seconds until the others have heard so, and until what lacks is known: a comparison each.
const COMPARE_S: f64 = 10.0;
/// Seconds for which something must be missing before it is mended.
const SETTLE_S: f64 = 15.0;
/// Bytes a second that each peer spends on mending.
const BUDGET: f64 = 64.0 * 1024.0 * 1024.0;

/// Peers, organisations, and what is kept: each profile of the table by peers, and those with names; then copies of what is
/// lost by itself (entries, envelopes).
const ROWS: [(usize, usize, Profile); 13] = [
    (8, 4, Profile::Copies(PAGE_COPIES)),
    (17, 6, Profile::Stripe { k: 4, n: 8 }),
    (24, 6, Profile::Stripe { k: 8, n: 16 }),
    (47, 8, Profile::Stripe { k: 8, n: 24 }),
    (64, 8, Profile::Stripe { k: 16, n: 48 }),
    (1_000, 50, Profile::Stripe { k: 16, n: 48 }),
    (64, 8, Profile::LEAN),
    (100, 10, Profile::ARCHIVE),
    (100, 10, Profile::STORJ),
    (17, 6, Profile::Copies(5)),
    (24, 6, Profile::Copies(9)),
    (64, 8, Profile::Copies(14)),
    (1_000, 50, Profile::Copies(14)),
];

/// What the arithmetic assumes of the peers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Assumed {
    /// How often a peer is lost in a year, with all that it holds and for good.
    pub failures: f64,
    /// Bytes that each peer holds.
    pub held: u64,
}

impl Assumed {
    pub(super) fn checked(&self) -> Result<(), BenchError> {
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        if !(self.failures > 0.0 && self.failures <= 1e3) {
            return wrong("--failures", "more than 0, and at most 1000 a year");
        }
        if !(1..=1 << 50).contains(&self.held) {
            return wrong("--held", "from 1 byte to 1 PiB");
        }
        Ok(())
    }

    /// Hours until all that a lost peer held is made again at the others.
    ///
    /// A copy is fetched once. A fragment costs k: k - 1 that are fetched beside the one that the repairer has, and itself,
    /// sent. All others share the work.
    fn repair_hours(&self, peers: usize, k: usize) -> f64 {
        let bytes = self.held as f64 * k as f64;
        let at_work = bytes / (BUDGET * (peers - 1) as f64);
        (ABSENT_AFTER_S + 2.0 * COMPARE_S + SETTLE_S + at_work) / 3_600.0
    }
}

/// An organisation that vanishes with all its peers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Vanished {
    profile: String,
    peers: usize,
    organisations: usize,
    /// Fragments or copies that a stripe or record has left at least, less those that are enough.
    spare: usize,
    /// Bytes fetched and sent until all is made again.
    traffic: f64,
    hours: f64,
    /// What each of the others holds then, to what it held.
    grown: f64,
}

/// What it takes to mend when an organisation vanishes, each having as many peers and its even share: of every stripe
/// n / organisations fragments (of so many stripes one, where that is less than 1), which share what is fetched.
pub(super) fn vanished(assumed: &Assumed) -> Vec<Vanished> {
    let row = |&(peers, organisations, profile): &(usize, usize, Profile)| {
        let (k, n) = shape(profile);
        let gone = peers as f64 / organisations as f64;
        let left = peers as f64 - gone;
        let held = assumed.held as f64;
        let touched = (n as f64 / organisations as f64).min(1.0) * held * peers as f64 / n as f64;
        let traffic = touched * (k - 1) as f64 + held * gone;
        let noticed = ABSENT_AFTER_S + 2.0 * COMPARE_S + SETTLE_S;
        Vanished {
            profile: name(k, n),
            peers,
            organisations,
            spare: (n - k).saturating_sub(n.div_ceil(organisations)),
            traffic,
            hours: (noticed + traffic / (BUDGET * left)) / 3_600.0,
            grown: peers as f64 / left,
        }
    };
    ROWS.iter().map(row).collect()
}

/// The table of what it takes when an organisation vanishes, in Markdown.
pub(super) fn organisation(assumed: &Assumed) -> String {
    let mut table =
        "| profile | peers (organisations) | may lose then | traffic | hours | each of the others \
                     holds |\n|---|---|---|---|---|---|"
            .to_owned();
    for row in vanished(assumed) {
        let Vanished { profile, peers, organisations, spare, traffic, hours, grown } = row;
        let tib = traffic / (1_u64 << 40) as f64;
        // Writing to a string does not fail.
        let _ = write!(
            table,
            "\n| {profile} | {peers} ({organisations}) | {spare} | {tib:.1} TiB | {hours:.1} | \
             {grown:.2}x |"
        );
    }
    table
}

fn shape(profile: Profile) -> (usize, usize) {
    match profile {
        Profile::Copies(copies) => (1, copies as usize),
        Profile::Stripe { k, n } => (k as usize, n as usize),
    }
}

/// One profile.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    profile: String,
    peers: usize,
    organisations: usize,
    stored: f64,
    may_lose: usize,
    organisations_may_go: usize,
    third: f64,
    repair_hours: f64,
    a_year: f64,
}

pub(super) fn rows(assumed: &Assumed) -> Vec<Row> {
    let row = |&(peers, organisations, profile): &(usize, usize, Profile)| {
        let (k, n) = shape(profile);
        let repair_hours = assumed.repair_hours(peers, k);
        let repair = repair_hours * 3_600.0 / SECONDS_A_YEAR;
        Row {
            profile: name(k, n),
            peers,
            organisations,
            stored: n as f64 / k as f64,
            may_lose: n - k,
            organisations_may_go: odds::organisations_that_may_go(n, k, organisations),
            third: odds::at_once(peers, peers / 3, n, k),
            repair_hours,
            a_year: odds::a_year(n, k, assumed.failures, repair),
        }
    };
    ROWS.iter().map(row).collect()
}

/// The computed table, in Markdown.
pub(super) fn arithmetic(assumed: &Assumed) -> String {
    let mut table = "| profile | peers (organisations) | stored | may lose | \
                     organisations that may vanish at once | lost, a random third at once | \
                     hours to repair a lost peer | lost within a year |\n\
                     |---|---|---|---|---|---|---|---|"
        .to_owned();
    for row in rows(assumed) {
        let Row { profile, peers, organisations, stored, may_lose, organisations_may_go, .. } =
            &row;
        let (third, year) = (probability(row.third), probability(row.a_year));
        // Writing to a string does not fail.
        let _ = write!(
            table,
            "\n| {profile} | {peers} ({organisations}) | {stored:.1}x | {may_lose} | \
             {organisations_may_go} | {third} | {:.1} | {year} |",
            row.repair_hours
        );
    }
    table
}

/// How the table of what was simulated begins.
pub(super) const SIMULATED: &str = "\n| what | computed | simulated | give or take | losses seen | \
                                    stripe-years, or stripes looked at |\n\
                                    |---|---|---|---|---|---|";

pub(super) fn simulated(pair: &Pair) -> String {
    let Pair { what, computed, measured, either_way, losses, over } = pair;
    let (computed, measured) = (probability(*computed), probability(*measured));
    format!(
        "| {what} | {computed} | {measured} | {} | {losses} | {over:.0} |",
        probability(*either_way)
    )
}

/// `copies:N`, or `k/n`.
pub(super) fn name(k: usize, n: usize) -> String {
    if k == 1 { format!("copies:{n}") } else { format!("{k}/{n}") }
}

fn probability(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if value < 1e-18 => "below 1e-18".to_owned(),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::scale;

    const PAGE: &str = include_str!("../../../../docs/operating/durability.md");

    #[test]
    fn the_page_has_what_is_computed() {
        let assumed = Assumed { failures: 1.0, held: 1 << 40 };
        for table in [arithmetic(&assumed), organisation(&assumed)] {
            assert!(PAGE.contains(&table), "docs/operating/durability.md must have\n{table}");
        }
    }

    /// Beside the planner: stripes of 8/16 at 24 peers of 6 organisations, one of which vanishes.
    #[test]
    fn what_a_vanished_organisation_costs_is_what_the_planner_does() {
        let gone = (0..24).step_by(6).map(scale::peer).collect();
        let loss = scale::traffic::lose(&scale::network(24, 6, 0), 200, &gone).unwrap();
        let held = 1 << 30;
        let row = &vanished(&Assumed { failures: 1.0, held })[2];
        assert_eq!((row.profile.as_str(), row.peers, row.organisations), ("8/16", 24, 6));
        let computed = row.traffic / (held as f64 * 24.0);
        let planned = loss.traffic as f64 / loss.stored as f64;
        assert!((planned / computed - 1.0).abs() < 0.03, "{planned} and {computed}");
    }

    #[test]
    fn the_time_to_repair_is_the_sum_that_the_page_says() {
        let assumed = Assumed { failures: 1.0, held: 1 << 40 };
        // 2^40 bytes, 8 times, by 23 peers of 2^26 a second.
        let expected = (215.0 + 8.0 * 16_384.0 / 23.0) / 3_600.0;
        assert!((assumed.repair_hours(24, 8) - expected).abs() < 1e-9);
        // However little there is, it takes as long as it takes to notice.
        let little = Assumed { held: 1, ..assumed };
        assert!((little.repair_hours(24, 8) * 3_600.0 - 215.0).abs() < 1e-3);
    }

    #[test]
    fn more_failures_and_more_bytes_never_lose_less() {
        let year = |failures, held| -> Vec<f64> {
            rows(&Assumed { failures, held }).iter().map(|row| row.a_year).collect()
        };
        let base = year(1.0, 1 << 40);
        for more in [year(2.0, 1 << 40), year(1.0, 1 << 42)] {
            assert!(base.iter().zip(more).all(|(base, more)| *base < more));
        }
        assert!(Assumed { failures: f64::NAN, held: 1 }.checked().is_err());
        assert!(Assumed { failures: 1.0, held: 0 }.checked().is_err());
    }
}
