//! `hold share`: a content's key, sealed to another reader.

use std::fmt;

use clap::Args;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::{address, connect};

/// `hold share`.
#[derive(Debug, Args)]
pub(crate) struct Share {
    /// A content this user can open
    address: String,
    /// The reader's key (hold keys show, at theirs)
    #[arg(long, value_name = "READER", required = true, value_delimiter = ',')]
    to: Vec<String>,
}

/// `hold share`: one line a reader.
#[derive(Serialize)]
struct ShareResult {
    /// What that reader opens.
    address: String,
    /// The reader's key.
    reader: String,
}

impl fmt::Display for ShareResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl Share {
    /// Runs it: one line a reader, the address that reader opens.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let content = address::parse(&self.address)?;
        let readers = address::readers(&self.to)?;
        let author = connect::author(session).await?;
        for reader in readers {
            let envelope = author.share(content, reader).await?;
            let address = address::text(&envelope);
            session.out.result(&ShareResult { address, reader: reader.to_string() })?;
        }
        Ok(Exit::Done)
    }
}
