//! Requests that keep the network whole.

use crypto::{Place, RecordId};
use env::calls::keep::{
    CLAIMS_MAX, Compare, FetchAt, HAVE_MAX, KeepRequest, LOOK_MAX, ProveAt, SUMS, SettledStripe,
};

use super::{
    NOT_CLAIMS, OVER_HAVE, OVER_LOOK, check_count, check_fetch, check_moved, check_prove,
    check_request, closed_words, ids, index, items, joined, peer, view,
};
use crate::convert::{Open, Wrong, array32, copied, id_and_place, place_bytes};
use crate::proto;
use crate::proto::keep_request::Request as Wire;

impl Open<KeepRequest> for proto::KeepRequest {
    fn open(self) -> Result<KeepRequest, Wrong> {
        let request = match self.request.ok_or(Wrong("no known request to keep the network"))? {
            Wire::Compare(compare) => KeepRequest::Compare(compare.open()?),
            Wire::Lists(lists) => KeepRequest::Lists(lists.open()?),
            Wire::Claim(claim) => KeepRequest::Claim(ids(&claim.stripes, CLAIMS_MAX, NOT_CLAIMS)?),
            Wire::Settled(settled) => KeepRequest::Settled(settled.open()?),
            Wire::Fetch(fetch) => {
                check_fetch(fetch.records.len())?;
                let all = fetch.records.into_iter().map(Open::open);
                KeepRequest::Fetch(all.collect::<Result<_, _>>()?)
            }
            Wire::Have(have) => KeepRequest::Have(ids(&have.ids, HAVE_MAX, OVER_HAVE)?),
            Wire::Prove(prove) => {
                check_prove(prove.asks.len())?;
                let all = prove.asks.into_iter().map(Open::open);
                KeepRequest::Prove(all.collect::<Result<_, _>>()?)
            }
            Wire::Look(look) => {
                let length = "places are not 32 bytes each";
                let places = items::<32>(&look.places, length, LOOK_MAX, OVER_LOOK)?;
                KeepRequest::Look(places.iter().copied().map(Place::new).collect())
            }
        };
        check_request(&request)?;
        Ok(request)
    }
}

impl From<KeepRequest> for proto::KeepRequest {
    fn from(request: KeepRequest) -> Self {
        let all_ids = |ids: &[RecordId]| joined(ids.iter().map(|id| &id.as_bytes()[..]));
        let request = match request {
            KeepRequest::Compare(compare) => Some(Wire::Compare(compare.into())),
            KeepRequest::Lists(lists) => Some(Wire::Lists(lists.into())),
            KeepRequest::Claim(stripes) => {
                Some(Wire::Claim(proto::KeepStripes { stripes: all_ids(&stripes) }))
            }
            KeepRequest::Settled(stripes) => {
                let stripes = stripes.into_iter().map(Into::into).collect();
                Some(Wire::Settled(proto::KeepSettled { stripes }))
            }
            KeepRequest::Fetch(records) => {
                let records = records.into_iter().map(Into::into).collect();
                Some(Wire::Fetch(proto::KeepFetch { records }))
            }
            KeepRequest::Have(ids) => Some(Wire::Have(proto::KeepHave { ids: all_ids(&ids) })),
            KeepRequest::Prove(asks) => {
                let asks = asks.into_iter().map(Into::into).collect();
                Some(Wire::Prove(proto::KeepProve { asks }))
            }
            KeepRequest::Look(places) => {
                let places = joined(places.iter().map(|place| &place.as_bytes()[..]));
                Some(Wire::Look(proto::KeepLook { places }))
            }
            // A later kind, which `check_request` refuses before it comes here.
            _ => None,
        };
        Self { request }
    }
}

impl Open<Compare> for proto::KeepCompare {
    fn open(self) -> Result<Compare, Wrong> {
        let not_sums = "not 256 sums of 16 bytes";
        let sums = items::<16>(&self.sums, not_sums, SUMS, not_sums)?;
        Ok(Compare {
            range: self.range.open()?,
            sums: sums.iter().copied().map(u128::from_le_bytes).collect(),
            view: view(&self.view)?,
            words: self.words.open()?,
        })
    }
}

impl From<Compare> for proto::KeepCompare {
    fn from(compare: Compare) -> Self {
        let sums: Vec<_> = compare.sums.iter().map(|sum| sum.to_le_bytes()).collect();
        Self {
            range: Some(compare.range.into()),
            sums: joined(sums.iter().map(|sum| &sum[..])),
            view: copied(&compare.view),
            words: closed_words(&compare.words),
        }
    }
}

impl Open<Vec<SettledStripe>> for proto::KeepSettled {
    fn open(self) -> Result<Vec<SettledStripe>, Wrong> {
        // Before keys are looked at: that is what costs.
        check_count(self.stripes.len(), CLAIMS_MAX, NOT_CLAIMS)?;
        check_moved(self.stripes.iter().map(|settled| settled.moved.len()).sum())?;
        self.stripes.into_iter().map(Open::open).collect()
    }
}

impl Open<SettledStripe> for proto::SettledStripe {
    fn open(self) -> Result<SettledStripe, Wrong> {
        let moved = |one: proto::MovedFragment| Ok((index(one.index)?, peer(&one.holder)?));
        Ok(SettledStripe {
            stripe: RecordId::new(array32(&self.stripe, "stripe is not 32 bytes")?),
            moved: self.moved.into_iter().map(moved).collect::<Result<_, _>>()?,
        })
    }
}

impl From<SettledStripe> for proto::SettledStripe {
    fn from(settled: SettledStripe) -> Self {
        let moved = settled.moved.iter().map(|(index, holder)| proto::MovedFragment {
            index: u32::from(*index),
            holder: copied(holder.as_bytes()),
        });
        Self { stripe: copied(settled.stripe.as_bytes()), moved: moved.collect() }
    }
}

impl Open<FetchAt> for proto::FetchAt {
    fn open(self) -> Result<FetchAt, Wrong> {
        let (id, place) = id_and_place(&self.id, &self.place)?;
        Ok(FetchAt { id, place })
    }
}

impl From<FetchAt> for proto::FetchAt {
    fn from(at: FetchAt) -> Self {
        Self { id: copied(at.id.as_bytes()), place: place_bytes(&at.id, &at.place) }
    }
}

impl Open<ProveAt> for proto::ProveAt {
    fn open(self) -> Result<ProveAt, Wrong> {
        let id = RecordId::new(array32(&self.id, "id is not 32 bytes")?);
        Ok(ProveAt { id, chunk: self.chunk })
    }
}

impl From<ProveAt> for proto::ProveAt {
    fn from(at: ProveAt) -> Self {
        Self { id: copied(at.id.as_bytes()), chunk: at.chunk }
    }
}
