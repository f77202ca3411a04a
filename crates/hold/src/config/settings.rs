//! One table for each configuration file: its keys, their types, defaults and meanings.
//!
//! [`settings!`] makes a table and the type that it fills from one list, so that what is documented
//! is what is parsed. A file is checked against the table before it is read: a key that is not in it
//! is an error that names the nearest one, since a typing mistake must not pass as a default, and a
//! value of the wrong kind is told by its key. Files that a person edited are changed in place:
//! remarks and order stay.

use std::path::Path;

use serde::de::DeserializeOwned;

use super::split_address;
use crate::error::HoldError;
use crate::limits;
use crate::paying::LeasesConfig;
use crate::repair::RepairConfig;
use crate::upkeep::UpkeepConfig;

/// What a key's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `HOST:PORT`.
    Address,
    /// A list of `HOST:PORT`, so many at most.
    Addresses(usize),
    /// `IP:PORT`: no name is looked up.
    IpAddress,
    /// A file or folder.
    Path,
    /// A number of bytes, at least 1.
    Bytes,
    /// `true` or `false`.
    Switch,
    /// A whole number.
    Whole {
        /// The least.
        from: u64,
        /// The most.
        to: u64,
        /// Both, for people.
        words: &'static str,
    },
    /// The tables of rates.
    Limits,
    /// The table of scrub and compaction.
    Upkeep,
    /// A table of paces of repair.
    Repair,
    /// The table of leases.
    Leases,
    /// A table of bytes by organisation.
    Quotas,
}

/// What counts where a file does not have the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    /// Nothing does: the key is needed.
    Needed,
    /// This value, as TOML.
    Value(&'static str),
    /// What these words say.
    Absent(&'static str),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Its name.
    pub(crate) name: &'static str,
    /// What its value is.
    pub(crate) kind: Kind,
    /// What counts without it.
    pub(crate) default: Default,
    /// What it is for.
    pub(crate) meaning: &'static str,
}

/// Why a file does not count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SettingError {
    /// A key that the table does not have.
    #[error("there is no key `{key}`")]
    Unknown {
        /// Its name, with those of the tables around it.
        key: String,
        /// The known one that it is most like.
        nearest: Option<&'static str>,
    },
    /// A value of another kind.
    #[error("`{key}` must be {wanted}")]
    Wrong {
        /// The key.
        key: String,
        /// What its value must be.
        wanted: &'static str,
    },
    /// A key that is needed is not there.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// No TOML at all.
    #[error(transparent)]
    Syntax(Box<toml::de::Error>),
}

/// Makes a type and its table: `name: type = kind, default;` each below its meaning.
macro_rules! settings {
    (
        $(#[doc = $about:literal])*
        struct $name:ident {
            $($(#[doc = $doc:literal])* $field:ident: $type:ty = $kind:expr, $default:expr;)*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name {
            $(
                $(#[doc = $doc])*
                #[serde(skip_serializing_if = "crate::config::settings::is_default")]
                pub(crate) $field: $type,
            )*
        }

        impl $name {
            /// Every key, in the order of the reference.
            pub(crate) const KEYS: &'static [crate::config::settings::Key] = &[
                $(crate::config::settings::Key {
                    name: stringify!($field),
                    kind: $kind,
                    default: $default,
                    meaning: concat!($($doc),*),
                },)*
            ];
        }
    };
}
pub(crate) use settings;

/// For the types that [`settings!`] makes.
pub(crate) fn is_default<T: std::default::Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Kind {
    /// Whether it stands below a name in brackets.
    pub(crate) const fn is_table(self) -> bool {
        matches!(self, Self::Limits | Self::Upkeep | Self::Repair | Self::Leases | Self::Quotas)
    }

    /// What a value must be, for people.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Address => "a text HOST:PORT, say \"127.0.0.1:4100\"",
            Self::Addresses(_) => "a list of texts HOST:PORT, say [\"127.0.0.1:4100\"]",
            Self::IpAddress => "a text IP:PORT, say \"127.0.0.1:9100\"",
            Self::Path => "a text: a path",
            Self::Bytes => "a number of bytes, at least 1",
            Self::Switch => "true or false",
            Self::Whole { words, .. } => words,
            Self::Upkeep => "a table [upkeep]",
            Self::Repair => "a table [repair]",
            Self::Leases => "a table [leases]",
            Self::Quotas => "a table [leases.quotas] with `KEY = BYTES`",
            Self::Limits => "tables [limits.TIER] with `ENDPOINT = { BOUND = NUMBER }`",
        }
    }

    fn takes(self, value: &toml::Value) -> bool {
        let address = |value: &toml::Value| value.as_str().is_some_and(is_address);
        match self {
            Self::Address => address(value),
            Self::Addresses(most) => {
                value.as_array().is_some_and(|all| all.len() <= most && all.iter().all(address))
            }
            Self::IpAddress => {
                value.as_str().is_some_and(|text| text.parse::<std::net::SocketAddr>().is_ok())
            }
            Self::Path => value.as_str().is_some_and(|text| !text.is_empty()),
            Self::Bytes => value.as_integer().is_some_and(|bytes| bytes > 0),
            Self::Switch => value.is_bool(),
            Self::Whole { from, to, .. } => value
                .as_integer()
                .and_then(|number| u64::try_from(number).ok())
                .is_some_and(|number| (from..=to).contains(&number)),
            Self::Limits | Self::Upkeep | Self::Repair | Self::Leases => value.is_table(),
            Self::Quotas => value.as_table().is_some_and(|table| {
                table.values().all(|bytes| bytes.as_integer().is_some_and(|bytes| bytes > 0))
            }),
        }
    }
}

fn is_address(text: &str) -> bool {
    split_address(text).is_some()
}

/// Reads a configuration file's text by its table.
///
/// # Errors
/// [`HoldError::Setting`] that names `path` and the key.
pub(crate) fn read<T: DeserializeOwned>(
    path: &Path,
    text: &[u8],
    keys: &[Key],
) -> Result<T, HoldError> {
    let wrong = |source| HoldError::Setting { path: path.to_owned(), source };
    let syntax = |error| wrong(SettingError::Syntax(Box::new(error)));
    let table: toml::Table = toml::from_slice(text).map_err(syntax)?;
    check("", &table, keys).map_err(wrong)?;
    table.try_into().map_err(syntax)
}

/// Checks the keys of a file, or of a table in it (then `around` is its name and a dot), and the
/// kinds of their values.
fn check(around: &str, table: &toml::Table, keys: &[Key]) -> Result<(), SettingError> {
    for (name, value) in table {
        let full = || format!("{around}{name}");
        let Some(key) = keys.iter().find(|key| key.name == name) else {
            let nearest = nearest(name, keys.iter().map(|key| key.name));
            return Err(SettingError::Unknown { key: full(), nearest });
        };
        if !key.kind.takes(value) {
            return Err(SettingError::Wrong { key: full(), wanted: key.kind.words() });
        }
        match (key.kind, value.as_table()) {
            (Kind::Limits, Some(tables)) => limits::check(name, tables)?,
            (Kind::Upkeep, Some(table)) => check("upkeep.", table, UpkeepConfig::KEYS)?,
            (Kind::Repair, Some(table)) => check("repair.", table, RepairConfig::KEYS)?,
            (Kind::Leases, Some(table)) => check("leases.", table, LeasesConfig::KEYS)?,
            _ => {}
        }
    }
    let needed = keys.iter().filter(|key| key.default == Default::Needed);
    match needed.map(|key| key.name).find(|name| !table.contains_key(*name)) {
        Some(name) => Err(SettingError::Missing(name)),
        None => Ok(()),
    }
}

/// The name that a mistyped one is most like, where it is like one.
pub(crate) fn nearest(
    name: &str,
    known: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let away = known.map(|known| (distance(name, known), known));
    let (steps, nearest) = away.min()?;
    (steps <= nearest.len() / 2).then_some(nearest)
}

/// Letters to change, drop or add (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, letter) in from.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], at + 1);
        for (column, other) in to.iter().enumerate() {
            let changed = corner + usize::from(letter != *other);
            corner = row[column + 1];
            row[column + 1] = changed.min(corner + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

/// A file's text with other values; its remarks and order stay, and new keys go to the end of the
/// keys that stand before its tables.
///
/// # Errors
/// The syntax error of a text that is no TOML.
pub(crate) fn changed(text: &str, values: &toml::Table) -> Result<String, toml_edit::TomlError> {
    let mut document: toml_edit::DocumentMut = text.parse()?;
    let written: toml_edit::DocumentMut = toml::to_string(values).unwrap_or_default().parse()?;
    for (name, item) in written.iter() {
        match (document.get_mut(name).and_then(toml_edit::Item::as_value_mut), item.as_value()) {
            (Some(old), Some(new)) => {
                let decor = old.decor().clone();
                *old = new.clone();
                *old.decor_mut() = decor;
            }
            _ => drop(document.insert(name, item.clone())),
        }
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests;
