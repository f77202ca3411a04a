//! `hold repair`: peers look now at what lacks, and mend it.

use std::fmt;

use author::{Asked, AuthorError};
use clap::Args;
use crypto::Classified;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::one_line;
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

    /// Of a content that could not be asked for.
    fn failed(address: String, error: &HoldError) -> Self {
        let this = Self::new(Some(address), &Asked::default());
        Self { error: Some(one_line(error)), ..this }
    }
}

/// Whether it would be said of any content.
const fn is_of_the_run(error: &HoldError) -> bool {
    matches!(error, HoldError::Author(AuthorError::ThinSurvey))
}

/// How asking ended.
fn exit_of(asked: &Asked) -> Exit {
    match &asked.refused {
        _ if asked.is_whole() => Exit::Done,
        _ if !asked.looking.is_empty() => Exit::Partly,
        Some(error) => Exit::from(error.class()),
        None => Exit::Unavailable,
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
        let (mut exits, is_alone) = (Vec::new(), addresses.len() == 1);
        if self.all {
            let asked = author.ask_repair_of_all().await?;
            exits.push(exit_of(&asked));
            session.out.result(&RepairResult::new(None, &asked))?;
        }
        for address in addresses {
            let text = address::text(&address);
            let result = match author.ask_repair(address).await.map_err(HoldError::from) {
                Ok(asked) => {
                    exits.push(exit_of(&asked));
                    RepairResult::new(Some(text), &asked)
                }
                // The only one's failure is the run's, and told as such; so is what is wrong with the question.
                Err(error) if is_alone || is_of_the_run(&error) => return Err(error),
                Err(error) => {
                    exits.push(error.exit());
                    RepairResult::failed(text, &error)
                }
            };
            session.out.result(&result)?;
        }
        match Exit::of_all(&exits) {
            exit @ (Exit::Done | Exit::Partly) => {
                session.out.note("`hold check` tells when nothing lacks any more");
                Ok(exit)
            }
            exit => {
                let why = "no peer looks at what lacks".to_owned();
                Err(HoldError::NotWell { why, exit })
            }
        }
    }
}
