//! What a user remembers of a committee: the highest height that was seen, and where its members were.
//!
//! One small text file for each committee in the home, written whole. Older answers than the remembered height are refused, so a
//! member that is behind, or a liar with an old certificate, takes nobody back; also not the next run of this program.

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
    /// Reads the file; nothing where there is none. Lines that say nothing are passed over.
    pub(super) fn read(path: &Path) -> Result<Self, CertifiedError> {
        let failed = |source| CertifiedError::Memory { action: "read", path: path.into(), source };
        match fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(failed(error)),
            Ok(file) if file.len() > BYTES_MAX => return Ok(Self::default()),
            Ok(_) => {}
        }
        Ok(Self::parse(&fs::read_to_string(path).map_err(failed)?))
    }

    fn parse(text: &str) -> Self {
        let mut memory = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["height", height] => memory.height = height.parse().unwrap_or(memory.height),
                ["member", member, peer, address] => {
                    let seat = || {
                        Some(Seat {
                            member: member.parse().ok()?,
                            peer: peer.parse().ok()?,
                            address: address.to_owned(),
                        })
                    };
                    memory.seats.extend(seat());
                }
                _ => {}
            }
        }
        memory
    }

    fn text(&self) -> String {
        let mut text = format!("height {}\n", self.height);
        for Seat { member, peer, address } in &self.seats {
            text.push_str(&format!("member {member} {peer} {address}\n"));
        }
        text
    }

    /// Writes the file, unless another run has seen as much: the higher height stays.
    pub(super) fn write(&self, path: &Path) -> Result<(), CertifiedError> {
        let failed = |source| CertifiedError::Memory { action: "write", path: path.into(), source };
        let before = Self::read(path)?;
        let height = self.height.max(before.height);
        let now = Self { height, ..self.clone() };
        if now == before {
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            crate::home::private_dir(folder).map_err(failed)?;
        }
        let new = path.with_extension(format!("new-{}", std::process::id()));
        fs::write(&new, now.text()).map_err(failed)?;
        fs::rename(&new, path).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_highest_height_stays_whoever_writes_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path(), &GroupId::new([3; 32]));
        assert_eq!(Memory::read(&path).unwrap(), Memory::default());
        let key = crypto::SecretKey::from_bytes(&[2; 32]).unwrap();
        let peer = PeerId::new(key.public());
        let seat =
            Seat { member: MemberId::new([7; 32]), peer, address: String::from("127.0.0.1:1") };
        let nine = Memory { height: 9, seats: vec![seat] };
        nine.write(&path).unwrap();
        assert_eq!(Memory::read(&path).unwrap(), nine);
        Memory { height: 4, ..nine.clone() }.write(&path).unwrap();
        assert_eq!(Memory::read(&path).unwrap(), nine);
        fs::write(&path, "height x\nmember 1 2 3\nnonsense\nheight 5").unwrap();
        assert_eq!(Memory::read(&path).unwrap(), Memory { height: 5, seats: Vec::new() });
    }
}
