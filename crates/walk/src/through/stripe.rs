//! A thin client's stripes: fragment by fragment from one librarian, which finds each where it lies.
//!
//! Wanted pages first; where one cannot be had, the other fragments in order until there are k. Stripes are not stored this
//! way: a librarian stores records for a thin client, which therefore puts by copies.

use std::ops::Range;

use crypto::Class;
use env::calls::CallError;
use futures::StreamExt;

use super::Through;
use crate::core::{Core, Wanted};
use crate::error::{WalkError, class_of_lack};
use crate::stripe::{Fetched, FragmentAt, FragmentState, StripeShape};

/// Fragments asked of a librarian at once for one stripe: 16 MiB at most on their way.
const AT_ONCE: usize = 8;

impl Core {
    /// See [`crate::Walker::fetch_stripe`].
    pub(crate) async fn fetch_stripe_through(
        &self,
        through: &Through,
        shape: &StripeShape,
        wanted: Range<usize>,
    ) -> Result<Fetched, WalkError> {
        let mut fetched = Fetched { fragments: Vec::new(), failed: Vec::new() };
        let mut refused =
            self.gather(through, shape, wanted.clone().collect(), &mut fetched).await?;
        let mut others = (0..shape.n()).filter(|index| !wanted.contains(index));
        while fetched.is_degraded() && fetched.fragments.len() < shape.k {
            let missing = shape.k - fetched.fragments.len();
            let next: Vec<usize> = others.by_ref().take(missing).collect();
            if next.is_empty() {
                return Err(verdict(shape, &fetched, refused));
            }
            let also = self.gather(through, shape, next, &mut fetched).await?;
            refused = refused.or(also);
        }
        fetched.fragments.sort_unstable_by_key(|(index, _)| *index);
        Ok(fetched)
    }

    /// Gets these fragments, or notes why one could not be had; answers what was said of one that was refused.
    ///
    /// A refusal (*busy*, *denied*) may be that of the fragment's holder, which the librarian hands on, so it says nothing of the
    /// others.
    ///
    /// # Errors
    /// [`WalkError`] where no librarian is to be had: asking for other fragments is no use.
    async fn gather(
        &self,
        through: &Through,
        shape: &StripeShape,
        indices: Vec<usize>,
        fetched: &mut Fetched,
    ) -> Result<Option<WalkError>, WalkError> {
        let mut refused = None;
        let one = |index: usize| async move {
            (index, self.find_through(through, Wanted::fragment(shape, index)).await)
        };
        let mut answers = futures::stream::iter(indices).map(one).buffer_unordered(AT_ONCE);
        while let Some((index, answer)) = answers.next().await {
            let state = match answer {
                Ok(found) => {
                    fetched.fragments.push((index, found.proven.record));
                    continue;
                }
                Err(WalkError::NotFound { .. }) => FragmentState::Missing,
                Err(WalkError::Corrupt { .. }) => FragmentState::Corrupt,
                Err(WalkError::Unavailable { errors, .. }) => {
                    let error = errors.into_iter().next().map(|(_, error)| error);
                    FragmentState::Unreachable(error.unwrap_or(CallError::NotFound))
                }
                Err(error @ WalkError::NoPeers { .. }) => return Err(error),
                Err(error) => {
                    let state = FragmentState::Unreachable(said(&error));
                    refused.get_or_insert(error);
                    state
                }
            };
            fetched.failed.push(FragmentAt { index, holder: None, state });
        }
        Ok(refused)
    }
}

/// A refusal as what a fragment's holder said.
fn said(error: &WalkError) -> CallError {
    match error {
        WalkError::Busy { retry_after } => CallError::Busy { retry_after: *retry_after },
        WalkError::Denied { reason } => CallError::Denied { reason: reason.clone() },
        other => CallError::Invalid { reason: other.to_string() },
    }
}

fn verdict(shape: &StripeShape, fetched: &Fetched, refused: Option<WalkError>) -> WalkError {
    // With nothing to be had a refusal tells more than a count.
    if let Some(refused) = refused.filter(|_| fetched.fragments.is_empty()) {
        return refused;
    }
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let missing = |at: &FragmentAt| at.state == FragmentState::Missing;
    if fetched.fragments.is_empty() && fetched.failed.iter().all(missing) {
        return WalkError::NotFound { id: shape.id, asked: 1 };
    }
    let (id, found, needed) = (shape.id, count(fetched.fragments.len()), count(shape.k));
    let class = class_of_lack(fetched.failed.iter().map(|at| class_of(&at.state)));
    WalkError::TooFewFragments { id, found, needed, class, errors: Vec::new() }
}

/// What a fragment's state says of those that could not be had. A librarian says *not found* of a fragment where all that may be asked
/// do not have it.
const fn class_of(state: &FragmentState) -> Class {
    match state {
        FragmentState::Missing => Class::NotFound,
        FragmentState::Corrupt => Class::Corrupt,
        _ => Class::Unavailable,
    }
}
