//! `hold network apply`: bring a network file, peers' directories and librarians to the newest roster.
//!
//! ```text
//! librarians tell what NET lacks -> the files given are put on top -> NET.rosters -> peers' directories -> librarians
//! ```
//! Every step may be repeated, and a later step that fails undoes none before it: rosters prove themselves, so whoever
//! has one may hand it to anybody, in any order.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use crypto::{RecordId, RosterError, SignedRoster, Taught};
use env::calls::{CallError, Endpoint, IntroduceRequest};
use serde::Serialize;
use walk::Walker;

use crate::cli::Session;
use crate::connect;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::network_file::{self, NetworkFile};
use crate::out::{PathText, one_line};
use crate::{peerdir, proposal};

/// How long one librarian may take to answer.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// How often a busy librarian is asked again, each after the time it names.
const TRIES_MAX: usize = 8;
/// The longest such time that is waited for.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// `hold network apply`.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// The network file
    #[arg(long, value_name = "NET")]
    network: PathBuf,
    /// Signed copies of the next roster; without any, NET and the librarians are brought to the newest
    #[arg(long, value_name = "FILE,...", value_delimiter = ',')]
    roster: Vec<PathBuf>,
    /// Directories of peers of this machine; one that runs takes it within seconds
    #[arg(long, value_name = "D,...", value_delimiter = ',')]
    peer: Vec<PathBuf>,
}

/// Who was handed the newest roster.
#[derive(Serialize)]
struct Told {
    /// A librarian's address, or a peer's directory.
    to: String,
    /// Whether it has it now.
    taken: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// `hold network apply`: the newest roster, and who has it.
#[derive(Serialize)]
struct Applied {
    /// Its number.
    roster: u64,
    /// Its hash, or the network's id where it is the genesis's.
    hash: String,
    /// How many organisations it lists.
    organisations: usize,
    /// The network file, beside which it is kept.
    file: PathText,
    /// Who was handed it.
    told: Vec<Told>,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { roster, organisations, .. } = self;
        write!(f, "roster {roster}, {organisations} organisations")?;
        for Told { to, why, .. } in &self.told {
            match why {
                None => write!(f, "\nknown at {to}")?,
                Some(why) => write!(f, "\nNOT known at {to}: {why}")?,
            }
        }
        Ok(())
    }
}

impl Told {
    fn new(to: String, outcome: Result<(), HoldError>) -> Self {
        let why = outcome.err().map(|error| one_line(&error));
        Self { to, taken: why.is_none(), why }
    }
}

impl Apply {
    /// Done where all that were to be told have it, partly where some do not.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let mut network = NetworkFile::read(&self.network)?;
        let via = via(session)?;
        let walker = connect::stranger(&network)?;
        for address in via {
            // Who does not answer is told below.
            let _ = walker.introduce(&Endpoint::at(address)).await;
        }
        for roster in walker.directory().rosters() {
            network.learn(&roster)?;
        }
        take(&mut network, &self.roster)?;
        network_file::keep(&self.network, &network.rosters())?;
        let mut told = Vec::new();
        for dir in &self.peer {
            let kept = keep_at(dir, &network);
            told.push(Told::new(dir.display().to_string(), kept));
        }
        for address in via {
            let handed = hand_over(&walker, address, &network).await;
            told.push(Told::new(address.clone(), handed));
        }
        if told.is_empty() {
            session.out.note(
                "hint: nobody else knows it yet: --via HOST:PORT hands it to a librarian, which \
                 tells all others",
            );
        }
        let all = told.iter().all(|told| told.taken);
        let roster = network.roster();
        session.out.result(&Applied {
            roster: roster.number(),
            hash: RecordId::new(*roster.hash()).to_string(),
            organisations: roster.organisations().len(),
            file: network.path().into(),
            told,
        })?;
        Ok(if all { Exit::Done } else { Exit::Partly })
    }
}

/// The librarians to hand it to: none where this user has no home that could name them.
///
/// # Errors
/// Where the home's settings are not valid.
fn via(session: &Session) -> Result<&[String], HoldError> {
    match session.settings.via() {
        Err(error) if !matches!(error, HoldError::Setting { .. }) => {
            let why = one_line(&error);
            session.out.warn(format_args!("the home names no librarians: {why}"));
            Ok(&[])
        }
        via => via,
    }
}

/// Puts rosters from files on top of those that are known. Copies of one roster are put together.
fn take(network: &mut NetworkFile, files: &[PathBuf]) -> Result<(), HoldError> {
    let mut partly: Option<SignedRoster> = None;
    for path in files {
        let bytes = proposal::read_bytes(path)?;
        let wrong = |source| HoldError::RosterFile { path: path.clone(), source };
        match network.learn(&bytes) {
            Ok(Taught::Newer | Taught::Known) => {}
            Ok(Taught::Behind) => {
                let expected = network.roster().number() + 1;
                // Its own number is not known to be one, so it is not told.
                return Err(wrong(RosterError::Link(expected)));
            }
            Err(HoldError::Roster(RosterError::NotEnough { .. })) => {
                let copy = proposal::read(path, network.roster())?;
                let first = partly.get_or_insert_with(|| copy.clone());
                if !first.merge(&copy) {
                    let why = "the files hold different rosters: which of them is meant?";
                    return Err(HoldError::argument("--roster", why));
                }
            }
            Err(HoldError::Roster(source)) => return Err(wrong(source)),
            Err(error) => return Err(error),
        }
    }
    match partly {
        // With all signatures of all copies it counts, or says how many it lacks.
        Some(together) if together.roster.hash() != network.roster().hash() => {
            network.learn(&together.encode()).map(drop)
        }
        _ => Ok(()),
    }
}

fn keep_at(dir: &Path, network: &NetworkFile) -> Result<(), HoldError> {
    let path = dir.join("network");
    let found = network_file::read_genesis(&path)?.network();
    if found != network.genesis().network() {
        return Err(crypto::CertificateError::Network(found).into());
    }
    network_file::keep(&path, &network.rosters())?;
    let kept = network_file::rosters_path(&path);
    if kept.exists() { peerdir::give(dir, &kept) } else { Ok(()) }
}

/// Offers a librarian the rosters it lacks, in their order.
async fn hand_over(walker: &Walker, address: &str, network: &NetworkFile) -> Result<(), HoldError> {
    let failed = |source| HoldError::Call { address: address.to_owned(), source };
    let newest = network.roster();
    let to = Endpoint::at(address);
    let asked = introduce(walker, &to, IntroduceRequest::default()).await.map_err(failed)?;
    // From its newest one on, which it may know in another form.
    for number in asked.min(newest.number()).max(1)..=newest.number() {
        let Some(offer) = network.signed(number) else { continue };
        let request = IntroduceRequest { offer: Some(offer), ..IntroduceRequest::default() };
        introduce(walker, &to, request).await.map_err(failed)?;
    }
    Ok(())
}

/// Introduces and waits where the librarian is busy; the number of its newest roster.
async fn introduce(
    walker: &Walker,
    to: &Endpoint,
    request: IntroduceRequest,
) -> Result<u64, CallError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match walker.calls().introduce(to, request.clone(), CALL_LIMIT).await {
            Err(CallError::Busy { retry_after }) if tries < TRIES_MAX => {
                tokio::time::sleep(retry_after.min(WAIT_MAX)).await;
            }
            answer => return answer.map(|answer| answer.roster),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::{MetadataExt, chown};

    use crypto::{Change, Organisation};
    use testkit::network::community;

    use super::*;

    #[test]
    fn rosters_are_for_the_user_that_the_peer_runs_as_whoever_applies_them() {
        let folder = tempfile::tempdir().unwrap();
        let (peer, somebody) = (folder.path().join("peer"), 54_321);
        std::fs::create_dir(&peer).unwrap();
        let key = peer.join("peer.key");
        std::fs::write(&key, b"").unwrap();
        if chown(&key, Some(somebody), Some(somebody)).is_err() {
            println!("SKIPPED: only root gives a file away");
            return;
        }
        let community = community(3, 1);
        let genesis = (*community.genesis).clone();
        let mut network = NetworkFile::new(&folder.path().join("NET"), genesis);
        network.copy_to(&peer.join("network")).unwrap();
        let kept = network_file::rosters_path(&peer.join("network"));
        // Where there is nothing newer, nothing is made.
        keep_at(&peer, &network).unwrap();
        assert!(!kept.exists());
        let name = "renamed".to_owned();
        let change = Change::Name(Organisation { name, ..community.organisation(2) });
        let roster = community.roster(network.roster(), &change, &[0, 1]);
        assert_eq!(network.learn(&roster).unwrap(), Taught::Newer);
        keep_at(&peer, &network).unwrap();
        assert_eq!(std::fs::metadata(&kept).unwrap().uid(), somebody);
    }
}
