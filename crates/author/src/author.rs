//! The author: one user's keys, in one network.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crypto::{AuthorKey, Eek, NetworkId, ReaderKey, RecordId, SecretKey, Suite};
use document::{Document, DocumentError, Envelope, Kind, Record, envelope};
use env::Env;
use walk::{Found, WalkError, Walker};

use crate::error::{AuthorError, Part};
use crate::home::Home;
use crate::job::Job;
use crate::paying::Payer;
use crate::types::AuthorOptions;
use crate::window::Window;

/// Puts, gets, shares and listens for one user in one network. Shared; calls in parallel share its window of memory.
///
/// Every call is cancelled by dropping its future: what it had running ends with it, and nothing is left on this machine.
pub struct Author {
    env: Env,
    home: Arc<Home>,
    walker: Arc<Walker>,
    suite: Suite,
    network: NetworkId,
    window: Window,
    payer: Option<Payer>,
    /// Whether what killed programs left was looked for.
    tidied: AtomicBool,
}

/// An envelope that one of this user's keys opened.
pub(crate) struct Opened {
    pub(crate) record: Record,
    pub(crate) envelope: Envelope,
    pub(crate) eek: Eek,
    pub(crate) degraded: bool,
}

impl Author {
    /// An author in the network that the walker walks.
    pub fn new(
        env: Env,
        home: Arc<Home>,
        walker: Arc<Walker>,
        options: &AuthorOptions,
    ) -> Arc<Self> {
        Self::paying(env, home, walker, options, None)
    }

    /// As [`Author::new`], with who pays for what is put: its records go with leases then.
    pub fn paying(
        env: Env,
        home: Arc<Home>,
        walker: Arc<Walker>,
        options: &AuthorOptions,
        payer: Option<Payer>,
    ) -> Arc<Self> {
        let genesis = walker.directory().genesis();
        let (suite, network) = (genesis.suite, genesis.network());
        let window = Window::new(options.window_bytes);
        let tidied = AtomicBool::new(false);
        Arc::new(Self { env, home, walker, suite, network, window, payer, tidied })
    }

    /// The 64 published reader keys, in order: what others share to.
    pub fn reader_keys(&self) -> &[ReaderKey] {
        self.home.readers()
    }

    /// The user's folder.
    pub fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// How it reaches the network.
    pub fn walker(&self) -> &Arc<Walker> {
        &self.walker
    }

    /// Who signs its leases.
    pub(crate) fn payer(&self) -> Option<&Payer> {
        self.payer.as_ref()
    }

    /// Bytes in flight right now, and the most there ever were, in puts and gets together.
    pub fn window_bytes(&self) -> (usize, usize) {
        (self.window.held(), self.window.peak())
    }

    /// What it runs on.
    pub fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn tidied(&self) -> &AtomicBool {
        &self.tidied
    }

    pub(crate) fn suite(&self) -> Suite {
        self.suite
    }

    pub(crate) fn network(&self) -> NetworkId {
        self.network
    }

    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Runs CPU-heavy work away from the I/O threads.
    pub(crate) async fn cpu<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, AuthorError> {
        Job::cpu(&self.env, work).await.ok_or(AuthorError::Stopped)
    }

    /// Asks the home something on a thread that may wait for the disk.
    pub(crate) async fn at_home<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Home) -> Result<T, AuthorError> + Send + 'static,
    ) -> Result<T, AuthorError> {
        let home = Arc::clone(&self.home);
        Job::blocking(&self.env, move || work(&home)).await.ok_or(AuthorError::Stopped)?
    }

    /// The author keys of so many new counters. They are issued durably before they are used for anything.
    pub(crate) async fn issue(&self, count: usize) -> Result<Vec<Issued>, AuthorError> {
        self.at_home(move |home| Ok(issued(home, home.issue(count as u64)?))).await
    }

    /// The author keys of counters that an interrupted put was issued, for the same envelopes again.
    pub(crate) async fn reissue(&self, counters: Range<u64>) -> Result<Vec<Issued>, AuthorError> {
        self.at_home(move |home| Ok(issued(home, counters))).await
    }

    /// Fetches a record of this kind; what is fetched is proven.
    pub(crate) async fn fetch(&self, part: Part, id: RecordId) -> Result<Found, AuthorError> {
        let kind = match part {
            Part::Envelope => Kind::Envelope,
            Part::Entry => Kind::Entry,
            Part::Page(_) | Part::List(_) => Kind::Page,
            Part::Stripe(_) => Kind::Stripe,
        };
        let found = self.walker.find(Some(kind), id, id.into()).await;
        found.map_err(|source| AuthorError::Fetch { part, source })
    }

    /// Fetches what is at an address where no holder has an envelope: another kind of record, or lies.
    async fn fetch_any(&self, address: RecordId) -> Result<Found, AuthorError> {
        let part = Part::Envelope;
        let found = self.walker.find(None, address, address.into()).await;
        let found = found.map_err(|source| AuthorError::Fetch { part, source })?;
        match found.record.kind {
            Kind::Envelope => Ok(found),
            other => Err(AuthorError::NotAnAddress { address, found: other.name() }),
        }
    }

    /// Fetches the envelope at an address and opens it with whichever of this user's keys it is sealed to.
    pub(crate) async fn open(&self, address: RecordId) -> Result<Opened, AuthorError> {
        let fetched = match self.fetch(Part::Envelope, address).await {
            Err(AuthorError::Fetch {
                source: WalkError::NotFound { .. } | WalkError::Corrupt { .. },
                ..
            }) => self.fetch_any(address).await,
            other => other,
        };
        let Found { record, degraded, .. } = fetched?;
        let corrupt = |source| AuthorError::Corrupt { part: Part::Envelope, source };
        let envelope = match Document::decode(&record.bytes).map_err(corrupt)? {
            Document::Envelope(envelope) => envelope,
            _ => return Err(corrupt(DocumentError::Kind)),
        };
        let reader = envelope.reader;
        let secret = self.at_home(move |home| home.reader_secret(&reader)).await?;
        let secret = secret.ok_or(AuthorError::NotForUs { address })?;
        let eek = envelope::open(self.suite, self.network, &envelope, &secret).map_err(corrupt)?;
        Ok(Opened { record, envelope, eek, degraded })
    }

    /// Seals an entry's key to a reader under an author key that was issued for this alone.
    ///
    /// In `libri-1` the KEK depends on the pair of keys alone. It does not repeat: an issued key is handed in by value and is
    /// used for one envelope.
    pub(crate) fn seal_envelope(
        &self,
        issued: Issued,
        reader: &ReaderKey,
        entry: RecordId,
        eek: &Eek,
    ) -> Record {
        let sealed = envelope::seal(self.suite, self.network, entry, &issued.author, reader, eek);
        Record::of(self.suite, &Document::Envelope(sealed))
    }
}

impl fmt::Debug for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Author").field("network", &self.network).finish_non_exhaustive()
    }
}

fn issued(home: &Home, counters: Range<u64>) -> Vec<Issued> {
    let keyring = home.keyring();
    counters.map(|counter| Issued { counter, author: keyring.author(counter) }).collect()
}

/// An author key whose counter is issued: for one envelope, and what that envelope's entry is made of.
pub(crate) struct Issued {
    pub(crate) counter: u64,
    author: SecretKey,
}

impl Issued {
    /// Its public side.
    pub(crate) fn key(&self) -> AuthorKey {
        AuthorKey::new(self.author.public())
    }
}
