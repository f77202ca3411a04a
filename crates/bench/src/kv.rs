//! The experiments of UStore's paper on versions: the door beside Redis, and versions kept small.
//!
//! | part | the paper's figure | what is measured |
//! |---|---|---|
//! | [`KvRedis`] | | `redis-benchmark`, SET and GET |
//! | [`KvYcsb`] | 6, 13 | reads and updates of YCSB's zipfian keys: rate and latency by number of clients |
//! | [`KvCopies`] | 14 | what waiting for more copies costs, at four peers |
//! | [`KvScan`] | 7 | a version's predecessors in one request, and key by key of a Redis |
//! | [`KvDelta`] | 15 | versions kept whole or as differences: rate and bytes on the disk; without a Redis |
//!
//! Whatever is compared runs in the same experiment on the same cores, in turns, and both sides keep
//! what they are told as durably: an fsync a second, where nothing else is said. The door is a process of the
//! program, with a librarian, as a user starts it; the Redis is the one on the PATH.
//!
//! Differences to the paper: it had twenty machines and clients on machines of their own, and its
//! system kept everything in memory and signed nothing.

mod copies;
mod delta;
mod draws;
mod drive;
mod resp;
mod scan;
mod side;
mod tool;
mod ycsb;

pub use copies::KvCopies;
pub use delta::KvDelta;
pub use scan::KvScan;
pub use tool::KvRedis;
pub use ycsb::KvYcsb;

/// The middle one; of an even number the higher of the two in the middle.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}
