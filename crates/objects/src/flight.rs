//! A batch on its way into the log, for the thread that writes it.
//!
//! Making versions and writing them take about the same time, so one thread makes the next batch while another writes the
//! last. Nobody is told of a version before it is written; what the next batch needs of those on their way it is given by
//! [`Batch::begin`].
//!
//! [`Batch::begin`]: crate::Batch::begin

use std::sync::Arc;

use document::Record;
use store::{Durability, Kept};

use crate::batch::{Told, Versions};
use crate::objects::Event;
use crate::{Objects, ObjectsError};

/// Versions to be written together, or none of them. Dropped, nothing of it was done.
#[must_use = "nothing is written before `write`"]
pub struct Flight {
    objects: Arc<Objects>,
    kept: Vec<Kept>,
    cached: Vec<Record>,
    versions: Arc<Versions>,
}

impl Flight {
    pub(crate) fn new(
        objects: Arc<Objects>,
        kept: Vec<Kept>,
        cached: Vec<Record>,
        versions: Arc<Versions>,
    ) -> Self {
        Self { objects, kept, cached, versions }
    }

    /// Writes all of it on the calling thread, which waits, as [`crate::Batch::commit_here`] does.
    ///
    /// # Errors
    /// As [`crate::Batch::commit`].
    pub fn write(self, durability: Option<Durability>) -> Result<Arc<Vec<Event>>, ObjectsError> {
        let Self { objects, kept, cached, versions } = self;
        if kept.is_empty() {
            return Ok(Arc::<Told>::default());
        }
        let new = objects.store.put_here(kept, durability)?;
        Ok(versions.done(&objects, cached, &new))
    }
}

impl std::fmt::Debug for Flight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Flight({} records)", self.kept.len())
    }
}
