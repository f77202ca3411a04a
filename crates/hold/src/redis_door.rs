//! The door for Redis's clients on a librarian of this process: whose keys, who signs them, and how it ends.
//!
//! `hold serve redis` and `hold up --redis` open the same door. It is closed before its librarian is stopped, so that
//! what it answered is attested and in the store when that closes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use crypto::{NetworkId, SecretKey, Suite};
use door_redis::{Engine, Handle, Options, Writes};
use env::Env;
use librarian::Librarian;
use objects::Attesting;
use store::Durability;
use version::Policy;
use version::policy::{Copies, For};

use crate::client::blocking;
use crate::descriptors;
use crate::error::HoldError;
use crate::out::one_line;
use crate::running::Running;

/// The version of the family's policy: it says nothing yet that could change.
const POLICY_VERSION: u64 = 1;
/// All keys of the door.
const FAMILY: &[u8] = b"redis/";

/// Whose objects the keys are.
pub(crate) struct Owned {
    /// The network's id.
    pub(crate) network: NetworkId,
    /// Its suite.
    pub(crate) suite: Suite,
    /// The owner's key.
    pub(crate) key: SecretKey,
}

/// Versions that are looked for and attested at a time.
const LATE_MAX: usize = 1 << 16;

/// An open door.
pub(crate) struct RedisDoor {
    handle: Handle,
    attested: Attested,
    /// Attests what a door before this one left.
    mending: tokio::task::JoinHandle<()>,
}

/// What attests versions that were written and not attested: the process was killed before, or the disk was full.
#[derive(Clone)]
struct Late {
    librarian: Arc<Librarian>,
    attesting: Attesting,
}

impl Late {
    /// Attests all there are. It reads every version here.
    async fn attest(&self) {
        if let Err(error) = self.attest_all().await {
            tracing::error!(error = %one_line(&error), "versions of the Redis door are not attested, and stay here when the peer leaves");
        }
    }

    async fn attest_all(&self) -> Result<(), objects::ObjectsError> {
        let owner = self.attesting.author.public();
        loop {
            let family = Bytes::from_static(FAMILY);
            let found = self.librarian.unattested(owner, family, LATE_MAX).await?;
            if found.is_empty() {
                return Ok(());
            }
            self.attesting.attest(&found).await?;
            tracing::info!(versions = found.len(), "versions were attested late");
            if found.len() < LATE_MAX {
                return Ok(());
            }
        }
    }
}

/// The thread that attests what the door wrote; it ends when the door writes no more.
#[derive(Clone)]
struct Attested(Arc<Mutex<Option<JoinHandle<()>>>>);

impl Attested {
    /// Waits until all is attested.
    fn join(&self) {
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that attests ended with a panic");
        }
    }
}

/// What ends a door's writes.
#[derive(Clone)]
pub(crate) struct DoorWrites {
    writes: Writes,
    attested: Attested,
    late: Late,
}

impl DoorWrites {
    /// Has the door refuse every write from now on; all that it answered is then in the store, and attested.
    pub(crate) async fn end(&self) {
        let this = self.clone();
        let ended = move || {
            this.writes.end();
            this.attested.join();
            Ok(())
        };
        if let Err(error) = blocking(ended).await {
            tracing::error!(error = %one_line(&error), "the door's writes could not be ended");
        }
        // What nobody attests no other peer takes, and this one would never have left.
        self.late.attest().await;
    }
}

impl RedisDoor {
    /// Opens it over a librarian's own store; writes are answered when they are as durable as asked. Where the peer begins
    /// to leave, the door's writes are ended first.
    ///
    /// # Errors
    /// Where the peer leaves, the policy cannot be kept, the keys cannot be loaded, or the address cannot be listened on.
    pub(crate) async fn open(
        peer: &Running,
        env: &Env,
        owned: Owned,
        durability: Durability,
        mut options: Options,
    ) -> Result<Self, HoldError> {
        let clients = descriptors::for_door(options.limits.clients, descriptors::raise());
        if clients < options.limits.clients {
            tracing::warn!(
                clients,
                "the system allows few open files: so many of the door's clients at once"
            );
            options.limits.clients = clients;
        }
        let opening = peer.leaving.opening()?;
        let librarian = &peer.librarian;
        keep_policy(librarian, &owned).await?;
        let Owned { network, suite, key } = owned;
        let objects = librarian.objects().clone();
        let owner = key.public();
        let attesting = Attesting {
            objects: objects.clone(),
            suite,
            network,
            author: key,
            policy_version: POLICY_VERSION,
        };
        let late = Late { librarian: Arc::clone(librarian), attesting: attesting.clone() };
        let starting = attesting.start();
        let (attest, attested) =
            starting.map_err(HoldError::io("start", "a thread that attests"))?;
        let engine = Engine::new(objects, suite, network, owner, Some(durability)).attested(attest);
        let clock = env.clock.clone();
        let open = move || Ok(door_redis::open(options, Box::new(engine), clock)?);
        let attested = Attested(Arc::new(Mutex::new(Some(attested))));
        let handle = blocking(open).await?;
        let (writes, done) = (handle.writes(), attested.clone());
        opening.open(DoorWrites { writes, attested: done, late: late.clone() });
        let mending = tokio::spawn(async move { late.attest().await });
        Ok(Self { handle, attested, mending })
    }

    /// Where its clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.handle.address()
    }

    /// Answers what came, attests it, and ends.
    ///
    /// # Errors
    /// None of the door's own.
    pub(crate) async fn close(self) -> Result<(), HoldError> {
        self.mending.abort();
        // What it did not come to is found by the next.
        let _ = self.mending.await;
        blocking(move || {
            self.handle.close();
            self.attested.join();
            Ok(())
        })
        .await
    }
}

/// The owner's word on the door's keys: open, one copy, here.
async fn keep_policy(librarian: &Librarian, owner: &Owned) -> Result<(), HoldError> {
    let policy = Policy {
        for_what: For::Family(Bytes::from_static(FAMILY)),
        version: POLICY_VERSION,
        open: true,
        copies: Some(Copies { copies: 1, acknowledged: 1 }),
        ..Policy::implied(owner.network, owner.key.public())
    };
    let policy = policy.sign(owner.suite, &owner.key).map_err(objects::ObjectsError::from)?;
    Ok(librarian.keep_word(policy, Durability::Group).await?)
}
