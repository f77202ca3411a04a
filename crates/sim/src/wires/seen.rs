//! Every string of bytes in what programs say to each other, to be searched for what is planted (Q5).
//!
//! Ids, places, keys and numbers are left out: none of them holds what somebody wrote.

use bytes::Bytes;
use crypto::lease::Shown;
use document::Record;
use env::calls::keep::{ChunkProof, FetchAnswer, KeepAnswer};
use env::calls::leases::{LeaseAnswer, LeaseRequest, PlaceLeases};
use env::calls::objects::{
    FoundVersion, HeadsAnswer, ObjectTips, ObjectsAnswer, ObjectsRequest, PreviousAnswer,
    PutObjectsAnswer, PutOutcome, WatchEvent, WatchRequest, Watched,
};
use env::calls::{
    CallError, Credential, FindResponse, IntroduceRequest, IntroduceResponse, SubscribeEvent,
    SubscribeRequest, VerifyResponse,
};

/// A message, or a part of one.
pub(super) trait Carries {
    /// Hands each of its strings of bytes over.
    fn each(&self, see: &mut dyn FnMut(&Bytes));
}

impl Carries for Bytes {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        see(self);
    }
}

impl<T: Carries> Carries for Option<T> {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        self.iter().for_each(|one| one.each(see));
    }
}

impl<T: Carries> Carries for Vec<T> {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        self.iter().for_each(|one| one.each(see));
    }
}

impl<T: Carries> Carries for Result<T, CallError> {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Ok(one) => one.each(see),
            Err(error) => error.each(see),
        }
    }
}

impl Carries for CallError {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        see(&Bytes::from(self.to_string()));
    }
}

impl Carries for Record {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        see(&self.bytes);
    }
}

impl Carries for Shown {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        see(&self.lease);
        see(&self.pass);
    }
}

impl Carries for Credential {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::None => {}
            Self::Peer(bytes) | Self::Client(bytes) => see(bytes),
        }
    }
}

impl Carries for IntroduceRequest {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        self.credential.each(see);
        self.offer.each(see);
    }
}

impl Carries for IntroduceResponse {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        see(&self.announcement);
        self.peers.iter().for_each(|peer| see(&peer.announcement));
        self.rosters.each(see);
        self.revocations.each(see);
        self.member.each(see);
    }
}

impl Carries for FindResponse {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::Found(record) => record.each(see),
            Self::Closest(peers) => peers.each(see),
        }
    }
}

impl Carries for VerifyResponse {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::Mac(_) => {}
            Self::Closest(peers) => peers.each(see),
        }
    }
}

impl Carries for SubscribeRequest {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        self.authors.each(see);
        self.readers.each(see);
        self.known.each(see);
    }
}

impl Carries for SubscribeEvent {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::Publication { publication, .. } => see(publication),
            Self::Gap { .. } | Self::CaughtUp { .. } => {}
        }
    }
}

impl Carries for LeaseRequest {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::Show(leases) => leases.each(see),
            Self::Forget(words) => words.each(see),
            Self::Of(_) | Self::Tombstones { .. } => {}
        }
    }
}

impl Carries for PlaceLeases {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        self.leases.each(see);
    }
}

impl Carries for LeaseAnswer {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::Of(places) => places.each(see),
            Self::Tombstones { forgets, .. } => forgets.each(see),
            Self::Show(_) | Self::Forget(_) => {}
        }
    }
}

impl Carries for ChunkProof {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        [&self.chunk, &self.path, &self.last, &self.last_path].into_iter().for_each(see);
    }
}

impl Carries for FetchAnswer {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::Found { record, companions } => {
                record.each(see);
                companions.each(see);
            }
            Self::Absent | Self::Later => {}
        }
    }
}

/// What is asked for in [`env::calls::keep`] are ids and places alone.
impl Carries for KeepAnswer {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::Fetch(found) => found.each(see),
            Self::Prove(proofs) => proofs.each(see),
            _ => {}
        }
    }
}

impl Carries for ObjectsRequest {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::Put(put) => put.records.each(see),
            Self::Get(get) => get.reader.each(see),
            Self::Previous(previous) => previous.reader.each(see),
            Self::Tips(tips) => tips.reader.each(see),
            Self::Heads(heads) => {
                see(&heads.branch);
                heads.reader.each(see);
            }
            Self::List(list) => {
                see(&list.prefix);
                see(&list.after);
                list.reader.each(see);
            }
            _ => {}
        }
    }
}

impl Carries for PutOutcome {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::Redirect(redirect) => see(redirect),
            Self::Stored | Self::Present | Self::NoObject => {}
        }
    }
}

impl Carries for PutObjectsAnswer {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        self.outcomes.each(see);
        self.receipt.each(see);
    }
}

impl Carries for FoundVersion {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        self.record.each(see);
        self.attestation.each(see);
    }
}

impl Carries for PreviousAnswer {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        self.records.each(see);
    }
}

impl Carries for ObjectTips {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        self.object.each(see);
        self.policy.each(see);
        self.tips.each(see);
        self.redirects.each(see);
    }
}

impl Carries for HeadsAnswer {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        self.heads.each(see);
        self.devices.each(see);
    }
}

impl Carries for ObjectsAnswer {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::Put(put) => put.each(see),
            Self::Get(versions) => versions.each(see),
            Self::Previous(previous) => previous.each(see),
            Self::Tips(tips) => tips.each(see),
            Self::Heads(heads) => heads.each(see),
            Self::List(objects) => objects.each(see),
            _ => {}
        }
    }
}

impl Carries for WatchRequest {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match &self.what {
            Watched::Objects(_) => {}
            Watched::Family(_, name) | Watched::Branch(_, _, name) => see(name),
        }
        self.reader.each(see);
    }
}

impl Carries for WatchEvent {
    fn each(&self, see: &mut dyn FnMut(&Bytes)) {
        match self {
            Self::Record { found, .. } => found.each(see),
            Self::Gap | Self::CaughtUp(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crypto::RecordId;
    use document::Kind;
    use env::calls::objects::PutObjects;

    use super::*;
    use crate::history::History;
    use crate::search::Needle;

    fn marker() -> Bytes {
        Bytes::copy_from_slice(Needle::new(1).bytes())
    }

    fn record(bytes: Bytes) -> Record {
        let id = RecordId::new([1; 32]);
        Record { kind: Kind::Page, id, place: id.into(), bytes }
    }

    fn is_found(message: &dyn Carries) -> bool {
        let clock = Arc::new(testkit::time::VirtualClock::new());
        let history = History::new(clock, Needle::new(1), false);
        message.each(&mut |bytes| history.on_wire("test", bytes));
        !history.lock().findings.is_empty()
    }

    /// Messages with these bytes where each has some.
    fn messages(bytes: &Bytes) -> Vec<Box<dyn Carries>> {
        let bytes = || bytes.clone();
        let text = String::from_utf8_lossy(&bytes()).into_owned();
        let shown = || Shown { lease: Bytes::new(), pass: bytes(), leaves: Vec::new() };
        let proof = ChunkProof {
            length: 1,
            chunk: bytes(),
            path: Bytes::new(),
            last: Bytes::new(),
            last_path: Bytes::new(),
        };
        let fetched = FetchAnswer::Found { record: record(bytes()), companions: Vec::new() };
        let place = PlaceLeases { held: true, unleased: false, leases: vec![shown()] };
        let put = PutObjects { records: vec![record(bytes())], ..PutObjects::default() };
        let found = || FoundVersion { record: record(Bytes::new()), attestation: Some(bytes()) };
        vec![
            Box::new(IntroduceRequest::new(Credential::Client(bytes()), 0)),
            Box::new(vec![bytes()]),
            Box::new(FindResponse::Found(record(bytes()))),
            Box::new(VerifyResponse::Closest(vec![bytes()])),
            Box::new(SubscribeRequest { known: Some(bytes()), ..SubscribeRequest::default() }),
            Box::new(LeaseRequest::Show(vec![shown()])),
            Box::new(LeaseRequest::Forget(vec![bytes()])),
            Box::new(LeaseAnswer::Of(vec![place])),
            Box::new(LeaseAnswer::Tombstones { forgets: vec![bytes()], next: None }),
            Box::new(KeepAnswer::Fetch(vec![FetchAnswer::Later, fetched])),
            Box::new(KeepAnswer::Prove(vec![None, Some(proof)])),
            Box::new(ObjectsRequest::Put(put)),
            Box::new(ObjectsAnswer::Get(vec![Ok(None), Ok(Some(found()))])),
            Box::new(WatchEvent::Record { found: found(), cursor: None }),
            Box::new(CallError::Invalid { reason: text }),
        ]
    }

    #[test]
    fn a_marker_is_found_in_every_kind_of_message() {
        for (at, message) in messages(&marker()).iter().enumerate() {
            assert!(is_found(&**message), "the message {at}");
        }
        let other = Bytes::copy_from_slice(Needle::new(2).bytes());
        assert!(!messages(&other).iter().any(|message| is_found(&**message)));
    }
}
