//! Finding the members: which librarians host them, as the members themselves say.
//!
//! Whoever was a member before is asked first, then the peers that this user knows. One that hosts a member tells the members, which
//! is certified, since a header names the digest of their keys; and cards, each signed by a member and by its librarian.
//!
//! All of that can be repeated by any peer, so no single answer is enough: cards may be left out, and a list of members that are
//! none any more is as certified as ever. So cards are gathered over all answers; a list under a lower height than was seen before
//! is refused, and of two the one under the higher height counts; and it is asked on until a quorum of seats is known and f + 1 of
//! the members' own librarians told the same list: one of them is honest, and knows of a later one. Whoever else has not answered
//! by then is not waited for. With fewer than that the best of what was told counts, after everyone was asked.
//!
//! Of former members more than f may lie. For a fresh read a list is therefore not enough that a header certifies which is too old
//! for one (`fresh`): it is asked on, and the present members, where any of them is among those that are asked, certify theirs
//! under a higher height.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use committee::engine::MemberId;
use committee::position::{are_members, faulty, quorum};
use committee::{Card, CommitteeError};
use crypto::OrgId;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeStatus};
use env::calls::{CallError, Endpoint};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use walk::Health;

use super::asking::{PAUSE, Retries};
use super::{ANYTHING, CertifiedError, CertifiedHeads, Seat};

/// Peers that are asked for a member at most.
const ASKED_MAX: usize = 256;
/// Of those, at once.
const AT_ONCE: usize = 8;
/// How long one may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How often members are looked for while some are busy.
const TRIES: usize = 30;

/// The members of a committee, and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seats {
    /// All of them, in order, as a certified header names them.
    pub members: Vec<MemberId>,
    /// Those whose librarian is known.
    pub seats: Vec<Seat>,
}

/// How one member is, as its librarian tells it; nothing of it is proven but that it is a member.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// Who it is.
    pub member: MemberId,
    /// Where it is; `None` where nobody shows its card.
    pub seat: Option<Seat>,
    /// What its librarian answered; *not found* where it is not known.
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
    /// The members, and which librarians host them.
    ///
    /// # Errors
    /// [`CertifiedError::NoMembers`]; [`CertifiedError::Behind`] where all that answer are behind what was seen.
    pub async fn seats(&self) -> Result<Arc<Seats>, CertifiedError> {
        Ok(self.seats_or_known().await?.0)
    }

    /// Does it with the members that are known, and where that fails once more with those found anew:
    /// members move and change, and those of a while ago may be none any more.
    pub(super) async fn by_members<T, F>(
        &self,
        work: impl Fn(Arc<Seats>) -> F + Send,
    ) -> Result<T, CertifiedError>
    where
        F: Future<Output = Result<T, CertifiedError>> + Send,
    {
        let (mut seats, mut known) = self.seats_or_known().await?;
        loop {
            let done = work(seats).await;
            if done.is_ok() {
                return done;
            }
            self.forget_seats();
            if !known {
                return done;
            }
            (seats, known) = (self.find_seats(0).await?, false);
        }
    }

    /// The members, and whether they were known already.
    async fn seats_or_known(&self) -> Result<(Arc<Seats>, bool), CertifiedError> {
        let known = self.known().seats.clone();
        match known {
            Some(seats) => Ok((seats, true)),
            None => Ok((self.find_seats(0).await?, false)),
        }
    }

    /// Looks for them anew. Members that were just founded, have just started, or are between two
    /// epochs certify nothing yet and are busy: it is waited for them for a while, whatever others
    /// say, since one that lies or lags says something else. While what was told is certified by headers from before
    /// `since_ms`, Unix milliseconds, others are asked, as long as there are any.
    pub(super) async fn find_seats(&self, since_ms: u64) -> Result<Arc<Seats>, CertifiedError> {
        let limit = super::READ_WITHIN;
        let found = self.env().within(limit, self.find_patiently(since_ms)).await;
        let asked = self.known().memory.seats.len();
        found.unwrap_or(Err(CertifiedError::TooLong { asked, limit }))
    }

    async fn find_patiently(&self, since_ms: u64) -> Result<Arc<Seats>, CertifiedError> {
        let mut retries = Retries::new(self.env(), TRIES);
        loop {
            match self.look_for_seats(since_ms).await {
                Ok(found) => return Ok(found),
                Err(unfound) if unfound.busy && retries.again().await => {}
                Err(unfound) => return Err(unfound.error),
            }
        }
    }

    async fn look_for_seats(&self, since_ms: u64) -> Result<Arc<Seats>, Unfound> {
        // Members that answer at once are at slightly different heights: none of them is behind for that.
        let (remembered, floor) = {
            let known = self.known();
            (known.memory.seats.clone(), known.memory.height)
        };
        let mut candidates = Candidates::default();
        for seat in self.shuffled(&remembered) {
            candidates.add(self.endpoint(&seat));
        }
        for to in self.strangers() {
            candidates.add(to);
        }
        let mut heard = Heard::default();
        let mut asked = FuturesUnordered::new();
        loop {
            while asked.len() < AT_ONCE
                && let Some(to) = candidates.next()
            {
                asked.push(async move {
                    let told = self.told_by(&to, floor).await;
                    (to, told)
                });
            }
            let Some((to, told)) = asked.next().await else { break };
            heard.hear(&to, told);
            let Some(best) = heard.best() else { continue };
            let seats = self.seated(&heard.cards, &best.members);
            if best.time_ms >= since_ms && heard.are_enough(best, &seats) {
                break;
            }
            // Those that it is about are asked before others.
            seats.iter().for_each(|seat| candidates.add_first(self.endpoint(seat)));
        }
        drop(asked);
        let Some(best) = heard.best() else {
            return Err(heard.unfound(candidates.asked, floor));
        };
        let mut seats = self.seated(&heard.cards, &best.members);
        // Whose card nobody showed is where it was.
        let lost = remembered.iter().filter(|seat| best.members.contains(&seat.member));
        for seat in lost {
            if !seats.iter().any(|known| known.member == seat.member) {
                seats.push(seat.clone());
            }
        }
        if seats.is_empty() {
            return Err(heard.unfound(candidates.asked, floor));
        }
        Ok(self.found(best.members.clone(), seats, best.height).await)
    }

    /// All known peers: one of each organisation, then a second of each, and of each in a random order; those that are away last.
    /// Only so many are asked, so an organisation with many peers must not stand before all others, nor a large network's
    /// members be among those that are never asked.
    fn strangers(&self) -> Vec<Endpoint> {
        let directory = self.inner.objects.walker().directory();
        let mut peers: Vec<_> = directory
            .peers()
            .into_iter()
            .map(|status| (u64::from_be_bytes(self.env().random()), status))
            .collect();
        peers.sort_by_key(|(random, _)| *random);
        let mut of: BTreeMap<OrgId, usize> = BTreeMap::new();
        let mut order: Vec<_> = peers
            .into_iter()
            .filter_map(|(_, status)| {
                let to = directory.endpoint(&status.peer)?;
                let away = status.health == Health::Away;
                let turn = of.entry(status.organisation).or_default();
                *turn += usize::from(!away);
                Some(((away, *turn), to))
            })
            .collect();
        order.sort_by_key(|(rank, _)| *rank);
        order.into_iter().map(|(_, to)| to).collect()
    }

    /// Keeps what was found.
    async fn found(&self, members: Vec<MemberId>, seats: Vec<Seat>, height: u64) -> Arc<Seats> {
        let found = Arc::new(Seats { members, seats });
        {
            let mut known = self.known();
            known.seen = Some(self.env().clock.elapsed());
            known.seats = Some(Arc::clone(&found));
            known.memory.seats.clone_from(&found.seats);
            known.memory.height = known.memory.height.max(height);
        }
        self.remember().await;
        found
    }

    /// The members as one librarian tells them, and what certifies them at this height or a later one.
    async fn told_by(&self, to: &Endpoint, floor: u64) -> Result<Told, Refused> {
        let CommitteeAnswer::Status(status) = self.ask_at(to, CommitteeAsk::Status, LIMIT).await?
        else {
            return Err(Refused::Wrong(CommitteeError::Field("answer")));
        };
        let members: Vec<MemberId> = status.members.iter().copied().map(MemberId::new).collect();
        let (height, time_ms) = self.certify_members(to, &members, floor).await?;
        let cards = self.shown(&status);
        Ok(Told { members, height, time_ms, cards })
    }

    /// Checks that a certified header names these members; its height and its time.
    async fn certify_members(
        &self,
        to: &Endpoint,
        members: &[MemberId],
        floor: u64,
    ) -> Result<(u64, u64), Refused> {
        let (object, branch) = ANYTHING;
        let name = Bytes::from_static(branch.as_bytes());
        let ask = CommitteeAsk::Read { object, branch: name, at: None };
        let CommitteeAnswer::Read(bytes) = self.ask_at(to, ask, LIMIT).await? else {
            return Err(Refused::Wrong(CommitteeError::Field("answer")));
        };
        let header = self.checked(&bytes, &object, branch)?.0.header;
        if header.height < floor {
            return Err(Refused::Behind(header.height));
        }
        match are_members(&header, members) {
            true => Ok((header.height, header.time_ms)),
            // A lie, or an epoch began between the two answers: until a block of it is certified, none names its members.
            false => Err(Refused::Call(CallError::Busy { retry_after: PAUSE })),
        }
    }

    /// The cards of this committee's members that a librarian shows.
    fn shown(&self, status: &CommitteeStatus) -> Vec<Card> {
        let (network, group) = (self.inner.objects.network(), self.inner.proofs.group().id());
        let cards = status.cards.iter().filter_map(|card| Card::verify(card, &network).ok());
        // Founders have theirs from before there was a committee.
        cards.filter(|card| card.committee.is_none_or(|other| other == group)).collect()
    }

    /// Where each of these members is, as its newest card says.
    fn seated(&self, cards: &[Card], members: &[MemberId]) -> Vec<Seat> {
        let directory = self.inner.objects.walker().directory();
        let now_ms = self.env().clock.unix_ms();
        let seat = |member: &MemberId| {
            let own = cards.iter().filter(|card| card.member == *member);
            let card = own.max_by_key(|card| card.rank(now_ms))?;
            let endpoint = directory.endpoint(&card.peer)?;
            Some(Seat { member: *member, peer: card.peer, address: endpoint.address })
        };
        members.iter().filter_map(seat).collect()
    }

    /// How each member is, as its librarian tells it; also those whose librarian is not known.
    ///
    /// # Errors
    /// As [`CertifiedHeads::seats`].
    pub async fn status(&self) -> Result<Vec<MemberReport>, CertifiedError> {
        let found = self.find_seats(0).await?;
        let reports = found.members.iter().map(|member| async {
            let seat = found.seats.iter().find(|seat| seat.member == *member).cloned();
            let Some(seat) = seat else {
                let report = Err(CallError::NotFound);
                return MemberReport { member: *member, seat: None, report };
            };
            let answer = self.ask(&seat, CommitteeAsk::Status, LIMIT).await;
            let report = answer.and_then(|answer| match answer {
                CommitteeAnswer::Status(status) => Ok(Report::from(*status)),
                _ => Err(CallError::Corrupt {
                    address: seat.address.clone(),
                    reason: String::from("it answers something else"),
                }),
            });
            MemberReport { member: *member, seat: Some(seat), report }
        });
        Ok(futures::future::join_all(reports).await)
    }
}

/// Who is asked, each once.
#[derive(Default)]
struct Candidates {
    waiting: VecDeque<Endpoint>,
    seen: BTreeSet<Endpoint>,
    asked: usize,
}

impl Candidates {
    fn add(&mut self, to: Endpoint) {
        if self.seen.insert(to.clone()) {
            self.waiting.push_back(to);
        }
    }

    /// Lets one be the next, unless it was asked already.
    fn add_first(&mut self, to: Endpoint) {
        match self.waiting.iter().position(|one| *one == to) {
            Some(at) => {
                self.waiting.remove(at);
                self.waiting.push_front(to);
            }
            None if self.seen.insert(to.clone()) => self.waiting.push_front(to),
            None => {}
        }
    }

    fn next(&mut self) -> Option<Endpoint> {
        if self.asked >= ASKED_MAX {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.asked += 1;
        Some(next)
    }
}

/// What one librarian told, with the list of members certified.
struct Told {
    members: Vec<MemberId>,
    height: u64,
    /// When that was, Unix milliseconds.
    time_ms: u64,
    cards: Vec<Card>,
}

/// What all told so far.
#[derive(Default)]
struct Heard {
    told: Vec<(Endpoint, Told)>,
    cards: Vec<Card>,
    last: Option<CallError>,
    wrong: Option<CommitteeError>,
    /// The newest height of those that are behind.
    behind: Option<u64>,
}

impl Heard {
    fn hear(&mut self, from: &Endpoint, told: Result<Told, Refused>) {
        match told {
            Ok(mut told) => {
                for card in std::mem::take(&mut told.cards) {
                    if !self.cards.contains(&card) {
                        self.cards.push(card);
                    }
                }
                self.told.push((from.clone(), told));
            }
            Err(Refused::Call(CallError::NotFound)) => {}
            // One that is busy will tell them.
            Err(Refused::Call(error)) => {
                if !matches!(self.last, Some(CallError::Busy { .. })) {
                    self.last = Some(error);
                }
            }
            Err(Refused::Wrong(error)) => self.wrong = Some(error),
            Err(Refused::Behind(found)) => self.behind = self.behind.max(Some(found)),
        }
    }

    /// What is certified at the highest height.
    fn best(&self) -> Option<&Told> {
        self.told.iter().map(|(_, told)| told).max_by_key(|told| told.height)
    }

    /// Whether n - f seats are known and f + 1 of the members' own librarians tell this list.
    fn are_enough(&self, best: &Told, seats: &[Seat]) -> bool {
        let total = best.members.len();
        let own = self.told.iter().filter(|(from, told)| {
            let seat = seats.iter().any(|seat| Some(seat.peer) == from.peer);
            seat && told.members == best.members
        });
        seats.len() >= quorum(total) && own.count() > faulty(total)
    }

    fn unfound(self, asked: usize, known: u64) -> Unfound {
        let busy = matches!(self.last, Some(CallError::Busy { .. }));
        let error = match (self.behind, self.wrong) {
            (Some(found), _) => CertifiedError::Behind { found, known },
            (None, Some(error)) => error.into(),
            (None, None) => CertifiedError::NoMembers { asked, last: self.last },
        };
        Unfound { busy, error }
    }
}

/// Why nobody told the members.
struct Unfound {
    /// Whether somebody was busy, and may tell them soon.
    busy: bool,
    /// The weightiest of what was said.
    error: CertifiedError,
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
    /// At which height it is.
    Behind(u64),
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
