//! `Store`, its batch form, and `Put`.

use std::time::Duration;

use crypto::ClientKey;
use crypto::lease::Shown;
use document::Record;
use env::calls::{
    BATCH_BYTES_MAX, BATCH_MAX, CallError, Caller, PUT_WAIT_MAX, PutResponse, StoreOutcome,
};
use walk::{Stored, WalkError};

use super::{Endpoints, invalid};
use crate::fragments;
use crate::leases::Covered;
use crate::metrics::{Bound, Method};
use crate::shelf::{self, LARGE_BYTES, Put};
use crate::standing::Standing;

impl Endpoints {
    pub(super) async fn stored(
        &self,
        caller: Caller,
        record: Record,
    ) -> Result<StoreOutcome, CallError> {
        let bytes = record.bytes.len();
        let covered = self.covered(caller, std::slice::from_ref(&record), Vec::new()).await?;
        let charged = self.charge(caller, Method::Store, bytes)?;
        let since = self.0.env.clock.elapsed();
        let Put { mut outcomes, new } = self.0.shelf.put_here(vec![record], covered).await;
        self.give_back(caller, charged, &new, &[bytes]);
        let outcome = outcomes
            .pop()
            .ok_or_else(|| CallError::Internal { reason: "a write had no outcome".to_owned() })??;
        self.0.metrics.received(Method::Store, bytes);
        // One that was there already waited for nothing.
        if outcome == StoreOutcome::Stored && bytes < LARGE_BYTES {
            let now = self.0.env.clock.elapsed();
            self.0.strain.stored(now.saturating_sub(since), now);
        }
        Ok(outcome)
    }

    pub(super) async fn stored_all(
        &self,
        caller: Caller,
        records: Vec<Record>,
        covered: Covered,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        if records.len() > BATCH_MAX {
            return Err(invalid(format!("a batch has at most {BATCH_MAX} records")));
        }
        let sizes: Vec<usize> = records.iter().map(|record| record.bytes.len()).collect();
        let bytes = sizes.iter().sum::<usize>();
        if bytes > BATCH_BYTES_MAX {
            return Err(invalid(format!("a batch has at most {BATCH_BYTES_MAX} bytes of records")));
        }
        let charged = self.charge(caller, Method::StoreBatch, bytes)?;
        let client = (charged > 0).then(|| ClientKey::new(caller.key));
        let covered = covered.charged_to(client);
        let Put { outcomes, new } = self.0.shelf.put_here(records, covered).await;
        self.give_back(caller, charged, &new, &sizes);
        let taken = outcomes.iter().zip(&sizes).filter(|(outcome, _)| outcome.is_ok());
        self.0.metrics.received(Method::StoreBatch, taken.map(|(_, size)| size).sum());
        Ok(outcomes)
    }

    /// Stores at the record's holders; this peer is one of them only where it ranks. The caller may let the answer wait
    /// for the copies beyond those that it takes: it cannot see them come.
    pub(super) async fn put_out(
        &self,
        caller: Caller,
        record: Record,
        leases: Vec<Shown>,
        wait: Duration,
    ) -> Result<PutResponse, CallError> {
        let (kind, bytes) = (record.kind, record.bytes.len());
        if fragments::is_fragment(&record) {
            return Err(invalid(format!(
                "the record {} lives elsewhere than at its id, as fragments of stripes do, and Put stores \
                 copies: store a fragment at its holder by StoreBatch, its stripe's header first",
                record.id
            )));
        }
        // Proven here, so that a malformed record is refused once and not by every holder.
        let record = self.0.shelf.proven(record).await?;
        let redundancy = self.0.walker.redundancy(kind);
        let quota = self.charge(caller, Method::Put, bytes)?;
        let stored =
            self.0.walker.store_leased(record, leases, redundancy).await.map_err(|error| {
                self.0.quotas.give_back(&caller.key, quota, bytes as u64);
                walk_refusal(error)
            })?;
        self.0.metrics.received(Method::Put, bytes);
        let Stored { wanted, new, mut rest, .. } = stored;
        if !new {
            self.0.quotas.give_back(&caller.key, quota, bytes as u64);
        }
        let acked = rest.wait(wait.min(PUT_WAIT_MAX)).await.acked;
        Ok(PutResponse { acked, wanted })
    }

    /// Charges the caller's quota for a write; its quota, which is 0 where it has none. Refused where clients' writes are.
    pub(super) fn charge(
        &self,
        caller: Caller,
        method: Method,
        bytes: usize,
    ) -> Result<u64, CallError> {
        let standing = self.0.standing(&caller.key);
        if !matches!(standing, Standing::Peer(..)) {
            self.0.shelf.check_clients()?;
        }
        let Standing::Client { quota, tier, .. } = standing else { return Ok(0) };
        let charged = self.0.quotas.charge(&caller.key, quota, bytes as u64);
        charged.inspect_err(|_| self.0.metrics.refused(tier, method, Bound::Quota))?;
        Ok(quota)
    }

    /// Gives back what was charged for records that were refused or here already. What is new here stays charged, whatever its
    /// caller was answered: at the end of its lease it is given back.
    fn give_back(&self, caller: Caller, quota: u64, new: &[bool], sizes: &[usize]) {
        let back = new.iter().zip(sizes).filter(|(new, _)| !**new);
        let bytes = back.map(|(_, size)| *size as u64).sum();
        self.0.quotas.give_back(&caller.key, quota, bytes);
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
