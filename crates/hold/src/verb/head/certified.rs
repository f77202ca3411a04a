//! `hold head ... --committee`: heads that a committee certifies.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use author::certified::{
    Certified, CertifiedError, CertifiedHeads, Decided, Expected, KeptReceipts,
};
use author::objects::{Object, Objects, ObjectsError, VersionId};
use bytes::Bytes;
use clap::Args;
use committee::{CommitteeError, GroupKey};
use crypto::{Class, Classified, RecordId};
use serde::Serialize;

use super::Of;
use crate::cli::Session;
use crate::client::blocking;
use crate::draft::{self, Draft};
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::one_line;
use crate::verb::{committee as committee_verb, object};

/// How long a watch waits where no member answers.
const PAUSE: Duration = Duration::from_secs(2);

/// Which committee, where one certifies the branch.
#[derive(Debug, Args)]
pub(super) struct By {
    /// The branch is certified by this committee: its key, or @FILE with it
    #[arg(long, value_name = "KEY", value_parser = committee_verb::key)]
    pub(super) committee: Option<GroupKey>,
}

/// Where the proof goes.
#[derive(Debug, Args)]
pub(super) struct Kept {
    /// Write the committee's word to this file, which hold committee verify checks
    #[arg(long, value_name = "FILE", requires = "committee")]
    pub(super) proof: Option<PathBuf>,
}

/// The file of a proof, made before anything is asked for.
struct ProofFile(Option<Draft>);

impl ProofFile {
    async fn keep(self, proof: &Bytes) -> Result<(), HoldError> {
        let Some(draft) = self.0 else { return Ok(()) };
        let proof = proof.clone();
        // It is synced.
        blocking(move || draft.keep_with(&proof)).await
    }
}

impl Kept {
    /// Begins it: what the committee does is done for good, and that its word cannot be written is told before.
    async fn begin(&self) -> Result<ProofFile, HoldError> {
        let Some(path) = self.proof.clone() else { return Ok(ProofFile(None)) };
        // A named pipe waits for its reader.
        blocking(move || Ok(ProofFile(Some(Draft::new(&path, true)?)))).await
    }

    async fn keep(&self, proof: &Bytes) -> Result<(), HoldError> {
        let Some(path) = self.proof.clone() else { return Ok(()) };
        let proof = proof.clone();
        // It is synced, and a named pipe waits for its reader.
        blocking(move || draft::write(&path, &proof)).await
    }
}

/// What `--expected` takes.
#[derive(Clone, Debug)]
pub(super) enum ExpectedText {
    /// The id of a signed head.
    Head(RecordId),
    /// No certified head.
    Nothing,
    /// A certified head: a version, and since which height it is it.
    At(VersionId, u64),
}

impl FromStr for ExpectedText {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nothing);
        }
        if let Some((version, height)) = text.split_once('@') {
            let height = height.parse().map_err(|_| format!("{height:?} is no height"))?;
            return Ok(Self::At(object::version(version)?, height));
        }
        let wrong = |_| format!("{text:?} is no head, no VERSION@HEIGHT and not \"none\"");
        text.parse().map(Self::Head).map_err(wrong)
    }
}

/// `hold head read --committee` and `hold head watch --committee`: where a branch is, as the committee certified it.
#[derive(Serialize)]
struct CertifiedText {
    /// What the branch is at, h:l:n; null where there is no head.
    version: Option<String>,
    /// Since which height; with the version what --expected takes, as VERSION@HEIGHT.
    since: Option<u64>,
    /// As of which height.
    height: u64,
    /// When that was, Unix milliseconds.
    time_ms: u64,
    /// The epoch.
    epoch: u64,
}

impl From<&Certified> for CertifiedText {
    fn from(read: &Certified) -> Self {
        let header = &read.head.header;
        Self {
            version: read.head.head.as_ref().map(|head| head.version.to_string()),
            since: read.head.head.as_ref().map(|head| head.height),
            height: header.height,
            time_ms: header.time_ms,
            epoch: header.epoch,
        }
    }
}

impl fmt::Display for CertifiedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.version, self.since) {
            (Some(version), Some(since)) => write!(f, "{version}@{since}")?,
            _ => f.write_str("none")?,
        }
        write!(f, "  certified at height {}", self.height)
    }
}

/// `hold head update --committee` and `hold head policy`: what the committee decided.
#[derive(Serialize)]
struct DecidedText {
    /// What the branch is at now, h:l:n; null of a policy.
    version: Option<String>,
    /// Since which height.
    since: u64,
    /// As of which height.
    height: u64,
    /// When that was, Unix milliseconds.
    time_ms: u64,
}

impl fmt::Display for DecidedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{version}@{}", self.since)?,
            None => write!(f, "known since height {}", self.since)?,
        }
        write!(f, "  certified at height {}", self.height)
    }
}

/// The object that is to be updated: the one whose version this is, where its receipts are kept, else as peers say.
async fn updated(of: &Of, objects: &Objects, to: &VersionId) -> Result<Object, HoldError> {
    if let Some(kept) = KeptReceipts::read(objects.author().home().dir(), &to.h) {
        let mut candidates = of.which.candidates(objects)?.into_iter();
        if let Some(object) = candidates.find(|one| one.key() == kept.object) {
            return Ok(object);
        }
    }
    of.which.open(objects).await
}

/// The way to the committee, and where the first is of the objects that may be meant that has a head; else the last of them, at
/// none. Peers that keep versions are not needed for it.
async fn begun(
    session: &Session,
    of: &Of,
    group: GroupKey,
    fresh: bool,
) -> Result<(object::Own, CertifiedHeads, Option<Certified>), HoldError> {
    let (objects, heads) = committee_verb::heads(session, group).await?;
    let mut last = None;
    for object in of.which.candidates(&objects)? {
        let read = match fresh {
            true => heads.read_fresh(&object.key(), &of.branch).await?,
            false => heads.read(&object.key(), &of.branch).await?,
        };
        let found = read.head.head.is_some();
        last = Some(read);
        if found {
            break;
        }
    }
    Ok((objects, heads, last))
}

/// Reads: 10 where there is no head, which is proven too.
pub(super) async fn read(
    session: &Session,
    of: Of,
    group: GroupKey,
    fresh: bool,
    kept: Kept,
) -> Result<Exit, HoldError> {
    let (.., read) = begun(session, &of, group, fresh).await?;
    let Some(read) = read else {
        return Err(HoldError::NoHead(of.branch));
    };
    kept.keep(&read.proof).await?;
    if read.head.head.is_none() {
        return Err(HoldError::NoHead(of.branch));
    }
    session.out.result(&CertifiedText::from(&read))?;
    Ok(Exit::Done)
}

/// Updates: 13 where this user may not write, 14 where the head is elsewhere.
pub(super) async fn update(
    session: &Session,
    of: Of,
    group: GroupKey,
    to: VersionId,
    expected: Vec<ExpectedText>,
    kept: Kept,
) -> Result<Exit, HoldError> {
    let expected = match &expected[..] {
        [] => Expected::Whatever,
        [ExpectedText::Nothing] => Expected::Nothing,
        [ExpectedText::At(version, height)] => Expected::At((version.h, *height)),
        _ => {
            let what = "one VERSION@HEIGHT as hold head read --committee tells it, or none";
            return Err(HoldError::argument("--expected", what));
        }
    };
    let proof = kept.begin().await?;
    let (objects, heads) = committee_verb::heads(session, group).await?;
    let object = updated(&of, &objects, &to).await?;
    // The depth is its writer's word, of which the holders' receipts say nothing. Whether they keep the version the committee judges.
    if let Err(error @ ObjectsError::Depth { .. }) = object.look_at(&to).await {
        return Err(error.into());
    }
    let decided = heads.set(&object, &of.branch, expected, &to).await?;
    told(session, &decided, Some(to), proof).await
}

/// Tells the committee of an object's policy.
pub(super) async fn policy(
    session: &Session,
    of: Of,
    group: GroupKey,
    kept: Kept,
) -> Result<Exit, HoldError> {
    let proof = kept.begin().await?;
    let (objects, heads) = committee_verb::heads(session, group).await?;
    let object = of.which.open(&objects).await?;
    let decided = heads.make_known(&object).await?;
    told(session, &decided, None, proof).await
}

/// Prints what was decided, also where its proof could not be written; a refusal is proven too.
async fn told(
    session: &Session,
    decided: &Decided,
    version: Option<VersionId>,
    proof: ProofFile,
) -> Result<Exit, HoldError> {
    let written = proof.keep(&decided.proof).await;
    match decided.accepted().map_err(CertifiedError::from) {
        Ok(since) => session.out.result(&DecidedText {
            version: version.map(|version| version.to_string()),
            since,
            height: decided.height,
            time_ms: decided.time_ms,
        })?,
        Err(refused) => {
            written?;
            return Err(refused.into());
        }
    }
    written.map(|()| Exit::Done)
}

/// Watches until it is stopped. Members that do not answer for a while are no end of it.
pub(super) async fn watch(
    session: &Session,
    of: Of,
    group: GroupKey,
    kept: Kept,
) -> Result<Exit, HoldError> {
    let (objects, heads, read) = begun(session, &of, group, false).await?;
    let object = match read.filter(|read| read.head.head.is_some()) {
        Some(read) => read.object,
        None => of.which.open(&objects).await?.key(),
    };
    let mut watch = heads.watch(&object, &of.branch);
    loop {
        let next = tokio::select! {
            next = watch.next() => next,
            left = objects.left() => return Err(left),
        };
        match next {
            Ok(read) => {
                kept.keep(&read.proof).await?;
                if !session.out.follow(&CertifiedText::from(&read))? {
                    return Ok(Exit::Done);
                }
            }
            Err(error) if matches!(error.class(), Class::Unavailable | Class::Busy) => {
                session.out.warn(format_args!("{}: asked again", one_line(&error)));
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What helps.
pub(crate) fn hint(error: &CertifiedError) -> Option<&'static str> {
    Some(match error {
        CertifiedError::Committee(error) => committee_hint(error)?,
        CertifiedError::NoMembers { .. } => {
            "is --via a librarian of the committee's network? hold doctor"
        }
        CertifiedError::Behind { .. } => "hold head read --fresh",
        CertifiedError::Stale { .. } => {
            "hold doctor compares the clocks; hold committee status --committee KEY"
        }
        CertifiedError::Spoilt(_) => {
            "without it older heads are believed again: remove it only where that does no harm"
        }
        _ => return None,
    })
}

/// What helps.
pub(crate) const fn committee_hint(error: &CommitteeError) -> Option<&'static str> {
    Some(match error {
        CommitteeError::MovedOn { .. } => "hold head read --committee KEY, and decide anew",
        CommitteeError::NotAWriter => "ask its owner: hold object policy, then hold head policy",
        CommitteeError::NoObject => "its owner runs hold head policy --committee KEY",
        CommitteeError::NotStored { .. } => "hold object put stores a version at enough peers",
        CommitteeError::NotEnoughMembers { .. } => "hold committee status --committee KEY",
        CommitteeError::Founding(_) => {
            "hold committee init --number N, a higher one, at all founders"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn that_a_proof_cannot_be_written_is_told_before_anything_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let kept = |name: &str| Kept { proof: Some(folder.path().join(name)) };
        assert!(kept("none/proof").begin().await.is_err());
        assert!(kept("new/.").begin().await.is_err());
        // Where the committee is not heard nothing is left.
        drop(kept("proof").begin().await.unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let proof = kept("proof").begin().await.unwrap();
        proof.keep(&Bytes::from_static(b"its word")).await.unwrap();
        assert_eq!(std::fs::read(folder.path().join("proof")).unwrap(), b"its word");
        Kept { proof: None }.begin().await.unwrap().keep(&Bytes::new()).await.unwrap();
    }

    #[test]
    fn what_is_expected_is_a_head_a_version_at_a_height_or_none() {
        let version = format!("{}:3:{}", "ab".repeat(32), "00".repeat(16));
        let at: ExpectedText = format!("{version}@77").parse().unwrap();
        assert!(matches!(at, ExpectedText::At(found, 77) if found.to_string() == version));
        assert!(matches!("none".parse().unwrap(), ExpectedText::Nothing));
        assert!(matches!("cd".repeat(32).parse().unwrap(), ExpectedText::Head(_)));
        for wrong in ["", "x", &version, &format!("{version}@"), &format!("{version}@-1")] {
            assert!(wrong.parse::<ExpectedText>().is_err(), "{wrong}");
        }
    }
}
