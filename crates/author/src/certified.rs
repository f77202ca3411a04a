//! Certified heads: which version a branch is at, as a committee says, whose word anyone checks with one key.
//!
//! Where two devices must never both be right, a committee of librarians of different organisations orders the updates
//! ([`committee`]). This is a client's side of it: it finds the members, sends them updates, and believes nothing but what proves
//! itself with the [`GroupKey`].
//!
//! ```no_run
//! # async fn example(objects: author::objects::Objects, group: committee::GroupKey) -> Result<(), author::certified::CertifiedError> {
//! use author::certified::{CertifiedHeads, Expected};
//! use author::objects::WriteOptions;
//!
//! let notes = objects.open(objects.public_key(), b"notes").await?;
//! let heads = CertifiedHeads::new(&objects, group)?;
//! let written = notes.put(None, "buy bread", WriteOptions::default()).await?;
//! let decided = heads.set(&notes, "main", Expected::Whatever, &written.id).await?;
//! decided.accepted()?;
//! let main = heads.read_fresh(&notes.key(), "main").await?;
//! assert_eq!(main.head.head.map(|head| head.version), Some(written.id));
//! # Ok(())
//! # }
//! ```
//!
//! - An update goes to f + 1 members at once, so that an honest one has it, and on to others where these fail. It is the same
//!   update each time: its id makes sure that it is done once.
//! - A read is as of the height that one member knows, and never of a lower one than this user saw before, in any run
//!   (`memory`). [`CertifiedHeads::read_fresh`] asks n - f members how far they are, so that no one of them is trusted to be.
//! - Answers and reads are bytes that prove themselves offline: keep them, and check them with `hold committee verify`.

mod asking;
mod error;
mod fresh;
mod memory;
mod seats;
mod update;
mod watch;
mod words;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use committee::{CertifiedHead, GroupKey, Read};
use env::Env;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk};
use version::ObjectKey;

use crate::objects::Objects;

pub use error::CertifiedError;
pub use memory::Seat;
pub use seats::{MemberReport, Report};
pub use update::{Decided, Expected};
pub use watch::CertifiedWatch;
pub use words::{KEPT_MAX, KeptReceipts};

use memory::Memory;

/// How long a member may take for a read.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// One user's way to the heads that a committee certifies. Cheap to clone; clones share what they know.
#[derive(Clone)]
pub struct CertifiedHeads {
    inner: Arc<Inner>,
}

struct Inner {
    objects: Objects,
    group: GroupKey,
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    memory: Memory,
    /// Members as this run found them.
    seats: Option<Arc<[Seat]>>,
    /// How many there are, those too whose librarian is not known; 0 before they were found.
    members: usize,
}

/// Where a head is, and the proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// Where it is, or that there is none, as of a certified header.
    pub head: CertifiedHead,
    /// The encoded read, which proves it to anybody who has the group key.
    pub proof: Bytes,
    /// Up to which epoch and view everything is in.
    pub at: (u64, u64),
}

impl CertifiedHeads {
    /// Those of the committee with this key.
    ///
    /// # Errors
    /// [`CertifiedError::Memory`].
    pub fn new(objects: &Objects, group: GroupKey) -> Result<Self, CertifiedError> {
        let path = memory::path(objects.author().home().dir(), &group.id());
        let known = Known { memory: Memory::read(&path)?, seats: None, members: 0 };
        let inner = Inner { objects: objects.clone(), group, path, known: Mutex::new(known) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The key that everything is checked with.
    pub fn group(&self) -> &GroupKey {
        &self.inner.group
    }

    /// The highest height that this user saw of it.
    pub fn height(&self) -> u64 {
        self.known().memory.height
    }

    /// Where a head is, as of the newest height that one member knows: proven, and never older than what this user saw before.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`CertifiedError::NoMembers`], [`CertifiedError::Unanswered`], [`CertifiedError::Behind`]; [`CertifiedError::Committee`]
    /// with what is wrong where every answer is.
    pub async fn read(
        &self,
        object: &ObjectKey,
        branch: &str,
    ) -> Result<Certified, CertifiedError> {
        let seats = self.shuffled(&self.seats().await?);
        self.read_from(&seats, object, branch, None).await
    }

    /// Reads from the first of these members whose answer holds, is not behind, and is at this epoch and view or a later one.
    async fn read_from(
        &self,
        seats: &[Seat],
        object: &ObjectKey,
        branch: &str,
        at: Option<(u64, u64)>,
    ) -> Result<Certified, CertifiedError> {
        let mut failed = asking::Failures::default();
        for seat in seats {
            let branch_bytes = Bytes::copy_from_slice(branch.as_bytes());
            let ask = CommitteeAsk::Read { object: *object, branch: branch_bytes, at };
            match self.ask(seat, ask, READ_LIMIT).await {
                Ok(CommitteeAnswer::Read(bytes)) => match self.proven(&bytes, object, branch, at) {
                    Ok(read) => return Ok(read),
                    Err(error) => failed.refused(error),
                },
                Ok(_) => failed.odd(),
                Err(error) => failed.call(error),
            }
        }
        Err(failed.error(seats.len()))
    }

    /// Checks a read, and that nobody is taken back by it.
    fn proven(
        &self,
        bytes: &Bytes,
        object: &ObjectKey,
        branch: &str,
        at: Option<(u64, u64)>,
    ) -> Result<Certified, CertifiedError> {
        let read = Read::decode(bytes)?;
        let network = self.inner.objects.network();
        let head = read.verify(&network, &self.inner.group, object, branch)?;
        let known = self.height();
        if head.header.height < known {
            return Err(CertifiedError::Behind { found: head.header.height, known });
        }
        let found = read.certificate.round();
        if at.is_some_and(|at| found < at) {
            return Err(CertifiedError::Behind { found: head.header.height, known });
        }
        self.saw(head.header.height);
        Ok(Certified { head, proof: bytes.clone(), at: found })
    }

    /// Remembers a height that was certified.
    fn saw(&self, height: u64) {
        let memory = {
            let mut known = self.known();
            if height <= known.memory.height {
                return;
            }
            known.memory.height = height;
            known.memory.clone()
        };
        // Without the file this run goes on remembering, and the next one is no worse off than before.
        if let Err(error) = memory.write(&self.inner.path) {
            tracing::warn!(%error, "the height that was seen could not be kept");
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn env(&self) -> &Env {
        self.inner.objects.author().env()
    }

    /// The members in a random order, so that no one of them has all the work or all the say.
    fn shuffled(&self, seats: &[Seat]) -> Vec<Seat> {
        let mut order: Vec<(u64, &Seat)> =
            seats.iter().map(|seat| (u64::from_be_bytes(self.env().random()), seat)).collect();
        order.sort_by_key(|(random, _)| *random);
        order.into_iter().map(|(_, seat)| seat.clone()).collect()
    }
}
