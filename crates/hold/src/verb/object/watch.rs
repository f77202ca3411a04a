//! `hold object watch`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use author::objects::{Object, WatchPoint, WatchTold};
use clap::{ArgAction, Args};
use futures::StreamExt;
use serde::Serialize;
use tokio::time::Instant;

use super::{Which, history};
use crate::cli::Session;
use crate::client::blocking;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::out::one_line;

/// How often what was told is kept, while more comes: each time is two syncs of the disk.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// `hold object watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchVerb {
    #[command(flatten)]
    which: Which,
    /// Go on where the watch ended that kept this file, and keep it: nothing is told twice but what was told last
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// End when all that there was at the start was told
    #[arg(long, action = ArgAction::SetTrue)]
    once: bool,
    /// Tell values too
    #[arg(long, action = ArgAction::SetTrue)]
    values: bool,
}

/// `hold object watch`: one line an event.
#[derive(Serialize)]
struct Told {
    /// version; gap: versions may be missing before the next.
    event: &'static str,
    /// The object, hex.
    object: String,
    /// The version.
    #[serde(flatten)]
    version: Option<history::PastText>,
    /// The key that wrote it, hex; none of one that was found in the history of another.
    author: Option<String>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{version}"),
            None => write!(f, "versions of {} may be missing here", self.object),
        }
    }
}

impl WatchVerb {
    /// Runs until it is stopped, or with --once until it caught up.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let from = self.resume.as_deref().map(point).transpose()?.flatten();
        let objects = super::objects(session).await?;
        let object = self.which.open(&objects).await?;
        let mut watch = object.watch(from).await?;
        let mut kept = self.resume.clone().map(Kept::new);
        loop {
            let told = tokio::select! {
                told = watch.next() => told,
                left = objects.left() => return Err(left),
                () = Kept::due(kept.as_ref()) => {
                    Kept::keep(kept.as_mut()).await?;
                    continue;
                }
            };
            let Some(told) = told else { break };
            let caught_up = matches!(told, WatchTold::CaughtUp);
            if let Some(line) = self.line(session, &object, told)?
                && !session.out.follow(&line)?
            {
                // Nobody reads any more.
                Kept::keep(kept.as_mut()).await?;
                return match &kept {
                    // What was not read is not taken as told, and whoever started it should know.
                    Some(_) => Err(HoldError::Output(std::io::ErrorKind::BrokenPipe.into())),
                    None => Ok(Exit::Done),
                };
            }
            // After the line: one that was not printed is told again.
            if let Some(kept) = &mut kept {
                kept.told(watch.point());
                if kept.is_due() {
                    kept.write().await?;
                }
            }
            if caught_up && self.once {
                break;
            }
        }
        Kept::keep(kept.as_mut()).await?;
        Ok(Exit::Done)
    }

    fn line(
        &self,
        session: &Session,
        object: &Object,
        told: WatchTold,
    ) -> Result<Option<Told>, HoldError> {
        Ok(match told {
            WatchTold::CaughtUp => None,
            WatchTold::Gap { object } => {
                let object = object.to_string();
                Some(Told { event: "gap", object, version: None, author: None })
            }
            WatchTold::Version { past, author, .. } => Some(Told {
                event: "version",
                object: object.key().to_string(),
                version: Some(history::text(session, object, &past, self.values)?),
                author: author.map(|author| author.to_string()),
            }),
        })
    }
}

/// Where a watch is, and the file that says so: written at most once in [`KEEP_EVERY`], and at the end.
struct Kept {
    path: PathBuf,
    /// What the file does not say yet.
    point: Option<WatchPoint>,
    written: Instant,
}

impl Kept {
    fn new(path: PathBuf) -> Self {
        Self { path, point: None, written: Instant::now() }
    }

    fn told(&mut self, point: &WatchPoint) {
        self.point = Some(point.clone());
    }

    fn is_due(&self) -> bool {
        self.written.elapsed() >= KEEP_EVERY
    }

    /// Waits until there is something to write and it is time to.
    async fn due(this: Option<&Self>) {
        match this.filter(|this| this.point.is_some()) {
            Some(this) => tokio::time::sleep_until(this.written + KEEP_EVERY).await,
            None => std::future::pending().await,
        }
    }

    async fn keep(this: Option<&mut Self>) -> Result<(), HoldError> {
        match this {
            Some(this) => this.write().await,
            None => Ok(()),
        }
    }

    /// Writes what the file does not say yet.
    async fn write(&mut self) -> Result<(), HoldError> {
        let Some(point) = &self.point else { return Ok(()) };
        let (path, bytes) = (self.path.clone(), point.encode());
        blocking(move || files::replace(&path, &bytes, Access::Secret)).await?;
        // Only now: a stop that comes meanwhile writes it again.
        self.point = None;
        self.written = Instant::now();
        Ok(())
    }
}

impl Drop for Kept {
    /// A signal drops the verb at its next await: this is the end of it.
    fn drop(&mut self) {
        if let Some(point) = self.point.take()
            && let Err(error) = files::replace(&self.path, &point.encode(), Access::Secret)
        {
            tracing::warn!(error = %one_line(&error), "where the watch ended could not be kept");
        }
    }
}

/// Where a watch ended; `None` where there is no file yet.
fn point(path: &Path) -> Result<Option<WatchPoint>, HoldError> {
    if !path.exists() {
        return Ok(None);
    }
    let not = |_| HoldError::NotA { what: "where a watch ended", path: path.to_owned() };
    WatchPoint::decode(&files::read_small(path)?).map(Some).map_err(not)
}
