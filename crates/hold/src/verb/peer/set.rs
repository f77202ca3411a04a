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
}

impl fmt::Display for SetResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read-only {}", if self.read_only { "on" } else { "off" })
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
        let mut revoked = Vec::new();
        if let Some(path) = &self.revocations {
            let network = NetworkFile::read(&self.dir.join("network"))?;
            let hint = "hold org revoke --dir ORG --network NET --key KEY -o FILE";
            let bytes = files::read_needed(path, "a list of revoked keys", hint)?;
            let bytes = Bytes::copy_from_slice(&bytes);
            let list = Revocation::verify(&bytes, network.roster(), peerdir::now_s())?;
            let kept = watch::keep_revocation(&self.dir, network.roster(), &bytes)?;
            if kept != list.sequence {
                let reason = format!(
                    "the peer has a newer list of this organisation, number {kept}: this one, number {}, counts for nothing",
                    list.sequence
                );
                return Err(HoldError::argument("--revocations", reason));
            }
            revoked = list.keys.iter().map(ToString::to_string).collect();
        }
        if let (Some(Setting::ReadOnly), Some(value)) = (self.setting, self.value) {
            config.read_only = value == Switch::On;
            let values = [("read_only".to_owned(), config.read_only.into())];
            peerdir::change_config(&self.dir, &toml::Table::from_iter(values))?;
        }
        let read_only = config.read_only;
        session.out.result(&SetResult { dir: self.dir.into(), read_only, revoked })?;
        Ok(Exit::Done)
    }
}
