//! Who pays for records, and until when: leases, and the word that ends one.
//!
//! ```text
//! Shown     lease 1 (a Signed Lease) · pass 2 (a Signed Pass) · leaves 3 (repeated Leaf)
//! Lease     pass 1 (32: BLAKE3 of the signed pass) · root 2 (32) · leaves 3 (u32) · bytes 4 (u64) · redundancy 5 (u32) · from 6 (u64) · until 7 (u64)
//! Leaf      place 1 (32) · bytes 2 (u64) · index 3 (u32) · path 4 (the hashes, lowest first)
//! Forget    lease 1 (32) · client 2 (33) · until 3 (u64) · at 4 (u64)        a Signed one
//! ```
//! A client signs one lease for all that it sends together: the root of a [`tree`] over the places. Each holder gets the
//! lease, the leaves of its records and their paths, and nothing of the others. The pass goes along and is checked at the
//! time of the lease, so whoever is handed a copy a year later can check it too.
//!
//! Invariants: what [`Checked`] says was signed by the client that its pass names, while that pass counted; a [`Leaf`] that
//! [`Checked::leaf`] gave is one of the lease's.
//!
//! Limits: [`LEAVES_MAX`] leaves, [`LEASE_SECONDS_MAX`], [`SHOWN_LEAVES_MAX`] leaves shown at once.

mod forget;
mod kept;
mod shown;
pub mod tree;

use bytes::Bytes;
use prost::Message;

pub use forget::{Forget, SignedForget};
pub use kept::{Charged, Holding, Kept, kept_id, pass_id};
pub use shown::{SHOWN_BYTES_MAX, SHOWN_LEAVES_MAX, Shown, ShownLeaf};

use crate::canonical::{self, CanonicalError};
use crate::certificate::{self, CLOCK_SKEW_S, CertificateError, Pass};
use crate::{Class, Classified, ClientKey, KeyError, LeaseId, Listing, OrgId, Place, SecretKey};
use tree::Hash;

/// The most leaves of one lease.
pub const LEAVES_MAX: u32 = 65_536;
/// The longest lease, in seconds (ten years of 366 days).
pub const LEASE_SECONDS_MAX: u64 = 10 * 366 * 24 * 3600;
/// How long after it was signed a client may show a lease for the first time, in seconds: so nobody signs under a pass
/// that has ended.
pub const FRESH_SECONDS_MAX: u64 = 3600;

/// The most bytes of a leaf: a stripe's header and the longest fragment, with room to spare.
pub const LEAF_BYTES_MAX: u64 = (2 << 20) + (64 << 10);

const DOMAIN: &str = "lease";

/// Why a lease, or the word that ends one, does not count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// Not a canonical encoding.
    #[error("not a lease")]
    Encoding(#[from] CanonicalError),
    /// Over a bound.
    #[error("a lease, or what is shown with it, is too large")]
    TooLarge,
    /// A field holds what it cannot.
    #[error("the lease's {0} is not valid")]
    Field(&'static str),
    /// The pass does not count, or did not at the lease's time.
    #[error("the lease's pass: {0}")]
    Pass(#[source] CertificateError),
    /// It names another pass than the one that came with it.
    #[error("the lease was signed under another pass than the one shown with it")]
    OtherPass,
    /// Not signed by the client that the pass is for.
    #[error("the lease is not signed by the client of its pass, in this network")]
    Signer(#[source] KeyError),
    /// Not signed by the client whose lease it is to end.
    #[error("a lease is ended by its own client alone")]
    Forgetter(#[source] KeyError),
    /// Its time is over, or not come.
    #[error("the lease runs from {from} until {until} (Unix seconds), and it is {now}")]
    Time {
        /// Start.
        from: u64,
        /// End.
        until: u64,
        /// Now.
        now: u64,
    },
    /// It was signed too long ago to be shown for the first time.
    #[error(
        "the lease was signed at {from} and is shown at {now} (Unix seconds), over an hour later: sign \
         another"
    )]
    Stale {
        /// When it was signed.
        from: u64,
        /// Now.
        now: u64,
    },
    /// The path does not lead from the leaf to the lease's root.
    #[error("the leaf for {0} is none of the lease's: its path does not lead to the root")]
    Path(Place),
    /// The leaf says fewer bytes than there are.
    #[error("the leaf for {place} is for {said} bytes, and there are {found}")]
    Understated {
        /// Which leaf.
        place: Place,
        /// What it says.
        said: u64,
        /// What there is.
        found: u64,
    },
}

impl Classified for LeaseError {
    fn class(&self) -> Class {
        match self {
            Self::Encoding(_) | Self::TooLarge | Self::Field(_) | Self::OtherPass => Class::Invalid,
            Self::Path(_) | Self::Understated { .. } => Class::Invalid,
            Self::Pass(source) => source.class(),
            Self::Signer(_) | Self::Forgetter(_) | Self::Time { .. } | Self::Stale { .. } => {
                Class::Denied
            }
        }
    }
}

/// A place that is paid for, and how many bytes one holder keeps there at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The place: of a stripe its header and all its fragments are there.
    pub place: Place,
    /// Bytes: the record; of a stripe its header and its longest fragment.
    pub bytes: u64,
}

/// What a client signs for records that it sends together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How many holders each leaf has.
    pub redundancy: u32,
    /// When it is signed, Unix seconds.
    pub from: u64,
    /// When it ends, Unix seconds, exclusive.
    pub until: u64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseWire {
    #[prost(bytes = "bytes", tag = "1")]
    pass: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    root: Bytes,
    #[prost(uint32, tag = "3")]
    leaves: u32,
    #[prost(uint64, tag = "4")]
    bytes: u64,
    #[prost(uint32, tag = "5")]
    redundancy: u32,
    #[prost(uint64, tag = "6")]
    from: u64,
    #[prost(uint64, tag = "7")]
    until: u64,
}

/// Signs a lease over these leaves, as it is shown with all of them: a holder gets [`Shown::of`] its own.
///
/// # Errors
/// [`LeaseError::Field`] for no leaves, too many, one of more than [`LEAF_BYTES_MAX`], or terms that nobody takes; [`LeaseError::Pass`] for bytes that are no
/// pass. Whether the pass counts is for the holders to say.
pub fn sign(
    leaves: &[Leaf],
    terms: Terms,
    pass: &Bytes,
    client: &SecretKey,
    network: &crate::NetworkId,
) -> Result<Shown, LeaseError> {
    let count = u32::try_from(leaves.len()).map_err(|_| LeaseError::TooLarge)?;
    if leaves.iter().any(|leaf| leaf.bytes > LEAF_BYTES_MAX) {
        return Err(LeaseError::Field("bytes of a leaf"));
    }
    let levels = tree::Levels::new(leaves).ok_or(LeaseError::Field("count of leaves"))?;
    let wire = LeaseWire {
        pass: Bytes::copy_from_slice(&pass_hash(pass)),
        root: Bytes::copy_from_slice(&levels.root()),
        leaves: count,
        bytes: leaves.iter().fold(0, |sum: u64, leaf| sum.saturating_add(leaf.bytes)),
        redundancy: terms.redundancy,
        from: terms.from,
        until: terms.until,
    };
    check_terms(&wire)?;
    let lease = certificate::sign(client, DOMAIN, network, wire.encode_to_vec());
    let shown = leaves.iter().zip(0..).map(|(leaf, index)| ShownLeaf {
        leaf: *leaf,
        index,
        path: levels.path(index),
    });
    Ok(Shown { lease, pass: pass.clone(), leaves: shown.collect() })
}

fn pass_hash(pass: &[u8]) -> Hash {
    *blake3::hash(pass).as_bytes()
}

fn check_terms(wire: &LeaseWire) -> Result<(), LeaseError> {
    if !(1..=LEAVES_MAX).contains(&wire.leaves) {
        return Err(LeaseError::Field("count of leaves"));
    }
    if wire.redundancy == 0 || wire.redundancy > 256 {
        return Err(LeaseError::Field("redundancy"));
    }
    let length = wire.until.checked_sub(wire.from);
    if length.is_none_or(|seconds| seconds == 0 || seconds > LEASE_SECONDS_MAX) {
        return Err(LeaseError::Field("length of validity"));
    }
    Ok(())
}

/// A lease's parts, its form checked, and that it is of this pass.
fn opened(lease: &Bytes, pass: &Bytes) -> Result<(certificate::SignedWire, LeaseWire), LeaseError> {
    let opened = certificate::open::<LeaseWire>(lease);
    let (signed, wire) = opened.map_err(|error| match error {
        CertificateError::Encoding(source) => LeaseError::Encoding(source),
        _ => LeaseError::TooLarge,
    })?;
    check_terms(&wire)?;
    if wire.pass[..] != pass_hash(pass) {
        return Err(LeaseError::OtherPass);
    }
    Ok((signed, wire))
}

/// A lease whose signature, pass and form were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Which lease.
    pub id: LeaseId,
    /// Who signed it, and may end it.
    pub client: ClientKey,
    /// Who pays, by its key in the roster that it was checked against.
    pub organisation: OrgId,
    /// The pass's quota for the client; 0 where none is set.
    pub quota: u64,
    /// How many leaves it has.
    pub leaves: u32,
    /// Their bytes together.
    pub bytes: u64,
    /// Holders of each, and its time.
    pub terms: Terms,
    root: Hash,
}

impl Checked {
    /// Checks a lease and the pass that it was signed under, at the time at which it was signed.
    ///
    /// # Errors
    /// [`LeaseError`]. Whether it runs now, [`Checked::runs`] says.
    pub fn verify(lease: &Bytes, pass: &Bytes, roster: &impl Listing) -> Result<Self, LeaseError> {
        let (signed, wire) = opened(lease, pass)?;
        let pass = Pass::verify(pass, roster, wire.from).map_err(LeaseError::Pass)?;
        let network = roster.network_id();
        let key = pass.client.key();
        key.verify(DOMAIN, &network, &signed.body, &signed.signature)
            .map_err(LeaseError::Signer)?;
        Self::of(&signed, &wire, &pass)
    }

    /// What a lease says that was checked when it was written to this machine's own disk: no signature is. An organisation
    /// that the roster does not list any more goes by the key that it signed with.
    ///
    /// # Errors
    /// [`LeaseError`] where it is no lease of that pass at all.
    pub fn trusted(lease: &Bytes, pass: &Bytes, roster: &impl Listing) -> Result<Self, LeaseError> {
        let (signed, wire) = opened(lease, pass)?;
        let mut pass = Pass::trusted(pass).map_err(LeaseError::Pass)?;
        if let Some(listed) = roster.listed(&pass.organisation, wire.from) {
            pass.organisation = listed.organisation;
        }
        Self::of(&signed, &wire, &pass)
    }

    /// Checks a lease that this client signed itself, whatever has become since of the pass that it signed under, and of who
    /// signed that: for whoever ends its own.
    ///
    /// # Errors
    /// [`LeaseError`].
    pub fn own(
        lease: &Bytes,
        pass: &Bytes,
        client: &crate::PublicKey,
        roster: &impl Listing,
    ) -> Result<Self, LeaseError> {
        let (signed, _) = opened(lease, pass)?;
        client
            .verify(DOMAIN, &roster.network_id(), &signed.body, &signed.signature)
            .map_err(LeaseError::Signer)?;
        let checked = Self::trusted(lease, pass, roster)?;
        match checked.client.key() == client {
            true => Ok(checked),
            false => Err(LeaseError::OtherPass),
        }
    }

    fn of(
        signed: &certificate::SignedWire,
        wire: &LeaseWire,
        pass: &Pass,
    ) -> Result<Self, LeaseError> {
        let root = Hash::try_from(&wire.root[..]).map_err(|_| LeaseError::Field("root"))?;
        Ok(Self {
            id: LeaseId::new(*blake3::hash(&signed.body).as_bytes()),
            client: pass.client,
            organisation: pass.organisation,
            quota: pass.quota,
            leaves: wire.leaves,
            bytes: wire.bytes,
            terms: Terms { redundancy: wire.redundancy, from: wire.from, until: wire.until },
            root,
        })
    }

    /// Whether it runs at `now`, Unix seconds, with the clocks' allowance on both sides.
    ///
    /// # Errors
    /// [`LeaseError::Time`].
    pub fn runs(&self, now: u64) -> Result<(), LeaseError> {
        let Terms { from, until, .. } = self.terms;
        let over = now >= until.saturating_add(CLOCK_SKEW_S);
        if over || now.saturating_add(CLOCK_SKEW_S) < from {
            return Err(LeaseError::Time { from, until, now });
        }
        Ok(())
    }

    /// Whether a client may show it for the first time at `now`, Unix seconds.
    ///
    /// # Errors
    /// [`LeaseError::Time`], [`LeaseError::Stale`].
    pub fn is_fresh(&self, now: u64) -> Result<(), LeaseError> {
        self.runs(now)?;
        let from = self.terms.from;
        if now > from.saturating_add(FRESH_SECONDS_MAX + CLOCK_SKEW_S) {
            return Err(LeaseError::Stale { from, now });
        }
        Ok(())
    }

    /// The leaf, where it is one of this lease.
    ///
    /// # Errors
    /// [`LeaseError::Path`]; [`LeaseError::Field`] where it says more bytes than the whole lease, or than a holder can keep
    /// at one place.
    pub fn leaf(&self, shown: &ShownLeaf) -> Result<Leaf, LeaseError> {
        let ShownLeaf { leaf, index, path } = shown;
        if tree::root(leaf, *index, self.leaves, path) != Some(self.root) {
            return Err(LeaseError::Path(leaf.place));
        }
        if leaf.bytes > self.bytes.min(LEAF_BYTES_MAX) {
            return Err(LeaseError::Field("bytes of a leaf"));
        }
        Ok(*leaf)
    }
}

/// When a signed lease ends, Unix seconds, unchecked.
pub fn until(lease: &Bytes) -> Option<u64> {
    certificate::open::<LeaseWire>(lease).ok().map(|(_, wire)| wire.until)
}

/// How many holders a signed lease pays for, unchecked.
pub fn redundancy(lease: &Bytes) -> Option<u32> {
    certificate::open::<LeaseWire>(lease).ok().map(|(_, wire)| wire.redundancy)
}

/// The id of a signed lease, unchecked: what names it.
///
/// # Errors
/// [`LeaseError::Encoding`].
pub fn id(lease: &Bytes) -> Result<LeaseId, LeaseError> {
    let signed: certificate::SignedWire = canonical::decode(lease)?;
    Ok(LeaseId::new(*blake3::hash(&signed.body).as_bytes()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::{Genesis, NetworkId, Organisation, Suite, Tier};

    fn secret(byte: u8) -> SecretKey {
        SecretKey::from_bytes(&[byte; 32]).unwrap()
    }

    fn genesis() -> Genesis {
        let key = OrgId::new(secret(1).public());
        let organisations = vec![Organisation { key, name: "one".into() }];
        let (name, suite, nonce) = ("network".into(), Suite::Holdfast1, [7; 16]);
        let (copies, profile, created) = (None, None, 1000);
        Genesis { name, suite, organisations, copies, profile, created, nonce }.checked().unwrap()
    }

    fn pass(network: &NetworkId) -> Bytes {
        let (client, organisation) =
            (ClientKey::new(secret(4).public()), OrgId::new(secret(1).public()));
        let (tier, quota, from, until) = (Tier::Known, 0, 1000, 2000);
        Pass { client, organisation, tier, quota, from, until }.sign(&secret(1), network)
    }

    #[test]
    fn a_leaf_of_more_than_a_holder_keeps_at_a_place_is_refused() {
        let network = genesis().network();
        let leaf = Leaf { place: Place::new([1; 32]), bytes: LEAF_BYTES_MAX + 1 };
        let terms = Terms { redundancy: 3, from: 1000, until: 3000 };
        let signed = sign(&[leaf], terms, &pass(&network), &secret(4), &network);
        assert!(matches!(signed, Err(LeaseError::Field("bytes of a leaf"))));
        // One that signs it all the same.
        let root = tree::Levels::new(&[leaf]).unwrap().root();
        let wire = LeaseWire {
            pass: Bytes::copy_from_slice(&pass_hash(&pass(&network))),
            root: Bytes::copy_from_slice(&root),
            leaves: 1,
            bytes: leaf.bytes,
            redundancy: 3,
            from: 1000,
            until: 3000,
        };
        let lease = certificate::sign(&secret(4), DOMAIN, &network, wire.encode_to_vec());
        let checked = Checked::verify(&lease, &pass(&network), &genesis()).unwrap();
        let refused = checked.leaf(&ShownLeaf { leaf, index: 0, path: Vec::new() });
        assert!(matches!(refused, Err(LeaseError::Field("bytes of a leaf"))), "{refused:?}");
    }

    #[test]
    fn its_own_lease_counts_for_its_client_whatever_became_of_the_pass_and_for_no_other() {
        let network = genesis().network();
        let leaf = Leaf { place: Place::new([1; 32]), bytes: 10 };
        let terms = Terms { redundancy: 3, from: 2500, until: 3000 };
        let shown = sign(&[leaf], terms, &pass(&network), &secret(4), &network).unwrap();
        let (lease, pass) = (&shown.lease, &shown.pass);
        assert!(Checked::verify(lease, pass, &genesis()).is_err(), "the pass had ended");
        let own = Checked::own(lease, pass, &secret(4).public(), &genesis()).unwrap();
        assert_eq!(own.leaf(&shown.leaves[0]).unwrap(), leaf);
        assert!(Checked::own(lease, pass, &secret(5).public(), &genesis()).is_err());
        let forged = sign(&[leaf], terms, pass, &secret(5), &network).unwrap();
        assert!(Checked::own(&forged.lease, pass, &secret(4).public(), &genesis()).is_err());
        assert!(Checked::own(&forged.lease, pass, &secret(5).public(), &genesis()).is_err());
    }
}
