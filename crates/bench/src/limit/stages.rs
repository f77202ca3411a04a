//! Each stage alone: processor seconds a byte.
//!
//! Stages that only use processors and memory run on all processors at once, each on a share of the bytes, as the parts of
//! a transfer do. A processor whose neighbours rest is faster: two may be halves of one core, and all share memory.

use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use crypto::{EEK_BYTES, Eek, Suite};
use document::layout::SEGMENT_BYTES_MAX;
use document::{CHUNK_BYTES_MAX, tries_to_compress};
use erasure::Code;
use placement::Profile;

use super::files::Files;
use super::tls;
use crate::Bench;
use crate::error::BenchError;
use crate::folder::Folder;
use crate::percentiles::middle;
use crate::process::thread_cpu;
use crate::report::cores;
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
    pub(super) compress_random: f64,
    pub(super) compress_text: f64,
    pub(super) seal: f64,
    pub(super) open: f64,
    pub(super) tag: f64,
    pub(super) hash: f64,
    pub(super) tls_send: f64,
    pub(super) tls_receive: f64,
    /// What files cost.
    pub(super) files: Files,
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
        let cores = cores();
        let a_byte = |time: Duration, bytes: usize| time.as_secs_f64() / bytes as f64;
        let tried = |once: &dyn Fn() -> Result<Duration, BenchError>| {
            let once = |_| bench.stop.check().and_then(|()| once());
            let took = (0..tries).map(once).collect::<Result<Vec<_>, BenchError>>()?;
            Ok::<_, BenchError>(usual(&took))
        };
        let shared = |work: &(dyn Fn(&[u8]) -> Result<Duration, BenchError> + Sync)| {
            Ok::<_, BenchError>(a_byte(tried(&|| at_once(cores, &random, work))?, bytes))
        };
        let files = Files::measure(bench, folder.path(), &random, tries)?;
        let of = |time| a_byte(time, bytes);
        let (send, receive) = tls::measure(bytes, tries)?;
        Ok(Self {
            bytes,
            compress_random: shared(&compress)?,
            compress_text: a_byte(tried(&|| at_once(cores, &text, &compress))?, text.len()),
            seal: shared(&seal)?,
            open: shared(&open)?,
            tag: shared(&tags)?,
            hash: shared(&|part| Ok(chunks(part, hash)))?,
            tls_send: of(send),
            tls_receive: of(receive),
            files,
            code: match profile {
                Profile::Copies(_) => None,
                Profile::Stripe { k, n } => {
                    Some(shared(&|part| code(part, k as usize, n as usize))?)
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

/// The one in the middle; of two the shorter, which makes the limit higher.
pub(super) fn usual(took: &[Duration]) -> Duration {
    *middle(took, Duration::as_secs_f64)
}

/// Some work on all processors at once, each on a share of whole chunks: processor time of all shares.
fn at_once(
    cores: usize,
    bytes: &[u8],
    work: &(dyn Fn(&[u8]) -> Result<Duration, BenchError> + Sync),
) -> Result<Duration, BenchError> {
    let share = bytes.len().div_ceil(cores).next_multiple_of(CHUNK_BYTES_MAX);
    beside(bytes.chunks(share.max(CHUNK_BYTES_MAX)).map(|part| || work(part)))
}

/// Works on a thread each, at once: the sum of what they took.
pub(super) fn beside<W>(works: impl Iterator<Item = W>) -> Result<Duration, BenchError>
where
    W: FnOnce() -> Result<Duration, BenchError> + Send,
{
    thread::scope(|scope| {
        let all: Vec<_> = works.map(|work| scope.spawn(work)).collect();
        let each = |one: thread::ScopedJoinHandle<'_, _>| {
            one.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        all.into_iter().map(each).sum()
    })
}

fn chunks(bytes: &[u8], mut work: impl FnMut(&[u8])) -> Duration {
    timed(|| bytes.chunks(CHUNK_BYTES_MAX).for_each(&mut work)).0
}

fn tags(bytes: &[u8]) -> Result<Duration, BenchError> {
    let keys = eek().whole_keys();
    let (took, tagged) = timed(|| {
        let mut chunks = bytes.chunks(CHUNK_BYTES_MAX).zip(0..);
        chunks.try_for_each(|(chunk, index)| {
            let tag = keys.chunk_tag(index, chunk)?;
            std::hint::black_box(tag);
            Ok::<_, crypto::SealError>(())
        })
    });
    tagged.map_err(document::DocumentError::from)?;
    Ok(took)
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
    fn shares_are_whole_chunks_that_make_up_all_bytes() {
        let bytes = vec![7; 5 * CHUNK_BYTES_MAX + 9];
        for cores in [1, 2, 3, 64] {
            let shares = std::sync::Mutex::new(Vec::new());
            let took = at_once(cores, &bytes, &|part| {
                shares.lock().expect("no share panics").push(part.len());
                Ok(Duration::from_secs(part.len() as u64))
            });
            assert_eq!(
                took.expect("no share fails").as_secs(),
                bytes.len() as u64,
                "{cores} cores"
            );
            let shares = shares.into_inner().expect("no share panics");
            let cut = shares.iter().filter(|share| *share % CHUNK_BYTES_MAX > 0).count();
            assert!((cores.min(3)..=cores).contains(&shares.len()) && cut == 1, "{shares:?}");
        }
        let fails = |part: &[u8]| match part.len() % CHUNK_BYTES_MAX {
            0 => Ok(Duration::ZERO),
            _ => Err(BenchError::Wrong("a share failed")),
        };
        assert!(at_once(2, &bytes, &fails).is_err());
    }

    #[test]
    fn the_middle_one_counts() {
        let of =
            |seconds: &[u64]| seconds.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
        let of = |seconds: &[u64]| usual(&of(seconds));
        assert_eq!(of(&[9, 1, 5, 3, 4]), Duration::from_secs(4));
        assert_eq!((of(&[7]), of(&[2, 1])), (Duration::from_secs(7), Duration::from_secs(1)));
    }

    #[test]
    fn time_is_that_of_this_thread() {
        let (slept, ()) = timed(|| std::thread::sleep(Duration::from_millis(50)));
        assert!(slept < Duration::from_millis(25), "{slept:?}");
    }
}
