//! Who pays is charged, and who repairs is not: an organisation's account at a peer is what that peer holds of what the
//! organisation's clients signed for, whoever brought it there, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use crypto::certificate::CLOCK_SKEW_S;
use crypto::{OrgId, RecordId};
use store::RecordStore;

use crate::ledger::{self, SWEPT_WITHIN_S};
use crate::world::{Running, World};

/// Compares the accounts of all peers that do not cheat with what they hold.
pub(crate) fn check(world: &World, rogues: &BTreeSet<usize>) {
    for (number, running) in ledger::running(world, rogues) {
        let (least, most) =
            (expected(world, &running, 0), expected(world, &running, SWEPT_WITHIN_S));
        let status = running.librarian.status().leases;
        let accounts: BTreeMap<String, u64> = status
            .by_organisation
            .into_iter()
            .map(|(organisation, paid)| (organisation, paid.bytes))
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        // What ended just now may be swept, or not yet.
        let organisations: BTreeSet<&String> = accounts.keys().chain(most.keys()).collect();
        let of = |all: &BTreeMap<String, u64>, one: &String| all.get(one).copied().unwrap_or(0);
        let right =
            |one: &&String| (of(&least, one)..=of(&most, one)).contains(&of(&accounts, one));
        if !organisations.iter().all(right) {
            let what =
                format!("peer {number} charges {accounts:?} and holds {least:?} to {most:?}");
            world.history.find("Q3", what);
        }
    }
}

/// By organisation, the largest bytes that it signed for at each place of which the peer holds the record.
/// Leases count for so long after they ended for all.
fn expected(world: &World, running: &Running, late_s: u64) -> BTreeMap<String, u64> {
    let now = world.env.clock.unix_s();
    let history = world.history.lock();
    let mut sums: BTreeMap<OrgId, u64> = BTreeMap::new();
    for (place, paid) in &history.paid {
        if !running.store.contains(&RecordId::new(*place.as_bytes())) {
            continue;
        }
        let mut largest: BTreeMap<OrgId, u64> = BTreeMap::new();
        for one in paid.iter().filter(|one| now < one.until + CLOCK_SKEW_S + late_s) {
            let bytes = largest.entry(one.organisation).or_default();
            *bytes = one.bytes.max(*bytes);
        }
        for (organisation, bytes) in largest {
            *sums.entry(organisation).or_default() += bytes;
        }
    }
    sums.into_iter().map(|(organisation, bytes)| (organisation.to_string(), bytes)).collect()
}
