//! A committee of keys without an engine, that certifies whatever a test wants, and members of it that keepers host.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use committee::engine::{MemberId, MemberSecret};
use committee::entry::Subject as Entry;
use committee::header::Start;
use committee::{
    Answer, Block, Card, Certificate, Checked, GroupKey, Header, Read, Rules, State, Submission,
};
use commonware_codec::{DecodeExt as _, Encode as _};
use commonware_consensus::simplex::scheme::bls12381_threshold::standard;
use commonware_consensus::simplex::types::{Proposal, Subject};
use commonware_consensus::types::{Epoch, Round, View};
use commonware_cryptography::bls12381::dkg::feldman_desmedt::deal_anonymous;
use commonware_cryptography::bls12381::primitives::sharing::Mode;
use commonware_cryptography::bls12381::primitives::variant::MinSig;
use commonware_cryptography::certificate::Scheme as _;
use commonware_cryptography::{Signer as _, blake3, ed25519};
use commonware_parallel::Sequential;
use commonware_utils::ordered::Set;
use commonware_utils::{N3f1, NZU32, TestRng, non_empty};
use crypto::{NetworkId, Suite};
use env::calls::CallError;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeStatus};
use env::{Clock, Env};
use version::ObjectKey;

use crate::keeper::{Hosted, Keeper};

type Scheme = standard::Scheme<ed25519::PublicKey, MinSig>;

/// What is certified at some height, and who the members are there.
#[derive(Clone)]
pub(crate) struct Point {
    pub(crate) header: Header,
    state: State,
    /// Whom its members tell as the members: others than the header names, between two epochs.
    pub(crate) told: Vec<u8>,
    view: u64,
}

pub(crate) struct Council {
    pub(crate) group: GroupKey,
    clock: Arc<dyn Clock>,
    network: NetworkId,
    wanted: u8,
    schemes: Vec<Scheme>,
    now: Mutex<Point>,
}

fn secret(member: u8) -> MemberSecret {
    MemberSecret::new(&[member; 32]).unwrap()
}

/// A member's key.
pub(crate) fn id(member: u8) -> MemberId {
    secret(member).id()
}

fn digest(members: &[u8]) -> [u8; 32] {
    let mut bytes = b"holdfast members v1".to_vec();
    members.iter().for_each(|member| bytes.extend_from_slice(id(*member).as_bytes()));
    Suite::Holdfast1.hash(&bytes)
}

/// Where a keeper hosts a member, as both of them sign it.
pub(crate) fn card(keeper: &Keeper, member: u8, time_ms: u64) -> Bytes {
    let address = "127.0.0.1:1".parse().unwrap();
    let (network, peer, committee) = (keeper.network, keeper.id, None);
    let card = Card { network, peer, member: id(member), committee, time_ms, address };
    card.sign(&keeper.key, &secret(member))
}

impl Council {
    /// One of these members, that wants so many receipts for a version.
    pub(crate) fn new(env: &Env, network: NetworkId, members: &[u8], wanted: u8) -> Arc<Self> {
        let clock = Arc::clone(&env.clock);
        let deal = deal_anonymous::<_, N3f1>(TestRng::new(7), Mode::NonZeroCounter, NZU32!(4));
        let (polynomial, shares) = deal;
        let keys = (0..4).map(|one| ed25519::PrivateKey::from_seed(one).public_key());
        let keys: Set<ed25519::PublicKey> = Set::from_iter_dedup(keys);
        let namespace = [&b"holdfast committee v1"[..], network.as_bytes()].concat();
        let scheme =
            |share| Scheme::signer(&namespace, keys.clone(), polynomial.clone(), share).unwrap();
        let schemes = shares.into_iter().map(scheme).collect();
        let group: GroupKey = hex(&polynomial.public().encode()).parse().unwrap();
        let header = Header::genesis(network, group.clone(), digest(members));
        let (state, told, view) = (State::default(), members.to_vec(), 1);
        let now = Mutex::new(Point { header, state, told, view });
        let council = Self { group, clock, network, wanted, schemes, now };
        council.reaches(1);
        Arc::new(council)
    }

    pub(crate) fn now(&self) -> Point {
        self.now.lock().unwrap().clone()
    }

    /// Time passes, until this height is certified: now, by the clock of the test.
    pub(crate) fn reaches(&self, height: u64) {
        let mut now = self.now.lock().unwrap();
        now.header.time_ms = self.clock.unix_ms();
        now.header.height = height;
        now.header.count = 0;
        now.view = height + 5;
    }

    /// The epoch's last block is certified: members tell the next ones, whom no header names yet.
    pub(crate) fn ends(&self, next: &[u8]) {
        self.now.lock().unwrap().told = next.to_vec();
    }

    /// The next epoch begins, with these members, at this height.
    pub(crate) fn becomes(&self, members: &[u8], height: u64) {
        let mut now = self.now.lock().unwrap();
        now.told = members.to_vec();
        now.header.time_ms = self.clock.unix_ms();
        now.header.members = digest(members);
        now.header.epoch += 1;
        now.header.height = height;
        now.view = 3;
    }

    fn signed(&self, point: &Point, finalise: bool) -> Vec<u8> {
        let Point { header, view, .. } = point;
        let round = Round::new(Epoch::new(header.epoch), View::new(*view));
        let payload = blake3::Digest(*header.digest().as_bytes());
        let proposal = Proposal::new(round, View::new(view - 1), payload);
        let subject = match finalise {
            true => Subject::Finalize { proposal: &proposal },
            false => Subject::Notarize { proposal: &proposal },
        };
        let votes: Vec<_> =
            self.schemes.iter().map(|scheme| scheme.sign(subject).unwrap()).collect();
        let votes = non_empty![@votes.into_iter()];
        self.schemes[0].assemble(votes, &Sequential).unwrap().encode().to_vec()
    }

    fn certificate(&self, point: &Point) -> Certificate {
        let mut bytes = b"holdfast certificate v1".to_vec();
        bytes.extend_from_slice(&point.header.encode());
        bytes.push(0);
        bytes.extend_from_slice(&point.view.to_be_bytes());
        bytes.extend_from_slice(&(point.view - 1).to_be_bytes());
        bytes.extend_from_slice(&self.signed(point, true));
        let certificate = Certificate::decode(&bytes).unwrap();
        certificate.verify(&self.network, &self.group).unwrap();
        certificate
    }

    fn read(&self, point: &Point, object: ObjectKey, branch: &str) -> Bytes {
        let subject = Entry::Head(&object, branch);
        let (value, proof) = (point.state.value(subject).cloned(), point.state.prove(subject));
        let certificate = self.certificate(point);
        Read { object, branch: branch.into(), value, proof, certificate }.encode()
    }

    fn how_far(&self, point: &Point, member: u8, nonce: [u8; 32]) -> Bytes {
        let mut body = b"holdfast position v1".to_vec();
        body.extend_from_slice(&nonce);
        body.extend_from_slice(self.group.id().as_bytes());
        body.extend_from_slice(id(member).as_bytes());
        for number in [point.view, point.view - 1, point.header.epoch] {
            body.extend_from_slice(&number.to_be_bytes());
        }
        body.extend_from_slice(point.header.digest().as_bytes());
        body.extend_from_slice(&self.signed(point, false));
        let key = ed25519::PrivateKey::decode(Bytes::copy_from_slice(&[member; 32])).unwrap();
        let space = [&b"holdfast committee position v1"[..], self.network.as_bytes()].concat();
        body.extend_from_slice(&key.sign(&space, &body).encode());
        body.into()
    }

    /// The next block, with this in it.
    fn update(&self, submission: &Bytes) -> Vec<Bytes> {
        let mut now = self.now.lock().unwrap();
        let submission = Submission::decode(submission).unwrap().verify().unwrap();
        let rules = Rules {
            network: self.network,
            suite: Suite::Holdfast1,
            group: self.group.id(),
            organisations: Vec::new(),
            wanted: self.wanted,
        };
        let Point { header, state, .. } = now.clone();
        let start = Start {
            parent: &header,
            before: &state,
            epoch: header.epoch,
            members: header.members,
            time_ms: header.time_ms + 1_000,
        };
        let bodies = submission.bodies().to_vec();
        let (block, executed) =
            Block::propose(&rules, &start, vec![submission], &mut Checked::default());
        now.header = block.header;
        now.state = executed.state;
        now.view += 1;
        let certificate = self.certificate(&now);
        let answers = bodies.into_iter().enumerate().map(|(index, body)| {
            let path = executed.tree.as_ref().unwrap().path(index).unwrap();
            let (outcome, certificate) = (executed.outcomes[index].clone(), certificate.clone());
            Answer { body, outcome, path, certificate }.encode()
        });
        answers.collect()
    }

    /// What a member answers to this as of a point; updates are done as of now.
    pub(crate) fn answer(
        &self,
        point: &Point,
        member: u8,
        cards: &[Bytes],
        ask: CommitteeAsk,
    ) -> CommitteeAnswer {
        match ask {
            CommitteeAsk::Update(bytes) => CommitteeAnswer::Update(self.update(&bytes)),
            CommitteeAsk::Read { object, branch, .. } => {
                let branch = std::str::from_utf8(&branch).unwrap();
                CommitteeAnswer::Read(self.read(point, object, branch))
            }
            CommitteeAsk::HowFar(nonce) => {
                CommitteeAnswer::HowFar(self.how_far(point, member, nonce))
            }
            CommitteeAsk::Status => {
                let members = point.told.iter().map(|one| *id(*one).as_bytes()).collect();
                let cards = cards.to_vec();
                let status = CommitteeStatus { members, cards, ..CommitteeStatus::default() };
                CommitteeAnswer::Status(Box::new(status))
            }
            CommitteeAsk::Charter => panic!("nobody asks for the charter"),
        }
    }

    /// An honest member, that shows these cards.
    pub(crate) fn honest(self: &Arc<Self>, member: u8, cards: Vec<Bytes>) -> Hosted {
        let council = Arc::clone(self);
        Arc::new(move |ask| Ok(council.answer(&council.now(), member, &cards, ask)))
    }

    /// One that says what was so at this point, whatever happened since.
    pub(crate) fn stuck(self: &Arc<Self>, member: u8, cards: Vec<Bytes>, at: Point) -> Hosted {
        let council = Arc::clone(self);
        Arc::new(move |ask| match ask {
            CommitteeAsk::Update(_) => Err(CallError::NotFound),
            ask => Ok(council.answer(&at, member, &cards, ask)),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
