//! A publication: the news that an envelope was stored, told to those who follow its keys.
//!
//! It says nothing that the envelope does not: whoever has the envelope's bytes derives it, so a
//! publication is proven by the record it names.

use bytes::Bytes;
use crypto::{AuthorKey, ReaderKey, RecordId, Suite, canonical};
use prost::Message;

use crate::envelope::Envelope;
use crate::{DocumentError, fields, wire};

/// The longest encoded publication, in bytes.
pub const PUBLICATION_BYTES_MAX: usize = 2 * 34 + 2 * 35;

/// News of one envelope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Publication {
    /// The envelope.
    pub envelope: RecordId,
    /// The entry whose key it seals.
    pub entry: RecordId,
    /// The author's key.
    pub author: AuthorKey,
    /// The reader's key.
    pub reader: ReaderKey,
}

impl Publication {
    /// The publication of the envelope with this id.
    pub fn from_envelope(id: RecordId, envelope: &Envelope) -> Self {
        Self {
            envelope: id,
            entry: envelope.entry,
            author: envelope.author,
            reader: envelope.reader,
        }
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Bytes {
        wire::Publication {
            envelope: Bytes::copy_from_slice(self.envelope.as_bytes()),
            entry: Bytes::copy_from_slice(self.entry.as_bytes()),
            author: Bytes::copy_from_slice(self.author.as_bytes()),
            reader: Bytes::copy_from_slice(self.reader.as_bytes()),
        }
        .encode_to_vec()
        .into()
    }

    /// Decodes and checks.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, DocumentError> {
        if bytes.len() > PUBLICATION_BYTES_MAX {
            return Err(DocumentError::TooLarge { found: bytes.len(), max: PUBLICATION_BYTES_MAX });
        }
        let wire: wire::Publication = canonical::decode(bytes)?;
        Ok(Self {
            envelope: fields::id(&wire.envelope, "envelope key")?,
            entry: fields::id(&wire.entry, "entry key")?,
            author: AuthorKey::from_slice(&wire.author)?,
            reader: ReaderKey::from_slice(&wire.reader)?,
        })
    }

    /// Its key: the suite's hash of its encoding.
    pub fn key(&self, suite: Suite) -> RecordId {
        suite.id(&self.encode())
    }
}
