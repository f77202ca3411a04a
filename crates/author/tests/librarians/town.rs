//! Librarians on memory stores, and users who hold passes.

use std::sync::Arc;
use std::time::Duration;

use author::objects::{Objects, ObjectsOptions};
use author::{Author, AuthorOptions, Home, LEASE_SECONDS, Payer};
use crypto::{ClientKey, Tier};
use env::Env;
use env::calls::{Credential, Endpoint, IntroduceRequest};
use env::disk::DirDisk;
use librarian::{Librarian, LibrarianOptions};
use overlay::MemoryMesh;
use store::{Durability, Journal, JournalOptions, MemoryStore};
use tempfile::TempDir;
use testkit::network::{Community, DirectNetwork, Fault, community};
use walk::{Directory, WalkOptions, Walker};

const LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Town {
    env: Env,
    pub(crate) community: Community,
    pub(crate) network: Arc<DirectNetwork>,
    mesh: MemoryMesh,
    folder: TempDir,
    pub(crate) peers: Vec<Arc<Librarian>>,
}

impl Town {
    /// A network of so many librarians who know each other.
    pub(crate) async fn new(env: &Env, peers: usize) -> Self {
        let members = overlay::everybody();
        let mut town = Self {
            env: env.clone(),
            community: community(3, peers),
            network: DirectNetwork::new(env.clone()),
            mesh: MemoryMesh::with(env.clock.clone(), members),
            folder: tempfile::tempdir().unwrap(),
            peers: Vec::new(),
        };
        for number in 0..peers {
            let peer = town.start(number).await;
            town.peers.push(peer);
        }
        for _ in 0..6_000 {
            if town.peers.iter().all(|peer| peer.directory().view().len() == peers) {
                return town;
            }
            env.clock.sleep(Duration::from_millis(100)).await;
        }
        panic!("they do not come to know each other");
    }

    async fn start(&self, number: usize) -> Arc<Librarian> {
        let member = &self.community.members[number];
        let genesis = self.community.genesis.clone();
        let certificate = member.certificate.clone();
        let mut options = LibrarianOptions::new(member.key.clone(), genesis, certificate);
        if number > 0 {
            options.bootstrap = vec![self.community.members[0].address.clone()];
        }
        let disk = DirDisk::open(self.folder.path().join(format!("peer-{number}"))).unwrap();
        let journal = JournalOptions { durability: Durability::Memory, ..Default::default() };
        let journal = Journal::open(Arc::new(disk), self.env.clone(), "news", journal).unwrap();
        let overlay = self.mesh.join(member.peer);
        let calls = self.network.calls(member.key.public());
        let (env, store) = (self.env.clone(), Arc::new(MemoryStore::new()));
        let peer = Librarian::start(options, env, store, journal, overlay, calls).await.unwrap();
        self.network.serve(&member.address, member.peer, peer.service());
        peer
    }

    /// A user with a pass; the same one again, with nothing remembered, for the same name.
    pub(crate) async fn user(&self, name: &str) -> Objects {
        Objects::new(&self.author(name, 0, false).await, ObjectsOptions::default())
    }

    /// A user of an organisation whose records are paid for.
    pub(crate) async fn payer(&self, name: &str, organisation: usize) -> Arc<Author> {
        self.author(name, organisation, true).await
    }

    pub(crate) async fn author(&self, name: &str, organisation: usize, pays: bool) -> Arc<Author> {
        let dir = self.folder.path().join(name);
        let home = match Home::exists(&dir) {
            true => Home::open(&dir, b"words"),
            false => Home::create_with(&dir, b"words", self.env.entropy.as_ref(), 10),
        };
        let home = Arc::new(home.unwrap());
        let client: ClientKey = home.keyring().client_key();
        let calls = self.network.calls(*client.key());
        let pass = self.community.pass(client, organisation, Tier::Own, &self.env);
        for member in &self.community.members {
            let to = Endpoint::of(member.peer, member.address.clone());
            let request = IntroduceRequest::new(Credential::Client(pass.clone()), 0);
            // One that is cut off is introduced to later, by nobody: it is a test's matter which ones are.
            let _ = calls.introduce(&to, request, LIMIT).await;
        }
        let directory = Directory::new(self.community.genesis.clone(), self.env.clone(), None);
        directory.learn_from(&self.community.known());
        let credential = Credential::Client(pass);
        let options = WalkOptions { credential, ..WalkOptions::default() };
        let walker = Walker::new(self.env.clone(), calls, directory, options);
        let secret = home.keyring().client();
        let payer = pays.then_some(Payer { secret, seconds: LEASE_SECONDS });
        Author::paying(self.env.clone(), home, walker, &AuthorOptions::default(), payer)
    }

    /// Cuts these peers off, or lets them back.
    pub(crate) fn cut(&self, peers: &[crypto::PeerId]) {
        self.network.heal();
        peers.iter().for_each(|peer| self.network.set(peer, Fault::Down));
    }
}
