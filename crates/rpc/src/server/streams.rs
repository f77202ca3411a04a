//! Streaming calls: one answer a request, in order, a bounded number in work, none of them able to
//! end the others.

use std::panic::AssertUnwindSafe;

use env::calls::{CallError, Caller};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::gate::deadline_of;
use super::handlers::{Handlers, caller};
use super::metered::Messages;
use super::share::Answers;
use crate::limits::{STREAM_CONCURRENCY, STREAM_SILENCE_MAX};
use crate::status::to_status;

/// Why a stream ends when the server does.
fn stopping() -> CallError {
    CallError::Unreachable { address: String::new(), reason: "the peer is stopping".into() }
}

fn defect() -> CallError {
    CallError::Internal { reason: "a defect of the peer's program".into() }
}

impl Handlers {
    /// Answers each message of a stream by `handle`.
    ///
    /// Requests are taken until the caller ends them, is silent for a minute, passes its own
    /// deadline, or the server stops; what was taken is answered. Of answers that may be long the room for so many bytes is taken before
    /// one is made, and held until the stream takes it: then its part takes what it has.
    pub(super) fn answered<M, T, A, H, F>(
        &self,
        request: Request<Streaming<M>>,
        answer_bytes_max: usize,
        handle: H,
    ) -> Result<Response<BoxStream<'static, Result<A, Status>>>, Status>
    where
        M: Send + 'static,
        T: Send + 'static,
        A: From<Result<T, CallError>> + Send + 'static,
        H: Fn(Caller, M) -> F + Send + Sync + Clone + 'static,
        F: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        let caller = caller(&request)?;
        let held = request.extensions().get::<Messages>().cloned().unwrap_or_default();
        let room = request.extensions().get::<Answers>().cloned().filter(|_| answer_bytes_max > 0);
        let asked = request.metadata().get("grpc-timeout");
        let deadline = asked.and_then(|text| deadline_of(text.as_bytes()));
        let env = self.env.clone();
        let end = env.clock.elapsed().saturating_add(deadline.unwrap_or(std::time::Duration::MAX));
        let (stop, call) = (self.stop.clone(), self.call);

        let incoming = futures::stream::unfold(Some(request.into_inner()), {
            let env = env.clone();
            move |state| next(state, env.clone(), stop.clone(), end)
        });
        let answers = incoming
            .map(move |message| {
                let (handle, env, room) = (handle.clone(), env.clone(), room.clone());
                // Messages are opened in the order they were counted in.
                let held = held.next();
                async move {
                    let _held = held;
                    let message = message?;
                    let taken = match room {
                        None => Ok(None),
                        Some(room) => room.take(answer_bytes_max).await.map(Some),
                    };
                    let taken = match taken {
                        Ok(taken) => taken,
                        Err(busy) => return Ok((Err(busy).into(), None)),
                    };
                    let handled = AssertUnwindSafe(handle(caller, message)).catch_unwind();
                    let outcome = match env.within(call, handled).await {
                        Ok(Ok(outcome)) => outcome,
                        Ok(Err(_)) => Err(defect()),
                        Err(_) => Err(CallError::TimedOut { address: String::new(), limit: call }),
                    };
                    Ok((outcome.into(), taken))
                }
            })
            .buffered(STREAM_CONCURRENCY)
            .map(|answer| answer.map(|(answer, _taken)| answer));
        Ok(Response::new(answers.boxed()))
    }
}

/// The next message of a stream of requests, or the error that ends it.
async fn next<M>(
    state: Option<Streaming<M>>,
    env: env::Env,
    stop: CancellationToken,
    end: std::time::Duration,
) -> Option<(Result<M, Status>, Option<Streaming<M>>)> {
    let mut messages = state?;
    let silence = STREAM_SILENCE_MAX.min(end.saturating_sub(env.clock.elapsed()));
    let next = tokio::select! {
        () = stop.cancelled() => return Some((Err(to_status(&stopping())), None)),
        next = env.within(silence, messages.message()) => next,
    };
    match next {
        Ok(Ok(Some(message))) => Some((Ok(message), Some(messages))),
        Ok(Ok(None)) => None,
        Ok(Err(status)) => Some((Err(status), None)),
        Err(_) => {
            let error = CallError::TimedOut { address: String::new(), limit: silence };
            Some((Err(to_status(&error)), None))
        }
    }
}

/// Events on the wire, of a subscription or a watch, until their end or the server's.
pub(super) fn events<T, M>(
    events: BoxStream<'static, Result<T, CallError>>,
    stop: CancellationToken,
) -> impl Stream<Item = Result<M, Status>> + Send + 'static
where
    T: 'static,
    M: From<T> + Send + 'static,
{
    let events = AssertUnwindSafe(events).catch_unwind().map(|event| match event {
        Ok(Ok(event)) => Ok(event.into()),
        Ok(Err(error)) => Err(to_status(&error)),
        Err(_) => Err(to_status(&defect())),
    });
    let end = futures::stream::once(async move {
        stop.cancelled_owned().await;
        Err(to_status(&stopping()))
    });
    // The end of the events ends the stream though the stop has not come. After the first error
    // tonic takes nothing more: it becomes the call's status.
    let events = events.map(Some).chain(futures::stream::once(async { None }));
    let left = |_: &mut ()| futures::stream::PollNext::Left;
    futures::stream::select_with_strategy(events, end.map(Some), left)
        .take_while(|event| std::future::ready(event.is_some()))
        .filter_map(std::future::ready)
}
