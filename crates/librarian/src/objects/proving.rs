//! Proves what a caller puts, before anything is believed of it.

use std::collections::HashSet;
use std::sync::Arc;

use crypto::{NetworkId, RecordId, Suite};
use document::{Kind, Record};
use env::calls::CallError;
use store::RecordStore;
use version::{AnyAttestation, Proven, VersionError};

use super::{ObjectShelf, denied, invalid};
use crate::shelf::one_line;

/// From so many bytes on, or so many signatures, records are proven on a CPU thread.
const LARGE_BYTES: usize = 64 * 1024;
const SIGNED_MANY: usize = 4;

/// A record that proved itself, and is of this network.
pub(super) struct Given {
    pub(super) record: Record,
    pub(super) proven: Proven,
    /// Of an attestation: those of its versions that are in the request or here, and their indices.
    pub(super) named: Vec<(usize, RecordId)>,
}

impl ObjectShelf {
    /// Proves records; one result each, in order.
    pub(super) async fn prove(&self, records: Vec<Record>) -> Vec<Result<Given, CallError>> {
        let bytes: usize = records.iter().map(|record| record.bytes.len()).sum();
        let is_signed = |record: &&Record| !matches!(record.kind, Kind::Version | Kind::Object);
        let signed = records.iter().filter(is_signed).count();
        let (suite, network, store) = (self.suite, self.network, Arc::clone(&self.store));
        let all = move || prove_all(suite, &network, &*store, records);
        match bytes >= LARGE_BYTES || signed >= SIGNED_MANY {
            true => self.env.cpu(all).await,
            false => all(),
        }
    }
}

fn prove_all(
    suite: Suite,
    network: &NetworkId,
    store: &dyn RecordStore,
    records: Vec<Record>,
) -> Vec<Result<Given, CallError>> {
    let versions = records.iter().filter(|record| record.kind == Kind::Version);
    let versions: HashSet<RecordId> = versions.map(|record| record.id).collect();
    let is_known = |h: &RecordId| versions.contains(h) || store.contains(h);
    let one = |record: Record| {
        let proven = version::prove(suite, &record).map_err(|error| refusal(&error))?;
        let named = match &proven {
            Proven::Attestation(attestation) => match &**attestation {
                AnyAttestation::One(one) => vec![(0, one.h)],
                AnyAttestation::Batch(batch) => batch.hs().enumerate().collect(),
            },
            _ => Vec::new(),
        };
        if network_of(&proven).is_some_and(|of| of != *network) {
            return Err(denied(format!("the {} is of another network", record.kind.name())));
        }
        let named = named.into_iter().filter(|(_, h)| is_known(h)).collect();
        Ok(Given { record, proven, named })
    };
    records.into_iter().map(one).collect()
}

/// The network that a record says it is of; a version says none.
fn network_of(proven: &Proven) -> Option<NetworkId> {
    match proven {
        Proven::Object(object) => Some(object.network),
        Proven::Policy(policy) => Some(policy.network),
        Proven::Attestation(attestation) => Some(attestation.attester().network),
        Proven::Head(head) => Some(head.branch.network),
        Proven::Devices(list) => Some(list.network),
        _ => None,
    }
}

/// Why a record is not taken.
pub(super) fn refusal(error: &VersionError) -> CallError {
    let reason = one_line(error);
    match error {
        VersionError::Key(_) => denied(format!("the signature does not hold: {reason}")),
        VersionError::OldPolicy { .. } | VersionError::OldDevices { .. } => {
            denied(format!("rolled back: {reason}"))
        }
        VersionError::Network(_) => denied(reason),
        VersionError::Full { .. } => {
            CallError::Busy { retry_after: std::time::Duration::from_secs(60) }
        }
        _ => invalid(reason),
    }
}
