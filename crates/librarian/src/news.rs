//! What other peers tell: announcements, envelopes, revocations and rosters, checked before they are believed.
//!
//! An announcement, a revocation and a roster prove themselves by their signatures, whoever brings them. An envelope proves its
//! publication by its hash, and nothing proves that somebody wanted it told; so it counts only from a
//! peer of the network, and only so many new ones a second ([`crate::Limits::news_per_second`]) of each. What is
//! dropped here is not lost: it is found in other peers' logs (`catch_up`). So nothing that others tell is logged
//! while the disk is full: what is left of it is for removals and compaction.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crypto::{PeerId, PeerState, Taught};
use document::Publication;
use futures::StreamExt;
use overlay::{Heard, News};
use tokio::sync::broadcast;
use walk::{Change, Learnt};

use crate::core::Core;
use crate::metrics::{Dropped, Source};

/// Sources whose rate is remembered; beyond it all start afresh.
const SOURCES_MAX: usize = 16_384;
/// Announcements of peers that are not known yet, taken a second: joins of a whole network.
const STRANGERS_PER_SECOND: u32 = 200;

/// Peers that strangers together are told of a second: some 8 MB of announcements.
const TOLD_TO_STRANGERS_PER_SECOND: u32 = 20_000;
/// Of so many each is told where that is used up: enough to go on from.
const TOLD_AT_LEAST: usize = 64;

/// How much each source may still tell, in the mesh or by giving it to this peer: a bucket that fills by the second.
#[derive(Default)]
pub(crate) struct Rates {
    by_peer: HashMap<PeerId, Bucket>,
    strangers: Bucket,
    /// Of how many peers strangers were told.
    told: Bucket,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    /// Thousandths of news that were taken and have not run out again.
    level_milli: u64,
    at: Duration,
}

impl Bucket {
    /// Takes so many, all or none.
    fn take(&mut self, count: usize, now: Duration, per_second: u32) -> bool {
        let passed_ms = now.saturating_sub(self.at).as_millis();
        let run_out = u64::try_from(passed_ms * u128::from(per_second)).unwrap_or(u64::MAX);
        self.level_milli = self.level_milli.saturating_sub(run_out);
        self.at = now;
        let taken = (count as u64).saturating_mul(1000);
        if self.level_milli.saturating_add(taken) > u64::from(per_second) * 1000 {
            return false;
        }
        self.level_milli += taken;
        true
    }
}

impl Rates {
    /// Of how many of the known peers a stranger is told that asks for so many.
    fn told_to_stranger(&mut self, wanted: usize, known: usize, now: Duration) -> usize {
        match self.told.take(wanted.min(known), now, TOLD_TO_STRANGERS_PER_SECOND) {
            true => wanted,
            false => wanted.min(TOLD_AT_LEAST),
        }
    }

    fn take(&mut self, from: Option<PeerId>, count: usize, now: Duration, per_second: u32) -> bool {
        let Some(from) = from else {
            return self.strangers.take(count, now, STRANGERS_PER_SECOND);
        };
        if self.by_peer.len() >= SOURCES_MAX && !self.by_peer.contains_key(&from) {
            self.by_peer.clear();
        }
        self.by_peer.entry(from).or_default().take(count, now, per_second)
    }
}

/// Counts what a peer of the network, or a stranger (`None`), tells now; `false` where that is too much.
pub(crate) fn may_tell(core: &Core, from: Option<PeerId>, count: usize) -> bool {
    let now = core.env.clock.elapsed();
    let mut rates = core.news_rates.lock().unwrap_or_else(PoisonError::into_inner);
    rates.take(from, count, now, core.limits.news_per_second)
}

/// Of how many peers a stranger is told that asks for so many: some hundred bytes of a key that cost nothing ask for megabytes, so what
/// strangers get together is bounded.
pub(crate) fn told_to_stranger(core: &Core, wanted: usize) -> usize {
    let (known, now) = (core.directory.view().len(), core.env.clock.elapsed());
    let mut rates = core.news_rates.lock().unwrap_or_else(PoisonError::into_inner);
    rates.told_to_stranger(wanted, known, now)
}

/// Takes news until the overlay closes or the peer stops.
pub(crate) async fn hear_all(core: Arc<Core>) {
    let mut news = core.overlay.news();
    loop {
        let heard = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            heard = news.next() => heard,
        };
        let Some(heard) = heard else { return };
        hear(&core, heard).await;
    }
}

async fn hear(core: &Core, heard: Heard) {
    if heard.from == core.own {
        return;
    }
    let member = core.directory.is_member(&heard.from);
    match heard.news {
        News::Envelope(bytes) if member => hear_envelope(core, heard.from, &bytes),
        News::Announcement(bytes) if core.directory.vouches(&heard.from, &bytes).is_some() => {}
        news => {
            if may_tell(core, member.then_some(heard.from), 1) {
                hear_new(core, news).await;
            } else {
                core.metrics.dropped(Dropped::Rate);
            }
        }
    }
}

/// News but members' envelopes, as far as their source may tell it.
async fn hear_new(core: &Core, news: News) {
    match news {
        News::Announcement(bytes) => {
            if core.directory.learn(&bytes).is_err() {
                core.metrics.dropped(Dropped::Malformed);
            }
        }
        News::Roster(bytes) => hear_roster(core, bytes).await,
        News::Revocation(bytes) => {
            if core.revoke(&bytes).is_err() {
                core.metrics.dropped(Dropped::Malformed);
            }
        }
        News::Envelope(_) => core.metrics.dropped(Dropped::Stranger),
    }
}

/// Hundreds of signatures are checked away from the I/O threads.
async fn hear_roster(core: &Core, bytes: Bytes) {
    let directory = Arc::clone(&core.directory);
    match core.env.cpu(move || directory.learn_roster(&bytes)).await {
        Ok(Taught::Behind) => core.behind.notify_one(),
        Ok(_) => {}
        Err(error) => {
            tracing::debug!(%error, "a roster that was told does not count");
            core.metrics.dropped(Dropped::Malformed);
        }
    }
}

/// An envelope that a member told. One whose publication is logged costs its teller nothing: what it told long ago
/// can be told anew by anybody, under the signature that it had.
fn hear_envelope(core: &Core, from: PeerId, bytes: &Bytes) {
    let told = Publication::told_by(core.genesis.suite, bytes);
    let entry = match told.map(|(_, told)| core.publications.heard(told, Source::News)) {
        Ok(None) => return,
        Ok(Some(entry)) => Some(entry),
        Err(_) => None,
    };
    if !may_tell(core, Some(from), 1) {
        core.metrics.dropped(Dropped::Rate);
        return;
    }
    let Some(entry) = entry else {
        core.metrics.dropped(Dropped::Malformed);
        return;
    };
    if core.shelf.is_full() {
        core.metrics.dropped(Dropped::Full);
        return;
    }
    if !core.publications.offer(entry) {
        core.metrics.dropped(Dropped::Queue);
    }
}

/// Tells the overlay where peers are as the directory learns it, until the peer stops.
pub(crate) async fn follow_changes(core: Arc<Core>, mut changes: broadcast::Receiver<Change>) {
    loop {
        let change = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            change = changes.recv() => change,
        };
        match change {
            Ok(change) => {
                changed(&core, &change);
                if change.learnt == Learnt::New {
                    core.tell_revocation().await;
                }
            }
            Err(broadcast::error::RecvError::Lagged(_)) => tell_overlay_all(&core),
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

fn changed(core: &Core, change: &Change) {
    if change.peer == core.own {
        return;
    }
    core.metrics.announcement();
    tracing::info!(
        peer = %change.peer,
        organisation = %change.announcement.certificate.organisation,
        state = ?change.announcement.state,
        learnt = ?change.learnt,
        "a peer announced itself"
    );
    tell_overlay(core, &change.peer, change.announcement.state);
}

/// Tells the overlay about every peer that is known.
pub(crate) fn tell_overlay_all(core: &Core) {
    for status in core.directory.peers() {
        if status.peer != core.own {
            tell_overlay(core, &status.peer, status.state);
        }
    }
}

fn tell_overlay(core: &Core, peer: &PeerId, state: PeerState) {
    if state == PeerState::Left {
        core.standings.remove(peer.key());
        core.overlay.forget(*peer);
    } else if let Some(announcement) = core.directory.announcement(peer) {
        core.overlay.learn(*peer, &announcement.p2p_addresses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_gets_its_rate_and_no_more_and_others_do_not_pay() {
        let peer = |n: u8| {
            let secret = crypto::SecretKey::from_bytes(&[n; 32]).expect("a scalar");
            PeerId::new(secret.public())
        };
        let mut rates = Rates::default();
        let mut taken = |from, ms| rates.take(Some(peer(from)), 1, Duration::from_millis(ms), 100);
        let first = (0..1000).filter(|_| taken(1, 5)).count();
        assert_eq!(first, 100, "a burst of one second");
        assert!(taken(2, 5), "another source");
        let later = (0..1000).filter(|_| taken(1, 505)).count();
        assert_eq!(later, 50, "half a second later");
        assert!((0..1000).all(|n| taken(3, n * 10 + 1000)), "a steady 100 a second");
        let mut many = |count, ms| rates.take(Some(peer(4)), count, Duration::from_millis(ms), 100);
        assert!(many(60, 5) && !many(41, 5) && many(40, 5), "all or none, each as one");
        assert!(!many(51, 505) && many(50, 505), "half a second later");
    }

    #[test]
    fn strangers_are_told_of_all_peers_until_that_is_much_together() {
        let mut rates = Rates::default();
        let mut told =
            |wanted, ms| rates.told_to_stranger(wanted, 1_000, Duration::from_millis(ms));
        let all = (0..1_000).filter(|_| told(1_024, 5) == 1_024).count();
        assert_eq!(all, 20);
        assert_eq!((told(1_024, 5), told(10, 5)), (TOLD_AT_LEAST, 10));
        assert_eq!(told(1_024, 105), 1_024, "a tenth of a second later");
    }
}
