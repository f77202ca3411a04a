//! The policies that this peer knows, and which record says each.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use crypto::{NetworkId, PublicKey, RecordId, Suite};
use version::policy::{For, Taken};
use version::{ObjectRecord, Policies, Policy, VersionError};

/// Every policy that counts. Bounded as [`Policies`] is.
pub(super) struct KnownPolicies {
    suite: Suite,
    network: NetworkId,
    inner: Mutex<Inner>,
}

struct Inner {
    policies: Policies,
    records: BTreeMap<(PublicKey, For), RecordId>,
}

impl KnownPolicies {
    pub(super) fn new(suite: Suite, network: NetworkId) -> Self {
        let inner = Inner { policies: Policies::new(suite, network), records: BTreeMap::new() };
        Self { suite, network, inner: Mutex::new(inner) }
    }

    /// Nothing that can panic half-way through a change runs under the lock.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one as the store has it; whether it is one. One that a later one took the place of is none the worse.
    pub(super) fn met(&self, id: RecordId, bytes: &Bytes) -> bool {
        if self.suite.id(bytes) != id {
            return false;
        }
        let taken = Policy::verify(bytes).and_then(|policy| self.take(policy, id));
        matches!(taken, Ok(_) | Err(VersionError::OldPolicy { .. }))
    }

    /// Takes a proven policy. It counts from now on.
    ///
    /// # Errors
    /// As [`Policies::take`].
    pub(super) fn take(&self, policy: Policy, id: RecordId) -> Result<Taken, VersionError> {
        let mut inner = self.lock();
        let key = (policy.owner, policy.for_what.clone());
        let taken = inner.policies.take(policy)?;
        if taken == Taken::New {
            inner.records.insert(key, id);
        }
        Ok(taken)
    }

    /// Looks at the policy that counts for an object: the owner's word, or the implied one.
    pub(super) fn with<T>(&self, object: &ObjectRecord, look: impl FnOnce(&Policy) -> T) -> T {
        let inner = self.lock();
        match inner.policies.of(object) {
            Some(policy) => look(policy),
            None => look(&Policy::implied(self.network, object.owner)),
        }
    }

    /// The record of the policy that counts for an object; `None` where the owner said nothing.
    pub(super) fn record_of(&self, object: &ObjectRecord) -> Option<RecordId> {
        let inner = self.lock();
        let policy = inner.policies.of(object)?;
        inner.records.get(&(policy.owner, policy.for_what.clone())).copied()
    }

    /// How many copies the policy of an object asks for.
    pub(super) fn copies_of(&self, object: &ObjectRecord) -> Option<u32> {
        Some(self.lock().policies.of(object)?.copies?.copies)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.lock().policies.len()
    }
}
