//! Clients that move heads of their own, one update after the other, singly or in bundles.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use committee::engine::Charter;
use committee::{Answer, GroupId, Operation, Outcome, Proofs, Submission, Update};
use crypto::{PublicKey, RecordId, SecretKey, Suite};
use version::merkle::Tree;
use version::receipt::Terms;
use version::{Durability, Hint, ObjectKey, ObjectRecord, Receipt, VersionId};

use super::member::{KEEPERS, NETWORK};
use super::wire::Line;
use crate::error::BenchError;
use crate::percentiles::Latencies;

/// Versions of one receipt: peers under load sign once for many.
const BATCH: u64 = 64;
/// How often an update that is not answered is sent again, where members run, and where they are killed.
pub(super) const TRIES: usize = 40;
pub(super) const TRIES_KILLED: usize = 480;
const AGAIN: Duration = Duration::from_millis(250);

type Kept = (VersionId, Vec<Bytes>);

/// Versions that peers keep, with what they answered.
#[derive(Debug, Default)]
pub(super) struct Versions(Mutex<(u64, Vec<Kept>)>);

impl Versions {
    fn next(&self) -> Result<Kept, BenchError> {
        const WRONG: BenchError = BenchError::Wrong("receipts that do not fit");
        let mut versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, kept) = &mut *versions;
        if kept.is_empty() {
            let one = |one: u64| Suite::Holdfast1.id(&one.to_be_bytes());
            let ids: Vec<RecordId> = (*number..*number + BATCH).map(one).collect();
            *number += BATCH;
            let tree = Tree::new(Suite::Holdfast1, &ids).ok_or(WRONG)?;
            let time_ms = 1_700_000_000_000;
            let terms = Terms { durability: Durability::Group, lease_ms: 0, time_ms };
            let mut receipts = Vec::new();
            for peer in 0..KEEPERS {
                let peer = SecretKey::from_bytes(&[200 + peer; 32]).map_err(|_| WRONG)?;
                receipts.push(Receipt::sign(&peer, &NETWORK, terms, &tree));
            }
            for (at, h) in ids.iter().enumerate() {
                let of = |one: &Receipt| Some(one.of_one(&ids, &tree, at)?.encode());
                let version = VersionId { h: *h, l: *number, n: Hint::FIRST };
                kept.push((version, receipts.iter().filter_map(of).collect()));
            }
        }
        kept.pop().ok_or(WRONG)
    }
}

/// What all clients of a run share.
pub(super) struct Shared {
    proofs: Proofs,
    group: GroupId,
    versions: Versions,
    tries: usize,
    /// Updates that are certified.
    pub(super) certified: AtomicU64,
}

impl Shared {
    pub(super) fn new(charter: &Charter, tries: usize) -> Arc<Self> {
        let proofs = Proofs::new(NETWORK, charter.group.clone());
        let group = charter.rules.group;
        let versions = Versions::default();
        Arc::new(Self { proofs, group, versions, tries, certified: AtomicU64::new(0) })
    }
}

/// One of them.
pub(super) struct Client {
    shared: Arc<Shared>,
    line: Line,
    key: SecretKey,
    author: PublicKey,
    object: ObjectKey,
    record: Bytes,
    number: u64,
    heads: Vec<Option<(RecordId, u64)>>,
}

impl Client {
    /// One with so many branches.
    pub(super) fn new(
        shared: &Arc<Shared>,
        line: &Line,
        which: u32,
        branches: usize,
    ) -> Result<Self, BenchError> {
        const WRONG: BenchError = BenchError::Wrong("a name of an object");
        let mut key = [1; 32];
        key[..4].copy_from_slice(&which.to_be_bytes());
        let key = SecretKey::from_bytes(&key).map_err(|_| WRONG)?;
        let (author, name) = (key.public(), Bytes::from_static(b"report"));
        let record = ObjectRecord { network: NETWORK, owner: author, name };
        let object = record.key(Suite::Holdfast1).map_err(|_| WRONG)?;
        let record = record.encode().map_err(|_| WRONG)?;
        let (shared, line) = (Arc::clone(shared), line.clone());
        let heads = vec![None; branches];
        Ok(Self { shared, line, key, author, object, record, number: 0, heads })
    }

    fn update(&mut self, operation: Operation) -> Update {
        self.number += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.number.to_be_bytes());
        let (group, author) = (self.shared.group, self.author);
        Update { network: NETWORK, group, author, id, last_valid: u64::MAX, operation }
    }

    async fn told(&self, submission: &Submission) -> Result<Vec<Bytes>, BenchError> {
        for _ in 0..self.shared.tries {
            let answers = self.line.ask(submission).await;
            if answers.len() == submission.updates().len() {
                return Ok(answers);
            }
            tokio::time::sleep(AGAIN).await;
        }
        let limit = AGAIN * self.shared.tries as u32;
        Err(BenchError::Late { what: "an update was not answered", limit })
    }

    /// Makes its object known.
    pub(super) async fn begin(&mut self) -> Result<(), BenchError> {
        let operation = Operation::Object { record: self.record.clone(), policy: Bytes::new() };
        let submission = self.update(operation).sign(&self.key)?;
        self.told(&submission).await.map(drop)
    }

    fn set(&mut self, branch: usize) -> Result<Update, BenchError> {
        let (new, receipts) = self.shared.versions.next()?;
        let (object, expected) = (self.object, self.heads.get(branch).copied().flatten());
        let branch = format!("b{branch}").into();
        Ok(self.update(Operation::Set { object, branch, expected, new, receipts }))
    }

    fn moved(&mut self, branch: usize, update: &Update, answer: &Answer) -> Result<(), BenchError> {
        let Outcome::Accepted { height } = answer.outcome else {
            return Err(BenchError::Wrong("a head that somebody else moved"));
        };
        if let (Some(head), Operation::Set { new, .. }) =
            (self.heads.get_mut(branch), &update.operation)
        {
            if head.is_some_and(|(_, before)| height <= before) {
                return Err(BenchError::Wrong("a head that is not after the one before"));
            }
            *head = Some((new.h, height));
        }
        self.shared.certified.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Moves all its branches once, in one bundle where there are several; how long that took.
    pub(super) async fn turn(&mut self) -> Result<Duration, BenchError> {
        let mut updates = Vec::with_capacity(self.heads.len());
        for branch in 0..self.heads.len() {
            updates.push(self.set(branch)?);
        }
        let submission = match &updates[..] {
            [one] => one.sign(&self.key)?,
            many => Submission::bundle(many, &self.key)?,
        };
        let at = Instant::now();
        let answers = self.told(&submission).await?;
        let took = at.elapsed();
        let answers = self.shared.proofs.answers(&submission, &answers)?;
        for (branch, (update, answer)) in updates.iter().zip(&answers).enumerate() {
            self.moved(branch, update, answer)?;
        }
        Ok(took)
    }

    /// Turns until a moment: how many updates, and what each turn took.
    pub(super) async fn work(mut self, until: Instant) -> Result<(u64, Vec<Duration>), BenchError> {
        let mut took = Vec::new();
        while Instant::now() < until {
            took.push(self.turn().await?);
        }
        Ok((took.len() as u64 * self.heads.len() as u64, took))
    }
}

/// All latencies of some clients.
pub(super) fn all(took: impl IntoIterator<Item = Duration>) -> Latencies {
    let mut latencies = Latencies::default();
    took.into_iter().for_each(|one| latencies.add(one));
    latencies
}
