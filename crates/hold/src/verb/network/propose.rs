//! `hold network add-org`, `remove-org`, `change-key`, `rename-org`: propose the next roster.
//!
//! A proposal is a file that nobody signed. It changes nothing until more than half of the organisations signed it
//! (`hold org sign-roster`) and it was applied (`hold network apply`).

use std::path::PathBuf;

use clap::Args;
use crypto::{Change, OrgId, Organisation, Roster, SignedRoster};

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::network_file::{NetworkFile, check_listed};
use crate::proposal::Proposal;
use crate::{organisation, peerdir};

/// How long a former key counts where nothing is said, in days: its peers get new certificates in that time.
const FORMER_DAYS: u64 = 30;

/// What every proposal is made of.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The network file
    #[arg(long, value_name = "NET")]
    network: PathBuf,
    /// Where the proposal goes: a new file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// `hold network add-org`.
#[derive(Debug, Args)]
pub(crate) struct AddOrg {
    #[command(flatten)]
    place: Place,
    /// Who joins: an org.pub file, a directory of `hold org init`, or KEY=NAME
    #[arg(long, value_name = "ORG")]
    org: String,
}

/// `hold network remove-org`.
#[derive(Debug, Args)]
pub(crate) struct RemoveOrg {
    #[command(flatten)]
    place: Place,
    /// Who leaves: its name, its key, an org.pub file or a directory
    #[arg(long, value_name = "ORG")]
    org: String,
}

/// `hold network change-key`.
#[derive(Debug, Args)]
pub(crate) struct ChangeKey {
    #[command(flatten)]
    place: Place,
    /// Whose key changes: its name, its key, an org.pub file or a directory
    #[arg(long, value_name = "ORG")]
    org: String,
    /// The new key: an org.pub file, a directory of `hold org init`, or KEY
    #[arg(long, value_name = "ORG")]
    to: String,
    /// How long what the former key signed still counts
    #[arg(long, value_name = "DAYS", default_value_t = FORMER_DAYS, value_parser = clap::value_parser!(u64).range(1..=3650))]
    days: u64,
    /// The former key was stolen: what it signed counts no more, from now on
    #[arg(long, conflicts_with = "days")]
    stolen: bool,
}

/// `hold network rename-org`.
#[derive(Debug, Args)]
pub(crate) struct RenameOrg {
    #[command(flatten)]
    place: Place,
    /// Who: its name, its key, an org.pub file or a directory
    #[arg(long, value_name = "ORG")]
    org: String,
    /// What people call it from now on
    #[arg(long, value_name = "NAME")]
    name: String,
}

/// The organisation of a roster that an argument names.
fn listed(roster: &Roster, argument: &str) -> Result<OrgId, HoldError> {
    let mut named = roster.organisations().iter().filter(|org| org.name == argument);
    let key = match (named.next(), named.next()) {
        (Some(org), None) => org.key,
        (Some(_), Some(_)) => {
            let why = format!("more than one organisation is called {argument:?}: give its key");
            return Err(HoldError::argument("--org", why));
        }
        (None, _) => organisation::named(argument)?.key,
    };
    check_listed(roster, key)?;
    Ok(key)
}

impl Place {
    fn propose(
        self,
        session: &Session,
        change: impl FnOnce(&Roster) -> Result<Change, HoldError>,
    ) -> Result<Exit, HoldError> {
        let network = NetworkFile::read(&self.network)?;
        let roster = network.roster();
        let next = roster.changed(&change(roster)?, peerdir::now_s())?;
        let listed = || HoldError::argument("--org", "the network lists this key already");
        let proposal = SignedRoster::proposal(next.ok_or_else(listed)?);
        files::write_new(&self.output, &proposal.encode(), Access::Public)?;
        let shown = Proposal::new(&proposal, roster, self.output);
        session.out.note(shown.hint());
        session.out.result(&shown)?;
        Ok(Exit::Done)
    }
}

impl AddOrg {
    pub(super) fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let joins = organisation::named(&self.org)?;
        self.place.propose(session, |_| Ok(Change::Add(joins)))
    }
}

impl RemoveOrg {
    pub(super) fn run(self, session: &Session) -> Result<Exit, HoldError> {
        self.place.propose(session, |roster| Ok(Change::Remove(listed(roster, &self.org)?)))
    }
}

impl ChangeKey {
    pub(super) fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let to = organisation::named(&self.to)?.key;
        let until = peerdir::now_s().saturating_add(self.days.saturating_mul(peerdir::DAY_S));
        let until = (!self.stolen).then_some(until);
        self.place.propose(session, |roster| {
            Ok(Change::Key { from: listed(roster, &self.org)?, to, until })
        })
    }
}

impl RenameOrg {
    pub(super) fn run(self, session: &Session) -> Result<Exit, HoldError> {
        self.place.propose(session, |roster| {
            let key = listed(roster, &self.org)?;
            Ok(Change::Name(Organisation { key, name: self.name }))
        })
    }
}
