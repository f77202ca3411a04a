//! `hold object merge`.

use author::objects::{MergeOutcome, VersionId};
use clap::Args;
use version::Merges;

use super::Which;
use super::write::{Content, How, told};
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;

/// `hold object merge`.
#[derive(Debug, Args)]
pub(crate) struct Merge {
    #[command(flatten)]
    which: Which,
    /// The two versions [default: the two tips]
    #[arg(id = "of", value_name = "VERSION", value_parser = super::version)]
    of: Vec<VersionId>,
    /// What makes the new value of the two and their closest common ancestor: append, aggregate-sum, -min, -max, choose-one,
    /// choose-first, choose-second, three-way-text, three-way-map
    #[arg(long, value_name = "NAME", required_unless_present_any = ["file", "value", "delete"], conflicts_with_all = ["file", "value", "delete"])]
    function: Option<String>,
    #[command(flatten)]
    content: Content,
    #[command(flatten)]
    how: How,
}

impl Merge {
    /// Runs it: 14 where the two conflict, and both stay.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let merges = Merges::new();
        let function = self.function.as_deref().map(|name| super::merge_function(&merges, name));
        let function = function.transpose()?;
        let value = match self.content.is_none() {
            true => None,
            false => Some(self.content.read().await?),
        };
        let objects = super::objects(session).await?;
        let object = self.which.open(&objects).await?;
        let tips: Vec<VersionId> = match self.of.is_empty() {
            true => object.tips().await?.tips.iter().map(|tip| tip.id).collect(),
            false => self.of.clone(),
        };
        let [mut first, mut second] = tips[..] else {
            let text = format!("two versions are merged; {} were found or named", tips.len());
            return Err(HoldError::argument("VERSION", text));
        };
        if !self.of.is_empty() {
            // One that is nowhere, or of another object, would end the history for everybody.
            (first, second) = (object.look_at(&first).await?, object.look_at(&second).await?);
        }
        let options = self.how.options();
        match (value, function) {
            (Some(value), _) => {
                let written = object.merge(&first, &second, value, options).await?;
                told(session, &object, written).await
            }
            (None, Some(function)) => {
                match object.merge_with(&first, &second, function, options).await? {
                    MergeOutcome::Merged(written) => told(session, &object, written).await,
                    MergeOutcome::Already(version) => {
                        session.out.note("one of them was made of the other: nothing to merge");
                        super::write::already(session, &version)
                    }
                    MergeOutcome::Conflict(conflict) => {
                        Err(author::objects::ObjectsError::Conflict(conflict).into())
                    }
                }
            }
            (None, None) => Err(HoldError::argument("--function", "missing, and no value either")),
        }
    }
}
