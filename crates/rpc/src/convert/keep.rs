//! Messages that keep the network whole: their parts, and the bounds of requests.
//!
//! As for objects, the bounds stand once, over the plain types, and both sides check them: what would be refused is not
//! sent. What an answer must be for its request, and how it is cut to what travels, is in `fitting`. Lists of one thing
//! of a fixed length travel as one field of bytes: 256 sums are not 256 fields.

mod answers;
mod fitting;
mod requests;

use bytes::{BufMut, Bytes, BytesMut};
use crypto::{PeerId, RecordId};
use env::calls::keep::{
    CLAIMS_MAX, COMPARE_BITS_MAX, Compare, FETCH_MAX, HAVE_MAX, HeldFragment, ITEMS_MAX,
    KeepRequest, LISTS_BITS_MAX, LOOK_MAX, Listed, MOVED_MAX, PROVE_MAX, RANGES_MAX, Range, SUMS,
    SettledStripe, WORDS_MAX, Words,
};

pub(crate) use self::fitting::Asked;
use super::{Open, Wrong, array32, copied, id_and_place, place_bytes};
use crate::proto;

/// Bytes of a key.
const KEY_BYTES: usize = 33;
/// Bytes of a view.
const VIEW_BYTES: usize = 16;

/// What is wrong with a list of peers, by its name.
struct Named {
    length: &'static str,
    over: &'static str,
    order: &'static str,
}

const ABSENT: Named = Named {
    length: "absent peers are not 33 bytes each",
    over: "over 1,024 absent peers",
    order: "absent peers are not ascending",
};
const FAULTY: Named = Named {
    length: "faulty peers are not 33 bytes each",
    over: "over 1,024 faulty peers",
    order: "faulty peers are not ascending",
};

fn view(bytes: &[u8]) -> Result<[u8; VIEW_BYTES], Wrong> {
    bytes.try_into().map_err(|_| Wrong("view is not 16 bytes"))
}

fn peer(bytes: &[u8]) -> Result<PeerId, Wrong> {
    PeerId::from_slice(bytes).map_err(|_| Wrong("a peer is not a public key"))
}

/// The items of a field in which they stand one after the other; nothing is kept where there are over `most`.
fn items<'a, const N: usize>(
    bytes: &'a [u8],
    length: &'static str,
    most: usize,
    over: &'static str,
) -> Result<&'a [[u8; N]], Wrong> {
    match bytes.as_chunks::<N>() {
        (items, []) if items.len() <= most => Ok(items),
        (_, []) => Err(Wrong(over)),
        _ => Err(Wrong(length)),
    }
}

/// Items of a fixed length, one after the other.
fn joined<'a>(items: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let mut all = BytesMut::new();
    items.for_each(|item| all.put_slice(item));
    all.freeze()
}

fn ids(bytes: &[u8], most: usize, over: &'static str) -> Result<Vec<RecordId>, Wrong> {
    let ids = items::<32>(bytes, "ids are not 32 bytes each", most, over)?;
    Ok(ids.iter().copied().map(RecordId::new).collect())
}

fn index(number: u32) -> Result<u8, Wrong> {
    u8::try_from(number).map_err(|_| Wrong("the number of a fragment is over 255"))
}

fn peers(bytes: &[u8], named: &Named) -> Result<Vec<PeerId>, Wrong> {
    let keys = items::<KEY_BYTES>(bytes, named.length, WORDS_MAX, named.over)?;
    keys.iter().map(|key| peer(key)).collect()
}

impl Open<Words> for Option<proto::KeepWords> {
    fn open(self) -> Result<Words, Wrong> {
        let Some(words) = self else { return Ok(Words::default()) };
        let words = Words {
            absent: peers(&words.absent, &ABSENT)?,
            faulty: peers(&words.faulty, &FAULTY)?,
        };
        check_words(&words)?;
        Ok(words)
    }
}

/// Absent where there is nothing to say.
fn closed_words(words: &Words) -> Option<proto::KeepWords> {
    let all = |peers: &[PeerId]| joined(peers.iter().map(|peer| &peer.as_bytes()[..]));
    (*words != Words::default())
        .then(|| proto::KeepWords { absent: all(&words.absent), faulty: all(&words.faulty) })
}

impl Open<Range> for Option<proto::PlaceRange> {
    fn open(self) -> Result<Range, Wrong> {
        let range = self.ok_or(Wrong("range is missing"))?;
        let bits = u8::try_from(range.bits).map_err(|_| Wrong(OVER_BITS))?;
        Ok(Range { prefix: range.prefix, bits })
    }
}

impl From<Range> for proto::PlaceRange {
    fn from(range: Range) -> Self {
        Self { prefix: range.prefix, bits: range.bits.into() }
    }
}

impl Open<Listed> for proto::ListedRange {
    fn open(self) -> Result<Listed, Wrong> {
        let copy = |copy: proto::HeldCopy| id_and_place(&copy.id, &copy.place);
        Ok(Listed {
            range: self.range.open()?,
            copies: self.copies.into_iter().map(copy).collect::<Result<_, _>>()?,
            fragments: self.fragments.into_iter().map(Open::open).collect::<Result<_, _>>()?,
            more: self.more,
        })
    }
}

impl From<Listed> for proto::ListedRange {
    fn from(listed: Listed) -> Self {
        let copy = |(id, place)| proto::HeldCopy {
            id: copied(RecordId::as_bytes(&id)),
            place: place_bytes(&id, &place),
        };
        Self {
            range: Some(listed.range.into()),
            copies: listed.copies.into_iter().map(copy).collect(),
            fragments: listed.fragments.into_iter().map(Into::into).collect(),
            more: listed.more,
        }
    }
}

impl Open<HeldFragment> for proto::HeldFragment {
    fn open(self) -> Result<HeldFragment, Wrong> {
        let stripe = RecordId::new(array32(&self.stripe, "stripe is not 32 bytes")?);
        Ok(HeldFragment { stripe, index: index(self.index)? })
    }
}

impl From<HeldFragment> for proto::HeldFragment {
    fn from(held: HeldFragment) -> Self {
        Self { stripe: copied(held.stripe.as_bytes()), index: held.index.into() }
    }
}

impl Open<Vec<Listed>> for proto::KeepLists {
    fn open(self) -> Result<Vec<Listed>, Wrong> {
        let count = |listed: &proto::ListedRange| listed.copies.len() + listed.fragments.len();
        check_ranges(self.ranges.len())?;
        check_items(self.ranges.iter().map(count).sum())?;
        let all = self.ranges.into_iter().map(Open::open).collect::<Result<Vec<_>, _>>()?;
        check_lists(&all)?;
        Ok(all)
    }
}

impl From<Vec<Listed>> for proto::KeepLists {
    fn from(lists: Vec<Listed>) -> Self {
        Self { ranges: lists.into_iter().map(Into::into).collect() }
    }
}

const OVER_BITS: &str = "a range of over 32 bits";
const OVER_HAVE: &str = "over 1,024 records";
const OVER_LOOK: &str = "over 1,024 places";
const NOT_CLAIMS: &str = "not 1 to 256 stripes";

/// Checks the bounds of a request, on either side.
pub(crate) fn check_request(request: &KeepRequest) -> Result<(), Wrong> {
    match request {
        KeepRequest::Compare(compare) => check_compare(compare),
        KeepRequest::Lists(lists) => check_lists(lists),
        KeepRequest::Claim(stripes) => check_count(stripes.len(), CLAIMS_MAX, NOT_CLAIMS),
        KeepRequest::Settled(stripes) => check_settled(stripes),
        KeepRequest::Fetch(records) => check_fetch(records.len()),
        KeepRequest::Have(ids) => check_count(ids.len(), HAVE_MAX, "not 1 to 1,024 records"),
        KeepRequest::Prove(asks) => check_prove(asks.len()),
        KeepRequest::Look(places) => at_most(places.len(), LOOK_MAX, OVER_LOOK),
        _ => Err(Wrong("a request that this release cannot send")),
    }
}

fn at_most(len: usize, most: usize, what: &'static str) -> Result<(), Wrong> {
    if len <= most { Ok(()) } else { Err(Wrong(what)) }
}

fn check_count(len: usize, most: usize, what: &'static str) -> Result<(), Wrong> {
    if (1..=most).contains(&len) { Ok(()) } else { Err(Wrong(what)) }
}

fn check_fetch(len: usize) -> Result<(), Wrong> {
    check_count(len, FETCH_MAX, "not 1 to 256 records to fetch")
}

fn check_prove(len: usize) -> Result<(), Wrong> {
    check_count(len, PROVE_MAX, "not 1 to 64 chunks to prove")
}

fn check_ranges(len: usize) -> Result<(), Wrong> {
    check_count(len, RANGES_MAX, "not 1 to 64 ranges")
}

fn check_items(len: usize) -> Result<(), Wrong> {
    at_most(len, ITEMS_MAX, "over 2,048 items in one list")
}

fn check_words(words: &Words) -> Result<(), Wrong> {
    for (peers, named) in [(&words.absent, ABSENT), (&words.faulty, FAULTY)] {
        at_most(peers.len(), WORDS_MAX, named.over)?;
        if !peers.is_sorted_by(|a, b| a < b) {
            return Err(Wrong(named.order));
        }
    }
    Ok(())
}

fn check_range(range: Range) -> Result<(), Wrong> {
    if range.bits > LISTS_BITS_MAX {
        return Err(Wrong(OVER_BITS));
    }
    if u64::from(range.prefix) >> range.bits != 0 {
        return Err(Wrong("a range's prefix has more bits than it says"));
    }
    Ok(())
}

fn check_compare(compare: &Compare) -> Result<(), Wrong> {
    check_range(compare.range)?;
    if compare.range.bits > COMPARE_BITS_MAX || !compare.range.bits.is_multiple_of(8) {
        return Err(Wrong("a comparison of a range that is not of 0, 8, 16 or 24 bits"));
    }
    if compare.sums.len() != SUMS {
        return Err(Wrong("not 256 sums of 16 bytes"));
    }
    check_words(&compare.words)
}

/// Ranges and their items, on either side and either way.
fn check_lists(lists: &[Listed]) -> Result<(), Wrong> {
    check_ranges(lists.len())?;
    check_items(lists.iter().map(|listed| listed.copies.len() + listed.fragments.len()).sum())?;
    for listed in lists {
        check_range(listed.range)?;
        if !listed.copies.iter().all(|(id, place)| listed.range.holds(id, place)) {
            return Err(Wrong("a copy that is not in its range"));
        }
        let lives = |held: &HeldFragment| listed.range.holds(&held.stripe, &held.stripe.into());
        if !listed.fragments.iter().all(lives) {
            return Err(Wrong("a fragment that is not in its range"));
        }
    }
    // Each item stands in one list, and nobody is asked for the same many times.
    let first = |range: Range| u64::from(range.prefix) << (LISTS_BITS_MAX - range.bits);
    let mut parts: Vec<_> = lists.iter().map(|listed| listed.range).collect();
    parts.sort_unstable_by_key(|range| first(*range));
    let overlap = |pair: &[Range]| match pair {
        [a, b] => first(*a) + (1_u64 << (LISTS_BITS_MAX - a.bits)) > first(*b),
        _ => false,
    };
    if parts.windows(2).any(overlap) { Err(Wrong("a range that is in another")) } else { Ok(()) }
}

fn check_settled(stripes: &[SettledStripe]) -> Result<(), Wrong> {
    check_count(stripes.len(), CLAIMS_MAX, NOT_CLAIMS)?;
    check_moved(stripes.iter().map(|settled| settled.moved.len()).sum())
}

fn check_moved(len: usize) -> Result<(), Wrong> {
    at_most(len, MOVED_MAX, "over 4,096 fragments with new holders")
}

#[cfg(test)]
mod tests;
