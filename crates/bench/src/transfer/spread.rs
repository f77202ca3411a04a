//! Who holds what after the transfers: records and bytes a peer, and an organisation.
//!
//! Storj's distribution maps, of peers instead of countries. It is told and drawn, and promises
//! nothing: what a network of so few peers keeps is as uneven as nine draws are.

use serde::Serialize;

use crate::chart::Chart;
use crate::community::{Community, ORGANISATIONS};
use crate::error::BenchError;
use crate::report::Report;

/// What one peer holds.
#[derive(Clone, Debug, Serialize)]
struct Holds {
    peer: usize,
    organisation: usize,
    records: u64,
    bytes: u64,
}

/// A row of the report.
#[derive(Serialize)]
struct Spread<'a> {
    work: &'static str,
    peers: &'a [Holds],
    /// Bytes of each organisation's peers together.
    organisations: Vec<u64>,
}

/// Asks every peer, and tells.
pub(super) fn told(community: &Community, report: &mut Report) -> Result<(), BenchError> {
    let holds = community.peers.iter().enumerate().map(|(number, peer)| {
        let status = peer.status()?;
        let of = |name: &str| {
            let value = status["store"][name].as_u64();
            value.ok_or(BenchError::Answer { verb: "peer run".into() })
        };
        let (records, bytes) = (of("records")?, of("bytes")?);
        Ok(Holds { peer: number, organisation: peer.organisation, records, bytes })
    });
    let holds = holds.collect::<Result<Vec<_>, BenchError>>()?;
    let organisations = organisations(&holds);
    report.ratio("fullest_peer_to_mean", fullest(holds.iter().map(|one| one.bytes)));
    report.ratio("fullest_organisation_to_mean", fullest(organisations.iter().copied()));
    report.charts.push(chart(&holds));
    report.run(&Spread { work: "spread", peers: &holds, organisations })
}

fn organisations(holds: &[Holds]) -> Vec<u64> {
    let count = holds.iter().map(|one| one.organisation + 1).max().unwrap_or(0);
    let sum = |organisation| {
        let of = holds.iter().filter(|one| one.organisation == organisation);
        of.map(|one| one.bytes).sum()
    };
    (0..count).map(sum).collect()
}

/// The largest to the mean.
fn fullest(bytes: impl Iterator<Item = u64> + Clone) -> f64 {
    let (count, sum) = (bytes.clone().count() as f64, bytes.clone().sum::<u64>() as f64);
    bytes.max().unwrap_or(0) as f64 / (sum / count)
}

fn chart(holds: &[Holds]) -> Chart {
    let names = holds.iter().map(|one| format!("{}", one.peer + 1)).collect();
    let chart = Chart::bars("What each peer holds, by organisation", "MB of records", names);
    (0..ORGANISATIONS).fold(chart, |chart, organisation| {
        let of = holds.iter().filter(|one| one.organisation == organisation);
        let points = of.map(|one| (one.peer as f64, one.bytes as f64 / 1e6)).collect();
        chart.with(&format!("organisation {}", organisation + 1), points)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organisations_are_sums_and_the_fullest_is_beside_the_mean() {
        let hold = |peer, organisation, bytes| Holds { peer, organisation, records: 1, bytes };
        let holds = [hold(0, 0, 10), hold(1, 1, 20), hold(2, 2, 30), hold(3, 0, 40)];
        assert_eq!(organisations(&holds), [50, 20, 30]);
        assert_eq!(fullest(holds.iter().map(|one| one.bytes)), 1.6);
        assert!(fullest(std::iter::empty()).is_nan(), "which is no ratio, and is left out");
        assert!(!chart(&holds).is_empty());
    }
}
