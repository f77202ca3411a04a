//! `hold head merge`.

use author::heads::Reconciled;
use author::objects::{ObjectsError, WriteOptions};
use clap::Args;

use super::{Of, told};
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::verb::object;

/// `hold head merge`.
#[derive(Debug, Args)]
pub(crate) struct Merge {
    #[command(flatten)]
    of: Of,
    /// What makes one value of two and their closest common ancestor: as for hold object merge
    #[arg(long, value_name = "NAME", default_value = "three-way-text")]
    function: String,
}

impl Merge {
    /// Runs it: 14 where two of them conflict, and all stay.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let merges = version::Merges::new();
        let function = object::merge_function(&merges, &self.function)?;
        let objects = object::objects(session).await?;
        let object = self.of.which.open(&objects).await?;
        let heads = objects.heads();
        let state = heads.read(&object, &self.of.branch).await?;
        match heads.reconcile(&state, function, WriteOptions::default()).await? {
            Reconciled::One(state) => told(session, &state),
            Reconciled::Conflict(conflict) => Err(ObjectsError::Conflict(conflict).into()),
        }
    }
}
