//! What becomes of blocks above the tip, however many there are.

use super::*;
use crate::header::Start;
use crate::members::Change;
use crate::members::tests::Table;
use crate::proving::{Founded, object};
use crate::{CommitteeError, Operation, Update};

fn chain(founded: &Founded) -> Chain {
    Chain::at(founded.rules.clone(), founded.tip.clone(), State::default())
}

/// So many blocks on top of each other, at a chain that proposed them.
fn grown(chain: &mut Chain, count: usize) -> Vec<(HeaderDigest, Bytes)> {
    let mut at = chain.tip().digest();
    let grow = |number| {
        let (digest, bytes) =
            chain.propose(&at, number as u64, Vec::new()).expect("its parent is here");
        at = digest;
        (digest, bytes)
    };
    (0..count).map(grow).collect()
}

#[test]
fn however_many_blocks_one_finalisation_decides_the_chain_goes_on() {
    let founded = Founded::new(4);
    let mut chain = chain(&founded);
    let blocks = grown(&mut chain, ABOVE_MAX + 40);
    let last = Block::decode(&blocks.last().expect("many").1).expect("our own");
    let finals = chain.finalise(&founded.sign(&last.header, 900, true)).expect("no fork");
    assert_eq!(finals.len(), blocks.len());
    assert_eq!(chain.tip(), &last.header);
    let certified = finals.iter().filter(|one| one.certificate().is_some()).count();
    assert_eq!(certified, LATER_MAX + 1, "the others came too long before it");
    for one in &finals {
        if let Some(certificate) = one.certificate() {
            let (network, group) = (founded.rules.network, &founded.group);
            certificate.verify(&network, group).expect("certified");
        }
    }
    assert!(!chain.is_deep(&chain.tip().digest()));
}

#[test]
fn blocks_beside_the_chain_keep_none_out_that_stands_on_it() {
    let founded = Founded::new(4);
    let mut chain = chain(&founded);
    let root = chain.tip().digest();
    // A liar's: each another block on the tip, by its time.
    for time in 1..=ABOVE_MAX as u64 {
        chain.propose(&root, time, Vec::new()).expect("its parent is here");
    }
    let mut other = self::chain(&founded);
    for (digest, bytes) in grown(&mut other, 3) {
        let block = Block::decode(&bytes).expect("our own");
        let fit = chain.execute(block, bytes, |_| false);
        assert!(matches!(fit, Fit::Here), "there is room for it");
        assert!(chain.above(&digest).is_some());
    }
    assert!(chain.all_above().count() <= ABOVE_MAX + 1, "and the bound holds");
}

#[test]
fn far_above_the_tip_no_updates_are_proposed() {
    let founded = Founded::new(4);
    let mut chain = chain(&founded);
    let blocks = grown(&mut chain, LATER_MAX);
    assert!(!chain.is_deep(&blocks[1].0));
    assert!(chain.is_deep(&blocks[LATER_MAX - 1].0));
}

#[test]
fn no_vote_goes_to_a_block_with_updates_so_far_above_the_tip_that_it_would_have_no_certificate() {
    let founded = Founded::new(4);
    let mut chain = chain(&founded);
    let blocks = grown(&mut chain, LATER_MAX + 2);
    let with_updates = |at: usize| {
        let header = Block::decode(&blocks[at].1).expect("our own").header;
        Header { count: 1, ..header }
    };
    let votable = |chain: &Chain, header: &Header| {
        assert!(!chain.is_votable(header, &HeaderDigest::new([9; 32]), 0), "another parent");
        assert!(!chain.is_votable(header, &header.parent, 1), "another epoch");
        chain.is_votable(header, &header.parent, 0)
    };
    assert!(votable(&chain, &with_updates(0)) && votable(&chain, &with_updates(LATER_MAX)));
    assert!(!votable(&chain, &with_updates(LATER_MAX + 1)), "its parent is too deep");
    let empty = Block::decode(&blocks[LATER_MAX + 1].1).expect("our own").header;
    assert!(votable(&chain, &empty), "one without updates has nobody to answer");
    // Once some of those below are final it is near.
    let first = Block::decode(&blocks[0].1).expect("our own").header;
    chain.finalise(&founded.sign(&first, 900, true)).expect("no fork");
    assert!(votable(&chain, &with_updates(LATER_MAX + 1)));
}

#[test]
fn what_a_vote_stands_on_is_kept_with_its_block() {
    let founded = Founded::new(4);
    let mut chain = chain(&founded);
    let blocks = grown(&mut chain, 4);
    chain.propose(&blocks[0].0, 999, Vec::new()).expect("its parent is here");
    assert_eq!(chain.standing(&blocks[3].0, |_| false), blocks, "the oldest first");
    let kept = |digest: &HeaderDigest| *digest == blocks[1].0;
    assert_eq!(chain.standing(&blocks[3].0, kept), blocks[2..]);
    assert!(chain.standing(&blocks[1].0, kept).is_empty());
    assert!(chain.standing(&chain.tip().digest(), |_| false).is_empty());
}

#[test]
fn what_stands_on_a_snapshot_stays_above_it() {
    let founded = Founded::new(4);
    let mut chain = chain(&founded);
    let blocks = grown(&mut chain, 5);
    let beside = chain.propose(&blocks[0].0, 999, Vec::new()).expect("its parent is here").0;
    let header = Block::decode(&blocks[2].1).expect("our own").header;
    chain.start_from(founded.certify(&header), State::default());
    let above: Vec<HeaderDigest> = chain.all_above().map(|(digest, _)| *digest).collect();
    assert_eq!(above.len(), 2, "the two after it, and nothing else");
    assert!(above.contains(&blocks[3].0) && above.contains(&blocks[4].0));
    assert!(chain.above(&beside).is_none());
}

#[test]
fn a_finalisation_beside_the_tip_is_a_fork() {
    let mut founded = Founded::new(4);
    let mut chain = chain(&founded);
    let (record, _) = object(1);
    let update = founded.update(1, 1, Operation::Object { record, policy: Bytes::new() });
    let one = update.sign(&crate::proving::secret(1)).expect("good");
    let (foreign, _) = founded.block(vec![one]);
    let blocks = grown(&mut chain, 1);
    let ours = Block::decode(&blocks[0].1).expect("our own");
    chain.finalise(&founded.sign(&ours.header, 5, true)).expect("the first");
    let fork = chain.finalise(&founded.sign(&foreign.header, 6, true));
    assert!(matches!(fork, Err(CommitteeError::Chain)));
}

/// A change, sent by nobody in particular.
fn sent(table: &Table, change: Change, id: u8) -> Submission {
    let secret = crate::proving::secret(9);
    let update = Update {
        network: table.rules.network,
        group: table.rules.group,
        author: secret.public(),
        id: [id; 16],
        last_valid: u64::MAX,
        operation: Operation::Members(change),
    };
    update.sign(&secret).expect("good")
}

/// A block on top of another, of this epoch and these members.
fn block_of(chain: &Chain, parent: &HeaderDigest, epoch: u64, members: Hash) -> (Block, Bytes) {
    let (header, before) = chain.parent(parent).expect("it is here");
    let start = Start { parent: header, before, epoch, members, time_ms: 5 };
    let (block, _) = Block::propose(&chain.rules, &start, Vec::new(), &mut Checked::default());
    let bytes = block.encode();
    (block, bytes)
}

#[test]
fn a_block_is_of_the_epoch_and_the_members_that_the_state_before_it_says() {
    let mut table = Table::new(4, 6);
    let first = table.state.clone();
    let members = table.members().digest();
    let genesis = Header::genesis(table.rules.network, table.group(), members);
    let genesis = Header { state: first.root(), ..genesis };
    let mut chain = Chain::at(table.rules.clone(), genesis, first);
    let tip = chain.tip().digest();
    for (epoch, who) in [(1, members), (0, [7; 32]), (1, [7; 32])] {
        let (block, bytes) = block_of(&chain, &tip, epoch, who);
        let fit = chain.execute(block, bytes, |_| false);
        assert!(matches!(fit, Fit::Bad(CommitteeError::Block("epoch or set of members"))));
    }
    // A block with a whole round in it ends its epoch.
    let wish = table.wish(2, 4, &[0, 1, 2, 4, 5]);
    let wanted = table.wanted(&wish, &[0, 1, 2]);
    let mut all = vec![sent(&table, wanted.clone(), 1)];
    table.apply(&wanted);
    for dealer in 0..3 {
        let log = table.log(dealer, &[]);
        all.push(sent(&table, log.clone(), 2 + dealer as u8));
        table.apply(&log);
    }
    assert!(!chain.ends_epoch(&tip) && !chain.may_be_over());
    let (last, _) = chain.propose(&tip, 5, all).expect("its parent is here");
    assert!(chain.ends_epoch(&last) && chain.may_be_over());
    assert_eq!((chain.epoch_after(&last), chain.epoch()), (Some(1), 0));
    // Nothing of the old epoch stands on it, and what is of the new one names its members.
    let next = table.members().digest();
    assert_ne!(next, members);
    for (epoch, who) in [(0, members), (0, next), (1, members)] {
        let (block, bytes) = block_of(&chain, &last, epoch, who);
        assert!(matches!(chain.execute(block, bytes, |_| false), Fit::Bad(_)), "{epoch}");
    }
    let (block, bytes) = block_of(&chain, &last, 1, next);
    let digest = block.header.digest();
    assert!(matches!(chain.execute(block, bytes, |_| false), Fit::Here));
    assert!(!chain.ends_epoch(&digest));
}
