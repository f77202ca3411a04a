//! Compaction: the live frames of a segment that is mostly dead are written again, and its file is
//! removed.
//!
//! ```text
//! candidate: sealed, dead bytes over the share; or its file was removed by somebody else, and is open still
//! move       its live records -> the writer -> behind the active segment, synced, index switched;
//!            where none is left in it, the removals still needed likewise
//! drop       everything synced -> nothing live left in it -> files removed, names synced
//! ```
//!
//! **Why through the writer.** Frames count in the order of segments, so a copy in a segment of its
//! own would stand behind removals that came before it, and bring records back. The writer alone
//! orders frames: it moves a record only if the index still points at the old frame, in the same
//! turn in which nothing else is written. A copy is a later frame of the same record, so a crash at
//! any point leaves at worst two of it (Rosenblum and Ousterhout 1992, section 3, clean their log
//! in the same way).
//!
//! Invariants:
//! 1. A file is removed when every frame of it that counts is in a later one, synced.
//! 2. A removal is kept while any older segment exists: it could hold the record. One whose frame is damaged is known from
//!    the index file; where that is gone too, the segment stays. The removal of
//!    files is synced before the next step relies on it; where that fails, writing ends.
//! 3. A segment with a live record that is damaged, or cannot be read, stays until the record is put again or removed. Its
//!    removals stay with it: moved at each pass they would fill the disk. Where nothing else is alive in it, it is not read again
//!    meanwhile; and what could not be moved the last time comes after all else.
//!
//! A step holds at most [`STEP_BYTES`] and one record in memory. The extra disk is the live part of
//! one segment, and half of the reserve at most is used for it. Readers with open files go on; one that finds
//! its file gone looks into the index again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use document::Record;
use env::disk::File;

use super::frame::{Content, HEADER_BYTES, Header};
use super::index::{Extent, Index, Location};
use super::index_file::{IndexFile, Row};
use super::scrub::time_for;
use super::segment::{index_name, log_name};
use super::writer::{Checked, Moved, Plan, Request, Writer};
use super::{LogStore, Shared};
use crate::checksum::crc32c;
use crate::header::FILE_HEADER_BYTES;
use crate::scan::{Seen, Way, scan_some};
use crate::window::is_bad_place;
use crate::{StoreError, io_error};

/// Bytes moved between two pauses, unless one record alone has more.
const STEP_BYTES: u64 = 1 << 20;
/// Rows of an index file looked at between two pauses: were they all removals, they would make as many bytes.
const ROWS_STEP: u32 = (STEP_BYTES / HEADER_BYTES as u64) as u32;

/// When and how fast a store is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionOptions {
    /// A segment is compacted when more than so many per cent of it are dead.
    pub dead_percent: u8,
    /// Bytes a second that are read and written again at most.
    pub bytes_per_s: u64,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        Self { dead_percent: 33, bytes_per_s: 16 << 20 }
    }
}

/// What a pass of compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Compaction {
    /// Segments removed.
    pub segments: u64,
    /// Bytes of frames written again.
    pub moved_bytes: u64,
    /// Bytes of the files that were removed.
    pub freed_bytes: u64,
    /// Segments that stay because a live record in them is damaged, or because they cannot be read. Those of which the
    /// start could not read all count in the first pass behind it alone: they stay as they are until another one.
    pub blocked: u64,
}

impl LogStore {
    /// Compacts every segment that has more dead bytes than `options` allow, the emptiest first,
    /// and ends. Dropped before, it leaves nothing half done: what was moved is moved.
    ///
    /// # Errors
    /// [`StoreError::Full`] where moving would go into the second half of the reserve (segments without live records
    /// were removed before), those of a write, and that of a read where the disk answered for no segment.
    pub async fn compact(&self, options: CompactionOptions) -> Result<Compaction, StoreError> {
        let mut done = Compaction::default();
        self.compact_counting(options, &mut done).await?;
        Ok(done)
    }

    /// [`LogStore::compact`] that adds what it did to `done`, also where it fails or is dropped.
    pub(crate) async fn compact_counting(
        &self,
        options: CompactionOptions,
        done: &mut Compaction,
    ) -> Result<(), StoreError> {
        // None of them is a candidate: nobody knows what is in it.
        if !self.shared.told.compacting.swap(true, Ordering::SeqCst) {
            done.blocked += self.shared.index().unknown().len() as u64;
        }
        self.compact_known(options, done).await
    }

    /// Compacts what is a candidate.
    async fn compact_known(
        &self,
        options: CompactionOptions,
        done: &mut Compaction,
    ) -> Result<(), StoreError> {
        let (mut blocked, mut too_large) = (Vec::new(), Vec::new());
        let (mut some_read, mut unread) = (false, None);
        let damaged = self.shared.index().damaged_bytes();
        loop {
            self.check_open()?;
            let passed = [&blocked[..], &too_large].concat();
            let candidate = {
                let removed = self.shared.files.removed();
                let (index, stuck) = (self.shared.index(), self.shared.stuck());
                candidate(&index, options.dead_percent, (&passed, &removed), &stuck)
            };
            let Some((number, extent)) = candidate else { break };
            if extent.live > 0 && damaged.get(&number) == Some(&extent.live) {
                blocked.push(number);
                done.blocked += 1;
                continue;
            }
            let may_go = match self.move_live(number, &extent, options.bytes_per_s, done).await {
                Ok(may_go) => may_go,
                Err(Failed::Elsewhere(error)) => return Err(error),
                // Another may fit, and what that gives back make room for this one.
                Err(Failed::Room) => {
                    too_large.push(number);
                    continue;
                }
                Err(Failed::Read { error, answers }) => {
                    if self.shared.tells_of(number) {
                        tracing::warn!(segment = number, %error, "a segment is not compacted");
                    }
                    some_read |= answers;
                    unread.get_or_insert(error);
                    self.shared.note_stuck(number);
                    blocked.push(number);
                    done.blocked += 1;
                    continue;
                }
            };
            some_read = true;
            let dropped = match may_go {
                true => self.ask(0, |answer| Request::Drop { segment: number, answer }).await?,
                false => None,
            };
            match dropped {
                Some(bytes) => {
                    done.segments += 1;
                    done.freed_bytes += bytes;
                    too_large.clear();
                }
                // Another compaction that runs was at it too, and was done first.
                None if !is_there(&self.shared.index(), number) => {}
                None => {
                    self.shared.note_stuck(number);
                    blocked.push(number);
                    done.blocked += 1;
                }
            }
        }
        match unread {
            Some(error) if !some_read => Err(error),
            _ if !too_large.is_empty() => Err(StoreError::Full),
            _ => Ok(()),
        }
    }

    /// Lets the bytes of every record that was removed until now leave the files: ends the segment that is written to,
    /// where something in it is dead, and compacts each that has any dead byte. The pace is that of `options`.
    ///
    /// # Errors
    /// As [`LogStore::compact`].
    pub async fn erase(&self, options: CompactionOptions) -> Result<Compaction, StoreError> {
        let mut done = Compaction::default();
        self.erase_counting(options, &mut done).await?;
        Ok(done)
    }

    /// [`LogStore::erase`] that adds what it did to `done`, also where it fails or is dropped.
    pub(crate) async fn erase_counting(
        &self,
        options: CompactionOptions,
        done: &mut Compaction,
    ) -> Result<(), StoreError> {
        self.check_open()?;
        self.ask(0, |answer| Request::End { answer }).await?;
        let options = CompactionOptions { dead_percent: 0, ..options };
        if !self.shared.told.erasing.swap(true, Ordering::SeqCst) {
            let unknown = self.shared.index().unknown();
            done.blocked += unknown.len() as u64;
            for number in unknown {
                tracing::error!(
                    file = log_name(number),
                    "dropped bytes stay in a segment that was not read whole at the start"
                );
            }
        }
        let compacted = self.compact_known(options, done).await;
        // Bytes that went through memory on their way to a file may be there still.
        let disk = self.shared.disk.clone();
        let wiped = self.shared.env.blocking(move || disk.wipe()).await;
        compacted.and(wiped.map_err(io_error("erase", "what is written behind")))
    }

    /// Writes again what counts in a segment; whether the segment may go once nothing is alive in it. Where a record stays its removals
    /// do too, and are needed though the record be put again or removed a moment later.
    async fn move_live(
        &self,
        number: u32,
        extent: &Extent,
        bytes_per_s: u64,
        done: &mut Compaction,
    ) -> Result<bool, Failed> {
        let oldest = self.shared.index().segments().next().is_none_or(|(first, _)| first == number);
        let removals = extent.removals > 0 && !oldest;
        if extent.live == 0 && !removals {
            return Ok(true);
        }
        // All of it or nothing: copies of a part would take room and give none.
        let needed = extent.live + extent.removals * HEADER_BYTES as u64;
        if needed > self.shared.room_to_move() {
            return Err(Failed::Room);
        }
        if extent.live > 0 {
            self.move_wanted(Wanted::Records, number, extent, bytes_per_s, done).await?;
        }
        let left = self.shared.index().segment_from(number);
        let stays = left.is_none_or(|(found, extent)| found != number || extent.live > 0);
        if removals && !stays {
            self.move_removals(number, extent, bytes_per_s, done).await?;
        }
        Ok(!(removals && stays))
    }

    /// Writes the removals of a segment again: as its index file lists them, or as its frames are, where they are all there.
    async fn move_removals(
        &self,
        number: u32,
        extent: &Extent,
        bytes_per_s: u64,
        done: &mut Compaction,
    ) -> Result<(), Failed> {
        let (shared, asked) = (self.shared.clone(), *extent);
        let listed = move || IndexFile::of_removals(&shared, number, &asked);
        let Some(listed) = self.shared.env.blocking(listed).await else {
            let found =
                self.move_wanted(Wanted::Removals, number, extent, bytes_per_s, done).await?;
            if found < extent.removals && is_there(&self.shared.index(), number) {
                let reason = format!(
                    "{} of its {} removals are damaged and its index file is gone: what they removed would come back",
                    extent.removals - found,
                    extent.removals
                );
                let error = io_error("compact", &log_name(number))(io::Error::other(reason));
                return Err(Failed::Read { error, answers: true });
            }
            return Ok(());
        };
        let listed = Arc::new(listed);
        for from in (0..listed.rows()).step_by(ROWS_STEP as usize) {
            let begun = self.shared.env.clock.elapsed();
            let (shared, listed) = (self.shared.clone(), Arc::clone(&listed));
            let read = move || needed_removals(&shared, number, &listed, from);
            let needed = self.shared.env.blocking(read).await?;
            let moved = if needed.is_empty() { 0 } else { self.move_some(needed).await? };
            done.moved_bytes += moved;
            self.keep_pace(begun, moved, bytes_per_s).await;
        }
        Ok(())
    }

    /// Has the writer append frames; their bytes as far as they still counted.
    async fn move_some(&self, frames: Vec<Moved>) -> Result<u64, StoreError> {
        let bytes: usize = frames.iter().map(Moved::bytes).sum();
        self.ask(bytes, |answer| Request::Move { frames, answer }).await
    }

    /// Waits until a step of so many bytes may be over.
    async fn keep_pace(&self, begun: Duration, bytes: u64, bytes_per_s: u64) {
        let clock = &self.shared.env.clock;
        let spent = clock.elapsed().saturating_sub(begun);
        let pause = time_for(bytes, bytes_per_s).saturating_sub(spent);
        if !pause.is_zero() {
            clock.sleep(pause).await;
        }
    }

    /// Writes frames of a segment again, a step at a time. How many removals it met.
    async fn move_wanted(
        &self,
        wanted: Wanted,
        number: u32,
        extent: &Extent,
        bytes_per_s: u64,
        done: &mut Compaction,
    ) -> Result<u64, Failed> {
        let (mut from, mut removals) = (FILE_HEADER_BYTES, 0);
        while from < extent.len {
            let begun = self.shared.env.clock.elapsed();
            let (shared, extent) = (self.shared.clone(), *extent);
            let read = move || read_step(&shared, wanted, number, &extent, from);
            let Step { next, frames, removals: met } = self.shared.env.blocking(read).await?;
            let mut step_bytes = next - from;
            if !frames.is_empty() {
                let moved = self.move_some(frames).await?;
                done.moved_bytes += moved;
                step_bytes += moved;
            }
            removals += met;
            from = next;
            self.keep_pace(begun, step_bytes, bytes_per_s).await;
        }
        Ok(removals)
    }
}

/// Which frames of a segment are moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Records,
    Removals,
}

/// What was found from one place of a segment on.
struct Step {
    /// Where to go on.
    next: u64,
    /// Those of the wanted frames that count.
    frames: Vec<Moved>,
    /// Removals met, needed or not.
    removals: u64,
}

/// Why a segment was not moved.
enum Failed {
    /// It could not be read, though the disk `answers` for other places in it. Another may be.
    Read { error: StoreError, answers: bool },
    /// There is no room for what of it is alive.
    Room,
    /// No other would be moved either.
    Elsewhere(StoreError),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Elsewhere(error)
    }
}

/// The sealed segment with the least of it alive, where enough is dead; those that are `stuck` as they are now come last.
fn candidate(
    index: &Index,
    dead_percent: u8,
    (blocked, removed): (&[u32], &[u32]),
    stuck: &BTreeMap<u32, u64>,
) -> Option<(u32, Extent)> {
    let (last, _) = index.segments().next_back()?;
    let oldest = index.segments().next().map(|(number, _)| number);
    let alive = |number: u32, extent: &Extent| {
        // Removals count as alive where they may be needed, or they would be moved for ever.
        let removals = if Some(number) == oldest { 0 } else { extent.removals };
        extent.live + extent.fillers + removals * HEADER_BYTES as u64
    };
    index
        .segments()
        .filter(|(number, extent)| {
            let whole = extent.len.saturating_sub(FILE_HEADER_BYTES);
            let dead = whole.saturating_sub(alive(*number, extent));
            *number != last
                && extent.is_known()
                && !blocked.contains(number)
                && (u128::from(dead) * 100 > u128::from(whole) * u128::from(dead_percent)
                    || removed.contains(number))
        })
        .min_by_key(|(number, extent)| {
            let whole = u128::from(extent.len.max(1));
            let is_stuck = stuck.get(number) == Some(&extent.live);
            let stays = !removed.contains(number);
            (is_stuck, stays, u128::from(alive(*number, extent)) * 1_000_000 / whole, *number)
        })
        .map(|(number, extent)| (number, *extent))
}

impl IndexFile {
    /// That of a segment, where it has all removals.
    fn of_removals(shared: &Shared, number: u32, extent: &Extent) -> Option<Self> {
        let file = Self::open(&*shared.disk, number, shared.suite_number(), extent.len)
            .filter(|file| Some(file.marker) == extent.marker)?;
        let mut listed = 0;
        file.each_row(0..file.rows(), |row| listed += u64::from(row.removal)).ok()?;
        (listed >= extent.removals).then_some(file)
    }
}

/// The removals that are needed among some rows.
fn needed_removals(
    shared: &Shared,
    number: u32,
    listed: &IndexFile,
    from: u32,
) -> Result<Vec<Moved>, Failed> {
    let mut removed = Vec::new();
    let rows = from..from.saturating_add(ROWS_STEP).min(listed.rows());
    listed
        .each_row(rows, |row: Row| removed.extend(row.removal.then_some(row.id)))
        .map_err(io_error("compact", &index_name(number)))
        .map_err(|error| Failed::Read { error, answers: true })?;
    let index = shared.index();
    removed.retain(|id| index.get(id).is_none());
    Ok(removed.into_iter().map(Moved::Removal).collect())
}

/// Reads on from one place.
fn read_step(
    shared: &Arc<Shared>,
    wanted: Wanted,
    number: u32,
    extent: &Extent,
    from: u64,
) -> Result<Step, Failed> {
    let name = log_name(number);
    let failed = |answers: bool| {
        let error = io_error("compact", &name);
        move |source| Failed::Read { error: error(source), answers }
    };
    let end = Step { next: extent.len, frames: Vec::new(), removals: 0 };
    let Some(marker) = extent.marker else { return Ok(end) };
    let oldest = shared.index().segments().next().is_none_or(|(oldest, _)| oldest == number);
    let file = match shared.files.get(number) {
        Err(_) if !is_there(&shared.index(), number) => return Ok(end),
        // The file of it alone is gone, and what was in it known to be damaged.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(failed(true)(error)),
        file => file.map_err(failed(false))?,
    };
    let mut found = Vec::new();
    let len = extent.len.min(file.len().map_err(failed(false))?);
    // What cannot be read may be a removal that is needed, so it is not gone past.
    let way = Way { payloads: false, passing: false, enough: STEP_BYTES };
    let walked = scan_some(&*file, (from, len), &marker, way, &mut |seen| {
        if let Seen::<Header>::Frame { offset, header, .. } = seen {
            found.push((offset, header));
        }
    })
    .map_err(|error| failed(is_bad_place(&*file, len, &error))(error))?;
    let (mut frames, mut removals) = (Vec::new(), 0);
    for (offset, header) in found {
        removals += u64::from(matches!(header.content, Content::Removal));
        let location = shared.index().get(&header.id);
        match (header.content, location) {
            (Content::Removal, None) if wanted == Wanted::Removals && !oldest => {
                frames.push(Moved::Removal(header.id));
            }
            (Content::Record { .. }, Some(location))
                if wanted == Wanted::Records
                    && location.segment == number
                    && u64::from(location.offset) == offset =>
            {
                match shared.payload(&header.id, location) {
                    Ok(record) => frames.push(Moved::record(record, location)),
                    // It stays, and so does the segment.
                    Err(StoreError::Damaged { .. } | StoreError::Io { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            _ => {}
        }
    }
    let next = if walked.next >= len { extent.len } else { walked.next };
    Ok(Step { next, frames, removals })
}

/// Whether there is a segment of this number.
pub(super) fn is_there(index: &Index, number: u32) -> bool {
    index.segment_from(number).is_some_and(|(found, _)| found == number)
}

/// What was told since the start, so that it is not told again.
#[derive(Default)]
pub(super) struct Told {
    /// To whoever compacts: which segments the start could not read.
    compacting: AtomicBool,
    /// To whoever erases.
    erasing: AtomicBool,
    /// Segments that could not be read later.
    segments: Mutex<BTreeSet<u32>>,
}

impl Shared {
    /// Whether it is to be told that a segment is not compacted: once from a start on.
    fn tells_of(&self, number: u32) -> bool {
        let index = self.index();
        let mut told = self.told.segments.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|number| is_there(&index, *number));
        told.insert(number)
    }

    fn stuck(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in that what is alive in a segment now could not be moved.
    fn note_stuck(&self, number: u32) {
        let index = self.index();
        let mut stuck = self.stuck();
        stuck.retain(|number, _| is_there(&index, *number));
        let now = index.segment_from(number).filter(|(found, _)| *found == number);
        stuck.extend(now.map(|(number, extent)| (number, extent.live)));
    }

    /// Bytes that compaction may take before it gives some back: half of the reserve too, as a disk that is full of what is
    /// dead would stay full else.
    fn room_to_move(&self) -> u64 {
        self.free_bytes().saturating_sub(self.reserve_free_bytes / 2)
    }
}

impl Moved {
    fn record(record: Record, from: Location) -> Self {
        let crc = Some(crc32c(&record.bytes));
        let (standing, unread) = (None, None);
        let record = Checked { record, crc, form: from.form, standing, new: false, unread };
        Self::Record { record, from }
    }
}

impl Writer {
    /// Appends those of the frames that still count, and returns their bytes.
    pub(super) fn move_frames(&mut self, frames: Vec<Moved>) -> Result<u64, StoreError> {
        if self.shared.poisoned.load(Ordering::SeqCst) {
            return Err(StoreError::Poisoned);
        }
        let room = self.shared.room_to_move();
        let mut plan = {
            let index = self.shared.index();
            Plan::of_moved(frames, |id| index.get(id))
        };
        let bytes = plan.bytes();
        if bytes == 0 {
            return Ok(0);
        }
        if bytes > room {
            return Err(StoreError::Full);
        }
        self.write_moved(&mut plan)?;
        Ok(bytes)
    }

    /// Ends the active segment where something in it is dead, so that it can be compacted.
    pub(super) fn end_active(&mut self) -> Result<(), StoreError> {
        if self.shared.poisoned.load(Ordering::SeqCst) {
            return Err(StoreError::Poisoned);
        }
        let some_dead = |(_, extent): (u32, &Extent)| {
            extent.live + extent.fillers < extent.len.saturating_sub(FILE_HEADER_BYTES)
        };
        let dead = self.shared.index().segments().next_back().is_some_and(some_dead);
        if dead { self.roll(self.shared.segment_bytes_max, true) } else { Ok(()) }
    }

    /// Removes a segment in which nothing is alive, and returns its bytes; `None` where something
    /// is.
    pub(super) fn drop_segment(&mut self, number: u32) -> Result<Option<u64>, StoreError> {
        self.sync()?;
        let Some((_, extent)) =
            self.shared.index().segment_from(number).filter(|(found, _)| *found == number)
        else {
            return Ok(None);
        };
        if extent.live > 0 {
            return Ok(None);
        }
        let (log, idx) = (log_name(number), index_name(number));
        let disk = &*self.shared.disk;
        // As it is: an end that the disk lost is part of the extent.
        let bytes_of =
            |file: io::Result<Arc<dyn File>>| file.and_then(|file| file.len()).unwrap_or(0);
        // Open, where somebody removed it.
        let bytes = bytes_of(self.shared.files.get(number)) + bytes_of(disk.open(&idx, false));
        // The index first: alone it would tell of a segment that is gone.
        disk.remove(&idx).map_err(io_error("remove", &idx))?;
        disk.remove(&log).map_err(io_error("remove", &log))?;
        let synced: io::Result<()> = disk.sync_names();
        if let Err(error) = synced {
            // A file that comes back after a power cut must not find its removals gone.
            return Err(self.poison(&error));
        }
        self.shared.index_mut().drop_segment(number);
        self.shared.files.forget(number);
        self.shared.file_bytes.fetch_sub(bytes, Ordering::SeqCst);
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use crypto::RecordId;
    use document::Kind;

    use super::*;

    #[test]
    fn what_could_not_be_moved_comes_last_as_long_as_it_is_what_it_was() {
        let mut index = Index::default();
        for (segment, length) in [(1, 100), (2, 500), (3, 10)] {
            index.extend(segment, 10_000, Some([1; 8]));
            let (placed, damaged, form) = (false, false, false);
            let (offset, kind) = (64, Kind::Page);
            let location = Location { segment, offset, length, placed, damaged, form, kind };
            index.insert(RecordId::new([length as u8; 32]), location);
        }
        let first_of = |stuck: &[(u32, u64)], removed: &[u32]| {
            let stuck = stuck.iter().copied().collect();
            candidate(&index, 33, (&[], removed), &stuck).map(|(number, _)| number)
        };
        let first = |stuck: &[(u32, u64)]| first_of(stuck, &[]);
        let live = |number| index.segment_from(number).map_or(0, |(_, extent)| extent.live);
        assert_eq!(first(&[]), Some(1), "the emptiest but the last");
        assert_eq!(first(&[(1, live(1))]), Some(2));
        assert_eq!(first(&[(1, live(1) + 1)]), Some(1), "something in it went since");
        assert_eq!(first(&[(1, live(1)), (2, live(2))]), Some(1), "none is left out");
        assert_eq!(first_of(&[], &[2, 3]), Some(2), "it goes with the process");
    }
}
