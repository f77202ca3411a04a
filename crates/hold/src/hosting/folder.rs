//! A member's folder in a peer's directory: its files, and what each holds ([`super`] lists them).
//!
//! Whoever founds or joins may be root, and the peer another user: what is made here is given to that one, who runs the member.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use committee::engine::{Charter, Links, MemberSecret};
use committee::{Card, CommitteeError, Member};

use super::NAME;
use crate::error::HoldError;
use crate::files::{self, Access};
use crate::peerdir;

/// Cards that are kept: of two epochs.
pub(super) const CARDS_MAX: usize = 2 * committee::engine::MEMBERS_MAX;

/// How often, and how far apart, a lock is tried that the librarian may have for a moment.
const LOOKS: u32 = 50;
const LOOK: Duration = Duration::from_millis(100);

const FOLDER: &str = "committee";
const WHAT: &str = "a committee member's folder";
const LINKS: &str = "links";
const KEY: &str = "member.key";
const CHARTER: &str = "charter";

/// By what a change of the files is seen: when each was written, how long it is, and which file it is.
pub(super) type Stamp = [Option<(SystemTime, u64, u64)>; 3];

/// When the files of a peer's member were written that are read whole: where it is, its key, the charter.
pub(super) fn stamp(peer: &Path) -> Stamp {
    [LINKS, KEY, CHARTER].map(|name| {
        let told = std::fs::metadata(peer.join(FOLDER).join(name)).ok()?;
        Some((told.modified().ok()?, told.len(), told.ino()))
    })
}

/// A member's folder in a peer's directory.
#[derive(Clone)]
pub(crate) struct MemberDir {
    path: PathBuf,
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// Where the other members reach it.
    pub(crate) address: SocketAddr,
    /// Its key.
    pub(crate) secret: MemberSecret,
}

impl MemberDir {
    /// Opens the member's folder in a peer's directory; `None` where there is none.
    ///
    /// # Errors
    /// Where something in it is missing or damaged, or this user may not look into it.
    pub(crate) fn open(peer: &Path) -> Result<Option<Self>, HoldError> {
        let path = peer.join(FOLDER);
        let links = path.join(LINKS);
        if !links.try_exists().map_err(HoldError::io("read", &links))? {
            return Ok(None);
        }
        let not = || HoldError::NotA { what: WHAT, path: path.clone() };
        let text = files::read_small(&links)?;
        let text = std::str::from_utf8(&text).map_err(|_| not())?;
        let mut words = text.split_whitespace().map(str::parse::<SocketAddr>);
        let (Some(Ok(listen)), Some(Ok(address))) = (words.next(), words.next()) else {
            return Err(not());
        };
        let hint = "hold committee init --dir D";
        let bytes = files::read_key(&path.join(KEY), "a member's private key", hint)?;
        let secret = MemberSecret::new(&bytes)?;
        Ok(Some(Self { path, listen, address, secret }))
    }

    /// Makes the folder, with a fresh key where there is none, and says where the member is.
    ///
    /// # Errors
    /// Where it cannot be written, or given to the peer's user.
    pub(crate) fn make(
        peer: &Path,
        listen: SocketAddr,
        address: SocketAddr,
    ) -> Result<Self, HoldError> {
        let path = peer.join(FOLDER);
        files::make_private_folder(&path)?;
        let key = path.join(KEY);
        if !key.exists() {
            let mut bytes = zeroize::Zeroizing::new([0; 32]);
            env::Entropy::fill(&env::SystemEntropy, &mut *bytes);
            files::write_key(&key, &bytes)?;
        }
        // Before the links, by which the librarian sees that there is one.
        peerdir::give_all(peer, &path)?;
        let links = format!("{listen}\n{address}\n");
        let to = path.join(LINKS);
        files::replace(&to, links.as_bytes(), Access::Public)?;
        peerdir::give_all(peer, &to)?;
        let not = || HoldError::NotA { what: WHAT, path: path.clone() };
        Self::open(peer)?.ok_or_else(not)
    }

    /// Where the member keeps its own files.
    pub(crate) fn engine(&self) -> PathBuf {
        self.path.join("engine")
    }

    /// The charter, once there is a committee.
    ///
    /// # Errors
    /// Where it is damaged.
    pub(crate) fn charter(&self) -> Result<Option<Charter>, HoldError> {
        let path = self.path.join(CHARTER);
        match path.try_exists().map_err(HoldError::io("read", &path))? {
            true => Ok(Some(Charter::decode(&files::read_small(&path)?)?)),
            false => Ok(None),
        }
    }

    /// Gives the folder and what is in it to the user that runs the peer, where root made some of it.
    ///
    /// # Errors
    /// Where the system does not let this user.
    pub(crate) fn give(&self) -> Result<(), HoldError> {
        let peer = self.path.parent().unwrap_or(&self.path);
        peerdir::give_all(peer, &self.path)
    }

    /// Takes the folder for a founding or a joining, which must not be disturbed by whoever runs members; `None` where another has it.
    /// It ends with the process.
    ///
    /// # Errors
    /// Where the lock's file cannot be made.
    pub(crate) fn lock(&self) -> Result<Option<File>, HoldError> {
        let path = self.path.join("lock");
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(HoldError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(source)) => Err(HoldError::io("lock", &path)(source)),
        }
    }

    /// As [`MemberDir::lock`], and waits for whoever has it only to look. What is there is given as by [`MemberDir::give`].
    ///
    /// # Errors
    /// [`HoldError::Locked`] where another founds or joins there.
    pub(crate) async fn hold(&self) -> Result<File, HoldError> {
        for _ in 0..LOOKS {
            if let Some(lock) = self.lock()? {
                self.give()?;
                return Ok(lock);
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(HoldError::Locked(self.path.clone()))
    }

    /// Goes on after a founding or a joining that was cut short once its member had its charter: keeps it here too, so that the
    /// member runs. `None` where there was none. Whoever calls it has the lock.
    ///
    /// # Errors
    /// Where it is damaged, or cannot be kept.
    pub(crate) fn take_up(&self) -> Result<Option<Charter>, HoldError> {
        if !self.engine().exists() {
            return Ok(None);
        }
        match Member::charter(self.engine(), NAME) {
            Ok(charter) => {
                self.keep_charter(&charter)?;
                Ok(Some(charter))
            }
            Err(CommitteeError::Files(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Refuses where a committee's member is here already.
    ///
    /// # Errors
    /// [`HoldError::Argument`] then; where the charter is damaged.
    pub(crate) fn is_free(&self) -> Result<(), HoldError> {
        let Some(charter) = self.charter()? else { return Ok(()) };
        let group = charter.group;
        let what =
            format!("there is a member of committee {group} in this peer's directory already");
        Err(HoldError::argument("--dir", what))
    }

    /// Keeps the charter, and the members' cards: from now on the member runs, as the peer's user.
    ///
    /// # Errors
    /// Where they cannot be written, or given to that user.
    pub(crate) fn begin(&self, charter: &Charter, cards: &[Bytes]) -> Result<(), HoldError> {
        self.keep_cards(cards)?;
        // What the founding or joining made, before the librarian starts the member on it.
        self.give()?;
        self.keep_charter(charter)?;
        self.give()
    }

    fn keep_charter(&self, charter: &Charter) -> Result<(), HoldError> {
        files::replace(&self.path.join(CHARTER), &charter.encode(), Access::Public)
    }

    /// A file in the folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Takes the number of a founding, which must be higher than those before.
    ///
    /// # Errors
    /// Where it is not, or the one before cannot be read, or this one noted.
    pub(crate) fn take_number(&self, number: u64) -> Result<(), HoldError> {
        let path = self.path.join("number");
        let known: Option<u64> = match files::read_small(&path) {
            Err(HoldError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            text => {
                let text = text?;
                let number =
                    std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
                let not =
                    || HoldError::NotA { what: "the number of a founding", path: path.clone() };
                Some(number.ok_or_else(not)?)
            }
        };
        if known.is_some_and(|known| number <= known) {
            let next = known.unwrap_or_default().saturating_add(1);
            let what = format!(
                "founding {number} was tried here before, and no number comes twice: say --number \
                 {next}, the same at all founders"
            );
            return Err(HoldError::argument("--number", what));
        }
        files::replace(&path, format!("{number}\n").as_bytes(), Access::Public)
    }

    /// The cards that are kept here.
    pub(crate) fn cards(&self) -> Vec<Bytes> {
        let Ok(file) = files::read_small(&self.path.join("cards")) else { return Vec::new() };
        let mut rest = &file[..];
        let mut cards = Vec::new();
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some((card, behind)) = behind.split_at_checked(length) else { break };
            cards.push(Bytes::copy_from_slice(card));
            rest = behind;
            if cards.len() == CARDS_MAX {
                break;
            }
        }
        cards
    }

    /// Keeps these cards, in the place of those before.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub(crate) fn keep_cards(&self, cards: &[Bytes]) -> Result<(), HoldError> {
        let mut bytes = Vec::new();
        for card in cards.iter().take(CARDS_MAX) {
            bytes.extend_from_slice(&u32::try_from(card.len()).unwrap_or_default().to_be_bytes());
            bytes.extend_from_slice(card);
        }
        files::replace(&self.path.join("cards"), &bytes, Access::Public)
    }

    /// Where this member is, and all others whose cards are known: which of them count is for the chain to say, and a card is its
    /// member's word for nothing but where it is.
    pub(crate) fn links<'a>(&self, cards: impl IntoIterator<Item = &'a Card>) -> Links {
        let me = self.secret.id();
        let others = cards.into_iter().filter(|card| card.member != me);
        let others = others.map(|card| (card.member, card.address)).take(CARDS_MAX - 1);
        let members = std::iter::once((me, self.address)).chain(others).collect();
        Links { secret: self.secret.clone(), listen: self.listen, members }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_members_folder_is_made_once_and_keeps_its_key_and_cards() {
        let folder = tempfile::tempdir().unwrap();
        assert!(MemberDir::open(folder.path()).unwrap().is_none());
        let [listen, moved] = ["127.0.0.1:4100", "127.0.0.1:4101"].map(|at| at.parse().unwrap());
        let made = MemberDir::make(folder.path(), listen, listen).unwrap();
        let again = MemberDir::make(folder.path(), moved, moved).unwrap();
        assert_eq!((made.secret.id(), again.address), (again.secret.id(), moved));
        assert!(again.charter().unwrap().is_none());

        let cards = vec![Bytes::from_static(b"one"), Bytes::from_static(b"another")];
        again.keep_cards(&cards).unwrap();
        assert_eq!(again.cards(), cards);
        let path = folder.path().join("committee/cards");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(again.cards(), cards[..1]);

        std::fs::write(folder.path().join("committee/links"), "nowhere").unwrap();
        assert!(matches!(MemberDir::open(folder.path()), Err(HoldError::NotA { .. })));
    }

    #[test]
    fn a_folder_is_anothers_while_it_is_founded_and_its_files_are_seen_to_change() {
        let folder = tempfile::tempdir().unwrap();
        let [at, moved] = ["127.0.0.1:4100", "127.0.0.1:4101"].map(|at| at.parse().unwrap());
        let dir = MemberDir::make(folder.path(), at, at).unwrap();
        let held = dir.lock().unwrap();
        assert!(held.is_some() && dir.lock().unwrap().is_none(), "one at a time");
        drop(held);
        assert!(dir.lock().unwrap().is_some());
        assert!(dir.take_up().unwrap().is_none(), "nothing was begun");
        dir.is_free().unwrap();
        let before = stamp(folder.path());
        assert_eq!(stamp(folder.path()), before);
        MemberDir::make(folder.path(), moved, at).unwrap();
        assert_ne!(stamp(folder.path()), before);
    }

    #[test]
    fn a_folder_is_for_the_user_that_the_peer_runs_as_whoever_founds() {
        use std::os::unix::fs::chown;
        let folder = tempfile::tempdir().unwrap();
        let (peer, somebody) = (folder.path(), 54_321);
        let (key, elsewhere) = (peer.join("peer.key"), peer.join("elsewhere"));
        std::fs::write(&key, b"").unwrap();
        std::fs::write(&elsewhere, b"").unwrap();
        if chown(&key, Some(somebody), Some(somebody)).is_err() {
            println!("SKIPPED: only root gives a file away");
            return;
        }
        let of = |path: &Path| path.symlink_metadata().unwrap().uid();
        let before = of(&elsewhere);
        let at = "127.0.0.1:4100".parse().unwrap();
        let dir = MemberDir::make(peer, at, at).unwrap();
        for name in ["", LINKS, KEY] {
            assert_eq!(of(&dir.file(name)), somebody, "{name}");
        }
        // What a founding makes: its lock, its number, and what the member itself keeps.
        assert!(dir.lock().unwrap().is_some());
        dir.take_number(1).unwrap();
        std::fs::create_dir_all(dir.engine().join("log")).unwrap();
        std::fs::write(dir.engine().join("log/0"), b"").unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.engine().join("link")).unwrap();
        dir.give().unwrap();
        for name in ["lock", "number", "engine", "engine/log", "engine/log/0"] {
            assert_eq!(of(&dir.file(name)), somebody, "{name}");
        }
        assert_eq!(of(&elsewhere), before, "nothing outside is given away");
    }

    #[test]
    fn a_folder_that_cannot_be_looked_into_is_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        // As one of another user is; root looks into all of those.
        std::fs::write(folder.path().join(FOLDER), b"").unwrap();
        assert!(matches!(MemberDir::open(folder.path()), Err(HoldError::Io { .. })));
    }

    #[test]
    fn a_number_of_a_founding_comes_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = "127.0.0.1:4100".parse().unwrap();
        let dir = MemberDir::make(folder.path(), at, at).unwrap();
        dir.take_number(3).unwrap();
        for number in [3, 2] {
            assert!(matches!(dir.take_number(number), Err(HoldError::Argument { .. })));
        }
        dir.take_number(4).unwrap();
        // One that cannot be read may be this one.
        let path = folder.path().join("committee/number");
        for noise in ["", "four", "-1\n"] {
            std::fs::write(&path, noise).unwrap();
            assert!(matches!(dir.take_number(9), Err(HoldError::NotA { .. })), "{noise:?}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(dir.take_number(9), Err(HoldError::Io { .. })));
    }
}
