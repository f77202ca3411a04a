//! Keys whose organisation took its word back: forgotten at once, and told to the others.
//!
//! A revocation is news like an announcement. What the news do not reach the peers of the
//! organisation itself tell again: when they start, every [`crate::Rhythm::announce`], and when they learn of
//! a newcomer. Each peer keeps what it heard for its next start.
//!
//! Limits: authors learn of revoked peers by not being told of them any more; one that runs goes on
//! asking such a peer until it starts anew. Every record proves itself, so that costs time alone.

use bytes::Bytes;
use crypto::CertificateError;
use overlay::News;

use crate::core::Core;
use crate::spread;

impl Core {
    /// Takes a revocation; whether it was news.
    pub(crate) fn revoke(&self, revocation: &Bytes) -> Result<bool, CertificateError> {
        let revoked = self.directory.revoke(revocation)?;
        for key in &revoked.keys {
            // A key that another organisation vouches for introduces itself again.
            self.standings.remove(key);
            self.seats.end(key);
        }
        for peer in &revoked.peers {
            tracing::warn!(%peer, "its organisation revoked a peer");
            self.overlay.forget(*peer);
        }
        if revoked.newer {
            tracing::info!(keys = revoked.keys.len(), "an organisation revoked keys");
        }
        Ok(revoked.newer)
    }

    /// Tells the others what the own organisation revoked.
    pub(crate) async fn tell_revocation(&self) {
        if let Some(bytes) = self.directory.revocation_of(&self.organisation) {
            spread::publish_once(self.overlay.as_ref(), News::Revocation(bytes)).await;
        }
    }
}
