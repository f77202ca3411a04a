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
//! Invariant: of what a holder says a lease counts where its signatures do and it has a leaf for the place that was asked about
//! (`asking`): nothing is signed, and nothing believed, for a lease of something else.
//!
//! What is gone is told by one renewal and then noted as paid for no more: an envelope to somebody else whose entry is gone, and
//! whatever was paid until a time that is over, as this home notes, where the holders answer that they do not have it. What they
//! lack while it is paid for may be lost or hidden: it stays noted and is told again, until its time is over or
//! [`Author::forget`] takes it out. So does what one librarian says that walks for this user.
//!
//! Forgetting begins and ends at home: first it is noted which key is to be forgotten, with room for that, so that a home which cannot
//! be written ends nothing; last the key is forgotten. Whoever is stopped in between forgets the content again.
//!
//! Limits: holders that are away are not asked. A lease is shown to who holds a record now; who was away and lacks it keeps the record as
//! long as its older lease says. A word that ends one reaches them by the other holders when they return.

mod asking;
mod copies;
mod found;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crypto::certificate::CLOCK_SKEW_S;
use crypto::lease::{self, Forget, LEAF_BYTES_MAX, Leaf};
use crypto::{LeaseId, PeerId, Place, RecordId};
use document::{Document, Kind, Record};
use env::calls::leases::{FORGETS_MAX, LeaseAnswer, LeaseRequest};
use env::calls::{CallError, Credential};
use futures::StreamExt;
use walk::WalkError;

use crate::author::Author;
use crate::content::{At, Content, PageAt};
use crate::error::{self, AuthorError};
use crate::put_file;
use asking::{Part, Spot};

/// Places that are renewed or ended together, under one lease.
const TOGETHER: usize = 256;
/// Peers asked at once.
const PEERS_ASKED: usize = 16;
/// The deadline of one question.
const LIMIT: Duration = Duration::from_secs(30);

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
    /// Of those, the ones that too few holders took a lease for: of a stripe fewer than bring it back, of a copy fewer than
    /// half of those that hold it.
    pub untaken: u64,
    /// Records at holders whose lease was taken.
    pub taken: u64,
    /// Peers that should hold some of it and did not answer.
    pub unreached: BTreeSet<PeerId>,
    /// What a peer said that refused.
    pub refused: Option<CallError>,
    /// Whether the home notes that, as it does where all of it is paid for at every peer; where it could not be written,
    /// [`Author::paid`] says what it said before.
    pub noted: bool,
}

impl Renewed {
    /// Whether all of it is paid for at every peer that may hold some.
    pub fn is_whole(&self) -> bool {
        self.taken > 0 && self.untaken == 0 && self.unreached.is_empty() && self.refused.is_none()
    }
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
    /// Places of which no holder heard it: they can be ended as long as the key is there, so it is kept then.
    pub open: u64,
    /// Whether the key that opened it was this user's own and is forgotten.
    pub key_forgotten: bool,
}

/// Of which places a holder must be there.
enum Reach {
    /// Of those that are ended: the others stay open.
    Some,
    /// Of all, or none is ended.
    All,
}

/// What is being forgotten, part by part.
#[derive(Default)]
struct Forgetting {
    ended: Ended,
    /// The leases that the part before was under: one may go over places of both, and counts once.
    before: BTreeSet<LeaseId>,
}

impl Author {
    /// Notes at home until when a content is paid for.
    pub(crate) async fn note_paid(&self, address: RecordId, until: u64) -> Result<(), AuthorError> {
        self.note_all_paid(&[address], until).await
    }

    /// Notes it, where anybody pays; whether the home says so now. They are stored all the same: [`Author::paid`] alone does not know
    /// of them.
    pub(crate) async fn is_noted(&self, addresses: &[RecordId], until: Option<u64>) -> bool {
        let Some(until) = until else { return true };
        match self.note_all_paid(addresses, until).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "until when it is paid for could not be noted at home");
                false
            }
        }
    }

    /// Notes at home until when these are paid for: contents, and envelopes to others.
    pub(crate) async fn note_all_paid(
        &self,
        addresses: &[RecordId],
        until: u64,
    ) -> Result<(), AuthorError> {
        let salted = addresses.iter().map(|address| (self.env().random(), *address));
        let salted: Vec<_> = salted.collect();
        self.at_home(move |home| {
            salted.iter().try_for_each(|(salt, address)| home.note_paid(salt, address, until))
        })
        .await
    }

    /// Every content that this home paid for, and every envelope to others, and until when, Unix seconds.
    ///
    /// # Errors
    /// What the home says.
    pub async fn paid(&self) -> Result<BTreeMap<RecordId, u64>, AuthorError> {
        self.at_home(|home| home.paid()).await
    }

    /// As [`Author::paid`]; and how many notes are damaged, each of which may have been of one more. [`Author::recover`] notes all anew.
    ///
    /// # Errors
    /// What the home says.
    pub async fn paid_notes(&self) -> Result<(BTreeMap<RecordId, u64>, u64), AuthorError> {
        self.at_home(|home| home.paid_notes()).await
    }

    /// The leases of a content's envelope and entry.
    ///
    /// # Errors
    /// As [`Author::get`] for the content itself; [`AuthorError::ThinSurvey`] where a librarian walks for this user.
    pub async fn payment(&self, address: RecordId) -> Result<Payment, AuthorError> {
        let content = self.content(address).await?;
        let part = self.ask_part(head_of(&content)).await?;
        let mut payment = Payment::default();
        let mut ends: Vec<Option<u64>> = vec![None; part.spots.len()];
        for (spot, _, said) in part.said() {
            payment.unleased |= said.unleased;
            for lease in &said.leases {
                let (own, organisation) = (lease.own, lease.checked.organisation);
                let until = lease.checked.terms.until;
                payment.leases.push(Paid { own, organisation, until });
                ends[spot] = ends[spot].max(Some(until));
            }
        }
        payment.leases.sort_unstable();
        payment.leases.dedup();
        payment.until = ends.into_iter().min().flatten();
        Ok(payment)
    }

    /// Pays for a content for so many seconds from now, whoever put it, in as many copies as this user paid for before, or in the
    /// network's number: each holder is shown a new lease. What was paid before
    /// stays until its own end. Of an envelope to somebody else that this home paid for, the envelope alone is renewed: its content has
    /// an address of this user's.
    ///
    /// # Errors
    /// [`AuthorError::NoPass`] where nobody pays for this user; [`AuthorError::Gone`] where nothing is left to pay for, which this home
    /// notes then; and as [`Author::payment`]. That the home cannot be written is none: see [`Renewed::noted`].
    pub async fn renew(
        &self,
        address: RecordId,
        seconds: Option<u64>,
    ) -> Result<Renewed, AuthorError> {
        self.check_pays()?;
        self.remove_leftovers().await;
        let mut renewed = Renewed { until: u64::MAX, ..Renewed::default() };
        let content = match self.content(address).await {
            Err(error @ AuthorError::NotForUs { .. }) => {
                if !self.paid().await?.contains_key(&address) {
                    return Err(error);
                }
                self.renew_envelope(address, seconds, &mut renewed).await?;
                return Ok(renewed);
            }
            Err(error) if is_absent(&error) => {
                let over = self.is_over(&address).await?;
                return Err(if over { self.note_gone(address, error).await } else { error });
            }
            content => content?,
        };
        self.renew_part(head_of(&content), seconds, &mut renewed).await?;
        let mut parts = content.parts(0);
        loop {
            let places = self.next_places(&mut parts).await?;
            if places.is_empty() {
                break;
            }
            self.renew_part(places, seconds, &mut renewed).await?;
        }
        self.note_renewed(address, &mut renewed).await;
        Ok(renewed)
    }

    /// Pays for an envelope to somebody else, as long as there is something in it: that its entry is gone is an error, and it is
    /// noted as paid for no more.
    async fn renew_envelope(
        &self,
        address: RecordId,
        seconds: Option<u64>,
        renewed: &mut Renewed,
    ) -> Result<(), AuthorError> {
        let record = self.fetch(error::Part::Envelope, address).await?.record;
        let Ok(Document::Envelope(envelope)) = Document::decode(&record.bytes) else {
            return Err(AuthorError::NotForUs { address });
        };
        match self.fetch(error::Part::Entry, envelope.entry).await {
            Err(error) if is_absent(&error) => return Err(self.note_gone(address, error).await),
            entry => drop(entry?),
        }
        self.renew_part(vec![spot_of(&record)], seconds, renewed).await?;
        self.note_renewed(address, renewed).await;
        Ok(())
    }

    /// Notes at home until when something is paid for, where all of it is.
    async fn note_renewed(&self, address: RecordId, renewed: &mut Renewed) {
        if renewed.is_whole() {
            renewed.noted = self.is_noted(&[address], Some(renewed.until)).await;
        }
    }

    /// Whether this home notes something as paid for until a time that is over by any holder's clock.
    async fn is_over(&self, address: &RecordId) -> Result<bool, AuthorError> {
        let until = self.paid().await?.get(address).copied();
        let now = self.env().clock.unix_s();
        Ok(until.is_some_and(|until| until.saturating_add(CLOCK_SKEW_S) < now))
    }

    /// Notes that something is paid for no more, since holders answered that it is gone; the error that tells so. Where a librarian walks
    /// for this user it is that one's word alone, and nothing is noted; nor where the home cannot be written.
    async fn note_gone(&self, address: RecordId, error: AuthorError) -> AuthorError {
        match error {
            AuthorError::Fetch { part, source } if !self.walker().is_thin() => {
                match self.is_noted(&[address], Some(0)).await {
                    true => AuthorError::Gone { address, part, source },
                    false => AuthorError::Fetch { part, source },
                }
            }
            error => error,
        }
    }

    async fn renew_part(
        &self,
        spots: Vec<Spot>,
        seconds: Option<u64>,
        renewed: &mut Renewed,
    ) -> Result<(), AuthorError> {
        let part = self.ask_part(spots).await?;
        renewed.places += part.spots.len() as u64;
        renewed.unreached.extend(part.unreached());
        let mut holders: BTreeMap<PeerId, BTreeSet<Place>> = BTreeMap::new();
        let (mut count, mut paid_for) = (vec![0u32; part.spots.len()], vec![0; part.spots.len()]);
        for (spot, peer, said) in part.said() {
            let copies = said.own().map(|lease| lease.terms.redundancy).max().unwrap_or(0);
            paid_for[spot] = copies.max(paid_for[spot]);
            if said.held {
                count[spot] += 1;
                holders.entry(peer).or_default().insert(part.spots[spot].place);
            }
        }
        // As many as were paid for: holders keep so many, so that one that is away is paid for again, and a copy that is too much, at a
        // peer whose duty it is not, is not.
        // Of what others paid for it is as many as say that they have it, and of a copy no more than the network keeps of any kind:
        // that is their word alone.
        let network = self.walker().redundancy(Kind::Entry).copies;
        let mut by_copies: BTreeMap<u32, Vec<Leaf>> = BTreeMap::new();
        let spots = part.spots.iter().zip(count.iter().zip(&paid_for));
        for (leaf, (spot, (held, paid))) in leaves_of(&part).into_iter().zip(spots) {
            let copies = match (*paid, spot.pages) {
                (0, None) => (*held).min(network),
                (0, Some(_)) => *held,
                (paid, _) => paid,
            };
            by_copies.entry(copies).or_default().push(leaf);
        }
        let mut leases = Vec::with_capacity(by_copies.len());
        for (copies, leaves) in by_copies {
            let Some(lease) = self.lease(&leaves, copies, seconds)? else { return Ok(()) };
            renewed.until = renewed.until.min(lease::until(&lease.lease).unwrap_or(0));
            leases.push(lease);
        }
        let leases = &leases;
        let shows = holders.into_iter().filter_map(|(peer, places)| {
            let shown: Vec<_> =
                leases.iter().filter_map(|lease| lease.of(|at| places.contains(at))).collect();
            let leaves = shown.iter().flat_map(|shown| &shown.leaves);
            let leaves: Vec<Place> = leaves.map(|leaf| leaf.leaf.place).collect();
            let request = (!shown.is_empty()).then_some(LeaseRequest::Show(shown))?;
            Some(async move { (peer, leaves, self.ask_leases(&peer, request).await) })
        });
        let mut taken: BTreeMap<Place, u32> = BTreeMap::new();
        let mut answers = futures::stream::iter(shows).buffer_unordered(PEERS_ASKED);
        while let Some((peer, leaves, answer)) = answers.next().await {
            match answer {
                Ok(LeaseAnswer::Show(held)) => {
                    let each = leaves.into_iter().zip(held.into_iter().flatten());
                    for (place, _) in each.filter(|(_, held)| *held) {
                        renewed.taken += 1;
                        *taken.entry(place).or_default() += 1;
                    }
                }
                Err(error @ (CallError::Denied { .. } | CallError::Invalid { .. })) => {
                    renewed.refused = Some(error);
                }
                Ok(_) | Err(_) => drop(renewed.unreached.insert(peer)),
            }
        }
        let few = |(spot, held): &(&Spot, u32)| {
            let takers = taken.get(&spot.place).copied().unwrap_or(0);
            !spot.is_kept_by(takers, *held)
        };
        renewed.untaken += part.spots.iter().zip(count).filter(few).count() as u64;
        Ok(())
    }

    /// Ends this user's leases of a content, and forgets the key that opens it. Holders drop what nobody else pays for at once.
    ///
    /// The content's pages and stripes are ended first. Its lists, entry and envelope, which may be under one lease, are ended
    /// together, and only where the others have ended and a holder of each is there: what was begun and not brought to its end
    /// can be done again.
    ///
    /// # Errors
    /// As [`Author::renew`], and what the home says: where it cannot be written nothing is ended. A content that this home noted as
    /// paid for, or began to forget, and whose envelope is gone is none: its key is forgotten where that was begun, and it is noted as
    /// paid for no more.
    pub async fn forget(&self, address: RecordId) -> Result<Ended, AuthorError> {
        self.check_pays()?;
        let mut forgetting = Forgetting::default();
        let opened = match self.open(address).await {
            Err(error) => {
                let key_forgotten = self.forget_absent(address, error).await?;
                return Ok(Ended { key_forgotten, ..Ended::default() });
            }
            Ok(opened) => opened,
        };
        if self.walker().is_thin() {
            // Nothing is begun that could not be brought to its end.
            return Err(AuthorError::ThinSurvey);
        }
        let envelope = spot_of(&opened.record);
        let reader = opened.envelope.reader;
        self.at_home(move |home| home.begin_forgetting(&address, &reader)).await?;
        // Else a put that was interrupted would go on as if its pages were there still.
        let eek = opened.eek.clone();
        let journals = self.at_home(move |home| {
            let journals = put_file::journals(home);
            journals.remove_of(home.keyring(), &eek).map_err(|source| AuthorError::Io {
                action: "remove the journal of a put of it in",
                path: home.dir().to_owned(),
                source,
            })
        });
        journals.await?;
        let head = match self.content_of(opened).await {
            Ok(content) => {
                self.forget_pages(&content, &mut forgetting).await?;
                head_of(&content)
            }
            // It is ended behind all that it names.
            Err(error) if is_absent(&error) => vec![envelope],
            Err(error) => return Err(error),
        };
        if forgetting.ended.open == 0 {
            self.forget_part(head, Reach::All, &mut forgetting).await?;
        }
        let mut ended = forgetting.ended;
        if ended.open > 0 {
            return Ok(ended);
        }
        ended.key_forgotten = self.at_home(move |home| home.forget_counter(&reader)).await?;
        self.note_forgotten(address).await?;
        Ok(ended)
    }

    /// Brings to its end, at home, what an earlier try to forget a content did at its holders: whether a key is forgotten.
    ///
    /// # Errors
    /// Why it did not open, where that says something else, or this home knows nothing of it.
    async fn forget_absent(
        &self,
        address: RecordId,
        error: AuthorError,
    ) -> Result<bool, AuthorError> {
        // A holder that was away may have an envelope that its key, forgotten by then, does not open.
        if !is_absent(&error) && !matches!(error, AuthorError::NotForUs { .. }) {
            return Err(error);
        }
        // Nothing is left that says where the rest was; which key opened it is noted where it was begun. What one librarian says that
        // walks for this user is not enough to forget that one.
        let begun = match self.walker().is_thin() {
            true => None,
            false => self.at_home(move |home| home.forget_begun(&address)).await?,
        };
        let is_paid = is_absent(&error) && self.paid().await?.contains_key(&address);
        if begun.is_none() && !is_paid {
            return Err(error);
        }
        match self.walker().is_thin() {
            true => self.note_paid(address, 0).await?,
            false => self.note_forgotten(address).await?,
        }
        Ok(begun.unwrap_or(false))
    }

    /// Notes that a content is paid for no more, and that nothing is left to forget of it.
    async fn note_forgotten(&self, address: RecordId) -> Result<(), AuthorError> {
        self.note_paid(address, 0).await?;
        if let Err(error) = self.at_home(move |home| home.end_forgetting(&address)).await {
            // It says nothing that is not so.
            tracing::warn!(%error, "that a content is being forgotten stays noted");
        }
        Ok(())
    }

    /// Ends all that a content's lists name.
    async fn forget_pages(
        &self,
        content: &Content,
        forgetting: &mut Forgetting,
    ) -> Result<(), AuthorError> {
        let mut parts = content.parts(0);
        loop {
            let places = match self.next_places(&mut parts).await {
                // A list is ended behind all that it names.
                Err(error) if is_absent(&error) => return Ok(()),
                places => places?,
            };
            if places.is_empty() {
                return Ok(());
            }
            self.forget_part(places, Reach::Some, forgetting).await?;
        }
    }

    async fn forget_part(
        &self,
        spots: Vec<Spot>,
        reach: Reach,
        forgetting: &mut Forgetting,
    ) -> Result<(), AuthorError> {
        let Some(payer) = self.payer().filter(|_| !spots.is_empty()) else { return Ok(()) };
        let Forgetting { ended, before } = forgetting;
        let part = self.ask_part(spots).await?;
        ended.places += part.spots.len() as u64;
        let mut unreached: BTreeSet<PeerId> = part.unreached().collect();
        let mut own: BTreeMap<LeaseId, Forget> = BTreeMap::new();
        let mut kept: BTreeSet<usize> = BTreeSet::new();
        let mut holders: BTreeMap<PeerId, Vec<usize>> = BTreeMap::new();
        let at = self.env().clock.unix_s();
        for (spot, peer, said) in part.said() {
            if said.held {
                holders.entry(peer).or_default().push(spot);
            }
            for lease::Checked { id, client, terms, .. } in said.own() {
                let until = terms.until;
                own.insert(*id, Forget { lease: *id, client: *client, until, at });
            }
            if said.unleased || said.leases.iter().any(|lease| !lease.own) {
                kept.insert(spot);
            }
        }
        ended.kept += kept.len() as u64;
        let network = self.network();
        let words: Vec<_> = own.values().map(|word| word.sign(&payer.secret, &network)).collect();
        let words = &words;
        let held: BTreeSet<usize> = holders.values().flatten().copied().collect();
        let tells = holders.into_iter().map(|(peer, spots)| async move {
            for some in words.chunks(FORGETS_MAX) {
                let told = self.ask_leases(&peer, LeaseRequest::Forget(some.to_vec())).await;
                if !matches!(told, Ok(LeaseAnswer::Forget(_))) {
                    return (peer, spots, false);
                }
            }
            (peer, spots, true)
        });
        // Where all answered and nobody has it, it has ended before.
        let may_hold: BTreeSet<usize> = part.spots_of(&unreached);
        let open = may_hold.difference(&held).count() as u64;
        if open > 0 && matches!(reach, Reach::All) {
            ended.open += open;
            ended.unreached.extend(unreached);
            return Ok(());
        }
        ended.leases += own.keys().filter(|id| !before.contains(*id)).count() as u64;
        *before = own.keys().copied().collect();
        let mut heard: BTreeSet<usize> = BTreeSet::new();
        let mut told = futures::stream::iter(tells).buffer_unordered(PEERS_ASKED);
        while let Some((peer, spots, reached)) = told.next().await {
            match reached {
                true => {
                    heard.extend(spots);
                    if !words.is_empty() {
                        ended.reached.insert(peer);
                    }
                }
                false => drop(unreached.insert(peer)),
            }
        }
        let may_hold: BTreeSet<usize> = part.spots_of(&unreached);
        ended.open += may_hold.difference(&heard).count() as u64;
        ended.unreached.extend(unreached);
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
    ) -> Result<Vec<Spot>, AuthorError> {
        let pages = parts.stripe_pages();
        let mut places = Vec::new();
        while places.len() < TOGETHER {
            match parts.next(self).await? {
                None => break,
                Some((_, At::Page(PageAt::Inline(_)))) => {}
                Some((_, At::Page(PageAt::Record(id)))) => places.push(Spot::copy(id.into(), None)),
                Some((_, At::Stripe(id))) => {
                    places.push(Spot { pages, ..Spot::copy(id.into(), None) });
                }
            }
        }
        Ok(places)
    }
}

impl Author {
    /// Where a content's envelope, entry and lists are.
    pub(crate) fn head_places(&self, content: &Content) -> Vec<Place> {
        head_of(content).into_iter().map(|spot| spot.place).collect()
    }

    /// Where the next of its pages and stripes are; none where there are no more.
    pub(crate) async fn next_part(
        &self,
        parts: &mut crate::content::Parts<'_>,
    ) -> Result<Vec<Place>, AuthorError> {
        let spots = self.next_places(parts).await?;
        Ok(spots.into_iter().map(|spot| spot.place).collect())
    }
}

/// What a lease over these places says of each: the bytes that are known, or that this user's own leases say, or others', and no
/// more than there can be.
fn leaves_of(part: &Part) -> Vec<Leaf> {
    let (mut own, mut others) = (vec![0u64; part.spots.len()], vec![0u64; part.spots.len()]);
    for (spot, _, said) in part.said().filter(|(.., said)| said.held) {
        for lease in &said.leases {
            let bytes = if lease.own { &mut own[spot] } else { &mut others[spot] };
            *bytes = lease.bytes.max(*bytes);
        }
    }
    let said = own.into_iter().zip(others);
    let leaf = |(spot, (own, others)): (&Spot, (u64, u64))| {
        let bytes = spot.bytes.unwrap_or(if own > 0 { own } else { others });
        let bytes = if bytes == 0 { LEAF_BYTES_MAX } else { bytes.min(LEAF_BYTES_MAX) };
        Leaf { place: spot.place, bytes }
    };
    part.spots.iter().zip(said).map(leaf).collect()
}

/// The places of a content's envelope, entry and lists, with their bytes where they are at hand.
fn head_of(content: &Content) -> Vec<Spot> {
    let at_hand = [&content.opened.record, &content.entry];
    at_hand.into_iter().map(spot_of).chain(lists_of(content)).collect()
}

fn lists_of(content: &Content) -> Vec<Spot> {
    content.lists().iter().map(|id| Spot::copy(Place::from(*id), None)).collect()
}

fn spot_of(record: &Record) -> Spot {
    Spot::copy(record.place, Some(record.bytes.len() as u64))
}

/// Whether the holders answered that there is no such record.
fn is_absent(error: &AuthorError) -> bool {
    matches!(error, AuthorError::Fetch { source: WalkError::NotFound { .. }, .. })
}
