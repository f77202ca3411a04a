//! Memory of small versions, used again by the thread that let go of it.
//!
//! A door makes half a million versions a second and lets go of as many. Their usual lengths are beyond what allocators
//! keep at hand for a thread, so giving and taking them was a tenth of the time of a write.
//!
//! Limits: a thread keeps at most [`KEPT_MAX`] buffers, of [`BUFFER_BYTES_MAX`] bytes at most each; longer ones come from the
//! allocator and go there. A buffer is at most [`STEP_BYTES`] longer than what is in it.

use std::cell::RefCell;

/// Buffers have lengths in these steps.
const STEP_BYTES: usize = 256;
/// The longest that are kept.
const BUFFER_BYTES_MAX: usize = 4096;
/// Buffers that a thread keeps: one turn's.
const KEPT_MAX: usize = 1024;

thread_local! {
    /// By their length in steps.
    static KEPT: RefCell<Kept> = RefCell::default();
}

#[derive(Default)]
struct Kept {
    buffers: [Vec<Vec<u8>>; BUFFER_BYTES_MAX / STEP_BYTES],
    count: usize,
}

/// The list for buffers of so many bytes.
fn list(bytes: usize) -> Option<usize> {
    (1..=BUFFER_BYTES_MAX).contains(&bytes).then(|| (bytes - 1) / STEP_BYTES)
}

/// Bytes that go back to the thread's buffers.
pub(crate) struct Buffer(pub(crate) Vec<u8>);

impl Buffer {
    /// An empty one with room for so many bytes.
    pub(crate) fn of(bytes: usize) -> Self {
        let Some(at) = list(bytes) else { return Self(Vec::with_capacity(bytes)) };
        let take = |kept: &RefCell<Kept>| {
            let mut kept = kept.try_borrow_mut().ok()?;
            let buffer = kept.buffers[at].pop()?;
            kept.count -= 1;
            Some(buffer)
        };
        let kept = KEPT.try_with(take).ok().flatten();
        Self(kept.unwrap_or_else(|| Vec::with_capacity((at + 1) * STEP_BYTES)))
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        let Some(at) = list(buffer.capacity()) else { return };
        if buffer.capacity() != (at + 1) * STEP_BYTES {
            return;
        }
        buffer.clear();
        // A thread that ends keeps nothing.
        let _ = KEPT.try_with(|kept| {
            if let Ok(mut kept) = kept.try_borrow_mut()
                && kept.count < KEPT_MAX
            {
                kept.count += 1;
                kept.buffers[at].push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_of_is_used_again_within_bounds() {
        for bytes in [1, 255, 256, 257, 1150, BUFFER_BYTES_MAX] {
            let mut first = Buffer::of(bytes);
            assert!((bytes..bytes + STEP_BYTES).contains(&first.0.capacity()));
            first.0.resize(bytes, 7);
            assert_eq!(first.as_ref(), vec![7; bytes]);
            let at = first.0.as_ptr();
            drop(first);
            let again = Buffer::of(bytes);
            assert!(again.0.is_empty() && again.0.as_ptr() == at);
        }
        let many: Vec<Buffer> = (0..2 * KEPT_MAX).map(|_| Buffer::of(1000)).collect();
        drop(many);
        KEPT.with(|kept| {
            let kept = kept.borrow();
            assert_eq!(kept.count, KEPT_MAX);
            assert_eq!(kept.buffers.iter().map(Vec::len).sum::<usize>(), KEPT_MAX);
        });
        drop(Buffer::of(BUFFER_BYTES_MAX + 1));
        drop(Buffer::of(0));
        KEPT.with(|kept| assert_eq!(kept.borrow().count, KEPT_MAX));
    }
}
