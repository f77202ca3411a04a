//! An append-only log of small entries with dense offsets: what a peer told its subscribers, and in
//! which order.
//!
//! A subscriber resumes at an offset, so offsets are never given twice and grow by one. Entries are
//! kept in segments that are dropped whole when their newest entry is older than the retention.
//! Reading begins at a block of 64 entries whose place is kept in memory (32 bytes a block: half a
//! byte an entry).
//!
//! ```text
//! news-00000000000000000000.jnl   offsets 0 ..
//! news-00000000000000004711.jnl   offsets 4711 ..      <- written to
//! news.mark                       a time that its owner marked
//! ```
//!
//! Invariants: an entry is readable only when it is as durable as the journal is set (`group`:
//! fsynced); a damaged entry is never read, and shows as an offset that is skipped; the file that
//! is written to is never dropped, so that offsets go on after all else has expired.

mod entry;
pub(crate) mod mark;
mod segments;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use env::disk::{Disk, Lock};
use futures::FutureExt;
use tokio::sync::oneshot;

pub(crate) use self::entry::EntryHeader;
use self::segments::Segment;
pub(crate) use self::segments::{first_of, journal_name};
use self::writer::{Request, Writer};
use crate::checksum::crc32c;
use crate::line::Line;
use crate::scan::FrameHeader;
use crate::window::Window;
use crate::{Durability, StoreError, io_error};

/// The largest entry, in bytes.
pub const ENTRY_BYTES_MAX: usize = 64 << 10;
/// Entries in one `append` at most.
pub const APPEND_ENTRIES_MAX: usize = 4096;
/// Bytes of entries in one answer of `read`, unless the first alone has more.
pub const READ_BYTES_MAX: usize = 4 << 20;

const SYNC_DELAY: Duration = Duration::from_secs(1);

/// How a [`Journal`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// When appends are answered.
    pub durability: Durability,
    /// How long entries are kept at least, by their own times, in milliseconds.
    pub retain_ms: u64,
    /// When a segment is full, in bytes.
    pub segment_bytes_max: u64,
    /// Bytes of all segments: over it the oldest are dropped however old they are. What others have told here must not fill the
    /// disk.
    pub bytes_max: u64,
}

impl Default for JournalOptions {
    fn default() -> Self {
        let retain_ms = 30 * 24 * 3600 * 1000;
        let durability = Durability::Group;
        Self { durability, retain_ms, segment_bytes_max: 8 << 20, bytes_max: u64::MAX }
    }
}

/// An entry as it is read: its offset, its time (Unix milliseconds) and its bytes.
pub type JournalEntry = (u64, u64, Bytes);

/// A log of small entries. Clones of the `Arc` share it.
pub struct Journal {
    shared: Arc<Shared>,
    line: Arc<Line<Writer>>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    env: Env,
    prefix: String,
    options: JournalOptions,
    segments: RwLock<VecDeque<Segment>>,
    poisoned: AtomicBool,
    closed: AtomicBool,
    sync_due: AtomicBool,
    line: OnceLock<Weak<Line<Writer>>>,
    lock: Mutex<Option<Lock>>,
    marked: Mutex<Option<u64>>,
}

impl Shared {
    fn segments(&self) -> RwLockReadGuard<'_, VecDeque<Segment>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn segments_mut(&self) -> RwLockWriteGuard<'_, VecDeque<Segment>> {
        self.segments.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) -> u64 {
        self.segments().back().map_or(0, |segment| segment.end)
    }

    fn let_go(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Drops the segments all of whose entries are older than the retention, and the oldest where there is too much, but never the
    /// last.
    ///
    /// By the newest entry's time at most: a calendar that is far ahead for a while must not cost what is there.
    fn drop_expired(&self) {
        let newest_ms = {
            let segments = self.segments();
            let dated = segments.iter().filter(|segment| !segment.blocks.is_empty());
            dated.map(|segment| segment.newest_ms).max().unwrap_or(0)
        };
        self.drop_older(newest_ms.min(self.env.clock.unix_ms()));
    }

    /// [`Self::drop_expired`] as of this time.
    fn drop_older(&self, now: u64) {
        loop {
            let expired = {
                let mut segments = self.segments_mut();
                let bytes: u64 = segments.iter().map(|segment| segment.len).sum();
                let old = segments.len() > 1
                    && segments.front().is_some_and(|segment| {
                        bytes > self.options.bytes_max
                            || segment.newest_ms.saturating_add(self.options.retain_ms) < now
                    });
                if old { segments.pop_front() } else { None }
            };
            let Some(segment) = expired else { return };
            let name = journal_name(&self.prefix, segment.first);
            if let Err(error) = self.disk.remove(&name) {
                // It is found, and dropped, at the next opening.
                tracing::warn!(file = name, %error, "cannot remove an old segment");
            }
        }
    }

    fn sync_soon(shared: &Arc<Self>) {
        if shared.sync_due.swap(true, Ordering::SeqCst) {
            return;
        }
        let weak = Arc::downgrade(shared);
        let sleep = shared.env.clock.sleep(SYNC_DELAY);
        let sync = async move {
            sleep.await;
            let Some(shared) = weak.upgrade() else { return };
            shared.sync_due.store(false, Ordering::SeqCst);
            if let Some(line) = shared.line.get().and_then(Weak::upgrade) {
                let _ = line.submit(Request::Sync, 0).await;
            }
        };
        shared.env.tasks.spawn(sync.boxed()).detach();
    }

    /// Hands over entries from `from` on until `each` has enough. Blocks.
    fn walk(
        &self,
        from: u64,
        each: &mut dyn FnMut(JournalEntry) -> bool,
    ) -> Result<(), StoreError> {
        let mut next = {
            // Under one guard: what is dropped between the two moves all others up.
            let segments = self.segments();
            segments.get(segments.partition_point(|segment| segment.end <= from)).cloned()
        };
        while let Some(segment) = next {
            if !self.walk_segment(&segment, from, each)? {
                return Ok(());
            }
            // By its offset: segments may have been dropped or begun meanwhile.
            next = self.segments().iter().find(|other| other.first > segment.first).cloned();
        }
        Ok(())
    }

    fn walk_segment(
        &self,
        segment: &Segment,
        from: u64,
        each: &mut dyn FnMut(JournalEntry) -> bool,
    ) -> Result<bool, StoreError> {
        let block = segment.blocks.partition_point(|block| block.offset <= from).saturating_sub(1);
        let Some(block) = segment.blocks.get(block) else { return Ok(true) };
        let name = journal_name(&self.prefix, segment.first);
        let file = match self.disk.open(&name, false) {
            Ok(file) => file,
            // Expired a moment ago.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(io_error("open", &name)(error)),
        };
        let failed = io_error("read", &name);
        let mut window = Window::passing(&*file, segment.len);
        let mut position = block.position;
        while position < segment.len {
            let header = match window.at(position, EntryHeader::BYTES_MAX) {
                Ok(found) => EntryHeader::decode(&segment.marker, found),
                Err(error) => window.pass(error, position + 1).map(|()| None).map_err(&failed)?,
            };
            let Some(header) = header else {
                let next = window.find(position + 1, &segment.marker).map_err(&failed)?;
                position = next.unwrap_or(segment.len);
                continue;
            };
            let payload = position + header.header_len();
            position = payload + header.payload_len();
            if header.offset < from {
                continue;
            }
            let body = match window.at(payload, header.length as usize) {
                Ok(body) => body,
                Err(error) => window.pass(error, position).map(|()| &[][..]).map_err(&failed)?,
            };
            let intact = body.len() == header.length as usize && crc32c(body) == header.payload_crc;
            if !intact {
                tracing::warn!(file = name, offset = header.offset, "an entry is damaged");
            } else if !each((header.offset, header.unix_ms, Bytes::copy_from_slice(body))) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Journal {
    /// Opens the journal whose files' names begin with `prefix`, or begins one. It blocks: the
    /// headers of all entries are read.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Format`], or the system's.
    pub fn open(
        disk: Arc<dyn Disk>,
        env: Env,
        prefix: &str,
        options: JournalOptions,
    ) -> Result<Arc<Self>, StoreError> {
        let opened = segments::open(&*disk, prefix)?;
        let marked = mark::read(&*disk, prefix);
        let shared = Arc::new(Shared {
            disk,
            env,
            prefix: prefix.to_owned(),
            options,
            segments: RwLock::new(opened.segments),
            poisoned: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            sync_due: AtomicBool::new(false),
            line: OnceLock::new(),
            lock: Mutex::new(Some(opened.lock)),
            marked: Mutex::new(marked),
        });
        shared.drop_expired();
        let writer =
            Writer { shared: shared.clone(), active: opened.active, dirty: false, closed: false };
        let line = Line::new(writer, shared.env.tasks.clone());
        let _ = shared.line.set(Arc::downgrade(&line));
        Ok(Arc::new(Self { shared, line }))
    }

    /// Appends entries (Unix milliseconds, bytes), all or none, and answers with their offsets when
    /// they are durable as the journal is set. Dropping the future does not undo it.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] over [`ENTRY_BYTES_MAX`] or [`APPEND_ENTRIES_MAX`],
    /// [`StoreError::Full`], [`StoreError::Poisoned`], [`StoreError::Closed`], or the system's.
    pub async fn append(&self, entries: Vec<(u64, Bytes)>) -> Result<Vec<u64>, StoreError> {
        let largest = entries.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
        for (size, max) in [(largest, ENTRY_BYTES_MAX), (entries.len(), APPEND_ENTRIES_MAX)] {
            if size > max {
                return Err(StoreError::TooLarge { size, max });
            }
        }
        let bytes = entries.iter().map(|(_, bytes)| bytes.len()).sum();
        let (answer, answered) = oneshot::channel();
        let request = Request::Append { entries, answer };
        self.line.submit(request, bytes).await.map_err(|_| StoreError::Closed)?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Up to `limit` entries from the offset `from` on, in order, and at most about
    /// [`READ_BYTES_MAX`] bytes. An offset that is skipped was damaged, or has expired.
    ///
    /// # Errors
    /// [`StoreError::Closed`], or the system's.
    pub async fn read(&self, from: u64, limit: usize) -> Result<Vec<JournalEntry>, StoreError> {
        self.check_open()?;
        if limit == 0 || from >= self.end() {
            return Ok(Vec::new());
        }
        let shared = self.shared.clone();
        let read = move || {
            let mut entries = Vec::new();
            let mut bytes = 0;
            shared.walk(from, &mut |entry| {
                bytes += entry.2.len();
                entries.push(entry);
                entries.len() < limit && bytes < READ_BYTES_MAX
            })?;
            Ok(entries)
        };
        self.shared.env.blocking(read).await
    }

    /// The first offset whose entry is logged at `unix_ms` or later; [`Journal::end`] where there
    /// is none.
    ///
    /// # Errors
    /// As [`Journal::read`].
    pub async fn offset_at_or_after(&self, unix_ms: u64) -> Result<u64, StoreError> {
        self.check_open()?;
        let end = self.end();
        let from = self
            .shared
            .segments()
            .iter()
            .flat_map(|segment| &segment.blocks)
            .find_map(|block| (block.newest_ms >= unix_ms).then_some(block.offset));
        let Some(from) = from else { return Ok(end) };
        let shared = self.shared.clone();
        let search = move || {
            let mut found = None;
            shared.walk(from, &mut |(offset, ms, _)| {
                found = (ms >= unix_ms).then_some(offset);
                found.is_none()
            })?;
            Ok(found.unwrap_or(end))
        };
        self.shared.env.blocking(search).await
    }

    /// The first offset that is still there; [`Journal::end`] where none is.
    pub fn start(&self) -> u64 {
        self.shared.segments().front().map_or(0, |segment| segment.first)
    }

    /// The offset that the next entry gets.
    pub fn end(&self) -> u64 {
        self.shared.end()
    }

    /// Whether a failed fsync ended appending for good.
    pub fn is_poisoned(&self) -> bool {
        self.shared.poisoned.load(Ordering::SeqCst)
    }

    /// Makes everything appended durable and ends; later calls are [`StoreError::Closed`].
    ///
    /// # Errors
    /// [`StoreError::Closed`] where it is already, [`StoreError::Poisoned`] where something
    /// answered is not durable.
    pub async fn close(&self) -> Result<(), StoreError> {
        if self.shared.closed.swap(true, Ordering::SeqCst) {
            return Err(StoreError::Closed);
        }
        let (answer, answered) = oneshot::channel();
        let submitted = self.line.submit(Request::Close { answer }, 0).await;
        self.line.close();
        if submitted.is_err() {
            self.shared.let_go();
            return Err(StoreError::Closed);
        }
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.shared.closed.load(Ordering::SeqCst) { Err(StoreError::Closed) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Journal({} {}..{})", self.shared.prefix, self.start(), self.end())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use testkit::disk::FaultyDisk;
    use testkit::time::run;

    use super::*;

    #[test]
    fn what_expires_while_others_read_hides_nothing_from_them() {
        for seed in 0..10 {
            run(seed, |env| async move {
                let options = JournalOptions {
                    durability: Durability::Memory,
                    retain_ms: 1000,
                    segment_bytes_max: 1 << 10,
                    ..JournalOptions::default()
                };
                let disk = Arc::new(FaultyDisk::new(seed));
                let journal = Journal::open(disk, env.clone(), "news", options).unwrap();
                let later = env.clock.unix_ms() + 1_000_000;
                let body = Bytes::from(vec![7; 900]);
                for number in 0..1000 {
                    let time = if number < 990 { later } else { u64::MAX };
                    journal.append(vec![(time, body.clone())]).await.unwrap();
                }
                let done = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    let read = || {
                        while !done.load(Ordering::SeqCst) {
                            let mut first = None;
                            let take = &mut |(offset, ..): JournalEntry| {
                                first = Some(offset);
                                false
                            };
                            journal.shared.walk(992, take).unwrap();
                            assert_eq!(first, Some(992));
                        }
                    };
                    let readers = [scope.spawn(read), scope.spawn(read)];
                    journal.shared.drop_older(u64::MAX - 1);
                    done.store(true, Ordering::SeqCst);
                    readers.into_iter().for_each(|reader| reader.join().unwrap());
                });
                assert_eq!(journal.start(), 990);
            });
        }
    }
}
