//! The way to the network: its file, the librarians to ask, and connections as some key.
//!
//! Who takes part changes while programs do not look. So whoever joins learns the newest roster on the way, and goes on
//! by it: a client whose organisation joined since shows its pass from then on, one whose organisation left is a
//! stranger. What was learnt is kept beside the network file, and a program that runs for long goes on learning.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use author::{Author, AuthorOptions, Home, Payer};
use crypto::{NetworkId, SecretKey};
use env::calls::Credential;
use env::{Env, Task};
use rpc::{Client, ClientLimits, Identity};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use walk::{Directory, WalkError, WalkOptions, Walker};

use crate::cli::Session;
use crate::config::Config;
use crate::error::HoldError;
use crate::network_file::{self, NetworkFile};
use crate::out::one_line;
use crate::{client as client_home, files, peerdir};

/// The librarians this run asks.
///
/// # Errors
/// [`HoldError::NoVia`] where none is named.
pub(crate) fn via(session: &Session) -> Result<&[String], HoldError> {
    match session.settings.via()? {
        [] => Err(HoldError::NoVia),
        via => Ok(via),
    }
}

/// The network of this run, and who takes part as it was known last.
///
/// # Errors
/// Where its file is missing or not one, or the rosters beside it are damaged.
pub(crate) fn network(session: &Session) -> Result<NetworkFile, HoldError> {
    NetworkFile::read(&session.settings.network()?)
}

/// Connections of one key to the network's peers.
///
/// # Errors
/// Where TLS cannot be set up.
pub(crate) fn client(
    network: NetworkId,
    secret: SecretKey,
    credential: impl Fn() -> Credential + Send + Sync + 'static,
    env: Env,
) -> Result<Arc<Client>, HoldError> {
    let identity = Identity::new(secret, network)?;
    Ok(Client::new(identity, Arc::new(credential), env, ClientLimits::default()))
}

/// A stranger's eyes: enough to see who is there, and needs no keyring. The key is thrown away.
///
/// # Errors
/// As [`client`].
pub(crate) fn stranger(network: &NetworkFile) -> Result<Arc<Walker>, HoldError> {
    let env = Env::real();
    stranger_over(network.directory(&env, None), Vec::new(), env)
}

fn stranger_over(
    directory: Arc<Directory>,
    through: Vec<String>,
    env: Env,
) -> Result<Arc<Walker>, HoldError> {
    let client = stranger_calls(directory.genesis().network(), env.clone())?;
    let options = WalkOptions { through, ..WalkOptions::default() };
    Ok(Walker::new(env, client, directory, options))
}

/// Calls of a key that is thrown away and that show nothing.
///
/// # Errors
/// As [`client`].
pub(crate) fn stranger_calls(network: NetworkId, env: Env) -> Result<Arc<Client>, HoldError> {
    client(network, files::fresh_key(), || Credential::None, env)
}

/// The librarians that walk for this client, where they do.
fn through(config: &Config) -> Vec<String> {
    if config.thin { config.via.clone() } else { Vec::new() }
}

/// This user as an author in the network. While it lives, it stays current.
pub(crate) struct User {
    author: Arc<Author>,
    /// Asks the librarians that had not answered when it began.
    _joining: Task,
    /// Asks what changed.
    _current: Task,
    /// Keeps what was learnt.
    _keeping: Task,
    /// Cancelled when nobody vouches for this user any more.
    left: CancellationToken,
}

impl User {
    /// Ends when this user's organisation left, or changed its key without a word for this user's pass; else never.
    pub(crate) async fn left(&self) -> HoldError {
        self.left.cancelled().await;
        HoldError::Left { number: self.author.walker().directory().roster().number() }
    }
}

impl Deref for User {
    type Target = Arc<Author>;

    fn deref(&self) -> &Arc<Author> {
        &self.author
    }
}

/// This user as an author in the network, who knows its peers.
///
/// # Errors
/// Where the keyring does not open, no librarian is named, or none of those named answers.
pub(crate) async fn author(session: &Session) -> Result<User, HoldError> {
    network(session)?;
    via(session)?;
    let home = client_home::open_home(session).await?;
    author_at(session.config()?, home).await
}

/// As [`author`], for a home that is open.
///
/// # Errors
/// As [`author`].
pub(crate) async fn author_at(config: &Config, home: Home) -> Result<User, HoldError> {
    let env = Env::real();
    let network = NetworkFile::read(&config.network)?;
    let directory = network.directory(&env, None);
    let mut shown = Shown::new(config, &directory, &home)?;
    let mut walker = shown.walker(config, &home, &directory, &env)?;
    let mut joined = walker.join_soon(&config.via).await;
    if shown.get() != Credential::None && joined.as_ref().is_err_and(WalkError::is_refusal) {
        // Perhaps the organisation left: who takes part is told to everybody.
        let stranger = stranger_over(directory.clone(), through(config), env.clone())?;
        let _ = stranger.join(&config.via).await;
    }
    let before = shown.get();
    shown = Shown::new(config, &directory, &home)?;
    if shown.get() != before {
        // Connections were introduced by what does not count any more, or by nothing.
        walker = shown.walker(config, &home, &directory, &env)?;
        joined = walker.join_soon(&config.via).await;
    }
    let joining = joined?;
    let kept = network_file::keep(network.path(), &directory.rosters());
    if let Err(error) = kept {
        tracing::warn!(error = %one_line(&error), "the newest roster could not be kept; it is learnt again");
    }
    let left = CancellationToken::new();
    let client = home.keyring().client_key();
    let keeping =
        env.tasks.spawn(Box::pin(shown.follow(config.clone(), client, &walker, left.clone())));
    let unvouched = stranger_over(directory, through(config), env.clone())?;
    let current = walker.keep_current(Some(unvouched));
    let payer = Payer { secret: home.keyring().client(), seconds: config.lease_s };
    let options = AuthorOptions::default();
    let author = Author::paying(env, Arc::new(home), walker, &options, Some(payer));
    Ok(User { author, _joining: joining, _current: current, _keeping: keeping, left })
}

/// How often a program that runs long looks whether its pass is to be renewed, or was: well within the hour before its end in
/// which it is.
const PASS_LOOKED_AT_EVERY: Duration = Duration::from_secs(600);

/// What this client shows to peers, as the newest roster has it.
#[derive(Clone)]
struct Shown(Arc<Mutex<Credential>>);

impl Shown {
    fn new(config: &Config, directory: &Directory, home: &Home) -> Result<Self, HoldError> {
        let client = home.keyring().client_key();
        let credential = client_home::credential(config, &directory.roster(), client)?;
        Ok(Self(Arc::new(Mutex::new(credential))))
    }

    fn get(&self) -> Credential {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn walker(
        &self,
        config: &Config,
        home: &Home,
        directory: &Arc<Directory>,
        env: &Env,
    ) -> Result<Arc<Walker>, HoldError> {
        let shown = self.clone();
        let network = directory.genesis().network();
        let client = client(network, home.keyring().client(), move || shown.get(), env.clone())?;
        let options = WalkOptions { own: None, credential: self.get(), through: through(config) };
        Ok(Walker::new(env.clone(), client, directory.clone(), options))
    }

    /// Keeps newer rosters beside the network file, and shows what they let count, as long as the walker lives; and a pass that is
    /// renewed before it ends, or that somebody put in its place.
    fn follow(
        &self,
        config: Config,
        client: crypto::ClientKey,
        walker: &Arc<Walker>,
        left: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let shown = self.clone();
        let mut departures = walker.directory().departures();
        let walker = Arc::downgrade(walker);
        async move {
            loop {
                let newer = tokio::select! {
                    biased;
                    departure = departures.recv() => match departure {
                        Ok(_) | Err(RecvError::Lagged(_)) => true,
                        Err(RecvError::Closed) => return,
                    },
                    () = tokio::time::sleep(PASS_LOOKED_AT_EVERY) => false,
                };
                let Some(walker) = walker.upgrade() else { return };
                let directory = walker.directory().clone();
                let config = config.clone();
                let renewed = client_home::blocking(move || {
                    if newer {
                        network_file::keep(&config.network, &directory.rosters())?;
                    }
                    let (roster, now) = (directory.roster(), peerdir::now_s());
                    let credential = client_home::credential(&config, &roster, client)?;
                    let path = config.home.join(client_home::PASS_FILE);
                    let held = client_home::held_pass(&path, &roster, client, now)?;
                    let is_revoked = held.is_some_and(|(_, pass)| {
                        directory.is_revoked(&pass.organisation, client.key())
                    });
                    Ok(if is_revoked { Credential::None } else { credential })
                });
                match renewed.await {
                    // Not yet renewed, perhaps: what is shown ends by itself.
                    Ok(Credential::None) if !newer => {}
                    Ok(credential) => {
                        if credential == Credential::None && shown.get() != Credential::None {
                            left.cancel();
                        }
                        let mut now = shown.0.lock().unwrap_or_else(PoisonError::into_inner);
                        now.clone_from(&credential);
                        walker.set_credential(credential);
                    }
                    Err(error) if newer => {
                        tracing::warn!(error = %one_line(&error), "a newer roster could not be kept")
                    }
                    Err(error) => {
                        tracing::warn!(error = %one_line(&error), "the pass could not be looked at")
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
