//! `hold completions`: a script that completes verbs and flags in a shell.
//!
//! Made from the same flags as the help. Addresses and keys are not completed: that would ask the
//! keyring or the network at every press of a key.

use std::fmt;

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use serde::Serialize;

use crate::cli::Cli;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::Out;

/// `hold completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell: bash, elvish, fish, powershell or zsh
    #[arg(value_enum, hide_possible_values = true)]
    shell: Shell,
}

/// `hold completions`: the script.
#[derive(Serialize)]
struct Script {
    /// For which shell.
    shell: String,
    /// What its configuration reads.
    script: String,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.script.trim_end())
    }
}

impl Completions {
    /// Prints the script.
    pub(crate) fn run(&self, out: &Out) -> Result<Exit, HoldError> {
        let mut bytes = Vec::new();
        clap_complete::generate(self.shell, &mut offered(), "hold", &mut bytes);
        let script = String::from_utf8_lossy(&bytes).into_owned();
        out.result(&Script { shell: self.shell.to_string(), script })?;
        Ok(Exit::Done)
    }
}

/// The command line without its hidden verbs: the scripts would offer those too.
fn offered() -> Command {
    let whole = Cli::command();
    Command::new("hold")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(whole.get_arguments().cloned())
        .subcommands(whole.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned())
}
