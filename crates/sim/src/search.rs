//! Looking for a planted marker in many bytes (Boyer-Moore-Horspool: one look in twenty bytes).

use std::sync::Arc;

use crate::chance::Chance;

/// Letters of a marker.
pub const NEEDLE_BYTES: usize = 24;

/// What is planted and looked for: letters, so that it fits into names and types and survives in logs, and so many that chance
/// does not make them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needle(Arc<(Vec<u8>, [u8; 256])>);

impl Needle {
    /// The marker of this seed.
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed, "needle");
        let letters = b"abcdefghijklmnopqrstuvwxyz";
        let bytes: Vec<u8> = (0..NEEDLE_BYTES).map(|_| chance.one(letters)).collect();
        let mut skip = [NEEDLE_BYTES as u8; 256];
        for (at, byte) in bytes[..NEEDLE_BYTES - 1].iter().enumerate() {
            skip[usize::from(*byte)] = (NEEDLE_BYTES - 1 - at) as u8;
        }
        Self(Arc::new((bytes, skip)))
    }

    /// Its letters.
    pub fn bytes(&self) -> &[u8] {
        &self.0.0
    }

    /// Its letters as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// Whether it is somewhere in these bytes.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        let (needle, skip) = &*self.0;
        let mut end = NEEDLE_BYTES;
        while end <= bytes.len() {
            if &bytes[end - NEEDLE_BYTES..end] == needle.as_slice() {
                return true;
            }
            end += usize::from(skip[usize::from(bytes[end - 1])]);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::noise;

    #[test]
    fn it_is_found_wherever_it_is_and_nowhere_else() {
        let needle = Needle::new(7);
        assert_ne!(needle, Needle::new(8));
        for len in [0, 1, 23, 24, 100, 5000] {
            let hay = noise(3, len);
            assert!(!needle.is_in(&hay));
            for at in (0..(len + 1).saturating_sub(NEEDLE_BYTES)).step_by(7) {
                let mut hay = hay.clone();
                hay[at..at + NEEDLE_BYTES].copy_from_slice(needle.bytes());
                assert!(needle.is_in(&hay), "at {at} of {len}");
                hay[at + 3] ^= 1;
                assert!(!needle.is_in(&hay));
            }
        }
    }
}
