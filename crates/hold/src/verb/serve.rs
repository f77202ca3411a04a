//! `hold serve`: doors that speak what people's tools speak.

mod redis;

use clap::Subcommand;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;

/// Which door to open.
#[derive(Debug, Subcommand)]
pub(crate) enum Serve {
    /// Run a librarian with a door for Redis's clients in its process; keys are this user's objects
    Redis(redis::Redis),
}

impl Serve {
    /// Serves until a signal.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match self {
            Self::Redis(verb) => Box::pin(verb.run(session)).await,
        }
    }
}
