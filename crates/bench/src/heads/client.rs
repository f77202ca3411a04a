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
use crate::error::BenchError;
use crate::line::Line;
use crate::percentiles::Latencies;

/// Versions of one receipt where each is another client's: peers under load sign once for many.
const BATCH: u64 = 64;
/// How often an update that is not answered is sent again, where members run, and where they are killed.
pub(super) const TRIES: usize = 40;
pub(super) const TRIES_KILLED: usize = 480;
const AGAIN: Duration = Duration::from_millis(250);

type Kept = (VersionId, Vec<Bytes>);

/// Versions that peers keep, with what they answered.
pub(super) struct Versions {
    peers: Vec<SecretKey>,
    rest: Mutex<(u64, Vec<Kept>)>,
}

impl Versions {
    fn new() -> Result<Self, BenchError> {
        let peer = |which: u8| SecretKey::from_bytes(&[200 + which; 32]);
        let peers = (0..KEEPERS).map(peer).collect::<Result<_, _>>();
        let peers = peers.map_err(|_| BenchError::Wrong("a peer's key"))?;
        Ok(Self { peers, rest: Mutex::default() })
    }

    /// So many in one call.
    fn put(&self, from: u64, count: u64) -> Result<Call, BenchError> {
        let one = |one: u64| Suite::Holdfast1.id(&one.to_be_bytes());
        let hs: Vec<RecordId> = (from..from + count).map(one).collect();
        let tree = Tree::new(Suite::Holdfast1, &hs);
        let tree = tree.ok_or(BenchError::Wrong("receipts that do not fit"))?;
        let time_ms = 1_700_000_000_000;
        let terms = Terms { durability: Durability::Group, lease_ms: 0, time_ms };
        let sign = |peer| Receipt::sign(peer, &NETWORK, terms, &tree);
        let receipts = self.peers.iter().map(sign).collect();
        Ok(Call { hs, tree, receipts })
    }

    /// One, of a call in which others' are too.
    fn one(&self) -> Result<Kept, BenchError> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, kept) = &mut *rest;
        if kept.is_empty() {
            let Call { hs, tree, receipts } = self.put(*number, BATCH)?;
            *number += BATCH;
            for (at, h) in hs.iter().enumerate() {
                let of = |one: &Receipt| Some(one.of_one(&hs, &tree, at)?.encode());
                kept.push((version(*h, *number), receipts.iter().filter_map(of).collect()));
            }
        }
        kept.pop().ok_or(BenchError::Wrong("receipts that do not fit"))
    }

    /// So many of a call of their own, with its receipts.
    fn call(&self, count: usize) -> Result<(Vec<VersionId>, Vec<Receipt>), BenchError> {
        let from = {
            let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
            rest.0 += count as u64;
            rest.0 - count as u64
        };
        let Call { hs, receipts, .. } = self.put(from, count as u64)?;
        Ok((hs.into_iter().map(|h| version(h, from + count as u64)).collect(), receipts))
    }
}

/// Versions of one call: each peer signs once for all of them.
struct Call {
    hs: Vec<RecordId>,
    tree: Tree,
    receipts: Vec<Receipt>,
}

const fn version(h: RecordId, l: u64) -> VersionId {
    VersionId { h, l, n: Hint::FIRST }
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
    pub(super) fn new(charter: &Charter, tries: usize) -> Result<Arc<Self>, BenchError> {
        let proofs = Proofs::new(NETWORK, charter.group.clone());
        let group = charter.rules.group;
        let versions = Versions::new()?;
        Ok(Arc::new(Self { proofs, group, versions, tries, certified: AtomicU64::new(0) }))
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
            let answers = self.line.ask(submission.encode()).await;
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

    fn set(&mut self, branch: usize, (new, receipts): Kept) -> Update {
        let (object, expected) = (self.object, self.heads.get(branch).copied().flatten());
        let branch = format!("b{branch}").into();
        self.update(Operation::Set { object, branch, expected, new, receipts })
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
        let (updates, submission) = if self.heads.len() == 1 {
            let kept = self.shared.versions.one()?;
            let update = self.set(0, kept);
            let submission = update.sign(&self.key)?;
            (vec![update], submission)
        } else {
            let (versions, receipts) = self.shared.versions.call(self.heads.len())?;
            let set = |(branch, version)| self.set(branch, (version, Vec::new()));
            let updates: Vec<Update> = versions.into_iter().enumerate().map(set).collect();
            let submission = Submission::bundle_kept(&updates, receipts, &self.key)?;
            (updates, submission)
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
