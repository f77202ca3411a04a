//! `hold up`: an embedded network on this machine, with a home that is ready to use.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::Session;
use crate::embedded::{Embedded, PEERS_MAX, TemporaryFolder};
use crate::error::HoldError;
use crate::exit::Exit;
use crate::logging;
use crate::out::PathText;

/// `hold up`.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// How many peers, of three organisations
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..=PEERS_MAX as i64))]
    peers: u16,
    /// Keep it here for the next time [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "D")]
    dir: Option<PathBuf>,
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
        write!(f, "try: HOLD_HOME={} hold put FILE", self.home)
    }
}

impl Up {
    /// Serves until a signal.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        logging::to_stderr(logging::VERB_LEVEL, session.log_json);
        let temporary = match &self.dir {
            Some(_) => None,
            None => Some(TemporaryFolder::new("hold-up")?),
        };
        let kept = self.dir.as_deref().or(temporary.as_ref().map(TemporaryFolder::path));
        let dir = kept.unwrap_or(std::path::Path::new("."));
        let mut network = Embedded::start(dir, usize::from(self.peers)).await?;
        let served = serve(session, &network).await;
        let stopped = network.stop_all().await;
        drop(temporary);
        served.and(stopped).map(|()| Exit::Done)
    }
}

async fn serve(session: &Session, network: &Embedded) -> Result<(), HoldError> {
    let ready = async {
        let (config, _) = network.home("home", 0).await?;
        let metrics = network.running().next().map(|peer| peer.metrics.to_string());
        session.out.result(&Ready {
            ready: true,
            librarians: network.addresses(),
            metrics: format!("http://{}/metrics", metrics.unwrap_or_default()),
            home: config.home.into(),
            network: network.network.genesis().network().to_string(),
        })
    };
    tokio::select! {
        ready = Box::pin(ready) => ready?,
        () = session.stop.cancelled() => return Ok(()),
    }
    session.stop.cancelled().await;
    session.out.note("stopping");
    Ok(())
}
