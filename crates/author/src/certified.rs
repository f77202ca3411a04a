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
//! - A read is as of the height that one member knows, and never of a lower one than this user saw
//!   before, in any run (`memory`). Where one does not answer soon others are asked beside it, up to
//!   f + 1 at a time. [`CertifiedHeads::read_fresh`] asks n - f members how far they are, so that no
//!   one of them is trusted to be, and takes no header that is older than [`FRESH_FOR`], so that
//!   former members are not, either.
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
use committee::position::faulty;
use committee::{CertifiedHead, CommitteeError, GroupKey, Proofs, Read};
use env::Env;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use version::ObjectKey;

use crate::objects::Objects;

pub use asking::ask_patiently;
pub use error::CertifiedError;
pub use fresh::FRESH_FOR;
pub use memory::Seat;
pub use seats::{MemberReport, Report, Seats};
pub use update::{Decided, Expected};
pub use watch::CertifiedWatch;
pub use words::{KEPT_MAX, KeptReceipts};

use memory::Memory;

/// How long a member may take for a read.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// How long a read may take in all, with looking for the members.
const READ_WITHIN: Duration = Duration::from_secs(60);
/// After how long without an answer the next member is asked beside those that are.
const NEXT_AFTER: Duration = Duration::from_millis(250);
/// What is asked for where only the header beside it matters.
const ANYTHING: (ObjectKey, &str) = (ObjectKey::new([0; 32]), "main");

/// One user's way to the heads that a committee certifies. Cheap to clone; clones share what they know.
#[derive(Clone)]
pub struct CertifiedHeads {
    inner: Arc<Inner>,
}

struct Inner {
    objects: Objects,
    proofs: Arc<Proofs>,
    path: PathBuf,
    known: Mutex<Known>,
    /// What was written last, and whoever writes.
    written: Mutex<Memory>,
}

#[derive(Default)]
struct Known {
    memory: Memory,
    /// Members as this run found them, until they fail it.
    seats: Option<Arc<Seats>>,
    /// When a certified header was seen last, by the clock of this process.
    seen: Option<Duration>,
}

/// Where a head is, and the proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// The object.
    pub object: ObjectKey,
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
    /// [`CertifiedError::Memory`]; [`CertifiedError::Spoilt`] where it is not known what was seen before.
    pub fn new(objects: &Objects, group: GroupKey) -> Result<Self, CertifiedError> {
        let path = memory::path(objects.author().home().dir(), &group.id());
        let memory = Memory::read(&path)?;
        let known = Known { memory: memory.clone(), ..Known::default() };
        let (objects, known, written) = (objects.clone(), Mutex::new(known), Mutex::new(memory));
        let proofs = Arc::new(Proofs::new(objects.network(), group));
        Ok(Self { inner: Arc::new(Inner { objects, proofs, path, known, written }) })
    }

    /// The key that everything is checked with.
    pub fn group(&self) -> &GroupKey {
        self.inner.proofs.group()
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
        self.timely(self.read_now(object, branch)).await
    }

    async fn read_now(
        &self,
        object: &ObjectKey,
        branch: &str,
    ) -> Result<Certified, CertifiedError> {
        self.by_members(|found| async move {
            let (lying, seats) = (faulty(found.members.len()), self.shuffled(&found.seats));
            self.read_from(lying, &seats, object, branch, None).await
        })
        .await
    }

    /// Does it within the time that a read has.
    async fn timely(
        &self,
        read: impl Future<Output = Result<Certified, CertifiedError>> + Send,
    ) -> Result<Certified, CertifiedError> {
        match self.env().within(READ_WITHIN, read).await {
            Ok(read) => read,
            Err(_) => {
                self.forget_seats();
                let asked = self.known().memory.seats.len();
                Err(CertifiedError::TooLong { asked, limit: READ_WITHIN })
            }
        }
    }

    /// Reads from the first of these members whose answer holds, is not behind, and is fresh, at this epoch
    /// and view or a later one, where one is named. Of members of whom so many may lie, one more is asked at a time, so
    /// that liars do not hold it up.
    async fn read_from(
        &self,
        lying: usize,
        seats: &[Seat],
        object: &ObjectKey,
        branch: &str,
        at: Option<(u64, u64)>,
    ) -> Result<Certified, CertifiedError> {
        let name = Bytes::copy_from_slice(branch.as_bytes());
        let ask = |seat: Seat, pause: Duration| {
            let ask = CommitteeAsk::Read { object: *object, branch: name.clone(), at };
            async move {
                if !pause.is_zero() {
                    self.env().clock.sleep(pause).await;
                }
                self.ask(&seat, ask, READ_LIMIT).await
            }
        };
        let mut failed = asking::Failures::default();
        let mut running = FuturesUnordered::new();
        let mut next = seats.iter().cloned();
        let first = next.by_ref().take(lying + 1).zip(0..);
        running.extend(first.map(|(seat, before)| ask(seat, NEXT_AFTER * before)));
        while let Some(answer) = running.next().await {
            match answer {
                Ok(CommitteeAnswer::Read(bytes)) => match self.proven(&bytes, object, branch, at) {
                    Ok(read) => {
                        drop(running);
                        self.saw(read.head.header.height).await;
                        return Ok(read);
                    }
                    Err(error) => failed.refused(error),
                },
                Ok(_) => failed.odd(),
                Err(error) => failed.call(error),
            }
            running.extend(next.next().map(|seat| ask(seat, Duration::ZERO)));
        }
        Err(failed.error(seats.len()))
    }

    /// Checks a read, and that nobody would be taken back by it.
    fn proven(
        &self,
        bytes: &Bytes,
        object: &ObjectKey,
        branch: &str,
        at: Option<(u64, u64)>,
    ) -> Result<Certified, CertifiedError> {
        let (head, found) = self.checked(bytes, object, branch)?;
        let known = self.height();
        if head.header.height < known {
            return Err(CertifiedError::Behind { found: head.header.height, known });
        }
        if let Some(at) = at {
            if found < at {
                return Err(CertifiedError::Behind { found: head.header.height, known });
            }
            self.check_fresh(&head.header)?;
        }
        Ok(Certified { object: *object, head, proof: bytes.clone(), at: found })
    }

    /// What a read proves, and up to which epoch and view.
    fn checked(
        &self,
        bytes: &Bytes,
        object: &ObjectKey,
        branch: &str,
    ) -> Result<(CertifiedHead, (u64, u64)), CommitteeError> {
        let read = Read::decode(bytes)?;
        let network = self.inner.objects.network();
        let head = read.verify(&network, self.inner.proofs.group(), object, branch)?;
        Ok((head, read.certificate.round()))
    }

    /// Remembers a height that was certified; it is on the disk when this returns.
    async fn saw(&self, height: u64) {
        {
            let mut known = self.known();
            known.seen = Some(self.env().clock.elapsed());
            if height <= known.memory.height {
                return;
            }
            known.memory.height = height;
        }
        self.remember().await;
    }

    /// Writes what is known now, unless another task just did: of many that wait, one writes for all.
    async fn remember(&self) {
        let inner = Arc::clone(&self.inner);
        let write = move || {
            let mut written = inner.written.lock().unwrap_or_else(PoisonError::into_inner);
            let known = inner.known.lock().unwrap_or_else(PoisonError::into_inner).memory.clone();
            if *written != known {
                known.write(inner.objects.author().home().dir(), &inner.path)?;
                *written = known;
            }
            Ok::<_, CertifiedError>(())
        };
        // Without the file this run goes on remembering, and the next one is no worse off than before.
        if let Err(error) = self.env().blocking(write).await {
            tracing::warn!(%error, "what was seen of the committee could not be kept");
        }
    }

    fn forget_seats(&self) {
        self.known().seats = None;
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
