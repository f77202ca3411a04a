//! A whole network in this process: organisations, peers with real transports and stores, and homes.
//!
//! The peers are those of `hold peer run`, on free loopback ports; only the process is shared. So
//! what holds here holds for processes, and a demonstration starts in a second.
//!
//! ```text
//! DIR/NET  DIR/org0..2/  DIR/peer0../  DIR/home/ (ready to use: settings, pass, passphrase)
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use author::Home;
use crypto::Suite;
use env::{Env, SystemEntropy};
use futures::future::{join_all, try_join_all};
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config, FileConfig};
use crate::error::HoldError;
use crate::files::{self, Access};
use crate::network_file::NetworkFile;
use crate::organisation::OwnOrganisation;
use crate::peerdir::{self, PeerConfig, PeerDir};
use crate::running::Running;
use crate::verb::network;
use crate::{client, markers};

/// Organisations of an embedded network.
pub(crate) const ORGANISATIONS: usize = 3;
/// Peers where no number is said.
pub(crate) const PEERS_DEFAULT: usize = 9;
/// Peers at most: each has some threads, sockets and files of this one process.
pub(crate) const PEERS_MAX: usize = 64;
/// How long the peers may take to know each other.
const ACQUAINTED_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const NAMES: [&str; ORGANISATIONS] = ["harbour", "library", "observatory"];

/// A folder that is removed when dropped.
pub(crate) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// A new one below the system's folder for such.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub(crate) fn new(name: &str) -> Result<Self, HoldError> {
        let mut random = [0; 8];
        env::Entropy::fill(&SystemEntropy, &mut random);
        let path = std::env::temp_dir().join(format!("{name}-{}", hex::encode(random)));
        files::make_private_folder(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One peer of the network, running or not.
pub(crate) struct Slot {
    /// Its directory.
    pub(crate) dir: PathBuf,
    /// Its librarian, where it runs.
    pub(crate) running: Option<Running>,
}

/// The network.
pub(crate) struct Embedded {
    dir: PathBuf,
    env: Env,
    /// Who takes part.
    pub(crate) network: NetworkFile,
    /// Its peers.
    pub(crate) peers: Vec<Slot>,
}

impl Embedded {
    /// Makes a network of `peers` ([`PEERS_DEFAULT`]) in `dir`, or takes the one that is there, and starts it.
    ///
    /// # Errors
    /// Where a file cannot be made or a peer does not start; [`HoldError::Argument`] where a network of another number of peers
    /// is there; [`HoldError::Interrupted`] where `stop` comes before. What had started is stopped then.
    pub(crate) async fn start(
        dir: &Path,
        peers: Option<usize>,
        stop: &CancellationToken,
    ) -> Result<Self, HoldError> {
        files::make_private_folder(dir)?;
        let dir = std::path::absolute(dir).map_err(HoldError::io("find", dir))?;
        if !dir.join("NET").exists() {
            create(&dir, peers.unwrap_or(PEERS_DEFAULT))?;
        }
        let network = NetworkFile::read(&dir.join("NET"))?;
        let dirs = (0..PEERS_MAX).map(|number| dir.join(format!("peer{number}")));
        let there = dirs.take_while(|dir| dir.exists()).map(|dir| Slot { dir, running: None });
        let there: Vec<Slot> = there.collect();
        if peers.is_some_and(|peers| peers != there.len()) {
            let (dir, there) = (dir.display(), there.len());
            let reason = format!(
                "the network in {dir} has {there}: leave --peers out, or choose another --dir"
            );
            return Err(HoldError::argument("--peers", reason));
        }
        let mut this = Self { peers: there, env: Env::real(), network, dir };
        // Not dropped on the way: who opens a store at that moment would go on with it.
        let mut started = this.start_those_down().await;
        if started.is_ok() {
            started = tokio::select! {
                biased;
                () = stop.cancelled() => Err(HoldError::Interrupted),
                () = this.acquainted() => Ok(()),
            };
        }
        match started {
            Ok(()) => Ok(this),
            Err(error) => {
                this.stop_all().await?;
                Err(error)
            }
        }
    }

    /// Starts every peer that does not run, and waits until all know each other.
    ///
    /// # Errors
    /// Where one does not start.
    pub(crate) async fn start_all(&mut self) -> Result<(), HoldError> {
        self.start_those_down().await?;
        self.acquainted().await;
        Ok(())
    }

    async fn start_those_down(&mut self) -> Result<(), HoldError> {
        let env = &self.env;
        let waiting = self.peers.iter_mut().filter(|slot| slot.running.is_none());
        let starting = waiting.map(|slot| async {
            let dir = PeerDir::open(&slot.dir, peerdir::now_s())?;
            if dir.has_left() {
                tracing::warn!(dir = %slot.dir.display(), "this peer has left and is not started");
                return Ok(());
            }
            slot.running = Some(Running::start(dir, env).await?);
            Ok::<(), HoldError>(())
        });
        // Boxed: the futures of many peers at once are large.
        try_join_all(starting.map(Box::pin)).await.map(drop)
    }

    /// Waits until all that run know each other, or one that does not has had its time.
    async fn acquainted(&self) {
        let all = self.running().count();
        let acquainted = async {
            while !self.running().all(|peer| peer.librarian.directory().view().len() == all) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        if tokio::time::timeout(ACQUAINTED_WITHIN, acquainted).await.is_err() {
            tracing::warn!("some peers do not know all others yet");
        }
    }

    /// What the peers run on.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// The peers that run.
    pub(crate) fn running(&self) -> impl Iterator<Item = &Running> {
        self.peers.iter().filter_map(|slot| slot.running.as_ref())
    }

    /// Their addresses.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.running().map(|peer| peer.address.clone()).collect()
    }

    /// Stops every peer that runs.
    ///
    /// # Errors
    /// What the first that did not end well said; all are stopped.
    pub(crate) async fn stop_all(&mut self) -> Result<(), HoldError> {
        let running = self.peers.iter_mut().filter_map(|slot| slot.running.take());
        let stopped = join_all(running.map(|peer| Box::pin(peer.stop()))).await;
        stopped.into_iter().collect()
    }

    /// A home `name` in the network's folder, made where it is not there: its settings name the
    /// librarians, an organisation and the file with its passphrase, so that it needs nothing else.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub(crate) async fn home(&self, name: &str, org: usize) -> Result<(Config, Home), HoldError> {
        let dir = self.dir.join(name);
        let secret = dir.join("passphrase");
        if !Home::exists(&dir) {
            files::make_private_folder(&dir)?;
            files::replace(&secret, markers::fresh().as_bytes(), Access::Secret)?;
            self.network.copy_to(&dir.join("network"))?;
        }
        let via = self.addresses();
        let org = self.dir.join(format!("org{}", org % ORGANISATIONS));
        let (org, passphrase_file) = (Some(org), Some(secret.clone()));
        let network = Some(dir.join("network"));
        let file = FileConfig { via, network, org, passphrase_file, ..FileConfig::default() };
        config::write_file(&dir, &file)?;
        // Not what the user's environment says: that is about another network.
        let config = Config {
            home: dir.clone(),
            via: file.via,
            thin: false,
            network: dir.join("network"),
            org: file.org,
            passphrase_file: file.passphrase_file,
            lease_s: author::LEASE_SECONDS,
        };
        let passphrase = files::read_small(&secret)?;
        let home = client::blocking(move || {
            if Home::exists(&dir) {
                return Ok(Home::open(&dir, &passphrase)?);
            }
            Ok(Home::create(&dir, &passphrase, &SystemEntropy)?)
        });
        Ok((config, home.await?))
    }
}

/// Organisations, genesis and peers' directories, one organisation after the other.
fn create(dir: &Path, peers: usize) -> Result<(), HoldError> {
    let orgs = NAMES.iter().enumerate();
    let orgs =
        orgs.map(|(number, name)| OwnOrganisation::create(&dir.join(format!("org{number}")), name));
    let orgs = orgs.collect::<Result<Vec<_>, _>>()?;
    let mut bootstrap = Vec::new();
    let listed = orgs.iter().map(|org| org.public.clone()).collect();
    let draft = dir.join("NET.new");
    let genesis = network::create("embedded", Suite::Holdfast1, None, listed, &draft)?;
    let network = NetworkFile::new(&dir.join("NET"), genesis);
    for number in 0..peers {
        let listen = peerdir::free_loopback()?;
        let config = PeerConfig {
            addresses: vec![listen.clone()],
            p2p_listen: "127.0.0.1:0".to_owned(),
            metrics: "127.0.0.1:0".to_owned(),
            capacity: peerdir::CAPACITY_DEFAULT,
            bootstrap: bootstrap.clone(),
            listen: listen.clone(),
            ..PeerConfig::default()
        };
        let org = orgs.get(number % ORGANISATIONS);
        PeerDir::create(&dir.join(format!("peer{number}")), &network, &config, org)?;
        if bootstrap.is_empty() {
            bootstrap.push(listen);
        }
    }
    // Last, so that a network that is there is whole.
    std::fs::rename(&draft, dir.join("NET")).map_err(HoldError::io("write", &draft))
}
