//! `hold network`: the genesis, a public file that every peer and client has.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use crypto::{Genesis, Suite};
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::{organisation, peerdir};

/// What to do with a network file.
#[derive(Debug, Subcommand)]
pub(crate) enum Network {
    /// Write the genesis of a new network of these organisations; prints the network's id
    Init(Init),
    /// Show what a network file says
    Show(Show),
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
    #[arg(long, value_name = "N")]
    copies: Option<u32>,
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
}

/// An organisation.
#[derive(Serialize)]
struct OrganisationResult {
    /// Its public key.
    key: String,
    /// What people call it.
    name: String,
}

/// `hold network init`, `hold network show`: what the genesis says.
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
    /// When it was made, Unix seconds.
    created: u64,
    /// The founding organisations.
    organisations: Vec<OrganisationResult>,
    #[serde(skip)]
    whole: bool,
}

impl NetworkResult {
    fn new(genesis: &Genesis, whole: bool) -> Self {
        let organisations = genesis.organisations.iter();
        Self {
            network: genesis.network().to_string(),
            name: genesis.name.clone(),
            suite: genesis.suite.name(),
            copies: genesis.copies,
            created: genesis.created,
            organisations: organisations
                .map(|org| OrganisationResult { key: org.key.to_string(), name: org.name.clone() })
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
        write!(f, "created  {} (Unix seconds)", self.created)?;
        for org in &self.organisations {
            write!(f, "\nmember   {} {}", org.key, org.name)?;
        }
        Ok(())
    }
}

impl Network {
    /// Runs it.
    pub(crate) fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match self {
            Self::Init(args) => args.run(session),
            Self::Show(args) => {
                let genesis = peerdir::read_genesis(&args.network)?;
                session.out.result(&NetworkResult::new(&genesis, true))?;
                Ok(Exit::Done)
            }
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
        let genesis = create(&self.name, suite, self.copies, organisations, &self.output)?;
        session.out.result(&NetworkResult::new(&genesis, false))?;
        Ok(Exit::Done)
    }
}

/// Makes a genesis and writes it to a new file.
pub(crate) fn create(
    name: &str,
    suite: Suite,
    copies: Option<u32>,
    organisations: Vec<crypto::Organisation>,
    path: &Path,
) -> Result<Genesis, HoldError> {
    use env::Entropy;
    let mut nonce = [0; 16];
    env::SystemEntropy.fill(&mut nonce);
    let created = peerdir::now_s();
    let genesis = Genesis { name: name.to_owned(), suite, organisations, copies, created, nonce }
        .checked()?;
    files::write_new(path, &genesis.encode(), Access::Public)?;
    Ok(genesis)
}
