//! `hold peer status`: the network as one librarian sees it.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use crypto::{Announcement, PeerState, Roster};
use env::calls::{Endpoint, IntroduceResponse};
use serde::Serialize;

use super::own;
use crate::cli::Session;
use crate::connect;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::{network_file, peerdir};

/// A peer without a good call for this long is away, in milliseconds (the design's 60 s).
const AWAY_AFTER_MS: u64 = 60_000;
/// A certificate with less than this left is told, as the peer itself warns in its log, in seconds.
const EXPIRY_WARNING_S: u64 = 30 * peerdir::DAY_S;

/// `hold peer status`.
#[derive(Debug, Args)]
pub(crate) struct Ask {
    /// The directory of a peer that runs on this machine: its disk, its upkeep and more that only
    /// its operator is told
    #[arg(long, value_name = "D")]
    dir: Option<PathBuf>,
}

/// A peer as the asked one sees it.
#[derive(Serialize)]
pub(crate) struct Line {
    /// Which peer.
    pub(crate) peer: String,
    /// Its organisation's name.
    pub(crate) organisation: String,
    /// Where it answers.
    pub(crate) address: String,
    /// What it says it does.
    pub(crate) state: &'static str,
    /// healthy, suspect or away.
    pub(crate) health: &'static str,
    /// When its certificate ends, Unix seconds.
    pub(crate) certificate_until: u64,
}

/// `hold peer status`: the answer of one librarian.
#[derive(Serialize)]
pub(crate) struct Status {
    /// Who was asked.
    pub(crate) via: String,
    /// Which peer answered.
    pub(crate) peer: String,
    /// The number of the newest roster it knows.
    pub(crate) roster: u64,
    /// Records it holds.
    pub(crate) records: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Its clock minus ours, in seconds.
    pub(crate) clock_ahead_s: i64,
    /// Itself and all it knows.
    pub(crate) peers: Vec<Line>,
}

impl Status {
    /// From an answer of `via`.
    pub(crate) fn new(via: &str, roster: &Roster, answer: &IntroduceResponse) -> Self {
        let now = peerdir::now_s();
        let theirs = i64::try_from(answer.unix_ms / 1000).unwrap_or(i64::MAX);
        let known = answer.peers.iter().map(|known| (&known.announcement, known.last_good_ms));
        let all = std::iter::once((&answer.announcement, Some(0))).chain(known);
        // Whoever asks as a stranger must not show what does not prove itself.
        let proven = all.filter_map(|(bytes, last_good)| {
            Some((Announcement::verify(bytes, roster, now).ok()?, last_good))
        });
        let mut peers: Vec<Line> = Vec::new();
        let mut asked = String::new();
        for (announcement, last_good) in proven {
            let line = Line::new(&announcement, last_good, roster);
            if asked.is_empty() {
                asked.clone_from(&line.peer);
            }
            if peers.iter().all(|seen| seen.peer != line.peer) {
                peers.push(line);
            }
        }
        peers.sort_by(|a, b| (&a.organisation, &a.address).cmp(&(&b.organisation, &b.address)));
        Self {
            via: via.to_owned(),
            peer: asked,
            roster: answer.roster,
            records: answer.records,
            bytes: answer.bytes,
            clock_ahead_s: theirs.saturating_sub(i64::try_from(now).unwrap_or(i64::MAX)),
            peers,
        }
    }
}

impl Line {
    fn new(announcement: &Announcement, last_good_ms: Option<u64>, roster: &Roster) -> Self {
        let certificate = &announcement.certificate;
        let (state, up) = match announcement.state {
            PeerState::Serving => ("serving", true),
            PeerState::ReadOnly => ("read-only", true),
            PeerState::Stopped => ("stopped", false),
            PeerState::Left => ("left", false),
            PeerState::Leaving => ("leaving", true),
        };
        let health = match last_good_ms {
            _ if !up => "away",
            Some(ms) if ms < AWAY_AFTER_MS => "healthy",
            Some(_) => "away",
            None => "suspect",
        };
        Self {
            peer: certificate.peer.to_string(),
            organisation: network_file::name_of(roster, &certificate.organisation),
            address: certificate.addresses.first().cloned().unwrap_or_default(),
            state,
            health,
            certificate_until: certificate.until,
        }
    }

    /// Days that its certificate has left, where it is time to renew it.
    pub(crate) fn days_left(&self) -> Option<u64> {
        let left_s = self.certificate_until.saturating_sub(peerdir::now_s());
        (left_s <= EXPIRY_WARNING_S).then_some(left_s / peerdir::DAY_S)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { via, records, bytes, roster, .. } = self;
        write!(f, "{via} holds {records} records, {bytes} bytes; it knows roster {roster}")?;
        for line in &self.peers {
            let Line { peer, organisation, address, state, health, .. } = line;
            // Whole: it is what `hold org revoke` takes.
            write!(f, "\n{health:8} {state:9} {address:21} {peer} {organisation}")?;
            if let Some(days) = line.days_left() {
                write!(f, " (certificate ends in {days} days)")?;
            }
        }
        Ok(())
    }
}

impl Ask {
    /// Asks the peer on this machine, or else the first librarian that answers.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match &self.dir {
            Some(dir) => own::run(session, dir).await,
            None => run(session).await,
        }
    }
}

/// Asks the first librarian that answers.
async fn run(session: &Session) -> Result<Exit, HoldError> {
    let walker = connect::stranger(&connect::network(session)?)?;
    let mut failed = None;
    for address in connect::via(session)? {
        match walker.introduce(&Endpoint::at(address)).await {
            Ok(answer) => {
                session.out.result(&Status::new(address, &walker.directory().roster(), &answer))?;
                return Ok(Exit::Done);
            }
            Err(source) => failed = Some(HoldError::Call { address: address.clone(), source }),
        }
    }
    Err(failed.unwrap_or(HoldError::NoVia))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_key_is_there_whole_as_it_is_revoked_by() {
        let (key, via) = ("02".repeat(33), "127.0.0.1:7101".to_owned());
        let line = Line {
            peer: key.clone(),
            organisation: "Clinic".to_owned(),
            address: via.clone(),
            state: "serving",
            health: "healthy",
            certificate_until: u64::MAX,
        };
        let (peer, peers) = (key.clone(), vec![line]);
        let (roster, records, bytes, clock_ahead_s) = (0, 0, 0, 0);
        let status = Status { via, peer, roster, records, bytes, clock_ahead_s, peers };
        assert!(status.to_string().contains(&format!(" {key} Clinic")), "{status}");
    }
}
