//! The member of a committee that a peer's directory holds, and the task that runs it beside the librarian.
//!
//! ```text
//! D/committee/links     where it listens, and where the other members reach it
//! D/committee/member.key   its private key in hex, 0600
//! D/committee/number    the number of the founding that was tried last: none comes twice
//! D/committee/cards     signed cards of members, each after its length as four bytes
//! D/committee/charter   there once the committee is founded, or joined: from then on the member runs
//! D/committee/wanted    which members its operator asks for (`hosting::change`); taken up and removed
//! D/committee/change    how far a change of the members is, as the running member tells
//! D/committee/lock      held by who founds or joins
//! D/committee/engine/   what the member itself keeps: its log, its votes, its share
//! ```
//! The verbs of `hold committee` write files and know nothing of the running librarian, which looks at them every second, as
//! with everything in a peer's directory. A member whose thread ends is told of and started again after a while; one whose founding
//! was cut short when it had agreed is taken up.
//!
//! Members change. Whom the member is linked to is what cards say ([`cards`]) of those that the chain names, or named before; so it
//! finds its way after a restart, whoever founded the committee.
//!
//! The folder is never copied back: a copy of a member is a member that forgot its votes.

mod cards;
pub(crate) mod change;
mod folder;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use committee::engine::{Charter, MemberId, Settings};
use committee::{Card, GroupId, Member};
use crypto::{NetworkId, PeerId, SecretKey};
use librarian::{Hosted, Librarian};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::cards::Cards;
pub(crate) use self::folder::MemberDir;
use crate::client::blocking;
use crate::error::HoldError;
use crate::out::one_line;
use crate::peerdir;

/// What the member's own files begin with.
pub(crate) const NAME: &str = "member";
/// How long an update or a fresh read is waited for before *busy* or *not enough members*.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// After how long a member whose thread ended is started again, and one that was cut short looked for.
const START_AGAIN: Duration = Duration::from_secs(10);
/// How often the other members' cards are asked for.
const CARDS_EVERY: Duration = Duration::from_secs(30);
/// How long a member may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// How long a member may take to take a word of its librarian's.
const TELL_LIMIT: Duration = Duration::from_secs(2);
/// A calendar that goes by so much more or less than the time that passes between two looks was set.
const SET_BY: Duration = Duration::from_secs(5);

/// Who hosts: what its cards are signed with.
pub(crate) struct Host {
    /// The peer's directory.
    pub(crate) dir: PathBuf,
    /// The peer's key.
    pub(crate) key: SecretKey,
    /// The network.
    pub(crate) network: NetworkId,
}

/// The folder as it was read last.
struct Seen {
    stamp: folder::Stamp,
    dir: MemberDir,
    charter: Option<Charter>,
}

/// A member that runs, or could.
struct Hosting {
    host: Host,
    librarian: Arc<Librarian>,
    seen: Option<Arc<Seen>>,
    starting: Option<JoinHandle<Result<Member, HoldError>>>,
    running: Option<Member>,
    /// The member that ends.
    stopping: Option<JoinHandle<Result<(), HoldError>>>,
    /// Which member of which committee runs, or starts.
    runs_as: Option<(MemberId, GroupId)>,
    /// Where the running member was told that all are.
    linked: Vec<(MemberId, SocketAddr)>,
    cards: Cards,
    /// Those that the folder keeps, where that is known.
    cards_kept: Option<Vec<Bytes>>,
    change: change::Following,
    shown: Option<Card>,
    start_after: Option<Instant>,
    take_up_after: Option<Instant>,
    cards_after: Instant,
    /// The calendar as it goes beside the time that passes.
    calendar: Calendar,
    /// What was told of the folder last, so that it is told once.
    complaint: String,
}

/// Whether the calendar was set. A member's links to the others count handshakes and sleep by it: what was set back has them refuse and
/// wait until it comes there again.
struct Calendar {
    began: Instant,
    /// How far it was ahead of the time that had passed, at the last look; milliseconds.
    ahead_ms: Option<i64>,
}

impl Calendar {
    /// Whether it was set by more than [`SET_BY`] since the last look.
    fn was_set(&mut self, now_ms: u64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.began).as_millis();
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let ahead =
            signed(now_ms).saturating_sub(signed(u64::try_from(passed).unwrap_or(u64::MAX)));
        let before = self.ahead_ms.replace(ahead).unwrap_or(ahead);
        u128::from(ahead.abs_diff(before)) > SET_BY.as_millis()
    }
}

/// Runs the member that the peer's directory holds, whenever it holds one, until `stop`.
pub(crate) async fn host_all(host: Host, librarian: Arc<Librarian>, stop: CancellationToken) {
    let mut hosting = Hosting {
        host,
        librarian,
        seen: None,
        starting: None,
        running: None,
        stopping: None,
        runs_as: None,
        linked: Vec::new(),
        cards: Cards::default(),
        cards_kept: None,
        change: change::Following::default(),
        shown: None,
        start_after: None,
        take_up_after: None,
        cards_after: Instant::now(),
        calendar: Calendar { began: Instant::now(), ahead_ms: None },
        complaint: String::new(),
    };
    loop {
        match unless_stopped(&stop, hosting.look()).await {
            Some(Ok(())) => hosting.complaint.clear(),
            Some(Err(error)) => hosting.complain(&error),
            None => break,
        }
        if unless_stopped(&stop, env::beat(env::BEAT)).await.is_none() {
            break;
        }
    }
    hosting.end().await;
}

/// What a look comes to. Whatever it waits for, a stop does not: what it began is known to [`Hosting::end`].
async fn unless_stopped<T>(stop: &CancellationToken, look: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        looked = look => Some(looked),
    }
}

impl Hosting {
    fn complain(&mut self, error: &HoldError) {
        let text = one_line(error);
        if text != self.complaint {
            tracing::error!(error = %text, "the member of a committee does not run");
            self.complaint = text;
        }
    }

    /// The folder, read again where it changed; `None` where there is none.
    async fn see(&mut self) -> Result<Option<Arc<Seen>>, HoldError> {
        let stamp = folder::stamp(&self.host.dir);
        if let Some(seen) = self.seen.as_ref().filter(|seen| seen.stamp == stamp) {
            return Ok(Some(Arc::clone(seen)));
        }
        self.seen = None;
        let peer = self.host.dir.clone();
        // A charter's points are decoded: not on an I/O thread.
        let read = move || {
            let Some(dir) = MemberDir::open(&peer)? else { return Ok(None) };
            let charter = dir.charter()?;
            Ok(Some(Seen { stamp, dir, charter }))
        };
        self.seen = blocking(read).await?.map(Arc::new);
        Ok(self.seen.clone())
    }

    /// Does what is to be done now. What it waits for may be left at any time.
    async fn look(&mut self) -> Result<(), HoldError> {
        if self.calendar.was_set(now_ms(), Instant::now()) && self.running.is_some() {
            tracing::warn!(
                "the calendar was set: the member of the committee begins anew with its links"
            );
            self.end().await;
        }
        let Some(seen) = self.see().await? else {
            if self.shown.take().is_some() {
                self.librarian.show_card(None);
                self.end().await;
            }
            return Ok(());
        };
        self.show(&seen);
        // A folder that was made anew between two looks is another member's.
        let is = seen.charter.as_ref().map(|charter| (seen.dir.secret.id(), charter.group.id()));
        if self.runs_as.is_some() && self.runs_as != is {
            self.end().await;
        }
        let Some(charter) = &seen.charter else { return self.take_up(&seen.dir).await };
        self.runs_as = is;
        if self.running.as_ref().is_some_and(Member::has_ended) {
            self.librarian.host(None);
            self.start_after = Some(Instant::now() + START_AGAIN);
            if let Some(member) = self.running.take() {
                return blocking(move || Ok(member.stop()?)).await;
            }
        }
        if self.running.is_none() {
            self.start(&seen.dir, charter).await?;
        }
        self.follow(&seen.dir, charter).await?;
        if self.running.is_some() && Instant::now() >= self.cards_after {
            self.cards_after = Instant::now() + CARDS_EVERY;
            self.ask_for_cards(&seen.dir, charter).await?;
        }
        Ok(())
    }

    /// Takes up a founding or a joining that was cut short when the member had its charter, and its folder not yet.
    async fn take_up(&mut self, dir: &MemberDir) -> Result<(), HoldError> {
        if !dir.engine().exists() || self.take_up_after.is_some_and(|after| Instant::now() < after)
        {
            return Ok(());
        }
        self.take_up_after = Some(Instant::now() + START_AGAIN);
        let dir = dir.clone();
        let take = move || {
            let Some(_lock) = dir.lock()? else { return Ok(None) };
            dir.take_up()
        };
        if let Some(charter) = blocking(take).await? {
            tracing::warn!(committee = %charter.group, "a founding or joining that was cut short is taken up");
        }
        Ok(())
    }

    /// Signs the member's card, and gives it to those who introduce themselves.
    fn show(&mut self, seen: &Seen) {
        let card = Card {
            network: self.host.network,
            peer: PeerId::new(self.host.key.public()),
            member: seen.dir.secret.id(),
            committee: seen.charter.as_ref().map(|charter| charter.group.id()),
            time_ms: 0,
            address: seen.dir.address,
        };
        // One that was signed before the clock was set right is signed again.
        let is_shown = self.shown.as_ref().is_some_and(|shown| {
            !shown.is_of_the_future(now_ms()) && Card { time_ms: 0, ..shown.clone() } == card
        });
        if !is_shown {
            let signed = Card { time_ms: now_ms(), ..card };
            self.librarian.show_card(Some(signed.sign(&self.host.key, &seen.dir.secret)));
            self.shown = Some(signed);
        }
    }

    async fn start(&mut self, dir: &MemberDir, charter: &Charter) -> Result<(), HoldError> {
        if self.starting.is_none() {
            if self.start_after.is_some_and(|after| Instant::now() < after) {
                return Ok(());
            }
            self.start_after = Some(Instant::now() + START_AGAIN);
            self.cards = Cards::read(dir, &self.host.network, now_ms());
            self.cards_kept = None;
            self.change = change::Following::read(dir);
            let links = dir.links(self.cards.all());
            self.linked.clone_from(&links.members);
            let settings = Settings { answer_within: ANSWER_WITHIN, ..Settings::new(NAME, links) };
            let engine = dir.engine();
            let start = async || blocking(move || Ok(Member::start(engine, settings)?)).await;
            self.starting = Some(tokio::spawn(start()));
        }
        let Some(starting) = &mut self.starting else { return Ok(()) };
        let started = starting.await;
        self.starting = None;
        let member = started.map_err(|_| HoldError::Interrupted)??;
        self.librarian.host(Some(self.hosted(&member, dir, charter)));
        tracing::info!(member = %dir.secret.id(), committee = %charter.group, "the member runs");
        self.running = Some(member);
        Ok(())
    }

    /// Tells the member where the others are, and callers which cards are known, where that changed.
    async fn tell(&mut self, dir: &MemberDir, charter: &Charter) -> Result<(), HoldError> {
        let Some(member) = &self.running else { return Ok(()) };
        let links = dir.links(self.cards.all()).members;
        if links != self.linked {
            let told = timeout(TELL_LIMIT, member.handle().moved(links.clone())).await;
            told.unwrap_or(Err(committee::CommitteeError::Stopped))?;
            self.linked = links;
        }
        self.librarian.host(Some(self.hosted(member, dir, charter)));
        Ok(())
    }

    fn hosted(&self, member: &Member, dir: &MemberDir, charter: &Charter) -> Hosted {
        Hosted {
            member: Arc::new(member.handle().clone()),
            id: dir.secret.id(),
            charter: charter.encode(),
            cards: self.cards.encoded(),
        }
    }

    async fn end(&mut self) {
        self.librarian.host(None);
        (self.runs_as, self.start_after) = (None, None);
        // Whoever leaves this while it waits finds both where they were.
        if let Some(starting) = &mut self.starting {
            let started = timeout(STOP_LIMIT, starting).await;
            self.starting = None;
            if let Ok(Ok(Ok(member))) = started {
                self.running = Some(member);
            }
        }
        if let Some(member) = self.running.take() {
            let stop = async || blocking(move || Ok(member.stop()?)).await;
            self.stopping = Some(tokio::spawn(stop()));
        }
        let Some(stopping) = &mut self.stopping else { return };
        let stopped = timeout(STOP_LIMIT, stopping).await;
        self.stopping = None;
        match stopped {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => {
                tracing::warn!(error = %one_line(&error), "the member of the committee did not end well")
            }
            Ok(Err(error)) => {
                tracing::error!(error = %one_line(&error), "the member of the committee ended by a defect")
            }
            Err(_) => tracing::warn!("the member of the committee did not end in time"),
        }
    }
}

/// The calendar, Unix milliseconds.
fn now_ms() -> u64 {
    peerdir::now_s().saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calendar_that_is_set_is_told_once_and_one_that_drifts_never() {
        let began = Instant::now();
        let mut calendar = Calendar { began, ahead_ms: None };
        let mut look = |now_s: u64, passed_s: u64| {
            calendar.was_set(now_s * 1_000, began + Duration::from_secs(passed_s))
        };
        let day = 86_400;
        assert!(!look(10 * day, 0), "the first look");
        for second in 1..1_000 {
            assert!(!look(10 * day + second * 2, second), "it drifts");
        }
        let now = 10 * day + 2_000;
        assert!(!look(now + 300, 1_300), "a look that was late");
        assert!(look(now + day, 1_301) && !look(now + day + 1, 1_302));
        assert!(look(now, 1_303) && !look(now + 1, 1_304));
        assert!(look(0, 1_305), "before it began");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_no_look() {
        let stop = CancellationToken::new();
        assert_eq!(unless_stopped(&stop, async { 7 }).await, Some(7));
        let stopper = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stopper.cancel();
        });
        // A librarian that answers nobody, or a member that takes nothing.
        let look = tokio::time::sleep(Duration::from_secs(310));
        let stopped = timeout(Duration::from_secs(2), unless_stopped(&stop, look)).await;
        assert_eq!(stopped, Ok(None));
    }
}
