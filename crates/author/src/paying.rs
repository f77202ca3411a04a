//! Leases of what this user puts: one signature for all that goes out together.
//!
//! ```text
//! a stripe                          one lease: its place covers the header and every fragment
//! a page kept as copies             one lease
//! entry, lists, envelopes           one lease for all of them that have as many copies
//! the envelopes of a share          one lease for each 256
//! ```
//! So a small put signs once, and a large one once for 16 MiB. Whoever has no pass pays for nothing: its records go without,
//! and holders that demand a lease refuse them.

use std::fmt;

use crypto::certificate::CLOCK_SKEW_S;
use crypto::lease::{self, LEASE_SECONDS_MAX, Leaf, Shown, Terms};
use crypto::{Pass, SecretKey};
use document::{Record, Striped};
use env::calls::Credential;

use crate::author::Author;
use crate::error::AuthorError;
use crate::types::PutOptions;

/// How long leases last where nothing else is said, in seconds: a year.
pub const LEASE_SECONDS: u64 = 365 * 24 * 3600;

/// Who signs this user's leases, and for how long.
#[derive(Clone)]
pub struct Payer {
    /// The key of the pass that the walker shows.
    pub secret: SecretKey,
    /// How long a lease lasts, in seconds, where a put says nothing else.
    pub seconds: u64,
}

impl fmt::Debug for Payer {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payer").field("seconds", &self.seconds).finish_non_exhaustive()
    }
}

/// What one holder keeps of a stripe at most, in bytes: its header and the longest fragment.
pub(crate) fn stripe_leaf(stripe: &Striped) -> Leaf {
    let longest = stripe.fragments.iter().map(|fragment| fragment.bytes.len()).max();
    let bytes = stripe.header.bytes.len() + longest.unwrap_or_default();
    Leaf { place: stripe.header.place, bytes: bytes as u64 }
}

/// What one holder keeps of a record.
pub(crate) fn record_leaf(record: &Record) -> Leaf {
    Leaf { place: record.place, bytes: record.bytes.len() as u64 }
}

impl Author {
    /// A lease over these leaves, kept by so many holders each, with all of them shown; `None` where nobody pays for this
    /// user.
    ///
    /// # Errors
    /// [`AuthorError::Lease`] for a pass that is none, or a time that nobody takes.
    pub(crate) fn lease(
        &self,
        leaves: &[Leaf],
        holders: u32,
        seconds: Option<u64>,
    ) -> Result<Option<Shown>, AuthorError> {
        let (Some(payer), Credential::Client(pass)) = (self.payer(), self.walker().credential())
        else {
            return Ok(None);
        };
        let now = self.env().clock.unix_s();
        // The organisation's clock may be ahead of this one by what is allowed.
        let from = Pass::starts(&pass).map_or(now, |from| from.clamp(now, now + CLOCK_SKEW_S));
        let seconds = seconds.unwrap_or(payer.seconds).clamp(1, LEASE_SECONDS_MAX);
        let terms = Terms { redundancy: holders.clamp(1, 256), from, until: from + seconds };
        let signed = lease::sign(leaves, terms, &pass, &payer.secret, &self.network());
        signed.map(Some).map_err(AuthorError::Lease)
    }
}

impl Author {
    /// Until when a put that began at `created` pays, Unix seconds; `None` where nobody pays for this user.
    pub(crate) fn paid_until(&self, created: u32, options: &PutOptions) -> Option<u64> {
        let payer = self.payer()?;
        let seconds = options.lease_seconds.unwrap_or(payer.seconds).clamp(1, LEASE_SECONDS_MAX);
        Some(u64::from(created) + seconds)
    }

    /// Seconds from now until then.
    ///
    /// # Errors
    /// [`AuthorError::PaidTimeOver`].
    pub(crate) fn seconds_left(&self, until: Option<u64>) -> Result<Option<u64>, AuthorError> {
        let Some(until) = until else { return Ok(None) };
        match until.saturating_sub(self.env().clock.unix_s()) {
            0 => Err(AuthorError::PaidTimeOver { until }),
            left => Ok(Some(left)),
        }
    }

    /// Whether a put that began at `created` and was interrupted has enough of its paid time left to be gone on with: a quarter. One
    /// that has less begins anew, since what it stored first may be dropped before it is done.
    pub(crate) fn is_paid_long_enough(&self, created: u32, options: &PutOptions) -> bool {
        let Some(until) = self.paid_until(created, options) else { return true };
        let span = until - u64::from(created);
        until.saturating_sub(self.env().clock.unix_s()) > span / 4
    }
}

/// Of a lease with all its leaves, what goes to the holders of one place.
pub(crate) fn for_place(lease: Option<&Shown>, place: &crypto::Place) -> Vec<Shown> {
    lease.and_then(|lease| lease.of(|other| other == place)).into_iter().collect()
}
