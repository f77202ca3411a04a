//! `hold document show`: what anybody who holds a document can see of it.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use crypto::Suite;
use document::{Document, EntryContent};
use serde_json::{Value, json};

use super::{ago, read_document};
use crate::error::HoldError;

/// `hold document show`.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The document
    #[arg(value_name = "FILE.doc")]
    file: PathBuf,
}

/// A document's visible fields, by name.
#[derive(serde::Serialize)]
#[serde(transparent)]
pub(crate) struct Shown(Value);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let empty = serde_json::Map::new();
        let fields = self.0.as_object().unwrap_or(&empty);
        for (number, (name, value)) in fields.iter().enumerate() {
            let line = if number == 0 { "" } else { "\n" };
            match value {
                Value::String(text) => write!(f, "{line}{name:14} {text}")?,
                Value::Array(items) => {
                    let items: Vec<_> = items.iter().filter_map(Value::as_str).collect();
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
        let document = Document::decode(&bytes)?;
        let mut shown = json!({
            "kind": document.kind().name(),
            "bytes": bytes.len(),
            "holdfast-1": Suite::Holdfast1.id(&bytes).to_string(),
            "libri-1": Suite::Libri1.id(&bytes).to_string(),
        });
        let fields = fields(&document);
        if let (Some(shown), Value::Object(fields)) = (shown.as_object_mut(), fields) {
            shown.extend(fields);
        }
        Ok(Shown(shown))
    }
}

fn fields(document: &Document) -> Value {
    match document {
        Document::Envelope(envelope) => json!({
            "entry": envelope.entry.to_string(),
            "author": envelope.author.to_string(),
            "reader": envelope.reader.to_string(),
        }),
        Document::Page(page) => json!({
            "author": page.author.to_string(),
            "index": page.index,
            "ciphertext": page.ciphertext.len(),
            "mac": hex::encode(page.mac),
        }),
        Document::Entry(entry) => {
            let ids = |ids: &[crypto::RecordId]| -> Vec<String> {
                ids.iter().map(ToString::to_string).collect()
            };
            let (content, pages) = match &entry.content {
                EntryContent::Inline(page) => {
                    (format!("inline, {}", page.ciphertext.len()), vec![])
                }
                EntryContent::Pages(pages) => (format!("{} pages", pages.len()), ids(pages)),
                EntryContent::Lists(lists) => (format!("{} list pages", lists.len()), ids(lists)),
            };
            json!({
                "author": entry.author.to_string(),
                "created": entry.created_time,
                "seconds_ago": ago(entry.created_time).as_secs(),
                "metadata": entry.metadata_ciphertext.len(),
                "content": content,
                "keys": pages,
            })
        }
    }
}
