//! One signature for many versions: a Merkle tree over their h.
//!
//! ```text
//! leaf = H(0x00 | h)        node = H(0x01 | left | right)        an odd one at the end of a level is carried up as it is
//! ```
//! A signature covers the root and the count; so a path, from one leaf up, has the length and the turns that index and count
//! say, and no other. The first byte keeps leaves and nodes apart. Attestations and receipts share the tree: `h` covers
//! all else of a version, so a peer that answers for an author's batch has its root at hand.

use crypto::{RecordId, Suite};

use crate::VersionError;
use crate::reader::Reader;

/// The most leaves of a tree.
pub const LEAVES_MAX: usize = 65_536;
/// The most leaves of a tree of which more than the root is remembered: 67 KB.
pub const KNOWN_LEAVES_MAX: u32 = 1_024;
/// The longest path.
const SIBLINGS_MAX: usize = LEAVES_MAX.ilog2() as usize;

/// A hash in a tree.
pub type Hash = [u8; 32];

fn leaf(suite: Suite, h: &RecordId) -> Hash {
    let mut bytes = [0; 33];
    bytes[1..].copy_from_slice(h.as_bytes());
    suite.hash(&bytes)
}

fn node(suite: Suite, left: &Hash, right: &Hash) -> Hash {
    let mut bytes = [1; 65];
    bytes[1..33].copy_from_slice(left);
    bytes[33..].copy_from_slice(right);
    suite.hash(&bytes)
}

/// The root of leaves as they come, with memory for one hash a level.
#[derive(Clone, Debug)]
pub struct Root {
    suite: Suite,
    count: usize,
    /// The whole subtrees to the left: one for each bit of `count`, the largest first.
    whole: Vec<Hash>,
}

impl Root {
    /// Of no leaf yet.
    pub const fn new(suite: Suite) -> Self {
        Self { suite, count: 0, whole: Vec::new() }
    }

    /// Adds the next leaf.
    pub fn add(&mut self, h: &RecordId) {
        let mut hash = leaf(self.suite, h);
        for _ in 0..self.count.trailing_ones() {
            if let Some(left) = self.whole.pop() {
                hash = node(self.suite, &left, &hash);
            }
        }
        self.whole.push(hash);
        self.count += 1;
    }

    /// How many leaves were added.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The root, `None` of no leaves.
    pub fn finish(&self) -> Option<Hash> {
        let (last, rest) = self.whole.split_last()?;
        Some(rest.iter().rev().fold(*last, |right, left| node(self.suite, left, &right)))
    }
}

/// The root over these, `None` of none.
pub fn root<'a>(suite: Suite, hs: impl IntoIterator<Item = &'a RecordId>) -> Option<Hash> {
    let mut root = Root::new(suite);
    hs.into_iter().for_each(|h| root.add(h));
    root.finish()
}

/// All levels of a tree: for whoever gives out many paths.
#[derive(Clone, Debug)]
pub struct Tree {
    levels: Vec<Vec<Hash>>,
}

impl Tree {
    /// The tree over these, `None` of none.
    pub fn new<'a>(suite: Suite, hs: impl IntoIterator<Item = &'a RecordId>) -> Option<Self> {
        let mut level: Vec<Hash> = hs.into_iter().map(|h| leaf(suite, h)).collect();
        if level.is_empty() {
            return None;
        }
        let mut levels = Vec::new();
        while level.len() > 1 {
            let above = level.chunks(2).map(|two| match two {
                [left, right] => node(suite, left, right),
                odd => odd[0],
            });
            let above = above.collect();
            levels.push(std::mem::replace(&mut level, above));
        }
        levels.push(level);
        Some(Self { levels })
    }

    /// Its root.
    pub fn root(&self) -> Hash {
        self.levels.last().and_then(|level| level.first()).copied().unwrap_or_default()
    }

    /// How many leaves it has.
    pub fn count(&self) -> usize {
        self.levels.first().map_or(0, Vec::len)
    }

    /// The path of the leaf at an index, `None` where there is none.
    pub fn path(&self, index: usize) -> Option<Path> {
        if index >= self.count() {
            return None;
        }
        let mut at = index;
        let mut siblings = Vec::with_capacity(SIBLINGS_MAX);
        for level in &self.levels {
            siblings.extend(level.get(at ^ 1).filter(|_| level.len() > 1));
            at >>= 1;
        }
        Some(Path { index: u32::try_from(index).ok()?, siblings })
    }
}

/// What is known of a tree whose root is: for whoever is shown many paths in it.
#[derive(Clone, Debug)]
pub struct Known {
    count: u32,
    root: Hash,
    /// Where each level begins among the nodes, the leaves' first.
    levels: Vec<usize>,
    nodes: Vec<Option<Hash>>,
}

impl Known {
    /// A tree of so many leaves, of which the root alone is known; `None` of none. Of one with more than [`KNOWN_LEAVES_MAX`] nothing
    /// else will be.
    pub fn of(root: Hash, count: u32) -> Option<Self> {
        let mut last = count.checked_sub(1)?;
        let (mut levels, mut nodes) = (Vec::new(), 0);
        if count > KNOWN_LEAVES_MAX {
            return Some(Self { count, root, levels, nodes: Vec::new() });
        }
        while last > 0 {
            levels.push(nodes);
            nodes += last as usize + 1;
            last >>= 1;
        }
        Some(Self { count, root, levels, nodes: vec![None; nodes] })
    }

    /// The bytes that it takes.
    pub const fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<Option<Hash>>()
    }

    fn node(&self, level: usize, at: u32) -> Option<&Hash> {
        self.nodes.get(self.levels.get(level)? + at as usize)?.as_ref()
    }

    fn learn(&mut self, level: usize, at: u32, hash: Hash) {
        let place = self.levels.get(level).map(|begins| begins + at as usize);
        if let Some(node) = place.and_then(|place| self.nodes.get_mut(place)) {
            *node = Some(hash);
        }
    }
}

/// What leads from a leaf up to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Which leaf, from 0.
    pub index: u32,
    /// The hash beside it at each level where there is one, the leaf's own first.
    pub siblings: Vec<Hash>,
}

impl Path {
    /// The root that this path leads to from the leaf of `h` in a tree of `count`, `None` where no such tree has
    /// such a path.
    pub fn root(&self, suite: Suite, h: &RecordId, count: u32) -> Option<Hash> {
        let (mut at, mut last) = (self.index, count.checked_sub(1)?);
        if at > last || self.siblings.len() != siblings(at, count) {
            return None;
        }
        let mut hash = leaf(suite, h);
        let mut siblings = self.siblings.iter();
        while last > 0 {
            if at & 1 == 1 {
                hash = node(suite, siblings.next()?, &hash);
            } else if at < last {
                hash = node(suite, &hash, siblings.next()?);
            }
            (at, last) = (at >> 1, last >> 1);
        }
        Some(hash)
    }

    /// Whether this path leads from the leaf of `h` to the root of a tree of which parts are known; those that it shows are known then.
    /// It says what [`Path::root`] would, compared with the root, and hashes only up to what is known.
    pub fn leads_into(&self, suite: Suite, h: &RecordId, known: &mut Known) -> bool {
        let (mut at, mut last) = (self.index, known.count - 1);
        if at > last || self.siblings.len() != siblings(at, known.count) {
            return false;
        }
        let mut hash = leaf(suite, h);
        let mut siblings = self.siblings.iter();
        let (mut shown, mut level) = (Vec::new(), 0);
        // Above a node that is known all is, on its way to the root and beside it.
        let mut meets = false;
        while last > 0 {
            meets = meets
                || match known.node(level, at) {
                    Some(node) if *node == hash => true,
                    Some(_) => return false,
                    None => false,
                };
            let beside = at & 1 == 1 || at < last;
            let sibling = if beside { siblings.next() } else { None };
            if meets {
                if sibling.is_some_and(|one| known.node(level, at ^ 1) != Some(one)) {
                    return false;
                }
            } else {
                shown.push((level, at, hash));
                if let Some(sibling) = sibling {
                    shown.push((level, at ^ 1, *sibling));
                    let (left, right) =
                        if at & 1 == 1 { (sibling, &hash) } else { (&hash, sibling) };
                    hash = node(suite, left, right);
                }
            }
            (at, last, level) = (at >> 1, last >> 1, level + 1);
        }
        if !meets && hash != known.root {
            return false;
        }
        shown.into_iter().for_each(|(level, at, hash)| known.learn(level, at, hash));
        true
    }

    /// Appends the siblings.
    pub(crate) fn siblings_into(&self, out: &mut Vec<u8>) {
        for sibling in &self.siblings {
            out.extend_from_slice(sibling);
        }
    }

    /// Reads the siblings of a leaf.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        index: u32,
        count: u32,
    ) -> Result<Self, VersionError> {
        let count = siblings_of(index, count)?;
        let mut siblings = Vec::with_capacity(count);
        for _ in 0..count {
            siblings.push(reader.array()?);
        }
        Ok(Self { index, siblings })
    }

    /// Goes past the siblings of a leaf.
    pub(crate) fn skip(
        reader: &mut Reader<'_>,
        index: u32,
        count: u32,
    ) -> Result<(), VersionError> {
        for _ in 0..siblings_of(index, count)? {
            reader.array::<32>()?;
        }
        Ok(())
    }
}

/// How many siblings a leaf has, where the tree has that leaf.
const fn siblings_of(index: u32, count: u32) -> Result<usize, VersionError> {
    if index >= count {
        return Err(VersionError::Field("index of the leaf"));
    }
    Ok(siblings(index, count))
}

/// How many siblings a leaf has.
const fn siblings(index: u32, count: u32) -> usize {
    let (mut at, mut last, mut siblings) = (index, count.saturating_sub(1), 0);
    while last > 0 {
        siblings += (at & 1 == 1 || at < last) as usize;
        (at, last) = (at >> 1, last >> 1);
    }
    siblings
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: Suite = Suite::Holdfast1;

    fn hs(count: usize) -> Vec<RecordId> {
        (0..count).map(|number| SUITE.id(&number.to_be_bytes())).collect()
    }

    #[test]
    fn the_root_as_they_come_is_the_trees() {
        assert_eq!(root(SUITE, &[]), None);
        assert!(Tree::new(SUITE, &[]).is_none());
        for count in 1..70 {
            let hs = hs(count);
            let tree = Tree::new(SUITE, &hs).expect("leaves");
            assert_eq!(root(SUITE, &hs), Some(tree.root()), "{count}");
            assert_eq!(tree.count(), count);
        }
        // One leaf is hashed too, so that no root is a leaf's h.
        assert_eq!(root(SUITE, &hs(1)), Some(leaf(SUITE, &hs(1)[0])));
        let [a, b, c] = [0, 1, 2].map(|number| leaf(SUITE, &hs(3)[number]));
        let carried = node(SUITE, &node(SUITE, &a, &b), &c);
        assert_eq!(root(SUITE, &hs(3)), Some(carried), "an odd one is carried up");
    }

    #[test]
    fn a_path_leads_to_the_root_from_its_leaf_alone() {
        for count in 1..40 {
            let hs = hs(count);
            let tree = Tree::new(SUITE, &hs).expect("leaves");
            for (index, h) in hs.iter().enumerate() {
                let path = tree.path(index).expect("a leaf");
                let leads = |path: &Path, h: &RecordId, count: usize| {
                    path.root(SUITE, h, count as u32) == Some(tree.root())
                };
                assert!(leads(&path, h, count), "{index} of {count}");
                assert!(!leads(&path, &RecordId::new([1; 32]), count));
                for other in (0..=count as u32).filter(|other| *other != path.index) {
                    let moved = Path { index: other, ..path.clone() };
                    assert!(!leads(&moved, h, count), "{index} of {count} as {other}");
                }
                let mut longer = path.clone();
                longer.siblings.push([0; 32]);
                assert!(!leads(&longer, h, count));
                for at in 0..path.siblings.len() {
                    let mut other = path.clone();
                    other.siblings[at][7] ^= 1;
                    assert!(!leads(&other, h, count));
                    other.siblings.remove(at);
                    assert!(!leads(&other, h, count));
                }
            }
            assert_eq!(tree.path(count), None);
        }
        assert_eq!(Path { index: 0, siblings: vec![] }.root(SUITE, &hs(1)[0], 0), None);
    }

    #[test]
    fn what_is_known_of_a_tree_changes_no_answer() {
        for count in 1..40_u32 {
            let hs = hs(count as usize);
            let tree = Tree::new(SUITE, &hs).expect("leaves");
            let mut known = Known::of(tree.root(), count).expect("a tree");
            let mut same = |path: &Path, h: &RecordId| {
                let right = path.root(SUITE, h, count) == Some(tree.root());
                assert_eq!(path.leads_into(SUITE, h, &mut known), right, "{path:?} of {count}");
            };
            // From both ends to the middle, and all once more: first little of the tree is known, then all.
            let ends = (0..count).flat_map(|one| [one / 2, count - 1 - one / 2]);
            for index in ends.chain(0..count) {
                let h = &hs[index as usize];
                let path = tree.path(index as usize).expect("a leaf");
                for at in 0..path.siblings.len() {
                    let mut other = path.clone();
                    other.siblings[at][7] ^= 1;
                    same(&other, h);
                    other.siblings.remove(at);
                    same(&other, h);
                }
                same(&path, h);
                same(&path, &RecordId::new([1; 32]));
                for other in 0..=count {
                    same(&Path { index: other, ..path.clone() }, h);
                }
                let mut longer = path.clone();
                longer.siblings.push([0; 32]);
                same(&longer, h);
            }
            assert_eq!(known.nodes.iter().flatten().count(), known.nodes.len(), "all of it");
        }
        assert!(Known::of([0; 32], 0).is_none());
        // Of a large tree the root alone is.
        let hs = hs(KNOWN_LEAVES_MAX as usize + 1);
        let tree = Tree::new(SUITE, &hs).expect("leaves");
        let mut known = Known::of(tree.root(), KNOWN_LEAVES_MAX + 1).expect("a tree");
        let mut path = tree.path(7).expect("a leaf");
        assert!(path.leads_into(SUITE, &hs[7], &mut known) && known.bytes() == 0);
        path.siblings[3][7] ^= 1;
        assert!(!path.leads_into(SUITE, &hs[7], &mut known));
    }
}
