//! Fetching a content's stripes: their headers a few ahead, then the pages that are wanted, or any k fragments.
//!
//! ```text
//!  header --> lease --> pages from their holders --all there--------------------> open each on a CPU thread
//!                             | one is missing                                      ^
//!                             v                                                     |
//!                       any k fragments --> the missing pages made again, proven ---+
//! ```
//! The lease waits for the header, which says how long the fragments are: a short stripe takes as little of the window as it
//! is. It is taken for the worse case, k fragments and the pages made of them, so that a holder which fails on the
//! way does not make a get wait for memory that it holds itself.
//!
//! A page that was made again is proven as any other: by its id in the header, whose own id the entry names. Where the id is
//! another the parity was not that of the pages, which only the author of the stripe can have done.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use crypto::{RecordId, Suite};
use document::{Document, DocumentError, EntryOpener, Kind, Record, Stripe, stripe};
use env::Env;
use erasure::{Code, Given, Wanted};
use futures::SinkExt;
use futures::channel::mpsc;
use walk::{StripeShape, Walker};

use super::{Ahead, Fetching, Opening};
use crate::author::Author;
use crate::content::{At, Content, opened, page_of};
use crate::error::{AuthorError, Part};
use crate::job::Job;

/// Headers that are fetched before their stripes are due.
const HEADERS_AHEAD: usize = 4;
/// What of a fragment is not counted in the window: what it has beyond its chunk, so that a window of powers of two holds
/// a whole number of full stripes.
const HEAD_BYTES: usize = 128;

/// A stripe's header that was fetched.
pub(crate) struct Header {
    /// The stripe.
    pub(crate) id: RecordId,
    /// Which of the content's stripes it is.
    pub(crate) number: u32,
    pub(crate) stripe: Stripe,
    /// Whether a holder failed or lied.
    pub(crate) degraded: bool,
}

impl Author {
    /// Starts fetching the stripes of the wanted pages, in order, as the window has room. Answers whether a holder of a list
    /// page failed or lied.
    pub(super) async fn fetch_stripes(
        &self,
        content: &Content,
        (k, opener): (u32, EntryOpener),
        wanted: Range<u64>,
        mut fetched: mpsc::Sender<Ahead>,
    ) -> Result<bool, AuthorError> {
        let pages = u64::from(k);
        let mut left = wanted.end.div_ceil(pages).saturating_sub(wanted.start / pages);
        let mut stripes = content.parts(wanted.start / pages);
        let mut headers = VecDeque::new();
        loop {
            while left > 0 && headers.len() < HEADERS_AHEAD {
                left -= 1;
                let Some((number, At::Stripe(id))) = stripes.next(self).await? else { break };
                headers.push_back(header(self.env(), self.walker(), id, number, k));
            }
            let Some(header) = headers.pop_front() else { break };
            let header: Header = header.await.ok_or(AuthorError::Stopped)??;
            let first = u64::from(header.number) * pages;
            let within = |page: u64| (page.clamp(first, first + pages) - first) as usize;
            let wanted = within(wanted.start)..within(wanted.end);
            let cost = cost(&header, content, wanted.clone());
            let lease = Arc::new(self.window().lease(cost).await);
            let job = open_pages(self.env(), self.walker(), opener.clone(), header, wanted);
            if fetched.send(Ahead { fetching: Fetching::Stripe(job), lease }).await.is_err() {
                // Nobody needs more: the end of the range was reached, or an error is on its way.
                break;
            }
        }
        Ok(stripes.degraded)
    }
}

/// What a stripe may take at one time: k fragments with the wanted pages made of them, or these pages and their chunks.
fn cost(header: &Header, content: &Content, wanted: Range<usize>) -> usize {
    let Header { stripe, number, .. } = header;
    let page = stripe.fragment_bytes().saturating_sub(HEAD_BYTES);
    let k = stripe.k() as usize;
    let index = |page: usize| u64::from(*number) * k as u64 + page as u64;
    let chunks = content.opener.layout().map_or(0, |layout| {
        let end = |page: usize| layout.chunk_range(index(page), content.size()).start;
        (end(wanted.end) - end(wanted.start)) as usize
    });
    ((k + wanted.len()) * page).max(wanted.len() * page + chunks)
}

/// Fetches a stripe's header in a task of its own. Its k must be what the entry says.
pub(crate) fn header(
    env: &Env,
    walker: &Arc<Walker>,
    id: RecordId,
    number: u32,
    k: u32,
) -> Job<Result<Header, AuthorError>> {
    let walker = Arc::clone(walker);
    Job::task(env, async move {
        let part = Part::Stripe(number);
        let found = walker.find(Some(Kind::Stripe), id, id.into()).await;
        let found = found.map_err(|source| AuthorError::Fetch { part, source })?;
        match found.document {
            Document::Stripe(stripe) if stripe.k() == k => {
                Ok(Header { id, number, stripe, degraded: found.degraded })
            }
            Document::Stripe(_) => {
                let source = DocumentError::Field("stripe's k");
                Err(AuthorError::Corrupt { part, source })
            }
            _ => {
                let source = DocumentError::OtherKind { id, wanted: Kind::Stripe };
                Err(AuthorError::Corrupt { part, source })
            }
        }
    })
}

/// Fetches the wanted pages of a stripe, or makes them again, and starts opening them.
fn open_pages(
    env: &Env,
    walker: &Arc<Walker>,
    opener: EntryOpener,
    header: Header,
    wanted: Range<usize>,
) -> Job<Result<VecDeque<Opening>, AuthorError>> {
    let (walker, within) = (Arc::clone(walker), env.clone());
    Job::task(env, async move {
        let first = u64::from(header.number) * u64::from(header.stripe.k());
        let (records, degraded) =
            pages(&within, &walker, opener.suite(), header, wanted.clone()).await?;
        let mut opening = VecDeque::with_capacity(records.len());
        for (page, record) in wanted.zip(records) {
            // The entry was checked to name no more than there are indexes.
            let index = u32::try_from(first + page as u64).map_err(|_| AuthorError::Stopped)?;
            let corrupt = |source| AuthorError::Corrupt { part: Part::Page(index), source };
            let bytes = record.bytes.len() as u64;
            let page = page_of(&record).map_err(corrupt)?;
            opening.push_back(opened(&within, &opener, index, page, bytes, degraded));
        }
        Ok(opening)
    })
}

/// The wanted pages of a stripe as their holders have them, or made again; and whether either had to be or a holder failed.
async fn pages(
    env: &Env,
    walker: &Walker,
    suite: Suite,
    header: Header,
    wanted: Range<usize>,
) -> Result<(Vec<Record>, bool), AuthorError> {
    let Header { id, number, stripe, mut degraded } = header;
    let part = Part::Stripe(number);
    let shape = StripeShape::new(id, &stripe);
    let fetched = walker.fetch_stripe(&shape, wanted.clone()).await;
    let fetched = fetched.map_err(|source| AuthorError::Fetch { part, source })?;
    degraded |= fetched.is_degraded();
    let mut have: BTreeMap<usize, Record> = fetched.fragments.into_iter().collect();
    let missing: Vec<usize> = wanted.clone().filter(|page| !have.contains_key(page)).collect();
    if !missing.is_empty() {
        degraded = true;
        let given = have.clone();
        let rebuild = move || rebuilt(suite, &id, &stripe, &given, &missing);
        let made = Job::cpu(env, rebuild).await.ok_or(AuthorError::Stopped)?;
        have.extend(made.map_err(|error| error.of(part))?);
    }
    let records: Option<Vec<Record>> = wanted.map(|page| have.remove(&page)).collect();
    Ok((records.ok_or(AuthorError::Stopped)?, degraded))
}

/// Why pages could not be made again from fragments that prove themselves.
#[derive(Debug)]
pub(crate) enum Unmade {
    Code(erasure::ErasureError),
    Document(DocumentError),
}

impl Unmade {
    pub(crate) fn of(self, part: Part) -> AuthorError {
        match self {
            Self::Code(source) => AuthorError::Code(source),
            Self::Document(source) => AuthorError::Corrupt { part, source },
        }
    }
}

/// Makes the missing pages of a stripe from k others of its fragments. CPU work.
pub(crate) fn rebuilt(
    suite: Suite,
    id: &RecordId,
    header: &Stripe,
    given: &BTreeMap<usize, Record>,
    missing: &[usize],
) -> Result<Vec<(usize, Record)>, Unmade> {
    let code = Code::new(header.k() as usize, header.n() as usize).map_err(Unmade::Code)?;
    let mut coded = Vec::with_capacity(given.len());
    for (&index, record) in given {
        // That its id is right was proven; that it is what the header says of its number was not.
        let document = Document::decode(&record.bytes).map_err(Unmade::Document)?;
        header.prove(id, record, &document).map_err(Unmade::Document)?;
        coded.extend(stripe::coded(record, &document).map(|bytes| (index, bytes)));
    }
    let given: Vec<Given<'_>> =
        coded.iter().map(|(index, bytes)| Given { index: *index, bytes }).collect();
    let length = |index: usize| header.lengths().get(index).map_or(0, |length| *length as usize);
    let mut pages: Vec<Vec<u8>> = missing.iter().map(|index| vec![0; length(*index)]).collect();
    let mut wanted: Vec<Wanted<'_>> = missing
        .iter()
        .zip(&mut pages)
        .map(|(index, bytes)| Wanted { index: *index, bytes })
        .collect();
    code.reconstruct(header.fragment_bytes(), &given, &mut wanted).map_err(Unmade::Code)?;
    let made = missing.iter().zip(pages).map(|(&index, bytes)| {
        let page = header.page(suite, id, index as u32, &Bytes::from(bytes));
        Ok((index, page.map_err(Unmade::Document)?))
    });
    made.collect()
}
