//! Why this side of the transport could not be set up.

use crypto::{Class, Classified};

/// Errors of setting up an identity or a listener. Errors of calls are `env::calls::CallError`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The TLS certificate could not be made.
    #[error("cannot make the TLS certificate")]
    Certificate(#[from] libp2p_tls::certificate::GenError),
    /// The identity's key was not taken by the certificate maker.
    #[error("the secret key does not fit a TLS certificate")]
    Key(#[from] libp2p_identity::DecodingError),
    /// The TLS library refused the configuration.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The listener could not be opened.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address asked for.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Callers would send their requests in the clear over a network.
    #[error("without TLS it listens on a loopback address alone, not on {address}")]
    NotLoopback {
        /// The address asked for.
        address: String,
    },
    /// The service descriptions for reflection do not load.
    #[error("the service descriptions do not load")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The gRPC server failed.
    #[error("the gRPC server failed")]
    Serve(#[from] tonic::transport::Error),
}

impl Classified for RpcError {
    fn class(&self) -> Class {
        match self {
            Self::Listen { .. } | Self::Serve(_) => Class::Unavailable,
            Self::Key(_) | Self::NotLoopback { .. } => Class::Invalid,
            Self::Certificate(_) | Self::Tls(_) | Self::Reflection(_) => Class::Bug,
        }
    }
}
