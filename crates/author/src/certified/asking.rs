//! One question to one member, and what became of several.

use std::time::Duration;

use committee::CommitteeError;
use crypto::{Class, Classified};
use env::Env;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeRequest};
use env::calls::{CallError, Calls, Endpoint};

use super::{CertifiedError, CertifiedHeads, Seat};

/// The longest wait before a busy librarian is asked again.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(2);
/// How often one is asked in all: whoever has no pass may ask each once a second, and asks two things of it to find the members.
const TRIES: usize = 4;

/// How long is waited before what failed is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// For how long it is: of the time that a read has enough is left to hear how the last try ends.
const RETRIED_FOR: Duration = Duration::from_secs(40);

/// What is tried again where it fails, so often and no longer than it makes sense.
pub(super) struct Retries<'a> {
    env: &'a Env,
    left: usize,
    until: Duration,
}

impl<'a> Retries<'a> {
    /// So many tries in all, of which the first is now.
    pub(super) fn new(env: &'a Env, tries: usize) -> Self {
        let until = env.clock.elapsed().saturating_add(RETRIED_FOR);
        Self { env, left: tries, until }
    }

    /// Waits, and says whether it is to be tried again; at once that it is not.
    pub(super) async fn again(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 || self.env.clock.elapsed() >= self.until {
            return false;
        }
        self.env.clock.sleep(PAUSE).await;
        true
    }
}

/// Asks a librarian about the committee's member that it hosts, and again where it is busy: after
/// as long as it says, a few times, and all of that within `limit`.
///
/// Cancel safe.
///
/// # Errors
/// [`CallError`], the last one; *busy* where only the time is over that it left.
pub async fn ask_patiently(
    env: &Env,
    calls: &dyn Calls,
    to: &Endpoint,
    request: CommitteeRequest,
    limit: Duration,
) -> Result<CommitteeAnswer, CallError> {
    let until = env.clock.elapsed().saturating_add(limit);
    let (mut tries, mut busy) = (1, None);
    loop {
        let left = until.saturating_sub(env.clock.elapsed());
        let retry_after = match (calls.committee(to, request.clone(), left).await, busy) {
            (Err(CallError::Busy { retry_after }), _) => retry_after,
            (Err(CallError::TimedOut { .. }), Some(retry_after)) => {
                return Err(CallError::Busy { retry_after });
            }
            (answer, _) => return answer,
        };
        let pause = retry_after.min(RETRY_MAX);
        if tries == TRIES || env.clock.elapsed().saturating_add(pause) >= until {
            return Err(CallError::Busy { retry_after });
        }
        env.clock.sleep(pause).await;
        (tries, busy) = (tries + 1, Some(retry_after));
    }
}

impl CertifiedHeads {
    /// Asks a member.
    pub(super) async fn ask(
        &self,
        seat: &Seat,
        ask: CommitteeAsk,
        limit: Duration,
    ) -> Result<CommitteeAnswer, CallError> {
        self.ask_at(&self.endpoint(seat), ask, limit).await
    }

    /// Asks whoever hosts a member there.
    pub(super) async fn ask_at(
        &self,
        to: &Endpoint,
        ask: CommitteeAsk,
        limit: Duration,
    ) -> Result<CommitteeAnswer, CallError> {
        let group = Some(*self.inner.proofs.group().id().as_bytes());
        let calls = self.inner.objects.walker().calls();
        let request = CommitteeRequest { group, ask };
        match &request.ask {
            // Whoever is too busy for an update is passed over: another member may have it sooner.
            CommitteeAsk::Update(_) => calls.committee(to, request, limit).await,
            _ => ask_patiently(self.env(), calls.as_ref(), to, request, limit).await,
        }
    }

    /// Where a member's librarian answers: as the network says, else as it was.
    pub(super) fn endpoint(&self, seat: &Seat) -> Endpoint {
        let known = self.inner.objects.walker().directory().endpoint(&seat.peer);
        known.unwrap_or_else(|| Endpoint::of(seat.peer, seat.address.clone()))
    }
}

/// Why several members did not answer as they should; the weightiest reason is told.
#[derive(Default)]
pub(super) struct Failures {
    /// What did not hold, or was behind.
    refused: Option<CertifiedError>,
    /// The most others that one heard of those who said that they are too few, and how many are needed.
    few: Option<(u32, u32)>,
    /// How many could not be reached.
    pub(super) unreachable: usize,
    last: Option<CallError>,
}

impl Failures {
    /// An answer that does not hold.
    pub(super) fn refused(&mut self, error: CertifiedError) {
        let weight = |error: &CertifiedError| matches!(error, CertifiedError::Behind { .. });
        // A lie says less of the committee than that its members are behind.
        if self.refused.as_ref().is_none_or(|known| weight(&error) || !weight(known)) {
            self.refused = Some(error);
        }
    }

    /// An answer to something else.
    pub(super) fn odd(&mut self) {
        self.refused(CommitteeError::Field("answer").into());
    }

    /// No answer.
    pub(super) fn call(&mut self, error: CallError) {
        match error {
            CallError::TooFewPeers { reached, wanted } => {
                let (most, _) = self.few.unwrap_or_default();
                self.few = Some((most.max(reached), wanted));
            }
            CallError::Unreachable { .. } | CallError::TimedOut { .. } => self.unreachable += 1,
            _ => {}
        }
        // What the members themselves say is told before what the way to them did.
        let better = self.last.as_ref().is_none_or(|last| last.class() == Class::Unavailable);
        if better {
            self.last = Some(error);
        }
    }

    /// The error of all together, of so many that were asked.
    pub(super) fn error(self, asked: usize) -> CertifiedError {
        if let Some((heard, needed)) = self.few {
            return CommitteeError::NotEnoughMembers { needed, heard }.into();
        }
        match (self.refused, self.last) {
            (Some(refused), _) => refused,
            (None, Some(CallError::Busy { retry_after })) => {
                let retry_ms = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
                CommitteeError::Busy { retry_ms }.into()
            }
            (None, Some(last)) => CertifiedError::Unanswered { asked, last },
            (None, None) => CertifiedError::NoMembers { asked, last: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weightiest_reason_is_told() {
        let unreachable =
            || CallError::Unreachable { address: String::new(), reason: String::new() };
        let mut failed = Failures::default();
        failed.call(unreachable());
        failed.call(CallError::Busy { retry_after: Duration::from_millis(9) });
        failed.call(unreachable());
        let told = failed.error(3);
        let busy = CommitteeError::Busy { retry_ms: 9 }.to_string();
        assert_eq!((told.class(), told.to_string()), (Class::Busy, busy));

        let mut failed = Failures::default();
        failed.call(CallError::TooFewPeers { reached: 2, wanted: 3 });
        failed.refused(CommitteeError::Signature.into());
        failed.call(CallError::TooFewPeers { reached: 1, wanted: 3 });
        assert_eq!(failed.unreachable, 0);
        assert!(matches!(
            failed.error(3),
            CertifiedError::Committee(CommitteeError::NotEnoughMembers { needed: 3, heard: 2 })
        ));

        let mut failed = Failures::default();
        failed.refused(CertifiedError::Behind { found: 1, known: 2 });
        failed.refused(CommitteeError::Signature.into());
        assert!(matches!(failed.error(2), CertifiedError::Behind { .. }));
        let mut failed = Failures::default();
        failed.call(unreachable());
        assert_eq!((failed.unreachable, failed.error(1).class()), (1, Class::Unavailable));
    }
}
