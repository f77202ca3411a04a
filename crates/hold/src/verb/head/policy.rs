//! `hold head policy`.

use clap::Args;
use committee::GroupKey;

use super::{Of, certified};
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::verb::committee as committee_verb;

/// `hold head policy`.
#[derive(Debug, Args)]
pub(crate) struct Policy {
    #[command(flatten)]
    of: Of,
    /// The committee's key, or @FILE with it
    #[arg(long, value_name = "KEY", value_parser = committee_verb::key)]
    committee: GroupKey,
    #[command(flatten)]
    kept: certified::Kept,
}

impl Policy {
    /// Runs it: for the owner alone.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        certified::policy(session, self.of, self.committee, self.kept).await
    }
}
