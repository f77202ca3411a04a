//! Updates: made, signed, sent to f + 1 members until one of them answers, and the answer checked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use committee::position::{faulty, quorum};
use committee::update::{At, RECEIPTS_MAX};
use committee::{Answer, CommitteeError, Operation, Outcome, Submission, Update};
use crypto::{PeerId, PublicKey};
use env::calls::CallError;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use version::VersionId;

use super::asking::{Failures, RETRY_MAX};
use super::{ANYTHING, CertifiedError, CertifiedHeads, KeptReceipts, Seat, Seats};
use crate::objects::{Object, ObjectsError};

/// How long one member may take: longer than it waits for the others itself.
const ANSWER_LIMIT: Duration = Duration::from_secs(35);
/// How long an update is tried in all.
const TRIED_FOR: Duration = Duration::from_secs(60);
/// How often each member is asked at most.
const ASKED_EACH: usize = 4;
/// For how many heights behind the newest that is known an update is valid.
const VALID_HEIGHTS: u64 = 100_000;
/// How long a height that was seen is near enough to the newest: at a thousand blocks a second too.
const SEEN_FOR: Duration = Duration::from_secs(60);
/// How often an update is made anew since the committee did not know its object, or a peer.
const MADE_MAX: usize = 3;

/// What a head is expected to be at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Wherever the members say that it is, just before.
    Whatever,
    /// Nowhere: it is the first.
    Nothing,
    /// At this version, which it is at since this height.
    At(At),
}

/// What holders said of a version.
struct Receipts {
    words: Vec<(PeerId, Bytes)>,
    /// Whether they were not asked just now.
    kept: bool,
}

/// What the committee decided on an update, and the proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// What became of it.
    pub outcome: Outcome,
    /// The height of the header that says so.
    pub height: u64,
    /// Its time, Unix milliseconds.
    pub time_ms: u64,
    /// The encoded answer, which proves it to anybody who has the group key.
    pub proof: Bytes,
}

impl Decided {
    /// The height at which it was done.
    ///
    /// # Errors
    /// The refusal.
    pub fn accepted(&self) -> Result<u64, CommitteeError> {
        self.outcome.clone().accepted()
    }
}

impl From<Answer> for Decided {
    fn from(answer: Answer) -> Self {
        let header = answer.certificate.header();
        let (height, time_ms) = (header.height, header.time_ms);
        Self { height, time_ms, proof: answer.encode(), outcome: answer.outcome }
    }
}

impl CertifiedHeads {
    /// Says that a branch is at this version from now on, where it is at what is expected. The version's holders are asked for
    /// their word that they keep it. Where the committee does not know the object, and it is this user's own, it is told; so it is of the
    /// holders.
    ///
    /// A refusal is decided too: [`Decided::accepted`] tells which.
    ///
    /// Cancel safe in that dropping it stops the asking; it may be decided then, once.
    ///
    /// # Errors
    /// [`CommitteeError::NotEnoughMembers`], [`CommitteeError::Busy`]; as [`CertifiedHeads::read`];
    /// [`CertifiedError::Objects`] where the object's policy or the version's holders cannot be asked.
    pub async fn set(
        &self,
        object: &Object,
        branch: &str,
        expected: Expected,
        new: &VersionId,
    ) -> Result<Decided, CertifiedError> {
        let mut receipts = self.receipts(object, new).await?;
        let expected = match expected {
            Expected::Nothing => None,
            Expected::At(at) => Some(at),
            Expected::Whatever => {
                let now = self.read(&object.key(), branch).await?;
                now.head.head.map(|head| (head.version.h, head.height))
            }
        };
        let operation = |receipts: &Receipts| Operation::Set {
            object: object.key(),
            branch: branch.into(),
            expected,
            new: *new,
            receipts: receipts
                .words
                .iter()
                .take(RECEIPTS_MAX)
                .map(|(_, one)| one.clone())
                .collect(),
        };
        for _ in 0..MADE_MAX {
            let decided = self.decide(operation(&receipts)).await?;
            match decided.outcome {
                Outcome::NoObject if object.is_own() => {
                    self.make_known(object).await?.accepted()?;
                }
                // What was kept may be of peers that are none any more, or be fewer than are wanted now.
                Outcome::NotStored { .. } if receipts.kept => {
                    receipts = self.asked_again(object, new, receipts.words).await?;
                }
                Outcome::NotStored { wanted, found }
                    if found < wanted && receipts.words.len() > usize::from(found) =>
                {
                    let peers: Vec<PeerId> = receipts.words.iter().map(|(peer, _)| *peer).collect();
                    if !self.introduce_peers(&peers).await? {
                        return Ok(decided);
                    }
                }
                _ => return Ok(decided),
            }
        }
        self.decide(operation(&receipts)).await
    }

    /// What holders say of a version: as it is kept here, else they are asked.
    async fn receipts(
        &self,
        object: &Object,
        version: &VersionId,
    ) -> Result<Receipts, CertifiedError> {
        let (home, h) = (Arc::clone(self.inner.objects.author().home()), version.h);
        let kept = self.env().blocking(move || KeptReceipts::read(home.dir(), &h)).await;
        if let Some(kept) = kept.filter(|kept| kept.object == object.key()) {
            return Ok(Receipts { words: kept.receipts, kept: true });
        }
        self.asked_again(object, version, Vec::new()).await
    }

    /// Asks the holders, and keeps what they say beside what they said.
    async fn asked_again(
        &self,
        object: &Object,
        version: &VersionId,
        said: Vec<(PeerId, Bytes)>,
    ) -> Result<Receipts, CertifiedError> {
        let told = match object.receipts(version).await {
            Ok(told) => told,
            // The committee says what is to be thought of a version that nobody has.
            Err(ObjectsError::NotYet { .. }) => Vec::new(),
            // Too few keep it, and the committee said so already.
            Err(_) if !said.is_empty() => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let mut receipts = KeptReceipts { object: object.key(), receipts: told };
        let newer = receipts.receipts.clone();
        // Those of now first: no more than some are sent.
        let older = said.into_iter().filter(|(peer, _)| !newer.iter().any(|(one, _)| one == peer));
        receipts.receipts.extend(older);
        let words = receipts.receipts.clone();
        if !newer.is_empty() {
            let (home, h) = (Arc::clone(self.inner.objects.author().home()), version.h);
            let kept = self.env().blocking(move || receipts.keep(home.dir(), &h)).await;
            if let Err(error) = kept {
                tracing::warn!(%error, "receipts could not be kept");
            }
        }
        Ok(Receipts { words, kept: false })
    }

    /// Tells the committee of an object of this user's, with the policy that counts.
    ///
    /// # Errors
    /// As [`CertifiedHeads::set`].
    pub async fn make_known(&self, object: &Object) -> Result<Decided, CertifiedError> {
        let (record, policy) = object.made_known().await?;
        self.decide(Operation::Object { record, policy }).await
    }

    /// Tells the committee of peers, by the certificates that they announce; whether there was one to tell.
    async fn introduce_peers(&self, peers: &[PeerId]) -> Result<bool, CertifiedError> {
        let directory = self.inner.objects.walker().directory();
        let known = peers.iter().filter_map(|peer| directory.announcement(peer));
        let updates = known.map(|announcement| {
            let certificate = announcement.certificate_bytes.clone();
            self.update(Operation::Peer { certificate })
        });
        let updates: Vec<Update> = updates.collect();
        if updates.is_empty() {
            return Ok(false);
        }
        let bundle = Submission::bundle(&updates, self.inner.objects.key())?;
        self.submit(&bundle).await?;
        Ok(true)
    }

    /// An update of this user's.
    fn update(&self, operation: Operation) -> Update {
        Update {
            network: self.inner.objects.network(),
            group: self.inner.proofs.group().id(),
            author: self.author(),
            id: self.env().random(),
            last_valid: self.height().saturating_add(VALID_HEIGHTS),
            operation,
        }
    }

    /// Who signs this user's updates.
    pub fn author(&self) -> PublicKey {
        self.inner.objects.public_key()
    }

    async fn decide(&self, operation: Operation) -> Result<Decided, CertifiedError> {
        // A height that is far behind would have expired: it is asked for where none was seen just now.
        self.seats().await?;
        let now = self.env().clock.elapsed();
        let seen = self.known().seen;
        if seen.is_none_or(|seen| now.saturating_sub(seen) > SEEN_FOR) {
            let (object, branch) = ANYTHING;
            self.read(&object, branch).await?;
        }
        let submission = self.update(operation).sign(self.inner.objects.key())?;
        let answers = self.submit(&submission).await?;
        let answer = answers.into_iter().next();
        Ok(answer.ok_or(CommitteeError::Field("number of answers"))?.into())
    }

    /// Sends signed updates to f + 1 members, and to others where these fail, until one answers with what proves itself: what
    /// became of each. The same submission may be sent again, in another run too: it is done once.
    ///
    /// Cancel safe in that dropping it stops the asking.
    ///
    /// # Errors
    /// As [`CertifiedHeads::set`].
    pub async fn submit(&self, submission: &Submission) -> Result<Vec<Answer>, CertifiedError> {
        // Asked once more, it is the same submission, and is done once.
        let submitted = self.by_members(|found| self.submit_to(found, submission));
        let found = self.env().within(TRIED_FOR, submitted).await;
        match found {
            Ok(answers) => answers,
            Err(_) => {
                self.forget_seats();
                let retry_ms = u64::try_from(RETRY_MAX.as_millis()).unwrap_or(u64::MAX);
                Err(CommitteeError::Busy { retry_ms }.into())
            }
        }
    }

    async fn submit_to(
        &self,
        found: Arc<Seats>,
        submission: &Submission,
    ) -> Result<Vec<Answer>, CertifiedError> {
        let (seats, total) = (self.shuffled(&found.seats), found.members.len());
        let bytes = submission.encode();
        let lying = faulty(total);
        let mut failed = Failures::default();
        let mut running: FuturesUnordered<BoxFuture<'_, _>> = FuturesUnordered::new();
        let mut next = seats.iter().cycle().take(seats.len() * ASKED_EACH);
        let ask = |seat: &Seat, pause: Duration| -> BoxFuture<'_, _> {
            let (seat, bytes) = (seat.clone(), bytes.clone());
            Box::pin(async move {
                if !pause.is_zero() {
                    self.env().clock.sleep(pause).await;
                }
                let answer = self.ask(&seat, CommitteeAsk::Update(bytes), ANSWER_LIMIT).await;
                (seat.member, answer)
            })
        };
        running.extend(next.by_ref().take(lying + 1).map(|seat| ask(seat, Duration::ZERO)));
        let (mut unreachable, mut few) = (0, BTreeSet::new());
        while let Some((member, answer)) = running.next().await {
            let pause = match answer {
                Ok(CommitteeAnswer::Update(answers)) => {
                    match self.hold(submission, answers).await {
                        Ok(answers) => return Ok(answers),
                        Err(error) => {
                            failed.refused(error.into());
                            Duration::ZERO
                        }
                    }
                }
                Ok(_) => {
                    failed.odd();
                    Duration::ZERO
                }
                Err(error) => {
                    let pause = match &error {
                        CallError::Busy { retry_after } => (*retry_after).min(RETRY_MAX),
                        CallError::Unreachable { .. } => {
                            unreachable += 1;
                            // After a round of all of them it is waited for them to come back.
                            if unreachable >= seats.len() { RETRY_MAX } else { Duration::ZERO }
                        }
                        CallError::TooFewPeers { .. } => {
                            few.insert(member);
                            Duration::ZERO
                        }
                        _ => Duration::ZERO,
                    };
                    failed.call(error);
                    pause
                }
            };
            // One of f + 1 is honest.
            if few.len() > lying {
                return Err(failed.error(seats.len()));
            }
            running.extend(next.next().map(|seat| ask(seat, pause)));
        }
        if few.is_empty() && unreachable >= seats.len() {
            let needed = u32::try_from(quorum(total)).unwrap_or(u32::MAX);
            return Err(CommitteeError::NotEnoughMembers { needed, heard: 0 }.into());
        }
        Err(failed.error(seats.len()))
    }

    /// Checks answers: each proves itself, and is to the update that was sent.
    async fn hold(
        &self,
        submission: &Submission,
        answers: Vec<Bytes>,
    ) -> Result<Vec<Answer>, CommitteeError> {
        let (proofs, submission) = (Arc::clone(&self.inner.proofs), submission.clone());
        // Many take long.
        let held = move || proofs.answers(&submission, &answers);
        let held = self.env().cpu(held).await?;
        if let Some(height) = held.iter().map(|one| one.certificate.header().height).max() {
            self.saw(height).await;
        }
        Ok(held)
    }
}
