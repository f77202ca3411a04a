//! One peer from its start to its end.
//!
//! ```text
//!   prepare -----> start -----> serving -----> stop
//!   key and        log read,    service(),     says farewell, lets calls finish,
//!   certificate    announced,   background     ends background work, then closes
//!   checked        joins        work           overlay, store and log
//! ```
//! Every background task is owned here and joined by [`Librarian::stop`]; where a librarian is dropped
//! without it, they are aborted (what was acknowledged is durable all the same).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crypto::{
    Announcement, CertificateError, ClientKey, PeerId, PeerState, PublicKey, RecordId, RosterError,
    Taught,
};
use document::Record;
use env::calls::{Calls, Credential, PEERS_MAX, Service};
use env::{Env, Task};
use futures::FutureExt;
use futures::future::BoxFuture;
use objects::{Objects, ObjectsError, ObjectsOptions};
use overlay::{Members, News, Overlay};
use store::{Durability, Journal, RecordStore};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use walk::{Directory, WalkOptions, Walker};

use crate::admission::Admission;
use crate::announcer::Announcer;
use crate::committee::{Hosted, MemberSeat};
use crate::core::Core;
use crate::error::LibrarianError;
use crate::keeping::{self, Fresh, Keeping, Observed, RepairStatus};
use crate::leases::Leases;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::objects::{ObjectShelf, Parts};
use crate::options::LibrarianOptions;
use crate::proofs::Proofs;
use crate::publications::{Outlets, Publications};
use crate::quota::Quotas;
use crate::room::Room;
use crate::seats::Seats;
use crate::service::Endpoints;
use crate::shelf::{OwnShelf, Shelf};
use crate::standing::Standings;
use crate::status::Status;
use crate::strain::{self, Strain};
use crate::{catch_up, committee, leases, neighbours, news, rosters, spread, upkeep};

/// How long a stopping peer waits for copies that it is making for somebody (`Put`).
const WALKS_DRAIN: Duration = Duration::from_secs(5);
/// How long a stopping peer waits for a background task before it ends it.
const TASK_DRAIN: Duration = Duration::from_secs(5);

/// A peer whose identity is checked and that has nothing yet to serve with.
///
/// The overlay asks who is a member and the transport introduces the peer on each connection, and
/// both must exist before the peer starts. They get [`Prepared::members`] and
/// [`Prepared::credential`], which stay current as long as the peer lives.
pub struct Prepared {
    options: LibrarianOptions,
    env: Env,
    directory: Arc<Directory>,
    announcer: Arc<Announcer>,
    /// When the peer was last known to run, Unix milliseconds; 0 where it is not known.
    last_run_ms: u64,
    unvouched: Option<Arc<dyn Calls>>,
}

impl Prepared {
    /// This peer.
    pub fn peer(&self) -> PeerId {
        self.announcer.own()
    }

    /// The peers known, so far those of the last run.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Whether a peer is a member of the network now, and of which organisation: for the overlay.
    pub fn members(&self) -> Members {
        let directory = Arc::clone(&self.directory);
        Arc::new(move |peer| directory.organisation_of(peer))
    }

    /// What vouches for this peer now: for the transport, which shows it on each new connection.
    pub fn credential(&self) -> Arc<dyn Fn() -> Credential + Send + Sync> {
        let announcer = Arc::clone(&self.announcer);
        Arc::new(move || announcer.credential())
    }

    /// Calls of another key that show nothing. Where everybody refuses the peer, its organisation may have left while it did not
    /// hear of it; who takes part is told to strangers too, so it asks by these.
    #[must_use]
    pub fn asking_unvouched(mut self, calls: Arc<dyn Calls>) -> Self {
        self.unvouched = Some(calls);
        self
    }

    /// Starts the peer. It serves as soon as this returns; joining goes on behind.
    ///
    /// # Errors
    /// Where the publication log, or what the store has of versioned objects, cannot be read.
    pub async fn start(
        self,
        store: Arc<dyn RecordStore>,
        journal: Arc<Journal>,
        overlay: Arc<dyn Overlay>,
        calls: Arc<dyn Calls>,
    ) -> Result<Arc<Librarian>, LibrarianError> {
        let Self { options, env, directory, announcer, last_run_ms, unvouched } = self;
        let suite = options.genesis.suite;
        let metrics = Arc::new(Metrics::new());
        let opening =
            Publications::open(env.clone(), suite, Arc::clone(&journal), Arc::clone(&metrics));
        let (publications, outlets) = opening.await?;
        // All that writes does it through what tells the inventory.
        let fresh = Arc::new(Fresh::default());
        let store: Arc<dyn RecordStore> = match options.keeping {
            Some(_) => Arc::new(Observed::new(store, Arc::clone(&fresh))),
            None => store,
        };
        let leases =
            Leases::open(env.clone(), Arc::clone(&store), Arc::clone(&directory), options.leases);
        let leases = leases.await?;
        // What it heard before it is known to have run it may not have heard: the earlier counts.
        leases.set_heard_ms(
            options.words_heard_ms.map_or(last_run_ms, |heard| heard.min(last_run_ms)),
        );
        let shelf = Shelf::new(
            env.clone(),
            suite,
            Arc::clone(&store),
            Arc::clone(&publications),
            Arc::clone(&leases),
            Arc::clone(&metrics),
            Room::new(options.store_path),
        );
        shelf.set_read_only(options.read_only);
        let objects = ObjectShelf::open(Parts {
            env: env.clone(),
            network: options.genesis.network(),
            secret: options.secret.clone(),
            options: ObjectsOptions { suite, cache_bytes_max: options.objects.cache_bytes_max },
            region_bytes: options.objects.region_bytes,
            store: Arc::clone(&store),
            shelf: Arc::clone(&shelf),
            metrics: Arc::clone(&metrics),
        });
        let objects = objects.await?;
        let own: Arc<dyn walk::LocalStore> = Arc::new(OwnShelf(Arc::clone(&shelf)));
        let walking = WalkOptions {
            own: Some(own),
            credential: announcer.credential(),
            ..WalkOptions::default()
        };
        let walker = Walker::new(env.clone(), Arc::clone(&calls), Arc::clone(&directory), walking);
        let unvouched = unvouched.map(|calls| {
            Walker::new(env.clone(), calls, Arc::clone(&directory), WalkOptions::default())
        });
        let core = Arc::new(Core {
            own: announcer.own(),
            organisation: announcer.announcement().certificate.organisation,
            bootstrap: options.bootstrap,
            genesis: options.genesis,
            limits: options.limits,
            rhythm: options.rhythm,
            started: env.clock.elapsed(),
            standings: Standings::new(options.limits.standings_max),
            admission: Admission::new(options.limits),
            proofs: Proofs::new(),
            strain: Strain::default(),
            limiter: Limiter::new(options.limits.rates),
            quotas: Quotas::new(options.stored_bytes),
            news_rates: Mutex::default(),
            seats: Seats::new(options.limits),
            behind: Notify::new(),
            stop: CancellationToken::new(),
            stop_log: CancellationToken::new(),
            env,
            directory,
            walker,
            unvouched,
            calls,
            overlay,
            journal,
            store: Arc::clone(&store),
            keeping: options.keeping.map(|keeping| Keeping::new(keeping, fresh)),
            shelf,
            objects,
            leases,
            member: MemberSeat::default(),
            publications,
            announcer,
            metrics,
        });
        let tasks = start_tasks(&core, outlets, options.upkeep, last_run_ms);
        tracing::info!(
            peer = %core.own,
            organisation = %core.organisation,
            network = %core.genesis.network(),
            roster = core.directory.roster().number(),
            peers = core.directory.view().len(),
            "serving"
        );
        Ok(Arc::new(Librarian { core, store, tasks: Mutex::new(tasks) }))
    }
}

/// The background work of one peer, in two parts: the log's ends last.
struct Running {
    neighbourly: Vec<Task>,
    log: Vec<Task>,
}

fn start_tasks(
    core: &Arc<Core>,
    outlets: Outlets,
    kept: Option<upkeep::UpkeepOptions>,
    last_run_ms: u64,
) -> Option<Running> {
    let spawn = |work: BoxFuture<'static, ()>| core.env.tasks.spawn(work);
    let changes = core.directory.changes();
    let departures = core.directory.departures();
    // The peers of the last run are no change.
    news::tell_overlay_all(core);
    let publications = Arc::clone(&core.publications);
    let log = publications.append_all(outlets.queue, core.stop_log.clone());
    let spreading = spread::spread_all(Arc::clone(core), outlets.spread);
    let mut neighbourly: Vec<Task> = kept
        .map_or_else(Vec::new, |kept| upkeep::start(core, kept).into_iter().map(spawn).collect());
    neighbourly.extend([
        spawn(news::follow_changes(Arc::clone(core), changes).boxed()),
        spawn(rosters::follow_departures(Arc::clone(core), departures).boxed()),
        spawn(rosters::catch_up_rosters(Arc::clone(core)).boxed()),
        spawn(news::hear_all(Arc::clone(core)).boxed()),
        spawn(neighbours::join_all(Arc::clone(core)).boxed()),
        spawn(neighbours::introduce_all(Arc::clone(core)).boxed()),
        spawn(neighbours::check_all(Arc::clone(core)).boxed()),
        spawn(neighbours::announce_all(Arc::clone(core)).boxed()),
        spawn(catch_up::catch_up_all(Arc::clone(core)).boxed()),
        spawn(leases::sweep_all(Arc::clone(core)).boxed()),
        spawn(leases::erase_all(Arc::clone(core)).boxed()),
        spawn(leases::hear_all(Arc::clone(core), last_run_ms).boxed()),
        spawn(committee::look_all(Arc::clone(core)).boxed()),
        spawn(strain::watch(Arc::clone(core)).boxed()),
    ]);
    neighbourly.extend(keeping::start(core));
    Some(Running { neighbourly, log: vec![spawn(log.boxed()), spawn(spreading.boxed())] })
}

/// A running peer.
pub struct Librarian {
    core: Arc<Core>,
    store: Arc<dyn RecordStore>,
    tasks: Mutex<Option<Running>>,
}

impl Librarian {
    /// Checks who the peer is and what it remembers of others.
    ///
    /// # Errors
    /// Where the certificate does not count, or is for another key.
    pub fn prepare(options: LibrarianOptions, env: Env) -> Result<Prepared, LibrarianError> {
        let now_ms = env.clock.unix_ms();
        let own = PeerId::new(options.secret.public());
        let directory = Directory::new(Arc::clone(&options.genesis), env.clone(), Some(own));
        directory.learn_rosters(&options.rosters);
        let roster = directory.roster();
        // Others ignore what is not newer than the last they saw, even if this clock went back.
        let of_own = |bytes: &Bytes| {
            let known = Announcement::verify(bytes, &roster, now_ms / 1000).ok()?;
            (known.certificate.peer == own).then_some(known.sequence)
        };
        let after = options.known_peers.iter().filter_map(of_own).max().unwrap_or(0);
        let state = if options.read_only { PeerState::ReadOnly } else { PeerState::Serving };
        let announcer = Announcer::new(
            options.secret.clone(),
            &roster,
            options.certificate.clone(),
            state,
            after,
            now_ms,
        )?;
        for revocation in &options.revocations {
            if let Err(error) = directory.revoke_kept(revocation) {
                tracing::warn!(%error, "a revocation that is kept does not count");
            }
        }
        for announcement in options.known_peers.iter().take(walk::PEERS_KNOWN_MAX) {
            // Those that expired meanwhile are no loss.
            let _ = directory.learn(announcement);
        }
        directory.learn(&announcer.bytes())?;
        let announcer = Arc::new(announcer);
        Ok(Prepared { options, env, directory, announcer, last_run_ms: after, unvouched: None })
    }

    /// [`Librarian::prepare`] and [`Prepared::start`] in one, where nothing needs what is between.
    ///
    /// # Errors
    /// Those of both.
    pub async fn start(
        options: LibrarianOptions,
        env: Env,
        store: Arc<dyn RecordStore>,
        journal: Arc<Journal>,
        overlay: Arc<dyn Overlay>,
        calls: Arc<dyn Calls>,
    ) -> Result<Arc<Self>, LibrarianError> {
        Self::prepare(options, env)?.start(store, journal, overlay, calls).await
    }

    /// What answers callers: for the transport.
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(Endpoints(Arc::clone(&self.core)))
    }

    /// This peer.
    pub fn peer(&self) -> PeerId {
        self.core.own
    }

    /// The peers it knows.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.core.directory
    }

    /// What stores and finds records at their holders.
    pub fn walker(&self) -> &Arc<Walker> {
        &self.core.walker
    }

    /// Its publication log.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.core.journal
    }

    /// Its versioned objects: for a door in the same process, which writes them without a call.
    pub fn objects(&self) -> &Arc<Objects> {
        &self.core.objects.objects
    }

    /// Keeps a policy, or an attestation of versions, that a door in this process signed beside what it wrote; it counts when it
    /// is durable.
    ///
    /// # Errors
    /// Where the store does not take it.
    pub async fn keep_word(
        &self,
        record: Record,
        durability: Durability,
    ) -> Result<(), ObjectsError> {
        self.core.objects.keep(record, durability).await
    }

    /// Up to `most` versions here of an owner's objects whose names begin so, of which no attestation is here: a door in this
    /// process wrote them, which was killed before it attested them. They are handed over to nobody until somebody does. It reads
    /// every version.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub async fn unattested(
        &self,
        owner: PublicKey,
        family: Bytes,
        most: usize,
    ) -> Result<Vec<RecordId>, ObjectsError> {
        self.core.objects.unattested_of(owner, family, most).await
    }

    /// What vouches for it now.
    pub fn credential(&self) -> Credential {
        self.core.announcer.credential()
    }

    /// What it does to keep the network whole; `None` where it does nothing for it.
    pub fn repair(&self) -> Option<RepairStatus> {
        self.core.keeping.as_ref().map(|keeping| keeping.status(&self.core))
    }

    /// Hosts a member of a committee from now on, in the place of the one before, or none.
    pub fn host(&self, hosted: Option<Hosted>) {
        self.core.member.host(hosted);
    }

    /// Gives everyone who introduces themselves this signed card of the member, or none.
    pub fn show_card(&self, card: Option<Bytes>) {
        self.core.member.show(card);
    }

    /// Its state, for people and scripts.
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// Whether it takes calls: `false` from the moment it stops.
    pub fn is_serving(&self) -> bool {
        !self.core.admission.is_draining()
    }

    /// Its metrics, as OpenMetrics text.
    pub fn metrics(&self) -> String {
        self.core.metrics.encode(&self.core.levels())
    }

    /// Until when this peer heard of every organisation which leases were ended, Unix milliseconds: to be kept for the next start,
    /// whose questions begin there.
    pub fn words_heard_ms(&self) -> u64 {
        self.core.leases.heard_ms()
    }

    /// The announcements to be kept for the next start: the own one, for its sequence, then those of other peers, a random part of
    /// them where they are more than [`PEERS_MAX`].
    pub fn known_peers(&self) -> Vec<Bytes> {
        let others = self.core.directory.announcements(PEERS_MAX - 1);
        let others = others.into_iter().map(|known| known.announcement);
        [self.core.announcer.bytes()].into_iter().chain(others).collect()
    }

    /// Serves reads alone, or writes again, and announces it. Writes in progress end as they would.
    pub async fn set_read_only(&self, read_only: bool) {
        let core = &self.core;
        let leaving = core.keeping.as_ref().is_some_and(|keeping| keeping.is_leaving());
        if core.shelf.set_read_only(read_only || leaving) && self.is_serving() {
            tracing::info!(read_only, "the setting of read-only mode changed");
            core.announce(core.state()).await;
        }
    }

    /// Takes nothing any more, hands over what it holds, and announces then that it left; whether it begins so. It needs
    /// [`LibrarianOptions::keeping`]: without it nothing can be handed over.
    pub fn leave(&self) -> bool {
        let Some(keeping) = &self.core.keeping else { return false };
        if keeping.is_leaving() {
            return false;
        }
        self.core.shelf.leave();
        keeping.leave();
        true
    }

    /// Whether everything was handed over since [`Librarian::leave`].
    pub fn has_left(&self) -> bool {
        self.core.keeping.as_ref().is_some_and(|keeping| keeping.has_left())
    }

    /// Takes a signed revocation and tells the others; whether it was news.
    ///
    /// # Errors
    /// Where it does not count in this network.
    pub async fn revoke(&self, revocation: &Bytes) -> Result<bool, CertificateError> {
        let newer = self.core.revoke(revocation)?;
        if newer {
            let news = News::Revocation(revocation.clone());
            spread::publish(&self.core.env, self.core.overlay.as_ref(), news).await;
        }
        Ok(newer)
    }

    /// Takes a signed roster, which the peer tells on where it is news.
    ///
    /// # Errors
    /// Where it does not count in this network.
    pub fn learn_roster(&self, roster: &Bytes) -> Result<Taught, RosterError> {
        self.core.directory.learn_roster(roster)
    }

    /// The signed rosters from number 1 on, to be kept for the next start.
    pub fn rosters(&self) -> Vec<Bytes> {
        self.core.directory.rosters()
    }

    /// The newest revocation of every organisation that has one, to be kept for the next start.
    pub fn revocations(&self) -> Vec<Bytes> {
        self.core.directory.revocations()
    }

    /// Bytes that each client with a quota has stored here, to be kept for the next start, and a
    /// number that differs where one of them changed since.
    pub fn stored_bytes(&self) -> (Vec<(ClientKey, u64)>, u64) {
        self.core.quotas.counts()
    }

    /// Stops: says farewell, lets calls in progress finish, ends what runs, and closes overlay, store
    /// and log. What is refused meanwhile is told *busy*. Bounded by [`crate::Rhythm::drain`] and some
    /// seconds. A second call does nothing.
    ///
    /// # Errors
    /// Where the store or the log could not make everything durable; all else is stopped then too.
    pub async fn stop(&self) -> Result<(), LibrarianError> {
        let Some(running) = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        let core = &self.core;
        core.admission.drain();
        tracing::info!(peer = %core.own, "stopping");
        // Background work first: it would announce this peer as serving again.
        core.stop.cancel();
        end(&core.env, running.neighbourly).await;
        let left = core.keeping.as_ref().is_some_and(|keeping| keeping.has_left());
        core.announce(if left { PeerState::Left } else { PeerState::Stopped }).await;
        neighbours::say_farewell(core).await;
        if core.env.within(core.rhythm.drain, core.admission.idle()).await.is_err() {
            let (calls, _) = core.admission.in_progress();
            tracing::warn!(calls, "calls did not finish in time and are cut off");
        }
        let unfinished = core.walker.drain(WALKS_DRAIN).await;
        if unfinished > 0 {
            tracing::warn!(records = unfinished, "copies were not finished in time");
        }
        core.stop_log.cancel();
        end(&core.env, running.log).await;
        core.overlay.close().await;
        let stored = self.store.close().await;
        let logged = core.journal.close().await;
        tracing::info!(peer = %core.own, "stopped");
        stored?;
        logged?;
        Ok(())
    }
}

/// Waits for tasks that were told to end; one that does not is aborted.
async fn end(env: &Env, tasks: Vec<Task>) {
    for task in tasks {
        if env.within(TASK_DRAIN, task.join()).await.is_err() {
            tracing::warn!("a background task did not end in time and was aborted");
        }
    }
}
