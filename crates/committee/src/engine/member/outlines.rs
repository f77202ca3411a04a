//! Blocks of which a proposal names the submissions alone: every member passes on what it is sent, so mostly all of them are here.
//!
//! An outline whose submissions are not all here waits for a moment, since they may be on their way or being checked; then the
//! block itself is asked for. A submission here that is signed otherwise than the one in the block makes another block: that is seen
//! by the header, and the block is asked for too. So an outline changes how many bytes are sent, and nothing else.

#[cfg(test)]
use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::Bytes;
use commonware_p2p::Recipients;

use super::Member;
use crate::engine::chain::ABOVE_MAX;
use crate::engine::pool::Pool;
use crate::engine::wire::{Message, Outline};
use crate::engine::{Key, Runtime, now_ms};
use crate::header::{BLOCK_BYTES_MAX, HeaderDigest};
use crate::{Block, CommitteeError, Submission, UpdateDigest};

/// A block with fewer bytes and one submission is sent as it is.
const WHOLE_BYTES_MAX: usize = 4 << 10;
/// How long what an outline names is waited for.
const WAIT_MS: u64 = 30;
/// After how long it is forgotten.
const FORGET_MS: u64 = 2_000;
/// The most outlines of one member that wait.
const OF_ONE_MAX: usize = 4;
/// The most bytes of blocks that are put together in a second for one member: a short outline stands for a long block. For what is
/// over it the blocks themselves are asked for.
const A_SECOND_BYTES: usize = 16 * BLOCK_BYTES_MAX;

#[cfg(test)]
thread_local! {
    /// How many blocks were put together on this thread, and how many were asked for.
    pub(crate) static BUILT: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// Whether nothing that an outline names is found.
    pub(crate) static FINDS_NOTHING: Cell<bool> = const { Cell::new(false) };
}

struct Waiting {
    outline: Outline,
    /// How many of those that it names were found, from the first on.
    found: usize,
    since_ms: u64,
    /// When the block is asked for; `None` where it was.
    ask_ms: Option<u64>,
}

/// Outlines that wait for what they name, and the bytes that were put together for each member in this second. Each member's is kept by
/// itself: one that names what is not in the block takes no other's place.
#[derive(Default)]
pub(super) struct Outlines {
    waiting: BTreeMap<(HeaderDigest, Key), Waiting>,
    built: BTreeMap<Key, (u64, usize)>,
}

/// What an outline has come to.
enum Look {
    Waits,
    Ask,
    Whole(Bytes),
    /// No block is so long.
    None,
}

fn is_here(pool: &Pool, name: &UpdateDigest) -> bool {
    #[cfg(test)]
    if FINDS_NOTHING.get() {
        return false;
    }
    pool.get(name).is_some()
}

impl Waiting {
    /// `room` is how many bytes may be put together, and how many are left afterwards.
    fn look(&mut self, pool: &Pool, now_ms: u64, room: &mut usize) -> Look {
        let Some(mut ask_ms) = self.ask_ms else { return Look::Waits };
        let Outline { header, submissions } = &self.outline;
        let names = submissions.iter().skip(self.found);
        self.found += names.take_while(|name| is_here(pool, name)).count();
        if self.found == submissions.len() {
            // Counted before anything is put together: who names a long one often would else fill the memory.
            let all: Vec<&Submission> =
                submissions.iter().filter_map(|name| pool.get(name)).collect();
            let size = Block::size(all.iter().map(|one| one.size()));
            if size > BLOCK_BYTES_MAX {
                return Look::None;
            }
            if all.len() == submissions.len() && size <= *room {
                *room -= size;
                let all: Vec<Submission> = all.into_iter().cloned().collect();
                if let Some(bytes) = Block::whole(header, &all) {
                    return Look::Whole(bytes);
                }
            }
            // One was decided meanwhile, or is signed otherwise.
            ask_ms = now_ms;
        }
        if now_ms < ask_ms {
            return Look::Waits;
        }
        self.ask_ms = None;
        Look::Ask
    }
}

impl Outlines {
    /// Takes one of a member's; its oldest goes where it has too many.
    fn put(&mut self, digest: HeaderDigest, from: Key, outline: Outline, now_ms: u64) {
        let of_one = self.waiting.iter().filter(|((_, of), _)| *of == from);
        if of_one.clone().count() >= OF_ONE_MAX
            && let Some((oldest, _)) = of_one.min_by_key(|(_, one)| one.since_ms)
        {
            let oldest = oldest.clone();
            self.waiting.remove(&oldest);
        }
        let ask_ms = Some(now_ms + WAIT_MS);
        let waiting = Waiting { outline, found: 0, since_ms: now_ms, ask_ms };
        self.waiting.entry((digest, from)).or_insert(waiting);
    }

    /// Until when one waits before its block is asked for.
    pub(super) fn wait_ms(&self, now_ms: u64) -> u64 {
        let until = self.waiting.values().filter_map(|one| one.ask_ms).min();
        until.map_or(u64::MAX, |until| until.saturating_sub(now_ms))
    }
}

impl<E: Runtime> Member<E> {
    /// What a proposal of a block that is here is sent as; `None` where it is not here.
    pub(super) fn proposal(&self, digest: &HeaderDigest) -> Option<Message> {
        let above = self.chain.above(digest)?;
        let Block { header, submissions } = &above.block;
        if above.bytes.len() <= WHOLE_BYTES_MAX && submissions.len() <= 1 {
            return Some(Message::Block(above.bytes.clone()));
        }
        let submissions = submissions.iter().map(|one| *one.key()).collect();
        Some(Message::Outline(Outline { header: Box::new(header.clone()), submissions }))
    }

    /// Takes the outline of a proposal: a member's, a little above the tip, as of a block that nobody asked for.
    pub(super) async fn take_outline(
        &mut self,
        from: Key,
        outline: Outline,
    ) -> Result<(), CommitteeError> {
        let (digest, tip) = (outline.header.digest(), self.chain.tip().height);
        let above = tip.saturating_add(1)..=tip.saturating_add(ABOVE_MAX as u64);
        let proposal = self.term.is_member(&from) && above.contains(&outline.header.height);
        let here = self.chain.above(&digest).is_some() || self.parked.has(&digest);
        let now = now_ms(&self.context);
        if !proposal || here {
            return Ok(());
        }
        self.outlines.put(digest, from, outline, now);
        self.fill_outlines().await
    }

    /// Takes the blocks of which everything is here, and asks for those that waited.
    pub(super) async fn fill_outlines(&mut self) -> Result<(), CommitteeError> {
        if self.outlines.waiting.is_empty() {
            return Ok(());
        }
        let (now, tip) = (now_ms(&self.context), self.chain.tip().height);
        let (chain, parked, pool) = (&self.chain, &self.parked, &self.pool);
        let (mut whole, mut missing) = (Vec::new(), Vec::new());
        let Outlines { waiting, built } = &mut self.outlines;
        let second = now / 1_000;
        built.retain(|_, (since, _)| *since == second);
        waiting.retain(|(digest, from), one| {
            let here = chain.above(digest).is_some() || parked.has(digest);
            if here || one.outline.header.height <= tip || now >= one.since_ms + FORGET_MS {
                return false;
            }
            let (_, built) = built.entry(from.clone()).or_insert((second, 0));
            let mut room = A_SECOND_BYTES.saturating_sub(*built);
            let look = one.look(pool, now, &mut room);
            *built = A_SECOND_BYTES - room;
            match look {
                Look::Waits => true,
                Look::None => false,
                Look::Whole(bytes) => {
                    whole.push((from.clone(), (*one.outline.header).clone(), bytes));
                    false
                }
                Look::Ask => {
                    missing.push((from.clone(), *digest));
                    true
                }
            }
        });
        #[cfg(test)]
        BUILT.with(|count| {
            count.set((count.get().0 + whole.len(), count.get().1 + missing.len()));
        });
        for (from, digest) in missing {
            self.send(Recipients::One(from), &Message::WantBlock(digest));
        }
        for (from, header, bytes) in whole {
            self.take_whole(from, header, bytes).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;
    use crate::engine::MemberSecret;
    use crate::proving::{Founded, object, secret};

    fn key(byte: u8) -> Key {
        MemberSecret::new(&[byte; 32]).expect("a key").id().key().expect("a key")
    }

    fn submission(founded: &Founded, number: u8, bundle: bool) -> Submission {
        let (record, _) = object(1);
        let made = Operation::Object { record, policy: Bytes::new() };
        let update = founded.update(1, number, made);
        match bundle {
            true => Submission::bundle(&[update], &secret(1)).expect("good"),
            false => update.sign(&secret(1)).expect("good"),
        }
    }

    fn waiting(block: &Block) -> Waiting {
        let submissions = block.submissions.iter().map(|one| *one.key()).collect();
        let outline = Outline { header: Box::new(block.header.clone()), submissions };
        Waiting { outline, found: 0, since_ms: 1_000, ask_ms: Some(1_000 + WAIT_MS) }
    }

    #[test]
    fn a_block_is_put_together_once_all_is_here_and_asked_for_once_where_it_is_not() {
        let mut founded = Founded::new(4);
        let all: Vec<Submission> = (1..4).map(|one| submission(&founded, one, false)).collect();
        let block = founded.block(all.clone()).0;
        let mut pool = Pool::default();
        let (mut one, mut late) = (waiting(&block), waiting(&block));
        let mut room = BLOCK_BYTES_MAX;
        for submission in [&all[0], &all[2]] {
            assert!(matches!(one.look(&pool, 1_000, &mut room), Look::Waits));
            pool.take(submission.clone()).expect("room");
        }
        assert!(matches!(late.look(&pool, 1_000 + WAIT_MS - 1, &mut room), Look::Waits));
        assert!(matches!(late.look(&pool, 1_000 + WAIT_MS, &mut room), Look::Ask));
        assert!(matches!(late.look(&pool, 9_000, &mut room), Look::Waits), "once");
        pool.take(all[1].clone()).expect("room");
        let Look::Whole(bytes) = one.look(&pool, 1_000, &mut room) else {
            panic!("all of it is here")
        };
        assert_eq!(bytes, block.encode());
    }

    #[test]
    fn what_is_signed_otherwise_here_is_not_taken_for_what_the_block_carries() {
        let mut founded = Founded::new(4);
        let (alone, bundle) = (submission(&founded, 1, false), submission(&founded, 1, true));
        assert_eq!(alone.key(), bundle.key());
        let block = founded.block(vec![bundle]).0;
        let mut pool = Pool::default();
        pool.take(alone).expect("room");
        let (mut one, mut room) = (waiting(&block), BLOCK_BYTES_MAX);
        assert!(matches!(one.look(&pool, 1_000, &mut room), Look::Ask), "asked for at once");
    }

    #[test]
    fn what_one_member_says_is_bounded() {
        let mut founded = Founded::new(4);
        let block = founded.block(vec![submission(&founded, 1, false)]).0;
        let mut outlines = Outlines::default();
        let mut put = |from: u8, number: u8| {
            let outline = waiting(&block).outline;
            let digest = HeaderDigest::new([number; 32]);
            outlines.put(digest, key(from), outline, u64::from(number));
            outlines.waiting.keys().map(|(digest, _)| digest.as_bytes()[0]).collect::<Vec<_>>()
        };
        (1..=9).for_each(|number| drop(put(1, number)));
        assert_eq!(put(2, 20), [6, 7, 8, 9, 20], "its newest");
        assert_eq!(put(2, 9), [6, 7, 8, 9, 9, 20], "who copies a header takes no other's place");
    }

    #[test]
    fn no_block_is_put_together_that_is_longer_than_blocks_are() {
        let mut founded = Founded::new(4);
        let certificate = Bytes::from(vec![0; 20_000]);
        let update = founded.update(1, 1, Operation::Peer { certificate });
        let long = update.sign(&secret(1)).expect("good");
        let mut pool = Pool::default();
        pool.take(long.clone()).expect("room");
        let block = founded.block(vec![long.clone()]).0;
        let mut often = waiting(&block);
        often.outline.submissions = vec![*long.key(); BLOCK_BYTES_MAX / 20_000 + 1];
        let mut room = 100 * BLOCK_BYTES_MAX;
        assert!(matches!(often.look(&pool, 1_000, &mut room), Look::None));
        assert_eq!(room, 100 * BLOCK_BYTES_MAX, "nothing was put together");
        // What one member has put together in a second is bounded too.
        let (mut one, mut little) = (waiting(&block), 20_000);
        assert!(matches!(one.look(&pool, 1_000, &mut little), Look::Ask));
        let mut one = waiting(&block);
        assert!(matches!(one.look(&pool, 1_000, &mut room), Look::Whole(_)));
        assert_eq!(room, 100 * BLOCK_BYTES_MAX - block.encode().len());
    }
}
