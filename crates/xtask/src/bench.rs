//! `cargo xtask bench NAME`: an experiment of a release build, beside other programs where it has such.
//!
//! Those that compare are run by the crate `rivals`, which installs what it compares with; all others
//! are `hold bench NAME` as it is. It is here so that `cargo xtask` itself needs none of that to build.

use std::ffi::OsString;
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

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
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
    fn what_compares_is_run_by_rivals_and_all_else_by_the_program() {
        assert!(last(&["transfer", "--quick"]).ends_with("--package rivals -- transfer --quick"));
        assert!(last(&["heads"]).ends_with("--package rivals -- heads"));
        assert!(last(&["libri"]).ends_with("--package hold -- bench --out bench/out libri"));
        assert!(last(&[]).ends_with("--package rivals --"), "which says what there is");
    }
}
