//! Who may do what: an organisation's word for a peer or a client, and a peer's word for itself.
//!
//! ```text
//! Signed             body 1 (bytes of the message below) · signature 2 (64)
//! PeerCertificate    network 1 (32) · peer 2 (33) · organisation 3 (33) · addresses 4 (repeated) · capacity 5 (u64, bytes) · from 6 (u64) · until 7 (u64)
//! Pass               network 1 (32) · client 2 (33) · organisation 3 (33) · tier 4 (u32: 1 known, 2 own) · quota 5 (u64, bytes, 0 = none set) · from 6 (u64) · until 7 (u64)
//! Announcement       certificate 1 (a Signed PeerCertificate) · sequence 2 (u64) · p2p_addresses 3 (repeated) · state 4 (u32: 1 serving, 2 read-only, 3 stopped, 4 left)
//! ```
//! The signer of a certificate and of a pass is `organisation`, of an announcement the certificate's `peer`;
//! the domains are `peer-certificate`, `pass` and `announcement`. Times are Unix seconds; `from` is allowed
//! [`CLOCK_SKEW_S`] in the future. Addresses are printable ASCII without spaces. All is canonical protobuf,
//! at most [`SIGNED_BYTES_MAX`].

use bytes::Bytes;
use prost::Message;

use crate::canonical::{self, CanonicalError};
use crate::{
    Class, Classified, ClientKey, KeyError, Listed, Listing, NetworkId, OrgId, PeerId, SecretKey,
};

/// The largest encoded certificate, pass or announcement, in bytes.
pub const SIGNED_BYTES_MAX: usize = 16 * 1024;
/// The most addresses of one kind a certificate or an announcement lists.
pub const ADDRESSES_MAX: usize = 16;
/// The longest address, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;
/// How long a pass may be valid, in seconds (a day).
pub const PASS_SECONDS_MAX: u64 = 24 * 3600;
/// How far clocks may differ, in seconds.
pub const CLOCK_SKEW_S: u64 = 120;

/// Why a certificate, pass or announcement does not count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// Not a canonical encoding.
    #[error("not a certificate")]
    Encoding(#[from] CanonicalError),
    /// Over [`SIGNED_BYTES_MAX`], or a list in it over its bound.
    #[error("a certificate or a list in it is too large")]
    TooLarge,
    /// A field holds what it cannot.
    #[error("the certificate's {0} is not valid")]
    Field(&'static str),
    /// A key or the signature.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Made for another network.
    #[error("made for network {0}, not for this one")]
    Network(NetworkId),
    /// The roster does not list the organisation.
    #[error("organisation {0} is not in the network's roster")]
    Organisation(OrgId),
    /// Its organisation took its word back.
    #[error("organisation {0} revoked this key")]
    Revoked(OrgId),
    /// Not yet, or no longer, valid.
    #[error("valid from {from} until {until} (Unix seconds), and it is {now}")]
    Time {
        /// Start.
        from: u64,
        /// End.
        until: u64,
        /// Now.
        now: u64,
    },
    /// Signed later than now, by more than clocks may differ.
    #[error("signed {ahead_s} s ahead of the clock of who checks it: set the clocks, say by NTP")]
    Ahead {
        /// By how many seconds.
        ahead_s: u64,
    },
}

impl Classified for CertificateError {
    fn class(&self) -> Class {
        match self {
            Self::Encoding(_) | Self::TooLarge | Self::Field(_) | Self::Ahead { .. } => {
                Class::Invalid
            }
            Self::Key(source) => source.class(),
            Self::Network(_) | Self::Organisation(_) | Self::Revoked(_) | Self::Time { .. } => {
                Class::Denied
            }
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignedWire {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) body: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) signature: Bytes,
}

pub(crate) fn sign(key: &SecretKey, domain: &str, network: &NetworkId, body: Vec<u8>) -> Bytes {
    let signature = key.sign(domain, network, &body);
    let wire = SignedWire { body: body.into(), signature: Bytes::copy_from_slice(&signature) };
    wire.encode_to_vec().into()
}

pub(crate) fn open<M: Message + Default>(
    bytes: &Bytes,
) -> Result<(SignedWire, M), CertificateError> {
    if bytes.len() > SIGNED_BYTES_MAX {
        return Err(CertificateError::TooLarge);
    }
    let signed: SignedWire = canonical::decode(bytes)?;
    let body = canonical::decode(&signed.body)?;
    Ok((signed, body))
}

fn check_addresses(addresses: &[String]) -> Result<(), CertificateError> {
    let short = |address: &String| (1..=ADDRESS_BYTES_MAX).contains(&address.len());
    if addresses.len() > ADDRESSES_MAX || !addresses.iter().all(short) {
        return Err(CertificateError::TooLarge);
    }
    // They come from strangers and end in logs and terminals.
    if !addresses.iter().all(|address| address.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(CertificateError::Field("address"));
    }
    Ok(())
}

fn check_time(from: u64, until: u64, now: u64) -> Result<(), CertificateError> {
    let counts = from <= now.saturating_add(CLOCK_SKEW_S) && now < until;
    // It may count before `from`, as clocks differ, but not where it never does.
    if until <= from || !counts {
        return Err(CertificateError::Time { from, until, now });
    }
    Ok(())
}

pub(crate) fn check_network(
    roster: &impl Listing,
    found: &[u8],
    organisation: &OrgId,
    now: u64,
) -> Result<(NetworkId, Listed), CertificateError> {
    let network = roster.network_id();
    let found = NetworkId::from_slice(found).map_err(|_| CertificateError::Field("network"))?;
    if found != network {
        return Err(CertificateError::Network(found));
    }
    match roster.listed(organisation, now) {
        Some(listed) => Ok((network, listed)),
        None => Err(CertificateError::Organisation(*organisation)),
    }
}

/// An organisation's word that a peer is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The peer.
    pub peer: PeerId,
    /// The organisation that signed, by its key in the roster that it was checked against.
    pub organisation: OrgId,
    /// Where its gRPC listener is reached, `HOST:PORT`, best first.
    pub addresses: Vec<String>,
    /// Bytes it offers: its weight in placement.
    pub capacity: u64,
    /// Valid from, Unix seconds.
    pub from: u64,
    /// Valid until, Unix seconds, exclusive; no longer than the key that signed counts.
    pub until: u64,
}

#[derive(Clone, PartialEq, Message)]
struct PeerCertificateWire {
    #[prost(bytes = "bytes", tag = "1")]
    network: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    peer: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    organisation: Bytes,
    #[prost(string, repeated, tag = "4")]
    addresses: Vec<String>,
    #[prost(uint64, tag = "5")]
    capacity: u64,
    #[prost(uint64, tag = "6")]
    from: u64,
    #[prost(uint64, tag = "7")]
    until: u64,
}

const PEER_DOMAIN: &str = "peer-certificate";
const PASS_DOMAIN: &str = "pass";
const ANNOUNCEMENT_DOMAIN: &str = "announcement";

impl PeerCertificate {
    /// The signed certificate; `key` is the organisation's.
    pub fn sign(&self, key: &SecretKey, network: &NetworkId) -> Bytes {
        let wire = PeerCertificateWire {
            network: Bytes::copy_from_slice(network.as_bytes()),
            peer: Bytes::copy_from_slice(self.peer.as_bytes()),
            organisation: Bytes::copy_from_slice(self.organisation.as_bytes()),
            addresses: self.addresses.clone(),
            capacity: self.capacity,
            from: self.from,
            until: self.until,
        };
        sign(key, PEER_DOMAIN, network, wire.encode_to_vec())
    }

    /// Checks form, network, roster, signature and time (`now` in Unix seconds).
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn verify(
        bytes: &Bytes,
        roster: &impl Listing,
        now: u64,
    ) -> Result<Self, CertificateError> {
        let (signed, wire) = open::<PeerCertificateWire>(bytes)?;
        let signer = OrgId::from_slice(&wire.organisation)?;
        let (network, _) = check_network(roster, &wire.network, &signer, now)?;
        signer.key().verify_again(PEER_DOMAIN, &network, &signed.body, &signed.signature)?;
        Self::checked(wire, roster, now)
    }

    /// As [`PeerCertificate::verify`] but for the signature: for bytes whose signature was checked before, when the
    /// roster has changed since.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn relist(
        bytes: &Bytes,
        roster: &impl Listing,
        now: u64,
    ) -> Result<Self, CertificateError> {
        let (_, wire) = open::<PeerCertificateWire>(bytes)?;
        Self::checked(wire, roster, now)
    }

    fn checked(
        wire: PeerCertificateWire,
        roster: &impl Listing,
        now: u64,
    ) -> Result<Self, CertificateError> {
        let signer = OrgId::from_slice(&wire.organisation)?;
        let (_, listed) = check_network(roster, &wire.network, &signer, now)?;
        check_addresses(&wire.addresses)?;
        if wire.capacity == 0 {
            return Err(CertificateError::Field("capacity"));
        }
        check_time(wire.from, wire.until, now)?;
        Ok(Self {
            peer: PeerId::from_slice(&wire.peer)?,
            organisation: listed.organisation,
            addresses: wire.addresses,
            capacity: wire.capacity,
            from: wire.from,
            until: wire.until.min(listed.until),
        })
    }
}

/// How far a client is trusted by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Nobody of the roster vouches for it.
    Stranger,
    /// A peer or client of an organisation of the roster.
    Known,
    /// A client of the peer's own organisation.
    Own,
}

/// An organisation's word for a client, for at most a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The client.
    pub client: ClientKey,
    /// The organisation that signed, by its key in the roster that it was checked against.
    pub organisation: OrgId,
    /// Trust asked for: [`Tier::Known`] or [`Tier::Own`] (own counts at the organisation's peers alone).
    pub tier: Tier,
    /// Bytes the client may have stored; 0 where none is set.
    pub quota: u64,
    /// Valid from, Unix seconds.
    pub from: u64,
    /// Valid until, Unix seconds, exclusive; no longer than the key that signed counts.
    pub until: u64,
}

#[derive(Clone, PartialEq, Message)]
struct PassWire {
    #[prost(bytes = "bytes", tag = "1")]
    network: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    client: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    organisation: Bytes,
    #[prost(uint32, tag = "4")]
    tier: u32,
    #[prost(uint64, tag = "5")]
    quota: u64,
    #[prost(uint64, tag = "6")]
    from: u64,
    #[prost(uint64, tag = "7")]
    until: u64,
}

impl Pass {
    /// The signed pass; `key` is the organisation's.
    pub fn sign(&self, key: &SecretKey, network: &NetworkId) -> Bytes {
        let wire = PassWire {
            network: Bytes::copy_from_slice(network.as_bytes()),
            client: Bytes::copy_from_slice(self.client.as_bytes()),
            organisation: Bytes::copy_from_slice(self.organisation.as_bytes()),
            tier: if self.tier == Tier::Own { 2 } else { 1 },
            quota: self.quota,
            from: self.from,
            until: self.until,
        };
        sign(key, PASS_DOMAIN, network, wire.encode_to_vec())
    }

    /// Checks form, network, roster, signature and time (`now` in Unix seconds).
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn verify(
        bytes: &Bytes,
        roster: &impl Listing,
        now: u64,
    ) -> Result<Self, CertificateError> {
        let (signed, wire) = open::<PassWire>(bytes)?;
        let signer = OrgId::from_slice(&wire.organisation)?;
        let (network, listed) = check_network(roster, &wire.network, &signer, now)?;
        signer.key().verify_again(PASS_DOMAIN, &network, &signed.body, &signed.signature)?;
        check_time(wire.from, wire.until, now)?;
        let mut pass = Self::of(&wire)?;
        (pass.organisation, pass.until) = (listed.organisation, pass.until.min(listed.until));
        Ok(pass)
    }

    /// From when a pass is valid, Unix seconds, as its bytes say; unchecked. `None` for bytes that are no pass.
    pub fn starts(bytes: &Bytes) -> Option<u64> {
        open::<PassWire>(bytes).ok().map(|(_, wire)| wire.from)
    }

    /// What a pass says whose signature was checked when it was written to this machine's own disk.
    ///
    /// # Errors
    /// [`CertificateError`] where it is no pass at all.
    pub(crate) fn trusted(bytes: &Bytes) -> Result<Self, CertificateError> {
        let (_, wire) = open::<PassWire>(bytes)?;
        Self::of(&wire)
    }

    fn of(wire: &PassWire) -> Result<Self, CertificateError> {
        let tier = match wire.tier {
            1 => Tier::Known,
            2 => Tier::Own,
            _ => return Err(CertificateError::Field("tier")),
        };
        if wire.until.saturating_sub(wire.from) > PASS_SECONDS_MAX {
            return Err(CertificateError::Field("length of validity"));
        }
        Ok(Self {
            client: ClientKey::from_slice(&wire.client)?,
            organisation: OrgId::from_slice(&wire.organisation)?,
            tier,
            quota: wire.quota,
            from: wire.from,
            until: wire.until,
        })
    }
}

/// What a peer says it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerState {
    /// Reads and writes.
    Serving,
    /// Reads alone.
    ReadOnly,
    /// It went down on purpose and means to come back.
    Stopped,
    /// It left for good: it has no rank any more.
    Left,
    /// It leaves: it serves reads, takes nothing, and hands over what it holds.
    Leaving,
}

/// A peer's word for itself: its certificate, where libp2p reaches it, and what it is doing.
/// Of two by one peer the higher sequence counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The certificate, checked.
    pub certificate: PeerCertificate,
    /// Its signed bytes, as its organisation gave them.
    pub certificate_bytes: Bytes,
    /// Rises with each announcement: Unix milliseconds at signing.
    pub sequence: u64,
    /// libp2p multiaddresses.
    pub p2p_addresses: Vec<String>,
    /// What it is doing.
    pub state: PeerState,
}

#[derive(Clone, PartialEq, Message)]
struct AnnouncementWire {
    #[prost(bytes = "bytes", tag = "1")]
    certificate: Bytes,
    #[prost(uint64, tag = "2")]
    sequence: u64,
    #[prost(string, repeated, tag = "3")]
    p2p_addresses: Vec<String>,
    #[prost(uint32, tag = "4")]
    state: u32,
}

impl Announcement {
    /// The signed announcement; `key` is the peer's.
    pub fn sign(&self, key: &SecretKey, network: &NetworkId) -> Bytes {
        let wire = AnnouncementWire {
            certificate: self.certificate_bytes.clone(),
            sequence: self.sequence,
            p2p_addresses: self.p2p_addresses.clone(),
            state: match self.state {
                PeerState::Serving => 1,
                PeerState::ReadOnly => 2,
                PeerState::Stopped => 3,
                PeerState::Left => 4,
                PeerState::Leaving => 5,
            },
        };
        sign(key, ANNOUNCEMENT_DOMAIN, network, wire.encode_to_vec())
    }

    /// Whose an announcement is, as its bytes say; unchecked. `None` for bytes that are no announcement.
    pub fn claims(bytes: &Bytes) -> Option<PeerId> {
        let (_, wire) = open::<AnnouncementWire>(bytes).ok()?;
        let (_, certificate) = open::<PeerCertificateWire>(&wire.certificate).ok()?;
        PeerId::from_slice(&certificate.peer).ok()
    }

    /// Checks the certificate, the form and the peer's signature (`now` in Unix seconds).
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn verify(
        bytes: &Bytes,
        roster: &impl Listing,
        now: u64,
    ) -> Result<Self, CertificateError> {
        let (signed, wire) = open::<AnnouncementWire>(bytes)?;
        let certificate = PeerCertificate::verify(&wire.certificate, roster, now)?;
        let key = certificate.peer.key();
        key.verify(ANNOUNCEMENT_DOMAIN, &roster.network_id(), &signed.body, &signed.signature)?;
        check_addresses(&wire.p2p_addresses)?;
        let state = match wire.state {
            1 => PeerState::Serving,
            2 => PeerState::ReadOnly,
            3 => PeerState::Stopped,
            4 => PeerState::Left,
            5 => PeerState::Leaving,
            _ => return Err(CertificateError::Field("state")),
        };
        if wire.sequence > now.saturating_add(CLOCK_SKEW_S).saturating_mul(1000) {
            let ahead_s = (wire.sequence / 1000).saturating_sub(now);
            return Err(CertificateError::Ahead { ahead_s });
        }
        Ok(Self {
            certificate,
            certificate_bytes: wire.certificate,
            sequence: wire.sequence,
            p2p_addresses: wire.p2p_addresses,
            state,
        })
    }
}
