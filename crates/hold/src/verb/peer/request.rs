//! `hold peer request`: what the organisation is asked to sign, made anew.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::PathText;
use crate::peerdir::PeerDir;

/// `hold peer request`.
#[derive(Debug, Args)]
pub(crate) struct Request {
    /// The peer's directory
    #[arg(long, value_name = "D")]
    dir: PathBuf,
}

/// `hold peer request`: what is to be signed.
#[derive(Serialize)]
struct Requested {
    /// What the organisation is asked to sign.
    request: PathText,
}

impl fmt::Display for Requested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.request)
    }
}

impl Request {
    /// Writes it. The certificate that is there counts until another is put in its place.
    pub(super) fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let request = PeerDir::request(&self.dir)?.into();
        session.out.note("hint: hold org sign-peer --dir ORG --network NET --request FILE -o CERT");
        session.out.result(&Requested { request })?;
        Ok(Exit::Done)
    }
}
