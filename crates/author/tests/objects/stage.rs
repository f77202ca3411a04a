//! Nine keepers of objects in one process, and users of theirs.

use std::sync::Arc;

use author::objects::{Objects, ObjectsOptions};
use author::{Author, AuthorOptions, Home};
use crypto::{RecordId, Suite};
use env::Env;
use testkit::network::{Community, CommunityOptions, DirectNetwork, Fault};
use walk::{Directory, WalkOptions, Walker};

use crate::keeper::{Keeper, Served};

pub(crate) struct Stage {
    pub(crate) env: Env,
    pub(crate) community: Community,
    pub(crate) network: Arc<DirectNetwork>,
    pub(crate) keepers: Vec<Arc<Keeper>>,
    homes: tempfile::TempDir,
}

impl Stage {
    pub(crate) fn new(env: &Env) -> Self {
        Self::of(env, 9)
    }

    pub(crate) fn of(env: &Env, peers: usize) -> Self {
        let (organisations, suite) = (3, Suite::Holdfast1);
        let options =
            CommunityOptions { organisations, peers, suite, copies: Some(3), capacity: 1 << 40 };
        let community = Community::new(&options);
        let (network, memories) = community.network(env);
        let of = (community.genesis.suite, community.genesis.network());
        let keepers = community.members.iter().zip(memories).map(|(member, memory)| {
            let keeper = Arc::new(Keeper::new(member.key.clone(), memory, env, of));
            network.serve(&member.address, member.peer, Arc::new(Served(keeper.clone())));
            keeper
        });
        let keepers = keepers.collect();
        let homes = tempfile::tempdir().unwrap();
        Self { env: env.clone(), community, network, keepers, homes }
    }

    /// A user of this name; called again, the same one with nothing remembered.
    pub(crate) fn author(&self, name: &str) -> Arc<Author> {
        let dir = self.homes.path().join(name);
        let home = match Home::exists(&dir) {
            true => Home::open(&dir, b"words"),
            false => Home::create_with(&dir, b"words", self.env.entropy.as_ref(), 10),
        };
        let home = Arc::new(home.unwrap());
        let directory = Directory::new(self.community.genesis.clone(), self.env.clone(), None);
        directory.learn_from(&self.community.known());
        let calls = self.network.calls(*home.keyring().client_key().key());
        let walker = Walker::new(self.env.clone(), calls, directory, WalkOptions::default());
        Author::new(self.env.clone(), home, walker, &AuthorOptions::default())
    }

    pub(crate) fn user(&self, name: &str) -> Objects {
        Objects::new(&self.author(name), ObjectsOptions::default())
    }

    /// The numbers of the peers of a place, best first.
    pub(crate) fn rank(&self, objects: &Objects, place: &crypto::Place) -> Vec<usize> {
        let rank = objects.author().walker().directory().view().rank(place);
        let number = |peer| self.keepers.iter().position(|keeper| keeper.id == peer).unwrap();
        rank.into_iter().map(number).collect()
    }

    pub(crate) fn set(&self, number: usize, fault: Fault) {
        self.network.set(&self.keepers[number].id, fault);
    }

    /// How many keep a version.
    pub(crate) fn copies(&self, h: &RecordId) -> usize {
        self.keepers.iter().filter(|keeper| keeper.holds(h)).count()
    }
}

pub(crate) fn place(object: &author::objects::Object) -> crypto::Place {
    version::place(Suite::Holdfast1, &object.key(), &version::Hint::FIRST)
}
