//! This user as a client of the network: the opened home and the pass.
//!
//! Where the organisation's key is at hand (`org` in `holdfast.toml`) a pass is minted and renewed
//! without asking, a day at a time; otherwise the operator of an organisation signs one for the
//! client's key (`hold org pass`) and it is put into the home as `pass`. Without either the client
//! is a stranger: it may look, and not store.

use std::io;
use std::path::Path;

use author::Home;
use bytes::Bytes;
use crypto::{CertificateError, ClientKey, OrgId, Pass, Roster, Tier};
use env::Env;
use env::calls::Credential;

use crate::cli::Session;
use crate::config::Config;
use crate::error::HoldError;
use crate::files::{self, Access};
use crate::network_file::NetworkFile;
use crate::organisation::OwnOrganisation;
use crate::passphrase::{self, Purpose};
use crate::peerdir::{self, DAY_S};
use crate::platform;

/// The pass's file in the home.
pub(crate) const PASS_FILE: &str = "pass";
/// A pass with less than this left is renewed, in seconds.
const RENEW_BELOW_S: u64 = 3600;

/// Of what opening a keyring took, so much is kept for what is put or got with it: its window ([`author::WINDOW_BYTES`]) and
/// what is sent and received meanwhile. Who does neither gives it back at rest.
const KEPT_BYTES: usize = 64 << 20;

/// Opens this user's keyring, asking for the passphrase where it is not given.
///
/// # Errors
/// Where there is no keyring, or the passphrase does not open it.
pub(crate) async fn open_home(session: &Session) -> Result<Home, HoldError> {
    let dir = session.config()?.home.clone();
    if !Home::exists(&dir) {
        return Err(author::AuthorError::NoKeyring(dir).into());
    }
    let passphrase = passphrase::ask(session, Purpose::Open).await?;
    let open = move || {
        let home = Home::open(&dir, passphrase.as_bytes())?;
        // scrypt took 128 MiB.
        platform::give_back_but(KEPT_BYTES);
        Ok(home)
    };
    let home = blocking(open).await?;
    if home.is_read_only() {
        session.out.warn(format_args!(
            "{} cannot be written: what is there is used, and nothing is noted in it",
            home.dir().display()
        ));
    }
    Ok(home)
}

/// Runs work that blocks or computes long away from the I/O threads.
///
/// # Errors
/// What the work says.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HoldError> + Send + 'static,
) -> Result<T, HoldError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(HoldError::Interrupted),
    }
}

/// What this client shows to peers: its pass, fresh where it can be renewed here.
///
/// # Errors
/// Where the pass's file or the organisation's directory is damaged.
pub(crate) fn credential(
    config: &Config,
    roster: &Roster,
    client: ClientKey,
) -> Result<Credential, HoldError> {
    let path = config.home.join(PASS_FILE);
    let now = peerdir::now_s();
    let held = held_pass(&path, roster, client, now)?;
    if let Some((bytes, pass)) = &held
        && pass.until > now + RENEW_BELOW_S
    {
        return Ok(Credential::Client(bytes.clone()));
    }
    if let Some(bytes) = mint(config, roster, client, now)? {
        match files::replace(&path, &bytes, Access::Secret) {
            // It counts though it is not kept: the next run mints its own.
            Err(HoldError::Io { source, .. }) if is_unwritable(&source) => {
                tracing::warn!(path = %path.display(), error = %source, "the pass is not kept");
            }
            kept => kept?,
        }
        return Ok(Credential::Client(bytes));
    }
    Ok(held.map_or(Credential::None, |(bytes, _)| Credential::Client(bytes)))
}

/// Whether the system lets nobody, or not this user, write there, or there is no room.
fn is_unwritable(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | StorageFull | QuotaExceeded)
}

/// The pass in the home, where it is this client's and still counts.
///
/// # Errors
/// Where its file cannot be read.
pub(crate) fn held_pass(
    path: &Path,
    roster: &Roster,
    client: ClientKey,
    now: u64,
) -> Result<Option<(Bytes, Pass)>, HoldError> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = Bytes::copy_from_slice(&files::read_small(path)?);
    let pass = Pass::verify(&bytes, roster, now).ok().filter(|pass| pass.client == client);
    Ok(pass.map(|pass| (bytes, pass)))
}

/// The organisation that signed the pass in the home, where the newest roster that is known here lists it no more: nothing is
/// shown to peers then, and they can only say that nothing was.
pub(crate) fn unlisted(config: &Config) -> Option<OrgId> {
    let bytes = Bytes::copy_from_slice(&files::read_small(&config.home.join(PASS_FILE)).ok()?);
    let network = NetworkFile::read(&config.network).ok()?;
    let directory = network.directory(&Env::real(), None);
    match Pass::verify(&bytes, &*directory.roster(), peerdir::now_s()) {
        Err(CertificateError::Organisation(organisation)) => Some(organisation),
        _ => None,
    }
}

/// A pass for a day from the organisation whose key is at hand, if the network lists it.
fn mint(
    config: &Config,
    roster: &Roster,
    client: ClientKey,
    now: u64,
) -> Result<Option<Bytes>, HoldError> {
    let Some(dir) = &config.org else { return Ok(None) };
    let org = OwnOrganisation::open(dir)?;
    if roster.organisation(&org.public.key).is_none() {
        return Ok(None);
    }
    let pass = Pass {
        client,
        organisation: org.public.key,
        tier: Tier::Own,
        quota: 0,
        from: now,
        until: now + DAY_S,
    };
    Ok(Some(pass.sign(&org.key, &roster.network())))
}
