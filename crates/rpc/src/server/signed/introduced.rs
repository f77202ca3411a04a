//! Which callers showed which pass lately: the librarian is told once, not with each request.
//!
//! Kept for [`INTRODUCED_FOR`], and until a call of the caller is denied: passes end and are revoked,
//! and a librarian may forget; then the next request introduces its caller again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crypto::PublicKey;

/// How long an introduction is believed to be remembered.
const INTRODUCED_FOR: Duration = Duration::from_secs(60);
/// Callers kept at once; beyond it some are introduced again.
const CALLERS_MAX: usize = 4096;

/// Callers, the hash of the pass they showed, and until when that holds.
#[derive(Default)]
pub(super) struct Introduced(Mutex<HashMap<PublicKey, ([u8; 32], Duration)>>);

impl Introduced {
    /// Whether this key showed this pass lately.
    pub(super) fn holds(&self, key: &PublicKey, pass: &[u8; 32], now: Duration) -> bool {
        let callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        callers.get(key).is_some_and(|(shown, until)| shown == pass && now < *until)
    }

    pub(super) fn note(&self, key: PublicKey, pass: [u8; 32], now: Duration) {
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS_MAX && !callers.contains_key(&key) {
            callers.retain(|_, (_, until)| now < *until);
            if callers.len() >= CALLERS_MAX {
                callers.clear();
            }
        }
        callers.insert(key, (pass, now.saturating_add(INTRODUCED_FOR)));
    }

    pub(super) fn forget(&self, key: &PublicKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::SecretKey;

    #[test]
    fn an_introduction_is_of_one_key_and_pass_for_a_minute() {
        let key = |scalar: u64| {
            let mut bytes = [0; 32];
            bytes[24..].copy_from_slice(&scalar.to_be_bytes());
            SecretKey::from_bytes(&bytes).expect("a small scalar is a key").public()
        };
        let (introduced, at) = (Introduced::default(), Duration::from_secs);
        introduced.note(key(1), [1; 32], at(10));
        assert!(introduced.holds(&key(1), &[1; 32], at(69)));
        assert!(!introduced.holds(&key(1), &[1; 32], at(70)));
        assert!(!introduced.holds(&key(1), &[2; 32], at(20)));
        assert!(!introduced.holds(&key(2), &[1; 32], at(20)));
        introduced.forget(&key(1));
        assert!(!introduced.holds(&key(1), &[1; 32], at(20)));
        for scalar in 1..=CALLERS_MAX as u64 + 1 {
            introduced.note(key(scalar), [1; 32], at(20));
        }
        assert!(introduced.0.lock().expect("no panic").len() <= CALLERS_MAX);
    }
}
