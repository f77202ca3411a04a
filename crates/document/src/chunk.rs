//! The codec of one chunk in `holdfast-1`: a byte that names it, then the data.
//!
//! ```text
//! 0 | bytes as they are            1 | one zstd frame (level 3), where it is shorter
//! ```
//! Each chunk is compressed by itself, so that any of them opens alone and all are compressed in
//! parallel; over a whole stream neither would be possible.
//!
//! A chunk of [`SAMPLED_BYTES_MIN`] or more is compressed only where one of its samples is: [`SAMPLE_BYTES`] from the start of each
//! [`STRIDE_BYTES`]. Trying all of what does not shrink cost an author 0.35 s of a GiB in a put, the samples cost 0.04 s.
//! A stretch of `STRIDE_BYTES + SAMPLE_BYTES` of which every part as long as a sample shrinks is met. What is not met: what lies
//! between samples that do not shrink, which is 15/16 of a chunk at worst; incompressible bytes that come again further on than a
//! sample is long; and bytes that shrink by less than some 3 %, since zstd wants more of a short input.

use std::cell::RefCell;
use std::io::Cursor;

use bytes::Bytes;
use zstd::bulk::{Compressor, Decompressor};

use crate::DocumentError;

/// Where the data begin in a page's plaintext.
pub const CHUNK_AT: usize = 1;
pub(crate) const RAW: u8 = 0;
const ZSTD: u8 = 1;
pub(crate) const ZSTD_LEVEL: i32 = 3;
/// From here on samples are compressed first.
pub(crate) const SAMPLED_BYTES_MIN: usize = 256 << 10;
/// From the start of one sample to that of the next: as long as a block of zstd.
pub(crate) const STRIDE_BYTES: usize = 128 << 10;
pub(crate) const SAMPLE_BYTES: usize = 8 << 10;
/// How a zstd frame begins; skippable frames begin otherwise.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

thread_local! {
    // A context is some 3 MiB of tables: made once a thread, not once a chunk. It holds no secret that
    // outlives the chunk's own plaintext by more than the next call.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
}

/// Appends the encoded chunk to `out`, which has the room for it (1 byte more than the chunk).
pub(crate) fn encode(chunk: &[u8], out: Vec<u8>) -> Result<Vec<u8>, DocumentError> {
    let start = out.len();
    let (mut out, shorter) = with_compressor(|compressor| compress(compressor, chunk, out))?;
    if !shorter {
        out.truncate(start);
        out.push(RAW);
        out.extend_from_slice(chunk);
    }
    Ok(out)
}

/// The chunk compressed, in memory of `room` bytes behind `start` of them; `None` where it stays as it is.
pub(crate) fn compressed(
    chunk: &[u8],
    start: usize,
    room: usize,
) -> Result<Option<Vec<u8>>, DocumentError> {
    with_compressor(|compressor| {
        if !may_shrink(compressor, chunk) {
            return None;
        }
        let mut out = Vec::with_capacity(room);
        out.resize(start, 0);
        let (out, shorter) = compress_all(compressor, chunk, out);
        shorter.then_some(out)
    })
}

/// Appends the chunk compressed, where it may shrink; whether it did. What is appended else is nothing.
fn compress(compressor: &mut Compressor<'_>, chunk: &[u8], out: Vec<u8>) -> (Vec<u8>, bool) {
    match may_shrink(compressor, chunk) {
        true => compress_all(compressor, chunk, out),
        false => (out, false),
    }
}

fn compress_all(compressor: &mut Compressor<'_>, chunk: &[u8], out: Vec<u8>) -> (Vec<u8>, bool) {
    let start = out.len();
    let mut out = Cursor::new(out);
    out.get_mut().push(ZSTD);
    out.set_position(start as u64 + 1);
    // An error is the room running out: not shorter, so it stays as it is.
    let compressed = compressor.compress_to_buffer(chunk, &mut out);
    (out.into_inner(), compressed.is_ok_and(|length| length < chunk.len()))
}

/// Whether sealing this chunk in `holdfast-1` tries to compress all of it.
///
/// # Errors
/// [`DocumentError::Compress`].
pub fn tries_to_compress(chunk: &[u8]) -> Result<bool, DocumentError> {
    with_compressor(|compressor| may_shrink(compressor, chunk))
}

fn with_compressor<T>(
    work: impl FnOnce(&mut Compressor<'static>) -> T,
) -> Result<T, DocumentError> {
    COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some(compressor) => compressor,
            None => slot.insert(Compressor::new(ZSTD_LEVEL).map_err(DocumentError::Compress)?),
        };
        Ok(work(compressor))
    })
}

/// Whether a chunk is worth compressing: it is short, or one of its samples shrinks.
fn may_shrink(compressor: &mut Compressor<'_>, chunk: &[u8]) -> bool {
    if chunk.len() < SAMPLED_BYTES_MIN {
        return true;
    }
    // zstd fails where the room is not enough.
    let mut room = [0; SAMPLE_BYTES - 1];
    chunk.chunks(STRIDE_BYTES).any(|stride| {
        let sample = &stride[..stride.len().min(SAMPLE_BYTES)];
        let room = &mut room[..sample.len() - 1];
        compressor.compress_to_buffer(sample, room).is_ok()
    })
}

/// The chunk of exactly `wanted` bytes in an opened page. Raw data shares `bytes`.
pub(crate) fn decode(bytes: Bytes, wanted: usize) -> Result<Bytes, DocumentError> {
    let refused = DocumentError::Chunk { wanted };
    match bytes.first() {
        Some(&RAW) if bytes.len() == wanted + CHUNK_AT => Ok(bytes.slice(CHUNK_AT..)),
        Some(&ZSTD) => {
            let frame = &bytes[CHUNK_AT..];
            // zstd would decode several frames one after the other, and skip some kinds.
            let one = frame.starts_with(&ZSTD_MAGIC)
                && zstd::zstd_safe::find_frame_compressed_size(frame) == Ok(frame.len());
            if !one {
                return Err(refused);
            }
            // The room given is the bound: a frame that holds more is an error, not more memory.
            let mut out = Vec::with_capacity(wanted);
            let mut decompressor = Decompressor::new().map_err(DocumentError::Compress)?;
            let length = decompressor.decompress_to_buffer(frame, &mut out);
            if length.is_ok_and(|length| length == wanted) { Ok(out.into()) } else { Err(refused) }
        }
        _ => Err(refused),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(chunk: &[u8]) -> Bytes {
        encode(chunk, Vec::with_capacity(chunk.len() + 1)).expect("zstd works").into()
    }

    #[test]
    fn text_shrinks_and_noise_does_not_grow() {
        let text = b"the same again and again. ".repeat(100);
        let page = encoded(&text);
        assert_eq!(page[0], ZSTD);
        assert!(page.len() < text.len() / 10);
        let noise = blake3_like_noise(5000);
        let page = encoded(&noise);
        assert_eq!((page[0], page.len()), (RAW, 5001));
        assert_eq!(encoded(b"")[..], [RAW]);
    }

    /// What is met is compressed wherever it lies, and noise is told from it by its samples alone.
    #[test]
    fn a_long_chunk_is_compressed_where_a_stretch_of_it_shrinks() {
        let noise = blake3_like_noise(1 << 20);
        assert!(!tries_to_compress(&noise).expect("zstd works"));
        let page = encoded(&noise);
        assert_eq!((page[0], page.len()), (RAW, noise.len() + 1));
        let stretch = STRIDE_BYTES + SAMPLE_BYTES;
        let text = b"the same again and again. ".repeat(stretch / 26 + 1);
        for start in (0..noise.len() - stretch).step_by(10_007).chain([noise.len() - stretch]) {
            let mut mixed = noise.clone();
            mixed[start..start + stretch].copy_from_slice(&text[..stretch]);
            let page = encoded(&mixed);
            assert_eq!(page[0], ZSTD, "from {start} on");
            assert!(page.len() < mixed.len() - stretch / 2);
            assert!(decode(page, mixed.len()).expect("our own") == mixed);
        }
        // What lies between two samples is not looked at, and shorter chunks are tried whole.
        let mut between = noise;
        between[2 * SAMPLE_BYTES..STRIDE_BYTES - SAMPLE_BYTES].fill(0);
        assert_eq!(encoded(&between)[0], RAW);
        assert_eq!(encoded(&between[..SAMPLED_BYTES_MIN])[0], RAW);
        assert_eq!(encoded(&between[..SAMPLED_BYTES_MIN - 1])[0], ZSTD);
    }

    fn blake3_like_noise(length: usize) -> Vec<u8> {
        let hashes = (0..length.div_ceil(32) as u64)
            .flat_map(|i| crypto::Suite::Holdfast1.hash(&i.to_le_bytes()));
        hashes.take(length).collect()
    }

    /// A frame of a few hundred bytes that holds 1 GiB of zeros: refused, and quickly.
    #[test]
    fn a_bomb_is_refused_within_the_room_of_a_chunk() {
        let block = vec![0; 1 << 20];
        let mut encoder = zstd::stream::Encoder::new(vec![ZSTD], 3).expect("zstd works");
        for _ in 0..1024 {
            std::io::Write::write_all(&mut encoder, &block).expect("memory");
        }
        let bomb = Bytes::from(encoder.finish().expect("memory"));
        assert!(bomb.len() < 200_000);
        for wanted in [0, 1, 2 << 20] {
            assert!(matches!(decode(bomb.clone(), wanted), Err(DocumentError::Chunk { .. })));
        }
    }

    #[test]
    fn only_one_frame_of_the_right_length_opens() {
        let text = b"the same again and again. ".repeat(100);
        let page = encoded(&text);
        assert!(decode(page.clone(), text.len()).is_ok());
        assert!(decode(page.clone(), text.len() - 1).is_err());
        assert!(decode(page.clone(), text.len() + 1).is_err());
        let twice = [&page[..], &page[1..]].concat();
        assert!(decode(twice.into(), 2 * text.len()).is_err());
        let skippable = [&page[..], &[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9]].concat();
        assert!(decode(skippable.into(), text.len()).is_err());
        assert!(decode(page.slice(..page.len() - 1), text.len()).is_err());
        assert!(decode(Bytes::new(), 0).is_err());
        assert!(decode(Bytes::from_static(&[2]), 0).is_err());
        assert!(decode(Bytes::from_static(&[0, 1]), 2).is_err());
    }

    proptest! {
        #[test]
        fn chunks_round_trip(
            unit in proptest::collection::vec(any::<u8>(), 0..100),
            times in 1..50_usize,
        ) {
            let chunk = unit.repeat(times);
            let page = encoded(&chunk);
            prop_assert!(page.len() <= chunk.len() + 1);
            prop_assert_eq!(decode(page, chunk.len()).expect("our own"), chunk);
        }

        #[test]
        fn any_page_opens_or_is_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
            wanted in 0..200_usize,
        ) {
            for codec in [RAW, ZSTD] {
                let page = [&[codec], &bytes[..]].concat();
                if let Ok(chunk) = decode(page.into(), wanted) {
                    prop_assert_eq!(chunk.len(), wanted);
                }
            }
        }
    }
}
