//! How a peer looks after its disk, as `[upkeep]` of `peer.toml` says it. It counts from the next start.

use std::time::Duration;

use librarian::UpkeepOptions;

use crate::config::settings::{Default::*, Kind, settings};

/// A pace: any number that TOML can write.
const PACE: Kind = Kind::Whole { from: 0, to: i64::MAX as u64, words: "a number of bytes, or 0" };
/// A pause: a second to a year.
const PAUSE: Kind =
    Kind::Whole { from: 1, to: 365 * 24 * 3600, words: "a number of seconds, 1 to 31536000" };
const PERCENT: Kind = Kind::Whole { from: 1, to: 99, words: "a number from 1 to 99" };

settings! {
    /// `[upkeep]` of `peer.toml`.
    struct UpkeepConfig {
        /// Bytes a second that scrub reads of the peer's own disk; 0 for no scrub. At the default a
        /// pass over a TiB takes 12 days.
        scrub_bytes_s: Option<u64> = PACE, Absent("`1048576`");
        /// Seconds from the end of one pass over the whole store to the next one.
        scrub_rest_s: Option<u64> = PAUSE, Absent("`86400`");
        /// A file of records is written again when more of it is dead than this many per cent.
        compact_dead_percent: Option<u8> = PERCENT, Absent("`33`");
        /// Bytes a second that compaction reads and writes at most; 0 for no compaction.
        compact_bytes_s: Option<u64> = PACE, Absent("`16777216`");
        /// Seconds between two looks whether a file is dead enough.
        compact_every_s: Option<u64> = PAUSE, Absent("`600`");
    }
}

impl UpkeepConfig {
    /// The defaults with what is named here in their place.
    pub(crate) fn options(&self) -> UpkeepOptions {
        let mut options = UpkeepOptions::default();
        let Self { scrub_bytes_s, scrub_rest_s, .. } = self;
        let Self { compact_dead_percent, compact_bytes_s, compact_every_s, .. } = self;
        let seconds = |given: &Option<u64>, default| given.map_or(default, Duration::from_secs);
        options.scrub_bytes_s = scrub_bytes_s.unwrap_or(options.scrub_bytes_s);
        options.scrub_rest = seconds(scrub_rest_s, options.scrub_rest);
        let compaction = &mut options.compaction;
        compaction.dead_percent = compact_dead_percent.unwrap_or(compaction.dead_percent);
        compaction.bytes_per_s = compact_bytes_s.unwrap_or(compaction.bytes_per_s);
        options.compaction_every = seconds(compact_every_s, options.compaction_every);
        options
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read(text: &str) -> UpkeepConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_is_named_counts_and_the_rest_keeps_its_default() {
        assert_eq!(read("").options(), UpkeepOptions::default());
        let some = read("scrub_bytes_s = 0\ncompact_dead_percent = 50").options();
        assert_eq!((some.scrub_bytes_s, some.compaction.dead_percent), (0, 50));
        assert_eq!(some.compaction_every, UpkeepOptions::default().compaction_every);
    }

    #[test]
    fn the_defaults_that_are_told_are_those_of_the_librarian() {
        let mut text = String::new();
        for key in UpkeepConfig::KEYS {
            let Absent(default) = key.default else { panic!("{}", key.name) };
            text.push_str(&format!("{} = {}\n", key.name, default.trim_matches('`')));
        }
        assert_eq!(read(&text).options(), UpkeepOptions::default());
        assert_ne!(read(&text), UpkeepConfig::default());
    }
}
