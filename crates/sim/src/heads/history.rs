//! What clients asked and were told, and what the members decided, of one trial.

use std::collections::BTreeMap;

use committee::{Header, HeaderDigest, Outcome, UpdateDigest};
use crypto::{RecordId, Suite};

use crate::history::Finding;

/// Where a branch is: a version, and since which height.
pub(super) type At = Option<(RecordId, u64)>;

/// An update as a client sent it.
#[derive(Clone, Debug)]
pub(super) struct Issued {
    pub(super) branch: String,
    pub(super) expected: At,
    pub(super) new: RecordId,
    /// Whether too few peers keep the version.
    pub(super) short: bool,
}

/// What a client was told, with when it asked and when it was told.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) invoked: u64,
    pub(super) returned: u64,
    pub(super) height: u64,
    pub(super) what: What,
}

/// Of what.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// Of an update.
    Update(UpdateDigest, Outcome),
    /// Of a head; whether it had to be fresh.
    Read(String, At, bool),
}

/// What a block did.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub(super) outcomes: Vec<(UpdateDigest, Outcome)>,
}

/// All of one trial.
#[derive(Default)]
pub(super) struct History {
    now: u64,
    keep: bool,
    hash: [u8; 32],
    pub(super) events: u64,
    pub(super) lines: Vec<String>,
    pub(super) findings: Vec<Finding>,
    pub(super) tallies: BTreeMap<&'static str, u64>,
    pub(super) issued: BTreeMap<UpdateDigest, Issued>,
    pub(super) told: Vec<Told>,
    pub(super) chain: BTreeMap<u64, Decided>,
    certified: BTreeMap<u64, HeaderDigest>,
}

impl History {
    pub(super) fn new(keep: bool) -> Self {
        Self { keep, ..Self::default() }
    }

    /// The next moment: everything happens on one thread, so the order in which it is written down is that of time.
    pub(super) fn moment(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    pub(super) fn event(&mut self, line: String) {
        self.events += 1;
        self.hash = Suite::Holdfast1.hash(&[&self.hash[..], line.as_bytes()].concat());
        if self.keep {
            self.lines.push(line);
        }
    }

    pub(super) fn tally(&mut self, what: &'static str) {
        *self.tallies.entry(what).or_default() += 1;
    }

    pub(super) fn find(&mut self, promise: &'static str, what: String) {
        self.event(format!("FOUND {promise}: {what}"));
        // One is enough to look at, a hundred of the same are too many.
        if self.findings.len() < 20 {
            self.findings.push(Finding { promise, what });
        }
    }

    pub(super) const fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// A certified header: there is one for each height.
    pub(super) fn certified(&mut self, header: &Header) {
        let (height, digest) = (header.height, header.digest());
        let known = *self.certified.entry(height).or_insert(digest);
        if known != digest {
            self.find("Q4", format!("two blocks are certified at height {height}"));
        }
    }

    /// A block that became final at a member.
    pub(super) fn decided(
        &mut self,
        who: &str,
        header: &Header,
        outcomes: Vec<(UpdateDigest, Outcome)>,
    ) {
        self.certified(header);
        let height = header.height;
        if !self.chain.contains_key(&height) {
            self.event(format!("{who}: height {height} with {} updates", outcomes.len()));
            self.chain.insert(height, Decided { outcomes });
        }
    }
}
