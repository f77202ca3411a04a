//! Content in stripes without a network: cut into segments, coded, and read back from any k fragments.
//!
//! One segment and its parity are in memory at a time, when sealing; the pages of one stripe, when opening. The
//! erasure code is the caller's ([`Coder`]): it is a crate of this one's floor.

use std::io::Read;

use bytes::Bytes;
use crypto::{AuthorKey, Place, RecordId, Suite};

use super::{Fetch, Sealed, Sealing, conclude, fetched, fetched_at, read_some};
use crate::layout::{K_MAX, Layout};
use crate::open::EntryOpener;
use crate::page::Page;
use crate::seal::{EntrySealer, INLINE_BYTES_MAX, SealedContent};
use crate::stripe::{FRAGMENTS_MAX, Stripe, coded};
use crate::{Document, DocumentError, Kind, ParityBuffer, Record};

/// The erasure code of stripes (`docs/formats/erasure.md`), which `crates/erasure` has.
pub trait Coder {
    /// Makes the parity of a stripe, in order, from its encoded pages, which may be shorter than it.
    ///
    /// # Errors
    /// Where no code has such numbers; never of what [`seal`] asks.
    fn encode(&self, pages: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CodeFailure>;

    /// Makes the first bytes of fragment `wanted` of `n` from exactly k others, given by their numbers.
    /// `bytes` are the stripe's [`Stripe::fragment_bytes`].
    ///
    /// # Errors
    /// As [`Coder::encode`].
    fn rebuild(
        &self,
        n: u32,
        bytes: usize,
        given: &[(u32, Bytes)],
        wanted: u32,
        out: &mut [u8],
    ) -> Result<(), CodeFailure>;
}

/// What a [`Coder`] says of numbers that no code has.
pub type CodeFailure = Box<dyn std::error::Error + Send + Sync>;

/// Seals a content in stripes of `k` pages and `n` fragments (`holdfast-1`). `emit` gets each record once: of each
/// stripe its header, pages and parity, then list pages, the entry, and last the envelope. What is small enough to
/// lie in its entry does.
///
/// # Errors
/// As [`super::seal`]; [`DocumentError::Field`] for k and n of no stripe.
pub fn seal(
    sealing: Sealing<'_>,
    (k, n): (u32, u32),
    code: &dyn Coder,
    content: &mut dyn Read,
    emit: &mut dyn FnMut(Record) -> std::io::Result<()>,
) -> Result<Sealed, DocumentError> {
    if !(1..=K_MAX).contains(&k) || n <= k || n as usize > FRAGMENTS_MAX {
        return Err(DocumentError::Field("stripe's k and n"));
    }
    if sealing.suite == Suite::Libri1 {
        return Err(DocumentError::Suite("an entry of stripes"));
    }
    let mut emit = |record| emit(record).map_err(DocumentError::Write);
    let author = AuthorKey::new(sealing.author.public());
    let mut sealer = EntrySealer::new(sealing.suite, sealing.eek.clone(), author);
    let mut macs = sealer.macs();
    let layout = Layout::new(k);
    let mut ids: Vec<RecordId> = Vec::new();
    loop {
        let segment = read_segment(content, layout.segment_bytes() as usize)?;
        let last = (segment.len() as u64) < layout.segment_bytes();
        if segment.is_empty() && !ids.is_empty() {
            break;
        }
        if ids.is_empty() && segment.len() as u64 <= INLINE_BYTES_MAX {
            let page = sealer.ticket()?.seal(&segment)?;
            macs.add(&page);
            let content = SealedContent::Single(Box::new(page));
            return conclude(sealing, sealer, macs, content, &mut emit);
        }
        let mut pages = Vec::with_capacity(k as usize);
        for chunk in 0..u64::from(k) {
            let range = layout.chunk_range(chunk, segment.len() as u64);
            let page = sealer.ticket()?.seal(&segment[range.start as usize..range.end as usize])?;
            macs.add(&page);
            pages.push(page.record);
        }
        let parity = parity_of(sealing.suite, &pages, n, code)?;
        let striped = Stripe::of(sealing.suite, pages, parity)?;
        ids.push(striped.header.id);
        emit(striped.header)?;
        striped.fragments.into_iter().try_for_each(&mut emit)?;
        if last {
            break;
        }
    }
    conclude(sealing, sealer, macs, SealedContent::Stripes { k, ids }, &mut emit)
}

fn parity_of(
    suite: Suite,
    pages: &[Record],
    n: u32,
    code: &dyn Coder,
) -> Result<Vec<Record>, DocumentError> {
    let longest = pages.iter().map(|page| page.bytes.len()).max().unwrap_or(0);
    let buffers = (pages.len() as u32..n).map(|index| ParityBuffer::new(index, longest));
    let mut buffers: Vec<ParityBuffer> = buffers.collect::<Result<_, _>>()?;
    let data: Vec<&[u8]> = pages.iter().map(|page| &page.bytes[..]).collect();
    let mut outputs: Vec<&mut [u8]> = buffers.iter_mut().map(ParityBuffer::bytes_mut).collect();
    code.encode(&data, &mut outputs).map_err(DocumentError::Code)?;
    Ok(buffers.into_iter().map(|buffer| buffer.record(suite)).collect())
}

/// The next `bytes` of the content, fewer at its end.
fn read_segment(content: &mut dyn Read, bytes: usize) -> Result<Vec<u8>, DocumentError> {
    let mut segment = vec![0; bytes];
    let mut length = 0;
    while length < bytes {
        match read_some(content, &mut segment[length..])? {
            0 => break,
            read => length += read,
        }
    }
    segment.truncate(length);
    Ok(segment)
}

/// The pages of a stripe, in order. Those that are not there are made again from the fragments that are, where
/// there is a code.
pub(super) fn pages(
    opener: &EntryOpener,
    id: RecordId,
    code: Option<&dyn Coder>,
    fetch: &mut Fetch<'_>,
) -> Result<Vec<Page>, DocumentError> {
    let suite = opener.suite();
    let stripe = match fetched(suite, Kind::Stripe, &id, fetch)? {
        Document::Stripe(stripe) => stripe,
        _ => return Err(DocumentError::OtherKind { id, wanted: Kind::Stripe }),
    };
    opener.check_stripe(id, &stripe)?;
    let mut pages = Vec::with_capacity(stripe.k() as usize);
    let (mut given, mut missing) = (Vec::new(), Vec::new());
    for index in 0..stripe.k() {
        match fragment(suite, id, &stripe, index, fetch) {
            Ok((Document::Page(page), bytes)) => {
                given.push((index, bytes));
                pages.push(Some(page));
            }
            Err(DocumentError::Missing { .. }) if code.is_some() => {
                missing.push(index);
                pages.push(None);
            }
            Ok(_) => return Err(DocumentError::Fragment { index }),
            Err(error) => return Err(error),
        }
    }
    if let (Some(code), false) = (code, missing.is_empty()) {
        complete(suite, id, &stripe, &mut given, fetch)?;
        for index in missing {
            pages[index as usize] = Some(again(suite, id, &stripe, code, &given, index)?);
        }
    }
    Ok(pages.into_iter().flatten().collect())
}

/// Adds parity to the fragments until there are k.
fn complete(
    suite: Suite,
    id: RecordId,
    stripe: &Stripe,
    given: &mut Vec<(u32, Bytes)>,
    fetch: &mut Fetch<'_>,
) -> Result<(), DocumentError> {
    for index in stripe.k()..stripe.n() {
        if given.len() == stripe.k() as usize {
            return Ok(());
        }
        match fragment(suite, id, stripe, index, fetch) {
            Ok((_, bytes)) => given.push((index, bytes)),
            Err(DocumentError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let (found, needed) = (given.len() as u32, stripe.k());
    if found == needed { Ok(()) } else { Err(DocumentError::TooFew { id, found, needed }) }
}

/// A page made again.
fn again(
    suite: Suite,
    id: RecordId,
    stripe: &Stripe,
    code: &dyn Coder,
    given: &[(u32, Bytes)],
    index: u32,
) -> Result<Page, DocumentError> {
    let length = stripe.lengths().get(index as usize).map_or(0, |length| *length as usize);
    let mut bytes = vec![0; length];
    code.rebuild(stripe.n(), stripe.fragment_bytes(), given, index, &mut bytes)
        .map_err(DocumentError::Code)?;
    let record = stripe.page(suite, &id, index, &bytes.into())?;
    match Document::decode(&record.bytes)? {
        Document::Page(page) => Ok(page),
        _ => Err(DocumentError::Fragment { index }),
    }
}

/// A fragment and what of it goes through the code, proven.
fn fragment(
    suite: Suite,
    stripe_id: RecordId,
    stripe: &Stripe,
    index: u32,
    fetch: &mut Fetch<'_>,
) -> Result<(Document, Bytes), DocumentError> {
    let known = stripe.fragments().get(index as usize).zip(stripe.kind_of(index));
    let (id, kind) = known.ok_or(DocumentError::Fragment { index })?;
    let (record, document) = fetched_at(suite, kind, id, Place::from(stripe_id), fetch)?;
    stripe.prove(&stripe_id, &record, &document)?;
    let bytes = coded(&record, &document).ok_or(DocumentError::Fragment { index })?;
    Ok((document, bytes))
}
