//! Where each live record is: a table in memory.
//!
//! A record costs 48 bytes in a table, 55 to 110 with the table's slack. It is a row of small tables, by the first bits of the ids, in the order of the
//! ids: so one that grows is soon done, and who wants ids in order sorts one table at a time, which few
//! do. A search tree took a sixth of the time of a small write, tables take half of that. It is guarded
//! by one lock that is never held while anything is read or written.
//!
//! A table of more than [`TABLE_RECORDS_MAX`] becomes a row of tables itself, by the next bits. Ids are hashes, but whoever chooses
//! the bytes can have a million of them begin alike for a thousand tries each; all of one long table would be sorted for each
//! part of a list.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crypto::RecordId;
use document::Kind;
use foldhash::fast::RandomState;

use super::frame::{Content, HEADER_BYTES, HEADER_BYTES_MAX, Header, Marker};

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
    /// Whether its payload is a form.
    pub form: bool,
    /// The record's kind.
    pub kind: Kind,
}

impl Location {
    /// Bytes of its header.
    pub(crate) fn header_len(&self) -> usize {
        if self.placed { HEADER_BYTES_MAX } else { HEADER_BYTES }
    }

    /// Whether it is the same frame.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        (self.segment, self.offset) == (other.segment, other.offset)
    }

    /// Whether it is a fragment of a stripe, which lives elsewhere than at its id.
    fn is_fragment(&self) -> bool {
        self.placed && matches!(self.kind, Kind::Page | Kind::Parity)
    }

    /// Bytes of header and payload.
    pub(crate) fn frame_len(&self) -> usize {
        self.header_len() + self.length as usize
    }
}

/// What is known of a segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Extent {
    /// Bytes of it that are part of the store.
    pub len: u64,
    /// `None` where neither its head nor its index file tells it: then its frames cannot be searched for.
    pub marker: Option<Marker>,
    /// The disk could not read some of it when the store opened: there may be records in it that are not known.
    pub unread: bool,
    /// Bytes of the frames of live records in it.
    pub live: u64,
    /// Removals in it.
    pub removals: u64,
    /// Bytes of its fillers.
    pub fillers: u64,
}

impl Extent {
    /// Whether all that is in it is known, but for what is damaged for good.
    pub(crate) fn is_known(&self) -> bool {
        self.marker.is_some() && !self.unread
    }
}

/// The first bits of an id that choose its table.
const CHOICE_BITS: u32 = 10;
/// The bits of the second byte behind those, which choose in the next row; from there on it is a byte a row.
const REST_BITS: u32 = u16::BITS - CHOICE_BITS;
/// Records of one table: with ids that are spread, a store of 16 million has them. It is what is sorted at once, and moved.
const TABLE_RECORDS_MAX: usize = 1 << 14;

type Table = HashMap<RecordId, Location, RandomState>;

/// A table, or the row of tables that it became, in the order of the ids.
#[derive(Clone, Debug)]
enum Node {
    Table(Table),
    Row(Vec<Node>),
}

impl Default for Node {
    fn default() -> Self {
        Self::Table(Table::default())
    }
}

/// The records' locations by id.
#[derive(Debug)]
struct Records {
    nodes: Vec<Node>,
    len: usize,
}

impl Default for Records {
    fn default() -> Self {
        Self { nodes: vec![Node::default(); 1 << CHOICE_BITS], len: 0 }
    }
}

/// Which node of a row an id is in; rows are numbered from the first one on.
fn choice(id: &RecordId, row: usize) -> usize {
    let bytes = id.as_bytes();
    match row {
        0 => usize::from(u16::from_be_bytes([bytes[0], bytes[1]]) >> REST_BITS),
        1 => usize::from(bytes[1]) & ((1 << REST_BITS) - 1),
        _ => usize::from(bytes[row]),
    }
}

/// How many nodes a row has that is not the first.
fn row_len(row: usize) -> usize {
    if row == 1 { 1 << REST_BITS } else { 1 << u8::BITS }
}

/// The rows there can be: ids that are the same to their last byte are one id.
const ROWS_MAX: usize = 32;

/// Takes in a record of a table of a row; what it was before.
fn insert_into(node: &mut Node, row: usize, id: RecordId, location: Location) -> Option<Location> {
    match node {
        Node::Row(nodes) => insert_into(&mut nodes[choice(&id, row)], row + 1, id, location),
        Node::Table(table) => {
            let before = table.insert(id, location);
            if table.len() > TABLE_RECORDS_MAX && row < ROWS_MAX {
                let mut nodes = vec![Node::default(); row_len(row)];
                for (id, location) in table.drain() {
                    insert_into(&mut nodes[choice(&id, row)], row + 1, id, location);
                }
                *node = Node::Row(nodes);
            }
            before
        }
    }
}

/// Adds ids of a node to `ids`, which are those before it, in order and up to `limit` of them: those not before `from`, where
/// there is one.
fn add_ids(
    node: &Node,
    row: usize,
    from: Option<&RecordId>,
    limit: usize,
    ids: &mut Vec<RecordId>,
) {
    match node {
        Node::Row(nodes) => {
            let first = from.map_or(0, |from| choice(from, row));
            for (at, node) in nodes.iter().enumerate().skip(first) {
                if ids.len() >= limit {
                    return;
                }
                add_ids(node, row + 1, from.filter(|_| at == first), limit, ids);
            }
        }
        Node::Table(table) => {
            let sorted = ids.len();
            let wanted = |id: &&RecordId| from.is_none_or(|from| *id >= from);
            ids.extend(table.keys().filter(wanted));
            let more = limit.saturating_sub(sorted);
            if ids.len() - sorted > more {
                ids[sorted..].select_nth_unstable(more);
                ids.truncate(limit);
            }
            ids[sorted..].sort_unstable();
        }
    }
}

impl Records {
    fn get(&self, id: &RecordId) -> Option<&Location> {
        let mut node = &self.nodes[choice(id, 0)];
        let mut row = 1;
        loop {
            match node {
                Node::Table(table) => return table.get(id),
                Node::Row(nodes) => node = &nodes[choice(id, row)],
            }
            row += 1;
        }
    }

    fn table_mut(&mut self, id: &RecordId) -> &mut Table {
        let mut node = &mut self.nodes[choice(id, 0)];
        let mut row = 1;
        loop {
            match node {
                Node::Table(table) => return table,
                Node::Row(nodes) => node = &mut nodes[choice(id, row)],
            }
            row += 1;
        }
    }

    fn get_mut(&mut self, id: &RecordId) -> Option<&mut Location> {
        self.table_mut(id).get_mut(id)
    }

    fn insert(&mut self, id: RecordId, location: Location) -> Option<Location> {
        let before = insert_into(&mut self.nodes[choice(&id, 0)], 1, id, location);
        self.len += usize::from(before.is_none());
        before
    }

    fn remove(&mut self, id: &RecordId) -> Option<Location> {
        let before = self.table_mut(id).remove(id);
        self.len -= usize::from(before.is_some());
        before
    }

    fn iter(&self) -> impl Iterator<Item = (&RecordId, &Location)> {
        let mut nodes: Vec<&Node> = self.nodes.iter().collect();
        let tables = std::iter::from_fn(move || {
            loop {
                match nodes.pop()? {
                    Node::Table(table) => return Some(table),
                    Node::Row(more) => nodes.extend(more),
                }
            }
        });
        tables.flatten()
    }

    /// The first `limit` ids from one on, in ascending order.
    fn from(&self, id: &RecordId, limit: usize) -> Vec<RecordId> {
        let mut ids: Vec<RecordId> = Vec::new();
        let first = choice(id, 0);
        for (at, node) in self.nodes.iter().enumerate().skip(first) {
            if ids.len() >= limit {
                break;
            }
            add_ids(node, 1, Some(id).filter(|_| at == first), limit, &mut ids);
        }
        ids
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// The live records, and the segments they are in.
#[derive(Debug, Default)]
pub(crate) struct Index {
    records: Records,
    segments: BTreeMap<u32, Extent>,
    bytes: u64,
    fragments: u64,
    damaged: BTreeSet<RecordId>,
}

impl Index {
    pub(crate) fn get(&self, id: &RecordId) -> Option<Location> {
        self.records.get(id).copied()
    }

    /// Whether the record is there and, as far as is known, reads well.
    pub(crate) fn is_good(&self, id: &RecordId) -> bool {
        self.records.get(id).is_some_and(|location| !location.damaged)
    }

    /// Looks for records that are about to be inserted, so that what is then written to is in the processor's cache: it is waited for
    /// together, where each insertion would wait by itself.
    pub(crate) fn warm<'a>(&self, ids: impl Iterator<Item = &'a RecordId>) {
        std::hint::black_box(ids.filter(|id| self.records.get(id).is_some()).count());
    }

    /// Takes in a frame: a later one of the same record replaces the earlier.
    pub(crate) fn apply(&mut self, segment: u32, offset: u32, header: &Header, intact: bool) {
        match header.content {
            Content::Removal => self.remove(segment, &header.id),
            Content::Filler { .. } => self.fill(segment, header.frame_len()),
            Content::Record { length, kind, form, .. } => {
                let (damaged, placed) = (!intact, header.placed());
                let location = Location { segment, offset, length, placed, damaged, form, kind };
                self.insert(header.id, location);
            }
        }
    }

    pub(crate) fn insert(&mut self, id: RecordId, location: Location) {
        let before = self.records.insert(id, location);
        self.forget(&id, before);
        self.bytes += u64::from(location.length);
        self.fragments += u64::from(location.is_fragment());
        self.segments.entry(location.segment).or_default().live += location.frame_len() as u64;
        if location.damaged {
            self.damaged.insert(id);
        }
    }

    /// Takes in a filler of so many bytes.
    pub(crate) fn fill(&mut self, segment: u32, bytes: u64) {
        self.segments.entry(segment).or_default().fillers += bytes;
    }

    /// Takes in a removal in a segment.
    pub(crate) fn remove(&mut self, segment: u32, id: &RecordId) {
        self.segments.entry(segment).or_default().removals += 1;
        let before = self.records.remove(id);
        self.forget(id, before);
    }

    fn forget(&mut self, id: &RecordId, before: Option<Location>) {
        let Some(location) = before else { return };
        self.bytes -= u64::from(location.length);
        self.fragments -= u64::from(location.is_fragment());
        if let Some(extent) = self.segments.get_mut(&location.segment) {
            extent.live -= location.frame_len() as u64;
        }
        self.damaged.remove(id);
    }

    /// Tells how long a segment is, and its marker.
    pub(crate) fn extend(&mut self, segment: u32, len: u64, marker: Option<Marker>) {
        let extent = self.segments.entry(segment).or_default();
        (extent.len, extent.marker) = (len, marker);
    }

    /// Tells that the disk could not read some of a segment.
    pub(crate) fn unread(&mut self, segment: u32) {
        self.segments.entry(segment).or_default().unread = true;
    }

    /// The first segment from `number` on.
    pub(crate) fn segment_from(&self, number: u32) -> Option<(u32, Extent)> {
        self.segments.range(number..).next().map(|(number, extent)| (*number, *extent))
    }

    /// All segments, by number.
    pub(crate) fn segments(&self) -> impl DoubleEndedIterator<Item = (u32, &Extent)> {
        self.segments.iter().map(|(number, extent)| (*number, extent))
    }

    /// Segments of which nobody knows what all is in them.
    pub(crate) fn unknown(&self) -> Vec<u32> {
        let unknown = self.segments.iter().filter(|(_, extent)| !extent.is_known());
        unknown.map(|(number, _)| *number).collect()
    }

    /// Forgets a segment without live records.
    pub(crate) fn drop_segment(&mut self, number: u32) {
        let dropped = self.segments.remove(&number);
        debug_assert!(dropped.is_none_or(|extent| extent.live == 0));
    }

    /// The live records whose frames begin within one of these ranges of a segment. It looks at
    /// every record, once however many ranges there are.
    pub(crate) fn within(&self, segment: u32, ranges: &[(u64, u64)]) -> Vec<(RecordId, Location)> {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable();
        // Each ends where the last of those that begin no later does.
        let mut end = 0;
        for range in &mut sorted {
            end = end.max(range.1);
            range.1 = end;
        }
        let hit = |location: &Location| {
            let offset = u64::from(location.offset);
            location.segment == segment && {
                let before = sorted.partition_point(|(from, _)| *from <= offset);
                before.checked_sub(1).is_some_and(|last| offset < sorted[last].1)
            }
        };
        let found = self.records.iter().filter(|(_, location)| hit(location));
        let mut found: Vec<_> = found.map(|(id, location)| (*id, *location)).collect();
        found.sort_unstable_by_key(|(id, _)| *id);
        found
    }

    /// The live records of these kinds, damaged ones too, in the order of the log. It looks at every record.
    pub(crate) fn of_kinds(&self, kinds: &[Kind]) -> Vec<(RecordId, Location)> {
        let wanted = |(_, location): &(&RecordId, &Location)| kinds.contains(&location.kind);
        let found = self.records.iter().filter(wanted);
        let mut found: Vec<_> = found.map(|(id, location)| (*id, *location)).collect();
        found.sort_unstable_by_key(|(_, location)| (location.segment, location.offset));
        found
    }

    /// Marks a record as damaged, unless it was written anew meanwhile.
    pub(crate) fn mark_damaged(&mut self, id: &RecordId, read_at: &Location) {
        if let Some(location) = self.records.get_mut(id)
            && location == read_at
            && !location.damaged
        {
            location.damaged = true;
            self.damaged.insert(*id);
        }
    }

    /// Marks a record as whole, which was read where it is and found so.
    pub(crate) fn mark_whole(&mut self, id: &RecordId, read_at: &Location) {
        if let Some(location) = self.records.get_mut(id)
            && location.is_at(read_at)
        {
            location.damaged = false;
            self.damaged.remove(id);
        }
    }

    pub(crate) fn ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId> {
        self.records.from(from, limit)
    }

    pub(crate) fn records(&self) -> u64 {
        self.records.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Live records that are fragments of stripes.
    pub(crate) fn fragments(&self) -> u64 {
        self.fragments
    }

    pub(crate) fn damaged(&self) -> u64 {
        self.damaged.len() as u64
    }

    /// Bytes of the frames of damaged records, by segment.
    pub(crate) fn damaged_bytes(&self) -> BTreeMap<u32, u64> {
        let mut bytes = BTreeMap::new();
        for location in self.damaged.iter().filter_map(|id| self.records.get(id)) {
            *bytes.entry(location.segment).or_default() += location.frame_len() as u64;
        }
        bytes
    }

    pub(crate) fn damaged_ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId> {
        self.damaged.range(from..).take(limit).copied().collect()
    }
}

#[cfg(test)]
mod tests;
