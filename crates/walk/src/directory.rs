//! The peers of the network as one program knows them: who they are, where they answer, how well they are.
//!
//! It takes signed announcements from anywhere and believes only what their signatures prove; of two by one peer the
//! higher sequence counts, and of two with one sequence that with the greater bytes: whichever came first, all keep the same, or a peer
//! that tells some the one and some the other would have them see different peers for good. But a sequence of the future, which can have been taken only while
//! the calendar here was ahead, gives way to any that counts. Health is this program's own experience and is never taken from others. Up to
//! [`PEERS_KNOWN_MAX`] peers are kept, so that placement is a local computation; a larger network would need the
//! iterative lookup of the design, and the directory would then be its cache.
//!
//! No organisation has more than its part of it; and where it is full, a peer of one that has fewer there takes the place of a peer of
//! the one that has most, the one that is worst off (see `room`). So an organisation that certifies peers without end crowds out its
//! own alone.
//!
//! Invariants: every announcement kept was verified against the newest roster, and counts for as long as its certificate does: what
//! has run out is told to nobody, called by nobody and no member. It is kept where there is room, since the own calendar may be what
//! is wrong. The view holds exactly the peers that have not left, that their organisation did not revoke, and whose certificates are
//! valid or ran out since the last multiple of ten minutes; but of an organisation that changes them all the time those that it had
//! before (see `turnover`). Everything is behind one lock, held for microseconds and never over an await; iteration is in the order of
//! keys, so that a seeded run repeats.

mod calendars;
mod peer;
mod reach;
mod revoked;
mod room;
mod rosters;
mod standing;
mod turnover;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crypto::certificate::CLOCK_SKEW_S;
use crypto::{
    Announcement, CertificateError, Genesis, OrgId, PeerCertificate, PeerId, PeerState, Revocation,
    Roster, Rosters,
};
use env::Env;
use env::calls::{CallError, Endpoint, KnownPeer};
use placement::View;
use tokio::sync::broadcast;

use crate::health::Health;
use crate::latency::Usual;
use peer::Peer;
pub use peer::PeerStatus;
pub use reach::UNHEARD_PAUSE;
pub use revoked::Revoked;
use room::Room;
pub use rosters::{Departures, REFRESH_UNKNOWN_EVERY};
pub(crate) use standing::Standing;
use turnover::Turnover;

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
    /// Nothing: so many other peers of its organisation are known as are its part, or [`PEERS_KNOWN_MAX`] of all and no organisation
    /// has more of them than its own.
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
    /// How many there are of each organisation.
    shares: BTreeMap<OrgId, usize>,
    /// [`PEERS_KNOWN_MAX`], or fewer where a test says so.
    peers_max: usize,
    /// [`room::OF_ONE_MIN`], or fewer where a test says so.
    of_one_min: usize,
    view: Option<CachedView>,
    /// What organisations changed of it lately.
    turnover: Turnover,
    /// The clock's `elapsed` when it was made.
    began: Duration,
    /// The newest list of each organisation, with its signed bytes: at most as many as the roster.
    revoked: BTreeMap<OrgId, (Revocation, Bytes)>,
    /// The hash of all of these, by which two programs see whether they know the same.
    revoked_digest: [u8; 32],
    /// Those of organisations that left, who left last at the end: where one comes back, so does what it disowned.
    parted: VecDeque<(Revocation, Bytes)>,
    /// By organisation, what its last peer to say so had for a calendar when this clock began, Unix milliseconds.
    calendars: BTreeMap<OrgId, u64>,
    usual: Usual,
    usual_until: Duration,
    /// Until when nobody is asked whether it is there, since many were waited for in vain.
    unheard_paused_until: Duration,
}

struct CachedView {
    view: Arc<View>,
    /// Under the roster before, where that differs.
    before: Option<Arc<View>>,
    /// When it was made, Unix seconds: it is none of a calendar that was set back since.
    made: u64,
    /// Until when it is right, where nothing is learnt, Unix seconds.
    until: u64,
}

impl CachedView {
    fn counts(&self, now_s: u64) -> bool {
        self.made <= now_s && now_s < self.until
    }
}

/// A moment, by both clocks.
#[derive(Clone, Copy)]
struct At {
    /// Unix seconds.
    unix_s: u64,
    /// The clock's `elapsed`.
    elapsed: Duration,
}

impl Directory {
    /// An empty directory. `own` is the peer this program is, if it is one; its announcement is learnt like any other.
    pub fn new(genesis: Arc<Genesis>, env: Env, own: Option<PeerId>) -> Arc<Self> {
        let (changes, _) = broadcast::channel(CHANGES_MAX);
        let (departures, _) = broadcast::channel(rosters::DEPARTURES_MAX);
        let rosters = Rosters::new(genesis.clone());
        let inner = Mutex::new(Inner::new(rosters.current().clone(), env.clock.elapsed()));
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
        // What is kept must not keep the message that it came in.
        let announcement = &Bytes::copy_from_slice(announcement);
        let at = self.at();
        let (verified, learnt, twice, hectic) = loop {
            let roster = self.roster();
            let verified = Announcement::verify(announcement, &roster, at.unix_s);
            if let Err(CertificateError::Organisation(_)) = &verified {
                self.met_unknown();
            }
            let verified = Arc::new(verified?);
            let mut inner = self.lock();
            // It must count by the roster that counts when it is taken.
            if Arc::ptr_eq(&inner.roster, &roster) {
                let twice = inner.has_sequence_of(&verified);
                let learnt = inner.take(&verified, announcement, self.own, at)?;
                break (verified, learnt, twice, inner.turnover.take_begun());
            }
        };
        turnover::tell_begun(hectic);
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
        let at = self.at();
        let mut all: Vec<KnownPeer> = {
            let inner = self.lock();
            let others = inner.peers.iter();
            let others =
                others.filter(|(id, peer)| Some(**id) != self.own && peer.is_valid(at.unix_s));
            others.map(|(_, peer)| peer.known(at.elapsed)).collect()
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

    /// The peers that placement ranks: those with a certificate that have not left. One that ran out stays in it until the next
    /// multiple of ten minutes, and is called by nobody.
    pub fn view(&self) -> Arc<View> {
        self.views().0
    }

    /// The view by the newest roster, and the one by the roster before among the peers that are in both; `None`
    /// where that is the same. Readers look under both, writers write under the newest.
    pub fn views(&self) -> (Arc<View>, Option<Arc<View>>) {
        let now = self.env.clock.unix_s();
        let mut inner = self.lock();
        if let Some(cached) = inner.view.as_ref().filter(|cached| cached.counts(now)) {
            return (cached.view.clone(), cached.before.clone());
        }
        let candidates = inner.candidates(now);
        let before = inner.before(&candidates).map(Arc::new);
        let view = Arc::new(View::new(inner.roster.number(), candidates));
        let until = inner.view_lasts_until(now);
        let both = (view.clone(), before.clone());
        inner.view = Some(CachedView { view, before, made: now, until });
        both
    }

    /// Every known peer, in the order of their keys.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let at = self.at();
        let inner = self.lock();
        let valid = inner.peers.values().filter(|peer| peer.is_valid(at.unix_s));
        valid.map(|peer| peer.status(&inner.roster, at.elapsed)).collect()
    }

    /// Where to call this peer: the address that worked last, or the next one after one that did not, and its others. `None` where it is
    /// not known, or its certificate ran out.
    pub fn endpoint(&self, peer: &PeerId) -> Option<Endpoint> {
        let now = self.env.clock.unix_s();
        let inner = self.lock();
        let known = inner.peers.get(peer).filter(|known| known.is_valid(now))?;
        let (address, further) = known.addresses()?;
        Some(Endpoint { peer: Some(*peer), address, further })
    }

    /// Whether the peer has a valid certificate of this network and has not left.
    pub fn is_member(&self, peer: &PeerId) -> bool {
        self.organisation_of(peer).is_some()
    }

    /// The organisation of a member (see [`Directory::is_member`]).
    pub fn organisation_of(&self, peer: &PeerId) -> Option<OrgId> {
        let now = self.env.clock.unix_s();
        let inner = self.lock();
        let known = inner.peers.get(peer).filter(|known| known.is_valid(now))?;
        let is_there = known.announcement.state != PeerState::Left;
        is_there.then_some(known.announcement.certificate.organisation)
    }

    /// What a peer announced last, verified when it was learnt; also where its certificate ran out meanwhile.
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
        let now = self.env.clock.unix_s();
        let inner = self.lock();
        let known = peers.iter().filter_map(|peer| inner.peers.get(peer));
        known.filter(|known| known.is_valid(now)).map(|known| known.bytes.clone()).collect()
    }

    /// The known peer whose newest announcement these bytes are, as long as that counts.
    pub(crate) fn signer_of(&self, announcement: &Bytes) -> Option<PeerId> {
        let now = self.env.clock.unix_s();
        let inner = self.lock();
        let signer = inner.signers.get(announcement)?;
        let known = inner.peers.get(signer);
        let is_it = known.is_some_and(|peer| peer.bytes == *announcement && peer.is_valid(now));
        is_it.then_some(*signer)
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

    /// Whoever answers at an address was called and nobody did: no peer that is to be called there next would have. One that has other
    /// addresses is called at the next one.
    pub(crate) fn unanswered_at(&self, address: &str, error: &CallError) {
        if !matches!(error, CallError::Unreachable { .. } | CallError::TimedOut { .. }) {
            return;
        }
        let now = self.env.clock.elapsed();
        let mut inner = self.lock();
        let there = inner.peers.values_mut().filter(|known| known.address() == Some(address));
        there.for_each(|known| known.unanswered(error, now));
    }

    /// How well the peer is. A peer that is not known, or whose certificate ran out, is [`Health::Away`].
    pub fn health(&self, peer: &PeerId) -> Health {
        let at = self.at();
        let inner = self.lock();
        let known = inner.peers.get(peer).filter(|known| known.is_valid(at.unix_s));
        known.map_or(Health::Away, |known| known.health(at.elapsed))
    }

    /// Announcements that taught something, from now on. A receiver that lags by more than [`CHANGES_MAX`] is told so
    /// and loses the oldest; [`Directory::peers`] has the whole.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    fn at(&self) -> At {
        At { unix_s: self.env.clock.unix_s(), elapsed: self.env.clock.elapsed() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every write under the lock is complete in itself, so what a panic elsewhere left is whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last sequence that counts now: see [`Announcement::verify`].
fn sequence_max(unix_s: u64) -> u64 {
    unix_s.saturating_add(CLOCK_SKEW_S).saturating_mul(1000)
}

impl Inner {
    fn new(roster: Arc<Roster>, began: Duration) -> Self {
        Self {
            roster,
            began,
            previous: None,
            unknown: rosters::Unknown::default(),
            peers: BTreeMap::new(),
            signers: HashMap::new(),
            shares: BTreeMap::new(),
            peers_max: PEERS_KNOWN_MAX,
            of_one_min: room::OF_ONE_MIN,
            view: None,
            turnover: Turnover::default(),
            revoked: BTreeMap::new(),
            revoked_digest: rosters::digest(std::iter::empty()),
            parted: VecDeque::new(),
            calendars: BTreeMap::new(),
            usual: Usual::default(),
            usual_until: Duration::ZERO,
            unheard_paused_until: Duration::ZERO,
        }
    }

    fn take(
        &mut self,
        announcement: &Arc<Announcement>,
        bytes: &Bytes,
        own: Option<PeerId>,
        at: At,
    ) -> Result<Learnt, CertificateError> {
        let id = announcement.certificate.peer;
        let organisation = announcement.certificate.organisation;
        if self.is_revoked(&organisation, id.key()) {
            return Err(CertificateError::Revoked(organisation));
        }
        let Some(known) = self.peers.get_mut(&id) else {
            return Ok(self.take_new(announcement, bytes, own, at));
        };
        // The calendar was ahead when it was taken: whoever's was not refused it, and its peer goes on from no such sequence.
        let is_of_future = known.announcement.sequence > sequence_max(at.unix_s);
        let said = (known.announcement.sequence, &known.bytes);
        if said >= (announcement.sequence, bytes) && !is_of_future {
            return Ok(Learnt::Known);
        }
        if own != Some(id) && !known.may_change(at.elapsed) {
            return Ok(Learnt::Often);
        }
        let (before, said) = (known.candidate(at.unix_s), known.bytes.clone());
        let was_of = known.announcement.certificate.organisation;
        if was_of != organisation && self.has_part(&organisation) {
            return Ok(Learnt::Full);
        }
        let after = peer::candidate(announcement, at.unix_s);
        self.changes(before.as_ref(), after.as_ref(), at);
        self.signers.remove(&said);
        if let Some(known) = self.peers.get_mut(&id) {
            known.renew(announcement.clone(), bytes.clone());
        }
        if was_of != organisation {
            self.count_shares();
        }
        self.signs(id, bytes);
        self.view_ends_with(announcement);
        Ok(Learnt::Newer)
    }

    fn take_new(
        &mut self,
        announcement: &Arc<Announcement>,
        bytes: &Bytes,
        own: Option<PeerId>,
        at: At,
    ) -> Learnt {
        let goes = match self.room_for(announcement, own, at) {
            Room::No => return Learnt::Full,
            Room::Free => None,
            Room::InsteadOf(peer) => Some(peer),
        };
        let before = goes.and_then(|goes| self.peers.get(&goes)?.candidate(at.unix_s));
        let after = peer::candidate(announcement, at.unix_s);
        self.changes(before.as_ref(), after.as_ref(), at);
        if goes.and_then(|goes| self.peers.remove(&goes)).is_some() {
            self.count_shares();
        }
        let PeerCertificate { peer, organisation, .. } = announcement.certificate;
        self.peers.insert(peer, Peer::new(announcement.clone(), bytes.clone()));
        *self.shares.entry(organisation).or_default() += 1;
        self.signs(peer, bytes);
        self.view_ends_with(announcement);
        Learnt::New
    }

    /// The view is right no longer than this announcement is in it, where it was not made anew for it.
    fn view_ends_with(&mut self, announcement: &Announcement) {
        if let Some(view) = &mut self.view {
            view.until = view.until.min(peer::leaves_view_at(announcement));
        }
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
