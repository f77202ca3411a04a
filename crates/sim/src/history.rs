//! What happened in one run, in order, and what the checkers look at: events, acknowledgements, contents, findings.
//!
//! Every event is a line of text and is hashed as it comes; the hash of two runs of one seed must be equal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use crypto::lease::{Checked, Shown};
use crypto::{Genesis, OrgId, Place, RecordId, Suite};
use document::{Document, Record, Stripe};
use env::Clock;

use crate::check::answers::Promise;
use crate::check::holdings::Received;
use crate::search::Needle;

/// A promise that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which promise: `Q1`, `Q2`, `Q5`, `Q6`, or `N1` (no index sealed twice).
    pub promise: &'static str,
    /// What was seen.
    pub what: String,
}

/// A content that somebody put.
#[derive(Clone, Debug)]
pub struct Content {
    /// Its author.
    pub author: usize,
    /// What it is.
    pub bytes: Bytes,
    /// Where its author finds it.
    pub address: RecordId,
    /// Whether the author was told that all copies are stored.
    pub full: bool,
    /// Readers and where they find it.
    pub shared: Vec<(usize, RecordId)>,
    /// How many losses it survives.
    pub promise: Promise,
}

/// A lease, as it was shown for one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Paid {
    /// Who pays.
    pub(crate) organisation: OrgId,
    /// What one holder keeps there at most.
    pub(crate) bytes: u64,
    /// When it ends, Unix seconds.
    pub(crate) until: u64,
}

/// What a run has seen so far. Shared by everything in it.
#[derive(Clone)]
pub struct History(Arc<Mutex<Inner>>);

pub(crate) struct Inner {
    clock: Arc<dyn Clock>,
    needle: Needle,
    hash: [u8; 32],
    pub(crate) events: u64,
    kept: Option<Vec<String>>,
    pub(crate) findings: Vec<Finding>,
    /// Records that each peer said it has durably, and where they live.
    pub(crate) acknowledged: BTreeMap<usize, BTreeMap<RecordId, Place>>,
    /// Peers that acknowledged to each author, by record.
    pub(crate) received: BTreeMap<usize, Received>,
    /// Stripes whose headers were sent to anybody.
    pub(crate) stripes: BTreeMap<RecordId, Stripe>,
    /// Pages seen, by author key and index.
    pages: BTreeMap<([u8; 33], u32), RecordId>,
    pub(crate) contents: Vec<Content>,
    /// What was ever shown as paid for, by place.
    pub(crate) paid: BTreeMap<Place, BTreeSet<Paid>>,
    /// Records whose author ended, or tried to end, what pays for them.
    pub(crate) ended: BTreeSet<RecordId>,
    /// Stripes whose header lies; how many fragments each run of each party fetched of one.
    pub(crate) poisoned: BTreeMap<Place, BTreeMap<(usize, u64), u32>>,
    pub(crate) tallies: BTreeMap<&'static str, u64>,
}

impl Inner {
    /// The hash of all events so far.
    pub(crate) fn hash_of(&self) -> [u8; 32] {
        self.hash
    }

    /// The events, where they are kept.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.kept.clone().unwrap_or_default()
    }
}

/// Findings kept of one run; more of them say nothing new.
const FINDINGS_MAX: usize = 32;

impl History {
    /// An empty history of a run by this clock; `keep` keeps the lines and not only their hash.
    pub fn new(clock: Arc<dyn Clock>, needle: Needle, keep: bool) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            clock,
            needle,
            hash: [0; 32],
            events: 0,
            kept: keep.then(Vec::new),
            findings: Vec::new(),
            acknowledged: BTreeMap::new(),
            received: BTreeMap::new(),
            stripes: BTreeMap::new(),
            pages: BTreeMap::new(),
            contents: Vec::new(),
            paid: BTreeMap::new(),
            ended: BTreeSet::new(),
            poisoned: BTreeMap::new(),
            tallies: BTreeMap::new(),
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened.
    pub fn event(&self, what: impl AsRef<str>) {
        let mut inner = self.lock();
        let line = format!("{:>9} {}", inner.clock.elapsed().as_millis(), what.as_ref());
        let mut input = inner.hash.to_vec();
        input.extend_from_slice(line.as_bytes());
        inner.hash = Suite::Holdfast1.hash(&input);
        inner.events += 1;
        if let Some(kept) = &mut inner.kept {
            kept.push(line);
        }
    }

    /// A log line of a program: kept beside the events, and no part of their hash.
    pub fn logged(&self, line: &str) {
        let mut inner = self.lock();
        let at = inner.clock.elapsed().as_millis();
        if let Some(kept) = &mut inner.kept {
            kept.push(format!("{at:>9} log:{line}"));
        }
    }

    /// Counts something that runs should meet now and then.
    pub fn tally(&self, what: &'static str) {
        self.tally_many(what, 1);
    }

    /// Counts something so many times.
    pub fn tally_many(&self, what: &'static str, times: u64) {
        *self.lock().tallies.entry(what).or_default() += times;
    }

    /// A promise does not hold.
    pub fn find(&self, promise: &'static str, what: String) {
        self.event(format!("FOUND {promise} {what}"));
        let mut inner = self.lock();
        if inner.findings.len() < FINDINGS_MAX {
            inner.findings.push(Finding { promise, what });
        }
    }

    /// What is planted in every content, name and type.
    pub fn needle(&self) -> Needle {
        self.lock().needle.clone()
    }

    /// Bytes go over a wire: they are searched for what is planted (Q5).
    pub fn on_wire(&self, what: &str, bytes: &Bytes) {
        if self.needle().is_in(bytes) {
            self.find("Q5", format!("a plaintext marker in a message: {what}"));
        }
    }

    /// Leases go over a wire.
    pub(crate) fn leased(&self, leases: &[Shown], genesis: &Genesis) {
        for shown in leases {
            let checked = Checked::trusted(&shown.lease, &shown.pass, genesis);
            let Ok(checked) = checked else { continue };
            let (organisation, until) = (checked.organisation, checked.terms.until);
            for leaf in shown.leaves.iter().map(|shown| shown.leaf) {
                let paid = Paid { organisation, bytes: leaf.bytes, until };
                self.lock().paid.entry(leaf.place).or_default().insert(paid);
            }
        }
    }

    /// Whether nobody pays any more for a record that somebody paid for: its author ended it, or its time is over at this time,
    /// Unix seconds.
    pub(crate) fn is_over(&self, id: &RecordId, place: &Place, now_s: u64) -> bool {
        let inner = self.lock();
        let paid = inner.paid.get(place);
        inner.ended.contains(id)
            || paid.is_some_and(|paid| paid.iter().all(|one| one.until <= now_s))
    }

    /// A party was sent a record that lives at this place.
    pub(crate) fn fetched(&self, party: usize, run: u64, place: Place) {
        if let Some(fetched) = self.lock().poisoned.get_mut(&place) {
            *fetched.entry((party, run)).or_default() += 1;
        }
    }

    /// An author sends a page: no two of one key and index may differ (`N1`). Headers of stripes are kept.
    pub(crate) fn page_sent(&self, record: &Record) {
        let page = match Document::decode(&record.bytes) {
            Ok(Document::Page(page)) => page,
            Ok(Document::Stripe(stripe)) => {
                self.lock().stripes.insert(record.id, stripe);
                return;
            }
            _ => return,
        };
        let mut key = [0; 33];
        key.copy_from_slice(page.author.as_bytes());
        let before = *self.lock().pages.entry((key, page.index)).or_insert(record.id);
        if before != record.id {
            self.find("N1", format!("index {} of one key was sealed twice", page.index));
        }
    }
}
