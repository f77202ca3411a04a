//! Where a watch is: at which event of each holder, and which versions it told last.
//!
//! ```text
//! "holdfast watch v1" | count of holders 2 | (peer 33 | run 8 | next 8), each | count of objects 4 | (key 32 | count 1 | (h 32 | l 8), each), each
//! ```
//! It is its user's own, and nobody's word: a wrong one tells versions twice, or not.

use std::collections::BTreeMap;

use crypto::{PeerId, RecordId};
use env::calls::objects::WatchCursor;
use version::{Bases, ObjectKey};

use crate::objects::ObjectsError;

const PREFIX: &[u8] = b"holdfast watch v1";
/// Versions told last that are kept of one object: those without a successor, the deepest.
const FRONTIER_MAX: usize = 64;
/// Holders whose cursors are kept: a watch follows fewer, and others in their place as they come and go. It fits the 2 bytes.
const CURSORS_MAX: usize = 1_024;
/// Objects of which that is kept.
const OBJECTS_KEPT_MAX: usize = 65_536;

/// Where a watch is. [`WatchPoint::encode`] makes bytes of it, to be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchPoint {
    cursors: BTreeMap<PeerId, WatchCursor>,
    frontier: BTreeMap<ObjectKey, Vec<(RecordId, u64)>>,
}

/// How a watch went on.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    /// A holder's cursor.
    pub(super) cursor: Option<WatchCursor>,
    /// A version that was told: its object, hash, depth and bases.
    pub(super) version: Option<(ObjectKey, RecordId, u64, Bases)>,
}

impl WatchPoint {
    pub(super) fn cursor(&self, peer: &PeerId) -> Option<WatchCursor> {
        self.cursors.get(peer).copied()
    }

    pub(super) fn of(&self, object: &ObjectKey) -> Vec<(RecordId, u64)> {
        self.frontier.get(object).cloned().unwrap_or_default()
    }

    pub(super) fn hs(&self) -> impl Iterator<Item = RecordId> + '_ {
        self.frontier.values().flatten().map(|(h, _)| *h)
    }

    pub(super) fn take(&mut self, step: Step) {
        if let Some(cursor) = step.cursor {
            self.move_to(cursor);
        }
        let Some((object, h, l, bases)) = step.version else { return };
        if self.frontier.len() >= OBJECTS_KEPT_MAX && !self.frontier.contains_key(&object) {
            self.frontier.pop_first();
        }
        let told = self.frontier.entry(object).or_default();
        told.retain(|(known, _)| !bases.contains(known) && *known != h);
        told.push((h, l));
        if told.len() > FRONTIER_MAX {
            told.sort_unstable_by_key(|(h, l)| std::cmp::Reverse((*l, *h)));
            told.truncate(FRONTIER_MAX);
        }
    }

    fn move_to(&mut self, cursor: WatchCursor) {
        if self.cursors.len() >= CURSORS_MAX && !self.cursors.contains_key(&cursor.peer) {
            // Without its cursor a holder tells its tips, from which all that was not told is walked back to.
            self.cursors.pop_first();
        }
        self.cursors.insert(cursor.peer, cursor);
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = PREFIX.to_vec();
        out.extend_from_slice(&(self.cursors.len() as u16).to_be_bytes());
        for cursor in self.cursors.values() {
            out.extend_from_slice(cursor.peer.as_bytes());
            out.extend_from_slice(&cursor.run.to_be_bytes());
            out.extend_from_slice(&cursor.next.to_be_bytes());
        }
        out.extend_from_slice(&(self.frontier.len() as u32).to_be_bytes());
        for (object, told) in &self.frontier {
            out.extend_from_slice(object.as_bytes());
            out.push(told.len() as u8);
            for (h, l) in told {
                out.extend_from_slice(h.as_bytes());
                out.extend_from_slice(&l.to_be_bytes());
            }
        }
        out
    }

    /// Reads what [`WatchPoint::encode`] wrote.
    ///
    /// # Errors
    /// [`ObjectsError::WatchPoint`] for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, ObjectsError> {
        Self::read(bytes).ok_or(ObjectsError::WatchPoint)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(PREFIX)?;
        let mut point = Self::default();
        for _ in 0..u16::from_be_bytes(array(&mut rest)?) {
            let peer = PeerId::from_slice(&array::<33>(&mut rest)?).ok()?;
            let run = u64::from_be_bytes(array(&mut rest)?);
            let next = u64::from_be_bytes(array(&mut rest)?);
            point.move_to(WatchCursor { peer, run, next });
        }
        for _ in 0..u32::from_be_bytes(array(&mut rest)?) {
            let object = ObjectKey::new(array(&mut rest)?);
            let mut told = Vec::new();
            for _ in 0..array::<1>(&mut rest)?[0] {
                let h = RecordId::new(array(&mut rest)?);
                told.push((h, u64::from_be_bytes(array(&mut rest)?)));
            }
            point.frontier.insert(object, told);
        }
        rest.is_empty().then_some(point)
    }
}

fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_again_and_nothing_else_is() {
        let mut point = WatchPoint::default();
        let secret = crypto::SecretKey::from_bytes(&[1; 32]).expect("a scalar");
        let peer = PeerId::new(secret.public());
        let cursor = Some(WatchCursor { peer, run: 3, next: 9 });
        point.take(Step { cursor, ..Step::default() });
        let (object, one) = (ObjectKey::new([1; 32]), RecordId::new([2; 32]));
        point.take(Step { version: Some((object, one, 0, Bases::NONE)), ..Step::default() });
        let two = RecordId::new([3; 32]);
        let version = Some((object, two, 1, Bases::one(one)));
        point.take(Step { version, ..Step::default() });
        assert_eq!(point.of(&object), [(two, 1)]);
        let bytes = point.encode();
        assert_eq!(WatchPoint::decode(&bytes).expect("its own"), point);
        for length in 0..bytes.len() {
            assert!(WatchPoint::decode(&bytes[..length]).is_err(), "{length}");
        }
        assert!(WatchPoint::decode(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn it_keeps_so_many_cursors_and_no_more() {
        let mut point = WatchPoint::default();
        for number in 1..CURSORS_MAX as u64 + 10 {
            let mut bytes = [0; 32];
            bytes[24..].copy_from_slice(&number.to_be_bytes());
            let secret = crypto::SecretKey::from_bytes(&bytes).expect("a scalar");
            let peer = PeerId::new(secret.public());
            let cursor = Some(WatchCursor { peer, run: 1, next: number });
            point.take(Step { cursor, ..Step::default() });
            assert_eq!(point.cursor(&peer).map(|cursor| cursor.next), Some(number));
        }
        assert_eq!(point.cursors.len(), CURSORS_MAX);
        assert_eq!(WatchPoint::decode(&point.encode()).expect("its own"), point);
    }
}
