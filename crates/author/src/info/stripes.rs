//! Which peer has which fragment of a content's stripes.
//!
//! The walk asks the holders (`Walker::survey_stripe`). Their answers are claims: a MAC under a fresh key, which only bytes
//! could check, and there is no second holder to compare it with. `Author::check` reads the bytes.

use std::time::Duration;

use crypto::{PeerId, RecordId};
use document::Kind;
use env::calls::CallError;
use futures::StreamExt;
use placement::Profile;
use walk::{BUSY_WAIT_MAX, FragmentAt, FragmentState, StripeShape};

use crate::author::Author;
use crate::error::AuthorError;
use crate::get::stripes::{Header, header};
use crate::types::{Fragment, Holder};

/// Stripes whose fragments are asked for at once.
const STRIPES_ASKED: usize = 4;
/// How often a stripe is asked for again where a holder is busy: many stripes are many questions, and limits count each.
const BUSY_TRIES_MAX: usize = 4;

/// What is known of a content's stripes.
pub(super) struct Surveyed {
    /// That of the first one; all of a content have the same, as this program puts it.
    pub(super) profile: Option<Profile>,
    pub(super) fragments: Vec<Fragment>,
}

impl Author {
    /// The fragments of these stripes, each with its number, and who says that it holds them.
    pub(super) async fn surveyed(
        &self,
        stripes: &[(RecordId, u32)],
        k: u32,
    ) -> Result<Surveyed, AuthorError> {
        let mut surveys = futures::stream::iter(stripes)
            .map(|&(id, number)| async move {
                let found = header(self.env(), self.walker(), id, number, k).await;
                let header = found.ok_or(AuthorError::Stopped)??;
                let fragments = self.fragments(&header, &[]).await;
                Ok::<_, AuthorError>((header.stripe.n(), fragments))
            })
            .buffered(STRIPES_ASKED);
        let mut surveyed = Surveyed { profile: None, fragments: Vec::new() };
        while let Some(survey) = surveys.next().await {
            let (n, fragments) = survey?;
            surveyed.profile = surveyed.profile.or(Some(Profile::Stripe { k, n }));
            surveyed.fragments.extend(fragments);
        }
        Ok(surveyed)
    }

    /// The fragments of one stripe, in order, by what all say but these.
    pub(crate) async fn fragments(&self, header: &Header, without: &[PeerId]) -> Vec<Fragment> {
        let Header { id, number, stripe, .. } = header;
        let rows = self.survey(&StripeShape::new(*id, stripe), without).await;
        let k = stripe.k();
        let fragments = stripe.fragments().iter().zip(0..).map(|(&id, index)| {
            let is_page = index < k;
            let told = rows.iter().filter(|row| row.index == index as usize);
            Fragment {
                id,
                kind: if is_page { Kind::Page } else { Kind::Parity },
                index: is_page.then(|| number.saturating_mul(k).saturating_add(index)),
                stripe: Some(*number),
                number: Some(index),
                holders: told.filter_map(|row| self.holder(row)).collect(),
            }
        });
        fragments.collect()
    }

    /// Asks the holders of a stripe; those that are busy once more, a few times.
    async fn survey(&self, shape: &StripeShape, without: &[PeerId]) -> Vec<FragmentAt> {
        let mut rows = self.walker().survey_stripe(shape, &[], without).await;
        for _ in 0..BUSY_TRIES_MAX {
            let busy = rows.iter().filter_map(|row| match &row.state {
                FragmentState::Unreachable(CallError::Busy { retry_after }) => Some(*retry_after),
                _ => None,
            });
            let Some(wait): Option<Duration> = busy.max() else { break };
            self.env().clock.sleep(wait.min(BUSY_WAIT_MAX)).await;
            rows = self.walker().survey_stripe(shape, &[], without).await;
        }
        rows
    }

    /// A peer that says it holds a fragment.
    pub(crate) fn claimed(&self, peer: &PeerId) -> Holder {
        let organisation = self.walker().directory().organisation_of(peer);
        Holder { peer: *peer, organisation, reachable: true, held: true }
    }

    fn holder(&self, row: &FragmentAt) -> Option<Holder> {
        let peer = row.holder?;
        Some(Holder {
            peer,
            organisation: self.walker().directory().organisation_of(&peer),
            reachable: !matches!(row.state, FragmentState::Unreachable(_)),
            held: matches!(row.state, FragmentState::Proven | FragmentState::Claimed),
        })
    }
}
