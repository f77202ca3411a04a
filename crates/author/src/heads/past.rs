//! Which tips are of the past: others took their place long ago, and of those no holder that answered has the head that says so.
//!
//! A holder keeps the nearest 256 of the heads that a branch's tips supersede. So one that was away for longer tells as its tip
//! what it had last, and anybody may send an old head to one that does not remember what became of it. Two things together tell
//! such a head from one that a device wrote at once with others. Devices that write at once go on from a head that both saw, which is
//! told with theirs: here what is told of the two lines has nothing in common. And the version of the one was made of that of
//! the other, which their history proves.
//!
//! Limits: of more than [`TIPS_MAX`] tips none is looked at, nor more than [`STEPS_MAX`] versions, nor for longer than [`LIMIT`];
//! what is not found by then stays a tip, and so does an old head whose version was undone since. The next update takes the place of
//! these heads too, so mostly this is done once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crypto::RecordId;
use version::head::SUPERSEDES_MAX;
use version::{Branch, VersionId};

use super::{HeadTip, Heads};
use crate::objects::Object;

/// The most tips that are compared with one another: as many as one update takes the place of.
const TIPS_MAX: usize = SUPERSEDES_MAX;
/// Versions that are looked at, in all.
const STEPS_MAX: usize = 1_024;
/// How long a reader waits for them.
const LIMIT: Duration = Duration::from_secs(10);

impl Heads {
    /// Those of the tips that are of the past.
    pub(super) async fn past(
        &self,
        object: &Object,
        branch: &Branch,
        tips: &[HeadTip],
    ) -> BTreeSet<RecordId> {
        let mut past = BTreeSet::new();
        if !(2..=TIPS_MAX).contains(&tips.len()) {
            return past;
        }
        let lines: Vec<BTreeSet<RecordId>> = tips.iter().map(|tip| line(branch, tip)).collect();
        let mut left = STEPS_MAX;
        let look = async {
            for (newer, line) in tips.iter().zip(&lines) {
                // Those that it may have been made of.
                let older = tips.iter().zip(&lines).filter(|(older, other)| {
                    older.version.l < newer.version.l && line.is_disjoint(other)
                });
                let older: Vec<&HeadTip> = older.map(|(older, _)| older).collect();
                let wanted = older.iter().map(|older| (older.version.h, older.version.l));
                let wanted: BTreeMap<RecordId, u64> = wanted.collect();
                let found = made_of(object, &newer.version, &wanted, &mut left).await;
                let older = older.iter().filter(|older| found.contains(&older.version.h));
                past.extend(older.map(|older| older.id));
            }
        };
        if self.objects.author().env().within(LIMIT, Box::pin(look)).await.is_err() {
            tracing::debug!(limit = ?LIMIT, "not all that tips were made of could be looked at");
        }
        past
    }
}

/// A head, and all that it supersedes as far as is told.
fn line(branch: &Branch, tip: &HeadTip) -> BTreeSet<RecordId> {
    let (mut line, mut next) = (BTreeSet::new(), vec![tip.id]);
    while let Some(id) = next.pop() {
        if line.insert(id)
            && let Some(head) = branch.get(&id)
        {
            next.extend(&head.supersedes);
        }
    }
    line
}

/// Those of the wanted versions, which are at these depths, that one was made of.
async fn made_of(
    object: &Object,
    from: &VersionId,
    wanted: &BTreeMap<RecordId, u64>,
    left: &mut usize,
) -> BTreeSet<RecordId> {
    let mut found = BTreeSet::new();
    let Some(least) = wanted.values().min() else { return found };
    // Deepest first; of a base it is known only that it is less deep than what was made of it.
    let mut border = BTreeMap::from([((from.l, from.h), from.n)]);
    let mut seen = BTreeSet::from([from.h]);
    while found.len() < wanted.len()
        && *left > 0
        && let Some(((_, h), hint)) = border.pop_last()
    {
        *left -= 1;
        let at = match object.ahead(&h, &hint).await {
            Ok(at) => at,
            Err(error) => {
                tracing::debug!(version = %h, %error, "a history is not whole");
                continue;
            }
        };
        let depth = at.version.l.saturating_sub(1);
        for base in at.version.bases.iter() {
            if wanted.contains_key(&base) {
                found.insert(base);
            }
            if depth > *least && seen.insert(base) {
                border.insert((depth, base), at.hint);
            }
        }
    }
    found
}
