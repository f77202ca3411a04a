//! Previous: the versions that one was made of, nearest first.

use crypto::RecordId;
use env::calls::CallError;
use env::calls::objects::{GetPrevious, PREVIOUS_MAX, PreviousAnswer};
use version::{Links, Previous, Step, View};

use super::permissions::Reader;
use super::reads::Room;
use super::{ObjectShelf, invalid};
use crate::shelf::one_line;

impl ObjectShelf {
    /// A version and what is before it, as far as it is here.
    ///
    /// # Errors
    /// For the whole request.
    pub(crate) async fn previous(
        &self,
        reader: Reader,
        request: GetPrevious,
    ) -> Result<PreviousAnswer, CallError> {
        let (object, most) = (request.version.object, request.most as usize);
        if most == 0 || most > PREVIOUS_MAX {
            return Err(invalid(format!("1 to {PREVIOUS_MAX} predecessors are asked for")));
        }
        self.readable(&reader, &object).await?;
        let mut walk = Previous::new(request.version.h, most);
        let mut answer = PreviousAnswer::default();
        let mut room = Room::new();
        // Those that the walk found and that are not in the answer yet.
        let mut next = vec![request.version.h];
        while let Some(h) = next.pop() {
            let found = self.objects.proven(&object, &h).await;
            let record = found.map_err(|error| self.refused(error))?.map(|(record, _)| record);
            let is_first = answer.records.is_empty();
            let Some(record) = record.filter(|record| is_first || room.take(record.bytes.len()))
            else {
                answer.missing = (!is_first).then_some(h);
                break;
            };
            if is_first {
                room.take(record.bytes.len());
            }
            answer.records.push(record);
            if next.is_empty() {
                next = self.after(&mut walk, &answer)?;
            }
        }
        Ok(answer)
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
