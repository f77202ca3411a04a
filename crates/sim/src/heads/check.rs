//! What must hold of a history: one chain, in which each update is done at most once and only where the head was as it expected; and
//! every answer that a client got has one place in it, after all that was answered before it was asked for.

use std::collections::{BTreeMap, BTreeSet};

use committee::{Outcome, UpdateDigest};

use super::history::{At, History, What};

/// A place in the order: a height, and an index in its block.
type Place = (u64, usize);

/// The chain, done over.
#[derive(Default)]
struct Replayed {
    /// Where each branch was, from each place on.
    heads: BTreeMap<String, BTreeMap<Place, At>>,
    /// Where each update was done.
    done: BTreeMap<UpdateDigest, Place>,
    /// Where each update was decided on, every time.
    places: BTreeMap<(UpdateDigest, u64), usize>,
}

impl Replayed {
    fn at(&self, branch: &str, place: Place) -> At {
        let heads = self.heads.get(branch)?;
        heads.range(..=place).next_back().and_then(|(_, at)| *at)
    }
}

/// Checks all of it.
pub(super) fn check(history: &mut History) {
    let mut found = Vec::new();
    let replayed = replay(history, &mut found);
    answers(history, &replayed, &mut found);
    order(history, &replayed, &mut found);
    for (promise, what) in found {
        history.find(promise, what);
    }
}

fn replay(history: &History, found: &mut Vec<(&'static str, String)>) -> Replayed {
    let mut replayed = Replayed::default();
    for (expected, (height, decided)) in (1..).zip(&history.chain) {
        if *height != expected {
            found.push(("Q4", format!("nobody made height {expected} final, but {height}")));
            return replayed;
        }
        for (index, (digest, outcome)) in decided.outcomes.iter().enumerate() {
            let place = (*height, index);
            replayed.places.insert((*digest, *height), index);
            let Some(issued) = history.issued.get(digest) else { continue };
            let current = replayed.at(&issued.branch, place);
            match outcome {
                Outcome::Accepted { height: at } if at == height => {
                    if replayed.done.insert(*digest, place).is_some() {
                        found.push(("Q4", format!("{digest:?} was done twice")));
                    }
                    if current != issued.expected {
                        let what = format!("{digest:?} was done on {current:?}, {issued:?}");
                        found.push(("Q4", what));
                    }
                    if issued.short {
                        found.push(("Q4", format!("{digest:?} was done, too few peers keep it")));
                    }
                    let heads = replayed.heads.entry(issued.branch.clone()).or_default();
                    heads.insert(place, Some((issued.new, *height)));
                }
                Outcome::Accepted { height: at }
                    if replayed.done.get(digest).is_none_or(|(done, _)| done != at) =>
                {
                    found.push(("Q4", format!("{digest:?} is said to be done at {at}")));
                }
                Outcome::MovedOn { current: told } => {
                    let told = told.map(|(version, at)| (version.h, at));
                    if told != current || current == issued.expected {
                        let what = format!("{digest:?}: {told:?} is told, {current:?} is so");
                        found.push(("Q4", what));
                    }
                }
                _ => {}
            }
        }
    }
    replayed
}

/// Every answer is what the chain says.
fn answers(history: &History, replayed: &Replayed, found: &mut Vec<(&'static str, String)>) {
    for told in &history.told {
        match &told.what {
            What::Update(digest, Outcome::Accepted { height }) => {
                if replayed.done.get(digest).is_none_or(|(done, _)| done != height) {
                    found.push(("Q4", format!("{digest:?} was answered as done, and is lost")));
                }
            }
            What::Update(digest, outcome) => {
                let decided = history.chain.get(&told.height);
                let index = replayed.places.get(&(*digest, told.height));
                let is = decided.zip(index).and_then(|(decided, at)| decided.outcomes.get(*at));
                if is.is_none_or(|(_, is)| is != outcome) {
                    found.push(("Q4", format!("{digest:?} was answered {outcome:?}, not {is:?}")));
                }
            }
            What::Read(branch, at, _) => {
                let is = replayed.at(branch, (told.height, usize::MAX));
                if is != *at {
                    let what = format!("{branch} at {} was read as {at:?}, is {is:?}", told.height);
                    found.push(("Q4", what));
                }
            }
        }
    }
}

/// Whatever was asked for after an answer is placed after that answer: updates and fresh reads are linearizable.
fn order(history: &History, replayed: &Replayed, found: &mut Vec<(&'static str, String)>) {
    let place = |what: &What, height: u64| match what {
        What::Update(digest, Outcome::Accepted { .. }) => replayed.done.get(digest).copied(),
        What::Update(digest, _) => {
            replayed.places.get(&(*digest, height)).map(|index| (height, *index))
        }
        What::Read(_, _, true) => Some((height, usize::MAX)),
        What::Read(_, _, false) => None,
    };
    // By when they were answered; what is asked later must come after the furthest of these.
    let mut answered: BTreeMap<u64, Place> = BTreeMap::new();
    let mut asked: BTreeSet<(u64, usize)> = BTreeSet::new();
    for (index, told) in history.told.iter().enumerate() {
        let Some(at) = place(&told.what, told.height) else { continue };
        answered.insert(told.returned, at);
        asked.insert((told.invoked, index));
    }
    let mut furthest: Option<Place> = None;
    let mut before = answered.into_iter().peekable();
    for (invoked, index) in asked {
        while let Some((_, at)) = before.next_if(|(returned, _)| *returned < invoked) {
            furthest = furthest.max(Some(at));
        }
        let Some(told) = history.told.get(index) else { continue };
        let at = place(&told.what, told.height);
        if at < furthest {
            let what = format!("{told:?} is at {at:?}, {furthest:?} was answered before");
            found.push(("Q4", what));
        }
    }
}

#[cfg(test)]
mod tests {
    use crypto::RecordId;

    use super::super::history::{Decided, Issued, Told};
    use super::*;

    fn digest(byte: u8) -> UpdateDigest {
        UpdateDigest::new([byte; 32])
    }

    /// A history in which `b` went to 1 at height 1 and to 2 at height 2, and both were told.
    fn good() -> History {
        let mut history = History::new(false);
        let h = |byte| RecordId::new([byte; 32]);
        for (byte, expected) in [(1, None), (2, Some((h(1), 1)))] {
            let (branch, new) = (String::from("b"), h(byte));
            let issued = Issued { branch, expected, new, short: false };
            history.issued.insert(digest(byte), issued);
            let height = u64::from(byte);
            let outcome = Outcome::Accepted { height };
            let outcomes = vec![(digest(byte), outcome.clone())];
            history.chain.insert(height, Decided { outcomes });
            let (invoked, returned) = (history.moment(), history.moment());
            let what = What::Update(digest(byte), outcome);
            history.told.push(Told { invoked, returned, height, what });
        }
        history
    }

    fn found(change: impl FnOnce(&mut History)) -> usize {
        let mut history = good();
        change(&mut history);
        check(&mut history);
        history.findings.len()
    }

    #[test]
    fn each_checker_finds_what_it_looks_for() {
        assert_eq!(found(|_| {}), 0, "a good history");
        assert!(found(|all| drop(all.chain.remove(&1))) > 0, "a hole");
        assert!(found(|all| drop(all.chain.remove(&2))) > 0, "a lost update");
        let twice = |all: &mut History| {
            let again = all.chain[&1].outcomes[0].0;
            let outcomes = &mut all.chain.get_mut(&2).expect("two").outcomes;
            outcomes.push((again, Outcome::Accepted { height: 2 }));
        };
        assert!(found(twice) > 0, "done twice, and on another head");
        let short = |all: &mut History| {
            all.issued.get_mut(&digest(1)).expect("one").short = true;
        };
        assert!(found(short) > 0, "too few peers keep it");
        let swapped = |all: &mut History| {
            let (invoked, returned) = (all.moment(), all.moment());
            let what = What::Read(String::from("b"), Some((RecordId::new([1; 32]), 1)), true);
            all.told.push(Told { invoked, returned, height: 1, what });
        };
        assert!(found(swapped) > 0, "a fresh read of what was before");
        let wrong = |all: &mut History| {
            let what = What::Read(String::from("b"), None, false);
            all.told.push(Told { invoked: 9, returned: 10, height: 1, what });
        };
        assert!(found(wrong) > 0, "a read of what never was");
    }
}
