//! An author: a keyring on disk; seals, spreads and fetches contents; shares them; listens for what others share.
#![forbid(unsafe_code)]

mod error;
mod home;
mod job;
pub mod media;
mod progress;
mod types;
mod window;

pub use error::{AuthorError, Part};
pub use home::{COUNTERS_MAX, GAP, Home, ISSUE_MAX, SCAN_MAX};
pub use progress::{NoProgress, Progress};
pub use types::{
    AuthorOptions, Details, Fragment, GetReport, Holder, Info, LIBRARIANS_MAX, PutOptions,
    PutReport, READERS_MAX, Received, SharedTo,
};
pub use window::{WINDOW_BYTES, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN};
