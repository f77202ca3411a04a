//! How many bytes each client has stored here, against the quota of its pass.
//!
//! A pass lasts a day and its quota is for good, so the count goes by the client's key and not by the
//! pass. It is taken before anything is stored and given back for records that were there already,
//! so two calls at once cannot both use the last of it, and sending a record again costs nothing. Where
//! the caller goes away before its answer, its write goes on, and what was not stored is given back at its
//! end all the same; but for `Put`, which stays charged: what it sent is most likely stored at some peers.
//!
//! The counts are told to whoever keeps the peer's files ([`crate::Librarian::stored_bytes`]) and
//! given back at the next start; after kill -9 what was stored since the last look is not counted.
//! That is the client's gain of a second's writing, against a write of a file for every call.
//!
//! Limits: [`CLIENTS_MAX`] clients with a quota are counted; of more, the one with the fewest bytes is
//! forgotten. What nobody pays for any more, or what was dropped since others hold it, is given back as far as who was charged for it
//! is known: of what is here under a lease (`leases/table.rs`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crypto::{ClientKey, PublicKey};
use env::calls::CallError;

/// Clients that are counted.
pub(crate) const CLIENTS_MAX: usize = 65_536;

/// Bytes by client.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    inner: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    bytes: BTreeMap<ClientKey, u64>,
    changes: u64,
}

impl Quotas {
    /// With the counts of the last run.
    pub(crate) fn new(counts: impl IntoIterator<Item = (ClientKey, u64)>) -> Self {
        let bytes = counts.into_iter().take(CLIENTS_MAX).collect();
        Self { inner: Mutex::new(Counted { bytes, changes: 0 }) }
    }

    /// Charges a client with a quota; 0 is none set.
    ///
    /// # Errors
    /// `Denied` where it would go over; nothing is charged then.
    pub(crate) fn charge(&self, key: &PublicKey, quota: u64, bytes: u64) -> Result<(), CallError> {
        if quota == 0 || bytes == 0 {
            return Ok(());
        }
        let client = ClientKey::new(*key);
        let mut counted = self.lock();
        let used = counted.bytes.get(&client).copied().unwrap_or(0);
        let after = used.saturating_add(bytes);
        if after > quota {
            let reason = format!(
                "over the quota of the pass: {used} of {quota} bytes are stored here, and this \
                 is {bytes} more"
            );
            return Err(CallError::Denied { reason });
        }
        if counted.bytes.len() >= CLIENTS_MAX && !counted.bytes.contains_key(&client) {
            let least = counted.bytes.iter().min_by_key(|(_, bytes)| **bytes);
            if let Some(least) = least.map(|(client, _)| *client) {
                counted.bytes.remove(&least);
            }
        }
        counted.bytes.insert(client, after);
        counted.changes += 1;
        Ok(())
    }

    /// Gives back what was charged and not stored.
    pub(crate) fn give_back(&self, key: &PublicKey, quota: u64, bytes: u64) {
        if quota == 0 || bytes == 0 {
            return;
        }
        let mut counted = self.lock();
        if let Some(used) = counted.bytes.get_mut(&ClientKey::new(*key)) {
            *used = used.saturating_sub(bytes);
            counted.changes += 1;
        }
    }

    /// Every count, and a number that rises when one changes.
    pub(crate) fn counts(&self) -> (Vec<(ClientKey, u64)>, u64) {
        let counted = self.lock();
        (counted.bytes.iter().map(|(client, bytes)| (*client, *bytes)).collect(), counted.changes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PublicKey {
        crypto::SecretKey::from_bytes(&[3; 32]).expect("a scalar").public()
    }

    #[test]
    fn a_quota_is_used_to_the_last_byte_and_no_further() {
        let quotas = Quotas::default();
        quotas.charge(&key(), 100, 60).expect("room");
        let over = quotas.charge(&key(), 100, 41);
        assert!(matches!(&over, Err(CallError::Denied { reason }) if reason.contains("quota")));
        quotas.charge(&key(), 100, 40).expect("to the last byte");
        quotas.give_back(&key(), 100, 40);
        let (counts, changes) = quotas.counts();
        assert_eq!((counts.as_slice(), changes), ([(ClientKey::new(key()), 60)].as_slice(), 3));
        let next = Quotas::new(counts);
        assert!(next.charge(&key(), 100, 41).is_err(), "counted over a restart");
    }

    #[test]
    fn none_set_is_not_counted() {
        let quotas = Quotas::default();
        quotas.charge(&key(), 0, u64::MAX).expect("no quota");
        assert_eq!(quotas.counts(), (Vec::new(), 0));
    }
}
