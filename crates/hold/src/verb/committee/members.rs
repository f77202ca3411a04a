//! `hold committee members`.

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::Of;
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::network_file;

/// `hold committee members`.
#[derive(Debug, Args)]
pub(crate) struct Members {
    #[command(flatten)]
    of: Of,
}

/// `hold committee members`: one line a member whose librarian is known.
#[derive(Serialize)]
struct MemberText {
    /// Its key, hex.
    member: String,
    /// The peer that hosts it, hex.
    peer: String,
    /// That peer's organisation.
    organisation: String,
    /// Where the peer answers.
    address: String,
}

impl fmt::Display for MemberText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member, peer, organisation, address } = self;
        write!(f, "{member}  {address:21}  {:.10}  {organisation}", peer)
    }
}

impl Members {
    /// Finds them by what a certified header says, and what they sign themselves.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let (objects, heads) = super::heads(session, self.of.key).await?;
        let found = heads.seats().await?;
        let directory = objects.author().walker().directory();
        for seat in &found.seats {
            let organisation = directory.organisation_of(&seat.peer);
            let name = |one| network_file::name_of(&directory.roster(), &one);
            session.out.result(&MemberText {
                member: seat.member.to_string(),
                peer: seat.peer.to_string(),
                organisation: organisation.map(name).unwrap_or_default(),
                address: seat.address.clone(),
            })?;
        }
        Ok(Exit::Done)
    }
}
