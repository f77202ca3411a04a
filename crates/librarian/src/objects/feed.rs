//! What is new here, in numbered events: the last [`EVENTS_MAX`] in memory, for those who watch.
//!
//! Nothing is remembered before the first watcher comes: nobody has a cursor of this run then, and a door that writes hundreds of
//! thousands of versions a second pays nothing. Numbers begin with each run of the peer, which has a random number of its own.
//!
//! A version is told when an attestation of it is here. Those of callers come with theirs; a door signs up to a second
//! later, and until then [`WAITING_MAX`] wait. One that is never attested is never told.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::{PublicKey, RecordId};
use objects::Event;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use version::ObjectKey;

use super::ObjectShelf;

/// Events in memory.
const EVENTS_MAX: usize = 65_536;
/// Versions that are not attested yet.
const WAITING_MAX: usize = 65_536;

/// Something that is new here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    Version(ObjectKey, RecordId),
    Head(ObjectKey, Arc<str>, RecordId),
    Devices(PublicKey, RecordId),
}

/// The events of one run.
pub(super) struct Feed {
    /// Drawn with the first watcher.
    run: AtomicU64,
    begun: AtomicBool,
    /// Commits that are not in the ring yet. They are taken when somebody looks, so that whoever was answered finds its own.
    commits: Mutex<Option<broadcast::Receiver<Arc<Vec<Event>>>>>,
    ring: Mutex<Ring>,
    grown: watch::Sender<u64>,
}

#[derive(Default)]
struct Ring {
    /// The number of the first event in memory.
    first: u64,
    events: VecDeque<News>,
    waiting: HashMap<RecordId, ObjectKey>,
}

/// What a watcher finds at its place.
pub(super) enum Page {
    /// These events.
    Events(Vec<News>),
    /// They are not in memory any more, or never were.
    Gone,
}

impl Ring {
    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn push(&mut self, news: News) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.first += 1;
        }
        self.events.push_back(news);
    }
}

impl Feed {
    pub(super) fn new() -> Self {
        Self {
            run: AtomicU64::new(0),
            begun: AtomicBool::new(false),
            commits: Mutex::new(None),
            ring: Mutex::default(),
            grown: watch::Sender::new(0),
        }
    }

    /// Nothing that can panic half-way through a change runs under the lock.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of this run.
    pub(super) fn run(&self) -> u64 {
        self.run.load(Ordering::SeqCst)
    }

    /// Is told when there is something behind what it saw.
    pub(super) fn grown(&self) -> watch::Receiver<u64> {
        self.grown.subscribe()
    }

    /// The number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.ring().next()
    }

    /// Up to `most` events from a number on.
    pub(super) fn page(&self, from: u64, most: usize) -> Page {
        let ring = self.ring();
        if from < ring.first || from > ring.next() {
            return Page::Gone;
        }
        let events = ring.events.iter().skip((from - ring.first) as usize);
        Page::Events(events.take(most).cloned().collect())
    }

    fn tell(&self, news: impl FnOnce(&mut Ring)) {
        if !self.begun.load(Ordering::SeqCst) {
            return;
        }
        let mut ring = self.ring();
        news(&mut ring);
        let next = ring.next();
        drop(ring);
        self.grown.send_if_modified(|seen| std::mem::replace(seen, next) != next);
    }

    /// A head or a list of devices is durable.
    pub(super) fn word(&self, news: News) {
        self.tell(|ring| ring.push(news));
    }

    /// Versions have an attestation here now.
    pub(super) fn attested(&self, hs: impl Iterator<Item = RecordId>) {
        self.tell(|ring| {
            if ring.waiting.is_empty() {
                return;
            }
            for h in hs {
                if let Some(object) = ring.waiting.remove(&h) {
                    ring.push(News::Version(object, h));
                }
            }
        });
    }

    /// Versions are in the store.
    fn versions(&self, of: &[Event], is_attested: impl Fn(&RecordId) -> bool) {
        self.tell(|ring| {
            for (object, id) in of {
                if is_attested(&id.h) {
                    ring.push(News::Version(*object, id.h));
                } else if ring.waiting.len() < WAITING_MAX {
                    ring.waiting.insert(id.h, *object);
                }
            }
        });
    }

    /// Events were lost: nobody's cursor is good any more.
    fn lost(&self) {
        self.tell(|ring| {
            ring.first = ring.next() + 1;
            ring.events.clear();
            ring.waiting.clear();
        });
    }
}

impl ObjectShelf {
    /// The feed, with all that was committed by now.
    pub(super) fn news(&self) -> &Feed {
        let mut commits = self.feed.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(commits) = commits.as_mut() else { return &self.feed };
        loop {
            match commits.try_recv() {
                Ok(events) => self.feed.versions(&events, |h| self.attestations.may_name(h)),
                Err(TryRecvError::Lagged(commits)) => {
                    tracing::warn!(commits, "watchers are told of a gap");
                    self.feed.lost();
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => return &self.feed,
            }
        }
    }

    /// Sees to it that events are remembered from now on, and watchers woken.
    pub(super) fn begin_feed(self: &Arc<Self>, stop: &CancellationToken) {
        let mut held = self.feed.commits.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return;
        }
        let run = u64::from_be_bytes(self.env.random());
        self.feed.run.store(run, Ordering::SeqCst);
        let mut commits = self.objects.watch();
        *held = Some(commits.resubscribe());
        drop(held);
        self.feed.begun.store(true, Ordering::SeqCst);
        let (shelf, stop) = (Arc::clone(self), stop.clone());
        let wake = async move {
            loop {
                let committed = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    committed = commits.recv() => committed,
                };
                if matches!(committed, Err(RecvError::Closed)) {
                    return;
                }
                shelf.news();
            }
        };
        self.env.tasks.spawn(Box::pin(wake)).detach();
    }
}

#[cfg(test)]
mod tests {
    use version::{Hint, VersionId};

    use super::*;

    const OBJECT: ObjectKey = ObjectKey::new([1; 32]);

    fn id(number: u64) -> VersionId {
        let mut h = [0; 32];
        h[..8].copy_from_slice(&number.to_be_bytes());
        VersionId { h: RecordId::new(h), l: number, n: Hint::FIRST }
    }

    fn events(feed: &Feed, from: u64) -> Option<Vec<News>> {
        match feed.page(from, 10) {
            Page::Events(events) => Some(events),
            Page::Gone => None,
        }
    }

    #[test]
    fn it_remembers_from_the_first_watcher_on_and_so_many() {
        let feed = Feed::new();
        let told = |number| News::Version(OBJECT, id(number).h);
        feed.versions(&[(OBJECT, id(0))], |_| true);
        assert_eq!(feed.next(), 0, "nobody watches");
        feed.begun.store(true, Ordering::SeqCst);
        for number in 0..EVENTS_MAX as u64 {
            feed.versions(&[(OBJECT, id(number))], |_| true);
        }
        assert_eq!(events(&feed, 0).map(|events| events.len()), Some(10));
        feed.versions(&[(OBJECT, id(9))], |_| true);
        assert_eq!(events(&feed, 0), None, "the oldest is gone");
        assert_eq!(events(&feed, feed.next() - 1), Some(vec![told(9)]));
        assert_eq!(events(&feed, feed.next()), Some(vec![]));
        assert_eq!(events(&feed, feed.next() + 1), None, "of another run");
        let cursor = feed.next();
        feed.lost();
        assert_eq!(events(&feed, cursor), None, "events were lost");
        assert_eq!(events(&feed, feed.next()), Some(vec![]));
    }

    #[test]
    fn what_is_not_attested_waits() {
        let feed = Feed::new();
        feed.begun.store(true, Ordering::SeqCst);
        feed.versions(&[(OBJECT, id(1)), (OBJECT, id(2))], |h| *h == id(2).h);
        assert_eq!(events(&feed, 0), Some(vec![News::Version(OBJECT, id(2).h)]));
        feed.attested([id(1).h, id(3).h].into_iter());
        assert_eq!(events(&feed, 1), Some(vec![News::Version(OBJECT, id(1).h)]));
        feed.attested([id(1).h].into_iter());
        assert_eq!(feed.next(), 2, "once");
    }
}
