//! How a put or a get tells how far it is.

use futures::future::{self, BoxFuture};

/// Told of bytes as they pass each stage. Calls come from several threads, are short, and must not block.
pub trait Progress: Send + Sync {
    /// Bytes of plaintext read from the source (put) or written to the sink (get).
    fn content(&self, bytes: u64) {
        let _ = bytes;
    }
    /// Bytes of records sealed (put) or fetched and proven (get).
    fn sealed(&self, bytes: u64) {
        let _ = bytes;
    }
    /// A record was sent to its holders: copies sent, with their bytes in all.
    fn sent(&self, copies: u32, bytes: u64) {
        let _ = (copies, bytes);
    }
    /// A record was acknowledged: copies that are durable, with their bytes in all.
    fn acked(&self, copies: u32, bytes: u64) {
        let _ = (copies, bytes);
    }
    /// All that was told of this content so far counts for nothing: the file had changed since its put was interrupted, and
    /// is read anew from its start.
    fn restarted(&self) {}
    /// All of a put is acknowledged: it is found by its address, whatever becomes of copies that are late. These are waited for
    /// until what this answers ends, or their time is over.
    fn acknowledged(&self) -> BoxFuture<'static, ()> {
        Box::pin(future::pending())
    }
    /// All is acknowledged, and the copies beyond what that takes are waited for.
    fn waiting(&self) {}
    /// The size of the content became known (get, or a put with a size hint), in bytes.
    fn total(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}
