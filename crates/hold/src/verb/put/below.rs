//! What is in a folder: a put stores what is there, and follows nothing.

use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::cli::Session;
use crate::error::HoldError;

/// The most files and folders that one put takes.
const ITEMS_MAX: usize = 1_000_000;

/// A file or a folder below the one that is put.
pub(super) struct Item {
    pub(super) path: PathBuf,
    pub(super) is_folder: bool,
}

/// What was found below a folder.
#[derive(Default)]
pub(super) struct Found {
    /// Regular files and folders, in order of their names.
    pub(super) items: Vec<Item>,
    pub(super) left_out: LeftOut,
}

/// How many of what is neither a regular file nor a folder.
#[derive(Default)]
pub(super) struct LeftOut {
    links: usize,
    pipes: usize,
    sockets: usize,
    devices: usize,
}

impl LeftOut {
    fn add(&mut self, kind: FileType) {
        let count = if kind.is_symlink() {
            &mut self.links
        } else if kind.is_fifo() {
            &mut self.pipes
        } else if kind.is_socket() {
            &mut self.sockets
        } else {
            &mut self.devices
        };
        *count += 1;
    }

    /// Warns of them: whoever puts a folder may reckon with all of it being stored.
    pub(super) fn tell(&self, session: &Session) {
        if let Some(text) = self.text() {
            session.out.warn(format_args!(
                "left out: {text}; a put of a folder stores files and folders alone"
            ));
        }
    }

    fn text(&self) -> Option<String> {
        let Self { links, pipes, sockets, devices } = *self;
        let all = [(links, "link"), (pipes, "pipe"), (sockets, "socket"), (devices, "device")];
        let some = all.into_iter().filter(|(count, _)| *count > 0);
        let some = some.map(|(count, what)| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {what}{plural}")
        });
        let some: Vec<String> = some.collect();
        (!some.is_empty()).then(|| some.join(", "))
    }
}

impl Found {
    /// The regular files alone.
    pub(super) fn files(self) -> Vec<PathBuf> {
        let files = self.items.into_iter().filter(|item| !item.is_folder);
        files.map(|item| item.path).collect()
    }
}

/// Regular files and folders, in order of their names. Links, sockets and the like are left out, and counted.
///
/// # Errors
/// Where a folder cannot be read, or there are over [`ITEMS_MAX`].
pub(super) fn items(folder: &Path) -> Result<Found, HoldError> {
    let (mut found, mut folders) = (Found::default(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(&folder).map_err(HoldError::io("read", &folder))? {
            let item = item.map_err(HoldError::io("read", &folder))?;
            let kind = item.file_type().map_err(HoldError::io("read", item.path()))?;
            let (path, is_folder) = (item.path(), kind.is_dir());
            if is_folder {
                folders.push(path.clone());
            }
            if is_folder || kind.is_file() {
                found.items.push(Item { path, is_folder });
            } else {
                found.left_out.add(kind);
            }
            if found.items.len() > ITEMS_MAX {
                return Err(HoldError::argument("DIR", format!("over {ITEMS_MAX} files")));
            }
        }
    }
    found.items.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn files_and_folders_are_found_and_all_else_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("below")).unwrap();
        for name in ["b", "below/a"] {
            std::fs::write(at(name), b"bytes").unwrap();
        }
        for name in ["link", "below/link"] {
            std::os::unix::fs::symlink("b", at(name)).unwrap();
        }
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let found = items(folder.path()).unwrap();
        assert_eq!(found.left_out.text().unwrap(), "2 links, 1 socket");
        assert_eq!(found.items.len(), 3);
        assert_eq!(found.files(), [at("b"), at("below/a")]);
        assert_eq!(items(&at("below")).unwrap().left_out.text().unwrap(), "1 link");
        std::fs::remove_file(at("below/link")).unwrap();
        assert_eq!(items(&at("below")).unwrap().left_out.text(), None);
    }
}
