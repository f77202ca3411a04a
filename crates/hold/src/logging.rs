//! Logs: to stderr, as lines or JSON, chosen by `HOLD_LOG`.
//!
//! A verb is silent unless something is wrong; a peer tells of its start, its peers and its end. What serves others logs by a
//! queue, so that it never waits for who reads its log ([`queue`]); a verb that ends by itself writes each line at once.
//! What is logged never holds a secret or a name of what is stored: the crates below see to that,
//! and `hold demo` looks for planted markers in its own log.

mod queue;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use self::queue::Queue;
use crate::environment;
use crate::error::HoldError;

/// What a verb logs where `HOLD_LOG` says nothing.
pub(crate) const VERB_LEVEL: &str = "error";
/// What a running peer logs where `HOLD_LOG` says nothing. What carries the news between peers warns of frames and messages that
/// it should not be sent, whoever sent them (yamux as of errors), and so does what carries calls: a stranger could fill the disk with
/// such lines.
pub(crate) const PEER_LEVEL: &str =
    "info,libp2p=error,multistream_select=error,yamux=off,h2=error,hyper=error,tonic=error";

/// How long the end of the process waits for who reads its log.
const FLUSH_FOR: Duration = Duration::from_secs(1);
/// The lines of stderr, in a process that serves others.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();
/// Whether they are JSON.
static JSON: AtomicBool = AtomicBool::new(false);

fn filter(default: &str) -> EnvFilter {
    let chosen = chosen().and_then(|text| EnvFilter::try_new(text).ok());
    chosen.unwrap_or_else(|| EnvFilter::new(default))
}

fn chosen() -> Option<String> {
    environment::value("HOLD_LOG").and_then(|text| text.into_string().ok())
}

/// Whether `HOLD_LOG` says what it may: a word that is no level would be taken for a part of the program, and silence all others.
///
/// # Errors
/// [`HoldError::Argument`].
pub(crate) fn check() -> Result<(), HoldError> {
    chosen().map_or(Ok(()), |text| check_text(&text))
}

fn check_text(text: &str) -> Result<(), HoldError> {
    let wrong = |what: &str| {
        let reason = format!(
            "{what} is none of off, error, warn, info, debug and trace; of one part it is PART=LEVEL, as in info,rpc=debug"
        );
        Err(HoldError::argument("HOLD_LOG", reason))
    };
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        // What a span is chosen by (`[name{field}]`) may have anything in it.
        let level = one.rsplit_once('=').map_or(one, |(_, level)| level);
        // No text is a level too, by the library: of errors alone.
        let is_level = !level.trim().is_empty() && level.parse::<LevelFilter>().is_ok();
        if !one.contains('[') && !is_level {
            return wrong(one);
        }
    }
    EnvFilter::try_new(text).map(drop).or_else(|_| wrong(text))
}

/// Logs to stderr from now on. A second call changes nothing.
pub(crate) fn to_stderr(default: &str, json: bool) {
    start(default, json, io::stderr);
}

/// As [`to_stderr`], of what serves others: lines wait in a bounded queue, and those for which there is no room are counted.
pub(crate) fn to_stderr_queued(default: &str, json: bool) {
    if QUEUE.get().is_some() {
        return;
    }
    JSON.store(json, Ordering::Relaxed);
    // Of its own, and not the library's: that is locked while it is written to, and whoever panics would wait for it.
    let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    match stderr.and_then(|stderr| Queue::start(stderr, json)) {
        Ok(queue) => start(default, json, QUEUE.get_or_init(|| queue).clone()),
        // Better a log that others can stall than none.
        Err(_) => to_stderr(default, json),
    }
}

/// Whether this process serves others and logs JSON: whoever reads its stderr reads nothing else.
pub(crate) fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Whether a line for stderr was taken by the queue of this process: it stands there behind what was logged before. Else the
/// caller writes it.
pub(crate) fn took(line: &str) -> bool {
    let Some(queue) = QUEUE.get() else { return false };
    queue.push(format!("{line}\n").as_bytes());
    true
}

/// Waits until what was logged is written, [`FLUSH_FOR`] at most; nothing waits where lines are written at once.
pub(crate) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_FOR);
    }
}

/// [`flush`] when it is dropped: however the program ends, also by a panic.
#[derive(Debug)]
pub(crate) struct Flush;

impl Drop for Flush {
    fn drop(&mut self) {
        flush();
    }
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
        .with_ansi(false)
        // A line that cannot be written is lost. Saying so on stderr panics where that is what cannot be written, and would end
        // whatever task logged.
        .log_internal_errors(false);
    // Failing means that a subscriber is there already.
    let _ = if json { builder.json().try_init() } else { builder.try_init() };
    let _ = io::stderr().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_level_is_told() {
        for text in
            ["info", "off", "ERROR", "info,libp2p=warn", "rpc=debug,walk=trace", "[put]=info"]
        {
            assert!(check_text(text).is_ok(), "{text}");
        }
        for text in ["warning", "infos", "info,libp2p=loud", "libp2p", "rpc=", "info,rpc=", "="] {
            assert!(matches!(check_text(text), Err(HoldError::Argument { .. })), "{text}");
        }
    }

    #[test]
    fn what_a_stranger_sends_makes_no_lines() {
        let path = tempfile::NamedTempFile::new().expect("a file");
        let file = path.reopen().expect("the file");
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(PEER_LEVEL))
            .with_writer(Mutex::new(file))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "libp2p_gossipsub::protocol", "flood");
            tracing::warn!(target: "libp2p_kad::handler", "flood");
            tracing::warn!(target: "multistream_select::listener_select", "flood");
            tracing::error!(target: "yamux::connection::rtt", "flood");
            tracing::warn!(target: "h2::proto::ping_pong", "flood");
            tracing::warn!(target: "hyper::proto", "flood");
            tracing::error!(target: "libp2p_gossipsub::behaviour", "broken");
            tracing::warn!(target: "overlay", "odd");
        });
        let lines = std::fs::read_to_string(path.path()).expect("text");
        assert!(!lines.contains("flood"), "{lines}");
        assert!(lines.contains("broken") && lines.contains("odd"), "{lines}");
    }
}
