//! A disk in memory that fails the way disks fail: torn writes, lost fsyncs, rot, no space, errors.
//!
//! Each file has what a reader sees now and what is durable, and a list of what was written between
//! the two. A power cut ([`FaultyDisk::crash`]) leaves the durable bytes and, of the rest, any
//! subset, each write cut anywhere: a disk orders nothing between two syncs. Of names (creations,
//! renames, removals) not yet synced it leaves any prefix, as a journalling file system does. A
//! failed sync drops what was pending from what can ever become durable, though readers still see
//! it until it is uncached, as Linux does. A large write may be one that goes past the system's cache ([`FaultyDisk::write_directly`]): what
//! of it lies before the first multiple of 4 KiB in the file does not, and may be lost alone.
//!
//! Everything is decided by the seed: the same calls give the same disk.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use env::disk::{BULK_BYTES_MIN, Disk, File, WRITE_ALIGNMENT};

/// What a disk reads or refuses at once.
const SECTOR_BYTES: u64 = 4096;

/// A [`Disk`] with faults that are switched on by its methods. Clones share one disk.
#[derive(Clone)]
pub struct FaultyDisk(Arc<Mutex<State>>);

struct State {
    random: u64,
    files: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    capacity: u64,
    /// Whether it says that there is room where there is none, as a disk with a quota does.
    hides_capacity: bool,
    /// Operations until the power goes; none is planned at `None`.
    operations_left: Option<u64>,
    powered: bool,
    fail_syncs: u32,
    fail_writes: u32,
    fail_reads: bool,
    /// Whether it does not say how much is free.
    silent_capacity: bool,
    /// By inode: bytes that cannot be read.
    bad_places: BTreeMap<usize, Range<u64>>,
    lose_syncs_percent: u64,
    writes_directly: bool,
    met: BTreeMap<&'static str, u64>,
    /// Told when planned operations are used up and the power goes.
    power_goes: Option<Arc<dyn Fn() + Send + Sync>>,
}

#[derive(Default, Clone)]
struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Truncate(u64),
}

#[derive(Clone)]
enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Truncate(len) => to.resize(*len as usize, 0),
            Self::Write { offset, bytes } => {
                let from = *offset as usize;
                if to.len() < from {
                    to.resize(from, 0);
                }
                let (over, beyond) = bytes.split_at(bytes.len().min(to.len() - from));
                to[from..from + over.len()].copy_from_slice(over);
                to.extend_from_slice(beyond);
            }
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Create(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

/// What a system without power answers.
fn no_power() -> io::Error {
    io::Error::other("the power is off")
}

fn no_input() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl State {
    /// xorshift64*: small, and the same everywhere.
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % below.max(1)
    }

    /// A fault was met.
    fn meet(&mut self, fault: &'static str) {
        *self.met.entry(fault).or_default() += 1;
    }

    /// Counts an operation; the power may go before it: `fault` is what that is called.
    fn step(&mut self, fault: &'static str) -> io::Result<()> {
        if let Some(left) = &mut self.operations_left {
            if *left == 0 {
                if self.powered {
                    *self.met.entry(fault).or_default() += 1;
                    if let Some(power_goes) = self.power_goes.take() {
                        power_goes();
                    }
                }
                self.powered = false;
            } else {
                *left -= 1;
            }
        }
        if self.powered { Ok(()) } else { Err(no_power()) }
    }

    fn used(&self) -> u64 {
        self.names.values().map(|inode| self.files[*inode].bytes.len() as u64).sum()
    }

    /// What is left of a file after a power cut.
    fn survivor(&mut self, inode: usize) -> Vec<u8> {
        let file = std::mem::take(&mut self.files[inode]);
        let mut bytes = file.durable;
        for change in file.pending {
            match change {
                _ if self.random(3) == 0 => self.meet("disk: a write lost with the power"),
                Change::Write { offset, bytes: mut written } => {
                    if self.random(2) == 0 {
                        let keep = self.random(written.len() as u64 + 1) as usize;
                        if keep < written.len() {
                            self.meet("disk: a torn write");
                        }
                        written.truncate(keep);
                    }
                    Change::Write { offset, bytes: written }.apply(&mut bytes);
                }
                truncate => truncate.apply(&mut bytes),
            }
        }
        bytes
    }
}

impl FaultyDisk {
    /// An empty disk without faults, without end.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            capacity: u64::MAX,
            hides_capacity: false,
            operations_left: None,
            powered: true,
            fail_syncs: 0,
            fail_writes: 0,
            fail_reads: false,
            silent_capacity: false,
            bad_places: BTreeMap::new(),
            lose_syncs_percent: 0,
            writes_directly: false,
            met: BTreeMap::new(),
            power_goes: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the power: every later call on this disk fails. Returns the disk as it is found
    /// afterwards, without faults.
    pub fn crash(&self) -> Self {
        let mut state = self.lock();
        state.powered = false;
        let unsynced = state.pending_names.len() as u64;
        let keep = state.random(unsynced + 1) as usize;
        if (keep as u64) < unsynced {
            state.meet("disk: a name lost with the power");
        }
        let mut names = state.durable_names.clone();
        state.pending_names.iter().take(keep).for_each(|change| change.apply(&mut names));
        let after = Self::new(state.random(u64::MAX));
        {
            let mut next = after.lock();
            next.capacity = state.capacity;
            next.hides_capacity = state.hides_capacity;
            next.writes_directly = state.writes_directly;
            for (name, inode) in names {
                let bytes = state.survivor(inode);
                let number = next.files.len();
                next.files.push(Inode { durable: bytes.clone(), bytes, pending: Vec::new() });
                next.names.insert(name.clone(), number);
                next.durable_names.insert(name, number);
            }
            next.met = std::mem::take(&mut state.met);
        }
        after
    }

    /// How often each fault that was switched on was really met, since this was last asked; what a power cut ended counts
    /// with the disk that is found afterwards.
    pub fn take_met(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut self.lock().met)
    }

    /// The power goes after so many more operations that change the disk; [`FaultyDisk::crash`]
    /// then tells what is left.
    pub fn crash_after(&self, operations: u64) {
        self.lock().operations_left = Some(operations);
    }

    /// As [`FaultyDisk::crash_after`]; `power_goes` is called in that moment, within the operation: it must not use the disk.
    pub fn crash_after_and(&self, operations: u64, power_goes: impl Fn() + Send + Sync + 'static) {
        let mut state = self.lock();
        state.operations_left = Some(operations);
        state.power_goes = Some(Arc::new(power_goes));
    }

    /// Whether the power is still on.
    pub fn is_powered(&self) -> bool {
        self.lock().powered
    }

    /// The disk takes no more than `bytes` in all.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity = bytes;
    }

    /// The disk says that there is room where there is none (a quota, blocks that are reserved), or the truth again.
    pub fn hide_capacity(&self, hide: bool) {
        self.lock().hides_capacity = hide;
    }

    /// Asking what is free fails, or no longer does.
    pub fn silence_capacity(&self, silent: bool) {
        self.lock().silent_capacity = silent;
    }

    /// Bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used()
    }

    /// The next `count` syncs of files fail, and what they should have made durable never will be.
    pub fn fail_syncs(&self, count: u32) {
        self.lock().fail_syncs = count;
    }

    /// The next `count` writes fail half-way.
    pub fn fail_writes(&self, count: u32) {
        self.lock().fail_writes = count;
    }

    /// Reads fail, or no longer do.
    pub fn fail_reads(&self, fail: bool) {
        self.lock().fail_reads = fail;
    }

    /// A bad place of the disk: reads of a file that touch these of its bytes fail. There is one in a file at most, and none
    /// at an empty range.
    ///
    /// # Panics
    /// Where there is no such file.
    pub fn fail_reads_in(&self, name: &str, range: Range<u64>) {
        let mut state = self.lock();
        let inode = *state.names.get(name).expect("a file of this name");
        state.bad_places.insert(inode, range);
    }

    /// As [`FaultyDisk::fail_reads_in`], of the whole sectors of 4 KiB that these bytes lie in.
    ///
    /// # Panics
    /// Where there is no such file.
    pub fn fail_sectors_in(&self, name: &str, range: Range<u64>) {
        let whole = range.start / SECTOR_BYTES * SECTOR_BYTES;
        self.fail_reads_in(name, whole..range.end.next_multiple_of(SECTOR_BYTES));
    }

    /// So many of a hundred syncs answer without doing anything: a disk that lies.
    pub fn lose_syncs(&self, percent: u64) {
        self.lock().lose_syncs_percent = percent;
    }

    /// From here on a write with a part of [`BULK_BYTES_MIN`] goes past the system's cache, from the first multiple of
    /// [`WRITE_ALIGNMENT`] in the file on: a power cut may keep that and leave a hole before it.
    pub fn write_directly(&self) {
        self.lock().writes_directly = true;
    }

    /// The bytes of a file as a reader sees them.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        state.names.get(name).map(|inode| state.files[*inode].bytes.clone())
    }

    /// Rot: changes one byte of a file, durably.
    ///
    /// # Panics
    /// Where there is no such byte.
    pub fn flip(&self, name: &str, offset: usize, mask: u8) {
        let mut state = self.lock();
        let inode = *state.names.get(name).expect("a file of this name");
        let file = &mut state.files[inode];
        file.bytes[offset] ^= mask;
        if let Some(byte) = file.durable.get_mut(offset) {
            *byte ^= mask;
        }
    }

    /// Rot: changes one byte somewhere. Returns where; `None` on an empty disk.
    pub fn rot(&self) -> Option<(String, usize)> {
        let (name, offset, mask) = {
            let mut state = self.lock();
            let full: Vec<(String, usize)> = state
                .names
                .iter()
                .map(|(name, inode)| (name.clone(), state.files[*inode].bytes.len()))
                .filter(|(_, len)| *len > 0)
                .collect();
            let (name, len) = full.get(state.random(full.len() as u64) as usize)?.clone();
            let offset = state.random(len as u64) as usize;
            (name, offset, 1 << state.random(8))
        };
        self.flip(&name, offset, mask);
        Some((name, offset))
    }

    /// A copy of the disk as a reader sees it, everything durable, without faults; it writes past the cache where this one does.
    pub fn copy(&self) -> Self {
        let state = self.lock();
        let copy = Self::new(state.random | 1);
        {
            let mut next = copy.lock();
            next.writes_directly = state.writes_directly;
            for (name, inode) in &state.names {
                let bytes = state.files[*inode].bytes.clone();
                let number = next.files.len();
                next.files.push(Inode { durable: bytes.clone(), bytes, pending: Vec::new() });
                next.names.insert(name.clone(), number);
                next.durable_names.insert(name.clone(), number);
            }
        }
        copy
    }
}

impl Disk for FaultyDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        let mut state = self.lock();
        if !state.powered {
            return Err(no_power());
        }
        let inode = match state.names.get(name) {
            Some(inode) => *inode,
            None if create => {
                state.step("disk: no power to make a file")?;
                let inode = state.files.len();
                state.files.push(Inode::default());
                state.names.insert(name.to_owned(), inode);
                state.pending_names.push(NameChange::Create(name.to_owned(), inode));
                inode
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(FaultyFile { disk: self.clone(), inode }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.lock();
        if state.powered { Ok(state.names.keys().cloned().collect()) } else { Err(no_power()) }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.step("disk: no power to rename")?;
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let change = NameChange::Rename(from.to_owned(), to.to_owned());
        change.apply(&mut state.names);
        state.pending_names.push(change);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.step("disk: no power to remove")?;
        if state.names.remove(name).is_some() {
            state.pending_names.push(NameChange::Remove(name.to_owned()));
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.step("disk: no power to sync names")?;
        if state.random(100) >= state.lose_syncs_percent {
            state.durable_names = state.names.clone();
            state.pending_names.clear();
        }
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.lock();
        if state.silent_capacity {
            return Err(io::Error::other("disk: it does not say how much is free"));
        }
        let capacity = if state.hides_capacity { u64::MAX } else { state.capacity };
        Ok(capacity.saturating_sub(state.used()))
    }
}

struct FaultyFile {
    disk: FaultyDisk,
    inode: usize,
}

impl File for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().files[self.inode].bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        if !state.powered {
            return Err(no_power());
        }
        let end = offset.saturating_add(into.len() as u64);
        let bad = state.bad_places.get(&self.inode);
        if state.fail_reads || bad.is_some_and(|bad| offset.max(bad.start) < end.min(bad.end)) {
            state.meet("disk: a failed read");
            return Err(no_input());
        }
        let bytes = &state.files[self.inode].bytes;
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let there = bytes.get(from..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn others_answer(&self) -> bool {
        let state = self.disk.lock();
        let answers = |inode: &usize| {
            let bad = state.bad_places.get(inode);
            *inode != self.inode
                && !state.files[*inode].bytes.is_empty()
                && !bad.is_some_and(|bad| bad.contains(&0))
        };
        state.powered && !state.fail_reads && state.names.values().any(answers)
    }

    fn is_removed(&self) -> io::Result<bool> {
        Ok(!self.disk.lock().names.values().any(|inode| *inode == self.inode))
    }

    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut state = self.disk.lock();
        if !state.powered {
            return Err(no_power());
        }
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let power = state.step("disk: the power goes during a write");
        let free = state.capacity.saturating_sub(state.used());
        let len = state.files[self.inode].bytes.len() as u64;
        let grows = (offset + bytes.len() as u64).saturating_sub(len);
        let result = if power.is_err() {
            // The power went during this write: any part of it may have been on its way.
            power
        } else if state.fail_writes > 0 {
            state.fail_writes -= 1;
            state.meet("disk: a failed write");
            bytes.truncate(bytes.len() / 2);
            Err(no_input())
        } else if grows > free {
            state.meet("disk: no room for a write");
            // Not even what lies between the file's end and the write may fit.
            let fits = (bytes.len() as u64).saturating_sub(grows - free);
            bytes.truncate(fits as usize);
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        };
        if result.is_err() && bytes.is_empty() {
            return result;
        }
        let directly =
            state.writes_directly && parts.iter().any(|part| part.len() >= BULK_BYTES_MIN);
        if directly {
            state.meet("disk: a write past the cache");
        }
        let ahead = offset.next_multiple_of(WRITE_ALIGNMENT as u64) - offset;
        let ahead = if directly { (ahead as usize).min(bytes.len()) } else { 0 };
        let rest = bytes.split_off(ahead);
        let file = &mut state.files[self.inode];
        let mut write = |offset: u64, bytes: Vec<u8>| {
            let change = Change::Write { offset, bytes };
            change.apply(&mut file.bytes);
            file.pending.push(change);
        };
        if ahead > 0 {
            write(offset, bytes);
        }
        write(offset + ahead as u64, rest);
        result
    }

    /// Memory lies as it likes, and a simulation does not depend on it: whatever a part leaves, it is the same.
    fn memory_alignment(&self) -> Option<usize> {
        self.disk.lock().writes_directly.then_some(1)
    }

    /// What waits to be written stays; of what counts as written only what is on the disk is there still.
    fn uncache(&self, range: Range<u64>) {
        let mut state = self.disk.lock();
        let file = &mut state.files[self.inode];
        if !file.pending.is_empty() {
            return;
        }
        let end = file.bytes.len().min(range.end as usize);
        let start = end.min(range.start as usize);
        // The length is in the file's own entry, which stays in memory: behind what the disk has there are zeros.
        for (at, byte) in (start..end).zip(&mut file.bytes[start..end]) {
            *byte = file.durable.get(at).copied().unwrap_or(0);
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.step("disk: no power to cut a file")?;
        let file = &mut state.files[self.inode];
        let change = Change::Truncate(len);
        change.apply(&mut file.bytes);
        file.pending.push(change);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.step("disk: no power to sync")?;
        let lost = state.random(100) < state.lose_syncs_percent;
        let failed = state.fail_syncs > 0;
        if failed {
            state.fail_syncs -= 1;
            state.meet("disk: a failed sync");
        } else if lost {
            state.meet("disk: a lost sync");
        }
        let file = &mut state.files[self.inode];
        if failed {
            file.pending.clear();
            return Err(no_input());
        }
        if !lost {
            // What a failed sync dropped stays missing: only what is pending becomes durable.
            for change in std::mem::take(&mut file.pending) {
                change.apply(&mut file.durable);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_disk_that_writes_past_the_cache_does_so_too() {
        let disk = FaultyDisk::new(1);
        disk.write_directly();
        let bytes = vec![1; BULK_BYTES_MIN];
        for disk in [disk.copy(), disk.crash()] {
            let file = disk.open("a", true).expect("created");
            file.write_at(0, &[IoSlice::new(&bytes[1..])]).expect("written");
            assert_eq!(disk.take_met().len(), 0, "a part is too short");
            file.write_at(0, &[IoSlice::new(&bytes)]).expect("written");
            assert_eq!(disk.take_met()["disk: a write past the cache"], 1);
        }
    }

    #[test]
    fn a_full_disk_takes_what_fits_of_a_write_and_of_one_beyond_the_end_perhaps_nothing() {
        let disk = FaultyDisk::new(1);
        let file = disk.open("a", true).expect("created");
        let write = |offset, bytes: &[u8]| file.write_at(offset, &[IoSlice::new(bytes)]);
        write(0, &[1; 10]).expect("there is room");
        disk.set_capacity(30);
        let full = write(50, &[2; 10]).expect_err("there is none");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.len().expect("length"), 10, "not even the hole before it fits");
        write(25, &[3; 10]).expect_err("there is room for half of it");
        assert_eq!(disk.bytes("a").expect("bytes")[25..], [3; 5]);
    }
}
