//! What this peer says about itself: its newest signed announcement.
//!
//! It is there before the overlay and the transport are, because both need it (the transport
//! introduces the peer on each connection), and it is signed anew when the overlay's addresses are
//! known, when the peer's state changes, when its calendar was set, and every hour. Sequences are
//! Unix milliseconds and rise even where the clock does not: of two announcements the higher sequence
//! counts. Only one that was signed while the calendar was far ahead is not gone on from: others
//! refuse it, and would refuse what comes after it, until its time has come.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use crypto::certificate::CLOCK_SKEW_S;
use crypto::{Announcement, NetworkId, PeerCertificate, PeerId, PeerState, Roster, SecretKey};
use env::calls::Credential;

use crate::error::LibrarianError;

/// Signs and keeps the own announcement.
pub(crate) struct Announcer {
    secret: SecretKey,
    network: NetworkId,
    current: Mutex<(Announcement, Bytes)>,
}

/// The sequence after `last`, at this time.
fn next_sequence(last: u64, unix_ms: u64) -> u64 {
    // What `Announcement::verify` takes as the latest: nobody whose calendar is right has a later one.
    let latest = (unix_ms / 1000).saturating_add(CLOCK_SKEW_S).saturating_mul(1000);
    if last < latest { unix_ms.max(last + 1) } else { unix_ms }
}

impl Announcer {
    /// Checks the certificate and signs a first announcement.
    ///
    /// `after` is the highest sequence this peer is known to have used.
    pub(crate) fn new(
        secret: SecretKey,
        roster: &Roster,
        certificate: Bytes,
        state: PeerState,
        after: u64,
        unix_ms: u64,
    ) -> Result<Self, LibrarianError> {
        let checked = PeerCertificate::verify(&certificate, roster, unix_ms / 1000)?;
        let own = PeerId::new(secret.public());
        if checked.peer != own {
            return Err(LibrarianError::OtherKey { certified: checked.peer, own });
        }
        let announcement = Announcement {
            certificate: checked,
            certificate_bytes: certificate,
            sequence: unix_ms.max(after.saturating_add(1)),
            p2p_addresses: Vec::new(),
            state,
        };
        let network = roster.network();
        let bytes = announcement.sign(&secret, &network);
        Ok(Self { secret, network, current: Mutex::new((announcement, bytes)) })
    }

    /// This peer.
    pub(crate) fn own(&self) -> PeerId {
        PeerId::new(self.secret.public())
    }

    /// The newest announcement, signed.
    pub(crate) fn bytes(&self) -> Bytes {
        self.lock().1.clone()
    }

    /// The newest announcement.
    pub(crate) fn announcement(&self) -> Announcement {
        self.lock().0.clone()
    }

    /// What vouches for this peer.
    pub(crate) fn credential(&self) -> Credential {
        Credential::Peer(self.bytes())
    }

    /// Whether the newest announcement says this.
    pub(crate) fn says(&self, p2p_addresses: &[String], state: PeerState) -> bool {
        let current = self.lock();
        current.0.p2p_addresses == p2p_addresses && current.0.state == state
    }

    /// Signs a newer announcement.
    pub(crate) fn renew(
        &self,
        p2p_addresses: Vec<String>,
        state: PeerState,
        unix_ms: u64,
    ) -> Bytes {
        let mut current = self.lock();
        let announcement = &mut current.0;
        announcement.sequence = next_sequence(announcement.sequence, unix_ms);
        announcement.p2p_addresses = p2p_addresses;
        announcement.p2p_addresses.truncate(crypto::certificate::ADDRESSES_MAX);
        announcement.state = state;
        current.1 = current.0.sign(&self.secret, &self.network);
        current.1.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Announcement, Bytes)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_rise_unless_the_last_is_one_that_everybody_refuses() {
        let now = 1_800_000_000_123;
        let skew_ms = CLOCK_SKEW_S * 1000;
        assert_eq!(next_sequence(now - 5, now), now, "the calendar's");
        assert_eq!(next_sequence(now, now), now + 1, "twice in a millisecond");
        let ahead = now + skew_ms - 1000;
        assert_eq!(next_sequence(ahead, now), ahead + 1, "others may have taken it");
        assert_eq!(next_sequence(now + skew_ms + 1, now), now, "nobody took it");
        assert_eq!(next_sequence(u64::MAX, now), now);
    }
}
