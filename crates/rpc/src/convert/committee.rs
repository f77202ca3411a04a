//! What is asked of a committee's member.

use bytes::Bytes;
use env::calls::BATCH_BYTES_MAX;
use env::calls::committee::{
    ANSWER_BYTES_MAX, ANSWERS_MAX, BRANCH_BYTES_MAX, CARD_BYTES_MAX, CommitteeAnswer, CommitteeAsk,
    CommitteeRequest, CommitteeStatus, GROUP_KEY_BYTES, MEMBERS_MAX, SUBMISSION_BYTES_MAX,
};
use version::ObjectKey;

use super::{Open, Wrong, array32, copied};
use crate::proto;

/// Cards in one answer at most: those of an epoch and of the next.
const CARDS_MAX: usize = 2 * MEMBERS_MAX;
/// Bytes of all answers to a bundle at most: each with the longest certificate, and the updates.
const ANSWERS_BYTES_MAX: usize = 32 << 20;

fn submission(bytes: &Bytes) -> Result<(), Wrong> {
    match bytes.len() {
        0 => Err(Wrong("submission is missing")),
        1..=SUBMISSION_BYTES_MAX => Ok(()),
        _ => Err(Wrong("a submission over 1 MiB")),
    }
}

fn branch(bytes: &Bytes) -> Result<(), Wrong> {
    match bytes.len() {
        1..=BRANCH_BYTES_MAX => Ok(()),
        _ => Err(Wrong("the name of a branch is 1 to 128 bytes")),
    }
}

/// Whether it is what the far side takes.
pub(crate) fn check_request(request: &CommitteeRequest) -> Result<(), Wrong> {
    match &request.ask {
        CommitteeAsk::Update(bytes) => submission(bytes),
        CommitteeAsk::Read { branch: name, .. } => branch(name),
        CommitteeAsk::HowFar(_) | CommitteeAsk::Status | CommitteeAsk::Charter => Ok(()),
    }
}

impl Open<CommitteeRequest> for proto::CommitteeRequest {
    fn open(self) -> Result<CommitteeRequest, Wrong> {
        use proto::committee_request::Request as Wire;
        let group = match self.group.len() {
            0 => None,
            _ => Some(array32(&self.group, "a group key's id has 32 bytes")?),
        };
        let ask = match self.request.ok_or(Wrong("request is missing"))? {
            Wire::Update(update) => CommitteeAsk::Update(update.submission),
            Wire::Read(read) => {
                let object = ObjectKey::new(array32(&read.object, "object is not 32 bytes")?);
                let at = Some((read.epoch, read.view)).filter(|at| *at != (0, 0));
                CommitteeAsk::Read { object, branch: read.branch, at }
            }
            Wire::HowFar(how) => {
                CommitteeAsk::HowFar(array32(&how.nonce, "nonce is not 32 bytes")?)
            }
            Wire::Status(_) => CommitteeAsk::Status,
            Wire::Charter(_) => CommitteeAsk::Charter,
        };
        let request = CommitteeRequest { group, ask };
        check_request(&request)?;
        Ok(request)
    }
}

impl From<CommitteeRequest> for proto::CommitteeRequest {
    fn from(request: CommitteeRequest) -> Self {
        use proto::committee_request::Request as Wire;
        let group = request.group.map(|group| copied(&group)).unwrap_or_default();
        let request = match request.ask {
            CommitteeAsk::Update(submission) => Wire::Update(proto::CommitteeUpdate { submission }),
            CommitteeAsk::Read { object, branch, at } => {
                let (epoch, view) = at.unwrap_or_default();
                let object = copied(object.as_bytes());
                Wire::Read(proto::CommitteeRead { object, branch, epoch, view })
            }
            CommitteeAsk::HowFar(nonce) => {
                Wire::HowFar(proto::CommitteeHowFar { nonce: copied(&nonce) })
            }
            CommitteeAsk::Status => Wire::Status(proto::CommitteeStatus {}),
            CommitteeAsk::Charter => Wire::Charter(proto::CommitteeCharter {}),
        };
        Self { group, request: Some(request) }
    }
}

fn bounded(bytes: Bytes) -> Result<Bytes, Wrong> {
    if bytes.len() > ANSWER_BYTES_MAX {
        return Err(Wrong("an answer of a committee over 96 KiB"));
    }
    Ok(bytes)
}

/// How many bytes all of several end with.
fn common_end(answers: &[Bytes]) -> usize {
    let Some((first, others @ [_, ..])) = answers.split_first() else { return 0 };
    let same = |one: &Bytes| {
        let pairs = first.iter().rev().zip(one.iter().rev());
        pairs.take_while(|(a, b)| a == b).count()
    };
    others.iter().map(same).min().unwrap_or_default()
}

/// Answers as they travel: what all end with stands there once.
fn parted(answers: Vec<Bytes>) -> proto::CommitteeUpdateAnswer {
    let end = common_end(&answers);
    let last = answers.first().map_or_else(Bytes::new, |one| one.slice(one.len() - end..));
    let answers = answers.into_iter().map(|one| one.slice(..one.len() - end)).collect();
    proto::CommitteeUpdateAnswer { answers, end: last }
}

/// The answers as they were.
fn whole(update: proto::CommitteeUpdateAnswer) -> Result<Vec<Bytes>, Wrong> {
    let proto::CommitteeUpdateAnswer { answers, end } = update;
    let bytes = |one: &Bytes| one.len() + end.len();
    if answers.iter().map(bytes).sum::<usize>() > ANSWERS_BYTES_MAX {
        return Err(Wrong("answers of a committee over 32 MiB"));
    }
    let join = |one: Bytes| match end.is_empty() {
        true => one,
        false => [one, end.clone()].concat().into(),
    };
    answers.into_iter().map(|one| bounded(join(one))).collect()
}

impl Open<CommitteeAnswer> for proto::CommitteeResponse {
    fn open(self) -> Result<CommitteeAnswer, Wrong> {
        use proto::committee_response::Answer as Wire;
        Ok(match self.answer.ok_or(Wrong("answer is missing"))? {
            Wire::Update(update) => {
                if update.answers.len() > ANSWERS_MAX {
                    return Err(Wrong("over 1,024 answers"));
                }
                CommitteeAnswer::Update(whole(update)?)
            }
            Wire::Read(read) => CommitteeAnswer::Read(bounded(read)?),
            Wire::HowFar(position) => CommitteeAnswer::HowFar(bounded(position)?),
            Wire::Status(status) => CommitteeAnswer::Status(Box::new(status.open()?)),
            Wire::Charter(charter) => CommitteeAnswer::Charter(bounded(charter)?),
        })
    }
}

impl Open<CommitteeStatus> for proto::CommitteeStatusAnswer {
    fn open(self) -> Result<CommitteeStatus, Wrong> {
        if self.group.len() != GROUP_KEY_BYTES {
            return Err(Wrong("a group key has 96 bytes"));
        }
        if self.members.len() > MEMBERS_MAX || self.cards.len() > CARDS_MAX {
            return Err(Wrong("over 32 members, or over 64 cards"));
        }
        if self.cards.iter().any(|card| card.len() > CARD_BYTES_MAX) {
            return Err(Wrong("a member's card over 512 bytes"));
        }
        let key = |bytes: &Bytes| array32(bytes, "a member's key has 32 bytes");
        Ok(CommitteeStatus {
            group: self.group,
            height: self.height,
            time_ms: self.time_ms,
            epoch: self.epoch,
            view: self.view,
            needed: self.needed,
            heard: self.heard,
            votes: self.votes,
            waiting: self.waiting,
            entries: self.entries,
            state_bytes: self.state_bytes,
            member: key(&self.member)?,
            members: self.members.iter().map(key).collect::<Result<_, _>>()?,
            cards: self.cards,
        })
    }
}

impl From<CommitteeAnswer> for proto::CommitteeResponse {
    fn from(answer: CommitteeAnswer) -> Self {
        use proto::committee_response::Answer as Wire;
        let answer = match answer {
            CommitteeAnswer::Update(answers) => Wire::Update(parted(answers)),
            CommitteeAnswer::Read(read) => Wire::Read(read),
            CommitteeAnswer::HowFar(position) => Wire::HowFar(position),
            CommitteeAnswer::Status(status) => Wire::Status((*status).into()),
            CommitteeAnswer::Charter(charter) => Wire::Charter(charter),
        };
        Self { answer: Some(answer) }
    }
}

impl From<CommitteeStatus> for proto::CommitteeStatusAnswer {
    fn from(status: CommitteeStatus) -> Self {
        let mut cards = status.cards;
        cards.truncate(CARDS_MAX);
        Self {
            group: status.group,
            height: status.height,
            time_ms: status.time_ms,
            epoch: status.epoch,
            view: status.view,
            needed: status.needed,
            heard: status.heard,
            votes: status.votes,
            waiting: status.waiting,
            entries: status.entries,
            state_bytes: status.state_bytes,
            member: copied(&status.member),
            members: status.members.iter().map(|member| copied(member)).collect(),
            cards,
        }
    }
}

/// What of an answer does not travel: answers that are longer than a message without what all of them end with. Those to one bundle
/// never are, since they are of one block and share its certificate.
pub(crate) fn fits(answer: &CommitteeAnswer) -> Result<(), Wrong> {
    match answer {
        CommitteeAnswer::Update(answers) => {
            let end = common_end(answers);
            let bytes: usize = answers.iter().map(|answer| answer.len() - end + 8).sum();
            if bytes + end > BATCH_BYTES_MAX {
                return Err(Wrong("the answers are longer than a message: send smaller bundles"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether the answer is of the request's name.
pub(crate) fn check_answer(
    request: &CommitteeRequest,
    answer: &CommitteeAnswer,
) -> Result<(), Wrong> {
    let same = matches!(
        (&request.ask, answer),
        (CommitteeAsk::Update(_), CommitteeAnswer::Update(_))
            | (CommitteeAsk::Read { .. }, CommitteeAnswer::Read(_))
            | (CommitteeAsk::HowFar(_), CommitteeAnswer::HowFar(_))
            | (CommitteeAsk::Status, CommitteeAnswer::Status(_))
            | (CommitteeAsk::Charter, CommitteeAnswer::Charter(_))
    );
    if same { Ok(()) } else { Err(Wrong("it answered something else than it was asked")) }
}
