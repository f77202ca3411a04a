//! The stage of a put that makes stripes: k pages become n fragments and a header.
//!
//! Pages come here in order and noted. Each k of them are coded on a CPU thread, a few stripes at once, and go on in order:
//! the parity is computed where it will lie in its record, from the pages where they lie in theirs, so nothing is copied.
//! Without stripes each page goes on as it comes.
//!
//! A stripe of which an earlier run brought every page as far as it will come is coded as well, since the entry names the id
//! of its header, and is not sent.

use std::sync::Arc;

use crypto::{HASHED_BYTES, RecordId, Suite};
use document::layout::Layout;
use document::{ParityBuffer, Record, Stripe, Striped};
use erasure::Code;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};

use super::cut::PAGE_EXTRA;
use super::{Passing, Way};
use crate::author::Author;
use crate::error::{AuthorError, Part};
use crate::job::Job;
use crate::spread::{Load, Outgoing};
use crate::window::Lease;

/// Bytes of each page that are coded together, and what is made of them hashed: they fit in the processor's second cache.
const CODED_BYTES: usize = HASHED_BYTES;
/// Stripes that are coded at once; the window bounds them as well.
const CODING_MAX: usize = 2;

/// The stripes of one content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Pages a stripe.
    pub(super) k: u32,
    /// Fragments a stripe.
    pub(super) n: u32,
    /// Content of up to so many bytes lies in its entry; `None` where what is sealed with it is too long for that.
    pub(super) inline_bytes_max: Option<usize>,
}

impl Shape {
    /// What a segment of so many bytes may take at one time: being sealed (itself, and its pages where they shrink) or being sent (its pages
    /// and their parity).
    ///
    /// A full one counts without the heads of its pages, some hundred bytes each, so that the window holds a whole
    /// number of them.
    pub(super) fn cost(&self, segment_bytes: usize) -> usize {
        let (k, n) = (self.k as usize, self.n as usize);
        let chunk = segment_bytes.div_ceil(k);
        let cost = |head: usize| (segment_bytes + k * (chunk + head)).max(n * (chunk + head));
        let full = Layout::new(self.k).segment_bytes() as usize;
        if segment_bytes == full { cost(0) } else { cost(PAGE_EXTRA) }
    }
}

/// A stripe that was coded, or a page that goes by itself, and what the journal is to say of it.
pub(super) struct Coded {
    pub(super) outgoing: Outgoing,
    /// Copies or fragments acknowledged and wanted, where an earlier run brought it as far as it will come.
    pub(super) reached: Option<(u32, u32)>,
    /// Bytes of its pages.
    pub(super) page_bytes: u64,
}

impl Author {
    /// Makes stripes of the pages as they come and hands them on; answers their ids, or the pages'.
    pub(super) async fn code(
        &self,
        pages: mpsc::Receiver<Passing>,
        mut coded: mpsc::Sender<Coded>,
        way: &Way<'_>,
    ) -> Result<Vec<RecordId>, AuthorError> {
        let mut ids = Vec::new();
        let Some(shape) = way.shape else {
            let mut pages = pages;
            while let Some(page) = pages.next().await {
                ids.push(page.record.id);
                send(&mut coded, page.alone(way)).await?;
            }
            return Ok(ids);
        };
        let (k, n) = (shape.k as usize, shape.n as usize);
        let code = Arc::new(Code::new(k, n).map_err(AuthorError::Code)?);
        let (env, suite, threshold) = (self.env(), self.suite(), way.profile.threshold());
        let stripes = pages.chunks(k).enumerate().map(|(number, pages)| {
            let code = Arc::clone(&code);
            Job::cpu(env, move || stripe(suite, &code, threshold, number, pages))
        });
        let mut stripes = std::pin::pin!(stripes.buffered(CODING_MAX));
        while let Some(stripe) = stripes.next().await {
            let (id, stripe) = stripe.ok_or(AuthorError::Stopped)??;
            ids.push(id);
            send(&mut coded, stripe).await?;
        }
        Ok(ids)
    }
}

async fn send(to: &mut mpsc::Sender<Coded>, coded: Coded) -> Result<(), AuthorError> {
    to.send(coded).await.map_err(|_| AuthorError::Stopped)
}

impl Passing {
    /// A page in copies.
    fn alone(self, way: &Way<'_>) -> Coded {
        let Self { index, record, noted, lease } = self;
        let page_bytes = record.bytes.len() as u64;
        let outgoing = Outgoing {
            part: Part::Page(index),
            load: Load::Record(record, way.pages),
            pages: index..index + 1,
            lease: Some(lease),
            paid: Vec::new(),
        };
        Coded { outgoing, reached: noted.and_then(|noted| noted.reached), page_bytes }
    }
}

/// Makes a stripe of its pages: k of them, in order. CPU work.
fn stripe(
    suite: Suite,
    code: &Code,
    threshold: u32,
    number: usize,
    passing: Vec<Passing>,
) -> Result<(RecordId, Coded), AuthorError> {
    let number = u32::try_from(number).map_err(|_| AuthorError::Stopped)?;
    // Every page has come as far as it will, or the whole stripe is sent again.
    let reached: Option<Vec<_>> =
        passing.iter().map(|page| page.noted.and_then(|noted| noted.reached)).collect();
    let (Some(first), Some(lease)) = (
        passing.first().map(|page| page.index),
        passing.first().map(|page| Arc::clone(&page.lease)),
    ) else {
        return Err(AuthorError::Stopped);
    };
    let pages = first..first + passing.len() as u32;
    let records: Vec<Record> = passing.into_iter().map(|page| page.record).collect();
    let page_bytes = records.iter().map(|page| page.bytes.len() as u64).sum();
    let striped = coded(suite, code, records)?;
    shrink(&lease, &striped);
    let id = striped.header.id;
    let outgoing = Outgoing {
        part: Part::Stripe(number),
        load: Load::Stripe(striped, threshold),
        pages,
        lease: Some(lease),
        paid: Vec::new(),
    };
    let reached = reached.and_then(|reached| reached.first().copied());
    Ok((id, Coded { outgoing, reached, page_bytes }))
}

/// The parity of these pages, and their header.
fn coded(suite: Suite, code: &Code, pages: Vec<Record>) -> Result<Striped, AuthorError> {
    let longest = pages.iter().map(|page| page.bytes.len()).max().unwrap_or_default();
    let parity =
        (code.data()..code.fragments()).map(|index| ParityBuffer::empty(index as u32, longest));
    let mut parity = parity.collect::<Result<Vec<_>, _>>().map_err(AuthorError::Unsealable)?;
    for from in (0..longest).step_by(CODED_BYTES) {
        let bytes = CODED_BYTES.min(longest - from);
        let part =
            |page: &'_ Record| from.min(page.bytes.len())..(from + bytes).min(page.bytes.len());
        let data: Vec<&[u8]> = pages.iter().map(|page| &page.bytes[part(page)]).collect();
        let mut outputs: Vec<&mut [u8]> =
            parity.iter_mut().map(|buffer| buffer.grow(bytes)).collect();
        code.encode(&data, &mut outputs).map_err(AuthorError::Code)?;
        parity.iter_mut().for_each(|buffer| buffer.hash(suite));
    }
    let parity = parity.into_iter().map(|buffer| buffer.record(suite)).collect();
    Stripe::of(suite, pages, parity).map_err(AuthorError::Unsealable)
}

/// The plaintext is gone. What compressed well leaves room for more.
fn shrink(lease: &Lease, striped: &Striped) {
    lease.shrink(striped.fragments.iter().map(|fragment| fragment.bytes.len()).sum());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Pages of other lengths, some shorter than a part, make the parity that the code makes of them whole.
    #[test]
    fn parity_in_parts_is_that_of_whole_pages() {
        let lengths = [3 * CODED_BYTES + 7, CODED_BYTES, 100, 2 * CODED_BYTES + 1];
        let suite = Suite::Holdfast1;
        let author =
            crypto::AuthorKey::new(crypto::SecretKey::from_bytes(&[1; 32]).unwrap().public());
        let eek = crypto::Eek::from_bytes(&[5; 108]);
        let mut sealer = document::EntrySealer::new(suite, eek, author);
        let pages = lengths.map(|length| {
            let chunk: Vec<u8> =
                (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            sealer.ticket().unwrap().seal(&chunk).unwrap().record
        });
        let code = Code::new(4, 8).unwrap();
        let longest = pages.iter().map(|page| page.bytes.len()).max().unwrap();
        let mut whole = vec![vec![0; longest]; 4];
        let data: Vec<&[u8]> = pages.iter().map(|page| &page.bytes[..]).collect();
        let mut outputs: Vec<&mut [u8]> = whole.iter_mut().map(Vec::as_mut_slice).collect();
        code.encode(&data, &mut outputs).unwrap();
        let striped = coded(suite, &code, pages.to_vec()).unwrap();
        for (fragment, (whole, index)) in striped.fragments[4..].iter().zip(whole.iter().zip(4..)) {
            let mut buffer = ParityBuffer::new(index, longest).unwrap();
            buffer.bytes_mut().copy_from_slice(whole);
            let expected = buffer.record(suite);
            assert!(fragment.bytes == expected.bytes && fragment.id == expected.id, "{index}");
        }
    }
}
