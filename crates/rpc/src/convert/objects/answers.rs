//! Answers about objects, and whether they answer what was asked.
//!
//! Bytes here are as some peer sent them: that a version is one, that its author may write, that a redirect is signed,
//! whoever asked proves. Here is checked that the answer has the shape and the bounds of one, and the ids that were asked for.

use crypto::RecordId;
use document::{Kind, Record};
use env::calls::objects::{
    FoundVersion, HeadsAnswer, NAMES_MAX, OBJECTS_MAX, ObjectTips, ObjectsAnswer, ObjectsRequest,
    PREVIOUS_MAX, PreviousAnswer, PutObjectsAnswer, PutOutcome, REDIRECTS_MAX, TIPS_MAX,
};
use env::calls::{BATCH_MAX, CallError};
use version::claim::REDIRECT_BYTES;
use version::head::RECORDS_MAX;
use version::receipt::RECEIPT_BYTES_MAX;

use super::{check_kind, given};
use crate::convert::answers::failed;
use crate::convert::{Open, Wrong, array32, copied};
use crate::proto::objects_response::Answer as Wire;
use crate::{proto, status};

const NOT_A_VERSION: &str = "a version of another kind";

fn redirect(bytes: bytes::Bytes) -> Result<bytes::Bytes, Wrong> {
    if bytes.len() == REDIRECT_BYTES {
        Ok(bytes)
    } else {
        Err(Wrong("a redirect is not 221 bytes"))
    }
}

fn at_most(len: usize, most: usize, what: &'static str) -> Result<(), Wrong> {
    if len <= most { Ok(()) } else { Err(Wrong(what)) }
}

fn records(all: Vec<proto::Record>) -> Result<Vec<Record>, Wrong> {
    all.into_iter().map(Open::open).collect()
}

fn optional(record: Option<proto::Record>) -> Result<Option<Record>, Wrong> {
    record.map(Open::open).transpose()
}

impl proto::ObjectsResponse {
    /// The answer; `address` is the peer's.
    pub(crate) fn open(self, address: &str) -> Result<ObjectsAnswer, Wrong> {
        Ok(match self.answer.ok_or(Wrong("no known answer about objects"))? {
            Wire::Put(put) => ObjectsAnswer::Put(put.open(address)?),
            Wire::Get(get) => {
                at_most(get.answers.len(), BATCH_MAX, "over 1,024 versions")?;
                let all = get.answers.into_iter().map(|one| one.open(address));
                ObjectsAnswer::Get(all.collect::<Result<_, _>>()?)
            }
            Wire::Previous(previous) => ObjectsAnswer::Previous(previous.open()?),
            Wire::Tips(tips) => {
                at_most(tips.answers.len(), OBJECTS_MAX, "over 256 objects")?;
                let all = tips.answers.into_iter().map(|one| one.open(address));
                ObjectsAnswer::Tips(all.collect::<Result<_, _>>()?)
            }
            Wire::Heads(heads) => {
                at_most(heads.heads.len(), RECORDS_MAX, "over 4,096 heads")?;
                let (heads, devices) = (records(heads.heads)?, optional(heads.devices)?);
                ObjectsAnswer::Heads(HeadsAnswer { heads, devices })
            }
            Wire::List(list) => {
                at_most(list.objects.len(), NAMES_MAX, "over 1,024 names")?;
                ObjectsAnswer::List(records(list.objects)?)
            }
        })
    }
}

impl proto::PutObjectsAnswer {
    fn open(self, address: &str) -> Result<PutObjectsAnswer, Wrong> {
        at_most(self.outcomes.len(), BATCH_MAX, "over 1,024 outcomes")?;
        at_most(self.receipt.len(), RECEIPT_BYTES_MAX, "a receipt over 718 bytes")?;
        let outcomes = self.outcomes.into_iter().map(|one| one.open(address));
        let outcomes = outcomes.collect::<Result<_, _>>()?;
        Ok(PutObjectsAnswer { outcomes, receipt: given(self.receipt) })
    }
}

impl From<PutObjectsAnswer> for proto::PutObjectsAnswer {
    fn from(answer: PutObjectsAnswer) -> Self {
        Self {
            outcomes: answer.outcomes.into_iter().map(Into::into).collect(),
            receipt: answer.receipt.unwrap_or_default(),
        }
    }
}

impl proto::PutAnswer {
    fn open(self, address: &str) -> Result<Result<PutOutcome, CallError>, Wrong> {
        use proto::put_answer::Result as Wire;
        Ok(Ok(match self.result.ok_or(Wrong("neither outcome nor failure"))? {
            Wire::Outcome(number) => match proto::PutOutcome::try_from(number) {
                Ok(proto::PutOutcome::Stored) => PutOutcome::Stored,
                Ok(proto::PutOutcome::Present) => PutOutcome::Present,
                Ok(proto::PutOutcome::NoObject) => PutOutcome::NoObject,
                Ok(proto::PutOutcome::Unspecified) | Err(_) => {
                    return Err(Wrong("no known outcome of a put"));
                }
            },
            Wire::Redirect(bytes) => PutOutcome::Redirect(redirect(bytes)?),
            Wire::Failure(failure) => return Ok(Err(failed(&failure, address)?)),
        }))
    }
}

impl From<Result<PutOutcome, CallError>> for proto::PutAnswer {
    fn from(outcome: Result<PutOutcome, CallError>) -> Self {
        use proto::put_answer::Result as Wire;
        let result = match outcome {
            Ok(PutOutcome::Stored) => Wire::Outcome(proto::PutOutcome::Stored.into()),
            Ok(PutOutcome::Present) => Wire::Outcome(proto::PutOutcome::Present.into()),
            Ok(PutOutcome::NoObject) => Wire::Outcome(proto::PutOutcome::NoObject.into()),
            Ok(PutOutcome::Redirect(bytes)) => Wire::Redirect(bytes),
            Err(error) => Wire::Failure(status::to_failure(&error)),
        };
        Self { result: Some(result) }
    }
}

impl proto::VersionAnswer {
    fn open(self, address: &str) -> Result<Result<Option<FoundVersion>, CallError>, Wrong> {
        use proto::version_answer::Result as Wire;
        match self.result.ok_or(Wrong("neither version nor failure"))? {
            Wire::Found(found) => Ok(Ok(Some(found.open()?))),
            Wire::NotHere(proto::NotHere {}) => Ok(Ok(None)),
            Wire::Failure(failure) => Ok(Err(failed(&failure, address)?)),
        }
    }
}

impl From<Result<Option<FoundVersion>, CallError>> for proto::VersionAnswer {
    fn from(answer: Result<Option<FoundVersion>, CallError>) -> Self {
        use proto::version_answer::Result as Wire;
        let result = match answer {
            Ok(Some(found)) => Wire::Found(found.into()),
            Ok(None) => Wire::NotHere(proto::NotHere {}),
            Err(error) => Wire::Failure(status::to_failure(&error)),
        };
        Self { result: Some(result) }
    }
}

impl Open<PreviousAnswer> for proto::PreviousAnswer {
    fn open(self) -> Result<PreviousAnswer, Wrong> {
        at_most(self.records.len(), 1 + PREVIOUS_MAX, "over 1,024 predecessors")?;
        let missing = given(self.missing)
            .map(|id| array32(&id, "missing is neither empty nor 32 bytes").map(RecordId::new));
        Ok(PreviousAnswer { records: records(self.records)?, missing: missing.transpose()? })
    }
}

impl From<PreviousAnswer> for proto::PreviousAnswer {
    fn from(answer: PreviousAnswer) -> Self {
        Self {
            records: answer.records.into_iter().map(Into::into).collect(),
            missing: answer.missing.map(|id| copied(id.as_bytes())).unwrap_or_default(),
        }
    }
}

impl Open<ObjectTips> for proto::ObjectTips {
    fn open(self) -> Result<ObjectTips, Wrong> {
        at_most(self.tips.len(), TIPS_MAX, "over 64 tips of an object")?;
        at_most(self.redirects.len(), REDIRECTS_MAX, "over 17 redirects of an object")?;
        Ok(ObjectTips {
            object: optional(self.object)?,
            policy: optional(self.policy)?,
            tips: self.tips.into_iter().map(Open::open).collect::<Result<_, _>>()?,
            more: self.more,
            redirects: self.redirects.into_iter().map(redirect).collect::<Result<_, _>>()?,
        })
    }
}

impl From<ObjectTips> for proto::ObjectTips {
    fn from(tips: ObjectTips) -> Self {
        Self {
            object: tips.object.map(Into::into),
            policy: tips.policy.map(Into::into),
            tips: tips.tips.into_iter().map(Into::into).collect(),
            more: tips.more,
            redirects: tips.redirects,
        }
    }
}

impl proto::TipsAnswer {
    fn open(self, address: &str) -> Result<Result<ObjectTips, CallError>, Wrong> {
        use proto::tips_answer::Result as Wire;
        match self.result.ok_or(Wrong("neither tips nor failure"))? {
            Wire::Tips(tips) => Ok(Ok(tips.open()?)),
            Wire::Failure(failure) => Ok(Err(failed(&failure, address)?)),
        }
    }
}

impl From<Result<ObjectTips, CallError>> for proto::TipsAnswer {
    fn from(answer: Result<ObjectTips, CallError>) -> Self {
        use proto::tips_answer::Result as Wire;
        let result = match answer {
            Ok(tips) => Wire::Tips(tips.into()),
            Err(error) => Wire::Failure(status::to_failure(&error)),
        };
        Self { result: Some(result) }
    }
}

/// Compares an answer with what was asked: its name, one answer an item, ids and kinds.
pub(crate) fn check_answer(asked: &ObjectsRequest, answer: &ObjectsAnswer) -> Result<(), Wrong> {
    match (asked, answer) {
        (ObjectsRequest::Put(put), ObjectsAnswer::Put(answer)) => {
            check_outcomes(&put.records, &answer.outcomes)
        }
        (ObjectsRequest::Get(get), ObjectsAnswer::Get(answers)) => {
            check_count(get.versions.len(), answers.len())?;
            for (asked, answer) in get.versions.iter().zip(answers) {
                if let Ok(Some(found)) = answer {
                    check_version(&found.record)?;
                    check_id(asked.h, &found.record)?;
                }
            }
            Ok(())
        }
        (ObjectsRequest::Previous(asked), ObjectsAnswer::Previous(answer)) => {
            let most = (asked.most as usize).saturating_add(1);
            at_most(answer.records.len(), most, "more predecessors than were asked for")?;
            answer.records.first().map_or(Ok(()), |first| check_id(asked.version.h, first))?;
            answer.records.iter().try_for_each(check_version)
        }
        (ObjectsRequest::Tips(tips), ObjectsAnswer::Tips(answers)) => {
            check_count(tips.objects.len(), answers.len())?;
            let answered = tips.objects.iter().zip(answers);
            let mut found = answered.filter_map(|(key, answer)| Some((key, answer.as_ref().ok()?)));
            found.try_for_each(|(key, tips)| check_tips(key.record(), tips))
        }
        (ObjectsRequest::Heads(_), ObjectsAnswer::Heads(answer)) => {
            let head = |record: &Record| check_kind(record, Kind::Head, "a head of another kind");
            answer.heads.iter().try_for_each(head)?;
            let what = "a list of devices of another kind";
            answer.devices.iter().try_for_each(|one| check_kind(one, Kind::Devices, what))
        }
        (ObjectsRequest::List(asked), ObjectsAnswer::List(objects)) => {
            at_most(objects.len(), asked.most as usize, "more names than were asked for")?;
            objects.iter().try_for_each(check_object)
        }
        _ => Err(Wrong("it answered another request about objects")),
    }
}

fn check_count(asked: usize, answered: usize) -> Result<(), Wrong> {
    if asked == answered { Ok(()) } else { Err(Wrong("not one answer an item")) }
}

fn check_id(asked: RecordId, found: &Record) -> Result<(), Wrong> {
    if found.id == asked { Ok(()) } else { Err(Wrong("it answered with another record")) }
}

fn check_version(record: &Record) -> Result<(), Wrong> {
    check_kind(record, Kind::Version, NOT_A_VERSION)
}

fn check_object(record: &Record) -> Result<(), Wrong> {
    check_kind(record, Kind::Object, "an object's record of another kind")
}

/// Only versions are redirected, or miss their object.
fn check_outcomes(
    records: &[Record],
    outcomes: &[Result<PutOutcome, CallError>],
) -> Result<(), Wrong> {
    check_count(records.len(), outcomes.len())?;
    let wrong = |(record, outcome): (&Record, &Result<PutOutcome, CallError>)| {
        let of_version = matches!(outcome, Ok(PutOutcome::Redirect(_) | PutOutcome::NoObject));
        of_version && record.kind != Kind::Version
    };
    if records.iter().zip(outcomes).any(wrong) {
        return Err(Wrong("a version's outcome for a record that is none"));
    }
    Ok(())
}

fn check_tips(object: RecordId, tips: &ObjectTips) -> Result<(), Wrong> {
    if let Some(record) = &tips.object {
        check_object(record)?;
        check_id(object, record)?;
    }
    let policy = |record: &Record| check_kind(record, Kind::Policy, "a policy of another kind");
    tips.policy.iter().try_for_each(policy)?;
    tips.tips.iter().try_for_each(|found| check_version(&found.record))
}
