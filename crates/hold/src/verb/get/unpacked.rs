//! `hold get ADDRESS --unpack -o DIR`: a content that is a tar, as the folder it was made of.
//!
//! The content comes from whoever shared it, so a tar is not believed: files and folders alone, at names below the
//! folder, each name once, no links, no owners, none of the bits that make a program run as somebody else, and no right that
//! this user's mask takes from new files. It is unpacked beside the folder that it shall be, where nobody else sees it, and gets
//! that name when all of it was proven and written, and synced where that is asked for.

use std::cell::Cell;
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use author::{Author, AuthorError, GetReport};
use crypto::RecordId;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio_util::io::SyncIoBridge;

use crate::client::blocking;
use crate::draft::tells_errors_at_once;
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
    /// What new folders of this user may be at most.
    most: u32,
}

/// Folders of a tar, with their modes and times.
type Folders = Vec<(PathBuf, u32, Option<SystemTime>)>;

impl Folder {
    /// Makes it beside its final name, which must be free, or an empty folder's.
    ///
    /// # Errors
    /// [`HoldError::Exists`]; [`HoldError::Argument`] for a folder that cannot be replaced: `.`, or where a file system is mounted;
    /// [`HoldError::Io`] where the folder above cannot be written.
    pub(super) fn new(path: &Path) -> Result<Self, HoldError> {
        let named = path.components().next_back();
        if !matches!(named, Some(Component::Normal(_))) || is_mounted(path) {
            let text =
                format!("{path:?} cannot be replaced by what is unpacked: name another folder");
            return Err(HoldError::argument(FLAG, text));
        }
        // Without what may stand behind the name: nothing is given the name `new/.`, and `link/` is what the link leads to.
        let path: &Path = &path.components().collect::<PathBuf>();
        // A temporary folder would get its name all the same, and lose it at the end.
        files::is_there(path).map_err(HoldError::io("make", path))?;
        let is_empty = |mut items: std::fs::ReadDir| items.next().is_none();
        if path.is_symlink() || path.exists() && !std::fs::read_dir(path).is_ok_and(is_empty) {
            return Err(HoldError::Exists(path.to_owned()));
        }
        let made = files::make_beside(path, |draft| std::fs::create_dir(draft));
        let (draft, ()) = made.map_err(HoldError::io("make", path))?;
        leftovers::begun(&draft);
        let mut folder = Self { draft, path: path.to_owned(), kept: false, most: 0 };
        folder.most = folder.close().map_err(HoldError::io("make", path))?;
        Ok(folder)
    }

    /// Nobody else sees what is in it until it is whole; the mode that it had.
    fn close(&self) -> io::Result<u32> {
        let mode = std::fs::metadata(&self.draft)?.mode() & MODE;
        std::fs::set_permissions(&self.draft, Permissions::from_mode(0o700))?;
        Ok(mode)
    }

    /// Gives the folders their modes and times, deepest first: one that is not writable would keep out what is in it, and its time
    /// would change. The folder itself has the mode of one that it replaces.
    fn open(&self, mut folders: Folders) -> Result<(), HoldError> {
        let own = folders.iter().rposition(|(path, ..)| *path == self.draft);
        let own = own.map(|at| folders.remove(at));
        // Of one that comes twice the last word counts.
        folders.sort_by(|a, b| b.0.cmp(&a.0));
        for (path, mode, mtime) in folders {
            let set = File::open(&path).and_then(|open| set(&open, mode & self.most, mtime));
            set.map_err(HoldError::io("write", &path))?;
        }
        let replaced = std::fs::metadata(&self.path).map(|old| old.mode() & MODE);
        let mode = match (replaced, &own) {
            (Ok(mode), _) => mode,
            (Err(_), Some((_, mode, _))) => mode & self.most,
            (Err(_), None) => self.most,
        };
        let set = File::open(&self.draft).and_then(|open| match own {
            Some((_, _, mtime)) => set(&open, mode, mtime),
            None => open.set_permissions(Permissions::from_mode(mode)),
        });
        set.map_err(HoldError::io("write", &self.path))
    }

    /// Gives it its name; with `sync` all in it is durable before, and the name behind.
    fn keep(mut self, folders: Folders, sync: bool) -> Result<(), HoldError> {
        let failed = || HoldError::io("write", &self.path);
        self.open(folders)?;
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
            leftovers::remove(&self.draft);
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
    let (draft, most) = (folder.draft.clone(), folder.most);
    // It needs the runtime's handle, so it is made here.
    let pipe = SyncIoBridge::new(pipe);
    let unpacked = tokio::spawn(blocking(move || unpack(pipe, &draft, most)));
    let report = author.get(address, &mut ours, None, bar).await;
    // The thread is told the end, or, where the get failed, that there is no more.
    let _ = ours.shutdown().await;
    drop::<DuplexStream>(ours);
    let unpacked = unpacked.await.map_err(|_| HoldError::Interrupted)?;
    // What cannot be unpacked ends the pipe, and with it the get: the first cause is told.
    let (report, folders) = match (report, unpacked) {
        (Ok(report), unpacked) => (report, unpacked?),
        (Err(AuthorError::Write(_)), Err(error)) => return Err(error),
        (Err(error), _) => return Err(error.into()),
    };
    blocking(move || folder.keep(folders, sync)).await?;
    Ok(report)
}

/// Whether another file system is mounted there.
fn is_mounted(path: &Path) -> bool {
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let device = |path: &Path| std::fs::metadata(path).map(|about| about.dev());
    matches!((device(path), device(above)), (Ok(here), Ok(above)) if here != above)
}

/// Writes what a tar holds into an empty folder. Files have the rights that the tar says, of those in `most`; folders get theirs
/// when all is there: until then nobody else enters the one that they are in.
fn unpack(from: impl Read, folder: &Path, most: u32) -> Result<Folders, HoldError> {
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
    let mut folders = Folders::new();
    let mut buffer = vec![0; WRITE_BYTES];
    // A network's file system may tell of a full disk at a sync alone.
    let synced = !File::open(folder).is_ok_and(tells_errors_at_once);
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
        let extensions = Extensions::of(&mut entry).map_err(wrong)?;
        if extensions.is_sparse {
            let text = format!("{name:?} is a file with holes: make the tar without them");
            return Err(HoldError::argument(FLAG, text));
        }
        // `./` is the folder itself.
        let path: PathBuf = folder.join(inside(&name)?).components().collect();
        let failed = || HoldError::io("write", &path);
        let mode = entry.header().mode().map_err(wrong)? & MODE;
        let mtime = match extensions.mtime {
            Some(mtime) => Some(mtime),
            // The bits of a signed number, where it is before 1970.
            None => time(entry.header().mtime().map_err(wrong)?.cast_signed(), 0),
        };
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
                let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path);
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
                set(file, mode & most, mtime).map_err(failed())?;
                if synced {
                    file.sync_all().map_err(failed())?;
                }
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
    Ok(folders)
}

/// What pax says of an entry that its header does not.
#[derive(Default)]
struct Extensions {
    /// A file with holes: its bytes are a map and what lies between the holes.
    is_sparse: bool,
    /// More precise, and of times for which the header has no room.
    mtime: Option<SystemTime>,
}

impl Extensions {
    fn of(entry: &mut tar::Entry<'_, impl Read>) -> io::Result<Self> {
        let mut this = Self::default();
        for extension in entry.pax_extensions()?.into_iter().flatten() {
            let extension = extension?;
            this.is_sparse |= extension.key_bytes().starts_with(b"GNU.sparse.");
            if extension.key_bytes() == b"mtime" {
                this.mtime = extension.value().ok().and_then(pax_time);
            }
        }
        Ok(this)
    }
}

/// A time as pax writes it: seconds since 1970, with a sign and a fraction where there are any.
fn pax_time(text: &str) -> Option<SystemTime> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let seconds: i64 = whole.parse().ok()?;
    match whole.starts_with('-') && nanos > 0 {
        // -1.5 is half a second behind -2.
        true => time(seconds.checked_sub(1)?, 1_000_000_000 - nanos),
        false => time(seconds, nanos),
    }
}

/// So many seconds and nanoseconds since 1970, where the system knows such a time.
fn time(seconds: i64, nanos: u32) -> Option<SystemTime> {
    let apart = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds < 0 {
        true => UNIX_EPOCH.checked_sub(apart)?,
        false => UNIX_EPOCH.checked_add(apart)?,
    };
    whole.checked_add(Duration::from_nanos(nanos.into()))
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

fn set(file: &File, mode: u32, mtime: Option<SystemTime>) -> io::Result<()> {
    if let Some(time) = mtime {
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

    /// Unpacks as a get does.
    fn unpacked(tar: &[u8], path: &Path) -> Result<(), HoldError> {
        let folder = Folder::new(path)?;
        let folders = unpack(tar, &folder.draft, folder.most)?;
        folder.keep(folders, false)
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn files_and_folders_come_out_with_mode_and_time() {
        use tar::EntryType::{Directory, Regular};
        let above = tempfile::tempdir().unwrap();
        let out = above.path().join("out");
        let tar =
            tar_of(&[(b"a/", Directory, b""), (b"a/b", Regular, b"bytes"), (b"c/d", Regular, b"")]);
        unpacked(&tar, &out).unwrap();
        assert_eq!(std::fs::read(out.join("a/b")).unwrap(), b"bytes");
        assert_eq!(std::fs::read(out.join("c/d")).unwrap(), b"");
        // As much as new ones of this user have.
        std::fs::create_dir(above.path().join("new")).unwrap();
        let most = mode(&above.path().join("new"));
        for name in ["a", "a/b"] {
            let about = std::fs::metadata(out.join(name)).unwrap();
            assert_eq!(mode(&out.join(name)), 0o755 & most, "no bit beyond");
            assert_eq!(about.modified().unwrap(), UNIX_EPOCH + Duration::from_secs(1_000_000));
        }
        assert_eq!((mode(&out), mode(&out.join("c"))), (most, most));
    }

    #[test]
    fn what_is_private_stays_so_and_is_so_on_the_way() {
        use tar::EntryType::{Directory, Regular};
        let above = tempfile::tempdir().unwrap();
        let tar = {
            let mut tar = tar::Builder::new(Vec::new());
            let items: [(&str, tar::EntryType, u32); 4] = [
                ("./", Directory, 0o750),
                ("in/", Directory, 0o500),
                ("in/all", Regular, 0o666),
                ("own", Regular, 0o600),
            ];
            for (name, kind, mode) in items {
                let mut header = tar::Header::new_gnu();
                header.set_entry_type(kind);
                header.set_mode(mode);
                header.set_size(0);
                tar.append_data(&mut header, name, io::empty()).unwrap();
            }
            tar.into_inner().unwrap()
        };
        let folder = Folder::new(&above.path().join("new")).unwrap();
        assert_eq!(mode(&folder.draft), 0o700);
        let folders = unpack(&tar[..], &folder.draft, 0o755).unwrap();
        assert_eq!(mode(&folder.draft.join("in/all")), 0o644, "not for all to write");
        folder.keep(folders, false).unwrap();
        let new = above.path().join("new");
        assert_eq!((mode(&new), mode(&new.join("in"))), (0o750, 0o500));
        assert_eq!(mode(&new.join("own")), 0o600);
        // One that was there keeps its mode.
        let private = above.path().join("private");
        std::fs::create_dir(&private).unwrap();
        std::fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
        unpacked(&tar, &private).unwrap();
        assert_eq!(mode(&private), 0o700);
        // What is not kept goes whatever its folders' modes are.
        let dropped = Folder::new(&above.path().join("dropped")).unwrap();
        let draft = dropped.draft.clone();
        let folders = unpack(&tar[..], &draft, 0o755).unwrap();
        dropped.open(folders).unwrap();
        drop(dropped);
        assert!(!draft.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_replaced_is_refused_at_once() {
        for name in [".", "..", "/", "/proc", "a/.."] {
            let refused = Folder::new(Path::new(name));
            assert!(matches!(refused, Err(HoldError::Argument { .. })), "{name}");
        }
        let above = tempfile::tempdir().unwrap();
        let refused = Folder::new(&above.path().join("n".repeat(256)));
        assert!(matches!(refused, Err(HoldError::Io { .. })));
        // A folder's name may end so.
        for name in ["new/", "new/.", "new/./"] {
            let folder = Folder::new(&above.path().join(name)).unwrap();
            folder.keep(Folders::new(), false).unwrap();
            assert!(above.path().join("new").is_dir());
            assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 1, "no draft is left");
            std::fs::remove_dir(above.path().join("new")).unwrap();
        }
        std::fs::create_dir(above.path().join("empty")).unwrap();
        std::os::unix::fs::symlink("empty", above.path().join("link")).unwrap();
        for name in ["link", "link/", "link/."] {
            let refused = Folder::new(&above.path().join(name)).map(drop);
            assert!(matches!(refused, Err(HoldError::Exists(_))), "{name}: {refused:?}");
        }
    }

    #[test]
    fn times_before_1970_and_fractions_of_a_second_come_out_as_they_were() {
        let before = |ms: u64| UNIX_EPOCH - Duration::from_millis(ms);
        let nanos = |nanos: u64| UNIX_EPOCH + Duration::from_nanos(nanos);
        for (text, time) in [
            ("0", Some(UNIX_EPOCH)),
            ("-1.5", Some(before(1_500))),
            ("-0.25", Some(before(250))),
            ("-86400", Some(before(86_400_000))),
            ("7.0000000019", Some(nanos(7_000_000_001))),
            ("1.", Some(nanos(1_000_000_000))),
            ("", None),
            (".5", None),
            ("1.-5", None),
            ("1.5.5", None),
            ("soon", None),
            ("99999999999999999999", None),
            ("-9223372036854775808.1", None),
        ] {
            assert_eq!(pax_time(text), time, "{text}");
        }
        let above = tempfile::tempdir().unwrap();
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(0);
        header.set_mtime(0);
        tar.append_pax_extensions([("mtime", &b"-1.5"[..])]).unwrap();
        tar.append_data(&mut header, "pax", io::empty()).unwrap();
        // As programs write it that take it for a number without a sign.
        header.set_mtime((-86_400_i64).cast_unsigned());
        tar.append_data(&mut header, "number", io::empty()).unwrap();
        let out = above.path().join("out");
        unpacked(&tar.into_inner().unwrap(), &out).unwrap();
        for (name, time) in [("pax", before(1_500)), ("number", before(86_400_000))] {
            let about = std::fs::metadata(out.join(name)).unwrap();
            assert_eq!(about.modified().unwrap(), time, "{name}");
        }
    }

    #[test]
    fn a_file_with_holes_is_refused() {
        let mut tar = tar::Builder::new(Vec::new());
        tar.append_pax_extensions([("GNU.sparse.major", &b"1"[..])]).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(3);
        tar.append_data(&mut header, "GNUSparseFile.1/image", &b"map"[..]).unwrap();
        let above = tempfile::tempdir().unwrap();
        let refused = unpacked(&tar.into_inner().unwrap(), &above.path().join("out"));
        assert!(matches!(refused, Err(HoldError::Argument { .. })), "{refused:?}");
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_git_says_of_a_whole_tar_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let comment = &b"52 comment=0123456789012345678901234567890123456789\n"[..];
        let tar = tar_of(&[
            (b"pax_global_header", tar::EntryType::XGlobalHeader, comment),
            (b"a", tar::EntryType::Regular, b"bytes"),
        ]);
        unpack(&tar[..], folder.path(), 0o755).unwrap();
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
            let refused = unpack(&tar[..], &folder, MODE);
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
            let refused = unpack(endless, above.path(), MODE);
            assert!(matches!(refused, Err(HoldError::Argument { .. })), "{refused:?}");
            assert!(u64::MAX - read.get() <= ABOUT_MAX, "{kind:?}");
        }
        let whole = tar_of(&[(b"a", Regular, &[7; 3000])]);
        let folder = above.path().join("cut");
        std::fs::create_dir_all(&folder).unwrap();
        assert!(unpack(&whole[..1500], &folder, MODE).is_err(), "cut short");
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
            let refused = unpack(&content[..], &folder, MODE).unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
            assert!(!refused.chars().any(char::is_control), "{refused:?}");
        }
        // An empty tar is one.
        unpack(&tar_of(&[])[..], folder.path(), MODE).unwrap();
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
        kept.keep(Folders::new(), true).unwrap();
        assert_eq!(std::fs::read(path.join("whole")).unwrap(), b"x");
        assert!(matches!(Folder::new(&path), Err(HoldError::Exists(_))), "not empty");
    }
}
