//! The owner's list of devices that may write its heads.
//!
//! ```text
//! "holdfast devices v1" | length, 4 | Devices | signature, 64
//!
//! Devices   network 1 (32) · owner 2 (33) · sequence 3 (u64, from 1) · devices 4 (repeated, 33 each)
//! ```
//! Signed by the owner in the domain `devices`. A list is whole: of two the higher sequence counts and replaces the other, so that nobody
//! needs the history; no lower one is taken any more, nor another of the same number. A device that is not in it any more is
//! revoked. Whoever revokes one whose head is to stay supersedes that head with a record of its own first.

use bytes::Bytes;
use crypto::{NetworkId, Place, PublicKey, SecretKey, Suite};
use document::{Kind, Record};
use prost::Message;

use crate::VersionError;
use crate::policy::Taken;
use crate::signed::{self, Format};

/// The most devices of one owner.
pub const DEVICES_MAX: usize = 64;

const FORMAT: Format = Format {
    what: "list of devices",
    prefix: b"holdfast devices v1",
    domain: "devices",
    max: 4 << 10,
};

/// The devices that may write an owner's heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceList {
    /// The network.
    pub network: NetworkId,
    /// Whose devices they are.
    pub owner: PublicKey,
    /// From 1, and higher with each list.
    pub sequence: u64,
    /// Their keys, at most [`DEVICES_MAX`].
    pub devices: Vec<PublicKey>,
}

#[derive(Clone, PartialEq, Message)]
struct Wire {
    #[prost(bytes = "bytes", tag = "1")]
    network: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    owner: Bytes,
    #[prost(uint64, tag = "3")]
    sequence: u64,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    devices: Vec<Bytes>,
}

impl DeviceList {
    /// The signed record; `key` is the owner's. Devices are put in order.
    ///
    /// # Errors
    /// [`VersionError`] for what no list can say.
    pub fn sign(&self, suite: Suite, key: &SecretKey) -> Result<Record, VersionError> {
        let wire = Wire {
            network: Bytes::copy_from_slice(self.network.as_bytes()),
            owner: Bytes::copy_from_slice(self.owner.as_bytes()),
            sequence: self.sequence,
            devices: signed::in_order(&self.devices),
        };
        let bytes = FORMAT.sign(&wire, key, &self.network)?;
        // What cannot be read again is not let out; a key that is not the owner's is found so too.
        let place = devices_place(suite, &Self::verify(&bytes)?.owner);
        Ok(Record { kind: Kind::Devices, id: suite.id(&bytes), place, bytes })
    }

    /// Decodes, and checks the form and the owner's signature. That the network is the caller's own, the caller checks.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn verify(bytes: &Bytes) -> Result<Self, VersionError> {
        let opened = FORMAT.open::<Wire>(bytes)?;
        let Wire { network, owner, sequence, devices } = &opened.message;
        if *sequence == 0 {
            return Err(VersionError::Field("sequence of the list of devices"));
        }
        let list = Self {
            network: signed::network(network)?,
            owner: PublicKey::from_slice(owner)?,
            sequence: *sequence,
            devices: signed::keys(devices, DEVICES_MAX, "list of devices")?,
        };
        FORMAT.verify(&opened, &list.owner, &list.network)?;
        Ok(list)
    }

    /// Whether it names this device.
    pub fn names(&self, device: &PublicKey) -> bool {
        self.devices.contains(device)
    }

    /// Whether it takes the place of the list that is known.
    ///
    /// # Errors
    /// [`VersionError::OldDevices`] for a lower sequence, or another list of the same; [`VersionError::Field`] for another
    /// owner's or network's.
    pub fn follows(&self, known: Option<&Self>) -> Result<Taken, VersionError> {
        let Some(known) = known else { return Ok(Taken::New) };
        if (known.network, known.owner) != (self.network, self.owner) {
            return Err(VersionError::Field("owner of the list of devices, which is another,"));
        }
        if self == known {
            return Ok(Taken::Known);
        }
        if self.sequence > known.sequence {
            return Ok(Taken::New);
        }
        Err(VersionError::OldDevices { found: self.sequence, newest: known.sequence })
    }
}

/// Where an owner's lists live: at H("devices" || owner).
pub fn devices_place(suite: Suite, owner: &PublicKey) -> Place {
    Place::new(suite.hash(&[b"devices", &owner.as_bytes()[..]].concat()))
}
