//! What a peer asks of those who store with it, as `[leases]` of `peer.toml` says it. It counts from the next start.

use std::collections::BTreeMap;
use std::time::Duration;

use librarian::LeaseSettings;

use crate::config::settings::{Default::*, Kind, settings};
use crate::error::HoldError;

/// A pause: a second to a year.
const PAUSE: Kind =
    Kind::Whole { from: 1, to: 365 * 24 * 3600, words: "a number of seconds, 1 to 31536000" };

settings! {
    /// `[leases]` of `peer.toml`.
    struct LeasesConfig {
        /// Take clients' records with a lease alone: somebody must pay for each.
        demanded: bool = Kind::Switch, Value("false");
        /// Bytes that each organisation may have here.
        quota: Option<u64> = Kind::Bytes, Absent("as many as there is room for");
        /// Bytes that single organisations may have, by their keys in hex.
        quotas: BTreeMap<String, u64> = Kind::Quotas, Absent("`quota`");
        /// Seconds between two looks for records that nobody pays for any more.
        sweep_s: Option<u64> = PAUSE, Absent("`600`");
        /// Within how many seconds after that their bytes are gone from the files. A shorter time
        /// writes more of the store again.
        erase_within_s: Option<u64> = PAUSE, Absent("`86400`");
    }
}

impl LeasesConfig {
    /// The defaults with what is named here in their place.
    ///
    /// # Errors
    /// Where a key of `quotas` is no organisation's.
    pub(crate) fn settings(&self) -> Result<LeaseSettings, HoldError> {
        let mut settings = LeaseSettings { demanded: self.demanded, ..LeaseSettings::default() };
        settings.quota = self.quota;
        for (key, bytes) in &self.quotas {
            let organisation = key.parse().map_err(|_| {
                let wrong = format!("{key} is not an organisation's key (hold network show NET)");
                HoldError::argument("[leases.quotas]", wrong)
            })?;
            settings.quotas.insert(organisation, *bytes);
        }
        let seconds = |given: Option<u64>, default| given.map_or(default, Duration::from_secs);
        settings.sweep = seconds(self.sweep_s, settings.sweep);
        settings.erase_within = seconds(self.erase_within_s, settings.erase_within);
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read(text: &str) -> LeasesConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_is_named_counts_and_the_rest_keeps_its_default() {
        assert_eq!(read("").settings().unwrap(), LeaseSettings::default());
        let told = read("sweep_s = 600\nerase_within_s = 86400").settings().unwrap();
        assert_eq!(told, LeaseSettings::default(), "the defaults that are told");
        let key = crypto::SecretKey::from_bytes(&[3; 32]).unwrap().public();
        let text = format!("demanded = true\nquota = 5\n[quotas]\n{key} = 7");
        let some = read(&text).settings().unwrap();
        assert_eq!((some.demanded, some.quota), (true, Some(5)));
        assert_eq!(some.quotas[&crypto::OrgId::new(key)], 7);
        assert!(read("[quotas]\nharbour = 7").settings().is_err());
    }
}
