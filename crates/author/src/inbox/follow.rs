//! Following one librarian's log, and the next one where it fails.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crypto::{PeerId, ReaderKey};
use document::Publication;
use document::bloom::Bloom;
use env::Env;
use env::calls::{CallError, Cursor, Endpoint, Events, SubscribeEvent, SubscribeRequest};
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use walk::{Health, WalkError, Walker};

use crate::author::Author;

/// How long a librarian may take for the first answer.
pub(crate) const FIRST_ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How much longer a call may take to say that it missed its deadline.
pub(crate) const LIMIT_GRACE: Duration = Duration::from_millis(500);
/// How long a librarian may be silent: it sends a heartbeat more often.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(75);
/// How long a log may take from its start to its end, where not two others say what is usual.
pub(crate) const LOG_LIMIT: Duration = Duration::from_secs(600);
/// How long further logs are waited for when two were read to their ends: so much longer than that took, and no shorter than
/// this, which is longer than a silent one is waited for. A librarian that never says that its log has ended costs this long.
/// One alone says nothing: it may be young, or lie by leaving out.
const REST_FACTOR: u32 = 2;
const REST_MIN: Duration = Duration::from_secs(90);
/// Waits between tries, doubling from the first to the last.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(10);
/// Librarians tried by one follower of a listing that does not go on.
const TRIES_MAX: usize = 4;

/// What a follower tells.
pub(super) enum Told {
    /// A publication for one of this user's reader keys, as the librarian says.
    Publication { publication: Publication, received_ms: u64, cursor: Cursor },
    /// It is further in the log, with nothing for this user.
    Cursor(Cursor),
    /// The log does not go back to the cursor.
    Gap { peer: PeerId, from: Cursor },
    /// All that was logged at the start was told.
    CaughtUp(Cursor),
    /// No librarian could be followed to its end.
    GaveUp(CallError),
}

/// What the followers of one inbox share.
pub(super) struct Shared {
    env: Env,
    walker: Arc<Walker>,
    readers: BTreeSet<ReaderKey>,
    filter: Bytes,
    follow: bool,
    librarians: Mutex<Librarians>,
}

/// Whose logs are read, so that each follower has another.
#[derive(Default)]
struct Librarians {
    in_use: BTreeSet<PeerId>,
    /// Those that told all they had: they are asked again only where the others failed.
    ended: BTreeSet<PeerId>,
}

impl Shared {
    pub(super) fn new(author: &Author, follow: bool) -> Self {
        let env = author.env().clone();
        let readers: BTreeSet<ReaderKey> = author.reader_keys().iter().copied().collect();
        let mut filter = Bloom::with_capacity(readers.len(), u64::from_be_bytes(env.random()));
        for reader in &readers {
            filter.insert(reader.as_bytes());
        }
        Self {
            env,
            walker: Arc::clone(author.walker()),
            readers,
            filter: filter.encode(),
            follow,
            librarians: Mutex::default(),
        }
    }

    /// A librarian for a follower, and where to call it. Where librarians walk for this user, the one that does.
    async fn choose(
        &self,
        last: Option<PeerId>,
        failed: &BTreeSet<PeerId>,
    ) -> Result<(PeerId, Endpoint), CallError> {
        if self.walker.is_thin() {
            let to = self.walker.librarian().await.map_err(|error| nobody(&error))?;
            return to.peer.map(|peer| (peer, to)).ok_or(CallError::NotFound);
        }
        let peer = self.choose_of_all(last, failed).ok_or(CallError::NotFound)?;
        match self.walker.directory().endpoint(&peer) {
            Some(to) => Ok((peer, to)),
            None => {
                self.release(&peer);
                Err(ended(&peer))
            }
        }
    }

    /// The one it was at where that is well, else a random one of those that are best off and that no other follower
    /// has.
    fn choose_of_all(&self, last: Option<PeerId>, failed: &BTreeSet<PeerId>) -> Option<PeerId> {
        let peers = self.walker.directory().peers();
        let mut librarians = self.librarians.lock().unwrap_or_else(PoisonError::into_inner);
        let Librarians { in_use, ended } = &mut *librarians;
        let free = |peer: &PeerId| !in_use.contains(peer);
        let worth = |peer: PeerId, health: Health| {
            let draw = u64::from_be_bytes(self.env.random());
            let (away, other) = (health == Health::Away, last != Some(peer));
            (failed.contains(&peer), away, ended.contains(&peer), rank(health), other, draw)
        };
        let candidates = peers.iter().filter(|status| free(&status.peer));
        let chosen = candidates.min_by_key(|status| worth(status.peer, status.health))?.peer;
        in_use.insert(chosen);
        Some(chosen)
    }

    /// A call to a librarian failed or broke.
    fn failed(&self, peer: &PeerId, error: &CallError) {
        self.walker.directory().failed(peer, error);
        self.walker.librarian_failed(peer, error);
    }

    fn release(&self, peer: &PeerId) {
        self.librarians.lock().unwrap_or_else(PoisonError::into_inner).in_use.remove(peer);
    }

    /// Its log was read to the end.
    fn told_all(&self, peer: PeerId) {
        self.librarians.lock().unwrap_or_else(PoisonError::into_inner).ended.insert(peer);
    }
}

fn rank(health: Health) -> u8 {
    match health {
        Health::Healthy => 0,
        Health::Suspect => 1,
        Health::Away => 2,
    }
}

/// Follows one librarian at a time.
pub(super) struct Follower {
    number: usize,
    cursor: Cursor,
    shared: Arc<Shared>,
    tell: mpsc::Sender<(usize, Told)>,
    /// Whether this librarian said since it was called that something is missing. Once is enough: one that says nothing else would
    /// fill the reader's screen, and each time that the reader takes to hear it is time that it is waited for.
    gap_told: bool,
}

/// Why following one librarian ended.
enum Ended {
    /// Nobody listens any more.
    Unheard,
    /// It told all it had, and no more was asked for.
    CaughtUp,
    /// The call failed or broke.
    Failed(CallError),
}

impl Follower {
    pub(super) fn new(
        number: usize,
        cursor: Cursor,
        shared: Arc<Shared>,
        tell: mpsc::Sender<(usize, Told)>,
    ) -> Self {
        Self { number, cursor, shared, tell, gap_told: false }
    }

    pub(super) async fn run(mut self) {
        let (mut failed, mut wait, mut tries) = (BTreeSet::new(), RETRY_FIRST, 0);
        let mut warned = false;
        let mut last_error = CallError::NotFound;
        loop {
            match self.shared.choose(self.cursor.peer, &failed).await {
                Ok((peer, to)) => {
                    let before = self.cursor;
                    let ended = self.follow(peer, &to).await;
                    if matches!(ended, Ended::CaughtUp) {
                        self.shared.told_all(peer);
                    }
                    self.shared.release(&peer);
                    match ended {
                        Ended::Unheard | Ended::CaughtUp => return,
                        Ended::Failed(error) => {
                            tracing::debug!(%peer, %error, "a librarian's log ended");
                            // Nothing will come until a pass counts again, and nobody else says so.
                            if matches!(error, CallError::Denied { .. }) && self.shared.follow {
                                let known = std::mem::replace(&mut warned, true);
                                if !known {
                                    tracing::warn!(%peer, %error, "a librarian lets its log not be read");
                                }
                            }
                            self.shared.failed(&peer, &error);
                            last_error = error;
                        }
                    }
                    if self.cursor != before {
                        // It worked for a while: the others may have come back meanwhile.
                        (wait, tries) = (RETRY_FIRST, 0);
                        failed.clear();
                    }
                    failed.insert(peer);
                }
                // Nobody is left to choose: what the last one said tells more.
                Err(CallError::NotFound) => {}
                Err(error) => last_error = error,
            }
            tries += 1;
            if !self.shared.follow && tries >= TRIES_MAX {
                self.tell(Told::GaveUp(last_error)).await;
                return;
            }
            self.shared.env.clock.sleep(wait).await;
            wait = (wait * 2).min(RETRY_LAST);
        }
    }

    /// Follows this librarian until that ends.
    async fn follow(&mut self, peer: PeerId, to: &Endpoint) -> Ended {
        self.gap_told = false;
        let mut events = match self.subscribe(peer, to).await {
            Ok(events) => events,
            Err(error) => return Ended::Failed(error),
        };
        loop {
            let next = self.shared.env.within(SILENCE_MAX, events.next()).await;
            let event = match next {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(error))) => return Ended::Failed(error),
                Ok(None) => return Ended::Failed(ended(&peer)),
                Err(elapsed) => return Ended::Failed(silent(&peer, elapsed.0)),
            };
            let caught_up = matches!(event, SubscribeEvent::CaughtUp { .. });
            if let Some(told) = self.take(peer, event)
                && !self.tell(told).await
            {
                return Ended::Unheard;
            }
            if caught_up && !self.shared.follow {
                return Ended::CaughtUp;
            }
        }
    }

    /// A cursor that a librarian gave is into its own log, whatever it says; and at no time that has not come, where another would go
    /// on behind all that it has.
    fn own(&self, peer: PeerId, cursor: Cursor) -> Cursor {
        let unix_ms = cursor.unix_ms.min(self.shared.env.clock.unix_ms());
        Cursor { peer: Some(peer), unix_ms, ..cursor }
    }

    async fn subscribe(&self, peer: PeerId, to: &Endpoint) -> Result<Events, CallError> {
        let request = SubscribeRequest {
            readers: Some(self.shared.filter.clone()),
            from: self.cursor,
            follow: self.shared.follow,
            ..SubscribeRequest::default()
        };
        let call = self.shared.walker.calls().subscribe(to, request, FIRST_ANSWER_LIMIT);
        match self.shared.env.within(FIRST_ANSWER_LIMIT + LIMIT_GRACE, call).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(silent(&peer, elapsed.0)),
        }
    }

    /// What an event means for the reader. What does not decode or is not for this user moves the cursor alone.
    fn take(&mut self, peer: PeerId, event: SubscribeEvent) -> Option<Told> {
        match event {
            SubscribeEvent::Publication { publication, received_ms, cursor } => {
                self.cursor = self.own(peer, cursor);
                // A librarian whose calendar was ahead once says so of all that it logged since.
                let received_ms = received_ms.min(self.shared.env.clock.unix_ms());
                let publication = Publication::decode(&publication).ok();
                let ours = publication.filter(|one| self.shared.readers.contains(&one.reader));
                Some(match ours {
                    Some(publication) => {
                        Told::Publication { publication, received_ms, cursor: self.cursor }
                    }
                    None => Told::Cursor(self.cursor),
                })
            }
            SubscribeEvent::Gap { cursor } => {
                let told = std::mem::replace(&mut self.gap_told, true);
                (!told).then(|| Told::Gap { peer, from: self.own(peer, cursor) })
            }
            SubscribeEvent::CaughtUp { cursor } => {
                self.cursor = self.own(peer, cursor);
                Some(Told::CaughtUp(self.cursor))
            }
        }
    }

    /// Tells the merger; whether it listens.
    async fn tell(&mut self, told: Told) -> bool {
        self.tell.send((self.number, told)).await.is_ok()
    }
}

/// How much longer to wait for further logs where two took so long.
pub(crate) fn rest_limit(two: Duration) -> Duration {
    two.saturating_mul(REST_FACTOR).max(REST_MIN)
}

pub(crate) fn ended(peer: &PeerId) -> CallError {
    CallError::Unreachable { address: peer.to_string(), reason: "its log ended".to_owned() }
}

/// No librarian could be asked at all: what the first one said.
fn nobody(error: &WalkError) -> CallError {
    let first = match error {
        WalkError::NoPeers { tried } => tried.first().map(|(_, error)| error.clone()),
        _ => None,
    };
    first.unwrap_or(CallError::NotFound)
}

pub(crate) fn silent(peer: &PeerId, limit: Duration) -> CallError {
    CallError::TimedOut { address: peer.to_string(), limit }
}
