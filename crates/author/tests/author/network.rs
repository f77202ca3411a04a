//! A network in this process, and users in it.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use author::{
    Author, AuthorError, AuthorOptions, GetReport, Home, NoProgress, Payer, PutOptions, PutReport,
};
use crypto::{PeerId, ReaderKey, RecordId, Suite, Tier};
use env::Env;
use env::calls::Credential;
use testkit::network::{Community, CommunityOptions, DirectNetwork, Fault, key};
use walk::{Directory, WalkOptions, Walker};

use crate::peer::{Peer, Shared};

pub(crate) struct Net {
    pub(crate) env: Env,
    pub(crate) community: Community,
    pub(crate) network: Arc<DirectNetwork>,
    pub(crate) peers: Vec<Arc<Peer>>,
    pub(crate) shared: Shared,
    homes: tempfile::TempDir,
}

pub(crate) const PASSPHRASE: &[u8] = b"correct horse";

impl Net {
    pub(crate) fn new(env: &Env, organisations: usize, peers: usize, suite: Suite) -> Self {
        Self::with(env, organisations, peers, suite, None)
    }

    /// Three organisations and nine peers that keep three copies of each page.
    pub(crate) fn copying(env: &Env) -> Self {
        Self::with(env, 3, 9, Suite::Holdfast1, Some(3))
    }

    pub(crate) fn with(
        env: &Env,
        organisations: usize,
        peers: usize,
        suite: Suite,
        copies: Option<u32>,
    ) -> Self {
        let capacity = 1 << 40;
        let options = CommunityOptions { organisations, peers, suite, copies, capacity };
        let community = Community::new(&options);
        let (network, memories) = community.network(env);
        let shared = Shared::new();
        let peers = community.members.iter().zip(memories).map(|(member, memory)| {
            let peer = Arc::new(Peer {
                id: member.peer,
                memory,
                shared: shared.clone(),
                env: env.clone(),
                log_start: Mutex::new(0),
                invented: Mutex::default(),
                endless: AtomicBool::new(false),
                damaged: AtomicBool::new(false),
                slow: Mutex::default(),
                pages_alone: AtomicBool::new(false),
                claims_all: AtomicBool::new(false),
            });
            network.serve(&member.address, member.peer, peer.clone());
            peer
        });
        let peers = peers.collect();
        let homes = tempfile::tempdir().unwrap();
        Self { env: env.clone(), community, network, peers, shared, homes }
    }

    pub(crate) fn home_dir(&self, name: &str) -> PathBuf {
        self.homes.path().join(name)
    }

    /// A user with a home of its own; the same one again for the same name.
    pub(crate) fn user(&self, name: &str) -> Arc<Author> {
        self.user_with(name, &AuthorOptions::default())
    }

    pub(crate) fn user_with(&self, name: &str, options: &AuthorOptions) -> Arc<Author> {
        self.user_knowing(name, options, usize::MAX)
    }

    /// A user who knows only the first so many peers, as just after joining.
    pub(crate) fn user_knowing(
        &self,
        name: &str,
        options: &AuthorOptions,
        peers: usize,
    ) -> Arc<Author> {
        let dir = self.home_dir(name);
        let home = if Home::exists(&dir) {
            Home::open(&dir, PASSPHRASE)
        } else {
            Home::create_with(&dir, PASSPHRASE, self.env.entropy.as_ref(), 10)
        };
        let directory = Directory::new(self.community.genesis.clone(), self.env.clone(), None);
        let known = self.community.known();
        directory.learn_from(&known[..peers.min(known.len())]);
        let calls = self.network.calls(key(name, 0).public());
        let walker = Walker::new(self.env.clone(), calls, directory, WalkOptions::default());
        Author::new(self.env.clone(), Arc::new(home.unwrap()), walker, options)
    }

    /// A user with a pass, whose contents are paid for so many seconds.
    pub(crate) fn payer(&self, name: &str, seconds: u64) -> Arc<Author> {
        let dir = self.home_dir(name);
        let home = Home::create_with(&dir, PASSPHRASE, self.env.entropy.as_ref(), 10).unwrap();
        let directory = Directory::new(self.community.genesis.clone(), self.env.clone(), None);
        directory.learn_from(&self.community.known());
        let client = home.keyring().client_key();
        let calls = self.network.calls(*client.key());
        let pass = self.community.pass(client, 0, Tier::Own, &self.env);
        let options = WalkOptions { credential: Credential::Client(pass), ..Default::default() };
        let walker = Walker::new(self.env.clone(), calls, directory, options);
        let payer = Payer { secret: home.keyring().client(), seconds };
        let (env, home) = (self.env.clone(), Arc::new(home));
        Author::paying(env, home, walker, &AuthorOptions::default(), Some(payer))
    }

    /// Sets a fault for the best n holders of a record, and tells who they are.
    pub(crate) fn break_holders(
        &self,
        author: &Author,
        id: RecordId,
        n: usize,
        fault: &Fault,
    ) -> Vec<PeerId> {
        let holders = author.walker().directory().view().holders(&id.into(), n);
        holders.iter().for_each(|peer| self.network.set(peer, fault.clone()));
        holders
    }

    /// Records at all peers.
    pub(crate) fn records(&self) -> usize {
        self.peers.iter().map(|peer| peer.memory.records()).sum()
    }
}

/// Bytes that do not compress, the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub(crate) async fn put(author: &Author, content: &[u8]) -> Result<PutReport, AuthorError> {
    put_to(author, content, &[]).await
}

pub(crate) async fn put_to(
    author: &Author,
    content: &[u8],
    readers: &[ReaderKey],
) -> Result<PutReport, AuthorError> {
    let options = PutOptions {
        name: Some("letters/to anna.txt".to_owned()),
        readers: readers.to_vec(),
        ..PutOptions::default()
    };
    author.put(content, options, Arc::new(NoProgress)).await
}

pub(crate) async fn get(
    author: &Author,
    address: RecordId,
) -> Result<(Vec<u8>, GetReport), AuthorError> {
    let mut bytes = Vec::new();
    let report = author.get(address, &mut bytes, None, Arc::new(NoProgress)).await?;
    Ok((bytes, report))
}

/// As [`get`], for what is expected to fail: also what reached the sink.
pub(crate) async fn try_get(
    author: &Author,
    address: RecordId,
) -> (Vec<u8>, Result<GetReport, AuthorError>) {
    let mut bytes = Vec::new();
    let report = author.get(address, &mut bytes, None, Arc::new(NoProgress)).await;
    (bytes, report)
}
