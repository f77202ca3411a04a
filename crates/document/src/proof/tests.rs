//! Proofs of every length hold, and nothing else does: not with another byte, length, number or record, and not for a
//! holder that kept a part of the record and states the length that suits it.

use crypto::Suite;
use proptest::prelude::*;

use super::*;

const MAX: usize = DOCUMENT_BYTES_MAX;

fn bytes_of(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn id_of(bytes: &[u8]) -> RecordId {
    Suite::Holdfast1.id(bytes)
}

fn proven(bytes: &[u8], chunk: u32) -> ChunkProof {
    prove_chunk(bytes, chunk).expect("a record")
}

fn check(bytes: &[u8], chunk: u32) {
    let proof = proven(bytes, chunk);
    let shape = (proof.path.len(), proof.last_path.len());
    assert!(proof.path.len() <= PROOF_PATH_BYTES_MAX, "{shape:?}");
    let verified = verify_chunk(&id_of(bytes), chunk, &proof);
    assert!(verified.is_ok(), "{} bytes, chunk {chunk}: {verified:?}", bytes.len());
    let number = chunk as usize % chunks_of(bytes.len());
    assert_eq!(proof.chunk, &bytes[number * 1024..(number * 1024 + 1024).min(bytes.len())]);
}

#[test]
fn chunks_of_records_of_all_lengths_are_proven() {
    let all = bytes_of(MAX, 1);
    // All at the borders of chunks, then by a step that meets every remainder.
    let near = (1..=20usize).flat_map(|chunks| chunks * 1024 - 2..=chunks * 1024 + 2);
    for length in (1..=20_000).step_by(61).chain(near).chain([1, 2, 3]) {
        for chunk in 0..=chunks_of(length) as u32 {
            check(&all[..length], chunk);
        }
    }
    for length in [MAX, MAX - 1, 2 << 20, (2 << 20) - 1, (1 << 20) + 1, 1_500_001] {
        let chunks = chunks_of(length) as u32;
        for chunk in [0, 1, chunks / 2, chunks - 2, chunks - 1, chunks, u32::MAX] {
            check(&all[..length], chunk);
        }
    }
}

#[test]
fn what_is_no_record_has_no_proof() {
    assert_eq!(prove_chunk(&[], 0), None);
    assert_eq!(prove_chunk(&vec![0; MAX + 1], 0), None);
}

/// The shape that the page of the format shows, value by value.
#[test]
fn a_path_is_the_values_beside_the_way_lowest_first() {
    let bytes = bytes_of(4 * 1024 + 7, 2);
    let part =
        |from: usize, to: usize| value(&bytes[from * 1024..(to * 1024).min(bytes.len())], from);
    let proof = proven(&bytes, 1);
    assert_eq!(proof.path, [part(0, 1), part(2, 4), part(4, 5)].concat());
    assert_eq!((&proof.last[..], &proof.last_path[..]), (&bytes[4096..], &part(0, 4)[..]));
    let last = proven(&bytes, 4);
    assert_eq!(last.path, part(0, 4)[..]);
    assert!(last.last.is_empty() && last.last_path.is_empty());
    assert_eq!(proven(&bytes, 9), last, "the number counts modulo the number of chunks");
    let short = proven(&bytes[..1024], 77);
    assert_eq!((short.length, short.path.len(), short.last.len()), (1024, 0, 0));
}

/// The fields of a proof one behind the other.
fn fields(proof: &mut ChunkProof) -> [&mut Bytes; 4] {
    [&mut proof.chunk, &mut proof.path, &mut proof.last, &mut proof.last_path]
}

fn flip(bytes: &mut Bytes, at: usize, by: u8) {
    let mut changed = bytes.to_vec();
    changed[at] ^= by;
    *bytes = changed.into();
}

#[test]
fn every_changed_byte_of_a_proof_or_of_its_id_is_refused() {
    let bytes = bytes_of(5 * 1024 + 300, 3);
    let id = id_of(&bytes);
    for chunk in 0..6 {
        let proof = proven(&bytes, chunk);
        for field in 0..4 {
            let len = fields(&mut proof.clone())[field].len();
            for at in 0..len {
                let mut changed = proof.clone();
                flip(fields(&mut changed)[field], at, 1 << (at % 8));
                assert!(verify_chunk(&id, chunk, &changed).is_err(), "{chunk} {field} {at}");
            }
        }
        for at in 0..32 {
            let mut other = *id.as_bytes();
            other[at] ^= 0x10;
            assert!(verify_chunk(&RecordId::new(other), chunk, &proof).is_err());
        }
        for other in (0..6).filter(|other| *other != chunk) {
            assert!(verify_chunk(&id, other, &proof).is_err(), "{chunk} as {other}");
        }
    }
}

#[test]
fn every_other_length_is_refused() {
    for length in [1, 1024, 1025, 2048, 3000, 4096, 5 * 1024, 9 * 1024 + 1] {
        let bytes = bytes_of(length, 4);
        let id = id_of(&bytes);
        for chunk in 0..chunks_of(length) as u32 {
            let proof = proven(&bytes, chunk);
            for other in (0..=20_000).chain([MAX as u32, MAX as u32 + 1, u32::MAX]) {
                let verified =
                    verify_chunk(&id, chunk, &ChunkProof { length: other, ..proof.clone() });
                assert_eq!(verified.is_ok(), other as usize == length, "{length} as {other}");
            }
        }
    }
}

/// A holder that kept one chunk, the last one and their paths states the length by which the chunk is the one that was
/// asked for. Without the last chunk's part in the proof it would pass.
#[test]
fn nobody_chooses_the_chunk_by_its_length() {
    let bytes = bytes_of(7 * 1024, 5);
    let id = id_of(&bytes);
    let kept = proven(&bytes, 0);
    // With five chunks number 5 is the first, with six number 6: trees of 5 to 8 have the same way to it.
    for (chunks, asked) in [(5_u32, 5), (6, 6), (8, 8), (5, 10)] {
        let stated = ChunkProof { length: chunks * 1024, ..kept.clone() };
        let of_first =
            root(chunks as usize, asked as usize % chunks as usize, &kept.chunk, &kept.path);
        assert_eq!(of_first, Some(*id.as_bytes()), "the path alone does not tell");
        assert!(verify_chunk(&id, asked, &stated).is_err());
        let bare = ChunkProof { last: Bytes::new(), last_path: Bytes::new(), ..stated.clone() };
        assert!(verify_chunk(&id, asked, &bare).is_err());
        let first_as_last =
            ChunkProof { last: kept.chunk.clone(), last_path: kept.path.clone(), ..stated };
        assert!(verify_chunk(&id, asked, &first_as_last).is_err());
    }
}

/// A value in the tree is not taken for a chunk: a record of its two children's values is another.
#[test]
fn a_parent_is_not_taken_for_a_chunk() {
    let bytes = bytes_of(2048, 6);
    let children = [value(&bytes[..1024], 0), value(&bytes[1024..], 1)].concat();
    let made_up = ChunkProof {
        length: 64,
        chunk: children.into(),
        path: Bytes::new(),
        last: Bytes::new(),
        last_path: Bytes::new(),
    };
    assert!(verify_chunk(&id_of(&bytes), 0, &made_up).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_chunk_of_any_record_is_proven_and_no_changed_proof_is(
        length in 1..40_000usize,
        seed: u32,
        chunk: u32,
        field in 0..4usize,
        at: proptest::sample::Index,
        by in 1..=255u8,
        stated: u32,
    ) {
        let bytes = bytes_of(length, seed);
        let id = id_of(&bytes);
        let proof = proven(&bytes, chunk);
        prop_assert!(verify_chunk(&id, chunk, &proof).is_ok());
        let mut changed = proof.clone();
        let changing = fields(&mut changed).into_iter().nth(field).expect("one of four");
        if !changing.is_empty() {
            let at = at.index(changing.len());
            flip(changing, at, by);
            prop_assert!(verify_chunk(&id, chunk, &changed).is_err());
        }
        // Longer or shorter by one.
        for field in 0..4 {
            let mut changed = proof.clone();
            let changing = fields(&mut changed).into_iter().nth(field).expect("one of four");
            *changing = [&changing[..], &[0]].concat().into();
            prop_assert!(verify_chunk(&id, chunk, &changed).is_err());
            let mut changed = proof.clone();
            let changing = fields(&mut changed).into_iter().nth(field).expect("one of four");
            if !changing.is_empty() {
                changing.truncate(changing.len() - 1);
                prop_assert!(verify_chunk(&id, chunk, &changed).is_err());
            }
        }
        let stated = 1 + stated % MAX as u32;
        let lie = ChunkProof { length: stated, ..proof.clone() };
        prop_assert_eq!(verify_chunk(&id, chunk, &lie).is_ok(), stated as usize == length);
        let other = chunk.wrapping_add(1);
        let chunks = chunks_of(length);
        let same = other as usize % chunks == chunk as usize % chunks;
        prop_assert_eq!(verify_chunk(&id, other, &proof).is_ok(), same);
    }

    #[test]
    fn anything_is_a_proof_or_an_error(
        length: u32,
        chunk: u32,
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..1100), 4),
    ) {
        let mut parts = parts.into_iter().map(Bytes::from);
        let mut part = || parts.next().unwrap_or_default();
        let (chunk_bytes, path, last, last_path) = (part(), part(), part(), part());
        let proof = ChunkProof { length, chunk: chunk_bytes, path, last, last_path };
        prop_assert!(verify_chunk(&RecordId::new([7; 32]), chunk, &proof).is_err());
    }
}
