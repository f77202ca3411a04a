//! `hold head read`.

use clap::Args;

use super::{Of, certified, told};
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::verb::object;

/// `hold head read`.
#[derive(Debug, Args)]
pub(crate) struct Read {
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    by: certified::By,
    /// As of a moment behind the call: n - f members are asked how far they are, and no one of them is trusted
    #[arg(long, requires = "committee", action = clap::ArgAction::SetTrue)]
    fresh: bool,
    #[command(flatten)]
    kept: certified::Kept,
}

impl Read {
    /// Runs it: 10 where the branch is at nothing.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        if let Some(group) = self.by.committee {
            return certified::read(session, self.of, group, self.fresh, self.kept).await;
        }
        let objects = object::objects(session).await?;
        let object = self.of.which.open(&objects).await?;
        let state = objects.heads().read(&object, &self.of.branch).await?;
        if state.tips.is_empty() {
            return Err(HoldError::NoHead(self.of.branch));
        }
        told(session, &state)
    }
}
