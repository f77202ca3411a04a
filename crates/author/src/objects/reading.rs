//! Reading versions: one by its id, those before it, and a history through its merges.
//!
//! One honest answer is enough, since a version proves itself: holders are asked one after the other until one answers. A
//! version that is not where its id says is looked for at the object's other places. What was proven is remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crypto::{Class, Classified, PeerId, RecordId};
use env::calls::objects::{
    FoundVersion, GetPrevious, GetVersions, ObjectsAnswer, ObjectsRequest, PREVIOUS_MAX,
    PreviousAnswer, VersionAt,
};
use env::calls::{BATCH_BYTES_MAX, CallError};
use version::{Bases, Hint, VERSION_BYTES_MAX, Version, VersionId};
use walk::objects::{Judge, Judged, Question, Unanswered};

use super::chain::{self, Proven};
use super::{Object, ObjectsError, Subject, Value};

/// The most versions of one [`Object::log`].
pub const LOG_MAX: usize = 100_000;
/// Versions of one log that are looked for in vain before it ends: each asks all holders of all places.
const UNFOUND_MAX: usize = 16;
/// Predecessors asked for at once, where a walk needs a few.
pub(crate) const AHEAD: usize = 64;
/// Bytes of an answer with some predecessors, about.
const HISTORY_BYTES: usize = 256 << 10;

/// Whether enough was looked for in vain: where the network is away each takes as long as a lookup may. Where some answer it goes on,
/// as one peer that is away would have any writer's version end everybody's log.
fn is_enough(unfound: &[ObjectsError]) -> bool {
    let away = |error: &ObjectsError| matches!(error, ObjectsError::Unavailable { asked: 0, .. });
    unfound.len() >= UNFOUND_MAX || unfound.iter().any(away)
}

/// A version and where it was found.
#[derive(Clone, Debug)]
pub struct Got {
    /// Its id; the hint is that of the place where it was found.
    pub id: VersionId,
    /// What it was made of.
    pub bases: Bases,
    /// What it holds.
    pub value: Value,
    /// Who sent it; `None` where it was remembered.
    pub from: Option<PeerId>,
    /// Who answered before with bytes that do not prove themselves.
    pub refused: Vec<PeerId>,
}

/// A version of a history, its value as it lies there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Its id; the hint is where it is likely to be.
    pub id: VersionId,
    /// The version. [`Object::open_value`] opens what it holds.
    pub version: Version,
}

/// A version that was found.
pub(crate) struct Found {
    pub(crate) version: Version,
    pub(crate) hint: Hint,
    from: Option<PeerId>,
    refused: Vec<PeerId>,
}

impl Object {
    /// What a version holds: the right bytes, or an error, and never another version's.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`ObjectsError::NotYet`] where so many holders do not have it that it was not acknowledged before they were asked;
    /// [`ObjectsError::Unavailable`] where too few answered to say so; [`ObjectsError::Corrupt`] with the names of those who sent other
    /// bytes, where nobody sent the right ones; [`ObjectsError::Denied`]; [`ObjectsError::Sealed`].
    pub async fn get(&self, id: &VersionId) -> Result<Value, ObjectsError> {
        Ok(self.get_with(id).await?.value)
    }

    /// As [`Object::get`]; tells as well what the version was made of, who sent it, and who lied.
    ///
    /// # Errors
    /// As [`Object::get`].
    pub async fn get_with(&self, id: &VersionId) -> Result<Got, ObjectsError> {
        let found = self.named(id).await?;
        let id = VersionId { n: found.hint, ..*id };
        let bases = found.version.bases;
        let Found { version, from, refused, .. } = found;
        let value = self.opened(id.h, version).await?;
        Ok(Got { id, bases, value, from, refused })
    }

    /// Looks whether a version that somebody named is there, before anything is made of it; answers it with where it was found.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// As [`Object::get`].
    pub async fn look_at(&self, id: &VersionId) -> Result<VersionId, ObjectsError> {
        let found = self.named(id).await?;
        Ok(VersionId { n: found.hint, ..*id })
    }

    /// A version by its hash alone, as it is found: who named it said how deep it is, and may be wrong.
    pub(crate) async fn found(&self, id: &VersionId) -> Result<VersionId, ObjectsError> {
        let found = self.find(&id.h, &id.n, Some(*id)).await?;
        Ok(VersionId { h: id.h, l: found.version.l, n: found.hint })
    }

    /// A version by its whole name.
    async fn named(&self, id: &VersionId) -> Result<Found, ObjectsError> {
        let found = self.find(&id.h, &id.n, Some(*id)).await?;
        let depth = found.version.l;
        if depth != id.l {
            return Err(ObjectsError::Depth { h: id.h, said: id.l, depth });
        }
        Ok(found)
    }

    /// Opens what a version of this object's history holds. CPU work for a long value.
    ///
    /// # Errors
    /// [`ObjectsError::Sealed`].
    pub fn open_value(&self, past: &Past) -> Result<Value, ObjectsError> {
        Value::open(self.objects.suite(), self.content.as_ref(), past.id.h, &past.version)
    }

    pub(crate) async fn opened(
        &self,
        h: RecordId,
        version: Version,
    ) -> Result<Value, ObjectsError> {
        let (suite, content) = (self.objects.suite(), self.content.clone());
        self.objects.cpu(move || Value::open(suite, content.as_ref(), h, &version)).await?
    }

    /// Up to `most` versions before this one, nearest first, at most 4,096. It ends behind a root, and behind a merge: of one that is a
    /// merge its two bases are the answer, a predecessor that is one is the last.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// As [`Object::get`], of this version or of one before it.
    pub async fn previous(&self, id: &VersionId, most: usize) -> Result<Vec<Past>, ObjectsError> {
        let most = most.min(version::PREVIOUS_MAX);
        let mut found: Vec<Past> = Vec::new();
        let mut at = *id;
        // Whoever ends a history early is asked no more than once for each version that is left.
        while found.len() < most {
            let (history, hint) = self.history(&at.h, &at.n, most - found.len()).await?;
            let Some(((_, first, _), before)) = history.split_first() else { break };
            let is_merge = first.bases.is_merge();
            if first.bases.is_empty() || (is_merge && !found.is_empty()) {
                break;
            }
            let bases = first.bases;
            let room = most - found.len();
            let before = before.iter().take(room);
            found.extend(before.map(|(h, version, hint)| past(*h, version.clone(), *hint)));
            if is_merge {
                for base in bases.iter().take(room).skip(history.len() - 1) {
                    let one = self.find(&base, &hint, None).await?;
                    found.push(past(base, one.version, one.hint));
                }
                break;
            }
            if history.len() == 1 {
                // The next one is not known there: it is elsewhere, or it is missing.
                let Some(base) = bases.first() else { break };
                let one = self.find(&base, &hint, None).await?;
                found.push(past(base, one.version, one.hint));
            }
            let Some(last) = found.last() else { break };
            at = last.id;
            if last.version.bases.is_empty() || last.version.bases.is_merge() {
                break;
            }
        }
        Ok(found)
    }

    /// Up to `most` versions of a history, through its merges, from these on: greatest depth first, and of the same depth the
    /// greatest hash. At most [`LOG_MAX`].
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// As [`Object::get`], of any version of it.
    pub async fn log(&self, from: &[VersionId], most: usize) -> Result<Vec<Past>, ObjectsError> {
        let mut log = Vec::new();
        let each = |past| {
            log.push(past);
            Ok::<_, ObjectsError>(())
        };
        self.log_each(from, most, each).await?;
        Ok(log)
    }

    /// The same, each as it is found: values of a long or a wide history are not in memory together. Any writer can make a version of one
    /// that is nowhere: what is left of the history is told all the same, until [`UNFOUND_MAX`] were looked for in vain, or
    /// nobody answered at all.
    ///
    /// # Errors
    /// As [`Object::log`], of one that was not found, when the others were told; what `each` fails with.
    pub async fn log_each<E: From<ObjectsError>>(
        &self,
        from: &[VersionId],
        most: usize,
        mut each: impl FnMut(Past) -> Result<(), E>,
    ) -> Result<(), E> {
        let most = most.min(LOG_MAX);
        // Without values, of which a wide history has thousands in it: each is read again when it is told, and is mostly remembered.
        let mut border: BTreeMap<(u64, RecordId), Hint> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut unfound = Vec::new();
        let mut told = 0;
        // Those that are to be looked for, each with where it may be.
        let mut next: Vec<(RecordId, Hint)> = from.iter().map(|id| (id.h, id.n)).collect();
        loop {
            for (h, hint) in next.drain(..).filter(|(h, _)| seen.insert(*h)) {
                match self.ahead(&h, &hint).await {
                    Ok(found) => {
                        border.insert((found.version.l, h), found.hint);
                    }
                    Err(error) => unfound.push(error),
                }
                if is_enough(&unfound) {
                    break;
                }
            }
            if is_enough(&unfound) || told >= most {
                break;
            }
            let Some(((_, h), hint)) = border.pop_last() else { break };
            match self.ahead(&h, &hint).await {
                Ok(Found { version, hint, .. }) => {
                    told += 1;
                    if told < most {
                        next.extend(version.bases.iter().map(|base| (base, hint)));
                    }
                    each(past(h, version, hint))?;
                }
                Err(error) => unfound.push(error),
            }
        }
        // One that may be there later tells more than those that are not.
        let told = unfound.into_iter().min_by_key(|error| error.class() == Class::NotFound);
        told.map_or(Ok(()), |error| Err(error.into()))
    }

    /// A version that a walk needs, and what comes before it with it, since the walk will need that next.
    pub(crate) async fn ahead(&self, h: &RecordId, hint: &Hint) -> Result<Found, ObjectsError> {
        if let Some(found) = self.cached(h, hint) {
            return Ok(found);
        }
        let (history, _) = self.history(h, hint, AHEAD).await?;
        let (_, version, hint) =
            history.into_iter().next().ok_or(version::VersionError::Missing(*h))?;
        Ok(Found { version, hint, from: None, refused: Vec::new() })
    }

    fn cached(&self, h: &RecordId, hint: &Hint) -> Option<Found> {
        let version = self.objects.cache().get(h).filter(|found| found.object == self.key)?;
        Some(Found { version, hint: *hint, from: None, refused: Vec::new() })
    }

    /// Finds a version by its hash, likely at this hint.
    pub(crate) async fn find(
        &self,
        h: &RecordId,
        hint: &Hint,
        id: Option<VersionId>,
    ) -> Result<Found, ObjectsError> {
        if let Some(found) = self.cached(h, hint) {
            return Ok(found);
        }
        let (suite, object, wanted) = (self.objects.suite(), self.key, *h);
        let places = chain::Places::new(suite, object);
        let judge: Judge<(Version, Hint)> = Arc::new(move |_, answer| match answer {
            ObjectsAnswer::Get(mut answers) if answers.len() == 1 => match answers.remove(0) {
                Ok(Some(FoundVersion { record, .. })) => {
                    judged(chain::version(suite, &object, &places, &record).and_then(
                        |(h, version, hint)| {
                            let other = || format!("version {h} where {wanted} was asked for");
                            if h == wanted { Ok((version, hint)) } else { Err(other()) }
                        },
                    ))
                }
                Ok(None) => Judged::NotHere,
                Err(error) => Judged::Failed(error),
            },
            _ => Judged::Lie("it answers something else than a get".to_owned()),
        });
        let reader = self.objects.reader();
        let ask = |n: Hint| {
            let versions = vec![VersionAt { object, h: wanted, n }];
            let get = GetVersions { versions, attested: false, reader: reader.clone() };
            ObjectsRequest::Get(get)
        };
        let subject = id.map_or(Subject::Predecessor(*h), Subject::Version);
        let asked = self.ask_places(hint, VERSION_BYTES_MAX, &judge, ask, subject).await?;
        let Asked { answer: (version, hint), from, refused, .. } = asked;
        self.objects.cache().put(*h, version.clone());
        Ok(Found { version, hint, from: Some(from), refused })
    }

    /// A version and up to so many before it, as one peer has them.
    async fn history(
        &self,
        h: &RecordId,
        hint: &Hint,
        most: usize,
    ) -> Result<(Vec<Proven>, Hint), ObjectsError> {
        let most = most.clamp(1, PREVIOUS_MAX);
        let (suite, object, wanted) = (self.objects.suite(), self.key, *h);
        let judge: Judge<Vec<Proven>> = Arc::new(move |_, answer| match answer {
            ObjectsAnswer::Previous(PreviousAnswer { records, .. }) if records.is_empty() => {
                Judged::NotHere
            }
            ObjectsAnswer::Previous(PreviousAnswer { records, .. }) => {
                judged(chain::history(suite, &object, &wanted, most, &records))
            }
            _ => Judged::Lie("it answers something else than a history".to_owned()),
        });
        let reader = self.objects.reader();
        let ask = |n: Hint| {
            let version = VersionAt { object, h: wanted, n };
            let most = u32::try_from(most).unwrap_or(u32::MAX);
            ObjectsRequest::Previous(GetPrevious { version, most, reader: reader.clone() })
        };
        let bytes = if most > AHEAD { BATCH_BYTES_MAX } else { HISTORY_BYTES };
        let subject = Subject::Predecessor(*h);
        let Asked { answer, hint, .. } = self.ask_places(hint, bytes, &judge, ask, subject).await?;
        for (h, version, _) in &answer {
            self.objects.cache().put(*h, version.clone());
        }
        Ok((answer, hint))
    }

    /// Asks the holders of the likeliest place, then those of the object's other places, until one answers.
    async fn ask_places<T: Send + 'static>(
        &self,
        first: &Hint,
        bytes: usize,
        judge: &Judge<T>,
        ask: impl Fn(Hint) -> ObjectsRequest,
        subject: Subject,
    ) -> Result<Asked<T>, ObjectsError> {
        let (mut refused, mut missed) = (Vec::new(), Vec::new());
        for hint in self.hints(first) {
            let question = Question {
                place: self.place(&hint),
                copies: self.redundancy().copies,
                enough: self.enough(),
                request: ask(hint),
                bytes,
                judge: judge.clone(),
                may_all: self.is_own(),
            };
            match self.objects.walker().first_answer(&question).await {
                Ok((answer, from, errors)) => {
                    refused.extend(liars(&errors));
                    return Ok(Asked { answer, hint, from, refused });
                }
                Err(unanswered) => {
                    refused.extend(unanswered.liars());
                    missed.push(unanswered);
                }
            }
        }
        Err(verdict(subject, refused, missed))
    }
}

/// An answer, and where it is from.
struct Asked<T> {
    answer: T,
    hint: Hint,
    from: PeerId,
    refused: Vec<PeerId>,
}

pub(crate) fn past(h: RecordId, version: Version, n: Hint) -> Past {
    Past { id: VersionId { h, l: version.l, n }, version }
}

pub(crate) fn judged<T>(proven: Result<T, String>) -> Judged<T> {
    proven.map_or_else(Judged::Lie, Judged::Here)
}

pub(crate) fn liars(errors: &[(PeerId, CallError)]) -> impl Iterator<Item = PeerId> {
    let lied = errors.iter().filter(|(_, error)| matches!(error, CallError::Corrupt { .. }));
    lied.map(|(peer, _)| *peer)
}

/// What is to be said where nobody answered but so.
pub(crate) fn silent(subject: Subject, errors: Vec<(PeerId, CallError)>) -> ObjectsError {
    let from: Vec<PeerId> = liars(&errors).collect();
    if !from.is_empty() && !could_not_ask(&errors) {
        return ObjectsError::Corrupt { subject, from };
    }
    match denied(&errors) {
        Some(reason) => ObjectsError::Denied { subject, reason },
        None => {
            let unreachable = errors.len();
            ObjectsError::Unavailable { subject, asked: 0, unreachable, errors }
        }
    }
}

/// Whether some of these said nothing of what they were asked for, whyever: one of them that lies is no proof then that it cannot
/// be had.
fn could_not_ask(errors: &[(PeerId, CallError)]) -> bool {
    let said = |class| matches!(class, Class::NotFound | Class::Corrupt | Class::Invalid);
    errors.iter().any(|(_, error)| !said(error.class()))
}

/// What one of them said, where all of them refuse.
fn denied(errors: &[(PeerId, CallError)]) -> Option<String> {
    let reasons = errors.iter().map(|(_, error)| match error {
        CallError::Denied { reason } => Some(reason),
        _ => None,
    });
    reasons.collect::<Option<Vec<_>>>()?.first().map(|reason| (*reason).clone())
}

/// What is to be said where nobody had it at any place.
fn verdict(subject: Subject, refused: Vec<PeerId>, missed: Vec<Unanswered>) -> ObjectsError {
    if !refused.is_empty() && !missed.iter().any(|one| could_not_ask(&one.errors)) {
        return ObjectsError::Corrupt { subject, from: refused };
    }
    let asked = missed.iter().map(|one| one.not_here.len()).sum();
    if missed.iter().all(|one| one.is_nowhere) {
        return ObjectsError::NotYet { subject, asked };
    }
    let errors: Vec<_> = missed.into_iter().flat_map(|one| one.errors).collect();
    if let Some(reason) = denied(&errors) {
        return ObjectsError::Denied { subject, reason };
    }
    let unreachable = errors.len();
    ObjectsError::Unavailable { subject, asked, unreachable, errors }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_log_ends_where_nobody_answers_and_late_where_versions_are_nowhere() {
        let subject = || Subject::Predecessor(RecordId::new([1; 32]));
        let unavailable = |asked| {
            let (unreachable, errors) = (3, Vec::new());
            ObjectsError::Unavailable { subject: subject(), asked, unreachable, errors }
        };
        let mut unfound: Vec<ObjectsError> = Vec::new();
        for asked in 1..UNFOUND_MAX {
            unfound.push(ObjectsError::NotYet { subject: subject(), asked });
            assert!(!is_enough(&unfound));
            // Some answered.
            *unfound.last_mut().unwrap() = unavailable(asked);
            assert!(!is_enough(&unfound));
        }
        unfound.push(unavailable(1));
        assert!(is_enough(&unfound));
        assert!(is_enough(&[unavailable(0)]));
    }
}
