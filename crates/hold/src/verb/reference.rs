//! `hold reference`, a hidden verb: writes the pages of `docs/reference/` that come from this program.
//!
//! Each page is made from the table that the program works by, so it cannot say anything else.
//! `cargo xtask reference` runs it; a test compares the pages with those in the tree.

mod commands;
mod configuration;

use std::fmt::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::environment::{For, VARIABLES};
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::out::{Out, PathText};

/// What each page begins with.
const MADE: &str =
    "<!-- Made by `cargo xtask reference`: change the table in the code, not this page. -->";

/// `hold reference`.
#[derive(Debug, Args)]
pub(crate) struct Reference {
    /// The folder the pages go to
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// `hold reference`: where the pages are.
#[derive(Serialize)]
struct Written {
    /// The files that were written.
    files: Vec<PathText>,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.files.len())
    }
}

impl Reference {
    /// Writes every page.
    pub(crate) fn run(&self, out: &Out) -> Result<Exit, HoldError> {
        std::fs::create_dir_all(&self.dir).map_err(HoldError::io("create", &self.dir))?;
        let pages = [
            ("commands.md", commands::page()),
            ("configuration.md", configuration::page()),
            ("environment.md", environment()),
            ("exit-codes.md", exit_codes()),
        ];
        let mut files = Vec::new();
        for (name, text) in pages {
            let file = self.dir.join(name);
            files::replace(&file, text.as_bytes(), Access::Public)?;
            files.push(file.into());
        }
        out.result(&Written { files })?;
        Ok(Exit::Done)
    }
}

/// A text in a cell of a table.
struct Cell<'a>(&'a str);

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, word) in self.0.split_whitespace().enumerate() {
            let space = if number == 0 { "" } else { " " };
            write!(f, "{space}{}", word.replace('|', "\\|").replace('<', "&lt;"))?;
        }
        Ok(())
    }
}

/// Writing into a `String` does not fail: its result is dropped in this module's pages.
fn environment() -> String {
    let mut page = format!(
        "{MADE}\n# Environment\n\nFlags come first, \
        then the environment, then `holdfast.toml`. A variable that is set to nothing counts as one that is not set.\n"
    );
    let parts = [
        (For::Hold, "Read by `hold`"),
        (For::Others, "Read by `hold` as by other programs"),
        (For::Tests, "Read by the tests"),
    ];
    for (read_by, title) in parts {
        let _ = write!(page, "\n## {title}\n\n| variable | meaning |\n|---|---|\n");
        for variable in VARIABLES.iter().filter(|variable| variable.read_by == read_by) {
            let _ = writeln!(page, "| `{}` | {} |", variable.name, Cell(variable.meaning));
        }
    }
    page
}

fn exit_codes() -> String {
    let mut page = format!(
        "{MADE}\n# Exit codes\n\nA contract: a script may rely on them. With `--json` an error is one \
        line on stderr with `exit` and `class` (see [json.md](json.md)).\n\n\
        | code | class | meaning | what to do |\n|---|---|---|---|\n"
    );
    for exit in Exit::ALL {
        let (code, class) = (exit.code(), exit.class_name());
        let (meaning, help) = (Cell(exit.meaning()), Cell(exit.help()));
        let _ = writeln!(page, "| {code} | `{class}` | {meaning} | {help} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn tables_list_each_name_once_and_the_help_has_every_code() {
        let names: BTreeSet<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
        assert_eq!(names.len(), VARIABLES.len());
        let codes: BTreeSet<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert_eq!(codes.len(), Exit::ALL.len());
        let help = crate::cli::Cli::command().render_long_help().to_string();
        let help = help.split_once("Exit codes:").expect("the help tells the codes").1;
        let numbers =
            help.split(|c: char| !c.is_ascii_digit()).filter_map(|text| text.parse().ok());
        assert_eq!(numbers.collect::<BTreeSet<u8>>(), codes);
    }

    #[test]
    fn a_cell_keeps_its_table() {
        assert_eq!(Cell(" a |\n  b <C> ").to_string(), "a \\| b &lt;C>");
    }
}
