//! `hold get ADDRESS --unpack -o DIR`: a content that is a tar, as the folder it was made of.
//!
//! The content comes from whoever shared it, so a tar is not believed: files and folders alone, at names below the
//! folder, each name once, no links, no owners, none of the bits that make a program run as somebody else. It is unpacked
//! beside the folder that it shall be, and gets that name when all of it was proven and written, and synced where that is
//! asked for.

use std::cell::Cell;
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use author::{Author, AuthorError, GetReport};
use crypto::RecordId;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio_util::io::SyncIoBridge;

use crate::client::blocking;
use crate::error::HoldError;
use crate::progress::Bar;
use crate::{files, leftovers};

/// Bytes between the get and the thread that writes files.
const PIPE_BYTES: usize = 4 << 20;
/// Bytes of a file that are written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Files and folders of one tar at most.
const ITEMS_MAX: usize = 1_000_000;
/// The bits of a mode that count.
const MODE: u32 = 0o777;
/// Bytes before a file or folder, long names and what else is said of it among them, and what is passed over.
const ABOUT_MAX: u64 = 1 << 20;
const FLAG: &str = "--unpack";

/// A reader that gives so many bytes until it is given more: a tar may say that a name is as long as the disk, and names are
/// read whole.
struct Bounded<R> {
    from: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left.get()).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            return Err(io::Error::other("over 1 MiB lies before a file"));
        }
        let read = self.from.read(&mut buffer[..most])?;
        self.left.set(self.left.get() - read as u64);
        Ok(read)
    }
}

/// A folder in the making; what is left of it is removed when dropped.
pub(super) struct Folder {
    draft: PathBuf,
    path: PathBuf,
    kept: bool,
}

impl Folder {
    /// Makes it beside its final name, which must be free, or an empty folder's.
    ///
    /// # Errors
    /// [`HoldError::Exists`]; [`HoldError::Io`] where the folder above cannot be written.
    pub(super) fn new(path: &Path) -> Result<Self, HoldError> {
        let is_empty = |mut items: std::fs::ReadDir| items.next().is_none();
        if path.is_symlink() || path.exists() && !std::fs::read_dir(path).is_ok_and(is_empty) {
            return Err(HoldError::Exists(path.to_owned()));
        }
        let made = files::make_beside(path, |draft| std::fs::create_dir(draft));
        let (draft, ()) = made.map_err(HoldError::io("make", path))?;
        leftovers::begun(&draft);
        Ok(Self { draft, path: path.to_owned(), kept: false })
    }

    /// Gives it its name; with `sync` all in it is durable before, and the name behind.
    fn keep(mut self, sync: bool) -> Result<(), HoldError> {
        let failed = || HoldError::io("write", &self.path);
        if sync {
            // One sync of the file system instead of one a file.
            let folder = File::open(&self.draft).map_err(failed())?;
            rustix::fs::syncfs(&folder).map_err(io::Error::from).map_err(failed())?;
        }
        // Over an empty folder as well.
        leftovers::keep(&self.draft, || std::fs::rename(&self.draft, &self.path))
            .map_err(failed())?;
        // The temporary name is free: what is under it from now on is somebody else's.
        self.kept = true;
        if sync { files::sync_folder(&self.path) } else { Ok(()) }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_dir_all(&self.draft);
        }
    }
}

/// Gets a content and unpacks it.
///
/// # Errors
/// The get's; where the content is no tar of files and folders; where the folder cannot be written. Nothing is left then.
pub(super) async fn get(
    author: &Author,
    address: RecordId,
    folder: Folder,
    sync: bool,
    bar: Arc<Bar>,
) -> Result<GetReport, HoldError> {
    let (mut ours, pipe) = tokio::io::duplex(PIPE_BYTES);
    let draft = folder.draft.clone();
    // It needs the runtime's handle, so it is made here.
    let pipe = SyncIoBridge::new(pipe);
    let unpacked = tokio::spawn(blocking(move || unpack(pipe, &draft)));
    let report = author.get(address, &mut ours, None, bar).await;
    // The thread is told the end, or, where the get failed, that there is no more.
    let _ = ours.shutdown().await;
    drop::<DuplexStream>(ours);
    let unpacked = unpacked.await.map_err(|_| HoldError::Interrupted)?;
    // What cannot be unpacked ends the pipe, and with it the get: the first cause is told.
    let report = match (report, unpacked) {
        (Ok(report), unpacked) => unpacked.map(|()| report)?,
        (Err(AuthorError::Write(_)), Err(error)) => return Err(error),
        (Err(error), _) => return Err(error.into()),
    };
    blocking(move || folder.keep(sync)).await?;
    Ok(report)
}

/// Writes what a tar holds into an empty folder.
fn unpack(from: impl Read, folder: &Path) -> Result<(), HoldError> {
    let begun = Cell::new(false);
    let wrong = |error: io::Error| {
        // What is said of the content quotes it.
        let said = error.to_string();
        let reason = match begun.get() {
            false => "the content is not a tar archive: get it without --unpack".to_owned(),
            true => format!("the content is not a whole tar archive: {}", said.escape_debug()),
        };
        HoldError::argument(FLAG, reason)
    };
    let left = Rc::new(Cell::new(ABOUT_MAX));
    let mut archive = tar::Archive::new(Bounded { from, left: Rc::clone(&left) });
    let mut folders: Vec<(PathBuf, u32, u64)> = Vec::new();
    let mut buffer = vec![0; WRITE_BYTES];
    // The folder of the file before, which is mostly that of the next.
    let mut made = PathBuf::new();
    let mut entries = archive.entries().map_err(wrong)?.enumerate();
    while let Some((count, entry)) = {
        left.set(ABOUT_MAX);
        entries.next()
    } {
        let mut entry = entry.map_err(wrong)?;
        begun.set(true);
        if leftovers::is_stopping() {
            return Err(HoldError::Interrupted);
        }
        if count == ITEMS_MAX {
            return Err(HoldError::argument(FLAG, format!("over {ITEMS_MAX} files")));
        }
        let name = entry.path().map_err(wrong)?.into_owned();
        let path = folder.join(inside(&name)?);
        let failed = || HoldError::io("write", &path);
        let mode = entry.header().mode().map_err(wrong)? & MODE;
        let mtime = entry.header().mtime().map_err(wrong)?;
        match entry.header().entry_type() {
            tar::EntryType::Directory => {
                std::fs::create_dir_all(&path).map_err(failed())?;
                folders.push((path, mode, mtime));
            }
            tar::EntryType::Regular => {
                if let Some(above) = path.parent()
                    && above != made
                {
                    std::fs::create_dir_all(above).map_err(failed())?;
                    above.clone_into(&mut made);
                }
                let mut file = File::options().write(true).create_new(true).open(&path);
                let file = file.as_mut().map_err(|error| {
                    let again = error.kind() == io::ErrorKind::AlreadyExists;
                    let text = format!("{name:?} is in the tar twice");
                    if again {
                        HoldError::argument(FLAG, text)
                    } else {
                        failed()(error.kind().into())
                    }
                })?;
                left.set(u64::MAX);
                copy(&mut entry, file, &mut buffer, wrong, |error| failed()(error))?;
                set(file, mode, mtime).map_err(failed())?;
            }
            // What holds for all that follows, in tars of `git archive`: a comment.
            tar::EntryType::XGlobalHeader => {}
            other => {
                let text = format!("{name:?} is neither file nor folder ({other:?})");
                return Err(HoldError::argument(FLAG, text));
            }
        }
    }
    // What pads the end is of no use, but whoever writes it waits until it is read.
    left.set(u64::MAX);
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(wrong)?;
    // Deepest first: a folder that is not writable would keep out what is in it, and its time would change.
    folders.sort_by(|a, b| b.0.cmp(&a.0));
    for (path, mode, mtime) in folders {
        let failed = || HoldError::io("write", &path);
        let open = File::open(&path).map_err(failed())?;
        set(&open, mode, mtime).map_err(failed())?;
    }
    Ok(())
}

/// A name that stays below the folder.
fn inside(name: &Path) -> Result<&Path, HoldError> {
    let parts = |part: Component| matches!(part, Component::Normal(_) | Component::CurDir);
    if name.components().all(parts) {
        return Ok(name);
    }
    let text = format!("{name:?} does not stay below the folder");
    Err(HoldError::argument(FLAG, text))
}

/// Copies a file; what is wrong with the tar and what is wrong with the disk are told apart.
fn copy(
    from: &mut impl Read,
    to: &mut File,
    buffer: &mut [u8],
    wrong: impl Fn(io::Error) -> HoldError,
    failed: impl Fn(io::Error) -> HoldError,
) -> Result<(), HoldError> {
    loop {
        match from.read(buffer).map_err(&wrong)? {
            0 => return Ok(()),
            read => to.write_all(&buffer[..read]).map_err(&failed)?,
        }
    }
}

fn set(file: &File, mode: u32, mtime: u64) -> io::Result<()> {
    if let Some(time) = UNIX_EPOCH.checked_add(Duration::from_secs(mtime)) {
        file.set_modified(time)?;
    }
    file.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn tar_of(items: &[(&[u8], tar::EntryType, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, kind, bytes) in items {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name);
            header.set_entry_type(*kind);
            header.set_mode(0o4755);
            header.set_mtime(1_000_000);
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            tar.append(&header, *bytes).unwrap();
        }
        tar.into_inner().unwrap()
    }

    #[test]
    fn files_and_folders_come_out_with_mode_and_time() {
        use tar::EntryType::{Directory, Regular};
        let folder = tempfile::tempdir().unwrap();
        let tar =
            tar_of(&[(b"a/", Directory, b""), (b"a/b", Regular, b"bytes"), (b"c/d", Regular, b"")]);
        unpack(&tar[..], folder.path()).unwrap();
        assert_eq!(std::fs::read(folder.path().join("a/b")).unwrap(), b"bytes");
        assert_eq!(std::fs::read(folder.path().join("c/d")).unwrap(), b"");
        for name in ["a", "a/b"] {
            let about = std::fs::metadata(folder.path().join(name)).unwrap();
            assert_eq!(about.permissions().mode() & 0o7777, 0o755, "no bit beyond");
            assert_eq!(about.modified().unwrap(), UNIX_EPOCH + Duration::from_secs(1_000_000));
        }
    }

    #[test]
    fn what_git_says_of_a_whole_tar_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let comment = &b"52 comment=0123456789012345678901234567890123456789\n"[..];
        let tar = tar_of(&[
            (b"pax_global_header", tar::EntryType::XGlobalHeader, comment),
            (b"a", tar::EntryType::Regular, b"bytes"),
        ]);
        unpack(&tar[..], folder.path()).unwrap();
        assert_eq!(std::fs::read(folder.path().join("a")).unwrap(), b"bytes");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_hostile_tar_is_refused_and_writes_nothing_outside() {
        use tar::EntryType::{Char, Link, Regular, Symlink};
        let above = tempfile::tempdir().unwrap();
        let bad: [Vec<u8>; 8] = [
            tar_of(&[(b"../out", Regular, b"x")]),
            tar_of(&[(b"a/../../out", Regular, b"x")]),
            tar_of(&[(b"/tmp/holdfast-out", Regular, b"x")]),
            tar_of(&[(b"link", Symlink, b"")]),
            tar_of(&[(b"link", Link, b"")]),
            tar_of(&[(b"device", Char, b"")]),
            tar_of(&[(b"a", Regular, b"1"), (b"a", Regular, b"2")]),
            b"not a tar at all, and long enough to be read as one".repeat(20),
        ];
        for (number, tar) in bad.iter().enumerate() {
            let folder = above.path().join("in");
            std::fs::create_dir_all(&folder).unwrap();
            let refused = unpack(&tar[..], &folder);
            assert!(matches!(refused, Err(HoldError::Argument { .. })), "{number}: {refused:?}");
            std::fs::remove_dir_all(&folder).unwrap();
            assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 0, "{number}");
        }
        // Names as long as it likes: read as far as a name may be, and no further.
        for kind in
            [tar::EntryType::GNULongName, tar::EntryType::GNULongLink, tar::EntryType::XHeader]
        {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(1 << 40);
            header.set_cksum();
            let read = Rc::new(Cell::new(u64::MAX));
            let endless = header.as_bytes().chain(io::repeat(b'a'));
            let endless = Bounded { from: endless, left: Rc::clone(&read) };
            let refused = unpack(endless, above.path());
            assert!(matches!(refused, Err(HoldError::Argument { .. })), "{refused:?}");
            assert!(u64::MAX - read.get() <= ABOUT_MAX, "{kind:?}");
        }
        let whole = tar_of(&[(b"a", Regular, &[7; 3000])]);
        let folder = above.path().join("cut");
        std::fs::create_dir_all(&folder).unwrap();
        assert!(unpack(&whole[..1500], &folder).is_err(), "cut short");
    }

    #[test]
    fn what_is_no_tar_is_not_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let hostile = b"\x1b]0;title\x07\xff\x80 not a tar ".repeat(60);
        let mut cut = tar_of(&[(b"a", tar::EntryType::Regular, b"bytes")]);
        // A second header that is none.
        cut.truncate(1024);
        cut.extend_from_slice(&hostile[..1024]);
        for (number, (content, says)) in
            [(&hostile, "not a tar archive: get it"), (&cut, "not a whole tar")].iter().enumerate()
        {
            let folder = folder.path().join(number.to_string());
            std::fs::create_dir(&folder).unwrap();
            let refused = unpack(&content[..], &folder).unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
            assert!(!refused.chars().any(char::is_control), "{refused:?}");
        }
        // An empty tar is one.
        unpack(&tar_of(&[])[..], folder.path()).unwrap();
    }

    #[test]
    fn a_folder_is_there_whole_or_not_at_all() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("out");
        let dropped = Folder::new(&path).unwrap();
        std::fs::write(dropped.draft.join("half"), b"x").unwrap();
        drop(dropped);
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 0);
        std::fs::create_dir(&path).unwrap();
        let kept = Folder::new(&path).unwrap();
        std::fs::write(kept.draft.join("whole"), b"x").unwrap();
        kept.keep(true).unwrap();
        assert_eq!(std::fs::read(path.join("whole")).unwrap(), b"x");
        assert!(matches!(Folder::new(&path), Err(HoldError::Exists(_))), "not empty");
    }
}
