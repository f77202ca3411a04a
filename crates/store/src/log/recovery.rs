//! Opening a store: every segment into the index, the torn tail of the last one cut.
//!
//! Sealed segments are read through their index files, which are written anew where they do not
//! fit. Of a segment without one, and of the last, every payload is read and checked, since a crash may have left any part
//! of its last writes. Only in the last something is cut: what lies behind its last intact frame was
//! never acknowledged (or has rotted, which looks the same). Everything else that is damaged stays
//! where it is, is reported and not served. What an index file lists of a segment that became shorter, or is gone, is damaged too: it is
//! known, and can be put again. So does what the disk cannot read: one bad place costs what lies in it, and nothing is
//! cut, or written, behind one that may hold the end of the last segment.
//!
//! What is walked is synced before, and leaves the system's cache: the store answers "present" for what is in its index, and
//! what the system shows of a file may not be on the disk ([`settle`]). At the end the names are synced.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use document::Kind;
use env::disk::{Disk, File, Lock};

use super::frame::{HEADER_BYTES, Header, Marker};
use super::index::{Index, Location};
use super::index_file::{self, IndexFile, Row};
use super::segment::{Segment, index_name, index_number, log_name, log_number};
use crate::header::{FILE_HEADER_BYTES, Family, FileHeader, Head};
use crate::scan::{Seen, Walked, Way, scan_some};
use crate::window::is_bad_place;
use crate::{StoreError, io_error};

/// What opening found that was not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Bytes cut from the end of the last segment.
    pub cut_bytes: u64,
    /// Ranges of segments that belong to no frame: each was at least one frame, whose record is not
    /// known. So does one whose end, or all of which, is gone, though its index file lists what was there.
    pub gaps: u64,
    /// Frames whose header is good and whose payload is not.
    pub damaged_frames: u64,
    /// Segments whose head is damaged in both copies and whose index file does not tell their marker: they are kept and not
    /// read.
    pub unreadable_segments: u64,
    /// Index files that were missing or did not fit, and were written anew.
    pub rebuilt_indexes: u64,
}

/// A store as it was found.
pub(crate) struct Opened {
    pub lock: Lock,
    pub index: Index,
    /// The last segment, which writing goes on in.
    pub active: Option<Segment>,
    /// The number of the next segment.
    pub next: u32,
    pub file_bytes: u64,
    pub recovery: Recovery,
}

/// Opens what is on the disk.
pub(crate) fn open(disk: &Arc<dyn Disk>, family: Family) -> Result<Opened, StoreError> {
    let lock = take_lock(&**disk)?;
    let names = disk.list().map_err(io_error("list", "the store"))?;
    let logs: BTreeSet<u32> = names.iter().filter_map(|name| log_number(name)).collect();
    let mut numbers: BTreeSet<u32> = names.iter().filter_map(|name| index_number(name)).collect();
    numbers.extend(&logs);
    let last = numbers.last().copied();
    let next = last.map_or(1, |last| last + 1);
    let mut opened = Opened {
        lock,
        index: Index::default(),
        active: None,
        next,
        file_bytes: 0,
        recovery: Recovery::default(),
    };
    for number in numbers {
        let read = if !logs.contains(&number) {
            opened.gone(&**disk, family, number)
        } else if Some(number) == last {
            opened.last(&**disk, family, number)
        } else {
            opened.sealed(&**disk, family, number)
        };
        read.map_err(|error| error.in_folder(&**disk))?;
    }
    disk.sync_names().map_err(io_error("sync", "the store"))?;
    Ok(opened)
}

pub(crate) fn take_lock(disk: &dyn Disk) -> Result<Lock, StoreError> {
    disk.lock().map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => StoreError::Locked,
        _ => io_error("open", "lock")(error).in_folder(disk),
    })
}

impl Opened {
    fn sealed(&mut self, disk: &dyn Disk, family: Family, number: u32) -> Result<(), StoreError> {
        let name = log_name(number);
        let file = disk.open(&name, false).map_err(io_error("open", &name))?;
        let len = file.len().map_err(io_error("measure", &name))?;
        self.file_bytes += len;
        let suite = family.suite_number();
        let head = read_head(&*file, len, family).map_err(io_error("read", &name))?;
        // Both copies of it lie in one sector; the index file has it too, though it may not be written.
        let told = self.marker(number, head)?;
        let marker = told.or_else(|| index_file::marker_of(disk, number, suite));
        self.index.extend(number, len, marker);
        let Some(marker) = marker else {
            self.unreadable(&name);
            return Ok(());
        };
        let index = IndexFile::find(disk, number, suite).filter(|index| index.marker == marker);
        match index {
            Some(index) if index.log_len == len => self.listed(number, &index)?,
            index => {
                let (rows, suspect, index_bytes) = (None, false, 0);
                let mut segment = Segment { number, file, len, marker, rows, index_bytes, suspect };
                // It may have been sealed and not yet synced: what a power cut took of it is not
                // served, nor cut, as others may have it.
                settle(&*segment.file, len).map_err(io_error("sync", &name))?;
                self.read_frames(&mut segment, false)?;
                match index.filter(|index| index.log_len > len) {
                    // It is kept: nothing else tells what is lost.
                    Some(index) => self.lost(number, len, &index)?,
                    // A power cut while the only head that tells the marker is written over might leave none.
                    None if told.is_none() || segment.suspect => {}
                    None => self.recovery.rebuilt_indexes += rebuild(disk, &segment, suite),
                }
            }
        }
        self.file_bytes += index_file::bytes_of(disk, number);
        Ok(())
    }

    /// Takes in the rows of a segment that is as long as its index file says.
    fn listed(&mut self, number: u32, index: &IndexFile) -> Result<(), StoreError> {
        self.recovery.gaps += u64::from(index.gaps);
        if index.gaps > 0 {
            let file = log_name(number);
            tracing::warn!(file, gaps = index.gaps, "parts of a segment are damaged");
        }
        let records = &mut self.index;
        let rows = index.all_rows(|row| take_in(records, number, &row, false));
        rows.map_err(io_error("read", &index_name(number)))
    }

    /// Takes in what a segment's index file lists behind the `len` bytes that are left of it.
    fn lost(&mut self, number: u32, len: u64, index: &IndexFile) -> Result<(), StoreError> {
        let bytes = index.log_len - len;
        tracing::error!(file = log_name(number), bytes, "the end of a segment is gone");
        self.recovery.gaps += 1;
        self.index.extend(number, index.log_len, Some(index.marker));
        let records = &mut self.index;
        let rows = index.all_rows(|row| {
            if row.end() > len {
                take_in(records, number, &row, true);
            }
        });
        rows.map_err(io_error("read", &index_name(number)))
    }

    /// Takes in what an index file tells of a segment that is not there. A segment that is removed loses its index file first.
    fn gone(&mut self, disk: &dyn Disk, family: Family, number: u32) -> Result<(), StoreError> {
        let index = IndexFile::find(disk, number, family.suite_number());
        let Some(index) = index.filter(|index| index.rows() > 0) else {
            tracing::error!(file = log_name(number), "a segment is gone, and what was in it");
            self.recovery.gaps += 1;
            return remove_index(disk, number);
        };
        self.recovery.gaps += u64::from(index.gaps);
        self.file_bytes += index_file::bytes_of(disk, number);
        self.lost(number, 0, &index)
    }

    fn last(&mut self, disk: &dyn Disk, family: Family, number: u32) -> Result<(), StoreError> {
        let name = log_name(number);
        let file = disk.open(&name, false).map_err(io_error("open", &name))?;
        let len = file.len().map_err(io_error("measure", &name))?;
        let head = read_head(&*file, len, family).map_err(io_error("read", &name))?;
        let Some(marker) = self.marker(number, head)? else {
            if len <= FILE_HEADER_BYTES {
                // A crash during its creation: no frame was ever written to it. Its number is used
                // again, and the index file goes first: alone it would tell of a segment that is gone.
                remove_index(disk, number)?;
                disk.remove(&name).map_err(io_error("remove", &name))?;
                self.next = number;
                return Ok(());
            }
            return self.sealed(disk, family, number);
        };
        let index = IndexFile::find(disk, number, family.suite_number());
        if index.is_some_and(|index| index.marker == marker && index.log_len > len) {
            // It was full, so nothing of it is an unfinished write.
            return self.sealed(disk, family, number);
        }
        let (rows, suspect, index_bytes) = (None, false, 0);
        let mut segment = Segment { number, file, len, marker, rows, index_bytes, suspect };
        settle(&*segment.file, len).map_err(io_error("sync", &name))?;
        let (end, writable) = self.read_frames(&mut segment, true)?;
        if end < len {
            self.recovery.cut_bytes += len - end;
            tracing::warn!(file = name, at = end, bytes = len - end, "cut an unfinished write");
            segment.file.truncate(end).map_err(io_error("cut", &name))?;
            segment.file.sync().map_err(io_error("sync", &name))?;
            segment.len = end;
        }
        // It grows again: rows of before are of no use, and a whole index must not fit by its length alone some day.
        remove_index(disk, number)?;
        segment.index_bytes = index_file::begin(disk, number, marker, family.suite_number());
        self.file_bytes += segment.index_bytes;
        self.file_bytes += end;
        self.index.extend(number, end, Some(marker));
        self.active = Some(segment).filter(|_| writable);
        Ok(())
    }

    /// The marker a head tells; `None` where both copies are damaged.
    fn marker(&self, number: u32, head: Head) -> Result<Option<Marker>, StoreError> {
        let file = log_name(number);
        match head {
            Head::Valid { header, whole } if header.number == u64::from(number) => {
                if !whole {
                    tracing::warn!(file, "one of the two copies of a segment's head is damaged");
                }
                Ok(Some(header.marker))
            }
            Head::Valid { .. } | Head::Foreign => Err(StoreError::Format { file }),
            Head::Damaged | Head::Unread => Ok(None),
        }
    }

    /// Takes in the frames of a segment with their payloads checked, and returns where it ends and whether more can be written
    /// there. Where the tail behind its last intact frame is to be `cut`, it ends before that, which is not
    /// counted as damage; not where some of the tail cannot be read, as it may have been acknowledged.
    fn read_frames(&mut self, segment: &mut Segment, cut: bool) -> Result<(u64, bool), StoreError> {
        let name = log_name(segment.number);
        let damaged_before = self.recovery.damaged_frames;
        // Damage counts once something intact follows it.
        let mut pending = Vec::new();
        let way = Way { payloads: true, passing: true, enough: u64::MAX };
        let within = (0, segment.len);
        let Walked { intact_end, unread_end, .. } =
            scan_some(&*segment.file, within, &segment.marker, way, &mut |seen| match seen {
                // Segments end far below 4 GiB; what lies beyond is not one of ours.
                Seen::Gap { from, .. } => pending.push((from, None)),
                Seen::Frame { offset, header, intact: false } => {
                    pending.push((offset, Some(header)));
                }
                Seen::Frame { offset, header, intact: true } => {
                    self.damaged(segment.number, &mut pending);
                    if let Ok(offset) = u32::try_from(offset) {
                        self.index.apply(segment.number, offset, &header, true);
                    }
                }
            })
            .map_err(io_error("read", &name))?;
        let cut = cut && unread_end.is_none_or(|unread| unread <= intact_end);
        if !cut {
            self.damaged(segment.number, &mut pending);
        }
        segment.suspect = unread_end.is_some() || self.recovery.damaged_frames > damaged_before;
        if let Some(before) = unread_end {
            tracing::error!(file = name, before, "the disk cannot read some of a segment");
            // It may later, so the segment stays until a start that reads it.
            self.index.unread(segment.number);
        }
        Ok(if cut { (intact_end, true) } else { (segment.len, false) })
    }

    /// Counts and reports damage, and takes in what it hit where that is known.
    fn damaged(&mut self, segment: u32, pending: &mut Vec<(u64, Option<Header>)>) {
        for (offset, header) in pending.drain(..) {
            tracing::warn!(segment, offset, "a part of a segment is damaged");
            let Some(header) = header else {
                self.recovery.gaps += 1;
                continue;
            };
            self.recovery.damaged_frames += 1;
            // An intact frame of the record, written earlier, is the better one to serve.
            if !self.index.is_good(&header.id)
                && let Ok(offset) = u32::try_from(offset)
            {
                self.index.apply(segment, offset, &header, false);
            }
        }
    }

    fn unreadable(&mut self, name: &str) {
        self.recovery.unreadable_segments += 1;
        tracing::error!(file = name, "a segment's head is damaged: its records are not served");
    }
}

/// Sees to it that what is read of a file is what the disk has of it. A process that was killed leaves bytes that the system has and
/// the disk may not; and one whose fsync failed leaves some that the system shows, takes for written, and never writes.
pub(crate) fn settle(file: &dyn File, len: u64) -> io::Result<()> {
    file.sync()?;
    file.uncache(0..len);
    Ok(())
}

/// What is at the head of a segment or a journal's file, which may lie in a bad place of the disk.
pub(crate) fn read_head(file: &dyn File, len: u64, family: Family) -> io::Result<Head> {
    match FileHeader::read(file, len, family) {
        Err(error) if is_bad_place(file, len, &error) => Ok(Head::Unread),
        read => read,
    }
}

/// Takes in a row of a segment's index file; `lost` where its frame is not there any more.
fn take_in(records: &mut Index, segment: u32, row: &Row, lost: bool) {
    let &Row { id, offset, length, placed, form, .. } = row;
    if row.removal {
        records.remove(segment, &id);
    } else if row.filler {
        if !lost {
            records.fill(segment, HEADER_BYTES as u64 + u64::from(length));
        }
    } else if let Some(kind) = Kind::from_number(row.kind.into())
        // An intact frame of the record, written earlier, is the better one to serve.
        && !(lost && records.is_good(&id))
    {
        let damaged = lost;
        records.insert(id, Location { segment, offset, length, placed, damaged, form, kind });
    }
}

/// Removes the index file of a segment, if there is one.
fn remove_index(disk: &dyn Disk, number: u32) -> Result<(), StoreError> {
    let name = index_name(number);
    match disk.open(&name, false) {
        Ok(_) => disk.remove(&name).map_err(io_error("remove", &name)),
        Err(_) => Ok(()),
    }
}

/// Writes a missing index file. How many were written: none where that fails (a full disk), which is no reason not to
/// open.
fn rebuild(disk: &dyn Disk, segment: &Segment, suite: u8) -> u64 {
    let written = index_file::write(disk, segment, suite);
    if let Err(error) = &written {
        tracing::warn!(segment = segment.number, %error, "cannot write a segment's index");
    }
    u64::from(written.is_ok())
}
