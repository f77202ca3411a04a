//! Which fragments of a stripe are where: asked of the holders, who prove what they have by a MAC and send no bytes.
//!
//! Each peer that may have a fragment is asked for all of them in one call, so that a fragment is found wherever it lies. A MAC proves
//! something only to who has the bytes: of the fragments that the asker has (k of them, and with the code all) it tells *proven* from *corrupt*, of
//! the others it is the peer's claim.

use std::collections::BTreeMap;

use crypto::PeerId;
use document::Record;
use env::calls::{CallError, VerifyRequest, VerifyResponse};
use futures::StreamExt;
use placement::SPARES;

use super::{FragmentAt, FragmentState, StripeShape};
use crate::candidates::ASKED_MAX;
use crate::core::{Core, Wanted, limit};
use crate::health::Health;
use crate::join::PARALLEL_MAX;
use crate::latency::Size;
use crate::walker::Walker;

/// What one peer says of each fragment, by the fragment's number.
type Says = Result<BTreeMap<usize, FragmentState>, CallError>;

impl Walker {
    /// Asks the holders of a stripe which of its fragments they have: one row a fragment, in their order.
    ///
    /// `known` are fragments at hand, whose holders' MACs are checked. A fragment that several have is told once: of the
    /// one that proves it, else of whose it is, else of the first in rank that claims it. Peers of `without` are not asked: they
    /// claimed what they did not have. Where fewer than k are found, one that is missing counts as unreachable for each
    /// other peer asked that does not answer: it may be there. Where a librarian walks for this program nobody is asked and
    /// nothing is told: proof is between holder and asker.
    pub async fn survey_stripe(
        &self,
        shape: &StripeShape,
        known: &[(usize, Record)],
        without: &[PeerId],
    ) -> Vec<FragmentAt> {
        if self.is_thin() {
            return Vec::new();
        }
        let (near, own) = self.near(shape);
        let near: Vec<PeerId> = near.into_iter().filter(|peer| !without.contains(peer)).collect();
        let n = shape.n();
        let mut said = self.asked_of(shape, known, &near).await;
        let found = |said: &[(PeerId, Says)]| (0..n).all(|index| best(said, index, None).is_some());
        if !found(&said) {
            let mut far = self.far(shape, &near);
            far.retain(|peer| !without.contains(peer));
            said.extend(self.asked_of(shape, known, &far).await);
        }
        let mut rows: Vec<_> =
            (0..n).map(|index| row(&said, index, own.get(index).copied())).collect();
        if (0..n).filter(|index| best(&said, *index, None).is_some()).count() < shape.k {
            suspect(&said, &mut rows);
        }
        rows
    }

    /// Who claims each of a stripe's fragments, by their number: whose it is first, then by rank. All that may have any are asked,
    /// since one claim hides no other here; [`Walker::survey_stripe`] asks fewer.
    pub async fn claimants_of_stripe(&self, shape: &StripeShape) -> Vec<Vec<PeerId>> {
        if self.is_thin() {
            return vec![Vec::new(); shape.n()];
        }
        let (mut asked, own) = self.near(shape);
        asked.extend(self.far(shape, &asked));
        let said = self.asked_of(shape, &[], &asked).await;
        let claimants = (0..shape.n()).map(|index| {
            let claims = |says: &Says| {
                let state = says.as_ref().ok().and_then(|states| states.get(&index));
                matches!(state, Some(FragmentState::Proven | FragmentState::Claimed))
            };
            let all = said.iter().filter(|(_, says)| claims(says)).map(|(peer, _)| *peer);
            let mut all: Vec<PeerId> = all.collect();
            let owner = own.get(index);
            all.sort_by_key(|peer| Some(peer) != owner);
            all
        });
        claimants.collect()
    }

    /// Whose the fragments are by now and by before, and who comes next in rank; and of the first the owners alone, by number.
    fn near(&self, shape: &StripeShape) -> (Vec<PeerId>, Vec<PeerId>) {
        let (view, before) = self.core.directory.views();
        let (place, n) = (shape.place(), shape.n());
        let away = |peer: &PeerId| self.core.directory.health(peer) == Health::Away;
        let holders = view.stripe_holders(&place, n, away);
        let own = holders.own.clone();
        let mut near: Vec<PeerId> = holders.own.into_iter().chain(holders.spares).collect();
        let before = before.map(|before| before.stripe_holders(&place, n, away).own);
        let old = before.into_iter().flatten().filter(|peer| !own.contains(peer));
        let old: Vec<PeerId> = old.filter(|peer| !near.contains(peer)).collect();
        near.extend(old);
        (near, own)
    }

    /// Those further down in rank.
    fn far(&self, shape: &StripeShape, near: &[PeerId]) -> Vec<PeerId> {
        let view = self.core.directory.view();
        let rank = view.holders(&shape.place(), ASKED_MAX.max(shape.n() + SPARES));
        rank.into_iter().filter(|peer| !near.contains(peer)).collect()
    }

    async fn asked_of(
        &self,
        shape: &StripeShape,
        known: &[(usize, Record)],
        peers: &[PeerId],
    ) -> Vec<(PeerId, Says)> {
        let asked = peers.iter().map(|peer| async move {
            let says = match self.core.local(peer).is_some() {
                true => Ok(self.core.has(peer, shape).await),
                false => self.core.says(peer, shape, known).await,
            };
            (*peer, says)
        });
        futures::stream::iter(asked).buffered(PARALLEL_MAX).collect().await
    }
}

/// Who has a fragment: whoever proves it, else its owner if that one claims it, else the first who does.
fn best(said: &[(PeerId, Says)], index: usize, owner: Option<PeerId>) -> Option<FragmentAt> {
    let states =
        said.iter().filter_map(|(peer, says)| Some((*peer, says.as_ref().ok()?.get(&index)?)));
    let of = |wanted: FragmentState, by: Option<PeerId>| {
        let is_wanted = |(peer, state): &(PeerId, &FragmentState)| {
            **state == wanted && by.is_none_or(|by| by == *peer)
        };
        let found = states.clone().find(is_wanted);
        found.map(|(peer, _)| FragmentAt { index, holder: Some(peer), state: wanted.clone() })
    };
    let owned = || owner.and_then(|owner| of(FragmentState::Claimed, Some(owner)));
    of(FragmentState::Proven, None).or_else(owned).or_else(|| of(FragmentState::Claimed, None))
}

/// What is told of a fragment: who has it, else what the peer says that it belongs to, else who lies about it.
fn row(said: &[(PeerId, Says)], index: usize, owner: Option<PeerId>) -> FragmentAt {
    if let Some(found) = best(said, index, owner) {
        return found;
    }
    let state = |peer: &PeerId| {
        said.iter().find(|(of, _)| of == peer).map(|(_, says)| match says {
            Ok(states) => states.get(&index).cloned().unwrap_or(FragmentState::Missing),
            Err(error) => FragmentState::Unreachable(error.clone()),
        })
    };
    let liar = said.iter().map(|(peer, _)| *peer);
    let liar = liar.into_iter().find(|peer| state(peer) == Some(FragmentState::Corrupt));
    let holder = liar.or(owner);
    let state = holder.as_ref().and_then(state).unwrap_or(FragmentState::Missing);
    FragmentAt { index, holder, state }
}

/// Too few are found to read the stripe: what is missing may be at peers that need not have it and do not answer, one at each.
fn suspect(said: &[(PeerId, Says)], rows: &mut [FragmentAt]) {
    let named: Vec<PeerId> = rows.iter().filter_map(|row| row.holder).collect();
    let mut silent = said.iter().filter(|(peer, _)| !named.contains(peer)).filter_map(
        |(peer, says)| match says {
            Err(error) => Some((*peer, error.clone())),
            Ok(_) => None,
        },
    );
    for row in rows.iter_mut().filter(|row| row.state == FragmentState::Missing) {
        let Some((peer, error)) = silent.next() else { return };
        (row.holder, row.state) = (Some(peer), FragmentState::Unreachable(error));
    }
}

impl Core {
    /// What this program's own store has of a stripe.
    async fn has(&self, own: &PeerId, shape: &StripeShape) -> BTreeMap<usize, FragmentState> {
        let mut states = BTreeMap::new();
        let Some(store) = self.local(own) else { return states };
        for index in 0..shape.n() {
            let wanted = Wanted::fragment(shape, index);
            let state = match store.find(&wanted.request.id).await {
                Ok(Some(record)) => {
                    let record = Record { place: wanted.request.place, ..record };
                    match self.prove(own, &wanted, record).await {
                        Ok(_) => FragmentState::Proven,
                        Err(_) => FragmentState::Corrupt,
                    }
                }
                Ok(None) | Err(CallError::NotFound) => continue,
                Err(CallError::Corrupt { .. }) => FragmentState::Corrupt,
                Err(error) => FragmentState::Unreachable(error),
            };
            states.insert(index, state);
        }
        states
    }

    /// What one peer says that it has of a stripe.
    async fn says(&self, peer: &PeerId, shape: &StripeShape, known: &[(usize, Record)]) -> Says {
        let to = self.endpoint(peer)?;
        let (mac_key, place) = (self.env.random(), shape.place());
        let requests: Vec<VerifyRequest> =
            shape.fragments.iter().map(|id| VerifyRequest { id: *id, place, mac_key }).collect();
        // A MAC reads a fragment from the disk and hashes it, which counts like moving it.
        let limit = limit(shape.fragment_bytes);
        let since = self.env.clock.elapsed();
        let call = self.calls.verify_batch(&to, requests, limit);
        let answers = self.bounded(&to, limit, call).await.and_then(|answers| {
            let reason = "it did not answer for every record of a batch".to_owned();
            let whole = answers.len() == shape.n();
            whole.then_some(answers).ok_or(CallError::Corrupt { address: to.address, reason })
        });
        self.note(peer, Size::Small, since, &answers);
        let mut states = BTreeMap::new();
        for (index, answer) in answers?.into_iter().enumerate() {
            let state = match answer {
                Ok(VerifyResponse::Mac(mac)) => self.judged(known, index, mac_key, mac).await,
                Ok(VerifyResponse::Closest(_)) | Err(CallError::NotFound) => continue,
                Err(CallError::Corrupt { .. }) => FragmentState::Corrupt,
                Err(error) => FragmentState::Unreachable(error),
            };
            states.insert(index, state);
        }
        Ok(states)
    }

    async fn judged(
        &self,
        known: &[(usize, Record)],
        index: usize,
        mac_key: [u8; 32],
        mac: [u8; 32],
    ) -> FragmentState {
        let Some((_, record)) = known.iter().find(|(of, _)| *of == index) else {
            return FragmentState::Claimed;
        };
        let (suite, bytes) = (self.directory.genesis().suite, record.bytes.clone());
        match self.env.cpu(move || suite.verify_mac(&mac_key, &bytes, &mac)).await {
            true => FragmentState::Proven,
            false => FragmentState::Corrupt,
        }
    }
}
