//! `hold committee init`: a founding, at every founder at once.
//!
//! Each founder's operator runs it beside the running librarian: it makes the member's key, which the librarian shows to whoever
//! introduces themselves; waits until all others show theirs; and then founds with them, all or nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use committee::engine::{Charter, Founding, MEMBERS_MIN};
use committee::{Card, Member};
use crypto::{Announcement, OrgId, PeerCertificate};
use env::calls::Endpoint;
use serde::Serialize;
use tokio::time::Instant;
use walk::Walker;

use crate::cli::Session;
use crate::client::blocking;
use crate::connect;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::hosting::{self, MemberDir};
use crate::network_file;
use crate::peerdir::{self, PeerDir};

/// How often founders that were not there are asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// `hold committee init`.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The directory of the peer that hosts this founder, whose librarian runs
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// Where this member listens for the others
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Where the others reach it, where that differs from --listen
    #[arg(long, value_name = "IP:PORT")]
    advertise: Option<SocketAddr>,
    /// The librarians of all other founders
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', required = true)]
    with: Vec<String>,
    /// The number of this founding, the same at all founders: higher than that of any that failed
    #[arg(long, value_name = "N", default_value_t = 1)]
    number: u64,
    /// Receipts that a version needs where its object's policy does not say [default: the network's]
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u8).range(..=16))]
    receipts: Option<u8>,
    /// For how long the others are waited for
    #[arg(long, value_name = "SECONDS", default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..=604_800))]
    within: u64,
    /// Write the committee's key to this new file too
    #[arg(long, short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,
}

/// `hold committee init` and `hold committee join`: the committee.
#[derive(Serialize)]
pub(super) struct Founded {
    /// Its key, hex: what --committee and --key take.
    committee: String,
    /// The key of the member here, hex.
    member: String,
    /// The keys of all members, hex.
    members: Vec<String>,
    /// How many of them must agree.
    needed: u32,
    /// The number of the founding.
    number: u64,
}

impl Founded {
    pub(super) fn new(charter: &Charter, dir: &MemberDir) -> Self {
        Self {
            committee: charter.group.to_string(),
            member: dir.secret.id().to_string(),
            members: charter.members().iter().map(ToString::to_string).collect(),
            needed: charter.quorum(),
            number: charter.number,
        }
    }
}

impl fmt::Display for Founded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.committee)
    }
}

/// A founder that showed its card.
struct Founder {
    card: Card,
    bytes: Bytes,
    organisation: OrgId,
}

impl Init {
    /// Waits for the others, and founds.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let peer = PeerDir::open(&self.dir, peerdir::now_s())?;
        let address = super::reached_at(self.listen, self.advertise)?;
        if self.with.len() + 1 < MEMBERS_MIN {
            let what = format!("a committee has {MEMBERS_MIN} members at least, so {} others", 3);
            return Err(HoldError::argument("--with", what));
        }
        if let Some(out) = self.out.as_ref().filter(|out| out.exists()) {
            return Err(HoldError::Exists(out.clone()));
        }
        super::has_none(&self.dir)?;
        let dir = MemberDir::make(&self.dir, self.listen, address)?;
        let lock = dir.hold().await?;
        let begun = dir.clone();
        if let Some(charter) = blocking(move || begun.take_up()).await? {
            dir.give()?;
            session.out.note("a founding that was cut short when all had agreed: it goes on");
            return self.founded(session, &dir, &charter);
        }
        let end = Instant::now() + Duration::from_secs(self.within);
        let founders = self.founders(session, &peer, end).await?;
        let own = PeerCertificate::verify(
            &peer.certificate_bytes,
            peer.network.roster(),
            peerdir::now_s(),
        )?;
        let organisations: BTreeSet<OrgId> =
            founders.iter().map(|one| one.organisation).chain([own.organisation]).collect();
        if organisations.len() <= founders.len() {
            let what = "two founders are of one organisation: it alone could lie for both";
            return Err(HoldError::argument("--with", what));
        }
        dir.take_number(self.number)?;
        let roster = peer.network.roster();
        let others = founders.iter().map(|one| network_file::name_of(roster, &one.organisation));
        let others: BTreeSet<String> = others.collect();
        let (count, others) = (organisations.len(), Vec::from_iter(others).join(", "));
        let own = network_file::name_of(roster, &own.organisation);
        session.out.note(format_args!(
            "all {count} founders are there: founding as {own} together with {others}"
        ));
        // Before it is founded: whoever is cut short from now on goes on with them.
        let cards: Vec<Bytes> = founders.iter().map(|one| one.bytes.clone()).collect();
        dir.keep_cards(&cards)?;
        let founded = self.found(&peer, &dir, &founders, end).await;
        // Also what was not finished: the librarian takes it up where the others had agreed.
        dir.give()?;
        let charter = founded?;
        dir.begin(&charter, &cards)?;
        drop(lock);
        self.founded(session, &dir, &charter)
    }

    /// Says what was founded.
    fn founded(
        &self,
        session: &Session,
        dir: &MemberDir,
        charter: &Charter,
    ) -> Result<Exit, HoldError> {
        if let Some(out) = &self.out {
            files::write_new(out, format!("{}\n", charter.group).as_bytes(), Access::Public)?;
        }
        session.out.result(&Founded::new(charter, dir))?;
        Ok(Exit::Done)
    }

    /// Waits until all other founders show their cards.
    async fn founders(
        &self,
        session: &Session,
        peer: &PeerDir,
        end: Instant,
    ) -> Result<Vec<Founder>, HoldError> {
        let walker = connect::stranger(&peer.network)?;
        let mut founders: Vec<Founder> = Vec::new();
        let mut left: Vec<&String> = self.with.iter().collect();
        let mut told = false;
        loop {
            let mut waits = Vec::new();
            for address in left {
                match founder(&walker, peer, address).await? {
                    Some(founder) => founders.push(founder),
                    None => waits.push(address),
                }
            }
            let Some(first) = waits.first() else { return Ok(founders) };
            if Instant::now() >= end {
                return Err(HoldError::Founders { waits: waits.len(), first: (*first).clone() });
            }
            if !told {
                let names: Vec<&str> = waits.iter().map(|address| address.as_str()).collect();
                session.out.note(format_args!("waiting for the founders at {}", names.join(", ")));
                told = true;
            }
            left = waits;
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn found(
        &self,
        peer: &PeerDir,
        dir: &MemberDir,
        founders: &[Founder],
        end: Instant,
    ) -> Result<Charter, HoldError> {
        let cards: Vec<Card> = founders.iter().map(|one| one.card.clone()).collect();
        let roster = peer.network.roster();
        let mut organisations: Vec<OrgId> =
            roster.organisations().iter().map(|one| one.key).collect();
        organisations.sort_unstable();
        // Of as many peers as there are founders, so that it is the same at all of them.
        let genesis = peer.network.genesis();
        let count = founders.len() + 1;
        let kind = document::Kind::Version;
        let network = placement::redundancy(kind, count, genesis.suite, genesis.copies);
        let founding = Founding {
            name: String::from(hosting::NAME),
            network: roster.network(),
            suite: genesis.suite,
            organisations,
            wanted: self.receipts.unwrap_or(u8::try_from(network.acknowledged).unwrap_or(1)),
            number: self.number,
            links: dir.links(&cards),
            within: end.saturating_duration_since(Instant::now()).max(Duration::from_secs(10)),
        };
        let engine = dir.engine();
        blocking(move || Ok(Member::found(engine, founding)?)).await
    }
}

/// The founder whose librarian answers there; `None` where it does not yet, or shows no member.
async fn founder(
    walker: &Walker,
    peer: &PeerDir,
    address: &str,
) -> Result<Option<Founder>, HoldError> {
    let to = Endpoint::at(address);
    let Ok(answer) = walker.introduce(&to).await else { return Ok(None) };
    let Some(bytes) = answer.member else { return Ok(None) };
    let roster = walker.directory().roster();
    let announced = Announcement::verify(&answer.announcement, &roster, peerdir::now_s())?;
    let certificate = announced.certificate;
    let card = Card::verify(&bytes, &peer.network.genesis().network())?;
    if card.peer != certificate.peer {
        let name = network_file::name_of(&roster, &certificate.organisation);
        let what = format!("the librarian of {name} at {address} shows another peer's member");
        return Err(HoldError::argument("--with", what));
    }
    if card.committee.is_some() {
        let what = format!("the member at {address} is one of a committee already");
        return Err(HoldError::argument("--with", what));
    }
    Ok(Some(Founder { card, bytes, organisation: certificate.organisation }))
}

/// Checks that a path is a peer's directory.
pub(super) fn peer_at(dir: &Path) -> Result<PeerDir, HoldError> {
    PeerDir::open(dir, peerdir::now_s())
}
