//! Receipts that a user keeps: what holders said of a version when it was put, so that a committee can be shown it later, also when
//! those holders are away.
//!
//! A small file for each version in the home, `receipts/<hash>`: `object 32 | (length 4 | encoded Received) each`. They are the
//! holders' words and prove themselves; whoever changes the file spoils it and nothing else. Of more than about [`KEPT_MAX`] the
//! oldest are removed.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use crypto::{PeerId, RecordId};
use version::{ObjectKey, Received};

use super::CertifiedError;

/// Versions whose receipts are kept at most, but for some hundreds: not each looks for those that are too many.
pub const KEPT_MAX: usize = 4_096;
/// How many are removed at once.
const REMOVED: usize = 256;
/// Of so many versions, by their ids, one looks whether there are too many: it reads the whole folder.
const LOOKS: u8 = 64;
/// The longest file, in bytes.
const BYTES_MAX: u64 = 256 << 10;
const FOLDER: &str = "receipts";

/// What holders said of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptReceipts {
    /// The version's object.
    pub object: ObjectKey,
    /// Who said it, and the encoded word.
    pub receipts: Vec<(PeerId, Bytes)>,
}

fn path(home: &Path, h: &RecordId) -> PathBuf {
    home.join(FOLDER).join(h.to_string())
}

impl KeptReceipts {
    /// Those of a version, where any are kept and can be read.
    pub fn read(home: &Path, h: &RecordId) -> Option<Self> {
        let path = path(home, h);
        let length = fs::metadata(&path).ok()?.len();
        let bytes = fs::read(&path).ok().filter(|_| length <= BYTES_MAX)?;
        let (object, mut rest) = bytes.split_first_chunk::<32>()?;
        let mut receipts = Vec::new();
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (one, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            let received = Received::decode(one).ok().filter(|received| received.h == *h)?;
            receipts.push((received.receipt.peer, Bytes::copy_from_slice(one)));
            rest = behind;
        }
        let object = ObjectKey::new(*object);
        (rest.is_empty() && !receipts.is_empty()).then_some(Self { object, receipts })
    }

    /// Keeps them, in the place of those that are kept of the version. Blocks for an fsync.
    ///
    /// # Errors
    /// [`CertifiedError::Memory`].
    pub fn keep(&self, home: &Path, h: &RecordId) -> Result<(), CertifiedError> {
        let path = path(home, h);
        let failed =
            |source| CertifiedError::Memory { action: "write", path: path.clone(), source };
        let folder = home.join(FOLDER);
        crate::home::private_dir(&folder).map_err(failed)?;
        let mut bytes = self.object.as_bytes().to_vec();
        for (_, one) in &self.receipts {
            bytes.extend_from_slice(&u32::try_from(one.len()).unwrap_or_default().to_be_bytes());
            bytes.extend_from_slice(one);
        }
        crate::home::replace(&path, &bytes).map_err(failed)?;
        if h.as_bytes()[0].is_multiple_of(LOOKS) {
            prune(&folder, KEPT_MAX);
        }
        Ok(())
    }
}

/// Removes the oldest where there are more than so many.
fn prune(folder: &Path, most: usize) {
    let Ok(count) = fs::read_dir(folder).map(Iterator::count) else { return };
    if count <= most {
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut all: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
        })
        .collect();
    all.sort();
    let over = all.len().saturating_sub(most);
    for (_, path) in all.into_iter().take(over + REMOVED.min(most / 2)) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use crypto::{NetworkId, SecretKey, Suite};
    use version::merkle::Tree;
    use version::receipt::Terms;
    use version::{Durability, Receipt};

    use super::*;

    fn kept(h: RecordId) -> KeptReceipts {
        let key = SecretKey::from_bytes(&[3; 32]).unwrap();
        let tree = Tree::new(Suite::Holdfast1, &[h]).unwrap();
        let terms = Terms { durability: Durability::Group, lease_ms: 0, time_ms: 1 };
        let receipt = Receipt::sign(&key, &NetworkId::new([9; 32]), terms, &tree);
        let one = receipt.of_one(&[h], &tree, 0).unwrap().encode();
        let receipts = vec![(PeerId::new(key.public()), one)];
        KeptReceipts { object: ObjectKey::new([4; 32]), receipts }
    }

    #[test]
    fn receipts_are_kept_for_their_version_alone_and_spoilt_ones_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let [h, other] = [[1; 32], [2; 32]].map(RecordId::new);
        assert_eq!(KeptReceipts::read(home, &h), None);
        kept(h).keep(home, &h).unwrap();
        assert_eq!(KeptReceipts::read(home, &h), Some(kept(h)));
        // Of another version.
        kept(h).keep(home, &other).unwrap();
        assert_eq!(KeptReceipts::read(home, &other), None);
        let bytes = fs::read(path(home, &h)).unwrap();
        for length in 0..bytes.len() {
            fs::write(path(home, &h), &bytes[..length]).unwrap();
            assert_eq!(KeptReceipts::read(home, &h), None, "{length}");
        }
    }

    #[test]
    fn the_oldest_of_too_many_go() {
        let folder = tempfile::tempdir().unwrap();
        for one in 0..12 {
            fs::write(folder.path().join(one.to_string()), "x").unwrap();
        }
        prune(folder.path(), 12);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 12);
        prune(folder.path(), 8);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}
