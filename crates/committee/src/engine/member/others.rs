//! What a member says to the others, and hears from them.

use std::collections::HashMap;

use bytes::Bytes;
use commonware_codec::Encode as _;
use commonware_consensus::simplex::types::Notarization;
use commonware_p2p::{Blocker as _, Recipients};

use super::{ASK_AGAIN_MS, HEARD_MS, Member, QUIET_MS, Wanted, parked};
use crate::certificate::{Digest, Scheme};
use crate::engine::chain::ABOVE_MAX;
use crate::engine::wire::{Message, Notarised, SINCE_BLOCKS_MAX, SUBMISSIONS_MAX};
use crate::engine::{Key, Runtime, now_ms};
use crate::header::{BLOCK_BYTES_MAX, HeaderDigest};
use crate::{Block, Certificate, CommitteeError, Header, Submission};

/// A tip that is one block behind another's for so long is behind.
const LAGS_MS: u64 = 2_000;
/// The longest pause between two questions for what comes after the tip.
const ASK_AGAIN_MAX_MS: u64 = 12_800;
/// How often a member says that it is there.
const HERE_MS: u64 = 1_000;
/// How many of those that wait longest are passed on again.
const AGAIN_MAX: usize = 64;
/// Bytes of submissions in one message.
const PASS_ON_BYTES: usize = 2 << 20;
/// What one member is given a second of what it asks for: answers, and bytes. Who asks for more is not answered.
const GIVEN_MAX: usize = 256;
/// How often one member's question is answered within [`QUESTION_MS`]: an answer that it does not read waits on its line for so long, and
/// who asks for the same again and again would have this one keep a block for each time.
const ANSWERED_MAX: u8 = 8;
const QUESTION_MS: u64 = 60_000;
/// Questions that are remembered.
const QUESTIONS_MAX: usize = 16_384;
const GIVEN_BYTES_MAX: usize = 128 << 20;

/// What one member passes on in a second that is looked at: so many bytes, and so many signatures of them. A client that it lets wait
/// loses nothing: it is in its own blocks, and passed on again. A committee of four orders 5,000 updates a second, whoever brings them.
const PASSED_BYTES_MAX: usize = 32 << 20;
const PASSED_MAX: usize = 8_192;

/// Who was asked for what comes after the tip: each question has one answer, and what nobody was asked for is not taken.
#[derive(Debug, Default)]
pub(super) struct Asked {
    open: Vec<Key>,
    /// When the next one may be asked, and the pause after it: it doubles until something comes of a question, so that answers which
    /// take long on a slow line are not asked for again and again.
    next_ms: u64,
    pause_ms: u64,
}

impl Asked {
    /// Where the calendar was set back the next question is not further away than a pause.
    const fn may_again(&self, now_ms: u64) -> bool {
        self.next_ms <= now_ms || self.next_ms > now_ms + ASK_AGAIN_MAX_MS
    }

    fn ask(&mut self, of: Key, now_ms: u64) {
        if !self.was(&of) {
            self.open.push(of);
        }
        self.pause_ms = (2 * self.pause_ms).clamp(ASK_AGAIN_MS, ASK_AGAIN_MAX_MS);
        self.next_ms = now_ms + self.pause_ms;
    }

    /// Whether a member was asked and has not answered.
    pub(super) fn was(&self, key: &Key) -> bool {
        self.open.contains(key)
    }

    /// A member answers; whether it was asked.
    pub(super) fn answered(&mut self, key: &Key) -> bool {
        let at = self.open.iter().position(|of| of == key);
        at.map(|at| self.open.swap_remove(at)).is_some()
    }

    /// Something came of a question: the next one may be asked at once.
    pub(super) const fn came(&mut self) {
        (self.next_ms, self.pause_ms) = (0, 0);
    }

    /// Forgets those that this member is not connected to any more. One that says nothing for long
    /// may be sending its answer: nothing else comes on its line before that is through.
    pub(super) fn only(&mut self, connected: impl Fn(&Key) -> bool) {
        self.open.retain(connected);
    }
}

/// What each member was given of late.
#[derive(Debug, Default)]
pub(super) struct GivenOut {
    /// In this second: answers, and bytes.
    of: HashMap<Key, (u64, usize, usize)>,
    /// Since when each question, as it was asked, was answered so often.
    questions: HashMap<(Key, Bytes), (u64, u8)>,
}

impl GivenOut {
    /// Whether a member may be given one answer more this second, and this one again.
    fn may(&mut self, to: &Key, question: &Bytes, now_ms: u64) -> bool {
        self.may_more(to, now_ms) && self.may_again(to, question, now_ms)
    }

    fn may_again(&mut self, to: &Key, question: &Bytes, now_ms: u64) -> bool {
        let is_old = |since: u64| !(since..since + QUESTION_MS).contains(&now_ms);
        if self.questions.len() >= QUESTIONS_MAX {
            self.questions.retain(|_, (since, _)| !is_old(*since));
            if self.questions.len() >= QUESTIONS_MAX {
                self.questions.retain(|(of, _), _| of != to);
            }
        }
        let one = self.questions.entry((to.clone(), question.clone())).or_insert((now_ms, 0));
        if is_old(one.0) {
            *one = (now_ms, 0);
        }
        one.1 = one.1.saturating_add(1);
        one.1 <= ANSWERED_MAX
    }

    fn may_more(&mut self, to: &Key, now_ms: u64) -> bool {
        let one = self.of.entry(to.clone()).or_default();
        let second = now_ms / 1_000;
        if one.0 != second {
            *one = (second, 0, 0);
        }
        one.1 += 1;
        one.1 <= GIVEN_MAX && one.2 < GIVEN_BYTES_MAX
    }

    /// Counts what it was given.
    pub(super) fn gave(&mut self, to: &Key, bytes: usize) {
        if let Some(one) = self.of.get_mut(to) {
            one.2 += bytes;
        }
    }
}

/// What each member passed on in this second: bytes, and signatures that were checked. Counted before anything is done with them:
/// what finds no room is not remembered, and could else be sent again and checked again without end.
#[derive(Debug, Default)]
pub(super) struct PassedOn(HashMap<Key, (u64, usize, usize)>);

impl PassedOn {
    fn of(&mut self, from: &Key, now_ms: u64) -> (&mut usize, &mut usize) {
        let one = self.0.entry(from.clone()).or_default();
        let second = now_ms / 1_000;
        if one.0 != second {
            *one = (second, 0, 0);
        }
        (&mut one.1, &mut one.2)
    }

    /// Whether so many bytes more are looked at.
    fn may_look(&mut self, from: &Key, bytes: usize, now_ms: u64) -> bool {
        let (all, _) = self.of(from, now_ms);
        *all += bytes;
        *all <= PASSED_BYTES_MAX
    }

    /// Leaves those whose signatures are checked: within the second's and within the room that is left for its sender's, as a count
    /// and as bytes.
    fn leave(&mut self, from: &Key, all: &mut Vec<Bytes>, room: (usize, usize), now_ms: u64) {
        let (_, checked) = self.of(from, now_ms);
        let mut bytes = 0;
        let fits = all.iter().take(room.0.min(PASSED_MAX.saturating_sub(*checked)));
        let fits = fits.take_while(|one| {
            bytes += one.len();
            bytes <= room.1
        });
        let count = fits.count();
        *checked += count;
        all.truncate(count);
    }
}

impl Notarised {
    /// What a member tells of a notarisation.
    pub(super) fn of(notarization: &Notarization<Scheme, Digest>) -> Option<Self> {
        let proposal = &notarization.proposal;
        Some(Self {
            view: proposal.round.view().get(),
            parent_view: proposal.parent.get(),
            epoch: proposal.round.epoch().get(),
            digest: proposal.payload.0,
            signature: notarization.certificate.encode()[..].try_into().ok()?,
        })
    }
}

/// The headers of blocks that follow each other up to a certificate, with their bytes. Nothing else is kept of what a member says
/// that this one lacks.
fn chained(
    certificate: &Certificate,
    blocks: Vec<Bytes>,
) -> Result<Vec<(HeaderDigest, Header, Bytes)>, CommitteeError> {
    let mut all = Vec::with_capacity(blocks.len());
    let mut wanted = certificate.header().digest();
    for bytes in blocks.into_iter().rev() {
        let header = Block::header_of(&bytes)?;
        let digest = header.digest();
        if digest != wanted {
            return Err(CommitteeError::Chain);
        }
        wanted = header.parent;
        all.push((digest, header, bytes));
    }
    all.reverse();
    Ok(all)
}

impl<E: Runtime> Member<E> {
    /// What a member that lies says instead.
    #[cfg(feature = "planted-bugs")]
    pub(super) fn lied(&self, message: &Message) -> Option<Message> {
        use crate::planted::Conduct;
        let conduct = crate::planted::conduct(&self.settings.name);
        match (conduct, message) {
            (
                Conduct::Withholds,
                Message::Block(_) | Message::Outline(_) | Message::Submissions(_),
            ) => None,
            (Conduct::Forges, _) => Some(message.forged()),
            _ => Some(message.clone()),
        }
    }

    /// A member sent what no honest one sends: it is cut off for a while.
    pub(super) fn offended(&mut self, from: &Key, what: &str) {
        tracing::warn!(%from, "a member {what}: it is cut off for a while");
        #[cfg(feature = "planted-bugs")]
        crate::planted::see(|| {
            let name = self.settings.name.clone();
            crate::planted::Seen::CutOff(name, crate::engine::MemberId::of(from))
        });
        if *from != self.me {
            let _ = self.oracle.block(from.clone());
        }
    }

    /// Asks the others for a block, now and then.
    pub(super) fn want(&mut self, digest: HeaderDigest) {
        let now = now_ms(&self.context);
        let wanted = self.wanted.entry(digest).or_default();
        // Later each time: on a slow line the answers of all would else push each other aside.
        let pause = ASK_AGAIN_MS << wanted.asks.saturating_sub(1).min(5);
        if wanted.asked_ms + pause <= now {
            (wanted.asked_ms, wanted.asks) = (now, wanted.asks.saturating_add(1));
            // The proposal itself is mostly on its way.
            if wanted.asks > 1 && !self.parked.has(&digest) {
                self.send(Recipients::All, &Message::WantBlock(digest));
            }
        }
    }

    /// Asks the others for a block that a quorum stands for.
    pub(super) fn want_vouched(&mut self, digest: HeaderDigest) {
        self.parked.vouch(&digest);
        self.want(digest);
        self.wanted.entry(digest).or_default().vouched = true;
    }

    /// How many members are heard, this one among them.
    pub(super) fn heard(&self) -> u32 {
        let now = now_ms(&self.context);
        let heard = |key: &&Key| {
            **key == self.me || self.heard.get(*key).is_some_and(|said| is_of_now(*said, now))
        };
        self.term.keys().iter().filter(heard).count() as u32
    }

    /// Whether its journal is read: before that, what it voted on would be missing. The engine asks about no round before it has told
    /// all that is in its journal; a member without a vote has none, and waits a little.
    pub(super) fn has_read(&self) -> bool {
        if self.share.is_some() {
            self.has_voted
        } else {
            now_ms(&self.context) >= self.started_ms + QUIET_MS
        }
    }

    pub(super) async fn hear(&mut self, from: Key, message: Bytes) -> Result<(), CommitteeError> {
        let now = now_ms(&self.context);
        self.heard.insert(from.clone(), now);
        // Of a question all of its bytes, which are few.
        let question = message.clone();
        let Ok(message) = Message::decode(&message) else {
            self.offended(&from, "sent what is no message");
            return Ok(());
        };
        match message {
            Message::Block(bytes) => self.take_block(from, &bytes).await?,
            Message::Outline(outline) => self.take_outline(from, outline).await?,
            Message::Submissions(all) => self.take_submissions(&from, &all)?,
            Message::WantBlock(digest) if self.given_out.may(&from, &question, now) => {
                if let Some(bytes) = self.bytes(&digest).await? {
                    self.given_out.gave(&from, bytes.len());
                    self.send(Recipients::One(from), &Message::Block(bytes));
                }
            }
            Message::WantSince(height) if self.given_out.may(&from, &question, now) => {
                self.tell_since(from, height).await?;
            }
            Message::WantPart { digest, offset } if self.given_out.may(&from, &question, now) => {
                self.give_part(from, Some(digest), offset);
            }
            Message::WantBlock(_) | Message::WantSince(_) | Message::WantPart { .. } => {}
            Message::Since { certificate, blocks } if self.asked.answered(&from) => {
                match self.catch_up(&certificate, blocks) {
                    Ok(Some(certificate)) => self.caught_up(&certificate).await?,
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, "what a member says comes next does not hold");
                        self.offended(&from, "sent what does not follow");
                    }
                }
            }
            Message::Since { .. } => {}
            Message::HowFar(nonce) => {
                if let Some(notarised) = self.told().cloned() {
                    let answer = Message::ThisFar { nonce, notarised };
                    self.send(Recipients::One(from), &answer);
                }
            }
            Message::Part { certificate, total, offset, bytes } => {
                match self.take_part(from.clone(), &certificate, total, offset, &bytes) {
                    Ok(Some((certificate, state))) => self.start_from(*certificate, state).await?,
                    Ok(None) => {}
                    Err(error) => {
                        self.taken.take_if(|taken| taken.is_from(&from));
                        tracing::warn!(%error, "a snapshot does not hold");
                        self.offended(&from, "sent what is no snapshot");
                    }
                }
            }
            Message::ThisFar { nonce, notarised } => self.this_far(from, nonce, &notarised),
            Message::Wish(signed) => self.hear_wish(&from, signed),
            Message::Dealt { number, public, private } => {
                self.take_dealt(from, number, public, private).await?;
            }
            Message::Taken { number, acknowledgement } => {
                self.take_acknowledgement(&from, number, acknowledgement);
            }
            Message::Here(height) => {
                self.heights.insert(from, height);
                // One behind is mostly one whose certificate is on its way.
                let tip = self.chain.tip().height;
                let rests = self.moved_ms + LAGS_MS <= now;
                if height > tip.saturating_add(1) || (height > tip && rests) {
                    self.want_since();
                }
            }
        }
        Ok(())
    }

    async fn take_block(&mut self, from: Key, bytes: &Bytes) -> Result<(), CommitteeError> {
        match Block::header_of(bytes) {
            Ok(header) => self.take_whole(from, header, bytes.clone()).await,
            Err(_) => {
                self.offended(&from, "sent what is no block");
                Ok(())
            }
        }
    }

    /// Takes a block whose updates are those of its header.
    pub(super) async fn take_whole(
        &mut self,
        from: Key,
        header: Header,
        bytes: Bytes,
    ) -> Result<(), CommitteeError> {
        let digest = header.digest();
        if header.height <= self.chain.tip().height {
            return Ok(());
        }
        let asked = self.wanted.contains_key(&digest);
        if self.chain.above(&digest).is_none() && !self.parked.has(&digest) {
            let Some(vouched) = self.may_park(&from, &digest, &header, bytes.len()) else {
                return Ok(());
            };
            let waiting = parked::Waiting { from, header, bytes, certified: false, vouched };
            self.parked.put(digest, waiting);
        }
        // What nobody asked for is not even decoded: a liar's blocks take no more than their bytes.
        if !asked {
            return Ok(());
        }
        let waiting: Vec<_> = self.wanted.keys().copied().collect();
        for digest in waiting {
            self.settle(digest).await?;
        }
        if let Some(ahead) = self.ahead.clone() {
            self.finalise(ahead).await?;
        }
        Ok(())
    }

    /// Whether a block may wait here, and if so whether a quorum stands for it. What the engine is asked to vote for is its leader's
    /// word alone: where it does not name the parent that the engine goes on from it gets no vote, and is answered at once.
    fn may_park(
        &mut self,
        from: &Key,
        digest: &HeaderDigest,
        header: &Header,
        bytes: usize,
    ) -> Option<bool> {
        let near = header.height <= self.chain.tip().height.saturating_add(ABOVE_MAX as u64);
        match self.wanted.get_mut(digest) {
            Some(wanted) if wanted.vouched => {
                return (near || self.parked.has_room_vouched()).then_some(true);
            }
            Some(wanted) if wanted.waits() => {
                if !wanted.goes_on_from(&header.parent) {
                    tracing::warn!(%from, ?digest, "a proposal does not name its parent");
                    wanted.refuse();
                    return None;
                }
                let all = &self.wanted;
                let is_asked = |one: &HeaderDigest| all.get(one).is_some_and(Wanted::waits);
                return self.parked.make_room(from, bytes, is_asked).then_some(false);
            }
            _ => {}
        }
        // What nobody asked for is a proposal, so it is a member's and a little above the tip.
        let proposal = self.term.is_member(from) && near && self.parked.has_room(from, bytes);
        proposal.then_some(false)
    }

    /// Takes what another passes on. It checked every signature before, so one that does not hold is its lie. What there is no room or
    /// time for is dropped: it waits at the member that passed it on.
    fn take_submissions(&mut self, from: &Key, all: &[Bytes]) -> Result<(), CommitteeError> {
        let (now, members) = (now_ms(&self.context), self.term.keys().len());
        if !self.passed_on.may_look(from, all.iter().map(Bytes::len).sum(), now) {
            return Ok(());
        }
        let mut new = all.iter().filter(|bytes| !self.pool.is_old(bytes)).cloned().collect();
        let room = self.pool.room_of(from, members);
        self.passed_on.leave(from, &mut new, room, now);
        self.check_passed(from, new)
    }

    /// Whether all of it is for this committee.
    pub(super) fn is_ours(&self, submission: &Submission) -> bool {
        let rules = &self.charter.rules;
        let ours =
            |update: &crate::Update| update.network == rules.network && update.group == rules.group;
        submission.updates().iter().all(ours)
    }

    /// Passes new submissions on to all.
    pub(super) fn pass_on(&mut self) {
        let outbox = std::mem::take(&mut self.outbox);
        let (mut part, mut bytes) = (Vec::new(), 0);
        for one in outbox {
            bytes += one.len();
            part.push(one);
            if bytes >= PASS_ON_BYTES || part.len() == SUBMISSIONS_MAX {
                let message = Message::Submissions(std::mem::take(&mut part));
                self.send(Recipients::All, &message);
                bytes = 0;
            }
        }
        if !part.is_empty() {
            self.send(Recipients::All, &Message::Submissions(part));
        }
    }

    async fn tell_since(&mut self, from: Key, height: u64) -> Result<(), CommitteeError> {
        if height >= self.chain.tip().height {
            return Ok(());
        }
        let since = self.log.since(height, SINCE_BLOCKS_MAX, BLOCK_BYTES_MAX / 2).await?;
        match since {
            Some((certificate, blocks)) => {
                self.given_out.gave(&from, blocks.iter().map(Bytes::len).sum());
                self.send(Recipients::One(from), &Message::Since { certificate, blocks });
            }
            // The log begins later: the whole state.
            None => {
                self.renew_given(height);
                self.give_part(from, None, 0);
            }
        }
        Ok(())
    }

    /// Executes what another has that this one lacks, up to its certificate; that, where it leads on from here. An error is the
    /// sender's.
    fn catch_up(
        &mut self,
        certificate: &[u8],
        blocks: Vec<Bytes>,
    ) -> Result<Option<Certificate>, CommitteeError> {
        let certificate = Certificate::decode(certificate)?;
        let tip = self.chain.tip();
        if certificate.header().height <= tip.height {
            return Ok(None);
        }
        certificate.verify_own(&self.charter.rules.network, &self.charter.group)?;
        let last = certificate.header().digest();
        let mut new = chained(&certificate, blocks)?;
        new.retain(|(digest, header, _)| {
            header.height > tip.height && self.chain.above(digest).is_none()
        });
        // What stands on nothing here would wait for ever; what is parked is bounded as its sender's, and this is not.
        let stands =
            |parent: &HeaderDigest| tip.digest() == *parent || self.chain.above(parent).is_some();
        if new.first().is_some_and(|(_, header, _)| !stands(&header.parent)) {
            return Ok(None);
        }
        for (digest, header, bytes) in new {
            let from = self.me.clone();
            let (certified, vouched) = (true, true);
            self.parked.put(digest, parked::Waiting { from, header, bytes, certified, vouched });
        }
        match self.execute(last) {
            Some(error) => Err(error),
            None => Ok(self.chain.above(&last).is_some().then_some(certificate)),
        }
    }

    /// Goes over to a certificate whose block was executed. An error is this member's own.
    async fn caught_up(&mut self, certificate: &Certificate) -> Result<(), CommitteeError> {
        self.finalise(certificate.finalization()?).await?;
        self.asked.came();
        if let Some(ahead) = self.ahead.clone() {
            self.finalise(ahead).await?;
        }
        if self.ahead.is_some() {
            self.want_since();
        }
        Ok(())
    }

    /// Asks one of the others for what comes after the tip: each in its turn, so that none can keep this one from the rest.
    pub(super) fn want_since(&mut self) {
        let now = now_ms(&self.context);
        if !self.asked.may_again(now) || self.taken.is_some() {
            return;
        }
        self.turn = self.turn.wrapping_add(1);
        let (heard, peers) = (&self.heard, &self.peers);
        self.asked.only(|key| peers.are_with(key));
        let others = heard.iter().filter(|(_, said)| is_of_now(**said, now));
        let mut others: Vec<&Key> = others.map(|(key, _)| key).collect();
        others.sort_unstable();
        self.paces.leave_out(&mut others);
        let which = others.get(self.turn % others.len().max(1));
        if let Some(other) = which.map(|key| (*key).clone()) {
            let message = Message::WantSince(self.chain.tip().height);
            self.asked.ask(other.clone(), now);
            self.send(Recipients::One(other), &message);
        }
    }

    /// What is late: asked for again, given up, or told.
    pub(super) async fn tick(&mut self) -> Result<(), CommitteeError> {
        let now = now_ms(&self.context);
        if now / HERE_MS != self.told_ms / HERE_MS {
            self.send(Recipients::All, &Message::Here(self.chain.tip().height));
            self.ask_how_far_again();
            // A member that was away has not heard of what waits.
            if self.pool.len() > 0 {
                self.outbox.extend(self.pool.encoded(AGAIN_MAX));
            }
        }
        self.told_ms = now;
        let waiting: Vec<_> = self.wanted.keys().copied().collect();
        for digest in waiting {
            self.settle(digest).await?;
        }
        if let Some(ahead) = self.ahead.clone() {
            self.finalise(ahead).await?;
            if self.ahead.is_some() {
                self.want_since();
            }
        }
        self.forget_snapshots();
        self.give_up();
        self.change_members().await
    }
}

/// Whether somebody who was heard then counts as heard: the calendar may have been set back since, and what is ahead of it would count
/// until it comes there again.
pub(super) const fn is_of_now(said_ms: u64, now_ms: u64) -> bool {
    said_ms.abs_diff(now_ms) <= HEARD_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MemberSecret;
    use crate::proving::Founded;

    #[test]
    fn only_blocks_that_lead_to_the_certificate_are_kept() {
        let mut founded = Founded::new(4);
        let blocks: Vec<Block> = (0..3).map(|_| founded.block(Vec::new()).0).collect();
        let certificate = founded.certify(&blocks[2].header);
        let bytes = |which: &[usize]| which.iter().map(|one| blocks[*one].encode()).collect();
        assert_eq!(chained(&certificate, bytes(&[0, 1, 2])).expect("they follow").len(), 3);
        assert!(chained(&certificate, bytes(&[0, 1])).is_err(), "they end elsewhere");
        assert!(chained(&certificate, bytes(&[0, 2])).is_err(), "one is missing");
        let mut other = Founded::seeded(4, 8);
        let foreign = other.block(Vec::new()).0.encode();
        let mixed = [vec![foreign], bytes(&[1, 2])].concat();
        assert!(chained(&certificate, mixed).is_err(), "a block beside the chain");
    }

    #[test]
    fn who_was_heard_ahead_of_the_calendar_does_not_count_as_heard() {
        let now = 100 * HEARD_MS;
        assert!(is_of_now(now, now) && is_of_now(now - HEARD_MS, now));
        assert!(!is_of_now(now - HEARD_MS - 1, now), "too long ago");
        assert!(is_of_now(now + HEARD_MS, now));
        for ahead in [now + HEARD_MS + 1, u64::MAX] {
            assert!(!is_of_now(ahead, now), "the calendar was set back since");
        }
    }

    #[test]
    fn a_question_has_one_answer_however_late_and_nobody_else_gives_it() {
        let key = |byte| MemberSecret::new(&[byte; 32]).expect("a key").id().key().expect("a key");
        let mut asked = Asked::default();
        assert!(asked.may_again(0) && !asked.was(&key(1)));
        asked.ask(key(1), 1_000);
        assert!(!asked.may_again(999 + ASK_AGAIN_MS) && asked.may_again(1_000 + ASK_AGAIN_MS));
        asked.ask(key(2), 1_800);
        assert!(!asked.may_again(1_800 + ASK_AGAIN_MS), "later each time");
        for _ in 0..60 {
            assert!(!asked.answered(&key(3)), "it was not asked");
        }
        assert!(asked.answered(&key(1)) && !asked.answered(&key(1)), "once");
        assert!(asked.was(&key(2)), "another's answer is still to come");
        (0..40).for_each(|_| asked.ask(key(4), 4_000));
        assert!(!asked.may_again(3_999 + ASK_AGAIN_MAX_MS));
        asked.came();
        assert!(asked.may_again(4_000), "the next one follows what came at once");
        asked.only(|of| *of == key(4));
        assert!(!asked.was(&key(2)) && asked.was(&key(4)));
    }

    #[test]
    fn who_asks_without_end_is_answered_so_often() {
        let secret = MemberSecret::new(&[1; 32]).expect("a key");
        let (from, mut given) = (secret.id().key().expect("a key"), GivenOut::default());
        let question = |number: u32| Bytes::copy_from_slice(&number.to_be_bytes());
        let answered = (0..10_000).filter(|n| given.may(&from, &question(*n), 5)).count();
        assert_eq!(answered, GIVEN_MAX);
        assert!(given.may(&from, &question(1), 1_000), "the next second");
        given.gave(&from, GIVEN_BYTES_MAX);
        assert!(!given.may(&from, &question(2), 1_001), "bytes count too");
    }

    #[test]
    fn who_asks_the_same_again_and_again_is_answered_some_times() {
        let key = |byte| MemberSecret::new(&[byte; 32]).expect("a key").id().key().expect("a key");
        let mut given = GivenOut::default();
        let block = Bytes::from_static(b"a block");
        let mut answered = |from: u8, at_ms: std::ops::Range<u64>| {
            at_ms.step_by(500).filter(|at| given.may(&key(from), &block, *at)).count()
        };
        assert_eq!(answered(1, 0..QUESTION_MS), usize::from(ANSWERED_MAX));
        assert_eq!(answered(2, 0..QUESTION_MS), usize::from(ANSWERED_MAX), "others have theirs");
        assert_eq!(answered(1, QUESTION_MS..QUESTION_MS + 1_000), 2, "it may have been lost");
        // What is remembered is bounded, and one that asks for much forgets its own alone.
        assert!(given.may_again(&key(2), &block, QUESTION_MS));
        for number in 0..2 * QUESTIONS_MAX as u64 {
            given.may_again(&key(1), &Bytes::copy_from_slice(&number.to_be_bytes()), QUESTION_MS);
        }
        assert!(given.questions.len() <= QUESTIONS_MAX);
        assert!(given.questions.keys().any(|(of, _)| *of == key(2)));
    }

    #[test]
    fn what_one_member_passes_on_in_a_second_is_bounded_before_it_is_looked_at() {
        let key = |byte| MemberSecret::new(&[byte; 32]).expect("a key").id().key().expect("a key");
        let (liar, honest, mut passed) = (key(1), key(2), PassedOn::default());
        let (all, room) = (vec![Bytes::from_static(&[7; 100]); 1_000], (usize::MAX, usize::MAX));
        let mut left = |from: &Key, room: (usize, usize), now_ms: u64| {
            let mut all = all.clone();
            passed.leave(from, &mut all, room, now_ms);
            all.len()
        };
        assert_eq!(
            [left(&liar, (7, 1_000), 0), left(&liar, (100, 550), 0)],
            [7, 5],
            "the room left"
        );
        let checked: usize = (0..20).map(|_| left(&liar, room, 999)).sum();
        assert_eq!(checked, PASSED_MAX - 12);
        assert_eq!([left(&honest, room, 999), left(&liar, room, 1_000)], [1_000; 2]);
        let looked = (0..100).filter(|_| passed.may_look(&liar, 1 << 20, 2_000)).count();
        assert_eq!(looked, PASSED_BYTES_MAX >> 20);
        assert!(passed.may_look(&honest, 1 << 20, 2_000) && passed.may_look(&liar, 1, 3_000));
    }
}
