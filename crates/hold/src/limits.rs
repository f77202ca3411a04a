//! How often each kind of caller may ask, as `peer.toml` says it.
//!
//! ```toml
//! [limits.known]
//! store = { per_second = 500, bytes_per_day = 100000000000 }
//!
//! [limits.stranger]
//! find = { per_second = 5, callers_per_day = "unlimited" }
//! ```
//! Tiers are `own`, `known` and `stranger`; endpoints `introduce`, `find`, `verify`, `store`, `put`,
//! `get` and `subscribe`; bounds `per_second`, `per_day`, `bytes_per_day`, `callers_per_second` and
//! `callers_per_day`. What is not named keeps its default; 0 lets nobody in, `"unlimited"` everybody.

use librarian::{Limits, Rate, Rates};
use serde::{Deserialize, Serialize};

use crate::config::settings::{SettingError, nearest};

/// The tables below `[limits]`.
pub(crate) const TIERS: [&str; 3] = ["own", "known", "stranger"];
/// The keys of each.
pub(crate) const ENDPOINTS: [&str; 7] =
    ["introduce", "find", "verify", "store", "put", "get", "subscribe"];
/// The keys of each of those.
pub(crate) const BOUNDS: [&str; 5] =
    ["per_second", "per_day", "bytes_per_day", "callers_per_second", "callers_per_day"];
/// What lifts a bound.
const UNLIMITED: &str = "unlimited";

/// `[limits]` of `peer.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsConfig {
    own: TierConfig,
    known: TierConfig,
    stranger: TierConfig,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TierConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    introduce: Option<RateConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    find: Option<RateConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verify: Option<RateConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<RateConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    put: Option<RateConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    get: Option<RateConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscribe: Option<RateConfig>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RateConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_day: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_day: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callers_per_second: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callers_per_day: Option<Amount>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(u64),
    Word(Word),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Unlimited,
}

/// Checks the names and values of the tables below the key `name`.
///
/// # Errors
/// A name that is none of the lists above, with the one it is most like; a bound that is none.
pub(crate) fn check(name: &str, tables: &toml::Table) -> Result<(), SettingError> {
    each(name, tables, &TIERS, |tier, table| {
        let endpoints = inner(&tier, table, "a table of endpoints")?;
        each(&tier, endpoints, &ENDPOINTS, |endpoint, table| {
            let bounds = inner(&endpoint, table, "a table { BOUND = NUMBER }")?;
            each(&endpoint, bounds, &BOUNDS, |key, bound| {
                let number = bound.as_integer().is_some_and(|number| number >= 0);
                if number || bound.as_str() == Some(UNLIMITED) {
                    return Ok(());
                }
                Err(SettingError::Wrong { key, wanted: "a number or \"unlimited\"" })
            })
        })
    })
}

fn inner<'a>(
    key: &str,
    value: &'a toml::Value,
    wanted: &'static str,
) -> Result<&'a toml::Table, SettingError> {
    value.as_table().ok_or_else(|| SettingError::Wrong { key: key.to_owned(), wanted })
}

fn each(
    around: &str,
    table: &toml::Table,
    known: &'static [&'static str],
    mut check: impl FnMut(String, &toml::Value) -> Result<(), SettingError>,
) -> Result<(), SettingError> {
    for (name, value) in table {
        let key = format!("{around}.{name}");
        if !known.contains(&name.as_str()) {
            let nearest = nearest(name, known.iter().copied());
            return Err(SettingError::Unknown { key, nearest });
        }
        check(key, value)?;
    }
    Ok(())
}

impl LimitsConfig {
    /// The defaults with what is named here in their place.
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        self.own.change(&mut limits.rates.own);
        self.known.change(&mut limits.rates.known);
        self.stranger.change(&mut limits.rates.stranger);
        limits
    }
}

impl TierConfig {
    fn change(&self, rates: &mut Rates) {
        let all = [
            (&self.introduce, &mut rates.introduce),
            (&self.find, &mut rates.find),
            (&self.verify, &mut rates.verify),
            (&self.store, &mut rates.store),
            (&self.put, &mut rates.put),
            (&self.get, &mut rates.get),
            (&self.subscribe, &mut rates.subscribe),
        ];
        for (named, rate) in all {
            if let Some(named) = named {
                named.change(rate);
            }
        }
    }
}

impl RateConfig {
    fn change(&self, rate: &mut Rate) {
        let all = [
            (self.per_second, &mut rate.per_second),
            (self.per_day, &mut rate.per_day),
            (self.bytes_per_day, &mut rate.bytes_per_day),
            (self.callers_per_second, &mut rate.callers_per_second),
            (self.callers_per_day, &mut rate.callers_per_day),
        ];
        for (named, bound) in all {
            match named {
                Some(Amount::Number(number)) => *bound = Some(number),
                Some(Amount::Word(Word::Unlimited)) => *bound = None,
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_changes_and_the_rest_keeps_its_default() {
        let text = "[known]\nstore = { per_second = 5, per_day = 'unlimited' }\n\
                    [stranger.find]\nper_second = 0\ncallers_per_day = 'unlimited'";
        let config: LimitsConfig = toml::from_str(text).expect("a valid file");
        let (limits, default) = (config.limits(), Limits::default());
        assert_eq!(limits.rates.known.store.per_second, Some(5));
        assert_eq!(limits.rates.known.find, default.rates.known.find);
        assert_eq!(limits.rates.stranger.find.per_second, Some(0));
        assert_eq!(limits.rates.stranger.find.callers_per_day, None);
        assert_eq!(limits.rates.own, default.rates.own);
        let written = toml::to_string(&config).expect("it can be written");
        assert_eq!(toml::from_str::<LimitsConfig>(&written).expect("and read"), config);
    }

    #[test]
    fn mistyped_names_are_refused() {
        for bad in ["[friends]", "[own]\nstroe = {}", "[own.store]\nper_second = 'lots'"] {
            assert!(toml::from_str::<LimitsConfig>(bad).is_err(), "{bad}");
        }
    }
}
