//! What a journal knows of its files: which offsets and times each holds, and where every 64th
//! entry is.

use std::collections::VecDeque;
use std::sync::Arc;

use env::disk::{Disk, File, Lock};

use super::entry::{ENTRY_HEADER_BYTES, EntryHeader};
use crate::header::{FILE_HEADER_BYTES, Family, Head};
use crate::log::frame::Marker;
use crate::log::{read_head, settle};
use crate::scan::{FrameHeader, Seen, Walked, Way, scan_some};
use crate::{StoreError, io_error};

/// Entries a block has: reading begins at one, so this many are skipped at most.
const BLOCK_ENTRIES: u32 = 64;

/// Some entries in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The first entry's offset.
    pub offset: u64,
    /// Where its frame begins.
    pub position: u64,
    /// The latest time in it.
    pub newest_ms: u64,
    entries: u32,
}

/// One file.
#[derive(Clone)]
pub(crate) struct Segment {
    /// The offset its first entry has, or will have.
    pub first: u64,
    /// The offset behind its last entry.
    pub end: u64,
    pub oldest_ms: u64,
    pub newest_ms: u64,
    pub len: u64,
    pub marker: Marker,
    pub blocks: Vec<Block>,
}

impl Segment {
    pub(crate) fn new(first: u64, marker: Marker) -> Self {
        let (oldest_ms, newest_ms) = (u64::MAX, 0);
        let len = FILE_HEADER_BYTES;
        Self { first, end: first, oldest_ms, newest_ms, len, marker, blocks: Vec::new() }
    }

    /// Takes in an entry behind all others.
    pub(crate) fn push(&mut self, position: u64, header: &EntryHeader) {
        match self.blocks.last_mut().filter(|block| block.entries < BLOCK_ENTRIES) {
            Some(block) => {
                block.entries += 1;
                block.newest_ms = block.newest_ms.max(header.unix_ms);
            }
            None => self.blocks.push(Block {
                offset: header.offset,
                position,
                newest_ms: header.unix_ms,
                entries: 1,
            }),
        }
        self.end = header.offset + 1;
        self.oldest_ms = self.oldest_ms.min(header.unix_ms);
        self.newest_ms = self.newest_ms.max(header.unix_ms);
        self.len = position + header.header_len() + header.payload_len();
    }
}

/// `PREFIX-NNNNNNNNNNNNNNNNNNNN.jnl`, the number being the first offset.
pub(crate) fn journal_name(prefix: &str, first: u64) -> String {
    format!("{prefix}-{first:020}.jnl")
}

/// The first offset in a file's name.
pub(crate) fn first_of(prefix: &str, name: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_prefix('-')?.strip_suffix(".jnl")?;
    let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok() } else { None }
}

/// A journal as it was found.
pub(crate) struct Opened {
    pub lock: Lock,
    /// Oldest first.
    pub segments: VecDeque<Segment>,
    /// The file of the last of them.
    pub active: Option<Arc<dyn File>>,
}

/// Opens the files of a journal. The torn tail of the last one is cut.
pub(crate) fn open(disk: &dyn Disk, prefix: &str) -> Result<Opened, StoreError> {
    let lock = crate::log::take_lock(disk)?;
    let names = disk.list().map_err(io_error("list", prefix))?;
    let mut firsts: Vec<u64> = names.iter().filter_map(|name| first_of(prefix, name)).collect();
    firsts.sort_unstable();
    let mut opened = Opened { lock, segments: VecDeque::new(), active: None };
    let last = firsts.last().copied();
    for first in firsts {
        let name = journal_name(prefix, first);
        let read = opened.segment(disk, &name, first, Some(first) == last);
        read.map_err(|error| error.in_folder(disk))?;
    }
    opened.date_unread();
    disk.sync_names().map_err(io_error("sync", prefix))?;
    Ok(opened)
}

impl Opened {
    /// A file of which nothing could be read is as new as what follows may be: it goes no sooner than that does.
    fn date_unread(&mut self) {
        let mut newer = u64::MAX;
        for segment in self.segments.iter_mut().rev() {
            match segment.blocks.is_empty() && segment.end > segment.first {
                true => segment.newest_ms = newer,
                false => newer = newer.min(segment.oldest_ms),
            }
        }
    }

    fn segment(
        &mut self,
        disk: &dyn Disk,
        name: &str,
        first: u64,
        last: bool,
    ) -> Result<(), StoreError> {
        let file = disk.open(name, false).map_err(io_error("open", name))?;
        let len = file.len().map_err(io_error("measure", name))?;
        let head = read_head(&*file, len, Family::Journal).map_err(io_error("read", name))?;
        let marker = match head {
            Head::Valid { header, .. } if header.number == first => header.marker,
            Head::Valid { .. } | Head::Foreign => {
                return Err(StoreError::Format { file: name.to_owned() });
            }
            Head::Damaged if last && len <= FILE_HEADER_BYTES => {
                // A crash during its creation.
                return disk.remove(name).map_err(io_error("remove", name));
            }
            // One that cannot be read and holds nothing stays: its name says which offsets were given.
            Head::Damaged | Head::Unread => {
                tracing::error!(file = name, "a journal's head is damaged: its entries are lost");
                // The offsets go on behind what it may have held: every entry takes a header at
                // least. Its own first offset stays: it names the file, and the next one is another.
                let mut unknown = Segment::new(first, [0; 8]);
                unknown.end = first + len / EntryHeader::BYTES_MAX as u64;
                self.segments.push_back(unknown);
                return Ok(());
            }
        };
        let mut segment = Segment::new(first, marker);
        if last {
            settle(&*file, len).map_err(io_error("sync", name))?;
        }
        // What the disk cannot read costs what lies in it.
        let way = Way { payloads: last, passing: true, enough: u64::MAX };
        let Walked { intact_end: end, unread_end, .. } =
            scan_some(&*file, (0, len), &marker, way, &mut |seen| match seen {
                Seen::Frame { offset, header, intact: true } => segment.push(offset, &header),
                Seen::Frame { offset, .. } | Seen::Gap { from: offset, .. } => {
                    tracing::warn!(file = name, offset, "a part of a journal is damaged");
                }
            })
            .map_err(io_error("read", name))?;
        segment.len = end;
        if let Some(before) = unread_end {
            tracing::error!(file = name, before, "the disk cannot read some of a journal");
        }
        if last && unread_end.is_some_and(|unread| unread > end) {
            // What lies there may have been acknowledged: nothing is cut, nor written behind it, and no offset given again.
            segment.end += (len - end).div_ceil(ENTRY_HEADER_BYTES as u64);
        } else if last {
            if end < len {
                tracing::warn!(file = name, bytes = len - end, "cut an unfinished write");
                file.truncate(end).map_err(io_error("cut", name))?;
                file.sync().map_err(io_error("sync", name))?;
            }
            self.active = Some(file);
        }
        self.segments.push_back(segment);
        Ok(())
    }
}
