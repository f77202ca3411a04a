//! A publication: the news that an envelope was stored, told to those who follow its keys.
//!
//! It says nothing that the envelope does not: whoever has the envelope's bytes derives it, so a
//! publication is proven by the record it names.
//!
//! A peer hears of all envelopes of its network, and uses almost none. So for what is only logged and passed on
//! ([`Publication::told_by`], [`Publication::keys`]) the form of a key is checked, and not that it is a point of
//! the curve, which costs more than all the rest; who uses a publication decodes it, and finds out.

use bytes::Bytes;
use crypto::{AuthorKey, ReaderKey, RecordId, Suite, canonical};
use prost::Message;

use crate::document::check_fields;
use crate::envelope::Envelope;
use crate::{DOCUMENT_BYTES_MAX, DocumentError, Kind, fields, wire};

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
        let wire = from_bytes(bytes)?;
        Ok(Self {
            envelope: fields::id(&wire.envelope, "envelope key")?,
            entry: fields::id(&wire.entry, "entry key")?,
            author: AuthorKey::from_slice(&wire.author)?,
            reader: ReaderKey::from_slice(&wire.reader)?,
        })
    }

    /// The id of an encoded envelope, and the canonical bytes of its publication, without looking whether its keys
    /// are points of the curve.
    ///
    /// # Errors
    /// [`DocumentError`] for what is no envelope by its form.
    pub fn told_by(suite: Suite, envelope: &Bytes) -> Result<(RecordId, Bytes), DocumentError> {
        if envelope.len() > DOCUMENT_BYTES_MAX {
            return Err(DocumentError::TooLarge { found: envelope.len(), max: DOCUMENT_BYTES_MAX });
        }
        check_fields(envelope)?;
        let wire: wire::Document = canonical::decode(envelope)?;
        let id = suite.id(envelope);
        let Some(wire::Contents::Envelope(wire)) = wire.contents else {
            return Err(DocumentError::OtherKind { id, wanted: Kind::Envelope });
        };
        Envelope::check_form(&wire)?;
        let publication = wire::Publication {
            envelope: Bytes::copy_from_slice(id.as_bytes()),
            entry: wire.entry,
            author: wire.author,
            reader: wire.reader,
        };
        Ok((id, publication.encode_to_vec().into()))
    }

    /// The author's and the reader's key of an encoded publication, 33 bytes each, as [`Publication::told_by`] left
    /// them.
    ///
    /// # Errors
    /// [`DocumentError`] for what is no publication by its form.
    pub fn keys(bytes: &Bytes) -> Result<(Bytes, Bytes), DocumentError> {
        let wire = from_bytes(bytes)?;
        fields::key(&wire.author)?;
        fields::key(&wire.reader)?;
        Ok((wire.author, wire.reader))
    }

    /// The envelope that an encoded publication names.
    ///
    /// # Errors
    /// [`DocumentError`] for what is no publication by its form.
    pub fn envelope_of(bytes: &Bytes) -> Result<RecordId, DocumentError> {
        fields::id(&from_bytes(bytes)?.envelope, "envelope key")
    }

    /// Its key: the suite's hash of its encoding.
    pub fn key(&self, suite: Suite) -> RecordId {
        suite.id(&self.encode())
    }
}

fn from_bytes(bytes: &Bytes) -> Result<wire::Publication, DocumentError> {
    if bytes.len() > PUBLICATION_BYTES_MAX {
        return Err(DocumentError::TooLarge { found: bytes.len(), max: PUBLICATION_BYTES_MAX });
    }
    Ok(canonical::decode(bytes)?)
}
