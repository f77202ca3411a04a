//! Rot on a peer's disk: whichever byte of its files changes, a get gives the right bytes or an
//! error, never other bytes. Every byte for a small file, a sample for one of several pages.
//!
//! The store, the librarian and the author are the real ones; the disk is in memory, so that each
//! changed byte is a freshly opened store.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::sync::Arc;

use author::{Author, AuthorOptions, Home, NoProgress, PutOptions};
use crypto::{RecordId, Suite, Tier};
use env::calls::Credential;
use env::disk::Disk;
use env::{Env, SystemEntropy};
use librarian::{Librarian, LibrarianOptions};
use overlay::MemoryMesh;
use store::{Journal, JournalOptions, LogOptions, LogStore, StoreError};
use testkit::disk::FaultyDisk;
use testkit::network::{Community, CommunityOptions, DirectNetwork};
use walk::{Directory, WalkOptions, Walker};

/// Bytes changed in the file of several pages: one in so many.
const SAMPLE_EVERY: usize = 8_191;

/// A network of one peer, and a user of it.
struct Town {
    env: Env,
    community: Community,
    network: Arc<DirectNetwork>,
    mesh: MemoryMesh,
    home: Arc<Home>,
    _folder: tempfile::TempDir,
}

/// What a get of the whole content ended with.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Right,
    Error,
}

impl Town {
    fn new() -> Self {
        let env = Env::real();
        let options = CommunityOptions {
            organisations: 1,
            peers: 1,
            suite: Suite::Holdfast1,
            copies: Some(1),
            capacity: 1 << 40,
        };
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create_with(&folder.path().join("home"), b"x", &SystemEntropy, 10);
        Self {
            network: DirectNetwork::new(env.clone()),
            mesh: MemoryMesh::new(),
            community: Community::new(&options),
            home: Arc::new(home.unwrap()),
            env,
            _folder: folder,
        }
    }

    /// Serves what is on a disk.
    async fn serve(&self, disk: &FaultyDisk) -> Result<Arc<Librarian>, StoreError> {
        let member = &self.community.members[0];
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let store = LogStore::open(disk, self.env.clone(), LogOptions::default())?;
        let news: Arc<dyn Disk> = Arc::new(FaultyDisk::new(1));
        let journal = Journal::open(news, self.env.clone(), "news", JournalOptions::default())?;
        let options = LibrarianOptions::new(
            member.key.clone(),
            self.community.genesis.clone(),
            member.certificate.clone(),
        );
        let calls = self.network.calls(member.key.public());
        let overlay = self.mesh.join(member.peer);
        let started =
            Librarian::start(options, self.env.clone(), store, journal, overlay, calls).await;
        let librarian = started.unwrap();
        self.network.serve(&member.address, member.peer, librarian.service());
        Ok(librarian)
    }

    async fn author(&self) -> Arc<Author> {
        let key = self.home.keyring().client_key();
        let pass = self.community.pass(key, 0, Tier::Own, &self.env);
        let genesis = self.community.genesis.clone();
        let directory = Directory::new(genesis, self.env.clone(), None);
        let options =
            WalkOptions { credential: Credential::Client(pass), ..WalkOptions::default() };
        let calls = self.network.calls(*key.key());
        let walker = Walker::new(self.env.clone(), calls, directory, options);
        walker.join(&[self.community.members[0].address.clone()]).await.unwrap();
        Author::new(self.env.clone(), self.home.clone(), walker, &AuthorOptions::default())
    }

    /// A disk with one content on it.
    async fn put(&self, content: &[u8]) -> (FaultyDisk, RecordId) {
        let disk = FaultyDisk::new(1);
        let librarian = self.serve(&disk).await.unwrap();
        let author = self.author().await;
        let put = author.put(content, PutOptions::default(), Arc::new(NoProgress)).await.unwrap();
        librarian.stop().await.unwrap();
        (disk, put.address)
    }

    /// Gets the content from a disk of which one byte changed.
    async fn get(&self, disk: &FaultyDisk, address: RecordId, content: &[u8]) -> Seen {
        let Ok(librarian) = self.serve(disk).await else { return Seen::Error };
        let author = self.author().await;
        let mut got = Vec::new();
        let done = author.get(address, &mut got, None, Arc::new(NoProgress)).await;
        librarian.stop().await.unwrap();
        if done.is_err() {
            assert!(content.starts_with(&got), "other bytes before the error");
            return Seen::Error;
        }
        assert!(got == content, "other bytes, and no error");
        Seen::Right
    }

    /// Changes one byte in `step` of every file, one at a time; gives how many ended with an error.
    async fn flip_all(&self, content: &[u8], step: usize) -> (usize, usize) {
        let (disk, address) = self.put(content).await;
        assert_eq!(self.get(&disk.copy(), address, content).await, Seen::Right);
        let (mut flips, mut errors) = (0, 0);
        for name in disk.list().unwrap() {
            let len = disk.bytes(&name).unwrap().len();
            for offset in (0..len).step_by(step) {
                let rotten = disk.copy();
                rotten.flip(&name, offset, 1 << (offset % 8));
                flips += 1;
                errors += usize::from(self.get(&rotten, address, content).await == Seen::Error);
            }
        }
        (flips, errors)
    }
}

#[tokio::test]
async fn any_byte_of_a_small_file_may_rot() {
    let content = b"a letter of few words";
    let (flips, errors) = Town::new().flip_all(content, 1).await;
    // One copy only: what changes a record's bytes must be an error.
    assert!(errors > 500 && flips >= errors, "{errors} errors of {flips}");
}

#[tokio::test]
async fn sampled_bytes_of_a_large_file_may_rot() {
    let mut content = vec![0; 5 << 20];
    env::Entropy::fill(&SystemEntropy, &mut content);
    let (flips, errors) = Town::new().flip_all(&content, SAMPLE_EVERY).await;
    assert!(errors * 10 > flips * 9, "{errors} errors of {flips}");
}
