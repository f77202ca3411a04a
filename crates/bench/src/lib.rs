//! The experiments of `hold bench`: our own side, measured on one machine with nothing else installed.
//!
//! Each experiment starts the program it is part of as real processes ([`Bench::program`]), works with
//! them as users do, and answers a [`Report`]: measured points, ratios within the run, and bars with
//! whether they are met. Absolute times do not repeat on shared machines; so what is promised is a
//! ratio to what this machine can do at all (the [`Limit`]), a latency at a load, or a size.
//!
//! It is not a test of correctness, and it installs nothing. It knows no other system but Redis, whose protocol the door
//! speaks: that one is taken from the PATH. Of all others a crate that drives one hands it in
//! as [`Beside`], and it is measured in turn with ours. Formats and definitions are in the architecture's record
//! of decisions and in `docs/benchmarks.md`.
//!
//! Everything here blocks: run an experiment on a thread of its own and stop it with [`Stop`]. An
//! experiment that ends, however it ends, leaves no process and no file behind.

mod chart;
mod community;
mod durability;
mod error;
mod folder;
mod full;
mod heads;
mod kv;
mod libri;
mod limit;
mod line;
mod load;
mod memory;
mod overload;
mod percentiles;
mod ports;
mod process;
mod program;
mod relay;
mod repair;
mod report;
mod rounds;
mod scale;
mod seeded;
mod size;
mod slow;
mod stop;
mod transfer;

use std::path::PathBuf;
use std::time::Duration;

pub use community::PEERS_MAX;
pub use durability::{Assumed, Durability};
pub use error::BenchError;
pub use folder::Folder;
pub use heads::{Etcd, Heads};
pub use kv::{KvCopies, KvDelta, KvRedis, KvScan, KvYcsb};
pub use libri::Libri;
pub use limit::Limit;
pub use memory::Memory;
pub use overload::Overload;
pub use placement::Profile;
pub use ports::Ports;
pub use repair::Repair;
pub use report::{Bar, Machine, Report};
pub use rounds::Rounds;
pub use scale::{SCALE_PEERS_MAX, Scale};
pub use size::{parse as parse_size, text as size_text};
pub use slow::Slow;
pub use stop::Stop;
pub use transfer::{Beside, BoxError, Theirs, Transfer, Work, same, same_tree};

/// What every experiment is given.
pub struct Bench {
    /// The program whose processes are measured.
    pub program: PathBuf,
    /// Where networks are made; the system's folder for temporary files where none.
    pub dir: Option<PathBuf>,
    /// Seconds instead of minutes.
    pub quick: bool,
    /// Stops it.
    pub stop: Stop,
    /// Where tables and progress go, a line or several at a time.
    pub tell: Box<dyn Fn(&str) + Send + Sync>,
}

/// How long the machine rests before a transfer that is compared with another program's. A virtual machine gives freed memory back to its
/// host after 2 to 3 s of rest, and a new page costs ten times as much then (ADR 5): who comes right behind a transfer
/// would find the memory that one freed, and who has to wait before would not.
const REST: Duration = Duration::from_secs(5);

impl Bench {
    /// Before each timed transfer of programs that are compared: all that is unwritten is written, and the machine rests. So each
    /// begins with the same disk and the same memory, whatever went before.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`].
    pub fn rest(&self) -> Result<(), BenchError> {
        rustix::fs::sync();
        if self.quick { self.stop.check() } else { self.stop.sleep(REST) }
    }

    pub(crate) fn tell(&self, text: impl AsRef<str>) {
        (self.tell)(text.as_ref());
    }
}
