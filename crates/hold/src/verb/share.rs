//! `hold share`: a content's key, sealed to other readers.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use author::{ShareReport, Shared};
use clap::Args;
use crypto::ReaderKey;
use serde::Serialize;

use crate::cli::Session;
use crate::client::blocking;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::one_line;
use crate::progress::Counting;
use crate::span::{self, Span};
use crate::{address, connect, files};

/// Readers that one run shares with, at most.
const READERS_MAX: usize = 100_000;
/// The longest file of readers, in bytes: as many keys with a remark each.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// `hold share`.
#[derive(Debug, Args)]
pub(crate) struct Share {
    /// A content this user can open
    address: String,
    /// The reader's key (hold keys show, at theirs); may be given many times
    #[arg(long, value_name = "READER", required_unless_present = "to_file", value_delimiter = ',')]
    to: Vec<String>,
    /// A file of readers' keys, one a line; what follows a # is a remark
    #[arg(long, value_name = "FILE")]
    to_file: Option<PathBuf>,
    /// For how long the readers' envelopes are paid for: a number and s, m, h, d, w or y [default:
    /// lease_days of holdfast.toml, else a year]
    #[arg(long = "for", value_name = "TIME", value_parser = span::of_lease)]
    span: Option<Span>,
}

/// `hold share`: a line each reader, once.
#[derive(Serialize)]
struct ShareResult {
    /// What the reader opens; null where nothing was stored.
    address: Option<String>,
    /// The reader's key.
    reader: String,
    /// Why nothing was stored.
    error: Option<String>,
    /// Whether the home notes until when it is paid for, so that `hold renew --all` knows of it.
    noted: bool,
    /// Whether the text names the reader: where there are several.
    #[serde(skip)]
    named: bool,
}

impl fmt::Display for ShareResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.address.as_deref().unwrap_or("not shared"))?;
        if self.named {
            write!(f, "  to {}", self.reader)?;
        }
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

impl Share {
    /// Runs it: one line a reader; 3 where some have an address and others not, or copies lack; 1 where a line could not be printed.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let content = address::parse(&self.address)?;
        session.out.can_deliver()?;
        let readers = self.readers().await?;
        let seconds = self.span.map(|Span(seconds)| seconds);
        let author = connect::author(session).await?;
        let bar = Counting::new(&session.out, "share", "");
        let (mut printed, mut first, mut copies) = (Ok(()), None, Vec::new());
        let report = author.share_all(content, &readers, seconds, |shared| {
            let Shared { reader, outcome, copies: rest, noted } = shared;
            copies.extend(rest);
            let (address, error) = match outcome {
                Ok(id) => (Some(address::text(&id)), None),
                Err(error) => {
                    let text = one_line(&error);
                    // The only reader's failure is the run's, and told as such.
                    first.get_or_insert(error);
                    (None, Some(text))
                }
            };
            bar.one();
            let named = readers.len() > 1;
            let line = ShareResult { address, reader: reader.to_string(), error, noted, named };
            if named || line.error.is_none() {
                // Each of them: an address is told nowhere else.
                let told = bar.aside(|| session.out.deliver(&line));
                if printed.is_ok() {
                    printed = told;
                }
            }
        });
        let report = report.await?;
        for reader in &readers[readers.len() - report.untried..] {
            let error = Some("not tried: nothing was stored for those before".to_owned());
            let reader = reader.to_string();
            let line = ShareResult { address: None, reader, error, noted: false, named: true };
            let told = session.out.deliver(&line);
            printed = printed.and(told);
        }
        author.walker().drain(author::SHARE_WAIT).await;
        drop(bar);
        let few = copies.iter().filter(|copies| !copies.reached().is_full()).count();
        if let (0, Some(error)) = (report.shared, first) {
            return Err(error.into());
        }
        let lacks = lacks(readers.len(), &report, few);
        lacks.iter().for_each(|lack| session.out.warn(lack));
        printed?;
        Ok(if lacks.is_empty() { Exit::Done } else { Exit::Partly })
    }

    /// Who is named, each once, in the order they were named first.
    async fn readers(&self) -> Result<Vec<ReaderKey>, HoldError> {
        let mut readers = address::readers(&self.to)?;
        if let Some(file) = self.to_file.clone() {
            // A named pipe waits for its writer.
            readers.extend(blocking(move || readers_in(&file)).await?);
        }
        let mut seen = BTreeSet::new();
        readers.retain(|reader| seen.insert(*reader));
        if readers.is_empty() {
            return Err(HoldError::argument("--to-file", "it names no reader"));
        }
        if readers.len() > READERS_MAX {
            return Err(HoldError::argument("--to-file", format!("over {READERS_MAX} readers")));
        }
        Ok(readers)
    }
}

/// What was not done of all that was asked for, a line each.
fn lacks(readers: usize, report: &ShareReport, few: usize) -> Vec<String> {
    let left_out = readers - report.shared;
    let lacks = [
        (left_out > 0).then(|| format!("{left_out} of {readers} readers were not shared with")),
        (few > 0).then(|| format!("{few} envelopes have fewer copies than wanted")),
        (report.unnoted > 0).then(|| super::put::UNNOTED.to_owned()),
    ];
    lacks.into_iter().flatten().collect()
}

/// The keys in a file, one a line.
fn readers_in(path: &Path) -> Result<Vec<ReaderKey>, HoldError> {
    let what = "a file of readers' keys of at most 32 MiB";
    let bytes = files::read_bounded(path, FILE_BYTES_MAX, what)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| HoldError::NotA { what: "a file of readers' keys", path: path.to_owned() })?;
    keys(text).map_err(|(line, found)| {
        let reason = format!(
            "line {line} of {}: {found:?} is not a reader's key (66 hex digits)",
            path.display()
        );
        HoldError::argument("--to-file", reason)
    })
}

/// The keys in a text, one a line; else which line has something else, and what.
fn keys(text: &str) -> Result<Vec<ReaderKey>, (usize, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().zip(1..);
    let lines = lines.map(|(line, number)| {
        (line.split_once('#').map_or(line, |(before, _)| before).trim(), number)
    });
    let keys = lines.filter(|(line, _)| !line.is_empty()).map(|(line, number)| {
        line.parse().map_err(|_| (number, line.chars().take(80).collect::<String>()))
    });
    keys.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const KEY: &str = "0358fed4dc5198ebcb38f1d9ac97e2e47f1d15ae5bf4a41be513b0de8f85e4a017";
    const OTHER: &str = "027f3bfccd51d34a5547d17faf283e95f9504bf22a1b21a2b94bc197bfff8a2457";

    #[test]
    fn whatever_lacks_is_told_beside_what_else_does() {
        let report = ShareReport { shared: 7, failed: 2, untried: 1, unnoted: 7 };
        let told = lacks(10, &report, 3);
        assert_eq!(told.len(), 3);
        assert!(told[0].starts_with("3 of 10") && told[1].starts_with("3 envelopes"), "{told:?}");
        assert_eq!(told[2], super::super::put::UNNOTED);
        assert!(lacks(7, &ShareReport { unnoted: 0, ..report }, 0).is_empty());
    }

    #[test]
    fn a_file_of_keys_has_remarks_and_blank_lines_and_names_its_bad_line() {
        let text = format!("\u{feff}# clinic\r\n\r\n  {KEY}  # Ada\r\n{OTHER}\n{KEY}");
        let read: Vec<_> = keys(&text).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(read, [KEY, OTHER, KEY]);
        assert_eq!(keys(&format!("{KEY}\n\nxyz # no")), Err((3, "xyz".to_owned())));
        assert_eq!(keys(&format!("{KEY} {OTHER}")).unwrap_err().0, 1);
        assert_eq!(keys("# nobody\n"), Ok(Vec::new()));
    }
}
