//! `commands.md`: every verb and flag, as clap has them.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory, Id};

use super::{Cell, MADE};
use crate::cli::Cli;

/// The page.
pub(super) fn page() -> String {
    let mut root = Cli::command().disable_help_subcommand(true).disable_version_flag(true);
    root.build();
    let mut page = format!(
        "{MADE}\n# Commands\n\nResults go to stdout, everything else to stderr. \
        `hold help VERB` says the same.\n\n## Flags of every verb\n"
    );
    arguments(&mut page, root.get_arguments().filter(|arg| arg.is_global_set()));
    verbs(&mut page, &root, "hold", &globals(&root));
    page
}

/// The flags of a command that verbs below it have too.
fn globals(command: &Command) -> Vec<Id> {
    let all = command.get_arguments().filter(|arg| arg.is_global_set());
    all.map(|arg| arg.get_id().clone()).collect()
}

/// Every verb below `command`, each before those below it. What is hidden is left out, and so are flags that were `told` above: those
/// of `command` and of what is above it that count here too.
fn verbs(page: &mut String, command: &Command, path: &str, told: &[Id]) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let path = format!("{path} {}", verb.get_name());
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = write!(page, "\n## {path}\n\n{about}.\n");
        let own = |arg: &&Arg| {
            let is_told = arg.is_global_set() && told.contains(arg.get_id());
            !is_told && !arg.is_hide_set() && arg.get_id() != "help"
        };
        if verb.has_subcommands() {
            let of_all = |arg: &&Arg| own(arg) && arg.is_global_set();
            if verb.get_arguments().any(|arg| of_all(&arg)) {
                page.push_str("\nFlags of every verb below:\n");
                arguments(page, verb.get_arguments().filter(of_all));
            }
            verbs(page, verb, &path, &globals(verb));
            continue;
        }
        let usage = verb.clone().render_usage().to_string();
        let _ = write!(page, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
        if verb.get_arguments().any(|arg| own(&arg)) {
            arguments(page, verb.get_arguments().filter(own));
        }
    }
}

fn arguments<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    page.push_str("\n| argument | meaning |\n|---|---|\n");
    for argument in arguments {
        let _ = writeln!(page, "| {} | {} |", name(argument), Cell(&meaning(argument)));
    }
}

/// `-o`, `--output FILE`, or a positional's name.
fn name(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let value = if argument.get_action().takes_values() { values.join(" ") } else { String::new() };
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    let text = match flags.is_empty() {
        true => value,
        false => format!("{} {value}", flags.join(", ")),
    };
    format!("`{}`", text.trim().replace('|', "\\|"))
}

/// The help, what it may be, its default, and the variable that stands for it.
fn meaning(argument: &Arg) -> String {
    let mut text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let possible = argument.get_possible_values();
    if argument.get_action().takes_values() && !possible.is_empty() {
        let values = possible.iter().map(|value| match value.get_help() {
            Some(help) => format!("`{}`: {help}", value.get_name()),
            None => format!("`{}`", value.get_name()),
        });
        let _ = write!(text, " ({})", values.collect::<Vec<_>>().join("; "));
    }
    let defaults = argument.get_default_values();
    if argument.get_action().takes_values() && !defaults.is_empty() {
        let defaults: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
        let _ = write!(text, " [default: {}]", defaults.join(","));
    }
    if let Some(variable) = argument.get_env() {
        let _ = write!(text, " [{}]", variable.to_string_lossy());
    }
    if argument.is_required_set() && !argument.is_positional() {
        text.push_str(" (needed)");
    }
    text
}
