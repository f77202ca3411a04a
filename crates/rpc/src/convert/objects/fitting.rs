//! A service's answer about objects, cut to what travels.
//!
//! A service is asked for as many items as a request may name, and each may be 2 MiB long: what would take the message
//! over its bounds is left out here, the last first, and the answer says so in the way of its kind. So no service has to
//! count, and no caller is sent a message that it must refuse.

use bytes::Bytes;
use document::Record;
use env::calls::CallError;
use env::calls::objects::{
    FoundVersion, HeadsAnswer, ObjectTips, ObjectsAnswer, ObjectsRequest, PreviousAnswer,
    REDIRECTS_MAX, TIPS_MAX,
};
use prost::Message;
use version::head::RECORDS_MAX;

use crate::convert::copied;
use crate::convert::room::Room;
use crate::proto;
use crate::proto::objects_response::Answer as Wire;

/// What of a request its answer must fit; the request itself is the service's by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Put(usize),
    Get(usize),
    Previous(usize),
    Tips(usize),
    Heads,
    List(usize),
    Other,
}

/// As many as fit from the front, and the first that did not.
fn fitting(all: Vec<Record>, room: &mut Room) -> (Vec<proto::Record>, Option<proto::Record>) {
    let mut fit = Vec::with_capacity(all.len());
    for record in all {
        let record = record.into();
        if !room.record(&record) {
            return (fit, Some(record));
        }
        fit.push(record);
    }
    (fit, None)
}

fn busy() -> CallError {
    CallError::Busy { retry_after: std::time::Duration::ZERO }
}

impl Asked {
    pub(crate) fn of(request: &ObjectsRequest) -> Self {
        match request {
            ObjectsRequest::Put(put) => Self::Put(put.records.len()),
            ObjectsRequest::Get(get) => Self::Get(get.versions.len()),
            ObjectsRequest::Previous(previous) => Self::Previous(previous.most as usize),
            ObjectsRequest::Tips(tips) => Self::Tips(tips.objects.len()),
            ObjectsRequest::Heads(_) => Self::Heads,
            ObjectsRequest::List(list) => Self::List(list.most as usize),
            _ => Self::Other,
        }
    }

    /// The answer as it travels.
    ///
    /// # Errors
    /// [`CallError::Internal`] where the service answered another request, or not each item.
    pub(crate) fn fit(self, answer: ObjectsAnswer) -> Result<proto::ObjectsResponse, CallError> {
        let answer = match (self, answer) {
            (Self::Put(asked), ObjectsAnswer::Put(put)) if put.outcomes.len() == asked => {
                Wire::Put(put.into())
            }
            (Self::Get(asked), ObjectsAnswer::Get(answers)) if answers.len() == asked => {
                Wire::Get(versions(answers))
            }
            (Self::Previous(most), ObjectsAnswer::Previous(answer)) => {
                Wire::Previous(previous(answer, most))
            }
            (Self::Tips(asked), ObjectsAnswer::Tips(answers)) if answers.len() == asked => {
                Wire::Tips(all_tips(answers))
            }
            (Self::Heads, ObjectsAnswer::Heads(answer)) => Wire::Heads(heads(answer)),
            (Self::List(most), ObjectsAnswer::List(mut objects)) => {
                objects.truncate(most);
                let (objects, _) = fitting(objects, &mut Room::new(0));
                Wire::List(proto::ListObjectsAnswer { objects })
            }
            (asked, answer) => return Err(defect(asked, &answer)),
        };
        Ok(proto::ObjectsResponse { answer: Some(answer) })
    }
}

fn defect(asked: Asked, answer: &ObjectsAnswer) -> CallError {
    let (what, items) = match answer {
        ObjectsAnswer::Put(put) => ("put", put.outcomes.len()),
        ObjectsAnswer::Get(answers) => ("get", answers.len()),
        ObjectsAnswer::Previous(_) => ("previous", 1),
        ObjectsAnswer::Tips(answers) => ("tips", answers.len()),
        ObjectsAnswer::Heads(_) => ("heads", 1),
        ObjectsAnswer::List(_) => ("list", 1),
        _ => ("other", 1),
    };
    CallError::Internal { reason: format!("{items} answers of {what} to {asked:?}") }
}

fn versions(answers: Vec<Result<Option<FoundVersion>, CallError>>) -> proto::GetVersionsAnswer {
    let mut room = Room::new(answers.len());
    let fit = |answer: Result<Option<FoundVersion>, CallError>| {
        let records = match &answer {
            Ok(Some(found)) => {
                found.record.bytes.len() + found.attestation.as_ref().map_or(0, Bytes::len)
            }
            _ => 0,
        };
        let answer: proto::VersionAnswer = answer.into();
        if room.take(records, answer.encoded_len()) { answer } else { Err(busy()).into() }
    };
    proto::GetVersionsAnswer { answers: answers.into_iter().map(fit).collect() }
}

fn previous(mut answer: PreviousAnswer, most: usize) -> proto::PreviousAnswer {
    let missing = answer.missing.map(|id| copied(id.as_bytes())).unwrap_or_default();
    answer.records.truncate(most.saturating_add(1));
    let (records, left_out) = fitting(answer.records, &mut Room::new(0));
    proto::PreviousAnswer { records, missing: left_out.map_or(missing, |record| record.id) }
}

fn all_tips(answers: Vec<Result<ObjectTips, CallError>>) -> proto::GetTipsAnswer {
    let mut room = Room::new(answers.len());
    let fit = |answer: Result<ObjectTips, CallError>| match answer {
        Ok(tips) => tips_of_one(tips, &mut room).map_or_else(
            || Err(busy()).into(),
            |tips| {
                let result = Some(proto::tips_answer::Result::Tips(tips));
                proto::TipsAnswer { result }
            },
        ),
        Err(error) => {
            let answer = proto::TipsAnswer::from(Err(error));
            if room.take(0, answer.encoded_len()) { answer } else { Err(busy()).into() }
        }
    };
    proto::GetTipsAnswer { answers: answers.into_iter().map(fit).collect() }
}

/// The tips of one object as far as they fit; `None` where not even what stands before them does.
fn tips_of_one(tips: ObjectTips, room: &mut Room) -> Option<proto::ObjectTips> {
    let mut all: proto::ObjectTips = tips.into();
    let tips = std::mem::take(&mut all.tips);
    all.redirects.truncate(REDIRECTS_MAX);
    let head = [&all.object, &all.policy];
    let records = head.iter().filter_map(|one| Some(one.as_ref()?.bytes.len())).sum();
    // `more` may be set below.
    if !room.take(records, all.encoded_len() + 2) {
        return None;
    }
    for tip in tips {
        let records = tip.attestation.len() + tip.record.as_ref().map_or(0, |one| one.bytes.len());
        if all.tips.len() == TIPS_MAX || !room.take(records, tip.encoded_len()) {
            all.more = true;
            break;
        }
        all.tips.push(tip);
    }
    Some(all)
}

fn heads(mut answer: HeadsAnswer) -> proto::HeadsAnswer {
    let mut room = Room::new(0);
    let devices = answer.devices.map(proto::Record::from).filter(|one| room.record(one));
    answer.heads.truncate(RECORDS_MAX);
    let (heads, _) = fitting(answer.heads, &mut room);
    proto::HeadsAnswer { heads, devices }
}
