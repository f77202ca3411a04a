//! `hold head update`.

use author::objects::VersionId;
use clap::Args;
use crypto::RecordId;

use super::certified::ExpectedText;
use super::{Of, certified, told};
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::verb::object;

/// `hold head update`.
#[derive(Debug, Args)]
pub(crate) struct Update {
    #[command(flatten)]
    of: Of,
    /// What it is at from now on
    #[arg(id = "to", value_name = "VERSION", value_parser = object::version)]
    to: VersionId,
    /// Only where the branch is at these heads, as `hold head read` tells them; with --committee one VERSION@HEIGHT, or
    /// none [default: whatever it is at]
    #[arg(long, value_name = "HEAD,...", value_delimiter = ',')]
    expected: Vec<ExpectedText>,
    #[command(flatten)]
    by: certified::By,
    #[command(flatten)]
    kept: certified::Kept,
}

impl Update {
    /// Runs it: 14 where the branch is at other heads than expected, 10 where the version is not there.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        if let Some(group) = self.by.committee {
            let Self { of, to, expected, kept, .. } = self;
            return certified::update(session, of, group, to, expected, kept).await;
        }
        let objects = object::objects(session).await?;
        let object = self.of.which.open(&objects).await?;
        let heads = objects.heads();
        let state = heads.read(&object, &self.of.branch).await?;
        if !self.expected.is_empty() {
            let mut expected = signed(self.expected)?;
            expected.sort_unstable();
            expected.dedup();
            if !state.tips.iter().map(|tip| tip.id).eq(expected) {
                return Err(HoldError::Moved(self.of.branch));
            }
        }
        // Whoever reads the head looks for this version.
        let to = object.look_at(&self.to).await?;
        told(session, &heads.update(&state, &to).await?)
    }
}

/// The ids of signed heads.
fn signed(expected: Vec<ExpectedText>) -> Result<Vec<RecordId>, HoldError> {
    let one = |one| match one {
        ExpectedText::Head(id) => Ok(id),
        ExpectedText::Nothing | ExpectedText::At(..) => {
            let what = "the ids of signed heads, as hold head read tells them";
            Err(HoldError::argument("--expected", what))
        }
    };
    expected.into_iter().map(one).collect()
}
