//! An authenticated map: 32-byte keys to values, one root, and a short proof of what is and of what is not in it.
//!
//! ```text
//! empty  32 zero bytes          leaf  BLAKE3(0x02 | key 32 | BLAKE3(value))          node  BLAKE3(0x03 | left | right)
//! proof  count 2 | siblings, 32 each, the root's child's first | what stands there 1 (0 the key, 1 nothing, 2 another) [key 32 | value's hash 32]
//! ```
//! It is a binary trie over the bits of the keys, the first bit of the first byte at the root. A subtree with one entry is that
//! entry's leaf, and one with none is empty, so a map has one shape whatever the order in which it was filled, and a path is as
//! long as the keys need to be told apart: keys are hashes, so about log2 of the entries.
//!
//! Trees share what they have in common: a copy costs nothing, and an insertion copies the nodes on its path that another map has
//! too. So each block that is not final yet has a map of its own. A node is hashed when its hash is first asked for: of the many
//! that the updates of one block make near the root, the last alone is.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use crypto::Suite;

use crate::CommitteeError;
use crate::reader::Reader;

/// A hash in the map.
pub type Hash = [u8; 32];

/// The longest path: as many as a key has bits.
const SIBLINGS_MAX: usize = 256;
const WHAT: &str = "proof of an entry";

fn leaf(key: &Hash, value: &Hash) -> Hash {
    let mut bytes = [2; 65];
    bytes[1..33].copy_from_slice(key);
    bytes[33..].copy_from_slice(value);
    Suite::Holdfast1.hash(&bytes)
}

fn node(left: &Hash, right: &Hash) -> Hash {
    let mut bytes = [3; 65];
    bytes[1..33].copy_from_slice(left);
    bytes[33..].copy_from_slice(right);
    Suite::Holdfast1.hash(&bytes)
}

/// The bit of a key at a depth.
fn bit(key: &Hash, depth: usize) -> bool {
    key.get(depth / 8).is_some_and(|byte| byte >> (7 - depth % 8) & 1 == 1)
}

#[derive(Debug)]
enum Node {
    Leaf { hash: OnceLock<Hash>, key: Hash, value: Bytes },
    Branch { hash: OnceLock<Hash>, left: Option<Arc<Node>>, right: Option<Arc<Node>> },
}

impl Node {
    /// No deeper than a key has bits.
    fn hash(&self) -> Hash {
        match self {
            Self::Leaf { hash, key, value } => {
                *hash.get_or_init(|| leaf(key, &Suite::Holdfast1.hash(value)))
            }
            Self::Branch { hash, left, right } => {
                *hash.get_or_init(|| node(&hash_of(left.as_ref()), &hash_of(right.as_ref())))
            }
        }
    }

    fn branch(left: Option<Arc<Self>>, right: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self::Branch { hash: OnceLock::new(), left, right })
    }
}

fn hash_of(node: Option<&Arc<Node>>) -> Hash {
    node.map_or([0; 32], |node| node.hash())
}

/// The map. A copy shares everything.
#[derive(Clone, Debug, Default)]
pub struct Map {
    root: Option<Arc<Node>>,
    entries: usize,
    bytes: usize,
}

impl Map {
    /// The empty map.
    pub const fn new() -> Self {
        Self { root: None, entries: 0, bytes: 0 }
    }

    /// Its root.
    pub fn root(&self) -> Hash {
        hash_of(self.root.as_ref())
    }

    /// How many entries it has.
    pub const fn len(&self) -> usize {
        self.entries
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of all values.
    pub const fn value_bytes(&self) -> usize {
        self.bytes
    }

    /// The value of a key.
    pub fn get(&self, key: &Hash) -> Option<&Bytes> {
        let mut at = self.root.as_ref();
        for depth in 0.. {
            match at.map(|node| &**node) {
                None => return None,
                Some(Node::Leaf { key: found, value, .. }) => {
                    return (found == key).then_some(value);
                }
                Some(Node::Branch { left, right, .. }) => {
                    at = if bit(key, depth) { right.as_ref() } else { left.as_ref() };
                }
            }
        }
        None
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: Hash, value: Bytes) {
        self.bytes += value.len();
        let mut before = None;
        let new = Arc::new(Node::Leaf { hash: OnceLock::new(), key, value });
        self.root = Some(inserted(self.root.take(), new, &key, 0, &mut before));
        match before {
            Some(before) => self.bytes -= before,
            None => self.entries += 1,
        }
    }

    /// All entries, in the order of their keys.
    pub fn each(&self, mut each: impl FnMut(&Hash, &Bytes)) {
        let mut waiting: Vec<&Arc<Node>> = self.root.iter().collect();
        while let Some(node) = waiting.pop() {
            match &**node {
                Node::Leaf { key, value, .. } => each(key, value),
                Node::Branch { left, right, .. } => {
                    waiting.extend(right);
                    waiting.extend(left);
                }
            }
        }
    }

    /// What proves the key's value, or that it has none.
    pub fn prove(&self, key: &Hash) -> Proof {
        let mut siblings = Vec::new();
        let mut at = self.root.as_ref();
        for depth in 0.. {
            match at.map(|node| &**node) {
                None => break,
                Some(Node::Leaf { key: found, .. }) if found == key => {
                    return Proof { siblings, there: There::It };
                }
                Some(Node::Leaf { key, value, .. }) => {
                    let value = Suite::Holdfast1.hash(value);
                    return Proof { siblings, there: There::Another { key: *key, value } };
                }
                Some(Node::Branch { left, right, .. }) => {
                    let (next, other) = if bit(key, depth) { (right, left) } else { (left, right) };
                    siblings.push(hash_of(other.as_ref()));
                    at = next.as_ref();
                }
            }
        }
        Proof { siblings, there: There::Nothing }
    }
}

/// The subtree with one entry more, or another value, and how long the value before was. A node that no other map has is changed
/// where it is.
fn inserted(
    at: Option<Arc<Node>>,
    new: Arc<Node>,
    key: &Hash,
    depth: usize,
    before: &mut Option<usize>,
) -> Arc<Node> {
    let Some(mut node) = at else { return new };
    if let Some(Node::Branch { hash, left, right }) = Arc::get_mut(&mut node) {
        let side = if bit(key, depth) { right } else { left };
        *side = Some(inserted(side.take(), new, key, depth + 1, before));
        *hash = OnceLock::new();
        return node;
    }
    let (left, right) = match &*node {
        Node::Leaf { key: found, value, .. } if found == key => {
            *before = Some(value.len());
            return new;
        }
        Node::Leaf { key: found, .. } => {
            if bit(found, depth) {
                (None, Some(node.clone()))
            } else {
                (Some(node.clone()), None)
            }
        }
        Node::Branch { left, right, .. } => (left.clone(), right.clone()),
    };
    if bit(key, depth) {
        Node::branch(left, Some(inserted(right, new, key, depth + 1, before)))
    } else {
        Node::branch(Some(inserted(left, new, key, depth + 1, before)), right)
    }
}

/// What stands where a key would.
#[derive(Clone, Debug, PartialEq, Eq)]
enum There {
    It,
    Nothing,
    Another { key: Hash, value: Hash },
}

/// What proves an entry, or that there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    siblings: Vec<Hash>,
    there: There,
}

impl Proof {
    /// The root that follows where `key` has this value, or none. `None` where the proof speaks of something else.
    pub fn root(&self, key: &Hash, value: Option<&[u8]>) -> Option<Hash> {
        let at = match (&self.there, value) {
            (There::It, Some(value)) => leaf(key, &Suite::Holdfast1.hash(value)),
            (There::Nothing, None) => [0; 32],
            (There::Another { key: other, value }, None) => {
                let shared = (0..self.siblings.len()).all(|one| bit(other, one) == bit(key, one));
                if other == key || !shared {
                    return None;
                }
                leaf(other, value)
            }
            _ => return None,
        };
        let levels = self.siblings.iter().enumerate().rev();
        Some(levels.fold(
            at,
            |at, (depth, sibling)| {
                if bit(key, depth) { node(sibling, &at) } else { node(&at, sibling) }
            },
        ))
    }

    /// Appends the encoding.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.siblings.len() as u16).to_be_bytes());
        self.siblings.iter().for_each(|sibling| out.extend_from_slice(sibling));
        match &self.there {
            There::It => out.push(0),
            There::Nothing => out.push(1),
            There::Another { key, value } => {
                out.push(2);
                out.extend_from_slice(key);
                out.extend_from_slice(value);
            }
        }
    }

    /// Reads one.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, CommitteeError> {
        let (found, max) = (usize::from(reader.u16()?), SIBLINGS_MAX);
        if found > max {
            return Err(CommitteeError::TooLarge { what: "siblings of an entry", found, max });
        }
        let siblings = (0..found).map(|_| reader.array()).collect::<Result<_, _>>()?;
        let there = match reader.u8()? {
            0 => There::It,
            1 => There::Nothing,
            2 => There::Another { key: reader.array()?, value: reader.array()? },
            _ => return Err(CommitteeError::Field(WHAT)),
        };
        Ok(Self { siblings, there })
    }
}

#[cfg(test)]
mod tests;
