//! `hold object access`.

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::Which;
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;

/// `hold object access`.
#[derive(Debug, Args)]
pub(crate) struct AccessVerb {
    #[command(flatten)]
    which: Which,
}

/// `hold object access`: a secret.
#[derive(Serialize)]
struct AccessText {
    /// Owner, name and content key, hex: what `@FILE` opens an object with.
    access: String,
}

impl fmt::Display for AccessText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.access)
    }
}

impl AccessVerb {
    /// Runs it.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let objects = super::objects(session).await?;
        let object = self.which.open(&objects).await?;
        let access = object.access()?.encode();
        session
            .out
            .note("whoever has it reads every value that a peer gives them: hold put --to it");
        session.out.result(&AccessText { access: hex::encode(&access[..]) })?;
        Ok(Exit::Done)
    }
}
