//! `Lease`: leases shown for what is here, looked up, ended, and words about that told on; and the writes that bring some.

use std::time::Duration;

use crypto::lease::Shown;
use document::Record;
use env::calls::leases::{LeaseAnswer, LeaseRequest, PLACES_MAX};
use env::calls::{CallError, Caller, PutResponse, StoreOutcome};

use super::{Endpoints, Load, invalid};
use crate::leases::{self, By, Covered, Frames};
use crate::shelf;
use crate::standing::Standing;

/// How much a request about leases asks for.
pub(super) fn load(request: &LeaseRequest) -> Load {
    let requests = match request {
        LeaseRequest::Show(shown) => shown.iter().map(|one| one.leaves.len()).sum(),
        LeaseRequest::Of(places) => places.len(),
        LeaseRequest::Forget(words) => words.len(),
        LeaseRequest::Tombstones { .. } => 1,
    };
    Load { requests, bytes: 0 }
}

impl Endpoints {
    /// Who shows a lease: peers may pass on any that runs.
    fn by(&self, caller: Caller) -> By {
        match self.0.standing(&caller.key) {
            Standing::Peer(..) => By::Peer,
            _ => By::Client,
        }
    }

    /// Leases that came with records.
    pub(super) async fn covered(
        &self,
        caller: Caller,
        records: &[Record],
        leases: Vec<Shown>,
    ) -> Result<Covered, CallError> {
        let by = self.by(caller);
        if leases.is_empty() && by == By::Client && self.0.leases.settings.demanded {
            return Err(CallError::Denied {
                reason: "this peer takes records with a lease alone: put with a release that shows one, \
                         as a client of an organisation of the network"
                    .to_owned(),
            });
        }
        self.0.leases.check(leases, records, by).await
    }

    pub(super) async fn store_all_leased(
        &self,
        caller: Caller,
        records: Vec<Record>,
        leases: Vec<Shown>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        let covered = self.covered(caller, &records, leases).await?;
        self.stored_all(caller, records, covered).await
    }

    pub(super) async fn put_out_leased(
        &self,
        caller: Caller,
        record: Record,
        leases: Vec<Shown>,
        wait: Duration,
    ) -> Result<PutResponse, CallError> {
        // Checked here, so that a bad one is refused once and not by every holder.
        self.covered(caller, std::slice::from_ref(&record), leases.clone()).await?;
        self.put_out(caller, record, leases, wait).await
    }

    pub(super) async fn lease_answer(
        &self,
        caller: Caller,
        request: LeaseRequest,
    ) -> Result<LeaseAnswer, CallError> {
        let core = &self.0;
        match request {
            LeaseRequest::Show(shown) => {
                // For what is here alone, so one that is set read-only goes on to be paid as any other holder does.
                if core.is_leaving() {
                    core.shelf.check_writes()?;
                }
                core.leases.show(shown, self.by(caller)).await.map(LeaseAnswer::Show)
            }
            LeaseRequest::Of(places) => {
                if places.len() > PLACES_MAX {
                    return Err(invalid(format!("at most {PLACES_MAX} places are asked about")));
                }
                let mut answers = Vec::with_capacity(places.len());
                let mut read = Frames::default();
                for place in &places {
                    let found = core.leases.look(place, &caller.key, &mut read).await;
                    answers.push(found.map_err(|error| shelf::refusal(&error))?);
                }
                Ok(LeaseAnswer::Of(answers))
            }
            // Read-only or leaving as well: what was forgotten would be served from here, and passed on to who lacks copies.
            LeaseRequest::Forget(words) => {
                leases::forget(core, words).await.map(LeaseAnswer::Forget)
            }
            LeaseRequest::Tombstones { since_ms, after } => {
                let (forgets, next) = core.leases.tombstones_since(since_ms, after);
                Ok(LeaseAnswer::Tombstones { forgets, next })
            }
        }
    }
}
