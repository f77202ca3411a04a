//! `hold up`: an embedded network on this machine, with a home that is ready to use.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use author::Home;
use clap::Args;
use door_redis::Options;
use serde::Serialize;
use store::Durability;

use crate::cli::Session;
use crate::embedded::{Embedded, PEERS_MAX, TemporaryFolder};
use crate::error::HoldError;
use crate::exit::Exit;
use crate::logging;
use crate::out::PathText;
use crate::redis_door::{Owned, RedisDoor};
use crate::running::Running;

/// `hold up`.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// How many peers, of three organisations [default: 9, or as many as the network in --dir has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=PEERS_MAX as i64))]
    peers: Option<u16>,
    /// Keep it here for the next time [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "D")]
    dir: Option<PathBuf>,
    /// Open a door for Redis's clients on the first peer, here (loopback only) [default: a free port]
    #[arg(long, value_name = "IP:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:0")]
    redis: Option<SocketAddr>,
}

/// `hold up`: one line when all serve.
#[derive(Serialize)]
struct Ready {
    /// True.
    ready: bool,
    /// Where each librarian answers.
    librarians: Vec<String>,
    /// The first one's page of metrics, a URL.
    metrics: String,
    /// Where Redis's clients connect, with `--redis`.
    #[serde(skip_serializing_if = "Option::is_none")]
    redis: Option<String>,
    /// A home that is ready to use, for HOLD_HOME.
    home: PathText,
    /// The network's id.
    network: String,
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "ready: {} librarians at {}",
            self.librarians.len(),
            self.librarians.join(",")
        )?;
        writeln!(f, "metrics: {}", self.metrics)?;
        if let Some(redis) = &self.redis {
            writeln!(
                f,
                "Redis's clients connect to {redis}; its values are open to the first peer"
            )?;
        }
        write!(f, "try: HOLD_HOME={} hold put FILE", self.home)
    }
}

impl Up {
    /// Serves until a signal.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        logging::to_stderr_queued(logging::VERB_LEVEL, session.log_json);
        let temporary = match &self.dir {
            Some(_) => None,
            None => Some(TemporaryFolder::new("hold-up")?),
        };
        let kept = self.dir.as_deref().or(temporary.as_ref().map(TemporaryFolder::path));
        let dir = kept.unwrap_or(std::path::Path::new("."));
        let started = Embedded::start(dir, self.peers.map(usize::from), &session.stop).await;
        let mut network = match started {
            Ok(network) => network,
            // It is told to stop, as later: no failure.
            Err(HoldError::Interrupted) => return Ok(Exit::Done),
            Err(error) => return Err(error),
        };
        let served = serve(session, &network, self.redis).await;
        let stopped = network.stop_all().await;
        drop(temporary);
        served.and(stopped).map(|()| Exit::Done)
    }
}

async fn serve(
    session: &Session,
    network: &Embedded,
    redis: Option<SocketAddr>,
) -> Result<(), HoldError> {
    let mut door = None;
    let served = serve_with(session, network, redis, &mut door).await;
    // Before the librarian whose store it writes.
    let closed = match door {
        Some(door) => door.close().await,
        None => Ok(()),
    };
    served.and(closed)
}

/// Opens what is asked for, tells of it, and waits for a signal; a door that it opened is left in `door`.
async fn serve_with(
    session: &Session,
    network: &Embedded,
    redis: Option<SocketAddr>,
    door: &mut Option<RedisDoor>,
) -> Result<(), HoldError> {
    let ready = async {
        let (config, home) = network.home("home", 0).await?;
        if let (Some(listen), Some(peer)) = (redis, network.running().next()) {
            *door = Some(open_door(network, peer, &home, listen).await?);
        }
        let metrics = network.running().next().map(|peer| peer.metrics.to_string());
        session.out.result(&Ready {
            ready: true,
            librarians: network.addresses(),
            metrics: format!("http://{}/metrics", metrics.unwrap_or_default()),
            redis: door.as_ref().map(|door| door.address().to_string()),
            home: config.home.into(),
            network: network.network.genesis().network().to_string(),
        })
    };
    tokio::select! {
        ready = Box::pin(ready) => ready?,
        () = session.stop.cancelled() => return Ok(()),
    }
    session.stop.cancelled().await;
    if !logging::is_json() {
        session.out.note("stopping");
    }
    Ok(())
}

/// The door on one peer's librarian, whose keys belong to the network's home.
async fn open_door(
    network: &Embedded,
    peer: &Running,
    home: &Home,
    listen: SocketAddr,
) -> Result<RedisDoor, HoldError> {
    let genesis = network.network.genesis();
    let key = home.keyring().owner();
    let owned = Owned { network: genesis.network(), suite: genesis.suite, key };
    let options = Options { listen, ..Options::default() };
    let env = network.env();
    RedisDoor::open(peer, env, owned, Durability::EverySecond, options).await
}
