//! What a user remembers of a committee: the highest height that was seen, and where its members were.
//!
//! One small text file for each committee in the home, replaced whole and synced under the home's lock. Older answers than the
//! remembered height are refused, so a member that is behind, or a liar with an old certificate, takes nobody back; also not the
//! next run of this program. A file that does not say a height is an error and no height 0: whoever spoils it takes nobody back
//! unseen.

use std::fs;
use std::path::{Path, PathBuf};

use committee::{GroupId, engine::MemberId};
use crypto::PeerId;

use super::CertifiedError;

const FOLDER: &str = "committees";
/// The longest file that is read, in bytes: members of two epochs.
const BYTES_MAX: u64 = 32 << 10;

/// A librarian that hosts a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The member.
    pub member: MemberId,
    /// The peer that hosts it.
    pub peer: PeerId,
    /// Where the peer answers, `HOST:PORT`.
    pub address: String,
}

/// What is remembered of one committee.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) height: u64,
    pub(super) seats: Vec<Seat>,
}

/// The file of a committee.
pub(super) fn path(home: &Path, group: &GroupId) -> PathBuf {
    home.join(FOLDER).join(group.to_string())
}

impl Memory {
    /// Reads the file; nothing where there is none. Lines of members that say nothing are passed over.
    pub(super) fn read(path: &Path) -> Result<Self, CertifiedError> {
        let failed = |source| CertifiedError::Memory { action: "read", path: path.into(), source };
        match fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(failed(error)),
            Ok(file) if file.len() > BYTES_MAX => return Err(CertifiedError::Spoilt(path.into())),
            Ok(_) => {}
        }
        let bytes = fs::read(path).map_err(failed)?;
        let text = std::str::from_utf8(&bytes).ok();
        text.and_then(Self::parse).ok_or_else(|| CertifiedError::Spoilt(path.into()))
    }

    /// `None` where its first line is no height, or its last one was cut.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.lines();
        let height = lines.next()?.strip_prefix("height ")?.parse().ok()?;
        let seat = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let ["member", member, peer, address] = words[..] else { return None };
            let (member, peer) = (member.parse().ok()?, peer.parse().ok()?);
            Some(Seat { member, peer, address: address.to_owned() })
        };
        Some(Self { height, seats: lines.filter_map(seat).collect() })
    }

    fn text(&self) -> String {
        let mut text = format!("height {}\n", self.height);
        for Seat { member, peer, address } in &self.seats {
            text.push_str(&format!("member {member} {peer} {address}\n"));
        }
        text
    }

    /// Writes the file in this home, unless another run has seen as much: the higher height stays. It is durable when this
    /// returns. Blocks for an fsync, and while another program writes in the home.
    pub(super) fn write(&self, home: &Path, path: &Path) -> Result<(), CertifiedError> {
        let failed = |source| CertifiedError::Memory { action: "write", path: path.into(), source };
        let _lock = crate::home::lock(home).map_err(CertifiedError::Home)?;
        let before = Self::read(path)?;
        let height = self.height.max(before.height);
        let now = Self { height, ..self.clone() };
        if now == before {
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            crate::home::private_dir(folder).map_err(failed)?;
        }
        crate::home::replace(path, now.text().as_bytes()).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn seated() -> Seat {
        let key = crypto::SecretKey::from_bytes(&[2; 32]).unwrap();
        let peer = PeerId::new(key.public());
        Seat { member: MemberId::new([7; 32]), peer, address: String::from("127.0.0.1:1") }
    }

    #[test]
    fn the_highest_height_stays_whoever_writes_last() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let path = path(home, &GroupId::new([3; 32]));
        assert_eq!(Memory::read(&path).unwrap(), Memory::default());
        let nine = Memory { height: 9, seats: vec![seated()] };
        nine.write(home, &path).unwrap();
        assert_eq!(Memory::read(&path).unwrap(), nine);
        Memory { height: 4, ..nine.clone() }.write(home, &path).unwrap();
        assert_eq!(Memory::read(&path).unwrap(), nine);
        // Many at once, as tasks of one program and as programs.
        std::thread::scope(|scope| {
            for height in 10..26 {
                let (nine, path) = (&nine, &path);
                scope.spawn(move || Memory { height, ..nine.clone() }.write(home, path).unwrap());
            }
        });
        assert_eq!(Memory::read(&path).unwrap().height, 25);
    }

    #[test]
    fn a_file_that_says_no_height_is_an_error_and_not_height_0() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let path = path(home, &GroupId::new([3; 32]));
        let nine = Memory { height: 1_234, seats: vec![seated()] };
        nine.write(home, &path).unwrap();
        let text = fs::read(&path).unwrap();
        for length in (0..text.len()).filter(|length| !text[..*length].ends_with(b"\n")) {
            fs::write(&path, &text[..length]).unwrap();
            let error = Memory::read(&path).unwrap_err();
            assert!(matches!(error, CertifiedError::Spoilt(_)), "{length}: {error}");
            // It is not written over either.
            nine.write(home, &path).unwrap_err();
        }
        let long = format!("height 5\n{}", "x\n".repeat(40_000));
        for spoilt in ["height x\n", "member 1 2 3\nheight 5\n", "\n", "\u{0}\n", &long] {
            fs::write(&path, spoilt).unwrap();
            let error = Memory::read(&path).unwrap_err();
            assert!(matches!(error, CertifiedError::Spoilt(_)), "{error}");
        }
        fs::write(&path, "height 5\nmember 1 2 3\nnonsense\n").unwrap();
        assert_eq!(Memory::read(&path).unwrap(), Memory { height: 5, seats: Vec::new() });
    }
}
