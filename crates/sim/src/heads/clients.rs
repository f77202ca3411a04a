//! What clients do: they move heads from where they saw them, read, and write down what they are told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use committee::{Answer, Committee as _, Handle, Operation, Outcome, Read, Submission, Update};
use commonware_runtime::{Clock as _, deterministic};
use crypto::{SecretKey, Suite};
use version::merkle::Tree;
use version::receipt::Terms;
use version::{Durability, Hint, ObjectKey, ObjectRecord, Receipt, VersionId};

use super::history::{At, History, Issued, Told, What};
use super::parties::{NETWORK, Parties, WANTED};
use crate::chance::Chance;

const BRANCHES: [&str; 2] = ["main", "side"];

/// What clients share.
pub(super) struct Shore {
    pub(super) history: Mutex<History>,
    pub(super) parties: tokio::sync::Mutex<Parties>,
    /// The ways to the members that run now.
    handles: Mutex<Vec<(usize, Handle)>>,
    /// Whether the clients go on.
    open: std::sync::atomic::AtomicBool,
}

impl Shore {
    pub(super) fn new(history: History, parties: Parties) -> Arc<Self> {
        let handles = Mutex::new(parties.handles());
        let (history, parties) = (Mutex::new(history), tokio::sync::Mutex::new(parties));
        Arc::new(Self { history, parties, handles, open: true.into() })
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn show(&self, handles: Vec<(usize, Handle)>) {
        *self.handles.lock().unwrap_or_else(PoisonError::into_inner) = handles;
    }

    pub(super) fn close(&self) {
        self.open.store(false, std::sync::atomic::Ordering::SeqCst);
    }

    fn is_open(&self) -> bool {
        self.open.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Some members that run.
    fn some(&self, chance: &mut Chance, count: usize) -> Vec<Handle> {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<&(usize, Handle)> = handles.iter().collect();
        let mut some = Vec::new();
        while some.len() < count && !all.is_empty() {
            some.push(all.remove(chance.index(all.len())).1.clone());
        }
        some
    }
}

/// A client: one of its owner's devices.
pub(super) struct Client {
    shore: Arc<Shore>,
    context: deterministic::Context,
    chance: Chance,
    number: usize,
    count: u64,
    key: SecretKey,
    committee: committee::GroupKey,
    object: ObjectKey,
    seen: [At; BRANCHES.len()],
}

fn owner() -> SecretKey {
    SecretKey::from_bytes(&[1; 32]).unwrap_or_else(|error| panic!("{error}"))
}

fn record() -> ObjectRecord {
    let name = Bytes::from_static(b"report");
    ObjectRecord { network: NETWORK, owner: owner().public(), name }
}

/// Receipts of so many peers for a version, each as often as it is wanted.
fn receipts(tree: &Tree, peers: u8, times: usize) -> Vec<Receipt> {
    let terms = Terms { durability: Durability::Group, lease_ms: 0, time_ms: 1_000 };
    let receipt = |peer: u8| {
        let key = SecretKey::from_bytes(&[50 + peer; 32]).ok()?;
        Some(Receipt::sign(&key, &NETWORK, terms, tree))
    };
    (0..peers).filter_map(receipt).flat_map(|one| vec![one; times]).collect()
}

impl Client {
    pub(super) fn new(
        shore: &Arc<Shore>,
        context: deterministic::Context,
        seed: u64,
        number: usize,
        committee: committee::GroupKey,
    ) -> Self {
        let chance = Chance::new(seed, &format!("client {number}"));
        let object = record().key(Suite::Holdfast1).unwrap_or_else(|error| panic!("{error}"));
        let (shore, key, seen) = (Arc::clone(shore), owner(), [None; BRANCHES.len()]);
        Self { shore, context, chance, number, count: 0, key, committee, object, seen }
    }

    /// Works until the shore closes.
    pub(super) async fn work(mut self) {
        while self.shore.is_open() {
            let branch = self.chance.index(BRANCHES.len());
            match self.chance.below(20) {
                0..11 => self.update(branch, 3).await.map_or((), |_| ()),
                11..17 => self.read(branch, true).await.map_or((), |_| ()),
                _ => self.read(branch, false).await.map_or((), |_| ()),
            }
            self.rest(300, 1_200).await;
        }
    }

    async fn rest(&mut self, least: u64, spread: u64) {
        let millis = least + self.chance.below(spread);
        self.context.sleep(Duration::from_millis(millis)).await;
    }

    /// Makes the object known; at the start, and for as long as it takes.
    pub(super) async fn begin(&mut self) {
        let record = record().encode().unwrap_or_else(|error| panic!("{error}"));
        let operation = Operation::Object { record, policy: Bytes::new() };
        let Some(submission) = self.signed(operation) else { return };
        for _ in 0..60 {
            if self.ask(&submission).await.is_some() {
                return;
            }
        }
        self.shore.history().find("Q6", String::from("an object is never made known"));
    }

    fn signed(&mut self, operation: Operation) -> Option<Submission> {
        self.asked(operation).sign(&self.key).ok()
    }

    fn asked(&mut self, operation: Operation) -> Update {
        self.count += 1;
        let mut id = [self.number as u8; 16];
        id[..8].copy_from_slice(&self.count.to_be_bytes());
        let (group, author) = (self.committee.id(), self.key.public());
        Update { network: NETWORK, group, author, id, last_valid: u64::MAX, operation }
    }

    /// Sends an update to two members; the first answer that holds counts.
    async fn ask(&mut self, submission: &Submission) -> Option<Answer> {
        let handles = self.shore.some(&mut self.chance, 2);
        if handles.is_empty() {
            self.rest(300, 300).await;
            return None;
        }
        let asks = handles.iter().map(|handle| Box::pin(handle.update(submission.clone())));
        let mut asks: Vec<_> = asks.collect();
        while !asks.is_empty() {
            let (answer, _, others) = futures::future::select_all(asks).await;
            asks = others;
            let Some(answer) = answer.ok().and_then(|mut all| all.pop()) else { continue };
            match answer.verify(&NETWORK, &self.committee) {
                Ok(update) if update == submission.updates()[0] => return Some(answer),
                _ => self.shore.history().tally("an answer that does not hold"),
            }
        }
        self.rest(200, 300).await;
        None
    }

    /// Moves a head; where nobody answers it is asked for again, so often.
    pub(super) async fn update(&mut self, branch: usize, times: usize) -> Option<Outcome> {
        let name = BRANCHES[branch];
        let short = self.chance.permille(120);
        self.count += 1;
        let made = format!("{} {}", self.number, self.count);
        let h = Suite::Holdfast1.id(made.as_bytes());
        let (new, expected) = (VersionId { h, l: self.count, n: Hint::FIRST }, self.seen[branch]);
        let tree = Tree::new(Suite::Holdfast1, &[h])?;
        // Too few peers: one of them, twice.
        let (peers, each) = if short { (1, 2) } else { (WANTED, 1) };
        let receipts = receipts(&tree, peers, each);
        // Each third time they are beside the update, as in a bundle of what was put in one call.
        let beside = self.count.is_multiple_of(3);
        let of_one = |one: &Receipt| Some(one.of_one(&[h], &tree, 0)?.encode());
        let inside = if beside { Vec::new() } else { receipts.iter().filter_map(of_one).collect() };
        let (object, branch_name) = (self.object, name.into());
        let set = Operation::Set { object, branch: branch_name, expected, new, receipts: inside };
        let submission = if beside {
            Submission::bundle_kept(&[self.asked(set)], receipts, &self.key).ok()?
        } else {
            self.signed(set)?
        };
        let digest = submission.digests()[0];
        let invoked = {
            let mut history = self.shore.history();
            let invoked = history.moment();
            let branch = String::from(name);
            history.event(format!("client {} moves {name} from {expected:?}", self.number));
            let issued = Issued { branch, expected, new: h, short };
            history.issued.insert(digest, issued);
            invoked
        };
        for _ in 0..times {
            let Some(answer) = self.ask(&submission).await else { continue };
            let header = answer.certificate.header().clone();
            match &answer.outcome {
                Outcome::Accepted { height } => self.seen[branch] = Some((h, *height)),
                Outcome::MovedOn { current } => {
                    self.seen[branch] = current.map(|(version, height)| (version.h, height));
                }
                _ => {}
            }
            let mut history = self.shore.history();
            history.tally(match &answer.outcome {
                Outcome::Accepted { .. } => "accepted",
                Outcome::MovedOn { .. } => "moved on",
                Outcome::NotStored { .. } => "not stored",
                _ => "otherwise refused",
            });
            history.event(format!("client {}: {:?}", self.number, answer.outcome));
            history.certified(&header);
            let (returned, height) = (history.moment(), header.height);
            let what = What::Update(digest, answer.outcome.clone());
            history.told.push(Told { invoked, returned, height, what });
            return Some(answer.outcome);
        }
        self.shore.history().tally("an update without an answer");
        None
    }

    pub(super) async fn read(&mut self, branch: usize, fresh: bool) -> Option<()> {
        let name = BRANCHES[branch];
        let handle = self.shore.some(&mut self.chance, 1).pop()?;
        let invoked = self.shore.history().moment();
        let read = match fresh {
            true => handle.read_fresh(self.object, name).await,
            false => handle.read(self.object, name).await,
        };
        let Ok(read) = read else {
            self.shore.history().tally("a read without an answer");
            return None;
        };
        let checked = Read::decode(&read.encode());
        let checked =
            checked.and_then(|read| read.verify(&NETWORK, &self.committee, &self.object, name));
        let Ok(certified) = checked else {
            self.shore.history().tally("a read that does not hold");
            return None;
        };
        let at = certified.head.map(|head| (head.version.h, head.height));
        if fresh {
            self.seen[branch] = at;
        }
        let mut history = self.shore.history();
        history.tally(if fresh { "fresh reads" } else { "reads" });
        history.certified(&certified.header);
        let (returned, height) = (history.moment(), certified.header.height);
        let what = What::Read(String::from(name), at, fresh);
        history.event(format!("client {}: {what:?}", self.number));
        history.told.push(Told { invoked, returned, height, what });
        Some(())
    }

    /// Whether a fresh read is answered by one of some members in turn, as clients ask on: who lies, or has a twin, need not answer.
    async fn read_somewhere(&mut self, branch: usize) -> bool {
        for _ in 0..8 {
            if self.read(branch, true).await.is_some() {
                return true;
            }
        }
        false
    }

    /// When all trouble is over everything goes on: each branch moves, and is read.
    pub(super) async fn end(mut self) {
        for (branch, name) in BRANCHES.iter().enumerate() {
            let mut moved = false;
            for _ in 0..12 {
                let outcome = self.update(branch, 4).await;
                let accepted = matches!(outcome, Some(Outcome::Accepted { .. }));
                moved = accepted && self.read_somewhere(branch).await;
                if moved {
                    break;
                }
                self.rest(200, 800).await;
            }
            if !moved {
                let what = format!("client {} moves {name} no more", self.number);
                self.shore.history().find("Q6", what);
            }
        }
    }
}
