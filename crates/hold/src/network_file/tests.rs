//! Rosters beside a network file come back whole, are only ever added to, and damage is told.
#![allow(clippy::unwrap_used, reason = "tests")]

use crypto::{Change, OrgId, Organisation, SecretKey, SignedRoster, Suite};

use super::*;

fn secret(n: u8) -> SecretKey {
    SecretKey::from_bytes(&[n; 32]).unwrap()
}

fn organisation(n: u8) -> Organisation {
    Organisation { key: OrgId::new(secret(n).public()), name: format!("organisation {n}") }
}

fn network(folder: &Path) -> NetworkFile {
    let genesis = Genesis {
        name: "n".to_owned(),
        suite: Suite::Holdfast1,
        organisations: (1..=3).map(organisation).collect(),
        copies: None,
        profile: None,
        created: 1,
        nonce: [1; 16],
    };
    let network = NetworkFile::new(&folder.join("NET"), genesis.checked().unwrap());
    network.copy_to(network.path()).unwrap();
    network
}

fn next(previous: &Roster, change: &Change, by: [u8; 2]) -> Bytes {
    let roster = previous.changed(change, 1).unwrap().unwrap();
    let mut signed = SignedRoster::proposal(roster);
    by.iter().for_each(|key| signed.sign(&secret(*key), previous).unwrap());
    signed.encode()
}

#[test]
fn rosters_are_kept_and_read_back_and_copied() {
    let folder = tempfile::tempdir().unwrap();
    let mut network = network(folder.path());
    assert_eq!(NetworkFile::read(network.path()).unwrap().roster().number(), 0);
    let mut told = Vec::new();
    for n in 0..5 {
        let name = format!("name {n}");
        let change = Change::Name(Organisation { name, ..organisation(3) });
        let roster = next(network.roster(), &change, [1, 2]);
        assert_eq!(network.learn(&roster).unwrap(), Taught::Newer);
        told.push(roster);
    }
    assert!(keep(network.path(), &told).unwrap());
    assert!(!keep(network.path(), &told[..1]).unwrap(), "older ones take nothing away");
    let read = NetworkFile::read(network.path()).unwrap();
    assert_eq!(read.rosters(), told);
    assert_eq!(read.signed(1).as_ref(), told.first());
    assert_eq!((read.signed(0), read.signed(99)), (None, None));
    let copy = folder.path().join("copy");
    read.copy_to(&copy).unwrap();
    assert_eq!(NetworkFile::read(&copy).unwrap().roster(), read.roster());
    assert_eq!(read.directory_roster(), *read.roster().hash());
}

impl NetworkFile {
    fn directory_roster(&self) -> [u8; 32] {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { *self.directory(&Env::real(), None).roster().hash() })
    }
}

#[test]
fn a_damaged_file_of_rosters_is_an_error_wherever_it_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let network = network(folder.path());
    let roster = next(network.roster(), &Change::Add(organisation(4)), [1, 2]);
    keep(network.path(), &[roster]).unwrap();
    let path = rosters_path(network.path());
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let error = NetworkFile::read(network.path()).map(|read| read.roster().number());
        assert!(error.is_err(), "byte {at}: {error:?}");
    }
    for length in 1..good.len() {
        std::fs::write(&path, &good[..length]).unwrap();
        assert!(NetworkFile::read(network.path()).is_err(), "{length} bytes");
    }
    let twice = [&good[..], &good[..]].concat();
    std::fs::write(&path, twice).unwrap();
    assert!(NetworkFile::read(network.path()).is_err(), "the same one twice");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(NetworkFile::read(network.path()).unwrap().roster().number(), 0);
}
