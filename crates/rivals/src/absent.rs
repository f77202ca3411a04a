//! A program that could not be installed: what is asked of it fails with the reason, so that its bars are not measured and those of
//! the others are.

use std::path::Path;
use std::sync::Arc;

use bench::{Bench, Beside, BoxError, Theirs};

use crate::error::RivalError;

/// One that is not there.
pub(crate) struct Absent {
    name: &'static str,
    /// Whether folders of small files are its part, and not one file.
    trees: bool,
    why: Arc<RivalError>,
}

impl Absent {
    pub(crate) fn new(name: &'static str, trees: bool, why: RivalError) -> Self {
        Self { name, trees, why: Arc::new(why) }
    }

    /// Nothing was done, or should have been.
    fn asked(&self, its_part: bool) -> Result<Vec<Theirs>, BoxError> {
        if its_part { Err(Arc::clone(&self.why).into()) } else { Ok(Vec::new()) }
    }
}

impl Beside for Absent {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> &str {
        "not installed"
    }

    fn does(&self) -> &'static str {
        "it could not be installed"
    }

    fn transfer(&mut self, _: &Bench, _: &Path, _: &Path) -> Result<Vec<Theirs>, BoxError> {
        self.asked(!self.trees)
    }

    fn tree(&mut self, _: &Bench, _: &Path, _: &Path) -> Result<Vec<Theirs>, BoxError> {
        self.asked(self.trees)
    }
}
