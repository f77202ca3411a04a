//! `hold object tips`.

use std::fmt;

use author::objects::{Object, Tip, Tips, VersionId};
use clap::{ArgAction, Args};
use serde::Serialize;

use super::Which;
use crate::cli::Session;
use crate::error::{HoldError, or_more};
use crate::exit::Exit;

/// `hold object tips`.
#[derive(Debug, Args)]
pub(crate) struct TipsVerb {
    #[command(flatten)]
    which: Which,
    /// Ask more peers than its holders: finds what was written while a part of the network was cut off
    #[arg(long, action = ArgAction::SetTrue)]
    wide: bool,
}

/// `hold object tips`: one line a version without a successor, the one that counts first.
#[derive(Serialize)]
struct TipText {
    /// The version, h:l:n.
    version: String,
    /// The key that wrote it, hex.
    author: String,
    /// What its value is: bytes, entry, tombstone or commit.
    kind: &'static str,
    /// The h of the versions that it was made of, hex.
    bases: Vec<String>,
    /// Whether the policy lists its writer now; others are told, and do not count.
    listed: bool,
}

impl TipText {
    fn new(tip: &Tip, listed: bool) -> Self {
        Self {
            listed,
            version: tip.id.to_string(),
            author: tip.author.to_string(),
            kind: super::history::kind(tip.kind),
            bases: tip.bases.iter().map(|base| base.to_string()).collect(),
        }
    }
}

impl fmt::Display for TipText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}  by {}", self.version, self.kind, self.author)?;
        if self.listed { Ok(()) } else { f.write_str("  (not listed: does not count)") }
    }
}

impl TipsVerb {
    /// Runs it: 3 where too few holders answered to be sure.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let objects = super::objects(session).await?;
        let object = self.which.open(&objects).await?;
        let tips = if self.wide { object.tips_everywhere().await? } else { object.tips().await? };
        for tip in &tips.tips {
            session.out.result(&TipText::new(tip, true))?;
        }
        for tip in &tips.unlisted {
            session.out.result(&TipText::new(tip, false))?;
        }
        if tips.tips.len() > 1 {
            session.out.note("branches: hold object merge makes one of two");
        }
        Ok(notes(session, &tips))
    }
}

/// Tells who answered wrongly: 3 where too few holders answered to be sure that these are all.
pub(super) fn notes(session: &Session, tips: &Tips) -> Exit {
    if !tips.refused.is_empty() {
        session.out.warn(format_args!(
            "{} peers answered with what does not prove itself; nothing of it counts",
            tips.refused.len()
        ));
    }
    if !tips.is_enough {
        session.out.warn("there may be more: not all holders answered");
    }
    if tips.more {
        session.out.warn(
            "there may be more, or one of these is made of another: a holder has more than it sends, or a history between two \
             is too long to be compared",
        );
    }
    if !tips.is_enough || tips.more { Exit::Partly } else { Exit::Done }
}

/// Why there is no tip that counts.
pub(super) const fn none(tips: &Tips) -> HoldError {
    match tips.unlisted.len() {
        0 => HoldError::NoVersion,
        unlisted => HoldError::Unlisted(unlisted),
    }
}

/// The tip that counts; warns of others.
pub(super) async fn counting(session: &Session, object: &Object) -> Result<VersionId, HoldError> {
    let tips = object.tips().await?;
    if !tips.is_enough {
        session.out.warn("not all holders answered: there may be a newer version");
    }
    if tips.tips.len() > 1 {
        session.out.warn(format_args!(
            "{} versions{} have no successor; this is the one that counts (hold object tips)",
            tips.tips.len(),
            or_more(tips.more)
        ));
    }
    tips.tips.first().map(|tip| tip.id).ok_or_else(|| none(&tips))
}
