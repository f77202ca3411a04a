//! A network's paper: a genesis, organisations, and peers with certificates and announcements, from fixed seeds.

use std::sync::Arc;

use bytes::Bytes;
use crypto::{
    Announcement, Change, ClientKey, Genesis, OrgId, Organisation, Pass, PeerCertificate, PeerId,
    PeerState, Roster, SecretKey, SignedRoster, Suite, Tier,
};
use env::Env;
use env::calls::KnownPeer;

use super::{DirectNetwork, MemoryPeer};

/// When certificates end, Unix seconds: later than any clock of a test.
const UNTIL_UNIX_S: u64 = 10_000_000_000;

/// What a community is made of.
#[derive(Clone, Debug)]
pub struct CommunityOptions {
    /// How many organisations.
    pub organisations: usize,
    /// How many peers; peer i belongs to organisation i modulo their number.
    pub peers: usize,
    /// The suite.
    pub suite: Suite,
    /// Copies that the genesis asks for.
    pub copies: Option<u32>,
    /// Bytes each peer offers.
    pub capacity: u64,
}

/// A peer of a community: everything its owner knows of it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its key.
    pub key: SecretKey,
    /// Who it is.
    pub peer: PeerId,
    /// Which organisation it belongs to.
    pub organisation: OrgId,
    /// Where it answers.
    pub address: String,
    /// Its certificate, signed by its organisation.
    pub certificate: Bytes,
    /// Its first announcement (serving, sequence 1), signed by itself.
    pub announcement: Bytes,
}

/// A genesis with the keys of its organisations, and peers.
#[derive(Clone, Debug)]
pub struct Community {
    /// The genesis.
    pub genesis: Arc<Genesis>,
    /// The keys of the organisations; the genesis lists them in another order.
    pub organisations: Vec<SecretKey>,
    /// The peers.
    pub members: Vec<Member>,
}

/// A community of so many organisations and peers in `holdfast-1`. The same numbers give the same keys.
pub fn community(organisations: usize, peers: usize) -> Community {
    Community::new(&CommunityOptions {
        organisations,
        peers,
        suite: Suite::Holdfast1,
        copies: None,
        capacity: 1 << 40,
    })
}

/// The key that this name and number always give.
pub fn key(name: &str, number: usize) -> SecretKey {
    let seed = Suite::Holdfast1.hash(format!("testkit {name} {number}").as_bytes());
    SecretKey::from_bytes(&seed).expect("a hash is a scalar but once in 2^128")
}

impl Community {
    /// A community of these numbers.
    ///
    /// # Panics
    /// Where the numbers make no genesis (no organisation, too many copies).
    pub fn new(options: &CommunityOptions) -> Self {
        let organisations: Vec<SecretKey> =
            (0..options.organisations).map(|number| key("organisation", number)).collect();
        let listed = organisations.iter().enumerate().map(|(number, key)| Organisation {
            key: OrgId::new(key.public()),
            name: format!("organisation-{number}"),
        });
        let genesis = Genesis {
            name: "test".to_owned(),
            suite: options.suite,
            organisations: listed.collect(),
            copies: options.copies,
            profile: None,
            created: 1,
            nonce: [1; 16],
        };
        let genesis = Arc::new(genesis.checked().expect("a community has a valid genesis"));
        let mut community = Self { genesis, organisations, members: Vec::new() };
        for number in 0..options.peers {
            community.admit(number % options.organisations, options.capacity);
        }
        community
    }

    /// Adds a peer of this organisation; its number among the members.
    pub fn admit(&mut self, organisation: usize, capacity: u64) -> usize {
        let number = self.members.len();
        let key = key("peer", number);
        let (peer, network) = (PeerId::new(key.public()), self.genesis.network());
        let address = format!("peer-{number}.test:4000");
        let certificate = PeerCertificate {
            peer,
            organisation: OrgId::new(self.organisations[organisation].public()),
            addresses: vec![address.clone()],
            capacity,
            from: 0,
            until: UNTIL_UNIX_S,
        };
        let bytes = certificate.sign(&self.organisations[organisation], &network);
        let organisation = certificate.organisation;
        let announcement = Announcement {
            certificate,
            certificate_bytes: bytes.clone(),
            sequence: 1,
            p2p_addresses: Vec::new(),
            state: PeerState::Serving,
        };
        let announcement = announcement.sign(&key, &network);
        let certificate = bytes;
        self.members.push(Member { key, peer, organisation, address, certificate, announcement });
        number
    }

    /// Makes a key for an organisation that the genesis does not list; its number.
    pub fn organise(&mut self) -> usize {
        self.organisations.push(key("organisation", self.organisations.len()));
        self.organisations.len() - 1
    }

    /// How an organisation is listed, by the key and the name that its number gives.
    pub fn organisation(&self, number: usize) -> Organisation {
        let key = OrgId::new(self.organisations[number].public());
        Organisation { key, name: format!("organisation-{number}") }
    }

    /// The roster after `previous` with a change, signed by these organisations.
    ///
    /// # Panics
    /// Where the change makes no roster, or one of them is not listed before.
    pub fn roster(&self, previous: &Roster, change: &Change, by: &[usize]) -> Bytes {
        let next = previous.changed(change, 1).expect("a roster").expect("a change that applies");
        let mut signed = SignedRoster::proposal(next);
        for number in by {
            signed.sign(&self.organisations[*number], previous).expect("listed before");
        }
        signed.encode()
    }

    /// Who member `number` is.
    pub fn peer(&self, number: usize) -> PeerId {
        self.members[number].peer
    }

    /// A later announcement of a member. Sequences count from 2; the first announcement has 1.
    pub fn announce(&self, number: usize, state: PeerState, sequence: u64) -> Bytes {
        let member = &self.members[number];
        let first = Announcement::verify(&member.announcement, &self.genesis, 1);
        let first = first.expect("the member's first announcement is valid");
        let newer = Announcement { state, sequence, ..first };
        newer.sign(&member.key, &self.genesis.network())
    }

    /// The first announcements of all members, as an introduction tells them.
    pub fn known(&self) -> Vec<KnownPeer> {
        let known = self.members.iter().map(|member| KnownPeer {
            announcement: member.announcement.clone(),
            last_good_ms: None,
        });
        known.collect()
    }

    /// A pass of this organisation for a client, valid for an hour around the clock's now.
    pub fn pass(&self, client: ClientKey, organisation: usize, tier: Tier, env: &Env) -> Bytes {
        let now = env.clock.unix_s();
        let key = &self.organisations[organisation];
        let pass = Pass {
            client,
            organisation: OrgId::new(key.public()),
            tier,
            quota: 0,
            from: now.saturating_sub(1800),
            until: now + 1800,
        };
        pass.sign(key, &self.genesis.network())
    }

    /// A network in which every member is an honest [`MemoryPeer`] that knows all others.
    pub fn network(&self, env: &Env) -> (Arc<DirectNetwork>, Vec<Arc<MemoryPeer>>) {
        let network = DirectNetwork::new(env.clone());
        let peers = self.members.iter().map(|member| {
            let peer = MemoryPeer::new(self.genesis.clone(), member.announcement.clone(), env);
            self.known().iter().for_each(|known| peer.learn(&known.announcement));
            network.serve(&member.address, member.peer, peer.clone());
            peer
        });
        let peers = peers.collect();
        (network, peers)
    }
}
