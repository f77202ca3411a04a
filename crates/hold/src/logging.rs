//! Logs: to stderr, as lines or JSON, chosen by `HOLD_LOG`.
//!
//! A verb is silent unless something is wrong; a peer tells of its start, its peers and its end.
//! What is logged never holds a secret or a name of what is stored: the crates below see to that,
//! and `hold demo` looks for planted markers in its own log.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::error::HoldError;

/// What a verb logs where `HOLD_LOG` says nothing.
pub(crate) const VERB_LEVEL: &str = "error";
/// What a running peer logs where `HOLD_LOG` says nothing.
pub(crate) const PEER_LEVEL: &str = "info,libp2p=warn,h2=warn,hyper=warn,tonic=warn";

fn filter(default: &str) -> EnvFilter {
    let chosen = std::env::var("HOLD_LOG").ok().filter(|text| !text.is_empty());
    let chosen = chosen.and_then(|text| EnvFilter::try_new(text).ok());
    chosen.unwrap_or_else(|| EnvFilter::new(default))
}

/// Logs to stderr from now on. A second call changes nothing.
pub(crate) fn to_stderr(default: &str, json: bool) {
    start(default, json, io::stderr);
}

/// Logs everything of `default` to a new file: what a demonstration looks through.
///
/// # Errors
/// Where the file cannot be made.
pub(crate) fn to_file(default: &str, path: &Path) -> Result<(), HoldError> {
    let file = std::fs::File::create(path).map_err(HoldError::io("create", path))?;
    start(default, false, Mutex::new(file));
    Ok(())
}

fn start<W>(default: &str, json: bool, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(default))
        .with_writer(writer)
        .with_ansi(false);
    // Failing means that a subscriber is there already.
    let _ = if json { builder.json().try_init() } else { builder.try_init() };
    let _ = io::stderr().flush();
}
