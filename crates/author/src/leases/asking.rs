//! What holders say of who pays for places: asked, and of what they say that kept which proves itself.
//!
//! A holder may tell leases of other contents, or make some up. One counts where its signatures and its pass do, it runs, and a
//! leaf of it for the place that was asked about leads to its root; one that this user signed itself counts without its pass,
//! which may have been its organisation's that has left since.
//!
//! Limits: [`PLACE_LEASES_MAX`] leases of a place are looked at, each with the first leaf for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crypto::lease::{Checked, Shown, kept_id};
use crypto::{Listing, PeerId, Place, PublicKey, RecordId};
use env::calls::CallError;
use env::calls::leases::{LeaseAnswer, LeaseRequest, PLACE_LEASES_MAX, PLACES_MAX, PlaceLeases};
use futures::StreamExt;
use placement::SPARES;
use walk::{Health, LAST_RESORT_LIMIT, NEAR_EXTRA};

use super::{LIMIT, PEERS_ASKED};
use crate::author::Author;
use crate::error::AuthorError;

/// A place of a content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    /// Where.
    pub(super) place: Place,
    /// Bytes there, where they are known.
    pub(super) bytes: Option<u64>,
    /// Of a stripe, how many fragments bring it back (k).
    pub(super) pages: Option<u32>,
}

impl Spot {
    /// A record that is kept as copies.
    pub(super) fn copy(place: Place, bytes: Option<u64>) -> Self {
        Self { place, bytes, pages: None }
    }

    /// Whether it lives on where so many of so many holders keep it.
    pub(super) fn is_kept_by(&self, takers: u32, holders: u32) -> bool {
        match self.pages {
            Some(pages) => takers >= pages.max(1),
            None => takers > 0 && takers.saturating_mul(2) >= holders,
        }
    }
}

/// A lease that counts, of a place.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) checked: Checked,
    /// Whether this user signed it.
    pub(super) own: bool,
    /// What its leaf says.
    pub(super) bytes: u64,
}

/// What a holder says of a place, as far as it counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) held: bool,
    pub(super) unleased: bool,
    pub(super) leases: Vec<Lease>,
}

impl Said {
    /// The leases that this user signed.
    pub(super) fn own(&self) -> impl Iterator<Item = &Checked> {
        self.leases.iter().filter(|lease| lease.own).map(|lease| &lease.checked)
    }
}

/// A peer, the numbers of the places that it was asked about, and what it says of each.
type Asked<T> = (PeerId, Vec<usize>, Result<Vec<T>, CallError>);

/// Places that are asked about together, and what their holders say.
pub(super) struct Part {
    /// The places.
    pub(super) spots: Vec<Spot>,
    /// Peers that may hold some of them, with the numbers of those, and their answers.
    asked: Vec<Asked<Said>>,
}

impl Part {
    /// What reachable holders say of each place: its number, who says it, and what.
    pub(super) fn said(&self) -> impl Iterator<Item = (usize, PeerId, &Said)> {
        self.asked.iter().flat_map(|(peer, spots, answers)| {
            let answers = answers.as_deref().unwrap_or_default();
            spots.iter().copied().zip(answers).map(|(spot, said)| (spot, *peer, said))
        })
    }

    /// Who did not answer.
    pub(super) fn unreached(&self) -> impl Iterator<Item = PeerId> {
        self.asked.iter().filter(|(.., answers)| answers.is_err()).map(|(peer, ..)| *peer)
    }

    /// The numbers of the places that these peers may hold.
    pub(super) fn spots_of(&self, peers: &BTreeSet<PeerId>) -> BTreeSet<usize> {
        let theirs = self.asked.iter().filter(|(peer, ..)| peers.contains(peer));
        theirs.flat_map(|(_, spots, _)| spots).copied().collect()
    }
}

/// Keeps of what holders say what proves itself. Each lease is checked once, however many holders tell it.
struct Checker<L> {
    roster: L,
    own: Option<PublicKey>,
    /// Unix seconds.
    now: u64,
    seen: HashMap<[RecordId; 2], Option<(Checked, bool)>>,
}

impl<L: Listing> Checker<L> {
    fn lease(&mut self, shown: &Shown) -> Option<(Checked, bool)> {
        let key = [kept_id(&shown.lease), kept_id(&shown.pass)];
        if let Some(seen) = self.seen.get(&key) {
            return seen.clone();
        }
        let own = self
            .own
            .as_ref()
            .and_then(|own| Checked::own(&shown.lease, &shown.pass, own, &self.roster).ok());
        let found = match own {
            Some(own) => Some((own, true)),
            None => Checked::verify(&shown.lease, &shown.pass, &self.roster)
                .ok()
                .map(|checked| (checked, false)),
        };
        let found = found.filter(|(checked, _)| checked.runs(self.now).is_ok());
        self.seen.insert(key, found.clone());
        found
    }

    fn said(&mut self, place: &Place, said: &PlaceLeases) -> Said {
        let mut leases: Vec<Lease> = Vec::new();
        for shown in said.leases.iter().take(PLACE_LEASES_MAX) {
            let Some(leaf) = shown.leaves.iter().find(|leaf| leaf.leaf.place == *place) else {
                continue;
            };
            let Some((checked, own)) = self.lease(shown) else { continue };
            let known = leases.iter().any(|lease| lease.checked.id == checked.id);
            if let (false, Ok(leaf)) = (known, checked.leaf(leaf)) {
                leases.push(Lease { checked, own, bytes: leaf.bytes });
            }
        }
        if !said.held {
            leases.clear();
        }
        Said { held: said.held, unleased: said.held && said.unleased, leases }
    }
}

impl Author {
    /// Asks whoever may hold records at these places which leases there are.
    pub(super) async fn ask_part(&self, spots: Vec<Spot>) -> Result<Part, AuthorError> {
        if self.walker().is_thin() {
            return Err(AuthorError::ThinSurvey);
        }
        let view = self.walker().directory().view();
        let most = crypto::genesis::FRAGMENTS_MAX as usize + SPARES + NEAR_EXTRA;
        let mut by_peer: BTreeMap<PeerId, Vec<usize>> = BTreeMap::new();
        for (number, spot) in spots.iter().enumerate() {
            for peer in view.holders(&spot.place, most) {
                by_peer.entry(peer).or_default().push(number);
            }
        }
        let all = &spots;
        let asks = by_peer.into_iter().map(|(peer, numbers)| async move {
            let places: Vec<Place> = numbers.iter().map(|number| all[*number].place).collect();
            let answers = self.ask_peer(&peer, &places).await;
            (peer, numbers, answers)
        });
        let asks = futures::stream::iter(asks).buffer_unordered(PEERS_ASKED);
        let answered: Vec<Asked<PlaceLeases>> = asks.collect().await;
        let mut checker = Checker {
            roster: self.walker().directory().roster(),
            own: self.payer().map(|payer| payer.secret.public()),
            now: self.env().clock.unix_s(),
            seen: HashMap::new(),
        };
        // Some thousand signatures where a content is large.
        let places: Arc<[Place]> = spots.iter().map(|spot| spot.place).collect();
        let check = move || {
            let each = answered.into_iter().map(|(peer, numbers, answers)| {
                let answers = answers.map(|answers| {
                    let each = numbers.iter().zip(&answers);
                    each.map(|(number, said)| checker.said(&places[*number], said)).collect()
                });
                (peer, numbers, answers)
            });
            each.collect()
        };
        Ok(Part { spots, asked: self.cpu(check).await? })
    }

    async fn ask_peer(
        &self,
        peer: &PeerId,
        places: &[Place],
    ) -> Result<Vec<PlaceLeases>, CallError> {
        let mut answers = Vec::with_capacity(places.len());
        for some in places.chunks(PLACES_MAX) {
            match self.ask_leases(peer, LeaseRequest::Of(some.to_vec())).await? {
                LeaseAnswer::Of(said) if said.len() == some.len() => answers.extend(said),
                _ => return Err(CallError::NotFound),
            }
        }
        Ok(answers)
    }

    pub(super) async fn ask_leases(
        &self,
        peer: &PeerId,
        request: LeaseRequest,
    ) -> Result<LeaseAnswer, CallError> {
        let directory = self.walker().directory();
        let to = directory.endpoint(peer).ok_or(CallError::NotFound)?;
        // One that did not answer a question is not waited for as long at each of the next.
        let is_well = directory.health(peer) == Health::Healthy;
        let limit = if is_well { LIMIT } else { LAST_RESORT_LIMIT };
        let since = self.env().clock.elapsed();
        let call = self.walker().calls().lease(&to, request, limit);
        let answer = match self.env().within(limit, call).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::TimedOut { address: to.address, limit }),
        };
        match &answer {
            Ok(_) => directory.good(peer, self.env().clock.elapsed().saturating_sub(since)),
            Err(error) => directory.failed(peer, error),
        }
        answer
    }
}
