use proptest::prelude::*;

use super::*;
use crate::{Proven, prove};

const SUITE: Suite = Suite::Holdfast1;
const NETWORK: NetworkId = NetworkId::new([9; 32]);

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
}

fn key(byte: u8) -> PublicKey {
    secret(byte).public()
}

fn name() -> BranchName {
    let (name, branch) = (Bytes::from_static(b"report"), "main".to_owned());
    BranchName { network: NETWORK, owner: key(1), name, branch }
}

fn version(byte: u8) -> VersionId {
    VersionId { h: RecordId::new([byte; 32]), l: byte.into(), n: Hint::FIRST }
}

fn list(sequence: u64, devices: &[u8]) -> DeviceList {
    let devices = devices.iter().map(|byte| key(*byte)).collect();
    DeviceList { network: NETWORK, owner: key(1), sequence, devices }
}

/// Takes what a device says to have seen, and gives its record's id.
fn write(branch: &mut Branch, device: u8, at: u8, seen: &[RecordId]) -> RecordId {
    let head = branch.next(seen, key(device), version(at), 1_700_000_000_000);
    let record = head.sign(SUITE, &secret(device)).expect("a good head");
    let found = Head::verify(&record.bytes).expect("our own");
    assert_eq!(found, head);
    assert_eq!(branch.take(record.id, found).expect("room"), Taken::New);
    record.id
}

fn tips(branch: &Branch, devices: Option<&DeviceList>) -> Vec<u8> {
    let tips = branch.tips(devices).into_iter();
    let mut tips: Vec<u8> = tips.map(|(_, head)| head.version.h.as_bytes()[0]).collect();
    tips.sort_unstable();
    tips
}

#[test]
fn two_devices_that_write_at_once_are_both_heard() {
    let (mut branch, devices) = (Branch::new(name()), list(1, &[2, 3]));
    let first = write(&mut branch, 1, 10, &[]);
    let one = write(&mut branch, 2, 20, &[first]);
    let other = write(&mut branch, 3, 30, &[first]);
    assert_eq!(tips(&branch, Some(&devices)), [20, 30]);
    let merge = write(&mut branch, 2, 40, &[one, other]);
    assert_eq!(tips(&branch, Some(&devices)), [40]);
    let (id, head) = branch.tips(Some(&devices))[0];
    assert_eq!((id, branch.take(id, head.clone()).expect("known")), (merge, Taken::Known));
    // Without a list the owner's key alone counts.
    assert_eq!(tips(&branch, None), [10]);
}

#[test]
fn a_revoked_devices_records_are_ignored() {
    let (mut branch, both) = (Branch::new(name()), list(1, &[2, 3]));
    let first = write(&mut branch, 2, 10, &[]);
    let second = write(&mut branch, 3, 20, &[first]);
    assert_eq!(tips(&branch, Some(&both)), [20]);
    // Revoked, and nobody who counts has built on it: what it superseded is back.
    let revoked = list(2, &[2]);
    assert_eq!(tips(&branch, Some(&revoked)), [10]);
    write(&mut branch, 3, 30, &[first, second]);
    assert_eq!(tips(&branch, Some(&revoked)), [10], "nor does it come in later");
    // What a device that counts has seen stays superseded, through the revoked one's record too.
    write(&mut branch, 2, 40, &[second]);
    assert_eq!(tips(&branch, Some(&revoked)), [40]);
    assert_eq!(tips(&branch, Some(&both)), [30, 40]);
}

#[test]
fn a_list_of_devices_never_rolls_back() {
    let (first, second) = (list(1, &[2, 3]), list(2, &[2]));
    assert_eq!(first.follows(None).expect("the first"), Taken::New);
    assert_eq!(second.follows(Some(&first)).expect("a later one"), Taken::New);
    assert_eq!(second.follows(Some(&second)).expect("the same"), Taken::Known);
    let old = |result| matches!(result, Err(VersionError::OldDevices { newest: 2, .. }));
    assert!(old(first.follows(Some(&second))));
    assert!(old(list(2, &[3]).follows(Some(&second))));
    let others = DeviceList { owner: key(4), ..list(3, &[4]) };
    assert!(others.follows(Some(&second)).is_err());
}

#[test]
fn signed_heads_and_lists_are_proven_where_they_live() {
    for suite in Suite::ALL {
        let at = VersionId { n: Hint::new([1; 16]), ..version(5) };
        let supersedes = vec![RecordId::new([1; 32]), RecordId::new([2; 32])];
        let head = Head { branch: name(), device: key(2), version: at, supersedes, time_ms: 0 };
        let record = head.sign(suite, &secret(2)).expect("a good head");
        assert_eq!(prove(suite, &record).expect("our own"), Proven::Head(Box::new(head)));
        let of_devices = list(1, &[3, 2]).sign(suite, &secret(1)).expect("a good list");
        let proven = prove(suite, &of_devices).expect("our own");
        let Proven::Devices(found) = proven else { panic!("a list") };
        assert!(found.names(&key(2)) && found.names(&key(3)) && !found.names(&key(4)));
        assert!(found.devices.is_sorted());
        for record in [record, of_devices] {
            let elsewhere = Record { place: record.id.into(), ..record };
            assert!(matches!(prove(suite, &elsewhere), Err(VersionError::Place(_))));
        }
    }
}

#[test]
fn a_head_that_is_kept_keeps_nothing_of_what_it_was_read_from() {
    let head = Branch::new(name()).next(&[RecordId::new([1; 32])], key(2), version(5), 7);
    let record = head.sign(SUITE, &secret(2)).expect("a good head");
    // As in a message that brought it with others.
    let frame = Bytes::from([&record.bytes[..], &[0; 1 << 16]].concat());
    let found = Head::verify(&frame.slice(..record.bytes.len())).expect("our own");
    assert!(frame.is_unique());
    assert_eq!(found, head);
}

type Check<'a> = &'a dyn Fn(&Bytes) -> bool;

#[test]
fn what_another_signed_or_changed_is_refused() {
    let head = Branch::new(name()).next(&[RecordId::new([1; 32])], key(2), version(5), 7);
    assert!(head.sign(SUITE, &secret(3)).is_err(), "another device's key");
    assert!(list(1, &[2]).sign(SUITE, &secret(2)).is_err(), "not the owner's key");
    let head = head.sign(SUITE, &secret(2)).expect("a good head").bytes;
    let devices = list(1, &[2]).sign(SUITE, &secret(1)).expect("a good list").bytes;
    let checks: [(Bytes, Check<'_>); 2] = [
        (head, &|bytes| Head::verify(bytes).is_ok()),
        (devices, &|bytes| DeviceList::verify(bytes).is_ok()),
    ];
    for (good, check) in checks {
        assert!(check(&good));
        for at in 0..good.len() {
            let mut other = good.to_vec();
            other[at] ^= 1 << (at % 8);
            assert!(!check(&other.into()), "byte {at}");
            assert!(!check(&good.slice(..at)), "cut at {at}");
        }
        assert!(!check(&[&good[..], &[0]].concat().into()));
    }
}

#[test]
fn what_no_head_or_list_can_say_is_refused() {
    let good = Branch::new(name()).next(&[], key(1), version(5), 7);
    let refused = |head: Head, why: &str| assert!(head.sign(SUITE, &secret(1)).is_err(), "{why}");
    let called = |branch: &str| {
        let branch = BranchName { branch: branch.to_owned(), ..name() };
        Head { branch, ..good.clone() }
    };
    assert!(called("main").sign(SUITE, &secret(1)).is_ok());
    refused(called(""), "a branch has a name");
    refused(called("a\nb"), "without control characters");
    refused(called(&"x".repeat(129)), "a short one");
    let nameless = BranchName { name: Bytes::new(), ..name() };
    refused(Head { branch: nameless, ..good.clone() }, "an object has a name");
    let many = (1..66).map(|byte| RecordId::new([byte; 32])).collect();
    refused(Head { supersedes: many, ..good.clone() }, "too many superseded");
    let next = Branch::new(name()).next(&vec![RecordId::new([1; 32]); 70], key(1), version(5), 7);
    assert_eq!(next.supersedes.len(), 1, "each once");
    let wire = |n: &'static [u8]| {
        let wire = Wire { n: Bytes::from_static(n), ..good.wire() };
        Head::verify(&FORMAT.sign(&wire, &secret(1), &NETWORK).expect("short")).is_ok()
    };
    assert!(wire(&[]) && wire(&[1; 16]));
    assert!(!wire(&[0; 16]) && !wire(&[1; 15]), "a hint of zeros is not written");
    assert!(list(0, &[2]).sign(SUITE, &secret(1)).is_err(), "sequences begin at 1");
    assert!(list(1, &[]).sign(SUITE, &secret(1)).is_ok(), "all revoked");
    let crowd: Vec<u8> = (1..=65).collect();
    assert!(list(1, &crowd).sign(SUITE, &secret(1)).is_err(), "too many devices");
    let mut branch = Branch::new(called("other").branch);
    assert!(branch.take(RecordId::new([1; 32]), good).is_err(), "another branch's");
}

proptest! {
    /// Whatever devices saw of each other when they wrote: who counts and is superseded by nobody who counts, looked at
    /// one by one, is a tip; and what is written is never lost.
    #[test]
    fn every_write_is_a_tip_or_was_seen(
        writes in proptest::collection::vec((2..5_u8, any::<u8>(), any::<bool>()), 1..14),
        revoked in proptest::option::of(2..5_u8),
    ) {
        let mut branch = Branch::new(name());
        let mut ids: Vec<RecordId> = Vec::new();
        for (number, (device, which, both)) in writes.iter().enumerate() {
            // It saw one or two of the records before, or none.
            let seen: Vec<RecordId> = [usize::from(*which), usize::from(*which / 16)]
                .into_iter()
                .take(1 + usize::from(*both))
                .filter_map(|at| ids.get(at % (ids.len() + 1)).copied())
                .collect();
            let head = branch.next(&seen, key(*device), version(number as u8), 0);
            let id = SUITE.id(&[number as u8]);
            branch.take(id, head).expect("room");
            ids.push(id);
        }
        let devices: Vec<u8> = (2..5).filter(|device| Some(*device) != revoked).collect();
        let devices = list(1, &devices);
        let tips: BTreeSet<RecordId> =
            branch.tips(Some(&devices)).into_iter().map(|(id, _)| id).collect();
        let heads: BTreeMap<RecordId, Head> =
            branch.records().map(|(id, head)| (*id, head.clone())).collect();
        fn seen_by(heads: &BTreeMap<RecordId, Head>, id: &RecordId) -> BTreeSet<RecordId> {
            let mut all: BTreeSet<RecordId> = heads[id].supersedes.iter().copied().collect();
            for one in &heads[id].supersedes {
                all.extend(seen_by(heads, one));
            }
            all
        }
        for (id, head) in &heads {
            let counts = devices.names(&head.device);
            let seen = heads.iter().any(|(other, above)| {
                devices.names(&above.device) && seen_by(&heads, other).contains(id)
            });
            prop_assert_eq!(tips.contains(id), counts && !seen);
        }
    }
}
