//! A network's file, and the rosters that are kept beside it.
//!
//! ```text
//! NET            the genesis: never changes, its hash is the network's id
//! NET.rosters    the signed rosters from number 1 on, each after its length as four bytes, big-endian
//! ```
//! The second is a file of its own because it changes: by `hold network apply`, and by whoever learns a newer roster from
//! the network (peers, clients). Everybody reads both, so that what an organisation signed is checked against who takes
//! part now. A file of rosters that is lost is learnt again; one that is damaged is an error, since without it somebody who
//! left would count again.
//!
//! Invariant: every roster in memory was verified against the one before it. A file is only ever replaced whole, by
//! what it held and what is newer; so of two processes that write at once the network teaches the slower one again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use crypto::roster::{ROSTER_BYTES_MAX, ROSTERS_MAX};
use crypto::{Genesis, OrgId, PeerId, Roster, Rosters, Taught};
use env::Env;
use walk::Directory;

use crate::error::HoldError;
use crate::files::{self, Access};

/// What stands behind the network file's name.
const SUFFIX: &str = ".rosters";
/// Bytes before each roster: its length.
const LENGTH_BYTES: usize = 4;
/// A file of rosters is at most this long, in bytes: 1,024 of the longest.
const FILE_BYTES_MAX: u64 = ROSTERS_MAX * (ROSTER_BYTES_MAX + LENGTH_BYTES) as u64;

/// A network and who takes part in it, as a file tells.
#[derive(Clone, Debug)]
pub(crate) struct NetworkFile {
    path: PathBuf,
    rosters: Rosters,
}

/// Where the rosters of a network file are.
pub(crate) fn rosters_path(network: &Path) -> PathBuf {
    let mut name = network.file_name().unwrap_or_default().to_owned();
    name.push(SUFFIX);
    network.with_file_name(name)
}

/// Reads a genesis file.
///
/// # Errors
/// Where it is missing or not one.
pub(crate) fn read_genesis(path: &Path) -> Result<Genesis, HoldError> {
    let bytes = files::read_needed(
        path,
        "the network file",
        "hold network init --org ORG,... -o NET, or get the file from whoever made the network, or name \
         it: HOLD_NETWORK=NET",
    )?;
    Genesis::decode(&bytes).map_err(|source| HoldError::GenesisFile { path: path.into(), source })
}

/// Keeps rosters beside a network file where they are newer than what is there. Whether they were.
///
/// # Errors
/// Where the files cannot be read or written.
pub(crate) fn keep(network: &Path, rosters: &[Bytes]) -> Result<bool, HoldError> {
    let mut there = NetworkFile::read(network)?;
    let before = *there.roster().hash();
    for roster in rosters {
        there.learn(roster)?;
    }
    let newer = *there.roster().hash() != before;
    if newer {
        files::replace(&rosters_path(network), &there.encoded(), Access::Public)?;
    }
    Ok(newer)
}

impl NetworkFile {
    /// A network that begins with this genesis, whose file will be here.
    pub(crate) fn new(path: &Path, genesis: Genesis) -> Self {
        Self { path: path.to_owned(), rosters: Rosters::new(Arc::new(genesis)) }
    }

    /// Reads a network file and the rosters beside it.
    ///
    /// # Errors
    /// Where it is missing or not one, or the rosters beside it do not count.
    pub(crate) fn read(path: &Path) -> Result<Self, HoldError> {
        let mut this = Self::new(path, read_genesis(path)?);
        let beside = rosters_path(path);
        let bytes = match files::read_bounded(&beside, FILE_BYTES_MAX, "a file of rosters") {
            Ok(bytes) => bytes,
            Err(HoldError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(this);
            }
            Err(error) => return Err(error),
        };
        let damaged = || HoldError::NotA { what: "a file of rosters", path: beside.clone() };
        let mut rest = Bytes::copy_from_slice(&bytes);
        while !rest.is_empty() {
            let length = rest.first_chunk::<LENGTH_BYTES>().ok_or_else(damaged)?;
            let length = u32::from_be_bytes(*length) as usize;
            if rest.len() < LENGTH_BYTES + length {
                return Err(damaged());
            }
            let _ = rest.split_to(LENGTH_BYTES);
            let roster = rest.split_to(length);
            let learnt = this.rosters.learn(&roster);
            let learnt =
                learnt.map_err(|source| HoldError::RosterFile { path: beside.clone(), source })?;
            if learnt != Taught::Newer {
                return Err(damaged());
            }
        }
        Ok(this)
    }

    /// The genesis.
    pub(crate) fn genesis(&self) -> &Arc<Genesis> {
        self.rosters.genesis()
    }

    /// The newest roster.
    pub(crate) fn roster(&self) -> &Arc<Roster> {
        self.rosters.current()
    }

    /// The signed rosters from number 1 on.
    pub(crate) fn rosters(&self) -> Vec<Bytes> {
        self.rosters.all().cloned().collect()
    }

    /// The signed roster of this number, if it is known and not the genesis's.
    pub(crate) fn signed(&self, number: u64) -> Option<Bytes> {
        let found = (number > 0).then(|| self.rosters.from(number, 1, ROSTER_BYTES_MAX))?;
        found.into_iter().next()
    }

    /// Takes a signed roster; it is not kept yet ([`keep`]).
    ///
    /// # Errors
    /// Where it does not count.
    pub(crate) fn learn(&mut self, roster: &Bytes) -> Result<Taught, HoldError> {
        Ok(self.rosters.learn(roster)?)
    }

    /// Writes both files to another place, over what is there.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub(crate) fn copy_to(&self, path: &Path) -> Result<(), HoldError> {
        files::replace(path, &self.genesis().encode(), Access::Public)?;
        if self.roster().number() == 0 {
            return Ok(());
        }
        files::replace(&rosters_path(path), &self.encoded(), Access::Public)
    }

    /// An empty directory of peers that knows these rosters.
    pub(crate) fn directory(&self, env: &Env, own: Option<PeerId>) -> Arc<Directory> {
        let directory = Directory::new(self.genesis().clone(), env.clone(), own);
        directory.learn_rosters(&self.rosters());
        directory
    }

    /// Where it was read.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn encoded(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for roster in self.rosters.all() {
            // At most 224 KiB each.
            let length = u32::try_from(roster.len()).unwrap_or(u32::MAX);
            file.extend(length.to_be_bytes());
            file.extend(roster);
        }
        file
    }
}

/// Checks that a roster lists an organisation's key now.
///
/// # Errors
/// [`crypto::CertificateError::Organisation`] where it does not.
pub(crate) fn check_listed(roster: &Roster, org: OrgId) -> Result<(), HoldError> {
    match roster.organisation(&org) {
        Some(_) => Ok(()),
        None => Err(crypto::CertificateError::Organisation(org).into()),
    }
}

/// What people call a listed organisation; nothing where it is not listed.
pub(crate) fn name_of(roster: &Roster, org: &OrgId) -> String {
    roster.organisation(org).map(|known| known.name.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
