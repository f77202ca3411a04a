//! What is left of an answer's bounds while a service's answer is cut to what travels.

use env::calls::BATCH_BYTES_MAX;
use prost::Message;

use crate::limits::BATCH_MESSAGE_BYTES_MAX;
use crate::proto;

/// The tag and the length of an item, and of what it is in.
const AROUND_BYTES: usize = 16;
/// An item that says why it is not there: *busy*, or *later*.
const LEFT_OUT_BYTES: usize = 32;

/// What is left of an answer's bounds.
pub(super) struct Room {
    /// Of records and attestations.
    records: usize,
    /// Of the message.
    message: usize,
}

impl Room {
    /// Of an answer in which so many items are, whatever they say.
    pub(super) fn new(items: usize) -> Self {
        let message = BATCH_MESSAGE_BYTES_MAX.saturating_sub((1 + items) * LEFT_OUT_BYTES);
        Self { records: BATCH_BYTES_MAX, message }
    }

    /// Takes so many bytes of records, in so many of the message, where they are there.
    pub(super) fn take(&mut self, records: usize, encoded: usize) -> bool {
        let left = self.records.checked_sub(records);
        let message = self.message.checked_sub(encoded + AROUND_BYTES);
        let (Some(left), Some(message)) = (left, message) else { return false };
        (self.records, self.message) = (left, message);
        true
    }

    /// Takes a record, as above.
    pub(super) fn record(&mut self, record: &proto::Record) -> bool {
        self.take(record.bytes.len(), record.encoded_len())
    }
}
