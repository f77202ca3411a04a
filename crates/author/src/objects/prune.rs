//! Which of several versions are made of none of the others.
//!
//! Peers lag, so one names as tip what another knows a successor of. From all of them the histories are walked, deepest first, as far
//! down as the least deep of them: what is met on the way is no tip. Usually that is a step or two.

use std::collections::{BTreeMap, BTreeSet};

use crypto::RecordId;
use version::{Bases, Hint, Version};

use super::Object;
use super::tips::Tip;

/// Versions that are looked at on the way, at most; what was not met by then stays.
const STEPS_MAX: usize = 4_096;

impl Object {
    /// Those that no other was made of, and whether that is sure.
    pub(crate) async fn without_ancestors(&self, all: Vec<(Tip, Version)>) -> (Vec<Tip>, bool) {
        let mut left: BTreeMap<RecordId, Tip> =
            all.iter().map(|(tip, _)| (tip.id.h, tip.clone())).collect();
        let mut border: BTreeMap<(u64, RecordId), (Bases, Hint)> = BTreeMap::new();
        for (tip, version) in &all {
            border.insert((tip.id.l, tip.id.h), (version.bases, tip.id.n));
        }
        let mut seen: BTreeSet<RecordId> = left.keys().copied().collect();
        let mut whole = true;
        for _ in 0..STEPS_MAX {
            let least = left.values().map(|tip| tip.id.l).min();
            let Some(((l, _), (bases, hint))) = border.pop_last() else { break };
            if left.len() < 2 || least.is_none_or(|least| l <= least) {
                return (left.into_values().collect(), whole);
            }
            for base in bases.iter() {
                left.remove(&base);
                // One that is a tip itself is in the border; what lies below the least deep tip leads to none.
                if !seen.insert(base) || least.is_some_and(|least| l <= least + 1) {
                    continue;
                }
                match self.ahead(&base, &hint).await {
                    Ok(found) => {
                        let key = (found.version.l, base);
                        border.insert(key, (found.version.bases, found.hint));
                    }
                    Err(error) => {
                        tracing::debug!(version = %base, %error, "a history is not whole");
                        whole = false;
                    }
                }
            }
        }
        let whole = whole && (left.len() < 2 || border.is_empty());
        (left.into_values().collect(), whole)
    }
}
