//! Submissions that wait for a block, and the clients that wait for them.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use bytes::Bytes;
use crypto::PublicKey;
use tokio::sync::oneshot;

use super::Key;
use crate::header::{BLOCK_BYTES_MAX, BLOCK_UPDATES_MAX};
use crate::update::Tag;
use crate::{Answer, CommitteeError, Submission, UpdateDigest};

/// The most submissions that wait.
pub(crate) const WAITING_MAX: usize = 16_384;
/// The most bytes of them.
pub(crate) const WAITING_BYTES_MAX: usize = 64 << 20;
/// The most that wait of one author.
pub(crate) const AUTHOR_WAITING_MAX: usize = 1_024;
/// The most clients that wait for the same submission.
pub(crate) const REPLIES_MAX: usize = 64;
/// The most bytes that are passed on again at once.
const AGAIN_BYTES_MAX: usize = 256 << 10;
/// How many decided ones are remembered at least for [`DECIDED_MS`], and at most for twice as long.
const DECIDED_MAX: usize = 1 << 16;
const DECIDED_MS: u64 = 5_000;
/// When to try again, told with *busy*.
pub(crate) const RETRY_MS: u64 = 200;

/// What stands before the updates of a block.
const BLOCK_HEAD_BYTES: usize = 1_024;

/// Who waits for an answer.
pub(crate) type Reply = oneshot::Sender<Result<Vec<Answer>, CommitteeError>>;

struct Waiting {
    submission: Submission,
    /// The member that passed it on, unless it came from a client, or is this member's own.
    from: Option<Key>,
    replies: Vec<(Reply, u64)>,
}

/// What waits.
#[derive(Default)]
pub(crate) struct Pool {
    order: VecDeque<UpdateDigest>,
    waiting: BTreeMap<UpdateDigest, Waiting>,
    tags: HashMap<Tag, UpdateDigest>,
    of_author: HashMap<PublicKey, usize>,
    /// How many wait of those that each member passed on, and their bytes.
    passed: HashMap<Key, (usize, usize)>,
    bytes: usize,
    decided: Decided,
}

/// What was decided of late.
#[derive(Default)]
struct Decided {
    new: HashMap<Tag, UpdateDigest>,
    old: HashMap<Tag, UpdateDigest>,
    since_ms: u64,
}

impl Decided {
    fn has(&self, submission: &Submission) -> bool {
        let of =
            |all: &HashMap<Tag, UpdateDigest>| all.get(submission.tag()) == Some(submission.key());
        of(&self.new) || of(&self.old)
    }
}

impl Pool {
    /// Whether it was decided a few seconds ago. One that another member passes on late is not taken in again: it would be executed
    /// once more to find that it is done. Who wants it answered again sends it to a member itself.
    pub(crate) fn was_decided(&self, submission: &Submission) -> bool {
        self.decided.has(submission)
    }

    /// Whether what is encoded so is here or was decided a few seconds ago: then it need not be looked at again.
    pub(crate) fn is_old(&self, bytes: &Bytes) -> bool {
        let Some(tag) = Submission::tag_of(bytes) else { return false };
        let Decided { new, old, .. } = &self.decided;
        self.known(bytes).is_some()
            || (new.contains_key(&tag) || old.contains_key(&tag))
                && Submission::decode(bytes).is_ok_and(|one| self.was_decided(&one))
    }

    /// Takes out one that was decided, and remembers that. Whoever waits for it is returned.
    pub(crate) fn decide(&mut self, submission: &Submission, now_ms: u64) -> Vec<Reply> {
        let decided = &mut self.decided;
        if decided.since_ms + DECIDED_MS <= now_ms || decided.new.len() >= DECIDED_MAX {
            decided.old = std::mem::take(&mut decided.new);
            decided.since_ms = now_ms;
        }
        decided.new.insert(*submission.tag(), *submission.key());
        self.remove(submission.key())
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether it is here: then its signature was checked.
    pub(crate) fn has(&self, submission: &Submission) -> bool {
        self.known(&submission.encode()).is_some()
    }

    /// The one that is encoded so, where it is here: its signature was checked, it need not be decoded again.
    pub(crate) fn known(&self, bytes: &[u8]) -> Option<&Submission> {
        let key = self.tags.get(&Submission::tag_of(bytes)?)?;
        let Waiting { submission, .. } = self.waiting.get(key)?;
        (submission.encode() == bytes).then_some(submission)
    }

    /// The one with this key.
    pub(crate) fn get(&self, key: &UpdateDigest) -> Option<&Submission> {
        self.waiting.get(key).map(|waiting| &waiting.submission)
    }

    /// Takes a submission whose signature holds, and that another member of so many passed on; `true` where it is new. All that the
    /// members pass on takes half of the room at most, and each has a like share of that: one that lies keeps the room from nobody.
    pub(crate) fn take_passed(
        &mut self,
        submission: Submission,
        from: &Key,
        members: usize,
    ) -> Result<bool, CommitteeError> {
        let (count, bytes) = self.passed.get(from).copied().unwrap_or_default();
        let (count_left, bytes_left) = self.room_of(from, members);
        let size = submission.size();
        if count_left == 0 || size > bytes_left {
            return Err(CommitteeError::Busy { retry_ms: RETRY_MS });
        }
        let key = *submission.key();
        let new = self.take(submission)?;
        if let Some(waiting) = self.waiting.get_mut(&key).filter(|_| new) {
            waiting.from = Some(from.clone());
            self.passed.insert(from.clone(), (count + 1, bytes + size));
        }
        Ok(new)
    }

    /// How many more may wait of those that a member of so many passes on, and how many bytes of them.
    pub(crate) fn room_of(&self, from: &Key, members: usize) -> (usize, usize) {
        let shares = 2 * members.max(1);
        let (count, bytes) = self.passed.get(from).copied().unwrap_or_default();
        let count_left = (WAITING_MAX / shares).saturating_sub(count);
        (count_left, (WAITING_BYTES_MAX / shares).saturating_sub(bytes))
    }

    /// One that another member passed on is not counted any more.
    fn no_longer_passed(&mut self, from: &Key, size: usize) {
        if let Some((count, bytes)) = self.passed.get_mut(from) {
            (*count, *bytes) = (count.saturating_sub(1), bytes.saturating_sub(size));
            if *count == 0 {
                self.passed.remove(from);
            }
        }
    }

    /// Takes a submission whose signature holds; `true` where it is new.
    pub(crate) fn take(&mut self, submission: Submission) -> Result<bool, CommitteeError> {
        let key = *submission.key();
        if self.waiting.contains_key(&key) {
            return Ok(false);
        }
        let author = submission.updates().first().map(|update| update.author);
        let author = author.ok_or(CommitteeError::Length("update"))?;
        let of_author = self.of_author.entry(author).or_default();
        let size = submission.size();
        let full = self.waiting.len() >= WAITING_MAX || self.bytes + size > WAITING_BYTES_MAX;
        if full || *of_author >= AUTHOR_WAITING_MAX {
            if *of_author == 0 {
                self.of_author.remove(&author);
            }
            return Err(CommitteeError::Busy { retry_ms: RETRY_MS });
        }
        *of_author += 1;
        self.bytes += size;
        self.order.push_back(key);
        self.tags.insert(*submission.tag(), key);
        self.waiting.insert(key, Waiting { submission, from: None, replies: Vec::new() });
        Ok(true)
    }

    /// Waits for the answer to one that is here, until a time.
    pub(crate) fn wait(&mut self, key: &UpdateDigest, reply: Reply, until_ms: u64) {
        match self.waiting.get_mut(key) {
            Some(waiting) if waiting.replies.len() < REPLIES_MAX => {
                waiting.replies.push((reply, until_ms));
            }
            Some(_) => drop(reply.send(Err(CommitteeError::Busy { retry_ms: RETRY_MS }))),
            None => {
                let _ = reply.send(Err(CommitteeError::Stopped));
            }
        }
    }

    /// Takes one out. Whoever waits for it is returned.
    pub(crate) fn remove(&mut self, key: &UpdateDigest) -> Vec<Reply> {
        let Some(Waiting { submission, from, replies }) = self.waiting.remove(key) else {
            return Vec::new();
        };
        if let Some(from) = from {
            self.no_longer_passed(&from, submission.size());
        }
        self.bytes -= submission.size();
        // Another one's may have come to stand in its place: nobody is kept from a tag that is his.
        if self.tags.get(submission.tag()) == Some(key) {
            self.tags.remove(submission.tag());
        }
        if let Some(author) = submission.updates().first().map(|update| update.author)
            && let Some(count) = self.of_author.get_mut(&author)
        {
            *count -= 1;
            if *count == 0 {
                self.of_author.remove(&author);
            }
        }
        // Mostly it is among the first.
        if let Some(at) = self.order.iter().position(|one| one == key) {
            self.order.remove(at);
        }
        replies.into_iter().map(|(reply, _)| reply).collect()
    }

    /// Whether there is one that is not among these.
    pub(crate) fn has_beside(&self, taken: &HashSet<UpdateDigest>) -> bool {
        self.order.iter().any(|key| !taken.contains(key))
    }

    /// What a block may carry, the oldest first, without these: about so many updates, and one submission at least.
    pub(crate) fn next(&self, taken: &HashSet<UpdateDigest>, most: usize) -> Vec<Submission> {
        let most = most.min(BLOCK_UPDATES_MAX);
        let (mut all, mut updates, mut bytes) = (Vec::new(), 0, BLOCK_HEAD_BYTES);
        for key in self.order.iter().filter(|key| !taken.contains(*key)) {
            let Some(Waiting { submission, .. }) = self.waiting.get(key) else { continue };
            updates += submission.updates().len();
            bytes += submission.size() + 4;
            if !all.is_empty() && (updates > most || bytes > BLOCK_BYTES_MAX) {
                break;
            }
            all.push(submission.clone());
        }
        all
    }

    /// Those that wait longest, encoded: for a member that comes back. One at least, then up to so many and a bound of bytes.
    pub(crate) fn encoded(&self, count: usize) -> Vec<Bytes> {
        let mut bytes = 0;
        let room = |waiting: &&Waiting| {
            let first = bytes == 0;
            bytes += waiting.submission.size();
            first || bytes <= AGAIN_BYTES_MAX
        };
        let all = self.order.iter().filter_map(|key| self.waiting.get(key));
        all.take(count).take_while(room).map(|waiting| waiting.submission.encode()).collect()
    }

    /// Those whose time is over.
    pub(crate) fn late(&mut self, now_ms: u64) -> Vec<Reply> {
        let mut late = Vec::new();
        for waiting in self.waiting.values_mut() {
            let (over, rest) = std::mem::take(&mut waiting.replies)
                .into_iter()
                .partition(|(reply, until_ms)| *until_ms <= now_ms || reply.is_closed());
            waiting.replies = rest;
            let over: Vec<(Reply, u64)> = over;
            late.extend(over.into_iter().map(|(reply, _)| reply));
        }
        late
    }
}
