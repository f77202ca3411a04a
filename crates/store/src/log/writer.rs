//! The one writer: takes all that waits, appends it with one vectored write, syncs once, answers
//! everybody.
//!
//! ```text
//! waiting: put, put, remove, put      put ...
//!          `------ one batch -----'
//! plan     which records are new, which fit on the disk
//! roll     seal a full segment, begin the next
//! write    header, payload, header, payload ...   one pwritev, payloads not copied
//! sync     (group, always)
//! index    now readers see them
//! answer
//! ```
//!
//! Invariants:
//! 1. Of a batch in which somebody asked for `group` or `always` nothing enters the index, and nobody is
//!    answered, before the fsync that covers it.
//! 2. Bytes behind the end of the active segment as the writer knows it are never part of the
//!    store: a failed write is cut back and the cut synced, and where that fails too, writing ends
//!    (`poison`).
//! 3. After a failed fsync nothing more is written. What the system then says of the file's pages
//!    is not evidence (they may be marked clean without being on the disk), so what was not
//!    acknowledged is cut off, as well as that still goes.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crypto::RecordId;
use document::{Kind, Record};
use env::disk::{BULK_BYTES_MIN, WRITE_ALIGNMENT};
use tokio::sync::oneshot;

use super::Shared;
use super::frame::{Content, HEADER_BYTES, Header, ZEROS, filler_before};
use super::index::Location;
use super::index_file::{self, Rows};
use super::segment::{CreateError, SEGMENTS_MAX, Segment, create, log_name};
use super::trail::Trail;
use crate::checksum::crc32c;
use crate::header::{FILE_HEADER_BYTES, FileHeader};
use crate::line::Worker;
use crate::{Durability, StoreError, io_error, is_full};

/// Bytes of records in one batch, unless one request alone has more.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Requests in one batch.
const BATCH_REQUESTS_MAX: usize = 1024;
/// The part of the reserve that records of leases may use: compaction, which goes down to half of it, has as much again.
const RESERVE_OF_LEASES_PART: u64 = 4;

/// A record as it is written.
pub(crate) struct Checked {
    /// Its `bytes` are the payload: the record's own, or a form.
    pub record: Record,
    /// The payload's CRC-32C; `None` where the writer computes it.
    pub crc: Option<u32>,
    pub form: bool,
    /// Of a form that is new here: what it needs.
    pub standing: Option<Standing>,
    /// Nobody need look whether it is there.
    pub new: bool,
    /// Where it is and could not be read: as long as it is there, it is to be written again.
    pub unread: Option<Location>,
}

/// What a form stands on, and what is written where it cannot: where that is not here plain and good, or where others may stand
/// on the record itself, as it was plain here before. A form of a form could not be read.
pub(crate) struct Standing {
    pub base: RecordId,
    /// The record's own bytes.
    pub plain: bytes::Bytes,
}

impl Checked {
    /// Bytes of it that are written, at most.
    fn bytes_max(&self) -> usize {
        let plain = self.standing.as_ref().map_or(0, |standing| standing.plain.len());
        self.record.bytes.len().max(plain)
    }
}

/// What a batch makes of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Plain,
    Form,
    Removed,
}

/// A frame that compaction found in a segment.
pub(crate) enum Moved {
    Record { record: Checked, from: Location },
    Removal(RecordId),
}

impl Moved {
    /// Bytes of its frame, at most.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Record { from, .. } => from.frame_len(),
            Self::Removal(_) => HEADER_BYTES,
        }
    }
}

/// What the writer is asked for.
pub(crate) enum Request {
    Put {
        records: Vec<Checked>,
        durability: Durability,
        answer: oneshot::Sender<Result<Vec<bool>, StoreError>>,
    },
    Remove {
        ids: Vec<RecordId>,
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Write frames of a segment again that still count; answered with their bytes.
    Move {
        frames: Vec<Moved>,
        answer: oneshot::Sender<Result<u64, StoreError>>,
    },
    /// Remove a segment in which nothing is alive; answered with its bytes.
    Drop {
        segment: u32,
        answer: oneshot::Sender<Result<Option<u64>, StoreError>>,
    },
    /// End the active segment where something in it is dead.
    End {
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Make durable what was written, and let go of the disk.
    Close {
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
}

impl Request {
    fn bytes(&self) -> usize {
        match self {
            Self::Put { records, .. } => records.iter().map(Checked::bytes_max).sum(),
            _ => 0,
        }
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Put { answer, .. } => drop(answer.send(Err(error))),
            Self::Remove { answer, .. } | Self::Close { answer } | Self::End { answer } => {
                drop(answer.send(Err(error)));
            }
            Self::Move { answer, .. } => drop(answer.send(Err(error))),
            Self::Drop { answer, .. } => drop(answer.send(Err(error))),
        }
    }

    /// When it is answered; `default` where nothing else was asked for.
    fn durability(&self, default: Durability) -> Durability {
        match self {
            Self::Put { durability, .. } => *durability,
            _ => default,
        }
    }

    /// Whether it is a batch of its own.
    fn is_single(&self) -> bool {
        !matches!(self, Self::Put { .. } | Self::Remove { .. })
    }
}

/// The writer's own state; what readers need of it is in [`Shared`].
pub(crate) struct Writer {
    pub(super) shared: Arc<Shared>,
    active: Option<Segment>,
    next: u32,
    /// Whether something written is not yet synced.
    dirty: bool,
    /// Whether some of that was acknowledged: under `everysec` or `memory`.
    owed: bool,
    /// What an fsync of the active segment covers.
    durable_len: u64,
    trail: Trail,
    /// It let go of the disk: what was asked for behind that is refused.
    closed: bool,
    #[cfg(feature = "planted-bugs")]
    pub(crate) planted: Option<super::PlantedBug>,
}

/// A batch being built.
#[derive(Default)]
pub(super) struct Plan {
    frames: Vec<Frame>,
    /// What is there after this batch, where it differs from the index.
    changes: HashMap<RecordId, Change>,
    bytes: u64,
    answers: Vec<Answer>,
    /// Whether one request is all there is: then nobody else of the batch can mean its records.
    alone: bool,
}

/// A frame to write; its payload is the record's own bytes.
struct Frame {
    header: Header,
    payload: bytes::Bytes,
}

impl Frame {
    /// Whether its payload goes past the system's cache.
    fn is_large(&self) -> bool {
        self.payload.len() >= BULK_BYTES_MIN
    }
}

enum Answer {
    Put(oneshot::Sender<Result<Vec<bool>, StoreError>>, Vec<bool>),
    Remove(oneshot::Sender<Result<(), StoreError>>),
}

impl Answer {
    fn done(self) {
        // Whoever asked may be gone: the work is done all the same.
        match self {
            Self::Put(answer, new) => drop(answer.send(Ok(new))),
            Self::Remove(answer) => drop(answer.send(Ok(()))),
        }
    }

    fn failed(self, error: StoreError) {
        match self {
            Self::Put(answer, _) => drop(answer.send(Err(error))),
            Self::Remove(answer) => drop(answer.send(Err(error))),
        }
    }
}

impl Worker for Writer {
    type Request = Request;

    fn batch_len<'a>(&self, waiting: impl Iterator<Item = &'a Request>) -> usize {
        let default = self.shared.durability;
        let mut bytes = 0;
        let mut len = 0;
        for request in waiting.take(BATCH_REQUESTS_MAX) {
            let alone = request.durability(default) == Durability::Always;
            let single = alone || request.is_single();
            bytes += request.bytes();
            if len > 0 && (single || bytes > BATCH_BYTES_MAX) {
                break;
            }
            len += 1;
            if single {
                break;
            }
        }
        len
    }

    fn work(&mut self, mut batch: Vec<Request>) {
        if self.closed {
            batch.into_iter().for_each(|request| request.refuse(StoreError::Closed));
            return;
        }
        match batch.pop() {
            Some(Request::Close { answer }) => drop(answer.send(self.close())),
            Some(Request::Move { frames, answer }) => {
                let _ = answer.send(self.move_frames(frames));
            }
            Some(Request::End { answer }) => drop(answer.send(self.end_active())),
            Some(Request::Drop { segment, answer }) => {
                let _ = answer.send(self.drop_segment(segment));
            }
            Some(last) => {
                batch.push(last);
                self.write_batch(batch);
            }
            None => {}
        }
    }
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, active: Option<Segment>, next: u32) -> Self {
        let durable_len = active.as_ref().map_or(0, |segment| segment.len);
        Self {
            shared,
            active,
            next,
            dirty: false,
            owed: false,
            durable_len,
            trail: Trail::default(),
            closed: false,
            #[cfg(feature = "planted-bugs")]
            planted: None,
        }
    }

    fn write_batch(&mut self, batch: Vec<Request>) {
        if self.shared.poisoned.load(Ordering::SeqCst) {
            batch.into_iter().for_each(|request| request.refuse(StoreError::Poisoned));
            return;
        }
        let asked = |durability: Durability| {
            batch.iter().any(|request| request.durability(self.shared.durability) == durability)
        };
        // One that need not wait for the fsync of another gets it all the same.
        let synced = asked(Durability::Group) || asked(Durability::Always);
        let soon = asked(Durability::EverySecond);
        let mut plan = self.plan(batch);
        let answers = std::mem::take(&mut plan.answers);
        if plan.frames.is_empty() {
            // What is there already may not be on the disk yet.
            let done = if synced && self.owed { self.sync() } else { Ok(()) };
            for answer in answers {
                match &done {
                    Ok(()) => answer.done(),
                    Err(error) => answer.failed(error.again()),
                }
            }
            return;
        }
        let written = self.roll(plan.bytes, synced).and_then(|()| self.append(&mut plan, synced));
        let start = match written {
            Ok(start) => start,
            Err(error) => {
                tracing::warn!(%error, "a write failed");
                answers.into_iter().for_each(|answer| answer.failed(error.again()));
                return;
            }
        };
        self.dirty = true;
        #[cfg(feature = "planted-bugs")]
        if synced && self.planted == Some(super::PlantedBug::AcknowledgeBeforeSync) {
            self.index(&plan, start);
            answers.into_iter().for_each(Answer::done);
            self.keep_rows(&plan, start);
            let _ = self.sync();
            return;
        }
        if synced && let Err(error) = self.sync() {
            self.cut(start);
            answers.into_iter().for_each(|answer| answer.failed(error.again()));
            return;
        }
        self.owed |= self.dirty;
        self.index(&plan, start);
        answers.into_iter().for_each(Answer::done);
        self.keep_rows(&plan, start);
        if soon && self.dirty {
            Shared::sync_soon(&self.shared);
        }
    }

    /// Writes a plan that nobody else waits for.
    pub(super) fn write_moved(&mut self, plan: &mut Plan) -> Result<(), StoreError> {
        self.roll(plan.bytes, true)?;
        let synced = self.shared.durability.syncs_before_answer();
        let start = self.append(plan, synced)?;
        self.dirty = true;
        if synced {
            self.sync().inspect_err(|_| self.cut(start))?;
        }
        self.owed |= self.dirty;
        self.index(plan, start);
        self.keep_rows(plan, start);
        if self.shared.durability == Durability::EverySecond {
            Shared::sync_soon(&self.shared);
        }
        Ok(())
    }

    /// Decides what is written. What would leave too little room is answered at once; removals are
    /// tiny and always fit. So are most records of leases, of which the words that end some free a full disk: alone they may
    /// use a part of the reserve.
    fn plan(&self, batch: Vec<Request>) -> Plan {
        let (free, reserve) = (self.shared.free_bytes(), self.shared.reserve_free_bytes);
        let room = free.saturating_sub(reserve);
        let room_of_leases = free.saturating_sub(reserve - reserve / RESERVE_OF_LEASES_PART);
        let mut plan = Plan { alone: batch.len() == 1, ..Plan::default() };
        let index = self.shared.index();
        for request in batch {
            match request {
                Request::Put { records, answer, .. } => {
                    let find = |id: &RecordId| index.get(id);
                    let of_leases = records.iter().all(|one| one.record.kind == Kind::Lease);
                    let room = if of_leases { room_of_leases } else { room };
                    if let Err(NoRoom(answer)) = plan.put(records, room, find, answer) {
                        answer.failed(StoreError::Full);
                    }
                }
                Request::Remove { ids, answer } => {
                    plan.remove(ids, |id| index.get(id).is_some());
                    plan.answers.push(Answer::Remove(answer));
                }
                // They make batches of their own (`batch_len`).
                Request::Move { .. }
                | Request::Drop { .. }
                | Request::End { .. }
                | Request::Close { .. } => {}
            }
        }
        plan
    }

    /// Seals the active segment where a batch of `bytes` would make it too long, and makes sure
    /// that there is one. Where nobody waits for an fsync the full one's is done beside the writes.
    pub(super) fn roll(&mut self, bytes: u64, synced: bool) -> Result<(), StoreError> {
        let full = |segment: &Segment| {
            let is_long = segment.len + bytes > self.shared.segment_bytes_max;
            // What is written to a file that somebody removed is gone at the next start.
            (segment.len > FILE_HEADER_BYTES && is_long)
                || self.shared.files.is_removed(segment.number)
        };
        if self.active.as_ref().is_some_and(full) {
            let beside = !synced && !self.shared.poisoned.load(Ordering::SeqCst);
            // Whoever sees the next segment takes this one for whole.
            if let Some(Err(error)) =
                self.active.as_ref().filter(|_| beside).map(|s| s.file.flush())
            {
                return Err(self.poison(&error));
            }
            match self.active.take() {
                Some(segment) if beside => self.active = Shared::seal(&self.shared, segment),
                segment => self.active = segment,
            }
            if self.active.is_some() {
                self.sync()?;
            }
            if let Some(segment) = self.active.take() {
                self.shared.write_index(&segment);
            }
            if self.shared.poisoned.load(Ordering::SeqCst) {
                return Err(StoreError::Poisoned);
            }
        }
        if self.active.is_none() {
            self.active = Some(self.begin()?);
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<Segment, StoreError> {
        let number = self.next;
        assert!(number < SEGMENTS_MAX, "a store has at most {SEGMENTS_MAX} segments");
        let name = log_name(number);
        let header = FileHeader { number: number.into(), marker: self.shared.env.random() };
        let family = self.shared.family;
        let file = match create(&*self.shared.disk, &name, family, header) {
            Ok(file) => file,
            Err(CreateError::Write(error)) => return Err(io_error("create", &name)(error)),
            Err(CreateError::Sync(error)) => return Err(self.poison(&error)),
        };
        self.next += 1;
        self.durable_len = FILE_HEADER_BYTES;
        // Behind the segment itself: an index file alone would tell of one that is gone.
        let (disk, suite) = (&*self.shared.disk, self.shared.suite_number());
        let index_bytes = index_file::begin(disk, number, header.marker, suite);
        let bytes = FILE_HEADER_BYTES + index_bytes;
        self.shared.file_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.shared.files.add(number, file.clone());
        self.shared.index_mut().extend(number, FILE_HEADER_BYTES, Some(header.marker));
        let (len, marker, rows) = (FILE_HEADER_BYTES, header.marker, Some(Rows::new(number)));
        Ok(Segment { number, file, len, marker, rows, index_bytes, suspect: false })
    }

    /// Writes the frames behind the active segment and returns where they begin. Where no fsync follows they need only be
    /// safe from the end of this process. Fillers spare large payloads a copy, and have all frames of their batch go to the
    /// disk with them.
    fn append(&mut self, plan: &mut Plan, synced: bool) -> Result<u64, StoreError> {
        let Some(active) = &mut self.active else { return Err(StoreError::Closed) };
        if plan.has_large()
            && let Some(alignment) = active.file.memory_alignment()
        {
            plan.fit(active.len, alignment);
        }
        let mut headers = Vec::with_capacity(plan.frames.iter().map(|f| f.header.len()).sum());
        for frame in &plan.frames {
            frame.header.encode(&active.marker, &mut headers);
        }
        let mut parts = Vec::with_capacity(plan.frames.len() * 2);
        let mut rest = headers.as_slice();
        for frame in &plan.frames {
            let (header, behind) = rest.split_at(frame.header.len());
            rest = behind;
            parts.push(IoSlice::new(header));
            if !frame.payload.is_empty() {
                parts.push(IoSlice::new(&frame.payload));
            }
        }
        let start = active.len;
        let written = match synced {
            true => active.file.write_at(start, &parts),
            false => active.file.write_soon(start, &parts),
        };
        match written {
            Ok(()) => {
                active.len += plan.bytes;
                self.shared.file_bytes.fetch_add(plan.bytes, Ordering::SeqCst);
                let passed = self.trail.wrote(active.number, start..active.len);
                Shared::pass(&self.shared, passed);
                Ok(start)
            }
            Err(error) => {
                // The cut is made durable too: a removal that failed, and came back after a power
                // cut, would take away a record that was answered as present meanwhile.
                if let Err(cut) = active.file.truncate(start).and_then(|()| active.file.sync()) {
                    return Err(self.poison(&cut));
                }
                let name = log_name(active.number);
                Err(if is_full(&error) {
                    StoreError::Full
                } else {
                    io_error("write", &name)(error)
                })
            }
        }
    }

    fn index(&self, plan: &Plan, start: u64) {
        let Some(active) = &self.active else { return };
        let mut index = self.shared.index_mut();
        index.warm(plan.frames.iter().map(|frame| &frame.header.id));
        let mut offset = start;
        for frame in &plan.frames {
            // `LogOptions` keeps segments, with the largest batch on top, below 4 GiB.
            let short = u32::try_from(offset).expect("a segment is under 4 GiB");
            index.apply(active.number, short, &frame.header, true);
            offset += frame.header.frame_len();
        }
        index.extend(active.number, offset, Some(active.marker));
    }

    /// Takes these frames into the index file that their segment will have. Nobody need wait for it who is answered.
    fn keep_rows(&mut self, plan: &Plan, start: u64) {
        let Some(active) = &mut self.active else { return };
        let Some(rows) = &mut active.rows else { return };
        let disk = &*self.shared.disk;
        let headers = plan.frames.iter().map(|frame| &frame.header);
        if rows.extend(disk, start, headers).is_err() {
            // The segment is read for them when it is full.
            active.rows = None;
            index_file::cut(disk, active.number);
        }
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        if self.shared.poisoned.load(Ordering::SeqCst) {
            return Err(StoreError::Poisoned);
        }
        self.shared.finish_sealed()?;
        let Some(active) = self.active.as_ref().filter(|_| self.dirty) else { return Ok(()) };
        self.shared.sync_file(&*active.file)?;
        (self.dirty, self.owed) = (false, false);
        self.durable_len = active.len;
        Ok(())
    }

    /// Cuts off what begins at `start` and was not acknowledged, as its fsync did not come about, and with it all before it
    /// that nobody was answered either (invariant 3). The store is poisoned: nothing is written behind it.
    fn cut(&self, start: u64) {
        let len = if self.owed { start } else { start.min(self.durable_len) };
        if let Some(active) = &self.active {
            let _ = active.file.truncate(len);
        }
    }

    pub(super) fn poison(&self, error: &io::Error) -> StoreError {
        self.shared.poison(error)
    }

    fn close(&mut self) -> Result<(), StoreError> {
        let owed = self.owed;
        let synced = self.sync();
        if let Some(active) = self.active.take() {
            // A store that takes no more writes does not sync: nothing of ours is to be written once others may open it.
            let _ = active.file.flush();
        }
        self.closed = true;
        self.shared.let_go();
        // With everything acknowledged on the disk there is nothing to report, poisoned or not.
        if owed { synced } else { Ok(()) }
    }
}

/// A request that found no room.
struct NoRoom(Answer);

impl Plan {
    /// Those frames of a segment that still count, by what the index says now.
    pub(super) fn of_moved(
        frames: Vec<Moved>,
        find: impl Fn(&RecordId) -> Option<Location>,
    ) -> Self {
        let mut plan = Self::default();
        for frame in frames {
            match frame {
                Moved::Record { record, from } if find(&record.record.id) == Some(from) => {
                    plan.record(record);
                }
                Moved::Removal(id) if find(&id).is_none() => {
                    plan.push(Header { id, content: Content::Removal }, bytes::Bytes::new());
                }
                Moved::Record { .. } | Moved::Removal(_) => {}
            }
        }
        plan
    }

    /// Bytes of its frames.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn record(&mut self, checked: Checked) {
        let Checked { record, crc, form, .. } = checked;
        let payload_crc = crc.unwrap_or_else(|| crc32c(&record.bytes));
        let length = u32::try_from(record.bytes.len()).expect("`check_put` bounds records");
        let (kind, place) = (record.kind, record.place);
        let content = Content::Record { kind, place, length, payload_crc, form };
        self.push(Header { id: record.id, content }, record.bytes);
    }

    fn put(
        &mut self,
        records: Vec<Checked>,
        room: u64,
        find: impl Fn(&RecordId) -> Option<Location>,
        answer: oneshot::Sender<Result<Vec<bool>, StoreError>>,
    ) -> Result<(), NoRoom> {
        let (frames_before, bytes_before) = (self.frames.len(), self.bytes);
        let mut before = Vec::new();
        let mut new = Vec::with_capacity(records.len());
        self.frames.reserve(records.len());
        // Nobody looks for a record of a request that is alone, but forms of it for their bases.
        let looked_for =
            !self.alone || records.iter().any(|checked| checked.standing.is_some() || !checked.new);
        for mut checked in records {
            let id = checked.record.id;
            let there = !(checked.new && self.alone) && self.is_there(&checked, &find);
            new.push(!there);
            if there {
                continue;
            }
            self.choose(&mut checked, &find);
            if looked_for {
                let change = if checked.form { Change::Form } else { Change::Plain };
                before.push((id, self.changes.insert(id, change)));
            }
            self.record(checked);
        }
        let answer = Answer::Put(answer, new);
        if self.bytes > bytes_before && self.bytes > room {
            self.frames.truncate(frames_before);
            self.bytes = bytes_before;
            for (id, change) in before.into_iter().rev() {
                match change {
                    Some(change) => self.changes.insert(id, change),
                    None => self.changes.remove(&id),
                };
            }
            return Err(NoRoom(answer));
        }
        self.answers.push(answer);
        Ok(())
    }

    /// Whether a record is there and, as far as is known, reads well.
    fn is_there(&self, checked: &Checked, find: impl Fn(&RecordId) -> Option<Location>) -> bool {
        let id = &checked.record.id;
        let unread = |there: &Location| checked.unread.is_some_and(|unread| unread.is_at(there));
        match self.changes.get(id) {
            Some(change) => *change != Change::Removed,
            None => find(id).is_some_and(|there| !there.damaged && !unread(&there)),
        }
    }

    /// Takes the record's own bytes where its form cannot stand.
    fn choose(&self, checked: &mut Checked, find: impl Fn(&RecordId) -> Option<Location>) {
        let Some(Standing { base, plain }) = checked.standing.take() else { return };
        let is_good = match self.changes.get(&base) {
            Some(change) => *change == Change::Plain,
            None => find(&base).is_some_and(|base| !base.form && !base.damaged),
        };
        let id = &checked.record.id;
        let was_plain = match self.changes.get(id) {
            Some(change) => *change == Change::Plain,
            None => find(id).is_some_and(|there| !there.form),
        };
        if !is_good || was_plain {
            (checked.record.bytes, checked.crc, checked.form) = (plain, None, false);
        }
    }

    fn remove(&mut self, ids: Vec<RecordId>, is_there: impl Fn(&RecordId) -> bool) {
        for id in ids {
            let change = self.changes.get(&id);
            if change.map_or_else(|| is_there(&id), |change| *change != Change::Removed) {
                self.changes.insert(id, Change::Removed);
                self.push(Header { id, content: Content::Removal }, bytes::Bytes::new());
            }
        }
    }

    fn has_large(&self) -> bool {
        self.frames.iter().any(Frame::is_large)
    }

    /// Puts fillers between the frames, so that from `start` on in a file every large payload leaves the same rest by
    /// `alignment` as where it lies in memory, and the first frame begins, and the last ends, at a multiple of
    /// [`WRITE_ALIGNMENT`]. What is before the first multiple goes through the system's cache and reaches the disk with the
    /// fsync, the rest at once: a power cut between the two must find no frame there, as it would keep a record and lose what
    /// came before it in its batch (who pays for it).
    fn fit(&mut self, start: u64, alignment: usize) {
        let rest = |place: u64, period: usize| (place % period as u64) as usize;
        let to_multiple = |place: u64| {
            let by = (WRITE_ALIGNMENT - rest(place, WRITE_ALIGNMENT)) % WRITE_ALIGNMENT;
            filler_before(by, WRITE_ALIGNMENT)
        };
        let frames = std::mem::take(&mut self.frames);
        self.frames.reserve(2 * frames.len() + 2);
        let before = std::mem::take(&mut self.bytes);
        self.fill(to_multiple(start));
        for frame in frames {
            if frame.is_large() {
                let place = rest(start + self.bytes + frame.header.len() as u64, alignment);
                let lies = frame.payload.as_ptr().addr() % alignment;
                self.fill(filler_before((lies + alignment - place) % alignment, alignment));
            }
            self.push(frame.header, frame.payload);
        }
        self.fill(to_multiple(start + self.bytes));
        debug_assert!(self.bytes >= before);
    }

    /// A filler of so many bytes, if any.
    fn fill(&mut self, bytes: usize) {
        if bytes > 0 {
            let header = Header::filler(bytes);
            let zeros = bytes::Bytes::from_static(&ZEROS[..bytes - HEADER_BYTES]);
            self.push(header, zeros);
        }
    }

    fn push(&mut self, header: Header, payload: bytes::Bytes) {
        self.bytes += header.frame_len();
        self.frames.push(Frame { header, payload });
    }
}

#[cfg(test)]
mod tests;
