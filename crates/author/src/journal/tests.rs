use std::time::{Duration, SystemTime};

use crypto::EEK_BYTES;
use proptest::prelude::*;
use testkit::disk::FaultyDisk;
use zeroize::Zeroizing;

use super::row::{HEADER_BYTES, ROW_BYTES};
use super::*;

const NAME: &str = "00112233445566778899aabbccddeeff";
const SALT: [u8; 32] = [2; 32];

fn keyring() -> Keyring {
    Keyring::from_seed(&[1; 32])
}

fn header() -> Header {
    let eek: [u8; EEK_BYTES] = std::array::from_fn(|at| at as u8 + 1);
    let source = Source {
        path: keyring().journal_source(b"/home/ada/big.bin"),
        bytes: 20_000_000,
        changed: (1_600_000_000, 500_000_000),
        inode: 8,
        device: 9,
    };
    Header {
        eek: Zeroizing::new(eek),
        counter: 7,
        created: 1_700_000_000,
        source,
        options: [4; 32],
    }
}

fn page(index: u32) -> Row {
    Row::Page { index, tag: [5 + index as u8; 16], id: RecordId::new([6 + index as u8; 32]) }
}

fn rows() -> Vec<Row> {
    vec![page(0), Row::Reached { index: 0, acked: 3, wanted: 3 }, Row::End { pages: 1 }]
}

fn written(rows: &[Row]) -> FaultyDisk {
    let disk = FaultyDisk::new(1);
    Book::create(&disk, NAME, &keyring(), &SALT, &header(), rows).expect("a good disk");
    disk
}

fn read(disk: &FaultyDisk) -> Read {
    Book::read(disk, NAME, &keyring()).expect("a good disk")
}

#[track_caller]
fn whole(disk: &FaultyDisk) -> Vec<Row> {
    match read(disk) {
        Read::Whole(found, rows) => {
            assert!(*found == header());
            rows
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn its_bytes_are_the_golden_ones() {
    let bytes = written(&rows()).bytes(NAME).expect("it is there");
    testkit::golden::check(testkit::manifest!(), "put-journal", &bytes);
    testkit::golden::check_page(testkit::manifest!(), "journal.md");
    assert_eq!((header().encode().len(), page(0).encode().len()), (HEADER_BYTES, ROW_BYTES));
}

#[test]
fn another_keyring_reads_nothing() {
    let disk = written(&rows());
    let other = Keyring::from_seed(&[2; 32]);
    assert!(matches!(Book::read(&disk, NAME, &other), Ok(Read::Damaged)));
    assert!(matches!(Book::read(&disk, "another", &keyring()), Ok(Read::Missing)));
}

/// A journal cut anywhere has its first rows or is not used; what is cut is never part of a row.
#[test]
fn a_torn_journal_gives_its_whole_rows_alone() {
    let rows: Vec<Row> = (0..3).map(page).collect();
    let bytes = written(&rows).bytes(NAME).expect("it is there");
    let head = 8 + 32 + HEADER_BYTES + 16;
    for length in 0..=bytes.len() {
        let disk = FaultyDisk::new(1);
        let file = disk.open(NAME, true).expect("a good disk");
        file.write_at(0, &[io::IoSlice::new(&bytes[..length])]).expect("a good disk");
        match read(&disk) {
            Read::Whole(_, found) => {
                assert!(length >= head);
                assert_eq!(found, rows[..(length - head) / (ROW_BYTES + 16)]);
            }
            Read::Damaged => assert!(length < head, "{length}"),
            Read::Missing => panic!("it is there"),
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_makes_it_unusable() {
    let disk = written(&rows());
    let length = disk.bytes(NAME).expect("it is there").len();
    for offset in 0..length {
        let damaged = disk.copy();
        damaged.flip(NAME, offset, 1 << (offset % 8));
        assert!(matches!(read(&damaged), Read::Damaged), "byte {offset}");
    }
}

/// Whatever the disk leaves after a power cut: rows that were made durable are there, or the journal before them is.
#[test]
fn a_crash_at_any_write_keeps_every_durable_row() {
    for seed in 0..40 {
        for operations in 0..20 {
            let disk = FaultyDisk::new(seed);
            disk.crash_after(operations);
            let mut durable = 0;
            let outcome = (|| {
                let mut book = Book::create(&disk, NAME, &keyring(), &SALT, &header(), &[])?;
                for index in 0..6 {
                    book.append(&[page(index), Row::Reached { index, acked: 1, wanted: 3 }])?;
                    book.sync()?;
                    durable = index + 1;
                }
                // Gone on with under another salt.
                let rows: Vec<Row> = (0..6).map(page).collect();
                Book::create(&disk, NAME, &keyring(), &[9; 32], &header(), &rows)
            })();
            let after = disk.crash();
            match read(&after) {
                Read::Whole(_, rows) => {
                    let known = Known::of(&rows).expect("they agree");
                    assert!(known.pages.len() >= durable as usize, "seed {seed}, {operations}");
                }
                Read::Damaged => assert!(durable < 6, "torn rows were never durable: {seed}"),
                Read::Missing => assert_eq!(durable, 0, "seed {seed}, {operations}"),
            }
            assert!(outcome.is_err() || durable == 6);
        }
    }
}

#[test]
fn rows_that_contradict_each_other_are_no_journal() {
    let end = |pages| Row::End { pages };
    let reached = |index| Row::Reached { index, acked: 3, wanted: 3 };
    for bad in [
        vec![page(1)],
        vec![page(0), page(0)],
        vec![page(0), page(2)],
        vec![reached(0)],
        vec![page(0), end(2)],
        vec![end(1)],
        vec![page(0), end(1), page(1)],
    ] {
        assert_eq!(Known::of(&bad), None, "{bad:?}");
    }
    assert!(Known::of(&[]).is_some() && Known::of(&[page(0), end(1), end(1)]).is_some());
}

#[test]
fn bytes_that_are_no_row_are_none() {
    let good = page(0).encode();
    assert_eq!(Row::decode(&good), Some(page(0)));
    let mut long = good.clone();
    long.push(0);
    let (mut kind, mut rest) = (good.clone(), good.clone());
    kind[0] = 9;
    rest[ROW_BYTES - 1] = 1;
    for bad in [&long[..], &good[..ROW_BYTES - 1], &kind, &rest, &[]] {
        assert_eq!(Row::decode(bad), None);
    }
    let mut bytes = header().encode();
    assert!(Header::decode(&bytes) == Some(header()));
    bytes[HEADER_BYTES - 1] = 1;
    assert!(Header::decode(&bytes).is_none() && Header::decode(&bytes[1..]).is_none());
}

proptest! {
    #[test]
    fn what_is_known_is_written_and_read_again(
        pages in 0..20_u32,
        reached in proptest::collection::vec((0..20_u32, 0..5_u32), 0..20),
        ended in any::<bool>(),
    ) {
        let sealed = (0..pages).map(page);
        let reached = reached.into_iter().filter(|(index, _)| *index < pages);
        let reached = reached.map(|(index, acked)| Row::Reached { index, acked, wanted: 3 });
        let end = ended.then_some(Row::End { pages });
        let rows: Vec<Row> = sealed.chain(reached).chain(end).collect();
        let known = Known::of(&rows).expect("they agree");
        let fewest = known.rows();
        prop_assert_eq!(Known::of(&fewest), Some(known.clone()));
        prop_assert_eq!(whole(&written(&fewest)), fewest);
    }
}

fn journals() -> (tempfile::TempDir, Folder) {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = Folder::at(dir.path().join("journals"));
    (dir, folder)
}

fn begin(folder: &Folder, name: &str) -> Option<Arc<Journal>> {
    let held = Arc::new(folder.take(name).expect("a good disk")?);
    Some(Arc::new(Journal::begin(held, &keyring(), &SALT, header()).expect("a good disk")))
}

fn resumed(folder: &Folder, source: &Source, options: [u8; 32]) -> Option<Journal> {
    let held = Arc::new(folder.take(NAME).expect("a good disk").expect("nobody has it"));
    Journal::resume(held, &keyring(), &[8; 32], source, &[options]).expect("a good disk")
}

#[test]
fn one_put_has_a_journal_and_the_next_gets_it_after_it() {
    let (_dir, folder) = journals();
    let journal = begin(&folder, NAME).expect("nobody has it");
    assert!(folder.take(NAME).expect("a good disk").is_none(), "it is in use");
    assert!(begin(&folder, "ff").is_some(), "another file's is not");
    drop(journal);
    let again = begin(&folder, NAME).expect("nobody has it any more");
    again.remove().expect("a good disk");
    // The lock's file is gone with it; a new one is locked by whoever comes next.
    assert!(folder.take(NAME).expect("a good disk").is_some());
}

#[test]
fn any_difference_of_source_or_options_is_another_put() {
    let (_dir, folder) = journals();
    drop(begin(&folder, NAME));
    let Header { source, options, .. } = header();
    let others = [
        Source { path: [0; 32], ..source },
        Source { bytes: source.bytes + 1, ..source },
        Source { changed: (source.changed.0, source.changed.1 + 1), ..source },
        Source { changed: (source.changed.0 + 1, source.changed.1), ..source },
        Source { inode: 1, ..source },
        Source { device: 1, ..source },
    ];
    for other in others {
        assert!(resumed(&folder, &other, options).is_none(), "{other:?}");
    }
    assert!(resumed(&folder, &source, [0; 32]).is_none());
    assert!(resumed(&folder, &source, options).is_some());
    let held = Arc::new(folder.take(NAME).expect("a good disk").expect("nobody has it"));
    let either = [[0; 32], options];
    let journal = Journal::resume(held, &keyring(), &[9; 32], &source, &either);
    let journal = journal.expect("a good disk").expect("one of two that may be");
    assert_eq!(journal.header().options, options);
}

#[test]
fn what_was_noted_is_known_to_the_next_run() {
    let (_dir, folder) = journals();
    let journal = begin(&folder, NAME).expect("nobody has it");
    let noted = |row| Noted { row, known: false, reached: None };
    journal.note(&[noted(page(0)), noted(page(1))]).expect("a good disk");
    journal.reached(0..1, 3, 3).expect("a good disk");
    journal.end(2).expect("a good disk");
    drop(journal);
    let Header { source, options, .. } = header();
    let journal = resumed(&folder, &source, options).expect("the same put");
    assert_eq!(journal.known.pages.len(), 2);
    assert_eq!(journal.known.pages[0].reached, Some((3, 3)));
    assert_eq!(journal.known.pages[1].reached, None);
    assert!(journal.check(2).beyond, "it ended after two pages");
    assert!(journal.end(2).is_ok());
    for other in [0, 1, 3] {
        assert!(matches!(journal.end(other), Err(AuthorError::Changed)), "{other}");
    }
}

#[test]
fn journals_nobody_comes_back_for_are_removed() {
    let (dir, folder) = journals();
    let name = |number: usize| format!("{number:032x}");
    let in_use = begin(&folder, &name(0)).expect("nobody has it");
    for number in 1..=JOURNALS_MAX + 3 {
        drop(begin(&folder, &name(number)));
    }
    let left = || {
        let names = std::fs::read_dir(dir.path().join("journals")).expect("it is there");
        let names = names.map(|entry| entry.expect("readable").file_name());
        names.filter(|name| !name.to_string_lossy().contains('.')).count()
    };
    folder.prune(SystemTime::now(), "");
    assert!(left() <= JOURNALS_MAX, "{}", left());
    folder.prune(SystemTime::now() + JOURNAL_AGE_MAX + Duration::from_secs(60), "");
    assert_eq!(left(), 1, "the one that is in use");
    drop(in_use);
    folder.prune(SystemTime::now() + JOURNAL_AGE_MAX + Duration::from_secs(60), "");
    assert_eq!(left(), 0);
}
