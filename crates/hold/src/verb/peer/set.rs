//! `hold peer set`: settings of a peer that may change while it runs.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use crypto::Revocation;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files;
use crate::network_file::NetworkFile;
use crate::out::PathText;
use crate::watch::Kept;
use crate::{peerdir, watch};

/// `hold peer set`.
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// The peer's directory
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// What to set
    #[arg(value_enum, requires = "value")]
    setting: Option<Setting>,
    /// To what
    #[arg(value_enum, requires = "setting")]
    value: Option<Switch>,
    /// A list of `hold org revoke`, of any organisation of the network
    #[arg(long, value_name = "FILE")]
    revocations: Option<PathBuf>,
}

/// Settings that are on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Setting {
    /// Serve reads and refuse writes
    ReadOnly,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// On
    On,
    /// Off
    Off,
}

/// `hold peer set`: what is set now.
#[derive(Serialize)]
struct SetResult {
    /// The peer's directory.
    dir: PathText,
    /// Whether it serves reads alone.
    read_only: bool,
    /// The keys on the list that was given.
    revoked: Vec<String>,
    /// The list that was given, where one was.
    list: Option<SetList>,
    /// Whether read-only mode was asked for, on or off.
    #[serde(skip)]
    switched: bool,
}

/// A list of revoked keys that counts at a peer now.
#[derive(Serialize)]
struct SetList {
    /// Whose it is: the organisation's key.
    organisation: String,
    /// Its number: of two of one organisation the higher counts.
    number: u64,
}

impl fmt::Display for SetResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.switched {
            write!(f, "read-only {}", if self.read_only { "on" } else { "off" })?;
        }
        let Some(SetList { organisation, number }) = &self.list else { return Ok(()) };
        let (before, keys) = (if self.switched { "\n" } else { "" }, self.revoked.len());
        write!(f, "{before}list {number} of {organisation} counts: it revokes {keys} keys")?;
        self.revoked.iter().try_for_each(|key| write!(f, "\nrevoked {key}"))
    }
}

/// Why the list that was given counts for nothing, beside the one that is kept.
fn refusal(kept: &Kept, given: &Revocation) -> String {
    let (kept, number) = (kept.number, given.sequence);
    match kept == number {
        false => format!(
            "the peer has a newer list of this organisation, number {kept}: this one, number {number}, counts for nothing"
        ),
        true => format!(
            "the peer has another list of this organisation with the same number, {number}, which counts before this one: \
             revoke its keys anew (hold org revoke), on top of the peer's (--from D/revoked/ORG)"
        ),
    }
}

impl Set {
    /// Writes the settings; a peer that runs takes them within about a second.
    pub(super) fn run(self, session: &Session) -> Result<Exit, HoldError> {
        if self.setting.is_none() && self.revocations.is_none() {
            let what = "say what to set: read-only on|off, or --revocations FILE";
            return Err(HoldError::argument("peer set", what));
        }
        let mut config = peerdir::read_config(&self.dir)?;
        let (mut revoked, mut list) = (Vec::new(), None);
        if let Some(path) = &self.revocations {
            let network = NetworkFile::read(&self.dir.join("network"))?;
            let hint = "hold org revoke --dir ORG --network NET --key KEY -o FILE";
            let bytes = files::read_needed(path, "a list of revoked keys", hint)?;
            let bytes = Bytes::copy_from_slice(&bytes);
            let given = Revocation::verify(&bytes, network.roster(), peerdir::now_s())?;
            let kept = watch::set_revocation(&self.dir, network.roster(), &given, &bytes)?;
            if kept.bytes != bytes {
                return Err(HoldError::argument("--revocations", refusal(&kept, &given)));
            }
            revoked = given.keys.iter().map(ToString::to_string).collect();
            let organisation = given.organisation.to_string();
            list = Some(SetList { organisation, number: given.sequence });
        }
        if let (Some(Setting::ReadOnly), Some(value)) = (self.setting, self.value) {
            config.read_only = value == Switch::On;
            let values = [("read_only".to_owned(), config.read_only.into())];
            peerdir::change_config(&self.dir, &toml::Table::from_iter(values))?;
        }
        let (read_only, switched) = (config.read_only, self.setting.is_some());
        let dir = self.dir.into();
        session.out.result(&SetResult { dir, read_only, revoked, list, switched })?;
        Ok(Exit::Done)
    }
}
