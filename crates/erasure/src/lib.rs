//! k pages to n fragments, and any k back: the erasure code of stripes.
//!
//! It is a systematic code over GF(2^8) whose parity bytes are a format: every path and every release
//! makes the same ones, and any of them can be made again from any k fragments. It is not a store, it
//! does not know what a page is, and it finds no errors: whoever calls it knows by hashes which
//! fragments are good.
//!
//! ```
//! use erasure::{Code, Given, Wanted};
//!
//! let code = Code::new(2, 4)?;
//! let data: [&[u8]; 2] = [b"one page", b"other"]; // the second counts as followed by zeros
//! let mut parity = [[0; 8]; 2];
//! code.encode(&data, &mut parity.each_mut().map(|bytes| &mut bytes[..]))?;
//!
//! // Both data fragments are lost.
//! let given = [Given { index: 3, bytes: &parity[1] }, Given { index: 2, bytes: &parity[0] }];
//! let mut first = [0; 8];
//! code.reconstruct(8, &given, &mut [Wanted { index: 0, bytes: &mut first }])?;
//! assert_eq!(&first, b"one page");
//! # Ok::<(), erasure::ErasureError>(())
//! ```
//!
//! Speed: one core codes at the speed of its memory, see `cargo bench -p erasure`. Everything is CPU
//! work and belongs off the I/O threads.
#![deny(unsafe_code)]

mod code;
mod combine;
mod error;
mod field;

pub use code::{Code, FRAGMENTS_MAX, Given, Wanted};
pub use combine::Path;
pub use error::ErasureError;
