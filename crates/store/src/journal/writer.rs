//! The one writer of a journal: gives offsets, appends, syncs, begins new segments and drops old
//! ones.
//!
//! It keeps the invariants of the record log's writer: nothing is seen or answered before its fsync
//! (`group`, `always`), a failed write is cut back, a failed fsync ends writing.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use env::disk::File;
use tokio::sync::oneshot;

use super::entry::{ENTRY_HEADER_BYTES, EntryHeader};
use super::segments::{Segment, journal_name};
use super::{JournalEntry, Shared};
use crate::checksum::crc32c;
use crate::header::{FILE_HEADER_BYTES, Family, FileHeader};
use crate::line::Worker;
use crate::log::{CreateError, create};
use crate::{Durability, StoreError, io_error, is_full};

/// Requests in one batch.
const BATCH_REQUESTS_MAX: usize = 1024;
/// A segment is begun anew when its first entry is older than this part of the retention, so that
/// old ones can go.
const SEGMENTS_PER_RETENTION: u64 = 8;

pub(crate) enum Request {
    Append { entries: Vec<(u64, Bytes)>, answer: oneshot::Sender<Result<Vec<u64>, StoreError>> },
    Sync,
    Close { answer: oneshot::Sender<Result<(), StoreError>> },
}

pub(crate) struct Writer {
    pub shared: Arc<Shared>,
    pub active: Option<Arc<dyn File>>,
    pub dirty: bool,
    /// It let go of the disk: what was asked for behind that is refused.
    pub closed: bool,
}

impl Worker for Writer {
    type Request = Request;

    fn batch_len<'a>(&self, waiting: impl Iterator<Item = &'a Request>) -> usize {
        let alone = self.shared.options.durability == Durability::Always;
        let appends = waiting
            .take(BATCH_REQUESTS_MAX)
            .take_while(|request| matches!(request, Request::Append { .. }))
            .count();
        if alone { 1 } else { appends.max(1) }
    }

    fn work(&mut self, mut batch: Vec<Request>) {
        if self.closed {
            for request in batch {
                match request {
                    Request::Append { answer, .. } => drop(answer.send(Err(StoreError::Closed))),
                    Request::Close { answer } => drop(answer.send(Err(StoreError::Closed))),
                    Request::Sync => {}
                }
            }
            return;
        }
        match batch.pop() {
            Some(Request::Sync) => drop(self.sync()),
            Some(Request::Close { answer }) => {
                let durability = self.shared.options.durability;
                let owed = self.dirty && !durability.syncs_before_answer();
                let synced = self.sync();
                self.active = None;
                self.closed = true;
                self.shared.let_go();
                drop(answer.send(if owed { synced } else { Ok(()) }));
            }
            Some(last) => {
                batch.push(last);
                self.append(batch);
            }
            None => {}
        }
    }
}

impl Writer {
    fn append(&mut self, batch: Vec<Request>) {
        let mut entries = Vec::new();
        let mut answers = Vec::new();
        let mut next = self.shared.end();
        for request in batch {
            if let Request::Append { entries: some, answer } = request {
                let first = next;
                next += some.len() as u64;
                answers.push((answer, (first..next).collect::<Vec<u64>>()));
                entries.extend(some);
            }
        }
        let first = self.shared.end();
        let entries: Vec<JournalEntry> =
            entries.into_iter().zip(first..).map(|((ms, bytes), at)| (at, ms, bytes)).collect();
        let done = if entries.is_empty() { Ok(()) } else { self.write(&entries) };
        for (answer, offsets) in answers {
            // Whoever asked may be gone.
            let _ = answer.send(match &done {
                Ok(()) => Ok(offsets),
                Err(error) => Err(error.again()),
            });
        }
    }

    fn write(&mut self, entries: &[JournalEntry]) -> Result<(), StoreError> {
        if self.shared.poisoned.load(Ordering::SeqCst) {
            return Err(StoreError::Poisoned);
        }
        let (file, segment) = self.segment()?;
        let bodies: usize = entries.iter().map(|(.., bytes)| bytes.len()).sum();
        let mut bytes = Vec::with_capacity(bodies + entries.len() * ENTRY_HEADER_BYTES);
        let mut pushed = Vec::with_capacity(entries.len());
        for (offset, unix_ms, body) in entries {
            let length = u32::try_from(body.len()).expect("`append` bounds entries");
            let (offset, unix_ms) = (*offset, *unix_ms);
            let header = EntryHeader { offset, unix_ms, length, payload_crc: crc32c(body) };
            pushed.push((segment.len + bytes.len() as u64, header));
            header.encode(&segment.marker, &mut bytes);
            bytes.extend_from_slice(body);
        }
        if let Err(error) = file.write_at(segment.len, &[IoSlice::new(&bytes)]) {
            // Synced, so that a power cut does not bring back an offset that is given again in the
            // next segment.
            if let Err(cut) = file.truncate(segment.len).and_then(|()| file.sync()) {
                return Err(self.poison(&cut));
            }
            let name = journal_name(&self.shared.prefix, segment.first);
            return Err(if is_full(&error) {
                StoreError::Full
            } else {
                io_error("write", &name)(error)
            });
        }
        self.dirty = true;
        if self.shared.options.durability.syncs_before_answer()
            && let Err(error) = self.sync()
        {
            // Not acknowledged, and not to be found after a restart.
            let _ = file.truncate(segment.len);
            return Err(error);
        }
        let mut segments = self.shared.segments_mut();
        if let Some(last) = segments.back_mut() {
            pushed.iter().for_each(|(position, header)| last.push(*position, header));
        }
        drop(segments);
        if self.shared.options.durability == Durability::EverySecond {
            Shared::sync_soon(&self.shared);
        }
        Ok(())
    }

    /// The segment to write to, begun anew where the last is full or old, and old ones dropped.
    fn segment(&mut self) -> Result<(Arc<dyn File>, Segment), StoreError> {
        let now = self.shared.env.clock.unix_ms();
        let options = self.shared.options;
        let last = self.shared.segments().back().cloned();
        if let (Some(file), Some(last)) = (&self.active, last) {
            let age_max = options.retain_ms / SEGMENTS_PER_RETENTION;
            let old = last.end > last.first && now.saturating_sub(last.oldest_ms) > age_max;
            let full = last.len > FILE_HEADER_BYTES && last.len >= options.segment_bytes_max;
            if !old && !full {
                return Ok((file.clone(), last));
            }
            self.sync()?;
        }
        self.active = None;
        let header = FileHeader { number: self.shared.end(), marker: self.shared.env.random() };
        let name = journal_name(&self.shared.prefix, header.number);
        let file = match create(&*self.shared.disk, &name, Family::Journal, header) {
            Ok(file) => file,
            Err(CreateError::Write(error)) => return Err(io_error("create", &name)(error)),
            Err(CreateError::Sync(error)) => return Err(self.poison(&error)),
        };
        let segment = Segment::new(header.number, header.marker);
        self.shared.segments_mut().push_back(segment.clone());
        self.active = Some(file.clone());
        self.shared.drop_expired();
        Ok((file, segment))
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        if self.shared.poisoned.load(Ordering::SeqCst) {
            return Err(StoreError::Poisoned);
        }
        let Some(file) = self.active.as_ref().filter(|_| self.dirty) else { return Ok(()) };
        file.sync().map_err(|error| self.poison(&error))?;
        self.dirty = false;
        Ok(())
    }

    fn poison(&self, error: &std::io::Error) -> StoreError {
        tracing::error!(%error, "an fsync failed: the journal takes no more entries");
        self.shared.poisoned.store(true, Ordering::SeqCst);
        StoreError::Poisoned
    }
}
