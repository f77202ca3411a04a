//! `hold get`: a content out of the network, into a file or a pipe.

mod many;
mod unpacked;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use author::{Author, AuthorError, GetReport, Sink};
use clap::Args;
use crypto::RecordId;
use serde::Serialize;

use crate::cli::Session;
use crate::draft::{Draft, is_special};
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::PathText;
use crate::progress::Bar;
use crate::{address, client, connect, pipes};

/// `hold get`.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// What `put`, `share` or `inbox` printed
    #[arg(required_unless_present = "list")]
    address: Option<String>,
    /// Where it goes, over a file that is there; - is standard output (then results go to stderr)
    /// [default: its own name in the current folder, never over a file that is there]
    #[arg(short, long, value_name = "FILE|-")]
    output: Option<PathBuf>,
    /// All that `hold put DIR --json` printed into this file, each at its name below the folder -o
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["address", "range"], requires = "output")]
    list: Option<PathBuf>,
    /// Unpack a folder that `hold put DIR --pack` put, or another tar, as the folder -o, which must not be there
    #[arg(long, conflicts_with_all = ["list", "range"], requires = "output")]
    unpack: bool,
    /// Bytes A to B alone, both included and counted from 0, as in HTTP; A- is from A to the end
    #[arg(long, value_name = "A-B", value_parser = parse_range)]
    range: Option<Range<u64>>,
    /// End when all is on the disk; else a new file may be short after a power cut, as one that was copied (one that
    /// goes over a file is on the disk first in any case)
    #[arg(long)]
    sync: bool,
}

/// `A-B`, both included, to a half-open range; `A-` has no end.
fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is not A-B with A not above B");
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        return Err(wrong());
    }
    let first: u64 = first.parse().map_err(|_| wrong())?;
    let last: u64 = if last.is_empty() { u64::MAX } else { last.parse().map_err(|_| wrong())? };
    if last < first {
        return Err(wrong());
    }
    Ok(first..last.saturating_add(1))
}

/// `hold get`: what was read; with `-o -` it goes to stderr.
#[derive(Serialize)]
struct GetResult {
    /// Bytes that were written.
    bytes: u64,
    /// How long it took.
    seconds: f64,
    /// Whether any record had to be sought past a holder that was down, slow or wrong.
    degraded: bool,
    /// Where it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathText>,
}

impl fmt::Display for GetResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{file}"),
            None => write!(f, "{} bytes in {:.1} s", self.bytes, self.seconds),
        }
    }
}

impl Get {
    /// Runs it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        if let (Some(list), Some(folder)) = (&self.list, &self.output) {
            if folder.as_os_str() == "-" {
                let reason = "it needs a folder, not standard output";
                return Err(HoldError::argument("--list", reason));
            }
            let list = list.clone();
            // Standard input may be long in coming, and a signal is heard meanwhile.
            let items = client::blocking(move || many::list(&list)).await?;
            return many::run(session, items, folder, self.sync).await;
        }
        let address = address::parse(self.address.as_deref().unwrap_or_default())?;
        if let (true, Some(folder)) = (self.unpack, &self.output) {
            return self.unpacked(session, address, folder).await;
        }
        let to_stdout = self.output.as_deref().is_some_and(pipes::is_stdout);
        if to_stdout {
            session.out.divert();
            if self.sync {
                return Err(HoldError::argument("--sync", "standard output is not on a disk"));
            }
        }
        if let Some(path) = self.output.as_deref().filter(|path| self.sync && is_special(path)) {
            let text = format!("{} is not a file on a disk", path.display());
            return Err(HoldError::argument("--sync", text));
        }
        // Where it cannot be written is told before the passphrase is asked for.
        let draft = match &self.output {
            _ if to_stdout => None,
            Some(path) if is_special(path) => None,
            Some(path) => Some(Draft::new(path, true)?),
            None => Some(Draft::unnamed(Path::new("."))?),
        };
        let draft = draft.map(|draft| draft.synced(self.sync));
        let author = connect::author(session).await?;
        let started = Instant::now();
        if let (Some(draft), None) = (&draft, &self.output) {
            // Not when all of it is here.
            let details = author.details(address).await?;
            draft.would_keep_as(&address::file_name(details.name.as_deref(), &address))?;
        }
        let bar = Bar::new(&session.out, "get");
        let report = match (&draft, &self.output) {
            (Some(draft), _) => {
                let mut file = draft.sink(author.env())?;
                self.content(&author, address, &mut file, bar).await?
            }
            (None, Some(path)) if !to_stdout => {
                self.content(&author, address, &mut pipes::named(path).await?, bar).await?
            }
            (None, _) => {
                let mut stdout = pipes::stdout()?;
                match self.content(&author, address, &mut stdout, bar).await {
                    // Whoever reads has what it wanted.
                    Err(HoldError::Author(AuthorError::Write(error)))
                        if error.kind() == io::ErrorKind::BrokenPipe =>
                    {
                        return Ok(Exit::Done);
                    }
                    got => {
                        let got = got?;
                        pipes::settle(stdout, self.sync).await?;
                        got
                    }
                }
            }
        };
        let file = match (draft, &self.output) {
            (None, output) => output.clone().filter(|_| !to_stdout),
            (Some(draft), Some(path)) => draft.keep().map(|()| Some(path.clone()))?,
            (Some(draft), None) => {
                let name = address::file_name(report.details.name.as_deref(), &address);
                Some(draft.keep_as(&name)?)
            }
        };
        let seconds = started.elapsed().as_secs_f64();
        let (bytes, degraded) = (report.bytes, report.degraded);
        let result = GetResult { bytes, seconds, degraded, file: file.map(PathText::from) };
        if !to_stdout || session.out.json() {
            session.out.result(&result)?;
        }
        Ok(Exit::Done)
    }
}

impl Get {
    async fn unpacked(
        &self,
        session: &Session,
        address: RecordId,
        folder: &Path,
    ) -> Result<Exit, HoldError> {
        if folder.as_os_str() == "-" {
            return Err(HoldError::argument("--unpack", "it needs a folder, not standard output"));
        }
        let draft = unpacked::Folder::new(folder)?;
        let author = connect::author(session).await?;
        let (started, bar) = (Instant::now(), Bar::new(&session.out, "get"));
        let report = unpacked::get(&author, address, draft, self.sync, bar).await?;
        let (bytes, degraded) = (report.bytes, report.degraded);
        let (seconds, file) = (started.elapsed().as_secs_f64(), folder.to_owned().into());
        session.out.result(&GetResult { bytes, seconds, degraded, file: Some(file) })?;
        Ok(Exit::Done)
    }

    /// Writes the content, or its range as far as the content goes.
    async fn content<S>(
        &self,
        author: &Author,
        address: RecordId,
        sink: &mut S,
        bar: Arc<Bar>,
    ) -> Result<GetReport, HoldError>
    where
        for<'a> &'a mut S: Sink,
    {
        let range = self.range.clone();
        let first = author.get(address, &mut *sink, range.clone(), bar.clone()).await;
        match (first, range) {
            // Nothing was written: an end beyond the content's is brought to it, as in HTTP.
            (Err(AuthorError::Range { start, end, size }), Some(_))
                if start < size && end > size =>
            {
                Ok(author.get(address, &mut *sink, Some(start..size), bar).await?)
            }
            (Err(AuthorError::Range { start, size, .. }), Some(_)) => {
                let reason = match size {
                    0 => "the content is empty".to_owned(),
                    _ => format!("the content has bytes 0 to {}, none from {start} on", size - 1),
                };
                Err(HoldError::argument("--range", reason))
            }
            (report, _) => Ok(report?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_both_ends() {
        assert_eq!(parse_range("0-0"), Ok(0..1));
        assert_eq!(parse_range("5-9"), Ok(5..10));
        assert_eq!(parse_range("5-"), Ok(5..u64::MAX));
        for bad in ["", "-", "5", "-5", "9-8", "a-b", "1-2-3", "+1-2"] {
            assert!(parse_range(bad).is_err(), "{bad}");
        }
    }
}
