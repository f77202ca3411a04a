//! `hold object prev` and `hold object log`.

use std::fmt;

use author::objects::{LOG_MAX, Object, ObjectsError, Past, Value, ValueKind, VersionId};
use clap::{ArgAction, Args};
use serde::Serialize;

use super::Which;
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::one_line;

/// `hold object prev`.
#[derive(Debug, Args)]
pub(crate) struct Prev {
    #[command(flatten)]
    which: Which,
    /// Of this version [default: the tip that counts]
    #[arg(id = "of", value_name = "VERSION", value_parser = super::version)]
    of: Option<VersionId>,
    /// How many at most; it ends behind a root, and behind a merge
    #[arg(long, short = 'm', value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    most: u32,
    /// Tell their values too
    #[arg(long, action = ArgAction::SetTrue)]
    values: bool,
}

/// `hold object log`.
#[derive(Debug, Args)]
pub(crate) struct Log {
    #[command(flatten)]
    which: Which,
    /// From this version on [default: from all tips]
    #[arg(id = "of", value_name = "VERSION", value_parser = super::version)]
    of: Vec<VersionId>,
    /// How many at most
    #[arg(long, short = 'm', value_name = "M", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=LOG_MAX as i64))]
    most: u32,
    /// Tell their values too
    #[arg(long, action = ArgAction::SetTrue)]
    values: bool,
}

/// `hold object prev` and `hold object log`: one line a version.
#[derive(Serialize)]
pub(super) struct PastText {
    /// The version, h:l:n.
    version: String,
    /// The h of the versions that it was made of, hex.
    bases: Vec<String>,
    /// What its value is: bytes, entry, tombstone or commit.
    kind: &'static str,
    /// Length of the value; of a sealed one that does not open here, as it lies there.
    bytes: usize,
    /// The value, where it was asked for and is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// The value, hex, where it was asked for and is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
    /// Whether its value opened, or is no sealed one.
    #[serde(skip)]
    opened: bool,
}

impl fmt::Display for PastText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}  {} bytes", self.version, self.kind, self.bytes)?;
        match (&self.value, &self.value_hex) {
            (Some(text), _) => write!(f, "  {}", text.escape_debug()),
            (None, Some(hex)) => write!(f, "  0x{hex}"),
            (None, None) => Ok(()),
        }
    }
}

/// A kind's name.
pub(super) const fn kind(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Bytes => "bytes",
        ValueKind::Entry => "entry",
        ValueKind::Tombstone => "tombstone",
        ValueKind::Commit => "commit",
    }
}

/// A version, told. Any listed writer can put a value that does not open here: that is warned of, and ends nothing.
///
/// # Errors
/// [`HoldError`] of what is wrong with more than this value.
pub(super) fn text(
    session: &Session,
    object: &Object,
    past: &Past,
    values: bool,
) -> Result<PastText, HoldError> {
    let value = match object.open_value(past) {
        Ok(value) => Some(value),
        Err(error @ ObjectsError::Sealed { .. }) => {
            session.out.warn(format_args!("version {}: {}", past.id, one_line(&error)));
            None
        }
        Err(error) => return Err(error.into()),
    };
    let bytes = value.as_ref().and_then(Value::bytes);
    let (mut told, mut hexed) = (None, None);
    if let (true, Some(bytes)) = (values, bytes) {
        match std::str::from_utf8(bytes) {
            Ok(text) => told = Some(text.to_owned()),
            Err(_) => hexed = Some(hex::encode(bytes)),
        }
    }
    Ok(PastText {
        version: past.id.to_string(),
        bases: past.version.bases.iter().map(|base| base.to_string()).collect(),
        kind: kind(past.version.kind),
        bytes: bytes.map_or(past.version.value.len(), <[u8]>::len),
        value: told,
        value_hex: hexed,
        opened: value.is_some(),
    })
}

/// Prints versions as they are told.
struct Telling<'a> {
    session: &'a Session,
    object: &'a Object,
    values: bool,
    /// Whether one of them did not open.
    unopened: bool,
}

impl Telling<'_> {
    fn tell(&mut self, past: &Past) -> Result<(), HoldError> {
        let text = text(self.session, self.object, past, self.values)?;
        self.unopened |= !text.opened;
        self.session.out.result(&text)
    }

    /// 3 where one did not open.
    fn exit(&self, exit: Exit) -> Exit {
        if self.unopened { Exit::Partly } else { exit }
    }
}

impl Prev {
    /// Runs it: 3 where a value does not open.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let objects = super::objects(session).await?;
        let object = self.which.open(&objects).await?;
        let version = match self.of {
            Some(version) => version,
            None => super::tips::counting(session, &object).await?,
        };
        let past = object.previous(&version, self.most as usize).await?;
        let mut telling =
            Telling { session, object: &object, values: self.values, unopened: false };
        past.iter().try_for_each(|one| telling.tell(one))?;
        Ok(telling.exit(Exit::Done))
    }
}

impl Log {
    /// Runs it: 3 where it begins at the tips and too few holders answered to be sure of these, and where a value does not open.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let objects = super::objects(session).await?;
        let object = self.which.open(&objects).await?;
        let (from, exit) = match &self.of[..] {
            [] => tips(session, &object).await?,
            named => (named.to_vec(), Exit::Done),
        };
        let mut telling =
            Telling { session, object: &object, values: self.values, unopened: false };
        object.log_each(&from, self.most as usize, |past: Past| telling.tell(&past)).await?;
        Ok(telling.exit(exit))
    }
}

/// All tips that count, and whether they are all.
async fn tips(session: &Session, object: &Object) -> Result<(Vec<VersionId>, Exit), HoldError> {
    let tips = object.tips().await?;
    let exit = super::tips::notes(session, &tips);
    if tips.tips.is_empty() {
        return Err(super::tips::none(&tips));
    }
    if !tips.unlisted.is_empty() {
        session.out.warn(format_args!(
            "{} newest versions are by writers that the policy does not list any more, and are left out (hold object tips)",
            tips.unlisted.len()
        ));
    }
    Ok((tips.tips.iter().map(|tip| tip.id).collect(), exit))
}
