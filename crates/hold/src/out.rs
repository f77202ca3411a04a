//! What a run prints: results on stdout, everything else on stderr, each result as text or JSON.
//!
//! A result is one type that both serialises and displays, so the two forms cannot drift apart.
//! A reader of a pipe that goes away is no error of ours: what it did not want is dropped. But what was
//! made in the network and is told nowhere else is not ([`Out::deliver`]).

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crypto::genesis::hides;

use crate::environment;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::{logging, platform};

/// A path in a result. One that is no UTF-8 has replacement characters, in text and in JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct PathText(String);

impl<P: AsRef<Path>> From<P> for PathText {
    fn from(path: P) -> Self {
        Self(path.as_ref().to_string_lossy().into_owned())
    }
}

impl Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Plain(&self.0).fmt(f)
    }
}

/// A name from outside as a terminal may have it: what would make it look like another is escaped.
pub(crate) struct Plain<'a>(pub(crate) &'a str);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match hides(letter) {
                true => write!(f, "{}", letter.escape_default())?,
                false => write!(f, "{letter}")?,
            }
        }
        Ok(())
    }
}

/// Where results and notes go, and in which form.
#[derive(Debug)]
pub(crate) struct Out {
    json: bool,
    quiet: bool,
    colour: bool,
    /// Results go to stderr: stdout carries the content itself (`get -o -`).
    diverted: AtomicBool,
}

/// `hold` with `--json`, any verb that fails: one line on stderr.
#[derive(Serialize)]
struct ErrorObject<'a> {
    /// What failed.
    error: &'a str,
    /// Why, the nearest cause first.
    causes: &'a [String],
    /// What kind of failure it is: the name of the exit code.
    class: &'static str,
    /// The exit code.
    exit: u8,
    /// What helps, or null.
    hint: Option<&'a str>,
}

/// `hold` with `--json`, any verb that warns: one line on stderr.
#[derive(Serialize)]
struct WarningObject<'a> {
    /// What did not stop the verb.
    warning: &'a str,
}

impl Out {
    /// For these flags; colour where stderr is a terminal and `NO_COLOR` is not set.
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        let plain = environment::value("NO_COLOR").is_some();
        let colour = !plain && io::stderr().is_terminal();
        Self { json, quiet, colour, diverted: AtomicBool::new(false) }
    }

    /// Whether results are JSON.
    pub(crate) const fn json(&self) -> bool {
        self.json
    }

    /// Whether a person watches: progress bars make sense.
    pub(crate) fn watched(&self) -> bool {
        !self.quiet && !self.json && io::stderr().is_terminal()
    }

    /// From now on results go to stderr, because stdout carries content.
    pub(crate) fn divert(&self) {
        self.diverted.store(true, Ordering::Relaxed);
    }

    /// Prints a result: one JSON object on one line, or its text.
    ///
    /// # Errors
    /// Where the output cannot be written; a closed pipe is none.
    pub(crate) fn result<T: Serialize + Display>(&self, result: &T) -> Result<(), HoldError> {
        self.follow(result).map(drop)
    }

    /// As [`Out::result`], of a verb that goes on until it is stopped: whether there still is somebody who reads.
    ///
    /// # Errors
    /// Where the output cannot be written; a closed pipe is none.
    pub(crate) fn follow<T: Serialize + Display>(&self, result: &T) -> Result<bool, HoldError> {
        match self.write(&self.line(result)?) {
            Ok(()) => Ok(true),
            Err(source) if source.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(source) => Err(HoldError::Output(source)),
        }
    }

    /// Whether what is [delivered](Out::deliver) has somewhere to go: asked before it is made.
    ///
    /// # Errors
    /// Where standard output is closed.
    pub(crate) fn can_deliver(&self) -> Result<(), HoldError> {
        match self.diverted.load(Ordering::Relaxed) {
            true => Ok(()),
            false => platform::stdout_is_open().map_err(HoldError::Output),
        }
    }

    /// As [`Out::result`], of what nobody can find again who does not read it, such as an address: where the line is not taken it goes
    /// to stderr, and that is an error.
    ///
    /// # Errors
    /// Where the output cannot be written, a closed pipe too.
    pub(crate) fn deliver<T: Serialize + Display>(&self, result: &T) -> Result<(), HoldError> {
        let line = self.line(result)?;
        self.write(&line).map_err(|source| {
            aside(&line);
            HoldError::Output(source)
        })
    }

    fn write(&self, line: &str) -> io::Result<()> {
        if self.diverted.load(Ordering::Relaxed) {
            write_line(&mut io::stderr().lock(), line)
        } else {
            write_line(&mut io::stdout().lock(), line)
        }
    }

    /// A result in the form that this run prints: one JSON object, or its text.
    pub(crate) fn line<T: Serialize + Display>(&self, result: &T) -> Result<String, HoldError> {
        if self.json {
            return serde_json::to_string(result).map_err(HoldError::Json);
        }
        Ok(result.to_string())
    }

    /// Tells what is going on, to people alone.
    pub(crate) fn note(&self, text: impl Display) {
        if !self.quiet && !self.json {
            aside(&text.to_string());
        }
    }

    /// Warns of something that did not stop the verb; not where results and errors alone are wanted.
    pub(crate) fn warn(&self, text: impl Display) {
        if self.quiet {
            return;
        }
        let text = text.to_string();
        if self.json {
            let object = serde_json::to_string(&WarningObject { warning: &text });
            aside(&object.unwrap_or_default());
        } else {
            self.labelled("warning", "33", &text);
        }
    }

    /// Prints an error: its line, the chain of causes, the command that helps.
    pub(crate) fn error(&self, error: &HoldError) {
        let exit = error.exit();
        if exit == Exit::Interrupted && !self.json {
            return self.labelled("interrupted", "33", "stopped before it was done");
        }
        let (message, causes) = chain(error);
        let hint = error.hint();
        if self.json {
            return self.error_object(&message, &causes, exit, hint.as_deref());
        }
        self.labelled("error", "31", &message);
        for cause in &causes {
            aside(&format!("  because: {}", Plain(cause)));
        }
        if let Some(hint) = hint {
            self.labelled("hint", "36", &hint);
        }
    }

    /// Prints an error that the flags' parser found, in the JSON form.
    pub(crate) fn usage_error(&self, message: &str) {
        let hint = "hold help";
        self.error_object(message, &[], Exit::Invalid, Some(hint));
    }

    fn error_object(&self, message: &str, causes: &[String], exit: Exit, hint: Option<&str>) {
        let (class, exit) = (exit.class_name(), exit.code());
        let object = ErrorObject { error: message, causes, class, exit, hint };
        aside(&serde_json::to_string(&object).unwrap_or_default());
    }

    /// Names in it may be anybody's: a terminal gets no control characters of theirs.
    fn labelled(&self, label: &str, code: &str, text: &str) {
        let text = Plain(text);
        let line = if self.colour {
            format!("\u{1b}[1;{code}m{label}:\u{1b}[0m {text}")
        } else {
            format!("{label}: {text}")
        };
        aside(&line);
    }
}

/// A line on stderr that is no result. What serves others waits for nobody who reads it: there it goes the way of the log.
fn aside(line: &str) {
    if !logging::took(line) {
        let _ = write_line(&mut io::stderr().lock(), line);
    }
}

fn write_line(to: &mut impl Write, line: &str) -> io::Result<()> {
    to.write_all(line.as_bytes())?;
    to.write_all(b"\n")?;
    to.flush()
}

/// An error and its causes on one line: for one of several things that failed, and for a log.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    let (message, causes) = chain(error);
    [&[message][..], &causes].concat().join(": ")
}

/// An error's own line and those of its causes; a cause that only repeats the line before is left.
fn chain(error: &dyn std::error::Error) -> (String, Vec<String>) {
    let message = error.to_string();
    let mut causes: Vec<String> = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if causes.last().unwrap_or(&message) != &text {
            causes.push(text);
        }
        source = cause.source();
    }
    (message, causes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_lists_each_cause_once() {
        let source = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let error = HoldError::Io { action: "read", path: "a/b".into(), source };
        let (message, causes) = chain(&error);
        assert_eq!(message, "cannot read a/b");
        assert_eq!(causes, ["no such file"]);
        assert_eq!(one_line(&error), "cannot read a/b: no such file");
    }
}
