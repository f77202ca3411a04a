//! Copies that are finished after the writer got its answer: bounded, and owned by somebody who waits for them.
//!
//! A record whose W copies are durable, or a stripe whose success threshold is, is handed in here with the calls that still run. At most [`BEHIND_MAX`] records with
//! [`BEHIND_BYTES_MAX`] bytes are in here; a writer that finds it full waits, and goes on with its own copies meanwhile, so
//! one slow peer bounds memory, not correctness.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crypto::PeerId;
use env::{Env, Task};
use futures::FutureExt;
use futures::future::{Either, select};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::objects::Putting;
use crate::storing::Storing;
use crate::stripe::StripeStoring;

/// Records whose last copies are being finished behind.
pub const BEHIND_MAX: usize = 1_024;
/// Bytes of those records.
pub const BEHIND_BYTES_MAX: usize = 64 << 20;
/// Bytes one permit stands for.
const PERMIT_BYTES: usize = 1 << 10;

/// How far a record or a stripe has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Copies, or fragments, that are durable.
    pub acked: u32,
    /// Copies wanted (N), or fragments (n).
    pub wanted: u32,
    /// Who has them.
    pub holders: Vec<PeerId>,
    /// Whether nothing more will come.
    pub done: bool,
}

impl Reached {
    /// Whether all copies wanted are durable.
    pub fn is_full(&self) -> bool {
        self.acked >= self.wanted
    }
}

/// The copies of a record that were not durable yet when its writer was answered. Dropping it does not stop them.
#[derive(Clone)]
pub struct Rest {
    env: Env,
    reached: watch::Receiver<Reached>,
}

impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rest({:?})", *self.reached.borrow())
    }
}

impl Rest {
    /// Nothing more will come.
    pub(crate) fn ended(env: Env, reached: Reached) -> Self {
        Self { env, reached: watch::channel(reached).1 }
    }

    /// How far the record has come by now.
    pub fn reached(&self) -> Reached {
        self.reached.borrow().clone()
    }

    /// Waits until nothing more will come, or `limit` has passed, and tells how far the record came. Cancel safe.
    pub async fn wait(&mut self, limit: Duration) -> Reached {
        let env = self.env.clone();
        // An error means that the walker was dropped with work left: what was reached stands.
        let _ = env.within(limit, self.reached.wait_for(|reached| reached.done)).await;
        self.reached()
    }
}

/// What its writer was answered for and is not all durable.
pub(crate) enum Unfinished {
    /// Copies of a record.
    Copies(Box<Storing>),
    /// Fragments of a stripe.
    Stripe(Box<StripeStoring>),
    /// Copies of an object's records.
    Objects(Box<Putting>),
}

impl Unfinished {
    fn wanted(&self) -> u32 {
        match self {
            Self::Copies(storing) => storing.redundancy.copies,
            Self::Stripe(storing) => storing.wanted(),
            Self::Objects(putting) => putting.parcel.redundancy.copies,
        }
    }

    fn holders(&self) -> &[PeerId] {
        match self {
            Self::Copies(storing) => &storing.holders,
            Self::Stripe(storing) => storing.holders(),
            Self::Objects(putting) => &putting.holders,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Copies(storing) => storing.record.bytes.len(),
            Self::Stripe(storing) => storing.bytes(),
            Self::Objects(putting) => putting.parcel.bytes(),
        }
    }

    async fn complete(&mut self, on_holder: impl FnMut(&[PeerId]) + Send) {
        match self {
            Self::Copies(storing) => storing.complete(on_holder).await,
            Self::Stripe(storing) => storing.complete(on_holder).await,
            Self::Objects(putting) => putting.complete(on_holder).await,
        }
    }
}

/// Records being finished.
pub(crate) struct Background {
    env: Env,
    count: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    tasks: Mutex<Running>,
    running: watch::Sender<usize>,
}

#[derive(Default)]
struct Running {
    next: u64,
    tasks: BTreeMap<u64, Task>,
}

impl Background {
    pub(crate) fn new(env: Env) -> Arc<Self> {
        Arc::new(Self {
            env,
            count: Arc::new(Semaphore::new(BEHIND_MAX)),
            bytes: Arc::new(Semaphore::new(BEHIND_BYTES_MAX / PERMIT_BYTES)),
            tasks: Mutex::default(),
            running: watch::channel(0).0,
        })
    }

    /// Takes over a record with its running calls. Where there is no room, its calls go on in here until there is.
    pub(crate) async fn finish(self: &Arc<Self>, mut storing: Unfinished) -> Rest {
        let wanted = storing.wanted();
        let so_far = move |holders: &[PeerId], done: bool| {
            let acked = u32::try_from(holders.len()).unwrap_or(u32::MAX);
            Reached { acked, wanted, holders: holders.to_vec(), done }
        };
        let (tell, reached) = watch::channel(so_far(storing.holders(), false));
        let told = move |holders: &[PeerId], done: bool| {
            tell.send_replace(so_far(holders, done));
        };
        let rest = Rest { env: self.env.clone(), reached };
        let admitted = {
            let bytes = storing.bytes();
            let completed = storing.complete(|holders| told(holders, false));
            futures::pin_mut!(completed);
            // Work that is done without waiting, or while waiting for room, needs no room.
            match select(completed, self.room(bytes).boxed()).await {
                Either::Left(((), _)) => None,
                Either::Right((permits, _)) => Some(permits),
            }
        };
        let Some(permits) = admitted else {
            told(storing.holders(), true);
            return rest;
        };
        self.spawn(async move {
            storing.complete(|holders| told(holders, false)).await;
            told(storing.holders(), true);
            drop(permits);
        });
        rest
    }

    async fn room(&self, bytes: usize) -> [Option<OwnedSemaphorePermit>; 2] {
        let bytes = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        let bytes = bytes.min((BEHIND_BYTES_MAX / PERMIT_BYTES) as u32);
        // They are never closed; a closed one would mean no bound, not no work.
        let count = self.count.clone().acquire_owned().await.ok();
        [count, self.bytes.clone().acquire_many_owned(bytes).await.ok()]
    }

    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.lock();
        let id = running.next;
        running.next += 1;
        // Weak: the set owns the task, so the task must not own the set.
        let set = Arc::downgrade(self);
        let task = self.env.tasks.spawn(Box::pin(async move {
            work.await;
            if let Some(set) = set.upgrade() {
                set.ended(id);
            }
        }));
        running.tasks.insert(id, task);
        self.running.send_modify(|count| *count += 1);
    }

    fn ended(&self, id: u64) {
        if let Some(task) = self.lock().tasks.remove(&id) {
            // It is the task that runs this: dropping its handle would abort it here.
            task.detach();
        }
        self.running.send_modify(|count| *count -= 1);
    }

    /// Waits until nothing is left, at most so long; how many are left then.
    pub(crate) async fn drain(&self, limit: Duration) -> usize {
        let mut running = self.running.subscribe();
        let _ = self.env.within(limit, running.wait_for(|count| *count == 0)).await;
        *self.running.borrow()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Running> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
