//! An epoch as a member lives it: who the members are, its share, its engine, whom it is connected to.
//!
//! The state after the tip says of which epoch the next block is. Where that is another than the engine's ([`Member::keep_up`]), the
//! engine is stopped and one of the new epoch started, with a journal of its own, on the block that ended the epoch. In this order,
//! each of which a restart does again:
//!
//! 1. the block that ends the epoch is final, and in the log with its certificate;
//! 2. the new share is made of what was dealt, and synced; the old one is still there;
//! 3. the engine of the new epoch votes;
//! 4. a certificate of the new epoch is in the log, synced; the old share and what was dealt are overwritten, the old votes removed
//!    ([`Member::close_epoch`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use commonware_codec::Encode as _;
use commonware_consensus::simplex::elector::RoundRobin;
use commonware_consensus::simplex::{self, Floor, ForwardPolicy, SkipBudget, SkipPolicy};
use commonware_consensus::types::{Epoch, ViewDelta};
use commonware_cryptography::blake3;
use commonware_cryptography::bls12381::primitives::group::Share;
use commonware_p2p::authenticated::lookup::Oracle;
use commonware_p2p::{Address, AddressableManager as _};
use commonware_parallel::Sequential;
use commonware_runtime::Handle as Task;
use commonware_runtime::buffer::paged::CacheRef;
use commonware_utils::channel::mpsc;
use commonware_utils::ordered::{Map, Set};
use commonware_utils::{Faults as _, N3f1, NZDuration, NZU16, NZUsize};

use super::{Member, start};
use crate::certificate::{Digest, Scheme, namespace};
use crate::engine::files;
use crate::engine::links::{Links, Open};
use crate::engine::port::{Ask, Port};
use crate::engine::{DkgOutcome, Key, MemberId, Runtime};
use crate::members::{Members, Place, round};
use crate::{CommitteeError, State};

/// How many epochs back votes are looked for that must go.
const VOTES_BACK: u64 = 8;

/// Where the engine of a member that votes keeps its journal: its votes, and what others sent.
pub(super) fn votes_partition(name: &str, epoch: u64) -> String {
    format!("{name}-votes-{epoch}")
}

/// Where that of one that follows does. It is another place: a member that lost its votes must find none at every later start, and
/// the votes of one that lost its share are not to be read by an engine without.
fn follows_partition(name: &str, epoch: u64) -> String {
    format!("{name}-follows-{epoch}")
}

/// The members of an epoch.
pub(super) struct Term {
    pub(super) epoch: u64,
    /// The number of the last round when it was entered: of the one that made it, where none came after.
    pub(super) number: u64,
    pub(super) outcome: DkgOutcome,
}

impl Term {
    /// That of the block after the one with this state.
    pub(super) fn of(state: &State) -> Result<Self, CommitteeError> {
        const NONE: CommitteeError =
            CommitteeError::Files("the state does not say who is a member");
        let Members { epoch, number, outcome, .. } = state.members().ok_or(NONE)?;
        Ok(Self { epoch, number, outcome: round::read_outcome(&outcome)? })
    }

    /// The members' keys, in order.
    pub(super) const fn keys(&self) -> &Set<Key> {
        self.outcome.players()
    }

    /// The members, in order.
    pub(super) fn members(&self) -> Vec<MemberId> {
        self.keys().iter().map(MemberId::of).collect()
    }

    /// How many must agree.
    pub(super) fn quorum(&self) -> u32 {
        N3f1::quorum(self.keys().len())
    }

    pub(super) fn is_member(&self, key: &Key) -> bool {
        self.keys().position(key).is_some()
    }
}

/// The engine of an epoch.
pub(super) struct Running {
    asked: mpsc::UnboundedReceiver<Ask>,
    task: Task<()>,
}

/// What the engine asks next; `None` when it ended. Without one, nothing ever.
pub(super) async fn asked(engine: &mut Option<Running>) -> Option<Ask> {
    match engine {
        Some(running) => running.asked.recv().await,
        None => std::future::pending().await,
    }
}

/// Whom the member is connected to.
pub(super) struct Peers {
    /// Where others are, as this machine's operator says.
    places: BTreeMap<Key, SocketAddr>,
    /// Those of the settings.
    first: Vec<Key>,
    tracked: BTreeMap<Key, SocketAddr>,
    index: u64,
    pub(super) max: usize,
}

impl Peers {
    /// Those of the settings.
    pub(super) fn new<E: Runtime>(links: &Links, open: &Open<E>) -> Self {
        let (places, tracked) = (BTreeMap::new(), BTreeMap::new());
        let mut peers = Self { places, first: Vec::new(), tracked, index: 0, max: open.peers_max };
        peers.moved(&links.members);
        peers.first = peers.places.keys().cloned().collect();
        peers.tracked = peers.places.clone();
        peers
    }

    /// Whether a member is one of them.
    pub(super) fn are_with(&self, key: &Key) -> bool {
        self.tracked.contains_key(key)
    }

    /// Others are elsewhere now.
    pub(super) fn moved(&mut self, members: &[(MemberId, SocketAddr)]) {
        // More than twice all members that there can be is nobody's list.
        let known = self.places.len();
        let room = (4 * crate::engine::MEMBERS_MAX).saturating_sub(known);
        for (member, address) in members.iter().take(room) {
            if let Ok(key) = member.key() {
                self.places.insert(key, *address);
            }
        }
    }
}

type Engine<E> =
    simplex::Engine<E, Scheme, RoundRobin, Oracle<Key>, Digest, Port, Port, Port, Sequential>;

impl<E: Runtime> Member<E> {
    /// Goes over to the epoch that the tip says, and closes the one before once the new one has a certificate.
    pub(super) async fn keep_up(&mut self) -> Result<(), CommitteeError> {
        if self.chain.epoch() != self.term.epoch {
            self.enter().await?;
        }
        self.track();
        self.close_epoch().await
    }

    /// Begins the epoch of the block after the tip.
    pub(super) async fn enter(&mut self) -> Result<(), CommitteeError> {
        if let Some(Running { task, .. }) = self.engine.take() {
            task.abort();
            let _ = task.await;
        }
        // What the new epoch stands on is on the disk before anything of it is.
        self.log.sync().await?;
        self.term = Term::of(self.chain.state())?;
        (self.proposing, self.notarised, self.ahead, self.dealing) = (None, None, None, None);
        self.wanted.clear();
        let counts = self.term.is_member(&self.me);
        self.forget_how_far();
        // A new journal has nothing to tell.
        self.has_voted = self.has_voted && counts;
        let share = self.share_of_term().await?;
        let (name, epoch) = (&self.settings.name, self.term.epoch);
        self.share = start::may_vote(&self.context, name, epoch, share).await?;
        self.track();
        if counts {
            self.start_engine().await?;
        }
        let votes = self.share.is_some();
        tracing::info!(epoch, members = self.term.keys().len(), votes, "an epoch begins");
        self.close_epoch().await
    }

    /// This member's share of the term: kept, or made of what was dealt to it.
    async fn share_of_term(&mut self) -> Result<Option<Share>, CommitteeError> {
        if !self.term.is_member(&self.me) {
            return Ok(None);
        }
        let (name, epoch) = (&self.settings.name, self.term.epoch);
        let kept = files::share(&self.context, name, epoch).await?;
        if kept.as_ref().is_some_and(|share| self.fits(share)) {
            return Ok(kept);
        }
        if kept.is_some() {
            return Err(CommitteeError::Files("the share is not that of the charter or the epoch"));
        }
        let Some(share) = self.share_of_dealings() else { return Ok(None) };
        if !self.fits(&share) {
            tracing::error!(epoch, "what was dealt makes no share of the epoch: it follows");
            return Ok(None);
        }
        files::keep_share(&self.context, name, epoch, &share).await?;
        Ok(Some(share))
    }

    fn fits(&self, share: &Share) -> bool {
        let names = namespace(&self.charter.rules.network);
        let (keys, public) = (self.term.keys().clone(), self.term.outcome.public().clone());
        let mine = self.term.keys().position(&self.me) == Some(share.index.get() as usize);
        mine && Scheme::signer(&names, keys, public, share.clone()).is_some()
    }

    async fn start_engine(&mut self) -> Result<(), CommitteeError> {
        let (asks, asked) = mpsc::unbounded_channel();
        let engine = self.make_engine(Port::new(asks, self.term.keys().clone()))?;
        let [votes, certificates, resolver] = self.lines.of(self.term.epoch).await?;
        // Its end is seen by the end of what it asks.
        let task = engine.start(votes, certificates, resolver);
        self.engine = Some(Running { asked, task });
        Ok(())
    }

    /// The engine begins with the block that ended the epoch before, or with the newest certificate of its own.
    fn floor(&self) -> Result<Floor<Scheme, Digest>, CommitteeError> {
        let genesis =
            |digest: &crate::HeaderDigest| Floor::Genesis(blake3::Digest(*digest.as_bytes()));
        if self.term.epoch == 0 {
            return Ok(genesis(&self.charter.genesis().digest()));
        }
        let own = self.chain.certificate().filter(|one| one.round().0 == self.term.epoch);
        match own {
            Some(certificate) => Ok(Floor::Finalized(certificate.finalization()?)),
            None => Ok(genesis(&self.chain.tip().digest())),
        }
    }

    fn make_engine(&self, port: Port) -> Result<Engine<E>, CommitteeError> {
        let names = namespace(&self.charter.rules.network);
        let (members, polynomial) = (self.term.keys().clone(), self.term.outcome.public().clone());
        let (name, epoch) = (&self.settings.name, self.term.epoch);
        let (scheme, partition) = match self.share.clone() {
            Some(share) => {
                let scheme = Scheme::signer(&names, members, polynomial, share);
                (scheme, votes_partition(name, epoch))
            }
            None => {
                let scheme = Scheme::member(&names, members, polynomial, &self.me);
                (scheme, follows_partition(name, epoch))
            }
        };
        let scheme = scheme.ok_or(CommitteeError::Files("the share is not the epoch's"))?;
        let leader_timeout = self.settings.rest + Duration::from_millis(1_000);
        let config = simplex::Config {
            scheme,
            elector: RoundRobin::default(),
            blocker: self.oracle.clone(),
            automaton: port.clone(),
            relay: port.clone(),
            reporter: port,
            track_historical_votes: false,
            strategy: Sequential,
            partition,
            mailbox_size: NZUsize!(1_024),
            epoch: Epoch::new(epoch),
            floor: self.floor()?,
            replay_buffer: NZUsize!(1 << 20),
            write_buffer: NZUsize!(64 << 10),
            page_cache: CacheRef::new(NZU16!(4_096), NZUsize!(256)),
            leader_timeout,
            certification_timeout: leader_timeout + Duration::from_millis(1_000),
            timeout_retry: Duration::from_millis(1_000),
            view_retention: ViewDelta::new(64),
            skip: SkipPolicy::Enabled {
                timeout: leader_timeout + Duration::from_millis(3_000),
                budget: SkipBudget::Participants,
            },
            fetch_timeout: NZDuration!(Duration::from_millis(1_000)),
            fetch_retry_delay: Duration::from_millis(100),
            forward: ForwardPolicy::SilentVoters,
        };
        Ok(simplex::Engine::new(self.context.child("engine"), config))
    }

    /// With a certificate of the epoch on the disk, forgets the shares and votes of those before; what was dealt goes with the next tick,
    /// where no round is under way that it belongs to ([`Member::change_members`]).
    pub(super) async fn close_epoch(&mut self) -> Result<(), CommitteeError> {
        let epoch = self.term.epoch;
        let certified = self.chain.tip().epoch == epoch;
        if !certified || self.closed == Some(epoch) {
            return Ok(());
        }
        self.log.sync().await?;
        if epoch > 0 && files::forget_shares(&self.context, &self.settings.name, epoch).await? {
            tracing::info!(epoch, "the shares of the epochs before are overwritten");
        }
        let name = &self.settings.name;
        let old = epoch.saturating_sub(VOTES_BACK)..epoch;
        for partition in
            old.flat_map(|old| [votes_partition(name, old), follows_partition(name, old)])
        {
            match self.context.remove(&partition, None).await {
                Ok(()) | Err(commonware_runtime::Error::PartitionMissing(_)) => {}
                Err(error) => {
                    tracing::warn!(%error, partition, "old votes could not be removed");
                }
            }
        }
        self.closed = Some(epoch);
        Ok(())
    }

    /// Connects to the members, those before them, and those that are wanted.
    pub(super) fn track(&mut self) {
        let Some(members) = self.chain.state().members() else { return };
        let mut wanted: Vec<Place> = members.members.clone();
        let round = members.round_at(self.chain.tip().time_ms);
        let players = round.iter().flat_map(|round| &round.players);
        wanted.extend(players.chain(&members.before).copied());
        wanted.extend(self.wishes.mine_members());
        let mut peers: Vec<(Key, SocketAddr)> = Vec::new();
        for place in &wanted {
            let Ok(key) = place.member.key() else { continue };
            let address = self.peers.places.get(&key).copied().or(place.address);
            peers.extend(address.map(|address| (key, address)));
        }
        // Whoever follows knows the members of its settings alone until it has caught up.
        if self.share.is_none() {
            let places = &self.peers.places;
            let place = |key: &Key| Some((key.clone(), *places.get(key)?));
            peers.extend(self.peers.first.iter().filter_map(place));
        }
        let mut tracked = BTreeMap::new();
        // This one counts too, listed or not: one too many and the connections end.
        let is_listed = peers.iter().any(|(key, _)| *key == self.me);
        let max = self.peers.max.saturating_sub(usize::from(!is_listed));
        for (key, address) in peers {
            let room = tracked.len() < max || key == self.me;
            if room || tracked.contains_key(&key) {
                tracked.entry(key).or_insert(address);
            }
        }
        if tracked == self.peers.tracked {
            return;
        }
        let addresses = tracked.iter().map(|(key, one)| (key.clone(), Address::from(*one)));
        let addresses: Map<Key, Address> = Map::from_iter_dedup(addresses);
        self.peers.index += 1;
        let _ = self.oracle.track(self.peers.index, addresses);
        self.peers.tracked = tracked;
    }

    /// The bytes of the term's outcome, as the state has them.
    pub(super) fn outcome_bytes(&self) -> bytes::Bytes {
        self.term.outcome.encode()
    }
}
