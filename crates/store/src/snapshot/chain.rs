//! Copies the numbered files of a record log or a journal while they are written to, compacted and
//! dropped.
//!
//! ```text
//! settle: list -> let go of what is gone -> hold all: sealed files by a link or open, the last one
//!         with its length -> list again: something of the first list is gone? from the beginning
//! copy:   what is held, however long that takes
//! ```
//!
//! **Why the second list.** Say a segment is held, then dropped, and with it, a moment later, the
//! last removal of a record of its. A copy of all that was ever seen has the record again. Where
//! every file of a list still exists after the last one's length was read, they are what a power cut
//! at that moment would have left: a prefix of the log.
//!
//! **Why held.** A store that ends leases writes nearly all of its segments again each day. Copied
//! by their names, those of a list would be gone before they are reached, again and again, where
//! copying takes longer than that. A file that is removed stays for whoever has a link to it or has it open:
//! holding all of a list takes milliseconds a file, and each is then read once.
//!
//! Limits: memory is one buffer and a row a file. Held files take room on the source's disk as long as
//! they are not copied: where less than [`FREE_BYTES_MIN`] are free there, those that are gone are let go of, and
//! copying begins again with what there is, [`LET_GO_MAX`] times at most without getting on. A process that can have no more files open
//! copies the others at once, and looks again for what vanished meanwhile, [`ROUNDS_MAX`] times at most.

use std::collections::{BTreeMap, BTreeSet};
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
/// before, and holds only what is new, so some are enough.
const ROUNDS_MAX: u32 = 100;
/// Bytes free on the source's disk below which nothing is held that is gone there: a peer refuses writes
/// long after that, and compaction needs the room of a segment.
pub(super) const FREE_BYTES_MIN: u64 = 512 << 20;
/// How often what is gone is let go of, and copying begins again, with no more copied than the time before.
pub(super) const LET_GO_MAX: u32 = 3;
/// Files that can be opened while all are held: for the copying itself.
const SPARE_FILES: usize = 32;
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

/// What is held of a folder as it was at one moment, and what of that is copied.
#[derive(Default)]
struct Held {
    /// Copied, or linked to the earlier snapshot's.
    done: BTreeMap<String, Copied>,
    /// To be copied. None of them is written to any more.
    sealed: BTreeMap<String, Pin>,
    last: Option<Last>,
    /// The process can have no more files open: others are copied at once.
    full: bool,
}

/// A sealed file that is held.
struct Pin {
    /// The file; `None` where the target has a link to it.
    file: Option<Arc<dyn File>>,
    /// Its head, where its index file alone tells that: it goes with the segment.
    head: Option<FileHead>,
}

/// The last file, up to the length that it had at the moment.
struct Last {
    name: String,
    file: Arc<dyn File>,
    len: u64,
    head: Option<FileHead>,
}

/// Copies what was in each of the folders at one moment, which is not before that of the folders before it.
///
/// # Errors
/// [`StoreError::Format`], [`StoreError::Unsettled`], [`StoreError::Full`], or the system's.
pub(super) fn copy(
    chains: &[Chain<'_>],
    progress: &mut Progress<'_>,
) -> Result<Vec<BTreeMap<String, Copied>>, StoreError> {
    let mut all: Vec<Held> = chains.iter().map(|_| Held::default()).collect();
    let (mut in_vain, mut copied) = (0, 0);
    for _ in 0..ROUNDS_MAX {
        for (chain, held) in chains.iter().zip(&mut all) {
            chain.settle(held, progress)?;
        }
        let mut whole = true;
        for (chain, held) in chains.iter().zip(&mut all) {
            whole = whole && chain.copy_held(held, progress)?;
        }
        if whole {
            return Ok(all.into_iter().map(|held| held.done).collect());
        }
        // As long as more of what stays is copied each time it comes to an end.
        let now = all.iter().map(|held| held.done.len()).sum::<usize>();
        in_vain = if now > copied { 1 } else { in_vain + 1 };
        copied = now;
        if in_vain > LET_GO_MAX {
            break;
        }
    }
    Err(StoreError::Unsettled)
}

impl Chain<'_> {
    /// Holds what is there at one moment.
    fn settle(&self, held: &mut Held, progress: &mut Progress<'_>) -> Result<(), StoreError> {
        for _ in 0..ROUNDS_MAX {
            let names = self.list()?;
            self.let_go(held, &names)?;
            let Some((last, sealed)) = names.split_last() else { return Ok(()) };
            if !self.hold_sealed(sealed, last, held, progress)? {
                continue;
            }
            let Some(tail) = self.hold_last(last, progress)? else { continue };
            progress.moment(Moment::Held);
            let now: BTreeSet<String> = self.list()?.into_iter().collect();
            if names.iter().all(|name| now.contains(name)) {
                held.last = Some(tail);
                return Ok(());
            }
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

    /// Lets go of all that is not among `names`, and of the last file, which may have grown since.
    fn let_go(&self, held: &mut Held, names: &[String]) -> Result<(), StoreError> {
        let there: BTreeSet<&String> = names.iter().collect();
        let known = held.done.keys().chain(held.sealed.keys());
        let mut gone: Vec<String> = known.filter(|name| !there.contains(name)).cloned().collect();
        gone.extend(held.last.take().map(|last| last.name));
        for name in gone {
            self.target.remove(&name).map_err(io_error("remove", &name))?;
            held.done.remove(&name);
            held.sealed.remove(&name);
        }
        Ok(())
    }

    /// Holds those that are not held yet; `false` where one is gone.
    fn hold_sealed(
        &self,
        names: &[String],
        last: &str,
        held: &mut Held,
        progress: &mut Progress<'_>,
    ) -> Result<bool, StoreError> {
        let last_of_base = self.last_of_base();
        let mut spare = if held.full { Vec::new() } else { self.spare_files() };
        for (at, name) in names.iter().enumerate() {
            if held.done.contains_key(name) || held.sealed.contains_key(name) {
                continue;
            }
            progress.moment(Moment::File);
            let next = names.get(at + 1).map_or(last, String::as_str);
            let mut there = self.hold(name, next, last_of_base, held, progress);
            if !held.full && there.as_ref().is_err_and(is_out_of_files) {
                spare.clear();
                held.full = true;
                there = self.hold(name, next, last_of_base, held, progress);
            }
            if !there? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Files that are open for nothing, so that others can be in their place.
    fn spare_files(&self) -> Vec<std::fs::File> {
        let Some(folder) = self.source.folder() else { return Vec::new() };
        (0..SPARE_FILES).map_while(|_| std::fs::File::open(folder).ok()).collect()
    }

    /// Holds a sealed file, or links the earlier snapshot's; `false` where it is gone.
    fn hold(
        &self,
        name: &str,
        next: &str,
        last_of_base: Option<u64>,
        held: &mut Held,
        progress: &mut Progress<'_>,
    ) -> Result<bool, StoreError> {
        // A successor without a frame may vanish in a power cut, and this one be written to
        // again.
        let linkable = self.open(next)?.is_some_and(|file| file.len().is_ok_and(has_frames));
        let copied = match self.reuse(name, last_of_base)? {
            Reuse::Gone => return Ok(false),
            Reuse::Linked(copied) => copied,
            Reuse::Not(file) => {
                let pin = self.pin(name, file, linkable)?;
                if !held.full {
                    held.sealed.insert(name.to_owned(), pin);
                    return Ok(true);
                }
                self.copy_whole(name, pin, progress)?
            }
        };
        progress.add(copied.line.bytes, copied.linked);
        held.done.insert(name.to_owned(), copied);
        Ok(true)
    }

    /// Holds a file of the source: by a link in the target where that can be, which needs no file to be open.
    fn pin(&self, name: &str, file: Arc<dyn File>, linkable: bool) -> Result<Pin, StoreError> {
        let len = file.len().map_err(io_error("measure", name))?;
        let head = self.head_by_index(name, &*file, len)?;
        self.target.remove(name).map_err(io_error("remove", name))?;
        let linked = linkable && head.is_none() && link(self.source, self.target, name);
        Ok(Pin { file: (!linked).then_some(file), head })
    }

    /// Holds the last file; `None` where it is gone.
    fn hold_last(
        &self,
        name: &str,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Last>, StoreError> {
        progress.moment(Moment::File);
        let Some(file) = self.open(name)? else { return Ok(None) };
        let len = file.len().map_err(io_error("measure", name))?;
        let head = self.head_by_index(name, &*file, len)?;
        Ok(Some(Last { name: name.to_owned(), file, len, head }))
    }

    /// Copies what is held; `false` where some of it is to be let go of, and the copying to begin again.
    fn copy_held(&self, held: &mut Held, progress: &mut Progress<'_>) -> Result<bool, StoreError> {
        loop {
            if self.fills_the_disk(held)? {
                return Ok(false);
            }
            let Some((name, pin)) = held.sealed.pop_first() else { break };
            progress.moment(Moment::File);
            let copied = self.copy_whole(&name, pin, progress)?;
            progress.add(copied.line.bytes, copied.linked);
            held.done.insert(name, copied);
        }
        if let Some(last) = &held.last {
            progress.moment(Moment::File);
            let copied = self.copy_last(last, progress)?;
            held.done.extend(copied.map(|copied| (last.name.clone(), copied)));
        }
        self.target.sync_names().map_err(io_error("sync", self.folder))?;
        Ok(true)
    }

    /// Whether the source's disk has little room and something is held that is gone there.
    fn fills_the_disk(&self, held: &Held) -> Result<bool, StoreError> {
        let has_little = self.source.free_bytes().is_ok_and(|free| free < FREE_BYTES_MIN);
        if !has_little || held.sealed.is_empty() {
            return Ok(false);
        }
        let there: BTreeSet<String> = self.list()?.into_iter().collect();
        let fills = held.sealed.keys().any(|name| !there.contains(name));
        if fills {
            tracing::warn!(
                folder = self.folder,
                "the peer's disk is nearly full: files that it removed meanwhile are not held, and copying begins again"
            );
        }
        Ok(fills)
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

    /// Copies a file that is held, or makes sure of the link to it.
    fn copy_whole(
        &self,
        name: &str,
        pin: Pin,
        progress: &mut Progress<'_>,
    ) -> Result<Copied, StoreError> {
        let Pin { file, head } = pin;
        let linked = file.is_none();
        let file = match file {
            Some(file) => file,
            // The source's as long as it has the name: it knows whether that disk reads other files.
            None => match self.open(name)? {
                Some(file) => file,
                None => self.target.open(name, false).map_err(io_error("open", name))?,
            },
        };
        let len = file.len().map_err(io_error("measure", name))?;
        if linked {
            let (checksum, unread) = hash(name, &*file, len, progress)?;
            if unread == 0 {
                // What a peer seals beside its writes may not be on the disk yet.
                let synced = self.target.open(name, false).and_then(|linked| linked.sync());
                synced.map_err(io_error("sync", name))?;
                return Ok(Copied { line: FileLine { checksum, bytes: len }, linked: true });
            }
            // Of a link, too, the disk could not read it: a copy takes its place.
        }
        let mut sink = Sink::create(self.target, name)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut unread = 0;
        while sink.at < len {
            let part = part_of(&mut buffer, len - sink.at);
            unread += read(&*file, len, sink.at, part).map_err(io_error("read", name))?;
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

    /// Copies the intact part of the last file; `None` where a crash left it without a head, so that nothing is in it.
    fn copy_last(
        &self,
        last: &Last,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Copied>, StoreError> {
        let (name, source) = (last.name.as_str(), &*last.file);
        for _ in 0..CUTS_MAX {
            // What is behind the length of the moment came later. It may have been cut since, but for what was acknowledged.
            let len = last.len.min(source.len().map_err(io_error("measure", name))?);
            let mut sink = Sink::create(self.target, name)?;
            let mut buffer = vec![0; BUFFER_BYTES];
            let (mut cut, mut unread) = (false, 0);
            while sink.at < len && !cut {
                let part = part_of(&mut buffer, len - sink.at);
                match read(source, len, sink.at, part) {
                    Ok(zeros) => {
                        unread += zeros;
                        put_head(last.head, sink.at, part);
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
                return self.keep_intact(name, &sink, len);
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

/// Whether the process, or the system, has as many files open as it may: `ENFILE`, `EMFILE`.
fn is_out_of_files(error: &StoreError) -> bool {
    let StoreError::Io { source, .. } = error else { return false };
    matches!(source.raw_os_error(), Some(23 | 24))
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
