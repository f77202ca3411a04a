//! One block: a part of a file in memory that survives the process, byte by byte in `docs/formats/store.md`.
//!
//! ```text
//! 0    magic    8    HOLDWBEH
//! 8    version  2    1
//! 10   name     1    its length; 0 where the block is free
//! 11   zero     1
//! 12   length   4    bytes of the file that are here
//! 16   base     8    where they lie in it, a multiple of 4096
//! 24   boot     16   the system's start
//! 40   name     128
//! 4096 the bytes
//! ```

use std::os::fd::AsFd;

use memmap2::{MmapMut, MmapOptions};

use super::super::dir::{NAME_BYTES_MAX, check_name};
use super::super::room::ALIGNMENT;

/// Bytes of a file in one block: so many are written at once.
pub(super) const BLOCK_BYTES: usize = 512 << 10;
/// Before the bytes, so that these begin at a multiple of [`ALIGNMENT`].
const HEAD_BYTES: usize = ALIGNMENT;
/// A block in the file of blocks.
pub(super) const STRIDE: usize = HEAD_BYTES + BLOCK_BYTES;

const MAGIC: &[u8; 8] = b"HOLDWBEH";
const VERSION: u16 = 1;
const NAME_AT: usize = 40;
/// What of the head is used.
pub(super) const FIELDS_BYTES: usize = NAME_AT + NAME_BYTES_MAX;

/// Which start of the system this is (`/proc/sys/kernel/random/boot_id`).
pub(super) type Boot = [u8; 16];

/// What a block in use says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub name: String,
    pub base: u64,
    pub len: usize,
}

impl Head {
    pub(super) fn encode(&self, boot: &Boot, into: &mut [u8; FIELDS_BYTES]) {
        let name = self.name.as_bytes();
        into.fill(0);
        into[..8].copy_from_slice(MAGIC);
        into[8..10].copy_from_slice(&VERSION.to_be_bytes());
        // Names have at most 128 bytes, blocks 512 KiB.
        into[10] = name.len() as u8;
        into[12..16].copy_from_slice(&(self.len as u32).to_be_bytes());
        into[16..24].copy_from_slice(&self.base.to_be_bytes());
        into[24..40].copy_from_slice(boot);
        into[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
    }

    /// What a process of this start of the system left; `None` where the block is free, of another start, or none.
    pub(super) fn decode(bytes: &[u8; FIELDS_BYTES], boot: &Boot) -> Option<Self> {
        let ours = bytes[..8] == *MAGIC
            && bytes[8..10] == VERSION.to_be_bytes()
            && bytes[11] == 0
            && bytes[24..40] == *boot;
        let name = bytes.get(NAME_AT..NAME_AT + usize::from(bytes[10])).filter(|_| ours)?;
        let name = std::str::from_utf8(name).ok().filter(|name| check_name(name).is_ok())?;
        let (len, base) = (be(&bytes[12..16]), be(&bytes[16..24]));
        let len = usize::try_from(len).ok().filter(|len| *len <= BLOCK_BYTES)?;
        base.is_multiple_of(ALIGNMENT as u64).then(|| Self { name: name.to_owned(), base, len })
    }
}

/// The big-endian number in at most eight bytes.
fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The memory of a block.
pub(super) struct Block {
    map: MmapMut,
    /// Bytes of it that were ever filled, and not overwritten since.
    filled: usize,
}

impl Block {
    /// The block at this number of the file of blocks, which has room for it.
    #[allow(unsafe_code, reason = "a mapped file has no safe form")]
    pub(super) fn map(file: impl AsFd, number: usize) -> std::io::Result<Self> {
        let file = std::os::fd::AsRawFd::as_raw_fd(&file.as_fd());
        // SAFETY: the file was just made for this process alone, under the lock of its folder, and is its owner's (0600). Its
        // room was taken from the file system, which does not copy what is written again.
        let map = unsafe {
            MmapOptions::new().offset((number * STRIDE) as u64).len(STRIDE).map_mut(file)?
        };
        Ok(Self { map, filled: 0 })
    }

    /// Takes it for a part of a file.
    pub(super) fn begin(&mut self, head: &Head, boot: &Boot) {
        if let Some(fields) = self.map.first_chunk_mut() {
            head.encode(boot, fields);
        }
        self.filled = self.filled.max(head.len);
    }

    /// Says how many of its bytes are the file's.
    pub(super) fn set_len(&mut self, len: usize) {
        self.map[12..16].copy_from_slice(&(len as u32).to_be_bytes());
        self.filled = self.filled.max(len);
    }

    /// It is nobody's.
    pub(super) fn free(&mut self) {
        self.map[10] = 0;
    }

    /// Overwrites what earlier uses left in it, also on the disk: what is not the part of a file that it has now.
    pub(super) fn wipe(&mut self) -> std::io::Result<()> {
        let used = match self.map[10] {
            0 => 0,
            _ => be(&self.map[12..16]) as usize,
        };
        if self.filled > used {
            let filled = self.filled;
            self.bytes_mut()[used..filled].fill(0);
            self.map.flush_range(HEAD_BYTES + used, filled - used)?;
            self.filled = used;
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.map[HEAD_BYTES..]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map[HEAD_BYTES..]
    }
}

/// Where the bytes of the block at this number are in the file of blocks, and where its head is.
pub(super) const fn places(number: usize) -> (u64, u64) {
    let head = (number * STRIDE) as u64;
    (head, head + HEAD_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: Boot = *b"0123456789abcdef";

    fn head() -> Head {
        Head { name: "00000007.log".to_owned(), base: 0x0123_4000, len: 0x0001_0203 }
    }

    #[test]
    fn golden_bytes() {
        let mut bytes = [1; FIELDS_BYTES];
        head().encode(&BOOT, &mut bytes);
        let mut wanted = b"HOLDWBEH\0\x01\x0c\0\0\x01\x02\x03\0\0\0\0\x01\x23\x40\0".to_vec();
        wanted.extend(BOOT);
        wanted.extend(b"00000007.log");
        wanted.resize(FIELDS_BYTES, 0);
        assert_eq!(bytes.to_vec(), wanted);
        assert_eq!(Head::decode(&bytes, &BOOT), Some(head()));
    }

    #[test]
    fn what_is_free_or_foreign_or_impossible_is_none() {
        let mut good = [0; FIELDS_BYTES];
        head().encode(&BOOT, &mut good);
        assert_eq!(Head::decode(&good, b"another start..."), None);
        // Magic, version, a name of no bytes, one over its bound, a zero, a length and a base that cannot be, a name that leads
        // elsewhere or stands for something else.
        let wrong: [(usize, &[u8]); 9] = [
            (0, b"h"),
            (9, &[2]),
            (10, &[0]),
            (10, &[129]),
            (11, &[1]),
            (12, &[0, 8, 0, 1]),
            (23, &[1]),
            (40, b"../00000.log"),
            (40, b"0000\x00007.log"),
        ];
        for (at, bytes) in wrong {
            let mut bad = good;
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(Head::decode(&bad, &BOOT), None, "{at}");
        }
        for name in ["lock", "write-behind"] {
            let mut bad = good;
            Head { name: name.to_owned(), ..head() }.encode(&BOOT, &mut bad);
            assert_eq!(Head::decode(&bad, &BOOT), None, "{name}");
        }
    }
}
