//! `Objects`: puts and reads of versioned objects.

use document::Record;
use env::calls::objects::{
    ObjectsAnswer, ObjectsRequest, PutObjects, PutObjectsAnswer, PutOutcome, WatchEvents,
    WatchRequest,
};
use env::calls::{CallError, Caller, Service};

use super::{Endpoints, Load};
use crate::metrics::Method;
use crate::objects::{Bringer, Elsewhere, Reader, Surroundings};
use crate::right::Right;

/// Which endpoint a request is counted as, and how much it asks for.
pub(super) fn asks(request: &ObjectsRequest) -> (Method, Load) {
    match request {
        ObjectsRequest::Put(put) => (Method::ObjectsPut, Load::records(&put.records)),
        ObjectsRequest::Get(get) => (Method::ObjectsGet, Load::requests(get.versions.len())),
        ObjectsRequest::Previous(_) => (Method::ObjectsPrevious, Load::ONE),
        ObjectsRequest::Tips(tips) => (Method::ObjectsTips, Load::requests(tips.objects.len())),
        ObjectsRequest::Heads(_) => (Method::ObjectsHeads, Load::ONE),
        _ => (Method::ObjectsList, Load::ONE),
    }
}

impl Endpoints {
    pub(super) async fn objects_answer(
        &self,
        caller: Caller,
        request: ObjectsRequest,
    ) -> Result<ObjectsAnswer, CallError> {
        let objects = &self.0.objects;
        let reader = |claim: &Option<bytes::Bytes>| -> Result<Reader, CallError> {
            objects.reader(&caller.key, &self.0.standing(&caller.key), claim.as_ref())
        };
        let bytes_of = |records: &[Record]| records.iter().map(|one| one.bytes.len()).sum();
        Ok(match request {
            ObjectsRequest::Put(put) => ObjectsAnswer::Put(self.objects_put(caller, put).await?),
            ObjectsRequest::Get(get) => {
                let (found, bytes) = objects.get(reader(&get.reader)?, get).await?;
                self.sent(caller, Method::ObjectsGet, bytes);
                ObjectsAnswer::Get(found)
            }
            ObjectsRequest::Previous(previous) => {
                let (calls, directory) = (self.0.calls.clone(), self.0.directory.clone());
                let elsewhere = Elsewhere::new(calls, directory, self.0.env.clock.elapsed());
                let reader = reader(&previous.reader)?;
                let found = objects.previous(reader, previous, elsewhere).await?;
                self.sent(caller, Method::ObjectsPrevious, bytes_of(&found.records));
                ObjectsAnswer::Previous(found)
            }
            ObjectsRequest::Tips(tips) => {
                let (found, bytes) = objects.tips(reader(&tips.reader)?, tips).await?;
                self.sent(caller, Method::ObjectsTips, bytes);
                ObjectsAnswer::Tips(found)
            }
            ObjectsRequest::Heads(heads) => {
                let found = objects.heads(reader(&heads.reader)?, heads).await?;
                self.sent(caller, Method::ObjectsHeads, bytes_of(&found.heads));
                ObjectsAnswer::Heads(found)
            }
            ObjectsRequest::List(list) => {
                let found = objects.list(reader(&list.reader)?, list).await?;
                self.sent(caller, Method::ObjectsList, bytes_of(&found));
                ObjectsAnswer::List(found)
            }
            _ => return Err(super::invalid("this peer does not know such a request")),
        })
    }

    pub(super) async fn objects_watched(
        &self,
        caller: Caller,
        request: WatchRequest,
    ) -> Result<WatchEvents, CallError> {
        let core = &self.0;
        let standing = core.standing(&caller.key);
        let reader = core.objects.reader(&caller.key, &standing, request.reader.as_ref())?;
        let around = Surroundings {
            heartbeat: core.rhythm.heartbeat,
            stop: core.stop.clone(),
            seat: core.seats.take(&caller.key, &standing, core.env.clock.elapsed())?,
            right: Right::of(core, caller.key),
        };
        core.objects.watch(reader, request, around).await
    }

    async fn objects_put(
        &self,
        caller: Caller,
        put: PutObjects,
    ) -> Result<PutObjectsAnswer, CallError> {
        let sizes: Vec<usize> = put.records.iter().map(|record| record.bytes.len()).collect();
        let charged = self.charge(caller, Method::ObjectsPut, sizes.iter().sum())?;
        // Of a caller that was vouched for until a moment ago it is what was fetched.
        let by = self.vouched_by(caller).map_or(Bringer::Repair, Bringer::Organisation);
        let answer = self.0.objects.put_here(put, by).await;
        let outcomes = answer.as_ref().map(|answer| &answer.outcomes[..]).unwrap_or_default();
        let stored = |at: usize| matches!(outcomes.get(at), Some(Ok(PutOutcome::Stored)));
        let (mut taken, mut back) = (0, 0);
        for (at, size) in sizes.iter().enumerate() {
            if stored(at) { taken += size } else { back += size }
        }
        self.0.quotas.give_back(&caller.key, charged, back as u64);
        self.0.metrics.received(Method::ObjectsPut, taken);
        answer
    }
}
