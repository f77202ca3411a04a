//! A record store that tells what was put into it and dropped from it.
//!
//! Everything of this peer that writes (callers, the door, repair) writes through it, so that the inventory hears of each
//! record without a second look at the disk. What is told is kept short: while nobody listens, or where more was told
//! than is kept, the store is read again instead.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use crypto::RecordId;
use document::{Kind, Record};
use store::{Durability, Kept, Part, Placed, RecordStore, Stats, StoreError, Upkeep};

/// Changes kept for the inventory; above, it reads the store again.
const FRESH_MAX: usize = 1 << 18;
/// So many of them are taken while the store is being read: what is perhaps there is so not looked for again and again within a moment.
const MANY: usize = FRESH_MAX / 4;

/// Something that changed in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A record is there.
    Stored(Placed),
    /// A version is there that its object's policy keeps in one copy, here.
    StoredHere(Placed),
    /// A record may be there, or be under way: who stored it did not wait for it. Looked for so many times so far.
    Maybe(Placed, u8),
    /// It is not there any more.
    Dropped(RecordId),
}

/// What changed since the inventory last looked.
#[derive(Default)]
pub(crate) struct Fresh(Mutex<Told>);

#[derive(Default)]
struct Told {
    changes: Vec<Change>,
    /// Whether anybody listens.
    listening: bool,
    /// Whether changes were lost.
    lost: bool,
}

impl Fresh {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps changes from now on. Whoever calls it reads the store behind it.
    pub(crate) fn listen(&self) {
        *self.lock() = Told { listening: true, ..Told::default() };
    }

    /// Keeps none any more.
    pub(crate) fn leave(&self) {
        *self.lock() = Told::default();
    }

    /// What changed since the last call; `None` where some was lost, and the store must be read.
    pub(crate) fn take(&self) -> Option<Vec<Change>> {
        let mut told = self.lock();
        if told.lost || !told.listening {
            return None;
        }
        Some(std::mem::take(&mut told.changes))
    }

    /// What changed while the store is being read, once it is [`MANY`]: nobody else takes it then, and however long the reading takes, no more
    /// than is kept comes together.
    pub(crate) fn take_many(&self) -> Vec<Change> {
        let mut told = self.lock();
        match told.changes.len() < MANY {
            true => Vec::new(),
            false => std::mem::take(&mut told.changes),
        }
    }

    /// Something was stored that was not told: whoever listens by now reads the store again.
    fn miss(&self) {
        let mut told = self.lock();
        if told.listening {
            *told = Told { listening: true, lost: true, ..Told::default() };
        }
    }

    /// What was told before and is to be looked at again.
    pub(crate) fn again(&self, changes: Vec<Change>) {
        self.tell(changes.into_iter());
    }

    fn tell(&self, changes: impl Iterator<Item = Change>) {
        let mut told = self.lock();
        if !told.listening || told.lost {
            return;
        }
        for change in changes {
            if told.changes.len() >= FRESH_MAX {
                *told = Told { listening: true, lost: true, ..Told::default() };
                return;
            }
            told.changes.push(change);
        }
    }
}

/// A store that is listened to.
pub(crate) struct Observed {
    store: Arc<dyn RecordStore>,
    fresh: Arc<Fresh>,
}

impl Observed {
    pub(crate) fn new(store: Arc<dyn RecordStore>, fresh: Arc<Fresh>) -> Self {
        Self { store, fresh }
    }

    /// Tells what is put, whatever becomes of the caller. What was there before is told too: it costs nothing where it is counted,
    /// and a fragment of two stripes is there for both.
    fn telling(&self, placed: Vec<Placed>) -> Telling<'_> {
        Telling { fresh: &self.fresh, placed }
    }
}

/// Tells when it goes, unless told otherwise, that records may be there.
struct Telling<'a> {
    fresh: &'a Fresh,
    placed: Vec<Placed>,
}

impl Telling<'_> {
    fn ended(mut self, outcome: &Result<Vec<bool>, StoreError>) {
        let placed = std::mem::take(&mut self.placed);
        if outcome.is_ok() {
            self.fresh.tell(placed.into_iter().map(Change::Stored));
        }
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        let placed = std::mem::take(&mut self.placed);
        if !placed.is_empty() {
            self.fresh.tell(placed.into_iter().map(|placed| Change::Maybe(placed, 0)));
        }
    }
}

/// Whether the inventory counts records of a kind. Headers come with their fragments, and objects, policies and
/// attestations with their versions.
pub(crate) fn is_counted(kind: Kind) -> bool {
    match kind {
        Kind::Envelope
        | Kind::Entry
        | Kind::Page
        | Kind::Parity
        | Kind::Version
        | Kind::Head
        | Kind::Devices => true,
        Kind::Stripe | Kind::Object | Kind::Policy | Kind::Attestation | Kind::Lease => false,
    }
}

fn placed(record: &Record) -> Placed {
    Placed { id: record.id, kind: record.kind, place: record.place }
}

/// A change of a record that does not count is told as one of nothing: outcomes stand in the records' order.
fn of(records: &[Record]) -> Vec<Placed> {
    records.iter().map(placed).collect()
}

fn of_kept(kept: &[Kept]) -> Vec<Placed> {
    kept.iter().map(|kept| placed(&kept.record)).collect()
}

#[async_trait]
impl RecordStore for Observed {
    async fn put(&self, records: Vec<Record>) -> Result<Vec<bool>, StoreError> {
        let telling = self.telling(of(&records));
        let new = self.store.put(records).await;
        telling.ended(&new);
        new
    }

    async fn put_kept(
        &self,
        kept: Vec<Kept>,
        durability: Option<Durability>,
    ) -> Result<Vec<bool>, StoreError> {
        let telling = self.telling(of_kept(&kept));
        let new = self.store.put_kept(kept, durability).await;
        telling.ended(&new);
        new
    }

    fn durability(&self) -> Durability {
        self.store.durability()
    }

    fn put_here(
        &self,
        kept: Vec<Kept>,
        durability: Option<Durability>,
    ) -> Result<Vec<bool>, StoreError> {
        let listened = self.fresh.lock().listening;
        if !listened {
            let new = self.store.put_here(kept, durability);
            // Who began to listen meanwhile reads the store, perhaps before this was in it.
            self.fresh.miss();
            return new;
        }
        let placed = of_kept(&kept);
        let new = self.store.put_here(kept, durability);
        if new.is_ok() {
            // The door alone writes so, and its policy is one copy, here.
            self.fresh.tell(placed.into_iter().map(|placed| match placed.kind {
                Kind::Version => Change::StoredHere(placed),
                _ => Change::Stored(placed),
            }));
        }
        new
    }

    fn form_base(&self, id: &RecordId) -> Result<Option<RecordId>, StoreError> {
        self.store.form_base(id)
    }

    fn each_of(
        &self,
        kinds: &[Kind],
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<Vec<RecordId>, StoreError> {
        self.store.each_of(kinds, each)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.store.get(id).await
    }

    fn contains(&self, id: &RecordId) -> bool {
        self.store.contains(id)
    }

    async fn remove(&self, ids: Vec<RecordId>) -> Result<(), StoreError> {
        let dropped = ids.clone();
        self.store.remove(ids).await?;
        self.fresh.tell(dropped.into_iter().map(Change::Dropped));
        Ok(())
    }

    fn ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId> {
        self.store.ids(from, limit)
    }

    async fn list(&self, from: &RecordId, limit: usize) -> Result<Vec<Placed>, StoreError> {
        self.store.list(from, limit).await
    }

    fn stats(&self) -> Stats {
        self.store.stats()
    }

    fn upkeep(&self) -> Option<&dyn Upkeep> {
        self.store.upkeep()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use bytes::Bytes;
    use crypto::Place;
    use store::MemoryStore;

    use super::*;

    fn record(n: u8) -> Record {
        let id = RecordId::new([n; 32]);
        Record { kind: Kind::Entry, id, place: Place::from(id), bytes: Bytes::from(vec![n; 3]) }
    }

    #[tokio::test]
    async fn what_is_new_and_what_is_dropped_is_told_once_somebody_listens() {
        let fresh = Arc::new(Fresh::default());
        let store = Observed::new(Arc::new(MemoryStore::new()), Arc::clone(&fresh));
        store.put(vec![record(1)]).await.unwrap();
        assert_eq!(fresh.take(), None, "nobody listened");
        fresh.listen();
        store.put(vec![record(1), record(2)]).await.unwrap();
        let both = [record(1), record(2)].map(|record| Change::Stored(placed(&record)));
        assert_eq!(fresh.take(), Some(both.to_vec()), "also what was there before");
        store.remove(vec![record(1).id]).await.unwrap();
        assert_eq!(fresh.take(), Some(vec![Change::Dropped(record(1).id)]));
        assert_eq!(fresh.take(), Some(Vec::new()));
    }

    /// A store at which somebody begins to listen while it writes.
    struct Overheard {
        store: MemoryStore,
        fresh: Arc<Fresh>,
    }

    #[async_trait]
    impl RecordStore for Overheard {
        async fn put(&self, records: Vec<Record>) -> Result<Vec<bool>, StoreError> {
            self.fresh.listen();
            self.store.put(records).await
        }
        fn each_of(
            &self,
            kinds: &[Kind],
            each: &mut dyn FnMut(Part<'_>),
        ) -> Result<Vec<RecordId>, StoreError> {
            self.store.each_of(kinds, each)
        }
        async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
            self.store.get(id).await
        }
        fn contains(&self, id: &RecordId) -> bool {
            self.store.contains(id)
        }
        async fn remove(&self, ids: Vec<RecordId>) -> Result<(), StoreError> {
            self.store.remove(ids).await
        }
        fn ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId> {
            self.store.ids(from, limit)
        }
        fn stats(&self) -> Stats {
            self.store.stats()
        }
        async fn close(&self) -> Result<(), StoreError> {
            self.store.close().await
        }
    }

    #[test]
    fn what_is_written_while_somebody_begins_to_listen_is_told_as_lost() {
        let fresh = Arc::new(Fresh::default());
        let inner = Overheard { store: MemoryStore::new(), fresh: Arc::clone(&fresh) };
        let store = Observed::new(Arc::new(inner), Arc::clone(&fresh));
        let kept = |n| vec![Kept { record: record(n), form: None, new: false }];
        store.put_here(kept(1), None).unwrap();
        assert_eq!(fresh.take(), None, "the store may have been read before it was written");

        let fresh = Arc::new(Fresh::default());
        let store = Observed::new(Arc::new(MemoryStore::new()), Arc::clone(&fresh));
        store.put_here(kept(1), None).unwrap();
        fresh.listen();
        assert_eq!(fresh.take(), Some(Vec::new()), "nothing is missed that was written before");
        store.put_here(kept(2), None).unwrap();
        assert_eq!(fresh.take(), Some(vec![Change::Stored(placed(&record(2)))]));
    }

    #[tokio::test]
    async fn what_somebody_did_not_wait_for_is_told_as_perhaps_there() {
        let fresh = Arc::new(Fresh::default());
        let store = Observed::new(Arc::new(MemoryStore::new()), Arc::clone(&fresh));
        fresh.listen();
        drop(store.telling(vec![placed(&record(1))]));
        assert_eq!(fresh.take(), Some(vec![Change::Maybe(placed(&record(1)), 0)]));
        store.telling(vec![placed(&record(1))]).ended(&Err(StoreError::Closed));
        assert_eq!(fresh.take(), Some(Vec::new()), "what failed is not there");
    }

    #[tokio::test]
    async fn who_begins_to_listen_while_something_is_written_reads_again() {
        let fresh = Arc::new(Fresh::default());
        fresh.miss();
        assert_eq!(fresh.take(), None, "nobody listened, and nobody will know");
        fresh.listen();
        fresh.miss();
        assert_eq!(fresh.take(), None);
    }

    #[test]
    fn what_is_taken_meanwhile_is_not_too_much_to_keep() {
        let fresh = Fresh::default();
        fresh.listen();
        let id = RecordId::new([0; 32]);
        let mut taken = 0;
        for _ in 0..9 {
            fresh.tell(std::iter::repeat_n(Change::Dropped(id), MANY - 1));
            assert!(taken > 0 || fresh.take_many().is_empty(), "few are left for later");
            fresh.tell(std::iter::once(Change::Dropped(id)));
            taken += fresh.take_many().len();
        }
        assert_eq!(taken, 9 * MANY);
        assert_eq!(fresh.take(), Some(Vec::new()));
    }

    #[tokio::test]
    async fn too_much_to_keep_is_told_as_lost() {
        let fresh = Arc::new(Fresh::default());
        fresh.listen();
        let id = RecordId::new([0; 32]);
        fresh.tell(std::iter::repeat_n(Change::Dropped(id), FRESH_MAX + 1));
        assert_eq!(fresh.take(), None);
        fresh.listen();
        assert_eq!(fresh.take(), Some(Vec::new()), "and kept again once it was read");
    }
}
