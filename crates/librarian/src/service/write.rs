//! `Store`, its batch form, and `Put`.

use document::Record;
use env::calls::{BATCH_BYTES_MAX, BATCH_MAX, CallError, PutResponse, StoreOutcome};
use walk::WalkError;

use super::{Endpoints, invalid};
use crate::metrics::Method;
use crate::shelf;

impl Endpoints {
    pub(super) async fn stored(&self, record: Record) -> Result<StoreOutcome, CallError> {
        let bytes = record.bytes.len();
        let mut outcomes = self.0.shelf.put(vec![record]).await;
        let outcome = outcomes
            .pop()
            .ok_or_else(|| CallError::Internal { reason: "a write had no outcome".to_owned() })??;
        self.0.metrics.received(Method::Store, bytes);
        Ok(outcome)
    }

    pub(super) async fn stored_all(
        &self,
        records: Vec<Record>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        if records.len() > BATCH_MAX {
            return Err(invalid(format!("a batch has at most {BATCH_MAX} records")));
        }
        let sizes: Vec<usize> = records.iter().map(|record| record.bytes.len()).collect();
        if sizes.iter().sum::<usize>() > BATCH_BYTES_MAX {
            return Err(invalid(format!("a batch has at most {BATCH_BYTES_MAX} bytes of records")));
        }
        let outcomes = self.0.shelf.put(records).await;
        let taken = outcomes.iter().zip(&sizes).filter(|(outcome, _)| outcome.is_ok());
        self.0.metrics.received(Method::StoreBatch, taken.map(|(_, size)| size).sum());
        Ok(outcomes)
    }

    /// Stores at the record's holders; this peer is one of them only where it ranks.
    pub(super) async fn put_out(&self, record: Record) -> Result<PutResponse, CallError> {
        let (kind, bytes) = (record.kind, record.bytes.len());
        // Proven here, so that a malformed record is refused once and not by every holder.
        let record = self.0.shelf.proven(record).await?;
        let redundancy = self.0.walker.redundancy(kind);
        let stored = self.0.walker.store(record, redundancy).await.map_err(walk_refusal)?;
        self.0.metrics.received(Method::Put, bytes);
        Ok(PutResponse { acked: stored.acked, wanted: stored.wanted })
    }
}

/// What a walk's failure is to the caller of `Put` or `Get`.
pub(super) fn walk_refusal(error: WalkError) -> CallError {
    let few = |reached: u32, wanted: u32| CallError::TooFewPeers { reached, wanted };
    match error {
        WalkError::NoPeers { .. } => few(0, 1),
        WalkError::TooFew { acked, wanted, .. } => few(acked, wanted),
        WalkError::NotFound { .. } => CallError::NotFound,
        WalkError::Unavailable { asked, unreachable, .. } => few(asked, asked + unreachable),
        WalkError::Corrupt { ref from, .. } => CallError::Corrupt {
            address: from.first().map(ToString::to_string).unwrap_or_default(),
            reason: error.to_string(),
        },
        WalkError::Denied { reason } => CallError::Denied { reason },
        WalkError::Busy { retry_after } => CallError::Busy { retry_after },
        WalkError::Full { acked: 0, .. } => CallError::Full,
        WalkError::Full { acked, wanted } => few(acked, wanted),
        WalkError::Refused { reason } => CallError::Invalid { reason },
        error => {
            tracing::error!(%error, "a walk failed in a way that is not known here");
            CallError::Internal { reason: shelf::one_line(&error) }
        }
    }
}
