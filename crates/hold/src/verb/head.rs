//! `hold head`: which version a branch is at, as the owner's devices say, or a committee certifies.

mod certified;
mod device;
mod merge;
mod policy;
mod read;
mod update;
mod watch;

use std::fmt;

use author::heads::{BranchState, HeadTip};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::verb::object::Which;

pub(crate) use certified::{committee_hint, hint};

/// What to do with heads.
#[derive(Debug, Subcommand)]
pub(crate) enum HeadVerb {
    /// Show what a branch is at: one line a head that counts and that none takes the place of
    Read(read::Read),
    /// Say that a branch is at a version from now on
    Update(update::Update),
    /// Show what a branch is at, and again whenever it moved, until Ctrl-C
    Watch(watch::Watch),
    /// Merge the versions of several heads, and say that the branch is at what comes out
    Merge(merge::Merge),
    /// Show the owner's devices, add one, or revoke one
    Device(device::Device),
    /// Tell a committee of an object, and who may write it: what its policy says now
    Policy(policy::Policy),
}

impl HeadVerb {
    /// Runs it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match self {
            Self::Read(verb) => verb.run(session).await,
            Self::Update(verb) => verb.run(session).await,
            Self::Watch(verb) => verb.run(session).await,
            Self::Merge(verb) => verb.run(session).await,
            Self::Device(verb) => verb.run(session).await,
            Self::Policy(verb) => verb.run(session).await,
        }
    }
}

/// Which branch of which object.
#[derive(Debug, Args)]
struct Of {
    #[command(flatten)]
    which: Which,
    /// The branch
    #[arg(long, value_name = "NAME", default_value = "main")]
    branch: String,
}

/// `hold head read`, `hold head watch`, `hold head update` and `hold head merge`: one line a head.
#[derive(Serialize)]
struct HeadText {
    /// Its record's id, hex: what --expected takes.
    head: String,
    /// What the branch is at, h:l:n.
    version: String,
    /// The device that says so, hex.
    device: String,
    /// When it said so, Unix milliseconds: it decides nothing.
    time_ms: u64,
}

impl From<&HeadTip> for HeadText {
    fn from(tip: &HeadTip) -> Self {
        Self {
            head: tip.id.to_string(),
            version: tip.version.to_string(),
            device: tip.device.to_string(),
            time_ms: tip.time_ms,
        }
    }
}

impl fmt::Display for HeadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}  by {}", self.head, self.version, self.device)
    }
}

/// Prints what a branch is at: 3 where too few holders answered to be sure.
fn told(session: &Session, state: &BranchState) -> Result<Exit, HoldError> {
    state.tips.iter().try_for_each(|tip| session.out.result(&HeadText::from(tip)))?;
    Ok(notes(session, state))
}

/// Tells what else is to be known of it.
fn notes(session: &Session, state: &BranchState) -> Exit {
    if state.tips.len() > 1 {
        session.out.note("written at once by several devices: hold head merge makes one of them");
    }
    if !state.refused.is_empty() {
        session.out.warn(format_args!(
            "{} peers answered with what does not prove itself; nothing of it counts",
            state.refused.len()
        ));
    }
    if !state.is_enough {
        session.out.warn("not all holders answered: there may be a newer head");
        return Exit::Partly;
    }
    Exit::Done
}
