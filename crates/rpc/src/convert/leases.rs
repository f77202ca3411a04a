//! Leases: those that come with records, and what is asked about them.

use bytes::Bytes;
use crypto::certificate::SIGNED_BYTES_MAX;
use crypto::lease::{SHOWN_LEAVES_MAX, Shown};
use crypto::{LeaseId, Place};
use env::calls::leases::{
    FORGETS_MAX, Forgotten, LeaseAnswer, LeaseRequest, PLACE_LEASES_MAX, PLACES_MAX, PlaceLeases,
    SHOWN_MAX,
};

use super::{Open, Wrong, array32, copied};
use crate::proto;

/// The leases that came with records, or alone.
pub(crate) fn open_shown(leases: &[Bytes]) -> Result<Vec<Shown>, Wrong> {
    if leases.len() > SHOWN_MAX {
        return Err(Wrong("over 256 leases"));
    }
    let mut left = SHOWN_LEAVES_MAX;
    let open = |bytes: &Bytes| {
        let shown = Shown::decode(bytes).map_err(|_| Wrong("a lease is not one"))?;
        left = left.checked_sub(shown.leaves.len()).ok_or(Wrong("over 1,024 leaves of leases"))?;
        Ok(shown)
    };
    leases.iter().map(open).collect()
}

/// Leases as they travel.
pub(crate) fn close_shown(leases: &[Shown]) -> Vec<Bytes> {
    leases.iter().map(Shown::encode).collect()
}

fn words(forgets: Vec<Bytes>) -> Result<Vec<Bytes>, Wrong> {
    if forgets.len() > FORGETS_MAX || forgets.iter().any(|one| one.len() > SIGNED_BYTES_MAX) {
        return Err(Wrong("over 1,024 words about leases, or one over 16 KiB"));
    }
    Ok(forgets)
}

fn lease(bytes: &Bytes) -> Result<Option<LeaseId>, Wrong> {
    if bytes.is_empty() {
        return Ok(None);
    }
    LeaseId::from_slice(bytes).map(Some).map_err(|_| Wrong("a lease's id has 32 bytes"))
}

impl Open<LeaseRequest> for proto::LeaseRequest {
    fn open(self) -> Result<LeaseRequest, Wrong> {
        use proto::lease_request::Request as Wire;
        match self.request.ok_or(Wrong("request is missing"))? {
            Wire::Show(show) => Ok(LeaseRequest::Show(open_shown(&show.shown)?)),
            Wire::Of(of) => {
                if of.places.len() > PLACES_MAX {
                    return Err(Wrong("over 256 places"));
                }
                let place =
                    |bytes: &Bytes| Ok(Place::new(array32(bytes, "a place is not 32 bytes")?));
                Ok(LeaseRequest::Of(of.places.iter().map(place).collect::<Result<_, Wrong>>()?))
            }
            Wire::Forget(forget) => Ok(LeaseRequest::Forget(words(forget.forgets)?)),
            Wire::Tombstones(proto::LeaseTombstones { since_ms, after }) => {
                Ok(LeaseRequest::Tombstones { since_ms, after: lease(&after)? })
            }
        }
    }
}

impl From<LeaseRequest> for proto::LeaseRequest {
    fn from(request: LeaseRequest) -> Self {
        use proto::lease_request::Request as Wire;
        let request = match request {
            LeaseRequest::Show(shown) => {
                Wire::Show(proto::ShowLeases { shown: close_shown(&shown) })
            }
            LeaseRequest::Of(places) => {
                let places = places.iter().map(|place| copied(place.as_bytes())).collect();
                Wire::Of(proto::LeasesOf { places })
            }
            LeaseRequest::Forget(forgets) => Wire::Forget(proto::ForgetLeases { forgets }),
            LeaseRequest::Tombstones { since_ms, after } => {
                let after = after.map(|lease| copied(lease.as_bytes())).unwrap_or_default();
                Wire::Tombstones(proto::LeaseTombstones { since_ms, after })
            }
        };
        Self { request: Some(request) }
    }
}

impl Open<LeaseAnswer> for proto::LeaseResponse {
    fn open(self) -> Result<LeaseAnswer, Wrong> {
        use proto::lease_response::Answer as Wire;
        Ok(match self.answer.ok_or(Wrong("answer is missing"))? {
            Wire::Show(show) => {
                LeaseAnswer::Show(show.leases.into_iter().map(|one| one.held).collect())
            }
            Wire::Of(of) => LeaseAnswer::Of(
                of.places.into_iter().map(Open::open).collect::<Result<_, Wrong>>()?,
            ),
            Wire::Forget(forget) => {
                let outcome = |number| match proto::ForgetOutcome::try_from(number) {
                    Ok(proto::ForgetOutcome::Ended) => Ok(Forgotten::Ended),
                    Ok(proto::ForgetOutcome::Known) => Ok(Forgotten::Known),
                    Ok(proto::ForgetOutcome::NotHere) => Ok(Forgotten::NotHere),
                    _ => Err(Wrong("outcome is not set")),
                };
                let outcomes = forget.outcomes.into_iter().map(outcome);
                LeaseAnswer::Forget(outcomes.collect::<Result<_, Wrong>>()?)
            }
            Wire::Tombstones(answer) => {
                let next = lease(&answer.next)?.map(|lease| (answer.next_ms, lease));
                LeaseAnswer::Tombstones { forgets: words(answer.forgets)?, next }
            }
        })
    }
}

impl Open<PlaceLeases> for proto::PlaceLeases {
    fn open(self) -> Result<PlaceLeases, Wrong> {
        if self.leases.len() > PLACE_LEASES_MAX {
            return Err(Wrong("over 32 leases of one place"));
        }
        let leases = open_shown(&self.leases)?;
        Ok(PlaceLeases { held: self.held, unleased: self.unleased, leases })
    }
}

impl From<LeaseAnswer> for proto::LeaseResponse {
    fn from(answer: LeaseAnswer) -> Self {
        use proto::lease_response::Answer as Wire;
        let answer = match answer {
            LeaseAnswer::Show(leases) => {
                let leases = leases.into_iter().map(|held| proto::HeldLeaves { held }).collect();
                Wire::Show(proto::ShowLeasesAnswer { leases })
            }
            LeaseAnswer::Of(places) => {
                let place = |place: PlaceLeases| proto::PlaceLeases {
                    held: place.held,
                    unleased: place.unleased,
                    leases: close_shown(&place.leases),
                };
                Wire::Of(proto::LeasesOfAnswer { places: places.into_iter().map(place).collect() })
            }
            LeaseAnswer::Forget(outcomes) => {
                let outcome = |outcome| match outcome {
                    Forgotten::Ended => proto::ForgetOutcome::Ended.into(),
                    Forgotten::Known => proto::ForgetOutcome::Known.into(),
                    Forgotten::NotHere => proto::ForgetOutcome::NotHere.into(),
                };
                let outcomes = outcomes.into_iter().map(outcome).collect();
                Wire::Forget(proto::ForgetLeasesAnswer { outcomes })
            }
            LeaseAnswer::Tombstones { forgets, next } => {
                let (next_ms, next) = next.map_or((0, Bytes::new()), |(heard_ms, lease)| {
                    (heard_ms, copied(lease.as_bytes()))
                });
                Wire::Tombstones(proto::LeaseTombstonesAnswer { forgets, next, next_ms })
            }
        };
        Self { answer: Some(answer) }
    }
}

/// Whether the answer is of the request's name, and has as many parts.
pub(crate) fn check_answer(request: &LeaseRequest, answer: &LeaseAnswer) -> Result<(), Wrong> {
    let same = match (request, answer) {
        (LeaseRequest::Show(shown), LeaseAnswer::Show(held)) => {
            shown.len() == held.len()
                && shown.iter().zip(held).all(|(shown, held)| shown.leaves.len() == held.len())
        }
        (LeaseRequest::Of(asked), LeaseAnswer::Of(found)) => asked.len() == found.len(),
        (LeaseRequest::Forget(words), LeaseAnswer::Forget(done)) => words.len() == done.len(),
        (LeaseRequest::Tombstones { .. }, LeaseAnswer::Tombstones { .. }) => true,
        _ => false,
    };
    if same { Ok(()) } else { Err(Wrong("it answered something else than it was asked")) }
}
