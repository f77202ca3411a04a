//! One librarian running in this process: its store, log, transport, overlay and page of metrics.
//!
//! ```text
//! start: listener bound -> store and log opened -> identity checked -> overlay -> librarian -> served
//! stop:  librarian drains (farewell, calls, store closed) -> transport -> page -> peers written
//! ```
//! The listener is bound first, so that a taken port is told before anything is opened. The peers
//! it knows are written whenever they change, so that also a killed peer finds its network again
//! without its bootstrap address.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use env::disk::DirDisk;
use librarian::{Librarian, LibrarianOptions, MetricsPage, Prepared};
use overlay::{Libp2p, Libp2pOptions};
use rpc::{
    Client, ClientLimits, Identity, Server, ServerLimits, SignedOptions, SignedServer,
    SignedTransport,
};
use store::{Journal, JournalOptions, LogOptions, LogStore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client;
use crate::config;
use crate::connect;
use crate::descriptors;
use crate::error::HoldError;
use crate::files::{self, Access};
use crate::leaving::Leaving;
use crate::out::one_line;
use crate::peerdir::{self, LAYOUT, PeerDir};
use crate::{hosting, page, quotas, watch, words};

/// Peers are written at most this often.
const PEERS_WRITTEN_EVERY: Duration = Duration::from_secs(1);
/// The file of known peers is at most this long, in bytes; the rest is learnt again.
const PEERS_BYTES_MAX: usize = 512 << 10;
/// How long the page of metrics may take to end.
const PAGE_LIMIT: Duration = Duration::from_secs(2);
const PEERS_FILE: &str = "peers";
/// The log of news takes one part in so many of what the peer offers, at least [`NEWS_BYTES_MIN`]: any member may tell, and nobody
/// pays for what it tells.
const NEWS_PART: u64 = 8;
const NEWS_BYTES_MIN: u64 = 64 << 20;

/// A running librarian.
pub(crate) struct Running {
    /// The peer itself.
    pub(crate) librarian: Arc<Librarian>,
    /// What is to be ended before it leaves.
    pub(crate) leaving: Arc<Leaving>,
    /// Where others reach it.
    pub(crate) address: String,
    /// Where its metrics are, `HOST:PORT`.
    pub(crate) metrics: SocketAddr,
    /// Bytes of the store, its directory's key and so on stay locked while this lives.
    _lock: std::fs::File,
    client: Arc<Client>,
    dir: PathBuf,
    path: PathBuf,
    stop: CancellationToken,
    /// Where signed requests are taken, if anywhere.
    pub(crate) signed: Option<SocketAddr>,
    serving: JoinHandle<Result<(), rpc::RpcError>>,
    signing: Option<JoinHandle<Result<(), rpc::RpcError>>>,
    page: JoinHandle<Result<(), librarian::LibrarianError>>,
    writing: JoinHandle<()>,
    counting: JoinHandle<()>,
    hearing: JoinHandle<()>,
    watching: JoinHandle<()>,
    hosting: JoinHandle<()>,
    quotas: Arc<Path>,
    words: Arc<Path>,
}

impl Running {
    /// Opens a peer's directory and serves. When it returns, callers are answered.
    ///
    /// # Errors
    /// Where the directory is in use, a port is taken, or the store cannot be opened.
    pub(crate) async fn start(dir: PeerDir, env: &Env) -> Result<Self, HoldError> {
        let lock = dir.lock()?;
        let limits = descriptors::for_listener(descriptors::raise());
        if dir.has_left() {
            let what = "this peer has left the network and holds nothing for it: to bring it back, set leaving = \
                        false in its peer.toml";
            return Err(HoldError::argument("peer", what));
        }
        peerdir::note_left(&dir.path, false)?;
        warn_of_settings(&dir);
        let identity = Identity::new(dir.key.clone(), dir.network.genesis().network())?;
        let server = Server::bind(&dir.config.listen, identity.clone(), limits)?;
        let signed = bind_signed(&dir, &identity, limits)?;
        let page = MetricsPage::bind(metrics_address(&dir)?).await?;
        let (store, journal) = open_storage(&dir, env).await?;

        let prepared = Librarian::prepare(options(&dir)?, env.clone())?;
        let client =
            Client::new(identity, prepared.credential(), env.clone(), ClientLimits::default());
        let overlay = start_overlay(&dir, &prepared, env).await?;
        let unvouched = connect::stranger_calls(dir.network.genesis().network(), env.clone())?;
        let prepared = prepared.asking_unvouched(unvouched);
        let librarian = prepared.start(store, journal, overlay, client.clone()).await?;

        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.serve(librarian.service(), env.clone(), stop.clone()));
        let signed_at = signed.as_ref().map(SignedServer::address);
        let signing = signed.map(|server| {
            tokio::spawn(server.serve(librarian.service(), env.clone(), stop.clone()))
        });
        let metrics = page.address();
        let told = page::Told { address: metrics, peer: librarian.peer().to_string() };
        // On a full disk a peer serves all the same.
        if let Err(error) = told.write(&dir.path) {
            tracing::warn!(error = %one_line(&error), "where the page of metrics is could not be written");
        }
        let page = tokio::spawn(page.serve(librarian.clone(), stop.clone().cancelled_owned()));
        let path = dir.path.join(PEERS_FILE);
        let writing = tokio::spawn(write_peers(librarian.clone(), path.clone(), stop.clone()));
        let quotas: Arc<Path> = dir.path.join(quotas::FILE).into();
        let counting =
            tokio::spawn(quotas::write_all(librarian.clone(), quotas.clone(), stop.clone()));
        let words: Arc<Path> = dir.path.join(words::FILE).into();
        let hearing =
            tokio::spawn(words::write_all(librarian.clone(), words.clone(), stop.clone()));
        let leaving = Leaving::new(dir.config.leaving);
        let watching =
            watch::watch_all(librarian.clone(), dir.path.clone(), leaving.clone(), stop.clone());
        let watching = tokio::spawn(watching);
        let host = hosting::Host {
            dir: dir.path.clone(),
            key: dir.key.clone(),
            network: dir.network.genesis().network(),
        };
        let hosting = hosting::host_all(host, librarian.clone(), stop.clone());
        let hosting = tokio::spawn(hosting);
        let address = dir.address();
        Ok(Self {
            librarian,
            leaving,
            address,
            metrics,
            _lock: lock,
            client,
            dir: dir.path,
            path,
            stop,
            signed: signed_at,
            serving,
            signing,
            page,
            writing,
            counting,
            hearing,
            watching,
            hosting,
            quotas,
            words,
        })
    }

    /// Waits until the peer has left, which is then noted in its directory, or its transport fails.
    ///
    /// # Errors
    /// What it failed with.
    pub(crate) async fn ended(&mut self) -> Result<(), HoldError> {
        let leaving = self.leaving.clone();
        tokio::select! {
            failed = self.failed() => failed,
            () = leaving.left() => Ok(()),
        }
    }

    async fn failed(&mut self) -> Result<(), HoldError> {
        match (&mut self.serving).await {
            Ok(served) => Ok(served?),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Drains, then closes everything.
    ///
    /// What is kept for the next start alone, and is learnt or counted again without, may find no room on a full disk.
    ///
    /// # Errors
    /// Where the store could not make everything durable; all else is closed then too.
    pub(crate) async fn stop(self) -> Result<(), HoldError> {
        let stopped = self.librarian.stop().await;
        self.stop.cancel();
        let _ = self.writing.await;
        let _ = self.counting.await;
        let _ = self.hearing.await;
        let _ = self.watching.await;
        let _ = self.hosting.await;
        page::Told::remove(&self.dir);
        let peers = keep_peers(&self.librarian, &self.path).await;
        let counts = quotas::write(&self.librarian, &self.quotas).await;
        let heard = words::write(&self.librarian, &self.words).await;
        for error in [peers.err(), counts.err(), heard.err()].into_iter().flatten() {
            tracing::warn!(error = %one_line(&error), "something could not be kept for the next start");
        }
        self.client.close();
        let _ = self.serving.await;
        if let Some(signing) = self.signing {
            let _ = signing.await;
        }
        // Whoever asks for a page and does not read it holds nothing up.
        let page = self.page.abort_handle();
        if tokio::time::timeout(PAGE_LIMIT, self.page).await.is_err() {
            page.abort();
        }
        Ok(stopped?)
    }
}

/// Warns where the settings are other than what others go by.
fn warn_of_settings(dir: &PeerDir) {
    let path = dir.path.display();
    for setting in dir.not_certified() {
        let certified: &dyn std::fmt::Debug = match setting {
            "capacity" => &dir.certificate.capacity,
            _ => &dir.certificate.addresses,
        };
        tracing::warn!(
            setting,
            ?certified,
            "peer.toml differs from the peer's certificate, which others go by: have another one signed, from hold peer request --dir {path}"
        );
    }
}

/// The listener for signed requests, where the settings name one.
fn bind_signed(
    dir: &PeerDir,
    identity: &Arc<Identity>,
    limits: ServerLimits,
) -> Result<Option<SignedServer>, HoldError> {
    let Some(listen) = &dir.config.signed_listen else { return Ok(None) };
    config::check_address("signed_listen", listen)?;
    let transport = match dir.config.signed_plain {
        true => SignedTransport::Plain,
        false => SignedTransport::Tls(identity.clone()),
    };
    let peer = crypto::PeerId::new(dir.key.public());
    let options = SignedOptions::new(
        dir.network.genesis().network(),
        peer,
        dir.network.genesis().suite,
        transport,
    );
    let bound = SignedServer::bind(listen, options, limits);
    bound.map(Some).map_err(HoldError::Signed)
}

fn options(dir: &PeerDir) -> Result<LibrarianOptions, HoldError> {
    let genesis = dir.network.genesis().clone();
    let mut options =
        LibrarianOptions::new(dir.key.clone(), genesis, dir.certificate_bytes.clone());
    options.bootstrap.clone_from(&dir.config.bootstrap);
    options.known_peers = read_peers(&dir.path.join(PEERS_FILE));
    options.stored_bytes = quotas::read(&dir.path.join(quotas::FILE));
    options.words_heard_ms = words::read(&dir.path.join(words::FILE));
    options.store_path = Some(dir.path.join(LAYOUT.log));
    options.limits = dir.config.limits.limits();
    options.read_only = dir.config.read_only;
    options.upkeep = Some(dir.config.upkeep.options());
    options.keeping = dir.config.repair.options();
    options.objects = dir.config.objects();
    options.leases = dir.config.leases.settings()?;
    options.rosters = dir.network.rosters();
    options.revocations = watch::revocations(&dir.path)?;
    Ok(options)
}

fn metrics_address(dir: &PeerDir) -> Result<SocketAddr, HoldError> {
    let text = &dir.config.metrics;
    text.parse().map_err(|_| {
        HoldError::argument("metrics", format!("{text:?} is not an IP address with a port"))
    })
}

async fn open_storage(
    dir: &PeerDir,
    env: &Env,
) -> Result<(Arc<LogStore>, Arc<Journal>), HoldError> {
    let (path, env, suite) = (dir.path.clone(), env.clone(), dir.network.genesis().suite);
    let bytes_max = (dir.config.capacity / NEWS_PART).max(NEWS_BYTES_MIN);
    client::blocking(move || {
        let open = |name: &str| {
            let path = path.join(name);
            DirDisk::open(&path).map(Arc::new).map_err(|source| {
                let file = path.display().to_string();
                store::StoreError::Io { action: "open", file, source }
            })
        };
        let options = LogOptions { suite, ..LogOptions::default() };
        let store = LogStore::open(open(LAYOUT.log)?, env.clone(), options)?;
        let prefix = LAYOUT.prefix;
        let options = JournalOptions { bytes_max, ..JournalOptions::default() };
        let journal = Journal::open(open(LAYOUT.journal)?, env, prefix, options)?;
        Ok((store, journal))
    })
    .await
}

async fn start_overlay(
    dir: &PeerDir,
    prepared: &Prepared,
    env: &Env,
) -> Result<Arc<Libp2p>, HoldError> {
    let hosts = dir.config.addresses.iter().filter_map(|address| config::split_address(address));
    let hosts: Vec<String> =
        hosts.map(|(host, _)| host.trim_matches(['[', ']']).to_owned()).collect();
    let options = Libp2pOptions {
        secret: dir.key.clone(),
        network: dir.network.genesis().network(),
        listen: dir.config.p2p_listen.clone(),
        announce: (!hosts.is_empty()).then_some(hosts),
        members: prepared.members(),
        env: env.clone(),
    };
    Ok(Libp2p::start(options).await?)
}

/// Writes the known peers when they changed.
async fn write_peers(librarian: Arc<Librarian>, path: PathBuf, stop: CancellationToken) {
    let mut changes = librarian.directory().changes();
    loop {
        if let Err(error) = keep_peers(&librarian, &path).await {
            tracing::warn!(error = %one_line(&error), "the known peers could not be written");
        }
        tokio::select! {
            // Lagging behind is a change too.
            changed = changes.recv() => {
                if matches!(changed, Err(tokio::sync::broadcast::error::RecvError::Closed)) {
                    return;
                }
            }
            () = stop.cancelled() => return,
        }
        tokio::select! {
            () = tokio::time::sleep(PEERS_WRITTEN_EVERY) => {}
            () = stop.cancelled() => return,
        }
        changes = changes.resubscribe();
    }
}

async fn keep_peers(librarian: &Librarian, path: &Path) -> Result<(), HoldError> {
    let (bytes, path) = (peers_file(librarian.known_peers()), path.to_owned());
    // It waits for the disk.
    client::blocking(move || files::replace(&path, &bytes, Access::Public)).await
}

/// The file: each announcement after its length as four bytes, big-endian. The first one is the peer's own, without which the next start
/// does not know when it last ran. Of the others the shortest, where not all fit: long ones keep nobody else's out.
fn peers_file(mut announcements: Vec<Bytes>) -> Vec<u8> {
    if let Some((_, others)) = announcements.split_first_mut() {
        others.sort_by_key(Bytes::len);
    }
    let mut bytes = Vec::new();
    for announcement in announcements {
        let length = u32::try_from(announcement.len()).unwrap_or(u32::MAX);
        if bytes.len() + announcement.len() + 4 > PEERS_BYTES_MAX {
            break;
        }
        bytes.extend(length.to_be_bytes());
        bytes.extend(&announcement);
    }
    bytes
}

/// What is readable of the file; the librarian checks each.
fn read_peers(path: &Path) -> Vec<Bytes> {
    let Ok(file) = files::read_small(path) else { return Vec::new() };
    let mut rest = Bytes::copy_from_slice(&file);
    let mut peers = Vec::new();
    while let Some(length) = rest.first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        if rest.len() < 4 + length {
            break;
        }
        let _ = rest.split_to(4);
        peers.push(rest.split_to(length));
    }
    peers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_announcement_is_kept_and_long_ones_keep_nobody_elses_out() {
        let own = Bytes::from(vec![1; 700]);
        let long = (0..60).map(|_| Bytes::from(vec![2; 16 << 10]));
        let short = (0..900_u32).map(|of| Bytes::from([&of.to_be_bytes()[..], &[3; 400]].concat()));
        let all: Vec<Bytes> = [own.clone()].into_iter().chain(long).chain(short).collect();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(PEERS_FILE);
        let file = peers_file(all);
        assert!(file.len() <= PEERS_BYTES_MAX, "{} bytes", file.len());
        std::fs::write(&path, &file).expect("written");
        let read = read_peers(&path);
        assert_eq!(read.first(), Some(&own));
        assert_eq!(read.iter().filter(|bytes| bytes.len() == 404).count(), 900);
        assert!(read.iter().any(|bytes| bytes.len() > 404 && **bytes != own), "there was room");
    }
}
