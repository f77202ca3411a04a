//! `hold committee`: librarians of different organisations that agree on the latest version of each branch.

mod init;
mod join;
mod members;
mod reshare;
mod status;
mod verify;

use std::net::SocketAddr;
use std::path::Path;

use author::certified::CertifiedHeads;
use clap::{Args, Subcommand};
use committee::GroupKey;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files;
use crate::hosting::MemberDir;
use crate::verb::object;

/// What to do with a committee.
#[derive(Debug, Subcommand)]
pub(crate) enum CommitteeVerb {
    /// Found a committee, together with all other founders at the same time; prints its key
    Init(init::Init),
    /// Let a peer follow a committee that others founded
    Join(join::Join),
    /// Ask for new shares for the same members, under the same key; each operator asks, and n - f suffice
    Refresh(reshare::Refresh),
    /// Ask for other members under the same key: add, remove, replace; each operator asks for the same, and n - f suffice
    Reshare(reshare::Reshare),
    /// Ask every member how it is
    Status(status::Ask),
    /// List the members, and which peers host them
    Members(members::Members),
    /// Check an answer or a read of a committee, without any network: yes, or no and why
    Verify(verify::Verify),
}

impl CommitteeVerb {
    /// Runs it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match self {
            Self::Init(verb) => verb.run(session).await,
            Self::Join(verb) => verb.run(session).await,
            Self::Refresh(verb) => verb.run(session).await,
            Self::Reshare(verb) => verb.run(session).await,
            Self::Status(verb) => verb.run(session).await,
            Self::Members(verb) => verb.run(session).await,
            Self::Verify(verb) => verb.run(session).await,
        }
    }
}

/// Which committee.
#[derive(Debug, Args)]
pub(super) struct Of {
    /// The committee's key, as `hold committee init` printed it, or @FILE with it
    #[arg(long = "committee", value_name = "KEY", value_parser = key)]
    pub(super) key: GroupKey,
}

/// This user's objects, and way to a committee.
pub(crate) async fn heads(
    session: &Session,
    group: GroupKey,
) -> Result<(object::Own, CertifiedHeads), HoldError> {
    let objects = object::objects(session).await?;
    let heads = CertifiedHeads::new(&objects, group)?;
    Ok((objects, heads))
}

/// Checks that no member sits in a peer's directory yet.
fn has_none(dir: &Path) -> Result<(), HoldError> {
    MemberDir::open(dir)?.map_or(Ok(()), |dir| dir.is_free())
}

/// Where the other members reach one: checked to be somewhere.
fn reached_at(listen: SocketAddr, advertise: Option<SocketAddr>) -> Result<SocketAddr, HoldError> {
    let address = advertise.unwrap_or(listen);
    if address.ip().is_unspecified() {
        let what = "a wildcard address reaches nobody: add --advertise IP:PORT";
        return Err(HoldError::argument("--listen", what));
    }
    Ok(address)
}

/// A committee's key as it is written: hex, or a file with it.
pub(crate) fn key(text: &str) -> Result<GroupKey, String> {
    let of = |text: &str| text.trim().parse::<GroupKey>();
    let Some(path) = text.strip_prefix('@') else {
        let wrong = |_| format!("{text:?} is no committee's key (192 hex digits, or @FILE)");
        return of(text).map_err(wrong);
    };
    let read = files::read_small(Path::new(path)).map_err(|error| error.to_string())?;
    let text = std::str::from_utf8(&read).unwrap_or_default();
    of(text).map_err(|_| format!("{path} does not hold a committee's key"))
}
