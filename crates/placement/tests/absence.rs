//! Whom peers' words make absent: a reference that counts again from the start, the promises, and cases by hand.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crypto::{OrgId, PeerId, SecretKey};
use placement::{Candidate, View, absent};
use proptest::prelude::*;

const KEYS: usize = 24;

/// Ascending, so that the i-th is the view's i-th.
static IDS: LazyLock<Vec<PeerId>> = LazyLock::new(|| {
    let key = |i: usize| SecretKey::from_bytes(&[i as u8 + 1; 32]).unwrap().public();
    let mut ids: Vec<PeerId> = (0..KEYS).map(|i| PeerId::new(key(i))).collect();
    ids.sort_unstable();
    ids
});

type Words = BTreeMap<usize, BTreeSet<usize>>;

/// Peers whose organisations these are, in order.
fn view(organisations: &[usize]) -> View {
    let candidates = organisations.iter().enumerate().map(|(peer, organisation)| Candidate {
        peer: IDS[peer],
        organisation: OrgId::new(*IDS[*organisation].key()),
        weight: 1,
    });
    View::new(0, candidates.collect())
}

fn ids(peers: &BTreeSet<usize>) -> BTreeSet<PeerId> {
    peers.iter().map(|peer| IDS[*peer]).collect()
}

fn found(organisations: &[usize], words: &Words) -> BTreeSet<usize> {
    let words: Vec<(PeerId, BTreeSet<PeerId>)> =
        words.iter().map(|(speaker, of)| (IDS[*speaker], ids(of))).collect();
    let words = words.iter().map(|(speaker, of)| (speaker, of));
    let absent = absent(&view(organisations), words);
    absent.iter().map(|peer| IDS.iter().position(|id| id == peer).unwrap()).collect()
}

/// Whether an organisation's voice on a peer is yes, these being heard.
fn voice(organisations: &[usize], words: &Words, organisation: usize, peer: usize) -> bool {
    let asked: Vec<bool> = words
        .iter()
        .filter(|(speaker, _)| organisations[**speaker] == organisation)
        .filter(|(speaker, of)| **speaker != peer || of.contains(&peer))
        .map(|(_, of)| of.contains(&peer))
        .collect();
    2 * asked.iter().filter(|yes| **yes).count() > asked.len()
}

/// How many organisations are heard, and how many of them say absent of each peer.
fn votes(organisations: &[usize], words: &Words) -> (usize, Vec<usize>) {
    let heard: BTreeSet<usize> = words.keys().map(|speaker| organisations[*speaker]).collect();
    let yes = |peer| heard.iter().filter(|org| voice(organisations, words, **org, peer)).count();
    (heard.len(), (0..organisations.len()).map(yes).collect())
}

/// The definition, counted from the start in each round.
fn reference(organisations: &[usize], words: &Words) -> BTreeSet<usize> {
    let (mut words, mut absent) = (words.clone(), BTreeSet::new());
    loop {
        let (heard, mut votes) = votes(organisations, &words);
        absent.iter().for_each(|peer: &usize| votes[*peer] = 0);
        let most = votes.iter().copied().max().unwrap_or(0);
        if 2 * most <= heard {
            return absent;
        }
        for peer in (0..organisations.len()).filter(|peer| votes[*peer] == most) {
            absent.insert(peer);
            words.remove(&peer);
        }
    }
}

/// Peers of some organisations, and words of some of them.
fn network(orgs_max: usize) -> impl Strategy<Value = (Vec<usize>, Words)> {
    prop::collection::vec(0..orgs_max, 1..KEYS).prop_flat_map(|organisations| {
        let peers = organisations.len();
        let said = prop_oneof![
            prop::collection::btree_set(0..peers, 0..=peers.min(3)),
            prop::collection::btree_set(0..peers, 0..=peers),
        ];
        (Just(organisations), prop::collection::btree_map(0..peers, said, 0..=peers))
    })
}

proptest! {
    #[test]
    fn it_is_the_reference((organisations, words) in network(6)) {
        prop_assert_eq!(found(&organisations, &words), reference(&organisations, &words));
    }

    #[test]
    fn nobody_is_left_whom_those_who_are_heard_call_absent(
        (organisations, mut words) in network(6),
    ) {
        let absent = found(&organisations, &words);
        words.retain(|speaker, _| !absent.contains(speaker));
        let (heard, votes) = votes(&organisations, &words);
        for peer in (0..organisations.len()).filter(|peer| !absent.contains(peer)) {
            prop_assert!(2 * votes[peer] <= heard);
        }
    }

    /// Read in another order, or in parts, words are the same words.
    #[test]
    fn the_order_of_words_does_not_matter(
        (organisations, words) in network(6), order in prop::collection::vec(any::<u64>(), 600),
    ) {
        let mut said: Vec<(PeerId, BTreeSet<PeerId>)> = Vec::new();
        for (speaker, of) in &words {
            said.push((IDS[*speaker], BTreeSet::new()));
            said.extend(of.iter().map(|peer| (IDS[*speaker], BTreeSet::from([IDS[*peer]]))));
        }
        let mut shuffled: Vec<_> = order.iter().zip(said).collect();
        shuffled.sort();
        let words_again = shuffled.iter().map(|(_, (speaker, of))| (speaker, of));
        let again = absent(&view(&organisations), words_again);
        prop_assert_eq!(ids(&found(&organisations, &words)), again);
    }

    /// An organisation of liars, however large: where the others are heard and say nothing, nobody of theirs is
    /// absent, and where they all say so of its peers, these are, if there are two of them.
    #[test]
    fn one_organisation_rules_nobody(
        (organisations, lies) in network(6), dead in prop::collection::btree_set(0..KEYS, 0..6),
    ) {
        let liars: BTreeSet<usize> =
            (0..organisations.len()).filter(|peer| organisations[*peer] == 0).collect();
        let others = organisations.iter().copied().filter(|org| *org != 0);
        let others: BTreeSet<usize> = others.collect();
        let lies = lies.into_iter().filter(|(speaker, _)| liars.contains(speaker));
        // All others speak the truth: some of the liars' peers are dead, and none of theirs.
        let dead: BTreeSet<usize> = liars.intersection(&dead).copied().collect();
        let truth = (0..organisations.len()).filter(|peer| organisations[*peer] != 0);
        let words: Words = truth.map(|peer| (peer, dead.clone())).chain(lies).collect();
        let absent = found(&organisations, &words);
        if !others.is_empty() {
            prop_assert!(absent.iter().all(|peer| liars.contains(peer)), "{absent:?}");
        }
        if others.len() >= 2 {
            prop_assert!(dead.is_subset(&absent));
        }
    }

    /// Whatever links between pairs of peers are broken, one a peer at most: where organisations have three peers or there
    /// are three of them, nobody is absent.
    #[test]
    fn broken_links_move_nothing(
        orgs in 1..6_usize, size in 1..5_usize, pairs in any::<[bool; 12]>(),
    ) {
        prop_assume!(orgs * size <= KEYS && (orgs >= 3 || size >= 3));
        let organisations: Vec<usize> = (0..orgs * size).map(|peer| peer % orgs).collect();
        let mut words: Words = (0..orgs * size).map(|peer| (peer, BTreeSet::new())).collect();
        for (a, broken) in pairs.iter().enumerate() {
            let (a, b) = (2 * a, 2 * a + 1);
            if *broken && b < orgs * size {
                words.get_mut(&a).unwrap().insert(b);
                words.get_mut(&b).unwrap().insert(a);
            }
        }
        prop_assert_eq!(found(&organisations, &words), BTreeSet::new());
    }
}

fn words(of: &[(usize, &[usize])]) -> Words {
    of.iter().map(|(speaker, of)| (*speaker, of.iter().copied().collect())).collect()
}

#[test]
fn the_dead_are_absent_in_networks_of_every_small_size() {
    // Two organisations of two, one peer dead; then an organisation all of whose peers are.
    assert_eq!(found(&[0, 0, 1, 1], &words(&[(0, &[1]), (2, &[1]), (3, &[1])])), [1].into());
    assert_eq!(found(&[0, 0, 1, 1], &words(&[(2, &[0, 1]), (3, &[0, 1])])), [0, 1].into());
    // Two organisations of one: who is left is enough, and hears nobody against itself.
    assert_eq!(found(&[0, 1], &words(&[(0, &[1])])), [1].into());
    // One organisation of three, and of two.
    assert_eq!(found(&[0, 0, 0], &words(&[(0, &[2]), (1, &[2])])), [2].into());
    assert_eq!(found(&[0, 0], &words(&[(0, &[1])])), [1].into());
    // A network of one, and one that says nothing.
    assert_eq!(found(&[0], &words(&[(0, &[])])), [].into());
    assert_eq!(found(&[0, 1, 2], &Words::new()), [].into());
}

#[test]
fn of_two_organisations_neither_votes_the_others_peers_away() {
    // All of the second say absent of all of the first, who are heard: even where there is one of it alone.
    assert_eq!(found(&[0, 0, 1, 1, 1], &words(&[(0, &[]), (2, &[0, 1]), (3, &[0, 1])])), [].into());
    assert_eq!(found(&[0, 1, 1], &words(&[(0, &[]), (1, &[0]), (2, &[0])])), [].into());
}

#[test]
fn one_liar_in_an_organisation_is_outvoted_and_a_tie_is_no() {
    let three = [0, 0, 0, 1, 1, 1, 2, 2, 2];
    // One of the first and one of the second: no organisation says yes.
    assert_eq!(
        found(&three, &words(&[(0, &[8]), (1, &[]), (2, &[]), (3, &[8]), (4, &[])])),
        [].into()
    );
    // Two of three in two of three organisations: yes.
    let most = words(&[
        (0, &[8]),
        (1, &[8]),
        (2, &[]),
        (3, &[8]),
        (4, &[8]),
        (5, &[]),
        (6, &[]),
        (7, &[]),
    ]);
    assert_eq!(found(&three, &most), [8].into());
    // Two of four organisations are not more than half.
    let four = [0, 1, 2, 3];
    assert_eq!(found(&four, &words(&[(0, &[3]), (1, &[3]), (2, &[]), (3, &[])])), [].into());
    assert_eq!(found(&four, &words(&[(0, &[3]), (1, &[3]), (2, &[])])), [3].into());
}

#[test]
fn a_peer_does_not_speak_for_itself_but_to_say_that_it_leaves() {
    // The second's other peer says so; itself, alive, is not asked.
    let accused = [(0, &[2][..]), (1, &[2]), (2, &[]), (3, &[2])];
    assert_eq!(found(&[0, 0, 1, 1], &words(&accused)), [2].into());
    // Of two organisations one is a single peer, which leaves and says so.
    assert_eq!(found(&[0, 0, 1], &words(&[(0, &[2]), (1, &[2]), (2, &[2])])), [2].into());
    assert_eq!(found(&[0, 0, 1], &words(&[(0, &[2]), (1, &[2]), (2, &[])])), [].into());
    // Its own word alone is one organisation's of three.
    assert_eq!(found(&[0, 1, 2], &words(&[(0, &[]), (1, &[]), (2, &[2])])), [].into());
}

#[test]
fn who_is_absent_is_not_heard_about_others() {
    // Peer 4 is absent by three organisations of four. With its word there would be two of four against peer 0; without it,
    // its organisation being silent, there is one of three.
    let four = [0, 1, 2, 3, 3];
    let said = words(&[(0, &[4]), (1, &[4, 0]), (2, &[4]), (4, &[0])]);
    assert_eq!(found(&four, &said), [4].into());
    // The other way round: it keeps nobody by its silence. Against peer 0 speak two of the three that are left.
    let said = words(&[(0, &[4]), (1, &[4, 0]), (2, &[4, 0]), (4, &[])]);
    assert_eq!(found(&four, &said), [0, 4].into());
}

#[test]
fn two_who_accuse_each_other_are_judged_by_all_at_once() {
    // One of each organisation, and all say of the other two: nobody has more against it than another.
    let said = words(&[(0, &[1, 2]), (1, &[0, 2]), (2, &[0, 1])]);
    assert_eq!(found(&[0, 1, 2], &said), [0, 1, 2].into());
    // There are more against peer 3, so its word against peer 0 is not counted: two of four are left.
    let said = words(&[(0, &[3]), (1, &[3]), (2, &[3, 0]), (3, &[0]), (4, &[3, 0])]);
    assert_eq!(found(&[0, 1, 2, 3, 4], &said), [3].into());
}

#[test]
fn words_of_and_about_strangers_count_nothing() {
    let view = view(&[0, 1]);
    let (stranger, all) = (IDS[9], ids(&[0, 1, 9].into()));
    let said = [(stranger, all.clone()), (IDS[0], [IDS[9]].into())];
    assert!(absent(&view, said.iter().map(|(speaker, of)| (speaker, of))).is_empty());
}
