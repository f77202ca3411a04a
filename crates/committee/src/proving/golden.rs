//! The formats' golden bytes, and the page that shows them.

use bytes::Bytes;
use testkit::golden;

use super::{Founded, NETWORK, kept_in_one_call, object, secret, set, version};
use crate::entry::Subject;
use crate::members::tests::Table;
use crate::{Answer, Operation, Read, Submission};

#[test]
fn formats_do_not_change_by_accident() {
    let mut founded = Founded::new(4);
    let (record, object) = object(1);
    let made = founded.update(1, 1, Operation::Object { record, policy: Bytes::new() });
    let first = founded.update(1, 2, set(object, None, version(1), &[5]));
    let one = made.sign(&secret(1)).expect("good");
    let bundle = Submission::bundle(&[made, first], &secret(1)).expect("good");
    golden::check(testkit::manifest!(), "certified-update", &one.encode());
    golden::check(testkit::manifest!(), "certified-bundle", &bundle.encode());
    let of_others = founded.update(1, 3, set(object, None, version(2), &[]));
    let receipts = vec![kept_in_one_call(5, &[version(2)])];
    let kept = Submission::bundle_kept(&[of_others], receipts, &secret(1)).expect("good");
    golden::check(testkit::manifest!(), "certified-kept-bundle", &kept.encode());
    let (block, executed) = founded.block(vec![bundle]);
    golden::check(testkit::manifest!(), "certified-block", &block.encode());
    golden::check(testkit::manifest!(), "certified-state", &founded.state.snapshot());
    let certificate = founded.certify(&block.header);
    golden::check(testkit::manifest!(), "certified-head", &certificate.encode());
    let answer = Answer {
        body: block.submissions[0].bodies()[1].clone(),
        outcome: executed.outcomes[1].clone(),
        path: executed.tree.as_ref().and_then(|tree| tree.path(1)).expect("a leaf"),
        certificate: certificate.clone(),
    };
    answer.verify(&NETWORK, &founded.group).expect("certified");
    golden::check(testkit::manifest!(), "certified-answer", &answer.encode());
    let subject = Subject::Head(&object, "main");
    let (value, proof) = (founded.state.value(subject).cloned(), founded.state.prove(subject));
    let read = Read { object, branch: "main".into(), value, proof, certificate };
    golden::check(testkit::manifest!(), "certified-read", &read.encode());
}

#[test]
fn the_page_shows_them() {
    if !golden::updating() {
        golden::check_page(testkit::manifest!(), "heads.md");
    }
}

#[test]
fn the_formats_of_a_change_of_the_members_do_not_change_by_accident() {
    let mut table = Table::new(4, 6);
    let wish = table.wish(2, 4, &[0, 1, 2, 4, 5]);
    let wanted = table.wanted(&wish, &[0, 1, 2]);
    golden::check(testkit::manifest!(), "members-wanted", &wanted.encode());
    table.apply(&wanted);
    let dealt = table.log(0, &[4]);
    golden::check(testkit::manifest!(), "members-dealt", &dealt.encode());
    table.apply(&dealt);
    golden::check(testkit::manifest!(), "members-state", &table.state.snapshot());
}
