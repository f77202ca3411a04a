//! An engine in memory, whose commits can be made to fail, and a clock that is set by hand.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use crypto::{Class, Classified, RecordId};
use door_redis::{Keyspace, Made, Put, Refusal, Stored, Tip};
use version::{Bases, Hint, ObjectKey, ValueKind, VersionId};

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("the disk is full; free space")]
    Full,
    #[error("a write of {0}, more than the log takes")]
    TooLarge(usize),
    #[error("no such base")]
    NoBase,
    #[error("no such function")]
    NoFunction,
}

impl Classified for EngineError {
    fn class(&self) -> Class {
        match self {
            Self::Full => Class::Busy,
            Self::TooLarge(_) | Self::NoBase => Class::Invalid,
            Self::NoFunction => Class::NotFound,
        }
    }
}

#[derive(Default)]
pub struct Objects {
    pub names: HashMap<ObjectKey, Vec<u8>>,
    pub versions: HashMap<ObjectKey, BTreeMap<RecordId, Stored>>,
    pub commits: u64,
    pub gets: u64,
    /// Predecessors that were handed over.
    pub told: u64,
    /// So many commits fail from now on.
    pub failing: u64,
    /// After so many that do not.
    pub good: u64,
    /// Whether no version can be read.
    pub unreadable: bool,
    pub changed: Vec<ObjectKey>,
}

impl Objects {
    pub fn tips(&self, object: &ObjectKey) -> Vec<VersionId> {
        let Some(versions) = self.versions.get(object) else { return Vec::new() };
        let bases: Vec<RecordId> = versions.values().flat_map(|v| v.bases.iter()).collect();
        let mut tips: Vec<VersionId> =
            versions.values().map(|v| v.id).filter(|id| !bases.contains(&id.h)).collect();
        tips.sort_by_key(|id| std::cmp::Reverse((id.l, id.h)));
        tips
    }

    fn tip(&self, object: &ObjectKey) -> Option<Tip> {
        let versions = self.versions.get(object)?;
        let best = versions.values().max_by_key(|v| (v.id.l, v.id.h))?;
        Some(Tip { id: best.id, kind: Some(best.kind) })
    }

    pub fn object(&self, name: &[u8]) -> ObjectKey {
        ObjectKey::new(*blake3::hash(name).as_bytes())
    }

    /// A version by another writer, which the door is told of.
    pub fn write_beside(&mut self, name: &[u8], kind: ValueKind, value: &[u8]) -> VersionId {
        let object = self.object(name);
        let bases: Vec<VersionId> = self.tip(&object).map(|tip| tip.id).into_iter().collect();
        let stored = make(&object, &bases, kind, Bytes::copy_from_slice(value));
        let id = stored.id;
        self.names.insert(object, name.to_vec());
        self.versions.entry(object).or_default().insert(id.h, stored);
        self.changed.push(object);
        id
    }
}

fn make(object: &ObjectKey, bases: &[VersionId], kind: ValueKind, value: Bytes) -> Stored {
    let l = bases.iter().map(|base| base.l + 1).max().unwrap_or(0);
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(object.as_bytes())
        .update(&l.to_be_bytes())
        .update(format!("{kind:?}").as_bytes());
    bases.iter().for_each(|base| {
        hasher.update(base.h.as_bytes());
    });
    hasher.update(&value);
    let h = RecordId::new(*hasher.finalize().as_bytes());
    let n = bases.first().map_or(Hint::FIRST, |base| base.n);
    let bases: Vec<RecordId> = bases.iter().map(|base| base.h).collect();
    let bases = Bases::from_slice(&bases).unwrap();
    Stored { id: VersionId { h, l, n }, bases, kind, value }
}

/// The engine: what is in the log is shared with the test, what is pending is not.
#[derive(Clone, Default)]
pub struct Memory {
    pub log: Arc<Mutex<Objects>>,
    /// Bytes of values after which a turn is written in parts, where not 0.
    pub part_bytes: usize,
    pending: Vec<Pending>,
    flying: Option<Vec<Pending>>,
}

type Pending = (ObjectKey, Option<Vec<u8>>, Stored);

impl Memory {
    /// One whose turns are written in parts of so many bytes of values.
    pub fn parted(part_bytes: usize) -> Self {
        Self { part_bytes, ..Self::default() }
    }

    pub fn log(&self) -> MutexGuard<'_, Objects> {
        self.log.lock().unwrap()
    }

    fn write(&self, pending: Vec<Pending>) -> Result<(), Refusal> {
        let records = pending.iter().map(|(_, name, _)| 1 + usize::from(name.is_some())).sum();
        let name_bytes = pending.iter().flat_map(|(_, name, _)| name).map(Vec::len).sum::<usize>();
        let bytes = name_bytes + pending.iter().map(|(.., s)| s.value.len()).sum::<usize>();
        for (size, max) in [(records, store::PUT_RECORDS_MAX), (bytes, store::PUT_BYTES_MAX)] {
            if size > max {
                return Err(Refusal::new(EngineError::TooLarge(size)));
            }
        }
        let mut log = self.log();
        if log.failing > 0 && log.good == 0 {
            log.failing -= 1;
            return Err(Refusal::new(EngineError::Full));
        }
        log.good = log.good.saturating_sub(1);
        log.commits += 1;
        for (object, name, stored) in pending {
            if let Some(name) = name {
                log.names.insert(object, name);
            }
            log.versions.entry(object).or_default().insert(stored.id.h, stored);
        }
        Ok(())
    }
}

impl Keyspace for Memory {
    fn load(&mut self, each: &mut dyn FnMut(&[u8], ObjectKey, Tip)) -> Result<(), Refusal> {
        let log = self.log();
        for (object, name) in &log.names {
            if let Some(tip) = log.tip(object) {
                each(name, *object, tip);
            }
        }
        Ok(())
    }

    fn open(&mut self, name: &[u8]) -> Result<(ObjectKey, Option<Tip>), Refusal> {
        let log = self.log();
        let object = log.object(name);
        Ok((object, log.tip(&object)))
    }

    fn put(&mut self, put: Put<'_>) -> Result<Made, Refusal> {
        let log = self.log.lock().unwrap();
        let known = |base: &VersionId| {
            log.versions.get(put.object).is_some_and(|all| all.contains_key(&base.h))
                || self
                    .pending
                    .iter()
                    .chain(self.flying.iter().flatten())
                    .any(|(o, _, s)| o == put.object && s.id == *base)
        };
        if !put.bases.iter().all(known) {
            return Err(Refusal::new(EngineError::NoBase));
        }
        assert!(put.value.len() <= 2 << 20, "the door checks that");
        assert!(put.name.is_none_or(|name| name.len() <= 1024), "the door checks that");
        let flies = self.flying.iter().flatten().any(|(o, ..)| o == put.object);
        assert!(
            put.name.is_some()
                || flies
                || log.names.contains_key(put.object)
                || !put.bases.is_empty()
        );
        let stored = make(put.object, put.bases, put.kind, Bytes::copy_from_slice(put.value));
        let made = Made { id: stored.id, value: stored.value.clone() };
        self.pending.push((*put.object, put.name.map(<[u8]>::to_vec), stored));
        Ok(made)
    }

    fn pending(&self) -> usize {
        self.pending.len()
    }

    fn abandon(&mut self, to: usize) {
        self.pending.truncate(to);
    }

    fn commit(&mut self) -> Result<(), Refusal> {
        assert!(self.flying.is_none(), "the door waits for what flies");
        let pending = std::mem::take(&mut self.pending);
        self.write(pending)
    }

    fn batch_bytes(&self) -> usize {
        if self.part_bytes == 0 { 8 << 20 } else { self.part_bytes }
    }

    fn begin(&mut self) -> Result<bool, Refusal> {
        assert!(self.flying.is_none(), "the door waits for what flies");
        self.flying = Some(std::mem::take(&mut self.pending));
        Ok(true)
    }

    fn land(&mut self) -> Result<(), Refusal> {
        let flying = self.flying.take().expect("something flies");
        let done = self.write(flying);
        if done.is_err() {
            self.pending.clear();
        }
        done
    }

    fn get(&mut self, object: &ObjectKey, h: &RecordId) -> Result<Option<Stored>, Refusal> {
        assert!(self.flying.is_none(), "what flies cannot be read");
        let mut log = self.log();
        log.gets += 1;
        if log.unreadable {
            return Err(Refusal::new(EngineError::Full));
        }
        Ok(log.versions.get(object).and_then(|all| all.get(h)).cloned())
    }

    fn previous(
        &mut self,
        object: &ObjectKey,
        h: &RecordId,
        m: usize,
        each: &mut dyn FnMut(Stored) -> bool,
    ) -> Result<(), Refusal> {
        let mut log = self.log();
        let all = log.versions[object].clone();
        let (mut found, mut at) = (Vec::new(), all[h].clone());
        while found.len() < m && !at.bases.is_empty() {
            let bases: Vec<RecordId> = at.bases.iter().collect();
            found.extend(bases.iter().map(|base| all[base].clone()));
            if bases.len() > 1 {
                break;
            }
            at = all[&bases[0]].clone();
        }
        found.truncate(m);
        for stored in found {
            log.told += 1;
            if !each(stored) {
                break;
            }
        }
        Ok(())
    }

    fn tips(&mut self, object: &ObjectKey) -> Result<Vec<VersionId>, Refusal> {
        Ok(self.log().tips(object))
    }

    fn merge(
        &mut self,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
        function: &[u8],
    ) -> Result<Bytes, Refusal> {
        if function != b"append" {
            return Err(Refusal::new(EngineError::NoFunction));
        }
        let log = self.log();
        let all = &log.versions[object];
        Ok(Bytes::from([&all[a].value[..], &all[b].value[..]].concat()))
    }

    fn changed(&mut self, each: &mut dyn FnMut(&[u8], ObjectKey, Tip)) -> Result<(), Refusal> {
        let mut log = self.log();
        for object in std::mem::take(&mut log.changed) {
            let tip = log.tip(&object).expect("a version");
            each(&log.names[&object], object, tip);
        }
        Ok(())
    }
}

/// A calendar that the test moves; what has passed is real.
#[derive(Debug)]
pub struct Calendar {
    ms: AtomicU64,
    begin: std::time::Instant,
}

impl Calendar {
    pub fn new() -> Arc<Self> {
        let ms = AtomicU64::new(1_800_000_000_000);
        Arc::new(Self { ms, begin: std::time::Instant::now() })
    }

    pub fn pass(&self, ms: u64) {
        self.ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl env::Clock for Calendar {
    fn unix_ms(&self) -> u64 {
        self.ms.load(Ordering::SeqCst)
    }

    fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    fn sleep(&self, _: Duration) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(futures::future::pending())
    }
}
