//! Why a librarian did not start or did not end well.

use crypto::{CertificateError, Class, Classified, PeerId};
use overlay::OverlayError;
use store::StoreError;

/// What stands in the way of a librarian. Errors of single calls are [`env::calls::CallError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LibrarianError {
    /// The certificate does not count in this network, or not now.
    #[error("the peer's certificate does not count")]
    Certificate(#[from] CertificateError),
    /// The certificate was made for another key.
    #[error("the certificate is for peer {certified}, and this peer's key is {own}")]
    OtherKey {
        /// Whom the certificate names.
        certified: PeerId,
        /// The key at hand.
        own: PeerId,
    },
    /// The store or the publication log.
    #[error("the peer's storage failed")]
    Store(#[from] StoreError),
    /// What the store has of versioned objects.
    #[error("the peer's versioned objects cannot be read")]
    Objects(#[from] objects::ObjectsError),
    /// The overlay.
    #[error("the overlay failed")]
    Overlay(#[from] OverlayError),
    /// The page of metrics cannot be served where it should be.
    #[error("cannot listen on {address} for metrics")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Metrics show how a peer is used, so they are served to its own machine alone.
    #[error("metrics are served on a loopback address only, not on {0}")]
    NotLoopback(std::net::SocketAddr),
}

impl Classified for LibrarianError {
    fn class(&self) -> Class {
        match self {
            Self::Certificate(source) => source.class(),
            Self::OtherKey { .. } => Class::Denied,
            Self::Store(source) => source.class(),
            Self::Objects(source) => source.class(),
            Self::Overlay(source) => source.class(),
            Self::Listen { .. } => Class::Unavailable,
            Self::NotLoopback(_) => Class::Invalid,
        }
    }
}
