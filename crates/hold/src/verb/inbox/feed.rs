//! The inbox as a feed for another system: lines to a file or a named pipe, and a file that remembers where it is.
//!
//! The order is: the line is written, then the cursor file is replaced as a whole; also when all that was logged is told, with
//! where the librarians are that had nothing. So a run that is killed
//! loses no line; the last one may come twice where the kill fell between the two. The file also has the addresses
//! told last, since several librarians tell the same and one of them may be behind when the run ends.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crypto::{ReaderKey, RecordId};
use env::calls::Cursor;
use serde::{Deserialize, Serialize};

use crate::error::HoldError;
use crate::files::{self, Access};
use crate::platform;

/// The version of the cursor file this program writes, and the only one it reads.
const VERSION: u32 = 1;
/// Addresses that are remembered as told.
const TOLD_MAX: usize = 1_024;
/// Cursors that a file may have; an inbox follows fewer librarians.
const CURSORS_MAX: usize = 16;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    cursors: Vec<StoredCursor>,
    told: VecDeque<String>,
    /// Whose inbox it is: the first of the keyring's reader keys. Files of releases before do not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reader: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredCursor {
    peer: Option<String>,
    offset: u64,
    unix_ms: u64,
}

/// Where a feed is.
pub(super) struct Position {
    path: PathBuf,
    told: VecDeque<RecordId>,
    reader: Option<String>,
    /// Where to go on, as the file said when it was read.
    pub(super) cursors: Vec<Cursor>,
}

impl Position {
    /// Reads the file; the start of everything where there is none yet.
    ///
    /// # Errors
    /// Where it is no cursor file: it is not overwritten; where there can be none.
    pub(super) fn open(path: &Path) -> Result<Self, HoldError> {
        let mut position = Self {
            path: path.to_owned(),
            told: VecDeque::new(),
            reader: None,
            cursors: Vec::new(),
        };
        // A line is told before the file is written: that it cannot be is told before the first.
        let at = files::behind_links(path);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let probed = files::make_beside(&at, |draft| options.open(draft));
        let (probe, _) = probed.map_err(HoldError::io("write", path))?;
        let _ = std::fs::remove_file(probe);
        if !path.exists() {
            return Ok(position);
        }
        let bytes = files::read_small(path)?;
        let not_a =
            || HoldError::NotA { what: "a cursor file of hold inbox", path: path.to_owned() };
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|_| not_a())?;
        let bounded = stored.told.len() <= TOLD_MAX && stored.cursors.len() <= CURSORS_MAX;
        if stored.version != VERSION || !bounded {
            return Err(not_a());
        }
        position.reader = stored.reader;
        for address in stored.told {
            position.told.push_back(address.parse().map_err(|_| not_a())?);
        }
        for StoredCursor { peer, offset, unix_ms } in stored.cursors {
            let peer = peer.map(|peer| peer.parse()).transpose().map_err(|_| not_a())?;
            position.cursors.push(Cursor { peer, offset, unix_ms });
        }
        Ok(position)
    }

    /// Takes it for the inbox of this reader from now on.
    ///
    /// # Errors
    /// Where it is another's: what came to this one before that is would never be told.
    pub(super) fn is_of(&mut self, reader: &ReaderKey) -> Result<(), HoldError> {
        let reader = reader.to_string();
        if self.reader.as_ref().is_some_and(|other| *other != reader) {
            let (what, path) = ("a cursor file of this keyring's inbox", self.path.clone());
            return Err(HoldError::NotA { what, path });
        }
        self.reader = Some(reader);
        Ok(())
    }

    /// Whether an earlier run told this address.
    pub(super) fn knows(&self, address: &RecordId) -> bool {
        self.told.contains(address)
    }

    /// Remembers that this address was told, where one was, and where every librarian is; durable when it returns.
    pub(super) fn keep(
        &mut self,
        address: Option<RecordId>,
        cursors: &[Cursor],
    ) -> Result<(), HoldError> {
        self.told.extend(address);
        if self.told.len() > TOLD_MAX {
            self.told.pop_front();
        }
        let cursors = cursors.iter().map(|cursor| StoredCursor {
            peer: cursor.peer.map(|peer| peer.to_string()),
            offset: cursor.offset,
            unix_ms: cursor.unix_ms,
        });
        let stored = Stored {
            version: VERSION,
            cursors: cursors.collect(),
            told: self.told.iter().map(ToString::to_string).collect(),
            reader: self.reader.clone(),
        };
        let bytes = serde_json::to_vec(&stored).map_err(HoldError::Json)?;
        files::replace(&self.path, &bytes, Access::Secret)
    }
}

/// Where lines go: a file that grows, or a named pipe.
pub(super) struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    /// Opens it; a new file is its owner's alone. A named pipe waits for its reader here.
    pub(super) fn open(path: &Path) -> Result<Self, HoldError> {
        let failed = || HoldError::io("write", path);
        let mut file =
            OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(failed())?;
        if cut_off(path, &file).map_err(failed())? {
            // The disk was full, say: that line comes again, whole, and is not to begin within the half.
            file.write_all(b"\n").map_err(failed())?;
        }
        Ok(Self { path: path.to_owned(), file })
    }

    /// Standard output, for a run that remembers: there a reader that goes away must be an error.
    pub(super) fn stdout() -> Result<Self, HoldError> {
        let path = PathBuf::from("standard output");
        platform::stdout_is_open().map_err(HoldError::io("write", &path))?;
        let file = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
        Ok(Self { file: file.map_err(HoldError::io("write", &path))?, path })
    }

    /// Whether this path is of the same file.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let (ours, theirs) = (self.file.metadata(), std::fs::metadata(path));
        matches!((ours, theirs), (Ok(ours), Ok(theirs))
            if (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()))
    }

    /// Writes one line; in a file it is durable when this returns.
    ///
    /// # Errors
    /// Also where the pipe's reader went away: what it did not get is not taken as told.
    pub(super) fn write(&mut self, line: &str) -> Result<(), HoldError> {
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        let synced = written.and_then(|()| match self.file.metadata()?.is_file() {
            true => self.file.sync_data(),
            false => Ok(()),
        });
        synced.map_err(HoldError::io("write", &self.path))
    }
}

/// Whether a file's last line has no end.
fn cut_off(path: &Path, file: &File) -> std::io::Result<bool> {
    let about = file.metadata()?;
    if !about.is_file() || about.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    File::open(path)?.read_exact_at(&mut last, about.len() - 1)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_position_comes_back_and_forgets_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cursor");
        let mut position = Position::open(&path).unwrap();
        assert!(position.cursors.is_empty());
        let id = |n: usize| {
            let mut id = [7; 32];
            id[..8].copy_from_slice(&n.to_be_bytes());
            RecordId::new(id)
        };
        let cursor = Cursor { peer: None, offset: 9, unix_ms: 10 };
        position.told = (0..TOLD_MAX).map(id).collect();
        position.keep(Some(id(TOLD_MAX)), &[cursor]).unwrap();
        let mut position = Position::open(&path).unwrap();
        assert_eq!(position.cursors, [cursor]);
        assert!(!position.knows(&id(0)) && position.knows(&id(1)) && position.knows(&id(TOLD_MAX)));
        // Further in the logs, with nothing new.
        let further = Cursor { offset: 10, ..cursor };
        position.keep(None, &[further, cursor]).unwrap();
        let mut position = Position::open(&path).unwrap();
        assert_eq!(position.cursors, [further, cursor]);
        assert!(position.knows(&id(1)) && position.knows(&id(TOLD_MAX)));
        // It is the first one's who uses it.
        let reader = |byte| {
            let secret = crypto::SecretKey::from_slice(&[byte; 32]).unwrap();
            ReaderKey::new(secret.public())
        };
        position.is_of(&reader(1)).unwrap();
        position.keep(None, &[cursor]).unwrap();
        let mut position = Position::open(&path).unwrap();
        position.is_of(&reader(1)).unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(matches!(position.is_of(&reader(2)), Err(HoldError::NotA { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_half_line_is_ended_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        Lines::open(&path).unwrap().write("one").unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"tw").unwrap();
        for line in ["two", "three"] {
            Lines::open(&path).unwrap().write(line).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntw\ntwo\nthree\n");
    }

    #[test]
    fn another_file_is_refused_and_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cursor");
        let other = r#"{"version":2,"cursors":[],"told":[]}"#;
        for text in ["", "{}", "a letter", other] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(Position::open(&path), Err(HoldError::NotA { .. })), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_file_that_cannot_be_is_refused_at_once_and_no_other_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Position::open(&folder.path().join("none/cursor"));
        assert!(matches!(refused, Err(HoldError::Io { .. })));
        Position::open(&folder.path().join("cursor")).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
