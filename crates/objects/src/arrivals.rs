//! Versions that others made, on their way into the store, and those that they stand on and that are not here.
//!
//! A version that comes before its base is taken, and its base must not become a tip when it comes. Two that come at once
//! do not see each other in the index yet. So both kinds are remembered here, and what becomes of one is decided under one
//! lock, behind its write: whoever is second sees the first.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crypto::RecordId;
use foldhash::fast::RandomState;

/// Versions that are waited for at most: about 50 MB.
pub(crate) const AWAITED_MAX: usize = 1 << 20;

pub(crate) struct Arrivals {
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Bases of versions here that are not here themselves.
    pub(crate) awaited: HashSet<RecordId, RandomState>,
    /// Versions in the store that could not be read when it was opened, so that nothing is known of what they stand on.
    pub(crate) unread: HashSet<RecordId, RandomState>,
    /// Versions being written, and by how many.
    arriving: HashMap<RecordId, u32, RandomState>,
}

impl Arrivals {
    pub(crate) fn new(
        awaited: HashSet<RecordId, RandomState>,
        unread: HashSet<RecordId, RandomState>,
    ) -> Self {
        Self { state: Mutex::new(State { awaited, unread, arriving: HashMap::default() }) }
    }

    /// Nothing that can panic half-way through a change runs under the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn awaited(&self) -> u64 {
        self.lock().awaited.len() as u64
    }

    /// Whether no more versions are to be taken that stand on others that are not here.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().awaited.len() >= AWAITED_MAX
    }

    pub(crate) fn is_arriving(&self, h: &RecordId) -> bool {
        self.lock().arriving.contains_key(h)
    }
}

impl State {
    pub(crate) fn begin(&mut self, h: RecordId) {
        *self.arriving.entry(h).or_default() += 1;
    }

    /// It is in the store; whether nobody else said so since it began.
    pub(crate) fn arrived(&mut self, h: &RecordId) -> bool {
        self.arriving.remove(h).is_some()
    }

    /// One that wrote it failed.
    pub(crate) fn failed(&mut self, h: &RecordId) {
        if let Some(count) = self.arriving.get_mut(h) {
            *count -= 1;
            if *count == 0 {
                self.arriving.remove(h);
            }
        }
    }

    pub(crate) fn is_arriving(&self, h: &RecordId) -> bool {
        self.arriving.contains_key(h)
    }
}
