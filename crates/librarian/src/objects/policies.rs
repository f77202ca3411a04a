//! The policies that this peer knows, and which record says each.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use crypto::{NetworkId, PublicKey, RecordId, Suite};
use version::policy::{For, POLICIES_BYTES_MAX, Taken, weight};
use version::{ObjectRecord, Policies, Policy, VersionError};

use super::memory::{Bringer, Memory};

/// Every policy that counts. Bounded as [`Policies`] is.
pub(super) struct KnownPolicies {
    suite: Suite,
    network: NetworkId,
    inner: Mutex<Inner>,
}

struct Inner {
    policies: Policies,
    records: BTreeMap<(PublicKey, For), Row>,
    memory: Memory,
}

/// The record that says a policy, who brought it, and what it takes in memory.
struct Row {
    id: RecordId,
    by: Bringer,
    bytes: usize,
}

/// The same name, which shares no bytes with the record that it was read from: that is longer, and not what is counted.
fn apart(for_what: &For) -> For {
    match for_what {
        For::Object(name) => For::Object(Bytes::copy_from_slice(name)),
        For::Family(prefix) => For::Family(Bytes::copy_from_slice(prefix)),
    }
}

impl KnownPolicies {
    pub(super) fn new(suite: Suite, network: NetworkId) -> Self {
        let (records, memory) = (BTreeMap::new(), Memory::new(POLICIES_BYTES_MAX));
        let inner = Inner { policies: Policies::new(suite, network), records, memory };
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
        let taken = Policy::verify(bytes).and_then(|policy| self.take(policy, id, Bringer::Start));
        matches!(taken, Ok(_) | Err(VersionError::OldPolicy { .. }))
    }

    /// Takes a proven policy. It counts from now on.
    ///
    /// # Errors
    /// As [`Policies::take`]; [`VersionError::Full`] also where who brings it has brought as much as it leaves free.
    pub(super) fn take(
        &self,
        policy: Policy,
        id: RecordId,
        by: Bringer,
    ) -> Result<Taken, VersionError> {
        let policy = Policy { for_what: apart(&policy.for_what), ..policy };
        let mut inner = self.lock();
        let Inner { policies, records, memory } = &mut *inner;
        let (key, bytes) = ((policy.owner, policy.for_what.clone()), weight(&policy));
        let known = records.get(&key);
        // Whoever brought the one before: a policy that names no more than that is always taken.
        let more = bytes.saturating_sub(known.map_or(0, |known| known.bytes));
        if more > 0 && !memory.has_room(by, more) {
            let what = "memory of policies that one organisation may bring";
            return Err(VersionError::Full { what, max: POLICIES_BYTES_MAX });
        }
        let taken = policies.take(policy)?;
        if taken == Taken::New {
            memory.add(by, bytes);
            if let Some(before) = records.insert(key, Row { id, by, bytes }) {
                memory.give_back(before.by, before.bytes);
            }
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
        inner.records.get(&(policy.owner, policy.for_what.clone())).map(|row| row.id)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use crypto::SecretKey;

    use super::*;

    #[test]
    fn a_policy_that_is_kept_keeps_nothing_of_what_its_name_was_read_from() {
        let network = NetworkId::new([9; 32]);
        let known = KnownPolicies::new(Suite::Holdfast1, network);
        let owner = SecretKey::from_bytes(&[1; 32]).unwrap().public();
        let record = Bytes::from(vec![b'x'; 1 << 16]);
        let name = || record.slice(7..17);
        for for_what in [For::Object(name()), For::Family(name())] {
            let policy = Policy { for_what, version: 1, ..Policy::implied(network, owner) };
            let id = RecordId::new([1; 32]);
            assert_eq!(known.take(policy, id, Bringer::Start).unwrap(), Taken::New);
        }
        assert!(record.is_unique());
        let object = ObjectRecord { network, owner, name: name() };
        assert_eq!(known.record_of(&object), Some(RecordId::new([1; 32])));
    }
}
