//! Fragments made again from any k of their stripe, no key, and the ids in the header as proof.

use bytes::Bytes;
use crypto::{RecordId, Suite};
use document::stripe::coded;
use document::{Document, DocumentError, Kind, ParityBuffer, Record, Stripe};
use erasure::{Code, ErasureError, Given, Wanted};

/// Why fragments are not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unmade {
    /// What was given, or came out, is not what the header says.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The code refused what it was given.
    #[error(transparent)]
    Erasure(#[from] ErasureError),
    /// A record is no fragment.
    #[error("a record that is no fragment was given")]
    NoFragment,
}

/// Makes the wanted fragments from the given ones, at least k. CPU work: k fragments through the code, and a hash each.
pub(crate) fn make(
    suite: Suite,
    stripe: &Stripe,
    id: &RecordId,
    given: &[(u8, Record)],
    wanted: &[u8],
) -> Result<Vec<(u8, Record)>, Unmade> {
    let mut coding: Vec<(usize, Bytes)> = Vec::with_capacity(given.len());
    for (index, record) in given {
        let document = Document::decode(&record.bytes)?;
        coding.push((usize::from(*index), coded(record, &document).ok_or(Unmade::NoFragment)?));
    }
    let given: Vec<Given<'_>> =
        coding.iter().map(|(index, bytes)| Given { index: *index, bytes }).collect();
    let code = Code::new(stripe.k() as usize, stripe.n() as usize)?;
    let bytes = stripe.fragment_bytes();
    let (mut pages, mut parities) = (Vec::new(), Vec::new());
    for index in wanted {
        let number = u32::from(*index);
        if stripe.kind_of(number) == Some(Kind::Parity) {
            parities.push((*index, ParityBuffer::new(number, bytes)?));
        } else {
            let length = stripe.lengths().get(usize::from(*index)).copied().unwrap_or(0);
            pages.push((*index, vec![0; length as usize]));
        }
    }
    {
        let of_pages =
            pages.iter_mut().map(|(index, bytes)| Wanted { index: usize::from(*index), bytes });
        let of_parities = parities.iter_mut().map(|(index, buffer)| Wanted {
            index: usize::from(*index),
            bytes: buffer.bytes_mut(),
        });
        let mut all: Vec<Wanted<'_>> = of_pages.chain(of_parities).collect();
        code.reconstruct(bytes, &given, &mut all)?;
    }
    let mut made = Vec::with_capacity(wanted.len());
    #[cfg(feature = "planted-bugs")]
    if crate::planted::is_on(crate::planted::PlantedBug::BelieveHeader) {
        let pages = pages.into_iter().map(|(index, bytes)| (index, Kind::Page, bytes.into()));
        let parities = parities
            .into_iter()
            .map(|(index, buffer)| (index, Kind::Parity, buffer.record(suite).bytes));
        let believed = pages.chain(parities).filter_map(|(index, kind, bytes)| {
            let listed = *stripe.fragments().get(usize::from(index))?;
            Some((index, Record { kind, id: listed, place: (*id).into(), bytes }))
        });
        return Ok(believed.collect());
    }
    for (index, bytes) in pages {
        made.push((index, stripe.page(suite, id, u32::from(index), &bytes.into())?));
    }
    for (index, buffer) in parities {
        made.push((index, stripe.parity(suite, id, u32::from(index), buffer)?));
    }
    Ok(made)
}

/// The fragment, where it proves itself and is what the header lists under that number. CPU work: a hash.
pub(crate) fn checked(
    suite: Suite,
    stripe: &Stripe,
    id: &RecordId,
    index: u8,
    record: Record,
) -> Result<Record, DocumentError> {
    let document = document::prove(suite, &record)?;
    match stripe.prove(id, &record, &document)? {
        found if found == u32::from(index) => Ok(record),
        _ => Err(DocumentError::Place(record.id)),
    }
}
