//! Reading every record of some kinds, once, in the order of the log.
//!
//! The index says where they are, so segments of other kinds are not touched; what lies together is read together.

use crypto::RecordId;
use document::Kind;

use super::LogStore;
use super::frame::{Content, Header};
use super::index::Location;
use super::segment::log_name;
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
            let file = self.shared.files.get(first.segment).map_err(&read)?;
            let len = file.len().map_err(&read)?;
            let mut window = Window::new(&*file, len);
            for (id, location) in records {
                if location.damaged {
                    damaged.push(*id);
                    continue;
                }
                let frame =
                    window.at(location.offset.into(), location.frame_len()).map_err(&read)?;
                match part(frame, location).filter(|part| part.id == *id) {
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
