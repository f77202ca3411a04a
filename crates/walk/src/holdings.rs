//! Who holds a record, as each of its holders answers now: for people who want to know.

use crypto::{OrgId, PeerId, Place, RecordId};
use document::Record;
use env::calls::{CallError, FindRequest, VerifyRequest, VerifyResponse};
use futures::StreamExt;
use placement::Redundancy;

use crate::candidates::{ASKED_MAX, NEAR_EXTRA};
use crate::core::{Answer, Core, LAST_RESORT_LIMIT, Wanted, limit};
use crate::health::Health;
use crate::join::PARALLEL_MAX;
use crate::latency::Size;
use crate::line::Load;
use crate::walker::Walker;

/// What a peer says of its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// It has it, and proved it.
    Yes,
    /// It says it does not.
    No,
    /// It gave no answer.
    Unreachable(CallError),
    /// It claims to have it and cannot prove it.
    Corrupt,
}

/// A peer that should, or may, hold a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The peer.
    pub peer: PeerId,
    /// Its organisation.
    pub organisation: Option<OrgId>,
    /// Its place in the rank, from 0; those below N should hold the record.
    pub rank: usize,
    /// What it says.
    pub held: Held,
}

impl Walker {
    /// Asks the first N + [`NEAR_EXTRA`] peers in rank that answer whether they hold a record, and those before them that do not,
    /// in the order of their rank: what a peer held that is gone, the next in rank holds. At most [`ASKED_MAX`] are asked.
    ///
    /// With the record at hand each proves its copy by a MAC under a fresh key, which moves no bytes; without it each
    /// sends its copy. Where librarians walk for this program nobody is asked: proof is between holder and asker.
    pub async fn holdings(
        &self,
        id: RecordId,
        place: Place,
        redundancy: Redundancy,
        record: Option<&Record>,
    ) -> Vec<Holding> {
        if self.is_thin() {
            return Vec::new();
        }
        let view = self.core.directory.view();
        let wanted = redundancy.copies as usize + NEAR_EXTRA;
        let mut rank = view.holders(&place, ASKED_MAX).into_iter().enumerate();
        let mut all: Vec<Holding> = Vec::with_capacity(wanted);
        loop {
            let silent = |one: &&Holding| matches!(one.held, Held::Unreachable(_));
            let answered = all.len() - all.iter().filter(silent).count();
            let next: Vec<(usize, PeerId)> =
                rank.by_ref().take(wanted.saturating_sub(answered)).collect();
            if next.is_empty() {
                return all;
            }
            all.extend(self.held_by(next, FindRequest { id, place }, record).await);
        }
    }

    async fn held_by(
        &self,
        peers: Vec<(usize, PeerId)>,
        request: FindRequest,
        record: Option<&Record>,
    ) -> Vec<Holding> {
        let asked = peers.into_iter().map(|(rank, peer)| async move {
            let held = match record {
                Some(record) => self.core.verify_at(peer, request, record).await,
                None => self.core.held_at(peer, request).await,
            };
            let organisation = self.core.directory.organisation_of(&peer);
            Holding { peer, organisation, rank, held }
        });
        futures::stream::iter(asked).buffered(PARALLEL_MAX).collect().await
    }
}

impl Core {
    /// Asks one peer for its copy.
    async fn held_at(&self, peer: PeerId, request: FindRequest) -> Held {
        let wanted = Wanted::new(None, request);
        if let Some(own) = self.local(&peer) {
            let copy = match own.find(&request.id).await {
                Ok(Some(record)) => self.prove(&peer, &wanted, record).await.map(Some),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            return match copy {
                Ok(Some(_)) => Held::Yes,
                Ok(None) | Err(CallError::NotFound) => Held::No,
                Err(CallError::Corrupt { .. }) => Held::Corrupt,
                Err(error) => Held::Unreachable(error),
            };
        }
        let turn = self.line.turn(Load::taken(document::DOCUMENT_BYTES_MAX)).await;
        let answer = self.find_at(peer, wanted, turn.limit()).await;
        self.moved(&turn, &peer, &answer);
        match answer {
            Answer::Found(_) => Held::Yes,
            Answer::NotHere => Held::No,
            Answer::Failed(CallError::Corrupt { .. }) => Held::Corrupt,
            Answer::Failed(error) => Held::Unreachable(error),
        }
    }

    /// Asks one peer to prove that it has the same bytes.
    async fn verify_at(&self, peer: PeerId, request: FindRequest, record: &Record) -> Held {
        if self.local(&peer).is_some() {
            return self.held_at(peer, request).await;
        }
        let to = match self.endpoint(&peer) {
            Ok(to) => to,
            Err(error) => return Held::Unreachable(error),
        };
        let mac_key = self.env.random();
        let verify = VerifyRequest { id: request.id, place: request.place, mac_key };
        // One that did not answer a moment ago is not waited for as long at each record.
        let is_well = self.directory.health(&peer) == Health::Healthy;
        let limit = if is_well { limit(0) } else { LAST_RESORT_LIMIT };
        let since = self.env.clock.elapsed();
        let answer = self.bounded(&to, limit, self.calls.verify(&to, verify, limit)).await;
        let suite = self.directory.genesis().suite;
        let bytes = record.bytes.clone();
        let answer = match answer {
            Ok(VerifyResponse::Mac(mac)) => {
                let holds = self.env.cpu(move || suite.verify_mac(&mac_key, &bytes, &mac)).await;
                let reason = "its MAC is not that of the record".to_owned();
                let address = to.address.clone();
                holds.then_some(Held::Yes).ok_or(CallError::Corrupt { address, reason })
            }
            Ok(VerifyResponse::Closest(_)) | Err(CallError::NotFound) => Ok(Held::No),
            Err(error) => Err(error),
        };
        self.note(&peer, Size::Small, since, &answer);
        match answer {
            Ok(held) => held,
            Err(CallError::Corrupt { .. }) => Held::Corrupt,
            Err(error) => Held::Unreachable(error),
        }
    }
}
