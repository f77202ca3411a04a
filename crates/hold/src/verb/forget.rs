//! `hold forget`: what this user pays for is paid for no more, dropped, and the key that opened it forgotten.

use std::fmt;

use author::Ended;
use clap::Args;
use crypto::RecordId;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::{address, connect};

/// Peers that are named where they did not answer, at most.
const NAMED_MAX: usize = 16;

/// `hold forget`.
#[derive(Debug, Args)]
pub(crate) struct ForgetVerb {
    /// What `put` printed: a content that this user put
    address: String,
}

/// `hold forget`: what was ended.
#[derive(Serialize)]
struct ForgetResult {
    /// The content.
    address: String,
    /// Its records and stripes.
    places: u64,
    /// Leases of this user that were ended.
    leases: u64,
    /// Peers that dropped what they had under them.
    reached: u64,
    /// Peers that may hold some of it and did not answer: others tell them when they return.
    unreached: Vec<String>,
    /// Records and stripes that somebody else pays for too, or that were stored without a lease: holders keep them.
    kept: u64,
    /// Records and stripes of which no holder heard it. The key is kept while there are some: forget it again later.
    open: u64,
    /// Whether the key that opened it was this user's own and is forgotten here.
    key_forgotten: bool,
}

impl ForgetResult {
    fn new(address: &RecordId, ended: &Ended) -> Self {
        Self {
            address: address::text(address),
            places: ended.places,
            leases: ended.leases,
            reached: ended.reached.len() as u64,
            unreached: ended.unreached.iter().map(ToString::to_string).collect(),
            kept: ended.kept,
            open: ended.open,
            key_forgotten: ended.key_forgotten,
        }
    }
}

impl fmt::Display for ForgetResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { leases, reached, places, .. } = self;
        write!(
            f,
            "forgotten: {leases} leases for {places} records and stripes ended at {reached} peers"
        )?;
        if self.kept > 0 {
            write!(
                f,
                "\nkept       {} of them: somebody else pays for them, or they were stored without a lease",
                self.kept
            )?;
        }
        if self.open > 0 {
            write!(
                f,
                "\nopen       {} of them: no holder heard it, so the key is kept; forget it again when they are back",
                self.open
            )?;
        }
        for peer in self.unreached.iter().take(NAMED_MAX) {
            write!(f, "\nnot reached  {peer}: others tell it when it returns")?;
        }
        if self.unreached.len() > NAMED_MAX {
            write!(f, "\nand {} further", self.unreached.len() - NAMED_MAX)?;
        }
        Ok(())
    }
}

impl ForgetVerb {
    /// Runs it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let address = address::parse(&self.address)?;
        let author = connect::author(session).await?;
        let ended = author.forget(address).await?;
        let result = ForgetResult::new(&address, &ended);
        session.out.result(&result)?;
        session.out.note(
            "whoever read it, or has the seed and a copy of its records, can still read what they have",
        );
        let Some(lacks) = lacks(&ended) else { return Ok(Exit::Done) };
        session.out.warn(format_args!("not all of it ended: {lacks}"));
        Ok(Exit::Partly)
    }
}

/// What did not end, where something did not.
fn lacks(ended: &Ended) -> Option<String> {
    let all = [
        (ended.unreached.len() as u64, "peers did not answer"),
        (ended.kept, "records or stripes are kept for others, or were stored without a lease"),
        (ended.open, "records or stripes have no holder that heard it"),
    ];
    let some = all.into_iter().filter(|(count, _)| *count > 0);
    let some: Vec<String> = some.map(|(count, what)| format!("{count} {what}")).collect();
    (!some.is_empty()).then(|| some.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_end_is_told() {
        assert_eq!(lacks(&Ended::default()), None);
        let ended = Ended { kept: 2, open: 3, ..Ended::default() };
        let told = "2 records or stripes are kept for others, or were stored without a lease, \
                    3 records or stripes have no holder that heard it";
        assert_eq!(lacks(&ended).as_deref(), Some(told));
    }
}
