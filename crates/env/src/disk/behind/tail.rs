//! One file, and what of it is in blocks only.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::super::bulk::Bulk;
use super::super::room::ALIGNMENT;
use super::Behind;
use super::block::{BLOCK_BYTES, Block, Head};

/// How much of the disk a file takes ahead of what is written, where that is more than a block.
const AHEAD_BYTES: u64 = 1 << 20;

/// A file of a folder.
pub(in super::super) struct Tailed {
    pub name: String,
    pub file: OwnedFd,
    pub bulk: Bulk,
    /// Who writes so does it alone.
    writing: Mutex<()>,
    state: Mutex<State>,
    written: Condvar,
    /// From here on bytes may be in blocks only; `u64::MAX` where none are.
    from: AtomicU64,
}

#[derive(Default)]
struct State {
    /// What is not in the file yet, oldest first: each begins in the page of 4 KiB in which the one before ends, with the
    /// same bytes.
    parts: VecDeque<Part>,
    /// Whether the last of them is still filled.
    open: bool,
    /// Parts handed over to be written since the file was opened, and those that were.
    handed: u64,
    done: u64,
    /// Up to here the file has its room on the disk, as far as is known.
    reserved: u64,
    /// The file takes no more: what could not be written stays in its block.
    failed: Option<(Option<i32>, io::ErrorKind)>,
}

/// A block with a part of the file.
struct Part {
    block: Arc<RwLock<Block>>,
    base: u64,
    len: usize,
}

impl Part {
    fn end(&self) -> u64 {
        self.base + self.len as u64
    }
}

/// A part that nobody adds to any more, to be written.
pub(super) struct Job {
    tailed: Arc<Tailed>,
    block: Arc<RwLock<Block>>,
    base: u64,
    len: usize,
}

impl State {
    fn check(&self) -> io::Result<()> {
        match self.failed {
            None => Ok(()),
            Some((Some(number), _)) => Err(io::Error::from_raw_os_error(number)),
            Some((None, kind)) => Err(kind.into()),
        }
    }

    /// The part that has the byte at `at`; else where the next part begins.
    fn find(&self, at: u64) -> Result<&Part, u64> {
        match self.parts.iter().find(|part| part.end() > at) {
            Some(part) if part.base <= at => Ok(part),
            next => Err(next.map_or(u64::MAX, |part| part.base)),
        }
    }
}

impl Tailed {
    pub(in super::super) fn new(name: &str, file: OwnedFd) -> Self {
        Self {
            name: name.to_owned(),
            file,
            bulk: Bulk::default(),
            writing: Mutex::default(),
            state: Mutex::default(),
            written: Condvar::new(),
            from: AtomicU64::new(u64::MAX),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any of so many bytes from `offset` on may be in blocks only.
    pub(in super::super) fn is_behind(&self, offset: u64, len: usize) -> bool {
        offset.saturating_add(len as u64) > self.from.load(Ordering::Acquire)
    }

    /// Where the last of the blocks ends; 0 where there are none.
    pub(in super::super) fn end(&self) -> u64 {
        if !self.is_behind(u64::MAX, 0) {
            return 0;
        }
        self.state().parts.back().map_or(0, Part::end)
    }

    /// Takes `parts` into blocks. After an error any part of it may be taken.
    pub(in super::super) fn write_soon(
        self: &Arc<Self>,
        behind: &Behind,
        mut offset: u64,
        parts: &[IoSlice<'_>],
    ) -> io::Result<()> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let mut parts = parts.iter().map(|part| &**part).filter(|part| !part.is_empty());
        let mut left = parts.next();
        while left.is_some() {
            state.check()?;
            if state.parts.back().is_some_and(|part| part.end() != offset) {
                // Blocks of one file follow on each other, so it matters to nobody in which order they are read.
                drop(state);
                self.flush(behind)?;
                state = self.state();
            }
            if !state.open {
                state = self.begin(state, behind, offset)?;
            }
            let Some(part) = state.parts.back_mut() else { continue };
            let mut block = part.block.write().unwrap_or_else(PoisonError::into_inner);
            while let Some(bytes) = left
                && part.len < BLOCK_BYTES
            {
                let room = &mut block.bytes_mut()[part.len..];
                let (now, rest) = bytes.split_at(bytes.len().min(room.len()));
                room[..now.len()].copy_from_slice(now);
                part.len += now.len();
                offset += now.len() as u64;
                left = if rest.is_empty() { parts.next() } else { Some(rest) };
            }
            block.set_len(part.len);
            drop(block);
            if part.len == BLOCK_BYTES {
                self.hand_over(&mut state, behind);
            }
        }
        Ok(())
    }

    /// A block for what is to be written from `offset` on, with what is before that since the last multiple.
    fn begin<'a>(
        self: &'a Arc<Self>,
        state: MutexGuard<'a, State>,
        behind: &Behind,
        offset: u64,
    ) -> io::Result<MutexGuard<'a, State>> {
        // Blocks come free under this lock.
        drop(state);
        self.reserve(offset)?;
        let block = behind.take(|| self.state().check())?;
        let mut state = self.state();
        let len = (offset % ALIGNMENT as u64) as usize;
        let base = offset - len as u64;
        let mut before = [0; ALIGNMENT];
        let read = self.read_of(&state, base, &mut before[..len]);
        // Behind the file's end nothing was written.
        match read {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                behind.give(block);
                return Err(error);
            }
            _ => {}
        }
        {
            let mut block = block.write().unwrap_or_else(PoisonError::into_inner);
            block.bytes_mut()[..len].copy_from_slice(&before[..len]);
            block.begin(&Head { name: self.name.clone(), base, len }, behind.boot());
        }
        if state.parts.is_empty() {
            self.from.store(base, Ordering::Release);
        }
        state.parts.push_back(Part { block, base, len });
        state.open = true;
        behind.began(self);
        Ok(state)
    }

    /// Takes room on the disk for a block from `offset` on: a full disk refuses what was promised to nobody yet, and not what a
    /// block has. Where the file system cannot, or for another reason than that it is full, the write says how it stands.
    fn reserve(&self, offset: u64) -> io::Result<()> {
        let base = offset - offset % ALIGNMENT as u64;
        let needed = base.saturating_add(BLOCK_BYTES as u64);
        if self.state().reserved >= needed {
            return Ok(());
        }
        let take =
            |bytes| rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, base, bytes);
        let is_full = |error: &Errno| matches!(*error, Errno::NOSPC | Errno::DQUOT);
        let ahead = AHEAD_BYTES.max(BLOCK_BYTES as u64);
        let (taken, bytes) = match take(ahead) {
            Err(error) if is_full(&error) => (take(BLOCK_BYTES as u64), BLOCK_BYTES as u64),
            taken => (taken, ahead),
        };
        match taken {
            Err(error) if is_full(&error) => return Err(error.into()),
            _ => self.state().reserved = base + bytes,
        }
        Ok(())
    }

    /// The file was cut: what it had taken behind that is the disk's again.
    pub(in super::super) fn was_cut(&self, len: u64) {
        let mut state = self.state();
        state.reserved = state.reserved.min(len);
    }

    /// Has the part that is filled written, if there is one.
    fn hand_over(self: &Arc<Self>, state: &mut State, behind: &Behind) {
        if !std::mem::replace(&mut state.open, false) {
            return;
        }
        let Some(part) = state.parts.back() else { return };
        state.handed += 1;
        let (block, base, len) = (part.block.clone(), part.base, part.len);
        behind.write(Job { tailed: self.clone(), block, base, len });
    }

    /// Begins to write what is in blocks.
    pub(in super::super) fn begin_flush(self: &Arc<Self>, behind: &Behind) {
        self.hand_over(&mut self.state(), behind);
    }

    /// Waits until all that was taken is in the file.
    pub(in super::super) fn flush(self: &Arc<Self>, behind: &Behind) -> io::Result<()> {
        let mut state = self.state();
        self.hand_over(&mut state, behind);
        let mine = state.handed;
        while state.done < mine && state.failed.is_none() {
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.check()
    }

    /// Fills `into` from `offset` out of blocks and the file.
    pub(in super::super) fn read_at(
        &self,
        offset: u64,
        into: &mut [u8],
        once: bool,
    ) -> io::Result<()> {
        if self.is_behind(offset, into.len()) {
            let state = self.state();
            if !state.parts.is_empty() {
                return self.read_of(&state, offset, into);
            }
        }
        self.bulk.read_at(&self.file, offset, into, once)
    }

    /// Fills `into` from `offset` out of blocks and the system's cache; whether all of it was there.
    pub(in super::super) fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        if self.is_behind(offset, into.len()) {
            let state = self.state();
            if !state.parts.is_empty() {
                let cached = |at, into: &mut [u8]| match self.bulk.read_now(&self.file, at, into) {
                    true => Ok(()),
                    false => Err(io::ErrorKind::WouldBlock.into()),
                };
                return Self::read_with(&state, offset, into, cached).is_ok();
            }
        }
        self.bulk.read_now(&self.file, offset, into)
    }

    fn read_of(&self, state: &State, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let read = |at, into: &mut [u8]| self.bulk.read_at(&self.file, at, into, false);
        Self::read_with(state, offset, into, read)
    }

    /// Fills `into` from `offset` out of blocks, and by `read` of the file what is in none.
    fn read_with(
        state: &State,
        mut offset: u64,
        mut into: &mut [u8],
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        while !into.is_empty() {
            let now = match state.find(offset) {
                Ok(part) => {
                    let block = part.block.read().unwrap_or_else(PoisonError::into_inner);
                    let at = (offset - part.base) as usize;
                    let found = &block.bytes()[at..part.len];
                    let now = found.len().min(into.len());
                    into[..now].copy_from_slice(&found[..now]);
                    now
                }
                Err(next) => {
                    let now = usize::try_from(next - offset).unwrap_or(usize::MAX).min(into.len());
                    read(offset, &mut into[..now])?;
                    now
                }
            };
            offset += now as u64;
            into = &mut into[now..];
        }
        Ok(())
    }

    /// Takes in that the oldest part is in the file, or why it is not.
    fn finish(&self, behind: &Behind, written: io::Result<()>) {
        let mut state = self.state();
        match written {
            Ok(()) => {
                let part = state.parts.pop_front();
                if let Some(part) = &part {
                    // Before anybody knows of it, who may cut the file then: the next opener is not to write this again.
                    part.block.write().unwrap_or_else(PoisonError::into_inner).free();
                }
                state.done += 1;
                let from = state.parts.front().map_or(u64::MAX, |part| part.base);
                self.from.store(from, Ordering::Release);
                drop(state);
                if let Some(part) = part {
                    behind.give(part.block);
                }
            }
            Err(error) => {
                state.failed.get_or_insert((error.raw_os_error(), error.kind()));
                drop(state);
            }
        }
        self.written.notify_all();
    }
}

impl Job {
    /// Writes the part into its file.
    pub(super) fn run(self, behind: &Behind) {
        let failed = self.tailed.state().check();
        let written = failed.and_then(|()| {
            let block = self.block.read().unwrap_or_else(PoisonError::into_inner);
            let bytes = IoSlice::new(&block.bytes()[..self.len]);
            self.tailed.bulk.write_at(&self.tailed.file, self.base, &[bytes])
        });
        self.tailed.finish(behind, written);
    }
}
