//! `hold keys recover`: a keyring on a new machine, and a list of what the network has for it.
//!
//! The words come first and the network second: a keyring that was made stays when no librarian answers, and the next run,
//! which finds it, asks for the network alone.

use std::fmt;
use std::sync::Arc;

use author::{Author, GAP, Home, RecoverReport, Recovered, UNTOLD_NEXT};
use clap::Args;
use serde::Serialize;

use super::{NetworkPlace, import};
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::progress::Counting;
use crate::{address, client, config, connect};

/// `hold keys recover`.
#[derive(Debug, Args)]
pub(crate) struct Recover {
    #[command(flatten)]
    place: NetworkPlace,
    /// The next counter that `hold keys export` told, where it is not below the words and is known: counters
    /// below it are looked for however few of them are found
    #[arg(long, value_name = "N")]
    next: Option<u64>,
}

/// `hold keys recover`: a content that was found, a line each.
#[derive(Serialize)]
struct RecoveredResult {
    /// What opens it.
    address: String,
    /// Its entry's id.
    entry: String,
    /// Whether this user put it; else somebody shared it.
    own: bool,
    /// When a librarian logged it, Unix milliseconds.
    received: u64,
    /// The name sealed with it.
    name: Option<String>,
    /// Length of the content; null where it does not open now.
    size: Option<u64>,
    /// When it was made, Unix seconds; null where it does not open now.
    created: Option<u32>,
    /// Why it does not open now.
    error: Option<String>,
}

impl fmt::Display for RecoveredResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.own { "own" } else { "shared" };
        write!(f, "{}  {whose:6}  ", self.address)?;
        match (&self.error, self.size) {
            (Some(error), _) => write!(f, "{error}"),
            (None, size) => {
                let name = self.name.as_deref().unwrap_or("-").escape_debug();
                write!(f, "{name} ({} bytes)", size.unwrap_or_default())
            }
        }
    }
}

impl From<Recovered> for RecoveredResult {
    fn from(found: Recovered) -> Self {
        let (details, error) = match found.opened {
            Ok(details) => (Some(details), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            address: address::text(&found.address),
            entry: found.entry.to_string(),
            own: found.own,
            received: found.received_ms,
            name: details.as_ref().and_then(|(details, _)| details.name.clone()),
            size: details.as_ref().map(|(details, _)| details.size),
            created: details.map(|(_, created)| created),
            error,
        }
    }
}

/// `hold keys recover`: its last line.
#[derive(Serialize)]
struct RecoverResult {
    /// The next counter.
    next: u64,
    /// Contents of this user.
    own: u64,
    /// Contents that others shared.
    shared: u64,
    /// Of those, the ones that do not open now.
    unopened: u64,
    /// Contents, and envelopes to others, that this user pays for: `hold renew --all` renews them.
    paid: u64,
    /// Contents of this user of which no holder could be asked who pays: `hold renew --all` does not know of them.
    unasked: u64,
    /// Whether every log that was read goes back to its start, and all counters were looked for.
    complete: bool,
    /// Whether nothing says how far the counters were used: if it was to `next` or beyond, give `--next` before anything is put.
    unsure: bool,
}

impl fmt::Display for RecoverResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { own, shared, paid, next, .. } = self;
        write!(f, "{own} own, {shared} shared, {paid} paid for; next counter {next}")
    }
}

impl Recover {
    /// Runs it: 0 when all that was found opens and is noted where it is paid for, 3 when some is not or logs were cut, 10 when
    /// there is nothing.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        connect::via(session)?;
        if self.place.network.is_none() {
            connect::network(session)?;
        }
        let config = session.config()?;
        let (home, told) = if Home::exists(&config.home) {
            self.place.check(&config.home)?;
            let home = client::open_home(session).await?;
            self.place.keep(session, &home)?;
            // What was told when the keyring was made, and all that was issued since; nothing of either where it was made by its words
            // alone, and used for nothing.
            let issued = home.next_counter()?;
            let told = match self.next {
                Some(next) => Some(next.max(issued)),
                None => Some(issued).filter(|issued| ![GAP, UNTOLD_NEXT].contains(issued)),
            };
            (home, told)
        } else {
            let (home, told) = import(session, &self.place, self.next).await?;
            session.out.note(format_args!("keyring in {}", home.dir().display()));
            (home, told)
        };
        let mut config = config.clone();
        if self.place.network.is_some() {
            config.network = home.dir().join("network");
            config.org = config::in_home(home.dir(), config::read_file(home.dir())?.org);
        }
        let author = connect::author_at(&config, home).await?;
        list(session, &author, told).await
    }
}

/// Lists what was found, each as it opens.
async fn list(
    session: &Session,
    author: &Arc<Author>,
    told: Option<u64>,
) -> Result<Exit, HoldError> {
    let bar = Counting::new(&session.out, "recover", "reading the logs of librarians");
    let mut printed = Ok(());
    let report = author.recover(told, |found| {
        let line = RecoveredResult::from(found);
        let result = bar.aside(|| session.out.result(&line));
        bar.one();
        if printed.is_ok() {
            printed = result;
        }
    });
    let report = report.await?;
    printed?;
    drop(bar);
    if report.noted {
        author.drop_damaged_notes().await?;
    }
    let RecoverReport { next, own, received: shared, unopened, paid, unasked, .. } = report;
    let RecoverReport { complete, unsure, .. } = report;
    let result = RecoverResult { next, own, shared, unopened, paid, unasked, complete, unsure };
    session.out.result(&result)?;
    if !complete {
        session.out.warn(
            "the logs of librarians do not go back to their start: what is older is not listed, \
             and opens by its address as ever; `hold renew --all` does not know of it: hold renew ADDRESS",
        );
    }
    if unsure {
        session.out.warn(format_args!(
            "nothing says how far the counters of this keyring were used: it goes on at {next}. \
             If it put and shared more than that, run it again with --next before anything is \
             put (`hold keys export` told the number below the words); in a network of libri-1 \
             do so in any case"
        ));
    }
    if unasked > 0 {
        session.out.warn(format_args!(
            "who pays for {unasked} of them could not be asked, so `hold renew --all` does not know of those: \
             hold keys recover again, without --thin, or hold renew ADDRESS"
        ));
    }
    if own + shared == 0 {
        return Err(HoldError::NothingFound);
    }
    Ok(if complete && unopened + unasked == 0 { Exit::Done } else { Exit::Partly })
}
