//! Which attestation names a version, and what is sent of it.
//!
//! Attestations are read from the store; in memory is what finds them: an exact table ([`Table`]) from eight bytes of a MAC of a
//! version's hash to the attestations that name it. A look takes as long whether a door has signed for an hour or for weeks; a
//! filter for each of its batches, one a second, took a sixth of that memory, and a look asked half a million of them. The MAC is
//! under a secret of this peer: whoever knew it would make versions that all lie in one part of the table, or seem to be named by
//! batches that do not name them.
//!
//! Memory: 36 bytes an attestation, about 75 an author, and about 15 for each version that is named; so an attestation of one
//! version takes about 50, and a million versions of a door 15 MB, beside 55 to 110 of each in the store's index.
//!
//! One is enough, and whoever may write can sign the same versions without end, each time with other bytes. So of one author
//! [`OF_AUTHOR_MAX`] are found for a version, the oldest: others of clients are not taken (`put`), and those that are in the store
//! all the same (of a door in this process, of repair) are not found by it. Of all authors together [`OF_VERSION_MAX`] are. One
//! of each author is looked at before a second of any: an author who may not write any more hides nobody's.
//!
//! A batch that was read stays in memory with its tree, of which paths are made, by a budget.

use std::collections::{HashMap, VecDeque};
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

/// Attestations of one version by one author that are found: one is enough, others are there where a disk loses it.
pub(super) const OF_AUTHOR_MAX: usize = 4;
/// Attestations of one version that are found: of an owner and as many writers as a policy has.
const OF_VERSION_MAX: usize = 1_028;
/// Attestations that name one version that are looked at.
const LOOKED_AT_MAX: usize = 16;
/// Attestations that are read to find them: some may be damaged.
const READ_MAX: usize = 64;
/// Attestations that were read, and bytes of batches and their trees, in memory.
const OPENED_MAX: usize = 1_024;
const OPENED_BYTES_MAX: usize = 32 << 20;
/// From so many versions on a batch is hashed on a CPU thread.
const HEAVY: usize = 512;
/// Versions of a batch that are added while nobody else looks.
const ADDED_AT_ONCE: usize = 1_024;
/// Entries of a part of the table, on average.
const PART: usize = 32;

/// The key of who signed.
type Author = [u8; 33];

/// What finds attestations.
pub(super) struct Attestations {
    index: Mutex<Index>,
    opened: Mutex<VecDeque<(RecordId, Arc<Opened>)>>,
    suite: Suite,
    /// By which versions are told apart in the table.
    secret: [u8; 32],
}

#[derive(Default)]
struct Index {
    rows: Vec<Row>,
    /// Who signed, by number: as many as there are authors.
    authors: HashMap<Author, u32>,
    table: Table,
}

/// An attestation.
struct Row {
    id: RecordId,
    author: u32,
}

/// Which rows name a version. It is in parts, by the last bits of the keys, and grows by one part at a time (linear hashing: Litwin,
/// 1980): nobody waits while all of it is moved.
struct Table {
    parts: Vec<Vec<Entry>>,
    entries: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    /// In two halves, so that it takes twelve bytes.
    key: [u32; 2],
    row: u32,
}

/// An attestation that was read.
pub(super) struct Opened {
    pub(super) attestation: AnyAttestation,
    record: Bytes,
    tree: OnceLock<Option<Tree>>,
    /// Whether its author signed it, where somebody looked.
    signed: OnceLock<bool>,
}

/// What stands for a version in the table.
fn key(secret: &[u8; 32], h: &RecordId) -> u64 {
    let mac = Suite::Holdfast1.mac(secret, h.as_bytes());
    let mut word = [0; 8];
    word.copy_from_slice(&mac[..8]);
    u64::from_be_bytes(word)
}

/// Who signed the record of an attestation, in either form: the key stands behind the network (`docs/formats/versions.md`). It is not
/// looked at whether it is one: records here were proven.
fn author(bytes: &[u8]) -> Option<Author> {
    let prefixes = [&b"holdfast attested v1"[..], b"holdfast attest v1"];
    let rest = prefixes.into_iter().find_map(|prefix| bytes.strip_prefix(prefix))?;
    rest.get(32..)?.first_chunk().copied()
}

const fn halves(key: u64) -> [u32; 2] {
    [(key >> 32) as u32, key as u32]
}

impl Default for Table {
    fn default() -> Self {
        Self { parts: vec![Vec::new()], entries: 0 }
    }
}

impl Table {
    /// The part of a key: by one bit more where that part is there already.
    fn part(&self, key: u64) -> usize {
        let count = self.parts.len() as u64;
        let half = 1 << count.ilog2();
        let at = key & (2 * half - 1);
        (if at < count { at } else { key & (half - 1) }) as usize
    }

    fn add(&mut self, key: u64, row: u32) {
        let at = self.part(key);
        let part = &mut self.parts[at];
        if part.len() == part.capacity() {
            // By an eighth, and not to twice as much.
            part.reserve_exact((part.len() / 8).max(4));
        }
        part.push(Entry { key: halves(key), row });
        self.entries += 1;
        if self.entries > self.parts.len() * PART {
            self.split();
        }
    }

    /// Adds a part, of what one of the others has.
    fn split(&mut self) {
        let new = self.parts.len() as u64;
        let half = 1 << new.ilog2();
        let part = &mut self.parts[(new - half) as usize];
        let mut moved = Vec::new();
        part.retain(|entry| {
            let stays = u64::from(entry.key[1]) & (2 * half - 1) != new;
            if !stays {
                moved.push(*entry);
            }
            stays
        });
        part.shrink_to_fit();
        moved.shrink_to_fit();
        self.parts.push(moved);
    }

    /// The rows of a key, the newest first.
    fn rows(&self, key: u64) -> impl Iterator<Item = u32> {
        let halves = halves(key);
        let part = self.parts[self.part(key)].iter().rev();
        part.filter(move |entry| entry.key == halves).map(|entry| entry.row)
    }
}

impl Index {
    /// A row for an attestation.
    fn begin(&mut self, id: RecordId, author: Author) -> Option<u32> {
        let row = u32::try_from(self.rows.len()).ok()?;
        let next = u32::try_from(self.authors.len()).ok()?;
        let author = *self.authors.entry(author).or_insert(next);
        self.rows.push(Row { id, author });
        Some(row)
    }

    /// Adds versions that the attestation of a row names, where not enough of its author's name them.
    fn add(&mut self, row: u32, keys: &[u64]) {
        let Some(author) = self.rows.get(row as usize).map(|row| row.author) else { return };
        for key in keys {
            // A batch may name one again and again.
            let is_there = self.table.rows(*key).next() == Some(row);
            if !is_there && self.room(*key, Some(author)) > 0 {
                self.table.add(*key, row);
            }
        }
    }

    /// How many more attestations of a version by this author are found, or by one who has none here.
    fn room(&self, key: u64, author: Option<u32>) -> usize {
        let (mut all, mut own) = (0, 0);
        for row in self.named_by(key) {
            all += 1;
            own += usize::from(Some(row.author) == author);
        }
        let room = OF_VERSION_MAX.saturating_sub(all);
        room.min(OF_AUTHOR_MAX.saturating_sub(own))
    }

    /// Attestations that name a version, the newest first.
    fn named_by(&self, key: u64) -> impl Iterator<Item = &Row> {
        self.table.rows(key).filter_map(|row| self.rows.get(row as usize))
    }

    /// Attestations that are looked at for a version: one of each author first, the newest.
    fn of(&self, key: u64) -> Vec<RecordId> {
        let mut of_author: HashMap<u32, usize> = HashMap::new();
        let mut found: Vec<(usize, RecordId)> = Vec::new();
        for row in self.named_by(key) {
            let nth = of_author.entry(row.author).or_default();
            found.push((*nth, row.id));
            *nth += 1;
        }
        found.sort_by_key(|(nth, _)| *nth);
        found.into_iter().map(|(_, id)| id).take(READ_MAX).collect()
    }
}

impl Attestations {
    /// `secret` is nobody else's.
    pub(super) fn new(suite: Suite, secret: [u8; 32]) -> Self {
        Self { index: Mutex::default(), opened: Mutex::default(), suite, secret }
    }

    /// Nothing that can panic half-way through a change runs under the lock.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, VecDeque<(RecordId, Arc<Opened>)>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, h: &RecordId) -> u64 {
        key(&self.secret, h)
    }

    /// Takes one as the store has it; whether it is one.
    pub(super) fn met(&self, id: RecordId, bytes: &[u8]) -> bool {
        self.take(id, bytes, false)
    }

    /// Takes one that was written: where it was damaged it is known already.
    pub(super) fn written(&self, id: RecordId, bytes: &[u8]) {
        self.take(id, bytes, true);
    }

    fn take(&self, id: RecordId, bytes: &[u8], may_be_known: bool) -> bool {
        let keys: Vec<u64> = named(bytes).map(|h| self.key(&h)).collect();
        let (Some(first), Some(author)) = (keys.first(), author(bytes)) else { return false };
        let mut index = self.index();
        if may_be_known && index.named_by(*first).any(|row| row.id == id) {
            return true;
        }
        let Some(row) = index.begin(id, author) else { return true };
        for some in keys.chunks(ADDED_AT_ONCE) {
            index.add(row, some);
            drop(index);
            index = self.index();
        }
        true
    }

    /// Whether one may name a version.
    pub(super) fn may_name(&self, h: &RecordId) -> bool {
        let key = self.key(h);
        self.index().table.rows(key).next().is_some()
    }

    /// Those that are looked at for a version, one of each author first.
    pub(super) fn candidates(&self, h: &RecordId) -> Vec<RecordId> {
        let key = self.key(h);
        self.index().of(key)
    }

    /// Those that name a version.
    pub(super) fn naming(&self, h: &RecordId) -> Vec<RecordId> {
        let key = self.key(h);
        self.index().named_by(key).map(|row| row.id).collect()
    }

    /// How many more of an author's attestations of a version are found.
    pub(super) fn room(&self, h: &RecordId, author: &Author) -> usize {
        let key = self.key(h);
        let index = self.index();
        index.room(key, index.authors.get(author).copied())
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
        opened.truncate(OPENED_MAX);
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
        Some(Self { attestation, record, tree: OnceLock::new(), signed: OnceLock::new() })
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

    /// Whether an attestation of this network is its author's. It is looked at once while it is in memory.
    pub(super) async fn is_signed(&self, opened: &Arc<Opened>) -> bool {
        let attester = opened.attestation.attester();
        if attester.network != self.network {
            return false;
        }
        if let Some(known) = opened.signed.get() {
            return *known;
        }
        let (suite, heavy) = (self.suite, attester.count as usize > HEAVY);
        let one = Arc::clone(opened);
        let look = move || *one.signed.get_or_init(|| one.attestation.verify(suite).is_ok());
        if heavy { self.env.cpu(look).await } else { look() }
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

    /// Adds one of an author.
    fn add(attestations: &Attestations, id: RecordId, by: Author, hs: &[RecordId]) {
        let keys: Vec<u64> = hs.iter().map(|h| attestations.key(h)).collect();
        let mut index = attestations.index();
        let row = index.begin(id, by).expect("a row");
        index.add(row, &keys);
    }

    fn secret(number: u8) -> SecretKey {
        SecretKey::from_bytes(&[number; 32]).expect("a scalar")
    }

    #[test]
    fn of_few_and_of_many_all_are_found_and_no_others() {
        let attestations = Attestations::new(SUITE, [7; 32]);
        let by = secret(1);
        let mut ids = Vec::new();
        for (first, count) in [(0, 1), (1, 5), (100, 5_000), (6_000, 200)] {
            let mut batch = BatchAttester::new(SUITE, NetworkId::new([9; 32]), 0);
            for h in &hs(first, count) {
                batch.add(h).expect("room");
            }
            let record = batch.finish(SUITE, &by).expect("versions");
            assert_eq!(author(&record.bytes).as_ref(), Some(by.public().as_bytes()));
            attestations.written(record.id, &record.bytes);
            assert_eq!(attestations.len(), ids.len() + 1);
            attestations.written(record.id, &record.bytes);
            ids.push(record.id);
            for h in hs(first, count) {
                assert_eq!(attestations.candidates(&h), [record.id]);
                assert_eq!(attestations.naming(&h), [record.id]);
            }
            let opened = Opened::read(SUITE, &record.id, record.bytes).expect("its own bytes");
            let one = opened.of_one(SUITE, &hs(first, count)[count - 1]).expect("one of them");
            assert_eq!(author(&one).as_ref(), Some(by.public().as_bytes()), "of either form");
            let one = AnyAttestation::decode(&one).expect("an attestation");
            one.verify(SUITE).expect("signed");
            assert!(one.names(&hs(first, count)[count - 1]));
        }
        assert!(!attestations.met(ids[0], b"holdfast attest v1"));
        assert_eq!(attestations.len(), 4, "what is written again is there once");
        assert!(hs(10_000, 2_000).iter().all(|h| !attestations.may_name(h)));
    }

    /// However many batches came later: none of them is read for what it does not name, and no more of the table is looked through.
    #[test]
    fn a_look_takes_no_longer_behind_thousands_of_batches_and_little_memory() {
        let attestations = Attestations::new(SUITE, [7; 32]);
        let first_id = SUITE.id(b"the first");
        let first = hs(0, 200);
        add(&attestations, first_id, [0; 33], &first);
        for number in 1..4_000 {
            let other = hs(number * 1_000, 64);
            add(&attestations, SUITE.id(&number.to_be_bytes()), [1; 33], &other);
        }
        assert!(first.iter().all(|h| attestations.candidates(h) == [first_id]));
        let table = &attestations.index().table;
        assert_eq!(table.entries, 200 + 3_999 * 64);
        let longest = table.parts.iter().map(Vec::len).max();
        assert!(longest < Some(PART * 5), "{longest:?} entries are looked through");
        let of_parts: usize = table.parts.iter().map(Vec::capacity).sum();
        let around = table.parts.capacity() * size_of::<Vec<Entry>>();
        let bytes = of_parts * size_of::<Entry>() + around;
        assert!(bytes < table.entries * 16, "{bytes} for {}", table.entries);
        assert!(size_of::<Row>() == 36 && size_of::<Entry>() == 12);
    }

    /// Where versions lie in the table of one peer is not to be reckoned from outside: those that were chosen so that they lie beside
    /// another's, by what somebody else would choose, are as any others.
    #[test]
    fn batches_that_were_made_to_seem_to_name_a_version_do_not_hide_the_one_that_does() {
        let [theirs, ours] = [[1; 32], [2; 32]].map(|secret| Attestations::new(SUITE, secret));
        let victim = hs(0, 200)[0];
        let of_victim = theirs.key(&victim);
        let beside = |h: &RecordId| (theirs.key(h) ^ of_victim) & 0x7f == 0;
        let all = (1_000_u64..).map(|number| SUITE.id(&number.to_be_bytes()));
        let made: Vec<RecordId> = all.filter(beside).take(1_000).collect();
        for (attestations, may) in [(&theirs, true), (&ours, false)] {
            let first = SUITE.id(b"the first");
            add(attestations, first, [0; 33], &hs(0, 200));
            for (number, some) in made.chunks(64).enumerate() {
                add(attestations, SUITE.id(&number.to_be_bytes()), [1; 33], some);
            }
            assert_eq!(attestations.candidates(&victim), [first]);
            let table = &attestations.index().table;
            let looked_through = table.parts[table.part(attestations.key(&victim))].len();
            let is_long = looked_through >= made.len();
            assert_eq!(is_long, may, "{looked_through}: what is chosen in the open can be made");
        }
    }

    /// Whoever may write signs the same versions again and again: a few are found, and others' before a second of his.
    #[test]
    fn of_one_authors_attestations_of_a_version_few_are_found_and_none_hides_anothers() {
        let attestations = Attestations::new(SUITE, [7; 32]);
        let all = hs(0, 64);
        let id = |by: u8, number: u32| SUITE.id(&[&[by][..], &number.to_be_bytes()].concat());
        add(&attestations, id(1, 0), [1; 33], &all);
        for number in 0..1_000 {
            add(&attestations, id(2, number), [2; 33], &all);
        }
        assert_eq!(attestations.index().table.entries, 64 * (1 + OF_AUTHOR_MAX));
        let found = attestations.candidates(&all[9]);
        let of_two = (0..OF_AUTHOR_MAX as u32).rev().map(|number| id(2, number));
        let mut wanted: Vec<RecordId> = of_two.collect();
        wanted.insert(1, id(1, 0));
        assert_eq!(found, wanted, "one of each, then the newest");
        let room = |by: u8| attestations.room(&all[9], &[by; 33]);
        assert_eq!([1, 2, 3].map(room), [OF_AUTHOR_MAX - 1, 0, OF_AUTHOR_MAX]);
        // A batch that names one again and again names it once.
        add(&attestations, id(3, 0), [3; 33], &[all[9]; 1_000]);
        assert_eq!(attestations.candidates(&all[9])[0], id(3, 0));
        assert_eq!(room(3), OF_AUTHOR_MAX - 1);
        // More authors than a policy has at once.
        for number in 0..300_u32 {
            let mut by = [9; 33];
            by[..4].copy_from_slice(&number.to_be_bytes());
            for nth in 0..6 {
                add(&attestations, id(10 + nth, number), by, &all[..1]);
            }
        }
        assert_eq!(attestations.naming(&all[0]).len(), OF_VERSION_MAX);
        assert_eq!(attestations.candidates(&all[0]).len(), READ_MAX);
    }

    #[test]
    fn what_was_read_keeps_within_its_budget() {
        let attestations = Attestations::new(SUITE, [7; 32]);
        let by = secret(1);
        let remember = |first: usize, count: usize| {
            let mut batch = BatchAttester::new(SUITE, NetworkId::new([9; 32]), 0);
            for h in &hs(first, count) {
                batch.add(h).expect("room");
            }
            let record = batch.finish(SUITE, &by).expect("versions");
            let opened = Opened::read(SUITE, &record.id, record.bytes).expect("its own bytes");
            attestations.remember(record.id, &Arc::new(opened));
            assert!(attestations.remembered(&record.id).is_some());
        };
        for number in 0..40 {
            remember(number * 40_000, 10_000);
        }
        let bytes: usize = attestations.opened().iter().map(|(_, one)| one.record.len() * 3).sum();
        assert!((OPENED_BYTES_MAX / 2..=OPENED_BYTES_MAX).contains(&bytes), "{bytes}");
        for number in 0..OPENED_MAX + 50 {
            remember(number, 2);
        }
        assert_eq!(attestations.opened().len(), OPENED_MAX);
    }
}
