//! Upkeep in virtual time: the disk read again within its budget, damage told and mended, dead space
//! given back, and all of it ended with the peer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use crypto::{RecordId, Suite, Tier};
use document::{Kind, Record};
use env::Env;
use env::calls::keep::{KeepAnswer, KeepRequest};
use env::calls::{FindRequest, FindResponse};
use env::disk::Disk;
use librarian::UpkeepOptions;
use store::{
    Compaction, CompactionOptions, Damaged, LogOptions, LogStore, Part, RecordStore, ScrubCursor,
    ScrubStep, Stats, StoreError, Upkeep,
};
use testkit::disk::FaultyDisk;

use crate::lines::Lines;
use crate::repair::quick;
use crate::subscribers::rot_entry;
use crate::town::{LIMIT, Town, envelope, page};

const SUITE: Suite = Suite::Holdfast1;
const SEGMENT_BYTES: u64 = 64 << 10;
const RECORD_BYTES: usize = 10_000;
const MINUTE: Duration = Duration::from_secs(60);

/// A log store that notes when it was scrubbed, and how much was done to it at once.
pub(crate) struct Watched {
    inner: Arc<LogStore>,
    env: Env,
    steps: Mutex<Vec<(Duration, u64)>>,
    scrubbing: AtomicUsize,
    compacting: AtomicUsize,
    overlapped: AtomicBool,
    compactions: AtomicUsize,
    /// A record that is written so late.
    late: Mutex<Option<(RecordId, Duration)>>,
    /// How often that was begun.
    late_writes: AtomicUsize,
}

impl Watched {
    pub(crate) fn open(disk: &FaultyDisk, env: &Env) -> Arc<Self> {
        let options = LogOptions {
            segment_bytes_max: SEGMENT_BYTES,
            reserve_free_bytes: 0,
            ..LogOptions::default()
        };
        let inner = LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap();
        Arc::new(Self {
            inner,
            env: env.clone(),
            steps: Mutex::default(),
            scrubbing: AtomicUsize::new(0),
            compacting: AtomicUsize::new(0),
            overlapped: AtomicBool::new(false),
            compactions: AtomicUsize::new(0),
            late: Mutex::default(),
            late_writes: AtomicUsize::new(0),
        })
    }

    /// From now on this record is written so late.
    pub(crate) fn write_late(&self, id: RecordId, by: Duration) {
        *self.late.lock().unwrap() = Some((id, by));
    }

    /// How often such a write was begun.
    pub(crate) fn late_writes(&self) -> usize {
        self.late_writes.load(Ordering::SeqCst)
    }

    fn steps(&self) -> Vec<(Duration, u64)> {
        self.steps.lock().unwrap().clone()
    }

    async fn alone<T>(&self, counter: &AtomicUsize, work: impl Future<Output = T>) -> T {
        /// Counts down where the work is dropped, too.
        struct Leave<'a>(&'a AtomicUsize);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        if counter.fetch_add(1, Ordering::SeqCst) > 0 {
            self.overlapped.store(true, Ordering::SeqCst);
        }
        let _leave = Leave(counter);
        work.await
    }
}

#[async_trait]
impl Upkeep for Watched {
    fn scrub_start(&self, random: u64) -> ScrubCursor {
        self.inner.scrub_start(random)
    }

    async fn scrub_step(&self, from: ScrubCursor, bytes_max: u64) -> Result<ScrubStep, StoreError> {
        let work = Upkeep::scrub_step(&*self.inner, from, bytes_max);
        let step = self.alone(&self.scrubbing, work).await?;
        self.steps.lock().unwrap().push((self.env.clock.elapsed(), step.bytes));
        Ok(step)
    }

    async fn damaged(&self, from: &RecordId, limit: usize) -> Result<Vec<Damaged>, StoreError> {
        self.inner.damaged(from, limit).await
    }

    fn is_damaged(&self, id: &RecordId) -> bool {
        self.inner.is_damaged(id)
    }

    async fn compact(
        &self,
        options: CompactionOptions,
        done: &mut Compaction,
    ) -> Result<(), StoreError> {
        self.compactions.fetch_add(1, Ordering::SeqCst);
        self.alone(&self.compacting, Upkeep::compact(&*self.inner, options, done)).await
    }

    fn dead_bytes(&self) -> u64 {
        self.inner.dead_bytes()
    }

    fn lost_records(&self) -> bool {
        self.inner.lost_records()
    }
}

#[async_trait]
impl RecordStore for Watched {
    async fn put(&self, records: Vec<Record>) -> Result<Vec<bool>, StoreError> {
        let late = *self.late.lock().unwrap();
        if let Some((_, by)) = late.filter(|(id, _)| records.iter().any(|one| one.id == *id)) {
            self.late_writes.fetch_add(1, Ordering::SeqCst);
            self.env.clock.sleep(by).await;
        }
        self.inner.put(records).await
    }
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.inner.get(id).await
    }
    fn each_of(
        &self,
        kinds: &[Kind],
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<Vec<RecordId>, StoreError> {
        self.inner.each_of(kinds, each)
    }
    fn contains(&self, id: &RecordId) -> bool {
        self.inner.contains(id)
    }
    async fn remove(&self, ids: Vec<RecordId>) -> Result<(), StoreError> {
        self.inner.remove(ids).await
    }
    fn ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId> {
        self.inner.ids(from, limit)
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
    fn upkeep(&self) -> Option<&dyn Upkeep> {
        Some(self)
    }
    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

/// Flips a byte of a record's content, wherever it is on the disk.
pub(crate) fn damage(disk: &FaultyDisk, record: &Record) {
    let wanted = &record.bytes[record.bytes.len() - 64..];
    for name in disk.list().unwrap().into_iter().filter(|name| name.ends_with(".log")) {
        let bytes = disk.bytes(&name).unwrap();
        if let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted) {
            disk.flip(&name, at, 0x40);
            return;
        }
    }
    panic!("the record is not on the disk");
}

/// Content that no other record has, so that it is found on the disk.
fn distinct(number: u32) -> Record {
    page(number * 0x0101_0101 + 7, RECORD_BYTES + number as usize)
}

/// Scrub alone, or compaction alone, or both.
pub(crate) fn options(scrub_bytes_s: u64, compact_bytes_s: u64) -> Option<UpkeepOptions> {
    Some(UpkeepOptions {
        scrub_bytes_s,
        scrub_rest: 10 * MINUTE,
        compaction: CompactionOptions { dead_percent: 33, bytes_per_s: compact_bytes_s },
        compaction_every: MINUTE,
    })
}

/// A lone peer over this disk, and its store with these records in it.
async fn lone(
    env: &Env,
    disk: &FaultyDisk,
    records: &[Record],
    upkeep: Option<UpkeepOptions>,
) -> (Town, Arc<Watched>) {
    let mut town = Town::empty(env, 1, 1);
    let store = Watched::open(disk, env);
    for record in records {
        store.put(vec![record.clone()]).await.unwrap();
    }
    let peer = town.start(0, store.clone(), |options| options.upkeep = upkeep).await;
    town.peers.push(peer);
    (town, store)
}

fn metric(town: &Town, name: &str) -> i64 {
    let page = town.peers[0].metrics();
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("holdfast_{name} ")));
    line.expect(name).parse().unwrap()
}

#[test]
fn scrub_reads_everything_within_its_budget_and_rests_between_passes() {
    testkit::time::run(4, |env| async move {
        const RATE: u64 = 20_000;
        let records: Vec<_> = (0..40).map(distinct).collect();
        let (town, store) = lone(&env, &FaultyDisk::new(1), &records, options(RATE, 0)).await;
        town.until("two passes", |town| town.peers[0].status().store.upkeep.scrub_passes == 2)
            .await;
        let steps = store.steps();
        // In no stretch of time was more read than the rate, one step and one record allow.
        for (at, (from, _)) in steps.iter().enumerate() {
            let mut bytes = 0;
            for (to, step) in &steps[at..] {
                bytes += step;
                let most = (*to - *from).as_secs_f64() * RATE as f64;
                assert!(bytes as f64 <= most + (RATE as usize + 2 * RECORD_BYTES) as f64);
            }
        }
        // Nor was it much slower: what is promised to be read in time is.
        let files = store.stats().file_bytes;
        let read: u64 = steps.iter().map(|(_, bytes)| bytes).sum();
        assert!(read >= 2 * files * 9 / 10 && read <= 2 * files + 2 * SEGMENT_BYTES, "{read}");
        let rests: Vec<_> = steps.windows(2).map(|two| two[1].0 - two[0].0).collect();
        let long = rests.iter().filter(|rest| **rest > 5 * MINUTE).count();
        assert_eq!(long, 1, "one rest between two passes: {rests:?}");
        assert!(!store.overlapped.load(Ordering::SeqCst));
        let told = town.peers[0].status().store.upkeep;
        assert_eq!(metric(&town, "scrubbed_bytes_total"), read as i64);
        assert_eq!((told.scrubbed_bytes, told.scrub_damaged), (read, 0));
        assert_eq!(metric(&town, "scrub_passes_total"), 2);
        let last = metric(&town, "scrub_last_pass_timestamp_seconds") as u64;
        assert_eq!(told.scrub_last_pass, Some(last));
        assert!(last <= env.clock.unix_s() && last + 60 > env.clock.unix_s());
    });
}

#[test]
fn a_damaged_record_is_told_and_not_served_and_mended_once_somebody_has_it() {
    testkit::time::run(2, |env| async move {
        let disk = FaultyDisk::new(2);
        let mut town = Town::empty(&env, 3, 3);
        let store = Watched::open(&disk, &env);
        let kept = |options: &mut librarian::LibrarianOptions| {
            options.upkeep = self::options(1 << 20, 0);
        };
        let first = town.start(0, store.clone(), kept).await;
        town.peers.push(first);
        for _ in 1..3 {
            town.start_next(|_| {}).await;
        }
        let client = town.client(0, Tier::Own).await;
        let records: Vec<_> = (0..20).map(distinct).collect();
        for record in &records {
            client.store(&town.at(0), record.clone(), LIMIT).await.unwrap();
        }
        damage(&disk, &records[5]);
        let told = |town: &Town| town.peers[0].status().store;
        town.until("scrub found it", |town| told(town).damaged == 1).await;
        assert_eq!(told(&town).upkeep.scrub_damaged, 1);
        assert_eq!(metric(&town, "damaged_records"), 1);
        assert_eq!(metric(&town, "scrub_damaged_total"), 1);
        let find = |record: &Record| FindRequest { id: record.id, place: record.place };
        let found = client.find(&town.at(0), find(&records[5]), LIMIT).await.unwrap();
        assert!(matches!(found, FindResponse::Closest(_)), "{found:?}");

        // Nobody has it: it stays damaged, told once, and is asked for again and again.
        env.clock.sleep(30 * MINUTE).await;
        assert!(told(&town).upkeep.scrub_passes >= 2);
        assert_eq!((told(&town).damaged, metric(&town, "scrub_damaged_total")), (1, 1));
        // Only a reader's miss counts as one, not the peer's own looking.
        assert_eq!(metric(&town, "damaged_reads_total"), 1);
        let other = town.client_of(1, Tier::Own, &[1]).await;
        other.store(&town.at(1), records[5].clone(), LIMIT).await.unwrap();
        let since = env.clock.elapsed();
        town.until("it is mended", |town| told(town).damaged == 0).await;
        assert!(env.clock.elapsed() - since < 2 * MINUTE);
        assert_eq!(metric(&town, "mended_records_total"), 1);
        // What is left of the damaged one is no record any more, and is told apart from them.
        let passes = told(&town).upkeep.scrub_passes;
        env.clock.sleep(15 * MINUTE).await;
        assert!(told(&town).upkeep.scrub_passes > passes);
        assert_eq!(metric(&town, "scrub_damaged_ranges"), 1);
        assert_eq!(metric(&town, "scrub_damaged_total"), 1);
        // The first pass has ended by now.
        let client = town.client(0, Tier::Own).await;
        for record in &records {
            let found = client.find(&town.at(0), find(record), LIMIT).await;
            assert_eq!(found, Ok(FindResponse::Found(record.clone())));
        }
    });
}

/// Opening a store reads its last file: what is damaged there counts and is mended soon, without a scrub that comes to it.
#[test]
fn damage_that_opening_found_is_counted_and_mended_soon() {
    testkit::time::run(8, |env| async move {
        let lines = Lines::default();
        let _logs = tracing::subscriber::set_default(lines.clone());
        let disk = FaultyDisk::new(8);
        let records: Vec<_> = (0..4).map(distinct).collect();
        let before = Watched::open(&disk, &env);
        for record in &records {
            before.put(vec![record.clone()]).await.unwrap();
        }
        before.close().await.unwrap();
        damage(&disk, &records[1]);
        let mut town = Town::empty(&env, 3, 3);
        let unscrubbed = |options: &mut librarian::LibrarianOptions| {
            options.upkeep = self::options(0, 0);
        };
        let since = env.clock.elapsed();
        let first = town.start(0, Watched::open(&disk, &env), unscrubbed).await;
        town.peers.push(first);
        assert_eq!(town.peers[0].status().store.upkeep.scrub_damaged, 1);
        assert_eq!(
            (metric(&town, "scrub_damaged_total"), metric(&town, "damaged_records")),
            (1, 1)
        );
        let told = lines.with("opened with damage");
        assert!(told.len() == 1 && told[0].starts_with("ERROR"), "{told:?}");
        for _ in 1..3 {
            town.start_next(|_| {}).await;
        }
        let other = town.client_of(1, Tier::Own, &[1]).await;
        other.store(&town.at(1), records[1].clone(), LIMIT).await.unwrap();
        town.until("it is mended", |town| town.peers[0].status().store.damaged == 0).await;
        let took = env.clock.elapsed() - since;
        assert!(took < MINUTE / 2, "{took:?}");
        assert_eq!(
            (metric(&town, "scrub_damaged_total"), metric(&town, "mended_records_total")),
            (1, 1)
        );
    });
}

/// Nobody else has a fragment: it is made again, a page and parity alike, and so is a header fetched that is damaged.
#[test]
fn damaged_fragments_are_made_again_from_their_stripe_and_a_liars_are_left() {
    testkit::time::run(4, |env| async move {
        const PEERS: usize = 6;
        let disk = FaultyDisk::new(4);
        let mut town = Town::empty(&env, 3, PEERS);
        let store = Watched::open(&disk, &env);
        let kept = |options: &mut librarian::LibrarianOptions| {
            options.upkeep = self::options(1 << 20, 0);
        };
        let first = town.start(0, store.clone(), kept).await;
        town.peers.push(first);
        for _ in 1..PEERS {
            town.start_next(|_| {}).await;
        }
        town.until("all know all", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == PEERS)
        })
        .await;
        // Fragments lie with the others in no order: what the first has is the last page and the last parity.
        let good = testkit::network::stripe(1, 3, 7, RECORD_BYTES);
        // A stripe whose parity is not the code's: its author's fault.
        let lie = testkit::network::stripe(2, 3, 6, RECORD_BYTES);
        let other = testkit::network::stripe(3, 3, 7, RECORD_BYTES);
        let unplaced = |record: &Record| Record { place: record.id.into(), ..record.clone() };
        let pages = lie.fragments[..3].iter().map(unplaced).collect();
        let mut wrong: Vec<Record> = lie.fragments[3..].iter().map(unplaced).collect();
        wrong[2] = document::Record::from_bytes(SUITE, wrong_parity(&other, &lie)).unwrap().0;
        let lie = document::Stripe::of(SUITE, pages, wrong).unwrap();
        let mine = |striped: &document::Striped| {
            let last = striped.fragments.len() - 1;
            [striped.fragments[2].clone(), striped.fragments[last].clone()]
        };
        for striped in [&good, &lie] {
            for number in 1..PEERS {
                let client = town.client_of(number % 3, Tier::Own, &[number]).await;
                let of = |at: &usize| *at != 2 && at % (PEERS - 1) == number - 1;
                let last = striped.fragments.len() - 1;
                let theirs = (0..last).filter(of).map(|at| striped.fragments[at].clone());
                let batch = std::iter::once(striped.header.clone()).chain(theirs).collect();
                let outcomes = client.store_batch(&town.at(number), batch, LIMIT).await.unwrap();
                assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            }
            let client = town.client(0, Tier::Own).await;
            let mut batch = vec![striped.header.clone()];
            batch.extend(mine(striped));
            let outcomes = client.store_batch(&town.at(0), batch, LIMIT).await.unwrap();
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        }
        let told = |town: &Town| town.peers[0].status().store;
        damage(&disk, &good.header);
        for record in mine(&good) {
            damage(&disk, &record);
        }
        town.until("scrub found them", |town| told(town).upkeep.scrub_damaged == 3).await;
        town.until("they are mended", |town| told(town).damaged == 0).await;
        let upkeep = told(&town).upkeep;
        assert_eq!(upkeep.rebuilt_fragments, 2);
        assert_eq!(metric(&town, "rebuilt_fragments_total"), 2);
        let client = town.client(0, Tier::Own).await;
        for record in mine(&good).into_iter().chain([good.header.clone()]) {
            let find = FindRequest { id: record.id, place: record.place };
            let found = client.find(&town.at(0), find, LIMIT).await;
            assert_eq!(found, Ok(FindResponse::Found(record)));
        }

        // What the code does not make as the header says is tried once.
        damage(&disk, &mine(&lie)[1]);
        // It may just have begun its rest.
        env.clock.sleep(10 * MINUTE).await;
        town.until("scrub found it", |town| told(town).damaged == 1).await;
        env.clock.sleep(10 * MINUTE).await;
        let asked = |town: &Town| -> u64 {
            let pages = town.peers[1..].iter().map(|peer| peer.metrics());
            let sent = |page: String| -> u64 {
                let lines = page.lines().filter(|line| line.contains("record_sent_bytes_total"));
                lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
            };
            pages.map(sent).sum()
        };
        let before = asked(&town);
        assert!(before > 0);
        env.clock.sleep(60 * MINUTE).await;
        assert_eq!(asked(&town), before, "the stripe is not fetched again and again");
        assert_eq!((told(&town).damaged, told(&town).upkeep.rebuilt_fragments), (1, 2));
    });
}

/// Fragments whose header could not be read when the store was, count from the moment it is mended, not from the next start on.
#[test]
fn fragments_count_again_when_their_header_is_mended() {
    testkit::time::run(9, |env| async move {
        let disk = FaultyDisk::new(9);
        let striped = testkit::network::stripe(1, 2, 4, RECORD_BYTES);
        let mine = [striped.header.clone(), striped.fragments[1].clone()];
        let before = Watched::open(&disk, &env);
        for record in &mine {
            before.put(vec![record.clone()]).await.unwrap();
        }
        before.close().await.unwrap();
        damage(&disk, &striped.header);
        let mut town = Town::empty(&env, 3, 3);
        let kept = |options: &mut librarian::LibrarianOptions| {
            quick(options);
            options.upkeep = self::options(0, 0);
        };
        let first = town.start(0, Watched::open(&disk, &env), kept).await;
        town.peers.push(first);
        for _ in 1..3 {
            town.start_next(quick).await;
        }
        town.until("all know all", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 3)
        })
        .await;
        let calls = town.peer_calls(1);
        let claim = || async {
            let claim = KeepRequest::Claim(vec![striped.header.id]);
            match calls.keep(&town.at(0), claim, LIMIT).await {
                Ok(KeepAnswer::Claim(answers)) => Some(answers[0].held.clone()),
                _ => None,
            }
        };
        while claim().await.is_none() {
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(claim().await, Some(Vec::new()), "nobody knows of which stripe it is");
        let other = town.client_of(1, Tier::Own, &[1]).await;
        other.store(&town.at(1), striped.header.clone(), LIMIT).await.unwrap();
        town.until("it is mended", |town| town.peers[0].status().store.damaged == 0).await;
        env.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(claim().await, Some(vec![1]));
    });
}

/// The last parity of `of` with the bytes of another stripe's.
fn wrong_parity(from: &document::Striped, of: &document::Striped) -> bytes::Bytes {
    let index = of.stripe.n() - 1;
    let mut buffer = document::ParityBuffer::new(index, of.stripe.fragment_bytes()).unwrap();
    let bytes = &from.fragments[index as usize].bytes;
    let length = buffer.bytes_mut().len();
    buffer.bytes_mut().copy_from_slice(&bytes[bytes.len() - length..]);
    buffer.record(SUITE).bytes
}

#[test]
fn compaction_gives_back_what_was_removed_and_leaves_a_read_only_disk_alone() {
    testkit::time::run(3, |env| async move {
        let disk = FaultyDisk::new(3);
        let records: Vec<_> = (0..60).map(distinct).collect();
        let (town, store) = lone(&env, &disk, &records, options(0, 1 << 20)).await;
        town.peers[0].set_read_only(true).await;
        let (gone, kept): (Vec<_>, Vec<_>) =
            records.iter().enumerate().partition(|(at, _)| at % 3 != 0);
        store.remove(gone.iter().map(|(_, record)| record.id).collect()).await.unwrap();
        let before = disk.used_bytes();
        env.clock.sleep(10 * MINUTE).await;
        assert_eq!((disk.used_bytes(), store.compactions.load(Ordering::SeqCst)), (before, 0));
        let dead = town.peers[0].status().store.dead_bytes;
        assert!(dead > 40 * RECORD_BYTES as u64, "{dead}");
        assert_eq!(metric(&town, "store_dead_bytes"), dead as i64);

        town.peers[0].set_read_only(false).await;
        let few = 10 * RECORD_BYTES as u64;
        town.until("space is given back", |town| {
            let told = town.peers[0].status().store;
            told.dead_bytes < few && told.upkeep.compaction_freed_bytes > 0
        })
        .await;
        assert!(disk.used_bytes() < before / 2, "{} of {before}", disk.used_bytes());
        let told = town.peers[0].status().store.upkeep;
        assert!(told.compaction_freed_bytes > 40 * RECORD_BYTES as u64, "{told:?}");
        assert!(told.compaction_moved_bytes > 0 && told.scrubbed_bytes == 0, "{told:?}");
        assert_eq!(
            metric(&town, "compaction_freed_bytes_total"),
            told.compaction_freed_bytes as i64
        );
        for (_, record) in kept {
            assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
        }
    });
}

#[test]
fn compaction_and_scrub_beside_each_other_never_run_twice_and_stop_at_once() {
    testkit::time::run(4, |env| async move {
        let disk = FaultyDisk::new(4);
        let records: Vec<_> = (0..60).map(distinct).collect();
        // Both so slow that they would take hours.
        let (town, store) = lone(&env, &disk, &records, options(100, 100)).await;
        let gone = records.iter().skip(1).step_by(2).map(|record| record.id);
        store.remove(gone.collect()).await.unwrap();
        town.until("both work", |_| {
            store.compacting.load(Ordering::SeqCst) == 1 && !store.steps().is_empty()
        })
        .await;
        env.clock.sleep(10 * MINUTE).await;
        assert_eq!(store.compacting.load(Ordering::SeqCst), 1);
        let since = env.clock.elapsed();
        town.peers[0].stop().await.unwrap();
        assert!(env.clock.elapsed() - since < Duration::from_secs(1));
        assert_eq!(store.compacting.load(Ordering::SeqCst), 0);
        assert!(!store.overlapped.load(Ordering::SeqCst));
        let again = Watched::open(&disk, &env);
        assert_eq!(again.stats().records, 30);
        for record in records.iter().step_by(2) {
            assert_eq!(again.get(&record.id).await.unwrap().as_ref(), Some(record));
        }
    });
}

#[test]
fn a_peer_that_is_told_of_no_upkeep_has_none() {
    testkit::time::run(5, |env| async move {
        let records: Vec<_> = (0..30).map(distinct).collect();
        for upkeep in [None, options(0, 0)] {
            let (town, store) = lone(&env, &FaultyDisk::new(5), &records, upkeep).await;
            store.remove(records.iter().map(|record| record.id).collect()).await.unwrap();
            env.clock.sleep(60 * MINUTE).await;
            assert!(store.steps().is_empty());
            assert_eq!(store.compactions.load(Ordering::SeqCst), 0);
            town.peers[0].stop().await.unwrap();
        }
    });
}

#[test]
fn a_damaged_entry_of_the_log_comes_again_from_another_peer() {
    testkit::time::run(6, |env| async move {
        let mut town = Town::empty(&env, 3, 3);
        let store = Watched::open(&FaultyDisk::new(6), &env);
        let kept = |options: &mut librarian::LibrarianOptions| {
            options.upkeep = self::options(1 << 20, 0);
        };
        let first = town.start(0, store, kept).await;
        town.peers.push(first);
        for _ in 1..3 {
            town.start_next(|_| {}).await;
        }
        town.until("all know all", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 3)
        })
        .await;
        let client = town.client(0, Tier::Own).await;
        let mut all = Vec::new();
        for n in 0..6 {
            let (record, publication) = envelope(n, 0);
            client.store(&town.at(0), record, LIMIT).await.unwrap();
            all.push(publication);
            env.clock.sleep(Duration::from_millis(10)).await;
        }
        // It is found long after it was logged.
        env.clock.sleep(60 * MINUTE).await;
        rot_entry(&town, 0, &all[2]);
        rot_entry(&town, 0, &all[5]);
        assert_eq!(town.log_of(0).await.len(), 4);
        town.until("it is found", |town| metric(town, "log_damaged_total") == 2).await;
        let since = env.clock.elapsed();
        while town.log_of(0).await.len() < 6 {
            assert!(env.clock.elapsed() - since < 10 * MINUTE, "it does not come again");
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        let mut log = town.log_of(0).await;
        assert!(log.ends_with(&[all[2].clone(), all[5].clone()]), "at the end");
        log.sort();
        all.sort();
        assert_eq!(log, all);
        // That the old entries stay damaged is told once.
        let passes = town.peers[0].status().store.upkeep.scrub_passes;
        env.clock.sleep(60 * MINUTE).await;
        assert!(town.peers[0].status().store.upkeep.scrub_passes > passes);
        assert_eq!((metric(&town, "log_damaged_total"), town.log_of(0).await.len()), (2, 6));
    });
}
