//! `hold inbox`: what others shared with this user, as it arrives.

mod feed;

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use author::{InboxEvent, Received};
use clap::Args;
use env::calls::Cursor;
use futures::StreamExt;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::{address, client, connect, pipes};
use feed::{Lines, Position};

/// `hold inbox`.
#[derive(Debug, Args)]
pub(crate) struct Inbox {
    /// Go on, and print each as it arrives, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Remember here what was told, after each line, and go on from there the next time; without
    /// it all that a librarian's log keeps is told, which is 30 days
    #[arg(long, value_name = "FILE")]
    cursor_file: Option<PathBuf>,
    /// Append the lines to this file, or write them to this named pipe, instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// `hold inbox`: one line a share.
#[derive(Serialize)]
struct Line {
    /// What `hold get` takes.
    address: String,
    /// The author's key of the envelope.
    author: String,
    /// The entry it opens.
    entry: String,
    /// When a librarian logged it, Unix milliseconds.
    received: u64,
    /// Whether the envelope was looked at: else all of it is what one librarian says, for no holder answered.
    proven: bool,
}

impl From<&Received> for Line {
    fn from(received: &Received) -> Self {
        Self {
            address: address::text(&received.address),
            author: received.author.to_string(),
            entry: received.entry.to_string(),
            received: received.received_ms,
            proven: received.proven,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)?;
        if self.proven { Ok(()) } else { f.write_str("  unproven") }
    }
}

/// Where lines go, and what remembers them.
struct Feed {
    position: Option<Position>,
    lines: Option<Lines>,
}

impl Feed {
    async fn open(cursor: Option<PathBuf>, output: Option<PathBuf>) -> Result<Self, HoldError> {
        // A named pipe waits for its reader.
        client::blocking(move || {
            if let (Some(cursor), Some(output)) = (&cursor, &output)
                && is_same(cursor, output)
            {
                return Err(both(cursor));
            }
            let position = cursor.as_deref().map(Position::open).transpose()?;
            let lines = match output.filter(|path| !pipes::is_stdout(path)) {
                Some(path) => Some(Lines::open(&path)?),
                None if position.is_some() => Some(Lines::stdout()?),
                None => None,
            };
            // Standard output, or a link that led nowhere.
            if let (Some(cursor), Some(lines)) = (&cursor, &lines)
                && lines.is_at(cursor)
            {
                return Err(both(cursor));
            }
            Ok(Self { position, lines })
        })
        .await
    }

    /// Where the run before ended.
    fn cursors(&self) -> &[Cursor] {
        self.position.as_ref().map_or(&[], |position| &position.cursors)
    }

    /// Writes the line of what was received, where an earlier run has not, and then remembers it. Answers whether there
    /// still is somebody who reads.
    async fn deliver(
        &mut self,
        session: &Session,
        received: &Received,
        cursors: &[Cursor],
    ) -> Result<bool, HoldError> {
        let address = received.address;
        if self.position.as_ref().is_some_and(|position| position.knows(&address)) {
            return Ok(true);
        }
        let line = Line::from(received);
        if let Some(mut lines) = self.lines.take() {
            let text = session.out.line(&line)?;
            let written = client::blocking(move || lines.write(&text).map(|()| lines));
            self.lines = Some(written.await?);
        } else if !session.out.follow(&line)? {
            return Ok(false);
        }
        if let Some(position) = &mut self.position {
            position.keep(Some(address), cursors)?;
        }
        Ok(true)
    }

    /// Remembers where every librarian is: those that had nothing for this user as well.
    fn caught_up(&mut self, cursors: &[Cursor]) -> Result<(), HoldError> {
        match &mut self.position {
            Some(position) => position.keep(None, cursors),
            None => Ok(()),
        }
    }
}

/// The one that remembers is replaced as a whole after each line, and would take the lines with it.
fn both(path: &Path) -> HoldError {
    let text = format!("the lines go to {} too: name another file", path.display());
    HoldError::argument("--cursor-file", text)
}

/// Whether two paths are of one file, or would be.
fn is_same(one: &Path, other: &Path) -> bool {
    if let (Ok(one), Ok(other)) = (std::fs::metadata(one), std::fs::metadata(other)) {
        return (one.dev(), one.ino()) == (other.dev(), other.ino());
    }
    let place = |path: &Path| {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(above.join(path.file_name()?))
    };
    place(one).is_some_and(|one| place(other) == Some(one))
}

impl Inbox {
    /// Runs it: one line each; without `--follow` it ends when all that was logged is told.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        // What cannot be read or written is told before the passphrase is asked for.
        let mut feed = Feed::open(self.cursor_file.clone(), self.output.clone()).await?;
        let author = connect::author(session).await?;
        if let (Some(position), Some(reader)) = (&mut feed.position, author.reader_keys().first()) {
            position.is_of(reader)?;
        }
        let mut inbox = author.inbox(self.follow, feed.cursors());
        loop {
            let event = tokio::select! {
                biased;
                event = inbox.next() => event,
                left = author.left() => return Err(left),
            };
            let Some(event) = event else { return Ok(Exit::Done) };
            match event? {
                InboxEvent::Received(received) => {
                    if !feed.deliver(session, &received, inbox.cursors()).await? {
                        return Ok(Exit::Done);
                    }
                }
                InboxEvent::Gap { peer, .. } => session.out.warn(format_args!(
                    "the log of {peer} does not go back to its start: older shares may be missing"
                )),
                InboxEvent::CaughtUp => {
                    feed.caught_up(inbox.cursors())?;
                    if self.follow {
                        session.out.note("that is all so far; waiting for more (Ctrl-C ends it)");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_file_that_remembers_is_not_the_one_that_lines_go_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let refused = async |cursor: &str, output: &str| {
            let opened = Feed::open(Some(at(cursor)), Some(at(output))).await;
            matches!(opened.map(drop), Err(HoldError::Argument { name: "--cursor-file", .. }))
        };
        assert!(refused("feed", "feed").await && refused("feed", "./feed").await);
        assert!(!at("feed").exists(), "nothing is made");
        std::os::unix::fs::symlink("late", at("nowhere")).expect("a link");
        assert!(refused("late", "nowhere").await);
        std::fs::remove_file(at("late")).expect("what was made by the link");
        assert!(!refused("cursor", "lines").await);
        std::fs::write(at("cursor"), r#"{"version":1,"cursors":[],"told":[]}"#).expect("a cursor");
        std::os::unix::fs::symlink("cursor", at("link")).expect("a link");
        std::fs::hard_link(at("cursor"), at("second")).expect("a second name");
        for other in ["cursor", "link", "second"] {
            assert!(refused("cursor", other).await && refused(other, "cursor").await, "{other}");
        }
        assert!(!refused("cursor", "lines").await);
    }

    #[test]
    fn what_one_librarian_alone_says_is_told_as_unproven() {
        let line = |proven| Line {
            address: "hold:1".to_owned(),
            author: String::new(),
            entry: String::new(),
            received: 1,
            proven,
        };
        assert_eq!(line(true).to_string(), "hold:1");
        assert_eq!(line(false).to_string(), "hold:1  unproven");
    }
}
