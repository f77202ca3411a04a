//! Peers that fail and are mended in virtual time, with the placement and the planner that peers run.
//!
//! ```text
//!   whole ----- a peer fails: its fragments are gone -----> missing
//!     ^                                                       |
//!     +---- T later it counts as absent, and a new, empty ----+
//!           peer has its place: plan() says what is made
//! ```
//! A stripe is lost at the moment when fewer than k of its fragments are left; then it is stored again, whole, and counted on.
//! Whatever the planner would believe is believed here: fragments of a peer that failed and does not count as absent yet
//! are taken for whole. A store at such a peer fails at once and another is asked.
//!
//! Times are years. The same seed gives the same losses. Stripes share peers, so losses come in clusters: how sure a
//! measurement is comes from runs of different seeds ([`Measured`]), not from the number of losses.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crypto::{PeerId, Place, Suite};
use placement::{SPARES, StripeNow, View, plan};

use crate::error::BenchError;
use crate::seeded::Seeded;
use crate::stop::Stop;

/// Ticks of a year in the queue of events.
const TICKS: f64 = (1_u64 << 40) as f64;
/// No peer has the fragment.
const NOBODY: u16 = u16::MAX;
/// Student's t for 99.9 % of both sides with [`SEEDS`] - 1 degrees of freedom.
const STUDENT: f64 = 3.883;
/// Runs of one measurement.
pub(super) const SEEDS: u64 = 20;

/// How long it takes to mend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Repair {
    /// Always so many years.
    Fixed(f64),
    /// So many on average, exponentially distributed.
    Exponential(f64),
}

impl Repair {
    pub(super) fn years(self) -> f64 {
        match self {
            Self::Fixed(years) | Self::Exponential(years) => years,
        }
    }

    fn draw(self, seeded: &mut Seeded) -> f64 {
        match self {
            Self::Fixed(years) => years,
            Self::Exponential(mean) => -seeded.unit().ln() * mean,
        }
    }
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) stripes: usize,
    pub(super) years: f64,
    /// Failures of a peer in a year.
    pub(super) failures: f64,
    pub(super) repair: Repair,
}

/// What came of some runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) losses: u64,
    pub(super) stripe_years: f64,
    /// Losses of a stripe in a year, and how far off that may be, 99.9 times of 100.
    pub(super) a_year: f64,
    pub(super) either_way: f64,
}

impl Measured {
    /// Of the losses of each run, all runs having as many stripe-years.
    pub(super) fn of(losses: &[u64], stripe_years: f64) -> Self {
        let rates: Vec<f64> = losses.iter().map(|losses| *losses as f64 / stripe_years).collect();
        let runs = rates.len() as f64;
        let a_year = rates.iter().sum::<f64>() / runs;
        let squares: f64 = rates.iter().map(|rate| (rate - a_year).powi(2)).sum();
        let either_way = STUDENT * (squares / (runs - 1.0) / runs).sqrt();
        let losses = losses.iter().sum();
        Self { losses, stripe_years: stripe_years * runs, a_year, either_way }
    }

    /// Whether it is within its bounds of what was computed.
    #[cfg(test)]
    fn agrees_with(&self, a_year: f64) -> bool {
        (self.a_year - a_year).abs() <= self.either_way
    }
}

impl Life {
    /// All runs, in this network. It needs more peers than are ever gone at once beside n + 4.
    pub(super) fn measure(&self, view: &View, stop: &Stop) -> Result<Measured, BenchError> {
        let losses = (1..=SEEDS).map(|seed| {
            stop.check()?;
            Ok(Run::new(self, view, seed).losses())
        });
        let losses: Vec<u64> = losses.collect::<Result<_, BenchError>>()?;
        Ok(Measured::of(&losses, self.stripes as f64 * self.years))
    }
}

/// A stripe, and where its fragments are.
struct Stripe {
    /// All peers, best first.
    rank: Vec<u16>,
    /// Who has each fragment, or had it until it failed.
    holders: Vec<u16>,
    /// How many of them have not failed.
    left: usize,
}

struct Run<'a> {
    life: &'a Life,
    view: &'a View,
    seeded: Seeded,
    stripes: Vec<Stripe>,
    alive: Vec<bool>,
    /// Stripe and fragment of whatever a peer has, and perhaps of what it has no more.
    at: Vec<Vec<(u32, u8)>>,
    /// When each peer fails, or is mended.
    events: BinaryHeap<Reverse<(u64, u16)>>,
    losses: u64,
    leaving: BTreeSet<PeerId>,
}

impl<'a> Run<'a> {
    fn new(life: &'a Life, view: &'a View, seed: u64) -> Self {
        let stripes = (0..life.stripes as u64).map(|number| {
            let name = [seed.to_be_bytes(), number.to_be_bytes()].concat();
            let mut rank = Vec::new();
            view.on_duty_into(
                &Place::new(Suite::Holdfast1.hash(&name)),
                view.len(),
                &[],
                &mut rank,
            );
            Stripe { rank, holders: vec![NOBODY; life.n], left: 0 }
        });
        let mut run = Self {
            life,
            view,
            seeded: Seeded::new(seed),
            stripes: stripes.collect(),
            alive: vec![true; view.len()],
            at: vec![Vec::new(); view.len()],
            events: BinaryHeap::new(),
            losses: 0,
            leaving: BTreeSet::new(),
        };
        (0..life.stripes).for_each(|stripe| run.store(stripe));
        (0..view.len() as u16).for_each(|peer| run.fails_after(0, peer));
        run
    }

    fn losses(mut self) -> u64 {
        let end = (self.life.years * TICKS) as u64;
        while let Some(Reverse((now, peer))) = self.events.pop().filter(|event| event.0.0 < end) {
            if self.alive[usize::from(peer)] {
                self.fail(peer);
                let after = self.life.repair.draw(&mut self.seeded);
                self.events.push(Reverse((now + (after * TICKS) as u64, peer)));
            } else {
                self.mend(peer);
                self.fails_after(now, peer);
            }
        }
        self.losses
    }

    fn fails_after(&mut self, now: u64, peer: u16) {
        let after = -self.seeded.unit().ln() / self.life.failures;
        self.events.push(Reverse((now + (after * TICKS) as u64, peer)));
    }

    /// Whole, at the first n that are there.
    fn store(&mut self, number: usize) {
        let stripe = &mut self.stripes[number];
        let there = stripe.rank.iter().filter(|peer| self.alive[usize::from(**peer)]);
        (stripe.left, stripe.holders) = (0, vec![NOBODY; self.life.n]);
        for ((holder, peer), index) in stripe.holders.iter_mut().zip(there).zip(0..=u8::MAX) {
            *holder = *peer;
            stripe.left += 1;
            self.at[usize::from(*peer)].push((number as u32, index));
        }
    }

    fn fail(&mut self, peer: u16) {
        self.alive[usize::from(peer)] = false;
        let mut had = std::mem::take(&mut self.at[usize::from(peer)]);
        had.sort_unstable();
        had.dedup();
        had.retain(|(stripe, index)| {
            self.stripes[*stripe as usize].holders[usize::from(*index)] == peer
        });
        for (number, index) in &had {
            let stripe = &mut self.stripes[*number as usize];
            if stripe.holders[usize::from(*index)] != peer {
                // Lost by another fragment here, and stored again.
                continue;
            }
            stripe.left -= 1;
            if stripe.left < self.life.k {
                self.losses += 1;
                self.store(*number as usize);
            }
        }
        self.at[usize::from(peer)] = had;
    }

    /// The peer counts as absent, and another has its place.
    fn mend(&mut self, peer: u16) {
        let had = std::mem::take(&mut self.at[usize::from(peer)]);
        self.alive[usize::from(peer)] = true;
        for (number, index) in had {
            // It is elsewhere where the stripe was lost and stored again.
            let holder = &mut self.stripes[number as usize].holders[usize::from(index)];
            if *holder == peer {
                *holder = NOBODY;
                self.make(number as usize);
            }
        }
    }

    fn make(&mut self, number: usize) {
        let (life, view) = (self.life, self.view);
        let stripe = &mut self.stripes[number];
        let id = |peer: u16| view.candidates()[usize::from(peer)].peer;
        let there = stripe.rank.iter().filter(|peer| self.alive[usize::from(**peer)]);
        let possible: Vec<PeerId> = there.take(life.n + SPARES).map(|peer| id(*peer)).collect();
        let held = stripe.holders.iter().zip(0..=u8::MAX).filter(|(peer, _)| **peer != NOBODY);
        let whole: Vec<(u8, PeerId)> = held.map(|(peer, index)| (index, id(*peer))).collect();
        let (k, n, leaving) = (life.k, life.n, &self.leaving);
        let mend = plan(&StripeNow { k, n, whole: &whole, possible: &possible, leaving });
        let moves = mend.moves.iter().filter_map(|one| {
            let from = view.index_of(&one.from)?;
            // Who has failed, though nobody knows, hands nothing over.
            self.alive[usize::from(from)].then_some((one.index, one.to))
        });
        let moved: Vec<(u8, PeerId)> = moves.collect();
        stripe.left += mend.make.len();
        for (index, to) in mend.make.into_iter().chain(moved) {
            let Some(to) = view.index_of(&to) else { continue };
            stripe.holders[usize::from(index)] = to;
            self.at[usize::from(to)].push((number as u32, index));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::durability::odds;
    use crate::scale::network;

    fn life(k: usize, n: usize, years: f64, repair: Repair) -> Life {
        Life { k, n, stripes: 20, years, failures: 1.0, repair }
    }

    #[test]
    fn copies_are_lost_as_often_as_computed() {
        let view = network(16, 4, 0);
        let life = life(1, 2, 60.0, Repair::Exponential(0.1));
        let measured = life.measure(&view, &Stop::default()).unwrap();
        let computed = 1.0 / odds::years_to_loss(2, 1, 1.0, 0.1);
        assert!(measured.losses > 500, "{measured:?}");
        assert!(measured.agrees_with(computed), "{measured:?}, computed {computed}");
        // It is sure enough to tell another answer apart: as if one of the two could not be lost.
        assert!(!measured.agrees_with(computed / 2.0) && !measured.agrees_with(2.0 * computed));
    }

    #[test]
    fn stripes_are_lost_as_often_as_computed() {
        let view = network(24, 6, 0);
        let life = life(2, 4, 40.0, Repair::Exponential(0.2));
        let measured = life.measure(&view, &Stop::default()).unwrap();
        let computed = 1.0 / odds::years_to_loss(4, 2, 1.0, 0.2);
        assert!(measured.losses > 100, "{measured:?}");
        assert!(measured.agrees_with(computed), "{measured:?}, computed {computed}");
    }

    #[test]
    fn without_repair_nothing_is_made_and_with_it_at_once_nothing_is_lost() {
        let view = network(16, 4, 0);
        let never = life(2, 4, 1e4, Repair::Fixed(1e6));
        // All 16 peers fail once, and nobody has their place: each stripe is lost as long as it can be stored again.
        let lost = Run::new(&never, &view, 1).losses();
        assert!(lost >= 20, "{lost}");
        let at_once = life(2, 4, 20.0, Repair::Fixed(1e-9));
        assert_eq!(Run::new(&at_once, &view, 1).losses(), 0);
    }

    #[test]
    fn the_same_seed_loses_the_same() {
        let view = network(16, 4, 0);
        let life = life(1, 2, 30.0, Repair::Fixed(0.1));
        let run = |seed| Run::new(&life, &view, seed).losses();
        assert_eq!(run(5), run(5));
        assert_ne!((run(5), run(6)), (run(7), run(8)));
    }

    #[test]
    fn a_measurement_is_as_sure_as_its_runs_agree() {
        let same = Measured::of(&[5; 20], 10.0);
        assert_eq!((same.a_year, same.either_way, same.losses), (0.5, 0.0, 100));
        let apart: Vec<u64> = (0..20).map(|run| run % 2 * 10).collect();
        let apart = Measured::of(&apart, 10.0);
        // The standard error of 0 and 1 by turns: 0.5130 / sqrt(20).
        assert!((apart.either_way - 3.883 * 0.114_708).abs() < 1e-5, "{apart:?}");
        assert!(apart.agrees_with(0.8) && !apart.agrees_with(0.96));
    }
}
