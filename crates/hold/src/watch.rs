//! What a running peer takes from its directory without a restart: read-only mode, rosters, and revocations.
//!
//! `hold peer set` writes files and knows nothing of the process; the process looks at them every
//! second. That needs no port, no signal and no right beyond the directory's, and what was set while
//! the peer was down counts at its start. What the peer hears from others is written to the same
//! places: `D/revoked/<organisation>`, the newest list of each, and `D/network.rosters`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use crypto::{Revocation, Roster};
use librarian::Librarian;
use tokio_util::sync::CancellationToken;

use crate::error::HoldError;
use crate::files::{self, Access};
use crate::leaving::Leaving;
use crate::network_file::{self, NetworkFile, rosters_path};
use crate::peerdir::{self, PeerConfig};

/// The folder of revocations in a peer's directory.
const FOLDER: &str = "revoked";
/// Lists that are read: as many as a roster may have organisations.
const LISTS_MAX: usize = crypto::genesis::ORGANISATIONS_MAX;

/// The lists that a peer's directory holds; the librarian checks each.
pub(crate) fn revocations(dir: &Path) -> Vec<Bytes> {
    let Ok(folder) = std::fs::read_dir(dir.join(FOLDER)) else { return Vec::new() };
    let paths = folder.filter_map(|entry| Some(entry.ok()?.path())).take(LISTS_MAX);
    let lists = paths.filter_map(|path| files::read_small(&path).ok());
    lists.map(|bytes| Bytes::copy_from_slice(&bytes)).collect()
}

/// Keeps a list in a peer's directory, unless a newer one of its organisation is there; the number of the one that is kept.
/// It was accepted before, and so was the other: neither counts less where the clock was set back.
///
/// # Errors
/// Where it does not count in this network, or cannot be written.
pub(crate) fn keep_revocation(
    dir: &Path,
    roster: &Roster,
    bytes: &Bytes,
) -> Result<u64, HoldError> {
    let now = peerdir::now_s();
    let list = Revocation::verify_kept(bytes, roster, now)?;
    let folder = dir.join(FOLDER);
    files::make_private_folder(&folder)?;
    let path = folder.join(list.organisation.to_string());
    if let Ok(kept) = files::read_small(&path)
        && let Ok(kept) = Revocation::verify_kept(&Bytes::copy_from_slice(&kept), roster, now)
        && kept.sequence >= list.sequence
    {
        return Ok(kept.sequence);
    }
    files::replace(&path, bytes, Access::Public)?;
    Ok(list.sequence)
}

/// When each watched file was written last.
fn written(dir: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let lists = std::fs::read_dir(dir.join(FOLDER)).into_iter().flatten();
    let lists = lists.filter_map(|entry| Some(entry.ok()?.path())).take(LISTS_MAX);
    let paths = lists.chain([dir.join("peer.toml"), rosters_path(&dir.join("network"))]);
    let at = |path: PathBuf| {
        let at = std::fs::metadata(&path).and_then(|file| file.modified()).ok()?;
        Some((path, at))
    };
    paths.filter_map(at).collect()
}

/// Takes what changes in the directory, and keeps what the peer hears, until `stop`.
pub(crate) async fn watch_all(
    librarian: Arc<Librarian>,
    dir: PathBuf,
    leaving: Arc<Leaving>,
    stop: CancellationToken,
) {
    let mut seen = BTreeMap::new();
    let mut kept = librarian.revocations();
    let mut roster = None;
    let mut leaves = false;
    loop {
        let now = written(&dir);
        if now != seen {
            leaves = take(&librarian, &dir).await.unwrap_or(leaves);
            seen = now;
        }
        if leaves {
            leaving.go_on(&librarian, &dir).await;
        }
        let newest = librarian.directory().roster();
        if roster.as_ref() != Some(newest.hash()) {
            // Before the lists, which are checked against it.
            match network_file::keep(&dir.join("network"), &librarian.rosters()) {
                Ok(_) => roster = Some(*newest.hash()),
                Err(error) => tracing::warn!(%error, "a newer roster could not be kept"),
            }
        }
        let heard = librarian.revocations();
        if heard != kept {
            for list in &heard {
                if let Err(error) = keep_revocation(&dir, &newest, list) {
                    tracing::warn!(%error, "a revocation could not be kept");
                }
            }
            kept = heard;
        }
        tokio::select! {
            () = env::beat(env::BEAT) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Takes what the files say; whether the peer is to leave, where its settings can be read.
async fn take(librarian: &Librarian, dir: &Path) -> Option<bool> {
    let leaves = match peerdir::read_config(dir) {
        Ok(config) => {
            librarian.set_read_only(config.read_only).await;
            Some(is_to_leave(librarian, &config))
        }
        Err(error) => {
            tracing::warn!(%error, "the settings are not valid and change nothing");
            None
        }
    };
    match NetworkFile::read(&dir.join("network")) {
        Ok(network) => take_rosters(librarian, &network),
        Err(error) => tracing::warn!(%error, "the rosters in the peer's directory do not count"),
    }
    for list in revocations(dir) {
        if let Err(error) = librarian.revoke(&list).await {
            tracing::warn!(%error, "a revocation in the peer's directory does not count");
        }
    }
    leaves
}

fn is_to_leave(librarian: &Librarian, config: &PeerConfig) -> bool {
    match librarian.repair() {
        None if config.leaving => {
            tracing::warn!(
                "a peer that is set to mend nothing cannot hand over what it holds: it stays"
            );
            false
        }
        Some(status) if status.leaving && !config.leaving => {
            tracing::warn!(
                "a leave that began goes on whatever leaving says: restart the peer to take it back"
            );
            true
        }
        _ => config.leaving,
    }
}

fn take_rosters(librarian: &Librarian, network: &NetworkFile) {
    for roster in network.rosters() {
        if let Err(error) = librarian.learn_roster(&roster) {
            tracing::warn!(%error, "a roster in the peer's directory does not count");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use testkit::network::community;

    use super::*;

    #[test]
    fn an_older_list_does_not_replace_a_kept_one_even_of_the_future() {
        let dir = tempfile::tempdir().unwrap();
        let community = community(2, 2);
        let roster = Roster::first(&community.genesis);
        let list = |organisation: usize, sequence, numbers: &[usize]| {
            let keys = numbers.iter().map(|number| *community.peer(*number).key()).collect();
            let of = community.organisation(organisation).key;
            let list = Revocation { organisation: of, sequence, keys };
            list.sign(&community.organisations[organisation], &community.genesis.network())
        };
        let keep = |bytes: &Bytes| keep_revocation(dir.path(), &roster, bytes);
        // What was accepted before the clock was set back is of the future now.
        let ahead = peerdir::now_s() * 1_000 + 1_000_000_000;
        let newer = list(0, ahead, &[0]);
        assert_eq!(keep(&list(0, 7, &[])).unwrap(), 7);
        assert_eq!(keep(&newer).unwrap(), ahead);
        assert_eq!(keep(&list(0, 8, &[])).unwrap(), ahead);
        assert_eq!(revocations(dir.path()), std::slice::from_ref(&newer));
        // Another organisation's is its own, and what is no list of the network does not count.
        let other = list(1, 8, &[1]);
        assert_eq!(keep(&other).unwrap(), 8);
        let mut forged = list(0, ahead + 1, &[]).to_vec();
        *forged.last_mut().unwrap() ^= 1;
        assert!(keep(&forged.into()).is_err());
        let mut kept = revocations(dir.path());
        kept.sort();
        let mut expected = [newer, other];
        expected.sort();
        assert_eq!(kept, expected);
    }
}
