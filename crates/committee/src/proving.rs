//! Tests: a committee of keys without an engine, clients, peers and receipts.

use bytes::Bytes;
use commonware_consensus::simplex::types::{Finalization, Proposal, Subject};
use commonware_consensus::types::{Epoch, Round, View};
use commonware_cryptography::Signer as _;
use commonware_cryptography::bls12381::dkg::feldman_desmedt::deal_anonymous;
use commonware_cryptography::bls12381::primitives::group::Share;
use commonware_cryptography::bls12381::primitives::sharing::Mode;
use commonware_cryptography::bls12381::primitives::variant::MinSig;
use commonware_cryptography::certificate::Scheme as _;
use commonware_cryptography::{blake3, ed25519};
use commonware_parallel::Sequential;
use commonware_utils::ordered::Set;
use commonware_utils::{N3f1, NZU32, TestRng, non_empty};
use crypto::{NetworkId, OrgId, PeerCertificate, PeerId, RecordId, SecretKey, Suite};
use version::merkle::Tree;
use version::receipt::Terms;
use version::{Durability, Hint, ObjectKey, ObjectRecord, Receipt, VersionId};

use crate::certificate::{Digest, Scheme, namespace};
use crate::header::Start;
use crate::{
    Block, Certificate, Checked, Executed, GroupKey, Header, Operation, Rules, State, Submission,
    Update,
};

mod golden;

pub(crate) const NETWORK: NetworkId = NetworkId::new([9; 32]);
pub(crate) const SUITE: Suite = Suite::Holdfast1;

pub(crate) fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
}

/// Keys of a committee, and the chain that they certify.
pub(crate) struct Founded {
    pub(crate) group: GroupKey,
    pub(crate) rules: Rules,
    pub(crate) tip: Header,
    pub(crate) state: State,
    schemes: Vec<Scheme>,
}

impl Founded {
    pub(crate) fn new(n: u32) -> Self {
        Self::seeded(n, 7)
    }

    pub(crate) fn seeded(n: u32, seed: u64) -> Self {
        let deal = deal_anonymous::<_, N3f1>(TestRng::new(seed), Mode::NonZeroCounter, NZU32!(n));
        let (polynomial, shares) = deal;
        let keys = (0..u64::from(n)).map(|one| ed25519::PrivateKey::from_seed(one).public_key());
        let members: Set<ed25519::PublicKey> = Set::from_iter_dedup(keys);
        let scheme = |share| {
            Scheme::signer(&namespace(&NETWORK), members.clone(), polynomial.clone(), share)
                .expect("a share of it")
        };
        let group = GroupKey::of(polynomial.public()).expect("a key");
        let rules = Rules {
            network: NETWORK,
            suite: SUITE,
            group: group.id(),
            organisations: Vec::new(),
            wanted: 1,
        };
        let tip = Header::genesis(NETWORK, group.clone(), [3; 32]);
        let schemes = shares.into_iter().map(scheme).collect();
        Self { group, rules, tip, state: State::default(), schemes }
    }

    /// A member's part of the key.
    pub(crate) fn scheme(&self, which: usize) -> &Scheme {
        &self.schemes[which]
    }

    /// A signature of all members, finalising or only notarising.
    pub(crate) fn sign(
        &self,
        header: &Header,
        view: u64,
        finalise: bool,
    ) -> Finalization<Scheme, Digest> {
        let round = Round::new(Epoch::new(header.epoch), View::new(view));
        let payload = blake3::Digest(*header.digest().as_bytes());
        let proposal = Proposal::new(round, View::new(view - 1), payload);
        let subject = match finalise {
            true => Subject::Finalize { proposal: &proposal },
            false => Subject::Notarize { proposal: &proposal },
        };
        let votes: Vec<_> =
            self.schemes.iter().map(|scheme| scheme.sign(subject).expect("a share")).collect();
        let certificate = self.schemes[0]
            .assemble(non_empty![@votes.into_iter()], &Sequential)
            .expect("enough votes");
        Finalization { proposal, certificate }
    }

    pub(crate) fn certify(&self, header: &Header) -> Certificate {
        let finalization = self.sign(header, header.height + 5, true);
        Certificate::new(header.clone(), Vec::new(), &finalization).expect("of this header")
    }

    /// Proposes, executes as another member would, and goes on from there.
    pub(crate) fn block(&mut self, submissions: Vec<Submission>) -> (Block, Executed) {
        let (tip, rules) = (&self.tip, &self.rules);
        let time = tip.time_ms + 1_000;
        let mut checked = Checked::default();
        let (block, executed) = Block::propose(
            rules,
            &Start { parent: tip, before: &self.state, epoch: 0, members: [3; 32], time_ms: time },
            submissions,
            &mut checked,
        );
        let again = Block::decode(&block.encode()).expect("our own");
        assert_eq!(again, block);
        let other = again
            .execute(rules, tip, &self.state, &mut Checked::default(), |_| false)
            .expect("a good block");
        assert_eq!(other.outcomes, executed.outcomes);
        self.tip = block.header.clone();
        self.state = executed.state.clone();
        (block, executed)
    }

    pub(crate) fn update(&self, author: u8, id: u8, operation: Operation) -> Update {
        let (network, group) = (NETWORK, self.group.id());
        let author = secret(author).public();
        Update { network, group, author, id: [id; 16], last_valid: 1_000, operation }
    }
}

/// Some member's share.
pub(crate) fn share() -> Share {
    let deal = deal_anonymous::<MinSig, N3f1>(TestRng::new(1), Mode::NonZeroCounter, NZU32!(4));
    deal.1.into_iter().next().expect("one of four")
}

pub(crate) fn object(owner: u8) -> (Bytes, ObjectKey) {
    let (owner, name) = (secret(owner).public(), Bytes::from_static(b"report"));
    let record = ObjectRecord { network: NETWORK, owner, name };
    let bytes = record.encode().expect("a good name");
    let key = record.key(SUITE).expect("a good name");
    (bytes, key)
}

pub(crate) fn version(byte: u8) -> VersionId {
    VersionId { h: RecordId::new([byte; 32]), l: u64::from(byte), n: Hint::FIRST }
}

/// A peer's receipt for a version.
pub(crate) fn receipt(peer: u8, version: &VersionId) -> Bytes {
    let tree = Tree::new(SUITE, &[version.h]).expect("one");
    let terms = Terms { durability: Durability::Group, lease_ms: 0, time_ms: 1_700_000_000_000 };
    let receipt = Receipt::sign(&secret(peer), &NETWORK, terms, &tree);
    receipt.of_one(&[version.h], &tree, 0).expect("the first").encode()
}

/// A peer's receipt for versions of one call.
pub(crate) fn kept_in_one_call(peer: u8, versions: &[VersionId]) -> Receipt {
    let hs: Vec<RecordId> = versions.iter().map(|one| one.h).collect();
    let tree = Tree::new(SUITE, &hs).expect("some");
    let terms = Terms { durability: Durability::Group, lease_ms: 0, time_ms: 1_700_000_000_000 };
    Receipt::sign(&secret(peer), &NETWORK, terms, &tree)
}

pub(crate) fn set(
    object: ObjectKey,
    expected: Option<(VersionId, u64)>,
    new: VersionId,
    peers: &[u8],
) -> Operation {
    let expected = expected.map(|(version, height)| (version.h, height));
    let receipts = peers.iter().map(|peer| receipt(*peer, &new)).collect();
    Operation::Set { object, branch: "main".into(), expected, new, receipts }
}

pub(crate) fn peer_certificate(peer: u8, organisation: u8, until: u64) -> Bytes {
    let certificate = PeerCertificate {
        peer: PeerId::new(secret(peer).public()),
        organisation: OrgId::new(secret(organisation).public()),
        addresses: vec![String::from("127.0.0.1:1")],
        capacity: 1,
        from: 0,
        until,
    };
    certificate.sign(&secret(organisation), &NETWORK)
}
