//! Which keys were vouched for lately, and which of their connections may have wide windows.
//!
//! What a connection's HTTP/2 windows let in is in memory before anything counts it, so with windows
//! for 2 MiB records each connection of a stranger could take 64 MiB. Windows are announced when a
//! connection opens, and who a key belongs to is known only after its introduction. So a connection
//! of a key that was not vouched for has narrow windows; the answer to its first introduction says
//! that a new one will have wide ones, and our client dials again at once.
//!
//! What vouched for a key may be taken back: the service is asked each time, and a connection that is there counts as a
//! stranger's from then on.
//!
//! Limits: wide connections are bounded in all and by key, and of the organisations that vouch for them the one with most makes
//! room for one with fewer ([`super::seats`]); what is beyond is narrow, and a member's all the same. All windows together let in at most
//! `connections * 512 KiB + wide_connections * 64 MiB`, the second part only for keys that an organisation of the network
//! vouches for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crypto::{OrgId, PublicKey};
use env::calls::{Caller, Service};
use tokio_util::sync::CancellationToken;

use super::connection::{House, Houses};
use super::seats::{Hall, HallSeat, Seat, Seats};
use crate::limits::ServerLimits;

/// How long a key counts as vouched for after its last introduction.
const VOUCHED_FOR: Duration = Duration::from_secs(3600);
/// Keys remembered at once; the others connect twice.
const KEYS_MAX: usize = 4096;

/// The memory of one listener.
pub(super) struct Members {
    vouched: Mutex<Vouched>,
    wide: Arc<Hall<OrgId>>,
    by_key: Arc<Mutex<Seats<PublicKey>>>,
    houses: Houses<PublicKey>,
    service: Arc<dyn Service>,
    limits: ServerLimits,
}

/// Keys that were vouched for: until when that counts, and by whom.
type Vouched = HashMap<PublicKey, (Duration, OrgId)>;

/// The seat of a connection with wide windows, until dropped.
pub(super) struct Wide {
    _of_organisation: HallSeat<OrgId>,
    _of_key: Seat<PublicKey>,
}

impl Members {
    pub(super) fn new(limits: ServerLimits, service: Arc<dyn Service>) -> Arc<Self> {
        let houses = Houses::default();
        let wide = Hall::new(limits.wide_connections, limits.wide_connections);
        let (vouched, by_key) = (Mutex::default(), Arc::default());
        Arc::new(Self { vouched, wide, by_key, houses, service, limits })
    }

    /// Whether a caller that was vouched for still is.
    pub(super) fn are(&self, caller: Caller) -> bool {
        self.service.vouched_by(caller).is_some()
    }

    /// Who vouches for a caller that was vouched for lately, and still is.
    pub(super) fn voucher(&self, caller: Caller, now: Duration) -> Option<OrgId> {
        let organisation = self.service.vouched_by(caller)?;
        let vouched = self.vouched.lock().unwrap_or_else(PoisonError::into_inner);
        vouched.get(&caller.key).is_some_and(|(until, _)| now < *until).then_some(organisation)
    }

    /// What calls of this key hold together, as those of somebody who was vouched for.
    pub(super) fn house(&self, key: PublicKey) -> Arc<House> {
        self.houses.of(key)
    }

    /// The service took what vouches for this caller's key. Where too many are remembered the organisation that has most of them
    /// loses the one that was noted first: one that vouches for keys without end makes its own connect twice.
    pub(super) fn note(&self, caller: Caller, now: Duration) {
        let Some(organisation) = self.service.vouched_by(caller) else { return };
        let mut vouched = self.vouched.lock().unwrap_or_else(PoisonError::into_inner);
        if vouched.len() >= KEYS_MAX && !vouched.contains_key(&caller.key) {
            vouched.retain(|_, (until, _)| now < *until);
            if vouched.len() >= KEYS_MAX
                && let Some(key) = first_of_most(&vouched)
            {
                vouched.remove(&key);
            }
        }
        vouched.insert(caller.key, (now.saturating_add(VOUCHED_FOR), organisation));
    }

    /// A seat for a connection with wide windows that `ends` ends, where this organisation's key may have one more.
    pub(super) fn wide(
        &self,
        organisation: OrgId,
        key: PublicKey,
        ends: &CancellationToken,
    ) -> Option<Wide> {
        let of_key = self.limits.wide_connections_per_key;
        let of_key = Seat::take(&self.by_key, key, usize::MAX, of_key)?;
        let of_organisation = self.wide.seat(organisation, ends)?;
        Some(Wide { _of_organisation: of_organisation, _of_key: of_key })
    }
}

/// The key noted first of the organisation that has most.
fn first_of_most(vouched: &Vouched) -> Option<PublicKey> {
    let mut counts: HashMap<OrgId, usize> = HashMap::new();
    vouched.values().for_each(|(_, of)| *counts.entry(*of).or_default() += 1);
    let (most, _) = counts.into_iter().max_by_key(|(of, count)| (*count, *of))?;
    let of_most = vouched.iter().filter(|(_, (_, of))| *of == most);
    of_most.min_by_key(|(key, (until, _))| (*until, **key)).map(|(key, _)| *key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_vouches_for_keys_without_end_crowds_out_its_own() {
        let key = |n: u32| {
            let mut scalar = [1; 32];
            scalar[..4].copy_from_slice(&n.to_be_bytes());
            crypto::SecretKey::from_bytes(&scalar).expect("a scalar").public()
        };
        let (large, small) = (OrgId::new(key(1)), OrgId::new(key(2)));
        let at = |second: u32| Duration::from_secs(second.into());
        let mut vouched: Vouched = (10..20).map(|n| (key(n), (at(n), large))).collect();
        vouched.insert(key(5), (at(5), small));
        assert_eq!(first_of_most(&vouched), Some(key(10)));
        vouched.retain(|_, (_, of)| *of == small);
        assert_eq!(first_of_most(&vouched), Some(key(5)));
        assert_eq!(first_of_most(&Vouched::new()), None);
    }
}
