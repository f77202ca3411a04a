//! `hold committee verify`: a file that somebody kept, checked with nothing but a committee's key.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use committee::answer::{ANSWER_PREFIX, READ_PREFIX};
use committee::{Answer, GroupKey, Header, Operation, Outcome, Read};
use crypto::{NetworkId, Suite};
use serde::Serialize;
use version::ObjectKey;

use crate::cli::Session;
use crate::connect;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files;
use crate::network_file::NetworkFile;

/// `hold committee verify`.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// An answer or a read, as --proof wrote it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The committee's key, as `hold committee init` printed it, or @FILE with it
    #[arg(long, value_name = "KEY", value_parser = super::key)]
    key: GroupKey,
    /// The network's file [default: that of this user's settings]
    #[arg(long, value_name = "NET")]
    network: Option<PathBuf>,
    /// The network's id, where its file is not at hand
    #[arg(long, value_name = "ID", conflicts_with = "network")]
    network_id: Option<NetworkId>,
    /// The object that it must be about, 64 hex digits [default: whichever it is]
    #[arg(long, value_name = "KEY")]
    object: Option<ObjectKey>,
    /// The branch that it must be about [default: whichever it is]
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
}

/// `hold committee verify`: what is proven.
#[derive(Serialize)]
struct Verified {
    /// True.
    valid: bool,
    /// answer or read.
    kind: &'static str,
    /// The object's key, hex; null of an answer about a peer or the members, and of one about an object's policy where only the
    /// network's id is known and no --object was named.
    object: Option<String>,
    /// The branch; null where a whole object is meant, or none.
    branch: Option<String>,
    /// The version that the branch is at, or that an accepted update moved it to, h:l:n.
    version: Option<String>,
    /// Since which height.
    since: Option<u64>,
    /// What became of the update; of a read: there or none.
    outcome: String,
    /// As of which height.
    height: u64,
    /// When that was, Unix milliseconds.
    time_ms: u64,
    /// The epoch.
    epoch: u64,
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, outcome, height, time_ms, .. } = self;
        write!(f, "yes: {kind}: {outcome}")?;
        if let Some(version) = &self.version {
            write!(f, " {version}")?;
        }
        if let Some(since) = self.since {
            write!(f, " since height {since}")?;
        }
        if let (Some(object), Some(branch)) = (&self.object, &self.branch) {
            write!(f, ", branch {branch} of object {object}")?;
        }
        write!(f, ", certified at height {height}, Unix time {}", time_ms / 1_000)
    }
}

impl Verified {
    fn new(kind: &'static str, outcome: String, header: &Header) -> Self {
        let (height, time_ms, epoch) = (header.height, header.time_ms, header.epoch);
        let (object, branch, version, since) = (None, None, None, None);
        let valid = true;
        Self { valid, kind, object, branch, version, since, outcome, height, time_ms, epoch }
    }
}

impl Verify {
    /// Checks it: 16 or 13 with the reason where it does not hold.
    #[expect(clippy::unused_async, reason = "as all verbs")]
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let of = |file: NetworkFile| (file.genesis().network(), Some(file.genesis().suite));
        let (network, suite) = match (self.network_id, &self.network) {
            (Some(network), _) => (network, None),
            (None, Some(file)) => of(NetworkFile::read(file)?),
            (None, None) => of(connect::network(session)?),
        };
        let bytes = Bytes::copy_from_slice(&files::read_small(&self.file)?);
        let verified = if bytes.starts_with(READ_PREFIX) {
            self.read(&bytes, &network)?
        } else if bytes.starts_with(ANSWER_PREFIX) {
            self.answer(&bytes, &network, suite)?
        } else {
            return Err(committee::CommitteeError::Prefix("answer or read of a committee").into());
        };
        session.out.result(&verified)?;
        Ok(Exit::Done)
    }

    /// The key of an object's record. It is by the network's suite: an id alone does not say which that is, and the key is known
    /// then only where it is the one that was asked for.
    fn object_of(&self, record: &[u8], suite: Option<Suite>) -> Option<ObjectKey> {
        let key = |suite: Suite| ObjectKey::from(suite.id(record));
        match suite {
            Some(suite) => Some(key(suite)),
            None => Suite::ALL.map(key).into_iter().find(|one| Some(*one) == self.object),
        }
    }

    fn read(&self, bytes: &Bytes, network: &NetworkId) -> Result<Verified, HoldError> {
        let read = Read::decode(bytes)?;
        let object = self.object.unwrap_or(read.object);
        let branch = self.branch.clone().unwrap_or_else(|| String::from(&*read.branch));
        let proven = read.verify(network, &self.key, &object, &branch)?;
        let outcome = if proven.head.is_some() { "there" } else { "none" };
        Ok(Verified {
            object: Some(object.to_string()),
            branch: Some(branch),
            version: proven.head.as_ref().map(|head| head.version.to_string()),
            since: proven.head.as_ref().map(|head| head.height),
            ..Verified::new("read", String::from(outcome), &proven.header)
        })
    }

    fn answer(
        &self,
        bytes: &Bytes,
        network: &NetworkId,
        suite: Option<Suite>,
    ) -> Result<Verified, HoldError> {
        let answer = Answer::decode(bytes)?;
        let update = answer.verify(network, &self.key)?;
        let header = answer.certificate.header();
        let (object, branch, version) = match update.operation {
            Operation::Set { object, branch, new, .. } => (Some(object), Some(branch), Some(new)),
            Operation::Object { record, .. } => (self.object_of(&record, suite), None, None),
            Operation::Peer { .. } | Operation::Members(_) => (None, None, None),
        };
        let other = self.object.is_some_and(|asked| object != Some(asked))
            || self.branch.as_ref().is_some_and(|asked| branch.as_deref() != Some(asked));
        if other {
            return Err(committee::CommitteeError::Path("object or branch").into());
        }
        let (outcome, since) = match answer.outcome.clone() {
            Outcome::Accepted { height } => (String::from("accepted"), Some(height)),
            refused => match refused.accepted() {
                Err(error) => (error.to_string(), None),
                Ok(height) => (String::from("accepted"), Some(height)),
            },
        };
        Ok(Verified {
            object: object.map(|object| object.to_string()),
            branch: branch.map(String::from),
            version: version.filter(|_| since.is_some()).map(|version| version.to_string()),
            since,
            ..Verified::new("answer", outcome, header)
        })
    }
}
