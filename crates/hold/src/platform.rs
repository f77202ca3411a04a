//! The two things the standard library has no call for: the allocator's habits and the terminal's
//! echo.
#![allow(
    unsafe_code,
    reason = "mallopt, tcgetattr and tcsetattr have no safe form among our crates"
)]

/// Arenas of the allocator. glibc makes eight a core, and each keeps what its threads freed; two
/// serve a handful of threads and keep a peer's resident size near what it uses.
const ARENAS_MAX: libc::c_int = 2;
/// Freed memory at the end of the heap above this goes back to the system, in bytes.
const TRIM_BYTES: libc::c_int = 1 << 20;
/// Buffers from this size on are mapped one by one, so freeing them gives them back at once. Left
/// alone glibc raises the bound to 32 MiB after the first 2 MiB page is freed, and then keeps them.
const MAP_BYTES: libc::c_int = 1 << 20;

/// Makes the allocator give memory back. Call it before threads start.
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
