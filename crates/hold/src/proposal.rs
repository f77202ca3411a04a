//! A file that holds one roster with the signatures gathered so far, as it goes from organisation to organisation.
//!
//! The roster in it never changes; signatures are added. Copies may travel apart and are put together again, because
//! who signed is no part of what is signed.

use std::fmt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use crypto::roster::ROSTER_BYTES_MAX;
use crypto::{FormerKey, Organisation, RecordId, Roster, SignedRoster};
use serde::Serialize;

use crate::error::HoldError;
use crate::files::{self, Access};
use crate::network_file::name_of;
use crate::out::PathText;

const MADE_BY: &str = "hold network add-org --network NET --org ORG -o FILE";

/// Reads the bytes of a proposal.
///
/// # Errors
/// Where the file is missing, or too long for a roster.
pub(crate) fn read_bytes(path: &Path) -> Result<Bytes, HoldError> {
    let missing = || HoldError::Missing { what: "a roster", path: path.to_owned(), hint: MADE_BY };
    match files::read_bounded(path, ROSTER_BYTES_MAX as u64, "a roster") {
        Ok(bytes) => Ok(Bytes::copy_from_slice(&bytes)),
        Err(HoldError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Err(missing())
        }
        Err(error) => Err(error),
    }
}

/// Reads a proposal for the roster after `previous`, with as many signatures as it has.
///
/// # Errors
/// Where it is not one, or a signature in it does not count.
pub(crate) fn read(path: &Path, previous: &Roster) -> Result<SignedRoster, HoldError> {
    let bytes = read_bytes(path)?;
    SignedRoster::decode(&bytes, previous)
        .map_err(|source| HoldError::RosterFile { path: path.to_owned(), source })
}

/// Writes a proposal over what is there.
///
/// # Errors
/// Where it cannot be written.
pub(crate) fn write(path: &Path, proposal: &SignedRoster) -> Result<(), HoldError> {
    files::replace(path, &proposal.encode(), Access::Public)
}

/// Who is meant: by key, and by the name that people use.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Who {
    /// Its public key.
    key: String,
    /// What people call it.
    name: String,
}

impl Who {
    fn of(organisation: &Organisation) -> Self {
        Self { key: organisation.key.to_string(), name: organisation.name.clone() }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.name)
    }
}

/// A key that speaks for an organisation for some time yet.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Kept {
    /// The former key.
    key: String,
    /// Whose word it signed.
    organisation: Who,
    /// Until when that counts, Unix seconds.
    until: u64,
}

/// `hold network add-org`, `hold network remove-org`, `hold network change-key`, `hold network rename-org`,
/// `hold network show` with `--roster`, `hold org sign-roster`: a roster that is to be signed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Proposal {
    /// Its number.
    roster: u64,
    /// Its hash, which names it.
    hash: String,
    /// Organisations that it lists and the one before does not.
    joins: Vec<Who>,
    /// Organisations that the one before lists and it does not.
    leaves: Vec<Who>,
    /// Organisations that have another name in it.
    renamed: Vec<Who>,
    /// Former keys that it lets count.
    former: Vec<Kept>,
    /// Who signed.
    signed: Vec<Who>,
    /// How many must.
    needed: usize,
    /// How many may: the organisations of the roster before.
    of: usize,
    /// Where it is.
    file: PathText,
}

impl Proposal {
    /// What a proposal in a file changes in `previous`, and who signed.
    pub(crate) fn new(proposal: &SignedRoster, previous: &Roster, file: PathBuf) -> Self {
        let next = &proposal.roster;
        let not_in = |other: &Roster| {
            let other = other.clone();
            move |org: &&Organisation| other.organisation(&org.key).is_none()
        };
        let renamed = |org: &&Organisation| {
            previous.organisation(&org.key).is_some_and(|before| before.name != org.name)
        };
        let list = |orgs: &[Organisation], with: &dyn Fn(&&Organisation) -> bool| {
            orgs.iter().filter(|org| with(org)).map(Who::of).collect::<Vec<_>>()
        };
        let counts = |former: &&FormerKey| crate::peerdir::now_s() < former.until;
        let former = next.former().iter().filter(counts).map(|former| Kept {
            key: former.former.to_string(),
            organisation: Who {
                key: former.organisation.to_string(),
                name: name_of(next, &former.organisation),
            },
            until: former.until,
        });
        let signed = proposal.signers().filter_map(|key| previous.organisation(key)).map(Who::of);
        Self {
            roster: next.number(),
            hash: RecordId::new(*next.hash()).to_string(),
            joins: list(next.organisations(), &not_in(previous)),
            leaves: list(previous.organisations(), &not_in(next)),
            renamed: list(next.organisations(), &renamed),
            former: former.collect(),
            signed: signed.collect(),
            needed: previous.needed(),
            of: previous.organisations().len(),
            file: file.into(),
        }
    }

    /// What is to be done next.
    pub(crate) fn hint(&self) -> String {
        let file = &self.file;
        let lacking = self.needed.saturating_sub(self.signed.len());
        if lacking == 0 {
            return format!("hint: hold network apply --network NET --roster {file}");
        }
        format!(
            "hint: {lacking} more of the {} organisations must sign it, each where its key is: \
             hold org sign-roster --dir ORG --network NET --roster {file}",
            self.of
        )
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "roster   {} {}", self.roster, self.hash)?;
        let lists = [("joins", &self.joins), ("leaves", &self.leaves), ("renamed", &self.renamed)];
        for (what, list) in lists {
            for who in list {
                write!(f, "\n{what:8} {who}")?;
            }
        }
        for Kept { key, organisation, until } in &self.former {
            write!(f, "\nformer   {key} of {} until {until} (Unix seconds)", organisation.name)?;
        }
        for who in &self.signed {
            write!(f, "\nsigned   {who}")?;
        }
        write!(f, "\n{} of {} signed, {} needed", self.signed.len(), self.of, self.needed)
    }
}
