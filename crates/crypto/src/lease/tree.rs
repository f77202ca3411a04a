//! The tree over a lease's leaves.
//!
//! ```text
//! leaf = BLAKE3("holdfast lease leaf v1" | BE32 index | place | BE64 bytes)
//! node = BLAKE3("holdfast lease node v1" | left | right)        of an odd level the last goes up as it is
//! ```
//! The index is in the leaf, and with the count it says how long a path is and where it turns: so one leaf has one path.

use super::{LEAVES_MAX, Leaf};

/// A hash of the tree.
pub type Hash = [u8; 32];

/// The longest path.
pub const PATH_MAX: usize = LEAVES_MAX.ilog2() as usize;

const LEAF: &[u8] = b"holdfast lease leaf v1";
const NODE: &[u8] = b"holdfast lease node v1";

fn leaf_hash(leaf: &Leaf, index: u32) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(LEAF).update(&index.to_be_bytes());
    hasher.update(leaf.place.as_bytes()).update(&leaf.bytes.to_be_bytes());
    *hasher.finalize().as_bytes()
}

fn node_hash(left: &Hash, right: &Hash) -> Hash {
    *blake3::Hasher::new().update(NODE).update(left).update(right).finalize().as_bytes()
}

/// All levels, for whoever gives out paths.
#[derive(Clone, Debug)]
pub struct Levels(Vec<Vec<Hash>>);

impl Levels {
    /// The tree over these; `None` of none, and of more than [`LEAVES_MAX`].
    pub fn new(leaves: &[Leaf]) -> Option<Self> {
        if leaves.is_empty() || leaves.len() > LEAVES_MAX as usize {
            return None;
        }
        let mut level: Vec<Hash> =
            leaves.iter().zip(0..).map(|(leaf, index)| leaf_hash(leaf, index)).collect();
        let mut levels = Vec::new();
        while level.len() > 1 {
            let above = level.chunks(2).map(|two| match two {
                [left, right] => node_hash(left, right),
                odd => odd[0],
            });
            let above = above.collect();
            levels.push(std::mem::replace(&mut level, above));
        }
        levels.push(level);
        Some(Self(levels))
    }

    /// The root.
    pub fn root(&self) -> Hash {
        self.0.last().and_then(|level| level.first()).copied().unwrap_or_default()
    }

    /// What leads from the leaf at an index to the root, lowest first.
    pub fn path(&self, index: u32) -> Vec<Hash> {
        let mut at = index as usize;
        let mut path = Vec::new();
        for level in &self.0 {
            path.extend(level.get(at ^ 1).filter(|_| level.len() > 1).copied());
            at >>= 1;
        }
        path
    }
}

/// The root to which this path leads from the leaf at `index` of `count`; `None` where no path of that tree looks so.
pub fn root(leaf: &Leaf, index: u32, count: u32, path: &[Hash]) -> Option<Hash> {
    let (mut at, mut last) = (index, count.checked_sub(1)?);
    if at > last {
        return None;
    }
    let mut hash = leaf_hash(leaf, index);
    let mut path = path.iter();
    while last > 0 {
        // The last of an odd level has nobody beside it.
        if at % 2 == 1 {
            hash = node_hash(path.next()?, &hash);
        } else if at < last {
            hash = node_hash(&hash, path.next()?);
        }
        (at, last) = (at / 2, last / 2);
    }
    path.next().is_none().then_some(hash)
}
