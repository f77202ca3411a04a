//! A peer's versioned objects: what callers put and read, checked as `docs/adr/0007-versioned-objects.md` says, section *Wire*.
//!
//! `objects` keeps versions and knows the tips; who may write and read, and that a version is attested, is looked after
//! here. A peer believes nobody: all that counts is a record that proves itself, in the request or on its own disk.
//!
//! ```text
//! put       prove -> objects, policies, devices -> versions (attested? may write? room? bases?) -> attestations -> one write
//! get, tips, list     who reads? -> proven versions, each with an attestation
//! previous            the same, and from other holders where the history goes on there
//! watch               commits -> feed of numbered events -> each watcher
//! ```
//!
//! Invariants:
//! 1. A version that came from others is served, and a tip, only when an attestation by somebody who might write it is as
//!    durable as it is: both are in one write, the attestation first.
//! 2. A policy or list of devices never rolls back: it counts in memory from the moment it is taken, before it is durable.
//! 3. Whoever may not read an object cannot tell whether it exists.
//!
//! Memory, all of it made again from the store at the start: policies ([`version::policy::POLICIES_BYTES_MAX`], and their
//! records' ids), heads and devices (`heads`), attestations (36 bytes one and about 15 a version that it names, so
//! about 50 one of a single version), names of objects as they are asked for.

mod attestations;
mod bereft;
mod elsewhere;
mod feed;
mod heads;
mod kept;
mod memory;
mod names;
mod own;
mod permissions;
mod policies;
mod previous;
mod proving;
mod put;
mod reads;
mod regions;
mod watch;

use std::sync::Arc;

use crypto::{NetworkId, PeerId, RecordId, SecretKey, Suite};
use document::Kind;
use env::Env;
use env::calls::CallError;
use objects::{Objects, ObjectsError, ObjectsOptions};
use store::{RecordStore, StoreError};

use crate::metrics::{Metrics, ObjectLevels};
use crate::shelf::{Shelf, one_line};

use self::attestations::Attestations;
pub(crate) use self::elsewhere::Elsewhere;
use self::elsewhere::Fetched;
use self::feed::Feed;
use self::heads::Heads;
pub(crate) use self::memory::Bringer;
use self::names::Names;
use self::permissions::Claims;
pub(crate) use self::permissions::Reader;
use self::policies::KnownPolicies;
use self::reads::Turns;
use self::regions::Redirects;
pub(crate) use self::watch::Surroundings;

/// The versioned objects of one peer.
pub(crate) struct ObjectShelf {
    env: Env,
    suite: Suite,
    network: NetworkId,
    own: PeerId,
    /// Signs receipts and redirects.
    secret: SecretKey,
    /// Bytes of an object at one place, where its policy says none.
    region_bytes: u64,
    /// Bytes of versions in memory at most.
    pub(crate) cache_bytes_max: u64,
    pub(crate) objects: Arc<Objects>,
    store: Arc<dyn RecordStore>,
    shelf: Arc<Shelf>,
    policies: KnownPolicies,
    attestations: Attestations,
    heads: Heads,
    fetched: Fetched,
    feed: Feed,
    names: Names,
    claims: Claims,
    redirects: Redirects,
    turns: Turns,
    metrics: Arc<Metrics>,
}

/// What a peer's objects are made of.
pub(crate) struct Parts {
    pub(crate) env: Env,
    pub(crate) network: NetworkId,
    pub(crate) secret: SecretKey,
    pub(crate) options: ObjectsOptions,
    pub(crate) region_bytes: u64,
    pub(crate) store: Arc<dyn RecordStore>,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What chooses where versions lie in the table of attestations: nothing that follows from the peer's key tells anything of it.
fn secret_of_filters(secret: &SecretKey) -> [u8; 32] {
    Suite::Holdfast1.mac(&secret.to_bytes(), b"holdfast filters of attestations")
}

impl ObjectShelf {
    /// Reads what the store has of objects.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub(crate) async fn open(parts: Parts) -> Result<Arc<Self>, ObjectsError> {
        let env = parts.env.clone();
        let (shelf, dropped) = env.blocking(move || Self::read(parts)).await?;
        shelf.forget(dropped).await;
        Ok(shelf)
    }

    /// The objects, and heads in the store that are more than is kept.
    fn read(parts: Parts) -> Result<(Arc<Self>, Vec<RecordId>), ObjectsError> {
        let Parts { env, network, secret, options, region_bytes, store, shelf, metrics } = parts;
        let (suite, cache_bytes_max) = (options.suite, options.cache_bytes_max);
        let objects = Objects::open(Arc::clone(&store), options)?;
        let policies = KnownPolicies::new(suite, network);
        // Known to nobody else, and no other at the next start.
        let of_filters = secret_of_filters(&secret);
        let attestations = Attestations::new(suite, of_filters);
        let heads = Heads::new(suite);
        let shelf = Arc::new(Self {
            turns: Turns::new(),
            own: PeerId::new(secret.public()),
            claims: Claims::new(network),
            feed: Feed::new(),
            fetched: Fetched::default(),
            heads,
            names: Names::default(),
            redirects: Redirects::default(),
            env,
            suite,
            network,
            secret,
            region_bytes,
            cache_bytes_max,
            objects,
            store,
            shelf,
            policies,
            attestations,
            metrics,
        });
        let mut strange = 0_usize;
        shelf.heads.begin();
        // Whose heads count is known before these: a log that was compacted has its records in any order.
        for kinds in [&[Kind::Policy, Kind::Devices], &[Kind::Attestation, Kind::Head]] {
            let unread = shelf.store.each_of(kinds, &mut |part| {
                strange += usize::from(!shelf.met(part.kind, part.id, part.payload));
            })?;
            if kinds.contains(&Kind::Devices) && !unread.is_empty() {
                shelf.heads.lost_lists();
            }
        }
        let dropped = shelf.heads.settle();
        if strange > 0 {
            tracing::warn!(strange, "records of objects in the store are altered or unknown");
        }
        let told = Arc::downgrade(&shelf);
        shelf.objects.on_beside(move |record| {
            if let Some(shelf) = told.upgrade() {
                shelf.stored(record.kind, record.id, &record.bytes);
            }
        });
        Ok((shelf, dropped))
    }

    /// The state now, for the metrics.
    pub(crate) fn levels(&self) -> ObjectLevels {
        let stats = self.objects.stats();
        ObjectLevels {
            objects: stats.objects,
            versions: stats.versions,
            cached_bytes: stats.cached_bytes,
            awaited: stats.awaited,
            policies: self.policies.len(),
            attestations: self.attestations.len(),
            heads: self.heads.len(),
        }
    }

    /// An error of the engine as a caller is told.
    fn refused(&self, error: ObjectsError) -> CallError {
        match error {
            ObjectsError::Store(StoreError::Damaged { id, .. }) => {
                self.metrics.damaged_read();
                CallError::Corrupt {
                    address: self.own.to_string(),
                    reason: format!("record {id} is damaged on this peer's disk; ask another"),
                }
            }
            ObjectsError::Store(error) => self.shelf.refused(error),
            ObjectsError::Altered { id, .. } => {
                self.metrics.objects.altered.inc();
                tracing::error!(version = %id, "a version was altered on disk and is not served");
                let reason = format!("version {id} was altered on this peer's disk; ask another");
                CallError::Corrupt { address: self.own.to_string(), reason }
            }
            ObjectsError::Awaited => {
                CallError::Busy { retry_after: std::time::Duration::from_secs(10) }
            }
            error => CallError::Invalid { reason: one_line(&error) },
        }
    }
}

/// A caller that may not do this.
fn denied(reason: impl Into<String>) -> CallError {
    CallError::Denied { reason: reason.into() }
}

/// A request, or a record, that is over a bound or makes no sense.
fn invalid(reason: impl Into<String>) -> CallError {
    CallError::Invalid { reason: reason.into() }
}
