//! Sharing: the key of a content that this user can open, sealed to one more reader.

use std::sync::Arc;
use std::time::Duration;

use crypto::{ReaderKey, RecordId};

use crate::author::Author;
use crate::error::{AuthorError, Part};
use crate::progress::NoProgress;
use crate::spread::{Outgoing, Spread};

/// How long a share waits, after it is acknowledged, for all copies of its envelope.
pub const SHARE_WAIT: Duration = Duration::from_secs(2);

impl Author {
    /// Seals the key of the content at `address` to a reader, and stores that envelope; answers with its key.
    ///
    /// Whoever holds an envelope may share on: the user need not be the content's author. Nothing but the envelope is
    /// stored, under an author key used for it alone. Sharing twice makes two envelopes.
    ///
    /// # Errors
    /// [`AuthorError::NotForUs`], [`AuthorError::Fetch`], [`AuthorError::Store`].
    pub async fn share(
        &self,
        address: RecordId,
        reader: ReaderKey,
    ) -> Result<RecordId, AuthorError> {
        let opened = self.open(address).await?;
        let issued = self.issue(1).await?.pop().ok_or(AuthorError::Stopped)?;
        let record = self.seal_envelope(issued, &reader, opened.envelope.entry, &opened.eek);
        let id = record.id;
        let mut spread = Spread::new(self, Arc::new(NoProgress));
        spread.all([Outgoing { part: Part::Envelope, record, lease: None }]).await?;
        spread.settle(SHARE_WAIT).await?;
        Ok(id)
    }
}
