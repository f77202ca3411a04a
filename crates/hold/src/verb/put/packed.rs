//! `hold put DIR --pack`: a folder as one content, a tar of its files.
//!
//! A file alone costs its entry, its envelope and a stripe, each synced at several peers; ten thousand small ones are
//! limited by that and not by their bytes. Packed they are one stream, one address to share, and, being a tar, of use to
//! whoever has it. What it costs: a single file is not to be had without the tar before it.
//!
//! A thread reads the folder and writes the tar into a pipe of [`PIPE_BYTES`]; the put reads from it. The pipe ends well
//! only where the thread did: a file that cannot be read fails the put, and never shortens it.

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use author::Below;
use tokio::io::{AsyncRead, DuplexStream, ReadBuf};
use tokio_util::io::SyncIoBridge;

use super::below::Item;
use crate::error::HoldError;

/// The media type of a folder that was packed.
pub(super) const MEDIA_TYPE: &str = "application/x-tar";
/// Bytes between the thread and the put.
const PIPE_BYTES: usize = 4 << 20;
/// What the thread writes at once.
const WRITE_BYTES: usize = 256 << 10;

/// What the thread that reads the folder came to, with the first file that changed while it was read; `None` while it runs.
type Outcome = Arc<Mutex<Option<Result<Option<PathBuf>, HoldError>>>>;

/// The tar of a folder, as it is made.
pub(super) struct Packed {
    pipe: DuplexStream,
    outcome: Outcome,
}

impl Packed {
    /// Begins to pack what was found below a folder; must be called in a runtime.
    pub(super) fn new(folder: &Path, items: Vec<Item>) -> Self {
        let (pipe, ours) = tokio::io::duplex(PIPE_BYTES);
        let outcome = Outcome::default();
        let (told, folder) = (Arc::clone(&outcome), folder.to_owned());
        let mut pipe_in = SyncIoBridge::new(ours);
        tokio::task::spawn_blocking(move || {
            let result = write(&folder, &items, &mut pipe_in);
            // Before the pipe ends: its end is believed only with this.
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
        Self { pipe, outcome }
    }

    /// Why packing failed, where it did.
    pub(super) fn failure(&self) -> Option<HoldError> {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome.take() {
            Some(Err(error)) => Some(error),
            other => {
                *outcome = other;
                None
            }
        }
    }

    /// The first file that changed while it was read, where one did.
    pub(super) fn changed(&self) -> Option<PathBuf> {
        match &*self.outcome.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Ok(changed)) => changed.clone(),
            _ => None,
        }
    }

    fn is_whole(&self) -> bool {
        matches!(*self.outcome.lock().unwrap_or_else(PoisonError::into_inner), Some(Ok(_)))
    }
}

impl AsyncRead for Packed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut self.pipe).poll_read(cx, buf))?;
        let ended = buf.filled().len() == before && buf.remaining() > 0;
        if ended && !self.is_whole() {
            return Poll::Ready(Err(io::Error::other("the folder could not be read whole")));
        }
        Poll::Ready(Ok(()))
    }
}

fn write(
    folder: &Path,
    items: &[Item],
    pipe: &mut impl Write,
) -> Result<Option<PathBuf>, HoldError> {
    let mut changed = None;
    let broken = || HoldError::io("pack", folder);
    let mut tar = tar::Builder::new(BufWriter::with_capacity(WRITE_BYTES, pipe));
    // The folder's own mode and time: who unpacks it gives them to what it becomes.
    let below = Below::open(folder).map_err(HoldError::io("read", folder))?;
    let about = below.about().map_err(HoldError::io("read", folder))?;
    tar.append_data(&mut header(&about, tar::EntryType::Directory, 0), "./", io::empty())
        .map_err(broken())?;
    for item in items {
        let name = item.path.strip_prefix(folder).unwrap_or(&item.path);
        let failed = || HoldError::io("read", &item.path);
        if item.is_folder {
            let about = below.folder(name).and_then(|folder| folder.metadata()).map_err(failed())?;
            let mut header = header(&about, tar::EntryType::Directory, 0);
            tar.append_data(&mut header, name, io::empty()).map_err(broken())?;
            continue;
        }
        // What was a file when the folder was listed may be a link or a pipe by now, of somebody who may write there.
        let mut file = below.file(name).map_err(failed())?;
        let about = file.metadata().map_err(failed())?;
        let mut header = header(&about, tar::EntryType::Regular, about.len());
        let mut exactly = Exactly { file: &mut file, left: about.len() };
        tar.append_data(&mut header, name, &mut exactly).map_err(failed())?;
        let now = file.metadata().map_err(failed())?;
        if (now.len(), now.modified().ok()) != (about.len(), about.modified().ok()) {
            changed.get_or_insert_with(|| item.path.clone());
        }
    }
    let done = tar.into_inner().and_then(|writer| writer.into_inner().map_err(Into::into));
    done.and_then(|pipe| pipe.flush()).map_err(broken())?;
    Ok(changed)
}

fn header(about: &Metadata, kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    // Mode and time; whose it is on this machine is nobody's business elsewhere.
    header.set_metadata_in_mode(about, tar::HeaderMode::Complete);
    header.set_uid(0);
    header.set_gid(0);
    header.set_entry_type(kind);
    header.set_size(size);
    if about.mtime() < 0
        && let Some(gnu) = header.as_gnu_mut()
    {
        // Before 1970: a signed number over the whole field, as GNU tar writes and reads it.
        gnu.mtime = [0xFF; 12];
        gnu.mtime[4..].copy_from_slice(&about.mtime().to_be_bytes());
    }
    header
}

/// A file of a length that was written down before: one that becomes shorter meanwhile is an error, since what follows it in the
/// tar would be taken for its bytes. Of one that becomes longer these are the first.
struct Exactly<'a> {
    file: &'a mut File,
    left: u64,
}

impl Read for Exactly<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.file.read(&mut buf[..most])?;
        if read == 0 {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Writes to a file of the folder when the first bytes of the tar come.
    struct WritesTo<'a> {
        path: &'a Path,
        bytes: &'a [u8],
        tar: Vec<u8>,
    }

    impl Write for WritesTo<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut file = File::options().append(true).open(self.path)?;
            file.write_all(std::mem::take(&mut self.bytes))?;
            self.tar.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_became_a_link_or_a_pipe_since_it_was_listed_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, secret) = (folder.path().join("listed"), folder.path().join("secret"));
        std::fs::write(&secret, "of somebody else").unwrap();
        let items = || [Item { path: path.clone(), is_folder: false }];
        let packed = || write(folder.path(), &items(), &mut Vec::new());
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        assert!(packed().is_err());
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert!(packed().is_err(), "and nobody is waited for");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file").unwrap();
        assert!(packed().is_ok());
        // Nor where a folder above it is a link by now.
        let sub = folder.path().join("sub");
        std::fs::create_dir(&sub).unwrap();
        std::fs::write(sub.join("listed"), "a file").unwrap();
        let items = [Item { path: sub.join("listed"), is_folder: false }];
        assert!(write(folder.path(), &items, &mut Vec::new()).is_ok());
        std::fs::rename(&sub, folder.path().join("away")).unwrap();
        std::os::unix::fs::symlink("away", &sub).unwrap();
        assert!(write(folder.path(), &items, &mut Vec::new()).is_err());
        let items = [Item { path: sub, is_folder: true }];
        assert!(write(folder.path(), &items, &mut Vec::new()).is_err());
    }

    /// A signed number of 12 bytes, which GNU tar, bsdtar and Python read.
    #[test]
    fn a_time_before_1970_is_a_signed_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old");
        let file = File::create(&path).unwrap();
        let before = std::time::Duration::from_millis(86_400_500);
        file.set_modified(std::time::UNIX_EPOCH - before).unwrap();
        let items = [Item { path, is_folder: false }];
        let mut tar = Vec::new();
        write(folder.path(), &items, &mut tar).unwrap();
        // Behind the folder's header; the field has its place in all formats.
        let mut seconds = [0xFF; 12];
        seconds[4..].copy_from_slice(&(-86_401_i64).to_be_bytes());
        assert_eq!(tar[512 + 136..][..12], seconds);
        let mut tar = tar::Archive::new(tar.as_slice());
        let old = tar.entries().unwrap().nth(1).unwrap().unwrap();
        assert_eq!(old.header().mtime().unwrap().cast_signed(), -86_401);
    }

    #[test]
    fn a_file_that_grows_while_it_is_packed_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        // More than is written at once, so that the tar is not whole when its first bytes come.
        let before = vec![7; 3 * WRITE_BYTES];
        for (added, changed) in [(&b""[..], None), (b"more", Some(path.clone()))] {
            std::fs::write(&path, &before).unwrap();
            let items = [Item { path: path.clone(), is_folder: false }];
            let mut pipe = WritesTo { path: &path, bytes: added, tar: Vec::new() };
            assert_eq!(write(folder.path(), &items, &mut pipe).unwrap(), changed);
            let mut tar = tar::Archive::new(pipe.tar.as_slice());
            let mut packed = Vec::new();
            let mut entries = tar.entries().unwrap();
            // Behind the folder itself.
            entries.nth(1).unwrap().unwrap().read_to_end(&mut packed).unwrap();
            assert!(packed == before && entries.next().is_none());
        }
    }
}
