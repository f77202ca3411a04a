//! `hold serve redis`: a librarian and the door for Redis's clients in one process.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use door_redis::{Compress, Options};
use env::Env;
use serde::Serialize;
use store::Durability;
use zeroize::Zeroizing;

use crate::cli::Session;
use crate::client::open_home;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::peerdir::{self, PeerDir};
use crate::redis_door::{Owned, RedisDoor};
use crate::running::Running;
use crate::{files, logging};

/// `hold serve redis`.
#[derive(Debug, Args)]
pub(crate) struct Redis {
    /// The directory of the peer that keeps the keys; it must not run elsewhere
    #[arg(long, value_name = "DIR")]
    peer: PathBuf,
    /// Where clients connect; others than loopback need --password-file
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:6379")]
    listen: SocketAddr,
    /// A file with the password that clients must AUTH with
    #[arg(long, value_name = "F")]
    password_file: Option<PathBuf>,
    /// When a write is answered
    #[arg(long, value_enum, default_value_t = Answered::Everysec)]
    durability: Answered,
    /// Which versions are kept as differences to an earlier one: it saves disk and takes time
    #[arg(long, value_enum, default_value_t = Kept::Hashes)]
    compress: Kept,
    /// Values kept in memory, in MiB; the others are read from the disk
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    cache: usize,
    /// Let FLUSHALL and FLUSHDB delete all keys (their versions stay)
    #[arg(long)]
    allow_flush: bool,
}

/// When a command that wrote is answered.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Answered {
    /// When the system has it; an fsync within a second
    Everysec,
    /// When one fsync for all that waited is done
    Group,
    /// When an fsync of its own is done
    Always,
    /// When the system has it; an fsync when it likes
    Memory,
}

/// Which versions are kept as differences.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kept {
    /// Those that ask for it (HOLD.PUT ... COMPRESS)
    Never,
    /// Hashes, of which a command changes a part
    Hashes,
    /// Strings too
    All,
}

impl From<Answered> for Durability {
    fn from(answered: Answered) -> Self {
        match answered {
            Answered::Everysec => Self::EverySecond,
            Answered::Group => Self::Group,
            Answered::Always => Self::Always,
            Answered::Memory => Self::Memory,
        }
    }
}

impl From<Kept> for Compress {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Never => Self::Never,
            Kept::Hashes => Self::Hashes,
            Kept::All => Self::All,
        }
    }
}

/// `hold serve redis`: one line when it serves.
#[derive(Serialize)]
struct Ready {
    /// True.
    ready: bool,
    /// Where Redis's clients connect.
    redis: String,
    /// Where other peers reach the librarian.
    address: String,
    /// Its public key.
    peer: String,
    /// Its page of metrics, `HOST:PORT`.
    metrics: String,
    /// The key that owns the objects.
    owner: String,
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { redis, address, peer, metrics, .. } = self;
        writeln!(f, "ready: Redis's clients connect to {redis}")?;
        writeln!(f, "librarian at {address}, peer {peer}, metrics at http://{metrics}/metrics")?;
        write!(f, "values are open: this peer's operator can read them")
    }
}

impl Redis {
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        logging::to_stderr_queued(logging::PEER_LEVEL, session.log_json);
        let options = self.options()?;
        let home = open_home(session).await?;
        let owner = home.keyring().owner();
        let dir = PeerDir::open(&self.peer, peerdir::now_s())?;
        if !dir.has_left() {
            crate::leaving::check_stays(&dir.config)?;
        }
        let genesis = dir.network.genesis();
        let (network, suite) = (genesis.network(), genesis.suite);
        let env = Env::real();
        let started = tokio::select! {
            started = Running::start(dir, &env) => started,
            () = session.stop.cancelled() => return Ok(Exit::Done),
        };
        let mut running = started?;

        let owned = Owned { network, suite, key: owner.clone() };
        let durability = self.durability.into();
        let opened = tokio::select! {
            opened = RedisDoor::open(&running, &env, owned, durability, options) => Some(opened),
            () = session.stop.cancelled() => None,
        };
        let door = match opened {
            Some(Ok(door)) => door,
            Some(Err(error)) => {
                running.stop().await?;
                return Err(error);
            }
            // It has many keys to load, and is told to stop.
            None => return running.stop().await.map(|()| Exit::Done),
        };
        let told = session.out.result(&Ready {
            ready: true,
            redis: door.address().to_string(),
            address: running.address.clone(),
            peer: running.librarian.peer().to_string(),
            metrics: running.metrics.to_string(),
            owner: owner.public().to_string(),
        });
        let ended = tokio::select! {
            ended = running.ended() => ended,
            () = session.stop.cancelled() => Ok(()),
        };
        if !logging::is_json() {
            session.out.note("stopping");
        }
        // The door first, so that what it answered is attested and in the store when that closes.
        door.close().await?;
        running.stop().await?;
        told.and(ended).map(|()| Exit::Done)
    }

    fn options(&self) -> Result<Options, HoldError> {
        let password = match &self.password_file {
            None => None,
            Some(path) => {
                let bytes = Zeroizing::new(files::read_small(path)?);
                let text = std::str::from_utf8(&bytes).ok();
                let text = text.map(|text| text.trim_end_matches(['\r', '\n']));
                let text = text.filter(|text| !text.is_empty()).ok_or_else(|| HoldError::NotA {
                    what: "a password in UTF-8",
                    path: path.clone(),
                })?;
                Some(Zeroizing::new(text.to_owned()))
            }
        };
        Ok(Options {
            listen: self.listen,
            password,
            flush: self.allow_flush,
            compress: self.compress.into(),
            cache_bytes: self.cache.saturating_mul(1 << 20),
            ..Options::default()
        })
    }
}
