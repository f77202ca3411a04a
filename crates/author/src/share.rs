//! Sharing: the key of a content that this user can open, sealed to more readers.
//!
//! An envelope is acknowledged as one of a put is: where fewer peers answer than that waits for, by those that do (see `put::keeping`).
//!
//! Many readers are shared to in parts of [`SHARED_AT_ONCE`]: their counters are issued with one fsync, and their envelopes go to
//! each holder in one call. So what is in memory and under way is the same for ten readers and for ten thousand.

use std::sync::Arc;
use std::time::Duration;

use crypto::lease::Shown;
use crypto::{Class, Classified, ReaderKey, RecordId};
use document::{Kind, Record};
use walk::Rest;

use crate::author::{Author, Issued, Opened};
use crate::error::{AuthorError, Part};
use crate::paying::{for_place, record_leaf};
use crate::progress::NoProgress;
use crate::spread::{Outgoing, Spread};

/// How long a share waits, after it is acknowledged, for all copies of its envelope.
pub const SHARE_WAIT: Duration = Duration::from_secs(2);
/// Readers whose envelopes are under way at once.
pub const SHARED_AT_ONCE: usize = 256;
/// When envelopes that too few holders took are sent again, each after the one before.
const AGAIN_AFTER: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// What became of the share with one reader.
#[derive(Debug)]
pub struct Shared {
    /// With whom.
    pub reader: ReaderKey,
    /// What that reader opens it by, or why there is nothing.
    pub outcome: Result<RecordId, AuthorError>,
    /// How far its copies have come; none where there is nothing.
    pub copies: Option<Rest>,
    /// Whether the home notes until when it is paid for; not where there is nothing.
    pub noted: bool,
}

/// What became of sharing with many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareReport {
    /// Readers who can open it.
    pub shared: usize,
    /// Readers whose envelope too few holders took.
    pub failed: usize,
    /// Readers for whom it was not tried, after nothing was stored for those before.
    pub untried: usize,
    /// Envelopes that are paid for, and whose home could not note until when.
    pub unnoted: usize,
}

impl Author {
    /// Seals the key of the content at `address` to a reader, and stores that envelope; answers with its key.
    ///
    /// Whoever holds an envelope may share on: the user need not be the content's author. Nothing but the envelope is
    /// stored, under an author key used for it alone. Sharing twice makes two envelopes.
    ///
    /// # Errors
    /// [`AuthorError::NotForUs`], [`AuthorError::Fetch`], [`AuthorError::Store`].
    pub async fn share(
        &self,
        address: RecordId,
        reader: ReaderKey,
    ) -> Result<RecordId, AuthorError> {
        let opened = self.open(address).await?;
        self.ask_unheard_for(Kind::Envelope).await;
        let issued = self.issue(1).await?.pop().ok_or(AuthorError::Stopped)?;
        let record = self.seal_envelope(issued, &reader, opened.envelope.entry, &opened.eek);
        let id = record.id;
        let mut spread = Spread::new(self, Arc::new(NoProgress));
        let copies = self.walker().redundancy_to_put(Kind::Envelope, None);
        spread.all([Outgoing::record(Part::Envelope, record, copies)]).await?;
        spread.settle(SHARE_WAIT).await?;
        Ok(id)
    }

    /// As [`Author::share`], with any number of readers; each is told to `each`, in their order. A reader named twice gets two
    /// envelopes. They are paid for so many seconds, or as long as whatever this user puts.
    ///
    /// It answers when enough copies of each envelope are durable; the others go on behind ([`walk::Walker::drain`] waits
    /// for them). Dropping it stops it between two parts; what was told is stored.
    ///
    /// # Errors
    /// As [`Author::share`] for the content itself, and what the home says. An envelope that cannot be stored is no error:
    /// see [`Shared::outcome`].
    pub async fn share_all(
        self: &Arc<Self>,
        address: RecordId,
        readers: &[ReaderKey],
        seconds: Option<u64>,
        mut each: impl FnMut(Shared) + Send,
    ) -> Result<ShareReport, AuthorError> {
        let opened = Arc::new(self.open(address).await?);
        self.ask_unheard_for(Kind::Envelope).await;
        let mut report = ShareReport::default();
        for part in readers.chunks(SHARED_AT_ONCE) {
            let issued = self.issue(part.len()).await?;
            let records = self.envelopes(&opened, issued, part).await?;
            let before = report.shared;
            let leaves: Vec<_> = records.iter().map(record_leaf).collect();
            let holders = self.walker().redundancy_to_put(Kind::Envelope, None).copies;
            let lease = self.lease(&leaves, holders, seconds)?;
            let until = lease.as_ref().and_then(|lease| crypto::lease::until(&lease.lease));
            let stored = self.stored(records, lease).await;
            let addresses: Vec<RecordId> = stored.iter().flatten().map(|(id, _)| *id).collect();
            let noted = self.is_noted(&addresses, until).await;
            report.unnoted += if noted { 0 } else { addresses.len() };
            for (reader, stored) in part.iter().zip(stored) {
                report.shared += usize::from(stored.is_ok());
                report.failed += usize::from(stored.is_err());
                let (outcome, copies) = match stored {
                    Ok((id, copies)) => (Ok(id), Some(copies)),
                    Err(error) => (Err(error), None),
                };
                let noted = noted && copies.is_some();
                each(Shared { reader: *reader, outcome, copies, noted });
            }
            if report.shared == before {
                break;
            }
        }
        report.untried = readers.len() - report.shared - report.failed;
        Ok(report)
    }

    /// One envelope a reader, each under an issued key of its own.
    async fn envelopes(
        self: &Arc<Self>,
        opened: &Arc<Opened>,
        issued: Vec<Issued>,
        readers: &[ReaderKey],
    ) -> Result<Vec<Record>, AuthorError> {
        let (author, opened, readers) = (Arc::clone(self), Arc::clone(opened), readers.to_vec());
        self.cpu(move || {
            let pairs = issued.into_iter().zip(&readers);
            let seal = |(issued, reader)| {
                author.seal_envelope(issued, reader, opened.envelope.entry, &opened.eek)
            };
            pairs.map(seal).collect()
        })
        .await
    }

    /// Stores envelopes; one outcome each, in their order.
    async fn stored(
        &self,
        records: Vec<Record>,
        lease: Option<Shown>,
    ) -> Vec<Result<(RecordId, Rest), AuthorError>> {
        let mut outcomes: Vec<Option<Result<(RecordId, Rest), AuthorError>>> = Vec::new();
        outcomes.resize_with(records.len(), || None);
        let mut again = AGAIN_AFTER.into_iter();
        loop {
            let open: Vec<usize> =
                (0..records.len()).filter(|at| retried(&outcomes[*at])).collect();
            let copies = self.walker().redundancy_to_put(Kind::Envelope, None);
            let sent = open.iter().map(|at| {
                let record = records[*at].clone();
                let paid = for_place(lease.as_ref(), &record.place);
                (record, paid, copies)
            });
            let sent = self.walker().store_batch_leased(sent.collect()).await;
            for (at, stored) in open.into_iter().zip(sent) {
                let part = Part::Envelope;
                let stored = stored.map(|stored| (records[at].id, stored.rest));
                outcomes[at] = Some(stored.map_err(|source| AuthorError::Store { part, source }));
            }
            match again.next() {
                Some(pause) if outcomes.iter().any(retried) => self.env().clock.sleep(pause).await,
                _ => break,
            }
        }
        outcomes.into_iter().map(|outcome| outcome.unwrap_or(Err(AuthorError::Stopped))).collect()
    }
}

/// Whether an envelope is to be sent, or again: refusals stay what they are.
fn retried<T>(outcome: &Option<Result<T, AuthorError>>) -> bool {
    match outcome {
        None => true,
        Some(Ok(_)) => false,
        Some(Err(error)) => matches!(error.class(), Class::Busy | Class::Unavailable),
    }
}
