//! Authenticated gRPC between peers and from authors: `env::calls` over mutual TLS.
//!
//! [`Client`] is the asking side (`env::calls::Calls`), [`Server`] answers with any
//! `env::calls::Service`. Both prove a secp256k1 key by an [`Identity`] and refuse other networks in
//! the handshake. gRPC moves records and nothing else: finding peers and spreading news is
//! `overlay`'s. Measured on the design's machine, tonic over TLS moves 2 MiB messages three times as
//! fast as libp2p streams or QUIC, and every language has a client.
//!
//! Callers that cannot show a certificate have a second listener, [`SignedServer`], at which each
//! request is signed; [`Client::signed`] speaks it.
//!
//! It is not a place for policy: who may do what, and how much, is decided by the service.
//! The bytes are in `docs/formats/wire.md`.

mod client;
mod codec;
mod convert;
mod error;
mod framing;
mod identity;
mod limits;
mod paced;
pub mod proto;
mod proven;
mod server;
mod signing;
mod socket;
mod status;
mod strides;
mod verifier;

pub use client::{Client, CredentialSource, SignedDial};
pub use error::RpcError;
pub use identity::{Identity, cipher_suites};
pub use limits::{
    BATCH_MESSAGE_BYTES_MAX, ClientLimits, RECORD_BYTES_MAX, RECORD_MESSAGE_BYTES_MAX,
    SMALL_MESSAGE_BYTES_MAX, ServerLimits,
};
pub use server::Server;
pub use server::signed::{REMEMBERED_IDS_MAX, SignedOptions, SignedServer, SignedTransport};
pub use socket::{Dial, Duplex, Listen, unpaced};

#[cfg(test)]
mod tests;
