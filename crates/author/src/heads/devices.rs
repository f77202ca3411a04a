//! An owner's devices: a list, signed by the owner's key, that is whole and never rolls back.
//!
//! It goes to all peers, since a branch of any object may have its holders anywhere. Whoever revokes a device whose head is to stay
//! says so with a head of their own first ([`super::Heads::update`]): else that head is no tip any more.

use std::time::Duration;

use crypto::PublicKey;
use document::Record;
use placement::Redundancy;
use version::DeviceList;
use walk::objects::{Delivered, HOLDERS_ASKED_MAX};

use super::Heads;
use crate::objects::{Object, Objects, ObjectsError};

/// How long a list's last copies are waited for.
const ALL_WAIT: Duration = Duration::from_secs(10);

/// A list of devices, and how far it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegated {
    /// What counts from now on.
    pub list: DeviceList,
    /// Peers that have it.
    pub acked: u32,
    /// Peers known. Those that lack it learn it from who reads a branch there.
    pub wanted: u32,
}

impl Heads {
    /// The owner's newest list of devices, as the holders of this branch know it; `None` where there is none.
    ///
    /// # Errors
    /// As [`Heads::read`].
    pub async fn devices(
        &self,
        object: &Object,
        branch: &str,
    ) -> Result<Option<DeviceList>, ObjectsError> {
        Ok(self.read(object, branch).await?.devices)
    }

    /// Lets a device write this user's heads, by its [`Objects::public_key`]. `known` is the newest list ([`Heads::devices`]), since a list is
    /// whole. It is done when more than half of the peers have it.
    ///
    /// # Errors
    /// [`ObjectsError::NotStored`], [`ObjectsError::Version`] for more devices than 64, [`ObjectsError::NotADevice`] where the list is
    /// somebody else's.
    pub async fn delegate(
        &self,
        known: Option<&DeviceList>,
        device: PublicKey,
    ) -> Result<Delegated, ObjectsError> {
        self.change(known, |devices| {
            devices.insert(device);
        })
        .await
    }

    /// Takes a device off the list: its heads are no tips from now on. As [`Heads::delegate`] otherwise.
    ///
    /// # Errors
    /// As there.
    pub async fn revoke(
        &self,
        known: Option<&DeviceList>,
        device: PublicKey,
    ) -> Result<Delegated, ObjectsError> {
        self.change(known, |devices| {
            devices.remove(&device);
        })
        .await
    }

    async fn change(
        &self,
        known: Option<&DeviceList>,
        change: impl FnOnce(&mut std::collections::BTreeSet<PublicKey>),
    ) -> Result<Delegated, ObjectsError> {
        let owner = self.objects.public_key();
        if let Some(list) = known.filter(|list| list.owner != owner) {
            return Err(ObjectsError::NotADevice(list.owner));
        }
        let remembered = self.objects.devices_of(&owner).map(|(list, _)| list);
        let newest = [known.cloned(), remembered].into_iter().flatten();
        let newest = newest.max_by_key(|list| list.sequence);
        let mut devices = newest.iter().flat_map(|list| list.devices.iter().copied()).collect();
        change(&mut devices);
        let list = DeviceList {
            network: self.objects.network(),
            owner,
            sequence: newest.map_or(0, |list| list.sequence) + 1,
            devices: devices.into_iter().collect(),
        };
        let record = list.sign(self.objects.suite(), self.objects.key())?;
        let (acked, wanted) = self.send_list(&record).await?;
        self.objects.take_devices(list.clone(), record);
        Ok(Delegated { list, acked, wanted })
    }

    async fn send_list(&self, record: &Record) -> Result<(u32, u32), ObjectsError> {
        let peers = self.objects.walker().directory().view().len().min(HOLDERS_ASKED_MAX);
        let copies = u32::try_from(peers).unwrap_or(u32::MAX).max(1);
        let redundancy = Redundancy { copies, acknowledged: copies / 2 + 1 };
        let sent =
            self.objects.send_with(record.place, redundancy, Vec::new(), vec![record.clone()]);
        match sent.await? {
            Delivered::Stored(mut at) => {
                let reached = at.rest.wait(ALL_WAIT).await;
                Ok((reached.acked, reached.wanted))
            }
            Delivered::Redirected(_) => Ok((0, copies)),
        }
    }
}

impl Objects {
    /// Takes a list that was proven; a lower one than is known is passed over.
    pub(crate) fn take_devices(&self, list: DeviceList, record: Record) {
        self.known().take_devices(list, record);
    }

    /// The newest list of an owner that was seen here.
    pub(crate) fn devices_of(&self, owner: &PublicKey) -> Option<(DeviceList, Record)> {
        self.known().devices_of(owner).cloned()
    }
}
