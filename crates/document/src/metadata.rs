//! An entry's metadata: what is known of the content, sealed under the entry's key.
//!
//! Peers never see it and no id covers its plaintext, so it need not be canonical: it is decoded in any
//! field order, and fields this release does not know are skipped, so that a later one can add some. A
//! field or a property given twice is refused: two decoders could pick different ones. It is written with
//! fields ascending and properties in byte order of their names.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes};
use crypto::Mac;
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::error::MetadataError;
use crate::wire;

/// The longest encoded metadata beside an inline page, in bytes.
pub const METADATA_INLINE_BYTES_MAX: usize = 512;
/// The longest encoded metadata, in bytes.
pub const METADATA_BYTES_MAX: usize = 256 << 10;

/// How content was compressed before it was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompressionCodec {
    /// Not at all (`libri-1`).
    None,
    /// The whole stream by gzip, then cut (`libri-1`).
    Gzip,
    /// Each chunk by itself, by zstd where that shrinks it (`holdfast-1`).
    ZstdChunks,
}

impl CompressionCodec {
    const fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::ZstdChunks => 2,
        }
    }

    /// Its name, in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::ZstdChunks => "zstd-chunks",
        }
    }
}

/// What the MACs over the whole of a content cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WholeMacs {
    /// Its bytes and those of all page ciphertexts, joined (`libri-1`, and `holdfast-1` before 29 November 2026).
    Bytes,
    /// The tags of its chunks and the MACs of its pages, in order, these being of the pages' tags (`holdfast-1`).
    Tags,
}

impl WholeMacs {
    const fn number(self) -> u32 {
        match self {
            Self::Bytes => 0,
            // 1 was of MACs of all of each part's bytes, for one day and in no release.
            Self::Tags => 2,
        }
    }
}

/// Where a schema or a data dictionary is found.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SchemaArtifact {
    /// Whose project.
    pub group: String,
    /// Which project.
    pub project: String,
    /// Path of the file in it.
    pub path: String,
    /// Name within the file.
    pub name: String,
    /// Version.
    pub version: String,
}

/// What the author says of a content; all of it may be empty.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ContentInfo {
    /// Its MIME type.
    pub media_type: String,
    /// Its name or relative path.
    pub filepath: String,
    /// Anything else, by name.
    pub properties: BTreeMap<String, Vec<u8>>,
    /// Its schema.
    pub schema: Option<SchemaArtifact>,
    /// Its data dictionary.
    pub data_dictionary: Option<SchemaArtifact>,
}

/// An entry's metadata.
#[derive(Clone, PartialEq, Eq)]
pub struct EntryMetadata {
    /// What the author says of the content.
    pub info: ContentInfo,
    /// How it was compressed.
    pub codec: CompressionCodec,
    /// Bytes of all page ciphertexts together, tags included, list pages not.
    pub ciphertext_size: u64,
    /// The MAC of all page ciphertexts, as `whole_macs` says.
    pub ciphertext_mac: Mac,
    /// The content's bytes.
    pub uncompressed_size: u64,
    /// The MAC of the content, as `whole_macs` says.
    pub uncompressed_mac: Mac,
    /// What these two MACs cover.
    pub whole_macs: WholeMacs,
}

impl EntryMetadata {
    /// Decodes and checks.
    ///
    /// # Errors
    /// [`MetadataError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MetadataError> {
        if bytes.len() > METADATA_BYTES_MAX {
            return Err(MetadataError::TooLarge { found: bytes.len(), max: METADATA_BYTES_MAX });
        }
        refuse_duplicates(bytes, Fields::Metadata)?;
        let wire = wire::Metadata::decode(bytes)?;
        Ok(Self {
            info: ContentInfo {
                media_type: wire.media_type,
                filepath: wire.filepath,
                properties: wire.properties,
                schema: wire.schema.map(SchemaArtifact::from_wire),
                data_dictionary: wire.data_dictionary.map(SchemaArtifact::from_wire),
            },
            codec: match wire.codec {
                0 => CompressionCodec::None,
                1 => CompressionCodec::Gzip,
                2 => CompressionCodec::ZstdChunks,
                _ => return Err(MetadataError::Field("compression codec")),
            },
            ciphertext_size: wire.ciphertext_size,
            ciphertext_mac: mac(&wire.ciphertext_mac, "ciphertext MAC")?,
            uncompressed_size: wire.uncompressed_size,
            uncompressed_mac: mac(&wire.uncompressed_mac, "plaintext MAC")?,
            whole_macs: match wire.whole_macs {
                0 => WholeMacs::Bytes,
                2 => WholeMacs::Tags,
                _ => return Err(MetadataError::Field("what the MACs over the whole cover")),
            },
        })
    }

    /// The bytes to be sealed.
    ///
    /// # Errors
    /// [`MetadataError::TooLarge`].
    pub fn encode(&self) -> Result<Vec<u8>, MetadataError> {
        let artifact =
            |artifact: &Option<SchemaArtifact>| artifact.as_ref().map(SchemaArtifact::to_wire);
        let wire = wire::Metadata {
            media_type: self.info.media_type.clone(),
            codec: self.codec.number(),
            ciphertext_size: self.ciphertext_size,
            ciphertext_mac: Bytes::copy_from_slice(&self.ciphertext_mac),
            uncompressed_size: self.uncompressed_size,
            uncompressed_mac: Bytes::copy_from_slice(&self.uncompressed_mac),
            properties: self.info.properties.clone(),
            filepath: self.info.filepath.clone(),
            schema: artifact(&self.info.schema),
            data_dictionary: artifact(&self.info.data_dictionary),
            whole_macs: self.whole_macs.number(),
        };
        let found = wire.encoded_len();
        if found > METADATA_BYTES_MAX {
            return Err(MetadataError::TooLarge { found, max: METADATA_BYTES_MAX });
        }
        Ok(wire.encode_to_vec())
    }
}

impl std::fmt::Debug for EntryMetadata {
    /// Sizes alone: names and types are sealed and belong in no log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EntryMetadata({} bytes, {})", self.uncompressed_size, self.codec.name())
    }
}

impl SchemaArtifact {
    fn from_wire(wire: wire::SchemaArtifact) -> Self {
        let wire::SchemaArtifact { group, project, path, name, version } = wire;
        Self { group, project, path, name, version }
    }

    fn to_wire(&self) -> wire::SchemaArtifact {
        wire::SchemaArtifact {
            group: self.group.clone(),
            project: self.project.clone(),
            path: self.path.clone(),
            name: self.name.clone(),
            version: self.version.clone(),
        }
    }
}

fn mac(bytes: &[u8], name: &'static str) -> Result<Mac, MetadataError> {
    let mac: Mac = bytes.try_into().map_err(|_| MetadataError::Field(name))?;
    if mac == [0; 32] { Err(MetadataError::Field(name)) } else { Ok(mac) }
}

/// Which message's fields are looked through.
#[derive(Clone, Copy, PartialEq)]
enum Fields {
    Metadata,
    Property,
    Artifact,
}

/// Refuses a known field that stands twice, in the message or in one within it, and a property named
/// twice. protobuf decoders take the last silently.
fn refuse_duplicates(bytes: &[u8], fields: Fields) -> Result<(), MetadataError> {
    let mut rest = bytes;
    let mut seen = BTreeSet::new();
    let mut names = BTreeSet::new();
    while rest.has_remaining() {
        let (tag, wire_type) = decode_key(&mut rest)?;
        let known = match fields {
            Fields::Metadata => (1..=11).contains(&tag),
            Fields::Property => (1..=2).contains(&tag),
            Fields::Artifact => (1..=5).contains(&tag),
        };
        let repeated = fields == Fields::Metadata && tag == 7;
        if known && !repeated && !seen.insert(tag) {
            return Err(MetadataError::Duplicate);
        }
        let within = match (fields, tag) {
            (Fields::Metadata, 7) => Some(Fields::Property),
            (Fields::Metadata, 9 | 10) => Some(Fields::Artifact),
            _ => None,
        };
        match within {
            Some(within) if wire_type == WireType::LengthDelimited => {
                let message = length_delimited(&mut rest)?;
                refuse_duplicates(message, within)?;
                if repeated && !names.insert(property_name(message)?) {
                    return Err(MetadataError::Duplicate);
                }
            }
            _ => skip_field(wire_type, tag, &mut rest, DecodeContext::default())?,
        }
    }
    Ok(())
}

/// The name in one property; an absent one is the empty name.
fn property_name(mut rest: &[u8]) -> Result<&[u8], MetadataError> {
    while rest.has_remaining() {
        let (tag, wire_type) = decode_key(&mut rest)?;
        if tag == 1 && wire_type == WireType::LengthDelimited {
            return length_delimited(&mut rest);
        }
        skip_field(wire_type, tag, &mut rest, DecodeContext::default())?;
    }
    Ok(&[])
}

fn length_delimited<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], MetadataError> {
    let length = decode_varint(rest)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let (message, after) =
        rest.split_at_checked(length).ok_or(MetadataError::Field("length of a field"))?;
    *rest = after;
    Ok(message)
}

#[cfg(test)]
mod tests;
