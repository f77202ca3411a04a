//! Leases of contents that are in the network: looked at, renewed, ended.
//!
//! ```text
//! places of the content --> asked of who may hold them: which leases are there? --+--> info
//!   (envelope, entry, lists,                                                      +--> a new lease with a later end, shown to each holder
//!    pages, stripes)                                                              +--> words that end this client's own, told to all of them
//! ```
//! A content's places are gone through in parts of [`TOGETHER`], so that one of any length takes the memory of one part, and each part
//! has a lease of its own.
//!
//! Limits: holders that are away are not asked. A lease is shown to who holds a record now; who was away and lacks it keeps the record as
//! long as its older lease says. A word that ends one reaches them by the other holders when they return.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crypto::lease::{self, Claim, Forget, Leaf, Shown};
use crypto::{PeerId, Place, RecordId};
use document::DOCUMENT_BYTES_MAX;
use env::calls::leases::{
    FORGETS_MAX, Forgotten, LeaseAnswer, LeaseRequest, PLACES_MAX, PlaceLeases,
};
use env::calls::{CallError, Credential};
use futures::StreamExt;
use placement::SPARES;
use walk::NEAR_EXTRA;

use crate::author::Author;
use crate::content::{At, Content, PageAt};
use crate::error::AuthorError;

/// Places that are renewed or ended together, under one lease.
const TOGETHER: usize = 256;
/// Peers asked at once.
const PEERS_ASKED: usize = 16;
/// The deadline of one question.
const LIMIT: Duration = Duration::from_secs(30);
/// What a holder keeps of a stripe or page at most, where no lease says less.
const PART_BYTES_MAX: u64 = DOCUMENT_BYTES_MAX as u64 + (64 << 10);

/// A lease of a content, as one of its holders keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Paid {
    /// Whether this user signed it.
    pub own: bool,
    /// Who pays.
    pub organisation: crypto::OrgId,
    /// When it ends, Unix seconds.
    pub until: u64,
}

/// What is known of the leases of a content's envelope and entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payment {
    /// The leases, each once.
    pub leases: Vec<Paid>,
    /// Whether a holder keeps a record of it without a lease.
    pub unleased: bool,
    /// Until when a record of it is paid for at least, Unix seconds; `None` where one has no lease at any holder.
    pub until: Option<u64>,
}

/// What a renewal reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// Until when, Unix seconds.
    pub until: u64,
    /// Places: records and stripes.
    pub places: u64,
    /// Of those, the ones that no holder took a lease for.
    pub untaken: u64,
    /// Records at holders whose lease was taken.
    pub taken: u64,
    /// Peers that should hold some of it and did not answer.
    pub unreached: BTreeSet<PeerId>,
    /// What a peer said that refused.
    pub refused: Option<CallError>,
}

/// What forgetting reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Places: records and stripes.
    pub places: u64,
    /// Leases of this user that were ended.
    pub leases: u64,
    /// Peers that dropped what they had under them.
    pub reached: BTreeSet<PeerId>,
    /// Peers that may hold some of it and did not answer: they hear of it from others when they return.
    pub unreached: BTreeSet<PeerId>,
    /// Places that others pay for too, or that holders keep without a lease: they stay there.
    pub kept: u64,
    /// Whether the key that opened it was this user's own and is forgotten.
    pub key_forgotten: bool,
}

/// What one holder says of places.
type Answers = Result<Vec<PlaceLeases>, CallError>;

/// A part of a content's places, and what their holders say.
struct Part {
    /// Each place, and the bytes there where they are known.
    places: Vec<(Place, Option<u64>)>,
    /// Peers that may hold some of them, with the numbers of those, and their answers.
    asked: Vec<(PeerId, Vec<usize>, Answers)>,
}

impl Part {
    /// What reachable holders say of each place: its number, who says it, and what.
    fn said(&self) -> impl Iterator<Item = (usize, PeerId, &PlaceLeases)> {
        self.asked.iter().flat_map(|(peer, places, answers)| {
            let answers = answers.as_deref().unwrap_or_default();
            places.iter().copied().zip(answers).map(|(place, said)| (place, *peer, said))
        })
    }

    fn unreached(&self) -> impl Iterator<Item = PeerId> {
        self.asked.iter().filter(|(.., answers)| answers.is_err()).map(|(peer, ..)| *peer)
    }
}

fn claims(said: &PlaceLeases) -> Vec<(Claim, &Shown)> {
    let claim = |shown| Some((claim_of(shown)?, shown));
    said.leases.iter().filter_map(claim).collect()
}

fn claim_of(shown: &Shown) -> Option<Claim> {
    lease::claim(&shown.lease, &shown.pass).ok()
}

impl Author {
    /// Notes at home until when a content is paid for.
    pub(crate) async fn note_paid(&self, address: RecordId, until: u64) -> Result<(), AuthorError> {
        let salt = self.env().random();
        self.at_home(move |home| home.note_paid(&salt, &address, until)).await
    }

    /// Every content that this home paid for, and until when, Unix seconds.
    ///
    /// # Errors
    /// What the home says.
    pub async fn paid(&self) -> Result<BTreeMap<RecordId, u64>, AuthorError> {
        self.at_home(|home| home.paid()).await
    }

    /// The leases of a content's envelope and entry.
    ///
    /// # Errors
    /// As [`Author::get`] for the content itself; [`AuthorError::ThinSurvey`] where a librarian walks for this user.
    pub async fn payment(&self, address: RecordId) -> Result<Payment, AuthorError> {
        let content = self.content(address).await?;
        let part = self.ask_part(head_of(&content)).await?;
        let own = self.payer().map(|payer| payer.secret.public());
        let mut payment = Payment::default();
        let mut ends: Vec<Option<u64>> = vec![None; part.places.len()];
        for (place, _, said) in part.said() {
            payment.unleased |= said.unleased;
            for (claim, _) in claims(said) {
                let Claim { client, organisation, until, .. } = claim;
                let own = own == Some(*client.key());
                payment.leases.push(Paid { own, organisation, until });
                ends[place] = ends[place].max(Some(until));
            }
        }
        payment.leases.sort_unstable();
        payment.leases.dedup();
        payment.until = ends.into_iter().min().flatten();
        Ok(payment)
    }

    /// Pays for a content for so many seconds from now, whoever put it: each holder is shown a new lease. What was paid before
    /// stays until its own end.
    ///
    /// # Errors
    /// [`AuthorError::NoPass`] where nobody pays for this user, and as [`Author::payment`].
    pub async fn renew(
        &self,
        address: RecordId,
        seconds: Option<u64>,
    ) -> Result<Renewed, AuthorError> {
        self.check_pays()?;
        let content = self.content(address).await?;
        let mut renewed = Renewed { until: u64::MAX, ..Renewed::default() };
        self.renew_part(head_of(&content), seconds, &mut renewed).await?;
        let mut parts = content.parts(0);
        loop {
            let places = self.next_places(&mut parts).await?;
            if places.is_empty() {
                break;
            }
            self.renew_part(places, seconds, &mut renewed).await?;
        }
        if renewed.untaken == 0 {
            self.note_paid(address, renewed.until).await?;
        }
        Ok(renewed)
    }

    async fn renew_part(
        &self,
        places: Vec<(Place, Option<u64>)>,
        seconds: Option<u64>,
        renewed: &mut Renewed,
    ) -> Result<(), AuthorError> {
        let part = self.ask_part(places).await?;
        renewed.places += part.places.len() as u64;
        renewed.unreached.extend(part.unreached());
        let mut bytes: Vec<u64> = part.places.iter().map(|(_, known)| known.unwrap_or(0)).collect();
        let mut holders: BTreeMap<PeerId, BTreeSet<Place>> = BTreeMap::new();
        let mut count = vec![0u32; part.places.len()];
        for (place, peer, said) in part.said() {
            if !said.held {
                continue;
            }
            count[place] += 1;
            holders.entry(peer).or_default().insert(part.places[place].0);
            let said =
                said.leases.iter().flat_map(|shown| &shown.leaves).map(|leaf| leaf.leaf.bytes);
            bytes[place] = said.fold(bytes[place], u64::max);
        }
        let leaf = |((place, _), bytes): (&(Place, _), &u64)| Leaf {
            place: *place,
            bytes: if *bytes == 0 { PART_BYTES_MAX } else { *bytes },
        };
        let leaves: Vec<Leaf> = part.places.iter().zip(&bytes).map(leaf).collect();
        let most = count.iter().copied().max().unwrap_or(1);
        let Some(lease) = self.lease(&leaves, most, seconds)? else { return Ok(()) };
        renewed.until = renewed.until.min(lease::until(&lease.lease).unwrap_or(0));
        let shows = holders.into_iter().map(|(peer, places)| {
            let shown = lease.of(|place| places.contains(place)).into_iter().collect();
            async move { (peer, places, self.ask_leases(&peer, LeaseRequest::Show(shown)).await) }
        });
        let mut taken: BTreeSet<Place> = BTreeSet::new();
        let mut answers = futures::stream::iter(shows).buffer_unordered(PEERS_ASKED);
        while let Some((peer, places, answer)) = answers.next().await {
            match answer {
                Ok(LeaseAnswer::Show(held)) => {
                    renewed.taken += held.iter().flatten().filter(|held| **held).count() as u64;
                    taken.extend(places);
                }
                Ok(_) => drop(renewed.unreached.insert(peer)),
                Err(error @ (CallError::Denied { .. } | CallError::Invalid { .. })) => {
                    renewed.refused = Some(error);
                }
                Err(_) => drop(renewed.unreached.insert(peer)),
            }
        }
        renewed.untaken += (part.places.len() - taken.len()) as u64;
        Ok(())
    }

    /// Ends this user's leases of a content, and forgets the key that opens it. Holders drop what nobody else pays for at once.
    ///
    /// The content's pages and stripes are ended first and its envelope last, so that what was begun and broken off can be
    /// done again.
    ///
    /// # Errors
    /// As [`Author::renew`].
    pub async fn forget(&self, address: RecordId) -> Result<Ended, AuthorError> {
        self.check_pays()?;
        let content = self.content(address).await?;
        let mut ended = Ended::default();
        let mut parts = content.parts(0);
        loop {
            let places = self.next_places(&mut parts).await?;
            if places.is_empty() {
                break;
            }
            self.forget_part(places, &mut ended).await?;
        }
        self.forget_part(head_of(&content), &mut ended).await?;
        let reader = content.opened.envelope.reader;
        ended.key_forgotten = self.at_home(move |home| home.forget_counter(&reader)).await?;
        self.note_paid(address, 0).await?;
        Ok(ended)
    }

    async fn forget_part(
        &self,
        places: Vec<(Place, Option<u64>)>,
        ended: &mut Ended,
    ) -> Result<(), AuthorError> {
        let Some(payer) = self.payer() else { return Ok(()) };
        let part = self.ask_part(places).await?;
        ended.places += part.places.len() as u64;
        ended.unreached.extend(part.unreached());
        let client = payer.secret.public();
        let mut own: BTreeMap<crypto::LeaseId, Claim> = BTreeMap::new();
        let mut kept: BTreeSet<usize> = BTreeSet::new();
        let mut holders: BTreeSet<PeerId> = BTreeSet::new();
        for (place, peer, said) in part.said() {
            if said.held {
                holders.insert(peer);
            }
            for (claim, _) in claims(said) {
                match *claim.client.key() == client {
                    true => drop(own.insert(claim.id, claim)),
                    false => drop(kept.insert(place)),
                }
            }
            if said.unleased {
                kept.insert(place);
            }
        }
        ended.kept += kept.len() as u64;
        ended.leases += own.len() as u64;
        let at = self.env().clock.unix_s();
        let words: Vec<_> = own
            .values()
            .map(|claim| {
                let Claim { id, client, until, .. } = *claim;
                Forget { lease: id, client, until, at }.sign(&payer.secret, &self.network())
            })
            .collect();
        if words.is_empty() {
            return Ok(());
        }
        let words = &words;
        let tells = holders.into_iter().map(|peer| async move {
            for some in words.chunks(FORGETS_MAX) {
                let told = self.ask_leases(&peer, LeaseRequest::Forget(some.to_vec())).await;
                match told {
                    Ok(LeaseAnswer::Forget(done)) if !done.contains(&Forgotten::NotHere) => {}
                    Ok(LeaseAnswer::Forget(_)) => {}
                    Ok(_) | Err(_) => return (peer, false),
                }
            }
            (peer, true)
        });
        let mut told = futures::stream::iter(tells).buffer_unordered(PEERS_ASKED);
        while let Some((peer, reached)) = told.next().await {
            if reached {
                ended.reached.insert(peer)
            } else {
                ended.unreached.insert(peer)
            };
        }
        Ok(())
    }

    fn check_pays(&self) -> Result<(), AuthorError> {
        if self.payer().is_none() || !matches!(self.walker().credential(), Credential::Client(_)) {
            return Err(AuthorError::NoPass);
        }
        Ok(())
    }

    /// The next part of a content's places; none after the last.
    async fn next_places(
        &self,
        parts: &mut crate::content::Parts<'_>,
    ) -> Result<Vec<(Place, Option<u64>)>, AuthorError> {
        let mut places = Vec::new();
        while places.len() < TOGETHER {
            match parts.next(self).await? {
                None => break,
                Some((_, At::Page(PageAt::Inline(_)))) => {}
                Some((_, At::Page(PageAt::Record(id)) | At::Stripe(id))) => {
                    places.push((Place::from(id), None));
                }
            }
        }
        Ok(places)
    }

    /// Asks whoever may hold records at these places which leases there are.
    async fn ask_part(&self, places: Vec<(Place, Option<u64>)>) -> Result<Part, AuthorError> {
        if self.walker().is_thin() {
            return Err(AuthorError::ThinSurvey);
        }
        let view = self.walker().directory().view();
        let most = crypto::genesis::FRAGMENTS_MAX as usize + SPARES + NEAR_EXTRA;
        let mut by_peer: BTreeMap<PeerId, Vec<usize>> = BTreeMap::new();
        for (number, (place, _)) in places.iter().enumerate() {
            for peer in view.holders(place, most) {
                by_peer.entry(peer).or_default().push(number);
            }
        }
        let all = &places;
        let asks = by_peer.into_iter().map(|(peer, numbers)| async move {
            let mut answers = Vec::with_capacity(numbers.len());
            for some in numbers.chunks(PLACES_MAX) {
                let some = some.iter().map(|number| all[*number].0).collect();
                match self.ask_leases(&peer, LeaseRequest::Of(some)).await {
                    Ok(LeaseAnswer::Of(said)) => answers.extend(said),
                    Ok(_) => return (peer, numbers, Err(CallError::NotFound)),
                    Err(error) => return (peer, numbers, Err(error)),
                }
            }
            (peer, numbers, Ok(answers))
        });
        let asked = futures::stream::iter(asks).buffer_unordered(PEERS_ASKED).collect().await;
        Ok(Part { places, asked })
    }

    async fn ask_leases(
        &self,
        peer: &PeerId,
        request: LeaseRequest,
    ) -> Result<LeaseAnswer, CallError> {
        let to = self.walker().directory().endpoint(peer).ok_or(CallError::NotFound)?;
        let call = self.walker().calls().lease(&to, request, LIMIT);
        match self.env().within(LIMIT, call).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::TimedOut { address: to.address, limit: LIMIT }),
        }
    }
}

/// The places of a content's envelope, entry and lists, with their bytes where they are at hand.
fn head_of(content: &Content) -> Vec<(Place, Option<u64>)> {
    let at_hand = [&content.opened.record, &content.entry];
    let at_hand = at_hand.map(|record| (record.place, Some(record.bytes.len() as u64)));
    let lists = content.lists().iter().map(|id| (Place::from(*id), None));
    at_hand.into_iter().chain(lists).collect()
}
