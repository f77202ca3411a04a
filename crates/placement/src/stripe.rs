//! Which peers may hold the fragments of a stripe.
//!
//! ```text
//!   rank of the stripe's id:   0   1   2  ...  n-1 |  n  n+1  n+2  n+3 | ...
//!   fragment                   0   1   2  ...  n-1 |  spares           |
//! ```
//! Fragment i belongs to the i-th peer of the rank. Where that peer is not well, a spare takes it:
//! one of those that are among the first n + [`SPARES`] peers which are not away. So a peer that is
//! away displaces one fragment and not all that follow it (moving every later fragment one peer up
//! would be the obvious way), and a reader guesses right without asking where a fragment is.
//!
//! The rank takes one organisation at a time, so its first n + 4 peers, and with them whatever may
//! hold a fragment, are spread evenly over the organisations that have enough peers.

use crypto::{PeerId, Place};

use crate::view::View;

/// Peers beyond n, of those that are not away, that may hold a fragment which the peer it belongs
/// to could not take.
pub const SPARES: usize = 4;

/// Who may hold a stripe's fragments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeHolders {
    /// The peer that fragment i belongs to, at index i, also where it is away: n of them, or every
    /// peer of a view that has fewer.
    pub own: Vec<PeerId>,
    /// Those that take a displaced fragment, best first: none is away, none is in `own`. At least
    /// [`SPARES`], and one more for each of `own` that is away, as far as there are peers.
    pub spares: Vec<PeerId>,
}

impl View {
    /// Who may hold the n fragments of the stripe with this place. `is_away` says of a peer that
    /// nobody has had a good call from it for a while; it keeps its rank.
    pub fn stripe_holders(
        &self,
        place: &Place,
        n: usize,
        is_away: impl Fn(&PeerId) -> bool,
    ) -> StripeHolders {
        let peers = self.candidates().iter().map(|candidate| &candidate.peer);
        let away = peers.filter(|peer| is_away(peer)).count();
        // No rank needs to be looked at further down: so many hold n + SPARES that are not away.
        let mut own = self.holders(place, n.saturating_add(SPARES).saturating_add(away));
        let further = own.split_off(n.min(own.len()));
        let present = own.iter().filter(|peer| !is_away(peer)).count();
        let spares = further.into_iter().filter(|peer| !is_away(peer));
        let spares = spares.take((n + SPARES).saturating_sub(present)).collect();
        StripeHolders { own, spares }
    }
}
