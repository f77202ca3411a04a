//! Versions that others made, on their way into the store, and those that they stand on and that are not here.
//!
//! A version that comes before its base is taken, and its base must not become a tip when it comes. Two that come at once
//! do not see each other in the index yet. So both kinds are remembered here, and what becomes of one is decided under one
//! lock, behind its write: whoever is second sees the first.
//!
//! A version is waited for as one of the object whose version stands on it, and as no other's: else whoever names a stranger's
//! version that is not here yet as the base of one of his own would keep it from becoming a tip.
//!
//! A base that is not here may be none: whoever makes versions up has as many awaited as he likes. So of what organisations bring
//! in one run of the peer [`AWAITED_MAX`] are remembered, and each has no more of them than it leaves free (the dynamic threshold of
//! shared buffers: Choudhury and Hahne, 1998): none keeps others from writing. What waits on its way into the store counts too.
//!
//! Two are not bounded, and take none of that room. What was awaited at the start: by whom, nobody knows any more, and who filled
//! his share in one run would have filled it for all in the next. And what was fetched to keep the network whole: its holders took
//! it within their bounds, and may be the last that have it; one that is refused here has a copy too few. Neither is without a
//! bound for that. A version has two bases at most, so they are fewer than twice the versions here, and one takes less (about 30
//! bytes) than a version's row in the store's index and its tip do: it is the disk that bounds all of these.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crypto::{OrgId, RecordId, Suite};
use foldhash::fast::RandomState;
use version::ObjectKey;

/// Versions at most that are waited for since organisations brought what stands on them in this run: about 45 MB.
const AWAITED_MAX: usize = 1 << 20;

/// A version of an object that something of that object stands on: so much of a hash of both that nobody makes two alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Base([u8; 16]);

impl Base {
    pub(crate) fn new(suite: Suite, object: &ObjectKey, h: &RecordId) -> Self {
        let mut both = [0; 64];
        both[..32].copy_from_slice(object.as_bytes());
        both[32..].copy_from_slice(h.as_bytes());
        let mut base = [0; 16];
        base.copy_from_slice(&suite.hash(&both)[..16]);
        Self(base)
    }
}

pub(crate) struct Arrivals {
    state: Mutex<State>,
}

pub(crate) struct State {
    /// Bases of versions here that are not here themselves: of those that are not bounded.
    awaited: HashSet<Base, RandomState>,
    /// The others, and in whose share each is.
    brought: HashMap<Base, u32, RandomState>,
    shares: Shares,
    /// Versions in the store that could not be read when it was opened, so that nothing is known of what they stand on.
    pub(crate) unread: HashSet<RecordId, RandomState>,
    /// Versions being written, and by how many.
    arriving: HashMap<RecordId, u32, RandomState>,
}

/// How much of something bounded each organisation has. One that had any keeps its row, of some 50 bytes, for the run.
struct Shares {
    max: usize,
    held: usize,
    rows: HashMap<OrgId, u32, RandomState>,
    own: Vec<usize>,
}

impl Shares {
    fn new(max: usize) -> Self {
        Self { max, held: 0, rows: HashMap::default(), own: Vec::new() }
    }

    fn row(&mut self, of: &OrgId) -> u32 {
        let Self { rows, own, .. } = self;
        *rows.entry(*of).or_insert_with(|| {
            own.push(0);
            (own.len() - 1) as u32
        })
    }

    /// Adds so many where they leave as much free as the organisation has then; whether they do.
    fn reserve(&mut self, of: &OrgId, more: usize) -> bool {
        let row = self.row(of);
        let free = self.max.saturating_sub(self.held);
        let own = self.own[row as usize];
        let fits = more <= free && (own == 0 || own + more <= free);
        if fits {
            self.add(row, more);
        }
        fits
    }

    fn add(&mut self, row: u32, more: usize) {
        self.held += more;
        self.own[row as usize] += more;
    }

    fn give_back(&mut self, row: u32, less: usize) {
        self.held = self.held.saturating_sub(less);
        let own = &mut self.own[row as usize];
        *own = own.saturating_sub(less);
    }
}

impl Arrivals {
    pub(crate) fn new(
        awaited: HashSet<Base, RandomState>,
        unread: HashSet<RecordId, RandomState>,
    ) -> Self {
        let (brought, arriving) = (HashMap::default(), HashMap::default());
        let shares = Shares::new(AWAITED_MAX);
        Self { state: Mutex::new(State { awaited, brought, shares, unread, arriving }) }
    }

    /// Nothing that can panic half-way through a change runs under the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn awaited(&self) -> u64 {
        let state = self.lock();
        (state.awaited.len() + state.brought.len()) as u64
    }

    pub(crate) fn is_arriving(&self, h: &RecordId) -> bool {
        self.lock().arriving.contains_key(h)
    }
}

impl State {
    pub(crate) fn begin(&mut self, h: RecordId) {
        *self.arriving.entry(h).or_default() += 1;
    }

    /// It is in the store; whether nobody else said so since it began.
    pub(crate) fn arrived(&mut self, h: &RecordId) -> bool {
        self.arriving.remove(h).is_some()
    }

    /// One that wrote it failed.
    pub(crate) fn failed(&mut self, h: &RecordId) {
        if let Some(count) = self.arriving.get_mut(h) {
            *count -= 1;
            if *count == 0 {
                self.arriving.remove(h);
            }
        }
    }

    pub(crate) fn is_arriving(&self, h: &RecordId) -> bool {
        self.arriving.contains_key(h)
    }

    /// Whether something here stands on a version that is not.
    pub(crate) fn is_awaited(&self, base: &Base) -> bool {
        self.awaited.contains(base) || self.brought.contains_key(base)
    }

    /// Keeps room for so many more of an organisation's; whether there is.
    pub(crate) fn reserve(&mut self, of: &OrgId, bases: usize) -> bool {
        bases == 0 || self.shares.reserve(of, bases)
    }

    /// Takes back what was kept.
    pub(crate) fn give_back(&mut self, of: &OrgId, bases: usize) {
        if bases > 0 {
            let row = self.shares.row(of);
            self.shares.give_back(row, bases);
        }
    }

    /// Something that came stands on a version that is not here; `None` for what is not bounded.
    pub(crate) fn wait_for(&mut self, base: Base, of: Option<&OrgId>) {
        if self.is_awaited(&base) {
            return;
        }
        match of {
            None => drop(self.awaited.insert(base)),
            Some(of) => {
                let row = self.shares.row(of);
                self.shares.add(row, 1);
                self.brought.insert(base, row);
            }
        }
    }

    /// A version came; whether it was waited for.
    pub(crate) fn came(&mut self, base: &Base) -> bool {
        if let Some(row) = self.brought.remove(base) {
            self.shares.give_back(row, 1);
            return true;
        }
        self.awaited.remove(base)
    }

    #[cfg(test)]
    pub(crate) fn bound(&mut self, max: usize) {
        self.shares.max = max;
    }
}

#[cfg(test)]
mod tests {
    use crypto::SecretKey;

    use super::*;

    fn organisation(number: u8) -> OrgId {
        OrgId::new(SecretKey::from_bytes(&[number; 32]).expect("a scalar").public())
    }

    fn id(number: u32) -> Base {
        Base(u128::from(number).to_be_bytes())
    }

    #[test]
    fn what_one_organisations_versions_stand_on_leaves_room_for_anothers() {
        let found = (1_000_000..1_001_000).map(id).collect();
        let arrivals = Arrivals::new(found, HashSet::default());
        let mut state = arrivals.lock();
        state.bound(128);
        let [one, two] = [1, 2].map(organisation);
        let mut next = 0;
        let mut fill = |state: &mut State, of: &OrgId| {
            let before = next;
            while state.reserve(of, 2) {
                for _ in 0..2 {
                    state.wait_for(id(next), Some(of));
                    next += 1;
                }
                state.give_back(of, 2);
            }
            next - before
        };
        assert_eq!(fill(&mut state, &one), 64, "what was there at the start takes no room");
        assert_eq!(fill(&mut state, &two), 32);
        for number in 0..1_000 {
            state.wait_for(id(500_000 + number), None);
        }
        assert!(state.reserve(&two, 0) && !state.reserve(&two, 2));
        // What is awaited already is in one share, whoever stands on it too.
        state.wait_for(id(0), Some(&two));
        state.wait_for(id(1_000_000), Some(&two));
        assert_eq!((state.shares.held, state.brought.len()), (96, 96));
        for number in 0..64 {
            assert!(state.came(&id(number)) && !state.came(&id(number)));
        }
        assert!(state.came(&id(1_000_000)) && state.came(&id(500_000)));
        assert_eq!((state.shares.held, state.shares.own.as_slice()), (32, &[0, 32][..]));
        assert_eq!(fill(&mut state, &two), 32);
        assert!(state.reserve(&one, 64) && !state.reserve(&one, 1), "what is on its way counts");
        state.give_back(&one, 64);
        drop(state);
        assert_eq!(arrivals.awaited(), 2 * 999 + 64);
    }
}
