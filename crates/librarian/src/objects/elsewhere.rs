//! Histories that go on at other peers: predecessors that are not here, from the holders of their object's places.
//!
//! Clients alone have others asked for them: a peer that asks gets what is here, so no question goes round in a circle. What
//! comes back is believed for its hash. Of what was fetched the two nearest predecessors of a version that is here stay in
//! memory, by a budget.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crypto::{PeerId, RecordId};
use document::{Kind, Record};
use env::calls::Calls;
use env::calls::objects::{GetPrevious, ObjectsAnswer, ObjectsRequest, VersionAt};
use version::{Version, places};
use walk::Directory;

use super::ObjectShelf;

/// Questions to other peers for one call.
const ASKED_MAX: usize = 64;
/// Holders of one place that are asked.
const HOLDERS: usize = 4;
/// How long one of them may take, and all.
const ASK_LIMIT: Duration = Duration::from_secs(2);
const ALL_LIMIT: Duration = Duration::from_secs(8);
/// Bytes of fetched versions in memory.
const FETCHED_BYTES_MAX: usize = 8 << 20;

/// Whom to ask, and how much more.
pub(crate) struct Elsewhere {
    calls: Arc<dyn Calls>,
    directory: Arc<Directory>,
    left: usize,
    until: Duration,
}

/// Fetched versions, the newest first.
#[derive(Default)]
pub(super) struct Fetched(Mutex<VecDeque<Record>>);

impl Fetched {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, h: &RecordId) -> Option<Record> {
        self.lock().iter().find(|record| record.id == *h).cloned()
    }

    pub(super) fn put(&self, record: &Record) {
        let mut records = self.lock();
        records.retain(|known| known.id != record.id);
        records.push_front(record.clone());
        let mut bytes = 0;
        records.retain(|record| {
            bytes += record.bytes.len() + 200;
            bytes <= FETCHED_BYTES_MAX
        });
    }
}

impl Elsewhere {
    pub(crate) fn new(calls: Arc<dyn Calls>, directory: Arc<Directory>, now: Duration) -> Self {
        Self { calls, directory, left: ASKED_MAX, until: now.saturating_add(ALL_LIMIT) }
    }
}

impl ObjectShelf {
    /// A version and what is before it, as another holder has it; nothing where nobody does. `at` has the hint of what was made
    /// of it.
    pub(super) async fn fetch(
        &self,
        elsewhere: &mut Elsewhere,
        at: VersionAt,
        most: u32,
    ) -> Vec<Record> {
        let places: Vec<_> = places(self.suite, at.object).collect();
        let near = places.iter().filter(|(n, _)| *n == at.n);
        let far = places.iter().filter(|(n, _)| *n != at.n);
        let view = elsewhere.directory.view();
        let mut asked = BTreeSet::from([self.own]);
        for (n, place) in near.chain(far) {
            for peer in view.holders(place, HOLDERS) {
                if !asked.insert(peer) {
                    continue;
                }
                let found = self.ask(elsewhere, &peer, VersionAt { n: *n, ..at }, most).await;
                if !found.is_empty() {
                    return found;
                }
            }
        }
        Vec::new()
    }

    async fn ask(
        &self,
        elsewhere: &mut Elsewhere,
        peer: &PeerId,
        version: VersionAt,
        most: u32,
    ) -> Vec<Record> {
        let left = elsewhere.until.saturating_sub(self.env.clock.elapsed());
        let Some(to) = elsewhere.directory.endpoint(peer) else { return Vec::new() };
        if elsewhere.left == 0 || left.is_zero() {
            return Vec::new();
        }
        elsewhere.left -= 1;
        let request = GetPrevious { version, most: most.max(1), reader: None };
        let request = ObjectsRequest::Previous(request);
        let answer = elsewhere.calls.objects(&to, request, left.min(ASK_LIMIT)).await;
        let Ok(ObjectsAnswer::Previous(answer)) = answer else { return Vec::new() };
        if answer.records.first().is_none_or(|first| first.id != version.h) {
            return Vec::new();
        }
        let (suite, object) = (self.suite, version.object);
        let proves = move |record: &Record| {
            record.kind == Kind::Version
                && suite.id(&record.bytes) == record.id
                && Version::decode(&record.bytes).is_ok_and(|version| version.object == object)
        };
        let records = answer.records;
        self.env.cpu(move || records.into_iter().take_while(proves).collect()).await
    }
}
