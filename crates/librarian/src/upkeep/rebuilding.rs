//! A damaged fragment is made again from its stripe: any k of the others, no key, and the id in the header as proof.
//!
//! The header lies beside the fragment; where it is damaged too, any other holder of the stripe has it. The fragments
//! of one stripe are in memory at a time, which a header bounds to about 16 MiB
//! ([`document::stripe::page_bytes_max`]).

use bytes::Bytes;
use crypto::{Place, RecordId, Suite};
use document::stripe::coded;
use document::{Document, DocumentError, Kind, ParityBuffer, Record, Stripe};
use erasure::{Code, ErasureError, Given, Wanted};
use walk::{StripeShape, WalkError};

use crate::core::Core;

/// Why a damaged record is not mended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unmended {
    /// The record, its header or its stripe's fragments could not be had.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// What came, or came out, is not what the header says.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The code refused what it was given.
    #[error(transparent)]
    Erasure(#[from] ErasureError),
    /// What lives at that id is no header, or one that does not list the fragment.
    #[error("the stripe does not list it")]
    NotListed,
}

impl Unmended {
    /// Whether another try can only end the same way.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Document(_) | Self::Erasure(_) | Self::NotListed)
    }
}

/// Makes a fragment of the stripe at `place` again, or finds it with somebody who has it after all.
pub(super) async fn again(core: &Core, id: RecordId, place: Place) -> Result<Record, Unmended> {
    let stripe_id = RecordId::new(*place.as_bytes());
    let stripe = header(core, stripe_id, &id).await?;
    let index = stripe.index_of(&id).ok_or(Unmended::NotListed)?;
    let shape = StripeShape::new(stripe_id, &stripe);
    let fetched = core.walker.fetch_stripe(&shape, 0..shape.k).await?;
    let mut fragments = fetched.fragments;
    if let Some(at) = fragments.iter().position(|(at, _)| *at == index as usize) {
        return Ok(fragments.swap_remove(at).1);
    }
    let suite = core.genesis.suite;
    let work = move || rebuild(suite, &stripe, stripe_id, index, &fragments);
    let record = core.env.cpu(work).await?;
    core.metrics.upkeep.rebuilt.inc();
    Ok(record)
}

/// The header of this fragment's stripe: the peer's own, else another holder's, which is kept where the own one is damaged.
async fn header(core: &Core, id: RecordId, fragment: &RecordId) -> Result<Stripe, Unmended> {
    if let Ok(Some(stripe)) = core.shelf.stripe(&id).await {
        return Ok(stripe);
    }
    let found = core.walker.find_elsewhere(id, id.into()).await?;
    let Document::Stripe(stripe) = found.document else { return Err(Unmended::NotListed) };
    if let Err(error) = core.shelf.mend(found.record, fragment).await {
        tracing::error!(record = %id, %error, "a stripe's damaged header cannot be written again");
    }
    Ok(stripe)
}

/// CPU work: k fragments through the code, and a hash.
fn rebuild(
    suite: Suite,
    stripe: &Stripe,
    stripe_id: RecordId,
    index: u32,
    fragments: &[(usize, Record)],
) -> Result<Record, Unmended> {
    let mut coding: Vec<(usize, Bytes)> = Vec::with_capacity(fragments.len());
    for (at, record) in fragments {
        let document = Document::decode(&record.bytes)?;
        stripe.prove(&stripe_id, record, &document)?;
        let bytes = coded(record, &document).ok_or(Unmended::NotListed)?;
        coding.push((*at, bytes));
    }
    let given: Vec<Given<'_>> =
        coding.iter().map(|(index, bytes)| Given { index: *index, bytes }).collect();
    let code = Code::new(stripe.k() as usize, stripe.n() as usize)?;
    let make = |bytes: &mut [u8]| {
        let mut wanted = [Wanted { index: index as usize, bytes }];
        code.reconstruct(stripe.fragment_bytes(), &given, &mut wanted)
    };
    if stripe.kind_of(index) == Some(Kind::Parity) {
        let mut buffer = ParityBuffer::new(index, stripe.fragment_bytes())?;
        make(buffer.bytes_mut())?;
        return Ok(stripe.parity(suite, &stripe_id, index, buffer)?);
    }
    let length = stripe.lengths().get(index as usize).map_or(0, |length| *length as usize);
    let mut bytes = vec![0; length];
    make(&mut bytes)?;
    Ok(stripe.page(suite, &stripe_id, index, &bytes.into())?)
}
