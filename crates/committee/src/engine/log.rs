//! What a member keeps on its disk beside the engine's journal: blocks, their certificates, and snapshots of the state.
//!
//! ```text
//! frame  length 4 | kind 1 (1 block, 2 certificate, 3 snapshot) | first 16 of BLAKE3(kind | bytes) | bytes
//! ```
//! Frames are appended, and synced where somebody waits for that. At a start the log is read to its end or its first frame that is
//! damaged, and cut there. A frame that is whole and of a kind or a length that this build does not
//! know is an error, and nothing is cut; so is the head of a snapshot that is longer than this build
//! reads. A log that has grown long is begun anew: the blocks that are not final yet, and the snapshot
//! behind them. A file in which a snapshot is found so has all that it began with, and the old one goes
//! only then.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use commonware_runtime::{Blob, Handle, IoBuf, ReadOptions, Storage, WriteOptions};
use crypto::Suite;

use crate::certificate::CERTIFICATE_BYTES_MAX;
use crate::header::{BLOCK_BYTES_MAX, HeaderDigest};
use crate::reader::{Reader, put_long};
use crate::state::STATE_BYTES_MAX;
use crate::{Block, Certificate, CommitteeError, State};

const HEAD_BYTES: usize = 4 + 1 + 16;
const BLOCK: u8 = 1;
const CERTIFICATE: u8 = 2;
const SNAPSHOT: u8 = 3;
/// No frame of any kind is longer.
const FRAME_BYTES_MAX: usize = 2 * STATE_BYTES_MAX;
const FOREIGN: &str =
    "the log holds what this release cannot read, and stays as it is; start the one that wrote it";

fn checksum(kind: u8, parts: &[Bytes]) -> [u8; 16] {
    let kind = [kind];
    let all: Vec<&[u8]> =
        std::iter::once(&kind[..]).chain(parts.iter().map(|one| &one[..])).collect();
    let mut sum = [0; 16];
    sum.copy_from_slice(&Suite::Holdfast1.hash_parts(&all)[..16]);
    sum
}

/// Where a frame's bytes are.
#[derive(Clone, Copy, Debug)]
struct Span {
    at: u64,
    length: usize,
}

/// The log.
pub(crate) struct Log<S: Storage> {
    storage: S,
    partition: String,
    number: u64,
    blob: S::Blob,
    end: u64,
    floor: u64,
    dirty: bool,
    /// The longest snapshot that is written: no longer than one that is read.
    snapshot_max: usize,
    /// Syncs under way: each says when it is over.
    syncs: Vec<Arc<AtomicBool>>,
    blocks: HashMap<HeaderDigest, Span>,
    finals: Finals,
}

/// Where the final blocks are, by height, and the certificates of those that have one: of blocks that became final together the
/// last alone is written with its certificate.
type Finals = BTreeMap<u64, (Span, Option<Span>)>;

/// What a log held at the start.
#[derive(Default)]
pub(crate) struct Found {
    /// The newest snapshot, with the certificate of the block after which it was taken.
    pub(crate) snapshot: Option<(Certificate, State)>,
    /// Blocks, as they were written.
    pub(crate) blocks: Vec<(Block, Bytes)>,
    /// Certificates by height.
    pub(crate) certificates: BTreeMap<u64, Certificate>,
}

/// A log's file, read.
struct Opened<B> {
    blob: B,
    end: u64,
    /// The end of its snapshot: what is behind it has grown since it was begun.
    floor: u64,
    blocks: HashMap<HeaderDigest, Span>,
    finals: Finals,
    parents: HashMap<HeaderDigest, (u64, HeaderDigest)>,
    found: Found,
}

fn storage_error(error: commonware_runtime::Error) -> CommitteeError {
    CommitteeError::Storage(error)
}

/// The length that a frame of this kind may have.
const fn most(kind: u8) -> usize {
    match kind {
        BLOCK => BLOCK_BYTES_MAX,
        CERTIFICATE => CERTIFICATE_BYTES_MAX,
        SNAPSHOT => FRAME_BYTES_MAX,
        _ => 0,
    }
}

async fn read_bytes(blob: &impl Blob, span: Span) -> Result<Bytes, CommitteeError> {
    let read = blob.read_at(span.at, span.length, ReadOptions::default()).await;
    Ok(Bytes::from(read.map_err(storage_error)?.coalesce().freeze()))
}

/// The next frame; `None` at the end and where it is damaged.
///
/// # Errors
/// [`CommitteeError::Files`] of a whole one of another kind, or longer, than this build writes:
/// another release did, and it is not cut away. Of a snapshot that is too long to be read the head
/// is enough: all that the member knows may stand behind it.
async fn next(
    blob: &impl Blob,
    at: u64,
    end: u64,
) -> Result<Option<(u8, Span, Bytes)>, CommitteeError> {
    if at + HEAD_BYTES as u64 > end {
        return Ok(None);
    }
    let head = read_bytes(blob, Span { at, length: HEAD_BYTES }).await?;
    let mut reader = Reader::new("frame of the log", &head);
    let (length, kind, sum) = (reader.u32()? as usize, reader.u8()?, reader.array::<16>()?);
    let span = Span { at: at + HEAD_BYTES as u64, length };
    if length > FRAME_BYTES_MAX && kind == SNAPSHOT {
        return Err(CommitteeError::Files(FOREIGN));
    }
    if length > FRAME_BYTES_MAX || span.at + length as u64 > end {
        return Ok(None);
    }
    let bytes = read_bytes(blob, span).await?;
    if checksum(kind, std::slice::from_ref(&bytes)) != sum {
        return Ok(None);
    }
    match length > most(kind) {
        true => Err(CommitteeError::Files(FOREIGN)),
        false => Ok(Some((kind, span, bytes))),
    }
}

impl<B: Blob> Opened<B> {
    async fn read(blob: B, length: u64) -> Result<Self, CommitteeError> {
        let (blocks, finals, parents) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        let (end, floor, found) = (0, 0, Found::default());
        let mut opened = Self { blob, end, floor, blocks, finals, parents, found };
        while let Some((kind, span, bytes)) = next(&opened.blob, opened.end, length).await? {
            // Its checksum holds, so it was written as it is: a log that this build cannot read is not cut.
            opened.take(kind, span, &bytes)?;
            opened.end = span.at + span.length as u64;
            if kind == SNAPSHOT {
                opened.floor = opened.end;
            }
        }
        if opened.end < length {
            tracing::warn!(
                at = opened.end,
                length,
                "the committee's log is cut at a damaged frame"
            );
            opened.blob.resize(opened.end).await.map_err(storage_error)?;
            opened.blob.sync().await.map_err(storage_error)?;
        }
        Ok(opened)
    }

    fn take(&mut self, kind: u8, span: Span, bytes: &Bytes) -> Result<(), CommitteeError> {
        match kind {
            BLOCK => {
                let block = Block::decode(bytes)?;
                let digest = block.header.digest();
                self.blocks.insert(digest, span);
                self.parents.insert(digest, (block.header.height, block.header.parent));
                self.found.blocks.push((block, bytes.clone()));
            }
            CERTIFICATE => {
                let certificate = Certificate::decode(bytes)?;
                let header = certificate.header();
                let (mut at, mut certificate_span) = (header.digest(), Some(span));
                while let (Some(block), Some((height, parent))) =
                    (self.blocks.get(&at), self.parents.get(&at))
                {
                    if self.finals.contains_key(height) {
                        break;
                    }
                    self.finals.insert(*height, (*block, certificate_span.take()));
                    at = *parent;
                }
                self.found.certificates.insert(header.height, certificate);
            }
            SNAPSHOT => {
                let mut reader = Reader::new("snapshot", bytes);
                let certificate = reader.long("bytes of a certificate", CERTIFICATE_BYTES_MAX)?;
                let certificate = Certificate::decode(certificate)?;
                let state = State::restore(&bytes.slice_ref(reader.rest()))?;
                if state.root() != certificate.header().state {
                    return Err(CommitteeError::Path("snapshot"));
                }
                self.found.snapshot = Some((certificate, state));
            }
            _ => return Err(CommitteeError::Files(FOREIGN)),
        }
        Ok(())
    }
}

impl<S: Storage> Log<S> {
    /// Opens the newest log of a partition, or makes one.
    pub(crate) async fn open(
        storage: S,
        partition: String,
    ) -> Result<(Self, Found), CommitteeError> {
        let names = match storage.scan(&partition).await {
            Ok(names) => names,
            Err(commonware_runtime::Error::PartitionMissing(_)) => Vec::new(),
            Err(error) => return Err(storage_error(error)),
        };
        let number = |name: &Vec<u8>| Some(u64::from_be_bytes(name[..].try_into().ok()?));
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        let mut newest = numbers.pop().unwrap_or_default();
        let opened = loop {
            let name = newest.to_be_bytes();
            let (blob, length) = storage.open(&partition, &name).await.map_err(storage_error)?;
            let opened = Opened::read(blob, length).await?;
            // One that was begun anew and is not whole: the one before it is still there.
            match numbers.pop() {
                Some(before) if opened.found.snapshot.is_none() => {
                    drop(opened);
                    storage.remove(&partition, Some(&name)).await.map_err(storage_error)?;
                    newest = before;
                }
                before => {
                    numbers.extend(before);
                    break opened;
                }
            }
        };
        let Opened { blob, end, floor, blocks, finals, found, .. } = opened;
        let log = Self {
            storage,
            partition,
            number: newest,
            blob,
            end,
            floor,
            dirty: false,
            snapshot_max: FRAME_BYTES_MAX,
            syncs: Vec::new(),
            blocks,
            finals,
        };
        for old in numbers {
            log.remove(old).await;
        }
        Ok((log, found))
    }

    async fn remove(&self, number: u64) {
        let name = number.to_be_bytes();
        if let Err(error) = self.storage.remove(&self.partition, Some(&name)).await {
            tracing::warn!(%error, number, "an old log of the committee's could not be removed");
        }
    }

    /// Writes a frame of parts that follow each other; what they hold is not copied for that.
    async fn append(&mut self, kind: u8, parts: Vec<Bytes>) -> Result<Span, CommitteeError> {
        let length = parts.iter().map(Bytes::len).sum();
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&(length as u32).to_be_bytes());
        head.push(kind);
        head.extend_from_slice(&checksum(kind, &parts));
        let span = Span { at: self.end + HEAD_BYTES as u64, length };
        let frame = std::iter::once(IoBuf::from(head)).chain(parts.into_iter().map(IoBuf::from));
        let frame: Vec<IoBuf> = frame.collect();
        let written = self.blob.write_at(self.end, frame, WriteOptions::default()).await;
        written.map_err(storage_error)?;
        self.end = span.at + span.length as u64;
        self.dirty = true;
        Ok(span)
    }

    /// Whether a block is in the log.
    pub(crate) fn has(&self, digest: &HeaderDigest) -> bool {
        self.blocks.contains_key(digest)
    }

    /// Writes a block; [`Log::sync`] makes it durable.
    pub(crate) async fn block(
        &mut self,
        digest: HeaderDigest,
        bytes: &Bytes,
    ) -> Result<(), CommitteeError> {
        if !self.has(&digest) {
            let span = self.append(BLOCK, vec![bytes.clone()]).await?;
            self.blocks.insert(digest, span);
        }
        Ok(())
    }

    /// Writes the certificate of a block that is in the log.
    pub(crate) async fn certificate(
        &mut self,
        certificate: &Certificate,
    ) -> Result<(), CommitteeError> {
        let header = certificate.header();
        let span = self.append(CERTIFICATE, vec![certificate.encode()]).await?;
        if let Some(block) = self.blocks.get(&header.digest()) {
            self.finals.insert(header.height, (*block, Some(span)));
        }
        Ok(())
    }

    /// Notes that a block which is in the log is final.
    pub(crate) fn is_final(&mut self, height: u64, digest: &HeaderDigest) {
        if let Some(block) = self.blocks.get(digest) {
            self.finals.entry(height).or_insert((*block, None));
        }
    }

    /// Begins to bring all that was written to the disk; `None` where it is there, and nothing is on its way.
    pub(crate) async fn start_sync(&mut self) -> Option<Handle<()>> {
        self.syncs.retain(|sync| !sync.load(Ordering::Acquire));
        (self.dirty || !self.syncs.is_empty()).then_some(())?;
        self.dirty = false;
        Some(self.blob.start_sync().await)
    }

    /// Notes a sync that was begun; it is said here when it is over. Until then what was written before may not be on the disk.
    pub(crate) fn under_way(&mut self) -> Arc<AtomicBool> {
        let over = Arc::new(AtomicBool::new(false));
        self.syncs.push(Arc::clone(&over));
        over
    }

    /// Waits until all that was written is on the disk.
    pub(crate) async fn sync(&mut self) -> Result<(), CommitteeError> {
        if self.dirty || !self.syncs.is_empty() {
            self.blob.sync().await.map_err(storage_error)?;
            self.dirty = false;
        }
        Ok(())
    }

    /// A block's bytes.
    pub(crate) async fn read(
        &self,
        digest: &HeaderDigest,
    ) -> Result<Option<Bytes>, CommitteeError> {
        match self.blocks.get(digest) {
            Some(span) => read_bytes(&self.blob, *span).await.map(Some),
            None => Ok(None),
        }
    }

    /// Blocks above a height, in order, up to so many and so many bytes, and up to one that has a certificate; with that. Of those that
    /// became final together the last alone has one: up to the first of them it goes beyond the bytes, as far as one message holds.
    pub(crate) async fn since(
        &self,
        height: u64,
        count: usize,
        bytes: usize,
    ) -> Result<Option<(Bytes, Vec<Bytes>)>, CommitteeError> {
        let (mut spans, mut taken, mut last) = (Vec::new(), 0, None);
        let first = height.saturating_add(1);
        for (wanted, (at, (block, certificate))) in (first..).zip(self.finals.range(first..)) {
            taken += block.length;
            let most = if last.is_some() { bytes } else { BLOCK_BYTES_MAX };
            if wanted != *at || spans.len() == count || (taken > most && !spans.is_empty()) {
                break;
            }
            spans.push(*block);
            if let Some(certificate) = certificate {
                last = Some((*certificate, spans.len()));
            }
        }
        let Some((certificate, count)) = last else { return Ok(None) };
        let mut blocks = Vec::with_capacity(count);
        for block in spans.into_iter().take(count) {
            blocks.push(read_bytes(&self.blob, block).await?);
        }
        Ok(Some((read_bytes(&self.blob, certificate).await?, blocks)))
    }

    /// Whether what comes after a height is here.
    pub(crate) fn reaches(&self, height: u64) -> bool {
        self.finals.contains_key(&height.saturating_add(1))
    }

    /// Whether it has grown enough to be begun anew.
    pub(crate) const fn is_long(&self, state_bytes: usize, growth: u64) -> bool {
        self.end - self.floor > growth + 2 * state_bytes as u64
    }

    /// Begins it anew with the blocks that are not final yet, and a snapshot behind them. Where the snapshot would be too long to be
    /// read again it goes on as it is, and the next try is when it has grown as much once more.
    pub(crate) async fn renew(
        &mut self,
        certificate: &Certificate,
        state: &State,
        blocks: &[(HeaderDigest, Bytes)],
    ) -> Result<(), CommitteeError> {
        let mut head = Vec::new();
        put_long(&mut head, &certificate.encode());
        let snapshot = vec![Bytes::from(head), state.snapshot()];
        let length: usize = snapshot.iter().map(Bytes::len).sum();
        if length > self.snapshot_max {
            tracing::error!(
                bytes = length,
                max = self.snapshot_max,
                "the committee's log is not begun anew: the state is too large for a snapshot"
            );
            self.floor = self.end;
            return Ok(());
        }
        let (old, number) = (self.number, self.number + 1);
        let name = number.to_be_bytes();
        let opened = self.storage.open(&self.partition, &name).await.map_err(storage_error)?;
        self.blob = opened.0;
        self.blob.resize(0).await.map_err(storage_error)?;
        (self.number, self.end, self.floor) = (number, 0, 0);
        (self.blocks, self.finals) = (HashMap::new(), BTreeMap::new());
        for (digest, bytes) in blocks {
            self.block(*digest, bytes).await?;
        }
        // Last: a file without it does not count at a start, and this member may have voted with the blocks.
        self.append(SNAPSHOT, snapshot).await?;
        self.sync().await?;
        self.floor = self.end;
        self.remove(old).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use commonware_runtime::{Runner as _, Supervisor as _, deterministic};

    use super::*;
    use crate::proving::Founded;

    /// What a file of the log holds.
    async fn held(storage: &deterministic::Context, number: u64) -> Vec<u8> {
        let (blob, length) = storage.open("chain", &number.to_be_bytes()).await.expect("a file");
        let read = blob.read_at(0, length as usize, ReadOptions::default()).await.expect("read");
        read.coalesce().freeze().as_ref().to_vec()
    }

    async fn lay(storage: &deterministic::Context, number: u64, bytes: &[u8]) {
        let (blob, _) = storage.open("chain", &number.to_be_bytes()).await.expect("a file");
        blob.resize(0).await.expect("emptied");
        blob.write_at(0, bytes.to_vec(), WriteOptions::default()).await.expect("written");
        blob.sync().await.expect("synced");
    }

    #[test]
    fn a_log_that_is_begun_anew_loses_no_block_wherever_it_is_cut() {
        deterministic::Runner::default().start(|context| async move {
            let open = |name: &'static str| Log::open(context.child(name), String::from("chain"));
            let mut founded = Founded::new(4);
            let (tip, executed) = founded.block(Vec::new());
            let certificate = founded.certify(&tip.header);
            let above: Vec<Block> = (0..3).map(|_| founded.block(Vec::new()).0).collect();
            let above: Vec<(HeaderDigest, Bytes)> =
                above.iter().map(|block| (block.header.digest(), block.encode())).collect();
            let (mut log, _) = open("first").await.expect("an empty one");
            log.block(tip.header.digest(), &tip.encode()).await.expect("written");
            log.certificate(&certificate).await.expect("written");
            for (digest, bytes) in &above {
                log.block(*digest, bytes).await.expect("written");
            }
            log.sync().await.expect("synced");
            let all = Span { at: 0, length: log.end as usize };
            let old = read_bytes(&log.blob, all).await.expect("readable");
            log.renew(&certificate, &executed.state, &above).await.expect("renewed");
            drop(log);
            let new = held(&context, 1).await;
            let (mut cuts, mut at) = (vec![0], 0);
            while at < new.len() {
                let length: [u8; 4] = new[at..at + 4].try_into().expect("a length");
                at += HEAD_BYTES + u32::from_be_bytes(length) as usize;
                cuts.extend([at - 1, at]);
            }
            assert_eq!(cuts.len(), 1 + 2 * 4);
            for cut in cuts {
                lay(&context, 0, &old).await;
                lay(&context, 1, &new[..cut]).await;
                let (log, found) = open("again").await.expect("it opens");
                for (digest, bytes) in &above {
                    assert!(log.has(digest), "cut at {cut} of {}", new.len());
                    assert!(found.blocks.iter().any(|(_, one)| one == bytes));
                }
                let renewed = found.snapshot.is_some();
                assert!(renewed || found.certificates.contains_key(&tip.header.height));
                assert_eq!(renewed, cut == new.len());
            }
        });
    }

    #[test]
    fn a_log_grows_from_its_snapshot_on_however_often_it_is_opened() {
        deterministic::Runner::default().start(|context| async move {
            let open = async || {
                let opened = Log::open(context.child("log"), String::from("chain")).await;
                opened.expect("it opens").0
            };
            let mut founded = Founded::new(4);
            let mut write = async |log: &mut Log<_>| {
                let (block, executed) = founded.block(Vec::new());
                log.block(block.header.digest(), &block.encode()).await.expect("written");
                let certificate = founded.certify(&block.header);
                log.certificate(&certificate).await.expect("written");
                log.sync().await.expect("synced");
                (certificate, executed.state)
            };
            for growth in [2_000, 4_000] {
                let mut last = None;
                for _ in 0..10 {
                    let mut log = open().await;
                    last = Some(write(&mut log).await);
                }
                let mut log = open().await;
                assert!(log.is_long(0, growth), "each start goes on counting");
                let (certificate, state) = last.expect("ten of them");
                log.renew(&certificate, &state, &[]).await.expect("renewed");
                assert!(!log.is_long(0, 0), "begun anew");
                drop(log);
                assert!(!open().await.is_long(0, 0), "and so it is found");
            }
        });
    }

    #[test]
    fn large_blocks_that_became_final_together_are_given_out_together() {
        deterministic::Runner::default().start(|context| async move {
            let opened = Log::open(context.child("log"), String::from("chain")).await;
            let (mut log, mut founded) = (opened.expect("an empty one").0, Founded::new(4));
            let mut large = async |log: &mut Log<_>, certified: bool| {
                let header = founded.block(Vec::new()).0.header;
                let bytes = Bytes::from(vec![header.height as u8; 1 << 20]);
                log.block(header.digest(), &bytes).await.expect("written");
                log.is_final(header.height, &header.digest());
                if certified {
                    log.certificate(&founded.certify(&header)).await.expect("written");
                }
            };
            for certified in [false, false, true, false, false, false, false, true] {
                large(&mut log, certified).await;
            }
            let since = async |height| {
                let since = log.since(height, 64, BLOCK_BYTES_MAX / 2).await.expect("readable");
                since.map(|(_, blocks)| blocks.len())
            };
            assert_eq!(since(0).await, Some(3), "up to their certificate, and no further");
            assert_eq!(since(1).await, Some(2));
            assert_eq!(since(3).await, None, "more than a message holds");
            assert_eq!(since(4).await, Some(4));
        });
    }

    #[test]
    fn a_snapshot_that_could_not_be_read_again_is_not_written_and_the_log_goes_on() {
        deterministic::Runner::default().start(|context| async move {
            let open = |name: &'static str| Log::open(context.child(name), String::from("chain"));
            let mut founded = Founded::new(4);
            let (tip, executed) = founded.block(Vec::new());
            let certificate = founded.certify(&tip.header);
            let (mut log, _) = open("first").await.expect("an empty one");
            log.block(tip.header.digest(), &tip.encode()).await.expect("written");
            log.certificate(&certificate).await.expect("written");
            log.snapshot_max = 100;
            log.renew(&certificate, &executed.state, &[]).await.expect("no error of the disk");
            assert!(log.has(&tip.header.digest()), "all is where it was");
            assert!(!log.is_long(0, 0), "and it is not tried again at once");
            let (next, _) = founded.block(Vec::new());
            log.block(next.header.digest(), &next.encode()).await.expect("it goes on");
            log.sync().await.expect("synced");
            drop(log);
            let (log, found) = open("second").await.expect("the same log");
            assert!(log.has(&tip.header.digest()) && log.has(&next.header.digest()));
            assert!(found.snapshot.is_none());
        });
    }

    #[test]
    fn a_snapshot_longer_than_is_read_is_no_damage_to_be_cut() {
        deterministic::Runner::default().start(|context| async move {
            let open = |name: &'static str| Log::open(context.child(name), String::from("chain"));
            let longer = (FRAME_BYTES_MAX as u32 + 1).to_be_bytes();
            let mut frame = [&longer[..], &[SNAPSHOT], &[7; 100]].concat();
            lay(&context, 0, &frame).await;
            let opened = open("first").await.err();
            assert!(matches!(opened, Some(CommitteeError::Files(FOREIGN))), "{opened:?}");
            assert_eq!(held(&context, 0).await, frame, "it stays as it is");
            // Of another kind there is none so long.
            frame[4] = BLOCK;
            lay(&context, 0, &frame).await;
            assert_eq!(open("second").await.expect("cut").0.end, 0);
        });
    }

    #[test]
    fn what_was_written_and_cannot_be_read_is_not_cut_away() {
        deterministic::Runner::default().start(|context| async move {
            let open = |name: &'static str| Log::open(context.child(name), String::from("chain"));
            let (mut log, _) = open("first").await.expect("an empty one");
            log.append(BLOCK, vec![Bytes::from_static(b"of another build")])
                .await
                .expect("written");
            log.sync().await.expect("synced");
            let end = log.end;
            drop(log);
            assert!(open("second").await.is_err(), "it says so");
            let name = 0_u64.to_be_bytes();
            let (blob, length) = context.open("chain", &name).await.expect("still there");
            assert_eq!(length, end);
            // A frame that the disk damaged is another matter.
            blob.write_at(length - 1, vec![0], WriteOptions::default()).await.expect("written");
            blob.sync().await.expect("synced");
            drop(blob);
            let (log, _) = open("third").await.expect("cut");
            assert_eq!(log.end, 0);
        });
    }

    #[test]
    fn a_log_of_a_newer_release_is_refused_and_stays_as_it_is() {
        // A kind that this build does not know, an empty one too, and one longer than it writes.
        let foreign = [(9, 100), (9, 0), (CERTIFICATE, CERTIFICATE_BYTES_MAX + 1)];
        for (kind, length) in foreign {
            deterministic::Runner::default().start(|context| async move {
                let open =
                    |name: &'static str| Log::open(context.child(name), String::from("chain"));
                let (mut log, _) = open("first").await.expect("an empty one");
                log.append(kind, vec![vec![7; length].into()]).await.expect("written");
                let behind = vec![Bytes::from_static(b"what comes behind it")];
                log.append(9, behind).await.expect("written");
                log.sync().await.expect("synced");
                let end = log.end;
                drop(log);
                let opened = open("second").await.err();
                assert!(matches!(opened, Some(CommitteeError::Files(FOREIGN))), "{opened:?}");
                let name = 0_u64.to_be_bytes();
                let (blob, held) = context.open("chain", &name).await.expect("still there");
                assert_eq!(held, end, "{kind} of {length} bytes");
                // Where it is damaged it is nobody's.
                blob.write_at(5, vec![0xff; 16], WriteOptions::default()).await.expect("written");
                blob.sync().await.expect("synced");
                drop(blob);
                assert_eq!(open("third").await.expect("cut").0.end, 0);
            });
        }
    }
}
