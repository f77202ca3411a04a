//! A file in the making: under a temporary name until it is whole.
//!
//! What a get writes has its final name only after every check passed. Whatever ends it before, an
//! error, Ctrl-C, a dropped future, removes the temporary file.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use author::FileSink;
use env::Env;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::HoldError;
use crate::{files, leftovers};

/// The mode of a new file, less what the process's mask takes.
const NEW_MODE: u32 = 0o666;
/// How a folder is opened in which names are looked up.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A temporary file beside its final name; removed when dropped.
pub(crate) struct Draft {
    file: File,
    /// Its temporary name; none where the path is that of a device or a pipe, which is written to as it is.
    draft: Option<PathBuf>,
    path: PathBuf,
    /// The folder that both names are looked up in, where it was opened; else the whole paths are.
    folder: Option<OwnedFd>,
    replace: bool,
    /// A new file is the system's to write.
    unsynced: bool,
}

/// A folder that files are written below, at names that somebody else may have chosen. What is in it may be somebody else's too: no
/// link below it is followed; it may be one itself.
pub(crate) struct Top {
    folder: OwnedFd,
    path: PathBuf,
}

impl Top {
    /// Opens it; it is made where it is not there.
    ///
    /// # Errors
    /// [`HoldError::Io`].
    pub(crate) fn open(path: &Path) -> Result<Self, HoldError> {
        fs::create_dir_all(path).map_err(HoldError::io("make", path))?;
        let folder = rustix::fs::open(path, FOLDER, Mode::empty()).map_err(io::Error::from);
        Ok(Self { folder: folder.map_err(HoldError::io("open", path))?, path: path.to_owned() })
    }

    /// The folder that a file of this name is in: opened folder by folder, each made where it is not there.
    fn folder_of(&self, name: &Path) -> Result<OwnedFd, HoldError> {
        let failed = |path: &Path, error: Errno| match error {
            Errno::NOTDIR | Errno::LOOP => {
                let what = "a folder, and no link is followed there";
                HoldError::NotA { what, path: path.to_owned() }
            }
            error => HoldError::io("make", path)(error.into()),
        };
        let mut path = self.path.clone();
        let mut folder = self.folder.try_clone().map_err(HoldError::io("open", &path))?;
        for part in name.parent().into_iter().flat_map(Path::components) {
            path.push(part);
            let Component::Normal(part) = part else { return Err(failed(&path, Errno::INVAL)) };
            let flags = FOLDER | OFlags::NOFOLLOW;
            let open = || rustix::fs::openat(&folder, part, flags, Mode::empty());
            let opened = match open() {
                Err(Errno::NOENT) => {
                    let made = rustix::fs::mkdirat(&folder, part, Mode::from_raw_mode(0o777));
                    match made {
                        // Another file's folder as well, and made meanwhile.
                        Ok(()) | Err(Errno::EXIST) => open(),
                        Err(error) => Err(error),
                    }
                }
                opened => opened,
            };
            folder = opened.map_err(|error| failed(&path, error))?;
        }
        Ok(folder)
    }
}

impl Draft {
    /// Makes the temporary file. `replace` says whether a file of the final name may be replaced: where that is a link, the
    /// file it leads to is.
    ///
    /// # Errors
    /// [`HoldError::Exists`] where one is there and may not be; [`HoldError::Io`] where the folder
    /// cannot be written, or nothing can have that name.
    pub(crate) fn new(path: &Path, replace: bool) -> Result<Self, HoldError> {
        let failed = || HoldError::io("write", path);
        // A temporary file would get its name all the same, and lose it at the end.
        let named = path.as_os_str().as_bytes();
        if path.is_dir() || named.ends_with(b"/") || named.ends_with(b"/.") {
            return Err(failed()(io::ErrorKind::IsADirectory.into()));
        }
        if files::is_there(path).map_err(failed())? && !replace {
            return Err(HoldError::Exists(path.to_owned()));
        }
        if is_special(path) {
            let file = OpenOptions::new().write(true).open(path).map_err(failed())?;
            let (draft, folder, path) = (None, None, path.to_owned());
            return Ok(Self { file, draft, path, folder, replace, unsynced: false });
        }
        let to = files::behind_links(path);
        // Nobody reads of it on the way who may not read the file that is there.
        let mode = if to.exists() { 0o600 } else { NEW_MODE };
        Self::beside(None, to, mode, replace).map_err(failed())
    }

    /// Makes the temporary file for a name below a folder; folders on the way are made. A regular file that is there may be replaced.
    ///
    /// # Errors
    /// [`HoldError::NotA`] where a link or anything else has the name, or a link is on the way; [`HoldError::Io`].
    pub(crate) fn below(top: &Top, name: &Path) -> Result<Self, HoldError> {
        let path = top.path.join(name);
        let folder = top.folder_of(name)?;
        let (at, last) = located(Some(&folder), &path);
        let there = rustix::fs::statat(at, last, AtFlags::SYMLINK_NOFOLLOW);
        let mode = match there.map(|there| FileType::from_raw_mode(there.st_mode)) {
            Ok(FileType::RegularFile) => 0o600,
            Ok(_) => return Err(HoldError::NotA { what: "a regular file: it is left", path }),
            Err(Errno::NOENT) => NEW_MODE,
            Err(error) => return Err(HoldError::io("write", path)(error.into())),
        };
        let made = Self::beside(Some(folder), path.clone(), mode, true);
        made.map_err(HoldError::io("write", path))
    }

    fn beside(
        folder: Option<OwnedFd>,
        path: PathBuf,
        mode: u32,
        replace: bool,
    ) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let (draft, file) = files::make_beside(&path, |draft| {
            let (at, name) = located(folder.as_ref(), draft);
            Ok(File::from(rustix::fs::openat(at, name, flags, Mode::from_raw_mode(mode))?))
        })?;
        leftovers::begun(&draft);
        Ok(Self { file, draft: Some(draft), path, folder, replace, unsynced: false })
    }

    fn located<'a>(&'a self, path: &'a Path) -> (BorrowedFd<'a>, &'a Path) {
        located(self.folder.as_ref(), path)
    }

    /// Without `sync` leaves it to the system when it is written to the disk, as `cp` does: after a power cut within a minute
    /// or so it may be short. One that goes over a file is durable first all the same: the old one is lost for the new one
    /// alone. So is one on a file system that may tell a write's error behind it (over a network: at the next sync or close).
    pub(crate) fn synced(mut self, sync: bool) -> Self {
        self.unsynced = !sync && !self.is_over_a_file() && tells_errors_at_once(&self.file);
        self
    }

    fn is_over_a_file(&self) -> bool {
        self.replace && self.there().is_ok()
    }

    /// What has its final name now, itself where it is a link.
    fn there(&self) -> rustix::io::Result<rustix::fs::Stat> {
        let (at, name) = self.located(&self.path);
        rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Those who may read and write the file that it goes over may do so with it, and no others.
    fn as_the_old_one(&self) -> io::Result<()> {
        let Ok(old) = self.there() else { return Ok(()) };
        if FileType::from_raw_mode(old.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let (new, uid, gid) = (rustix::fs::fstat(&self.file)?, old.st_uid, old.st_gid);
        if (new.st_uid, new.st_gid) != (uid, gid) {
            // Root alone may give a file away; another's is this user's then.
            let _ = std::os::unix::fs::fchown(&self.file, Some(uid), Some(gid));
        }
        self.file.set_permissions(Permissions::from_mode(old.st_mode & 0o777))
    }

    /// A draft in `folder` whose name is not known yet: see [`Draft::keep_as`].
    ///
    /// # Errors
    /// [`HoldError::Io`] where the folder cannot be written.
    pub(crate) fn unnamed(folder: &Path) -> Result<Self, HoldError> {
        // Nothing gets this name, so it does not matter what is under it.
        let draft = Self::beside(None, folder.join("unnamed"), NEW_MODE, false);
        draft.map_err(HoldError::io("write", folder))
    }

    /// Whether [`Draft::keep_as`] would find this name free now.
    ///
    /// # Errors
    /// [`HoldError::Exists`]; [`HoldError::Io`] where nothing can have that name.
    pub(crate) fn would_keep_as(&self, name: &str) -> Result<(), HoldError> {
        let path = self.path.with_file_name(name);
        match files::is_there(&path) {
            Ok(true) => Err(HoldError::Exists(path)),
            Ok(false) => Ok(()),
            Err(source) => Err(HoldError::io("write", path)(source)),
        }
    }

    /// Keeps it under this name in its folder, never over a file that is there.
    ///
    /// # Errors
    /// As [`Draft::keep`].
    pub(crate) fn keep_as(mut self, name: &str) -> Result<PathBuf, HoldError> {
        self.path.set_file_name(name);
        let path = self.path.clone();
        self.keep().map(|()| path)
    }

    /// To write to.
    ///
    /// # Errors
    /// Where the system has no more handles.
    pub(crate) fn file(&self) -> Result<File, HoldError> {
        self.file.try_clone().map_err(HoldError::io("write", &self.path))
    }

    /// For a content to be written to.
    ///
    /// # Errors
    /// As [`Draft::file`].
    pub(crate) fn sink(&self, env: &Env) -> Result<FileSink, HoldError> {
        let file = self.file()?;
        Ok(match self.unsynced {
            true => FileSink::left_to_the_system(env, file),
            false => FileSink::new(env, file),
        })
    }

    /// Makes it durable, unless it is left to the system, and gives it its final name.
    ///
    /// # Errors
    /// [`HoldError::Exists`] where a file came between; [`HoldError::Io`].
    pub(crate) fn keep(mut self) -> Result<(), HoldError> {
        let path = self.path.clone();
        let failed = || HoldError::io("write", &path);
        let Some(draft) = &self.draft else { return Ok(()) };
        if self.is_over_a_file() {
            self.as_the_old_one().map_err(failed())?;
        }
        if !self.unsynced || self.is_over_a_file() {
            self.file.sync_all().map_err(failed())?;
        }
        if self.replace {
            let ((at, from), (_, to)) = (self.located(draft), self.located(&path));
            let renamed = rustix::fs::renameat(at, from, at, to);
            renamed.map_err(io::Error::from).map_err(failed())?;
        } else {
            files::name_new(draft, &path)?;
        }
        leftovers::kept(draft);
        // The temporary name is free: what is under it from now on is somebody else's.
        self.draft = None;
        if self.unsynced {
            return Ok(());
        }
        // The name as well.
        let Some(folder) = &self.folder else { return files::sync_folder(&path) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(folder, ".", flags, Mode::empty());
        let synced = opened.and_then(rustix::fs::fsync).map_err(io::Error::from);
        synced.map_err(HoldError::io("sync", &path))
    }

    /// Writes these bytes, which are all of it, and keeps it.
    ///
    /// # Errors
    /// As [`Draft::keep`].
    pub(crate) fn keep_with(self, bytes: &[u8]) -> Result<(), HoldError> {
        self.file()?.write_all(bytes).map_err(HoldError::io("write", &self.path))?;
        self.keep()
    }
}

/// Where a name is looked up: in the folder that was opened, else as the path says.
fn located<'a>(folder: Option<&'a OwnedFd>, path: &'a Path) -> (BorrowedFd<'a>, &'a Path) {
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => (folder.as_fd(), Path::new(name)),
        _ => (CWD, path),
    }
}

/// Writes these bytes to a path that a user named: over a file that is there, all or nothing, or into the device or the pipe that
/// is there, which waits for its reader here.
///
/// # Errors
/// [`HoldError::Io`].
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), HoldError> {
    Draft::new(path, true)?.keep_with(bytes)
}

/// Whether the path is that of something that bytes go through: a device, a pipe, a socket.
pub(crate) fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir())
}

/// Whether a write into the cache of the file's system has its room, so that it is refused at once where there is none:
/// local ones that are known to (`statfs`'s types of `linux/magic.h`), and what containers lay over one of them.
pub(crate) fn tells_errors_at_once(file: impl AsFd) -> bool {
    const EXT: u64 = 0xEF53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683E;
    const TMPFS: u64 = 0x0102_1994;
    const OVERLAY: u64 = 0x794C_7630;
    let known = [EXT, XFS, BTRFS, TMPFS, OVERLAY];
    rustix::fs::fstatfs(file).is_ok_and(|of| known.contains(&(of.f_type as u64)))
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(draft) = &self.draft {
            let (at, name) = self.located(draft);
            let _ = rustix::fs::unlinkat(at, name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_draft_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let dropped = Draft::new(&path, false).unwrap();
        dropped.file().unwrap().write_all(b"half").unwrap();
        drop(dropped);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

        let kept = Draft::new(&path, false).unwrap();
        kept.file().unwrap().write_all(b"whole").unwrap();
        kept.keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert!(matches!(Draft::new(&path, false), Err(HoldError::Exists(_))));
        Draft::new(&path, true).unwrap().keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_goes_over_a_file_is_for_the_same_readers_and_a_link_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, b"old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let draft = Draft::new(&link, true).unwrap();
        let mode = |file: &File| file.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode(&draft.file), 0o600, "nobody else's on the way");
        draft.file().unwrap().write_all(b"new").unwrap();
        draft.keep().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(mode(&File::open(&path).unwrap()), 0o640);
        // The longest name there is.
        let long = folder.path().join("n".repeat(255));
        Draft::new(&long, true).unwrap().keep().unwrap();
        Draft::new(&long, true).unwrap().keep().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "no draft is left");
    }

    #[test]
    fn a_name_that_no_file_can_have_is_told_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let wrong =
            ["new/".to_owned(), "new/.".to_owned(), "n".repeat(256), "file/below".to_owned()];
        fs::write(folder.path().join("file"), b"").unwrap();
        for name in wrong {
            for replace in [false, true] {
                let refused = Draft::new(&folder.path().join(&name), replace);
                assert!(matches!(refused, Err(HoldError::Io { .. })), "{name}");
            }
        }
        let draft = Draft::unnamed(folder.path()).unwrap();
        assert!(matches!(draft.would_keep_as(&"n".repeat(256)), Err(HoldError::Io { .. })));
        drop(draft);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn below_a_folder_no_link_is_followed_and_the_folder_itself_may_be_one() {
        use std::os::unix::fs::symlink;
        let above = tempfile::tempdir().unwrap();
        let at = |path: &str| above.path().join(path);
        for path in ["elsewhere", "out/a"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        fs::write(at("elsewhere/file"), b"not ours").unwrap();
        symlink("out", at("link")).unwrap();
        symlink("../elsewhere", at("out/folder")).unwrap();
        symlink("../elsewhere/file", at("out/file")).unwrap();
        symlink("../elsewhere/new", at("out/new")).unwrap();
        symlink("../../elsewhere", at("out/a/folder")).unwrap();
        let top = Top::open(&at("link")).unwrap();
        for name in ["folder/file", "folder/b/c", "file", "new", "a/folder/file", "a", "file/x"] {
            let refused = Draft::below(&top, Path::new(name)).map(drop);
            assert!(matches!(refused, Err(HoldError::NotA { .. })), "{name}: {refused:?}");
        }
        assert!(Draft::below(&top, Path::new("../elsewhere/file")).is_err());
        // What is no link is written, and over a file of its own.
        for bytes in [b"one", b"two"] {
            for name in ["a/file", "b/c/file", "own"] {
                Draft::below(&top, Path::new(name)).unwrap().keep_with(bytes).unwrap();
                assert_eq!(fs::read(at("out").join(name)).unwrap(), bytes);
            }
        }
        // One that comes when the draft is made leads nowhere: it is replaced.
        let draft = Draft::below(&top, Path::new("b/late")).unwrap();
        fs::rename(at("out/b"), at("out/moved")).unwrap();
        symlink("../elsewhere", at("out/b")).unwrap();
        symlink("../../elsewhere/file", at("out/moved/late")).unwrap();
        draft.keep_with(b"three").unwrap();
        assert_eq!(fs::read(at("out/moved/late")).unwrap(), b"three");
        drop(Draft::below(&top, Path::new("dropped")).unwrap());
        assert_eq!(fs::read(at("elsewhere/file")).unwrap(), b"not ours");
        assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 1);
        assert_eq!(fs::read_dir(at("out")).unwrap().count(), 7, "no draft is left");
    }

    #[test]
    fn a_device_or_a_pipe_is_written_to_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(is_special(&pipe) && is_special("/dev/null".as_ref()));
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        let draft = Draft::new(&pipe, true).unwrap();
        draft.file().unwrap().write_all(b"through").unwrap();
        draft.keep().unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(is_special(&pipe));
        write("/dev/null".as_ref(), b"nowhere").unwrap();
        assert!(is_special("/dev/null".as_ref()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_has_no_name_yet_depends_on_nothing_in_its_folder() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        for name in ["hold-get", "unnamed"] {
            symlink(elsewhere.path().join("file"), folder.path().join(name)).unwrap();
            let draft = Draft::unnamed(folder.path()).unwrap();
            draft.file().unwrap().write_all(b"bytes").unwrap();
            let kept = draft.keep_as(&format!("as {name}")).unwrap();
            assert_eq!(fs::read(kept).unwrap(), b"bytes");
            fs::remove_file(folder.path().join(name)).unwrap();
            fs::create_dir(folder.path().join(name)).unwrap();
            Draft::unnamed(folder.path()).unwrap().keep_as(&format!("beside {name}")).unwrap();
            let taken = Draft::unnamed(folder.path()).unwrap().keep_as(name);
            assert!(matches!(taken, Err(HoldError::Exists(_))));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6, "no draft is left");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_new_file_may_be_left_to_the_system_and_one_over_another_may_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let draft = || Draft::new(&path, true).unwrap();
        assert!(!draft().unsynced, "unless it is asked for");
        let elsewhere = File::open("/proc/self/status").unwrap();
        assert!(!tells_errors_at_once(&elsewhere), "of that nothing is known");
        if !tells_errors_at_once(&draft().file) {
            assert!(!draft().synced(false).unsynced);
            return;
        }
        let new = draft().synced(false);
        assert!(new.unsynced);
        fs::write(&path, b"came between").unwrap();
        assert!(new.is_over_a_file(), "so it is synced");
        new.file().unwrap().write_all(b"new").unwrap();
        new.keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(!draft().synced(false).unsynced);
        let named = Draft::unnamed(folder.path()).unwrap().synced(false);
        assert!(named.unsynced, "it goes over nothing");
        assert!(matches!(named.keep_as("file"), Err(HoldError::Exists(_))));
    }
}
