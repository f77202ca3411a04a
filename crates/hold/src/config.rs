//! Settings: flags first, then `HOLD_*` in the environment, then `holdfast.toml` in the home.
//!
//! ```toml
//! via = ["127.0.0.1:4100", "127.0.0.1:4101"]   # HOLD_VIA: librarians to ask, gRPC addresses
//! network = "/path/to/NET"                      # HOLD_NETWORK: the genesis file; default: network in the home
//! org = "/path/to/ORG"                          # HOLD_ORG: organisation directory that mints this client's pass
//! passphrase_file = "/path"                     # HOLD_PASSPHRASE_FILE: after HOLD_PASSPHRASE here, before it as a flag
//! ```
//! A key the program does not know is an error: a typing mistake must not pass as a default.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::HoldError;
use crate::files::{self, Access};

/// The configuration file's name in the home.
pub(crate) const FILE: &str = "holdfast.toml";
/// The most librarians one client is given.
pub(crate) const VIA_MAX: usize = 64;

/// What `holdfast.toml` may say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FileConfig {
    /// Librarians to ask.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) via: Vec<String>,
    /// The genesis file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<PathBuf>,
    /// The organisation's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) org: Option<PathBuf>,
    /// The file the passphrase is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// The settings of one run.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Where this user's state is.
    pub(crate) home: PathBuf,
    /// Librarians to ask, `HOST:PORT`.
    pub(crate) via: Vec<String>,
    /// The genesis file.
    pub(crate) network: PathBuf,
    /// The organisation's directory, where its key is at hand.
    pub(crate) org: Option<PathBuf>,
    /// The file the passphrase is in.
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// The flags that settings come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// `--home` or `HOLD_HOME`.
    pub(crate) home: Option<PathBuf>,
    /// `--via` or `HOLD_VIA`.
    pub(crate) via: Vec<String>,
    /// `--passphrase-file`.
    pub(crate) passphrase_file: Option<PathBuf>,
}

impl Config {
    /// The settings for these flags and this environment.
    ///
    /// # Errors
    /// Where there is no home at all, or the configuration file is not valid.
    pub(crate) fn load(flags: Flags) -> Result<Self, HoldError> {
        let home = match flags.home {
            Some(home) => home,
            None => default_home()?,
        };
        let file = read_file(&home)?;
        let via = if flags.via.is_empty() { file.via } else { flags.via };
        check_via(&via)?;
        let env_path = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let network = env_path("HOLD_NETWORK").or(file.network);
        Ok(Self {
            network: network.unwrap_or_else(|| home.join("network")),
            org: env_path("HOLD_ORG").or(file.org),
            passphrase_file: flags.passphrase_file.or_else(|| {
                // A passphrase in the environment is nearer than one in a file.
                let near = std::env::var_os("HOLD_PASSPHRASE").is_some();
                file.passphrase_file.filter(|_| !near)
            }),
            home,
            via,
        })
    }
}

/// `~/.holdfast`.
fn default_home() -> Result<PathBuf, HoldError> {
    let user = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let user = user.ok_or_else(|| HoldError::argument("--home", "HOME is not set: name one"))?;
    Ok(PathBuf::from(user).join(".holdfast"))
}

/// What the home's configuration file says; nothing where there is none.
///
/// # Errors
/// Where it cannot be read or is not valid.
pub(crate) fn read_file(home: &Path) -> Result<FileConfig, HoldError> {
    let path = home.join(FILE);
    let text = match files::read_small(&path) {
        Ok(text) => text,
        Err(HoldError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(FileConfig::default());
        }
        Err(error) => return Err(error),
    };
    toml::from_slice(&text).map_err(|source| HoldError::Toml { path, source: Box::new(source) })
}

/// Writes the home's configuration file.
///
/// # Errors
/// Where it cannot be written.
pub(crate) fn write_file(home: &Path, config: &FileConfig) -> Result<(), HoldError> {
    let text =
        toml::to_string(config).map_err(|error| HoldError::argument(FILE, error.to_string()))?;
    files::replace(&home.join(FILE), text.as_bytes(), Access::Public)
}

fn check_via(via: &[String]) -> Result<(), HoldError> {
    if via.len() > VIA_MAX {
        return Err(HoldError::argument("--via", format!("at most {VIA_MAX} librarians")));
    }
    via.iter().try_for_each(|address| check_address("--via", address))
}

/// Checks that a text has the form `HOST:PORT`.
///
/// # Errors
/// [`HoldError::Argument`] that names `name`.
pub(crate) fn check_address(name: &'static str, address: &str) -> Result<(), HoldError> {
    split_address(address).map(drop).ok_or_else(|| {
        HoldError::argument(name, format!("{address:?} is not HOST:PORT (say 127.0.0.1:4100)"))
    })
}

/// The host and port of `HOST:PORT`; a numeric IPv6 host stands in brackets.
pub(crate) fn split_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let plain = !host.contains([':', '/', ' ', '[', ']']);
    let good = !host.is_empty() && (bracketed || plain) && address.len() <= 256;
    good.then_some(host).zip(port.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_host_and_port() {
        assert_eq!(split_address("127.0.0.1:80"), Some(("127.0.0.1", 80)));
        assert_eq!(split_address("[::1]:80"), Some(("[::1]", 80)));
        assert_eq!(split_address("peer.example:65535"), Some(("peer.example", 65535)));
        for bad in ["", "host", ":80", "host:", "host:65536", "::1:80", "http://host:80"] {
            assert_eq!(split_address(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused() {
        assert!(toml::from_str::<FileConfig>("vai = []").is_err());
        let config: FileConfig = toml::from_str("via = ['a:1']").expect("a valid file");
        assert_eq!(config.via, ["a:1"]);
    }
}
