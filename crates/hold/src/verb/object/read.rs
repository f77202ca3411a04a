//! `hold object get`.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use author::objects::{Got, Value, VersionId};
use clap::Args;
use serde::Serialize;

use super::Which;
use crate::cli::Session;
use crate::client::blocking;
use crate::draft::Draft;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::pipes;

/// `hold object get`.
#[derive(Debug, Args)]
pub(crate) struct Get {
    #[command(flatten)]
    which: Which,
    /// The version [default: the tip that counts]
    #[arg(id = "of", value_name = "VERSION", value_parser = super::version)]
    of: Option<VersionId>,
    /// Where the value goes, over a file that is there; - is standard output, and the default (then results go to stderr)
    #[arg(short, long, value_name = "FILE|-", default_value = "-")]
    output: PathBuf,
}

/// `hold object get`: what was read.
#[derive(Serialize)]
struct GotText {
    /// The version, h:l:n.
    version: String,
    /// What its value is: bytes, entry, tombstone or commit.
    kind: &'static str,
    /// Length of the value.
    bytes: usize,
    /// The peer that sent it; none where it was remembered.
    from: Option<String>,
    /// Peers that sent what does not prove itself before.
    refused: Vec<String>,
}

impl fmt::Display for GotText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}  {} bytes", self.version, self.kind, self.bytes)
    }
}

impl Get {
    /// Runs it: 10 where the version is a tombstone, or there is none.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let to_stdout = pipes::is_stdout(&self.output);
        if to_stdout {
            session.out.divert();
        }
        let objects = super::objects(session).await?;
        let object = self.which.open(&objects).await?;
        let version = match self.of {
            Some(version) => version,
            None => super::tips::counting(session, &object).await?,
        };
        let Got { id, value, from, refused, .. } = object.get_with(&version).await?;
        if !refused.is_empty() {
            session.out.warn(format_args!(
                "{} peers answered with what does not prove itself",
                refused.len()
            ));
        }
        let bytes = match &value {
            Value::Bytes(bytes) | Value::Commit(bytes) => bytes.clone(),
            Value::Entry(entry) => format!("{entry}\n").into(),
            Value::Tombstone => return Err(HoldError::Deleted(id.to_string())),
        };
        let length = bytes.len();
        let path = self.output.clone();
        blocking(move || match to_stdout {
            true => {
                let mut out = std::io::stdout().lock();
                match out.write_all(&bytes).and_then(|()| out.flush()) {
                    // Whoever reads has what it wanted.
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                    written => written.map_err(HoldError::Output),
                }
            }
            false => {
                let draft = Draft::new(&path, true)?;
                let written = draft.file()?.write_all(&bytes);
                written.map_err(HoldError::io("write", &path))?;
                draft.keep()
            }
        })
        .await?;
        let text = GotText {
            version: id.to_string(),
            kind: super::history::kind(value.kind()),
            bytes: length,
            from: from.map(|peer| peer.to_string()),
            refused: refused.iter().map(ToString::to_string).collect(),
        };
        if !to_stdout || session.out.json() {
            session.out.result(&text)?;
        }
        Ok(Exit::Done)
    }
}
