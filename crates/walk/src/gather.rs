//! Questions of several walks to one peer, in one call.
//!
//! Walks that run together get their answers together and then go on to the same peers. So what they ask a peer within one
//! turn of their executor is one call: at first, and again where a holder did not have it or is late.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use crypto::PeerId;
use env::calls::{CallError, Endpoint, FindRequest, FindResponse};
use futures::FutureExt;
use futures::future::{BoxFuture, WeakShared};

use crate::batch::{Answers, SharedCall, called, one_of};
use crate::core::{Answer, Core, LAST_RESORT_LIMIT, Wanted};
use crate::latency::Size;
use crate::line::Load;
use crate::race::SharedTurn;

/// Records asked of one peer in one call: small enough that their answers stay under
/// [`BATCH_BYTES_MAX`](env::calls::BATCH_BYTES_MAX) where entries have their pages inline.
const FIND_BATCH_MAX: usize = 256;
/// The same of a peer that is asked as a last resort: it has [`LAST_RESORT_LIMIT`] for all of them.
const LAST_RESORT_BATCH_MAX: usize = 32;

/// What walks that run together ask.
#[derive(Default)]
pub(crate) struct Gather(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// The last call to each.
    asked: HashMap<Whom, Asked>,
    /// Peers that were late and in whose stead others are asked; paid for once, as it is a call for all.
    hedged: HashSet<PeerId>,
}

/// A peer, and whether it is asked as a last resort: it gets less time then.
type Whom = (PeerId, bool);

/// One call, while others may still join it, and after. It ends with the last walk that waits for it.
struct Asked {
    requests: Requests,
    turn: SharedTurn,
    answers: WeakCall,
}

type Call = SharedCall<FindResponse>;
type WeakCall = WeakShared<BoxFuture<'static, Answers<FindResponse>>>;

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
        let most = if last_resort { LAST_RESORT_BATCH_MAX } else { FIND_BATCH_MAX };
        let mut inner = lock(&self.0);
        let joined = inner.asked.get(&whom).and_then(|asked| {
            let answers = asked.answers.upgrade()?;
            let mut requests = lock(&asked.requests);
            let requests = requests.as_mut().filter(|others| others.len() < most)?;
            requests.push(wanted.request);
            Some((asked.turn.clone(), answers, requests.len() - 1))
        });
        let (turn, answers, index) = joined.unwrap_or_else(|| {
            let (requests, turn, answers) = begin(core, whom, wanted.request);
            if let Some(weak) = answers.downgrade() {
                let asked = Asked { requests, turn: turn.clone(), answers: weak };
                inner.asked.insert(whom, asked);
            }
            (turn, answers, 0)
        });
        let core = core.clone();
        let answer = async move {
            others_first().await;
            let answers = answers.await;
            let answer = core.judge(&peer, &wanted, one_of(&answers, index)).await;
            // How the call went is noted once; what one record says of the peer is noted here.
            if let (Ok(_), Err(error)) = (&*answers, &answer) {
                core.directory.failed(&peer, error);
            }
            Answer::from(answer)
        };
        (turn, answer)
    }

    /// Whether another peer may be asked as well because this one is late; if so it is paid for.
    pub(crate) fn may_hedge(&self, core: &Core, peer: &PeerId) -> bool {
        let mut inner = lock(&self.0);
        let may = inner.hedged.contains(peer) || core.budget.spend();
        if may {
            inner.hedged.insert(*peer);
        }
        may
    }
}

fn begin(
    core: &Arc<Core>,
    (peer, last_resort): Whom,
    first: FindRequest,
) -> (Requests, SharedTurn, Call) {
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
    (requests, turn, call.boxed().shared())
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
