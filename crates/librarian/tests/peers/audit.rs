//! Audits: who holds what it should is never faulty, who does not is found in time, and what is found lost is fetched again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::{RecordId, Suite};
use document::Record;
use env::Env;
use env::calls::keep::{FetchAnswer, KeepAnswer, KeepRequest, Listed};
use env::calls::objects::{ObjectsAnswer, ObjectsRequest, WatchEvents, WatchRequest};
use env::calls::*;
use librarian::{AuditStatus, KeepingOptions, LibrarianOptions};
use testkit::network::{Community, CommunityOptions};

use crate::repair::{put_copies, put_stripes};
use crate::town::{LIMIT, Town};

/// Answers instead of a peer; none where it answers as it should.
pub(crate) type Answers = dyn Fn(&KeepRequest) -> Option<KeepAnswer> + Send + Sync;

/// How a peer answers other than it should.
#[derive(Clone)]
pub(crate) enum Bent {
    /// To these requests so, to others as it should.
    With(Arc<Answers>),
    /// No proof of every second record: the half that it dropped.
    Half,
    /// What it is asked to prove another proves, so far away.
    Through(Arc<dyn Calls>, Endpoint, Duration),
    /// Everything this late.
    Loaded(Duration),
    /// What it says to claims this late.
    LateClaims(Duration),
    /// Whatever it is asked to prove, it has too much to do.
    Busy,
    /// It holds nothing, and sees other peers whenever it is compared with.
    Elsewhere,
    /// It holds nothing, and has too much to do whenever it is compared with.
    Mute,
    /// No claim, and nothing that ends one, in time.
    Stalling,
    /// Everything differs, and there is always more, told this late.
    Lagging(Duration),
    /// Of the copies that it is asked for it gives one at a time, this late; the others later.
    Sparing(Duration),
    /// It holds nothing, and says so.
    Nothing,
    /// It agrees to everything but right after a question for proofs, of which it has none.
    Denying(Arc<AtomicBool>),
    /// The first question for proofs is lost on the way.
    LostOnce(Arc<AtomicBool>),
}

/// A peer that is bent.
struct Crooked {
    inner: Arc<dyn Service>,
    env: Env,
    bent: Bent,
}

impl Crooked {
    async fn kept(&self, caller: Caller, request: KeepRequest) -> Result<KeepAnswer, CallError> {
        let asks = match (&self.bent, &request) {
            (Bent::Loaded(late), _) => {
                self.env.clock.sleep(*late).await;
                return self.inner.keep(caller, request).await;
            }
            (Bent::LateClaims(late), KeepRequest::Claim(_)) => {
                self.env.clock.sleep(*late).await;
                return self.inner.keep(caller, request).await;
            }
            (Bent::Stalling, KeepRequest::Claim(_) | KeepRequest::Settled(_)) => {
                self.env.clock.sleep(LIMIT * 2).await;
                return self.inner.keep(caller, request).await;
            }
            (Bent::Lagging(late), KeepRequest::Lists(lists)) => {
                self.env.clock.sleep(*late).await;
                let more = |range| Listed { range, copies: vec![], fragments: vec![], more: true };
                return Ok(KeepAnswer::Lists(lists.iter().map(|one| more(one.range)).collect()));
            }
            (Bent::Lagging(late), KeepRequest::Compare(compare)) => {
                self.env.clock.sleep(*late).await;
                let (view, words) = (compare.view, compare.words.clone());
                let differ = (0..=255).collect();
                let answer = env::calls::keep::CompareAnswer { differ, view, words };
                return Ok(KeepAnswer::Compare(answer));
            }
            (Bent::Elsewhere, KeepRequest::Compare(compare)) => {
                let (view, words) = (self.env.random(), compare.words.clone());
                let answer = env::calls::keep::CompareAnswer { differ: vec![], view, words };
                return Ok(KeepAnswer::Compare(answer));
            }
            (Bent::Mute, KeepRequest::Compare(_)) => {
                return Err(CallError::Busy { retry_after: Duration::from_secs(1) });
            }
            (Bent::Nothing, KeepRequest::Compare(compare)) => {
                let (view, words) = (compare.view, compare.words.clone());
                let differ = (0..=255).collect();
                let answer = env::calls::keep::CompareAnswer { differ, view, words };
                return Ok(KeepAnswer::Compare(answer));
            }
            (Bent::Denying(asked), KeepRequest::Compare(compare)) => {
                let (view, words) = (compare.view, compare.words.clone());
                let differs = asked.swap(false, Ordering::SeqCst);
                let differ = (0..=255).filter(|_| differs).collect();
                let answer = env::calls::keep::CompareAnswer { differ, view, words };
                return Ok(KeepAnswer::Compare(answer));
            }
            (Bent::Sparing(late), KeepRequest::Fetch(_)) => {
                self.env.clock.sleep(*late).await;
                let answer = self.inner.keep(caller, request).await?;
                let KeepAnswer::Fetch(mut answers) = answer else { return Ok(answer) };
                let found = |answer: &FetchAnswer| matches!(answer, FetchAnswer::Found { .. });
                let first = answers.iter().position(found);
                let others = answers.iter_mut().enumerate().filter(|(at, _)| Some(*at) != first);
                others.for_each(|(_, answer)| *answer = FetchAnswer::Later);
                return Ok(KeepAnswer::Fetch(answers));
            }
            (Bent::With(answers), _) => {
                return match answers(&request) {
                    Some(answer) => Ok(answer),
                    None => self.inner.keep(caller, request).await,
                };
            }
            (_, KeepRequest::Prove(asks)) => asks.clone(),
            _ => return self.inner.keep(caller, request).await,
        };
        match &self.bent {
            Bent::Half => {
                let answer = self.inner.keep(caller, request).await?;
                let KeepAnswer::Prove(mut proofs) = answer else { return Ok(answer) };
                for (at, proof) in asks.iter().zip(&mut proofs) {
                    if at.id.as_bytes()[31] % 2 == 0 {
                        *proof = None;
                    }
                }
                Ok(KeepAnswer::Prove(proofs))
            }
            Bent::Through(calls, to, way) => {
                self.env.clock.sleep(*way).await;
                calls.keep(to, request, LIMIT).await
            }
            Bent::Busy => Err(CallError::Busy { retry_after: Duration::from_secs(1) }),
            Bent::Nothing | Bent::Elsewhere | Bent::Mute => {
                Ok(KeepAnswer::Prove(vec![None; asks.len()]))
            }
            Bent::Denying(asked) => {
                asked.store(true, Ordering::SeqCst);
                Ok(KeepAnswer::Prove(vec![None; asks.len()]))
            }
            Bent::LostOnce(was_lost) => {
                if !was_lost.swap(true, Ordering::SeqCst) {
                    self.env.clock.sleep(LIMIT * 6).await;
                }
                self.inner.keep(caller, request).await
            }
            Bent::Loaded(_)
            | Bent::LateClaims(_)
            | Bent::Lagging(_)
            | Bent::Stalling
            | Bent::Sparing(_)
            | Bent::With(_) => self.inner.keep(caller, request).await,
        }
    }
}

/// Passes calls on as they are.
macro_rules! passes {
    ($($call:ident($request:ty) -> $answer:ty),* $(,)?) => {
        #[async_trait]
        impl Service for Crooked {
            $(async fn $call(
                &self,
                caller: Caller,
                request: $request,
            ) -> Result<$answer, CallError> {
                self.inner.$call(caller, request).await
            })*
            async fn put(
                &self,
                caller: Caller,
                record: Record,
                wait: Duration,
            ) -> Result<PutResponse, CallError> {
                self.inner.put(caller, record, wait).await
            }
            async fn keep(
                &self,
                caller: Caller,
                request: KeepRequest,
            ) -> Result<KeepAnswer, CallError> {
                self.kept(caller, request).await
            }
        }
    };
}

passes! {
    introduce(IntroduceRequest) -> IntroduceResponse,
    find(FindRequest) -> FindResponse,
    find_batch(Vec<FindRequest>) -> Vec<Result<FindResponse, CallError>>,
    verify(VerifyRequest) -> VerifyResponse,
    verify_batch(Vec<VerifyRequest>) -> Vec<Result<VerifyResponse, CallError>>,
    store(Record) -> StoreOutcome,
    store_batch(Vec<Record>) -> Vec<Result<StoreOutcome, CallError>>,
    get(FindRequest) -> Record,
    tell(Vec<Bytes>) -> (),
    objects(ObjectsRequest) -> ObjectsAnswer,
    watch(WatchRequest) -> WatchEvents,
    subscribe(SubscribeRequest) -> Events,
}

/// From now on a peer answers so.
pub(crate) fn bend(town: &Town, number: usize, bent: Bent) {
    let member = &town.community.members[number];
    let inner: Arc<dyn Service> = town.peers[number].service();
    let crooked = Arc::new(Crooked { inner, env: town.env.clone(), bent });
    town.network.serve(&member.address, member.peer, crooked);
}

async fn town(env: &Env, organisations: usize, peers: usize, options: KeepingOptions) -> Town {
    let mut town = Town::empty(env, organisations, peers);
    fill(&mut town, peers, options).await;
    town
}

async fn fill(town: &mut Town, peers: usize, options: KeepingOptions) {
    for _ in 0..peers {
        let with = |all: &mut LibrarianOptions| all.keeping = Some(options);
        town.start_next(with).await;
    }
    town.until("all know all", |town| {
        town.peers.iter().all(|peer| peer.directory().view().len() == peers)
    })
    .await;
}

fn often() -> KeepingOptions {
    KeepingOptions {
        compare: Duration::from_secs(2),
        settle: Duration::from_secs(4),
        audit: Duration::from_secs(1),
        ..KeepingOptions::default()
    }
}

/// What one peer says of another.
fn said(town: &Town, by: usize, of: usize) -> Option<AuditStatus> {
    let of = town.community.members[of].peer.to_string();
    let all = town.peers[by].repair().unwrap().audits;
    all.into_iter().find(|status| status.peer == of)
}

fn is_faulty(town: &Town, by: usize, of: usize) -> bool {
    said(town, by, of).is_some_and(|status| status.faulty)
}

fn counted(town: &Town, by: usize, name: &str) -> u64 {
    let text = town.peers[by].metrics();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn honest_peers_are_never_faulty_over_thousands_of_items() {
    testkit::time::run(51, |env| async move {
        let mut town = town(&env, 3, 5, often()).await;
        put_copies(&town, 40).await;
        put_stripes(&town, 10, 2, 4).await;
        // Puts go on, and one peer goes away and comes back, while all are asked.
        for round in 0..3_u32 {
            env.clock.sleep(Duration::from_secs(40)).await;
            let more = crate::town::page(1_000 + round, 9_000);
            let redundancy = town.peers[0].walker().redundancy(more.kind);
            town.peers[0].walker().store(more, redundancy).await.unwrap();
        }
        town.restart_with(4, |all| all.keeping = Some(often())).await;
        env.clock.sleep(Duration::from_secs(120)).await;
        let mut proven = 0;
        for by in 0..5 {
            proven += counted(&town, by, "holdfast_audit_proven_total");
            assert_eq!(counted(&town, by, "holdfast_audit_failed_total"), 0, "by {by}");
            assert!((0..5).all(|of| !is_faulty(&town, by, of)));
            assert!(town.peers[by].repair().unwrap().absent.is_empty());
        }
        assert!(proven > 5_000, "{proven} items were proven");
    });
}

#[test]
fn a_peer_that_dropped_half_of_its_records_is_found_in_time_and_its_share_goes_on() {
    testkit::time::run(52, |env| async move {
        // As a peer is set by itself: a challenge each ten seconds.
        let town = town(&env, 3, 6, KeepingOptions::default()).await;
        put_copies(&town, 240).await;
        env.clock.sleep(Duration::from_secs(240)).await;
        assert!((0..6).all(|by| (0..6).all(|of| !is_faulty(&town, by, of))));
        let liar = 5;
        bend(&town, liar, Bent::Half);
        // Of the 64 items that it proved so far each peer must see more than 16 replaced by failed ones, which takes three
        // of its rounds with it, a minute each; then words go round.
        let since = env.clock.elapsed();
        let peer = town.community.members[liar].peer.to_string();
        let absent = |town: &Town, by: usize| town.peers[by].repair().unwrap().absent;
        let found = |town: &Town| (0..5).all(|by| absent(town, by) == [peer.clone()]);
        town.until("all do without it", found).await;
        let took = env.clock.elapsed() - since;
        assert!(took < Duration::from_secs(10) * 6 * 6, "{took:?}");
        let judges = (0..5).filter(|by| is_faulty(&town, *by, liar)).count();
        assert!(judges >= 2, "two organisations of three at least, not {judges}");
        for by in 0..5 {
            assert!((0..5).all(|of| !is_faulty(&town, by, of)), "nobody else");
        }
        env.clock.sleep(Duration::from_secs(120)).await;
        let fetched = |by: usize| town.peers[by].repair().unwrap().copies_fetched;
        assert!((0..5).map(fetched).sum::<u64>() > 0, "the next in rank took its share");
    });
}

#[test]
fn what_an_audit_finds_lost_is_fetched_again_and_makes_nobody_faulty() {
    testkit::time::run(53, |env| async move {
        let town = town(&env, 3, 3, often()).await;
        let records = put_copies(&town, 60).await;
        env.clock.sleep(Duration::from_secs(30)).await;
        for record in records.iter().step_by(10) {
            town.lose(2, &record.id).await;
        }
        let whole = |town: &Town| records.iter().all(|record| town.stores[2].holds(&record.id));
        assert!(!whole(&town));
        town.until("what was lost is there again", whole).await;
        assert!(!is_faulty(&town, 0, 2) && !is_faulty(&town, 1, 2));
        assert!(counted(&town, 2, "holdfast_audit_lost_total") >= 6);
        // Of the two, whoever asked first.
        let failed = |by: usize| counted(&town, by, "holdfast_audit_failed_total");
        assert!(failed(0) + failed(1) > 0);
    });
}

/// Sixteen items are asked for at once, and eight that failed make a peer without a history faulty.
#[test]
fn one_question_that_a_line_lost_makes_nobody_faulty() {
    testkit::time::run(59, |env| async move {
        let town = town(&env, 3, 3, often()).await;
        let was_lost = Arc::new(AtomicBool::new(false));
        bend(&town, 2, Bent::LostOnce(was_lost.clone()));
        put_copies(&town, 60).await;
        for _ in 0..120 {
            env.clock.sleep(Duration::from_secs(1)).await;
            for by in 0..2 {
                assert!(!is_faulty(&town, by, 2), "by {by}: {:?}", said(&town, by, 2));
            }
        }
        assert!(was_lost.load(Ordering::SeqCst));
        let failed = |by| counted(&town, by, "holdfast_audit_failed_total");
        assert_eq!((failed(0), failed(1)), (0, 0));
    });
}

/// It says that it lost everything whenever it is asked, and that it has everything when they compare.
#[test]
fn who_says_again_and_again_that_it_lost_all_is_found() {
    testkit::time::run(61, |env| async move {
        let town = town(&env, 3, 3, often()).await;
        put_copies(&town, 60).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        bend(&town, 2, Bent::Denying(Arc::default()));
        let found = |town: &Town| is_faulty(town, 0, 2) && is_faulty(town, 1, 2);
        town.until("it is found", found).await;
    });
}

#[test]
fn who_lost_its_disk_and_says_so_is_not_faulty() {
    testkit::time::run(60, |env| async move {
        // Many challenges come between two comparisons.
        let options = KeepingOptions { compare: Duration::from_secs(20), ..often() };
        let mut town = town(&env, 3, 3, options).await;
        let records = put_copies(&town, 60).await;
        env.clock.sleep(Duration::from_secs(120)).await;
        let challenges = |town: &Town, by| counted(town, by, "holdfast_audit_challenges_total");
        town.take_down(2).await;
        town.bring_back_with(2, Vec::new(), |all| all.keeping = Some(options)).await;
        let before = [0, 1].map(|by| challenges(&town, by));
        let whole = |town: &Town| records.iter().all(|record| town.stores[2].holds(&record.id));
        for _ in 0..120 {
            env.clock.sleep(Duration::from_millis(500)).await;
            for by in 0..2 {
                assert!(!is_faulty(&town, by, 2), "by {by}: {:?}", said(&town, by, 2));
            }
        }
        assert!(whole(&town));
        assert!((0..2).all(|by| challenges(&town, by) > before[by]));
    });
}

#[test]
fn a_loaded_peer_is_not_faulty() {
    testkit::time::run(54, |env| async move {
        let town = town(&env, 3, 3, often()).await;
        put_copies(&town, 40).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        bend(&town, 2, Bent::Loaded(Duration::from_secs(4)));
        env.clock.sleep(Duration::from_secs(600)).await;
        let status = said(&town, 0, 2).unwrap();
        assert!(!status.faulty && status.failed == 0, "{status:?}");
        assert!(status.usual_ms >= 4_000, "its deadline is by its own answers: {status:?}");
        assert!(counted(&town, 0, "holdfast_audit_void_total") > 0);
    });
}

#[test]
fn who_proves_through_another_is_caught_where_it_is_far_and_not_where_it_is_near() {
    testkit::time::run(55, |env| async move {
        let town = town(&env, 3, 3, often()).await;
        put_copies(&town, 40).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        let through = |way| Bent::Through(town.peer_calls(2), town.at(1), way);
        bend(&town, 2, through(Duration::from_millis(300)));
        env.clock.sleep(Duration::from_secs(300)).await;
        // It shows what it does not have: an audit says that bytes were near, and no more.
        assert!(!is_faulty(&town, 0, 2), "{:?}", said(&town, 0, 2));
        bend(&town, 2, through(Duration::from_secs(3)));
        env.clock.sleep(Duration::from_secs(120)).await;
        assert!(is_faulty(&town, 0, 2), "{:?}", said(&town, 0, 2));
        assert!(counted(&town, 0, "holdfast_audit_late_total") > 0);
    });
}

#[test]
fn excuses_count_in_the_end() {
    testkit::time::run(56, |env| async move {
        let town = town(&env, 3, 3, often()).await;
        put_copies(&town, 40).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        bend(&town, 2, Bent::Busy);
        env.clock.sleep(Duration::from_secs(10)).await;
        assert!(!is_faulty(&town, 0, 2), "a while it may be");
        env.clock.sleep(Duration::from_secs(120)).await;
        assert!(is_faulty(&town, 0, 2), "{:?}", said(&town, 0, 2));
    });
}

/// Items that a peer failed after five hours of holding nothing, and after two more.
async fn failed_in_hours(env: Env, bent: Bent) -> (u64, u64) {
    let minute = Duration::from_secs(60);
    let seldom = KeepingOptions { compare: minute, audit: minute, ..often() };
    let mut town = Town::empty(&env, 3, 3);
    for number in 0..3 {
        // The last compares with nobody: what it says is what it is asked.
        let with = |all: &mut LibrarianOptions| all.keeping = (number != 2).then_some(seldom);
        town.start_next(with).await;
    }
    bend(&town, 2, bent);
    town.until("all know all", |town| {
        town.peers.iter().all(|peer| peer.directory().view().len() == 3)
    })
    .await;
    put_copies(&town, 20).await;
    let failed = |town: &Town| said(town, 0, 2).map_or(0, |status| status.failed);
    env.clock.sleep(minute * 60 * 5).await;
    let before = failed(&town);
    env.clock.sleep(minute * 60 * 2).await;
    (before, failed(&town))
}

#[test]
fn who_lacks_everything_may_fetch_it_for_hours_and_not_for_ever() {
    testkit::time::run(58, |env| async move {
        let (before, behind) = failed_in_hours(env, Bent::Nothing).await;
        assert!(before == 0 && behind > 0, "{before}, then {behind}");
    });
}

#[test]
fn who_holds_nothing_and_never_lets_itself_be_compared_with_is_found() {
    for bent in [Bent::Elsewhere, Bent::Mute] {
        testkit::time::run(62, move |env| async move {
            let (before, behind) = failed_in_hours(env, bent).await;
            assert!(before == 0 && behind > 0, "{before}, then {behind}");
        });
    }
}

#[test]
fn in_libri_1_copies_are_proven_by_their_macs() {
    testkit::time::run(57, |env| async move {
        let mut town = Town::empty(&env, 3, 3);
        let suite = Suite::Libri1;
        town.community = Community::new(&CommunityOptions {
            organisations: 3,
            peers: 3,
            suite,
            copies: None,
            capacity: 1 << 40,
        });
        fill(&mut town, 3, often()).await;
        let mut ids: Vec<RecordId> = Vec::new();
        for number in 0..20 {
            let bytes = crate::town::page(number, 500).bytes;
            let record = Record::from_bytes(suite, bytes).unwrap().0;
            let redundancy = town.peers[0].walker().redundancy(record.kind);
            ids.push(record.id);
            let stored = town.peers[0].walker().store(record, redundancy).await.unwrap();
            let mut rest = stored.rest;
            rest.wait(Duration::from_secs(10)).await;
        }
        env.clock.sleep(Duration::from_secs(60)).await;
        let honest = said(&town, 0, 2).unwrap();
        assert!(honest.proven > 100 && honest.failed == 0, "{honest:?}");
        for id in &ids {
            town.lose(2, id).await;
        }
        env.clock.sleep(Duration::from_secs(60)).await;
        let lost = said(&town, 0, 2).unwrap();
        assert!(lost.faulty && lost.failed > 0, "{lost:?}");
    });
}
