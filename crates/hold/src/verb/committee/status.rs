//! `hold committee status`.

use std::fmt;

use author::certified::MemberReport;
use clap::Args;
use serde::Serialize;

use super::Of;
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;

/// `hold committee status`.
#[derive(Debug, Args)]
pub(crate) struct Ask {
    #[command(flatten)]
    of: Of,
}

/// `hold committee status`: how each member is, as its librarian tells it.
#[derive(Serialize)]
struct StatusText {
    /// The committee's key, hex.
    committee: String,
    /// The highest height that a member tells.
    height: u64,
    /// How many members must agree.
    needed: u32,
    /// How many answered and vote.
    voting: u32,
    /// Each member.
    members: Vec<Line>,
}

/// One member.
#[derive(Serialize)]
struct Line {
    /// Its key, hex.
    member: String,
    /// Where its librarian answers.
    address: String,
    /// Why it did not answer, where it did not.
    error: Option<String>,
    /// Whether it votes; else it follows.
    votes: bool,
    /// The height of the newest certified header that it knows.
    height: u64,
    /// Its time, Unix milliseconds.
    time_ms: u64,
    /// The epoch.
    epoch: u64,
    /// How many members it hears, itself among them.
    heard: u32,
    /// Submissions that wait there.
    waiting: u64,
    /// Entries of the state.
    entries: u64,
    /// Bytes of them.
    state_bytes: u64,
}

impl From<&MemberReport> for Line {
    fn from(one: &MemberReport) -> Self {
        let of = |of: fn(&author::certified::Report) -> u64| one.report.as_ref().map_or(0, of);
        Self {
            member: one.seat.member.to_string(),
            address: one.seat.address.clone(),
            error: one.report.as_ref().err().map(ToString::to_string),
            votes: one.report.as_ref().is_ok_and(|report| report.votes),
            height: of(|report| report.height),
            time_ms: of(|report| report.time_ms),
            epoch: of(|report| report.epoch),
            heard: one.report.as_ref().map_or(0, |report| report.heard),
            waiting: of(|report| report.waiting),
            entries: of(|report| report.entries),
            state_bytes: of(|report| report.state_bytes),
        }
    }
}

impl fmt::Display for StatusText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { height, needed, voting, members, .. } = self;
        write!(
            f,
            "height {height}, {voting} of {} members vote, {needed} must agree",
            members.len()
        )?;
        for Line { member, address, error, votes, height, heard, waiting, .. } in members {
            match error {
                Some(error) => write!(f, "\naway     {member:.10}  {address:21}  {error}")?,
                None => {
                    let state = if *votes { "votes" } else { "follows" };
                    write!(f, "\n{state:8} {member:.10}  {address:21}  height {height}")?;
                    write!(f, ", hears {heard}, {waiting} waiting")?;
                }
            }
        }
        Ok(())
    }
}

impl Ask {
    /// Asks all: 3 where one does not answer, 15 where too few do.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let reports = self.of.heads(session).await?.status().await?;
        let members: Vec<Line> = reports.iter().map(Line::from).collect();
        let good = || reports.iter().filter_map(|one| one.report.as_ref().ok());
        let needed = good().map(|report| report.needed).max().unwrap_or_default();
        let voting = good().filter(|report| report.votes).count();
        let voting = u32::try_from(voting).unwrap_or(u32::MAX);
        let all = good().count() == members.len();
        session.out.result(&StatusText {
            committee: self.of.key.to_string(),
            height: good().map(|report| report.height).max().unwrap_or_default(),
            needed,
            voting,
            members,
        })?;
        if voting < needed {
            let error = committee::CommitteeError::NotEnoughMembers { needed, heard: voting };
            return Err(error.into());
        }
        Ok(if all { Exit::Done } else { Exit::Partly })
    }
}
