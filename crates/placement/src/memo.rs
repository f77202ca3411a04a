//! Ranks that were asked for lately.
//!
//! A rank takes two blocks of a hash for each peer of the network, some 15 us with 64 of them; and who stores or reads a record asks for
//! that of its place two or three times within a few milliseconds. A table of fixed size, one row a place by its bits, the last one in
//! each: what it forgets is computed again, and never is one taken for another.
//!
//! Limits: [`ROWS`] ranks of up to [`KEPT_MAX`] peers, 64 KiB.

use std::sync::{Arc, Mutex, PoisonError};

use crypto::Place;

const ROWS: usize = 64;
/// Longer ranks are not kept.
const KEPT_MAX: usize = 256;

/// The place that was asked for last of those that share it, and the first of its rank.
type Row = Mutex<Option<(Place, Arc<[u32]>)>>;

/// What is remembered of one view.
pub(crate) struct Memo(Box<[Row]>);

impl Default for Memo {
    fn default() -> Self {
        Self((0..ROWS).map(|_| Mutex::default()).collect())
    }
}

/// A copy remembers nothing yet.
impl Clone for Memo {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for Memo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memo")
    }
}

impl Memo {
    fn row(&self, place: &Place) -> &Row {
        // Places are hashes: any of their bytes spread as well as all of them.
        &self.0[usize::from(place.as_bytes()[31]) % ROWS]
    }

    /// The first of the rank of a place, at least so many of them.
    pub(crate) fn get(&self, place: &Place, n: usize) -> Option<Arc<[u32]>> {
        let row = self.row(place).lock().unwrap_or_else(PoisonError::into_inner);
        let (known, first) = row.as_ref()?;
        (known == place && first.len() >= n).then(|| Arc::clone(first))
    }

    /// Remembers them.
    pub(crate) fn keep(&self, place: &Place, first: &Arc<[u32]>) {
        if first.len() <= KEPT_MAX {
            let mut row = self.row(place).lock().unwrap_or_else(PoisonError::into_inner);
            *row = Some((*place, Arc::clone(first)));
        }
    }
}
