//! How many copies of a record there are, and how many of them an acknowledgement waits for.
//!
//! A document is lost when one of its pages is, and also when its entry or its last envelope is;
//! and there are few of those and they are small. So entries and envelopes get more copies than
//! pages: N by the size of the network, such that a random third of the peers lost at once takes an
//! entry no more often than it takes a stripe of the same row.
//!
//! Where fewer peers can be reached than W, a writer of what never changes waits for the W of as many as it reaches
//! ([`crate::View::reached`]). N stays: repair makes the other copies when there are peers for them.

use crypto::Suite;
use document::Kind;

/// Copies of a page where the genesis says nothing.
pub const PAGE_COPIES: u32 = 3;

/// Copies wanted, and copies that must be durable before a writer is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Redundancy {
    /// Copies in all (N), at least 1.
    pub copies: u32,
    /// Copies acknowledged (W): from 1 to `copies`; more than half of them, but where fewer peers can be reached.
    pub acknowledged: u32,
}

/// The redundancy of a record of this kind in a network of so many peers.
///
/// Pages, versions whose policy names no number, and parity where somebody copies it, have [`PAGE_COPIES`], acknowledged by two, or `genesis_copies`, acknowledged by more than
/// half. The rest goes by the table, but never has fewer copies than a page. All is bounded by the
/// number of peers (0 counts as 1): of fewer copies than were asked for, still more than half are
/// waited for, not all.
///
/// | peers | N | W |
/// |---|---|---|
/// | 1, 2 | all | all |
/// | 3 to 8 | 3 | 2 |
/// | 9 to 17 | 5 | 3 |
/// | 18 to 47 | 9 | 5 |
/// | 48 and more | 14 | 8 |
///
/// The original Libri knows one number of copies for all documents. So in `libri-1` what the genesis
/// asks for, where it asks, counts for every kind.
pub fn redundancy(
    kind: Kind,
    peers: usize,
    suite: Suite,
    genesis_copies: Option<u32>,
) -> Redundancy {
    let pages = genesis_copies.unwrap_or(PAGE_COPIES).max(1);
    let one_number = suite == Suite::Libri1 && genesis_copies.is_some();
    let wanted = match kind {
        Kind::Page | Kind::Parity | Kind::Version => pages,
        _ if one_number => pages,
        // A lost one of these takes more with it than itself.
        Kind::Entry
        | Kind::Envelope
        | Kind::Stripe
        | Kind::Object
        | Kind::Policy
        | Kind::Attestation
        | Kind::Head
        | Kind::Devices
        | Kind::Lease => table(peers).max(pages),
    };
    let copies = wanted.min(u32::try_from(peers.max(1)).unwrap_or(u32::MAX));
    // Every row of the table acknowledges at N/2 + 1 (of one or two copies that is all of them).
    Redundancy { copies, acknowledged: copies / 2 + 1 }
}

fn table(peers: usize) -> u32 {
    match peers {
        0..=8 => 3,
        9..=17 => 5,
        18..=47 => 9,
        _ => 14,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, peers: usize, copies: Option<u32>) -> (u32, u32) {
        let found = redundancy(kind, peers, Suite::Holdfast1, copies);
        (found.copies, found.acknowledged)
    }

    #[test]
    fn entries_and_envelopes_go_by_the_table() {
        let rows = [
            (0, (1, 1)),
            (1, (1, 1)),
            (2, (2, 2)),
            (3, (3, 2)),
            (8, (3, 2)),
            (9, (5, 3)),
            (17, (5, 3)),
            (18, (9, 5)),
            (24, (9, 5)),
            (25, (9, 5)),
            (47, (9, 5)),
            (48, (14, 8)),
            (10_000, (14, 8)),
        ];
        for (peers, expected) in rows {
            assert_eq!(of(Kind::Entry, peers, None), expected, "{peers} peers");
            assert_eq!(of(Kind::Envelope, peers, None), expected, "{peers} peers");
        }
    }

    #[test]
    fn pages_go_by_the_genesis() {
        assert_eq!(of(Kind::Page, 9, None), (3, 2));
        assert_eq!(of(Kind::Page, 10_000, None), (3, 2));
        assert_eq!(of(Kind::Page, 9, Some(1)), (1, 1));
        assert_eq!(of(Kind::Page, 9, Some(4)), (4, 3));
        assert_eq!(of(Kind::Page, 9, Some(7)), (7, 4));
        assert_eq!(of(Kind::Page, 2, None), (2, 2));
    }

    #[test]
    fn an_entry_never_has_fewer_copies_than_a_page() {
        assert_eq!(of(Kind::Entry, 9, Some(7)), (7, 4));
        assert_eq!(of(Kind::Entry, 9, Some(2)), (5, 3));
    }

    #[test]
    fn in_libri_1_one_number_of_copies_counts_for_all() {
        for kind in Kind::ALL {
            let asked = redundancy(kind, 64, Suite::Libri1, Some(3));
            assert_eq!((asked.copies, asked.acknowledged), (3, 2), "{kind:?}");
        }
        // Where the genesis asks for nothing, what is lost by its entry alone is kept as elsewhere.
        assert_eq!(redundancy(Kind::Entry, 64, Suite::Libri1, None).copies, 14);
    }

    #[test]
    fn copies_and_acknowledgements_are_bounded_by_the_peers() {
        for peers in 0..80 {
            for copies in [None, Some(0), Some(1), Some(3), Some(64), Some(u32::MAX)] {
                let suites = [Suite::Holdfast1, Suite::Libri1];
                for (kind, suite) in Kind::ALL.into_iter().flat_map(|k| suites.map(|s| (k, s))) {
                    let found = redundancy(kind, peers, suite, copies);
                    assert!(found.copies as usize <= peers.max(1));
                    assert!((1..=found.copies).contains(&found.acknowledged));
                    // Any two acknowledged writes, or a write and a majority, share a holder.
                    assert!(found.acknowledged * 2 > found.copies);
                }
            }
        }
    }
}
