//! A log-structured record store: records are appended to segment files and found through an index
//! in memory.
//!
//! One file a record is as fast for large records and hopeless for small ones (an fsync and an
//! inode each); a general key-value engine writes everything twice and brings threads and files of
//! its own, under which torn writes and lost fsyncs cannot be simulated
//! (`docs/adr/0002-record-log.md` has the measurements). Records are immutable and proven by their
//! id, so a log with an index is all that is needed.
//!
//! ```text
//! put -> checksum -> Line (waiting) -> Writer: append, fsync, index -> answer
//! get -> Index -> pread, check header and payload -> Record
//! ```
//!
//! Invariants:
//! 1. What is served has a valid header with the wanted id and a payload of the right checksum.
//! 2. What was acknowledged under `group` or `always` is on the disk.
//! 3. No lock is held while anything is read or written.
//!
//! Limits: 55 to 110 bytes of memory a record (`index`), at most [`crate::line::WAITING_KIB_MAX`]
//! KiB waiting to be written and one batch being written, 64 open files. The space of removed
//! records is given back by [`LogStore::compact`].

mod asked;
pub(crate) mod compaction;
pub(crate) mod frame;
mod index;
mod index_file;
mod recent;
mod recovery;
pub(crate) mod scrub;
mod sealed;
mod segment;
mod trail;
mod walk;
mod writer;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::{Place, RecordId, Suite};
use document::{Kind, Record};
use env::Env;
use env::disk::{Disk, Lock};
use futures::FutureExt;
use futures::executor::block_on;
use tokio::sync::oneshot::{self, error::TryRecvError};
use version::Codecs;

use self::asked::Asked;
use self::compaction::Told;
use self::frame::{Content, HEADER_BYTES_MAX, Header};
use self::index::{Index, Location};
pub(crate) use self::index_file::marker_of;
use self::recent::{KEPT_FOR, Recent};
pub use self::recovery::Recovery;
pub(crate) use self::recovery::{read_head, settle, take_lock};
use self::sealed::Sealed;
use self::segment::OpenFiles;
pub(crate) use self::segment::{CreateError, create, log_name, log_number};
use self::writer::{Checked, Request, Standing, Writer};
use crate::checksum::crc32c;
use crate::header::Family;
use crate::line::Line;
use crate::window::is_bad_place;
use crate::{
    Durability, Kept, PUT_RECORDS_MAX, Part, Placed, RecordStore, Stats, StoreError, Upkeep,
    check_put_of, form, io_error,
};

/// The smallest and the largest length a segment can be set to, in bytes.
pub(crate) const SEGMENT_BYTES_RANGE: (u64, u64) = (4 << 10, 2 << 30);

/// From this length on a record is read, and checksummed, away from the I/O threads. What is
/// shorter takes less than the way to another thread, where it need not be waited for: a disk that reads a bad place again and
/// again for half a minute would keep all that such a thread serves.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// How often a read follows a record that is moved under it.
const MOVES_MAX: u32 = 8;

/// How long `everysec` waits before it syncs.
const SYNC_DELAY: Duration = Duration::from_secs(1);
/// How long what the disk said is free counts for who only asks whether there is room.
const FREE_KNOWN_FOR: Duration = Duration::from_millis(100);
/// How often recent records are let go of at most.
const EXPIRES_EVERY: Duration = Duration::from_secs(1);

/// How a [`LogStore`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// When writes are answered.
    pub durability: Durability,
    /// When a segment is full, in bytes; brought between 4 KiB and 2 GiB. One batch may go beyond
    /// it.
    pub segment_bytes_max: u64,
    /// Writes are refused as [`StoreError::Full`] while they would leave less than this, in bytes,
    /// so that whatever else the peer keeps on the same disk can still be written. What is of leases alone may use a
    /// quarter of it, as the words that end leases do, by which a full disk is freed.
    pub reserve_free_bytes: u64,
    /// The network's suite: a store of another is refused.
    pub suite: Suite,
    /// Bytes of large records that were written some seconds ago, which are kept in memory for those that ask now; 0 for none.
    pub recent_bytes_max: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Group,
            segment_bytes_max: 256 << 20,
            reserve_free_bytes: 64 << 20,
            suite: Suite::default(),
            recent_bytes_max: 4 << 20,
        }
    }
}

/// A [`RecordStore`] on a disk.
pub struct LogStore {
    pub(crate) shared: Arc<Shared>,
    line: Arc<Line<Writer>>,
    recovery: Recovery,
}

/// A defect on purpose, so that a test can show that it would be found.
#[cfg(feature = "planted-bugs")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// Writes are answered and then synced.
    AcknowledgeBeforeSync,
}

/// What the writer, the readers and the timer share.
pub(crate) struct Shared {
    disk: Arc<dyn Disk>,
    pub(crate) env: Env,
    index: RwLock<Index>,
    pub(crate) files: OpenFiles,
    asked: Asked,
    recent: Recent,
    durability: Durability,
    segment_bytes_max: u64,
    reserve_free_bytes: u64,
    /// What was free when the disk last said so; [`u64::MAX`] where it never did.
    free_bytes: AtomicU64,
    /// When that was, in milliseconds of the store's clock.
    free_asked_ms: AtomicU64,
    family: Family,
    suite: Suite,
    codecs: Codecs,
    file_bytes: AtomicU64,
    poisoned: AtomicBool,
    closed: AtomicBool,
    /// Whether a sync is due within [`SYNC_DELAY`].
    sync_due: AtomicBool,
    sealed: Sealed,
    /// Segments that compaction could not move, and the bytes alive in each then.
    stuck: Mutex<BTreeMap<u32, u64>>,
    told: Told,
    /// Held by every fsync of a segment: the system tells an error once for a file that is open once, so whoever syncs behind
    /// one that failed must find the store poisoned.
    syncing: Mutex<()>,
    lock: Mutex<Option<Lock>>,
}

impl Shared {
    /// Where a record lives; `None` where that was lost with it, also in a bad place of the disk. The header of its frame may be
    /// whole where the payload is not.
    ///
    /// # Errors
    /// The system's: where it lives is only not known now.
    pub(crate) fn place_of(&self, id: &RecordId, location: &Location) -> io::Result<Option<Place>> {
        if !location.placed {
            return Ok(Some(Place::from(*id)));
        }
        let mut header = [0; HEADER_BYTES_MAX];
        let file = self.files.get(location.segment)?;
        match file.read_at(location.offset.into(), &mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => {
                let is_bad = is_bad_place(&*file, file.len()?, &error);
                return if is_bad { Ok(None) } else { Err(error) };
            }
        }
        let header = Header::decode_unmarked(&header).filter(|found| found.id == *id);
        Ok(header.and_then(|header| match header.content {
            Content::Record { place, .. } => Some(place),
            Content::Removal | Content::Filler { .. } => None,
        }))
    }

    /// What and where a record is; `None` where it is not here, or its place was lost with it.
    fn placed(&self, id: &RecordId) -> Result<Option<Placed>, StoreError> {
        let mut tries = 0;
        loop {
            let Some(location) = self.index().get(id) else { return Ok(None) };
            let place = match self.place_of(id, &location) {
                Ok(Some(place)) => Some(place),
                // Compaction may have moved it, and removed the file, since the index was asked.
                _ if tries < MOVES_MAX && self.is_elsewhere(id, &location) => {
                    tries += 1;
                    continue;
                }
                place => place.map_err(io_error("read", &log_name(location.segment)))?,
            };
            return Ok(place.map(|place| Placed { id: *id, kind: location.kind, place }));
        }
    }

    /// Bytes free on the disk; what it said last where it does not say: a disk that tells nothing is not known to be full.
    pub(crate) fn free_bytes(&self) -> u64 {
        match self.disk.free_bytes() {
            Ok(free) => {
                self.free_bytes.store(free, Ordering::Relaxed);
                self.free_asked_ms.store(self.now_ms(), Ordering::Relaxed);
                free
            }
            Err(_) => self.free_bytes.load(Ordering::Relaxed),
        }
    }

    /// The same as it was within the last [`FREE_KNOWN_FOR`]: who hears of fifty documents a second asks as often whether
    /// there is room. Writers ask the disk.
    fn free_bytes_lately(&self) -> u64 {
        let free = self.free_bytes.load(Ordering::Relaxed);
        let since = self.now_ms().saturating_sub(self.free_asked_ms.load(Ordering::Relaxed));
        if free == u64::MAX || u128::from(since) >= FREE_KNOWN_FOR.as_millis() {
            return self.free_bytes();
        }
        free
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.env.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    // No code that can panic half-way through a change runs under the lock.
    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs the last segment, and before it those that it was begun behind.
    fn sync_last(&self) {
        if self.closed.load(Ordering::SeqCst) || self.poisoned.load(Ordering::SeqCst) {
            // Closing syncs.
            return;
        }
        if self.finish_sealed().is_err() {
            return;
        }
        let Some((number, _)) = self.index().segments().next_back().map(|(n, e)| (n, *e)) else {
            return;
        };
        // One that cannot be opened cannot be synced either.
        let _ = match self.files.get(number) {
            Ok(file) => self.sync_file(&*file),
            Err(error) => Err(self.poison(&error)),
        };
    }

    /// Syncs a segment.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] where that fails, and where one before it failed.
    fn sync_file(&self, file: &dyn env::disk::File) -> Result<(), StoreError> {
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.poisoned.load(Ordering::SeqCst) {
            return Err(StoreError::Poisoned);
        }
        file.sync().map_err(|error| self.poison(&error))
    }

    /// Takes no more writes: see [`StoreError::Poisoned`].
    fn poison(&self, error: &io::Error) -> StoreError {
        tracing::error!(%error, "an fsync failed: the store takes no more writes");
        self.poisoned.store(true, Ordering::SeqCst);
        StoreError::Poisoned
    }

    fn suite_number(&self) -> u8 {
        self.family.suite_number()
    }

    /// Lets others open the store.
    fn let_go(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Sees to it that a sync comes within a second. At most one timer waits. The writer goes on meanwhile: an fsync of a
    /// hundred megabytes takes as long as writing the next hundred.
    fn sync_soon(shared: &Arc<Self>) {
        if shared.sync_due.swap(true, Ordering::SeqCst) {
            return;
        }
        let weak = Arc::downgrade(shared);
        let clock = shared.env.clock.clone();
        let sync = async move {
            // Made in here: who writes may be on a thread of no runtime.
            clock.sleep(SYNC_DELAY).await;
            let Some(shared) = weak.upgrade() else { return };
            // What is written from now on asks for another sync.
            shared.sync_due.store(false, Ordering::SeqCst);
            let env = shared.env.clone();
            env.blocking(move || shared.sync_last()).await;
        };
        shared.env.tasks.spawn(sync.boxed()).detach();
    }

    /// Lets go of recent records once their time is over, as long as there are any.
    fn forget_recent_soon(shared: &Arc<Self>) {
        let (weak, clock) = (Arc::downgrade(shared), shared.env.clock.clone());
        let forget = async move {
            let mut left = Some(KEPT_FOR);
            while let Some(wait) = left {
                clock.sleep(wait).await;
                let Some(shared) = weak.upgrade() else { return };
                left = shared.recent.expire(clock.elapsed()).map(|left| left.max(EXPIRES_EVERY));
            }
        };
        shared.env.tasks.spawn(forget.boxed()).detach();
    }

    /// A record that is small and that no disk need be waited for; `None` also where anything is wrong with it, which whoever
    /// waits is told.
    fn read_now(&self, id: &RecordId, location: &Location) -> Option<Record> {
        let payload = self.payload_now(id, location)?;
        if !location.form {
            return Some(payload);
        }
        let base = form::base(&payload.bytes)?;
        let there = self.index().get(&base).filter(|there| !there.form)?;
        let base = self.payload_now(&base, &there)?;
        let bytes = form::expand(&payload.bytes, &base.bytes, &self.codecs)?;
        Some(Record { bytes, ..payload })
    }

    fn payload_now(&self, id: &RecordId, location: &Location) -> Option<Record> {
        if location.damaged || location.frame_len() > SMALL_BYTES_MAX {
            return None;
        }
        let file = self.files.opened(location.segment)?;
        let mut frame = vec![0; location.frame_len()];
        let filled = file.read_now(location.offset.into(), &mut frame);
        if filled { record_in(id, location, &frame.into()) } else { None }
    }

    /// Reads a record and marks it as damaged where it is.
    fn read(&self, id: &RecordId, location: Location) -> Result<Record, StoreError> {
        let payload = self.payload(id, location)?;
        if !location.form {
            return Ok(payload);
        }
        let Some(base) = form::base(&payload.bytes) else {
            return Err(self.damaged(id, &location));
        };
        for left in (0..=MOVES_MAX).rev() {
            let there = self.index().get(&base).filter(|there| !there.form);
            let Some(there) = there else { break };
            match self.payload(&base, there) {
                Ok(base) => return self.expanded(payload, &base.bytes, &location),
                // Compaction may have moved the base, and removed the file, since the index was asked.
                Err(_) if left > 0 && self.is_elsewhere(&base, &there) => {}
                Err(error) => return Err(error),
            }
        }
        Err(self.damaged(id, &location))
    }

    /// Whether a record is no more where it was.
    fn is_elsewhere(&self, id: &RecordId, was: &Location) -> bool {
        self.index().get(id).is_none_or(|now| !now.is_at(was))
    }

    /// The record that a form stands for.
    fn expanded(
        &self,
        form: Record,
        base: &[u8],
        location: &Location,
    ) -> Result<Record, StoreError> {
        match form::expand(&form.bytes, base, &self.codecs) {
            Some(bytes) => Ok(Record { bytes, ..form }),
            None => Err(self.damaged(&form.id, location)),
        }
    }

    fn damaged(&self, id: &RecordId, location: &Location) -> StoreError {
        let (file, offset) = (log_name(location.segment), location.offset);
        tracing::warn!(%id, file, offset, "a record is damaged");
        self.index_mut().mark_damaged(id, location);
        StoreError::Damaged { id: *id, file, offset: offset.into() }
    }

    /// Reads what is kept of a record, its own bytes or a form, and marks it as damaged where it is.
    fn payload(&self, id: &RecordId, location: Location) -> Result<Record, StoreError> {
        let file = log_name(location.segment);
        if location.damaged {
            let (id, offset) = (*id, location.offset.into());
            return Err(StoreError::Damaged { id, file, offset });
        }
        let found = self.files.get(location.segment).and_then(|file| {
            let (offset, len) = (location.offset.into(), location.frame_len());
            let frame = if self.asked.again(id) {
                let mut frame = vec![0; len];
                file.read_at(offset, &mut frame)?;
                frame.into()
            } else {
                file.read_once(offset, len)?
            };
            Ok(record_in(id, &location, &frame))
        });
        match found {
            Ok(Some(record)) => return Ok(record),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(io_error("read", &file)(error)),
        }
        Err(self.damaged(id, &location))
    }
}

/// The record in a frame, where everything in it is as it should be.
fn record_in(id: &RecordId, location: &Location, frame: &Bytes) -> Option<Record> {
    let header = Header::decode_unmarked(frame).filter(|header| header.id == *id)?;
    let Content::Record { kind, place, length, payload_crc, form } = header.content else {
        return None;
    };
    let payload = frame.get(location.header_len()..)?;
    let intact = (length, form) == (location.length, location.form)
        && header.len() == location.header_len()
        && crc32c(payload) == payload_crc;
    let bytes = intact.then(|| frame.slice(location.header_len()..))?;
    Some(Record { kind, id: *id, place, bytes })
}

/// What is written of a record, the form where there is one and it can stand; with its checksum where the writer, which
/// is on no I/O thread, is not to compute it. `unread` is where it is and could not be read.
fn checked(kept: Kept, unread: Option<Location>, small: bool) -> Checked {
    let Kept { mut record, form, new } = kept;
    let based = form.and_then(|form| Some((form::base(&form)?, form)));
    let standing = based.map(|(base, form)| {
        let plain = std::mem::replace(&mut record.bytes, form);
        Standing { base, plain }
    });
    let crc = small.then(|| crc32c(&record.bytes));
    let form = standing.is_some();
    Checked { record, crc, form, standing, new, unread }
}

/// Bytes that are written of records, at most.
fn bytes_of(kept: &[Kept]) -> usize {
    kept.iter().map(|kept| kept.record.bytes.len()).sum()
}

impl LogStore {
    /// Opens the store on `disk`, or begins one. It blocks: about a second for a million records,
    /// and for reading the last segment.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Format`], or the system's. Damage is none: see
    /// [`LogStore::recovery`].
    pub fn open(
        disk: Arc<dyn Disk>,
        env: Env,
        options: LogOptions,
    ) -> Result<Arc<Self>, StoreError> {
        Self::open_with_codecs(disk, env, options, Codecs::new())
    }

    /// As [`LogStore::open`], for a store that may hold forms by an application's own codecs. Without them its versions are
    /// damaged.
    ///
    /// # Errors
    /// As [`LogStore::open`].
    pub fn open_with_codecs(
        disk: Arc<dyn Disk>,
        env: Env,
        options: LogOptions,
        codecs: Codecs,
    ) -> Result<Arc<Self>, StoreError> {
        let (shared, writer, recovery) = Self::parts(disk, env, options, codecs)?;
        Ok(Self::start(shared, writer, recovery))
    }

    /// As [`LogStore::open`], with a defect.
    ///
    /// # Errors
    /// As [`LogStore::open`].
    #[cfg(feature = "planted-bugs")]
    pub fn open_with_bug(
        disk: Arc<dyn Disk>,
        env: Env,
        options: LogOptions,
        bug: PlantedBug,
    ) -> Result<Arc<Self>, StoreError> {
        let (shared, mut writer, recovery) = Self::parts(disk, env, options, Codecs::new())?;
        writer.planted = Some(bug);
        Ok(Self::start(shared, writer, recovery))
    }

    fn parts(
        disk: Arc<dyn Disk>,
        env: Env,
        options: LogOptions,
        codecs: Codecs,
    ) -> Result<(Arc<Shared>, Writer, Recovery), StoreError> {
        let family = Family::Log(options.suite);
        let opened = recovery::open(&disk, family)?;
        let (min, max) = SEGMENT_BYTES_RANGE;
        let shared = Arc::new(Shared {
            files: OpenFiles::new(disk.clone()),
            asked: Asked::default(),
            recent: Recent::up_to(options.recent_bytes_max),
            disk,
            env,
            index: RwLock::new(opened.index),
            durability: options.durability,
            segment_bytes_max: options.segment_bytes_max.clamp(min, max),
            reserve_free_bytes: options.reserve_free_bytes,
            free_bytes: AtomicU64::new(u64::MAX),
            free_asked_ms: AtomicU64::new(0),
            family,
            suite: options.suite,
            codecs,
            file_bytes: AtomicU64::new(opened.file_bytes),
            poisoned: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            sync_due: AtomicBool::new(false),
            sealed: Sealed::default(),
            stuck: Mutex::default(),
            told: Told::default(),
            syncing: Mutex::default(),
            lock: Mutex::new(Some(opened.lock)),
        });
        let writer = Writer::new(shared.clone(), opened.active, opened.next);
        Ok((shared, writer, opened.recovery))
    }

    fn start(shared: Arc<Shared>, writer: Writer, recovery: Recovery) -> Arc<Self> {
        let line = Line::new(writer, shared.env.tasks.clone());
        Arc::new(Self { shared, line, recovery })
    }

    /// What opening found damaged or unfinished.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.shared.closed.load(Ordering::SeqCst) { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// Reads a record, from memory where it was written a moment ago and `recent` ones will do.
    async fn read(&self, id: &RecordId, recent: bool) -> Result<Option<Record>, StoreError> {
        let mut tries = 0;
        loop {
            let Some(location) = self.shared.index().get(id) else { return Ok(None) };
            let read = if let Some(record) = self.shared.read_now(id, &location) {
                Ok(record)
            } else if let Some(record) = self.recent(id, &location).filter(|_| recent) {
                Ok(record)
            } else {
                let (shared, id) = (self.shared.clone(), *id);
                self.shared.env.blocking(move || shared.read(&id, location)).await
            };
            // Compaction may have moved it, and removed the file, since the index was asked.
            if read.is_ok() || tries == MOVES_MAX || !self.shared.is_elsewhere(id, &location) {
                return read.map(Some);
            }
            tries += 1;
        }
    }

    /// Reads a record if it is there already, so that the writer writes it again where it is damaged, or where it could not be
    /// read now: then it returns where. The disk may read that again later, and the new one may find no room, so it is not
    /// marked.
    async fn read_if_there(&self, id: &RecordId) -> Option<Location> {
        let location = self.shared.index().get(id)?;
        match self.read(id, false).await {
            Ok(_) => None,
            Err(StoreError::Io { .. }) => Some(location),
            Err(_) => {
                self.shared.index_mut().mark_damaged(id, &location);
                None
            }
        }
    }

    /// The record at a location, where it was written a moment ago.
    fn recent(&self, id: &RecordId, location: &Location) -> Option<Record> {
        let record = self.shared.recent.get(id).filter(|_| !location.damaged && !location.form)?;
        (location.placed == (record.place != Place::from(*id))).then_some(record)
    }

    /// What the writer is handed of records.
    async fn checked(&self, kept: Vec<Kept>, small: bool) -> Vec<Checked> {
        let mut records = Vec::with_capacity(kept.len());
        for kept in kept {
            let unread = match kept.new {
                true => None,
                false => self.read_if_there(&kept.record.id).await,
            };
            records.push(checked(kept, unread, small));
        }
        records
    }

    async fn write(
        &self,
        kept: Vec<Kept>,
        durability: Option<Durability>,
    ) -> Result<Vec<bool>, StoreError> {
        self.check_open()?;
        check_put_of(kept.iter().map(|kept| kept.record.bytes.len()))?;
        if self.shared.poisoned.load(Ordering::SeqCst) {
            return Err(StoreError::Poisoned);
        }
        let durability = durability.unwrap_or(self.shared.durability);
        let bytes = bytes_of(&kept);
        let records = self.checked(kept, bytes <= SMALL_BYTES_MAX).await;
        self.ask(bytes, |answer| Request::Put { records, durability, answer }).await
    }

    async fn ask<T>(
        &self,
        bytes: usize,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.line.submit(request(answer), bytes).await.map_err(|_| StoreError::Closed)?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }
}

#[async_trait]
impl RecordStore for LogStore {
    async fn put(&self, records: Vec<Record>) -> Result<Vec<bool>, StoreError> {
        let is_recent = |record: &&Record| {
            let bytes = record.bytes.len();
            bytes > SMALL_BYTES_MAX && self.shared.recent.keeps(bytes)
        };
        let recent: Vec<Record> = records.iter().filter(is_recent).cloned().collect();
        let plain = |record| Kept { record, form: None, new: false };
        let places: Vec<usize> =
            (0..records.len()).filter(|at| is_recent(&&records[*at])).collect();
        let put = self.write(records.into_iter().map(plain).collect(), None).await?;
        // What was there already lives where it did, whatever place it came with now.
        let new = places.iter().zip(recent).filter(|(at, _)| put.get(**at) == Some(&true));
        let new: Vec<Record> = new.map(|(_, record)| record).collect();
        if !new.is_empty() && self.shared.recent.add(new, self.shared.env.clock.elapsed()) {
            Shared::forget_recent_soon(&self.shared);
        }
        Ok(put)
    }

    async fn put_kept(
        &self,
        kept: Vec<Kept>,
        durability: Option<Durability>,
    ) -> Result<Vec<bool>, StoreError> {
        self.write(kept, durability).await
    }

    fn durability(&self) -> Durability {
        self.shared.durability
    }

    fn put_here(
        &self,
        kept: Vec<Kept>,
        durability: Option<Durability>,
    ) -> Result<Vec<bool>, StoreError> {
        self.check_open()?;
        check_put_of(kept.iter().map(|kept| kept.record.bytes.len()))?;
        if self.shared.poisoned.load(Ordering::SeqCst) {
            return Err(StoreError::Poisoned);
        }
        let records = block_on(self.checked(kept, true));
        let durability = durability.unwrap_or(self.shared.durability);
        let (answer, mut answered) = oneshot::channel();
        let request = Request::Put { records, durability, answer };
        self.line.submit_here(request).map_err(|_| StoreError::Closed)?;
        match answered.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) => block_on(answered).unwrap_or(Err(StoreError::Closed)),
            Err(TryRecvError::Closed) => Err(StoreError::Closed),
        }
    }

    fn form_base(&self, id: &RecordId) -> Result<Option<RecordId>, StoreError> {
        let location = self.shared.index().get(id).filter(|location| location.form);
        let Some(location) = location else { return Ok(None) };
        Ok(form::base(&self.shared.payload(id, location)?.bytes))
    }

    fn each_of(
        &self,
        kinds: &[Kind],
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<Vec<RecordId>, StoreError> {
        self.check_open()?;
        self.walk_kinds(kinds, each)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.check_open()?;
        self.read(id, true).await
    }

    fn contains(&self, id: &RecordId) -> bool {
        self.shared.index().get(id).is_some()
    }

    async fn remove(&self, ids: Vec<RecordId>) -> Result<(), StoreError> {
        self.check_open()?;
        if ids.len() > PUT_RECORDS_MAX {
            return Err(StoreError::TooLarge { size: ids.len(), max: PUT_RECORDS_MAX });
        }
        let gone = ids.clone();
        let removed = self.ask(ids.len() * 32, |answer| Request::Remove { ids, answer }).await;
        self.shared.recent.remove(&gone);
        removed
    }

    fn ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId> {
        self.shared.index().ids(from, limit)
    }

    async fn list(&self, from: &RecordId, limit: usize) -> Result<Vec<Placed>, StoreError> {
        self.check_open()?;
        let (shared, from) = (self.shared.clone(), *from);
        let found = move || {
            let ids = shared.index().ids(&from, limit);
            ids.iter().filter_map(|id| shared.placed(id).transpose()).collect()
        };
        self.shared.env.blocking(found).await
    }

    fn stats(&self) -> Stats {
        let free = self.shared.free_bytes_lately();
        let index = self.shared.index();
        Stats {
            records: index.records(),
            bytes: index.bytes(),
            fragments: index.fragments(),
            file_bytes: self.shared.file_bytes.load(Ordering::SeqCst),
            free_bytes: free.saturating_sub(self.shared.reserve_free_bytes),
            damaged: index.damaged(),
            poisoned: self.shared.poisoned.load(Ordering::SeqCst),
        }
    }

    fn upkeep(&self) -> Option<&dyn Upkeep> {
        Some(self)
    }

    async fn close(&self) -> Result<(), StoreError> {
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
}

impl std::fmt::Debug for LogStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogStore({} records)", self.shared.index().records())
    }
}
