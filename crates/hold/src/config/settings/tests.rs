#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::config::{FileConfig, PeerConfig};

const PEER: &str = "listen = 'a:1'\naddresses = ['a:1']\np2p_listen = 'a:0'\n\
                    metrics = '127.0.0.1:0'\ncapacity = 1\n";

fn peer(more: &str) -> Result<PeerConfig, HoldError> {
    read(Path::new("peer.toml"), format!("{PEER}{more}").as_bytes(), PeerConfig::KEYS)
}

fn refused(more: &str) -> SettingError {
    match peer(more) {
        Err(HoldError::Setting { source, .. }) => source,
        other => panic!("{more}: {other:?}"),
    }
}

#[test]
fn an_unknown_key_is_refused_and_the_nearest_one_named() {
    let near = |more: &str, name: &str, like: Option<&str>| match refused(more) {
        SettingError::Unknown { key, nearest } => {
            assert_eq!((key.as_str(), nearest), (name, like), "{more}");
        }
        other => panic!("{more}: {other:?}"),
    };
    near("bootsrap = []", "bootsrap", Some("bootstrap"));
    near("readonly = true", "readonly", Some("read_only"));
    near("zzz = 1", "zzz", None);
    near("[limits.friends]", "limits.friends", None);
    near("[limits.strangers]", "limits.strangers", Some("stranger"));
    near("[limits.own]\nstroe = {}", "limits.own.stroe", Some("store"));
    near("[upkeep]\nscrub_byte_s = 1", "upkeep.scrub_byte_s", Some("scrub_bytes_s"));
    near("[limits.own]\nstore = { per_min = 1 }", "limits.own.store.per_min", Some("per_day"));
}

#[test]
fn a_value_of_another_kind_is_told_by_its_key() {
    for (more, name) in [
        ("bootstrap = 'a:1'", "bootstrap"),
        ("bootstrap = ['a']", "bootstrap"),
        ("signed_listen = 'a'", "signed_listen"),
        ("read_only = 1", "read_only"),
        ("limits = 1", "limits"),
        ("upkeep = 1", "upkeep"),
        ("[upkeep]\nscrub_bytes_s = -1", "upkeep.scrub_bytes_s"),
        ("[upkeep]\nscrub_rest_s = 0", "upkeep.scrub_rest_s"),
        ("[upkeep]\ncompact_every_s = 0", "upkeep.compact_every_s"),
        ("[upkeep]\ncompact_dead_percent = 0", "upkeep.compact_dead_percent"),
        ("[upkeep]\ncompact_dead_percent = 100", "upkeep.compact_dead_percent"),
        ("[limits]\nown = 1", "limits.own"),
        ("[limits.own]\nstore = 5", "limits.own.store"),
        ("[limits.own]\nstore = { per_day = 'lots' }", "limits.own.store.per_day"),
        ("[limits.own]\nstore = { per_day = -1 }", "limits.own.store.per_day"),
    ] {
        match refused(more) {
            SettingError::Wrong { key, .. } => assert_eq!(key, name),
            other => panic!("{more}: {other:?}"),
        }
    }
    for (wrong, right) in [("capacity = 1", "capacity = 0"), ("127.0.0.1:0", "host:0")] {
        let text = PEER.replace(wrong, right);
        let read = read::<PeerConfig>(Path::new("x"), text.as_bytes(), PeerConfig::KEYS);
        assert!(matches!(read, Err(HoldError::Setting { source: SettingError::Wrong { .. }, .. })));
    }
}

#[test]
fn what_is_needed_and_missing_is_named() {
    for key in PeerConfig::KEYS.iter().filter(|key| key.default == Default::Needed) {
        let lines = PEER.lines().filter(|line| !line.starts_with(&format!("{} =", key.name)));
        let text = lines.collect::<Vec<_>>().join("\n");
        let read = read::<PeerConfig>(Path::new("x"), text.as_bytes(), PeerConfig::KEYS);
        let Err(HoldError::Setting { source: SettingError::Missing(name), .. }) = read else {
            panic!("{}: {read:?}", key.name)
        };
        assert_eq!(name, key.name);
    }
    assert!(matches!(refused("listen ="), SettingError::Syntax(_)));
}

/// Each default in the table is what a file without the key gives.
#[test]
fn the_defaults_of_the_tables_are_those_that_count() {
    let without = peer("").unwrap();
    for key in PeerConfig::KEYS {
        let Default::Value(value) = key.default else { continue };
        assert_eq!(peer(&format!("{} = {value}", key.name)).unwrap(), without, "{}", key.name);
    }
    let none: FileConfig = read(Path::new("x"), b"", FileConfig::KEYS).unwrap();
    assert_eq!(none, FileConfig::default());
    for key in FileConfig::KEYS {
        let Default::Value(value) = key.default else { continue };
        let text = format!("{} = {value}", key.name);
        let told: FileConfig = read(Path::new("x"), text.as_bytes(), FileConfig::KEYS).unwrap();
        assert_eq!(told, none, "{}", key.name);
    }
}

#[test]
fn a_change_keeps_remarks_and_order() {
    let text = "# ours\nb = 1 # one\n\n# a remark\na = [1]\n\n[t]\nc = 1 # stays\n";
    let values = toml::from_str("b = 2\nnew = 'x'").unwrap();
    assert_eq!(
        changed(text, &values).unwrap(),
        "# ours\nb = 2 # one\n\n# a remark\na = [1]\nnew = \"x\"\n\n[t]\nc = 1 # stays\n"
    );
    assert!(changed("a = ", &values).is_err());
}
