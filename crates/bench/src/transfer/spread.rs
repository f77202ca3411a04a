//! Who holds what after the transfers: fragments (where there are none, records) and bytes, a peer and an organisation.
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
    /// Of the records, fragments of stripes.
    fragments: u64,
    bytes: u64,
}

/// A row of the report.
#[derive(Serialize)]
struct Spread<'a> {
    work: &'static str,
    peers: &'a [Holds],
    /// Bytes of each organisation's peers together.
    organisations: Vec<u64>,
    /// Their fragments.
    organisations_fragments: Vec<u64>,
}

/// Asks every peer, and tells.
pub(super) fn told(community: &Community, report: &mut Report) -> Result<(), BenchError> {
    let holds = community.peers.iter().enumerate().map(|(number, peer)| {
        let status = peer.status()?;
        let of = |name: &str| {
            let value = status["store"][name].as_u64();
            value.ok_or(BenchError::Answer { verb: "hold peer run".into() })
        };
        let (records, fragments, bytes) = (of("records")?, of("fragments")?, of("bytes")?);
        Ok(Holds { peer: number, organisation: peer.organisation, records, fragments, bytes })
    });
    let holds = holds.collect::<Result<Vec<_>, BenchError>>()?;
    let organisations_fragments = organisations(&holds, |one| one.fragments);
    let organisations = organisations(&holds, |one| one.bytes);
    report.ratio("fullest_peer_to_mean", fullest(holds.iter().map(|one| one.bytes)));
    report.ratio("fullest_organisation_to_mean", fullest(organisations.iter().copied()));
    if organisations_fragments.iter().any(|fragments| *fragments > 0) {
        let fragments = fullest(organisations_fragments.iter().copied());
        report.ratio("most_fragments_of_an_organisation_to_mean", fragments);
    }
    report.charts.extend(charts(&holds));
    report.run(&Spread { work: "spread", peers: &holds, organisations, organisations_fragments })
}

fn organisations(holds: &[Holds], of: fn(&Holds) -> u64) -> Vec<u64> {
    let count = holds.iter().map(|one| one.organisation + 1).max().unwrap_or(0);
    let sum =
        |organisation| holds.iter().filter(|one| one.organisation == organisation).map(of).sum();
    (0..count).map(sum).collect()
}

/// The largest to the mean.
fn fullest(bytes: impl Iterator<Item = u64> + Clone) -> f64 {
    let (count, sum) = (bytes.clone().count() as f64, bytes.clone().sum::<u64>() as f64);
    bytes.max().unwrap_or(0) as f64 / (sum / count)
}

/// Three maps: fragments a peer, bytes a peer, fragments an organisation.
fn charts(holds: &[Holds]) -> [Chart; 3] {
    // Content in copies has no fragments: what is spread is records.
    let striped = holds.iter().any(|one| one.fragments > 0);
    let (what, count): (_, fn(&Holds) -> u64) =
        if striped { ("fragments", |one| one.fragments) } else { ("records", |one| one.records) };
    let of_peers = |title: &str, up: &str, of: &dyn Fn(&Holds) -> f64| {
        let names = holds.iter().map(|one| format!("{}", one.peer + 1)).collect();
        (0..ORGANISATIONS).fold(Chart::bars(title, up, names), |chart, organisation| {
            let members = holds.iter().filter(|one| one.organisation == organisation);
            let points = members.map(|one| (one.peer as f64, of(one))).collect();
            chart.with(&format!("organisation {}", organisation + 1), points)
        })
    };
    let organisations = organisations(holds, count);
    let names = (1..=organisations.len()).map(|number| format!("organisation {number}")).collect();
    let points = organisations.iter().zip(0..).map(|(count, at)| (f64::from(at), *count as f64));
    let title = format!("How many {what} each organisation holds");
    [
        of_peers(&format!("How many {what} each peer holds, by organisation"), what, &|one| {
            count(one) as f64
        }),
        of_peers("What each peer holds, by organisation", "MB of records", &|one| {
            one.bytes as f64 / 1e6
        }),
        Chart::bars(&title, what, names).with(what, points.collect()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organisations_are_sums_and_the_fullest_is_beside_the_mean() {
        let hold = |peer, organisation, bytes| {
            let (records, fragments) = (bytes, bytes / 5);
            Holds { peer, organisation, records, fragments, bytes }
        };
        let mut holds = [hold(0, 0, 10), hold(1, 1, 20), hold(2, 2, 30), hold(3, 0, 40)];
        assert_eq!(organisations(&holds, |one| one.bytes), [50, 20, 30]);
        assert_eq!(organisations(&holds, |one| one.fragments), [10, 4, 6]);
        assert_eq!(fullest(holds.iter().map(|one| one.bytes)), 1.6);
        assert!(fullest(std::iter::empty()).is_nan(), "which is no ratio, and is left out");
        let drawn = Chart::page(&charts(&holds));
        assert!(drawn.contains("How many fragments each organisation holds"), "{drawn}");
        assert!(charts(&holds).iter().all(|chart| !chart.is_empty()));
        holds.iter_mut().for_each(|one| one.fragments = 0);
        let drawn = Chart::page(&charts(&holds));
        assert!(drawn.contains("How many records each peer holds"), "{drawn}");
    }
}
