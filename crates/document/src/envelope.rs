//! An envelope: an entry's key sealed from its author to one reader.

use bytes::Bytes;
use crypto::{
    AuthorKey, EEK_CIPHERTEXT_BYTES, Eek, Kek, KekContext, Mac, NetworkId, ReaderKey, RecordId,
    SecretKey, Suite,
};

use crate::{DocumentError, fields, wire};

/// An entry's key, sealed to one reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The entry.
    pub entry: RecordId,
    /// The author's side of the pair of keys.
    pub author: AuthorKey,
    /// The reader's side.
    pub reader: ReaderKey,
    /// The sealed EEK.
    pub eek_ciphertext: [u8; EEK_CIPHERTEXT_BYTES],
    /// The MAC of `eek_ciphertext` under the KEK's MAC key.
    pub eek_ciphertext_mac: Mac,
}

impl Envelope {
    pub(crate) fn from_wire(wire: &wire::Envelope) -> Result<Self, DocumentError> {
        Ok(Self {
            entry: fields::id(&wire.entry, "entry key")?,
            author: AuthorKey::from_slice(&wire.author)?,
            reader: ReaderKey::from_slice(&wire.reader)?,
            eek_ciphertext: fields::fixed(&wire.eek_ciphertext, "EEK ciphertext")?,
            eek_ciphertext_mac: fields::fixed(&wire.eek_ciphertext_mac, "EEK MAC")?,
        })
    }

    /// All that [`Envelope::from_wire`] checks, but that the keys are points of the curve.
    pub(crate) fn check_form(wire: &wire::Envelope) -> Result<(), DocumentError> {
        fields::id(&wire.entry, "entry key")?;
        fields::key(&wire.author)?;
        fields::key(&wire.reader)?;
        fields::fixed::<EEK_CIPHERTEXT_BYTES>(&wire.eek_ciphertext, "EEK ciphertext")?;
        fields::fixed::<32>(&wire.eek_ciphertext_mac, "EEK MAC").map(drop)
    }

    pub(crate) fn to_wire(&self) -> wire::Envelope {
        wire::Envelope {
            entry: Bytes::copy_from_slice(self.entry.as_bytes()),
            author: Bytes::copy_from_slice(self.author.as_bytes()),
            reader: Bytes::copy_from_slice(self.reader.as_bytes()),
            eek_ciphertext: Bytes::copy_from_slice(&self.eek_ciphertext),
            eek_ciphertext_mac: Bytes::copy_from_slice(&self.eek_ciphertext_mac),
        }
    }

    /// Whether it was sealed between these two keys, whichever was the author's. In `libri-1` such a
    /// pair must not seal another EEK: key and nonce would repeat.
    pub fn is_between(&self, author: &AuthorKey, reader: &ReaderKey) -> bool {
        let ours = [self.author.as_bytes(), self.reader.as_bytes()];
        let theirs = [author.as_bytes(), reader.as_bytes()];
        ours == theirs || ours == [theirs[1], theirs[0]]
    }
}

/// Seals an entry's key to a reader. `network` is [`NetworkId::NONE`] offline.
///
/// In `libri-1` the caller makes sure that the pair of keys never sealed another EEK
/// ([`Envelope::is_between`]).
pub fn seal(
    suite: Suite,
    network: NetworkId,
    entry: RecordId,
    author: &SecretKey,
    reader: &ReaderKey,
    eek: &Eek,
) -> Envelope {
    let context =
        KekContext { network, entry, author: AuthorKey::new(author.public()), reader: *reader };
    let kek = Kek::derive(suite, author, reader.key(), &context);
    let (eek_ciphertext, eek_ciphertext_mac) = kek.seal_eek(suite, eek);
    Envelope {
        entry,
        author: context.author,
        reader: context.reader,
        eek_ciphertext,
        eek_ciphertext_mac,
    }
}

/// Opens an envelope with its reader's secret key.
///
/// # Errors
/// [`DocumentError::NotForReader`] where it is sealed to another key, [`DocumentError::Seal`] where it
/// was changed, or sealed in another network.
pub fn open(
    suite: Suite,
    network: NetworkId,
    envelope: &Envelope,
    reader: &SecretKey,
) -> Result<Eek, DocumentError> {
    if reader.public() != *envelope.reader.key() {
        return Err(DocumentError::NotForReader);
    }
    let context = KekContext {
        network,
        entry: envelope.entry,
        author: envelope.author,
        reader: envelope.reader,
    };
    let kek = Kek::derive(suite, reader, envelope.author.key(), &context);
    Ok(kek.open_eek(suite, &envelope.eek_ciphertext, &envelope.eek_ciphertext_mac)?)
}
