//! What a running peer takes from its directory without a restart: read-only mode, rosters, and revocations.
//!
//! `hold peer set` writes files and knows nothing of the process; the process looks at them every
//! second. That needs no port, no signal and no right beyond the directory's, and what was set while
//! the peer was down counts at its start. What the peer hears from others is written to the same
//! places: `D/revoked/<organisation>`, the newest list of each, and `D/network.rosters`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use crypto::{Revocation, Roster};
use librarian::Librarian;
use tokio_util::sync::CancellationToken;

use crate::client::blocking;
use crate::error::HoldError;
use crate::files::{self, Access};
use crate::leaving::Leaving;
use crate::network_file::{self, NetworkFile, rosters_path};
use crate::out::one_line;
use crate::peerdir::{self, PeerConfig};

/// The folder of revocations in a peer's directory.
const FOLDER: &str = "revoked";
/// Lists that are read: as many as a roster may have organisations.
const LISTS_MAX: usize = crypto::genesis::ORGANISATIONS_MAX;

/// The lists that a peer's directory holds; the librarian checks each.
///
/// # Errors
/// Where one that is there cannot be read: what it revokes would count again without a word.
pub(crate) fn revocations(dir: &Path) -> Result<Vec<Bytes>, HoldError> {
    let folder = dir.join(FOLDER);
    let items = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        items => items.map_err(HoldError::io("read", &folder))?,
    };
    let mut lists = Vec::new();
    for item in items.take(LISTS_MAX) {
        let path = item.map_err(HoldError::io("read", &folder))?.path();
        match files::read_regular(&path) {
            // A temporary file, which has its final name by now.
            Err(HoldError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            list => lists.push(Bytes::copy_from_slice(&list?)),
        }
    }
    Ok(lists)
}

/// A list that a peer's directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Its number.
    pub(crate) number: u64,
    /// Its bytes, as its organisation signed it.
    pub(crate) bytes: Bytes,
}

/// Keeps a list in a peer's directory, unless one of its organisation is there that counts before it; the one that is kept. As
/// everywhere the higher number counts, and of one number the greater bytes. It was accepted before, and so was the other: neither
/// counts less where the clock was set back.
///
/// # Errors
/// Where it does not count in this network, or cannot be written.
pub(crate) fn keep_revocation(
    dir: &Path,
    roster: &Roster,
    bytes: &Bytes,
) -> Result<Kept, HoldError> {
    let now = peerdir::now_s();
    let list = Revocation::verify_kept(bytes, roster, now)?;
    let folder = dir.join(FOLDER);
    files::make_private_folder(&folder)?;
    let path = folder.join(list.organisation.to_string());
    if let Ok(kept) = files::read_regular(&path) {
        let kept = Bytes::copy_from_slice(&kept);
        if let Ok(Revocation { sequence: number, .. }) = Revocation::verify_kept(&kept, roster, now)
            && (number, &kept) >= (list.sequence, bytes)
        {
            return Ok(Kept { number, bytes: kept });
        }
    }
    files::replace(&path, bytes, Access::Public)?;
    Ok(Kept { number: list.sequence, bytes: bytes.clone() })
}

/// As [`keep_revocation`], by an operator who may be another user than the peer runs as: the peer is to read it.
///
/// # Errors
/// As [`keep_revocation`], and where it cannot be given to that user.
pub(crate) fn set_revocation(
    dir: &Path,
    roster: &Roster,
    list: &Revocation,
    bytes: &Bytes,
) -> Result<Kept, HoldError> {
    let kept = keep_revocation(dir, roster, bytes)?;
    let folder = dir.join(FOLDER);
    peerdir::give(dir, &folder)?;
    peerdir::give(dir, &folder.join(list.organisation.to_string()))?;
    Ok(kept)
}

/// When each watched file was written last, and the folder of lists, which may be closed to this process.
fn written(dir: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let folder = dir.join(FOLDER);
    let lists = std::fs::read_dir(&folder).into_iter().flatten();
    let lists = lists.filter_map(|entry| Some(entry.ok()?.path())).take(LISTS_MAX);
    let others = [folder, dir.join("peer.toml"), rosters_path(&dir.join("network"))];
    let paths = lists.chain(others);
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
            match keep_rosters(&dir, librarian.rosters()).await {
                Ok(_) => roster = Some(*newest.hash()),
                Err(error) => {
                    tracing::warn!(error = %one_line(&error), "a newer roster could not be kept")
                }
            }
        }
        let heard = librarian.revocations();
        if heard != kept {
            for list in heard.clone() {
                let (dir, newest) = (dir.clone(), Arc::clone(&newest));
                let keep = move || keep_revocation(&dir, &newest, &list);
                if let Err(error) = blocking(keep).await {
                    tracing::warn!(error = %one_line(&error), "a revocation could not be kept");
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

/// Keeps rosters beside the network's file, on the disk when this returns.
async fn keep_rosters(dir: &Path, rosters: Vec<Bytes>) -> Result<bool, HoldError> {
    let network = dir.join("network");
    blocking(move || network_file::keep(&network, &rosters)).await
}

/// Takes what the files say; whether the peer is to leave, where its settings can be read.
async fn take(librarian: &Librarian, dir: &Path) -> Option<bool> {
    let leaves = match peerdir::read_config(dir) {
        Ok(config) => {
            librarian.set_read_only(config.read_only).await;
            Some(is_to_leave(librarian, &config))
        }
        Err(error) => {
            tracing::warn!(error = %one_line(&error), "the settings are not valid and change nothing");
            None
        }
    };
    match NetworkFile::read(&dir.join("network")) {
        Ok(network) => take_rosters(librarian, &network),
        Err(error) => {
            tracing::warn!(error = %one_line(&error), "the rosters in the peer's directory do not count")
        }
    }
    let lists = revocations(dir).unwrap_or_else(|error| {
        tracing::error!(error = %one_line(&error), "the lists of revoked keys cannot be read, and newer ones do not count");
        Vec::new()
    });
    for list in lists {
        if let Err(error) = librarian.revoke(&list).await {
            tracing::warn!(error = %one_line(&error), "a revocation in the peer's directory does not count");
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
            tracing::warn!(error = %one_line(&error), "a roster in the peer's directory does not count");
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
        let keep =
            |bytes: &Bytes| keep_revocation(dir.path(), &roster, bytes).map(|kept| kept.number);
        // What was accepted before the clock was set back is of the future now.
        let ahead = peerdir::now_s() * 1_000 + 1_000_000_000;
        let newer = list(0, ahead, &[0]);
        assert_eq!(keep(&list(0, 7, &[])).unwrap(), 7);
        assert_eq!(keep(&newer).unwrap(), ahead);
        assert_eq!(keep(&list(0, 8, &[])).unwrap(), ahead);
        assert_eq!(revocations(dir.path()).unwrap(), std::slice::from_ref(&newer));
        // Another organisation's is its own, and what is no list of the network does not count.
        let other = list(1, 8, &[1]);
        assert_eq!(keep(&other).unwrap(), 8);
        let mut forged = list(0, ahead + 1, &[]).to_vec();
        *forged.last_mut().unwrap() ^= 1;
        assert!(keep(&forged.into()).is_err());
        let mut kept = revocations(dir.path()).unwrap();
        kept.sort();
        let mut expected = [newer, other];
        expected.sort();
        assert_eq!(kept, expected);
        // One that cannot be read is not passed over.
        let strange = dir.path().join(FOLDER).join("closed");
        std::fs::create_dir(&strange).unwrap();
        let closed = revocations(dir.path()).unwrap_err();
        assert!(closed.to_string().contains("closed"), "{closed}");
        // Nor is a pipe waited for, into which nobody writes.
        std::fs::remove_dir(&strange).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &strange, pipe, mode, 0).unwrap();
        let closed = revocations(dir.path()).unwrap_err();
        assert!(closed.to_string().contains("closed"), "{closed}");
    }

    #[test]
    fn of_two_lists_with_one_number_the_same_is_kept_whichever_came_first() {
        let community = community(1, 2);
        let roster = Roster::first(&community.genesis);
        let list = |number: usize| {
            let keys = vec![*community.peer(number).key()];
            let of = community.organisation(0).key;
            let list = Revocation { organisation: of, sequence: 7, keys };
            list.sign(&community.organisations[0], &community.genesis.network())
        };
        let (lesser, greater) = (list(0).min(list(1)), list(0).max(list(1)));
        let counts = Kept { number: 7, bytes: greater.clone() };
        for order in [[&lesser, &greater], [&greater, &lesser]] {
            let dir = tempfile::tempdir().unwrap();
            let keep = |bytes| keep_revocation(dir.path(), &roster, bytes).unwrap();
            let [first, second] = order.map(keep);
            assert_eq!((&first.bytes, &second), (order[0], &counts));
            assert_eq!(revocations(dir.path()).unwrap(), std::slice::from_ref(&greater));
        }
    }

    #[test]
    fn a_list_is_for_the_user_that_the_peer_runs_as_whoever_sets_it() {
        use std::os::unix::fs::{MetadataExt, chown};
        let dir = tempfile::tempdir().unwrap();
        let (key, somebody) = (dir.path().join("peer.key"), 54_321);
        std::fs::write(&key, b"").unwrap();
        if chown(&key, Some(somebody), Some(somebody)).is_err() {
            println!("SKIPPED: only root gives a file away");
            return;
        }
        let community = community(1, 1);
        let of = community.organisation(0).key;
        let list = Revocation { organisation: of, sequence: 1, keys: Vec::new() };
        let bytes = list.sign(&community.organisations[0], &community.genesis.network());
        let roster = Roster::first(&community.genesis);
        set_revocation(dir.path(), &roster, &list, &bytes).unwrap();
        let folder = dir.path().join(FOLDER);
        for path in [&folder, &folder.join(of.to_string())] {
            assert_eq!(std::fs::metadata(path).unwrap().uid(), somebody, "{}", path.display());
        }
    }
}
