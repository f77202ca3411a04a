//! What goes on while peers are killed: files and versions put all the time, and whatever was acknowledged read again.
//!
//! Nothing of a content is kept but the seed that it is made of, so that it can be compared however much there is. A put that
//! is not acknowledged is forgotten: it may be there or not. Versions go as `hold object put --lines` sends them: a batch
//! that too few holders took goes again as it is, so it makes the same versions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use author::objects::{
    Object, Objects, ObjectsOptions, PolicyOptions, Value, VersionId, WriteOptions,
};
use author::{Author, NoProgress, PutOptions, State};
use bytes::Bytes;
use crypto::RecordId;
use futures::{StreamExt, stream};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::community::Community;
use crate::error::BenchError;
use crate::load::authors;
use crate::seeded::Seeded;
use crate::stop::Stop;

/// How long what was acknowledged may take to be read while peers are killed: holders that are away come back.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(60);
/// How long a batch of versions is sent again.
const AGAIN_FOR: Duration = Duration::from_secs(60);
const AGAIN_AFTER: Duration = Duration::from_millis(300);
/// The pause between two puts of a writer, two reads of a reader.
const PAUSE: Duration = Duration::from_millis(300);
/// Objects, sealed and open in turn, and versions of one batch at most.
const OBJECTS: usize = 4;
const BATCH_MAX: usize = 8;
const VALUE_BYTES_MAX: usize = 2_000;
/// Contents looked at, at once, when it is over.
const AT_ONCE: usize = 8;
/// How long leases last: longer than any run.
const LEASE_S: u64 = 30 * 24 * 3600;

/// A file that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    address: RecordId,
    seed: u64,
    bytes: usize,
}

/// A version that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    object: usize,
    id: VersionId,
    seed: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Counts {
    pub(super) files: usize,
    pub(super) bytes: u64,
    pub(super) puts_refused: usize,
    pub(super) versions: usize,
    pub(super) batches_refused: usize,
    pub(super) reads: usize,
    /// Reads that had to be tried again: too many of the holders were away.
    pub(super) reads_again: usize,
    /// Reads that did not succeed within the limit.
    pub(super) late: usize,
    /// Reads that gave other bytes.
    pub(super) wrong: usize,
}

#[derive(Default)]
struct Ledger {
    files: Vec<File>,
    versions: Vec<Kept>,
    counts: Counts,
    told: Vec<String>,
}

/// Writers and readers of one community, in this process.
pub(super) struct Traffic {
    author: Arc<Author>,
    /// As the writer has them.
    objects: Vec<Object>,
    /// As a reader has them that remembers nothing.
    unremembered: Vec<Object>,
    ledger: Mutex<Ledger>,
    over: AtomicBool,
    largest: usize,
}

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Seeded::new(seed).fill(&mut content);
    content
}

fn value(seed: u64) -> Bytes {
    content(seed, 1 + Seeded::new(!seed).below(VALUE_BYTES_MAX)).into()
}

/// How a read of what was acknowledged ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Right,
    Wrong,
    Failed,
}

impl Read {
    /// Whether a read that ended so, so long after it began, is late; none where it is tried again.
    fn is_late(self, took: Duration) -> Option<bool> {
        match self {
            Self::Wrong => Some(false),
            Self::Right | Self::Failed if took > READ_LIMIT => Some(true),
            Self::Right => Some(false),
            Self::Failed => None,
        }
    }
}

impl Traffic {
    /// An author with its objects; the largest file has so many bytes.
    pub(super) async fn new(
        community: &Community,
        largest: usize,
        stop: &Stop,
    ) -> Result<Arc<Self>, BenchError> {
        let author = authors::author(community, 0, Some(LEASE_S), stop).await?;
        let writing = Objects::new(&author, ObjectsOptions::default());
        let reading =
            Objects::new(&author, ObjectsOptions { cache_bytes: 0, ..Default::default() });
        let (mut objects, mut unremembered) = (Vec::new(), Vec::new());
        for number in 0..OBJECTS {
            let (name, open) = (format!("object {number}"), number % 2 == 1);
            let policy = PolicyOptions { open, ..PolicyOptions::default() };
            objects.push(writing.create(name.as_bytes(), policy).await?);
            unremembered.push(match open {
                true => reading.plain(reading.public_key(), name.as_bytes())?,
                false => reading.sealed(name.as_bytes())?,
            });
        }
        let (ledger, over) = (Mutex::default(), AtomicBool::new(false));
        Ok(Arc::new(Self { author, objects, unremembered, ledger, over, largest }))
    }

    /// Begins; whoever wants it to end calls [`Traffic::end`] and joins the tasks.
    pub(super) fn start(self: &Arc<Self>, seed: u64) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let draws = |number: u64| Seeded::new(seed.wrapping_mul(31).wrapping_add(number));
        for number in 0..2 {
            let (this, draws) = (Arc::clone(self), draws(number));
            tasks.spawn(async move { this.put_files(draws).await });
            let (this, draws) = (Arc::clone(self), Seeded::new(!seed ^ number));
            tasks.spawn(async move { this.read_again(draws).await });
        }
        let (this, draws) = (Arc::clone(self), draws(2));
        tasks.spawn(async move { this.put_versions(draws).await });
        tasks
    }

    /// Nothing new is begun from now on.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(super) fn counts(&self) -> Counts {
        self.ledger().counts
    }

    /// What went wrong, for people.
    pub(super) fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.ledger().told)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Every change is complete in itself.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Acquire)
    }

    async fn put_files(&self, mut draws: Seeded) {
        while self.goes_on() {
            let bytes = match draws.below(10) {
                0 => 1 + draws.below(self.largest),
                1..=3 => 20_000 + draws.below(280_000),
                _ => 1 + draws.below(20_000),
            };
            let seed = draws.next();
            let content = content(seed, bytes);
            let put = self.author.put(&content[..], PutOptions::default(), Arc::new(NoProgress));
            let put = put.await.ok().map(|put| File { address: put.address, seed, bytes });
            self.note_put(put);
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn note_put(&self, file: Option<File>) {
        let mut ledger = self.ledger();
        match file {
            Some(file) => {
                ledger.files.push(file);
                ledger.counts.files += 1;
                ledger.counts.bytes += file.bytes as u64;
            }
            None => ledger.counts.puts_refused += 1,
        }
    }

    async fn put_versions(&self, mut draws: Seeded) {
        let mut bases: Vec<Option<VersionId>> = vec![None; self.objects.len()];
        while self.goes_on() {
            let object = draws.below(self.objects.len());
            let seeds: Vec<u64> = (0..=draws.below(BATCH_MAX)).map(|_| draws.next()).collect();
            let written = self.put_batch(object, bases[object], &seeds).await;
            if let Some((id, _)) = written.as_ref().and_then(|written| written.last()) {
                bases[object] = Some(*id);
            }
            self.note_batch(object, written);
            tokio::time::sleep(PAUSE / 2).await;
        }
    }

    fn note_batch(&self, object: usize, written: Option<Vec<(VersionId, u64)>>) {
        let mut ledger = self.ledger();
        let Some(written) = written else {
            ledger.counts.batches_refused += 1;
            return;
        };
        ledger.counts.versions += written.len();
        let kept = written.into_iter().map(|(id, seed)| Kept { object, id, seed });
        ledger.versions.extend(kept);
    }

    /// Sends one batch until it is stored; the versions that were acknowledged, `None` where some were not in time.
    async fn put_batch(
        &self,
        object: usize,
        base: Option<VersionId>,
        seeds: &[u64],
    ) -> Option<Vec<(VersionId, u64)>> {
        let started = Instant::now();
        loop {
            let object = &self.objects[object];
            let mut batch = object.objects().batch(WriteOptions::default());
            let mut base = base;
            for seed in seeds {
                let put = batch.put(object, base.as_ref(), Value::Bytes(value(*seed)));
                base = Some(put.await.ok()?);
            }
            let sent = batch.send().await.unwrap_or_default();
            let ids: Vec<_> = sent.iter().flatten().map(|written| written.id).collect();
            if ids.len() == seeds.len() {
                return Some(ids.into_iter().zip(seeds.iter().copied()).collect());
            }
            if started.elapsed() > AGAIN_FOR {
                return None;
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    /// Reads what was acknowledged, anything of it, again and again.
    async fn read_again(&self, mut draws: Seeded) {
        while self.goes_on() {
            let (file, version) = {
                let ledger = self.ledger();
                let file = (!ledger.files.is_empty())
                    .then(|| ledger.files[draws.below(ledger.files.len())]);
                let version = (!ledger.versions.is_empty())
                    .then(|| ledger.versions[draws.below(ledger.versions.len())]);
                (file, version)
            };
            if let Some(file) = file {
                self.until_read(|| self.read_file(file), || format!("{file:?}")).await;
            }
            if let Some(kept) = version {
                self.until_read(|| self.read_version(kept), || format!("{kept:?}")).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn until_read<F: Future<Output = (Read, String)>>(
        &self,
        read: impl Fn() -> F,
        what: impl Fn() -> String,
    ) {
        let started = Instant::now();
        let mut again = 0;
        loop {
            let (read, told) = read().await;
            let took = started.elapsed();
            let Some(late) = read.is_late(took) else {
                again = 1;
                tokio::time::sleep(AGAIN_AFTER).await;
                continue;
            };
            let mut ledger = self.ledger();
            ledger.counts.reads += 1;
            ledger.counts.reads_again += again;
            ledger.counts.late += usize::from(late);
            ledger.counts.wrong += usize::from(read == Read::Wrong);
            if late || read == Read::Wrong {
                ledger.told.push(format!("{}: after {:.0} s: {told}", what(), took.as_secs_f64()));
            }
            return;
        }
    }

    async fn read_file(&self, file: File) -> (Read, String) {
        let mut got = Vec::new();
        let get = self.author.get(file.address, &mut got, None, Arc::new(NoProgress)).await;
        let expected = content(file.seed, file.bytes);
        match get {
            Ok(_) if got == expected => (Read::Right, "as it was put".to_owned()),
            Ok(_) => (Read::Wrong, "other bytes".to_owned()),
            Err(_) if !expected.starts_with(&got) => {
                (Read::Wrong, "other bytes before an error".to_owned())
            }
            Err(error) => (Read::Failed, error.to_string()),
        }
    }

    async fn read_version(&self, kept: Kept) -> (Read, String) {
        match self.unremembered[kept.object].get(&kept.id).await {
            Ok(got) if got.bytes() == Some(&value(kept.seed)[..]) => {
                (Read::Right, "as it was put".to_owned())
            }
            Ok(_) => (Read::Wrong, "another value".to_owned()),
            Err(error) => (Read::Failed, error.to_string()),
        }
    }

    /// The files that have not everything they should: each copy and each fragment is read at its holder and proven.
    pub(super) async fn lacking(&self) -> usize {
        let files = self.ledger().files.clone();
        let checked = stream::iter(files).map(|file| async move {
            let checked = self.author.check(file.address, 100).await;
            let full = checked.as_ref().is_ok_and(|found| found.state == State::Full);
            (!full).then(|| match checked {
                Ok(found) => format!("{file:?}: {} copies and fragments lack", found.missing),
                Err(error) => format!("{file:?}: {error}"),
            })
        });
        let lacking: Vec<String> =
            checked.buffer_unordered(AT_ONCE).filter_map(|told| async { told }).collect().await;
        let count = lacking.len();
        self.ledger().told.extend(lacking);
        count
    }

    /// Reads everything that was ever acknowledged; how many files and versions are not as they were put.
    pub(super) async fn lost(&self) -> usize {
        let (files, versions) = {
            let ledger = self.ledger();
            (ledger.files.clone(), ledger.versions.clone())
        };
        let files = stream::iter(files)
            .map(|file| async move { (self.read_file(file).await, format!("{file:?}")) });
        let files: Vec<_> = files.buffer_unordered(AT_ONCE).collect().await;
        let versions = stream::iter(versions)
            .map(|kept| async move { (self.read_version(kept).await, format!("{kept:?}")) });
        let versions: Vec<_> = versions.buffer_unordered(AT_ONCE).collect().await;
        let lost = files.into_iter().chain(versions).filter(|((read, _), _)| *read != Read::Right);
        let told: Vec<String> = lost.map(|((_, told), what)| format!("{what}: {told}")).collect();
        let count = told.len();
        self.ledger().told.extend(told);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_is_right_after_the_limit_is_late_and_one_that_failed_before_it_is_tried_again() {
        let (in_time, later) = (READ_LIMIT, READ_LIMIT + Duration::from_millis(1));
        assert_eq!([Read::Right, Read::Failed].map(|read| read.is_late(later)), [Some(true); 2]);
        assert_eq!(Read::Right.is_late(in_time), Some(false));
        assert_eq!(Read::Failed.is_late(in_time), None);
        // It is counted as what is worse.
        assert_eq!([in_time, later].map(|took| Read::Wrong.is_late(took)), [Some(false); 2]);
    }
}
