//! Which fragments a peer keeps: those that a stripe lists whose header it keeps too.
//!
//! A page or parity of a stripe lives at the stripe's id. Without a check anybody could have any bytes
//! kept at a place of their choice, and repair would carry on what no stripe names. So a fragment is
//! taken only if the header with that id, in the store or in the same batch (its sender puts it first),
//! lists the fragment as it is: [`document::Stripe::prove`].
//!
//! A batch costs one read of a header for each place in it that brings no header along, however many
//! fragments are at the place; one header is in memory at a time besides those of the batch.
//!
//! A record is kept once, at the place that it came with first. A page that several stripes name, or that is
//! a copy at its own id too, is found at each place where it may live ([`lives_at`]).

use std::collections::BTreeMap;

use crypto::{Place, RecordId};
use document::{Document, DocumentError, Kind, Record, Stripe};
use env::calls::CallError;

use crate::shelf::{Proven, Shelf, one_line};

/// Whether a record lives elsewhere than at its id: of those of documents it is a fragment.
pub(crate) fn is_fragment(record: &Record) -> bool {
    record.place != Place::from(record.id)
}

/// Whether what is of this kind and lives there is a fragment.
pub(crate) fn is_one(kind: Kind, id: &RecordId, place: &Place) -> bool {
    matches!(kind, Kind::Page | Kind::Parity) && *place != Place::from(*id)
}

/// Refuses those of the proven records that are fragments of no stripe that is held or in `proven`.
pub(crate) async fn refuse_stray(shelf: &Shelf, proven: &mut [Result<Proven, CallError>]) {
    let mut by_place: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
    for (number, one) in proven.iter().enumerate() {
        if let Ok(one) = one
            && is_fragment(&one.record)
        {
            by_place.entry(one.record.place).or_default().push(number);
        }
    }
    if by_place.is_empty() {
        return;
    }
    let mut brought = brought(proven);
    for (place, fragments) in by_place {
        let id = RecordId::new(*place.as_bytes());
        let stripe = match brought.remove(&place) {
            Some(stripe) => Ok(Some(stripe)),
            None => shelf.stripe(&id).await,
        };
        for number in fragments {
            let Some(one) = proven.get_mut(number) else { continue };
            let refused = match (&stripe, &*one) {
                (Ok(Some(stripe)), Ok(one)) => refusal(stripe, &id, one),
                (Ok(None), Ok(one)) => Some(headless(&one.record)),
                (Err(error), _) => Some(error.clone()),
                (_, Err(_)) => None,
            };
            if let Some(error) = refused {
                *one = Err(error);
            }
        }
    }
}

/// The headers among the proven records, by their place.
fn brought(proven: &[Result<Proven, CallError>]) -> BTreeMap<Place, Stripe> {
    let headers = proven.iter().flatten().filter_map(|one| match &one.document {
        Some(Document::Stripe(stripe)) => Some((one.record.place, stripe.clone())),
        _ => None,
    });
    headers.collect()
}

fn refusal(stripe: &Stripe, id: &RecordId, one: &Proven) -> Option<CallError> {
    let document = one.document.as_ref()?;
    let refused = match stripe.prove(id, &one.record, document).err()? {
        DocumentError::Place(_) => {
            format!("the stripe {id} does not list the record {}", one.record.id)
        }
        error => format!("the record {} in the stripe {id}: {}", one.record.id, one_line(&error)),
    };
    Some(CallError::Invalid { reason: refused })
}

fn headless(record: &Record) -> CallError {
    let Record { id, place, .. } = record;
    let reason = format!(
        "the record {id} lives at {place}, and no stripe with that id is held here: send the stripe's \
         header first, in the same batch"
    );
    CallError::Invalid { reason }
}

/// Whether a held record may live at a place that it is not kept at: at its id, if it is no parity, or at a
/// stripe whose header is held and lists it.
///
/// # Errors
/// Where the header cannot be read.
pub(crate) async fn lives_at(
    shelf: &Shelf,
    record: &Record,
    place: &Place,
) -> Result<bool, CallError> {
    let id = RecordId::new(*place.as_bytes());
    match record.kind {
        Kind::Envelope | Kind::Entry | Kind::Stripe => Ok(id == record.id),
        Kind::Page if id == record.id => Ok(true),
        Kind::Page | Kind::Parity => {
            let Some(stripe) = shelf.stripe(&id).await? else { return Ok(false) };
            let kind = stripe.index_of(&record.id).and_then(|index| stripe.kind_of(index));
            Ok(kind == Some(record.kind))
        }
        // They live where they are kept: an object's service alone knows of other places.
        Kind::Version
        | Kind::Object
        | Kind::Policy
        | Kind::Attestation
        | Kind::Head
        | Kind::Devices
        | Kind::Lease => Ok(false),
    }
}
