//! What others shared with this user, as librarians hear of it.
//!
//! Up to [`LIBRARIANS_MAX`] librarians are followed at once, so that one which lags, lies by leaving things out, or dies, hides
//! nothing (a thin client follows one, and takes that). They get a Bloom filter over the 64 reader keys under a random seed and not the keys; it also lets
//! fewer than one in a thousand strangers' publications through, and the exact check is made here.
//!
//! ```text
//! librarian --+
//! librarian --+-> one queue -> ours? told already? -> fetch the envelope, prove it -> told
//! librarian --+
//! ```
//! A publication is a librarian's word. So the envelope it names is fetched from its holders, and what is told is what the
//! envelope says; a publication without an envelope is dropped. Only where the holders cannot be asked it is told as it
//! came, and marked.
//!
//! A librarian that fails is replaced by another, which is asked from the same moment on (it replays two minutes); what
//! comes twice is told once, as far as the last [`TOLD_MAX`] go. A log that no longer goes back to the cursor is told as
//! a gap. One that does not end is not waited for: where two others have, not beyond three times what they took and a minute and
//! a half, else not beyond ten minutes. What it has left to tell comes with the next listing, from its cursor.

pub(crate) mod follow;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crypto::{PeerId, Place, RecordId};
use document::{Document, Kind, Publication};
use env::calls::{CallError, Cursor};
use futures::channel::mpsc;
use futures::{SinkExt, Stream, StreamExt};
use walk::{Sought, WalkError};

use crate::author::Author;
use crate::error::AuthorError;
use crate::job::Job;
use crate::types::{LIBRARIANS_MAX, Received};
use follow::{Follower, LOG_LIMIT, Shared, Told, rest_limit};
pub use told::TOLD_MAX;
use told::TellOnce;

/// Events that wait for whoever reads the inbox; then the librarians wait.
const WAITING_MAX: usize = 256;
/// Envelopes fetched at once.
const FETCHED_MAX: usize = 64;

/// What an inbox tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxEvent {
    /// An envelope to one of this user's reader keys.
    Received(Received),
    /// A librarian's log does not go back to where it was asked from: what it logged before may be missing here.
    Gap {
        /// Which librarian.
        peer: PeerId,
        /// Where its log starts.
        from: Cursor,
    },
    /// Every librarian that is waited for has told what it had logged when it was asked. New envelopes follow where the inbox
    /// follows.
    CaughtUp,
}

/// A running inbox: a stream of events that ends when it is caught up, or never where it follows. Dropping it ends it.
pub struct Inbox {
    events: mpsc::Receiver<Result<(InboxEvent, Vec<Cursor>), AuthorError>>,
    cursors: Vec<Cursor>,
    _merging: Job<()>,
}

impl Inbox {
    /// Where to resume after the last event taken: one cursor a librarian. Hand them to the next [`Author::inbox`].
    pub fn cursors(&self) -> &[Cursor] {
        &self.cursors
    }
}

impl Stream for Inbox {
    type Item = Result<InboxEvent, AuthorError>;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_next_unpin(context).map(|next| {
            next.map(|event| {
                event.map(|(event, cursors)| {
                    self.cursors = cursors;
                    event
                })
            })
        })
    }
}

impl Author {
    /// Listens for envelopes addressed to this user's reader keys, from these cursors on (or from the start of the logs).
    ///
    /// With `follow` it goes on until it is dropped, over librarians that fail; without, it ends after
    /// [`InboxEvent::CaughtUp`].
    ///
    /// # Errors
    /// The stream ends with [`AuthorError::NoPeers`] where no librarian is known and [`AuthorError::Follow`] where
    /// none lets itself be followed; with `follow` the latter is tried again for ever.
    pub fn inbox(self: &Arc<Self>, follow: bool, from: &[Cursor]) -> Inbox {
        let (send, events) = mpsc::channel(WAITING_MAX);
        let cursors = from.to_vec();
        let merging = Merging {
            author: Arc::clone(self),
            told: TellOnce::new(TOLD_MAX),
            cursors: from.iter().copied().enumerate().collect(),
            send,
            held: Duration::ZERO,
        };
        let work = merging.run(follow, from.to_vec());
        Inbox { events, cursors, _merging: Job::task(self.env(), work) }
    }
}

/// Merges what the followers tell.
struct Merging {
    author: Arc<Author>,
    told: TellOnce,
    /// Where each follower is.
    cursors: BTreeMap<usize, Cursor>,
    send: mpsc::Sender<Result<(InboxEvent, Vec<Cursor>), AuthorError>>,
    /// How long the reader kept it waiting, which is no librarian's time.
    held: Duration,
}

impl Merging {
    async fn run(mut self, follow: bool, from: Vec<Cursor>) {
        let walker = self.author.walker();
        let followers = match walker.is_thin() {
            true => 1,
            false => walker.directory().peers().len().min(LIBRARIANS_MAX),
        };
        if followers == 0 {
            let _ = self.send.send(Err(AuthorError::NoPeers)).await;
            return;
        }
        let (tell, told) = mpsc::channel(WAITING_MAX);
        let shared = Arc::new(Shared::new(&self.author, follow));
        let others = others_from(&from);
        let mut from = from.into_iter();
        let jobs: Vec<Job<()>> = (0..followers)
            .map(|number| {
                let cursor = from.next().unwrap_or(others);
                // Whoever goes on from here must know of those that have told nothing yet.
                self.cursors.insert(number, cursor);
                let follower = Follower::new(number, cursor, Arc::clone(&shared), tell.clone());
                Job::task(self.author.env(), follower.run())
            })
            .collect();
        drop(tell);
        // The reader left where telling fails; then all of it ends with this function.
        let _ = self.merge(told, followers, follow).await;
        drop(jobs);
    }

    /// Takes what followers tell until all have ended, or the reader has.
    async fn merge(
        &mut self,
        told: mpsc::Receiver<(usize, Told)>,
        followers: usize,
        follow: bool,
    ) -> Result<(), mpsc::SendError> {
        let mut told = told.ready_chunks(FETCHED_MAX);
        let mut waited_for = vec![true; followers];
        // Whose logs were read to their ends: one librarian may be read twice, where others fail.
        let mut ended = BTreeSet::new();
        let mut failed = None;
        let env = self.author.env().clone();
        let started = env.clock.elapsed();
        // Until when those that have not told all are waited for; one that follows waits for the first as long as it takes.
        let mut until = (!follow).then_some(started + LOG_LIMIT);
        loop {
            let left = until.map(|until| (until + self.held).saturating_sub(env.clock.elapsed()));
            let next = match left.filter(|_| waited_for.contains(&true)) {
                None => Ok(told.next().await),
                // Whether or not something is ready: a log without end has always something.
                Some(Duration::ZERO) => Err(()),
                Some(left) => env.within(left, told.next()).await.map_err(drop),
            };
            let Ok(next) = next else {
                tracing::warn!("a librarian's log has no end in sight: it is not waited for");
                if ended.is_empty() {
                    let address = "the librarians that are followed".to_owned();
                    failed = Some(CallError::TimedOut { address, limit: LOG_LIMIT });
                    break;
                }
                waited_for.fill(false);
                self.tell(InboxEvent::CaughtUp).await?;
                if follow {
                    continue;
                }
                break;
            };
            let Some(chunk) = next else { break };
            let mut proven = self.prove(&chunk).await;
            for (number, event) in chunk {
                match event {
                    Told::Publication { publication, cursor, .. } => {
                        self.cursors.insert(number, cursor);
                        if let Some(received) = proven.remove(&publication.envelope)
                            && self.told.is_new(received.address)
                        {
                            self.tell(InboxEvent::Received(received)).await?;
                        }
                    }
                    Told::Cursor(cursor) => {
                        self.cursors.insert(number, cursor);
                    }
                    Told::Gap { peer, from } => {
                        self.tell(InboxEvent::Gap { peer, from }).await?;
                    }
                    Told::CaughtUp(cursor) => {
                        self.cursors.insert(number, cursor);
                        let took = env.clock.elapsed().saturating_sub(started + self.held);
                        let another = ended.insert(cursor.peer);
                        match ended.len() {
                            // One alone may be short, or lie by leaving out.
                            1 if until.is_none() => until = Some(started + took + LOG_LIMIT),
                            2 if another => until = Some(started + took + rest_limit(took)),
                            _ => {}
                        }
                        if std::mem::take(&mut waited_for[number]) && !waited_for.contains(&true) {
                            self.tell(InboxEvent::CaughtUp).await?;
                        }
                    }
                    Told::GaveUp(error) => {
                        failed = Some(error);
                        if std::mem::take(&mut waited_for[number])
                            && !waited_for.contains(&true)
                            && !ended.is_empty()
                        {
                            self.tell(InboxEvent::CaughtUp).await?;
                        }
                    }
                }
            }
        }
        match failed {
            Some(error) if ended.is_empty() && !follow => {
                self.send.send(Err(AuthorError::Follow(error))).await
            }
            _ => Ok(()),
        }
    }

    async fn tell(&mut self, event: InboxEvent) -> Result<(), mpsc::SendError> {
        let cursors = self.cursors.values().copied().collect();
        let clock = self.author.env().clock.clone();
        let since = clock.elapsed();
        let told = self.send.send(Ok((event, cursors))).await;
        self.held += clock.elapsed().saturating_sub(since);
        told
    }

    /// Fetches the envelopes of publications that were not told yet; what is to be told of each, by envelope.
    async fn prove(&self, chunk: &[(usize, Told)]) -> BTreeMap<RecordId, Received> {
        let mut claimed = BTreeMap::new();
        for (_, event) in chunk {
            if let Told::Publication { publication, received_ms, .. } = event
                && !self.told.knows(&publication.envelope)
            {
                claimed.entry(publication.envelope).or_insert((publication.clone(), *received_ms));
            }
        }
        let sought = claimed.keys().map(|id| Sought {
            kind: Some(Kind::Envelope),
            id: *id,
            place: Place::from(*id),
        });
        let found = match claimed.len() {
            0 => Vec::new(),
            _ => self.author.walker().find_batch(sought.collect()).await,
        };
        let outcomes = claimed.into_values().zip(found);
        let outcomes = outcomes.filter_map(|((claim, received_ms), found)| {
            let (publication, proven) = match found {
                Ok(found) => (self.published(&found.record)?, true),
                Err(error) if is_absent(&error) => {
                    tracing::warn!(envelope = %claim.envelope, %error, "news without an envelope");
                    return None;
                }
                Err(_) => (claim, false),
            };
            Some((publication.envelope, Received::new(&publication, received_ms, proven)))
        });
        outcomes.collect()
    }

    /// What an envelope says, where it is to this user.
    fn published(&self, record: &document::Record) -> Option<Publication> {
        let Ok(Document::Envelope(envelope)) = Document::decode(&record.bytes) else { return None };
        let publication = Publication::from_envelope(record.id, &envelope);
        self.author.reader_keys().contains(&publication.reader).then_some(publication)
    }
}

/// Where librarians are followed from that have no cursor, as when fewer were known before: what was logged before all of
/// the others' cursors was told by those. Where one of these was not read yet, from the start; one whose log was empty has no
/// time, and says nothing of what there is elsewhere.
fn others_from(from: &[Cursor]) -> Cursor {
    if from.contains(&Cursor::default()) {
        return Cursor::default();
    }
    let times = from.iter().map(|cursor| cursor.unix_ms).filter(|unix_ms| *unix_ms > 0);
    Cursor { unix_ms: times.min().unwrap_or_default(), ..Cursor::default() }
}

/// Whether the holders were asked and do not have it. One that answers with other bytes says nothing of that.
fn is_absent(error: &WalkError) -> bool {
    matches!(error, WalkError::NotFound { .. })
}
