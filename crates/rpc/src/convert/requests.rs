//! Requests.

use bytes::Bytes;
use crypto::certificate::SIGNED_BYTES_MAX;
use crypto::lease::Shown;
use crypto::roster::ROSTER_BYTES_MAX;
use document::Record;
use env::calls::{
    BATCH_BYTES_MAX, BATCH_MAX, Credential, FindRequest, IntroduceRequest, Known, PEERS_MAX,
    SubscribeRequest, TELL_BYTES_MAX, TELL_MAX, VerifyRequest,
};

use super::leases::open_shown;
use super::{Open, Wrong, array32, copied, id_and_place, place_bytes};
use crate::limits::FILTER_BYTES_MAX;
use crate::proto;

impl Open<Vec<Bytes>> for proto::TellRequest {
    fn open(self) -> Result<Vec<Bytes>, Wrong> {
        let bytes = self.envelopes.iter().map(Bytes::len).sum::<usize>();
        if !(1..=TELL_MAX).contains(&self.envelopes.len()) || bytes > TELL_BYTES_MAX {
            return Err(Wrong("not 1 to 128 envelopes of together at most 32 KiB"));
        }
        Ok(self.envelopes)
    }
}

impl Open<IntroduceRequest> for proto::IntroduceRequest {
    fn open(self) -> Result<IntroduceRequest, Wrong> {
        use proto::introduce_request::Credential as Wire;
        let credential = match self.credential {
            None => Credential::None,
            Some(Wire::Peer(bytes) | Wire::Client(bytes)) if bytes.len() > SIGNED_BYTES_MAX => {
                return Err(Wrong("a credential over 16 KiB"));
            }
            Some(Wire::Peer(bytes)) => Credential::Peer(bytes),
            Some(Wire::Client(bytes)) => Credential::Client(bytes),
        };
        let most = u32::try_from(PEERS_MAX).unwrap_or(u32::MAX);
        let known = match (self.roster_hash.len(), self.revoked.len()) {
            (0, 0) => None,
            _ => Some(Known {
                roster: self.roster,
                roster_hash: array32(&self.roster_hash, "roster_hash is not 32 bytes")?,
                revoked: array32(&self.revoked, "revoked is not 32 bytes")?,
            }),
        };
        if self.offer.len() > ROSTER_BYTES_MAX {
            return Err(Wrong("a roster over 224 KiB"));
        }
        let offer = (!self.offer.is_empty()).then_some(self.offer);
        Ok(IntroduceRequest { credential, peers_max: self.peers_max.min(most), known, offer })
    }
}

impl From<IntroduceRequest> for proto::IntroduceRequest {
    fn from(request: IntroduceRequest) -> Self {
        use proto::introduce_request::Credential as Wire;
        let credential = match request.credential {
            Credential::None => None,
            Credential::Peer(bytes) => Some(Wire::Peer(bytes)),
            Credential::Client(bytes) => Some(Wire::Client(bytes)),
        };
        let known = request.known.as_ref();
        Self {
            credential,
            peers_max: request.peers_max,
            roster: known.map_or(0, |known| known.roster),
            roster_hash: known.map(|known| copied(&known.roster_hash)).unwrap_or_default(),
            revoked: known.map(|known| copied(&known.revoked)).unwrap_or_default(),
            offer: request.offer.unwrap_or_default(),
        }
    }
}

impl Open<FindRequest> for proto::FindRequest {
    fn open(self) -> Result<FindRequest, Wrong> {
        let (id, place) = id_and_place(&self.id, &self.place)?;
        Ok(FindRequest { id, place })
    }
}

impl From<FindRequest> for proto::FindRequest {
    fn from(request: FindRequest) -> Self {
        let place = place_bytes(&request.id, &request.place);
        Self { id: copied(request.id.as_bytes()), place }
    }
}

impl Open<FindRequest> for proto::GetRequest {
    fn open(self) -> Result<FindRequest, Wrong> {
        let (id, place) = id_and_place(&self.id, &self.place)?;
        Ok(FindRequest { id, place })
    }
}

impl From<FindRequest> for proto::GetRequest {
    fn from(request: FindRequest) -> Self {
        let place = place_bytes(&request.id, &request.place);
        Self { id: copied(request.id.as_bytes()), place }
    }
}

impl Open<VerifyRequest> for proto::VerifyRequest {
    fn open(self) -> Result<VerifyRequest, Wrong> {
        let (id, place) = id_and_place(&self.id, &self.place)?;
        let mac_key = array32(&self.mac_key, "mac_key is not 32 bytes")?;
        Ok(VerifyRequest { id, place, mac_key })
    }
}

impl From<VerifyRequest> for proto::VerifyRequest {
    fn from(request: VerifyRequest) -> Self {
        Self {
            id: copied(request.id.as_bytes()),
            place: place_bytes(&request.id, &request.place),
            mac_key: copied(&request.mac_key),
        }
    }
}

fn check_batch(len: usize) -> Result<(), Wrong> {
    match len {
        0 => Err(Wrong("an empty batch")),
        1..=BATCH_MAX => Ok(()),
        _ => Err(Wrong("over 1,024 in one batch")),
    }
}

impl Open<Vec<FindRequest>> for proto::FindBatchRequest {
    fn open(self) -> Result<Vec<FindRequest>, Wrong> {
        check_batch(self.requests.len())?;
        self.requests.into_iter().map(Open::open).collect()
    }
}

impl Open<Vec<VerifyRequest>> for proto::VerifyBatchRequest {
    fn open(self) -> Result<Vec<VerifyRequest>, Wrong> {
        check_batch(self.requests.len())?;
        self.requests.into_iter().map(Open::open).collect()
    }
}

impl Open<(Vec<Record>, Vec<Shown>)> for proto::StoreBatchRequest {
    fn open(self) -> Result<(Vec<Record>, Vec<Shown>), Wrong> {
        check_batch(self.records.len())?;
        if self.records.iter().map(|record| record.bytes.len()).sum::<usize>() > BATCH_BYTES_MAX {
            return Err(Wrong("over 8 MiB of records in one batch"));
        }
        let leases = open_shown(&self.leases)?;
        Ok((self.records.into_iter().map(Open::open).collect::<Result<_, _>>()?, leases))
    }
}

impl Open<SubscribeRequest> for proto::SubscribeRequest {
    fn open(self) -> Result<SubscribeRequest, Wrong> {
        let filters = [&self.authors, &self.readers, &self.known];
        if filters.into_iter().flatten().any(|filter| filter.len() > FILTER_BYTES_MAX) {
            return Err(Wrong("a filter over 65 KiB"));
        }
        Ok(SubscribeRequest {
            authors: self.authors,
            readers: self.readers,
            from: self.from.open()?,
            follow: self.follow,
            known: self.known,
        })
    }
}

impl From<SubscribeRequest> for proto::SubscribeRequest {
    fn from(request: SubscribeRequest) -> Self {
        Self {
            authors: request.authors,
            readers: request.readers,
            from: Some(request.from.into()),
            follow: request.follow,
            known: request.known,
        }
    }
}
