//! Profiles: how many fragments a file's bytes become, and how many of them bring it back.
//!
//! A network of few peers keeps copies, since a stripe needs a peer of its own for each fragment; from
//! nine peers on it keeps stripes, wider and with more parity as it grows. A genesis may say
//! otherwise, and so may whoever puts a file.
//!
//! Invariants, kept by [`Profile::stripe`], [`Profile::copies`], parsing, and a genesis that was
//! checked: 1 to [`COPIES_MAX`] copies; 1 <= k < n <= [`FRAGMENTS_MAX`]. Profiles put together by
//! hand may break them; the methods here stand that.

use std::fmt;
use std::str::FromStr;

use crypto::genesis::{COPIES_MAX, FRAGMENTS_MAX};
use crypto::{Class, Classified, Genesis, Suite};

use crate::redundancy::PAGE_COPIES;
use crate::view::View;

/// How the bytes of a content are kept: as copies of each page, or in stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// So many copies of each page (of fewer peers, one each, unless a put asks for them by number).
    Copies(u32),
    /// Stripes of n fragments, one peer each, any k of which are enough.
    Stripe {
        /// Fragments that are enough, and pages of a stripe.
        k: u32,
        /// Fragments in all.
        n: u32,
    },
}

/// Why a text or numbers are no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No name, no K/N, no copies:N.
    #[error("a profile is lean, archive, storj, K/N such as 16/48, or copies:N")]
    Form,
    /// K and N are no stripe.
    #[error("K/N: K from 1 to N - 1, and N at most {FRAGMENTS_MAX}")]
    Stripe,
    /// No number of copies.
    #[error("copies:N: N from 1 to {COPIES_MAX}")]
    Copies,
}

impl Classified for ProfileError {
    fn class(&self) -> Class {
        Class::Invalid
    }
}

/// Names that stand for a stripe, with what they stand for.
const NAMES: [(&str, Profile); 3] =
    [("lean", Profile::LEAN), ("archive", Profile::ARCHIVE), ("storj", Profile::STORJ)];

/// From how many peers on, which k and n: see [`Profile::by_peers`].
const ROWS: [(usize, u32, u32); 4] = [(9, 4, 8), (18, 8, 16), (25, 8, 24), (48, 16, 48)];

impl Profile {
    /// 10 of 16: 1.6 times the bytes, for networks whose peers are well looked after.
    pub const LEAN: Self = Self::Stripe { k: 10, n: 16 };
    /// 16 of 64, OceanStore's: 4 times the bytes.
    pub const ARCHIVE: Self = Self::Stripe { k: 16, n: 64 };
    /// 29 of 80, Storj's.
    pub const STORJ: Self = Self::Stripe { k: 29, n: 80 };

    /// Stripes of k and n.
    ///
    /// # Errors
    /// [`ProfileError::Stripe`] unless 1 <= k < n <= [`FRAGMENTS_MAX`].
    pub fn stripe(k: u32, n: u32) -> Result<Self, ProfileError> {
        let valid = 1 <= k && k < n && n <= FRAGMENTS_MAX;
        valid.then_some(Self::Stripe { k, n }).ok_or(ProfileError::Stripe)
    }

    /// So many copies.
    ///
    /// # Errors
    /// [`ProfileError::Copies`] unless it is 1 to [`COPIES_MAX`].
    pub fn copies(copies: u32) -> Result<Self, ProfileError> {
        let valid = (1..=COPIES_MAX).contains(&copies);
        valid.then_some(Self::Copies(copies)).ok_or(ProfileError::Copies)
    }

    /// What a network of so many peers keeps where its genesis says nothing.
    ///
    /// | peers | profile |
    /// |---|---|
    /// | up to 8 | 3 copies |
    /// | 9 to 17 | 4/8 |
    /// | 18 to 24 | 8/16 |
    /// | 25 to 47 | 8/24 |
    /// | 48 and more | 16/48 |
    pub fn by_peers(peers: usize) -> Self {
        match ROWS.iter().rev().find(|(from, ..)| *from <= peers) {
            Some((_, k, n)) => Self::Stripe { k: *k, n: *n },
            None => Self::Copies(PAGE_COPIES),
        }
    }

    /// What a network of these peers keeps where its genesis says nothing: as [`Profile::by_peers`], or the widest row before that
    /// of whose fragments no organisation has more than there is parity. A certificate costs an organisation nothing, and with the row
    /// of so many peers and no more of the others' it would have most fragments of each stripe. Where all are one organisation's,
    /// their number alone counts.
    ///
    /// Peers that are away count, so that files of a bad hour are as safe as others. Where fewer can be reached than
    /// [`Profile::threshold`] of what this says, a writer asks it of those alone ([`View::reached`]).
    pub fn by_view(view: &View) -> Self {
        let peers = view.len();
        if view.organisations() <= 1 {
            return Self::by_peers(peers);
        }
        let rows = ROWS.iter().rev().filter(|(from, ..)| *from <= peers);
        let mut fit = rows.filter(|(_, k, n)| view.most_of_one(*n as usize) <= (n - k) as usize);
        match fit.next() {
            Some((_, k, n)) => Self::Stripe { k: *k, n: *n },
            None => Self::Copies(PAGE_COPIES),
        }
    }

    /// What this network keeps, with these peers, where the putter asks for nothing.
    ///
    /// A `libri-1` network keeps copies whatever its size: its formats have no stripes.
    pub fn of_network(genesis: &Genesis, view: &View) -> Self {
        match (genesis.profile, genesis.copies) {
            _ if genesis.suite == Suite::Libri1 => {
                Self::Copies(genesis.copies.unwrap_or(PAGE_COPIES))
            }
            (Some(profile), _) => Self::Stripe { k: profile.k, n: profile.n },
            (None, Some(copies)) => Self::Copies(copies),
            (None, None) => Self::by_view(view),
        }
    }

    /// Whether contents of this network may lie in stripes that nobody asked for by name: as [`Profile::of_network`] would say of any
    /// spread of so many peers over organisations.
    pub fn has_stripes(genesis: &Genesis, peers: usize) -> bool {
        let fixed = genesis.suite == Suite::Libri1 || genesis.copies.is_some();
        genesis.profile.is_some()
            || (!fixed && matches!(Self::by_peers(peers), Self::Stripe { .. }))
    }

    /// How many must be durable before a writer is told so: of a stripe's fragments
    /// s = k + ceil(3 (n - k) / 4), of copies more than half.
    ///
    /// So an answered put survives the loss of any s - k fragments, three quarters of what a full
    /// one survives, and the slowest quarter of the parity's holders is not waited for.
    pub fn threshold(&self) -> u32 {
        match *self {
            Self::Copies(copies) => copies / 2 + 1,
            Self::Stripe { k, n } => {
                let parity = u64::from(n.saturating_sub(k));
                // At most n, so it fits.
                k + u32::try_from((3 * parity).div_ceil(4)).unwrap_or(u32::MAX)
            }
        }
    }

    /// How many peers must be known before it can be kept as it says: one for each fragment, but a
    /// single one for copies, of which there are then as many as peers.
    pub fn peers_min(&self) -> usize {
        match *self {
            Self::Copies(_) => 1,
            Self::Stripe { n, .. } => n as usize,
        }
    }
}

impl fmt::Display for Profile {
    /// `K/N` or `copies:N`; parsing it gives the same profile.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copies(copies) => write!(f, "copies:{copies}"),
            Self::Stripe { k, n } => write!(f, "{k}/{n}"),
        }
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        if let Some((_, profile)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*profile);
        }
        if let Some(copies) = text.strip_prefix("copies:") {
            return Self::copies(number(copies, ProfileError::Copies)?);
        }
        let (k, n) = text.split_once('/').ok_or(ProfileError::Form)?;
        Self::stripe(number(k, ProfileError::Stripe)?, number(n, ProfileError::Stripe)?)
    }
}

/// Digits alone: no sign, no space. `large` where it is a number, and beyond any bound.
fn number(text: &str, large: ProfileError) -> Result<u32, ProfileError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ProfileError::Form);
    }
    text.parse().map_err(|_| large)
}
