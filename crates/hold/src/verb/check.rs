//! `hold check`: whether contents can be had, and how many more losses they survive.

use std::fmt;
use std::sync::Arc;

use author::{Author, AuthorError, Checked, State, Wrong};
use clap::Args;
use crypto::RecordId;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::one_line;
use crate::progress::Counting;
use crate::{address, connect};

/// `hold check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// What `put`, `share` or `inbox` printed
    #[arg(value_name = "ADDRESS", required_unless_present = "all")]
    addresses: Vec<String>,
    /// All that this keyring put, as the logs of librarians tell: they go back some weeks; what is older is checked by its
    /// address alone
    #[arg(long, conflicts_with = "addresses")]
    all: bool,
    /// Read every copy and fragment at its holder and prove it, and that parity is that of its pages; without it holders
    /// are asked and believed
    #[arg(long)]
    read_data: bool,
    /// As --read-data, of so many percent of the pages or stripes, chosen at random
    #[arg(long, value_name = "N%", value_parser = parse_percent, conflicts_with = "read_data")]
    read_data_subset: Option<u8>,
}

/// `5%` or `5`.
fn parse_percent(text: &str) -> Result<u8, String> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    let percent = digits.parse().ok().filter(|percent| (1..=100).contains(percent));
    percent.ok_or_else(|| format!("{text:?} is not a share from 1% to 100%"))
}

/// A holder that sent something else than it said it has.
#[derive(Serialize)]
struct WrongResult {
    /// The record.
    id: String,
    /// The peer.
    holder: String,
}

/// `hold check`: one line a content.
#[derive(Serialize)]
struct CheckResult {
    /// The address of its envelope.
    address: String,
    /// full, lacking (can be had, with fewer copies or fragments than it should have), unavailable (not while peers are
    /// away), lost, or unreadable (its envelope, entry, a list or a stripe's header cannot be had).
    state: &'static str,
    /// Why, where it is unreadable.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The rest, where it was checked.
    #[serde(flatten)]
    found: Option<FoundResult>,
}

/// What was found of a content.
#[derive(Serialize)]
struct FoundResult {
    /// Its entry's id.
    entry: String,
    /// Length of the content.
    bytes: u64,
    /// How its pages are kept: K/N or copies:N; none where the content lies in the entry.
    profile: Option<String>,
    /// Records kept in copies.
    records: u64,
    /// Stripes.
    stripes: u64,
    /// Of them, those that have not all their fragments.
    stripes_lacking: u64,
    /// Records and stripes that have all they should.
    full: u64,
    /// Those that can be had, and lack some.
    lacking: u64,
    /// Those that cannot be had while peers are away.
    unavailable: u64,
    /// Those that cannot be had.
    lost: u64,
    /// Copies and fragments that are missing.
    missing: u64,
    /// How many more losses the worst record or stripe survives.
    survives: u32,
    /// Copies and fragments that were read and proven.
    read: u64,
    /// Their bytes.
    read_bytes: u64,
    /// Holders that sent something else than they said they have.
    wrong: Vec<WrongResult>,
    /// Stripes that were read and whose parity is not that of their pages: it counts as missing, and only putting the
    /// content again mends it.
    miscoded: Vec<String>,
}

impl CheckResult {
    fn new(checked: &Checked) -> Self {
        let [full, lacking, unavailable, lost] = checked.counts;
        let wrong = checked
            .wrong
            .iter()
            .map(|Wrong { id, peer }| WrongResult { id: id.to_string(), holder: peer.to_string() });
        let found = FoundResult {
            entry: checked.entry.to_string(),
            bytes: checked.bytes,
            profile: checked.profile.map(|profile| profile.to_string()),
            records: checked.records,
            stripes: checked.stripes,
            stripes_lacking: checked.stripes_lacking,
            full,
            lacking,
            unavailable,
            lost,
            missing: checked.missing,
            survives: checked.survives,
            read: checked.read,
            read_bytes: checked.read_bytes,
            wrong: wrong.collect(),
            miscoded: checked.miscoded.iter().map(ToString::to_string).collect(),
        };
        let address = address::text(&checked.address);
        Self { address, state: checked.state.name(), error: None, found: Some(found) }
    }

    fn unreadable(address: &RecordId, error: &AuthorError) -> Self {
        let (address, error) = (address::text(address), Some(one_line(error)));
        Self { address, state: "unreadable", error, found: None }
    }
}

impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:11}  {}", self.state, self.address)?;
        if let Some(error) = &self.error {
            write!(f, "\n             {error}")?;
        }
        let Some(found) = &self.found else { return Ok(()) };
        write!(f, "\n             records: {}, stripes: {}", found.records, found.stripes)?;
        match &found.profile {
            Some(profile) => write!(f, " ({profile})")?,
            None => f.write_str(" (in its entry)")?,
        }
        for (count, what) in
            [(found.lacking, "lacking"), (found.unavailable, "unavailable"), (found.lost, "lost")]
        {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        write!(f, "; more losses survived: {}", found.survives)?;
        if found.missing > 0 {
            write!(f, "; copies and fragments missing: {}", found.missing)?;
        }
        if found.read > 0 {
            write!(f, "; read: {}, {} bytes", found.read, found.read_bytes)?;
        }
        for wrong in &found.wrong {
            write!(f, "\n             wrong or gone: {} at {}", wrong.id, wrong.holder)?;
        }
        for stripe in &found.miscoded {
            write!(
                f,
                "\n             parity is not that of the pages, put it again: stripe {stripe}"
            )?;
        }
        Ok(())
    }
}

/// How bad an exit is: the worst of all contents is the verb's.
fn severity(exit: Exit) -> u8 {
    match exit {
        Exit::Done => 0,
        Exit::Partly => 1,
        Exit::Unavailable => 2,
        Exit::NotFound => 3,
        Exit::Corrupt => 4,
        _ => 5,
    }
}

fn exit_of(checked: &Checked) -> Exit {
    match checked.state {
        State::Full => Exit::Done,
        State::Lacking => Exit::Partly,
        State::Unavailable => Exit::Unavailable,
        State::Lost if checked.wrong.is_empty() && checked.miscoded.is_empty() => Exit::NotFound,
        State::Lost => Exit::Corrupt,
    }
}

impl Check {
    /// Runs it: 0 where everything has all it should, 3 where all can be had, else by the worst.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let named = self.addresses.iter().map(|one| address::parse(one));
        let mut addresses = named.collect::<Result<Vec<_>, _>>()?;
        let percent = if self.read_data { 100 } else { self.read_data_subset.unwrap_or(0) };
        let author = connect::author(session).await?;
        let mut exit = Exit::Done;
        if self.all {
            (addresses, exit) = own(session, &author).await?;
        }
        let bar = Counting::new(&session.out, "check", "holders are asked");
        let (all, mut away, mut only) = (addresses.len(), 0u64, None);
        for address in addresses {
            let (result, ended) = match author.check(address, percent).await {
                Ok(checked) => (CheckResult::new(&checked), exit_of(&checked)),
                // What is wrong with the question and not with this content.
                Err(error @ AuthorError::ThinSurvey) => return Err(error.into()),
                Err(error) => {
                    let result = CheckResult::unreadable(&address, &error);
                    let error = HoldError::from(error);
                    let exit = error.exit();
                    only = Some(error);
                    (result, exit)
                }
            };
            bar.aside(|| session.out.result(&result))?;
            bar.one();
            away += u64::from(!matches!(ended, Exit::Done | Exit::Partly));
            if severity(ended) > severity(exit) {
                exit = ended;
            }
        }
        drop(bar);
        match (away, only) {
            (0, _) => Ok(exit),
            // The only one's failure is the run's, and told as such.
            (_, Some(error)) if all == 1 => Err(error),
            _ => {
                let why = format!("{away} of {all} contents cannot be had now");
                Err(HoldError::NotWell { why, exit })
            }
        }
    }
}

/// The contents that this keyring put; how that ended: who watches what it has by this alone would take for whole what was not
/// looked at.
///
/// # Errors
/// [`HoldError::NothingFound`]; what the librarians say.
async fn own(session: &Session, author: &Arc<Author>) -> Result<(Vec<RecordId>, Exit), HoldError> {
    let told = author.home().next_counter()?;
    let mut found = Vec::new();
    let report = author.recover(Some(told), |one| {
        if one.own {
            found.push(one.address);
        }
    });
    let complete = report.await?.complete;
    if !complete {
        session.out.warn(
            "the librarians' logs do not go back to their start: older contents are not among \
             these; check them by their addresses",
        );
    }
    if found.is_empty() {
        return Err(HoldError::NothingFound);
    }
    found.sort_unstable();
    Ok((found, if complete { Exit::Done } else { Exit::Partly }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage() {
        assert_eq!(parse_percent("5%"), Ok(5));
        assert_eq!(parse_percent("100"), Ok(100));
        for bad in ["", "0", "0%", "101%", "-1", "1.5%", "%", "half"] {
            assert!(parse_percent(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_worst_exit_is_told() {
        let order = [Exit::Done, Exit::Partly, Exit::Unavailable, Exit::NotFound, Exit::Corrupt];
        assert!(order.windows(2).all(|pair| severity(pair[0]) < severity(pair[1])));
        assert!(severity(Exit::Failed) > severity(Exit::Corrupt));
    }
}
