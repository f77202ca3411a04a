//! The genesis of a network: its name, suite and first roster. Its hash is the network's id.
//!
//! ```text
//! Genesis        version 1 (u32, 1) · name 2 · suite 3 (its name) · organisations 4 (repeated) ·
//!                copies 5 (u32, 0 = by the table of `placement`) · created 6 (u64, Unix seconds) · nonce 7 (16 random bytes) ·
//!                profile 8 (absent = by `copies`)
//! Organisation   key 1 (33) · name 2
//! Profile        k 1 (u32) · n 2 (u32)
//! ```
//! Canonical protobuf, at most 1 MiB. Names are 1 to 64 bytes of printable text without control characters.

use bytes::Bytes;
use prost::Message;

use crate::canonical::{self, CanonicalError};
use crate::{Class, Classified, NetworkId, OrgId, Suite};

/// The most organisations one roster may list.
pub const ORGANISATIONS_MAX: usize = 1_000;
/// The longest name of a network or an organisation, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// The most copies a genesis may ask for.
pub const COPIES_MAX: u32 = 64;
/// The most fragments a stripe has.
pub const FRAGMENTS_MAX: u32 = 256;
/// The largest encoded genesis, in bytes.
pub const GENESIS_BYTES_MAX: usize = 1 << 20;

/// Why bytes or values are no genesis.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenesisError {
    /// Not a canonical encoding.
    #[error("not a network file")]
    Encoding(#[from] CanonicalError),
    /// Too large.
    #[error("a network file is at most {GENESIS_BYTES_MAX} bytes")]
    TooLarge,
    /// A version this program does not know.
    #[error("network file version {0} is not known to this program; a newer one may read it")]
    Version(u32),
    /// The suite's name is unknown.
    #[error(transparent)]
    Suite(#[from] crate::UnknownSuite),
    /// No organisation, too many, or one twice.
    #[error("a roster lists 1 to {ORGANISATIONS_MAX} different organisations")]
    Organisations,
    /// An organisation's key is not a key.
    #[error("an organisation's key is not valid")]
    Key(#[from] crate::KeyError),
    /// A name is empty, too long, or holds control characters.
    #[error("a name has 1 to {NAME_BYTES_MAX} bytes, and no control or invisible characters")]
    Name,
    /// No copies, or more than allowed.
    #[error("copies: 1 to {COPIES_MAX}")]
    Copies,
    /// A stripe that is none.
    #[error("profile: K/N with K from 1 to N - 1, and N at most {FRAGMENTS_MAX}")]
    Profile,
    /// A stripe beside a number of copies, which is another profile.
    #[error("a network keeps stripes or a number of copies, not both: leave one of them out")]
    CopiesAndProfile,
    /// A stripe in a network whose records have none.
    #[error("a network of suite libri-1 keeps copies: leave the profile out")]
    ProfileOfLibri,
}

impl Classified for GenesisError {
    fn class(&self) -> Class {
        Class::Invalid
    }
}

/// An organisation as a roster lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Organisation {
    /// Its key.
    pub key: OrgId,
    /// What people call it.
    pub name: String,
}

/// What a network keeps contents as: stripes of n fragments, any k of which are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenesisProfile {
    /// Fragments that are enough, at least 1.
    pub k: u32,
    /// Fragments in all, more than k and at most [`FRAGMENTS_MAX`].
    pub n: u32,
}

/// What a network is born from. Public; every peer and client has the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Genesis {
    /// What people call the network.
    pub name: String,
    /// Its algorithms.
    pub suite: Suite,
    /// Roster 0, ascending by key.
    pub organisations: Vec<Organisation>,
    /// Copies of each page, where the network does not go by the table.
    pub copies: Option<u32>,
    /// The stripes it keeps, where it does not go by the table; never beside `copies`.
    pub profile: Option<GenesisProfile>,
    /// When it was made, Unix seconds.
    pub created: u64,
    /// Sixteen random bytes, so that two networks of the same organisations differ.
    pub nonce: [u8; 16],
}

#[derive(Clone, PartialEq, Message)]
struct OrganisationWire {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ProfileWire {
    #[prost(uint32, tag = "1")]
    k: u32,
    #[prost(uint32, tag = "2")]
    n: u32,
}

#[derive(Clone, PartialEq, Message)]
struct GenesisWire {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    suite: String,
    #[prost(message, repeated, tag = "4")]
    organisations: Vec<OrganisationWire>,
    #[prost(uint32, tag = "5")]
    copies: u32,
    #[prost(uint64, tag = "6")]
    created: u64,
    #[prost(bytes = "bytes", tag = "7")]
    nonce: Bytes,
    #[prost(message, optional, tag = "8")]
    profile: Option<ProfileWire>,
}

impl Genesis {
    /// Checks the values and puts the organisations in order.
    ///
    /// # Errors
    /// [`GenesisError`] for a bad name, roster, number of copies or profile.
    pub fn checked(mut self) -> Result<Self, GenesisError> {
        self.organisations.sort_by_key(|organisation| organisation.key);
        let pairs = self.organisations.windows(2);
        let repeated = pairs.into_iter().any(|pair| pair[0].key == pair[1].key);
        if repeated || !(1..=ORGANISATIONS_MAX).contains(&self.organisations.len()) {
            return Err(GenesisError::Organisations);
        }
        let names = self.organisations.iter().map(|organisation| &organisation.name);
        if !names.chain([&self.name]).all(|name| is_name(name)) {
            return Err(GenesisError::Name);
        }
        if self.copies.is_some_and(|copies| !(1..=COPIES_MAX).contains(&copies)) {
            return Err(GenesisError::Copies);
        }
        if let Some(GenesisProfile { k, n }) = self.profile {
            if !(1 <= k && k < n && n <= FRAGMENTS_MAX) {
                return Err(GenesisError::Profile);
            }
            if self.suite == Suite::Libri1 {
                return Err(GenesisError::ProfileOfLibri);
            }
            if self.copies.is_some() {
                return Err(GenesisError::CopiesAndProfile);
            }
        }
        Ok(self)
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let organisations = self.organisations.iter().map(|organisation| OrganisationWire {
            key: Bytes::copy_from_slice(organisation.key.as_bytes()),
            name: organisation.name.clone(),
        });
        GenesisWire {
            version: 1,
            name: self.name.clone(),
            suite: self.suite.name().to_owned(),
            organisations: organisations.collect(),
            copies: self.copies.unwrap_or(0),
            created: self.created,
            nonce: Bytes::copy_from_slice(&self.nonce),
            profile: self.profile.map(|profile| ProfileWire { k: profile.k, n: profile.n }),
        }
        .encode_to_vec()
    }

    /// Decodes and checks.
    ///
    /// # Errors
    /// [`GenesisError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, GenesisError> {
        if bytes.len() > GENESIS_BYTES_MAX {
            return Err(GenesisError::TooLarge);
        }
        let wire: GenesisWire = canonical::decode(&Bytes::copy_from_slice(bytes))?;
        if wire.version != 1 {
            return Err(GenesisError::Version(wire.version));
        }
        let organisations = wire.organisations.into_iter().map(|organisation| {
            let key = OrgId::from_slice(&organisation.key)?;
            Ok(Organisation { key, name: organisation.name })
        });
        let organisations = organisations.collect::<Result<Vec<_>, GenesisError>>()?;
        if !organisations.is_sorted_by(|a, b| a.key < b.key) {
            return Err(GenesisError::Organisations);
        }
        Self {
            name: wire.name,
            suite: wire.suite.parse()?,
            organisations,
            copies: (wire.copies != 0).then_some(wire.copies),
            profile: wire.profile.map(|ProfileWire { k, n }| GenesisProfile { k, n }),
            created: wire.created,
            nonce: wire.nonce[..]
                .try_into()
                .map_err(|_| GenesisError::Encoding(CanonicalError::NotCanonical))?,
        }
        .checked()
    }

    /// The network's id: the suite's hash of the canonical bytes.
    pub fn network(&self) -> NetworkId {
        NetworkId::new(self.suite.hash(&self.encode()))
    }

    /// The organisation with this key, where the roster lists it.
    pub fn organisation(&self, key: &OrgId) -> Option<&Organisation> {
        let at = self.organisations.binary_search_by_key(key, |organisation| organisation.key);
        at.ok().and_then(|at| self.organisations.get(at))
    }
}

/// Whether something may be the name of a network or an organisation: 1 to [`NAME_BYTES_MAX`] bytes, of which none hides what is
/// written ([`hides`]), so that whoever signs a roster reads what it says.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(hides)
}

/// Whether text with this letter may look like other text: control characters, and those that change the direction of what
/// follows or are not seen (but for the joiners that some scripts are written with).
pub fn hides(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61C}'
                | '\u{200B}'
                | '\u{200E}'
                | '\u{200F}'
                | '\u{2028}'..='\u{202E}'
                | '\u{2060}'..='\u{206F}'
                | '\u{FEFF}'
        )
}
