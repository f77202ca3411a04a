//! How many bytes of an object are at each of its places here.
//!
//! A holder keeps a region of so many bytes an object and place, and sends a writer on where it is full. Counted are the
//! records' own bytes, whether they are kept as forms or not, so that a region holds the same everywhere: all that was
//! there when the store was opened, and what came from others since. What a door in this process writes is counted at
//! the next start; it has no region.

use version::{Hint, ObjectKey};

use crate::Objects;

impl Objects {
    /// Counts so many bytes of an object at a place, where all of it stays within `limit`; whether it does. Nobody else can use
    /// them meanwhile: what is not stored then is given back ([`Objects::give_back`]).
    pub fn reserve(&self, object: &ObjectKey, n: &Hint, bytes: u64, limit: u64) -> bool {
        self.index.reserve(object, n, bytes, limit)
    }

    /// Takes back what was reserved and not stored.
    pub fn give_back(&self, object: &ObjectKey, n: &Hint, bytes: u64) {
        self.index.give_back(object, n, bytes);
    }

    /// The places of an object with versions here, and their bytes.
    pub fn regions(&self, object: &ObjectKey) -> Vec<(Hint, u64)> {
        self.index.regions(object)
    }
}
