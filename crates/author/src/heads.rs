//! Signed heads: which version a branch of an object is at, as its owner's devices say.
//!
//! A version is a fact, a head is an opinion. Each device of an owner signs with a key of its own, which the owner's newest list
//! names ([`Heads::delegate`], [`Heads::revoke`]). A head names those that it takes the place of: all tips that its device saw. So two devices
//! that write at once are both heard, whoever reads next sees two tips, and [`Heads::reconcile`] merges them. Nothing is lost, and no
//! clock decides.
//!
//! ```no_run
//! # async fn example(objects: author::objects::Objects) -> Result<(), author::objects::ObjectsError> {
//! use author::objects::WriteOptions;
//!
//! let notes = objects.open(objects.public_key(), b"notes").await?;
//! let heads = objects.heads();
//! let main = heads.read(&notes, "main").await?;
//! let base = main.tips.first().map(|tip| tip.version);
//! let written = notes.put(base.as_ref(), "buy bread", WriteOptions::default()).await?;
//! heads.update(&main, &written.id).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A read asks N - W + 1 holders and takes what any of them proves; holders that lacked a tip are given it. What a holder tells that was
//! away for long, or was sent again by anybody, is no tip (`past`). That a device does not count any
//! more is known from the owner's list, which goes to all peers and never rolls back, here neither.

mod devices;
mod past;
mod reconcile;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{PeerId, PublicKey, RecordId};
use document::{Kind, Record};
use env::calls::objects::{GetHeads, HeadsAnswer, ObjectsAnswer, ObjectsRequest, PutObjects};
use version::head::{RECORDS_MAX, SUPERSEDES_MAX};
use version::{Branch, BranchName, DeviceList, Head, VersionError, VersionId};
use walk::objects::{Answers, Judge, Judged, Question};

use crate::objects::{Object, Objects, ObjectsError, Subject};

pub use devices::Delegated;
pub use reconcile::Reconciled;

/// Bytes of an answer, about.
const HEADS_BYTES: usize = 64 << 10;
/// How long a read waits for holders that it gives what they lacked.
const REPAIR_LIMIT: Duration = Duration::from_secs(2);

/// One user's way to signed heads. It shares with its [`Objects`] what they know.
#[derive(Clone, Debug)]
pub struct Heads {
    objects: Objects,
}

/// A head that counts and that none takes the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadTip {
    /// The head's record.
    pub id: RecordId,
    /// What the branch is at, as it says.
    pub version: VersionId,
    /// Which device says so.
    pub device: PublicKey,
    /// When it said so, Unix milliseconds: for people, and decides nothing.
    pub time_ms: u64,
}

/// What a branch is at.
#[derive(Clone, Debug)]
pub struct BranchState {
    /// The object.
    pub object: Object,
    /// Whose branch it is.
    pub name: BranchName,
    /// What counts: none of a new branch, several where devices wrote at once. In the order of their records' ids.
    pub tips: Vec<HeadTip>,
    /// The owner's newest list of devices, where there is one.
    pub devices: Option<DeviceList>,
    /// Whether so many holders answered that one of them knows each head that was acknowledged.
    pub is_enough: bool,
    /// Peers that answered.
    pub answered: Vec<PeerId>,
    /// Peers that answered with what does not prove itself; nothing of it counts.
    pub refused: Vec<PeerId>,
    /// Heads that are no tips and would be where nobody knows better: the next update takes their place too.
    past: Vec<RecordId>,
}

/// What one holder proved.
struct Told {
    heads: Vec<(Record, Head)>,
    devices: Option<(DeviceList, Record)>,
}

impl Objects {
    /// The heads of branches, signed and read under the same key.
    pub fn heads(&self) -> Heads {
        Heads { objects: self.clone() }
    }
}

impl Heads {
    /// What a branch is at. Holders that lacked what counts are given it.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`ObjectsError::Unavailable`] where not one holder answered, [`ObjectsError::Denied`], [`ObjectsError::Corrupt`] where every
    /// answer was a lie, [`ObjectsError::Version`] for a branch that cannot be called so. Where some answered and not enough,
    /// [`BranchState::is_enough`] says so.
    pub async fn read(&self, object: &Object, branch: &str) -> Result<BranchState, ObjectsError> {
        let name = self.name(object, branch);
        let question = self.question(object, &name)?;
        let mut answers = self.ask(&question).await?;
        if answers.answers.is_empty() && !object.is_own() {
            // Holders of a branch may not know its object yet, and tell nobody anything of it then.
            object.ask_policy().await?;
            let redundancy = self.objects.walker().redundancy(Kind::Head);
            let introduction = object.introduction()?;
            self.objects.send_records(question.place, redundancy, introduction).await?;
            answers = self.ask(&question).await?;
        }
        let refused: Vec<PeerId> = crate::objects::liars(&answers.errors).collect();
        if answers.answers.is_empty() {
            return Err(crate::objects::silent(Subject::Heads(object.key()), answers.errors));
        }
        let (mut answered, mut all) = (Vec::new(), Vec::new());
        let mut had: Vec<(PeerId, BTreeSet<RecordId>, u64)> = Vec::new();
        for (peer, told) in answers.answers {
            answered.push(peer);
            let told = told.unwrap_or(Told { heads: Vec::new(), devices: None });
            let ids = told.heads.iter().map(|(record, _)| record.id).collect();
            had.push((peer, ids, told.devices.as_ref().map_or(0, |(list, _)| list.sequence)));
            all.push(told.heads);
            if let Some((list, record)) = told.devices {
                self.objects.take_devices(list, record);
            }
        }
        let devices = self.objects.devices_of(&object.owner());
        let list = devices.as_ref().map(|(list, _)| list);
        let (branch, records) = gathered(&name, list, all);
        let mut tips: Vec<HeadTip> =
            branch.tips(list).into_iter().map(|(id, head)| HeadTip::of(id, head)).collect();
        let past = self.past(object, &branch, &tips).await;
        tips.retain(|tip| !past.contains(&tip.id));
        self.repair(object, &tips, &records, devices.as_ref(), had).await;
        Ok(BranchState {
            object: object.clone(),
            name,
            tips,
            devices: devices.map(|(list, _)| list),
            is_enough: answers.is_enough,
            answered,
            refused,
            past: past.into_iter().collect(),
        })
    }

    /// Says that the branch is at this version from now on, in the place of the tips that were read: all that `seen` has. Two
    /// devices that do so at once are two tips. Answers with what the branch is at then, as far as this device knows.
    ///
    /// With more than 64 tips the others stay until the next update.
    ///
    /// Cancel safe in that dropping it stops it; some holders may have the head then, and a later read finds it.
    ///
    /// # Errors
    /// [`ObjectsError::NotADevice`] where this key is not in the owner's newest list, [`ObjectsError::NotStored`],
    /// [`ObjectsError::Version`].
    pub async fn update(
        &self,
        seen: &BranchState,
        version: &VersionId,
    ) -> Result<BranchState, ObjectsError> {
        let device = self.objects.public_key();
        let owner = seen.object.owner();
        let devices = self.objects.devices_of(&owner);
        let listed = devices.as_ref().is_some_and(|(list, _)| list.names(&device));
        if device != owner && !listed {
            return Err(ObjectsError::NotADevice(device));
        }
        let ids = seen.tips.iter().map(|tip| tip.id).chain(seen.past.iter().copied());
        let ids: Vec<RecordId> = ids.take(SUPERSEDES_MAX).collect();
        let now = self.objects.author().env().clock.unix_ms();
        let head = Branch::new(seen.name.clone()).next(&ids, device, *version, now);
        let (suite, key) = (self.objects.suite(), self.objects.key().clone());
        let signed = self.objects.cpu(move || head.sign(suite, &key).map(|record| (head, record)));
        let (head, record) = signed.await??;
        let mut with = seen.object.introduction()?;
        with.extend(devices.map(|(_, record)| record));
        let id = record.id;
        let redundancy = self.objects.walker().redundancy(Kind::Head);
        self.objects.send_with(record.place, redundancy, with, vec![record]).await?;
        let left = seen.tips.iter().filter(|tip| !ids.contains(&tip.id)).cloned();
        let tips = left.chain([HeadTip::of(id, &head)]).collect();
        let past = seen.past.iter().filter(|id| !ids.contains(id)).copied().collect();
        Ok(BranchState { tips, past, ..seen.clone() })
    }

    async fn ask(&self, question: &Question<Told>) -> Result<Answers<Told>, ObjectsError> {
        self.objects.walker().answers(question, false).await.map_err(ObjectsError::Walk)
    }

    fn name(&self, object: &Object, branch: &str) -> BranchName {
        BranchName {
            network: self.objects.network(),
            owner: object.owner(),
            name: object.record_name().clone(),
            branch: branch.to_owned(),
        }
    }

    fn question(&self, object: &Object, name: &BranchName) -> Result<Question<Told>, ObjectsError> {
        let suite = self.objects.suite();
        let redundancy = self.objects.walker().redundancy(Kind::Head);
        let wanted = name.clone();
        let judge: Judge<Told> = Arc::new(move |_, answer| match answer {
            ObjectsAnswer::Heads(answer) => crate::objects::judged(told(suite, &wanted, answer)),
            _ => Judged::Lie("it answers something else than heads".to_owned()),
        });
        let branch = Bytes::copy_from_slice(name.branch.as_bytes());
        let may_all = object.is_own();
        let (owner, object, reader) = (object.owner(), object.key(), self.objects.reader());
        let request = ObjectsRequest::Heads(GetHeads { owner, object, branch, reader });
        Ok(Question {
            place: name.place(suite)?,
            copies: redundancy.copies,
            enough: redundancy.copies.saturating_sub(redundancy.acknowledged) + 1,
            request,
            bytes: HEADS_BYTES,
            judge,
            may_all,
        })
    }

    /// Gives holders what counts and they lacked, for so long as a reader can wait; what fails is done by the next read.
    async fn repair(
        &self,
        object: &Object,
        tips: &[HeadTip],
        records: &BTreeMap<RecordId, Record>,
        devices: Option<&(DeviceList, Record)>,
        had: Vec<(PeerId, BTreeSet<RecordId>, u64)>,
    ) {
        let Ok(introduction) = object.introduction() else { return };
        let newest = devices.map_or(0, |(list, _)| list.sequence);
        let sent = had.into_iter().filter_map(|(peer, ids, sequence)| {
            let missing = tips.iter().filter(|tip| !ids.contains(&tip.id));
            let heads: Vec<Record> =
                missing.filter_map(|tip| records.get(&tip.id)).cloned().collect();
            let list = devices.filter(|_| sequence < newest).map(|(_, record)| record.clone());
            if heads.is_empty() && list.is_none() {
                return None;
            }
            let records = introduction.iter().cloned().chain(list).chain(heads).collect();
            let put = ObjectsRequest::Put(PutObjects { records, ..PutObjects::default() });
            let judge: Judge<()> = Arc::new(|_, _| Judged::Here(()));
            Some(async move {
                let given = self.objects.walker().answer_of(&peer, put, HEADS_BYTES, judge).await;
                if let Err(error) = given {
                    tracing::debug!(%peer, %error, "a holder was not given what it lacked");
                }
            })
        });
        let all = futures::future::join_all(sent);
        let _ = self.objects.author().env().within(REPAIR_LIMIT, all).await;
    }
}

impl HeadTip {
    fn of(id: RecordId, head: &Head) -> Self {
        Self { id, version: head.version, device: head.device, time_ms: head.time_ms }
    }
}

/// A branch of what its holders told, as much as is looked at of one. Anybody can sign heads under keys of his own, so those that count
/// come first; the others matter where one that counts supersedes them. Of either, those of the holders that told fewest come first: who makes
/// up many, or tells thousands of true ones that were superseded long ago, crowds out nobody's.
fn gathered(
    name: &BranchName,
    devices: Option<&DeviceList>,
    told: Vec<Vec<(Record, Head)>>,
) -> (Branch, BTreeMap<RecordId, Record>) {
    let (mut branch, mut records) = (Branch::new(name.clone()), BTreeMap::new());
    let (mut counting, mut others) = (Vec::new(), Vec::new());
    for heads in told {
        let (counts, more): (Vec<_>, Vec<_>) =
            heads.into_iter().partition(|(_, head)| head.counts(devices));
        counting.push(counts);
        others.push(more);
    }
    counting.sort_by_key(Vec::len);
    others.sort_by_key(Vec::len);
    for (record, head) in counting.into_iter().chain(others).flatten() {
        if branch.take(record.id, head).is_err() {
            break;
        }
        records.insert(record.id, record);
    }
    (branch, records)
}

/// Proves what a holder says of a branch.
fn told(suite: crypto::Suite, name: &BranchName, answer: HeadsAnswer) -> Result<Told, String> {
    if answer.heads.len() > RECORDS_MAX {
        return Err(format!("{} heads of one branch", answer.heads.len()));
    }
    let mut heads = Vec::with_capacity(answer.heads.len());
    for record in answer.heads {
        let head = head_of(suite, name, &record)?;
        heads.push((record, head));
    }
    let devices = answer.devices.map(|record| devices_of(suite, name, record)).transpose()?;
    Ok(Told { heads, devices })
}

fn head_of(suite: crypto::Suite, name: &BranchName, record: &Record) -> Result<Head, String> {
    if record.kind != Kind::Head || suite.id(&record.bytes) != record.id {
        return Err("another record than a head".to_owned());
    }
    let head = Head::verify(&record.bytes).map_err(|error| error.to_string())?;
    match head.branch == *name {
        true => Ok(head),
        false => Err("a head of another branch".to_owned()),
    }
}

fn devices_of(
    suite: crypto::Suite,
    name: &BranchName,
    record: Record,
) -> Result<(DeviceList, Record), String> {
    if record.kind != Kind::Devices || suite.id(&record.bytes) != record.id {
        return Err("another record than a list of devices".to_owned());
    }
    let list =
        DeviceList::verify(&record.bytes).map_err(|error: VersionError| error.to_string())?;
    match (list.owner, list.network) == (name.owner, name.network) {
        true => Ok((list, record)),
        false => Err("another owner's list of devices".to_owned()),
    }
}
