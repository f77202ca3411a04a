//! Members on the engine's own simulated machine: time, network and disks are its, and one seed is one run.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use commonware_runtime::deterministic;
use commonware_runtime::{
    Clock as _, Handle as Task, Runner as _, Spawner as _, Storage as _, Supervisor as _,
};
use crypto::Suite;
use version::ObjectKey;

use super::*;
use crate::proving::{Founded, NETWORK, object, secret, set, version};
use crate::{Committee as _, CommitteeError, Handle, Operation, Outcome, Submission, Update};

mod liars;
mod positions;
mod reshare;

pub(super) type Context = deterministic::Context;
type Run = Task<Result<(), CommitteeError>>;

/// Where the members are: the simulated network never frees a port, so each start has one of its own.
pub(super) fn members(starts: &[u16]) -> (Vec<MemberSecret>, Vec<(MemberId, SocketAddr)>) {
    let count = starts.len() as u8;
    let secrets: Vec<MemberSecret> =
        (1..=count).map(|one| MemberSecret::new(&[one; 32]).expect("a key")).collect();
    let address = |which: usize, start: &u16| {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 3_000 + 100 * start + which as u16))
    };
    let places = secrets.iter().zip(starts).enumerate();
    let places = places.map(|(which, (one, start))| (one.id(), address(which, start))).collect();
    (secrets, places)
}

fn links(starts: &[u16], which: usize) -> Links {
    let (secrets, members) = members(starts);
    Links { secret: secrets[which].clone(), listen: members[which].1, members }
}

fn founding(count: u8, which: usize) -> Founding {
    Founding {
        name: format!("m{which}"),
        network: NETWORK,
        suite: Suite::Holdfast1,
        organisations: Vec::new(),
        wanted: 1,
        number: 1,
        links: links(&vec![0; usize::from(count)], which),
        within: Duration::from_secs(30),
    }
}

pub(super) async fn founded(context: &Context, count: u8) -> Charter {
    let all: Vec<_> = (0..usize::from(count))
        .map(|which| {
            let one = founding(count, which);
            context.child("founder").spawn(move |context| found(context, one))
        })
        .collect();
    let mut charters = Vec::new();
    for one in all {
        charters.push(one.await.expect("it ends").expect("all are there"));
    }
    assert!(charters.windows(2).all(|two| two[0] == two[1]), "one charter");
    charters.swap_remove(0)
}

/// Of a member that knows these.
pub(super) fn settings(starts: &[u16], which: usize, list: &[usize]) -> Settings {
    let mut links = links(starts, which);
    let all = std::mem::take(&mut links.members).into_iter().enumerate();
    let known = all.filter(|(one, _)| *one == which || list.contains(one));
    links.members = known.map(|(_, place)| place).collect();
    Settings {
        answer_within: Duration::from_secs(8),
        log_growth: 4 << 10,
        deal_within: Duration::from_secs(6),
        ..Settings::new(&format!("m{which}"), links)
    }
}

pub(super) struct Members {
    pub(super) context: Context,
    charter: Charter,
    starts: Vec<u16>,
    /// The members of now.
    list: Vec<usize>,
    /// For how long disks are slow with the last block of an epoch.
    slow_last: Duration,
    running: Vec<Option<(Handle, Run)>>,
    id: u64,
}

impl Members {
    pub(super) async fn start(context: Context, count: u8) -> Self {
        Self::start_of(context, count, count).await
    }

    /// A committee of the first of so many machines.
    async fn start_of(context: Context, count: u8, machines: u8) -> Self {
        let charter = founded(&context, count).await;
        let running = (0..machines).map(|_| None).collect();
        let starts = vec![0; usize::from(machines)];
        let list: Vec<usize> = (0..usize::from(count)).collect();
        let slow_last = Duration::ZERO;
        let mut members =
            Self { context, charter, starts, list: list.clone(), slow_last, running, id: 0 };
        members.run(&list).await;
        members
    }

    async fn run(&mut self, all: &[usize]) {
        all.iter().for_each(|which| self.starts[*which] += 1);
        for which in all {
            let (handle, requests) = Handle::new(self.charter.group.clone());
            let settings = settings(&self.starts, *which, &self.list);
            let settings = Settings { slow_last: self.slow_last, ..settings };
            let member = self.context.child("member");
            let task = member.spawn(move |context| run(context, settings, requests));
            self.running[*which] = Some((handle, task));
        }
        for (handle, _) in self.running.iter().flatten() {
            handle.moved(members(&self.starts).1).await.expect("it runs");
        }
    }

    pub(super) async fn kill(&mut self, which: usize) {
        let (_, task) = self.running[which].take().expect("it runs");
        task.abort();
        let _ = task.await;
        self.context.sleep(Duration::from_millis(50)).await;
    }

    fn handle(&self, which: usize) -> Handle {
        self.running[which].as_ref().expect("it runs").0.clone()
    }

    fn update(&mut self, operation: Operation) -> Submission {
        self.id += 1;
        let (network, group) = (NETWORK, self.charter.rules.group);
        let author = secret(1).public();
        let (id, last_valid) = (u128::from(self.id).to_be_bytes(), u64::MAX);
        let update = Update { network, group, author, id, last_valid, operation };
        update.sign(&secret(1)).expect("good")
    }

    /// Sends an update to some members, as clients do; what the first said, verified with the group key alone.
    async fn ask(&mut self, to: &[usize], operation: Operation) -> Result<Outcome, CommitteeError> {
        let submission = self.update(operation);
        let handles: Vec<Handle> = to.iter().map(|which| self.handle(*which)).collect();
        let all = handles.iter().map(|handle| handle.update(submission.clone()));
        let answers = futures::future::join_all(all).await.swap_remove(0)?;
        assert_eq!(answers.len(), 1);
        let answer = crate::Answer::decode(&answers[0].encode()).expect("our own");
        let update = answer.verify(&NETWORK, &self.charter.group).expect("certified");
        assert_eq!(update, submission.updates()[0]);
        Ok(answer.outcome)
    }

    pub(super) async fn known(&mut self) -> ObjectKey {
        let (record, key) = object(1);
        let made = self.ask(&[0, 1], Operation::Object { record, policy: Bytes::new() }).await;
        assert!(matches!(made, Ok(Outcome::Accepted { .. })), "{made:?}");
        key
    }
}

pub(super) fn simulated<T>(seed: u64, test: impl AsyncFnOnce(Context) -> T) -> T {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    let config = deterministic::Config::new().with_seed(seed);
    let config = config.with_timeout(Some(Duration::from_secs(600)));
    deterministic::Runner::new(config).start(|context| test(context))
}

#[test]
fn members_certify_and_a_lost_compare_and_set_names_the_winner() {
    simulated(1, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        let first = members.ask(&[2, 3], set(key, None, version(1), &[5])).await;
        let Ok(Outcome::Accepted { height }) = first else { panic!("{first:?}") };
        let lost = members.ask(&[0], set(key, None, version(2), &[5])).await;
        assert_eq!(
            lost.expect("answered"),
            Outcome::MovedOn { current: Some((version(1), height)) }
        );
        for which in 0..4 {
            let read = members.handle(which).read_fresh(key, "main").await.expect("answered");
            let read = crate::Read::decode(&read.encode()).expect("our own");
            let group = &members.charter.group;
            let certified = read.verify(&NETWORK, group, &key, "main").expect("certified");
            assert_eq!(
                certified.head.map(|head| (head.version, head.height)),
                Some((version(1), height))
            );
        }
    });
}

#[test]
fn with_one_member_gone_it_goes_on_and_with_two_it_says_so_and_resumes() {
    simulated(2, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        members.kill(3).await;
        let mut current = None;
        for number in 1..6 {
            let new = version(number);
            let outcome = members.ask(&[0, 1], set(key, current, new, &[5])).await;
            let Ok(Outcome::Accepted { height }) = outcome else { panic!("{outcome:?}") };
            current = Some((new, height));
        }
        members.kill(2).await;
        members.context.sleep(Duration::from_secs(6)).await;
        let next = members.update(set(key, current, version(9), &[5]));
        let refused = members.handle(0).update(next.clone()).await;
        assert!(
            matches!(refused, Err(CommitteeError::NotEnoughMembers { needed: 3, heard: 2 })),
            "{refused:?}"
        );
        // Reads with proofs go on; fresh ones cannot.
        let read = members.handle(0).read(key, "main").await.expect("answered");
        let group = members.charter.group.clone();
        let certified = read.verify(&NETWORK, &group, &key, "main").expect("certified");
        assert_eq!(certified.head.map(|head| (head.version, head.height)), current);
        let fresh = members.handle(1).read_fresh(key, "main").await;
        assert!(matches!(fresh, Err(CommitteeError::NotEnoughMembers { .. })), "{fresh:?}");
        // One returns: what was asked for is done, and answered when it is sent again.
        members.run(&[2]).await;
        let mut done = members.handle(0).update(next.clone()).await;
        for _ in 0..5 {
            if done.is_ok() {
                break;
            }
            done = members.handle(0).update(next.clone()).await;
        }
        let answers = done.expect("three members");
        assert!(matches!(answers[0].outcome, Outcome::Accepted { .. }), "{:?}", answers[0].outcome);
        // The one that was away longest catches up.
        members.run(&[3]).await;
        members.context.sleep(Duration::from_secs(10)).await;
        let read = members.handle(3).read_fresh(key, "main").await.expect("answered");
        let certified = read.verify(&NETWORK, &group, &key, "main").expect("certified");
        assert_eq!(certified.head.map(|head| head.version), Some(version(9)));
    });
}

#[test]
fn all_members_restart_and_nothing_certified_is_lost() {
    simulated(3, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        let mut current = None;
        for round in 1..4 {
            for number in 0..3 {
                let new = version(round * 10 + number);
                let outcome = members.ask(&[0, 1], set(key, current, new, &[5])).await;
                let Ok(Outcome::Accepted { height }) = outcome else { panic!("{outcome:?}") };
                current = Some((new, height));
            }
            for which in 0..4 {
                members.kill(which).await;
            }
            members.run(&[0, 1, 2, 3]).await;
            members.context.sleep(Duration::from_secs(5)).await;
            for which in 0..4 {
                let read = members.handle(which).read_fresh(key, "main").await.expect("answered");
                let group = &members.charter.group;
                let certified = read.verify(&NETWORK, group, &key, "main").expect("certified");
                assert_eq!(certified.head.map(|head| (head.version, head.height)), current);
            }
        }
    });
}

#[test]
fn a_member_without_its_share_or_its_votes_follows_and_does_not_vote() {
    simulated(4, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        members.kill(3).await;
        // The votes are lost, and the share is still there.
        let votes = members.context.remove("m3-votes-0", None).await;
        votes.expect("it voted");
        members.run(&[3]).await;
        let set = set(key, None, version(1), &[5]);
        let Ok(Outcome::Accepted { height }) = members.ask(&[0], set).await else { panic!() };
        members.context.sleep(Duration::from_secs(5)).await;
        let status = members.handle(3).status().await.expect("it runs");
        assert!(!status.votes, "amnesia is a lie like any other");
        assert!(status.height >= height, "it follows");
        // What its engine wrote meanwhile is no vote: the next start finds as little.
        for _ in 0..2 {
            members.kill(3).await;
            members.run(&[3]).await;
            members.context.sleep(Duration::from_secs(5)).await;
            let status = members.handle(3).status().await.expect("it runs");
            assert!(!status.votes, "it has not come by its votes by starting again");
        }
        // A disk that is empty: a charter alone.
        members.kill(3).await;
        for partition in ["m3-committee", "m3-votes-0", "m3-follows-0", "m3-chain"] {
            let _ = members.context.remove(partition, None).await;
        }
        join(&members.context, "m3", &members.charter).await.expect("an empty disk");
        members.run(&[3]).await;
        members.context.sleep(Duration::from_secs(10)).await;
        let status = members.handle(3).status().await.expect("it runs");
        assert!(!status.votes);
        assert!(status.height >= height, "it follows from the beginning");
        // It counts towards f: with another one gone there are not enough.
        members.kill(2).await;
        members.context.sleep(Duration::from_secs(6)).await;
        let next =
            members.update(crate::proving::set(key, Some((version(1), height)), version(2), &[5]));
        assert!(members.handle(0).update(next).await.is_err(), "two votes of three");
    });
}

/// Its own votes are still there, which an engine without a share does not take for its own.
#[test]
fn a_member_that_lost_its_share_alone_follows() {
    simulated(14, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        members.kill(3).await;
        let share = members.context.remove("m3-committee", Some(b"share")).await;
        share.expect("it had one");
        members.run(&[3]).await;
        let set = set(key, None, version(1), &[5]);
        let Ok(Outcome::Accepted { height }) = members.ask(&[0], set).await else { panic!() };
        members.context.sleep(Duration::from_secs(5)).await;
        let status = members.handle(3).status().await.expect("it runs");
        assert!(!status.votes && status.height >= height, "{status:?}");
    });
}

#[test]
fn a_bundle_is_answered_and_a_repeated_one_as_before() {
    simulated(5, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        let group = members.charter.group.clone();
        let updates: Vec<Update> = (0..20)
            .map(|number| {
                let branch = format!("b{number}").into();
                let receipts = vec![crate::proving::receipt(5, &version(number))];
                let (object, new) = (key, version(number));
                let operation = Operation::Set { object, branch, expected: None, new, receipts };
                members.update(operation).updates()[0].clone()
            })
            .collect();
        let bundle = Submission::bundle(&updates, &secret(1)).expect("good");
        // The same where the receipts are beside the updates.
        let versions: Vec<_> = (0..20).map(|number| version(100 + number)).collect();
        let of_one_call: Vec<Update> = versions
            .iter()
            .zip(&updates)
            .map(|(new, update)| {
                let Operation::Set { branch, .. } = &update.operation else { panic!("a set") };
                let (object, new, branch) = (key, *new, format!("{branch}k").into());
                let receipts = Vec::new();
                let operation = Operation::Set { object, branch, expected: None, new, receipts };
                members.update(operation).updates()[0].clone()
            })
            .collect();
        let receipts = vec![crate::proving::kept_in_one_call(5, &versions)];
        let kept = Submission::bundle_kept(&of_one_call, receipts, &secret(1)).expect("good");
        for bundle in [bundle, kept] {
            let first = members.handle(1).update(bundle.clone()).await.expect("answered");
            let again = members.handle(2).update(bundle).await.expect("answered");
            assert_eq!((first.len(), again.len()), (20, 20));
            for (first, again) in first.iter().zip(&again) {
                first.verify(&NETWORK, &group).expect("certified");
                again.verify(&NETWORK, &group).expect("certified");
                assert!(matches!(first.outcome, Outcome::Accepted { .. }));
                assert_eq!(first.outcome, again.outcome, "done once, at one height");
            }
        }
        let foreign = Founded::new(4).update(1, 1, updates[0].operation.clone());
        let foreign = foreign.sign(&secret(1)).expect("good");
        let refused = members.handle(0).update(foreign).await;
        assert!(matches!(refused, Err(CommitteeError::Group)), "another committee's");
    });
}

#[test]
fn blocks_are_put_together_from_what_is_here_and_asked_for_where_it_is_not() {
    use super::member::outlines::{BUILT, FINDS_NOTHING};
    for finds_nothing in [false, true] {
        FINDS_NOTHING.set(finds_nothing);
        BUILT.set((0, 0));
        simulated(8, async |context| {
            let mut members = Members::start(context, 4).await;
            let key = members.known().await;
            let group = members.charter.group.clone();
            for round in 0..5 {
                let all: Vec<Submission> = (0..8)
                    .map(|number| {
                        let (object, new) = (key, version(10 * round + number));
                        let receipts = vec![crate::proving::receipt(5, &new)];
                        let (branch, expected) = (format!("{round}-{number}").into(), None);
                        let set = Operation::Set { object, branch, expected, new, receipts };
                        members.update(set)
                    })
                    .collect();
                let handles: Vec<Handle> = (0..8).map(|one| members.handle(one % 4)).collect();
                let asked = handles.iter().zip(&all).map(|(one, what)| one.update(what.clone()));
                for answers in futures::future::join_all(asked).await {
                    let answer = answers.expect("answered").swap_remove(0);
                    answer.verify(&NETWORK, &group).expect("certified");
                    assert!(matches!(answer.outcome, Outcome::Accepted { .. }));
                }
            }
        });
        let (built, asked) = BUILT.get();
        match finds_nothing {
            false => assert!(built >= 10, "{built} built, {asked} asked for"),
            true => assert!(built == 0 && asked >= 10, "{built} built, {asked} asked for"),
        }
    }
    FINDS_NOTHING.set(false);
}

#[test]
fn one_seed_is_one_run() {
    let run = |seed| {
        simulated(seed, async |context| {
            let mut members = Members::start(context, 4).await;
            let key = members.known().await;
            let outcome = members.ask(&[1, 2], set(key, None, version(1), &[5])).await;
            let read = members.handle(0).read_fresh(key, "main").await.expect("answered");
            (outcome.expect("answered"), read.certificate)
        })
    };
    assert_eq!(run(6), run(6));
}

#[test]
fn a_member_that_missed_more_than_the_logs_hold_takes_the_state_whole() {
    simulated(7, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        members.kill(3).await;
        let mut current = None;
        // Logs of 4 KiB: they are begun anew again and again meanwhile.
        for number in 1..30 {
            let outcome = members.ask(&[0, 1], set(key, current, version(number), &[5])).await;
            let Ok(Outcome::Accepted { height }) = outcome else { panic!("{outcome:?}") };
            current = Some((version(number), height));
        }
        for partition in ["m3-votes-0", "m3-chain"] {
            let _ = members.context.remove(partition, None).await;
        }
        members.run(&[3]).await;
        members.context.sleep(Duration::from_secs(15)).await;
        let group = members.charter.group.clone();
        let read = members.handle(3).read(key, "main").await.expect("answered");
        let certified = read.verify(&NETWORK, &group, &key, "main").expect("certified");
        assert_eq!(certified.head.map(|head| (head.version, head.height)), current);
        assert!(members.handle(3).status().await.expect("it runs").height > 20);
    });
}

#[test]
fn too_much_that_waits_is_refused_and_said_to_be_busy() {
    let mut pool = pool::Pool::default();
    let founded = Founded::new(4);
    let one = |number: u32| {
        let operation = Operation::Peer { certificate: Bytes::from(number.to_be_bytes().to_vec()) };
        founded.update(1, 1, operation).sign(&secret(1)).expect("good")
    };
    for number in 0..pool::AUTHOR_WAITING_MAX as u32 {
        assert!(pool.take(one(number)).expect("room"), "new");
    }
    assert!(!pool.take(one(0)).expect("known"), "the same again takes no room");
    let full = pool.take(one(u32::MAX));
    assert!(matches!(full, Err(CommitteeError::Busy { .. })), "{full:?}");
    pool.remove(one(0).key());
    assert!(pool.take(one(u32::MAX)).expect("room again"));
    assert_eq!(pool.len(), pool::AUTHOR_WAITING_MAX);
}

#[test]
fn what_one_member_passes_on_keeps_the_room_from_nobody() {
    let mut pool = pool::Pool::default();
    let founded = Founded::new(4);
    let one = |author: u8, number: u32, size: usize| {
        let certificate = Bytes::from([&number.to_be_bytes()[..], &vec![0; size]].concat());
        founded.update(author, 1, Operation::Peer { certificate }).sign(&secret(author))
    };
    let one = |author, number, size| one(author, number, size).expect("good");
    let key = |byte| MemberSecret::new(&[byte; 32]).expect("a key").id().key().expect("a key");
    let (liar, honest) = (key(1), key(2));
    let share = pool::WAITING_MAX / 8;
    let author = |number: u32| 1 + (number / 1_000) as u8;
    for number in 0..share as u32 {
        let taken = pool.take_passed(one(author(number), number, 0), &liar, 4);
        assert!(taken.expect("room"), "{number}");
    }
    let full = pool.take_passed(one(90, 0, 0), &liar, 4);
    assert!(matches!(full, Err(CommitteeError::Busy { .. })), "{full:?}");
    assert!(pool.take_passed(one(90, 0, 0), &honest, 4).expect("it has room of its own"));
    assert!(pool.take(one(90, 1, 0)).expect("and clients have"));
    // What was decided makes room again.
    pool.decide(&one(1, 0, 0), 1_000);
    assert!(pool.take_passed(one(90, 2, 0), &liar, 4).expect("room again"));
    // Long ones count by their bytes.
    let (mut pool, mut bytes) = (pool::Pool::default(), 0);
    for number in 0.. {
        let long = one(author(number), number, 30_000);
        let size = long.size();
        if pool.take_passed(long, &liar, 4).is_err() {
            break;
        }
        bytes += size;
    }
    let most = pool::WAITING_BYTES_MAX / 8;
    assert!((most - 40_000..=most).contains(&bytes), "{bytes}");
    assert!(pool.take_passed(one(90, 0, 30_000), &honest, 4).expect("it has room of its own"));
}

#[test]
fn one_submission_is_waited_for_by_so_many_and_passed_on_again_in_so_many_bytes() {
    let mut pool = pool::Pool::default();
    let founded = Founded::new(4);
    let one = |number: u16| {
        let certificate = Bytes::from([&number.to_be_bytes()[..], &[0; 20_000]].concat());
        founded.update(1, 1, Operation::Peer { certificate }).sign(&secret(1)).expect("good")
    };
    for number in 0..100 {
        assert!(pool.take(one(number)).expect("room"));
    }
    let again: usize = pool.encoded(100).iter().map(Bytes::len).sum();
    assert!((20_000..300_000).contains(&again), "{again}");
    let mut busy = 0;
    for _ in 0..pool::REPLIES_MAX + 10 {
        let (reply, mut answer) = tokio::sync::oneshot::channel();
        pool.wait(one(3).key(), reply, 1_000);
        busy += usize::from(matches!(answer.try_recv(), Ok(Err(CommitteeError::Busy { .. }))));
        // Whoever waits is still there.
        std::mem::forget(answer);
    }
    assert_eq!(busy, 10);
}

#[test]
fn what_was_decided_of_late_is_remembered_for_a_while() {
    let mut pool = pool::Pool::default();
    let founded = Founded::new(4);
    let one = |number: u8| {
        let certificate = Bytes::from(vec![number]);
        founded.update(1, 1, Operation::Peer { certificate }).sign(&secret(1)).expect("good")
    };
    assert!(pool.take(one(1)).expect("room"));
    let encoded = one(1).encode();
    assert!(pool.known(&encoded).is_some() && pool.is_old(&encoded));
    pool.decide(&one(1), 10_000);
    assert!(pool.known(&encoded).is_none() && pool.was_decided(&one(1)));
    assert!(pool.is_old(&encoded), "it need not be looked at again");
    pool.decide(&one(2), 16_000);
    assert!(pool.was_decided(&one(1)), "late ones still come");
    pool.decide(&one(3), 22_000);
    assert!(!pool.was_decided(&one(1)) && !pool.is_old(&encoded), "it may be asked for again");
    assert!(pool.take(one(1)).expect("room"));
}

#[test]
fn who_copies_anothers_signature_keeps_nobody_out() {
    let mut pool = pool::Pool::default();
    let founded = Founded::new(4);
    let one = |number: u8| {
        let certificate = Bytes::from(vec![number]);
        founded.update(1, 1, Operation::Peer { certificate }).sign(&secret(1)).expect("good")
    };
    let (own, other) = (one(1), one(2));
    // Another update under the first half of the same signature: as far as the pool sees, it held.
    let mut bytes = other.encode().to_vec();
    let at = bytes.len() - other.bodies()[0].len() - 64;
    bytes[at..at + 32].copy_from_slice(own.tag());
    let copy = Submission::decode(&bytes.into()).expect("well formed");
    assert_eq!(copy.tag(), own.tag());
    assert!(!pool.has(&own) && pool.take(copy.clone()).expect("room"));
    assert!(!pool.has(&own), "found by its tag, it is another");
    assert!(pool.take(own.clone()).expect("room"), "both wait");
    assert!(pool.has(&own) && !pool.has(&copy), "the last to come is found at once");
    pool.decide(&copy, 1_000);
    assert!(pool.has(&own) && !pool.was_decided(&own) && pool.was_decided(&copy));
    assert!(pool.is_old(&copy.encode()));
    pool.decide(&own, 1_000);
    assert!(pool.was_decided(&own) && pool.len() == 0);
}

#[test]
fn what_waits_keeps_no_message_alive() {
    let founded = Founded::new(4);
    let (record, _) = object(1);
    let update = founded.update(1, 1, Operation::Object { record, policy: Bytes::new() });
    let one = update.sign(&secret(1)).expect("good");
    let message = Bytes::from([&one.encode()[..], &[0; 100_000]].concat());
    let part = message.slice(..one.size());
    let own = Submission::detached(&part).expect("good");
    drop(part);
    assert_eq!(own, one);
    // Nothing else holds the message any more.
    assert!(message.try_into_mut().is_ok());
}
