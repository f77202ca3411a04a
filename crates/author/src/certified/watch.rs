//! Watching a head: what it is at, and again whenever it moved.

use std::time::Duration;

use committee::entry::HeadEntry;
use version::ObjectKey;

use super::{Certified, CertifiedError, CertifiedHeads};

/// How often a member is asked: a committee at rest makes a block a second.
const EVERY: Duration = Duration::from_secs(1);

/// A watch of one branch. Each member is believed for what it proves alone, and another one is asked each time.
pub struct CertifiedWatch {
    heads: CertifiedHeads,
    object: ObjectKey,
    branch: Box<str>,
    before: Option<Option<HeadEntry>>,
}

impl CertifiedHeads {
    /// Watches a branch.
    pub fn watch(&self, object: &ObjectKey, branch: &str) -> CertifiedWatch {
        let (heads, object) = (self.clone(), *object);
        CertifiedWatch { heads, object, branch: branch.into(), before: None }
    }
}

impl CertifiedWatch {
    /// What the branch is at, the first time at once, then when it is at something else. Heights never go back.
    ///
    /// Cancel safe: nothing is missed but what the head was at in between.
    ///
    /// # Errors
    /// As [`CertifiedHeads::read`]; it can be gone on after an error.
    pub async fn next(&mut self) -> Result<Certified, CertifiedError> {
        loop {
            if self.before.is_some() {
                self.heads.env().clock.sleep(EVERY).await;
            }
            let now = self.heads.read(&self.object, &self.branch).await?;
            if self.before.as_ref() != Some(&now.head.head) {
                self.before = Some(now.head.head.clone());
                return Ok(now);
            }
        }
    }
}
