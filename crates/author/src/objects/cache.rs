//! Versions that were proven, remembered by their hash: what is immutable is never asked for twice while it is here.
//!
//! Two generations of half the budget each: what was used since the last change of generations stays, the rest goes. One
//! lookup costs a hash map's, and nothing is kept in order.

use std::collections::HashMap;

use crypto::RecordId;
use version::Version;

/// Bytes of versions that are remembered where the options say nothing.
pub const CACHE_BYTES: usize = 16 << 20;
/// What is around a version in memory, about.
const AROUND_BYTES: usize = 256;

/// The versions.
pub(crate) struct Cache {
    young: HashMap<RecordId, Version>,
    old: HashMap<RecordId, Version>,
    young_bytes: usize,
    half: usize,
}

impl Cache {
    /// One of about so many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_bytes: 0, half: bytes / 2 }
    }

    /// The version with this hash.
    pub(crate) fn get(&mut self, h: &RecordId) -> Option<Version> {
        if let Some(version) = self.young.get(h) {
            return Some(version.clone());
        }
        let version = self.old.remove(h)?;
        self.put(*h, version.clone());
        Some(version)
    }

    /// Remembers a version whose hash this is.
    pub(crate) fn put(&mut self, h: RecordId, version: Version) {
        let bytes = version.value.len() + AROUND_BYTES;
        if bytes > self.half {
            return;
        }
        if self.young_bytes + bytes > self.half {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(h, version).is_none() {
            self.young_bytes += bytes;
        }
    }

    /// Bytes of all that is here, about.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let all = self.young.values().chain(self.old.values());
        all.map(|version| version.value.len() + AROUND_BYTES).sum()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use version::{Bases, ObjectKey, ValueKind};

    use super::*;

    fn version(bytes: usize) -> Version {
        Version {
            object: ObjectKey::new([1; 32]),
            bases: Bases::NONE,
            l: 0,
            kind: ValueKind::Bytes,
            value: Bytes::from(vec![0; bytes]),
        }
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut cache = Cache::new(100_000);
        let used = RecordId::new([0xff; 32]);
        cache.put(used, version(1_000));
        for number in 0..500_u32 {
            let mut id = [0; 32];
            id[..4].copy_from_slice(&number.to_be_bytes());
            cache.put(RecordId::new(id), version(1_000));
            assert!(cache.bytes() <= 100_000);
            assert!(cache.get(&used).is_some(), "{number}");
        }
        assert!(cache.get(&RecordId::new([0; 32])).is_none());
        cache.put(RecordId::new([7; 32]), version(60_000));
        assert!(cache.get(&RecordId::new([7; 32])).is_none(), "more than half of it");
    }
}
