//! The peers of the network as one program knows them: who they are, where they answer, how well they are.
//!
//! It takes signed announcements from anywhere and believes only what their signatures prove; of two by one peer the
//! higher sequence counts, and of two with one sequence that with the greater bytes: whichever came first, all keep the same, or a peer
//! that tells some the one and some the other would have them see different peers for good. Health is this program's own experience and is never taken from others. Up to
//! [`PEERS_KNOWN_MAX`] peers are kept, so that placement is a local computation; a larger network would need the
//! iterative lookup of the design, and the directory would then be its cache.
//!
//! Where it is full, organisations share it: a peer of one that has fewer there takes the place of a peer of the one that has most, the
//! one that is worst off. So an organisation that certifies peers without end crowds out its own alone.
//!
//! Invariants: every announcement kept was verified against the newest roster; the view holds exactly the peers whose
//! certificates are valid now, that have not left and that their organisation did not revoke. Everything is behind one lock, held for microseconds and never
//! over an await; iteration is in the order of keys, so that a seeded run repeats.

mod calendars;
mod peer;
mod revoked;
mod room;
mod rosters;
mod standing;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crypto::{
    Announcement, CertificateError, Genesis, OrgId, PeerId, PeerState, Revocation, Roster, Rosters,
};
use env::Env;
use env::calls::{CallError, Endpoint, KnownPeer};
use placement::{Candidate, View};
use tokio::sync::broadcast;

use crate::health::Health;
use crate::latency::Usual;
use peer::Peer;
pub use peer::PeerStatus;
pub use revoked::Revoked;
pub use rosters::{Departures, REFRESH_UNKNOWN_EVERY};
pub(crate) use standing::Standing;

/// The most peers a directory knows.
pub const PEERS_KNOWN_MAX: usize = 10_000;
/// Changes that a receiver may lag behind before it loses the oldest.
pub const CHANGES_MAX: usize = 1_024;

/// Announcements of peers that are gone which may be remembered beside as many as there are peers.
const SIGNERS_SPARE: usize = 64;

/// What an announcement taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// A peer that was not known.
    New,
    /// Something newer about a known peer, or what counts of two things that it announced at once.
    Newer,
    /// Nothing: the same, or something newer, was known.
    Known,
    /// Nothing yet: the peer announced so much lately that this is left until it is told again.
    Often,
    /// Nothing: [`PEERS_KNOWN_MAX`] other peers are known, and no organisation has more of them than its own.
    Full,
}

/// An announcement that taught something.
#[derive(Clone, Debug)]
pub struct Change {
    /// Of which peer.
    pub peer: PeerId,
    /// Whether it was known before.
    pub learnt: Learnt,
    /// What it says, verified.
    pub announcement: Arc<Announcement>,
    /// Its signed bytes, to be told to others.
    pub bytes: Bytes,
}

/// What a list of announcements taught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearntFrom {
    /// Peers that were not known.
    pub new: usize,
    /// Peers of which something newer was learnt.
    pub newer: usize,
    /// Announcements that do not count: forged, expired, of another network.
    pub bad: usize,
}

/// The peers of the network. Shared and thread-safe.
pub struct Directory {
    genesis: Arc<Genesis>,
    env: Env,
    own: Option<PeerId>,
    /// Taken before `inner` where both are needed: signatures are checked under this one alone.
    rosters: Mutex<Rosters>,
    inner: Mutex<Inner>,
    changes: broadcast::Sender<Change>,
    departures: broadcast::Sender<Departures>,
}

struct Inner {
    roster: Arc<Roster>,
    /// The roster before the newest.
    previous: Option<Arc<Roster>>,
    /// Since when somebody named an organisation that is not listed, and when that was last looked into.
    unknown: rosters::Unknown,
    peers: BTreeMap<PeerId, Peer>,
    /// Whose announcement these bytes were when they were learnt: where to look, no more, as peers are forgotten without it.
    signers: HashMap<Bytes, PeerId>,
    /// [`PEERS_KNOWN_MAX`], or fewer where a test says so.
    peers_max: usize,
    view: Option<CachedView>,
    /// The newest list of each organisation, with its signed bytes: at most as many as the roster.
    revoked: BTreeMap<OrgId, (Revocation, Bytes)>,
    /// Those of organisations that left, who left last at the end: where one comes back, so does what it disowned.
    parted: VecDeque<(Revocation, Bytes)>,
    /// By organisation, what its last peer to say so had for a calendar when this clock began, Unix milliseconds.
    calendars: BTreeMap<OrgId, u64>,
    usual: Usual,
    usual_until: Duration,
}

struct CachedView {
    view: Arc<View>,
    /// Under the roster before, where that differs.
    before: Option<Arc<View>>,
    /// When the first of its certificates expires, Unix seconds.
    until: u64,
}

impl Directory {
    /// An empty directory. `own` is the peer this program is, if it is one; its announcement is learnt like any other.
    pub fn new(genesis: Arc<Genesis>, env: Env, own: Option<PeerId>) -> Arc<Self> {
        let (changes, _) = broadcast::channel(CHANGES_MAX);
        let (departures, _) = broadcast::channel(rosters::DEPARTURES_MAX);
        let rosters = Rosters::new(genesis.clone());
        let inner = Mutex::new(Inner::new(rosters.current().clone()));
        let rosters = Mutex::new(rosters);
        Arc::new(Self { genesis, env, own, rosters, inner, changes, departures })
    }

    /// The network's genesis.
    pub fn genesis(&self) -> &Arc<Genesis> {
        &self.genesis
    }

    /// The peer this program is, if it is one.
    pub fn own(&self) -> Option<PeerId> {
        self.own
    }

    /// Takes a signed announcement.
    ///
    /// # Errors
    /// [`CertificateError`] where it does not count in this network now. Nothing changes then.
    pub fn learn(&self, announcement: &Bytes) -> Result<Learnt, CertificateError> {
        // Most of what gossip and introductions bring is known already: two signatures saved.
        if self.knows(announcement) {
            return Ok(Learnt::Known);
        }
        let now = self.env.clock.unix_s();
        let (verified, learnt, twice) = loop {
            let roster = self.roster();
            let verified = Announcement::verify(announcement, &roster, now);
            if let Err(CertificateError::Organisation(_)) = &verified {
                self.met_unknown();
            }
            let verified = Arc::new(verified?);
            let mut inner = self.lock();
            // It must count by the roster that counts when it is taken.
            if Arc::ptr_eq(&inner.roster, &roster) {
                inner.make_room(&verified, self.own, now, self.env.clock.elapsed());
                let twice = inner.has_sequence_of(&verified);
                let own = self.own == Some(verified.certificate.peer);
                let learnt = inner.take(&verified, announcement, own, self.env.clock.elapsed())?;
                break (verified, learnt, twice);
            }
        };
        let peer = verified.certificate.peer;
        if twice && learnt == Learnt::Newer {
            let sequence = verified.sequence;
            tracing::warn!(%peer, sequence, "a peer announced two things at once: the one is believed that all believe");
        }
        if matches!(learnt, Learnt::New | Learnt::Newer) {
            let bytes = announcement.clone();
            // Nobody listening is no error.
            let _ = self.changes.send(Change { peer, learnt, announcement: verified, bytes });
        }
        Ok(learnt)
    }

    fn knows(&self, announcement: &Bytes) -> bool {
        self.signer_of(announcement).is_some()
    }

    /// Takes what a peer told of others; what does not count is left out.
    pub fn learn_from(&self, known: &[KnownPeer]) -> LearntFrom {
        let mut all = LearntFrom::default();
        for peer in known.iter().take(env::calls::PEERS_MAX) {
            match self.learn(&peer.announcement) {
                Ok(Learnt::New) => all.new += 1,
                Ok(Learnt::Newer) => all.newer += 1,
                Ok(Learnt::Known | Learnt::Often | Learnt::Full) => {}
                Err(_) => all.bad += 1,
            }
        }
        all
    }

    /// The announcements of other peers, to be told to somebody: all where at most `max` are known, else a random sample.
    pub fn announcements(&self, max: usize) -> Vec<KnownPeer> {
        let now = self.env.clock.elapsed();
        let now_s = self.env.clock.unix_s();
        let mut all: Vec<KnownPeer> = {
            let inner = self.lock();
            let others = inner.peers.iter().filter(|(id, peer)| {
                Some(**id) != self.own && now_s < peer.announcement.certificate.until
            });
            others.map(|(_, peer)| peer.known(now)).collect()
        };
        if all.len() > max {
            // The first `max` of a shuffle; the bias of the remainder is below 2^-50.
            for at in 0..max {
                let left = (all.len() - at) as u64;
                let jump = u64::from_be_bytes(self.env.random()) % left;
                all.swap(at, at + usize::try_from(jump).unwrap_or(0));
            }
            all.truncate(max);
        }
        all
    }

    /// The peers that placement ranks: those with a certificate that is valid now that have not left.
    pub fn view(&self) -> Arc<View> {
        self.views().0
    }

    /// The view by the newest roster, and the one by the roster before among the peers that are in both; `None`
    /// where that is the same. Readers look under both, writers write under the newest.
    pub fn views(&self) -> (Arc<View>, Option<Arc<View>>) {
        let now = self.env.clock.unix_s();
        let mut inner = self.lock();
        if let Some(cached) = inner.view.as_ref().filter(|cached| now < cached.until) {
            return (cached.view.clone(), cached.before.clone());
        }
        // The certificates that expired are forgotten, and with them what was announced under them.
        inner.peers.retain(|_, peer| now < peer.announcement.certificate.until);
        let serving = inner.peers.values().map(|peer| &peer.announcement);
        let serving = serving.filter(|announcement| announcement.state != PeerState::Left);
        let candidates = serving.map(|announcement| Candidate {
            peer: announcement.certificate.peer,
            organisation: announcement.certificate.organisation,
            weight: announcement.certificate.capacity,
        });
        let candidates: Vec<Candidate> = candidates.collect();
        let before = inner.before(&candidates).map(Arc::new);
        let view = Arc::new(View::new(inner.roster.number(), candidates));
        let ends = inner.peers.values().map(|peer| peer.announcement.certificate.until);
        let until = ends.min().unwrap_or(u64::MAX);
        inner.view = Some(CachedView { view: view.clone(), before: before.clone(), until });
        (view, before)
    }

    /// Every known peer, in the order of their keys.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let now = self.env.clock.elapsed();
        let now_s = self.env.clock.unix_s();
        let inner = self.lock();
        let valid = inner.peers.values();
        let valid = valid.filter(|peer| now_s < peer.announcement.certificate.until);
        valid.map(|peer| peer.status(&inner.roster, now)).collect()
    }

    /// Where to call this peer: the address that worked last, or the next one after one that did not.
    pub fn endpoint(&self, peer: &PeerId) -> Option<Endpoint> {
        let inner = self.lock();
        let known = inner.peers.get(peer)?;
        Some(Endpoint { peer: Some(*peer), address: known.address()?.to_owned() })
    }

    /// Whether the peer has a valid certificate of this network and has not left.
    pub fn is_member(&self, peer: &PeerId) -> bool {
        self.organisation_of(peer).is_some()
    }

    /// The organisation of a member (see [`Directory::is_member`]).
    pub fn organisation_of(&self, peer: &PeerId) -> Option<OrgId> {
        let now = self.env.clock.unix_s();
        let inner = self.lock();
        let announcement = &inner.peers.get(peer)?.announcement;
        let valid = now < announcement.certificate.until && announcement.state != PeerState::Left;
        valid.then_some(announcement.certificate.organisation)
    }

    /// What a peer announced last, verified when it was learnt.
    pub fn announcement(&self, peer: &PeerId) -> Option<Arc<Announcement>> {
        self.lock().peers.get(peer).map(|known| known.announcement.clone())
    }

    /// The organisation of this peer, where these very bytes are what it announced last: they were verified when they were
    /// learnt, so what is left to look at is the time. `None` where they must be verified.
    pub fn vouches(&self, peer: &PeerId, announcement: &Bytes) -> Option<OrgId> {
        let now = self.env.clock.unix_s();
        let inner = self.lock();
        let known = inner.peers.get(peer).filter(|known| known.bytes == *announcement)?;
        let certificate = &known.announcement.certificate;
        // Nor before it begins, whatever skew is allowed: the whole check decides that.
        let counts = certificate.from <= now && now < certificate.until;
        counts.then_some(certificate.organisation)
    }

    /// The signed bytes of what these peers announced last, in their order; unknown ones are left out.
    pub fn announced(&self, peers: &[PeerId]) -> Vec<Bytes> {
        let inner = self.lock();
        peers.iter().filter_map(|peer| Some(inner.peers.get(peer)?.bytes.clone())).collect()
    }

    /// The known peer whose newest announcement these bytes are.
    pub(crate) fn signer_of(&self, announcement: &Bytes) -> Option<PeerId> {
        let inner = self.lock();
        let signer = inner.signers.get(announcement)?;
        let known = inner.peers.get(signer).is_some_and(|peer| peer.bytes == *announcement);
        known.then_some(*signer)
    }

    /// A call to the peer was answered, a small one, in so much time.
    pub fn good(&self, peer: &PeerId, took: Duration) {
        self.answered(peer, crate::latency::Size::Small, took);
    }

    /// A call to the peer failed. Refusals (denied, busy, full, malformed) count as signs of life.
    pub fn failed(&self, peer: &PeerId, error: &CallError) {
        let now = self.env.clock.elapsed();
        if let Some(known) = self.lock().peers.get_mut(peer) {
            known.failed(error, now);
        }
    }

    /// Whoever answers at an address was called and nobody did: no peer that is to be called there next would have.
    pub(crate) fn unanswered_at(&self, address: &str, error: &CallError) {
        if !matches!(error, CallError::Unreachable { .. } | CallError::TimedOut { .. }) {
            return;
        }
        let now = self.env.clock.elapsed();
        let mut inner = self.lock();
        let there = inner.peers.values_mut().filter(|known| known.address() == Some(address));
        there.for_each(|known| known.failed(error, now));
    }

    /// How well the peer is. A peer that is not known is [`Health::Away`].
    pub fn health(&self, peer: &PeerId) -> Health {
        let now = self.env.clock.elapsed();
        let inner = self.lock();
        inner.peers.get(peer).map_or(Health::Away, |known| known.health(now))
    }

    /// Announcements that taught something, from now on. A receiver that lags by more than [`CHANGES_MAX`] is told so
    /// and loses the oldest; [`Directory::peers`] has the whole.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every write under the lock is complete in itself, so what a panic elsewhere left is whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn new(roster: Arc<Roster>) -> Self {
        Self {
            roster,
            previous: None,
            unknown: rosters::Unknown::default(),
            peers: BTreeMap::new(),
            signers: HashMap::new(),
            peers_max: PEERS_KNOWN_MAX,
            view: None,
            revoked: BTreeMap::new(),
            parted: VecDeque::new(),
            calendars: BTreeMap::new(),
            usual: Usual::default(),
            usual_until: Duration::ZERO,
        }
    }

    fn take(
        &mut self,
        announcement: &Arc<Announcement>,
        bytes: &Bytes,
        own: bool,
        now: Duration,
    ) -> Result<Learnt, CertificateError> {
        let id = announcement.certificate.peer;
        let organisation = announcement.certificate.organisation;
        if self.is_revoked(&organisation, id.key()) {
            return Err(CertificateError::Revoked(organisation));
        }
        if let Some(known) = self.peers.get_mut(&id) {
            if (known.announcement.sequence, &known.bytes) >= (announcement.sequence, bytes) {
                return Ok(Learnt::Known);
            }
            if !own && !known.may_change(now) {
                return Ok(Learnt::Often);
            }
            self.signers.remove(&known.bytes);
            known.renew(announcement.clone(), bytes.clone());
            self.signs(id, bytes);
            self.view = None;
            return Ok(Learnt::Newer);
        }
        if self.peers.len() >= self.peers_max {
            return Ok(Learnt::Full);
        }
        self.peers.insert(id, Peer::new(announcement.clone(), bytes.clone()));
        self.signs(id, bytes);
        self.view = None;
        Ok(Learnt::New)
    }

    /// Whether the peer announced something under this sequence.
    fn has_sequence_of(&self, announcement: &Announcement) -> bool {
        let known = self.peers.get(&announcement.certificate.peer);
        known.is_some_and(|known| known.announcement.sequence == announcement.sequence)
    }

    /// Remembers whose these bytes are; forgets those of peers that are gone where they are more than the others.
    fn signs(&mut self, id: PeerId, bytes: &Bytes) {
        self.signers.insert(bytes.clone(), id);
        if self.signers.len() > 2 * self.peers.len() + SIGNERS_SPARE {
            let peers = &self.peers;
            self.signers.retain(|bytes, id| peers.get(id).is_some_and(|peer| peer.bytes == *bytes));
        }
    }
}
