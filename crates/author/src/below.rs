//! What is in a folder, opened by names below it and by nothing that a link leads to.
//!
//! A folder may be one that others write in: between the moment at which it was listed and the one at which a file of it is opened,
//! the file, or any folder above it, may have become a link to what its owner may not read, and whoever puts the folder may.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};

/// A folder that is put.
#[derive(Debug)]
pub struct Below {
    folder: File,
    path: PathBuf,
}

impl Below {
    /// Opens the folder itself, by any path.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { folder: File::open(path)?, path: path.to_owned() })
    }

    /// As it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What there is to say of the folder itself.
    ///
    /// # Errors
    /// The system's.
    pub fn about(&self) -> io::Result<Metadata> {
        self.folder.metadata()
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// The system's; also where it, or a folder above it, is a link or anything else by now.
    pub fn file(&self, below: &Path) -> io::Result<File> {
        let file = self.opened(below, OFlags::NONBLOCK)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it was a file and is none any more")),
        }
    }

    /// Opens a folder.
    ///
    /// # Errors
    /// As [`Below::file`].
    pub fn folder(&self, below: &Path) -> io::Result<File> {
        self.opened(below, OFlags::DIRECTORY)
    }

    fn opened(&self, below: &Path, last: OFlags) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut names = below.components().peekable();
        let mut above: Option<File> = None;
        while let Some(name) = names.next() {
            let Component::Normal(name) = name else {
                return Err(io::Error::other("it is no path below the folder"));
            };
            let kind = if names.peek().is_some() { OFlags::DIRECTORY } else { last };
            let here = above.as_ref().unwrap_or(&self.folder).as_fd();
            let opened = openat(here, name, flags | kind, Mode::empty())?;
            above = Some(File::from(opened));
        }
        above.ok_or_else(|| io::Error::other("it is no path below the folder"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_is_followed_wherever_it_is_but_in_the_folders_own_path() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for path in ["elsewhere", "put/a/b"] {
            fs::create_dir_all(at(path)).unwrap();
            fs::write(at(path).join("shadow"), path).unwrap();
        }
        symlink("put", at("link")).unwrap();
        let below = Below::open(&at("link")).unwrap();
        let read = |path: &str| {
            let mut text = String::new();
            below
                .file(Path::new(path))
                .and_then(|mut file| file.read_to_string(&mut text))
                .map(|_| text)
        };
        assert_eq!(read("a/b/shadow").unwrap(), "put/a/b");
        assert!(
            below.folder(Path::new("a/b")).is_ok()
                && below.folder(Path::new("a/b/shadow")).is_err()
        );
        for path in
            ["", ".", "..", "../elsewhere/shadow", "a/../../elsewhere/shadow", "/etc/passwd", "a/b"]
        {
            assert!(read(path).is_err(), "{path:?}");
        }
        // Each of them becomes a link, one after the other.
        for path in ["put/a/b/shadow", "put/a/b", "put/a"] {
            fs::rename(at(path), at("away")).unwrap();
            let target = if path.ends_with("shadow") { "elsewhere/shadow" } else { "elsewhere" };
            symlink(at(target), at(path)).unwrap();
            assert!(read("a/b/shadow").is_err() && read("a/shadow").is_err(), "{path}");
            assert!(below.folder(Path::new("a/b")).is_err() || path.ends_with("shadow"));
            fs::remove_file(at(path)).unwrap();
            fs::rename(at("away"), at(path)).unwrap();
        }
        assert!(read("a/b/shadow").is_ok());
    }
}
