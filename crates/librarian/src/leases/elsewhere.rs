//! Words that ended leases which are not here: whoever missed one may still pass its lease on, to a peer that will not be told again.

use std::collections::{HashMap, VecDeque};
use std::sync::{MutexGuard, PoisonError};

use bytes::Bytes;
use crypto::lease::{Checked, Forget, SignedForget};
use crypto::{ClientKey, LeaseId};

use super::Leases;

/// Words that are remembered, the last; some 300 bytes each. None is kept over a restart: then they are heard again.
const ELSEWHERE_MAX: usize = if cfg!(test) { 4 } else { 1 << 14 };

/// A lease and whose word it is: anybody can sign a word of its own for another's lease.
type Of = (LeaseId, ClientKey);

/// Words as they were heard, the oldest first. Their signatures are looked at when their lease comes, or another word for it.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    order: VecDeque<Of>,
    words: HashMap<Of, Bytes>,
}

impl Elsewhere {
    fn add(&mut self, of: Of, word: Bytes, counts: impl FnOnce(&Bytes) -> bool) {
        match self.words.get_mut(&of) {
            Some(known) if *known == word => {}
            Some(known) => {
                if counts(&word) {
                    *known = word;
                }
            }
            None => {
                self.words.insert(of, word);
                self.order.push_back(of);
                if self.order.len() > ELSEWHERE_MAX
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.words.remove(&oldest);
                }
            }
        }
    }
}

impl Leases {
    fn elsewhere(&self) -> MutexGuard<'_, Elsewhere> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a word that another peer told and whose lease is not here.
    pub(super) fn note_elsewhere(&self, word: Bytes) {
        let Ok(claimed) = Forget::claimed(&word) else { return };
        let network = self.directory.genesis().network();
        let counts = |word: &Bytes| SignedForget::verify(word.clone(), &network).is_ok();
        // It would keep all of the answer that it came in, which is as long as its sender likes.
        self.elsewhere().add(
            (claimed.lease, claimed.client),
            Bytes::copy_from_slice(&word),
            counts,
        );
    }

    /// Whether a lease that comes was ended by its client elsewhere, as far as that is remembered.
    pub(super) fn was_ended_elsewhere(&self, lease: &Checked) -> bool {
        let of = (lease.id, lease.client);
        let Some(word) = self.elsewhere().words.get(&of).cloned() else { return false };
        let network = self.directory.genesis().network();
        SignedForget::verify(word, &network).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(byte: u8) -> Of {
        let secret = crypto::SecretKey::from_bytes(&[1; 32]).expect("a key");
        (LeaseId::new([byte; 32]), ClientKey::new(secret.public()))
    }

    #[test]
    fn the_last_words_are_remembered_and_a_false_one_displaces_none() {
        let mut all = Elsewhere::default();
        let word = |byte: u8| Bytes::from(vec![byte]);
        all.add(lease(1), word(1), |_| panic!("nothing is known of it"));
        all.add(lease(1), word(1), |_| panic!("it is the same"));
        all.add(lease(1), word(2), |_| false);
        assert_eq!(all.words[&lease(1)], word(1));
        let another = crypto::SecretKey::from_bytes(&[2; 32]).expect("a key");
        let of_another = (lease(1).0, ClientKey::new(another.public()));
        all.add(of_another, word(9), |_| true);
        assert_eq!(all.words[&lease(1)], word(1), "another's word for the same lease is beside it");
        all.add(lease(1), word(3), |_| true);
        assert_eq!(all.words[&lease(1)], word(3));
        for byte in 2..=4 {
            all.add(lease(byte), word(byte), |_| true);
        }
        assert!(!all.words.contains_key(&lease(1)) && all.words.contains_key(&of_another));
        assert_eq!((all.words.len(), all.order.len()), (4, 4));
    }
}
