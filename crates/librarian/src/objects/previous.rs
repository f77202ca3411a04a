//! Previous: the versions that one was made of, nearest first.

use std::collections::VecDeque;

use crypto::RecordId;
use document::Record;
use env::calls::CallError;
use env::calls::objects::{GetPrevious, PREVIOUS_MAX, PreviousAnswer, VersionAt};
use version::{Hint, Links, ObjectKey, Previous, Step, View, places};

use super::elsewhere::Elsewhere;
use super::permissions::Reader;
use super::reads::Room;
use super::{ObjectShelf, invalid};
use crate::shelf::one_line;

/// Remote predecessors of a version here that stay in memory.
const REMOTE_KEPT: usize = 2;

/// A predecessor that a walk needs, and where to look for it.
struct Wanted {
    h: RecordId,
    /// What was made of it.
    child: Option<Record>,
    most: u32,
}

impl ObjectShelf {
    /// A version and what is before it: as far as it is here, and with `elsewhere` as far as other holders have it.
    ///
    /// # Errors
    /// For the whole request.
    pub(crate) async fn previous(
        &self,
        reader: Reader,
        request: GetPrevious,
        elsewhere: Elsewhere,
    ) -> Result<PreviousAnswer, CallError> {
        let (object, most) = (request.version.object, request.most as usize);
        if most == 0 || most > PREVIOUS_MAX {
            return Err(invalid(format!("1 to {PREVIOUS_MAX} predecessors are asked for")));
        }
        self.readable(&reader, &object).await?;
        // A peer is told what is here: else a question could go round. So is a stranger: others are asked for clients alone.
        let mut elsewhere = Some(elsewhere).filter(|_| !reader.is_peer() && !reader.is_stranger());
        let mut fetched = VecDeque::new();
        let mut walk = Previous::new(request.version.h, most);
        let (mut answer, mut room) = (PreviousAnswer::default(), Room::new());
        // Those that the walk found and that are not in the answer yet.
        let mut next = vec![request.version.h];
        while let Some(h) = next.pop() {
            let is_first = answer.records.is_empty();
            let wanted = Wanted {
                h,
                child: answer.records.last().cloned(),
                most: (most + 1 - answer.records.len()) as u32,
            };
            let found = self.predecessor(&object, wanted, &mut elsewhere, &mut fetched).await?;
            let fits = |record: &Record| room.take(record.bytes.len()) || is_first;
            let Some(record) = found.filter(fits) else {
                answer.missing = (!is_first).then_some(h);
                break;
            };
            answer.records.push(record);
            if next.is_empty() {
                next = self.after(&mut walk, &answer)?;
            }
        }
        Ok(answer)
    }

    /// One version of a walk: from here, from what was fetched before, or from another holder. The first one only from here.
    async fn predecessor(
        &self,
        object: &ObjectKey,
        wanted: Wanted,
        elsewhere: &mut Option<Elsewhere>,
        fetched: &mut VecDeque<Record>,
    ) -> Result<Option<Record>, CallError> {
        let Wanted { h, child, most } = wanted;
        if let Some(record) = self.proven_of(object, &h).await? {
            return Ok(Some(record));
        }
        let (Some(child), Some(elsewhere)) = (child, elsewhere.as_mut()) else { return Ok(None) };
        if let Some(at) = fetched.iter().position(|record| record.id == h) {
            return Ok(fetched.remove(at));
        }
        if let Some(record) = self.fetched.get(&h) {
            return Ok(Some(record));
        }
        let n = places(self.suite, *object).find(|(_, place)| *place == child.place);
        let n = n.map_or(Hint::FIRST, |(n, _)| n);
        *fetched = self.fetch(elsewhere, VersionAt { object: *object, h, n }, most).await.into();
        if self.objects.holds(&child.id) {
            for record in fetched.iter().take(REMOTE_KEPT) {
                self.fetched.put(record);
            }
        }
        Ok(fetched.pop_front())
    }

    /// What the walk needs next, the last first.
    fn after(
        &self,
        walk: &mut Previous,
        answer: &PreviousAnswer,
    ) -> Result<Vec<RecordId>, CallError> {
        let made_up = |error: version::VersionError| CallError::Corrupt {
            address: self.own.to_string(),
            reason: one_line(&error),
        };
        while let Step::Need(needed) = walk.step() {
            let Some(record) = answer.records.iter().rfind(|record| record.id == needed) else {
                break;
            };
            let view = View::decode(&record.bytes).map_err(made_up)?;
            walk.give(&needed, &Links::from(&view)).map_err(made_up)?;
        }
        let found = walk.found().iter().skip(answer.records.len().saturating_sub(1));
        Ok(found.rev().copied().collect())
    }
}
