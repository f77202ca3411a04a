//! `hold peer run`: one librarian in the foreground, until a signal.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use env::Env;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::logging;
use crate::out::one_line;
use crate::peerdir::{self, PeerDir};
use crate::running::Running;

/// `hold peer run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The peer's directory
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// Where requests signed by callers without a certificate are taken too (signed_listen)
    #[arg(long, value_name = "HOST:PORT")]
    signed_listen: Option<String>,
}

/// `hold peer run`: one line when it serves.
#[derive(Serialize)]
struct Ready {
    /// True.
    ready: bool,
    /// Where others reach it.
    address: String,
    /// Its public key.
    peer: String,
    /// Where its page of metrics is, `HOST:PORT`.
    metrics: String,
    /// Where signed requests are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed: Option<String>,
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, peer, metrics, .. } = self;
        write!(f, "ready at {address}, peer {peer}, metrics at http://{metrics}/metrics")?;
        match &self.signed {
            Some(signed) => write!(f, ", signed requests at {signed}"),
            None => Ok(()),
        }
    }
}

impl Run {
    /// Serves until SIGTERM or SIGINT, then drains.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        logging::to_stderr_queued(logging::PEER_LEVEL, session.log_json);
        let mut dir = PeerDir::open(&self.dir, peerdir::now_s())?;
        dir.config.signed_listen = self.signed_listen.or(dir.config.signed_listen);
        let env = Env::real();
        let started = tokio::select! {
            started = Running::start(dir, &env) => started,
            () = session.stop.cancelled() => return Ok(Exit::Done),
        };
        let mut running = started?;
        // It serves whoever reads of it or not; that the line could not be written is told at the end too.
        let told = session.out.result(&Ready {
            ready: true,
            address: running.address.clone(),
            peer: running.librarian.peer().to_string(),
            metrics: running.metrics.to_string(),
            signed: running.signed.map(|address| address.to_string()),
        });
        if let Err(error) = &told {
            tracing::warn!(error = %one_line(error), "it serves, and its ready line could not be written");
        }
        let ended = tokio::select! {
            ended = running.ended() => ended,
            () = session.stop.cancelled() => Ok(()),
        };
        if !logging::is_json() {
            session.out.note("stopping");
        }
        let stopped = running.stop().await;
        ended.and(stopped).and(told).map(|()| Exit::Done)
    }
}
