//! One wish has one encoding, and a signature stands for it alone.

use super::*;
use crate::proving::{Founded, object, secret, set, version};

fn updates() -> Vec<Update> {
    let founded = Founded::new(4);
    let (record, key) = object(1);
    let made = Operation::Object { record, policy: Bytes::new() };
    let first = set(key, None, version(1), &[5, 6]);
    let second = set(key, Some((version(1), 3)), version(2), &[5]);
    let peer = Operation::Peer { certificate: Bytes::from_static(b"certificate") };
    let all = [made, first, second, peer];
    all.into_iter().enumerate().map(|(id, one)| founded.update(1, id as u8, one)).collect()
}

#[test]
fn an_update_has_one_encoding() {
    for update in updates() {
        let bytes = update.encode().expect("a good update");
        assert_eq!(Update::decode(&bytes).expect("our own"), update);
        for at in 0..bytes.len() {
            assert!(Update::decode(&bytes.slice(..at)).is_err(), "cut at {at}");
        }
        let longer = Bytes::from([&bytes[..], &[0]].concat());
        assert!(Update::decode(&longer).is_err());
    }
}

#[test]
fn what_no_update_says_is_refused() {
    let [_, first, ..] = &updates()[..] else { panic!("four") };
    let Operation::Set { object, new, receipts, .. } = &first.operation else { panic!("a set") };
    let with = |branch: &str, receipts: Vec<Bytes>| {
        let (object, new, branch) = (*object, *new, branch.into());
        let operation = Operation::Set { object, branch, expected: None, new, receipts };
        Update { operation, ..first.clone() }.encode()
    };
    assert!(with("", receipts.clone()).is_err(), "a branch without a name");
    assert!(with(&"b".repeat(129), receipts.clone()).is_err());
    assert!(with("a\nb", receipts.clone()).is_err());
    assert!(with("main", vec![receipts[0].clone(); 17]).is_err(), "too many receipts");
    assert!(with("main", vec![Bytes::from_static(b"none")]).is_err());
    with("main", vec![receipts[0].clone(); 16]).expect("as many as may be");
    let certificate = Bytes::from(vec![0; UPDATE_BYTES_MAX]);
    let long = Update { operation: Operation::Peer { certificate }, ..first.clone() };
    assert!(matches!(long.encode(), Err(CommitteeError::TooLarge { .. })));
}

#[test]
fn a_changed_update_is_refused() {
    let all = updates();
    let key = secret(1);
    let one = all[1].sign(&key).expect("its author's");
    let bundle = Submission::bundle(&all, &key).expect("their author's");
    assert_eq!(one.updates(), &all[1..2]);
    assert_eq!(bundle.updates(), &all[..]);
    assert_eq!(bundle.digests()[1], one.digests()[0], "signed either way it is the same wish");
    for good in [one.encode(), bundle.encode()] {
        let read = Submission::decode(&good).expect("our own").verify().expect("our own");
        assert_eq!(read.encode(), good);
        for at in 0..good.len() {
            let mut other = good.to_vec();
            other[at] ^= 1 << (at % 8);
            let other = Submission::decode(&other.into()).and_then(Submission::verify);
            assert!(other.is_err(), "byte {at}");
            assert!(Submission::decode(&good.slice(..at)).is_err(), "cut at {at}");
        }
    }
}

#[test]
fn a_bundle_is_of_one_author_and_bounded() {
    let mut all = updates();
    assert!(all[0].sign(&secret(2)).is_err(), "another's key");
    assert!(Submission::bundle(&all, &secret(2)).is_err());
    assert!(Submission::bundle(&[], &secret(1)).is_err());
    let many = vec![all[0].clone(); BUNDLE_UPDATES_MAX + 1];
    assert!(matches!(Submission::bundle(&many, &secret(1)), Err(CommitteeError::TooLarge { .. })));
    Submission::bundle(&many[1..], &secret(1)).expect("as many as may be");
    all[2].author = secret(2).public();
    assert!(Submission::bundle(&all, &secret(1)).is_err(), "two authors");
    // One alone and a bundle of one are signed for different things.
    let one = updates()[1].sign(&secret(1)).expect("its author's");
    let bundle = (one.bodies().to_vec(), one.0.signature);
    let alone = Submission::checked(bundle.0, bundle.1, true, None).expect("well formed");
    assert!(alone.verify().is_err());
}
