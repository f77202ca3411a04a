//! What peers ask each other to keep the network whole: one call with a request that says what.
//!
//! They compare what both should hold, say who is missing, claim what they mend, fetch what they lack, and prove what they
//! have. Nothing here is believed: records and proofs prove themselves, lists are hints that a survey follows, and words about others
//! count by organisations. The meaning of each request is in ADR 8.

use crypto::{PeerId, Place, RecordId};
use document::Record;
pub use document::proof::ChunkProof;

/// Sums in one comparison: one for each value of the 8 bits behind the prefix.
pub const SUMS: usize = 256;
/// Bits of the longest prefix of a comparison: its sums are over ranges of 32 bits.
pub const COMPARE_BITS_MAX: u8 = 24;
/// Bits of the longest prefix of a list.
pub const LISTS_BITS_MAX: u8 = 32;
/// Peers in one list of words at most.
pub const WORDS_MAX: usize = 1024;
/// Ranges of one [`Lists`] at most.
pub const RANGES_MAX: usize = 64;
/// Items of one side in one [`Lists`] at most, all ranges together.
pub const ITEMS_MAX: usize = 2048;
/// Stripes of one claim at most.
pub const CLAIMS_MAX: usize = 256;
/// Fragments with new holders in one [`KeepRequest::Settled`] at most, all stripes together.
pub const MOVED_MAX: usize = 4096;
/// Records of one [`KeepRequest::Fetch`] at most; their bytes are bounded by [`super::BATCH_BYTES_MAX`].
pub const FETCH_MAX: usize = 256;
/// Companions of one record at most.
pub const COMPANIONS_MAX: usize = 4;
/// Records of one [`KeepRequest::Have`] at most.
pub const HAVE_MAX: usize = 1024;
/// Chunks of one [`KeepRequest::Prove`] at most.
pub const PROVE_MAX: usize = 64;
/// Places of one [`KeepRequest::Look`] at most.
pub const LOOK_MAX: usize = 1024;

/// A sum of items, modulo 2^128.
pub type Sum = u128;

/// Where an item stands in what is compared: the first 16 bits of its place, then the third and the fourth byte of its id. So what
/// lives at its id stands at that, and of what lives at one place (all versions of an object) ranges of 24 and 32 bits hold a 256th
/// and a 65,536th.
#[must_use]
pub fn point(id: &RecordId, place: &Place) -> u32 {
    let ([a, b, ..], [_, _, c, d, ..]) = (*place.as_bytes(), *id.as_bytes());
    u32::from_be_bytes([a, b, c, d])
}

/// A part of all that is compared: what stands at a [`point`] whose first bits are these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// The first bits, as the lowest bits of the number.
    pub prefix: u32,
    /// How many, at most [`LISTS_BITS_MAX`].
    pub bits: u8,
}

impl Range {
    /// Everything.
    pub const ALL: Self = Self { prefix: 0, bits: 0 };

    /// Whether a record that lives there is in it.
    pub fn holds(&self, id: &RecordId, place: &Place) -> bool {
        let point = point(id, place);
        u32::from(self.bits) <= u32::BITS
            && point.checked_shr(u32::BITS - u32::from(self.bits)).unwrap_or(0) == self.prefix
    }

    /// The part of it with this number among its 256.
    pub fn part(&self, number: u8) -> Self {
        Self { prefix: self.prefix << 8 | u32::from(number), bits: self.bits + 8 }
    }
}

/// Whom a peer does without, by its own experience.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Peers that do not answer, or leave. Ascending, at most [`WORDS_MAX`].
    pub absent: Vec<PeerId>,
    /// Peers that do not prove what they should hold. As above.
    pub faulty: Vec<PeerId>,
}

/// Compare what both should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// Which part: of 0, 8, 16 or 24 bits.
    pub range: Range,
    /// The sums of its 256 parts, in order.
    pub sums: Vec<Sum>,
    /// Roster, peers and absent peers that the sums were made with, hashed.
    pub view: [u8; 16],
    /// The caller's words.
    pub words: Words,
}

/// The answer to [`Compare`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompareAnswer {
    /// The numbers of the parts that differ, ascending; none where the views differ.
    pub differ: Vec<u8>,
    /// As in [`Compare`].
    pub view: [u8; 16],
    /// The answerer's words.
    pub words: Words,
}

/// A fragment that a peer holds whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldFragment {
    /// Of which stripe.
    pub stripe: RecordId,
    /// Which fragment.
    pub index: u8,
}

/// What one peer holds in a range, of what concerns another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which part.
    pub range: Range,
    /// Copies that are both's duty, with their places; they are in the range.
    pub copies: Vec<(RecordId, Place)>,
    /// Fragments of stripes that the other may hold another fragment of; the stripes are in the range.
    pub fragments: Vec<HeldFragment>,
    /// The list is not all: ask for parts of the range.
    pub more: bool,
}

/// A fragment that has another holder now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledStripe {
    /// Of which stripe.
    pub stripe: RecordId,
    /// Which fragments have which holder now: those that moved, and as far as all said so, the others.
    pub moved: Vec<(u8, PeerId)>,
}

/// A record that is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchAt {
    /// Which.
    pub id: RecordId,
    /// Where it lives.
    pub place: Place,
}

/// One chunk of a record that is to be proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProveAt {
    /// Which record.
    pub id: RecordId,
    /// Which chunk of 1,024 bytes, modulo the number that it has.
    pub chunk: u32,
}

/// What one peer asks another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepRequest {
    /// See [`Compare`].
    Compare(Compare),
    /// What the caller holds in these ranges, of which none is in another; at most [`RANGES_MAX`].
    Lists(Vec<Listed>),
    /// Claim stripes to be mended; at most [`CLAIMS_MAX`].
    Claim(Vec<RecordId>),
    /// Claims that end; at most [`CLAIMS_MAX`], and [`MOVED_MAX`] fragments.
    Settled(Vec<SettledStripe>),
    /// Fetch records; at most [`FETCH_MAX`]. What does not fit 8 MiB is *later*.
    Fetch(Vec<FetchAt>),
    /// Which of these are held whole; at most [`HAVE_MAX`].
    Have(Vec<RecordId>),
    /// Prove these; at most [`PROVE_MAX`].
    Prove(Vec<ProveAt>),
    /// Look now whether these places are whole; at most [`LOOK_MAX`], none for all.
    Look(Vec<Place>),
}

/// Fragments of one stripe that a peer tells of. It should have one; of more than these the rest is found later.
pub const HELD_MAX: usize = 16;

/// The answer about one claimed stripe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimAnswer {
    /// The fragments that are held whole here, ascending; at most [`HELD_MAX`].
    pub held: Vec<u8>,
    /// Another peer whose claim stands: the caller must not go on.
    pub claimed_by: Option<PeerId>,
}

/// The answer about one record that was to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchAnswer {
    /// It, and what a holder of it must have with it: object, policy, attestation; at most [`COMPANIONS_MAX`].
    Found {
        /// The record.
        record: Record,
        /// What belongs to it.
        companions: Vec<Record>,
    },
    /// It is not held here, or not whole.
    Absent,
    /// It did not fit in the answer.
    Later,
}

/// The answer to a request of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepAnswer {
    /// See [`CompareAnswer`].
    Compare(CompareAnswer),
    /// The answerer's lists of the same ranges, in order.
    Lists(Vec<Listed>),
    /// One a stripe, in order.
    Claim(Vec<ClaimAnswer>),
    /// Taken.
    Settled,
    /// One a record, in order.
    Fetch(Vec<FetchAnswer>),
    /// One a record, in order.
    Have(Vec<bool>),
    /// One a chunk, in order; `None` where it cannot be proven.
    Prove(Vec<Option<ChunkProof>>),
    /// How many of the places are in work now.
    Look(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_what_stands_at_points_that_begin_with_it() {
        let mut id = [0xdd; 32];
        id[2..4].copy_from_slice(&[0xef, 0x12]);
        let (id, place) = (RecordId::new(id), Place::new([0xab; 32]));
        assert_eq!(point(&id, &place), 0xabab_ef12);
        assert_eq!(point(&id, &Place::from(id)), 0xdddd_ef12);
        let two = Range::ALL.part(0xab).part(0xab);
        for range in [Range::ALL, two, two.part(0xef), two.part(0xef).part(0x12)] {
            assert!(range.holds(&id, &place), "{range:?}");
        }
        for range in [Range::ALL.part(0xaa), two.part(0xab), two.part(0xef).part(0x13)] {
            assert!(!range.holds(&id, &place), "{range:?}");
        }
    }
}
