//! `cargo xtask bench NAME`: an experiment of a release build, beside other programs where it has such.
//!
//! Those that compare are run by the crate `rivals`, which installs what it compares with; all others
//! are `hold bench NAME` as it is. It is here so that `cargo xtask` itself needs none of that to build.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Command;

/// Experiments that compare with other programs, and the installation of these alone.
const BESIDE: &[&str] = &["transfer", "heads", "install"];
/// Where reports go, from the root.
const OUT: &str = "bench/out";

/// Runs it; the experiment's exit code.
pub(crate) fn run(args: Vec<OsString>) -> io::Result<u8> {
    for step in steps(args) {
        let status = cargo().args(step).current_dir(crate::root()).status()?;
        if !status.success() {
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
        }
    }
    Ok(0)
}

/// Without what cargo says of this package: build scripts of others look at variables of these names (`ring` does), which
/// would have them, and all that needs them, compiled anew from here and again from the command line.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    std::env::vars_os().map(|(name, _)| name).filter(|name| of_package(name)).for_each(|name| {
        cargo.env_remove(name);
    });
    cargo
}

fn of_package(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
}

/// What cargo is run with, one after the other: the program whose processes are measured comes first.
fn steps(args: Vec<OsString>) -> Vec<Vec<OsString>> {
    let words = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
    let beside = args.first().is_none_or(|name| BESIDE.iter().any(|known| name == known));
    let mut last = if beside {
        words("run --quiet --release --package rivals --")
    } else {
        words(&format!("run --quiet --release --package hold -- bench --out {OUT}"))
    };
    last.extend(args);
    vec![words("build --release --package hold"), last]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(args: &[&str]) -> String {
        let steps = steps(args.iter().map(OsString::from).collect());
        let last = steps.last().cloned().unwrap_or_default();
        last.join(&OsString::from(" ")).to_string_lossy().into_owned()
    }

    #[test]
    fn what_cargo_says_of_this_package_is_not_passed_on() {
        let cargo = cargo();
        let removed: Vec<&OsStr> = cargo.get_envs().map(|(name, _)| name).collect();
        assert!(
            removed.contains(&OsStr::new("CARGO_PKG_NAME")),
            "the test's own environment has it"
        );
        assert!(removed.contains(&OsStr::new("CARGO_MANIFEST_DIR")));
        assert!(removed.iter().all(|name| of_package(name)), "{removed:?}");
        assert!(!of_package(OsStr::new("CARGO_TARGET_DIR")));
    }

    #[test]
    fn what_compares_is_run_by_rivals_and_all_else_by_the_program() {
        assert!(last(&["transfer", "--quick"]).ends_with("--package rivals -- transfer --quick"));
        assert!(last(&["heads"]).ends_with("--package rivals -- heads"));
        assert!(last(&["libri"]).ends_with("--package hold -- bench --out bench/out libri"));
        assert!(last(&[]).ends_with("--package rivals --"), "which says what there is");
    }
}
