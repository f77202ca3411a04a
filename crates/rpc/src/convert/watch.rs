//! Watches of objects, and what they tell.

use bytes::Bytes;
use crypto::PeerId;
use document::Kind;
use env::calls::objects::{WatchCursor, WatchEvent, WatchRequest, Watched};

use super::objects::{all_objects, check_watch, given, object, owner};
use super::{Open, Wrong, copied};
use crate::proto;

impl Open<WatchCursor> for proto::WatchCursor {
    fn open(self) -> Result<WatchCursor, Wrong> {
        let peer = PeerId::from_slice(&self.peer)
            .map_err(|_| Wrong("the cursor's peer is not a public key"))?;
        Ok(WatchCursor { peer, run: self.run, next: self.next })
    }
}

impl From<WatchCursor> for proto::WatchCursor {
    fn from(cursor: WatchCursor) -> Self {
        Self { peer: copied(cursor.peer.as_bytes()), run: cursor.run, next: cursor.next }
    }
}

impl Open<WatchRequest> for proto::WatchRequest {
    fn open(self) -> Result<WatchRequest, Wrong> {
        use proto::watch_request::What as Wire;
        let what = match self.what.ok_or(Wrong("what to watch is missing"))? {
            Wire::Objects(all) => Watched::Objects(all_objects(&all.objects)?),
            Wire::Family(one) => Watched::Family(owner(&one.owner)?, one.prefix),
            Wire::Branch(one) => {
                Watched::Branch(owner(&one.owner)?, object(&one.object)?, one.branch)
            }
        };
        let from = self.from.map(Open::open).transpose()?;
        let request = WatchRequest { what, from, reader: given(self.reader) };
        check_watch(&request)?;
        Ok(request)
    }
}

impl From<WatchRequest> for proto::WatchRequest {
    fn from(request: WatchRequest) -> Self {
        use proto::watch_request::What as Wire;
        let what = match request.what {
            Watched::Objects(objects) => {
                let objects: Vec<Bytes> =
                    objects.iter().map(|object| copied(object.as_bytes())).collect();
                Wire::Objects(proto::WatchedObjects { objects })
            }
            Watched::Family(owner, prefix) => {
                Wire::Family(proto::WatchedFamily { owner: copied(owner.as_bytes()), prefix })
            }
            Watched::Branch(owner, object, branch) => {
                let (owner, object) = (copied(owner.as_bytes()), copied(object.as_bytes()));
                Wire::Branch(proto::WatchedBranch { owner, object, branch })
            }
        };
        Self {
            what: Some(what),
            from: request.from.map(Into::into),
            reader: request.reader.unwrap_or_default(),
        }
    }
}

impl Open<WatchEvent> for proto::WatchEvent {
    fn open(self) -> Result<WatchEvent, Wrong> {
        use proto::watch_event::Event as Wire;
        match self.event.ok_or(Wrong("an event of no known kind"))? {
            Wire::Record(one) => {
                let found = one.found.ok_or(Wrong("an event without its record"))?.open()?;
                if !matches!(found.record.kind, Kind::Version | Kind::Head | Kind::Devices) {
                    return Err(Wrong("an event of a record that is never told"));
                }
                let cursor = one.cursor.map(Open::open).transpose()?;
                Ok(WatchEvent::Record { found, cursor })
            }
            Wire::Gap(proto::WatchGap {}) => Ok(WatchEvent::Gap),
            Wire::CaughtUp(cursor) => Ok(WatchEvent::CaughtUp(cursor.open()?)),
        }
    }
}

impl From<WatchEvent> for proto::WatchEvent {
    fn from(event: WatchEvent) -> Self {
        use proto::watch_event::Event as Wire;
        let event = match event {
            WatchEvent::Record { found, cursor } => Wire::Record(proto::WatchedRecord {
                found: Some(found.into()),
                cursor: cursor.map(Into::into),
            }),
            WatchEvent::Gap => Wire::Gap(proto::WatchGap {}),
            WatchEvent::CaughtUp(cursor) => Wire::CaughtUp(cursor.into()),
        };
        Self { event: Some(event) }
    }
}
