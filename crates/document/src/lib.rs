//! Page, Entry, Envelope, Publication: the wire formats, their ids, and how content becomes them.
//!
//! It is pure: bytes in, records out, nothing read and nothing sent. The formats are Libri's with its field numbers; what
//! differs between the suites is in `crypto::Suite` and in the sealing modules.
#![forbid(unsafe_code)]

mod record;

pub use record::{Kind, Record};
