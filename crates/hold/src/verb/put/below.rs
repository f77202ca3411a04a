//! What is in a folder: a put stores what is there, and follows nothing.

use std::path::{Path, PathBuf};

use crate::error::HoldError;

/// The most files and folders that one put takes.
const ITEMS_MAX: usize = 1_000_000;

/// A file or a folder below the one that is put.
pub(super) struct Item {
    pub(super) path: PathBuf,
    pub(super) is_folder: bool,
}

/// Regular files and folders, in order of their names. Links, sockets and the like are left out.
///
/// # Errors
/// Where a folder cannot be read, or there are over [`ITEMS_MAX`].
pub(super) fn items(folder: &Path) -> Result<Vec<Item>, HoldError> {
    let (mut items, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(&folder).map_err(HoldError::io("read", &folder))? {
            let item = item.map_err(HoldError::io("read", &folder))?;
            let kind = item.file_type().map_err(HoldError::io("read", item.path()))?;
            let (path, is_folder) = (item.path(), kind.is_dir());
            if is_folder {
                folders.push(path.clone());
            }
            if is_folder || kind.is_file() {
                items.push(Item { path, is_folder });
            }
            if items.len() > ITEMS_MAX {
                return Err(HoldError::argument("DIR", format!("over {ITEMS_MAX} files")));
            }
        }
    }
    items.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(items)
}

/// The regular files alone.
///
/// # Errors
/// As [`items`].
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, HoldError> {
    let files = items(folder)?.into_iter().filter(|item| !item.is_folder);
    Ok(files.map(|item| item.path).collect())
}
