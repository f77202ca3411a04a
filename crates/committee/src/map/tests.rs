//! Against a plain map; proofs against every other key, value and root.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn key(number: u16) -> Hash {
    Suite::Holdfast1.hash(&number.to_be_bytes())
}

/// Keys that share their first bits, so that paths are long.
fn close(number: u16) -> Hash {
    let mut key = [0; 32];
    key[30..].copy_from_slice(&number.to_be_bytes());
    key
}

fn again(proof: &Proof) -> Proof {
    let mut bytes = Vec::new();
    proof.write(&mut bytes);
    let mut reader = Reader::new("proof", &bytes);
    let read = Proof::read(&mut reader).expect("our own");
    reader.end().expect("all of it");
    read
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn it_holds_what_a_plain_map_holds(
        steps in prop::collection::vec((0u16..80, any::<u8>()), 0..120),
        near in any::<bool>(),
    ) {
        let key = if near { close } else { key };
        let (mut map, mut plain) = (Map::new(), BTreeMap::new());
        for (number, value) in steps {
            let before = map.clone();
            let root = before.root();
            map.insert(key(number), vec![value; usize::from(value % 5)].into());
            plain.insert(key(number), vec![value; usize::from(value % 5)]);
            prop_assert_eq!(before.root(), root, "a copy stays as it was");
        }
        prop_assert_eq!(map.len(), plain.len());
        prop_assert_eq!(map.value_bytes(), plain.values().map(Vec::len).sum::<usize>());
        let mut all = Vec::new();
        map.each(|key, value| all.push((*key, value.to_vec())));
        prop_assert_eq!(&all, &plain.clone().into_iter().collect::<Vec<_>>());
        // The shape does not depend on the order.
        let mut backwards = Map::new();
        all.into_iter().rev().for_each(|(key, value)| backwards.insert(key, value.into()));
        prop_assert_eq!(backwards.root(), map.root());
        for number in 0..90 {
            let key = key(number);
            let value = plain.get(&key);
            prop_assert_eq!(map.get(&key).map(|value| value.to_vec()), value.cloned());
            let proof = again(&map.prove(&key));
            prop_assert_eq!(proof.root(&key, value.map(|value| &value[..])), Some(map.root()));
            let other = if value.is_some() { None } else { Some(&b""[..]) };
            prop_assert_ne!(proof.root(&key, other), Some(map.root()));
            prop_assert_ne!(proof.root(&key, Some(b"something else")), Some(map.root()));
        }
    }
}

#[test]
fn a_proof_is_of_its_key_alone() {
    let mut map = Map::new();
    (0..40).for_each(|number| map.insert(key(number), Bytes::from(vec![number as u8])));
    for number in 0..50 {
        let there = number < 40;
        let value = [number as u8];
        let proof = map.prove(&key(number));
        for other in (0..50).filter(|other| *other != number) {
            let root = proof.root(&key(other), there.then_some(&value[..]));
            assert_ne!(root.filter(|_| there), Some(map.root()), "{number} as {other}");
            if !there && other < 40 {
                assert_ne!(proof.root(&key(other), None), Some(map.root()), "{other} denied");
            }
        }
        let mut longer = proof.clone();
        longer.siblings.push([0; 32]);
        assert_ne!(longer.root(&key(number), there.then_some(&value[..])), Some(map.root()));
        for at in 0..proof.siblings.len() {
            let mut changed = proof.clone();
            changed.siblings[at][3] ^= 1;
            assert_ne!(changed.root(&key(number), there.then_some(&value[..])), Some(map.root()));
        }
    }
}

#[test]
fn what_is_there_cannot_be_denied_by_another_leaf() {
    let mut map = Map::new();
    map.insert(key(1), Bytes::from_static(b"one"));
    let mut proof = map.prove(&key(2));
    assert_eq!(proof.root(&key(2), None), Some(map.root()), "another leaf stands there");
    // The leaf itself, called another: it is refused to speak against its own key.
    assert_eq!(proof.root(&key(1), None), None);
    proof.there = There::Nothing;
    assert_ne!(proof.root(&key(1), None), Some(map.root()));
    assert_eq!(Map::new().prove(&key(1)).root(&key(1), None), Some([0; 32]));
}
