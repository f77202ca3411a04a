//! Decoders of what a committee writes: any bytes are refused, or encode to the same again.

use bytes::Bytes;
use committee::entry::Entry;
use committee::{
    Answer, Block, Card, Certificate, Change, Outcome, Position, Read, State, Submission,
};
use testkit::fuzz::Target;
use testkit::golden;

/// The targets.
pub(crate) const TARGETS: &[Target] = &[
    Target { name: "certified-update", run: update, seeds: updates },
    Target { name: "certified-block", run: block, seeds: blocks },
    Target { name: "certified-answer", run: answer, seeds: answers },
    Target { name: "certified-read", run: read, seeds: reads },
    Target { name: "certified-head", run: head, seeds: heads },
    Target { name: "certified-members", run: members, seeds: member_seeds },
];

fn golden(names: &[&str]) -> Vec<Vec<u8>> {
    // Beside this crate, and from the folder of `cargo fuzz`, which includes this file.
    let folders = ["/../committee", "/../crates/committee"];
    let mut folders = folders.map(|folder| format!("{}{folder}", testkit::manifest!())).into_iter();
    let is_here = |folder: &String| std::path::Path::new(folder).join("tests/golden").exists();
    let folder = folders.find(is_here).expect("the golden files");
    names.iter().map(|name| golden::read(&folder, name)).collect()
}

fn updates() -> Vec<Vec<u8>> {
    golden(&["certified-update", "certified-bundle", "certified-kept-bundle"])
}

fn update(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(submission) = Submission::decode(&data) {
        assert_eq!(submission.encode(), data);
        assert_eq!(submission.updates().len(), submission.digests().len());
        let _ = submission.verify();
    }
}

fn blocks() -> Vec<Vec<u8>> {
    golden(&["certified-block"])
}

fn block(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(block) = Block::decode(&data) {
        assert_eq!(block.encode(), data);
    }
}

fn answers() -> Vec<Vec<u8>> {
    golden(&["certified-answer"])
}

fn answer(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(answer) = Answer::decode(&data) {
        assert_eq!(answer.encode(), data);
    }
}

fn reads() -> Vec<Vec<u8>> {
    golden(&["certified-read"])
}

fn read(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(read) = Read::decode(&data) {
        assert_eq!(read.encode(), data);
    }
}

fn heads() -> Vec<Vec<u8>> {
    golden(&["certified-head", "certified-state"])
}

fn head(data: &[u8]) {
    if let Ok(certificate) = Certificate::decode(data) {
        assert_eq!(certificate.encode(), data);
    }
    if let Ok(position) = Position::decode(data) {
        assert_eq!(position.encode(), data);
    }
    // Signed, so what is changed is refused; what is whole is not known here.
    let _ = Card::verify(data, &crypto::NetworkId::new([9; 32]));
    if let Ok(outcome) = Outcome::decode(data) {
        assert_eq!(outcome.encode(), data);
    }
    if let Ok(state) = State::restore(&Bytes::copy_from_slice(data)) {
        let again = State::restore(&state.snapshot()).expect("our own");
        assert_eq!(again.root(), state.root());
    }
}

fn member_seeds() -> Vec<Vec<u8>> {
    golden(&["members-wanted", "members-dealt", "members-state"])
}

fn members(data: &[u8]) {
    if let Ok(change) = Change::decode(data) {
        assert_eq!(change.encode(), data);
    }
    if let Ok(entry) = Entry::decode(data) {
        assert_eq!(entry.encode(), data);
    }
    if let Ok(state) = State::restore(&Bytes::copy_from_slice(data)) {
        // What is in there is opaque bytes until somebody deals with it.
        let _ = state.members().map(|members| members.round_at(0).is_some());
    }
}
