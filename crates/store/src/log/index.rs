//! Where each live record is: an ordered map in memory.
//!
//! A record costs 48 bytes in the map's leaves, about 70 with their slack: a million records are 70
//! MB, a thousand are 70 KB. The map is guarded by one lock that is never held while anything is
//! read or written.

use std::collections::BTreeMap;

use crypto::RecordId;

use super::frame::{Content, HEADER_BYTES, HEADER_BYTES_MAX, Header};

/// Where a record's frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub segment: u32,
    /// Of its header. Segments are under 4 GiB.
    pub offset: u32,
    /// Of its payload.
    pub length: u32,
    /// Whether its header has a place.
    pub placed: bool,
    /// Whether it was found damaged.
    pub damaged: bool,
}

impl Location {
    /// Bytes of its header.
    pub(crate) fn header_len(&self) -> usize {
        if self.placed { HEADER_BYTES_MAX } else { HEADER_BYTES }
    }

    /// Bytes of header and payload.
    pub(crate) fn frame_len(&self) -> usize {
        self.header_len() + self.length as usize
    }
}

/// The live records.
#[derive(Debug, Default)]
pub(crate) struct Index {
    records: BTreeMap<RecordId, Location>,
    bytes: u64,
    damaged: u64,
}

impl Index {
    pub(crate) fn get(&self, id: &RecordId) -> Option<Location> {
        self.records.get(id).copied()
    }

    /// Whether the record is there and, as far as is known, reads well.
    pub(crate) fn is_good(&self, id: &RecordId) -> bool {
        self.records.get(id).is_some_and(|location| !location.damaged)
    }

    /// Takes in a frame: a later one of the same record replaces the earlier.
    pub(crate) fn apply(&mut self, segment: u32, offset: u32, header: &Header, intact: bool) {
        match header.content {
            Content::Removal => self.remove(&header.id),
            Content::Record { length, .. } => {
                let damaged = !intact;
                let placed = header.placed();
                self.insert(header.id, Location { segment, offset, length, placed, damaged });
            }
        }
    }

    pub(crate) fn insert(&mut self, id: RecordId, location: Location) {
        self.bytes += u64::from(location.length);
        self.damaged += u64::from(location.damaged);
        let before = self.records.insert(id, location);
        self.forget(before);
    }

    pub(crate) fn remove(&mut self, id: &RecordId) {
        let before = self.records.remove(id);
        self.forget(before);
    }

    fn forget(&mut self, before: Option<Location>) {
        if let Some(location) = before {
            self.bytes -= u64::from(location.length);
            self.damaged -= u64::from(location.damaged);
        }
    }

    /// Marks a record as damaged, unless it was written anew meanwhile.
    pub(crate) fn mark_damaged(&mut self, id: &RecordId, read_at: &Location) {
        if let Some(location) = self.records.get_mut(id)
            && location == read_at
            && !location.damaged
        {
            location.damaged = true;
            self.damaged += 1;
        }
    }

    pub(crate) fn ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId> {
        self.records.range(from..).take(limit).map(|(id, _)| *id).collect()
    }

    pub(crate) fn records(&self) -> u64 {
        self.records.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn damaged(&self) -> u64 {
        self.damaged
    }
}
