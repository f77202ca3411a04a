//! One wish has one encoding, and a signature stands for it alone.

use super::*;
use crate::proving::{Founded, kept_in_one_call, object, secret, set, version};

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
    let versions = [version(1), version(2)];
    let receipts = || vec![kept_in_one_call(7, &versions), kept_in_one_call(8, &versions)];
    let kept = Submission::bundle_kept(&all, receipts(), &key).expect("their author's");
    assert_eq!(kept.updates(), &all[..]);
    for good in [one.encode(), bundle.encode(), kept.encode()] {
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
    let alone =
        Submission::checked(bundle.0, Vec::new(), bundle.1, true, None).expect("well formed");
    assert!(alone.verify().is_err());
}

#[test]
fn receipts_of_a_bundle_are_for_all_that_it_sets() {
    let (all, key) = (updates(), secret(1));
    let of = |receipts: Vec<Receipt>| Submission::bundle_kept(&all, receipts, &key);
    let good = kept_in_one_call(7, &[version(1), version(2)]);
    let one = of(vec![good.clone()]).expect("its two");
    let suite = Suite::Holdfast1;
    let kept = |one: &Submission| one.asked().next().map(|one| one.kept(suite).to_vec());
    assert_eq!(kept(&one), Some(vec![good.peer]));
    assert_eq!(kept(&Submission::bundle(&all, &key).expect("good")), Some(Vec::new()));
    assert_eq!(kept(&of(vec![good.clone(); 2]).expect("good")), Some(vec![good.peer]), "once");
    // Others, as many; another order; another's word under this name.
    let others = kept_in_one_call(7, &[version(1), version(3)]);
    let turned = kept_in_one_call(7, &[version(2), version(1)]);
    let anothers = Receipt { peer: kept_in_one_call(8, &[version(1)]).peer, ..good.clone() };
    let wrong = of(vec![others, turned, anothers]).expect("well formed");
    assert_eq!(kept(&wrong), Some(Vec::new()));
    // What cannot be for these.
    let fewer = kept_in_one_call(7, &[version(1)]);
    let foreign = Receipt { network: NetworkId::new([1; 32]), ..good.clone() };
    for wrong in [fewer, foreign] {
        assert!(matches!(of(vec![wrong]), Err(CommitteeError::Field(_))));
    }
    let nothing = Receipt { count: 0, ..good.clone() };
    assert!(Submission::bundle_kept(&all[..1], vec![nothing], &key).is_err(), "it sets nothing");
    let many = of(vec![good.clone(); RECEIPTS_MAX + 1]);
    assert!(matches!(many, Err(CommitteeError::TooLarge { .. })));
    of(vec![good.clone(); RECEIPTS_MAX]).expect("as many as may be");
    // With and without them it is another submission of the same updates; and there is one encoding for none.
    let bare = Submission::bundle(&all, &key).expect("good");
    assert_eq!(one.digests(), bare.digests());
    assert_ne!(one.key(), bare.key());
    assert_eq!(Submission::tag_of(&one.encode()), Some(*one.tag()));
    let mut none = KEPT_PREFIX.to_vec();
    none.extend_from_slice(&bare.0.signature);
    none.push(0);
    none.extend_from_slice(bare.encode().get(BUNDLE_PREFIX.len() + 64..).expect("bodies"));
    assert!(Submission::decode(&none.into()).is_err());
    // Nobody on the way takes them out or puts others in: the author signed for them.
    let stripped = [BUNDLE_PREFIX, &one.0.signature].concat();
    let bodies = bare.encode().slice(BUNDLE_PREFIX.len() + 64..);
    let stripped = Bytes::from([&stripped[..], &bodies].concat());
    assert!(Submission::decode(&stripped).expect("well formed").verify().is_err());
    let put_in = [KEPT_PREFIX, &bare.0.signature, &receipts_written(&[good]), &bodies].concat();
    assert!(Submission::decode(&put_in.into()).expect("well formed").verify().is_err());
}

#[test]
fn receipts_of_a_bundle_are_of_the_networks_suite() {
    let (all, key) = (updates(), secret(1));
    let hs = [version(1).h, version(2).h];
    for suite in Suite::ALL {
        let root = merkle::root(suite, &hs).expect("two");
        let good = kept_in_one_call(7, &[version(1), version(2)]);
        let Receipt { durability, lease_ms, time_ms, network, .. } = good;
        let terms = version::receipt::Terms { durability, lease_ms, time_ms };
        let receipt = Receipt::sign_root(&secret(7), &network, terms, 2, &root);
        for asked_in in Suite::ALL {
            let one = Submission::bundle_kept(&all, vec![receipt.clone()], &key).expect("good");
            let kept = one.asked().next().expect("four").kept(asked_in);
            assert_eq!(kept.len(), usize::from(asked_in == suite), "{suite:?} in {asked_in:?}");
        }
    }
}

#[test]
fn receipts_of_a_bundle_count_among_its_bytes() {
    let founded = Founded::new(4);
    let (key, number) = (secret(1), 33);
    let peer = |length: usize| Operation::Peer { certificate: vec![0; length].into() };
    let set = set(object(1).1, None, version(1), &[]);
    let of = |last: usize, receipts: Vec<Receipt>| {
        let mut all = vec![founded.update(1, 0, set.clone())];
        all.extend((1..number).map(|id| founded.update(1, id, peer(31 << 10))));
        all.push(founded.update(1, number, peer(last)));
        Submission::bundle_kept(&all, receipts, &key)
    };
    let receipts = || vec![kept_in_one_call(7, &[version(1)]); 16];
    let (bare, with) = (|last| of(last, Vec::new()), |last| of(last, receipts()));
    let longest = |fits: &dyn Fn(usize) -> bool| {
        let (mut least, mut most) = (0, UPDATE_BYTES_MAX - 200);
        assert!(fits(least) && !fits(most));
        while most - least > 1 {
            let middle = least.midpoint(most);
            if fits(middle) { least = middle } else { most = middle }
        }
        least
    };
    let (alone, beside) =
        (longest(&|last| bare(last).is_ok()), longest(&|last| with(last).is_ok()));
    assert_eq!(alone - beside, receipts_written(&receipts()).len());
    for longest in [bare(alone).expect("it fits"), with(beside).expect("it fits")] {
        assert!((SUBMISSION_BYTES_MAX - 4..=SUBMISSION_BYTES_MAX).contains(&longest.size()));
        Submission::decode(&longest.encode()).expect("what is let out is taken in");
    }
}
