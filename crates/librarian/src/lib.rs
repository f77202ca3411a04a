//! One peer of the network: it answers calls, keeps records, and tells what was published.
//!
//! A [`Librarian`] joins the parts of the floors below it: a record store and a publication log
//! (`store`), an overlay that tells news (`overlay`), the directory of peers and the walks over them
//! (`walk`), and calls to other peers (`env::calls`). What it adds is policy (who may ask what, how
//! much at once) and the work that keeps a peer part of its network. It cannot read what it keeps:
//! no key that opens a record ever comes here.
//!
//! The overlay and the transport need things of the librarian (who is a member, what vouches for
//! it) before it can start, since it needs them; so a start has two steps:
//!
//! ```
//! use std::sync::Arc;
//! use librarian::{Librarian, LibrarianOptions};
//! use store::{Journal, JournalOptions, MemoryStore};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! testkit::time::run(1, |env| async move {
//!     let community = testkit::network::community(1, 1);
//!     let member = &community.members[0];
//!     let options = LibrarianOptions::new(
//!         member.key.clone(),
//!         community.genesis.clone(),
//!         member.certificate.clone(),
//!     );
//!     let prepared = Librarian::prepare(options, env.clone()).unwrap();
//!     // A real peer hands `prepared.members()` to `overlay::Libp2p` and `prepared.credential()` to
//!     // `rpc::Client`; these two stand in for them.
//!     let mesh = overlay::MemoryMesh::with(env.clock.clone(), prepared.members());
//!     let overlay = mesh.join(prepared.peer());
//!     let network = testkit::network::DirectNetwork::new(env.clone());
//!     let calls = network.calls(member.key.public());
//!     let disk = Arc::new(env::disk::DirDisk::open(folder).unwrap());
//!     let journal = Journal::open(disk, env.clone(), "news", JournalOptions::default()).unwrap();
//!     let store = Arc::new(MemoryStore::new());
//!     let librarian = prepared.start(store, journal, overlay, calls).await.unwrap();
//!     // Now it answers: `rpc::Server` takes `librarian.service()`.
//!     assert!(librarian.is_serving());
//!     librarian.stop().await.unwrap();
//! });
//! ```
//!
//! The path of a stored record, one file a step: `service` (may the caller, and how often?),
//! `service/write`, `shelf` (does it prove itself? then durable), `fragments` (is the stripe's header here?), `publications` (of an envelope: logged), `spread`
//! (told to others), and at the others `news` and `publications`; `catch_up` finds what was not heard,
//! and `subscription` shows the log to those who follow it. `upkeep` reads the disk again, mends what
//! it finds, and gives back space; `keeping` looks after what other peers lost.
#![forbid(unsafe_code)]

mod admission;
mod announcer;
mod catch_up;
mod committee;
mod core;
mod disowned;
mod error;
mod fragments;
mod keeping;
mod leases;
mod librarian;
mod limiter;
mod listing;
mod metrics;
mod neighbours;
mod news;
mod objects;
mod options;
mod page;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod proofs;
mod publications;
mod quota;
mod rates;
mod remembered;
mod revocations;
mod right;
mod room;
mod rosters;
mod seats;
mod service;
mod shelf;
mod spread;
mod standing;
mod status;
mod strain;
mod subscription;
mod upkeep;

pub use committee::{Hosted, MemberStatus};
pub use error::LibrarianError;
pub use keeping::{AuditStatus, KeepingOptions, RepairStatus, TakerStatus};
pub use leases::LeaseSettings;
pub use librarian::{Librarian, Prepared};
pub use options::{LibrarianOptions, Limits, ObjectsSettings, Rhythm};
pub use page::{MetricsPage, serve_metrics};
pub use rates::{Rate, Rates, TierRates};
pub use standing::Standing;
pub use status::{
    LeasesStatus, LogStatus, OrganisationStatus, PayerStatus, PeersStatus, Status, StoreStatus,
    UpkeepStatus,
};
pub use upkeep::UpkeepOptions;
