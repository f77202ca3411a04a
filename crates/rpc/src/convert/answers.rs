//! Answers.

use bytes::Bytes;
use crypto::certificate::SIGNED_BYTES_MAX;
use crypto::roster::ROSTER_BYTES_MAX;
use env::calls::committee::CARD_BYTES_MAX;
use env::calls::{
    CallError, FindResponse, IntroduceResponse, KnownPeer, PEERS_MAX, PutResponse,
    REVOCATIONS_TOLD_BYTES_MAX, ROSTERS_TOLD_BYTES_MAX, ROSTERS_TOLD_MAX, StoreOutcome,
    SubscribeEvent, VerifyResponse,
};

use super::{Open, Wrong, array32, copied};
use crate::limits::PUBLICATION_BYTES_MAX;
use crate::proto;
use crate::status;

/// Announcements in one answer, in bytes: what a client takes at most, with some room.
const ANNOUNCEMENTS_BYTES_MAX: usize = 2 << 20;
/// Peers, rosters and revocations of an introduction, in bytes.
const PEERS_BYTES_MAX: usize = 8 << 20;

/// As many as fit from the front.
fn fitting<T>(items: Vec<T>, bytes_max: usize, size: impl Fn(&T) -> usize) -> Vec<T> {
    let mut left = bytes_max;
    let fits = |item: &T| {
        // Tag and length of the field, and of what is around it.
        let size = size(item) + 32;
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    };
    items.into_iter().take(PEERS_MAX).take_while(fits).collect()
}

impl Open<Vec<Bytes>> for proto::Closest {
    fn open(self) -> Result<Vec<Bytes>, Wrong> {
        if self.announcements.len() > PEERS_MAX {
            return Err(Wrong("over 1,024 announcements"));
        }
        if self.announcements.iter().any(|bytes| bytes.len() > SIGNED_BYTES_MAX) {
            return Err(Wrong("an announcement over 16 KiB"));
        }
        Ok(self.announcements)
    }
}

impl From<Vec<Bytes>> for proto::Closest {
    fn from(announcements: Vec<Bytes>) -> Self {
        Self { announcements: fitting(announcements, ANNOUNCEMENTS_BYTES_MAX, Bytes::len) }
    }
}

impl Open<IntroduceResponse> for proto::IntroduceResponse {
    fn open(self) -> Result<IntroduceResponse, Wrong> {
        let too_large = |peer: &proto::KnownPeer| peer.announcement.len() > SIGNED_BYTES_MAX;
        if self.announcement.len() > SIGNED_BYTES_MAX || self.peers.iter().any(too_large) {
            return Err(Wrong("an announcement over 16 KiB"));
        }
        if self.peers.len() > PEERS_MAX {
            return Err(Wrong("over 1,024 peers"));
        }
        let too_large = |bytes: &Bytes| bytes.len() > ROSTER_BYTES_MAX;
        if self.rosters.len() > ROSTERS_TOLD_MAX || self.rosters.iter().any(too_large) {
            return Err(Wrong("over 16 rosters, or one over 224 KiB"));
        }
        if self.revocations.iter().any(|bytes| bytes.len() > SIGNED_BYTES_MAX) {
            return Err(Wrong("a revocation over 16 KiB"));
        }
        if self.member.len() > CARD_BYTES_MAX {
            return Err(Wrong("a member's card over 512 bytes"));
        }
        let known = |peer: proto::KnownPeer| KnownPeer {
            announcement: peer.announcement,
            last_good_ms: peer.last_good_ms,
        };
        Ok(IntroduceResponse {
            announcement: self.announcement,
            peers: self.peers.into_iter().map(known).collect(),
            roster: self.roster,
            unix_ms: self.unix_ms,
            records: self.records,
            bytes: self.bytes,
            rosters: self.rosters,
            revocations: self.revocations,
            member: (!self.member.is_empty()).then_some(self.member),
        })
    }
}

impl From<IntroduceResponse> for proto::IntroduceResponse {
    fn from(answer: IntroduceResponse) -> Self {
        let wire = |peer: KnownPeer| proto::KnownPeer {
            announcement: peer.announcement,
            last_good_ms: peer.last_good_ms,
        };
        let mut rosters = fitting(answer.rosters, ROSTERS_TOLD_BYTES_MAX, Bytes::len);
        rosters.truncate(ROSTERS_TOLD_MAX);
        let revocations = fitting(answer.revocations, REVOCATIONS_TOLD_BYTES_MAX, Bytes::len);
        let told: usize = rosters.iter().chain(&revocations).map(|bytes| bytes.len() + 32).sum();
        let left = PEERS_BYTES_MAX.saturating_sub(told);
        let peers = fitting(answer.peers, left, |peer| peer.announcement.len());
        Self {
            announcement: answer.announcement,
            peers: peers.into_iter().map(wire).collect(),
            roster: answer.roster,
            unix_ms: answer.unix_ms,
            records: answer.records,
            bytes: answer.bytes,
            rosters,
            revocations,
            member: answer.member.unwrap_or_default(),
        }
    }
}

impl Open<FindResponse> for proto::FindResponse {
    fn open(self) -> Result<FindResponse, Wrong> {
        use proto::find_response::Result as Wire;
        match self.result.ok_or(Wrong("neither record nor closest peers"))? {
            Wire::Record(record) => Ok(FindResponse::Found(record.open()?)),
            Wire::Closest(closest) => Ok(FindResponse::Closest(closest.open()?)),
        }
    }
}

impl From<FindResponse> for proto::FindResponse {
    fn from(answer: FindResponse) -> Self {
        use proto::find_response::Result as Wire;
        let result = match answer {
            FindResponse::Found(record) => Wire::Record(record.into()),
            FindResponse::Closest(peers) => Wire::Closest(peers.into()),
        };
        Self { result: Some(result) }
    }
}

impl Open<VerifyResponse> for proto::VerifyResponse {
    fn open(self) -> Result<VerifyResponse, Wrong> {
        use proto::verify_response::Result as Wire;
        match self.result.ok_or(Wrong("neither MAC nor closest peers"))? {
            Wire::Mac(mac) => Ok(VerifyResponse::Mac(array32(&mac, "mac is not 32 bytes")?)),
            Wire::Closest(closest) => Ok(VerifyResponse::Closest(closest.open()?)),
        }
    }
}

impl From<VerifyResponse> for proto::VerifyResponse {
    fn from(answer: VerifyResponse) -> Self {
        use proto::verify_response::Result as Wire;
        let result = match answer {
            VerifyResponse::Mac(mac) => Wire::Mac(copied(&mac)),
            VerifyResponse::Closest(peers) => Wire::Closest(peers.into()),
        };
        Self { result: Some(result) }
    }
}

impl Open<StoreOutcome> for proto::StoreResponse {
    fn open(self) -> Result<StoreOutcome, Wrong> {
        match self.outcome() {
            proto::StoreOutcome::Unspecified => Err(Wrong("no known outcome of a store")),
            proto::StoreOutcome::Stored => Ok(StoreOutcome::Stored),
            proto::StoreOutcome::Present => Ok(StoreOutcome::Present),
        }
    }
}

impl From<StoreOutcome> for proto::StoreResponse {
    fn from(outcome: StoreOutcome) -> Self {
        let outcome = match outcome {
            StoreOutcome::Stored => proto::StoreOutcome::Stored,
            StoreOutcome::Present => proto::StoreOutcome::Present,
        };
        Self { outcome: outcome.into() }
    }
}

impl Open<PutResponse> for proto::PutResponse {
    fn open(self) -> Result<PutResponse, Wrong> {
        Ok(PutResponse { acked: self.acked, wanted: self.wanted })
    }
}

impl From<PutResponse> for proto::PutResponse {
    fn from(answer: PutResponse) -> Self {
        Self { acked: answer.acked, wanted: answer.wanted }
    }
}

impl Open<SubscribeEvent> for proto::SubscribeEvent {
    fn open(self) -> Result<SubscribeEvent, Wrong> {
        use proto::subscribe_event::Event as Wire;
        match self.event.ok_or(Wrong("an event of no known kind"))? {
            Wire::Publication(event) if event.publication.len() > PUBLICATION_BYTES_MAX => {
                Err(Wrong("a publication over 16 KiB"))
            }
            Wire::Publication(event) => Ok(SubscribeEvent::Publication {
                // Not a part of a message that its sender made long.
                publication: copied(&event.publication),
                received_ms: event.received_ms,
                cursor: event.cursor.open()?,
            }),
            Wire::Gap(cursor) => Ok(SubscribeEvent::Gap { cursor: Some(cursor).open()? }),
            Wire::CaughtUp(cursor) => Ok(SubscribeEvent::CaughtUp { cursor: Some(cursor).open()? }),
        }
    }
}

impl From<SubscribeEvent> for proto::SubscribeEvent {
    fn from(event: SubscribeEvent) -> Self {
        use proto::subscribe_event::Event as Wire;
        let event = match event {
            SubscribeEvent::Publication { publication, received_ms, cursor } => {
                let cursor = Some(cursor.into());
                Wire::Publication(proto::PublicationEvent { publication, received_ms, cursor })
            }
            SubscribeEvent::Gap { cursor } => Wire::Gap(cursor.into()),
            SubscribeEvent::CaughtUp { cursor } => Wire::CaughtUp(cursor.into()),
        };
        Self { event: Some(event) }
    }
}

/// What an item of several failed with; `address` is the peer's.
pub(super) fn failed(failure: &proto::Failure, address: &str) -> Result<CallError, Wrong> {
    status::from_failure(failure, address).ok_or(Wrong("a failure of no known code"))
}

/// The three answers of batches and streams have one shape: a response or a failure.
macro_rules! item {
    ($answer:ident, $module:ident, $plain:ty) => {
        impl From<Result<$plain, CallError>> for proto::$answer {
            fn from(outcome: Result<$plain, CallError>) -> Self {
                use proto::$module::Result as Wire;
                let result = match outcome {
                    Ok(answer) => Wire::Response(answer.into()),
                    Err(error) => Wire::Failure(status::to_failure(&error)),
                };
                Self { result: Some(result) }
            }
        }

        impl proto::$answer {
            /// The answer or the error; `address` is the peer's.
            pub(crate) fn open(self, address: &str) -> Result<Result<$plain, CallError>, Wrong> {
                use proto::$module::Result as Wire;
                match self.result.ok_or(Wrong("neither response nor failure"))? {
                    Wire::Response(response) => Ok(Ok(response.open()?)),
                    Wire::Failure(failure) => Ok(Err(failed(&failure, address)?)),
                }
            }
        }
    };
}

item!(FindAnswer, find_answer, FindResponse);
item!(VerifyAnswer, verify_answer, VerifyResponse);
item!(StoreAnswer, store_answer, StoreOutcome);
