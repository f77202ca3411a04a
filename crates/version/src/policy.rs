//! What an object's owner says of it: who reads, who writes, how many copies there are.
//!
//! ```text
//! "holdfast policy v1" | length, 4 | Policy | signature, 64
//!
//! Policy   network 1 (32) · owner 2 (33) · name 3 (bytes) · family 4 (bool) · version 5 (u64, from 1) · open 6 (bool) · public 7 (bool) ·
//!          readers 8 (repeated, 33 each) · writers 9 (repeated, 33 each) · copies 10 (u32) · acknowledged 11 (u32) ·
//!          region_bytes 12 (u64) · payer 13 (33)
//! ```
//! Signed by the owner in the domain `policy`. It names its object as the owner does, and not by its key: owner, network and name
//! make the key, so a policy proves by itself whose it is, and nobody can plant one for another's object. A **family** is all of the
//! owner's objects whose names begin so, that a million small keys need one signature.
//!
//! Of one object, or family, the highest version counts and no lower one is taken any more, nor another of the same
//! number. A policy of the object itself counts before a family's, a longer prefix before a shorter one ([`Policies`]).
//! Where there is none, [`Policy::implied`] counts: sealed, the owner alone.

use bytes::Bytes;
use crypto::{NetworkId, Place, PublicKey, SecretKey, Suite};
use document::{Kind, Record};
use prost::Message;

use crate::object::{NAME_BYTES_MAX, check_name, key_of};
use crate::signed::{self, Format};
use crate::{ObjectKey, VersionError};

mod policies;

pub use policies::{POLICIES_BYTES_MAX, Policies, Taken, weight};

/// The most readers, and the most writers, that a policy lists.
pub const POLICY_KEYS_MAX: usize = 256;
/// The most copies that a policy asks for.
pub const COPIES_MAX: u32 = 64;
/// The longest record of a policy, in bytes.
pub const POLICY_BYTES_MAX: usize = 24 << 10;

const FORMAT: Format = Format {
    what: "policy",
    prefix: b"holdfast policy v1",
    domain: "policy",
    max: POLICY_BYTES_MAX,
};

/// What a policy is for: an object, by the name that its owner gave it, or all whose names begin so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum For {
    /// One object.
    Object(Bytes),
    /// All of the owner's whose names begin so; nothing: all.
    Family(Bytes),
}

/// What an object's owner says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The network.
    pub network: NetworkId,
    /// Whose word it is.
    pub owner: PublicKey,
    /// What it is for.
    pub for_what: For,
    /// From 1, and higher with each; 0 for the implied one alone.
    pub version: u64,
    /// Peers see values and may merge and compress them; else values are sealed by whoever writes.
    pub open: bool,
    /// Anybody may read.
    pub public: bool,
    /// Who may read, beside the owner and the writers.
    pub readers: Vec<PublicKey>,
    /// Who may write, beside the owner.
    pub writers: Vec<PublicKey>,
    /// Copies (N), at most [`COPIES_MAX`]; `None` where the network's own number counts.
    pub copies: Option<Copies>,
    /// Bytes that a holder keeps at one place before it redirects; 0 where the peer's own number counts.
    pub region_bytes: u64,
    /// Who pays, where that is not the owner.
    pub payer: Option<PublicKey>,
}

/// How many copies of an object's versions there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// In all (N), from 1.
    pub copies: u32,
    /// Before a put is answered (W), from 1 to N.
    pub acknowledged: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Wire {
    #[prost(bytes = "bytes", tag = "1")]
    network: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    owner: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    name: Bytes,
    #[prost(bool, tag = "4")]
    family: bool,
    #[prost(uint64, tag = "5")]
    version: u64,
    #[prost(bool, tag = "6")]
    open: bool,
    #[prost(bool, tag = "7")]
    public: bool,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    readers: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "9")]
    writers: Vec<Bytes>,
    #[prost(uint32, tag = "10")]
    copies: u32,
    #[prost(uint32, tag = "11")]
    acknowledged: u32,
    #[prost(uint64, tag = "12")]
    region_bytes: u64,
    #[prost(bytes = "bytes", tag = "13")]
    payer: Bytes,
}

impl Policy {
    /// What counts where the owner said nothing: sealed, for the owner alone, as many copies as the network has.
    pub const fn implied(network: NetworkId, owner: PublicKey) -> Self {
        Self {
            network,
            owner,
            for_what: For::Family(Bytes::new()),
            version: 0,
            open: false,
            public: false,
            readers: Vec::new(),
            writers: Vec::new(),
            copies: None,
            region_bytes: 0,
            payer: None,
        }
    }

    /// The signed record; `key` is the owner's. Readers and writers are put in order.
    ///
    /// # Errors
    /// [`VersionError`] for what no policy can say.
    pub fn sign(&self, suite: Suite, key: &SecretKey) -> Result<Record, VersionError> {
        let bytes = FORMAT.sign(&self.wire(), key, &self.network)?;
        // What cannot be read again is not let out; a key that is not the owner's is found so too.
        let policy = Self::verify(&bytes)?;
        let (id, place) = (suite.id(&bytes), policy.place(suite)?);
        Ok(Record { kind: Kind::Policy, id, place, bytes })
    }

    fn wire(&self) -> Wire {
        let (name, family) = match &self.for_what {
            For::Object(name) => (name, false),
            For::Family(prefix) => (prefix, true),
        };
        let (copies, acknowledged) =
            self.copies.map_or((0, 0), |wanted| (wanted.copies, wanted.acknowledged));
        let key = |key: &PublicKey| Bytes::copy_from_slice(key.as_bytes());
        Wire {
            network: Bytes::copy_from_slice(self.network.as_bytes()),
            owner: key(&self.owner),
            name: name.clone(),
            family,
            version: self.version,
            open: self.open,
            public: self.public,
            readers: signed::in_order(&self.readers),
            writers: signed::in_order(&self.writers),
            copies,
            acknowledged,
            region_bytes: self.region_bytes,
            payer: self.payer.as_ref().map(key).unwrap_or_default(),
        }
    }

    /// Decodes, and checks the form and the owner's signature. That the network is the caller's own, the caller checks
    /// ([`Policies`] does).
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn verify(bytes: &Bytes) -> Result<Self, VersionError> {
        let opened = FORMAT.open::<Wire>(bytes)?;
        let policy = Self::from_wire(&opened.message)?;
        FORMAT.verify(&opened, &policy.owner, &policy.network)?;
        Ok(policy)
    }

    fn from_wire(wire: &Wire) -> Result<Self, VersionError> {
        let for_what = match wire.family {
            false => {
                check_name(&wire.name)?;
                For::Object(wire.name.clone())
            }
            true if wire.name.len() <= NAME_BYTES_MAX => For::Family(wire.name.clone()),
            true => return Err(VersionError::Field("prefix of the family")),
        };
        if wire.version == 0 {
            return Err(VersionError::Field("version of the policy"));
        }
        let copies = match (wire.copies, wire.acknowledged) {
            (0, 0) => None,
            (copies @ 1..=COPIES_MAX, acknowledged) if (1..=copies).contains(&acknowledged) => {
                Some(Copies { copies, acknowledged })
            }
            _ => return Err(VersionError::Field("number of copies in the policy")),
        };
        let payer = match wire.payer.is_empty() {
            true => None,
            false => Some(PublicKey::from_slice(&wire.payer)?),
        };
        Ok(Self {
            network: signed::network(&wire.network)?,
            owner: PublicKey::from_slice(&wire.owner)?,
            for_what,
            version: wire.version,
            open: wire.open,
            public: wire.public,
            readers: signed::keys(&wire.readers, POLICY_KEYS_MAX, "list of readers")?,
            writers: signed::keys(&wire.writers, POLICY_KEYS_MAX, "list of writers")?,
            copies,
            region_bytes: wire.region_bytes,
            payer,
        })
    }

    /// The key of the object that it is for, `None` for a family.
    ///
    /// # Errors
    /// [`VersionError`] where no object can be called so.
    pub fn object(&self, suite: Suite) -> Result<Option<ObjectKey>, VersionError> {
        match &self.for_what {
            For::Object(name) => key_of(suite, &self.network, &self.owner, name).map(Some),
            For::Family(_) => Ok(None),
        }
    }

    /// Where it lives: at H(the object's key), or H(owner || prefix of the family).
    ///
    /// # Errors
    /// As [`Policy::object`].
    pub fn place(&self, suite: Suite) -> Result<Place, VersionError> {
        match &self.for_what {
            For::Family(prefix) => Ok(family_place(suite, &self.owner, prefix)),
            For::Object(name) => {
                key_of(suite, &self.network, &self.owner, name).map(|key| policy_place(suite, &key))
            }
        }
    }

    /// Whether this key may read.
    pub fn may_read(&self, who: &PublicKey) -> bool {
        self.public || self.may_write(who) || self.readers.contains(who)
    }

    /// Whether this key may write.
    pub fn may_write(&self, who: &PublicKey) -> bool {
        *who == self.owner || self.writers.contains(who)
    }

    /// Who pays.
    pub fn payer(&self) -> &PublicKey {
        self.payer.as_ref().unwrap_or(&self.owner)
    }
}

/// Where the policies of an object live.
pub fn policy_place(suite: Suite, object: &ObjectKey) -> Place {
    Place::new(suite.hash(object.as_bytes()))
}

/// Where the policies of a family live.
pub fn family_place(suite: Suite, owner: &PublicKey, prefix: &[u8]) -> Place {
    Place::new(suite.hash(&[&owner.as_bytes()[..], prefix].concat()))
}

#[cfg(test)]
mod tests;
