//! The manifest of a snapshot: which files, how long, with which checksums, of which peer.
//!
//! It is text, so that an operator can read it and check a file with any BLAKE3 program, and it has
//! one form only, so that what is decoded is what was written. `docs/formats/snapshots.md` has it
//! line by line. A decoder's input may be anything: it is bounded before it is read, and nothing of
//! a manifest is used to build a path before the path was checked.

use std::collections::BTreeMap;
use std::fmt::Write;

use crypto::{NetworkId, PeerId, Suite};

/// The file's name in a snapshot.
pub(crate) const MANIFEST: &str = "manifest";
/// A manifest's length at most, in bytes: room for some 200,000 files.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 32 << 20;
const FIRST_LINE: &str = "holdfast-snapshot 1";
const ANY_VERSION: &str = "holdfast-snapshot ";

/// Why a manifest is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It was written by a newer release.
    #[error("the snapshot's format is of another release; restore it with that one")]
    Version,
    /// Its own checksum is wrong, or its end is missing.
    #[error("the manifest is damaged")]
    Checksum,
    /// A line is not in the one form there is, or it is too long.
    #[error("this is not the manifest of a snapshot")]
    Form,
}

/// BLAKE3-256 of a file.
pub(crate) type Checksum = [u8; 32];

/// A file of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileLine {
    pub checksum: Checksum,
    pub bytes: u64,
}

/// What is in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub network: NetworkId,
    pub peer: PeerId,
    pub suite: Suite,
    /// When it was begun.
    pub unix_ms: u64,
    /// By path.
    pub files: BTreeMap<String, FileLine>,
}

impl Manifest {
    pub(crate) fn encode(&self) -> String {
        let Self { network, peer, suite, unix_ms, files } = self;
        let mut text = format!(
            "{FIRST_LINE}\nnetwork {network}\npeer {peer}\nsuite {suite}\ntaken {unix_ms}\n"
        );
        for (path, FileLine { checksum, bytes }) in files {
            let checksum = blake3::Hash::from_bytes(*checksum).to_hex();
            // Writing into a String does not fail.
            let _ = writeln!(text, "file {checksum} {bytes} {path}");
        }
        let whole = blake3::hash(text.as_bytes()).to_hex();
        let _ = writeln!(text, "whole {whole}");
        text
    }

    /// # Errors
    /// Where the bytes are not exactly what [`Manifest::encode`] makes of something.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::Form)?;
        let first = text.lines().next().unwrap_or_default();
        if first != FIRST_LINE && first.starts_with(ANY_VERSION) {
            return Err(ManifestError::Version);
        }
        if first != FIRST_LINE {
            return Err(ManifestError::Form);
        }
        let before_last = text.trim_end_matches('\n').rfind('\n').ok_or(ManifestError::Checksum)?;
        let (body, last) = text.split_at(before_last + 1);
        if last != format!("whole {}\n", blake3::hash(body.as_bytes()).to_hex()) {
            return Err(ManifestError::Checksum);
        }
        let manifest = Self::parse(body).ok_or(ManifestError::Form)?;
        // One form alone: spaces, signs, zeros and order all show here.
        if manifest.encode() == text { Ok(manifest) } else { Err(ManifestError::Form) }
    }

    fn parse(body: &str) -> Option<Self> {
        let mut lines = body.lines().skip(1);
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let network = field("network")?.parse().ok()?;
        let peer = field("peer")?.parse().ok()?;
        let suite = field("suite")?.parse().ok()?;
        let unix_ms = field("taken")?.parse().ok()?;
        let mut files = BTreeMap::new();
        for line in lines {
            let mut parts = line.strip_prefix("file ")?.splitn(3, ' ');
            let checksum = *blake3::Hash::from_hex(parts.next()?).ok()?.as_bytes();
            let bytes = parts.next()?.parse().ok()?;
            let path = parts.next().filter(|path| is_path(path))?;
            files.insert(path.to_owned(), FileLine { checksum, bytes });
        }
        Some(Self { network, peer, suite, unix_ms, files })
    }

    /// The bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.values().map(|line| line.bytes).fold(0, u64::saturating_add)
    }
}

/// Whether this may be a file's path in a snapshot: a name, or a folder's and a name.
fn is_path(path: &str) -> bool {
    match path.split_once('/') {
        Some((folder, name)) => is_name(folder) && is_name(name),
        None => is_name(path),
    }
}

/// Whether a file or a folder of this name is part of snapshots.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=env::disk::NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && ![MANIFEST, "lock"].contains(&name)
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use crypto::SecretKey;
    use proptest::prelude::*;

    use super::*;

    fn manifest() -> Manifest {
        let line = |bytes: &[u8]| FileLine {
            checksum: *blake3::hash(bytes).as_bytes(),
            bytes: bytes.len() as u64,
        };
        Manifest {
            network: NetworkId::new([0x11; 32]),
            peer: PeerId::new(SecretKey::from_bytes(&[5; 32]).unwrap().public()),
            suite: Suite::Holdfast1,
            unix_ms: 1_700_000_000_000,
            files: [
                ("store/00000001.log".to_owned(), line(b"")),
                ("peer.toml".to_owned(), line(b"hello")),
            ]
            .into(),
        }
    }

    #[test]
    fn golden_bytes_are_those_of_the_page() {
        let page = include_str!("../../../../docs/formats/snapshots.md");
        let block = page.split("<!-- golden: manifest -->\n```text\n").nth(1).unwrap();
        assert_eq!(manifest().encode(), block.split("```").next().unwrap());
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let text = manifest().encode();
        assert_eq!(Manifest::decode(text.as_bytes()).unwrap(), manifest());
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                assert!(Manifest::decode(&bytes).is_err(), "{at} {bit}");
            }
        }
        for len in 0..text.len() {
            assert!(Manifest::decode(&text.as_bytes()[..len]).is_err(), "{len}");
        }
    }

    /// What somebody writes on purpose has the right checksum.
    fn resealed(text: &str) -> Result<Manifest, ManifestError> {
        let body = text.split_inclusive('\n').filter(|line| !line.starts_with("whole "));
        let body: String = body.collect();
        let whole = blake3::hash(body.as_bytes()).to_hex();
        Manifest::decode(format!("{body}whole {whole}\n").as_bytes())
    }

    #[test]
    fn there_is_one_form_and_no_path_leads_out() {
        let text = manifest().encode();
        assert_eq!(resealed(&text), Ok(manifest()));
        for (from, to) in [
            ("taken 1", "taken 01"),
            ("taken 1", "taken +1"),
            ("taken 1", "taken  1"),
            (" 5 peer", " 05 peer"),
            ("peer.toml", "a/b/c"),
            ("peer.toml", "../peer.toml"),
            ("peer.toml", "/etc/passwd"),
            ("peer.toml", "./peer.toml"),
            ("peer.toml", "lock"),
            ("peer.toml", "manifest"),
            ("peer.toml", "peer toml"),
            ("peer.toml", "z.toml"),
            ("peer.toml", "store/00000001.log"),
            ("suite holdfast-1", "suite other"),
            ("\nfile", "\n\nfile"),
            ("\n", "\r\n"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            assert!(resealed(&changed).is_err(), "{from} {to}");
        }
        let newer = text.replace("snapshot 1", "snapshot 2");
        assert_eq!(resealed(&newer), Err(ManifestError::Version));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Manifest::decode(&bytes);
            let _ = Manifest::decode(&[FIRST_LINE.as_bytes(), b"\n", &bytes].concat());
            let _ = resealed(&String::from_utf8_lossy(&bytes));
        }
    }
}
