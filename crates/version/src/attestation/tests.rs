use super::*;

const SUITE: Suite = Suite::Holdfast1;
const NETWORK: NetworkId = NetworkId::new([9; 32]);

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
}

fn hs(count: usize) -> Vec<RecordId> {
    (0..count).map(|number| SUITE.id(&number.to_be_bytes())).collect()
}

fn batch(count: usize) -> Record {
    let mut batch = BatchAttester::new(SUITE, NETWORK, 3);
    for (index, h) in hs(count).iter().enumerate() {
        assert_eq!(batch.add(h).expect("room"), index);
    }
    batch.finish(SUITE, &secret(1)).expect("versions")
}

#[test]
fn a_batch_is_one_signature_under_all() {
    for suite in Suite::ALL {
        let mut batch = BatchAttester::new(suite, NETWORK, 3);
        for h in &hs(5) {
            batch.add(h).expect("room");
        }
        let record = batch.finish(suite, &secret(1)).expect("versions");
        assert_eq!((record.id, record.place), (suite.id(&record.bytes), record.id.into()));
        let attestation = Attestation::decode(&record.bytes).expect("our own");
        attestation.verify(suite).expect("our own");
        assert_eq!(attestation.encode(), record.bytes);
        assert_eq!(attestation.hs().collect::<Vec<_>>(), hs(5));
        assert_eq!(attestation.attester.author, secret(1).public().into());
        assert_eq!(attestation.attester.policy_version, 3);
    }
    assert!(BatchAttester::new(SUITE, NETWORK, 0).finish(SUITE, &secret(1)).is_none());
    let one = attest(SUITE, NETWORK, 0, &hs(1)[0], &secret(1));
    assert_eq!(one.bytes.len(), HEAD_BYTES + 32);
    Attestation::decode(&one.bytes).expect("our own").verify(SUITE).expect("our own");
}

#[test]
fn a_version_takes_its_path_along() {
    for count in [1, 2, 3, 7, 8, 33] {
        let attestation = Attestation::decode(&batch(count).bytes).expect("our own");
        let tree = attestation.paths(SUITE).expect("versions");
        for (index, h) in hs(count).into_iter().enumerate() {
            let one = attestation.of_one(&tree, index).expect("one of them");
            let record = one.record(SUITE);
            let found = AnyAttestation::decode(&record.bytes).expect("our own");
            found.verify(SUITE).expect("our own");
            assert!(found.names(&h) && !found.names(&RecordId::new([1; 32])));
            assert_eq!(found.attester(), &attestation.attester);
            match found {
                AnyAttestation::One(found) => assert_eq!(found, one),
                AnyAttestation::Batch(_) => assert_eq!(count, 1),
            }
        }
        assert!(attestation.of_one(&tree, count).is_none());
    }
}

/// A batch of one has one form: the other, which says the same, is refused.
#[test]
fn a_batch_of_one_has_one_form() {
    let one = attest(SUITE, NETWORK, 3, &hs(1)[0], &secret(1));
    let signed = &one.bytes[PREFIX.len()..HEAD_BYTES];
    let other = [PREFIX_OF_ONE, signed, &[0; 4], hs(1)[0].as_bytes()].concat();
    assert!(matches!(AnyAttestation::decode(&other.into()), Err(VersionError::Field(_))));
}

/// One bit of it anywhere, and it is another's word or nobody's.
#[test]
fn a_changed_attestation_is_refused() {
    let attestation = Attestation::decode(&batch(5).bytes).expect("our own");
    let tree = attestation.paths(SUITE).expect("versions");
    let one = attestation.of_one(&tree, 4).expect("one of them").record(SUITE);
    for good in [batch(5).bytes, one.bytes] {
        let checked = |bytes: Vec<u8>| {
            AnyAttestation::decode(&bytes.into()).and_then(|found| found.verify(SUITE))
        };
        checked(good.to_vec()).expect("our own");
        for at in 0..good.len() {
            let mut other = good.to_vec();
            other[at] ^= 1 << (at % 8);
            assert!(checked(other).is_err(), "byte {at}");
            assert!(checked(good[..at].to_vec()).is_err(), "cut at {at}");
        }
        assert!(checked([&good[..], &[0; 32]].concat()).is_err());
    }
}

/// The same signature for another network, under another key or another policy is nobody's.
#[test]
fn a_replayed_signature_is_refused() {
    let good = Attestation::decode(&batch(2).bytes).expect("our own");
    let with = |change: &dyn Fn(&mut Attester)| {
        let mut other = good.clone();
        change(&mut other.attester);
        other.verify(SUITE)
    };
    with(&|_| ()).expect("our own");
    let denied = |result| matches!(result, Err(VersionError::Key(crypto::KeyError::Signature)));
    assert!(denied(with(&|one| one.author = secret(2).public().into())));
    assert!(denied(with(&|one| one.network = NetworkId::NONE)));
    assert!(denied(with(&|one| one.policy_version = 4)));
    assert!(good.verify(Suite::Libri1).is_err());
}

#[test]
fn a_batch_is_bounded() {
    let mut batch = BatchAttester::new(SUITE, NETWORK, 1);
    let h = RecordId::new([7; 32]);
    for _ in 0..ATTESTED_MAX {
        batch.add(&h).expect("room");
    }
    assert!(matches!(batch.add(&h), Err(VersionError::Full { .. })));
    let full = batch.finish(SUITE, &secret(1)).expect("versions");
    assert!(full.bytes.len() <= document::DOCUMENT_BYTES_MAX);
    Attestation::decode(&full.bytes).expect("our own").verify(SUITE).expect("our own");
    let mut over = full.bytes.to_vec();
    over[PREFIX.len() + 32 + 33 + 8..][..4].copy_from_slice(&65_537_u32.to_be_bytes());
    over.extend([7; 32]);
    assert!(matches!(Attestation::decode(&over.into()), Err(VersionError::Field(_))));
}
