//! `hold document`: the original program's documents open, and what is sealed opens again.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{assert_only, assert_same, hold, random_file, run};

const SINGLE: (&str, &str, &str) = (
    "single-page",
    "d61402a209aee07a70b260ffe57284e65ecd20913e406e72edcfeb950f561737",
    "ddcb017d5cbffcc4b9ce982fde01a75668c1e514156471348986d1dff52aaa43",
);
const THREE: (&str, &str, &str) = (
    "three-pages",
    "958407de810f8d0cd17dd96a2a586116039737c1a185fc8144b9d2f0fd5753ce",
    "e2e7e9d3544c6368d42c0adb0f07c50b1f3d9c07b2d89aead008c1637a12fc2d",
);
/// The public key of the private key `02` x 32.
const READER: &str = "024d4b6cd1361032ca9bd2aeb9d900aa4d45d9ead80ac9423374c451a7254d0766";

fn testdata(set: &str) -> PathBuf {
    Path::new(testkit::manifest!()).join("../../testdata/libri").join(set)
}

fn key_file(folder: &Path, byte: &str) -> PathBuf {
    let path = folder.join(format!("key-{byte}"));
    std::fs::write(&path, byte.repeat(32)).unwrap();
    path
}

fn open(envelope: &str, suite: &str, key: &Path, dir: &Path, to: &Path) -> Command {
    let mut command = hold(["document", "open", envelope, "--suite", suite, "--reader-key"]);
    command.arg(key).arg("--dir").arg(dir).arg("-o").arg(to);
    command
}

fn seal(file: &Path, suite: &str, author: &Path, reader: &str, dir: &Path) -> Command {
    let mut command = hold(["document", "seal"]);
    command.arg(file).args(["--suite", suite, "--reader", reader, "--author-key"]);
    command.arg(author).arg("--dir").arg(dir);
    command
}

fn sha256(path: &Path) -> String {
    let done = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(done.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

#[test]
fn the_original_programs_documents_open() {
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(folder.path(), "02");
    for (set, envelope, hash) in [SINGLE, THREE] {
        let to = folder.path().join(set);
        run(&mut open(envelope, "libri-1", &key, &testdata(set), &to)).expect(0);
        assert_eq!(sha256(&to), hash, "{set}");
    }
    let other = key_file(folder.path(), "03");
    let to = folder.path().join("none");
    run(&mut open(SINGLE.1, "libri-1", &other, &testdata(SINGLE.0), &to)).expect_error(12);
    run(&mut open(&"0".repeat(64), "libri-1", &key, &testdata(SINGLE.0), &to)).expect_error(10);
    assert!(!to.exists());
}

#[test]
fn what_is_sealed_opens_again_and_shows() {
    let folder = tempfile::tempdir().unwrap();
    let (author, reader) = (key_file(folder.path(), "01"), key_file(folder.path(), "02"));
    let file = folder.path().join("file.txt");
    for (suite, bytes) in
        [("holdfast-1", 0), ("holdfast-1", 5 << 20), ("libri-1", 3000), ("libri-1", 5 << 20)]
    {
        random_file(&file, bytes, 3);
        let dir = folder.path().join(format!("{suite}-{bytes}"));
        std::fs::create_dir(&dir).unwrap();
        let key = run(&mut seal(&file, suite, &author, READER, &dir)).expect(0).text();
        assert_eq!(key.len(), 64, "{key}");
        let to = folder.path().join("back");
        run(&mut open(&key, suite, &reader, &dir, &to)).expect(0);
        assert_same(&file, &to);
        std::fs::remove_file(&to).unwrap();
        for item in std::fs::read_dir(&dir).unwrap() {
            let shown = run(hold(["document", "show", "--json"]).arg(item.unwrap().path()));
            assert!(shown.expect(0).json()["kind"].is_string());
        }
    }
}

/// The records in a folder by their kind.
fn kinds(dir: &Path) -> Vec<(String, PathBuf)> {
    let mut kinds: Vec<(String, PathBuf)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|item| {
            let path = item.unwrap().path();
            let shown = run(hold(["document", "show", "--json"]).arg(&path)).expect(0).json();
            (shown["kind"].as_str().unwrap().to_owned(), path)
        })
        .collect();
    kinds.sort();
    kinds
}

#[test]
fn stripes_open_with_any_k_of_their_fragments_and_not_with_fewer() {
    let folder = tempfile::tempdir().unwrap();
    let (author, reader) = (key_file(folder.path(), "01"), key_file(folder.path(), "02"));
    let (file, to) = (folder.path().join("file"), folder.path().join("to"));
    random_file(&file, 100_000, 3);
    let dir = folder.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    let sealed = run(seal(&file, "holdfast-1", &author, READER, &dir).args(["--stripes", "3/5"]));
    let key = sealed.expect(0).text();
    let records = kinds(&dir);
    let of = |kind: &str| -> Vec<&PathBuf> {
        records.iter().filter(|(found, _)| found == kind).map(|(_, path)| path).collect()
    };
    assert_eq!((of("page").len(), of("parity").len(), of("stripe").len()), (3, 2, 1));
    let show = |path: &Path| run(hold(["document", "show", "--json"]).arg(path)).expect(0).json();
    let header = show(of("stripe")[0]);
    assert_eq!((header["k"].as_u64(), header["n"].as_u64()), (Some(3), Some(5)));
    assert_eq!(header["fragments"].as_array().unwrap().len(), 5);
    let longest = header["lengths"].as_array().unwrap().iter().filter_map(|one| one.as_u64()).max();
    assert_eq!(show(of("parity")[0])["parity"].as_u64(), longest);
    let entry = show(of("entry")[0]);
    assert_eq!(entry["content"], "1 stripes of 3 pages");
    assert_eq!(entry["keys"][0], header["holdfast-1"]);

    run(&mut open(&key, "holdfast-1", &reader, &dir, &to)).expect(0);
    assert_same(&file, &to);
    std::fs::remove_file(&to).unwrap();
    std::fs::remove_file(of("page")[0]).unwrap();
    std::fs::remove_file(of("page")[2]).unwrap();
    run(&mut open(&key, "holdfast-1", &reader, &dir, &to)).expect(0);
    assert_same(&file, &to);
    std::fs::remove_file(&to).unwrap();
    std::fs::remove_file(of("parity")[0]).unwrap();
    run(&mut open(&key, "holdfast-1", &reader, &dir, &to)).expect_error(10);
    assert!(!to.exists());

    for bad in ["8/4", "4", "copies:3", "0/5", "200/300", "-1/5"] {
        let stripes = format!("--stripes={bad}");
        let mut command = seal(&file, "holdfast-1", &author, READER, &dir);
        run(command.arg(stripes)).expect_error(2);
    }
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let mut command = seal(&file, "libri-1", &author, READER, &empty);
    run(command.args(["--stripes", "3/5"])).expect_error(2);
    assert_only(&empty, &[]);
}

#[test]
fn a_pair_of_keys_seals_one_content_alone_in_libri_1() {
    let folder = tempfile::tempdir().unwrap();
    let author = key_file(folder.path(), "01");
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    random_file(&one, 1000, 1);
    random_file(&two, 1000, 2);
    let dir = folder.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    run(&mut seal(&one, "libri-1", &author, READER, &dir)).expect(0);
    let before = std::fs::read_dir(&dir).unwrap().count();
    run(&mut seal(&two, "libri-1", &author, READER, &dir)).expect_error(14);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), before, "nothing was written");
    run(&mut seal(&two, "libri-1", &key_file(folder.path(), "04"), READER, &dir)).expect(0);
    std::fs::write(&one, "").unwrap();
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    run(&mut seal(&one, "libri-1", &author, READER, &empty)).expect_error(2);
    assert_only(&empty, &[]);
}

#[test]
fn a_changed_document_does_not_open() {
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(folder.path(), "02");
    let dir = folder.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    for item in std::fs::read_dir(testdata(THREE.0)).unwrap() {
        let item = item.unwrap();
        std::fs::copy(item.path(), dir.join(item.file_name())).unwrap();
    }
    let to = folder.path().join("to");
    for item in std::fs::read_dir(&dir).unwrap() {
        let path = item.unwrap().path();
        let whole = std::fs::read(&path).unwrap();
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 1;
        std::fs::write(&path, &changed).unwrap();
        run(&mut open(THREE.1, "libri-1", &key, &dir, &to)).expect_error(16);
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        run(&mut open(THREE.1, "libri-1", &key, &dir, &to)).expect_error(16);
        std::fs::write(&path, &whole).unwrap();
        assert!(!to.exists(), "nothing may stand under the final name");
    }
    run(&mut open(THREE.1, "libri-1", &key, &dir, &to)).expect(0);
}
