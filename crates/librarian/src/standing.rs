//! Who a caller is to this peer, by what it showed when it introduced itself.
//!
//! A connection proves a key and nothing else. What vouches for the key (an announcement with an
//! organisation's certificate, or a pass) is shown once by `Introduce`, checked against the newest roster
//! and against that very key, and remembered by key: signatures cost 20 us, a look-up here 0.1.
//!
//! Invariants: a standing is never kept for another key than the connection proved (asserted in
//! [`vouch`]); its expiry is looked at on every call, not only when it is learnt.
//!
//! Limits: the least recently used of [`crate::Limits::standings_max`] is forgotten; such a caller
//! is a stranger until it introduces itself again, which `rpc` does on each new connection.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use crypto::{
    Announcement, CertificateError, Listing, OrgId, Pass, PeerId, PublicKey, Roster, Tier,
};
use env::calls::{CallError, Credential};
use walk::Directory;

/// Who a caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A peer of the network.
    Peer(PeerId, OrgId),
    /// A client with a pass.
    Client {
        /// Whose client.
        organisation: OrgId,
        /// How far this peer trusts it: own only where the pass says so and the organisation is
        /// the peer's own.
        tier: Tier,
        /// Until when the pass counts, Unix seconds, exclusive.
        until: u64,
        /// Bytes it may have stored; 0 where none is set.
        quota: u64,
    },
    /// Nobody vouches for it.
    Stranger,
}

impl Standing {
    /// What a pass makes of a client at a peer of organisation `own`.
    pub(crate) fn of(pass: &Pass, own: &OrgId) -> Self {
        let trusted = pass.organisation == *own;
        Self::Client {
            organisation: pass.organisation,
            tier: if trusted { pass.tier } else { pass.tier.min(Tier::Known) },
            until: pass.until,
            quota: pass.quota,
        }
    }

    /// A word for logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Peer(..) => "peer",
            Self::Client { .. } => "client",
            Self::Stranger => "stranger",
        }
    }
}

/// What a credential proved about the caller's key.
#[derive(Debug)]
pub(crate) enum Vouched {
    /// Nothing was shown.
    Nothing,
    /// A peer of this organisation, by this announcement.
    Peer(Bytes, OrgId),
    /// A client.
    Client(Pass),
}

/// Checks a credential against the roster, the time and the key that the connection proved.
///
/// # Errors
/// `Denied` where it is another's, or does not count here or now; `Invalid` where it is garbage.
pub(crate) fn vouch(
    credential: Credential,
    key: &PublicKey,
    roster: &Roster,
    now: u64,
) -> Result<Vouched, CallError> {
    match credential {
        Credential::None => Ok(Vouched::Nothing),
        Credential::Peer(bytes) => {
            let announcement = Announcement::verify(&bytes, roster, now).map_err(refusal)?;
            if announcement.certificate.peer.key() != key {
                return Err(anothers("announcement"));
            }
            Ok(Vouched::Peer(bytes, announcement.certificate.organisation))
        }
        Credential::Client(bytes) => {
            let pass = Pass::verify(&bytes, roster, now).map_err(refusal)?;
            if pass.client.key() != key {
                return Err(anothers("pass"));
            }
            Ok(Vouched::Client(pass))
        }
    }
}

/// What [`vouch`] would say of an announcement that the directory has, byte for byte: peers show theirs on each new
/// connection and now and then as a sign of life, and it seldom changed. Three signatures and keys are saved.
pub(crate) fn vouched_before(
    credential: &Credential,
    key: &PublicKey,
    directory: &Directory,
) -> Option<Vouched> {
    let Credential::Peer(bytes) = credential else { return None };
    // It is looked up by the key that the connection proved, so it cannot be another's.
    let organisation = directory.vouches(&PeerId::new(*key), bytes)?;
    Some(Vouched::Peer(bytes.clone(), organisation))
}

fn anothers(what: &str) -> CallError {
    let reason = format!("the {what} is for another key than this connection's");
    CallError::Denied { reason }
}

/// A certificate that does not count, as its caller is told.
pub(crate) fn refusal(error: CertificateError) -> CallError {
    let reason = error.to_string();
    match crypto::Classified::class(&error) {
        crypto::Class::Denied => CallError::Denied { reason },
        _ => CallError::Invalid { reason },
    }
}

/// What was learnt about callers, by key. Bounded; the least recently used goes first.
#[derive(Debug)]
pub(crate) struct Standings {
    max: usize,
    inner: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    by_key: HashMap<PublicKey, (Standing, u64)>,
    /// Rises with each use; the smallest is the least recently used.
    uses: u64,
}

impl Standings {
    pub(crate) fn new(max: usize) -> Self {
        Self { max: max.max(1), inner: Mutex::default() }
    }

    /// What was learnt about a key, unless it has run out (`now` in Unix seconds).
    pub(crate) fn get(&self, key: &PublicKey, now: u64) -> Option<Standing> {
        let mut inner = self.lock();
        inner.uses += 1;
        let uses = inner.uses;
        let (standing, used) = inner.by_key.get_mut(key)?;
        *used = uses;
        let standing = *standing;
        if let Standing::Client { until, .. } = standing
            && now >= until
        {
            inner.by_key.remove(key);
            return None;
        }
        Some(standing)
    }

    /// Remembers what was learnt.
    pub(crate) fn put(&self, key: PublicKey, standing: Standing) {
        let mut inner = self.lock();
        inner.uses += 1;
        let uses = inner.uses;
        if inner.by_key.len() >= self.max && !inner.by_key.contains_key(&key) {
            inner.forget_older_half();
        }
        inner.by_key.insert(key, (standing, uses));
    }

    /// Clients whose organisation a newer roster does not list. Those of one whose key changed are its clients by the
    /// new key, for as long as what the former one signed counts.
    pub(crate) fn unlisted(&self, roster: &Roster, now: u64) -> Vec<PublicKey> {
        let mut left = Vec::new();
        for (key, (standing, _)) in &mut self.lock().by_key {
            if let Standing::Client { organisation, until, .. } = standing {
                match roster.listed(organisation, now) {
                    Some(listed) => {
                        *organisation = listed.organisation;
                        *until = listed.until.min(*until);
                    }
                    None => left.push(*key),
                }
            }
        }
        left
    }

    /// Forgets a key.
    pub(crate) fn remove(&self, key: &PublicKey) {
        self.lock().by_key.remove(key);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Recent> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Recent {
    /// Drops the half used longest ago: one sort in thousands of insertions, and no list to keep.
    fn forget_older_half(&mut self) {
        let mut uses: Vec<u64> = self.by_key.values().map(|(_, used)| *used).collect();
        let middle = uses.len() / 2;
        let (_, &mut median, _) = uses.select_nth_unstable(middle);
        self.by_key.retain(|_, (_, used)| *used > median);
    }
}

#[cfg(test)]
mod tests;
