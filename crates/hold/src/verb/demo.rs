//! `hold demo`: the whole story, each step checked, on an embedded network.
//!
//! It is no slide show: the peers are real ones on this machine's loopback, the file is put, shared
//! and read by three different users, four holders are stopped, and every byte on every peer's disk
//! is searched for what was planted in the file, its name and its type. It ends with 0 only if every
//! step held. A build that seals nothing (feature `unsealed`) fails at the search.

mod story;

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::cli::Session;
use crate::embedded::{Embedded, TemporaryFolder};
use crate::error::HoldError;
use crate::exit::Exit;
use crate::logging;

/// Peers of the demonstration.
const PEERS: usize = 9;
/// What its log holds: everything of ours, and what engines tell about their work. All of it is
/// searched for the markers.
const LOG: &str = "debug,h2=info,hyper=info,hyper_util=info,tower=info,rustls=info,yamux=info,\
    multistream_select=info,libp2p=info,libp2p_kad=info,libp2p_gossipsub=info,libp2p_swarm=info,\
    libp2p_identify=info,libp2p_tcp=info,libp2p_noise=info,libp2p_core=info";

/// `hold demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The file to put [default: some MiB made on the spot]
    file: Option<PathBuf>,
}

/// `hold demo`: one line a step that held; a step that does not is an error.
#[derive(Serialize)]
struct Step {
    /// Its number, from 1.
    step: u32,
    /// True.
    held: bool,
    /// What was shown.
    title: &'static str,
    /// What was seen.
    text: String,
    /// How long it took.
    seconds: f64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, title, text, seconds, .. } = self;
        write!(f, "{step}. {title}  ({seconds:.2} s)\n   {text}\n")
    }
}

/// Tells the steps as they are done.
struct Teller<'a> {
    session: &'a Session,
    step: u32,
    since: Instant,
}

impl Teller<'_> {
    /// The step before this moment held.
    fn held(&mut self, title: &'static str, text: String) -> Result<(), HoldError> {
        self.step += 1;
        let seconds = self.since.elapsed().as_secs_f64();
        self.session.out.result(&Step { step: self.step, held: true, title, text, seconds })?;
        self.since = Instant::now();
        Ok(())
    }

    /// The step did not hold.
    fn failed(&self, why: String) -> HoldError {
        HoldError::Demo { step: self.step + 1, why }
    }
}

impl Demo {
    /// Tells the story; 0 only if every step held.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        if let Some(file) = &self.file {
            std::fs::File::open(file).map_err(HoldError::io("read", file))?;
        }
        let folder = TemporaryFolder::new("hold-demo")?;
        let log = folder.path().join("log");
        logging::to_file(LOG, &log)?;
        let mut teller = Teller { session, step: 0, since: Instant::now() };
        let path = folder.path().join("network");
        let mut network = Embedded::start(&path, Some(PEERS), &session.stop).await?;
        let given = self.file.as_deref();
        let story = Box::pin(story::tell(&mut teller, &mut network, folder.path(), given));
        let told = tokio::select! {
            biased;
            () = session.stop.cancelled() => Err(HoldError::Interrupted),
            told = story => told,
        };
        let stopped = network.stop_all().await;
        told.and(stopped)?;
        Ok(Exit::Done)
    }
}
