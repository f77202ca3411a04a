//! Whole documents without a network: content in, records out, and back. `hold document` stands on it.
//!
//! One chunk is in memory at a time. Where the bytes come from and the records go to is the caller's.

use std::io::{ErrorKind, Read, Write};

use bytes::Bytes;
use crypto::{AuthorKey, Eek, NetworkId, ReaderKey, RecordId, SecretKey, Suite};

use crate::content::ContentCutter;
use crate::entry::{Entry, EntryContent};
use crate::envelope::{self, Envelope};
use crate::metadata::{ContentInfo, EntryMetadata};
use crate::open::EntryOpener;
use crate::page::Page;
use crate::seal::{EntrySealer, SealedContent, SealedPage};
use crate::{Document, DocumentError, Kind, Record, prove};

/// How many bytes are read at once.
const READ_BYTES: usize = 256 << 10;

/// Who seals what, for whom.
#[derive(Debug)]
pub struct Sealing<'a> {
    /// The suite.
    pub suite: Suite,
    /// The network the envelope is bound to (`holdfast-1`); [`NetworkId::NONE`] where there is none.
    pub network: NetworkId,
    /// The author's key.
    pub author: &'a SecretKey,
    /// To whom. In `libri-1` no pair of author and reader may have sealed another EEK: the caller checks
    /// with [`Envelope::is_between`].
    pub reader: ReaderKey,
    /// Fresh random bytes, used for this content alone.
    pub eek: Eek,
    /// What the author says of the content.
    pub info: ContentInfo,
    /// Unix seconds, not 0.
    pub created_time: u32,
}

/// What was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The envelope: the content's address.
    pub envelope: RecordId,
    /// The entry.
    pub entry: RecordId,
    /// The content's bytes.
    pub content_bytes: u64,
}

/// Seals a content. `emit` gets each record once: pages, list pages, the entry, and last the envelope.
///
/// # Errors
/// [`DocumentError`]; records handed out before an error are of no use.
pub fn seal(
    sealing: Sealing<'_>,
    content: &mut dyn Read,
    emit: &mut dyn FnMut(Record) -> std::io::Result<()>,
) -> Result<Sealed, DocumentError> {
    let Sealing { suite, network, author, reader, eek, info, created_time } = sealing;
    let mut emit = |record| emit(record).map_err(DocumentError::Write);
    let mut sealer = EntrySealer::new(suite, eek.clone(), AuthorKey::new(author.public()));
    let mut macs = sealer.macs();
    let mut cutter = ContentCutter::new(suite);
    // The first page is held back until it is known whether it is the only one.
    let (mut ids, mut held): (Vec<RecordId>, Option<SealedPage>) = (Vec::new(), None);
    let mut buffer = vec![0; READ_BYTES];
    let mut ended = false;
    while !ended {
        let read = read_some(content, &mut buffer)?;
        ended = read == 0;
        macs.add_plaintext(&buffer[..read]);
        let chunks = if ended {
            std::mem::replace(&mut cutter, ContentCutter::new(suite)).finish()?
        } else {
            cutter.push(&buffer[..read])?;
            std::iter::from_fn(|| cutter.next_chunk()).collect()
        };
        for chunk in chunks {
            let page = sealer.ticket()?.seal(&chunk)?;
            macs.add_page(&page.page.ciphertext);
            if let Some(before) = held.replace(page) {
                ids.push(before.record.id);
                emit(before.record)?;
            }
        }
    }
    let last = held.ok_or(DocumentError::Empty)?;
    let content_bytes = macs.plaintext_bytes();
    let content = if ids.is_empty() {
        SealedContent::Single(Box::new(last))
    } else {
        ids.push(last.record.id);
        emit(last.record)?;
        SealedContent::Pages(ids)
    };
    let finished = sealer.finish(macs, content, info, created_time)?;
    finished.page.into_iter().chain(finished.lists).try_for_each(&mut emit)?;
    let entry = finished.entry.id;
    emit(finished.entry)?;
    let envelope = envelope::seal(suite, network, entry, author, &reader, &eek);
    let envelope = Record::of(suite, &Document::Envelope(envelope));
    let sealed = Sealed { envelope: envelope.id, entry, content_bytes };
    emit(envelope)?;
    Ok(sealed)
}

fn read_some(content: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, DocumentError> {
    loop {
        match content.read(buffer) {
            Err(source) if source.kind() == ErrorKind::Interrupted => {}
            result => return result.map_err(DocumentError::Read),
        }
    }
}

/// Opens the content of an envelope with its reader's key and writes it to `out`. `fetch` gives the bytes
/// of a record by its id, which are proven here. Of content in stripes all pages are needed: nothing is
/// made again from parity here.
///
/// # Errors
/// [`DocumentError`]. What `out` got before an error is of no use, however much it is.
pub fn open(
    suite: Suite,
    network: NetworkId,
    envelope: &Envelope,
    reader: &SecretKey,
    fetch: &mut dyn FnMut(&RecordId) -> std::io::Result<Option<Bytes>>,
    out: &mut dyn Write,
) -> Result<EntryMetadata, DocumentError> {
    let eek = envelope::open(suite, network, envelope, reader)?;
    let entry = match fetched(suite, Kind::Entry, &envelope.entry, fetch)? {
        Document::Entry(entry) => entry,
        _ => return Err(DocumentError::OtherKind { id: envelope.entry, wanted: Kind::Entry }),
    };
    let opener = EntryOpener::new(suite, &entry, eek)?;
    let mut assembler = opener.assembler();
    let mut write = |bytes: Bytes| out.write_all(&bytes).map_err(DocumentError::Write);
    let mut push = |index: u32, page: &Page| {
        let chunk = opener.open_page(index, page)?;
        assembler.push(page, &chunk, &mut write)
    };
    match page_ids(suite, &opener, &entry, fetch)? {
        Pages::Inline(page) => push(0, page)?,
        Pages::Ids(ids) => {
            for (id, index) in ids.iter().zip(0..) {
                push(index, &fetched_page(suite, id, fetch)?)?;
            }
        }
    }
    assembler.finish()?;
    Ok(opener.metadata().clone())
}

enum Pages<'a> {
    Inline(&'a Page),
    Ids(Vec<RecordId>),
}

fn page_ids<'a>(
    suite: Suite,
    opener: &EntryOpener,
    entry: &'a Entry,
    fetch: &mut dyn FnMut(&RecordId) -> std::io::Result<Option<Bytes>>,
) -> Result<Pages<'a>, DocumentError> {
    let mut listed = |lists: &[RecordId]| -> Result<Vec<RecordId>, DocumentError> {
        let mut ids = Vec::new();
        for (id, list) in lists.iter().zip(0..) {
            ids.extend(opener.open_list(list, &fetched_page(suite, id, fetch)?)?);
        }
        Ok(ids)
    };
    let stripes = match &entry.content {
        EntryContent::Inline(page) => return Ok(Pages::Inline(page)),
        EntryContent::Pages(ids) => return Ok(Pages::Ids(ids.clone())),
        EntryContent::Lists(lists) => return listed(lists).map(Pages::Ids),
        EntryContent::Stripes { ids, .. } => ids.clone(),
        EntryContent::ListedStripes { lists, .. } => listed(lists)?,
    };
    let mut ids = Vec::new();
    for id in stripes {
        let stripe = match fetched(suite, Kind::Stripe, &id, fetch)? {
            Document::Stripe(stripe) => stripe,
            _ => return Err(DocumentError::OtherKind { id, wanted: Kind::Stripe }),
        };
        opener.check_stripe(id, &stripe)?;
        ids.extend_from_slice(&stripe.fragments()[..stripe.k() as usize]);
    }
    Ok(Pages::Ids(ids))
}

fn fetched_page(
    suite: Suite,
    id: &RecordId,
    fetch: &mut dyn FnMut(&RecordId) -> std::io::Result<Option<Bytes>>,
) -> Result<Page, DocumentError> {
    match fetched(suite, Kind::Page, id, fetch)? {
        Document::Page(page) => Ok(page),
        _ => Err(DocumentError::OtherKind { id: *id, wanted: Kind::Page }),
    }
}

fn fetched(
    suite: Suite,
    kind: Kind,
    id: &RecordId,
    fetch: &mut dyn FnMut(&RecordId) -> std::io::Result<Option<Bytes>>,
) -> Result<Document, DocumentError> {
    let bytes =
        fetch(id).map_err(DocumentError::Read)?.ok_or(DocumentError::Missing { kind, id: *id })?;
    prove(suite, &Record { kind, id: *id, place: (*id).into(), bytes })
}
