//! Keys whose organisation took its word back: forgotten at once, and told to the others.
//!
//! A revocation is news like an announcement. What the news do not reach the peers of the
//! organisation itself tell again: when they start, every [`crate::Rhythm::announce`], and when they learn of
//! a newcomer. Each peer keeps what it heard for its next start.
//!
//! Authors that run learn of it when they next ask what changed (`walk::REFRESH_EVERY`). Until then they may
//! ask a revoked peer; every record proves itself, so that costs time alone.

use bytes::Bytes;
use crypto::{CertificateError, PeerId, PublicKey};
use overlay::News;

use crate::core::Core;
use crate::spread;

impl Core {
    /// Takes a revocation; whether it was news.
    pub(crate) fn revoke(&self, revocation: &Bytes) -> Result<bool, CertificateError> {
        let revoked = self.directory.revoke(revocation)?;
        self.end_keys(&revoked.keys);
        self.end_peers(&revoked.peers);
        if revoked.newer {
            tracing::info!(keys = revoked.keys.len(), "an organisation revoked keys");
        }
        Ok(revoked.newer)
    }

    /// Ends what these callers have here.
    pub(crate) fn end_keys(&self, keys: &[PublicKey]) {
        for key in keys {
            // A key that another organisation vouches for introduces itself again.
            self.standings.remove(key);
            self.seats.end(key);
        }
    }

    /// Closes the links of peers that do not count any more, and ends what they have here.
    pub(crate) fn end_peers(&self, peers: &[PeerId]) {
        for peer in peers {
            tracing::warn!(%peer, "its organisation vouches for a peer no more, or left");
            self.seats.end(peer.key());
            self.overlay.forget(*peer);
        }
    }

    /// Tells the others what the own organisation revoked.
    pub(crate) async fn tell_revocation(&self) {
        if let Some(bytes) = self.directory.revocation_of(&self.organisation()) {
            spread::publish_once(self.overlay.as_ref(), News::Revocation(bytes)).await;
        }
    }
}
