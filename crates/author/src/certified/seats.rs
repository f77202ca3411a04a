//! Finding the members: which librarians host them, as the members themselves say.
//!
//! Whoever was a member before is asked first, then the peers that this user knows. One that hosts a member tells the cards of all,
//! each signed by the member and by its librarian; and that these are the members is certified, since a header names the digest of
//! their keys. So a liar can keep itself out of the way, and nothing more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use committee::engine::MemberId;
use committee::position::are_members;
use committee::{Card, CommitteeError, Read};
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeStatus};
use env::calls::{CallError, Endpoint};
use futures::StreamExt as _;
use version::ObjectKey;

use super::{CertifiedError, CertifiedHeads, Seat};

/// Peers that are asked for a member at most.
const ASKED_MAX: usize = 256;
/// Of those, at once.
const AT_ONCE: usize = 8;
/// How long one may take.
const LIMIT: Duration = Duration::from_secs(5);
/// What is asked for where only the header beside it matters.
const ANY: ObjectKey = ObjectKey::new([0; 32]);

/// How one member is, as its librarian tells it; nothing of it is proven.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// Who it is.
    pub seat: Seat,
    /// What its librarian answered.
    pub report: Result<Report, CallError>,
}

/// What a librarian tells of its member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The height of the newest certified header that it knows.
    pub height: u64,
    /// Its time, Unix milliseconds.
    pub time_ms: u64,
    /// The epoch.
    pub epoch: u64,
    /// How many members must agree.
    pub needed: u32,
    /// How many it hears, itself among them.
    pub heard: u32,
    /// Whether it votes; else it follows.
    pub votes: bool,
    /// Submissions that wait there.
    pub waiting: u64,
    /// Entries of the state.
    pub entries: u64,
    /// Bytes of them.
    pub state_bytes: u64,
}

impl CertifiedHeads {
    /// The members, and which librarians host them; those alone whose librarian is known.
    ///
    /// # Errors
    /// [`CertifiedError::NoMembers`].
    pub async fn seats(&self) -> Result<Arc<[Seat]>, CertifiedError> {
        let found = self.known().seats.clone();
        match found {
            Some(seats) => Ok(seats),
            None => self.find_seats().await,
        }
    }

    /// Looks for them anew.
    pub(super) async fn find_seats(&self) -> Result<Arc<[Seat]>, CertifiedError> {
        let remembered = self.known().memory.seats.clone();
        let mut candidates: Vec<Endpoint> =
            self.shuffled(&remembered).iter().map(|seat| self.endpoint(seat)).collect();
        let directory = self.inner.objects.walker().directory();
        let peers = directory.peers();
        let others = peers.iter().filter_map(|status| directory.endpoint(&status.peer));
        candidates.extend(others);
        let mut seen = std::collections::BTreeSet::new();
        candidates.retain(|endpoint| seen.insert(endpoint.clone()));
        candidates.truncate(ASKED_MAX);
        let asked = candidates.len();
        let mut answers = futures::stream::iter(candidates)
            .map(|to| async move { self.seats_from(&to).await })
            .buffer_unordered(AT_ONCE);
        let (mut last, mut wrong) = (None, None);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok((seats, members)) => {
                    let memory = {
                        let mut known = self.known();
                        known.members = members;
                        known.seats = Some(Arc::clone(&seats));
                        known.memory.seats = seats.to_vec();
                        known.memory.clone()
                    };
                    if let Err(error) = memory.write(&self.inner.path) {
                        tracing::warn!(%error, "where the members are could not be kept");
                    }
                    return Ok(seats);
                }
                Err(Refused::Call(CallError::NotFound)) => {}
                Err(Refused::Call(error)) => last = Some(error),
                Err(Refused::Wrong(error)) => wrong = Some(error),
            }
        }
        match wrong {
            Some(error) => Err(error.into()),
            None => Err(CertifiedError::NoMembers { asked, last }),
        }
    }

    /// The members as one librarian tells them.
    async fn seats_from(&self, to: &Endpoint) -> Result<(Arc<[Seat]>, usize), Refused> {
        let CommitteeAnswer::Status(status) = self.ask_at(to, CommitteeAsk::Status, LIMIT).await?
        else {
            return Err(Refused::Wrong(CommitteeError::Field("answer")));
        };
        let members: Vec<MemberId> = status.members.iter().copied().map(MemberId::new).collect();
        self.certify_members(to, &members).await?;
        Ok((self.seated(&status, &members), members.len()))
    }

    /// Checks that a certified header names these members.
    async fn certify_members(&self, to: &Endpoint, members: &[MemberId]) -> Result<(), Refused> {
        let branch = Bytes::from_static(b"main");
        let ask = CommitteeAsk::Read { object: ANY, branch, at: None };
        let CommitteeAnswer::Read(bytes) = self.ask_at(to, ask, LIMIT).await? else {
            return Err(Refused::Wrong(CommitteeError::Field("answer")));
        };
        let (network, group) = (self.inner.objects.network(), &self.inner.group);
        let read = Read::decode(&bytes)?.verify(&network, group, &ANY, "main")?;
        match are_members(&read.header, members) {
            true => Ok(()),
            false => Err(Refused::Wrong(CommitteeError::Path("list of members"))),
        }
    }

    /// The newest card of each of these members.
    fn seated(&self, status: &CommitteeStatus, members: &[MemberId]) -> Arc<[Seat]> {
        let network = self.inner.objects.network();
        let cards = status.cards.iter().filter_map(|card| Card::verify(card, &network).ok());
        let mut cards: Vec<Card> = cards.filter(|card| members.contains(&card.member)).collect();
        cards.sort_by_key(|card| std::cmp::Reverse(card.time_ms));
        let seat = |member: &MemberId| {
            let card = cards.iter().find(|card| card.member == *member)?;
            let endpoint = self.inner.objects.walker().directory().endpoint(&card.peer)?;
            Some(Seat { member: *member, peer: card.peer, address: endpoint.address })
        };
        members.iter().filter_map(seat).collect()
    }

    /// How each member is, as its librarian tells it.
    ///
    /// # Errors
    /// [`CertifiedError::NoMembers`].
    pub async fn status(&self) -> Result<Vec<MemberReport>, CertifiedError> {
        let seats = self.find_seats().await?;
        let reports = seats.iter().map(|seat| async move {
            let answer = self.ask(seat, CommitteeAsk::Status, LIMIT).await;
            let report = answer.and_then(|answer| match answer {
                CommitteeAnswer::Status(status) => Ok(Report::from(*status)),
                _ => Err(CallError::Corrupt {
                    address: seat.address.clone(),
                    reason: String::from("it answers something else"),
                }),
            });
            MemberReport { seat: seat.clone(), report }
        });
        Ok(futures::future::join_all(reports).await)
    }
}

impl From<CommitteeStatus> for Report {
    fn from(status: CommitteeStatus) -> Self {
        Self {
            height: status.height,
            time_ms: status.time_ms,
            epoch: status.epoch,
            needed: status.needed,
            heard: status.heard,
            votes: status.votes,
            waiting: status.waiting,
            entries: status.entries,
            state_bytes: status.state_bytes,
        }
    }
}

/// Why a peer told no members.
enum Refused {
    Call(CallError),
    Wrong(CommitteeError),
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<CommitteeError> for Refused {
    fn from(error: CommitteeError) -> Self {
        Self::Wrong(error)
    }
}
