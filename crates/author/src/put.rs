//! A put: a stream becomes pages, an entry and envelopes, in stages that all run at once.
//!
//! ```text
//!  source --> read --+--> [seal on CPU threads, several at once] --> whole MACs, in order --> send --> holders
//!                    |                                                                          |
//!             lease of the window  <------- given back when the last copy is stored or given up-+
//! ```
//! What it is not: a copy of the file in memory, or one stage after the other. The stages are futures of one task joined by
//! short channels; what is heavy runs on CPU threads and in tasks of its own ([`Job`]), so dropping the put stops it all.
//!
//! Order: all pages acknowledged, then the entry, then the envelopes, so nothing that can be found is incomplete. The
//! author's counter is issued, durably, before anything is sealed under it.
//!
//! Invariants: a chunk is read only into a lease; no stage waits for a second lease while it holds one (so the window
//! cannot lock up, however many puts share it).

mod cut;

use std::sync::Arc;
use std::time::Duration;

use crypto::{EEK_BYTES, Eek, ReaderKey};
use document::{ContentInfo, ContentMacs, EntrySealer, Finished, SealedContent, SealedPage};
use futures::channel::mpsc;
use futures::{FutureExt, SinkExt, StreamExt};
use tokio::io::AsyncRead;
use zeroize::Zeroizing;

use crate::author::{Author, Issued};
use crate::error::{AuthorError, Part};
use crate::media;
use crate::progress::Progress;
use crate::spread::{Outgoing, Spread};
use crate::types::{PutOptions, PutReport, READERS_MAX, SharedTo};
use cut::{Step, Taken};

/// How long a put waits, after all is acknowledged, for all copies.
pub const FULL_WAIT: Duration = Duration::from_secs(10);
/// Sealed pages that wait for the MACs, or for being sent, beyond those being sealed.
const QUEUED_MAX: usize = 2;

/// What the stages made of a stream.
struct Sealed {
    macs: ContentMacs,
    content: SealedContent,
}

impl Author {
    /// Stores what `source` gives until its end, for this user and the readers named.
    ///
    /// It answers when every record is acknowledged and, within [`FULL_WAIT`], all copies are stored; see
    /// [`PutReport::full`]. Nothing is kept on this machine but the issued counters.
    ///
    /// Cancel safe in that dropping it stops everything; pages already stored stay, unknown to anybody.
    ///
    /// # Errors
    /// [`AuthorError::Empty`] (`libri-1`), [`AuthorError::TooManyReaders`], [`AuthorError::Unsealable`] for metadata that is
    /// too long, [`AuthorError::Read`], [`AuthorError::Store`] where too few holders took a record.
    pub async fn put(
        &self,
        source: impl AsyncRead + Send + Unpin,
        options: PutOptions,
        progress: Arc<dyn Progress>,
    ) -> Result<PutReport, AuthorError> {
        let started = self.env().clock.elapsed();
        if options.readers.len() > READERS_MAX {
            return Err(AuthorError::TooManyReaders(options.readers.len()));
        }
        if let Some(bytes) = options.size_hint {
            progress.total(bytes);
        }
        let mut issued = self.issue(1 + options.readers.len()).await?.into_iter();
        let own = issued.next().ok_or(AuthorError::Stopped)?;
        let eek_bytes = Zeroizing::new(self.env().random::<EEK_BYTES>());
        let eek = Eek::from_bytes(&eek_bytes);
        let mut sealer = EntrySealer::new(self.suite(), eek.clone(), own.key());
        let mut spread = Spread::new(self, Arc::clone(&progress));
        let sealed = self.seal(source, &mut sealer, &mut spread, &progress).await?;
        let bytes = sealed.macs.plaintext_bytes();

        let readers = options.readers.clone();
        let finished = self.finish(sealer, sealed, options).await?;
        let entry = finished.entry.id;
        let pages = finished.page.into_iter().chain(finished.lists);
        let pages = pages.map(|record| outgoing(Part::Page(0), record));
        spread.all(pages).await?;
        spread.all([outgoing(Part::Entry, finished.entry)]).await?;

        let own_reader = ReaderKey::new(self.own_reader(&own).await?);
        let mut to = vec![(own, own_reader)];
        to.extend(issued.zip(readers.iter().copied()));
        let envelopes: Vec<_> = to
            .into_iter()
            .map(|(issued, reader)| self.seal_envelope(issued, &reader, entry, &eek))
            .collect();
        let addresses: Vec<_> = envelopes.iter().map(|envelope| envelope.id).collect();
        spread.all(envelopes.into_iter().map(|one| outgoing(Part::Envelope, one))).await?;

        let tally = spread.settle(FULL_WAIT).await?;
        let shared = readers.into_iter().zip(addresses[1..].iter());
        let elapsed = self.env().clock.elapsed().saturating_sub(started);
        Ok(PutReport {
            address: addresses[0],
            entry,
            bytes,
            stored: tally.stored,
            acked: tally.acked,
            wanted: tally.wanted,
            full: tally.is_full(),
            seconds: elapsed.as_secs_f64(),
            envelopes: shared.map(|(reader, &address)| SharedTo { reader, address }).collect(),
        })
    }

    /// Runs the stages until the source has ended and every page is acknowledged.
    async fn seal(
        &self,
        source: impl AsyncRead + Send + Unpin,
        sealer: &mut EntrySealer,
        spread: &mut Spread<'_>,
        progress: &Arc<dyn Progress>,
    ) -> Result<Sealed, AuthorError> {
        let macs = sealer.macs();
        let sealing_max = self.env().tasks.parallelism() + QUEUED_MAX;
        let (steps, to_mac) = mpsc::channel(sealing_max);
        let (sealed, to_send) = mpsc::channel(QUEUED_MAX);
        let read = self.cut(source, sealer, steps, progress);
        let mac = self.take_macs(macs, to_mac, sealed, progress);
        let send = send(to_send, spread);
        // The first error drops the other stages.
        let ((), (macs, content), ()) = futures::try_join!(read, mac, send)?;
        Ok(Sealed { macs, content })
    }

    /// Takes sealed pages in order into the MACs of the whole, and hands them on.
    ///
    /// The only page of a content is not handed on: it may go into the entry.
    async fn take_macs(
        &self,
        mut macs: ContentMacs,
        mut steps: mpsc::Receiver<Step>,
        mut sealed: mpsc::Sender<Outgoing>,
        progress: &Arc<dyn Progress>,
    ) -> Result<(ContentMacs, SealedContent), AuthorError> {
        let (mut ids, mut single) = (Vec::new(), None);
        while let Some(Step { plaintext, page, mut lease }) = steps.next().await {
            let page = match page {
                None => None,
                Some(Taken { job, only }) => {
                    let page = job.await.ok_or(AuthorError::Stopped)?;
                    Some((page.map_err(AuthorError::Unsealable)?, only))
                }
            };
            let ciphertext = page.as_ref().map(|(page, _)| page.page.ciphertext.clone());
            macs = self
                .cpu(move || {
                    macs.add_plaintext(&plaintext);
                    if let Some(ciphertext) = ciphertext {
                        macs.add_page(&ciphertext);
                    }
                    macs
                })
                .await?;
            let Some((page, only)) = page else { continue };
            let SealedPage { record, .. } = &page;
            progress.sealed(record.bytes.len() as u64);
            if only {
                single = Some(Box::new(page));
                continue;
            }
            ids.push(record.id);
            // The plaintext is gone. What compressed well leaves room for more pages.
            if let Some(lease) = Arc::get_mut(&mut lease) {
                lease.shrink(self.sending_cost(record.bytes.len()));
            }
            let part = Part::Page(page.page.index);
            let outgoing = Outgoing { part, record: page.record, lease: Some(lease) };
            if sealed.send(outgoing).await.is_err() {
                return Err(AuthorError::Stopped);
            }
        }
        Ok((macs, single.map_or(SealedContent::Pages(ids), SealedContent::Single)))
    }

    /// Seals the metadata and makes the entry.
    async fn finish(
        &self,
        sealer: EntrySealer,
        sealed: Sealed,
        options: PutOptions,
    ) -> Result<Finished, AuthorError> {
        let name = options.name.unwrap_or_default();
        let media_type = options.media_type.unwrap_or_else(|| media::by_name(&name).to_owned());
        let info = ContentInfo {
            media_type,
            filepath: name,
            properties: options.properties,
            schema: options.schema,
            data_dictionary: options.data_dictionary,
        };
        let created = u32::try_from(self.env().clock.unix_s()).unwrap_or(u32::MAX).max(1);
        let work = move || sealer.finish(sealed.macs, sealed.content, info, created);
        self.cpu(work).await?.map_err(AuthorError::Unsealable)
    }

    /// The public side of the reader key of a counter.
    async fn own_reader(&self, issued: &Issued) -> Result<crypto::PublicKey, AuthorError> {
        let counter = issued.counter;
        self.at_home(move |home| Ok(home.keyring().own_reader(counter).public())).await
    }
}

/// A record without a lease: there are few of them, or they are small.
fn outgoing(part: Part, record: document::Record) -> Outgoing {
    Outgoing { part, record, lease: None }
}

/// Sends pages as they come, until there are no more and all are acknowledged.
async fn send(
    mut pages: mpsc::Receiver<Outgoing>,
    spread: &mut Spread<'_>,
) -> Result<(), AuthorError> {
    loop {
        let room = spread.has_room();
        let page =
            async { if room { pages.next().await } else { futures::future::pending().await } };
        futures::pin_mut!(page);
        let page = futures::select_biased! {
            stepped = spread.step().fuse() => {
                stepped?;
                continue;
            }
            page = page.fuse() => page,
        };
        match page {
            Some(page) => spread.start(page),
            None => return spread.acknowledge().await,
        }
    }
}
