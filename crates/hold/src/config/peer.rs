//! `peer.toml`: the settings of one peer.

use librarian::{Limits, ObjectsSettings};

use super::settings::{Default::*, Key, Kind, settings};
use super::{ADDRESSES_MAX, BOOTSTRAP_MAX};
use crate::limits::LimitsConfig;
use crate::paying::LeasesConfig;
use crate::repair::RepairConfig;
use crate::upkeep::UpkeepConfig;

/// The file's name in the peer's directory.
pub(crate) const FILE: &str = "peer.toml";
/// An example of bytes for which there is no default: a TiB.
const SOME_BYTES: &str = "1099511627776";
/// Columns of a remark in a new file.
const REMARK_COLUMNS: usize = 96;

settings! {
    /// `peer.toml`.
    struct PeerConfig {
        /// Where gRPC listens.
        listen: String = Kind::Address, Needed;
        /// Where others reach it, best first. They stand in the certificate too: after a change ask
        /// the organisation for a new one.
        addresses: Vec<String> = Kind::Addresses(ADDRESSES_MAX), Needed;
        /// Where libp2p listens, which finds peers and spreads news; port 0 takes a free one at each
        /// start.
        p2p_listen: String = Kind::Address, Needed;
        /// Where the metrics page listens, on a loopback address alone; port 0 takes a free one at
        /// each start.
        metrics: String = Kind::IpAddress, Needed;
        /// Bytes it offers to the network. They stand in the certificate, and others rank by them.
        capacity: u64 = Kind::Bytes, Needed;
        /// gRPC addresses of peers to meet first. One is enough, and those that were met are
        /// remembered.
        bootstrap: Vec<String> = Kind::Addresses(BOOTSTRAP_MAX), Value("[]");
        /// Where requests are taken that callers without a certificate sign one by one.
        signed_listen: Option<String> = Kind::Address, Absent("nowhere");
        /// Take signed requests over plain TCP, on a loopback address alone: for a proxy on this
        /// machine that speaks TLS to the outside.
        signed_plain: bool = Kind::Switch, Value("false");
        /// Serve reads and refuse writes. A peer that runs takes a change within seconds.
        read_only: bool = Kind::Switch, Value("false");
        /// How often each kind of caller may ask, where that differs from the defaults.
        limits: LimitsConfig = Kind::Limits, Absent("the rates below");
        /// How the peer reads its own disk again and gives back the space of removed records.
        upkeep: UpkeepConfig = Kind::Upkeep, Absent("the paces below");
        /// Bytes of versions of objects kept in memory, so that what is read often costs no read of the disk.
        object_cache_bytes: Option<u64> = Kind::Bytes, Absent("`67108864`");
        /// Bytes of an object's versions kept here, where its policy does not say: a writer goes on at the
        /// object's next place then.
        object_region_bytes: Option<u64> = Kind::Bytes, Absent("`1073741824`");
        /// How the peer compares what it holds with other peers, and mends what they lost.
        repair: RepairConfig = Kind::Repair, Absent("the paces below");
        /// Hand over what the peer holds, leave the network, and end: `hold peer leave` sets it. A peer
        /// that has begun goes on whatever it says: set false and start it again to take it back.
        leaving: bool = Kind::Switch, Value("false");
        /// Who may store how much here, and what happens to what nobody pays for any more.
        leases: LeasesConfig = Kind::Leases, Absent("the settings below");
    }
}

impl PeerConfig {
    /// How versioned objects are kept.
    pub(crate) fn objects(&self) -> ObjectsSettings {
        let default = ObjectsSettings::default();
        ObjectsSettings {
            cache_bytes_max: self.object_cache_bytes.unwrap_or(default.cache_bytes_max),
            region_bytes: self.object_region_bytes.unwrap_or(default.region_bytes),
        }
    }

    /// A new file: each key below what it means, those without a value as a remark. Tables come last, those too that are a
    /// remark: a table has every key that follows its name.
    pub(crate) fn text(&self) -> Result<String, toml::ser::Error> {
        let values = toml::Table::try_from(self)?;
        let mut text = String::from(
            "# Settings of this peer; `hold help peer` and the reference of\n\
            # configuration say more. After a change start the peer again.\n",
        );
        let mut tables = String::new();
        for key in Self::KEYS {
            let written = match (values.get(key.name), key.default) {
                (Some(toml::Value::Table(table)), _) => {
                    let table = (key.name.to_owned(), table.clone().into());
                    toml::to_string(&toml::Table::from_iter([table]))?
                }
                (Some(value), _) => format!("{} = {value}\n", key.name),
                (None, Value(value)) => format!("{} = {value}\n", key.name),
                (None, _) => example(key),
            };
            let part = if key.kind.is_table() { &mut tables } else { &mut text };
            part.push_str(&format!("\n{}\n{written}", Remark(key)));
        }
        Ok(text + &tables)
    }
}

/// Remarks that set the key, or what is in the table, to what counts without them, where that is one value.
fn example(key: &Key) -> String {
    let of = |keys: &[Key]| keys.iter().map(example).collect::<String>();
    match key.kind {
        Kind::Limits => {
            let second = Limits::default().rates.known.store.per_second.unwrap_or(500);
            format!("# [limits.known]\n# store = {{ per_second = {second} }}\n")
        }
        Kind::Repair => format!("# [repair]\n{}", of(RepairConfig::KEYS)),
        Kind::Upkeep => format!("# [upkeep]\n{}", of(UpkeepConfig::KEYS)),
        Kind::Leases => format!("# [leases]\n{}", of(LeasesConfig::KEYS)),
        // A table of its own: `[leases.quotas]`, by keys that are nobody's here.
        Kind::Quotas => String::new(),
        Kind::Address => format!("# {} = \"127.0.0.1:4101\"\n", key.name),
        _ => {
            let value = match key.default {
                Value(value) => value,
                Absent(words) => told(words).unwrap_or(SOME_BYTES),
                Needed => SOME_BYTES,
            };
            format!("# {} = {value}\n", key.name)
        }
    }
}

/// The value that the words name, where they are one.
fn told(words: &'static str) -> Option<&'static str> {
    words.strip_prefix('`')?.strip_suffix('`')
}

/// A key's meaning as lines of remarks.
struct Remark<'a>(&'a Key);

impl std::fmt::Display for Remark<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut column = 0;
        for word in self.0.meaning.split_whitespace() {
            if column + word.len() >= REMARK_COLUMNS {
                f.write_str("\n")?;
                column = 0;
            }
            if column == 0 {
                f.write_str("#")?;
                column = 1;
            }
            write!(f, " {word}")?;
            column += word.len() + 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::path::Path;

    use super::*;
    use crate::config::settings;

    fn least() -> PeerConfig {
        PeerConfig {
            listen: "127.0.0.1:4100".to_owned(),
            addresses: vec!["peer.example:4100".to_owned()],
            p2p_listen: "127.0.0.1:0".to_owned(),
            metrics: "127.0.0.1:0".to_owned(),
            capacity: 7,
            ..PeerConfig::default()
        }
    }

    fn read(text: &str) -> PeerConfig {
        settings::read(Path::new(FILE), text.as_bytes(), PeerConfig::KEYS)
            .unwrap_or_else(|error| panic!("{error:?}\n{text}"))
    }

    /// What a line of remarks says that is TOML.
    fn setting(line: &str) -> Option<&str> {
        let line = line.strip_prefix("# ")?;
        toml::from_str::<toml::Table>(line).is_ok().then_some(line)
    }

    /// The file with every remark in force that is a setting and that `takes` takes, by its table and itself.
    fn uncommented(text: &str, takes: impl Fn(&str, &str) -> bool) -> String {
        let mut table = "";
        let lines = text.lines().map(|line| {
            let setting = setting(line).unwrap_or(line);
            table = if setting.starts_with('[') { setting } else { table };
            let line = if takes(table, setting) { setting } else { line };
            format!("{line}\n")
        });
        lines.collect()
    }

    /// What a person does who reads the file: takes the mark off a line, of a table and what stands in it, or off all of them.
    #[test]
    fn every_remark_of_a_new_file_may_be_put_in_force_alone_and_with_all_others() {
        let config = least();
        let text = config.text().unwrap();
        let all = read(&uncommented(&text, |_, _| true));
        assert_eq!(all.objects(), config.objects(), "the examples are the defaults");
        assert_eq!(all.upkeep.options(), config.upkeep.options());
        assert_eq!(all.repair.options(), config.repair.options());
        assert_eq!(all.limits.limits(), config.limits.limits());
        let quota = Some(1 << 40);
        let leases = librarian::LeaseSettings { quota, ..librarian::LeaseSettings::default() };
        assert_eq!(all.leases.settings().unwrap(), leases, "there is no quota by default");
        assert_eq!(all.signed_listen.as_deref(), Some("127.0.0.1:4101"), "nor this");

        for table in ["[limits.known]", "[upkeep]", "[repair]", "[leases]"] {
            assert_ne!(read(&uncommented(&text, |of, _| of == table)), config, "{table}");
        }
        for key in ["signed_listen", "object_cache_bytes", "object_region_bytes"] {
            let one = |of: &str, line: &str| of.is_empty() && line.starts_with(key);
            assert_ne!(read(&uncommented(&text, one)), config, "{key}");
        }
    }

    #[test]
    fn a_new_file_explains_each_key_and_reads_back() {
        let limits = toml::from_str("[known]\nstore = { per_second = 5 }").unwrap();
        let mut config = least();
        for given in [false, true] {
            if given {
                config.signed_listen = Some("127.0.0.1:4101".to_owned());
                config.read_only = true;
                config.limits = toml::Table::clone(&limits).try_into().unwrap();
                config.upkeep = toml::from_str("scrub_bytes_s = 5").unwrap();
                config.repair = toml::from_str("settle_s = 5").unwrap();
                config.object_cache_bytes = Some(1 << 20);
                config.object_region_bytes = Some(1 << 21);
                config.leases = toml::from_str("quota = 5\n[quotas]\nab = 6").unwrap();
            }
            let text = config.text().unwrap();
            let read: PeerConfig =
                settings::read(Path::new(FILE), text.as_bytes(), PeerConfig::KEYS).unwrap();
            assert_eq!(read, config, "{text}");
            let objects = ObjectsSettings { cache_bytes_max: 1 << 20, region_bytes: 1 << 21 };
            let expected = if given { objects } else { ObjectsSettings::default() };
            assert_eq!(read.objects(), expected);
            for key in PeerConfig::KEYS {
                assert!(text.contains(key.name), "{}: {text}", key.name);
            }
            assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        }
    }
}
