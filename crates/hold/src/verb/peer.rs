//! `hold peer`: one librarian, as an operator runs it.

mod leave;
mod own;
mod request;
mod restore;
mod run;
mod set;
mod snapshot;
pub(crate) mod status;

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::Session;
use crate::config;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::network_file::NetworkFile;
use crate::organisation::OwnOrganisation;
use crate::out::PathText;
use crate::peerdir::{self, PeerConfig, PeerDir};

/// What to do with a peer.
#[derive(Debug, Subcommand)]
pub(crate) enum Peer {
    /// Make a peer's directory: key, settings, and its certificate or a request for one
    Init(Init),
    /// Ask for a certificate anew, after the addresses or the capacity changed in peer.toml
    Request(request::Request),
    /// Run the librarian until SIGTERM or Ctrl-C; prints one line when it serves
    Run(run::Run),
    /// Change a setting; a peer that runs takes it within a second
    Set(set::Set),
    /// Hand over all that a peer holds, and leave the network
    Leave(leave::Leave),
    /// Copy a peer's directory, also while it runs
    Snapshot(snapshot::Snapshot),
    /// Make a peer's directory of a snapshot, or check one
    Restore(restore::Restore),
    /// Ask a librarian whom it knows, how they are, and what it holds
    Status(status::Ask),
}

/// `hold peer init`.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The peer's directory
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// The network file
    #[arg(long, value_name = "NET")]
    network: PathBuf,
    /// The organisation's directory, to sign the certificate at once
    #[arg(long, value_name = "ORG")]
    org: Option<PathBuf>,
    /// Where gRPC listens [default: a free port of 127.0.0.1, chosen now]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Where others reach it, where that differs from --listen
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    advertise: Vec<String>,
    /// Peers to meet first
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    bootstrap: Vec<String>,
    /// Where libp2p listens [default: a free port at each start, on the host of --listen]
    #[arg(long, value_name = "HOST:PORT")]
    p2p_listen: Option<String>,
    /// Bytes it offers to the network
    #[arg(long, value_name = "BYTES", default_value_t = peerdir::CAPACITY_DEFAULT, value_parser = clap::value_parser!(u64).range(1..))]
    capacity: u64,
    /// Where the metrics page listens [default: a free port of 127.0.0.1 at each start]
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
}

/// `hold peer init`: the peer that was made.
#[derive(Serialize)]
struct InitResult {
    /// Its public key.
    peer: String,
    /// Where others reach it.
    address: String,
    /// Its directory.
    dir: PathText,
    /// Where no organisation signed: what it is asked to sign.
    request: Option<PathText>,
}

impl fmt::Display for InitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.address, self.peer)
    }
}

impl Peer {
    /// Runs it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match self {
            Self::Init(args) => args.run(session),
            Self::Request(args) => args.run(session),
            Self::Run(args) => args.run(session).await,
            Self::Set(args) => args.run(session),
            Self::Leave(args) => args.run(session).await,
            Self::Snapshot(args) => args.run(session).await,
            Self::Restore(args) => args.run(session).await,
            Self::Status(args) => session.stoppable(args.run(session)).await,
        }
    }
}

impl Init {
    fn config(&self) -> Result<PeerConfig, HoldError> {
        let listen = match &self.listen {
            Some(listen) => listen.clone(),
            None => peerdir::free_loopback()?,
        };
        config::check_address("--listen", &listen)?;
        let listen = match config::split_address(&listen) {
            Some((host, 0)) => format!("{host}:{}", free_port()?),
            _ => listen,
        };
        let addresses = peerdir::advertised(&listen, &self.advertise)?;
        let host = config::split_address(&listen).map_or("127.0.0.1", |(host, _)| host);
        let p2p_listen = self.p2p_listen.clone().unwrap_or_else(|| format!("{host}:0"));
        config::check_address("--p2p-listen", &p2p_listen)?;
        let metrics = self.metrics.clone().unwrap_or_else(|| "127.0.0.1:0".to_owned());
        config::check_address("--metrics", &metrics)?;
        for address in &self.bootstrap {
            config::check_address("--bootstrap", address)?;
        }
        let (capacity, bootstrap) = (self.capacity, self.bootstrap.clone());
        Ok(PeerConfig {
            listen,
            addresses,
            p2p_listen,
            metrics,
            capacity,
            bootstrap,
            ..PeerConfig::default()
        })
    }

    fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let network = NetworkFile::read(&self.network)?;
        let org = self.org.as_deref().map(OwnOrganisation::open).transpose()?;
        let config = self.config()?;
        let peer = PeerDir::create(&self.dir, &network, &config, org.as_ref())?;
        let request = org.is_none().then(|| self.dir.join("peer.request"));
        if let Some(request) = &request {
            session.out.note(format_args!(
                "hint: let the organisation sign it: hold org sign-peer --dir ORG --network {} \
                 --request {} -o {}",
                self.network.display(),
                request.display(),
                self.dir.join("peer.cert").display()
            ));
        }
        let address = config.addresses.first().cloned().unwrap_or_default();
        session.out.result(&InitResult {
            peer: peer.to_string(),
            address,
            dir: self.dir.into(),
            request: request.map(PathText::from),
        })?;
        Ok(Exit::Done)
    }
}

fn free_port() -> Result<u16, HoldError> {
    let address = peerdir::free_loopback()?;
    Ok(config::split_address(&address).map_or(0, |(_, port)| port))
}
