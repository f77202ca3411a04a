//! `hold head watch`.
//!
//! It asks the holders again every [`EVERY`]: a read gives those that lack a head what they lack, so a watch of a branch also
//! keeps it whole.

use std::time::Duration;

use clap::Args;

use super::{HeadText, Of, certified, notes};
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::verb::object;

/// How often holders are asked.
const EVERY: Duration = Duration::from_secs(2);

/// `hold head watch`.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    by: certified::By,
    #[command(flatten)]
    kept: certified::Kept,
}

impl Watch {
    /// Runs until it is stopped. Holders that cannot be reached for a while are no end of it.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        if let Some(group) = self.by.committee {
            return certified::watch(session, self.of, group, self.kept).await;
        }
        let objects = object::objects(session).await?;
        let object = self.of.which.open(&objects).await?;
        let heads = objects.heads();
        let mut before = Vec::new();
        loop {
            match heads.read(&object, &self.of.branch).await {
                Ok(state) if state.tips != before => {
                    for tip in &state.tips {
                        if !session.out.follow(&HeadText::from(tip))? {
                            // Nobody reads any more.
                            return Ok(Exit::Done);
                        }
                    }
                    notes(session, &state);
                    before = state.tips;
                }
                Ok(_) => {}
                Err(author::objects::ObjectsError::Unavailable { .. }) => {
                    session.out.warn("no holder answers: asked again");
                }
                Err(error) => return Err(error.into()),
            }
            tokio::select! {
                left = objects.left() => return Err(left),
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }
}
