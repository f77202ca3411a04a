//! Whom a writer can reach, as far as this program knows.
//!
//! What a writer waits for goes by all peers that are certified, so that a bad hour makes no file less safe. But a certificate is
//! signed for nothing, and a peer that never runs acknowledges nothing. So where fewer can be reached than a writer would wait for,
//! it goes by those alone ([`View::reached`]); with enough of them nothing changes.
//!
//! A peer is out of reach once calls to it failed for a minute. A program that has just begun has no minute: it asks those that it
//! never heard, where they decide ([`Directory::unheard`]), and goes by who answered ([`Directory::heard`]). Certificates without
//! number for addresses that stay silent would have each writer wait for some of them: after one that waited in vain nobody asks for
//! [`UNHEARD_PAUSE`].
//!
//! One call costs a look at each peer under the lock, and none once enough were seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crypto::{OrgId, PeerId, PeerState};
use placement::View;

use super::peer::Peer;
use super::{At, Directory, Inner};
use crate::health::Health;

/// The most peers that a writer asks whether they are there, those of all organisations in turn.
const UNHEARD_MAX: usize = 64;
/// For how long no writer asks that any more, after one was kept waiting by those that it asked.
pub const UNHEARD_PAUSE: Duration = Duration::from_secs(300);

impl Directory {
    /// The view of those of its peers that are not known to be out of reach of a writer: away, stopped, or such as say that they
    /// take nothing. `None` where they are `needed` or more, and where all of the view count though: see [`View::reached`].
    pub fn reached(&self, view: &View, needed: usize) -> Option<View> {
        self.narrowed(view, needed, |_| true)
    }

    /// As [`Directory::reached`], of those alone that ever answered this program, where it introduced itself to anybody.
    pub fn heard(&self, view: &View, needed: usize) -> Option<View> {
        let knows = self.knows_who_answers();
        self.narrowed(view, needed, |peer| !knows || peer.was_heard())
    }

    /// Whom a writer is to ask before it goes by [`Directory::heard`]: peers that never answered this program and did not fail it
    /// twice, where those that answered are fewer than `needed`. Nobody where it introduced itself to nobody, and does not know
    /// who answers, nor where fewer than `needed` are too few to go by anyway, nor for a while after [`Directory::asked_in_vain`].
    pub fn unheard(&self, view: &View, needed: usize) -> Vec<PeerId> {
        if needed <= View::REACHED_MIN || !self.knows_who_answers() {
            return Vec::new();
        }
        let at = self.at();
        let inner = self.lock();
        if at.elapsed < inner.unheard_paused_until {
            return Vec::new();
        }
        let (mut heard, mut unheard) = (0, Vec::new());
        let mut turns: BTreeMap<OrgId, usize> = BTreeMap::new();
        for candidate in view.candidates() {
            let Some(peer) = inner.reachable(&candidate.peer, at) else { continue };
            if peer.was_heard() || Some(candidate.peer) == self.own {
                heard += 1;
                if heard >= needed {
                    return Vec::new();
                }
                continue;
            }
            if peer.outcomes.failed_again() {
                continue;
            }
            let turn = turns.entry(candidate.organisation).or_default();
            *turn += 1;
            unheard.push((*turn, candidate.peer));
        }
        drop(inner);
        unheard.sort_unstable();
        unheard.into_iter().map(|(_, peer)| peer).take(UNHEARD_MAX).collect()
    }

    /// A writer waited long for those that [`Directory::unheard`] named, and they were not there: it names nobody for
    /// [`UNHEARD_PAUSE`].
    pub fn asked_in_vain(&self) {
        let until = self.env.clock.elapsed().saturating_add(UNHEARD_PAUSE);
        self.lock().unheard_paused_until = until;
    }

    fn narrowed(&self, view: &View, needed: usize, counts: impl Fn(&Peer) -> bool) -> Option<View> {
        let at = self.at();
        let mut reached = BTreeSet::new();
        {
            let inner = self.lock();
            let is_reached = |id: &PeerId| {
                let peer = inner.reachable(id, at);
                peer.is_some_and(|peer| Some(*id) == self.own || counts(peer))
            };
            let all = view.candidates().iter().map(|candidate| candidate.peer);
            reached.extend(all.filter(is_reached).take(needed));
        }
        // Fewer than `needed` are all that there are.
        if reached.len() >= needed { None } else { view.reached(|peer| reached.contains(peer)) }
    }

    /// Whether anybody answered when this program introduced itself: whoever did said what its calendar says.
    fn knows_who_answers(&self) -> bool {
        !self.lock().calendars.is_empty()
    }
}

impl Inner {
    /// The peer, unless it takes no records as far as is known.
    fn reachable(&self, peer: &PeerId, at: At) -> Option<&Peer> {
        let known = self.peers.get(peer)?;
        let serves = known.announcement.state == PeerState::Serving && known.is_valid(at.unix_s);
        (serves && known.health(at.elapsed) != Health::Away).then_some(known)
    }
}
