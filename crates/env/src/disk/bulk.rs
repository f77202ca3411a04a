//! Reads and writes of large parts that do not stay in the system's cache.
//!
//! Pages of megabytes that nobody may ask for again for months would push everything else out of
//! the cache, and the system spends more on finding room for them than the disk on taking them.
//! Linux 6.14 and newer can take a write through the cache, begin it on the disk at once and give
//! the memory back when it is there (`RWF_DONTCACHE`): on a virtual machine whose host hands out
//! memory on first touch, 0.3 instead of 2 seconds of processor a GiB and three times the rate
//! (`docs/benchmarks.md`). A read can do the same: it uses what is cached and adds nothing to it.
//!
//! Where the system or the file system does not know it, writes are ordinary ones: the first
//! refusal is remembered for the file. No byte depends on it, and neither does durability, which is
//! what `sync` is for.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, ReadWriteFlags};

/// A read, or a write with a part, of at least so many bytes goes past the cache: smaller ones are
/// entries and indexes, which are read again and again.
pub const BULK_BYTES_MIN: usize = 256 << 10;

/// `RWF_DONTCACHE` of `linux/fs.h`.
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// How one file is read and written.
#[derive(Debug, Default)]
pub struct Bulk {
    /// The system refused to go past its cache for this file.
    refused: AtomicBool,
}

impl Bulk {
    /// Writes all of `parts`, one after the other, from `offset`. After an error any part of it may
    /// be on the disk.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::WriteZero`] where it takes nothing.
    pub fn write_at(
        &self,
        file: impl AsFd,
        mut offset: u64,
        parts: &[IoSlice<'_>],
    ) -> io::Result<()> {
        let mut parts: Vec<IoSlice<'_>> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
        let large = parts.iter().any(|part| part.len() >= BULK_BYTES_MIN);
        let mut left = parts.as_mut_slice();
        while !left.is_empty() {
            // rustix hands over as many slices as the system takes; the rest follows in the next
            // round.
            let past_cache = large && !self.refused.load(Ordering::Relaxed);
            let written = match past_cache {
                true => rustix::io::pwritev2(&file, left, offset, DONT_CACHE),
                false => rustix::io::pwritev(&file, left, offset),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(Errno::INTR) => {}
                Err(error) if past_cache && is_refusal(error) => {
                    self.refused.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Fills `into` from `offset`, past the cache where the bytes are wanted `once`.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::UnexpectedEof`] where the file ends before that.
    pub fn read_at(
        &self,
        file: impl AsFd,
        mut offset: u64,
        mut into: &mut [u8],
        once: bool,
    ) -> io::Result<()> {
        let large = once && into.len() >= BULK_BYTES_MIN;
        while !into.is_empty() {
            let past_cache = large && !self.refused.load(Ordering::Relaxed);
            let read = match past_cache {
                true => {
                    let parts = &mut [IoSliceMut::new(into)];
                    rustix::io::preadv2(&file, parts, offset, DONT_CACHE)
                }
                false => rustix::io::pread(&file, &mut *into, offset),
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    offset += read as u64;
                    into = &mut into[read..];
                }
                Err(Errno::INTR) => {}
                Err(error) if past_cache && is_refusal(error) => {
                    self.refused.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Whether the system says so that it does not know the flag, or the file system cannot.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts below and above the bound, at odd places, on the file system of `folder`.
    fn check(folder: &std::path::Path) -> bool {
        let file = tempfile::tempfile_in(folder).expect("a file");
        let bulk = Bulk::default();
        let large: Vec<u8> = (0..BULK_BYTES_MIN + 77).map(|i| (i % 251) as u8).collect();
        let mut model = vec![0; 5];
        for round in 0..4u8 {
            let small = [round; 13];
            let parts = [&small[..], &[], &large, &small];
            let slices = parts.map(IoSlice::new);
            bulk.write_at(&file, model.len() as u64, &slices).expect("written");
            model.extend(parts.concat());
            bulk.write_at(&file, model.len() as u64, &[IoSlice::new(&small)]).expect("written");
            model.extend(small);
        }
        file.sync_data().expect("synced");
        for once in [true, false, true] {
            let mut back = vec![0; model.len() - 3];
            bulk.read_at(&file, 3, &mut back, once).expect("read");
            assert!(back == model[3..], "other bytes came back");
            let error = bulk.read_at(&file, 4, &mut back, once).expect_err("past the end");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        bulk.refused.into_inner()
    }

    #[test]
    fn bytes_are_the_same_past_the_cache_and_through_it() {
        let folder = tempfile::tempdir().expect("a folder");
        check(folder.path());
        // A file system in memory has nothing to go past, and refuses.
        if std::path::Path::new("/dev/shm").is_dir() {
            check("/dev/shm".as_ref());
        }
    }

    #[test]
    fn what_cannot_be_written_is_an_error_either_way() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let large = vec![1; BULK_BYTES_MIN];
        for part in [&large[..], &large[..3]] {
            assert!(Bulk::default().write_at(&reader, 0, &[IoSlice::new(part)]).is_err());
        }
    }
}
