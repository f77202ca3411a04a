//! A put: a stream becomes pages, an entry and envelopes, in stages that all run at once.
//!
//! ```text
//!  source --> read --+--> [seal on CPU threads, several at once] --> whole MACs, in order --> note --> code --> send --> holders
//!                    |                                                                                            |
//!             lease of the window  <---------- given back as copies and fragments are stored, or given up --------+
//! ```
//! A content is kept as its [`Profile`] says: in copies of its pages, or in stripes, whose pages are *coded* (see `code`).
//!
//! What it is not: a copy of the file in memory, or one stage after the other. The stages are futures of one task joined by
//! short channels; what is heavy runs on CPU threads and in tasks of its own ([`Job`]), so dropping the put stops it all.
//!
//! A put of a file *notes* each page in its journal before it is sent (see `journal`); others pass it on.
//!
//! Order: all pages acknowledged, then the entry, then the envelopes, so nothing that can be found is incomplete. The
//! author's counter is issued, durably, before anything is sealed under it.
//!
//! Invariants: a chunk is read only into a lease; no stage waits for a second lease while it holds one (so the window
//! cannot lock up, however many puts share it).

mod code;
mod cut;
mod keeping;
mod note;
pub(crate) mod source;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crypto::lease::Leaf;
use crypto::{EEK_BYTES, Eek, ReaderKey};
use document::{
    ContentInfo, ContentMacs, EntrySealer, Finished, Kind, Record, SealedContent, SealedPage,
    WholeMacs,
};
use futures::channel::mpsc;
use futures::{FutureExt, SinkExt, StreamExt};
use placement::{Profile, Redundancy};
use tokio::io::AsyncRead;
use zeroize::Zeroizing;

use crate::author::{Author, Issued};
use crate::error::{AuthorError, Part};
use crate::journal::{Header, Journal, Noted};
use crate::paying::{for_place, record_leaf};
use crate::progress::Progress;
use crate::spread::{Outgoing, Spread};
use crate::types::{PutOptions, PutReport, READERS_MAX, SharedTo};
use crate::window::Lease;
use code::{Coded, Shape};
pub(crate) use cut::Chunk;
use cut::Taken;
pub use keeping::PEERS_WAIT;
use source::{Fill, Stream};

/// How long a put waits, after all is acknowledged, for all copies, where its options do not say.
pub const FULL_WAIT: Duration = Duration::from_secs(10);
/// Sealed pages that wait for the MACs, or for being sent, beyond those being sealed.
const QUEUED_MAX: usize = 2;

/// What every stage of one put goes by.
struct Way<'a> {
    journal: Option<&'a Arc<Journal>>,
    progress: &'a Arc<dyn Progress>,
    profile: Profile,
    /// The stripes; `None` where pages are copied.
    shape: Option<Shape>,
    /// The copies of a page, where there are no stripes.
    pages: Redundancy,
}

/// What a put is made with beside its source and its options.
pub(crate) struct Start {
    issued: Vec<Issued>,
    pub(crate) eek: Eek,
    /// Unix seconds.
    pub(crate) created: u32,
}

impl Start {
    /// The first of its counters.
    pub(crate) fn counter(&self) -> u64 {
        self.issued.first().map_or(0, |issued| issued.counter)
    }
}

/// What the stages made of a stream.
struct Sealed {
    macs: ContentMacs,
    content: SealedContent,
    /// The row of the only page, which is to be noted before the entry is sent.
    unnoted: Option<Noted>,
}

/// The MAC of all ciphertext; and the only page, where it has one, which may go into the entry.
struct Summed {
    macs: ContentMacs,
    single: Option<(Box<SealedPage>, Option<Noted>)>,
}

/// A page on its way through the stages, and what the journal is to say of it.
struct Passing {
    index: u32,
    record: Record,
    noted: Option<Noted>,
    lease: Arc<Lease>,
}

impl Author {
    /// Stores what `source` gives until its end, for this user and the readers named.
    ///
    /// It answers when every record is acknowledged and, within [`PutOptions::full_wait`] and until what
    /// [`Progress::acknowledged`] answers has ended, all copies are stored; see [`PutReport::full`]. Nothing is kept on this
    /// machine but the issued counters, and until when it is paid.
    ///
    /// Cancel safe in that dropping it stops everything; pages already stored stay, unknown to anybody.
    ///
    /// # Errors
    /// [`AuthorError::Empty`] (`libri-1`), [`AuthorError::TooManyReaders`], [`AuthorError::Unsealable`] for metadata that is
    /// too long, [`AuthorError::TooFewPeers`], [`AuthorError::LibriCopies`] and [`AuthorError::ThinCopies`] for a profile that
    /// cannot be kept (each before a byte is read; the first after [`PEERS_WAIT`]), [`AuthorError::Read`], [`AuthorError::Store`] where too few holders took a
    /// record.
    pub async fn put(
        &self,
        source: impl AsyncRead + Send + Unpin,
        options: PutOptions,
        progress: Arc<dyn Progress>,
    ) -> Result<PutReport, AuthorError> {
        let options = self.resolved(options, None).await?;
        let start = self.start(&options).await?;
        self.put_from(Stream(source), &options, start, None, &progress).await
    }

    /// What a new put is made with: fresh keys.
    pub(crate) async fn start(&self, options: &PutOptions) -> Result<Start, AuthorError> {
        if options.readers.len() > READERS_MAX {
            return Err(AuthorError::TooManyReaders(options.readers.len()));
        }
        let issued = self.issue(1 + options.readers.len()).await?;
        let eek = Eek::from_bytes(&Zeroizing::new(self.env().random::<EEK_BYTES>()));
        let created = u32::try_from(self.env().clock.unix_s()).unwrap_or(u32::MAX).max(1);
        Ok(Start { issued, eek, created })
    }

    /// What the put that this journal is of was made with.
    pub(crate) async fn started(
        &self,
        header: &Header,
        options: &PutOptions,
    ) -> Result<Start, AuthorError> {
        let counters = header.counter..header.counter + 1 + options.readers.len() as u64;
        let issued = self.reissue(counters).await?;
        Ok(Start { issued, eek: Eek::from_bytes(&header.eek), created: header.created })
    }

    /// A put with these keys; with a journal it goes by it and writes it.
    ///
    /// # Errors
    /// As [`Author::put`]; [`AuthorError::Changed`] where the source is not what the journal says.
    pub(crate) async fn put_from(
        &self,
        source: impl Fill,
        options: &PutOptions,
        start: Start,
        journal: Option<&Arc<Journal>>,
        progress: &Arc<dyn Progress>,
    ) -> Result<PutReport, AuthorError> {
        let since = self.env().clock.elapsed();
        if let Some(bytes) = options.size_hint {
            progress.total(bytes);
        }
        let Start { issued, eek, created } = start;
        let mut issued = issued.into_iter();
        let own = issued.next().ok_or(AuthorError::Stopped)?;
        let mut sealer = EntrySealer::new(self.suite(), eek.clone(), own.key());
        // All of it is paid until one time, also what an earlier try of this put stored.
        let paid_until = self.paid_until(created, options);
        let mut spread =
            Spread::new(self, Arc::clone(progress)).noting(journal.cloned()).paying(paid_until);
        // What was resolved has one.
        let profile = options.profile.ok_or(AuthorError::Stopped)?;
        let (shape, pages) = (self.shape(options)?, self.redundancy(profile, Kind::Page));
        let way = Way { journal, progress, profile, shape, pages };
        let sealed = self.seal(source, &mut sealer, &mut spread, &way).await?;
        let bytes = sealed.macs.plaintext_bytes();
        self.note_end(journal, &sealed).await?;

        let finished = self.finish(sealer, sealed, options, created).await?;
        let entry = finished.entry.id;
        let page = finished.page.map(|record| (Part::Page(0), record, pages));
        // A list is worth 65,536 stripes or pages: as dear as the entry.
        let entries = self.redundancy(profile, Kind::Entry);
        let copies = if shape.is_some() { entries } else { pages };
        let lists = finished.lists.into_iter().zip(0..);
        let lists = lists.map(|(record, number)| (Part::List(number), record, copies));
        let first: Vec<_> = page.into_iter().chain(lists).collect();

        let own_reader = ReaderKey::new(self.own_reader(&own).await?);
        let mut to = vec![(own, own_reader)];
        to.extend(issued.zip(options.readers.iter().copied()));
        let envelopes: Vec<_> = to
            .into_iter()
            .map(|(issued, reader)| self.seal_envelope(issued, &reader, entry, &eek))
            .collect();
        let addresses: Vec<_> = envelopes.iter().map(|envelope| envelope.id).collect();
        let copies = self.redundancy(profile, Kind::Envelope);
        let envelopes: Vec<_> =
            envelopes.into_iter().map(|one| (Part::Envelope, one, copies)).collect();
        let entry_out = vec![(Part::Entry, finished.entry, entries)];
        // All of these together are paid by one lease, signed before the first of them goes out, or by two where not all have as many
        // copies: holders keep as many as are paid for.
        let groups = [first, entry_out, envelopes];
        let mut leaves: BTreeMap<u32, Vec<Leaf>> = BTreeMap::new();
        for (_, record, copies) in groups.iter().flatten() {
            leaves.entry(copies.copies).or_default().push(record_leaf(record));
        }
        let mut leases = BTreeMap::new();
        for (copies, leaves) in leaves {
            let lease = self.lease(&leaves, copies, self.seconds_left(paid_until)?)?;
            leases.insert(copies, lease);
        }
        let ends = leases.values().flatten().map(|lease| crypto::lease::until(&lease.lease));
        let until = ends.min().flatten();
        for group in groups {
            let outgoing = group.into_iter().map(|(part, record, copies)| {
                let lease = leases.get(&copies.copies).and_then(Option::as_ref);
                let paid = for_place(lease, &record.place);
                Outgoing::record(part, record, copies).paid(paid)
            });
            spread.all(outgoing).await?;
        }

        // Before the wait, which may be ended: what is stored is paid for, and found.
        let enough = progress.acknowledged();
        let noted = self.is_noted(&addresses, until).await;
        let tally = spread.settle_until(options.full_wait.unwrap_or(FULL_WAIT), enough).await?;
        let shared = options.readers.iter().copied().zip(addresses[1..].iter());
        let elapsed = self.env().clock.elapsed().saturating_sub(since);
        Ok(PutReport {
            address: addresses[0],
            entry,
            bytes,
            stored: tally.stored,
            sent: tally.sent,
            resumed: tally.resumed,
            acked: tally.acked,
            wanted: tally.wanted,
            full: tally.is_full(),
            profile: self.copies_kept(profile, pages),
            until,
            noted,
            changed: false,
            seconds: elapsed.as_secs_f64(),
            envelopes: shared.map(|(reader, &address)| SharedTo { reader, address }).collect(),
        })
    }

    /// Runs the stages until the source has ended and every page is acknowledged.
    async fn seal(
        &self,
        source: impl Fill,
        sealer: &mut EntrySealer,
        spread: &mut Spread<'_>,
        way: &Way<'_>,
    ) -> Result<Sealed, AuthorError> {
        let macs = sealer.macs();
        let sealing_max = self.env().tasks.parallelism() + QUEUED_MAX;
        let (taken, to_mac) = mpsc::channel(sealing_max);
        let (sealed, to_note) = mpsc::channel(QUEUED_MAX);
        let (noted, to_code) = mpsc::channel(QUEUED_MAX);
        let (coded, to_send) = mpsc::channel(QUEUED_MAX);
        let read = self.cut(source, sealer, taken, way);
        let mac = self.take_macs(macs, to_mac, sealed, way);
        let note = self.note(way.journal, to_note, noted);
        let code = self.code(to_code, coded, way);
        let send = send(to_send, spread);
        // The first error drops the other stages.
        let (plaintext, summed, (), ids, ()) = futures::try_join!(read, mac, note, code, send)?;
        let Summed { macs, single } = summed;
        let (content, unnoted) = match (single, way.shape) {
            (Some((page, noted)), _) => (SealedContent::Single(page), noted),
            (None, Some(Shape { k, .. })) => (SealedContent::Stripes { k, ids }, None),
            (None, None) => (SealedContent::Pages(ids), None),
        };
        let macs = match macs.form() {
            WholeMacs::Tags => macs,
            WholeMacs::Bytes => macs.with_plaintext_of(plaintext),
        };
        Ok(Sealed { macs, content, unnoted })
    }

    /// Takes sealed pages in order into the MAC of the ciphertext, and hands them on.
    ///
    /// The only page of a content is not handed on: it may go into the entry.
    async fn take_macs(
        &self,
        mut macs: ContentMacs,
        mut taken: mpsc::Receiver<Taken>,
        mut sealed: mpsc::Sender<Passing>,
        way: &Way<'_>,
    ) -> Result<Summed, AuthorError> {
        let mut single = None;
        while let Some(Taken { job, only, mut lease }) = taken.next().await {
            let (page, noted) = job.await.ok_or(AuthorError::Stopped)??;
            let (page, summed) = match macs.form() {
                // Some bytes of it.
                WholeMacs::Tags => {
                    macs.add(&page);
                    (page, macs)
                }
                WholeMacs::Bytes => {
                    let add = move || {
                        macs.add(&page);
                        (page, macs)
                    };
                    self.cpu(add).await?
                }
            };
            macs = summed;
            let bytes = page.record.bytes.len();
            way.progress.sealed(bytes as u64);
            if only {
                single = Some((Box::new(page), noted));
                continue;
            }
            // The plaintext is gone. What compressed well leaves room for more pages. A lease of several is not one page's
            // to shrink: a stripe's does it when it is coded.
            if let (None, Some(lease)) = (way.shape, Arc::get_mut(&mut lease)) {
                lease.shrink(way.sending_cost(bytes));
            }
            let SealedPage { page, record, .. } = page;
            let passing = Passing { index: page.index, record, noted, lease };
            if sealed.send(passing).await.is_err() {
                return Err(AuthorError::Stopped);
            }
        }
        Ok(Summed { macs, single })
    }

    /// Seals the metadata and makes the entry.
    async fn finish(
        &self,
        sealer: EntrySealer,
        sealed: Sealed,
        options: &PutOptions,
        created: u32,
    ) -> Result<Finished, AuthorError> {
        let info = info(options);
        let work = move || sealer.finish(sealed.macs, sealed.content, info, created);
        self.cpu(work).await?.map_err(AuthorError::Unsealable)
    }

    /// How a content is kept that was to be kept so: in no more copies than there are peers. How many a librarian finds right that walks
    /// for this user is not known here.
    fn copies_kept(&self, profile: Profile, pages: Redundancy) -> Profile {
        match profile {
            Profile::Copies(copies) if !self.walker().is_thin() => {
                Profile::Copies(copies.min(pages.copies))
            }
            kept => kept,
        }
    }

    /// The public side of the reader key of a counter.
    async fn own_reader(&self, issued: &Issued) -> Result<crypto::PublicKey, AuthorError> {
        let counter = issued.counter;
        self.at_home(move |home| Ok(home.keyring().own_reader(counter).public())).await
    }
}

/// What is sealed with the content.
fn info(options: &PutOptions) -> ContentInfo {
    ContentInfo {
        media_type: options.media_type.clone().unwrap_or_default(),
        filepath: options.name.clone().unwrap_or_default(),
        properties: options.properties.clone(),
        schema: options.schema.clone(),
        data_dictionary: options.data_dictionary.clone(),
    }
}

/// Sends pages or stripes as they come, until there are no more and all are acknowledged.
async fn send(
    mut coded: mpsc::Receiver<Coded>,
    spread: &mut Spread<'_>,
) -> Result<(), AuthorError> {
    loop {
        let room = spread.has_room();
        let next =
            async { if room { coded.next().await } else { futures::future::pending().await } };
        futures::pin_mut!(next);
        let next = futures::select_biased! {
            stepped = spread.step().fuse() => {
                stepped?;
                continue;
            }
            next = next.fuse() => next,
        };
        match next {
            None => return spread.acknowledge().await,
            Some(Coded { outgoing, reached: Some(reached), page_bytes }) => {
                spread.skip(&outgoing, page_bytes, reached);
            }
            Some(Coded { outgoing, reached: None, .. }) => spread.start(outgoing),
        }
    }
}
