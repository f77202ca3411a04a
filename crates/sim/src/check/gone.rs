//! Nothing that its author ended, or whose lease ended, comes back: within a sweep no honest peer has any of it, and it stays so.

use std::collections::BTreeSet;

use store::RecordStore;

use super::holdings::Kept;
use crate::ledger::{self, Entry};
use crate::world::World;

/// What is still there of these, at peers that do not cheat.
pub(crate) fn remains(world: &World, entries: &[Entry], rogues: &BTreeSet<usize>) -> Vec<String> {
    let running = ledger::running(world, rogues);
    let mut found = Vec::new();
    for kept in entries.iter().flat_map(|entry| &entry.kept) {
        let mut ids = vec![kept.id()];
        if let Kept::Stripe { id, .. } = kept {
            ids.extend(ledger::fragments(world, id));
        }
        for (number, one) in &running {
            if ids.iter().any(|id| one.store.contains(id)) {
                found.push(format!("peer {number} has {} though it is over", kept.id()));
            }
        }
    }
    found
}
