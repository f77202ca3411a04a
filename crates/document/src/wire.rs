//! The protobuf messages as they are on the wire, before any check. Field numbers are Libri's.

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Document {
    #[prost(oneof = "Contents", tags = "1, 2, 3, 4, 5")]
    pub(crate) contents: Option<Contents>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Contents {
    #[prost(message, tag = "1")]
    Envelope(Envelope),
    #[prost(message, tag = "2")]
    Entry(Entry),
    #[prost(message, tag = "3")]
    Page(Page),
    #[prost(message, tag = "4")]
    Parity(Parity),
    #[prost(message, tag = "5")]
    Stripe(Stripe),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Page {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) author: Bytes,
    #[prost(uint32, tag = "2")]
    pub(crate) index: u32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) ciphertext: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) mac: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) author: Bytes,
    #[prost(message, optional, tag = "2")]
    pub(crate) page: Option<Page>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(crate) page_keys: Vec<Bytes>,
    #[prost(uint32, tag = "4")]
    pub(crate) created_time: u32,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) metadata_ciphertext: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    pub(crate) metadata_ciphertext_mac: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub(crate) stripes: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub(crate) list_keys: Vec<Bytes>,
    #[prost(uint32, tag = "9")]
    pub(crate) stripe_pages: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Parity {
    #[prost(uint32, tag = "1")]
    pub(crate) index: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) bytes: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Stripe {
    #[prost(uint32, tag = "1")]
    pub(crate) k: u32,
    #[prost(uint32, repeated, tag = "2")]
    pub(crate) lengths: Vec<u32>,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) fragments: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Envelope {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) entry: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) author: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) reader: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) eek_ciphertext: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) eek_ciphertext_mac: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Publication {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) envelope: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) entry: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) author: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) reader: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    #[prost(string, tag = "1")]
    pub(crate) media_type: String,
    #[prost(uint32, tag = "2")]
    pub(crate) codec: u32,
    #[prost(uint64, tag = "3")]
    pub(crate) ciphertext_size: u64,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) ciphertext_mac: Bytes,
    #[prost(uint64, tag = "5")]
    pub(crate) uncompressed_size: u64,
    #[prost(bytes = "bytes", tag = "6")]
    pub(crate) uncompressed_mac: Bytes,
    #[prost(btree_map = "string, bytes", tag = "7")]
    pub(crate) properties: std::collections::BTreeMap<String, Vec<u8>>,
    #[prost(string, tag = "8")]
    pub(crate) filepath: String,
    #[prost(message, optional, tag = "9")]
    pub(crate) schema: Option<SchemaArtifact>,
    #[prost(message, optional, tag = "10")]
    pub(crate) data_dictionary: Option<SchemaArtifact>,
    #[prost(uint32, tag = "11")]
    pub(crate) whole_macs: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SchemaArtifact {
    #[prost(string, tag = "1")]
    pub(crate) group: String,
    #[prost(string, tag = "2")]
    pub(crate) project: String,
    #[prost(string, tag = "3")]
    pub(crate) path: String,
    #[prost(string, tag = "4")]
    pub(crate) name: String,
    #[prost(string, tag = "5")]
    pub(crate) version: String,
}
