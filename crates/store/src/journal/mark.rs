//! A time that is kept beside a journal: what its owner knows of the times before then outlives a restart.
//!
//! ```text
//! 0   magic   8   HOLDFMRK
//! 8   time    8   Unix milliseconds
//! 16  crc     4   CRC-32C of the 16 bytes before it
//! ```
//! It is written beside the one before and renamed over it, so after a power cut there is one of the two. What is damaged or
//! missing says nothing.

use std::io;
use std::sync::PoisonError;

use env::disk::Disk;

use super::{Journal, Shared};
use crate::checksum::crc32c;
use crate::{StoreError, io_error};

const MAGIC: &[u8; 8] = b"HOLDFMRK";
const BYTES: usize = 20;

fn encode(unix_ms: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&unix_ms.to_be_bytes());
    let crc = crc32c(&bytes[..16]);
    bytes[16..].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8; BYTES]) -> Option<u64> {
    let [head @ .., _, _, _, _] = bytes;
    let time: [u8; 8] = head.get(8..16)?.try_into().ok()?;
    let unix_ms = u64::from_be_bytes(time);
    (encode(unix_ms) == *bytes).then_some(unix_ms)
}

/// The file's name.
pub(crate) fn name(prefix: &str) -> String {
    format!("{prefix}.mark")
}

/// The mark of a journal, where there is one that can be read.
pub(super) fn read(disk: &dyn Disk, prefix: &str) -> Option<u64> {
    let name = name(prefix);
    let mut bytes = [0; BYTES];
    match disk.open(&name, false).and_then(|file| file.read_at(0, &mut bytes)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => tracing::warn!(file = name, %error, "a journal's mark cannot be read"),
    }
    decode(&bytes)
}

impl Shared {
    fn write_mark(&self, unix_ms: u64) -> Result<(), StoreError> {
        let name = name(&self.prefix);
        let new = format!("{name}.new");
        self.disk.remove(&new).map_err(io_error("remove", &new))?;
        let file = self.disk.open(&new, true).map_err(io_error("create", &new))?;
        let bytes = encode(unix_ms);
        file.write_at(0, &[io::IoSlice::new(&bytes)]).map_err(io_error("write", &new))?;
        file.sync().map_err(io_error("sync", &new))?;
        self.disk.rename(&new, &name).map_err(io_error("rename", &new))?;
        self.disk.sync_names().map_err(io_error("sync", &name))
    }
}

impl Journal {
    /// The time that was marked last, Unix milliseconds; `None` where none was, or it cannot be read.
    pub fn marked_ms(&self) -> Option<u64> {
        *self.shared.marked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a time, in the place of the one before. One at a time.
    ///
    /// # Errors
    /// [`StoreError::Closed`], [`StoreError::Full`], or the system's: the one before may stay then.
    pub async fn mark(&self, unix_ms: u64) -> Result<(), StoreError> {
        self.check_open()?;
        let shared = self.shared.clone();
        let write = move || {
            let mut marked = shared.marked.lock().unwrap_or_else(PoisonError::into_inner);
            shared.write_mark(unix_ms)?;
            *marked = Some(unix_ms);
            Ok(())
        };
        self.shared.env.blocking(write).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_mark_has_these_bytes_and_a_damaged_one_says_nothing() {
        let bytes = encode(0x0123_4567_89ab_cdef);
        assert_eq!(&bytes[..16], b"HOLDFMRK\x01\x23\x45\x67\x89\xab\xcd\xef");
        assert_eq!(decode(&bytes), Some(0x0123_4567_89ab_cdef));
        for bit in 0..BYTES * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes), None, "{bit}");
        }
    }
}
