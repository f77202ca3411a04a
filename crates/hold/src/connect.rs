//! The way to the network: the genesis, the librarians to ask, and connections as some key.

use std::sync::Arc;

use author::{Author, AuthorOptions, Home};
use crypto::{Genesis, SecretKey};
use env::Env;
use env::calls::Credential;
use rpc::{Client, ClientLimits, Identity};
use walk::{Directory, WalkOptions, Walker};

use crate::cli::Session;
use crate::config::Config;
use crate::error::HoldError;
use crate::{client as client_home, files, peerdir};

/// The librarians this run asks.
///
/// # Errors
/// [`HoldError::NoVia`] where none is named.
pub(crate) fn via(session: &Session) -> Result<&[String], HoldError> {
    if session.config.via.is_empty() {
        return Err(HoldError::NoVia);
    }
    Ok(&session.config.via)
}

/// The network of this run.
///
/// # Errors
/// Where its file is missing or not one.
pub(crate) fn genesis(session: &Session) -> Result<Arc<Genesis>, HoldError> {
    peerdir::read_genesis(&session.config.network).map(Arc::new)
}

/// Connections of one key to the network's peers.
///
/// # Errors
/// Where TLS cannot be set up.
pub(crate) fn client(
    genesis: &Genesis,
    secret: SecretKey,
    credential: impl Fn() -> Credential + Send + Sync + 'static,
    env: Env,
) -> Result<Arc<Client>, HoldError> {
    let identity = Identity::new(secret, genesis.network())?;
    Ok(Client::new(identity, Arc::new(credential), env, ClientLimits::default()))
}

/// A stranger's eyes: enough to see who is there, and needs no keyring. The key is thrown away.
///
/// # Errors
/// As [`client`].
pub(crate) fn stranger(genesis: &Arc<Genesis>) -> Result<Arc<Walker>, HoldError> {
    let env = Env::real();
    let client = client(genesis, files::fresh_key(), || Credential::None, env.clone())?;
    let directory = Directory::new(genesis.clone(), env.clone(), None);
    Ok(Walker::new(env, client, directory, WalkOptions::default()))
}

/// This user as an author in the network, who knows its peers.
///
/// # Errors
/// Where the keyring does not open, no librarian is named, or none of those named answers.
pub(crate) async fn author(session: &Session) -> Result<Arc<Author>, HoldError> {
    let genesis = genesis(session)?;
    via(session)?;
    let home = client_home::open_home(session).await?;
    author_at(&session.config, genesis, home).await
}

/// As [`author`], for a home that is open.
///
/// # Errors
/// As [`author`].
pub(crate) async fn author_at(
    config: &Config,
    genesis: Arc<Genesis>,
    home: Home,
) -> Result<Arc<Author>, HoldError> {
    let env = Env::real();
    let credential = client_home::credential(config, &genesis, home.keyring().client_key())?;
    let shown = credential.clone();
    let client = client(&genesis, home.keyring().client(), move || shown.clone(), env.clone())?;
    let directory = Directory::new(genesis, env.clone(), None);
    let through = if config.thin { config.via.clone() } else { Vec::new() };
    let options = WalkOptions { own: None, credential, through };
    let walker = Walker::new(env.clone(), client, directory, options);
    walker.join(&config.via).await?;
    Ok(Author::new(env, Arc::new(home), walker, &AuthorOptions::default()))
}
