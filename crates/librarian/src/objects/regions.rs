//! Full regions: the word of this peer that a branch goes on elsewhere.
//!
//! A holder keeps so many bytes of an object at one place, as its policy says or as the peer is set. What is over it is sent to
//! the object's next overflow by a signed redirect; with all of them full here, the object is. A policy with a
//! greater number opens the region again at once, since nothing but the number is compared.
//!
//! Readers must ask the holders of every place in use, so redirects are told with the tips. Those of this run are
//! remembered; those of runs before are taken to be of every place that is at least half full.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use env::calls::CallError;
use env::calls::objects::PutOutcome;
use objects::Objects;
use version::{Hint, ObjectKey, ObjectRecord, Redirect};

use super::ObjectShelf;

/// Objects whose redirects are remembered. Of more, all are forgotten: see above.
const OBJECTS_MAX: usize = 65_536;

/// Redirects of this run.
#[derive(Default)]
pub(super) struct Redirects {
    told: Mutex<HashMap<ObjectKey, Vec<(Hint, Bytes)>>>,
}

impl Redirects {
    fn of(&self, object: &ObjectKey) -> Vec<(Hint, Bytes)> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.get(object).cloned().unwrap_or_default()
    }

    fn put(&self, object: ObjectKey, n: Hint, redirect: Bytes) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= OBJECTS_MAX {
            told.clear();
        }
        let of_object = told.entry(object).or_default();
        if of_object.iter().all(|(hint, _)| *hint != n) {
            of_object.push((n, redirect));
        }
    }
}

/// Bytes of a region that are kept for a version on its way, and given back unless it is stored: whatever ends its put.
pub(super) struct Reserved<'a> {
    objects: &'a Objects,
    object: ObjectKey,
    n: Hint,
    bytes: u64,
}

impl Reserved<'_> {
    /// The version is in the store, which it was not before: they are its own.
    pub(super) fn stored(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.objects.give_back(&self.object, &self.n, self.bytes);
        }
    }
}

impl ObjectShelf {
    /// Keeps so many bytes at a place of an object for a version of it; `None` where they do not fit.
    pub(super) fn reserve(
        &self,
        named: &ObjectRecord,
        object: ObjectKey,
        n: Hint,
        bytes: u64,
    ) -> Option<Reserved<'_>> {
        let fits = self.objects.reserve(&object, &n, bytes, self.region(named));
        fits.then(|| Reserved { objects: &self.objects, object, n, bytes })
    }

    /// Bytes of an object at one place here at most.
    pub(super) fn region(&self, object: &ObjectRecord) -> u64 {
        let said = self.policies.with(object, |policy| policy.region_bytes);
        if said == 0 { self.region_bytes } else { said }
    }

    /// What a writer is told whose version does not fit at `n`.
    pub(super) fn redirected(&self, object: &ObjectKey, n: &Hint) -> Result<PutOutcome, CallError> {
        match self.redirect(object, n) {
            Some(redirect) => {
                self.metrics.objects.redirects.inc();
                Ok(PutOutcome::Redirect(redirect))
            }
            None => Err(CallError::Full),
        }
    }

    /// This peer's word that a branch goes on behind `n`; `None` behind the last.
    fn redirect(&self, object: &ObjectKey, n: &Hint) -> Option<Bytes> {
        let told = self.redirects.of(object);
        if let Some((_, redirect)) = told.into_iter().find(|(hint, _)| hint == n) {
            return Some(redirect);
        }
        let number = n.number(self.suite, object)?;
        let next = Hint::overflow(self.suite, object, number + 1)?;
        let time_ms = self.env.clock.unix_ms();
        let redirect = Redirect::sign(&self.secret, self.network, *object, (*n, next), time_ms);
        let redirect = redirect.encode();
        self.redirects.put(*object, *n, redirect.clone());
        Some(redirect)
    }

    /// The redirects of an object that readers are told.
    pub(super) fn redirects(&self, object: &ObjectKey, named: &ObjectRecord) -> Vec<Bytes> {
        let limit = self.region(named);
        for (n, bytes) in self.objects.regions(object) {
            if bytes >= limit.div_ceil(2) {
                self.redirect(object, &n);
            }
        }
        self.redirects.of(object).into_iter().map(|(_, redirect)| redirect).collect()
    }
}
