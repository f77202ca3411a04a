//! Whether an answer is one to its request, and how a service's answer is cut to what travels.
//!
//! Both sides check with the same function: a peer that answers something else is told from one that has a defect, and
//! a service that would give more than travels gives what fits, in the way of its kind.

use env::calls::CallError;
use env::calls::keep::{
    COMPANIONS_MAX, FetchAnswer, FetchAt, ITEMS_MAX, KeepAnswer, KeepRequest, Listed, Range,
    WORDS_MAX, Words,
};
use prost::Message;

use super::answers::check_proof;
use super::{at_most, check_lists, check_words};
use crate::convert::Wrong;
use crate::convert::room::Room;
use crate::proto;
use crate::proto::keep_response::Answer as Wire;

/// What of a request its answer must fit; the request itself is the service's by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Compare([u8; 16]),
    Lists(Vec<Range>),
    Claim(usize),
    Settled,
    Fetch(Vec<FetchAt>),
    Have(usize),
    Prove(usize),
    Look(usize),
    Other,
}

impl Asked {
    pub(crate) fn of(request: &KeepRequest) -> Self {
        match request {
            KeepRequest::Compare(compare) => Self::Compare(compare.view),
            KeepRequest::Lists(lists) => {
                Self::Lists(lists.iter().map(|listed| listed.range).collect())
            }
            KeepRequest::Claim(stripes) => Self::Claim(stripes.len()),
            KeepRequest::Settled(_) => Self::Settled,
            KeepRequest::Fetch(records) => Self::Fetch(records.clone()),
            KeepRequest::Have(ids) => Self::Have(ids.len()),
            KeepRequest::Prove(asks) => Self::Prove(asks.len()),
            KeepRequest::Look(places) => Self::Look(places.len()),
            _ => Self::Other,
        }
    }

    /// Compares an answer with what was asked: its name, one answer an item, ranges, ids and places.
    pub(crate) fn check(&self, answer: &KeepAnswer) -> Result<(), Wrong> {
        match (self, answer) {
            (Self::Compare(view), KeepAnswer::Compare(answer)) => {
                check_words(&answer.words)?;
                if !answer.differ.is_sorted_by(|a, b| a < b) {
                    return Err(Wrong("parts that differ are not ascending"));
                }
                if answer.view != *view && !answer.differ.is_empty() {
                    return Err(Wrong("parts that differ under another view"));
                }
                Ok(())
            }
            (Self::Lists(ranges), KeepAnswer::Lists(lists)) => {
                if !lists.iter().map(|listed| listed.range).eq(ranges.iter().copied()) {
                    return Err(Wrong("not the ranges that were asked for"));
                }
                check_lists(lists)
            }
            (Self::Claim(asked), KeepAnswer::Claim(answers)) => check_one_each(*asked, answers),
            (Self::Settled, KeepAnswer::Settled) => Ok(()),
            (Self::Fetch(records), KeepAnswer::Fetch(answers)) => check_fetched(records, answers),
            (Self::Have(asked), KeepAnswer::Have(held)) => check_one_each(*asked, held),
            (Self::Prove(asked), KeepAnswer::Prove(proofs)) => {
                check_one_each(*asked, proofs)?;
                proofs.iter().flatten().try_for_each(check_proof)
            }
            (Self::Look(asked), KeepAnswer::Look(in_work)) => match *asked {
                // All of them, however many there are.
                0 => Ok(()),
                asked => at_most(*in_work as usize, asked, "more in work than was named"),
            },
            _ => Err(Wrong("it answered another request to keep the network")),
        }
    }

    /// The answer as it travels.
    ///
    /// # Errors
    /// [`CallError::Internal`] where the service answered another request, or not as asked.
    pub(crate) fn fit(self, mut answer: KeepAnswer) -> Result<proto::KeepResponse, CallError> {
        match &mut answer {
            KeepAnswer::Compare(answer) => cut_words(&mut answer.words),
            KeepAnswer::Lists(lists) => cut_lists(lists),
            _ => {}
        }
        self.check(&answer).map_err(|wrong| CallError::Internal { reason: wrong.0.to_owned() })?;
        let answer = match answer {
            KeepAnswer::Compare(answer) => Some(Wire::Compare(answer.into())),
            KeepAnswer::Lists(lists) => Some(Wire::Lists(lists.into())),
            KeepAnswer::Claim(answers) => {
                let stripes = answers.into_iter().map(Into::into).collect();
                Some(Wire::Claim(proto::KeepClaimAnswer { stripes }))
            }
            KeepAnswer::Settled => Some(Wire::Settled(proto::KeepSettledAnswer {})),
            KeepAnswer::Fetch(answers) => Some(Wire::Fetch(fetched(answers))),
            KeepAnswer::Have(held) => {
                let held = held.into_iter().map(u8::from).collect();
                Some(Wire::Have(proto::KeepHaveAnswer { held }))
            }
            KeepAnswer::Prove(proofs) => {
                let answers = proofs.into_iter().map(Into::into).collect();
                Some(Wire::Prove(proto::KeepProveAnswer { answers }))
            }
            KeepAnswer::Look(in_work) => Some(Wire::Look(proto::KeepLookAnswer { in_work })),
            // A later kind, which `check` refuses before it comes here.
            _ => None,
        };
        Ok(proto::KeepResponse { answer })
    }
}

fn check_one_each<T>(asked: usize, answers: &[T]) -> Result<(), Wrong> {
    if answers.len() == asked { Ok(()) } else { Err(Wrong("not one answer an item")) }
}

fn check_fetched(asked: &[FetchAt], answers: &[FetchAnswer]) -> Result<(), Wrong> {
    check_one_each(asked.len(), answers)?;
    for (asked, answer) in asked.iter().zip(answers) {
        if let FetchAnswer::Found { record, companions } = answer {
            if record.id != asked.id {
                return Err(Wrong("it answered with another record"));
            }
            if record.place != asked.place {
                return Err(Wrong("it answered with a record of another place"));
            }
            at_most(companions.len(), COMPANIONS_MAX, "over 4 companions")?;
        }
    }
    Ok(())
}

/// The first of them, which leaves them ascending.
fn cut_words(words: &mut Words) {
    words.absent.truncate(WORDS_MAX);
    words.faulty.truncate(WORDS_MAX);
}

/// A range whose list does not fit has none, and says that there is more: half of a list would be taken for all.
fn cut_lists(lists: &mut [Listed]) {
    let mut left = ITEMS_MAX;
    for listed in lists {
        match left.checked_sub(listed.copies.len() + listed.fragments.len()) {
            Some(rest) => left = rest,
            None => {
                listed.copies.clear();
                listed.fragments.clear();
                listed.more = true;
            }
        }
    }
}

fn fetched(answers: Vec<FetchAnswer>) -> proto::KeepFetchAnswer {
    let mut room = Room::new(answers.len());
    let fit = |answer: FetchAnswer| {
        let records = match &answer {
            FetchAnswer::Found { record, companions } => {
                record.bytes.len() + companions.iter().map(|one| one.bytes.len()).sum::<usize>()
            }
            FetchAnswer::Absent | FetchAnswer::Later => 0,
        };
        let answer: proto::FetchAnswer = answer.into();
        if room.take(records, answer.encoded_len()) { answer } else { FetchAnswer::Later.into() }
    };
    proto::KeepFetchAnswer { answers: answers.into_iter().map(fit).collect() }
}
