//! Copies the numbered files of a record log or a journal while they are written to, compacted and
//! dropped.
//!
//! ```text
//! list -> forget copies of what is gone -> copy or link all but the last -> the last's intact part
//!      -> list again: something of the first list is gone? from the beginning
//! ```
//!
//! **Why the second list.** Say a segment is copied, then dropped, and with it, a moment later, the
//! last removal of a record of its. A copy of all that was ever seen has the record again. Where
//! every file of a list still exists after the last one's length was read, they are what a power cut
//! at that moment would have left: a prefix of the log.
//!
//! Limits: memory is one buffer; files that vanish are looked for again [`ROUNDS_MAX`] times at most.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::Arc;

use crypto::Suite;
use env::disk::{Disk, File};

use super::manifest::{Checksum, FileLine, Manifest};
use super::{Moment, Progress};
use crate::header::{FILE_HEADER_BYTES, Family, FileHeader, Head};
use crate::journal::{self, EntryHeader};
use crate::log::frame::Header;
use crate::log::{log_number, marker_of, read_head};
use crate::scan::scan;
use crate::window::{SECTOR_BYTES, is_bad_place};
use crate::{StoreError, io_error};

/// Bytes read at once.
pub(super) const BUFFER_BYTES: usize = 1 << 20;
/// Lists of the files that are tried. Each needs compaction to have dropped a segment since the one
/// before, and copies only what is new, so some are enough.
const ROUNDS_MAX: u32 = 100;
/// A last file that is cut while it is read is read again so often.
const CUTS_MAX: u32 = 100;

/// Which files are copied.
#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    /// Segments of a record log.
    Log(Suite),
    /// Files of a journal with this prefix.
    Journal(&'a str),
}

impl Kind<'_> {
    fn number(&self, name: &str) -> Option<u64> {
        match self {
            Self::Log(_) => log_number(name).map(u64::from),
            Self::Journal(prefix) => journal::first_of(prefix, name),
        }
    }

    fn family(&self) -> Family {
        match self {
            Self::Log(suite) => Family::Log(*suite),
            Self::Journal(_) => Family::Journal,
        }
    }
}

/// Two folders, and an earlier snapshot's.
pub(super) struct Chain<'a> {
    pub kind: Kind<'a>,
    /// The folder's name in a manifest.
    pub folder: &'a str,
    pub source: &'a dyn Disk,
    pub target: &'a dyn Disk,
    pub base: Option<(&'a dyn Disk, &'a Manifest)>,
}

/// What became of one file.
#[derive(Clone, Copy)]
pub(super) struct Copied {
    pub line: FileLine,
    /// Whether it is a link.
    pub linked: bool,
}

impl Chain<'_> {
    /// Copies until the target holds what was there at one moment.
    ///
    /// # Errors
    /// [`StoreError::Format`], [`StoreError::Unsettled`], [`StoreError::Full`], or the system's.
    pub(super) fn copy(
        &self,
        progress: &mut Progress<'_>,
    ) -> Result<BTreeMap<String, Copied>, StoreError> {
        let mut done: BTreeMap<String, Copied> = BTreeMap::new();
        for _ in 0..ROUNDS_MAX {
            let names = self.list()?;
            let gone: Vec<String> =
                done.keys().filter(|name| !names.contains(name)).cloned().collect();
            for name in gone {
                self.target.remove(&name).map_err(io_error("remove", &name))?;
                done.remove(&name);
            }
            let Some((last, sealed)) = names.split_last() else { return Ok(done) };
            if !self.copy_sealed(sealed, last, &mut done, progress)? {
                continue;
            }
            let Some(tail) = self.copy_last(last, progress)? else { continue };
            progress.moment(Moment::Copied);
            let now = self.list()?;
            if names.iter().all(|name| now.contains(name)) {
                done.extend(tail.map(|tail| (last.clone(), tail)));
                self.target.sync_names().map_err(io_error("sync", self.folder))?;
                return Ok(done);
            }
            // It may be gone by the next list, and nobody would know of its copy.
            self.target.remove(last).map_err(io_error("remove", last))?;
        }
        Err(StoreError::Unsettled)
    }

    /// The names of the files in their order.
    fn list(&self) -> Result<Vec<String>, StoreError> {
        let listed = self.source.list().map_err(io_error("list", self.folder))?;
        let number = |name: String| Some((self.kind.number(&name)?, name));
        let numbered: BTreeMap<u64, String> = listed.into_iter().filter_map(number).collect();
        Ok(numbered.into_values().collect())
    }

    /// Takes in those that are not there yet; `false` where one is gone.
    fn copy_sealed(
        &self,
        names: &[String],
        last: &str,
        done: &mut BTreeMap<String, Copied>,
        progress: &mut Progress<'_>,
    ) -> Result<bool, StoreError> {
        let last_of_base = self.last_of_base();
        for (at, name) in names.iter().enumerate() {
            if done.contains_key(name) {
                continue;
            }
            progress.moment(Moment::File);
            // A successor without a frame may vanish in a power cut, and this one be written to
            // again.
            let next = names.get(at + 1).map_or(last, String::as_str);
            let linkable = self.open(next)?.is_some_and(|file| file.len().is_ok_and(has_frames));
            let copied = match self.reuse(name, last_of_base)? {
                Reuse::Gone => return Ok(false),
                Reuse::Linked(copied) => copied,
                Reuse::Not(file) => self.copy_whole(name, &*file, linkable, progress)?,
            };
            progress.add(copied.line.bytes, copied.linked);
            done.insert(name.clone(), copied);
        }
        Ok(true)
    }

    /// A file of the source; `None` where it is gone.
    fn open(&self, name: &str) -> Result<Option<Arc<dyn File>>, StoreError> {
        match self.source.open(name, false) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("open", name)(error)),
        }
    }

    /// The number of the last file in the earlier snapshot. It was written to then: a peer that lost its end with the power,
    /// and wrote others instead, may have as many bytes behind the same head.
    fn last_of_base(&self) -> Option<u64> {
        let (_, manifest) = self.base?;
        let number = |path: &String| {
            let name = path.strip_prefix(self.folder)?.strip_prefix('/')?;
            self.kind.number(name)
        };
        manifest.files.keys().filter_map(number).max()
    }

    /// Links the earlier snapshot's file where it is the same one, and not the last of that.
    fn reuse(&self, name: &str, last_of_base: Option<u64>) -> Result<Reuse, StoreError> {
        let Some(file) = self.open(name)? else { return Ok(Reuse::Gone) };
        let Some((base, manifest)) = self.base else { return Ok(Reuse::Not(file)) };
        if self.kind.number(name) == last_of_base {
            return Ok(Reuse::Not(file));
        }
        let path = format!("{}/{name}", self.folder);
        let Some(line) = manifest.files.get(&path).copied() else { return Ok(Reuse::Not(file)) };
        let head = |file: &dyn File| {
            let mut head = [0; FILE_HEADER_BYTES as usize];
            let whole = file.len()? == line.bytes;
            file.read_at(0, &mut head)?;
            io::Result::Ok(whole.then_some(head))
        };
        // What cannot be read of the earlier one is no reason not to copy, nor is what nobody can read without its index file.
        let family = self.kind.family();
        let same = match (base.open(name, false).and_then(|old| head(&*old)), head(&*file)) {
            (Ok(Some(old)), Ok(Some(new))) => {
                old == new && matches!(FileHeader::decode(&new, family), Head::Valid { .. })
            }
            _ => false,
        };
        if same && link(base, self.target, name) {
            return Ok(Reuse::Linked(Copied { line, linked: true }));
        }
        Ok(Reuse::Not(file))
    }

    fn copy_whole(
        &self,
        name: &str,
        file: &dyn File,
        linkable: bool,
        progress: &mut Progress<'_>,
    ) -> Result<Copied, StoreError> {
        let len = file.len().map_err(io_error("measure", name))?;
        let head = self.head_by_index(name, file, len)?;
        self.target.remove(name).map_err(io_error("remove", name))?;
        if linkable && head.is_none() && link(self.source, self.target, name) {
            let (checksum, unread) = hash(name, file, len, progress)?;
            if unread > 0 {
                // Of a link, too, the disk could not read it.
                self.target.remove(name).map_err(io_error("remove", name))?;
                return self.copy_whole(name, file, false, progress);
            }
            // What a peer seals beside its writes may not be on the disk yet.
            let synced = self.target.open(name, false).and_then(|linked| linked.sync());
            synced.map_err(io_error("sync", name))?;
            return Ok(Copied { line: FileLine { checksum, bytes: len }, linked: true });
        }
        let mut sink = Sink::create(self.target, name)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut unread = 0;
        while sink.at < len {
            let part = part_of(&mut buffer, len - sink.at);
            unread += read(file, len, sink.at, part).map_err(io_error("read", name))?;
            put_head(head, sink.at, part);
            sink.push(name, part)?;
            progress.wait_for(part.len() as u64)?;
        }
        progress.unread += unread;
        let whole = sink.finish(name)?;
        let line = if unread > 0 { self.tell_apart(name, whole)? } else { whole };
        Ok(Copied { line, linked: false })
    }

    /// Inverts the second copy in the head of a file with zeros for what the disk could not read: a later snapshot, of a disk that may
    /// read it again, takes it for another one than the peer's ([`Self::reuse`]) and copies that. Readers take the first copy.
    fn tell_apart(&self, name: &str, line: FileLine) -> Result<FileLine, StoreError> {
        let failed = io_error("write", name);
        let len = line.bytes;
        if len < FILE_HEADER_BYTES {
            return Ok(line);
        }
        let file = self.target.open(name, false).map_err(&failed)?;
        let mut head: FileHead = [0; FILE_HEADER_BYTES as usize];
        file.read_at(0, &mut head).map_err(&failed)?;
        let family = self.kind.family();
        let good = FileHeader::decode(&head, family);
        let (first, second) = head.split_at_mut(FILE_HEADER_BYTES as usize / 2);
        second.iter_mut().for_each(|byte| *byte = !*byte);
        // The only good copy may have been the second one.
        if let Head::Valid { header, .. } = good {
            first.copy_from_slice(&header.encode(family)[..first.len()]);
        }
        let written = file.write_at(0, &[IoSlice::new(&head)]).and_then(|()| file.sync());
        written.map_err(&failed)?;
        let (checksum, _) = hash(name, &*file, len, &mut Progress::none())?;
        Ok(FileLine { checksum, bytes: len })
    }

    /// The head of a segment of which neither copy is good, as its index file tells it: index files are not in a snapshot, and
    /// without it nobody could read the copy.
    fn head_by_index(
        &self,
        name: &str,
        file: &dyn File,
        len: u64,
    ) -> Result<Option<FileHead>, StoreError> {
        let family = self.kind.family();
        let (Kind::Log(_), Some(number), true) = (self.kind, log_number(name), has_frames(len))
        else {
            return Ok(None);
        };
        let head = read_head(file, len, family).map_err(io_error("read", name))?;
        if !matches!(head, Head::Damaged | Head::Unread) {
            return Ok(None);
        }
        let marker = marker_of(self.source, number, family.suite_number());
        Ok(marker.map(|marker| FileHeader { number: number.into(), marker }.encode(family)))
    }

    /// Copies the intact part of the last file. The outer `None`: it is gone; the inner one: a crash
    /// left it without a head, so nothing is in it.
    fn copy_last(
        &self,
        name: &str,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Option<Copied>>, StoreError> {
        for _ in 0..CUTS_MAX {
            progress.moment(Moment::File);
            let Some(source) = self.open(name)? else { return Ok(None) };
            let len = source.len().map_err(io_error("measure", name))?;
            let head = self.head_by_index(name, &*source, len)?;
            let mut sink = Sink::create(self.target, name)?;
            let mut buffer = vec![0; BUFFER_BYTES];
            let (mut cut, mut unread) = (false, 0);
            while sink.at < len && !cut {
                let part = part_of(&mut buffer, len - sink.at);
                match read(&*source, len, sink.at, part) {
                    Ok(zeros) => {
                        unread += zeros;
                        put_head(head, sink.at, part);
                        sink.push(name, part)?;
                    }
                    // A write failed and was cut back meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => cut = true,
                    Err(error) => return Err(io_error("read", name)(error)),
                }
                progress.wait_for(part.len() as u64)?;
            }
            if !cut {
                progress.unread += unread;
                return self.keep_intact(name, &sink, len).map(Some);
            }
        }
        Err(StoreError::Unsettled)
    }

    /// Cuts the copy of a last file behind its last intact frame.
    fn keep_intact(&self, name: &str, sink: &Sink, len: u64) -> Result<Option<Copied>, StoreError> {
        let file = &*sink.file;
        let failed = io_error("read", name);
        let family = self.kind.family();
        let mut end = len;
        match FileHeader::read(file, len, family).map_err(&failed)? {
            Head::Foreign => return Err(StoreError::Format { file: name.to_owned() }),
            Head::Damaged if !has_frames(len) => {
                self.target.remove(name).map_err(io_error("remove", name))?;
                return Ok(None);
            }
            // Kept as it is, like the store does.
            Head::Damaged | Head::Unread => {}
            Head::Valid { header, .. } => {
                let marker = &header.marker;
                end = match self.kind {
                    Kind::Log(_) => scan::<Header>(file, 0, len, marker, true, &mut |_| {}),
                    Kind::Journal(_) => {
                        scan::<EntryHeader>(file, 0, len, marker, true, &mut |_| {})
                    }
                }
                .map_err(&failed)?;
            }
        }
        file.truncate(end).and_then(|()| file.sync()).map_err(io_error("write", name))?;
        let (checksum, _) = hash(name, file, end, &mut Progress::none())?;
        Ok(Some(Copied { line: FileLine { checksum, bytes: end }, linked: false }))
    }
}

enum Reuse {
    /// The source has it no more.
    Gone,
    /// The earlier snapshot's file is the same, and is in the target now.
    Linked(Copied),
    /// The source's file is to be copied.
    Not(Arc<dyn File>),
}

/// The bytes of a file's head.
type FileHead = [u8; FILE_HEADER_BYTES as usize];

/// Puts a head over the beginning of a file, where `part` is that.
fn put_head(head: Option<FileHead>, at: u64, part: &mut [u8]) {
    if let (Some(head), 0) = (head, at)
        && let Some(there) = part.get_mut(..head.len())
    {
        there.copy_from_slice(&head);
    }
}

fn has_frames(len: u64) -> bool {
    len > FILE_HEADER_BYTES
}

/// Makes the file in `to` the same as the one in `from`; `false` where that cannot be: other file
/// systems, too many links.
fn link(from: &dyn Disk, to: &dyn Disk, name: &str) -> bool {
    let (Some(from), Some(to)) = (from.folder(), to.folder()) else { return false };
    std::fs::hard_link(from.join(name), to.join(name)).is_ok()
}

fn part_of(buffer: &mut [u8], left: u64) -> &mut [u8] {
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
    &mut buffer[..len]
}

/// The hash of a file, and how many bytes of it the disk could not read: zeros stand for them.
fn hash(
    name: &str,
    file: &dyn File,
    len: u64,
    progress: &mut Progress<'_>,
) -> Result<(Checksum, u64), StoreError> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut at, mut unread) = (0, 0);
    while at < len {
        let part = part_of(&mut buffer, len - at);
        unread += read(file, len, at, part).map_err(io_error("read", name))?;
        hasher.update(part);
        at += part.len() as u64;
        progress.wait_for(part.len() as u64)?;
    }
    Ok((*hasher.finalize().as_bytes(), unread))
}

/// Reads `part` of a file of `len` bytes. What lies in a bad place of the disk is zeros; how many bytes that are.
fn read(file: &dyn File, len: u64, at: u64, part: &mut [u8]) -> io::Result<u64> {
    let passed = |error: io::Error| match is_bad_place(file, len, &error) {
        true => Ok(()),
        false => Err(error),
    };
    match file.read_once_at(at, part) {
        Ok(()) => return Ok(0),
        Err(error) => passed(error)?,
    }
    let (mut at, mut rest, mut unread) = (at, part, 0);
    while !rest.is_empty() {
        let sector = usize::try_from(SECTOR_BYTES - at % SECTOR_BYTES).unwrap_or(usize::MAX);
        let (here, behind) = rest.split_at_mut(sector.min(rest.len()));
        if let Err(error) = file.read_once_at(at, here) {
            passed(error)?;
            here.fill(0);
            unread += here.len() as u64;
        }
        at += here.len() as u64;
        rest = behind;
    }
    Ok(unread)
}

/// A new file, hashed while it is written.
pub(super) struct Sink {
    file: Arc<dyn File>,
    at: u64,
    hasher: blake3::Hasher,
}

impl Sink {
    pub(super) fn create(disk: &dyn Disk, name: &str) -> Result<Self, StoreError> {
        // Never into a file that is there: it may be a link.
        disk.remove(name).map_err(io_error("remove", name))?;
        let file = disk.open(name, true).map_err(io_error("create", name))?;
        Ok(Self { file, at: 0, hasher: blake3::Hasher::new() })
    }

    pub(super) fn push(&mut self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_at(self.at, &[IoSlice::new(bytes)]).map_err(io_error("write", name))?;
        self.hasher.update(bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn finish(self, name: &str) -> Result<FileLine, StoreError> {
        self.file.sync().map_err(io_error("sync", name))?;
        Ok(FileLine { checksum: *self.hasher.finalize().as_bytes(), bytes: self.at })
    }
}
