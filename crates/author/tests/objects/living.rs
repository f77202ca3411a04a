//! Counts the versions in memory at once, of those that keepers answered with.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use document::Record;
use env::calls::objects::ObjectsAnswer;

use crate::keeper::Lie;
use crate::stage::Stage;

/// The versions that somebody still has something of, now and at most.
#[derive(Default)]
pub(crate) struct Living {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A record's bytes, counted until nobody has any of them.
struct Counted {
    bytes: Bytes,
    living: Arc<Living>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.living.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Living {
    /// Counts what the stage's keepers answer from now on.
    pub(crate) fn of(stage: &Stage) -> Arc<Self> {
        let living = Arc::new(Self::default());
        let counting = living.clone();
        let answered: Lie = Arc::new(move |mut answer| {
            match &mut answer {
                ObjectsAnswer::Get(found) => {
                    for found in found.iter_mut().flatten().flatten() {
                        counting.count(&mut found.record);
                    }
                }
                ObjectsAnswer::Previous(found) => {
                    found.records.iter_mut().for_each(|record| counting.count(record));
                }
                _ => {}
            }
            answer
        });
        stage.keepers.iter().for_each(|keeper| keeper.lies(Some(answered.clone())));
        living
    }

    fn count(self: &Arc<Self>, record: &mut Record) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let counted = Counted { bytes: record.bytes.clone(), living: self.clone() };
        record.bytes = Bytes::from_owner(counted);
    }

    /// The most that there were at once.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}
