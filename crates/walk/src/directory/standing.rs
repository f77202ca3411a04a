//! What a walk needs of the directory: whom to ask now, whom later, and how long to wait for whom.

use std::time::Duration;

use crypto::{PeerId, PeerState};

use super::{At, Directory, Inner};
use crate::health::Health;
use crate::latency::{Size, Usual};

/// How long what is usual of all peers is kept before it is computed again.
const USUAL_FOR: Duration = Duration::from_secs(1);
/// The same while too little is known to say what is usual: a program's first reads need it most.
const UNUSUAL_FOR: Duration = Duration::from_millis(20);
/// How long a slow peer is asked after the others before it is tried in its turn again.
const SLOW_FOR: Duration = Duration::from_secs(10);

/// Whether to ask a peer now. In the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// In its turn.
    Ready,
    /// After those that are usually faster.
    Slow,
    /// In its turn, and not counted on: it failed or was slow, and it is time to look whether it still is. What it is asked
    /// for is asked for elsewhere at the same time, so nobody waits for a peer that did not get better.
    Trial,
    /// It failed a moment ago: only where nobody else is left.
    Waiting,
    /// It failed for long: as a last resort.
    Away,
    /// It said that it stops, and it may be back, which nobody told this program: only where nobody else is left, and only to
    /// read.
    Stopped,
    /// Not at all: it left, its certificate ran out, or it takes no writes.
    Gone,
}

impl Directory {
    /// Whether to ask this peer now to send (`write` = false) or to take a record.
    pub(crate) fn standing(&self, peer: &PeerId, size: Size, write: bool) -> Standing {
        let At { unix_s, elapsed: now } = self.at();
        let mut inner = self.lock();
        let usual = inner.usual(now);
        let known = inner.peers.get(peer).filter(|known| known.is_valid(unix_s));
        let Some(known) = known else { return Standing::Gone };
        match known.announcement.state {
            PeerState::Left => return Standing::Gone,
            PeerState::Stopped | PeerState::ReadOnly | PeerState::Leaving if write => {
                return Standing::Gone;
            }
            // Dead for a minute as well: it is not dialled more often than others that are.
            PeerState::Stopped if known.outcomes.is_away(now) => return Standing::Away,
            PeerState::Stopped => return Standing::Stopped,
            PeerState::Serving | PeerState::ReadOnly | PeerState::Leaving => {}
        }
        if write && known.outcomes.refuses_writes(now) {
            return Standing::Waiting;
        }
        let (health, ready) = (known.health(now), known.outcomes.ready(now));
        match health {
            // Writers pass an away peer by; a reader tries it in its turn once a back-off, and so learns that it is back.
            Health::Away if write || !ready => Standing::Away,
            _ if !ready => Standing::Waiting,
            _ if write => Standing::Ready,
            _ if usual.slow(&known.latency, size) && now < known.probe_at => Standing::Slow,
            _ if usual.slow(&known.latency, size) => Standing::Trial,
            Health::Healthy => Standing::Ready,
            Health::Suspect | Health::Away => Standing::Trial,
        }
    }

    /// Claims a call to this peer: of a peer that is unwell one caller gets the next try, the others are told `false`.
    pub(crate) fn claim(&self, peer: &PeerId, size: Size) -> bool {
        let now = self.env.clock.elapsed();
        let mut inner = self.lock();
        let usual = inner.usual(now);
        let Some(known) = inner.peers.get_mut(peer) else { return false };
        if usual.slow(&known.latency, size) && now >= known.probe_at {
            known.probe_at = now + SLOW_FOR;
        }
        known.outcomes.claim(now)
    }

    /// A call to the peer was answered.
    pub(crate) fn answered(&self, peer: &PeerId, size: Size, took: Duration) {
        let now = self.env.clock.elapsed();
        let mut inner = self.lock();
        let usual = inner.usual(now);
        let Some(known) = inner.peers.get_mut(peer) else { return };
        known.good(now);
        // A slow peer that is fast again is not held to its old answers.
        let was_slow = usual.slow(&known.latency, size);
        known.latency.add(size, took);
        if was_slow && usual.is_usual(size, took) {
            known.latency.restart(size, took);
        }
    }

    /// The answer of the peer was not waited for any longer, after so much time.
    pub(crate) fn lagged(&self, peer: &PeerId, size: Size, waited: Duration) {
        let now = self.env.clock.elapsed();
        if let Some(known) = self.lock().peers.get_mut(peer) {
            known.outcomes.lagged(now);
            // It would have taken longer than it was waited for; how much longer nobody knows.
            known.latency.add(size, waited * 2);
        }
    }

    /// How long to wait for this peer before another one is asked as well.
    pub(crate) fn late(&self, peer: &PeerId, size: Size) -> Duration {
        let now = self.env.clock.elapsed();
        let mut inner = self.lock();
        let usual = inner.usual(now);
        match inner.peers.get(peer) {
            Some(known) => usual.late(&known.latency, size),
            None => usual.late(&crate::latency::Latency::default(), size),
        }
    }
}

impl Inner {
    fn usual(&mut self, now: Duration) -> Usual {
        if now >= self.usual_until {
            self.usual = Usual::of(self.peers.values().map(|peer| &peer.latency));
            let known = self.usual.is_known();
            self.usual_until = now + if known { USUAL_FOR } else { UNUSUAL_FOR };
        }
        self.usual
    }
}
