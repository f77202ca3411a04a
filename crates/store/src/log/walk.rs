//! Reading every record of some kinds, once, in the order of the log.
//!
//! The index says where they are, so segments of other kinds are not touched; what lies together is read together.

use std::io;

use crypto::RecordId;
use document::{Kind, Record};

use super::frame::{Content, Header};
use super::index::Location;
use super::segment::log_name;
use super::{LogStore, MOVES_MAX};
use crate::checksum::crc32c;
use crate::window::Window;
use crate::{Part, StoreError, io_error};

impl LogStore {
    pub(super) fn walk_kinds(
        &self,
        kinds: &[Kind],
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<Vec<RecordId>, StoreError> {
        let mut damaged = Vec::new();
        let found = self.shared.index().of_kinds(kinds);
        for records in found.chunk_by(|a, b| a.1.segment == b.1.segment) {
            let Some((_, first)) = records.first() else { continue };
            let name = log_name(first.segment);
            let read = io_error("read", &name);
            let file = match self.shared.files.get(first.segment) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // Compaction moved what counts in it, and removed it.
                    for (id, _) in records {
                        self.walk_moved(id, each, &mut damaged)?;
                    }
                    continue;
                }
                file => file.map_err(&read)?,
            };
            let len = file.len().map_err(&read)?;
            let mut window = Window::passing(&*file, len);
            for (id, location) in records {
                if location.damaged {
                    damaged.push(*id);
                    continue;
                }
                let end = u64::from(location.offset) + location.frame_len() as u64;
                let found = match window.at(location.offset.into(), location.frame_len()) {
                    Ok(frame) => part(frame, location).filter(|part| part.id == *id),
                    Err(error) => window.pass(error, end).map(|()| None).map_err(&read)?,
                };
                match found {
                    Some(part) => each(part),
                    None => {
                        drop(self.shared.damaged(id, location));
                        damaged.push(*id);
                    }
                }
            }
        }
        Ok(damaged)
    }

    /// Reads a record where it is now; one that is gone is passed over.
    fn walk_moved(
        &self,
        id: &RecordId,
        each: &mut dyn FnMut(Part<'_>),
        damaged: &mut Vec<RecordId>,
    ) -> Result<(), StoreError> {
        for left in (0..MOVES_MAX).rev() {
            let Some(location) = self.shared.index().get(id) else { return Ok(()) };
            if location.damaged {
                damaged.push(*id);
                return Ok(());
            }
            match self.shared.payload(id, location) {
                Ok(Record { id, kind, place, bytes }) => {
                    each(Part { id, kind, place, payload: &bytes, is_form: location.form });
                    return Ok(());
                }
                Err(StoreError::Damaged { .. }) => {
                    damaged.push(*id);
                    return Ok(());
                }
                Err(error) if left == 0 => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// What is kept in a frame, where everything in it is as it should be.
fn part<'a>(frame: &'a [u8], location: &Location) -> Option<Part<'a>> {
    let header = Header::decode_unmarked(frame)?;
    let Content::Record { kind, place, length, payload_crc, form } = header.content else {
        return None;
    };
    let payload = frame.get(location.header_len()..)?;
    let intact = length as usize == payload.len() && crc32c(payload) == payload_crc;
    intact.then_some(Part { id: header.id, kind, place, payload, is_form: form })
}
