//! Whole documents without a network: content in, records out, and back. `hold document` stands on it.
//!
//! One chunk is in memory at a time, in [`stripes`] one segment. Where the bytes come from and the records
//! go to is the caller's.

pub mod stripes;

use std::io::{ErrorKind, Read, Write};

use bytes::Bytes;
use crypto::{AuthorKey, Eek, NetworkId, Place, ReaderKey, RecordId, SecretKey, Suite};

use crate::content::ContentCutter;
use crate::entry::EntryContent;
use crate::envelope::{self, Envelope};
use crate::macs::ContentMacs;
use crate::metadata::{ContentInfo, EntryMetadata, WholeMacs};
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
    let suite = sealing.suite;
    let mut emit = |record| emit(record).map_err(DocumentError::Write);
    let author = AuthorKey::new(sealing.author.public());
    let mut sealer = EntrySealer::new(suite, sealing.eek.clone(), author);
    let mut macs = sealer.macs();
    let mut cutter = ContentCutter::new(suite);
    // The first page is held back until it is known whether it is the only one.
    let (mut ids, mut held): (Vec<RecordId>, Option<SealedPage>) = (Vec::new(), None);
    let mut buffer = vec![0; READ_BYTES];
    let mut ended = false;
    while !ended {
        let read = read_some(content, &mut buffer)?;
        ended = read == 0;
        if macs.form() == WholeMacs::Bytes {
            macs.add_plaintext(&buffer[..read]);
        }
        let chunks = if ended {
            std::mem::replace(&mut cutter, ContentCutter::new(suite)).finish()?
        } else {
            cutter.push(&buffer[..read])?;
            std::iter::from_fn(|| cutter.next_chunk()).collect()
        };
        for chunk in chunks {
            let page = sealer.ticket()?.seal(&chunk)?;
            macs.add(&page);
            if let Some(before) = held.replace(page) {
                ids.push(before.record.id);
                emit(before.record)?;
            }
        }
    }
    let last = held.ok_or(DocumentError::Empty)?;
    let content = if ids.is_empty() {
        SealedContent::Single(Box::new(last))
    } else {
        ids.push(last.record.id);
        emit(last.record)?;
        SealedContent::Pages(ids)
    };
    conclude(sealing, sealer, macs, content, &mut emit)
}

/// Seals entry and envelope of a content whose pages are sealed.
fn conclude(
    sealing: Sealing<'_>,
    sealer: EntrySealer,
    macs: ContentMacs,
    content: SealedContent,
    emit: &mut dyn FnMut(Record) -> Result<(), DocumentError>,
) -> Result<Sealed, DocumentError> {
    let Sealing { suite, network, author, reader, eek, info, created_time } = sealing;
    let content_bytes = macs.plaintext_bytes();
    let finished = sealer.finish(macs, content, info, created_time)?;
    finished.page.into_iter().chain(finished.lists).try_for_each(&mut *emit)?;
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

/// Gives the bytes of a record by its id.
pub type Fetch<'a> = dyn FnMut(&RecordId) -> std::io::Result<Option<Bytes>> + 'a;

/// Opens the content of an envelope with its reader's key and writes it to `out`. `fetch` gives the bytes
/// of a record by its id, which are proven here. Of content in stripes all pages are needed:
/// [`open_with`] makes those again that are missing.
///
/// # Errors
/// [`DocumentError`]. What `out` got before an error is of no use, however much it is.
pub fn open(
    suite: Suite,
    network: NetworkId,
    envelope: &Envelope,
    reader: &SecretKey,
    fetch: &mut Fetch<'_>,
    out: &mut dyn Write,
) -> Result<EntryMetadata, DocumentError> {
    open_with(suite, network, envelope, reader, None, fetch, out)
}

/// As [`open`]; pages of stripes that `fetch` does not have are made again by the code from any k fragments
/// of their stripe.
///
/// # Errors
/// As [`open`]; [`DocumentError::TooFew`] where fewer than k are there.
pub fn open_with(
    suite: Suite,
    network: NetworkId,
    envelope: &Envelope,
    reader: &SecretKey,
    code: Option<&dyn stripes::Coder>,
    fetch: &mut Fetch<'_>,
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
        let chunk = opener.open_chunk(index, page, |len| vec![0; len])?;
        assembler.push(page, &chunk, &mut write)
    };
    let listed = |lists: &[RecordId], fetch: &mut Fetch<'_>| {
        let mut ids = Vec::new();
        for (id, list) in lists.iter().zip(0..) {
            ids.extend(opener.open_list(list, &fetched_page(suite, id, fetch)?)?);
        }
        Ok::<_, DocumentError>(ids)
    };
    let ids = match &entry.content {
        EntryContent::Inline(_) => Vec::new(),
        EntryContent::Pages(ids) | EntryContent::Stripes { ids, .. } => ids.clone(),
        EntryContent::Lists(lists) | EntryContent::ListedStripes { lists, .. } => {
            listed(lists, fetch)?
        }
    };
    if let EntryContent::Inline(page) = &entry.content {
        push(0, page)?;
    }
    let in_stripes = entry.content.stripe_pages().is_some();
    let mut index = 0;
    for id in ids {
        let pages = if in_stripes {
            stripes::pages(&opener, id, code, fetch)?
        } else {
            vec![fetched_page(suite, &id, fetch)?]
        };
        for page in pages {
            push(index, &page)?;
            index += 1;
        }
    }
    assembler.finish()?;
    Ok(opener.metadata().clone())
}

fn fetched_page(suite: Suite, id: &RecordId, fetch: &mut Fetch<'_>) -> Result<Page, DocumentError> {
    match fetched(suite, Kind::Page, id, fetch)? {
        Document::Page(page) => Ok(page),
        _ => Err(DocumentError::OtherKind { id: *id, wanted: Kind::Page }),
    }
}

fn fetched(
    suite: Suite,
    kind: Kind,
    id: &RecordId,
    fetch: &mut Fetch<'_>,
) -> Result<Document, DocumentError> {
    fetched_at(suite, kind, id, (*id).into(), fetch).map(|(_, document)| document)
}

fn fetched_at(
    suite: Suite,
    kind: Kind,
    id: &RecordId,
    place: Place,
    fetch: &mut Fetch<'_>,
) -> Result<(Record, Document), DocumentError> {
    let bytes =
        fetch(id).map_err(DocumentError::Read)?.ok_or(DocumentError::Missing { kind, id: *id })?;
    let record = Record { kind, id: *id, place, bytes };
    let document = prove(suite, &record)?;
    Ok((record, document))
}
