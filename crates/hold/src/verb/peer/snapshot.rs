//! `hold peer snapshot`: a copy of a peer's directory, also while the peer runs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use author::Progress;
use clap::Args;
use crypto::PeerId;
use env::Clock;
use serde::Serialize;
use store::snapshot::{self, Summary, TakeOptions};
use tokio_util::sync::CancellationToken;

use crate::cli::Session;
use crate::client;
use crate::descriptors;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files;
use crate::network_file;
use crate::out::PathText;
use crate::peerdir::LAYOUT;
use crate::progress::Bar;

/// `hold peer snapshot`.
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    /// The peer's directory
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// The new folder of the snapshot
    #[arg(long, value_name = "SNAPSHOT")]
    to: PathBuf,
    /// An earlier snapshot on the same disk: what did not change since is linked and not read
    #[arg(long, value_name = "SNAPSHOT")]
    base: Option<PathBuf>,
    /// Copy the peer's private key too: whoever has the snapshot then has the peer
    #[arg(long)]
    with_key: bool,
    /// Bytes a second that are read at most
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
}

/// `hold peer snapshot`, `hold peer restore`: what the snapshot is.
#[derive(Serialize)]
pub(super) struct Shown {
    /// Where it is.
    snapshot: PathText,
    /// The peer it is of.
    peer: String,
    /// The peer's network.
    network: String,
    /// When it was taken, Unix milliseconds.
    taken_ms: u64,
    /// How many files it has.
    files: u64,
    /// Their bytes.
    bytes: u64,
    /// Bytes of them that are linked to the earlier one instead of copied.
    linked_bytes: u64,
    /// Whether the peer's private key is in it.
    with_key: bool,
    /// What is no file as a peer has, and is not in it.
    left_out: Vec<String>,
    /// Bytes of the log and the journal that the disk could not read; zeros stand for them.
    unread_bytes: u64,
}

impl Shown {
    pub(super) fn new(snapshot: &Path, summary: Summary) -> Self {
        Self {
            snapshot: snapshot.into(),
            peer: summary.peer.to_string(),
            network: summary.network.to_string(),
            taken_ms: summary.unix_ms,
            files: summary.files,
            bytes: summary.bytes,
            linked_bytes: summary.linked_bytes,
            with_key: summary.with_key,
            left_out: summary.left_out,
            unread_bytes: summary.unread_bytes,
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { snapshot, files, bytes, linked_bytes, .. } = self;
        write!(f, "{}: {files} files, {bytes} bytes, {linked_bytes} linked", snapshot)
    }
}

impl Snapshot {
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let genesis = network_file::read_genesis(&self.dir.join("network"))?;
        let hint = "hold peer init --dir D --network NET --org ORG";
        let key = files::read_secret_key(&self.dir.join(LAYOUT.key), hint)?;
        let peer = PeerId::new(key.public());
        let mut watch = Watch::new(session, "snapshot", self.rate);
        // On another file system each segment is held open until it is copied.
        descriptors::raise();
        let shown = client::blocking(move || {
            let options = TakeOptions {
                layout: LAYOUT,
                peer,
                network: genesis.network(),
                suite: genesis.suite,
                unix_ms: env::SystemClock::new().unix_ms(),
                base: self.base.as_deref(),
                with_key: self.with_key,
            };
            let mut watcher = |done, total| watch.goes_on(done, total);
            let summary = snapshot::take(&self.dir, &self.to, &options, &mut watcher)?;
            Ok(Shown::new(&self.to, summary))
        })
        .await?;
        for name in &shown.left_out {
            session.out.warn(format_args!(
                "{name} was left out: it is too long to be a peer's, has another name than a peer's files have, is no file, \
                 holds another snapshot, or is a copy of the key"
            ));
        }
        if shown.unread_bytes > 0 {
            session.out.warn(format_args!(
                "the disk could not read {} bytes of the log; all else is in the snapshot, and what lay there is not",
                shown.unread_bytes
            ));
        }
        session.out.result(&shown)?;
        Ok(if shown.unread_bytes > 0 { Exit::Partly } else { Exit::Done })
    }
}

/// Shows how far copying is, keeps its pace, and ends it at a signal.
pub(super) struct Watch {
    bar: std::sync::Arc<Bar>,
    stop: CancellationToken,
    rate: Option<u64>,
    begun: Instant,
    shown: u64,
}

/// A wait for the pace is cut up, so that a signal is seen soon.
const WAIT_MAX: Duration = Duration::from_millis(100);

impl Watch {
    pub(super) fn new(session: &Session, verb: &'static str, rate: Option<u64>) -> Self {
        let bar = Bar::new(&session.out, verb);
        Self { bar, stop: session.stop.clone(), rate, begun: Instant::now(), shown: 0 }
    }

    /// Takes note of bytes done of a total; `false` where copying is to end.
    pub(super) fn goes_on(&mut self, done: u64, total: u64) -> bool {
        self.bar.total(total);
        self.bar.content(done - self.shown);
        self.shown = done;
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(done as f64 / rate as f64);
            while !self.stop.is_cancelled() && self.begun.elapsed() < due {
                std::thread::sleep((due - self.begun.elapsed().min(due)).min(WAIT_MAX));
            }
        }
        !self.stop.is_cancelled()
    }
}
