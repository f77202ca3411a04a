//! An organisation's directory, and the ways a command line names an organisation.
//!
//! ```text
//! ORG/org.key    its private key in hex, 0600
//! ORG/org.pub    one line `<public key in hex>=<name>`: what others need to list it in a roster
//! ```
//! The same line, or the bare key, also stands for an organisation on a command line.

use std::path::{Path, PathBuf};

use crypto::{OrgId, Organisation, SecretKey};

use crate::error::HoldError;
use crate::files::{self, Access};

/// The private key's file.
pub(crate) const KEY_FILE: &str = "org.key";
/// The public line's file.
pub(crate) const PUBLIC_FILE: &str = "org.pub";
const MAKE: &str = "hold org init --dir ORG";

/// An organisation whose key is at hand.
pub(crate) struct OwnOrganisation {
    /// Its private key.
    pub(crate) key: SecretKey,
    /// Its public side.
    pub(crate) public: Organisation,
}

impl OwnOrganisation {
    /// Makes a new one in `dir`.
    ///
    /// # Errors
    /// [`HoldError::Exists`] where the directory holds one already.
    pub(crate) fn create(dir: &Path, name: &str) -> Result<Self, HoldError> {
        check_name(name)?;
        // Looked at first: a key without its public half would be in the way of the next try.
        let there = [KEY_FILE, PUBLIC_FILE].map(|name| dir.join(name));
        if let Some(there) = there.into_iter().find(|file| file.symlink_metadata().is_ok()) {
            return Err(HoldError::Exists(there));
        }
        files::make_private_folder(dir)?;
        let key = files::fresh_key();
        let public = Organisation { key: OrgId::new(key.public()), name: name.to_owned() };
        files::write_secret_key(&dir.join(KEY_FILE), &key)?;
        let line = format!("{}={name}\n", public.key);
        files::write_new(&dir.join(PUBLIC_FILE), line.as_bytes(), Access::Public)?;
        Ok(Self { key, public })
    }

    /// The one in `dir`.
    ///
    /// # Errors
    /// Where its files are missing or damaged, or do not belong together.
    pub(crate) fn open(dir: &Path) -> Result<Self, HoldError> {
        let key = files::read_secret_key(&dir.join(KEY_FILE), MAKE)?;
        let path = dir.join(PUBLIC_FILE);
        let public = read_public(&path)?;
        if public.key != OrgId::new(key.public()) {
            return Err(HoldError::NotA { what: "the public half of org.key beside it", path });
        }
        Ok(Self { key, public })
    }
}

/// The organisation that an argument names: a directory, an `org.pub` file, or `<hex>[=name]`.
///
/// # Errors
/// Where it is none of them.
pub(crate) fn named(argument: &str) -> Result<Organisation, HoldError> {
    let path = PathBuf::from(argument);
    if path.is_dir() {
        return read_public(&path.join(PUBLIC_FILE));
    }
    if path.is_file() {
        return read_public(&path);
    }
    let hint = HoldError::argument(
        "--org",
        format!("{argument:?} is no organisation directory, no org.pub file and no key in hex"),
    );
    parse_line(argument).map_err(|_| hint)
}

fn read_public(path: &Path) -> Result<Organisation, HoldError> {
    let text = files::read_needed(path, "an organisation's public key", MAKE)?;
    let not_a = || HoldError::NotA { what: "an organisation's public key", path: path.to_owned() };
    let text = std::str::from_utf8(&text).map_err(|_| not_a())?;
    parse_line(text.trim_end()).map_err(|_| not_a())
}

/// `<hex>[=name]`; without a name the first eight digits after the sign byte stand in.
fn parse_line(line: &str) -> Result<Organisation, HoldError> {
    let (key, name) = line.split_once('=').unwrap_or((line, ""));
    let key: OrgId = key.parse().map_err(HoldError::parse("an organisation's key", key))?;
    let short: String = key.to_string().chars().skip(2).take(8).collect();
    let name = if name.is_empty() { short } else { name.to_owned() };
    Ok(Organisation { key, name })
}

/// Checks a name before a key is made for it.
pub(crate) fn check_name(name: &str) -> Result<(), HoldError> {
    match crypto::genesis::is_name(name) {
        true => Ok(()),
        false => Err(HoldError::Genesis(crypto::GenesisError::Name)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_organisation_is_named_by_directory_file_or_line() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("org");
        let made = OwnOrganisation::create(&dir, "harbour = north").unwrap();
        assert_eq!(OwnOrganisation::open(&dir).unwrap().public, made.public);
        let file = dir.join(PUBLIC_FILE);
        let line = format!("{}=harbour = north", made.public.key);
        for name in [dir.to_str().unwrap(), file.to_str().unwrap(), &line] {
            assert_eq!(named(name).unwrap(), made.public);
        }
        assert_eq!(named(&made.public.key.to_string()).unwrap().name.len(), 8);
        assert!(named("nothing-of-the-kind").is_err());
    }

    #[test]
    fn a_directory_keeps_its_first_key() {
        let folder = tempfile::tempdir().unwrap();
        let made = OwnOrganisation::create(folder.path(), "a").unwrap();
        let again = OwnOrganisation::create(folder.path(), "a");
        assert!(matches!(again, Err(HoldError::Exists(_))));
        assert_eq!(OwnOrganisation::open(folder.path()).unwrap().public, made.public);
    }

    #[test]
    fn a_foreign_public_half_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        OwnOrganisation::create(&a, "a").unwrap();
        OwnOrganisation::create(&b, "b").unwrap();
        std::fs::copy(a.join(PUBLIC_FILE), b.join(PUBLIC_FILE)).unwrap();
        assert!(matches!(OwnOrganisation::open(&b), Err(HoldError::NotA { .. })));
    }
}
