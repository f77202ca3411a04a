//! Which attestation names a version, and what is sent of it.
//!
//! Attestations are read from the store; in memory is what finds them. One of few versions has an entry for each of them, by eight bytes
//! of its hash. One of many, as a door signs a second's writes with, has a filter of [`BITS_EACH`] bits a version: a look
//! asks all filters, and reads the batch where one says that it may be there. So a million versions of a door cost
//! two and a half megabytes. Which bits stand for a version is a secret of this peer: whoever knew it would make batches whose
//! filters say that a stranger's version may be there, and enough of those are read instead of the one that names it.
//!
//! A batch that was read stays in memory with its tree, of which paths are made, by a budget.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use crypto::{RecordId, Suite};
use document::Kind;
use env::calls::CallError;
use store::StoreError;
use version::attestation::named;
use version::merkle::Tree;
use version::{AnyAttestation, ObjectRecord};

use super::ObjectShelf;

/// From so many versions on an attestation has a filter.
const MANY: usize = 64;
/// Bits of a filter for each version, and how many of them one sets: of ten thousand batches that do not name a version less than one
/// says that it may. A door makes one a second, 86,400 a day, and each is before those that were written earlier.
const BITS_EACH: usize = 20;
const PROBES: u64 = 14;
/// Attestations that name one version that are looked at.
const LOOKED_AT_MAX: usize = 16;
/// Attestations that are read to find them: some hundred thousand batches have so many that do not name it.
const READ_MAX: usize = 64;
/// Bytes of batches and their trees in memory.
const OPENED_BYTES_MAX: usize = 32 << 20;
/// From so many versions on a batch is hashed on a CPU thread.
const HEAVY: usize = 512;

/// What finds attestations.
pub(super) struct Attestations {
    index: Mutex<Index>,
    opened: Mutex<VecDeque<(RecordId, Arc<Opened>)>>,
    suite: Suite,
}

struct Index {
    /// By which a version's bits in filters are chosen.
    secret: [u8; 32],
    rows: Vec<RecordId>,
    /// The first bytes of a version's hash, and the row of one that names it.
    few: BTreeSet<(u64, u32)>,
    many: Vec<(u32, Filter)>,
}

/// Says of every version of a batch that it may be there, and of few others.
struct Filter {
    bits: Box<[u64]>,
}

/// What chooses a version's bits in filters of any length.
#[derive(Clone, Copy)]
struct Probes {
    first: u64,
    step: u64,
}

/// An attestation that was read.
pub(super) struct Opened {
    pub(super) attestation: AnyAttestation,
    record: Bytes,
    tree: OnceLock<Option<Tree>>,
}

fn word(bytes: &[u8; 32], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}

/// By which versions are told apart that stand in attestations of few.
fn short(h: &RecordId) -> u64 {
    word(h.as_bytes(), 0)
}

impl Probes {
    fn bits(self, count: u64) -> impl Iterator<Item = usize> {
        let Self { first, step } = self;
        (0..PROBES).map(move |n| (first.wrapping_add(step.wrapping_mul(n)) % count) as usize)
    }
}

impl Filter {
    fn new(hs: impl ExactSizeIterator<Item = Probes>) -> Self {
        let mut filter = Self { bits: vec![0; (hs.len() * BITS_EACH).div_ceil(64)].into() };
        for probes in hs {
            for bit in probes.bits(filter.count()) {
                filter.bits[bit / 64] |= 1 << (bit % 64);
            }
        }
        filter
    }

    fn count(&self) -> u64 {
        self.bits.len() as u64 * 64
    }

    fn may_contain(&self, probes: Probes) -> bool {
        probes.bits(self.count()).all(|bit| self.bits[bit / 64] & (1 << (bit % 64)) != 0)
    }
}

impl Index {
    fn new(secret: [u8; 32]) -> Self {
        Self { secret, rows: Vec::new(), few: BTreeSet::new(), many: Vec::new() }
    }

    fn probes(&self, h: &RecordId) -> Probes {
        let bytes = Suite::Holdfast1.mac(&self.secret, h.as_bytes());
        Probes { first: word(&bytes, 0), step: word(&bytes, 8) | 1 }
    }

    fn add(&mut self, id: RecordId, hs: &[RecordId]) {
        let Ok(row) = u32::try_from(self.rows.len()) else { return };
        self.rows.push(id);
        if hs.len() >= MANY {
            let filter = Filter::new(hs.iter().map(|h| self.probes(h)));
            self.many.push((row, filter));
        } else {
            self.few.extend(hs.iter().map(|h| (short(h), row)));
        }
    }

    /// Whether one of these versions is there.
    fn knows(&self, id: &RecordId, hs: &[RecordId]) -> bool {
        let is_it = |row: &u32| self.rows.get(*row as usize) == Some(id);
        match hs.len() >= MANY {
            true => self.many.iter().any(|(row, _)| is_it(row)),
            false => hs.first().is_some_and(|h| self.few(h).any(is_it)),
        }
    }

    /// Rows of attestations of few versions, one of which this is.
    fn few(&self, h: &RecordId) -> impl Iterator<Item = &u32> {
        let first = short(h);
        self.few.range((first, 0)..=(first, u32::MAX)).map(|(_, row)| row)
    }

    /// Attestations that may name a version, the newest batches first.
    fn of(&self, h: &RecordId) -> Vec<RecordId> {
        let probes = self.probes(h);
        let many = self.many.iter().rev().filter(|(_, filter)| filter.may_contain(probes));
        let rows = self.few(h).chain(many.map(|(row, _)| row)).take(READ_MAX);
        rows.filter_map(|row| self.rows.get(*row as usize)).copied().collect()
    }
}

impl Attestations {
    /// `secret` is nobody else's.
    pub(super) fn new(suite: Suite, secret: [u8; 32]) -> Self {
        Self { index: Mutex::new(Index::new(secret)), opened: Mutex::default(), suite }
    }

    /// Nothing that can panic half-way through a change runs under the lock.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, VecDeque<(RecordId, Arc<Opened>)>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one as the store has it; whether it is one.
    pub(super) fn met(&self, id: RecordId, bytes: &[u8]) -> bool {
        let hs: Vec<RecordId> = named(bytes).collect();
        if hs.is_empty() {
            return false;
        }
        self.index().add(id, &hs);
        true
    }

    /// Takes one that was written: where it was damaged it is known already. A large batch is compared with every other.
    pub(super) fn written(&self, id: RecordId, bytes: &[u8]) {
        let hs: Vec<RecordId> = named(bytes).collect();
        let mut index = self.index();
        if !hs.is_empty() && !index.knows(&id, &hs) {
            index.add(id, &hs);
        }
    }

    /// Whether one may name a version.
    pub(super) fn may_name(&self, h: &RecordId) -> bool {
        !self.candidates(h).is_empty()
    }

    /// Those that may name a version, few of them in vain.
    pub(super) fn candidates(&self, h: &RecordId) -> Vec<RecordId> {
        self.index().of(h)
    }

    /// Those of few versions that name this one, for sure.
    pub(super) fn naming(&self, h: &RecordId) -> Vec<RecordId> {
        let index = self.index();
        let rows = index.few(h).filter_map(|row| index.rows.get(*row as usize));
        rows.copied().collect()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.index().rows.len()
    }

    fn remembered(&self, id: &RecordId) -> Option<Arc<Opened>> {
        let mut opened = self.opened();
        let at = opened.iter().position(|(known, _)| known == id)?;
        let found = opened.remove(at)?;
        opened.push_front(found.clone());
        Some(found.1)
    }

    fn remember(&self, id: RecordId, one: &Arc<Opened>) {
        let mut opened = self.opened();
        opened.push_front((id, Arc::clone(one)));
        // Its tree is twice as long as its hashes.
        let mut bytes = 0;
        opened.retain(|(_, one)| {
            bytes += one.record.len() * 3;
            bytes <= OPENED_BYTES_MAX
        });
    }
}

impl Opened {
    fn read(suite: Suite, id: &RecordId, record: Bytes) -> Option<Self> {
        if suite.id(&record) != *id {
            return None;
        }
        let attestation = AnyAttestation::decode(&record).ok()?;
        Some(Self { attestation, record, tree: OnceLock::new() })
    }

    /// What is sent with one version: of a batch, its part with the path.
    fn of_one(&self, suite: Suite, h: &RecordId) -> Option<Bytes> {
        let AnyAttestation::Batch(batch) = &self.attestation else {
            return Some(self.record.clone());
        };
        if batch.attester.count == 1 {
            return Some(self.record.clone());
        }
        let index = batch.hs().position(|one| one == *h)?;
        let tree = self.tree.get_or_init(|| batch.paths(suite)).as_ref()?;
        Some(batch.of_one(tree, index)?.record(suite).bytes)
    }
}

impl ObjectShelf {
    /// An attestation that is here; `None` where it is not, or is not what it was.
    async fn opened(&self, id: &RecordId) -> Result<Option<Arc<Opened>>, CallError> {
        if let Some(opened) = self.attestations.remembered(id) {
            return Ok(Some(opened));
        }
        let record = match self.store.get(id).await {
            Ok(record) => record.filter(|record| record.kind == Kind::Attestation),
            Err(StoreError::Damaged { .. }) => None,
            Err(error) => return Err(self.shelf.refused(error)),
        };
        let Some(record) = record else { return Ok(None) };
        let (suite, id) = (self.attestations.suite, *id);
        let large = record.bytes.len() > HEAVY * 32;
        let read = move || Opened::read(suite, &id, record.bytes);
        let Some(opened) = (if large { self.env.cpu(read).await } else { read() }) else {
            self.metrics.objects.altered.inc();
            tracing::error!(attestation = %id, "an attestation was altered on disk");
            return Ok(None);
        };
        let opened = Arc::new(opened);
        if opened.attestation.attester().count > 1 {
            self.attestations.remember(id, &opened);
        }
        Ok(Some(opened))
    }

    /// The attestations here that name a version.
    pub(super) async fn attested(&self, h: &RecordId) -> Result<Vec<Arc<Opened>>, CallError> {
        let candidates = self.attestations.candidates(h);
        let mut found = Vec::new();
        for id in candidates {
            if let Some(opened) = self.opened(&id).await?
                && opened.attestation.names(h)
            {
                found.push(opened);
                if found.len() == LOOKED_AT_MAX {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// What is sent with a version: an attestation by somebody who may write now, before others; `None` where there is none.
    pub(super) async fn attestation(
        &self,
        h: &RecordId,
        object: Option<&ObjectRecord>,
    ) -> Result<Option<Bytes>, CallError> {
        let mut found = self.attested(h).await?;
        let may_write = |opened: &Arc<Opened>| {
            let author = opened.attestation.attester().author;
            object.is_none_or(|object| self.policies.with(object, |p| p.may_write(author.key())))
        };
        found.sort_by_key(|opened| !may_write(opened));
        let Some(first) = found.into_iter().next() else { return Ok(None) };
        let (suite, h) = (self.suite, *h);
        let heavy = first.attestation.attester().count as usize > HEAVY;
        let make = move || first.of_one(suite, &h);
        Ok(if heavy { self.env.cpu(make).await } else { make() })
    }
}

#[cfg(test)]
mod tests {
    use crypto::{NetworkId, SecretKey};
    use version::BatchAttester;

    use super::*;

    const SUITE: Suite = Suite::Holdfast1;

    fn hs(first: usize, count: usize) -> Vec<RecordId> {
        (first..first + count).map(|number| SUITE.id(&number.to_be_bytes())).collect()
    }

    #[test]
    fn few_and_many_are_found_and_others_seldom() {
        let attestations = Attestations::new(SUITE, [7; 32]);
        let author = SecretKey::from_bytes(&[1; 32]).expect("a scalar");
        let mut ids = Vec::new();
        for (first, count) in [(0, 1), (1, 5), (100, 5_000), (6_000, 200)] {
            let mut batch = BatchAttester::new(SUITE, NetworkId::new([9; 32]), 0);
            for h in &hs(first, count) {
                batch.add(h).expect("room");
            }
            let record = batch.finish(SUITE, &author).expect("versions");
            attestations.written(record.id, &record.bytes);
            assert_eq!(attestations.len(), ids.len() + 1);
            attestations.written(record.id, &record.bytes);
            ids.push(record.id);
            for h in hs(first, count) {
                assert!(attestations.index().of(&h).contains(&record.id));
            }
            let opened = Opened::read(SUITE, &record.id, record.bytes).expect("its own bytes");
            let one = opened.of_one(SUITE, &hs(first, count)[count - 1]).expect("one of them");
            let one = AnyAttestation::decode(&one).expect("an attestation");
            one.verify(SUITE).expect("signed");
            assert!(one.names(&hs(first, count)[count - 1]));
        }
        assert!(!attestations.met(ids[0], b"holdfast attest v1"));
        assert_eq!(attestations.len(), 4, "what is written again is there once");
        let vain: usize = hs(10_000, 2_000).iter().map(|h| attestations.index().of(h).len()).sum();
        assert!(vain < 5, "{vain} of 4,000 in vain");
    }

    /// Batches that came later, which do not name a version, are not read instead of the one that does.
    #[test]
    fn what_was_written_before_thousands_of_batches_is_still_found() {
        let attestations = Attestations::new(SUITE, [7; 32]);
        let first = hs(0, 200);
        attestations.index().add(SUITE.id(b"the first"), &first);
        for number in 1..4_000 {
            let other = hs(number * 1_000, MANY);
            attestations.index().add(SUITE.id(&number.to_be_bytes()), &other);
        }
        let first_id = SUITE.id(b"the first");
        let found = first.iter().filter(|h| attestations.candidates(h).contains(&first_id));
        assert_eq!(found.count(), 200);
        let read: usize = first.iter().map(|h| attestations.candidates(h).len()).sum();
        assert!(read < 2 * 200, "{read} are read for 200");
    }

    /// What a filter says at one peer is not to be reckoned from outside: versions that were chosen so that batches of them seem to name
    /// another's, by bits that depend on hashes alone, are as any others.
    #[test]
    fn batches_that_were_made_to_seem_to_name_a_version_do_not_hide_the_one_that_does() {
        let [theirs, ours] = [[1; 32], [2; 32]].map(Index::new);
        let victim = hs(0, 200)[0];
        // Of the bits that stand for the victim each version of a batch sets one, by what somebody else would choose.
        let count = (MANY * BITS_EACH).div_ceil(64) as u64 * 64;
        let mut left: BTreeSet<usize> = theirs.probes(&victim).bits(count).collect();
        let mut made = Vec::new();
        for number in 1_000.. {
            let h = SUITE.id(&u64::to_be_bytes(number));
            let before = left.len();
            for bit in theirs.probes(&h).bits(count) {
                left.remove(&bit);
            }
            if left.len() < before || (left.is_empty() && made.len() < MANY) {
                made.push(h);
            }
            if made.len() == MANY && left.is_empty() {
                break;
            }
        }
        for (mut index, may) in [(theirs, true), (ours, false)] {
            let first = SUITE.id(b"the first");
            index.add(first, &hs(0, 200));
            for number in 0..READ_MAX {
                made.rotate_left(1);
                index.add(SUITE.id(&number.to_be_bytes()), &made);
            }
            let found = index.of(&victim);
            assert_eq!(found.len(), if may { READ_MAX } else { 1 });
            assert_eq!(found.contains(&first), !may, "what is chosen in the open can be made");
        }
    }

    #[test]
    fn what_was_read_keeps_within_its_budget() {
        let attestations = Attestations::new(SUITE, [7; 32]);
        let author = SecretKey::from_bytes(&[1; 32]).expect("a scalar");
        for number in 0..40 {
            let mut batch = BatchAttester::new(SUITE, NetworkId::new([9; 32]), 0);
            for h in &hs(number * 40_000, 10_000) {
                batch.add(h).expect("room");
            }
            let record = batch.finish(SUITE, &author).expect("versions");
            let opened = Opened::read(SUITE, &record.id, record.bytes).expect("its own bytes");
            attestations.remember(record.id, &Arc::new(opened));
            assert!(attestations.remembered(&record.id).is_some());
        }
        let bytes: usize = attestations.opened().iter().map(|(_, one)| one.record.len() * 3).sum();
        assert!((OPENED_BYTES_MAX / 2..=OPENED_BYTES_MAX).contains(&bytes), "{bytes}");
    }
}
