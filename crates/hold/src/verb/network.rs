//! `hold network`: the genesis, a public file that every peer and client has, and who takes part since.

mod apply;
mod propose;

use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use crypto::{Genesis, GenesisProfile, Suite};
use placement::Profile;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::network_file::NetworkFile;
use crate::proposal::{self, Proposal};
use crate::{organisation, peerdir};

/// What to do with a network file.
#[derive(Debug, Subcommand)]
pub(crate) enum Network {
    /// Write the genesis of a new network of these organisations; prints the network's id
    Init(Init),
    /// Show what a network file says, or what a proposed roster would change
    Show(Show),
    /// Propose that an organisation joins: writes a roster for the others to sign
    AddOrg(propose::AddOrg),
    /// Propose that an organisation leaves
    RemoveOrg(propose::RemoveOrg),
    /// Propose that an organisation has another key from now on
    ChangeKey(propose::ChangeKey),
    /// Propose that an organisation is called something else
    RenameOrg(propose::RenameOrg),
    /// Let a signed roster count: in the network file, at peers, and by a librarian everywhere
    Apply(apply::Apply),
}

/// `hold network init`.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Organisations: a directory of `hold org init`, an org.pub file, or KEY[=NAME]
    #[arg(long, value_name = "ORG,...", required = true, value_delimiter = ',')]
    org: Vec<String>,
    /// What people call the network
    #[arg(long, default_value = "holdfast")]
    name: String,
    /// Algorithms: holdfast-1, or libri-1 for interchange with the original Libri
    #[arg(long, default_value = "holdfast-1")]
    suite: String,
    /// Copies of every record, instead of the table by number of peers
    #[arg(long, value_name = "N", conflicts_with = "profile")]
    copies: Option<u32>,
    /// What files are kept as, instead of the table by number of peers: lean, archive, storj, K/N, or copies:N
    #[arg(long, value_name = "NAME")]
    profile: Option<Profile>,
    /// Where the network file goes
    #[arg(short, long, value_name = "NET")]
    output: PathBuf,
}

/// `hold network show`.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The network file
    #[arg(value_name = "NET")]
    network: PathBuf,
    /// A proposed roster: what it changes, and who signed it
    #[arg(long, value_name = "FILE")]
    roster: Option<PathBuf>,
}

/// An organisation.
#[derive(Serialize)]
struct OrganisationResult {
    /// Its public key.
    key: String,
    /// What people call it.
    name: String,
}

/// A key that an organisation had.
#[derive(Serialize)]
struct FormerResult {
    /// The public key.
    key: String,
    /// Whose word it signed, by the public key now.
    organisation: String,
    /// Until when that counts, Unix seconds.
    until: u64,
}

/// `hold network init`, `hold network show`: what the network file and the rosters beside it say.
#[derive(Serialize)]
struct NetworkResult {
    /// The network's id.
    network: String,
    /// What people call it.
    name: String,
    /// holdfast-1 or libri-1.
    suite: &'static str,
    /// Copies of every record; null: by the number of peers.
    copies: Option<u32>,
    /// What files are kept as, K/N or copies:N; null: by the number of peers.
    profile: Option<String>,
    /// When it was made, Unix seconds.
    created: u64,
    /// The number of the newest roster; 0 is the genesis's.
    roster: u64,
    /// The organisations that it lists.
    organisations: Vec<OrganisationResult>,
    /// Keys that they had and that still count.
    former: Vec<FormerResult>,
    #[serde(skip)]
    whole: bool,
}

impl NetworkResult {
    fn new(network: &NetworkFile, whole: bool) -> Self {
        let (genesis, roster) = (network.genesis(), network.roster());
        let former = roster.former().iter().filter(|former| peerdir::now_s() < former.until);
        Self {
            network: genesis.network().to_string(),
            name: genesis.name.clone(),
            suite: genesis.suite.name(),
            copies: genesis.copies,
            profile: asked_profile(genesis).map(|profile| profile.to_string()),
            created: genesis.created,
            roster: roster.number(),
            organisations: roster
                .organisations()
                .iter()
                .map(|org| OrganisationResult { key: org.key.to_string(), name: org.name.clone() })
                .collect(),
            former: former
                .map(|former| FormerResult {
                    key: former.former.to_string(),
                    organisation: former.organisation.to_string(),
                    until: former.until,
                })
                .collect(),
            whole,
        }
    }
}

impl fmt::Display for NetworkResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.whole {
            return f.write_str(&self.network);
        }
        writeln!(f, "network  {}", self.network)?;
        writeln!(f, "name     {}", self.name)?;
        writeln!(f, "suite    {}", self.suite)?;
        match self.copies {
            Some(copies) => writeln!(f, "copies   {copies}")?,
            None => writeln!(f, "copies   by the number of peers")?,
        }
        match &self.profile {
            Some(profile) => writeln!(f, "profile  {profile}")?,
            None => writeln!(f, "profile  by the number of peers")?,
        }
        writeln!(f, "created  {} (Unix seconds)", self.created)?;
        write!(f, "roster   {}", self.roster)?;
        for org in &self.organisations {
            write!(f, "\nmember   {} {}", org.key, org.name)?;
        }
        for FormerResult { key, organisation, until } in &self.former {
            write!(f, "\nformer   {key} of {organisation} until {until} (Unix seconds)")?;
        }
        Ok(())
    }
}

impl Network {
    /// Runs it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match self {
            Self::Init(args) => args.run(session),
            Self::Show(args) => {
                let network = NetworkFile::read(&args.network)?;
                if let Some(path) = args.roster {
                    let proposal = proposal::read(&path, network.roster())?;
                    session.out.result(&Proposal::new(&proposal, network.roster(), path))?;
                    return Ok(Exit::Done);
                }
                session.out.result(&NetworkResult::new(&network, true))?;
                Ok(Exit::Done)
            }
            Self::AddOrg(args) => args.run(session),
            Self::RemoveOrg(args) => args.run(session),
            Self::ChangeKey(args) => args.run(session),
            Self::RenameOrg(args) => args.run(session),
            Self::Apply(args) => session.stoppable(args.run(session)).await,
        }
    }
}

impl Init {
    fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let suite: Suite = self
            .suite
            .parse()
            .map_err(|error: crypto::UnknownSuite| HoldError::Genesis(error.into()))?;
        let organisations = self.org.iter().map(|org| organisation::named(org));
        let organisations = organisations.collect::<Result<Vec<_>, _>>()?;
        let profile = self.profile.or(self.copies.map(Profile::Copies));
        let genesis = create(&self.name, suite, profile, organisations, &self.output)?;
        let network = NetworkFile::new(&self.output, genesis);
        session.out.result(&NetworkResult::new(&network, false))?;
        Ok(Exit::Done)
    }
}

/// The profile that a network asks for, where it does not go by the number of its peers.
fn asked_profile(genesis: &Genesis) -> Option<Profile> {
    let stripe = genesis.profile.map(|GenesisProfile { k, n }| Profile::Stripe { k, n });
    stripe.or(genesis.copies.map(Profile::Copies))
}

/// Makes a genesis and writes it to a new file.
pub(crate) fn create(
    name: &str,
    suite: Suite,
    profile: Option<Profile>,
    organisations: Vec<crypto::Organisation>,
    path: &Path,
) -> Result<Genesis, HoldError> {
    use env::Entropy;
    let mut nonce = [0; 16];
    env::SystemEntropy.fill(&mut nonce);
    let created = peerdir::now_s();
    let (copies, profile) = match profile {
        Some(Profile::Copies(copies)) => (Some(copies), None),
        Some(Profile::Stripe { k, n }) => (None, Some(GenesisProfile { k, n })),
        None => (None, None),
    };
    let name = name.to_owned();
    let genesis = Genesis { name, suite, organisations, copies, profile, created, nonce };
    let genesis = genesis.checked()?;
    files::write_new(path, &genesis.encode(), Access::Public)?;
    Ok(genesis)
}
