//! Stripes at their holders: n fragments of one segment, one peer each, any k of which bring back the rest.
//!
//! ```text
//!   rank of the stripe's id:   0   1   2  ...  n-1 |  n  n+1  n+2  n+3 | ...
//!   fragment                   0   1   2  ...  n-1 |  spares           |
//! ```
//! Where fragments belong is `placement`'s word ([`placement::StripeHolders`]); here they are moved. A writer starts all n
//! at once (fewer in a crowd; each call begins when its turn on the line comes) and lets a spare have what a peer is slow or unable to take. A reader asks for pages where they belong, makes do with any k
//! fragments where that fails, and asks who has what only where too few lie where they belong: after peers joined
//! or left, when the rank is another one.
//!
//! Each fragment travels with the stripe's header, which is a record of its own at the same peer: a holder takes only
//! what the header lists, and whoever finds a fragment finds with it what repairs the stripe.

mod asking;
mod fetching;
mod storing;
mod survey;

use std::ops::Range;
use std::sync::Arc;

use crypto::lease::Shown;
use crypto::{PeerId, Place, RecordId};
use document::{Kind, Record, Stripe};
use env::calls::CallError;

use crate::background::{Rest, Unfinished};
use crate::error::WalkError;
use crate::walker::Walker;
use fetching::Fetching;
pub(crate) use storing::StripeStoring;

/// A stripe to be stored.
#[derive(Clone, Debug)]
pub struct StripeRecords {
    /// The header's record. Its id is the stripe's, and the place of all fragments.
    pub header: Record,
    /// The fragments in order: k pages, then the parity.
    pub fragments: Vec<Record>,
    /// Fragments that must be durable before a writer is told so (s), at most as many as there are.
    pub threshold: u32,
}

/// Told the bytes of each fragment that is durable, when nothing of them is held here any more.
pub type OnDurable = Box<dyn FnMut(usize) + Send + Sync>;

/// A stripe whose success threshold is durable.
#[derive(Debug)]
pub struct StoredStripe {
    /// Fragments that are durable: at least s.
    pub acked: u32,
    /// Fragments wanted: n.
    pub wanted: u32,
    /// Who has one, in the order in which they took it.
    pub holders: Vec<PeerId>,
    /// The other fragments, on their way.
    pub rest: Rest,
}

/// What a reader knows of a stripe from its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeShape {
    /// The stripe.
    pub id: RecordId,
    /// How many fragments are enough, from 1 to as many as there are.
    pub k: usize,
    /// The ids of the fragments in order; those before k are pages, the others parity.
    pub fragments: Arc<[RecordId]>,
    /// The bytes of the longest page, about which every fragment has: it says when one is late.
    pub fragment_bytes: usize,
}

impl StripeShape {
    /// The shape of the stripe with this header.
    pub fn new(id: RecordId, stripe: &Stripe) -> Self {
        let (k, fragments) = (stripe.lengths().len(), stripe.fragments().into());
        Self { id, k, fragments, fragment_bytes: stripe.fragment_bytes() }
    }

    /// How many fragments there are (n).
    pub fn n(&self) -> usize {
        self.fragments.len()
    }

    /// Where the fragments live.
    pub fn place(&self) -> Place {
        Place::from(self.id)
    }

    /// What a fragment is.
    pub fn kind(&self, index: usize) -> Kind {
        if index < self.k { Kind::Page } else { Kind::Parity }
    }
}

/// What became of a fragment at a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FragmentState {
    /// It is there, proven by its bytes or by a MAC of bytes that the asker has.
    Proven,
    /// A peer answers for it with a MAC that nobody here can check.
    Claimed,
    /// It is not there.
    Missing,
    /// What came does not prove itself.
    Corrupt,
    /// No answer that counts.
    Unreachable(CallError),
}

/// A fragment, and what became of it at one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentAt {
    /// Its number, from 0 to n-1.
    pub index: usize,
    /// The peer; of a fragment that nobody has the one it belongs to, where there are that many peers. `None` also where a librarian
    /// walks for this program and does not say.
    pub holder: Option<PeerId>,
    /// What became of it there.
    pub state: FragmentState,
}

/// Fragments of a stripe, each proven.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The fragments with their numbers, ascending: all that were wanted, or k of them.
    pub fragments: Vec<(usize, Record)>,
    /// What was asked for and not had: at the peer it belongs to, or a lie of anybody. At most a few for each fragment.
    pub failed: Vec<FragmentAt>,
}

impl Fetched {
    /// Whether a holder failed, lied, or no longer has its fragment: the stripe needs a look.
    pub fn is_degraded(&self) -> bool {
        !self.failed.is_empty()
    }
}

impl Walker {
    /// Stores a stripe: each fragment at a holder of its own, the header with it. Answers when `threshold` fragments are
    /// durable; the others go on behind.
    ///
    /// Dropping the future before the answer stops the fragments that are on their way; those already stored stay.
    ///
    /// # Errors
    /// [`WalkError`] where fewer than `threshold` fragments became durable; [`WalkError::NoPeers`] where nobody is known;
    /// [`WalkError::StripeThrough`] where a librarian walks for this program.
    pub async fn store_stripe(&self, stripe: StripeRecords) -> Result<StoredStripe, WalkError> {
        self.store_stripe_leased(stripe, Vec::new(), Box::new(|_| ())).await
    }

    /// As [`Walker::store_stripe`], with the leases that it is paid by: each with the leaf of its place alone. Also behind
    /// the answer `durable` is told what is held no more, so that its memory may serve what comes next.
    ///
    /// # Errors
    /// As [`Walker::store_stripe`].
    pub async fn store_stripe_leased(
        &self,
        stripe: StripeRecords,
        leases: Vec<Shown>,
        durable: OnDurable,
    ) -> Result<StoredStripe, WalkError> {
        if self.is_thin() {
            return Err(WalkError::StripeThrough);
        }
        let view = self.core.directory.view();
        if view.is_empty() {
            return Err(WalkError::NoPeers { tried: Vec::new() });
        }
        let mut storing = StripeStoring::new(self.core.clone(), &view, stripe, leases, durable);
        storing.acknowledged().await?;
        let wanted = storing.wanted();
        let rest = self.background.finish(Unfinished::Stripe(Box::new(storing))).await;
        let reached = rest.reached();
        Ok(StoredStripe { acked: reached.acked, wanted, holders: reached.holders, rest })
    }

    /// Fetches the pages `wanted` of a stripe, or any k of its fragments where those cannot be had as they are.
    ///
    /// Cancel safe: nothing is kept of a dropped call.
    ///
    /// # Errors
    /// [`WalkError`] where fewer than k fragments could be had.
    ///
    /// # Panics
    /// Where `wanted` is not within 0..k.
    pub async fn fetch_stripe(
        &self,
        shape: &StripeShape,
        wanted: Range<usize>,
    ) -> Result<Fetched, WalkError> {
        assert!(wanted.end <= shape.k && shape.k <= shape.n(), "pages are below k");
        match &self.core.through {
            Some(through) => self.core.fetch_stripe_through(through, shape, wanted).await,
            None => Fetching::new(self.core.clone(), shape.clone(), wanted).run().await,
        }
    }
}
