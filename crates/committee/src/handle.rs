//! A committee as its clients see it, and a member that runs on a thread of its own.

use std::net::SocketAddr;
use std::path::PathBuf;

use commonware_runtime::{Runner as _, tokio as runtime};
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use version::ObjectKey;

use crate::engine::{self, Charter, Founding, MemberId, Reply, Settings};
use crate::members::Ended;
use crate::{Answer, CommitteeError, GroupKey, Position, Read, Submission};

/// The most requests of clients on their way to the member.
const REQUESTS_MAX: usize = 4_096;
/// Threads of the member's runtime: votes, connections and the disk wait for each other there.
const THREADS: usize = 2;

/// Who waits for a read.
pub(crate) type ReadReply = oneshot::Sender<Result<Read, CommitteeError>>;

/// What a client asks.
#[derive(Debug)]
pub enum Request {
    /// What becomes of these updates?
    Update {
        /// The updates.
        submission: Submission,
        /// Who waits.
        reply: Reply,
    },
    /// Where is a head?
    Read {
        /// The object.
        object: ObjectKey,
        /// The branch.
        branch: Box<str>,
        /// Whether every update answered before must be in.
        fresh: bool,
        /// Who waits.
        reply: ReadReply,
    },
    /// Where is a head, once this epoch and view, or later ones, are final?
    ReadAt {
        /// The object.
        object: ObjectKey,
        /// The branch.
        branch: Box<str>,
        /// The epoch and the view.
        at: (u64, u64),
        /// Who waits.
        reply: ReadReply,
    },
    /// How far is the member?
    HowFar {
        /// What its answer is signed with.
        nonce: [u8; 32],
        /// Who waits.
        reply: oneshot::Sender<Result<Position, CommitteeError>>,
    },
    /// Members are reached elsewhere now.
    Moved {
        /// Who, and where.
        members: Vec<(MemberId, SocketAddr)>,
    },
    /// Other members are wanted, or new shares for the same.
    Reshare {
        /// The members of the next epoch, and where they are, where that is new; `None` for the same.
        members: Option<Vec<(MemberId, Option<SocketAddr>)>>,
        /// With fewer than these it comes to nothing.
        least: Option<u8>,
        /// Who waits.
        reply: oneshot::Sender<Result<Changing, CommitteeError>>,
    },
    /// How far is a change of the members?
    Changing {
        /// Who waits.
        reply: oneshot::Sender<Result<Changing, CommitteeError>>,
    },
    /// How is the member?
    Status {
        /// Who waits.
        reply: oneshot::Sender<Status>,
    },
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The height of the final tip.
    pub height: u64,
    /// Its time, Unix milliseconds.
    pub time_ms: u64,
    /// The view in which it became final.
    pub view: u64,
    /// The epoch of the final tip.
    pub epoch: u64,
    /// The members that the final tip names, in the order in which a header counts them: where its
    /// epoch has ended, still those of that one.
    pub members: Vec<MemberId>,
    /// Whether this one is a member of the epoch of the next block.
    pub seated: bool,
    /// How many members of that epoch must agree.
    pub needed: u32,
    /// How many of them are heard, this one among them where it is one.
    pub heard: u32,
    /// Whether this one votes; else it follows.
    pub votes: bool,
    /// Submissions that wait.
    pub waiting: u64,
    /// Entries of the state.
    pub entries: u64,
    /// Bytes of them.
    pub state_bytes: u64,
}

/// Where a change of the members is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nobody wants one here.
    Rest,
    /// Fewer than n - f members want the same.
    Asking,
    /// Those that are new do not follow yet, or what was agreed on is not in a block yet.
    Waiting,
    /// Shares are dealt.
    Dealing,
    /// The next epoch is decided and has no certificate yet.
    Entering,
}

/// How far a change of the members is, as this one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changing {
    /// The epoch of the next block.
    pub epoch: u64,
    /// The number of the last round.
    pub number: u64,
    /// Where it is.
    pub phase: Phase,
    /// How the last round ended.
    pub ended: Ended,
    /// The members, and where they are as far as was said.
    pub members: Vec<(MemberId, Option<SocketAddr>)>,
    /// Those of the epoch before.
    pub before: Vec<MemberId>,
    /// The members that are wanted; none at rest.
    pub wanted: Vec<MemberId>,
    /// Who is missing: members that did not ask for the same, new ones that do not follow yet, players that did not take this
    /// member's part.
    pub missing: Vec<MemberId>,
    /// Members whose dealing is ordered.
    pub dealt: Vec<MemberId>,
    /// Whether this member has a share, and votes.
    pub has_share: bool,
}

/// A committee.
pub trait Committee: Send + Sync {
    /// The key that its answers are checked with.
    fn group(&self) -> &GroupKey;

    /// What became of each update, certified. Sent again it is answered again.
    fn update(&self, submission: Submission) -> BoxFuture<'_, Result<Vec<Answer>, CommitteeError>>;

    /// Where a head is, as of the newest height that is known where it is asked.
    fn read(&self, object: ObjectKey, branch: &str) -> BoxFuture<'_, Result<Read, CommitteeError>>;

    /// Where a head is, as of a height at which every update is in that was answered before the call.
    fn read_fresh(
        &self,
        object: ObjectKey,
        branch: &str,
    ) -> BoxFuture<'_, Result<Read, CommitteeError>>;

    /// Where a head is, once this epoch and view, or later ones, are final.
    fn read_at(
        &self,
        object: ObjectKey,
        branch: &str,
        at: (u64, u64),
    ) -> BoxFuture<'_, Result<Read, CommitteeError>>;

    /// How far the member is that is asked, in its own signed words.
    fn how_far(&self, nonce: [u8; 32]) -> BoxFuture<'_, Result<Position, CommitteeError>>;

    /// How the member is that is asked.
    fn status(&self) -> BoxFuture<'_, Result<Status, CommitteeError>>;
}

/// The way to a member.
#[derive(Clone, Debug)]
pub struct Handle {
    group: GroupKey,
    requests: mpsc::Sender<Request>,
}

impl Handle {
    /// The way to a member that takes its requests from the other end.
    pub fn new(group: GroupKey) -> (Self, mpsc::Receiver<Request>) {
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        (Self { group, requests }, receiver)
    }

    /// Tells the member that others are reached elsewhere now.
    ///
    /// # Errors
    /// [`CommitteeError::Stopped`].
    pub async fn moved(&self, members: Vec<(MemberId, SocketAddr)>) -> Result<(), CommitteeError> {
        let sent = self.requests.send(Request::Moved { members }).await;
        sent.map_err(|_| CommitteeError::Stopped)
    }

    /// Asks, as the member's operator, for these members in the next epoch, under the same group key: those that stay, and those that
    /// are new, of which it must be said where they are. It begins once n - f members' operators asked for the same list, places
    /// and all: so of those that stay none is said, unless they moved. `least` is how many must be left where some of them are not
    /// there (as many, usually, as keep the number that may lie).
    ///
    /// # Errors
    /// [`CommitteeError::Members`], [`CommitteeError::Stopped`].
    pub async fn reshare(
        &self,
        members: Vec<(MemberId, Option<SocketAddr>)>,
        least: Option<u8>,
    ) -> Result<Changing, CommitteeError> {
        self.ask(|reply| Request::Reshare { members: Some(members), least, reply }).await?
    }

    /// Asks, as the member's operator, for new shares for the same members.
    ///
    /// # Errors
    /// As [`Handle::reshare`].
    pub async fn refresh(&self) -> Result<Changing, CommitteeError> {
        self.ask(|reply| Request::Reshare { members: None, least: None, reply }).await?
    }

    /// How far a change of the members is.
    ///
    /// # Errors
    /// [`CommitteeError::Stopped`].
    pub async fn changing(&self) -> Result<Changing, CommitteeError> {
        self.ask(|reply| Request::Changing { reply }).await?
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, CommitteeError> {
        let (reply, receiver) = oneshot::channel();
        let sent = self.requests.send(request(reply)).await;
        sent.map_err(|_| CommitteeError::Stopped)?;
        receiver.await.map_err(|_| CommitteeError::Stopped)
    }

    async fn ask_read(
        &self,
        object: ObjectKey,
        branch: Box<str>,
        fresh: bool,
    ) -> Result<Read, CommitteeError> {
        self.ask(|reply| Request::Read { object, branch, fresh, reply }).await?
    }
}

impl Committee for Handle {
    fn group(&self) -> &GroupKey {
        &self.group
    }

    fn update(&self, submission: Submission) -> BoxFuture<'_, Result<Vec<Answer>, CommitteeError>> {
        Box::pin(async { self.ask(|reply| Request::Update { submission, reply }).await? })
    }

    fn read(&self, object: ObjectKey, branch: &str) -> BoxFuture<'_, Result<Read, CommitteeError>> {
        let branch = branch.into();
        Box::pin(self.ask_read(object, branch, false))
    }

    fn read_fresh(
        &self,
        object: ObjectKey,
        branch: &str,
    ) -> BoxFuture<'_, Result<Read, CommitteeError>> {
        let branch = branch.into();
        Box::pin(self.ask_read(object, branch, true))
    }

    fn read_at(
        &self,
        object: ObjectKey,
        branch: &str,
        at: (u64, u64),
    ) -> BoxFuture<'_, Result<Read, CommitteeError>> {
        let branch = branch.into();
        Box::pin(
            async move { self.ask(|reply| Request::ReadAt { object, branch, at, reply }).await? },
        )
    }

    fn how_far(&self, nonce: [u8; 32]) -> BoxFuture<'_, Result<Position, CommitteeError>> {
        Box::pin(async move { self.ask(|reply| Request::HowFar { nonce, reply }).await? })
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, CommitteeError>> {
        Box::pin(self.ask(|reply| Request::Status { reply }))
    }
}

fn runner(folder: PathBuf) -> runtime::Runner {
    let config = runtime::Config::new().with_storage_directory(folder);
    runtime::Runner::new(config.with_worker_threads(THREADS).with_max_blocking_threads(16))
}

/// Does something on a thread of its own, and waits: a runtime cannot be started inside another.
fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CommitteeError> + Send + 'static,
) -> Result<T, CommitteeError> {
    let thread = std::thread::Builder::new().name("committee".into()).spawn(work);
    let end = thread.map_err(CommitteeError::Disk)?.join();
    end.map_err(|_| CommitteeError::Stopped)?
}

/// A member on a thread of its own.
#[derive(Debug)]
pub struct Member {
    handle: Handle,
    thread: Option<std::thread::JoinHandle<Result<(), CommitteeError>>>,
}

impl Member {
    /// Founds a committee with the others; blocks until all have agreed, or it is over.
    ///
    /// # Errors
    /// [`CommitteeError::Founding`], the disk.
    pub fn found(folder: PathBuf, founding: Founding) -> Result<Charter, CommitteeError> {
        aside(move || runner(folder).start(|context| engine::found(context, founding)))
    }

    /// Makes this machine one that follows a committee which others founded.
    ///
    /// # Errors
    /// [`CommitteeError::Files`] where there is a member already, the disk.
    pub fn join(folder: PathBuf, name: &str, charter: &Charter) -> Result<(), CommitteeError> {
        let (name, charter) = (String::from(name), charter.clone());
        aside(move || {
            runner(folder).start(async |context| engine::join(&context, &name, &charter).await)
        })
    }

    /// Starts the member whose files are in a folder.
    ///
    /// # Errors
    /// [`CommitteeError::Files`], the disk.
    pub fn start(folder: PathBuf, settings: Settings) -> Result<Self, CommitteeError> {
        let name = settings.name.clone();
        let read = folder.clone();
        let kept =
            aside(move || runner(read).start(async |context| engine::kept(&context, &name).await));
        let (handle, requests) = Handle::new(kept?.group);
        let run = move || runner(folder).start(|context| engine::run(context, settings, requests));
        let thread = std::thread::Builder::new().name("committee".into()).spawn(run);
        Ok(Self { handle, thread: Some(thread.map_err(CommitteeError::Disk)?) })
    }

    /// The charter of the committee whose member's files are in a folder.
    ///
    /// # Errors
    /// [`CommitteeError::Files`] where there is none, the disk.
    pub fn charter(folder: PathBuf, name: &str) -> Result<Charter, CommitteeError> {
        let name = String::from(name);
        let kept =
            move || runner(folder).start(async |context| engine::kept(&context, &name).await);
        aside(kept)
    }

    /// Whether its thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(std::thread::JoinHandle::is_finished)
    }

    /// The way to it.
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops it, once every other way to it is dropped, and waits.
    ///
    /// # Errors
    /// What it ended with.
    pub fn stop(self) -> Result<(), CommitteeError> {
        let Self { handle, thread } = self;
        drop(handle);
        match thread.map(std::thread::JoinHandle::join) {
            Some(Ok(end)) => end,
            _ => Err(CommitteeError::Stopped),
        }
    }
}
