//! Blocks that a lying leader proposes.

use super::*;
use crate::Operation;
use crate::proving::{Founded, NETWORK, object, secret, set, version};

fn case() -> (Founded, Block) {
    let founded = Founded::new(4);
    let (record, key) = object(1);
    let made = founded.update(1, 1, Operation::Object { record, policy: Bytes::new() });
    let first = founded.update(1, 2, set(key, None, version(1), &[5]));
    let submissions = vec![Submission::bundle(&[made, first], &secret(1)).expect("good")];
    let (tip, rules) = (&founded.tip, &founded.rules);
    let mut checked = Checked::default();
    let (block, _) = Block::propose(
        rules,
        &Start { parent: tip, before: &founded.state, epoch: 0, members: [3; 32], time_ms: 5 },
        submissions,
        &mut checked,
    );
    (founded, block)
}

fn run(founded: &Founded, block: &Block) -> Result<Executed, CommitteeError> {
    let mut checked = Checked::default();
    block.execute(&founded.rules, &founded.tip, &founded.state, &mut checked, |_| false)
}

#[test]
fn a_block_that_does_not_follow_is_refused() {
    let (founded, good) = case();
    run(&founded, &good).expect("a good block");
    let change = |change: &dyn Fn(&mut Header)| {
        let mut block = good.clone();
        change(&mut block.header);
        match run(&founded, &block) {
            Err(CommitteeError::Block(what)) => what,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(change(&|header| header.network = NetworkId::new([1; 32])), "network");
    assert_eq!(change(&|header| header.parent = HeaderDigest::new([1; 32])), "parent");
    assert_eq!(change(&|header| header.height += 1), "height");
    assert_eq!(change(&|header| header.count += 1), "number of results");
    assert_eq!(change(&|header| header.results = [1; 32]), "root of the results");
    assert_eq!(change(&|header| header.state = [1; 32]), "root of the state");
    let mut later = founded;
    later.tip.time_ms = 6;
    let mut early = good.clone();
    early.header.parent = later.tip.digest();
    assert!(matches!(run(&later, &early), Err(CommitteeError::Block("time"))));
}

#[test]
fn a_block_with_an_unsigned_or_foreign_update_is_refused() {
    let (founded, good) = case();
    let bytes = good.encode();
    // The signature of the bundle, and the header's digest of the updates with it.
    let body = BLOCK_PREFIX.len() + HEADER_BYTES;
    let at = body + 4 + 4 + "holdfast update bundle v1".len() + 3;
    let mut forged = bytes.to_vec();
    forged[at] ^= 1;
    assert!(matches!(Block::decode(&forged.clone().into()), Err(CommitteeError::Block("updates"))));
    let mut header = good.header.clone();
    header.updates = Suite::Holdfast1.hash(&forged[body..]);
    forged[BLOCK_PREFIX.len()..body].copy_from_slice(&header.encode());
    let forged = Block::decode(&forged.into()).expect("well formed");
    assert!(matches!(run(&founded, &forged), Err(CommitteeError::Key(_))));
    let mut stranger = founded.update(1, 4, Operation::Peer { certificate: Bytes::new() });
    stranger.group = crate::GroupId::new([1; 32]);
    let stranger = vec![stranger.sign(&secret(1)).expect("good")];
    let (tip, rules) = (&founded.tip, &founded.rules);
    let mut checked = Checked::default();
    let (block, _) = Block::propose(
        rules,
        &Start { parent: tip, before: &founded.state, epoch: 0, members: [3; 32], time_ms: 5 },
        stranger,
        &mut checked,
    );
    assert!(matches!(run(&founded, &block), Err(CommitteeError::Block("committee of an update"))));
}

#[test]
fn a_block_cut_or_changed_is_refused() {
    let (founded, good) = case();
    let bytes = good.encode();
    assert_eq!(Block::decode(&bytes).expect("our own"), good);
    for at in 0..bytes.len() {
        assert!(Block::decode(&bytes.slice(..at)).is_err(), "cut at {at}");
        let mut other = bytes.to_vec();
        other[at] ^= 1 << (at % 8);
        let other = Block::decode(&other.into());
        let same = other.is_ok_and(|other| other.header.digest() == good.header.digest());
        assert!(!same, "byte {at}");
    }
    assert_eq!(founded.rules.network, NETWORK);
}
