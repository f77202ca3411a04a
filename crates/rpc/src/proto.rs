//! The generated messages, client and server of package `holdfast.v1`.
#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; the .proto documents it")]

tonic::include_proto!("holdfast.v1");

/// The compiled `.proto` files, for reflection.
pub(crate) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/holdfast.bin"));
