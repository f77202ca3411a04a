//! Other peers are asked to prove what they should hold: a random chunk of random records, within a deadline.
//!
//! ```text
//!   every `audit`, the next peer:   common items of parts that both agree about -> 16 of them, one chunk each
//!     -> Prove -> checked against the ids, without a copy -> its account -> faulty, or not any more
//! ```
//! In `libri-1`, where a proof has no tree, it is asked for the MAC of copies that are here, under a fresh key.
//!
//! **Late, or loaded?** An answer that is right and late may come of a holder that had to fetch it, or of one with much to do. So a late
//! answer is followed by a question that is answered from memory. Where that is slow too the challenge says nothing, and its time counts for
//! the next deadline; where it is quick, another challenge of other items follows at once, since what a broken line lost looks the same, and
//! that one failed if it is late too. Who cannot be reached is absent, and fails nothing; who can, and answers only this badly, says
//! nothing once, and fails where it does so again and again.
//!
//! What an audit proves and does not is on `docs/operating/audit.md`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crypto::{PeerId, RecordId, Suite};
use document::Kind;
use document::proof::verify_chunk;
use env::calls::keep::{HeldFragment, KeepAnswer, KeepRequest, PROVE_MAX, ProveAt, Range};
use env::calls::{CallError, VerifyRequest, VerifyResponse};
use store::Placed;
use walk::Health;

use super::account::Account;
use super::ask::{SMALL_LIMIT, ask, strange};
use super::{Keeping, compare, locked};
use crate::core::Core;

/// Items of one challenge.
const ITEMS: usize = 16;
const _: () = assert!(ITEMS <= PROVE_MAX, "one call asks for them");
/// Random places looked at for them: in a small network few items are common.
const TRIES: usize = 4 * ITEMS;
/// How long an answer is waited for, though it is late long before.
const PROVE_LIMIT: Duration = Duration::from_secs(12);
/// Record bytes of a challenge in `libri-1`, where both sides read all of each.
const MAC_BYTES_MAX: usize = 8 << 20;
/// A question that is answered from memory takes this part of what a late answer took, where the holder is loaded.
const LOADED_PART: u32 = 4;
/// Why an item failed of which there is no proof at all.
const NOT_HERE: &str = "no proof";

/// What is common with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Common {
    /// A copy that is here and should be there.
    Copy(Placed),
    /// A fragment that is there, of a stripe of which another is here.
    Fragment(HeldFragment),
}

/// Every other peer's account.
#[derive(Default)]
pub(crate) struct Audits(HashMap<PeerId, Account>);

impl Audits {
    pub(super) fn of(&mut self, peer: PeerId) -> &mut Account {
        self.0.entry(peer).or_default()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&PeerId, &Account)> {
        self.0.iter()
    }
}

/// What became of one item.
type Outcome = Result<(), &'static str>;
type Outcomes = Vec<(RecordId, Outcome)>;

/// An answer in time or not: what each item came to, and how many bytes of records were read for them.
struct Answer {
    outcomes: Outcomes,
    bytes: u64,
    took: Duration,
}

/// Challenges one peer after the other until this one stops.
pub(super) async fn audit_all(core: Arc<Core>, keeping: Arc<Keeping>) {
    let mut turn: Vec<PeerId> = Vec::new();
    while core.pause(core.jittered(keeping.options.audit)).await {
        look_after(&core, &keeping);
        for peer in whom(&core, &keeping, &mut turn) {
            tokio::select! {
                biased;
                () = core.stop.cancelled() => return,
                () = audit(&core, &keeping, &peer) => {}
            }
        }
    }
}

/// The peer whose turn it is: the one that all was compared with last, to which there is a connection still, or another where
/// that one had its turn. So all are challenged equally often, whether they let themselves be compared with or not.
fn whom(core: &Core, keeping: &Keeping, turn: &mut Vec<PeerId>) -> Vec<PeerId> {
    let compared = locked(&keeping.compared_last).take();
    match compared.and_then(|peer| turn.iter().position(|other| *other == peer)) {
        Some(at) => vec![turn.swap_remove(at)],
        None => compare::next(core, turn, || compare::others(core, keeping)),
    }
}

/// Forgets peers that are gone, and believes those again that were faulty for long and cannot be asked.
fn look_after(core: &Core, keeping: &Keeping) {
    let view = core.directory.view();
    let now = core.env.clock.elapsed();
    let mut forgiven = Vec::new();
    {
        let mut audits = locked(&keeping.audits);
        audits.0.retain(|peer, _| view.index_of(peer).is_some());
        for (peer, account) in &mut audits.0 {
            if account.forgive(now) {
                forgiven.push(*peer);
            }
        }
    }
    for peer in forgiven {
        tracing::info!(%peer, "a peer that was faulty for long may show again what it holds");
        locked(&keeping.present).judge(peer, false);
    }
}

/// What a challenge comes to.
enum Verdict {
    /// Each item's outcome counts.
    Counts(Outcomes),
    /// It says nothing.
    Nothing,
    /// What was lost on the way looks the same: it is asked once more, for other items.
    Again,
}

impl From<Option<Outcomes>> for Verdict {
    fn from(outcomes: Option<Outcomes>) -> Self {
        outcomes.map_or(Self::Nothing, Self::Counts)
    }
}

/// Challenges one peer, and once more where the first challenge may have been lost on the way, or where it may have lost what it had when
/// the two were compared last: who says so itself, and has not said so lately, does not fail, and what it lacks is made good.
async fn audit(core: &Core, keeping: &Keeping, peer: &PeerId) {
    let mut verdict = challenge(core, keeping, peer, false).await;
    // A wrong proof is wrong whatever else lacks.
    let lacks = |outcomes: &Outcomes| {
        let mut failed = outcomes.iter().filter_map(|(_, outcome)| outcome.err()).peekable();
        failed.peek().is_some() && failed.all(|why| why == NOT_HERE)
    };
    let now = core.env.clock.elapsed();
    if let Verdict::Counts(outcomes) = &verdict
        && lacks(outcomes)
        && locked(&keeping.audits).of(*peer).excuse(now)
    {
        if !matches!(compare::sums(core, keeping, peer, Range::ALL).await, Ok(Some(_))) {
            locked(&keeping.audits).of(*peer).agrees_no_more();
        }
        verdict = Verdict::Again;
    }
    if matches!(verdict, Verdict::Again) {
        verdict = challenge(core, keeping, peer, true).await;
    }
    if let Verdict::Counts(outcomes) = verdict {
        count(core, keeping, peer, &outcomes);
    }
}

/// Asks for proofs of random items; `again` says that the same was asked just now, and not answered in time.
async fn challenge(core: &Core, keeping: &Keeping, peer: &PeerId, again: bool) -> Verdict {
    let items = chosen(core, keeping, peer);
    let counts = &core.metrics.audit;
    let answered = match core.genesis.suite {
        Suite::Holdfast1 => {
            let asks = with_ids(core, items).await;
            if asks.is_empty() {
                return Verdict::Nothing;
            }
            counts.challenges.inc();
            proven(core, peer, asks).await
        }
        Suite::Libri1 => {
            let asks = with_copies(core, items).await;
            if asks.is_empty() {
                return Verdict::Nothing;
            }
            counts.challenges.inc();
            verified(core, peer, asks).await
        }
    };
    match answered {
        Ok(answer) => judged(core, keeping, peer, answer, again).await,
        Err((asked, error)) => failed(core, keeping, peer, asked, &error, again).await,
    }
}

/// Random items of what is common with a peer.
fn chosen(core: &Core, keeping: &Keeping, peer: &PeerId) -> Vec<Common> {
    let (view, mine) = {
        let inventory = locked(&keeping.inventory);
        let Some(inventory) = inventory.as_ref() else { return Vec::new() };
        // Who leaves hands over what it has.
        if !inventory.epoch().is_present(peer) {
            return Vec::new();
        }
        (inventory.epoch().hash, inventory.sums(peer, Range::ALL))
    };
    let now = core.env.clock.elapsed();
    let (parts, agreed) = {
        let mut audits = locked(&keeping.audits);
        let account = audits.of(*peer);
        account.is_due(view, now);
        let parts = account.parts(view, &mine, now);
        let agreed: Vec<u8> =
            parts.iter().copied().filter(|part| account.agrees(view, &mine, *part)).collect();
        (parts, agreed)
    };
    // An old head that is a tip here may be superseded and gone where its branch went on: where the two differ it says nothing.
    let says_nothing = |item: &Common, part: u8| {
        let is_head = matches!(item, Common::Copy(placed) if placed.kind == Kind::Head);
        is_head && !agreed.contains(&part)
    };
    let mut items = Vec::new();
    for _ in 0..TRIES {
        let (Some(part), true) = (core.pick(&parts), items.len() < ITEMS) else { break };
        let random = u64::from_be_bytes(core.env.random());
        let inventory = locked(&keeping.inventory);
        let item = inventory.as_ref().and_then(|all| all.sample(peer, part, random));
        items.extend(item.filter(|item| !items.contains(item) && !says_nothing(item, part)));
    }
    items
}

/// The records of items, and a random chunk of each.
async fn with_ids(core: &Core, items: Vec<Common>) -> Vec<ProveAt> {
    let mut asks: Vec<ProveAt> = Vec::with_capacity(items.len());
    for item in items {
        let id = match item {
            Common::Copy(placed) => Some(placed.id),
            Common::Fragment(HeldFragment { stripe, index }) => {
                // Without its header here it is another day's question.
                let header = core.shelf.stripe(&stripe).await.ok().flatten();
                header.and_then(|header| header.fragments().get(usize::from(index)).copied())
            }
        };
        let chunk = u32::from_be_bytes(core.env.random());
        asks.extend(id.map(|id| ProveAt { id, chunk }));
    }
    asks
}

type Unanswered = (Vec<RecordId>, CallError);

/// Asks for proofs and checks them.
async fn proven(core: &Core, peer: &PeerId, asks: Vec<ProveAt>) -> Result<Answer, Unanswered> {
    let since = core.env.clock.elapsed();
    let answer = ask(core, peer, KeepRequest::Prove(asks.clone()), PROVE_LIMIT).await;
    let took = core.env.clock.elapsed().saturating_sub(since);
    let proofs = match answer {
        Ok(KeepAnswer::Prove(proofs)) if proofs.len() == asks.len() => Ok(proofs),
        Ok(_) => Err(strange(peer)),
        Err(error) => Err(error),
    };
    let ids = || asks.iter().map(|at| at.id).collect();
    let proofs = proofs.map_err(|error| (ids(), error))?;
    let check = move || {
        let mut bytes = 0;
        let checked = asks.iter().zip(&proofs).map(|(at, proof)| {
            let Some(proof) = proof else { return (at.id, Err(NOT_HERE)) };
            bytes += u64::from(proof.length);
            let right = verify_chunk(&at.id, at.chunk, proof).is_ok();
            (at.id, if right { Ok(()) } else { Err("a wrong proof") })
        });
        let outcomes = checked.collect();
        Answer { outcomes, bytes, took }
    };
    Ok(core.env.cpu(check).await)
}

/// The copies of items as they are here, as many as are read for it.
async fn with_copies(core: &Core, items: Vec<Common>) -> Vec<(VerifyRequest, bytes::Bytes)> {
    let (mut asks, mut left) = (Vec::new(), MAC_BYTES_MAX);
    for item in items {
        let Common::Copy(placed) = item else { continue };
        let Ok(Some(record)) = core.shelf.get(&placed.id).await else { continue };
        let Some(rest) = left.checked_sub(record.bytes.len()) else { break };
        left = rest;
        let (id, place, mac_key) = (placed.id, placed.place, core.env.random());
        asks.push((VerifyRequest { id, place, mac_key }, record.bytes));
    }
    asks
}

/// Asks for MACs and compares them with those of the copies here.
async fn verified(
    core: &Core,
    peer: &PeerId,
    asks: Vec<(VerifyRequest, bytes::Bytes)>,
) -> Result<Answer, Unanswered> {
    let ids: Vec<RecordId> = asks.iter().map(|(request, _)| request.id).collect();
    let Some(to) = core.directory.endpoint(peer) else {
        let reason = "it announced no address".to_owned();
        return Err((ids, CallError::Unreachable { address: peer.to_string(), reason }));
    };
    let requests = asks.iter().map(|(request, _)| *request).collect();
    let since = core.env.clock.elapsed();
    let call = core.calls.verify_batch(&to, requests, PROVE_LIMIT);
    let timed_out = CallError::TimedOut { address: to.address.clone(), limit: PROVE_LIMIT };
    let answers = core.env.within(PROVE_LIMIT, call).await.unwrap_or(Err(timed_out));
    let took = core.env.clock.elapsed().saturating_sub(since);
    let answers = match answers {
        Ok(answers) if answers.len() == asks.len() => answers,
        Ok(_) => return Err((ids, strange(peer))),
        Err(error) => {
            core.directory.failed(peer, &error);
            return Err((ids, error));
        }
    };
    let suite = core.genesis.suite;
    let check = move || {
        let bytes = asks.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let checked = asks.iter().zip(answers).map(|((request, bytes), answer)| {
            let outcome = match answer {
                Ok(VerifyResponse::Mac(mac)) if suite.verify_mac(&request.mac_key, bytes, &mac) => {
                    Ok(())
                }
                Ok(VerifyResponse::Mac(_)) => Err("a wrong MAC"),
                _ => Err(NOT_HERE),
            };
            (request.id, outcome)
        });
        let outcomes = checked.collect();
        Answer { outcomes, bytes, took }
    };
    Ok(core.env.cpu(check).await)
}

/// What an answer comes to.
async fn judged(
    core: &Core,
    keeping: &Keeping,
    peer: &PeerId,
    answer: Answer,
    again: bool,
) -> Verdict {
    let Answer { mut outcomes, bytes, took } = answer;
    let deadline = locked(&keeping.audits).of(*peer).deadline(bytes);
    if took <= deadline {
        locked(&keeping.audits).of(*peer).took(took, bytes);
        return Verdict::Counts(outcomes);
    }
    core.metrics.audit.late.inc();
    match quick(core, peer, took).await {
        // A wrong proof is wrong however late it comes.
        Some(true) if !again && outcomes.iter().all(|(_, outcome)| outcome.is_ok()) => {
            Verdict::Again
        }
        Some(true) => {
            outcomes.iter_mut().for_each(|(_, outcome)| *outcome = outcome.and(Err("too late")));
            Verdict::Counts(outcomes)
        }
        Some(false) => {
            locked(&keeping.audits).of(*peer).took(took, bytes);
            let ids = outcomes.iter().map(|(id, _)| *id).collect();
            void(core, keeping, peer, ids, "it is loaded").into()
        }
        None => {
            let ids = outcomes.iter().map(|(id, _)| *id).collect();
            silent(core, keeping, peer, ids).into()
        }
    }
}

/// What a challenge comes to where nothing is answered: who cannot be reached is absent, and counts as such; who answers others
/// just does not say.
fn silent(core: &Core, keeping: &Keeping, peer: &PeerId, asked: Vec<RecordId>) -> Option<Outcomes> {
    match core.directory.health(peer) {
        Health::Away => None,
        _ => void(core, keeping, peer, asked, "it does not answer this"),
    }
}

/// What a challenge that was not answered comes to.
async fn failed(
    core: &Core,
    keeping: &Keeping,
    peer: &PeerId,
    asked: Vec<RecordId>,
    error: &CallError,
    again: bool,
) -> Verdict {
    let all = |why| Verdict::Counts(asked.iter().map(|id| (*id, Err(why))).collect());
    let says_nothing = match error {
        CallError::Unreachable { .. } | CallError::WrongPeer { .. } => {
            silent(core, keeping, peer, asked)
        }
        CallError::TimedOut { .. } => match quick(core, peer, PROVE_LIMIT).await {
            Some(true) if !again => return Verdict::Again,
            Some(true) => return all("no answer"),
            Some(false) => void(core, keeping, peer, asked, "it is loaded"),
            None => silent(core, keeping, peer, asked),
        },
        CallError::Corrupt { .. } => return all("no proofs"),
        _ => void(core, keeping, peer, asked, "it does not say"),
    };
    says_nothing.into()
}

/// Whether a peer answers from memory much quicker than it proved; `None` where it does not answer at all.
async fn quick(core: &Core, peer: &PeerId, took: Duration) -> Option<bool> {
    let since = core.env.clock.elapsed();
    let request = KeepRequest::Have(vec![RecordId::new(core.env.random())]);
    ask(core, peer, request, SMALL_LIMIT).await.ok()?;
    let memory = core.env.clock.elapsed().saturating_sub(since);
    Some(memory * LOADED_PART < took)
}

/// A challenge that says nothing, but that there were many such.
fn void(
    core: &Core,
    keeping: &Keeping,
    peer: &PeerId,
    asked: Vec<RecordId>,
    why: &'static str,
) -> Option<Outcomes> {
    core.metrics.audit.void.inc();
    tracing::debug!(%peer, why, "a challenge says nothing of what is held");
    let one_too_many = locked(&keeping.audits).of(*peer).is_one_too_many();
    one_too_many.then(|| asked.into_iter().map(|id| (id, Err(why))).collect())
}

/// Counts what a challenge came to, tells it, and judges.
fn count(core: &Core, keeping: &Keeping, peer: &PeerId, outcomes: &[(RecordId, Outcome)]) {
    let now = core.env.clock.elapsed();
    let failed = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).count();
    let counts = &core.metrics.audit;
    counts.failed.inc_by(failed as u64);
    counts.proven.inc_by((outcomes.len() - failed) as u64);
    for (record, outcome) in outcomes {
        if let Err(why) = outcome {
            tracing::warn!(%peer, %record, why, "a peer did not prove what it should hold");
        }
    }
    let (before, after, last) = {
        let mut audits = locked(&keeping.audits);
        let account = audits.of(*peer);
        let before = account.is_faulty();
        account.count(outcomes.iter().map(|(_, outcome)| outcome.is_err()), now);
        (before, account.is_faulty(), account.last())
    };
    if before == after {
        return;
    }
    locked(&keeping.present).judge(*peer, after);
    let (items, failed) = last;
    match after {
        true => tracing::warn!(%peer, items, failed, "a peer is faulty: this one says so"),
        false => tracing::info!(%peer, "a peer that was faulty proves what it holds again"),
    }
}
