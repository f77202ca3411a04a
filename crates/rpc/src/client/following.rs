//! Streams of events: the call that begins one, and the stream until it ends.

use std::time::Duration;

use env::calls::{CallError, Endpoint};
use futures::StreamExt;
use futures::stream::BoxStream;
use tonic::{Response, Status, Streaming};

use super::pool::Lease;
use super::{Attempt, Client, caught, opened};
use crate::convert::Open;
use crate::limits::STREAM_SILENCE_MAX;

impl Client {
    /// The events that `ask` is answered with. `limit` bounds the first answer; a stream of which nothing comes for
    /// [`STREAM_SILENCE_MAX`] ends with an error.
    ///
    /// `ask` gives no deadline to the far side: it would bound the whole stream.
    pub(super) async fn follow<M, T, F>(
        &self,
        to: &Endpoint,
        limit: Duration,
        ask: impl Fn(Attempt) -> F + Send + Sync,
    ) -> Result<BoxStream<'static, Result<T, CallError>>, CallError>
    where
        M: Open<T> + Send + 'static,
        T: Send + 'static,
        F: Future<Output = Result<Response<Streaming<M>>, Status>> + Send,
    {
        let (stream, lease) = self.call(to, false, limit, ask).await?;
        let first = Following { to: to.clone(), env: self.env.clone(), stream, _lease: lease };
        Ok(futures::stream::unfold(Some(first), Following::next).boxed())
    }
}

/// A stream under way; its connection counts as in use.
struct Following<M> {
    to: Endpoint,
    env: env::Env,
    stream: Streaming<M>,
    _lease: Lease,
}

impl<M> Following<M> {
    /// The next event; an error is the last.
    async fn next<T>(state: Option<Self>) -> Option<(Result<T, CallError>, Option<Self>)>
    where
        M: Open<T> + Send + 'static,
    {
        let mut this = state?;
        let limit = STREAM_SILENCE_MAX;
        let next = caught(this.stream.message(), &this.to, limit);
        let event = match this.env.within(limit, next).await {
            Ok(Ok(event)) => opened(&this.to, event?),
            Ok(Err((error, _))) => Err(error),
            Err(_) => Err(CallError::TimedOut { address: this.to.address.clone(), limit }),
        };
        match event {
            Ok(event) => Some((Ok(event), Some(this))),
            Err(error) => Some((Err(error), None)),
        }
    }
}
