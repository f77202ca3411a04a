//! A fresh read: every update that was answered before it began is in it, whoever lies among f members.
//!
//! One member could answer with an old certificate, which proves itself. So n - f members are asked, with a nonce, for the highest
//! notarisation that each holds, and a certificate of the highest view among these or of a later one is waited for
//! ([`committee::position`] has why that is enough).
//!
//! So much of *members*: of those who were members once any number may lie, and what a header of their epoch says is certified for
//! ever. n - f of them could show it as the newest to whoever has not seen a later one. But they certify nothing new,
//! since those that were honest erased their shares, and members do so each second, also where nothing is to be done. So a
//! header that is older than [`FRESH_FOR`] by the clock here is fresh no more, and members that a header so old names are not
//! taken for the present ones while there is anybody else to ask.
//!
//! What is left: for [`FRESH_FOR`] after the members changed, n - f former ones can show the last header of their epoch to somebody
//! whom no present member reaches; and for longer to one whose clock is behind by as much more. Somebody whose clock is ahead by
//! more than that reads nothing freshly, and is told how old what was found is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use committee::position::{are_members, faulty, quorum};
use committee::{CommitteeError, Header, Position};
use env::calls::CallError;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use version::ObjectKey;

use super::asking::{Failures, PAUSE, Retries};
use super::{Certified, CertifiedError, CertifiedHeads, Seat, Seats};

/// How long a member may take to say how far it is.
const HOW_FAR_LIMIT: Duration = Duration::from_secs(5);
/// How old a header is at most, by the clock here, that a fresh read is as of: a second or two, and the rest is leave for clocks that
/// are off.
pub const FRESH_FOR: Duration = Duration::from_secs(600);
/// How often it is tried where it fails: members have just started, are busy, or become others.
const TRIES: usize = 8;

impl CertifiedHeads {
    /// Where a head is, as of a height at which every update is in that was answered before this call: linearizable.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`CommitteeError::NotEnoughMembers`] where fewer than n - f members say how far they are;
    /// [`CertifiedError::Stale`] where all that they show is older than [`FRESH_FOR`]; as [`CertifiedHeads::read`].
    pub async fn read_fresh(
        &self,
        object: &ObjectKey,
        branch: &str,
    ) -> Result<Certified, CertifiedError> {
        self.timely(self.read_newest(object, branch)).await
    }

    async fn read_newest(
        &self,
        object: &ObjectKey,
        branch: &str,
    ) -> Result<Certified, CertifiedError> {
        let mut retries = Retries::new(self.env(), TRIES);
        loop {
            let read = self.read_once(object, branch).await;
            if read.is_ok() {
                return read;
            }
            self.forget_seats();
            if !retries.again().await {
                return read;
            }
        }
    }

    async fn read_once(
        &self,
        object: &ObjectKey,
        branch: &str,
    ) -> Result<Certified, CertifiedError> {
        let (at, found, heard) = self.how_far().await?;
        let lying = faulty(found.members.len());
        let read = self.read_from(lying, &heard, object, branch, Some(at)).await?;
        // The quorum was one of those members whom the header names: else they are others by now.
        if are_members(&read.head.header, &found.members) {
            return Ok(read);
        }
        let last = CallError::Busy { retry_after: PAUSE };
        Err(CertifiedError::Unanswered { asked: found.members.len(), last })
    }

    /// The highest view that n - f members hold a notarisation of, and those that said so, first.
    async fn how_far(&self) -> Result<((u64, u64), Arc<Seats>, Vec<Seat>), CertifiedError> {
        let found = self.find_seats(self.fresh_since_ms()).await?;
        let seats = &found.seats;
        let needed = quorum(found.members.len());
        let nonce: [u8; 32] = self.env().random();
        let mut answers: FuturesUnordered<_> = seats
            .iter()
            .map(|seat| async move {
                (seat, self.ask(seat, CommitteeAsk::HowFar(nonce), HOW_FAR_LIMIT).await)
            })
            .collect();
        let (mut at, mut said, mut heard) = ((0, 0), BTreeSet::new(), Vec::new());
        let mut failed = Failures::default();
        while let Some((seat, answer)) = answers.next().await {
            match answer {
                Ok(CommitteeAnswer::HowFar(bytes)) => match self.position(seat, &bytes, &nonce) {
                    Ok(position) => {
                        at = at.max(position.at());
                        said.insert(seat.member);
                        heard.push(seat.clone());
                    }
                    Err(error) => failed.refused(error.into()),
                },
                Ok(_) => failed.odd(),
                Err(error) => failed.call(error),
            }
            if said.len() >= needed {
                drop(answers);
                return Ok((at, found, heard));
            }
        }
        let (needed, heard) = (count(needed), count(said.len()));
        tracing::debug!(needed, heard, "too few members say how far they are");
        match failed.unreachable + said.len() >= seats.len() {
            true => Err(CommitteeError::NotEnoughMembers { needed, heard }.into()),
            false => Err(failed.error(seats.len())),
        }
    }

    /// The time of the oldest header that is fresh now, Unix milliseconds.
    fn fresh_since_ms(&self) -> u64 {
        let fresh_ms = u64::try_from(FRESH_FOR.as_millis()).unwrap_or(u64::MAX);
        self.env().clock.unix_ms().saturating_sub(fresh_ms)
    }

    /// Checks that a header is fresh by the clock here. One of the future is: nobody certifies it but members of now.
    ///
    /// # Errors
    /// [`CertifiedError::Stale`].
    pub(super) fn check_fresh(&self, header: &Header) -> Result<(), CertifiedError> {
        if header.time_ms >= self.fresh_since_ms() {
            return Ok(());
        }
        let age_ms = self.env().clock.unix_ms().saturating_sub(header.time_ms);
        Err(CertifiedError::Stale { age: Duration::from_millis(age_ms) })
    }

    fn position(
        &self,
        seat: &Seat,
        bytes: &[u8],
        nonce: &[u8; 32],
    ) -> Result<Position, CommitteeError> {
        let position = Position::decode(bytes)?;
        if position.member != seat.member {
            return Err(CommitteeError::Path("member"));
        }
        position.verify(nonce, &self.inner.objects.network(), self.inner.proofs.group())?;
        Ok(position)
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
