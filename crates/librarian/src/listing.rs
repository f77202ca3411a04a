//! All that is in the store, a part at a time.

use crypto::RecordId;
use store::{Placed, RecordStore, StoreError};

/// Records looked at in one part.
const STEP: usize = 4096;

/// What there is from an id on, in ascending order, and where the next part begins.
///
/// # Errors
/// The store's.
pub(crate) async fn part(
    store: &dyn RecordStore,
    from: &RecordId,
) -> Result<(Vec<Placed>, Option<RecordId>), StoreError> {
    let listed = store.list(from, STEP).await?;
    let ids = store.ids(from, STEP);
    // These are two looks. Between them something may go, so that the second reaches further; what the first did not list
    // is not passed over. Damaged records are not listed, and many in a row are passed by the second.
    let last = listed.last().map(|placed| placed.id);
    let last = last.or_else(|| ids.last().copied().filter(|_| ids.len() == STEP));
    Ok((listed, last.as_ref().and_then(next)))
}

/// The id behind this one.
fn next(id: &RecordId) -> Option<RecordId> {
    let mut bytes = *id.as_bytes();
    for byte in bytes.iter_mut().rev() {
        let (more, over) = byte.overflowing_add(1);
        *byte = more;
        if !over {
            return Some(RecordId::new(bytes));
        }
    }
    None
}
