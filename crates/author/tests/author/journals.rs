//! Interrupted puts of files: the next one goes on under the same key where it may, and under another where anything differs.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use author::{
    Author, AuthorError, AuthorOptions, Below, JOURNAL_AGE_MAX, NoProgress, Progress, PutOptions,
    PutReport,
};
use crypto::{PeerId, PeerState, RecordId, Suite};
use document::{Document, Kind};
use env::Env;
use testkit::network::Fault;

use crate::network::{Net, get, noise};

const BYTES: usize = (24 << 20) + 5;

/// Asks for a stop when so many records are acknowledged.
struct StopAfter {
    left: Mutex<u64>,
    stop: tokio::sync::Notify,
    restarts: AtomicU64,
}

impl StopAfter {
    fn new(records: u64) -> Arc<Self> {
        let left = Mutex::new(records);
        Arc::new(Self { left, stop: tokio::sync::Notify::new(), restarts: AtomicU64::new(0) })
    }
}

impl Progress for StopAfter {
    fn acked(&self, copies: u32, _bytes: u64) {
        let mut left = self.left.lock().unwrap();
        if copies > 0 && *left > 0 {
            *left -= 1;
            if *left == 0 {
                self.stop.notify_one();
            }
        }
    }

    fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }
}

struct Town {
    net: Net,
    author: Arc<Author>,
    file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Town {
    fn new(suite: Suite) -> Self {
        let net = Net::new(&Env::real(), 3, 4, suite);
        let author = net.user("ada");
        Self::of(net, author)
    }

    /// Nine peers keep stripes of 4/8, and the window holds one of them at a time.
    fn striped() -> Self {
        let net = Net::new(&Env::real(), 3, 9, Suite::Holdfast1);
        let author = net.user_with("ada", &AuthorOptions { window_bytes: 16 << 20 });
        Self::of(net, author)
    }

    fn of(net: Net, author: Arc<Author>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("big.bin");
        std::fs::write(&file, noise(1, BYTES)).unwrap();
        Self { net, author, file, _dir: dir }
    }

    fn journals(&self) -> Vec<PathBuf> {
        journals(&self.author)
    }

    /// A put that is dropped when so many records were acknowledged.
    async fn interrupted(&self, options: &PutOptions, records: u64) {
        let progress = StopAfter::new(records);
        let put = self.author.put_file(&self.file, options.clone(), true, progress.clone());
        tokio::select! {
            biased;
            () = progress.stop.notified() => {}
            done = put => panic!("it was done before it was stopped: {done:?}"),
        }
        let journals = self.journals();
        assert_eq!(journals.len(), 1);
        // Notes that were being written when it was dropped end by themselves, and then nobody has the journal.
        let lock = std::fs::File::open(journals[0].with_extension("lock")).unwrap();
        while self.author.window_bytes().0 > 0 || lock.try_lock().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn put(&self, options: &PutOptions) -> PutReport {
        put(&self.author, &self.file, options).await.unwrap()
    }

    async fn is_stored(&self, report: &PutReport) {
        let (bytes, _) = get(&self.author, report.address).await.unwrap();
        assert!(bytes == std::fs::read(&self.file).unwrap());
        assert_eq!(self.journals(), Vec::<PathBuf>::new(), "no journal is left");
        assert_nothing_sealed_twice(&self.net);
    }
}

fn journals(author: &Author) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(author.home().dir().join("journals")) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_none()).collect()
}

async fn put(author: &Author, file: &Path, options: &PutOptions) -> Result<PutReport, AuthorError> {
    author.put_file(file, options.clone(), true, Arc::new(NoProgress)).await
}

/// No author key and index is on two different pages anywhere: whoever saw both would have two texts under one nonce.
fn assert_nothing_sealed_twice(net: &Net) {
    let mut seen: BTreeMap<([u8; 33], u32), RecordId> = BTreeMap::new();
    for peer in &net.peers {
        for record in peer.memory.all().into_iter().filter(|record| record.kind == Kind::Page) {
            let Ok(Document::Page(page)) = Document::decode(&record.bytes) else { continue };
            let key = (*page.author.as_bytes(), page.index);
            let first = *seen.entry(key).or_insert(record.id);
            assert_eq!(first, record.id, "page {} was sealed twice under one key", page.index);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_put_goes_on_and_sends_the_rest() {
    for suite in Suite::ALL {
        let town = Town::new(suite);
        let options = PutOptions::default();
        let mut before = 0;
        for records in [8, 3] {
            town.interrupted(&options, records).await;
            before += 1;
        }
        let report = town.put(&options).await;
        assert!(report.resumed.pages >= 1 && report.resumed.bytes > 1 << 20, "{report:?}");
        let left = (BYTES as u64).saturating_sub(report.resumed.bytes);
        assert!(report.sent < 3 * left + (1 << 20), "{report:?}");
        assert!(report.full && report.bytes == BYTES as u64);
        town.is_stored(&report).await;
        // All runs together used the counters of one put.
        assert_eq!(town.author.home().next_counter().unwrap(), 1, "after {before} interruptions");
        let again = town.put(&options).await;
        assert_ne!(again.address, report.address, "a put that is done is done");
        assert_eq!(again.resumed.pages, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_put_of_stripes_goes_on_with_whole_stripes() {
    let town = Town::striped();
    let options = PutOptions::default();
    // Two of its four stripes had their threshold, and the first one all it wants.
    town.interrupted(&options, 2).await;
    let report = town.put(&options).await;
    assert!(report.resumed.pages >= 4 && report.resumed.pages.is_multiple_of(4), "{report:?}");
    assert!(report.resumed.bytes >= 8 << 20, "{report:?}");
    let left = (BYTES as u64).saturating_sub(report.resumed.bytes);
    assert!(report.sent < 2 * left + (1 << 20), "{report:?}");
    assert!(report.full && report.stored > 2 * BYTES as u64, "{report:?}");
    town.is_stored(&report).await;

    // The same pages lie elsewhere with more parity, and are cut elsewhere with another k: neither is gone on with.
    for other in ["4/9", "3/8", "copies:2"] {
        town.interrupted(&options, 2).await;
        let profile = Some(other.parse().unwrap());
        let report = town.put(&PutOptions { profile, ..options.clone() }).await;
        assert_eq!(report.resumed.pages, 0, "{other}: {report:?}");
        town.is_stored(&report).await;
    }
}

/// Where nobody asked for a profile an interrupted put goes on with the one that it began with, whoever came back since; but not with
/// one for which too few answer by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_put_keeps_its_profile_when_peers_come_and_go() {
    let net = Net::new(&Env::real(), 3, 18, Suite::Holdfast1);
    // Thirteen answer, and the row of eighteen waits for fourteen.
    let numbers = [0, 3, 6, 9, 12];
    let unrun: Vec<PeerId> = numbers.iter().map(|number| net.community.peer(*number)).collect();
    unrun.iter().for_each(|peer| net.network.set(peer, Fault::Down));
    let author = net.user_with("ada", &AuthorOptions { window_bytes: 16 << 20 });
    author.walker().join(&[net.community.members[1].address.clone()]).await.unwrap();
    let town = Town::of(net, author);
    let directory = town.author.walker().directory();
    let options = PutOptions::default();
    town.interrupted(&options, 2).await;
    for peer in &unrun {
        town.net.network.set(peer, Fault::None);
        directory.good(peer, Duration::from_millis(1));
    }
    let report = town.put(&options).await;
    assert!(report.resumed.pages >= 4, "{report:?}");
    assert_eq!(report.profile.to_string(), "4/8");
    town.is_stored(&report).await;

    town.interrupted(&options, 1).await;
    for number in numbers {
        let stopped = town.net.community.announce(number, PeerState::Stopped, 2);
        directory.learn(&stopped).unwrap();
    }
    let report = town.put(&options).await;
    assert_eq!(report.resumed.pages, 0, "8/16 needs fourteen: {report:?}");
    assert_eq!(report.profile.to_string(), "4/8");
    town.is_stored(&report).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_differs_is_sealed_under_another_key() {
    let town = Town::new(Suite::Holdfast1);
    let reader = *town.net.user("grace").reader_keys().first().unwrap();
    let plain = PutOptions::default();
    let named = PutOptions { name: Some("another".to_owned()), ..PutOptions::default() };
    let shared = PutOptions { readers: vec![reader], ..PutOptions::default() };
    let typed = PutOptions { media_type: Some("a/b".to_owned()), ..PutOptions::default() };
    let longer = PutOptions { lease_seconds: Some(77), ..PutOptions::default() };
    for other in [named, shared, typed, longer] {
        town.interrupted(&plain, 4).await;
        let report = town.put(&other).await;
        assert_eq!(report.resumed.pages, 0, "{other:?}");
        town.is_stored(&report).await;
    }
    // The file is longer, or was touched.
    town.interrupted(&plain, 4).await;
    std::fs::write(&town.file, noise(1, BYTES + 1)).unwrap();
    let report = town.put(&plain).await;
    assert_eq!((report.resumed.pages, report.bytes), (0, BYTES as u64 + 1));
    town.is_stored(&report).await;
}

/// What an earlier try stored is paid until the time that was set then, so the whole is; and once that is over it starts anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_goes_on_is_paid_until_the_time_that_was_set_when_it_began() {
    let net = Net::new(&Env::real(), 3, 4, Suite::Holdfast1);
    let author = net.payer("ada", 3600);
    let town = Town::of(net, author);
    let now = || town.net.env.clock.unix_s();
    let options = PutOptions::default();
    let began = now();
    town.interrupted(&options, 4).await;
    while now() < began + 3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let went_on = now();
    let report = town.put(&options).await;
    assert!(report.resumed.pages > 0, "{report:?}");
    let until = report.until.unwrap();
    assert!((began + 3600..went_on + 3600).contains(&until), "{until}, begun at {began}");

    let short = PutOptions { lease_seconds: Some(1), ..PutOptions::default() };
    town.interrupted(&short, 4).await;
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let report = town.put(&short).await;
    assert_eq!(report.resumed.pages, 0, "nobody pays for what was stored");
}

/// The holders of a content that was forgotten dropped it, whatever they had acknowledged of it before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_whose_key_was_forgotten_starts_anew() {
    let town = Town::new(Suite::Holdfast1);
    let options = PutOptions::default();
    town.interrupted(&options, 8).await;
    let home = town.author.home();
    let reader = crypto::ReaderKey::new(home.keyring().own_reader(0).public());
    assert!(home.forget_counter(&reader).unwrap());
    let report = town.put(&options).await;
    assert_eq!(report.resumed.pages, 0, "{report:?}");
    town.is_stored(&report).await;
    assert_eq!(home.next_counter().unwrap(), 2, "under another key");
}

/// Also where the forgetting was not brought to its end, and the key is not forgotten: what some holders heard is gone there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_of_what_was_begun_to_be_forgotten_starts_anew() {
    let net = Net::new(&Env::real(), 3, 4, Suite::Holdfast1);
    let author = net.payer("ada", 3600);
    let town = Town::of(net, author);
    let options = PutOptions::default();
    town.interrupted(&options, 8).await;
    let journal = town.journals().pop().unwrap();
    let left = std::fs::read(&journal).unwrap();
    let report = town.put(&options).await;
    assert!(report.resumed.pages > 0, "{report:?}");
    // As if it had been killed before it removed its journal; these peers know of no leases, so nothing is brought to an end.
    std::fs::write(&journal, left).unwrap();
    let ended = town.author.forget(report.address).await;
    assert!(ended.as_ref().map_or(true, |ended| !ended.key_forgotten), "{ended:?}");
    assert!(town.journals().is_empty());
    assert_eq!(town.put(&options).await.resumed.pages, 0);
}

/// Same path, size, time of change and inode, other bytes in one chunk: found before the chunk is sealed, wherever it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_chunk_behind_an_unchanged_face_is_found() {
    for at in [0, 3 << 20, 7 << 20] {
        let town = Town::new(Suite::Holdfast1);
        let options = PutOptions::default();
        let about = std::fs::metadata(&town.file).unwrap();
        town.interrupted(&options, 10).await;
        let mut bytes = std::fs::read(&town.file).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&town.file, &bytes).unwrap();
        let file = std::fs::File::options().write(true).open(&town.file).unwrap();
        file.set_modified(about.modified().unwrap()).unwrap();
        let now = std::fs::metadata(&town.file).unwrap();
        assert_eq!(
            (about.ino(), about.mtime_nsec(), about.len()),
            (now.ino(), now.mtime_nsec(), now.len())
        );
        let progress = StopAfter::new(0);
        let put = town.author.put_file(&town.file, options, true, progress.clone());
        let report = put.await.unwrap();
        assert_eq!(progress.restarts.load(Ordering::Relaxed), 1);
        assert_eq!(report.resumed.pages, 0);
        town.is_stored(&report).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_journal_is_not_gone_on_with() {
    let town = Town::new(Suite::Holdfast1);
    let options = PutOptions::default();
    town.interrupted(&options, 4).await;
    let journal = town.journals().pop().unwrap();
    let mut bytes = std::fs::read(&journal).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 4;
    std::fs::write(&journal, bytes).unwrap();
    let report = town.put(&options).await;
    assert_eq!(report.resumed.pages, 0);
    town.is_stored(&report).await;

    town.interrupted(&options, 4).await;
    let fresh = town.author.put_file(&town.file, options, false, Arc::new(NoProgress));
    let report = fresh.await.unwrap();
    assert_eq!(report.resumed.pages, 0, "it was told not to resume");
    town.is_stored(&report).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_file_any_more_since_it_was_found_is_not_followed() {
    let town = Town::new(Suite::Holdfast1);
    let put = async |path: &Path| {
        let folder = Arc::new(Below::open(path.parent().unwrap()).unwrap());
        let (name, options) = (path.file_name().unwrap(), PutOptions::default());
        let progress = Arc::new(NoProgress);
        town.author.put_found_file(&folder, Path::new(name), options, true, progress).await
    };
    put(&town.file).await.unwrap();
    let [link, pipe] = ["link", "pipe"].map(|name| town.file.with_file_name(name));
    std::os::unix::fs::symlink(&town.file, &link).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for path in [&link, &pipe] {
        let refused = put(path).await.unwrap_err();
        assert!(matches!(refused, AuthorError::Io { .. }), "{refused}");
    }
}

/// What a killed put left and nobody goes on with is removed by the next put of anything, unless somebody has it or it is young.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_nobody_comes_back_for_is_removed_by_the_next_put_of_anything() {
    let town = Town::new(Suite::Holdfast1);
    town.interrupted(&PutOptions::default(), 4).await;
    let (journal, small) = (town.journals().pop().unwrap(), town.file.with_file_name("small"));
    let lock = journal.with_extension("lock");
    std::fs::write(&small, b"a letter").unwrap();
    // Each is a program of its own: it looks once.
    let next = || async {
        put(&town.net.user("ada"), &small, &PutOptions::default()).await.unwrap();
        town.journals().len()
    };
    assert_eq!(next().await, 1, "it may be gone on with");
    let long_ago = std::time::SystemTime::now() - JOURNAL_AGE_MAX - Duration::from_secs(60);
    for path in [&journal, &lock] {
        std::fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
    }
    let held = std::fs::File::open(&lock).unwrap();
    held.lock().unwrap();
    assert_eq!(next().await, 1, "another program has it");
    drop(held);
    assert_eq!(next().await, 0);
    assert!(!lock.exists());
}

/// A put that failed for want of peers goes on when they are back, at the address it would have had; readers get one
/// envelope each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_failed_at_its_end_goes_on_to_the_same_address() {
    let town = Town::new(Suite::Holdfast1);
    let reader = town.net.user("grace");
    let options = PutOptions { readers: vec![reader.reader_keys()[1]], ..PutOptions::default() };
    // Envelopes and entries are refused: all pages are stored, and then it fails.
    for peer in &town.net.peers {
        peer.refuse_entries(true);
    }
    let failed = put(&town.author, &town.file, &options).await.unwrap_err();
    assert!(matches!(failed, AuthorError::Store { .. }), "{failed:?}");
    for peer in &town.net.peers {
        peer.refuse_entries(false);
    }
    let report = town.put(&options).await;
    assert_eq!(report.resumed.pages, (BYTES as u64).div_ceil(2 << 20));
    assert!(report.sent < 1 << 20, "only the entry and the envelopes: {}", report.sent);
    town.is_stored(&report).await;
    let (bytes, _) = get(&reader, report.envelopes[0].address).await.unwrap();
    assert_eq!(bytes.len(), BYTES);
    assert_eq!(town.author.home().next_counter().unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_puts_of_one_file_at_once_use_two_keys() {
    let town = Town::new(Suite::Holdfast1);
    let options = PutOptions::default();
    let (first, second) = tokio::join!(
        put(&town.author, &town.file, &options),
        put(&town.author, &town.file, &options)
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_ne!(first.address, second.address);
    town.is_stored(&first).await;
    town.is_stored(&second).await;
}

/// A journal that cannot be written is gone, and the put goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_that_takes_no_journal_takes_puts() {
    let town = Town::new(Suite::Holdfast1);
    // A file where the folder should be: nothing can be made in it, also by root.
    std::fs::write(town.author.home().dir().join("journals"), b"").unwrap();
    let report = town.put(&PutOptions::default()).await;
    assert!(report.full);
    town.is_stored(&report).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_files_and_missing_ones_have_no_journal() {
    let town = Town::new(Suite::Holdfast1);
    std::fs::write(&town.file, noise(1, 1 << 20)).unwrap();
    let report = town.put(&PutOptions::default()).await;
    town.is_stored(&report).await;
    assert!(!town.author.home().dir().join("journals").exists());
    let error = put(&town.author, &town.file.join("none"), &PutOptions::default()).await;
    assert!(matches!(error, Err(AuthorError::Io { .. })), "{error:?}");
}
