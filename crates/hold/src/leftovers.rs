//! Temporary files and folders that are in the making.
//!
//! Who makes one removes it when it is not to be. After an interrupt that is not enough: a thread that waits for the disk, or
//! unpacks, may hold it beyond the end of the process. So their names are kept here, and the end of an interrupted run
//! removes what is left of them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static MAKING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
static STOPPING: AtomicBool = AtomicBool::new(false);
/// How long the end waits for who still writes into a folder.
const WAIT: Duration = Duration::from_secs(2);

fn making() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This name is in the making. Where it may be another's until it is made, it is told behind that.
pub(crate) fn begun(path: &Path) {
    making().insert(path.to_owned());
}

/// It is what it was made for, or has another name.
pub(crate) fn kept(path: &Path) {
    making().remove(path);
}

/// Makes it what it was made for, by `done`, unless the run ends and removes it: not while it is being removed.
///
/// # Errors
/// `done`'s, and [`io::ErrorKind::Interrupted`] where the run ends.
pub(crate) fn keep(path: &Path, done: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let mut making = making();
    if !making.contains(path) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    done()?;
    making.remove(path);
    Ok(())
}

/// Whether the run ends, so that whoever makes something should stop.
pub(crate) fn is_stopping() -> bool {
    STOPPING.load(Ordering::Relaxed)
}

/// Removes all that is still in the making. After this nobody begins anything: the process ends.
pub(crate) fn remove_all() {
    STOPPING.store(true, Ordering::Relaxed);
    let until = Instant::now() + WAIT;
    let left = std::mem::take(&mut *making());
    for path in left {
        // A thread may put one more file into a folder that is being removed, or make it again.
        while path.symlink_metadata().is_ok() && !removed(&path) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn removed(path: &Path) -> bool {
    fs::remove_file(path).is_ok() || remove(path)
}

/// Removes a folder, also where folders in it may not be written by their own modes; whether it is gone.
pub(crate) fn remove(folder: &Path) -> bool {
    if fs::remove_dir_all(folder).is_ok() {
        return true;
    }
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        let below = fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
        let is_folder = |item: &fs::DirEntry| item.file_type().is_ok_and(|about| about.is_dir());
        folders.extend(below.filter(is_folder).map(|item| item.path()));
    }
    fs::remove_dir_all(folder).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_left_in_the_making_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, whole) = (folder.path().join("file"), folder.path().join("whole"));
        let below = folder.path().join("folder/below");
        fs::create_dir_all(&below).unwrap();
        for path in [&file, &whole, &below.join("file")] {
            fs::write(path, b"half").unwrap();
        }
        for path in [&file, &whole, &folder.path().join("folder"), &folder.path().join("gone")] {
            begun(path);
        }
        kept(&whole);
        // Other tests of this process make things as well: only these are looked at.
        let ours: Vec<PathBuf> =
            making().iter().filter(|path| path.starts_with(folder.path())).cloned().collect();
        assert_eq!(ours.len(), 3);
        for path in &ours {
            kept(path);
            assert_eq!(removed(path), !path.ends_with("gone"));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "what is whole stays");
        // What is being removed gets no name any more, and a name that cannot be given leaves it in the making.
        let late = keep(&file, || panic!("it is removed"));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::Interrupted);
        begun(&file);
        assert!(keep(&file, || fs::rename(&file, &whole)).is_err());
        fs::write(&file, b"all").unwrap();
        keep(&file, || fs::rename(&file, &whole)).unwrap();
        assert!(!making().contains(&file) && fs::read(&whole).unwrap() == b"all");
    }
}
