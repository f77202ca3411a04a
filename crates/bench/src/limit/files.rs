//! What a file costs: processor seconds a byte, and the disk's seconds a byte by the clock.
//!
//! The files are as long as a transfer's. What a disk takes for a moment it may not take for seconds, and memory for the
//! system's cache that was free before has to be touched first (that of a guest whose free memory its host takes back costs
//! four times what lately used memory costs; ADR 5, The limit).

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use document::CHUNK_BYTES_MAX;
use env::disk::Bulk;

use super::stages::{beside, timed, usual};
use crate::Bench;
use crate::error::BenchError;
use crate::report::cores;

/// Length of the files.
const BYTES: usize = 512 << 20;
const BYTES_QUICK: usize = 8 << 20;
/// Tries of each stage at most: they take seconds.
const TRIES: usize = 3;
const FILE: &str = "content";
/// Reads in flight while a file is read back, as many as keep a disk busy.
const READERS: usize = 4;
/// Writes of a file that run at a time, as many as keep a disk busy: those of a get's file, and those of the peers of a put together.
const WRITERS: usize = 4;

/// Seconds a byte, each once.
pub(super) struct Files {
    /// Processor time of reading what the system's cache has.
    pub(super) read: f64,
    /// Processor time of writing and syncing.
    pub(super) write: f64,
    /// Processor time of writing what the system may write to the disk later.
    pub(super) leave: f64,
    /// By the clock: writing and syncing.
    pub(super) disk: f64,
    /// By the clock: reading past the system's cache.
    pub(super) disk_read: f64,
    /// By the clock: as many bytes read past the system's cache, where records lie, while as many are written.
    pub(super) disk_both: f64,
}

/// A file that is written again and again.
struct Written<'a> {
    folder: &'a Path,
    /// What it consists of, over and over, in whole chunks.
    bytes: &'a [u8],
    chunks: usize,
}

impl Files {
    /// Files of `bytes` over and over.
    pub(super) fn measure(
        bench: &Bench,
        folder: &Path,
        bytes: &[u8],
        tries: usize,
    ) -> Result<Self, BenchError> {
        let length = if bench.quick { BYTES_QUICK } else { BYTES };
        let written = Written { folder, bytes, chunks: length / CHUNK_BYTES_MAX };
        let a_byte = |took: &[Duration]| {
            usual(took).as_secs_f64() / (written.chunks * CHUNK_BYTES_MAX) as f64
        };
        let tries = tries.min(TRIES);
        let tried = |once: &dyn Fn() -> Result<Duration, BenchError>| {
            let once = |_| bench.stop.check().and_then(|()| once());
            Ok::<_, BenchError>(a_byte(&(0..tries).map(once).collect::<Result<Vec<_>, _>>()?))
        };
        let both = (0..tries).map(|_| bench.stop.check().and_then(|()| written.write()));
        let (write, disk): (Vec<_>, Vec<_>) =
            both.collect::<Result<Vec<_>, BenchError>>()?.into_iter().unzip();
        // Before anything reads the file through the cache.
        let disk_read = tried(&|| written.read_past_the_cache())?;
        let disk_both = tried(&|| written.read_while_writing())?;
        let (write, disk) = (a_byte(&write), a_byte(&disk));
        let left = Cell::new(0);
        let leave = tried(&|| written.leave(left.replace(left.get() + 1)))?;
        (0..left.get()).try_for_each(|number| written.remove(number))?;
        let read = tried(&|| written.read())?;
        Ok(Self { read, write, leave, disk, disk_read, disk_both })
    }
}

impl Written<'_> {
    /// A worker's part of the file: where each chunk lies, and what it is.
    fn part(&self, of: usize, worker: usize) -> impl Iterator<Item = (u64, &[u8])> {
        let chunks = self.bytes.chunks_exact(CHUNK_BYTES_MAX).cycle().take(self.chunks);
        let all = chunks.zip((0..).step_by(CHUNK_BYTES_MAX)).map(|(chunk, at)| (at, chunk));
        all.skip(worker).step_by(of)
    }

    /// Writes it in chunks, some at a time, past the system's cache where that can be, and syncs it: processor time of all, and time
    /// by the clock. What is left is the file to be read.
    fn write(&self) -> Result<(Duration, Duration), BenchError> {
        let path = self.folder.join(FILE);
        let failed = || BenchError::io("write", &path);
        let _ = fs::remove_file(&path);
        let file = File::create(&path).map_err(failed())?;
        let (bulk, started) = (Bulk::default(), Instant::now());
        let (to, with, named) = (&file, &bulk, &path);
        let took = beside((0..WRITERS).map(|writer| {
            move || {
                let (took, written) = timed(|| self.write_part(to, with, writer));
                written.map_err(BenchError::io("write", named))?;
                Ok(took)
            }
        }))?;
        let (syncing, synced) = timed(|| file.sync_all());
        synced.map_err(failed())?;
        Ok((took + syncing, started.elapsed()))
    }

    /// Writes a part of the file as the record log writes large records.
    fn write_part(&self, to: &File, bulk: &Bulk, writer: usize) -> std::io::Result<()> {
        let mut part = self.part(WRITERS, writer);
        part.try_for_each(|(at, chunk)| bulk.write_at(to, at, &[IoSlice::new(chunk)]).map(drop))
    }

    /// Where a try leaves the part of a core.
    fn left(&self, number: usize, core: usize) -> PathBuf {
        self.folder.join(format!("left-{number}-{core}"))
    }

    /// Removes what a try left, before the system writes it.
    fn remove(&self, number: usize) -> Result<(), BenchError> {
        (0..cores()).try_for_each(|core| {
            let path = self.left(number, core);
            fs::remove_file(&path).map_err(BenchError::io("remove", &path))
        })
    }

    /// Writes files through the system's cache, one a core. They stay until all tries are done: memory that one gave back is at hand
    /// for the next, and a get finds it so no more than any other program.
    fn leave(&self, number: usize) -> Result<Duration, BenchError> {
        let cores = cores();
        beside((0..cores).map(|core| {
            move || {
                let path = self.left(number, core);
                let file = File::create(&path).map_err(BenchError::io("write", &path))?;
                let (took, written) = timed(|| {
                    self.part(cores, core).try_for_each(|(_, chunk)| (&file).write_all(chunk))
                });
                written.map_err(BenchError::io("write", &path))?;
                Ok(took)
            }
        }))
    }

    /// Reads the file that was written, from the system's cache where it is there, a part a core.
    fn read(&self) -> Result<Duration, BenchError> {
        let path = self.folder.join(FILE);
        let file = File::open(&path).map_err(BenchError::io("read", &path))?;
        let cores = cores();
        let (file, path) = (&file, &path);
        beside((0..cores).map(|core| {
            move || {
                let mut into = vec![0; CHUNK_BYTES_MAX];
                let (took, read) = timed(|| {
                    self.part(cores, core).try_for_each(|(at, _)| file.read_exact_at(&mut into, at))
                });
                read.map_err(BenchError::io("read", path))?;
                Ok(took)
            }
        }))
    }

    /// Reads a part of the file as peers read large records.
    fn read_part(&self, source: &File, bulk: &Bulk, reader: usize) -> std::io::Result<()> {
        let mut part = self.part(READERS, reader);
        part.try_for_each(|(at, _)| bulk.read_once(source, at, CHUNK_BYTES_MAX).map(drop))
    }

    /// Reads the file that was written, as peers read large records: time by the clock.
    fn read_past_the_cache(&self) -> Result<Duration, BenchError> {
        let path = self.folder.join(FILE);
        let source = File::open(&path).map_err(BenchError::io("read", &path))?;
        let (bulk, started) = (Bulk::default(), Instant::now());
        let read = |reader| self.read_part(&source, &bulk, reader);
        let read = thread::scope(|scope| {
            let read = &read;
            joined((0..READERS).map(|reader| scope.spawn(move || read(reader))).collect())
        });
        read.map_err(BenchError::io("read", &path))?;
        Ok(started.elapsed())
    }

    /// Reads the file that was written, as peers read large records, while another of its length is written and synced:
    /// time by the clock until both are done.
    fn read_while_writing(&self) -> Result<Duration, BenchError> {
        let (from, to) = (self.folder.join(FILE), self.folder.join("copy"));
        let source = File::open(&from).map_err(BenchError::io("read", &from))?;
        let copy = File::create(&to).map_err(BenchError::io("write", &to))?;
        let (bulk, sink, started) = (Bulk::default(), Bulk::default(), Instant::now());
        let read = |reader| self.read_part(&source, &bulk, reader);
        let write = |writer| self.write_part(&copy, &sink, writer);
        let (read, written) = thread::scope(|scope| {
            let (read, write) = (&read, &write);
            let readers: Vec<_> =
                (0..READERS).map(|reader| scope.spawn(move || read(reader))).collect();
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            let written = joined(writers).and_then(|()| copy.sync_all());
            (joined(readers), written)
        });
        let took = started.elapsed();
        read.map_err(BenchError::io("read", &from))?;
        written.map_err(BenchError::io("write", &to))?;
        fs::remove_file(&to).map_err(BenchError::io("remove", &to))?;
        Ok(took)
    }
}

/// Waits for all of them.
fn joined(all: Vec<thread::ScopedJoinHandle<'_, std::io::Result<()>>>) -> std::io::Result<()> {
    let each = |one: thread::ScopedJoinHandle<'_, _>| {
        one.join().unwrap_or_else(|panic| resume_unwind(panic))
    };
    all.into_iter().try_for_each(each)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn parts_are_disjoint_and_make_up_the_file() {
        let bytes: Vec<u8> = (0..2 * CHUNK_BYTES_MAX + 5).map(|at| (at % 251) as u8).collect();
        let written = Written { folder: Path::new("."), bytes: &bytes, chunks: 7 };
        for of in 1..9 {
            let mut all: Vec<_> = (0..of).flat_map(|worker| written.part(of, worker)).collect();
            all.sort_by_key(|(at, _)| *at);
            let places: Vec<_> = all.iter().map(|(at, _)| *at as usize / CHUNK_BYTES_MAX).collect();
            assert_eq!(places, (0..7).collect::<Vec<_>>(), "{of} workers");
            for (at, chunk) in all {
                let from = at as usize % (2 * CHUNK_BYTES_MAX);
                assert!(chunk == &bytes[from..from + CHUNK_BYTES_MAX], "at {at}");
            }
        }
    }
    #[test]
    fn what_several_write_at_a_time_is_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..2 * CHUNK_BYTES_MAX).map(|at| (at % 251) as u8).collect();
        let written = Written { folder: folder.path(), bytes: &bytes, chunks: 5 };
        let (processor, clock) = written.write().unwrap();
        assert!(processor > Duration::ZERO && clock > Duration::ZERO);
        let file = fs::read(folder.path().join(FILE)).unwrap();
        assert_eq!(file.len(), 5 * CHUNK_BYTES_MAX);
        let chunks = file.chunks(CHUNK_BYTES_MAX).zip(bytes.chunks(CHUNK_BYTES_MAX).cycle());
        assert!(chunks.into_iter().all(|(found, chunk)| found == chunk));
    }
}
