//! The house's own tools: `cargo xtask tidy` checks what the compiler cannot, `cargo xtask reference` writes
//! the pages that come from the code, `cargo xtask bench` measures beside other programs.
//!
//! The same checks run as a test of this crate, so that `make test` holds the tree to them.

mod bench;
mod reference;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let verb = std::env::args().nth(1);
    match verb.as_deref() {
        Some("tidy") => report(&root()),
        Some("reference") => match reference::write(&root()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        },
        Some("bench") => match bench::run(std::env::args_os().skip(2).collect()) {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                eprintln!("error: cannot start cargo: {error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: cargo xtask tidy | reference | bench NAME");
            ExitCode::from(2)
        }
    }
}

fn report(root: &std::path::Path) -> ExitCode {
    match tidy::check(root) {
        Ok(found) if found.is_empty() => {
            println!("tidy: clean");
            ExitCode::SUCCESS
        }
        Ok(found) => {
            for finding in &found {
                println!("{finding}");
            }
            println!("tidy: {} findings", found.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root: this crate lies two folders below it.
///
/// Cargo says at run time where the crate lies; what was compiled in may name another clone that
/// shares this target folder.
fn root() -> PathBuf {
    let compiled = || env!("CARGO_MANIFEST_DIR").into();
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(compiled)).join("../..")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tree_is_tidy() {
        let found = tidy_findings();
        assert!(found.is_empty(), "cargo xtask tidy:\n{}", found.join("\n"));
    }

    fn tidy_findings() -> Vec<String> {
        let found = crate::tidy::check(&crate::root()).expect("the tree can be read");
        found.iter().map(ToString::to_string).collect()
    }
}
