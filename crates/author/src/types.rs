//! What a put and a get are asked for, and what they tell.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crypto::{AuthorKey, OrgId, PeerId, ReaderKey, RecordId};
pub use document::metadata::SchemaArtifact;
use document::{Kind, Publication};
use placement::Profile;

use crate::window::WINDOW_BYTES;

/// Readers that one put seals its entry's key to, at most.
pub const READERS_MAX: usize = 1_024;
/// Librarians that an inbox listens to at once.
pub const LIBRARIANS_MAX: usize = 3;

/// How an author works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorOptions {
    /// Bytes in flight of all its puts and gets together (see `docs/concepts/documents.md`), from 8 MiB to 1 GiB.
    pub window_bytes: usize,
}

impl Default for AuthorOptions {
    fn default() -> Self {
        Self { window_bytes: WINDOW_BYTES }
    }
}

/// What a put is asked for. The default is content without a name, for the author alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Its name or path, sealed with it.
    pub name: Option<String>,
    /// Its media type; by the end of the name where absent.
    pub media_type: Option<String>,
    /// Whom to share it with at once, at most [`READERS_MAX`].
    pub readers: Vec<ReaderKey>,
    /// How long the content will probably be, in bytes; for progress alone.
    pub size_hint: Option<u64>,
    /// Whatever else is to be sealed with it.
    pub properties: BTreeMap<String, Vec<u8>>,
    /// Where its schema is found.
    pub schema: Option<SchemaArtifact>,
    /// Where its data dictionary is found.
    pub data_dictionary: Option<SchemaArtifact>,
    /// How it is kept, in copies or in stripes; by the network's genesis, or the number of peers known, where absent.
    pub profile: Option<Profile>,
    /// How long it is paid for, in seconds; as the author's payer says where absent.
    pub lease_seconds: Option<u64>,
    /// How long to wait, after all is acknowledged, for all copies; [`FULL_WAIT`](crate::FULL_WAIT) where absent.
    pub full_wait: Option<Duration>,
}

/// What a put reached.
#[derive(Clone, Debug, PartialEq)]
pub struct PutReport {
    /// What it is found by: the key of the envelope to the author's own reader key.
    pub address: RecordId,
    /// Its entry.
    pub entry: RecordId,
    /// Bytes of the content.
    pub bytes: u64,
    /// Bytes of records at all holders that acknowledged, in this run and in the interrupted one that it went on with.
    pub stored: u64,
    /// Bytes of records that this run sent, all copies counted.
    pub sent: u64,
    /// What an interrupted put had stored and this run did not send again.
    pub resumed: Resumed,
    /// Copies acknowledged of the record, or fragments of the stripe, that has the fewest of those it wants.
    pub acked: u32,
    /// Copies wanted of that record, or fragments of that stripe.
    pub wanted: u32,
    /// Whether every record has all the copies it wants, and every stripe all its fragments.
    pub full: bool,
    /// How the content is kept: in no more copies than there were peers. What lies in its entry has the entry's copies.
    pub profile: Profile,
    /// Until when it is paid for, Unix seconds; `None` where nobody pays for this user.
    pub until: Option<u64>,
    /// Whether the home notes until when; where it could not be written, [`Author::paid`](crate::Author::paid) does not know of this content.
    pub noted: bool,
    /// Whether the file has another length or was written to since the put began: what is stored may be no state that it ever had.
    pub changed: bool,
    /// How long it took, in seconds, the wait for the last copies included.
    pub seconds: f64,
    /// The envelopes to other readers, in the order they were asked for.
    pub envelopes: Vec<SharedTo>,
}

/// Pages that an interrupted put had stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// Bytes of their records, one copy counted.
    pub bytes: u64,
    /// How many.
    pub pages: u64,
}

/// An envelope to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedTo {
    /// Who can open it.
    pub reader: ReaderKey,
    /// The envelope's key.
    pub address: RecordId,
}

/// What is sealed with a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// Bytes of the content.
    pub size: u64,
    /// Its media type; may be empty.
    pub media_type: String,
    /// The name its author gave it. It is what a stranger wrote: never use it as a path.
    pub name: Option<String>,
    /// Whatever else its author sealed with it.
    pub properties: BTreeMap<String, Vec<u8>>,
    /// Where its author says its schema is found.
    pub schema: Option<SchemaArtifact>,
    /// Where its author says its data dictionary is found.
    pub data_dictionary: Option<SchemaArtifact>,
}

/// What a get reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetReport {
    /// Bytes written to the sink.
    pub bytes: u64,
    /// Whether any record had to be sought past a holder that was down, slow or wrong, or a page made again from parity.
    pub degraded: bool,
    /// What is sealed with the content.
    pub details: Details,
}

/// What is known about a content and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The envelope it was found by.
    pub envelope: RecordId,
    /// Its entry.
    pub entry: RecordId,
    /// Who sealed the envelope (a key used once).
    pub author: AuthorKey,
    /// What is sealed with it.
    pub details: Details,
    /// When it was made as its author says, Unix seconds.
    pub created_s: u32,
    /// How its pages are kept; `None` where the content lies in the entry.
    pub profile: Option<Profile>,
    /// Its pages; 0 where the content lies in the entry.
    pub pages: u64,
    /// Its stripes; 0 where it is not in stripes.
    pub stripes: u64,
    /// Those of its stripes, or of its pages where it is not in stripes, that are not told: there are too many.
    pub untold: u64,
    /// Its records and who holds them, the envelope and the entry first.
    pub fragments: Vec<Fragment>,
}

/// One record of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Which record.
    pub id: RecordId,
    /// What it is.
    pub kind: Kind,
    /// Which page, for pages: list pages from 2^31.
    pub index: Option<u32>,
    /// Which stripe it is of, where it is of one.
    pub stripe: Option<u32>,
    /// Its number in that stripe: pages from 0 to k - 1, then parity.
    pub number: Option<u32>,
    /// Those that hold it or should.
    pub holders: Vec<Holder>,
}

/// A peer that holds a record or should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Which peer.
    pub peer: PeerId,
    /// Whose peer.
    pub organisation: Option<OrgId>,
    /// Whether it answered at all.
    pub reachable: bool,
    /// Whether it proved that it holds the record.
    pub held: bool,
}

/// An envelope that somebody addressed to this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The envelope's key: what to get it by.
    pub address: RecordId,
    /// Who sealed it (a key used once: it proves nothing about a person).
    pub author: AuthorKey,
    /// The entry whose key it seals.
    pub entry: RecordId,
    /// To which of this user's keys.
    pub reader: ReaderKey,
    /// When a librarian logged it, Unix milliseconds.
    pub received_ms: u64,
    /// Whether the envelope was fetched and says the same. Where its holders could not be asked, a librarian's word is all
    /// there is.
    pub proven: bool,
}

impl Received {
    pub(crate) fn new(publication: &Publication, received_ms: u64, proven: bool) -> Self {
        let Publication { envelope, entry, author, reader } = *publication;
        Self { address: envelope, author, entry, reader, received_ms, proven }
    }
}

/// A byte range that ends no later than the content, checked.
pub(crate) fn checked_range(
    range: Option<Range<u64>>,
    size: u64,
) -> Result<Range<u64>, Range<u64>> {
    match range {
        None => Ok(0..size),
        Some(range) if range.start <= range.end && range.end <= size => Ok(range),
        Some(range) => Err(range),
    }
}
