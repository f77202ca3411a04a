//! What a user knows of objects: what their owners said, and where their branches go on.
//!
//! Policies never roll back here either: of one object the highest version that was seen counts, whatever a peer says later. What
//! is forgotten (past [`OBJECTS_KNOWN_MAX`] objects) is asked for again.

use std::collections::BTreeMap;

use crypto::{NetworkId, PublicKey, Suite};
use document::Record;
use version::policy::{For, Taken};
use version::{DeviceList, ObjectKey, ObjectRecord, Policies, Policy, VersionError};

/// Objects that are remembered.
pub(crate) const OBJECTS_KNOWN_MAX: usize = 65_536;

/// Owners whose lists of devices are remembered.
pub(crate) const OWNERS_KNOWN_MAX: usize = 4_096;

/// What is known of one object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownObject {
    /// Whether holders were asked for its policy.
    pub(crate) asked: bool,
    /// The number of the place where its branches go on: W holders of each one before said that they are full.
    pub(crate) overflow: u64,
    /// The highest number of a place that was seen in use.
    pub(crate) seen: u64,
}

pub(crate) struct Known {
    policies: Policies,
    /// The records of those that count, to be sent along.
    records: BTreeMap<(PublicKey, For), Record>,
    objects: BTreeMap<ObjectKey, KnownObject>,
    devices: BTreeMap<PublicKey, (DeviceList, Record)>,
}

impl Known {
    pub(crate) fn new(suite: Suite, network: NetworkId) -> Self {
        let policies = Policies::new(suite, network);
        let (records, objects, devices) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { policies, records, objects, devices }
    }

    /// Takes a policy whose record was proven.
    pub(crate) fn take(&mut self, policy: Policy, record: Record) -> Result<Taken, VersionError> {
        let at = (policy.owner, policy.for_what.clone());
        let taken = self.policies.take(policy)?;
        self.records.insert(at, record);
        Ok(taken)
    }

    /// The policy that counts for an object.
    pub(crate) fn policy(&self, object: &ObjectRecord) -> Option<&Policy> {
        self.policies.of(object)
    }

    /// The record of the policy that counts for an object.
    pub(crate) fn record(&self, object: &ObjectRecord) -> Option<&Record> {
        let policy = self.policies.of(object)?;
        self.records.get(&(policy.owner, policy.for_what.clone()))
    }

    /// Takes a list of devices that was proven, where it takes the place of the one that is known.
    pub(crate) fn take_devices(&mut self, list: DeviceList, record: Record) {
        let known = self.devices.get(&list.owner).map(|(known, _)| known);
        if list.follows(known).is_ok_and(|taken| taken == Taken::New) {
            if self.devices.len() >= OWNERS_KNOWN_MAX && !self.devices.contains_key(&list.owner) {
                self.devices.clear();
            }
            self.devices.insert(list.owner, (list, record));
        }
    }

    /// The newest list of an owner's devices.
    pub(crate) fn devices_of(&self, owner: &PublicKey) -> Option<&(DeviceList, Record)> {
        self.devices.get(owner)
    }

    pub(crate) fn of(&self, object: &ObjectKey) -> KnownObject {
        self.objects.get(object).copied().unwrap_or_default()
    }

    /// What is known of an object, to be changed.
    pub(crate) fn at(&mut self, object: ObjectKey) -> &mut KnownObject {
        if self.objects.len() >= OBJECTS_KNOWN_MAX && !self.objects.contains_key(&object) {
            self.objects.clear();
        }
        self.objects.entry(object).or_default()
    }
}
