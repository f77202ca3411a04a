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
    let steps = steps(args);
    let rivals = std::env::current_exe()?.with_file_name("../release/rivals");
    for Step { what, args } in steps {
        let mut command = match what {
            What::Cargo => cargo(),
            What::Rivals => Command::new(&rivals),
        };
        let status = command.args(args).current_dir(crate::root()).status()?;
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

/// A program that is run, with its arguments.
struct Step {
    what: What,
    args: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Cargo,
    /// What was built before it. Not by `cargo run`, which takes one package: for `rivals` alone all libraries would be compiled anew,
    /// with fewer features than the measured program has.
    Rivals,
}

/// What is run, one after the other: the program whose processes are measured is built first.
fn steps(args: Vec<OsString>) -> Vec<Step> {
    let words = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
    let cargo = |args: Vec<OsString>| Step { what: What::Cargo, args };
    let beside = args.first().is_none_or(|name| BESIDE.iter().any(|known| name == known));
    if beside {
        let build = words("build --release --package hold --package rivals");
        return vec![cargo(build), Step { what: What::Rivals, args }];
    }
    let mut last = words(&format!("run --quiet --release --package hold -- bench --out {OUT}"));
    last.extend(args);
    vec![cargo(words("build --release --package hold")), cargo(last)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn last(args: &[&str]) -> (What, String) {
        let mut steps = steps(args.iter().map(OsString::from).collect());
        let last = steps.pop().unwrap();
        (last.what, last.args.join(&OsString::from(" ")).to_string_lossy().into_owned())
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
        let rivals = |args: &str| (What::Rivals, args.to_owned());
        assert_eq!(last(&["transfer", "--quick"]), rivals("transfer --quick"));
        assert_eq!(last(&["heads"]), rivals("heads"));
        assert_eq!(last(&[]), rivals(""), "which says what there is");
        let (what, libri) = last(&["libri"]);
        assert_eq!(what, What::Cargo);
        assert!(libri.ends_with("--package hold -- bench --out bench/out libri"), "{libri}");
    }
}
