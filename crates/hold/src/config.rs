//! Settings: flags first, then `HOLD_*` in the environment, then `holdfast.toml` in the home.
//!
//! The keys are listed in [`FileConfig`]; `docs/reference/configuration.md` is made from that list.
//!
//! A key the program does not know is an error: a typing mistake must not pass as a default.

pub(crate) mod peer;
pub(crate) mod settings;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::environment;
use crate::error::HoldError;
use crate::files::{self, Access};
pub(crate) use peer::PeerConfig;
use settings::{Default::*, Kind, settings};

/// The configuration file's name in the home.
pub(crate) const FILE: &str = "holdfast.toml";
/// The most librarians one client is given.
pub(crate) const VIA_MAX: usize = 64;
/// The most addresses a peer says it is reached at: what a certificate has room for.
pub(crate) const ADDRESSES_MAX: usize = crypto::certificate::ADDRESSES_MAX;
/// The most peers that one is told to meet first.
pub(crate) const BOOTSTRAP_MAX: usize = 64;

settings! {
    /// `holdfast.toml`, in the home.
    struct FileConfig {
        /// Librarians to ask, by their gRPC addresses. `--via` and `HOLD_VIA` come before it.
        via: Vec<String> = Kind::Addresses(VIA_MAX), Value("[]");
        /// Whether one of them walks for this client, which connects to no other peer. `--thin` and
        /// `HOLD_THIN` come before it.
        thin: bool = Kind::Switch, Value("false");
        /// The genesis file. `HOLD_NETWORK` comes before it.
        network: Option<PathBuf> = Kind::Path, Absent("`network` in the home");
        /// The organisation's directory whose key mints this client's passes. `HOLD_ORG` comes
        /// before it.
        org: Option<PathBuf> = Kind::Path, Absent("none: an operator signs the passes");
        /// The file that the keyring's passphrase is in. `--passphrase-file`, `HOLD_PASSPHRASE_FILE`
        /// and `HOLD_PASSPHRASE` come before it.
        passphrase_file: Option<PathBuf> = Kind::Path, Absent("none: it is asked for");
        /// How many days what is put is paid for, where `--for` says nothing else.
        lease_days: Option<u64> = Kind::Whole { from: 1, to: 3660, words: "a whole number of days, 1 to 3660" }, Absent("365");
    }
}

/// The settings of one run.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Where this user's state is.
    pub(crate) home: PathBuf,
    /// Librarians to ask, `HOST:PORT`.
    pub(crate) via: Vec<String>,
    /// Whether one of them walks for this client.
    pub(crate) thin: bool,
    /// The genesis file.
    pub(crate) network: PathBuf,
    /// The organisation's directory, where its key is at hand.
    pub(crate) org: Option<PathBuf>,
    /// The file the passphrase is in.
    pub(crate) passphrase_file: Option<PathBuf>,
    /// How long what is put is paid for, in seconds.
    pub(crate) lease_s: u64,
}

/// The flags that settings come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// `--home` or `HOLD_HOME`.
    pub(crate) home: Option<PathBuf>,
    /// `--via` or `HOLD_VIA`.
    pub(crate) via: Vec<String>,
    /// `--thin` or `HOLD_THIN`.
    pub(crate) thin: bool,
    /// `--passphrase-file`.
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// The settings, read when one is asked for first: verbs that take none work whatever the home is.
#[derive(Debug)]
pub(crate) struct Settings {
    flags: Flags,
    config: OnceLock<Config>,
}

impl Settings {
    /// Those of these flags.
    ///
    /// # Errors
    /// [`HoldError::Argument`] where a flag cannot be what it is.
    pub(crate) fn new(flags: Flags) -> Result<Self, HoldError> {
        check_via(&flags.via)?;
        Ok(Self { flags, config: OnceLock::new() })
    }

    /// All of them.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub(crate) fn get(&self) -> Result<&Config, HoldError> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let config = Config::load(self.flags.clone())?;
        Ok(self.config.get_or_init(|| config))
    }

    /// The librarians to ask. Where flags name them no home is needed.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub(crate) fn via(&self) -> Result<&[String], HoldError> {
        if self.flags.via.is_empty() { Ok(&self.get()?.via) } else { Ok(&self.flags.via) }
    }

    /// The genesis file. Where the environment names it no home is needed.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub(crate) fn network(&self) -> Result<PathBuf, HoldError> {
        match environment::value("HOLD_NETWORK") {
            Some(network) => Ok(network.into()),
            None => Ok(self.get()?.network.clone()),
        }
    }
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
        let env_path = |name| environment::value(name).map(PathBuf::from);
        let network = env_path("HOLD_NETWORK").or_else(|| in_home(&home, file.network));
        Ok(Self {
            network: network.unwrap_or_else(|| home.join("network")),
            org: env_path("HOLD_ORG").or_else(|| in_home(&home, file.org)),
            passphrase_file: flags.passphrase_file.or_else(|| {
                // A passphrase in the environment is nearer than one in a file.
                let near = environment::value("HOLD_PASSPHRASE").is_some();
                in_home(&home, file.passphrase_file).filter(|_| !near)
            }),
            lease_s: file.lease_days.map_or(author::LEASE_SECONDS, |days| days * 24 * 3600),
            thin: flags.thin || file.thin,
            home,
            via,
        })
    }
}

/// A path of the home's configuration file: one that is not absolute begins at the home, wherever the program runs.
pub(crate) fn in_home(home: &Path, path: Option<PathBuf>) -> Option<PathBuf> {
    path.map(|path| home.join(path))
}

/// `~/.holdfast`.
fn default_home() -> Result<PathBuf, HoldError> {
    let user = environment::value("HOME");
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
    settings::read(&path, &text, FileConfig::KEYS)
}

/// Writes the home's configuration file; remarks of one that is there stay.
///
/// # Errors
/// Where it cannot be written.
pub(crate) fn write_file(home: &Path, config: &FileConfig) -> Result<(), HoldError> {
    let path = home.join(FILE);
    let wrong = |error: String| HoldError::argument(FILE, error);
    let values = toml::Table::try_from(config).map_err(|error| wrong(error.to_string()))?;
    let text = match files::read_small(&path) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(HoldError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            String::new()
        }
        Err(error) => return Err(error),
    };
    let text = settings::changed(&text, &values).map_err(|error| wrong(error.to_string()))?;
    files::replace(&path, text.as_bytes(), Access::Public)
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
    fn a_path_of_the_file_begins_at_the_home() {
        let home = Path::new("/home/ada/.holdfast");
        let path = |text: &str| in_home(home, Some(text.into()));
        assert_eq!(path("pass/phrase"), Some("/home/ada/.holdfast/pass/phrase".into()));
        assert_eq!(path("/srv/clinic"), Some("/srv/clinic".into()));
        assert_eq!(in_home(home, None), None);
    }

    #[test]
    fn an_address_is_host_and_port() {
        assert_eq!(split_address("127.0.0.1:80"), Some(("127.0.0.1", 80)));
        assert_eq!(split_address("[::1]:80"), Some(("[::1]", 80)));
        assert_eq!(split_address("peer.example:65535"), Some(("peer.example", 65535)));
        for bad in ["", "host", ":80", "host:", "host:65536", "::1:80", "http://host:80"] {
            assert_eq!(split_address(bad), None, "{bad}");
        }
    }
}
