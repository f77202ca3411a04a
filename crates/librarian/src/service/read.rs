//! `Find`, `Verify`, their batch forms, and `Get`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use crypto::{PeerId, Place};
use document::Record;
use env::calls::{
    BATCH_BYTES_MAX, BATCH_MAX, CallError, Caller, FindRequest, FindResponse, VerifyRequest,
    VerifyResponse,
};
use futures::StreamExt;

use super::{Endpoints, Load, closed, invalid};
use crate::core::Core;
use crate::metrics::Method;

/// Closer peers told where a record is not held.
const CLOSEST_MAX: usize = 20;
/// Announcements told in one batch, in bytes: when so many were, misses are bare.
const CLOSEST_BATCH_BYTES_MAX: usize = 64 * 1024;
/// Records of one batch being read at once.
const READ_PARALLEL: usize = 16;
/// From so many bytes on, a MAC is computed on a CPU thread.
const LARGE_BYTES: usize = 64 * 1024;

/// What the misses of one batch were answered with.
#[derive(Default)]
struct Told {
    bytes: usize,
    /// At most [`BATCH_MAX`].
    places: BTreeSet<Place>,
}

/// Small records are read where the call runs: of a large batch, on a slow disk, other calls have their turn between them.
async fn let_others_run(answered: usize) {
    if answered % READ_PARALLEL == READ_PARALLEL - 1 {
        tokio::task::yield_now().await;
    }
}

async fn mac(core: &Core, key: [u8; 32], record: Record) -> [u8; 32] {
    let suite = core.genesis.suite;
    if record.bytes.len() < LARGE_BYTES {
        return suite.mac(&key, &record.bytes);
    }
    core.env.cpu(move || suite.mac(&key, &record.bytes)).await
}

impl Endpoints {
    pub(super) async fn found(
        &self,
        caller: Caller,
        request: FindRequest,
    ) -> Result<FindResponse, CallError> {
        match self.0.shelf.find(&request.id, &request.place).await? {
            Some(record) => {
                self.sent(caller, Method::Find, record.bytes.len());
                Ok(FindResponse::Found(record))
            }
            None => Ok(FindResponse::Closest(self.closest(&request.place))),
        }
    }

    /// Answers many; those that do not fit into one answer are to be asked for again.
    pub(super) async fn found_all(
        &self,
        caller: Caller,
        requests: Vec<FindRequest>,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        if requests.len() > BATCH_MAX {
            return Err(invalid(format!("a batch has at most {BATCH_MAX} requests")));
        }
        // Nothing is read for an answer that has no room for it: some are under way when it is known.
        let is_full = &AtomicBool::new(false);
        let reads = requests.into_iter().map(|request| async move {
            let FindRequest { id, place } = request;
            let read = match is_full.load(Ordering::Relaxed) {
                true => Err(CallError::Busy { retry_after: Duration::ZERO }),
                false => self.0.shelf.find(&id, &place).await,
            };
            (place, read)
        });
        let mut reads = futures::stream::iter(reads).buffered(READ_PARALLEL);
        let mut answers = Vec::new();
        let (mut sent, mut told) = (0, Told::default());
        while let Some((place, read)) = reads.next().await {
            let_others_run(answers.len()).await;
            let answer = match read {
                Ok(Some(record)) if sent + record.bytes.len() > BATCH_BYTES_MAX => {
                    is_full.store(true, Ordering::Relaxed);
                    Err(CallError::Busy { retry_after: Duration::ZERO })
                }
                Ok(Some(record)) => {
                    sent += record.bytes.len();
                    Ok(FindResponse::Found(record))
                }
                Ok(None) => Ok(FindResponse::Closest(self.closest_within(&place, &mut told))),
                Err(error) => Err(error),
            };
            answers.push(answer);
        }
        self.sent(caller, Method::FindBatch, sent);
        Ok(answers)
    }

    /// The misses of one batch are mostly answered with the same peers, so they share a bound; those of one
    /// place, as fragments of a stripe have, are answered with them once.
    fn closest_within(&self, place: &Place, told: &mut Told) -> Vec<Bytes> {
        if told.bytes >= CLOSEST_BATCH_BYTES_MAX || !told.places.insert(*place) {
            return Vec::new();
        }
        let closest = self.closest(place);
        told.bytes += closest.iter().map(Bytes::len).sum::<usize>();
        closest
    }

    pub(super) async fn verified(
        &self,
        caller: Caller,
        request: VerifyRequest,
    ) -> Result<VerifyResponse, CallError> {
        Ok(match self.proof(caller, request).await? {
            Some(mac) => VerifyResponse::Mac(mac),
            None => VerifyResponse::Closest(self.closest(&request.place)),
        })
    }

    pub(super) async fn verified_all(
        &self,
        caller: Caller,
        requests: Vec<VerifyRequest>,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        if requests.len() > BATCH_MAX {
            return Err(invalid(format!("a batch has at most {BATCH_MAX} requests")));
        }
        let proofs = requests.into_iter().map(|request| async move {
            let proof = self.proof(caller, request).await;
            (request.place, proof)
        });
        let mut proofs = futures::stream::iter(proofs).buffered(READ_PARALLEL);
        let (mut answers, mut told) = (Vec::new(), Told::default());
        while let Some((place, proof)) = proofs.next().await {
            let_others_run(answers.len()).await;
            let miss = |told: &mut Told| VerifyResponse::Closest(self.closest_within(&place, told));
            answers.push(proof.map(|mac| mac.map_or_else(|| miss(&mut told), VerifyResponse::Mac)));
        }
        Ok(answers)
    }

    /// The MAC of a record's bytes; `None` where it is not here.
    async fn proof(
        &self,
        caller: Caller,
        request: VerifyRequest,
    ) -> Result<Option<[u8; 32]>, CallError> {
        let core = Arc::clone(&self.0);
        let made = async move {
            match core.shelf.find(&request.id, &request.place).await? {
                Some(record) => Ok(Some(mac(&core, request.mac_key, record).await)),
                None => Ok(None),
            }
        };
        let proof = self.0.proofs.make(&caller.key, &self.0.env, made).await;
        proof.unwrap_or_else(|| Err(closed()))
    }

    /// Counts record bytes that are answered, for the operator and against the caller's day.
    pub(super) fn sent(&self, caller: Caller, method: Method, bytes: usize) {
        self.0.metrics.sent(method, bytes);
        let asked = self.asked(method, &self.0.standing(&caller.key), Load::NONE);
        let now = self.0.env.clock.elapsed();
        self.0.limiter.answered(&caller.key, &asked, bytes as u64, now);
    }

    /// The announcements of the peers that rank first for a place, this one left out.
    fn closest(&self, place: &Place) -> Vec<Bytes> {
        let core = &self.0;
        let holders = core.directory.view().holders(place, CLOSEST_MAX + 1);
        let others: Vec<PeerId> =
            holders.into_iter().filter(|peer| *peer != core.own).take(CLOSEST_MAX).collect();
        core.directory.announced(&others)
    }

    pub(super) async fn got(
        &self,
        caller: Caller,
        request: FindRequest,
    ) -> Result<Record, CallError> {
        let walker = Arc::clone(&self.0.walker);
        let found = walker.find(None, request.id, request.place).await;
        let record = found.map_err(super::write::walk_refusal)?.record;
        self.sent(caller, Method::Get, record.bytes.len());
        Ok(record)
    }
}
