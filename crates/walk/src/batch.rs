//! Many small records at once: one call to each holder instead of one a record.
//!
//! A put ends with an entry and its envelopes, and a listing reads hundreds of entries; over one connection a call of one
//! small record costs about as much as a call of a hundred. Each record keeps its own walk (copies, replacements, verdict);
//! only calls to the same peer at the same moment are shared (stores: the first to each peer), and answer each record that takes
//! part in them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crypto::lease::Shown;
use crypto::{PeerId, Place, RecordId};
use document::{Kind, Record};
use env::calls::{BATCH_BYTES_MAX, BATCH_MAX, CallError, FindRequest, StoreOutcome};
use futures::FutureExt;
use futures::StreamExt;
use futures::future::{BoxFuture, Shared, join_all};
use placement::Redundancy;

use crate::core::{Core, Wanted};
use crate::error::WalkError;
use crate::finding::Finding;
use crate::gather::Gather;
use crate::latency::Size;
use crate::race::SharedTurn;
use crate::storing::Storing;
use crate::walker::{Found, Stored, Walker};

/// Records on their way at once.
const AT_ONCE_MAX: usize = BATCH_MAX;

/// Records asked of a librarian at once that walks for this program.
const THROUGH_MAX: usize = 64;

/// A record to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// What it should be, if that is known.
    pub kind: Option<Kind>,
    /// Which record.
    pub id: RecordId,
    /// Where it lives.
    pub place: Place,
}

/// The answers of a call that several records share, one a record. An error is everybody's.
pub(crate) type Answers<T> = Arc<Result<Vec<Result<T, CallError>>, CallError>>;
/// A call that several records wait for. It runs while any of them does.
pub(crate) type SharedCall<T> = Shared<BoxFuture<'static, Answers<T>>>;

impl Walker {
    /// Stores small records at their holders, those of one holder in one call; one outcome a record, in their order.
    ///
    /// For records of some kilobytes: each is held until its copies are durable. As for [`Walker::store`] otherwise.
    pub async fn store_batch(
        &self,
        records: Vec<(Record, Redundancy)>,
    ) -> Vec<Result<Stored, WalkError>> {
        let bare = records.into_iter().map(|(record, copies)| (record, Vec::new(), copies));
        self.store_batch_leased(bare.collect()).await
    }

    /// As [`Walker::store_batch`], with the leases that each record is paid by: each with the leaf of its place alone.
    pub async fn store_batch_leased(
        &self,
        records: Vec<(Record, Vec<Shown>, Redundancy)>,
    ) -> Vec<Result<Stored, WalkError>> {
        if self.is_thin() {
            let stored = records
                .into_iter()
                .map(|(record, leases, copies)| self.store_leased(record, leases, copies));
            return futures::stream::iter(stored).buffered(THROUGH_MAX).collect().await;
        }
        let mut outcomes = Vec::with_capacity(records.len());
        let mut records = records.into_iter().peekable();
        while records.peek().is_some() {
            let some: Vec<_> = records.by_ref().take(AT_ONCE_MAX).collect();
            outcomes.extend(self.store_some(some).await);
        }
        outcomes
    }

    async fn store_some(
        &self,
        records: Vec<(Record, Vec<Shown>, Redundancy)>,
    ) -> Vec<Result<Stored, WalkError>> {
        let view = self.core.directory.view();
        if view.is_empty() {
            let none = || Err(WalkError::NoPeers { tried: Vec::new() });
            return records.iter().map(|_| none()).collect();
        }
        let walks = records.into_iter().map(|(record, leases, redundancy)| {
            Storing::new(self.core.clone(), &view, record, leases, redundancy)
        });
        let mut walks: Vec<Storing> = walks.collect();
        let mut by_peer: BTreeMap<PeerId, Vec<usize>> = BTreeMap::new();
        for (at, walk) in walks.iter_mut().enumerate() {
            for peer in walk.choose() {
                by_peer.entry(peer).or_default().push(at);
            }
        }
        for (peer, members) in by_peer {
            for group in bounded_groups(&walks, &members) {
                let records =
                    group.iter().map(|at| (walks[*at].record.clone(), walks[*at].leases.clone()));
                let (turn, answers) = store_call(&self.core, peer, records.collect());
                for (index, at) in group.into_iter().enumerate() {
                    let answers = answers.clone();
                    let answer = async move { one_of(&answers.await, index) };
                    walks[at].start_shared(peer, turn.clone(), answer);
                }
            }
        }
        join_all(walks.into_iter().map(|walk| self.finish(walk))).await
    }

    /// Finds small records, those of one holder in one call; one outcome a record, in their order.
    pub async fn find_batch(&self, sought: Vec<Sought>) -> Vec<Result<Found, WalkError>> {
        if self.is_thin() {
            let one = |sought: Sought| self.find(sought.kind, sought.id, sought.place);
            return futures::stream::iter(sought).map(one).buffered(THROUGH_MAX).collect().await;
        }
        let mut outcomes = Vec::with_capacity(sought.len());
        for some in sought.chunks(AT_ONCE_MAX) {
            outcomes.extend(self.find_some(some).await);
        }
        outcomes
    }

    async fn find_some(&self, sought: &[Sought]) -> Vec<Result<Found, WalkError>> {
        let gather = Arc::new(Gather::default());
        let walks = sought.iter().map(|one| {
            let walk = Finding::new(self.core.clone(), Wanted::from(one));
            walk.with_others(gather.clone())
        });
        let mut walks: Vec<Finding> = walks.collect();
        // First all that is here, so that what is asked of others is asked together.
        let mut here = Vec::with_capacity(walks.len());
        for walk in &mut walks {
            here.push(walk.local().await);
        }
        let walks = walks.into_iter().zip(here).map(|(mut walk, here)| async move {
            match here {
                Some(here) => Ok(Found::from(here)),
                None => walk.run().await.map(Found::from),
            }
        });
        futures::stream::iter(walks).buffered(AT_ONCE_MAX).collect().await
    }
}

impl From<&Sought> for Wanted {
    fn from(sought: &Sought) -> Self {
        let request = FindRequest { id: sought.id, place: sought.place };
        Self::new(sought.kind, request)
    }
}

/// Splits the records of one peer so that each call keeps the bounds of a batch.
fn bounded_groups(walks: &[Storing], members: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut bytes = usize::MAX;
    for at in members {
        let size = walks[*at].record.bytes.len();
        let full = groups.last().is_none_or(|group| group.len() >= BATCH_MAX);
        if full || bytes.saturating_add(size) > BATCH_BYTES_MAX {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        if let Some(group) = groups.last_mut() {
            group.push(*at);
        }
    }
    groups
}

fn store_call(
    core: &Arc<Core>,
    peer: PeerId,
    records: Vec<(Record, Arc<Vec<Shown>>)>,
) -> (SharedTurn, SharedCall<StoreOutcome>) {
    let bytes = records.iter().map(|(record, _)| record.bytes.len()).sum();
    let turn = core.shared_turn(core.load_to(&peer, bytes));
    let (core, of_all) = (core.clone(), turn.clone());
    let call = async move {
        let turn = of_all.await;
        if let Some(own) = core.local(&peer) {
            let stored = records
                .into_iter()
                .map(|(record, leases)| own.store_leased(record, leases.to_vec()));
            return Arc::new(Ok(join_all(stored).await));
        }
        let leases = joined(records.iter().flat_map(|(_, leases)| leases.iter()));
        let records: Vec<Record> = records.into_iter().map(|(record, _)| record).collect();
        let (limit, count) = (turn.limit(), records.len());
        let answer = called(&core, peer, (Size::Large, count), limit, |to| {
            let core = core.clone();
            async move {
                if leases.is_empty() {
                    return core.calls.store_batch(&to, records, limit).await;
                }
                core.calls.store_leased(&to, records, leases, limit).await
            }
        });
        let answer = answer.await;
        core.moved(&turn, &peer, &answer.as_ref().map(drop).map_err(Clone::clone));
        for error in answer.iter().flatten().filter_map(|outcome| outcome.as_ref().err()) {
            core.directory.failed(&peer, error);
        }
        Arc::new(answer)
    };
    (turn, call.boxed().shared())
}

/// Each lease once, with the leaves of all records that it pays for.
fn joined<'a>(leases: impl Iterator<Item = &'a Shown>) -> Vec<Shown> {
    let mut joined: BTreeMap<&[u8], Shown> = BTreeMap::new();
    for shown in leases {
        match joined.get_mut(&shown.lease[..]) {
            None => drop(joined.insert(&shown.lease, shown.clone())),
            Some(known) => {
                let new = shown.leaves.iter().filter(|leaf| !known.leaves.contains(leaf));
                let new: Vec<_> = new.cloned().collect();
                known.leaves.extend(new);
            }
        }
    }
    joined.into_values().collect()
}

/// Makes one call for `count` records, checks that each got an answer, and tells the directory how it went. One of many records
/// is compared with the large ones, whatever its bytes.
pub(crate) async fn called<T, F>(
    core: &Arc<Core>,
    peer: PeerId,
    (size, count): (Size, usize),
    limit: Duration,
    call: impl FnOnce(env::calls::Endpoint) -> F,
) -> Result<Vec<Result<T, CallError>>, CallError>
where
    F: Future<Output = Result<Vec<Result<T, CallError>>, CallError>> + Send,
{
    let to = core.endpoint(&peer)?;
    let since = core.env.clock.elapsed();
    let answer = core.bounded(&to, limit, call(to.clone())).await.and_then(|answers| {
        if answers.len() == count {
            return Ok(answers);
        }
        let reason = format!("{} answers to {count} requests", answers.len());
        Err(CallError::Corrupt { address: to.address.clone(), reason })
    });
    core.note(&peer, size, since, &answer);
    answer
}

pub(crate) fn one_of<T: Clone>(answers: &Answers<T>, index: usize) -> Result<T, CallError> {
    match &**answers {
        Ok(answers) => answers.get(index).cloned().unwrap_or(Err(CallError::NotFound)),
        Err(error) => Err(error.clone()),
    }
}
