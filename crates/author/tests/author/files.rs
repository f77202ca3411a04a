//! Gets into files: whole under the final name, or nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use author::{AuthorError, NoProgress};
use crypto::{Class, Classified, Suite};
use env::Env;
use testkit::network::Fault;

use crate::network::{Net, noise, put};

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

fn quiet() -> Arc<NoProgress> {
    Arc::new(NoProgress)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_comes_back_under_its_name_and_nothing_else_does() {
    let net = Net::new(&Env::real(), 3, 9, Suite::Holdfast1);
    let author = net.user("ada");
    let content = noise(1, (7 << 20) + 1);
    let address = put(&author, &content).await.unwrap().address;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.bin");
    std::fs::write(&path, b"what was there").unwrap();
    let report = author.get_file(address, &path, None, quiet()).await.unwrap();
    assert_eq!(report.bytes, content.len() as u64);
    assert!(std::fs::read(&path).unwrap() == content);
    author.get_file(address, &path, Some(5..9), quiet()).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), content[5..9]);
    assert_eq!(names(dir.path()), ["out.bin"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_leaves_the_old_file_and_no_other() {
    let net = Net::copying(&Env::real());
    let author = net.user("ada");
    let report = put(&author, &noise(1, 5 << 20)).await.unwrap();
    let last = author.info(report.address).await.unwrap().fragments.pop().unwrap();
    assert!(net.peers.iter().filter(|peer| peer.memory.lose(&last.id)).count() > 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.bin");
    std::fs::write(&path, b"what was there").unwrap();
    let error = author.get_file(report.address, &path, None, quiet()).await.unwrap_err();
    assert_eq!(error.class(), Class::NotFound);
    assert_eq!(std::fs::read(&path).unwrap(), b"what was there");
    assert_eq!(names(dir.path()), ["out.bin"]);
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_told_before_anything_is_fetched() {
    let net = Net::new(&Env::real(), 3, 9, Suite::Holdfast1);
    let author = net.user("ada");
    let address = put(&author, b"content").await.unwrap().address;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let cases: [(PathBuf, &[Class]); 4] = [
        (dir.path().join("missing/out"), &[Class::NotFound]),
        (dir.path().to_owned(), &[Class::Invalid]),
        (file.join("out"), &[Class::Invalid, Class::Unavailable]),
        // Nobody, not even root, makes files there.
        (PathBuf::from("/proc/out"), &[Class::NotFound, Class::Denied]),
    ];
    let before = net.network.total();
    for (path, classes) in cases {
        let error = author.get_file(address, &path, None, quiet()).await.unwrap_err();
        assert!(matches!(error, AuthorError::Io { .. }), "{error:?}");
        assert!(classes.contains(&error.class()), "{path:?}: {error:?}");
    }
    assert_eq!(net.network.total(), before);
    assert_eq!(names(dir.path()), ["file"]);
}

/// Cancelled after ever more of it was done: no file of either name is left, and the window is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_get_leaves_no_file_and_a_cancelled_put_no_lease() {
    let env = Env::real();
    let net = Net::new(&env, 3, 9, Suite::Holdfast1);
    let author = net.user("ada");
    let content = noise(1, 6 << 20);
    let address = put(&author, &content).await.unwrap().address;
    for peer in &net.peers {
        net.network.set(&peer.id, Fault::Delay(Duration::from_millis(10)));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.bin");
    let mut unfinished = 0;
    for delay in (0..12).map(|step| Duration::from_millis(step * 6)) {
        let cancelled = env.within(delay, author.get_file(address, &path, None, quiet())).await;
        // A thread that was creating or naming the file ends by itself.
        let settled = async {
            while names(dir.path()).iter().any(|name| name != "out.bin") {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        env.within(Duration::from_secs(30), settled).await.expect("no temporary file is left");
        if path.exists() {
            assert!(std::fs::read(&path).unwrap() == content, "whole or not at all");
            std::fs::remove_file(&path).unwrap();
        } else {
            assert!(cancelled.is_err());
            unfinished += 1;
        }
    }
    assert!(unfinished >= 2, "{unfinished} were cancelled in time");
    for delay in (0..12).map(|step| Duration::from_millis(step * 8)) {
        let _ = env.within(delay, Box::pin(put(&author, &content))).await;
    }
    // Copies that were on their way end by themselves.
    for _ in 0..500 {
        if author.window_bytes().0 == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(author.window_bytes().0, 0, "every lease is given back");
    let log = net.shared.log.borrow().clone();
    for (publication, _) in log {
        let got = author.get(publication.envelope, &mut Vec::new(), None, quiet()).await;
        got.expect("what can be found is complete");
    }
}
