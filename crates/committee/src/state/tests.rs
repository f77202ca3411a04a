//! What an update does, against the rules and against a plain model.

use std::collections::BTreeMap;

use crypto::{RecordId, SecretKey};
use proptest::prelude::*;
use version::Durability;
use version::merkle::Tree;
use version::policy::Copies;
use version::receipt::Terms;

use super::*;
use crate::Submission;
use crate::proving::{
    Founded, NETWORK, SUITE, kept_in_one_call, object, peer_certificate, receipt, secret, set,
    version,
};

/// The key of an update's author.
fn author(update: &Update) -> SecretKey {
    let is = |byte: &u8| secret(*byte).public() == update.author;
    secret((1..=255).find(is).expect("one of the test's keys"))
}

const MOMENT: Moment = Moment { height: 7, time_ms: 2_000_000 };

struct Bench {
    founded: Founded,
    checked: Checked,
    id: u8,
}

impl Bench {
    fn new() -> Self {
        Self { founded: Founded::new(4), checked: Checked::default(), id: 0 }
    }

    fn at(&mut self, height: u64, author: u8, operation: Operation) -> Outcome {
        self.id = self.id.wrapping_add(1);
        let update = self.founded.update(author, self.id, operation);
        self.apply(height, &update)
    }

    fn apply(&mut self, height: u64, update: &Update) -> Outcome {
        let digest = crate::update::digest(&update.encode().expect("a good update"));
        let Founded { state, rules, .. } = &mut self.founded;
        let before = state.root();
        let moment = Moment { height, ..MOMENT };
        let alone = update.sign(&author(update)).expect("its author's");
        let asked = alone.asked().next().expect("one");
        assert_eq!(*asked.digest, digest);
        let outcome = state.apply(rules, moment, &asked, &mut self.checked);
        if !matches!(outcome, Outcome::Accepted { .. }) {
            assert_eq!(state.root(), before, "a refused update changes nothing: {outcome:?}");
        }
        assert_eq!(Outcome::decode(&outcome.encode()).expect("our own"), outcome);
        outcome
    }

    fn known(owner: u8) -> (Self, ObjectKey) {
        let mut bench = Self::new();
        let (record, key) = object(owner);
        let made = bench.at(1, owner, Operation::Object { record, policy: Bytes::new() });
        assert_eq!(made, Outcome::Accepted { height: 1 });
        (bench, key)
    }
}

fn policy(version: u64, writers: &[u8], acknowledged: u32) -> Bytes {
    let policy = Policy {
        for_what: For::Object(Bytes::from_static(b"report")),
        version,
        writers: writers.iter().map(|writer| secret(*writer).public()).collect(),
        copies: Some(Copies { copies: acknowledged, acknowledged }),
        ..Policy::implied(NETWORK, secret(1).public())
    };
    policy.sign(SUITE, &secret(1)).expect("a good policy").bytes
}

#[test]
fn a_head_moves_from_what_was_expected_alone() {
    let (mut bench, key) = Bench::known(1);
    let expected = Some((version(9), 3));
    let none = bench.at(2, 1, set(key, expected, version(1), &[5]));
    assert_eq!(none, Outcome::MovedOn { current: None });
    let first = bench.at(3, 1, set(key, None, version(1), &[5]));
    assert_eq!(first, Outcome::Accepted { height: 3 });
    let current = Some((version(1), 3));
    for wrong in [None, Some((version(1), 2)), Some((version(2), 3))] {
        let outcome = bench.at(4, 1, set(key, wrong, version(2), &[5]));
        assert_eq!(outcome, Outcome::MovedOn { current }, "{wrong:?}");
    }
    let second = bench.at(4, 1, set(key, current, version(2), &[5]));
    assert_eq!(second, Outcome::Accepted { height: 4 });
    // The first version again: it is not the head that it was at height 3.
    let back = bench.at(5, 1, set(key, Some((version(2), 4)), version(1), &[5]));
    assert_eq!(back, Outcome::Accepted { height: 5 });
    let stale = bench.at(6, 1, set(key, Some((version(1), 3)), version(3), &[5]));
    assert_eq!(stale, Outcome::MovedOn { current: Some((version(1), 5)) });
}

#[test]
fn an_update_is_done_once_and_answered_again() {
    let (mut bench, key) = Bench::known(1);
    let update = bench.founded.update(1, 99, set(key, None, version(1), &[5]));
    assert_eq!(bench.apply(3, &update), Outcome::Accepted { height: 3 });
    let root = bench.founded.state.root();
    assert_eq!(bench.apply(4, &update), Outcome::Accepted { height: 3 }, "as it was answered");
    assert_eq!(bench.founded.state.root(), root);
    let mut current = (version(1), 3);
    for height in 4..7 {
        let new = version(height as u8);
        let next = bench.at(height, 1, set(key, Some(current), new, &[5]));
        assert_eq!(next, Outcome::Accepted { height });
        current = (new, height);
        assert_eq!(bench.apply(height, &update), Outcome::Accepted { height: 3 });
    }
    bench.at(7, 1, set(key, Some(current), version(7), &[5]));
    let late = bench.apply(8, &update);
    assert_eq!(late, Outcome::MovedOn { current: Some((version(7), 7)) }, "never done twice");
}

#[test]
fn only_writers_write_and_only_the_owner_begins() {
    let (mut bench, key) = Bench::known(1);
    assert_eq!(bench.at(2, 2, set(key, None, version(1), &[5])), Outcome::NotAWriter);
    let (record, _) = object(1);
    let named = |policy| Operation::Object { record: record.clone(), policy };
    assert_eq!(bench.at(2, 2, named(policy(1, &[2], 1))), Outcome::NotAWriter, "another's");
    assert_eq!(bench.at(2, 1, named(policy(1, &[2], 1))), Outcome::Accepted { height: 2 });
    assert_eq!(bench.at(3, 2, set(key, None, version(1), &[5])), Outcome::NotAWriter);
    assert_eq!(bench.at(3, 1, set(key, None, version(1), &[5])), Outcome::Accepted { height: 3 });
    let next = set(key, Some((version(1), 3)), version(2), &[5]);
    assert_eq!(bench.at(4, 3, next.clone()), Outcome::NotAWriter);
    assert_eq!(bench.at(4, 2, next), Outcome::Accepted { height: 4 });
    let other = object(2).1;
    assert_eq!(bench.at(5, 2, set(other, None, version(1), &[5])), Outcome::NoObject);
}

#[test]
fn an_object_of_a_full_state_gets_no_more_writers() {
    let (mut bench, _) = Bench::known(1);
    let record = object(1).0;
    let named = |policy| Operation::Object { record: record.clone(), policy };
    assert_eq!(bench.at(2, 1, named(policy(1, &[2], 1))), Outcome::Accepted { height: 2 });
    // What else there is shares its bytes.
    let large = Bytes::from(vec![0; 32 << 20]);
    for key in (0..).map(|number| [number; 32]) {
        if !bench.founded.state.has_room() {
            break;
        }
        bench.founded.state.map.insert(key, large.clone());
    }
    let bytes = bench.founded.state.bytes();
    assert_eq!(bench.at(3, 1, named(policy(2, &[2, 3], 1))), Outcome::Full);
    assert_eq!(bench.founded.state.bytes(), bytes);
    // Others in their place, and fewer, need no room.
    assert_eq!(bench.at(4, 1, named(policy(2, &[3], 1))), Outcome::Accepted { height: 4 });
    assert_eq!(bench.at(5, 1, named(policy(3, &[], 1))), Outcome::Accepted { height: 5 });
}

#[test]
fn a_policy_never_rolls_back() {
    let (mut bench, key) = Bench::known(1);
    let (record, _) = object(1);
    let mut take = |policy: &Bytes| {
        bench.at(2, 1, Operation::Object { record: record.clone(), policy: policy.clone() })
    };
    let (first, second) = (policy(1, &[2], 1), policy(2, &[3], 2));
    assert_eq!(take(&second), Outcome::Accepted { height: 2 });
    assert_eq!(take(&second), Outcome::Accepted { height: 2 }, "the same again");
    assert_eq!(take(&first), Outcome::RolledBack { newest: 2 });
    assert_eq!(take(&policy(2, &[4], 2)), Outcome::RolledBack { newest: 2 });
    assert_eq!(take(&Bytes::new()), Outcome::RolledBack { newest: 2 });
    let mut changed = second.to_vec();
    *changed.last_mut().expect("bytes") ^= 1;
    assert_eq!(take(&changed.into()), Outcome::NotValid);
    let known = bench.founded.state.object(&key).expect("known");
    assert_eq!((known.policy, known.wanted, known.writers.len()), (2, 2, 1));
    let other = object(2).0;
    let stolen = Operation::Object { record: other, policy: second };
    assert_eq!(bench.at(3, 2, stolen), Outcome::NotValid, "a policy for another object");
}

#[test]
fn a_version_that_too_few_keep_is_refused() {
    let (mut bench, key) = Bench::known(1);
    let (record, _) = object(1);
    bench.at(2, 1, Operation::Object { record, policy: policy(1, &[], 2) });
    let short = |found| Outcome::NotStored { wanted: 2, found };
    assert_eq!(bench.at(3, 1, set(key, None, version(1), &[])), short(0));
    assert_eq!(bench.at(3, 1, set(key, None, version(1), &[5])), short(1));
    assert_eq!(bench.at(3, 1, set(key, None, version(1), &[5, 5, 5])), short(1), "one peer");
    let with = |receipts: Vec<Bytes>| Operation::Set {
        object: key,
        branch: "main".into(),
        expected: None,
        new: version(1),
        receipts,
    };
    let other = receipt(6, &version(2));
    assert_eq!(bench.at(3, 1, with(vec![receipt(5, &version(1)), other])), short(1));
    let mut forged = receipt(6, &version(1)).to_vec();
    forged["holdfast received v1".len() + 32 + 33 + 1 + 8 + 8 + 4 + 5] ^= 1;
    let forged = Bytes::from(forged);
    assert_eq!(bench.at(3, 1, with(vec![receipt(5, &version(1)), forged])), short(1));
    // A receipt beside the update counts with those in it, and for no other peer than its own.
    let beside = |bench: &mut Bench, peers: &[u8]| {
        let update = bench.founded.update(1, 99, set(key, None, version(1), &[5]));
        let receipts = peers.iter().map(|peer| kept_in_one_call(*peer, &[version(1)])).collect();
        let bundle = Submission::bundle_kept(&[update], receipts, &secret(1)).expect("good");
        let asked = bundle.asked().next().expect("one");
        let mut state = bench.founded.state.clone();
        state.apply(
            &bench.founded.rules,
            Moment { height: 3, ..MOMENT },
            &asked,
            &mut bench.checked,
        )
    };
    assert_eq!(beside(&mut bench, &[]), short(1));
    assert_eq!(beside(&mut bench, &[5]), short(1), "one peer");
    assert_eq!(beside(&mut bench, &[6]), Outcome::Accepted { height: 3 });
    let done = bench.at(3, 1, set(key, None, version(1), &[5, 6]));
    assert_eq!(done, Outcome::Accepted { height: 3 });
}

#[test]
fn a_policy_of_more_copies_than_an_update_has_receipts_wants_as_many_as_it_may_have() {
    let (mut bench, key) = Bench::known(1);
    let (record, _) = object(1);
    let wanted = RECEIPTS_MAX as u8;
    let more = policy(1, &[], u32::from(wanted) + 4);
    bench.at(2, 1, Operation::Object { record, policy: more });
    assert_eq!(bench.founded.state.object(&key).expect("known").wanted, wanted + 4);
    let of = |peers: u8| set(key, None, version(1), &(10..10 + peers).collect::<Vec<_>>());
    let short = Outcome::NotStored { wanted, found: wanted - 1 };
    assert_eq!(bench.at(3, 1, of(wanted - 1)), short);
    assert_eq!(bench.at(3, 1, of(wanted)), Outcome::Accepted { height: 3 });
}

#[test]
fn only_peers_of_the_organisations_count() {
    let (mut bench, key) = Bench::known(1);
    bench.founded.rules.organisations = vec![OrgId::new(secret(3).public())];
    let refused = Outcome::NotStored { wanted: 1, found: 0 };
    assert_eq!(bench.at(2, 1, set(key, None, version(1), &[5])), refused);
    let mut take = |until, organisation| {
        bench.at(2, 9, Operation::Peer { certificate: peer_certificate(5, organisation, until) })
    };
    assert_eq!(take(3_000, 4), Outcome::NotValid, "nobody of the committee's organisations");
    assert_eq!(take(1_999, 3), Outcome::NotValid, "over since the block's time");
    assert_eq!(take(2_001, 3), Outcome::Accepted { height: 2 });
    assert_eq!(take(2_002, 3), Outcome::Accepted { height: 2 });
    assert_eq!(take(2_001, 3), Outcome::RolledBack { newest: 2_002 });
    let peer = PeerId::new(secret(5).public());
    assert_eq!(bench.founded.state.peer(&peer).expect("known").until, 2_002);
    let done = bench.at(3, 1, set(key, None, version(1), &[5]));
    assert_eq!(done, Outcome::Accepted { height: 3 });
    let next = set(key, Some((version(1), 3)), version(2), &[5]);
    let update = bench.founded.update(1, 77, next);
    let receipts = vec![kept_in_one_call(5, &[version(2)])];
    let late_one = Submission::bundle_kept(&[update], receipts, &secret(1)).expect("good");
    let asked = late_one.asked().next().expect("one");
    let late = Moment { height: 4, time_ms: 2_002_000 };
    let Founded { state, rules, .. } = &mut bench.founded;
    let outcome = state.apply(rules, late, &asked, &mut bench.checked);
    assert_eq!(outcome, refused, "a certificate ends");
}

#[test]
fn a_late_update_is_refused() {
    let (mut bench, key) = Bench::known(1);
    assert_eq!(bench.at(1_001, 1, set(key, None, version(1), &[5])), Outcome::Expired);
    let last = bench.at(1_000, 1, set(key, None, version(1), &[5]));
    assert_eq!(last, Outcome::Accepted { height: 1_000 });
}

#[test]
fn heads_of_an_object_and_of_an_owner_are_bounded() {
    let (mut bench, key) = Bench::known(1);
    let mut branch = |number: u16| {
        let receipts = vec![receipt(5, &version(1))];
        let branch = format!("b{number}").into();
        let new = version(1);
        bench.at(2, 1, Operation::Set { object: key, branch, expected: None, new, receipts })
    };
    for number in 0..BRANCHES_MAX {
        assert_eq!(branch(number), Outcome::Accepted { height: 2 });
    }
    assert_eq!(branch(BRANCHES_MAX), Outcome::Full);
    let (mut bench, key) = Bench::known(1);
    let owner = secret(1).public();
    let entries = OWNER_ENTRIES_MAX;
    bench.founded.state.put(&Entry::Account(AccountEntry { owner, entries }));
    assert_eq!(bench.at(2, 1, set(key, None, version(1), &[5])), Outcome::Full);
}

#[test]
fn a_snapshot_is_the_state() {
    let (mut bench, key) = Bench::known(1);
    bench.at(2, 1, set(key, None, version(1), &[5]));
    let state = &bench.founded.state;
    let snapshot = state.snapshot();
    let again = State::restore(&snapshot).expect("our own");
    assert_eq!((again.root(), again.len()), (state.root(), state.len()));
    for at in 0..snapshot.len() {
        let mut other = snapshot.to_vec();
        other[at] ^= 1;
        let other = State::restore(&other.into());
        assert!(other.is_err() || other.is_ok_and(|other| other.root() != state.root()), "{at}");
        assert!(State::restore(&snapshot.slice(..at)).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..Default::default()
    })]

    /// Against a model of one line: a head moves where it was expected, and nowhere else.
    #[test]
    fn heads_are_those_of_a_plain_model(
        steps in prop::collection::vec(
            (0u8..3, 0u8..2, 0u8..6, any::<bool>(), any::<bool>()),
            1..40,
        ),
    ) {
        let mut bench = Bench::new();
        let objects: Vec<ObjectKey> = (1..=2).map(|owner| {
            let (record, key) = object(owner);
            bench.at(1, owner, Operation::Object { record, policy: Bytes::new() });
            key
        }).collect();
        let mut model: BTreeMap<u8, (VersionId, u64)> = BTreeMap::new();
        for (height, (author, which, new, right, kept)) in (2..).zip(steps) {
            let current = model.get(&which).copied();
            let expected = if right { current } else { Some((version(new), 1)) };
            let peers: &[u8] = if kept { &[5] } else { &[] };
            let operation = set(objects[usize::from(which)], expected, version(new), peers);
            let outcome = bench.at(height, author + 1, operation);
            let wanted = if author != which {
                Outcome::NotAWriter
            } else if expected != current {
                Outcome::MovedOn { current }
            } else if !kept {
                Outcome::NotStored { wanted: 1, found: 0 }
            } else {
                model.insert(which, (version(new), height));
                Outcome::Accepted { height }
            };
            prop_assert_eq!(outcome, wanted);
            for (which, object) in (0..).zip(&objects) {
                let head = bench.founded.state.head(object, "main");
                let head = head.map(|head| (head.version, head.height));
                prop_assert_eq!(head, model.get(&which).copied());
            }
        }
    }
}

/// What a peer answers for several versions, each with its path.
fn received(peer: &SecretKey, count: u8) -> Vec<Received> {
    let hs: Vec<RecordId> = (1..=count).map(|one| version(one).h).collect();
    let tree = Tree::new(SUITE, &hs).expect("versions");
    let terms = Terms { durability: Durability::Group, lease_ms: 0, time_ms: 1_700_000_000_000 };
    let receipt = Receipt::sign(peer, &NETWORK, terms, &tree);
    (0..hs.len()).map(|index| receipt.of_one(&hs, &tree, index).expect("one of them")).collect()
}

#[test]
fn a_receipt_for_many_is_checked_once_and_each_path_always() {
    let all = received(&secret(5), 21);
    let mut checked = Checked::default();
    for _ in 0..2 {
        for one in &all {
            assert!(checked.holds(SUITE, one));
            for at in 0..one.path.siblings.len() {
                let mut other = one.clone();
                other.path.siblings[at][3] ^= 1;
                assert!(!checked.holds(SUITE, &other), "sibling {at}");
            }
            let other = Received { h: version(99).h, ..one.clone() };
            assert!(!checked.holds(SUITE, &other), "another version");
            let mut other = one.clone();
            other.receipt.time_ms += 1;
            assert!(!checked.holds(SUITE, &other), "another time");
        }
    }
    assert_eq!(checked.held.len(), 1, "one signature");
    let (_, known) = checked.held.values().next().expect("it");
    assert_eq!(checked.bytes, CHECKED_BYTES + known.bytes());
}

/// Whoever chooses a key after two messages finds one for which one signature holds for both: with z the messages' digests, any k,
/// and r of kG, s is (z1 - z2) / 2k and the key -(z1 + z2) / 2r. A member that has seen the first must say of the second what
/// one says that has not.
#[test]
fn a_signature_that_holds_for_two_roots_holds_with_memory_and_without() {
    let bytes = |text: &str| hex::decode(text).expect("hex");
    let key = bytes("307df4e306faeb902b9af76911f6cae4732470b0b35c909b1a53761cea2cd126");
    let key = SecretKey::from_slice(&key).expect("a key");
    let signature = bytes(concat!(
        "d47644539acec3da5e3ecf5fe8863c628a9c97e8b71e9ea9167a6f4f83c03c32",
        "3695140ae3c81ca428e6c4f32e0e7831a45a3bdfc47ea963eb0ed94976cc1dda"
    ));
    let mut first = received(&key, 1).swap_remove(0);
    first.receipt.signature = signature.try_into().expect("64 bytes");
    let second = Received { h: version(2).h, ..first.clone() };
    let both = [&first, &second];
    assert!(both.iter().all(|one| one.verify(SUITE).is_ok()), "it holds for both");
    for [one, other] in [both, [&second, &first]] {
        let mut checked = Checked::default();
        for received in [one, other, one, other] {
            assert!(checked.holds(SUITE, received), "as for a member that remembers nothing");
        }
        assert!(!checked.holds(SUITE, &Received { h: version(3).h, ..first.clone() }));
    }
}
