//! One call about objects to one peer: deadline, one patient retry where it is busy, health.

use std::time::Duration;

use crypto::PeerId;
use env::calls::CallError;
use env::calls::objects::{ObjectsAnswer, ObjectsRequest};

use super::{Judge, Judged};
use crate::core::{BUSY_WAIT_MAX, Core};
use crate::latency::Size;

impl Core {
    /// Asks one peer; a busy one is waited for once.
    pub(super) async fn objects_at(
        &self,
        peer: &PeerId,
        request: ObjectsRequest,
        size: Size,
        limit: Duration,
    ) -> Result<ObjectsAnswer, CallError> {
        match self.objects_once(peer, request.clone(), size, limit).await {
            Err(CallError::Busy { retry_after }) => {
                self.env.clock.sleep(retry_after.min(BUSY_WAIT_MAX)).await;
                self.objects_once(peer, request, size, limit).await
            }
            answer => answer,
        }
    }

    async fn objects_once(
        &self,
        peer: &PeerId,
        request: ObjectsRequest,
        size: Size,
        limit: Duration,
    ) -> Result<ObjectsAnswer, CallError> {
        let to = self.endpoint(peer)?;
        let since = self.env.clock.elapsed();
        let answer = self.bounded(&to, limit, self.calls.objects(&to, request, limit)).await;
        self.note(peer, size, since, &answer);
        answer
    }

    /// Asks one peer and proves its answer; `None` where it has nothing.
    pub(super) async fn judged_at<T: Send + 'static>(
        &self,
        peer: &PeerId,
        request: ObjectsRequest,
        judge: Judge<T>,
        size: Size,
        limit: Duration,
    ) -> Result<Option<T>, CallError> {
        let answer = match self.objects_at(peer, request, size, limit).await {
            Err(CallError::NotFound) => return Ok(None),
            answer => answer?,
        };
        let from = *peer;
        match self.env.cpu(move || judge(&from, answer)).await {
            Judged::Here(found) => Ok(Some(found)),
            Judged::NotHere => Ok(None),
            Judged::Failed(error) => Err(error),
            Judged::Lie(reason) => {
                let error = self.corrupt(peer, reason);
                self.directory.failed(peer, &error);
                Err(error)
            }
        }
    }

    /// The error of an answer that does not prove itself.
    pub(super) fn corrupt(&self, peer: &PeerId, reason: String) -> CallError {
        let address = self.directory.endpoint(peer).map(|at| at.address).unwrap_or_default();
        CallError::Corrupt { address, reason }
    }
}
