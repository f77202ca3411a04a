use proptest::prelude::*;

use super::*;
use crate::{ObjectRecord, Proven, prove};

const SUITE: Suite = Suite::Holdfast1;
const NETWORK: NetworkId = NetworkId::new([9; 32]);

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
}

fn key(byte: u8) -> PublicKey {
    secret(byte).public()
}

fn policy(for_what: For, version: u64) -> Policy {
    Policy { for_what, version, ..Policy::implied(NETWORK, key(1)) }
}

fn object(name: &[u8]) -> ObjectRecord {
    ObjectRecord { network: NETWORK, owner: key(1), name: Bytes::copy_from_slice(name) }
}

fn named(name: &'static [u8]) -> For {
    For::Object(Bytes::from_static(name))
}

fn family(prefix: &'static [u8]) -> For {
    For::Family(Bytes::from_static(prefix))
}

fn full() -> Policy {
    Policy {
        open: true,
        public: true,
        readers: vec![key(3), key(2), key(3)],
        writers: vec![key(4)],
        copies: Some(Copies { copies: 5, acknowledged: 3 }),
        region_bytes: 1 << 20,
        payer: Some(key(6)),
        ..policy(named(b"report"), 7)
    }
}

#[test]
fn a_signed_policy_is_proven_where_it_lives() {
    for suite in Suite::ALL {
        for (policy, object_key) in [
            (full(), Some(object(b"report").key(suite).expect("a name"))),
            (policy(family(b"redis/"), 1), None),
            (policy(family(b""), u64::MAX), None),
        ] {
            let record = policy.sign(suite, &secret(1)).expect("a good policy");
            assert!(record.bytes.len() <= POLICY_BYTES_MAX);
            let found = Policy::verify(&record.bytes).expect("our own");
            assert_eq!(found.object(suite).expect("a name"), object_key);
            assert_eq!((&found.for_what, found.version), (&policy.for_what, policy.version));
            assert_eq!(prove(suite, &record).expect("our own"), Proven::Policy(Box::new(found)));
            let elsewhere = Record { place: record.id.into(), ..record };
            assert!(matches!(prove(suite, &elsewhere), Err(VersionError::Place(_))));
        }
    }
    let found = Policy::verify(&full().sign(SUITE, &secret(1)).expect("good").bytes).expect("good");
    assert_eq!(found.readers.len(), 2, "in order, each once");
    assert!(found.readers.is_sorted());
}

#[test]
fn a_policy_that_another_signed_or_changed_is_refused() {
    // A forged owner: the key is not the one that the policy names.
    let forged = full().sign(SUITE, &secret(2));
    assert!(matches!(forged, Err(VersionError::Key(crypto::KeyError::Signature))));
    let good = full().sign(SUITE, &secret(1)).expect("a good policy").bytes;
    for at in 0..good.len() {
        let mut other = good.to_vec();
        other[at] ^= 1 << (at % 8);
        assert!(Policy::verify(&other.into()).is_err(), "byte {at}");
        assert!(Policy::verify(&good.slice(..at)).is_err(), "cut at {at}");
    }
    let long = [&good[..], &[0]].concat();
    assert!(Policy::verify(&long.into()).is_err());
}

#[test]
fn what_no_policy_can_say_is_refused() {
    let refused = |policy: Policy, why: &str| {
        assert!(policy.sign(SUITE, &secret(1)).is_err(), "{why}");
    };
    refused(policy(named(b"report"), 0), "versions begin at 1");
    refused(policy(named(b""), 1), "an object has a name");
    refused(policy(For::Object(vec![b'x'; 1_025].into()), 1), "a long name");
    refused(policy(For::Family(vec![b'x'; 1_025].into()), 1), "a long prefix");
    let copies = |copies, acknowledged| Policy {
        copies: Some(Copies { copies, acknowledged }),
        ..policy(named(b"report"), 1)
    };
    assert!(copies(3, 3).sign(SUITE, &secret(1)).is_ok());
    refused(copies(3, 4), "more acknowledged than there are");
    refused(copies(3, 0), "none acknowledged");
    refused(copies(0, 1), "of none, one");
    refused(copies(65, 1), "too many copies");
    refused(Policy { network: NetworkId::NONE, ..full() }, "no network");
    // As others might write it: out of order, or a key twice.
    let with_readers = |readers: Vec<Bytes>| {
        let wire = Wire { readers, ..full().wire() };
        Policy::verify(&FORMAT.sign(&wire, &secret(1), &NETWORK).expect("short"))
    };
    let [two, three] = [2, 3].map(|byte| Bytes::copy_from_slice(key(byte).as_bytes()));
    let (first, second) = if two < three { (two, three) } else { (three, two) };
    assert!(with_readers(vec![first.clone(), second.clone()]).is_ok());
    assert!(with_readers(vec![second.clone(), first.clone()]).is_err());
    assert!(with_readers(vec![first.clone(), first]).is_err());
    assert!(with_readers(vec![second; 257]).is_err());
    assert!(with_readers(vec![Bytes::from_static(&[4; 33])]).is_err(), "no point of the curve");
}

#[test]
fn rights_are_the_owners_to_give() {
    let implied = Policy::implied(NETWORK, key(1));
    assert!(implied.may_write(&key(1)) && implied.may_read(&key(1)));
    assert!(!implied.may_write(&key(2)) && !implied.may_read(&key(2)), "a stranger");
    let shared = Policy { public: false, ..full() };
    for (who, reads, writes) in [(1, true, true), (2, true, false), (4, true, true)] {
        assert_eq!((shared.may_read(&key(who)), shared.may_write(&key(who))), (reads, writes));
    }
    assert!(!shared.may_read(&key(7)));
    assert!(full().may_read(&key(7)) && !full().may_write(&key(7)));
    assert_eq!((implied.payer(), full().payer()), (&key(1), &key(6)));
}

#[test]
fn a_policy_never_rolls_back() {
    let mut policies = Policies::new(SUITE, NETWORK);
    let second = policy(named(b"report"), 2);
    assert_eq!(policies.take(second.clone()).expect("the first"), Taken::New);
    assert_eq!(policies.take(second.clone()).expect("the same"), Taken::Known);
    let refused = |policies: &mut Policies, policy: Policy| {
        assert!(matches!(policies.take(policy), Err(VersionError::OldPolicy { newest: 2, .. })));
    };
    refused(&mut policies, policy(named(b"report"), 1));
    refused(&mut policies, Policy { public: true, ..second });
    assert_eq!(policies.take(policy(named(b"report"), 9)).expect("a later one"), Taken::New);
    assert_eq!(policies.of(&object(b"report")).expect("the later one").version, 9);
    assert_eq!(policies.len(), 1);
    let other = Policy { network: NetworkId::new([8; 32]), ..policy(named(b"report"), 10) };
    assert!(matches!(policies.take(other), Err(VersionError::Network(_))));
    // A family counts for itself, and so do the others' policies.
    policies.take(policy(family(b"report"), 1)).expect("of a family");
    policies.take(Policy { owner: key(2), ..policy(named(b"report"), 1) }).expect("another's");
    assert_eq!(policies.of(&object(b"report")).expect("its own").version, 9);
    assert_eq!(policies.of(&object(b"reports")).expect("the family's").version, 1);
    assert_eq!(policies.of(&ObjectRecord { owner: key(3), ..object(b"report") }), None);
    assert_eq!(policies.len(), 3);
}

#[test]
fn known_policies_are_bounded() {
    let mut policies = Policies::new(SUITE, NETWORK);
    let large = |number: u32| Policy {
        readers: vec![key(2); POLICY_KEYS_MAX],
        writers: vec![key(2); POLICY_KEYS_MAX],
        ..policy(For::Family(number.to_be_bytes().to_vec().into()), 1)
    };
    let full = (0..10_000).find(|number| policies.take(large(*number)).is_err());
    let full = full.expect("there is an end to it");
    assert!(full > 6_000, "{full}");
    // What is known may still be replaced.
    let next = Policy { version: 2, ..large(0) };
    assert_eq!(policies.take(next).expect("in its place"), Taken::New);
}

proptest! {
    /// The longest prefix of all, found by looking at each.
    #[test]
    fn the_longest_prefix_counts(
        prefixes in proptest::collection::vec(proptest::collection::vec(b'a'..b'd', 0..5), 0..12),
        name in proptest::collection::vec(b'a'..b'd', 1..6),
    ) {
        let mut policies = Policies::new(SUITE, NETWORK);
        for prefix in &prefixes {
            policies.take(policy(For::Family(prefix.clone().into()), 1)).expect("room");
        }
        let found = policies.of(&object(&name)).map(|policy| policy.for_what.clone());
        let wanted = prefixes.iter().filter(|prefix| name.starts_with(prefix));
        let wanted = wanted.max_by_key(|prefix| prefix.len());
        prop_assert_eq!(found, wanted.map(|prefix| For::Family(prefix.clone().into())));
    }
}
