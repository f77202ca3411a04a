//! Q2 from what holders acknowledged: how many of them, whichever they are, can be lost before a record or a stripe is.
//!
//! Of copies that is all but one. Of a stripe it needs no trying of sets: where no peer has two of its fragments, who wants to
//! take the stripe must take all holders of all but k - 1 of the fragments that somebody has, so the cheapest such set is the
//! one that counts. That no peer has two is checked first ([`Kept::doubled`]). A fragment counts only where its
//! holder acknowledged the header too: a fragment without it is found by nobody.

use std::collections::{BTreeMap, BTreeSet};

use crypto::RecordId;
use document::{Kind, Stripe};

/// Who acknowledged what to one author, by record.
pub(crate) type Received = BTreeMap<RecordId, (Kind, BTreeSet<usize>)>;

/// A record or a stripe, and the peers that acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// A record of which there are copies.
    Copies { id: RecordId, kind: Kind, holders: BTreeSet<usize> },
    /// A stripe: the holders of each fragment that acknowledged the header as well.
    Stripe { id: RecordId, k: usize, holders: Vec<BTreeSet<usize>> },
}

impl Kept {
    /// Everything that was sent and is not among the `earlier`.
    pub(crate) fn all(
        received: &Received,
        stripes: &BTreeMap<RecordId, Stripe>,
        earlier: &BTreeSet<RecordId>,
    ) -> Vec<Self> {
        let new = |id: &RecordId| received.contains_key(id) && !earlier.contains(id);
        let new_stripes = stripes.iter().filter(|(id, _)| new(id));
        // Of earlier stripes as well: a put may send a fragment again, or at all, long after its answer.
        let fragments: BTreeSet<&RecordId> =
            stripes.values().flat_map(|stripe| stripe.fragments()).collect();
        let nobody = BTreeSet::new();
        let of = |id: &RecordId| received.get(id).map_or(&nobody, |(_, holders)| holders);
        let striped = new_stripes.map(|(id, stripe)| {
            let with_header = of(id);
            let holders = stripe.fragments().iter().map(|one| of(one) & with_header).collect();
            Self::Stripe { id: *id, k: stripe.k() as usize, holders }
        });
        let copied = received
            .iter()
            .filter(|(id, _)| new(id) && !stripes.contains_key(id) && !fragments.contains(id));
        let copied = copied.map(|(id, (kind, holders))| Self::Copies {
            id: *id,
            kind: *kind,
            holders: holders.clone(),
        });
        striped.chain(copied).collect()
    }

    /// Its id.
    pub(crate) fn id(&self) -> RecordId {
        match self {
            Self::Copies { id, .. } | Self::Stripe { id, .. } => *id,
        }
    }

    /// Copies, or fragments, that somebody acknowledged.
    pub(crate) fn acked(&self) -> usize {
        match self {
            Self::Copies { holders, .. } => holders.len(),
            Self::Stripe { holders, .. } => holders.iter().filter(|one| !one.is_empty()).count(),
        }
    }

    /// Everybody that acknowledged any of it.
    pub(crate) fn holders(&self) -> BTreeSet<usize> {
        match self {
            Self::Copies { holders, .. } => holders.clone(),
            Self::Stripe { holders, .. } => holders.iter().flatten().copied().collect(),
        }
    }

    /// How many peers, whichever they are, can be lost and it is still there; `None` where it is not there at all.
    pub(crate) fn survives(&self) -> Option<usize> {
        match self {
            Self::Copies { holders, .. } => holders.len().checked_sub(1),
            Self::Stripe { k, holders, .. } => {
                let mut sizes: Vec<usize> = holders.iter().map(BTreeSet::len).collect();
                sizes.retain(|size| *size > 0);
                sizes.sort_unstable();
                let taken = (sizes.len() + 1).checked_sub(*k).filter(|taken| *taken > 0)?;
                Some(sizes[..taken].iter().sum::<usize>() - 1)
            }
        }
    }

    /// Whether it is still there without these peers.
    pub(crate) fn is_there_without(&self, lost: &BTreeSet<usize>) -> bool {
        match self {
            Self::Copies { holders, .. } => !holders.is_subset(lost),
            Self::Stripe { k, holders, .. } => {
                holders.iter().filter(|one| !one.is_subset(lost)).count() >= *k
            }
        }
    }

    /// A peer that has two fragments of the stripe: losing it would take both.
    pub(crate) fn doubled(&self) -> Option<usize> {
        let Self::Stripe { holders, .. } = self else { return None };
        let mut seen = BTreeSet::new();
        holders.iter().flatten().find(|peer| !seen.insert(**peer)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> RecordId {
        RecordId::new([number; 32])
    }

    fn set(peers: &[usize]) -> BTreeSet<usize> {
        peers.iter().copied().collect()
    }

    fn striped(k: usize, holders: &[&[usize]]) -> Kept {
        Kept::Stripe { id: id(1), k, holders: holders.iter().map(|one| set(one)).collect() }
    }

    /// The same by trying every set of ten peers.
    fn survives_by_trial(kept: &Kept) -> Option<usize> {
        let least = (0_u32..1 << 10).filter(|lost| {
            let lost = (0..10).filter(|peer| lost >> peer & 1 == 1).collect();
            !kept.is_there_without(&lost)
        });
        least.map(u32::count_ones).min().and_then(|least| (least as usize).checked_sub(1))
    }

    #[test]
    fn a_stripe_survives_what_trying_every_loss_says() {
        let one_each: Vec<&[usize]> = vec![&[0], &[1], &[2], &[3], &[4], &[5], &[6], &[7]];
        for cases in [
            striped(4, &one_each),
            striped(4, &one_each[..7]),
            striped(4, &one_each[..4]),
            striped(4, &one_each[..3]),
            striped(2, &[&[0, 1, 2], &[3], &[], &[4, 5]]),
            striped(1, &[&[0, 1], &[2]]),
            striped(3, &[&[0], &[1, 2], &[3, 4], &[5, 6, 7], &[8]]),
            striped(2, &[]),
            Kept::Copies { id: id(1), kind: Kind::Entry, holders: set(&[2, 5, 9]) },
            Kept::Copies { id: id(1), kind: Kind::Entry, holders: set(&[]) },
        ] {
            assert_eq!(cases.doubled(), None);
            assert_eq!(cases.survives(), survives_by_trial(&cases), "{cases:?}");
        }
        assert_eq!(striped(4, &one_each).survives(), Some(4), "n - k");
        assert_eq!(striped(4, &one_each[..7]).survives(), Some(3), "s - k");
    }

    #[test]
    fn a_peer_with_two_fragments_is_told() {
        assert_eq!(striped(2, &[&[0], &[1, 2], &[3, 0]]).doubled(), Some(0));
        assert_eq!(striped(2, &[&[0, 4], &[1, 2], &[3]]).doubled(), None);
    }

    #[test]
    fn a_fragment_counts_where_its_header_is_and_no_put_before_counts() {
        let fragments: Vec<RecordId> = (10..14).map(id).collect();
        let stripe = Stripe::new(vec![5, 5], fragments.clone()).expect("a stripe");
        let stripes = BTreeMap::from([(id(1), stripe)]);
        let mut received = Received::new();
        received.insert(id(1), (Kind::Stripe, set(&[0, 1, 2])));
        for (peer, fragment) in fragments.iter().enumerate() {
            received.insert(*fragment, (Kind::Page, set(&[peer])));
        }
        received.insert(id(2), (Kind::Entry, set(&[4, 5])));
        received.insert(id(3), (Kind::Entry, set(&[6])));
        let all = Kept::all(&received, &stripes, &set_of(&[id(3)]));
        let entry = Kept::Copies { id: id(2), kind: Kind::Entry, holders: set(&[4, 5]) };
        assert_eq!(all, [striped(2, &[&[0], &[1], &[2], &[]]), entry]);
        assert_eq!((all[0].acked(), all[0].holders()), (3, set(&[0, 1, 2])));
    }

    #[test]
    fn a_late_fragment_of_an_earlier_put_is_not_a_copy_of_this_one() {
        let fragments: Vec<RecordId> = (10..14).map(id).collect();
        let stripe = Stripe::new(vec![5, 5], fragments).expect("a stripe");
        let stripes = BTreeMap::from([(id(1), stripe)]);
        let mut received = Received::new();
        received.insert(id(1), (Kind::Stripe, set(&[0, 1, 2])));
        received.insert(id(12), (Kind::Page, set(&[])));
        assert_eq!(Kept::all(&received, &stripes, &set_of(&[id(1)])), []);
    }

    fn set_of(ids: &[RecordId]) -> BTreeSet<RecordId> {
        ids.iter().copied().collect()
    }
}
