//! The publication log: every publication once, in the order in which this peer learnt of it.
//!
//! One task appends. What comes while it waits for the disk is its next batch, so one fsync serves
//! many publications, and whether one is there already is decided in one place.
//!
//! ```text
//!   stored here ---\                              /--> spread to other peers (those stored here)
//!   news        -----> queue -> known? -> append --
//!   caught up   ---/              \--> answered    \--> subscribers are woken
//! ```
//!
//! Invariants:
//! 1. Times in the log never fall, so that a place in it is found by time.
//! 2. A publication is answered, spread and shown to subscribers only when it is durable.
//!
//! Limits: [`QUEUE_MAX`] wait (news beyond it are dropped and caught up later; stores wait),
//! [`APPEND_MAX`] in a batch; [`SPREAD_MAX`] wait to be spread, [`GIVEN_MAX`] of them for others, and what does
//! not fit is left to the others' catching up.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crypto::{RecordId, Suite};
use document::{Bloom, Publication};
use env::Env;
use env::calls::CallError;
use store::{Journal, StoreError};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::metrics::{Metrics, Source};
use crate::remembered::{REMEMBERED_MAX, Remembered};
use crate::shelf;
use crate::spread::ToSpread;

/// Publications waiting to be logged.
const QUEUE_MAX: usize = 4096;
/// Publications of one append.
const APPEND_MAX: usize = 512;
/// How long publications that nobody waits for are gathered, for one fsync of them all: each peer logs what any peer
/// stores, so with 64 peers an fsync each would be 64 of every put. Where nothing was logged for a while,
const GATHER_FOR: Duration = Duration::from_millis(100);
/// and from one time to the next where much is: with the half second of the teller, all know within a second.
const GATHER_EVERY: Duration = Duration::from_millis(400);
/// Envelopes waiting to be spread.
pub(crate) const SPREAD_MAX: usize = 8192;
/// Of those, what other peers gave this one to tell: its own publications have room whatever these do.
pub(crate) const GIVEN_MAX: usize = SPREAD_MAX / 4;
/// Publications read at once while the log is read at the start.
const READ_MAX: usize = 1024;

/// A publication on its way into the log.
pub(crate) struct Entry {
    key: RecordId,
    publication: Bytes,
    /// The envelope, where this peer is to spread it.
    envelope: Option<Bytes>,
    source: Source,
    answer: Option<oneshot::Sender<Result<(), CallError>>>,
}

impl Entry {
    /// Of an envelope that was stored here, with its bytes.
    pub(crate) fn stored(suite: Suite, publication: &Publication, envelope: Bytes) -> Self {
        let publication = publication.encode();
        let (key, source) = (suite.id(&publication), Source::Stored);
        Self { key, publication, envelope: Some(envelope), source, answer: None }
    }
}

/// The log and what leads into it.
pub(crate) struct Publications {
    env: Env,
    suite: Suite,
    journal: Arc<Journal>,
    queue: mpsc::Sender<Entry>,
    spread: mpsc::Sender<ToSpread>,
    /// Room for envelopes of others: each keeps its part until it is told.
    given: Arc<Semaphore>,
    remembered: Mutex<Remembered>,
    /// The time of the last row of the log. A calendar that was ahead once leaves it ahead.
    last_ms: AtomicU64,
    /// See [`Publications::begin_ms`].
    begin_ms: u64,
    /// The end of the log, told to subscribers.
    end: watch::Sender<u64>,
    metrics: Arc<Metrics>,
    /// From when on others' logs are to be read again, Unix milliseconds; [`NOT_AGAIN`] for no time.
    again_ms: AtomicU64,
}

/// Nothing is to be caught up again.
const NOT_AGAIN: u64 = u64::MAX;

/// The other ends of the queues: one for the task that appends, one for the task that spreads.
pub(crate) struct Outlets {
    pub(crate) queue: mpsc::Receiver<Entry>,
    pub(crate) spread: mpsc::Receiver<ToSpread>,
}

impl Publications {
    /// Reads the newest part of the log, to know what is in it.
    pub(crate) async fn open(
        env: Env,
        suite: Suite,
        journal: Arc<Journal>,
        metrics: Arc<Metrics>,
    ) -> Result<(Arc<Self>, Outlets), StoreError> {
        Self::open_with(env, suite, journal, metrics, REMEMBERED_MAX).await
    }

    /// [`Publications::open`] with so many remembered at most.
    async fn open_with(
        env: Env,
        suite: Suite,
        journal: Arc<Journal>,
        metrics: Arc<Metrics>,
        remembered_max: usize,
    ) -> Result<(Arc<Self>, Outlets), StoreError> {
        let mut remembered = Remembered::up_to(remembered_max);
        let (mut last_ms, mut begin_ms) = (0, 0);
        let now = env.clock.unix_ms();
        let mut at = journal.end().saturating_sub(remembered_max as u64).max(journal.start());
        while at < journal.end() {
            let entries = journal.read(at, READ_MAX).await?;
            // Nothing at all means that the rest is damaged.
            let Some((last, ..)) = entries.last() else { break };
            at = last + 1;
            for (_, logged_ms, publication) in &entries {
                // A calendar that was ahead says nothing but that it was before now.
                remembered.insert(&suite.id(publication), now.min(*logged_ms));
                last_ms = last_ms.max(*logged_ms);
                if *logged_ms <= now {
                    begin_ms = begin_ms.max(*logged_ms);
                }
            }
        }
        let (queue, queued) = mpsc::channel(QUEUE_MAX);
        let (spread, spreading) = mpsc::channel(SPREAD_MAX);
        let (end, _) = watch::channel(journal.end());
        let remembered = Mutex::new(remembered);
        let last_ms = AtomicU64::new(last_ms);
        let again_ms = AtomicU64::new(NOT_AGAIN);
        let publications = Self {
            env,
            suite,
            journal,
            queue,
            spread,
            given: Arc::new(Semaphore::new(GIVEN_MAX)),
            remembered,
            last_ms,
            begin_ms,
            end,
            metrics,
            again_ms,
        };
        Ok((Arc::new(publications), Outlets { queue: queued, spread: spreading }))
    }

    /// The log itself.
    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Told whenever the log grew.
    pub(crate) fn grown(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// Envelopes waiting to be spread.
    pub(crate) fn spreading(&self) -> usize {
        self.spread.max_capacity() - self.spread.capacity()
    }

    /// When the last publication was logged before the start, Unix milliseconds; 0 where none was.
    ///
    /// Times that were ahead of the calendar then do not count: others log nothing at such times, so nothing would
    /// be caught up. Where memory has no other time, it is not known for how long, and this is 0 too.
    pub(crate) fn begin_ms(&self) -> u64 {
        self.begin_ms
    }

    /// A publication that another peer told, and that is proven; `None` where it is in the log, as far as memory goes.
    pub(crate) fn heard(&self, publication: Bytes, source: Source) -> Option<Entry> {
        let key = self.suite.id(&publication);
        let known = self.remembered().contains(&key);
        (!known).then_some(Entry { key, publication, envelope: None, source, answer: None })
    }

    /// The keys of those logged from then on, Unix milliseconds, as far as memory goes, in a filter as
    /// [`env::calls::SubscribeRequest::known`] says; `None` where there are none, or more than so many. Some milliseconds of work
    /// for a hundred thousand.
    pub(crate) fn known_since(&self, unix_ms: u64, seed: u64, keys_max: usize) -> Option<Bloom> {
        let keys = self.remembered().since(unix_ms);
        if keys.len() > keys_max {
            return None;
        }
        // What it takes wrongly for known is not asked for again of that peer.
        let mut bloom = Bloom::strict(keys.len(), seed);
        keys.iter().for_each(|key| bloom.insert(key));
        (!keys.is_empty()).then_some(bloom)
    }

    /// Whether a publication is in the log, as far as memory goes.
    pub(crate) fn knows(&self, publication: &Bytes) -> bool {
        self.remembered().contains(&self.suite.id(publication))
    }

    /// Of these publications, those that are not in the log. What memory does not have of it is read, from the
    /// newest back, until all are found.
    pub(crate) async fn not_logged(
        &self,
        publications: &[Bytes],
    ) -> Result<HashSet<Bytes>, StoreError> {
        let mut sought: HashSet<Bytes> = publications.iter().cloned().collect();
        // Before the log's end is looked at: what is logged meanwhile is remembered.
        let remembered = self.remembered().len() as u64;
        let (start, mut end) =
            (self.journal.start(), self.journal.end().saturating_sub(remembered));
        while start < end && !sought.is_empty() {
            let from = end.saturating_sub(READ_MAX as u64).max(start);
            let mut at = from;
            while at < end {
                let entries = self.journal.read(at, READ_MAX).await?;
                let Some((last, ..)) = entries.last() else { break };
                at = last + 1;
                for (.., publication) in &entries {
                    sought.remove(publication);
                }
            }
            end = from;
        }
        Ok(sought)
    }

    /// See [`Remembered::floor_ms`].
    pub(crate) fn floor_ms(&self) -> u64 {
        self.remembered().floor_ms()
    }

    /// Reads the newest part of the log, with a pause after each page, and forgets what is remembered
    /// of it and was not found: its entry is damaged, and catching up brings it again, at the log's
    /// end. How many those were; `None` where `pause` says that the peer stops.
    ///
    /// What is not newer than the first entry that reads well has expired, or stays lost. Meanwhile
    /// it takes as much memory again as what is remembered, twice.
    pub(crate) async fn check<P: Future<Output = bool>>(
        &self,
        pause: impl Fn(usize) -> P,
    ) -> Result<Option<usize>, StoreError> {
        // What is logged meanwhile is the next check's.
        let before = self.remembered().clone();
        let end = self.journal.end();
        let mut at = end.saturating_sub(REMEMBERED_MAX as u64).max(self.journal.start());
        let mut found = Remembered::default();
        let mut first_ms = None;
        while at < end {
            let entries = self.journal.read(at, READ_MAX).await?;
            let Some((last, ..)) = entries.last() else { break };
            at = last + 1;
            let mut bytes = 0;
            for (_, logged_ms, publication) in &entries {
                let key = self.suite.id(publication);
                // As it is remembered: the log's time may be ahead.
                first_ms.get_or_insert_with(|| before.time_of(&key).unwrap_or(*logged_ms));
                bytes += publication.len();
                found.insert(&key, *logged_ms);
            }
            if !pause(bytes).await {
                return Ok(None);
            }
        }
        let Some(first_ms) = first_ms else { return Ok(Some(0)) };
        let missing = before.missing(&found, first_ms);
        if let Some(oldest_ms) = missing.iter().map(|(_, logged_ms)| *logged_ms).min() {
            self.remembered().forget(&missing);
            self.again_ms.fetch_min(oldest_ms, Ordering::Relaxed);
        }
        Ok(Some(missing.len()))
    }

    /// From when on others' logs are to be read again, Unix milliseconds, told once.
    pub(crate) fn take_again(&self) -> Option<u64> {
        let again_ms = self.again_ms.swap(NOT_AGAIN, Ordering::Relaxed);
        (again_ms != NOT_AGAIN).then_some(again_ms)
    }

    /// Logs publications; answers when all of them are durable. Waits where the queue is full.
    ///
    /// # Errors
    /// The first error of the log. Dropping the future does not undo it.
    pub(crate) async fn log(&self, entries: Vec<Entry>) -> Result<(), CallError> {
        let mut answers = Vec::with_capacity(entries.len());
        for mut entry in entries {
            let (answer, answered) = oneshot::channel();
            entry.answer = Some(answer);
            let sent = self.queue.send(entry).await;
            sent.map_err(|_| shelf::refusal(&StoreError::Closed))?;
            answers.push(answered);
        }
        for answered in answers {
            answered.await.unwrap_or_else(|_| Err(shelf::refusal(&StoreError::Closed)))?;
        }
        Ok(())
    }

    /// Spreads envelopes that another peer gave this one to tell of; `false`, and none of them, where too many such wait.
    pub(crate) fn carry(&self, envelopes: &[Bytes]) -> bool {
        let rooms = envelopes.iter().map(|_| Arc::clone(&self.given).try_acquire_owned());
        let Ok(rooms) = rooms.collect::<Result<Vec<_>, _>>() else { return false };
        let Ok(places) = self.spread.try_reserve_many(envelopes.len()) else { return false };
        for ((place, room), envelope) in places.zip(rooms).zip(envelopes) {
            place.send(ToSpread::Given(envelope.clone(), room));
        }
        true
    }

    /// Logs a publication when there is time; `false` where the queue is full.
    pub(crate) fn offer(&self, entry: Entry) -> bool {
        self.queue.try_send(entry).is_ok()
    }

    /// Appends what comes, until `stop`; what waits then is still appended.
    pub(crate) async fn append_all(
        self: Arc<Self>,
        mut queue: mpsc::Receiver<Entry>,
        stop: CancellationToken,
    ) {
        let (mut batch, mut logged_at) = (Vec::new(), None);
        loop {
            let more = tokio::select! {
                biased;
                () = stop.cancelled(), if !queue.is_closed() => {
                    queue.close();
                    continue;
                }
                more = queue.recv_many(&mut batch, APPEND_MAX) => more,
            };
            if more == 0 {
                return;
            }
            let now = self.env.clock.elapsed();
            let next = logged_at.map_or(now, |at: Duration| at + GATHER_EVERY);
            let wait = next.saturating_sub(now).max(GATHER_FOR);
            self.gather(&mut queue, &mut batch, wait, &stop).await;
            self.append(std::mem::take(&mut batch)).await;
            logged_at = Some(self.env.clock.elapsed());
        }
    }

    /// Takes what else comes within a time, while nobody waits for any of it.
    async fn gather(
        &self,
        queue: &mut mpsc::Receiver<Entry>,
        batch: &mut Vec<Entry>,
        wait: Duration,
        stop: &CancellationToken,
    ) {
        let until = self.env.clock.sleep(wait);
        tokio::pin!(until);
        while batch.len() < APPEND_MAX && batch.iter().all(|entry| entry.answer.is_none()) {
            let room = APPEND_MAX - batch.len();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                more = queue.recv_many(batch, room) => if more == 0 { return },
                () = &mut until => return,
            }
        }
    }

    async fn append(&self, batch: Vec<Entry>) {
        let mut fresh: Vec<Entry> = Vec::new();
        let mut keys = HashSet::new();
        let mut answers = Vec::new();
        let mut rows = Vec::new();
        // The calendar may jump back; the log must not. Memory keeps the calendar's time, which others log at.
        let calendar_ms = self.env.clock.unix_ms();
        let now = calendar_ms.max(self.last_ms.load(Ordering::Relaxed));
        self.last_ms.store(now, Ordering::Relaxed);
        for mut entry in batch {
            answers.extend(entry.answer.take());
            if self.remembered().contains(&entry.key) || !keys.insert(entry.key) {
                continue;
            }
            rows.push((now, entry.publication.clone()));
            fresh.push(entry);
        }
        let result = if rows.is_empty() {
            Ok(())
        } else {
            let appended = self.journal.append(rows).await;
            appended.map(drop).map_err(|error| shelf::refusal(&error))
        };
        match &result {
            Ok(()) => fresh.into_iter().for_each(|entry| self.logged(entry, calendar_ms)),
            Err(error) => tracing::warn!(%error, count = fresh.len(), "publications not logged"),
        }
        self.end.send_replace(self.journal.end());
        for answer in answers {
            // A caller that went away is no error.
            let _ = answer.send(result.clone());
        }
    }

    fn logged(&self, entry: Entry, calendar_ms: u64) {
        self.remembered().insert(&entry.key, calendar_ms);
        self.metrics.published(entry.source);
        if let Some(envelope) = entry.envelope
            && self.spread.try_send(ToSpread::Stored(envelope)).is_err()
        {
            self.metrics.spread_lost(1);
        }
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use futures::FutureExt;
    use store::{Durability, JournalOptions};
    use testkit::disk::FaultyDisk;
    use testkit::time::run;

    use super::*;

    /// An empty journal.
    pub(crate) fn journal(env: &Env) -> Arc<Journal> {
        let options = JournalOptions { durability: Durability::Memory, ..Default::default() };
        Journal::open(Arc::new(FaultyDisk::new(1)), env.clone(), "news", options).unwrap()
    }

    /// A log that remembers so many at most, and what it gives to be spread.
    pub(crate) async fn log_of(
        env: &Env,
        journal: Arc<Journal>,
        remembered_max: usize,
    ) -> (Arc<Publications>, mpsc::Receiver<ToSpread>) {
        let (env, suite, metrics) = (env.clone(), Suite::Holdfast1, Arc::new(Metrics::new()));
        let tasks = Arc::clone(&env.tasks);
        let opening = Publications::open_with(env, suite, journal, metrics, remembered_max);
        let (publications, outlets) = opening.await.unwrap();
        let appending = Arc::clone(&publications).append_all(outlets.queue, Default::default());
        tasks.spawn(appending.boxed()).detach();
        (publications, outlets.spread)
    }

    /// Logs what another peer told.
    pub(crate) async fn learn(log: &Publications, told: impl IntoIterator<Item = Bytes>) {
        let heard = |publication| log.heard(publication, Source::CatchUp);
        log.log(told.into_iter().filter_map(heard).collect()).await.unwrap();
    }

    pub(crate) fn publication(number: u64) -> Bytes {
        number.to_be_bytes().to_vec().into()
    }

    #[test]
    fn what_others_give_leaves_room_for_what_is_stored_here() {
        run(1, |env| async move {
            let (log, mut spread) = log_of(&env, journal(&env), 8).await;
            let some = vec![publication(1); 128];
            let taken = (0..SPREAD_MAX / 128).filter(|_| log.carry(&some)).count();
            assert_eq!(taken, GIVEN_MAX / 128);
            let stored = Entry {
                key: RecordId::new([1; 32]),
                publication: publication(2),
                envelope: Some(publication(3)),
                source: Source::Stored,
                answer: None,
            };
            log.log(vec![stored]).await.unwrap();
            assert_eq!(log.spreading(), GIVEN_MAX + 1);
            assert!(!log.carry(&[publication(4)]));
            let first = spread.recv().await;
            assert!(matches!(&first, Some(ToSpread::Given(..))));
            assert!(!log.carry(&[publication(4)]), "out of the queue, and not told yet");
            drop(first);
            assert!(log.carry(&[publication(4)]));
        });
    }

    #[test]
    fn what_is_known_is_told_of_so_many_publications_and_no_more() {
        run(4, |env| async move {
            let (log, _spread) = log_of(&env, journal(&env), 16).await;
            assert!(log.known_since(0, 1, 10).is_none(), "there are none");
            learn(&log, (0..10).map(publication)).await;
            assert!(log.known_since(0, 1, 9).is_none());
            let known = log.known_since(0, 1, 10).unwrap();
            let key = Suite::Holdfast1.id(&publication(9));
            assert!(known.may_contain(&key.as_bytes()[..env::calls::KNOWN_KEY_BYTES]));
        });
    }

    #[test]
    fn what_memory_forgot_is_found_in_the_log() {
        run(2, |env| async move {
            let (log, _spread) = log_of(&env, journal(&env), 8).await;
            learn(&log, (0..3000).map(publication)).await;
            assert!(!log.knows(&publication(5)) && log.knows(&publication(2995)));
            let some = [0, 5, 1023, 1024, 2000, 2991, 4000, 4001].map(publication);
            let new = log.not_logged(&some).await.unwrap();
            assert_eq!(new, HashSet::from([publication(4000), publication(4001)]));
        });
    }

    #[test]
    fn a_calendar_that_was_ahead_moves_neither_the_beginning_nor_the_floor() {
        run(3, |env| async move {
            let now = env.clock.unix_ms();
            let (before, ahead) = (now - 3_600_000, now + 365 * 24 * 3_600_000);
            let journal = journal(&env);
            let rows = (0..20).map(|n| (if n < 10 { before } else { ahead }, publication(n)));
            journal.append(rows.collect()).await.unwrap();
            let (log, _spread) = log_of(&env, Arc::clone(&journal), 30).await;
            assert_eq!(log.begin_ms(), before);
            let (log, _spread) = log_of(&env, Arc::clone(&journal), 8).await;
            assert_eq!(log.begin_ms(), 0, "nothing tells how long ago it was");
            assert_eq!(log.floor_ms(), 0);
            env.clock.sleep(Duration::from_secs(10)).await;
            learn(&log, [publication(20)]).await;
            assert_eq!(log.floor_ms(), now);
            learn(&log, (21..30).map(publication)).await;
            assert_eq!(log.floor_ms(), now + 10_000, "others log at this time");
            let times = journal.read(19, 2).await.unwrap();
            assert!(times.iter().all(|(_, at, _)| *at == ahead), "in the log they never fall");
        });
    }
}
