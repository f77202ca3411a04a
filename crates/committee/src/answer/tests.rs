//! What verifies offline, and each way in which it does not.

use super::*;
use crate::proving::{Founded, NETWORK, object, secret, set, version};
use crate::{Block, Executed, Operation, Outcome};

struct Case {
    founded: Founded,
    object: ObjectKey,
    submissions: Vec<Submission>,
    answers: Vec<Answer>,
    read: Read,
}

fn answers(founded: &Founded, block: &Block, executed: &Executed) -> Vec<Answer> {
    let certificate = founded.certify(&block.header);
    let tree = executed.tree.as_ref().expect("updates");
    let bodies = block.submissions.iter().flat_map(|one| one.bodies());
    bodies
        .zip(&executed.outcomes)
        .enumerate()
        .map(|(index, (body, outcome))| Answer {
            body: body.clone(),
            outcome: outcome.clone(),
            path: tree.path(index).expect("a leaf"),
            certificate: certificate.clone(),
        })
        .collect()
}

fn read(founded: &Founded, object: ObjectKey, branch: &str) -> Read {
    let subject = Subject::Head(&object, branch);
    Read {
        object,
        branch: branch.into(),
        value: founded.state.value(subject).cloned(),
        proof: founded.state.prove(subject),
        certificate: founded.certify(&founded.tip),
    }
}

fn case() -> Case {
    let mut founded = Founded::new(4);
    let (record, object) = object(1);
    let made = founded.update(1, 1, Operation::Object { record, policy: Bytes::new() });
    let first = founded.update(1, 2, set(object, None, version(1), &[5]));
    let lost = founded.update(1, 3, set(object, None, version(2), &[5]));
    let bundle = crate::Submission::bundle(&[made, first], &secret(1)).expect("good");
    let (block, executed) = founded.block(vec![bundle, lost.sign(&secret(1)).expect("good")]);
    let answers = answers(&founded, &block, &executed);
    let read = read(&founded, object, "main");
    Case { founded, object, submissions: block.submissions, answers, read }
}

#[test]
fn what_the_committee_decided_verifies_with_the_key_alone() {
    let Case { founded, object, answers, read, .. } = case();
    let group: GroupKey = founded.group.to_string().parse().expect("its own");
    let outcomes: Vec<&Outcome> = answers.iter().map(|answer| &answer.outcome).collect();
    let done = Outcome::Accepted { height: 1 };
    let lost = Outcome::MovedOn { current: Some((version(1), 1)) };
    assert_eq!(outcomes, [&done, &done, &lost]);
    for answer in &answers {
        let again = Answer::decode(&answer.encode()).expect("our own");
        assert_eq!(&again, answer);
        again.verify(&NETWORK, &group).expect("certified");
    }
    let again = Read::decode(&read.encode()).expect("our own");
    assert_eq!(again, read);
    let certified = again.verify(&NETWORK, &group, &object, "main").expect("certified");
    let head = certified.head.expect("there");
    assert_eq!((head.version, head.height, certified.header.height), (version(1), 1, 1));
    let none = self::read(&founded, object, "other");
    let none = Read::decode(&none.encode()).expect("our own");
    let none = none.verify(&NETWORK, &group, &object, "other").expect("certified");
    assert_eq!(none.head, None);
}

#[test]
fn answers_to_a_submission_hold_each_by_itself_also_under_a_certificate_that_is_known() {
    let Case { founded, answers, submissions, .. } = case();
    let [bundle, lost] = &submissions[..] else { panic!("two") };
    let proofs = Proofs::new(NETWORK, founded.group.clone());
    let encoded: Vec<Bytes> = answers.iter().map(Answer::encode).collect();
    let refused = |encoded: &[Bytes], what: &str| {
        let refused = proofs.answers(lost, encoded).expect_err(what);
        assert!(refused.to_string().contains(what), "{refused}");
    };
    let mut other = answers[2].clone();
    other.outcome = Outcome::Accepted { height: 1 };
    let mut unsigned = encoded[2].to_vec();
    *unsigned.last_mut().expect("a signature") ^= 1;
    // Before its certificate is known, and then.
    for _ in 0..2 {
        refused(&[other.encode()], "result");
        refused(&encoded[..1], "update");
        refused(&encoded, "number of answers");
        refused(&[unsigned.clone().into()], "did not sign");
        assert_eq!(proofs.answers(bundle, &encoded[..2]).expect("certified"), answers[..2]);
        assert_eq!(proofs.answers(lost, &encoded[2..]).expect("certified"), answers[2..]);
    }
    let proven = proofs.proven.lock().expect("nobody fell").len();
    assert_eq!(proven, 1, "one signature for all of them");
    let elsewhere = Proofs::new(crypto::NetworkId::new([8; 32]), founded.group.clone());
    let refused = elsewhere.answers(lost, &encoded[2..]);
    assert!(matches!(refused, Err(CommitteeError::Network(_))), "{refused:?}");
    let others = Proofs::new(NETWORK, Founded::seeded(4, 8).group);
    let refused = others.answers(lost, &encoded[2..]);
    assert!(matches!(refused, Err(CommitteeError::Group)), "{refused:?}");
}

#[test]
fn one_bit_changed_anywhere_is_refused() {
    let Case { founded, object, answers, read, .. } = case();
    let answer = |bytes: &Bytes| {
        Answer::decode(bytes)
            .and_then(|answer| answer.verify(&NETWORK, &founded.group).map(|_| answer))
    };
    let reads = |bytes: &Bytes| {
        Read::decode(bytes)
            .and_then(|read| read.verify(&NETWORK, &founded.group, &object, "main").map(|_| read))
    };
    let (one, two) = (answers[2].encode(), read.encode());
    for at in 0..one.len().max(two.len()) {
        let flipped = |bytes: &Bytes| {
            let mut other = bytes.to_vec();
            other[at] ^= 1 << (at % 8);
            Bytes::from(other)
        };
        if at < one.len() {
            assert!(answer(&flipped(&one)).is_err(), "byte {at} of the answer");
            assert!(Answer::decode(&one.slice(..at)).is_err());
        }
        if at < two.len() {
            assert!(reads(&flipped(&two)).is_err(), "byte {at} of the read");
            assert!(Read::decode(&two.slice(..at)).is_err());
        }
    }
}

#[test]
fn anothers_path_is_refused() {
    let Case { founded, object, answers, read, .. } = case();
    let group = &founded.group;
    let path = |error| matches!(error, Err(CommitteeError::Path(_)));
    let mut swapped = answers[0].clone();
    swapped.path = answers[2].path.clone();
    assert!(path(swapped.verify(&NETWORK, group).map(drop)));
    let mut better = answers[2].clone();
    better.outcome = Outcome::Accepted { height: 1 };
    assert!(path(better.verify(&NETWORK, group).map(drop)), "a refusal told as done");
    let other = self::object(2).1;
    assert!(path(read.verify(&NETWORK, group, &other, "main").map(drop)));
    assert!(path(read.verify(&NETWORK, group, &object, "other").map(drop)));
    let told = Read { object: other, ..read.clone() };
    assert!(path(told.verify(&NETWORK, group, &other, "main").map(drop)));
    let hidden = Read { value: None, ..read };
    assert!(path(hidden.verify(&NETWORK, group, &object, "main").map(drop)));
}

#[test]
fn another_network_committee_epoch_or_height_is_refused() {
    let Case { founded, answers, .. } = case();
    let good = &answers[0];
    let (group, header) = (&founded.group, good.certificate.header());
    let network = crypto::NetworkId::new([8; 32]);
    let other = good.verify(&network, group);
    assert!(matches!(other, Err(CommitteeError::Network(_))));
    let strange = Founded::seeded(4, 8).group;
    assert!(matches!(good.verify(&NETWORK, &strange), Err(CommitteeError::Group)));
    let forged = |header: &crate::Header| {
        let mut bytes = good.certificate.encode().to_vec();
        let at = "holdfast certificate v1".len();
        bytes[at..at + crate::header::HEADER_BYTES].copy_from_slice(&header.encode());
        Certificate::decode(&bytes).expect("well formed")
    };
    let epoch = forged(&crate::Header { epoch: 1, ..header.clone() });
    let height = forged(&crate::Header { height: 9, ..header.clone() });
    let theirs = forged(&crate::Header { group: strange.clone(), ..header.clone() });
    assert!(matches!(epoch.verify(&NETWORK, group), Err(CommitteeError::Signature)));
    assert!(matches!(height.verify(&NETWORK, group), Err(CommitteeError::Signature)));
    assert!(matches!(theirs.verify(&NETWORK, &strange), Err(CommitteeError::Signature)));
    // Signed for another network by the same key.
    let moved = forged(&crate::Header { network, ..header.clone() });
    assert!(matches!(moved.verify(&network, group), Err(CommitteeError::Signature)));
}

#[test]
fn a_notarisation_proves_nothing() {
    let Case { founded, answers, .. } = case();
    let header = answers[0].certificate.header();
    let notarised = founded.sign(header, 6, false);
    let told = Certificate::new(header.clone(), Vec::new(), &notarised).expect("of its shape");
    let error = told.verify(&NETWORK, &founded.group);
    assert!(matches!(error, Err(CommitteeError::Notarisation)), "{error:?}");
}

#[test]
fn a_block_is_certified_by_one_after_it() {
    let mut founded = Founded::new(4);
    let headers: Vec<crate::Header> = (0..4).map(|_| founded.block(Vec::new()).0.header).collect();
    let last = founded.sign(&headers[3], 9, true);
    let later = headers[1..].to_vec();
    let certificate = Certificate::new(headers[0].clone(), later, &last).expect("they follow");
    let again = Certificate::decode(&certificate.encode()).expect("our own");
    assert_eq!(again, certificate);
    again.verify(&NETWORK, &founded.group).expect("certified");
    let gap = vec![headers[2].clone(), headers[3].clone()];
    assert!(matches!(Certificate::new(headers[0].clone(), gap, &last), Err(CommitteeError::Chain)));
    assert!(Certificate::new(headers[0].clone(), headers[1..3].to_vec(), &last).is_err());
    let mut bytes = certificate.encode().to_vec();
    let at = "holdfast certificate v1".len();
    let other = crate::Header { results: [1; 32], ..headers[0].clone() };
    bytes[at..at + crate::header::HEADER_BYTES].copy_from_slice(&other.encode());
    let forged = Certificate::decode(&bytes).expect("well formed");
    let error = forged.verify(&NETWORK, &founded.group);
    assert!(matches!(error, Err(CommitteeError::Chain)), "{error:?}");
}

#[test]
fn an_old_head_under_the_finalisation_of_a_later_block_is_refused() {
    let Case { mut founded, object, read, .. } = case();
    let old = founded.tip.clone();
    let change = founded.update(1, 4, set(object, Some((version(1), 1)), version(2), &[5]));
    let (block, _) = founded.block(vec![change.sign(&secret(1)).expect("good")]);
    let last = founded.sign(&block.header, 40, true);
    let certificate = Certificate::new(old, vec![block.header], &last).expect("they follow");
    certificate.verify(&NETWORK, &founded.group).expect("the old block is final");
    assert_eq!(certificate.round(), (0, 40), "the later one's");
    let stale = Read { certificate, ..read };
    let stale = Read::decode(&stale.encode()).expect("well formed");
    let refused = stale.verify(&NETWORK, &founded.group, &object, "main");
    assert!(matches!(refused, Err(CommitteeError::Chain)), "{refused:?}");
    let now = self::read(&founded, object, "main");
    let now = now.verify(&NETWORK, &founded.group, &object, "main").expect("its own");
    assert_eq!(now.head.map(|head| head.version), Some(version(2)));
}
