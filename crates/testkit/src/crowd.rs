//! A machine that many more programs want, until told otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::{Env, Task, Tasks};
use futures::future::BoxFuture;

/// Tells when the crowd is gone. Clones are of one machine.
#[derive(Clone, Debug)]
pub struct Crowd(Arc<AtomicBool>);

impl Crowd {
    /// The same surroundings on a machine that is crowded.
    pub fn around(env: &Env) -> (Env, Self) {
        let crowd = Self(Arc::new(AtomicBool::new(true)));
        let tasks = Arc::new(Crowded(Arc::clone(&env.tasks), crowd.clone()));
        (Env { tasks, ..env.clone() }, crowd)
    }

    /// From now on it is crowded no more.
    pub fn leave(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

struct Crowded(Arc<dyn Tasks>, Crowd);

impl Tasks for Crowded {
    fn spawn(&self, work: BoxFuture<'static, ()>) -> Task {
        self.0.spawn(work)
    }

    fn cpu(&self, work: Box<dyn FnOnce() + Send>) {
        self.0.cpu(work);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.0.blocking(work);
    }

    fn parallelism(&self) -> usize {
        self.0.parallelism()
    }

    fn crowded(&self) -> bool {
        self.1.0.load(Ordering::Relaxed)
    }
}
