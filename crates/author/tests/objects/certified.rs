//! Certified heads as their users see them, where members are busy, move, change, lie or are gone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use author::certified::{
    CertifiedError, CertifiedHeads, Expected, FRESH_FOR, KeptReceipts, ask_patiently,
};
use author::objects::{PolicyOptions, WriteOptions};
use bytes::Bytes;
use committee::{Operation, Outcome, Submission, Update};
use crypto::{Class, Classified};
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeRequest};
use env::calls::{CallError, Endpoint};
use testkit::network::Fault;
use testkit::time::run;
use version::{ObjectKey, ObjectRecord};

use crate::council::{Council, card, id};
use crate::stage::Stage;

const FIRST: [u8; 4] = [1, 2, 3, 4];
const ANY: ObjectKey = ObjectKey::new([8; 32]);

/// Members at keepers from this number on, each of which shows the cards of all, signed at this time.
fn seat(stage: &Stage, council: &Arc<Council>, members: &[u8], from: usize, time_ms: u64) {
    let cards = cards(stage, members, from, time_ms);
    for (which, member) in members.iter().enumerate() {
        stage.keepers[from + which].hosts(Some(council.honest(*member, cards.clone())));
    }
}

fn cards(stage: &Stage, members: &[u8], from: usize, time_ms: u64) -> Vec<Bytes> {
    let card = |(which, member): (usize, &u8)| card(&stage.keepers[from + which], *member, time_ms);
    members.iter().enumerate().map(card).collect()
}

fn council(stage: &Stage, wanted: u8) -> Arc<Council> {
    Council::new(&stage.env, stage.community.genesis.network(), &FIRST, wanted)
}

/// Four members at the first four keepers.
fn seated(stage: &Stage) -> Arc<Council> {
    let council = council(stage, 1);
    seat(stage, &council, &FIRST, 0, 1);
    council
}

fn heads(stage: &Stage, name: &str, council: &Council) -> CertifiedHeads {
    CertifiedHeads::new(&stage.user(name), council.group.clone()).unwrap()
}

#[test]
fn who_may_ask_each_peer_once_a_second_reads_all_the_same() {
    run(1, |env| async move {
        let stage = Stage::new(&env);
        let council = seated(&stage);
        let cards = cards(&stage, &FIRST, 0, 1);
        for (which, member) in FIRST.into_iter().enumerate() {
            let (member, last) = (council.honest(member, cards.clone()), Mutex::new(None));
            let clock = Arc::clone(&env.clock);
            stage.keepers[which].hosts(Some(Arc::new(move |ask| {
                let (now, second) = (clock.elapsed(), Duration::from_secs(1));
                let mut last = last.lock().unwrap();
                match *last {
                    Some(before) if now < before + second => {
                        Err(CallError::Busy { retry_after: before + second - now })
                    }
                    _ => {
                        *last = Some(now);
                        member(ask)
                    }
                }
            })));
        }
        let heads = heads(&stage, "nobody", &council);
        assert_eq!(heads.read(&ANY, "main").await.unwrap().head.head, None);
        assert_eq!(heads.read_fresh(&ANY, "main").await.unwrap().head.head, None);
        assert!(env.clock.elapsed() < Duration::from_secs(20));
    });
}

/// A librarian that says it is busy when the time that it has is nearly over.
const NEARLY: Duration = Duration::from_millis(4_900);

fn busy() -> CallError {
    CallError::Busy { retry_after: Duration::from_secs(2) }
}

#[test]
fn who_is_always_busy_takes_no_longer_than_one_answer_may() {
    run(9, |env| async move {
        let stage = Stage::new(&env);
        stage.keepers[0].hosts(Some(Arc::new(|_| Err(busy()))));
        let calls = Arc::clone(stage.author("ada").walker().calls());
        let (peer, address) = (stage.keepers[0].id, &stage.community.members[0].address);
        let to = Endpoint::of(peer, address.clone());
        for late in [Duration::ZERO, Duration::from_millis(1_800), NEARLY] {
            stage.set(0, Fault::Delay(late));
            let began = env.clock.elapsed();
            let request = CommitteeRequest { group: None, ask: CommitteeAsk::Status };
            let limit = Duration::from_secs(5);
            let told = ask_patiently(&env, calls.as_ref(), &to, request, limit).await;
            assert_eq!(told, Err(busy()), "{late:?}");
            assert!(env.clock.elapsed() - began <= limit, "{late:?}");
        }
    });
}

#[test]
fn members_that_stall_hold_no_fresh_read_up() {
    const TEN: [u8; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    run(10, |env| async move {
        for (members, lying) in [(&TEN[..4], 1), (&TEN[..], 3)] {
            let stage = Stage::of(&env, 12);
            let council = Council::new(&env, stage.community.genesis.network(), members, 1);
            seat(&stage, &council, members, 0, 1);
            let cards = cards(&stage, members, 0, 1);
            // They are the first to say how far they are, and then say nothing for long.
            for (which, member) in members.iter().enumerate() {
                if which >= lying {
                    stage.set(which, Fault::Delay(Duration::from_millis(50)));
                    continue;
                }
                let honest = council.honest(*member, cards.clone());
                *stage.keepers[which].waits.lock().unwrap() = NEARLY;
                stage.keepers[which].hosts(Some(Arc::new(move |ask| match ask {
                    CommitteeAsk::Read { at: Some(_), .. } => Err(busy()),
                    ask => honest(ask),
                })));
            }
            let heads = heads(&stage, "ada", &council);
            let began = env.clock.elapsed();
            heads.read_fresh(&ANY, "main").await.unwrap();
            assert!(env.clock.elapsed() - began < Duration::from_secs(2), "{lying}");
        }
    });
}

#[test]
fn peers_that_leave_cards_out_blind_nobody() {
    run(2, |env| async move {
        let stage = Stage::new(&env);
        let council = seated(&stage);
        let all = cards(&stage, &FIRST, 0, 1);
        // They host no member: what they tell they had from one. One of the members lies as they do.
        for (which, shown) in [(3, 1), (4, 0), (5, 0), (6, 1), (7, 2), (8, 0)] {
            let shown = all[4 - shown..].to_vec();
            stage.keepers[which].hosts(Some(council.honest(4, shown)));
        }
        for keeper in 0..3 {
            stage.set(keeper, Fault::Delay(Duration::from_millis(700)));
        }
        for name in ["ada", "bob"] {
            let first = heads(&stage, name, &council);
            let seats = first.seats().await.unwrap();
            assert_eq!((seats.members.len(), seats.seats.len()), (4, 4));
            first.read_fresh(&ANY, "main").await.unwrap();
        }
        // What a user remembers is not taken from it either, where the members are all away.
        (0..3).for_each(|keeper| stage.set(keeper, Fault::Down));
        let again = heads(&stage, "ada", &council);
        assert_eq!(again.seats().await.unwrap().seats.len(), 4);
        // And who never knew them hears that they are not there, in time.
        let began = env.clock.elapsed();
        let late = heads(&stage, "eve", &council);
        let error = late.read_fresh(&ANY, "main").await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable, "{error}");
        assert!(env.clock.elapsed() - began < Duration::from_secs(70));
    });
}

#[test]
fn members_that_are_none_any_more_are_not_asked_for_long() {
    const NEXT: [u8; 4] = [5, 6, 7, 8];
    run(3, |env| async move {
        let stage = Stage::new(&env);
        let council = seated(&stage);
        council.reaches(10);
        let old = council.now();
        let ada = heads(&stage, "ada", &council);
        ada.read(&ANY, "main").await.unwrap();
        council.becomes(&NEXT, 50);
        seat(&stage, &council, &NEXT, 4, 2);
        (4..8).for_each(|which| stage.set(which, Fault::Delay(Duration::from_millis(700))));
        // Two of the old ones say what was so: each of them may lie, or hear nothing any more.
        let shown = cards(&stage, &FIRST, 0, 1);
        for (which, member) in [(0, 1), (1, 2)] {
            let stuck = council.stuck(member, shown.clone(), old.clone());
            stage.keepers[which].hosts(Some(stuck));
        }
        // Peers that never hosted one repeat it.
        stage.keepers[8].hosts(Some(council.stuck(1, shown, old)));
        let members = NEXT.map(id).to_vec();
        // Who never saw it hears so from the others, also by a fresh read.
        let bob = heads(&stage, "bob", &council);
        assert_eq!(bob.seats().await.unwrap().members, members);
        assert_eq!(bob.read_fresh(&ANY, "main").await.unwrap().head.header.height, 50);
        // Who saw height 50 takes nothing of what was before, though nobody else answers.
        (2..8).for_each(|which| stage.set(which, Fault::Down));
        let again = heads(&stage, "bob", &council);
        assert_eq!(again.height(), 50);
        let error = again.seats().await.unwrap_err();
        assert!(matches!(error, CertifiedError::Behind { found: 10, known: 50 }), "{error}");
        // Who knew the old ones asks anew when they fail it.
        (2..8).for_each(|which| stage.set(which, Fault::None));
        (0..4).for_each(|which| stage.keepers[which].hosts(None));
        assert_eq!(ada.read(&ANY, "main").await.unwrap().head.header.height, 50);
        assert_eq!(ada.seats().await.unwrap().members, members);
    });
}

const NEXT: [u8; 4] = [5, 6, 7, 8];

#[test]
fn former_members_pass_no_old_header_off_as_fresh() {
    run(16, |env| async move {
        let stage = Stage::new(&env);
        let council = seated(&stage);
        council.reaches(10);
        let old = council.now();
        council.becomes(&NEXT, 50);
        seat(&stage, &council, &NEXT, 4, 2);
        // Not f of the former members, but all of them say what was so, and are the first to answer.
        let shown = cards(&stage, &FIRST, 0, 1);
        for (which, member) in FIRST.into_iter().enumerate() {
            let stuck = council.stuck(member, shown.clone(), old.clone());
            stage.keepers[which].hosts(Some(stuck));
        }
        env.clock.sleep(FRESH_FOR + Duration::from_secs(1)).await;
        council.reaches(60);
        (4..8).for_each(|which| stage.set(which, Fault::Delay(Duration::from_millis(700))));
        // Where present members can be reached, they are the ones that are asked.
        let read = heads(&stage, "ada", &council).read_fresh(&ANY, "main").await.unwrap();
        assert_eq!((read.head.header.height, read.head.header.epoch), (60, 1));
        // Where none can, nothing is taken for fresh; who asks for no more reads what there is.
        (4..9).for_each(|which| stage.set(which, Fault::Down));
        let bob = heads(&stage, "bob", &council);
        let error = bob.read_fresh(&ANY, "main").await.unwrap_err();
        assert!(matches!(error, CertifiedError::Stale { age } if age > FRESH_FOR), "{error}");
        assert_eq!(error.class(), Class::Unavailable, "{error}");
        assert_eq!(bob.read(&ANY, "main").await.unwrap().head.header.height, 10);
    });
}

#[test]
fn a_fresh_header_may_be_as_old_as_clocks_are_off() {
    run(17, |env| async move {
        let stage = Stage::new(&env);
        let council = seated(&stage);
        council.reaches(10);
        env.clock.sleep(FRESH_FOR - Duration::from_secs(30)).await;
        let heads = heads(&stage, "ada", &council);
        assert_eq!(heads.read_fresh(&ANY, "main").await.unwrap().head.header.height, 10);
        env.clock.sleep(Duration::from_secs(31)).await;
        let error = heads.read_fresh(&ANY, "main").await.unwrap_err();
        assert!(matches!(error, CertifiedError::Stale { .. }), "{error}");
        // As soon as a block is certified it is fresh again.
        council.reaches(11);
        assert_eq!(heads.read_fresh(&ANY, "main").await.unwrap().head.header.height, 11);
    });
}

/// An epoch whose last block this user has seen; with `lags` one member has not.
async fn ended(env: &env::Env, lags: bool) -> (Stage, Arc<Council>) {
    let stage = Stage::new(env);
    let council = between_epochs(&stage);
    let before = council.now();
    council.reaches(11);
    heads(&stage, "ada", &council).read(&ANY, "main").await.unwrap();
    council.ends(&NEXT);
    if lags {
        let shown = cards(&stage, &FIRST, 0, 1);
        stage.keepers[3].hosts(Some(council.stuck(4, shown, before)));
    }
    (stage, council)
}

/// Both epochs' members, at the first eight keepers.
fn between_epochs(stage: &Stage) -> Arc<Council> {
    let council = seated(stage);
    council.reaches(10);
    let (first, next) = (cards(stage, &FIRST, 0, 1), cards(stage, &NEXT, 4, 1));
    for (which, member) in FIRST.into_iter().chain(NEXT).enumerate() {
        let shown = first.iter().chain(&next).cloned().collect();
        stage.keepers[which].hosts(Some(council.honest(member, shown)));
    }
    council
}

/// Lets the next epoch begin, in a while.
async fn begins(stage: &Stage, council: &Council) {
    stage.env.clock.sleep(Duration::from_secs(3)).await;
    council.becomes(&NEXT, 50);
}

#[test]
fn who_comes_between_two_epochs_waits_for_the_next_whatever_one_peer_says() {
    run(11, |env| async move {
        for (junk, lags, fresh) in [
            (false, false, false),
            (false, false, true),
            (true, false, false),
            (true, false, true),
            (false, true, false),
            (false, true, true),
            (true, true, false),
        ] {
            let (stage, council) = ended(&env, lags).await;
            if junk {
                let hosted = |_| Ok(CommitteeAnswer::Update(Vec::new()));
                stage.keepers[8].hosts(Some(Arc::new(hosted)));
            }
            let (heads, began) = (heads(&stage, "ada", &council), env.clock.elapsed());
            assert_eq!(heads.height(), 11);
            let read = async {
                match fresh {
                    false => heads.read(&ANY, "main").await,
                    true => heads.read_fresh(&ANY, "main").await,
                }
            };
            let (read, ()) = futures::join!(read, begins(&stage, &council));
            let header = read.unwrap().head.header;
            assert_eq!((header.height, header.epoch), (50, 1), "{junk} {lags} {fresh}");
            assert!(env.clock.elapsed() - began < Duration::from_secs(10));
        }
    });
}

#[test]
fn an_epoch_that_never_begins_is_waited_for_no_longer_than_a_read_has() {
    run(12, |env| async move {
        for lags in [false, true] {
            let (stage, council) = ended(&env, lags).await;
            let heads = heads(&stage, "ada", &council);
            for fresh in [false, true] {
                let began = env.clock.elapsed();
                let error = match fresh {
                    false => heads.read(&ANY, "main").await.unwrap_err(),
                    true => heads.read_fresh(&ANY, "main").await.unwrap_err(),
                };
                let took = env.clock.elapsed() - began;
                assert!(took > Duration::from_secs(10), "{took:?}");
                assert!(took <= Duration::from_secs(61), "{took:?}");
                // The reason is told, and no corruption: nobody lies.
                match lags {
                    false => assert!(matches!(error, CertifiedError::NoMembers { .. }), "{error}"),
                    true => assert!(matches!(error, CertifiedError::Behind { .. }), "{error}"),
                }
                assert_eq!(error.class(), Class::Unavailable, "{error}");
            }
        }
    });
}

/// Members of the first epoch, who do this when they are asked to read as of a view.
fn when_read(
    stage: &Stage,
    council: &Arc<Council>,
    act: impl Fn() -> Result<(), CallError> + Send + Sync + 'static,
) {
    let (shown, act) = (cards(stage, &FIRST, 0, 1), Arc::new(act));
    for (which, member) in FIRST.into_iter().enumerate() {
        let (honest, act) = (council.honest(member, shown.clone()), Arc::clone(&act));
        stage.keepers[which].hosts(Some(Arc::new(move |ask| {
            if matches!(ask, CommitteeAsk::Read { at: Some(_), .. }) {
                act()?;
            }
            honest(ask)
        })));
    }
}

#[test]
fn a_fresh_read_is_tried_again_where_no_member_comes_to_the_view() {
    run(13, |env| async move {
        let stage = Stage::new(&env);
        let council = seated(&stage);
        let clock = Arc::clone(&env.clock);
        when_read(&stage, &council, move || match clock.elapsed() < Duration::from_secs(1) {
            true => Err(CallError::NotFound),
            false => Ok(()),
        });
        let heads = heads(&stage, "ada", &council);
        heads.read_fresh(&ANY, "main").await.unwrap();
        assert!(env.clock.elapsed() >= Duration::from_secs(1));
    });
}

#[test]
fn a_fresh_read_asks_the_members_whom_its_header_names() {
    run(14, |env| async move {
        // The epoch begins while the old members are asked: they know its first block and no more.
        let stage = Stage::new(&env);
        let council = seated(&stage);
        council.reaches(10);
        let (first, next) = (cards(&stage, &FIRST, 0, 1), cards(&stage, &NEXT, 4, 1));
        let begun = Arc::new(Mutex::new(None));
        for (which, member) in FIRST.into_iter().enumerate() {
            let (council, begun, shown) = (Arc::clone(&council), Arc::clone(&begun), first.clone());
            stage.keepers[which].hosts(Some(Arc::new(move |ask| {
                let mut begun = begun.lock().unwrap();
                if begun.is_none() && matches!(ask, CommitteeAsk::Read { at: Some(_), .. }) {
                    council.becomes(&NEXT, 50);
                    *begun = Some(council.now());
                    council.reaches(60);
                }
                let point = begun.clone().unwrap_or_else(|| council.now());
                Ok(council.answer(&point, member, &shown, ask))
            })));
        }
        for (which, member) in NEXT.into_iter().enumerate() {
            stage.keepers[4 + which].hosts(Some(council.honest(member, next.clone())));
        }
        let heads = heads(&stage, "ada", &council);
        let read = heads.read_fresh(&ANY, "main").await.unwrap();
        assert_eq!(read.head.header.height, 60);
    });
}

#[test]
fn members_that_are_always_others_than_was_told_are_busy_and_no_corruption() {
    run(15, |env| async move {
        // What they tell is of one epoch, and what they read of the next.
        let stage = Stage::new(&env);
        let council = seated(&stage);
        council.reaches(50);
        let old = council.now();
        council.becomes(&NEXT, 50);
        let shown = cards(&stage, &FIRST, 0, 1);
        for (which, member) in FIRST.into_iter().enumerate() {
            let stuck = council.stuck(member, shown.clone(), old.clone());
            let honest = council.honest(member, shown.clone());
            stage.keepers[which].hosts(Some(Arc::new(move |ask| match ask {
                CommitteeAsk::Read { at: Some(_), .. } => honest(ask),
                ask => stuck(ask),
            })));
        }
        let began = env.clock.elapsed();
        let error = heads(&stage, "ada", &council).read_fresh(&ANY, "main").await.unwrap_err();
        assert_eq!(error.class(), Class::Busy, "{error}");
        assert!(env.clock.elapsed() - began <= Duration::from_secs(61));
    });
}

#[test]
fn members_that_moved_are_looked_for_again_and_nobody_waits_for_ever() {
    run(4, |env| async move {
        let stage = Stage::new(&env);
        let council = seated(&stage);
        let ada = stage.user("ada");
        let heads = CertifiedHeads::new(&ada, council.group.clone()).unwrap();
        let notes = ada.create(b"notes", open()).await.unwrap();
        heads.make_known(&notes).await.unwrap().accepted().unwrap();
        let mut watch = heads.watch(&notes.key(), "main");
        watch.next().await.unwrap();
        let peers = async || {
            let seats = heads.seats().await.unwrap();
            seats.seats.iter().map(|seat| seat.peer).collect::<Vec<_>>()
        };
        for (from, time_ms) in [(4, 2), (0, 3)] {
            (0..9).for_each(|which| stage.keepers[which].hosts(None));
            seat(&stage, &council, &FIRST, from, time_ms);
            match from {
                4 => drop(heads.read(&notes.key(), "main").await.unwrap()),
                // An update finds them as well.
                _ => drop(heads.make_known(&notes).await.unwrap().accepted().unwrap()),
            }
            let now: Vec<_> = (from..from + 4).map(|which| stage.keepers[which].id).collect();
            assert_eq!(peers().await, now);
        }
        // All hang: reads end, and begin anew with members that are elsewhere by then.
        (0..9).for_each(|which| stage.set(which, Fault::Hang));
        for fresh in [false, true] {
            let began = env.clock.elapsed();
            let error = match fresh {
                false => heads.read(&ANY, "main").await.unwrap_err(),
                true => heads.read_fresh(&ANY, "main").await.unwrap_err(),
            };
            assert_eq!(error.class(), Class::Unavailable, "{error}");
            assert!(env.clock.elapsed() - began <= Duration::from_secs(61));
        }
        (0..9).for_each(|which| stage.set(which, Fault::None));
        (0..4).for_each(|which| stage.keepers[which].hosts(None));
        seat(&stage, &council, &FIRST, 5, 4);
        heads.read(&ANY, "main").await.unwrap();
        assert_eq!(peers().await[0], stage.keepers[5].id);
    });
}

fn open() -> PolicyOptions {
    PolicyOptions { open: true, public: true, ..PolicyOptions::default() }
}

#[test]
fn an_update_after_a_pause_is_valid() {
    run(5, |env| async move {
        let stage = Stage::new(&env);
        let council = seated(&stage);
        let ada = stage.user("ada");
        let notes = ada.create(b"notes", open()).await.unwrap();
        let heads = CertifiedHeads::new(&ada, council.group.clone()).unwrap();
        heads.read(&notes.key(), "main").await.unwrap();
        // In another run, which remembers a height of long ago.
        council.reaches(300_000);
        let heads = CertifiedHeads::new(&ada, council.group.clone()).unwrap();
        assert!(heads.height() < 10);
        heads.make_known(&notes).await.unwrap().accepted().unwrap();
        // And in one that paused.
        council.reaches(900_000);
        env.clock.sleep(Duration::from_secs(3_600)).await;
        let one = notes.put(None, "one", WriteOptions::default()).await.unwrap();
        let decided = heads.set(&notes, "main", Expected::Nothing, &one.id).await.unwrap();
        assert_eq!(decided.accepted().unwrap(), 900_001);
    });
}

#[test]
fn receipts_that_are_too_few_now_are_asked_for_anew() {
    run(6, |env| async move {
        let stage = Stage::new(&env);
        let council = council(&stage, 2);
        seat(&stage, &council, &FIRST, 0, 1);
        let ada = stage.user("ada");
        let notes = ada.create(b"notes", open()).await.unwrap();
        let one = notes.put(None, "one", WriteOptions::default()).await.unwrap().id;
        let mut receipts = notes.receipts(&one).await.unwrap();
        assert!(receipts.len() >= 2);
        // One is kept, from when that was enough.
        receipts.truncate(1);
        let home = ada.author().home().dir();
        let kept = KeptReceipts { object: notes.key(), receipts };
        kept.keep(home, &one.h).unwrap();
        let heads = CertifiedHeads::new(&ada, council.group.clone()).unwrap();
        let decided = heads.set(&notes, "main", Expected::Nothing, &one).await.unwrap();
        decided.accepted().unwrap();
        assert!(KeptReceipts::read(home, &one.h).unwrap().receipts.len() >= 2);

        // Where they cannot be kept it is done all the same.
        let two = notes.put(Some(&one), "two", WriteOptions::default()).await.unwrap().id;
        std::fs::remove_dir_all(home.join("receipts")).unwrap();
        std::fs::write(home.join("receipts"), "in the way").unwrap();
        let decided = heads.set(&notes, "main", Expected::Whatever, &two).await.unwrap();
        decided.accepted().unwrap();
    });
}

#[test]
fn of_a_bundle_each_answer_must_hold() {
    const COUNT: usize = 200;
    run(7, |env| async move {
        let stage = Stage::new(&env);
        let council = seated(&stage);
        let ada = stage.user("ada");
        let network = stage.community.genesis.network();
        let record = ObjectRecord { network, owner: ada.public_key(), name: "notes".into() };
        let update = |one: usize| Update {
            network,
            group: council.group.id(),
            author: ada.public_key(),
            id: [one as u8; 16],
            last_valid: 1_000,
            operation: Operation::Object { record: record.encode().unwrap(), policy: Bytes::new() },
        };
        let updates: Vec<Update> = (0..COUNT).map(update).collect();
        let owner = ada.author().home().keyring().owner();
        let bundle = Submission::bundle(&updates, &owner).unwrap();
        let heads = CertifiedHeads::new(&ada, council.group.clone()).unwrap();
        let answers = heads.submit(&bundle).await.unwrap();
        assert_eq!(answers.len(), COUNT);
        assert!(answers.iter().all(|one| matches!(one.outcome, Outcome::Accepted { .. })));
        // The last byte is the signature's; one far in front of it is the outcome's.
        for back in [1, 600] {
            let cards = cards(&stage, &FIRST, 0, 1);
            for (which, member) in FIRST.into_iter().enumerate() {
                let honest = council.honest(member, cards.clone());
                stage.keepers[which].hosts(Some(Arc::new(move |ask| match honest(ask)? {
                    CommitteeAnswer::Update(mut answers) => {
                        let mut bytes = answers[COUNT / 2].to_vec();
                        let at = bytes.len() - back;
                        bytes[at] ^= 1;
                        answers[COUNT / 2] = bytes.into();
                        Ok(CommitteeAnswer::Update(answers))
                    }
                    answer => Ok(answer),
                })));
            }
            let error = heads.submit(&bundle).await.unwrap_err();
            assert!(matches!(error, CertifiedError::Committee(_)), "{error}");
            assert_eq!(error.class(), Class::Corrupt, "{error}");
        }
    });
}

#[test]
fn a_member_that_no_librarian_shows_is_told_as_away() {
    run(8, |env| async move {
        let stage = Stage::new(&env);
        let council = council(&stage, 1);
        let cards = cards(&stage, &FIRST, 0, 1)[..3].to_vec();
        for (which, member) in FIRST.into_iter().enumerate().take(3) {
            stage.keepers[which].hosts(Some(council.honest(member, cards.clone())));
        }
        let reports = heads(&stage, "ada", &council).status().await.unwrap();
        let members: Vec<_> = reports.iter().map(|one| one.member).collect();
        assert_eq!(members, FIRST.map(id));
        assert!(reports[..3].iter().all(|one| one.seat.is_some() && one.report.is_ok()));
        assert_eq!((&reports[3].seat, &reports[3].report), (&None, &Err(CallError::NotFound)));
    });
}
