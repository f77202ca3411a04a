//! Each stage alone: single-core seconds a byte, and the disk's seconds a byte by the clock.

use std::fs::{self, File};
use std::io::{IoSlice, Read, Seek, Write};
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{EEK_BYTES, Eek, Suite};
use document::layout::SEGMENT_BYTES_MAX;
use document::{CHUNK_BYTES_MAX, tries_to_compress};
use env::disk::Bulk;
use erasure::Code;
use placement::Profile;

use super::tls;
use crate::Bench;
use crate::error::BenchError;
use crate::folder::Folder;
use crate::percentiles::middle;
use crate::process::thread_cpu;
use crate::seeded::Seeded;

/// Bytes that each stage works on, larger than what a processor caches.
const BYTES: usize = 64 << 20;
const BYTES_QUICK: usize = 8 << 20;
/// zstd's level of a chunk, as `document` has it.
const ZSTD_LEVEL: i32 = 3;

/// Seconds a byte, each stage once.
pub(super) struct Stages {
    /// Bytes each was timed over.
    pub(super) bytes: usize,
    pub(super) read: f64,
    pub(super) compress_random: f64,
    pub(super) compress_text: f64,
    pub(super) seal: f64,
    pub(super) open: f64,
    pub(super) mac: f64,
    pub(super) hash: f64,
    pub(super) tls_send: f64,
    pub(super) tls_receive: f64,
    /// Processor time of writing and syncing.
    pub(super) write: f64,
    /// Processor time of writing what the system may write to the disk later.
    pub(super) leave: f64,
    /// Writing and syncing by the clock.
    pub(super) disk: f64,
    /// By the clock: reading past the system's cache.
    pub(super) disk_read: f64,
    /// By the clock: as many bytes read past the system's cache, where records lie, while as many are written.
    pub(super) disk_both: f64,
    /// Making a stripe's parity, for each byte of its pages; none where copies are kept.
    pub(super) code: Option<f64>,
}

impl Stages {
    pub(super) fn measure(
        bench: &Bench,
        tries: usize,
        profile: Profile,
    ) -> Result<Self, BenchError> {
        let bytes = if bench.quick { BYTES_QUICK } else { BYTES };
        let folder = Folder::new(bench.dir.as_deref())?;
        let mut random = vec![0; bytes];
        Seeded::new(1).fill(&mut random);
        let text = text(bytes / 4);
        let a_byte = |time: Duration, bytes: usize| time.as_secs_f64() / bytes as f64;
        let tried = |mut once: Box<dyn FnMut() -> Result<Duration, BenchError> + '_>| {
            let once = |_| bench.stop.check().and_then(|()| once());
            let took = (0..tries).map(once).collect::<Result<Vec<_>, BenchError>>()?;
            Ok::<_, BenchError>(usual(&took))
        };
        let (write, disk) = write(folder.path(), &random, tries)?;
        // Before anything reads the file through the cache.
        let disk_read = tried(Box::new(|| read_past_the_cache(folder.path(), bytes)))?;
        let disk_both = tried(Box::new(|| read_while_writing(folder.path(), &random)))?;
        let of = |time| a_byte(time, bytes);
        let (send, receive) = tls::measure(bytes, tries)?;
        Ok(Self {
            bytes,
            read: of(tried(Box::new(|| read(folder.path())))?),
            compress_random: of(tried(Box::new(|| compress(&random)))?),
            compress_text: a_byte(tried(Box::new(|| compress(&text)))?, text.len()),
            seal: of(tried(Box::new(|| seal(&random)))?),
            open: of(tried(Box::new(|| open(&random)))?),
            mac: of(tried(Box::new(|| Ok(chunks(&random, mac))))?),
            hash: of(tried(Box::new(|| Ok(chunks(&random, hash))))?),
            tls_send: of(send),
            tls_receive: of(receive),
            write: of(write),
            leave: of(tried(Box::new(|| leave(folder.path(), &random)))?),
            disk: of(disk),
            disk_read: of(disk_read),
            disk_both: of(disk_both),
            code: match profile {
                Profile::Copies(_) => None,
                Profile::Stripe { k, n } => {
                    Some(of(tried(Box::new(|| code(&random, k as usize, n as usize)))?))
                }
            },
        })
    }
}

/// Processor time of this thread for some work.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let before = thread_cpu();
    let done = work();
    (thread_cpu().saturating_sub(before), done)
}

/// The one in the middle.
pub(super) fn usual(took: &[Duration]) -> Duration {
    *middle(took, Duration::as_secs_f64)
}

fn chunks(bytes: &[u8], mut work: impl FnMut(&[u8])) -> Duration {
    timed(|| bytes.chunks(CHUNK_BYTES_MAX).for_each(&mut work)).0
}

fn mac(chunk: &[u8]) {
    std::hint::black_box(Suite::Holdfast1.mac(&[7; 32], chunk));
}

fn hash(chunk: &[u8]) {
    std::hint::black_box(Suite::Holdfast1.id(chunk));
}

fn eek() -> Eek {
    Eek::from_bytes(&[3; EEK_BYTES])
}

/// In place, each chunk under an index of its own.
fn seal(bytes: &[u8]) -> Result<Duration, BenchError> {
    let (eek, mut bytes) = (eek(), bytes.to_vec());
    let (took, sealed) = timed(|| {
        let mut chunks = bytes.chunks_mut(CHUNK_BYTES_MAX).zip(0..);
        chunks.try_for_each(|(chunk, index)| {
            eek.seal_page_in_place(Suite::Holdfast1, index, chunk).map(drop)
        })
    });
    sealed.map_err(document::DocumentError::from)?;
    Ok(took)
}

fn open(bytes: &[u8]) -> Result<Duration, BenchError> {
    let eek = eek();
    let sealed: Result<Vec<Bytes>, _> = bytes
        .chunks(CHUNK_BYTES_MAX)
        .zip(0..)
        .map(|(chunk, index)| {
            eek.seal_page(Suite::Holdfast1, index, chunk.to_vec()).map(Bytes::from)
        })
        .collect();
    let sealed = sealed.map_err(document::DocumentError::from)?;
    let (took, opened) = timed(|| {
        let mut pages = sealed.iter().zip(0..);
        pages.try_for_each(|(page, index)| {
            eek.open_page(Suite::Holdfast1, index, page)
                .map(|chunk| drop(std::hint::black_box(chunk)))
        })
    });
    opened.map_err(document::DocumentError::from)?;
    Ok(took)
}

/// Makes the parity of every segment, as a writer does: into buffers that are there.
fn code(bytes: &[u8], k: usize, n: usize) -> Result<Duration, BenchError> {
    let code = Code::new(k, n)?;
    let segment = (SEGMENT_BYTES_MAX as usize).min(k * CHUNK_BYTES_MAX);
    let mut parity = vec![vec![0; segment.div_ceil(k)]; n - k];
    let (took, coded) = timed(|| {
        bytes.chunks(segment).try_for_each(|segment| {
            let page = segment.len().div_ceil(k);
            let mut pages: Vec<&[u8]> = segment.chunks(page).collect();
            pages.resize(k, &[]);
            let mut parity: Vec<&mut [u8]> =
                parity.iter_mut().map(|bytes| &mut bytes[..page]).collect();
            code.encode(&pages, &mut parity)
        })
    });
    coded?;
    std::hint::black_box(&parity);
    Ok(took)
}

/// As sealing tries it: a look at samples first, then an attempt with as much room as a chunk has, and what does not get
/// shorter is given up.
fn compress(bytes: &[u8]) -> Result<Duration, BenchError> {
    let failed = || BenchError::io("compress", "a chunk");
    let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(failed())?;
    let mut out = vec![0; CHUNK_BYTES_MAX];
    Ok(chunks(bytes, |chunk| {
        if !tries_to_compress(chunk).unwrap_or(true) {
            return;
        }
        let _ = std::hint::black_box(compressor.compress_to_buffer(chunk, &mut out[..chunk.len()]));
    }))
}

/// Text of words of a small vocabulary, as unevenly used as in a language.
fn text(bytes: usize) -> Vec<u8> {
    let mut seeded = Seeded::new(5);
    let mut letters =
        |length: usize| -> Vec<u8> { (0..length).map(|_| b'a' + seeded.below(26) as u8).collect() };
    let words: Vec<Vec<u8>> = (0..4096).map(|number| letters(2 + number % 9)).collect();
    let mut seeded = Seeded::new(6);
    let mut out = Vec::with_capacity(bytes + 16);
    while out.len() < bytes {
        // The product of two draws prefers the first words.
        let word = (seeded.unit() * seeded.unit() * words.len() as f64) as usize;
        out.extend_from_slice(&words[word.min(words.len() - 1)]);
        out.push(b' ');
    }
    out.truncate(bytes);
    out
}

const FILE: &str = "content";
/// Reads in flight while a file is read back, as many as keep a disk busy.
const READERS: usize = 4;
/// Writes of a get's file that run at a time.
const WRITERS: usize = 4;

/// Writes a file in chunks, past the system's cache where that can be, and syncs it: processor time,
/// and time by the clock. What is left at the end is the file to be read.
fn write(folder: &Path, bytes: &[u8], tries: usize) -> Result<(Duration, Duration), BenchError> {
    let path = folder.join(FILE);
    let failed = || BenchError::io("write", &path);
    let (mut cpu, mut clock) = (Vec::new(), Vec::new());
    for _ in 0..tries {
        let _ = fs::remove_file(&path);
        let file = File::create(&path).map_err(failed())?;
        let (bulk, mut offset) = (Bulk::default(), 0);
        let started = Instant::now();
        let (took, written) = timed(|| {
            for chunk in bytes.chunks(CHUNK_BYTES_MAX) {
                bulk.write_at(&file, offset, &[IoSlice::new(chunk)])?;
                offset += chunk.len() as u64;
            }
            file.sync_all()
        });
        written.map_err(failed())?;
        cpu.push(took);
        clock.push(started.elapsed());
    }
    Ok((usual(&cpu), usual(&clock)))
}

/// Writes a file in chunks through the system's cache, and removes it before the system writes it: processor time.
fn leave(folder: &Path, bytes: &[u8]) -> Result<Duration, BenchError> {
    let path = folder.join("left");
    let file = File::create(&path).map_err(BenchError::io("write", &path))?;
    let (took, written) = timed(|| {
        let mut chunks = bytes.chunks(CHUNK_BYTES_MAX);
        chunks.try_for_each(|chunk| (&file).write_all(chunk))
    });
    written.map_err(BenchError::io("write", &path))?;
    fs::remove_file(&path).map_err(BenchError::io("remove", &path))?;
    Ok(took)
}

/// A reader's part of all chunks of a file that was written, as peers read large records.
fn read_part(source: &File, bulk: &Bulk, bytes: usize, reader: usize) -> std::io::Result<()> {
    let mut offsets = (0..bytes).step_by(CHUNK_BYTES_MAX).skip(reader).step_by(READERS);
    offsets.try_for_each(|offset| {
        bulk.read_once(source, offset as u64, CHUNK_BYTES_MAX.min(bytes - offset)).map(drop)
    })
}

/// Waits for all of them.
fn joined(all: Vec<thread::ScopedJoinHandle<'_, std::io::Result<()>>>) -> std::io::Result<()> {
    let each = |one: thread::ScopedJoinHandle<'_, _>| {
        one.join().unwrap_or_else(|panic| resume_unwind(panic))
    };
    all.into_iter().try_for_each(each)
}

/// Reads the file that was written, as peers read large records: time by the clock.
fn read_past_the_cache(folder: &Path, bytes: usize) -> Result<Duration, BenchError> {
    let path = folder.join(FILE);
    let source = File::open(&path).map_err(BenchError::io("read", &path))?;
    let (bulk, started) = (Bulk::default(), Instant::now());
    let read = |reader| read_part(&source, &bulk, bytes, reader);
    let read = thread::scope(|scope| {
        let read = &read;
        joined((0..READERS).map(|reader| scope.spawn(move || read(reader))).collect())
    });
    read.map_err(BenchError::io("read", &path))?;
    Ok(started.elapsed())
}

/// Reads the file that was written, as peers read large records, while another of its length is written and synced:
/// time by the clock until both are done.
fn read_while_writing(folder: &Path, bytes: &[u8]) -> Result<Duration, BenchError> {
    let (from, to) = (folder.join(FILE), folder.join("copy"));
    let source = File::open(&from).map_err(BenchError::io("read", &from))?;
    let copy = File::create(&to).map_err(BenchError::io("write", &to))?;
    let bulk = Bulk::default();
    let offsets: Vec<usize> = (0..bytes.len()).step_by(CHUNK_BYTES_MAX).collect();
    let read = |reader| read_part(&source, &bulk, bytes.len(), reader);
    let sink = Bulk::default();
    let write = |writer: usize| {
        let mut parts = bytes.chunks(CHUNK_BYTES_MAX).zip(&offsets).skip(writer).step_by(WRITERS);
        parts.try_for_each(|(chunk, offset)| {
            sink.write_at(&copy, *offset as u64, &[IoSlice::new(chunk)])
        })
    };
    let started = Instant::now();
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

/// Reads the file that was written, from the system's cache where it is there.
fn read(folder: &Path) -> Result<Duration, BenchError> {
    let path = folder.join(FILE);
    let failed = || BenchError::io("read", &path);
    let mut file = File::open(&path).map_err(failed())?;
    let mut chunk = vec![0; CHUNK_BYTES_MAX];
    let (took, read) = timed(|| {
        file.rewind()?;
        while file.read(&mut chunk)? > 0 {}
        std::io::Result::Ok(())
    });
    read.map_err(failed())?;
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_compresses_and_random_bytes_do_not() {
        let text = text(1 << 20);
        assert_eq!(text.len(), 1 << 20);
        let packed = zstd::bulk::compress(&text, ZSTD_LEVEL).expect("it compresses");
        assert!(packed.len() < text.len() / 2, "{} bytes", packed.len());
        let mut random = vec![0; 1 << 20];
        Seeded::new(1).fill(&mut random);
        let packed = zstd::bulk::compress(&random, ZSTD_LEVEL).expect("it compresses");
        assert!(packed.len() >= random.len());
    }

    #[test]
    fn the_middle_one_counts() {
        let of =
            |seconds: &[u64]| seconds.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
        let of = |seconds: &[u64]| usual(&of(seconds));
        assert_eq!(of(&[9, 1, 5, 3, 4]), Duration::from_secs(4));
        assert_eq!((of(&[7]), of(&[2, 1])), (Duration::from_secs(7), Duration::from_secs(2)));
    }

    #[test]
    fn time_is_that_of_this_thread() {
        let (slept, ()) = timed(|| std::thread::sleep(Duration::from_millis(50)));
        assert!(slept < Duration::from_millis(25), "{slept:?}");
    }
}
