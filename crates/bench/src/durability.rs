//! `hold bench durability`: how often data is lost, computed for each profile, and simulated where it can be seen.
//!
//! What a profile is made for is too rare to be seen: no simulation loses a stripe of 8/16 whose holders are mended within hours.
//! So the arithmetic ([`odds`]) is checked where losses are frequent, that is where peers are mended slowly, by the planner
//! itself ([`life`]) over as many stripe-years as it takes; and then used where they are not. What is assumed stands in
//! `docs/operating/durability.md`, whose tables this prints.
//!
//! Pure but for its output: no process is started and no file written.

mod life;
mod odds;
mod tables;

use serde::Serialize;

use self::life::{Life, Measured, Repair, SEEDS};
use crate::Bench;
use crate::chart::Chart;
use crate::error::BenchError;
use crate::report::{Bar, Report};
use crate::scale::network;
use crate::seeded::Seeded;

pub use self::tables::Assumed;
use self::tables::arithmetic;

/// Failures of a peer in a year that the simulation has; its times to repair are chosen beside it.
const FAILURES: f64 = 1.0;
/// Stripes of one simulated network. Few, over many years: stripes of one network are lost together, so that ten years of one say more
/// than a year of ten.
const STRIPES: usize = 10;
/// A quick run has as many years, or so many times as long as a repair takes.
const QUICK: (f64, f64) = (40.0, 60.0);
/// What is simulated: k, n, stripe-years, repair. Nothing wider: a stripe of 16/48 is lost where nearly half of all peers
/// are gone at one time, and then all stripes are, so that no number of them says much.
const LIVES: [(usize, usize, f64, Repair); 7] = [
    (1, 3, 300e3, Repair::Exponential(0.05)),
    (1, 3, 1e6, Repair::Fixed(0.01)),
    (4, 8, 100e3, Repair::Exponential(0.1)),
    (4, 8, 200e3, Repair::Fixed(0.05)),
    (8, 16, 50e3, Repair::Exponential(0.25)),
    (10, 16, 50e3, Repair::Exponential(0.1)),
    (8, 24, 50e3, Repair::Exponential(0.5)),
];
/// Random thirds lost at once: peers, organisations, k, n.
const THIRDS: [(usize, usize, usize, usize); 5] =
    [(24, 6, 1, 3), (64, 8, 4, 8), (96, 8, 8, 16), (1_000, 50, 8, 16), (1_000, 50, 8, 24)];
/// Where fewer losses than this were to be seen, none is no contradiction.
const SEEN_MIN: f64 = 10.0;
/// Thirds drawn, and places looked at in each.
const DRAWN: (usize, usize) = (400, 2_000);
const DRAWN_QUICK: (usize, usize) = (50, 100);

/// `hold bench durability`.
#[derive(Clone, Copy, Debug)]
pub struct Durability {
    /// What the computed table assumes.
    pub assumed: Assumed,
}

/// A simulated figure beside the computed one.
#[derive(Clone, Debug, Serialize)]
struct Pair {
    what: String,
    computed: f64,
    measured: f64,
    /// How far off the measured one may be, 99.9 times of 100.
    either_way: f64,
    losses: u64,
    /// Stripe-years, or stripes that were in a third.
    over: f64,
}

impl Durability {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        self.assumed.checked()?;
        let mut report = Report::new("durability", bench.quick);
        report.run(&self.assumed)?;
        let rows = tables::rows(&self.assumed);
        rows.iter().try_for_each(|row| report.run(row))?;
        tables::vanished(&self.assumed).iter().try_for_each(|row| report.run(row))?;
        bench.tell(arithmetic(&self.assumed));
        bench.tell(format!("\n{}", tables::organisation(&self.assumed)));
        bench.tell(tables::SIMULATED);
        let mut pairs = Vec::new();
        for life in LIVES {
            pairs.push(lives(bench, life)?);
            bench.tell(tables::simulated(&pairs[pairs.len() - 1]));
        }
        for third in THIRDS {
            pairs.push(thirds(bench, third)?);
            bench.tell(tables::simulated(&pairs[pairs.len() - 1]));
        }
        pairs.iter().try_for_each(|pair| report.run(pair))?;
        conclude(&mut report, &pairs);
        Ok(report)
    }
}

/// One profile's life.
fn lives(
    bench: &Bench,
    (k, n, stripe_years, repair): (usize, usize, f64, Repair),
) -> Result<Pair, BenchError> {
    let whole = stripe_years / STRIPES as f64 / SEEDS as f64;
    let years = if bench.quick { whole.min(QUICK.0.max(QUICK.1 * repair.years())) } else { whole };
    let life = Life { k, n, stripes: STRIPES, years, failures: FAILURES, repair };
    let measured = life.measure(&network(2 * n + 16, 8, 0), &bench.stop)?;
    let (computed, law) = match repair {
        Repair::Exponential(mean) => {
            (1.0 / odds::years_to_loss(n, k, FAILURES, mean), "on average")
        }
        Repair::Fixed(years) => (odds::often(n, k, FAILURES, years), "always"),
    };
    let days = repair.years() * 365.25;
    let what = format!("{}, mended after {days:.1} days {law}", tables::name(k, n));
    Ok(pair(what, computed, measured))
}

/// Random thirds of the peers, lost at once: how many of the stripes they take.
fn thirds(
    bench: &Bench,
    (peers, organisations, k, n): (usize, usize, usize, usize),
) -> Result<Pair, BenchError> {
    let view = network(peers, organisations, 0);
    let (draws, places) = if bench.quick { DRAWN_QUICK } else { DRAWN };
    let mut losses = Vec::new();
    let mut seeded = Seeded::new(3);
    let mut holders = vec![Vec::new(); places];
    for (number, holders) in holders.iter_mut().enumerate() {
        view.on_duty_into(&crate::scale::place(number as u64), n, &[], holders);
    }
    for _ in 0..SEEDS {
        bench.stop.check()?;
        let mut lost = 0;
        for _ in 0..draws / SEEDS as usize {
            let gone = draw(&mut seeded, peers, peers / 3);
            let left = |holders: &[u16]| {
                holders.iter().filter(|holder| !gone[usize::from(**holder)]).count()
            };
            lost += holders.iter().filter(|holders| left(holders) < k).count() as u64;
        }
        losses.push(lost);
    }
    let over = (draws / SEEDS as usize * places) as f64;
    let what = format!("{}, a random third of {peers} peers at once", tables::name(k, n));
    Ok(pair(what, odds::at_once(peers, peers / 3, n, k), Measured::of(&losses, over)))
}

/// Which of them: any `some` of `all`, each set as likely.
fn draw(seeded: &mut Seeded, all: usize, some: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..all).collect();
    let mut drawn = vec![false; all];
    for at in 0..some {
        order.swap(at, at + seeded.below(all - at));
        drawn[order[at]] = true;
    }
    drawn
}

fn pair(what: String, computed: f64, measured: Measured) -> Pair {
    Pair {
        what,
        computed,
        measured: measured.a_year,
        either_way: measured.either_way,
        losses: measured.losses,
        over: measured.stripe_years,
    }
}

fn conclude(report: &mut Report, pairs: &[Pair]) {
    for pair in pairs {
        let name = format!("{}: simulated less computed, in widths of its bounds", pair.what);
        // Nothing seen where next to nothing was to be seen is as it should be.
        let unseen = pair.losses == 0 && pair.computed * pair.over < SEEN_MIN;
        let off = (pair.measured - pair.computed).abs() / pair.either_way;
        report.bars.push(Bar::at_most(name, if unseen { 0.0 } else { off }, 1.0));
        report
            .ratio(format!("{}, simulated to computed", pair.what), pair.measured / pair.computed);
    }
    let points = |value: fn(&Pair) -> f64| {
        pairs.iter().enumerate().map(|(at, pair)| (at as f64, value(pair))).collect()
    };
    let title = "Loss of a stripe, computed and simulated (in the order of the table)";
    report.charts.push(
        Chart::lines(title, "row", "a year, or a third")
            .log(false, true)
            .with("simulated", points(|pair| pair.measured))
            .beside("computed", points(|pair| pair.computed)),
    );
    let slow = (0..=12).map(|step| 10_f64.powf(-4.0 + f64::from(step) / 4.0));
    let chart = Chart::lines("Loss of a stripe in a year", "days to repair", "probability");
    let profiles = [(1, 3), (4, 8), (8, 16), (8, 24), (16, 48)];
    report.charts.push(profiles.iter().fold(chart.log(true, true), |chart, (k, n)| {
        let points = slow.clone().map(|t| (t * 365.25, odds::a_year(*n, *k, FAILURES, t)));
        let points = points.filter(|(_, loss)| *loss > 1e-30).collect();
        chart.with(&tables::name(*k, *n), points)
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_is_a_third_and_each_peer_is_as_likely() {
        let mut seeded = Seeded::new(1);
        let mut counts = [0_u32; 24];
        for _ in 0..6_000 {
            let drawn = draw(&mut seeded, 24, 8);
            assert_eq!(drawn.iter().filter(|one| **one).count(), 8);
            (counts.iter_mut().zip(drawn)).for_each(|(count, one)| *count += u32::from(one));
        }
        assert!(counts.iter().all(|count| (1_850..2_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_simulation_that_is_off_misses_its_bar() {
        let of = |measured, losses| Pair {
            what: "4/8".to_owned(),
            computed: 0.02,
            measured,
            either_way: 0.001,
            losses,
            over: 1e4,
        };
        let met = |pair| {
            let mut report = Report::new("durability", true);
            conclude(&mut report, &[pair]);
            report.is_met()
        };
        assert!(met(of(0.0205, 205)));
        assert!(!met(of(0.0215, 215)));
        assert!(!met(of(0.0, 0)), "none of the 200 that there should be");
        assert!(met(Pair { computed: 1e-6, either_way: 0.0, ..of(0.0, 0) }));
    }
}
