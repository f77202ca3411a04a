//! Whose duty changes when peers come and go, by sampling places.
//!
//! What must change hands is what a newcomer is ranked for, or what an absent peer held; so the ratio of what does to what must is 1
//! or the rank is wrong. In large networks one peer is met by too few of the places that can be looked at, so one in a hundred
//! joins or is absent at once, and what is told is the mean for each of them.

use std::collections::BTreeSet;

use placement::{Profile, View};
use serde::Serialize;

use super::{STORED, STRIPE_BYTES, network, peer, place};
use crate::Bench;
use crate::chart::Chart;
use crate::error::BenchError;
use crate::report::{Bar, Report};

/// Peers and organisations.
const NETWORKS: [(usize, usize); 6] =
    [(24, 6), (64, 8), (256, 16), (1_000, 50), (10_000, 100), (100_000, 200)];
/// Draws of peers for all places of one network, each event anew.
const DRAWS: usize = 20_000_000;
const DRAWS_QUICK: usize = 200_000;
const PLACES_MAX: usize = 100_000;
/// One in so many comes or goes.
const ONE_IN: usize = 100;
/// Fragments a peer that must be met before the fullest says something about the rank and not about chance.
const MEAN_MIN: f64 = 2_000.0;
const FULLEST_MAX: f64 = 1.3;

/// What an event moves.
#[derive(Clone, Debug, Serialize)]
struct Event {
    event: &'static str,
    peers: usize,
    organisations: usize,
    profile: String,
    /// Who came or went, and places that were looked at.
    who: usize,
    places: usize,
    /// Fragments that change hands, to those that must.
    moved_to_must: f64,
    /// Of [`STORED`] stripes: fragments and bytes that change hands for each who came or went.
    fragments_each: f64,
    bytes_each: f64,
}

/// How full the fullest is.
#[derive(Clone, Debug, Serialize)]
struct Fill {
    peers: usize,
    profile: String,
    mean: f64,
    fullest_to_mean: f64,
}

pub(super) fn run(peers_max: usize, bench: &Bench, report: &mut Report) -> Result<(), BenchError> {
    let mut events = Vec::new();
    bench.tell("peers     profile  event                 who  moved/must  fragments each  GB each");
    for (peers, organisations) in NETWORKS.into_iter().filter(|(peers, _)| *peers <= peers_max) {
        if bench.quick && peers > 1_000 {
            continue;
        }
        let draws = if bench.quick { DRAWS_QUICK } else { DRAWS };
        let places = (draws / peers).clamp(20, PLACES_MAX);
        let found = look(bench, peers, organisations, places)?;
        for event in &found.0 {
            bench.tell(event.line());
            report.run(event)?;
        }
        report.run(&found.1)?;
        conclude(report, &found.0, &found.1);
        events.extend(found.0);
    }
    let row = |name: &str| {
        let of = events.iter().filter(|event| event.event == name);
        of.map(|event| (event.peers as f64, event.bytes_each)).collect()
    };
    report.charts.push(
        Chart::lines(
            "Moved of 10^9 stripes of 1 MiB, for each who comes or goes",
            "peers",
            "bytes",
        )
        .log(true, true)
        .with("a peer joins", row("join"))
        .with("a peer is absent", row("absence"))
        .with("of a vanished organisation", row("organisation")),
    );
    Ok(())
}

fn look(
    bench: &Bench,
    peers: usize,
    organisations: usize,
    places: usize,
) -> Result<(Vec<Event>, Fill), BenchError> {
    let (k, n) = match Profile::by_peers(peers) {
        Profile::Stripe { k, n } => (k as usize, n as usize),
        Profile::Copies(copies) => (1, copies as usize),
    };
    let profile = Profile::by_peers(peers).to_string();
    let few = peers.div_ceil(ONE_IN);
    let (before, joined) = (network(peers, organisations, 0), network(peers, organisations, few));
    let mut counts = vec![0_u64; peers];
    let newcomers: BTreeSet<_> = (peers..peers + few).map(peer).collect();
    let away: BTreeSet<_> = (0..few).map(|number| peer(number * ONE_IN % peers)).collect();
    let vanished: BTreeSet<_> = (0..peers).step_by(organisations).map(peer).collect();
    let mut join = Counted::default();
    let (mut absence, mut organisation) = (Counted::default(), Counted::default());
    for number in 0..places as u64 {
        bench.stop.check()?;
        let place = place(number);
        let held: BTreeSet<_> = before.holders(&place, n).into_iter().collect();
        for peer in &held {
            let index = before.candidates().binary_search_by_key(peer, |one| one.peer);
            counts[index.unwrap_or_default()] += 1;
        }
        let after: BTreeSet<_> = joined.holders(&place, n).into_iter().collect();
        join.moved += after.difference(&held).count();
        join.must += after.intersection(&newcomers).count();
        for (gone, counted) in [(&away, &mut absence), (&vanished, &mut organisation)] {
            let after = before.on_duty(&place, n, |peer| gone.contains(peer));
            counted.moved += after.iter().filter(|peer| !held.contains(peer)).count();
            // Where there are fewer peers than fragments, what they have is all that there can be.
            let room = peers - gone.len() - held.difference(gone).count();
            counted.must += held.intersection(gone).count().min(room);
        }
    }
    let event = |event, who: usize, counted: Counted| {
        let fragments = counted.moved as f64 / places as f64 * STORED / who as f64;
        Event {
            event,
            peers,
            organisations,
            profile: profile.clone(),
            who,
            places,
            moved_to_must: counted.moved as f64 / counted.must as f64,
            fragments_each: fragments,
            bytes_each: fragments * STRIPE_BYTES / k as f64,
        }
    };
    let events = vec![
        event("join", few, join),
        event("absence", few, absence),
        event("organisation", vanished.len(), organisation),
    ];
    Ok((events, fill(&before, profile.clone(), &counts)))
}

#[derive(Default)]
struct Counted {
    moved: usize,
    must: usize,
}

fn fill(view: &View, profile: String, counts: &[u64]) -> Fill {
    let peers = view.len();
    let mean = counts.iter().sum::<u64>() as f64 / peers as f64;
    let fullest = counts.iter().copied().max().unwrap_or(0) as f64;
    let fullest_to_mean = if mean >= MEAN_MIN { fullest / mean } else { f64::NAN };
    Fill { peers, profile, mean, fullest_to_mean }
}

fn conclude(report: &mut Report, events: &[Event], fill: &Fill) {
    for event in events {
        let Event { event, peers, moved_to_must, .. } = event;
        let name = format!("{event}, {peers} peers: fragments that move, to those that must");
        report.bars.push(Bar::at_most(name, *moved_to_must, 1.0));
    }
    if fill.fullest_to_mean.is_finite() {
        let name = format!("{} peers: fullest to mean", fill.peers);
        report.ratio(&name, fill.fullest_to_mean);
        report.bars.push(Bar::at_most(name, fill.fullest_to_mean, FULLEST_MAX));
    }
}

impl Event {
    fn line(&self) -> String {
        let Self { event, peers, profile, who, moved_to_must, fragments_each, .. } = self;
        let gb = self.bytes_each / 1e9;
        format!(
            "{peers:<9} {profile:<8} {event:<20} {who:>5}  {moved_to_must:>9.4}  \
             {fragments_each:>14.0} {gb:>8.0}"
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::Stop;

    fn bench() -> Bench {
        let (program, dir) = (std::path::PathBuf::new(), None);
        Bench { program, dir, quick: true, stop: Stop::default(), tell: Box::new(|_| {}) }
    }

    #[test]
    fn only_what_must_moves_and_it_is_the_share_of_who_comes_or_goes() {
        let (events, fill) = look(&bench(), 64, 8, 60).unwrap();
        for event in &events {
            assert!((event.moved_to_must - 1.0).abs() < 1e-9, "{event:?}");
            // Each of 64 peers has 48 / 64 of the stripes, but for chance and for who comes.
            let share = event.fragments_each / STORED;
            assert!((0.55..0.95).contains(&share), "{event:?}");
            assert!((event.bytes_each / event.fragments_each - 65_536.0).abs() < 1e-6);
        }
        assert!((fill.mean - 45.0).abs() < 1e-9, "60 places of 48 at 64 peers");
        let mut report = Report::new("scale", true);
        conclude(&mut report, &events, &fill);
        assert!(
            report.is_met() && report.bars.len() == 3,
            "too few to say how full the fullest is"
        );
    }

    #[test]
    fn a_rank_that_moves_too_much_misses_its_bar() {
        let (mut events, mut fill) = look(&bench(), 24, 6, 40).unwrap();
        events[0].moved_to_must = 1.01;
        fill.fullest_to_mean = 1.31;
        let mut report = Report::new("scale", true);
        conclude(&mut report, &events, &fill);
        let missed: Vec<bool> = report.bars.iter().map(|bar| bar.ok).collect();
        assert_eq!(missed, [false, true, true, false]);
    }
}
