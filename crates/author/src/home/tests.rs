#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Barrier};

use crypto::{Class, Classified};
use env::SystemEntropy;
use proptest::prelude::*;

use super::*;

const PASSPHRASE: &[u8] = b"correct horse";

fn created() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::create_with(&dir.path().join("home"), PASSPHRASE, &SystemEntropy, 10).unwrap();
    (dir, home)
}

fn own(home: &Home, counter: u64) -> ReaderKey {
    ReaderKey::new(home.keyring().own_reader(counter).public())
}

#[test]
fn a_keyring_opens_with_its_passphrase_alone_and_is_never_overwritten() {
    let (_dir, home) = created();
    assert!(Home::exists(home.dir()));
    let again = Home::open(home.dir(), PASSPHRASE).unwrap();
    assert_eq!(again.readers(), home.readers());
    let wrong = Home::open(home.dir(), b"battery").unwrap_err();
    assert!(matches!(wrong, AuthorError::WrongPassphrase));
    assert_eq!(wrong.class(), Class::Denied);
    let bytes = fs::read(home.dir().join("keyring")).unwrap();
    for made in [
        Home::create_with(home.dir(), PASSPHRASE, &SystemEntropy, 10),
        Home::import(home.dir(), &home.words(), None, PASSPHRASE, &SystemEntropy),
    ] {
        assert!(matches!(made, Err(AuthorError::KeyringExists(_))));
    }
    assert_eq!(fs::read(home.dir().join("keyring")).unwrap(), bytes);
}

#[test]
fn a_missing_a_damaged_and_a_huge_keyring_are_told_apart() {
    let (dir, home) = created();
    let missing = Home::open(dir.path(), PASSPHRASE).unwrap_err();
    assert!(matches!(missing, AuthorError::NoKeyring(_)));
    assert_eq!(missing.class(), Class::NotFound);
    let path = home.dir().join("keyring");
    let whole = fs::read(&path).unwrap();
    for damaged in [vec![], whole[..40].to_vec(), vec![0; 92], vec![8; 1 << 20]] {
        fs::write(&path, damaged).unwrap();
        let error = Home::open(home.dir(), PASSPHRASE).unwrap_err();
        let told = matches!(&error, AuthorError::DamagedKeyring { path: at, .. } if *at == path);
        assert!(told && error.class() == Class::Corrupt, "{error:?}");
    }
    // The version is its first field.
    let newer = [&[8, 2][..], &whole[2..]].concat();
    fs::write(&path, newer).unwrap();
    let error = Home::open(home.dir(), PASSPHRASE).unwrap_err();
    assert!(matches!(error, AuthorError::Keyring(KeyringError::Version(2))), "{error:?}");
}

#[test]
fn only_the_owner_reads_the_files() {
    let (_dir, home) = created();
    home.issue(1).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.dir()), 0o700);
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(home.dir()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(mode(&entry.path()), 0o600, "{entry:?}");
        names.insert(entry.file_name().into_string().unwrap());
    }
    assert_eq!(names, ["issued", "keyring", "lock"].map(String::from).into());
}

#[test]
fn neither_seed_nor_keys_are_on_the_disk_or_in_print() {
    let (_dir, home) = created();
    home.issue(3).unwrap();
    let seed = Keyring::from_words(&home.words()).unwrap().client().to_bytes();
    for name in ["keyring", "issued"] {
        let bytes = fs::read(home.dir().join(name)).unwrap();
        let found = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
        assert!(!found(&seed[..]));
        assert!(!found(own(&home, 0).as_bytes()), "a public key says whose envelopes these are");
        assert!(!found(&own(&home, 0).as_bytes()[1..17]));
    }
    assert!(!format!("{home:?}").contains(&hex(home.keyring().client().to_bytes().as_slice())));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn counters_ascend_and_go_on_after_reopening() {
    let (_dir, home) = created();
    assert_eq!(home.next_counter().unwrap(), 0);
    assert_eq!(home.issue(1).unwrap(), 0..1);
    assert_eq!(home.issue(3).unwrap(), 1..4);
    let again = Home::open(home.dir(), PASSPHRASE).unwrap();
    assert_eq!(again.issue(1).unwrap(), 4..5);
    // The first handle sees what the second one appended.
    assert_eq!(home.issue(1).unwrap(), 5..6);
    assert_eq!(again.find_counter(&own(&home, 5)).unwrap(), Some(5));
}

#[test]
fn counters_are_issued_once_among_many_threads_and_handles() {
    const HANDLES: usize = 4;
    const THREADS: usize = 4;
    // Each waits for its turn among 48, which takes an fsync each.
    const EACH: u64 = 2;
    let (_dir, home) = created();
    let barrier = Arc::new(Barrier::new(HANDLES * THREADS));
    let handles: Vec<_> =
        (0..HANDLES).map(|_| Arc::new(Home::open(home.dir(), PASSPHRASE).unwrap())).collect();
    let threads: Vec<_> = handles
        .iter()
        .flat_map(|handle| std::iter::repeat_n(handle, THREADS))
        .map(|handle| {
            let (handle, barrier) = (Arc::clone(handle), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                (0..EACH).map(|i| handle.issue(1 + i % 2).unwrap()).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut issued = Vec::new();
    for thread in threads {
        issued.extend(thread.join().unwrap().into_iter().flatten());
    }
    issued.sort_unstable();
    let expected = HANDLES as u64 * THREADS as u64 * EACH * 3 / 2;
    assert_eq!(issued, (0..expected).collect::<Vec<_>>());
}

/// A process that is killed between the row and the use of its counter leaves the row; one that is killed while it writes
/// leaves a part of it, at any byte.
#[test]
fn a_torn_last_row_is_cut_and_no_counter_repeats() {
    for torn in 0..=32_usize {
        let (_dir, home) = created();
        assert_eq!(home.issue(2).unwrap(), 0..2);
        let path = home.dir().join("issued");
        let mut bytes = fs::read(&path).unwrap();
        let next = home.keyring().issued_row(crypto::Purpose::OwnReader, 2, own(&home, 2).key());
        bytes.extend_from_slice(&next[..torn]);
        fs::write(&path, &bytes).unwrap();
        let again = Home::open(home.dir(), PASSPHRASE).unwrap();
        let expected = if torn == 32 { 3 } else { 2 };
        assert_eq!(again.issue(1).unwrap(), expected..expected + 1, "torn at {torn}");
        let length = fs::metadata(&path).unwrap().len();
        assert_eq!(length, 32 * (expected + 1), "the row is whole again");
        assert_eq!(again.find_counter(&own(&home, expected)).unwrap(), Some(expected));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn damage_never_makes_a_counter_repeat(bits in prop::collection::vec(0..5 * 256_usize, 1..8)) {
        let (_dir, home) = created();
        home.issue(5).unwrap();
        let path = home.dir().join("issued");
        let mut bytes = fs::read(&path).unwrap();
        for bit in bits {
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        fs::write(&path, &bytes).unwrap();
        let again = Home::open(home.dir(), PASSPHRASE).unwrap();
        prop_assert!(again.issue(1).unwrap().start >= 5);
        // What a damaged row said is found again by scanning.
        for counter in 0..5 {
            prop_assert_eq!(again.find_counter(&own(&home, counter)).unwrap(), Some(counter));
        }
    }
}

#[test]
fn a_key_without_a_row_is_found_by_scanning_ahead_and_remembered() {
    let (_dir, home) = created();
    home.issue(2).unwrap();
    for counter in [0, 1, 2, 1 + GAP] {
        assert_eq!(home.find_counter(&own(&home, counter)).unwrap(), Some(counter));
    }
    // The last hit moved the end of the scan, and what is issued is above it.
    assert_eq!(home.next_counter().unwrap(), GAP + 2);
    let beyond = own(&home, 2 * GAP + 2);
    assert_eq!(home.find_counter(&beyond).unwrap(), None);
    assert!(home.reader_secret(&beyond).unwrap().is_none());
    let last = own(&home, 2 * GAP + 1);
    assert!(home.reader_secret(&last).unwrap().is_some());
}

#[test]
fn published_keys_need_no_counter() {
    let (_dir, home) = created();
    for (index, reader) in home.readers().iter().enumerate() {
        let secret = home.reader_secret(reader).unwrap().unwrap();
        assert_eq!(secret.public(), *reader.key());
        assert_eq!(*secret.to_bytes(), *home.keyring().reader(index as u32).unwrap().to_bytes());
    }
    assert_eq!(home.next_counter().unwrap(), 0);
}

#[test]
fn an_import_goes_on_after_the_gap_or_where_it_is_told() {
    let (dir, home) = created();
    home.issue(7).unwrap();
    for (name, next, expected) in [("gap", None, GAP), ("told", Some(7), 7), ("zero", Some(0), 0)] {
        let to = dir.path().join(name);
        let imported = Home::import(&to, &home.words(), next, PASSPHRASE, &SystemEntropy).unwrap();
        assert_eq!(imported.readers(), home.readers());
        assert_eq!(imported.next_counter().unwrap(), expected);
        assert_eq!(imported.find_counter(&own(&home, 3)).unwrap(), Some(3), "by scanning");
    }
    let words = Home::import(&dir.path().join("bad"), "hello", None, PASSPHRASE, &SystemEntropy);
    assert!(matches!(words, Err(AuthorError::Keyring(KeyringError::Words(_)))));
    assert!(!dir.path().join("bad").exists());
    for next in [COUNTERS_MAX, u64::MAX] {
        let bad = dir.path().join("bad");
        let next = Home::import(&bad, &home.words(), Some(next), PASSPHRASE, &SystemEntropy);
        assert!(matches!(next, Err(AuthorError::Exhausted)));
        assert!(!bad.exists(), "nothing is made for a counter that there is not");
    }
}

#[test]
fn an_import_beside_old_rows_goes_on_from_the_later_one() {
    let (_dir, home) = created();
    home.issue(GAP + 5).unwrap();
    fs::remove_file(home.dir().join("keyring")).unwrap();
    let words = home.words();
    let imported = Home::import(home.dir(), &words, None, PASSPHRASE, &SystemEntropy).unwrap();
    assert_eq!(imported.next_counter().unwrap(), GAP + 5);
}

#[test]
fn a_lost_list_counts_as_an_import() {
    let (_dir, home) = created();
    home.issue(5).unwrap();
    fs::remove_file(home.dir().join("issued")).unwrap();
    let again = Home::open(home.dir(), PASSPHRASE).unwrap();
    assert_eq!(again.issue(1).unwrap(), GAP..GAP + 1);
}

#[test]
fn a_folder_that_cannot_be_written_says_which() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = Home::create_with(&file.join("home"), PASSPHRASE, &SystemEntropy, 10).unwrap_err();
    assert!(matches!(&error, AuthorError::Io { path, .. } if path.starts_with(&file)), "{error:?}");
}

#[test]
fn what_is_paid_for_again_and_again_takes_no_more_room_than_once() {
    let (_dir, home) = created();
    let [one, other] = [1, 2].map(|n| RecordId::new([n; 32]));
    let salt = [3; PAID_SALT_BYTES];
    home.note_paid(&salt, &other, 7).unwrap();
    for until in 1..=5_000 {
        home.note_paid(&salt, &one, until).unwrap();
    }
    let path = home.dir().join("paid");
    let before = fs::metadata(&path).unwrap().len();
    for _ in 0..2 {
        assert_eq!(home.paid().unwrap(), BTreeMap::from([(one, 5_000), (other, 7)]));
        assert!(fs::metadata(&path).unwrap().len() < before / 1_000);
    }
    home.note_paid(&salt, &other, 0).unwrap();
    assert_eq!(home.paid().unwrap(), BTreeMap::from([(one, 5_000)]));
}

#[test]
fn what_is_begun_to_be_forgotten_has_room_and_can_be_brought_to_its_end_by_its_address_alone() {
    let (_dir, home) = created();
    home.issue(3).unwrap();
    let [first, second, shared] = [1, 2, 3].map(|n| RecordId::new([n; 32]));
    let length = || fs::metadata(home.dir().join("forgotten")).unwrap().len();
    assert_eq!(home.forget_begun(&first).unwrap(), None);
    home.begin_forgetting(&first, &own(&home, 0)).unwrap();
    home.begin_forgetting(&second, &own(&home, 1)).unwrap();
    home.begin_forgetting(&shared, &home.readers()[0]).unwrap();
    let reserved = length();
    assert_eq!(home.find_counter(&own(&home, 0)).unwrap(), Some(0), "it opens until its end");
    assert!(home.forgotten().unwrap().is_empty());
    for _ in 0..2 {
        assert_eq!(home.forget_begun(&first).unwrap(), Some(true));
        assert_eq!(home.forget_begun(&shared).unwrap(), Some(false), "others write to this key");
    }
    assert!(home.forget_counter(&own(&home, 1)).unwrap());
    assert_eq!(home.forgotten().unwrap(), BTreeSet::from([0, 1]));
    assert_eq!(length(), reserved);
    for address in [&first, &second, &shared] {
        home.end_forgetting(address).unwrap();
        assert_eq!(home.forget_begun(address).unwrap(), None);
    }
    let again = Home::open(home.dir(), PASSPHRASE).unwrap();
    assert!(again.reader_secret(&own(&home, 0)).unwrap().is_none());
    assert_eq!(again.find_counter(&own(&home, 2)).unwrap(), Some(2));
    assert_eq!(again.next_counter().unwrap(), 3);
}
