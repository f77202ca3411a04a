//! What authors do while things go wrong: put, share, read all and parts, look into their inboxes.
//!
//! Each author does one thing after the other; authors work side by side. An error is an answer as good as any while there is
//! trouble. What is checked here is what must hold even then: an answer within [`ANSWER_WITHIN`] (Q6), right bytes and no
//! others (Q1), and an acknowledgement only for what W holders acknowledged (Q2).

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ::bytes::Bytes;
use author::{AuthorError, NoProgress, PutOptions};
use crypto::{ReaderKey, RecordId};
use futures::StreamExt;
use placement::Profile;

use crate::chance::{Chance, noise};
use crate::check::answers::Begun;
use crate::check::bytes;
use crate::history::Content;
use crate::plan::TROUBLE;
use crate::search::{NEEDLE_BYTES, Needle};
use crate::world::{RunningAuthor, World};

/// Whatever is asked of an author is answered within this, or it hangs: some walks of a minute each.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(900);
/// Sizes of contents: at the bounds of what lies in an entry, and between.
const SIZES: [usize; 11] = [0, 1, 23, 1000, 4096, 16_383, 16_384, 16_385, 40_000, 100_000, 300_000];
/// Sizes at the bounds of a page and of several. Few contents are so large: their bytes are most of what a run costs.
const LARGE: [usize; 4] = [(2 << 20) - 1, (2 << 20) + 1, (2 << 20) + 1, 5 << 20];
/// Large contents of a thousand.
const LARGE_PERMILLE: u64 = 30;

/// Stripes that are asked for by name, k and n.
const STRIPES: [(u32, u32); 4] = [(1, 3), (2, 4), (2, 5), (3, 6)];
/// Puts of a thousand that ask for one of them.
const STRIPES_PERMILLE: u64 = 400;

/// The bytes of a content: incompressible, with the marker at its start, within and at its end.
pub fn content(seed: u64, len: usize, needle: &Needle) -> Vec<u8> {
    let mut bytes = noise(seed, len);
    let last = len.saturating_sub(NEEDLE_BYTES);
    for at in [0, len / 3, last] {
        if let Some(place) = bytes.get_mut(at..at + NEEDLE_BYTES) {
            place.copy_from_slice(needle.bytes());
        }
    }
    bytes
}

impl World {
    /// One author's work, until the trouble ends.
    pub async fn work(self: Arc<Self>, number: usize) {
        let mut chance = Chance::new(self.seed, &format!("author {number}"));
        while self.env.clock.elapsed() < TROUBLE {
            self.env.clock.sleep(Duration::from_millis(200 + chance.below(9000))).await;
            let running = self.author(number).await;
            match chance.below(10) {
                0..=3 => self.put(number, &running, &mut chance).await,
                4 => self.share(number, &running, &mut chance).await,
                5..=6 => self.get(number, &running, &mut chance, false).await,
                7 => self.get(number, &running, &mut chance, true).await,
                8 => drop(self.inbox(number, &running).await),
                _ => self.join(number, &running).await,
            }
        }
    }

    /// Runs one thing in an author's program. `None` where the program died.
    pub(crate) async fn within<T>(
        &self,
        number: usize,
        running: &RunningAuthor,
        what: &str,
        work: impl Future<Output = T> + Send,
    ) -> Option<T> {
        let work = running.process.gate(Box::pin(work));
        match self.env.within(ANSWER_WITHIN, work).await {
            Ok(answer) => answer,
            Err(_) => {
                self.history.find("Q6", format!("author {number} got no answer: {what}"));
                None
            }
        }
    }

    async fn put(&self, number: usize, running: &RunningAuthor, chance: &mut Chance) {
        let sizes = if chance.permille(LARGE_PERMILLE) { &LARGE[..] } else { &SIZES };
        let len = chance.one(sizes);
        let seed = chance.bits();
        let other = chance.index(self.plan.authors);
        let readers = if other != number && chance.permille(300) {
            vec![(other, self.reader_of(other, chance).await)]
        } else {
            Vec::new()
        };
        let needle = self.history.needle();
        let options = PutOptions {
            name: Some(format!("letters/{}.txt", needle.text())),
            media_type: Some(format!("text/{}", needle.text())),
            readers: readers.iter().map(|(_, key)| *key).collect(),
            profile: self.profile(chance),
            ..PutOptions::default()
        };
        // Copies of earlier records may still be on their way; those are not of this put.
        let walker = running.author.walker();
        let begun = Begun::new(&self.history, self.author_party(number), walker);
        let source = Bytes::from(content(seed, len, &needle));
        let putting = running.author.put(&source[..], options, Arc::new(NoProgress));
        let answer = self.within(number, running, "put", putting).await;
        match answer {
            Some(Ok(report)) => {
                self.history.tally(if report.full { "put in full" } else { "put partly" });
                let what = format!("author {number} put {len} full {}", report.full);
                self.history.event(what);
                let (promise, _) = begun.answered(&self.history, walker, &report);
                let shared = readers.iter().zip(&report.envelopes);
                let shared = shared.map(|((other, _), to)| (*other, to.address)).collect();
                let (address, full) = (report.address, report.full);
                let put = Content { author: number, bytes: source, address, full, shared, promise };
                self.history.lock().contents.push(put);
            }
            Some(Err(error)) => self.failed(number, "put", &error),
            None => {}
        }
    }

    /// How a put asks for its content to be kept: mostly as the network does, now and then in small stripes, for which a few
    /// peers are enough.
    fn profile(&self, chance: &mut Chance) -> Option<Profile> {
        let (k, n) = chance.one(&STRIPES);
        let is_asked = chance.permille(STRIPES_PERMILLE);
        (is_asked && n as usize <= self.plan.peers).then_some(Profile::Stripe { k, n })
    }

    async fn reader_of(&self, number: usize, chance: &mut Chance) -> ReaderKey {
        let keys = self.author(number).await.author.reader_keys().to_vec();
        keys[chance.index(keys.len())]
    }

    async fn share(&self, number: usize, running: &RunningAuthor, chance: &mut Chance) {
        let own = self.readable(number);
        if own.is_empty() {
            return;
        }
        let (at, address) = own[chance.index(own.len())];
        let other = chance.index(self.plan.authors);
        let reader = self.reader_of(other, chance).await;
        let sharing = running.author.share(address, reader);
        match self.within(number, running, "share", sharing).await {
            Some(Ok(envelope)) => {
                self.history.tally("shared");
                self.history.event(format!("author {number} shared with {other}"));
                self.history.lock().contents[at].shared.push((other, envelope));
            }
            Some(Err(error)) => self.failed(number, "share", &error),
            None => {}
        }
    }

    /// What an author can open: the content's number, and where the author finds it.
    pub(crate) fn readable(&self, number: usize) -> Vec<(usize, RecordId)> {
        let history = self.history.lock();
        let contents = history.contents.iter().enumerate();
        contents
            .flat_map(|(at, content)| {
                let own = (content.author == number).then_some((at, content.address));
                let shared = content.shared.iter().filter(|(reader, _)| *reader == number);
                own.into_iter().chain(shared.map(move |(_, address)| (at, *address)))
            })
            .collect()
    }

    async fn get(&self, number: usize, running: &RunningAuthor, chance: &mut Chance, part: bool) {
        let all = self.readable(number);
        if all.is_empty() {
            return;
        }
        let (at, address) = all[chance.index(all.len())];
        let len = self.history.lock().contents[at].bytes.len() as u64;
        let range = part.then(|| {
            let start = chance.below(len + 1);
            start..start + chance.below(len + 1 - start)
        });
        if let Some(Err(error)) = self.read(number, running, at, address, range).await {
            self.failed(number, "get", &error);
        }
    }

    /// Reads a content, or a part of it, and checks every byte that comes.
    pub(crate) async fn read(
        &self,
        number: usize,
        running: &RunningAuthor,
        at: usize,
        address: RecordId,
        range: Option<Range<u64>>,
    ) -> Option<Result<(), AuthorError>> {
        let whole = self.history.lock().contents[at].bytes.clone();
        let mut got = Vec::new();
        let getting = running.author.get(address, &mut got, range.clone(), Arc::new(NoProgress));
        let answer = self.within(number, running, "get", getting).await?;
        let range = range.unwrap_or(0..whole.len() as u64);
        let wanted = &whole[range.start as usize..range.end as usize];
        bytes::check(&self.history, &got, wanted, answer.is_ok());
        if answer.as_ref().is_ok_and(|report| report.degraded) {
            self.history.tally("read past a holder");
        }
        let said = answer.map(drop);
        if said.is_ok() {
            self.history.tally("read");
            self.history.event(format!("author {number} read {} bytes", got.len()));
        }
        Some(said)
    }

    /// The addresses in an author's inbox, as far as its librarians tell.
    pub(crate) async fn inbox(&self, number: usize, running: &RunningAuthor) -> Vec<RecordId> {
        let author = running.author.clone();
        let listing = async move {
            let mut inbox = author.inbox(false, &[]);
            let mut found = Vec::new();
            while let Some(event) = inbox.next().await {
                if let Ok(author::InboxEvent::Received(received)) = event {
                    found.push(received.address);
                }
            }
            found
        };
        let found = self.within(number, running, "inbox", listing).await.unwrap_or_default();
        self.history.event(format!("author {number} has {} in its inbox", found.len()));
        found
    }

    /// An error is an answer, unless it says that what peers proved is not what its author made (Q1).
    fn failed(&self, number: usize, what: &str, error: &AuthorError) {
        self.history.tally("failed");
        let text = bytes::text(error);
        self.history.event(format!("author {number} cannot {what}: {text}"));
        bytes::check_error(&self.history, what, error);
    }
}
