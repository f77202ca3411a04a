//! The member of a committee that this librarian hosts: what callers ask it, and how it is.
//!
//! The member itself runs on a thread of its own and is whoever starts the librarian's to start; here is the way to it. A
//! librarian that hosts none answers *not found*. Nothing is believed of a caller but its standing: submissions are signed by
//! their authors, and what is answered proves itself with the group key. So whoever may look may read, and whoever was vouched for
//! may send updates.
//!
//! Limits: callers are bounded as everywhere (`admission`, `limiter`); an update counts as one request of `Store`. What waits at the
//! member is bounded there, and over it the answer is *busy*, with when to try again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use committee::engine::MemberId;
use committee::{Committee, CommitteeError, Submission};
use crypto::{Class, Classified};
use env::calls::CallError;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeRequest, CommitteeStatus};
use serde::Serialize;

use crate::core::Core;

/// How often the member is asked how it is, for the page and the metrics.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long it may take to say so.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// When to ask again where the member did not say.
const RETRY: Duration = Duration::from_millis(500);

/// A member, and what is told of it.
#[derive(Clone)]
pub struct Hosted {
    /// The way to it.
    pub member: Arc<dyn Committee>,
    /// Its key.
    pub id: MemberId,
    /// The encoded charter.
    pub charter: Bytes,
    /// Cards of the other members.
    pub cards: Vec<Bytes>,
}

/// How the member is that a peer hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberStatus {
    /// Its key, hex.
    pub member: String,
    /// The committee's group key, hex.
    pub committee: String,
    /// Whether it answers.
    pub running: bool,
    /// Whether it is one of the members; else it follows, to become one or because it was removed.
    pub seated: bool,
    /// Whether it votes; else it follows.
    pub votes: bool,
    /// The height of the newest certified header.
    pub height: u64,
    /// Its time, Unix milliseconds.
    pub time_ms: u64,
    /// The epoch.
    pub epoch: u64,
    /// How many members must agree.
    pub needed: u32,
    /// How many are heard, this one among them.
    pub heard: u32,
    /// Members.
    pub members: usize,
    /// Submissions that wait.
    pub waiting: u64,
    /// Entries of the state.
    pub entries: u64,
    /// Bytes of them.
    pub state_bytes: u64,
}

/// Where a member sits.
#[derive(Default)]
pub(crate) struct MemberSeat {
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    hosted: Option<Hosted>,
    card: Option<Bytes>,
    status: Option<MemberStatus>,
}

impl MemberSeat {
    fn lock(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The signed card that is given to everyone who introduces themselves.
    pub(crate) fn card(&self) -> Option<Bytes> {
        self.lock().card.clone()
    }

    pub(crate) fn show(&self, card: Option<Bytes>) {
        self.lock().card = card;
    }

    /// Takes a member in, in the place of the one before.
    pub(crate) fn host(&self, hosted: Option<Hosted>) {
        let mut taken = self.lock();
        // The same member with other cards is as it was. One that has said nothing yet does not run, which is not to host none.
        taken.status = hosted.as_ref().map(|hosted| {
            let silent = MemberStatus::silent(hosted);
            let same = |known: &MemberStatus| {
                (&known.member, &known.committee) == (&silent.member, &silent.committee)
            };
            taken.status.take().filter(same).unwrap_or(silent)
        });
        taken.hosted = hosted;
    }

    /// How it was at the last look.
    pub(crate) fn status(&self) -> Option<MemberStatus> {
        self.lock().status.clone()
    }

    fn hosted(&self) -> Option<Hosted> {
        self.lock().hosted.clone()
    }

    /// Notes how the member is, unless another sits there by now.
    async fn look(&self, core: &Core) {
        let Some(hosted) = self.hosted() else { return };
        let asked = core.env.within(LOOK_LIMIT, hosted.member.status()).await;
        let mut taken = self.lock();
        let same =
            taken.hosted.as_ref().is_some_and(|now| Arc::ptr_eq(&now.member, &hosted.member));
        if !same {
            return;
        }
        match asked {
            Ok(Ok(status)) => taken.status = Some(MemberStatus::new(&hosted, &status)),
            _ => {
                if let Some(status) = &mut taken.status {
                    status.running = false;
                }
            }
        }
    }
}

impl MemberStatus {
    /// Of a member that has not answered yet.
    fn silent(hosted: &Hosted) -> Self {
        Self {
            member: hosted.id.to_string(),
            committee: hosted.member.group().to_string(),
            running: false,
            seated: false,
            votes: false,
            height: 0,
            time_ms: 0,
            epoch: 0,
            needed: 0,
            heard: 0,
            members: 0,
            waiting: 0,
            entries: 0,
            state_bytes: 0,
        }
    }

    fn new(hosted: &Hosted, status: &committee::Status) -> Self {
        Self {
            member: hosted.id.to_string(),
            committee: hosted.member.group().to_string(),
            running: true,
            seated: status.seated,
            votes: status.votes,
            height: status.height,
            time_ms: status.time_ms,
            epoch: status.epoch,
            needed: status.needed,
            heard: status.heard,
            members: status.members.len(),
            waiting: status.waiting,
            entries: status.entries,
            state_bytes: status.state_bytes,
        }
    }
}

/// Looks at the member now and then, until the peer stops.
pub(crate) async fn look_all(core: Arc<Core>) {
    loop {
        core.member.look(&core).await;
        if !core.beat(LOOK_EVERY).await {
            return;
        }
    }
}

/// What a caller hears of an error of the member's.
fn refusal(error: &CommitteeError) -> CallError {
    let reason = error.to_string();
    match error {
        CommitteeError::Busy { retry_ms } => {
            CallError::Busy { retry_after: Duration::from_millis(*retry_ms) }
        }
        CommitteeError::NotEnoughMembers { needed, heard } => {
            CallError::TooFewPeers { reached: *heard, wanted: *needed }
        }
        CommitteeError::Stopped => CallError::Busy { retry_after: RETRY },
        _ => match error.class() {
            Class::Denied => CallError::Denied { reason },
            Class::Bug => CallError::Internal { reason },
            _ => CallError::Invalid { reason },
        },
    }
}

/// Asks the member.
pub(crate) async fn answer(
    core: &Core,
    request: CommitteeRequest,
) -> Result<CommitteeAnswer, CallError> {
    let hosted = core.member.hosted().ok_or(CallError::NotFound)?;
    let member = &hosted.member;
    if request.group.is_some_and(|group| group != *member.group().id().as_bytes()) {
        return Err(CallError::NotFound);
    }
    let refused = |error: CommitteeError| refusal(&error);
    match request.ask {
        CommitteeAsk::Update(bytes) => {
            // A thousand keys are decoded away from the I/O threads.
            let submission = core.env.cpu(move || Submission::decode(&bytes)).await;
            let answers = member.update(submission.map_err(refused)?).await.map_err(refused)?;
            let encode = move || answers.iter().map(committee::Answer::encode).collect();
            Ok(CommitteeAnswer::Update(core.env.cpu(encode).await))
        }
        CommitteeAsk::Read { object, branch, at } => {
            let branch = std::str::from_utf8(&branch).map_err(|_| CallError::Invalid {
                reason: String::from("the name of a branch is UTF-8"),
            })?;
            let read = match at {
                None => member.read(object, branch).await,
                Some(at) => member.read_at(object, branch, at).await,
            };
            Ok(CommitteeAnswer::Read(read.map_err(refused)?.encode()))
        }
        CommitteeAsk::HowFar(nonce) => {
            let position = member.how_far(nonce).await.map_err(refused)?;
            Ok(CommitteeAnswer::HowFar(position.encode().into()))
        }
        CommitteeAsk::Status => {
            let status = member.status().await.map_err(refused)?;
            Ok(CommitteeAnswer::Status(Box::new(told(core, &hosted, &status))))
        }
        CommitteeAsk::Charter => Ok(CommitteeAnswer::Charter(hosted.charter)),
    }
}

fn told(core: &Core, hosted: &Hosted, status: &committee::Status) -> CommitteeStatus {
    let own = core.member.card();
    CommitteeStatus {
        group: Bytes::copy_from_slice(hosted.member.group().as_bytes()),
        height: status.height,
        time_ms: status.time_ms,
        epoch: status.epoch,
        view: status.view,
        needed: status.needed,
        heard: status.heard,
        votes: status.votes,
        waiting: status.waiting,
        entries: status.entries,
        state_bytes: status.state_bytes,
        member: *hosted.id.as_bytes(),
        members: status.members.iter().map(|member| *member.as_bytes()).collect(),
        cards: own.into_iter().chain(hosted.cards.iter().cloned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_says_keeps_its_class() {
        let busy = refusal(&CommitteeError::Busy { retry_ms: 70 });
        assert_eq!(busy, CallError::Busy { retry_after: Duration::from_millis(70) });
        let few = refusal(&CommitteeError::NotEnoughMembers { needed: 3, heard: 2 });
        assert_eq!(few, CallError::TooFewPeers { reached: 2, wanted: 3 });
        assert_eq!(few.class(), Class::Unavailable);
        assert_eq!(refusal(&CommitteeError::Group).class(), Class::Denied);
        assert_eq!(refusal(&CommitteeError::Field("branch")).class(), Class::Invalid);
        assert_eq!(refusal(&CommitteeError::Stopped).class(), Class::Busy);
    }
}
