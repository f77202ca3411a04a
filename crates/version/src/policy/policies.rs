//! The policies that a peer or a client knows, and which of them counts.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use crypto::{NetworkId, PublicKey, Suite};

use super::{For, Policy};
use crate::{ObjectKey, ObjectRecord, VersionError};

/// The most bytes of policies that are known at once, about: as they are written, and what is around them in memory.
pub const POLICIES_BYTES_MAX: usize = 128 << 20;
/// What is around one of them in memory, about.
const AROUND_BYTES: usize = 512;

/// What became of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is new, and the one before does not count any more.
    New,
    /// It was known.
    Known,
}

/// The newest policy of each object and family of one network.
#[derive(Clone, Debug)]
pub struct Policies {
    suite: Suite,
    network: NetworkId,
    objects: BTreeMap<ObjectKey, Policy>,
    families: BTreeMap<PublicKey, BTreeMap<Bytes, Policy>>,
    bytes: usize,
}

impl Policies {
    /// None yet.
    pub fn new(suite: Suite, network: NetworkId) -> Self {
        let (objects, families) = (BTreeMap::new(), BTreeMap::new());
        Self { suite, network, objects, families, bytes: 0 }
    }

    /// Takes a policy that [`Policy::verify`] gave.
    ///
    /// # Errors
    /// [`VersionError::Network`] for another network's, [`VersionError::OldPolicy`] for a lower version than is known, or
    /// another of the same number, [`VersionError::Full`] past [`POLICIES_BYTES_MAX`].
    pub fn take(&mut self, policy: Policy) -> Result<Taken, VersionError> {
        if policy.network != self.network {
            return Err(VersionError::Network(policy.network));
        }
        let object = policy.object(self.suite)?;
        let known = match (&object, &policy.for_what) {
            (Some(key), _) => self.objects.get(key),
            (None, For::Object(prefix) | For::Family(prefix)) => {
                self.families.get(&policy.owner).and_then(|families| families.get(prefix))
            }
        };
        if let Some(known) = known {
            if *known == policy {
                return Ok(Taken::Known);
            }
            if policy.version <= known.version {
                let (found, newest) = (policy.version, known.version);
                return Err(VersionError::OldPolicy { found, newest });
            }
        }
        let bytes = self.bytes + weight(&policy) - known.map_or(0, weight);
        if bytes > POLICIES_BYTES_MAX {
            let max = POLICIES_BYTES_MAX;
            return Err(VersionError::Full { what: "memory of policies", max });
        }
        self.bytes = bytes;
        match (object, &policy.for_what) {
            (Some(key), _) => self.objects.insert(key, policy),
            (None, For::Object(prefix) | For::Family(prefix)) => {
                let families = self.families.entry(policy.owner).or_default();
                families.insert(prefix.clone(), policy)
            }
        };
        Ok(Taken::New)
    }

    /// The policy that counts for an object: its own, or that of the family with the longest prefix; `None` where the
    /// owner said nothing.
    pub fn of(&self, object: &ObjectRecord) -> Option<&Policy> {
        let key = object.key(self.suite).ok()?;
        if object.network != self.network {
            return None;
        }
        self.objects.get(&key).or_else(|| self.family_of(&object.owner, &object.name))
    }

    fn family_of(&self, owner: &PublicKey, name: &[u8]) -> Option<&Policy> {
        let families = self.families.get(owner)?;
        let mut upto = name;
        loop {
            // The greatest that is not greater: a prefix, or all prefixes are prefixes of what both have in common.
            let below = (Bound::Unbounded, Bound::Included(upto));
            let (prefix, policy) = families.range::<[u8], _>(below).next_back()?;
            if name.starts_with(prefix) {
                return Some(policy);
            }
            let common = prefix.iter().zip(upto).take_while(|(a, b)| a == b).count();
            upto = &upto[..common];
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.objects.len() + self.families.values().map(BTreeMap::len).sum::<usize>()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.families.is_empty()
    }
}

/// What a policy takes of [`POLICIES_BYTES_MAX`].
pub fn weight(policy: &Policy) -> usize {
    let (For::Object(name) | For::Family(name)) = &policy.for_what;
    AROUND_BYTES + name.len() + 33 * (policy.readers.len() + policy.writers.len())
}
