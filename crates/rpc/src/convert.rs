//! Messages of the wire to and from the plain types of `env::calls`, with every length checked.
//!
//! Both directions are hostile: a request comes from any caller, an answer from any peer. A field
//! that is wrong is named, so that whoever writes a client sees which.

mod answers;
pub(crate) mod committee;
pub(crate) mod keep;
pub(crate) mod leases;
pub(crate) mod objects;
mod requests;
mod room;
mod watch;

use crypto::{Place, RecordId};
use document::{Kind, Record};
use env::calls::Cursor;

use crate::framing::COPIED_BYTES;
use crate::limits::RECORD_BYTES_MAX;
use crate::proto;

/// The field of a message that is not what it should be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub(crate) struct Wrong(pub(crate) &'static str);

/// A message of the wire that becomes a `T`, or is wrong.
pub(crate) trait Open<T> {
    fn open(self) -> Result<T, Wrong>;
}

fn array32(bytes: &[u8], what: &'static str) -> Result<[u8; 32], Wrong> {
    bytes.try_into().map_err(|_| Wrong(what))
}

fn copied(bytes: &[u8]) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(bytes)
}

/// Id and place of a message; an empty place is the id.
fn id_and_place(id: &[u8], place: &[u8]) -> Result<(RecordId, Place), Wrong> {
    let id = RecordId::new(array32(id, "id is not 32 bytes")?);
    if place.is_empty() {
        return Ok((id, Place::from(id)));
    }
    Ok((id, Place::new(array32(place, "place is neither empty nor 32 bytes")?)))
}

/// The place as it travels: empty where it is the id.
fn place_bytes(id: &RecordId, place: &Place) -> bytes::Bytes {
    if *place == Place::from(*id) { bytes::Bytes::new() } else { copied(place.as_bytes()) }
}

impl Open<Record> for proto::Record {
    fn open(self) -> Result<Record, Wrong> {
        let kind = Kind::from_number(self.kind).ok_or(Wrong("unknown kind of record"))?;
        let (id, place) = id_and_place(&self.id, &self.place)?;
        if self.bytes.is_empty() {
            return Err(Wrong("a record without bytes"));
        }
        if self.bytes.len() > RECORD_BYTES_MAX {
            return Err(Wrong("a record over 2 MiB + 1 KiB"));
        }
        // A short one that is kept would keep all that it came with: up to a frame of 2 MiB, which nobody counts.
        let bytes = match self.bytes.len() < COPIED_BYTES {
            true => copied(&self.bytes),
            false => self.bytes,
        };
        Ok(Record { kind, id, place, bytes })
    }
}

impl Open<Record> for Option<proto::Record> {
    fn open(self) -> Result<Record, Wrong> {
        self.ok_or(Wrong("record is missing"))?.open()
    }
}

impl From<Record> for proto::Record {
    fn from(record: Record) -> Self {
        Self {
            kind: u32::from(record.kind.number()),
            id: copied(record.id.as_bytes()),
            place: place_bytes(&record.id, &record.place),
            bytes: record.bytes,
        }
    }
}

impl Open<Cursor> for Option<proto::Cursor> {
    fn open(self) -> Result<Cursor, Wrong> {
        let Some(cursor) = self else { return Ok(Cursor::default()) };
        let peer = match cursor.peer.len() {
            0 => None,
            _ => Some(
                crypto::PeerId::from_slice(&cursor.peer)
                    .map_err(|_| Wrong("the cursor's peer is not a public key"))?,
            ),
        };
        Ok(Cursor { peer, offset: cursor.offset, unix_ms: cursor.unix_ms })
    }
}

impl From<Cursor> for proto::Cursor {
    fn from(cursor: Cursor) -> Self {
        Self {
            peer: cursor.peer.map(|peer| copied(peer.as_bytes())).unwrap_or_default(),
            offset: cursor.offset,
            unix_ms: cursor.unix_ms,
        }
    }
}

#[cfg(test)]
mod tests;
