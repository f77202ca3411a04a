//! The small files of a member: its charter, its share of each epoch, what was dealt to it, and that it began to vote.
//!
//! ```text
//! file      BLAKE3 32 | bytes                                            written whole
//! charter   the charter
//! share     epoch 8 | the engine's share; even epochs                    share-odd  the same, odd epochs
//! began     epoch 8: in which it last began to vote
//! wish      the wish that this member signed last (crate::members)
//! dealings  (length 4 | first 16 of BLAKE3(bytes) | bytes) each, appended: number 8 | seed 32 | length 4 | outcome before,
//!           then dealer 32 | length 4 | public message | length 4 | private message for each part that is acknowledged
//! ```
//! Two files for shares, so that the new one is whole on the disk while the old one still is. What must be forgotten is written over
//! with zeros in place, and synced: [`forget_shares`], [`Dealings::forget`].

use bytes::Bytes;
use commonware_codec::{DecodeExt as _, Encode as _};
use commonware_cryptography::bls12381::primitives::group::Share;
use commonware_runtime::{Blob, ReadOptions, Storage, WriteOptions};
use crypto::Suite;

use super::Runtime;
use super::charter::Charter;
use crate::CommitteeError;
use crate::members::OUTCOME_BYTES_MAX;
use crate::reader::{Reader, put_long};

/// The longest file here, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The longest frame of the dealings, in bytes.
const FRAME_BYTES_MAX: usize = 2 * OUTCOME_BYTES_MAX;
const FRAME_HEAD_BYTES: usize = 4 + 16;

pub(super) const CHARTER: &[u8] = b"charter";
const SHARES: [&[u8]; 2] = [b"share", b"share-odd"];
const BEGAN: &[u8] = b"began";
const WISH: &[u8] = b"wish";
const DEALINGS: &[u8] = b"dealings";

fn partition(name: &str) -> String {
    format!("{name}-committee")
}

/// Writes a small file whole.
pub(super) async fn store<E: Runtime>(
    context: &E,
    name: &str,
    file: &[u8],
    bytes: &[u8],
) -> Result<(), CommitteeError> {
    let (blob, _) = context.open(&partition(name), file).await.map_err(CommitteeError::Storage)?;
    let whole = [&Suite::Holdfast1.hash(bytes)[..], bytes].concat();
    blob.resize(whole.len() as u64).await.map_err(CommitteeError::Storage)?;
    blob.write_at(0, whole, WriteOptions::default()).await.map_err(CommitteeError::Storage)?;
    blob.sync().await.map_err(CommitteeError::Storage)
}

/// A small file; nothing where there is none, or was none whole.
pub(super) async fn load<E: Runtime>(
    context: &E,
    name: &str,
    file: &[u8],
) -> Result<Bytes, CommitteeError> {
    let opened = context.open(&partition(name), file).await;
    let (blob, length) = opened.map_err(CommitteeError::Storage)?;
    if !(32..=FILE_BYTES_MAX).contains(&length) {
        return Ok(Bytes::new());
    }
    let bytes = read(&blob, 0, length as usize).await?;
    let (sum, rest) = (bytes.slice(..32), bytes.slice(32..));
    let whole = Suite::Holdfast1.hash(&rest)[..] == sum[..];
    Ok(if whole { rest } else { Bytes::new() })
}

async fn read(blob: &impl Blob, at: u64, length: usize) -> Result<Bytes, CommitteeError> {
    let read = blob.read_at(at, length, ReadOptions::default()).await;
    Ok(Bytes::from(read.map_err(CommitteeError::Storage)?.coalesce().freeze()))
}

/// Writes zeros over all of a file, where it lies, and waits for the disk.
async fn overwrite(blob: &impl Blob, length: u64) -> Result<(), CommitteeError> {
    if length > 0 {
        let zeros = vec![0; length as usize];
        blob.write_at(0, zeros, WriteOptions::default()).await.map_err(CommitteeError::Storage)?;
        blob.sync().await.map_err(CommitteeError::Storage)?;
    }
    Ok(())
}

/// The charter that a member keeps.
///
/// # Errors
/// [`CommitteeError::Files`] where there is no charter.
pub(crate) async fn charter<E: Runtime>(
    context: &E,
    name: &str,
) -> Result<Charter, CommitteeError> {
    let charter = load(context, name, CHARTER).await?;
    if charter.is_empty() {
        return Err(CommitteeError::Files("there is no charter: found a committee, or join one"));
    }
    Charter::decode(&charter)
}

/// Keeps the charter of a committee that others founded.
///
/// # Errors
/// [`CommitteeError::Files`] where there is a member already.
pub async fn join<E: Runtime>(
    context: &E,
    name: &str,
    charter: &Charter,
) -> Result<(), CommitteeError> {
    if !load(context, name, CHARTER).await?.is_empty() {
        return Err(CommitteeError::Files("there is a member here already"));
    }
    store(context, name, CHARTER, &charter.encode()).await
}

/// The file that an epoch's share is in.
const fn share_file(epoch: u64) -> &'static [u8] {
    SHARES[(epoch % 2) as usize]
}

/// The share of an epoch.
pub(super) async fn share<E: Runtime>(
    context: &E,
    name: &str,
    epoch: u64,
) -> Result<Option<Share>, CommitteeError> {
    const DAMAGED: CommitteeError = CommitteeError::Files("the share is damaged");
    let bytes = load(context, name, share_file(epoch)).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let kept: [u8; 8] = bytes.first_chunk().copied().ok_or(DAMAGED)?;
    if u64::from_be_bytes(kept) != epoch {
        return Ok(None);
    }
    Share::decode(bytes.slice(8..)).map(Some).map_err(|_| DAMAGED)
}

/// Keeps the share of an epoch.
pub(super) async fn keep_share<E: Runtime>(
    context: &E,
    name: &str,
    epoch: u64,
    share: &Share,
) -> Result<(), CommitteeError> {
    let bytes = [&epoch.to_be_bytes()[..], &share.encode()].concat();
    store(context, name, share_file(epoch), &bytes).await
}

/// Overwrites the shares of all epochs before this one; `true` where there was one.
pub(super) async fn forget_shares<E: Runtime>(
    context: &E,
    name: &str,
    before: u64,
) -> Result<bool, CommitteeError> {
    let mut found = false;
    for file in SHARES {
        let opened = context.open(&partition(name), file).await;
        let (blob, length) = opened.map_err(CommitteeError::Storage)?;
        let bytes = read(&blob, 0, length.min(FILE_BYTES_MAX) as usize).await?;
        let epoch = bytes.get(32..40).and_then(|one| one.first_chunk().copied());
        let whole = bytes.len() >= 40 && Suite::Holdfast1.hash(&bytes[32..])[..] == bytes[..32];
        let kept = whole && epoch.is_some_and(|epoch| u64::from_be_bytes(epoch) >= before);
        if !kept && bytes.iter().any(|byte| *byte != 0) {
            overwrite(&blob, length).await?;
            found = true;
        }
    }
    Ok(found)
}

/// In which epoch the member last began to vote.
pub(super) async fn began<E: Runtime>(
    context: &E,
    name: &str,
) -> Result<Option<u64>, CommitteeError> {
    let bytes = load(context, name, BEGAN).await?;
    Ok(bytes.first_chunk().copied().map(u64::from_be_bytes))
}

/// Notes that it begins to, in this epoch.
pub(super) async fn begin<E: Runtime>(
    context: &E,
    name: &str,
    epoch: u64,
) -> Result<(), CommitteeError> {
    if began(context, name).await? == Some(epoch) {
        return Ok(());
    }
    store(context, name, BEGAN, &epoch.to_be_bytes()).await
}

/// The wish that the member signed last.
pub(super) async fn wish<E: Runtime>(context: &E, name: &str) -> Result<Bytes, CommitteeError> {
    load(context, name, WISH).await
}

/// Keeps the wish that the member signed.
pub(super) async fn keep_wish<E: Runtime>(
    context: &E,
    name: &str,
    wish: &[u8],
) -> Result<(), CommitteeError> {
    store(context, name, WISH, wish).await
}

/// A part that a dealer dealt to this member, as it came.
pub(super) struct Part {
    pub(super) dealer: [u8; 32],
    pub(super) public: Bytes,
    pub(super) private: Bytes,
}

/// What this member deals with in a round, and what was dealt to it: kept before it is acknowledged.
pub(super) struct Dealings<S: Storage> {
    blob: S::Blob,
    end: u64,
    /// Bytes of the file: what was torn lies behind the end.
    length: u64,
    pub(super) number: Option<u64>,
    pub(super) seed: [u8; 32],
    /// What the epoch that deals was made by.
    pub(super) before: Bytes,
    pub(super) parts: Vec<Part>,
}

impl<S: Storage> Dealings<S> {
    /// Reads them, up to the first frame that is not whole.
    pub(super) async fn open(storage: &S, name: &str) -> Result<Self, CommitteeError> {
        let opened = storage.open(&partition(name), DEALINGS).await;
        let (blob, length) = opened.map_err(CommitteeError::Storage)?;
        let (before, parts) = (Bytes::new(), Vec::new());
        let mut all = Self { blob, end: 0, length, number: None, seed: [0; 32], before, parts };
        while all.end + FRAME_HEAD_BYTES as u64 <= length {
            let head = read(&all.blob, all.end, FRAME_HEAD_BYTES).await?;
            let mut reader = Reader::new("frame of the dealings", &head);
            let (size, sum) = (reader.u32()? as usize, reader.array::<16>()?);
            let at = all.end + FRAME_HEAD_BYTES as u64;
            if size == 0 || size > FRAME_BYTES_MAX || at + size as u64 > length {
                break;
            }
            let bytes = read(&all.blob, at, size).await?;
            if Suite::Holdfast1.hash(&bytes)[..16] != sum || all.take(&bytes).is_err() {
                break;
            }
            all.end = at + size as u64;
        }
        Ok(all)
    }

    fn take(&mut self, bytes: &Bytes) -> Result<(), CommitteeError> {
        let mut reader = Reader::new("frame of the dealings", bytes);
        if self.number.is_none() {
            self.number = Some(reader.u64()?);
            self.seed = reader.array()?;
            self.before = bytes.slice_ref(reader.long("bytes of an outcome", OUTCOME_BYTES_MAX)?);
            return reader.end();
        }
        let dealer = reader.array()?;
        let public = bytes.slice_ref(reader.long("bytes of a part", FRAME_BYTES_MAX)?);
        let private = bytes.slice_ref(reader.long("bytes of a part", FRAME_BYTES_MAX)?);
        reader.end()?;
        self.parts.push(Part { dealer, public, private });
        Ok(())
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), CommitteeError> {
        let mut frame = (bytes.len() as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&Suite::Holdfast1.hash(bytes)[..16]);
        frame.extend_from_slice(bytes);
        let length = frame.len() as u64;
        let written = self.blob.write_at(self.end, frame, WriteOptions::default()).await;
        written.map_err(CommitteeError::Storage)?;
        self.blob.sync().await.map_err(CommitteeError::Storage)?;
        self.end += length;
        self.length = self.length.max(self.end);
        Ok(())
    }

    /// Forgets those of another round, and begins with this one.
    pub(super) async fn begin(
        &mut self,
        number: u64,
        seed: [u8; 32],
        before: &Bytes,
    ) -> Result<(), CommitteeError> {
        self.forget().await?;
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.extend_from_slice(&seed);
        put_long(&mut bytes, before);
        self.append(&bytes).await?;
        (self.number, self.seed, self.before) = (Some(number), seed, before.clone());
        Ok(())
    }

    /// Keeps a part; it is on the disk when this ends.
    pub(super) async fn keep(&mut self, part: Part) -> Result<(), CommitteeError> {
        let mut bytes = part.dealer.to_vec();
        put_long(&mut bytes, &part.public);
        put_long(&mut bytes, &part.private);
        self.append(&bytes).await?;
        self.parts.push(part);
        Ok(())
    }

    /// Overwrites all of it.
    pub(super) async fn forget(&mut self) -> Result<(), CommitteeError> {
        overwrite(&self.blob, self.length).await?;
        self.blob.resize(0).await.map_err(CommitteeError::Storage)?;
        self.blob.sync().await.map_err(CommitteeError::Storage)?;
        (self.end, self.length, self.number, self.seed) = (0, 0, None, [0; 32]);
        (self.before, self.parts) = (Bytes::new(), Vec::new());
        Ok(())
    }
}
