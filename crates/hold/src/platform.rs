//! What the standard library has no call for: the allocator's habits, processor time, what was closed
//! when the process began, and the terminal with its echo.
#![allow(
    unsafe_code,
    reason = "mallctl, prctl, signal, getrusage, fcntl of a number, tcgetpgrp, tcgetattr and tcsetattr have no safe form among our crates"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The allocator's habits; it reads them before anything else runs. One arena: what one thread freed serves the next, and
/// small buffers are kept by the threads themselves. What was freed stays for the next records of 2 MiB until [`give_back`]:
/// each that is given back by itself costs 512 page faults. A time (`dirty_decay_ms` of 10,000, say) would not do: free
/// memory that comes to lie together, 8 MiB of it, is then given back at once, which was a tenth of a put. Buffers of 8 MiB and
/// more are of the same arena, so that others take the memory of one that was freed ([`give_back_but`]). In huge pages where
/// the process may have some ([`huge_pages`]).
// SAFETY: the allocator looks for this name, and reads a pointer to text that ends with a zero.
#[unsafe(export_name = "malloc_conf")]
static HABITS: Habits = Habits(
    c"narenas:1,oversize_threshold:0,thp:always,dirty_decay_ms:-1,muzzy_decay_ms:0".as_ptr(),
);

/// What the allocator finds under its name.
#[repr(transparent)]
struct Habits(*const libc::c_char);

// SAFETY: it points to a constant.
unsafe impl Sync for Habits {}

/// All of its arenas give back what they keep.
const ALL_ARENAS: &std::ffi::CStr = c"arena.4096.purge";
/// Processor time between two looks below which it is at rest.
const AT_REST: Duration = Duration::from_millis(50);
/// So many looks in a row at which it is at rest make a rest: who serves a request now and then uses the same memory for each.
/// A page that is taken anew costs 5 us in a virtual machine (measured), 0.2 ms for a record of 170 KiB.
const REST_LOOKS: u32 = 20;
/// A process that does not rest gives memory back after so many looks at which it was busy all the same.
const BUSY_LOOKS_MAX: u32 = 10;

/// Gives what the allocator kept back to the system whenever the process has come to rest, and now
/// and then while it does not. It never ends.
pub(crate) async fn give_back_at_rest() {
    let (mut before, mut rest) = (processor_time(), Rest::default());
    loop {
        env::beat(env::BEAT).await;
        let now = processor_time();
        let gives_back = rest.look(now.saturating_sub(before));
        before = now;
        if gives_back {
            // Some milliseconds where much is free: not on an I/O thread.
            let _ = tokio::task::spawn_blocking(give_back).await;
            before = processor_time();
        }
    }
}

/// What the looks since memory was given back have found.
#[derive(Default)]
struct Rest {
    busy: u32,
    /// Since the last busy one.
    at_rest: u32,
}

impl Rest {
    /// A look, behind so much processor time since the one before; whether memory is given back now.
    fn look(&mut self, used: Duration) -> bool {
        if used < AT_REST {
            self.at_rest += u32::from(self.busy > 0);
        } else {
            (self.busy, self.at_rest) = (self.busy + 1, 0);
        }
        let due = self.at_rest >= REST_LOOKS || self.busy >= BUSY_LOOKS_MAX;
        if due {
            *self = Self::default();
        }
        due
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

/// The same but for so many bytes, which whatever comes next takes: memory that the process has already is not asked of the
/// system page by page.
pub(crate) fn give_back_but(kept: usize) {
    let mut held = Vec::<u8>::new();
    // The allocator takes what was freed before anything new; nobody touches it.
    let _ = held.try_reserve_exact(kept);
    give_back();
    drop(std::hint::black_box(held));
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

/// A file that grows over a limit that somebody set (`ulimit -f`) is an error of the write, like a full disk: the signal that comes
/// with it would end the process with what it had begun left as it is.
pub(crate) fn long_files_are_errors() {
    // SAFETY: it takes numbers alone, before there is another thread.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
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

/// Whether standard input and output were closed when the process began.
static CLOSED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// Before `main` the library's runtime opens `/dev/null` in place of what is closed, and then the two cannot be told apart: who begins
/// a process with `/dev/null` opens it in the same way. So it is looked at before that, when the loader calls what is listed here.
// SAFETY: the section is of functions of this form; this one calls nothing but fcntl, and touches nothing that is not there before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look_for_closed;

extern "C" fn look_for_closed() {
    for (number, closed) in (0..).zip(&CLOSED) {
        // SAFETY: it takes numbers alone.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        closed.store(flags == -1, Ordering::Relaxed);
    }
}

/// Whether there is a standard input: who reads of it where it is closed finds it empty.
///
/// # Errors
/// What the system says of a file that is not open.
pub(crate) fn stdin_is_open() -> io::Result<()> {
    is_open(&CLOSED[0])
}

/// Whether there is a standard output: what is written where it is closed is lost without an error.
///
/// # Errors
/// As [`stdin_is_open`].
pub(crate) fn stdout_is_open() -> io::Result<()> {
    is_open(&CLOSED[1])
}

fn is_open(closed: &AtomicBool) -> io::Result<()> {
    match closed.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
    }
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
    use std::sync::Mutex;

    use super::*;

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

    /// Whether there are huge pages is the whole process's.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn huge_pages_are_had_or_not() {
        let _alone = ONE_AT_A_TIME.lock();
        for (on, end) in [(false, '0'), (true, '1')] {
            huge_pages(on);
            let status = std::fs::read_to_string("/proc/self/status").expect("its status");
            let line = status.lines().find(|line| line.starts_with("THP_enabled:"));
            assert!(line.is_none_or(|line| line.ends_with(end)), "{line:?}");
        }
    }

    /// Pages that this thread was given so far.
    fn faults() -> libc::c_long {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: getrusage fills the structure it is given.
        unsafe {
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
            usage.assume_init().ru_minflt
        }
    }

    #[test]
    fn what_is_kept_is_there_for_smaller_buffers() {
        const MIB: usize = 1 << 20;
        let fill = |bytes: usize| std::hint::black_box(vec![1_u8; bytes]);
        let _alone = ONE_AT_A_TIME.lock();
        huge_pages(false);
        drop(fill(32 * MIB));
        give_back_but(16 * MIB);
        let before = faults();
        let small: Vec<_> = (0..6).map(|_| fill(2 * MIB)).collect();
        let kept = faults() - before;
        drop(small);
        give_back();
        let before = faults();
        let small: Vec<_> = (0..6).map(|_| fill(2 * MIB)).collect();
        let anew = faults() - before;
        drop(small);
        // 12 MiB are 3,072 pages; other tests take memory too.
        assert!(kept < 1000 && anew > 2000, "{kept} and {anew} pages");
    }

    /// Memory is given back behind twenty looks in a row at rest, or ten busy ones, and not by who has nothing to give.
    #[test]
    fn rest_is_twenty_looks_long() {
        let looks = |rest: &mut Rest, of: &[u64]| {
            of.iter().map(|ms| rest.look(Duration::from_millis(*ms))).collect::<Vec<_>>()
        };
        let nothing_but = |at: usize, of: usize| (0..of).map(|n| n == at).collect::<Vec<_>>();
        let mut rest = Rest::default();
        assert_eq!(looks(&mut rest, &[0; 30]), [false; 30], "nothing was used");
        assert_eq!(looks(&mut rest, &[50]), [false]);
        assert_eq!(looks(&mut rest, &[49; 30]), nothing_but(19, 30), "once");
        // Busy now and then: the rest begins anew each time, until ten looks were busy.
        let now_and_then = [[0; 4], [0, 0, 0, 90]].concat().repeat(10);
        assert_eq!(looks(&mut rest, &now_and_then), nothing_but(79, 80));
        assert_eq!(looks(&mut rest, &[900; 10]), nothing_but(9, 10));
    }

    #[test]
    fn the_allocator_took_its_habits() {
        assert_eq!(option::<libc::c_uint>(c"opt.narenas"), 1);
        assert_eq!(option::<libc::size_t>(c"opt.oversize_threshold"), 0);
        assert_eq!(text(c"opt.thp"), c"always");
        assert_eq!(option::<libc::ssize_t>(c"opt.dirty_decay_ms"), -1);
        assert_eq!(option::<libc::ssize_t>(c"opt.muzzy_decay_ms"), 0);
    }
}
