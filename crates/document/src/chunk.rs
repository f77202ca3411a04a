//! The codec of one chunk in `holdfast-1`: a byte that names it, then the data.
//!
//! ```text
//! 0 | bytes as they are            1 | one zstd frame (level 3), where it is shorter
//! ```
//! Each chunk is compressed by itself, so that any of them opens alone and all are compressed in
//! parallel; over a whole stream neither would be possible. Random data costs little: zstd gives up on it
//! at 10 GB/s.

use std::cell::RefCell;
use std::io::Cursor;

use bytes::Bytes;
use zstd::bulk::{Compressor, Decompressor};

use crate::DocumentError;

const RAW: u8 = 0;
const ZSTD: u8 = 1;
const ZSTD_LEVEL: i32 = 3;
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
    let mut out = Cursor::new(out);
    out.get_mut().push(ZSTD);
    out.set_position(start as u64 + 1);
    let compressed = COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some(compressor) => compressor,
            None => slot.insert(Compressor::new(ZSTD_LEVEL).map_err(DocumentError::Compress)?),
        };
        // An error is the room running out: not shorter, so it stays as it is.
        Ok::<_, DocumentError>(compressor.compress_to_buffer(chunk, &mut out).ok())
    })?;
    let mut out = out.into_inner();
    if compressed.is_none_or(|length| length >= chunk.len()) {
        out.truncate(start);
        out.push(RAW);
        out.extend_from_slice(chunk);
    }
    Ok(out)
}

/// The chunk of exactly `wanted` bytes in an opened page. Raw data shares `bytes`.
pub(crate) fn decode(bytes: Bytes, wanted: usize) -> Result<Bytes, DocumentError> {
    let refused = DocumentError::Chunk { wanted };
    match bytes.first() {
        Some(&RAW) if bytes.len() == wanted + 1 => Ok(bytes.slice(1..)),
        Some(&ZSTD) => {
            let frame = &bytes[1..];
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
