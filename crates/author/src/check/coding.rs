//! Whether a stripe's fragments are of one stripe: parity that is not that of its pages brings nothing back.
//!
//! Every fragment proves itself by its id in the header, also parity that its author made up: the header lists whatever its
//! author hashed. Only coding it again tells. From any k fragments all others are made, and each must have the id that the
//! header lists; where one has not, the author's program was wrong or lied, and no repair can mend it.

use std::collections::BTreeMap;

use bytes::Bytes;
use crypto::{RecordId, Suite};
use document::{Document, Kind, ParityBuffer, Record, Stripe, stripe};
use erasure::{Code, ErasureError, Given, Wanted};

/// Where a fragment is made again.
enum Room {
    Page(Vec<u8>),
    Parity(ParityBuffer),
}

/// Whether all fragments are what the code makes of these, `together` of them made at a time. Of fewer than k nothing is
/// said against them. CPU work.
///
/// # Errors
/// [`ErasureError`] for a header that no code has; one that was decoded is not such.
pub(super) fn is_coded(
    suite: Suite,
    id: &RecordId,
    header: &Stripe,
    given: &BTreeMap<usize, Record>,
    together: usize,
) -> Result<bool, ErasureError> {
    let mut coded: Vec<(usize, Bytes)> = Vec::with_capacity(given.len());
    for (&index, record) in given {
        // Its id is right; whether it is what the header says of its number is another matter.
        let Ok(document) = Document::decode(&record.bytes) else { return Ok(false) };
        if header.prove(id, record, &document).ok() != u32::try_from(index).ok() {
            return Ok(false);
        }
        coded.extend(stripe::coded(record, &document).map(|bytes| (index, bytes)));
    }
    if coded.len() < header.k() as usize {
        return Ok(true);
    }
    let coded: Vec<Given<'_>> =
        coded.iter().map(|(index, bytes)| Given { index: *index, bytes }).collect();
    let code = Code::new(header.k() as usize, header.n() as usize)?;
    let others: Vec<u32> =
        (0..header.n()).filter(|index| !given.contains_key(&(*index as usize))).collect();
    for some in others.chunks(together.max(1)) {
        let rooms: Option<Vec<Room>> = some.iter().map(|index| room(header, *index)).collect();
        let Some(mut rooms) = rooms else { return Ok(false) };
        let wanted = some.iter().zip(&mut rooms).map(|(index, room)| Wanted {
            index: *index as usize,
            bytes: match room {
                Room::Page(bytes) => bytes,
                Room::Parity(buffer) => buffer.bytes_mut(),
            },
        });
        code.reconstruct(header.fragment_bytes(), &coded, &mut wanted.collect::<Vec<_>>())?;
        for (&index, room) in some.iter().zip(rooms) {
            let made = match room {
                Room::Page(bytes) => header.page(suite, id, index, &bytes.into()),
                Room::Parity(buffer) => header.parity(suite, id, index, buffer),
            };
            if made.is_err() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Room for one fragment; `None` where the header has no such.
fn room(header: &Stripe, index: u32) -> Option<Room> {
    match header.kind_of(index)? {
        Kind::Page => {
            let length = header.lengths().get(index as usize)?;
            Some(Room::Page(vec![0; *length as usize]))
        }
        _ => ParityBuffer::new(index, header.fragment_bytes()).ok().map(Room::Parity),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const SUITE: Suite = Suite::Holdfast1;

    /// A stripe of 3 of 7 whose pages have different lengths; `spoil` may change what its parity is.
    fn made(spoil: impl Fn(&mut [Vec<u8>])) -> document::Striped {
        let author = crypto::SecretKey::from_bytes(&[3; 32]).unwrap();
        let page = |index: u32| {
            let ciphertext = vec![index as u8; 40 + 7 * index as usize].into();
            let author = author.public().into();
            let page = document::Page { author, index, ciphertext, mac: [9; 32] };
            Record::of(SUITE, &Document::Page(page))
        };
        let pages: Vec<Record> = (0..3).map(page).collect();
        let longest = pages.iter().map(|page| page.bytes.len()).max().unwrap();
        let mut parity = vec![vec![0; longest]; 4];
        let data: Vec<&[u8]> = pages.iter().map(|page| &page.bytes[..]).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|one| &mut one[..]).collect();
        Code::new(3, 7).unwrap().encode(&data, &mut outputs).unwrap();
        spoil(&mut parity);
        let parity = parity.into_iter().zip(3..).map(|(bytes, index)| {
            let parity = document::Parity { index, bytes: bytes.into() };
            Record::of(SUITE, &Document::Parity(parity))
        });
        Stripe::of(SUITE, pages, parity.collect()).unwrap()
    }

    fn says(striped: &document::Striped, given: &[usize], together: usize) -> bool {
        let given = given.iter().map(|at| (*at, striped.fragments[*at].clone())).collect();
        is_coded(SUITE, &striped.header.id, &striped.stripe, &given, together).unwrap()
    }

    #[test]
    fn a_bit_of_any_parity_is_seen_from_any_k() {
        let whole = made(|_| ());
        let sets = [[0, 1, 2], [0, 3, 4], [2, 5, 6], [3, 4, 5], [4, 5, 6]];
        for (given, together) in sets.iter().zip([1, 2, 3, 4, 100]) {
            assert!(says(&whole, given, together), "{given:?}");
        }
        for spoilt in 0..4 {
            let spoilt = made(|parity| parity[spoilt][30] ^= 1);
            for given in &sets {
                assert!(!says(&spoilt, given, 2), "{given:?}");
            }
            assert!(says(&spoilt, &[0, 1], 2), "two of three say nothing");
        }
    }

    #[test]
    fn a_fragment_that_is_not_of_its_number_is_seen() {
        let whole = made(|_| ());
        let swapped = [(0, 0), (1, 2), (2, 1)].map(|(at, of)| (at, whole.fragments[of].clone()));
        let given = swapped.into_iter().collect();
        assert!(!is_coded(SUITE, &whole.header.id, &whole.stripe, &given, 8).unwrap());
    }
}
