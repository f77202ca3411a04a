//! `hold peer leave`: a peer hands over what it holds, and leaves the network.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::PathText;
use crate::page::Told;
use crate::peerdir;
use crate::verb::peer::own::OwnTaker;

/// How often it is looked how far the peer is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many looks in a row that fail end the wait: a peer that is busy, or starts again, is asked once more.
const FAILED_MAX: u32 = 10;

/// `hold peer leave`.
#[derive(Debug, Args)]
pub(crate) struct Leave {
    /// The peer's directory
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// Write the wish down and do not wait until all is handed over
    #[arg(long)]
    no_wait: bool,
}

/// `hold peer leave`: how far the peer is.
#[derive(Serialize)]
struct LeaveResult {
    /// The peer's directory.
    dir: PathText,
    /// Whether it has handed over everything, and left.
    left: bool,
    /// Records that it had not handed over when it was last looked.
    to_hand_over: Option<u64>,
    /// Who lacked copies then that it should take. One that took none for an hour is left without having them, where others do.
    takers: Vec<OwnTaker>,
}

impl fmt::Display for LeaveResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.left, self.to_hand_over) {
            (true, _) => f.write_str("left: everything it held is at other peers")?,
            (false, Some(left)) => write!(f, "leaves: {left} records are to be handed over")?,
            (false, None) => f.write_str("leaves: as soon as it runs")?,
        }
        self.takers.iter().try_for_each(|taker| write!(f, "\n{taker}"))
    }
}

impl Leave {
    /// Sets the wish, which the running peer takes within about a second, and waits for its end.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let config = peerdir::read_config(&self.dir)?;
        if config.repair.off {
            let what = "this peer is set to mend nothing ([repair] off = true in peer.toml), so it cannot hand over \
                        what it holds: set it to false and start the peer again";
            return Err(HoldError::argument("peer leave", what));
        }
        let values = [("leaving".to_owned(), true.into())];
        peerdir::change_config(&self.dir, &toml::Table::from_iter(values))?;
        let dir = self.dir.as_path();
        let mut seen = Seen::default();
        if !self.no_wait {
            seen.wait(session, dir).await;
        }
        let Seen { said_left, to_hand_over, takers, .. } = seen;
        // A peer that ended, between two looks or long ago, noted it in its directory.
        let left = said_left || peerdir::has_left(dir);
        let to_hand_over = to_hand_over.filter(|_| !left);
        // Of one that noted it between two looks they may have taken theirs meanwhile.
        let takers = if said_left || !left { takers } else { Vec::new() };
        session.out.result(&LeaveResult { dir: dir.into(), left, to_hand_over, takers })?;
        Ok(if left || self.no_wait { Exit::Done } else { Exit::Partly })
    }
}

/// What was seen of a peer that leaves.
#[derive(Default)]
struct Seen {
    said_left: bool,
    to_hand_over: Option<u64>,
    takers: Vec<OwnTaker>,
    /// Looks that failed in a row.
    failed: u32,
}

/// One look at a peer.
enum Look {
    /// Its page's status.
    Page(Value),
    /// It should run, and nothing was learnt of it.
    Failed,
    /// It does not run.
    Ended,
}

impl Look {
    async fn at(dir: &Path) -> Self {
        match Told::read(dir) {
            Ok(told) => told.status().await.map_or(Self::Failed, Self::Page),
            Err(HoldError::Missing { .. }) => Self::Ended,
            Err(_) => Self::Failed,
        }
    }
}

impl Seen {
    /// Looks until the peer has left, does not run, or the user ends it.
    async fn wait(&mut self, session: &Session, dir: &Path) {
        while !peerdir::has_left(dir) && self.take(Look::at(dir).await) {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = session.stop.cancelled() => return,
            }
        }
    }

    /// Takes one look into account; whether to look again.
    fn take(&mut self, look: Look) -> bool {
        let page = match look {
            Look::Page(page) => page,
            Look::Failed => {
                self.failed += 1;
                return self.failed < FAILED_MAX;
            }
            Look::Ended => return false,
        };
        self.failed = 0;
        let begun = page.pointer("/repair/leaving").and_then(Value::as_bool) == Some(true);
        let left = page.pointer("/repair/left_to_hand_over").and_then(Value::as_u64);
        self.to_hand_over = left.filter(|_| begun);
        self.takers = OwnTaker::all(&page);
        self.said_left = page.pointer("/state").and_then(Value::as_str) == Some("left");
        !self.said_left
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_look_that_fails_does_not_end_the_wait() {
        let leaving = || {
            let lacks = |peer: &str, copies: u64| json!({ "peer": peer, "copies": copies });
            let takers = [lacks("aa", 2), lacks("bb", 5)];
            let repair = json!({ "leaving": true, "left_to_hand_over": 7, "takers": takers });
            Look::Page(json!({ "state": "leaving", "repair": repair }))
        };
        let mut seen = Seen::default();
        for _ in 0..3 {
            assert!(seen.take(leaving()));
            for _ in 1..FAILED_MAX {
                assert!(seen.take(Look::Failed), "as long as some look in between does not fail");
            }
        }
        assert_eq!(seen.to_hand_over, Some(7), "as of the last look");
        assert!(!seen.take(Look::Failed));
        assert!(!seen.said_left);
        let result = LeaveResult {
            dir: Path::new("p1").into(),
            left: false,
            to_hand_over: seen.to_hand_over,
            takers: seen.takers,
        };
        let said = "leaves: 7 records are to be handed over\n\
                    bb lacks 5 copies that it should take\n\
                    aa lacks 2 copies that it should take";
        assert_eq!(result.to_string(), said);

        let mut seen = Seen::default();
        assert!(seen.take(leaving()));
        assert!(!seen.take(Look::Page(json!({ "state": "left" }))));
        assert!(seen.said_left);
        assert!(!Seen::default().take(Look::Ended), "a peer that does not run is not waited for");
    }
}
