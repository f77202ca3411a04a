//! A whole network on one seeded thread: the production librarian, author and store, and everything that can go wrong.
//!
//! ```no_run
//! let report = sim::run(42, sim::RunOptions::default());
//! assert_eq!(report.findings, []);
//! ```
//! A seed decides all: who there is, what is done, what goes wrong and when, and every random byte. So a run that finds something
//! is run again with its number. It is not a model of the protocol: it is the code that ships, over the traits of `env`.
//! `docs/internals/simulation.md` says what is simulated and what is not.
#![forbid(unsafe_code)]

mod bugs;
pub mod chance;
pub mod check;
pub mod heads;
mod history;
mod ledger;
mod liar;
pub mod plan;
pub mod probe;
mod process;
mod run;
mod search;
mod skew;
pub mod sockets;
pub mod trial;
mod wires;
mod workload;
mod world;

pub use bugs::PlantedBug;
pub use history::{Content, Finding, History};
pub use liar::{Cheat, LIES, Lie};
pub use process::{Gated, Process, Slowness};
pub use run::{Report, RunOptions, command, run, run_many};
pub use search::{NEEDLE_BYTES, Needle};
pub use skew::SkewedClock;
pub use wires::{Weather, Wires};
pub use workload::{ANSWER_WITHIN, content};
pub use world::{AuthorSlot, PeerSlot, Running, RunningAuthor, World};
