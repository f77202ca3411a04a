//! `hold inbox`: what others shared with this user, as it arrives.

use std::fmt;

use author::{InboxEvent, Received};
use clap::Args;
use futures::StreamExt;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::{address, connect};

/// `hold inbox`.
#[derive(Debug, Args)]
pub(crate) struct Inbox {
    /// Go on, and print each as it arrives, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
}

#[derive(Serialize)]
struct Line {
    address: String,
    author: String,
    entry: String,
    /// When a librarian logged it, Unix milliseconds.
    received: u64,
}

impl From<&Received> for Line {
    fn from(received: &Received) -> Self {
        Self {
            address: address::text(&received.address),
            author: received.author.to_string(),
            entry: received.entry.to_string(),
            received: received.received_ms,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl Inbox {
    /// Runs it: one line each; without `--follow` it ends when all that was logged is told.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let author = connect::author(session).await?;
        let mut inbox = author.inbox(self.follow, &[]);
        while let Some(event) = inbox.next().await {
            match event? {
                InboxEvent::Received(received) => session.out.result(&Line::from(&received))?,
                InboxEvent::Gap { peer, .. } => session.out.warn(format_args!(
                    "the log of {peer} does not go back to its start: older shares may be missing"
                )),
                InboxEvent::CaughtUp if self.follow => {
                    session.out.note("that is all so far; waiting for more (Ctrl-C ends it)");
                }
                InboxEvent::CaughtUp => {}
            }
        }
        Ok(Exit::Done)
    }
}
