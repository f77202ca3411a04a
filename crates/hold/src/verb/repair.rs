//! `hold repair`: peers look now at what lacks, and mend it.

use std::fmt;

use author::Asked;
use clap::Args;
use crypto::Classified;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::{address, connect};

/// Peers that are named where they did not answer, at most.
const NAMED_MAX: usize = 16;

/// `hold repair`.
#[derive(Debug, Args)]
pub(crate) struct RepairVerb {
    /// What `put`, `share` or `inbox` printed
    #[arg(value_name = "ADDRESS", required_unless_present = "all", conflicts_with = "all")]
    addresses: Vec<String>,
    /// Everything that any peer holds
    #[arg(long)]
    all: bool,
}

/// `hold repair`: a line each content, or one for all.
#[derive(Serialize)]
struct RepairResult {
    /// The content; none where everything is looked at.
    address: Option<String>,
    /// Its records and stripes; 0 where everything is looked at.
    places: u64,
    /// Peers that look now.
    looking: u64,
    /// Records and stripes that were in work at peers when they were asked; what lacks at several counts at each.
    in_work: u64,
    /// Peers that may hold some of it and did not answer.
    unreached: Vec<String>,
    /// Why a peer does not look.
    error: Option<String>,
}

impl RepairResult {
    fn new(address: Option<String>, asked: &Asked) -> Self {
        Self {
            address,
            places: asked.places,
            looking: asked.looking.len() as u64,
            in_work: asked.looking.values().sum(),
            unreached: asked.unreached.iter().map(ToString::to_string).collect(),
            error: asked.refused.as_ref().map(ToString::to_string),
        }
    }
}

impl fmt::Display for RepairResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { looking, in_work, .. } = self;
        write!(f, "{}", self.address.as_deref().unwrap_or("everything"))?;
        write!(f, "  {looking} peers look now, {in_work} records and stripes in work before")?;
        for peer in self.unreached.iter().take(NAMED_MAX) {
            write!(f, "\nnot reached  {peer}")?;
        }
        if self.unreached.len() > NAMED_MAX {
            write!(f, "\nand {} further", self.unreached.len() - NAMED_MAX)?;
        }
        match &self.error {
            Some(error) => write!(f, "\nrefused      {error}"),
            None => Ok(()),
        }
    }
}

impl RepairVerb {
    /// Runs it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let addresses = self.addresses.iter().map(|address| address::parse(address));
        let addresses = addresses.collect::<Result<Vec<_>, HoldError>>()?;
        let author = connect::author(session).await?;
        let mut exits = Vec::new();
        let mut tell = |address: Option<String>, asked: &Asked| {
            exits.push(match &asked.refused {
                _ if asked.is_whole() => Exit::Done,
                _ if !asked.looking.is_empty() => Exit::Partly,
                Some(error) => Exit::from(error.class()),
                None => Exit::Unavailable,
            });
            session.out.result(&RepairResult::new(address, asked))
        };
        if self.all {
            tell(None, &author.ask_repair_of_all().await?)?;
        }
        for address in addresses {
            let asked = author.ask_repair(address).await?;
            tell(Some(address::text(&address)), &asked)?;
        }
        session.out.note("`hold check` tells when nothing lacks any more");
        Ok(Exit::of_all(&exits))
    }
}
