//! The other side of an audit: chunks of records here, for peers that ask.
//!
//! A record that is not here though it is counted, or that the disk damaged, is counted no more: so the next comparison finds
//! that it lacks, and it is fetched.

use std::time::Duration;

use crypto::{PeerId, Suite};
use document::proof::prove_chunk;
use document::{Kind, Record};
use env::calls::CallError;
use env::calls::keep::{ChunkProof, PROVE_MAX, ProveAt};

use super::{Keeping, locked};
use crate::core::Core;

/// Challenges answered at once: each has one record in memory at a time.
pub(super) const PROVEN_AT_ONCE: usize = 4;
/// When a peer whose last challenge is not answered yet should come again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A peer's challenge in work, until dropped.
struct OneOf<'a> {
    keeping: &'a Keeping,
    caller: PeerId,
}

impl<'a> OneOf<'a> {
    fn begin(keeping: &'a Keeping, caller: PeerId) -> Option<Self> {
        locked(&keeping.proved).insert(caller).then_some(Self { keeping, caller })
    }
}

impl Drop for OneOf<'_> {
    fn drop(&mut self) {
        locked(&self.keeping.proved).remove(&self.caller);
    }
}

impl Keeping {
    /// Proves chunks, as far as their records are here whole.
    pub(super) async fn proven(
        &self,
        core: &Core,
        caller: PeerId,
        asks: Vec<ProveAt>,
    ) -> Result<Vec<Option<ChunkProof>>, CallError> {
        if asks.len() > PROVE_MAX {
            let reason = format!("{} chunks to prove; at most {PROVE_MAX}", asks.len());
            return Err(CallError::Invalid { reason });
        }
        if core.genesis.suite != Suite::Holdfast1 {
            let reason = "a network of libri-1 has no proofs of chunks: use Verify".to_owned();
            return Err(CallError::Invalid { reason });
        }
        // One at a time of a peer: others' deadlines must not pass behind those of one that asks for all it can.
        let Some(_one) = OneOf::begin(self, caller) else {
            return Err(CallError::Busy { retry_after: RETRY_AFTER });
        };
        // It is never closed.
        let _permit = self.proving.acquire().await.ok();
        let mut proofs = Vec::with_capacity(asks.len());
        for ProveAt { id, chunk } in asks {
            let record = match core.shelf.get(&id).await? {
                Some(record) => Some(record),
                None => core.objects.kept(&id).await.map(|(record, _)| record),
            };
            let Some(record) = record else {
                self.is_not_here(core, id);
                proofs.push(None);
                continue;
            };
            if !self.may_ask(&caller, &record) {
                proofs.push(None);
                continue;
            }
            let bytes = record.bytes;
            proofs.push(core.env.cpu(move || prove_chunk(&bytes, chunk)).await);
        }
        let given = proofs.iter().flatten().count();
        core.metrics.audit.given.inc_by(given as u64);
        core.metrics.audit.refused.inc_by((proofs.len() - given) as u64);
        Ok(proofs)
    }

    /// Records of objects may be private: their chunks are for those alone whose duty they are, or nearly.
    fn may_ask(&self, caller: &PeerId, record: &Record) -> bool {
        record.kind.is_document()
            || self.epoch().is_some_and(|epoch| {
                epoch.possible(&record.place, epoch.copies(Kind::Head)).contains(caller)
            })
    }

    /// Counts a record no more that is not here, where it was.
    fn is_not_here(&self, core: &Core, id: crypto::RecordId) {
        let stripes = {
            let mut inventory = locked(&self.inventory);
            let Some(inventory) = inventory.as_mut() else { return };
            match inventory.drop_copy(&id) {
                true => Vec::new(),
                false => match inventory.drop_fragment(&id) {
                    none if none.is_empty() => return,
                    stripes => stripes,
                },
            }
        };
        core.metrics.audit.lost.inc();
        tracing::warn!(record = %id, "a record that was asked for is not here any more, and is fetched again");
        self.look_at(core, &stripes);
    }
}
