//! `hold committee join`: a peer follows a committee that others founded.
//!
//! It takes the charter from librarians that host a member, and checks that it makes the key that was asked for. The key does not prove
//! whose receipts count: by a charter with other organisations a member would come to other states than all others, and be lost to
//! them. So all librarians that tell one must tell the same, two of them of different organisations. A follower has no share and does not vote; it becomes a member by a reshare.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use author::certified::ask_patiently;
use bytes::Bytes;
use clap::Args;
use committee::engine::Charter;
use committee::{Card, CommitteeError, Member};
use crypto::{Announcement, OrgId};
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
    /// Takes the charter that the librarians of --via have.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let peer = init::peer_at(&self.dir)?;
        let reached = super::reached_at(self.listen, self.advertise)?;
        super::has_none(&self.dir)?;
        let walker = connect::stranger(&peer.network)?;
        let (charter, cards) = self.charter_of_all(session, &walker).await?;
        let dir = MemberDir::make(&self.dir, self.listen, reached)?;
        let _lock = dir.hold().await?;
        dir.keep_cards(&cards)?;
        let (engine, copy) = (dir.engine(), charter.clone());
        blocking(move || Ok(Member::join(engine, hosting::NAME, &copy)?)).await?;
        dir.begin(&charter, &cards)?;
        session.out.result(&init::Founded::new(&charter, &dir))?;
        Ok(Exit::Done)
    }

    /// The charter that all librarians of --via tell which have one, of two organisations at least, with the cards that they show.
    async fn charter_of_all(
        &self,
        session: &Session,
        walker: &Walker,
    ) -> Result<(Charter, Vec<Bytes>), HoldError> {
        let (mut failed, mut told): (_, Option<(Charter, Vec<Bytes>)>) = (None, None);
        let mut tellers = BTreeSet::new();
        for address in connect::via(session)? {
            match self.charter(walker, address).await {
                Ok((charter, cards, of)) => {
                    charter_holds(&charter, &self.of, walker)?;
                    match &mut told {
                        None => told = Some((charter, cards)),
                        Some((first, _)) if *first != charter => {
                            let what = format!(
                                "{address} tells another charter of this committee than one before it: one of the two lies"
                            );
                            return Err(HoldError::argument("--via", what));
                        }
                        Some((_, all)) => {
                            all.extend(cards);
                            all.sort_unstable();
                            all.dedup();
                        }
                    }
                    tellers.extend(of);
                }
                Err(HoldError::Call { source: CallError::NotFound, address }) => {
                    let source = CallError::NotFound;
                    failed.get_or_insert(HoldError::Call { address, source });
                }
                Err(error) => failed = Some(error),
            }
        }
        let Some((charter, cards)) = told else { return Err(failed.unwrap_or(HoldError::NoVia)) };
        // Nothing that is certified says by which rules: a member that goes by others stops at the first update that they tell apart.
        if tellers.len() < 2 {
            if let Some(error) = failed {
                return Err(error);
            }
            let what = "one organisation alone tells this committee's charter, and could tell one that it changed: give librarians of \
                        two organisations that host members";
            return Err(HoldError::argument("--via", what));
        }
        Ok((charter, cards))
    }

    /// The charter and the cards that a librarian tells, and whose librarian it is.
    async fn charter(
        &self,
        walker: &Walker,
        address: &str,
    ) -> Result<(Charter, Vec<Bytes>, Option<OrgId>), HoldError> {
        // Whose it is, and what it tells, over connections to one key.
        let mut to = Endpoint::at(address);
        let shown = walker.introduce(&to).await;
        let shown =
            shown.map_err(|source| HoldError::Call { address: address.to_owned(), source })?;
        to.peer = Announcement::claims(&shown.announcement);
        let of = to.peer.and_then(|peer| walker.directory().organisation_of(&peer));
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
        Ok((Charter::decode(&charter)?, cards, of))
    }
}

/// Whether it is the charter of the committee that was asked for.
fn charter_holds(charter: &Charter, of: &Of, walker: &Walker) -> Result<(), HoldError> {
    let network = walker.directory().genesis().network();
    if charter.group != of.key {
        return Err(CommitteeError::Group.into());
    }
    if charter.rules.network != network {
        return Err(CommitteeError::Network(charter.rules.network).into());
    }
    match charter.rules.suite == walker.directory().genesis().suite {
        true => Ok(()),
        false => Err(CommitteeError::Field("suite").into()),
    }
}
