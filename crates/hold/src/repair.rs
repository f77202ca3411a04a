//! How a peer keeps the network whole, as `[repair]` of `peer.toml` says it. It counts from the next start.

use std::time::Duration;

use librarian::KeepingOptions;

use crate::config::settings::{Default::*, Kind, settings};

/// A pause: a second to a day.
const PAUSE: Kind =
    Kind::Whole { from: 1, to: 24 * 3600, words: "a number of seconds, 1 to 86400" };

settings! {
    /// `[repair]` of `peer.toml`.
    struct RepairConfig {
        /// Compare and mend nothing, and answer no other peer about it.
        off: bool = Kind::Switch, Value("false");
        /// Seconds between two comparisons, each with one other peer.
        compare_s: Option<u64> = PAUSE, Absent("`10`");
        /// Seconds without an answer after which the network does without a peer.
        absent_after_s: Option<u64> = PAUSE, Absent("`180`");
        /// Seconds that something lacks before it is mended.
        settle_s: Option<u64> = PAUSE, Absent("`15`");
        /// Bytes a second that mending moves, sent and fetched together.
        bytes_s: Option<u64> = Kind::Bytes, Absent("`67108864`");
        /// Seconds that the same peers are there before what is too much is dropped.
        surplus_after_s: Option<u64> = PAUSE, Absent("`600`");
        /// Seconds between two audits, each of one other peer.
        audit_s: Option<u64> = PAUSE, Absent("`10`");
    }
}

impl RepairConfig {
    /// The defaults with what is named here in their place; `None` where it is off.
    pub(crate) fn options(&self) -> Option<KeepingOptions> {
        if self.off {
            return None;
        }
        let mut options = KeepingOptions::default();
        let seconds = |given: Option<u64>, default| given.map_or(default, Duration::from_secs);
        options.compare = seconds(self.compare_s, options.compare);
        options.absent_after = seconds(self.absent_after_s, options.absent_after);
        options.settle = seconds(self.settle_s, options.settle);
        options.bytes_s = self.bytes_s.unwrap_or(options.bytes_s);
        options.surplus_after = seconds(self.surplus_after_s, options.surplus_after);
        options.audit = seconds(self.audit_s, options.audit);
        Some(options)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read(text: &str) -> RepairConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_is_named_counts_and_the_rest_keeps_its_default() {
        assert_eq!(read("").options(), Some(KeepingOptions::default()));
        assert_eq!(read("off = true").options(), None);
        let some = read("settle_s = 1\nbytes_s = 5").options().unwrap();
        assert_eq!((some.settle, some.bytes_s), (Duration::from_secs(1), 5));
    }

    #[test]
    fn the_defaults_that_are_told_are_those_of_the_librarian() {
        let mut text = String::new();
        for key in RepairConfig::KEYS {
            let (Absent(default) | Value(default)) = key.default else { panic!("{}", key.name) };
            text.push_str(&format!("{} = {}\n", key.name, default.trim_matches('`')));
        }
        assert_eq!(read(&text).options(), Some(KeepingOptions::default()));
    }
}
