//! What every overlay must do, whichever way it does it: one function a promise.
//!
//! An implementation brings a [`Harness`]; its tests call each function by itself. Nothing here
//! depends on how fast anything is: what must happen is waited for up to [`PATIENCE`], and what
//! must not happen is looked for after something published later has arrived, and [`QUIET`] beyond.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::{OrgId, PeerId, SecretKey};
use futures::StreamExt;
use futures::stream::BoxStream;
use overlay::{Heard, INBOX_NEWS_MAX, Members, NEWS_BYTES_MAX, News, Overlay, OverlayError};

/// How long what must happen is waited for: a peer asks who is there each 20 s, and two that dial each other at once may both fail.
pub const PATIENCE: Duration = Duration::from_secs(100);
/// How long nothing more may happen.
pub const QUIET: Duration = Duration::from_millis(400);

/// The peers a network counts, to be changed while it runs.
#[derive(Clone, Default)]
pub struct Roll(Arc<Mutex<BTreeSet<PeerId>>>);

impl Roll {
    /// Counts a peer from now on.
    pub fn admit(&self, peer: PeerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(peer);
    }

    /// The question as overlays ask it.
    pub fn members(&self) -> Members {
        let roll = self.0.clone();
        Arc::new(move |peer| {
            let roll = roll.lock().unwrap_or_else(PoisonError::into_inner);
            roll.contains(peer).then(|| OrgId::new(*peer.key()))
        })
    }
}

/// Makes overlays of one kind, all in one network.
pub trait Harness: Send + Sync {
    /// A fresh network with these members.
    fn network(&self, roll: &Roll) -> Arc<dyn Network>;
}

/// Starts overlays of one network.
#[async_trait]
pub trait Network: Send + Sync {
    /// A started overlay of the peer with this key.
    async fn start(&self, secret: SecretKey) -> Arc<dyn Overlay>;
}

struct Peer {
    id: PeerId,
    overlay: Arc<dyn Overlay>,
}

struct Community {
    network: Arc<dyn Network>,
    roll: Roll,
    peers: Vec<Peer>,
}

fn secret(number: usize) -> SecretKey {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&(number as u64 + 1).to_be_bytes());
    SecretKey::from_bytes(&bytes).expect("far below the group order")
}

fn id(number: usize) -> PeerId {
    PeerId::new(secret(number).public())
}

fn envelope(text: &str) -> News {
    News::Envelope(Bytes::copy_from_slice(text.as_bytes()))
}

fn announcement(text: &str) -> News {
    News::Announcement(Bytes::copy_from_slice(text.as_bytes()))
}

impl Community {
    /// This many members that know of the first alone, and have found each other.
    async fn of(harness: &dyn Harness, peers: usize) -> Self {
        let roll = Roll::default();
        let network = harness.network(&roll);
        let mut community = Self { network, roll, peers: Vec::new() };
        for number in 0..peers {
            community.roll.admit(id(number));
            let through = (number > 0).then_some(0);
            community.join(number, through).await;
        }
        community.full_mesh().await;
        community
    }

    /// Starts peer `number`, which knows of one other at most.
    async fn join(&mut self, number: usize, through: Option<usize>) {
        let overlay = self.network.start(secret(number)).await;
        if let Some(through) = through {
            let first = &self.peers[through];
            overlay.learn(first.id, &first.overlay.addresses());
        }
        self.peers.push(Peer { id: id(number), overlay });
    }

    async fn full_mesh(&self) {
        let wanted = self.peers.len() - 1;
        eventually("everybody is linked to everybody", || {
            self.peers.iter().all(|peer| peer.overlay.links() == wanted)
        })
        .await;
    }

    fn streams(&self) -> Vec<BoxStream<'static, Heard>> {
        self.peers.iter().map(|peer| peer.overlay.news()).collect()
    }

    async fn publish(&self, peer: usize, news: &News) {
        self.peers[peer].overlay.publish(news.clone()).await.expect("room in the queue");
    }

    fn heard(&self, from: usize, news: &News) -> Heard {
        Heard { from: self.peers[from].id, news: news.clone() }
    }

    async fn close(self) {
        for peer in self.peers {
            peer.overlay.close().await;
        }
    }
}

/// Waits until it holds.
///
/// # Panics
/// After [`PATIENCE`].
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "not in time: {what}");
}

/// Reads until all of `expected` were heard, and then until nothing came for [`QUIET`]; each must
/// have come once and nothing else at all.
async fn hears_exactly(stream: &mut BoxStream<'static, Heard>, expected: &[Heard]) {
    hears(stream, expected, None).await;
}

/// The same, but this too may come, once.
async fn hears(stream: &mut BoxStream<'static, Heard>, expected: &[Heard], may: Option<Heard>) {
    let (mut missing, mut may) = (expected.to_vec(), may);
    while !missing.is_empty() {
        let next = tokio::time::timeout(PATIENCE, stream.next()).await;
        let heard = next.unwrap_or_else(|_| panic!("not heard in time: {missing:?}"));
        let heard = heard.expect("the stream goes on");
        if may.take_if(|may| *may == heard).is_some() {
            continue;
        }
        let at = missing.iter().position(|expected| *expected == heard);
        missing.swap_remove(at.unwrap_or_else(|| panic!("twice or unexpected: {heard:?}")));
    }
    while let Ok(more) = tokio::time::timeout(QUIET, stream.next()).await {
        let more = more.expect("the stream goes on");
        let allowed = may.take_if(|may| *may == more).is_some();
        assert!(allowed, "twice or unexpected: {more:?}");
    }
}

/// Every peer hears what the others publish, once each, with the right publisher.
pub async fn everybody_hears_news_once(harness: &dyn Harness) {
    let community = Community::of(harness, 7).await;
    let mut streams = community.streams();
    let mut all = Vec::new();
    for from in 0..community.peers.len() {
        for news in [announcement(&format!("I am {from}")), envelope(&format!("from {from}"))] {
            community.publish(from, &news).await;
            all.push(community.heard(from, &news));
        }
    }
    for (at, stream) in streams.iter_mut().enumerate() {
        let own = community.peers[at].id;
        let others: Vec<_> = all.iter().filter(|heard| heard.from != own).cloned().collect();
        hears_exactly(stream, &others).await;
    }
    community.close().await;
}

/// The same bytes count once, whoever publishes them again; an announcement and an envelope of the
/// same bytes are two things.
pub async fn duplicates_are_heard_once(harness: &dyn Harness) {
    let community = Community::of(harness, 5).await;
    let mut streams = community.streams();
    let news = envelope("again and again");
    for _ in 0..3 {
        community.publish(0, &news).await;
    }
    let expected = community.heard(0, &news);
    for stream in &mut streams[1..] {
        hears_exactly(stream, std::slice::from_ref(&expected)).await;
    }
    for from in [1, 2, 0] {
        community.publish(from, &news).await;
    }
    let other = announcement("again and again");
    community.publish(3, &other).await;
    let expected = community.heard(3, &other);
    for at in [0, 1, 2, 4] {
        hears_exactly(&mut streams[at], std::slice::from_ref(&expected)).await;
    }
    community.close().await;
}

/// A peer that is no member is linked to nobody in the sense of `links`, and its envelopes go
/// nowhere.
pub async fn a_strangers_envelopes_are_not_heard(harness: &dyn Harness) {
    let mut community = Community::of(harness, 5).await;
    let mut streams = community.streams();
    community.join(5, Some(0)).await;
    let stranger = &community.peers[5].overlay;
    eventually("the stranger has a link", || stranger.links() > 0).await;
    community.publish(5, &envelope("believe me")).await;
    let news = envelope("a member's");
    community.publish(1, &news).await;
    let expected = [community.heard(1, &news)];
    for at in [0, 2, 3, 4] {
        hears_exactly(&mut streams[at], &expected).await;
        assert_eq!(community.peers[at].overlay.links(), 4);
    }
    community.close().await;
}

/// An announcement is heard though nobody knows its signer; once it made the signer known, all hear
/// it, and what it published right after.
pub async fn a_newcomer_is_heard_once_it_is_known(harness: &dyn Harness) {
    let mut community = Community::of(harness, 5).await;
    let mut streams = community.streams();
    community.join(5, Some(0)).await;
    let newcomer = &community.peers[5].overlay;
    eventually("the newcomer has a link", || newcomer.links() > 0).await;
    let (first, second) = (announcement("here I am"), envelope("and this is for you"));
    community.publish(5, &first).await;
    let next = tokio::time::timeout(PATIENCE, streams[0].next()).await;
    assert_eq!(next.ok().flatten(), Some(community.heard(5, &first)));
    // What receivers do when the announcement holds.
    community.roll.admit(id(5));
    community.publish(5, &second).await;
    hears_exactly(&mut streams[0], &[community.heard(5, &second)]).await;
    let both = [community.heard(5, &first), community.heard(5, &second)];
    for stream in &mut streams[1..] {
        hears_exactly(stream, &both).await;
    }
    community.full_mesh().await;
    community.close().await;
}

/// A peer that joins later, knowing any one peer, hears what is published from then on and is
/// heard.
pub async fn a_late_peer_hears_through_one(harness: &dyn Harness) {
    let mut community = Community::of(harness, 5).await;
    let before = envelope("before");
    let mut old = community.peers[3].overlay.news();
    community.publish(1, &before).await;
    hears_exactly(&mut old, &[community.heard(1, &before)]).await;
    community.roll.admit(id(5));
    community.join(5, Some(3)).await;
    community.full_mesh().await;
    let mut streams = community.streams();
    let (ours, theirs) = (envelope("after"), envelope("from the late one"));
    community.publish(1, &ours).await;
    community.publish(5, &theirs).await;
    // What was told just before it came may be told it again: gossip remembers some seconds.
    let before = community.heard(1, &before);
    hears(&mut streams[5], &[community.heard(1, &ours)], Some(before)).await;
    hears_exactly(&mut streams[1], &[community.heard(5, &theirs)]).await;
    let both = [community.heard(1, &ours), community.heard(5, &theirs)];
    hears_exactly(&mut streams[3], &both).await;
    community.close().await;
}

/// All came through one peer; it goes, and nobody else is lost, and others can come through the
/// rest.
pub async fn the_first_peer_may_go(harness: &dyn Harness) {
    let mut community = Community::of(harness, 5).await;
    community.peers.remove(0).overlay.close().await;
    community.full_mesh().await;
    community.roll.admit(id(9));
    community.join(9, Some(2)).await;
    community.full_mesh().await;
    let mut streams = community.streams();
    let news = envelope("still here");
    community.publish(0, &news).await;
    let expected = [community.heard(0, &news)];
    for stream in &mut streams[1..] {
        hears_exactly(stream, &expected).await;
    }
    community.close().await;
}

/// What is over the limit or empty is refused at once; what is exactly at the limit arrives.
pub async fn what_is_too_large_or_empty_is_refused(harness: &dyn Harness) {
    let community = Community::of(harness, 3).await;
    let mut streams = community.streams();
    let sized = |bytes: usize| News::Envelope(vec![0xa5; bytes].into());
    let publish = |news| community.peers[0].overlay.publish(news);
    let refused = publish(sized(NEWS_BYTES_MAX + 1)).await;
    assert!(matches!(refused, Err(OverlayError::TooLarge(_))), "{refused:?}");
    let refused = publish(sized(0)).await;
    assert!(matches!(refused, Err(OverlayError::Empty)), "{refused:?}");
    let largest = sized(NEWS_BYTES_MAX);
    community.publish(0, &largest).await;
    for stream in &mut streams[1..] {
        hears_exactly(stream, &[community.heard(0, &largest)]).await;
    }
    community.close().await;
}

/// A closed overlay ends its streams, refuses to publish, and the others lose the link.
pub async fn closing_ends_the_stream(harness: &dyn Harness) {
    let community = Community::of(harness, 3).await;
    let closed = &community.peers[2].overlay;
    let mut stream = closed.news();
    let unread = envelope("unread");
    let mut witness = community.peers[1].overlay.news();
    community.publish(0, &unread).await;
    hears_exactly(&mut witness, &[community.heard(0, &unread)]).await;
    closed.close().await;
    closed.close().await;
    let rest = tokio::time::timeout(PATIENCE, async {
        while let Some(heard) = stream.next().await {
            assert_eq!(heard.news, unread);
        }
    });
    assert!(rest.await.is_ok(), "the stream did not end");
    let late = tokio::time::timeout(PATIENCE, closed.news().next()).await;
    assert_eq!(late.ok(), Some(None), "a stream begun after the end is at its end");
    assert!(matches!(closed.publish(envelope("x")).await, Err(OverlayError::Closed)));
    assert_eq!(closed.links(), 0);
    eventually("the others lose the link", || {
        community.peers[..2].iter().all(|peer| peer.overlay.links() == 1)
    })
    .await;
    community.close().await;
}

/// One who does not read keeps the newest 4,096 and costs nobody else anything.
pub async fn a_receiver_that_lags_loses_the_oldest(harness: &dyn Harness) {
    const BATCH: usize = 64;
    let community = Community::of(harness, 2).await;
    let slow = community.peers[1].overlay.news();
    let mut quick = community.peers[1].overlay.news();
    let numbered = |number: usize| envelope(&format!("number {number}"));
    let all = INBOX_NEWS_MAX + 2 * BATCH;
    for first in (0..all).step_by(BATCH) {
        for number in first..first + BATCH {
            community.publish(0, &numbered(number)).await;
        }
        for _ in 0..BATCH {
            let next = tokio::time::timeout(PATIENCE, quick.next()).await;
            assert!(next.is_ok_and(|next| next.is_some()), "news {first} and following");
        }
    }
    community.peers[1].overlay.close().await;
    let left: Vec<_> = slow.collect().await;
    assert_eq!(left.len(), INBOX_NEWS_MAX);
    let oldest: BTreeSet<_> = (0..2 * BATCH).map(|n| numbered(n).bytes().clone()).collect();
    assert!(left.iter().all(|heard| !oldest.contains(heard.news.bytes())));
    community.close().await;
}

/// A peer that one has forgotten is not heard by that one, whichever way its news come; to the
/// others nothing changes. Learning of it again undoes that.
pub async fn a_forgotten_peer_is_not_heard(harness: &dyn Harness) {
    let community = Community::of(harness, 4).await;
    let mut streams = community.streams();
    let [who, whom] = [0, 3];
    community.peers[who].overlay.forget(community.peers[whom].id);
    eventually("the link is closed", || {
        [who, whom].iter().all(|at| community.peers[*at].overlay.links() == 2)
    })
    .await;
    let (unheard, heard) = (envelope("of the forgotten"), envelope("of another"));
    community.publish(whom, &unheard).await;
    hears_exactly(&mut streams[1], &[community.heard(whom, &unheard)]).await;
    community.publish(1, &heard).await;
    hears_exactly(&mut streams[who], &[community.heard(1, &heard)]).await;
    let again = &community.peers[whom];
    community.peers[who].overlay.learn(again.id, &again.overlay.addresses());
    eventually("the link stands again", || community.peers[who].overlay.links() == 3).await;
    let back = envelope("back again");
    community.publish(whom, &back).await;
    hears_exactly(&mut streams[who], &[community.heard(whom, &back)]).await;
    community.close().await;
}
