//! Fetching stripes: whom a reader asks, what it makes do with, and what it is told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use crypto::{Class, Classified, PeerState, RecordId};
use document::{Record, Striped};
use env::Env;
use env::calls::{
    CallError, Caller, Endpoint, Events, FindRequest, FindResponse, IntroduceRequest,
    IntroduceResponse, PutResponse, Service, StoreOutcome, SubscribeRequest, VerifyRequest,
    VerifyResponse,
};
use testkit::network::{Fault, MemoryPeer, key, stripe};
use testkit::time::run;
use walk::{
    Directory, Fetched, FragmentState, LocalStore, StripeShape, WalkError, WalkOptions, Walker,
};

use super::stripe_store::{K, N, four_of_eight, stored_whole};
use super::{LONG, Stage};

pub(super) fn shape(striped: &Striped) -> StripeShape {
    StripeShape::new(striped.header.id, &striped.stripe)
}

/// Every fragment told is the one of its number, byte for byte.
pub(super) fn is_right(fetched: &Fetched, striped: &Striped) -> bool {
    fetched.fragments.iter().all(|(index, record)| *record == striped.fragments[*index])
}

fn indices(fetched: &Fetched) -> Vec<usize> {
    fetched.fragments.iter().map(|(index, _)| *index).collect()
}

/// A stripe of 4/8 at the peers of a stage, with its rank.
struct Kept {
    stage: Stage,
    striped: Striped,
    rank: Vec<usize>,
}

impl Kept {
    async fn new(env: &Env, peers: usize) -> Self {
        let stage = Stage::new(env, 3, peers);
        let striped = four_of_eight(1);
        stored_whole(&stage, &striped).await;
        let rank = stage.rank(&striped.header.place);
        Self { stage, striped, rank }
    }

    async fn fetch(&self, wanted: std::ops::Range<usize>) -> Result<Fetched, WalkError> {
        self.stage.walker.fetch_stripe(&shape(&self.striped), wanted).await
    }

    /// How often each peer was asked for a record since `before`, by rank.
    fn finds(&self) -> Vec<u64> {
        let counts = |peer: &usize| self.stage.network.counts(&self.stage.peer(*peer));
        self.rank.iter().map(counts).map(|counts| counts.find + counts.find_batch).collect()
    }
}

#[test]
fn one_page_asks_one_holder_and_all_pages_ask_k() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 14).await;
        let fetched = kept.fetch(2..3).await.unwrap();
        assert_eq!(indices(&fetched), [2]);
        assert!(is_right(&fetched, &kept.striped) && !fetched.is_degraded());
        let mut expected = vec![0; 14];
        expected[2] = 1;
        assert_eq!(kept.finds(), expected);
        let fetched = kept.fetch(0..K).await.unwrap();
        assert_eq!(indices(&fetched), [0, 1, 2, 3], "pages as they are: nothing to decode");
        assert_eq!(kept.finds()[..5], [1, 1, 2, 1, 0]);
    });
}

#[test]
fn every_loss_of_n_minus_k_is_made_up_for() {
    for lost in (0_u32..1 << N).filter(|lost| lost.count_ones() as usize == N - K) {
        run(u64::from(lost), |env| async move {
            let kept = Kept::new(&env, 10).await;
            for at in (0..N).filter(|at| lost >> at & 1 == 1) {
                // In turn: gone, silent, emptied, lying.
                match at % 4 {
                    0 => kept.stage.set(kept.rank[at], Fault::Down),
                    1 => kept.stage.set(kept.rank[at], Fault::Hang),
                    2 => kept.stage.peers[kept.rank[at]].lose_all(),
                    _ => kept.stage.set(kept.rank[at], Fault::Flip),
                }
            }
            let since = env.clock.elapsed();
            let fetched = kept.fetch(0..K).await.unwrap();
            assert!(is_right(&fetched, &kept.striped));
            let expected: Vec<usize> = (0..N).filter(|at| lost >> at & 1 == 0).collect();
            assert_eq!(indices(&fetched), expected, "{lost:08b}");
            let took = env.clock.elapsed() - since;
            assert!(took < Duration::from_secs(15), "{lost:08b} took {took:?}");
        });
    }
}

#[test]
fn holders_that_stopped_and_are_back_count_where_k_are_needed() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 10).await;
        (0..N - K).for_each(|at| kept.stage.announce(kept.rank[at], PeerState::Stopped, 2));
        let fetched = kept.fetch(0..K).await.unwrap();
        assert_eq!(indices(&fetched), [4, 5, 6, 7], "the others are asked first");
        assert_eq!(kept.finds()[..N - K], [0; N - K]);
        (N - K..N).for_each(|at| kept.stage.set(kept.rank[at], Fault::Down));
        let fetched = kept.fetch(0..K).await.unwrap();
        assert_eq!(indices(&fetched), [0, 1, 2, 3]);
        assert!(is_right(&fetched, &kept.striped));
    });
}

#[test]
fn one_loss_more_is_too_many_and_says_how_many_were_found() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 10).await;
        (0..N - K + 1).for_each(|at| kept.stage.set(kept.rank[at], Fault::Down));
        let error = kept.fetch(0..K).await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable);
        let WalkError::TooFewFragments { found, needed, errors, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*found, *needed), (K as u32 - 1, K as u32));
        assert!(errors.len() > N - K);
    });
}

#[test]
fn where_everybody_answers_what_is_missing_is_lost_and_else_it_may_be_away() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 14).await;
        let stage = &kept.stage;
        (0..N - K + 1).for_each(|at| stage.peers[kept.rank[at]].lose_all());
        let lost = kept.fetch(0..K).await.unwrap_err();
        assert!(matches!(lost, WalkError::TooFewFragments { found: 3, needed: 4, .. }), "{lost}");
        assert_eq!(lost.class(), Class::NotFound, "{lost}");
        // Whoever is away may have one, also of those that none belongs to.
        let (near, far) = (kept.rank[0], kept.rank[13]);
        for away in [near, far] {
            stage.set(away, Fault::Down);
            let error = kept.fetch(0..K).await.unwrap_err();
            assert_eq!(error.class(), Class::Unavailable, "{error}");
            stage.network.heal();
        }
        // One that lies has none, or damaged ones.
        stage.set(far, Fault::Garbage);
        let error = kept.fetch(0..K).await.unwrap_err();
        assert!(matches!(error, WalkError::TooFewFragments { found: 3, .. }), "{error}");
        assert_eq!(error.class(), Class::Corrupt, "{error}");
        stage.set(near, Fault::Down);
        let error = kept.fetch(0..K).await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable, "{error}");
    });
}

/// A peer in whose answers to many questions there is room for one record.
struct Cramped(Arc<MemoryPeer>);

#[async_trait]
impl Service for Cramped {
    async fn introduce(
        &self,
        caller: Caller,
        request: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError> {
        self.0.introduce(caller, request).await
    }

    async fn find(&self, caller: Caller, request: FindRequest) -> Result<FindResponse, CallError> {
        self.0.find(caller, request).await
    }

    async fn find_batch(
        &self,
        caller: Caller,
        requests: Vec<FindRequest>,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        let answers = self.0.find_batch(caller, requests).await?;
        let mut room = true;
        let answers = answers.into_iter().map(|answer| {
            let found = matches!(answer, Ok(FindResponse::Found(_)));
            match found && !std::mem::replace(&mut room, false) {
                true => Err(CallError::Busy { retry_after: Duration::ZERO }),
                false => answer,
            }
        });
        Ok(answers.collect())
    }

    async fn verify(
        &self,
        caller: Caller,
        request: VerifyRequest,
    ) -> Result<VerifyResponse, CallError> {
        self.0.verify(caller, request).await
    }

    async fn verify_batch(
        &self,
        caller: Caller,
        requests: Vec<VerifyRequest>,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        self.0.verify_batch(caller, requests).await
    }

    async fn store(&self, caller: Caller, record: Record) -> Result<StoreOutcome, CallError> {
        self.0.store(caller, record).await
    }

    async fn store_batch(
        &self,
        caller: Caller,
        records: Vec<Record>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        self.0.store_batch(caller, records).await
    }

    async fn put(
        &self,
        caller: Caller,
        record: Record,
        wait: Duration,
    ) -> Result<PutResponse, CallError> {
        self.0.put(caller, record, wait).await
    }

    async fn get(&self, caller: Caller, request: FindRequest) -> Result<Record, CallError> {
        self.0.get(caller, request).await
    }

    async fn subscribe(
        &self,
        caller: Caller,
        request: SubscribeRequest,
    ) -> Result<Events, CallError> {
        self.0.subscribe(caller, request).await
    }
}

#[test]
fn what_a_peer_has_no_room_to_send_is_not_lost() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 14).await;
        // All that there is lies at one peer.
        kept.stage.peers.iter().for_each(|peer| peer.lose_all());
        let number = kept.rank[0];
        for index in 0..N {
            put_at(&kept, number, index).await;
        }
        let member = &kept.stage.community.members[number];
        let cramped = Arc::new(Cramped(kept.stage.peers[number].clone()));
        kept.stage.network.serve(&member.address, member.peer, cramped);
        let error = kept.fetch(0..K).await.unwrap_err();
        assert!(matches!(error, WalkError::TooFewFragments { found: 2, .. }), "{error}");
        assert_eq!(error.class(), Class::Unavailable, "{error}");
    });
}

#[test]
fn a_liar_is_named_passed_by_and_not_asked_again() {
    for fault in [Fault::Flip, Fault::Garbage, Fault::Other(four_of_eight(9).fragments[0].clone())]
    {
        run(1, |env| async move {
            let kept = Kept::new(&env, 14).await;
            kept.stage.set(kept.rank[1], fault.clone());
            for wanted in [1..2, 0..K] {
                let fetched = kept.fetch(wanted).await.unwrap();
                assert!(is_right(&fetched, &kept.striped), "{fault:?}");
                assert_eq!(fetched.fragments.len(), K);
                let named: Vec<_> =
                    fetched.failed.iter().map(|at| (at.index, at.holder, &at.state)).collect();
                let liar = Some(kept.stage.peer(kept.rank[1]));
                if !named.is_empty() {
                    assert_eq!(named, [(1, liar, &FragmentState::Corrupt)], "{fault:?}");
                }
            }
            let asked = kept.finds()[1];
            assert_eq!(asked, 1, "and once it is known to lie it is asked nothing for a while");
        });
    }
}

#[test]
fn where_everybody_lies_nobody_is_believed() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 10).await;
        kept.rank.iter().for_each(|peer| kept.stage.set(*peer, Fault::Flip));
        let error = kept.fetch(0..K).await.unwrap_err();
        assert!(matches!(error, WalkError::Corrupt { .. }), "{error}");
        assert_eq!(error.class(), Class::Corrupt);
    });
}

#[test]
fn a_stripe_that_nobody_has_is_not_found() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 12);
        let error = stage.walker.fetch_stripe(&shape(&four_of_eight(3)), 0..K).await.unwrap_err();
        assert!(matches!(error, WalkError::NotFound { asked: 12, .. }), "{error}");
        let nobody = Stage::new(&env, 1, 0);
        let error = nobody.walker.fetch_stripe(&shape(&four_of_eight(3)), 0..1).await.unwrap_err();
        assert!(matches!(error, WalkError::NoPeers { .. }), "{error}");
    });
}

/// The answer times of `count` reads.
async fn times(
    env: &Env,
    kept: &Kept,
    wanted: std::ops::Range<usize>,
    count: usize,
) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..count {
        let since = env.clock.elapsed();
        let fetched = kept.fetch(wanted.clone()).await.unwrap();
        assert!(is_right(&fetched, &kept.striped));
        times.push(env.clock.elapsed() - since);
    }
    times.sort_unstable();
    times
}

#[test]
fn a_holder_a_hundred_times_slower_does_not_slow_the_reader() {
    for wanted in [0..K, 1..2] {
        run(1, |env| async move {
            let kept = Kept::new(&env, 14).await;
            let usual = Duration::from_millis(20);
            kept.rank.iter().for_each(|peer| kept.stage.set(*peer, Fault::Delay(usual)));
            times(&env, &kept, 0..K, 40).await;
            times(&env, &kept, wanted.clone(), 40).await;
            kept.stage.set(kept.rank[1], Fault::Delay(usual * 100));
            let times = times(&env, &kept, wanted.clone(), 1_000).await;
            assert!(times[989] <= usual * 12 / 10, "p99 of {wanted:?}: {:?}", times[989]);
            // Nor does any read wait for it until it is overdue.
            assert!(times[999] <= usual * 6, "worst of {wanted:?}: {:?}", times[999]);
        });
    }
}

#[test]
fn a_slow_holder_that_is_tried_again_is_not_waited_for() {
    for wanted in [0..K, 1..2] {
        run(1, |env| async move {
            let kept = Kept::new(&env, 14).await;
            let usual = Duration::from_millis(20);
            kept.rank.iter().for_each(|peer| kept.stage.set(*peer, Fault::Delay(usual)));
            times(&env, &kept, 0..K, 40).await;
            kept.stage.set(kept.rank[1], Fault::Delay(usual * 100));
            times(&env, &kept, wanted.clone(), 40).await;
            let before = kept.finds()[1];
            // So seldom that it is its turn again each time.
            for _ in 0..20 {
                env.clock.sleep(Duration::from_secs(40)).await;
                let took = times(&env, &kept, wanted.clone(), 1).await[0];
                assert!(took <= usual, "{wanted:?} took {took:?}");
            }
            assert!(kept.finds()[1] > before + 10, "it is tried");
        });
    }
}

#[test]
fn a_straggler_is_not_waited_for_after_what_is_usual() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 14).await;
        let usual = Duration::from_millis(20);
        kept.rank.iter().for_each(|peer| kept.stage.set(*peer, Fault::Delay(usual)));
        times(&env, &kept, 0..K, 20).await;
        kept.stage.set(kept.rank[2], Fault::Hang);
        let since = env.clock.elapsed();
        let fetched = kept.fetch(0..K).await.unwrap();
        assert_eq!(indices(&fetched), [0, 1, 3, 4]);
        assert!(env.clock.elapsed() - since <= usual * 3);
        assert!(!fetched.is_degraded(), "slow is not lost");
    });
}

#[test]
fn hedges_stay_within_the_budget_where_everybody_is_slow() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 14).await;
        times(&env, &kept, 0..K, 10).await;
        let before: u64 = kept.finds().iter().sum();
        kept.rank
            .iter()
            .for_each(|peer| kept.stage.set(*peer, Fault::Delay(Duration::from_secs(1))));
        times(&env, &kept, 0..1, 200).await;
        let calls = kept.finds().iter().sum::<u64>() - before;
        // A twentieth, the burst, and some reads that pass the page's holder by until the others are known to be as slow.
        assert!(calls <= 200 + 10 + 10 + 10 * K as u64, "{calls} calls for 200 pages");
    });
}

#[test]
fn a_busy_peer_is_passed_by_and_where_all_are_busy_they_are_asked_again() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 14).await;
        let busy = CallError::Busy { retry_after: Duration::from_millis(300) };
        kept.stage.set(kept.rank[0], Fault::Error(busy.clone()));
        let fetched = kept.fetch(0..K).await.unwrap();
        assert_eq!(env.clock.elapsed(), Duration::ZERO);
        assert_eq!(fetched.failed[0].state, FragmentState::Unreachable(busy.clone()));
        kept.rank.iter().for_each(|peer| kept.stage.set(*peer, Fault::Error(busy.clone())));
        let healed = async {
            env.clock.sleep(Duration::from_millis(200)).await;
            kept.stage.network.heal();
        };
        let (fetched, ()) = futures::join!(kept.fetch(0..K), healed);
        assert!(is_right(&fetched.unwrap(), &kept.striped));
        kept.rank.iter().for_each(|peer| kept.stage.set(*peer, Fault::Error(busy.clone())));
        let error = kept.fetch(0..K).await.unwrap_err();
        assert!(matches!(error, WalkError::Busy { .. }), "{error}");
    });
}

#[test]
fn displaced_fragments_are_found_with_the_spares() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 14);
        let striped = four_of_eight(1);
        let rank = stage.rank(&striped.header.place);
        (0..3).for_each(|at| stage.set(rank[at], Fault::Down));
        stored_whole(&stage, &striped).await;
        // Those that were there are gone, and those that were away are back, with nothing.
        stage.network.heal();
        (3..5).for_each(|at| stage.set(rank[at], Fault::Down));
        let calls = stage.network.calls(key("client", 1).public());
        // A reader that knows nothing of what happened.
        let directory = Directory::new(stage.community.genesis.clone(), env.clone(), None);
        directory.learn_from(&stage.community.known());
        let other = Walker::new(env.clone(), calls, directory, WalkOptions::default());
        let fetched = other.fetch_stripe(&shape(&striped), 0..K).await.unwrap();
        assert!(is_right(&fetched, &striped));
        // One page of a spare costs a reader no k fragments.
        let fetched = other.fetch_stripe(&shape(&striped), 1..2).await.unwrap();
        assert_eq!(indices(&fetched), [1]);
        assert_eq!(fetched.failed[0].state, FragmentState::Missing);
    });
}

#[test]
fn peers_that_joined_since_move_nothing_out_of_reach() {
    run(1, |env| async move {
        let mut stage = Stage::new(&env, 4, 24);
        let stripes: Vec<Striped> = (0..12).map(|number| stripe(number, 8, 16, 50)).collect();
        for striped in &stripes {
            stored_whole(&stage, striped).await;
        }
        for organisation in [0, 1, 2, 3, 1, 2] {
            let number = stage.community.admit(organisation, 1 << 42);
            let member = &stage.community.members[number];
            let genesis = stage.community.genesis.clone();
            let announcement = member.announcement.clone();
            let peer = testkit::network::MemoryPeer::new(genesis, announcement, &env);
            stage.network.serve(&member.address, member.peer, peer.clone());
            stage.peers.push(peer);
        }
        stage.directory.learn_from(&stage.community.known());
        assert_eq!(stage.directory.view().len(), 30);
        let before = stage.network.total();
        for striped in &stripes {
            let fetched = stage.walker.fetch_stripe(&shape(striped), 0..8).await.unwrap();
            assert!(is_right(&fetched, striped));
        }
        let calls = stage.network.total() - before;
        // 8 where nothing moved; guesses that miss and open questions after them are twice that and a few.
        assert!(calls <= 12 * 24, "{calls} calls for 12 stripes");
    });
}

/// Stores a fragment and its header at one peer, whatever its rank.
async fn put_at(kept: &Kept, peer: usize, index: usize) {
    let member = &kept.stage.community.members[peer];
    let calls = kept.stage.network.calls(key("client", 2).public());
    let to = Endpoint::of(member.peer, member.address.clone());
    let both = vec![kept.striped.header.clone(), kept.striped.fragments[index].clone()];
    let outcomes = calls.store_batch(&to, both, LONG).await.unwrap();
    assert!(outcomes.iter().all(Result::is_ok));
}

#[test]
fn where_guesses_miss_peers_are_asked_openly_and_no_more_guesses_are_made() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 14).await;
        // As if many had joined at the top of the rank: nothing lies where it belongs.
        (0..N).for_each(|at| kept.stage.peers[kept.rank[at]].lose_all());
        for index in 0..6 {
            put_at(&kept, kept.rank[N + index], index).await;
        }
        let fetched = kept.fetch(0..K).await.unwrap();
        assert!(is_right(&fetched, &kept.striped));
        let counts = |at: usize| kept.stage.network.counts(&kept.stage.peer(kept.rank[at]));
        // Four guesses at once and one more when the first of them missed; with the second the rank is doubted.
        let guesses: Vec<u64> = (0..14).map(|at| counts(at).find).collect();
        assert_eq!(guesses, [1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!((0..14).any(|at| counts(at).find_batch > 0));
    });
}

#[test]
fn a_liar_is_not_asked_for_what_else_it_has() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 14).await;
        kept.stage.set(kept.rank[1], Fault::Flip);
        (2..6).for_each(|at| kept.stage.peers[kept.rank[at]].lose_all());
        // Three are left where they belong; the fourth lies at the far end.
        put_at(&kept, kept.rank[13], 2).await;
        let fetched = kept.fetch(0..K).await.unwrap();
        assert_eq!(indices(&fetched), [0, 2, 6, 7]);
        assert!(is_right(&fetched, &kept.striped));
        assert_eq!(kept.finds()[1], 1);
    });
}

#[test]
fn fragments_are_moved_and_not_copied() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 10).await;
        let at = |record: &Record| record.bytes.as_ptr();
        for (index, fragment) in kept.striped.fragments.iter().enumerate() {
            let held = kept.stage.peers[kept.rank[index]].all();
            assert!(held.iter().any(|held| at(held) == at(fragment)), "fragment {index}");
        }
        kept.stage.peers[kept.rank[1]].lose_all();
        let fetched = kept.fetch(0..K).await.unwrap();
        for (index, record) in &fetched.fragments {
            assert_eq!(at(record), at(&kept.striped.fragments[*index]), "fragment {index}");
        }
    });
}

/// A store of this program's own.
struct Own(Vec<Record>);

#[async_trait]
impl LocalStore for Own {
    async fn store(&self, _record: Record) -> Result<StoreOutcome, CallError> {
        Err(CallError::Full)
    }

    async fn find(&self, id: &RecordId) -> Result<Option<Record>, CallError> {
        Ok(self.0.iter().find(|record| record.id == *id).cloned())
    }
}

fn librarian(env: &Env, kept: &Kept, own: usize, records: Vec<Record>) -> Arc<Walker> {
    let community = &kept.stage.community;
    let peer = kept.stage.peer(own);
    let directory = Directory::new(community.genesis.clone(), env.clone(), Some(peer));
    directory.learn_from(&community.known());
    let options = WalkOptions { own: Some(Arc::new(Own(records))), ..WalkOptions::default() };
    Walker::new(env.clone(), kept.stage.network.calls(*peer.key()), directory, options)
}

#[test]
fn the_own_store_is_read_without_a_call_and_its_damage_is_worked_around() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 10).await;
        let page = kept.striped.fragments[1].clone();
        let own = kept.rank[1];
        let walker = librarian(&env, &kept, own, vec![page.clone()]);
        let before = kept.stage.network.total();
        let fetched = walker.fetch_stripe(&shape(&kept.striped), 1..2).await.unwrap();
        assert_eq!((indices(&fetched), kept.stage.network.total()), (vec![1], before));
        // Its own parity is used only where a page is missing.
        let parity = kept.striped.fragments[5].clone();
        let walker = librarian(&env, &kept, kept.rank[5], vec![parity]);
        let fetched = walker.fetch_stripe(&shape(&kept.striped), 0..K).await.unwrap();
        assert_eq!(indices(&fetched), [0, 1, 2, 3]);
        kept.stage.set(kept.rank[2], Fault::Down);
        let fetched = walker.fetch_stripe(&shape(&kept.striped), 0..K).await.unwrap();
        assert!(indices(&fetched).contains(&5));
        // A rotten page of its own is told, and no peer is blamed.
        let rotten = Record { bytes: vec![1; 9].into(), ..page };
        let walker = librarian(&env, &kept, own, vec![rotten]);
        let fetched = walker.fetch_stripe(&shape(&kept.striped), 1..2).await.unwrap();
        assert!(is_right(&fetched, &kept.striped));
        let failed = &fetched.failed[0];
        assert_eq!((failed.index, failed.holder), (1, Some(kept.stage.peer(own))));
        assert_eq!(failed.state, FragmentState::Corrupt);
    });
}

#[test]
fn a_dropped_fetch_leaves_nothing_running() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 10).await;
        kept.rank.iter().for_each(|peer| kept.stage.set(*peer, Fault::Hang));
        assert!(env.within(Duration::from_secs(1), kept.fetch(0..K)).await.is_err());
        env.clock.sleep(LONG).await;
        let running = |peer: &usize| kept.stage.network.counts(&kept.stage.peer(*peer)).running;
        assert!(kept.rank.iter().all(|peer| running(peer) == 0));
    });
}

#[test]
fn a_survey_tells_who_has_what_and_moves_no_fragment() {
    run(1, |env| async move {
        let kept = Kept::new(&env, 14).await;
        let (rank, striped) = (&kept.rank, &kept.striped);
        kept.stage.set(rank[0], Fault::Down);
        kept.stage.peers[rank[1]].lose(&striped.fragments[1].id);
        kept.stage.set(rank[2], Fault::Flip);
        // Fragment 3 lies with a spare, and 4 as far from where it belongs as can be.
        for (index, at) in [(3, N + 1), (4, 13)] {
            kept.stage.peers[rank[index]].lose_all();
            put_at(&kept, rank[at], index).await;
        }
        let before = kept.finds();
        let known: Vec<(usize, Record)> =
            [2, 5].map(|index| (index, striped.fragments[index].clone())).to_vec();
        let told = kept.stage.walker.survey_stripe(&shape(striped), &known, &[]).await;
        assert_eq!(kept.finds(), before, "no bytes");
        let told: Vec<_> = told.into_iter().map(|at| (at.index, at.holder, at.state)).collect();
        let at = |rank_at: usize| Some(kept.stage.peer(rank[rank_at]));
        assert!(matches!(&told[0], (0, holder, FragmentState::Unreachable(_)) if *holder == at(0)));
        let expected = [
            (1, at(1), FragmentState::Missing),
            (2, at(2), FragmentState::Corrupt),
            (3, at(N + 1), FragmentState::Claimed),
            (4, at(13), FragmentState::Claimed),
            (5, at(5), FragmentState::Proven),
            (6, at(6), FragmentState::Claimed),
            (7, at(7), FragmentState::Claimed),
        ];
        assert_eq!(told[1..], expected);
    });
}

#[test]
fn a_thin_client_gets_pages_and_else_any_k_from_one_librarian() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 3);
        let striped = four_of_eight(1);
        // The librarian of the tests looks only at itself.
        let (door, calls) =
            (&stage.community.members[0], stage.network.calls(key("c", 1).public()));
        let to = Endpoint::of(door.peer, door.address.clone());
        let mut all = vec![striped.header.clone()];
        all.extend(striped.fragments.iter().cloned());
        calls.store_batch(&to, all, LONG).await.unwrap();
        let options = WalkOptions { through: vec![door.address.clone()], ..WalkOptions::default() };
        let walker = Walker::new(env.clone(), calls, stage.directory.clone(), options);
        let fetched = walker.fetch_stripe(&shape(&striped), 1..3).await.unwrap();
        assert_eq!(indices(&fetched), [1, 2]);
        assert!(is_right(&fetched, &striped) && !fetched.is_degraded());
        assert!(walker.survey_stripe(&shape(&striped), &[], &[]).await.is_empty());
        // What one fragment's holder refuses others have, where there are k; where there are none, it is told.
        let ids = |range: std::ops::Range<usize>| {
            range.map(|index| striped.fragments[index].id).collect::<BTreeSet<_>>()
        };
        let refusals = [
            (CallError::Denied { reason: "planted".to_owned() }, Class::Denied),
            (CallError::Busy { retry_after: Duration::from_secs(30) }, Class::Busy),
            (CallError::Invalid { reason: "planted".to_owned() }, Class::Invalid),
        ];
        for (refusal, class) in refusals {
            stage.network.set(&door.peer, Fault::Refused(ids(1..3), refusal.clone()));
            let fetched = walker.fetch_stripe(&shape(&striped), 0..K).await.unwrap();
            assert_eq!(indices(&fetched), [0, 3, 4, 5]);
            assert!(is_right(&fetched, &striped));
            let refused = |at: &walk::FragmentAt| matches!(at.state, FragmentState::Unreachable(_));
            assert!(fetched.failed.len() == 2 && fetched.failed.iter().all(refused));
            stage.network.set(&door.peer, Fault::Refused(ids(0..N), refusal));
            let error = walker.fetch_stripe(&shape(&striped), 0..K).await.unwrap_err();
            assert_eq!(error.class(), class, "{error}");
            stage.network.heal();
        }
        let lost: BTreeSet<usize> = [0, 2, 4].into();
        lost.iter().for_each(|index| _ = stage.peers[0].lose(&striped.fragments[*index].id));
        let fetched = walker.fetch_stripe(&shape(&striped), 0..K).await.unwrap();
        assert_eq!(indices(&fetched), [1, 3, 5, 6]);
        assert!(is_right(&fetched, &striped) && fetched.is_degraded());
        assert!(stage.peers[0].lose(&striped.fragments[1].id));
        assert!(stage.peers[0].rot(&striped.fragments[3].id));
        let error = walker.fetch_stripe(&shape(&striped), 0..1).await.unwrap_err();
        assert!(matches!(error, WalkError::TooFewFragments { found: 3, needed: 4, .. }), "{error}");
        stage.peers[0].lose_all();
        let error = walker.fetch_stripe(&shape(&striped), 0..1).await.unwrap_err();
        assert!(matches!(error, WalkError::NotFound { .. }), "{error}");
        stage.network.set(&door.peer, Fault::Down);
        let error = walker.fetch_stripe(&shape(&striped), 0..1).await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable, "{error}");
    });
}

#[test]
fn a_thin_client_tells_what_is_damaged_from_what_may_be_away() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 3);
        let striped = four_of_eight(1);
        // The librarian of the tests looks only at itself.
        let (door, calls) =
            (&stage.community.members[0], stage.network.calls(key("c", 1).public()));
        let to = Endpoint::of(door.peer, door.address.clone());
        let mut all = vec![striped.header.clone()];
        all.extend(striped.fragments.iter().cloned());
        calls.store_batch(&to, all, LONG).await.unwrap();
        let options = WalkOptions { through: vec![door.address.clone()], ..WalkOptions::default() };
        let walker = Walker::new(env.clone(), calls, stage.directory.clone(), options);
        let damaged = &striped.fragments[..N - K + 1];
        assert!(damaged.iter().all(|fragment| stage.peers[0].rot(&fragment.id)));
        let error = walker.fetch_stripe(&shape(&striped), 0..K).await.unwrap_err();
        assert!(matches!(error, WalkError::TooFewFragments { found: 3, needed: 4, .. }), "{error}");
        assert_eq!(error.class(), Class::Corrupt, "{error}");
        // A librarian says "not found" of a fragment where nobody who may have it was away.
        assert!(stage.peers[0].lose(&striped.fragments[0].id));
        let error = walker.fetch_stripe(&shape(&striped), 0..K).await.unwrap_err();
        assert_eq!(error.class(), Class::Corrupt, "{error}");
        damaged[1..].iter().for_each(|fragment| _ = stage.peers[0].lose(&fragment.id));
        let error = walker.fetch_stripe(&shape(&striped), 0..K).await.unwrap_err();
        assert!(matches!(error, WalkError::TooFewFragments { found: 3, needed: 4, .. }), "{error}");
        assert_eq!(error.class(), Class::NotFound, "{error}");
    });
}

#[test]
fn a_fragment_is_not_found_where_all_answered_and_unavailable_while_one_is_away() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let striped = four_of_eight(1);
        let fragment = &striped.fragments[3];
        let find = || stage.walker.find(None, fragment.id, fragment.place);
        let error = find().await.unwrap_err();
        assert!(matches!(error, WalkError::NotFound { asked: 9, .. }), "{error}");
        // Of a copy the first few that deny it are enough; a fragment may be at the last of the rank alone.
        let last = *stage.directory.view().rank(&fragment.place).last().unwrap();
        stage.network.set(&last, Fault::Down);
        let error = find().await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable, "{error}");
    });
}
