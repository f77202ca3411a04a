//! What mending costs: every plan carried out, and its traffic counted.
//!
//! A stripe that lost j fragments costs the repairer k - 1 that it fetches beside its own and j that it sends; a copy
//! costs itself. So the traffic goes by what was lost. It is measured against what is stored (networks of 24, 96 and 384 peers, each with
//! as much at a peer, one peer lost in each), and against what was lost (1 to 8 of 384).

use std::collections::{BTreeMap, BTreeSet};

use crypto::{PeerId, Place};
use placement::{SPARES, StripeNow, View, plan};
use serde::Serialize;

use super::{network, peer, place};
use crate::Bench;
use crate::chart::Chart;
use crate::error::BenchError;
use crate::report::{Bar, Report};

/// Peers and organisations; what is stored grows with them.
const SIZES: [(usize, usize); 3] = [(24, 6), (96, 8), (384, 16)];
/// The stripes, the same at each size.
const K: usize = 8;
const N: usize = 16;
const COPIES: usize = 3;
/// Stripes and copies for each peer of the network.
const EACH: usize = 100;
const EACH_QUICK: usize = 10;
/// Peers lost at once in the largest network.
const LOST: [usize; 4] = [1, 2, 4, 8];
/// How far traffic for one loss may differ between the sizes, and how far from in proportion it may be. Where j fragments of a stripe
/// are lost together they share k - 1 fetches, which is less than in proportion: with 8 of 384 lost about a seventh.
const APART_MAX: f64 = 1.1;
const PROPORTION_MAX: f64 = 1.05;
const MINIMUM_MAX: f64 = 1.0;

/// What one loss cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Loss {
    peers: usize,
    lost_peers: usize,
    stripes: usize,
    /// Fragments stored, lost, fetched and sent.
    pub(crate) stored: usize,
    lost: usize,
    pub(crate) traffic: usize,
    /// The sum of k - 1 + j over the stripes.
    least: usize,
    /// Copies stored, lost, and fetched.
    copies_stored: usize,
    copies_lost: usize,
    copies_traffic: usize,
    /// Fragments and copies that moved or were dropped when the lost came back with what they had.
    moved_back: usize,
    dropped_back: usize,
}

impl Loss {
    fn for_each_lost(&self) -> f64 {
        self.traffic as f64 / self.lost as f64
    }

    fn line(&self) -> String {
        let Self { peers, lost_peers, stored, lost, traffic, dropped_back, .. } = self;
        format!(
            "{peers:>5} {lost_peers:>5} {stored:>8} {lost:>6} {traffic:>8} {:>14.2} {:>13.4} \
             {:>15} {dropped_back:>18}",
            self.for_each_lost(),
            *traffic as f64 / self.least as f64,
            self.copies_traffic,
        )
    }
}

pub(super) fn run(bench: &Bench, report: &mut Report) -> Result<(), BenchError> {
    let each = if bench.quick { EACH_QUICK } else { EACH };
    bench.tell(format!(
        "\n{K}/{N}\npeers  lost   stored   lost  traffic  for each lost  to the least  \
         copies fetched  dropped when back"
    ));
    let mut losses = Vec::new();
    let largest = SIZES[SIZES.len() - 1];
    let one = SIZES.into_iter().map(|size| (size, 1));
    let many = LOST.into_iter().skip(1).map(|lost| (largest, lost));
    for ((peers, organisations), lost) in one.chain(many) {
        bench.stop.check()?;
        let gone = (0..lost).map(peer).collect();
        let loss = lose(&network(peers, organisations, 0), peers * each, &gone)?;
        bench.tell(loss.line());
        report.run(&loss)?;
        losses.push(loss);
    }
    conclude(report, &losses);
    Ok(())
}

/// Stores, loses, mends, and brings back.
pub(crate) fn lose(
    view: &View,
    stripes: usize,
    gone: &BTreeSet<PeerId>,
) -> Result<Loss, BenchError> {
    let mut loss = Loss {
        peers: view.len(),
        lost_peers: gone.len(),
        stripes,
        stored: stripes * N,
        lost: 0,
        traffic: 0,
        least: 0,
        copies_stored: stripes * COPIES,
        copies_lost: 0,
        copies_traffic: 0,
        moved_back: 0,
        dropped_back: 0,
    };
    for number in 0..stripes as u64 {
        stripe(view, &place(number), gone, &mut loss)?;
        let place = place(number + stripes as u64);
        let held: BTreeSet<PeerId> = view.holders(&place, COPIES).into_iter().collect();
        let now = view.on_duty(&place, COPIES, |peer| gone.contains(peer));
        loss.copies_lost += held.intersection(gone).count();
        loss.copies_traffic += now.iter().filter(|peer| !held.contains(peer)).count();
    }
    Ok(loss)
}

fn stripe(
    view: &View,
    place: &Place,
    gone: &BTreeSet<PeerId>,
    loss: &mut Loss,
) -> Result<(), BenchError> {
    let leaving = BTreeSet::new();
    let planned = |whole: &BTreeMap<u8, PeerId>, back: &[(u8, PeerId)], possible: &[PeerId]| {
        let whole: Vec<_> = whole.iter().map(|(index, peer)| (*index, *peer)).collect();
        let whole = [&whole, back].concat();
        plan(&StripeNow { k: K, n: N, whole: &whole, possible, leaving: &leaving })
    };
    let own = view.holders(place, N);
    let stored: BTreeMap<u8, PeerId> = (0..=u8::MAX).zip(own).collect();
    let (lost, mut whole): (BTreeMap<_, _>, BTreeMap<_, _>) =
        stored.into_iter().partition(|(_, peer)| gone.contains(peer));
    if lost.is_empty() {
        return Ok(());
    }
    let possible = view.on_duty(place, N + SPARES, |peer| gone.contains(peer));
    let mend = planned(&whole, &[], &possible);
    loss.lost += lost.len();
    loss.least += K - 1 + lost.len();
    loss.traffic += if mend.make.is_empty() { 0 } else { K - 1 + mend.make.len() };
    loss.traffic += mend.moves.len();
    whole.extend(mend.make);
    if whole.len() < N || !planned(&whole, &[], &possible).is_empty() {
        return Err(BenchError::Wrong("a stripe is not whole when its plan was carried out"));
    }
    let back: Vec<_> = lost.into_iter().collect();
    let mend = planned(&whole, &back, &view.on_duty(place, N + SPARES, |_| false));
    loss.moved_back += mend.moves.len() + mend.make.len();
    loss.dropped_back += mend.surplus.len();
    Ok(())
}

fn conclude(report: &mut Report, losses: &[Loss]) {
    let one: Vec<&Loss> = losses.iter().filter(|loss| loss.lost_peers == 1).collect();
    let largest = one.last().map_or(0, |loss| loss.peers);
    let many: Vec<&Loss> = losses.iter().filter(|loss| loss.peers == largest).collect();
    let each = |loss: &&Loss| loss.for_each_lost();
    let (most, least) = one
        .iter()
        .map(each)
        .fold((0.0_f64, f64::INFINITY), |(most, least), each| (most.max(each), least.min(each)));
    let name = "traffic for each fragment of one lost peer, most to least of three sizes stored";
    report.bars.push(Bar::at_most(name, most / least, APART_MAX));
    let first = many.first().map_or(f64::NAN, each);
    let beyond = many.iter().map(each).fold(0.0, f64::max) / first;
    let name = "traffic for each fragment of 1 to 8 lost peers, most to that of 1";
    report.bars.push(Bar::at_most(name, beyond, PROPORTION_MAX));
    let sum = |value: fn(&Loss) -> usize| losses.iter().map(value).sum::<usize>() as f64;
    let least = sum(|loss| loss.traffic) / sum(|loss| loss.least);
    report.bars.push(Bar::at_most("traffic to the least, k - 1 + j a stripe", least, MINIMUM_MAX));
    let copies = sum(|loss| loss.copies_traffic) / sum(|loss| loss.copies_lost);
    report.bars.push(Bar::at_most("copies fetched to copies lost", copies, MINIMUM_MAX));
    let back = sum(|loss| loss.moved_back);
    report.bars.push(Bar::at_most("fragments that move when the lost come back", back, 0.0));
    let points = |losses: &[&Loss], x: fn(&Loss) -> usize| -> Vec<(f64, f64)> {
        losses.iter().map(|loss| (x(loss) as f64, loss.traffic as f64)).collect()
    };
    report.charts.push(
        Chart::lines("Mending one peer's share by what is stored", "fragments stored", "traffic")
            .log(true, false)
            .with("fragments", points(&one, |loss| loss.stored)),
    );
    report.charts.push(
        Chart::lines("Mending 1 to 8 peers' shares by what was lost", "fragments lost", "traffic")
            .with("fragments", points(&many, |loss| loss.lost)),
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn first(lost: usize) -> BTreeSet<PeerId> {
        (0..lost).map(peer).collect()
    }

    #[test]
    fn one_lost_peer_costs_k_for_each_of_its_fragments() {
        let view = network(24, 6, 0);
        let loss = lose(&view, 60, &first(1)).unwrap();
        assert!(loss.lost > 20, "{loss:?}");
        assert_eq!(loss.traffic, K * loss.lost);
        assert_eq!((loss.traffic, loss.copies_traffic), (loss.least, loss.copies_lost));
        // What was made stays or what came back does: one of the two is dropped, and nothing is sent.
        assert_eq!((loss.moved_back, loss.dropped_back), (0, loss.lost));
    }

    #[test]
    fn fragments_lost_together_share_what_is_fetched() {
        let loss = lose(&network(24, 6, 0), 60, &first(4)).unwrap();
        assert!(loss.traffic < K * loss.lost && loss.traffic == loss.least, "{loss:?}");
    }

    #[test]
    fn traffic_that_grows_with_what_is_stored_misses_its_bar() {
        let base = lose(&network(24, 6, 0), 60, &first(1)).unwrap();
        let of = |peers, lost_peers, part: usize| Loss {
            peers,
            lost_peers,
            traffic: base.traffic * part / 10,
            ..base
        };
        let met = |losses: &[Loss]| {
            let mut report = Report::new("scale", true);
            conclude(&mut report, losses);
            report.bars.iter().map(|bar| bar.ok).collect::<Vec<bool>>()
        };
        assert_eq!(met(&[of(24, 1, 10), of(96, 1, 10), of(96, 2, 10)]), [true; 5]);
        assert_eq!(met(&[of(24, 1, 10), of(96, 1, 12)])[..3], [false, true, false]);
        assert_eq!(met(&[of(24, 1, 10), of(96, 1, 10), of(96, 2, 11)])[..3], [true, false, false]);
    }
}
