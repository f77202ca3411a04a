//! `hold man`: the manual pages, one a verb, made from the same flags as the help.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use serde::Serialize;

use crate::cli::Cli;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::out::{Out, PathText};

/// `hold man`.
#[derive(Debug, Args)]
pub(crate) struct ManPages {
    /// Write hold.1 and a page for every verb into this folder; without it hold.1 is printed
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// `hold man` without `--dir`: the page itself.
#[derive(Serialize)]
struct Page {
    /// What `man -l` renders.
    page: String,
}

/// `hold man --dir`: where the pages are.
#[derive(Serialize)]
struct Pages {
    /// The files that were written.
    files: Vec<PathText>,
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.page.trim_end())
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, file) in self.files.iter().enumerate() {
            let line = if number == 0 { "" } else { "\n" };
            write!(f, "{line}{file}")?;
        }
        Ok(())
    }
}

impl ManPages {
    /// Prints or writes the pages.
    pub(crate) fn run(&self, out: &Out) -> Result<Exit, HoldError> {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        let Some(dir) = &self.dir else {
            out.result(&Page { page: String::from_utf8_lossy(&page(&command)?).into_owned() })?;
            return Ok(Exit::Done);
        };
        std::fs::create_dir_all(dir).map_err(HoldError::io("create", dir))?;
        let mut files = Vec::new();
        let mut commands = vec![&command];
        while let Some(command) = commands.pop() {
            let name = command.get_display_name().unwrap_or(command.get_name());
            let file = dir.join(format!("{name}.1"));
            files::replace(&file, &page(command)?, Access::Public)?;
            files.push(file);
            commands.extend(command.get_subcommands().filter(|command| !command.is_hide_set()));
        }
        files.sort();
        out.result(&Pages { files: files.into_iter().map(PathText::from).collect() })?;
        Ok(Exit::Done)
    }
}

/// One page; the version stands in it, no date does: the same program writes the same bytes.
fn page(command: &Command) -> Result<Vec<u8>, HoldError> {
    let mut page = Vec::new();
    let source = format!("holdfast {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).manual("Holdfast").source(source);
    man.render(&mut page).map_err(HoldError::Output)?;
    Ok(page)
}
