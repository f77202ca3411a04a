//! Signs versions that were made here: many with one signature.
//!
//! A signature takes 30 us, a version a few, so versions are attested up to a second after they are in the log, or when there are as many as
//! one attestation takes. What a killed process had not attested yet is not: its versions are whole, and who wrote them, nobody
//! can tell before somebody with the key looks for them and calls [`Attesting::attest`].

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crypto::{NetworkId, RecordId, SecretKey, Suite};
use futures::executor::block_on;
use store::Durability;
use version::BatchAttester;

use crate::{Objects, ObjectsError};

/// Commits that wait to be attested at most.
const WAITING_MAX: usize = 4096;
/// How long a version waits for others.
const EVERY: Duration = Duration::from_secs(1);

/// Under which key, and where to.
#[derive(Clone)]
pub struct Attesting {
    /// The objects whose versions they are.
    pub objects: Arc<Objects>,
    /// The network's suite.
    pub suite: Suite,
    /// The network.
    pub network: NetworkId,
    /// The author.
    pub author: SecretKey,
    /// The version of the policy that it writes under.
    pub policy_version: u64,
}

impl Attesting {
    /// Attests on a thread of its own what is sent, until nobody can send any more.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(self) -> io::Result<(SyncSender<Vec<RecordId>>, JoinHandle<()>)> {
        let (send, receive) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("attest".to_owned());
        let thread = thread.spawn(move || self.run(&receive));
        Ok((send, thread?))
    }

    fn begin(&self) -> BatchAttester {
        BatchAttester::new(self.suite, self.network, self.policy_version)
    }

    fn run(&self, made: &Receiver<Vec<RecordId>>) {
        let mut batch = self.begin();
        let mut due = Instant::now() + EVERY;
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            let got = made.recv_timeout(if batch.is_empty() { EVERY } else { wait });
            let ended = matches!(got, Err(RecvTimeoutError::Disconnected));
            if batch.is_empty() {
                due = Instant::now() + EVERY;
            }
            for h in got.unwrap_or_default() {
                self.add(&mut batch, &h).into_iter().for_each(|full| self.keep_here(full));
            }
            if ended || Instant::now() >= due {
                self.keep_here(std::mem::replace(&mut batch, self.begin()));
            }
            if ended {
                return;
            }
        }
    }

    /// Adds a version; gives the batch before where that was full.
    fn add(&self, batch: &mut BatchAttester, h: &RecordId) -> Option<BatchAttester> {
        if batch.add(h).is_ok() {
            return None;
        }
        let full = std::mem::replace(batch, self.begin());
        let added = batch.add(h);
        debug_assert!(added.is_ok(), "it was empty");
        Some(full)
    }

    /// Attests versions that are in the log, now.
    ///
    /// # Errors
    /// [`ObjectsError::Store`]; some of them may be attested then.
    pub async fn attest(&self, versions: &[RecordId]) -> Result<(), ObjectsError> {
        let mut batch = self.begin();
        for h in versions {
            if let Some(full) = self.add(&mut batch, h) {
                self.keep(full).await?;
            }
        }
        self.keep(batch).await
    }

    fn keep_here(&self, batch: BatchAttester) {
        let versions = batch.len();
        if let Err(error) = block_on(self.keep(batch)) {
            tracing::warn!(%error, versions, "versions are not attested");
        }
    }

    /// Signs, and puts the attestation beside the versions.
    async fn keep(&self, batch: BatchAttester) -> Result<(), ObjectsError> {
        let Some(record) = batch.finish(self.suite, &self.author) else { return Ok(()) };
        let mut batch = self.objects.batch();
        batch.add(record.clone());
        batch.commit(Some(Durability::EverySecond)).await?;
        self.objects.tell_beside(&record);
        Ok(())
    }
}
