//! Questions of several walks to one peer, in one call.
//!
//! Walks that run together get their answers together and then go on to the same peers. So what they ask a peer within one
//! turn of their executor is one call: at first, and again where a holder did not have it or is late.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use crypto::PeerId;
use env::calls::{CallError, Endpoint, FindRequest, FindResponse};
use futures::FutureExt;

use crate::batch::{SharedCall, called, one_of};
use crate::core::{Answer, Core, LAST_RESORT_LIMIT, Wanted};
use crate::latency::Size;
use crate::line::Load;
use crate::race::SharedTurn;

/// Records asked of one peer in one call: small enough that their answers stay under
/// [`BATCH_BYTES_MAX`](env::calls::BATCH_BYTES_MAX) where entries have their pages inline.
const FIND_BATCH_MAX: usize = 256;

/// What walks that run together ask.
#[derive(Default)]
pub(crate) struct Gather(Mutex<HashMap<Whom, Asked>>);

/// A peer, and whether it is asked as a last resort: it gets less time then.
type Whom = (PeerId, bool);

/// One call, while others may still join it, and after.
#[derive(Clone)]
struct Asked {
    requests: Requests,
    turn: SharedTurn,
    answers: SharedCall<FindResponse>,
}

/// What is asked; `None`: it was sent.
type Requests = Arc<Mutex<Option<Vec<FindRequest>>>>;

impl Gather {
    /// Asks a peer for a record, with what other walks ask it now; the answer is proven.
    pub(crate) fn ask(
        &self,
        core: &Arc<Core>,
        peer: PeerId,
        last_resort: bool,
        wanted: Wanted,
    ) -> (SharedTurn, impl Future<Output = Answer> + Send + 'static) {
        let whom = (peer, last_resort);
        let mut all = lock(&self.0);
        let joined = all.get(&whom).and_then(|asked| {
            let mut requests = lock(&asked.requests);
            let requests = requests.as_mut().filter(|others| others.len() < FIND_BATCH_MAX)?;
            requests.push(wanted.request);
            Some((asked.clone(), requests.len() - 1))
        });
        let (asked, index) = joined.unwrap_or_else(|| {
            let asked = begin(core, whom, wanted.request);
            all.insert(whom, asked.clone());
            (asked, 0)
        });
        let (core, answers) = (core.clone(), asked.answers);
        let answer = async move {
            others_first().await;
            let answer = one_of(&answers.await, index);
            let answer = core.judge(&peer, &wanted, answer).await;
            // How the call went is noted once; what one record says of the peer is noted here.
            if let Err(error) = &answer {
                core.directory.failed(&peer, error);
            }
            Answer::from(answer)
        };
        (asked.turn, answer)
    }
}

fn begin(core: &Arc<Core>, (peer, last_resort): Whom, first: FindRequest) -> Asked {
    // How many bytes answer is not known; they are small records.
    let load = match last_resort {
        true => Load::little().at_most(LAST_RESORT_LIMIT),
        false => Load::little(),
    };
    let turn = core.shared_turn(load);
    let requests: Requests = Arc::new(Mutex::new(Some(vec![first])));
    let (core, of_all, asked) = (core.clone(), turn.clone(), requests.clone());
    let call = async move {
        let limit = of_all.await.limit();
        let asked = lock(&asked).take().unwrap_or_default();
        let (count, of_one) = (asked.len(), asked.len() == 1);
        let size = if of_one { Size::Small } else { Size::Large };
        let answer = called(&core, peer, (size, count), limit, |to| {
            let core = core.clone();
            async move { send(&core, &to, asked, limit).await }
        });
        Arc::new(answer.await)
    };
    Asked { requests, turn, answers: call.boxed().shared() }
}

/// How often a call lets others go first. A stream of futures polls one that woke itself twice at most before it lets its own
/// caller go on, and calls are in a stream (a race) in a stream (the walks).
const OTHERS_FIRST: u32 = 4;

/// Pends until all else that can go on now in the same task went on.
async fn others_first() {
    let mut left = OTHERS_FIRST;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn send(
    core: &Core,
    to: &Endpoint,
    asked: Vec<FindRequest>,
    limit: Duration,
) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
    let [one] = asked[..] else { return core.calls.find_batch(to, asked, limit).await };
    match core.calls.find(to, one, limit).await {
        // It is an answer, and no failure of the call.
        Err(CallError::NotFound) => Ok(vec![Err(CallError::NotFound)]),
        answer => Ok(vec![Ok(answer?)]),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
