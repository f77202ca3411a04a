//! `hold org sign-roster`: an organisation agrees to the next roster, where its key is.
//!
//! Two rosters of one number can only both count where an organisation signed both. So what was signed is remembered
//! beside the key, before the signature exists, and a second one of the same number is refused unless it is meant.
//!
//! ```text
//! ORG/signed-rosters-<network>    a line each: number, space, hash in hex
//! ORG/signed.lock                 held by who reads that and signs
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use crypto::{NetworkId, RecordId};

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::network_file::NetworkFile;
use crate::organisation::OwnOrganisation;
use crate::proposal::{self, Proposal};

/// `hold org sign-roster`.
#[derive(Debug, Args)]
pub(crate) struct SignRoster {
    /// The organisation's directory
    #[arg(long, value_name = "ORG")]
    dir: PathBuf,
    /// The network file
    #[arg(long, value_name = "NET")]
    network: PathBuf,
    /// The proposal of `hold network add-org` and its like; the signature is added to it
    #[arg(long, value_name = "FILE")]
    roster: PathBuf,
    /// Sign it although another roster of this number was signed: that one is not to count
    #[arg(long)]
    instead: bool,
}

/// What an organisation signed, by number.
struct Signed {
    path: PathBuf,
    by_number: BTreeMap<u64, RecordId>,
}

impl Signed {
    fn read(dir: &Path, network: &NetworkId) -> Result<Self, HoldError> {
        let path = dir.join(format!("signed-rosters-{network}"));
        let text = match files::read_small(&path) {
            Ok(text) => text,
            Err(HoldError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { path, by_number: BTreeMap::new() });
            }
            Err(error) => return Err(error),
        };
        let line = |line: &str| {
            let (number, hash) = line.split_once(' ')?;
            Some((number.parse().ok()?, hash.parse().ok()?))
        };
        let text = String::from_utf8_lossy(&text);
        let by_number: Option<BTreeMap<u64, RecordId>> = text.lines().map(line).collect();
        let not_a = HoldError::NotA { what: "a list of signed rosters", path: path.clone() };
        Ok(Self { path, by_number: by_number.ok_or(not_a)? })
    }

    fn remember(&mut self, number: u64, hash: RecordId) -> Result<(), HoldError> {
        self.by_number.insert(number, hash);
        let mut text = String::new();
        for (number, hash) in &self.by_number {
            let _ = writeln!(text, "{number} {hash}");
        }
        files::replace(&self.path, text.as_bytes(), Access::Public)
    }
}

impl SignRoster {
    /// Adds the signature to the file.
    pub(super) fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let org = OwnOrganisation::open(&self.dir)?;
        let network = NetworkFile::read(&self.network)?;
        let previous = network.roster();
        let mut proposal = proposal::read(&self.roster, previous)?;
        let (number, hash) = (proposal.roster.number(), RecordId::new(*proposal.roster.hash()));
        // Of two that sign at once the second sees what the first remembered.
        let _alone = files::lock(&self.dir.join("signed.lock"))?;
        let mut signed = Signed::read(&self.dir, &previous.network())?;
        let other = signed.by_number.get(&number).filter(|other| **other != hash);
        if let (Some(other), false) = (other, self.instead) {
            return Err(HoldError::SignedOther { number, other: *other });
        }
        crate::network_file::check_listed(previous, org.public.key)?;
        signed.remember(number, hash)?;
        proposal.sign(&org.key, previous)?;
        proposal::write(&self.roster, &proposal)?;
        let shown = Proposal::new(&proposal, previous, self.roster);
        session.out.note(shown.hint());
        session.out.result(&shown)?;
        Ok(Exit::Done)
    }
}
