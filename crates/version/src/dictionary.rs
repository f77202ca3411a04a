//! The second delta that is tried: one zstd frame with the base as raw dictionary.
//!
//! It finds what moved, and costs a pass of zstd's level 1 over base and value. Contexts are made once a thread: they
//! are some 600 KiB of tables each. That level's window is 512 KiB, so where base and value together are over
//! [`NEAR_BYTES_MAX`] a context of a wider window, which also looks for long matches far away, is made for the one value.
//!
//! zstd takes a dictionary that begins with its own magic number for a trained one. So a base that begins so is none:
//! its deltas would mean another thing to a decoder that takes it raw.

use std::cell::RefCell;
use std::io::Cursor;

use zstd::zstd_safe::{CCtx, CParameter, DCtx, find_frame_compressed_size};

/// How a zstd frame begins; skippable frames begin otherwise.
const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// How a trained dictionary begins.
const DICTIONARY_MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];
const LEVEL: i32 = 1;
/// The most bytes of base and value for the window of [`LEVEL`].
const NEAR_BYTES_MAX: usize = 512 << 10;
/// A window of 4 MiB: the longest base and the longest value.
const FAR_WINDOW_LOG: u32 = 22;

thread_local! {
    // They hold no more of a value than the next call overwrites.
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Appends the frame that makes `value` of `base` to `out`, at most `room` bytes of it. `false`, and `out` as it was, where that
/// is not enough.
pub(crate) fn compress(base: &[u8], value: &[u8], room: usize, out: &mut Vec<u8>) -> bool {
    if base.starts_with(&DICTIONARY_MAGIC) {
        return false;
    }
    let start = out.len();
    out.reserve(room);
    let mut cursor = Cursor::new(std::mem::take(out));
    cursor.set_position(start as u64);
    let length = match base.len() + value.len() {
        0..=NEAR_BYTES_MAX => near(base, value, &mut cursor),
        _ => far(base, value, &mut cursor),
    };
    *out = cursor.into_inner();
    let fits = length.is_some_and(|length| length <= room);
    if !fits {
        out.truncate(start);
    }
    fits
}

/// The length of the frame, `None` where the room or the memory ran out.
fn near(base: &[u8], value: &[u8], out: &mut Cursor<Vec<u8>>) -> Option<usize> {
    COMPRESSOR.with_borrow_mut(|slot| {
        let context = match slot {
            Some(context) => context,
            None => slot.insert(CCtx::try_create()?),
        };
        context.compress_using_dict(out, value, base, LEVEL).ok()
    })
}

/// As [`near`], for long ones.
fn far(base: &[u8], value: &[u8], out: &mut Cursor<Vec<u8>>) -> Option<usize> {
    let mut context = CCtx::try_create()?;
    for parameter in [
        CParameter::CompressionLevel(LEVEL),
        CParameter::WindowLog(FAR_WINDOW_LOG),
        CParameter::EnableLongDistanceMatching(true),
    ] {
        context.set_parameter(parameter).ok()?;
    }
    context.ref_prefix(base).ok()?;
    context.compress2(out, value).ok()
}

/// Appends the value of `length` bytes that `delta` makes of `base` to `out`. `false`, and `out` as it was, where it makes
/// none of that length. Allocates for `length` at most.
pub(crate) fn expand(base: &[u8], delta: &[u8], length: usize, out: &mut Vec<u8>) -> bool {
    // zstd would decode several frames one after the other, and skip some kinds.
    let one = delta.starts_with(&FRAME_MAGIC)
        && find_frame_compressed_size(delta) == Ok(delta.len())
        && !base.starts_with(&DICTIONARY_MAGIC);
    if !one {
        return false;
    }
    let start = out.len();
    out.reserve_exact(length);
    let mut cursor = Cursor::new(std::mem::take(out));
    cursor.set_position(start as u64);
    let made = DECOMPRESSOR.with_borrow_mut(|slot| {
        let context = match slot {
            Some(context) => context,
            None => match DCtx::try_create() {
                Some(context) => slot.insert(context),
                None => return false,
            },
        };
        // The room given is the bound: a frame that holds more is an error, not more memory.
        let made = context.decompress_using_dict(&mut cursor, delta, base);
        made.is_ok_and(|made| made == length)
    });
    *out = cursor.into_inner();
    if !made {
        out.truncate(start);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compressed(base: &[u8], value: &[u8], room: usize) -> Option<Vec<u8>> {
        let mut out = vec![9];
        let fits = compress(base, value, room, &mut out);
        assert_eq!(out.remove(0), 9, "what stood there stays");
        assert!(fits || out.is_empty());
        fits.then_some(out)
    }

    fn expanded(base: &[u8], delta: &[u8], length: usize) -> Option<Vec<u8>> {
        let mut out = vec![9];
        let made = expand(base, delta, length, &mut out);
        assert_eq!(out.remove(0), 9, "what stood there stays");
        assert!(made || out.is_empty());
        made.then_some(out)
    }

    /// Bytes that nothing but a dictionary makes shorter.
    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let hashes = (0..length.div_ceil(32) as u64)
            .flat_map(|i| crypto::Suite::Holdfast1.hash(&(i ^ seed << 32).to_le_bytes()));
        hashes.take(length).collect()
    }

    #[test]
    fn what_moved_is_found_in_the_base() {
        let base = noise(1, 4000);
        let value = [&noise(2, 100)[..], &base[..3900]].concat();
        let delta = compressed(&base, &value, 1000).expect("it is mostly there");
        assert!(delta.len() < 200, "{}", delta.len());
        assert_eq!(expanded(&base, &delta, value.len()), Some(value.clone()));
        assert_ne!(expanded(&noise(3, 4000), &delta, value.len()), Some(value.clone()));
        assert_eq!(compressed(&base, &value, delta.len() - 1), None, "no longer than told");
        assert_eq!(compressed(&base, &noise(4, 4000), 3500), None, "nothing to find");
    }

    /// A long value too: the window reaches the whole base.
    #[test]
    fn what_moved_is_found_far_away() {
        let base = noise(1, 2 << 20);
        let value = [&base[1 << 20..], &noise(2, 5000), &base[..1 << 20]].concat();
        let value = &value[..2 << 20];
        let delta = compressed(&base, value, 1 << 20).expect("it is mostly there");
        assert!(delta.len() < 20_000, "{}", delta.len());
        assert!(expanded(&base, &delta, value.len()).as_deref() == Some(value));
    }

    #[test]
    fn only_one_frame_of_the_right_length_expands() {
        let (base, value) = (noise(1, 500), noise(1, 400));
        let delta = compressed(&base, &value, 400).expect("it is there");
        assert!(expanded(&base, &delta, 400).is_some());
        assert_eq!(expanded(&base, &delta, 399), None);
        assert_eq!(expanded(&base, &delta, 401), None);
        assert_eq!(expanded(&base, &[&delta[..], &delta].concat(), 800), None);
        let skippable = [&delta[..], &[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9]].concat();
        assert_eq!(expanded(&base, &skippable, 400), None);
        assert_eq!(expanded(&base, &delta[..delta.len() - 1], 400), None);
        assert_eq!(expanded(&base, b"", 0), None);
    }

    /// A frame of some hundred bytes that holds 16 MiB of zeros: refused within the room of the value.
    #[test]
    fn a_bomb_is_refused_within_its_room() {
        let zeros = vec![0; 16 << 20];
        let bomb = compressed(b"", &zeros, 100_000).expect("zeros are nothing");
        for length in [0, 1, 2 << 20] {
            let mut out = Vec::new();
            assert!(!expand(b"", &bomb, length, &mut out));
            assert!(out.capacity() <= (2 << 20) + 64, "{}", out.capacity());
        }
    }

    #[test]
    fn a_base_that_zstd_would_take_for_a_trained_dictionary_is_none() {
        let base = [&DICTIONARY_MAGIC[..], &noise(1, 500)].concat();
        assert_eq!(compressed(&base, &base, 500), None);
        // zstd leaves out a dictionary that lies where the input does.
        let delta = compressed(&base[4..], &noise(1, 500), 500).expect("it is there");
        assert_eq!(expanded(&base, &delta, 500), None);
    }
}
