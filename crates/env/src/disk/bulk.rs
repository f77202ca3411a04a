//! Reads and writes of large parts that do not stay in the system's cache.
//!
//! Pages of megabytes that nobody may ask for again for months would push everything else out of
//! the cache, and the system spends more on finding room for them than the disk on taking them.
//! So both go to the disk directly (`O_DIRECT`), through memory that was used for the last one
//! ([`Room`]), as they begin and end there at multiples of 4 KiB and records do not. A read costs
//! 120 ns a KiB so, through the cache 950. A write costs 75 with its copy into that memory, through
//! the cache 220, and 350 where nine peers do it at once; what lies in memory as the disk wants it, seen from its place
//! in the file, is not copied ([`Bulk::memory_alignment`]). What is before the first multiple of a write and behind the last goes through the cache,
//! where the neighbours' ends are too.
//!
//! A direct write is waited for: who has other work has some run at a time.
//!
//! Where the file system does not take a direct write, Linux 6.14 and newer can take one through the
//! cache, begin it on the disk at once and give the memory back when it is there (`RWF_DONTCACHE`).
//! Else reads and writes are ordinary ones: a refusal is remembered for the file. No byte depends on
//! it, and neither does durability, which is what `sync` is for.
//!
//! Whether a read would wait for the disk the system says where it is asked not to (`RWF_NOWAIT`); where it cannot say, it may.
//!
//! A large read through the cache is of a record that many ask for: what lies behind it is another's,
//! so the system is told not to read ahead (with its 8 MiB it read 1.6 times what was asked for).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::room::{ALIGNMENT, ROOM_BYTES_MAX, Room};

/// A read, or a write with a part, of at least so many bytes goes past the cache: smaller ones are
/// entries and indexes, which are read again and again.
pub const BULK_BYTES_MIN: usize = 256 << 10;

/// The kind of a tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// `RWF_DONTCACHE` of `linux/fs.h`.
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// How one file is read and written.
#[derive(Debug, Default)]
pub struct Bulk {
    /// The system refused to go past its cache for this file.
    refused: AtomicBool,
    /// The file once more, for direct reads.
    reads: Direct,
    /// And for direct writes.
    writes: Direct,
    /// The system was told not to read ahead.
    advised: AtomicBool,
    /// The system does not say whether a read waits; whether it never does, as the file system is in memory.
    in_memory: OnceLock<bool>,
}

/// One file opened a second time, past the cache.
#[derive(Debug, Default)]
struct Direct {
    /// `None` where it cannot be had so.
    file: OnceLock<Option<OwnedFd>>,
    /// The file system took the file so and then refused a read or a write.
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
        if large {
            offset = self.write_directly(&file, offset, &mut left)?;
        }
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
        if large {
            let done = self.read_directly(&file, offset, into);
            offset += done as u64;
            into = &mut into[done..];
        }
        if into.len() >= BULK_BYTES_MIN && !self.advised.swap(true, Ordering::Relaxed) {
            // A hint.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        }
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

    /// Fills `into` from `offset` with what is in the system's cache; whether all of it was.
    pub fn read_now(&self, file: impl AsFd, mut offset: u64, mut into: &mut [u8]) -> bool {
        while !into.is_empty() {
            let read = match self.in_memory.get() {
                None => {
                    let parts = &mut [IoSliceMut::new(into)];
                    rustix::io::preadv2(&file, parts, offset, ReadWriteFlags::NOWAIT)
                }
                Some(true) => rustix::io::pread(&file, &mut *into, offset),
                Some(false) => return false,
            };
            match read {
                Ok(read) if read > 0 => {
                    offset += read as u64;
                    into = &mut into[read..];
                }
                Err(Errno::INTR) => {}
                Err(error) if is_refusal(error) && self.in_memory.get().is_none() => {
                    self.in_memory.get_or_init(|| is_in_memory(&file));
                }
                Ok(_) | Err(_) => return false,
            }
        }
        true
    }

    /// So many bytes from `offset`, past the cache where they are many: read where they stay, without a copy.
    ///
    /// # Errors
    /// As [`Bulk::read_at`].
    pub fn read_once(&self, file: impl AsFd, offset: u64, len: usize) -> io::Result<Bytes> {
        if len >= BULK_BYTES_MIN
            && let Some(bytes) = self.read_room(&file, offset, len)
        {
            return Ok(bytes);
        }
        let mut bytes = vec![0; len];
        self.read_at(file, offset, &mut bytes, true)?;
        Ok(bytes.into())
    }
}

impl Bulk {
    /// One direct read of all of it; `None` where that cannot be or did not give all.
    fn read_room(&self, file: impl AsFd, offset: u64, len: usize) -> Option<Bytes> {
        let before = (offset % ALIGNMENT as u64) as usize;
        let whole = before.checked_add(len)?.checked_next_multiple_of(ALIGNMENT)?;
        if whole > ROOM_BYTES_MAX || self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let direct = self.reads.file(file, OFlags::RDONLY)?;
        let mut room = Room::new(whole, 0);
        match rustix::io::pread(direct, room.as_mut(), offset - before as u64) {
            Ok(read) if read >= before + len => {
                Some(Bytes::from_owner(room).slice(before..before + len))
            }
            // Whoever tries again says what is wrong.
            _ => None,
        }
    }

    /// Reads from the front of `into` what can be read past the cache in whole: how many bytes. What
    /// is left, because of an end of the file, an error or a file system without direct reads, is
    /// for the ordinary way, which says what is wrong.
    fn read_directly(&self, file: impl AsFd, offset: u64, into: &mut [u8]) -> usize {
        // Where writes stay in the cache, it has what was written lately.
        if self.refused.load(Ordering::Relaxed) {
            return 0;
        }
        let Some(direct) = self.reads.file(file, OFlags::RDONLY) else { return 0 };
        let mut stage = Room::new(ROOM_BYTES_MAX, 0);
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let before = (at % ALIGNMENT as u64) as usize;
            let wanted =
                (before + into.len() - done).next_multiple_of(ALIGNMENT).min(ROOM_BYTES_MAX);
            let Some(staged) = stage.as_mut().get_mut(..wanted) else { break };
            let read = match rustix::io::pread(direct, &mut *staged, at - before as u64) {
                Ok(read) if read > before => read,
                Err(Errno::INTR) => continue,
                Err(error) if is_refusal(error) => {
                    self.reads.refused.store(true, Ordering::Relaxed);
                    break;
                }
                Ok(_) | Err(_) => break,
            };
            let part = (read - before).min(into.len() - done);
            into[done..done + part].copy_from_slice(&staged[before..before + part]);
            done += part;
            if read < wanted {
                // The end of the file, or half of a read: the rest need not begin at a multiple.
                break;
            }
        }
        done
    }
}

impl Bulk {
    /// Writes from the front of `parts` what can be written past the cache: up to the first multiple
    /// of [`ALIGNMENT`] through it, then the whole multiples directly. Where the rest is to be
    /// written, which stays in `parts`: what is behind the last multiple, or all of it where the file
    /// system takes no direct writes.
    fn write_directly(
        &self,
        file: impl AsFd,
        mut offset: u64,
        parts: &mut &mut [IoSlice<'_>],
    ) -> io::Result<u64> {
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        let before = offset.next_multiple_of(ALIGNMENT as u64) - offset;
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        if left < before + BULK_BYTES_MIN {
            return Ok(offset);
        }
        let Some(direct) = self.writes.file(&file, OFlags::WRONLY) else { return Ok(offset) };
        let mut stage = Room::new(ROOM_BYTES_MAX, 0);
        loop {
            // First what is before the multiple.
            let ahead = offset.next_multiple_of(ALIGNMENT as u64) - offset;
            let ahead = usize::try_from(ahead).unwrap_or(usize::MAX).min(left);
            let written = if ahead > 0 {
                let Some(bytes) = stage.as_mut().get_mut(..ahead) else { return Ok(offset) };
                gather(parts, 0, bytes);
                rustix::io::pwrite(&file, &*bytes, offset)
            } else {
                let whole = left - left % ALIGNMENT;
                if whole == 0 {
                    return Ok(offset);
                }
                let runs = runs(parts, whole);
                rustix::io::pwritev(direct, &staged(&runs, parts, stage.as_mut()), offset)
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                // After half of a write the next one begins at the next multiple again.
                Ok(written) => {
                    offset += written as u64;
                    left -= written;
                    IoSlice::advance_slices(parts, written);
                }
                Err(Errno::INTR) => {}
                Err(error) if ahead == 0 && is_refusal(error) => {
                    self.writes.refused.store(true, Ordering::Relaxed);
                    return Ok(offset);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// [`super::File::memory_alignment`].
    pub fn memory_alignment(&self, file: impl AsFd) -> Option<usize> {
        self.writes.file(file, OFlags::WRONLY).map(|_| ALIGNMENT)
    }
}

/// Bytes of a direct write that lie together in memory: whole multiples of [`ALIGNMENT`], from one on in the file.
enum Run<'a> {
    /// They lie where the disk can take them from.
    There(&'a [u8]),
    /// So many from this place of all parts, which are copied.
    Copied { from: usize, len: usize },
}

/// The first `whole` bytes of `parts`, or fewer where more than [`ROOM_BYTES_MAX`] would be copied.
///
/// What is written from where it lies begins at a page of memory, though the disk takes any multiple of 512: the system cuts a
/// write after so many pages of memory (254 for a virtual disk), which is within a block of the disk where memory begins within a
/// page, and the disk reads each block of which a write has a part: 2 MiB and an fsync took 2.4 times as long (ADR 2).
fn runs<'a>(parts: &'a [IoSlice<'_>], whole: usize) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    // Where what is to be copied begins, and how much of it there is room for.
    let (mut from, mut room) = (0, ROOM_BYTES_MAX);
    let mut copy = |from: usize, to: usize, runs: &mut Vec<Run<'a>>| {
        let len = (to - from).min(room);
        room -= len;
        if len > 0 {
            runs.push(Run::Copied { from, len });
        }
        from + len == to
    };
    let mut start = 0;
    for part in parts {
        let end = start + part.len();
        let first = start.next_multiple_of(ALIGNMENT);
        let last = (end - end % ALIGNMENT).min(whole);
        if last >= first + BULK_BYTES_MIN
            && let Some(there) = part.get(first - start..last - start)
            && there.as_ptr().addr().is_multiple_of(ALIGNMENT)
        {
            if !copy(from, first, &mut runs) {
                return runs;
            }
            runs.push(Run::There(there));
            from = last;
        }
        start = end;
        if start >= whole {
            break;
        }
    }
    copy(from, whole, &mut runs);
    runs
}

/// The runs for one call, what is copied of them in `stage`.
fn staged<'a>(
    runs: &[Run<'a>],
    parts: &[IoSlice<'_>],
    mut stage: &'a mut [u8],
) -> Vec<IoSlice<'a>> {
    let mut slices = Vec::with_capacity(runs.len());
    for run in runs {
        slices.push(IoSlice::new(match run {
            Run::There(there) => there,
            Run::Copied { from, len } => {
                let (now, rest) = stage.split_at_mut(*len);
                stage = rest;
                gather(parts, *from, now);
                now
            }
        }));
    }
    slices
}

/// Fills `into` from `parts`, which have as much from this place of all of them on.
fn gather(parts: &[IoSlice<'_>], mut from: usize, mut into: &mut [u8]) {
    for part in parts {
        let Some(part) = part.get(from..).filter(|part| !part.is_empty()) else {
            from -= part.len();
            continue;
        };
        from = 0;
        let (now, rest) = into.split_at_mut(part.len().min(into.len()));
        now.copy_from_slice(&part[..now.len()]);
        into = rest;
        if into.is_empty() {
            return;
        }
    }
}

impl Direct {
    /// The file so; `None` where the file system does not take it.
    fn file(&self, file: impl AsFd, access: OFlags) -> Option<&OwnedFd> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        self.file.get_or_init(|| open_direct(file, access)).as_ref()
    }
}

/// The file past the cache, by its descriptor: names may have changed since it was opened.
fn open_direct(file: impl AsFd, access: OFlags) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// Whether the file system is one in memory (`TMPFS_MAGIC` of `linux/magic.h`).
fn is_in_memory(file: impl AsFd) -> bool {
    let found = rustix::fs::fstatfs(file).map(|stat| u64::try_from(stat.f_type).ok());
    found == Ok(Some(TMPFS))
}

/// Whether the system says so that it does not know the flag, or the file system cannot.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts below and above the bound, at odd places, on the file system of `folder`.
    fn check(folder: &std::path::Path, bulk: Bulk) {
        let file = tempfile::tempfile_in(folder).expect("a file");
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
        // What was read through the cache is there, where the system says anything of it.
        let mut back = [0; 5000];
        bulk.read_at(&file, 7, &mut back, false).expect("read");
        back.fill(0);
        let found = bulk.read_now(&file, 7, &mut back);
        assert!(found || bulk.in_memory.get() == Some(&false), "it was read a moment ago");
        assert!(!found || back == model[7..5007], "other bytes came back");
        assert!(!bulk.read_now(&file, model.len() as u64 - 5, &mut back), "past the end");
    }

    /// What the system let go of is not waited for.
    #[test]
    fn what_is_not_in_the_cache_is_not_read_now() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = tempfile::tempfile_in(folder.path()).expect("a file");
        let bulk = Bulk::default();
        let bytes = vec![7; 1 << 20];
        bulk.write_at(&file, 0, &[IoSlice::new(&bytes)]).expect("written");
        file.sync_data().expect("synced");
        let mut back = [0; 5000];
        let mut look = || {
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("a hint");
            bulk.read_now(&file, 300_000, &mut back)
        };
        // The disk may be so fast that what the look itself began is there.
        let always = (0..5).all(|_| look());
        assert_eq!(always, bulk.in_memory.get() == Some(&true), "the disk has it alone");
        bulk.read_at(&file, 300_000, &mut back, false).expect("read");
        assert_eq!(back, [7; 5000]);
    }

    #[test]
    fn bytes_are_the_same_past_the_cache_and_through_it() {
        let folder = tempfile::tempdir().expect("a folder");
        check(folder.path(), Bulk::default());
        // A file system in memory has nothing to go past, and refuses.
        if std::path::Path::new("/dev/shm").is_dir() {
            check("/dev/shm".as_ref(), Bulk::default());
        }
    }

    /// Every place of a large part within its first and last pages, and parts longer than one read.
    #[test]
    fn direct_reads_begin_and_end_anywhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = tempfile::tempfile_in(folder.path()).expect("a file");
        let bulk = Bulk::default();
        let model: Vec<u8> = (0..3 * ROOM_BYTES_MAX + 999).map(|i| (i % 253) as u8).collect();
        bulk.write_at(&file, 0, &[IoSlice::new(&model)]).expect("written");
        let ends = [0, 1, 511, 4095, 4096, 4097, 9000];
        for from in ends {
            for less in ends {
                for length in [BULK_BYTES_MIN, ROOM_BYTES_MAX, model.len()] {
                    let to = (from + length).min(model.len()) - less;
                    if to - from < BULK_BYTES_MIN {
                        continue;
                    }
                    let mut back = vec![0; to - from];
                    bulk.read_at(&file, from as u64, &mut back, true).expect("read");
                    assert!(back == model[from..to], "from {from} to {to}");
                    let back = bulk.read_once(&file, from as u64, to - from).expect("read");
                    assert!(back == model[from..to], "from {from} to {to}, at once");
                }
            }
        }
        // What was written since is read, not what the disk had before.
        bulk.write_at(&file, 5000, &[IoSlice::new(&[7; 5000])]).expect("written");
        let mut back = vec![0; BULK_BYTES_MIN];
        bulk.read_at(&file, 5000, &mut back, true).expect("read");
        assert!(back[..5000] == [7; 5000] && back[5000..] == model[10_000..][..back.len() - 5000]);
        for (from, len) in
            [(model.len() - 5, 6), (model.len() - BULK_BYTES_MIN, BULK_BYTES_MIN + 1)]
        {
            let error = bulk.read_once(&file, from as u64, len).expect_err("past the end");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    /// Every place of a large write within its first and last pages, in parts that are cut anywhere, and writes longer
    /// than one buffer: what is around them stays.
    #[test]
    fn direct_writes_begin_and_end_anywhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes: Vec<u8> = (0..2 * ROOM_BYTES_MAX + 9999).map(|i| (i % 249) as u8).collect();
        let ends = [0, 1, 511, 4095, 4096, 4097];
        for from in ends {
            for less in ends {
                for length in [BULK_BYTES_MIN + 4097, ROOM_BYTES_MAX + 1, bytes.len()] {
                    let file = tempfile::tempfile_in(folder.path()).expect("a file");
                    let bulk = Bulk::default();
                    let mut model = vec![9; from + length + 5000];
                    bulk.write_at(&file, 0, &[IoSlice::new(&model)]).expect("written");
                    let wanted = &bytes[..length - less];
                    let (first, rest) = wanted.split_at(from.min(4000));
                    let (middle, last) = rest.split_at(rest.len() - less.min(77));
                    // Once from where it lies: where the file's multiple is, or beside it.
                    let mut room =
                        Room::new(middle.len(), (from + first.len()).wrapping_neg() % ALIGNMENT);
                    room.as_mut().copy_from_slice(middle);
                    // And within a page, where the disk would take it.
                    let mut shifted = Room::new(
                        middle.len() + 512,
                        (from + first.len()).wrapping_neg() % ALIGNMENT,
                    );
                    shifted.as_mut()[512..].copy_from_slice(middle);
                    for middle in [middle, room.as_ref(), &shifted.as_ref()[512..]] {
                        let parts = [first, middle, &[], last].map(IoSlice::new);
                        bulk.write_at(&file, from as u64, &parts).expect("written");
                    }
                    model[from..from + wanted.len()].copy_from_slice(wanted);
                    let mut back = vec![0; model.len()];
                    // As another program reads it: through the cache.
                    rustix::io::pread(&file, &mut back, 0).expect("read");
                    assert!(back == model, "{length} - {less} bytes from {from}");
                    assert_eq!(file.metadata().expect("there").len(), model.len() as u64);
                }
            }
        }
    }

    /// What lies in memory as in the file is written from there; what is around it, and what lies otherwise, is copied.
    #[test]
    fn what_lies_as_the_disk_wants_it_is_not_copied() {
        const FIRST: usize = 700;
        let large = BULK_BYTES_MIN + 3 * ALIGNMENT;
        let head = [1; FIRST];
        // The byte for the file's first multiple lies at a page's beginning.
        let memory = Room::new(large + 512, FIRST.wrapping_neg() % ALIGNMENT);
        let fits = &memory.as_ref()[..large];
        // The second time it lies otherwise.
        let parts = [&head[..], fits, &head, fits].map(IoSlice::new);
        let whole = (2 * (FIRST + large)) / ALIGNMENT * ALIGNMENT;
        let wanted = |runs: &[Run<'_>]| -> Vec<(bool, usize, usize)> {
            let kind = |run: &Run<'_>| match run {
                Run::There(there) => {
                    (true, there.as_ptr().addr() - fits.as_ptr().addr(), there.len())
                }
                Run::Copied { from, len } => (false, *from, *len),
            };
            runs.iter().map(kind).collect()
        };
        let first = ALIGNMENT - FIRST;
        let last = (FIRST + large) / ALIGNMENT * ALIGNMENT;
        let found = wanted(&runs(&parts, whole));
        let direct = last - ALIGNMENT;
        assert_eq!(
            found,
            [(false, 0, ALIGNMENT), (true, first, direct), (false, last, whole - last),]
        );
        // A multiple of 512 within a page is none.
        let within = [&head[..], &memory.as_ref()[512..]].map(IoSlice::new);
        let whole = (FIRST + large) / ALIGNMENT * ALIGNMENT;
        assert_eq!(wanted(&runs(&within, whole)), [(false, 0, whole)]);
        // More than there is room for is another call's.
        let long = vec![0; 2 * ROOM_BYTES_MAX + ALIGNMENT];
        let parts = [IoSlice::new(&long[1..])];
        assert_eq!(wanted(&runs(&parts, 2 * ROOM_BYTES_MAX)), [(false, 0, ROOM_BYTES_MAX)]);
        let mut bytes = [0; 4];
        gather(&[&b"ab"[..], b"", b"cd", b"efg"].map(IoSlice::new), 2, &mut bytes);
        assert_eq!(&bytes, b"cdef");
    }

    /// Writers of neighbouring parts share the pages where these meet.
    #[test]
    fn neighbours_are_written_at_once() {
        const PART: usize = BULK_BYTES_MIN + 1234;
        let folder = tempfile::tempdir().expect("a folder");
        let file = tempfile::tempfile_in(folder.path()).expect("a file");
        let bulk = Bulk::default();
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                let (file, bulk) = (&file, &bulk);
                scope.spawn(move || {
                    for round in 0..8 {
                        let at = (round * 4 + usize::from(writer)) * PART;
                        let bytes = vec![writer + 1; PART];
                        bulk.write_at(file, at as u64, &[IoSlice::new(&bytes)]).expect("written");
                    }
                });
            }
        });
        let mut back = vec![0; 32 * PART];
        bulk.read_at(&file, 0, &mut back, true).expect("read");
        for (number, part) in back.chunks(PART).enumerate() {
            assert!(part.iter().all(|byte| usize::from(*byte) == number % 4 + 1), "part {number}");
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
