//! `hold renew`: contents paid for longer.
//!
//! What is gone for certain fails once, and says that it is noted as paid for no more; from then on `--all` does not
//! count it ([`author::AuthorError::Gone`]). What is renewed and cannot be noted is renewed all the same, and told so.

use std::fmt;

use author::Renewed;
use clap::Args;
use crypto::{Classified, RecordId};
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::one_line;
use crate::span::{self, Span};
use crate::{address, connect};

/// Peers that are named where they did not answer, at most.
const NAMED_MAX: usize = 16;
/// What is paid for, and not noted in the home.
const UNNOTED: &str = "the home could not be written, so it does not note until when this is paid for now: keep the address, and renew by it";

/// `hold renew`.
#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// What `put`, `share` or `inbox` printed
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    address: Option<String>,
    /// Every content that this home notes as paid for, and every envelope it shared them by; ends with 10 where
    /// it notes none
    #[arg(long)]
    all: bool,
    /// For how long from now: a number and s, m, h, d, w or y [default: lease_days of
    /// holdfast.toml, else a year]
    #[arg(long = "for", value_name = "TIME", value_parser = span::of_lease)]
    span: Option<Span>,
}

/// `hold renew`: a line each content.
#[derive(Serialize)]
struct RenewResult {
    /// The content.
    address: String,
    /// Until when it is paid for, Unix seconds; none where nothing was renewed.
    until: Option<u64>,
    /// Its records and stripes.
    places: u64,
    /// Those that too few holders took a lease for.
    untaken: u64,
    /// Records at holders that took one.
    taken: u64,
    /// Peers that should hold some of it and did not answer.
    unreached: Vec<String>,
    /// Why nothing, or not everything, was renewed.
    error: Option<String>,
    /// Whether every peer that may hold some of it took one for what it holds.
    whole: bool,
    /// Whether the home notes until when, which it does of what is whole; where it does not, it notes what it noted before.
    noted: bool,
}

impl RenewResult {
    fn new(address: &RecordId, renewed: Result<Renewed, HoldError>) -> Self {
        let address = address::text(address);
        match renewed {
            Ok(renewed) => Self {
                whole: renewed.is_whole(),
                noted: renewed.noted,
                address,
                until: (renewed.taken > 0).then_some(renewed.until),
                places: renewed.places,
                untaken: renewed.untaken,
                taken: renewed.taken,
                unreached: renewed.unreached.iter().map(ToString::to_string).collect(),
                error: renewed.refused.map(|error| error.to_string()),
            },
            Err(error) => Self {
                address,
                until: None,
                places: 0,
                untaken: 0,
                taken: 0,
                unreached: Vec::new(),
                error: Some(one_line(&error)),
                whole: false,
                noted: false,
            },
        }
    }
}

impl fmt::Display for RenewResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        match self.until {
            Some(until) => write!(f, "  until {until} (Unix seconds)")?,
            None => write!(f, "  not renewed")?,
        }
        if self.untaken > 0 {
            write!(f, ", but for {} of its {} records and stripes", self.untaken, self.places)?;
        }
        for peer in self.unreached.iter().take(NAMED_MAX) {
            write!(f, "\nnot reached  {peer}")?;
        }
        match &self.error {
            Some(error) => write!(f, "\nrefused      {error}"),
            None => Ok(()),
        }
    }
}

impl Renew {
    /// Runs it: 0 when all of it is paid for and noted, 3 when some is, or notes are damaged.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let address = self.address.as_deref().map(address::parse).transpose()?;
        let author = connect::author(session).await?;
        let seconds = self.span.map(|Span(seconds)| seconds);
        if let Some(address) = address {
            let renewed = Ok(author.renew(address, seconds).await?);
            let exit = exit_of(&renewed);
            if is_unnoted(&renewed) {
                session.out.warn(UNNOTED);
            }
            session.out.result(&RenewResult::new(&address, renewed))?;
            return ended(exit, "the content was not renewed");
        }
        let (paid, damaged) = author.paid_notes().await?;
        if damaged > 0 {
            session.out.warn(format_args!(
                "{damaged} notes of what is paid for are damaged: what they were of is not renewed. `hold keys recover` notes it \
                 again; or renew it by its address"
            ));
        }
        if paid.is_empty() {
            return Err(HoldError::NothingNoted);
        }
        let (mut exits, mut unnoted) = (Vec::new(), 0u64);
        for address in paid.into_keys() {
            let renewed = author.renew(address, seconds).await.map_err(HoldError::from);
            exits.push(exit_of(&renewed));
            unnoted += u64::from(is_unnoted(&renewed));
            session.out.result(&RenewResult::new(&address, renewed))?;
        }
        if unnoted > 0 {
            session.out.warn(format_args!(
                "the home could not be written, so of {unnoted} of them it notes until when they were paid for before"
            ));
        }
        if damaged > 0 {
            exits.push(Exit::Partly);
        }
        ended(Exit::of_all(&exits), "none of the contents was renewed")
    }
}

/// How the run ends when its results are printed; `why` is what to say where nothing was renewed.
fn ended(exit: Exit, why: &str) -> Result<Exit, HoldError> {
    match exit {
        Exit::Done | Exit::Partly => Ok(exit),
        exit => Err(HoldError::NotWell { why: why.to_owned(), exit }),
    }
}

/// Whether something is renewed whole and the home does not note it.
fn is_unnoted(renewed: &Result<Renewed, HoldError>) -> bool {
    matches!(renewed, Ok(renewed) if renewed.is_whole() && !renewed.noted)
}

/// 3 is for what is safe for now in part: where nobody took a lease, why not is told.
fn exit_of(renewed: &Result<Renewed, HoldError>) -> Exit {
    match renewed {
        Ok(renewed) if renewed.is_whole() && renewed.noted => Exit::Done,
        Ok(renewed) if renewed.taken > 0 => Exit::Partly,
        Ok(renewed) => {
            let refused = renewed.refused.as_ref();
            refused.map_or(Exit::Unavailable, |error| Exit::from(error.class()))
        }
        Err(error) => error.exit(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_nothing_was_renewed_is_no_partial_success() {
        assert_eq!(exit_of(&Ok(Renewed::default())), Exit::Unavailable, "nobody answered");
        let refused = Some(env::calls::CallError::Denied { reason: "no".into() });
        assert_eq!(exit_of(&Ok(Renewed { refused, ..Renewed::default() })), Exit::Denied);
        let one = Renewed { taken: 1, untaken: 1, ..Renewed::default() };
        assert_eq!(exit_of(&Ok(one)), Exit::Partly);
        // And it has an error of its own.
        assert_eq!(ended(Exit::Partly, "nothing").ok(), Some(Exit::Partly));
        let told = ended(Exit::Denied, "nothing").map_err(|error| error.exit());
        assert_eq!(told, Err(Exit::Denied));
    }

    #[test]
    fn what_is_renewed_and_not_noted_is_partly_done() {
        let unnoted = Ok(Renewed { taken: 1, ..Renewed::default() });
        assert!(is_unnoted(&unnoted));
        assert_eq!(exit_of(&unnoted), Exit::Partly);
        let noted = Ok(Renewed { taken: 1, noted: true, ..Renewed::default() });
        assert!(!is_unnoted(&noted));
        assert_eq!(exit_of(&noted), Exit::Done);
        // What is not whole is not to be noted.
        assert!(!is_unnoted(&Ok(Renewed { taken: 1, untaken: 1, ..Renewed::default() })));
    }
}
