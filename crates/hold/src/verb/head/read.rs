//! `hold head read`.

use clap::Args;

use super::{Of, told};
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::verb::object;

/// `hold head read`.
#[derive(Debug, Args)]
pub(crate) struct Read {
    #[command(flatten)]
    of: Of,
}

impl Read {
    /// Runs it: 10 where the branch is at nothing.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let objects = object::objects(session).await?;
        let object = self.of.which.open(&objects).await?;
        let state = objects.heads().read(&object, &self.of.branch).await?;
        if state.tips.is_empty() {
            return Err(HoldError::NoHead(self.of.branch));
        }
        told(session, &state)
    }
}
