//! An author: a keyring on disk; seals, spreads and fetches contents; shares them; listens for what others share.
//!
//! It is the client's whole side of the network: [`Home`] keeps a user's keys, [`Author`] puts, gets, shares and listens.
//! It is not a librarian, holds no records, and trusts no peer: whatever comes back is proven before it goes anywhere.
//!
//! ```no_run
//! # async fn example(env: env::Env, walker: std::sync::Arc<walk::Walker>) -> Result<(), author::AuthorError> {
//! use std::path::Path;
//! use std::sync::Arc;
//! use author::{Author, AuthorOptions, Home, NoProgress, PutOptions};
//!
//! let home = Arc::new(Home::open(Path::new("/home/ada/.holdfast"), b"passphrase")?);
//! let author = Author::new(env, home, walker, &AuthorOptions::default());
//! let put = author.put(&b"a letter"[..], PutOptions::default(), Arc::new(NoProgress)).await?;
//! let mut letter = Vec::new();
//! author.get(put.address, &mut letter, None, Arc::new(NoProgress)).await?;
//! assert_eq!(letter, b"a letter");
//! # Ok(())
//! # }
//! ```
//!
//! The way of a put is in `put`, of a get in `get`; both bound their memory by one `window` and stop when dropped.
#![forbid(unsafe_code)]

mod author;
mod below;
pub mod certified;
mod check;
mod content;
mod error;
mod file;
mod get;
pub mod heads;
mod home;
mod inbox;
mod info;
mod job;
mod journal;
mod leases;
mod leftovers;
pub mod media;
pub mod objects;
mod paying;
mod progress;
mod put;
mod put_file;
mod recover;
mod repair;
mod share;
mod sink;
mod spread;
mod types;
mod window;

pub use author::Author;
pub use below::Below;
pub use check::{Checked, State, WRONG_MAX, Wrong};
pub use error::{AuthorError, Part};
pub use file::FileSink;
pub use home::{COUNTERS_MAX, GAP, Home, ISSUE_MAX, SCAN_MAX};
pub use inbox::{Inbox, InboxEvent, TOLD_MAX};
pub use info::{PAGES_TOLD_MAX, STRIPES_TOLD_MAX};
pub use journal::{JOURNAL_AGE_MAX, JOURNALS_MAX};
pub use leases::{Ended, Paid, Payment, Renewed};
pub use paying::{LEASE_SECONDS, Payer};
pub use progress::{NoProgress, Progress};
pub use put::{FULL_WAIT, PEERS_WAIT};
pub use put_file::JOURNAL_FROM_BYTES;
pub use recover::{AHEAD, RecoverReport, Recovered, UNTOLD_NEXT};
pub use repair::Asked;
pub use share::{SHARE_WAIT, SHARED_AT_ONCE, ShareReport, Shared};
pub use sink::Sink;
pub use types::{
    AuthorOptions, Details, Fragment, GetReport, Holder, Info, LIBRARIANS_MAX, PutOptions,
    PutReport, READERS_MAX, Received, Resumed, SchemaArtifact, SharedTo,
};
pub use window::{WINDOW_BYTES, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN};
