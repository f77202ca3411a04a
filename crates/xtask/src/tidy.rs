//! What the compiler cannot check: floors, file sizes, module docs, banned terms, the reference.
//!
//! Each rule is a file: it takes the tree and returns findings. A rule that needs an exception names it in its own table,
//! with the reason, so that exceptions are seen in review.

mod floors;
mod promises;
mod reference;
mod sources;
mod terms;

use std::fmt;
use std::path::{Path, PathBuf};

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, relative to the root.
    pub(crate) file: PathBuf,
    /// The line, from 1; 0 where the whole file is meant.
    pub(crate) line: usize,
    /// What is wrong and what to do.
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// Why the tree could not be checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TidyError {
    /// A file or folder could not be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Which.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A manifest is not TOML.
    #[error("{file} is not a manifest: {source}")]
    Manifest {
        /// Which.
        file: PathBuf,
        /// What the parser said.
        source: Box<toml::de::Error>,
    },
}

/// A file of the tree.
pub(crate) struct Source {
    /// Relative to the root.
    pub(crate) path: PathBuf,
    /// Its text.
    pub(crate) text: String,
}

/// Runs all rules over the workspace at `root`.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, TidyError> {
    let mut found = floors::check(root)?;
    let sources = read_sources(root)?;
    found.extend(sources::check(&sources));
    found.extend(terms::check(&sources));
    found.extend(reference::check(&sources));
    found.extend(promises::check(&sources));
    Ok(found)
}

/// All Rust and Markdown files, scripts and Makefiles that git would track, by folder name.
pub(crate) fn read_sources(root: &Path) -> Result<Vec<Source>, TidyError> {
    let mut sources = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in list(&folder)? {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if entry.is_dir() {
                if !name.starts_with('.') && name != "target" && name != "testdata" {
                    folders.push(entry);
                }
            } else if is_source(&name) {
                let text = read(&entry)?;
                let path = entry.strip_prefix(root).unwrap_or(&entry).to_path_buf();
                sources.push(Source { path, text });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// Whether a file's name is one of those that are read; a script has no dot in its name.
fn is_source(name: &str) -> bool {
    let ends = [".rs", ".md", ".proto"].iter().any(|end| name.ends_with(end));
    ends || name == "Makefile" || name.starts_with("shows-")
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, TidyError> {
    let fail = |source| TidyError::Read { file: folder.to_path_buf(), source };
    let entries = std::fs::read_dir(folder).map_err(fail)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(fail)).collect()
}

fn read(file: &Path) -> Result<String, TidyError> {
    std::fs::read_to_string(file)
        .map_err(|source| TidyError::Read { file: file.to_path_buf(), source })
}
