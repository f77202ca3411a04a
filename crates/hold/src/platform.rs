//! What the standard library has no call for: the allocator's habits, processor time and the
//! terminal's echo.
#![allow(
    unsafe_code,
    reason = "mallopt, getrusage, tcgetattr and tcsetattr have no safe form among our crates"
)]

use std::time::Duration;

use crate::beat;

/// Arenas of the allocator. glibc makes eight a core, and each keeps what its threads freed; the end
/// of any but the first is never given back at rest. With small buffers kept by each thread, one
/// arena serves a handful of threads as fast as two.
const ARENAS_MAX: libc::c_int = 1;
/// Freed memory at the end of a heap above this goes back to the system at once, in bytes. Below it
/// the next records of 2 MiB reuse it: giving each back by itself costs 512 page faults for every
/// buffer, which was a third of the time of a store.
const TRIM_BYTES: libc::c_int = 128 << 20;
/// Buffers from this size on are mapped one by one: larger than any record or batch.
const MAP_BYTES: libc::c_int = 32 << 20;
/// Processor time between two looks below which it is at rest.
const AT_REST: Duration = Duration::from_millis(50);
/// A process that does not rest gives memory back after so many looks all the same.
const LOOKS_MAX: u32 = 10;

/// Sets the allocator's habits: few arenas, and freed buffers kept for the next ones. Call it before
/// threads start, and see that [`give_back_at_rest`] runs.
pub(crate) fn tame_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt takes two integers and touches only the allocator's own parameters; no other
    // thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAP_BYTES);
    }
}

/// Gives what the allocator kept back to the system whenever the process has come to rest, and now
/// and then while it does not. It never ends.
pub(crate) async fn give_back_at_rest() {
    let (mut before, mut busy_looks) = (processor_time(), 0);
    loop {
        beat::next().await;
        let now = processor_time();
        let at_rest = now.saturating_sub(before) < AT_REST;
        before = now;
        if !at_rest {
            busy_looks += 1;
        }
        if (at_rest && busy_looks > 0) || busy_looks >= LOOKS_MAX {
            busy_looks = 0;
            // Some milliseconds where much is free: not on an I/O thread.
            let _ = tokio::task::spawn_blocking(give_back).await;
            before = processor_time();
        }
    }
}

fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim takes an integer, locks what it works on, and may be called by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Processor time of this process so far.
fn processor_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: getrusage fills the structure it is given, or returns an error and it stays unread.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) != 0 {
            return Duration::ZERO;
        }
        usage.assume_init()
    };
    let time = |part: libc::timeval| {
        let seconds = u64::try_from(part.tv_sec).unwrap_or_default();
        Duration::from_secs(seconds)
            + Duration::from_micros(u64::try_from(part.tv_usec).unwrap_or_default())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// How the terminal was set; putting it back ends a prompt that was interrupted while echo was off.
pub(crate) struct Terminal(Option<libc::termios>);

impl Terminal {
    /// Remembers the settings of standard input's terminal, if it is one.
    pub(crate) fn remember() -> Self {
        let mut settings = std::mem::MaybeUninit::<libc::termios>::uninit();
        // SAFETY: tcgetattr fills the structure it is given, or returns an error and it stays unread.
        let known = unsafe { libc::tcgetattr(libc::STDIN_FILENO, settings.as_mut_ptr()) } == 0;
        // SAFETY: it was filled, as `known` says.
        Self(known.then(|| unsafe { settings.assume_init() }))
    }

    /// Puts them back.
    pub(crate) fn restore(&self) {
        if let Some(settings) = &self.0 {
            // SAFETY: tcsetattr reads the structure, which lives as long as `self`.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, settings) };
        }
    }
}
