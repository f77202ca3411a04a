//! What all parts of one librarian share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crypto::{Genesis, OrgId, PeerId, PeerState, PublicKey};
use env::Env;
use env::calls::Calls;
use overlay::{News, Overlay};
use store::{Journal, RecordStore};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use walk::{Directory, Walker};

use crate::admission::Admission;
use crate::announcer::Announcer;
use crate::committee::MemberSeat;
use crate::keeping::Keeping;
use crate::leases::Leases;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::news;
use crate::objects::ObjectShelf;
use crate::options::{Limits, Rhythm};
use crate::proofs::Proofs;
use crate::publications::Publications;
use crate::quota::Quotas;
use crate::seats::Seats;
use crate::shelf::Shelf;
use crate::spread;
use crate::standing::{Standing, Standings};
use crate::strain::Strain;

/// One running peer, as its service and its background work see it.
pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) genesis: Arc<Genesis>,
    pub(crate) own: PeerId,
    /// Whose peer it is, by the key that signed for it at the start: see [`Core::organisation`].
    pub(crate) organisation: OrgId,
    pub(crate) bootstrap: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) rhythm: Rhythm,
    pub(crate) started: Duration,
    pub(crate) directory: Arc<Directory>,
    pub(crate) walker: Arc<Walker>,
    /// Asks as a stranger, over the same directory (see [`crate::Prepared::asking_unvouched`]).
    pub(crate) unvouched: Option<Arc<Walker>>,
    pub(crate) calls: Arc<dyn Calls>,
    pub(crate) overlay: Arc<dyn Overlay>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) store: Arc<dyn RecordStore>,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) objects: Arc<ObjectShelf>,
    /// What keeps the network whole; `None` where this peer does nothing for it.
    pub(crate) keeping: Option<Arc<Keeping>>,
    pub(crate) leases: Arc<Leases>,
    /// Where the member of a committee sits, if one does.
    pub(crate) member: MemberSeat,
    pub(crate) publications: Arc<Publications>,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) standings: Standings,
    pub(crate) admission: Arc<Admission>,
    pub(crate) proofs: Proofs,
    pub(crate) strain: Strain,
    pub(crate) limiter: Limiter,
    pub(crate) quotas: Quotas,
    /// How much each peer told of late.
    pub(crate) news_rates: Mutex<news::Rates>,
    pub(crate) seats: Arc<Seats>,
    pub(crate) metrics: Arc<Metrics>,
    /// Somebody knows a roster that this peer cannot check yet.
    pub(crate) behind: Notify,
    /// Cancelled when the peer begins to stop: ends subscriptions and background work.
    pub(crate) stop: CancellationToken,
    /// Cancelled when no more will be stored: ends the log's task.
    pub(crate) stop_log: CancellationToken,
}

impl Core {
    /// Who a caller is now.
    pub(crate) fn standing(&self, key: &PublicKey) -> Standing {
        let peer = PeerId::new(*key);
        if let Some(organisation) = self.directory.organisation_of(&peer) {
            return Standing::Peer(peer, organisation);
        }
        let now = self.env.clock.unix_s();
        match self.standings.get(key, now) {
            // From the moment a roster does not list its organisation.
            Some(Standing::Client { organisation, .. })
                if self.directory.listed(&organisation).is_none() =>
            {
                Standing::Stranger
            }
            standing => standing.unwrap_or(Standing::Stranger),
        }
    }

    /// This peer's organisation, by its key in the newest roster; by the key it had at the start where it left.
    pub(crate) fn organisation(&self) -> OrgId {
        self.directory.listed(&self.organisation).unwrap_or(self.organisation)
    }

    /// Whether this peer hands over what it holds, and takes nothing any more.
    pub(crate) fn is_leaving(&self) -> bool {
        self.keeping.as_ref().is_some_and(|keeping| keeping.is_leaving())
    }

    /// What this peer says it does.
    pub(crate) fn state(&self) -> PeerState {
        if let Some(keeping) = self.keeping.as_ref().filter(|keeping| keeping.is_leaving()) {
            return if keeping.has_left() { PeerState::Left } else { PeerState::Leaving };
        }
        match self.shelf.refuses_clients() {
            None => PeerState::Serving,
            Some(_) => PeerState::ReadOnly,
        }
    }

    /// Signs a new announcement and tells it to this peer's own parts and to the network.
    pub(crate) async fn announce(&self, state: PeerState) {
        let now = self.env.clock.unix_ms();
        let bytes = self.announcer.renew(self.overlay.addresses(), state, now);
        if let Err(error) = self.directory.learn(&bytes) {
            tracing::warn!(%error, "the own announcement does not count any more");
        }
        self.walker.set_credential(self.announcer.credential());
        spread::publish(&self.env, self.overlay.as_ref(), News::Announcement(bytes)).await;
    }

    /// Time since the start.
    pub(crate) fn uptime(&self) -> Duration {
        self.env.clock.elapsed().saturating_sub(self.started)
    }

    /// A pause around `period`, from 0.75 to 1.25 of it.
    pub(crate) fn jittered(&self, period: Duration) -> Duration {
        let random = u32::from(u16::from_be_bytes(self.env.random()));
        period * 3 / 4 + period * random / 2 / 65_536
    }

    /// A random element of a list.
    pub(crate) fn pick<T: Copy>(&self, from: &[T]) -> Option<T> {
        let random = u64::from_be_bytes(self.env.random());
        let at = random.checked_rem(from.len() as u64)?;
        from.get(usize::try_from(at).ok()?).copied()
    }

    /// Waits so long; `false` where the peer stops before.
    pub(crate) async fn pause(&self, period: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = self.env.clock.sleep(period) => true,
        }
    }

    /// Waits for the next beat ([`env::Clock::beat`]); `false` where the peer stops before.
    pub(crate) async fn beat(&self, period: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = self.env.clock.beat(period) => true,
        }
    }
}
