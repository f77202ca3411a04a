//! Signatures that were checked already.
//!
//! A pass comes with each lease that was signed under it, and a peer's certificate with each introduction: the same signature of the
//! same bytes by the same key, again and again. Of what a peer's processor did while small files were put, checking passes was about a
//! tenth, and is less than a hundredth where what was checked is looked up. So the process remembers those that held: two at each place, of which the one that was met last stays. A signature is known by the
//! hash of key, digest and signature together, so nothing but just that is taken for it; that one did *not* hold is never remembered,
//! and a refusal always comes from the curve. Who is listed, revoked or expired is asked anew by whoever asks for the check.

use std::sync::{Mutex, PoisonError};

use super::{KeyError, PublicKey};

/// How many places there are: with two signatures at each they take 128 KiB.
const PLACES: usize = 2_048;

/// The hash of a key, a digest and a signature of it that held.
type Known = [u8; 32];

/// The signatures that held; no place before the first one.
struct Checks(Mutex<Vec<[Known; 2]>>);

static CHECKS: Checks = Checks::new();

/// Stands where there is none: a hash that nothing has, as far as anybody can find.
const NONE: Known = [0; 32];

impl Checks {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn place(known: &Known) -> usize {
        usize::from(u16::from_le_bytes([known[0], known[1]])) % PLACES
    }

    /// Whether it was remembered; it is the first at its place then.
    fn met(&self, known: &Known) -> bool {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some([first, second]) = places.get_mut(Self::place(known)) else { return false };
        if second == known {
            std::mem::swap(first, second);
        }
        first == known
    }

    fn remember(&self, known: Known) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.is_empty() {
            places.resize(PLACES, [NONE; 2]);
        }
        // Another thread may have checked the same meanwhile: it takes one of the two, not both.
        if let Some([first, second]) = places.get_mut(Self::place(&known))
            && *first != known
        {
            (*second, *first) = (*first, known);
        }
    }

    fn verify(&self, key: &PublicKey, digest: &[u8; 32], signature: &[u8]) -> Result<(), KeyError> {
        let Ok(signature) = <&[u8; 64]>::try_from(signature) else {
            return Err(KeyError::Signature);
        };
        // All three have one length each, so none reaches into the next.
        let mut all = [0; 33 + 32 + 64];
        all[..33].copy_from_slice(key.as_bytes());
        all[33..65].copy_from_slice(digest);
        all[65..].copy_from_slice(signature);
        let known = *blake3::hash(&all).as_bytes();
        if self.met(&known) {
            return Ok(());
        }
        key.verify_digest(digest, signature)?;
        self.remember(known);
        Ok(())
    }
}

/// Checks a signature, unless it was found to hold before.
pub(super) fn verify(key: &PublicKey, digest: &[u8; 32], signature: &[u8]) -> Result<(), KeyError> {
    CHECKS.verify(key, digest, signature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SecretKey;
    use crate::ids::NetworkId;
    use crate::keys::signing_digest;

    fn signed(number: u8, message: &[u8]) -> (PublicKey, [u8; 32], [u8; 64]) {
        let (secret, network) =
            (SecretKey::from_slice(&[number; 32]).expect("a key"), NetworkId::new([3; 32]));
        let digest = signing_digest("pass", &network, message);
        (secret.public(), digest, secret.sign("pass", &network, message))
    }

    #[test]
    fn what_held_is_asked_of_the_curve_once() {
        let (checks, (key, digest, signature)) = (Checks::new(), signed(1, b"a"));
        let places = || checks.0.lock().expect("whole").len();
        assert_eq!(checks.verify(&key, &digest, &signature), Ok(()));
        assert_eq!(places(), PLACES);
        // What is remembered is what is told: a signature that does not hold, put there by hand, is taken.
        let (other, ..) = signed(2, b"a");
        let mut all = other.as_bytes().to_vec();
        all.extend_from_slice(&digest);
        all.extend_from_slice(&signature);
        assert_eq!(checks.verify(&other, &digest, &signature), Err(KeyError::Signature));
        checks.remember(*blake3::hash(&all).as_bytes());
        assert_eq!(checks.verify(&other, &digest, &signature), Ok(()));
    }

    /// Of one that held each bit is flipped, of key, digest and signature: none is taken for it, and none is remembered.
    #[test]
    fn nothing_else_is_taken_for_what_held() {
        let (checks, (key, digest, signature)) = (Checks::new(), signed(1, b"a"));
        assert_eq!(checks.verify(&key, &digest, &signature), Ok(()));
        for bit in 0..(33 + 32 + 64) * 8 {
            let flip = |bytes: &mut [u8], bit: usize| bytes[bit / 8] ^= 1 << (bit % 8);
            let (mut k, mut d, mut s) = (*key.as_bytes(), digest, signature);
            match bit / 8 {
                0..33 => flip(&mut k, bit),
                33..65 => flip(&mut d, bit - 33 * 8),
                _ => flip(&mut s, bit - 65 * 8),
            }
            let Ok(k) = PublicKey::from_slice(&k) else { continue };
            for _ in 0..2 {
                assert_eq!(checks.verify(&k, &d, &s), Err(KeyError::Signature), "bit {bit}");
            }
        }
        for short in [&signature[..63], &[]] {
            assert_eq!(checks.verify(&key, &digest, short), Err(KeyError::Signature));
        }
        assert_eq!(checks.verify(&key, &digest, &signature), Ok(()));
    }

    #[test]
    fn the_two_that_were_met_last_stay() {
        let checks = Checks::new();
        let known = |number: u8| {
            let mut known = [number; 32];
            known[..2].fill(7);
            known
        };
        for number in [1, 2] {
            checks.remember(known(number));
        }
        assert!(checks.met(&known(1)));
        for _ in 0..2 {
            // Two threads that checked the same at once.
            checks.remember(known(3));
        }
        assert!(!checks.met(&known(2)), "it was met before the others");
        assert!(checks.met(&known(1)) && checks.met(&known(3)));
    }
}
