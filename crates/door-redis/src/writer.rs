//! The thread that writes one batch while the door makes the next.
//!
//! It has one batch at a time: the door waits for the last one before it hands over the next. So batches are written in
//! the order in which they were made, and of those not written there are two at most.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use objects::{Event, Flight, ObjectsError};
use store::Durability;

type Told = Arc<Vec<Event>>;

/// The thread, at rest or with one batch.
#[derive(Debug)]
pub(crate) struct Writer {
    /// `None` once it is to end.
    batches: Option<SyncSender<Flight>>,
    written: Receiver<Result<Told, ObjectsError>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts it; its batches are written as `durability` says.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn start(durability: Option<Durability>) -> io::Result<Self> {
        let (batches, waiting) = sync_channel::<Flight>(1);
        let (done, written) = sync_channel(1);
        let thread =
            std::thread::Builder::new().name("door-writer".to_owned()).spawn(move || {
                for flight in waiting {
                    if done.send(flight.write(durability)).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self { batches: Some(batches), written, thread: Some(thread) })
    }

    /// Hands it a batch. The one before is to be waited for first.
    pub(crate) fn begin(&self, flight: Flight) {
        // Where the thread is gone, whoever waits for the batch is told so.
        let _ = self.batches.as_ref().map(|batches| batches.send(flight));
    }

    /// Waits until its batch is written; `None` where the thread has ended, which it does by itself only with a panic.
    ///
    /// # Errors
    /// Of the write.
    pub(crate) fn land(&self) -> Option<Result<Told, ObjectsError>> {
        self.written.recv().ok()
    }

    /// One whose thread has ended.
    #[cfg(test)]
    pub(crate) fn ended() -> Self {
        let ((batches, _), (_, written)) = (sync_channel(1), sync_channel(1));
        Self { batches: Some(batches), written, thread: None }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the door's batches ended with a panic");
        }
    }
}
