//! `hold committee status`.

use std::fmt;

use author::certified::MemberReport;
use clap::Args;
use committee::position::quorum;
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
    /// The highest height that was certified to this user.
    height: u64,
    /// How many of the certified members must agree.
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
    /// Where its librarian answers; null where nobody shows where it is.
    address: Option<String>,
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
            member: one.member.to_string(),
            address: one.seat.as_ref().map(|seat| seat.address.clone()),
            error: one.report.as_ref().err().map(|error| match one.seat {
                Some(_) => error.to_string(),
                None => String::from("no librarian shows its card"),
            }),
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
            let address = address.as_deref().unwrap_or("-");
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

impl StatusText {
    /// Of a committee's certified members, with what their librarians tell, which is nobody's word but theirs.
    fn new(committee: String, height: u64, reports: &[MemberReport]) -> Self {
        let members: Vec<Line> = reports.iter().map(Line::from).collect();
        let voting = members.iter().filter(|line| line.votes).count();
        let [needed, voting] =
            [quorum(members.len()), voting].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        Self { committee, height, needed, voting, members }
    }
}

impl Ask {
    /// Asks all: 3 where one does not answer, 15 where too few do.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let (_, heads) = super::heads(session, self.of.key.clone()).await?;
        let reports = heads.status().await?;
        let status = StatusText::new(self.of.key.to_string(), heads.height(), &reports);
        session.out.result(&status)?;
        let StatusText { needed, voting: heard, members, .. } = status;
        if heard < needed {
            return Err(committee::CommitteeError::NotEnoughMembers { needed, heard }.into());
        }
        let all = members.iter().all(|line| line.error.is_none());
        Ok(if all { Exit::Done } else { Exit::Partly })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use author::certified::{Report, Seat};
    use committee::engine::MemberId;
    use crypto::{PeerId, SecretKey};
    use env::calls::CallError;

    use super::*;

    #[test]
    fn what_one_member_tells_bends_no_status() {
        let peer = PeerId::new(SecretKey::from_bytes(&[2; 32]).unwrap().public());
        let of = |number: u8, height, needed| {
            let (member, address) = (MemberId::new([number; 32]), String::from("127.0.0.1:1"));
            let (votes, heard, waiting, entries) = (true, 4, 0, 0);
            let (time_ms, epoch, state_bytes) = (0, 0, 0);
            let report = Report {
                height,
                time_ms,
                epoch,
                needed,
                heard,
                votes,
                waiting,
                entries,
                state_bytes,
            };
            MemberReport { member, seat: Some(Seat { member, peer, address }), report: Ok(report) }
        };
        let liar = of(3, u64::MAX, u32::MAX);
        let nowhere = MemberReport {
            member: MemberId::new([4; 32]),
            seat: None,
            report: Err(CallError::NotFound),
        };
        let reports = [of(1, 7, 3), of(2, 7, 3), liar, nowhere];
        let status = StatusText::new(String::from("ab"), 7, &reports);
        assert_eq!((status.height, status.needed, status.voting), (7, 3, 3));
        assert_eq!(status.members.len(), 4);
        let text = status.to_string();
        assert!(text.contains("3 of 4 members vote, 3 must agree"), "{text}");
        assert!(text.lines().last().unwrap().starts_with("away     0404"), "{text}");
    }
}
