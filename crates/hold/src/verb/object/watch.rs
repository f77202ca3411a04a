//! `hold object watch`.

use std::fmt;
use std::path::{Path, PathBuf};

use author::objects::{Object, WatchPoint, WatchTold};
use clap::{ArgAction, Args};
use futures::StreamExt;
use serde::Serialize;

use super::{Which, history};
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};

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
        while let Some(told) = watch.next().await {
            let caught_up = matches!(told, WatchTold::CaughtUp);
            if let Some(line) = self.line(&object, told)? {
                session.out.result(&line)?;
            }
            // After the line: one that was not printed is told again.
            if let Some(path) = &self.resume {
                files::replace(path, &watch.point().encode(), Access::Secret)?;
            }
            if caught_up && self.once {
                break;
            }
        }
        Ok(Exit::Done)
    }

    fn line(&self, object: &Object, told: WatchTold) -> Result<Option<Told>, HoldError> {
        Ok(match told {
            WatchTold::CaughtUp => None,
            WatchTold::Gap { object } => {
                let object = object.to_string();
                Some(Told { event: "gap", object, version: None, author: None })
            }
            WatchTold::Version { past, author, .. } => Some(Told {
                event: "version",
                object: object.key().to_string(),
                version: Some(history::text(object, &past, self.values)?),
                author: author.map(|author| author.to_string()),
            }),
        })
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
