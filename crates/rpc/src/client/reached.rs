//! Which of a peer's addresses leads to it: one may be of a network that this side is not in.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use env::calls::{CallError, Endpoint};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::connection::connect;
use crate::socket::{BESIDE_AFTER, Dial, Tcp};

/// Addresses of a peer that one dial tries; a call that fails has the next dial begin at the next one.
const ADDRESSES_MAX: usize = 4;
/// How much later the next address is tried where somebody took the connection, who may be far away or another.
const PROVEN_AFTER: Duration = Duration::from_secs(2);
/// Peers whose address is remembered; of more all are forgotten, and found again.
const REMEMBERED_MAX: usize = 1024;

/// The address at which each peer of several answered last.
#[derive(Default)]
pub(super) struct Reached(Mutex<HashMap<Endpoint, String>>);

impl Reached {
    fn lock(&self) -> MutexGuard<'_, HashMap<Endpoint, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer at each of its addresses, the one at which it answered last first.
    fn each(&self, to: &Endpoint) -> VecDeque<Endpoint> {
        let last = self.lock().get(to).cloned();
        let all = [&to.address].into_iter().chain(&to.further);
        let rest = all.filter(|address| Some(*address) != last.as_ref()).cloned();
        let all: Vec<String> = last.clone().into_iter().chain(rest).take(ADDRESSES_MAX).collect();
        let one = |address| Endpoint { peer: to.peer, address, further: Vec::new() };
        all.into_iter().map(one).collect()
    }

    fn note(&self, to: &Endpoint, at: String) {
        let mut all = self.lock();
        if all.len() >= REMEMBERED_MAX && !all.contains_key(to) {
            all.clear();
        }
        all.insert(to.clone(), at);
    }

    /// What `proven` makes of the connection that it takes first. The next address is tried once one failed, or beside those before: a
    /// little after a dial that came to nothing yet, and later where somebody took the connection. The caller bounds the time.
    ///
    /// # Errors
    /// That of the endpoint's own address; of another one where that was not tried.
    pub(super) async fn dial<T, F>(
        &self,
        through: Option<&dyn Dial>,
        to: &Endpoint,
        proven: impl Fn(Tcp, Endpoint) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        if to.further.is_empty() {
            return proven(connect(through, to).await?, to.clone()).await;
        }
        let (mut left, mut tries, mut failed) = (self.each(to), FuturesUnordered::new(), None);
        let mut taken = Arc::new(AtomicBool::new(false));
        loop {
            if let Some(at) = left.pop_front() {
                taken = Arc::default();
                let (taken, proven) = (taken.clone(), &proven);
                tries.push(async move {
                    let dialled = async {
                        let tcp = connect(through, &at).await?;
                        taken.store(true, Ordering::Relaxed);
                        proven(tcp, at.clone()).await
                    };
                    let dialled = dialled.await;
                    (at.address, dialled)
                });
            } else if tries.is_empty() {
                let reason = "it says no address".to_owned();
                let nowhere = CallError::Unreachable { address: to.address.clone(), reason };
                return Err(failed.unwrap_or(nowhere));
            }
            let late = async {
                tokio::time::sleep(BESIDE_AFTER).await;
                if taken.load(Ordering::Relaxed) {
                    tokio::time::sleep(PROVEN_AFTER).await;
                }
            };
            tokio::select! {
                biased;
                Some((at, dialled)) = tries.next() => match dialled {
                    Ok(dialled) => {
                        self.note(to, at);
                        return Ok(dialled);
                    }
                    Err(error) if failed.is_none() || at == to.address => failed = Some(error),
                    Err(_) => {}
                },
                () = late, if !left.is_empty() => {}
            }
        }
    }
}
