//! `hold document show`: what anybody who holds a document can see of it.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use crypto::Suite;
use document::{Document, EntryContent};
use serde::Serialize;
use serde_json::Value;

use super::{ago, read_document};
use crate::error::HoldError;

/// `hold document show`.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The document
    #[arg(value_name = "FILE.doc")]
    file: PathBuf,
}

/// `hold document show`: what anybody who holds the document sees of it.
#[derive(Serialize)]
pub(crate) struct Shown {
    /// envelope, entry, page, parity or stripe.
    kind: &'static str,
    /// Length of the document.
    bytes: usize,
    /// Its id under this suite.
    #[serde(rename = "holdfast-1")]
    holdfast_1: String,
    /// Its id under this suite.
    #[serde(rename = "libri-1")]
    libri_1: String,
    /// What the kind has besides.
    #[serde(flatten)]
    fields: Fields,
}

/// What an envelope shows.
#[derive(Serialize)]
struct EnvelopeFields {
    /// The entry it opens.
    entry: String,
    /// The author's key of this envelope.
    author: String,
    /// The reader's key it is sealed to.
    reader: String,
}

/// What a page shows.
#[derive(Serialize)]
struct PageFields {
    /// The author's key of its entry.
    author: String,
    /// Which page it is, from 0.
    index: u32,
    /// Length of the sealed chunk.
    ciphertext: usize,
    /// Its MAC, in hex.
    mac: String,
}

/// What an entry shows.
#[derive(Serialize)]
struct EntryFields {
    /// The author's key of it.
    author: String,
    /// When it was made, Unix seconds.
    created: u32,
    /// How long that is ago, in seconds.
    seconds_ago: u64,
    /// Length of the sealed metadata.
    metadata: usize,
    /// Where the content is: inline, in pages, in stripes, or in lists of either.
    content: String,
    /// Ids of its pages, stripes or list pages.
    keys: Vec<String>,
}

/// What a parity fragment shows.
#[derive(Serialize)]
struct ParityFields {
    /// Which fragment of its stripe it is.
    index: u32,
    /// Length of the parity.
    parity: usize,
}

/// What a stripe's header shows.
#[derive(Serialize)]
struct StripeFields {
    /// How many of the fragments are pages; as many of any bring back the others.
    k: u32,
    /// How many fragments there are.
    n: u32,
    /// Lengths of the encoded pages.
    lengths: Vec<u32>,
    /// Ids of the fragments, pages first.
    fragments: Vec<String>,
}

/// What a kind has besides.
#[derive(Serialize)]
#[serde(untagged)]
enum Fields {
    Envelope(EnvelopeFields),
    Page(PageFields),
    Entry(EntryFields),
    Parity(ParityFields),
    Stripe(StripeFields),
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = serde_json::to_value(self).map_err(|_| fmt::Error)?;
        let empty = serde_json::Map::new();
        let fields = shown.as_object().unwrap_or(&empty);
        for (number, (name, value)) in fields.iter().enumerate() {
            let line = if number == 0 { "" } else { "\n" };
            match value {
                Value::String(text) => write!(f, "{line}{name:14} {text}")?,
                Value::Array(items) => {
                    let text = |item: &Value| match item {
                        Value::String(text) => text.clone(),
                        other => other.to_string(),
                    };
                    let items: Vec<_> = items.iter().map(text).collect();
                    write!(f, "{line}{name:14} {}", items.join("\n               "))?;
                }
                other => write!(f, "{line}{name:14} {other}")?,
            }
        }
        Ok(())
    }
}

impl Show {
    /// Decodes the file.
    pub(super) fn run(self) -> Result<Shown, HoldError> {
        let bytes = read_document(&self.file)?;
        let path = self.file;
        let document =
            Document::decode(&bytes).map_err(|source| HoldError::DocumentFile { path, source })?;
        Ok(Shown {
            kind: document.kind().name(),
            bytes: bytes.len(),
            holdfast_1: Suite::Holdfast1.id(&bytes).to_string(),
            libri_1: Suite::Libri1.id(&bytes).to_string(),
            fields: fields(&document),
        })
    }
}

fn fields(document: &Document) -> Fields {
    let ids =
        |ids: &[crypto::RecordId]| -> Vec<String> { ids.iter().map(ToString::to_string).collect() };
    match document {
        Document::Envelope(envelope) => Fields::Envelope(EnvelopeFields {
            entry: envelope.entry.to_string(),
            author: envelope.author.to_string(),
            reader: envelope.reader.to_string(),
        }),
        Document::Parity(parity) => {
            Fields::Parity(ParityFields { index: parity.index, parity: parity.bytes.len() })
        }
        Document::Stripe(stripe) => Fields::Stripe(StripeFields {
            k: stripe.k(),
            n: stripe.n(),
            lengths: stripe.lengths().to_vec(),
            fragments: ids(stripe.fragments()),
        }),
        Document::Page(page) => Fields::Page(PageFields {
            author: page.author.to_string(),
            index: page.index,
            ciphertext: page.ciphertext.len(),
            mac: hex::encode(page.mac),
        }),
        Document::Entry(entry) => {
            let (content, keys) = match &entry.content {
                EntryContent::Inline(page) => {
                    (format!("inline, {}", page.ciphertext.len()), vec![])
                }
                EntryContent::Pages(pages) => (format!("{} pages", pages.len()), ids(pages)),
                EntryContent::Lists(lists) => (format!("{} list pages", lists.len()), ids(lists)),
                EntryContent::Stripes { k, ids: stripes } => {
                    (format!("{} stripes of {k} pages", stripes.len()), ids(stripes))
                }
                EntryContent::ListedStripes { k, lists } => {
                    (format!("{} list pages of stripes of {k} pages", lists.len()), ids(lists))
                }
            };
            Fields::Entry(EntryFields {
                author: entry.author.to_string(),
                created: entry.created_time,
                seconds_ago: ago(entry.created_time).as_secs(),
                metadata: entry.metadata_ciphertext.len(),
                content,
                keys,
            })
        }
    }
}
