//! One way of keeping one workload: a store of its own is filled, looked at, closed and weighed.
//!
//! ```text
//! 16 writers * batches of a next version of each of 100 objects -> commit -> attesting thread
//! ```
//! These are the calls of the door, and as there an answer waits for the log and not for the fsync. The clock stands when the last
//! commit is answered; what is weighed was attested, synced and closed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use bytes::Bytes;
use crypto::{NetworkId, RecordId, Suite};
use env::Env;
use env::disk::DirDisk;
use objects::{Attesting, NewVersion, Objects, ObjectsOptions};
use serde::Serialize;
use store::{Durability, LogOptions, LogStore, RecordStore};
use version::{Bases, ObjectKey, ObjectRecord, ValueKind, VersionId};

use super::KvDelta;
use super::workload::{Values, Workload};
use crate::Bench;
use crate::error::BenchError;
use crate::folder::Folder;
use crate::load::documents::fresh_key;
use crate::process::{Share, own_cpu};
use crate::seeded::Seeded;
use crate::stop::Stop;

/// Writers at once, as many as the paper's clients.
const WRITERS: u64 = 16;
/// Versions of one commit, at most.
const BATCH: usize = 100;
/// Objects whose newest versions are read back.
const LOOKED_AT: u64 = 64;
/// How many versions of each.
const LOOKED_BACK: u64 = 12;
/// The network that the objects are in: none is there to ask.
const NETWORK: NetworkId = NetworkId::new([9; 32]);

/// What forms are made against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ancestor {
    /// Every version is kept plain.
    None,
    /// The nearest that is plain.
    Nearest,
    /// One drawn from all before; where that is a form, the version is kept plain.
    Random,
}

impl Ancestor {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Nearest, Self::Random];

    /// Its name, in tables and ratios.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::Nearest => "nearest ancestor",
            Self::Random => "random ancestor",
        }
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Kept {
    pub(super) workload: Workload,
    pub(super) ancestor: Ancestor,
    pub(super) round: usize,
    pub(super) versions: u64,
    pub(super) versions_a_second: f64,
    /// What the folder takes on the disk.
    pub(super) disk_bytes: u64,
    /// From the last answer until all was attested and synced.
    pub(super) closing_seconds: f64,
    /// Processor time of the whole experiment.
    pub(super) cores: f64,
    pub(super) others_cores: Option<f64>,
}

/// Writes all versions of a workload into a store of its own.
pub(super) fn kept(
    bench: &Bench,
    of: &KvDelta,
    workload: Workload,
    ancestor: Ancestor,
) -> Result<Kept, BenchError> {
    let folder = Folder::new(bench.dir.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(BenchError::io("start", "a runtime"))?;
    let guard = runtime.enter();
    let (suite, dir) = (Suite::default(), folder.path());
    let disk = DirDisk::open(dir).map_err(BenchError::io("open", dir))?;
    let options = LogOptions { durability: Durability::EverySecond, ..LogOptions::default() };
    let store = LogStore::open(Arc::new(disk), Env::real(), options)?;
    let objects = Objects::open(store.clone(), ObjectsOptions::default())?;
    let author = fresh_key();
    let owner = author.public();
    let attesting =
        Attesting { objects: objects.clone(), suite, network: NETWORK, author, policy_version: 1 };
    let (attest, attested) =
        attesting.start().map_err(BenchError::io("start", "a thread that attests"))?;
    let name = |object: u64| Bytes::from(format!("delta/{object}"));
    let record = move |object| ObjectRecord { network: NETWORK, owner, name: name(object) };
    let (cpu, share, started) = (own_cpu(), Share::since(own_cpu()), Instant::now());
    let count = of.objects();
    let writing = (0..WRITERS).map(|writer| {
        // Every writer has its part of the objects.
        let objects_of = (count * writer / WRITERS)..(count * (writer + 1) / WRITERS);
        let records = objects_of.map(|object| (object, record(object))).collect();
        let (objects, attest) = (objects.clone(), attest.clone());
        let writer = Writer { objects, attest, workload, ancestor, of: *of };
        runtime.spawn(writer.write_all(records, bench.stop.clone()))
    });
    let writing: Vec<_> = writing.collect();
    drop(attest);
    let ended = runtime.block_on(futures::future::join_all(writing));
    let wall = started.elapsed();
    ended.into_iter().try_for_each(|ended| ended.unwrap_or(Err(BenchError::Interrupted)))?;
    let closing = Instant::now();
    let _ = attested.join();
    runtime.block_on(looked_at(&objects, of, workload, &record))?;
    runtime.block_on(store.close())?;
    let closing_seconds = closing.elapsed().as_secs_f64();
    let others_cores = share.others(own_cpu());
    let cores = (own_cpu() - cpu).as_secs_f64() / (wall.as_secs_f64() + closing_seconds);
    drop(guard);
    let versions = count * of.chain;
    let versions_a_second = versions as f64 / wall.as_secs_f64();
    let disk_bytes = allocated(dir).map_err(BenchError::io("look at", dir))?;
    let round = 0;
    Ok(Kept {
        workload,
        ancestor,
        round,
        versions,
        versions_a_second,
        disk_bytes,
        closing_seconds,
        cores,
        others_cores,
    })
}

/// One of those that write at once.
struct Writer {
    objects: Arc<Objects>,
    attest: SyncSender<Vec<RecordId>>,
    workload: Workload,
    ancestor: Ancestor,
    of: KvDelta,
}

/// An object that is being written.
struct Chain {
    key: ObjectKey,
    values: Values,
    tip: Option<RecordId>,
    /// All versions so far, where one of them is to be drawn.
    all: Vec<RecordId>,
}

impl Writer {
    async fn write_all(
        self,
        records: Vec<(u64, ObjectRecord)>,
        stop: Stop,
    ) -> Result<(), BenchError> {
        let mut seeded = Seeded::new(self.of.seed ^ records.first().map_or(0, |first| first.0 + 1));
        for group in records.chunks(BATCH) {
            let mut batch = self.objects.batch();
            let mut chains = Vec::with_capacity(group.len());
            for (object, record) in group {
                let key = batch.object(record)?;
                let bytes = self.of.value as usize;
                let values = Values::new(self.workload, self.of.seed, *object, bytes);
                chains.push(Chain { key, values, tip: None, all: Vec::new() });
            }
            batch.commit(Some(Durability::EverySecond)).await?;
            for _ in 0..self.of.chain {
                stop.check()?;
                self.write(&mut chains, &mut seeded).await?;
            }
        }
        Ok(())
    }

    /// The next version of each.
    async fn write(&self, chains: &mut [Chain], seeded: &mut Seeded) -> Result<(), BenchError> {
        let mut batch = self.objects.batch();
        let mut made = Vec::with_capacity(chains.len());
        for chain in chains.iter_mut() {
            if self.ancestor == Ancestor::Random && !chain.all.is_empty() {
                batch.against(chain.all[seeded.below(chain.all.len())]);
            }
            let new = NewVersion {
                object: chain.key,
                bases: chain.tip.map_or(Bases::NONE, Bases::one),
                kind: ValueKind::Bytes,
                value: Bytes::copy_from_slice(chain.values.next()),
                compress: self.ancestor != Ancestor::None,
            };
            let VersionId { h, .. } = batch.put(new).await?;
            chain.tip = Some(h);
            if self.ancestor == Ancestor::Random {
                chain.all.push(h);
            }
            made.push(h);
        }
        batch.commit(Some(Durability::EverySecond)).await?;
        // It waits where attesting is behind: every version here is attested.
        let sent = tokio::task::block_in_place(|| self.attest.send(made));
        sent.map_err(|_| BenchError::Interrupted)
    }
}

/// Reads the newest versions of some objects, and what is before them.
async fn looked_at(
    objects: &Arc<Objects>,
    of: &KvDelta,
    workload: Workload,
    record: &(dyn Fn(u64) -> ObjectRecord + Sync),
) -> Result<(), BenchError> {
    let count = of.objects();
    let looked = LOOKED_AT.min(count);
    for object in (0..looked).map(|number| number * count / looked) {
        let mut values = Values::new(workload, of.seed, object, of.value as usize);
        let back = LOOKED_BACK.min(of.chain);
        let mut wanted = Vec::new();
        for version in 0..of.chain {
            let value = values.next();
            if version + back >= of.chain {
                wanted.push(value.to_vec());
            }
        }
        let key = record(object).key(Suite::default()).map_err(objects::ObjectsError::from)?;
        let [tip] = objects.tips(&key)[..] else {
            return Err(BenchError::Wrong("an object has not one newest version"));
        };
        let newest = objects.get(&key, &tip.h).await?;
        let mut found: Vec<_> = newest.into_iter().collect();
        found.extend(objects.previous(&key, &tip.h, back as usize - 1).await?);
        let values = found.iter().map(|stored| &stored.version.value[..]);
        if !values.eq(wanted.iter().rev().map(Vec::as_slice)) {
            return Err(BenchError::Wrong("a version has another value"));
        }
    }
    Ok(())
}

/// What a folder takes on the disk, with all below it.
fn allocated(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        // Blocks are of 512 bytes, whatever the file system's own are.
        bytes += about.blocks() * 512;
        if about.is_dir() {
            bytes += allocated(&entry.path())?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_folders_bytes_are_those_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let empty = allocated(folder.path()).unwrap();
        let inner = folder.path().join("a");
        fs::create_dir(&inner).unwrap();
        let mut file = fs::File::create(inner.join("b")).unwrap();
        std::io::Write::write_all(&mut file, &[7; 100_000]).unwrap();
        file.sync_all().unwrap();
        let found = allocated(folder.path()).unwrap() - empty;
        assert!((100_000..200_000).contains(&found), "{found}");
        file.set_len(1 << 30).unwrap();
        file.sync_all().unwrap();
        assert!(allocated(folder.path()).unwrap() < 300_000, "a hole takes nothing");
        assert!(allocated(&folder.path().join("none")).is_err());
    }
}
