//! Memory of large records, used again.
//!
//! It begins at a multiple of [`ALIGNMENT`], so that the disk reads into it and writes out of it directly; and it is zeroed
//! when it is made and not for each record, which took a page of 2 MiB a quarter as long as a hash of it.
//!
//! Limits: [`KEPT_MAX`] rooms of [`ROOM_BYTES_MAX`] are kept for the next records of the process until
//! [`give_back`]; those beyond so many at once, shorter ones and longer ones come from the allocator and go there.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// What direct reads and writes begin and end at, in the file and in memory: the page size, which
/// every disk of today takes.
pub const ALIGNMENT: usize = 4096;
/// The longest that is kept: a record of the largest size, and what is before and after it.
pub const ROOM_BYTES_MAX: usize = (2 << 20) + (16 << 10);
/// The least: for what is kept no more than a third is taken beyond what is asked for.
const ROOM_BYTES_MIN: usize = ROOM_BYTES_MAX / 4 * 3;
/// With room for the multiple, and for what is before it.
const KEPT_BYTES: usize = ROOM_BYTES_MAX + 2 * ALIGNMENT;
/// Rooms that are kept.
const KEPT_MAX: usize = 8;

/// Those that nothing uses now.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Some memory with whatever was in it before. Dropped, it is there for the next.
pub struct Room {
    memory: Vec<u8>,
    range: Range<usize>,
}

impl Room {
    /// `len` bytes, of which the one at `boundary` lies at a multiple of 4096.
    pub fn new(len: usize, boundary: usize) -> Self {
        if !(ROOM_BYTES_MIN..=ROOM_BYTES_MAX).contains(&len) {
            return Self::within(vec![0; len + 2 * ALIGNMENT], len, boundary);
        }
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self::within(kept.unwrap_or_else(|| vec![0; KEPT_BYTES]), len, boundary)
    }

    fn within(memory: Vec<u8>, len: usize, boundary: usize) -> Self {
        let before = boundary.next_multiple_of(ALIGNMENT) - boundary;
        let start = memory.as_ptr().align_offset(ALIGNMENT) + before;
        Self { memory, range: start..start + len }
    }
}

impl AsRef<[u8]> for Room {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.range.clone()]
    }
}

impl AsMut<[u8]> for Room {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.range.clone()]
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.memory.len() == KEPT_BYTES {
            let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < KEPT_MAX {
                kept.push(std::mem::take(&mut self.memory));
            }
        }
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Room({} bytes)", self.range.len())
    }
}

/// Gives what is kept and not in use back to the allocator.
pub fn give_back() {
    let kept = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    // Not under the lock.
    drop(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boundary_is_where_it_was_asked_for_and_what_is_kept_is_bounded() {
        for len in [0, 1, 5000, ROOM_BYTES_MIN, 2 << 20, ROOM_BYTES_MAX, ROOM_BYTES_MAX + 1] {
            for boundary in [0, 1, 17, 4095, 4096, 4097, len] {
                let mut room = Room::new(len, boundary);
                assert_eq!((room.as_ref().len(), room.as_mut().len()), (len, len));
                let at = room.as_ref().as_ptr() as usize + boundary;
                assert_eq!(at % ALIGNMENT, 0, "{len} bytes, {boundary}");
                room.as_mut().fill(1);
            }
        }
        let many: Vec<Room> = (0..3 * KEPT_MAX).map(|_| Room::new(ROOM_BYTES_MAX, 0)).collect();
        drop(many);
        // Other tests of this process use them too.
        assert!(KEPT.lock().expect("whole").len() <= KEPT_MAX);
        give_back();
    }
}
