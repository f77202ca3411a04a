//! Whether every record of a content can be had, and how many more losses each survives.
//!
//! ```text
//!   parts of the content, one after the other --> survey: who says that it holds what (no bytes)
//!                                                    | some of them, or all
//!                                                    v
//!                                                 read at every holder, proven --> what is wrong counts as not held
//! ```
//! A survey believes holders of fragments (see `info::stripes`); reading believes nobody: a fragment that its first claimant does not
//! send is read at the others that claim it. Reading is of all copies and all
//! fragments, parity too: a get reads the nearest that are well, and would never look at the others. Of a stripe that is read
//! all that were not kept are made again (see `coding`): each proves itself, also parity that its author made up.
//!
//! It is no repair, and changes nothing. Nothing of a content is kept but counts, so that one of any length is checked in
//! the memory of some stripes.

mod coding;

use std::collections::{BTreeMap, BTreeSet};

use crypto::{PeerId, Place, RecordId};
use document::Kind;
use document::entry::LIST_INDEX_BASE;
use document::{CHUNK_BYTES_MAX, Record, prove};
use env::calls::{FindRequest, FindResponse};
use futures::StreamExt;
use placement::Profile;
use walk::StripeShape;

use crate::author::Author;
use crate::content::{At, Content, PageAt};
use crate::error::AuthorError;
use crate::get::stripes::{Header, header};
use crate::job::Job;
use crate::types::{Fragment, Holder};
use crate::window::Lease;

/// Pages or fragments read at once; as many are made again at once.
const READ_AT_ONCE: usize = 8;
/// Pages surveyed together.
const PAGES_TOGETHER: usize = 16;
/// Other peers that are asked one after the other for a fragment which the first that claimed it did not send.
const CLAIMANTS_MAX: usize = 64;
/// Holders that are named for what they sent, at most; all are counted.
pub const WRONG_MAX: usize = 64;

/// How a content, a record or a stripe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Everything has all its copies and fragments.
    Full,
    /// Everything can be had; something has fewer copies or fragments than it should.
    Lacking,
    /// Something cannot be had as long as peers are away that may hold it.
    Unavailable,
    /// Something cannot be had: too few hold it, though all that should answered.
    Lost,
}

impl State {
    /// Its name, in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Lacking => "lacking",
            Self::Unavailable => "unavailable",
            Self::Lost => "lost",
        }
    }
}

/// A holder that sent other bytes than it said it has, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The record.
    pub id: RecordId,
    /// The holder.
    pub peer: PeerId,
}

/// What a check of one content found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The envelope it was found by.
    pub address: RecordId,
    /// Its entry.
    pub entry: RecordId,
    /// Bytes of the content.
    pub bytes: u64,
    /// How its pages are kept; `None` where the content lies in the entry.
    pub profile: Option<Profile>,
    /// The worst of its records and stripes.
    pub state: State,
    /// Records kept in copies: envelope, entry, pages and lists that are not in stripes.
    pub records: u64,
    /// Stripes.
    pub stripes: u64,
    /// Of them, those that have not all their fragments.
    pub stripes_lacking: u64,
    /// Records and stripes in each state, by [`State`].
    pub counts: [u64; 4],
    /// Copies and fragments that should be there and are not.
    pub missing: u64,
    /// How many more copies, or fragments of one stripe, may be lost before something is.
    pub survives: u32,
    /// Copies and fragments that were read and proven.
    pub read: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Holders that sent something else than they said they have; at most [`WRONG_MAX`] of them.
    pub wrong: Vec<Wrong>,
    /// Stripes that were read and whose parity is not that of their pages; at most [`WRONG_MAX`] of them. Their author's program
    /// is to blame and no holder, so the parity counts as missing: it brings nothing back.
    pub miscoded: Vec<RecordId>,
}

impl Checked {
    fn new(content: &Content) -> Self {
        Self {
            address: content.opened.record.id,
            entry: content.entry.id,
            bytes: content.size(),
            profile: None,
            state: State::Full,
            records: 0,
            stripes: 0,
            stripes_lacking: 0,
            counts: [0; 4],
            missing: 0,
            survives: u32::MAX,
            read: 0,
            read_bytes: 0,
            wrong: Vec::new(),
            miscoded: Vec::new(),
        }
    }

    /// Takes a record or a stripe into account, of which so many are held, needed and wanted.
    fn add(&mut self, held: usize, away: usize, needed: usize, wanted: usize) {
        let state = match held {
            held if held >= wanted => State::Full,
            held if held >= needed => State::Lacking,
            held if held + away >= needed => State::Unavailable,
            _ => State::Lost,
        };
        self.state = self.state.max(state);
        self.counts[state as usize] += 1;
        self.missing += wanted.saturating_sub(held) as u64;
        let survives = u32::try_from(held.saturating_sub(needed)).unwrap_or(u32::MAX);
        self.survives = self.survives.min(survives);
    }

    fn add_copies(&mut self, fragment: &Fragment, wanted: u32) {
        let held = fragment.holders.iter().filter(|holder| holder.held).count();
        let away = fragment.holders.iter().filter(|holder| !holder.reachable).count();
        self.records += 1;
        self.add(held, away, 1, wanted as usize);
    }

    /// Takes note of a stripe whose parity is not that of its pages, and of no use.
    fn add_miscoded(&mut self, id: RecordId, fragments: &mut [Fragment]) {
        let parity = fragments.iter_mut().filter(|one| one.kind == Kind::Parity);
        for holder in parity.flat_map(|one| &mut one.holders) {
            (holder.held, holder.reachable) = (false, true);
        }
        if self.miscoded.len() < WRONG_MAX {
            self.miscoded.push(id);
        }
    }

    fn add_stripe(&mut self, fragments: &[Fragment], k: usize) {
        let held = fragments.iter().filter(|one| one.holders.iter().any(|at| at.held)).count();
        let away = fragments.iter().filter(|one| {
            !one.holders.iter().any(|at| at.held) && one.holders.iter().any(|at| !at.reachable)
        });
        self.stripes += 1;
        self.stripes_lacking += u64::from(held < fragments.len());
        self.add(held, away.count(), k, fragments.len());
    }
}

impl Author {
    /// Checks the content at an address; `percent` of its pages or stripes are read at all their holders, 0 to 100.
    ///
    /// Cancel safe: nothing is kept.
    ///
    /// # Errors
    /// [`AuthorError::ThinSurvey`] where librarians walk for this user, since holders are not asked then;
    /// [`AuthorError::NotForUs`], [`AuthorError::Fetch`] and [`AuthorError::Corrupt`] where envelope, entry, a list or a
    /// stripe's header cannot be had: without those it is not known what else there is.
    pub async fn check(&self, address: RecordId, percent: u8) -> Result<Checked, AuthorError> {
        if self.walker().is_thin() {
            return Err(AuthorError::ThinSurvey);
        }
        let content = self.content(address).await?;
        let mut checked = Checked::new(&content);
        let copies = self.copies_wanted(&content).await?;
        for (record, wanted) in
            [(&content.opened.record, copies.envelope), (&content.entry, copies.entry)]
        {
            checked.add_copies(&self.proven(record, wanted).await, wanted);
        }
        // A list names thousands of pages or stripes: all of them are read to learn these, so their copies are.
        let lists = content.lists().iter().zip(LIST_INDEX_BASE..).map(|(id, index)| (*id, index));
        let lists: Vec<_> = lists.collect();
        for batch in lists.chunks(PAGES_TOGETHER) {
            self.check_pages(&mut checked, batch, copies.lists, percent).await?;
        }
        let mut parts = content.parts(0);
        let mut batch = Vec::new();
        while let Some((number, at)) = parts.next(self).await? {
            match at {
                At::Page(PageAt::Inline(_)) => {}
                At::Page(PageAt::Record(id)) => batch.push((id, number)),
                At::Stripe(id) => {
                    let k = content.stripe_pages().unwrap_or(1);
                    self.check_stripe(&mut checked, id, number, k, percent).await?;
                }
            }
            if batch.len() == PAGES_TOGETHER {
                let pages = std::mem::take(&mut batch);
                self.check_pages(&mut checked, &pages, copies.pages, percent).await?;
            }
        }
        self.check_pages(&mut checked, &batch, copies.pages, percent).await?;
        Ok(checked)
    }

    async fn check_pages(
        &self,
        checked: &mut Checked,
        pages: &[(RecordId, u32)],
        wanted: u32,
        percent: u8,
    ) -> Result<(), AuthorError> {
        if pages.is_empty() {
            return Ok(());
        }
        checked.profile.get_or_insert(Profile::Copies(wanted));
        for mut fragment in self.compared(pages, wanted).await {
            if self.chosen(percent) {
                let reading =
                    Reading { place: fragment.id.into(), bytes: CHUNK_BYTES_MAX, keep: 0 };
                let one = std::slice::from_mut(&mut fragment);
                let mut kept = self.kept(one, reading).await;
                self.read(checked, one, reading, &mut kept, |_| true).await?;
            }
            checked.add_copies(&fragment, wanted);
        }
        Ok(())
    }

    async fn check_stripe(
        &self,
        checked: &mut Checked,
        id: RecordId,
        number: u32,
        k: u32,
        percent: u8,
    ) -> Result<(), AuthorError> {
        let found = header(self.env(), self.walker(), id, number, k).await;
        let header = found.ok_or(AuthorError::Stopped)??;
        checked.profile = Some(Profile::Stripe { k, n: header.stripe.n() });
        let mut fragments = self.fragments(&header, &[]).await;
        if self.chosen(percent) {
            let kept = self.read_stripe(checked, &header, &mut fragments).await?;
            if !self.is_coded(header, kept).await? {
                checked.add_miscoded(id, &mut fragments);
            }
        }
        checked.add_stripe(&fragments, k as usize);
        Ok(())
    }

    /// Reads all fragments of a stripe. Those that their first claimants do not send are looked for at others, so that who claims what
    /// it does not have hides nobody who has it.
    async fn read_stripe(
        &self,
        checked: &mut Checked,
        header: &Header,
        fragments: &mut [Fragment],
    ) -> Result<Kept, AuthorError> {
        let bytes = header.stripe.fragment_bytes();
        let keep = header.stripe.k() as usize;
        let reading = Reading { place: header.id.into(), bytes, keep };
        let mut kept = self.kept(fragments, reading).await;
        let mut failed = self.read(checked, fragments, reading, &mut kept, |_| true).await?;
        if failed.is_empty() {
            return Ok(kept);
        }
        let shape = StripeShape::new(header.id, &header.stripe);
        let claimants = self.walker().claimants_of_stripe(&shape).await;
        let (mut liars, mut silent) = (BTreeSet::new(), BTreeSet::new());
        for (peer, wrong) in failed.values() {
            if *wrong {
                liars.insert(*peer)
            } else {
                silent.insert(*peer)
            };
        }
        for round in 0..CLAIMANTS_MAX {
            // Who did not send one fragment is asked for no other. Each fragment begins at another claimant, so that many liars cost
            // few rounds.
            let mut again = BTreeSet::new();
            for &at in failed.keys() {
                let left = claimants.get(at).into_iter().flatten();
                let left = left.filter(|peer| !liars.contains(*peer) && !silent.contains(*peer));
                let left: Vec<&PeerId> = left.collect();
                let turn = if round == 0 { 0 } else { at };
                let next = left.get(turn % left.len().max(1));
                if let (Some(peer), Some(fragment)) = (next, fragments.get_mut(at)) {
                    fragment.holders.push(self.claimed(peer));
                    again.insert(at);
                }
            }
            if again.is_empty() {
                break;
            }
            let is_asked = |at: usize| again.contains(&at);
            let missed = self.read(checked, fragments, reading, &mut kept, is_asked).await?;
            for (peer, wrong) in missed.values() {
                if *wrong {
                    liars.insert(*peer)
                } else {
                    silent.insert(*peer)
                };
            }
            failed.retain(|at, _| !again.contains(at) || missed.contains_key(at));
        }
        if !failed.is_empty() {
            // Those that claimed it hide nobody who may have it and does not answer either.
            let liars: Vec<PeerId> = liars.into_iter().collect();
            let others = self.fragments(header, &liars).await;
            let not_held = fragments.iter_mut().zip(others).enumerate();
            for (at, (fragment, other)) in not_held.filter(|(at, _)| failed.contains_key(at)) {
                let away = other.holders.into_iter().filter(|holder| !holder.reachable);
                fragment.holders.extend(away);
                let claims = claimants.get(at).into_iter().flatten();
                let unread = claims.filter(|peer| silent.contains(*peer));
                let unread = unread.map(|peer| Holder {
                    held: false,
                    reachable: false,
                    ..self.claimed(peer)
                });
                fragment.holders.extend(unread);
            }
        }
        Ok(kept)
    }

    /// Whether this one is among so many percent.
    fn chosen(&self, percent: u8) -> bool {
        let random = u32::from_be_bytes(self.env().random());
        // The 2^32 values are not a multiple of 100: what is off is less than one in ten million.
        random % 100 < u32::from(percent)
    }

    /// Whether all fragments of a stripe are what the code makes of those that were kept.
    async fn is_coded(&self, header: Header, kept: Kept) -> Result<bool, AuthorError> {
        let (suite, Header { id, stripe, .. }) = (self.suite(), header);
        let coded = move || {
            let Kept { records, _lease } = kept;
            coding::is_coded(suite, &id, &stripe, &records, READ_AT_ONCE)
        };
        Job::cpu(self.env(), coded).await.ok_or(AuthorError::Stopped)?.map_err(AuthorError::Code)
    }

    /// Nothing yet, with room for what [`Author::read`] of these has on its way and keeps: one lease for both, so that nobody
    /// waits for a second one while holding one.
    async fn kept(&self, fragments: &[Fragment], reading: Reading) -> Kept {
        let claims = fragments.iter().flat_map(|one| &one.holders).filter(|one| one.held).count();
        let at_once = READ_AT_ONCE.min(claims.max(fragments.len()));
        let lease = self.window().lease((at_once + reading.keep).saturating_mul(reading.bytes));
        Kept { records: BTreeMap::new(), _lease: Some(lease.await) }
    }

    /// Reads those of the fragments that are wanted at everybody who says that they hold them; who does not send them does not hold them. It keeps the
    /// first so many of those that came, by their number: of a stripe its pages before its parity. Answers which nobody sent, one
    /// of those who did not, and whether that one answered something else.
    async fn read(
        &self,
        checked: &mut Checked,
        fragments: &mut [Fragment],
        reading: Reading,
        kept: &mut Kept,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<BTreeMap<usize, (PeerId, bool)>, AuthorError> {
        let Reading { place, bytes, keep } = reading;
        let fragments_wanted = fragments.iter().enumerate().filter(|(at, _)| wanted(*at));
        let claims = fragments_wanted.flat_map(|(at, fragment)| {
            let (kind, id) = (fragment.kind, fragment.id);
            let held = fragment.holders.iter().enumerate().filter(|(_, holder)| holder.held);
            held.map(move |(of, holder)| (at, of, Asked { kind, id, place, peer: holder.peer }))
        });
        let claims: Vec<_> = claims.collect();
        let mut failed = BTreeMap::new();
        let mut reads = futures::stream::iter(claims)
            .map(|(at, of, asked)| async move { (at, of, asked, self.read_at(asked, bytes).await) })
            .buffer_unordered(READ_AT_ONCE);
        while let Some((at, of, asked, answer)) = reads.next().await {
            match answer? {
                Answer::Right(record) => {
                    checked.read += 1;
                    checked.read_bytes += record.bytes.len() as u64;
                    kept.keep(at, record, keep);
                }
                Answer::No { wrong } => {
                    if let Some(holder) = holder_mut(fragments, at, of) {
                        holder.held = false;
                        holder.reachable = wrong;
                    }
                    failed.insert(at, (asked.peer, wrong));
                    if wrong && checked.wrong.len() < WRONG_MAX {
                        checked.wrong.push(Wrong { id: asked.id, peer: asked.peer });
                    }
                }
            }
        }
        failed.retain(|at, _| {
            let held = |one: &Fragment| one.holders.iter().any(|holder| holder.held);
            !fragments.get(*at).is_some_and(held)
        });
        Ok(failed)
    }

    /// Reads a record of about so many bytes at one peer, and proves it.
    async fn read_at(&self, asked: Asked, bytes: usize) -> Result<Answer, AuthorError> {
        let Asked { kind, id, place, peer } = asked;
        let Some(to) = self.walker().directory().endpoint(&peer) else {
            return Ok(Answer::No { wrong: false });
        };
        let request = FindRequest { id, place };
        let record = match self.walker().find_at(&peer, &to, request, bytes).await {
            Ok(FindResponse::Found(record)) => record,
            Ok(FindResponse::Closest(_)) => return Ok(Answer::No { wrong: true }),
            Err(error) => {
                let wrong = matches!(
                    error,
                    env::calls::CallError::NotFound | env::calls::CallError::Corrupt { .. }
                );
                return Ok(Answer::No { wrong });
            }
        };
        let suite = self.suite();
        let right = move || {
            let asked_for = |record: &Record| record.id == id && record.kind == kind;
            let right = asked_for(&record) && prove(suite, &record).is_ok();
            right.then_some(Record { place, ..record })
        };
        let right = Job::cpu(self.env(), right).await.ok_or(AuthorError::Stopped)?;
        Ok(right.map_or(Answer::No { wrong: true }, Answer::Right))
    }
}

/// What is read, and how much of it is kept.
#[derive(Clone, Copy)]
struct Reading {
    place: Place,
    /// Bytes of a record, at most.
    bytes: usize,
    /// How many records are kept.
    keep: usize,
}

/// Records that were read and are right, by their number, with the part of the window for them and for as many as are made
/// of them at once.
struct Kept {
    records: BTreeMap<usize, Record>,
    _lease: Option<Lease>,
}

impl Kept {
    /// Keeps a record if it is among the first `max` by their number.
    fn keep(&mut self, at: usize, record: Record, max: usize) {
        self.records.insert(at, record);
        if self.records.len() > max {
            self.records.pop_last();
        }
    }
}

/// A record that is asked of one peer.
#[derive(Clone, Copy)]
struct Asked {
    kind: Kind,
    id: RecordId,
    place: Place,
    peer: PeerId,
}

/// What a holder sent.
enum Answer {
    /// The record.
    Right(Record),
    /// Something else, or nothing; `wrong` where it answered and that was its answer.
    No { wrong: bool },
}

fn holder_mut(fragments: &mut [Fragment], at: usize, of: usize) -> Option<&mut Holder> {
    fragments.get_mut(at)?.holders.get_mut(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Checked {
        Checked {
            address: RecordId::new([1; 32]),
            entry: RecordId::new([2; 32]),
            bytes: 0,
            profile: None,
            state: State::Full,
            records: 0,
            stripes: 0,
            stripes_lacking: 0,
            counts: [0; 4],
            missing: 0,
            survives: u32::MAX,
            read: 0,
            read_bytes: 0,
            wrong: Vec::new(),
            miscoded: Vec::new(),
        }
    }

    #[test]
    fn stripes_that_lack_fragments_are_told_beside_copies_that_lack() {
        let peer = PeerId::new(crypto::SecretKey::from_slice(&[7; 32]).expect("a scalar").public());
        let fragment = |held: bool| Fragment {
            id: RecordId::new([2; 32]),
            kind: Kind::Page,
            index: None,
            stripe: None,
            number: None,
            holders: vec![Holder { peer, organisation: None, held, reachable: true }],
        };
        let mut checked = empty();
        checked.add_copies(&fragment(true), 3);
        checked.add_stripe(&[fragment(true), fragment(true)], 1);
        checked.add_stripe(&[fragment(true), fragment(false)], 1);
        assert_eq!((checked.stripes, checked.stripes_lacking, checked.missing), (2, 1, 3));
    }

    #[test]
    fn the_worst_part_is_the_state_of_the_whole() {
        let mut checked = empty();
        checked.add(5, 0, 1, 5);
        assert_eq!((checked.state, checked.survives, checked.missing), (State::Full, 4, 0));
        checked.add(6, 2, 4, 8);
        assert_eq!((checked.state, checked.survives, checked.missing), (State::Lacking, 2, 2));
        checked.add(3, 1, 4, 8);
        assert_eq!((checked.state, checked.survives), (State::Unavailable, 0));
        checked.add(3, 0, 4, 8);
        assert_eq!((checked.state, checked.counts), (State::Lost, [1, 1, 1, 1]));
    }
}
