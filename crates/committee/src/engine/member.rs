//! The one task that owns a member's chain: it answers the engine, the other members and the clients, one message at a time.
//!
//! Why one task: what the engine asks, what a client sends and what another member brings all touch the same tip, and each is short.
//! What takes longer is done beside it and comes back as a message ([`beside`]): signatures of many updates are checked, and the disk is
//! waited for before a vote to finalise ([`Ask::Certify`]). At a snapshot alone it is waited for here.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use commonware_consensus::simplex::Plan;
use commonware_consensus::simplex::types::{Context, Finalization};
use commonware_cryptography::bls12381::primitives::group::Share;
use commonware_cryptography::{Signer as _, blake3};
use commonware_p2p::authenticated::lookup::{Oracle, Receiver, Sender};
use commonware_p2p::{Receiver as _, Recipients, Sender as _};
use commonware_utils::channel::{mpsc, oneshot};

use super::chain::{Chain, Final, Fit};
use super::charter::Charter;
use super::files::{self, Dealings};
use super::links::{Lines, Links};
use super::log::Log;
use super::pool::{Pool, RETRY_MS};
use super::port::Ask;
use super::wire::{Message, Notarised};
use super::{Key, Runtime, now_ms};
use crate::certificate::{Digest, Scheme};
use crate::handle::Request;
use crate::header::HeaderDigest;
use crate::{Block, Certificate, CommitteeError, Header};

mod beside;
mod dealing;
mod epoch;
mod others;
pub(super) mod outlines;
mod parked;
mod positions;
mod requests;
mod snapshots;
mod start;
mod wishes;

/// How often a member looks at what is late.
const TICK_MS: u64 = 200;
/// After how long what was asked for is asked for again.
const ASK_AGAIN_MS: u64 = 400;
/// After how long a block that nobody asks for any more is no longer wanted.
const FORGET_MS: u64 = 5_000;
/// Who said nothing for so long is not heard.
const HEARD_MS: u64 = 4_000;
/// For how long a block is executed at most by who makes it, about, in microseconds.
const BLOCK_US: u64 = 150_000;
/// After a block of so many updates the next one comes later: by so many microseconds for each of them, and by so many milliseconds
/// at most. A round costs the members of a committee of four about 60 ms of processor time together, whatever it carries, and an
/// update 0.1 to 0.3 ms; so few large blocks do more than many small ones where there is enough for them.
const PACED_FROM: u32 = 64;
const PACE_EACH_US: u64 = 300;
const PACE_MAX_MS: u64 = 150;
/// A header so far ahead of this clock waits.
const AHEAD_MS: u64 = 5_000;
/// For so long after its start a member does not say how far it is: its journal is being read.
const QUIET_MS: u64 = 2_000;

/// How a member is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What its files begin with: lower-case letters, digits and `-`.
    pub name: String,
    /// Where it and the others are.
    pub links: Links,
    /// How long an update, or a fresh read, is waited for.
    pub answer_within: Duration,
    /// How long the chain rests where nobody wants anything: at least a block each.
    pub rest: Duration,
    /// By how many bytes its log grows, beside twice the state's, before it is begun anew with a snapshot: up to twice as many, by its
    /// place among the members.
    pub log_growth: u64,
    /// How long a reshare waits for new members to follow, and a dealer for players to acknowledge.
    pub deal_within: Duration,
    /// For how long the disk is slow with the last block of an epoch.
    #[cfg(test)]
    pub(crate) slow_last: Duration,
}

impl Settings {
    /// The usual ones: answers within 30 s, a block a second at rest, 64 MiB of log, a minute for dealing.
    pub fn new(name: &str, links: Links) -> Self {
        Self {
            name: String::from(name),
            links,
            answer_within: Duration::from_secs(30),
            rest: Duration::from_secs(1),
            log_growth: 64 << 20,
            deal_within: Duration::from_secs(60),
            #[cfg(test)]
            slow_last: Duration::ZERO,
        }
    }
}

/// What the engine waits for.
#[derive(Default)]
struct Wanted {
    verify: Vec<(Context<Digest, Key>, oneshot::Sender<bool>)>,
    certify: Vec<oneshot::Sender<bool>>,
    /// Whether a quorum stands for it: it notarised it or one that stands on it. A proposal is its leader's word alone.
    vouched: bool,
    asked_ms: u64,
    asks: u32,
}

impl Wanted {
    /// Whether the engine still waits.
    fn waits(&self) -> bool {
        self.verify.iter().any(|(_, response)| !response.is_closed())
            || self.certify.iter().any(|response| !response.is_closed())
    }

    /// The blocks that it would go on from: the engine asks about none before a quorum notarised its parent.
    fn parents(&self) -> impl Iterator<Item = HeaderDigest> {
        self.verify.iter().map(|(context, _)| digest_of(&context.parent.1))
    }

    /// Whether the engine may vote for it if this is its parent.
    fn goes_on_from(&self, parent: &HeaderDigest) -> bool {
        !self.certify.is_empty() || self.parents().any(|one| one == *parent)
    }

    /// Answers that it gets no vote.
    fn refuse(&mut self) {
        tell_all(self.verify.drain(..).map(|(_, response)| response), false);
        tell_all(self.certify.drain(..), false);
    }
}

struct Member<E: Runtime> {
    context: E,
    settings: Settings,
    charter: Charter,
    me: Key,
    term: epoch::Term,
    engine: Option<epoch::Running>,
    lines: Lines<E>,
    peers: epoch::Peers,
    share: Option<Share>,
    dealings: Dealings<E>,
    dealing: Option<dealing::Dealing>,
    /// The epoch before which nothing secret is left.
    closed: Option<u64>,
    wishes: wishes::Wishes,
    chain: Chain,
    log: Log<E>,
    pool: Pool,
    sender: Sender<Key, E>,
    oracle: Oracle<Key>,
    wanted: BTreeMap<HeaderDigest, Wanted>,
    parked: parked::Parked,
    outlines: outlines::Outlines,
    proposing: Option<(Context<Digest, Key>, oneshot::Sender<Digest>)>,
    proposing_ms: u64,
    /// Whether the engine asked about a round since the start: then it has read its journal, and told of all that is in it.
    has_voted: bool,
    notarised: Option<Notarised>,
    ahead: Option<Finalization<Scheme, Digest>>,
    heard: HashMap<Key, u64>,
    heights: HashMap<Key, u64>,
    moved_ms: u64,
    fresh: requests::FreshReads,
    given_out: others::GivenOut,
    passed_on: others::PassedOn,
    beside: beside::Beside,
    turn: usize,
    asked: others::Asked,
    outbox: Vec<Bytes>,
    update_us: u64,
    given: Option<snapshots::Given>,
    taken: Option<snapshots::Taken>,
    paces: snapshots::Paces,
    started_ms: u64,
    told_ms: u64,
    #[cfg(test)]
    seen: HashMap<HeaderDigest, u64>,
}

/// Runs a member until its requests end. With a share it votes, without one, or after it forgot its votes, it follows.
///
/// # Errors
/// [`CommitteeError`]: its files, its disk, or a fork.
pub async fn run<E: Runtime>(
    context: E,
    settings: Settings,
    mut requests: mpsc::Receiver<Request>,
) -> Result<(), CommitteeError> {
    let (mut member, mut receiver, mut besides) = Member::open(context, settings).await?;
    member.go_on(&mut requests, &mut receiver, &mut besides).await
}

/// A member, and where it hears the others and what was done beside it.
type Opened<E> = (Member<E>, Receiver<Key>, mpsc::UnboundedReceiver<beside::Done>);

impl<E: Runtime> Member<E> {
    /// Opens what is its own on the disk, connects, and enters the epoch that its log says.
    async fn open(context: E, settings: Settings) -> Result<Opened<E>, CommitteeError> {
        let charter = files::charter(&context, &settings.name).await?;
        let (log, found) =
            Log::open(context.child("log"), format!("{}-chain", settings.name)).await?;
        let mut chain = Chain::new(&charter);
        start::restore(&mut chain, &charter, found)?;
        let dealings = Dealings::open(&context, &settings.name).await?;
        let known = chain.state().members().map_or(0, |members| members.members.len());
        let links = settings.links.open(&context, &charter.rules.network, b"", known);
        let mut links = links?;
        let lines = [links.channel(0), links.channel(1), links.channel(2)];
        let lines = Lines::new(&context, lines);
        let (sender, receiver) = links.channel(3);
        let (oracle, peers) = (links.oracle.clone(), epoch::Peers::new(&settings.links, &links));
        links.start();
        let now = now_ms(&context);
        let (done, besides) = mpsc::unbounded_channel();
        let mut member = Member {
            me: settings.links.secret.0.public_key(),
            term: epoch::Term::of(chain.state())?,
            engine: None,
            lines,
            peers,
            share: None,
            dealings,
            dealing: None,
            closed: None,
            wishes: wishes::Wishes::default(),
            chain,
            log,
            sender,
            oracle,
            pool: Pool::default(),
            wanted: BTreeMap::new(),
            parked: parked::Parked::default(),
            outlines: outlines::Outlines::default(),
            proposing: None,
            proposing_ms: 0,
            has_voted: false,
            notarised: None,
            ahead: None,
            heard: HashMap::new(),
            heights: HashMap::new(),
            moved_ms: now,
            fresh: requests::FreshReads::new(now),
            given_out: others::GivenOut::default(),
            passed_on: others::PassedOn::default(),
            beside: beside::Beside::new(done),
            turn: 0,
            asked: others::Asked::default(),
            outbox: Vec::new(),
            update_us: 0,
            given: None,
            taken: None,
            paces: snapshots::Paces::default(),
            started_ms: now,
            told_ms: 0,
            #[cfg(test)]
            seen: HashMap::new(),
            settings,
            charter,
            context,
        };
        member.enter().await?;
        member.recall_wish().await?;
        Ok((member, receiver, besides))
    }

    async fn go_on(
        &mut self,
        requests: &mut mpsc::Receiver<Request>,
        receiver: &mut Receiver<Key>,
        besides: &mut mpsc::UnboundedReceiver<beside::Done>,
    ) -> Result<(), CommitteeError> {
        loop {
            let wait = self.wait_ms();
            let sleep = self.context.sleep(Duration::from_millis(wait));
            tokio::select! {
                biased;
                ask = epoch::asked(&mut self.engine) => match ask {
                    Some(ask) => self.answer(ask).await?,
                    None => return Err(CommitteeError::Stopped),
                },
                done = besides.recv() => match done {
                    Some(done) => self.done(done)?,
                    None => return Err(CommitteeError::Stopped),
                },
                message = receiver.recv() => match message {
                    Ok((from, message)) => self.hear(from, message.into()).await?,
                    Err(_) => return Err(CommitteeError::Stopped),
                },
                request = requests.recv() => match request {
                    Some(request) => self.take(request).await?,
                    None => return Ok(()),
                },
                () = sleep => {}
            }
            // What came at once is taken at once: one message to the others, one block.
            for _ in 0..super::wire::SUBMISSIONS_MAX {
                let Ok(request) = requests.try_recv() else { break };
                self.take(request).await?;
            }
            self.check_asked();
            self.pass_on();
            self.fill_outlines().await?;
            self.ask_how_far();
            self.propose();
            if self.tick_in_ms(now_ms(&self.context)) == 0 {
                self.tick().await?;
            }
        }
    }

    /// How long until what is late is looked at: at once where the calendar was set back, and not only when it has come to where it was.
    const fn tick_in_ms(&self, now_ms: u64) -> u64 {
        match now_ms < self.told_ms {
            true => 0,
            false => (self.told_ms + TICK_MS).saturating_sub(now_ms),
        }
    }

    /// Until when nothing happens by itself.
    fn wait_ms(&self) -> u64 {
        let now = now_ms(&self.context);
        let tick = self.tick_in_ms(now);
        let proposal = self.proposing.as_ref().and_then(|(context, _)| {
            let (parent, _) = self.chain.parent(&digest_of(&context.parent.1))?;
            let rests = self.rests_until(parent.time_ms, now).saturating_sub(now);
            let paced = paced(parent).saturating_sub(now);
            Some(match self.pool.len() {
                0 => rests.max(paced),
                _ if paced > 0 => rests.min(paced),
                _ => rests,
            })
        });
        let outline = self.outlines.wait_ms(now);
        tick.min(proposal.unwrap_or(u64::MAX)).min(outline).min(self.fresh.wait_ms(now)).max(1)
    }

    /// Until when nothing is proposed where nobody wants anything. A time ahead of this clock, which a lying leader may have set,
    /// does not make the rest longer.
    const fn rests_until(&self, time_ms: u64, now: u64) -> u64 {
        let rest = self.settings.rest.as_millis() as u64;
        if time_ms > now { self.proposing_ms + rest } else { time_ms + rest }
    }

    fn send(&mut self, recipients: Recipients<Key>, message: &Message) {
        #[cfg(feature = "planted-bugs")]
        let Some(message) = &self.lied(message) else { return };
        let _ = self.sender.send(recipients, message.encode(), false);
    }

    async fn answer(&mut self, ask: Ask) -> Result<(), CommitteeError> {
        match ask {
            Ask::Propose { context, response } => {
                self.has_voted = true;
                self.proposing = Some((context, response));
                self.proposing_ms = now_ms(&self.context);
            }
            Ask::Verify { context, payload, response } => {
                self.has_voted = true;
                let (digest, parent) = (digest_of(&payload), digest_of(&context.parent.1));
                let wanted = self.wanted.entry(digest).or_default();
                // The last block of an epoch is followed by itself.
                wanted.vouched |= parent == digest;
                wanted.verify.push((context, response));
                self.settle(digest).await?;
            }
            Ask::Certify { payload, response } => {
                let digest = digest_of(&payload);
                self.has_voted = true;
                self.parked.vouch(&digest);
                let wanted = self.wanted.entry(digest).or_default();
                wanted.vouched = true;
                wanted.certify.push(response);
                self.settle(digest).await?;
            }
            Ask::Send { payload, plan } => {
                let digest = digest_of(&payload);
                let recipients = match plan {
                    Plan::Propose { .. } => Recipients::All,
                    Plan::Forward { recipients, .. } => recipients,
                    Plan::Prepare { .. } => return Ok(()),
                };
                if let Some(outline) =
                    self.proposal(&digest).filter(|_| matches!(recipients, Recipients::All))
                {
                    self.send(recipients, &outline);
                } else if let Some(bytes) = self.bytes(&digest).await? {
                    self.send(recipients, &Message::Block(bytes));
                }
            }
            Ask::Notarised(notarization) => {
                let proposal = &notarization.proposal;
                let round = (proposal.round.epoch().get(), proposal.round.view().get());
                if self.notarised.as_ref().is_none_or(|known| known.round() < round) {
                    self.notarised = Notarised::of(&notarization);
                }
            }
            Ask::Final(finalization) => self.finalise(finalization).await?,
        }
        Ok(())
    }

    async fn bytes(&self, digest: &HeaderDigest) -> Result<Option<Bytes>, CommitteeError> {
        match self.chain.above(digest) {
            Some(above) => Ok(Some(above.bytes.clone())),
            None => self.log.read(digest).await,
        }
    }

    /// Makes a block, if one is asked for and it is time.
    fn propose(&mut self) {
        let Some((context, response)) = self.proposing.take() else { return };
        if response.is_closed() {
            return;
        }
        let parent = digest_of(&context.parent.1);
        self.execute(parent);
        let now = now_ms(&self.context);
        let known = self.chain.parent(&parent).map(|(header, _)| (header.time_ms, paced(header)));
        let Some((time_ms, paced_until)) = known else {
            self.want_vouched(parent);
            self.proposing = Some((context, response));
            return;
        };
        // The last block of an epoch is followed by itself until it is final.
        if self.chain.ends_epoch(&parent) && self.chain.epoch_after(&parent) > Some(self.term.epoch)
        {
            let _ = response.send(context.parent.1);
            return;
        }
        if time_ms <= now && now < paced_until {
            self.proposing = Some((context, response));
            return;
        }
        let taken = self.chain.taken(&parent);
        let busy = self.pool.has_beside(&taken) && !self.chain.is_deep(&parent);
        if now < self.rests_until(time_ms, now) && !busy {
            self.proposing = Some((context, response));
            return;
        }
        let submissions = match self.chain.is_deep(&parent) {
            true => Vec::new(),
            false => self.pool.next(&taken, self.batch()),
        };
        let count: usize = submissions.iter().map(|one| one.updates().len()).sum();
        let made = self.chain.propose(&parent, now, submissions);
        let took_us = now_ms(&self.context).saturating_sub(now) * 1_000;
        if let Some(one_us) = took_us.checked_div(count as u64) {
            self.update_us = (3 * self.update_us + one_us) / 4;
        }
        if let Some((digest, _)) = made {
            let _ = response.send(blake3::Digest(*digest.as_bytes()));
        }
    }

    /// How many updates a block carries: as many as this machine executes in [`BLOCK_US`]. The others must check and execute them
    /// before the round is over, or the round is lost, and the next one with the same block.
    const fn batch(&self) -> usize {
        (BLOCK_US / if self.update_us == 0 { 1 } else { self.update_us }) as usize
    }

    /// Executes a block that is parked, after those before it that are. Where the first of them lacks its parent that is asked for,
    /// if a quorum stands for one of them: a liar's blocks lead to others of its own without end.
    fn execute(&mut self, digest: HeaderDigest) -> Option<CommitteeError> {
        let path = self.parked.path(digest);
        for (at, digest) in path.iter().enumerate() {
            let Some(waiting) = self.parked.get(digest) else { continue };
            let (height, parent) = (waiting.header.height, waiting.header.parent);
            let tip = self.chain.tip().height;
            if height > tip && self.chain.parent(&parent).is_none() {
                let is_vouched =
                    |one: &HeaderDigest| self.parked.get(one).is_some_and(|one| one.vouched);
                let vouched = path.iter().skip(at).any(is_vouched);
                // One right above the tip stands beside it: its parent is of no use.
                if vouched && height > tip.saturating_add(1) && self.parked.has_room_vouched() {
                    self.want_vouched(parent);
                }
                return None;
            }
            let Some(waiting) = self.parked.remove(digest) else { continue };
            let parked::Waiting { from, header, bytes, certified, vouched } = waiting;
            let pool = &self.pool;
            let block = Block::decode_after(header, &bytes, |one| pool.known(one).cloned());
            let block = match block {
                Ok(block) => block,
                Err(error) => {
                    self.offended(&from, "sent a block that is none");
                    return Some(error);
                }
            };
            // What is certified was checked by a quorum.
            let known = |one: &crate::Submission| certified || pool.has(one);
            match self.chain.execute(block, bytes.clone(), known) {
                Fit::Here | Fit::Aside => {}
                Fit::NoParent(block) => {
                    let header = block.header;
                    let waiting = parked::Waiting { from, header, bytes, certified, vouched };
                    self.parked.put(*digest, waiting);
                    return None;
                }
                Fit::Bad(error) => return Some(error),
            }
        }
        None
    }

    /// Whether the disk is still busy with a block: in tests, with the last one of an epoch.
    #[cfg(test)]
    fn is_slow(&mut self, digest: &HeaderDigest) -> bool {
        let now = now_ms(&self.context);
        let first = *self.seen.entry(*digest).or_insert(now);
        let slow = self.settings.slow_last.as_millis() as u64;
        self.chain.ends_epoch(digest) && now < first + slow
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, reason = "as in tests")]
    const fn is_slow(&self, _: &HeaderDigest) -> bool {
        false
    }

    /// Answers what the engine asked about a block, as far as can be said now.
    async fn settle(&mut self, digest: HeaderDigest) -> Result<(), CommitteeError> {
        let bad = self.execute(digest);
        let Some(mut wanted) = self.wanted.remove(&digest) else { return Ok(()) };
        if let Some(error) = bad {
            tracing::warn!(%error, ?digest, "a proposed block is refused");
            wanted.refuse();
            return Ok(());
        }
        let now = now_ms(&self.context);
        let here = self.chain.above(&digest).map(|above| above.block.header.clone());
        if let Some(header) = here {
            if header.time_ms <= now + AHEAD_MS {
                for (context, response) in wanted.verify.drain(..) {
                    let (parent, epoch) =
                        (digest_of(&context.parent.1), context.round.epoch().get());
                    let _ = response.send(self.chain.is_votable(&header, &parent, epoch));
                }
            }
            if !wanted.certify.is_empty() && !self.is_slow(&digest) {
                // With those that it stands on: after a restart it is above the tip only where they are.
                let log = &self.log;
                for (digest, bytes) in self.chain.standing(&digest, |one| log.has(one)) {
                    self.log.block(digest, &bytes).await?;
                }
                self.tell_when_synced(std::mem::take(&mut wanted.certify)).await;
            }
        } else if self.chain.is_final(&digest) {
            tell_all(wanted.certify.drain(..), true);
        }
        wanted.verify.retain(|(_, response)| !response.is_closed());
        wanted.certify.retain(|response| !response.is_closed());
        let here = self.chain.above(&digest).is_some() || self.chain.is_final(&digest);
        let waits = !wanted.verify.is_empty() || !wanted.certify.is_empty();
        let parents: Vec<HeaderDigest> = wanted.parents().filter(|one| *one != digest).collect();
        if waits || (!here && wanted.asked_ms + FORGET_MS > now) {
            self.wanted.insert(digest, wanted);
        }
        if waits && !here {
            self.want(digest);
            for parent in parents {
                if self.chain.parent(&parent).is_none() && !self.chain.is_final(&parent) {
                    self.want_vouched(parent);
                }
            }
        }
        Ok(())
    }

    /// Takes a finalisation: of a block that is here, or of one to be fetched.
    async fn finalise(
        &mut self,
        finalization: Finalization<Scheme, Digest>,
    ) -> Result<(), CommitteeError> {
        let round = round_of(&finalization);
        let digest = digest_of(&finalization.proposal.payload);
        if round <= self.chain.round() || self.chain.is_final(&digest) {
            return Ok(());
        }
        self.parked.vouch(&digest);
        if let Some(error) = self.execute(digest) {
            // More than f members lie, or this one executes otherwise: it must not go on.
            tracing::error!(%error, ?digest, "a final block does not hold");
            return Err(CommitteeError::Chain);
        }
        if self.chain.above(&digest).is_none() {
            let known = self.ahead.as_ref().map_or((0, 0), round_of);
            if round > known {
                self.ahead = Some(finalization);
            }
            self.want_vouched(digest);
            return Ok(());
        }
        let finals = self.chain.finalise(&finalization)?;
        for one in &finals {
            self.log.block(one.digest, &one.bytes).await?;
            self.log.is_final(one.block.header.height, &one.digest);
        }
        if let Some(certificate) = finals.last().and_then(Final::certificate) {
            self.log.certificate(certificate).await?;
        }
        let now = now_ms(&self.context);
        for one in &finals {
            #[cfg(feature = "planted-bugs")]
            one.see(&self.settings.name);
            for (submission, first) in one.submissions() {
                let replies = self.pool.decide(submission, now);
                if replies.is_empty() {
                    continue;
                }
                let answers = one.answers(submission, first);
                for reply in replies {
                    // One without a certificate is done, and answered as it was when it is sent again.
                    let _ = reply.send(match answers.is_empty() {
                        true => Err(CommitteeError::Busy { retry_ms: RETRY_MS }),
                        false => Ok(answers.clone()),
                    });
                }
            }
        }
        if self.ahead.as_ref().is_some_and(|one| round_of(one) <= round) {
            self.ahead = None;
        }
        self.moved_ms = now_ms(&self.context);
        // Whoever says that it is far ahead, and is not, makes no pause longer than a block takes.
        self.asked.came();
        let height = self.chain.tip().height;
        self.parked.forget_to(height);
        self.keep_up().await?;
        self.answer_fresh();
        self.renew().await
    }

    /// Begins the log anew where it has grown long.
    async fn renew(&mut self) -> Result<(), CommitteeError> {
        let (slot, count) = (self.term.keys().position(&self.me), self.term.keys().len());
        let growth = spread(self.settings.log_growth, slot.unwrap_or_default(), count);
        if !self.log.is_long(self.chain.state().bytes(), growth) {
            return Ok(());
        }
        self.renew_now().await
    }

    async fn renew_now(&mut self) -> Result<(), CommitteeError> {
        let state = self.chain.state().clone();
        let Some(certificate) = self.chain.certificate().cloned() else { return Ok(()) };
        let above = self.chain.all_above();
        let blocks: Vec<(HeaderDigest, Bytes)> =
            above.map(|(digest, above)| (*digest, above.bytes.clone())).collect();
        self.log.renew(&certificate, &state, &blocks).await
    }

    /// The newest certificate; `None` before the first block.
    const fn certificate(&self) -> Option<&Certificate> {
        self.chain.certificate()
    }
}

/// By how much the log of the member at this place grows. While it is begun anew a member does nothing else: all would with the same
/// block, and none would answer.
const fn spread(growth: u64, slot: usize, count: usize) -> u64 {
    let count = if count == 0 { 1 } else { count as u64 };
    growth.saturating_add((growth / count).saturating_mul(slot as u64))
}

/// Until when the block after one waits for more.
fn paced(parent: &Header) -> u64 {
    let pace_ms = (u64::from(parent.count) * PACE_EACH_US / 1_000).min(PACE_MAX_MS);
    if parent.count < PACED_FROM { 0 } else { parent.time_ms.saturating_add(pace_ms) }
}

/// Answers all of the engine's requests alike; those that it gave up are gone.
fn tell_all(all: impl IntoIterator<Item = oneshot::Sender<bool>>, answer: bool) {
    for response in all {
        let _ = response.send(answer);
    }
}

/// The epoch and view of a finalisation: they grow along the chain.
fn round_of(finalization: &Finalization<Scheme, Digest>) -> (u64, u64) {
    let round = &finalization.proposal.round;
    (round.epoch().get(), round.view().get())
}

/// The digest of a header, as we call it.
pub(super) const fn digest_of(digest: &Digest) -> HeaderDigest {
    HeaderDigest::new(digest.0)
}

#[cfg(test)]
mod tests;
