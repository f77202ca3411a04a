//! `cargo xtask reference`: writes `docs/reference/` anew.
//!
//! The program writes the pages of its own tables; `json.md` is made here, from the result types in
//! its sources.

pub(crate) mod json;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the pages are, from the root.
const FOLDER: &str = "docs/reference";
/// The page made here.
pub(crate) const JSON_PAGE: &str = "docs/reference/json.md";

/// Why the pages could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ReferenceError {
    /// The program that writes most of them did not.
    #[error("hold reference did not end well: {0}")]
    Program(std::process::ExitStatus),
    /// It could not be started.
    #[error("cannot start cargo")]
    Start(#[source] std::io::Error),
    /// A source could not be read.
    #[error(transparent)]
    Sources(#[from] crate::tidy::TidyError),
    /// A page could not be written.
    #[error("cannot write {page}")]
    Write {
        /// Which.
        page: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Writes every page.
pub(crate) fn write(root: &Path) -> Result<(), ReferenceError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut hold = Command::new(cargo);
    hold.args(["run", "--quiet", "--package", "hold", "--", "reference", "--quiet", "--dir"]);
    let status = hold.arg(root.join(FOLDER)).current_dir(root).status();
    let status = status.map_err(ReferenceError::Start)?;
    if !status.success() {
        return Err(ReferenceError::Program(status));
    }
    let page = root.join(JSON_PAGE);
    let text = json::page(&crate::tidy::read_sources(root)?);
    std::fs::write(&page, text).map_err(|source| ReferenceError::Write { page, source })
}
