//! `hold object put`, and how a new version is told.

use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use author::certified::KeptReceipts;
use author::objects::{
    Durability, INLINE_VALUE_BYTES_MAX, Object, Value, VersionId, WriteOptions, Written,
};
use clap::{ArgAction, Args, ValueEnum};
use serde::Serialize;

use super::{Which, lines};
use crate::cli::Session;
use crate::client::blocking;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::one_line;

/// What a new version holds.
#[derive(Debug, Args)]
#[group(required = false, multiple = false)]
pub(super) struct Content {
    /// The value, from a file or - for standard input
    #[arg(long, short = 'f', value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// The value, as it stands here
    #[arg(long, value_name = "TEXT")]
    value: Option<String>,
    /// No value: the object is deleted from here on, and its history stays
    #[arg(long, action = ArgAction::SetTrue)]
    delete: bool,
}

impl Content {
    /// Whether any was named.
    pub(super) const fn is_none(&self) -> bool {
        self.file.is_none() && self.value.is_none() && !self.delete
    }

    /// Reads it; standard input where nothing was named.
    pub(super) async fn read(&self) -> Result<Value, HoldError> {
        if self.delete {
            return Ok(Value::Tombstone);
        }
        if let Some(text) = &self.value {
            return Ok(text.as_str().into());
        }
        let path = self.file.clone().unwrap_or_else(|| "-".into());
        let bytes = blocking(move || {
            let mut bytes = Vec::new();
            let most = INLINE_VALUE_BYTES_MAX as u64 + 1;
            let read = match path.as_os_str() == "-" {
                true => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
                false => std::fs::File::open(&path)
                    .and_then(|file| file.take(most).read_to_end(&mut bytes)),
            };
            read.map_err(HoldError::io("read", &path))?;
            Ok(bytes)
        });
        let bytes = bytes.await?;
        if bytes.len() > INLINE_VALUE_BYTES_MAX {
            let text = format!(
                "a value of over {INLINE_VALUE_BYTES_MAX} bytes: hold put it, and put its address here"
            );
            return Err(HoldError::argument("--file", text));
        }
        Ok(bytes.into())
    }
}

/// How versions are written.
#[derive(Debug, Args)]
pub(super) struct How {
    /// Let peers keep it as a difference to an earlier one, where the object is open
    #[arg(long, action = ArgAction::SetTrue)]
    compress: bool,
    /// What must have happened at a peer before it counts [default: the peer's own setting]
    #[arg(long, value_enum)]
    durability: Option<Answered>,
    /// Print the peers' signed receipts, and keep them for a committee (with --lines they are printed alone)
    #[arg(long, action = ArgAction::SetTrue)]
    receipt: bool,
}

/// When a peer's answer counts.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Answered {
    /// At once
    Memory,
    /// When the system has it; an fsync within a second
    Everysec,
    /// When one fsync for all that waited is done
    Group,
    /// When an fsync of its own is done
    Always,
}

impl How {
    /// As the author's side takes it.
    pub(super) fn options(&self) -> WriteOptions {
        let durability = self.durability.map(|durability| match durability {
            Answered::Memory => Durability::Memory,
            Answered::Everysec => Durability::Everysec,
            Answered::Group => Durability::Group,
            Answered::Always => Durability::Always,
        });
        WriteOptions { compress: self.compress, durability, receipt: self.receipt }
    }
}

/// `hold object put`.
#[derive(Debug, Args)]
pub(crate) struct Put {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    content: Content,
    /// The version it is made on [default: what the object is at, where that is one version or none]
    #[arg(long, value_name = "VERSION", value_parser = super::version)]
    base: Option<VersionId>,
    /// On none: the first of a history of its own
    #[arg(long, conflicts_with = "base", action = ArgAction::SetTrue)]
    root: bool,
    /// Each line of the input is a version, on the one before; they are told as they are stored
    #[arg(long, conflicts_with_all = ["value", "delete"], action = ArgAction::SetTrue)]
    lines: bool,
    #[command(flatten)]
    how: How,
}

/// A peer's signed word.
#[derive(Serialize)]
struct ReceiptText {
    /// Who.
    peer: String,
    /// Its receipt, hex.
    receipt: String,
}

/// `hold object put` and `hold object merge`: the new version.
#[derive(Serialize)]
pub(super) struct WrittenText {
    /// The version, h:l:n.
    version: String,
    /// Copies acknowledged by this run.
    acked: u32,
    /// Copies that this run wanted.
    wanted: u32,
    /// The peers' receipts, where they were asked for.
    receipts: Vec<ReceiptText>,
}

impl fmt::Display for WrittenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        let mut receipts = self.receipts.iter();
        receipts.try_for_each(|one| write!(f, "\nreceipt  {}  {}", one.peer, one.receipt))
    }
}

impl Put {
    /// Runs it: 10 where the version that it is to be made on is not there.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let value = match self.lines {
            true => None,
            false => Some(self.content.read().await?),
        };
        let objects = super::objects(session).await?;
        let of_what_is_there = self.base.is_some() || self.content.delete;
        let object = match of_what_is_there {
            true => self.which.open(&objects).await?,
            false => self.which.open_or_create(session, &objects).await?,
        };
        let base = match (self.base, self.root) {
            // One that is nowhere, or of another object, would end the history for everybody.
            (Some(base), _) => Some(object.look_at(&base).await?),
            (None, true) => None,
            (None, false) => at(session, &object).await?,
        };
        let options = self.how.options();
        let Some(value) = value else {
            let path = self.content.file.unwrap_or_else(|| "-".into());
            return tokio::select! {
                put = lines::put(session, (&objects, &object), path, base, options) => put,
                left = objects.left() => Err(left),
            };
        };
        let written = object.put(base.as_ref(), value, options).await?;
        told(session, &object, written).await
    }
}

/// What the object is at, for a put that names no base.
async fn at(session: &Session, object: &Object) -> Result<Option<VersionId>, HoldError> {
    let tips = object.tips().await?;
    if !tips.is_enough {
        session.out.warn("not all holders answered: there may be a newer version");
    }
    match &tips.tips[..] {
        [] if !tips.unlisted.is_empty() => Err(HoldError::Unlisted(tips.unlisted.len())),
        [] => Ok(None),
        [tip] => Ok(Some(tip.id)),
        several => Err(HoldError::Branches { versions: several.len(), more: tips.more }),
    }
}

/// Keeps the receipts that were asked for, so that a committee can be shown them also when the holders are away.
async fn keep_receipts(session: &Session, object: &Object, written: &Written) {
    let (receipts, h) = (object.words(written), written.id.h);
    if receipts.is_empty() {
        return;
    }
    let kept = KeptReceipts { object: object.key(), receipts };
    let home = Arc::clone(object.objects().author().home());
    let kept = blocking(move || Ok(kept.keep(home.dir(), &h)?)).await;
    // The version is stored, whatever becomes of them: the holders can be asked again.
    if let Err(error) = kept {
        let error = one_line(&error);
        session.out.warn(format_args!("the receipts could not be kept for a committee: {error}"));
    }
}

/// Keeps the receipts, and prints a new version when the copies that are on their way are there too or cannot be had, or a signal
/// comes: it is stored, and only its name is to be told.
pub(super) async fn told(
    session: &Session,
    object: &Object,
    mut written: Written,
) -> Result<Exit, HoldError> {
    session.hears();
    keep_receipts(session, object, &written).await;
    tokio::select! {
        biased;
        () = session.stop.cancelled() => {}
        _ = written.rest.wait(walk::WALK_LIMIT) => {}
    }
    let acked = written.rest.reached().acked;
    tell(session, &written, acked)?;
    let wanted = written.wanted;
    if acked < wanted {
        session.out.warn(format_args!(
            "stored at {acked} of {wanted} peers: enough to be answered, and fewer than wanted"
        ));
        return Ok(Exit::Partly);
    }
    Ok(Exit::Done)
}

/// Prints a new version.
pub(super) fn tell(session: &Session, written: &Written, acked: u32) -> Result<(), HoldError> {
    let receipts = written.receipts.iter().map(|one| ReceiptText {
        peer: one.receipt.peer.to_string(),
        receipt: hex::encode(one.receipt.encode()),
    });
    let (version, wanted) = (written.id.to_string(), written.wanted);
    session.out.result(&WrittenText { version, acked, wanted, receipts: receipts.collect() })
}

/// Prints a version that was there before.
pub(super) fn already(session: &Session, version: &VersionId) -> Result<Exit, HoldError> {
    let (version, receipts) = (version.to_string(), Vec::new());
    session.out.result(&WrittenText { version, acked: 0, wanted: 0, receipts })?;
    Ok(Exit::Done)
}
