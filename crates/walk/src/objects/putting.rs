//! Putting parcels at their holders: the first N of a place's rank that are well, answered when W keep it.
//!
//! As `storing`, but that a holder has a third answer: *redirect*, its region is full. W of those end a parcel too, for its
//! writer goes on at another place. Parcels of one holder share its first request, as in `batch`; where a holder does not
//! know an object it is sent once more what it was sent, with the object's record and policy in front.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crypto::{PeerId, RecordId};
use document::{Kind, Record};
use env::calls::objects::{
    ObjectsAnswer, ObjectsRequest, PutObjects, PutObjectsAnswer, PutOutcome,
};
use env::calls::{BATCH_BYTES_MAX, BATCH_MAX, CallError};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, join_all};
use placement::View;
use version::{Receipt, Redirect};

use super::{Delivered, DeliveredAt, Deliveries, Parcel, PeerReceipt, PutTerms};
use crate::background::Unfinished;
use crate::candidates::Candidates;
use crate::core::{Core, WALK_LIMIT};
use crate::directory::Standing;
use crate::error::WalkError;
use crate::latency::Size;
use crate::line::{Load, Moved};
use crate::race::{Ended, Event, Race};
use crate::storing::EXTRA_MAX;
use crate::walker::Walker;

/// What a holder made of a parcel.
#[derive(Clone)]
enum Outcome {
    Kept(Option<Arc<PeerReceipt>>),
    Redirected(Redirect),
    Failed(CallError),
}

impl Ended for Outcome {
    fn moved(&self) -> Moved {
        match self {
            Self::Kept(_) => Moved::Yes,
            Self::Redirected(_) => Moved::Nothing,
            Self::Failed(error) => error.moved(),
        }
    }
}

/// One call for several parcels: an outcome each.
type SharedCall = Shared<BoxFuture<'static, Arc<Vec<Outcome>>>>;

/// A parcel on its way to its holders.
pub(crate) struct Putting {
    core: Arc<Core>,
    pub(crate) parcel: Arc<Parcel>,
    terms: PutTerms,
    candidates: Candidates,
    race: Race<Outcome>,
    pub(crate) holders: Vec<PeerId>,
    receipts: Vec<Arc<PeerReceipt>>,
    redirects: Vec<Redirect>,
    errors: Vec<(PeerId, CallError)>,
    until: Duration,
}

impl Walker {
    /// Puts parcels at the holders of their places; those of one holder go in one request. Answers when of each W copies are
    /// durable, or W holders redirected it, or it failed; the other copies go on behind.
    ///
    /// Every record must be one that holders accept. A parcel has at most [`super::PARCEL_RECORDS_MAX`] records of together
    /// [`super::PARCEL_BYTES_MAX`] bytes, or one version. Dropping the future stops the copies that are on their way; those
    /// already stored stay.
    ///
    /// # Errors
    /// Of each parcel for itself, as [`Walker::store`]; [`WalkError::ObjectsThrough`] for all where a librarian walks for this program.
    pub async fn put_objects(&self, parcels: Vec<Parcel>, terms: PutTerms) -> Deliveries {
        let refused = |error: fn() -> WalkError| parcels.iter().map(|_| Err(error())).collect();
        if self.is_thin() {
            return refused(|| WalkError::ObjectsThrough);
        }
        let view = self.core.directory.view();
        if view.is_empty() {
            return refused(|| WalkError::NoPeers { tried: Vec::new() });
        }
        let walks = parcels.into_iter().map(|parcel| {
            let parcel = Arc::new(parcel);
            Putting::new(self.core.clone(), &view, parcel, terms)
        });
        let mut walks: Vec<Putting> = walks.collect();
        let mut by_peer: BTreeMap<PeerId, Vec<usize>> = BTreeMap::new();
        for (at, walk) in walks.iter_mut().enumerate() {
            for peer in walk.choose() {
                by_peer.entry(peer).or_default().push(at);
            }
        }
        for (peer, members) in by_peer {
            for group in groups(&walks, &members) {
                let parcels: Vec<_> = group.iter().map(|at| walks[*at].parcel.clone()).collect();
                let bytes = parcels.iter().map(|parcel| parcel.bytes()).sum();
                let turn = self.core.shared_turn(Load::sent(bytes));
                let (core, of_all) = (self.core.clone(), turn.clone());
                let call = async move {
                    let turn = of_all.await;
                    let outcomes = put_at(&core, peer, &parcels, terms, turn.limit()).await;
                    if let Some(best) = outcomes.iter().max_by_key(|outcome| outcome.moved()) {
                        core.moved(&turn, &peer, best);
                    }
                    Arc::new(outcomes)
                };
                let call: SharedCall = call.boxed().shared();
                for (index, at) in group.into_iter().enumerate() {
                    let call = call.clone();
                    let answer = async move { call.await[index].clone() };
                    walks[at].race.start_shared(peer, turn.clone(), answer);
                }
            }
        }
        join_all(walks.into_iter().map(|walk| self.delivered(walk))).await
    }

    async fn delivered(&self, mut walk: Putting) -> Result<Delivered, WalkError> {
        walk.decided().await?;
        if walk.acked() < walk.parcel.redundancy.acknowledged {
            return Ok(Delivered::Redirected(walk.redirects));
        }
        let (wanted, receipts) = (walk.parcel.redundancy.copies, walk.receipts.clone());
        let rest = self.background.finish(Unfinished::Objects(Box::new(walk))).await;
        let reached = rest.reached();
        let (acked, holders) = (reached.acked, reached.holders);
        Ok(Delivered::Stored(DeliveredAt { acked, wanted, holders, receipts, rest }))
    }
}

/// Splits the parcels of one peer so that each request keeps its bounds.
fn groups(walks: &[Putting], members: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let (mut bytes, mut count) = (usize::MAX, usize::MAX);
    for at in members {
        let parcel = &walks[*at].parcel;
        let full = bytes.saturating_add(parcel.bytes()) > BATCH_BYTES_MAX
            || count.saturating_add(parcel.count()) > BATCH_MAX;
        if full {
            groups.push(Vec::new());
            (bytes, count) = (0, 0);
        }
        (bytes, count) = (bytes + parcel.bytes(), count + parcel.count());
        if let Some(group) = groups.last_mut() {
            group.push(*at);
        }
    }
    groups
}

impl Putting {
    fn new(core: Arc<Core>, view: &View, parcel: Arc<Parcel>, terms: PutTerms) -> Self {
        let size = Size::of(parcel.bytes());
        let own = core.directory.own();
        let candidates = Candidates::to_write(view, &parcel.place, size);
        let candidates = candidates.without(|peer| Some(*peer) == own);
        let race = Race::new(core.clone(), size);
        let until = core.env.clock.elapsed() + WALK_LIMIT;
        let (holders, receipts) = (Vec::new(), Vec::new());
        let (redirects, errors) = (Vec::new(), Vec::new());
        Self { core, parcel, terms, candidates, race, holders, receipts, redirects, errors, until }
    }

    fn acked(&self) -> u32 {
        u32::try_from(self.holders.len()).unwrap_or(u32::MAX)
    }

    fn is_decided(&self) -> bool {
        let needed = self.parcel.redundancy.acknowledged as usize;
        self.holders.len() >= needed || self.redirects.len() >= needed
    }

    /// The peers to start at now, so that N copies are stored or on their way if all goes well.
    fn choose(&mut self) -> Vec<PeerId> {
        let redundancy = self.parcel.redundancy;
        let (copies, needed) = (redundancy.copies as usize, redundancy.acknowledged as usize);
        let mut chosen = Vec::new();
        loop {
            // A holder that redirects has answered for its copy: another one would be full as soon.
            let answered = self.holders.len() + self.redirects.len();
            let expected = answered + self.race.counted() + chosen.len();
            if expected >= copies || self.race.len() + chosen.len() >= copies + EXTRA_MAX {
                return chosen;
            }
            let worst = if expected < needed { Standing::Away } else { Standing::Ready };
            match self.candidates.next(&self.core, worst) {
                Some((peer, _)) => chosen.push(peer),
                None => return chosen,
            }
        }
    }

    fn fill(&mut self) {
        for peer in self.choose() {
            let (core, parcel, terms) = (self.core.clone(), self.parcel.clone(), self.terms);
            let load = Load::sent(parcel.bytes());
            self.race.start(peer, load, move |limit| async move {
                put_at(&core, peer, &[parcel], terms, limit).await.remove(0)
            });
        }
    }

    /// Goes on until W copies are durable, or W holders redirected it.
    async fn decided(&mut self) -> Result<(), WalkError> {
        while !self.is_decided() {
            if !self.step().await {
                let mut errors = std::mem::take(&mut self.errors);
                let silent = self.candidates.read_only(&self.core).into_iter();
                let reason = || "it said so before".to_owned();
                errors.extend(silent.map(|peer| (peer, CallError::ReadOnly { reason: reason() })));
                let wanted = self.parcel.redundancy.acknowledged;
                return Err(WalkError::of_write(self.acked(), wanted, errors));
            }
        }
        Ok(())
    }

    /// Goes on until N copies are durable or nothing more can be done; `on_holder` is told after each copy. Cancel safe.
    pub(crate) async fn complete(&mut self, mut on_holder: impl FnMut(&[PeerId]) + Send) {
        let mut known = self.holders.len();
        while self.acked() < self.parcel.redundancy.copies && self.step().await {
            if self.holders.len() > known {
                known = self.holders.len();
                on_holder(&self.holders);
            }
        }
        self.race.give_up();
        on_holder(&self.holders);
    }

    /// Starts what there is to start and waits for one event; `false` when nothing runs any more.
    async fn step(&mut self) -> bool {
        self.fill();
        match self.race.next(self.until).await {
            Some(Event::Done(peer, Outcome::Kept(receipt))) => {
                self.holders.push(peer);
                self.receipts.extend(receipt);
            }
            Some(Event::Done(_, Outcome::Redirected(redirect))) => self.redirects.push(redirect),
            Some(Event::Done(peer, Outcome::Failed(error))) => self.errors.push((peer, error)),
            Some(Event::Late(peer)) => {
                if !self.is_decided() && self.race.may_send_twice(&peer) {
                    self.race.replace(&peer);
                }
            }
            Some(Event::Overdue(peer)) => {
                self.race.replace(&peer);
            }
            Some(Event::Idle) | None => return false,
        }
        true
    }
}

/// Sends parcels to one peer: once, and those whose object it does not know once more with that.
async fn put_at(
    core: &Core,
    peer: PeerId,
    parcels: &[Arc<Parcel>],
    terms: PutTerms,
    limit: Duration,
) -> Vec<Outcome> {
    let mut outcomes = put_once(core, peer, parcels, (terms, limit), false).await;
    let unknown = |outcome: &Option<Outcome>| outcome.is_none();
    if outcomes.iter().any(unknown) {
        let again = outcomes.iter().zip(parcels).filter(|(outcome, _)| unknown(outcome));
        let again: Vec<_> = again.map(|(_, parcel)| parcel.clone()).collect();
        let mut second = put_once(core, peer, &again, (terms, limit), true).await.into_iter();
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
            *outcome = second.next().flatten();
        }
    }
    let told = "it says that it does not know an object that it was told of";
    let outcomes = outcomes.into_iter();
    outcomes
        .map(|one| one.unwrap_or_else(|| Outcome::Failed(core.corrupt(&peer, told.to_owned()))))
        .collect()
}

/// Sends parcels to one peer in one request; `None` for one whose object it does not know.
async fn put_once(
    core: &Core,
    peer: PeerId,
    parcels: &[Arc<Parcel>],
    (terms, limit): (PutTerms, Duration),
    introduced: bool,
) -> Vec<Option<Outcome>> {
    let failed = |error: CallError| {
        parcels.iter().map(|_| Some(Outcome::Failed(error.clone()))).collect::<Vec<_>>()
    };
    let records = request_of(parcels, introduced);
    let bytes: usize = records.iter().map(|record| record.bytes.len()).sum();
    let PutTerms { compress, durability, receipt } = terms;
    let request = PutObjects { records: records.clone(), compress, durability, receipt };
    let request = ObjectsRequest::Put(request);
    let answer = core.objects_at(&peer, request, Size::of(bytes), limit).await;
    let answer = match answer {
        Ok(ObjectsAnswer::Put(answer)) if answer.outcomes.len() == records.len() => answer,
        Ok(_) => {
            let error = core.corrupt(&peer, "it answers something else than a put".to_owned());
            core.directory.failed(&peer, &error);
            return failed(error);
        }
        Err(error) => return failed(error),
    };
    let receipt = match receipt_of(core, &peer, &records, &answer) {
        Ok(receipt) => receipt.map(Arc::new),
        Err(error) => return failed(error),
    };
    let by_id: BTreeMap<RecordId, &Result<PutOutcome, CallError>> =
        records.iter().map(|record| record.id).zip(&answer.outcomes).collect();
    let outcomes = parcels.iter();
    outcomes.map(|parcel| outcome_of(core, &peer, parcel, &by_id, receipt.as_ref())).collect()
}

/// All records of a request, each once: objects, policies, attestations, then what is to be kept.
fn request_of(parcels: &[Arc<Parcel>], introduced: bool) -> Vec<Record> {
    let mut known = std::collections::BTreeSet::new();
    let object = parcels.iter().filter(|_| introduced).flat_map(|parcel| &parcel.object);
    let with = parcels.iter().flat_map(|parcel| &parcel.with);
    let kept = parcels.iter().flat_map(|parcel| &parcel.records);
    let all = object.chain(with).chain(kept);
    all.filter(|record| known.insert(record.id)).cloned().collect()
}

/// The receipt of an answer, where there is one: it must be this peer's, for just the versions that it says to keep.
fn receipt_of(
    core: &Core,
    peer: &PeerId,
    records: &[Record],
    answer: &PutObjectsAnswer,
) -> Result<Option<PeerReceipt>, CallError> {
    let Some(bytes) = &answer.receipt else { return Ok(None) };
    let kept = |(record, outcome): &(&Record, &Result<PutOutcome, CallError>)| {
        let kept = matches!(outcome, Ok(PutOutcome::Stored | PutOutcome::Present));
        record.kind == Kind::Version && kept
    };
    let hs = records.iter().zip(&answer.outcomes).filter(kept).map(|(record, _)| record.id);
    let hs: Vec<RecordId> = hs.collect();
    let genesis = core.directory.genesis();
    let holds = Receipt::decode(bytes).and_then(|receipt| {
        receipt.verify(genesis.suite, &hs)?;
        Ok(receipt)
    });
    match holds {
        Ok(receipt) if receipt.peer == *peer && receipt.network == genesis.network() => {
            Ok(Some(PeerReceipt { receipt, hs }))
        }
        Ok(_) => Err(core.corrupt(peer, "its receipt is another peer's".to_owned())),
        Err(error) => Err(core.corrupt(peer, format!("its receipt does not hold: {error}"))),
    }
}

fn outcome_of(
    core: &Core,
    peer: &PeerId,
    parcel: &Parcel,
    by_id: &BTreeMap<RecordId, &Result<PutOutcome, CallError>>,
    receipt: Option<&Arc<PeerReceipt>>,
) -> Option<Outcome> {
    let mut redirect = None;
    for record in &parcel.records {
        match by_id.get(&record.id) {
            Some(Ok(PutOutcome::Stored | PutOutcome::Present)) => {}
            Some(Ok(PutOutcome::NoObject)) => return None,
            Some(Ok(PutOutcome::Redirect(bytes))) => redirect = Some(bytes),
            Some(Err(error)) => return Some(Outcome::Failed(error.clone())),
            None => return Some(Outcome::Failed(CallError::NotFound)),
        }
    }
    let Some(bytes) = redirect else { return Some(Outcome::Kept(receipt.cloned())) };
    let network = core.directory.genesis().network();
    let holds = Redirect::decode(bytes).and_then(|redirect| {
        redirect.verify(&network)?;
        Ok(redirect)
    });
    Some(match holds {
        Ok(redirect) if redirect.peer == *peer => Outcome::Redirected(redirect),
        Ok(_) => Outcome::Failed(core.corrupt(peer, "its redirect is another peer's".to_owned())),
        Err(error) => {
            Outcome::Failed(core.corrupt(peer, format!("its redirect does not hold: {error}")))
        }
    })
}
