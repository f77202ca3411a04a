//! Ctrl-C, SIGTERM and the end of the terminal (SIGHUP) as one token that everything waits on.
//!
//! The first signal asks for a clean stop: verbs are dropped at their next await (their guards
//! remove what is half done), a running peer drains. A second one ends the process at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::HoldError;
use crate::exit::Exit;
use crate::logging;
use crate::platform::Terminal;

/// A token that is cancelled by SIGINT, SIGTERM or SIGHUP. Who begins a run that is to outlive its terminal (`nohup`) has the last
/// ignored, and it stays so.
///
/// # Errors
/// Where the system refuses a handler.
pub(crate) fn token() -> Result<CancellationToken, HoldError> {
    let token = CancellationToken::new();
    let fired = token.clone();
    let terminal = Terminal::remember();
    let heard = |kind| signal(kind).map_err(HoldError::io("handle signals of", "this process"));
    let mut interrupts = heard(SignalKind::interrupt())?;
    let mut terminations = heard(SignalKind::terminate())?;
    let mut hangups = match is_ignored_hangup() {
        true => None,
        false => Some(heard(SignalKind::hangup())?),
    };
    tokio::spawn(async move {
        for stopping in [false, true] {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terminations.recv() => {}
                Some(_) = async { hangups.as_mut()?.recv().await } => {}
            }
            terminal.restore();
            if stopping {
                logging::flush();
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
            fired.cancel();
        }
    });
    Ok(token)
}

/// Whether whoever began this process had it ignore the end of its terminal, by the system's word (`SigIgn` of
/// `/proc/self/status`, a bit a signal from the lowest on).
fn is_ignored_hangup() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}
