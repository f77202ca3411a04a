//! An overlay within one process: for tests, for simulation, and for a network in one program.
//!
//! News travels along links from peer to peer before `publish` returns, in an order that depends on
//! nothing but what was called, so a simulation repeats exactly. Two peers are linked when one has
//! learnt of the other, directly or through others (finding each other takes no time here), unless
//! the link is cut or one has forgotten the other. Members and duplicates count as in
//! [`crate::Libp2p`]; its grace for peers whose announcement is still on its way is not modelled:
//! here a stranger's announcement passes at once, as it proves itself, and its envelopes never do.
//!
//! Limit: everybody is linked to everybody, so a publication costs the square of the peers; meant
//! for some hundreds of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crypto::PeerId;
use env::{Clock, SystemClock};
use futures::stream::BoxStream;

use crate::inbox::{Inboxes, lock};
use crate::seen::Seen;
use crate::{Heard, Members, News, Overlay, OverlayError};

/// A mesh of overlays in memory. Cheap to clone; all clones are the same mesh.
#[derive(Clone)]
pub struct MemoryMesh {
    clock: Arc<dyn Clock>,
    members: Members,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    peers: BTreeMap<PeerId, Peer>,
    /// Links that are down, the lesser key first.
    cut: BTreeSet<(PeerId, PeerId)>,
    /// Who is linked to whom; `None` after anything above changed, until it is needed.
    links: Option<BTreeMap<PeerId, Vec<PeerId>>>,
}

#[derive(Default)]
struct Peer {
    inboxes: Arc<Inboxes>,
    seen: Seen,
    learnt: BTreeSet<PeerId>,
    forgotten: BTreeSet<PeerId>,
}

/// One peer's end of a [`MemoryMesh`].
pub struct MemoryOverlay {
    peer: PeerId,
    mesh: MemoryMesh,
    inboxes: Arc<Inboxes>,
}

impl Default for MemoryMesh {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryMesh {
    /// A mesh in real time whose peers all are members.
    pub fn new() -> Self {
        Self::with(Arc::new(SystemClock::new()), crate::everybody())
    }

    /// A mesh in this clock's time, with these members.
    pub fn with(clock: Arc<dyn Clock>, members: Members) -> Self {
        Self { clock, members, state: Arc::default() }
    }

    /// A new overlay of this peer; one it had before is closed.
    pub fn join(&self, peer: PeerId) -> Arc<dyn Overlay> {
        let joined = Peer::default();
        let inboxes = joined.inboxes.clone();
        let mut state = lock(&self.state);
        state.links(peer);
        state.links = None;
        if let Some(before) = state.peers.insert(peer, joined) {
            before.inboxes.close();
        }
        drop(state);
        Arc::new(MemoryOverlay { peer, mesh: self.clone(), inboxes })
    }

    /// Takes the link between two peers down.
    pub fn cut(&self, a: PeerId, b: PeerId) {
        let mut state = lock(&self.state);
        state.cut.insert((a.min(b), a.max(b)));
        state.links = None;
    }

    /// Puts the link between two peers up again.
    pub fn heal(&self, a: PeerId, b: PeerId) {
        let mut state = lock(&self.state);
        state.cut.remove(&(a.min(b), a.max(b)));
        state.links = None;
    }
}

impl State {
    /// Peers that found each other, `peer` among them, whether their links are up or not.
    fn acquainted(&self, peer: PeerId) -> BTreeSet<PeerId> {
        let mut found = BTreeSet::from([peer]);
        let mut next = VecDeque::from([peer]);
        while let Some(at) = next.pop_front() {
            for (other, state) in &self.peers {
                let learnt =
                    |a: &Peer, b: &PeerId| a.learnt.contains(b) && !a.forgotten.contains(b);
                let ours = self.peers.get(&at).is_some_and(|peer| learnt(peer, other));
                if (ours || learnt(state, &at)) && found.insert(*other) {
                    next.push_back(*other);
                }
            }
        }
        found
    }

    fn linked(&self, a: PeerId, b: PeerId) -> bool {
        let forgot = |x, y| self.peers.get(x).is_none_or(|peer| peer.forgotten.contains(y));
        a != b && !forgot(&a, &b) && !forgot(&b, &a) && !self.cut.contains(&(a.min(b), a.max(b)))
    }

    fn links(&mut self, peer: PeerId) -> Vec<PeerId> {
        let links = match self.links.take() {
            Some(links) => links,
            None => self.all_links(),
        };
        self.links.insert(links).get(&peer).cloned().unwrap_or_default()
    }

    /// Everybody's links. Who found each other through a third one stays acquainted without it.
    fn all_links(&mut self) -> BTreeMap<PeerId, Vec<PeerId>> {
        let mut links = BTreeMap::new();
        let peers: Vec<_> = self.peers.keys().copied().collect();
        for peer in peers {
            if links.contains_key(&peer) {
                continue;
            }
            let acquainted = self.acquainted(peer);
            for at in &acquainted {
                let linked = acquainted.iter().filter(|other| self.linked(*at, **other));
                let linked: Vec<_> = linked.copied().collect();
                if let Some(state) = self.peers.get_mut(at) {
                    let known = acquainted.iter().filter(|other| !state.forgotten.contains(other));
                    state.learnt.extend(known);
                }
                links.insert(*at, linked);
            }
        }
        links
    }
}

impl MemoryOverlay {
    /// This overlay's own part of the mesh; `None` once it is closed, also where a later one of the
    /// same peer has joined.
    fn own<'a>(&self, state: &'a mut State) -> Option<&'a mut Peer> {
        let own = |peer: &&mut Peer| Arc::ptr_eq(&peer.inboxes, &self.inboxes);
        state.peers.get_mut(&self.peer).filter(own)
    }

    /// Hands the news to every peer that can be reached over links of those that believe it.
    fn flood(&self, news: News) -> Result<(), OverlayError> {
        let now = self.mesh.clock.elapsed();
        let heard = Heard { from: self.peer, news };
        let proves_itself = matches!(heard.news, News::Announcement(_) | News::Roster(_));
        let counts = proves_itself || (self.mesh.members)(&self.peer).is_some();
        let mut state = lock(&self.mesh.state);
        let own = self.own(&mut state).ok_or(OverlayError::Closed)?;
        if !own.seen.note(&heard.news, now) {
            return Ok(());
        }
        let mut next = VecDeque::from([self.peer]);
        while let Some(at) = next.pop_front() {
            for other in state.links(at) {
                let Some(peer) = state.peers.get_mut(&other) else { continue };
                let wanted = counts && !peer.forgotten.contains(&self.peer);
                if wanted && peer.seen.note(&heard.news, now) {
                    peer.inboxes.put(&heard);
                    next.push_back(other);
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Overlay for MemoryOverlay {
    fn addresses(&self) -> Vec<String> {
        vec![format!("/memory/{}", self.peer)]
    }

    fn learn(&self, peer: PeerId, _addresses: &[String]) {
        let mut state = lock(&self.mesh.state);
        if let Some(own) = self.own(&mut state)
            && own.forgotten.remove(&peer) | own.learnt.insert(peer)
        {
            state.links = None;
        }
    }

    fn forget(&self, peer: PeerId) {
        let mut state = lock(&self.mesh.state);
        if let Some(own) = self.own(&mut state)
            && own.learnt.remove(&peer) | own.forgotten.insert(peer)
        {
            state.links = None;
        }
    }

    async fn publish(&self, news: News) -> Result<(), OverlayError> {
        // The wire form is made for its checks: what libp2p would refuse is refused here too.
        news.encode()?;
        self.flood(news)
    }

    fn news(&self) -> BoxStream<'static, Heard> {
        self.inboxes.stream()
    }

    fn links(&self) -> usize {
        let mut state = lock(&self.mesh.state);
        if self.own(&mut state).is_none() {
            return 0;
        }
        let links = state.links(self.peer);
        drop(state);
        links.iter().filter(|peer| (self.mesh.members)(peer).is_some()).count()
    }

    async fn close(&self) {
        self.inboxes.close();
        let mut state = lock(&self.mesh.state);
        if self.own(&mut state).is_some() {
            // Whoever met through this peer met before it goes.
            state.links(self.peer);
            state.peers.remove(&self.peer);
            state.links = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use crypto::SecretKey;
    use futures::{FutureExt, StreamExt};

    use super::*;

    fn peer(byte: u8) -> PeerId {
        PeerId::new(SecretKey::from_bytes(&[byte; 32]).expect("a scalar").public())
    }

    fn publish(overlay: &Arc<dyn Overlay>, text: &'static str) {
        let news = News::Envelope(text.as_bytes().into());
        let published = overlay.publish(news).now_or_never().expect("it never waits");
        published.expect("open and small");
    }

    fn heard(stream: &mut BoxStream<'static, Heard>) -> Option<News> {
        stream.next().now_or_never().flatten().map(|heard| heard.news)
    }

    #[test]
    fn news_goes_round_a_cut_link_and_not_across_a_partition() {
        let mesh = MemoryMesh::new();
        let [a, b, c] = [1, 2, 3].map(|byte| mesh.join(peer(byte)));
        b.learn(peer(1), &[]);
        c.learn(peer(1), &[]);
        let mut at_b = b.news();
        mesh.cut(peer(2), peer(1));
        assert_eq!((a.links(), b.links(), c.links()), (1, 1, 2));
        publish(&a, "by way of c");
        assert_eq!(heard(&mut at_b), Some(News::Envelope("by way of c".into())));
        mesh.cut(peer(2), peer(3));
        publish(&a, "lost");
        assert_eq!((b.links(), heard(&mut at_b)), (0, None));
        mesh.heal(peer(3), peer(2));
        publish(&a, "back");
        assert_eq!(heard(&mut at_b), Some(News::Envelope("back".into())));
    }

    #[test]
    fn a_peer_that_joins_anew_replaces_what_it_was() {
        let mesh = MemoryMesh::new();
        let [a, old] = [1, 2].map(|byte| mesh.join(peer(byte)));
        old.learn(peer(1), &[]);
        let new = mesh.join(peer(2));
        let late = old.publish(News::Envelope("late".into())).now_or_never();
        assert!(matches!(late, Some(Err(OverlayError::Closed))));
        assert_eq!((old.links(), new.links(), a.links()), (0, 1, 1));
        // Closing the one that was replaced leaves the new one alone.
        old.close().now_or_never().expect("it never waits");
        assert_eq!(new.links(), 1);
    }
}
