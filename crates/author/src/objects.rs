//! Versioned objects: everything ever written under one key, as a graph of versions that prove themselves.
//!
//! [`Objects`] is one user's way to them; an [`Object`] is one of them. A version is made here, so its id is known before
//! anything is sent, a retry is the same version, and no peer has to be believed: what comes back is compared with the id
//! that was asked for, who wrote it with the owner's policy.
//!
//! ```no_run
//! # async fn example(author: std::sync::Arc<author::Author>) -> Result<(), author::objects::ObjectsError> {
//! use author::objects::{Objects, ObjectsOptions, PolicyOptions, WriteOptions};
//!
//! let objects = Objects::new(&author, ObjectsOptions::default());
//! let notes = objects.create(b"notes", PolicyOptions::default()).await?;
//! let first = notes.put(None, "buy bread", WriteOptions::default()).await?;
//! let second = notes.put(Some(&first.id), "buy bread and milk", WriteOptions::default()).await?;
//! assert_eq!(notes.get(&second.id).await?.bytes(), Some(&b"buy bread and milk"[..]));
//! for past in notes.previous(&second.id, 10).await? {
//!     println!("{} {:?}", past.id, notes.open_value(&past)?.bytes());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! *Sealed* objects are the default: peers see neither name nor value (ADR 7, *Sealed values*). Of *open* ones they see both, and
//! may merge and compress them.
//!
//! A put never blocks and never aborts: two on one base are two branches, and [`Object::tips`] finds both. Which of them is meant is
//! what [`crate::heads`] say.

mod access;
mod batch;
mod cache;
mod chain;
mod create;
mod error;
mod known;
mod list;
mod merging;
mod object;
mod prune;
mod reading;
mod sending;
mod tips;
mod value;
mod watch;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use crypto::{NetworkId, OwnerKeys, PublicKey, SecretKey, Suite};
use version::ReaderClaim;
pub use version::policy::Copies;
pub use version::{Bases, Durability, Hint, ObjectKey, Policy, ValueKind, VersionId};
use walk::Walker;
pub use walk::objects::PeerReceipt;

pub use access::Access;
pub use batch::{BATCH_VERSIONS_MAX, Batch, WriteOptions};
pub use cache::CACHE_BYTES;
pub use create::PolicyOptions;
pub use error::{ObjectsError, Subject};
pub use list::{LISTED_MAX, Listed};
pub use merging::MergeOutcome;
pub use object::Object;
pub use reading::{Got, LOG_MAX, Past};
pub(crate) use reading::{judged, liars, silent};
pub use sending::Written;
pub use tips::{Tip, Tips};
pub use value::{INLINE_VALUE_BYTES_MAX, Value};
pub use watch::{Watch, WatchPoint, WatchTold};

use crate::author::Author;
use cache::Cache;
use known::Known;

/// How long a reader's claim is made for, in seconds.
const CLAIM_S: u64 = 3_600;

/// How a user reaches objects.
#[derive(Clone, Debug)]
pub struct ObjectsOptions {
    /// The key that owns, writes and reads; the keyring's owner's key where absent. A device of an owner has one of its own.
    pub key: Option<SecretKey>,
    /// The key that connections to peers prove; the keyring's client's key where absent.
    pub caller: Option<PublicKey>,
    /// Bytes of versions that are remembered.
    pub cache_bytes: usize,
}

impl Default for ObjectsOptions {
    fn default() -> Self {
        Self { key: None, caller: None, cache_bytes: CACHE_BYTES }
    }
}

/// One user's way to versioned objects. Cheap to clone; clones share what they know.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<Inner>,
}

struct Inner {
    author: Arc<Author>,
    key: SecretKey,
    /// The public side of `key`.
    public: PublicKey,
    /// Whom peers see calling.
    caller: PublicKey,
    names: OwnerKeys,
    known: Mutex<Known>,
    cache: Mutex<Cache>,
    /// The claim that is sent along, and until when it is, Unix seconds.
    claim: Mutex<Option<(u64, Bytes)>>,
}

impl Objects {
    /// Those that this author reaches.
    pub fn new(author: &Arc<Author>, options: ObjectsOptions) -> Self {
        let keyring = author.home().keyring();
        let key = options.key.unwrap_or_else(|| keyring.owner());
        let caller = options.caller.unwrap_or_else(|| *keyring.client_key().key());
        let (suite, network) = (author.suite(), author.network());
        let inner = Inner {
            public: key.public(),
            names: OwnerKeys::new(&key, &network),
            known: Mutex::new(Known::new(suite, network)),
            cache: Mutex::new(Cache::new(options.cache_bytes)),
            claim: Mutex::default(),
            author: Arc::clone(author),
            key,
            caller,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The key that owns what this user creates, and under which others list it in their policies.
    pub fn public_key(&self) -> PublicKey {
        self.inner.public
    }

    /// Whose they are.
    pub fn author(&self) -> &Arc<Author> {
        &self.inner.author
    }

    pub(crate) fn key(&self) -> &SecretKey {
        &self.inner.key
    }

    pub(crate) fn names(&self) -> &OwnerKeys {
        &self.inner.names
    }

    pub(crate) fn suite(&self) -> Suite {
        self.inner.author.suite()
    }

    pub(crate) fn network(&self) -> NetworkId {
        self.inner.author.network()
    }

    pub(crate) fn walker(&self) -> &Arc<Walker> {
        self.inner.author.walker()
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.inner.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What says to peers who reads; `None` where the connection itself does.
    pub(crate) fn reader(&self) -> Option<Bytes> {
        if self.inner.caller == self.inner.public {
            return None;
        }
        let now = self.inner.author.env().clock.unix_s();
        let mut claim = self.inner.claim.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((until, bytes)) = &*claim
            && now < *until
        {
            return Some(bytes.clone());
        }
        let (key, caller) = (&self.inner.key, &self.inner.caller);
        let signed = ReaderClaim::sign(self.network(), key, caller, now + CLAIM_S).encode();
        *claim = Some((now + CLAIM_S / 2, signed.clone()));
        Some(signed)
    }

    /// Runs CPU-heavy work away from the I/O threads.
    pub(crate) async fn cpu<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ObjectsError> {
        Ok(self.inner.author.cpu(work).await?)
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({})", self.inner.public)
    }
}
