//! What the standard library has no call for: the allocator's habits, processor time and the
//! terminal with its echo.
#![allow(
    unsafe_code,
    reason = "mallctl, prctl, getrusage, tcgetpgrp, tcgetattr and tcsetattr have no safe form among our crates"
)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The allocator's habits; it reads them before anything else runs. One arena: what one thread freed serves the next, and
/// small buffers are kept by the threads themselves. What was freed stays for the next records of 2 MiB until [`give_back`]:
/// each that is given back by itself costs 512 page faults. A time (`dirty_decay_ms` of 10,000, say) would not do: free
/// memory that comes to lie together, 8 MiB of it, is then given back at once, which was a tenth of a put. In huge pages where the
/// process may have some ([`huge_pages`]).
// SAFETY: the allocator looks for this name, and reads a pointer to text that ends with a zero.
#[unsafe(export_name = "malloc_conf")]
static HABITS: Habits = Habits(c"narenas:1,thp:always,dirty_decay_ms:-1,muzzy_decay_ms:0".as_ptr());

/// What the allocator finds under its name.
#[repr(transparent)]
struct Habits(*const libc::c_char);

// SAFETY: it points to a constant.
unsafe impl Sync for Habits {}

/// All of its arenas give back what they keep.
const ALL_ARENAS: &std::ffi::CStr = c"arena.4096.purge";
/// Processor time between two looks below which it is at rest.
const AT_REST: Duration = Duration::from_millis(50);
/// A process that does not rest gives memory back after so many looks all the same.
const LOOKS_MAX: u32 = 10;

/// Gives what the allocator kept back to the system whenever the process has come to rest, and now
/// and then while it does not. It never ends.
pub(crate) async fn give_back_at_rest() {
    let (mut before, mut busy_looks) = (processor_time(), 0);
    loop {
        env::beat(env::BEAT).await;
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

/// Gives back now what is free: some milliseconds where that is much.
pub(crate) fn give_back() {
    env::disk::give_back();
    // SAFETY: `arena.4096.purge` stands for all arenas (MALLCTL_ARENAS_ALL); it reads and writes no value, locks what it works
    // on, and may be called by any thread.
    unsafe {
        let nothing = std::ptr::null_mut();
        tikv_jemalloc_sys::mallctl(ALL_ARENAS.as_ptr(), nothing, std::ptr::null_mut(), nothing, 0);
    }
}

/// Whether this process's memory comes in huge pages from now on; so far it does, unless whoever began it said otherwise. For one that
/// gets a file: it begins with none of its memory, and is over in a second. Peers and puts would be given more memory than
/// they use, and thirty-two puts at once were a tenth slower for it (ADR 5).
pub(crate) fn huge_pages(on: bool) {
    // SAFETY: it takes numbers alone. Where the system knows no such thing nothing changes.
    unsafe {
        let (off, none): (libc::c_ulong, libc::c_ulong) = ((!on).into(), 0);
        libc::prctl(libc::PR_SET_THP_DISABLE, off, none, none, none);
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

/// The terminal that this process was begun at, whatever its standard input is now.
fn terminal() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}

/// Whether the terminal is this process's now, and not that of another which its shell has in front: it would be stopped where it
/// asked, or set anything.
fn is_in_front(terminal: &File) -> bool {
    // SAFETY: neither is given a pointer.
    unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) == libc::getpgrp() }
}

/// Whether there is somebody to ask: prompts go to the terminal, also where content comes by standard input.
pub(crate) fn can_ask() -> bool {
    terminal().is_some_and(|terminal| is_in_front(&terminal))
}

/// How the terminal was set; putting it back ends a prompt that was interrupted while echo was off.
pub(crate) struct Terminal(Option<(File, libc::termios)>);

impl Terminal {
    /// Remembers the settings of the terminal, if there is one.
    pub(crate) fn remember() -> Self {
        let Some(terminal) = terminal() else { return Self(None) };
        let mut settings = std::mem::MaybeUninit::<libc::termios>::uninit();
        // SAFETY: tcgetattr fills the structure it is given, or returns an error and it stays unread.
        let known = unsafe { libc::tcgetattr(terminal.as_raw_fd(), settings.as_mut_ptr()) } == 0;
        // SAFETY: it was filled, as `known` says.
        Self(known.then(|| (terminal, unsafe { settings.assume_init() })))
    }

    /// Puts them back, where the terminal is this process's to set.
    pub(crate) fn restore(&self) {
        if let Some((terminal, settings)) = self.0.as_ref().filter(|(at, _)| is_in_front(at)) {
            // SAFETY: tcsetattr reads the structure, which lives as long as `self`.
            unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, settings) };
        }
    }
}

#[cfg(test)]
mod tests {
    /// An option that the allocator reads a value of `T` from.
    fn option<T: Default>(name: &std::ffi::CStr) -> T {
        let (mut value, mut length) = (T::default(), size_of::<T>());
        // SAFETY: the allocator writes at most `length` bytes, which is the size of what it is given.
        let failed = unsafe {
            let at = (&raw mut value).cast();
            tikv_jemalloc_sys::mallctl(name.as_ptr(), at, &raw mut length, std::ptr::null_mut(), 0)
        };
        assert_eq!((failed, length), (0, size_of::<T>()), "{name:?}");
        value
    }

    /// An option that the allocator names by a word.
    fn text(name: &std::ffi::CStr) -> &'static std::ffi::CStr {
        let mut at: *const libc::c_char = std::ptr::null();
        let mut length = size_of_val(&at);
        // SAFETY: the allocator writes one pointer, which is the size of what it is given; it points to a constant of its own.
        unsafe {
            let into = (&raw mut at).cast();
            let failed = tikv_jemalloc_sys::mallctl(
                name.as_ptr(),
                into,
                &raw mut length,
                std::ptr::null_mut(),
                0,
            );
            assert_eq!((failed, at.is_null()), (0, false), "{name:?}");
            std::ffi::CStr::from_ptr(at)
        }
    }

    #[test]
    fn huge_pages_are_had_or_not() {
        for (on, end) in [(false, '0'), (true, '1')] {
            super::huge_pages(on);
            let status = std::fs::read_to_string("/proc/self/status").expect("its status");
            let line = status.lines().find(|line| line.starts_with("THP_enabled:"));
            assert!(line.is_none_or(|line| line.ends_with(end)), "{line:?}");
        }
    }

    #[test]
    fn the_allocator_took_its_habits() {
        assert_eq!(option::<libc::c_uint>(c"opt.narenas"), 1);
        assert_eq!(text(c"opt.thp"), c"always");
        assert_eq!(option::<libc::ssize_t>(c"opt.dirty_decay_ms"), -1);
        assert_eq!(option::<libc::ssize_t>(c"opt.muzzy_decay_ms"), 0);
    }
}
