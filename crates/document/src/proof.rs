//! Proof that a chunk of a record was at hand, checked against the record's id alone.
//!
//! The id of a record in `holdfast-1` is the root of BLAKE3's tree over chunks of 1,024 bytes. [`prove_chunk`] gives a
//! chunk and the chaining values beside its path; [`verify_chunk`] hashes its way up to the id. So whoever challenges a
//! holder needs no copy, and the holder cannot have prepared the answer: which chunk is asked for is a fresh number.
//!
//! That number is taken modulo the number of chunks, which the challenger does not know, and here lies a trap: a path alone does not say
//! how long the record is. The first chunk of any record of 1,025 to 2,048 chunks has the same path, so a holder that kept this one
//! chunk could choose among a thousand lengths the one by which it is asked for, and pass every third challenge. So the
//! last chunk comes too, with its path. From the root it is always on the right: nothing but the true last chunk is there. Its hash binds its
//! number in the record and how many bytes it has, which together are the record's length.
//!
//! ```text
//! 5 chunks:        root              chunk 1:  path = 0, [2 3], 4        (lowest first)
//!               /        \           last (4): path = [0 1 2 3]
//!           [0 1 2 3]     4
//!          /     \
//!       [0 1]   [2 3]
//!       0   1   2   3
//! ```
//!
//! Invariants: the left part of a tree has the largest power of two of chunks that is less than all (BLAKE3, section 2.1); a proof
//! has exactly the values that its length and number call for. Not for `libri-1`, whose ids are SHA-256: it has no tree.

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use bytes::Bytes;
use crypto::RecordId;

use crate::{DOCUMENT_BYTES_MAX, DocumentError};

/// Bytes of a chunk of BLAKE3's tree.
pub const PROOF_CHUNK_BYTES: usize = blake3::CHUNK_LEN;
/// Bytes of a chaining value.
pub const PROOF_VALUE_BYTES: usize = blake3::OUT_LEN;
/// Values of a path at most: the longest document is 2,049 chunks.
pub const PROOF_PATH_MAX: usize = 12;
/// Their bytes.
pub const PROOF_PATH_BYTES_MAX: usize = PROOF_PATH_MAX * PROOF_VALUE_BYTES;

/// Proof that a chunk of a record was at hand, as somebody sent it: [`verify_chunk`] says whether it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkProof {
    /// Bytes of the record.
    pub length: u32,
    /// The chunk that was asked for: 1 to [`PROOF_CHUNK_BYTES`] bytes.
    pub chunk: Bytes,
    /// Chaining values beside its path, lowest first, [`PROOF_VALUE_BYTES`] each, at most [`PROOF_PATH_MAX`].
    pub path: Bytes,
    /// The record's last chunk, which proves the length; empty where that is the one that was asked for.
    pub last: Bytes,
    /// As `path`, of the last chunk; empty where `last` is.
    pub last_path: Bytes,
}

/// Proves the chunk of this number, modulo the number of chunks. It hashes all of `bytes` once.
///
/// `None` where no record has such bytes: none, or over [`DOCUMENT_BYTES_MAX`].
pub fn prove_chunk(bytes: &[u8], chunk: u32) -> Option<ChunkProof> {
    if bytes.is_empty() || bytes.len() > DOCUMENT_BYTES_MAX {
        return None;
    }
    let length = u32::try_from(bytes.len()).ok()?;
    let chunks = chunks_of(bytes.len());
    let (asked, last) = (chunk as usize % chunks, chunks - 1);
    let tree = Tree { bytes, first: 0 };
    let (mut path, mut last_path) = (Vec::new(), Vec::new());
    if asked == last {
        tree.descend(asked, &mut path);
    } else {
        tree.descend_both(asked, &mut path, &mut last_path);
    }
    let copy = |number: usize| Bytes::copy_from_slice(chunk_of(bytes, number));
    Some(ChunkProof {
        length,
        chunk: copy(asked),
        path: path.concat().into(),
        last: if asked == last { Bytes::new() } else { copy(last) },
        last_path: last_path.concat().into(),
    })
}

/// Whether this proves the chunk of this number, modulo the number of chunks, of the record with this id. It hashes at most two
/// chunks and 24 values, whatever it is given.
///
/// # Errors
/// [`DocumentError::Proof`].
pub fn verify_chunk(id: &RecordId, chunk: u32, proof: &ChunkProof) -> Result<(), DocumentError> {
    let wrong = |what| DocumentError::Proof { id: *id, what };
    let length = proof.length as usize;
    if !(1..=DOCUMENT_BYTES_MAX).contains(&length) {
        return Err(wrong("states a length that no record has"));
    }
    let chunks = chunks_of(length);
    let (asked, last) = (chunk as usize % chunks, chunks - 1);
    let leads = |number: usize, bytes: &[u8], path: &[u8]| {
        if bytes.len() != chunk_len(length, number) {
            return Err(wrong("has a chunk of another length"));
        }
        match root(chunks, number, bytes, path) {
            None => Err(wrong("has a path of another length")),
            Some(root) if root == *id.as_bytes() => Ok(()),
            Some(_) => Err(wrong("does not lead to the record")),
        }
    };
    leads(asked, &proof.chunk, &proof.path)?;
    match asked == last {
        // The chunk that was asked for is the one that proves the length.
        true if proof.last.is_empty() && proof.last_path.is_empty() => Ok(()),
        true => Err(wrong("has the last chunk twice")),
        false => leads(last, &proof.last, &proof.last_path),
    }
}

fn chunks_of(length: usize) -> usize {
    length.div_ceil(PROOF_CHUNK_BYTES)
}

/// Bytes of the chunk of this number in a record of this length.
fn chunk_len(length: usize, number: usize) -> usize {
    (length - number * PROOF_CHUNK_BYTES).min(PROOF_CHUNK_BYTES)
}

/// The chunk of this number, which the record has.
fn chunk_of(bytes: &[u8], number: usize) -> &[u8] {
    bytes.chunks(PROOF_CHUNK_BYTES).nth(number).unwrap_or_default()
}

/// How many of so many chunks, of which there are two at least, are in the left part of their tree.
fn left_of(chunks: usize) -> usize {
    chunks.next_power_of_two() / 2
}

/// The chaining value of bytes that begin at this chunk and are a part of a tree, but not all of it.
fn value(bytes: &[u8], first: usize) -> ChainingValue {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset((first * PROOF_CHUNK_BYTES) as u64);
    hasher.update(bytes).finalize_non_root()
}

/// The root that a chunk and its path lead to in a tree of so many; `None` where the path is of another length.
fn root(chunks: usize, number: usize, bytes: &[u8], path: &[u8]) -> Option<[u8; 32]> {
    // From the root down: whether the way goes right.
    let mut turns = [false; PROOF_PATH_MAX];
    let (mut depth, mut left_over, mut at) = (0, chunks, number);
    while left_over > 1 {
        let left = left_of(left_over);
        let right = at >= left;
        (left_over, at) = if right { (left_over - left, at - left) } else { (left, at) };
        *turns.get_mut(depth)? = right;
        depth += 1;
    }
    let (path, []) = path.as_chunks::<PROOF_VALUE_BYTES>() else { return None };
    let turns = turns.get(..depth).filter(|_| path.len() == depth)?;
    let Some((top, lower)) = path.split_last() else {
        return Some(*blake3::hash(bytes).as_bytes());
    };
    let mut own = value(bytes, number);
    for (beside, right) in lower.iter().zip(turns.iter().rev()) {
        let (left, right) = ordered(&own, beside, *right);
        own = merge_subtrees_non_root(left, right, Mode::Hash);
    }
    let (left, right) = ordered(&own, top, turns.first().copied()?);
    Some(*merge_subtrees_root(left, right, Mode::Hash).as_bytes())
}

/// Two parts as they stand in the tree.
fn ordered<'a>(
    own: &'a ChainingValue,
    beside: &'a ChainingValue,
    right: bool,
) -> (&'a ChainingValue, &'a ChainingValue) {
    if right { (beside, own) } else { (own, beside) }
}

/// A part of a record's tree, with at least one chunk.
#[derive(Clone, Copy)]
struct Tree<'a> {
    bytes: &'a [u8],
    /// The number of its first chunk in the record.
    first: usize,
}

impl<'a> Tree<'a> {
    /// Its two parts; `None` where it is one chunk.
    fn parts(self) -> Option<(Self, Self)> {
        let chunks = chunks_of(self.bytes.len());
        if chunks < 2 {
            return None;
        }
        let left = left_of(chunks);
        let (bytes, rest) = self.bytes.split_at(left * PROOF_CHUNK_BYTES);
        Some((Self { bytes, ..self }, Self { bytes: rest, first: self.first + left }))
    }

    fn value(self) -> ChainingValue {
        value(self.bytes, self.first)
    }

    /// The values beside the way to this chunk, lowest first, and its own value.
    fn descend(self, number: usize, path: &mut Vec<ChainingValue>) -> ChainingValue {
        let Some((left, right)) = self.parts() else { return self.value() };
        let (one, other) = if number < right.first {
            let one = left.descend(number, path);
            let other = right.value();
            path.push(other);
            (one, other)
        } else {
            let other = right.descend(number, path);
            let one = left.value();
            path.push(one);
            (one, other)
        };
        merge_subtrees_non_root(&one, &other, Mode::Hash)
    }

    /// As [`Self::descend`], to this chunk and to the last one, which is another; no byte is hashed twice.
    fn descend_both(
        self,
        number: usize,
        path: &mut Vec<ChainingValue>,
        last_path: &mut Vec<ChainingValue>,
    ) -> ChainingValue {
        let Some((left, right)) = self.parts() else { return self.value() };
        let last = self.first + chunks_of(self.bytes.len()) - 1;
        let (one, other) = if number < right.first {
            let one = left.descend(number, path);
            (one, right.descend(last, last_path))
        } else {
            (left.value(), right.descend_both(number, path, last_path))
        };
        path.push(if number < right.first { other } else { one });
        last_path.push(one);
        merge_subtrees_non_root(&one, &other, Mode::Hash)
    }
}

#[cfg(test)]
mod tests;
