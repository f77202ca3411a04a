//! A keyring on a new machine: which of its counters were used, and for what, by the logs of librarians.
//!
//! ```text
//!   author keys of a window of counters --> Bloom filter --> logs of up to three librarians --> hits
//!                    ^                                                                            |
//!                    +-- the next window, until AHEAD counters in a row have no hit <-------------+
//! ```
//! It is not an index: nothing in the network says which contents are one user's, so each key that this user may have
//! used is asked for. That is why windows are large: all keys of one are in one filter, and the log is read once.
//!
//! Invariants: a hit has its row in `issued` before its content is opened, and the next counter is above every hit; what is told
//! was opened with this user's keys.
//!
//! A log that has no end in sight when two others were read is given up, and another librarian is asked (see the inbox); what it told
//! counts.
//!
//! What of it this user pays for, and until when, its holders know (`leases::found`): it is noted at home, for whoever renews all
//! that is noted. That goes for envelopes to others too, which are found under this user's author keys and do not open.
//!
//! Limits: logs go back some weeks ([`RecoverReport::complete`] says whether they did not); [`SCAN_MAX`] counters, the newest where it is
//! known how many there are. Where it is not and logs were cut, what is in them may begin at any counter: so it looks
//! further, and the next counter is [`UNTOLD_NEXT`] at least ([`RecoverReport::unsure`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crypto::{AuthorKey, PeerId, RecordId};
use document::Publication;
use document::bloom::Bloom;
use env::calls::{CallError, Cursor, Endpoint, SubscribeEvent, SubscribeRequest};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::author::Author;
use crate::error::AuthorError;
use crate::home::{COUNTERS_MAX, GAP, SCAN_MAX};
use crate::inbox::InboxEvent;
use crate::inbox::follow::{
    FIRST_ANSWER_LIMIT, LIMIT_GRACE, LOG_LIMIT, SILENCE_MAX, ended, rest_limit, silent,
};
use crate::types::{Details, LIBRARIANS_MAX};

/// Counters in a row without a publication after which no more are looked for.
pub const AHEAD: u64 = 8_192;
/// The least next counter of a keyring of which nobody says how far it was used, where logs were cut. Skipping costs nothing, and
/// the keys of so many are derived in seconds when an old content is opened.
pub const UNTOLD_NEXT: u64 = 65_536;
/// Counters that are looked for where also nothing of this user's is found.
const UNTOLD_MAX: u64 = 4 * UNTOLD_NEXT;
/// Keys in one filter, at most: beyond it too much of the log would pass.
const WINDOW_MAX: u64 = 32_768;
/// Envelopes that a librarian may tell of one counter: it has one.
const CLAIMS_MAX: usize = 4;
/// Contents opened at once.
const OPENED_MAX: usize = 16;
/// Librarians tried for one window, at most.
const TRIED_MAX: usize = 12;

/// A content that was found.
#[derive(Debug)]
pub struct Recovered {
    /// What it is opened by.
    pub address: RecordId,
    /// Its entry.
    pub entry: RecordId,
    /// Whether this user put it; else somebody shared it with this user.
    pub own: bool,
    /// When a librarian logged it, Unix milliseconds.
    pub received_ms: u64,
    /// What is sealed with it and when it was made (Unix seconds), or why it does not open now.
    pub opened: Result<(Details, u32), AuthorError>,
}

/// What a recovery came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoverReport {
    /// The next counter.
    pub next: u64,
    /// Contents of this user.
    pub own: u64,
    /// Contents that others shared.
    pub received: u64,
    /// Of those, the ones that did not open.
    pub unopened: u64,
    /// Contents, and envelopes to others, that this user pays for, all of which the home notes now ([`Author::paid`]).
    pub paid: u64,
    /// Contents of this user of which it could not be asked who pays: no holder answered, or a librarian walks for this user.
    pub unasked: u64,
    /// Whether every log that was read goes back to its start and had an end, and all counters were looked for: else some may be
    /// missing.
    pub complete: bool,
    /// Whether all that was found is noted where it is paid for: all of it opened, and holders of all of it said who pays.
    pub noted: bool,
    /// Whether nothing says how far the counters were used: logs were cut, none of this user's is in them, and nobody told the next
    /// one. Those from `next` on may be used a second time, if more were issued before.
    pub unsure: bool,
}

/// What this user's author keys were used for.
#[derive(Default)]
struct Used {
    /// Of each counter the envelopes to this user that it is said to have, and when they were logged.
    own: Vec<Vec<(Publication, u64)>>,
    /// Envelopes that are said to be to others.
    to_others: Vec<RecordId>,
}

/// What the log of one librarian has for a window.
#[derive(Default)]
struct Logged {
    /// By counter: the publications under its key, and when they were logged.
    hits: BTreeMap<u64, Vec<(Publication, u64)>>,
    /// Whether some may be missing.
    gap: bool,
    /// Whether a log does not go back to its start.
    cut: bool,
}

impl Logged {
    fn add(&mut self, counter: u64, publication: Publication, received_ms: u64, max: usize) {
        let claims = self.hits.entry(counter).or_default();
        let known = claims.iter().any(|(known, _)| *known == publication);
        if !known && claims.len() < max {
            claims.push((publication, received_ms));
        }
    }

    fn merge(&mut self, other: Self) {
        self.gap |= other.gap;
        self.cut |= other.cut;
        for (counter, claims) in other.hits {
            for (publication, received_ms) in claims {
                // What one librarian invents takes no place from what another one tells.
                self.add(counter, publication, received_ms, CLAIMS_MAX * LIBRARIANS_MAX);
            }
        }
    }
}

impl Author {
    /// Finds what this user's keys were used for, tells each content to `each`, and sees to it that no counter is issued
    /// again. `told` is the next counter, where it is known.
    ///
    /// It changes nothing but the rows of issued counters and the notes of what is paid for, so it may be run again at any time,
    /// also after it was dropped.
    ///
    /// # Errors
    /// [`AuthorError::NoPeers`], [`AuthorError::Follow`] where no librarian lets its log be read, [`AuthorError::Exhausted`] for a
    /// counter that there is not, and what the home says. A content that does not open is no error: see [`Recovered::opened`].
    pub async fn recover(
        self: &Arc<Self>,
        told: Option<u64>,
        mut each: impl FnMut(Recovered) + Send,
    ) -> Result<RecoverReport, AuthorError> {
        if told.is_some_and(|told| told >= COUNTERS_MAX) {
            return Err(AuthorError::Exhausted);
        }
        let mut logged = self.used(told).await?;
        let highest = logged.hits.last_key_value().map_or(0, |(counter, _)| counter + 1 + GAP);
        let counters: BTreeSet<u64> = logged.hits.keys().copied().collect();
        let untold = told.is_none() && logged.cut;
        let least = if untold { UNTOLD_NEXT } else { told.unwrap_or_default() };
        let unsure = untold && counters.is_empty();
        self.at_home(move |home| home.recovered(&counters, highest.max(least))).await?;
        let (next, forgotten) =
            self.at_home(|home| Ok((home.next_counter()?, home.forgotten()?))).await?;
        logged.hits.retain(|counter, _| !forgotten.contains(counter));
        let complete = !logged.gap;
        let mut report = RecoverReport { next, complete, unsure, ..RecoverReport::default() };

        let Used { own, to_others: mut others } = self.used_for(logged).await?;
        let mut opened = futures::stream::iter(own)
            .map(|claims| self.opened_of(claims))
            .buffer_unordered(OPENED_MAX);
        let mut own = Vec::new();
        while let Some(content) = opened.next().await {
            let Some(content) = content else { continue };
            report.own += 1;
            match content.opened {
                Ok(_) => own.push(content.address),
                Err(_) => report.unopened += 1,
            }
            each(content);
        }
        others.extend(self.received(&mut report, &mut each).await?);
        let found = self.note_found(&own).await?;
        // What is under the others' addresses is a librarian's word until a lease is.
        let of_others = self.note_found(&others).await?;
        report.paid = found.paid + of_others.paid;
        report.unasked = found.unasked;
        report.noted = report.unopened + found.unasked + of_others.unasked == 0;
        Ok(report)
    }

    /// Drops the notes of what is paid for that are damaged, once all that can be found is noted anew ([`RecoverReport::noted`]).
    ///
    /// # Errors
    /// What the home says.
    pub async fn drop_damaged_notes(&self) -> Result<(), AuthorError> {
        self.at_home(|home| home.drop_damaged_notes()).await
    }

    /// What others shared, as the inbox tells it; the addresses.
    async fn received(
        self: &Arc<Self>,
        report: &mut RecoverReport,
        each: &mut (impl FnMut(Recovered) + Send),
    ) -> Result<Vec<RecordId>, AuthorError> {
        let complete = &mut report.complete;
        let inbox = self.inbox(false, &[]).inspect(|event| {
            *complete &= !matches!(event, Ok(InboxEvent::Gap { .. }));
        });
        let told = inbox.map(|event| async move {
            let InboxEvent::Received(received) = event? else { return Ok(None) };
            let publication = Publication {
                envelope: received.address,
                entry: received.entry,
                author: received.author,
                reader: received.reader,
            };
            Ok(Some(self.opened(publication, received.received_ms, false).await))
        });
        let told = told.buffer_unordered(OPENED_MAX);
        futures::pin_mut!(told);
        let mut addresses = Vec::new();
        while let Some(content) = told.next().await.transpose()? {
            let Some(content) = content else { continue };
            report.received += 1;
            report.unopened += u64::from(content.opened.is_err());
            addresses.push(content.address);
            each(content);
        }
        Ok(addresses)
    }

    /// Of the envelopes that one counter is said to have, the one that opens and is that counter's: a librarian may name another
    /// of this user's, which opens too, and so hide this one.
    async fn opened_of(&self, claims: Vec<(Publication, u64)>) -> Option<Recovered> {
        let mut unopened = None;
        for (publication, received_ms) in claims {
            let content = self.opened(publication, received_ms, true).await;
            if content.opened.is_ok() {
                return Some(content);
            }
            unopened.get_or_insert(content);
        }
        unopened
    }

    async fn opened(&self, publication: Publication, received_ms: u64, own: bool) -> Recovered {
        let Publication { envelope: address, entry, .. } = publication;
        let opened = async {
            let opened = self.open(address).await?;
            let says = Publication::from_envelope(address, &opened.envelope);
            if own && says != publication {
                return Err(AuthorError::NotForUs { address });
            }
            self.content_of(opened).await
        };
        let opened = opened.await.map(|content| (content.details(), content.created_s));
        Recovered { address, entry, own, received_ms, opened }
    }

    /// Of the publications under this user's author keys, those to this user, by counter, and the others: shares.
    async fn used_for(&self, logged: Logged) -> Result<Used, AuthorError> {
        let home = Arc::clone(self.home());
        let sorted = move || {
            let mut used = Used::default();
            for (counter, claims) in logged.hits {
                let own = home.keyring().own_reader(counter).public();
                let ours = |(claim, _): &(Publication, u64)| *claim.reader.key() == own;
                let (own, others): (Vec<_>, Vec<_>) = claims.into_iter().partition(ours);
                used.own.push(own);
                used.to_others.extend(others.iter().map(|(share, _)| share.envelope));
            }
            used
        };
        self.cpu(sorted).await
    }

    /// Every publication under this user's author keys that librarians have in their logs.
    async fn used(&self, told: Option<u64>) -> Result<Logged, AuthorError> {
        let mut all = Logged::default();
        let known = told.unwrap_or_default();
        // The newest are the ones that logs still have.
        let start = known.saturating_add(AHEAD).saturating_sub(SCAN_MAX as u64);
        let last = start.saturating_add(SCAN_MAX as u64);
        all.gap = start > 0;
        let mut window = start..start + (known + AHEAD - start).clamp(AHEAD, WINDOW_MAX);
        loop {
            all.merge(self.window_used(window.clone()).await?);
            let highest =
                all.hits.last_key_value().map_or(known, |(counter, _)| known.max(*counter));
            let enough = match told {
                None if all.cut && all.hits.is_empty() => UNTOLD_MAX,
                None if all.cut => highest.saturating_add(AHEAD).max(UNTOLD_NEXT),
                _ => highest.saturating_add(AHEAD),
            };
            tracing::info!(looked_at = window.end, hits = all.hits.len(), "logs were read");
            if window.end >= enough {
                return Ok(all);
            }
            if window.end >= last {
                all.gap = true;
                return Ok(all);
            }
            let length = (window.end - window.start).saturating_mul(2).min(WINDOW_MAX);
            window = window.end..(window.end + length).min(last);
        }
    }

    /// As [`Author::used`], for these counters: by as many librarians as an inbox follows, one of which must answer.
    async fn window_used(&self, counters: Range<u64>) -> Result<Logged, AuthorError> {
        let home = Arc::clone(self.home());
        let seed = u64::from_be_bytes(self.env().random());
        let keys = self.cpu(move || {
            let mut filter = Bloom::with_capacity((counters.end - counters.start) as usize, seed);
            let mut keys = BTreeMap::new();
            for counter in counters {
                let key = AuthorKey::new(home.keyring().author(counter).public());
                filter.insert(key.as_bytes());
                keys.insert(key, counter);
            }
            (filter.encode(), keys)
        });
        let (filter, keys) = keys.await?;
        let mut untried = self.librarians().await?;
        // The best are the last of them.
        untried.drain(..untried.len().saturating_sub(TRIED_MAX));
        let (mut all, mut answered, mut failed) = (Logged::default(), 0, CallError::NotFound);
        // How long it took until two logs were read to their ends.
        let mut two: Option<Duration> = None;
        let clock = &self.env().clock;
        while answered < LIBRARIANS_MAX && !untried.is_empty() {
            let some = untried.split_off(untried.len().saturating_sub(LIBRARIANS_MAX - answered));
            let logged: Vec<Mutex<Logged>> = some.iter().map(|_| Mutex::default()).collect();
            let reads = some.into_iter().zip(&logged).map(|((peer, to), logged)| {
                let request = SubscribeRequest {
                    authors: Some(filter.clone()),
                    // Its own offset 0, not "the start": so a log that was cut says so.
                    from: Cursor { peer: Some(peer), ..Cursor::default() },
                    ..SubscribeRequest::default()
                };
                self.log_of(peer, to, request, &keys, logged)
            });
            let mut reads: FuturesUnordered<_> = reads.collect();
            let begun = clock.elapsed();
            let mut until = begun + two.map_or(LOG_LIMIT, |two| two + rest_limit(two));
            loop {
                let left = until.saturating_sub(clock.elapsed());
                match self.env().within(left, reads.next()).await {
                    Ok(None) => break,
                    Ok(Some(Ok(()))) => {
                        answered += 1;
                        if answered == 2 {
                            let took = clock.elapsed() - begun;
                            (two, until) = (Some(took), begun + took + rest_limit(took));
                        }
                    }
                    Ok(Some(Err(error))) => failed = error,
                    // Those whose logs have no end in sight are given up, and others asked in their place.
                    Err(_) => {
                        let address = "librarians whose logs do not end".to_owned();
                        failed = CallError::TimedOut { address, limit: until - begun };
                        all.gap = true;
                        break;
                    }
                }
            }
            drop(reads);
            // Also of those that broke off: no counter that anybody told of is issued again.
            for one in logged {
                all.merge(one.into_inner().unwrap_or_else(PoisonError::into_inner));
            }
        }
        if answered == 0 { Err(AuthorError::Follow(failed)) } else { Ok(all) }
    }

    /// Whose logs to read, the best last: those that are well in random order, or the one that walks for this user.
    async fn librarians(&self) -> Result<Vec<(PeerId, Endpoint)>, AuthorError> {
        if self.walker().is_thin() {
            let to = self.walker().librarian().await.map_err(|_| AuthorError::NoPeers)?;
            return Ok(to.peer.map(|peer| (peer, to)).into_iter().collect());
        }
        let directory = self.walker().directory();
        let mut peers: Vec<_> = directory
            .peers()
            .into_iter()
            .map(|status| (status.health, u64::from_be_bytes(self.env().random()), status.peer))
            .collect();
        peers.sort_unstable();
        let found = peers.into_iter().rev();
        let found: Vec<_> =
            found.filter_map(|(_, _, peer)| Some((peer, directory.endpoint(&peer)?))).collect();
        if found.is_empty() { Err(AuthorError::NoPeers) } else { Ok(found) }
    }

    /// Reads one librarian's log to its end, into `logged`.
    async fn log_of(
        &self,
        peer: PeerId,
        to: Endpoint,
        request: SubscribeRequest,
        keys: &BTreeMap<AuthorKey, u64>,
        logged: &Mutex<Logged>,
    ) -> Result<(), CallError> {
        let call = self.walker().calls().subscribe(&to, request, FIRST_ANSWER_LIMIT);
        let answer = self.env().within(FIRST_ANSWER_LIMIT + LIMIT_GRACE, call).await;
        let mut events = answer.map_err(|elapsed| silent(&peer, elapsed.0))??;
        let logged = || logged.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let next = self.env().within(SILENCE_MAX, events.next()).await;
            match next.map_err(|elapsed| silent(&peer, elapsed.0))? {
                None => return Err(ended(&peer)),
                Some(event) => match event? {
                    SubscribeEvent::CaughtUp { .. } => return Ok(()),
                    SubscribeEvent::Gap { .. } => {
                        let mut logged = logged();
                        (logged.gap, logged.cut) = (true, true);
                    }
                    SubscribeEvent::Publication { publication, received_ms, .. } => {
                        // What passes the filter and is not of this window is no error: one in a hundred does.
                        if let Ok(publication) = Publication::decode(&publication)
                            && let Some(counter) = keys.get(&publication.author)
                        {
                            // As of an inbox: a librarian's calendar may have been ahead.
                            let received_ms = received_ms.min(self.env().clock.unix_ms());
                            logged().add(*counter, publication, received_ms, CLAIMS_MAX);
                        }
                    }
                },
            }
        }
    }
}
