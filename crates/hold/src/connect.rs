//! The way to the network: the genesis, the librarians to ask, and connections as some key.

use std::sync::Arc;

use crypto::{Genesis, SecretKey};
use env::Env;
use env::calls::Credential;
use rpc::{Client, ClientLimits, Identity};
use walk::{Directory, WalkOptions, Walker};

use crate::cli::Session;
use crate::error::HoldError;
use crate::{files, peerdir};

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
