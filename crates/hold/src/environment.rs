//! Every variable of the environment that the program and its tests read.
//!
//! The table is the reference's; `cargo xtask tidy` fails for a `HOLD_` name in any source that the
//! page made from it does not have.

use std::ffi::{OsStr, OsString};

/// Who reads a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// `hold`, of its own.
    Hold,
    /// `hold`, as other programs do.
    Others,
    /// The tests and the build alone.
    Tests,
}

/// One variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variable {
    /// Its name.
    pub(crate) name: &'static str,
    /// Who reads it.
    pub(crate) read_by: For,
    /// What it does.
    pub(crate) meaning: &'static str,
}

const fn variable(read_by: For, name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, read_by, meaning }
}

/// What a variable is set to. One that is set to nothing is not set: whoever writes `HOLD_VIA=` into a file of them means that.
pub(crate) fn value(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether a variable is set to nothing.
pub(crate) fn is_empty(name: &OsStr) -> bool {
    std::env::var_os(name).is_some_and(|value| value.is_empty())
}

/// Every variable.
pub(crate) const VARIABLES: &[Variable] = &[
    variable(
        For::Hold,
        "HOLD_HOME",
        "Where this user's keyring and settings are, `--home`. Else `~/.holdfast`.",
    ),
    variable(
        For::Hold,
        "HOLD_VIA",
        "Librarians to ask, `--via`: `HOST:PORT`, with commas between. Else `via` in `holdfast.toml`.",
    ),
    variable(
        For::Hold,
        "HOLD_THIN",
        "`1`, `true` or `yes` lets one librarian of `--via` do the walking, `--thin`; where it is `0`, `false`, `no` or not set, \
         `thin` in `holdfast.toml` says it.",
    ),
    variable(
        For::Hold,
        "HOLD_NETWORK",
        "The genesis file. Else `network` in `holdfast.toml`, else the file `network` in the home.",
    ),
    variable(
        For::Hold,
        "HOLD_ORG",
        "The organisation's directory whose key mints this client's passes. Else `org` in \
         `holdfast.toml`.",
    ),
    variable(
        For::Hold,
        "HOLD_PASSPHRASE",
        "The keyring's passphrase. Other programs of this user can see it: a file is better.",
    ),
    variable(
        For::Hold,
        "HOLD_PASSPHRASE_FILE",
        "A file with the keyring's passphrase, `--passphrase-file`. Comes before HOLD_PASSPHRASE.",
    ),
    variable(
        For::Hold,
        "HOLD_LOG",
        "What is logged to stderr: `error`, `warn`, `info`, `debug` or `trace`, also for one \
         part (`info,libp2p=warn`). Else errors for a verb and `info` for a peer.",
    ),
    variable(
        For::Hold,
        "HOLD_LOG_JSON",
        "`1`, `true` or `yes`: logs are JSON lines, `--log-json`; `0`, `false` or `no`: they are not.",
    ),
    variable(
        For::Hold,
        "HOLD_COMMIT",
        "The program's commit in a report of `hold bench`. Else git of the current folder.",
    ),
    variable(For::Others, "HOME", "Where `~` is."),
    variable(For::Others, "NO_COLOR", "Not empty: no colours."),
    variable(For::Others, "COLUMNS", "How wide help is, at most 100."),
    variable(
        For::Others,
        "TMPDIR",
        "Where `hold demo` and `hold up` without `--dir` put their files.",
    ),
    variable(
        For::Tests,
        "HOLD_SHOWS_FULL",
        "`1`: tests run at the size of the promise, as `make shows-NAME` does.",
    ),
    variable(For::Tests, "HOLD_SHOWS_SEED", "The seed of which peers a test kills: what it told."),
    variable(For::Tests, "HOLD_UPDATE_SNAPSHOTS", "`1`: the help's snapshot is written anew."),
    variable(
        For::Tests,
        "HOLD_GOLDEN",
        "`update`: golden files are written instead of compared, on purpose.",
    ),
    variable(
        For::Tests,
        "HOLD_SIM_SEEDS",
        "How many seeds the simulation's test runs: `cargo test -p sim --test seeds`.",
    ),
    variable(For::Tests, "HOLD_SIM_START", "The first of them, 0 unless it is said."),
    variable(For::Tests, "HOLD_SIM_SEED", "The one seed that it runs, with all that happens."),
    variable(For::Tests, "HOLD_SIM_THREADS", "On how many threads, all cores unless it is said."),
    variable(For::Tests, "HOLD_FUZZ_SEED", "The seed of the random inputs of the fuzz targets."),
    variable(For::Tests, "HOLD_FUZZ_CASES", "How many random inputs each fuzz target gets."),
];
