//! Scrub: the peer reads its own disk from front to back, at a trickle, and marks what is damaged.
//!
//! Disks rot where nobody looks: a record that is never read would be found damaged when the last
//! other copy of it is gone. Bairavasundaram et al. (2008, section 5) found most latent corruption
//! by scrubbing, not by reads of users. It is the files that are walked and not the index, so that
//! reads are sequential and removals and heads of files are checked too.
//!
//! ```text
//! cursor -> head of the segment -> frames: both checksums -> live ones: the hash that is their id
//!        <- next cursor, damaged records (marked: not served, and a put writes them again)
//! ```
//!
//! A step reads about as much as it is asked to and ends with a frame, so at most 4 MiB more; only
//! a damaged range is searched to its end in one step. What the disk cannot read is damaged, where it reads the rest of the file. Memory is one record, a window of 64
//! KiB and the places of the step's records. What is being written meanwhile is checked in the next pass.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crypto::{RecordId, Suite};
use document::Kind;

use super::frame::Header;
use super::index::{Extent, Location};
use super::segment::log_name;
use super::{LogStore, Shared, compaction::is_there, frame::Marker};
use crate::header::{FILE_HEADER_BYTES, FileHeader, Head};
use crate::scan::{Seen, Way, scan_some};
use crate::window::is_bad_place;
use crate::{StoreError, io_error};

/// Bytes that [`LogStore::scrub`] reads between two pauses.
const STEP_BYTES: u64 = 1 << 20;

/// Where a scrub goes on. The default is the beginning. It stays valid whatever is written or
/// compacted meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ScrubCursor {
    segment: u32,
    offset: u64,
}

/// What a step of a scrub read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ScrubStep {
    /// Where to go on; `None` when everything was read.
    pub cursor: Option<ScrubCursor>,
    /// Live records whose checksums and ids were checked.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Live records found damaged. They are marked: not served, counted, written again by a put.
    pub damaged: Vec<RecordId>,
    /// How many of them were marked before, by an earlier scrub or a read.
    pub known: u64,
    /// Damaged ranges that hold no live record: removals, records that were removed or replaced,
    /// heads of files.
    pub damaged_ranges: u64,
}

/// What a whole pass of a scrub read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ScrubPass {
    /// Live records checked.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Live records found damaged; [`LogStore::damaged_ids`] names them.
    pub damaged: u64,
    /// As in [`ScrubStep`].
    pub damaged_ranges: u64,
}

impl LogStore {
    /// Checks the next `bytes_max` bytes, or one frame where that is longer. The caller waits
    /// between two steps as it likes; dropping the future loses nothing but the step.
    ///
    /// # Errors
    /// [`StoreError::Closed`], or the system's where a file cannot be read at all. Damage is none, and neither is a place that
    /// the disk cannot read.
    pub async fn scrub_step(
        &self,
        cursor: ScrubCursor,
        bytes_max: u64,
    ) -> Result<ScrubStep, StoreError> {
        self.check_open()?;
        let shared = self.shared.clone();
        self.shared.env.blocking(move || step(&shared, cursor, bytes_max)).await
    }

    /// The beginning of a segment, which `random` chooses.
    pub(crate) fn cursor_at(&self, random: u64) -> ScrubCursor {
        let index = self.shared.index();
        let at = random.checked_rem(index.segments().count() as u64).unwrap_or(0);
        let segment = index.segments().map(|(number, _)| number).nth(at as usize);
        ScrubCursor { segment: segment.unwrap_or(0), offset: 0 }
    }

    /// One pass over the whole store at `bytes_per_s` at most, a megabyte at a time. It ends where
    /// the future is dropped.
    ///
    /// # Errors
    /// As [`LogStore::scrub_step`].
    pub async fn scrub(&self, bytes_per_s: u64) -> Result<ScrubPass, StoreError> {
        let clock = &self.shared.env.clock;
        let step_bytes = STEP_BYTES.min(bytes_per_s.max(1));
        let mut pass = ScrubPass::default();
        let begun = clock.elapsed();
        let mut cursor = ScrubCursor::default();
        loop {
            let step = self.scrub_step(cursor, step_bytes).await?;
            pass.records += step.records;
            pass.bytes += step.bytes;
            pass.damaged += step.damaged.len() as u64;
            pass.damaged_ranges += step.damaged_ranges;
            let due = begun + time_for(pass.bytes, bytes_per_s);
            let now = clock.elapsed();
            if due > now {
                clock.sleep(due - now).await;
            }
            let Some(next) = step.cursor else { return Ok(pass) };
            cursor = next;
        }
    }

    /// Up to `limit` ids of damaged records in ascending order, from `from` on (inclusive): what to
    /// fetch from other holders and put again.
    pub fn damaged_ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId> {
        self.shared.index().damaged_ids(from, limit)
    }
}

/// How long `bytes` take at a pace.
pub(super) fn time_for(bytes: u64, bytes_per_s: u64) -> Duration {
    let us = u128::from(bytes) * 1_000_000 / u128::from(bytes_per_s.max(1));
    Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
}

fn step(
    shared: &Arc<Shared>,
    cursor: ScrubCursor,
    bytes_max: u64,
) -> Result<ScrubStep, StoreError> {
    let Some((number, extent)) = shared.index().segment_from(cursor.segment) else {
        return Ok(ScrubStep::default());
    };
    let from = if number == cursor.segment { cursor.offset } else { 0 };
    let mut done = ScrubStep::default();
    let walked = Walk { shared, number, extent }.step(from, bytes_max, &mut done);
    match walked {
        Ok(next) if next < extent.len => {
            done.cursor = Some(ScrubCursor { segment: number, offset: next });
        }
        // Compaction removed the file meanwhile.
        Err(_) if !is_there(&shared.index(), number) => done.cursor = behind(number),
        Err(error) => return Err(io_error("scrub", &log_name(number))(error)),
        Ok(_) => done.cursor = behind(number),
    }
    if done.cursor.is_some_and(|next| shared.index().segment_from(next.segment).is_none()) {
        done.cursor = None;
    }
    Ok(done)
}

fn behind(number: u32) -> Option<ScrubCursor> {
    Some(ScrubCursor { segment: number + 1, offset: 0 })
}

/// One segment being checked.
struct Walk<'a> {
    shared: &'a Shared,
    number: u32,
    extent: Extent,
}

impl Walk<'_> {
    /// Checks frames from an offset on, and says where to go on.
    fn step(&self, from: u64, bytes_max: u64, done: &mut ScrubStep) -> io::Result<u64> {
        let file = match self.shared.files.get(self.number) {
            // Opening found it gone; or compaction is removing it, and nothing in it is alive.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let live = self.shared.index().segment_from(self.number);
                if live.is_some_and(|(found, extent)| found == self.number && extent.live > 0) {
                    self.mark(&[(FILE_HEADER_BYTES, self.extent.len)], done);
                }
                return Ok(self.extent.len);
            }
            file => file?,
        };
        if from == 0 && file.is_removed().unwrap_or(false) {
            self.keep(file.clone());
        }
        // What the disk lost of the end is damaged, not unreadable.
        let len = self.extent.len.min(file.len()?);
        let mut damaged = Vec::new();
        if from == 0 {
            let whole = match FileHeader::read(&*file, len, self.shared.family) {
                Ok(head) => matches!(head, Head::Valid { whole: true, .. }),
                Err(error) if is_bad_place(&*file, len, &error) => false,
                Err(error) => return Err(error),
            };
            done.damaged_ranges += u64::from(!whole);
            done.bytes += FILE_HEADER_BYTES;
        }
        let Some(marker) = self.extent.marker else { return Ok(self.extent.len) };
        let start = from.max(FILE_HEADER_BYTES);
        let (next, records) =
            self.frames(&*file, (start, len), &marker, bytes_max, &mut damaged)?;
        done.bytes += next.saturating_sub(start);
        for (id, location) in records {
            done.records += 1;
            if !self.holds(&*file, &id, &location)? {
                let end = u64::from(location.offset) + location.frame_len() as u64;
                damaged.push((location.offset.into(), end));
            }
        }
        if next >= len && len < self.extent.len {
            damaged.push((len, self.extent.len));
        }
        self.mark(&damaged, done);
        Ok(if next >= len { self.extent.len } else { next })
    }

    /// Keeps a file that somebody removed open, so that compaction can write what is in it into others.
    fn keep(&self, file: Arc<dyn env::disk::File>) {
        // Compaction removes one in which nothing is alive.
        let is_alive = || {
            let found = self.shared.index().segment_from(self.number);
            found.is_some_and(|(number, extent)| number == self.number && extent.live > 0)
        };
        if !is_alive() || !self.shared.files.keep(self.number, file) {
            return;
        }
        if !is_alive() {
            // It went in between, and nobody would close it again.
            self.shared.files.forget(self.number);
            return;
        }
        let file = log_name(self.number);
        tracing::error!(
            file,
            "a segment's file was removed beside this peer: what is in it is written into others within minutes; \
             let the peer run until then"
        );
    }

    /// Walks frames, each with its checksums; the live ones among the intact are returned, the
    /// ranges of others go to `damaged`.
    fn frames(
        &self,
        file: &dyn env::disk::File,
        (start, len): (u64, u64),
        marker: &Marker,
        bytes_max: u64,
        damaged: &mut Vec<(u64, u64)>,
    ) -> io::Result<(u64, Vec<(RecordId, Location)>)> {
        let mut records = Vec::new();
        let index = |id: &RecordId| self.shared.index().get(id);
        let way = Way { payloads: true, passing: true, enough: bytes_max };
        let walked = scan_some(file, (start, len), marker, way, &mut |seen| match seen {
            Seen::Gap { from, to } => damaged.push((from, to)),
            Seen::Frame { offset, header, intact: false } => {
                damaged.push((offset, offset + Header::frame_len(&header)));
            }
            Seen::Frame { offset, header, intact: true } => {
                let here = |location: &Location| {
                    location.segment == self.number && u64::from(location.offset) == offset
                };
                records.extend(index(&header.id).filter(here).map(|found| (header.id, found)));
            }
        })?;
        Ok((walked.next, records))
    }

    /// Whether a record can be read where it is, and its bytes hash to its id. Its checksums were
    /// right a moment ago: what differs now is a disk that answers differently each time, or a
    /// record that was wrong before it was written.
    fn holds(
        &self,
        file: &dyn env::disk::File,
        id: &RecordId,
        location: &Location,
    ) -> io::Result<bool> {
        // Also one that is marked: what it stands on may have been mended since.
        match self.shared.read(id, Location { damaged: false, ..*location }) {
            Ok(record) => {
                // What is kept of leases has BLAKE3 ids in every suite (ADR 9).
                let suite = match record.kind {
                    Kind::Lease => Suite::Holdfast1,
                    _ => self.shared.suite,
                };
                let whole = suite.id(&record.bytes) == *id;
                if whole && location.damaged {
                    self.shared.index_mut().mark_whole(id, location);
                }
                Ok(whole)
            }
            // It is checked where it is now.
            Err(_) if self.shared.is_elsewhere(id, location) => Ok(true),
            Err(StoreError::Io { source, .. }) if !is_bad_place(file, self.extent.len, &source) => {
                Err(source)
            }
            Err(_) => Ok(false),
        }
    }

    /// Marks the live records that begin in damaged ranges.
    fn mark(&self, ranges: &[(u64, u64)], done: &mut ScrubStep) {
        if ranges.is_empty() {
            return;
        }
        let hit = self.shared.index().within(self.number, ranges);
        let with_record = |(from, to): &&(u64, u64)| {
            hit.iter().any(|(_, location)| (*from..*to).contains(&location.offset.into()))
        };
        let without = ranges.len() - ranges.iter().filter(with_record).count();
        done.damaged_ranges += without as u64;
        let mut index = self.shared.index_mut();
        for (id, location) in hit {
            let offset = location.offset;
            if location.damaged {
                done.known += 1;
            } else {
                tracing::warn!(%id, segment = self.number, offset, "scrub found a damaged record");
            }
            index.mark_damaged(&id, &location);
            done.damaged.push(id);
        }
    }
}
