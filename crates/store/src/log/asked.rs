//! Which records were asked for lately: the second read of one may use the system's cache.
//!
//! Most large records are read once in a long while, and would only push out those that many
//! readers want. So a first read goes past the cache, and one that comes again while the first is
//! remembered does not. A table of fixed size, one row a hash of ids, the last asker in each: what
//! it forgets or mixes up costs a read of the disk or a place in the cache, never a wrong byte.

use std::sync::atomic::{AtomicU32, Ordering};

use crypto::RecordId;

/// Rows: with records of 2 MiB, the last 8 GiB read or so.
const ROWS: usize = 4096;

/// The records that were asked for lately.
pub(crate) struct Asked(Box<[AtomicU32]>);

impl Default for Asked {
    fn default() -> Self {
        Self((0..ROWS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Asked {
    /// Remembers that a record is read, and says whether it was read before.
    pub(crate) fn again(&self, id: &RecordId) -> bool {
        // Ids are hashes: any of their bytes spread as well as all of them.
        let bytes = id.as_bytes();
        let row = usize::from(u16::from_be_bytes([bytes[0], bytes[1]])) % ROWS;
        // Never 0, which stands for nobody.
        let mark = u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]) | 1;
        self.0[row].swap(mark, Ordering::Relaxed) == mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> RecordId {
        RecordId::from_slice(blake3::hash(&number.to_be_bytes()).as_bytes()).expect("32 bytes")
    }

    #[test]
    fn the_second_read_of_a_record_is_known_and_the_table_forgets() {
        let asked = Asked::default();
        assert!(!asked.again(&id(1)) && asked.again(&id(1)) && asked.again(&id(1)));
        let again = (100..1100).filter(|number| asked.again(&id(*number))).count();
        assert!(again < 5, "{again} records that nobody asked for were known");
        let known = (100..1100).filter(|number| asked.again(&id(*number))).count();
        assert!(known > 600, "only {known} of 1000 records are remembered");
        let known = (2000..50_000).filter(|number| asked.again(&id(*number))).count();
        assert!(known < 50, "{known}");
        assert!((100..1100).filter(|number| asked.again(&id(*number))).count() < 10);
    }
}
