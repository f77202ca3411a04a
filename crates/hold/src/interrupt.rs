//! Ctrl-C and SIGTERM as one token that everything waits on.
//!
//! The first signal asks for a clean stop: verbs are dropped at their next await (their guards
//! remove what is half done), a running peer drains. A second one ends the process at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::HoldError;
use crate::exit::Exit;
use crate::platform::Terminal;

/// A token that is cancelled by SIGINT or SIGTERM.
///
/// # Errors
/// Where the system refuses a handler.
pub(crate) fn token() -> Result<CancellationToken, HoldError> {
    let token = CancellationToken::new();
    let fired = token.clone();
    let terminal = Terminal::remember();
    let handler = HoldError::io("handle signals of", "this process");
    let (mut interrupts, mut terminations) =
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(interrupts), Ok(terminations)) => (interrupts, terminations),
            (Err(error), _) | (_, Err(error)) => return Err(handler(error)),
        };
    tokio::spawn(async move {
        for stopping in [false, true] {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terminations.recv() => {}
            }
            terminal.restore();
            if stopping {
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
            fired.cancel();
        }
    });
    Ok(token)
}
