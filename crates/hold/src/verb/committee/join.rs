//! `hold committee join`: a peer follows a committee that others founded.
//!
//! It takes the charter from a librarian that hosts a member, and checks that it makes the key that was asked for. A follower has no
//! share and does not vote; it becomes a member by a reshare.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use author::certified::ask_patiently;
use bytes::Bytes;
use clap::Args;
use committee::engine::Charter;
use committee::{Card, CommitteeError, Member};
use env::Env;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeRequest};
use env::calls::{CallError, Endpoint};
use walk::Walker;

use super::{Of, init};
use crate::cli::Session;
use crate::client::blocking;
use crate::connect;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::hosting::{self, MemberDir};

/// How long a librarian may take.
const LIMIT: Duration = Duration::from_secs(10);

/// `hold committee join`.
#[derive(Debug, Args)]
pub(crate) struct Join {
    #[command(flatten)]
    of: Of,
    /// The directory of the peer that is to host it
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// Where this member listens for the others
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Where the others reach it, where that differs from --listen
    #[arg(long, value_name = "IP:PORT")]
    advertise: Option<SocketAddr>,
}

impl Join {
    /// Takes the charter from the first librarian of --via that has it.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let peer = init::peer_at(&self.dir)?;
        let reached = super::reached_at(self.listen, self.advertise)?;
        super::has_none(&self.dir)?;
        let walker = connect::stranger(&peer.network)?;
        let mut failed = None;
        for address in connect::via(session)? {
            match self.charter(&walker, address).await {
                Ok((charter, cards)) => {
                    charter_holds(&charter, &self.of, &walker)?;
                    let dir = MemberDir::make(&self.dir, self.listen, reached)?;
                    let _lock = dir.hold().await?;
                    dir.keep_cards(&cards)?;
                    let (engine, copy) = (dir.engine(), charter.clone());
                    blocking(move || Ok(Member::join(engine, hosting::NAME, &copy)?)).await?;
                    dir.begin(&charter, &cards)?;
                    session.out.result(&init::Founded::new(&charter, &dir))?;
                    return Ok(Exit::Done);
                }
                Err(HoldError::Call { source: CallError::NotFound, address }) => {
                    let source = CallError::NotFound;
                    failed.get_or_insert(HoldError::Call { address, source });
                }
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or(HoldError::NoVia))
    }

    /// The charter and the cards that a librarian tells.
    async fn charter(
        &self,
        walker: &Walker,
        address: &str,
    ) -> Result<(Charter, Vec<Bytes>), HoldError> {
        let to = Endpoint::at(address);
        let group = Some(*self.of.key.id().as_bytes());
        let env = Env::real();
        // A peer that nobody of theirs vouches for asks as seldom as any stranger.
        let ask = async |ask| {
            let request = CommitteeRequest { group, ask };
            let asked = ask_patiently(&env, walker.calls().as_ref(), &to, request, LIMIT).await;
            asked.map_err(|source| HoldError::Call { address: address.to_owned(), source })
        };
        let wrong = || CommitteeError::Field("answer");
        let CommitteeAnswer::Charter(charter) = ask(CommitteeAsk::Charter).await? else {
            return Err(wrong().into());
        };
        let CommitteeAnswer::Status(status) = ask(CommitteeAsk::Status).await? else {
            return Err(wrong().into());
        };
        let network = walker.directory().genesis().network();
        let mut cards = status.cards;
        cards.retain(|card| Card::verify(card, &network).is_ok());
        Ok((Charter::decode(&charter)?, cards))
    }
}

/// Whether it is the charter of the committee that was asked for.
fn charter_holds(charter: &Charter, of: &Of, walker: &Walker) -> Result<(), HoldError> {
    let network = walker.directory().genesis().network();
    if charter.group != of.key {
        return Err(CommitteeError::Group.into());
    }
    match charter.rules.network == network {
        true => Ok(()),
        false => Err(CommitteeError::Network(charter.rules.network).into()),
    }
}
